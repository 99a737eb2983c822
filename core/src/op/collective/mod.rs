//! Collectives: ops over the ranks of a mesh.
//!
//! A collective names axes of the function's mesh, `over`. The ranks that differ along these axes
//! only are a *group*; a rank's position in its group is its index along `over`, in row-major
//! order. All ranks of a group run the collective together, and its results on a rank are made of
//! the operands of the group.
//!
//! | op | operand | result | transpose |
//! |---|---|---|---|
//! | [`PReduce`]: `psum` | varies over `over` | invariant over them | `pvary` |
//! | `pmax`, `pmin` | varies | invariant | stated by their jvp |
//! | [`PVary`]: `pvary` | invariant | varies | `psum` |
//! | [`AllGather`] | varies | varies | `psum_scatter` |
//! | the same, `invariant` | varies | invariant | the rank's part |
//! | [`PsumScatter`] | varies | varies | `all_gather` |
//! | [`AllToAll`] | varies | varies | itself, split and concatenation swapped |
//! | [`PPermute`] | varies | varies | its inverse |
//! | [`AxisIndex`] | | varies | |
//!
//! Names and meanings are those of `jax.lax` within `shard_map`. The result of `all_gather`
//! varies, as in JAX, although all ranks of a group get the same: so its transpose adds what the
//! ranks give. Where the result is stored as one value of all ranks, it has to be invariant, which
//! an attribute says. `pmean` is no op: it is `psum`, then a division.
//!
//! Types need the number of ranks along an axis, and an op does not see the mesh. So an op whose
//! result's shape depends on it has it as an attribute, `size`; the verifier compares it with the
//! mesh (G11).
//!
//! **Sums have one order.** The operands of a group are added in a balanced tree over their
//! positions: neighbours 2i and 2i + 1 are added, the last stays as it is if their number is odd,
//! and so on until one is left. Each addition is rounded to the element's dtype, or to f32 for
//! halves, which are rounded once more at the end. So the bits do not depend on how a transport
//! moves the data, and ranks may be joined where the tree is: the sum over 4 ranks is that over 2
//! whose operands are the sums of pairs.

use crate::op::prelude::*;

/// The facets that a collective has in common with the others.
macro_rules! exchanges {
    () => {
        fn evaluate<R: Real>(&self, _: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
            Err($crate::op::collective::alone(self.name()))
        }

        $crate::op::collective::exchanges!(compute);

        fn exchange<R: Real>(&self, group: &Group<'_, R>) -> Result<Vec<Array<R>>> {
            self.on_group(group)
        }
    };
    (compute) => {
        fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
            self.lowered(l)
        }

        const VARIES: Varies = Varies::Own;
    };
}
pub(in crate::op) use exchanges;

mod all_gather;
mod all_to_all;
mod axis_index;
mod ppermute;
mod psum_scatter;
mod pvary;
mod reduce;

pub use all_gather::AllGather;
pub use all_to_all::AllToAll;
pub use axis_index::AxisIndex;
pub use ppermute::PPermute;
pub use psum_scatter::PsumScatter;
pub use pvary::PVary;
pub use reduce::{PReduce, PReduceKind};

use crate::call::{self, CollectiveKind};
use crate::mesh::Varying;

/// What the verifier and the interpreter ask of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Collective<'a> {
    /// The axes of the mesh that it names.
    pub over: &'a [String],
    /// Whether the result on a rank needs the operands of others, so that the ranks of a group
    /// have to run it together.
    pub exchanges: bool,
    /// The number of ranks of a group, where the op states it.
    pub size: Option<usize>,
    /// The number of ranks that a group has at least.
    pub least: usize,
}

impl<'a> Collective<'a> {
    /// An exchange between the ranks along these axes.
    fn exchange(over: &'a [String]) -> Self {
        Collective { over, exchanges: true, size: None, least: 1 }
    }
}

/// The operands of a group of ranks, for the interpreter.
pub struct Group<'a, R> {
    /// The only operand on each rank, by position in the group; empty if the op has none.
    pub operands: Vec<&'a Array<R>>,
    /// The number of ranks.
    pub size: usize,
    /// The type of the only result.
    pub result: &'a TensorType,
    /// Whether values are rounded to their dtypes.
    pub rounds: bool,
}

impl<R: Real> Group<'_, R> {
    /// The result on each rank, by its position, from its cell at each index.
    fn each(&self, mut cell: impl FnMut(usize, &[usize]) -> Cell<R>) -> Result<Vec<Array<R>>> {
        (0..self.size).map(|i| Array::from_fn(self.result, |index| cell(i, index))).collect()
    }

    /// The same result on each rank.
    fn same(&self, result: Array<R>) -> Vec<Array<R>> {
        vec![result; self.size]
    }

    /// Combines the operands of all ranks, in the tree of the module's documentation.
    fn tree(&self, combine: impl Fn(&Cell<R>, &Cell<R>) -> Cell<R>) -> Result<Array<R>> {
        let first = self.operands[0];
        let carried = first.dtype.wide();
        let join = |a: &Cell<R>, b: &Cell<R>| match combine(a, b) {
            Cell::Real(r) if self.rounds => Cell::Real(r.round_to(carried)),
            cell => cell,
        };
        let copies = self.operands.iter().map(|x| Cells::copied(&x.cells));
        let mut level = copies.collect::<Result<Vec<Cells<R>>>>()?;
        while level.len() > 1 {
            let mut next = Vec::with_capacity(level.len().div_ceil(2));
            let mut members = level.into_iter();
            while let Some(mut left) = members.next() {
                if let Some(right) = members.next() {
                    left.iter_mut().zip(right.iter()).for_each(|(a, b)| *a = join(a, b));
                }
                next.push(left);
            }
            level = next;
        }
        let cells = level.pop().expect("a group has at least one rank");
        Ok(Array::new(first.dtype, first.shape.clone(), cells))
    }
}

/// The error of a collective that is evaluated on one rank.
fn alone(name: &str) -> Diagnostic {
    Diagnostic::new(format!("`{name}` needs the other ranks of the mesh"))
        .help("interpret the function on all ranks, by `interpret::run_ranks`")
}

/// The product of extents.
fn count(extents: &[usize]) -> usize {
    extents.iter().product()
}

/// Checks the axes that a collective names.
fn check_axes(over: &[String]) -> Result<()> {
    ensure!(!over.is_empty(), "names no axis of the mesh"; help "name some: `over=[\"data\"]`");
    for (i, axis) in over.iter().enumerate() {
        ensure!(!over[..i].contains(axis), "axis `{axis}` of the mesh occurs twice";
            help "name each axis once");
    }
    Ok(())
}

/// Checks that a collective's operand varies over the axes that the collective names. Returns the
/// axes.
fn check_varies(x: &TensorType, over: &[String]) -> Result<Varying> {
    check_axes(over)?;
    let named = Varying::over(over);
    let missing = named.without(&x.varying);
    ensure!(missing.is_empty(), "its operand, {x}, does not vary over {missing}";
        help "make it vary by `pvary`, as the methods of tensors do");
    Ok(named)
}

/// `x` as a value that also varies over these axes. It must not vary over them yet.
#[track_caller]
pub(crate) fn pvary(x: &Tensor, over: &Varying) -> Tensor {
    match over.is_empty() {
        true => x.clone(),
        false => Tensor::apply(PVary { over: over.names() }, &[x]),
    }
}
