//! The result, or the input's cotangent: for each position, a row of the product of patches with
//! the filter.
//!
//! A task computes some columns of a block or of a tile of positions. For a tile it copies the
//! patches, a part of the taps at a time, and adds up their products with the filter.

use super::direct::{Direct, Out};
use super::operands::Form;
use super::{Run, round};
use crate::call::chained::{Products, Rows};
use crate::call::element::Element;
use crate::call::{Kernels as _, room, take};
use crate::nest::Part;
use crate::pool::TaskPanicked;
use std::ops::Range;
use wengert_core::call::Direction;

impl Run<'_> {
    /// Computes the result, or the cotangent of the input.
    pub(super) fn forward<T: Element>(&self) -> Result<(), TaskPanicked> {
        let form = self.direct.as_ref().and_then(|_| Form::of::<T>(self.workspace.simd()));
        if self.filter_apart() {
            self.copy_filter::<T>(form.as_ref())?;
        }
        let pool = self.workspace.pool();
        if let (Some(direct), Some(form)) = (&self.direct, &form) {
            let (groups, blocks) = (self.call.groups, direct.blocks());
            let parts = self.columns().div_ceil(self.division.columns.max(1));
            return pool.parallel_for(self.call.batch * blocks * groups * parts, |thread, task| {
                let (part, rest) = (self.part(task % parts), task / parts);
                let (group, rest) = (rest % groups, rest / groups);
                let lines = (rest / blocks, direct.lines_of(rest % blocks));
                // SAFETY: the lines and columns exist, and no other task computes them for this
                // group; the copy of the filter is complete.
                unsafe {
                    self.block::<T>(thread, direct, form, Columns { group, columns: part }, lines)
                };
            });
        }
        let (positions, rows, several) =
            (self.patches.rows(), self.division.rows, self.division.groups);
        let parts = self.columns().div_ceil(self.division.columns.max(1));
        let groups = self.call.groups.div_ceil(several);
        pool.parallel_for(positions.div_ceil(rows) * groups * parts, |thread, task| {
            let (part, rest) = (self.part(task % parts), task / parts);
            let (group, start) = (rest % groups * several, rest / groups * rows);
            let group = group..self.call.groups.min(group + several);
            let tile = start..positions.min(start + rows);
            // SAFETY: the positions and columns exist, and no other task computes them for these
            // groups; the copy of the filter is complete.
            unsafe { self.tile::<T>(thread, group, part, tile) };
        })
    }

    /// Columns of a group that a task computes.
    fn part(&self, number: usize) -> Range<usize> {
        let start = number * self.division.columns;
        start..self.columns().min(start + self.division.columns)
    }

    /// Address of the source.
    fn source<T: Element>(&self) -> *const T {
        let forward = self.call.direction == Direction::Forward;
        self.arguments.operand::<T>(if forward { 0 } else { 1 })
    }

    /// Computes some lines of an image, for some columns of a group of the computed tensor, with
    /// the source in place.
    ///
    /// # Safety
    ///
    /// As for [`tile`](Self::tile), for the lines and columns.
    unsafe fn block<T: Element>(
        &self,
        thread: usize,
        direct: &Direct,
        form: &Form<T::Wide>,
        part: Columns,
        (image, lines): (usize, Range<usize>),
    ) {
        let source = self.source::<T>().wrapping_add(part.group * self.patches.channels());
        let filter = self.filter_of_form::<T>(form, part.group).from(0, part.columns.start);
        let count = lines.len() * direct.positions_of_line();
        let first = direct.first_of(image, &lines);
        let positions = first..first + count;
        let mut scratch = self.workspace.scratch(thread);
        let (mut free, behind) = self.split(&mut scratch);
        let sums = self.sums_of::<T>(&positions, &part, &mut free);
        // SAFETY: the operands fit into the scratch memory. The filter has rows for all taps and
        // channels. The sums belong to this task, in out or in scratch memory.
        unsafe {
            let block = form.block(direct, source, image, &lines, &mut free);
            let columns = part.columns.len();
            direct.products(&block, filter, Out { at: sums.at, columns, row: sums.distance });
            self.round_to::<T>(&positions, &part, sums);
            self.follow(behind, &part, 1, positions);
        }
    }

    /// Computes some columns of each of some groups of the computed tensor, at the positions
    /// `tile`; all columns, if there are several groups.
    ///
    /// # Safety
    ///
    /// The arguments are those of the call, checked. The shared memory holds the copy of the
    /// filter, if there is one. The positions exist, and no other thread uses these channels of
    /// them.
    unsafe fn tile<T: Element>(
        &self,
        thread: usize,
        groups: Range<usize>,
        columns: Range<usize>,
        tile: Range<usize>,
    ) {
        let mut scratch = self.workspace.scratch(thread);
        let (free, behind) = self.split(&mut scratch);
        for group in groups.clone() {
            let part = Columns { group, columns: columns.clone() };
            // SAFETY: the caller's promise is the same.
            unsafe { self.tile_of_group::<T>(free, part, tile.clone()) };
        }
        let part = Columns { group: groups.start, columns };
        // SAFETY: this part of out is computed and belongs to this task.
        unsafe { self.follow(behind, &part, groups.len(), tile) };
    }

    /// The products of a [tile](Self::tile) for one group.
    ///
    /// # Safety
    ///
    /// As for [`tile`](Self::tile).
    unsafe fn tile_of_group<T: Element>(
        &self,
        mut free: &mut [u8],
        part: Columns,
        tile: Range<usize>,
    ) {
        let (columns, channels) = (part.columns.len(), self.patches.channels());
        let group = part.group;
        let source = self.source::<T>();
        let filter = self.filter_view::<T>(group).from(0, part.columns.start);
        let plain = self.patches.plain(source, group);
        let patches = take::<T>(&mut free, self.division.rows * self.division.taps * channels);
        let sums = self.sums_of::<T>(&tile, &part, &mut free);
        let mut products = Products { simd: self.workspace.simd(), free };
        let mut start = 0;
        // Runs once even without taps, to write zeros.
        loop {
            let taps = start..self.patches.taps().min(start + self.division.taps);
            let depth = taps.len() * channels;
            // SAFETY: the patches fit into the memory taken for them; the filter has rows for all
            // taps and channels. The sums belong to this task, in out or in scratch memory.
            unsafe {
                let lhs = match plain {
                    Some(view) => view.from(tile.start, 0),
                    None => {
                        let (rows, taps) = (tile.clone(), taps.clone());
                        self.patches.fill(source, group, rows, taps, patches.as_mut_ptr())
                    }
                };
                let rhs = filter.from(start * channels, 0);
                products.multiply([tile.len(), columns, depth], sums, start > 0, lhs, rhs);
            }
            start = taps.end;
            if start >= self.patches.taps() {
                break;
            }
        }
        // SAFETY: the sums are computed, and this part of out belongs to this task.
        unsafe { self.round_to::<T>(&tile, &part, sums) };
    }

    /// The first element of some columns at a position of the result.
    fn first(&self, position: usize, part: &Columns) -> usize {
        let columns = self.columns();
        (position * self.call.groups + part.group) * columns + part.columns.start
    }

    /// The sums of some columns at some positions: in out, or, if they are rounded, in scratch
    /// memory.
    fn sums_of<T: Element>(
        &self,
        positions: &Range<usize>,
        part: &Columns,
        free: &mut &mut [u8],
    ) -> Rows<T::Wide> {
        if self.rounds() {
            let distance = part.columns.len();
            let at = take::<T::Wide>(free, positions.len() * distance).as_mut_ptr();
            return Rows { at, distance };
        }
        let first = self.first(positions.start, part);
        let at = self.arguments.result::<T::Wide>().wrapping_add(first);
        Rows { at, distance: self.call.groups * self.columns() }
    }

    /// Rounds [such](Self::sums_of) sums to out, if they are not there.
    ///
    /// # Safety
    ///
    /// The sums are computed, and no other code uses them and their part of out.
    unsafe fn round_to<T: Element>(
        &self,
        positions: &Range<usize>,
        part: &Columns,
        sums: Rows<T::Wide>,
    ) {
        if self.rounds() {
            let row = self.call.groups * self.columns();
            let first = self.first(positions.start, part);
            let out = self.arguments.result::<T>().wrapping_add(first);
            let (simd, size) = (self.workspace.simd(), [positions.len(), part.columns.len()]);
            // SAFETY: the caller's promise is the same.
            unsafe { round(simd, size, sums.at, sums.distance, out, row) };
        }
    }

    /// Scratch memory of the convolution, and that of its follower.
    pub(super) fn split<'s>(&self, scratch: &'s mut [u8]) -> (&'s mut [u8], &'s mut [u8]) {
        let own = room(self.scratch()).min(scratch.len());
        scratch.split_at_mut(own)
    }

    /// Runs the follower on the results of some columns at some positions; on all columns of
    /// `groups` groups from the given one on, if there are several.
    ///
    /// # Safety
    ///
    /// These results are final, and only this task uses them. As for
    /// [`run_on`](crate::call::CompiledCall::run_on), the follower writes nothing that the call
    /// reads.
    unsafe fn follow(
        &self,
        scratch: &mut [u8],
        columns: &Columns,
        groups: usize,
        positions: Range<usize>,
    ) {
        let Some(follower) = self.arguments.follower else { return };
        let (first, rows) = (self.first(positions.start, columns), columns.columns.len() * groups);
        let distance = self.call.groups * self.columns();
        let part = Part { first, lines: positions.len(), distance, rows };
        // SAFETY: the caller's promise is the same.
        unsafe { follower.run(scratch, part) };
    }
}

/// Some columns of a group.
struct Columns {
    group: usize,
    columns: Range<usize>,
}
