//! The result of fusion, which lowering reads: which equations become one kernel, and in which
//! order a kernel computes them.

use crate::emit::{Memory, Parts};
use crate::view::View;
use wengert_core::graph::ValueId;

/// The equations of a body, grouped into kernels.
#[derive(Default)]
pub(crate) struct Fused {
    /// The location of each value in memory after the function has run.
    pub memory: Memory,
    /// In an order in which each value is computed before it is read.
    pub kernels: Vec<Fusion>,
}

/// Equations that become one kernel.
pub(crate) enum Fusion {
    /// Equations that become one nest.
    Cluster(Cluster),
    /// The equation of a call, or of a construct of control flow.
    Call(usize),
}

/// Equations that become one nest.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Cluster {
    /// The whole space in row-major order of memory: extent, and whether the axis runs within a
    /// row.
    pub axes: Vec<Axis>,
    /// The computed equations, in program order.
    pub members: Vec<Member>,
    /// Values read from other kernels, and whether the read is clamped. In order, each once.
    pub reads: Vec<(ValueId, bool)>,
    /// Every equation whose rule it uses, ascending.
    pub equations: Vec<usize>,
}

impl Cluster {
    /// The extents of the axes of totals: all but the rows of a band.
    pub fn space_of_totals(&self) -> Vec<usize> {
        let rows = self.axes.iter().filter(|a| !a.inner).count();
        let axes = self.axes.iter().enumerate().filter(|(n, _)| n + 1 != rows);
        axes.map(|(_, axis)| axis.extent).collect()
    }

    /// The extents of the axes of another member's result: all axes, or the row axes.
    pub fn space_of(&self, view: &View<'_>, value: ValueId) -> Vec<usize> {
        let all: Vec<usize> = self.axes.iter().map(|a| a.extent).collect();
        match all.iter().product::<usize>() == view.count(value) {
            true => all,
            false => self.axes.iter().filter(|a| !a.inner).map(|a| a.extent).collect(),
        }
    }
}

/// An axis of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Axis {
    pub extent: usize,
    pub inner: bool,
}

/// A root of a cluster: an equation whose results are realised.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Member {
    pub equation: usize,
    /// Whether its results have an element for each point of the space, instead of one per row.
    /// (For a reduction: its operands.)
    pub along_row: bool,
    /// The stage in which it is computed.
    pub stage: usize,
    /// For each result whether it goes to memory.
    pub stored: Vec<bool>,
    /// Whether it is kept in row storage for later stages.
    pub kept: bool,
    /// Whether it is a reduction over the rows of bands, which is stored as a
    /// [total](wengert_core::nest::Total). The rows of a band are the last row axis.
    pub total: bool,
    /// The parts of its result, which are all computed at each point. Other members do not read
    /// them.
    pub parts: Option<Parts>,
}
