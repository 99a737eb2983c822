//! Bodies on a part of an axis, where some of their guards are decided.

use rustc_hash::FxHashMap;
use wengert_core::id::IdVec;
use wengert_core::nest::bounds::{Interval, Ranges};
use wengert_core::nest::{Access, Affine, AxisId, Guard, Instr, Nest, Phase, Reg, ScalarOp, Term};
use wengert_core::{DType, Scalar};

pub(super) fn guards(instr: &Instr) -> &[Guard] {
    match instr {
        Instr::Load { access, .. } | Instr::Store { access, .. } => &access.guards,
        Instr::Test { guards, .. } => guards,
        Instr::Scalar { .. } | Instr::Const { .. } | Instr::Index { .. } | Instr::Prefix(_) => &[],
    }
}

pub(super) fn mentions(expression: &Affine, axis: AxisId) -> bool {
    let mut found = false;
    expression.visit_terms(&mut |term| found |= *term == Term::Axis(axis));
    found
}

/// A body at the points where an axis has certain values, with fresh registers.
pub(super) struct Restricted<'n> {
    /// The nest with the extents of the part.
    short: &'n Nest,
    /// The axis that is restricted, and its value.
    axis: AxisId,
    value: Affine,
    /// All registers, those of the body so far behind the others.
    pub registers: IdVec<Reg, DType>,
    pub body: Vec<Instr>,
    /// Predicates with known values.
    truths: FxHashMap<Reg, bool>,
}

impl<'n> Restricted<'n> {
    /// An empty body. The value is an expression of axes of `short`.
    pub fn new(
        short: &'n Nest,
        axis: AxisId,
        value: Affine,
        registers: IdVec<Reg, DType>,
    ) -> Restricted<'n> {
        Restricted { short, axis, value, registers, body: vec![], truths: FxHashMap::default() }
    }

    /// Emits the body of a phase. It reads registers of earlier phases as they are.
    pub fn extend(&mut self, nest: &Nest, phase: &Phase) {
        let mut names: IdVec<Reg, Reg> = nest.registers.ids().collect();
        for instr in &phase.body {
            let (instr, known) = self.decided(self.at_value(instr, &|reg| names[reg]));
            if let Some(known) = known {
                instr.results().iter().for_each(|old| names[*old] = known);
                continue;
            }
            if guards(&instr).iter().any(|guard| self.holds(guard) == Some(false)) {
                // A store that never happens. Loads and tests have known results here.
                continue;
            }
            let instr = self.with_fresh_results(instr, nest, &mut names);
            if let Instr::Const { result, value } = &instr
                && value.dtype() == DType::Bool
            {
                self.truths.insert(*result, *value == Scalar::of(true));
            }
            self.body.push(instr);
        }
    }

    /// Whether a guard always holds or never; `None` if it depends on the index.
    fn holds(&self, guard: &Guard) -> Option<bool> {
        let values = Ranges::new(self.short, &[]).of(&guard.index);
        let (low, high) = (i128::from(guard.low), i128::from(guard.high));
        match () {
            () if values.within(low, high) => Some(true),
            () if values.intersect(Interval { low, high: high - 1 }).is_empty() => Some(false),
            () => None,
        }
    }

    /// An instruction at the axis' value, with renamed operands.
    fn at_value(&self, instr: &Instr, name: &dyn Fn(Reg) -> Reg) -> Instr {
        let axis = |axis: AxisId| match axis == self.axis {
            true => self.value.clone(),
            false => Affine::axis(axis),
        };
        let ranges = Ranges::new(self.short, &[]);
        let affine = |e: &mut Affine| {
            *e = ranges.simplify(&e.substitute(&axis, &|reg| Affine::reg(name(reg))))
        };
        let access = |access: &mut Access| {
            access.indices.iter_mut().for_each(affine);
            access.guards.iter_mut().for_each(|guard| affine(&mut guard.index));
        };
        let mut instr = instr.clone();
        match &mut instr {
            Instr::Scalar { operands, .. } => operands.iter_mut().for_each(|reg| *reg = name(*reg)),
            Instr::Const { .. } => {}
            Instr::Index { value, .. } => affine(value),
            Instr::Test { guards, .. } => {
                guards.iter_mut().for_each(|guard| affine(&mut guard.index))
            }
            Instr::Load { access: of, fill, .. } => {
                access(of);
                fill.iter_mut().for_each(|reg| *reg = name(*reg));
            }
            Instr::Store { access: of, value, .. } => {
                access(of);
                *value = name(*value);
            }
            Instr::Prefix(_) => unreachable!("a nest with prefixes is not cut"),
        }
        instr
    }

    /// The instruction without the guards that always hold, and the register that already has its
    /// result, if any.
    fn decided(&self, mut instr: Instr) -> (Instr, Option<Reg>) {
        let never = guards(&instr).iter().any(|guard| self.holds(guard) == Some(false));
        let known = match &mut instr {
            Instr::Load { fill, .. } if never => *fill,
            Instr::Load { access, fill, .. } => {
                access.guards.retain(|guard| self.holds(guard).is_none());
                *fill = fill.filter(|_| !access.guards.is_empty());
                None
            }
            Instr::Store { access, .. } if !never => {
                access.guards.retain(|guard| self.holds(guard).is_none());
                None
            }
            Instr::Scalar { op: ScalarOp::Select, operands, .. } => {
                self.truths.get(&operands[0]).map(|truth| operands[if *truth { 1 } else { 2 }])
            }
            _ => None,
        };
        if let Instr::Test { result, guards } = &mut instr {
            guards.retain(|guard| self.holds(guard) != Some(true));
            if never || guards.is_empty() {
                return (Instr::Const { result: *result, value: Scalar::of(!never) }, None);
            }
        }
        (instr, known)
    }

    fn with_fresh_results(
        &mut self,
        mut instr: Instr,
        nest: &Nest,
        names: &mut IdVec<Reg, Reg>,
    ) -> Instr {
        match &mut instr {
            Instr::Scalar { result, .. }
            | Instr::Const { result, .. }
            | Instr::Index { result, .. }
            | Instr::Test { result, .. }
            | Instr::Load { result, .. } => {
                let fresh = self.registers.push(nest.registers[*result]);
                names[*result] = fresh;
                *result = fresh;
            }
            Instr::Store { .. } | Instr::Prefix(_) => {}
        }
        instr
    }
}
