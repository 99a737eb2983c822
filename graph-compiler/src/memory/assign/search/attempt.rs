//! A search with one rank.

use super::instance::Instance;
use rustc_hash::FxHashSet;
use std::ops::Range;

/// Rounds of raising release times per state.
const ROUNDS: usize = 3;

/// The state of a search.
pub(super) struct Attempt<'a> {
    instance: &'a Instance,
    rank: &'a [u32],
    /// The support of each unplaced buffer: the highest end of the placed buffers that it
    /// overlaps in time. The offset of each placed buffer.
    supports: Vec<u64>,
    placed: Vec<bool>,
    /// Undo log: placed buffers, and previous supports.
    log: Vec<Change>,
    /// States that have failed.
    failed: FxHashSet<(u64, u64)>,
    states: u64,
    effort: u64,
    /// For each buffer of the current state, the offset below which it cannot rest.
    releases: Vec<u64>,
    /// For each section, the total size of the buffers visited so far.
    needs: Vec<u64>,
    /// For each section the two lowest ends, and the buffer of the lowest.
    ends: Vec<([u64; 2], u32)>,
}

enum Change {
    Placed(u32),
    Support(u32, u64),
}

/// The last buffer that was placed: its offset and its rank.
type Last = Option<(u64, u32)>;

/// The effort was spent.
struct Ended;

impl<'a> Attempt<'a> {
    pub fn new(instance: &'a Instance, rank: &'a [u32], effort: u64) -> Self {
        let (count, sections) = (instance.len(), instance.loads.len());
        Attempt {
            instance,
            rank,
            supports: (0..count).map(|n| instance.lifted(n, 0)).collect(),
            placed: vec![false; count],
            log: Vec::new(),
            failed: FxHashSet::default(),
            states: 0,
            effort,
            releases: vec![0; count],
            needs: vec![0; sections],
            ends: vec![([u64::MAX; 2], 0); sections],
        }
    }

    /// Number of states visited.
    pub fn states(&self) -> u64 {
        self.states
    }

    /// The offsets, or `Some(None)` if there are none. `None` if the effort ends before.
    pub fn run(&mut self) -> Option<Option<Vec<u64>>> {
        let mut all: Vec<u32> = (0..self.rank.len() as u32).collect();
        all.sort_by_key(|n| (self.instance.sections[*n as usize].start, *n));
        match self.solve_parts(&all, None) {
            Ok(true) => Some(Some(self.supports.clone())),
            Ok(false) => Some(None),
            Err(Ended) => None,
        }
    }

    /// Solves buffers, given in the order of their first sections, that may fall into parts
    /// separate in time. The smallest part goes first.
    fn solve_parts(&mut self, buffers: &[u32], last: Last) -> Result<bool, Ended> {
        let mut parts: Vec<Range<usize>> = Vec::new();
        let mut end = 0;
        for (n, buffer) in buffers.iter().enumerate() {
            let sections = &self.instance.sections[*buffer as usize];
            match parts.last_mut().filter(|_| sections.start < end) {
                Some(part) => part.end = n + 1,
                None => parts.push(n..n + 1),
            }
            end = end.max(sections.end);
        }
        parts.sort_by_key(|part| part.len());
        for part in parts {
            if !self.solve(&buffers[part], last)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Places unplaced buffers. On failure, [`rewind`](Self::rewind) undoes all changes.
    fn solve(&mut self, buffers: &[u32], last: Last) -> Result<bool, Ended> {
        if let [alone] = buffers {
            // A single buffer may rest on its support, even below the last offset.
            let n = *alone as usize;
            self.place(n);
            return Ok(self.supports[n] + self.instance.sizes[n] <= self.instance.height);
        }
        if self.states == self.effort {
            return Err(Ended);
        }
        self.states += 1;
        let Some(highest) = self.highest_next(buffers, last) else { return Ok(false) };
        let state = self.state(buffers, last);
        if self.failed.contains(&state) {
            return Ok(false);
        }
        let mut next: Vec<u32> = buffers
            .iter()
            .copied()
            .filter(|n| self.may_be_next(*n as usize, highest, last))
            .collect();
        next.sort_unstable_by_key(|n| (self.supports[*n as usize], self.rank[*n as usize]));
        let mut rest = Vec::with_capacity(buffers.len());
        for buffer in next {
            let n = buffer as usize;
            let mark = self.log.len();
            let now = Some((self.supports[n], self.rank[n]));
            self.place(n);
            rest.clear();
            rest.extend(buffers.iter().copied().filter(|other| *other != buffer));
            if self.solve_parts(&rest, now)? {
                return Ok(true);
            }
            self.rewind(mark);
        }
        self.failed.insert(state);
        Ok(false)
    }

    /// Whether a buffer may be placed on its support now, which must be at most `highest`.
    fn may_be_next(&self, n: usize, highest: u64, last: Last) -> bool {
        let support = self.supports[n];
        let follows = last.is_none_or(|(offset, rank)| (support, self.rank[n]) > (offset, rank));
        support <= highest && follows && self.releases[n] <= support
    }

    fn place(&mut self, n: usize) {
        self.log.push(Change::Placed(n as u32));
        self.placed[n] = true;
        let top = self.supports[n] + self.instance.sizes[n];
        for other in &self.instance.neighbours[n] {
            let at = *other as usize;
            if !self.placed[at] && self.supports[at] < top {
                self.log.push(Change::Support(*other, self.supports[at]));
                self.supports[at] = self.instance.lifted(at, top);
            }
        }
    }

    fn rewind(&mut self, mark: usize) {
        for change in self.log.drain(mark..).rev() {
            match change {
                Change::Placed(n) => self.placed[n as usize] = false,
                Change::Support(n, before) => self.supports[n as usize] = before,
            }
        }
    }

    /// The highest offset that the next buffer may have. None if this state has no solution.
    ///
    /// Stores the release times in `releases`.
    fn highest_next(&mut self, buffers: &[u32], last: Last) -> Option<u64> {
        let Instance { height, sizes, sections, .. } = self.instance;
        let offset = last.map_or(0, |last| last.0);
        let mut lowest_end = u64::MAX;
        let mut releases: Vec<(u64, u32)> = Vec::with_capacity(buffers.len());
        let (mut first, mut behind) = (usize::MAX, 0);
        for buffer in buffers {
            let n = *buffer as usize;
            lowest_end = lowest_end.min(self.supports[n] + sizes[n]);
            releases.push((self.supports[n].max(offset), *buffer));
            first = first.min(sections[n].start);
            behind = behind.max(sections[n].end);
        }
        for round in 0..=ROUNDS {
            // From the latest release on: buffers released no earlier need their bytes above this
            // release.
            releases.sort_unstable_by(|a, b| b.cmp(a));
            self.needs[first..behind].fill(0);
            for (release, buffer) in &releases {
                let n = *buffer as usize;
                let room = height.checked_sub(*release)?;
                for need in &mut self.needs[sections[n].clone()] {
                    *need += sizes[n];
                    if *need > room {
                        return None;
                    }
                }
            }
            if round == ROUNDS || !self.make_later(&mut releases, first..behind)? {
                break;
            }
        }
        for (release, buffer) in &releases {
            self.releases[*buffer as usize] = *release;
        }
        // All unplaced buffers rest above the next one.
        let room = self.needs[first..behind].iter().map(|need| height - need).min()?;
        // A buffer that would end below the next one comes first.
        Some(room.min(lowest_end - 1))
    }

    /// Raises the release times of buffers that cannot rest below all others of a section.
    /// Returns whether any was raised; None if a buffer cannot rest anywhere.
    fn make_later(&mut self, releases: &mut [(u64, u32)], all: Range<usize>) -> Option<bool> {
        let Instance { height, sizes, sections, .. } = self.instance;
        self.ends[all].fill(([u64::MAX; 2], 0));
        for (release, buffer) in releases.iter() {
            let n = *buffer as usize;
            let end = release + sizes[n];
            for (lowest, whose) in &mut self.ends[sections[n].clone()] {
                if end < lowest[0] {
                    (*lowest, *whose) = ([end, lowest[0]], *buffer);
                } else {
                    lowest[1] = lowest[1].min(end);
                }
            }
        }
        let mut any = false;
        for (release, buffer) in releases {
            for section in sections[*buffer as usize].clone() {
                if *release + self.needs[section] > *height {
                    let (lowest, whose) = &self.ends[section];
                    let end = if whose == buffer { lowest[1] } else { lowest[0] };
                    if end == u64::MAX {
                        return None;
                    }
                    any |= end > *release;
                    *release = end.max(*release);
                }
            }
        }
        Some(any)
    }

    /// A state: the unplaced buffers, their supports, and the last placement. Two 64-bit hashes,
    /// so that collisions are practically impossible.
    fn state(&self, buffers: &[u32], last: Last) -> (u64, u64) {
        let (offset, rank) = last.map_or((0, u64::MAX), |(offset, rank)| (offset, rank.into()));
        let mut hashes = (mixed(offset ^ 0x51), mixed(rank.wrapping_add(offset.rotate_left(32))));
        for buffer in buffers {
            let support = mixed(self.supports[*buffer as usize]);
            let one = mixed(support.wrapping_add(u64::from(*buffer)));
            hashes.0 = hashes.0.wrapping_add(one);
            hashes.1 = hashes.1.wrapping_add(mixed(one ^ 0xA7));
        }
        hashes
    }
}

/// A pseudo-random permutation of 64 bits (the last steps of Steele, Lea and Flood's *SplitMix*,
/// 2014).
fn mixed(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
