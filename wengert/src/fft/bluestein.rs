//! Transforms of large prime length (L. Bluestein, *A linear filtering approach to the
//! computation of the discrete Fourier transform*, 1970).
//!
//! From jk = (j² + k² − (k − j)²)/2 follows X[k] = w[k]·Σⱼ (x[j]·w[j])·w̄[k − j] with w[j] =
//! e^(−πi·j²/p): a convolution, computed by transforms of any length ≥ 2p − 1. j² is reduced
//! modulo 2p as an integer.

use super::Direction;
use super::roots::{count, roots, times};
use super::stages;
use crate::core::op::Pad;
use crate::{DType, Dim, Tensor};

/// The transform of length p along the axis before the last.
pub(super) fn transform(z: &Tensor, p: usize, direction: Direction) -> Tensor {
    let axis = z.rank() - 2;
    let n = (2 * p - 1).next_power_of_two();
    let chirp = |j: &Tensor, direction: Direction| {
        let (cos, sin) = roots(&(j * j), 2 * p, z.dtype());
        (cos, direction.imaginary(sin))
    };
    let (re, im) = chirp(&count(&[p], 0), direction);
    let turn = |z: &Tensor| times(z, (&re, &im), &[axis]);

    // w̄ at distances 0, 1, …, p − 1 and, cyclically, −1, …, 1 − p.
    let around = count(&[n], 0);
    let distance = around.min(n as i64 - &around);
    let near = distance.lt(p as i64);
    let (re_filter, im_filter) = chirp(&distance, direction.reversed());
    let filter = |t: Tensor| near.select(&t, &t.zeros_like());
    let filter = super::joined(&(filter(re_filter), filter(im_filter)));
    let (re_filter, im_filter) = super::parts(&stages::transform(&filter, Direction::Forward));

    let mut high = vec![Dim::from(0usize); z.rank()];
    high[axis] = Dim::from(n - p);
    let pad = Pad { low: vec![Dim::from(0usize); z.rank()], high, interior: vec![] };
    let padded = Tensor::apply(pad, &[&turn(z), &zero(z.dtype())]);
    let spectrum =
        times(&stages::transform(&padded, Direction::Forward), (&re_filter, &im_filter), &[axis]);
    let convolved = stages::transform(&spectrum, Direction::Inverse).slice_axis(axis, 0usize, p);
    // n is a power of two, so the factor is exact.
    turn(&(convolved * (1.0 / n as f64)))
}

fn zero(dtype: DType) -> Tensor {
    Tensor::zeros(&crate::TensorType::scalar(dtype))
}
