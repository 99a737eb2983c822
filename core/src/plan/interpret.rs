//! The plan interpreter: executes a plan on memories of bytes.
//!
//! It is the oracle of executors. It executes the steps as written, with their addresses: nests
//! by the nest interpreter, calls by their reference ([`crate::Call::reference`]). Memories start
//! with bytes that belong to no value, so reads of bytes that were never written are visible. A
//! nest that runs in place runs as the merged nest ([`crate::nest::alias::in_place`]), in which
//! the interpreter detects an element that is read after it was written.

use super::print::StepText;
use super::work::STEP;
use super::{
    Address, Allowance, Argument, Loop, Plan, Space, Step, Trip, Value, ValueId, Work, verify,
};
use crate::allocation::reserved;
use crate::call::Call;
use crate::diagnostic::{Diagnostic, Result};
use crate::id::Id;
use crate::literal::Literal;
use crate::nest::{self, BufferRole, Nest};
use crate::ty::TensorType;

/// Initial contents of memory: a NaN in every float dtype, and no valid bool.
const FRESH: u8 = 0xff;

/// Results of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    /// One for each output of the plan, with the shape that the output declares.
    pub outputs: Vec<Literal>,
    /// One for each variable of the plan: its value at the end.
    pub variables: Vec<Literal>,
}

/// Runs a plan on its inputs and on the values of its variables (`None` for those that it
/// creates).
///
/// Errors: the verifier rejects the plan, inputs or variables do not fit, there is not enough
/// memory, or an access violates the rules of a nest at run time.
pub fn interpret(plan: &Plan, inputs: &[Literal], variables: &[Option<Literal>]) -> Result<Run> {
    interpret_within(plan, inputs, variables, u64::MAX)
}

/// [`interpret`] with at most `limit` operations ([`super::work`]).
///
/// Errors: as for `interpret`, or the run takes more operations.
pub fn interpret_within(
    plan: &Plan,
    inputs: &[Literal],
    variables: &[Option<Literal>],
    limit: u64,
) -> Result<Run> {
    verify(plan)?;
    if inputs.len() != plan.inputs.len() || variables.len() != plan.variables.len() {
        return Err(Diagnostic::new(format!(
            "plan @{} has {} inputs and {} variables, {} and {} are given",
            plan.function,
            plan.inputs.len(),
            plan.variables.len(),
            inputs.len(),
            variables.len()
        )));
    }
    let work = Work::of(plan);
    let allowance = Allowance::new(limit);
    allowance.covers(work.least(plan, &plan.steps))?;
    let mut machine =
        Machine { plan, memories: Memories::default(), counters: Vec::new(), work, allowance };
    machine.begin(inputs, variables)?;
    machine.block(&plan.steps)?;
    machine.end()
}

#[derive(Default)]
struct Memories {
    arena: Vec<u8>,
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
    variables: Vec<Vec<u8>>,
    constants: Vec<Vec<u8>>,
}

impl Memories {
    fn get(&mut self, space: Space) -> &mut [u8] {
        match space {
            Space::Arena => &mut self.arena,
            Space::Input(n) => &mut self.inputs[n as usize],
            Space::Output(n) => &mut self.outputs[n as usize],
            Space::Variable(n) => &mut self.variables[n as usize],
            Space::Constant(n) => &mut self.constants[n as usize],
        }
    }
}

struct Machine<'a> {
    plan: &'a Plan,
    memories: Memories,
    /// The counter of each loop.
    counters: Vec<u64>,
    work: Work,
    allowance: Allowance,
}

impl Machine<'_> {
    fn begin(&mut self, inputs: &[Literal], variables: &[Option<Literal>]) -> Result<()> {
        let plan = self.plan;
        self.memories.arena = fresh(plan.arena)?;
        for (input, literal) in plan.inputs.iter().zip(inputs) {
            self.memories.inputs.push(given(
                "input",
                &input.name,
                &plan.values[input.value],
                literal,
            )?);
        }
        for output in &plan.outputs {
            self.memories.outputs.push(fresh(plan.values[output.value].bytes())?);
        }
        for (variable, literal) in plan.variables.iter().zip(variables) {
            let ty =
                Value { name: String::new(), dtype: variable.dtype, shape: variable.shape.clone() };
            self.memories.variables.push(match (variable.before, literal) {
                (Some(_), Some(literal)) => given("variable", &variable.name, &ty, literal)?,
                (None, None) => fresh(ty.bytes())?,
                (Some(_), None) => {
                    return Err(Diagnostic::new(format!(
                        "variable `{}` has no value",
                        variable.name
                    )));
                }
                (None, Some(_)) => {
                    return Err(Diagnostic::new(format!(
                        "variable `{}` is made by the plan",
                        variable.name
                    )));
                }
            });
        }
        let constants = plan.constants.iter().map(|c| bytes_of(&c.literal));
        self.memories.constants = constants.collect::<Result<_>>()?;
        Ok(())
    }

    fn end(&mut self) -> Result<Run> {
        let plan = self.plan;
        let outputs = plan.outputs.iter().zip(&self.memories.outputs);
        let outputs = outputs
            .map(|(o, bytes)| Literal::from_bytes(plan.values[o.value].dtype, &o.shape, bytes));
        let variables = plan.variables.iter().zip(&self.memories.variables);
        let variables = variables.map(|(v, bytes)| Literal::from_bytes(v.dtype, &v.shape, bytes));
        Ok(Run {
            outputs: outputs.collect::<Result<_>>()?,
            variables: variables.collect::<Result<_>>()?,
        })
    }

    /// The bytes at an address, for the current counters.
    fn bytes(&mut self, at: &Address, bytes: u64) -> &mut [u8] {
        let start = at.byte(&self.counters) as usize;
        &mut self.memories.get(at.space)[start..start + bytes as usize]
    }

    fn load(&mut self, argument: &Argument, ty: &TensorType) -> Result<Literal> {
        let shape = ty.extents().expect("types in plans have no variables");
        let bytes = ty.bytes().expect("the plan was verified: sizes fit") as u64;
        Literal::from_bytes(ty.dtype, &shape, self.bytes(&argument.at, bytes))
    }

    fn load_value(&mut self, argument: &Argument) -> Result<Literal> {
        let value = &self.plan.values[argument.value];
        let ty = TensorType::new(value.dtype, value.shape.iter().copied());
        self.load(argument, &ty)
    }

    /// The element of a value with one element.
    fn scalar(&mut self, value: ValueId, at: &Address) -> Result<i64> {
        let literal = self.load_value(&Argument { value, at: at.clone() })?;
        Ok(literal.get(0).to_i64().expect("the plan was verified: integers and bools decide"))
    }

    fn store(&mut self, argument: &Argument, literal: &Literal) -> Result<()> {
        let bytes = bytes_of(literal)?;
        self.bytes(&argument.at, bytes.len() as u64).copy_from_slice(&bytes);
        Ok(())
    }

    fn block(&mut self, steps: &[Step]) -> Result<()> {
        steps.iter().try_for_each(|step| self.step(step))
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        let plan = self.plan;
        self.allowance.spend(match step {
            Step::Nest { nest, .. } => self.work.nest(*nest),
            Step::Call { call, .. } => Work::call(call),
            Step::Copy { value, .. } => Work::copy(&plan.values[*value]),
            Step::Loop(_) | Step::If { .. } | Step::Switch { .. } => STEP,
        })?;
        match step {
            Step::Nest { nest, arguments } => {
                self.nest(&plan.nests[*nest], arguments).map_err(|d| {
                    d.context(format!("plan @{}, `{}`", plan.function, StepText(plan, step)))
                })
            }
            Step::Call { call, arguments, workspace } => self.call(call, arguments, workspace),
            Step::Copy { value, from, to } => {
                let bytes = plan.values[*value].bytes();
                let from = self.bytes(from, bytes);
                let mut copy = reserved(from.len())?;
                copy.extend_from_slice(from);
                self.bytes(to, bytes).copy_from_slice(&copy);
                Ok(())
            }
            Step::Loop(l) => self.looping(l),
            Step::If { predicate, then, otherwise, .. } => {
                let way = self.scalar(predicate.value, &predicate.at)? != 0;
                self.block(if way { then } else { otherwise })
            }
            Step::Switch { index, arms, .. } => {
                let way = self.scalar(index.value, &index.at)?.clamp(0, arms.len() as i64 - 1);
                self.block(&arms[way as usize])
            }
        }
    }

    fn nest(&mut self, nest: &Nest, arguments: &[Argument]) -> Result<()> {
        let roles: Vec<BufferRole> = nest.parameters().map(|(_, b)| b.role).collect();
        let with =
            |role: BufferRole| (0..roles.len()).filter(move |n| roles.get(*n) == Some(&role));
        let operands: Vec<usize> = with.clone()(BufferRole::In).collect();
        let results: Vec<usize> = with(BufferRole::Out).collect();
        let id = nest::BufferId::new;
        let mut pairs = Vec::new();
        for m in &results {
            let shares = |n: &&usize| {
                // A value without bytes overlaps nothing, whatever its address.
                let has_bytes = |k: usize| self.plan.values[arguments[k].value].bytes() > 0;
                has_bytes(**n) && has_bytes(*m) && arguments[**n].at == arguments[*m].at
            };
            pairs.extend(operands.iter().filter(shares).map(|n| (id(*n), id(*m))));
        }
        let merged = nest::alias::in_place(nest, &pairs).ok_or_else(|| {
            Diagnostic::new("operand and result of one address are of different types")
        })?;
        let mut inputs = Vec::new();
        for (argument, (_, buffer)) in arguments.iter().zip(merged.parameters()) {
            if buffer.role != BufferRole::Out {
                let ty = TensorType::new(buffer.dtype, buffer.shape.iter().copied());
                inputs.push(self.load(argument, &ty)?);
            }
        }
        let outputs = nest::interpret(&merged, &inputs)?;
        for (m, output) in results.iter().zip(&outputs) {
            self.store(&arguments[*m], output)?;
        }
        Ok(())
    }

    fn call(
        &mut self,
        call: &Call,
        arguments: &[Argument],
        workspace: &Option<(Address, u64)>,
    ) -> Result<()> {
        let (operands, results) = call.split(arguments);
        let operands = operands.iter().map(|o| self.load_value(o)).collect::<Result<Vec<_>>>()?;
        if let Some((at, bytes)) = workspace {
            self.bytes(at, *bytes).fill(FRESH);
        }
        for (result, found) in results.iter().zip(call.references(&operands)?) {
            self.store(result, &found.literal())?;
        }
        Ok(())
    }

    fn looping(&mut self, l: &Loop) -> Result<()> {
        if self.counters.len() <= l.id.index() {
            self.counters.resize(l.id.index() + 1, 0);
        }
        let trip = match &l.trip {
            Trip::Constant(n) => *n,
            Trip::Value { count, limit } => {
                let count = self.scalar(count.value, &count.at)?;
                u64::try_from(count).unwrap_or(0).min(*limit)
            }
            Trip::While { limit, .. } => *limit,
        };
        if !matches!(l.trip, Trip::While { .. }) {
            self.allowance.covers(Work::repeated(trip, self.work.least(self.plan, &l.body)))?;
        }
        for n in 0..trip {
            if let Trip::While { before, .. } = &l.trip
                && self.scalar(before.value, &before.at)? == 0
            {
                break;
            }
            self.allowance.spend(STEP)?;
            self.counters[l.id.index()] = if l.reverse { trip - 1 - n } else { n };
            self.block(&l.body)?;
        }
        Ok(())
    }
}

/// `bytes` bytes that belong to no value.
fn fresh(bytes: u64) -> Result<Vec<u8>> {
    let size = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut memory = reserved(size)?;
    memory.resize(size, FRESH);
    Ok(memory)
}

fn given(what: &str, name: &str, value: &Value, literal: &Literal) -> Result<Vec<u8>> {
    if literal.dtype() != value.dtype || literal.shape() != value.shape {
        return Err(Diagnostic::new(format!(
            "{what} `{name}` is {}{:?}, {} is given",
            value.dtype,
            value.shape,
            literal.ty()
        )));
    }
    bytes_of(literal)
}

/// The bytes of a literal.
///
/// Error: there is not enough memory.
fn bytes_of(literal: &Literal) -> Result<Vec<u8>> {
    // Test allocation: the copy has this size.
    reserved::<u8>(literal.len() * literal.dtype().size())?;
    Ok(literal.to_bytes())
}

/// The peak number of bytes that [`interpret`] holds besides the literals it is given: the
/// memories of the plan, its outputs and variables as literals, and the memory that interpreting
/// the largest step takes.
pub fn peak_bytes(plan: &Plan) -> u64 {
    let account = super::Account::sizes(plan);
    let given_back =
        account.outputs.saturating_add(account.parameters).saturating_add(account.state);
    account.total().saturating_add(given_back).saturating_add(largest(plan, &plan.steps))
}

/// Bytes of the operands and results of the largest step, as literals and in the form in which
/// they are interpreted.
fn largest(plan: &Plan, steps: &[Step]) -> u64 {
    let all = |arguments: &[Argument], kept: u64| {
        let of_value = |argument: &Argument| {
            let value = &plan.values[argument.value];
            let elements = value.bytes() / value.dtype.size() as u64;
            value.bytes().saturating_mul(2).saturating_add(elements.saturating_mul(kept))
        };
        arguments.iter().map(of_value).fold(0, u64::saturating_add)
    };
    let of_step = |step: &Step| match step {
        Step::Nest { arguments, .. } => all(arguments, IN_NESTS),
        Step::Call { arguments, .. } => all(arguments, IN_CALLS),
        Step::Copy { value, .. } => plan.values[*value].bytes(),
        _ => step.blocks().into_iter().map(|steps| largest(plan, steps)).max().unwrap_or(0),
    };
    steps.iter().map(of_step).max().unwrap_or(0)
}

/// Bytes per element in the nest interpreter: its bits, and one more that says whether it was
/// written.
const IN_NESTS: u64 = 9;
/// Bytes per element in the reference of a call: the number, the scalar and its error.
const IN_CALLS: u64 = 32;
