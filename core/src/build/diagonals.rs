//! Methods of [`Tensor`] around the diagonals of its matrices: triangles, diagonals, traces, the
//! identity. Diagonal number `offset` consists of the elements `[i, i + offset]`: 0 is the main
//! diagonal, positive ones lie above it.

use super::axes::{Axis, position};
use super::failure::composed;
use super::tensor::Tensor;
use crate::diagnostic::{Result, bail, ensure};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{Compare, Pad};

impl Tensor {
    /// The lower triangle of each matrix `[…,m,n]`: elements above diagonal `offset` become 0.
    ///
    /// # Errors
    /// The tensor has fewer than two axes.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, interpret, DType, Literal, TensorType};
    /// # let function = FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::I32, [2, 3]));
    /// f.output("lower", x.tril(0));
    /// f.output("upper", x.triu(1));
    /// # }).expect("the example is right");
    /// # let x = Literal::from_vec(&[2, 3], vec![1i32, 2, 3, 4, 5, 6]).expect("six elements");
    /// # let y = interpret::run(&function, &[x]).expect("it runs");
    /// // Of [[1, 2, 3], [4, 5, 6]]:
    /// assert_eq!(y[0].as_slice::<i32>(), Some(&[1, 0, 0, 4, 5, 0][..]));
    /// assert_eq!(y[1].as_slice::<i32>(), Some(&[0, 2, 3, 0, 0, 6][..]));
    /// ```
    #[track_caller]
    pub fn tril(&self, offset: i64) -> Tensor {
        composed("tril", &[self], || self.triangle(Compare::Le, offset))
    }

    /// The upper triangle of each matrix `[…,m,n]`: elements below diagonal `offset` become 0. See
    /// [`tril`](Self::tril) for an example.
    ///
    /// # Errors
    /// The tensor has fewer than two axes.
    #[track_caller]
    pub fn triu(&self, offset: i64) -> Tensor {
        composed("triu", &[self], || self.triangle(Compare::Ge, offset))
    }

    /// The elements whose column compares with row + offset as `kept` says; the others are 0.
    fn triangle(&self, kept: Compare, offset: i64) -> Result<Tensor> {
        let rank = self.rank();
        ensure!(rank >= 2, "{} is no matrix", self.ty(); help "a matrix has two axes");
        let offset = clamped(offset);
        let is_small = |extent: &Dim| extent.as_extent().is_some_and(|n| n < 1 << 30);
        let dtype = match self.shape()[rank - 2..].iter().all(is_small)
            && offset.unsigned_abs() < 1 << 30
        {
            true => DType::I32,
            false => DType::I64,
        };
        let index = |axis| Tensor::iota(dtype, self.shape().to_vec(), axis);
        let inside = index(rank - 1).compare(kept, &(index(rank - 2) + offset));
        Ok(inside.select(self, &self.zeros_like()))
    }

    /// The identity matrix `[rows,columns]`: ones on the main diagonal, zeros elsewhere.
    ///
    /// # Errors
    /// There is no function to put it in.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, interpret, DType, Tensor};
    /// # let function = FunctionBuilder::build("f", |f| {
    /// f.output("y", Tensor::eye(DType::I32, 2, 3));
    /// # }).expect("the example is right");
    /// # let y = interpret::run(&function, &[]).expect("it runs");
    /// assert_eq!(y[0].as_slice::<i32>(), Some(&[1, 0, 0, 0, 1, 0][..]));
    /// ```
    #[track_caller]
    pub fn eye(dtype: DType, rows: impl Into<Dim>, columns: impl Into<Dim>) -> Tensor {
        let shape = [rows.into(), columns.into()];
        composed("eye", &[], || {
            let index = |axis: usize| Tensor::iota(DType::I32, shape.clone(), axis);
            Ok(index(0).eq(index(1)).convert(dtype))
        })
    }

    /// Diagonal `offset` of the matrices over two axes: the elements whose index along `columns` is
    /// that along `rows` plus the offset. The two axes are removed, and the diagonal is a new last
    /// axis, as in NumPy and PyTorch. Of `[8,3,5]`, `diagonal(0, 1, 2)` is `[8,3]`.
    ///
    /// # Errors
    /// There is no such axis; both axes are one; the length of the diagonal depends on which of two
    /// dimension variables is larger.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, interpret, DType, Literal, TensorType};
    /// # let function = FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::I32, [2, 3]));
    /// f.output("main", x.diagonal(0, 0, 1));
    /// f.output("above", x.diagonal(1, -2, -1));
    /// # }).expect("the example is right");
    /// # let x = Literal::from_vec(&[2, 3], vec![1i32, 2, 3, 4, 5, 6]).expect("six elements");
    /// # let y = interpret::run(&function, &[x]).expect("it runs");
    /// // Of [[1, 2, 3], [4, 5, 6]]:
    /// assert_eq!(y[0].as_slice::<i32>(), Some(&[1, 5][..]));
    /// assert_eq!(y[1].as_slice::<i32>(), Some(&[2, 6][..]));
    /// ```
    #[track_caller]
    pub fn diagonal(&self, offset: i64, rows: impl Axis, columns: impl Axis) -> Tensor {
        let numbers = [rows.number(), columns.number()];
        let offset = clamped(offset);
        composed("diagonal", &[self], || {
            let [rows, columns] = numbers.map(|number| position(self.ty(), number));
            let (rows, columns) = (rows?, columns?);
            ensure!(rows != columns, "rows and columns of {} are both axis {rows}", self.ty();
                help "name two axes");
            let length = diagonal_length(offset, &self.shape()[rows], &self.shape()[columns])?;
            // An empty diagonal may begin anywhere.
            let is_empty = length == Dim::constant(0);
            let part = |x: &Tensor, axis: usize, start: i64| match start {
                _ if is_empty => Some(x.slice_axis(axis, 0, 0)),
                0 if x.shape()[axis] == length => Some(x.clone()),
                _ => Some(x.slice_axis(axis, start, length.checked_add(&Dim::constant(start))?)),
            };
            // The square whose main diagonal is the result.
            let square = part(self, rows, (-offset).max(0))
                .and_then(|x| part(&x, columns, offset.max(0)))
                .and_then(|x| main_diagonal(&x, rows, columns, &length));
            let Some(square) = square else {
                bail!("{} has too many elements", self.ty(); help "take a smaller part of it");
            };
            Ok(square)
        })
    }

    /// Sum of the main diagonal of each matrix `[…,n,n]`; the last two axes are removed.
    ///
    /// # Errors
    /// The tensor has fewer than two axes; those of [`diagonal`](Self::diagonal).
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::F32, [8, 3, 3]));
    /// assert_eq!(x.trace().ty().to_string(), "f32[8]");
    /// # }).expect("the example is right");
    /// ```
    #[track_caller]
    pub fn trace(&self) -> Tensor {
        composed("trace", &[self], || {
            ensure!(self.rank() >= 2, "{} is no matrix", self.ty(); help "a matrix has two axes");
            Ok(self.diagonal(0, -2, -1).sum_axes(-1))
        })
    }
}

/// The offset, or one beyond every extent, whose sum with an index does not overflow.
fn clamped(offset: i64) -> i64 {
    offset.clamp(-(1 << 50), 1 << 50)
}

/// Length of diagonal `offset` of a matrix.
fn diagonal_length(offset: i64, rows: &Dim, columns: &Dim) -> Result<Dim> {
    let below = |extent: &Dim, cut: i64| extent.checked_add(&Dim::constant(cut));
    let lengths = below(rows, offset.min(0)).zip(below(columns, -(offset.max(0))));
    let Some((height, width)) = lengths else {
        bail!("diagonal {offset} of a matrix [{rows},{columns}]"; help "give a smaller offset");
    };
    let length = match (height.at_most(&width), width.at_most(&height)) {
        (true, _) => height,
        (_, true) => width,
        _ => bail!("a matrix [{rows},{columns}] may be wide or tall";
            help "give rows or columns a number, or both one variable"),
    };
    match length.as_constant() {
        Some(negative) if negative < 0 => Ok(Dim::constant(0)),
        _ => Ok(length),
    }
}

/// The main diagonal over two axes of extent `n`, as a new last axis; `None` if the number of
/// elements overflows. Element i of the diagonal is element i·(n+1) of the square in row-major
/// order, so it is the first column of these elements in rows of n + 1. Nothing is added, and every
/// op is a change of index.
fn main_diagonal(x: &Tensor, rows: usize, columns: usize, n: &Dim) -> Option<Tensor> {
    let leading: Vec<usize> = (0..x.rank()).filter(|a| *a != rows && *a != columns).collect();
    let shape = |last: &[Dim]| {
        leading.iter().map(|axis| x.shape()[*axis].clone()).chain(last.to_vec()).collect::<Vec<_>>()
    };
    let flat = x
        .permute([leading.clone(), vec![rows, columns]].concat())
        .reshape(shape(&[n.checked_mul(n)?]));
    let mut high = vec![Dim::constant(0); leading.len()];
    high.push(n.clone());
    let pad = Pad { low: vec![Dim::constant(0); high.len()], high, interior: vec![] };
    let zero = Tensor::zeros(&crate::TensorType::scalar(x.dtype()));
    let longer = n.checked_add(&Dim::constant(1))?;
    let wide = Tensor::apply(pad, &[&flat, &zero]).reshape(shape(&[n.clone(), longer]));
    Some(wide.slice_axis(-1, 0, 1).squeeze(-1))
}
