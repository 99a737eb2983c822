//! Regions on several ranks in lockstep.
//!
//! An op with regions is evaluated on a set of ranks together, since its regions may hold
//! collectives. A step runs on all ranks of the set that take it, before any of them goes on. One
//! rank is the common case, so there is one meaning of each construct.

use crate::op::prelude::*;

/// Runs region number `.0` on the ranks `.1` of the set, on the operands of each.
pub type RunRegion<'a, R> =
    &'a dyn Fn(usize, &[usize], Vec<Vec<Array<R>>>) -> Result<Vec<Vec<Array<R>>>>;

/// The context of `lockstep`: an op with regions on a set of ranks.
pub struct Lockstep<'a, R> {
    /// The operands on each rank.
    pub operands: Vec<Vec<Array<R>>>,
    /// Types of the results.
    pub results: &'a [TensorType],
    /// Number of regions.
    pub regions: usize,
    /// Runs a region on some ranks of the set, given by their positions in it.
    pub run: RunRegion<'a, R>,
}

impl<R: Real> Lockstep<'_, R> {
    /// All ranks of the set.
    pub(in crate::op) fn all(&self) -> Vec<usize> {
        (0..self.operands.len()).collect()
    }
}

/// The results of an op with regions on one rank.
pub(in crate::op) fn alone<R: Real>(
    e: &Evaluation<'_, R>,
    lockstep: impl FnOnce(Lockstep<'_, R>) -> Result<Vec<Vec<Array<R>>>>,
) -> Result<Vec<Array<R>>> {
    let run = |region: usize, _: &[usize], operands: Vec<Vec<Array<R>>>| {
        operands.iter().map(|operands| e.regions.run(region, operands)).collect()
    };
    let results = lockstep(Lockstep {
        operands: vec![e.operands.to_vec()],
        results: e.results,
        regions: e.regions.bodies.len(),
        run: &run,
    });
    Ok(results?.swap_remove(0))
}
