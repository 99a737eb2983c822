//! Axes as users name them: numbers from 0, or from −1 backwards, which is the last axis.
//!
//! A method that takes one axis takes an [`Axis`]. A method that takes several takes [`Axes`]: one
//! axis, an array, slice or vector of them, or `..` for all.
//!
//! ```
//! # use wengert_core::{build::FunctionBuilder, DType, TensorType};
//! # FunctionBuilder::build("f", |f| {
//! let x = f.input("x", TensorType::new(DType::F32, [2, 3, 4]));
//! assert_eq!(x.sum_axes(-1).shape(), x.sum_axes([2]).shape());
//! assert_eq!(x.max_axes(&[0, -1]).shape(), x.max_axes(&[0, 2]).shape());
//! assert_eq!(x.mean_axes(..).rank(), 0);
//! # }).expect("the example is right");
//! ```

use super::tensor::Tensor;
use crate::diagnostic::{Result, bail, ensure};
use crate::op::axes_of;
use crate::ty::TensorType;
use std::ops::RangeFull;

/// The number of an axis. Negative numbers count from the last axis, which is −1.
pub trait Axis: Copy {
    /// The number, which may be negative.
    fn number(self) -> i64;
}

/// Several axes of a tensor: one axis, a list of them, or `..` for all.
pub trait Axes {
    /// Their numbers, which may be negative. `rank` is the tensor's number of axes.
    fn numbers(self, rank: usize) -> Vec<i64>;
}

macro_rules! axis {
    ($($t:ty)*) => {$(
        impl Axis for $t {
            // A number beyond 64 bits is no axis, whatever its value.
            fn number(self) -> i64 { i64::try_from(self).unwrap_or(i64::MAX) }
        }

        impl Axes for $t {
            fn numbers(self, _: usize) -> Vec<i64> { vec![self.number()] }
        }
    )*};
}
axis! { i32 i64 isize usize }

impl Axes for RangeFull {
    fn numbers(self, rank: usize) -> Vec<i64> {
        (0..rank as i64).collect()
    }
}

impl<A: Axis> Axes for &[A] {
    fn numbers(self, _: usize) -> Vec<i64> {
        self.iter().map(|axis| axis.number()).collect()
    }
}

impl<A: Axis> Axes for &Vec<A> {
    fn numbers(self, rank: usize) -> Vec<i64> {
        self.as_slice().numbers(rank)
    }
}

impl<A: Axis> Axes for Vec<A> {
    fn numbers(self, rank: usize) -> Vec<i64> {
        self.as_slice().numbers(rank)
    }
}

impl<A: Axis, const N: usize> Axes for [A; N] {
    fn numbers(self, rank: usize) -> Vec<i64> {
        self.as_slice().numbers(rank)
    }
}

impl<A: Axis, const N: usize> Axes for &[A; N] {
    fn numbers(self, rank: usize) -> Vec<i64> {
        self.as_slice().numbers(rank)
    }
}

/// The axes of a tensor of this rank from the last one backwards, and those from the first.
fn axes_from_either_end(rank: usize) -> String {
    match rank {
        0 | 1 => axes_of(rank),
        rank => format!("{}, or -1 to -{rank} from the last one", axes_of(rank)),
    }
}

/// The position of an axis of `ty`, from 0. Error: the type has no such axis.
pub(super) fn position(ty: &TensorType, axis: i64) -> Result<usize> {
    match place(axis, ty.rank()) {
        Some(position) => Ok(position),
        None => bail!("{ty} has no axis {axis}"; help "{}", axes_from_either_end(ty.rank())),
    }
}

/// The position, from 0, of the axis with this number among `count`.
fn place(axis: i64, count: usize) -> Option<usize> {
    let from_first = if axis < 0 { count as i64 + axis } else { axis };
    usize::try_from(from_first).ok().filter(|position| *position < count)
}

/// The positions of axes of `ty`, from 0, in the order given.
///
/// Errors: the type has no such axis; an axis is named twice.
pub(crate) fn positions(ty: &TensorType, axes: &[i64]) -> Result<Vec<usize>> {
    let mut positions = Vec::with_capacity(axes.len());
    for axis in axes {
        let position = position(ty, *axis)?;
        ensure!(!positions.contains(&position), "axis {axis} of {ty} is named twice";
            help "name each axis once");
        positions.push(position);
    }
    Ok(positions)
}

/// The positions that new axes of extent 1 have in a result, ascending; `axes` are numbers of axes
/// of the result.
///
/// Errors: the result has no such axis; an axis is named twice.
pub(super) fn new_positions(ty: &TensorType, axes: &[i64]) -> Result<Vec<usize>> {
    let count = ty.rank() + axes.len();
    let mut positions = Vec::with_capacity(axes.len());
    for axis in axes {
        let Some(position) = place(*axis, count) else {
            bail!("a new axis {axis} of {ty}";
                help "the result has the axes {} to {}", -(count as i64), count - 1);
        };
        ensure!(!positions.contains(&position), "a new axis {axis} of {ty} is named twice";
            help "name each axis once");
        positions.push(position);
    }
    positions.sort();
    Ok(positions)
}

impl Tensor {
    /// The position of an axis for the op `name`, whose own rule reports a position that is too
    /// large. Error: poison, if the axis is negative and the tensor has fewer axes.
    #[track_caller]
    pub(crate) fn op_axis(&self, name: &str, axis: impl Axis) -> Result<usize, Tensor> {
        self.op_position(name, axis.number())
    }

    /// [`op_axis`](Self::op_axis) of several axes, in the order given.
    #[track_caller]
    pub(crate) fn op_axes(&self, name: &str, axes: impl Axes) -> Result<Vec<usize>, Tensor> {
        let numbers = axes.numbers(self.rank());
        let mut positions = Vec::with_capacity(numbers.len());
        for axis in numbers {
            positions.push(self.op_position(name, axis)?);
        }
        Ok(positions)
    }

    #[track_caller]
    fn op_position(&self, name: &str, axis: i64) -> Result<usize, Tensor> {
        match usize::try_from(axis) {
            Ok(position) => Ok(position),
            Err(_) => match position(self.ty(), axis) {
                Ok(position) => Ok(position),
                // Not in a closure, which would not know the user's line.
                Err(error) => Err(self.fail(error.context(name))),
            },
        }
    }
}

/// The value of a [`Result`], or the enclosing method returns the poisoned tensor that is its
/// error.
macro_rules! or_poison {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(poison) => return poison,
        }
    };
}
pub(crate) use or_poison;
