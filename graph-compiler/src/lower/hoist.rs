//! Hoists row-invariant instructions out of the inner axes.
//!
//! Loads from `in` parameters and instructions that depend on the row alone move from a phase
//! with inner axes to a phase without, just before it. No instruction changes, and none leaves a
//! loop that may not run at all.

use rustc_hash::FxHashMap;
use wengert_core::id::{Id, IdVec};
use wengert_core::nest::{Affine, AxisId, BufferRole, Instr, Nest, Phase, Reg, Term};
use wengert_core::{DType, Scalar};

/// The same nest with row-invariant instructions in phases without inner axes.
pub(super) fn hoist(nest: &Nest) -> Nest {
    let mut hoisting = Hoisting {
        old: nest,
        registers: nest.registers.clone(),
        row: nest.registers.ids().map(|_| false).collect(),
        constants: FxHashMap::default(),
        renamed: FxHashMap::default(),
        known: FxHashMap::default(),
    };
    let mut phases: Vec<Phase> = Vec::with_capacity(nest.phases.len());
    for phase in &nest.phases {
        if phase.axes.is_empty() {
            let body = hoisting.row_body(phase);
            let reductions = hoisting.reductions(phase);
            phases.push(Phase { axes: vec![], body, reductions });
            continue;
        }
        let (moved, body) = hoisting.inner_body(phase);
        if !moved.is_empty() {
            match phases.last_mut().filter(|p| p.axes.is_empty() && p.reductions.is_empty()) {
                Some(row) => row.body.extend(moved),
                None => phases.push(Phase { axes: vec![], body: moved, reductions: vec![] }),
            }
        }
        let reductions = hoisting.reductions(phase);
        phases.push(Phase { axes: phase.axes.clone(), body, reductions });
    }
    Nest { phases, registers: hoisting.registers, ..nest.clone() }.without_dead_code()
}

struct Hoisting<'n> {
    old: &'n Nest,
    registers: IdVec<Reg, DType>,
    /// Whether each register is row-invariant.
    row: IdVec<Reg, bool>,
    /// Constants of the current phase with inner axes.
    constants: FxHashMap<Reg, Scalar>,
    /// Registers replaced by another register of the same value.
    renamed: FxHashMap<Reg, Reg>,
    /// Pure row-invariant instructions, with register 0 as result, and their result registers.
    known: FxHashMap<(Instr, DType), Reg>,
}

impl Hoisting<'_> {
    /// The instructions of a row phase, with equal ones merged.
    fn row_body(&mut self, phase: &Phase) -> Vec<Instr> {
        let mut body = Vec::with_capacity(phase.body.len());
        for instr in &phase.body {
            let instr = self.rename(instr);
            instr.results().iter().for_each(|r| self.row[*r] = true);
            if let Some(key) = self.key(&instr) {
                let result = instr.results()[0];
                if let Some(known) = self.known.get(&key) {
                    self.renamed.insert(result, *known);
                    continue;
                }
                self.known.insert(key, result);
            }
            body.push(instr);
        }
        body
    }

    /// The instructions that move to the row, and those that stay.
    fn inner_body(&mut self, phase: &Phase) -> (Vec<Instr>, Vec<Instr>) {
        self.constants.clear();
        let (mut moved, mut body) = (Vec::new(), Vec::new());
        // Instructions of a loop that never runs must not run in the row.
        let runs = phase.axes.iter().all(|a| self.old.axes[*a].extent > 0);
        for instr in &phase.body {
            let mut instr = self.rename(instr);
            if let Instr::Const { result, value } = &instr {
                self.constants.insert(*result, *value);
                body.push(instr);
                continue;
            }
            let Some(_) = self.key(&instr).filter(|_| runs && self.is_of_row(&instr, &phase.axes))
            else {
                body.push(instr);
                continue;
            };
            self.bring_constants(&mut instr, &mut moved);
            let result = instr.results()[0];
            let key = self.key(&instr).expect("it had one before its constants moved");
            match self.known.get(&key) {
                Some(known) => {
                    self.renamed.insert(result, *known);
                }
                None => {
                    self.known.insert(key, result);
                    self.row[result] = true;
                    moved.push(instr);
                }
            }
        }
        (moved, body)
    }

    fn reductions(&mut self, phase: &Phase) -> Vec<wengert_core::nest::Reduction> {
        let mut reductions = phase.reductions.clone();
        for reduction in &mut reductions {
            reduction.values.iter_mut().for_each(|r| *r = self.name(*r));
            reduction.results.iter().for_each(|r| self.row[*r] = true);
        }
        reductions
    }

    /// The key of a pure instruction whose result is constant within a nest.
    fn key(&self, instr: &Instr) -> Option<(Instr, DType)> {
        let mut key = instr.clone();
        let result = match &mut key {
            Instr::Scalar { result, .. }
            | Instr::Const { result, .. }
            | Instr::Index { result, .. }
            | Instr::Test { result, .. } => result,
            Instr::Load { result, access, .. }
                if self.old.buffers[access.buffer].role == BufferRole::In =>
            {
                result
            }
            Instr::Load { .. } | Instr::Store { .. } | Instr::Prefix(_) => return None,
        };
        let dtype = self.registers[std::mem::replace(result, Reg::new(0))];
        Some((key, dtype))
    }

    /// Whether it does not depend on the inner axes, and reads more than constants.
    fn is_of_row(&self, instr: &Instr, inner: &[AxisId]) -> bool {
        let mut of_row = true;
        let mut constant = matches!(instr, Instr::Scalar { .. });
        instr.visit_operands(&mut |reg| {
            of_row &= self.row[reg] || self.constants.contains_key(&reg);
            constant &= !self.row[reg];
        });
        let mut affine = |e: &Affine| {
            e.visit_terms(&mut |t| {
                of_row &= !matches!(t, Term::Axis(axis) if inner.contains(axis))
            });
        };
        match instr {
            Instr::Index { value, .. } => affine(value),
            Instr::Test { guards, .. } => guards.iter().for_each(|g| affine(&g.index)),
            Instr::Load { access, .. } => access.expressions().for_each(affine),
            _ => {}
        }
        of_row && !constant
    }

    /// Moves along the constants that an instruction needs: registers as operands, numbers in
    /// indices.
    fn bring_constants(&mut self, instr: &mut Instr, moved: &mut Vec<Instr>) {
        let number = |reg: Reg| match self.constants.get(&reg).filter(|_| !self.row[reg]) {
            Some(value) => value.to_i64().map_or(Affine::reg(reg), Affine::constant),
            None => Affine::reg(reg),
        };
        let affine = |e: &mut Affine| *e = e.substitute(&Affine::axis, &number);
        match instr {
            Instr::Index { value, .. } => affine(value),
            Instr::Test { guards, .. } => guards.iter_mut().for_each(|g| affine(&mut g.index)),
            Instr::Load { access, .. } => {
                access.indices.iter_mut().for_each(affine);
                access.guards.iter_mut().for_each(|g| affine(&mut g.index));
            }
            _ => {}
        }
        let operands: Vec<&mut Reg> = match instr {
            Instr::Scalar { operands, .. } => operands.iter_mut().collect(),
            Instr::Load { fill, .. } => fill.iter_mut().collect(),
            _ => return,
        };
        for operand in operands {
            if self.row[*operand] {
                continue;
            }
            let value = self.constants[operand];
            let key = (Instr::Const { result: Reg::new(0), value }, value.dtype());
            *operand = match self.known.get(&key) {
                Some(known) => *known,
                None => {
                    let result = self.registers.push(value.dtype());
                    self.row.push(true);
                    moved.push(Instr::Const { result, value });
                    self.known.insert(key, result);
                    result
                }
            };
        }
    }

    fn name(&self, reg: Reg) -> Reg {
        self.renamed.get(&reg).copied().unwrap_or(reg)
    }

    /// An instruction with renamed operands.
    fn rename(&self, instr: &Instr) -> Instr {
        let mut instr = instr.clone();
        if self.renamed.is_empty() {
            return instr;
        }
        let affine =
            |e: &mut Affine| *e = e.substitute(&Affine::axis, &|r| Affine::reg(self.name(r)));
        match &mut instr {
            Instr::Scalar { operands, .. } => operands.iter_mut().for_each(|r| *r = self.name(*r)),
            Instr::Const { .. } => {}
            Instr::Index { value, .. } => affine(value),
            Instr::Test { guards, .. } => guards.iter_mut().for_each(|g| affine(&mut g.index)),
            Instr::Load { access, fill, .. } => {
                access.indices.iter_mut().for_each(affine);
                access.guards.iter_mut().for_each(|g| affine(&mut g.index));
                fill.iter_mut().for_each(|r| *r = self.name(*r));
            }
            Instr::Store { access, value, .. } => {
                access.indices.iter_mut().for_each(affine);
                access.guards.iter_mut().for_each(|g| affine(&mut g.index));
                *value = self.name(*value);
            }
            Instr::Prefix(prefix) => prefix.values.iter_mut().for_each(|r| *r = self.name(*r)),
        }
        instr
    }
}

#[cfg(test)]
mod tests {
    use super::hoist;
    use wengert_core::nest::{parse_nests, verify};

    /// A hoisted load takes the constants in its guards along, as numbers.
    #[test]
    fn constants_in_indices_move_with_a_load() {
        let text = "nest @f(in %x: f32[4,2], out %y: f32[4,3]) {
            parallel i: 4
            phase {
              %0: f32 = const 0.0
            }
            phase j: 3 {
              %1: i32 = const 1
              %2: f32 = load %x[i, %1] {%1 in 0..2} else %0
              store %y[i, j], %2
            }
          }";
        let nest = parse_nests("test", text).unwrap().remove(0).0;
        verify(&nest).unwrap();
        let hoisted = hoist(&nest).renumber();
        verify(&hoisted).unwrap_or_else(|e| panic!("{e}\n{hoisted}"));
        assert!(hoisted.phases[0].body.len() > 1, "the load is of the row\n{hoisted}");
    }
}
