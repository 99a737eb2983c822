//! The task graph: steps that write and read values.
//!
//! It contains only values that take bytes of the arena. Inputs of calls and constants of nests
//! are not distinguished.

use super::{Costs, Dependencies};
use crate::kernels::{BufferId, Kernels};
use std::collections::BTreeSet;
use wengert_core::id::IdVec;

/// A value of the arena. One step writes it, and it is live until its last reader is done.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Value {
    pub bytes: u64,
    pub writer: usize,
    pub readers: Vec<usize>,
    /// It is live until the end.
    pub kept: bool,
}

/// A kernel.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Step {
    /// Values read, without duplicates, in ascending order.
    pub reads: Vec<usize>,
    pub writes: Vec<usize>,
    /// Workspace: bytes that it takes only while it runs.
    pub workspace: u64,
    /// Pairs of a result and an operand: the result may take the operand's bytes if this step is
    /// the operand's last reader. Sorted by result, then by preference.
    pub in_place: Vec<(usize, usize)>,
    /// Steps that it depends on, without duplicates.
    pub before: Vec<usize>,
    /// Steps that depend on it, without duplicates.
    pub after: Vec<usize>,
}

/// Steps in the given order, and their values.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct TaskGraph {
    pub steps: Vec<Step>,
    pub values: Vec<Value>,
}

impl TaskGraph {
    pub fn new(kernels: &Kernels, costs: &Costs<'_>, dependencies: &Dependencies) -> TaskGraph {
        let mut graph = TaskGraph::default();
        // Clamps sizes so that no sum exceeds 2^61. Functions with more bytes are rejected later,
        // when their slots are known.
        let most = (1u64 << 61) / (kernels.buffers.len() + kernels.kernels.len() + 1) as u64;
        let mut value: IdVec<BufferId, Option<usize>> =
            kernels.buffers.ids().map(|_| None).collect();
        for (k, kernel) in kernels.kernels.iter().enumerate() {
            let mut reads: Vec<usize> = kernel.distinct_reads().filter_map(|b| value[b]).collect();
            reads.sort_unstable();
            reads.iter().for_each(|v| graph.values[*v].readers.push(k));
            let mut writes = Vec::new();
            for buffer in kernel.writes.iter().filter(|b| costs.bytes[**b] > 0) {
                writes.push(graph.values.len());
                value[*buffer] = Some(graph.values.len());
                graph.values.push(Value {
                    bytes: costs.bytes[*buffer].min(most),
                    writer: k,
                    readers: Vec::new(),
                    kept: false,
                });
            }
            let in_place =
                costs.in_place[k].iter().filter_map(|(w, r)| Some((value[*w]?, value[*r]?)));
            graph.steps.push(Step {
                reads,
                writes,
                workspace: costs.workspace[k].min(most),
                in_place: in_place.collect(),
                before: Vec::new(),
                after: BTreeSet::from_iter(&dependencies.successors[k])
                    .into_iter()
                    .copied()
                    .collect(),
            });
        }
        for (_, _, buffer) in &kernels.outputs {
            if let Some(v) = value[*buffer] {
                graph.values[v].kept = true;
            }
        }
        for k in 0..graph.steps.len() {
            for n in 0..graph.steps[k].after.len() {
                let next = graph.steps[k].after[n];
                graph.steps[next].before.push(k);
            }
        }
        graph
    }

    /// Total bytes of some values.
    pub fn bytes(&self, values: &[usize]) -> u64 {
        values.iter().map(|v| self.values[*v].bytes).sum()
    }
}
