//! Convolutions on the CPU: products of [patches] with the filter, or with the result's cotangent.
//!
//! - The result and the input's cotangent are computed by [tiles of rows](forward). The input's
//!   cotangent needs a filter with exchanged channels, and halves need a widened one. That copy is
//!   made once per run, in memory that the call keeps.
//! - The filter's cotangent is a [sum over all positions](weight_gradient). It is divided by taps.
//!   If there are too few taps for several threads, it is also divided into a fixed number of
//!   ranges of positions, whose partial sums are added in order.
//!
//! The matrix of patches is either implicit ([direct]) or copied, one part that fits into the
//! cache at a time ([patches]). It is copied if the source is dilated (zeros between its
//! positions), if images are tiny or have three axes, if vectors of channels would not be whole,
//! or if the filter is so large that its panels must be packed. Every element of the result is
//! the same chain of additions either way.

mod direct;
mod forward;
mod patches;
mod weight_gradient;

use super::element::{Element, with_element};
use super::finish::{Places, finish};
use super::panel::{self, View, widen};
use super::{Arguments, Compile, Kernels, array, product};
use crate::memory::Workspace;
use crate::pool::TaskPanicked;
use crate::simd::Simd;
use direct::Direct;
use patches::Patches;
use std::ops::Deref;
use wengert_core::call::{Convolution, Direction};
use wengert_core::{DType, Diagnostic};

/// A convolution, ready to run.
#[derive(Debug)]
struct CompiledConvolution {
    call: Convolution,
    patches: Patches,
    /// Products that read the source in place, if that is faster.
    direct: Option<Direct>,
    division: Division,
    /// Bytes of a number in the dtype of the arithmetic.
    size: usize,
}

/// The division of the work.
#[derive(Clone, Copy, Debug)]
struct Division {
    /// Taps of the patches that are copied at a time.
    taps: usize,
    /// Positions (rows of patches) of a tile, or of a part of a sum.
    rows: usize,
    /// Ranges of positions with partial sums of their own (filter's cotangent).
    ranges: usize,
}

/// Most columns of patches that are copied at a time, unless a single tap has more.
const COLUMNS: usize = 1024;
/// Most elements of patches that are copied at a time: half of L2.
const PATCHES: usize = 128 << 10;
/// Most positions of a tile.
const ROWS: usize = 4096;
/// Fewest multiplications and additions that are worth a task.
const TASK: usize = 2 << 20;
/// Most elements of all partial sums together, if there are several.
const PARTIAL: usize = 2 << 20;

impl Compile for Convolution {
    fn compile(&self) -> Result<Box<dyn Kernels>, Diagnostic> {
        let patches = match self.direction {
            Direction::InputGradient => Patches::of_result(self),
            Direction::Forward | Direction::FilterGradient => Patches::of_input(self),
        };
        let size = if self.dtype.is_half() { size_of::<f32>() } else { self.dtype.size() };
        let sums = self.direction == Direction::FilterGradient;
        let direct = if self.dtype.is_float() {
            Direct::new(&patches, columns_of(self), size, sums)
        } else {
            None
        };
        Ok(Box::new(CompiledConvolution {
            call: self.clone(),
            division: divide(self, &patches),
            direct,
            size,
            patches,
        }))
    }
}

impl CompiledConvolution {
    /// Elements of the filter.
    fn filter(&self) -> usize {
        self.patches.taps()
            * self.call.input_channels
            * self.call.groups
            * self.call.output_channels
    }

    /// Columns of the products: channels of the computed tensor, or, for the filter's cotangent,
    /// of the result.
    fn columns(&self) -> usize {
        columns_of(&self.call)
    }

    /// Whether the products' filter, or its cotangent, is in the shared memory.
    fn filter_apart(&self) -> bool {
        match self.call.direction {
            Direction::Forward => self.call.dtype.is_half(),
            Direction::InputGradient => true,
            Direction::FilterGradient => self.call.dtype.is_half() || self.division.ranges > 1,
        }
    }
}

impl Kernels for CompiledConvolution {
    fn scratch(&self) -> usize {
        let Division { taps, rows, .. } = self.division;
        let half = self.call.dtype.is_half();
        if let Some(direct) = &self.direct {
            // The block; for halves, its positions' sums or cotangents as well.
            let wide =
                if half { array(&[direct.positions(), self.columns(), self.size]) } else { 0 };
            return array(&[direct.elements(), self.size]).saturating_add(wide);
        }
        let patches = array(&[rows, taps, self.patches.channels(), self.size]);
        // For halves, the sums of a tile, or the cotangent that its patches are multiplied with.
        let wide = if half { array(&[rows, self.columns(), self.size]) } else { 0 };
        let width = taps.saturating_mul(self.patches.channels());
        let size = match self.call.direction {
            Direction::FilterGradient => [width, self.columns(), rows],
            Direction::Forward | Direction::InputGradient => [rows, self.columns(), width],
        };
        let dtype = if half { DType::F32 } else { self.call.dtype };
        [patches, wide, product::scratch(dtype, size)].into_iter().fold(0, usize::saturating_add)
    }

    /// The copy of the filter, or partial sums of its cotangent.
    fn shared(&self, _: usize) -> usize {
        if self.filter_apart() {
            array(&[self.filter(), self.division.ranges, self.size])
        } else {
            0
        }
    }

    fn run(&self, workspace: &Workspace, arguments: &Arguments<'_>) -> Result<(), Diagnostic> {
        let mut shared = workspace.shared();
        let run = Run { convolution: self, workspace, arguments, memory: shared.as_mut_ptr() };
        with_element!(self.call.dtype, T => match self.call.direction {
            Direction::FilterGradient => run.weight_gradient::<T>()?,
            Direction::Forward | Direction::InputGradient => run.forward::<T>()?,
        });
        Ok(())
    }
}

/// One run: what all of its tasks use.
struct Run<'a> {
    convolution: &'a CompiledConvolution,
    workspace: &'a Workspace,
    arguments: &'a Arguments<'a>,
    /// The shared memory.
    memory: *mut u8,
}

// SAFETY: tasks write disjoint parts of the shared memory, and read what an earlier job wrote; each
// unsafe block that does so argues it.
unsafe impl Sync for Run<'_> {}

impl Deref for Run<'_> {
    type Target = CompiledConvolution;
    fn deref(&self) -> &CompiledConvolution {
        self.convolution
    }
}

impl Run<'_> {
    /// The shared memory, as numbers of the arithmetic.
    fn shared_numbers<T: Element>(&self) -> *mut T::Wide {
        self.memory.cast()
    }

    /// The filter of a group as the right operand of products: a row for each tap and channel of
    /// the patches.
    fn filter_view<T: Element>(&self, group: usize) -> View<T::Wide> {
        let Convolution { groups, input_channels, output_channels, direction, .. } = self.call;
        let copy = self.shared_numbers::<T>().cast_const();
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
            View { at: self.arguments.operand::<T>(1).wrapping_add(first), row, column: 1 }.plain()
        }
    }

    /// Copies the filter: widened only, or, for the input's cotangent, with a row for each group,
    /// tap and channel of the result, and contiguous channels of the input.
    fn copy_filter<T: Element>(&self) -> Result<(), TaskPanicked> {
        let Convolution { groups, input_channels, output_channels, direction, .. } = self.call;
        let (simd, pool) = (self.workspace.simd(), self.workspace.pool());
        if direction == Direction::Forward {
            let elements = self.filter();
            return pool.parallel_for(elements.div_ceil(PATCHES), |_, task| {
                let start = task * PATCHES;
                let from = self.arguments.operand::<T>(1).wrapping_add(start);
                let to = self.shared_numbers::<T>().wrapping_add(start);
                // SAFETY: the elements exist, and the copy has room for all; no other task writes
                // these.
                unsafe { widen(simd, from, to, PATCHES.min(elements - start)) };
            });
        }
        let taps = self.patches.taps();
        pool.parallel_for(groups * taps, |_, task| {
            let (group, tap) = (task / taps, task % taps);
            let row = groups * output_channels;
            let at = tap * input_channels * row + group * output_channels;
            let at = self.arguments.operand::<T>(0).wrapping_add(at);
            let view = View { at, row: 1, column: row };
            let to =
                self.shared_numbers::<T>().wrapping_add(task * output_channels * input_channels);
            // SAFETY: the channels of the tap exist, and the copy has room for those of all taps;
            // no other task writes these.
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
}

/// Rounds sums to out.
///
/// # Safety
///
/// The sums are computed. Out's rows are valid to write and no other code uses them. The machine
/// has the vector instructions.
unsafe fn round<T: Element>(
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

/// Columns of the products of a call.
fn columns_of(call: &Convolution) -> usize {
    match call.direction {
        Direction::InputGradient => call.input_channels,
        Direction::Forward | Direction::FilterGradient => call.output_channels,
    }
}

/// Divides the work of a convolution by its extents alone.
fn divide(call: &Convolution, patches: &Patches) -> Division {
    let (positions, all, channels) = (patches.rows(), patches.taps(), patches.channels());
    let sums = call.direction == Direction::FilterGradient;
    let columns = columns_of(call);
    let most = if sums { COLUMNS / 4 } else { COLUMNS };
    let taps = (most / channels.max(1)).clamp(1, all.max(1));
    let width = (taps * channels).max(1);
    // Multiplications and additions of a position in a group; copying a patch takes as long as
    // some of them.
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
    // At least sixteen tasks, if each has enough work.
    let even = positions.div_ceil(16usize.div_ceil(call.groups));
    Division { taps, rows: rows.min(even.max(TASK / work)).max(1), ranges: 1 }
}
