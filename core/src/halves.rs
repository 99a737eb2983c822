//! Conversions from f64 to f16 and bf16 that round once.
//!
//! The conversions of the `half` crate go through f32 or drop the lower half of the mantissa, so
//! a value next to a tie is rounded as if it were the tie. Here the value is first rounded *to
//! odd* in f32: a value that is no f32 becomes its f32 neighbour whose last bit is 1. No later
//! rounding to at most 22 bits mistakes that for a tie.

use half::{bf16, f16};

/// `value` if it is an f32, else its f32 neighbour with an odd last bit. NaN stays NaN.
fn to_odd_f32(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) == value || value.is_nan() {
        return nearest;
    }
    // Bits of one sign are ordered as magnitudes: one less is the neighbour towards zero, also
    // for infinity.
    let away_from_zero = f64::from(nearest).abs() > value.abs();
    f32::from_bits((nearest.to_bits() - u32::from(away_from_zero)) | 1)
}

/// The nearest f16, ties to even. NaN gives the canonical NaN.
pub fn f16_from_f64(value: f64) -> f16 {
    if value.is_nan() { f16::NAN } else { f16::from_f32(to_odd_f32(value)) }
}

/// The nearest bf16, ties to even. NaN gives the canonical NaN.
pub fn bf16_from_f64(value: f64) -> bf16 {
    if value.is_nan() { bf16::NAN } else { bf16::from_f32(to_odd_f32(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Finds the expected half by comparing distances. This is exact, since halves and their
    /// midpoints are f64.
    fn check(value: f64, got: f64, all: &[f64]) {
        let above = all.partition_point(|h| *h < value);
        let (low, high) = (all[above.saturating_sub(1)], all[above.min(all.len() - 1)]);
        assert!(got == low || got == high, "{value} became {got}, beyond {low}..{high}");
        let middle = (low + high) / 2.0;
        if value != middle && low != high {
            assert_eq!(got, if value < middle { low } else { high }, "{value}");
        }
    }

    fn finite<T>(of: impl Fn(u16) -> T, to: impl Fn(T) -> f64) -> Vec<f64> {
        let mut all: Vec<f64> =
            (0..=u16::MAX).map(|b| to(of(b))).filter(|v| v.is_finite()).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        all
    }

    #[test]
    fn beside_ties() {
        let halves = finite(f16::from_bits, f16::to_f64);
        let brains = finite(bf16::from_bits, bf16::to_f64);
        for pair in halves.windows(2) {
            let middle = (pair[0] + pair[1]) / 2.0;
            for value in [middle, middle.next_up(), middle.next_down()] {
                check(value, f16_from_f64(value).to_f64(), &halves);
            }
            assert_eq!(f16_from_f64(middle).to_bits() & 1, 0, "ties go to even");
        }
        for pair in brains.windows(2).step_by(7) {
            let middle = (pair[0] + pair[1]) / 2.0;
            for value in [middle, middle.next_up(), middle.next_down()] {
                check(value, bf16_from_f64(value).to_f64(), &brains);
            }
        }
    }

    #[test]
    fn edges() {
        assert_eq!(f16_from_f64(65519.999999999).to_f64(), 65504.0);
        assert_eq!(f16_from_f64(65520.0), f16::INFINITY);
        assert_eq!(f16_from_f64(1e300), f16::INFINITY);
        assert_eq!(f16_from_f64(-1e-300).to_bits(), 0x8000);
        assert_eq!(bf16_from_f64(f64::MAX), bf16::INFINITY);
        assert_eq!(bf16_from_f64(f64::NEG_INFINITY), bf16::NEG_INFINITY);
        assert!(f16_from_f64(-f64::NAN).is_nan() && bf16_from_f64(f64::NAN).is_nan());
    }

    proptest! {
        #[test]
        fn every_half_is_a_fixed_point(bits: u16) {
            let (h, b) = (f16::from_bits(bits), bf16::from_bits(bits));
            prop_assert!(h.is_nan() || f16_from_f64(h.to_f64()).to_bits() == bits);
            prop_assert!(b.is_nan() || bf16_from_f64(b.to_f64()).to_bits() == bits);
        }
    }
}
