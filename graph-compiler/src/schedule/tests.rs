//! Orders of small functions.

use super::cut::cut;
use super::late::delay;
use super::ready::{Rule, forward};
use super::samples::{numbers, random};
use super::search::by_rules;
use super::timeline::Timeline;
use super::*;
use crate::samples::Sample;
use std::collections::BTreeSet;

/// Bytes of all buffers except inputs and new state.
fn bytes(s: &Sample) -> IdVec<BufferId, u64> {
    let mut bytes: IdVec<BufferId, u64> =
        s.0.buffers.iter().map(|(_, b)| b.ty.bytes().unwrap() as u64).collect();
    s.0.inputs.iter().for_each(|(_, b)| bytes[*b] = 0);
    let state = s.0.outputs.iter().filter(|(output, ..)| output.role == OutputRole::State);
    state.for_each(|(_, _, b)| bytes[*b] = 0);
    bytes
}

/// The order of a sample's kernels, and the peaks of the given order and of this one.
fn ordered(s: &Sample) -> (Vec<usize>, [u64; 2]) {
    ordered_with(s, false)
}

/// The same, with late updates or without.
fn ordered_with(s: &Sample, late: bool) -> (Vec<usize>, [u64; 2]) {
    let count = s.0.kernels.len();
    let (bytes, workspace, in_place) = (bytes(s), vec![0; count], vec![Vec::new(); count]);
    let costs = Costs { bytes: &bytes, workspace: &workspace, in_place: &in_place };
    let order = order(&s.0, &costs, late);
    let graph = TaskGraph::new(&s.0, &costs, &Dependencies::new(&s.0));
    assert!(graph.allows(&order));
    let given: Vec<usize> = (0..count).collect();
    let peaks = [graph.peak(&given), graph.peak(&order)];
    (order, peaks)
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
    // Ten wide values, each reduced to a narrow one directly, or all at once.
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
            let nest = wengert_core::Verified::new(nest).unwrap();
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
    let (order, peaks) = ordered(&s);
    assert!(is_topological(&s, &order));
    assert_eq!(peaks, [40_000 + 4, 4_000 + 10 * 4]);
}

#[test]
fn old_state_is_read_before_it_is_replaced_unless_that_is_a_circle() {
    let mut s = Sample::new();
    let [a, b] = ["a", "b"].map(|n| s.input(n, InputRole::State, 4));
    let new_a = s.sum(&[a, b]);
    let new_b = s.sum(&[a, b]);
    s.output("a", OutputRole::State, new_a);
    s.output("b", OutputRole::State, new_b);
    // Each new value reads both old ones. One writer waits for the other; both waiting would be a
    // cycle.
    let dependencies = Dependencies::new(&s.0);
    assert_eq!(dependencies.waits, [0, 1]);
    assert!(is_topological(&s, &ordered(&s).0));
}

/// A chain of values of `n` elements, and of each a gradient of `of` elements with which a
/// variable is updated. The updates are in the order of the gradients.
fn updated(n: usize, of: [usize; 3]) -> (Sample, Vec<usize>) {
    let mut s = Sample::new();
    let old: Vec<BufferId> =
        (0..3).map(|k| s.input(&format!("s{k}"), InputRole::State, of[k])).collect();
    let mut value = s.input("x", InputRole::Input, n);
    let mut updates = Vec::new();
    for (k, old) in old.iter().enumerate() {
        let gradient = s.beginning(value, of[k]);
        let new = s.sum(&[*old, gradient]);
        updates.push(s.0.kernels.len() - 1);
        s.output(&format!("s{k}"), OutputRole::State, new);
        value = s.reversed(value);
    }
    s.output("y", OutputRole::Output, value);
    (s, updates)
}

/// The moments of some kernels.
fn moments(order: &[usize], kernels: &[usize]) -> Vec<usize> {
    kernels.iter().map(|k| order.iter().position(|other| other == k).unwrap()).collect()
}

#[test]
fn small_updates_are_neighbours_at_the_end() {
    let (s, updates) = updated(1000, [100, 200, 300]);
    let count = s.0.kernels.len();
    let early = ordered_with(&s, false).0;
    assert_ne!(moments(&early, &updates), [count - 3, count - 2, count - 1]);
    let late = ordered_with(&s, true).0;
    assert!(is_topological(&s, &late));
    assert_eq!(moments(&late, &updates), [count - 3, count - 2, count - 1]);
}

/// What a large update reads is in a cache.
#[test]
fn a_large_update_is_where_its_operand_is_computed() {
    const LARGE: usize = (4 << 20) / 4 + 1;
    let (s, updates) = updated(LARGE, [100, LARGE, 100]);
    let [early, late] = [false, true].map(|late| ordered_with(&s, late).0);
    let count = s.0.kernels.len();
    let place = |order: &[usize]| {
        let k = moments(order, &updates)[1];
        order[k - 1]
    };
    assert_eq!(place(&late), place(&early));
    let ends = [updates[0], updates[2]];
    assert_eq!(moments(&late, &ends), [count - 2, count - 1]);
}

/// Steps are delayed at most until the load would exceed the limit.
#[test]
fn delayed_steps_raise_no_load_above_the_limit() {
    let mut moved = 0;
    for seed in 0..400 {
        let graph = random(seed, 24);
        let order: Vec<usize> = (0..graph.steps.len()).collect();
        let peak = graph.peak(&order);
        let updates = order.iter().copied().filter(|k| {
            let step = &graph.steps[*k];
            step.writes.is_empty() && step.workspace == 0 && step.after.is_empty()
        });
        let updates = updates.collect();
        for limit in [peak, peak + 10, u64::MAX / 2] {
            let late = delay(&graph, order.clone(), &updates, limit);
            assert!(graph.allows(&late), "seed {seed}");
            assert!(graph.peak(&late) <= limit, "seed {seed}, limit {limit}");
            moved += usize::from(late != order);
            let end: BTreeSet<usize> = late[late.len() - updates.len()..].iter().copied().collect();
            assert!(limit < u64::MAX / 2 || end == updates, "seed {seed}");
        }
    }
    assert!(moved > 100, "{moved}");
}

/// Updates that would raise the peak run before.
#[test]
fn updates_do_not_wait_beyond_the_peak() {
    // Two values at a time take 120 MB, each gradient 4 MB.
    let (s, updates) = updated(15_000_000, [1_000_000; 3]);
    let [early, late] = [false, true].map(|late| ordered_with(&s, late));
    assert!(is_topological(&s, &late.0));
    assert_eq!(late.1[1], early.1[1]);
    assert_eq!(late.1[1], 120_000_000);
    let count = s.0.kernels.len();
    assert_ne!(moments(&late.0, &updates), [count - 3, count - 2, count - 1]);
}

#[test]
fn gradients_never_all_live_at_once() {
    const LAYERS: usize = 12;
    let mut p = TaskGraph::default();
    let mut activations = vec![p.step(&[], &[1000])[0]];
    for n in 0..LAYERS {
        activations.push(p.step(&[activations[n]], &[1000])[0]);
    }
    let mut cotangent = p.step(&[activations[LAYERS]], &[1000])[0];
    let mut gradients = Vec::new();
    for n in (0..LAYERS).rev() {
        gradients.push(p.step(&[activations[n], cotangent], &[4000])[0]);
        cotangent = p.step(&[activations[n], cotangent], &[1000])[0];
    }
    // An optimiser's scalar and all updates are at the end of a program.
    let number = p.step(&[], &[1])[0];
    gradients.iter().for_each(|gradient| drop(p.step(&[*gradient, number], &[])));
    let given: Vec<usize> = (0..p.steps.len()).collect();
    let (_, order, _) = improved(&p);
    // All activations except the dead one, the last cotangent and a gradient, and the scalar.
    let least = 1 + 1000 * LAYERS as u64 + 1000 + 4000;
    assert_eq!([p.peak(&given), p.peak(&order)], [4000 * LAYERS as u64 + 3000, least]);
}

/// The least peak of the rules, the order that the search finds, and whether that is proven
/// optimal.
fn improved(graph: &TaskGraph) -> (u64, Vec<usize>, bool) {
    let before = by_rules(graph).iter().map(|(peak, _)| *peak).min().unwrap();
    let Found { peak, order, proven } = search(graph);
    assert!(graph.allows(&order));
    assert_eq!(graph.peak(&order), peak);
    (before, order, proven)
}

#[test]
fn small_functions_have_the_best_order_nearly_always() {
    let (mut by_rules, mut best, mut certain) = (0, 0, 0);
    for seed in 0..600 {
        let graph = random(seed, 3 + seed as usize % 6);
        let least = graph.least_peak();
        let (before, order, proven) = improved(&graph);
        let peak = graph.peak(&order);
        assert!(peak <= before && (!proven || peak == least), "seed {seed}: {peak}, least {least}");
        by_rules += usize::from(before == least);
        best += usize::from(peak == least);
        certain += usize::from(proven);
    }
    let shares = [by_rules, best, certain].map(|n| n * 100 / 600);
    assert!(
        shares[1] >= 99 && shares[2] >= 85,
        "by rules, after the search, proven: {shares:?} of 100"
    );
}

#[test]
fn a_search_lowers_what_rules_leave() {
    let sum = |count: u64, size: usize| {
        (0..count).fold([0, 0], |[before, after], seed| {
            let graph = random(seed, size);
            let (by_rules, order, _) = improved(&graph);
            assert_eq!(order, improved(&graph).1, "it is deterministic");
            let peak = graph.peak(&order);
            let rules = [Rule::AsGiven, Rule::FreeFirst, Rule::LeastGrowth];
            assert!(rules.iter().all(|rule| peak <= graph.peak(&forward(&graph, *rule))));
            [before + by_rules, after + peak]
        })
    };
    let [before, after] = sum(20, 100);
    assert!(
        after * 100 <= before * 92,
        "the peaks together: {before} by rules, {after} after the search"
    );
    let [before, after] = sum(2, 3000);
    assert!(after <= before);
}

#[test]
fn a_least_cut_is_the_least_load() {
    for seed in 0..200 {
        let count = 2 + seed as usize % 7;
        let graph = random(seed, count);
        let timeline = Timeline::new(&graph, (0..count).collect());
        for k in 0..count {
            let cut = cut(&timeline, k, &(0..count), &mut u64::MAX.clone()).unwrap();
            // All sets of steps that may precede the step.
            let closed = |set: &usize| {
                let of = |k: usize| graph.steps[k].before.iter().all(|b| set >> b & 1 == 1);
                set >> k & 1 == 0 && of(k) && (0..count).all(|s| set >> s & 1 == 0 || of(s))
            };
            let loads =
                (0..1usize << count).filter(closed).map(|set| graph.load(k, |s| set >> s & 1 == 1));
            let least = loads.min().unwrap();
            assert!(cut.load <= least, "seed {seed}, step {k}: {} of {least}", cut.load);
            // With several results or operands in place there are several matchings. The cut
            // assumes the best one.
            if graph.steps[k].in_place.len() < 2 {
                assert_eq!(cut.load, least, "seed {seed}, step {k}");
                for way in &cut.ways {
                    assert_eq!(graph.load(k, |s| way[s]), least, "seed {seed}, step {k}");
                }
            }
        }
    }
}

#[test]
fn steps_that_settle_leave_a_true_account() {
    for seed in 0..100 {
        let count = 30;
        let graph = random(seed, count);
        let mut timeline = Timeline::new(&graph, (0..count).collect());
        let mut random = numbers(seed);
        for _ in 0..20 {
            let (k, before) = (random(count), timeline.worth().0);
            timeline.settle(k, 0, count, &mut u64::MAX.clone());
            assert!(timeline.worth().0 <= before);
            assert!(graph.allows(&timeline.order));
            let again = Timeline::new(&graph, timeline.order.clone());
            assert_eq!(timeline.loads, again.loads);
        }
        assert_eq!(timeline.worth().0, graph.peak(&timeline.order));
    }
}
