//! Unrolled loops: each step runs several steps of the user.
//!
//! A scan of T steps, unrolled by `unroll`, is a scan of ⌊T / unroll⌋ steps over groups of
//! `unroll` slices. Its step runs the user's step on each slice in order. The T mod `unroll`
//! remaining steps are emitted without a loop. Derivatives, maps and plans see an ordinary loop.
//! Unrolling pays if a step is so short that the loop's overhead shows, or if adjacent steps can
//! be fused. The cost is a graph `unroll` times as large.

use super::loops::{Loop, steps};
use super::{length_of, step_of, types_of};
use crate::build::inline;
use crate::build::tensor::Tensor;
use crate::build::{Closure, Scope};
use crate::diagnostic::{Diagnostic, Result, ensure};
use crate::differentiable::Differentiable;
use crate::dim::Dim;
use crate::location::Location;
use crate::op::Scan;
use crate::ty::TensorType;

/// [`scan`](super::scan) unrolled by `unroll`. The bits are the same.
///
/// Errors: those of `scan`; the number of steps is a dimension variable, or `unroll` is 0.
///
/// ```
/// # use wengert_core::build::{FunctionBuilder, control::scan_unrolled};
/// # use wengert_core::{interpret, DType, Literal, Tensor, TensorType};
/// let f = FunctionBuilder::build("f", |f| {
///     let x = f.input("x", TensorType::new(DType::F32, [7usize]));
///     // Three at a time, and one more.
///     let (sum, sums) =
///         scan_unrolled(3, &Tensor::constant(0.0f32), &x, |sum, x| (sum + x, sum + x));
///     f.output("sum", sum);
///     f.output("sums", sums);
/// })?;
/// let x = Literal::from_vec(&[7], vec![1.0f32; 7])?;
/// let sums = Literal::from_vec(&[7], vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])?;
/// assert_eq!(interpret::run(&f, &[x])?[1], sums);
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[track_caller]
pub fn scan_unrolled<C: Differentiable, X: Differentiable, Y: Differentiable>(
    unroll: usize,
    init: &C,
    xs: &X,
    step: impl FnOnce(&C, &X) -> (C, Y),
) -> (C, Y) {
    let unrolled = Loop { unroll: Some(unroll), ..Loop::of(length_of(xs)) };
    steps(unrolled, init, xs, step, Location::caller())
}

/// [`scan_unrolled`] from the last slice to the first.
#[track_caller]
pub fn scan_reverse_unrolled<C: Differentiable, X: Differentiable, Y: Differentiable>(
    unroll: usize,
    init: &C,
    xs: &X,
    step: impl FnOnce(&C, &X) -> (C, Y),
) -> (C, Y) {
    let unrolled = Loop { reverse: true, unroll: Some(unroll), ..Loop::of(length_of(xs)) };
    steps(unrolled, init, xs, step, Location::caller())
}

pub(super) fn number_of_steps(unroll: usize, length: &Dim) -> Result<usize> {
    ensure!(unroll != 0, "a loop takes no steps 0 at a time"; help "unroll by 1 or more");
    length.as_constant().and_then(|n| usize::try_from(n).ok()).ok_or_else(|| {
        Diagnostic::new(format!("a loop of {length} steps cannot be unrolled"))
            .help("use `scan`, or give the dimension a number")
    })
}

pub(super) struct Unrolling<'a> {
    /// One step: takes carries, slices and captures; returns carries and results to stack.
    pub closure: &'a Closure,
    pub carries: usize,
    pub unroll: usize,
    pub reverse: bool,
    pub caller: &'a Location,
}

impl Unrolling<'_> {
    /// The final carries, and the stacks.
    pub fn run(
        &self,
        init: Vec<Tensor>,
        slices: &[Tensor],
        steps: usize,
    ) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        let _user = self.caller.attributed();
        let whole = steps - steps % self.unroll;
        let first: Vec<Tensor> = slices.iter().map(|x| x.slice_axis(0, 0, whole)).collect();
        let rest: Vec<Tensor> = slices.iter().map(|x| x.slice_axis(0, whole, steps)).collect();
        let (carried, head, tail);
        if self.reverse {
            let (between, stacks) = self.steps(init, &rest, steps - whole)?;
            tail = stacks;
            (carried, head) = self.looped(between, &first, whole)?;
        } else {
            let (between, stacks) = self.looped(init, &first, whole)?;
            head = stacks;
            (carried, tail) = self.steps(between, &rest, steps - whole)?;
        }
        let joined = head.iter().zip(&tail).map(|(head, tail)| match (whole, steps - whole) {
            (_, 0) => head.clone(),
            (0, _) => tail.clone(),
            _ => Tensor::concatenate(&[head, tail], 0),
        });
        Ok((carried, joined.collect()))
    }

    /// The steps on all slices, unrolled completely.
    fn steps(
        &self,
        mut carried: Vec<Tensor>,
        slices: &[Tensor],
        count: usize,
    ) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        let body = &self.closure.body;
        let kinds = body.types(&body.outputs[self.carries..]);
        let mut parts: Vec<Vec<Tensor>> = vec![vec![]; kinds.len()];
        let order: Vec<usize> =
            if self.reverse { (0..count).rev().collect() } else { (0..count).collect() };
        for i in order {
            let x =
                slices.iter().map(|x| x.slice_axis(0, i, i + 1).reshape(x.shape()[1..].to_vec()));
            let operands: Vec<Tensor> =
                carried.into_iter().chain(x).chain(self.closure.captures.iter().cloned()).collect();
            carried = inline(body, &operands)?;
            let made = carried.split_off(self.carries);
            parts.iter_mut().zip(made).for_each(|(parts, t)| parts.push(t));
        }
        let stacked = |(mut parts, ty): (Vec<Tensor>, &TensorType)| {
            if self.reverse {
                parts.reverse();
            }
            let row: Vec<Dim> =
                std::iter::once(Dim::constant(1)).chain(ty.shape.iter().cloned()).collect();
            let rows: Vec<Tensor> = parts.iter().map(|t| t.reshape(row.clone())).collect();
            match rows.as_slice() {
                [] => Tensor::zeros(
                    &ty.with_shape([&[Dim::constant(0)], ty.shape.as_slice()].concat()),
                ),
                rows => Tensor::concatenate(&rows.iter().collect::<Vec<_>>(), 0),
            }
        };
        Ok((carried, parts.into_iter().zip(&kinds).map(stacked).collect()))
    }

    /// The loop, whose step runs `unroll` steps. `unroll` divides `count`.
    fn looped(
        &self,
        init: Vec<Tensor>,
        slices: &[Tensor],
        count: usize,
    ) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        let times = count / self.unroll;
        if times < 2 {
            return self.steps(init, slices, count);
        }
        let split = |shape: &[Dim], by: [usize; 2]| -> Vec<Dim> {
            by.iter().map(|n| Dim::constant(*n as i64)).chain(shape.iter().cloned()).collect()
        };
        let grouped: Vec<Tensor> = slices
            .iter()
            .map(|x| x.reshape(split(&x.shape()[1..], [times, self.unroll])))
            .collect();
        let part = |ty: TensorType| ty.with_shape(ty.shape[1..].to_vec());
        let types: Vec<TensorType> =
            types_of(&init).into_iter().chain(types_of(&grouped).into_iter().map(part)).collect();
        let mut failed = None;
        let step = step_of(&types, |inputs| {
            let (carry, x) = inputs.split_at(self.carries);
            match self.steps(carry.to_vec(), x, self.unroll) {
                Ok((carry, stacks)) => [carry, stacks].concat(),
                Err(error) => {
                    failed = Some(error);
                    vec![]
                }
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        let op = Scan {
            length: Dim::constant(times as i64),
            carries: self.carries,
            captures: step.captures.len(),
            reverse: self.reverse,
            counted: false,
            checkpoints: 0,
        };
        let operands: Vec<Tensor> =
            init.iter().chain(&grouped).chain(&step.captures).cloned().collect();
        let mut results = Scope::emit(
            op.into(),
            &operands,
            vec![step.body.renumber().into()],
            self.caller.clone(),
        )?;
        let stacks = results.split_off(self.carries);
        let stacks = stacks.iter().map(|t| {
            let rows =
                std::iter::once(Dim::constant(count as i64)).chain(t.shape()[2..].iter().cloned());
            t.reshape(rows.collect::<Vec<_>>())
        });
        Ok((results, stacks.collect()))
    }
}
