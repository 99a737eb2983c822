//! `mma.sync`: the distribution of matrices over a warp, and the product.
//!
//! PTX distributes each matrix over the registers of 32 lanes ("Matrix Fragments" in the PTX
//! ISA). With g = lane / 4 and t = lane % 4, the functions here give the element that the i-th
//! value of a lane is.
//!
//! The model of accumulation: for each element of the result, products are exact and are added to
//! the accumulator in order of k in f64 (f64 matrices: one `fma` a product; integers: exactly),
//! and the sum is rounded once, to nearest even, into the accumulator's type. Hardware truncates
//! intermediate sums in undocumented ways, so kernels that use `mma` must be compared within
//! bounds. `wgmma` exists on one architecture, whose sums have been measured: it follows them, by
//! the definition in `tensor_core`.

use super::exact::Format;

/// Element type of an `mma`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Element {
    Float(Format),
    E4M3,
    Integer { bits: u32, signed: bool },
}

impl Element {
    /// Width in bits of a value in its register; tf32 fills one.
    pub(crate) fn bits(self) -> usize {
        match self {
            Element::Float(format) => format.bits() as usize,
            Element::E4M3 => 8,
            Element::Integer { bits, .. } => bits as usize,
        }
    }
}

/// Elements of A (row, k) in a lane.
pub(crate) fn a_element(shape: Shape, lane: usize, i: usize) -> (usize, usize) {
    let (g, t) = (lane / 4, lane % 4);
    if shape.m == 8 {
        return (g, t);
    }
    // Values that share a register are neighbours in k; registers alternate rows g and g+8, then
    // step in k.
    let packed = shape.packed;
    let (register, within) = (i / packed, i % packed);
    (g + 8 * (register % 2), t * packed + within + 4 * packed * (register / 2))
}

/// Elements of B (k, column) in a lane.
pub(crate) fn b_element(shape: Shape, lane: usize, i: usize) -> (usize, usize) {
    let (g, t) = (lane / 4, lane % 4);
    let packed = shape.packed;
    let (register, within) = (i / packed, i % packed);
    (t * packed + within + 4 * packed * register, g)
}

/// Elements of C and D (row, column) in a lane.
pub(crate) fn c_element(lane: usize, i: usize) -> (usize, usize) {
    (lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2)
}

/// m×n×k, and how many values of A and B share a 32-bit register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) packed: usize,
}

impl Shape {
    /// Values of A that a lane holds.
    pub(crate) fn a_values(self) -> usize {
        self.m * self.k / 32
    }

    /// Values of B that a lane holds.
    pub(crate) fn b_values(self) -> usize {
        self.n * self.k / 32
    }

    /// Values of C that a lane holds.
    pub(crate) fn c_values(self) -> usize {
        self.m * self.n / 32
    }
}

/// `c + a·b` for every element, `step(accumulator, a, b)` in order of k. A is row-major m×k, B is
/// k×n, C is m×n.
pub(crate) fn multiply<A: Copy, C: Copy>(
    shape: Shape,
    a: &[A],
    b: &[A],
    c: &mut [C],
    step: impl Fn(C, A, A) -> C,
) {
    for row in 0..shape.m {
        for k in 0..shape.k {
            let x = a[row * shape.k + k];
            let (b_row, c_row) = (&b[k * shape.n..][..shape.n], &mut c[row * shape.n..][..shape.n]);
            for (sum, &y) in c_row.iter_mut().zip(b_row) {
                *sum = step(*sum, x, y);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every element is held exactly once.
    #[test]
    fn fragments_cover_matrices() {
        let shapes = [
            (16, 8, 16, 2),
            (16, 8, 8, 2),
            (16, 8, 4, 1),
            (16, 8, 8, 1),
            (16, 8, 16, 1),
            (8, 8, 4, 1),
            (16, 8, 32, 4),
            (16, 8, 16, 4),
        ];
        for (m, n, k, packed) in shapes {
            let shape = Shape { m, n, k, packed };
            let mut a = vec![0; m * k];
            let mut b = vec![0; k * n];
            let mut c = vec![0; m * n];
            for lane in 0..32 {
                for i in 0..shape.a_values() {
                    let (row, column) = a_element(shape, lane, i);
                    a[row * k + column] += 1;
                }
                for i in 0..shape.b_values() {
                    let (row, column) = b_element(shape, lane, i);
                    b[row * n + column] += 1;
                }
                for i in 0..shape.c_values() {
                    let (row, column) = c_element(lane, i);
                    c[row * n + column] += 1;
                }
            }
            assert!(a.iter().chain(&b).chain(&c).all(|&n| n == 1), "{shape:?}");
        }
    }

    /// PTX ISA, figures of m16n8k16 with f16: a4 of lane 5 is row 1, column 10; b2 is row 10,
    /// column 1.
    #[test]
    fn some_places_by_hand() {
        let shape = Shape { m: 16, n: 8, k: 16, packed: 2 };
        assert_eq!(a_element(shape, 5, 0), (1, 2));
        assert_eq!(a_element(shape, 5, 2), (9, 2));
        assert_eq!(a_element(shape, 5, 4), (1, 10));
        assert_eq!(a_element(shape, 5, 7), (9, 11));
        assert_eq!(b_element(shape, 5, 2), (10, 1));
        assert_eq!(c_element(5, 3), (9, 3));
    }
}
