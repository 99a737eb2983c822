//! Meshes of ranks, and the axes over which a value varies.
//!
//! A *rank* is one of several devices or processes that run the same function. The ranks form a
//! [`Mesh`]: a box with named axes of constant extents, such as 4 × 2 ranks with the axes `data`
//! and `tensor`. Ranks are numbered in row-major order: the last axis is the fastest. A function
//! without a mesh runs on one rank.
//!
//! A value of such a function has one array on every rank. Its type says over which axes these
//! arrays may differ ([`Varying`]): `f32[8]{data}` differs along `data`, and is the same for all
//! ranks that differ in `tensor` only. A value that varies over no axis is *invariant*. These are
//! the manual axes of JAX's `shard_map` ("varying manual axes").
//!
//! # Invariants
//!
//! - An op that is no collective acts on each rank alone. Its operands vary over the same axes,
//!   and so do its results. `pvary` makes a value that varies over more axes, without
//!   communication; the builder inserts it where operands differ.
//! - Only a collective ([`crate::op::Op::collective`]) takes data from other ranks, and only a
//!   reduction over an axis makes a value invariant over it. So a type never promises more than
//!   holds: an invariant value has the same bits on all ranks.
//! - Ranks that exchange data agree that they do: a collective over an axis is not in a branch or
//!   loop whose condition varies over that axis.
//!
//! # Derivatives
//!
//! Types make the transposes unambiguous. The cotangent of a value varies over the axes of the
//! value. Where an invariant parameter meets varying data, there is a `pvary`; its transpose is
//! `psum`, which adds the gradients of all ranks. The transpose of `psum` is `pvary`, which costs
//! nothing.

use crate::diagnostic::{Diagnostic, Result, ensure};
use crate::text::{NAME_HELP, is_name, joined};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The name of an axis of a mesh.
pub type AxisName = Arc<str>;

/// Most ranks of a mesh.
pub const MAX_RANKS: usize = 1 << 20;

/// Most axes of a mesh.
pub const MAX_AXES: usize = 16;

/// Named axes with their extents, outermost first. Without axes: one rank.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Mesh(Vec<(AxisName, usize)>);

impl Mesh {
    /// A mesh of these axes.
    ///
    /// Errors: those of [`Mesh::verify`].
    pub fn new<N: Into<AxisName>>(axes: impl IntoIterator<Item = (N, usize)>) -> Result<Mesh> {
        let mesh = Mesh(axes.into_iter().map(|(name, extent)| (name.into(), extent)).collect());
        mesh.verify().map(|()| mesh)
    }

    /// A mesh that is not verified yet.
    pub(crate) fn unverified(axes: Vec<(AxisName, usize)>) -> Mesh {
        Mesh(axes)
    }

    /// Checks that axes have distinct names of the text language and extents of at least 1, and
    /// that there are at most [`MAX_AXES`] of them and at most [`MAX_RANKS`] ranks.
    pub fn verify(&self) -> Result<()> {
        ensure!(self.0.len() <= MAX_AXES, "a mesh of {} axes; it may have {MAX_AXES}", self.0.len();
            help "join axes over which the same collectives run");
        let mut names = BTreeSet::new();
        let mut ranks = Some(1usize);
        for (name, extent) in &self.0 {
            ensure!(is_name(name), "`{}` is no name for an axis of a mesh", name.escape_debug();
                help "{NAME_HELP}");
            ensure!(names.insert(name), "axis `{name}` of the mesh is declared twice";
                help "give it another name");
            ensure!(*extent > 0, "axis `{name}` of the mesh has extent 0";
                help "an axis has at least one rank");
            ranks = ranks.and_then(|n| n.checked_mul(*extent)).filter(|n| *n <= MAX_RANKS);
        }
        ensure!(ranks.is_some(), "a mesh has at most {MAX_RANKS} ranks, found {self}");
        Ok(())
    }

    /// True if there is no axis: the function runs on one rank.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The axes with their extents, outermost first.
    pub fn axes(&self) -> &[(AxisName, usize)] {
        &self.0
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.0.iter().map(|(_, extent)| extent).product()
    }

    /// The extent of an axis.
    pub fn extent(&self, name: &str) -> Option<usize> {
        self.0.iter().find(|(axis, _)| **axis == *name).map(|(_, extent)| *extent)
    }

    /// Number of ranks along several axes together.
    ///
    /// Error: the mesh has no axis of one of the names.
    pub fn size<N: AsRef<str>>(&self, over: &[N]) -> Result<usize> {
        over.iter().try_fold(1, |size, name| {
            let name = name.as_ref();
            let extent = self.extent(name).ok_or_else(|| self.no_axis(name))?;
            Ok(size * extent)
        })
    }

    /// The error for an axis that the mesh does not have.
    pub fn no_axis(&self, name: &str) -> Diagnostic {
        let error = Diagnostic::new(format!("the mesh has no axis `{name}`"));
        error.help(match self.0.as_slice() {
            [] => "the function has no mesh: declare one, as in `func @f mesh(data=4) (…)`".into(),
            axes => format!("its axes are {}", joined(axes.iter().map(|(name, _)| name), ", ")),
        })
    }

    /// The ranks that differ from `rank` along the axes `over` only. They are ordered by their
    /// indices along `over`, in row-major order: the last of `over` is the fastest.
    pub fn group<N: AsRef<str>>(&self, rank: usize, over: &[N]) -> Vec<usize> {
        let mut group = vec![rank];
        for name in over {
            let Some((extent, stride)) = self.stride(name.as_ref()) else { continue };
            let along = |rank: &usize| {
                let first = rank - rank / stride % extent * stride;
                (0..extent).map(move |i| first + i * stride)
            };
            group = group.iter().flat_map(along).collect();
        }
        group
    }

    /// The extent of an axis, and the distance of neighbours along it.
    fn stride(&self, name: &str) -> Option<(usize, usize)> {
        let at = self.0.iter().position(|(axis, _)| **axis == *name)?;
        let inner = self.0[at + 1..].iter().map(|(_, extent)| extent).product();
        Some((self.0[at].1, inner))
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes = self.0.iter().map(|(name, extent)| format!("{name}={extent}"));
        write!(f, "mesh({})", joined(axes, ", "))
    }
}

/// The axes of a mesh over which a value varies, in the order of their names.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Varying(BTreeSet<AxisName>);

impl Varying {
    /// These axes.
    pub fn over<N: AsRef<str>>(axes: &[N]) -> Self {
        Varying(axes.iter().map(|name| AxisName::from(name.as_ref())).collect())
    }

    /// True for an invariant value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an axis is among them.
    pub fn contains(&self, axis: &str) -> bool {
        self.0.contains(axis)
    }

    /// Whether all axes of `other` are among them.
    pub fn covers(&self, other: &Varying) -> bool {
        other.0.is_subset(&self.0)
    }

    /// The axes of both.
    #[must_use]
    pub fn union(&self, other: &Varying) -> Self {
        Varying(self.0.union(&other.0).cloned().collect())
    }

    /// These axes but for those of `other`.
    #[must_use]
    pub fn without(&self, other: &Varying) -> Self {
        Varying(self.0.difference(&other.0).cloned().collect())
    }

    /// The axes that both have.
    #[must_use]
    pub fn common(&self, other: &Varying) -> Self {
        Varying(self.0.intersection(&other.0).cloned().collect())
    }

    /// The axes, in the order of their names.
    pub fn axes(&self) -> impl Iterator<Item = &AxisName> {
        self.0.iter()
    }

    /// The axes' names, as attributes of collectives have them.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|name| name.to_string()).collect()
    }
}

impl FromIterator<AxisName> for Varying {
    fn from_iter<I: IntoIterator<Item = AxisName>>(axes: I) -> Self {
        Varying(axes.into_iter().collect())
    }
}

/// `{data,tensor}`; nothing for an invariant value.
impl fmt::Display for Varying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_empty() {
            true => Ok(()),
            false => write!(f, "{{{}}}", joined(&self.0, ",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_ordered_by_the_axes_as_they_are_named() {
        let mesh = Mesh::new([("a", 2), ("b", 3), ("c", 2)]).unwrap();
        assert_eq!(mesh.ranks(), 12);
        // Rank 5 is at (0, 2, 1).
        assert_eq!(mesh.group(5, &["b"]), [1, 3, 5]);
        assert_eq!(mesh.group(5, &["a", "c"]), [4, 5, 10, 11]);
        assert_eq!(mesh.group(5, &["c", "a"]), [4, 10, 5, 11]);
        assert_eq!(mesh.group::<&str>(5, &[]), [5]);
    }

    #[test]
    fn mistakes_are_named() {
        let error = |axes: &[(&str, usize)]| Mesh::new(axes.to_vec()).unwrap_err().to_string();
        assert!(error(&[("a", 0)]).contains("axis `a` of the mesh has extent 0"));
        assert!(error(&[("a", 2), ("a", 2)]).contains("declared twice"));
        assert!(error(&[("a b", 2)]).contains("no name for an axis"));
        assert!(error(&[("a", 1 << 20), ("b", 2)]).contains("at most 1048576 ranks"));
        assert!(error(&[("a", usize::MAX), ("b", 3)]).contains("at most 1048576 ranks"));
    }
}
