//! Short reductions by one thread, without a loop.
//!
//! A tree of several lanes takes an array in local memory if its elements come one by one
//! ([`super::reduce`]). A short reduction is emitted element by element instead: all loads of the
//! thread are in flight, and its lanes are registers.

use super::emit::{Copy, Emit};
use super::shape;
use super::team::place;
use crate::ptx::Reg;
use wengert_core::nest::{Affine, Nest, Phase};
use wengert_core::{Id, Result};

/// Maximum number of elements of a thread: each has a register or two.
pub(super) const ELEMENTS: usize = 32;
/// Maximum number of elements times instructions of the body; bounds the size of the code.
const CODE: usize = 1024;

/// Whether the phase is such a reduction, with so many rows side by side.
fn takes(nest: &Nest, phase: &Phase, rows: usize) -> bool {
    let count = phase.iterations(nest);
    let fits = |lanes: u32, block: u32| {
        lanes as usize <= ELEMENTS && (block == 0 || count <= block as usize)
    };
    // The registers of a body without inner axes are those of the row.
    !phase.axes.is_empty()
        && phase.reductions.iter().any(|r| r.tree.lanes > 1)
        && phase.reductions.iter().all(|r| fits(r.tree.lanes, r.tree.block))
        && shape::prefixes(phase).next().is_none()
        && (1..=ELEMENTS).contains(&(count * rows))
        && count * rows * shape::cost(nest, phase) <= CODE
}

impl Emit<'_> {
    /// Emits the phase for these rows, if it is a short reduction.
    pub fn unrolled(&mut self, phase: &Phase, rows: &[Copy]) -> Result<bool> {
        if !takes(self.nest, phase, rows.len()) {
            return Ok(false);
        }
        let inner = shape::inner(self.nest, phase);
        let count = phase.iterations(self.nest);
        // The copies of a row are at a distance of the number of rows: see `Emit::value`.
        let mut copies = Vec::new();
        for element in 0..count {
            for row in rows {
                let mut copy = row.clone();
                place(&mut copy, &inner, &Affine::constant(element as i64));
                copies.push(copy);
            }
        }
        self.begin_body(copies.len());
        self.instructions(phase, &copies)?;
        for row in 0..rows.len() {
            for reduction in &phase.reductions {
                let combine = &reduction.combine;
                let mut lanes: Vec<Vec<Reg>> =
                    (0..reduction.tree.lanes).map(|_| self.identity(combine)).collect();
                for element in 0..count {
                    let of = |r| self.value(element * rows.len() + row, r);
                    let values: Vec<Reg> = reduction.values.iter().map(|r| of(*r)).collect();
                    let lane = element % lanes.len();
                    lanes[lane] = self.combine(combine, &lanes[lane], &values)?;
                }
                while lanes.len() > 1 {
                    let half = lanes.len() / 2;
                    for lane in 0..half {
                        lanes[lane] = self.combine(combine, &lanes[lane], &lanes[lane + half])?;
                    }
                    lanes.truncate(half);
                }
                for (result, value) in reduction.results.iter().zip(&lanes[0]) {
                    self.row[row][result.index()] = Some(*value);
                }
            }
        }
        self.body.clear();
        Ok(true)
    }
}
