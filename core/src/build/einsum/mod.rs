//! `einsum`, and the products that are special cases of it: Einstein's summation convention, in
//! the notation of NumPy.
//!
//! `"ij,jk->ik"` names the axes of each operand by letters, and the axes of the result after the
//! arrow. Elements with equal indices are multiplied. A letter that the result lacks is summed
//! over. Hence:
//!
//! | subscripts | result |
//! |---|---|
//! | `ij,jk->ik` | matrix product |
//! | `bij,bjk->bik` | batch of matrix products |
//! | `i,j->ij` | outer product |
//! | `ij->ji` | transpose |
//! | `ij->i` | sums of rows |
//! | `ii->i`, `ii->` | diagonal, trace |
//! | `...ij,...jk->...ik` | matrix products over leading axes, which broadcast |
//!
//! - **Implicit output.** Without an arrow the result has the axes of the ellipsis, then every
//!   letter that occurs once, in the order of ASCII.
//! - **Ellipsis.** `...` stands for the axes of an operand that no letter names. They are aligned
//!   at the last one and broadcast as NumPy does.
//! - **Repeated letters.** A letter that occurs twice in one operand takes its diagonal.
//! - All axes with one letter have one extent; only those of an ellipsis broadcast. White space is
//!   ignored.
//!
//! **Lowering.** `subscripts` parses and checks the notation. `contraction` takes diagonals, sums
//! over the axes that one operand alone has, and multiplies two operands at a time: as a
//! `dot_general` if they share an axis that is summed over, else elementwise. The next pair is the
//! one whose product takes the fewest multiplications; a dimension variable counts as 64 there.
//! This *greedy* order is not always the best one, which is NP-hard to find (Lam, Sadayappan and
//! Wenger, Parallel Processing Letters 7(2), 1997). So an expression with three operands or more
//! may be added in another order than it is written in.

mod contraction;
mod subscripts;

use super::failure::composed;
use super::tensor::Tensor;
use crate::diagnostic::{Result, bail, ensure};
use crate::dim::Dim;
use contraction::{Factor, contract};
use subscripts::Subscripts;

impl Tensor {
    /// `einsum`: sums of products of operands whose axes are named by letters. See the
    /// [module](crate::build::einsum) for the notation. All operands have one dtype, which is that
    /// of the result. Products of bools are conjunctions, and their sums disjunctions.
    ///
    /// # Errors
    /// The subscripts are not in the notation; the number of operands or of their axes is another
    /// one; axes with one letter have several extents; axes of an ellipsis do not broadcast; dtypes
    /// differ.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, Tensor, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let q = f.input("q", TensorType::new(DType::F32, [8, 2, 16, 4]));
    /// let k = f.input("k", TensorType::new(DType::F32, [8, 2, 16, 4]));
    /// let scores = Tensor::einsum("bhqd,bhkd->bhqk", &[&q, &k]);
    /// assert_eq!(scores.ty().to_string(), "f32[8,2,16,16]");
    /// let traces = Tensor::einsum("...ii->...", &[&scores]);
    /// assert_eq!(traces.ty().to_string(), "f32[8,2]");
    /// # }).expect("the example is right");
    /// ```
    #[track_caller]
    pub fn einsum(subscripts: &str, operands: &[impl AsRef<Tensor>]) -> Tensor {
        let operands: Vec<&Tensor> = operands.iter().map(AsRef::as_ref).collect();
        composed("einsum", &operands, || {
            let subscripts = Subscripts::parse(subscripts)?;
            let terms = subscripts.bind(&operands)?;
            let factors = operands.iter().zip(terms);
            let factors = factors.map(|(t, labels)| Factor { tensor: (*t).clone(), labels });
            Ok(contract(factors.collect(), &subscripts.output(&operands)))
        })
    }

    /// Matrix product by the rules of NumPy's `matmul`: `[…,m,k] · […,k,n]` is `[…,m,n]`. Leading
    /// axes broadcast. A vector on the left is a row, a vector on the right a column, and the
    /// result lacks its axis: `[k] · [k,n]` is `[n]`, `[k] · [k]` is a scalar.
    ///
    /// # Errors
    /// An operand is a scalar; extents of the axes that are summed over differ; leading axes do not
    /// broadcast; dtypes differ.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let a = f.input("a", TensorType::new(DType::F32, [8, 1, 2, 3]));
    /// let b = f.input("b", TensorType::new(DType::F32, [5, 3, 4]));
    /// let v = f.input("v", TensorType::new(DType::F32, [3]));
    /// assert_eq!(a.matmul(&b).ty().to_string(), "f32[8,5,2,4]");
    /// assert_eq!(a.matmul(&v).ty().to_string(), "f32[8,1,2]");
    /// # }).expect("the example is right");
    /// ```
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Tensor {
        composed("matmul", &[self, other], || {
            let (a, b) = (self, other);
            ensure!(a.rank() > 0 && b.rank() > 0,
                "operands have types {} and {}; a scalar has no axis", a.ty(), b.ty();
                help "multiply by a scalar with `*`");
            let (of_a, of_b) = (a.rank() - 1, b.rank().saturating_sub(2));
            let (k, l) = (&a.shape()[of_a], &b.shape()[of_b]);
            ensure!(k == l,
                "axis {of_a} of {} has extent {k}, axis {of_b} of {} has {l}", a.ty(), b.ty();
                help "the last axis of the left operand is as long as the last but one of the \
                      right operand, or its only one");
            let subscripts = match (a.rank(), b.rank()) {
                (1, 1) => "k,k->",
                (1, _) => "k,...kn->...n",
                (_, 1) => "...mk,k->...m",
                _ => "...mk,...kn->...mn",
            };
            let subscripts = Subscripts::parse(subscripts).expect("these are well formed");
            let operands = [a, b];
            one_dtype(&operands)?;
            // Only the extents of the leading axes are not checked yet.
            let Ok(terms) = subscripts.bind(&operands) else {
                bail!("leading axes of {} and {} do not broadcast", a.ty(), b.ty();
                    help "all axes but the last two are aligned at the last one; their extents are \
                          equal or 1");
            };
            let factors = [a, b].into_iter().zip(terms);
            let factors = factors.map(|(t, labels)| Factor { tensor: t.clone(), labels });
            Ok(contract(factors.collect(), &subscripts.output(&operands)))
        })
    }

    /// Outer product: each element of `self` times each element of `other`. Of `[a…]` and `[b…]`
    /// the result is `[a…,b…]`, as NumPy's `multiply.outer`.
    ///
    /// # Errors
    /// Dtypes differ.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let a = f.input("a", TensorType::new(DType::F32, [2]));
    /// let b = f.input("b", TensorType::new(DType::F32, [3, 4]));
    /// assert_eq!(a.outer(&b).ty().to_string(), "f32[2,3,4]");
    /// # }).expect("the example is right");
    /// ```
    #[track_caller]
    pub fn outer(&self, other: &Tensor) -> Tensor {
        composed("outer", &[self, other], || {
            one_dtype(&[self, other])?;
            let shape: Vec<Dim> =
                self.shape().iter().cloned().chain(vec![Dim::constant(1); other.rank()]).collect();
            Ok(self.reshape(shape) * other)
        })
    }
}

/// Error: operands have several dtypes.
fn one_dtype(operands: &[&Tensor]) -> Result<()> {
    let Some(first) = operands.first() else { return Ok(()) };
    if let Some(other) = operands.iter().find(|t| t.dtype() != first.dtype()) {
        bail!("operands have types {} and {}", first.ty(), other.ty();
            help "convert one of them, e.g. by `.convert(DType::F32)`");
    }
    Ok(())
}
