//! Overloaded operators and elementwise methods of [`Tensor`].
//!
//! Ops take operands of equal shapes, as `jax.lax` does. The operators here broadcast as NumPy
//! does: shapes are aligned at their last axes, and an extent of 1 or a missing axis is repeated.
//! A Rust number takes the dtype of the other operand. On the left of an operator it is an `f64` or
//! an `i64`, so that a literal there has one type and `(1.0 - &a).sqrt()` needs no annotation. On
//! the right it is of any type that is a [`Number`].
//!
//! `!`, `&`, `|` and `^` combine masks, and the bits of integers.
//!
//! ```
//! # use wengert_core::{build::FunctionBuilder, interpret, DType, Literal, TensorType};
//! # let function = FunctionBuilder::build("f", |f| {
//! let x = f.input("x", TensorType::new(DType::I32, [4]));
//! f.output("y", x.gt(0) & !x.eq(2) | x.lt(-1));
//! f.output("low", &x & 3);
//! # }).expect("the example is right");
//! # let x = Literal::from_vec(&[4], vec![1i32, 2, -2, 7]).expect("four elements");
//! # let y = interpret::run(&function, &[x]).expect("it runs");
//! // Of [1, 2, -2, 7]:
//! assert_eq!(y[0].as_slice::<bool>(), Some(&[true, false, true, true][..]));
//! assert_eq!(y[1].as_slice::<i32>(), Some(&[1, 2, 2, 3][..]));
//! ```

use super::tensor::Tensor;
use crate::diagnostic::Diagnostic;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::literal::Literal;
use crate::op::collective::pvary;
use crate::op::{
    Binary, BroadcastInDim, Clamp, Compare, IntegerPow, NextAfter, Polygamma, ReducePrecision,
    Select, SelectN, Unary,
};
use crate::scalar::Scalar;
use crate::ty::TensorType;

impl Tensor {
    /// A tensor of the dtype and shape of `self` with all elements `value`.
    #[track_caller]
    pub fn full_like(&self, value: f64) -> Tensor {
        self.splat(Scalar::from_f64(self.dtype(), value))
    }

    /// A tensor of zeros of a type.
    #[track_caller]
    pub fn zeros(ty: &TensorType) -> Tensor {
        Tensor::full(ty, Scalar::zero(ty.dtype))
    }

    /// A tensor of a type with all elements `value`, which has its dtype.
    #[track_caller]
    pub fn full(ty: &TensorType, value: Scalar) -> Tensor {
        let scalar = Tensor::constant(Literal::full(&[], value));
        let rank = ty.rank();
        let full = if rank == 0 { scalar } else { scalar.broadcast_in_dim(ty.shape.clone(), &[]) };
        pvary(&full, &ty.varying)
    }

    /// A tensor of zeros of the dtype and shape of `self`.
    #[track_caller]
    pub fn zeros_like(&self) -> Tensor {
        self.full_like(0.0)
    }

    /// A tensor of ones of the dtype and shape of `self`.
    #[track_caller]
    pub fn ones_like(&self) -> Tensor {
        self.full_like(1.0)
    }

    /// A tensor of the shape of `self` with all elements `value`.
    #[track_caller]
    pub fn splat(&self, value: Scalar) -> Tensor {
        if self.error().is_some() {
            return self.clone();
        }
        // Without a current scope `self` may be an eager tensor. The new tensor then belongs to
        // its scope.
        let nowhere = super::Scope::current().is_none();
        let _entered = self.scope().filter(|_| nowhere).map(super::Scope::entered);
        Tensor::full(self.ty(), value)
    }

    /// `broadcast_in_dim`: axis i of `self` becomes axis `dims[i]` of the result. The other axes
    /// are repeated.
    #[track_caller]
    pub fn broadcast_in_dim(&self, shape: Vec<Dim>, dims: &[usize]) -> Tensor {
        Tensor::apply(BroadcastInDim { shape, dims: dims.to_vec() }, &[self])
    }

    /// Broadcasts as NumPy does: shapes are aligned at their last axes; extents of 1 and missing
    /// axes are repeated.
    #[track_caller]
    pub fn broadcast_to(&self, shape: &[Dim]) -> Tensor {
        if self.error().is_some() || self.shape() == shape {
            return self.clone();
        }
        let Some(offset) = shape.len().checked_sub(self.rank()) else {
            let error = Diagnostic::new(format!(
                "broadcast_to: {} has {} axes, the shape {shape:?} has {}",
                self.ty(),
                self.rank(),
                shape.len()
            ));
            return self.fail(
                error.help("a shape to broadcast to has at least as many axes as the tensor"),
            );
        };
        let dims: Vec<usize> = (0..self.rank()).map(|i| i + offset).collect();
        self.broadcast_in_dim(shape.to_vec(), &dims)
    }

    /// Broadcasts both operands to a common shape.
    #[track_caller]
    fn align(&self, other: &Tensor) -> (Tensor, Tensor) {
        if self.shape() == other.shape() || self.error().is_some() || other.error().is_some() {
            return (self.clone(), other.clone());
        }
        match common_shape(self.shape(), other.shape()) {
            Some(shape) => (self.broadcast_to(&shape), other.broadcast_to(&shape)),
            // The op's own rule is left to report it, since it names both types.
            None => (self.clone(), other.clone()),
        }
    }

    /// An elementwise op on operands that are broadcast to a common shape.
    #[track_caller]
    pub fn binary(&self, op: Binary, other: &Tensor) -> Tensor {
        let (a, b) = self.align(other);
        Tensor::apply(op, &[&a, &b])
    }

    /// An elementwise op.
    #[track_caller]
    pub fn unary(&self, op: Unary) -> Tensor {
        Tensor::apply(op, &[self])
    }

    /// An elementwise comparison of operands that are broadcast to a common shape.
    #[track_caller]
    pub fn compare(&self, op: Compare, other: &Tensor) -> Tensor {
        let (a, b) = self.align(other);
        Tensor::apply(op, &[&a, &b])
    }

    /// `select`: elements of `on_true` where `self` (bool) is true, else of `on_false`: `where` of
    /// NumPy and PyTorch. All three broadcast to one shape. A Rust number takes the dtype of the
    /// other choice. Two numbers give f32 if one of them is a float, else the dtype of their type,
    /// or i64 if they have two.
    ///
    /// # Errors
    /// `self` is not of bools; the choices have two dtypes; the shapes do not broadcast.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::F32, [2, 3]));
    /// let mask = x.gt(0.0).select(0.0, f32::NEG_INFINITY);
    /// assert_eq!(mask.ty().to_string(), "f32[2,3]");
    /// let relu = x.gt(0.0).select(&x, 0.0);
    /// assert_eq!(relu.ty(), x.ty());
    /// # }).expect("the example is right");
    /// ```
    #[doc(alias = "where")]
    #[track_caller]
    pub fn select(&self, on_true: impl Operand, on_false: impl Operand) -> Tensor {
        let tensors = [on_true.as_tensor().cloned(), on_false.as_tensor().cloned()];
        let (x, y) = match tensors {
            [Some(x), Some(y)] => (x, y),
            [Some(x), None] => (x.clone(), on_false.beside(&x)),
            [None, Some(y)] => (on_true.beside(&y), y),
            [None, None] => {
                let dtype = dtype_of_numbers(on_true.number_dtype(), on_false.number_dtype());
                let scalar = Tensor::zeros(&TensorType::scalar(dtype));
                (on_true.beside(&scalar), on_false.beside(&scalar))
            }
        };
        let (x, y) = x.align(&y);
        if self.error().is_some() || x.error().is_some() || y.error().is_some() {
            return Tensor::apply(Select {}, &[self, &x, &y]);
        }
        let (pred, x, y) = match common_shape(self.shape(), x.shape()) {
            // A scalar condition needs no broadcast.
            _ if self.rank() == 0 => (self.clone(), x, y),
            Some(shape) if x.shape() == y.shape() => {
                (self.broadcast_to(&shape), x.broadcast_to(&shape), y.broadcast_to(&shape))
            }
            _ => (self.broadcast_to(x.shape()), x, y),
        };
        Tensor::apply(Select {}, &[&pred, &x, &y])
    }

    /// `self`, with `value` where `mask` (bool) is true. All three broadcast to one shape; a Rust
    /// number takes the tensor's dtype.
    ///
    /// # Errors
    /// The mask is not of bools; dtypes differ; the shapes do not broadcast.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let scores = f.input("scores", TensorType::new(DType::F32, [2, 3, 3]));
    /// let padding = f.input("padding", TensorType::new(DType::Bool, [2, 1, 3]));
    /// let masked = scores.masked_fill(&padding, f32::NEG_INFINITY);
    /// assert_eq!(masked.ty(), scores.ty());
    /// # }).expect("the example is right");
    /// ```
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor, value: impl Operand) -> Tensor {
        mask.select(value, self)
    }

    /// `select_n`: elements of the case whose number `self` holds (bool or i32, a scalar or of
    /// the cases' shape). Numbers out of range are clamped.
    #[track_caller]
    pub fn select_n(&self, cases: &[&Tensor]) -> Tensor {
        let operands: Vec<&Tensor> = std::iter::once(self).chain(cases.iter().copied()).collect();
        Tensor::apply(SelectN {}, &operands)
    }

    /// `integer_pow`: `self` to a fixed power, by repeated squaring. Negative powers are defined
    /// for floats only.
    #[track_caller]
    pub fn integer_pow(&self, exponent: i64) -> Tensor {
        Tensor::apply(IntegerPow { exponent }, &[self])
    }

    /// `polygamma`: the derivative of order `order` of [`Tensor::digamma`]. Order 0 is `digamma`
    /// itself.
    #[track_caller]
    pub fn polygamma(&self, order: usize) -> Tensor {
        Tensor::apply(Polygamma { order }, &[self])
    }

    /// `nextafter`: the float next to `self` in the direction of `other`. Shapes broadcast; a
    /// Rust number takes the tensor's dtype.
    #[track_caller]
    pub fn nextafter(&self, other: impl Operand) -> Tensor {
        let (a, b) = self.align(&other.beside(self));
        Tensor::apply(NextAfter {}, &[&a, &b])
    }

    /// `checkpoint_name`: the value with a name to which an enclosing checkpoint may refer.
    #[track_caller]
    pub fn checkpoint_name(&self, name: &str) -> Tensor {
        Tensor::apply(crate::op::CheckpointName { name: name.into() }, &[self])
    }

    /// `reduce_precision`: `self` rounded to a float format with these numbers of bits, in its
    /// own dtype.
    #[track_caller]
    pub fn reduce_precision(&self, exponent_bits: usize, mantissa_bits: usize) -> Tensor {
        Tensor::apply(ReducePrecision { exponent_bits, mantissa_bits }, &[self])
    }

    /// `clamp`: `min(max(self, low), high)`.
    #[track_caller]
    pub fn clamp(&self, low: impl Operand, high: impl Operand) -> Tensor {
        Tensor::apply(Clamp {}, &[&low.beside(self), self, &high.beside(self)])
    }

    /// The strong product: `coefficient · self`, but 0 wherever `self` is 0, even if the
    /// coefficient is infinite or NaN.
    #[track_caller]
    pub fn scaled_by(&self, coefficient: &Tensor) -> Tensor {
        coefficient.binary(Binary::MulZero, self)
    }
}

/// A Rust number as operand.
pub trait Number: Copy {
    /// As an element of `dtype`.
    fn to_scalar(self, dtype: DType) -> Scalar;
}

/// Second operand of a method: a tensor or a Rust number.
pub trait Operand {
    /// As a tensor. A number takes dtype and shape of `tensor`.
    fn beside(self, tensor: &Tensor) -> Tensor;

    /// The tensor, unless it is a number.
    fn as_tensor(&self) -> Option<&Tensor>;

    /// The dtype of its Rust type.
    fn number_dtype(&self) -> DType;
}

impl Operand for &Tensor {
    fn beside(self, _tensor: &Tensor) -> Tensor {
        self.clone()
    }

    fn as_tensor(&self) -> Option<&Tensor> {
        Some(self)
    }

    fn number_dtype(&self) -> DType {
        self.dtype()
    }
}

impl Operand for Tensor {
    fn beside(self, _tensor: &Tensor) -> Tensor {
        self
    }

    fn as_tensor(&self) -> Option<&Tensor> {
        Some(self)
    }

    fn number_dtype(&self) -> DType {
        self.dtype()
    }
}

/// The dtype of a tensor made of two Rust numbers. A float literal is an f64 to Rust, so floats
/// give f32, the dtype of models.
fn dtype_of_numbers(a: DType, b: DType) -> DType {
    match (a, b) {
        _ if a.is_float() || b.is_float() => DType::F32,
        _ if a == b => a,
        _ => DType::I64,
    }
}

/// The shape to which both broadcast as NumPy does: aligned at their last axes, extents equal or 1.
/// `None` if they do not.
fn common_shape(a: &[Dim], b: &[Dim]) -> Option<Vec<Dim>> {
    let one = Dim::constant(1);
    let rank = a.len().max(b.len());
    let extent = |shape: &[Dim], axis: usize| match (axis + shape.len()).checked_sub(rank) {
        Some(i) => shape[i].clone(),
        None => one.clone(),
    };
    let common = |axis| match (extent(a, axis), extent(b, axis)) {
        (a, b) if a == b || b == one => Some(a),
        (a, b) if a == one => Some(b),
        _ => None,
    };
    (0..rank).map(common).collect()
}

macro_rules! number {
    ($($t:ty: $method:ident,)*) => {$(
        impl Number for $t {
            fn to_scalar(self, dtype: DType) -> Scalar { Scalar::$method(dtype, self.into()) }
        }

        impl Operand for $t {
            #[track_caller]
            fn beside(self, tensor: &Tensor) -> Tensor {
                tensor.splat(self.to_scalar(tensor.dtype()))
            }

            fn as_tensor(&self) -> Option<&Tensor> {
                None
            }

            fn number_dtype(&self) -> DType {
                <$t as crate::Native>::DTYPE
            }
        }
    )*};
}
number! { f32: from_f64, f64: from_f64, i32: from_i64, i64: from_i64, u32: from_i64, }

macro_rules! operator {
    ($($trait:ident $method:ident $op:ident;)*) => {$(
        impl std::ops::$trait<&Tensor> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: &Tensor) -> Tensor { self.binary(Binary::$op, other) }
        }
        impl std::ops::$trait<Tensor> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor { self.binary(Binary::$op, &other) }
        }
        impl std::ops::$trait<&Tensor> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: &Tensor) -> Tensor { self.binary(Binary::$op, other) }
        }
        impl std::ops::$trait<Tensor> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor { self.binary(Binary::$op, &other) }
        }
        impl<N: Number> std::ops::$trait<N> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: N) -> Tensor {
                let other = self.splat(other.to_scalar(self.dtype()));
                self.binary(Binary::$op, &other)
            }
        }
        impl<N: Number> std::ops::$trait<N> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: N) -> Tensor { std::ops::$trait::$method(&self, other) }
        }
        operator!(@number $trait $method f64 i64);
    )*};
    (@number $trait:ident $method:ident $($t:ty)*) => {$(
        impl std::ops::$trait<&Tensor> for $t {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: &Tensor) -> Tensor {
                std::ops::$trait::$method(other.splat(self.to_scalar(other.dtype())), other)
            }
        }
        impl std::ops::$trait<Tensor> for $t {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor { std::ops::$trait::$method(self, &other) }
        }
    )*};
}

operator! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
    Rem rem Rem;
    BitAnd bitand And;
    BitOr bitor Or;
    BitXor bitxor Xor;
}

impl std::ops::Neg for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        self.unary(Unary::Neg)
    }
}

impl std::ops::Neg for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        self.unary(Unary::Neg)
    }
}

impl std::ops::Not for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn not(self) -> Tensor {
        self.unary(Unary::Not)
    }
}

impl std::ops::Not for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn not(self) -> Tensor {
        !&self
    }
}
