//! A cache: sectored, set-associative, with replacement of the least recently used line.

use super::LINE;

/// A place for a line.
#[derive(Clone, Copy)]
struct Way {
    line: u64,
    /// When it was used last; 0 for never.
    used: u64,
    /// Sectors that hold the data of memory or newer ones.
    valid: u8,
    /// Sectors that are newer than memory.
    dirty: u8,
}

/// A cache, without its data.
pub(super) struct Cache {
    ways: Vec<Way>,
    /// Lines of a set.
    width: usize,
    sets: u64,
    clock: u64,
}

/// Result of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outcome {
    /// Sectors, among those asked for, that were valid before.
    pub(super) hits: u8,
    /// Dirty sectors of the line that left the cache.
    pub(super) written_back: u8,
}

impl Cache {
    /// An empty cache. One that is smaller than a set of `ways` lines never holds anything.
    pub(super) fn new(bytes: u64, ways: u32) -> Cache {
        let sets = bytes / (LINE * u64::from(ways));
        let way = Way { line: 0, used: 0, valid: 0, dirty: 0 };
        let width = ways as usize;
        Cache { ways: vec![way; sets as usize * width], width, sets, clock: 0 }
    }

    /// The set of a line. Any `sets` lines in a row, from a multiple of `sets` on, take one set
    /// each. The next ones are rotated by a pseudorandom distance, so that addresses at a large
    /// power of two from each other do not share a set. The function of hardware is not published.
    fn set(&self, line: u64) -> usize {
        let (turn, place) = (line / self.sets, line % self.sets);
        // Fibonacci hashing: Knuth, The Art of Computer Programming, volume 3, section 6.4.
        let rotation = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((place + rotation) % self.sets) as usize
    }

    /// Accesses sectors of a line. Afterwards the sectors of `valid` are valid, and those of
    /// `dirty` are newer than memory.
    pub(super) fn access(&mut self, line: u64, asked: u8, valid: u8, dirty: u8) -> Outcome {
        if self.sets == 0 {
            return Outcome { hits: 0, written_back: 0 };
        }
        self.clock += 1;
        let first = self.set(line) * self.width;
        let set = &mut self.ways[first..first + self.width];
        if let Some(way) = set.iter_mut().find(|way| way.used != 0 && way.line == line) {
            let hits = way.valid & asked;
            way.used = self.clock;
            way.valid |= valid;
            way.dirty |= dirty;
            return Outcome { hits, written_back: 0 };
        }
        let oldest = set.iter_mut().min_by_key(|way| way.used).expect("a set has a line");
        let written_back = oldest.dirty;
        *oldest = Way { line, used: self.clock, valid, dirty };
        Outcome { hits: 0, written_back }
    }

    /// The number of sectors that are newer than memory.
    pub(super) fn dirty(&self) -> u64 {
        self.ways.iter().map(|way| u64::from(way.dirty.count_ones())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_line_leaves() {
        // Two sets of two lines, and three lines of one set.
        let mut cache = Cache::new(4 * LINE, 2);
        let same: Vec<u64> = (0..20).filter(|&line| cache.set(line) == cache.set(0)).collect();
        let [a, b, c] = same[..3] else { panic!("{same:?}") };
        let hits = |outcome: Outcome| outcome.hits;
        assert_eq!(hits(cache.access(a, 0b0011, 0b0011, 0)), 0);
        assert_eq!(hits(cache.access(b, 0b0001, 0b0001, 0)), 0);
        // A sector of a line that is there, but not the other.
        assert_eq!(hits(cache.access(a, 0b0110, 0b0110, 0)), 0b0010);
        // b is older than a.
        assert_eq!(hits(cache.access(c, 0b1000, 0b1000, 0)), 0);
        assert_eq!(hits(cache.access(a, 0b1111, 0b1111, 0)), 0b0111);
        assert_eq!(hits(cache.access(b, 0b0001, 0b0001, 0)), 0);
        assert_eq!(hits(cache.access(c, 0b1000, 0b1000, 0)), 0);
    }

    #[test]
    fn dirty_sectors_are_written_back_once() {
        let mut cache = Cache::new(LINE, 1);
        assert_eq!(cache.access(7, 0b0101, 0b0100, 0b0101).written_back, 0);
        assert_eq!(cache.dirty(), 2);
        // The first sector was written in part, so it is dirty and not valid.
        assert_eq!(cache.access(7, 0b0101, 0b0101, 0), Outcome { hits: 0b0100, written_back: 0 });
        assert_eq!(cache.access(8, 1, 1, 0).written_back, 0b0101);
        assert_eq!(cache.access(7, 1, 1, 0).written_back, 0);
        assert_eq!(cache.dirty(), 0);
    }

    #[test]
    fn lines_in_a_row_fill_all_sets() {
        let cache = Cache::new(12 * LINE, 4);
        for turn in 0..50 {
            let mut sets: Vec<usize> = (turn * 3..turn * 3 + 3).map(|l| cache.set(l)).collect();
            sets.sort_unstable();
            assert_eq!(sets, [0, 1, 2]);
        }
        assert_eq!(Cache::new(LINE, 4).access(1, 1, 1, 1), Outcome { hits: 0, written_back: 0 });
    }
}
