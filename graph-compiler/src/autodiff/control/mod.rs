//! Derivatives of control flow, from those of its regions.
//!
//! A branch is differentiated by differentiating all of its regions, a loop by differentiating
//! its step. In forward mode tangents accompany their primals: a loop carries both, and stays one
//! loop. Linearization has to separate them, since its linear half may run later, and backwards.
//! This is partial evaluation of the step. The step is linearized in a scope of its own, which
//! gives a linear program for one step and its residuals, of three kinds:
//!
//! - values that differ from step to step are *stacked* by the primal loop: the tape, typed, of
//!   exactly the values that the linear step reads;
//! - rows of a stacked operand exist already, and are sliced again;
//! - loop-invariant values were emitted before the loop, by the rule of scopes, and are captured.
//!
//! The linear half is a scan of the linear step. Its transpose is the scan of the transposed step
//! in the other direction: it carries cotangents of the carries, and accumulates those of the
//! captures. If the loop ends by a condition, the number of steps is a residual too, and the
//! linear half counts. So linear programs contain branches and scans only, and both are closed
//! under transposition and differentiation; any order and any nesting follows.

mod binomial;
mod branch;
mod call;
mod checkpoint;
mod products;
mod scan;
mod transposed;
mod while_loop;

use super::activity::Activity;
use super::current_scope;
use super::jvp::{Duals, run, zeros};
use super::transpose::transpose as transpose_body;
use super::values::types;
use wengert_core::build::{Closure, Scope};
use wengert_core::graph::{Body, Equation, Region, ValueId};
use wengert_core::op::{Control, Derivative};
use wengert_core::{Diagnostic, IdVec, Location, Op, Result, Tensor, TensorType};

pub(super) use transposed::verify;

/// Results and tangents of a construct, some of whose operands have tangents. Tangents are made
/// for the `wanted` results.
pub(super) fn differentiate(
    scope: &Scope,
    equation: &Equation,
    operands: &[Tensor],
    tangents: &[Option<Tensor>],
    wanted: &[bool],
    linearizing: bool,
) -> Result<Duals> {
    let at = Site { scope, equation, operands, tangents, wanted };
    if let Op::Checkpoint(op) = &equation.op {
        return if linearizing { checkpoint::linearize(&at, op) } else { checkpoint::jvp(&at, op) };
    }
    if let Op::FunctionCall(op) = &equation.op {
        return if linearizing { call::linearize(&at, op) } else { call::jvp(&at, op) };
    }
    match (equation.op.control().expect("it is control flow"), linearizing) {
        (Control::Branch, false) => branch::jvp(&at),
        (Control::Branch, true) => branch::linearize(&at),
        (Control::Scan(op), false) => scan::jvp(&at, op),
        (Control::Scan(op), true) => scan::linearize(&at, op),
        (Control::While(op), false) => while_loop::jvp(&at, op),
        (Control::While(op), true) => while_loop::linearize(&at, op),
    }
}

/// Only the tangents.
pub(super) fn tangents(
    scope: &Scope,
    equation: &Equation,
    operands: &[Tensor],
    tangents: &[Option<Tensor>],
    results: usize,
) -> Result<Vec<Option<Tensor>>> {
    Ok(differentiate(scope, equation, operands, tangents, &vec![true; results], false)?.1)
}

/// Cotangents of a construct's operands.
pub(super) fn adjoint(
    scope: &Scope,
    equation: &Equation,
    operands: &[Operand],
    cotangents: &[Option<Tensor>],
) -> Result<Vec<Option<Tensor>>> {
    if let Op::Checkpoint(op) = &equation.op {
        return checkpoint::transpose(scope, equation, op, operands, cotangents);
    }
    if let Op::FunctionCall(op) = &equation.op {
        return call::transpose(scope, equation, op, operands, cotangents);
    }
    match equation.op.control().expect("it is control flow") {
        Control::Branch => branch::transpose(scope, equation, operands, cotangents),
        Control::Scan(op) => transposed::transpose(scope, equation, op, operands, cotangents),
        Control::While(_) => Err(Diagnostic::new("a `while` loop cannot be transposed as it is")
            .at(scope.origin(equation.location), "the loop is here")
            .help(
                "bound it (`while_at_most`, in text `max_steps`) and use `vjp`, which linearizes \
                 first; or write it as a `scan`",
            )),
    }
}

/// An operand of an equation that is transposed: a value, or `None` where the equation is linear
/// in it.
pub(super) type Operand = Option<Tensor>;

/// An equation being differentiated.
struct Site<'a> {
    scope: &'a Scope,
    equation: &'a Equation,
    operands: &'a [Tensor],
    tangents: &'a [Option<Tensor>],
    wanted: &'a [bool],
}

impl Site<'_> {
    /// Emits the construct, or its replacement.
    fn emit(
        &self,
        op: impl Into<Op>,
        operands: &[Tensor],
        regions: Vec<impl Into<Region>>,
    ) -> Result<Vec<Tensor>> {
        let location = self.scope.location(self.equation.location);
        Scope::emit(op.into(), operands, renumbered(regions), location)
    }

    /// Emits a construct on tangents.
    fn emit_linear(
        &self,
        op: impl Into<Op>,
        operands: &[Tensor],
        regions: Vec<impl Into<Region>>,
    ) -> Result<Vec<Tensor>> {
        let rule = format!("jvp({})", self.equation.op.name());
        derived(self.scope, self.equation, rule, op.into(), operands, regions)
    }
}

/// Emits a construct that a rule made.
fn derived(
    scope: &Scope,
    equation: &Equation,
    rule: String,
    op: Op,
    operands: &[Tensor],
    regions: Vec<impl Into<Region>>,
) -> Result<Vec<Tensor>> {
    scope.derived(equation.location, rule, || {
        Scope::emit(op, operands, renumbered(regions), Location::Unknown)
    })
}

fn renumbered(regions: Vec<impl Into<Region>>) -> Vec<Region> {
    regions.into_iter().map(|region| region.into().into_body().renumber().into()).collect()
}

/// The type of a stack's row.
fn part(ty: &TensorType) -> TensorType {
    ty.with_shape(ty.shape[1..].to_vec())
}

/// The tensors that are present.
fn present(tensors: &[Option<Tensor>]) -> Vec<Tensor> {
    tensors.iter().flatten().cloned().collect()
}

/// Which tensors are present.
fn flags(tensors: &[Option<Tensor>]) -> Vec<bool> {
    tensors.iter().map(Option::is_some).collect()
}

/// The items in order, one for each set flag; `None` for the others.
fn spread<T: Clone>(items: &[T], flags: &[bool]) -> Vec<Option<T>> {
    let mut items = items.iter();
    flags.iter().map(|flag| flag.then(|| items.next().cloned()).flatten()).collect()
}

/// The items whose flags are set.
pub(super) fn kept<T: Clone>(items: &[T], flags: &[bool]) -> Vec<T> {
    items.iter().zip(flags).filter(|(_, flag)| **flag).map(|(item, _)| item.clone()).collect()
}

fn or_zeros(tensor: Option<&Tensor>, ty: &TensorType) -> Result<Tensor> {
    tensor.map_or_else(|| zeros(ty), |t| Ok(t.clone()))
}

/// The innermost scope among those of the tensors and the current one.
fn innermost<'t>(tensors: impl IntoIterator<Item = &'t Tensor>) -> Result<Scope> {
    let mut scope = current_scope()?;
    for candidate in tensors.into_iter().filter_map(Tensor::scope) {
        if candidate.is_within(&scope) {
            scope = candidate.clone();
        }
    }
    Ok(scope)
}

/// A scope, and inputs of it of these types.
fn opened(scope: Scope, types: &[TensorType]) -> (Scope, Vec<Tensor>) {
    let inputs = types.iter().map(|ty| scope.input_at(ty.clone(), Location::Unknown)).collect();
    (scope, inputs)
}

/// A body whose inputs are all explicit. All equations that `f` emits stay in it.
pub(super) fn region(
    types: &[TensorType],
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Body> {
    let (scope, inputs) = opened(current_scope()?.region(), types);
    let outputs = scope.enter(|| f(&inputs))?;
    let closure = scope.close(&outputs)?;
    assert!(closure.captures.is_empty(), "such a region uses its inputs only");
    Ok(closure.body)
}

/// [`region`] of outputs that may be zero. It returns those that are not; also returns which they
/// are.
fn region_of_some(
    types: &[TensorType],
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Option<Tensor>>>,
) -> Result<(Body, Vec<bool>)> {
    let mut some = vec![];
    let body = region(types, |inputs| {
        let outputs = f(inputs)?;
        some = flags(&outputs);
        Ok(present(&outputs))
    })?;
    Ok((body, some))
}

/// A region together with its tangents. It takes the operands, then the tangents that are
/// present; also returns whether each result has a tangent.
fn dual(at: &Site<'_>, body: &Body) -> Result<(Body, Vec<bool>)> {
    let taken = [types(at.operands), types(&present(at.tangents))].concat();
    let (dual, mut some) = region_of_some(&taken, |inputs| {
        let (primals, rest) = inputs.split_at(at.operands.len());
        let tangents = spread(rest, &flags(at.tangents));
        let (outputs, tangents) = run(body, primals, &tangents, at.wanted, false)?;
        Ok(outputs.into_iter().map(Some).chain(tangents).collect())
    })?;
    Ok((dual, some.split_off(body.outputs.len())))
}

/// The transpose of a region that is linear in operands that are not known. It takes the known
/// operands, then the cotangents that are present; also returns whether each linear operand has a
/// cotangent.
fn transposed_region(
    body: &Body,
    operands: &[Operand],
    cotangents: &[Option<Tensor>],
) -> Result<(Body, Vec<bool>)> {
    let (body, lines) = transposed::reordered(body, &linear(operands));
    let known = present(operands);
    let taken = [types(&known), types(&present(cotangents))].concat();
    region_of_some(&taken, |inputs| {
        let (known, given) = inputs.split_at(known.len());
        transpose_body(&body, lines, known, &spread(given, &flags(cotangents)))
    })
}

/// Whether an equation is linear in each operand.
fn linear(operands: &[Operand]) -> Vec<bool> {
    operands.iter().map(Option::is_none).collect()
}

/// Cotangents of all operands from those of the linear ones, of which the `moving` ones have any.
fn of_operands(cotangents: &[Tensor], moving: &[bool], linear: &[bool]) -> Vec<Option<Tensor>> {
    let each = spread(cotangents, moving);
    spread(&each, linear).into_iter().map(Option::flatten).collect()
}

/// A closure without unused captures.
fn pruned(mut closure: Closure) -> Closure {
    let live = Activity::prune(&mut closure.body);
    let explicit = closure.body.inputs.len() - closure.captures.len();
    let used: Vec<bool> = closure.body.inputs[explicit..].iter().map(|v| live[*v]).collect();
    let captured = closure.body.inputs.split_off(explicit);
    closure.body.inputs.extend(kept(&captured, &used));
    closure.captures = kept(&closure.captures, &used);
    closure
}

/// For each output of a body whether its tangent may differ from zero if the `active` inputs have
/// tangents.
fn reached(body: &Body, active: &[bool]) -> Vec<bool> {
    let mut moves: IdVec<ValueId, bool> = body.values.ids().map(|_| false).collect();
    for (input, active) in body.inputs.iter().zip(active) {
        moves[*input] |= active & body.ty(*input).dtype.is_float();
    }
    for equation in &body.equations {
        let zero = matches!(equation.op.derivative(), Derivative::Zero);
        if !zero && equation.operands.iter().any(|v| moves[*v]) {
            for result in &equation.results {
                moves[*result] = body.ty(*result).dtype.is_float();
            }
        }
    }
    body.outputs.iter().map(|v| moves[*v]).collect()
}

/// Whether each carry of a loop depends on the active operands: its initial value does, or a step
/// computes it from a value that does.
fn reached_carries(step: &Body, carries: usize, active: &[bool]) -> Vec<bool> {
    let mut active = active.to_vec();
    loop {
        let reached = reached(step, &active);
        let more: Vec<usize> = (0..carries).filter(|i| reached[*i] && !active[*i]).collect();
        if more.is_empty() {
            return active[..carries].to_vec();
        }
        more.iter().for_each(|i| active[*i] = true);
    }
}

/// The carries of a loop with tangents: those that an active operand reaches and that reach a
/// wanted result. The operands of `step` are carries, then others; its outputs carries, then
/// others.
fn active_carries(step: &Body, carries: usize, active: &[bool], wanted: &[bool]) -> Vec<bool> {
    let forward = reached_carries(step, carries, active);
    let mut backward = wanted.to_vec();
    loop {
        let matters = Activity::of(step, &backward).differentiated;
        let more: Vec<usize> =
            (0..carries).filter(|i| matters[step.inputs[*i]] && !backward[*i]).collect();
        if more.is_empty() {
            break;
        }
        more.iter().for_each(|i| backward[*i] = true);
    }
    (0..carries).map(|i| forward[i] && backward[i]).collect()
}
