//! Kernels as the steps of [`rematerialize`](crate::memory::rematerialize).
//!
//! A step is a kernel, or a part of a product with a follower: the two may be repeated separately
//! where other kernels read the product too. A value is a buffer. Buffers outside the
//! arena take no bytes.
//!
//! Some kernels are never repeated: those that write memory outside the arena, and control flow,
//! since the purpose of its loops is their stacks. Readers of a variable's old value may be
//! repeated until the kernel that computes the new value runs.

use crate::kernels::cost::Rates;
use crate::kernels::{BufferId, Kernel, Kernels, Work};
use crate::memory::homes::Homes;
use crate::memory::nests::Nests;
use crate::memory::rematerialize::computation::{
    ALWAYS, Computation, NEVER, Schedule, Step, Value,
};
use crate::memory::run::{Piece, Run, Whole};
use wengert_core::id::{Id, IdVec};
use wengert_core::{Diagnostic, Result, Target};

/// Greatest sum of bytes, and of costs, in a computation.
const MOST: u64 = 1 << 43;
/// The unit of cost in seconds. It is raised if sums would be too large.
const UNIT: f64 = 1e-9;

/// The steps of a function.
pub struct Steps {
    pieces: Vec<Piece>,
    /// The steps as a computation whose steps may run again.
    pub computation: Computation,
}

impl Steps {
    /// The kernels of a function in an order. `workspaces` holds the workspace of each kernel.
    ///
    /// Errors: the sum of sizes is too large.
    pub fn new(
        kernels: &Kernels,
        order: &[usize],
        target: &Target,
        workspaces: &[u64],
        nests: &mut Nests<'_>,
    ) -> Result<Steps> {
        let homes = Homes::fixed(kernels);
        let mut bytes = homes.arena_bytes(kernels);
        bytes.iter_mut().for_each(|(_, bytes)| *bytes = bytes.next_multiple_of(target.alignment));
        let pieces = pieces(kernels, order, &homes, &mut bytes, nests);
        let made: Vec<Kernel> = pieces.iter().map(|piece| piece.of(kernels)).collect();
        let rates = Rates::of(target);
        let seconds: Vec<f64> = made.iter().map(|kernel| kernels.seconds(kernel, &rates)).collect();
        let unit = (seconds.iter().sum::<f64>() / MOST as f64).max(UNIT);
        let barriers = barriers(kernels, &made, &homes);
        let steps: Vec<Step> = (0..pieces.len())
            .map(|n| Step {
                cost: ((seconds[n] / unit) as u64).max(1),
                workspace: if pieces[n].whole == Whole::Nest {
                    0
                } else {
                    workspaces[pieces[n].kernel]
                },
                reads: made[n].reads.iter().map(|b| b.index()).collect(),
                writes: made[n].writes.iter().map(|b| b.index()).collect(),
                barrier: barriers[n],
            })
            .collect();
        let mut values: Vec<Value> =
            bytes.iter().map(|(_, bytes)| Value { bytes: *bytes, output: false }).collect();
        kernels.outputs.iter().for_each(|(_, _, buffer)| values[buffer.index()].output = true);
        let sizes = values.iter().map(|v| v.bytes).chain(steps.iter().map(|s| s.workspace));
        let all = sizes.fold(0, u64::saturating_add);
        if all > MOST {
            let name = &kernels.function;
            return Err(Diagnostic::new(format!(
                "@{name} makes values of {all} bytes together, more than a budget can be kept for"
            ))
            .help("bind smaller dimensions, or compile without a budget"));
        }
        Ok(Steps { pieces, computation: Computation { steps, values } })
    }

    /// The run of a schedule's kernels.
    pub fn run(&self, kernels: &Kernels, schedule: &Schedule) -> Run<'static> {
        Run::of_pieces(kernels, schedule.executions.iter().map(|step| self.pieces[*step]))
    }
}

/// Splits products from their followers where other kernels read the product. If no other kernel
/// reads the product and a result of the nest can take its bytes, the product has none of its own.
fn pieces(
    kernels: &Kernels,
    order: &[usize],
    homes: &Homes,
    bytes: &mut IdVec<BufferId, u64>,
    nests: &mut Nests<'_>,
) -> Vec<Piece> {
    let mut is_read: IdVec<BufferId, bool> = kernels.buffers.ids().map(|_| false).collect();
    let outputs = kernels.outputs.iter().map(|(_, _, b)| b);
    kernels.kernels.iter().flat_map(|k| &k.reads).chain(outputs).for_each(|b| is_read[*b] = true);
    let mut pieces = Vec::with_capacity(order.len());
    for k in order {
        let kernel = &kernels.kernels[*k];
        let followed = matches!(kernel.work, Work::Followed(_));
        if followed && is_read[kernel.writes[0]] {
            pieces.extend([Whole::Call, Whole::Nest].map(|whole| Piece { kernel: *k, whole }));
            continue;
        }
        pieces.push(Piece { kernel: *k, whole: Whole::All });
        if followed {
            let product = kernel.writes[0];
            let takes = |w: usize| {
                let result = kernel.writes[w];
                homes.sinks[result].is_empty() && bytes[result] == bytes[product]
            };
            let mut results = (1..kernel.writes.len()).filter(|w| takes(*w));
            if results.any(|w| nests.may_alias(kernels, *k, product, w)) {
                bytes[product] = 0;
            }
        }
    }
    pieces
}

/// The barrier of each piece.
fn barriers(kernels: &Kernels, pieces: &[Kernel], homes: &Homes) -> Vec<usize> {
    let mut writer: IdVec<BufferId, Option<usize>> = kernels.buffers.ids().map(|_| None).collect();
    for (number, kernel) in pieces.iter().enumerate() {
        kernel.writes.iter().for_each(|b| writer[*b] = Some(number));
    }
    // For each buffer the piece that overwrites it.
    let mut end: IdVec<BufferId, usize> = kernels.buffers.ids().map(|_| ALWAYS).collect();
    for variable in &homes.variables {
        if let Some(before) = variable.before.filter(|b| *b != variable.after) {
            end[before] = writer[variable.after].unwrap_or(ALWAYS);
        }
    }
    let barrier = |kernel: &Kernel| {
        let outside = kernel.writes.iter().any(|b| !homes.sinks[*b].is_empty());
        // Other ranks would have to take part again.
        let exchanges = kernel.call().is_some_and(|call| call.collective().is_some());
        if outside || exchanges || matches!(kernel.work, Work::Control(_)) {
            return NEVER;
        }
        kernel.reads.iter().map(|b| end[*b]).min().unwrap_or(ALWAYS)
    };
    pieces.iter().map(barrier).collect()
}
