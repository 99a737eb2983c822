//! Random numbers: methods of a [`Tensor`] that is a key, `u32[2]`.
//!
//! All numbers are built from [`random_bits`](Tensor::random_bits): Philox 4x32-10 of the key and
//! the element's index. So a key gives the same numbers on every machine and in every fusion, and
//! there is no state: **a key is used once**. Drawing twice from one key gives the same bits
//! twice, and splitting it counts as drawing. [`split_key`](Tensor::split_key) and
//! [`fold_in`](Tensor::fold_in) derive new keys.
//!
//! | method | distribution | construction |
//! |---|---|---|
//! | `uniform` | [0, 1), all multiples of 2⁻²³ (f32), 2⁻⁵² (f64), 2⁻¹⁰ (f16), 2⁻⁷ (bf16) | bits as the mantissa of a number in [1, 2), less 1 |
//! | `uniform_between` | [low, high) | low + u · (high − low), kept below high |
//! | `normal` | mean 0, variance 1 | Box and Muller: √(−2 log(1 − u)) · cos 2πv; to ±5.6 (f32, halves) or ±8.5 (f64), never infinite |
//! | `truncated_normal` | that of `normal` between two bounds | √2 · erf⁻¹ of a number between erf(low/√2) and erf(high/√2), kept off the bounds |
//! | `exponential` | density e⁻ˣ | −log(1 − u) |
//! | `gumbel` | density e^(−x − e⁻ˣ) | −log(−log m) with m = u + half a step, in (0, 1) |
//! | `bernoulli` | true with probability p | u < p |
//! | `categorical` | class i with probability softmax(logits)ᵢ | the greatest of logits + Gumbel numbers |
//! | `permutation` | every order of 0..n | positions in the order of 64 random bits each |
//! | `dropout_mask` | 0 with probability `rate`, else 1 / (1 − rate) | u ≥ rate |
//!
//! Halves are drawn in f32 and rounded once, except for `uniform`, which is exact in its own
//! dtype.
//!
//! # The tails of a truncated normal
//!
//! `truncated_normal` inverts the distribution function as `jax.random` does, so the resolution
//! of erf limits its tails. Between infinite bounds the numbers reach ±5.2 (f32, halves) or ±8.2
//! (f64). An interval on one side of 0 has as many different numbers as there are floats between
//! the two values of erf, which near 1 are 2⁻²⁴ (f32) or 2⁻⁵³ (f64) apart: from 3 to 4 some 44000
//! in f32, from 5 to 6 ten. Beyond 5.5 (f32, halves) or 8.3 (f64) both values are 1, and every
//! number is the neighbour of the outer bound. To sample there, draw in f64, or `exponential` /
//! low + low.

use super::operators::Operand;
use super::tensor::Tensor;
use crate::diagnostic;
use crate::diagnostic::Diagnostic;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::literal::Literal;
use crate::location::Location;
use crate::op::RandomBits;
use crate::scalar::Scalar;
use crate::ty::TensorType;

/// Two words of π, xored into a key by [`Tensor::fold_in`], so that the new key differs from all
/// keys that `split_key` derives.
const FOLD: [u32; 2] = [0x243f_6a88, 0x85a3_08d3];

fn dims<D: Into<Dim>>(shape: impl IntoIterator<Item = D>) -> Vec<Dim> {
    shape.into_iter().map(Into::into).collect()
}

/// The greatest float of a dtype below `value`.
fn below(dtype: DType, value: f64) -> Scalar {
    let scalar = Scalar::from_f64(dtype, value);
    let sign = 1u64 << (8 * dtype.size() - 1);
    Scalar::from_bits(
        dtype,
        match scalar.to_f64() {
            v if v > 0.0 => scalar.bits() - 1,
            // The negative subnormal number of least magnitude.
            0.0 => sign | 1,
            _ => scalar.bits() + 1,
        },
    )
}

/// The error for bounds with known values between which no number of the dtype lies.
fn nothing_between(dtype: DType, low: &Tensor, high: &Tensor) -> Option<Diagnostic> {
    let [low, high] = [low, high].map(|t| Some(t.value().ok()?.convert(dtype).convert(DType::F64)));
    let (low, high) = (low?, high?);
    // Shapes are aligned at their last axes. If they do not fit, broadcasting reports it.
    let rank = low.shape().len().max(high.shape().len());
    let extent = |l: &Literal, axis: usize| match (axis + l.shape().len()).checked_sub(rank) {
        Some(i) => l.shape()[i],
        None => 1,
    };
    let pick =
        |axis| if extent(&low, axis) == 1 { extent(&high, axis) } else { extent(&low, axis) };
    let shape: Vec<usize> = (0..rank).map(pick).collect();
    let (low, high) = (low.as_array::<f64>()?, high.as_array::<f64>()?);
    let (low, high) = (low.broadcast(shape.as_slice())?, high.broadcast(shape.as_slice())?);
    let room = |(a, b): &(&f64, &f64)| below(dtype, **b).to_f64() > **a;
    let (a, b) = low.iter().zip(&high).find(|pair| !room(pair))?;
    Some(
        Diagnostic::new(format!(
            "normal numbers of dtype {dtype} between {a} and {b}, where there are none"
        ))
        .help("the lower bound comes first, and a number of that dtype must lie between the two"),
    )
}

impl Tensor {
    /// `random_bits` of a key `u32[2]` (`self`): u8, u32 or u64.
    #[track_caller]
    pub fn random_bits<D: Into<Dim>>(
        &self,
        dtype: DType,
        shape: impl IntoIterator<Item = D>,
    ) -> Tensor {
        Tensor::apply(RandomBits { dtype, shape: dims(shape) }, &[self])
    }

    /// Derives `count` new keys from a key (`self`). Use these, and not the old one, from then
    /// on.
    #[track_caller]
    pub fn split_key(&self, count: usize) -> Vec<Tensor> {
        let _user = Location::caller().attributed();
        let keys = self.split_keys(count);
        (0..count as i64).map(|i| keys.slice_axis(0, i, i + 1).reshape([2usize])).collect()
    }

    /// The keys of [`split_key`](Self::split_key) as one tensor, `u32[count, 2]`, for use with
    /// `map`.
    #[track_caller]
    pub fn split_keys(&self, count: impl Into<Dim>) -> Tensor {
        self.random_bits(DType::U32, [count.into(), Dim::constant(2)])
    }

    /// Derives a new key from a key (`self`) and an integer scalar, such as the number of a step
    /// or a layer. The old key can be folded with other integers too.
    ///
    /// The new key is two words of Philox under the old key, xored with the integer's low and
    /// high words and a constant.
    #[track_caller]
    pub fn fold_in(&self, number: impl Operand) -> Tensor {
        let number = number.beside(&Tensor::zeros(&TensorType::scalar(DType::I64)));
        if self.error().is_some() || number.error().is_some() {
            return if self.error().is_some() { self.clone() } else { number };
        }
        if !number.dtype().is_integer() || number.rank() != 0 {
            let error = Diagnostic::new(format!("fold_in: a number of type {}", number.ty()));
            return self
                .fail(error.help("a number that is folded into a key is an integer scalar"));
        }
        let _user = Location::caller().attributed();
        // As 64 bits with sign extension, whatever the dtype.
        let number = number.convert(DType::I64).convert(DType::U64);
        let word = |t: Tensor| t.convert(DType::U32).reshape([1usize]);
        let (low, high) = (word(number.clone()), word(number.shift_right_logical(32)));
        let words = Tensor::concatenate(&[&low, &high], 0);
        let fold = Literal::from_vec(&[2], FOLD.to_vec()).expect("two words");
        self.xor(&words).xor(Tensor::constant(fold)).random_bits(DType::U32, [2usize])
    }

    /// The tensor in f32 (`self`), rounded to bf16 stochastically: to one of the two nearest
    /// numbers, each with the probability that makes the mean exact. NaN and infinities stay.
    ///
    /// Random bits of the key are added to the bits below those of bf16, and a carry rounds up.
    ///
    /// Errors: the tensor is not f32; the dtype is not bf16.
    #[track_caller]
    pub fn round_stochastically(&self, dtype: DType, key: &Tensor) -> Tensor {
        if self.error().is_some() {
            return self.clone();
        }
        if self.dtype() != DType::F32 || dtype != DType::BF16 {
            let error = diagnostic!("stochastic rounding from {} to {dtype}", self.dtype());
            return self.fail(error.help("f32 is rounded to bf16"));
        }
        let _user = Location::caller().attributed();
        let random = key.random_bits(DType::U32, self.shape().to_vec());
        let below = random.shift_right_logical(16);
        // A sum of 32 bits wraps around only for NaN, which is not selected.
        let above = (self.bitcast(DType::U32) + below).shift_right_logical(16).shift_left(16);
        let rounded = above.bitcast(DType::F32);
        self.is_finite().select(&rounded, self).convert(dtype)
    }

    /// Floats uniform in [0, 1) from a key (`self`). Random bits become the mantissa of a number
    /// in [1, 2), from which 1 is subtracted.
    #[track_caller]
    pub fn uniform<D: Into<Dim>>(
        &self,
        dtype: DType,
        shape: impl IntoIterator<Item = D>,
    ) -> Tensor {
        let shape = dims(shape);
        match dtype {
            DType::F64 => {
                let mantissa = self.random_bits(DType::U64, shape).shift_right_logical(12);
                mantissa.or(0x3ff0_0000_0000_0000i64).bitcast(DType::F64) - 1.0
            }
            DType::F32 | DType::F16 | DType::BF16 => {
                let bits = self.random_bits(DType::U32, shape);
                // A half uses as many bits as its mantissa has, so that no number is rounded up
                // to 1.
                let digits = match dtype {
                    DType::F16 => 10,
                    DType::BF16 => 7,
                    _ => 23,
                };
                let mantissa = bits.shift_right_logical(32 - digits).shift_left(23 - digits);
                (mantissa.or(0x3f80_0000).bitcast(DType::F32) - 1.0).convert(dtype)
            }
            _ => self.fail(
                Diagnostic::new(format!("random floats of dtype {dtype}"))
                    .help("ask for a float dtype; `random_bits` gives unsigned integers"),
            ),
        }
    }

    /// Floats uniform in [low, high) from a key (`self`); `low < high`, both finite.
    #[track_caller]
    pub fn uniform_between<D: Into<Dim>>(
        &self,
        dtype: DType,
        shape: impl IntoIterator<Item = D>,
        low: f64,
        high: f64,
    ) -> Tensor {
        let u = self.uniform(dtype, shape);
        if u.error().is_some() {
            return u;
        }
        // Both bounds as numbers of the dtype. Their difference must be finite in it too.
        let [first, limit] = [low, high].map(|v| Scalar::from_f64(dtype, v).to_f64());
        let length = Scalar::from_f64(dtype, limit - first).to_f64();
        if !first.is_finite() || !limit.is_finite() || !length.is_finite() || first >= limit {
            let error =
                Diagnostic::new(format!("uniform numbers of dtype {dtype} from {low} to {high}"));
            return self
                .fail(error.help("the lower bound is below the upper one, and both are finite"));
        }
        // Rounding may reach the upper bound.
        (&u * length + first)
            .min(Tensor::constant(Literal::full(&[], below(dtype, limit))).broadcast_like(&u))
    }

    /// The midpoints of the steps of `uniform`: in (0, 1), for logarithms. The dtype is f32 or
    /// f64.
    #[track_caller]
    fn uniform_open(&self, dtype: DType, shape: Vec<Dim>) -> Tensor {
        let half_step = if dtype == DType::F64 { 0.5f64.powi(53) } else { 0.5f64.powi(24) };
        self.uniform(dtype.wide(), shape) + half_step
    }

    /// Normally distributed floats of mean 0 and variance 1 from a key (`self`), by the
    /// Box-Muller method.
    #[track_caller]
    pub fn normal<D: Into<Dim>>(&self, dtype: DType, shape: impl IntoIterator<Item = D>) -> Tensor {
        let shape = dims(shape);
        let pairs: Vec<Dim> = [Dim::constant(2)].into_iter().chain(shape.iter().cloned()).collect();
        let uniform = self.uniform(dtype.wide(), pairs);
        let _user = Location::caller().attributed();
        let part = |i: i64| uniform.slice_axis(0, i, i + 1).reshape(shape.clone());
        // 1 − u is in (0, 1], so its logarithm is finite.
        let radius = ((-part(0) + 1.0).log() * -2.0).sqrt();
        let angle = part(1) * std::f64::consts::TAU;
        (radius * angle.cos()).convert(dtype)
    }

    /// Normally distributed floats (mean 0, variance 1 before truncation) from a key (`self`),
    /// strictly between two bounds. Bounds are numbers, which may be infinite, or tensors that
    /// broadcast to the shape. The result is differentiable in the bounds.
    ///
    /// Errors: the dtype is no float; the bounds have known values and no number of the dtype
    /// lies between them. If computed bounds leave no number, the result is the number below the
    /// upper bound. The module documentation states how far the tails reach.
    #[track_caller]
    pub fn truncated_normal<D: Into<Dim>>(
        &self,
        dtype: DType,
        shape: impl IntoIterator<Item = D>,
        low: impl Operand,
        high: impl Operand,
    ) -> Tensor {
        let shape = dims(shape);
        let uniform = self.uniform_open(dtype, shape.clone());
        let scalar = Tensor::zeros(&TensorType::scalar(dtype));
        let (low, high) = (low.beside(&scalar), high.beside(&scalar));
        if let Some(poisoned) = [&uniform, &low, &high].into_iter().find(|t| t.error().is_some()) {
            return poisoned.clone();
        }
        if let Some(error) = nothing_between(dtype, &low, &high) {
            return self.fail(error);
        }
        // The bounds are rounded to the dtype first, so that results lie between them as numbers
        // of that dtype.
        let (low, high) = (low.convert(dtype), high.convert(dtype));
        let first = low.stop_gradient().nextafter(f64::INFINITY);
        let last = high.stop_gradient().nextafter(f64::NEG_INFINITY);
        let wide = dtype.wide();
        let _user = Location::caller().attributed();
        let erf =
            |b: &Tensor| (b.convert(wide) / std::f64::consts::SQRT_2).erf().broadcast_to(&shape);
        let (from, to) = (erf(&low), erf(&high));
        // Rounding may exceed the upper value, and erf has no inverse beyond 1.
        let number = (uniform * (&to - &from) + from).min(&to).erf_inv() * std::f64::consts::SQRT_2;
        number.convert(dtype).clamp(first.broadcast_to(&shape), last.broadcast_to(&shape))
    }

    /// Exponentially distributed floats of mean 1 from a key (`self`): −log(1 − u).
    #[track_caller]
    pub fn exponential<D: Into<Dim>>(
        &self,
        dtype: DType,
        shape: impl IntoIterator<Item = D>,
    ) -> Tensor {
        (-(-self.uniform(dtype.wide(), dims(shape))).log1p()).convert(dtype)
    }

    /// Floats of the Gumbel distribution of maxima (location 0, scale 1) from a key (`self`):
    /// finite, from −2.9 to 17.4 in f32.
    #[track_caller]
    pub fn gumbel<D: Into<Dim>>(&self, dtype: DType, shape: impl IntoIterator<Item = D>) -> Tensor {
        (-(-self.uniform_open(dtype, dims(shape)).log()).log()).convert(dtype)
    }

    /// Bools from a key (`self`) that are true with probability `p`: a number, or a tensor of a
    /// float dtype that is a scalar or has the same shape.
    #[track_caller]
    pub fn bernoulli<D: Into<Dim>>(
        &self,
        p: impl Operand,
        shape: impl IntoIterator<Item = D>,
    ) -> Tensor {
        let p = p.beside(&Tensor::zeros(&TensorType::scalar(DType::F32)));
        if p.error().is_some() {
            return p;
        }
        // In a half, probabilities would have only the steps of its mantissa.
        let p = p.convert(p.dtype().wide());
        self.uniform(p.dtype(), dims(shape)).lt(&p)
    }

    /// Classes (i32) from a key (`self`): along `axis` of the logits, which is removed, class i
    /// with probability softmax(logits)ᵢ.
    #[track_caller]
    pub fn categorical(&self, logits: &Tensor, axis: usize) -> Tensor {
        if logits.error().is_some() {
            return logits.clone();
        }
        let noise = self.gumbel(logits.dtype().wide(), logits.shape().to_vec());
        (logits.convert(logits.dtype().wide()) + noise).argmax(axis)
    }

    /// A random order of 0..`count` (i32) from a key (`self`): the positions sorted by 64 random
    /// bits each. Equal bits, which occur for one of 2⁶⁵ / `count`² keys, keep the order of their
    /// positions.
    #[track_caller]
    pub fn permutation(&self, count: impl Into<Dim>) -> Tensor {
        self.random_bits(DType::U64, [count.into()]).argsort(0)
    }

    /// The rows of `x` (along its first axis) in a random order, from a key (`self`).
    #[track_caller]
    pub fn shuffle(&self, x: &Tensor) -> Tensor {
        match x.shape().first() {
            _ if x.error().is_some() => x.clone(),
            Some(count) => x.gather_rows(&self.permutation(count.clone())),
            None => x.clone(),
        }
    }

    /// The elements that dropout keeps (bools), from a key (`self`): false with probability
    /// `rate`, which is in 0..1.
    #[track_caller]
    pub fn dropout_kept<D: Into<Dim>>(
        &self,
        shape: impl IntoIterator<Item = D>,
        rate: f64,
    ) -> Tensor {
        if !(0.0..1.0).contains(&rate) {
            let error = Diagnostic::new(format!("a dropout rate of {rate}"));
            return self.fail(error.help("it is at least 0 and below 1"));
        }
        self.uniform(DType::F32, dims(shape)).ge(rate)
    }

    /// Factors for dropout, from a key (`self`): 0 where [`dropout_kept`](Self::dropout_kept) is
    /// false, else 1 / (1 − rate).
    #[track_caller]
    pub fn dropout_mask<D: Into<Dim>>(
        &self,
        dtype: DType,
        shape: impl IntoIterator<Item = D>,
        rate: f64,
    ) -> Tensor {
        let kept = self.dropout_kept(shape, rate);
        if kept.error().is_some() {
            return kept;
        }
        kept.convert(dtype) * (1.0 / (1.0 - rate))
    }

    /// Broadcasts `self`, a scalar, to the shape of another tensor.
    #[track_caller]
    fn broadcast_like(&self, other: &Tensor) -> Tensor {
        self.broadcast_to(other.shape())
    }
}
