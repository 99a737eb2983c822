//! Depthwise convolutions: each channel has a filter of its own.
//!
//! As a product, a group of one channel would have one column. So all channels of a position are
//! computed together, by [kernels](super::taps) with vectors along channels, and the source is
//! read in place. The order of terms is that of other convolutions, so the bits are the same.
//!
//! The result and the input's cotangent are divided by positions. The filter's cotangent is
//! divided by channels, and by the [ranges](super::Division) of positions that other convolutions
//! have.

use super::patches::{Axis, Patches};
use super::taps::{Gradients, Kernels, OUTSIDE, Sums};
use super::{CompiledConvolution, Run};
use crate::call::element::{Element, Number};
use crate::call::take;
use crate::nest::Part;
use crate::pool::TaskPanicked;
use std::ops::Range;
use wengert_core::DType;
use wengert_core::call::{Convolution, Direction};

/// Fewest channels whose vectors pay.
const FEWEST: usize = 4;
/// Fewest multiplications and additions of a task.
const TASK: usize = 1 << 17;
/// Channels of a task of the filter's cotangent.
const CHANNELS: usize = 32;
/// Positions whose offsets are computed at a time, for the filter's cotangent.
const POSITIONS: usize = 128;

/// Whether a convolution is computed here.
pub(super) fn is_depthwise(call: &Convolution) -> bool {
    matches!(call.dtype, DType::F32 | DType::F64)
        && call.input_channels == 1
        && call.output_channels == 1
        && call.groups >= FEWEST
}

/// Numbers of scratch memory, each a `usize`.
pub(super) fn offsets(of: &CompiledConvolution) -> [usize; 2] {
    let gradient = of.call.direction == Direction::FilterGradient;
    [of.patches.taps(), if gradient { POSITIONS } else { 1 }]
}

impl Run<'_> {
    fn kernels<T: Element>(&self) -> &'static Kernels<T::Wide> {
        T::Wide::taps(self.workspace.simd()).expect("a depthwise convolution is of f32 or f64")
    }

    /// Computes the result, or the cotangent of the input.
    pub(super) fn depthwise<T: Element>(&self) -> Result<(), TaskPanicked> {
        let (positions, taps) = (self.patches.rows(), self.patches.taps());
        let work = taps.saturating_mul(self.call.groups).saturating_mul(2).max(1);
        let each = TASK.div_ceil(work).clamp(1, positions.max(1));
        self.workspace.pool().parallel_for(positions.div_ceil(each), |thread, task| {
            let part = task * each..positions.min((task + 1) * each);
            // SAFETY: the positions exist, and no other task computes them.
            unsafe { self.positions::<T>(thread, part) };
        })
    }

    /// Computes all channels of some positions.
    ///
    /// # Safety
    ///
    /// The arguments are those of the call, checked. The positions exist, and no other thread uses
    /// them.
    unsafe fn positions<T: Element>(&self, thread: usize, positions: Range<usize>) {
        let channels = self.call.groups;
        let mut scratch = self.workspace.scratch(thread);
        let (mut free, behind) = self.split(&mut scratch);
        let offsets = take::<usize>(&mut free, self.patches.taps());
        let forward = self.call.direction == Direction::Forward;
        let (source, filter) = if forward { (0, 1) } else { (1, 0) };
        let filter = self.arguments.operand::<T>(filter).cast::<T::Wide>();
        let mut next = positions.start;
        while next < positions.end {
            let place = self.patches.place(next);
            let (count, step) = place.alike(&self.patches, positions.end - next);
            place.offsets(&self.patches, channels, offsets.iter_mut());
            let sums = Sums {
                offsets,
                source: self.arguments.operand::<T>(source).cast(),
                step: step * channels,
                positions: count,
                filter,
                channels,
                out: self.arguments.result::<T::Wide>().wrapping_add(next * channels),
            };
            // SAFETY: the offsets are within the source at all of these positions; the filter has
            // a number for each tap and channel, and the result has the positions.
            unsafe { (self.kernels::<T>().sums)(&sums) };
            next += count;
        }
        if let Some(follower) = self.arguments.follower {
            let (first, lines) = (positions.start * channels, positions.len());
            let part = Part { first, lines, distance: channels, rows: channels };
            // SAFETY: these results are final, and only this task uses them. As for
            // [`run_on`](crate::call::CompiledCall::run_on), the follower writes nothing that the
            // call reads.
            unsafe { follower.run(behind, part) };
        }
    }

    /// Computes the filter's cotangent, or its sums over each of the ranges.
    pub(super) fn depthwise_gradient<T: Element>(&self) -> Result<(), TaskPanicked> {
        let (positions, ranges) = (self.patches.rows(), self.division.ranges);
        let (channels, taps) = (self.call.groups, self.patches.taps());
        let length = positions.div_ceil(ranges);
        let parts = channels.div_ceil(CHANNELS);
        self.workspace.pool().parallel_for(parts * ranges, |thread, task| {
            let (part, range) = (task % parts, task / parts);
            let positions = positions.min(range * length)..positions.min((range + 1) * length);
            let channels = part * CHANNELS..channels.min((part + 1) * CHANNELS);
            let out = match self.filter_apart() {
                true => self.shared_numbers::<T>().wrapping_add(range * self.filter()),
                false => self.arguments.result::<T::Wide>(),
            };
            for tap in 0..taps {
                let row = out.wrapping_add(tap * self.call.groups);
                // SAFETY: only this task uses these channels of the range.
                channels.clone().for_each(|c| unsafe { row.add(c).write(T::Wide::ZERO) });
            }
            // SAFETY: as above; the positions exist.
            unsafe { self.gradients::<T>(thread, positions, channels, out) };
        })?;
        self.add_ranges::<T>()
    }

    /// Adds the terms of some positions to the sums of some channels.
    ///
    /// # Safety
    ///
    /// The arguments are those of the call, checked. Positions and channels exist, out has all
    /// taps and channels, and no other thread uses these channels of it.
    unsafe fn gradients<T: Element>(
        &self,
        thread: usize,
        positions: Range<usize>,
        channels: Range<usize>,
        out: *mut T::Wide,
    ) {
        let (all, taps) = (self.call.groups, self.patches.taps());
        let mut scratch = self.workspace.scratch(thread);
        let offsets = take::<usize>(&mut &mut scratch[..], POSITIONS * taps);
        let from = |operand: usize, first: usize| {
            self.arguments.operand::<T>(operand).cast::<T::Wide>().wrapping_add(first)
        };
        for first in positions.clone().step_by(POSITIONS) {
            let count = POSITIONS.min(positions.end - first);
            for position in 0..count {
                let to = offsets[position..].iter_mut().step_by(count);
                self.patches.place(first + position).offsets(&self.patches, all, to);
            }
            let gradients = Gradients {
                offsets: &offsets[..count * taps],
                positions: count,
                source: from(0, channels.start),
                cotangent: from(1, first * all + channels.start),
                all,
                channels: channels.len(),
                out: out.wrapping_add(channels.start),
            };
            // SAFETY: the offsets are within the source, and the caller guarantees the rest.
            unsafe { (self.kernels::<T>().gradients)(&gradients) };
        }
    }
}

/// A position of the computed tensor.
struct Place {
    image: usize,
    /// Its coordinates.
    at: [usize; 3],
}

impl Patches {
    fn place(&self, position: usize) -> Place {
        let [first, second, last] = self.axes();
        let (rest, x) = (position / last.rows, position % last.rows);
        let (rest, y) = (rest / second.rows, rest % second.rows);
        Place { image: rest / first.rows, at: [rest % first.rows, y, x] }
    }
}

impl Place {
    /// How many positions of the line from this one on, and at most `most`, have the same taps
    /// inside; and the distance between their sources.
    fn alike(&self, patches: &Patches, most: usize) -> (usize, usize) {
        let [_, _, axis] = patches.axes();
        let x = self.at[2];
        let inside = |x: usize| (0..axis.taps).all(|tap| axis.meets(x, tap).is_some());
        match usize::try_from(axis.step) {
            Ok(step) if axis.divisor == 1 && inside(x) => {
                // The taps that are inside at both ends of a run are inside between them.
                let end = |last: usize| last < axis.rows && inside(last);
                let mut count = most.min(axis.rows - x);
                while !end(x + count - 1) {
                    count -= 1;
                }
                (count, step)
            }
            _ => (1, 0),
        }
    }

    /// Where the taps are in a source of so many channels.
    fn offsets<'a>(
        &self,
        patches: &Patches,
        channels: usize,
        mut to: impl Iterator<Item = &'a mut usize>,
    ) {
        let [first, second, last] = patches.axes();
        let along = |axis: &Axis, from: Option<usize>, at: usize, tap: usize| {
            from.zip(axis.meets(at, tap)).map(|(from, at)| from * axis.source + at)
        };
        for k in 0..first.taps {
            let plane = along(first, Some(self.image), self.at[0], k);
            for l in 0..second.taps {
                let line = along(second, plane, self.at[1], l);
                for m in 0..last.taps {
                    let place = along(last, line, self.at[2], m);
                    let to = to.next().expect("there is one for each tap");
                    *to = place.map_or(OUTSIDE, |place| place * channels);
                }
            }
        }
    }
}
