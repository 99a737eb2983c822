//! A transform as a sequence of stages.

use super::roots::{count, roots, times};
use super::{Direction, bluestein};
use crate::core::op::DotGeneral;
use crate::{Dim, Tensor};

/// Primes are grouped into factors up to this. A product with a matrix of 32 × 32 reals still
/// takes no longer than the memory traffic of a stage.
const GATHERED: usize = 16;

/// The greatest prime factor whose transform is a product with a matrix.
const DIRECT: usize = 128;

/// The factors of n, one for each stage.
pub(super) fn factors(mut n: usize) -> Vec<usize> {
    let mut primes = Vec::new();
    let mut p = 2;
    while p * p <= n {
        while n.is_multiple_of(p) {
            primes.push(p);
            n /= p;
        }
        p += 1;
    }
    if n > 1 {
        primes.push(n);
    }
    // First fit in decreasing order: each prime joins the first group that it fits into.
    let mut groups: Vec<usize> = Vec::new();
    for p in primes.into_iter().rev() {
        match groups.iter_mut().find(|group| **group * p <= GATHERED) {
            Some(group) => *group *= p,
            None => groups.push(p),
        }
    }
    groups
}

/// The transform along the axis before the last; the last axis holds the parts.
pub(super) fn transform(z: &Tensor, direction: Direction) -> Tensor {
    let rank = z.rank();
    let (lead, last) = (&z.shape()[..rank - 2], rank - 2);
    let n = z.shape()[last]
        .as_constant()
        .and_then(|n| usize::try_from(n).ok())
        .expect("it has been checked");
    let shape = |tail: &[usize]| -> Vec<Dim> {
        lead.iter().cloned().chain(tail.iter().map(|e| Dim::from(*e))).collect()
    };
    let order = |tail: [usize; 4]| -> Vec<usize> {
        (0..lead.len()).chain(tail.iter().map(|axis| lead.len() + axis)).collect()
    };
    // Axes: unfinished indices, finished indices, parts.
    let (mut left, mut done) = (n, 1);
    let mut z = z.reshape(shape(&[n, 1, 2]));
    for r in factors(n) {
        let m = left / r;
        z = z.reshape(shape(&[r, m, done, 2])).permute(&order([1, 2, 0, 3]));
        z = small(&z, r, direction);
        if m > 1 {
            let table = [m, r];
            let (cos, sin) = roots(&(count(&table, 0) * count(&table, 1)), left, z.dtype());
            z = times(&z, (&cos, &direction.imaginary(sin)), &[lead.len(), lead.len() + 2]);
        }
        z = z.permute(&order([0, 2, 1, 3]));
        (left, done) = (m, done * r);
        z = z.reshape(shape(&[left, done, 2]));
    }
    z.reshape(shape(&[n, 2]))
}

/// The transform of length r along the axis before the last.
fn small(z: &Tensor, r: usize, direction: Direction) -> Tensor {
    if r > DIRECT {
        return bluestein::transform(z, r, direction);
    }
    let rank = z.rank();
    let op = DotGeneral {
        contract: (vec![rank - 2, rank - 1], vec![0, 1]),
        batch: (vec![], vec![]),
        result: None,
    };
    Tensor::apply(op, &[z, &matrix(z, r, direction)])
}

/// The matrix M[j, c, k, d]: the contribution of part c of number j to part d of number k.
fn matrix(z: &Tensor, r: usize, direction: Direction) -> Tensor {
    let shape = [r, 2, r, 2];
    let (cos, sin) = roots(&(count(&shape, 0) * count(&shape, 2)), r, z.dtype());
    // w = cos + i·im adds im times the real part to the imaginary part, and −im times the
    // imaginary part to the real part.
    let turned = (count(&shape, 3) - count(&shape, 1)).convert(z.dtype());
    let im = direction.imaginary(sin) * &turned;
    turned.eq(0.0).select(&cos, &im)
}
