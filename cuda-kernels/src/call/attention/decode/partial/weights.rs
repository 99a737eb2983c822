//! Scores of all rows with the keys of a range, and their powers.

use super::super::super::super::index::divide;
use super::super::super::super::number::{Number, Place};
use super::super::super::scores::together;
use super::super::LANES;
use super::{Block, WARPS, lanes_from, unrolled};
use crate::ptx::{Binary, Code, Compare, Inst, Lanes, Reg, Space, Ternary, Type};
use crate::scalar::Functions;
use std::collections::BTreeMap;
use wengert_core::DType;

impl Block<'_> {
    /// The products of each row with the thread's key.
    pub(super) fn products(&self, code: &mut Code) -> Vec<Reg> {
        let (shape, ty) = (self.shape, self.ty());
        let (slots, vector) = (shape.slots(), 16 / shape.number.size() as usize);
        let mut sums: Vec<Vec<Reg>> = (0..slots)
            .map(|_| (0..shape.rows).map(|_| code.mov(ty, shape.sums.zero())).collect())
            .collect();
        let keys = self.at(code, self.shared.keys, self.team, (slots * self.shared.pitch) as i64);
        let keys = code.ternary(Ternary::Mad, Type::S32, self.lane, 16, keys);
        let queries = self.at(code, self.shared.queries, self.lane, vector as i64 * self.wide());
        let steps = shape.depth / (LANES * vector);
        let unrolled = unrolled(steps, slots * shape.rows * vector);
        code.count(0, steps as i64, unrolled as i64, |code, step| {
            let [keys, queries] = [(keys, shape.number), (queries, shape.sums)].map(|(at, n)| {
                let bytes = (LANES * vector) as i64 * n.size();
                code.ternary(Ternary::Mad, Type::S32, step, bytes, at)
            });
            for far in (0..unrolled).map(|n| n * LANES * vector) {
                let of_keys: Vec<Vec<Reg>> = (0..slots)
                    .map(|slot| {
                        let offset = slot * self.shared.pitch + far * shape.number.size() as usize;
                        sixteen_bytes(code, shape.number, keys, offset as i64)
                    })
                    .collect();
                for row in 0..shape.rows {
                    let offset = (row * shape.depth + far) as i64 * self.wide();
                    let of_query = self.run(code, queries, offset, vector);
                    for (sums, of_key) in sums.iter().zip(&of_keys) {
                        for (x, y) in of_query.iter().zip(of_key) {
                            shape.sums.accumulate(code, sums[row], *x, *y);
                        }
                    }
                }
            }
        });
        // The upper lanes keep the second half of the keys, and send the first.
        for bit in [2, 1] {
            if sums.len() == 1 {
                for sum in &mut sums[0] {
                    *sum = together(code, ty, &[bit], Binary::Add, *sum);
                }
                continue;
            }
            let masked = code.binary(Binary::And, Type::B32, self.lane, bit);
            let upper = code.compare(Compare::Ne, Type::S32, masked, 0);
            let seconds = sums.split_off(sums.len() / 2);
            for (first, second) in sums.iter_mut().zip(seconds) {
                for (first, second) in first.iter_mut().zip(second) {
                    let kept = code.select(ty, second, *first, upper);
                    let sent = code.select(ty, *first, second, upper);
                    let received = code.shuffle(&Lanes::butterfly(bit), sent);
                    *first = code.binary(Binary::Add, ty, kept, received);
                }
            }
        }
        sums.remove(0)
    }

    /// The scores of the thread's key: scaled, with their bias added, −∞ where the row does not
    /// see the key.
    pub(super) fn scores(
        &self,
        code: &mut Code,
        products: &[Reg],
        biases: Option<&[Reg]>,
    ) -> Vec<Reg> {
        let (shape, call, ty) = (self.shape, self.problem.call, self.ty());
        let powers = shape.powers();
        let hides = call.causal || call.prefix || !call.keys.is_multiple_of(shape.keys);
        let key = self.key(code);
        let key = code.binary(Binary::Add, Type::S32, self.first, key);
        let mut unseen: BTreeMap<usize, Reg> = BTreeMap::new();
        (0..shape.rows)
            .map(|row| {
                let mut score = code.binary(Binary::Mul, ty, products[row], powers.scale(call));
                if let Some(biases) = biases {
                    score = code.ternary(Ternary::Fma, ty, biases[row], powers.unit(), score);
                }
                if !hides {
                    return score;
                }
                let position = if call.causal { self.position_of(row)[0] } else { 0 };
                let unseen = *unseen.entry(position).or_insert_with(|| {
                    let position = code.mov(Type::S32, position as i64);
                    let end = self.problem.seen(code, self.prefix, position, 1);
                    code.compare(Compare::Ge, Type::S32, key, end)
                });
                code.select(ty, shape.sums.constant(f64::NEG_INFINITY), score, unseen)
            })
            .collect()
    }

    /// Stores the powers of scores, relative to the greatest score of their row, to shared memory.
    pub(super) fn weights(&self, code: &mut Code, functions: &mut Functions, scores: &[Reg]) {
        let (shape, ty, powers) = (self.shape, self.ty(), self.shape.powers());
        let lanes = lanes_from(shape.threads_per_key());
        let (warp, in_warp) = divide(code, self.thread, 32);
        let leads = Some(code.compare(Compare::Eq, Type::S32, in_warp, 0));
        let of_warp = self.at(code, self.shared.maxima, warp, self.wide());
        for (row, score) in scores.iter().enumerate() {
            let most = together(code, ty, &lanes, Binary::Max, *score);
            let offset = (row * WARPS) as i64 * self.wide();
            let place = Place { address: of_warp, offset, valid: leads };
            shape.sums.store(code, Space::Shared, place, &[most]);
        }
        code.push(Inst::Barrier);
        let key = self.key(code);
        let to =
            self.at(code, self.shared.weights, key, shape.weights_pitch() as i64 * self.wide());
        let maxima = code.binary(Binary::Add, Type::U32, self.base, self.shared.maxima as i64);
        let mut weights: Vec<Reg> = vec![];
        for (row, score) in scores.iter().enumerate() {
            let greatest = self.greatest(code, maxima, (row * WARPS) as i64 * self.wide());
            let reference = powers.reference(code, greatest);
            let moved = code.binary(Binary::Sub, ty, *score, reference);
            weights.push(powers.power(code, functions, moved));
        }
        let vector = shape.sums.vector();
        weights
            .resize_with(shape.rows.next_multiple_of(vector), || code.mov(ty, shape.sums.zero()));
        let (_, number) = divide(code, self.thread, shape.threads_per_key());
        let valid =
            (shape.threads_per_key() > 1).then(|| code.compare(Compare::Eq, Type::S32, number, 0));
        for (n, part) in weights.chunks(vector).enumerate() {
            let offset = (n * vector) as i64 * self.wide();
            shape.sums.store(code, Space::Shared, Place { address: to, offset, valid }, part);
        }
    }
}

/// 16 bytes of shared memory as numbers, widened.
fn sixteen_bytes(code: &mut Code, number: Number, address: Reg, offset: i64) -> Vec<Reg> {
    if !number.0.is_half() {
        return number.load(code, Space::Shared, Place::at(address, offset), number.vector());
    }
    let words = Number(DType::U32).load(code, Space::Shared, Place::at(address, offset), 4);
    let mut halves = vec![];
    for word in words {
        let two = [code.reg_of(number.memory()), code.reg_of(number.memory())];
        code.push(Inst::Unpack(Type::B32, two.to_vec(), word));
        halves.extend(two.map(|raw| number.widen(code, raw)));
    }
    halves
}
