//! Segments: the first half of a training step is cut at moments of few live bytes. Values that
//! the second half reads are recomputed segment by segment, from the values that cross the
//! preceding cut.
//!
//! The middle of a computation is the moment of the greatest load without repetitions. A value that
//! is written before it and read after it is *kept*. The bytes kept between two cuts are limited;
//! under this limit the cuts that the fewest bytes cross are chosen (a shortest path). Several
//! limits give several schedules, among them the layers of a network, and about the square root
//! of its length (Chen, Xu, Zhang and Guestrin, *Training deep nets with sublinear memory cost*,
//! 2016). Fitting starts from these schedules if it would otherwise have to repeat nearly
//! everything.

use super::timeline::{Prepared, Timeline};

/// Data of the first half of a computation.
struct Half {
    /// Number of its steps.
    middle: usize,
    /// The last reader of each value in the half, or its writer.
    last: Vec<usize>,
    /// The first step after the middle that reads each value.
    later: Vec<Option<usize>>,
    /// For each cut the bytes written before it and read after it in the half.
    crossing: Vec<u64>,
    /// For each cut the kept bytes written before it.
    kept: Vec<u64>,
}

impl Half {
    fn new(prepared: &Prepared<'_>, middle: usize) -> Self {
        let values = prepared.computation.values.len();
        let (mut last, mut later) = (vec![0; values], vec![None; values]);
        for (step, reads) in prepared.reads.iter().enumerate() {
            prepared.computation.steps[step].writes.iter().for_each(|v| last[*v] = step);
            for value in reads {
                if step < middle {
                    last[*value] = step;
                } else if later[*value].is_none() {
                    later[*value] = Some(step);
                }
            }
        }
        let (mut crossing, mut kept) = (vec![0i64; middle + 2], vec![0u64; middle + 1]);
        for (value, writer) in prepared.writer.iter().enumerate() {
            let Some(made) = writer.filter(|w| *w < middle) else { continue };
            let bytes = prepared.bytes(value);
            crossing[made + 1] += bytes;
            crossing[last[value] + 1] -= bytes;
            if later[value].is_some() {
                kept[made + 1] += bytes as u64;
            }
        }
        let mut live = 0;
        let crossing = crossing[..=middle].iter().map(|c| {
            live += c;
            live as u64
        });
        let crossing = crossing.collect();
        (1..=middle).for_each(|cut| kept[cut] += kept[cut - 1]);
        Half { middle, last, later, crossing, kept }
    }

    /// The cuts that the fewest bytes cross, the beginning and the middle included. A segment
    /// keeps at most `most` bytes, or is one step.
    fn cuts(&self, most: u64) -> Vec<usize> {
        let mut best = vec![(0u64, 0usize); self.middle + 1];
        for to in 1..=self.middle {
            let mut least: Option<(u64, usize)> = None;
            for from in (0..to).rev() {
                if from + 1 < to && self.kept[to] - self.kept[from] > most {
                    break;
                }
                let bytes = best[from].0 + self.crossing[from];
                // Of equals the earliest, which gives the fewest cuts.
                if least.is_none_or(|(b, _)| bytes <= b) {
                    least = Some((bytes, from));
                }
            }
            best[to] = least.expect("a segment of one step is allowed");
        }
        let mut cuts = vec![self.middle];
        while let Some(cut) = cuts.last().copied().filter(|c| *c > 0) {
            cuts.push(best[cut].1);
        }
        cuts.reverse();
        cuts
    }
}

/// Schedules in segments, from many short segments to few long ones.
pub(super) fn schedules(prepared: &Prepared<'_>) -> Vec<Vec<usize>> {
    let steps = prepared.computation.steps.len();
    let given = Timeline::new(prepared, (0..steps).collect(), i64::MAX);
    let Some(middle) = (0..steps).rev().max_by_key(|m| given.load[*m]) else { return Vec::new() };
    let half = Half::new(prepared, middle);
    let mut seen: Vec<Vec<usize>> = Vec::new();
    let mut all = Vec::new();
    let mut pieces = 1;
    while pieces <= 2 * middle {
        let cuts = half.cuts(half.kept[middle] / pieces as u64);
        if !seen.contains(&cuts) {
            all.push(schedule(prepared, &half, &cuts));
            seen.push(cuts);
        }
        // Increases by half.
        pieces += pieces.div_ceil(2);
    }
    all.reverse();
    all
}

/// The schedule that recomputes the kept values of each segment, all at once, before the first of
/// them is read.
fn schedule(prepared: &Prepared<'_>, half: &Half, cuts: &[usize]) -> Vec<usize> {
    let steps = prepared.computation.steps.len();
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(); steps];
    for pair in cuts.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        // Values that cross the segment's end stay live for the segments after it.
        let dropped = |v: &usize| half.later[*v].is_some() && half.last[*v] < to;
        let made = (from..to).flat_map(|s| prepared.computation.steps[s].writes.iter().copied());
        let Some(before) = made.filter(dropped).filter_map(|v| half.later[v]).min() else {
            continue;
        };
        let mut again = vec![false; to - from];
        for step in (from..to).rev() {
            let needed =
                again[step - from] || prepared.computation.steps[step].writes.iter().any(dropped);
            if needed && prepared.may_repeat(step, before) {
                again[step - from] = true;
                let inputs = prepared.reads[step].iter().filter_map(|v| prepared.writer[*v]);
                inputs.filter(|w| (from..to).contains(w)).for_each(|w| again[w - from] = true);
            } else {
                again[step - from] = false;
            }
        }
        groups[before].extend((from..to).filter(|s| again[s - from]));
    }
    let mut executions = Vec::new();
    for (step, group) in groups.into_iter().enumerate() {
        executions.extend(group);
        executions.push(step);
    }
    executions
}
