//! Loads: keys and values to shared memory, queries widened to shared memory, biases to registers.

use super::super::super::super::index::{advance, both, divide};
use super::super::super::super::number::Place;
use super::super::super::rows::{Division, Rows, Share, beyond};
use super::super::super::scores::Bias;
use super::super::THREADS;
use super::Block;
use crate::ptx::{Binary, Code, Compare, Inst, Reg, Space, Ternary, Type};
use std::collections::BTreeMap;

impl Block<'_> {
    /// Copies the range's rows to a tile, as a group of asynchronous copies. A row that has more
    /// pieces than there are threads is copied in parts.
    pub(super) fn fill(&self, code: &mut Code, rows: &Rows, offset: usize, pitch: usize) {
        let (depth, size) = (self.shape.depth, rows.number.size());
        let part = (THREADS * rows.vector).min(depth);
        for begin in (0..depth).step_by(part) {
            let bytes = begin as i64 * size;
            let rows = match begin {
                0 => Rows { width: rows.width.min(part), ..*rows },
                _ => Rows {
                    address: code.binary(Binary::Add, Type::S64, rows.address, bytes),
                    width: rows.width.saturating_sub(begin).min(part),
                    ..*rows
                },
            };
            let division = Division {
                threads: THREADS,
                vector: rows.vector,
                depth: part.min(depth - begin),
                tile: self.shape.keys,
            };
            let share = Share::new(code, self.thread, division, &rows, self.first);
            let to = self.at(code, offset + bytes as usize, share.row, pitch as i64);
            let to = code.ternary(Ternary::Mad, Type::S32, share.column, size, to);
            share.copy(code, &rows, to, pitch);
        }
        code.push(Inst::CopyCommit);
    }

    /// Stores the rows of queries to shared memory, widened, with zeros from the width to the
    /// depth.
    pub(super) fn load_queries(&self, code: &mut Code, q: &Rows) {
        let (shape, call) = (self.shape, self.problem.call);
        let vector = q.vector.min(q.number.vector());
        let pieces = shape.depth / vector;
        let total = shape.rows * pieces;
        let mut loaded = vec![];
        for begin in (0..total).step_by(THREADS) {
            let index = code.binary(Binary::Add, Type::S32, self.thread, begin as i64);
            let exists = (begin + THREADS > total)
                .then(|| code.compare(Compare::Lt, Type::S32, index, total as i64));
            let (row, piece) = divide(code, index, pieces);
            let (position, head) = divide(code, row, call.group);
            let column = code.binary(Binary::Mul, Type::S32, piece, vector as i64);
            let below = (shape.depth != call.width)
                .then(|| code.compare(Compare::Lt, Type::S32, column, call.width as i64));
            let from = advance(code, q.address, position, q.position);
            let from = advance(code, from, head, call.width as i64 * q.number.size());
            let from = advance(code, from, column, q.number.size());
            let valid = both(code, exists, below);
            let place = Place { address: from, offset: 0, valid };
            loaded.push((index, exists, q.number.load(code, Space::Global, place, vector)));
        }
        for (index, valid, raw) in loaded {
            let to = self.at(code, self.shared.queries, index, vector as i64 * self.wide());
            let values: Vec<Reg> = raw.into_iter().map(|r| q.number.widen(code, r)).collect();
            for (n, part) in values.chunks(shape.sums.vector()).enumerate() {
                let offset = (n * shape.sums.vector()) as i64 * self.wide();
                shape.sums.store(code, Space::Shared, Place { address: to, offset, valid }, part);
            }
        }
    }

    /// The biases of the thread's key, for each row.
    pub(super) fn biases(&self, code: &mut Code, bias: Bias) -> Vec<Reg> {
        let key = self.key(code);
        let key = code.binary(Binary::Add, Type::S32, self.first, key);
        let valid = Some(code.compare(Compare::Lt, Type::S32, key, self.end));
        let address = advance(code, bias.address, key, self.wide());
        let mut loaded: BTreeMap<i64, Reg> = BTreeMap::new();
        (0..self.shape.rows)
            .map(|row| {
                let [position, head] = self.position_of(row).map(|n| n as i64);
                let bytes = position * bias.row + head * bias.head;
                *loaded.entry(bytes).or_insert_with(|| {
                    let place = Place { valid, ..beyond(code, address, bytes) };
                    self.shape.sums.load(code, Space::Global, place, 1)[0]
                })
            })
            .collect()
    }
}
