//! `call`: functions called by name, each differentiated once.
//!
//! The derivatives of a function form its *bundle*. Each part is a function again, and is called
//! by name: the tangent function `@f.jvp`, the forward half `@f.forward`, which also returns the
//! residuals of the linear half, the linear half `@f.linear`, and its transpose `@f.pullback`.
//! The parts depend on the function and on which arguments vary, not on the caller. So they are
//! made at the first call and cached. A caller's derivative has as many calls as the caller,
//! whatever the size of the function.
//!
//! Parts are differentiated like any function: the second derivative of `@f` calls
//! `@f.forward.linear`, and so on.

use super::{
    Activity, Operand, Site, dual, flags, kept, linear, of_operands, opened, present, spread,
    transposed_region, types,
};
use crate::autodiff::current_scope;
use crate::autodiff::jvp::Duals;
use crate::autodiff::linearize::linearize as linearized;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use wengert_core::build::{Closure, Scope};
use wengert_core::graph::{Equation, Region, ValueId};
use wengert_core::op::{FunctionCall, FunctionName};
use wengert_core::{Location, Result, Tensor};

/// A function, and flags of the arguments and results that a derivative concerns.
type Key = (Region, Vec<bool>, Vec<bool>);

/// Derivatives of the functions that a function under construction calls.
#[derive(Default)]
struct Bundles {
    tangents: RefCell<HashMap<Key, Rc<Joint>>>,
    halves: RefCell<HashMap<Key, Rc<Halves>>>,
    transposes: RefCell<HashMap<Key, Rc<Transposed>>>,
}

/// Results and tangents together.
struct Joint {
    body: Region,
    /// Whether each result has a tangent.
    moving: Vec<bool>,
}

struct Halves {
    /// Returns the results, then residuals.
    forward: Region,
    /// Takes the tangents that are present, then `residuals`. Returns the tangents of the results
    /// that have one.
    linear: Region,
    residuals: Vec<Source>,
    moving: Vec<bool>,
}

/// The source of a residual of the linear half.
#[derive(Clone, Copy)]
enum Source {
    /// The argument of this number.
    Argument(usize),
    /// The forward half's result at this position.
    Result(usize),
}

struct Transposed {
    /// Takes the `used` ones of known operands, then cotangents.
    body: Region,
    used: Vec<bool>,
    /// Whether each linear operand has a cotangent.
    moving: Vec<bool>,
}

/// The cached value of a key, made if it is missing.
fn remembered<T>(
    known: &RefCell<HashMap<Key, Rc<T>>>,
    key: Key,
    make: impl FnOnce() -> Result<T>,
) -> Result<Rc<T>> {
    if let Some(made) = known.borrow().get(&key) {
        return Ok(made.clone());
    }
    // `make` may request the parts of functions that this one calls.
    let made = Rc::new(make()?);
    known.borrow_mut().insert(key, made.clone());
    Ok(made)
}

/// The name of a part of a function's bundle. The transpose of a linear half belongs to the
/// function itself.
fn part(op: &FunctionCall, suffix: &str) -> FunctionCall {
    let name = op.function.0.as_str();
    let base = match suffix {
        "pullback" => {
            name.split_once(".linear").filter(|(_, rest)| is_number(rest)).map_or(name, |(f, _)| f)
        }
        _ => name,
    };
    FunctionCall { function: FunctionName(format!("{base}.{suffix}")), ..op.clone() }
}

/// The suffix that distinguishes functions of one name: empty, or a dot and a number.
fn is_number(rest: &str) -> bool {
    rest.is_empty() || rest.strip_prefix('.').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
}

fn called(
    at: &Site<'_>,
    op: FunctionCall,
    operands: &[Tensor],
    body: &Region,
) -> Result<Vec<Tensor>> {
    let location = at.scope.location(at.equation.location);
    Scope::emit(op.into(), operands, vec![body.clone()], location)
}

fn derived_call(
    scope: &Scope,
    equation: &Equation,
    rule: String,
    op: FunctionCall,
    operands: &[Tensor],
    body: &Region,
) -> Result<Vec<Tensor>> {
    scope.derived(equation.location, rule, || {
        Scope::emit(op.into(), operands, vec![body.clone()], Location::Unknown)
    })
}

pub(super) fn jvp(at: &Site<'_>, op: &FunctionCall) -> Result<Duals> {
    let body = &at.equation.regions[0];
    let key = (body.clone(), flags(at.tangents), at.wanted.to_vec());
    let joint = remembered(&at.scope.remembered::<Bundles>().tangents, key, || {
        let (body, moving) = dual(at, body)?;
        Ok(Joint { body: body.into(), moving })
    })?;
    let operands = [at.operands, &present(at.tangents)].concat();
    let mut results = called(at, part(op, "jvp"), &operands, &joint.body)?;
    let tangents = results.split_off(body.outputs.len());
    Ok((results, spread(&tangents, &joint.moving)))
}

pub(super) fn linearize(at: &Site<'_>, op: &FunctionCall) -> Result<Duals> {
    let body = &at.equation.regions[0];
    let count = body.outputs.len();
    let key = (body.clone(), flags(at.tangents), at.wanted.to_vec());
    let halves = remembered(&at.scope.remembered::<Bundles>().halves, key, || halves(at, body))?;
    let unchanged = halves.forward.outputs.len() == count;
    let op_forward = if unchanged { op.clone() } else { part(op, "forward") };
    let forward = if unchanged { body } else { &halves.forward };
    let mut values = called(at, op_forward, at.operands, forward)?;
    if !halves.moving.contains(&true) {
        values.truncate(count);
        let none = vec![None; count];
        return Ok((values, none));
    }
    let residual = |source: &Source| match source {
        Source::Argument(i) => at.operands[*i].clone(),
        Source::Result(i) => values[*i].clone(),
    };
    let operands: Vec<Tensor> =
        present(at.tangents).into_iter().chain(halves.residuals.iter().map(residual)).collect();
    let rule = format!("jvp({})", at.equation.op.name());
    let tangents =
        derived_call(at.scope, at.equation, rule, part(op, "linear"), &operands, &halves.linear)?;
    values.truncate(count);
    Ok((values, spread(&tangents, &halves.moving)))
}

fn halves(at: &Site<'_>, body: &Region) -> Result<Halves> {
    let (scope, inputs) = opened(current_scope()?.region(), &types(at.operands));
    let closure = Closure { body: body.to_body(), captures: vec![] };
    let apart = scope.enter(|| linearized(&closure, &inputs, &flags(at.tangents), at.wanted))?;
    let mut given = apart.outputs.clone();
    let mut sources: HashMap<ValueId, Source> = HashMap::new();
    for (i, output) in given.iter().enumerate() {
        sources.insert(scope.value_of(output)?, Source::Result(i));
    }
    for (i, input) in inputs.iter().enumerate() {
        sources.insert(scope.value_of(input)?, Source::Argument(i));
    }
    let mut residuals = Vec::new();
    for residual in &apart.linear.residuals {
        let source = *sources.entry(scope.value_of(residual)?).or_insert_with(|| {
            given.push(residual.clone());
            Source::Result(given.len() - 1)
        });
        residuals.push(source);
    }
    let closed = scope.close(&given)?;
    assert!(closed.captures.is_empty(), "a function that is called uses its arguments only");
    let moving = apart.linear.outputs.iter().map(|(_, at)| at.is_some()).collect();
    let (forward, linear) = (closed.body.renumber().into(), apart.linear.body.renumber().into());
    Ok(Halves { forward, linear, residuals, moving })
}

pub(super) fn transpose(
    scope: &Scope,
    equation: &Equation,
    op: &FunctionCall,
    operands: &[Operand],
    cotangents: &[Option<Tensor>],
) -> Result<Vec<Option<Tensor>>> {
    let linear = linear(operands);
    let body = &equation.regions[0];
    let key = (body.clone(), linear.clone(), flags(cotangents));
    let made = remembered(&scope.remembered::<Bundles>().transposes, key, || {
        let (mut body, moving) = transposed_region(body, operands, cotangents)?;
        let live = Activity::live(&body);
        let used: Vec<bool> = body.inputs.iter().map(|v| live[*v]).collect();
        body.inputs = kept(&body.inputs, &used);
        Ok(Transposed { body: body.renumber().into(), used, moving })
    })?;
    if !made.moving.contains(&true) {
        return Ok(vec![None; operands.len()]);
    }
    let operands = kept(&[present(operands), present(cotangents)].concat(), &made.used);
    let rule = format!("transpose({})", equation.op.name());
    let results = derived_call(scope, equation, rule, part(op, "pullback"), &operands, &made.body)?;
    Ok(of_operands(&results, &made.moving, &linear))
}
