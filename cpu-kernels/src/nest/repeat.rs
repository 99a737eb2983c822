//! Loops that only run native code.
//!
//! Each iteration of a loop computes every pointer of its steps again: some fifty nanoseconds,
//! more than a short row takes. If a loop has a single step, of native code, and constant pointer
//! strides, the pointers are computed once and then incremented. There are two such loops. One is
//! the innermost loop of a phase, if lanes are rows (a sum over a few columns has one or two
//! vectors per iteration). The other is the last loop over rows, if a row has no other steps.
//!
//! Loads under conditions read memory in some iterations and a fill in others, as at the edges of
//! an image. The pointers are computed again where a condition begins or ceases to hold.

use super::CompiledNest;
use super::program::{Loop, Native, PhaseProgram, Pointer, Step};
use super::run::Runner;
use std::ops::Range;

/// A loop with one step.
#[derive(Debug)]
pub(super) struct Repeat {
    /// Pointers that change from iteration to iteration, with their strides in bytes.
    strides: Vec<(usize, isize)>,
    /// Pointers under conditions.
    guarded: Vec<Guarded>,
}

/// A pointer that changes as long as its conditions hold.
#[derive(Debug)]
struct Guarded {
    pointer: usize,
    /// In bytes.
    stride: isize,
    /// The changes of the conditions' values.
    steps: Vec<i64>,
}

impl Repeat {
    /// The innermost loop of a compiled phase.
    pub fn of_phase(phase: &PhaseProgram) -> Option<Repeat> {
        let axis = phase.loops.last().filter(|axis| !axis.reverse)?;
        let [Step::Native(native)] = phase.levels.last()?.as_slice() else { return None };
        let in_turn = native.folds.iter().any(|k| phase.reductions[*k].has_lanes());
        let fits = phase.vector.is_none() && !phase.prefix && !in_turn;
        Repeat::of(native, axis).filter(|_| fits)
    }

    /// The last loop over rows, if a block spans all rows of an iteration.
    pub fn of_rows(nest: &CompiledNest) -> Option<Repeat> {
        let whole = nest.rows.as_ref().is_some_and(|rows| rows.positions() <= nest.lanes);
        let ([phase], Some(axis)) = (nest.phases.as_slice(), nest.outer.last()) else {
            return None;
        };
        let native = nest.only_step()?;
        let fits = whole
            && phase.runs
            && phase.loops.is_empty()
            && phase.reductions.is_empty()
            && !axis.reverse;
        Repeat::of(native, axis).filter(|_| fits)
    }

    fn of(native: &Native, axis: &Loop) -> Option<Repeat> {
        if native.past.is_some() {
            return None;
        }
        let stride = |pointer: &Pointer| match pointer {
            Pointer::Register(_) | Pointer::Accumulators(_) => Some(0),
            Pointer::Memory { offset, size, .. } | Pointer::Guarded { offset, size, .. } => {
                Some(offset.stride(axis.axis)?.wrapping_mul(*size as i64) as isize)
            }
        };
        let (mut strides, mut guarded) = (Vec::new(), Vec::new());
        for (k, pointer) in native.entries.iter().enumerate() {
            let stride = stride(pointer)?;
            if let Pointer::Guarded { conditions, .. } = pointer {
                let steps = conditions.iter().map(|c| c.value.stride(axis.axis));
                guarded.push(Guarded { pointer: k, stride, steps: steps.collect::<Option<_>>()? });
            } else if stride != 0 {
                strides.push((k, stride));
            }
        }
        Some(Repeat { strides, guarded })
    }
}

impl CompiledNest {
    /// The only step of the only phase, if it is native code.
    fn only_step(&self) -> Option<&Native> {
        let [phase] = self.phases.as_slice() else { return None };
        let mut steps = phase.levels.iter().flatten();
        match (steps.next(), steps.next()) {
            (Some(Step::Native(native)), None) => Some(native),
            _ => None,
        }
    }
}

impl Runner<'_> {
    /// Runs all iterations of the innermost loop of a phase.
    pub(super) fn repeat(&mut self, phase: &PhaseProgram, repeat: &Repeat) {
        let (Some(axis), Some([Step::Native(native)])) =
            (phase.loops.last(), phase.levels.last().map(Vec::as_slice))
        else {
            return;
        };
        if axis.extent == 0 {
            return;
        }
        self.turns(native, phase, axis, 0..axis.extent, repeat);
        for k in &native.folds {
            phase.reductions[*k].taken(&self.frame, self.progress, axis.extent);
        }
    }

    /// Runs some units of a nest whose rows have one step; `lanes` are positions of its rows.
    pub(super) fn repeat_rows(
        &mut self,
        units: Range<usize>,
        lanes: Range<usize>,
        repeat: &Repeat,
    ) {
        let nest = self.nest;
        let (Some(rows), Some(native), Some(axis)) =
            (&nest.rows, nest.only_step(), nest.outer.last())
        else {
            return;
        };
        let mut unit = units.start;
        while unit < units.end {
            self.enter(unit);
            self.begin_block(rows, lanes.start, lanes.len());
            let first = unit % axis.extent;
            let turns = (axis.extent - first).min(units.end - unit);
            self.turns(native, &nest.phases[0], axis, first..first + turns, repeat);
            unit += turns;
        }
    }

    /// Runs some iterations of a loop with one step; at least one.
    fn turns(
        &mut self,
        native: &Native,
        phase: &PhaseProgram,
        axis: &Loop,
        turns: Range<usize>,
        repeat: &Repeat,
    ) {
        if cfg!(debug_assertions) {
            // The pointers of the last iteration are checked as well.
            self.frame.counters[axis.axis as usize] = turns.end as i64 - 1;
            self.fill_table(native, Some(phase));
        }
        let mut next = turns.start;
        while next < turns.end {
            self.frame.counters[axis.axis as usize] = next as i64;
            let table = self.fill_table(native, Some(phase));
            let count = self.alike(native, repeat, table).min(turns.end - next);
            let distances = table.wrapping_add(native.entries.len()).cast::<isize>();
            for _ in 0..count {
                // SAFETY: as for a single run: the increments give the same pointers as filling
                // the table again.
                unsafe {
                    native.function.run(table, self.frame.count);
                    for (k, stride) in &repeat.strides {
                        let pointer = table.add(*k);
                        pointer.write(pointer.read().wrapping_offset(*stride));
                    }
                    for guarded in &repeat.guarded {
                        let pointer = table.add(guarded.pointer);
                        let distance = distances.add(guarded.pointer).read();
                        pointer.write(pointer.read().wrapping_offset(distance));
                    }
                }
            }
            next += count;
        }
        self.frame.counters[axis.axis as usize] = turns.end as i64 - 1;
    }

    /// Writes the distances by which pointers under conditions change. Returns the number of
    /// iterations, from the current one on, for which they are right.
    fn alike(&self, native: &Native, repeat: &Repeat, table: *mut *mut u8) -> usize {
        let distances = table.wrapping_add(native.entries.len()).cast::<isize>();
        let mut count = usize::MAX;
        for Guarded { pointer, stride, steps } in &repeat.guarded {
            let Pointer::Guarded { conditions, .. } = &native.entries[*pointer] else { continue };
            let holds = conditions.iter().all(|condition| condition.holds(&self.frame));
            // SAFETY: the table has room for a distance of each pointer.
            unsafe { distances.add(*pointer).write(if holds { *stride } else { 0 }) };
            for (condition, step) in conditions.iter().zip(steps) {
                count = count.min(condition.lasts(&self.frame, *step));
            }
        }
        count
    }
}
