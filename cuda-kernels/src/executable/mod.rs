//! A plan on a GPU.
//!
//! Everything is allocated when the executable is made: the arena, and one allocation for constants, inputs and outputs together. Variables
//! belong to the session, which gives their addresses at each run, so that several plans (train, evaluate, predict) share them.
//!
//! A run copies the inputs in through pinned memory, runs the steps, and copies the outputs out. Where the plan is one straight line, the steps
//! are captured into a CUDA graph at the second run (the first one loads what the driver loads lazily, and finds what is wrong step by
//! step) and replayed from then on; if a variable has moved, the graph is updated.

mod machine;
mod products;

use crate::architecture::Architecture;
use crate::driver::blas::{Rules, Tuning};
use crate::driver::cache::Cache;
use crate::driver::{Address, Device, DeviceError, Download, Function, Graph, Memory, Part, Upload};
use crate::lowered::{Lowered, StepError, run};
use machine::Spaces;
use products::Products;
use wengert_core::plan::Plan;
use wengert_core::{Diagnostic, Result};

/// How a plan is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether the steps of a straight plan become a CUDA graph. The bits are the same either way.
    pub capture: bool,
    /// What products by cuBLASLt may differ in.
    pub rules: Rules,
    /// Algorithms that were measured before.
    pub tuning: Tuning,
    /// Whether products that `tuning` lacks are measured now, which may change bits.
    pub autotune: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { capture: true, rules: Rules::STRICT, tuning: Tuning::default(), autotune: false }
    }
}

/// A plan, ready to run on a GPU.
pub struct Executable {
    device: Device,
    lowered: Lowered,
    /// By the numbers of the kernels.
    functions: Vec<Function>,
    products: Products,
    arena: Memory,
    /// Constants, inputs, outputs.
    fixed: Memory,
    constants: Vec<Address>,
    inputs: Vec<Address>,
    outputs: Vec<Address>,
    upload: Upload,
    download: Download,
    capture: bool,
    /// Most operations of a run.
    limit: u64,
    runs: u64,
    /// The captured steps, and where the variables were.
    graph: Option<(Graph, Vec<Address>)>,
}

/// Where parts of an allocation begin: at a multiple of this.
const ALIGNMENT: u64 = 256;

/// The architecture whose kernels a device runs.
///
/// Errors: the device is too old.
pub fn architecture(device: &Device) -> Result<Architecture> {
    let (major, minor) = device.found().capability;
    Architecture::of_device(major, minor)
}

/// Offsets of values that lie one after another, and the end.
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

impl Executable {
    /// Makes a plan ready. What is measured for it is added to `options.tuning`.
    ///
    /// Errors: the plan is for another target, or breaks an invariant; the driver refuses a kernel; there is not enough memory.
    pub fn new(device: &Device, plan: &Plan, options: &mut Options) -> Result<Executable> {
        let architecture = architecture(device)?;
        let mut products = Products::new(device, options);
        let lowered = Lowered::new(plan, architecture, &mut |question| products.choose(question))?;
        options.tuning = products.tuning().clone();
        let functions = match lowered.kernels.is_empty() {
            true => Vec::new(),
            false => {
                let module = device.load_module(&lowered.ptx, lowered.architecture, &Cache::user())?;
                lowered.kernels.iter().map(|k| module.function(&k.name)).collect::<Result<_, _>>()?
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
        Ok(Executable {
            device: device.clone(),
            lowered,
            functions,
            products,
            arena,
            fixed,
            constants,
            inputs,
            outputs,
            upload: Upload::new(device, sent)?,
            download: Download::new(device, received)?,
            capture: options.capture,
            limit: u64::MAX,
            runs: 0,
            graph: None,
        })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.lowered.plan
    }

    /// Bytes of the device's memory that belong to it: arena, constants, inputs and outputs.
    pub fn bytes(&self) -> u64 {
        self.arena.bytes() + self.fixed.bytes()
    }

    /// Sets the most operations that a run may take ([`wengert_core::plan::work`]); there is no limit before.
    pub fn limit(&mut self, operations: u64) {
        self.limit = operations;
    }

    /// What was decided when the plan was loaded, a line each: who does each call and by which algorithm.
    pub fn decisions(&self) -> Vec<String> {
        let own = self
            .lowered
            .own
            .iter()
            .map(|(q, reason)| format!("{}: our kernels, since {reason}", q.call.name()));
        self.products.decisions().chain(own).collect()
    }

    /// Runs the plan once: `inputs` as bytes in the plan's order, each as long as its value; `variables` as addresses of as many bytes
    /// as they have. Gives the bytes of the outputs.
    ///
    /// Errors: the device fails; then variables are in an undefined state, and most often the device is lost for the process.
    pub fn run(&mut self, inputs: &[&[u8]], variables: &[Address]) -> Result<Vec<Vec<u8>>, StepError> {
        // Beyond every step: what happens around them.
        let outside = |error: Diagnostic| StepError { step: usize::MAX, error };
        let failed = |error: DeviceError| outside(error.into());
        self.check(inputs, variables).map_err(outside)?;
        self.send(inputs).map_err(failed)?;
        self.steps(variables)?;
        self.runs += 1;
        let parts =
            parts(&self.outputs, self.plan().outputs.iter().map(|o| self.plan().values[o.value].bytes()));
        self.download.request(&parts).map_err(failed)?;
        let received = self.download.take().map_err(failed)?.unwrap_or_default();
        let size = |bytes: u64| usize::try_from(bytes).expect("the buffer was allocated");
        let part = |p: &Part| received[size(p.offset)..size(p.offset + p.bytes)].to_vec();
        Ok(parts.iter().map(part).collect())
    }

    /// Puts the inputs into the stream.
    fn send(&mut self, inputs: &[&[u8]]) -> Result<(), DeviceError> {
        let parts = parts(&self.inputs, inputs.iter().map(|i| i.len() as u64));
        let mut filling = self.upload.begin()?;
        let buffer = filling.bytes();
        for (part, bytes) in parts.iter().zip(inputs) {
            let start = usize::try_from(part.offset).expect("the buffer was allocated");
            buffer[start..start + bytes.len()].copy_from_slice(bytes);
        }
        filling.send(&parts)
    }

    /// Puts the steps into the stream: one by one, or as a graph.
    fn steps(&mut self, variables: &[Address]) -> Result<(), StepError> {
        let outside = |error: DeviceError| StepError { step: usize::MAX, error: error.into() };
        if self.runs == 0 || !self.capture || !self.lowered.is_straight() {
            run(&self.lowered, &mut Spaces { executable: self, variables }, self.limit)?;
            // What a kernel did wrong shows here, near where it happened.
            return if self.runs == 0 { self.device.synchronise().map_err(outside) } else { Ok(()) };
        }
        if self.graph.as_ref().is_none_or(|(_, at)| at != variables) {
            let device = self.device.clone();
            let capture = device.begin_capture().map_err(outside)?;
            run(&self.lowered, &mut Spaces { executable: self, variables }, self.limit)?;
            self.graph = Some(match self.graph.take() {
                Some((mut graph, _)) => {
                    graph.update(capture).map_err(outside)?;
                    (graph, variables.to_vec())
                }
                None => (capture.finish().map_err(outside)?, variables.to_vec()),
            });
        }
        let (graph, _) = self.graph.as_ref().expect("it was just made");
        graph.replay_verified().map_err(outside)
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
                return Err(Diagnostic::new(format!("input `{name}` has {wanted} bytes, {given} are given")));
            }
        }
        // Kernels cannot be checked as they run, so an address that is not the session's must not reach them.
        for (variable, address) in plan.variables.iter().zip(variables) {
            let bytes = plan.values[variable.after].bytes();
            if bytes > 0 {
                self.device.within(&format!("running with variable `{}`", variable.name), *address, bytes)?;
            }
        }
        Ok(())
    }
}

/// Pieces of a pinned buffer, laid out like their addresses.
fn parts(addresses: &[Address], sizes: impl Iterator<Item = u64>) -> Vec<Part> {
    let sizes: Vec<u64> = sizes.collect();
    let (offsets, _) = offsets(sizes.iter().copied());
    let part = |((offset, address), bytes): ((u64, &Address), u64)| Part { offset, address: *address, bytes };
    offsets.into_iter().zip(addresses).zip(sizes).map(part).collect()
}

#[cfg(test)]
mod tests;
