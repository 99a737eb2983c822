//! The filter as the right operand of products: a row for each tap and channel of the patches.
//!
//! The filter is read in place, or copied once per run to memory that the call keeps: the input's
//! cotangent exchanges its channels, and [direct] products of halves take another
//! [form](super::operands). A row of pairs belongs to two neighbouring rows of a run of taps.

use super::operands::{Form, pack_rows};
use super::{PATCHES, Run};
use crate::call::element::Element;
use crate::call::panel::{self, View, widen};
use crate::call::product::pack::Lines;
use crate::pool::TaskPanicked;
use wengert_core::call::{Convolution, Direction};

impl Run<'_> {
    /// The shared memory, as numbers of the arithmetic.
    pub(super) fn shared_numbers<T: Element>(&self) -> *mut T::Wide {
        self.memory.cast()
    }

    /// The filter of a group.
    pub(super) fn filter_view<T: Element>(&self, group: usize) -> View<T> {
        let Convolution { groups, output_channels, direction, .. } = self.call;
        match direction {
            Direction::InputGradient => self.exchanged_view(group, self.rows_of_filter()),
            Direction::Forward | Direction::FilterGradient => {
                let at = self.arguments.operand::<T>(1).wrapping_add(group * output_channels);
                View { at, row: groups * output_channels, column: 1 }
            }
        }
    }

    /// The filter of a group, in the form of direct products.
    pub(super) fn filter_of_form<T: Element>(
        &self,
        form: &Form<T::Wide>,
        group: usize,
    ) -> View<T::Wide> {
        let Convolution { groups, output_channels, direction, .. } = self.call;
        if !T::HALF {
            return self.filter_view::<T>(group).plain();
        }
        if direction == Direction::InputGradient {
            let rows = if form.pairs { self.rows_of_pairs() } else { self.rows_of_filter() };
            return self.exchanged_view(group, rows);
        }
        let at = self.shared_numbers::<T>().wrapping_add(group * output_channels);
        View { at: at.cast_const(), row: groups * output_channels, column: 1 }
    }

    /// A group of the copy with exchanged channels, which has `rows` rows for each group.
    fn exchanged_view<N>(&self, group: usize, rows: usize) -> View<N> {
        let columns = self.call.input_channels;
        let at = self.memory.cast_const().cast::<N>().wrapping_add(group * rows * columns);
        View { at, row: columns, column: 1 }
    }

    /// Rows of a group: taps and channels of the patches.
    fn rows_of_filter(&self) -> usize {
        self.patches.taps() * self.patches.channels()
    }

    /// Rows of pairs of a group.
    fn rows_of_pairs(&self) -> usize {
        let [runs, length] = self.direct.as_ref().map_or([0, 0], |direct| direct.runs());
        runs * length.div_ceil(2)
    }

    /// Copies the filter for direct products in a form, or, without a form, for products of
    /// patches.
    pub(super) fn copy_filter<T: Element>(
        &self,
        form: Option<&Form<T::Wide>>,
    ) -> Result<(), TaskPanicked> {
        let pairs = form.is_some_and(|form| form.pairs);
        match self.call.direction {
            Direction::InputGradient => self.exchange_channels::<T>(form.is_some(), pairs),
            _ if pairs => self.pack_pairs::<T>(),
            _ => self.widen_filter::<T>(),
        }
    }

    /// Widens the filter.
    fn widen_filter<T: Element>(&self) -> Result<(), TaskPanicked> {
        let (simd, elements) = (self.workspace.simd(), self.filter());
        self.workspace.pool().parallel_for(elements.div_ceil(PATCHES), |_, task| {
            let start = task * PATCHES;
            let from = self.arguments.operand::<T>(1).wrapping_add(start);
            let to = self.shared_numbers::<T>().wrapping_add(start);
            // SAFETY: the elements exist, and the copy has room for all; no other task writes
            // these.
            unsafe { widen(simd, from, to, PATCHES.min(elements - start)) };
        })
    }

    /// Packs the filter into rows of pairs.
    fn pack_pairs<T: Element>(&self) -> Result<(), TaskPanicked> {
        let [runs, length] = self.direct.as_ref().map_or([0, 0], |direct| direct.runs());
        let row = self.call.groups * self.call.output_channels;
        self.workspace.pool().parallel_for(runs, |_, run| {
            let at = self.arguments.operand::<T>(1).wrapping_add(run * length * row);
            let source = Lines { at: at.cast(), across: 1, along: row };
            let to = self.shared_numbers::<T>().wrapping_add(run * length.div_ceil(2) * row);
            // SAFETY: the rows of the run exist, and the copy has room for its pairs; no other
            // task writes these. The columns of each group are whole vectors.
            unsafe { pack_rows(self.workspace.simd(), source, [row, length], to.cast(), row) };
        })
    }

    /// Copies the filter with a row for each group, tap and channel of the result, and contiguous
    /// channels of the input.
    fn exchange_channels<T: Element>(&self, wide: bool, pairs: bool) -> Result<(), TaskPanicked> {
        let Convolution { groups, input_channels, output_channels, .. } = self.call;
        let (simd, taps) = (self.workspace.simd(), self.patches.taps());
        self.workspace.pool().parallel_for(groups * taps, |_, task| {
            let (group, tap) = (task / taps, task % taps);
            let row = groups * output_channels;
            let at = tap * input_channels * row + group * output_channels;
            let at = self.arguments.operand::<T>(0).wrapping_add(at);
            let view = View { at, row: 1, column: row };
            let place = task * output_channels * input_channels;
            // SAFETY: the channels of the tap exist, and the copy has room for those of all taps;
            // no other task writes these. A tap is a run, and direct products have whole vectors
            // of columns.
            unsafe {
                if pairs {
                    let source = Lines { at: at.cast(), across: row, along: 1 };
                    let place = task * output_channels.div_ceil(2) * input_channels;
                    let to = self.shared_numbers::<T>().wrapping_add(place).cast();
                    let size = [input_channels, output_channels];
                    pack_rows(simd, source, size, to, input_channels);
                } else if wide && T::HALF {
                    let to = self.shared_numbers::<T>().wrapping_add(place);
                    for c in 0..output_channels {
                        let to = to.add(c * input_channels);
                        (0..input_channels).for_each(|i| to.add(i).write(view.get(c, i).wide()));
                    }
                } else {
                    let to = self.memory.cast::<T>().wrapping_add(place);
                    panel::transposed(simd, view, [output_channels, input_channels], to);
                }
            }
        })
    }
}
