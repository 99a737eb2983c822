//! Sums of products of two runs of memory: a vector times a matrix whose columns are runs, or a matrix of runs times a vector.
//!
//! One chain of additions for an element would wait for each of them, since it cannot share vectors with its neighbours, which lie
//! elsewhere. So these sums have an order of their own: four lines of a cache line each, of which lane `l` of line `a` adds up what is `a·L + l`
//! behind a multiple of `4·L`; then the lines are added in pairs, and the halves of the line that is left. It is the same with any vectors.

use super::micro::{Kernels, Vector};
use crate::call::element::{Element, Number};
use crate::call::panel::{View, widen};
use crate::call::{room, take};
use crate::simd::Simd;

/// Lines of sums.
pub(super) const LINES: usize = 4;
/// Bytes of a line.
pub(super) const LINE: usize = 64;
/// Elements that are widened at a time: a multiple of all lanes.
const PIECE: usize = 1024;
/// Most sums that are made side by side: those of the narrowest numbers.
const MOST: usize = LINES * LINE / size_of::<f32>();

/// `sums[k % (lanes of all lines)] += x[k] · y[k]` for k in `0..count`. `VECTORS` are those of all lines.
///
/// # Safety
///
/// The sums are as many as the lanes of all lines, x and y have `count` numbers.
#[inline(always)]
pub(super) unsafe fn dot<V: Vector, const VECTORS: usize>(
    sums: *mut V::Number,
    x: *const V::Number,
    y: *const V::Number,
    count: usize,
) {
    let turn = VECTORS * V::LANES;
    let mut registers = [V::zero(); VECTORS];
    // SAFETY: vector v of a turn ends within it. What is left goes into buffers of a turn, beside zeros.
    unsafe {
        for (v, register) in registers.iter_mut().enumerate() {
            *register = V::load(sums.add(v * V::LANES));
        }
        let whole = count / turn * turn;
        let mut k = 0;
        while k < whole {
            for (v, register) in registers.iter_mut().enumerate() {
                let at = k + v * V::LANES;
                *register = register.plus_product(V::load(x.add(at)), V::load(y.add(at)));
            }
            k += turn;
        }
        if k < count {
            let (mut left, mut right) = ([V::zero(); VECTORS], [V::zero(); VECTORS]);
            let (to_left, to_right) = (left.as_mut_ptr().cast(), right.as_mut_ptr().cast());
            x.add(k).copy_to_nonoverlapping(to_left, count - k);
            y.add(k).copy_to_nonoverlapping(to_right, count - k);
            for (register, (x, y)) in registers.iter_mut().zip(left.iter().zip(&right)) {
                *register = register.plus_product(*x, *y);
            }
        }
        for (v, register) in registers.iter().enumerate() {
            register.store(sums.add(v * V::LANES));
        }
    }
}

/// The sum of all sums.
#[inline]
fn total<T: Number>(sums: &mut [T]) -> T {
    let mut width = sums.len() / 2;
    while width > 0 {
        for l in 0..width {
            sums[l] = sums[l].add(sums[l + width]);
        }
        width /= 2;
    }
    sums[0]
}

/// Bytes of scratch memory that [`products`] takes.
pub(super) fn scratch(size: usize, k: usize) -> usize {
    room(k * size) + room(PIECE * size)
}

/// `out[j·distance] = Σₖ vector[k] · matrix[j, k]`, where the matrix' rows are runs of memory.
///
/// # Safety
///
/// Vector (a row) and matrix have the elements of `[count, k]`, out those that it is to get, which nobody else uses; the machine has the vector
/// instructions of the kernels.
#[allow(clippy::too_many_arguments, reason = "a product and what it needs")]
pub(super) unsafe fn products<T: Element>(
    simd: Simd,
    kernels: &Kernels<T::Wide>,
    mut free: &mut [u8],
    [count, k]: [usize; 2],
    vector: View<T>,
    matrix: View<T>,
    out: *mut T::Wide,
    distance: usize,
) {
    let lanes = LINES * LINE / size_of::<T::Wide>();
    // SAFETY: the copy of the vector has k numbers, and pieces end within them; rows of the matrix are runs of k elements.
    unsafe {
        let copy = take::<T::Wide>(&mut free, k).as_mut_ptr();
        let vector = match () {
            () if !T::HALF && vector.column == 1 => vector.at.cast::<T::Wide>(),
            () if vector.column == 1 => {
                widen(simd, vector.at, copy, k);
                copy
            }
            () => {
                (0..k).for_each(|k| copy.add(k).write(vector.get(0, k).wide()));
                copy
            }
        };
        let piece = take::<T::Wide>(&mut free, PIECE).as_mut_ptr();
        for j in 0..count {
            let mut sums = [T::Wide::ZERO; MOST];
            let sums = &mut sums[..lanes];
            let row = matrix.element(j, 0);
            if T::HALF {
                for start in (0..k).step_by(PIECE) {
                    let length = PIECE.min(k - start);
                    widen(simd, row.add(start), piece, length);
                    (kernels.dot)(sums.as_mut_ptr(), vector.add(start), piece, length);
                }
            } else {
                (kernels.dot)(sums.as_mut_ptr(), vector, row.cast(), k);
            }
            out.add(j * distance).write(total(sums));
        }
    }
}
