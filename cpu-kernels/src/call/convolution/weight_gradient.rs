//! The filter's cotangent: for each tap and channel, a row of the product of the transposed
//! patches with the result's cotangent.

use super::direct::{Direct, Out};
use super::operands::Form;
use super::{Division, PATCHES, Run, round};
use crate::call::chained::{Products, Rows};
use crate::call::element::{Element, Number};
use crate::call::panel::View;
use crate::call::take;
use crate::pool::TaskPanicked;
use std::ops::Range;

impl Run<'_> {
    /// Computes the cotangent of the filter.
    pub(super) fn weight_gradient<T: Element>(&self) -> Result<(), TaskPanicked> {
        let (simd, pool) = (self.workspace.simd(), self.workspace.pool());
        let Division { taps, ranges, .. } = self.division;
        let (groups, positions, all) = (self.call.groups, self.patches.rows(), self.patches.taps());
        let unit = self.direct.as_ref().map_or(1, Direct::positions_of_line);
        let length = positions.div_ceil(ranges).next_multiple_of(unit.max(1));
        let blocks = all.div_ceil(taps);
        let form = self.direct.as_ref().and_then(|_| Form::of::<T>(simd));
        pool.parallel_for(groups * blocks * ranges, |thread, task| {
            let (group, rest) = (task % groups, task / groups);
            let (block, range) = (rest % blocks, rest / blocks);
            let taps = block * taps..all.min((block + 1) * taps);
            let positions = positions.min(range * length)..positions.min((range + 1) * length);
            let part = Part { group, taps, range, positions };
            // SAFETY: the taps and positions exist, and no other task has them for this group.
            unsafe {
                match (&self.direct, &form) {
                    (Some(direct), Some(form)) => {
                        self.sum_of_blocks::<T>(thread, direct, form, part);
                    }
                    _ => self.sum::<T>(thread, part),
                }
            };
        })?;
        self.add_ranges::<T>()
    }

    /// Adds up the sums over ranges, and writes or rounds them to the result.
    pub(super) fn add_ranges<T: Element>(&self) -> Result<(), TaskPanicked> {
        let Division { ranges, .. } = self.division;
        if !self.filter_apart() {
            return Ok(());
        }
        let (simd, pool) = (self.workspace.simd(), self.workspace.pool());
        let elements = self.filter();
        pool.parallel_for(elements.div_ceil(PATCHES), |_, task| {
            let start = task * PATCHES;
            let count = PATCHES.min(elements - start);
            let partial =
                |range: usize| self.shared_numbers::<T>().wrapping_add(range * elements + start);
            // SAFETY: the partial sums of every range and element are complete; those from
            // `start` belong to this task, and so does that part of out.
            unsafe {
                let sums = std::slice::from_raw_parts_mut(partial(0), count);
                for range in 1..ranges {
                    let more = std::slice::from_raw_parts(partial(range), count);
                    sums.iter_mut().zip(more).for_each(|(sum, x)| *sum = sum.add(*x));
                }
                let (size, sums) = ([1, count], sums.as_mut_ptr());
                if self.rounds() {
                    let out = self.arguments.result::<T>().wrapping_add(start);
                    round(simd, size, sums, count, out, count);
                } else {
                    let out = self.arguments.result::<T::Wide>().wrapping_add(start);
                    round(simd, size, sums, count, out, count);
                }
            }
        })
    }

    /// Address of the sums of a part of the work.
    fn sums<T: Element>(&self, part: &Part) -> Rows<T::Wide> {
        let (columns, distance) = (self.columns(), self.call.groups * self.columns());
        let place = part.taps.start * self.patches.channels() * distance + part.group * columns;
        let at = if self.filter_apart() {
            self.shared_numbers::<T>().wrapping_add(part.range * self.filter() + place)
        } else {
            self.arguments.result::<T::Wide>().wrapping_add(place)
        };
        Rows { at, distance }
    }

    /// The result's cotangent, for one group.
    fn cotangent<T: Element>(&self, group: usize) -> View<T> {
        let at = self.arguments.operand::<T>(1).wrapping_add(group * self.columns());
        View { at, row: self.call.groups * self.columns(), column: 1 }
    }

    /// [`sum`](Self::sum), block by block, with the source in place.
    ///
    /// # Safety
    ///
    /// As for [`sum`](Self::sum); the positions are whole lines.
    unsafe fn sum_of_blocks<T: Element>(
        &self,
        thread: usize,
        direct: &Direct,
        form: &Form<T::Wide>,
        part: Part,
    ) {
        let Rows { at: sums, distance: row } = self.sums::<T>(&part);
        let Part { group, taps, positions, .. } = part;
        let (channels, columns) = (self.patches.channels(), self.columns());
        let entries = taps.start * channels..taps.end * channels;
        let cotangent = self.cotangent::<T>(group);
        let source = self.arguments.operand::<T>(0).wrapping_add(group * channels);
        let mut scratch = self.workspace.scratch(thread);
        let mut at = positions.start;
        while at < positions.end {
            let (image, lines) = direct.beginning(&(at..positions.end));
            let count = lines.len() * direct.positions_of_line();
            let add = at > positions.start;
            let mut free = &mut scratch[..];
            // SAFETY: the scratch memory has room for the operands; the positions exist, and the
            // sums belong to this task.
            unsafe {
                let block = form.block_of_sums(direct, source, image, &lines, &mut free);
                let rhs = cotangent.from(at, 0);
                let rhs = form.cotangent(direct, rhs, [lines.len(), columns], &mut free);
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
    unsafe fn sum<T: Element>(&self, thread: usize, part: Part) {
        let sums = self.sums::<T>(&part);
        let Part { group, taps, positions, .. } = part;
        let (simd, channels, columns) =
            (self.workspace.simd(), self.patches.channels(), self.columns());
        let width = taps.len() * channels;
        let cotangent = self.cotangent::<T>(group);
        let source = self.arguments.operand::<T>(0);
        let most = self.division.rows;
        let mut scratch = self.workspace.scratch(thread);
        let mut free = &mut scratch[..];
        let patches = take::<T>(&mut free, most * self.division.taps * channels).as_mut_ptr();
        let plain = self.patches.plain(source, group);
        let mut products = Products { simd, free };
        let mut start = positions.start;
        // Runs once even without positions, to write zeros.
        loop {
            let part = start..positions.end.min(start + most);
            // SAFETY: the patches fit into the memory taken for them; the sums belong to this task.
            unsafe {
                let matrix = match plain {
                    Some(view) => view.from(part.start, 0),
                    None => self.patches.fill(source, group, part.clone(), taps.clone(), patches),
                };
                let lhs = matrix.transposed();
                let rhs = cotangent.from(part.start, 0);
                let add = start > positions.start;
                let size = [width, columns, part.len()];
                products.multiply(size, sums, add, lhs, rhs);
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
