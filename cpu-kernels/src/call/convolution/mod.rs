//! Convolutions on the CPU: products of [patches] with the filter, or with the result's cotangent.
//!
//! - The result and the input's cotangent are computed by [tiles of rows](forward), with a
//!   [filter] that may be copied.
//! - The filter's cotangent is a [sum over all positions](weight_gradient). It is divided by taps.
//!   If there are too few taps for several threads, it is also divided into a fixed number of
//!   ranges of positions, whose partial sums are added in order.
//! - With a filter of its own for each channel, the channels of a position are computed
//!   [together](depthwise), and nothing is copied.
//!
//! The matrix of patches is either implicit ([direct]) or copied, one part that fits into the
//! cache at a time ([patches]). It is copied if the source is dilated (zeros between its
//! positions), if images are tiny or have three axes, if vectors of channels would not be whole
//! (in halves, or in a sum over positions), or if the filter is so large that its panels must be
//! packed. This depends on the call only, and not on the batch.
//!
//! A task computes some positions for one group, or for all groups if each has few columns: the
//! nest that follows then sees whole positions.
//!
//! # Order
//!
//! Every element of the result is one chain of fused multiply-adds in the dtype of the arithmetic,
//! over taps and their channels, or over positions. Of bf16, neighbouring terms are
//! [pairs](super::product::pairs), of which the second comes first. A machine multiplies them at
//! once, or by conversion in the same order. The runs of terms that are divided into pairs are
//! those of [direct] products, or the parts of patches that are copied at a time.

mod depthwise;
mod direct;
mod filter;
mod forward;
mod operands;
mod patches;
pub(super) mod taps;
mod weight_gradient;

use super::element::{Element, with_element};
use super::finish::{Places, finish};
use super::{Arguments, Compile, Kernels, array, product};
use crate::memory::Workspace;
use crate::simd::Simd;
use depthwise::is_depthwise;
use direct::Direct;
use patches::Patches;
use std::ops::Deref;
use wengert_core::Diagnostic;
use wengert_core::call::{Convolution, Direction};

/// A convolution, ready to run.
#[derive(Debug)]
struct CompiledConvolution {
    call: Convolution,
    patches: Patches,
    /// Products that read the source in place, if that is faster.
    direct: Option<Direct>,
    /// Whether each channel has a filter of its own.
    depthwise: bool,
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
    /// Columns of a tile, or of a block.
    columns: usize,
    /// Groups that a task computes at its positions.
    groups: usize,
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
/// Fewest columns of a task: a panel of the filter.
const PANEL: usize = 64;
/// Fewest tasks of direct products, if each has as many multiplications and additions as
/// [`LARGE`].
const BLOCKS: usize = 8;
const LARGE: usize = 16 << 20;
/// A task computes all groups of its positions if there are at most so many, each of fewer columns
/// than this.
const GROUPS: usize = 16;
const COLUMNS_OF_GROUP: usize = 128;
/// Cost of one more part of the columns of a position, in elements of a filter that are read in the
/// same time.
const DIVIDED: usize = 64;
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
        let depthwise = is_depthwise(self);
        let direct = if self.dtype.is_float() && !depthwise {
            let whole = self.dtype.is_half();
            Direct::new(&patches, columns_of(self), size, sums, rounds(self), whole)
        } else {
            None
        };
        Ok(Box::new(CompiledConvolution {
            call: self.clone(),
            division: divide(self, &patches, direct.as_ref()),
            direct,
            depthwise,
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
            Direction::Forward => self.call.dtype.is_half() && self.direct.is_some(),
            Direction::InputGradient => !self.depthwise,
            Direction::FilterGradient => self.rounds() || self.division.ranges > 1,
        }
    }

    /// Whether the sums are rounded to the result.
    fn rounds(&self) -> bool {
        rounds(&self.call)
    }
}

impl Kernels for CompiledConvolution {
    fn scratch(&self) -> usize {
        if self.depthwise {
            let [taps, positions] = depthwise::offsets(self);
            return array(&[taps, positions, size_of::<usize>()]);
        }
        let Division { taps, rows, .. } = self.division;
        let sums = self.call.direction == Direction::FilterGradient;
        // The sums, before they are rounded.
        let wide = |rows: usize| match self.rounds() && !sums {
            true => array(&[rows, self.columns(), self.size]),
            false => 0,
        };
        if let Some(direct) = &self.direct {
            let operands = with_element!(self.call.dtype, T => {
                operands::scratch::<T>(direct, self.columns(), sums)
            });
            return operands.saturating_add(wide(direct.positions()));
        }
        let width = taps.saturating_mul(self.patches.channels());
        let patches = array(&[rows, width, self.call.dtype.size()]);
        let size = match sums {
            true => [width, self.columns(), rows],
            false => [rows, self.columns(), width],
        };
        let products = product::scratch(self.call.dtype, size);
        [patches, wide(rows), products].into_iter().fold(0, usize::saturating_add)
    }

    /// The copy of the filter, or partial sums of its cotangent.
    fn shared(&self, _: usize) -> usize {
        if !self.filter_apart() {
            return 0;
        }
        // Products of patches read a filter in its own dtype.
        let patches = self.direct.is_none() && self.call.direction == Direction::InputGradient;
        let size = if patches { self.call.dtype.size() } else { self.size };
        array(&[self.filter(), self.division.ranges, size])
    }

    fn run(&self, workspace: &Workspace, arguments: &Arguments<'_>) -> Result<(), Diagnostic> {
        let mut shared = workspace.shared();
        let run = Run { convolution: self, workspace, arguments, memory: shared.as_mut_ptr() };
        let sums = self.call.direction == Direction::FilterGradient;
        with_element!(self.call.dtype, T => match (self.depthwise, sums) {
            (true, true) => run.depthwise_gradient::<T>()?,
            (true, false) => run.depthwise::<T>()?,
            (false, true) => run.weight_gradient::<T>()?,
            (false, false) => run.forward::<T>()?,
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
    // Short rows are rounded in vectors only if they are contiguous.
    let [rows, columns] = size;
    let size = if [sums_row, out_row] == [columns; 2] { [1, rows * columns] } else { size };
    let places = Places { sums, sums_row, out, out_row, bias: nothing, residual: nothing };
    // SAFETY: the caller's promise is the same.
    unsafe { finish(simd, Default::default(), size, &places) };
}

/// Whether the sums of a call are rounded to its result.
fn rounds(call: &Convolution) -> bool {
    call.dtype.is_half() && !call.wide
}

/// Columns of the products of a call.
fn columns_of(call: &Convolution) -> usize {
    match call.direction {
        Direction::InputGradient => call.input_channels,
        Direction::Forward | Direction::FilterGradient => call.output_channels,
    }
}

/// Elements of each of `count` parts of equal size, at least one.
fn parts_of(extent: usize, count: usize) -> usize {
    extent.div_ceil(count.max(1)).max(1)
}

/// Divides the work of a convolution by its extents alone.
fn divide(call: &Convolution, patches: &Patches, direct: Option<&Direct>) -> Division {
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
        let rows = (PATCHES / 2 / width).clamp(64, COLUMNS);
        return Division { taps, rows, columns, groups: 1, ranges };
    }
    // A position reads the whole filter, which is a lot if there are few positions. So columns are
    // divided, too.
    let panels = columns.div_ceil(PANEL).max(1);
    if let Some(direct) = direct {
        let tasks = (call.batch * direct.blocks() * call.groups).max(1);
        let worth = total / tasks / LARGE;
        let parts = BLOCKS.div_ceil(tasks).next_multiple_of(2).min(worth).clamp(1, panels);
        let columns = if tasks >= BLOCKS { columns } else { panels.div_ceil(parts) * PANEL };
        return Division { taps, rows: 1, columns, groups: 1, ranges: 1 };
    }
    // Tiles of patches that are copied, or of a source that is read in place.
    let mut most = (PATCHES / width).clamp(32, ROWS);
    if rounds(call) {
        most = most.min((2 * PATCHES / columns.max(1)).max(16));
    }
    // The follower takes a position's columns together, and few columns take as long as many.
    let together = (2..=GROUPS).contains(&call.groups) && columns < COLUMNS_OF_GROUP;
    let groups = if together { call.groups } else { 1 };
    let (of_tasks, work) = (call.groups / groups, work.saturating_mul(groups));
    let task = if together { 2 * TASK } else { TASK };
    let copies = if patches.are_the_source() { 2 } else { 4 };
    let of_filter = (all * channels).saturating_mul(columns);
    let of_patches = (all * channels).saturating_mul(positions).saturating_mul(copies);
    let divided = |parts: usize| {
        // At least sixteen tasks, if each has enough work.
        let even = positions.div_ceil(16usize.div_ceil(of_tasks * parts));
        let rows = most.min(even.max(task / work.div_ceil(parts))).max(1);
        let of_tiles = positions.div_ceil(rows).saturating_mul(of_filter);
        let of_parts = parts.saturating_mul(of_patches.saturating_add(positions * DIVIDED));
        (of_tiles.saturating_add(of_parts), rows, parts)
    };
    let most_parts = if together { 1 } else { panels };
    let parts = [1, 2, 4, 8, 16].into_iter().filter(|parts| *parts <= most_parts);
    let (_, rows, parts) = parts.map(divided).min().expect("one part is a division");
    // Tiles of equal size, an even number of them.
    let rows = match together {
        true => parts_of(positions, positions.div_ceil(rows).next_multiple_of(2)),
        false => rows,
    };
    Division { taps, rows, columns: panels.div_ceil(parts) * PANEL, groups, ranges: 1 }
}
