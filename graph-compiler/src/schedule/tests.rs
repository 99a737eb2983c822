//! Orders of small functions.

use super::*;
use crate::samples::Sample;

/// Bytes of all buffers but inputs.
fn bytes(s: &Sample) -> IdVec<BufferId, u64> {
    let mut bytes: IdVec<BufferId, u64> =
        s.0.buffers.iter().map(|(_, b)| b.ty.bytes().unwrap() as u64).collect();
    s.0.inputs.iter().for_each(|(_, b)| bytes[*b] = 0);
    bytes
}

/// True if each kernel comes after those it reads from.
fn is_topological(s: &Sample, order: &[usize]) -> bool {
    let mut moment = vec![usize::MAX; order.len()];
    order.iter().enumerate().for_each(|(m, k)| moment[*k] = m);
    let kernels = &s.0.kernels;
    (0..order.len()).all(|k| {
        let writer = |b: &BufferId| (0..order.len()).find(|w| kernels[*w].writes.contains(b));
        kernels[k].reads.iter().filter_map(writer).all(|w| moment[w] < moment[k])
    })
}

#[test]
fn what_frees_comes_early() {
    // Ten wide values, each reduced to a narrow one right away, or all at once.
    let mut s = Sample::new();
    let x = s.input("x", InputRole::Input, 1000);
    let wide: Vec<BufferId> = (0..10).map(|_| s.reversed(x)).collect();
    let narrow: Vec<BufferId> = wide
        .iter()
        .map(|w| {
            let n = s.buffer(1);
            let nest = "nest @first(in %x: f32[1000], out %y: f32[1]) { parallel i: 1 phase {
                %0: f32 = load %x[i] store %y[i], %0 } }";
            let nest = wengert_core::nest::parse_nests("test", nest).unwrap().remove(0).0;
            s.0.kernels.push(crate::kernels::Kernel {
                work: crate::kernels::Work::Nest(Box::new(nest)),
                reads: vec![*w],
                writes: vec![n],
                locations: vec![],
            });
            n
        })
        .collect();
    let y = s.sum(&narrow);
    s.output("y", OutputRole::Output, y);
    let bytes = bytes(&s);
    let given: Vec<usize> = (0..s.0.kernels.len()).collect();
    let order = order(&s.0, &bytes);
    assert!(is_topological(&s, &order));
    assert_eq!(peak(&s.0, &bytes, &given), 40_000 + 4);
    assert_eq!(peak(&s.0, &bytes, &order), 4_000 + 10 * 4);
}

#[test]
fn old_state_is_read_before_it_is_replaced_unless_that_is_a_circle() {
    let mut s = Sample::new();
    let [a, b] = ["a", "b"].map(|n| s.input(n, InputRole::State, 4));
    let new_a = s.sum(&[a, b]);
    let new_b = s.sum(&[a, b]);
    s.output("a", OutputRole::State, new_a);
    s.output("b", OutputRole::State, new_b);
    // Each new value reads both old ones: one of the two waits for the other, not both.
    let dependencies = Dependencies::new(&s.0);
    assert_eq!(dependencies.waits, [0, 1]);
    assert!(is_topological(&s, &order(&s.0, &bytes(&s))));
}
