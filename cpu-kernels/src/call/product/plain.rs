//! Products in plain loops, for integers, which need no fused multiply-add.

use crate::call::element::Number;
use crate::call::panel::View;

/// Rows of rhs that stay in L1 while they are used for every row of out.
const DEPTH: usize = 64;

/// A product: additions of rows of rhs.
///
/// # Safety
///
/// All elements of the three matrices are valid to read, and out's to write, with rows of out
/// `row` apart (they need not be initialised if they are not added to). out overlaps neither
/// operand, and no other code uses it.
pub(super) unsafe fn product<T: Number>(
    [m, n, k]: [usize; 3],
    out: *mut T,
    row: usize,
    add: bool,
    lhs: View<T>,
    rhs: View<T>,
) {
    // SAFETY: the indices are below the extents, for which the caller guarantees the matrices.
    // `sums` is the only reference to its row of out, and rhs, which does not overlap it, is only
    // read.
    unsafe {
        for i in 0..m {
            if !add {
                (0..n).for_each(|j| out.add(i * row + j).write(T::ZERO));
            }
        }
        for start in (0..k).step_by(DEPTH) {
            for i in 0..m {
                let sums = std::slice::from_raw_parts_mut(out.add(i * row), n);
                for depth in start..k.min(start + DEPTH) {
                    let x = lhs.get(i, depth);
                    if rhs.column == 1 {
                        let terms = std::slice::from_raw_parts(rhs.element(depth, 0), n);
                        sums.iter_mut().zip(terms).for_each(|(sum, y)| *sum = sum.add(x.mul(*y)));
                    } else {
                        sums.iter_mut()
                            .enumerate()
                            .for_each(|(j, sum)| *sum = sum.add(x.mul(rhs.get(depth, j))));
                    }
                }
            }
        }
    }
}
