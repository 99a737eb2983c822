//! The filter's cotangent: for each tap and channel, a row of the product of the transposed
//! patches with the result's cotangent.

use super::direct::{Block, Direct, Out};
use super::{CompiledConvolution, Division, Kept, PATCHES};
use crate::call::element::{Element, Number};
use crate::call::finish::{Places, finish};
use crate::call::panel::{self, View};
use crate::call::product::addends::Addends;
use crate::call::product::strip::Kernels;
use crate::call::product::{Order, Product, multiply};
use crate::call::{Arguments, take};
use crate::memory::Workspace;
use crate::pool::TaskPanicked;
use std::ops::Range;

impl CompiledConvolution {
    /// Computes the cotangent of the filter.
    pub(super) fn run_weight_gradient<T: Element>(
        &self,
        workspace: &Workspace,
        arguments: &Arguments<'_>,
        kept: &Kept,
    ) -> Result<(), TaskPanicked> {
        let Division { taps, ranges, .. } = self.division;
        let (groups, positions, all) = (self.call.groups, self.patches.rows(), self.patches.taps());
        let unit = self.direct.as_ref().map_or(1, Direct::positions_of_line);
        let length = positions.div_ceil(ranges).next_multiple_of(unit.max(1));
        let blocks = all.div_ceil(taps);
        workspace.pool().parallel_for(groups * blocks * ranges, |thread, task| {
            let (group, rest) = (task % groups, task / groups);
            let (block, range) = (rest % blocks, rest / blocks);
            let taps = block * taps..all.min((block + 1) * taps);
            let range_positions =
                positions.min(range * length)..positions.min((range + 1) * length);
            // SAFETY: the taps and positions exist, and no other task has them for this group.
            unsafe {
                if let (Some(direct), Some(kernels)) =
                    (&self.direct, T::Wide::kernels(workspace.simd()))
                {
                    let part = Part { group, taps, range, positions: range_positions };
                    self.sum_of_blocks::<T>(
                        workspace, thread, arguments, kept, direct, kernels, part,
                    );
                } else {
                    self.sum::<T>(
                        workspace,
                        thread,
                        arguments,
                        kept,
                        group,
                        taps,
                        range,
                        range_positions,
                    );
                }
            };
        })?;
        if !self.filter_apart() {
            return Ok(());
        }
        let elements = self.filter();
        workspace.pool().parallel_for(elements.div_ceil(PATCHES), |_, task| {
            let start = task * PATCHES;
            let count = PATCHES.min(elements - start);
            let partial =
                |range: usize| kept.at::<T::Wide>().wrapping_add(range * elements + start);
            // SAFETY: the partial sums of every range and element are complete; those from
            // `start` belong to this task, and so does that part of out.
            unsafe {
                let sums = std::slice::from_raw_parts_mut(partial(0), count);
                for range in 1..ranges {
                    let more = std::slice::from_raw_parts(partial(range), count);
                    sums.iter_mut().zip(more).for_each(|(sum, x)| *sum = sum.add(*x));
                }
                let (nothing, out) =
                    (std::ptr::null(), arguments.result::<T>().wrapping_add(start));
                let sums = sums.as_ptr();
                let places = Places {
                    sums,
                    sums_row: count,
                    out,
                    out_row: count,
                    bias: nothing,
                    residual: nothing,
                };
                finish(workspace.simd(), Default::default(), [1, count], &places);
            }
        })
    }

    /// Address of the sums of a part of the work.
    fn sums<T: Element>(
        &self,
        arguments: &Arguments<'_>,
        kept: &Kept,
        group: usize,
        tap: usize,
        range: usize,
    ) -> *mut T::Wide {
        let place = tap * self.patches.channels() * self.call.groups * self.columns()
            + group * self.columns();
        if self.filter_apart() {
            kept.at::<T::Wide>().wrapping_add(range * self.filter() + place)
        } else {
            arguments.result::<T>().wrapping_add(place).cast()
        }
    }

    /// [`sum`](Self::sum), block by block, with the source in place.
    ///
    /// # Safety
    ///
    /// As for [`sum`](Self::sum); the positions are whole lines.
    #[allow(clippy::too_many_arguments, reason = "the coordinates of a part of the work")]
    unsafe fn sum_of_blocks<T: Element>(
        &self,
        workspace: &Workspace,
        thread: usize,
        arguments: &Arguments<'_>,
        kept: &Kept,
        direct: &Direct,
        kernels: &Kernels<T::Wide>,
        part: Part,
    ) {
        let Part { group, taps, range, positions } = part;
        let (simd, channels, columns) = (workspace.simd(), self.patches.channels(), self.columns());
        let row = self.call.groups * columns;
        let entries = taps.start * channels..taps.end * channels;
        let sums = self.sums::<T>(arguments, kept, group, taps.start, range);
        let cotangent =
            View { at: arguments.operand::<T>(1).wrapping_add(group * columns), row, column: 1 };
        let source = arguments.operand::<T>(0).wrapping_add(group * channels);
        let mut scratch = workspace.scratch(thread);
        let mut free = &mut scratch[..];
        let block = take::<T::Wide>(&mut free, direct.elements()).as_mut_ptr();
        let wide = if T::HALF { direct.positions() * columns } else { 0 };
        let wide = take::<T::Wide>(&mut free, wide).as_mut_ptr();
        let mut at = positions.start;
        while at < positions.end {
            let (image, lines) = direct.beginning(&(at..positions.end));
            let count = lines.len() * direct.positions_of_line();
            let add = at > positions.start;
            // SAFETY: the block, and the cotangent of halves, fit into the memory taken for them;
            // the sums belong to this task.
            unsafe {
                direct.copy(simd, source, image, &lines, block);
                let rhs = cotangent.from(at, 0);
                let rhs = match T::HALF {
                    true => panel::widened(simd, rhs, [count, columns], wide),
                    false => rhs.plain(),
                };
                let block = Block { kernels, at: block, lines: lines.len() };
                direct.sums(&block, entries.clone(), rhs, Out { at: sums, columns, row }, add);
            }
            at += count;
        }
        if positions.is_empty() {
            for entry in 0..entries.len() {
                // SAFETY: as above.
                (0..columns)
                    .for_each(|j| unsafe { sums.add(entry * row + j).write(T::Wide::ZERO) });
            }
        }
    }

    /// Computes the sum over a range of positions for some taps of one group.
    ///
    /// # Safety
    ///
    /// The arguments are those of the call, checked. Taps and positions exist, and no other
    /// thread uses the sums of these taps in this range.
    #[allow(clippy::too_many_arguments, reason = "the coordinates of a part of the work")]
    unsafe fn sum<T: Element>(
        &self,
        workspace: &Workspace,
        thread: usize,
        arguments: &Arguments<'_>,
        kept: &Kept,
        group: usize,
        taps: Range<usize>,
        range: usize,
        positions: Range<usize>,
    ) {
        let (simd, channels, columns) = (workspace.simd(), self.patches.channels(), self.columns());
        let row = self.call.groups * columns;
        let width = taps.len() * channels;
        let sums = self.sums::<T>(arguments, kept, group, taps.start, range);
        let cotangent =
            View { at: arguments.operand::<T>(1).wrapping_add(group * columns), row, column: 1 };
        let source = arguments.operand::<T>(0);
        let most = self.division.rows;
        let mut scratch = workspace.scratch(thread);
        let mut free = &mut scratch[..];
        let patches = take::<T::Wide>(&mut free, most * self.division.taps * channels).as_mut_ptr();
        let wide =
            take::<T::Wide>(&mut free, if T::HALF { most * columns } else { 0 }).as_mut_ptr();
        let mut start = positions.start;
        // Runs once even without positions, to write zeros.
        loop {
            let part = start..positions.end.min(start + most);
            // SAFETY: the patches, and the cotangent of halves, fit into the memory taken for
            // them; the sums belong to this task.
            unsafe {
                let plain = if T::HALF { None } else { self.patches.plain(source, group) };
                let matrix = match plain {
                    Some(view) => view.from(part.start, 0).plain(),
                    None => {
                        self.patches.fill(simd, source, group, part.clone(), taps.clone(), patches)
                    }
                };
                let lhs = View { row: matrix.column, column: matrix.row, ..matrix };
                let rhs = cotangent.from(part.start, 0);
                let rhs = if T::HALF {
                    panel::widened(simd, rhs, [part.len(), columns], wide)
                } else {
                    rhs.plain()
                };
                let add = start > positions.start;
                let size = [width, columns, part.len()];
                let product = Product {
                    size,
                    order: Order::Chain,
                    lhs,
                    rhs,
                    out: sums,
                    row,
                    add,
                    addends: Addends::NONE,
                };
                multiply(simd, free, &product, |_| ());
            }
            start = part.end;
            if start >= positions.end {
                return;
            }
        }
    }
}

/// A part of the work: some taps of a group, and a range of positions.
struct Part {
    group: usize,
    taps: Range<usize>,
    range: usize,
    positions: Range<usize>,
}
