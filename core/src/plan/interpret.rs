//! The plan interpreter: executes a plan on memories of bytes.
//!
//! It is the oracle of executors. It executes the steps as written, with their addresses: nests
//! by the nest interpreter, calls by their reference ([`crate::Call::reference`]). It shares the
//! walk over loops and branches with the executors ([`super::walk`]); the oracle of the walk is
//! the graph interpreter. Memories start with bytes that belong to no value, so reads of bytes
//! that were never written are visible. A nest that runs in place runs as the merged nest
//! ([`crate::nest::alias::in_place`]), in which the interpreter detects an element that is read
//! after it was written.

use super::print::StepText;
use super::resolve::{self, Place, Prepare, Resolver};
use super::walk::{Counters, Memories, Region, StepRunner};
use super::{Argument, Plan, Step, Value, verify};
use crate::allocation::reserved;
use crate::call::Call;
use crate::diagnostic::{Diagnostic, Result, ensure};
use crate::dtype::DType;
use crate::id::Id;
use crate::literal::Literal;
use crate::nest::{self, BufferId, BufferRole, Nest};
use crate::pitch::{self, PaddedRows};
use std::borrow::Cow;

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
    ensure!(
        plan.mesh.is_empty(),
        "plan @{} runs on the ranks of {}, and the interpreter of plans runs one", plan.function,
        plan.mesh;
        help "interpret the function on all its ranks, by `interpret::run_ranks`"
    );
    ensure!(
        inputs.len() == plan.inputs.len() && variables.len() == plan.variables.len(),
        "plan @{} has {} inputs and {} variables, {} and {} are given",
        plan.function,
        plan.inputs.len(),
        plan.variables.len(),
        inputs.len(),
        variables.len()
    );
    let resolved = Resolver::new(plan).resolve(&mut Uncompiled)?;
    let mut interpreter = Interpreter { plan, memories: begin(plan, inputs, variables)? };
    resolved.run(&mut resolved.counters(), &mut interpreter, limit)?;
    interpreter.end()
}

/// A nest or a call, interpreted as it stands in the plan.
pub(super) struct Interpreted<'p> {
    step: &'p Step,
    arguments: Vec<Place>,
    workspace: Option<Place>,
}

/// The interpreter's part of resolving a plan: nothing is compiled.
pub(super) struct Uncompiled;

impl<'p> Prepare<'p> for Uncompiled {
    type Kernel = Interpreted<'p>;

    fn prepare(
        &mut self,
        resolver: &Resolver<'p>,
        steps: &'p [Step],
        kernels: &mut Vec<Interpreted<'p>>,
    ) -> Result<usize> {
        let step = &steps[0];
        let (arguments, workspace) = (resolver.arguments(step), resolver.workspace(step));
        kernels.push(Interpreted { step, arguments, workspace });
        Ok(1)
    }
}

/// The memories at the beginning of a run.
fn begin(
    plan: &Plan,
    inputs: &[Literal],
    variables: &[Option<Literal>],
) -> Result<Memories<Vec<u8>>> {
    let mut memories = Memories { arena: fresh(plan.arena)?, ..Memories::default() };
    for (input, literal) in plan.inputs.iter().zip(inputs) {
        memories.inputs.push(given("input", &input.name, &plan.values[input.value], literal)?);
    }
    for output in &plan.outputs {
        memories.outputs.push(fresh(plan.values[output.value].bytes())?);
    }
    for (variable, literal) in plan.variables.iter().zip(variables) {
        let ty = Value {
            name: String::new(),
            dtype: variable.dtype,
            shape: variable.shape.clone(),
            pitch: None,
        };
        let wrong =
            |what: &str| Err(Diagnostic::new(format!("variable `{}` {what}", variable.name)));
        memories.variables.push(match (variable.before, literal) {
            (Some(_), Some(literal)) => given("variable", &variable.name, &ty, literal)?,
            (None, None) => fresh(ty.bytes())?,
            (Some(_), None) => return wrong("has no value"),
            (None, Some(_)) => return wrong("is made by the plan"),
        });
    }
    let constants = plan.constants.iter().map(|c| bytes_of(&c.literal));
    memories.constants = constants.collect::<Result<_>>()?;
    Ok(memories)
}

struct Interpreter<'p> {
    plan: &'p Plan,
    memories: Memories<Vec<u8>>,
}

impl<'p> StepRunner for Interpreter<'p> {
    type Kernel = Interpreted<'p>;
    type Error = Diagnostic;

    fn launch(&mut self, kernel: &Interpreted<'p>, counters: &Counters) -> Result<()> {
        let Interpreted { step, arguments, workspace } = kernel;
        let plan = self.plan;
        match step {
            Step::Nest { nest, .. } => {
                self.nest(&plan.nests[*nest], arguments, counters).map_err(|d| {
                    d.context(format!("plan @{}, `{}`", plan.function, StepText(plan, step)))
                })
            }
            Step::Call { call, .. } => self.call(call, arguments, workspace.as_ref(), counters),
            Step::Start { .. } | Step::Wait(_) => {
                unreachable!("a transfer needs a mesh (P17), and plans with one were refused")
            }
            _ => unreachable!("the walk executes all other steps"),
        }
    }

    fn copy(&mut self, from: Region, to: Region) -> Result<()> {
        let from = self.bytes(from);
        let mut copy = reserved(from.len())?;
        copy.extend_from_slice(from);
        self.bytes(to).copy_from_slice(&copy);
        Ok(())
    }

    fn read(&mut self, from: Region) -> Result<[u8; 8]> {
        let bytes = self.bytes(from);
        if let [byte] = bytes {
            // Memory that holds no value has no valid bool.
            Literal::from_bytes(DType::Bool, &[], &[*byte])?;
        }
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        Ok(word)
    }

    fn located(&self, _: Option<usize>, error: Diagnostic) -> Diagnostic {
        error
    }
}

impl Interpreter<'_> {
    fn end(&self) -> Result<Run> {
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

    fn bytes(&mut self, region: Region) -> &mut [u8] {
        let start = region.offset as usize;
        &mut self.memories[region.space][start..start + region.bytes as usize]
    }

    /// Stores a result. The padding between its rows keeps its contents.
    fn store(&mut self, literal: &Literal, rows: Option<PaddedRows>, region: Region) -> Result<()> {
        let dense = bytes_of(literal)?;
        let Some(rows) = rows else {
            let bytes = dense.len() as u64;
            self.bytes(Region { bytes, ..region }).copy_from_slice(&dense);
            return Ok(());
        };
        let size = literal.dtype().size();
        let memory = self.bytes(region).chunks_mut(rows.pitch * size);
        for (to, row) in memory.zip(dense.chunks((rows.extent * size).max(1))) {
            to[..row.len()].copy_from_slice(row);
        }
        Ok(())
    }

    fn nest(&mut self, nest: &Nest, places: &[Place], counters: &Counters) -> Result<()> {
        let pairs = resolve::in_place(places).into_iter();
        let pairs: Vec<_> = pairs.map(|(n, m)| (BufferId::new(n), BufferId::new(m))).collect();
        let merged = nest::alias::in_place(nest, &pairs).ok_or_else(|| {
            Diagnostic::new("operand and result of one address are of different types")
        })?;
        let mut inputs = Vec::new();
        for (place, (_, buffer)) in places.iter().zip(merged.parameters()) {
            if buffer.role != BufferRole::Out {
                let bytes = self.bytes(counters.region(place));
                let gathered = buffer.padded_rows().map(|of| dense(bytes, of, buffer.dtype));
                let bytes = gathered.transpose()?.map_or(Cow::Borrowed(&*bytes), Cow::Owned);
                inputs.push(Literal::from_bytes(buffer.dtype, &buffer.shape, &bytes)?);
            }
        }
        let outputs = nest::interpret(&merged, &inputs)?;
        let results = places.iter().zip(merged.parameters());
        let results = results.filter(|(place, _)| place.is_written());
        for ((place, (_, buffer)), output) in results.zip(&outputs) {
            self.store(output, buffer.padded_rows(), counters.region(place))?;
        }
        Ok(())
    }

    fn call(
        &mut self,
        call: &Call,
        places: &[Place],
        workspace: Option<&Place>,
        counters: &Counters,
    ) -> Result<()> {
        let (operands, results) = call.split(places);
        let types = call.operands();
        let operands = types.iter().zip(operands).map(|(ty, place)| {
            // An operand may be larger than the call says. References ignore its shape.
            let elements = place.bytes as usize / ty.dtype.size();
            let region = counters.region(place);
            Literal::from_bytes(ty.dtype, &[elements], self.bytes(region))
        });
        let operands = operands.collect::<Result<Vec<_>>>()?;
        if let Some(place) = workspace {
            self.bytes(counters.region(place)).fill(FRESH);
        }
        for (place, found) in results.iter().zip(call.references(&operands)?) {
            let found = found.literal();
            let rows = PaddedRows::of(found.shape(), call.pitch());
            self.store(&found, rows, counters.region(place))?;
        }
        Ok(())
    }
}

/// The bytes of a padded value without the padding.
///
/// Error: there is not enough memory.
fn dense(memory: &[u8], of: PaddedRows, dtype: DType) -> Result<Vec<u8>> {
    let mut dense = reserved(memory.len())?;
    pitch::rows(memory, of, dtype.size()).for_each(|row| dense.extend_from_slice(row));
    Ok(dense)
}

/// `bytes` bytes that belong to no value.
fn fresh(bytes: u64) -> Result<Vec<u8>> {
    let size = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut memory = reserved(size)?;
    memory.resize(size, FRESH);
    Ok(memory)
}

fn given(what: &str, name: &str, value: &Value, literal: &Literal) -> Result<Vec<u8>> {
    ensure!(
        literal.dtype() == value.dtype && literal.shape() == value.shape,
        "{what} `{name}` is {}{:?}, {} is given",
        value.dtype,
        value.shape,
        literal.ty()
    );
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
    account.total().saturating_add(given_back).saturating_add(largest(plan))
}

/// Bytes of the operands and results of the largest step, as literals and in the form in which
/// they are interpreted.
fn largest(plan: &Plan) -> u64 {
    let all = |arguments: &[Argument], kept: u64| {
        let of_value = |argument: &Argument| {
            let value = &plan.values[argument.value];
            value.bytes().saturating_mul(2).saturating_add(value.elements().saturating_mul(kept))
        };
        arguments.iter().map(of_value).fold(0, u64::saturating_add)
    };
    let mut most = 0;
    plan.visit(&mut |step| {
        most = most.max(match step {
            Step::Nest { arguments, .. } => all(arguments, IN_NESTS),
            Step::Call { arguments, .. } => all(arguments, IN_CALLS),
            Step::Copy { value, .. } => plan.values[*value].bytes(),
            _ => 0,
        });
    });
    most
}

/// Bytes per element in the nest interpreter: its bits, and one more that says whether it was
/// written.
const IN_NESTS: u64 = 9;
/// Bytes per element in the reference of a call: the number, the scalar and its error.
const IN_CALLS: u64 = 32;
