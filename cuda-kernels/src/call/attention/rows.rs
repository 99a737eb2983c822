//! Rows of a head in memory, and tiles of them in shared memory.

use super::super::index::{advance, both, divide};
use super::super::number::{Number, Place};
use super::Problem;
use crate::ptx::{Binary, Code, Compare, Inst, Operand, Reg, Space, Type};
use wengert_core::call::Heads;

/// Rows of one head in memory.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// Address of the first one.
    pub address: Reg,
    /// Bytes from one row to the next.
    pub position: i64,
    /// Number of rows.
    pub count: usize,
    /// The end of the rows that are loaded, at most the number of rows, which it is if there is
    /// none. Rows from there on are zeros in a tile.
    pub end: Option<Reg>,
    /// Numbers of a row.
    pub width: usize,
    /// Dtype of the numbers.
    pub number: Number,
    /// Vector width of loads: a power of two that divides the width.
    pub vector: usize,
}

impl Rows {
    /// The rows of an example's head in the tensor at a pointer.
    pub fn new(
        code: &mut Code,
        problem: &Problem<'_>,
        pointer: Reg,
        heads: Heads,
        count: usize,
        [b, n]: [Reg; 2],
    ) -> Rows {
        let number = Number(problem.call.dtype);
        let (size, width) = (number.size(), problem.call.width);
        let of_example = advance(code, pointer, b, heads.batch as i64 * size);
        let of_head = advance(code, of_example, n, width as i64 * size);
        let place = beyond(code, of_head, heads.offset as i64 * size);
        let address = match place.offset {
            0 => place.address,
            offset => code.binary(Binary::Add, Type::S64, place.address, offset),
        };
        let mut vector = (16 / size as usize).min(problem.alignment / size as usize).max(1);
        while !width.is_multiple_of(vector) {
            vector /= 2;
        }
        Rows {
            address,
            position: heads.position as i64 * size,
            count,
            end: None,
            width,
            number,
            vector,
        }
    }
}

/// The place `bytes` bytes after an address.
pub(super) fn beyond(code: &mut Code, address: Reg, bytes: i64) -> Place {
    if i32::try_from(bytes).is_ok() {
        return Place::at(address, bytes);
    }
    let far = code.mov(Type::S64, bytes);
    Place::at(code.binary(Binary::Add, Type::S64, address, far), 0)
}

/// Rows in shared memory.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// Its address.
    pub base: Reg,
    /// Number of rows.
    pub rows: usize,
}

/// A tile of rows, and what the engine keeps of it in registers: the thread's fragments, or a
/// descriptor.
pub(super) struct Held {
    pub tile: Tile,
    pub registers: Vec<Reg>,
}

/// Division of the copies into a tile among a block's threads.
#[derive(Clone, Copy)]
pub(super) struct Division {
    /// Number of threads.
    pub threads: usize,
    /// Numbers that a thread copies at once.
    pub vector: usize,
    /// Numbers of a tile's row; those beyond the width of the rows are zeros.
    pub depth: usize,
    /// Rows of a tile.
    pub tile: usize,
}

/// A thread's part of the copies into a tile: one piece in a row, and the same piece of every
/// `step`-th row after it.
pub(super) struct Share {
    /// The first piece's row and column in the tile.
    pub row: Reg,
    pub column: Reg,
    division: Division,
    step: usize,
    /// Whether the tile has the first piece, and whether the rows have its column; none where
    /// they always do.
    exists: Option<Reg>,
    below: Option<Reg>,
    /// The row in memory, and the address of its piece.
    at: Reg,
    from: Reg,
}

impl Share {
    /// The part of a thread, for the rows from `first` on.
    pub fn new(code: &mut Code, thread: Reg, division: Division, rows: &Rows, first: Reg) -> Share {
        let Division { threads, vector, depth, tile } = division;
        let vectors = depth / vector;
        let side_by_side = vectors.next_power_of_two();
        let step = threads / side_by_side;
        let (row, column) = divide(code, thread, side_by_side);
        let column = code.binary(Binary::Mul, Type::S32, column, vector as i64);
        let exists = (vectors != side_by_side)
            .then(|| code.compare(Compare::Lt, Type::S32, column, depth as i64));
        let exists = match step > tile {
            true => {
                let inside = code.compare(Compare::Lt, Type::S32, row, tile as i64);
                both(code, exists, Some(inside))
            }
            false => exists,
        };
        let below = (depth != rows.width)
            .then(|| code.compare(Compare::Lt, Type::S32, column, rows.width as i64));
        let at = code.binary(Binary::Add, Type::S32, first, row);
        let from = advance(code, rows.address, at, rows.position);
        let from = advance(code, from, column, rows.number.size());
        Share { row, column, division, step, exists, below, at, from }
    }

    /// The distances of the pieces' rows from the first.
    pub fn distances(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.division.tile).step_by(self.step)
    }

    /// The place of a piece in memory; it may not exist.
    pub fn place(&self, code: &mut Code, rows: &Rows, far: usize) -> Place {
        let partial = !rows.count.is_multiple_of(self.division.tile);
        let end = rows.end.map(Operand::from).or(partial.then(|| (rows.count as i64).into()));
        let inside = end.map(|end| {
            let at = code.binary(Binary::Add, Type::S32, self.at, far as i64);
            code.compare(Compare::Lt, Type::S32, at, end)
        });
        let valid = both(code, inside, self.below);
        Place { valid, ..beyond(code, self.from, far as i64 * rows.position) }
    }

    /// Copies the pieces to a tile as they are. `to` is the address of the first one, and rows of
    /// the tile are `pitch` bytes apart. Pieces of 16 bytes are copied asynchronously, smaller ones
    /// through registers.
    pub fn copy(&self, code: &mut Code, rows: &Rows, to: Reg, pitch: usize) {
        let vector = self.division.vector;
        self.when(code, |code| {
            let mut loaded = vec![];
            for far in self.distances() {
                let place = self.place(code, rows, far);
                let to_offset = (far * pitch) as i64;
                if vector as i64 * rows.number.size() < 16 {
                    loaded.push((rows.number.load(code, Space::Global, place, vector), to_offset));
                    continue;
                }
                // Out of range, `cp.async` reads nothing and writes zeros.
                let size = match place.valid {
                    None => Operand::from(16),
                    Some(valid) => code.select(Type::U32, 16, 0, valid).into(),
                };
                let (from, from_offset) = (place.address.into(), place.offset);
                code.push(Inst::CopyAsync { to: to.into(), to_offset, from, from_offset, size });
            }
            for (raw, offset) in loaded {
                rows.number.store(code, Space::Shared, Place::at(to, offset), &raw);
            }
        });
    }

    /// Copies, if the thread has a piece.
    pub fn when(&self, code: &mut Code, copy: impl FnOnce(&mut Code)) {
        match self.exists {
            Some(exists) => code.when(exists, copy),
            None => copy(code),
        }
    }
}
