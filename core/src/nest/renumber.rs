//! Canonical numbering.

use super::{Access, Affine, AxisId, BufferId, BufferRole, Guard, Instr, Nest, Reg, Term};
use crate::id::{Id, IdVec};

/// New ids by old ones; undefined ids have no number.
struct Map<I>(Vec<Option<I>>);

impl<I: Id> Map<I> {
    /// Numbers `order` from 0; an id that occurs again keeps its first number.
    fn new(len: usize, order: impl Iterator<Item = I>) -> (Self, Vec<I>) {
        let mut map = vec![None; len];
        let mut kept = Vec::new();
        for old in order {
            if let Some(slot @ None) = map.get_mut(old.index()) {
                *slot = Some(I::new(kept.len()));
                kept.push(old);
            }
        }
        (Map(map), kept)
    }

    /// The new id. An undefined id stays out of range, so the verifier rejects it.
    fn get(&self, old: I) -> I {
        self.0.get(old.index()).copied().flatten().unwrap_or(I::new(u32::MAX as usize))
    }
}

impl Nest {
    /// Numbers buffers, axes and registers in the order of the text, as the verifier requires.
    /// Drops undefined ids (axes of no loop, registers of no instruction) and row storages
    /// without any access.
    #[must_use]
    pub fn renumber(&self) -> Nest {
        let mut used = vec![false; self.buffers.len()];
        for phase in &self.phases {
            for instr in &phase.body {
                if let Instr::Load { access, .. } | Instr::Store { access, .. } = instr
                    && let Some(used) = used.get_mut(access.buffer.index())
                {
                    *used = true;
                }
            }
        }
        let parameters = self.buffers.iter().filter(|(_, b)| b.role != BufferRole::Row);
        let rows =
            self.buffers.iter().filter(|(id, b)| b.role == BufferRole::Row && used[id.index()]);
        let (buffers, kept_buffers) = Map::new(
            self.buffers.len(),
            parameters.chain(rows).map(|(id, _)| id).collect::<Vec<_>>().into_iter(),
        );
        let loops = self.phases.iter().flat_map(|p| &p.axes);
        let (axes, kept_axes) =
            Map::new(self.axes.len(), self.parallel.iter().chain(loops).copied());
        let definitions = self.phases.iter().flat_map(|phase| {
            let body = phase.body.iter().flat_map(Instr::results);
            body.chain(phase.reductions.iter().flat_map(|r| &r.results)).copied()
        });
        let (registers, kept_registers) = Map::new(self.registers.len(), definitions);

        let mut nest = self.clone();
        nest.buffers = kept_buffers.iter().map(|b| self.buffers[*b].clone()).collect();
        nest.axes = kept_axes.iter().map(|a| self.axes[*a].clone()).collect();
        nest.registers = kept_registers.iter().map(|r| self.registers[*r]).collect::<IdVec<_, _>>();
        nest.parallel.iter_mut().for_each(|a| *a = axes.get(*a));
        let names = Names { buffers, axes, registers };
        for phase in &mut nest.phases {
            phase.axes.iter_mut().for_each(|a| *a = names.axes.get(*a));
            phase.body.iter_mut().for_each(|i| names.instr(i));
            for reduction in &mut phase.reductions {
                reduction
                    .results
                    .iter_mut()
                    .chain(&mut reduction.values)
                    .for_each(|r| names.reg(r));
            }
        }
        nest
    }
}

struct Names {
    buffers: Map<BufferId>,
    axes: Map<AxisId>,
    registers: Map<Reg>,
}

impl Names {
    fn reg(&self, reg: &mut Reg) {
        *reg = self.registers.get(*reg);
    }

    fn instr(&self, instr: &mut Instr) {
        instr.results_mut().iter_mut().for_each(|r| self.reg(r));
        match instr {
            Instr::Scalar { operands, .. } => operands.iter_mut().for_each(|r| self.reg(r)),
            Instr::Const { .. } => {}
            Instr::Index { value, .. } => self.affine(value),
            Instr::Test { guards, .. } => self.guards(guards),
            Instr::Load { access, fill, .. } => {
                self.access(access);
                fill.iter_mut().for_each(|r| self.reg(r));
            }
            Instr::Store { access, value, .. } => {
                self.access(access);
                self.reg(value);
            }
            Instr::Prefix(prefix) => prefix.values.iter_mut().for_each(|r| self.reg(r)),
        }
    }

    fn access(&self, access: &mut Access) {
        access.buffer = self.buffers.get(access.buffer);
        access.indices.iter_mut().for_each(|i| self.affine(i));
        self.guards(&mut access.guards);
    }

    fn guards(&self, guards: &mut [Guard]) {
        guards.iter_mut().for_each(|g| self.affine(&mut g.index));
    }

    /// Terms keep their form but may change their order.
    fn affine(&self, affine: &mut Affine) {
        for (term, _) in &mut affine.terms {
            match term {
                Term::Axis(axis) => *axis = self.axes.get(*axis),
                Term::Reg(reg) => self.reg(reg),
                Term::FloorDiv(inner, _) | Term::Mod(inner, _) => self.affine(inner),
            }
        }
        affine.terms.sort();
    }
}
