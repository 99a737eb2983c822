//! Transforms of real series.
//!
//! The spectrum of a real series is conjugate symmetric, X[n − k] = X̄[k], so half of it
//! suffices. A series of even length n is transformed as n/2 complex numbers x[2j] + i·x[2j + 1].
//! Their spectrum is F = E + i·O, where E is the spectrum of the even elements and O that of the
//! odd ones. Both are conjugate symmetric, which separates E from O.

use super::roots::{count, roots, times};
use super::{Complex, Direction, extent, failed, in_scope_of, joined, parts, stages};
use crate::{DType, Dim, Location, Tensor, diagnostic};

/// The transform of a real tensor along the last axis: the first n/2 + 1 numbers of its spectrum;
/// the others follow from the symmetry.
///
/// Errors: dtypes other than f32 and f64, a last extent that is 0 or not a known number.
#[track_caller]
pub fn rfft(x: &Tensor) -> Complex {
    let caller = Location::caller();
    let _user = caller.attributed();
    match extent(&[x], x.rank().saturating_sub(1)) {
        Ok(n) => {
            in_scope_of(x, || parts(&if n.is_multiple_of(2) { even(x, n) } else { odd(x, n) }))
        }
        Err(error) => failed(error, caller),
    }
}

/// The inverse of [`rfft`]: the real series of length n whose spectrum begins with these n/2 + 1
/// numbers along the last axis. The imaginary parts of the first number, and for even n of the last
/// number, are ignored: they are 0 for a real series.
///
/// Errors: those of [`rfft`]; an extent other than n/2 + 1.
#[track_caller]
pub fn irfft(x: &Complex, n: usize) -> Tensor {
    let caller = Location::caller();
    let _user = caller.attributed();
    let found =
        extent(&[&x.0, &x.1], x.0.rank().saturating_sub(1)).and_then(|found| match n / 2 + 1 {
            wanted if n > 0 && found == wanted => Ok(()),
            wanted => Err(diagnostic!(
                "the spectrum has {found} numbers, not {wanted} as for a series of length {n}"
            )
            .help("a series of length n has n/2 + 1 numbers")),
        });
    match found {
        Ok(()) => {
            in_scope_of(&x.0, || if n.is_multiple_of(2) { even_back(x, n) } else { odd_back(x, n) })
        }
        Err(error) => failed(error, caller).0,
    }
}

/// The shape of `x` with other last extents.
fn with_tail(x: &Tensor, kept: usize, tail: &[usize]) -> Vec<Dim> {
    x.shape()[..kept].iter().cloned().chain(tail.iter().map(|e| Dim::from(*e))).collect()
}

/// Complex conjugates.
fn conjugate(z: &Tensor) -> Tensor {
    let sign: Tensor = 1.0 - Tensor::iota(z.dtype(), [2usize], 0) * 2.0;
    z * sign.broadcast_in_dim(z.shape().to_vec(), &[z.rank() - 1])
}

fn even(x: &Tensor, n: usize) -> Tensor {
    let axis = x.rank() - 1;
    let half = n / 2;
    let z = stages::transform(&x.reshape(with_tail(x, axis, &[half, 2])), Direction::Forward);
    let z = Tensor::concatenate(&[&z, &z.slice_axis(axis, 0usize, 1usize)], axis);
    let mirrored = conjugate(&z.reverse(&[axis]));
    // E = (z + mirrored)/2, O = −i·(z − mirrored)/2, and the spectrum of x is E + e^(−iθ)·O.
    let (cos, sin) = roots(&count(&[half + 1], 0), n, x.dtype());
    let odd = times(&(&z - &mirrored), (&-sin, &-cos), &[axis]);
    (z + mirrored + odd) * 0.5
}

fn even_back(x: &Complex, n: usize) -> Tensor {
    let (axis, half) = (x.0.rank() - 1, n / 2);
    let k = Tensor::iota(DType::I64, x.1.shape().to_vec(), axis);
    let ends = k.eq(0i64).or(k.eq(half as i64));
    let z = joined(&(x.0.clone(), ends.select(&x.1.zeros_like(), &x.1)));
    let mirrored = conjugate(&z.reverse(&[axis])).slice_axis(axis, 0usize, half);
    let z = z.slice_axis(axis, 0usize, half);
    let (cos, sin) = roots(&count(&[half], 0), n, z.dtype());
    let odd = times(&(&z - &mirrored), (&-sin, &cos), &[axis]);
    let z = stages::transform(&(z + mirrored + odd), Direction::Inverse) / n as f64;
    z.reshape(with_tail(&z, axis, &[n]))
}

fn odd(x: &Tensor, n: usize) -> Tensor {
    let z = stages::transform(&joined(&(x.clone(), x.zeros_like())), Direction::Forward);
    z.slice_axis(x.rank() - 1, 0usize, n / 2 + 1)
}

fn odd_back(x: &Complex, n: usize) -> Tensor {
    let axis = x.0.rank() - 1;
    let z = joined(x);
    let mirrored = conjugate(&z.slice_axis(axis, 1usize, n / 2 + 1).reverse(&[axis]));
    let z = Tensor::concatenate(&[&z, &mirrored], axis);
    parts(&(stages::transform(&z, Direction::Inverse) / n as f64)).0
}
