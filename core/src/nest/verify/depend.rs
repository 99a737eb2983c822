//! The axes that the values of registers depend on.

use crate::id::IdVec;
use crate::nest::{Affine, AxisId, BufferRole, Instr, Nest, Phase, Reg, Term};

/// A set of visible axes: parallel ones from bit 0 by position, then those of a phase.
type Mask = u64;

/// For each register the axes that it is a function of. A load from memory that the nest writes
/// depends on all axes.
pub(super) struct Dependence {
    masks: IdVec<Reg, Mask>,
}

impl Dependence {
    pub fn new(nest: &Nest) -> Dependence {
        let mut this = Dependence { masks: nest.registers.iter().map(|_| 0).collect() };
        let outer = nest.parallel.len();
        let rows: Mask = (1 << outer) - 1;
        for phase in &nest.phases {
            let everything: Mask = (1 << (outer + phase.axes.len())) - 1;
            for instr in &phase.body {
                let mask = match instr {
                    Instr::Prefix(_) => everything,
                    Instr::Load { access, .. }
                        if nest.buffers[access.buffer].role != BufferRole::In =>
                    {
                        everything
                    }
                    _ => this.operands(nest, phase, instr),
                };
                for result in instr.results() {
                    this.masks[*result] = mask;
                }
            }
            for reduction in &phase.reductions {
                let mask = reduction.values.iter().fold(0, |m, v| m | this.masks[*v]) & rows;
                for result in &reduction.results {
                    this.masks[*result] = mask;
                }
            }
        }
        this
    }

    fn operands(&self, nest: &Nest, phase: &Phase, instr: &Instr) -> Mask {
        let mut mask = 0;
        instr.visit_operands(&mut |reg| mask |= self.masks[reg]);
        let mut expression = |e: &Affine| {
            e.visit_terms(&mut |term| {
                if let Term::Axis(axis) = term {
                    let visible = nest.parallel.iter().chain(&phase.axes);
                    mask |= visible
                        .enumerate()
                        .filter(|(_, a)| *a == axis)
                        .fold(0, |m, (n, _)| m | 1 << n);
                }
            });
        };
        match instr {
            Instr::Index { value, .. } => expression(value),
            Instr::Test { guards, .. } => guards.iter().for_each(|g| expression(&g.index)),
            Instr::Load { access, .. } | Instr::Store { access, .. } => {
                access.expressions().for_each(expression);
            }
            Instr::Scalar { .. } | Instr::Const { .. } | Instr::Prefix(_) => {}
        }
        mask
    }

    /// The axes, for a register that is visible in the phase.
    pub fn axes(&self, nest: &Nest, phase: &Phase, reg: Reg) -> Vec<AxisId> {
        let mask = self.masks.get(reg).copied().unwrap_or(Mask::MAX);
        let visible = nest.parallel.iter().chain(&phase.axes).enumerate();
        visible.filter(|(n, _)| mask >> n & 1 == 1).map(|(_, a)| *a).collect()
    }
}

const _: () = assert!(super::MAX_RANK < Mask::BITS as usize);
