//! Rows that one thread block sorts.
//!
//! A row of up to 4096 elements is padded to a power of two. Each of its threads has 8 entries
//! (fewer for short rows): a warp may have several rows, and a block of at least 128 threads
//! still more. An entry is a number of 64 bits: the key word, then 16 bits of the element's
//! position in the order so far, then 16 bits of the element's index. Entries are sorted as
//! numbers, so no two are equal. Keys of several words are sorted word by word: each element
//! takes its new position, and the entries are sorted again by the next word.
//!
//! The network is Batcher's bitonic one, in the form where a merge begins by comparing each entry
//! with its mirror image. Then the smaller entry always goes to the lower place, and no thread
//! needs a direction. Entry e of thread t has place t·8 + e. Distances below 8 are within a
//! thread, and those up to 128 within a warp, by shuffles. Only larger distances go through
//! shared memory, where threads' entries are interleaved, so that no two threads use one bank.
//! For 4096 elements 45 of 78 steps leave the thread, and 10 of these the warp.
//!
//! Shared memory: at most 32 KiB; registers: 64 or fewer, no spills.

use super::super::draft::Draft;
use super::super::index::{advance, divide};
use super::key::{Keys, Word};
use super::{BLOCK_SORT, Rows};
use crate::ptx::{Binary, Code, Compare, Inst, Lanes, Reg, Rounding, Space, Ternary, Type, Width};
use crate::stage::{Slot, Stage};
use wengert_core::Result;

/// Maximum number of entries of a thread.
const OWN: usize = 8;
/// Minimum number of threads of a block.
const THREADS: usize = 128;
const WARP: usize = 32;

/// A sort of rows, or of pieces of rows, that keeps the first k elements of each.
#[derive(Clone, Debug)]
pub(super) struct BlockSort {
    pub rows: Rows,
    /// The candidates of each row; without them, all elements take part.
    pub from: Option<Candidates>,
}

/// For each row a list of elements, in which equal elements are in the order of their positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidates {
    /// Elements of a list.
    pub length: usize,
    /// The lists, row after row.
    pub slot: Slot,
}

/// Distribution of the work over the threads of a block.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Entries of a thread.
    own: usize,
    /// Threads of a piece.
    team: usize,
    /// Threads of a block.
    threads: usize,
}

/// Registers that locate a thread's piece.
struct Position {
    /// Number of the thread in its block, and in its piece.
    thread: Reg,
    member: Reg,
    /// The row, the index of its first element, and the first place of the row in the output.
    row: Reg,
    first: Reg,
    out: Reg,
    /// Start of the piece in the row's list; none if there is one piece.
    begin: Option<Reg>,
    /// Elements of the piece.
    count: Reg,
}

impl BlockSort {
    /// Elements of a row that take part.
    fn length(&self) -> usize {
        self.from.map_or(self.rows.length, |from| from.length)
    }

    /// Number of pieces of a row.
    pub fn pieces(&self) -> usize {
        self.length().div_ceil(BLOCK_SORT)
    }

    /// Elements kept of a row.
    pub fn kept(&self) -> usize {
        let last = self.length() - (self.pieces() - 1) * BLOCK_SORT;
        (self.pieces() - 1) * self.rows.k.min(BLOCK_SORT) + self.rows.k.min(last)
    }

    fn shape(&self) -> Shape {
        let padded = self.length().min(BLOCK_SORT).next_power_of_two();
        let own = padded.min(OWN);
        let team = padded / own;
        Shape { own, team, threads: team.max(THREADS) }
    }

    /// The launch that writes the indices of the kept elements to `to`.
    pub fn stage(&self, to: Slot) -> Result<Stage> {
        let shape = self.shape();
        // Elements are moved one by one, whatever their alignment.
        let mut draft = Draft::aligned(1);
        let words = &self.rows.words.words;
        let keys = self.rows.words.pointers(&mut draft);
        let from = self.from.map(|from| draft.pointer("candidates", from.slot));
        let out = draft.pointer("out", to);
        let entries = shape.threads * shape.own;
        let exchange = if shape.team > WARP { 8 * entries } else { 0 };
        let transpose = if shape.team > 1 { 4 * (entries + entries / WARP) } else { 0 };
        let shared = exchange.max(transpose);
        let shared = (shared > 0).then(|| draft.shared("entries", shared as u32));
        let (thread, block) = (draft.thread(), draft.block());
        let code = &mut draft.code;
        let at = self.position(code, shape, thread, block);
        let network = Network { shape, shared, thread: at.thread, member: at.member };

        // Neighbouring threads load neighbouring elements: the entries have no order yet.
        let mut mine: Vec<Reg> = vec![];
        for e in 0..shape.own {
            let index = code.binary(Binary::Add, Type::S32, at.member, (e * shape.team) as i64);
            let low = code.ternary(Ternary::Mad, Type::S32, index, 1 << 16, index);
            let word = self.word(code, &words[0], &keys, from, &at, index);
            mine.push(entry(code, low, word));
        }
        network.sort(code, &mine);
        for word in &words[1..] {
            let rank = code.binary(Binary::Mul, Type::S32, at.member, (shape.own as i64) << 16);
            for (e, mine) in mine.iter().enumerate() {
                let index = index_of(code, *mine);
                let low = code.binary(Binary::Or, Type::B32, rank, index);
                let low = code.binary(Binary::Add, Type::S32, low, (e as i64) << 16);
                let word = self.word(code, word, &keys, from, &at, index);
                code.push(Inst::Pack(Type::B64, *mine, vec![low, word]));
            }
            network.sort(code, &mine);
        }
        self.write(code, &network, &mine, from, &at, out);

        let pieces = self.rows.count() * self.pieces();
        let blocks = pieces.div_ceil(shape.threads / shape.team);
        let kept = if self.rows.k < self.length() {
            format!("first {} ", self.rows.k)
        } else {
            String::new()
        };
        let cut = if self.pieces() > 1 { ", piece by piece" } else { "" };
        let remark = format!(
            "The {kept}indices of each of {} rows of {} in order{cut}.",
            self.rows.count(),
            self.length()
        );
        let name = format!("sort_rows_{}", self.rows.name());
        draft.stage(name, remark, shape.threads as u32, 0, blocks)
    }

    fn position(&self, code: &mut Code, shape: Shape, thread: Reg, block: Reg) -> Position {
        let (team, member) = divide(code, thread, shape.team);
        let piece =
            code.ternary(Ternary::Mad, Type::S32, block, (shape.threads / shape.team) as i64, team);
        let there =
            code.compare(Compare::Lt, Type::S32, piece, (self.rows.count() * self.pieces()) as i64);
        let (row, number) = divide(code, piece, self.pieces());
        let (outer, inner) = divide(code, row, self.rows.inner);
        let step = self.rows.inner as i64;
        let first =
            code.ternary(Ternary::Mad, Type::S32, outer, self.rows.length as i64 * step, inner);
        let mut out =
            code.ternary(Ternary::Mad, Type::S32, outer, self.kept() as i64 * step, inner);
        let (begin, count) = if self.pieces() > 1 {
            out = code.ternary(Ternary::Mad, Type::S32, number, self.rows.k as i64 * step, out);
            let begin = code.binary(Binary::Mul, Type::S32, number, BLOCK_SORT as i64);
            let rest = code.binary(Binary::Sub, Type::S32, self.length() as i64, begin);
            (Some(begin), code.binary(Binary::Min, Type::S32, rest, BLOCK_SORT as i64))
        } else {
            (None, code.mov(Type::U32, self.length() as i64))
        };
        // Threads without a piece run too, with padding only.
        let count = code.select(Type::B32, count, 0, there);
        Position { thread, member, row, first, out, begin, count }
    }

    /// The position in its row of an element of a piece, where `there` holds.
    fn element(
        &self,
        code: &mut Code,
        from: Option<Reg>,
        at: &Position,
        index: Reg,
        there: Reg,
    ) -> Reg {
        let index = match at.begin {
            None => index,
            Some(begin) => code.binary(Binary::Add, Type::S32, begin, index),
        };
        let (Some(base), Some(from)) = (from, self.from) else { return index };
        let place = code.ternary(Ternary::Mad, Type::S32, at.row, from.length as i64, index);
        let address = advance(code, base, place, 4);
        let found = code.mov(Type::U32, 0);
        code.push_if(there, Inst::load(Space::Global, Type::U32, &[found], address, 0));
        found
    }

    fn word(
        &self,
        code: &mut Code,
        word: &Word,
        keys: &Keys,
        from: Option<Reg>,
        at: &Position,
        index: Reg,
    ) -> Reg {
        let there = code.compare(Compare::Lt, Type::U32, index, at.count);
        let position = self.element(code, from, at, index, there);
        let element =
            code.ternary(Ternary::Mad, Type::S32, position, self.rows.inner as i64, at.first);
        word.load(code, keys, self.rows.words.descending, element, there)
    }

    /// Writes the element indices of the first entries.
    fn write(
        &self,
        code: &mut Code,
        network: &Network,
        mine: &[Reg],
        from: Option<Reg>,
        at: &Position,
        out: Reg,
    ) {
        let shape = network.shape;
        let kept =
            code.binary(Binary::Min, Type::U32, at.count, self.rows.k.min(BLOCK_SORT) as i64);
        let mut indices: Vec<Reg> = mine.iter().map(|mine| index_of(code, *mine)).collect();
        let mut step = 1;
        let mut rank = code.binary(Binary::Mul, Type::S32, at.member, shape.own as i64);
        if let Some(shared) = network.shared {
            // Neighbouring threads write neighbouring places. Each row of 32 words is followed by
            // an empty word, so that threads, 8 words apart, use different banks.
            let padded = |code: &mut Code, place: Reg| {
                let rows = code.binary(Binary::Shr, Type::U32, place, 5);
                let place = code.binary(Binary::Add, Type::S32, place, rows);
                code.ternary(Ternary::Mad, Type::S32, place, 4, shared)
            };
            let place = code.binary(Binary::Mul, Type::S32, at.thread, shape.own as i64);
            let address = padded(code, place);
            // If this memory was used for an exchange before, that ended with a barrier.
            for (e, index) in indices.iter().enumerate() {
                code.store(Space::Shared, Type::U32, address, 4 * e as i64, *index);
            }
            code.push(Inst::Barrier);
            let team = code.binary(Binary::Sub, Type::S32, at.thread, at.member);
            let first = code.ternary(Ternary::Mad, Type::S32, team, shape.own as i64, at.member);
            for (e, index) in indices.iter_mut().enumerate() {
                let place = code.binary(Binary::Add, Type::S32, first, (e * shape.team) as i64);
                let address = padded(code, place);
                *index = code.load(Space::Shared, Type::U32, address, 0);
            }
            (step, rank) = (shape.team, at.member);
        }
        for (e, index) in indices.into_iter().enumerate() {
            let rank = code.binary(Binary::Add, Type::S32, rank, (e * step) as i64);
            let wanted = code.compare(Compare::Lt, Type::U32, rank, kept);
            code.when(wanted, |code| {
                let position = self.element(code, from, at, index, wanted);
                let place =
                    code.ternary(Ternary::Mad, Type::S32, rank, self.rows.inner as i64, at.out);
                let address = advance(code, out, place, 4);
                code.store(Space::Global, Type::U32, address, 0, position);
            });
        }
    }
}

/// The entry with these halves.
fn entry(code: &mut Code, low: Reg, word: Reg) -> Reg {
    let entry = code.reg(Width::B64);
    code.push(Inst::Pack(Type::B64, entry, vec![low, word]));
    entry
}

/// The element index of an entry.
fn index_of(code: &mut Code, entry: Reg) -> Reg {
    let low = code.convert(Rounding::Exact, Type::U32, Type::U64, entry);
    code.binary(Binary::And, Type::B32, low, 0xffff)
}

/// The network that sorts the entries of a team.
struct Network {
    shape: Shape,
    /// Shared memory for the entries of the block.
    shared: Option<Reg>,
    thread: Reg,
    member: Reg,
}

impl Network {
    /// Sorts ascending: entry e of member t becomes the one of rank t·own + e.
    fn sort(&self, code: &mut Code, mine: &[Reg]) {
        let Shape { own, team, .. } = self.shape;
        for size in (1..=own.ilog2()).map(|log| 1 << log) {
            for e in (0..own).filter(|e| e & (size / 2) == 0) {
                order(code, mine[e], mine[e ^ (size - 1)]);
            }
            within(code, mine, size / 4);
        }
        if team == 1 {
            return;
        }
        // Merges the entries of `half` threads with those of the next `half`.
        let half = code.mov(Type::U32, 1);
        let merge = code.label();
        code.place(merge);
        let span = code.binary(Binary::Shl, Type::B32, half, 1);
        let mask = code.binary(Binary::Sub, Type::U32, span, 1);
        self.exchange(code, mine, mask, half, true);
        let distance = code.binary(Binary::Shr, Type::U32, half, 1);
        let (next, last) = (code.label(), code.label());
        code.place(next);
        let none = code.compare(Compare::Eq, Type::U32, distance, 0);
        code.branch_if(none, last);
        self.exchange(code, mine, distance, distance, false);
        code.binary_into(distance, Binary::Shr, Type::U32, distance, 1);
        code.branch(next);
        code.place(last);
        within(code, mine, own / 2);
        code.assign(Type::U32, half, span);
        let more = code.compare(Compare::Lt, Type::U32, half, team as i64);
        code.branch_if(more, merge);
    }

    /// Compares entries with those of the member whose number differs in the bits of `mask` (a
    /// register, uniform over the team), mirrored or not. Keeps the smaller ones where bit `top`
    /// of the thread's own number is 0, else the greater ones.
    fn exchange(&self, code: &mut Code, mine: &[Reg], mask: Reg, top: Reg, mirrored: bool) {
        let own = mine.len();
        let theirs: Vec<Reg> = mine.iter().map(|_| code.reg(Width::B64)).collect();
        let shuffle = |code: &mut Code| {
            for (mine, theirs) in mine.iter().zip(&theirs) {
                code.shuffle_into(*theirs, &Lanes::butterfly(mask), *mine);
            }
        };
        match self.shared.filter(|_| self.shape.team > WARP) {
            None => shuffle(code),
            Some(shared) => {
                let far = code.compare(Compare::Ge, Type::U32, mask, WARP as i64);
                let through_memory = |code: &mut Code| {
                    let distance = 8 * self.shape.threads as i64;
                    let address = code.ternary(Ternary::Mad, Type::S32, self.thread, 8, shared);
                    for (e, mine) in mine.iter().enumerate() {
                        code.store(Space::Shared, Type::B64, address, e as i64 * distance, *mine);
                    }
                    code.push(Inst::Barrier);
                    let other = code.binary(Binary::Xor, Type::B32, self.thread, mask);
                    let address = code.ternary(Ternary::Mad, Type::S32, other, 8, shared);
                    for (e, theirs) in theirs.iter().enumerate() {
                        let offset = e as i64 * distance;
                        let load =
                            Inst::load(Space::Shared, Type::B64, &[*theirs], address, offset);
                        code.push(load);
                    }
                    code.push(Inst::Barrier);
                };
                code.either(far, through_memory, shuffle);
            }
        }
        let bit = code.binary(Binary::And, Type::B32, self.member, top);
        let upper = code.compare(Compare::Ne, Type::U32, bit, 0);
        for (e, mine) in mine.iter().enumerate() {
            let theirs = theirs[if mirrored { own - 1 - e } else { e }];
            let smaller = code.compare(Compare::Lt, Type::U64, theirs, *mine);
            let take = code.binary(Binary::Xor, Type::Pred, smaller, upper);
            code.push(Inst::Select(Type::B64, *mine, theirs.into(), (*mine).into(), take));
        }
    }
}

/// The steps of a merge at this distance and below, within each thread.
fn within(code: &mut Code, mine: &[Reg], distance: usize) {
    let mut distance = distance;
    while distance > 0 {
        for e in (0..mine.len()).filter(|e| e & distance == 0) {
            order(code, mine[e], mine[e + distance]);
        }
        distance /= 2;
    }
}

/// Exchanges two entries if the first is greater.
fn order(code: &mut Code, first: Reg, second: Reg) {
    let smaller = code.binary(Binary::Min, Type::U64, first, second);
    code.binary_into(second, Binary::Max, Type::U64, first, second);
    code.assign(Type::B64, first, smaller);
}
