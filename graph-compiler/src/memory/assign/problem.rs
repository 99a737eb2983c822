//! The static memory problem: buffers with live ranges and sizes, to be given offsets.
//!
//! Time is a line of moments (steps of a plan), live ranges are half open, and two buffers that
//! are live at one moment may not share a byte. Buffers that share their bytes (in place) are one
//! buffer here; the caller merges them. This is the form of minimalloc's CSV files
//! (`id,lower,upper,size`).
//!
//! A buffer may have an alignment or a fixed offset.

/// A buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Buffer {
    /// The first moment of its live range.
    pub lower: u64,
    /// The first moment after its live range; above `lower`.
    pub upper: u64,
    /// Bytes.
    pub size: u64,
    /// Its offset is a multiple of this, which is at least 1.
    pub alignment: u64,
    /// Its offset, if that is fixed.
    pub fixed: Option<u64>,
}

/// Buffers to be placed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Problem {
    /// The buffers, in any order.
    pub buffers: Vec<Buffer>,
}

/// A solution of a problem.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Solution {
    /// The first byte of each buffer.
    pub offsets: Vec<u64>,
    /// The greatest end of a buffer.
    pub height: u64,
}

impl Buffer {
    /// A buffer without constraints on its offset.
    pub fn new(lower: u64, upper: u64, size: u64) -> Self {
        Buffer { lower, upper, size, alignment: 1, fixed: None }
    }

    /// Whether its alignment and fixed offset allow an offset.
    pub fn may_lie_at(&self, offset: u64) -> bool {
        offset.is_multiple_of(self.alignment) && self.fixed.is_none_or(|fixed| fixed == offset)
    }

    /// True if it takes bytes at some moment.
    pub fn lives(&self) -> bool {
        self.size > 0 && self.lower < self.upper
    }

    /// True if the live ranges overlap.
    pub fn meets(&self, other: &Buffer) -> bool {
        self.lower < other.upper && other.lower < self.upper
    }

    /// Length of its live range in moments.
    pub fn lifespan(&self) -> u64 {
        self.upper - self.lower
    }
}

impl Problem {
    /// Adds a buffer and returns its number.
    pub fn push(&mut self, buffer: Buffer) -> usize {
        self.buffers.push(buffer);
        self.buffers.len() - 1
    }

    /// True if no buffer has an alignment or a fixed offset.
    pub fn is_plain(&self) -> bool {
        self.buffers.iter().all(|b| b.alignment == 1 && b.fixed.is_none())
    }

    /// The greatest common divisor of all sizes and fixed offsets. It divides the offsets of
    /// stacked buffers. 1 if there are alignments.
    pub fn unit(&self) -> u64 {
        let numbers = self.buffers.iter().flat_map(|b| [b.size, b.fixed.unwrap_or(0)]);
        let unit =
            if self.buffers.iter().all(|b| b.alignment == 1) { numbers.fold(0, gcd) } else { 1 };
        unit.max(1)
    }

    /// A pair of buffers that share a byte while both are live, if there is one. A buffer whose
    /// offset is missing, invalid or beyond the height counts as a pair with itself.
    pub fn conflict(&self, solution: &Solution) -> Option<(usize, usize)> {
        let good = |i: usize| {
            let (buffer, offset) = (&self.buffers[i], *solution.offsets.get(i)?);
            let end = offset.checked_add(buffer.size)?;
            Some(end <= solution.height && buffer.may_lie_at(offset))
        };
        if let Some(i) = (0..self.buffers.len()).find(|i| good(*i) != Some(true)) {
            return Some((i, i));
        }
        // A sweep over time: deaths before births. Live buffers are ordered by offset and do not
        // overlap.
        let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * self.buffers.len());
        for (i, buffer) in self.buffers.iter().enumerate().filter(|(_, b)| b.lives()) {
            events.push((buffer.lower, true, i));
            events.push((buffer.upper, false, i));
        }
        events.sort_unstable();
        let mut living = std::collections::BTreeMap::new();
        for (_, birth, i) in events {
            let start = solution.offsets[i];
            if !birth {
                living.remove(&start);
                continue;
            }
            let before = living.range(..=start).next_back().map(|(_, j)| *j);
            let after = living.range(start..).next().map(|(_, j)| *j);
            let clash = |j: usize| {
                solution.offsets[j] < start + self.buffers[i].size
                    && start < solution.offsets[j] + self.buffers[j].size
            };
            if let Some(j) = before.into_iter().chain(after).find(|j| clash(*j)) {
                return Some((j, i));
            }
            living.insert(start, i);
        }
        None
    }
}
fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
