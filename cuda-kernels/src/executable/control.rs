//! Where the loops and branches of a plan are executed: by the device or by the host.
//!
//! A straight plan has none, and is captured in one piece. The loops and branches of another plan
//! become conditional nodes of one CUDA graph ([`crate::driver::ControlCapture`]), where that is
//! possible. Otherwise the host follows them, and waits for the device to read each condition. The
//! choice is made when the plan is loaded, and [`Control::decision`] has it in words.
//!
//! **Order.** The kernel that sets a condition is captured where the host would read the scalar:
//! a loop's condition before the loop and at the end of its body, a branch's selector before the
//! branch. All IF nodes of a branch have their conditions set before the first of its arms, which
//! may overwrite the selector.
//!
//! **Endless loops.** Each loop of a plan has a limit, and the device counts its iterations in a
//! word of memory. The limit on the operations of a run is not counted by the device: a run whose
//! plan may exceed it is followed by the host, which stops it at the same step as ever.

use super::CudaExecutable;
use super::run::CudaRun;
use crate::architecture::Architecture;
use crate::condition::scalar_bytes;
use crate::driver::{
    Address, Condition, Conditional, Conditionals, ControlCapture, Device, DeviceError, Graph,
    Memory,
};
use crate::lowered::{Command, LoweredPlan, StepError};
use std::sync::Arc;
use wengert_core::plan::record::{Arm, Body, LoopPlace};
use wengert_core::plan::{Counters, Recording, Region, Repetition, StepRecorder, StepRunner};
use wengert_core::{Diagnostic, Result};

/// Where the loops and branches of a plan are executed.
pub(super) enum Control {
    /// It has none, or constant loops that are unrolled in the capture.
    Straight,
    /// By the device.
    Device(Box<InGraph>),
    /// By the host, for this reason.
    Host(String),
}

/// Loops and branches in a CUDA graph.
pub(super) struct InGraph {
    recording: Recording,
    conditionals: Arc<Conditionals>,
    /// A word for each loop: the iterations that are left.
    left: Memory,
}

/// Bytes of the word of a loop.
const WORD: u64 = 8;

impl Control {
    /// The choice for a plan that is being loaded. `not_captured` is the reason why no run of it is
    /// captured, if there is one.
    ///
    /// Errors: there is not enough memory for the words of its loops. (Whatever else is refused is
    /// the reason why the host follows the plan.)
    pub fn choose(
        device: &Device,
        lowered: &LoweredPlan,
        architecture: Architecture,
        not_captured: Option<&str>,
    ) -> Result<Control> {
        if lowered.is_straight() {
            return Ok(Control::Straight);
        }
        if let Some(why) = not_captured {
            return Ok(Control::Host(why.into()));
        }
        let recording = match lowered.recording() {
            Ok(recording) => recording,
            Err(why) => return Ok(Control::Host(why.to_string())),
        };
        let conditionals = match device.conditionals(architecture) {
            Ok(conditionals) => conditionals,
            // Nothing works on a device that is lost, so that is no choice.
            Err(error) if error.is_sticky() => return Err(error.into()),
            Err(error) => return Ok(Control::Host(Diagnostic::from(error).message)),
        };
        let bytes = WORD * lowered.resolved.loops() as u64;
        let left = device.allocate(bytes, "the counters of loops")?;
        Ok(Control::Device(Box::new(InGraph { recording, conditionals, left })))
    }

    /// The choice in words, for a run of at most `limit` operations; `None` for a straight plan.
    pub fn decision(&self, limit: u64) -> Option<String> {
        match self {
            Control::Straight => None,
            Control::Host(why) => {
                Some(format!("loops and branches: followed by the host, since {why}"))
            }
            Control::Device(graph) => Some(match graph.exceeds(limit) {
                Some(why) => format!("loops and branches: followed by the host, since {why}"),
                None => {
                    let Recording { loops, branches, length, .. } = graph.recording;
                    let nodes = match graph.conditionals.has_switch {
                        true => "SWITCH",
                        false => "IF",
                    };
                    format!(
                        "loops and branches: in the CUDA graph, {loops} WHILE nodes and {branches} \
                         branches ({nodes} nodes) among {length} kernels and copies"
                    )
                }
            }),
        }
    }

    /// Bytes of device memory.
    pub fn bytes(&self) -> u64 {
        match self {
            Control::Device(graph) => graph.left.bytes(),
            _ => 0,
        }
    }
}

impl InGraph {
    /// Why a run of at most `limit` operations is followed by the host; `None` if it is not.
    pub fn exceeds(&self, limit: u64) -> Option<String> {
        let most = self.recording.most;
        // As in an allowance, the largest number means no limit.
        (limit != u64::MAX && most > limit).then(|| {
            let most = if most == u64::MAX { "2^64".into() } else { most.to_string() };
            format!(
                "a run may take {most} operations, its limit is {limit}, and the device does not \
                 count them: give the loops smaller limits, or raise that of the run"
            )
        })
    }

    /// Captures the steps of a run.
    ///
    /// Errors: those of the steps, and of the driver.
    pub fn capture(
        &self,
        executable: &CudaExecutable,
        outside: impl Fn(DeviceError) -> StepError,
    ) -> Result<Graph, StepError> {
        let CudaExecutable { device, lowered, memories, .. } = executable;
        let capture = device.begin_control_capture(&self.conditionals).map_err(&outside)?;
        let run = CudaRun { executable, memories };
        let mut recorder = Recorder { run, graph: self, capture };
        lowered.resolved.record(&self.recording, &mut recorder)?;
        recorder.capture.finish().map_err(outside)
    }
}

/// The recording of a run as a CUDA graph.
struct Recorder<'a> {
    run: CudaRun<'a>,
    graph: &'a InGraph,
    capture: ControlCapture<'a>,
}

impl Recorder<'_> {
    fn address(&self, region: Region) -> u64 {
        self.run.memories[region.space].offset(region.offset).0
    }

    /// The word of a loop.
    fn word(&self, counter: usize) -> u64 {
        Address::offset(self.graph.left.address(), WORD * counter as u64).0
    }

    /// Adds the step to an error of the driver.
    fn at(&self, step: usize, error: DeviceError) -> StepError {
        self.run.located(Some(step), error.into())
    }

    /// The nodes of a branch, each with the arms that are its bodies. Their conditions are set.
    fn branch_nodes(
        &mut self,
        selector: Region,
        arms: usize,
    ) -> Result<Vec<(Conditional, Condition, Vec<usize>)>, DeviceError> {
        let (at, bytes) = (self.address(selector), scalar_bytes(selector.bytes));
        let last = arms as u64 - 1;
        if self.graph.conditionals.has_switch {
            let condition = self.capture.condition()?;
            self.capture.set(&format!("choose_{bytes}"), condition, &[at, last])?;
            let kind = Conditional::Switch(arms as u32);
            return Ok(vec![(kind, condition, (0..arms).collect())]);
        }
        let mut nodes = Vec::new();
        for arm in 0..arms {
            let condition = self.capture.condition()?;
            let arguments = [at, last, arm as u64];
            self.capture.set(&format!("equals_{bytes}"), condition, &arguments)?;
            nodes.push((Conditional::If, condition, vec![arm]));
        }
        Ok(nodes)
    }
}

impl StepRunner for Recorder<'_> {
    type Kernel = Command;
    type Error = StepError;

    fn launch(&mut self, command: &Command, counters: &Counters) -> Result<()> {
        self.run.launch(command, counters)
    }

    fn copy(&mut self, from: Region, to: Region) -> Result<()> {
        self.run.copy(from, to)
    }

    fn read(&mut self, _: Region) -> Result<[u8; 8]> {
        unreachable!("a recording reads no scalars on the host")
    }

    fn located(&self, step: Option<usize>, error: Diagnostic) -> StepError {
        self.run.located(step, error)
    }
}

impl StepRecorder for Recorder<'_> {
    fn repeat(
        &mut self,
        LoopPlace { step, counter }: LoopPlace,
        repetition: Repetition,
        body: &mut Body<'_, Self>,
    ) -> Result<(), StepError> {
        let word = self.word(counter);
        let (begin, first, next, again) = match repetition {
            Repetition::Times(times) => {
                ("begin_times".to_string(), vec![word, times], "next_count", vec![word])
            }
            Repetition::Count { count, limit } => {
                let begin = format!("begin_count_{}", scalar_bytes(count.bytes));
                let at = self.address(count);
                (begin, vec![at, word, limit], "next_count", vec![word])
            }
            Repetition::While { condition, limit } => {
                let at = self.address(condition);
                ("begin_while".to_string(), vec![at, word, limit], "next_while", vec![at, word])
            }
        };
        let capture = &mut self.capture;
        let opened = capture.condition().and_then(|condition| {
            capture.set(&begin, condition, &first)?;
            let node = capture.open(Conditional::While, condition)?;
            capture.enter(&node, 0)?;
            Ok((condition, node))
        });
        let (condition, node) = opened.map_err(|error| self.at(step, error))?;
        body(self)?;
        let capture = &mut self.capture;
        let closed = capture
            .set(next, condition, &again)
            .and_then(|()| capture.leave())
            .and_then(|()| capture.close(node));
        closed.map_err(|error| self.at(step, error))
    }

    fn branch(
        &mut self,
        step: usize,
        selector: Region,
        arms: usize,
        arm: &mut Arm<'_, Self>,
    ) -> Result<(), StepError> {
        let nodes = self.branch_nodes(selector, arms).map_err(|error| self.at(step, error))?;
        for (kind, condition, bodies) in nodes {
            let opened = self.capture.open(kind, condition);
            let node = opened.map_err(|error| self.at(step, error))?;
            for (body, number) in bodies.into_iter().enumerate() {
                let entered = self.capture.enter(&node, body);
                entered.map_err(|error| self.at(step, error))?;
                arm(self, number)?;
                let left = self.capture.leave();
                left.map_err(|error| self.at(step, error))?;
            }
            let closed = self.capture.close(node);
            closed.map_err(|error| self.at(step, error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
