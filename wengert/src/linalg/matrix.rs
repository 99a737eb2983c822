//! Matrices as tensors: checks of operands, masks, and the loop over leading axes.

use wengert_compiler::vmap::operators::vmap;
use wengert_core::build::Scope;
use wengert_core::op::{Reduce, ReduceKind, TriangularSolve};
use wengert_core::{DType, Differentiable, Dim, Location, Tensor, TensorType, diagnostic};

/// Number of columns that are factorized one by one before a product updates the others.
pub(super) const BLOCK: usize = 32;

/// Checks that `a` is a matrix, or a stack of them, of f32 or f64 and of known extents. Returns
/// the number of leading axes, or poison whose error names the caller's line.
#[track_caller]
pub(super) fn matrices(name: &str, a: &Tensor) -> Result<usize, Tensor> {
    if a.error().is_some() {
        return Err(a.clone());
    }
    let leading = a.rank().checked_sub(2);
    let known = |leading: usize| a.shape()[leading..].iter().all(|d| d.as_extent().is_some());
    let help = match leading {
        _ if !matches!(a.dtype(), DType::F32 | DType::F64) => {
            "matrices are of f32 or f64: convert it, e.g. by `.convert(DType::F32)`"
        }
        None => "a matrix has two axes, after those of a batch",
        Some(leading) if known(leading) => return Ok(leading),
        Some(_) => {
            "rows and columns are numbers when the graph is built; a batch may have \
             a variable extent"
        }
    };
    Err(Tensor::fail_of(&[a], diagnostic!("{name} of {}", a.ty()).help(help)))
}

/// [`matrices`], restricted to square ones.
#[track_caller]
pub(super) fn square_matrices(name: &str, a: &Tensor) -> Result<usize, Tensor> {
    let leading = matrices(name, a)?;
    match a.shape()[leading] == a.shape()[leading + 1] {
        true => Ok(leading),
        false => Err(Tensor::fail_of(
            &[a],
            diagnostic!("{name} of {}", a.ty())
                .help("the last two axes are those of a square matrix"),
        )),
    }
}

/// Derives the locations of the equations that `f` emits from the caller's line.
#[track_caller]
pub(super) fn located<T>(name: &'static str, f: impl FnOnce() -> T) -> T {
    match Scope::current() {
        Some(scope) => scope.derived_at(Location::caller(), name, f),
        None => f(),
    }
}

/// Applies `f` to each matrix, or tuple of matrices, along leading axes.
pub(super) fn each<M: Differentiable, O: Differentiable>(
    x: &M,
    leading: usize,
    f: &dyn Fn(&M) -> O,
) -> O {
    if leading == 0 { f(x) } else { vmap(x, |x| each(x, leading - 1, f)) }
}

/// Rows and columns of a matrix.
pub(super) fn extents(a: &Tensor) -> (usize, usize) {
    let extent =
        |axis: usize| a.shape()[axis].as_extent().expect("extents of matrices have been checked");
    (extent(0), extent(1))
}

/// The row index and the column index at each place of a matrix of `rows` and `columns`.
pub(super) fn places(rows: usize, columns: usize) -> (Tensor, Tensor) {
    let along = |axis| Tensor::iota(DType::I32, [rows, columns], axis);
    (along(0), along(1))
}

/// 0, 1, …, count − 1.
pub(super) fn numbers(count: usize) -> Tensor {
    Tensor::iota(DType::I32, [count], 0)
}

/// `x` where the mask holds, else 0.
pub(super) fn only(mask: &Tensor, x: &Tensor) -> Tensor {
    mask.select(x, &x.zeros_like())
}

/// The triangle on the diagonal and below it.
pub(super) fn lower(x: &Tensor) -> Tensor {
    let (rows, columns) = extents(x);
    let (row, column) = places(rows, columns);
    only(&row.ge(column), x)
}

/// The triangle below the diagonal.
pub(super) fn strictly_lower(x: &Tensor) -> Tensor {
    let (rows, columns) = extents(x);
    let (row, column) = places(rows, columns);
    only(&row.gt(column), x)
}

/// The triangle on the diagonal and above it.
pub(super) fn upper(x: &Tensor) -> Tensor {
    let (rows, columns) = extents(x);
    let (row, column) = places(rows, columns);
    only(&row.le(column), x)
}

/// Ones on the diagonal.
pub(super) fn eye(dtype: DType, rows: usize, columns: usize) -> Tensor {
    let (row, column) = places(rows, columns);
    row.eq(column).convert(dtype)
}

/// The diagonal of a square matrix.
pub(super) fn diagonal(x: &Tensor) -> Tensor {
    let (rows, columns) = extents(x);
    let (row, column) = places(rows, columns);
    only(&row.eq(column), x).sum_axes(&[1])
}

/// `v` along the rows of a matrix: v[i] at [i, j].
pub(super) fn along_rows(v: &Tensor, columns: usize) -> Tensor {
    let rows = v.shape()[0].clone();
    v.broadcast_in_dim(vec![rows, Dim::from(columns)], &[0])
}

/// `v` along the columns of a matrix: v[j] at [i, j].
pub(super) fn along_columns(v: &Tensor, rows: usize) -> Tensor {
    let columns = v.shape()[0].clone();
    v.broadcast_in_dim(vec![Dim::from(rows), columns], &[1])
}

/// A matrix with zeros below and on the right.
pub(super) fn padded(x: &Tensor, rows: usize, columns: usize) -> Tensor {
    let (from_rows, from_columns) = extents(x);
    if (rows, columns) == (from_rows, from_columns) {
        return x.clone();
    }
    x.pad(&[(0, (rows - from_rows) as i64), (0, (columns - from_columns) as i64)], 0.0)
}

/// The first rows and columns of a matrix.
pub(super) fn corner(x: &Tensor, rows: usize, columns: usize) -> Tensor {
    let (from_rows, from_columns) = extents(x);
    let x = if rows < from_rows { x.slice_axis(0, 0, rows) } else { x.clone() };
    if columns < from_columns { x.slice_axis(1, 0, columns) } else { x }
}

/// Whether all elements are true.
pub(super) fn all(mask: &Tensor) -> Tensor {
    Tensor::apply(Reduce::new(ReduceKind::And, 0..mask.rank()), &[mask])
}

/// The greatest magnitude, or 1 if that is 0. Division by it keeps squares from overflow and
/// underflow.
pub(super) fn magnitude(x: &Tensor) -> Tensor {
    let most = x.abs().max_axes(&(0..x.rank()).collect::<Vec<_>>());
    most.eq(0.0).select(&most.ones_like(), &most)
}

/// NaN everywhere unless the scalar `valid` holds.
pub(super) fn unless_invalid(valid: &Tensor, x: &Tensor) -> Tensor {
    valid.select(x, &x.full_like(f64::NAN))
}

/// x with L·x = b.
pub(super) fn solve_lower(l: &Tensor, b: &Tensor, unit_diagonal: bool) -> Tensor {
    Tensor::apply(
        TriangularSolve { left_side: true, lower: true, unit_diagonal, ..Default::default() },
        &[l, b],
    )
}

/// x with U·x = b.
pub(super) fn solve_upper(u: &Tensor, b: &Tensor) -> Tensor {
    Tensor::apply(TriangularSolve { left_side: true, ..Default::default() }, &[u, b])
}

/// x with x·U = b.
pub(super) fn divide_by_upper(b: &Tensor, u: &Tensor) -> Tensor {
    Tensor::apply(TriangularSolve::default(), &[u, b])
}

/// x with x·Lᵀ = b.
pub(super) fn divide_by_lower_transposed(b: &Tensor, l: &Tensor) -> Tensor {
    Tensor::apply(TriangularSolve { lower: true, transpose_a: true, ..Default::default() }, &[l, b])
}

/// A type of the given shape with the dtype of `like`.
pub(super) fn typed<const N: usize>(like: &Tensor, shape: [usize; N]) -> TensorType {
    TensorType::new(like.dtype(), shape)
}
