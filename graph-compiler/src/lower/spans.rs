//! Splits inner loops where the parts of a concatenation meet.
//!
//! A loop over a row that concatenates parts computes each part for every element, and discards
//! all but one. Here such a loop becomes one for each part, in which its guards are decided. The
//! parts may differ in length. ([`pieces`](super::pieces) handles rows whose axes are all
//! parallel.) Elements stored by one of the loops are the same as before, and in the same order.

use super::restrict::{Restricted, guards, mentions};
use crate::emit::LEAST;
use std::collections::BTreeSet;
use wengert_core::nest::{Affine, AxisId, Instr, Nest, Phase, Term, verify};

/// Maximum number of loops that a loop becomes.
const MOST: usize = 8;

/// The nest with its inner loops split where that pays.
pub(super) fn spans(nest: Nest) -> Nest {
    if nest.phases.iter().all(|phase| bounds(&nest, phase).is_none()) {
        return nest;
    }
    let mut split = nest.clone();
    split.phases.clear();
    for phase in &nest.phases {
        let Some((axis, bounds)) = bounds(&nest, phase) else {
            split.phases.push(phase.clone());
            continue;
        };
        for (low, high) in bounds.iter().zip(&bounds[1..]) {
            let mut loops = nest.axes[axis].clone();
            loops.extent = high - low;
            let span = split.axes.push(loops);
            let value = Affine::axis(span).offset(*low as i64);
            let registers = std::mem::take(&mut split.registers);
            let mut restricted = Restricted::new(&split, axis, value, registers);
            restricted.extend(&nest, phase);
            let Restricted { registers, body, .. } = restricted;
            split.registers = registers;
            split.phases.push(Phase { axes: vec![span], body, reductions: vec![] });
        }
    }
    let split = split.without_dead_code().renumber();
    // The verifier must show that the loops store different elements.
    if verify(&split).is_ok() { split } else { nest }
}

/// The single axis of a phase, and the bounds of its spans, of which none is short. `None` if no
/// guard divides the axis.
fn bounds(nest: &Nest, phase: &Phase) -> Option<(AxisId, Vec<usize>)> {
    let [axis] = phase.axes[..] else { return None };
    if !phase.reductions.is_empty() || phase.body.iter().any(|i| matches!(i, Instr::Prefix(_))) {
        return None;
    }
    let extent = nest.axes[axis].extent;
    let mut bounds = BTreeSet::from([0, extent]);
    for guard in phase.body.iter().flat_map(guards).filter(|guard| mentions(&guard.index, axis)) {
        let [(Term::Axis(_), 1)] = guard.index.terms.as_slice() else { return None };
        for at in [guard.low, guard.high] {
            let at = at.checked_sub(guard.index.constant)?.max(0);
            bounds.insert(usize::try_from(at).ok()?.min(extent));
        }
    }
    let bounds: Vec<usize> = bounds.into_iter().collect();
    let long = bounds.iter().zip(&bounds[1..]).all(|(low, high)| high - low >= LEAST);
    ((3..=MOST + 1).contains(&bounds.len()) && long).then_some((axis, bounds))
}

#[cfg(test)]
mod tests {
    use super::spans;
    use wengert_core::nest::{parse_nests, verify};

    fn split(text: &str) -> String {
        let nest = parse_nests("test", text).expect("the text is a nest").remove(0).0;
        verify(&nest).expect("the nest is right");
        spans(nest).to_string()
    }

    const CONCATENATION: &str = "nest @f(in %x: f32[4], in %y: f32[4,40], in %z: f32[4,LENGTH],
      out %r: f32[4,TOTAL]) {
      parallel i: 4
      phase {
        %0: f32 = load %x[i]
        %1: f32 = sqrt %0
      }
      phase j: TOTAL {
        %2: f32 = const 0.0
        %3: f32 = load %y[i, j] {j in 0..40} else %2
        %4: f32 = mul %3, %1
        %5: bool = test {j in 0..40}
        %6: f32 = load %z[i, j-40] {j-40 in 0..LENGTH} else %2
        %7: f32 = exp %6
        %8: f32 = select %5, %4, %7
        store %r[i, j], %8
      }
    }";

    fn concatenation(length: usize) -> String {
        let total = (40 + length).to_string();
        CONCATENATION.replace("LENGTH", &length.to_string()).replace("TOTAL", &total)
    }

    #[test]
    fn each_part_has_a_loop() {
        let split = split(&concatenation(24));
        assert!(split.contains("phase j: 40") && split.contains("phase j: 24"), "{split}");
        assert!(!split.contains(" in 0..") && !split.contains("select"), "{split}");
        let count = |what| split.matches(what).count();
        assert_eq!([count("sqrt"), count("exp"), count("mul"), count("store")], [1, 1, 1, 2]);
        assert!(split.contains("store %r[i, j+40]"), "{split}");
    }

    #[test]
    fn a_short_part_has_no_loop() {
        let text = concatenation(8);
        assert!(split(&text).contains("phase j: 48"));
    }

    #[test]
    fn a_reduction_is_not_split() {
        let text = "nest @f(in %x: f32[4,40], out %r: f32[4]) {
          parallel i: 4
          phase j: 64 {
            %0: f32 = const 0.0
            %1: f32 = load %x[i, j] {j in 0..40} else %0
            %2: f32 = reduce(%1) sum tree(16)
          }
          phase {
            store %r[i], %2
          }
        }";
        let Ok(mut nests) = parse_nests("test", text) else { panic!("the text is a nest") };
        let nest = nests.remove(0).0;
        assert_eq!(spans(nest.clone()), nest);
    }
}
