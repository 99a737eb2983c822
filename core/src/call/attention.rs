//! Attention, forward and backward, without a matrix of scores in memory.

use super::contract::{Contract, fits, named};
use super::reference::{Reference, Sum, greatest, rounding, rounds, sum_error};
use crate::diagnostic::{Result, bail, ensure};
use crate::dtype::DType;
use crate::literal::Literal;
use crate::op::define::attributes;
use crate::scalar::Scalar;
use crate::target::Target;
use crate::ty::TensorType;

attributes! {
    /// `out = softmax(scale·q·kᵀ + bias)·v` for each example and head, and the logarithm l of the
    /// softmax' denominator. Backward: the cotangents of q, k and v. The formulas are those of
    /// [the op](crate::op::Attention).
    ///
    /// Arguments: q, dense `[batch, queries, heads, width]`, k and v, dense `[batch, keys, heads /
    /// group, width]`; if packed, all three in one, dense `[batch, queries, 3, heads, width]`. Head
    /// n of q attends to head ⌊n / group⌋ of k and v. Then the bias, if there is one, dense of its
    /// extents. Then the prefix, if there is one, i32, dense `[batch]`. Backward also l, dense
    /// `[batch, heads, queries]`, out's cotangent, like q, and m, like l, or out itself, like q.
    /// Results: out and l; backward, q's, k's and v's cotangents, packed like the operands.
    ///
    /// The bias, l and m have the dtype of sums, everything else has `dtype`. For halves, sums
    /// are f32. The back end chooses the order of sums (opaque sums: compared within a bound).
    /// The weights of sums over halves (probabilities, and the cotangents of scores) may be
    /// rounded to halves first, so that products are of halves.
    Attention {
        /// Examples; every extent is at least 1.
        batch: usize,
        /// Positions of q.
        queries: usize,
        /// Positions of k and v; `queries` if packed.
        keys: usize,
        /// Heads of q.
        heads: usize,
        /// Number of heads of q that share a head of k and v; it divides `heads`, and is 1 if
        /// packed.
        group: usize = 1,
        /// Width of a head.
        width: usize,
        /// Whether q, k and v are packed in one tensor.
        packed: bool = false,
        /// Extents of the bias, each that of the scores `[batch, heads, queries, keys]` or 1,
        /// except that of the keys, which is not broadcast. Empty if there is no bias.
        bias: Vec<usize> = Vec::new(),
        /// Whether there is a prefix: for each example, the number of keys that position 0 attends
        /// to. Without it the number is 1 if `causal`, else `keys`.
        prefix: bool = false,
        /// Whether position t attends to t keys more than position 0 does. The number is clamped
        /// to 0 to `keys` ([`Attention::seen`]).
        causal: bool = false,
        /// Whether to compute the cotangents.
        backward: bool = false,
        /// Whether the last operand of a backward call is out instead of m. Then m is the sum of
        /// the products of out and its cotangent along the width.
        out_given: bool = false,
        /// Factor of the scores: an f64, rounded to the dtype of sums.
        scale: Scalar,
        /// Dtype of queries, keys, values and out: a float.
        dtype: DType,
    }
}

/// Layout of rows of `width` elements for each head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heads {
    /// The first element.
    pub offset: usize,
    /// Stride of examples.
    pub batch: usize,
    /// Stride of positions. The stride of heads is `width`.
    pub position: usize,
}

impl Attention {
    fn tensor(&self, shape: &[usize]) -> TensorType {
        TensorType::new(self.dtype, shape.iter().copied())
    }

    /// The dtype of sums, of the bias, of l and of m.
    pub fn wide(&self) -> DType {
        self.dtype.wide()
    }

    /// Types of q, k and v, or of the operand that packs them.
    fn three(&self) -> Vec<TensorType> {
        let of = |positions, heads| self.tensor(&[self.batch, positions, heads, self.width]);
        let keys = of(self.keys, self.key_heads());
        match self.packed {
            true => vec![self.tensor(&[self.batch, self.queries, 3, self.heads, self.width])],
            false => vec![of(self.queries, self.heads), keys.clone(), keys],
        }
    }

    fn out_and_logarithm(&self) -> [TensorType; 2] {
        [
            self.tensor(&[self.batch, self.queries, self.heads, self.width]),
            TensorType::new(self.wide(), [self.batch, self.heads, self.queries]),
        ]
    }

    /// Heads of k and v.
    pub fn key_heads(&self) -> usize {
        self.heads / self.group
    }

    /// The head of queries (0), keys (1) or values (2) to which head n of q belongs.
    pub fn head(&self, part: usize, n: usize) -> usize {
        if part == 0 { n } else { n / self.group }
    }

    /// Layout of queries (0), keys (1) or values (2) in their operand, and of their cotangents
    /// in their result.
    pub fn part(&self, part: usize) -> Heads {
        let (positions, rows, heads) = match (self.packed, part) {
            (true, _) => (self.queries, 3, self.heads),
            (false, 0) => (self.queries, 1, self.heads),
            (false, _) => (self.keys, 1, self.key_heads()),
        };
        let row = heads * self.width;
        let offset = if self.packed { part * row } else { 0 };
        Heads { offset, batch: positions * rows * row, position: rows * row }
    }

    /// Layout of out and of its cotangent.
    pub fn out(&self) -> Heads {
        let row = self.heads * self.width;
        Heads { offset: 0, batch: self.queries * row, position: row }
    }

    /// Number of keys that a query attends to, from key 0 on. `prefix` is the element of the
    /// prefix for the query's example; it is not used if the call has no prefix. Keys and values
    /// that no query attends to are not read. A query without keys has out 0 and l −∞.
    pub fn seen(&self, prefix: i32, query: usize) -> usize {
        // Extents that fit are below 2⁶⁰.
        let more = if self.causal { query as i64 } else { 0 };
        (self.first_seen(prefix) + more).clamp(0, self.keys as i64) as usize
    }

    /// [`seen`](Self::seen) of query 0 before it is clamped.
    pub fn first_seen(&self, prefix: i32) -> i64 {
        match (self.prefix, self.causal) {
            (true, _) => i64::from(prefix),
            (false, true) => 1,
            (false, false) => self.keys as i64,
        }
    }

    /// Extents of the scores.
    fn scores_shape(&self) -> [usize; 4] {
        [self.batch, self.heads, self.queries, self.keys]
    }

    /// Number of operands for queries, keys, values, the bias and the prefix. Backward, l, the
    /// cotangent of out and m or out follow; then come the results.
    pub fn primals(&self) -> usize {
        self.prefix_operand() + usize::from(self.prefix)
    }

    /// The position of the prefix among the operands, if there is one.
    pub fn prefix_operand(&self) -> usize {
        self.packed_or_three() + usize::from(!self.bias.is_empty())
    }

    /// Number of operands for queries, keys and values; the bias follows them.
    pub fn packed_or_three(&self) -> usize {
        if self.packed { 1 } else { 3 }
    }

    /// Offset of the bias of a head's scores, and the stride of its rows: 0 if all queries share
    /// one row.
    pub fn bias_rows(&self, [b, n]: [usize; 2]) -> (usize, usize) {
        let [batch, heads, queries, keys] = [0, 1, 2, 3].map(|axis| self.bias[axis]);
        let at = |position: usize, extent: usize| if extent == 1 { 0 } else { position };
        let first = (at(b, batch) * heads + at(n, heads)) * queries * keys;
        (first, if queries == 1 { 0 } else { keys })
    }
}

impl Contract for Attention {
    named!("attention");

    fn operands(&self) -> Vec<TensorType> {
        let mut types = self.three();
        if !self.bias.is_empty() {
            types.push(TensorType::new(self.wide(), self.bias.iter().copied()));
        }
        if self.prefix {
            types.push(TensorType::new(DType::I32, [self.batch]));
        }
        if self.backward {
            let [out, logarithm] = self.out_and_logarithm();
            let last = if self.out_given { out.clone() } else { logarithm.clone() };
            types.extend([logarithm, out, last]);
        }
        types
    }

    fn results(&self) -> Vec<TensorType> {
        if self.backward { self.three() } else { self.out_and_logarithm().to_vec() }
    }

    fn verify(&self) -> Result<()> {
        let extents = [self.batch, self.queries, self.keys, self.heads, self.width];
        ensure!(!extents.contains(&0), "attention of extents {extents:?}";
            help "every extent is at least 1");
        fits(
            "queries, keys and values",
            &[3, self.batch, self.queries.max(self.keys), self.heads, self.width],
        )?;
        ensure!(
            !self.packed || self.queries == self.keys,
            "{} queries beside {} keys",
            self.queries,
            self.keys
        );
        ensure!(
            self.group > 0 && self.heads.is_multiple_of(self.group),
            "{} heads in groups of {}", self.heads, self.group;
            help "the size of a group divides the number of heads"
        );
        ensure!(!self.packed || self.group == 1, "packed heads in groups of {}", self.group);
        let scores = self.scores_shape();
        fits("scores", &scores)?;
        let one_or = |axis: usize| self.bias[axis] == 1 || self.bias[axis] == scores[axis];
        ensure!(
            self.bias.is_empty()
                || (self.bias.len() == 4 && (0..3).all(one_or) && self.bias[3] == self.keys),
            "scores {scores:?} with a bias {:?}", self.bias;
            help "an extent of the bias is that of the scores; but for that of the keys, it may be \
             1"
        );
        ensure!(
            self.backward || !self.out_given,
            "attention forward with its result as an operand";
            help "only a backward call is given out"
        );
        ensure!(self.dtype.is_float(), "attention of {}", self.dtype; help "it is of floats");
        if self.scale.dtype() != DType::F64 || !self.scale.to_f64().is_finite() {
            bail!("scores are multiplied by {}", self.scale; help "the scale is a finite f64");
        }
        Ok(())
    }

    fn claimed_by(&self, target: &Target) -> bool {
        let row = (self.width as u64).saturating_mul(self.wide().size() as u64);
        row <= target.attention_row
            && (target.half_attention || !self.dtype.is_half())
            && (target.attention_out || !self.out_given)
    }

    /// Over the pairs of a query and a key that it attends to. No extent is 0. With a prefix it is
    /// an upper bound, over all pairs: only a run knows the prefix.
    fn count(&self, _least: usize) -> u64 {
        let (t, s) = (self.queries as u64, self.keys as u64);
        let pairs = match self.causal && !self.prefix {
            false => t.saturating_mul(s),
            true => {
                // Each query before the last key attends to one key more than the query before
                // it.
                let growing = t.min(s);
                let triangle = growing.saturating_mul(growing.saturating_add(1)) / 2;
                triangle.saturating_add((t - growing).saturating_mul(s))
            }
        };
        // Forward, scores and the weighted sum; backward, the scores again and four more
        // products.
        let products = if self.backward { 5 } else { 2 };
        let heads = [self.batch, self.heads, self.width].into_iter().map(|e| e as u64);
        heads.fold(pairs.saturating_mul(2 * products), u64::saturating_mul)
    }

    fn evaluate(&self, operands: &[Literal]) -> Vec<Reference> {
        // Each number is read many times.
        let operands: Vec<Vec<f64>> = operands
            .iter()
            .map(|operand| operand.scalars().map(Scalar::to_f64).collect())
            .collect();
        let mut found: Vec<Vec<Entry>> = self
            .results()
            .iter()
            .map(|ty| vec![Entry::default(); ty.elements().expect("verified extents fit")])
            .collect();
        for b in 0..self.batch {
            for n in 0..self.heads {
                for t in 0..self.queries {
                    match self.backward {
                        false => self.forward(&operands, [b, n, t], &mut found),
                        true => self.cotangents(&operands, [b, n, t], &mut found),
                    }
                }
            }
        }
        let reference = |(ty, entries): (TensorType, Vec<Entry>)| {
            let mut reference = Reference::new(ty);
            for entry in entries {
                let (value, error) = entry.finish(reference.dtype());
                reference.push(value, error);
            }
            reference
        };
        self.results().into_iter().zip(found).map(reference).collect()
    }
}

impl Attention {
    /// Elements of one head in its tensor.
    fn row(&self, heads: Heads, [b, n]: [usize; 2], t: usize) -> std::ops::Range<usize> {
        let at = heads.offset + b * heads.batch + t * heads.position + n * self.width;
        at..at + self.width
    }

    /// The row of q, k or v at a position.
    fn of<'a>(
        &self,
        operands: &'a [Vec<f64>],
        part: usize,
        head: [usize; 2],
        t: usize,
    ) -> &'a [f64] {
        let operand = if self.packed { &operands[0] } else { &operands[part] };
        let head = [head[0], self.head(part, head[1])];
        &operand[self.row(self.part(part), head, t)]
    }

    /// Σ xy, and a bound of its error in any other order.
    fn dot(&self, x: &[f64], y: &[f64]) -> (f64, f64) {
        let mut sum = Sum::new(self.wide());
        x.iter().zip(y).for_each(|(x, y)| sum.add_reals(*x, *y));
        let (value, error) = sum.finish();
        (value.to_f64(), error)
    }

    /// Scores of a query with the keys that it attends to, each with its bound.
    fn scores(&self, operands: &[Vec<f64>], [b, n, t]: [usize; 3]) -> Vec<(f64, f64)> {
        let (wide, scale) = (self.wide(), self.factor());
        let bias = (!self.bias.is_empty()).then(|| self.bias_rows([b, n]));
        let score = |s: usize| {
            let (value, error) =
                self.dot(self.of(operands, 0, [b, n], t), self.of(operands, 1, [b, n], s));
            let value = value * scale;
            // The back end may multiply the scale into q, into the sums, or into their
            // differences.
            let error = error * scale.abs() + 4.0 * rounding(wide, value);
            let Some((first, row)) = bias else { return (value, error) };
            let sum = value + operands[self.packed_or_three()][first + t * row + s];
            // A score of −∞ is exact.
            let finite = sum != f64::NEG_INFINITY;
            (sum, if finite { error + rounding(wide, sum) } else { 0.0 })
        };
        let prefix = match self.prefix {
            true => operands[self.prefix_operand()][b] as i32,
            false => 0,
        };
        (0..self.seen(prefix, t)).map(score).collect()
    }

    /// The factor of the scores, rounded.
    fn factor(&self) -> f64 {
        Scalar::from_f64(self.wide(), self.scale.to_f64()).to_f64()
    }

    /// Error bound of a weight of numbers of `dtype`, or of a weight multiplied by `factor`,
    /// known up to `error`.
    fn weight_error(&self, weight: f64, factor: f64, error: f64) -> f64 {
        if !self.dtype.is_half() {
            return error;
        }
        // Rounded after or before it is multiplied by the factor.
        let (whole, bare) = (weight.abs() + error, (weight.abs() + error) / factor.abs());
        match whole.max(bare) > greatest(self.dtype) {
            true => f64::INFINITY,
            false => {
                error
                    + 2.0
                        * rounding(self.dtype, whole).max(rounding(self.dtype, bare) * factor.abs())
            }
        }
    }

    fn forward(&self, operands: &[Vec<f64>], [b, n, t]: [usize; 3], found: &mut [Vec<Entry>]) {
        let scores = self.scores(operands, [b, n, t]);
        let logarithm = (b * self.heads + n) * self.queries + t;
        if scores.is_empty() {
            found[1][logarithm].value = f64::NEG_INFINITY;
            return;
        }
        let max = scores.iter().map(|s| s.0).fold(f64::NEG_INFINITY, f64::max);
        let max = if max.is_finite() { max } else { 0.0 };
        let sum: f64 = scores.iter().map(|s| (s.0 - max).exp()).sum();
        let wide = self.wide();
        let unit = wide.unit_roundoff();
        // An exponential and the sum of exponentials carry the errors of their scores, of the
        // difference to the maximum, and a few roundings.
        let relative = |(s, e): (f64, f64)| match s == f64::NEG_INFINITY {
            true => 0.0,
            false => growth(2.0 * e + unit * (8.0 + 4.0 * (s - max).abs() + max.abs())),
        };
        let greatest = scores.iter().map(|s| relative(*s)).fold(0.0, f64::max);
        let whole = growth(2.0 * greatest) + sum_error(wide, scores.len() + 4);
        for (s, score) in scores.iter().enumerate() {
            let p = (score.0 - max).exp() / sum;
            let rounded = self.weight_error(p, 1.0, 0.0);
            let rows = self.of(operands, 2, [b, n], s);
            for (at, v) in self.row(self.out(), [b, n], t).zip(rows) {
                found[0][at].add(p * v, whole);
                found[0][at].error += rounded * v.abs();
            }
        }
        let entry = &mut found[1][logarithm];
        entry.add(max + sum.ln(), 0.0);
        entry.error +=
            greatest + sum_error(wide, scores.len() + 4) + 4.0 * unit * (1.0 + max.abs());
    }

    fn cotangents(&self, operands: &[Vec<f64>], [b, n, t]: [usize; 3], found: &mut [Vec<Entry>]) {
        let given = &operands[operands.len() - 3..];
        let position = (b * self.heads + n) * self.queries + t;
        let wide = self.wide();
        let unit = wide.unit_roundoff();
        let row = self.row(self.out(), [b, n], t);
        let c = &given[1][row.clone()];
        let l = given[0][position];
        let (m, m_error) = match self.out_given {
            true => self.dot(c, &given[2][row]),
            false => (given[2][position], 0.0),
        };
        let scale = self.factor();
        for (s, (score, error)) in self.scores(operands, [b, n, t]).into_iter().enumerate() {
            let p = (score - l).exp();
            let hidden = score == f64::NEG_INFINITY;
            let relative =
                if hidden { 0.0 } else { growth(error + unit * (8.0 + 4.0 * (score - l).abs())) };
            let (slope, slope_error) = self.dot(c, self.of(operands, 2, [b, n], s));
            let difference = slope - m;
            let ds = p * difference * scale;
            let ds_error = (p * scale).abs()
                * (slope_error + m_error + 2.0 * unit * (slope.abs() + m.abs()))
                * (1.0 + relative)
                + ds.abs() * (relative + 8.0 * unit);
            let ds_error = self.weight_error(ds, scale, ds_error);
            let p_error = self.weight_error(p, 1.0, p * relative);
            let mut give = |part: usize, to: usize, weight: f64, error: f64, rows: &[f64]| {
                let result = if self.packed { 0 } else { part };
                // Bound for any order of a sum of so many terms.
                let terms = if part == 0 { self.keys } else { self.queries * self.group };
                let order = sum_error(wide, terms + 2);
                let head = [b, self.head(part, n)];
                for (at, x) in self.row(self.part(part), head, to).zip(rows) {
                    let entry = &mut found[result][at];
                    entry.add(weight * x, order);
                    entry.error += error * x.abs() * (1.0 + order);
                }
            };
            give(0, t, ds, ds_error, self.of(operands, 1, [b, n], s));
            give(1, s, ds, ds_error, self.of(operands, 0, [b, n], t));
            give(2, s, p, p_error, c);
        }
    }
}

/// The relative error of `exp` for an absolute error of its argument.
fn growth(error: f64) -> f64 {
    if error < 0.5 { error.exp_m1() } else { f64::INFINITY }
}

/// An element of a result during its summation, in f64.
#[derive(Clone, Copy, Default)]
struct Entry {
    value: f64,
    error: f64,
}

impl Entry {
    /// Adds a term whose relative error in a back end is at most `relative`.
    fn add(&mut self, term: f64, relative: f64) {
        self.value += term;
        self.error += term.abs() * relative;
    }

    fn finish(self, dtype: DType) -> (Scalar, f64) {
        let error = if self.error.is_nan() { f64::INFINITY } else { self.error };
        rounds(dtype, self.value, error)
    }
}
