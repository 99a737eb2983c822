//! A warp's part of a tile: its fragments and its sums.

use super::strip::{Side, Strip};
use super::{Multiply, Tile};
use crate::call::index::divide;
use crate::call::product::fragments::{COLUMNS, Fragments};
use crate::call::product::gather::Direction;
use crate::ptx::{Binary, Code, Inst, Operand, Reg, Rounding, Space, Type};
use std::ops::Range;

/// A warp's part of the tile.
pub(super) struct Warp<'a> {
    tile: Tile,
    multiply: Multiply,
    strips: [&'a Strip<'a>; 2],
    /// Read addresses of a lane for the first fragments of lhs and of rhs, in the first buffer.
    read: [Reg; 2],
    pub fragments: Fragments,
}

impl<'a> Warp<'a> {
    pub fn new(
        code: &mut Code,
        thread: Reg,
        tile: Tile,
        multiply: Multiply,
        sides: &'a [Side<'a>],
    ) -> Warp<'a> {
        let (warp, lane) = divide(code, thread, 32);
        let (row, column) = divide(code, warp, tile.warps[1]);
        let own = tile.own();
        let corner = [row, column];
        let corner = [0, 1].map(|n| code.binary(Binary::Mul, Type::S32, corner[n], own[n] as i64));
        let (quad, within) = divide(code, lane, 4);
        let read = [0, 1].map(|n| {
            let side = &sides[n];
            let (outer, depth) = if multiply.by_matrices() {
                // Lanes 8q to 8q + 7 address the rows of the q-th of four 8 × 8 matrices. The
                // instruction fixes their order: for lhs the second is further down, the third
                // further along the sum; for rhs the other way round. A matrix's rows are rows of
                // shared memory.
                let (q, line) = divide(code, lane, 8);
                let low = code.binary(Binary::And, Type::B32, q, 1);
                let high = code.binary(Binary::Shr, Type::U32, q, 1);
                let (down, along) = if n == 0 { (low, high) } else { (high, low) };
                // Eight rows, and 16 bytes.
                let down = code.binary(Binary::Shl, Type::B32, down, 3);
                let bytes = multiply.shape[2].ilog2() - 1;
                let along = code.binary(Binary::Shl, Type::B32, along, bytes as i64);
                match side.strip.loader.direction {
                    Direction::Depth => (code.binary(Binary::Add, Type::S32, down, line), along),
                    Direction::Outer => (down, code.binary(Binary::Add, Type::S32, along, line)),
                }
            } else {
                (quad, within)
            };
            let outer = code.binary(Binary::Add, Type::S32, outer, corner[n]);
            side.strip.address(code, side.base, outer, depth)
        });
        let row = code.binary(Binary::Add, Type::S32, corner[0], quad);
        let twice = code.binary(Binary::Shl, Type::B32, within, 1);
        let column = code.binary(Binary::Add, Type::S32, corner[1], twice);
        let fragments = [own[0] / multiply.shape[0], own[1] / COLUMNS];
        let count = multiply.shape[0] * COLUMNS / 32;
        let zero: Operand = if multiply.sum == Type::F64 { 0f64.into() } else { 0f32.into() };
        let sums = (0..fragments[0])
            .map(|_| {
                (0..fragments[1])
                    .map(|_| (0..count).map(|_| code.mov(multiply.sum, zero.clone())).collect())
                    .collect()
            })
            .collect();
        let strips = [&sides[0].strip, &sides[1].strip];
        let (first, rows) = ([row, column], multiply.shape[0]);
        let fragments = Fragments { tile: [tile.extent; 2], first, rows, sums };
        Warp { tile, multiply, strips, read, fragments }
    }

    /// Multiplies the strips of a buffer.
    pub fn step(&self, code: &mut Code, buffer: Reg) {
        let base = self.read.map(|r| code.binary(Binary::Add, Type::U32, r, buffer));
        let [rows, columns] = self.tile.own();
        let depths: Vec<usize> = (0..self.multiply.step).step_by(self.multiply.shape[2]).collect();
        for chain in depths.chunks(self.multiply.chain) {
            let load = |code: &mut Code, side: usize, range: Range<usize>| -> Vec<_> {
                let at =
                    |depth: &usize| self.fragments(code, side, base[side], *depth, range.clone());
                chain.iter().map(at).collect()
            };
            let of_rows = load(code, 0, 0..rows);
            // Two columns of fragments at a time, so that few registers hold them.
            for first in (0..columns).step_by(16) {
                let of_columns = load(code, 1, first..first + 16);
                let at = first / COLUMNS;
                for (i, sums) in self.fragments.sums.iter().enumerate() {
                    for j in 0..of_columns[0].len() {
                        let terms = of_rows.iter().zip(&of_columns);
                        let terms: Vec<[&[Reg]; 2]> =
                            terms.map(|(a, b)| [&*a[i], &*b[j]]).collect();
                        self.multiply.add(code, &sums[at + j], &terms);
                    }
                }
            }
        }
    }

    /// The fragments of a range of lhs or rhs at a depth.
    fn fragments(
        &self,
        code: &mut Code,
        side: usize,
        base: Reg,
        depth: usize,
        range: Range<usize>,
    ) -> Vec<Vec<Reg>> {
        let strip = self.strips[side];
        let extent = self.multiply.shape[side];
        let mut found = vec![];
        if self.multiply.by_matrices() {
            // Four matrices are one fragment of lhs, or two of rhs.
            for outer in range.step_by(16) {
                let results: Vec<Reg> = (0..4).map(|_| code.reg_of(Type::B32)).collect();
                code.push(Inst::LoadMatrix {
                    transpose: strip.loader.direction == Direction::Outer,
                    results: results.clone(),
                    base: base.into(),
                    offset: strip.at(outer, depth),
                });
                found.extend(results.chunks(if side == 0 { 4 } else { 2 }).map(<[Reg]>::to_vec));
            }
            return found;
        }
        for outer in range.step_by(extent) {
            let mut fragment = vec![];
            for along in (0..self.multiply.shape[2]).step_by(4) {
                for down in (0..extent).step_by(8) {
                    let offset = strip.at(outer + down, depth + along);
                    let raw = code.load(Space::Shared, self.multiply.sum, base, offset);
                    fragment.push(match self.multiply.operands[side] {
                        Type::TF32 => {
                            code.convert(Rounding::NearestAway, Type::TF32, Type::F32, raw)
                        }
                        _ => raw,
                    });
                }
            }
            found.push(fragment);
        }
        found
    }
}
