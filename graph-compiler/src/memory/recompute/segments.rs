//! Segments: the first half of a training step is cut at moments at which few bytes are alive, and what is read in the second half is made again, segment by segment, from
//! what crosses the cut before it.
//!
//! The middle of a problem is where most is alive without repetitions. A value that was made before it and is read behind it is *kept*. Between two cuts at most so many bytes
//! may be kept; under this limit the cuts are chosen that the fewest bytes cross (a shortest path). Several limits give several schedules, among them the
//! layers of a network, and about the square root of its length (Chen, Xu, Zhang and Guestrin, *Training deep nets with sublinear memory cost*, 2016). They are where fitting
//! starts from, if it would have to repeat nearly everything.

use super::timeline::{Prepared, Timeline};

/// What is known of the first half of a problem.
struct Half {
    /// Number of its steps.
    middle: usize,
    /// For each value its last reader in the half, or its writer.
    last: Vec<usize>,
    /// For each value the first step behind the middle that reads it.
    later: Vec<Option<usize>>,
    /// Bytes that cross each cut to be read in the half.
    crossing: Vec<u64>,
    /// Bytes kept of what was made before each cut.
    kept: Vec<u64>,
}

impl Half {
    fn new(prepared: &Prepared<'_>, middle: usize) -> Self {
        let values = prepared.problem.values.len();
        let (mut last, mut later) = (vec![0; values], vec![None; values]);
        for (step, reads) in prepared.reads.iter().enumerate() {
            prepared.problem.steps[step].writes.iter().for_each(|v| last[*v] = step);
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

    /// The cuts that the fewest bytes cross, the beginning and the middle among them, with at most `most` bytes kept between two, or one step.
    fn cuts(&self, most: u64) -> Vec<usize> {
        let mut best = vec![(0u64, 0usize); self.middle + 1];
        for to in 1..=self.middle {
            let mut least: Option<(u64, usize)> = None;
            for from in (0..to).rev() {
                if from + 1 < to && self.kept[to] - self.kept[from] > most {
                    break;
                }
                let bytes = best[from].0 + self.crossing[from];
                // Of equals the earliest: the fewest cuts.
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
    let steps = prepared.problem.steps.len();
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
        // Half as many again.
        pieces += pieces.div_ceil(2);
    }
    all.reverse();
    all
}

/// The schedule that makes what is kept of each segment again, all at once, before it is first read.
fn schedule(prepared: &Prepared<'_>, half: &Half, cuts: &[usize]) -> Vec<usize> {
    let steps = prepared.problem.steps.len();
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(); steps];
    for pair in cuts.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        // What crosses the end is held for the segments behind it.
        let dropped = |v: &usize| half.later[*v].is_some() && half.last[*v] < to;
        let made = (from..to).flat_map(|s| prepared.problem.steps[s].writes.iter().copied());
        let Some(before) = made.filter(dropped).filter_map(|v| half.later[v]).min() else { continue };
        let mut again = vec![false; to - from];
        for step in (from..to).rev() {
            let needed = again[step - from] || prepared.problem.steps[step].writes.iter().any(dropped);
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
