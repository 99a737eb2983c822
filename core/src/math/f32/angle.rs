//! Sine, cosine, and the angle of a point, computed in f64.

use super::{ROUND_WIDE, polynomial_wide, round_wide};
use crate::math::value::{Double, Float, Integer, Single, Value, select};

/// 2/π from bit 27·i on, for i = 0, 1, 2, 3: three parts of 27 bits, whose products with an f32
/// are exact in f64, and the rest.
const TWO_OVER_PI: [[f64; 4]; 4] = [
    [0.6366197690367699, 3.330811459978378e-09, 1.615379759713065e-17, 2.8376220177865265e-25],
    [3.330811459978378e-09, 1.615379759713065e-17, 2.83762200841452e-25, 9.372006544409767e-34],
    [1.615379759713065e-17, 2.83762200841452e-25, 9.372006385408637e-34, 1.590011303568902e-41],
    [2.83762200841452e-25, 9.372006385408637e-34, 1.5900112874617742e-41, 1.6107127853188224e-49],
];

/// 2⁵², 2⁷⁹, 2¹⁰⁶: from these |x| on, the first 27, 54, 81 bits of 2/π are dropped.
const FROM: [f32; 3] = [
    f32::from_bits((127 + 52) << 23),
    f32::from_bits((127 + 79) << 23),
    f32::from_bits((127 + 106) << 23),
];

/// `x · 2/π` modulo 4, as a multiple of π/2 in 0..4 and a rest in −π/4..π/4.
///
/// This is Payne and Hanek's reduction without a table and without integers. Let x be a 24-bit
/// integer times 2^e. Parts of 2/π whose product with x is a multiple of 4 are dropped: the first
/// i parts of 27 bits, where e ≥ 27·i + 2, that is |x| ≥ 2^(27·i + 25). The products with the
/// next three parts are exact, the first one is below 2⁵², and taking multiples of 4 from it and
/// from the second is exact. Their sum is exact as well, or has a relative error of at most 2⁻⁵³:
/// for i > 0, the second product is a multiple of 2⁻⁵²; for i = 0, it is below ¼, and is added to
/// the first one's distance from its nearest integer. The third is below ¼, the fourth below 2⁻²⁸
/// with an error below 2⁻⁸¹. No f32 but 0 is closer to a multiple of π/2 than 2⁻³¹ of it, so the
/// relative error of the rest stays below 2⁻⁴⁸.
#[inline(always)]
fn reduce<V: Single>(x: V) -> (<V::Wide as Float>::Bits, V::Wide) {
    let a = x.abs();
    let x = x.widen();
    let c = |value| x.literal(value);
    let bits = x.to_bits();
    let b = |value| bits.literal(value);
    // Constants are chosen by masking the differences of their bits. From selects the compiler
    // would make a load from a chosen address, which does not vectorise.
    let mask = |k: usize| select(a.is_at_least(a.literal(FROM[k])), b(u64::MAX), b(0));
    let masks = [mask(0), mask(1), mask(2)];
    let pick = |k: usize| {
        let part = |i: usize| TWO_OVER_PI[i][k].to_bits();
        let change = |i: usize| masks[i] & b(part(i) ^ part(i + 1));
        V::Wide::from_bits(b(part(0)) ^ change(0) ^ change(1) ^ change(2))
    };
    let modulo_4 = |product: V::Wide| product - c(4.0) * round_wide(product * c(0.25));
    let mut quadrant = c(0.0);
    let mut rest = modulo_4(x * pick(0));
    for term in [modulo_4(x * pick(1)), x * pick(2), x * pick(3)] {
        let whole = round_wide(rest);
        quadrant = quadrant + whole;
        rest = (rest - whole) + term;
    }
    // |quadrant| ≤ 6: the low bits of the sum are the quadrant's, in two's complement.
    ((quadrant + c(ROUND_WIDE)).to_bits(), rest * c(std::f64::consts::FRAC_PI_2))
}

/// sin of the quadrant and the rest.
#[inline(always)]
fn sine_of<W: Double>(quadrant: W::Bits, y: W) -> W {
    let c = |value| y.literal(value);
    let b = |value| quadrant.literal(value);
    let s = y * y;
    let sine = polynomial_wide(
        s,
        [
            -0.166_666_666_666_314_5,
            0.008_333_333_325_244_994,
            -0.000_198_412_638_078_521_95,
            2.755_535_445_188_411e-6,
            -2.476_140_702_345_739e-8,
        ],
    );
    let sine = y * (c(1.0) + s * sine);
    let cosine = polynomial_wide(
        s,
        [
            0.041_666_666_622_653_05,
            -0.001_388_888_373_805_352_3,
            0.000_024_799_515_894_012_103,
            -2.720_989_322_318_669_5e-7,
        ],
    );
    let cosine = (c(1.0) - c(0.5) * s) + (s * s) * cosine;
    let value = select((quadrant & b(1)).equals(b(0)), sine, cosine);
    // Bit 1 of the quadrant is the sign.
    W::from_bits(value.to_bits() ^ (quadrant & b(2)).shift_left(62))
}

/// sin x for every x; error at most 0.51 ULP. NaN at ±∞. The argument is reduced with as many
/// bits of π as it needs.
#[inline(always)]
pub fn sin<V: Single>(x: V) -> V {
    let (quadrant, y) = reduce(x);
    V::narrow(sine_of(quadrant, y))
}

/// cos x for every x; error at most 0.51 ULP. NaN at ±∞. The argument is reduced with as many
/// bits of π as it needs.
#[inline(always)]
pub fn cos<V: Single>(x: V) -> V {
    let (quadrant, y) = reduce(x);
    V::narrow(sine_of(quadrant.wrapping_add(quadrant.literal(1)), y))
}

/// Angle of the point (x, y) in −π..=π; error at most 0.51 ULP. Signs of zeros and infinities as
/// in C99's `atan2`.
#[inline(always)]
pub fn atan2<V: Single>(y: V, x: V) -> V {
    let (ay, ax) = (y.widen().abs(), x.widen().abs());
    let c = |value| ax.literal(value);
    let steep = ay.is_above(ax);
    let (low, high) = (select(steep, ax, ay), select(steep, ay, ax));
    let ratio = low / high;
    // 0/0 gives 0, and ∞/∞ gives 1. A NaN operand compares unequal and stays.
    let ratio = select(high.equals(c(0.0)), c(0.0), ratio);
    let ratio = select(low.equals(c(f64::INFINITY)), c(1.0), ratio);
    let s = ratio * ratio;
    let p = polynomial_wide(
        s,
        [
            -0.333_333_322_712_756_9,
            0.199_999_277_357_199_17,
            -0.142_840_918_539_922_11,
            0.110_933_030_695_072_15,
            -0.089_773_990_859_906_47,
            0.072_298_729_842_789_17,
            -0.053_862_774_482_078_46,
            0.033_585_588_171_702_9,
            -0.015_565_902_165_242_403,
            0.004_591_175_469_837_205,
            -0.000_632_729_357_845_030_4,
        ],
    );
    let angle = ratio + ratio * (s * p);
    let angle = select(steep, c(std::f64::consts::FRAC_PI_2) - angle, angle);
    let angle = select(x.is_negative(), c(std::f64::consts::PI) - angle, angle);
    let angle = select(x.is_nan() | y.is_nan(), c(f64::NAN), angle);
    V::narrow(angle).with_sign_of(y)
}
