//! Sorting: computes the permutation that sorts.
//!
//! A sort returns the indices that sort the keys, not the sorted tensors. A nest gathers the
//! values, and any other tensors sorted by these keys, at the indices. Equal elements keep their
//! order, so exactly one result is right on every machine.

use super::contract::{Contract, fits, named, product};
use super::reference::Reference;
use crate::diagnostic::{Result, ensure};
use crate::dtype::DType;
use crate::literal::Literal;
use crate::op::define::attributes;
use crate::scalar::Scalar;
use crate::ty::TensorType;
use std::cmp::Ordering;

/// Upper bound of the number of keys, set by the operands that a kernel can take.
const MAX_KEYS: usize = 64;

attributes! {
    /// For each row (o, i) of keys, whose elements are `key[o, ·, i]`: the indices that sort it.
    /// `key[o, out[o, r, i], i]` is the element of rank r.
    ///
    /// Several keys are compared one after another, as in `jax.lax.sort` with `num_keys`: the
    /// first key that differs decides. The order is [`compare`]'s. It is stable: of elements with
    /// equal keys, the one with the lower index comes first, in either direction.
    ///
    /// Arguments: the keys, each dense `[outer, length, inner]`, then out, dense
    /// `[outer, length, inner]` of i32.
    Sort {
        /// Product of the extents before the sorted axis.
        outer: usize = 1,
        /// Extent of the sorted axis; below 2³¹, so its indices fit i32.
        length: usize,
        /// Product of the extents after the sorted axis.
        inner: usize = 1,
        /// Dtypes of the keys, in order of priority; 1 to 64.
        keys: Vec<DType>,
        /// Whether the greatest elements come first.
        descending: bool = false,
    }
}

/// The order of `sort` and `top_k` on two scalars of one dtype; total except for equal elements.
///
/// Numbers have their usual order, and `false < true`. For floats, −0 and +0 are equal. All NaNs,
/// whatever their bits, are equal and greater than +∞. This is the order of `jax.lax.sort`.
/// `jax.lax.top_k` differs: XLA lets it tell −0 from +0, and takes a NaN with the sign bit for
/// the least element of all.
pub fn compare(x: Scalar, y: Scalar) -> Ordering {
    if x.dtype().is_float() {
        // Every float is exact in f64.
        let (x, y) = (x.to_f64(), y.to_f64());
        return x.partial_cmp(&y).unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()));
    }
    match x.dtype() {
        DType::U64 => x.bits().cmp(&y.bits()),
        _ => x.to_i64().cmp(&y.to_i64()),
    }
}

/// Fails if the indices of a row do not fit i32.
pub(super) fn countable(length: usize) -> Result<()> {
    ensure!(length <= i32::MAX as usize, "rows of {length} elements have more than i32 can count");
    Ok(())
}

/// Passes over rows of that length: each key is compared once for each bit of the number of
/// elements.
pub(super) fn sort_passes(length: usize, keys: usize) -> u64 {
    u64::from(length.max(2).ilog2() + 1).saturating_mul(keys as u64)
}

impl Contract for Sort {
    named!("sort");

    fn operands(&self) -> Vec<TensorType> {
        self.keys.iter().map(|key| self.tensor(*key)).collect()
    }

    fn results(&self) -> Vec<TensorType> {
        vec![self.tensor(DType::I32)]
    }

    fn count(&self, least: usize) -> u64 {
        product(least, &[self.outer, self.length, self.inner])
    }

    /// Comparisons do not count.
    fn flops(&self) -> u64 {
        0
    }

    fn passes(&self) -> u64 {
        sort_passes(self.length, self.keys.len())
    }

    fn verify(&self) -> Result<()> {
        fits("keys", &[self.outer, self.length, self.inner])?;
        countable(self.length)?;
        ensure!((1..=MAX_KEYS).contains(&self.keys.len()), "sort by {} keys", self.keys.len();
            help "1 to {MAX_KEYS} are possible");
        Ok(())
    }

    fn evaluate(&self, operands: &[Literal]) -> Vec<Reference> {
        let mut out = vec![0i32; self.outer * self.length * self.inner];
        // If one extent is 0, the others are unbounded, so the loop must not run.
        for o in 0..if out.is_empty() { 0 } else { self.outer } {
            for i in 0..self.inner {
                let at = |position: usize| (o * self.length + position) * self.inner + i;
                let mut order: Vec<usize> = (0..self.length).collect();
                // A stable sort.
                order.sort_by(|x, y| {
                    let by_key = |key: &Literal| compare(key.get(at(*x)), key.get(at(*y)));
                    let order =
                        operands.iter().map(by_key).find(|o| o.is_ne()).unwrap_or(Ordering::Equal);
                    if self.descending { order.reverse() } else { order }
                });
                for (rank, position) in order.into_iter().enumerate() {
                    out[at(rank)] = i32::try_from(position).expect("the length was verified");
                }
            }
        }
        vec![indices(self.tensor(DType::I32), out)]
    }
}

impl Sort {
    fn tensor(&self, dtype: DType) -> TensorType {
        TensorType::new(dtype, [self.outer, self.length, self.inner])
    }
}

/// The exact reference of a result of indices.
pub(super) fn indices(ty: TensorType, out: Vec<i32>) -> Reference {
    let mut reference = Reference::new(ty);
    out.into_iter().for_each(|index| reference.push(Scalar::of(index), 0.0));
    reference
}
