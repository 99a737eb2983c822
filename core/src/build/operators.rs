//! Overloaded operators and elementwise methods of [`Tensor`].
//!
//! Ops take operands of equal shapes, as `jax.lax` does. The operators here broadcast as NumPy
//! does: shapes are aligned at their last axes, and an extent of 1 or a missing axis is repeated.
//! A Rust number takes the dtype of the other operand.

use super::tensor::Tensor;
use crate::diagnostic::Diagnostic;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::literal::Literal;
use crate::location::Location;
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
        if ty.rank() == 0 { scalar } else { scalar.broadcast_in_dim(ty.shape.clone(), &[]) }
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

    /// A poisoned tensor whose error names its place. The function's builder records the error.
    /// If the tensor is already poisoned, its error is kept.
    #[track_caller]
    pub(crate) fn fail(&self, error: Diagnostic) -> Tensor {
        Tensor::fail_of(&[self], error)
    }

    /// The result of a library operation that refuses its operands: a poisoned tensor whose error
    /// names the places of the operation and of the operands. The function's builder records the
    /// error. If operands are already poisoned, the first error is kept.
    #[track_caller]
    pub fn fail_of(operands: &[&Tensor], error: Diagnostic) -> Tensor {
        if let Some(poisoned) = operands.iter().find(|t| t.error().is_some()) {
            return (*poisoned).clone();
        }
        let mut error = error.at(Location::caller(), "");
        for operand in operands {
            error = error.operand(operand.defined_at(), operand.ty());
        }
        let scope = operands.iter().find_map(|t| t.scope()).cloned().or_else(super::Scope::current);
        if let Some(scope) = scope {
            scope.fail(&error);
        }
        Tensor::poisoned(error)
    }

    /// The error of operation `name` for an axis that the tensor does not have.
    #[track_caller]
    pub(crate) fn no_axis(&self, name: &str, axis: usize) -> Tensor {
        let error = Diagnostic::new(format!("{name}: {} has no axis {axis}", self.ty()));
        self.fail(error.help(crate::op::axes_of(self.rank())))
    }

    /// Broadcasts both operands to a common shape.
    #[track_caller]
    fn align(&self, other: &Tensor) -> (Tensor, Tensor) {
        if self.shape() == other.shape() || self.error().is_some() || other.error().is_some() {
            return (self.clone(), other.clone());
        }
        let rank = self.rank().max(other.rank());
        let one = Dim::constant(1);
        let extent = |t: &Tensor, axis: usize| match (axis + t.rank()).checked_sub(rank) {
            Some(i) => t.shape()[i].clone(),
            None => one.clone(),
        };
        let mut shape = Vec::with_capacity(rank);
        for axis in 0..rank {
            let (a, b) = (extent(self, axis), extent(other, axis));
            shape.push(if a == one { b } else { a });
        }
        // If extents differ, one of the broadcasts would fail. The op's own rule is left to
        // report it, since it names both types.
        let fits = |t: &Tensor| {
            (0..rank).all(|axis| {
                let e = extent(t, axis);
                e == one || e == shape[axis]
            })
        };
        if fits(self) && fits(other) {
            (self.broadcast_to(&shape), other.broadcast_to(&shape))
        } else {
            (self.clone(), other.clone())
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

    /// `select`: elements of `on_true` where `self` (bool) is true, else of `on_false`. All
    /// operands are broadcast to the shape of the choices.
    #[track_caller]
    pub fn select(&self, on_true: &Tensor, on_false: &Tensor) -> Tensor {
        let (x, y) = on_true.align(on_false);
        let pred = if self.rank() == 0 || x.error().is_some() {
            self.clone()
        } else {
            self.broadcast_to(x.shape())
        };
        Tensor::apply(Select {}, &[&pred, &x, &y])
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
}

impl Operand for &Tensor {
    fn beside(self, _tensor: &Tensor) -> Tensor {
        self.clone()
    }
}

impl Operand for Tensor {
    fn beside(self, _tensor: &Tensor) -> Tensor {
        self
    }
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
        operator!(@number $trait $method f32 f64 i32 i64 u32);
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
