//! Sums of the values weighted by powers, and of the powers.

use super::super::super::super::index::{advance, both, divide};
use super::super::super::super::number::Place;
use super::super::super::scores::together;
use super::super::THREADS;
use super::{Block, WARPS, lanes_from, unrolled};
use crate::ptx::{Binary, Code, Compare, Inst, Reg, Space, Ternary, Type};

impl Block<'_> {
    /// Adds the values weighted by powers, and the powers, for each row, and stores the sums of
    /// each set.
    pub(super) fn weighted_sums(&self, code: &mut Code) {
        let (shape, ty) = (self.shape, self.ty());
        let (vector, across) = (shape.sums.vector(), shape.lanes_per_value());
        let (group, own) = divide(code, self.thread, across);
        let each = vector + 1;
        let sums: Vec<Reg> =
            (0..shape.rows * each).map(|_| code.mov(ty, shape.sums.zero())).collect();
        let whole = across * vector == shape.columns;
        let exists = (!whole).then(|| {
            let vectors = (shape.columns / vector) as i64;
            code.compare(Compare::Lt, Type::S32, own, vectors)
        });
        let groups = THREADS / across;
        let count = shape.keys / groups;
        let unrolled = unrolled(count, shape.rows * vector);
        let values = self.at(code, self.shared.values, group, self.value_pitch() as i64);
        let column_bytes = vector as i64 * shape.number.size();
        let values = code.ternary(Ternary::Mad, Type::S32, own, column_bytes, values);
        let weights_bytes = shape.weights_pitch() as i64 * self.wide();
        let weights = self.at(code, self.shared.weights, group, weights_bytes);
        let add = |code: &mut Code| {
            code.count(0, count as i64, unrolled as i64, |code, n| {
                let key_bytes = (groups * self.value_pitch()) as i64;
                let values = code.ternary(Ternary::Mad, Type::S32, n, key_bytes, values);
                let bytes = groups as i64 * weights_bytes;
                let weights = code.ternary(Ternary::Mad, Type::S32, n, bytes, weights);
                for far in 0..unrolled as i64 {
                    let place = Place::at(values, far * key_bytes);
                    let value: Vec<Reg> = (shape.number)
                        .load(code, Space::Shared, place, vector)
                        .into_iter()
                        .map(|raw| shape.number.widen(code, raw))
                        .collect();
                    let weights = self.run(code, weights, far * bytes, shape.rows);
                    for (sums, weight) in sums.chunks(each).zip(weights) {
                        for (sum, x) in sums.iter().zip(&value) {
                            shape.sums.accumulate(code, *sum, weight, *x);
                        }
                        let sum = sums[vector];
                        code.binary_into(sum, Binary::Add, ty, sum, weight);
                    }
                }
            });
        };
        match exists {
            Some(exists) => code.when(exists, add),
            None => add(code),
        }
        let lanes = lanes_from(across);
        let sums: Vec<Reg> =
            (sums.into_iter()).map(|sum| together(code, ty, &lanes, Binary::Add, sum)).collect();
        // All threads are done with keys and values.
        code.push(Inst::Barrier);
        let (set, _) = divide(code, self.thread, across.max(32));
        let stores = (across < 32).then(|| {
            let (_, in_warp) = divide(code, self.thread, 32);
            code.compare(Compare::Lt, Type::S32, in_warp, across as i64)
        });
        let valid = both(code, stores, exists);
        let row_bytes = shape.columns as i64 * self.wide();
        let to = self.at(code, self.shared.sums, set, shape.rows as i64 * row_bytes);
        let to = code.ternary(Ternary::Mad, Type::S32, own, vector as i64 * self.wide(), to);
        let of_powers = self.at(code, self.shared.powers, set, shape.rows as i64 * self.wide());
        let leads = code.compare(Compare::Eq, Type::S32, own, 0);
        let leads = both(code, stores, Some(leads));
        for (row, sums) in sums.chunks(each).enumerate() {
            let place = Place { address: to, offset: row as i64 * row_bytes, valid };
            shape.sums.store(code, Space::Shared, place, &sums[..vector]);
            let offset = row as i64 * self.wide();
            let place = Place { address: of_powers, offset, valid: leads };
            shape.sums.store(code, Space::Shared, place, &sums[vector..]);
        }
    }

    /// Adds the sums of all sets, and stores the partial results of all rows.
    pub(super) fn store(&self, code: &mut Code, [weighted, pairs]: [Reg; 2]) {
        let (shape, sums) = (self.shape, self.shape.sums);
        let vector = sums.vector();
        let vectors = shape.columns / vector;
        let total = shape.rows * vectors;
        let bytes = vector as i64 * self.wide();
        for begin in (0..total).step_by(THREADS) {
            let index = code.binary(Binary::Add, Type::S32, self.thread, begin as i64);
            let store = |code: &mut Code| {
                let from = self.at(code, self.shared.sums, index, bytes);
                let sum = self.of_sets(code, from, total as i64 * bytes, vector);
                let (row, column) = divide(code, index, vectors);
                let result = self.result(code, row);
                let to = advance(code, weighted, result, shape.columns as i64 * self.wide());
                let to = advance(code, to, column, bytes);
                sums.store(code, Space::Global, Place::at(to, 0), &sum);
            };
            if begin + THREADS > total {
                let exists = code.compare(Compare::Lt, Type::S32, index, total as i64);
                code.when(exists, store);
            } else {
                store(code);
            }
        }
        let has_row = code.compare(Compare::Lt, Type::S32, self.thread, shape.rows as i64);
        code.when(has_row, |code| {
            let from = self.at(code, self.shared.powers, self.thread, self.wide());
            let power_sum = self.of_sets(code, from, shape.rows as i64 * self.wide(), 1)[0];
            let maxima = self.at(code, self.shared.maxima, self.thread, WARPS as i64 * self.wide());
            let greatest = self.greatest(code, maxima, 0);
            let result = self.result(code, self.thread);
            let to = advance(code, pairs, result, 2 * self.wide());
            sums.store(code, Space::Global, Place::at(to, 0), &[greatest, power_sum]);
        });
    }

    /// The sums in order of vectors of all sets, `distance` bytes apart in shared memory.
    fn of_sets(&self, code: &mut Code, from: Reg, distance: i64, vector: usize) -> Vec<Reg> {
        let sums = self.shape.sums;
        let all: Vec<Vec<Reg>> = (0..self.shape.sets() as i64)
            .map(|set| sums.load(code, Space::Shared, Place::at(from, set * distance), vector))
            .collect();
        let mut total = all[0].clone();
        for next in &all[1..] {
            for (total, next) in total.iter_mut().zip(next) {
                *total = code.binary(Binary::Add, self.ty(), *total, *next);
            }
        }
        total
    }

    /// The number of the partial result of a row.
    fn result(&self, code: &mut Code, row: Reg) -> Reg {
        let call = self.problem.call;
        let (position, head) = divide(code, row, call.group);
        let head = code.binary(Binary::Add, Type::S32, self.head[1], head);
        let mad = |code: &mut Code, x: Reg, extent: usize, y: Reg| {
            code.ternary(Ternary::Mad, Type::S32, x, extent as i64, y)
        };
        let head = mad(code, self.head[0], call.heads, head);
        let row = mad(code, head, call.queries, position);
        let range = divide(code, self.first, self.shape.keys).0;
        mad(code, row, self.shape.ranges, range)
    }
}
