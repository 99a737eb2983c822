//! What is known of a nest's registers under a schedule: which are the same in all lanes, in which loop each is computed, and
//! who reads it.

use super::address::VectorAxes;
use super::lower::{Lowered, Op};
use super::schedule::{Schedule, plain};
use wengert_core::nest::{AxisId, BufferId, BufferRole, Reg};
use wengert_core::{DType, Id};

/// What is known of a register.
#[derive(Clone, Copy, Default)]
pub(super) struct Register {
    /// All lanes are the same.
    pub uniform: bool,
    /// How much of a uniform register is read.
    pub reach: Reach,
    /// The loop it is computed in: 0 before the first.
    pub level: usize,
    /// Phase and position of its definition, and of its last use.
    pub defined: (usize, usize),
    pub used: (usize, usize),
    /// How many instructions and reductions read it.
    pub uses: usize,
    /// Its block may be used again within the phase.
    pub reusable: bool,
}

/// How many equal lanes of a uniform register there must be.
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
    pub nest: &'a Lowered<'n>,
    pub schedule: &'a Schedule,
    pub registers: Vec<Register>,
    /// For each phase and buffer, whether the phase stores to the buffer.
    stored: Vec<Vec<bool>>,
}

impl<'a, 'n> Analysis<'a, 'n> {
    /// Analyses a nest.
    pub fn new(nest: &'a Lowered<'n>, schedule: &'a Schedule) -> Self {
        let registers = vec![Register::default(); nest.nest.registers.len()];
        let stored = nest.phases.iter().map(|phase| {
            let mut stored = vec![false; nest.nest.buffers.len()];
            phase.body.iter().flat_map(Op::stored).for_each(|place| stored[place.buffer.index()] = true);
            stored
        });
        let stored = stored.collect();
        let mut analysis = Analysis { nest, schedule, registers, stored };
        analysis.analyse();
        analysis
    }

    /// The parallel axes that lanes lie along, if they do.
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

    /// The axes that lanes of a phase lie along.
    pub fn vector(&self, phase: usize) -> &'a VectorAxes {
        match self.schedule {
            Schedule::Rows(vector) => vector,
            Schedule::Elements(vectors) => &vectors[phase],
        }
    }

    /// The inner axes of a phase that stay plain loops.
    pub fn loops(&self, phase: usize) -> Vec<AxisId> {
        plain(&self.nest.phases[phase].axes, self.vector(phase)).collect()
    }

    /// Number of the innermost level of a phase.
    pub fn innermost(&self, phase: usize) -> usize {
        self.loops(phase).len() + usize::from(!self.by_rows() && !self.vector(phase).axes.is_empty())
    }

    /// The dtype of a register.
    pub fn dtype(&self, reg: Reg) -> DType {
        self.nest.nest.registers[reg]
    }

    /// Finds uniform registers, levels, and how much of each is read.
    fn analyse(&mut self) {
        for p in 0..self.nest.phases.len() {
            let phase = &self.nest.phases[p];
            for (at, op) in phase.body.iter().enumerate() {
                let (uniform, level) = self.nature(p, op);
                for reg in op.results() {
                    let register = &mut self.registers[reg.index()];
                    *register =
                        Register { uniform, level, defined: (p, at), used: (p, at), ..Register::default() };
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
            // Native code reads what is the same everywhere once.
            (false, false) if matches!(op, Op::Group(_)) => Reach::Chunk,
            (false, true) => Reach::Turn,
            (false, false) => Reach::Block,
        };
        op.visit_values(&mut |reg| {
            registers[reg.index()].used = at;
            registers[reg.index()].uses += 1;
            let register = &mut registers[reg.index()];
            register.reach = register.reach.max(reach);
        });
        for sum in op.sums() {
            sum.visit_registers(&mut |reg| {
                registers[reg.index()].used = at;
                registers[reg.index()].uses += 1;
            });
        }
    }

    /// Whether all lanes of an instruction are the same, and its level.
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
        op.visit_values(&mut meet);
        for sum in op.sums() {
            sum.visit_registers(&mut meet);
        }
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
            // Every lane has row storage of its own.
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
