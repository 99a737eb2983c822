//! Occupancy: the placed buffers in the order of offsets, and the gaps between them.
//!
//! A placement that does not go forward in time must find all placed buffers whose live ranges
//! overlap a given one, in the order of offsets. Buffers are kept in blocks of at most [`LANES`],
//! with the live ranges of a block in contiguous arrays, which vector instructions compare several
//! at a time. This takes as long as a search tree, and the result is already ordered by offset.

/// Buffers per block.
const LANES: usize = 64;

/// Effort: fixed units per placement; overlapping buffers per unit; inspected blocks per unit.
const ONCE: u64 = 3;
const MET: u64 = 16;
const PASSED: u64 = 2;

/// A row of smaller windows is made only if they hold at least this many buffers on average.
const FEW: usize = 256;

/// A placed buffer.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// Its live range, half open.
    pub lower: u32,
    pub upper: u32,
    /// Its bytes, half open.
    pub from: u64,
    pub to: u64,
    /// Its death, numbered as the caller compares it with those of neighbours (see [`cost`]).
    pub death: u32,
}

/// The placed buffers.
pub struct Occupancy {
    ceiling: u64,
    /// The first row has one window, the whole of time. The windows of each further row are a
    /// quarter as long as those of the row before.
    rows: Vec<Row>,
}

/// Windows of equal length. Each begins in the middle of the window before it, so a live range
/// shorter than half the length lies within one window.
struct Row {
    /// Half of the length, in moments.
    half: u32,
    /// For each window the buffers that are live in it.
    windows: Vec<Blocks>,
}

/// Buffers in the order of offsets.
#[derive(Clone, Default)]
struct Blocks(Vec<Block>);

#[derive(Clone)]
struct Block {
    len: usize,
    lower: [u32; LANES],
    upper: [u32; LANES],
    death: [u32; LANES],
    from: [u64; LANES],
    to: [u64; LANES],
}

/// The best gap so far.
struct Choice {
    room: u64,
    offset: u64,
}

impl Occupancy {
    /// An occupancy without buffers, with windows for these numbers of buffers and moments. A
    /// buffer that fits below the ceiling is never placed across or above the ceiling.
    pub fn new(buffers: usize, moments: u32, ceiling: u64) -> Self {
        let mut rows = vec![Row { half: moments.max(1), windows: vec![Blocks::default()] }];
        let (mut count, mut part) = (buffers / 4, 8);
        while count >= FEW && moments >= part {
            let half = moments.div_ceil(part);
            rows.push(Row {
                half,
                windows: vec![Blocks::default(); moments.div_ceil(half) as usize],
            });
            (count, part) = (count / 4, part.saturating_mul(4));
        }
        Occupancy { ceiling, rows }
    }

    /// Inserts a buffer at its offset.
    pub fn insert(&mut self, it: &Placed) {
        for row in &mut self.rows {
            let from = (it.lower / row.half).saturating_sub(1) as usize;
            let to = it.upper.div_ceil(row.half) as usize;
            row.windows[from..to].iter_mut().for_each(|window| window.insert(it));
        }
    }

    /// The smallest window that contains a buffer's live range.
    fn window(&self, it: &Placed) -> &Blocks {
        let mut within = &self.rows[0].windows[0];
        for row in &self.rows[1..] {
            let first = it.lower / row.half;
            if it.upper <= (first + 2).saturating_mul(row.half) {
                within = &row.windows[first as usize];
            }
        }
        within
    }

    /// The offset at which to place `it`, whose `from` is 0. It is in the smallest sufficient gap
    /// below the ceiling, at the end with the neighbour of lower [`cost`]. If there is no such gap,
    /// it is the lowest free offset above the ceiling. None if the effort does not suffice.
    pub fn fitting(&self, it: &Placed, alignment: u64, left: &mut u64) -> Option<u64> {
        let size = it.to;
        let mut best: Option<Choice> = None;
        let mut above = None;
        let (mut end, mut death) = (0, u32::MAX);
        let mut met = 0;
        let mut consider = |end: u64, death: u32, from: u64, next: u32| {
            if end < self.ceiling && from > end {
                let (to, next) =
                    if from > self.ceiling { (self.ceiling, u32::MAX) } else { (from, next) };
                if to - end >= size && best.as_ref().is_none_or(|best| to - end < best.room) {
                    let low = end.next_multiple_of(alignment);
                    if low <= to - size {
                        let high = (to - size) / alignment * alignment;
                        let is_high =
                            to - end > size && cost(next, it.death) < cost(death, it.death);
                        best = Some(Choice {
                            room: to - end,
                            offset: if is_high { high } else { low },
                        });
                    }
                }
            }
            if above.is_none() && from > self.ceiling {
                let low = end.max(self.ceiling).next_multiple_of(alignment);
                if from.checked_sub(size).is_some_and(|highest| highest >= low) {
                    above = Some(low);
                }
            }
        };
        let blocks = &self.window(it).0;
        for block in blocks {
            let mut mask = block.meeting(it.lower, it.upper);
            met += mask.count_ones();
            while mask != 0 {
                let k = mask.trailing_zeros() as usize;
                mask &= mask - 1;
                let (from, to) = (block.from[k], block.to[k]);
                if from > end {
                    consider(end, death, from, block.death[k]);
                }
                if to > end {
                    (end, death) = (to, block.death[k]);
                } else if to == end {
                    death = death.min(block.death[k]);
                }
            }
        }
        consider(end, death, u64::MAX, u32::MAX);
        let looked = u64::from(met) / MET + blocks.len() as u64 / PASSED;
        *left = left.checked_sub(ONCE + looked)?;
        best.map(|best| best.offset).or(above)
    }
}

/// Cost of placing a buffer with death `own` beside a neighbour with death `neighbour`. A neighbour
/// that dies first is worst, since it leaves a hole beside the buffer. Of two neighbours that die
/// later, the one that dies first is better.
fn cost(neighbour: u32, own: u32) -> (bool, u32) {
    (neighbour < own, neighbour.abs_diff(own))
}

impl Blocks {
    fn insert(&mut self, it: &Placed) {
        let at = self.0.partition_point(|block| block.from[0] <= it.from).saturating_sub(1);
        match self.0.get_mut(at) {
            None => self.0.push(Block::EMPTY),
            Some(block) if block.len == LANES => {
                let upper = block.split();
                let behind = it.from >= upper.from[0];
                self.0.insert(at + 1, upper);
                return self.0[at + usize::from(behind)].insert(it);
            }
            Some(_) => {}
        }
        self.0[at].insert(it);
    }
}

impl Block {
    /// The live range of an empty lane overlaps none.
    const EMPTY: Block = Block {
        len: 0,
        lower: [u32::MAX; LANES],
        upper: [0; LANES],
        death: [0; LANES],
        from: [u64::MAX; LANES],
        to: [u64::MAX; LANES],
    };

    /// A bit for each buffer that is live in `lower..upper`.
    fn meeting(&self, lower: u32, upper: u32) -> u64 {
        let mut met = [0u8; LANES];
        for ((met, begin), end) in met.iter_mut().zip(&self.lower).zip(&self.upper) {
            *met = u8::from(*begin < upper) & u8::from(lower < *end);
        }
        // Packs eight bytes of 0 or 1 into eight bits: the product moves each to its own bit of
        // the highest byte.
        let (eights, _) = met.as_chunks::<8>();
        let bits = eights
            .iter()
            .map(|eight| u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56);
        bits.zip(0..).fold(0, |mask, (bits, n)| mask | bits << (8 * n))
    }

    fn insert(&mut self, it: &Placed) {
        let at = self.from[..self.len].partition_point(|from| *from <= it.from);
        self.lower.copy_within(at..self.len, at + 1);
        self.upper.copy_within(at..self.len, at + 1);
        self.death.copy_within(at..self.len, at + 1);
        self.from.copy_within(at..self.len, at + 1);
        self.to.copy_within(at..self.len, at + 1);
        (self.lower[at], self.upper[at], self.death[at]) = (it.lower, it.upper, it.death);
        (self.from[at], self.to[at]) = (it.from, it.to);
        self.len += 1;
    }

    /// Splits off the upper half.
    fn split(&mut self) -> Block {
        let mut upper = Block::EMPTY;
        let half = LANES / 2;
        upper.lower[..half].copy_from_slice(&self.lower[half..]);
        upper.upper[..half].copy_from_slice(&self.upper[half..]);
        upper.death[..half].copy_from_slice(&self.death[half..]);
        upper.from[..half].copy_from_slice(&self.from[half..]);
        upper.to[..half].copy_from_slice(&self.to[half..]);
        self.lower[half..].fill(u32::MAX);
        self.upper[half..].fill(0);
        (upper.len, self.len) = (half, half);
        upper
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn buffer(lower: u32, upper: u32, from: u64, size: u64, death: u32) -> Placed {
        Placed { lower, upper, from, to: from + size, death }
    }

    fn fitting(occupancy: &Occupancy, it: &Placed, alignment: u64) -> u64 {
        occupancy.fitting(it, alignment, &mut 1000).unwrap()
    }

    #[test]
    fn a_buffer_lies_beside_the_neighbour_that_dies_later() {
        // One buffer at 0 to 10, live until 5, and one at 20 to the ceiling, live until 9.
        let mut occupancy = Occupancy::new(9, 10, 30);
        occupancy.insert(&buffer(0, 5, 0, 10, 5));
        occupancy.insert(&buffer(0, 9, 20, 10, 9));
        assert_eq!(fitting(&occupancy, &buffer(1, 4, 0, 4, 4), 1), 10);
        assert_eq!(fitting(&occupancy, &buffer(1, 7, 0, 4, 7), 1), 16);
        assert_eq!(fitting(&occupancy, &buffer(1, 7, 0, 4, 7), 5), 15);
        assert_eq!(fitting(&occupancy, &buffer(1, 7, 0, 10, 7), 1), 10);
        // The buffer is too large for the gap, and the lower buffer dies before it.
        assert_eq!(fitting(&occupancy, &buffer(1, 7, 0, 11, 7), 7), 35);
        assert_eq!(fitting(&occupancy, &buffer(6, 7, 0, 11, 7), 1), 9);
        assert_eq!(occupancy.fitting(&buffer(6, 7, 0, 11, 7), 1, &mut 2), None);
    }

    #[test]
    fn the_smallest_gap_is_taken_and_buffers_above_the_ceiling_do_not_limit_gaps_below() {
        let mut occupancy = Occupancy::new(9, 10, 50);
        occupancy.insert(&buffer(0, 9, 10, 10, 9));
        occupancy.insert(&buffer(0, 9, 25, 10, 9));
        occupancy.insert(&buffer(0, 9, 55, 10, 9));
        assert_eq!(fitting(&occupancy, &buffer(0, 9, 0, 5, 9), 1), 20);
        assert_eq!(fitting(&occupancy, &buffer(0, 9, 0, 9, 9), 1), 1);
        assert_eq!(fitting(&occupancy, &buffer(0, 9, 0, 12, 9), 1), 35);
        assert_eq!(fitting(&occupancy, &buffer(0, 9, 0, 16, 9), 1), 65);
        assert_eq!(fitting(&occupancy, &buffer(0, 9, 0, 20, 9), 1), 65);
        // There is no room below, and the first gap above is too small.
        let mut occupancy = Occupancy::new(1, 2, 0);
        occupancy.insert(&buffer(0, 2, 1, 1, 2));
        assert_eq!(fitting(&occupancy, &buffer(0, 2, 0, 2, 2), 1), 2);
    }

    proptest! {
        #[test]
        fn placed_buffers_do_not_overlap(
            rows in prop::collection::vec((0u32..200, 1u32..40, 1u64..20), 1..300),
            ceiling in 0u64..200,
        ) {
            // A capacity for many buffers, so that there are several rows of windows.
            let mut occupancy = Occupancy::new(1 << 14, 240, ceiling);
            let mut placed: Vec<Placed> = Vec::new();
            for (lower, lifespan, size) in rows {
                let it = buffer(lower, lower + lifespan, 0, size, lower + lifespan);
                let from = fitting(&occupancy, &it, 1);
                let it = Placed { from, to: from + size, ..it };
                prop_assert!(placed.iter().all(|other| other.to <= from
                    || it.to <= other.from
                    || other.upper <= it.lower
                    || it.upper <= other.lower));
                prop_assert!(it.to <= ceiling || from >= ceiling);
                occupancy.insert(&it);
                placed.push(it);
            }
        }
    }
}
