//! The result, or the input's cotangent: for each position, a row of the product of patches with
//! the filter.
//!
//! A task computes the rows of a block, or of a tile. For a tile it copies the patches, a part of
//! the taps at a time, and adds up their products with the filter.

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
            return pool.parallel_for(self.call.batch * blocks * groups, |thread, task| {
                let (group, rest) = (task % groups, task / groups);
                let (image, lines) = (rest / blocks, direct.lines_of(rest % blocks));
                // SAFETY: the lines exist, and no other task computes them for this group; the
                // copy of the filter is complete.
                unsafe { self.block::<T>(thread, direct, form, group, image, lines) };
            });
        }
        let (positions, rows, groups) = (self.patches.rows(), self.division.rows, self.call.groups);
        pool.parallel_for(positions.div_ceil(rows) * groups, |thread, task| {
            let (group, start) = (task % groups, task / groups * rows);
            let tile = start..positions.min(start + rows);
            // SAFETY: the positions exist, and no other task computes them for this group; the
            // copy of the filter is complete.
            unsafe { self.tile::<T>(thread, group, tile) };
        })
    }

    /// Address of the source.
    fn source<T: Element>(&self) -> *const T {
        let forward = self.call.direction == Direction::Forward;
        self.arguments.operand::<T>(if forward { 0 } else { 1 })
    }

    /// Computes some lines of an image, for one group of the computed tensor, with the source in
    /// place.
    ///
    /// # Safety
    ///
    /// As for [`tile`](Self::tile), for the lines.
    unsafe fn block<T: Element>(
        &self,
        thread: usize,
        direct: &Direct,
        form: &Form<T::Wide>,
        group: usize,
        image: usize,
        lines: Range<usize>,
    ) {
        let columns = self.columns();
        let source = self.source::<T>().wrapping_add(group * self.patches.channels());
        let filter = self.filter_of_form::<T>(form, group);
        let row = self.call.groups * columns;
        let count = lines.len() * direct.positions_of_line();
        let first = direct.first_of(image, &lines);
        let out = first * row + group * columns;
        let mut scratch = self.workspace.scratch(thread);
        let (mut free, behind) = self.split(&mut scratch);
        let sums = self.sums_of::<T>(out, count, &mut free);
        // SAFETY: the operands fit into the scratch memory. The filter has rows for all taps and
        // channels. The sums belong to this task, in out or in scratch memory.
        unsafe {
            let block = form.block(direct, source, image, &lines, &mut free);
            direct.products(&block, filter, Out { at: sums.at, columns, row: sums.distance });
            self.round_to::<T>(out, sums, count);
            self.follow(behind, group, first..first + count);
        }
    }

    /// Computes the positions `tile` of one group of the computed tensor.
    ///
    /// # Safety
    ///
    /// The arguments are those of the call, checked. The shared memory holds the copy of the
    /// filter, if there is one. The positions exist, and no other thread uses these channels of
    /// them.
    unsafe fn tile<T: Element>(&self, thread: usize, group: usize, tile: Range<usize>) {
        let (columns, channels) = (self.columns(), self.patches.channels());
        let source = self.source::<T>();
        let filter = self.filter_view::<T>(group);
        let row = self.call.groups * columns;
        let out = tile.start * row + group * columns;
        let mut scratch = self.workspace.scratch(thread);
        let (mut free, behind) = self.split(&mut scratch);
        let plain = self.patches.plain(source, group);
        let patches = take::<T>(&mut free, self.division.rows * self.division.taps * channels);
        let sums = self.sums_of::<T>(out, tile.len(), &mut free);
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
        unsafe {
            self.round_to::<T>(out, sums, tile.len());
            self.follow(behind, group, tile);
        }
    }

    /// The sums of `count` positions, whose results begin at an element of out: in out, or, if
    /// they are rounded, in scratch memory.
    fn sums_of<T: Element>(
        &self,
        first: usize,
        count: usize,
        free: &mut &mut [u8],
    ) -> Rows<T::Wide> {
        let columns = self.columns();
        if self.rounds() {
            let at = take::<T::Wide>(free, count * columns).as_mut_ptr();
            return Rows { at, distance: columns };
        }
        let at = self.arguments.result::<T::Wide>().wrapping_add(first);
        Rows { at, distance: self.call.groups * columns }
    }

    /// Rounds [such](Self::sums_of) sums to out, if they are not there.
    ///
    /// # Safety
    ///
    /// The sums are computed, and no other code uses them and their part of out.
    unsafe fn round_to<T: Element>(&self, first: usize, sums: Rows<T::Wide>, count: usize) {
        if self.rounds() {
            let (columns, row) = (self.columns(), self.call.groups * self.columns());
            let out = self.arguments.result::<T>().wrapping_add(first);
            let simd = self.workspace.simd();
            // SAFETY: the caller's promise is the same.
            unsafe { round(simd, [count, columns], sums.at, sums.distance, out, row) };
        }
    }

    /// Scratch memory of the convolution, and that of its follower.
    fn split<'s>(&self, scratch: &'s mut [u8]) -> (&'s mut [u8], &'s mut [u8]) {
        let own = room(self.scratch()).min(scratch.len());
        scratch.split_at_mut(own)
    }

    /// Runs the follower on the results of a group at some positions.
    ///
    /// # Safety
    ///
    /// These results are final, and only this task uses them. As for
    /// [`run_on`](crate::call::CompiledCall::run_on), the follower writes nothing that the call
    /// reads.
    unsafe fn follow(&self, scratch: &mut [u8], group: usize, positions: Range<usize>) {
        let Some(follower) = self.arguments.follower else { return };
        let (columns, distance) = (self.columns(), self.call.groups * self.columns());
        let first = positions.start * distance + group * columns;
        let part = Part { first, lines: positions.len(), distance, rows: columns };
        // SAFETY: the caller's promise is the same.
        unsafe { follower.run(scratch, part) };
    }
}
