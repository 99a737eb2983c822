//! A shelf: who has been placed, in the order of offsets, and where there is room beside them.
//!
//! Whoever is to be placed in any order of time has to look at all that it meets, and to find out who these are. In blocks of some dozens, whose lifespans lie side by side, a
//! processor compares several at once and passes by those that are not met; that is as quick as a tree, and what is met is in order.

/// Buffers of a block.
const LANES: usize = 64;

/// What a buffer takes anyway, in units of effort; buffers that are met, and blocks that are passed by, that take as long as one.
const ONCE: u64 = 3;
const MET: u64 = 16;
const PASSED: u64 = 2;

/// Buffers of a window on average, as far as none is long, below which there are no smaller windows.
const FEW: usize = 256;

/// A buffer on a shelf.
#[derive(Clone, Copy, Debug)]
pub struct Shelved {
    /// The first moment at which it lives, and the first at which it lives no more.
    pub lower: u32,
    pub upper: u32,
    /// Its first byte, and the first behind it.
    pub from: u64,
    pub to: u64,
    /// When it counts as dead, for those that lie beside it.
    pub death: u32,
}

/// Those placed.
pub struct Shelf {
    ceiling: u64,
    /// The whole of time, and windows of a quarter of it, of a quarter of these and so on.
    rows: Vec<Row>,
}

/// Windows of one length, each of which begins in the middle of the one before: whoever lives for less than half of the length is within one.
struct Row {
    /// Half of the length, in moments.
    half: u32,
    /// For each window who lives in it.
    windows: Vec<Blocks>,
}

/// In the order of offsets.
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

impl Shelf {
    /// An empty shelf for so many buffers on a line of so many moments; what fits below the ceiling is not put across or above it.
    pub fn new(buffers: usize, moments: u32, ceiling: u64) -> Self {
        let mut rows = vec![Row { half: moments.max(1), windows: vec![Blocks::default()] }];
        let (mut count, mut part) = (buffers / 4, 8);
        while count >= FEW && moments >= part {
            let half = moments.div_ceil(part);
            rows.push(Row { half, windows: vec![Blocks::default(); moments.div_ceil(half) as usize] });
            (count, part) = (count / 4, part.saturating_mul(4));
        }
        Shelf { ceiling, rows }
    }

    /// Puts a buffer where it says.
    pub fn insert(&mut self, it: &Shelved) {
        for row in &mut self.rows {
            let from = (it.lower / row.half).saturating_sub(1) as usize;
            let to = it.upper.div_ceil(row.half) as usize;
            row.windows[from..to].iter_mut().for_each(|window| window.insert(it));
        }
    }

    /// The smallest window that a buffer is within.
    fn window(&self, it: &Shelved) -> &Blocks {
        let mut within = &self.rows[0].windows[0];
        for row in &self.rows[1..] {
            let first = it.lower / row.half;
            if it.upper <= (first + 2).saturating_mul(row.half) {
                within = &row.windows[first as usize];
            }
        }
        within
    }

    /// Where a buffer fits, whose bytes count from 0: into the smallest gap that is large enough, at the end beside the neighbour that is better; if there is none, above the ceiling.
    /// Nothing if the effort ends before.
    pub fn fitting(&self, it: &Shelved, alignment: u64, left: &mut u64) -> Option<u64> {
        let size = it.to;
        let mut best: Option<Choice> = None;
        let mut above = None;
        let (mut end, mut death) = (0, u32::MAX);
        let mut met = 0;
        let mut consider = |end: u64, death: u32, from: u64, next: u32| {
            if end < self.ceiling && from > end {
                let (to, next) = if from > self.ceiling { (self.ceiling, u32::MAX) } else { (from, next) };
                if to - end >= size && best.as_ref().is_none_or(|best| to - end < best.room) {
                    let low = end.next_multiple_of(alignment);
                    if low <= to - size {
                        let high = (to - size) / alignment * alignment;
                        let is_high = to - end > size && cost(next, it.death) < cost(death, it.death);
                        best = Some(Choice { room: to - end, offset: if is_high { high } else { low } });
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

/// How bad it is to lie beside somebody who dies then: worst are those that die before, for what they leave is beside what stays; of the others, those that die much later.
fn cost(neighbour: u32, own: u32) -> (bool, u32) {
    (neighbour < own, neighbour.abs_diff(own))
}

impl Blocks {
    fn insert(&mut self, it: &Shelved) {
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
    /// Lanes without a buffer meet nobody.
    const EMPTY: Block = Block {
        len: 0,
        lower: [u32::MAX; LANES],
        upper: [0; LANES],
        death: [0; LANES],
        from: [u64::MAX; LANES],
        to: [u64::MAX; LANES],
    };

    /// A bit for each buffer that lives in this time.
    fn meeting(&self, lower: u32, upper: u32) -> u64 {
        let mut met = [0u8; LANES];
        for ((met, begin), end) in met.iter_mut().zip(&self.lower).zip(&self.upper) {
            *met = u8::from(*begin < upper) & u8::from(lower < *end);
        }
        // Eight bytes of 0 or 1 to eight bits: each is moved to the highest byte, by its own distance.
        let (eights, _) = met.as_chunks::<8>();
        let bits =
            eights.iter().map(|eight| u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56);
        bits.zip(0..).fold(0, |mask, (bits, n)| mask | bits << (8 * n))
    }

    fn insert(&mut self, it: &Shelved) {
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

    /// Takes the upper half off.
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

    fn shelved(lower: u32, upper: u32, from: u64, size: u64, death: u32) -> Shelved {
        Shelved { lower, upper, from, to: from + size, death }
    }

    fn fitting(shelf: &Shelf, it: &Shelved, alignment: u64) -> u64 {
        shelf.fitting(it, alignment, &mut 1000).unwrap()
    }

    #[test]
    fn a_buffer_lies_beside_who_dies_later() {
        // On the ground until 5, and from 20 up to the ceiling until 9.
        let mut shelf = Shelf::new(9, 10, 30);
        shelf.insert(&shelved(0, 5, 0, 10, 5));
        shelf.insert(&shelved(0, 9, 20, 10, 9));
        assert_eq!(fitting(&shelf, &shelved(1, 4, 0, 4, 4), 1), 10);
        assert_eq!(fitting(&shelf, &shelved(1, 7, 0, 4, 7), 1), 16);
        assert_eq!(fitting(&shelf, &shelved(1, 7, 0, 4, 7), 5), 15);
        assert_eq!(fitting(&shelf, &shelved(1, 7, 0, 10, 7), 1), 10);
        // It is too large for the gap, and lives longer than the lower one.
        assert_eq!(fitting(&shelf, &shelved(1, 7, 0, 11, 7), 7), 35);
        assert_eq!(fitting(&shelf, &shelved(6, 7, 0, 11, 7), 1), 9);
        assert_eq!(shelf.fitting(&shelved(6, 7, 0, 11, 7), 1, &mut 2), None);
    }

    #[test]
    fn the_smallest_gap_is_taken_and_what_is_above_the_ceiling_is_in_nobodys_way() {
        let mut shelf = Shelf::new(9, 10, 50);
        shelf.insert(&shelved(0, 9, 10, 10, 9));
        shelf.insert(&shelved(0, 9, 25, 10, 9));
        shelf.insert(&shelved(0, 9, 55, 10, 9));
        assert_eq!(fitting(&shelf, &shelved(0, 9, 0, 5, 9), 1), 20);
        assert_eq!(fitting(&shelf, &shelved(0, 9, 0, 9, 9), 1), 1);
        assert_eq!(fitting(&shelf, &shelved(0, 9, 0, 12, 9), 1), 35);
        assert_eq!(fitting(&shelf, &shelved(0, 9, 0, 16, 9), 1), 65);
        assert_eq!(fitting(&shelf, &shelved(0, 9, 0, 20, 9), 1), 65);
        // Nothing is below, and the first gap above is too small.
        let mut shelf = Shelf::new(1, 2, 0);
        shelf.insert(&shelved(0, 2, 1, 1, 2));
        assert_eq!(fitting(&shelf, &shelved(0, 2, 0, 2, 2), 1), 2);
    }

    proptest! {
        #[test]
        fn whoever_is_met_is_seen(
            rows in prop::collection::vec((0u32..200, 1u32..40, 1u64..20), 1..300),
            ceiling in 0u64..200,
        ) {
            // As if there were many, so that there are windows.
            let mut shelf = Shelf::new(1 << 14, 240, ceiling);
            let mut placed: Vec<Shelved> = Vec::new();
            for (lower, lifespan, size) in rows {
                let it = shelved(lower, lower + lifespan, 0, size, lower + lifespan);
                let from = fitting(&shelf, &it, 1);
                let it = Shelved { from, to: from + size, ..it };
                prop_assert!(placed.iter().all(|other| other.to <= from
                    || it.to <= other.from
                    || other.upper <= it.lower
                    || it.upper <= other.lower));
                prop_assert!(it.to <= ceiling || from >= ceiling);
                shelf.insert(&it);
                placed.push(it);
            }
        }
    }
}
