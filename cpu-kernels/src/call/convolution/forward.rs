//! The result, or the input's cotangent: for each position, a row of the product of patches with
//! the filter.
//!
//! A task computes the rows of a block, or of a tile. For a tile it copies the patches, a part of
//! the taps at a time, and adds up their products with the filter.

use super::direct::{Block, Direct, Out};
use super::{CompiledConvolution, Kept};
use crate::call::element::{Element, Number};
use crate::call::finish::{Places, finish};
use crate::call::product::addends::Addends;
use crate::call::product::strip::Kernels;
use crate::call::product::{Order, Product, multiply};
use crate::call::{Arguments, take};
use crate::memory::Workspace;
use crate::pool::TaskPanicked;
use crate::simd::Simd;
use std::ops::Range;
use wengert_core::call::Direction;

impl CompiledConvolution {
    /// Computes the result, or the cotangent of the input.
    pub(super) fn run_forward<T: Element>(
        &self,
        workspace: &Workspace,
        arguments: &Arguments<'_>,
        kept: &Kept,
    ) -> Result<(), TaskPanicked> {
        if self.filter_apart() {
            self.copy_filter::<T>(workspace, arguments, kept)?;
        }
        if let (Some(direct), Some(kernels)) = (&self.direct, T::Wide::kernels(workspace.simd())) {
            let (groups, blocks) = (self.call.groups, direct.blocks());
            return workspace.pool().parallel_for(
                self.call.batch * blocks * groups,
                |thread, task| {
                    let (group, rest) = (task % groups, task / groups);
                    let (image, lines) = (rest / blocks, direct.lines_of(rest % blocks));
                    // SAFETY: the lines exist, and no other task computes them for this group; the
                    // copy of the filter is complete.
                    unsafe {
                        self.block::<T>(
                            workspace, thread, arguments, kept, direct, kernels, group, image,
                            lines,
                        );
                    };
                },
            );
        }
        let (positions, rows, groups) = (self.patches.rows(), self.division.rows, self.call.groups);
        workspace.pool().parallel_for(positions.div_ceil(rows) * groups, |thread, task| {
            let (group, start) = (task % groups, task / groups * rows);
            let tile = start..positions.min(start + rows);
            // SAFETY: the positions exist, and no other task computes them for this group; the
            // copy of the filter is complete.
            unsafe { self.tile::<T>(workspace, thread, arguments, kept, group, tile) };
        })
    }

    /// Address of the source.
    fn source<T: Element>(&self, arguments: &Arguments<'_>) -> *const T {
        arguments.operand::<T>(if self.call.direction == Direction::Forward { 0 } else { 1 })
    }

    /// Computes some lines of an image, for one group of the computed tensor, with the source in
    /// place.
    ///
    /// # Safety
    ///
    /// As for [`tile`](Self::tile), for the lines.
    #[allow(clippy::too_many_arguments, reason = "the coordinates of a part of the work")]
    unsafe fn block<T: Element>(
        &self,
        workspace: &Workspace,
        thread: usize,
        arguments: &Arguments<'_>,
        kept: &Kept,
        direct: &Direct,
        kernels: &Kernels<T::Wide>,
        group: usize,
        image: usize,
        lines: Range<usize>,
    ) {
        let (simd, columns) = (workspace.simd(), self.columns());
        let source = self.source::<T>(arguments).wrapping_add(group * self.patches.channels());
        let filter = self.filter_view::<T>(arguments, kept, group);
        let row = self.call.groups * columns;
        let count = lines.len() * direct.positions_of_line();
        let out = arguments.result::<T>();
        let out = out.wrapping_add(direct.first_of(image, &lines) * row + group * columns);
        let mut scratch = workspace.scratch(thread);
        let mut free = &mut scratch[..];
        let block = take::<T::Wide>(&mut free, direct.elements()).as_mut_ptr();
        let wide =
            take::<T::Wide>(&mut free, if T::HALF { count * columns } else { 0 }).as_mut_ptr();
        let (sums, sums_row) = if T::HALF { (wide, columns) } else { (out.cast(), row) };
        // SAFETY: the block and the sums of halves fit into the memory taken for them. The filter
        // has rows for all taps and channels. The sums belong to this task, in out or in scratch
        // memory.
        unsafe {
            direct.copy(simd, source, image, &lines, block);
            let block = Block { kernels, at: block, lines: lines.len() };
            direct.products(&block, filter, Out { at: sums, columns, row: sums_row });
            if T::HALF {
                self.round(simd, [count, columns], sums, sums_row, out, row);
            }
        }
    }

    /// Rounds the sums of halves to out.
    ///
    /// # Safety
    ///
    /// The sums are computed. Out's rows are valid to write and no other code uses them. The
    /// machine has the vector instructions.
    unsafe fn round<T: Element>(
        &self,
        simd: Simd,
        size: [usize; 2],
        sums: *mut T::Wide,
        sums_row: usize,
        out: *mut T,
        out_row: usize,
    ) {
        let nothing = std::ptr::null();
        let places = Places { sums, sums_row, out, out_row, bias: nothing, residual: nothing };
        // SAFETY: the caller's promise is the same.
        unsafe { finish(simd, Default::default(), size, &places) };
    }

    /// Computes the positions `tile` of one group of the computed tensor.
    ///
    /// # Safety
    ///
    /// The arguments are those of the call, checked. The kept memory holds the copy of the
    /// filter, if there is one. The positions exist, and no other thread uses these channels of
    /// them.
    unsafe fn tile<T: Element>(
        &self,
        workspace: &Workspace,
        thread: usize,
        arguments: &Arguments<'_>,
        kept: &Kept,
        group: usize,
        tile: Range<usize>,
    ) {
        let (simd, columns, channels) = (workspace.simd(), self.columns(), self.patches.channels());
        let source = self.source::<T>(arguments);
        let filter = self.filter_view::<T>(arguments, kept, group);
        let row = self.call.groups * columns;
        let out = arguments.result::<T>().wrapping_add(tile.start * row + group * columns);
        let mut scratch = workspace.scratch(thread);
        let mut free = &mut scratch[..];
        let plain = if T::HALF { None } else { self.patches.plain(source, group) };
        let patches =
            take::<T::Wide>(&mut free, self.division.rows * self.division.taps * channels);
        let (sums, sums_row) = if T::HALF {
            (take::<T::Wide>(&mut free, tile.len() * columns).as_mut_ptr(), columns)
        } else {
            (out.cast::<T::Wide>(), row)
        };
        let mut start = 0;
        // Runs once even without taps, to write zeros.
        loop {
            let taps = start..self.patches.taps().min(start + self.division.taps);
            let depth = taps.len() * channels;
            // SAFETY: the patches fit into the memory taken for them; the filter has rows for all
            // taps and channels. The sums belong to this task, in out or in scratch memory.
            unsafe {
                let lhs = match plain {
                    Some(view) => view.from(tile.start, 0).plain(),
                    None => {
                        let (rows, taps) = (tile.clone(), taps.clone());
                        self.patches.fill(simd, source, group, rows, taps, patches.as_mut_ptr())
                    }
                };
                let rhs = filter.from(start * channels, 0);
                let size = [tile.len(), columns, depth];
                let order = Order::Chain;
                let product = Product {
                    size,
                    order,
                    lhs,
                    rhs,
                    out: sums,
                    row: sums_row,
                    add: start > 0,
                    addends: Addends::NONE,
                };
                multiply(simd, free, &product, |_| ());
            }
            start = taps.end;
            if start >= self.patches.taps() {
                break;
            }
        }
        if T::HALF {
            // SAFETY: the sums are computed, and this part of out belongs to this task.
            unsafe { self.round(simd, [tile.len(), columns], sums, sums_row, out, row) };
        }
    }
}
