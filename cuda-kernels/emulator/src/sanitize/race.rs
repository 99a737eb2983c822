//! The access history of memory, in which races are found.
//!
//! For each word of memory the table holds its last write and two reads since (the first, and the
//! last by another thread), each with thread, time and instruction. An access conflicts with an
//! earlier one of another thread if one of them writes, not both are *strong* (atomic, volatile,
//! relaxed…: PTX's memory model calls two such accesses morally strong, and no race), and they
//! are not ordered. The caller, which tracks the barriers, decides what is ordered.
//!
//! Words are the usual unit. A word that is accessed in parts (halves, bytes) gets four cells of
//! its own in a side table, so that accesses to different bytes of a word are no race.

/// One access.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Entry {
    /// The block's clock; 0 means that there was no access.
    pub(crate) time: u32,
    /// Linear index of the block.
    pub(crate) block: u32,
    /// Thread of the block (10 bits), strong (1 bit), instruction (21 bits; the highest value
    /// means "that or later").
    packed: u32,
}

/// Marks the block of a bulk copy's write, whose time is a barrier and a phase. Grids have fewer
/// blocks than this.
const COPIED: u32 = 1 << 31;
/// Bits of a phase's number.
const SERIAL_BITS: u32 = 20;
/// Highest number of a barrier in an entry; barriers beyond share it.
const MOST_SLOTS: u32 = (1 << (32 - SERIAL_BITS)) - 1;

/// Highest instruction index that an entry can hold.
const MOST: u32 = (1 << 21) - 1;

impl Entry {
    pub(crate) fn new(time: u32, block: u32, thread: u32, strong: bool, pc: u32) -> Entry {
        Entry { time, block, packed: thread << 22 | u32::from(strong) << 21 | pc.min(MOST) }
    }

    /// The write of a bulk copy: phase `serial` of the barrier in `slot` completes with it.
    pub(crate) fn copied(slot: usize, serial: u32, block: u32, thread: u32, pc: u32) -> Entry {
        let slot = (slot as u32).min(MOST_SLOTS);
        let time = slot << SERIAL_BITS | serial & ((1 << SERIAL_BITS) - 1);
        Entry { block: block | COPIED, ..Entry::new(time, 0, thread, false, pc) }
    }

    /// The block, barrier and phase of a bulk copy's write; `None` for other accesses.
    #[inline(always)]
    pub(crate) fn phase(self) -> Option<(u32, usize, u32)> {
        if self.block & COPIED == 0 || self.block == SPLIT {
            return None;
        }
        let serial = self.time & ((1 << SERIAL_BITS) - 1);
        Some((self.owner(), (self.time >> SERIAL_BITS) as usize, serial))
    }

    /// The block of the thread.
    pub(crate) fn owner(self) -> u32 {
        self.block & !COPIED
    }

    pub(crate) fn thread(self) -> u32 {
        self.packed >> 22
    }

    pub(crate) fn strong(self) -> bool {
        self.packed >> 21 & 1 == 1
    }

    pub(crate) fn pc(self) -> u32 {
        self.packed & MOST
    }

    fn same_thread(self, other: Entry) -> bool {
        self.block == other.block && (self.packed ^ other.packed) >> 22 == 0
    }
}

/// The history of a word or a byte.
#[derive(Clone, Copy, Default)]
struct Cell {
    write: Entry,
    reads: [Entry; 2],
}

/// Marks a cell whose word is split; `time` holds the index of its parts.
const SPLIT: u32 = u32::MAX;

/// Histories of a range of memory.
#[derive(Default)]
pub(crate) struct RaceTable {
    words: Vec<Cell>,
    parts: Vec<[Cell; 4]>,
}

/// An earlier access that conflicts, and whether it was a write.
pub(crate) type Conflict = (Entry, bool);

impl Cell {
    #[inline(always)]
    fn access(
        &mut self,
        now: Entry,
        writes: bool,
        ordered: &impl Fn(Entry) -> bool,
    ) -> Option<Conflict> {
        let clashes = |before: Entry| {
            before.time != 0
                && !before.same_thread(now)
                && !(before.strong() && now.strong())
                && !ordered(before)
        };
        if clashes(self.write) {
            return Some((self.write, true));
        }
        if writes {
            for read in self.reads {
                if clashes(read) {
                    return Some((read, false));
                }
            }
            // A strong write does not replace a weak one of the same thread, which may race with
            // other threads' strong accesses.
            if now.strong()
                && self.write.time != 0
                && !self.write.strong()
                && self.write.same_thread(now)
                && self.write.time == now.time
            {
                return None;
            }
            *self = Cell { write: now, reads: [Entry::default(); 2] };
        } else if self.reads[0].time == 0
            || self.reads[0].same_thread(now)
            || ordered(self.reads[0])
        {
            // Among reads of equal time, the weak one is kept.
            if !(now.strong() && !self.reads[0].strong() && self.reads[0].time == now.time) {
                self.reads[0] = now;
            }
        } else {
            self.reads[1] = now;
        }
        None
    }
}

impl RaceTable {
    pub(crate) fn new(words: usize) -> RaceTable {
        RaceTable { words: vec![Cell::default(); words], parts: Vec::new() }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.words.fill(Cell::default());
        self.parts.clear();
    }

    /// Records an access of `bytes` bytes from `offset` on; returns an earlier one that
    /// conflicts.
    #[inline(always)]
    pub(crate) fn access(
        &mut self,
        offset: usize,
        bytes: usize,
        now: Entry,
        writes: bool,
        ordered: &impl Fn(Entry) -> bool,
    ) -> Option<Conflict> {
        if bytes.is_multiple_of(4) {
            for word in offset / 4..(offset + bytes) / 4 {
                let cell = self.words.get_mut(word)?;
                let conflict = if cell.write.block == SPLIT && cell.write.time != 0 {
                    let parts = &mut self.parts[cell.write.time as usize - 1];
                    parts.iter_mut().find_map(|part| part.access(now, writes, ordered))
                } else {
                    cell.access(now, writes, ordered)
                };
                if conflict.is_some() {
                    return conflict;
                }
            }
            return None;
        }
        self.access_parts(offset, bytes, now, writes, ordered)
    }

    /// Calls `f` with the last write of each word, or of each byte where they differ.
    pub(crate) fn last_writes(&self, offset: usize, bytes: usize, mut f: impl FnMut(Entry)) {
        for word in offset / 4..(offset + bytes).div_ceil(4) {
            let Some(cell) = self.words.get(word) else { return };
            if cell.write.block != SPLIT || cell.write.time == 0 {
                f(cell.write);
                continue;
            }
            let parts = &self.parts[cell.write.time as usize - 1];
            for (at, part) in parts.iter().enumerate() {
                if (offset..offset + bytes).contains(&(4 * word + at)) {
                    f(part.write);
                }
            }
        }
    }

    /// Records a write that replaces all that was before.
    pub(crate) fn replace(&mut self, offset: usize, bytes: usize, write: Entry) {
        let cell = Cell { write, reads: [Entry::default(); 2] };
        for byte in offset..offset + bytes {
            let Some(word) = self.words.get_mut(byte / 4) else { return };
            if byte % 4 == 0 && offset + bytes >= byte + 4 {
                *word = cell;
            }
            let inside = byte & !3 >= offset && (byte & !3) + 4 <= offset + bytes;
            if inside {
                continue;
            }
            if word.write.block != SPLIT || word.write.time == 0 {
                self.parts.push([*word; 4]);
                *word = Cell::default();
                word.write.block = SPLIT;
                word.write.time = self.parts.len() as u32;
            }
            self.parts[word.write.time as usize - 1][byte % 4] = cell;
        }
    }

    fn access_parts(
        &mut self,
        offset: usize,
        bytes: usize,
        now: Entry,
        writes: bool,
        ordered: &impl Fn(Entry) -> bool,
    ) -> Option<Conflict> {
        for byte in offset..offset + bytes {
            let cell = self.words.get_mut(byte / 4)?;
            if cell.write.block != SPLIT || cell.write.time == 0 {
                self.parts.push([*cell; 4]);
                *cell = Cell::default();
                cell.write.block = SPLIT;
                cell.write.time = self.parts.len() as u32;
            }
            let parts = &mut self.parts[cell.write.time as usize - 1];
            let conflict = parts[byte % 4].access(now, writes, ordered);
            if conflict.is_some() {
                return conflict;
            }
        }
        None
    }
}
