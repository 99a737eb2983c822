//! Methods of [`Tensor`] on the ranks of the function's mesh.
//!
//! Each takes axes of the mesh: the ranks along them exchange data. An operand that does not vary
//! over one of the axes is the same on all ranks; `pvary` makes it vary first, as in JAX. So
//! `psum` of an invariant value is the value times the number of ranks.

use super::Scope;
use super::axes::{Axis, or_poison};
use super::failure::composed;
use super::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::location::Location;
use crate::mesh::{Mesh, Varying};
use crate::op::collective::pvary;
use crate::op::{AllGather, AllToAll, AxisIndex, Op, PPermute, PReduce, PReduceKind, PsumScatter};

/// Axes of a mesh: a name, or a list of names.
pub trait MeshAxes {
    /// The names.
    fn names(self) -> Vec<String>;
}

impl MeshAxes for &str {
    fn names(self) -> Vec<String> {
        vec![self.into()]
    }
}

impl MeshAxes for &[&str] {
    fn names(self) -> Vec<String> {
        self.iter().map(|name| name.to_string()).collect()
    }
}

impl<const N: usize> MeshAxes for [&str; N] {
    fn names(self) -> Vec<String> {
        self.as_slice().names()
    }
}

impl MeshAxes for Vec<String> {
    fn names(self) -> Vec<String> {
        self
    }
}

impl Tensor {
    /// `psum`: the sum over the ranks along axes of the mesh, in one order. The result is
    /// invariant over them.
    #[track_caller]
    pub fn psum(&self, over: impl MeshAxes) -> Tensor {
        self.reduced("psum", PReduceKind::Sum, over.names())
    }

    /// The mean over the ranks along axes of the mesh: `psum`, divided by their number. Halves are
    /// added and divided in f32.
    #[track_caller]
    pub fn pmean(&self, over: impl MeshAxes) -> Tensor {
        let over = over.names();
        composed("pmean", &[self], || {
            let dtype = self.dtype().wide();
            if !dtype.is_float() {
                return Err(Diagnostic::new(format!(
                    "the mean of {}, which is not of floats",
                    self.ty()
                ))
                .help("convert it to a float dtype first, e.g. by `.convert(DType::F32)`"));
            }
            let count = self.mesh()?.size(&over)? as f64;
            Ok((self.convert(dtype).psum(over) / count).convert(self.dtype()))
        })
    }

    /// `pmax`: the greatest element on the ranks along axes of the mesh. The result is invariant
    /// over them.
    #[track_caller]
    pub fn pmax(&self, over: impl MeshAxes) -> Tensor {
        self.reduced("pmax", PReduceKind::Max, over.names())
    }

    /// `pmin`: the least element on the ranks along axes of the mesh. The result is invariant over
    /// them.
    #[track_caller]
    pub fn pmin(&self, over: impl MeshAxes) -> Tensor {
        self.reduced("pmin", PReduceKind::Min, over.names())
    }

    #[track_caller]
    fn reduced(&self, name: &str, kind: PReduceKind, over: Vec<String>) -> Tensor {
        self.collective(name, over, |over, _| PReduce { kind, over }.into())
    }

    /// `pvary`: the same value, with a type that varies over these axes of the mesh too. Axes
    /// over which it varies already are ignored. The builder inserts it where it is needed.
    #[track_caller]
    pub fn pvary(&self, over: impl MeshAxes) -> Tensor {
        let over = Varying::over(&over.names());
        if self.error().is_some() {
            return self.clone();
        }
        pvary(self, &over.without(&self.ty().varying))
    }

    /// `all_gather`: the tensors of all ranks along axes of the mesh, stacked along a new axis
    /// `axis`.
    #[track_caller]
    pub fn all_gather(&self, over: impl MeshAxes, axis: usize) -> Tensor {
        self.gathered(over.names(), axis, false, false)
    }

    /// `all_gather`, concatenated along an axis that the tensor has.
    #[track_caller]
    pub fn all_gather_tiled(&self, over: impl MeshAxes, axis: impl Axis) -> Tensor {
        let axis = or_poison!(self.op_axis("all_gather", axis));
        self.gathered(over.names(), axis, true, false)
    }

    /// [`Tensor::all_gather_tiled`] whose result is invariant over these axes: JAX's
    /// `all_gather_invariant`. Its transpose is the rank's part of the cotangent, where that of
    /// `all_gather` adds what the ranks give.
    #[track_caller]
    pub fn all_gather_invariant(&self, over: impl MeshAxes, axis: impl Axis) -> Tensor {
        let axis = or_poison!(self.op_axis("all_gather_invariant", axis));
        self.gathered(over.names(), axis, true, true)
    }

    #[track_caller]
    fn gathered(&self, over: Vec<String>, axis: usize, tiled: bool, invariant: bool) -> Tensor {
        self.collective("all_gather", over, |over, size| {
            AllGather { over, axis, size, tiled, invariant }.into()
        })
    }

    /// `psum_scatter`: the sum over the ranks along axes of the mesh, of which each rank gets the
    /// part of its number along `axis`. The axis has as many parts as there are ranks, and is
    /// removed.
    #[track_caller]
    pub fn psum_scatter(&self, over: impl MeshAxes, axis: impl Axis) -> Tensor {
        let axis = or_poison!(self.op_axis("psum_scatter", axis));
        self.scattered(over.names(), axis, false)
    }

    /// `psum_scatter` that divides the axis into one part for each rank.
    #[track_caller]
    pub fn psum_scatter_tiled(&self, over: impl MeshAxes, axis: impl Axis) -> Tensor {
        let axis = or_poison!(self.op_axis("psum_scatter", axis));
        self.scattered(over.names(), axis, true)
    }

    #[track_caller]
    fn scattered(&self, over: Vec<String>, axis: usize, tiled: bool) -> Tensor {
        self.collective("psum_scatter", over, |over, size| {
            PsumScatter { over, axis, size, tiled }.into()
        })
    }

    /// `all_to_all`: from each rank along axes of the mesh the part of this rank's number along
    /// `split`, stacked along `concat` in the order of the ranks. The extent of `split` is the
    /// number of ranks; it is removed before `concat` is inserted.
    #[track_caller]
    pub fn all_to_all(&self, over: impl MeshAxes, split: usize, concat: usize) -> Tensor {
        self.exchanged(over.names(), split, concat, false)
    }

    /// `all_to_all` that divides `split` into one part for each rank, and concatenates along
    /// `concat`.
    #[track_caller]
    pub fn all_to_all_tiled(&self, over: impl MeshAxes, split: usize, concat: usize) -> Tensor {
        self.exchanged(over.names(), split, concat, true)
    }

    #[track_caller]
    fn exchanged(&self, over: Vec<String>, split: usize, concat: usize, tiled: bool) -> Tensor {
        self.collective("all_to_all", over, |over, size| {
            AllToAll { over, split_axis: split, concat_axis: concat, size, tiled }.into()
        })
    }

    /// `ppermute`: the tensor of rank `s` on rank `d`, for each pair (s, d) of `perm`; zeros on
    /// ranks that are no destination. Ranks are numbered along the given axes.
    #[track_caller]
    pub fn ppermute(&self, over: impl MeshAxes, perm: &[(usize, usize)]) -> Tensor {
        let perm = perm.to_vec();
        self.collective("ppermute", over.names(), |over, _| PPermute { over, perm }.into())
    }

    /// `axis_index`: the number of this rank along axes of the mesh, an i32.
    #[track_caller]
    pub fn axis_index(over: impl MeshAxes) -> Tensor {
        Tensor::apply(AxisIndex { over: over.names() }, &[])
    }

    /// The op that `make` returns for the axes and their number of ranks, on this tensor as one
    /// that varies over them.
    #[track_caller]
    fn collective(
        &self,
        name: &str,
        over: Vec<String>,
        make: impl FnOnce(Vec<String>, usize) -> Op,
    ) -> Tensor {
        composed(name, &[self], || {
            let size = self.mesh()?.size(&over)?;
            let x = self.pvary(over.clone());
            Ok(Tensor::apply(make(over, size), &[&x]))
        })
    }

    /// The mesh of the function.
    fn mesh(&self) -> Result<Mesh> {
        let scope = self.scope().cloned().or_else(Scope::current);
        scope.map(|scope| scope.mesh()).ok_or_else(|| {
            Diagnostic::new("there is no function to put it in")
                .at(Location::caller(), "")
                .help("operate on tensors inside `Program::function`")
        })
    }
}
