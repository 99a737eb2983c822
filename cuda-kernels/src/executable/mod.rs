//! A plan on a GPU.
//!
//! All memory is allocated when the executable is made: the arena, one allocation for constants,
//! inputs and outputs together, and areas for the copies of inputs and outputs. Variables belong to
//! the session, which passes their addresses to each run, so that several plans (train, evaluate,
//! predict) share them.
//!
//! **A run does not wait.** It copies the inputs in through pinned memory, enqueues the steps,
//! requests the outputs, and returns. [`Outputs::wait`] waits for the outputs. Later runs follow
//! in the stream. If there are inputs, the host may be two runs ahead of the GPU; then it waits
//! until the staging buffer that it fills next has been copied. So a fault may surface in a later
//! run, and its error names the run in which it surfaced.
//!
//! **Copies beside kernels.** Inputs of the next run and outputs of the last one are copied while
//! kernels run ([`crate::driver::Upload`]).
//!
//! **Capture.** The steps of a run are captured into a CUDA graph, which is replayed as one launch.
//! Loops and branches are in the graph too, as conditional nodes, where that is possible
//! (`control` has the conditions); else the host follows them, step by step. If a variable has
//! moved, the graph of a straight plan is updated, and one with conditional nodes is made anew. A
//! capture pays from the second run on, so the first run goes step by step, unless many runs are
//! expected ([`CudaExecutable::expect_repeats`]); then the first run is captured too. A library may
//! not load code during a capture, and some code is loaded at its first use: if the first capture
//! fails, that run goes step by step, with a warning, and the next one is captured. If a later
//! capture with conditional nodes fails, the host follows the plan from then on, with a warning.
//!
//! **Ranks.** A plan with collectives is loaded with this rank's place among the others
//! ([`Ranks`]). Its steps are not captured. A run still does not wait, and its exchanges end when
//! all ranks have come to them; where another rank does not come, the next wait of the host is an
//! error ([`crate::driver::nccl`]).

mod control;
mod products;
mod ranks;
mod run;

use crate::architecture::Architecture;
use crate::driver::blas::{Rules, Tuning};
use crate::driver::{
    Address, Device, DeviceError, Download, Function, Graph, Memory, Part, Received, Upload,
};
use crate::lowered::{LoweredPlan, StepError};
use control::Control;
pub use products::ByRule;
use products::Products;
use ranks::Collectives;
pub use ranks::Ranks;
use run::CudaRun;
use std::fmt;
use std::sync::Arc;
use wengert_core::plan::{Memories, Plan};
use wengert_core::{Diagnostic, Result, Verified};

/// How a plan is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether the steps of a plan become a CUDA graph. The bits are the same either way.
    pub capture: bool,
    /// Permitted differences of cuBLASLt products.
    pub rules: Rules,
    /// Measured algorithms.
    pub tuning: Tuning,
    /// Whether products that `tuning` lacks are measured now, which may change bits.
    pub autotune: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { capture: true, rules: Rules::STRICT, tuning: Tuning::default(), autotune: false }
    }
}

/// A plan, loaded on a GPU.
pub struct CudaExecutable {
    device: Device,
    lowered: LoweredPlan,
    /// Indexed by kernel number.
    functions: Vec<Function>,
    products: Products,
    arena: Memory,
    /// Constants, inputs, outputs.
    fixed: Memory,
    /// Those of `arena` and `fixed`, and the variables of the latest run.
    memories: Memories<Address>,
    upload: Upload,
    download: Download,
    capture: bool,
    control: Control,
    /// None if the plan has none.
    collectives: Option<Collectives>,
    /// Maximum number of operations of a run.
    limit: u64,
    /// Whether many runs are expected, so that the first is captured.
    repeats: bool,
    runs: u64,
    /// The captured steps, and the addresses of the variables in them.
    graph: Option<(Graph, Vec<Address>)>,
    /// The place of each output in a buffer of `download`.
    received: Arc<[Part]>,
}

/// The outputs of a run, which may still be going on.
pub struct Outputs {
    /// None if there are no outputs.
    received: Option<Received>,
    parts: Arc<[Part]>,
    run: Run,
}

/// A run, for messages.
#[derive(Clone)]
struct Run {
    function: Arc<str>,
    /// From 1.
    number: u64,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {} of @{}", self.number, self.function)
    }
}

impl Outputs {
    /// Waits until the run is over, and returns the bytes of each output in the plan's order.
    /// Returns at once if there are no outputs.
    ///
    /// Errors: the device fails; the error names the run.
    pub fn wait(&self) -> Result<Vec<&[u8]>, DeviceError> {
        let Some(received) = &self.received else { return Ok(Vec::new()) };
        let bytes = received.wait().map_err(|error| error.context(&self.run))?;
        Ok(self.parts.iter().map(|p| &bytes[size(p.offset)..size(p.offset + p.bytes)]).collect())
    }
}

impl fmt::Debug for Outputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "outputs of {}", self.run)
    }
}

/// Bytes of an allocation as `usize`.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("the buffer was allocated")
}

/// Alignment of the parts of an allocation.
const ALIGNMENT: u64 = 256;

/// The architecture whose kernels a device runs.
///
/// Errors: the device is older than every supported architecture.
pub fn architecture(device: &Device) -> Result<Architecture> {
    let (major, minor) = device.found().capability;
    Architecture::of_device(major, minor)
}

/// Offsets of consecutive values, and the end.
fn offsets(sizes: impl IntoIterator<Item = u64>) -> (Vec<u64>, u64) {
    let mut end = 0u64;
    let place = |bytes: u64| {
        let start = end;
        end = end.saturating_add(bytes.next_multiple_of(ALIGNMENT));
        start
    };
    let offsets = sizes.into_iter().map(place).collect();
    (offsets, end)
}

impl CudaExecutable {
    /// Loads a plan of one rank. Measurements made for it are added to `options.tuning`.
    ///
    /// Errors: the plan is for another target, breaks an invariant, or needs other ranks; the
    /// driver refuses a kernel; there is not enough memory.
    pub fn new(
        device: &Device,
        plan: &Verified<Plan>,
        options: &mut Options,
    ) -> Result<CudaExecutable> {
        CudaExecutable::load(device, plan, options, None)
    }

    /// [`new`](Self::new) as one of the ranks of the plan's mesh. All ranks load the same plans in
    /// the same order, and run them in the same order.
    ///
    /// Errors: as of [`new`](Self::new); `ranks` lacks a group.
    pub fn among(
        device: &Device,
        plan: &Verified<Plan>,
        options: &mut Options,
        ranks: &Ranks,
    ) -> Result<CudaExecutable> {
        CudaExecutable::load(device, plan, options, Some(ranks))
    }

    fn load(
        device: &Device,
        plan: &Verified<Plan>,
        options: &mut Options,
        ranks: Option<&Ranks>,
    ) -> Result<CudaExecutable> {
        let architecture = architecture(device)?;
        let mut products = Products::new(device, options);
        let lowered = LoweredPlan::new(plan, architecture, &mut products)?;
        options.tuning = products.tuning().clone();
        let functions = match lowered.kernels.is_empty() {
            true => Vec::new(),
            false => {
                let module = device.load_module(&lowered.ptx, lowered.architecture)?;
                lowered
                    .kernels
                    .iter()
                    .map(|k| module.function(&k.name))
                    .collect::<Result<_, _>>()?
            }
        };
        let value = |v| plan.values[v].bytes();
        let name = &plan.function;
        let (constants, end) = offsets(plan.constants.iter().map(|c| value(c.value)));
        let (inputs, sent) = offsets(plan.inputs.iter().map(|i| value(i.value)));
        let (outputs, received) = offsets(plan.outputs.iter().map(|o| value(o.value)));
        let total = end.saturating_add(sent).saturating_add(received);
        let fixed = device.allocate(total, &format!("constants, inputs and outputs of @{name}"))?;
        let arena = device.allocate(plan.arena, &format!("the arena of @{name}"))?;
        let at = |start: u64, offsets: Vec<u64>| -> Vec<Address> {
            offsets.into_iter().map(|offset| fixed.address().offset(start + offset)).collect()
        };
        let (constants, inputs) = (at(0, constants), at(end, inputs));
        let outputs = at(end + sent, outputs);
        for (constant, address) in plan.constants.iter().zip(&constants) {
            device.write(*address, &constant.literal.to_bytes())?;
        }
        let sizes = plan.outputs.iter().map(|o| value(o.value));
        let parts = parts(&outputs, sizes).into();
        let collectives = Collectives::new(device, &lowered, ranks)?;
        let not_captured = match (options.capture, lowered.exchanges) {
            (true, 0) => None,
            (true, _) => Some("its ranks exchange data"),
            (false, _) => Some("capture is off"),
        };
        let control = Control::choose(device, &lowered, architecture, not_captured)?;
        Ok(CudaExecutable {
            device: device.clone(),
            lowered,
            functions,
            products,
            memories: Memories {
                arena: arena.address(),
                inputs,
                outputs,
                variables: Vec::new(),
                constants,
            },
            arena,
            fixed,
            upload: Upload::new(device, sent)?,
            download: Download::new(device, received)?,
            capture: not_captured.is_none(),
            control,
            collectives,
            limit: u64::MAX,
            repeats: false,
            runs: 0,
            graph: None,
            received: parts,
        })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.lowered.plan
    }

    /// Bytes of device memory that it owns: the arena, constants, inputs and outputs, the areas for
    /// copies of these two, a word for each loop that the device executes, and this rank's
    /// positions in its groups.
    pub fn bytes(&self) -> u64 {
        let copies = self.upload.device_bytes() + self.download.device_bytes();
        let positions = self.collectives.as_ref().map_or(0, Collectives::bytes);
        self.arena.bytes() + self.fixed.bytes() + copies + self.control.bytes() + positions
    }

    /// Sets the maximum number of operations of a run ([`wengert_core::plan::work`]); by default
    /// there is none.
    pub fn limit(&mut self, operations: u64) {
        self.limit = operations;
    }

    /// The decisions made when the plan was loaded, one line each: the implementation and
    /// algorithm of each call, where loops and branches are executed, and how ranks exchange data.
    pub fn decisions(&self) -> Vec<String> {
        let own = self
            .lowered
            .own
            .iter()
            .map(|(q, reason)| format!("{}: our kernels, since {reason}", q.call.name()));
        let control = self.control.decision(self.limit);
        let exchanges = self.collectives.as_ref().map(Collectives::decision);
        self.products.decisions().chain(own).chain(control).chain(exchanges).collect()
    }

    /// The collectives, for their commands.
    fn collectives(&self) -> &Collectives {
        self.collectives.as_ref().expect("a plan with collectives is loaded with its ranks")
    }

    /// Announces that many runs follow: the first run is captured, rather than the second.
    pub fn expect_repeats(&mut self) {
        self.repeats = true;
    }

    /// Starts a run and does not wait for it. `inputs` are bytes in the plan's order, each as
    /// long as its value. `variables` are addresses of allocations of this device of the
    /// variables' sizes.
    ///
    /// Errors: the device fails, in this run or an earlier one. Then the variables' values are
    /// undefined, and most often the device is lost for the process.
    pub fn run(&mut self, inputs: &[&[u8]], variables: &[Address]) -> Result<Outputs, StepError> {
        let run = Run { function: self.plan().function.as_str().into(), number: self.runs + 1 };
        // Beyond every step: the work before and after the steps.
        let outside = |error: Diagnostic| StepError { step: usize::MAX, error };
        let failed = |error: DeviceError| outside(error.context(&run).into());
        self.check(inputs, variables).map_err(outside)?;
        if !inputs.is_empty() {
            self.send(inputs).map_err(failed)?;
        }
        self.memories.variables = variables.to_vec();
        self.steps(&run)?;
        self.runs += 1;
        let received = match self.received.is_empty() {
            true => None,
            false => Some(self.download.request(&whole(&self.received)).map_err(failed)?),
        };
        Ok(Outputs { received, parts: self.received.clone(), run })
    }

    /// Enqueues the copies of the inputs.
    fn send(&mut self, inputs: &[&[u8]]) -> Result<(), DeviceError> {
        let parts = parts(&self.memories.inputs, inputs.iter().map(|i| i.len() as u64));
        let mut filling = self.upload.begin()?;
        let buffer = filling.bytes();
        for (part, bytes) in parts.iter().zip(inputs) {
            let start = size(part.offset);
            buffer[start..start + bytes.len()].copy_from_slice(bytes);
        }
        filling.send(&whole(&parts))
    }

    /// Enqueues the steps, one by one or as a graph.
    fn steps(&mut self, of: &Run) -> Result<(), StepError> {
        let outside =
            |error: DeviceError| StepError { step: usize::MAX, error: error.context(of).into() };
        let is_first = self.runs == 0;
        let in_graph = match &self.control {
            Control::Straight => None,
            Control::Device(graph) if graph.exceeds(self.limit).is_none() => Some(graph),
            Control::Device(_) | Control::Host(_) => return self.walk(),
        };
        if !self.capture || (is_first && !self.repeats) {
            return self.walk();
        }
        let has_control = in_graph.is_some();
        if self.graph.as_ref().is_none_or(|(_, at)| *at != self.memories.variables) {
            match self.captured(outside) {
                Ok(graph) => {
                    self.graph = Some((graph, self.memories.variables.clone()));
                }
                // Nothing has run yet. If the error is not due to the capture, running step by
                // step finds the step.
                Err(failure) if is_first => {
                    tracing::warn!(
                        error = %failure.error,
                        "{of} is not captured: it runs step by step"
                    );
                    return self.walk();
                }
                // As above, whatever the reason.
                Err(failure) if has_control => {
                    let why = format!("its capture failed: {}", failure.error.message);
                    tracing::warn!(error = %failure.error, "{of}: the host follows its loops");
                    self.control = Control::Host(why);
                    self.graph = None;
                    return self.walk();
                }
                Err(failure) => return Err(failure),
            }
        }
        let (graph, _) = self.graph.as_ref().expect("it was just made");
        graph.replay_verified().map_err(outside)
    }

    /// Enqueues the steps one by one.
    fn walk(&self) -> Result<(), StepError> {
        let mut run = CudaRun { executable: self, memories: &self.memories };
        self.lowered.run(&mut run, self.limit)
    }

    /// The steps as a graph: newly captured, or the existing one with updated addresses.
    fn captured(&mut self, outside: impl Fn(DeviceError) -> StepError) -> Result<Graph, StepError> {
        if let Control::Device(graph) = &self.control {
            return graph.capture(self, outside);
        }
        let device = self.device.clone();
        let capture = device.begin_capture().map_err(&outside)?;
        self.walk()?;
        match self.graph.take() {
            Some((mut graph, _)) => graph.update(capture).map(|()| graph).map_err(outside),
            None => capture.finish().map_err(outside),
        }
    }

    fn check(&self, inputs: &[&[u8]], variables: &[Address]) -> Result<()> {
        let plan = self.plan();
        if inputs.len() != plan.inputs.len() || variables.len() != plan.variables.len() {
            let (i, v) = (plan.inputs.len(), plan.variables.len());
            let message = format!(
                "{i} inputs and {v} variables wanted, {} and {} given",
                inputs.len(),
                variables.len()
            );
            return Err(Diagnostic::new(message));
        }
        for (input, bytes) in plan.inputs.iter().zip(inputs) {
            let wanted = plan.values[input.value].bytes();
            if bytes.len() as u64 != wanted {
                let (name, given) = (&input.name, bytes.len());
                return Err(Diagnostic::new(format!(
                    "input `{name}` has {wanted} bytes, {given} are given"
                )));
            }
        }
        // Running kernels cannot be checked, so an address that is not the session's must not
        // reach them.
        for (variable, address) in plan.variables.iter().zip(variables) {
            let bytes = plan.values[variable.after].bytes();
            if bytes > 0 {
                self.device.within(
                    &format!("running with variable `{}`", variable.name),
                    *address,
                    bytes,
                )?;
            }
        }
        Ok(())
    }
}

/// Ranges of a pinned buffer, laid out like the addresses.
fn parts(addresses: &[Address], sizes: impl Iterator<Item = u64>) -> Vec<Part> {
    let sizes: Vec<u64> = sizes.collect();
    let (offsets, _) = offsets(sizes.iter().copied());
    let part = |((offset, address), bytes): ((u64, &Address), u64)| Part {
        offset,
        address: *address,
        bytes,
    };
    offsets.into_iter().zip(addresses).zip(sizes).map(part).collect()
}

/// One range for neighbouring parts that [`parts`] made, padding included; none for no bytes.
fn whole(parts: &[Part]) -> Vec<Part> {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return Vec::new() };
    vec![Part { offset: 0, address: first.address, bytes: last.offset + last.bytes }]
}

#[cfg(test)]
mod tests;
