//! Convolutions on the CPU: products of [patches](super::patches) with the filter, or with the result's cotangent.
//!
//! - The result and the input's cotangent are tiles of rows: a tile makes its patches, a part of the taps at a time, and adds up their
//!   products with the filter. The input's cotangent needs the filter's channels exchanged, and halves need it wide: that copy is made once
//!   for a run, in memory that the call keeps.
//! - The filter's cotangent is a sum over all positions. It is divided by taps, and where those are too few for several threads, into
//!   a fixed number of ranges of positions as well, whose partial sums are added in order.

use super::element::{Element, Number, with_element};
use super::epilogue::{Places, finish};
use super::panel::{self, View, widen};
use super::patches::Patches;
use super::product::{self, Order, Product, multiply};
use super::{Arguments, room, take};
use crate::memory::{AlignedBytes, Workspace};
use crate::pool::TaskPanicked;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use wengert_core::call::{Convolution, Direction, Epilogue};
use wengert_core::{DType, Diagnostic};

/// A convolution, ready to run.
#[derive(Debug)]
pub(super) struct CompiledConvolution {
    call: Convolution,
    patches: Patches,
    division: Division,
    /// The copy of the filter, or partial sums of its cotangent; used by one run at a time.
    kept: Mutex<AlignedBytes>,
    /// Bytes of a number to compute with.
    size: usize,
}

/// How the work is divided.
#[derive(Clone, Copy, Debug)]
struct Division {
    /// Taps of the patches that are made at a time.
    taps: usize,
    /// Positions (rows of patches) of a tile, or of the part of a sum that is made at a time.
    rows: usize,
    /// Ranges of positions with partial sums of their own (filter's cotangent).
    ranges: usize,
}

/// Columns of patches that are made at a time, if one tap has not more.
const COLUMNS: usize = 1024;
/// Patches that are made at a time: half of a second cache.
const PATCHES: usize = 128 << 10;
/// Most positions of a tile.
const ROWS: usize = 4096;
/// Multiplications and additions below which a part is not worth a task of its own.
const TASK: usize = 2 << 20;
/// Elements that all partial sums may have together, if they are to be several.
const PARTIAL: usize = 2 << 20;

impl CompiledConvolution {
    pub fn new(call: &Convolution) -> Result<Self, Diagnostic> {
        let patches = match call.direction {
            Direction::InputGradient => Patches::of_result(call),
            Direction::Forward | Direction::FilterGradient => Patches::of_input(call),
        };
        let mut result = CompiledConvolution {
            call: call.clone(),
            division: divide(call, &patches),
            size: if call.dtype.is_half() { size_of::<f32>() } else { call.dtype.size() },
            kept: Mutex::new(AlignedBytes::new(0)?),
            patches,
        };
        result.kept = Mutex::new(AlignedBytes::new(result.kept())?);
        Ok(result)
    }

    /// Elements of the filter.
    fn filter(&self) -> usize {
        self.patches.taps() * self.call.input_channels * self.call.groups * self.call.output_channels
    }

    /// Columns of the products: channels of the computed tensor, or, for the filter's cotangent, of the result.
    fn columns(&self) -> usize {
        match self.call.direction {
            Direction::InputGradient => self.call.input_channels,
            Direction::Forward | Direction::FilterGradient => self.call.output_channels,
        }
    }

    /// Whether what the products read as the filter, or write as its cotangent, is in the kept memory.
    fn filter_apart(&self) -> bool {
        match self.call.direction {
            Direction::Forward => self.call.dtype.is_half(),
            Direction::InputGradient => true,
            Direction::FilterGradient => self.call.dtype.is_half() || self.division.ranges > 1,
        }
    }

    /// Bytes of memory kept from run to run.
    pub fn kept(&self) -> usize {
        if self.filter_apart() { room(self.filter() * self.division.ranges * self.size) } else { 0 }
    }

    /// Bytes of scratch memory of each thread.
    pub fn scratch(&self) -> usize {
        let Division { taps, rows, .. } = self.division;
        let patches = room(rows * taps * self.patches.channels() * self.size);
        // The sums of a tile, or the cotangent that its patches are multiplied with, of halves.
        let wide = if self.call.dtype.is_half() { room(rows * self.columns() * self.size) } else { 0 };
        let width = taps * self.patches.channels();
        let size = match self.call.direction {
            Direction::FilterGradient => [width, self.columns(), rows],
            Direction::Forward | Direction::InputGradient => [rows, self.columns(), width],
        };
        let dtype = if self.call.dtype.is_half() { DType::F32 } else { self.call.dtype };
        patches + wide + product::scratch(dtype, size)
    }

    pub fn run(&self, workspace: &Workspace, arguments: &Arguments<'_>) -> Result<(), Diagnostic> {
        // The kept memory is one run's at a time; a panic leaves nothing in it that anyone relies on.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = Kept(kept.as_mut_ptr());
        let outcome = with_element!(self.call.dtype, T => match self.call.direction {
            Direction::FilterGradient => self.run_sums::<T>(workspace, arguments, &kept),
            Direction::Forward | Direction::InputGradient => self.run_tiles::<T>(workspace, arguments, &kept),
        });
        outcome.map_err(|e| Diagnostic::new(e.to_string()))
    }

    /// Result, or cotangent of the input.
    fn run_tiles<T: Element>(
        &self,
        workspace: &Workspace,
        arguments: &Arguments<'_>,
        kept: &Kept,
    ) -> Result<(), TaskPanicked> {
        if self.filter_apart() {
            self.copy_filter::<T>(workspace, arguments, kept)?;
        }
        let (positions, rows, groups) = (self.patches.rows(), self.division.rows, self.call.groups);
        workspace.pool().parallel_for(positions.div_ceil(rows) * groups, |thread, task| {
            let (group, start) = (task % groups, task / groups * rows);
            let tile = start..positions.min(start + rows);
            // SAFETY: the positions exist, and no other task has them for this group; the copy of the filter is made.
            unsafe { self.tile::<T>(workspace, thread, arguments, kept, group, tile) };
        })
    }

    /// The positions `tile` of one group of the computed tensor.
    ///
    /// # Safety
    ///
    /// The arguments are those of the call, checked, and the kept memory holds the copy of the filter, if there is one. The positions
    /// exist, and no other thread uses these channels of them.
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
        let source = arguments.operand::<T>(if self.call.direction == Direction::Forward { 0 } else { 1 });
        let filter = self.filter_view::<T>(arguments, kept, group);
        let row = self.call.groups * columns;
        let out = arguments.result::<T>().wrapping_add(tile.start * row + group * columns);
        let mut scratch = workspace.scratch(thread);
        let mut free = &mut scratch[..];
        let plain = if T::HALF { None } else { self.patches.plain(source, group) };
        let patches = take::<T::Wide>(&mut free, self.division.rows * self.division.taps * channels);
        let (sums, sums_row) = if T::HALF {
            (take::<T::Wide>(&mut free, tile.len() * columns).as_mut_ptr(), columns)
        } else {
            (out.cast::<T::Wide>(), row)
        };
        let mut start = 0;
        // Once, even if there are no taps: zeros.
        loop {
            let taps = start..self.patches.taps().min(start + self.division.taps);
            let depth = taps.len() * channels;
            // SAFETY: the patches fit into the memory taken for them; the filter has rows for all taps and channels. The
            // sums are this task's own, in out or in scratch memory.
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
                let product = Product { size, order, lhs, rhs, out: sums, row: sums_row, add: start > 0 };
                multiply(simd, free, &product, |_, _| ());
            }
            start = taps.end;
            if start >= self.patches.taps() {
                break;
            }
        }
        if T::HALF {
            let nothing = std::ptr::null();
            let places = Places { sums, sums_row, out, out_row: row, bias: nothing, residual: nothing };
            // SAFETY: the sums are made, and this part of out is this task's own.
            unsafe { finish(simd, Epilogue::default(), [tile.len(), columns], &places) };
        }
    }

    /// The filter of a group as the right operand of products: a row for each tap and channel of the patches.
    fn filter_view<T: Element>(&self, arguments: &Arguments<'_>, kept: &Kept, group: usize) -> View<T::Wide> {
        let Convolution { groups, input_channels, output_channels, direction, .. } = self.call;
        let copy = kept.at::<T::Wide>().cast_const();
        if direction == Direction::InputGradient {
            let rows = self.patches.taps() * output_channels;
            let at = copy.wrapping_add(group * rows * input_channels);
            return View { at, row: input_channels, column: 1 };
        }
        let first = group * output_channels;
        let row = groups * output_channels;
        if self.filter_apart() {
            View { at: copy.wrapping_add(first), row, column: 1 }
        } else {
            View { at: arguments.operand::<T>(1).wrapping_add(first), row, column: 1 }.plain()
        }
    }

    /// Makes the copy of the filter: as it is but wide, or, for the input's cotangent, with a row for each group, tap and channel of
    /// the result, and the channels of the input side by side.
    fn copy_filter<T: Element>(
        &self,
        workspace: &Workspace,
        arguments: &Arguments<'_>,
        kept: &Kept,
    ) -> Result<(), TaskPanicked> {
        let Convolution { groups, input_channels, output_channels, direction, .. } = self.call;
        let simd = workspace.simd();
        if direction == Direction::Forward {
            let elements = self.filter();
            return workspace.pool().parallel_for(elements.div_ceil(PATCHES), |_, task| {
                let start = task * PATCHES;
                let from = arguments.operand::<T>(1).wrapping_add(start);
                let to = kept.at::<T::Wide>().wrapping_add(start);
                // SAFETY: the elements exist, and the copy has room for all; no other task has these.
                unsafe { widen(simd, from, to, PATCHES.min(elements - start)) };
            });
        }
        let taps = self.patches.taps();
        workspace.pool().parallel_for(groups * taps, |_, task| {
            let (group, tap) = (task / taps, task % taps);
            let row = groups * output_channels;
            let at = tap * input_channels * row + group * output_channels;
            let view = View { at: arguments.operand::<T>(0).wrapping_add(at), row: 1, column: row };
            let to = kept.at::<T::Wide>().wrapping_add(task * output_channels * input_channels);
            // SAFETY: the channels of the tap exist, and the copy has room for those of all; no other task has these.
            unsafe {
                if !T::HALF {
                    panel::transposed(simd, view.plain(), [output_channels, input_channels], to);
                } else {
                    for c in 0..output_channels {
                        let to = to.add(c * input_channels);
                        (0..input_channels).for_each(|i| to.add(i).write(view.get(c, i).wide()));
                    }
                }
            }
        })
    }

    /// Cotangent of the filter.
    fn run_sums<T: Element>(
        &self,
        workspace: &Workspace,
        arguments: &Arguments<'_>,
        kept: &Kept,
    ) -> Result<(), TaskPanicked> {
        let Division { taps, ranges, .. } = self.division;
        let (groups, positions, all) = (self.call.groups, self.patches.rows(), self.patches.taps());
        let length = positions.div_ceil(ranges);
        let blocks = all.div_ceil(taps);
        workspace.pool().parallel_for(groups * blocks * ranges, |thread, task| {
            let (group, rest) = (task % groups, task / groups);
            let (block, range) = (rest % blocks, rest / blocks);
            let taps = block * taps..all.min((block + 1) * taps);
            let range_positions = positions.min(range * length)..positions.min((range + 1) * length);
            // SAFETY: the taps and positions exist, and no other task has them for this group.
            unsafe { self.sum::<T>(workspace, thread, arguments, kept, group, taps, range, range_positions) };
        })?;
        if !self.filter_apart() {
            return Ok(());
        }
        let elements = self.filter();
        workspace.pool().parallel_for(elements.div_ceil(PATCHES), |_, task| {
            let start = task * PATCHES;
            let count = PATCHES.min(elements - start);
            let partial = |range: usize| kept.at::<T::Wide>().wrapping_add(range * elements + start);
            // SAFETY: partial sums are made for every range and element; those from `start` are this task's own, and so is that part of out.
            unsafe {
                let sums = std::slice::from_raw_parts_mut(partial(0), count);
                for range in 1..ranges {
                    let more = std::slice::from_raw_parts(partial(range), count);
                    sums.iter_mut().zip(more).for_each(|(sum, x)| *sum = sum.add(*x));
                }
                let (nothing, out) = (std::ptr::null(), arguments.result::<T>().wrapping_add(start));
                let sums = sums.as_ptr();
                let places =
                    Places { sums, sums_row: count, out, out_row: count, bias: nothing, residual: nothing };
                finish(workspace.simd(), Epilogue::default(), [1, count], &places);
            }
        })
    }

    /// The sum over a range of positions for some taps of one group.
    ///
    /// # Safety
    ///
    /// The arguments are those of the call, checked. Taps and positions exist, and no other thread uses what belongs to these taps
    /// in this range.
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
        let place = taps.start * channels * row + group * columns;
        let sums = if self.filter_apart() {
            kept.at::<T::Wide>().wrapping_add(range * self.filter() + place)
        } else {
            arguments.result::<T>().wrapping_add(place).cast()
        };
        let cotangent = View { at: arguments.operand::<T>(1).wrapping_add(group * columns), row, column: 1 };
        let source = arguments.operand::<T>(0);
        let most = self.division.rows;
        let mut scratch = workspace.scratch(thread);
        let mut free = &mut scratch[..];
        let patches = take::<T::Wide>(&mut free, most * self.division.taps * channels).as_mut_ptr();
        let wide = take::<T::Wide>(&mut free, if T::HALF { most * columns } else { 0 }).as_mut_ptr();
        let mut start = positions.start;
        // Once, even if there are no positions: zeros.
        loop {
            let part = start..positions.end.min(start + most);
            // SAFETY: the patches, and the cotangent of halves, fit into the memory taken for them; the sums are this task's own.
            unsafe {
                let plain = if T::HALF { None } else { self.patches.plain(source, group) };
                let matrix = match plain {
                    Some(view) => view.from(part.start, 0).plain(),
                    None => self.patches.fill(simd, source, group, part.clone(), taps.clone(), patches),
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
                let product = Product { size, order: Order::Chain, lhs, rhs, out: sums, row, add };
                multiply(simd, free, &product, |_, _| ());
            }
            start = part.end;
            if start >= positions.end {
                return;
            }
        }
    }
}

/// Memory kept from run to run, which several threads use at once.
struct Kept(*mut u8);

// SAFETY: tasks write parts of their own, and read what an earlier job wrote: each unsafe block that does argues so.
unsafe impl Sync for Kept {}

impl Kept {
    fn at<T>(&self) -> *mut T {
        self.0.cast()
    }
}

/// Divides the work of a convolution by its extents alone.
fn divide(call: &Convolution, patches: &Patches) -> Division {
    let (positions, all, channels) = (patches.rows(), patches.taps(), patches.channels());
    let sums = call.direction == Direction::FilterGradient;
    let columns =
        if call.direction == Direction::InputGradient { call.input_channels } else { call.output_channels };
    let most = if sums { COLUMNS / 4 } else { COLUMNS };
    let taps = (most / channels.max(1)).clamp(1, all.max(1));
    let width = (taps * channels).max(1);
    // Multiplications and additions of a position in a group; copying a patch takes as long as some of them.
    let work = (all * channels).saturating_mul(2 * columns + 16).max(1);
    let total = work.saturating_mul(positions).saturating_mul(call.groups);
    if sums {
        let tasks = all.div_ceil(taps) * call.groups;
        let filter = (all * channels * call.groups * columns).max(1);
        let ranges = if tasks >= 8 { 1 } else { 16usize.div_ceil(tasks.max(1)) };
        let ranges = ranges.min(total / TASK).min(PARTIAL / filter).min(positions / 64).max(1);
        return Division { taps, rows: (PATCHES / 2 / width).clamp(64, COLUMNS), ranges };
    }
    let mut rows = (PATCHES / width).clamp(32, ROWS);
    if call.dtype.is_half() {
        rows = rows.min((2 * PATCHES / columns.max(1)).max(16));
    }
    // At least sixteen tasks, if each has enough to do.
    let even = positions.div_ceil(16usize.div_ceil(call.groups));
    Division { taps, rows: rows.min(even.max(TASK / work)).max(1), ranges: 1 }
}
