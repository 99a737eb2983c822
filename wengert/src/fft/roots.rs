//! Roots of unity, and products with them.

use super::Direction;
use crate::core::op::Binary;
use crate::{DType, Dim, Tensor};
use std::f64::consts::FRAC_PI_2;

/// cos and sin of 2π·t/n, for numerators t ≥ 0 in i64.
///
/// 4t/n is rounded to whole quarters of a turn in integers. The remaining angle is at most an
/// eighth of a turn, so its cosine and sine are exact to the dtype. The quarters determine which
/// of the two is the cosine, and the signs. So the roots of quarters and halves are exactly 0 and
/// ±1.
pub(super) fn roots(numerators: &Tensor, n: usize, dtype: DType) -> (Tensor, Tensor) {
    let n = i64::try_from(n).expect("an extent is an i64");
    let t = numerators.binary(Binary::Rem, &numerators.splat(n.into()));
    let quarter = (&t * 8i64 + n) / (2 * n);
    let rest = &t * 4i64 - &quarter * n;
    let angle = rest.convert(dtype) * FRAC_PI_2 / n as f64;
    let (c, s) = (angle.cos(), angle.sin());
    let odd = quarter.binary(Binary::Rem, &quarter.splat(2i64.into())).eq(1i64);
    let among = |a: i64, b: i64| quarter.eq(a).or(quarter.eq(b));
    let signed = |minus: Tensor, x: Tensor| minus.select(&-&x, &x);
    let cos = signed(among(1, 2), odd.select(&s, &c));
    let sin = signed(among(2, 3), odd.select(&c, &s));
    (cos, sin)
}

/// Counts along `axis` of a shape.
pub(super) fn count(shape: &[usize], axis: usize) -> Tensor {
    Tensor::iota(DType::I64, shape.iter().copied(), axis)
}

/// z·w. The last axis of z holds the parts of its numbers, and the parts of w lie along the given
/// axes of z.
pub(super) fn times(z: &Tensor, (re, im): (&Tensor, &Tensor), axes: &[usize]) -> Tensor {
    let last = z.rank() - 1;
    let shape: Vec<Dim> =
        axes.iter().map(|axis| z.shape()[*axis].clone()).chain([2.into()]).collect();
    // (a + ib)·(re + i·im) = (a·re − b·im) + i(b·re + a·im): the swapped parts are multiplied by
    // ∓im.
    let turned = Tensor::iota(z.dtype(), shape.clone(), axes.len()) * 2.0 - 1.0;
    let im = im.broadcast_in_dim(shape, &(0..axes.len()).collect::<Vec<_>>()) * turned;
    let re = re.broadcast_in_dim(z.shape().to_vec(), axes);
    let im = im.broadcast_in_dim(
        z.shape().to_vec(),
        &axes.iter().copied().chain([last]).collect::<Vec<_>>(),
    );
    z * re + z.reverse(&[last]) * im
}

impl Direction {
    /// The imaginary part of e^(∓iθ), given sin θ.
    pub fn imaginary(self, sin: Tensor) -> Tensor {
        match self {
            Direction::Forward => -sin,
            Direction::Inverse => sin,
        }
    }

    pub fn reversed(self) -> Self {
        match self {
            Direction::Forward => Direction::Inverse,
            Direction::Inverse => Direction::Forward,
        }
    }
}
