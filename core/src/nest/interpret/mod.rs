//! The nest interpreter: executes a nest, bit for bit.
//!
//! It is the oracle of every back end, and of the verifier. It runs rows, phases and iterations
//! in order, follows each [`Tree`](super::Tree) as documented, and relies on no proof about
//! memory. Every property that [`verify`](super::verify()) claims (or cannot prove) is checked on
//! every access: bounds, initialisation, a single write to each element, no reading across
//! iterations.
//!
//! For speed a nest is first resolved: registers to slots, instructions to functions of bits,
//! index expressions to flat sums.

mod resolve;
mod shadow;

use super::parse::Places;
use super::print::InstrText;
use super::verify::verify_structure;
use super::{BufferRole, Nest};
use crate::diagnostic::{Diagnostic, Result, ensure};
use crate::id::Id;
use crate::literal::Literal;
use resolve::{Body, Program, ReduceStep, Step};
use shadow::{Memory, Now};
use std::collections::BTreeMap;

/// Runs a nest on its `in` and `inout` parameters, in order. Returns its `out` and `inout`
/// parameters, in order.
///
/// Errors: the nest is malformed (N1 to N13), inputs do not fit, or an access violates the memory
/// rules at run time.
pub fn interpret(nest: &Nest, inputs: &[Literal]) -> Result<Vec<Literal>> {
    verify_structure(nest, &Places::default())?;
    let mut inputs = inputs.iter();
    let mut memories = Vec::new();
    for (_, buffer) in nest.buffers.iter() {
        let input = match buffer.role {
            BufferRole::In | BufferRole::InOut => Some(inputs.next().ok_or_else(|| {
                Diagnostic::new(format!(
                    "nest @{}: no input is given for `%{}`",
                    nest.name, buffer.name
                ))
            })?),
            BufferRole::Out | BufferRole::Row => None,
        };
        memories.push(
            Memory::new(buffer, input).map_err(|d| d.context(format!("nest @{}", nest.name)))?,
        );
    }
    ensure!(inputs.next().is_none(), "nest @{}: more inputs than it has", nest.name);
    let program = Program::new(nest);
    let mut machine = NestInterpreter {
        memories,
        axes: vec![0; nest.axes.len()],
        registers: vec![0; nest.registers.len().max(1)],
        now: Now { row: 0, epoch: 0, iteration: 0 },
        band: program.band,
        totals: BTreeMap::new(),
    };
    machine.rows(nest, &program)?;
    machine.memories.into_iter().filter_map(|m| m.into_literal(nest)).collect()
}

struct NestInterpreter<'p> {
    memories: Vec<Memory>,
    /// Counters of the axes.
    axes: Vec<i64>,
    /// Bits of the registers.
    registers: Vec<u64>,
    now: Now,
    /// The axis of the rows of a band, with the last of them.
    band: Option<(usize, i64)>,
    /// The totals of the current band, by buffer and element.
    totals: BTreeMap<(usize, usize), Reducer<'p>>,
}

/// Position of an error in a run.
struct Fault {
    phase: usize,
    step: usize,
    message: String,
}

impl<'p> NestInterpreter<'p> {
    fn rows(&mut self, nest: &Nest, program: &'p Program) -> Result<()> {
        if program.parallel.iter().any(|(_, extent)| *extent == 0) {
            return Ok(());
        }
        loop {
            for (p, body) in program.phases.iter().enumerate() {
                self.now.epoch += 1;
                self.phase(body).map_err(|(step, message)| {
                    self.describe(nest, Fault { phase: p, step, message })
                })?;
            }
            self.now.row += 1;
            if !advance(&mut self.axes, &program.parallel, None) {
                return Ok(());
            }
        }
    }

    fn phase(&mut self, body: &'p Body) -> std::result::Result<(), (usize, String)> {
        let mut reducers: Vec<Reducer> = body.reductions.iter().map(Reducer::new).collect();
        let mut states: Vec<Vec<u64>> = body.prefixes.iter().map(|p| p.identity.clone()).collect();
        if body.axes.iter().all(|(_, extent)| *extent > 0) {
            let reversed = body.reverse.then(|| body.axes.len() - 1);
            for (n, (axis, extent)) in body.axes.iter().enumerate() {
                self.axes[*axis] = if reversed == Some(n) { extent - 1 } else { 0 };
            }
            let mut in_line = 0;
            loop {
                self.now.iteration += 1;
                for (n, step) in body.steps.iter().enumerate() {
                    self.step(step, &mut states).map_err(|message| (n, message))?;
                }
                for reducer in &mut reducers {
                    reducer.push(&self.registers);
                }
                if !advance(&mut self.axes, &body.axes, reversed) {
                    break;
                }
                in_line += 1;
                if in_line == body.line {
                    in_line = 0;
                    for (state, prefix) in states.iter_mut().zip(&body.prefixes) {
                        state.copy_from_slice(&prefix.identity);
                    }
                }
            }
        }
        for reducer in reducers {
            reducer.finish(&mut self.registers);
        }
        Ok(())
    }

    fn step(&mut self, step: &'p Step, states: &mut [Vec<u64>]) -> std::result::Result<(), String> {
        match step {
            Step::Scalar { result, function, operands: [x, y, z] } => {
                let r = &self.registers;
                self.registers[*result] = function([r[*x], r[*y], r[*z]]);
            }
            Step::Const { result, bits } => self.registers[*result] = *bits,
            Step::Index { result, value, mask } => {
                self.registers[*result] = value.evaluate(&self.axes, &self.registers) as u64 & mask;
            }
            Step::Test { result, guards } => {
                self.registers[*result] =
                    guards.iter().all(|g| g.holds(&self.axes, &self.registers)).into();
            }
            Step::Load { result, access, fill } => {
                let holds = access.guards.iter().all(|g| g.holds(&self.axes, &self.registers));
                self.registers[*result] = match fill {
                    Some(fill) if !holds => self.registers[*fill],
                    _ => {
                        let memory = &mut self.memories[access.buffer];
                        let at = memory.locate(access, &self.axes, &self.registers)?;
                        memory.load(at, self.now)?
                    }
                };
            }
            Step::Store { access, value } => {
                if access.guards.iter().all(|g| g.holds(&self.axes, &self.registers)) {
                    let memory = &mut self.memories[access.buffer];
                    let at = memory.locate(access, &self.axes, &self.registers)?;
                    memory.store(at, self.registers[*value], self.now)?;
                }
            }
            Step::Total { access, reduce } => {
                let memory = &mut self.memories[access.buffer];
                let at = memory.locate(access, &self.axes, &self.registers)?;
                let key = (access.buffer, at);
                let total = self.totals.entry(key).or_insert_with(|| Reducer::new(reduce));
                total.push(&self.registers);
                let is_last = self.band.is_some_and(|(axis, last)| self.axes[axis] == last);
                if is_last && let Some(total) = self.totals.remove(&key) {
                    memory.store(at, total.total()[0], self.now)?;
                }
            }
            Step::Prefix { results, values, state, combiner } => {
                let state = &mut states[*state];
                combiner.combine(state, |k| self.registers[values[k]]);
                for (result, value) in results.iter().zip(state) {
                    self.registers[*result] = *value;
                }
            }
        }
        Ok(())
    }

    /// The error with its instruction and counters.
    fn describe(&self, nest: &Nest, fault: Fault) -> Diagnostic {
        let phase = &nest.phases[fault.phase];
        let counters: Vec<String> = nest
            .parallel
            .iter()
            .chain(&phase.axes)
            .map(|a| format!("{}={}", nest.axes[*a].name, self.axes[a.index()]))
            .collect();
        let text = InstrText(nest, &phase.body[fault.step]);
        Diagnostic::new(format!(
            "nest @{}, phase {}, `{text}` at [{}]: {}",
            nest.name,
            fault.phase,
            counters.join(", "),
            fault.message
        ))
    }
}

/// Steps counters like an odometer, the last fastest. False when all are back at the start. The
/// axis at position `reversed` counts down.
fn advance(counters: &mut [i64], axes: &[(usize, i64)], reversed: Option<usize>) -> bool {
    for (n, (axis, extent)) in axes.iter().enumerate().rev() {
        let counter = &mut counters[*axis];
        if reversed == Some(n) {
            *counter -= 1;
            if *counter >= 0 {
                return true;
            }
            *counter = extent - 1;
        } else {
            *counter += 1;
            if *counter < *extent {
                return true;
            }
            *counter = 0;
        }
    }
    false
}

/// A reduction in progress; see [`super::Tree`].
struct Reducer<'a> {
    step: &'a ReduceStep,
    /// Tuples of all lanes, concatenated.
    lanes: Vec<u64>,
    /// Elements in the current block.
    filled: usize,
    total: Option<Vec<u64>>,
}

impl<'a> Reducer<'a> {
    fn new(step: &'a ReduceStep) -> Self {
        let lanes = step.combiner.identity.repeat(step.lanes);
        Reducer { step, lanes, filled: 0, total: None }
    }

    fn push(&mut self, registers: &[u64]) {
        if self.step.block > 0 && self.filled == self.step.block {
            self.close();
        }
        let width = self.step.values.len();
        let lane = (self.filled % self.step.lanes) * width;
        let values = &self.step.values;
        self.step.combiner.combine(&mut self.lanes[lane..lane + width], |k| registers[values[k]]);
        self.filled += 1;
    }

    /// Ends a block: combines lanes in halves, then combines the block into the total.
    fn close(&mut self) {
        let (width, combiner) = (self.step.values.len(), &self.step.combiner);
        let mut half = self.step.lanes / 2;
        while half > 0 {
            let (low, high) = self.lanes.split_at_mut(half * width);
            for (a, b) in low.chunks_exact_mut(width).zip(high.chunks_exact(width)) {
                combiner.combine(a, |k| b[k]);
            }
            half /= 2;
        }
        let block = &self.lanes[..width];
        match &mut self.total {
            Some(total) => combiner.combine(total, |k| block[k]),
            None => self.total = Some(block.to_vec()),
        }
        self.filled = 0;
        for lane in self.lanes.chunks_exact_mut(width) {
            lane.copy_from_slice(&combiner.identity);
        }
    }

    fn finish(self, registers: &mut [u64]) {
        let results = &self.step.results;
        for (result, value) in results.iter().zip(self.total()) {
            registers[*result] = value;
        }
    }

    /// The tuple of all elements so far.
    fn total(mut self) -> Vec<u64> {
        if self.filled > 0 {
            self.close();
        }
        self.total.unwrap_or_else(|| self.step.combiner.identity.clone())
    }
}
