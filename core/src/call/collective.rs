//! Collectives: calls that take data from other ranks of the plan's mesh.
//!
//! A call of this kind names axes of the mesh. The ranks that differ along these axes only are a
//! *group*, ordered as in [`crate::op::collective`]. All ranks of a group run the call together.
//! The call holds no rank: a plan has the same text on every rank, and the rank is known when the
//! plan runs.
//!
//! | kind | operand | result on the rank at position p of its group |
//! |---|---|---|
//! | `psum`, `pmax`, `pmin` | `[outer·inner]` | the operands of the group, combined in one tree |
//! | `psum_scatter` | `[outer, parts, inner]` | part p of the sum: `[outer, inner]` |
//! | `all_gather` | `[outer, inner]` | `[outer, parts, inner]`: part q is the operand of rank q |
//! | `all_to_all` | `[outer, parts, inner]` | `[rows, parts, outer·inner / rows]`, see below |
//! | `ppermute` | `[outer·inner]` | the operand of the source of p, or zeros |
//! | `axis_index` | | p, an i32 |
//!
//! In `all_to_all`, rank p gets part p of the operand of each rank q: a dense array of
//! `outer·inner` elements. It is divided into `rows` equal rows, and row i becomes `[i, q, ·]` of
//! the result.
//!
//! **The tree.** Operands are combined in a balanced tree over the positions in the group:
//! neighbours 2i and 2i + 1 are combined, an odd last operand is passed on, until one is left. Each
//! addition is rounded to the dtype, or for halves to f32; halves are rounded once more at the end.
//! The extremum of two operands is the second one if they are equal, and NaN if either is NaN.
//!
//! A call blocks its rank until its result exists. A plan may also start a collective and wait for
//! it later, with other steps between them ([`crate::plan::Step::Start`]).

use super::contract::{Contract, fits, named, product};
use super::reference::Reference;
use crate::diagnostic::{Result, ensure};
use crate::dtype::DType;
use crate::literal::Literal;
use crate::mesh::Mesh;
use crate::op::define::{attributes, texts};
use crate::ty::TensorType;
use std::collections::BTreeSet;

texts! {
    /// The kind of a collective.
    CollectiveKind {
        /// Sum of the operands of a group.
        Sum "psum",
        /// Greatest element at each index.
        Max "pmax",
        /// Least element at each index.
        Min "pmin",
        /// Part of the sum.
        SumScatter "psum_scatter",
        /// The operands of a group, side by side.
        AllGather "all_gather",
        /// A part of the operand of each rank.
        AllToAll "all_to_all",
        /// The operand of at most one other rank.
        Permute "ppermute",
        /// The position in the group.
        AxisIndex "axis_index",
    }
}

attributes! {
    /// An exchange between the ranks along axes of the plan's mesh; the [module](self) has the
    /// table of kinds.
    ///
    /// Arguments: the operand, dense, if the kind has one, then out, dense.
    Collective {
        /// The kind.
        kind: CollectiveKind,
        /// Axes of the mesh.
        over: Vec<String>,
        /// Dtype of operand and result.
        dtype: DType,
        /// The number of ranks of a group, where the shape of operand or result depends on it;
        /// 1 otherwise.
        parts: usize = 1,
        /// Product of the extents before the parts.
        outer: usize = 1,
        /// Product of the extents after the parts.
        inner: usize = 1,
        /// Rows of a part in the result of `all_to_all`; 1 otherwise.
        rows: usize = 1,
        /// Pairs of source and destination of `ppermute`, by position in the group.
        perm: Vec<(usize, usize)> = vec![],
    }
}

impl CollectiveKind {
    /// Whether elements of several ranks are combined.
    pub const fn is_reduction(self) -> bool {
        use CollectiveKind::{Max, Min, Sum, SumScatter};
        matches!(self, Sum | Max | Min | SumScatter)
    }

    /// Whether the shape of the operand or of the result depends on the number of ranks.
    pub const fn has_parts(self) -> bool {
        use CollectiveKind::{AllGather, AllToAll, SumScatter};
        matches!(self, SumScatter | AllGather | AllToAll)
    }

    /// Whether the ranks of a group exchange data.
    pub const fn exchanges(self) -> bool {
        !matches!(self, CollectiveKind::AxisIndex)
    }
}

impl Collective {
    /// A collective of `count` elements without parts.
    pub fn whole(kind: CollectiveKind, over: &[String], dtype: DType, count: usize) -> Self {
        Collective {
            kind,
            over: over.to_vec(),
            dtype,
            parts: 1,
            outer: 1,
            inner: count,
            rows: 1,
            perm: vec![],
        }
    }

    /// Checks the call against the mesh of its plan.
    ///
    /// Error: the mesh lacks an axis; the call states another number of ranks; a source or
    /// destination is no position of a group.
    pub fn check_mesh(&self, mesh: &Mesh) -> Result<()> {
        let size = mesh.size(&self.over)?;
        let kind = self.kind.name();
        ensure!(
            !self.kind.has_parts() || self.parts == size,
            "`{kind}` has {} parts, the group has {size} ranks", self.parts;
            help "a call has a part for each rank along its axes"
        );
        let last = self.perm.iter().map(|(s, d)| *s.max(d)).max();
        ensure!(
            last.is_none_or(|last| last < size),
            "`{kind}` names position {} of a group of {size} ranks", last.unwrap_or(0);
            help "positions are 0 to {}", size - 1
        );
        Ok(())
    }

    /// Elements of a part, or of all that the rank has if there are no parts.
    pub fn part(&self) -> usize {
        self.outer * self.inner
    }
}

impl Contract for Collective {
    named!("collective");

    fn operands(&self) -> Vec<TensorType> {
        use CollectiveKind::{AllGather, AllToAll, AxisIndex, Max, Min, Permute, Sum, SumScatter};
        match self.kind {
            AxisIndex => vec![],
            Sum | Max | Min | Permute | AllGather => {
                vec![TensorType::new(self.dtype, [self.outer, self.inner])]
            }
            SumScatter | AllToAll => {
                vec![TensorType::new(self.dtype, [self.outer, self.parts, self.inner])]
            }
        }
    }

    fn results(&self) -> Vec<TensorType> {
        use CollectiveKind::{AllGather, AllToAll, AxisIndex, Max, Min, Permute, Sum, SumScatter};
        vec![match self.kind {
            AxisIndex => TensorType::scalar(DType::I32),
            Sum | Max | Min | Permute | SumScatter => {
                TensorType::new(self.dtype, [self.outer, self.inner])
            }
            AllGather => TensorType::new(self.dtype, [self.outer, self.parts, self.inner]),
            AllToAll => {
                TensorType::new(self.dtype, [self.rows, self.parts, self.part() / self.rows.max(1)])
            }
        }]
    }

    fn collective(&self) -> Option<&Collective> {
        Some(self)
    }

    fn verify(&self) -> Result<()> {
        let kind = self.kind.name();
        ensure!(!self.over.is_empty(), "`{kind}` names no axis of the mesh");
        let mut names = BTreeSet::new();
        let twice = self.over.iter().find(|axis| !names.insert(*axis));
        ensure!(twice.is_none(), "`{kind}` names axis `{}` twice", twice.map_or("", |n| n));
        fits("operand", &[self.outer, self.parts, self.inner])?;
        ensure!(
            if self.kind.has_parts() { self.parts > 0 } else { self.parts == 1 },
            "`{kind}` of {} parts",
            self.parts
        );
        ensure!(
            self.kind != CollectiveKind::AxisIndex
                || (self.dtype, self.outer, self.inner) == (DType::I32, 1, 1),
            "`{kind}` is an i32 scalar"
        );
        ensure!(!self.kind.is_reduction() || self.dtype != DType::Bool, "`{kind}` of bools");
        let divides = self.rows > 0 && self.part().is_multiple_of(self.rows);
        ensure!(
            if self.kind == CollectiveKind::AllToAll { divides } else { self.rows == 1 },
            "`{kind}` of parts of {} elements in {} rows",
            self.part(),
            self.rows
        );
        let permutes = self.kind == CollectiveKind::Permute;
        ensure!(permutes || self.perm.is_empty(), "`{kind}` has no `perm`");
        let (mut sources, mut destinations) = (BTreeSet::new(), BTreeSet::new());
        for (source, destination) in &self.perm {
            ensure!(
                sources.insert(source) && destinations.insert(destination),
                "`{kind}` from {source} to {destination}: one of them occurs twice"
            );
        }
        Ok(())
    }

    /// # Panics
    ///
    /// Always: [`Call::references`](super::Call::references) refuses collectives.
    fn evaluate(&self, _: &[Literal]) -> Vec<Reference> {
        panic!("a collective has no meaning on one rank alone")
    }

    /// Additions and comparisons on one rank: it combines its share of the operands of the group.
    /// Movements count each element once.
    fn count(&self, least: usize) -> u64 {
        product(least, &[self.outer, self.parts, self.inner])
    }

    fn flops(&self) -> u64 {
        if self.kind.is_reduction() { self.count(0) } else { 0 }
    }

    fn description(&self) -> String {
        format!("{} over {}", self.kind.name(), self.over.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;

    fn call(attributes: impl FnOnce(&mut Collective)) -> Collective {
        let over = ["data".to_string()];
        let mut call = Collective::whole(CollectiveKind::Sum, &over, DType::F32, 6);
        attributes(&mut call);
        call
    }

    #[test]
    fn mistakes_are_named() {
        let error = |f: fn(&mut Collective)| call(f).verify().unwrap_err().to_string();
        call(|_| {}).verify().unwrap();
        assert!(error(|c| c.over.clear()).contains("no axis"));
        assert!(error(|c| c.over.push("data".into())).contains("`data` twice"));
        assert!(error(|c| c.parts = 2).contains("2 parts"));
        assert!(error(|c| c.dtype = DType::Bool).contains("of bools"));
        assert!(error(|c| c.rows = 2).contains("in 2 rows"));
        assert!(error(|c| c.perm = vec![(0, 1)]).contains("no `perm`"));
        assert!(error(|c| c.kind = CollectiveKind::AxisIndex).contains("i32 scalar"));
        let twice = |c: &mut Collective| {
            (c.kind, c.perm) = (CollectiveKind::Permute, vec![(0, 1), (2, 1)]);
        };
        assert!(error(twice).contains("from 2 to 1: one of them occurs twice"));
        let rows = |c: &mut Collective| {
            (c.kind, c.parts, c.rows) = (CollectiveKind::AllToAll, 2, 4);
        };
        assert!(error(rows).contains("6 elements in 4 rows"));
    }

    #[test]
    fn a_call_is_checked_against_the_mesh() {
        let mesh = Mesh::new([("data", 2), ("tensor", 3)]).unwrap();
        let error = |f: fn(&mut Collective)| call(f).check_mesh(&mesh).unwrap_err().to_string();
        call(|_| {}).check_mesh(&mesh).unwrap();
        assert!(error(|c| c.over = vec!["pipe".into()]).contains("no axis `pipe`"));
        let gather = |c: &mut Collective| (c.kind, c.parts) = (CollectiveKind::AllGather, 3);
        assert!(error(gather).contains("3 parts, the group has 2 ranks"));
        assert!(error(|c| c.perm = vec![(0, 2)]).contains("position 2 of a group of 2 ranks"));
    }

    #[test]
    fn one_rank_has_no_reference() {
        let operand = Literal::from_vec(&[6], vec![0f32; 6]).unwrap();
        let error = Call::from(call(|_| {})).references(&[operand]).unwrap_err().to_string();
        assert!(error.contains("needs the other ranks"), "{error}");
    }
}
