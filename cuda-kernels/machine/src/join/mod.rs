//! Executed machine instructions: the join of machine code with counts by PTX line.
//!
//! The emulator counts how often warps execute each line of the PTX text. The machine code says
//! which instructions a line became. Unrolled loops, tails of loops, code that is doubled or
//! moved: an instruction of a line may stand in several blocks, and which of its copies runs how
//! often is not in the counts. Blocks of the graph have one number of executions each, and these
//! are consistent along its edges. The join looks for numbers that fit both.
//!
//! # Method
//!
//! Unknowns are the executions x(b) of each block and e(a, b) of each edge, per warp of the
//! launch. They minimise
//!
//! ```text
//!   Σ over lines L of |Σ over blocks b of c(L, b)·x(b) − n(L)|  +  ε · Σ size(b)·x(b)
//! ```
//!
//! where n(L) is the count of the line and c(L, b) the number of L's main instructions in b. The
//! **main instruction** of a line is one that the PTX instruction becomes exactly once: `FFMA` of
//! `fma.rn.f32`, `LDG` of `ld.global` ([`crate::ptx::expected`]). Other lines take no part. The
//! sum of absolute values is robust: a line whose instruction was moved out of a loop misses its
//! count, and the other lines of the block outvote it.
//!
//! A main instruction with a guard is issued x(b) times and does its work between 0 and x(b)
//! times. In the first sum its term is an unknown y(L, b) ≤ c(L, b)·x(b). A PTX instruction with
//! a guard may become a machine instruction without one, whose result is then dropped; it is
//! issued at least n(L) times.
//!
//! The second term decides between explanations that fit equally well. It prefers few executed
//! instructions. So an unrolled loop takes all that it can, and its tail the rest; and a slow
//! path that no line counts is not taken. Each y has a price as well, which is higher: guarded
//! tails take the remainder only.
//!
//! The edges satisfy, with the entry of the kernel executed once per warp:
//!
//! ```text
//!   e(a, b) ≤ x(a),   e(a, b) ≤ x(b),   Σ out of a ≥ x(a),   Σ into b ≥ x(b)
//! ```
//!
//! These hold for warps whose lanes part and meet again. If no counted branch of the kernel
//! diverged, the sums are equal to x. A subroutine is entered as often as its calls are executed.
//!
//! The program is linear and is solved by the simplex method. If nothing diverged, and every line
//! is executed a whole number of times per warp, then all warps are taken to be alike. In that
//! case the blocks of lines with several copies are executed a whole number of times too, which
//! separates an unrolled loop from its tail exactly. They are integer unknowns, found by branch
//! and bound; above [`MOST_INTEGERS`] of them the linear program alone is solved.
//!
//! # Limits
//!
//! - Counts of overhead (addresses, loop counters) in a block follow from the block. If no line of
//!   a block has a main instruction, they follow from the edges only.
//! - Where trip counts differ between warps, the split between an unrolled loop and its tail is
//!   that of the smallest number of instructions. The totals of unguarded main instructions are
//!   right all the same; a guarded tail makes an error of up to one pass of the unrolled loop for
//!   each time that it is entered.
//! - Divergence that `ptxas` introduced for guarded PTX instructions is not counted as such.
//! - [`Executed::misfit`] says how well the counts were explained.

mod program;

pub use program::MOST_INTEGERS;

use crate::card::Card;
use crate::pipe::{self, Cost, Pipe, UnknownCost};
use crate::ptx::{self, Statement};
use crate::sass::{Flow, FlowError, Kernel};
use std::collections::BTreeMap;
use wengert_emulator::count::Counts;

/// Machine instructions that a launch executes.
#[derive(Clone, PartialEq, Debug)]
pub struct Executed {
    /// Executions of each block of the graph, per warp of the launch.
    pub blocks: Vec<f64>,
    /// Warps of the whole launch.
    pub warps: f64,
    /// Warp instructions of the whole launch by opcode.
    pub opcodes: BTreeMap<String, f64>,
    /// Sum of the differences between explained and counted executions of lines, as a share of
    /// the counted ones: 0 if all fit.
    pub misfit: f64,
}

/// A join that fails.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JoinError {
    /// The graph cannot be built.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// The counts are of no warp.
    #[error("kernel `{0}`: the counts are of no warp")]
    NoWarps(String),
    /// The solver of the linear program failed.
    #[error("kernel `{kernel}`: the executions of its blocks cannot be found: {reason}")]
    Solver {
        /// The kernel.
        kernel: String,
        /// The solver's message.
        reason: String,
    },
}

/// Finds how often the blocks of a kernel are executed. `statements` are those of the PTX text that
/// the code was assembled from ([`ptx::statements`]), and whose lines the counts name. Counts of a
/// sample of blocks are scaled to the grid.
///
/// Errors: the counts are of no warp; the solver fails.
pub fn join(
    kernel: &Kernel,
    flow: &Flow,
    statements: &BTreeMap<u32, Statement>,
    counts: &Counts,
) -> Result<Executed, JoinError> {
    if counts.warps == 0 || counts.blocks == 0 {
        return Err(JoinError::NoWarps(kernel.name.clone()));
    }
    let warps = counts.warps as f64;
    let terms = terms(kernel, flow, statements, counts);
    let diverges = counts.lines.values().any(|l| l.diverged > 0);
    let blocks = program::solve(kernel, flow, &terms, !diverges)
        .map_err(|reason| JoinError::Solver { kernel: kernel.name.clone(), reason })?;
    let (mut missed, mut counted) = (0.0, 0.0);
    for t in &terms {
        // Guarded copies explain any number up to their issues.
        let sum = |of: fn(&Copies) -> f64| -> f64 {
            t.blocks.iter().map(|c| of(c) * blocks[c.block]).sum()
        };
        let (least, most) = (sum(|c| c.unguarded), sum(|c| c.unguarded + c.guarded));
        let below = (t.count - most).max(0.0);
        let above = if t.is_at_least { 0.0 } else { (least - t.count).max(0.0) };
        missed += t.lines * (below + above);
        counted += t.lines * t.count;
    }
    let warps = warps * counts.grid as f64 / counts.blocks as f64;
    let mut opcodes: BTreeMap<String, f64> = BTreeMap::new();
    for (block, times) in flow.blocks.iter().zip(&blocks).filter(|(_, x)| **x > 0.0) {
        for i in &kernel.code[block.first..block.end] {
            *opcodes.entry(i.opcode.clone()).or_default() += times * warps;
        }
    }
    let misfit = if counted > 0.0 { missed / counted } else { 0.0 };
    Ok(Executed { blocks, warps, opcodes, misfit })
}

/// Main instructions of a line in a block.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Copies {
    block: usize,
    unguarded: f64,
    guarded: f64,
}

/// Lines with main instructions in the same blocks and with the same count.
#[derive(Clone, PartialEq, Debug)]
struct Term {
    /// Main instructions by block.
    blocks: Vec<Copies>,
    /// Executions per warp.
    count: f64,
    /// Whether the instructions may be issued more often than the line is executed.
    is_at_least: bool,
    /// How many lines these are.
    lines: f64,
}

impl Term {
    /// Whether several places share the count.
    fn is_ambiguous(&self) -> bool {
        self.blocks.len() > 1 || self.blocks.iter().any(|c| c.guarded > 0.0)
    }
}

/// Unguarded and guarded main instructions by block.
type Found = BTreeMap<usize, (u32, u32)>;

fn terms(
    kernel: &Kernel,
    flow: &Flow,
    statements: &BTreeMap<u32, Statement>,
    counts: &Counts,
) -> Vec<Term> {
    let mut lines: BTreeMap<u32, Found> = BTreeMap::new();
    for (at, block) in flow.blocks.iter().enumerate() {
        for i in &kernel.code[block.first..block.end] {
            let Some(line) = i.line else { continue };
            let Some(statement) = statements.get(&line) else { continue };
            let Some(mains) = ptx::expected(&statement.opcode) else { continue };
            if mains.contains(&i.opcode.as_str()) {
                let copies = lines.entry(line).or_default().entry(at).or_default();
                match i.guard {
                    None => copies.0 += 1,
                    Some(_) => copies.1 += 1,
                }
            }
        }
    }
    let mut groups: BTreeMap<(Found, u64, bool), f64> = BTreeMap::new();
    for (line, found) in lines {
        let count = counts.lines.get(&line).map_or(0, |l| l.issued);
        let is_at_least = statements[&line].is_guarded && found.values().any(|(u, _)| *u > 0);
        *groups.entry((found, count, is_at_least)).or_default() += 1.0;
    }
    groups
        .into_iter()
        .map(|((found, count, is_at_least), lines)| Term {
            blocks: found
                .into_iter()
                .map(|(block, (unguarded, guarded))| Copies {
                    block,
                    unguarded: f64::from(unguarded),
                    guarded: f64::from(guarded),
                })
                .collect(),
            count: count as f64 / counts.warps as f64,
            is_at_least,
            lines,
        })
        .collect()
}

impl Executed {
    /// Warp instructions of the whole launch.
    pub fn instructions(&self) -> f64 {
        self.opcodes.values().sum()
    }

    /// Clocks for which one partition's share of each pipe is busy, over the whole launch.
    ///
    /// Errors: an executed instruction has no known cost.
    pub fn busy(
        &self,
        kernel: &Kernel,
        flow: &Flow,
        card: &Card,
    ) -> Result<BTreeMap<Pipe, f64>, UnknownCost> {
        let mut busy: BTreeMap<Pipe, f64> = BTreeMap::new();
        for (block, times) in flow.blocks.iter().zip(&self.blocks).filter(|(_, x)| **x > 0.0) {
            for i in &kernel.code[block.first..block.end] {
                let Cost { busy: pipes, .. } = pipe::cost(i, card)?;
                for (pipe, clocks) in pipes.into_iter().flatten() {
                    *busy.entry(pipe).or_default() += clocks * times * self.warps;
                }
            }
        }
        Ok(busy)
    }
}
