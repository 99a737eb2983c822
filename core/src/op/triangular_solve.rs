//! `triangular_solve`: linear equations with a triangular matrix, a composite.
//!
//! The derivatives of factorizations consist of triangular solves, and the op is linear in its
//! right-hand side; so it is an op, whose rule gives the op again, to any order. It is computed
//! by forward substitution: every side, triangle and transpose is reduced to a lower triangle on
//! the left by moving elements. A loop solves row after row. In a large matrix, one product with
//! all solved rows prepares each block of rows.

use crate::build::control::fori;
use crate::op::DotGeneral;
use crate::op::batch::moved;
use crate::op::prelude::*;

attributes! {
    /// `triangular_solve %a, %b {left_side=true, lower=true, transpose_a=true,
    /// unit_diagonal=true}`: x with op(a)·x = b, or with x·op(a) = b; op(a) is a, or aᵀ.
    ///
    /// a has type `[…, n, n]`, b has `[…, n, m]` on the right of a, and `[…, m, n]` on its left;
    /// leading axes are a batch. Only one triangle of a is read. A zero on its diagonal divides:
    /// the result has infinities and NaNs. Halves are computed in f32 and rounded once.
    ///
    /// dx = op(a)⁻¹·(db − op(da)·x), where da is the triangle that is read; b̄ = op(a)⁻ᵀ·x̄ (M.
    /// Giles, *Collected matrix derivative results for forward and reverse mode algorithmic
    /// differentiation*, 2008).
    #[derive(Copy, Default)]
    TriangularSolve {
        /// Whether a is on the left of x, else on its right.
        left_side: bool = false,
        /// Whether a's lower triangle is read, else the upper one.
        lower: bool = false,
        /// Whether op(a) is aᵀ.
        transpose_a: bool = false,
        /// Whether a's diagonal is taken as ones and is not read.
        unit_diagonal: bool = false,
    }
}

/// Number of rows that substitution solves between two products.
const BLOCK: usize = 32;

fn extent(dim: &Dim) -> usize {
    dim.as_extent().expect("compute is asked for bound types only")
}

/// The row and the column number of each element.
fn positions(shape: &[Dim]) -> (Tensor, Tensor) {
    let along = |axis| Tensor::iota(DType::I32, shape.to_vec(), axis);
    (along(shape.len() - 2), along(shape.len() - 1))
}

fn only(mask: &Tensor, x: &Tensor) -> Tensor {
    mask.select(x, &x.zeros_like())
}

/// A product of matrices along the given axes, batched over the leading axes.
fn product(x: &Tensor, along_x: usize, y: &Tensor, along_y: usize) -> Tensor {
    let batch: Vec<usize> = (0..x.rank() - 2).collect();
    let dot = DotGeneral {
        contract: (vec![along_x], vec![along_y]),
        batch: (batch.clone(), batch),
        result: None,
    };
    Tensor::apply(dot, &[x, y])
}

impl TriangularSolve {
    /// The axis of b along which a acts.
    fn axis(&self, rank: usize) -> usize {
        if self.left_side { rank - 2 } else { rank - 1 }
    }

    /// The triangle of a, or of its tangent, that is read. It excludes a unit diagonal, and the
    /// diagonal if `diagonal` is false.
    fn triangle(&self, a: &Tensor, diagonal: bool) -> Tensor {
        let (row, column) = positions(a.shape());
        let mask = match (self.lower, diagonal && !self.unit_diagonal) {
            (true, true) => row.ge(column),
            (true, false) => row.gt(column),
            (false, true) => row.le(column),
            (false, false) => row.lt(column),
        };
        only(&mask, a)
    }

    fn jvp(&self, j: &Jvp<'_>) -> Option<Tensor> {
        let (a, x) = (&j.operands[0], &j.results[0]);
        let (first, second) = (a.rank() - 2, a.rank() - 1);
        let moved = j.tangents[0].as_ref().map(|t| {
            let t = self.triangle(t, true);
            match self.left_side {
                true => product(&t, if self.transpose_a { first } else { second }, x, first),
                false => product(x, second, &t, if self.transpose_a { second } else { first }),
            }
        });
        let solve = |b: &Tensor| Tensor::apply(*self, &[a, b]);
        match (&j.tangents[1], moved) {
            (Some(b), Some(moved)) => Some(solve(&(b - moved))),
            (Some(b), None) => Some(solve(b)),
            (None, Some(moved)) => Some(-solve(&moved)),
            (None, None) => None,
        }
    }

    fn transpose(&self, t: &Transpose<'_>) -> Vec<Option<Tensor>> {
        let Some(ct) = &t.cotangents[0] else { return vec![None, None] };
        let op = TriangularSolve { transpose_a: !self.transpose_a, ..*self };
        vec![None, Some(Tensor::apply(op, &[t.operands[0].known(), ct]))]
    }

    /// The result, expressed by other ops.
    fn decompose(&self, a: &Tensor, b: &Tensor) -> Tensor {
        if b.ty().elements() == Some(0) {
            return b.clone();
        }
        let dtype = b.dtype();
        let (a, b) = (a.convert(dtype.wide()), b.convert(dtype.wide()));
        let rank = a.rank();
        let (row, column) = positions(a.shape());
        // x·op(a) = b is op(a)ᵀ·xᵀ = bᵀ.
        let transposed = self.transpose_a == self.left_side;
        let mut l = self.triangle(&a, false);
        let mut d = (!self.unit_diagonal).then(|| only(&row.eq(column), &a).sum_axes(&[rank - 1]));
        let mut b = if self.left_side { b } else { b.matrix_transpose() };
        if transposed {
            l = l.matrix_transpose();
        }
        // An upper triangle with rows and columns reversed is a lower one.
        let upper = self.lower == transposed;
        if upper {
            l = l.reverse(&[rank - 2, rank - 1]);
            d = d.map(|d| d.reverse(&[rank - 2]));
            b = b.reverse(&[rank - 2]);
        }
        let mut x = blocks(&l, d.as_ref(), &b);
        if upper {
            x = x.reverse(&[rank - 2]);
        }
        let x = if self.left_side { x } else { x.matrix_transpose() };
        x.convert(dtype)
    }
}

/// x with (l + d)·x = b, where l is below the diagonal d; without d the diagonal is ones.
fn blocks(l: &Tensor, d: Option<&Tensor>, b: &Tensor) -> Tensor {
    let (first, second) = (l.rank() - 2, l.rank() - 1);
    let n = extent(&l.shape()[first]);
    if n <= BLOCK {
        return substitution(l, d, b);
    }
    // The last block is padded with rows of the unit matrix and right-hand sides of 0.
    let more = (n.next_multiple_of(BLOCK) - n) as i64;
    let padded = |x: &Tensor, axes: &[usize], value: f64| {
        let padding: Vec<_> =
            (0..x.rank()).map(|a| (0, if axes.contains(&a) { more } else { 0 })).collect();
        x.pad(&padding, value)
    };
    let l = padded(l, &[first, second], 0.0);
    let d = d.map(|d| padded(d, &[first], 1.0));
    let b = padded(b, &[first], 0.0);
    let x = fori(n.div_ceil(BLOCK), &b.zeros_like(), |i, x| {
        let start = i * BLOCK as i64;
        let rows = l.dynamic_slice_in_dim(&start, BLOCK, first);
        // Rows that are not solved yet are zero in x.
        let known = product(&rows, second, x, first);
        let right = b.dynamic_slice_in_dim(&start, BLOCK, first) - known;
        let d = d.as_ref().map(|d| d.dynamic_slice_in_dim(&start, BLOCK, first));
        let block = rows.dynamic_slice_in_dim(&start, BLOCK, second);
        x.dynamic_update_slice_in_dim(&substitution(&block, d.as_ref(), &right), &start, first)
    });
    x.slice_axis(first, 0, n)
}

/// [`blocks`], row by row.
fn substitution(l: &Tensor, d: Option<&Tensor>, b: &Tensor) -> Tensor {
    let rank = l.rank();
    let first = rank - 2;
    // Rows of l as columns, aligned with x.
    let columns: Vec<usize> = (0..rank - 1).collect();
    fori(l.shape()[first].clone(), &b.zeros_like(), |i, x| {
        let row = l.dynamic_index_in_dim(i, first).broadcast_in_dim(x.shape().to_vec(), &columns);
        let known = (row * x).sum_axes(&[first]);
        let left = b.dynamic_index_in_dim(i, first) - known;
        let found = match d {
            Some(d) => {
                let d = d.dynamic_index_in_dim(i, first);
                &left / d.broadcast_in_dim(left.shape().to_vec(), &columns[..first])
            }
            None => left,
        };
        let mut shape = x.shape().to_vec();
        shape[first] = Dim::constant(1);
        x.dynamic_update_slice_in_dim(&found.reshape(shape), i, first)
    })
}

fn own(op: &Op) -> &TriangularSolve {
    let Op::TriangularSolve(op) = op else { unreachable!("the rule of triangular_solve") };
    op
}

impl Operation for TriangularSolve {
    named!(
        "triangular_solve",
        "The solution x of op(a)·x = b (`left_side`) or x·op(a) = b. op(a) is the upper or `lower` \
         triangle of a, or its transpose (`transpose_a`). `unit_diagonal` sets its diagonal to \
         ones. Leading axes are a batch."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [a, b] = t.exactly()?;
        Domain::Float.check(a.dtype)?;
        ensure!(a.dtype == b.dtype, "operands have types {a} and {b}";
            help "convert one of them with `convert_element_type`");
        let rank = a.rank();
        ensure!(rank >= 2 && a.shape[rank - 2] == a.shape[rank - 1], "a has type {a}";
            help "the last two axes of a are those of a square matrix");
        let n = &a.shape[rank - 1];
        if b.rank() != rank
            || a.shape[..rank - 2] != b.shape[..rank - 2]
            || b.shape[self.axis(rank)] != *n
        {
            let wanted =
                if self.left_side { format!("[…, {n}, m]") } else { format!("[…, m, {n}]") };
            bail!("a has type {a}, b has type {b}";
                help "b has the leading axes of a, then {wanted}");
        }
        Ok(vec![b.clone()])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let (a, b) = (&e.operands[0], &e.operands[1]);
        let rank = a.shape.len();
        let (rows, columns) = (b.shape[rank - 2], b.shape[rank - 1]);
        let n = a.shape[rank - 1];
        let (count, transposed) =
            (if self.left_side { columns } else { rows }, self.transpose_a == self.left_side);
        let lower = self.lower != transposed;
        let mut x: Vec<R> = reserved(b.cells.len())?;
        x.extend(b.cells.iter().map(|c| c.real().clone()));
        for matrix in 0..a.shape[..rank - 2].iter().product() {
            let coefficient = |i: usize, j: usize| {
                let (i, j) = if transposed { (j, i) } else { (i, j) };
                a.cells[(matrix * n + i) * n + j].real()
            };
            for other in 0..count {
                let at = |i: usize| {
                    let (i, j) = if self.left_side { (i, other) } else { (other, i) };
                    (matrix * rows + i) * columns + j
                };
                for step in 0..n {
                    let i = if lower { step } else { n - 1 - step };
                    let mut left = x[at(i)].clone();
                    for j in if lower { 0..i } else { i + 1..n } {
                        left = left.sub(&coefficient(i, j).mul(&x[at(j)]));
                    }
                    x[at(i)] = if self.unit_diagonal { left } else { left.div(coefficient(i, i))? };
                }
            }
        }
        let cells = Cells::collect(x.into_iter().map(Cell::Real))?;
        Ok(vec![Array::new(e.results[0].dtype, b.shape.clone(), cells)])
    }

    fn compute<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
        Compute::Decompose(Box::new(|tensors| vec![self.decompose(&tensors[0], &tensors[1])]))
    }

    const DERIVATIVE: Derivative =
        Derivative::LinearIn(&[1], |j| vec![own(j.op).jvp(j)], |t| own(t.op).transpose(t));

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        let rank = b.rank(0);
        // If all examples share a, their right-hand sides are more columns (or rows) of b.
        let other = if self.left_side { rank - 1 } else { rank - 2 };
        let merged = b.size.checked_mul(&b.results[0].shape[other]);
        if let (false, Some(merged)) = (b.batched[0], merged) {
            let together = moved(&b.operands[1], 0, other);
            let apart = together.shape().to_vec();
            let mut shape = b.results[0].shape.clone();
            shape[other] = merged;
            let x = Tensor::apply(*self, &[&b.operands[0], &together.reshape(shape)]);
            return vec![moved(&x.reshape(apart), other, 0)];
        }
        b.all(*self)
    }
}
