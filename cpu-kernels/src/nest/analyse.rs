//! Properties of a nest's registers under a schedule: whether all lanes are equal, the loop that
//! computes them, and their readers.

use super::address::VectorAxes;
use super::lower::{FlatNest, Op};
use super::schedule::{Schedule, plain};
use wengert_core::nest::{AxisId, BufferId, BufferRole, Reg};
use wengert_core::{DType, Id};

/// The properties of a register.
#[derive(Clone, Copy, Default)]
pub(super) struct Register {
    /// Whether all lanes are equal.
    pub uniform: bool,
    /// The number of lanes read of a uniform register.
    pub reach: Reach,
    /// The level of the loop that computes it: 0 before the first loop.
    pub level: usize,
    /// Phase and position of its definition, and of its last use.
    pub defined: (usize, usize),
    pub used: (usize, usize),
    /// Number of instructions and reductions that read it.
    pub uses: usize,
    /// Whether its block may be reused within the phase.
    pub reusable: bool,
}

/// Number of equal lanes that a uniform register needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) enum Reach {
    /// A chunk: it is read as one number, or by uniform instructions.
    #[default]
    Chunk,
    /// A turn: it is an operand of arithmetic on blocks.
    Turn,
    /// A block: it is copied, stored, scanned or reduced as one.
    Block,
}

/// A nest, its schedule, and its registers.
pub(super) struct Analysis<'a, 'n> {
    pub nest: &'a FlatNest<'n>,
    pub schedule: &'a Schedule,
    pub registers: Vec<Register>,
    /// For each phase and buffer, whether the phase stores to the buffer.
    stored: Vec<Vec<bool>>,
}

impl<'a, 'n> Analysis<'a, 'n> {
    /// Analyses a nest.
    pub fn new(nest: &'a FlatNest<'n>, schedule: &'a Schedule) -> Self {
        let registers = vec![Register::default(); nest.nest.registers.len()];
        let stored = nest.phases.iter().map(|phase| {
            let mut stored = vec![false; nest.nest.buffers.len()];
            phase
                .body
                .iter()
                .flat_map(Op::stored)
                .for_each(|place| stored[place.buffer.index()] = true);
            stored
        });
        let stored = stored.collect();
        let mut analysis = Analysis { nest, schedule, registers, stored };
        analysis.analyse();
        analysis
    }

    /// The parallel axes of the lanes, if lanes are rows.
    pub fn by_rows_of(&self) -> Option<&'a VectorAxes> {
        match self.schedule {
            Schedule::Rows(vector) => Some(vector),
            Schedule::Elements(_) => None,
        }
    }

    /// Whether lanes are rows.
    pub fn by_rows(&self) -> bool {
        self.by_rows_of().is_some()
    }

    /// The axes of a phase's lanes.
    pub fn vector(&self, phase: usize) -> &'a VectorAxes {
        match self.schedule {
            Schedule::Rows(vector) => vector,
            Schedule::Elements(vectors) => &vectors[phase],
        }
    }

    /// The inner axes of a phase that are not vectorised.
    pub fn loops(&self, phase: usize) -> Vec<AxisId> {
        plain(&self.nest.phases[phase].axes, self.vector(phase)).collect()
    }

    /// Number of the innermost level of a phase.
    pub fn innermost(&self, phase: usize) -> usize {
        self.loops(phase).len()
            + usize::from(!self.by_rows() && !self.vector(phase).axes.is_empty())
    }

    /// The dtype of a register.
    pub fn dtype(&self, reg: Reg) -> DType {
        self.nest.nest.registers[reg]
    }

    /// Finds uniform registers, levels, and reaches.
    fn analyse(&mut self) {
        for p in 0..self.nest.phases.len() {
            let phase = &self.nest.phases[p];
            for (at, op) in phase.body.iter().enumerate() {
                let (uniform, level) = self.nature(p, op);
                for reg in op.results() {
                    let register = &mut self.registers[reg.index()];
                    *register = Register {
                        uniform,
                        level,
                        defined: (p, at),
                        used: (p, at),
                        ..Register::default()
                    };
                }
                self.note_uses(op, (p, at), uniform);
            }
            let end = phase.body.len();
            for reduction in phase.reductions {
                for reg in &reduction.values {
                    let register = &mut self.registers[reg.index()];
                    register.used = (p, end);
                    register.reach = Reach::Block;
                    register.uses += 1;
                }
                for reg in &reduction.results {
                    self.registers[reg.index()] = Register {
                        uniform: !self.by_rows(),
                        defined: (p, end),
                        used: (p, end),
                        ..Register::default()
                    };
                }
            }
        }
        for reg in 0..self.registers.len() {
            let register = self.registers[reg];
            let (phase, at) = register.defined;
            let innermost = register.level == self.innermost(phase);
            let in_body = at < self.nest.phases[phase].body.len();
            self.registers[reg].reusable =
                !register.uniform && innermost && in_body && register.used.0 == phase;
        }
    }

    fn note_uses(&mut self, op: &Op<'_>, at: (usize, usize), uniform: bool) {
        let registers = &mut self.registers;
        let reach = match (uniform, op.is_arithmetic()) {
            (true, _) => Reach::Chunk,
            // Native code reads a uniform register once.
            (false, false) if matches!(op, Op::Group(_)) => Reach::Chunk,
            (false, true) => Reach::Turn,
            (false, false) => Reach::Block,
        };
        op.visit_registers(&mut |reg| {
            registers[reg.index()].used = at;
            registers[reg.index()].uses += 1;
        });
        for reg in op.operands() {
            let register = &mut registers[reg.index()];
            register.reach = register.reach.max(reach);
        }
        if let Op::Group(group) = op {
            group.fills().for_each(|reg| registers[reg.index()].reach = Reach::Block);
        }
    }

    /// Whether an instruction's lanes are all equal, and its level.
    pub fn nature(&self, p: usize, op: &Op<'_>) -> (bool, usize) {
        let innermost = self.innermost(p);
        if matches!(op, Op::Group(_)) {
            return (false, innermost);
        }
        let mut uniform = true;
        let mut level = 0;
        let mut meet = |reg: Reg| {
            let register = &self.registers[reg.index()];
            uniform &= register.uniform;
            if register.defined.0 == p {
                level = level.max(register.level);
            }
        };
        op.visit_registers(&mut meet);
        let vector = self.vector(p);
        let loops = self.loops(p);
        for sum in op.sums() {
            uniform &= vector.constant(sum);
            for (d, axis) in loops.iter().enumerate() {
                if sum.depends_on(*axis) {
                    level = level.max(d + 1);
                }
            }
            if !self.by_rows() && !vector.constant(sum) {
                level = innermost;
            }
        }
        if let Op::Load { place, .. } | Op::Store { place, .. } = op {
            // If lanes are rows, every lane has its own row storage.
            uniform &= !(self.is_row(place.buffer) && self.by_rows());
        }
        let innermost_only = match op {
            Op::Load { place, .. } => self.stores_to(p, place.buffer),
            Op::Store { .. } | Op::Prefix(_) => true,
            _ => false,
        };
        uniform &= !matches!(op, Op::Prefix(_));
        if innermost_only {
            level = innermost;
        }
        (uniform, level)
    }

    /// Whether a buffer is row storage.
    pub fn is_row(&self, buffer: BufferId) -> bool {
        self.nest.nest.buffers[buffer].role == BufferRole::Row
    }

    /// Whether a phase stores to a buffer.
    pub fn stores_to(&self, phase: usize, buffer: BufferId) -> bool {
        self.stored[phase][buffer.index()]
    }
}
