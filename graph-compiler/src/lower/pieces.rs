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

use super::restrict::{Restricted, guards, mentions};
use crate::emit::LEAST;
use wengert_core::nest::{Affine, AxisId, BufferRole, Instr, Nest, Phase, Term, verify};

/// Maximum number of elements of a window.
const WINDOW: i64 = 4;
/// Maximum number of parts of an axis. An Inception module concatenates parts of 352, 320, 224 and
/// 128 channels: 32 parts of 32.
const PARTS: usize = 32;
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
    let fits = cut && count <= PARTS && (!last || length >= LEAST);
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

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The nest along the elements of a part, with the body repeated for each part.
fn cut_at(nest: &Nest, phase: &Phase, cut: Cut) -> Nest {
    let mut short = nest.clone();
    short.axes[cut.axis].extent /= cut.count;
    let mut registers = nest.registers.clone();
    let mut body = vec![];
    for part in 0..cut.count as i64 {
        let value = Affine::axis(cut.axis).scale(cut.step).offset(cut.shift * part);
        let mut restricted = Restricted::new(&short, cut.axis, value, registers);
        restricted.extend(nest, phase);
        body.extend(restricted.body);
        registers = restricted.registers;
    }
    let phases = vec![Phase { axes: vec![], body, reductions: vec![] }];
    Nest { phases, registers, ..short }.without_dead_code().renumber()
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
