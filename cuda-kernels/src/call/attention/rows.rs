//! Rows of a head in memory, and tiles of them in shared memory.

use super::super::index::advance;
use super::super::number::{Number, Place};
use super::Problem;
use crate::ptx::{Binary, Code, Reg, Type};
use wengert_core::call::Heads;

/// Rows of one head in memory.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// Where the first one begins.
    pub address: Reg,
    /// Bytes from a row to the next.
    pub position: i64,
    /// How many there are.
    pub count: usize,
    /// Numbers of a row.
    pub width: usize,
    /// What they are.
    pub number: Number,
    /// Of these, how many may be loaded together at most: a power of two, by which the width is divisible.
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
        Rows { address, position: heads.position as i64 * size, count, width, number, vector }
    }
}

/// A place so many bytes from an address.
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
    /// How many.
    pub rows: usize,
}
