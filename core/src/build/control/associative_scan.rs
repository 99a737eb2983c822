//! Prefix combinations by a tree: all prefixes of a series in about 2·log₂ n steps on whole
//! tensors, where a scan takes n steps on slices.
//!
//! Adjacent slices are combined in pairs. The prefixes of the pairs are the results at odd
//! positions. A result at an even position is one combination of the preceding odd one.
//!
//! # References
//!
//! Blelloch, *Prefix sums and their applications*, 1990.

use super::{Scope, current, finish, leaves, length_of};
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::differentiable::{Differentiable, rebuild};
use crate::dim::Dim;
use crate::location::Location;
use crate::op::{Concatenate, Reverse, Slice};

/// For each slice of `xs` along the first axis, `combine` of all slices up to it.
///
/// `combine` is associative and works on stacks of slices. Its arguments have the structure of
/// `xs` with any number of slices, and slice i of its result depends on slices i of its
/// arguments. The number of slices is a constant.
///
/// Differentiable as the tensor operations of which it consists.
///
/// ```
/// # use wengert_core::build::{FunctionBuilder, control::associative_scan};
/// # use wengert_core::{interpret, DType, Literal, Tensor, TensorType};
/// // x ← a·x + b, from 0, for all steps at once: affine maps compose.
/// let f = FunctionBuilder::build("f", |f| {
///     let a = f.input("a", TensorType::new(DType::F32, [3usize]));
///     let b = f.input("b", TensorType::new(DType::F32, [3usize]));
///     let compose =
///         |f: &(Tensor, Tensor), g: &(Tensor, Tensor)| (&g.0 * &f.0, &g.0 * &f.1 + &g.1);
///     f.output("x", associative_scan(&(a, b), compose).1);
/// })?;
/// let of = |v: [f32; 3]| Literal::from_vec(&[3], v.to_vec());
/// let x = interpret::run(&f, &[of([2.0, 3.0, 4.0])?, of([1.0, 1.0, 1.0])?])?;
/// assert_eq!(x[0], of([1.0, 4.0, 17.0])?);
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[track_caller]
pub fn associative_scan<X: Differentiable>(xs: &X, combine: impl Fn(&X, &X) -> X) -> X {
    let caller = Location::caller();
    let _user = caller.attributed();
    finish(xs, prefixes(xs, &combine), &caller)
}

/// [`associative_scan`] from the last slice: for each slice, `combine` of it and all that follow,
/// the last one first.
#[track_caller]
pub fn associative_scan_reverse<X: Differentiable>(xs: &X, combine: impl Fn(&X, &X) -> X) -> X {
    let caller = Location::caller();
    let _user = caller.attributed();
    let reversed = |tensors: Vec<Tensor>| -> Result<Vec<Tensor>> {
        tensors.iter().map(|t| one(Tensor::apply(Reverse { axes: vec![0] }, &[t]))).collect()
    };
    let results = length_of(xs)
        .and_then(|_| reversed(leaves(xs)))
        .and_then(|tensors| prefixes(&rebuild(xs, tensors), &combine))
        .and_then(reversed);
    finish(xs, results, &caller)
}

fn prefixes<X: Differentiable>(xs: &X, combine: &impl Fn(&X, &X) -> X) -> Result<Vec<Tensor>> {
    let _: Scope = current()?;
    let length = length_of(xs)?;
    let count = length.as_constant().and_then(|n| usize::try_from(n).ok()).ok_or_else(|| {
        Diagnostic::new(format!(
            "`associative_scan` of {length} parts: the number is not a constant"
        ))
        .help("use `scan`, or a constant extent")
    })?;
    run(xs, leaves(xs), count, combine)
}

/// Prefix combinations of `count` slices.
fn run<X: Differentiable>(
    like: &X,
    parts: Vec<Tensor>,
    count: usize,
    combine: &impl Fn(&X, &X) -> X,
) -> Result<Vec<Tensor>> {
    if count < 2 {
        return Ok(parts);
    }
    let combined = |a: Vec<Tensor>, b: Vec<Tensor>, what: usize| {
        let (left, right) = (rebuild(like, a.clone()), rebuild(like, b));
        let given = leaves(&Location::unattributed(|| combine(&left, &right)));
        if let Some(error) = given.iter().find_map(Tensor::error) {
            return Err(error.clone());
        }
        match given.len() == a.len() && given.iter().zip(&a).all(|(g, a)| g.ty() == a.ty()) {
            true => Ok(given),
            false => {
                let list = |t: &[Tensor]| {
                    t.iter().map(|t| t.ty().to_string()).collect::<Vec<_>>().join(", ")
                };
                Err(Diagnostic::new(format!(
                    "the combiner of an `associative_scan` gives ({}) for {what} parts of types \
                     ({})",
                    list(&given),
                    list(&a)
                ))
                .help(
                    "it gives as many parts as it takes, of the same structure, dtypes and shapes",
                ))
            }
        }
    };
    let pairs = count / 2;
    let (evens, odds) = (strided(&parts, 0, 2 * pairs, 2)?, strided(&parts, 1, 2 * pairs, 2)?);
    let odd = run(like, combined(evens, odds, pairs)?, pairs, combine)?;
    // Position 2i is slice 2i combined with the result at position 2i − 1.
    let later = (count - 1) / 2;
    let first = strided(&parts, 0, 1, 1)?;
    let even = match later {
        0 => first,
        _ => {
            let more = combined(strided(&odd, 0, later, 1)?, strided(&parts, 2, count, 2)?, later)?;
            joined(&first, &more, 0)?
        }
    };
    // Interleaves even and odd positions. If the count is odd, the last slice is left over.
    let (head, tail) = (strided(&even, 0, pairs, 1)?, strided(&even, pairs, pairs + count % 2, 1)?);
    let mut turns = Vec::new();
    for (a, b) in head.iter().zip(&odd) {
        let apart = |t: &Tensor| {
            let mut shape = t.shape().to_vec();
            shape.insert(1, Dim::constant(1));
            t.reshape(shape)
        };
        let mut shape = a.shape().to_vec();
        shape[0] = (2 * pairs).into();
        let both = joined(&[apart(a)], &[apart(b)], 1)?.swap_remove(0);
        turns.push(one(both.reshape(shape))?);
    }
    if count.is_multiple_of(2) { Ok(turns) } else { joined(&turns, &tail, 0) }
}

fn one(tensor: Tensor) -> Result<Tensor> {
    tensor.error().map_or(Ok(tensor.clone()), |error| Err(error.clone()))
}

/// Slices `from`, `from + step`, … below `to`.
fn strided(tensors: &[Tensor], from: usize, to: usize, step: i64) -> Result<Vec<Tensor>> {
    let slice = |t: &Tensor| {
        let mut start = vec![Dim::constant(0); t.rank()];
        let mut limit = t.shape().to_vec();
        let mut stride = vec![1; t.rank()];
        (start[0], limit[0], stride[0]) = (from.into(), to.into(), step);
        one(Tensor::apply(Slice { start, limit, stride }, &[t]))
    };
    tensors.iter().map(slice).collect()
}

fn joined(a: &[Tensor], b: &[Tensor], axis: usize) -> Result<Vec<Tensor>> {
    a.iter().zip(b).map(|(a, b)| one(Tensor::apply(Concatenate { axis }, &[a, b]))).collect()
}
