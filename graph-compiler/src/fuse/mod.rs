//! Fusion: which equations become one kernel.
//!
//! 1. [`values`] decides which values are **realised**: computed once, as a root of a kernel, instead of on the spot by everyone who
//!    needs an element. Reductions, scans and calls are, and what must be in memory; of elementwise values those that are dear and
//!    have several uses.
//! 2. [`root`] emits each root by itself to see what it reads and how: the same element, its row's element, or any.
//! 3. [`kernels`] merges roots into kernels where every access permits it and memory is touched less.
//!
//! Fusion decides where and when, never what: every instruction of the graph is executed as it stands, and reduction trees depend
//! on shapes alone. So the bits are the same with fusion switched off.

mod root;
mod values;

pub(crate) use root::Root;

use crate::lower::{Cluster, Member, Memory};
use crate::view::{View, Work};
use wengert_core::op::Compute;

/// A function's kernels before lowering.
pub(crate) struct Fused {
    /// Where values are when the function has run.
    pub memory: Memory,
    /// In an order in which each value is computed before it is read.
    pub kernels: Vec<Kernel>,
}

/// A kernel before lowering.
pub(crate) enum Kernel {
    /// Equations that become one nest.
    Cluster(Cluster),
    /// The equation of a call.
    Call(usize),
}

/// Makes kernels of a body, each equation for itself unless `fuse`.
pub(crate) fn fuse(view: &View<'_>, fuse: bool) -> Fused {
    let memory = values::realise(view, fuse);
    let mut kernels = Vec::new();
    for (equation, work) in view.work.iter().enumerate() {
        let results = &view.body.equations[equation].results;
        let realised = results.iter().any(|v| memory[*v] == Some(*v));
        match work {
            Work::Compute(Compute::Call(_)) => kernels.push(Kernel::Call(equation)),
            Work::Compute(_) if realised => {
                let root = Root::new(view, &memory, equation);
                kernels.push(Kernel::Cluster(single(view, &memory, root)));
            }
            _ => {}
        }
    }
    Fused { memory, kernels }
}

/// A cluster of one root, all of whose results go to memory.
fn single(view: &View<'_>, memory: &Memory, root: Root) -> Cluster {
    let results = &view.body.equations[root.equation].results;
    let member = Member {
        equation: root.equation,
        along_row: root.space.iter().any(|a| a.inner) || root.loops,
        stage: 0,
        stored: results.iter().map(|v| memory[*v] == Some(*v)).collect(),
        kept: false,
    };
    Cluster {
        axes: root.space.clone(),
        members: vec![member],
        reads: root.parameters(),
        equations: root.equations,
    }
}
