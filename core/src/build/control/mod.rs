//! Control flow on closures: [`cond`], [`switch`], [`scan`], [`fori`], [`while_loop`], [`map`]
//! and [`fold`].
//!
//! A value that a closure uses from outside becomes an operand of the construct (a capture), so
//! closures need no special form. In a loop, equations that depend on captures alone are hoisted:
//! they run once, before the loop. The region of a branch keeps all its equations, since it may
//! not run at all.
//!
//! Carries, slices and results are any [`Differentiable`] values: tensors of any dtype, tuples,
//! vectors, models. A step returns a carry of the same structure, dtypes and shapes as it
//! receives.

mod associative_scan;
mod loops;
mod unroll;

pub use associative_scan::{associative_scan, associative_scan_reverse};
pub use unroll::{scan_reverse_unrolled, scan_unrolled};

use loops::{Loop, repeat, steps};

use super::tensor::Tensor;
use super::{Closure, Scope};
use crate::diagnostic::{Diagnostic, Result};
use crate::differentiable::{Differentiable, rebuild};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::graph::Region;
use crate::location::Location;
use crate::op::{Cond, Iota, Op, Switch};
use crate::ty::TensorType;

/// The result of `then` if `predicate`, a `bool[]`, is true, else that of `otherwise`. Only one
/// of them runs.
///
/// Both return values of the same structure, dtypes and shapes. The derivative is that of the
/// branch taken.
///
/// ```
/// # use wengert_core::build::{FunctionBuilder, control::cond};
/// # use wengert_core::{interpret, DType, Literal, TensorType};
/// let f = FunctionBuilder::build("f", |f| {
///     let x = f.input("x", TensorType::scalar(DType::F32));
///     f.output("y", cond(&x.gt(&x.zeros_like()), || x.sqrt(), || &x * 2.0));
/// })?;
/// assert_eq!(interpret::run(&f, &[Literal::from(9.0f32)])?[0], Literal::from(3.0f32));
/// assert_eq!(interpret::run(&f, &[Literal::from(-1.0f32)])?[0], Literal::from(-2.0f32));
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[track_caller]
pub fn cond<O: Differentiable>(
    predicate: &Tensor,
    then: impl FnOnce() -> O,
    otherwise: impl FnOnce() -> O,
) -> O {
    let caller = Location::caller();
    let (output, first) = branch(then);
    let (_, second) = branch(otherwise);
    choose(Cond {}.into(), predicate, &output, [first, second].into_iter().collect(), caller)
}

/// The result of branch `index`, an `i32[]`. The index is clamped to the range of `branches`.
/// Only that branch runs.
///
/// All branches return values of the same structure, dtypes and shapes.
///
/// # Panics
///
/// If there is no branch.
#[track_caller]
pub fn switch<O: Differentiable>(index: &Tensor, branches: Vec<Box<dyn FnOnce() -> O + '_>>) -> O {
    let caller = Location::caller();
    let mut output = None;
    let mut regions = Vec::new();
    for way in branches {
        let (given, region) = branch(way);
        output.get_or_insert(given);
        regions.push(region);
    }
    let output = output.expect("`switch` is given at least one branch");
    choose(Switch {}.into(), index, &output, regions.into_iter().collect(), caller)
}

/// Runs `step` once for each slice of `xs` along the first axis of each of its tensors, from the
/// first to the last. A step receives the carry of the previous one, and the first step receives
/// `init`. Returns the last carry, and the second results of the steps stacked along a new first
/// axis.
///
/// ```
/// # use wengert_core::build::{FunctionBuilder, control::scan};
/// # use wengert_core::{interpret, DType, Literal, TensorType};
/// // Running products.
/// let f = FunctionBuilder::build("f", |f| {
///     let x = f.input("x", TensorType::new(DType::F32, [4usize]));
///     let one = wengert_core::Tensor::constant(1.0f32);
///     let (last, all) = scan(&one, &x, |product, x| (product * x, product * x));
///     f.output("last", last);
///     f.output("all", all);
/// })?;
/// let y = interpret::run(&f, &[Literal::from_vec(&[4], vec![1.0f32, 2.0, 3.0, 4.0])?])?;
/// assert_eq!(y[0], Literal::from(24.0f32));
/// assert_eq!(y[1], Literal::from_vec(&[4], vec![1.0f32, 2.0, 6.0, 24.0])?);
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[track_caller]
pub fn scan<C: Differentiable, X: Differentiable, Y: Differentiable>(
    init: &C,
    xs: &X,
    step: impl FnOnce(&C, &X) -> (C, Y),
) -> (C, Y) {
    steps(Loop::of(length_of(xs)), init, xs, step, Location::caller())
}

/// [`scan`] from the last slice to the first.
#[track_caller]
pub fn scan_reverse<C: Differentiable, X: Differentiable, Y: Differentiable>(
    init: &C,
    xs: &X,
    step: impl FnOnce(&C, &X) -> (C, Y),
) -> (C, Y) {
    steps(Loop { reverse: true, ..Loop::of(length_of(xs)) }, init, xs, step, Location::caller())
}

/// Runs `step(i, carry)` for i from 0 to `count` − 1, an `i32[]`. Returns the last carry.
#[track_caller]
pub fn fori<C: Differentiable>(
    count: impl Into<Dim>,
    init: &C,
    step: impl FnOnce(&Tensor, &C) -> C,
) -> C {
    let length = count.into();
    let numbers = numbers(&length);
    let body = |carry: &C, i: &Tensor| (step(i, carry), Vec::<Tensor>::new());
    steps(Loop::of(Ok(length)), init, &numbers, body, Location::caller()).0
}

/// [`fori`] whose `count`, an `i32[]`, is known at run time only. It is clamped to 0..=`limit`.
#[track_caller]
pub fn fori_upto<C: Differentiable>(
    count: &Tensor,
    limit: impl Into<Dim>,
    init: &C,
    step: impl FnOnce(&Tensor, &C) -> C,
) -> C {
    let length = limit.into();
    let numbers = numbers(&length);
    let body = |carry: &C, i: &Tensor| (step(i, carry), Vec::<Tensor>::new());
    steps(
        Loop { count: Some(count), ..Loop::of(Ok(length)) },
        init,
        &numbers,
        body,
        Location::caller(),
    )
    .0
}

/// Applies `f` to each slice of `xs` along the first axis, and stacks the results. The slices run
/// one after another and use the memory of one.
#[track_caller]
pub fn map<X: Differentiable, Y: Differentiable>(xs: &X, f: impl FnOnce(&X) -> Y) -> Y {
    let nothing = Vec::<Tensor>::new();
    steps(Loop::of(length_of(xs)), &nothing, xs, |_, x| (vec![], f(x)), Location::caller()).1
}

/// `f(…f(f(init, x₀), x₁)…, xₙ)` over the slices of `xs` along the first axis.
#[track_caller]
pub fn fold<C: Differentiable, X: Differentiable>(
    init: &C,
    xs: &X,
    f: impl FnOnce(&C, &X) -> C,
) -> C {
    let body = |carry: &C, x: &X| (f(carry, x), Vec::<Tensor>::new());
    steps(Loop::of(length_of(xs)), init, xs, body, Location::caller()).0
}

/// Runs `step` while `condition`, which returns a `bool[]`, holds for the carry: at most 2³¹ − 1
/// times.
///
/// Differentiable in forward mode. For reverse mode use [`while_at_most`], which has a bound.
#[track_caller]
pub fn while_loop<C: Differentiable>(
    init: &C,
    condition: impl FnOnce(&C) -> Tensor,
    step: impl FnOnce(&C) -> C,
) -> C {
    repeat(None, 0, init, condition, step, Location::caller())
}

/// [`while_loop`] of at most `max_steps` steps: it ends there even if the condition holds.
/// Differentiable in both modes. Reverse mode allocates the residuals of `max_steps` steps.
#[track_caller]
pub fn while_at_most<C: Differentiable>(
    max_steps: impl Into<Dim>,
    init: &C,
    condition: impl FnOnce(&C) -> Tensor,
    step: impl FnOnce(&C) -> C,
) -> C {
    repeat(Some(max_steps.into()), 0, init, condition, step, Location::caller())
}

/// [`while_loop`], differentiable in both modes in the memory of `checkpoints` carries. Reverse
/// mode stores the carries of that many steps and recomputes the others from them, in the order
/// with the fewest steps. The number of steps need not be known.
///
/// For l steps and s checkpoints (the initial carry is one of them), reverse mode recomputes
/// r·l − C(s + r, r − 1) steps, where r is the least number with C(s + r, s) ≥ l. It then runs
/// the l steps that are transposed. The forward run adds l steps. (Griewank, *Achieving
/// logarithmic growth of temporal and spatial complexity in reverse automatic differentiation*,
/// 1992.)
///
/// # Panics
///
/// If `checkpoints` is 0.
#[track_caller]
pub fn while_checkpointed<C: Differentiable>(
    checkpoints: usize,
    init: &C,
    condition: impl FnOnce(&C) -> Tensor,
    step: impl FnOnce(&C) -> C,
) -> C {
    assert!(
        checkpoints > 0,
        "a loop that is run again from checkpoints has at least one, its beginning"
    );
    repeat(None, checkpoints, init, condition, step, Location::caller())
}

/// [`scan`] whose reverse mode stores the carries of `checkpoints` steps only, and recomputes the
/// others as [`while_checkpointed`] does.
///
/// # Panics
///
/// If `checkpoints` is 0.
#[track_caller]
pub fn scan_checkpointed<C: Differentiable, X: Differentiable, Y: Differentiable>(
    checkpoints: usize,
    init: &C,
    xs: &X,
    step: impl FnOnce(&C, &X) -> (C, Y),
) -> (C, Y) {
    assert!(
        checkpoints > 0,
        "a loop that is run again from checkpoints has at least one, its beginning"
    );
    steps(Loop { checkpoints, ..Loop::of(length_of(xs)) }, init, xs, step, Location::caller())
}

fn leaves(value: &impl Differentiable) -> Vec<Tensor> {
    value.tensors().into_iter().map(|(_, tensor)| tensor).collect()
}

fn current() -> Result<Scope> {
    Scope::current().ok_or_else(|| {
        Diagnostic::new("there is no function to put control flow in")
            .help("call it inside `Program::function`")
    })
}

/// 0, 1, …, length − 1.
#[track_caller]
fn numbers(length: &Dim) -> Tensor {
    Tensor::apply(Iota { dtype: DType::I32, shape: vec![length.clone()], axis: 0 }, &[])
}

/// The number of slices along the first axis.
fn length_of(xs: &impl Differentiable) -> Result<Dim> {
    let mut length: Option<Dim> = None;
    for tensor in leaves(xs) {
        if let Some(error) = tensor.error() {
            return Err(error.clone());
        }
        let at = |d: Diagnostic| match tensor.defined_at() {
            Some(place) => d.at(place, "what is sliced is made here"),
            None => d,
        };
        let Some(first) = tensor.shape().first() else {
            return Err(at(Diagnostic::new(format!(
                "{} has no first axis to slice along",
                tensor.ty()
            ))));
        };
        match &length {
            Some(known) if known != first => {
                return Err(at(Diagnostic::new(format!(
                    "{} has {first} parts along its first axis, another tensor has {known}",
                    tensor.ty()
                ))));
            }
            _ => length = Some(first.clone()),
        }
    }
    length.ok_or_else(|| {
        Diagnostic::new("there is nothing to slice, so the number of steps is not known")
            .help("use `fori`, which is given the number")
    })
}

/// Runs a closure in a region that keeps all its equations.
fn branch<O: Differentiable>(way: impl FnOnce() -> O) -> (O, Result<Closure>) {
    match current() {
        Ok(scope) => {
            let scope = scope.region();
            let output = scope.enter(way);
            let closure = close(&scope, &leaves(&output));
            (output, closure)
        }
        Err(error) => (way(), Err(error)),
    }
}

fn close(scope: &Scope, outputs: &[Tensor]) -> Result<Closure> {
    match outputs.iter().find_map(Tensor::error) {
        Some(error) => Err(error.clone()),
        None => scope.close(outputs),
    }
}

/// The computation of a step on inputs of these types. Equations that do not depend on the inputs
/// are emitted outside.
fn step_of(types: &[TensorType], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Result<Closure> {
    let scope = current()?.child();
    let inputs: Vec<Tensor> =
        types.iter().map(|ty| scope.input_at(ty.clone(), Location::Unknown)).collect();
    let outputs = scope.enter(|| f(&inputs));
    close(&scope, &outputs)
}

fn types_of(tensors: &[Tensor]) -> Vec<TensorType> {
    tensors.iter().map(|t| t.ty().clone()).collect()
}

/// Regions with the same captures, and the captures.
fn together(mut closures: Vec<Closure>) -> (Vec<Region>, Vec<Tensor>) {
    let captures = Closure::captures_of(&closures);
    closures.iter_mut().for_each(|c| c.capture(&captures));
    (closures.into_iter().map(|c| c.body.renumber().into()).collect(), captures)
}

/// The structure of `output` with these tensors, or poison.
fn finish<O: Differentiable>(output: &O, results: Result<Vec<Tensor>>, caller: &Location) -> O {
    let count = leaves(output).len();
    let results = results.unwrap_or_else(|error| {
        let error = error.within(caller, "the control flow is here");
        if let Some(scope) = Scope::current() {
            scope.fail(&error);
        }
        vec![Tensor::poisoned(error); count]
    });
    rebuild(output, results)
}

fn choose<O: Differentiable>(
    op: Op,
    chooses: &Tensor,
    output: &O,
    regions: Result<Vec<Closure>>,
    caller: Location,
) -> O {
    let results = regions.and_then(|regions| {
        if let Some(error) = chooses.error() {
            return Err(error.clone());
        }
        let (regions, captures) = together(regions);
        let operands: Vec<Tensor> = std::iter::once(chooses.clone()).chain(captures).collect();
        Scope::emit(op, &operands, regions, caller.clone())
    });
    finish(output, results, &caller)
}
