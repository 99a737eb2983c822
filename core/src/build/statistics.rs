//! Methods of [`Tensor`] that reduce: extrema, products, truth, standard deviations, norms; and
//! reductions that keep the reduced axes.
//!
//! `…_axes` removes the axes that it reduces. `…_keepdims` keeps them with extent 1, so that the
//! result broadcasts against the operand: of `[2,3]`, `sum_axes(-1)` is `[2]`, and
//! `sum_keepdims(-1)` is `[2,1]`.

use super::axes::{Axes, positions};
use super::failure::composed;
use super::tensor::Tensor;
use crate::diagnostic::{Result, bail, ensure};
use crate::dim::Dim;
use crate::op::ReduceKind;

macro_rules! keepdims {
    ($($(#[doc = $doc:literal])+ $name:ident($($argument:ident: $t:ty)?) $of:ident;)*) => {
        impl Tensor {
            $($(#[doc = $doc])+
            ///
            /// The axes are kept with extent 1: of `[2,3]`, the result along −1 is `[2,1]`.
            ///
            /// # Errors
            /// There is no such axis; an axis is named twice; the dtype is one that the reduction
            /// does not have.
            #[track_caller]
            pub fn $name(&self, axes: impl Axes $(, $argument: $t)?) -> Tensor {
                let axes = axes.numbers(self.rank());
                composed(stringify!($name), &[self], || {
                    let axes = positions(self.ty(), &axes)?;
                    Ok(self.$of(&axes $(, $argument)?).kept(self, &axes))
                })
            })*
        }
    };
}

keepdims! {
    /// Sum along axes.
    sum_keepdims() sum_axes;
    /// Product along axes.
    prod_keepdims() prod_axes;
    /// Mean along axes. Halves are added and divided in f32.
    mean_keepdims() mean_axes;
    /// Greatest element along axes.
    max_keepdims() max_axes;
    /// Least element along axes.
    min_keepdims() min_axes;
    /// Variance along axes.
    var_keepdims() var_axes;
    /// Standard deviation along axes.
    std_keepdims() std_axes;
    /// Whether any element along axes is true.
    any_keepdims() any_axes;
    /// Whether all elements along axes are true.
    all_keepdims() all_axes;
    /// [`norm_axes`](Tensor::norm_axes) along axes.
    norm_keepdims(order: f64) norm_axes;
}

impl Tensor {
    /// The result of a reduction of `operand` along `axes`, with these axes of extent 1.
    #[track_caller]
    fn kept(&self, operand: &Tensor, axes: &[usize]) -> Tensor {
        if self.error().is_some() {
            return self.clone();
        }
        let mut shape = operand.shape().to_vec();
        axes.iter().for_each(|axis| shape[*axis] = Dim::constant(1));
        self.reshape(shape)
    }

    /// Least element along axes, which are removed.
    ///
    /// # Errors
    /// There is no such axis; an axis is named twice; the dtype is bool.
    #[track_caller]
    pub fn min_axes(&self, axes: impl Axes) -> Tensor {
        self.reduce(ReduceKind::Min, axes)
    }

    /// Product along axes, which are removed.
    ///
    /// # Errors
    /// There is no such axis; an axis is named twice; the dtype is bool.
    #[track_caller]
    pub fn prod_axes(&self, axes: impl Axes) -> Tensor {
        self.reduce(ReduceKind::Prod, axes)
    }

    /// Whether any element is true: a scalar; false if there is no element.
    ///
    /// # Errors
    /// The dtype is not bool.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::F32, [2, 3]));
    /// assert_eq!(x.gt(0.0).any().ty().to_string(), "bool[]");
    /// assert_eq!(x.gt(0.0).all_axes(-1).ty().to_string(), "bool[2]");
    /// # }).expect("the example is right");
    /// ```
    #[track_caller]
    pub fn any(&self) -> Tensor {
        self.any_axes(..)
    }

    /// Whether all elements are true: a scalar; true if there is no element.
    ///
    /// # Errors
    /// The dtype is not bool.
    #[track_caller]
    pub fn all(&self) -> Tensor {
        self.all_axes(..)
    }

    /// Whether any element along axes is true. The axes are removed.
    ///
    /// # Errors
    /// The dtype is not bool; there is no such axis; an axis is named twice.
    #[track_caller]
    pub fn any_axes(&self, axes: impl Axes) -> Tensor {
        self.truth("any", ReduceKind::Or, axes)
    }

    /// Whether all elements along axes are true. The axes are removed.
    ///
    /// # Errors
    /// The dtype is not bool; there is no such axis; an axis is named twice.
    #[track_caller]
    pub fn all_axes(&self, axes: impl Axes) -> Tensor {
        self.truth("all", ReduceKind::And, axes)
    }

    #[track_caller]
    fn truth(&self, name: &str, kind: ReduceKind, axes: impl Axes) -> Tensor {
        let axes = axes.numbers(self.rank());
        composed(name, &[self], || {
            ensure!(self.dtype() == crate::DType::Bool, "{} is not of bools", self.ty();
                help "compare first, e.g. by `.ne(0.0)`");
            Ok(self.reduce(kind, axes))
        })
    }

    /// Variance along axes, which are removed: the squared deviations from the mean, added and
    /// divided by the count less `correction`. A correction of 1 is Bessel's. Halves are computed
    /// in f32. Infinite or NaN if the count does not exceed the correction.
    ///
    /// # Errors
    /// The dtype is not that of a float; there is no such axis; an axis is named twice.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, interpret, DType, Literal, TensorType};
    /// # let function = FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::F32, [2, 3]));
    /// f.output("y", x.var_with_correction(-1, 1.0));
    /// # }).expect("the example is right");
    /// # let x = Literal::from_vec(&[2, 3], vec![1f32, 2.0, 3.0, 1.0, 4.0, 7.0]).expect("six");
    /// # let y = interpret::run(&function, &[x]).expect("it runs");
    /// // Of [[1, 2, 3], [1, 4, 7]]:
    /// assert_eq!(y[0].as_slice::<f32>(), Some(&[1.0, 9.0][..]));
    /// ```
    #[track_caller]
    pub fn var_with_correction(&self, axes: impl Axes, correction: f64) -> Tensor {
        let axes = axes.numbers(self.rank());
        composed("var", &[self], || self.corrected(&axes, correction))
    }

    /// Standard deviation along axes, which are removed: the root of
    /// [`var_axes`](Self::var_axes). Its derivative is infinite or NaN where all elements are
    /// equal.
    ///
    /// # Errors
    /// Those of [`var_with_correction`](Self::var_with_correction).
    #[track_caller]
    pub fn std_axes(&self, axes: impl Axes) -> Tensor {
        self.std_with_correction(axes, 0.0)
    }

    /// Standard deviation of all elements.
    ///
    /// # Errors
    /// The dtype is not that of a float.
    #[track_caller]
    pub fn std(&self) -> Tensor {
        self.std_axes(..)
    }

    /// Standard deviation along axes, which are removed: the root of
    /// [`var_with_correction`](Self::var_with_correction).
    ///
    /// # Errors
    /// Those of [`var_with_correction`](Self::var_with_correction).
    #[track_caller]
    pub fn std_with_correction(&self, axes: impl Axes, correction: f64) -> Tensor {
        let axes = axes.numbers(self.rank());
        composed("std", &[self], || {
            let wide = self.convert(self.dtype().wide());
            Ok(wide.corrected(&axes, correction)?.sqrt().convert(self.dtype()))
        })
    }

    fn corrected(&self, axes: &[i64], correction: f64) -> Result<Tensor> {
        self.floats()?;
        let axes = positions(self.ty(), axes)?;
        let wide = self.dtype().wide();
        let x = self.convert(wide);
        let deviation = &x - x.mean_keepdims(&axes);
        if correction == 0.0 {
            return Ok(deviation.square().mean_axes(&axes).convert(self.dtype()));
        }
        let extents = axes.iter().map(|axis| Tensor::dim_as_value(x.shape()[*axis].clone(), wide));
        let count = extents.reduce(|count, extent| count * extent);
        let count = count.unwrap_or_else(|| Tensor::dim_as_value(1, wide));
        let sum = deviation.square().sum_axes(&axes);
        Ok((sum / (count - correction)).convert(self.dtype()))
    }

    /// Euclidean norm of all elements: √Σx². See [`norm_axes`](Self::norm_axes).
    ///
    /// # Errors
    /// The dtype is not that of a float.
    #[track_caller]
    pub fn norm(&self) -> Tensor {
        self.norm_axes(.., 2.0)
    }

    /// Norm of order p of the vectors along axes, which are removed: (Σ|x|ᵖ)^(1/p). Order 2 is the
    /// Euclidean norm (over two axes, that of Frobenius), order 1 the sum of magnitudes, ∞ the
    /// greatest and −∞ the least magnitude, 0 the number of elements that are not 0. Halves are
    /// computed in f32. The derivative at a vector of zeros is 0.
    ///
    /// # Errors
    /// The dtype is not that of a float; the order is NaN; there is no such axis; an axis is named
    /// twice.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, interpret, DType, Literal, TensorType};
    /// # let function = FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::F32, [2, 2]));
    /// f.output("two", x.norm_axes(-1, 2.0));
    /// f.output("greatest", x.norm_axes(-1, f64::INFINITY));
    /// # }).expect("the example is right");
    /// # let x = Literal::from_vec(&[2, 2], vec![3f32, 4.0, 0.0, -1.0]).expect("four elements");
    /// # let y = interpret::run(&function, &[x]).expect("it runs");
    /// // Of [[3, 4], [0, -1]]:
    /// assert_eq!(y[0].as_slice::<f32>(), Some(&[5.0, 1.0][..]));
    /// assert_eq!(y[1].as_slice::<f32>(), Some(&[4.0, 1.0][..]));
    /// ```
    #[track_caller]
    pub fn norm_axes(&self, axes: impl Axes, order: f64) -> Tensor {
        let axes = axes.numbers(self.rank());
        composed("norm", &[self], || {
            self.floats()?;
            let axes = &positions(self.ty(), &axes)?;
            let x = self.convert(self.dtype().wide());
            let norm = match order {
                2.0 => x.square().sum_axes(axes).root(2.0),
                1.0 => x.abs().sum_axes(axes),
                0.0 => x.ne(0.0).convert(x.dtype()).sum_axes(axes),
                f64::INFINITY => x.abs().max_axes(axes),
                f64::NEG_INFINITY => x.abs().min_axes(axes),
                p if p.is_nan() => bail!("the order is NaN"; help "give a number, or an infinity"),
                p => x.abs().pow(p).sum_axes(axes).root(p),
            };
            Ok(norm.convert(self.dtype()))
        })
    }

    /// The root of this order, with derivative 0 at 0.
    fn root(&self, order: f64) -> Tensor {
        let is_zero = self.eq(0.0);
        // The derivative of a root at 0 is infinite, and 0 · ∞ is NaN. So 0 is replaced before it.
        let inner = is_zero.select(&self.ones_like(), self);
        let root = if order == 2.0 { inner.sqrt() } else { inner.pow(1.0 / order) };
        is_zero.select(self, &root)
    }

    /// Error: the dtype is not that of a float.
    fn floats(&self) -> Result<()> {
        ensure!(self.dtype().is_float(), "{} is not of floats", self.ty();
            help "convert it to a float dtype first, e.g. by `.convert(DType::F32)`");
        Ok(())
    }
}
