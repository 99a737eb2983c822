//! A nest that follows a product: its rows are computed from sums that are still in registers.
//!
//! A row of the nest reads one element of the product ([`wengert_core::nest::follows`]). A thread
//! that has the final sum of an element has that load's value in a register. The row's remaining
//! instructions have the code that they have in a kernel of the nest's own: the same bits.
//!
//! The number of the row is the position of the element in the product's result. It is an
//! expression over three axes of the schedule: the product's number in the batch, the row and the
//! column of the element. The parallel axes of the nest are its quotients and remainders, most of
//! which the ranges of the three axes simplify.

use super::emit::{Copy, Emit};
use super::place::Place;
use super::shape;
use crate::ptx::{Binary, Code, Reg, Type};
use crate::scalar::Functions;
use std::collections::BTreeMap;
use wengert_core::nest::{Affine, AxisId, BufferId, BufferRole, Instr, Nest};
use wengert_core::{Id, Result};

/// A row of more instructions than this is computed for few elements at a time, since the sums
/// already occupy most registers.
const LONG: usize = 24;
const SIDE_BY_SIDE: usize = 2;

/// A nest that follows a product.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Follower {
    /// The nest, without row storage.
    pub nest: Nest,
    /// Its parameter that is the product's result.
    pub tile: usize,
    /// For each of its parameters the argument of the launch.
    pub arguments: Vec<usize>,
    /// Pairs of parameters, an `in` and an `out`, that alias; none is the tile.
    pub in_place: Vec<(usize, usize)>,
    /// Whether the product's result is stored as well.
    pub stores: bool,
}

/// Layout of a product's result, of which each element is a row of the nest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elements {
    /// Number of products, rows and columns.
    pub extents: [usize; 3],
    /// Distance of products and of rows; neighbouring columns are contiguous.
    pub strides: [i64; 2],
}

/// The code of a follower in a product's kernel.
pub(crate) struct FollowerCode<'a> {
    emit: Emit<'a>,
    tile: BufferId,
    elements: Elements,
    /// The axis of each register that holds the number of a product, a row, or a column.
    axes: BTreeMap<(usize, Reg), AxisId>,
}

impl Follower {
    /// Whether a nest has code in a product's kernel: one without row storage.
    pub fn takes(nest: &Nest) -> bool {
        nest.buffers.iter().all(|(_, b)| b.role != BufferRole::Row)
    }

    /// Parameters that are passed to the kernel: all but the tile.
    pub fn parameters(&self) -> impl Iterator<Item = (usize, BufferRole)> + '_ {
        let roles = self.nest.parameters().map(|(_, b)| b.role).enumerate();
        roles.filter(|(n, _)| *n != self.tile)
    }
}

impl<'a> FollowerCode<'a> {
    /// `bases` are the addresses of [`Follower::parameters`].
    pub fn new(
        follower: &'a Follower,
        bases: &[Reg],
        elements: Elements,
        alignment: usize,
    ) -> FollowerCode<'a> {
        let mut emit = Emit::new(&follower.nest);
        emit.alignment = alignment;
        let mut bases = bases.to_vec();
        // No access goes to the tile's memory.
        bases.insert(follower.tile, bases[0]);
        for ((n, (_, buffer)), base) in follower.nest.parameters().enumerate().zip(bases) {
            let written = buffer.role != BufferRole::In
                || follower.in_place.iter().any(|(operand, _)| *operand == n);
            emit.places.push(Place::Global { base, written });
        }
        FollowerCode { emit, tile: BufferId::new(follower.tile), elements, axes: BTreeMap::new() }
    }

    /// The rows of neighbouring elements of the product, from `[batch, row, column]` on, with
    /// their values, where `active` holds.
    ///
    /// Errors: an instruction has no code for GPUs.
    pub fn rows(
        &mut self,
        code: &mut Code,
        functions: &mut Functions,
        at: [Reg; 3],
        active: Option<Reg>,
        values: &[Reg],
    ) -> Result<()> {
        std::mem::swap(&mut self.emit.code, code);
        std::mem::swap(&mut self.emit.functions, functions);
        let done = self.emit_rows(at, active, values);
        std::mem::swap(&mut self.emit.code, code);
        std::mem::swap(&mut self.emit.functions, functions);
        done
    }

    fn emit_rows(&mut self, at: [Reg; 3], active: Option<Reg>, values: &[Reg]) -> Result<()> {
        let first = self.position(at, values.len());
        let nest = self.emit.nest;
        let cost: usize = nest.phases.iter().map(|phase| shape::cost(nest, phase)).sum();
        let width = if cost > LONG { SIDE_BY_SIDE } else { values.len() };
        for (n, values) in values.chunks(width).enumerate() {
            let copy = |k: usize| Copy {
                axes: axes(nest, &first.offset((n * width + k) as i64)),
                active,
                stores: None,
            };
            let copies: Vec<Copy> = (0..values.len()).map(copy).collect();
            self.emit.row = vec![vec![None; nest.registers.len()]; copies.len()];
            for phase in &nest.phases {
                for (place, instr) in phase.body.iter().enumerate() {
                    if matches!(instr, Instr::Load { access, .. } if access.buffer == self.tile) {
                        self.emit.loaded.insert(place, values.to_vec());
                    }
                }
                self.emit.sequential(phase, &copies)?;
                self.emit.loaded.clear();
            }
        }
        Ok(())
    }

    /// The position of an element in the product's result.
    fn position(&mut self, at: [Reg; 3], vector: usize) -> Affine {
        let [batch, row] = self.elements.strides;
        let [b, i, j] = [0, 1, 2].map(|n| Affine::axis(self.axis(n, at[n], vector)));
        b.scale(batch).add(&i.scale(row)).add(&j.scale(vector as i64))
    }

    /// The axis of a register. Columns are counted in vectors, which divide a row, so that the
    /// expressions show the alignment of the first.
    fn axis(&mut self, which: usize, register: Reg, vector: usize) -> AxisId {
        if let Some(known) = self.axes.get(&(which, register)) {
            return *known;
        }
        let extents = self.elements.extents;
        let (extent, counter) = match which {
            2 if vector > 1 => {
                let log = i64::from(vector.trailing_zeros());
                let counter = self.emit.code.binary(Binary::Shr, Type::U32, register, log);
                (extents[2] / vector, counter)
            }
            _ => (extents[which], register),
        };
        let axis = self.emit.axis_in(["batch", "row", "column"][which], extent, counter);
        self.axes.insert((which, register), axis);
        axis
    }
}

/// The axes of a nest in the row of that number.
fn axes(nest: &Nest, row: &Affine) -> Vec<Affine> {
    let mut axes = vec![Affine::default(); nest.axes.len()];
    let mut rest = row.clone();
    for (n, axis) in nest.parallel.iter().enumerate().rev() {
        let extent = nest.axes[*axis].extent as i64;
        if extent != 1 {
            axes[axis.index()] = if n == 0 { rest.clone() } else { rest.modulo(extent) };
            rest = rest.floor_div(extent);
        }
    }
    axes
}
