//! Patches: the matrix that turns a convolution into a matrix product (im2col).
//!
//! A row belongs to a position of the computed tensor (for a filter's gradient, of the tensor
//! summed over), a column to a tap of the filter and a channel of the source. The element is the
//! source's at the tap's position, or 0 outside the source. The whole matrix is never
//! materialised: a part of some rows and taps fits into the cache. With few channels the columns
//! of that part are contiguous, otherwise the rows are, so that the copied runs are long.
//!
//! Patches have the dtype of the source. The products widen halves, or multiply pairs of them.

use crate::call::panel::View;
use bytemuck::{Pod, Zeroable};
use std::ops::Range;
use wengert_core::call::{Convolution, Window};

/// The position of a row and tap in the source, along one spatial axis: `(row·step + tap·spread +
/// offset) / divisor`, if that is exact and within the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub rows: usize,
    pub taps: usize,
    pub step: i64,
    pub spread: i64,
    pub offset: i64,
    pub divisor: i64,
    pub source: usize,
}

impl Axis {
    /// The position of a row and tap, if it is one of the source.
    pub fn meets(&self, row: usize, tap: usize) -> Option<usize> {
        let at = row as i64 * self.step + tap as i64 * self.spread + self.offset;
        if at < 0 {
            return None;
        }
        let at = if self.divisor == 1 {
            at
        } else if at % self.divisor == 0 {
            at / self.divisor
        } else {
            return None;
        };
        usize::try_from(at).ok().filter(|at| *at < self.source)
    }
}

/// Most channels for which columns are longer runs than rows.
const FEW: usize = 4;

/// The patches of a convolution.
#[derive(Debug)]
pub(super) struct Patches {
    /// Always three axes; those that the convolution lacks come first, with extents of 1.
    axes: [Axis; 3],
    batch: usize,
    /// Channels of a row of the source, and of one group.
    all_channels: usize,
    channels: usize,
}

impl Patches {
    /// Patches of the input, for each position of the result.
    pub fn of_input(call: &Convolution) -> Self {
        Self::new(call, call.input_channels, |w| Axis {
            rows: w.output,
            taps: w.filter,
            step: w.stride as i64,
            spread: w.rhs_dilation as i64,
            offset: -w.low,
            divisor: w.lhs_dilation as i64,
            source: w.input,
        })
    }

    /// Patches of the result, for each position of the input.
    pub fn of_result(call: &Convolution) -> Self {
        Self::new(call, call.output_channels, |w| Axis {
            rows: w.input,
            taps: w.filter,
            step: w.lhs_dilation as i64,
            spread: -(w.rhs_dilation as i64),
            offset: w.low,
            divisor: w.stride as i64,
            source: w.output,
        })
    }

    fn new(call: &Convolution, channels: usize, axis: impl Fn(&Window) -> Axis) -> Self {
        let one = Axis { rows: 1, taps: 1, step: 0, spread: 0, offset: 0, divisor: 1, source: 1 };
        let mut axes = [one; 3];
        let first = axes.len() - call.window.len();
        axes[first..].iter_mut().zip(&call.window).for_each(|(a, w)| *a = axis(w));
        Patches { axes, batch: call.batch, all_channels: call.groups * channels, channels }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.axes.iter().fold(self.batch, |n, a| n * a.rows)
    }

    /// Number of taps.
    pub fn taps(&self) -> usize {
        self.axes.iter().map(|a| a.taps).product()
    }

    /// The three axes.
    pub fn axes(&self) -> &[Axis; 3] {
        &self.axes
    }

    /// Channels of a group, and of a position of the source.
    pub fn all_channels(&self) -> (usize, usize) {
        (self.channels, self.all_channels)
    }

    /// Columns of a tap.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Whether each patch is one element and each element is one patch.
    pub fn are_the_source(&self) -> bool {
        let same = |a: &Axis| {
            a.rows == a.source
                && a.taps == 1
                && a.offset == 0
                && a.divisor == 1
                && (a.step == 1 || a.rows == 1)
        };
        self.axes.iter().all(same)
    }

    /// The patches of a group as a view of the source, if [they are](Self::are_the_source).
    pub fn plain<T>(&self, source: *const T, group: usize) -> Option<View<T>> {
        let at = source.wrapping_add(group * self.channels);
        let view = View { at, row: self.all_channels, column: 1 };
        self.are_the_source().then_some(view)
    }

    /// Writes the part of `rows` and `taps` of a group's patches, densely. Returns a view of it.
    ///
    /// # Safety
    ///
    /// The source is the whole tensor. The destination is valid to write `rows × taps × channels`
    /// elements and does not overlap the source. Rows and taps exist.
    pub unsafe fn fill<T: Pod>(
        &self,
        source: *const T,
        group: usize,
        rows: Range<usize>,
        taps: Range<usize>,
        destination: *mut T,
    ) -> View<T> {
        let width = taps.len() * self.channels;
        let count = rows.len();
        let columns = self.channels <= FEW && self.axes[2].divisor == 1 && count > 1;
        let view = if columns {
            View { at: destination.cast_const(), row: 1, column: count }
        } else {
            View { at: destination.cast_const(), row: width, column: 1 }
        };
        if rows.is_empty() {
            return view;
        }
        let source = source.wrapping_add(group * self.channels);
        let [first, second, last] = &self.axes;
        let (line, mut start) = (rows.start / last.rows, rows.start % last.rows);
        let [mut image, mut r0, mut r1] = {
            let (rest, r1) = (line / second.rows, line % second.rows);
            [rest / first.rows, rest % first.rows, r1]
        };
        let mut done = 0;
        while done < count {
            // Rows that differ along the last axis only are neighbours, and so are taps.
            let end = last.rows.min(start + count - done);
            let mut tap = taps.start;
            while tap < taps.end {
                let (rest, k) = (tap / last.taps, tap % last.taps);
                let (k0, k1) = (rest / second.taps, rest % second.taps);
                let last_tap = last.taps.min(k + taps.end - tap);
                let line = first
                    .meets(r0, k0)
                    .zip(second.meets(r1, k1))
                    .map(|(p0, p1)| {
                        ((image * first.source + p0) * second.source + p1) * last.source
                    })
                    .map(|line| source.wrapping_add(line * self.all_channels));
                let column = (tap - taps.start) * self.channels;
                // SAFETY: a line that the taps reach exists in the source; the destination has
                // room for rows and taps.
                unsafe {
                    if columns {
                        let to = destination.add(column * count + done);
                        self.columns(line, start..end, k..last_tap, to, count);
                    } else {
                        let to = destination.add(done * width + column);
                        self.rows_of_line(line, start..end, k..last_tap, to, width);
                    }
                }
                tap += last_tap - k;
            }
            done += end - start;
            (start, r1) = (0, r1 + 1);
            if r1 == second.rows {
                (r1, r0) = (0, r0 + 1);
            }
            if r0 == first.rows {
                (r0, image) = (0, image + 1);
            }
        }
        view
    }

    /// Copies rows and taps along the last axis, with each column (a tap's channel) contiguous;
    /// `line` is the line of the source that they reach.
    ///
    /// # Safety
    ///
    /// The line is in the source. The destination is valid to write a number for each row, tap
    /// and channel, with columns `distance` apart. The divisor is 1.
    #[inline]
    unsafe fn columns<T: Pod>(
        &self,
        line: Option<*const T>,
        rows: Range<usize>,
        taps: Range<usize>,
        destination: *mut T,
        distance: usize,
    ) {
        let axis = &self.axes[2];
        let count = rows.len();
        for (n, tap) in taps.enumerate() {
            // The rows for which this tap is within the source: `met` rows from `before` on.
            let at = rows.start as i64 * axis.step + tap as i64 * axis.spread + axis.offset;
            let before = if at >= 0 { 0 } else { (-at + axis.step - 1) / axis.step };
            let beyond = (axis.source as i64 - at + axis.step - 1).max(0) / axis.step;
            let before = before.min(count as i64) as usize;
            let met = (beyond.min(count as i64) as usize).saturating_sub(before);
            let from = at + before as i64 * axis.step;
            for channel in 0..self.channels {
                // SAFETY: these rows read positions below the extent of the source; the
                // destination has room for all.
                unsafe {
                    let to = destination.add((n * self.channels + channel) * distance);
                    let Some(line) = line.filter(|_| met > 0) else {
                        zeros(to, count);
                        continue;
                    };
                    zeros(to, before);
                    let from = line.add(from as usize * self.all_channels + channel);
                    let stride = axis.step as usize * self.all_channels;
                    if stride == 1 {
                        from.copy_to_nonoverlapping(to.add(before), met);
                    } else {
                        (0..met)
                            .for_each(|k| to.add(before + k).write(from.add(k * stride).read()));
                    }
                    zeros(to.add(before + met), count - before - met);
                }
            }
        }
    }

    /// Copies rows and taps along the last axis, with each row contiguous; `line` is the line of
    /// the source that they reach.
    ///
    /// # Safety
    ///
    /// As for [`columns`](Self::columns), with rows `distance` apart, and any divisor.
    #[inline]
    unsafe fn rows_of_line<T: Pod>(
        &self,
        line: Option<*const T>,
        rows: Range<usize>,
        taps: Range<usize>,
        destination: *mut T,
        distance: usize,
    ) {
        for (n, row) in rows.enumerate() {
            // SAFETY: the caller guarantees line and destination.
            unsafe {
                let to = destination.add(n * distance);
                match line {
                    Some(line) => self.fill_line(line, row, taps.clone(), to),
                    None => zeros(to, taps.len() * self.channels),
                }
            }
        }
    }

    /// Copies the taps of one row along the last axis; `line` points to the group's channels at
    /// the first position of the line.
    ///
    /// # Safety
    ///
    /// The line is in the source, and the destination is valid to write the taps' channels.
    #[inline]
    unsafe fn fill_line<T: Pod>(
        &self,
        line: *const T,
        row: usize,
        taps: Range<usize>,
        destination: *mut T,
    ) {
        let axis = &self.axes[2];
        let channels = self.channels;
        // SAFETY: the positions read are below the extent of the source; the destination has room
        // for the taps.
        unsafe {
            if axis.divisor == 1 && axis.spread == 1 && channels == self.all_channels {
                // Neighbouring taps read neighbouring positions: zeros, a run of the source,
                // zeros.
                let at = row as i64 * axis.step + taps.start as i64 + axis.offset;
                let count = taps.len() as i64;
                let before = (-at).clamp(0, count);
                let met = (axis.source as i64 - at).clamp(before, count) - before;
                let (before, met) = (before as usize * channels, met as usize * channels);
                zeros(destination, before);
                if met > 0 {
                    let from = line.add((at.max(0) as usize) * channels);
                    copy(from, destination.add(before), met);
                }
                zeros(destination.add(before + met), taps.len() * channels - before - met);
                return;
            }
            for (n, tap) in taps.enumerate() {
                let destination = destination.add(n * channels);
                match axis.meets(row, tap) {
                    Some(at) => copy(line.add(at * self.all_channels), destination, channels),
                    None => zeros(destination, channels),
                }
            }
        }
    }
}

/// Longest run for which a loop is faster than calling a copy.
pub(super) const SHORT: usize = 8;

/// Copies `count` elements.
///
/// # Safety
///
/// The source is valid to read and the destination to write `count` elements; they do not overlap.
#[inline(always)]
pub(super) unsafe fn copy<T: Copy>(source: *const T, destination: *mut T, count: usize) {
    // SAFETY: every index is below the count; the caller guarantees the memory.
    unsafe {
        if count > SHORT {
            source.copy_to_nonoverlapping(destination, count);
            return;
        }
        for k in 0..count {
            destination.add(k).write(source.add(k).read());
        }
    }
}

/// Writes `count` zeros.
///
/// # Safety
///
/// The destination is valid to write `count` numbers.
#[inline(always)]
pub(super) unsafe fn zeros<T: Zeroable>(destination: *mut T, count: usize) {
    for k in 0..count {
        // SAFETY: k is below the count.
        unsafe { destination.add(k).write(T::zeroed()) };
    }
}
