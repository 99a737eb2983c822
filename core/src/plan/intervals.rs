//! Maps from bytes to the values that they hold, with rollback.
//!
//! There are several memories, each a map from disjoint intervals to values. A value is present
//! whole or not at all: a write to any of its bytes removes it. Every change is logged, so the
//! branches of an `If` can start from the same state ([`Intervals::mark`],
//! [`Intervals::rollback`]). Both cost O(changes) since the mark.

use super::ValueId;
use std::collections::BTreeMap;

/// Bytes `start..end` of a memory, at least one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Span {
    pub memory: usize,
    pub start: u64,
    pub end: u64,
}

impl Span {
    pub fn meets(&self, other: &Span) -> bool {
        self.memory == other.memory && self.start < other.end && other.start < self.end
    }
}

/// Several memories with a log of changes.
#[derive(Default)]
pub(super) struct Intervals {
    memories: Vec<BTreeMap<u64, (u64, ValueId)>>,
    log: Vec<Change>,
}

enum Change {
    Inserted { memory: usize, start: u64 },
    Removed { span: Span, value: ValueId },
}

impl Intervals {
    /// Adds an empty memory and returns its number.
    pub fn add_memory(&mut self) -> usize {
        self.memories.push(BTreeMap::new());
        self.memories.len() - 1
    }

    /// True if the bytes hold exactly this value.
    pub fn holds(&self, span: Span, value: ValueId) -> bool {
        self.memories[span.memory].get(&span.start) == Some(&(span.end, value))
    }

    /// The values that overlap the bytes, last first.
    pub fn overlapping(&self, span: Span) -> impl Iterator<Item = (Span, ValueId)> + '_ {
        let before_end = self.memories[span.memory].range(..span.end).rev();
        before_end.take_while(move |(_, (end, _))| *end > span.start).map(
            move |(start, (end, value))| {
                (Span { memory: span.memory, start: *start, end: *end }, *value)
            },
        )
    }

    /// Removes all values that overlap the bytes.
    pub fn clear(&mut self, span: Span) {
        loop {
            let next = self.overlapping(span).next();
            let Some((found, value)) = next else { return };
            self.memories[found.memory].remove(&found.start);
            self.log.push(Change::Removed { span: found, value });
        }
    }

    /// Makes the bytes hold this value.
    pub fn write(&mut self, span: Span, value: ValueId) {
        self.clear(span);
        self.memories[span.memory].insert(span.start, (span.end, value));
        self.log.push(Change::Inserted { memory: span.memory, start: span.start });
    }

    /// All values of a memory, in order.
    pub fn iter(&self, memory: usize) -> impl Iterator<Item = (Span, ValueId)> + '_ {
        self.memories[memory]
            .iter()
            .map(move |(start, (end, value))| (Span { memory, start: *start, end: *end }, *value))
    }

    /// A mark of the current state, for [`Intervals::rollback`].
    pub fn mark(&self) -> usize {
        self.log.len()
    }

    /// Undoes everything since the mark.
    pub fn rollback(&mut self, mark: usize) {
        for change in self.log.drain(mark..).rev() {
            match change {
                Change::Inserted { memory, start } => {
                    self.memories[memory].remove(&start);
                }
                Change::Removed { span, value } => {
                    self.memories[span.memory].insert(span.start, (span.end, value));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span(start: u64, end: u64) -> Span {
        Span { memory: 0, start, end }
    }

    #[test]
    fn a_value_is_there_whole_or_not() {
        let mut m = Intervals::default();
        m.add_memory();
        m.write(span(0, 10), ValueId(1));
        m.write(span(10, 20), ValueId(2));
        assert!(m.holds(span(0, 10), ValueId(1)) && !m.holds(span(0, 9), ValueId(1)));
        m.write(span(9, 10), ValueId(3));
        assert!(!m.holds(span(0, 10), ValueId(1)) && m.holds(span(10, 20), ValueId(2)));
    }

    proptest! {
        /// Against an array with one entry per byte.
        #[test]
        fn bytes_agree(
            steps in prop::collection::vec((0u64..30, 1u64..12, 0u32..4), 0..40),
            back in 0usize..40,
        ) {
            let mut m = Intervals::default();
            m.add_memory();
            // For each byte, the write that it is from.
            let mut bytes: Vec<Option<usize>> = vec![None; 64];
            let mut state = (m.mark(), bytes.clone());
            let whole = |bytes: &[Option<usize>], n: usize, (start, length, _): (u64, u64, u32)| {
                bytes[start as usize..(start + length) as usize].iter().all(|b| *b == Some(n))
            };
            for (n, (start, length, kind)) in steps.iter().copied().enumerate() {
                if n == back {
                    state = (m.mark(), bytes.clone());
                }
                let s = span(start, start + length);
                if kind == 0 { m.clear(s) } else { m.write(s, ValueId(n as u32)) }
                bytes[start as usize..(start + length) as usize].fill((kind > 0).then_some(n));
                for (k, step) in steps.iter().take(n + 1).enumerate() {
                    let held = m.holds(span(step.0, step.0 + step.1), ValueId(k as u32));
                    prop_assert_eq!(held, step.2 > 0 && whole(&bytes, k, *step));
                }
            }
            m.rollback(state.0);
            for (k, step) in steps.iter().enumerate() {
                let held = m.holds(span(step.0, step.0 + step.1), ValueId(k as u32));
                prop_assert_eq!(held, step.2 > 0 && whole(&state.1, k, *step));
            }
        }
    }
}
