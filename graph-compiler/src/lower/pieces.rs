//! Splits nests where the parts of a concatenation meet, and at the elements of windows.
//!
//! The element of a concatenation is that of the part in which its index lies: guarded loads, and
//! a selection among the values computed from them. Along the whole axis every part is computed
//! for every element, and all but one are discarded. The cotangents of an LSTM's four gates, and
//! of the queries, keys and values of attention, are concatenations of parts of one length. Such
//! an axis is cut to that length, and the body is repeated for each part, with its guards
//! decided. So each part is computed once, without guards.
//!
//! The cotangent of a maximum over non-overlapping windows is similar: element k belongs to
//! window ⌊k/2⌋. Along the uncut axis, windows are looked up element by element. So the axis is
//! cut into the first elements of all windows and the second ones.
//!
//! A concatenation that fusion merges with the equations that compute its parts is lowered in
//! [parts](crate::emit::Parts) from the beginning. This module handles one that has a kernel of its
//! own, or lies within another equation's.
//!
//! Rows are independent, so several of them may be computed as one.

use crate::emit::{LEAST, MOST};
use rustc_hash::FxHashMap;
use wengert_core::id::IdVec;
use wengert_core::nest::bounds::{Interval, Ranges};
use wengert_core::nest::{
    Access, Affine, AxisId, BufferRole, Guard, Instr, Nest, Phase, Reg, ScalarOp, Term, verify,
};
use wengert_core::{DType, Scalar};

/// Maximum number of elements of a window.
const WINDOW: i64 = 4;
/// Maximum number of axes that are cut.
const AXES: usize = 3;
/// Maximum number of instructions after the cut.
const LARGEST: usize = 512;

/// A cut of an axis into `count` parts. The elements of part p are those at
/// `step · element + shift · p`.
#[derive(Clone, Copy)]
struct Cut {
    axis: AxisId,
    count: usize,
    step: i64,
    shift: i64,
}

/// The nest with axes cut where that pays.
pub(super) fn pieces(mut nest: Nest) -> Nest {
    for _ in 0..AXES {
        let [phase] = nest.phases.as_slice() else { return nest };
        let plain = phase.axes.is_empty()
            && phase.reductions.is_empty()
            && nest.buffers.iter().all(|(_, b)| matches!(b.role, BufferRole::In | BufferRole::Out))
            && !phase.body.iter().any(|i| matches!(i, Instr::Prefix(_)));
        let axes = nest.parallel.iter().copied();
        let mut cuts =
            axes.filter_map(|axis| parts(&nest, phase, axis).or_else(|| turns(&nest, phase, axis)));
        let Some(cut) = cuts.next().filter(|_| plain) else { return nest };
        drop(cuts);
        let made = cut_at(&nest, phase, cut);
        // The verifier must show that rows stay disjoint; otherwise the nest stays as it is.
        if made.phases[0].body.len() > LARGEST || verify(&made).is_err() {
            return nest;
        }
        nest = made;
    }
    nest
}

/// The parts into which guards cut an axis. `None` if there are none, too many, or they differ in
/// length.
fn parts(nest: &Nest, phase: &Phase, axis: AxisId) -> Option<Cut> {
    let extent = nest.axes[axis].extent;
    let mut length = extent;
    let mut cut = false;
    for guard in phase.body.iter().flat_map(guards) {
        if !mentions(&guard.index, axis) {
            continue;
        }
        let [(Term::Axis(_), 1)] = guard.index.terms.as_slice() else { return None };
        for at in [guard.low, guard.high] {
            let at =
                usize::try_from(at.checked_sub(guard.index.constant)?.max(0)).ok()?.min(extent);
            cut |= 0 < at && at < extent;
            length = gcd(length, at);
        }
    }
    let last = nest.parallel.last() == Some(&axis);
    let count = extent / length.max(1);
    let fits = cut && count <= MOST && (!last || length >= LEAST);
    fits.then_some(Cut { axis, count, step: 1, shift: length as i64 })
}

/// The elements of windows along an axis, if every division of it is by the window's extent. Not
/// for the last axis, along which adjacent elements stay adjacent.
fn turns(nest: &Nest, phase: &Phase, axis: AxisId) -> Option<Cut> {
    let (mut window, mut other) = (None, nest.parallel.last() == Some(&axis));
    let mut look = |expression: &Affine| {
        expression.visit_terms(&mut |term| {
            let (Term::FloorDiv(inner, divisor) | Term::Mod(inner, divisor)) = term else { return };
            if mentions(inner, axis) {
                other |=
                    **inner != Affine::axis(axis) || *window.get_or_insert(*divisor) != *divisor;
            }
        });
    };
    for instr in &phase.body {
        match instr {
            Instr::Load { access, .. } | Instr::Store { access, .. } => {
                access.expressions().for_each(&mut look)
            }
            Instr::Index { value, .. } => look(value),
            Instr::Test { guards, .. } => guards.iter().for_each(|guard| look(&guard.index)),
            Instr::Scalar { .. } | Instr::Const { .. } | Instr::Prefix(_) => {}
        }
    }
    let step = window.filter(|d| !other && (2..=WINDOW).contains(d))?;
    let count = step as usize;
    nest.axes[axis].extent.is_multiple_of(count).then_some(Cut { axis, count, step, shift: 1 })
}

fn guards(instr: &Instr) -> &[Guard] {
    match instr {
        Instr::Load { access, .. } | Instr::Store { access, .. } => &access.guards,
        Instr::Test { guards, .. } => guards,
        Instr::Scalar { .. } | Instr::Const { .. } | Instr::Index { .. } | Instr::Prefix(_) => &[],
    }
}

fn mentions(expression: &Affine, axis: AxisId) -> bool {
    let mut found = false;
    expression.visit_terms(&mut |term| found |= *term == Term::Axis(axis));
    found
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The nest along the elements of a part, with the body repeated for each part.
fn cut_at(nest: &Nest, phase: &Phase, cut: Cut) -> Nest {
    let mut short = nest.clone();
    short.axes[cut.axis].extent /= cut.count;
    let mut cutting = Cutting {
        short: &short,
        cut,
        registers: IdVec::default(),
        body: vec![],
        truths: FxHashMap::default(),
    };
    for part in 0..cut.count as i64 {
        cutting.part(nest, phase, part);
    }
    let Cutting { registers, body, .. } = cutting;
    let phases = vec![Phase { axes: vec![], body, reductions: vec![] }];
    Nest { phases, registers, ..short.clone() }.without_dead_code().renumber()
}

struct Cutting<'n> {
    /// The nest with the shortened axis.
    short: &'n Nest,
    cut: Cut,
    registers: IdVec<Reg, DType>,
    body: Vec<Instr>,
    /// Predicates with known values.
    truths: FxHashMap<Reg, bool>,
}

impl Cutting<'_> {
    /// Emits the body for a part.
    fn part(&mut self, nest: &Nest, phase: &Phase, part: i64) {
        let mut names: IdVec<Reg, Option<Reg>> = nest.registers.ids().map(|_| None).collect();
        for instr in &phase.body {
            let name = |reg: Reg| names[reg].expect("a register is written before it is read");
            let (instr, known) = self.decided(self.shifted(instr, part, &name));
            if let Some(known) = known {
                instr.results().iter().for_each(|old| names[*old] = Some(known));
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

    /// An instruction of the part, with renamed operands.
    fn shifted(&self, instr: &Instr, part: i64, name: &dyn Fn(Reg) -> Reg) -> Instr {
        let Cut { step, shift, .. } = self.cut;
        let axis = |axis: AxisId| match axis == self.cut.axis {
            true => Affine::axis(axis).scale(step).offset(shift * part),
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
        names: &mut IdVec<Reg, Option<Reg>>,
    ) -> Instr {
        match &mut instr {
            Instr::Scalar { result, .. }
            | Instr::Const { result, .. }
            | Instr::Index { result, .. }
            | Instr::Test { result, .. }
            | Instr::Load { result, .. } => {
                let fresh = self.registers.push(nest.registers[*result]);
                names[*result] = Some(fresh);
                *result = fresh;
            }
            Instr::Store { .. } | Instr::Prefix(_) => {}
        }
        instr
    }
}

#[cfg(test)]
mod tests {
    use super::pieces;
    use wengert_core::nest::{parse_nests, verify};

    fn cut(text: &str) -> String {
        let nest = parse_nests("test", text).expect("the text is a nest").remove(0).0;
        verify(&nest).expect("the nest is right");
        pieces(nest).renumber().to_string()
    }

    #[test]
    fn each_part_of_a_concatenation_is_computed_once() {
        let text = "nest @f(in %x: f32[4,16], in %z: f32[4,32], out %y: f32[4,48]) {
            parallel i: 4, j: 48
            phase {
              %0: f32 = const 0.0
              %1: f32 = load %x[i, j] {j in 0..16} else %0
              %2: f32 = neg %1
              %3: bool = test {j in 0..16}
              %4: f32 = load %z[i, j-16] {j-16 in 0..32} else %0
              %5: f32 = select %3, %2, %4
              store %y[i, j], %5
            }
          }";
        let cut = cut(text);
        assert!(
            cut.contains("j: 16") && !cut.contains("in 0..") && !cut.contains("select"),
            "{cut}"
        );
        assert_eq!((cut.matches("load").count(), cut.matches("neg").count()), (3, 1), "{cut}");
        for part in ["store %y[i, j]", "store %y[i, j+16]", "store %y[i, j+32]"] {
            assert!(cut.contains(part), "{cut}");
        }
    }

    #[test]
    fn neighbours_of_a_window_are_done_together() {
        let text = "nest @f(in %x: f32[3,2,16], out %y: f32[6,4,16]) {
            parallel i: 6, j: 4, k: 16
            phase {
              %0: f32 = load %x[floor_div(i, 2), floor_div(j, 2), k]
              %1: i32 = index 2*i+j-4*floor_div(i, 2)-2*floor_div(j, 2)
              %2: f32 = convert %1
              %3: f32 = mul %0, %2
              store %y[i, j, k], %3
            }
          }";
        let cut = cut(text);
        assert!(cut.contains("i: 3, j: 2, k: 16") && !cut.contains("floor_div"), "{cut}");
        assert_eq!(cut.matches("store").count(), 4, "{cut}");
        assert!(cut.contains("store %y[2*i+1, 2*j, k]"), "{cut}");
    }

    #[test]
    fn a_padding_is_no_part() {
        let text = "nest @f(in %x: f32[30], out %y: f32[32]) {
            parallel i: 32
            phase {
              %0: f32 = const 0.0
              %1: f32 = load %x[i-1] {i-1 in 0..30} else %0
              store %y[i], %1
            }
          }";
        assert!(cut(text).contains("i: 32"));
    }
}
