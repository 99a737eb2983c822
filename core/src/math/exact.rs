//! Elementary functions to about 180 bits: the reference for those of f64.
//!
//! The methods are simple and share nothing with the tested functions: floats with a big integer
//! as significand, Taylor series, the series of the inverse hyperbolic tangent, and a π with all
//! the bits that the largest f64 needs.

use num_bigint::{BigInt, Sign};
use std::ops::{Add, Div, Mul, Neg, Sub};
use std::sync::LazyLock;

/// Bits of a significand.
const BITS: u64 = 192;

/// significand · 2^exponent. Results are truncated to [`BITS`] bits; a sum is exact before that.
#[derive(Clone, Debug)]
pub(super) struct Exact {
    significand: BigInt,
    exponent: i64,
}

impl Exact {
    pub(super) fn new(significand: impl Into<BigInt>, exponent: i64) -> Exact {
        Exact { significand: significand.into(), exponent }.cut()
    }

    fn integer(value: i64) -> Exact {
        Exact::new(value, 0)
    }

    fn cut(self) -> Exact {
        let bits = self.significand.bits();
        if bits <= BITS {
            return self;
        }
        let surplus = bits - BITS;
        Exact { significand: self.significand >> surplus, exponent: self.exponent + surplus as i64 }
    }

    /// A finite f64, exactly.
    pub(super) fn of(x: f64) -> Exact {
        assert!(x.is_finite());
        let bits = x.to_bits();
        let exponent = ((bits >> 52) & 0x7ff) as i64;
        let fraction = (bits & ((1 << 52) - 1)) as i64;
        let significand = if exponent == 0 { fraction } else { fraction | (1 << 52) };
        let significand = if x.is_sign_negative() { -significand } else { significand };
        Exact::new(significand, exponent.max(1) - 1075)
    }

    pub(super) fn is_zero(&self) -> bool {
        self.significand.sign() == Sign::NoSign
    }

    pub(super) fn is_negative(&self) -> bool {
        self.significand.sign() == Sign::Minus
    }

    pub(super) fn abs(self) -> Exact {
        if self.is_negative() { -self } else { self }
    }

    /// The e of 2^e ≤ |x| < 2^(e+1); x is not 0.
    pub(super) fn binade(&self) -> i64 {
        self.exponent + self.significand.bits() as i64 - 1
    }

    /// x · 2^k.
    pub(super) fn scaled(self, k: i64) -> Exact {
        Exact { exponent: self.exponent + k, ..self }
    }

    fn below(&self, power: i64) -> bool {
        self.is_zero() || self.binade() < power
    }

    /// An f64 within about a unit in the last place, if the number is in the range of f64.
    pub(super) fn near(&self) -> f64 {
        if self.is_zero() {
            return 0.0;
        }
        let surplus = self.significand.bits().saturating_sub(53);
        let head = i64::try_from(&self.significand >> surplus).expect("53 bits and a sign");
        libm::scalbn(head as f64, (self.exponent + surplus as i64).clamp(-3000, 3000) as i32)
    }

    /// The nearest integer.
    fn rounded(&self) -> BigInt {
        if self.exponent >= 0 {
            return &self.significand << self.exponent;
        }
        let half = BigInt::from(1) << (-self.exponent - 1);
        (&self.significand + half) >> -self.exponent
    }
}

impl Add for Exact {
    type Output = Exact;
    fn add(self, other: Exact) -> Exact {
        let (low, high) =
            if self.exponent <= other.exponent { (self, other) } else { (other, self) };
        if low.is_zero() {
            return high;
        }
        // If the exponents differ by more than the precision, the smaller operand is negligible.
        if !high.is_zero() && high.binade() - low.binade() > 4 * BITS as i64 {
            return high;
        }
        let shifted = high.significand << (high.exponent - low.exponent);
        Exact { significand: shifted + low.significand, exponent: low.exponent }.cut()
    }
}

impl Neg for Exact {
    type Output = Exact;
    fn neg(self) -> Exact {
        Exact { significand: -self.significand, exponent: self.exponent }
    }
}

impl Sub for Exact {
    type Output = Exact;
    fn sub(self, other: Exact) -> Exact {
        self + -other
    }
}

impl Mul for Exact {
    type Output = Exact;
    fn mul(self, other: Exact) -> Exact {
        Exact {
            significand: self.significand * other.significand,
            exponent: self.exponent + other.exponent,
        }
        .cut()
    }
}

impl Div for Exact {
    type Output = Exact;
    fn div(self, other: Exact) -> Exact {
        let more = BITS + 64 + other.significand.bits();
        Exact {
            significand: (self.significand << more) / other.significand,
            exponent: self.exponent - other.exponent - more as i64,
        }
        .cut()
    }
}

/// Σ terms, from the first term and the rule for the next one, until the terms are negligible.
fn series(first: Exact, mut next: impl FnMut(&Exact, i64) -> (Exact, Exact)) -> Exact {
    // `next` returns the next power and the next term.
    let (mut sum, mut power) = (first.clone(), first);
    for k in 1.. {
        let (new_power, term) = next(&power, k);
        if term.is_zero() || (!sum.is_zero() && term.binade() < sum.binade() - BITS as i64 - 64) {
            break;
        }
        sum = sum + term;
        power = new_power;
    }
    sum
}

/// artanh s or, alternating, arctan s.
fn inverse_tangent(s: Exact, alternating: bool) -> Exact {
    let square = s.clone() * s.clone();
    let square = if alternating { -square } else { square };
    series(s, |power, k| {
        let power = power.clone() * square.clone();
        (power.clone(), power / Exact::integer(2 * k + 1))
    })
}

static LN_2: LazyLock<Exact> =
    LazyLock::new(|| inverse_tangent(Exact::integer(1) / Exact::integer(3), false).scaled(1));

/// π · 2^[`PI_BITS`], rounded down, by Machin's formula.
static PI: LazyLock<BigInt> = LazyLock::new(|| {
    let inverse_tangent = |n: i64| {
        let mut power = (BigInt::from(1) << (PI_BITS + 64)) / n;
        let mut sum = BigInt::from(0);
        let mut k = 0;
        while power.sign() != Sign::NoSign {
            let term = &power / (2 * k + 1);
            sum = if k % 2 == 0 { sum + term } else { sum - term };
            power /= n * n;
            k += 1;
        }
        sum
    };
    (inverse_tangent(5) * 16 - inverse_tangent(239) * 4) >> 64
});
const PI_BITS: i64 = 1400;

pub(super) fn pi() -> Exact {
    Exact::new(PI.clone(), -PI_BITS)
}

/// e^x − 1 for small x.
fn expm1_series(x: Exact) -> Exact {
    let factor = x.clone();
    series(x, |term, k| {
        let term = term.clone() * factor.clone() / Exact::integer(k + 1);
        (term.clone(), term)
    })
}

pub(super) fn exp(x: Exact) -> Exact {
    let n = (x.clone() / LN_2.clone()).rounded();
    let rest = x - Exact::new(n.clone(), 0) * LN_2.clone();
    let n = i64::try_from(n).expect("arguments are moderate");
    (Exact::integer(1) + expm1_series(rest)).scaled(n)
}

pub(super) fn expm1(x: Exact) -> Exact {
    if x.below(-1) { expm1_series(x) } else { exp(x) - Exact::integer(1) }
}

/// ln x of a positive number.
pub(super) fn log(x: Exact) -> Exact {
    let mut k = x.binade();
    let mut m = x.scaled(-k);
    // Reduces m to 0.75..1.5.
    if !(m.clone() - Exact::new(3, -1)).is_negative() {
        (m, k) = (m.scaled(-1), k + 1);
    }
    let one = Exact::integer(1);
    let s = (m.clone() - one.clone()) / (m + one);
    Exact::integer(k) * LN_2.clone() + inverse_tangent(s, false).scaled(1)
}

/// ln(1 + x) for x above −1.
pub(super) fn log1p(x: Exact) -> Exact {
    if x.below(-2) {
        inverse_tangent(x.clone() / (Exact::integer(2) + x), false).scaled(1)
    } else {
        log(Exact::integer(1) + x)
    }
}

/// Sine (`shift` 0) or cosine (1) of an f64, or of any number below 2¹⁰²⁴ with a significand of
/// 64 bits.
pub(super) fn sine(x: Exact, shift: u32) -> Exact {
    // x and π/2 as integers of one unit. Only small arguments are truncated, whose bits below the
    // unit are negligible.
    let unit = PI_BITS + 1;
    let small = x.below(-400);
    let (quadrant, rest) = if small {
        (0, x)
    } else {
        let up = unit + x.exponent;
        let scaled = if up >= 0 { x.significand << up } else { x.significand >> -up };
        let (quadrant, rest): (BigInt, BigInt) = {
            let doubled: BigInt = &scaled * 2 + &*PI;
            let divisor: BigInt = &*PI * 2;
            let quadrant = num_traits::Euclid::div_euclid(&doubled, &divisor);
            (quadrant.clone(), scaled - quadrant * &*PI)
        };
        let quadrant = num_traits::Euclid::rem_euclid(&quadrant, &BigInt::from(4));
        (u32::try_from(quadrant).expect("below 4"), Exact::new(rest, -unit))
    };
    let quadrant = (quadrant + shift) % 4;
    let square = -(rest.clone() * rest.clone());
    let of_sine = quadrant.is_multiple_of(2);
    let first = if of_sine { rest } else { Exact::integer(1) };
    let odd = i64::from(of_sine);
    let value = series(first, |term, k| {
        let term =
            term.clone() * square.clone() / Exact::integer((2 * k + odd) * (2 * k + odd - 1));
        (term.clone(), term)
    });
    if quadrant < 2 { value } else { -value }
}

pub(super) fn tanh(x: Exact) -> Exact {
    let e = expm1(x.scaled(1));
    e.clone() / (e + Exact::integer(2))
}

pub(super) fn erf(x: Exact) -> Exact {
    if !x.below(3) {
        // erfc 8 is below 2⁻⁹⁶.
        return Exact::integer(if x.is_negative() { -1 } else { 1 });
    }
    let square = -(x.clone() * x.clone());
    let sum = series(x, |power, k| {
        let power = power.clone() * square.clone() / Exact::integer(k);
        (power.clone(), power / Exact::integer(2 * k + 1))
    });
    let root = Exact {
        significand: (PI.clone() << (PI_BITS % 2)).sqrt(),
        exponent: -(PI_BITS + PI_BITS % 2) / 2,
    };
    sum.scaled(1) / root.cut()
}

/// Angle of a point other than the origin.
pub(super) fn atan2(y: Exact, x: Exact) -> Exact {
    let (low, high) = (y.clone().abs(), x.clone().abs());
    let steep = !(low.clone() - high.clone()).is_negative();
    let ratio = if steep { high / low } else { low / high };
    let angle = if ratio.below(-20) {
        inverse_tangent(ratio, true)
    } else {
        // tan(angle − guess) is small, and computed by the subtraction formula.
        let guess = Exact::of(libm::atan(ratio.near()));
        let (sine_of, cosine_of) = (sine(guess.clone(), 0), sine(guess.clone(), 1));
        let tangent =
            (ratio.clone() * cosine_of.clone() - sine_of.clone()) / (cosine_of + ratio * sine_of);
        guess + inverse_tangent(tangent, true)
    };
    let angle = if steep { pi().scaled(-1) - angle } else { angle };
    let angle = if x.is_negative() { pi() - angle } else { angle };
    if y.is_negative() { -angle } else { angle }
}

/// xʸ of a positive x, where the result is not far outside the range of f64.
pub(super) fn pow(x: Exact, y: Exact) -> Exact {
    exp(y * log(x))
}
