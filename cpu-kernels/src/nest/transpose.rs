//! Nests that only exchange axes.
//!
//! With any choice of lanes, such a nest reads or writes with a large stride: each element of a
//! block is in its own cache line. If the stride is a power of two, the lines map to the same few
//! cache sets and are evicted before their next elements are used. So a copy whose source and
//! result have different last axes goes square by square instead: the lines of a square are read
//! and written completely.
//!
//! If the result's last axis is short, such as the channels of an image, its lines are written from
//! as many sources side by side.

use super::lower::{FlatNest, Op, Place};
use crate::kernels::squares::SIDE;
use crate::simd::Simd;
use std::ops::Range;
use wengert_core::nest::{AxisId, BufferId, BufferRole};

/// An axis of the copy: its extent, and its strides in source and result, in elements.
#[derive(Clone, Copy, Debug)]
struct Axis {
    extent: usize,
    from: usize,
    to: usize,
}

/// A copy that exchanges axes.
#[derive(Debug)]
pub(super) struct Transposition {
    /// Bytes of an element: 1, 2, 4 or 8.
    size: usize,
    /// Positions of source and result among the parameters.
    pub source: usize,
    pub result: usize,
    /// Offsets of the first elements.
    from: usize,
    to: usize,
    /// All axes but two.
    outer: Vec<Axis>,
    /// The last axis of the source.
    run: Axis,
    /// The last axis of the result.
    line: Axis,
    /// Whether squares of four-byte elements are transposed in registers.
    squares: bool,
}

/// Smallest extent of the source's last axis.
const LEAST: usize = 8;
/// Smallest extent of the result's last axis, and the largest of short lines.
const SHORTEST: usize = 2;
const SHORT: usize = 4;
/// Short lines of a part.
const LINES: usize = 256;

impl Transposition {
    /// The transposition of a nest, if the nest is one.
    pub fn of(nest: &FlatNest<'_>, simd: Simd) -> Option<Transposition> {
        let [phase] = nest.phases.as_slice() else { return None };
        let [
            Op::Load { result: value, place: from, fill: None },
            Op::Store { place: to, value: stored },
        ] = phase.body.as_slice()
        else {
            return None;
        };
        let plain = |place: &Place| place.guards.is_empty() && place.offset.terms.is_empty();
        let parameters: Vec<BufferId> = nest.nest.parameters().map(|(id, _)| id).collect();
        let position = |place: &Place| parameters.iter().position(|id| *id == place.buffer);
        let (source, result) = (&nest.nest.buffers[from.buffer], &nest.nest.buffers[to.buffer]);
        let roles = source.role == BufferRole::In && result.role == BufferRole::Out;
        let alone = phase.axes.is_empty() && phase.reductions.is_empty();
        if !(alone && roles && value == stored && plain(from) && plain(to)) {
            return None;
        }
        let distance =
            |place: &Place, axis: AxisId| usize::try_from(place.offset.coefficient(axis)).ok();
        let axis = |id: &AxisId| {
            let (from, to) = (distance(from, *id)?, distance(to, *id)?);
            Some(Axis { extent: nest.extent(*id), from, to })
        };
        let mut outer: Vec<Axis> = nest.parallel.iter().map(axis).collect::<Option<_>>()?;
        let mut take = |is: fn(&Axis) -> bool| {
            let at = outer.iter().position(is)?;
            Some(outer.remove(at))
        };
        let run = take(|axis| axis.from == 1 && axis.to > 1 && axis.extent >= LEAST)?;
        let line = take(|axis| axis.to == 1 && axis.from > 1 && axis.extent >= SHORTEST)?;
        if line.extent < LEAST && line.extent > SHORT {
            return None;
        }
        let first = |place: &Place| usize::try_from(place.offset.constant).ok();
        let size = source.dtype.size();
        Some(Transposition {
            size: [1, 2, 4, 8].contains(&size).then_some(size)?,
            source: position(from)?,
            result: position(to)?,
            from: first(from)?,
            to: first(to)?,
            outer,
            run,
            line,
            squares: cfg!(target_arch = "x86_64") && size == 4 && simd >= Simd::Avx2,
        })
    }

    /// Parts that threads share: of every run, [`width`](Self::width) neighbouring elements.
    pub fn parts(&self) -> usize {
        let strips = self.run.extent.div_ceil(self.width());
        self.outer.iter().fold(strips, |count, axis| count * axis.extent)
    }

    /// Elements of a part.
    pub fn elements(&self) -> usize {
        self.line.extent.saturating_mul(self.width())
    }

    /// Elements of a run in a part: the side of a square, or more if lines are short.
    fn width(&self) -> usize {
        if self.line.extent <= SHORT { LINES } else { SIDE }
    }

    /// Copies some parts.
    ///
    /// # Safety
    ///
    /// The nest was verified: source and result are its parameters' memory, valid to read and to
    /// write, and do not overlap. No other code uses the elements of the result in these parts.
    pub unsafe fn run(&self, source: *const u8, result: *mut u8, parts: Range<usize>) {
        // SAFETY: the caller's promise is the same.
        unsafe {
            match self.size {
                1 => self.parts_of::<u8>(source.cast(), result.cast(), parts),
                2 => self.parts_of::<u16>(source.cast(), result.cast(), parts),
                4 => self.parts_of::<u32>(source.cast(), result.cast(), parts),
                _ => self.parts_of::<u64>(source.cast(), result.cast(), parts),
            }
        }
    }

    /// # Safety
    ///
    /// As for [`run`](Self::run), for elements of this size.
    unsafe fn parts_of<T: Copy>(&self, source: *const T, result: *mut T, parts: Range<usize>) {
        let strips = self.run.extent.div_ceil(self.width());
        for part in parts {
            let (mut rest, first) = (part / strips, part % strips * self.width());
            let (mut from, mut to) =
                (self.from + first * self.run.from, self.to + first * self.run.to);
            for axis in self.outer.iter().rev() {
                let at = rest % axis.extent;
                rest /= axis.extent;
                from += at * axis.from;
                to += at * axis.to;
            }
            let width = self.width().min(self.run.extent - first);
            let [sources, row] = [self.line.from, self.run.to];
            let (source, result) = (source.wrapping_add(from), result.wrapping_add(to));
            // SAFETY: the elements of the part are positions of all axes, and so the nest's.
            unsafe {
                match self.line.extent {
                    2 => short_lines::<T, 2>(source, sources, result, row, width),
                    3 => short_lines::<T, 3>(source, sources, result, row, width),
                    4 => short_lines::<T, 4>(source, sources, result, row, width),
                    _ => self.squares(source, result, width),
                }
            }
        }
    }

    /// Copies a part, square by square.
    ///
    /// # Safety
    ///
    /// Source and result are the part's first elements; the rest is as for [`run`](Self::run). A
    /// part has `width` elements of a run, at most a square's side.
    unsafe fn squares<T: Copy>(&self, source: *const T, result: *mut T, width: usize) {
        for line in (0..self.line.extent).step_by(SIDE) {
            let height = SIDE.min(self.line.extent - line);
            let (from, to) =
                (source.wrapping_add(line * self.line.from), result.wrapping_add(line));
            // SAFETY: the caller guarantees the elements. If there are squares, elements have 4
            // bytes and the machine AVX2.
            unsafe {
                #[cfg(target_arch = "x86_64")]
                if self.squares && width == SIDE && height == SIDE {
                    let (from, to) = (from.cast::<f32>(), to.cast::<f32>());
                    crate::kernels::squares::square(from, self.line.from, to, self.run.to);
                    continue;
                }
                for i in 0..width {
                    for j in 0..height {
                        to.add(i * self.run.to + j).write(from.add(j * self.line.from + i).read());
                    }
                }
            }
        }
    }
}

/// `to[i · row + j] = from[j · distance + i]` for i in `0..count` and j in `0..N`.
///
/// # Safety
///
/// These elements are valid to read and to write, and do not overlap.
unsafe fn short_lines<T: Copy, const N: usize>(
    from: *const T,
    distance: usize,
    to: *mut T,
    row: usize,
    count: usize,
) {
    let sources: [*const T; N] = std::array::from_fn(|j| from.wrapping_add(j * distance));
    for i in 0..count {
        // SAFETY: the caller guarantees the elements.
        unsafe {
            let line = sources.map(|source| source.add(i).read());
            to.add(i * row).cast::<[T; N]>().write_unaligned(line);
        }
    }
}
