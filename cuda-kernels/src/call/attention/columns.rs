//! The loop over the columns of a block of rows.
//!
//! An engine that loads tiles asynchronously has double-buffered column tiles. When those of a
//! step have arrived, and all threads are done with the ones before, the next are requested, and
//! arrive during the computation of the step. So one barrier a step is enough. Otherwise tiles
//! are loaded at the beginning of their step, between two barriers.
//!
//! Tiles of rows arrive with the first tiles of columns. The engine then loads those fragments of
//! them that it keeps in registers.
//!
//! Where columns are queries, each has two more numbers, l and −m. They arrive with the tiles. If
//! tiles are prefetched, a thread loads one number of the next step to a register before the
//! computation of the current step, and stores it to shared memory after it. Where a thread has
//! pairs of neighbouring columns, −m of a pair is stored as both numbers, twice: one load then
//! fills the accumulators of a fragment ([`Twice`]).

use super::super::draft::Draft;
use super::super::index::{advance, divide};
use super::super::number::{Number, Place};
use super::rows::{Held, Rows, Tile};
use super::{Engine, Slots, Twice};
use crate::ptx::{Binary, Code, Compare, Inst, Reg, Space, Ternary, Type};

/// The columns that a block of rows is combined with.
pub(super) struct Columns<'a> {
    pub engine: &'a dyn Engine,
    pub rows: [Rows; 2],
    pub tiles: [Tile; 2],
    pub numbers: Option<Numbers>,
}

impl Columns<'_> {
    /// Emits `body` for each block of columns, given the tiles of rows, the first column, the
    /// tiles, and its numbers with their address.
    pub fn each(
        &self,
        code: &mut Code,
        rows: &[Tile],
        [from, to]: [Reg; 2],
        body: impl FnOnce(&mut Code, &[Held], Reg, [Tile; 2], Option<(&Numbers, Reg)>),
    ) {
        let hold = |code: &mut Code| -> Vec<Held> {
            rows.iter().map(|tile| self.engine.hold(code, tile)).collect()
        };
        let step = self.engine.extents()[1] as i64;
        let distance = self.engine.ahead();
        if distance == 0 {
            let rows = hold(code);
            code.count(from, to, step, |code, from| {
                // All threads are done with the last block.
                code.push(Inst::Barrier);
                self.load(code, from, self.tiles);
                let numbers = self.numbers.as_ref().map(|numbers| {
                    let held = numbers.load(code, from);
                    numbers.keep(code, held, numbers.shared);
                    (numbers, numbers.shared)
                });
                code.push(Inst::Barrier);
                body(code, &rows, from, self.tiles, numbers);
            });
            return;
        }
        let more = code.compare(Compare::Lt, Type::S32, from, to);
        code.when(more, |code| {
            self.load(code, from, self.tiles);
            if let Some(numbers) = &self.numbers {
                let held = numbers.load(code, from);
                numbers.keep(code, held, numbers.shared);
            }
        });
        self.engine.send(code);
        self.engine.arrive(code);
        code.push(Inst::Barrier);
        let rows = hold(code);
        // The parity of the step, as bytes between buffers of tiles and of numbers.
        let now = code.mov(Type::U32, 0);
        let of_numbers = self.numbers.as_ref().map(|numbers| {
            let now = code.mov(Type::U32, numbers.shared);
            [now, code.binary(Binary::Add, Type::U32, numbers.shared, numbers.bytes())]
        });
        code.count(from, to, step, |code, from| {
            self.engine.arrive(code);
            code.push(Inst::Barrier);
            let other = code.binary(Binary::Sub, Type::U32, distance, now);
            let next = code.binary(Binary::Add, Type::S32, from, step);
            let more = code.compare(Compare::Lt, Type::S32, next, to);
            let at = |code: &mut Code, place: Reg| {
                self.tiles.map(|tile| Tile {
                    base: code.binary(Binary::Add, Type::U32, tile.base, place),
                    ..tile
                })
            };
            let tiles = at(code, now);
            let held = code.when(more, |code| {
                let tiles = at(code, other);
                self.load(code, next, tiles);
                self.numbers.as_ref().map(|numbers| numbers.load(code, next))
            });
            self.engine.send(code);
            let now_of_numbers = of_numbers.map(|[now, _]| now);
            body(code, &rows, from, tiles, self.numbers.as_ref().zip(now_of_numbers));
            if let (Some(numbers), Some([now, other]), Some(held)) =
                (&self.numbers, of_numbers, held)
            {
                code.when(more, |code| numbers.keep(code, held, other));
                let last = code.mov(Type::U32, now);
                code.assign(Type::U32, now, other);
                code.assign(Type::U32, other, last);
            }
            code.assign(Type::U32, now, other);
        });
        self.engine.settle(code);
    }

    fn load(&self, code: &mut Code, from: Reg, tiles: [Tile; 2]) {
        for (rows, tile) in self.rows.iter().zip(tiles) {
            self.engine.fill(code, rows, from, &tile);
        }
    }
}

/// The numbers of queries in shared memory: l, which is subtracted from scores, and −m.
pub(super) struct Numbers {
    /// The buffer of the current step. That of the next one, if there is one, follows it.
    shared: Reg,
    /// Address in memory of the thread's first number.
    pub address: Reg,
    /// Its index in a block.
    index: Reg,
    /// Whether the thread has one, and, where −m is stored twice, whether that is −m.
    has: Reg,
    twice: Option<Reg>,
    /// Its factor.
    factor: Reg,
    /// Byte offset in the buffer to which it is stored.
    to: Reg,
    number: Number,
    columns: usize,
    queries: usize,
}

impl Numbers {
    /// The numbers of queries at two addresses.
    pub fn new(
        draft: &mut Draft,
        engine: &dyn Engine,
        [l, m]: [Reg; 2],
        queries: usize,
    ) -> Numbers {
        let (number, columns) = (engine.sums(), engine.extents()[1]);
        let pairs = engine.columns().pairs();
        let elements = columns * if pairs { 3 } else { 2 };
        let buffers = if engine.ahead() > 0 { 2 } else { 1 };
        let shared = draft.shared("numbers", (buffers * elements) as u32 * number.size() as u32);
        let thread = draft.thread();
        let code = &mut draft.code;
        let (which, index) = divide(code, thread, columns);
        let has = code.compare(Compare::Lt, Type::S32, which, 2);
        let first = code.compare(Compare::Eq, Type::S32, which, 0);
        let address = code.select(Type::U64, l, m, first);
        let factor =
            code.select(number.wide(), engine.powers().unit(), number.constant(-1.0), first);
        // −m begins after the columns' l.
        let (to, twice) = match pairs {
            false => (code.binary(Binary::Mul, Type::S32, thread, number.size()), None),
            true => {
                // The second column of two follows the first.
                let odd = code.binary(Binary::And, Type::B32, index, 1);
                let even = code.binary(Binary::Sub, Type::S32, index, odd);
                let pair = code.binary(Binary::Shl, Type::B32, even, 1);
                let pair = code.binary(Binary::Add, Type::S32, pair, columns as i64);
                let place = code.select(Type::S32, even, pair, first);
                let place = code.binary(Binary::Add, Type::S32, place, odd);
                let to = code.binary(Binary::Mul, Type::S32, place, number.size());
                (to, Some(code.compare(Compare::Eq, Type::S32, which, 1)))
            }
        };
        Numbers { shared, address, index, has, twice, factor, to, number, columns, queries }
    }

    /// Bytes of a buffer.
    fn bytes(&self) -> i64 {
        let numbers = if self.twice.is_some() { 3 } else { 2 };
        (numbers * self.columns) as i64 * self.number.size()
    }

    fn load(&self, code: &mut Code, from: Reg) -> Reg {
        let at = code.binary(Binary::Add, Type::S32, from, self.index);
        let inside = code.compare(Compare::Lt, Type::S32, at, self.queries as i64);
        let valid = Some(code.binary(Binary::And, Type::Pred, inside, self.has));
        let address = advance(code, self.address, at, self.number.size());
        self.number.load(code, Space::Global, Place { address, offset: 0, valid }, 1)[0]
    }

    fn keep(&self, code: &mut Code, value: Reg, shared: Reg) {
        let value = code.binary(Binary::Mul, self.number.wide(), value, self.factor);
        let address = code.binary(Binary::Add, Type::U32, shared, self.to);
        let second = self.twice.map(|twice| (2, twice));
        for (elements, valid) in [(0, self.has)].into_iter().chain(second) {
            let place =
                Place { address, offset: elements * self.number.size(), valid: Some(valid) };
            self.number.store(code, Space::Shared, place, &[value]);
        }
    }

    /// l of a thread's columns.
    pub fn l(&self, code: &mut Code, engine: &dyn Engine, shared: Reg) -> Vec<Reg> {
        let Slots { first, far } = engine.columns();
        let (size, vector) = (self.number.size(), if self.twice.is_some() { 2 } else { 1 });
        let at = code.ternary(Ternary::Mad, Type::S32, *first, size, shared);
        let mut l = vec![];
        for far in far.iter().step_by(vector) {
            l.extend(self.number.load(code, Space::Shared, Place::at(at, far * size), vector));
        }
        l
    }

    /// −m of a thread's columns.
    pub fn m(&self, code: &mut Code, engine: &dyn Engine, shared: Reg) -> Vec<Twice> {
        let Slots { first, far } = engine.columns();
        let (size, columns) = (self.number.size(), self.columns as i64);
        let load = |code: &mut Code, at: Reg, elements: i64, count: usize| {
            self.number.load(code, Space::Shared, Place::at(at, elements * size), count)
        };
        if self.twice.is_none() {
            let at = code.ternary(Ternary::Mad, Type::S32, *first, size, shared);
            return far.iter().map(|far| [load(code, at, columns + far, 1)[0]; 2]).collect();
        }
        let at = code.ternary(Ternary::Mad, Type::S32, *first, 2 * size, shared);
        let pairs = far.iter().step_by(2);
        pairs
            .flat_map(|pair| {
                let four = load(code, at, columns + 2 * pair, 4);
                [[four[0], four[2]], [four[1], four[3]]]
            })
            .collect()
    }
}
