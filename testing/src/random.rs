//! Random numbers and literals.

use wengert_core::{DType, Literal, Scalar, TensorType};

/// SplitMix64 (Steele, Lea and Flood 2014). The same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit.max(1) as u64) as usize
    }

    /// An item of a slice that is not empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A number in 0..1, a multiple of 2⁻⁵³.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number in −1..1.
    pub fn signed(&mut self) -> f64 {
        2.0 * self.unit() - 1.0
    }

    /// Floats in −1..1.
    pub fn literal(&mut self, ty: &TensorType) -> Literal {
        self.scaled(ty, 1.0)
    }

    /// Floats in ±`scale`.
    pub fn scaled(&mut self, ty: &TensorType, scale: f64) -> Literal {
        literal(ty.dtype, &extents(ty), |d| Scalar::from_f64(d, self.signed() * scale))
    }

    /// Small integers, in the dtype, whose sums and products are exact.
    pub fn integers(&mut self, dtype: DType, shape: &[usize]) -> Literal {
        literal(dtype, shape, |d| match self.below(16) as i64 - 3 {
            small if d == DType::Bool => Scalar::of(small > 4),
            small => Scalar::from_i64(d, small),
        })
    }

    /// Elements of any dtype, some of them ±0, infinite or NaN.
    pub fn elements(&mut self, ty: &TensorType) -> Literal {
        literal(ty.dtype, &extents(ty), |dtype| match dtype {
            DType::Bool => Scalar::of(self.below(2) == 0),
            d if d.is_integer() => Scalar::from_i64(d, self.below(20) as i64 - 6),
            d => match self.below(40) {
                0 => Scalar::from_f64(d, 0.0),
                1 => Scalar::from_f64(d, -0.0),
                2 => Scalar::from_f64(d, f64::INFINITY),
                3 => Scalar::from_f64(d, f64::NAN),
                _ => Scalar::from_f64(d, (self.below(1 << 20) as f64 / (1 << 18) as f64) - 2.0),
            },
        })
    }
}

/// A literal of elements that `draw` gives for the dtype.
pub fn literal(dtype: DType, shape: &[usize], mut draw: impl FnMut(DType) -> Scalar) -> Literal {
    let values: Vec<Scalar> = (0..shape.iter().product()).map(|_| draw(dtype)).collect();
    Literal::from_scalars(dtype, shape, &values).expect("as many values as the shape says")
}

/// The extents of a type without variables.
pub fn extents(ty: &TensorType) -> Vec<usize> {
    ty.extents().expect("the type has no variables")
}

/// All elements as doubles.
pub fn floats(literal: &Literal) -> Vec<f64> {
    literal.scalars().map(Scalar::to_f64).collect()
}
