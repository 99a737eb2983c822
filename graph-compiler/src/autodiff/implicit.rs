//! Implicit functions: values given by an equation, found by a solver, and differentiated by the
//! equation.
//!
//! A solver is a loop that runs until it converges. Its derivative, step by step, would be long,
//! would keep residuals of every step, and is not needed. Where F(x, p) = 0 holds, so does
//! ∂ₓF·ẋ + ∂ₚF·ṗ = 0, whichever way x was found. That is a linear system for ẋ.
//!
//! - [`custom_linear_solve`] solves A·x = b. Its derivative in forward mode is another solution
//!   with the same solver, in reverse mode one with the transposed solver. So it has derivatives
//!   of any order. It is an op of its own ([`wengert_core::op::CustomLinearSolve`]).
//! - [`custom_root`] solves F(x) = 0, and leaves the linear system of its derivative to another
//!   solver. If that solver is a `custom_linear_solve`, or another operation with a transpose,
//!   the root has both modes and every order. It is a `custom_jvp` whose rule is the equation
//!   above.
//!
//! The solution depends on the tensors that the map or F captures: the coefficients of A, the
//! parameters p. Tensors that only solvers use (a first guess, a tolerance, a factorization) have
//! no derivative, since the solution does not depend on them. Operations on captured values alone
//! are computed once, outside of the closure, so all runs of a solver share a factorization.

use super::jvp::with_zeros;
use super::rules::{emit, finish};
use super::transpose::{transpose, verify_linear};
use super::values::{enter_scope_of, leaves, poison, types, with_tensors};
use super::{current_scope, jvp, linearize, record, trace, unpoisoned};
use wengert_core::build::Closure;
use wengert_core::build::inline;
use wengert_core::graph::{Body, ValueId};
use wengert_core::op::{CustomJvp, CustomLinearSolve, FunctionName};
use wengert_core::{Diagnostic, Differentiable, Location, Result, Tensor, TensorType};

/// A solver: from a map and a right-hand side, or from a function and a first guess, to the
/// solution.
pub type Solver<'a, B> = &'a dyn Fn(&dyn Fn(&B) -> B, &B) -> B;

/// How the transposed system is solved. Reverse mode of [`custom_linear_solve`] needs it.
#[derive(Clone, Copy)]
pub enum TransposeSolve<'a, B> {
    /// The map is its own transpose, and the same solver is used. This is not checked.
    Symmetric,
    /// The solver takes any map, the transposed one included.
    Same,
    /// A solver for the transposed map.
    By(Solver<'a, B>),
    /// No transposed solver: forward mode only.
    Never,
}

/// The solution x of A·x = b, where `map` computes A·x and `solve` finds x from the map and b; as
/// `jax.lax.custom_linear_solve`.
///
/// The map is linear, from values of the structure of `b` to values of the same structure, all of
/// them floats. Derivatives are those of the system: ẋ solves A·ẋ = ḃ − Ȧ·x, and the cotangent of
/// b solves Aᵀ·b̄ = x̄. The solver is never differentiated, and may contain any loop.
///
/// Errors: the map's result types differ from its argument types; a transpose is needed and the
/// map has none; b holds values that are not floats.
///
/// ```
/// # use wengert_core::build::{FunctionBuilder, control::while_loop};
/// # use wengert_core::{interpret, DType, Literal, Tensor, TensorType};
/// # use wengert_compiler::autodiff::implicit::{custom_linear_solve, TransposeSolve};
/// # use wengert_compiler::autodiff::operators::grad;
/// // The solution x of (4 + a)·x = b, by x ← (b − a·x)/4. The loop has no bound, so it has no
/// // reverse mode of its own.
/// let f = FunctionBuilder::build("f", |f| {
///     let a = f.input("a", TensorType::scalar(DType::F64));
///     f.output("slope", grad(&a, |a| {
///         let b = Tensor::constant(10.0);
///         let map = |x: &Tensor| x * 4.0 + a * x;
///         let iterate = |map: &dyn Fn(&Tensor) -> Tensor, b: &Tensor| {
///             let off = |x: &Tensor| b - map(x);
///             while_loop(&b.zeros_like(), |x| off(x).abs().gt(1e-12), |x| x + off(x) * 0.25)
///         };
///         custom_linear_solve(map, &b, iterate, TransposeSolve::Symmetric)
///     }));
/// })?;
/// let slope = interpret::run(&f, &[Literal::from(1.0)])?[0].get(0).to_f64();
/// assert!((slope + 10.0 / 25.0).abs() < 1e-12);
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[track_caller]
pub fn custom_linear_solve<B: Differentiable>(
    map: impl FnOnce(&B) -> B,
    b: &B,
    solve: impl Fn(&dyn Fn(&B) -> B, &B) -> B,
    transposed: TransposeSolve<'_, B>,
) -> B {
    let caller = Location::caller();
    let _entered = enter_scope_of(b);
    finish(b, linear_solve(map, b, &solve, transposed, caller.clone()), caller)
}

fn linear_solve<B: Differentiable>(
    map: impl FnOnce(&B) -> B,
    b: &B,
    solve: Solver<'_, B>,
    transposed: TransposeSolve<'_, B>,
    caller: Location,
) -> Result<Vec<Tensor>> {
    let right = floats(b, "a right-hand side")?;
    let kinds = types(&right);
    let map = trace(&kinds, |x| leaves(&map(&with_tensors(b, x))))?;
    same_types("the map of `custom_linear_solve`", &map.body, &kinds)?;
    let solver = solved(b, &kinds, &map, solve)?;
    let mut closures = vec![map, solver];
    let solve_transposed = match transposed {
        TransposeSolve::Symmetric | TransposeSolve::Never => None,
        TransposeSolve::Same => Some(solve),
        TransposeSolve::By(other) => Some(other),
    };
    if let Some(solve) = solve_transposed {
        let map = caller.attribute(|| transposed_map(&closures[0], &kinds))?;
        let solver = solved(b, &kinds, &map, solve)?;
        closures.extend([map, solver]);
    }
    let captures = Closure::captures_of(&closures);
    closures.iter_mut().for_each(|c| c.capture(&captures));
    let symmetric = matches!(transposed, TransposeSolve::Symmetric);
    let op = CustomLinearSolve { captures: captures.len(), symmetric };
    emit(op.into(), right, captures, closures.into_iter().map(|c| c.body).collect(), caller)
}

/// Aᵀ as a closure.
fn transposed_map(map: &Closure, kinds: &[TensorType]) -> Result<Closure> {
    let scope = current_scope()?;
    let explain = |mut d: Diagnostic| {
        d.message = format!("the map of `custom_linear_solve` cannot be transposed: {}", d.message);
        d
    };
    verify_linear(&map.body, kinds.len(), |id| scope.origin(id)).map_err(explain)?;
    record(kinds, |y| {
        let cotangents: Vec<Option<Tensor>> = y.iter().cloned().map(Some).collect();
        let of = transpose(&map.body, kinds.len(), &map.captures, &cotangents).map_err(explain)?;
        with_zeros(of, kinds)
    })
}

/// A solver as a closure of the right-hand side or the first guess. It calls `map`, which is
/// passed as a function.
fn solved<B: Differentiable>(
    like: &B,
    kinds: &[TensorType],
    map: &Closure,
    solve: impl FnOnce(&dyn Fn(&B) -> B, &B) -> B,
) -> Result<Closure> {
    let apply = |x: &B| {
        let run = || {
            let x = leaves(x);
            unpoisoned(&x)?;
            check_types("a solver calls its map on", &types(&x), kinds)?;
            inline(&map.body, &[x, map.captures.clone()].concat())
        };
        with_tensors(like, &run().unwrap_or_else(|error| vec![poison(&error); kinds.len()]))
    };
    let closure = trace(kinds, |b| leaves(&solve(&apply, &with_tensors(like, b))))?;
    same_types("a solver", &closure.body, kinds)?;
    Ok(closure)
}

/// A root x of F(x) = 0 that `solve` finds from F and a first guess; as `jax.lax.custom_root`.
///
/// F returns values of the structure of x, all of them floats. Derivatives are those of the
/// equation: ẋ = −(∂ₓF)⁻¹·∂ₚF·ṗ for the captures p of F. `tangent_solve` takes the linear map g =
/// ∂ₓF at the root and a right-hand side c, and returns the solution y of g(y) = c. It has to be
/// linear in c. Reverse mode transposes it, so it is a [`custom_linear_solve`] or another
/// operation with a transpose, such as a division by g(1) for scalars. `solve` is not
/// differentiated, and the root does not depend on the guess.
///
/// ```
/// # use wengert_core::build::{FunctionBuilder, control::while_loop};
/// # use wengert_core::{interpret, DType, Literal, Tensor, TensorType};
/// # use wengert_compiler::autodiff::{operators::grad, implicit::custom_root};
/// // The square root of a by Heron's rule, and its slope.
/// let f = FunctionBuilder::build("f", |f| {
///     let a = f.input("a", TensorType::scalar(DType::F64));
///     f.output("slope", grad(&a, |a| {
///         let heron = |f: &dyn Fn(&Tensor) -> Tensor, x: &Tensor| {
///             while_loop(x, |x| f(x).abs().gt(1e-9), |x| (x + a / x) * 0.5)
///         };
///         custom_root(|x| x * x - a, &a.ones_like(), heron, |g, c| c / g(&c.ones_like()))
///     }));
/// })?;
/// let slope = interpret::run(&f, &[Literal::from(9.0)])?[0].get(0).to_f64();
/// assert!((slope - 1.0 / 6.0).abs() < 1e-9);
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[track_caller]
pub fn custom_root<X: Differentiable>(
    f: impl FnOnce(&X) -> X,
    guess: &X,
    solve: impl FnOnce(&dyn Fn(&X) -> X, &X) -> X,
    tangent_solve: impl FnOnce(&dyn Fn(&X) -> X, &X) -> X,
) -> X {
    let caller = Location::caller();
    let _entered = enter_scope_of(guess);
    finish(guess, root(f, guess, solve, tangent_solve, caller.clone()), caller)
}

fn root<X: Differentiable>(
    f: impl FnOnce(&X) -> X,
    guess: &X,
    solve: impl FnOnce(&dyn Fn(&X) -> X, &X) -> X,
    tangent_solve: impl FnOnce(&dyn Fn(&X) -> X, &X) -> X,
    caller: Location,
) -> Result<Vec<Tensor>> {
    let start = floats(guess, "the first guess of a root")?;
    let kinds = types(&start);
    let f = trace(&kinds, |x| leaves(&f(&with_tensors(guess, x))))?;
    same_types("the function of `custom_root`", &f.body, &kinds)?;
    let mut solver = solved(guess, &kinds, &f, solve)?;
    let mut rule = root_rule(guess, &kinds, &f, tangent_solve, &caller)?;

    // Captures become arguments of the op, so that the rule gets their tangents.
    let parameters = Closure::captures_of(&[f.clone(), solver.clone(), rule.clone()]);
    solver.capture(&parameters);
    rule.capture(&parameters);
    let mut given = rule.body.inputs.clone();
    let captured = given.split_off(given.len() - parameters.len());
    let (at, moved) = given.split_at(kinds.len());
    let mut moved = moved.iter();
    let mut unused = |ty: &TensorType| rule.body.values.push(ty.clone());
    let mut inputs: Vec<ValueId> = kinds.iter().map(&mut unused).collect();
    inputs.extend(captured);
    inputs.extend(at);
    inputs.extend(kinds.iter().map(&mut unused).collect::<Vec<_>>());
    // The rule has one tangent input per float capture of F, in their order.
    let order: Vec<(&Tensor, ValueId)> =
        moving(&f).map(|t| (t, *moved.next().expect("an input for each"))).collect();
    for parameter in parameters.iter().filter(|t| t.dtype().is_float()) {
        let known = order.iter().find(|(t, _)| t.is_same(parameter));
        inputs.push(known.map_or_else(|| unused(parameter.ty()), |(_, v)| *v));
    }
    rule.body.inputs = inputs;
    let op = CustomJvp { captures: 0, function: FunctionName::default() };
    emit(op.into(), start, parameters, vec![solver.body, rule.body], caller)
}

/// The float captures of a closure.
fn moving(f: &Closure) -> impl Iterator<Item = &Tensor> {
    f.captures.iter().filter(|t| t.dtype().is_float())
}

/// ẋ from a root and the tangents of F's float captures.
fn root_rule<X: Differentiable>(
    guess: &X,
    kinds: &[TensorType],
    f: &Closure,
    tangent_solve: impl FnOnce(&dyn Fn(&X) -> X, &X) -> X,
    caller: &Location,
) -> Result<Closure> {
    let count = kinds.len();
    let taken: Vec<TensorType> =
        kinds.iter().cloned().chain(moving(f).map(|t| t.ty().clone())).collect();
    let scope = current_scope()?.region();
    let inputs: Vec<Tensor> =
        taken.iter().map(|ty| scope.input_at(ty.clone(), Location::Unknown)).collect();
    let outputs = scope.enter(|| -> Result<Vec<Tensor>> {
        let (at, moved) = inputs.split_at(count);
        let mut moved = moved.iter().cloned();
        let primals: Vec<Tensor> = at.iter().chain(&f.captures).cloned().collect();
        let mut along = vec![None; count];
        along.extend(
            f.captures.iter().map(|t| t.dtype().is_float().then(|| moved.next()).flatten()),
        );
        let wanted = vec![true; count];
        let user = caller.attributed();
        let right = with_zeros(jvp(&f.body, &primals, &along, &wanted)?.1, kinds)?;
        let linear = linearize(f, at, &wanted, &wanted)?.linear;
        drop(user);
        let g = |y: &X| {
            let _user = caller.attributed();
            let y: Vec<Option<Tensor>> = leaves(y).into_iter().map(Some).collect();
            let given = linear.apply(&y).and_then(|given| with_zeros(given, kinds));
            with_tensors(guess, &given.unwrap_or_else(|error| vec![poison(&error); count]))
        };
        let found = leaves(&tangent_solve(&g, &with_tensors(guess, &right)));
        unpoisoned(&found)?;
        check_types("the solver of a root's tangent gives", &types(&found), kinds)?;
        let _user = caller.attributed();
        Ok(found.iter().map(|t| -t).collect())
    })?;
    scope.close(&outputs)
}

/// The tensors of a value.
///
/// Errors: a tensor is poisoned, or is not a float.
fn floats(value: &impl Differentiable, what: &str) -> Result<Vec<Tensor>> {
    let tensors = leaves(value);
    unpoisoned(&tensors)?;
    match tensors.iter().find(|t| !t.dtype().is_float()) {
        Some(t) => {
            Err(Diagnostic::new(format!("{what} holds {}, which has no derivative", t.ty()))
                .help("solutions are floats: capture other values"))
        }
        None => Ok(tensors),
    }
}

fn same_types(what: &str, body: &Body, wanted: &[TensorType]) -> Result<()> {
    check_types(&format!("{what} gives"), &body.types(&body.outputs), wanted)
}

fn check_types(what: &str, found: &[TensorType], wanted: &[TensorType]) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    let list = |types: &[TensorType]| {
        types.iter().map(TensorType::to_string).collect::<Vec<_>>().join(", ")
    };
    Err(Diagnostic::new(format!("{what} ({}), not ({})", list(found), list(wanted)))
        .help("maps and solvers take and give values of the same structure, dtypes and shapes"))
}
