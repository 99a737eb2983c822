//! A stable sort of numbers below a known bound, which also returns the sorting permutation:
//! least significant digits first (LSD radix sort).
//!
//! Each pass sorts by a digit of at most 8 bits in three stages:
//!
//! 1. *count*: a block counts the digits of its 2048 numbers in shared memory. These are atomic
//!    additions of integers: their order does not matter.
//! 2. *offsets*: one block computes the exclusive prefix sums of all counts, ordered by digit and
//!    then by block: the places of each block's numbers of a digit.
//! 3. *place*: a warp goes through its 256 numbers, 32 at a time. Ballots, one for each bit of
//!    the digit, give a lane the lanes with its digit. Its rank is the number of those below it,
//!    plus the number that the warp has seen before. So equal numbers keep their order.
//!
//! Sorts of long rows consist of several such sorts, one number [after](Sort::then) another.
//!
//! Shared memory: 1 KiB, 128 bytes, 8 KiB; registers: 16, 20, 64 or fewer. Bound by memory: a
//! pass reads the numbers twice and the order once, and writes both.

use super::super::draft::Draft;
use super::super::index::{advance, divide};
use crate::ptx::{
    Binary, Code, Compare, Inst, Lanes, Operand, Reg, Shuffle, Space, Special, Ternary, Type,
    Unary, Width,
};
use crate::stage::{Access, Memory, Slot, Stage};
use wengert_core::Result;

const THREADS: usize = 256;
const WARPS: usize = THREADS / 32;
/// Numbers of a thread.
const OWN: usize = 8;
/// Numbers of a block.
const TILE: usize = THREADS * OWN;
/// Threads of the block that scans the counts.
const SCAN: usize = 1024;
const ALL: i64 = 0xffff_ffff;

/// A sort of `count` numbers.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Sort {
    count: usize,
    /// Bits of a number.
    bits: u32,
    /// Passes of earlier sorts, whose order this one continues.
    done: u32,
}

impl Sort {
    /// A sort of numbers below `below`.
    pub fn new(count: usize, below: usize) -> Sort {
        let bits = usize::BITS - (below.max(2) - 1).leading_zeros();
        Sort { count, bits, done: 0 }
    }

    /// Another sort of the same elements by other numbers below `below`. It continues from this
    /// sort's order, which decides between equal numbers.
    pub fn then(&self, below: usize) -> Sort {
        Sort { done: self.done + self.passes(), ..Sort::new(self.count, below) }
    }

    /// Number of passes.
    pub fn passes(&self) -> u32 {
        self.bits.div_ceil(8)
    }

    /// Bits of a digit.
    fn digit(&self) -> u32 {
        self.bits.div_ceil(self.passes())
    }

    fn blocks(&self) -> usize {
        self.count.div_ceil(TILE)
    }

    /// Bytes of an array of numbers, padded to the alignment of arrays.
    fn array(&self) -> u64 {
        (4 * self.count as u64).next_multiple_of(256)
    }

    /// Bytes of workspace.
    pub fn workspace(&self) -> u64 {
        4 * self.array() + (4 << self.digit()) as u64 * self.blocks() as u64
    }

    fn part(&self, offset: u64, bytes: u64, access: Access) -> Slot {
        Slot { memory: Memory::Workspace { offset, bytes }, access }
    }

    /// The numbers after `passes` passes. With 0, the input, which the caller writes here.
    pub fn keys(&self, passes: u32) -> Slot {
        self.numbers(0, passes)
    }

    /// The original indices of the numbers after `passes` passes, at least one.
    pub fn order(&self, passes: u32) -> Slot {
        self.numbers(2, passes)
    }

    /// Of two arrays, from the one of this number on, the one that is in use after the passes.
    fn numbers(&self, first: u64, passes: u32) -> Slot {
        let number = first + u64::from((self.done + passes) % 2);
        self.part(number * self.array(), 4 * self.count as u64, Access::Write)
    }

    fn counts(&self, access: Access) -> Slot {
        self.part(4 * self.array(), (4 << self.digit()) as u64 * self.blocks() as u64, access)
    }

    /// All passes.
    pub fn stages(&self) -> Result<Vec<Stage>> {
        let mut stages = vec![];
        for pass in 0..self.passes() {
            stages.extend([self.count(pass)?, self.offsets()?, self.place(pass)?]);
        }
        Ok(stages)
    }

    /// The digit of a number in a pass.
    fn digit_of(&self, code: &mut Code, key: Reg, pass: u32) -> Reg {
        let shifted = code.binary(Binary::Shr, Type::U32, key, i64::from(pass * self.digit()));
        code.binary(Binary::And, Type::B32, shifted, (1 << self.digit()) - 1)
    }

    /// The address of the count of a digit in a block.
    fn count_of(&self, code: &mut Code, counts: Reg, digit: Reg, block: Reg) -> Reg {
        let at = code.ternary(Ternary::Mad, Type::S32, digit, self.blocks() as i64, block);
        advance(code, counts, at, 4)
    }

    fn count(&self, pass: u32) -> Result<Stage> {
        let mut draft = Draft::new();
        let keys = draft.pointer("keys", Slot { access: Access::Read, ..self.keys(pass) });
        let counts = draft.pointer("counts", self.counts(Access::Write));
        let shared = draft.shared("digits", 4 << self.digit());
        let (thread, block) = (draft.thread(), draft.block());
        let code = &mut draft.code;
        let mine = code.ternary(Ternary::Mad, Type::S32, thread, 4, shared);
        let owner = code.compare(Compare::Lt, Type::S32, thread, 1 << self.digit());
        code.when(owner, |code| code.store(Space::Shared, Type::U32, mine, 0, 0));
        code.push(Inst::Barrier);
        let first = code.ternary(Ternary::Mad, Type::S32, block, TILE as i64, thread);
        for n in 0..OWN {
            let at = code.binary(Binary::Add, Type::S32, first, (n * THREADS) as i64);
            let there = code.compare(Compare::Lt, Type::S32, at, self.count as i64);
            code.when(there, |code| {
                let address = advance(code, keys, at, 4);
                let key = code.load(Space::Global, Type::U32, address, 0);
                let digit = self.digit_of(code, key, pass);
                let base = code.ternary(Ternary::Mad, Type::S32, digit, 4, shared);
                let result = code.reg(Width::B32);
                let (space, ty, base, value) = (Space::Shared, Type::U32, base.into(), 1.into());
                code.push(Inst::AtomicAdd { space, ty, result, base, value });
            });
        }
        code.push(Inst::Barrier);
        code.when(owner, |code| {
            let count = code.load(Space::Shared, Type::U32, mine, 0);
            let address = self.count_of(code, counts, thread, block);
            code.store(Space::Global, Type::U32, address, 0, count);
        });
        let remark = format!("Counts digit {pass} of {} numbers.", self.count);
        draft.stage("sort_count".into(), remark, THREADS as u32, 0, self.blocks())
    }

    fn offsets(&self) -> Result<Stage> {
        let mut draft = Draft::new();
        let counts = draft.pointer("counts", self.counts(Access::ReadWrite));
        let shared = draft.shared("warps", 4 * 32);
        let thread = draft.thread();
        let code = &mut draft.code;
        let entries = self.blocks() << self.digit();
        let own = entries.div_ceil(SCAN) as i64;
        let first = code.binary(Binary::Mul, Type::S32, thread, own);
        let end = code.binary(Binary::Add, Type::S32, first, own);
        let end = code.binary(Binary::Min, Type::S32, end, entries as i64);
        let total = code.mov(Type::U32, 0);
        code.count(first, end, 1, |code, at| {
            let address = advance(code, counts, at, 4);
            let count = code.load(Space::Global, Type::U32, address, 0);
            code.binary_into(total, Binary::Add, Type::U32, total, count);
        });
        // Prefix sums within the warp, then of the warps before.
        let lane = code.mov(Type::U32, Special::Lane);
        let inclusive = warp_sums(code, lane, total);
        let warp = code.binary(Binary::Shr, Type::U32, thread, 5);
        let last = code.compare(Compare::Eq, Type::U32, lane, 31);
        let place = code.ternary(Ternary::Mad, Type::S32, warp, 4, shared);
        code.when(last, |code| code.store(Space::Shared, Type::U32, place, 0, inclusive));
        code.push(Inst::Barrier);
        let zero = code.compare(Compare::Eq, Type::U32, warp, 0);
        code.when(zero, |code| {
            let place = code.ternary(Ternary::Mad, Type::S32, lane, 4, shared);
            let sum = code.load(Space::Shared, Type::U32, place, 0);
            let inclusive = warp_sums(code, lane, sum);
            let before = code.binary(Binary::Sub, Type::U32, inclusive, sum);
            code.store(Space::Shared, Type::U32, place, 0, before);
        });
        code.push(Inst::Barrier);
        let before = code.load(Space::Shared, Type::U32, place, 0);
        let running = code.binary(Binary::Add, Type::U32, before, inclusive);
        let running = code.binary(Binary::Sub, Type::U32, running, total);
        let running = code.mov(Type::U32, running);
        code.count(first, end, 1, |code, at| {
            let address = advance(code, counts, at, 4);
            let count = code.load(Space::Global, Type::U32, address, 0);
            code.store(Space::Global, Type::U32, address, 0, running);
            code.binary_into(running, Binary::Add, Type::U32, running, count);
        });
        let remark = format!("Sums of the counts before each of {entries}.");
        draft.stage("sort_offsets".into(), remark, SCAN as u32, 0, 1)
    }

    fn place(&self, pass: u32) -> Result<Stage> {
        let mut draft = Draft::new();
        let read = |slot| Slot { access: Access::Read, ..slot };
        let keys = draft.pointer("keys", read(self.keys(pass)));
        // Before the first pass of all, the order is the identity.
        let order = (self.done + pass > 0).then(|| draft.pointer("order", read(self.order(pass))));
        let counts = draft.pointer("counts", read(self.counts(Access::Read)));
        let to = draft.pointer("sorted_keys", self.keys(pass + 1));
        let to_order = draft.pointer("sorted_order", self.order(pass + 1));
        let row = 4 << self.digit();
        let shared = draft.shared("seen", WARPS as u32 * row);
        let (thread, block) = (draft.thread(), draft.block());
        let code = &mut draft.code;
        let owner = code.compare(Compare::Lt, Type::S32, thread, 1 << self.digit());
        let column = code.ternary(Ternary::Mad, Type::S32, thread, 4, shared);
        code.when(owner, |code| {
            for warp in 0..WARPS as i64 {
                code.store(Space::Shared, Type::U32, column, warp * i64::from(row), 0);
            }
        });
        code.push(Inst::Barrier);
        let (warp, lane) = divide(code, thread, 32);
        let seen = code.ternary(Ternary::Mad, Type::S32, warp, i64::from(row), shared);
        let first = code.ternary(Ternary::Mad, Type::S32, block, TILE as i64, lane);
        let first = code.ternary(Ternary::Mad, Type::S32, warp, 32 * OWN as i64, first);
        let bit = code.binary(Binary::Shl, Type::B32, 1, lane);
        let below = code.binary(Binary::Sub, Type::U32, bit, 1);
        let mut own = vec![];
        for n in 0..OWN {
            let at = code.binary(Binary::Add, Type::S32, first, 32 * n as i64);
            let there = code.compare(Compare::Lt, Type::S32, at, self.count as i64);
            let key = code.mov(Type::U32, 0);
            code.when(there, |code| {
                let address = advance(code, keys, at, 4);
                let found = code.load(Space::Global, Type::U32, address, 0);
                code.assign(Type::U32, key, found);
            });
            let digit = self.digit_of(code, key, pass);
            let peers = self.peers(code, digit, there);
            let place = code.ternary(Ternary::Mad, Type::S32, digit, 4, seen);
            let before = code.load(Space::Shared, Type::U32, place, 0);
            let lower = code.binary(Binary::And, Type::B32, peers, below);
            let lower = code.unary(Unary::Popc, Type::B32, lower);
            let rank = code.binary(Binary::Add, Type::U32, before, lower);
            code.push(Inst::WarpBarrier(Operand::Int(ALL)));
            let leader = code.compare(Compare::Eq, Type::U32, lower, 0);
            let leader = code.binary(Binary::And, Type::Pred, leader, there);
            code.when(leader, |code| {
                let all = code.unary(Unary::Popc, Type::B32, peers);
                let after = code.binary(Binary::Add, Type::U32, before, all);
                code.store(Space::Shared, Type::U32, place, 0, after);
            });
            code.push(Inst::WarpBarrier(Operand::Int(ALL)));
            own.push((at, there, key, place, rank));
        }
        code.push(Inst::Barrier);
        // The warp's count of a digit becomes the place of its first number.
        code.when(owner, |code| {
            let address = self.count_of(code, counts, thread, block);
            let running = code.load(Space::Global, Type::U32, address, 0);
            for warp in 0..WARPS as i64 {
                let offset = warp * i64::from(row);
                let count = code.load(Space::Shared, Type::U32, column, offset);
                code.store(Space::Shared, Type::U32, column, offset, running);
                code.binary_into(running, Binary::Add, Type::U32, running, count);
            }
        });
        code.push(Inst::Barrier);
        for (at, there, key, place, rank) in own {
            code.when(there, |code| {
                let start = code.load(Space::Shared, Type::U32, place, 0);
                let position = code.binary(Binary::Add, Type::U32, start, rank);
                let from = match order {
                    None => at,
                    Some(order) => {
                        let address = advance(code, order, at, 4);
                        code.load(Space::Global, Type::U32, address, 0)
                    }
                };
                for (base, value) in [(to, key), (to_order, from)] {
                    let address = advance(code, base, position, 4);
                    code.store(Space::Global, Type::U32, address, 0, value);
                }
            });
        }
        let remark = format!("Places {} numbers by digit {pass}.", self.count);
        draft.stage("sort_place".into(), remark, THREADS as u32, 0, self.blocks())
    }

    /// The lanes that are in range and have this lane's digit.
    fn peers(&self, code: &mut Code, digit: Reg, there: Reg) -> Reg {
        let ballot = |code: &mut Code, predicate: Reg| {
            let lanes = code.reg(Width::B32);
            code.push(Inst::Ballot(lanes, predicate, Operand::Int(ALL)));
            lanes
        };
        let mut peers = ballot(code, there);
        for bit in 0..self.digit() {
            let value = code.binary(Binary::And, Type::B32, digit, 1 << bit);
            let one = code.compare(Compare::Ne, Type::U32, value, 0);
            let lanes = ballot(code, one);
            let others = code.unary(Unary::Not, Type::B32, lanes);
            let same = code.select(Type::B32, lanes, others, one);
            peers = code.binary(Binary::And, Type::B32, peers, same);
        }
        peers
    }
}

/// The inclusive prefix sum of a value over the lanes.
fn warp_sums(code: &mut Code, lane: Reg, value: Reg) -> Reg {
    let mut sum = value;
    for distance in [1, 2, 4, 8, 16] {
        let below = Lanes {
            mode: Shuffle::Up,
            lane: distance.into(),
            clamp: 0,
            members: Operand::Int(ALL),
        };
        let other = code.shuffle(&below, sum);
        let next = code.binary(Binary::Add, Type::U32, sum, other);
        let there = code.compare(Compare::Ge, Type::U32, lane, distance);
        sum = code.select(Type::U32, next, sum, there);
    }
    sum
}
