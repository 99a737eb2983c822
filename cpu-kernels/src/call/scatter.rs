//! Scatter on the CPU.
//!
//! The result is divided along one axis. Every task walks all updates in order and combines those
//! that fall in its part. So one thread combines all updates of an element, in the order of the
//! scatter positions. The axis is a long one along which no index moves windows, if there is one
//! (rows of a table); all tasks then have the same work, whatever the indices. Otherwise it is
//! the longest axis, and a task skips the updates of others.

use super::element::{Element, with_element};
use super::{Arguments, Compile, Kernels};
use crate::memory::Workspace;
use std::ops::Range;
use wengert_core::call::{Scatter, ScatterKind};
use wengert_core::{DType, Diagnostic};

/// A scatter, ready to run.
#[derive(Debug)]
struct CompiledScatter {
    kind: ScatterKind,
    dtype: DType,
    index: DType,
    /// Whether each component of an index vector is clamped.
    clip: bool,
    /// Extents of the result, and its strides.
    shape: Vec<usize>,
    strides: Vec<usize>,
    /// For each axis of the result, the extent of a window and its stride in the updates.
    window: Vec<usize>,
    update_strides: Vec<usize>,
    /// Extents of the scatter positions, and their strides in the updates.
    positions: Vec<(usize, usize)>,
    /// The distance between consecutive positions, if it is constant.
    even: Option<usize>,
    /// Whether a window is one contiguous run along the last axis.
    run: bool,
    /// For each component of an index vector, the axis that it moves the window along.
    moved: Vec<usize>,
    /// Division among tasks if the operand is copied, and if the result is in its place.
    copied: Division,
    in_place: Division,
}

/// The axis along which the result is divided among tasks, and the extent of each part.
#[derive(Clone, Copy, Debug)]
struct Division {
    axis: usize,
    part: usize,
}

/// The part of the result that a task owns: a range along an axis.
#[derive(Clone, Debug)]
struct Owned {
    axis: usize,
    range: Range<usize>,
}

/// Fewest updates of a part that are worth a task.
const TASK: usize = 1 << 15;
/// Shortest contiguous run of elements that a division leaves.
const RUN: usize = 64;

impl Compile for Scatter {
    fn compile(&self) -> Result<Box<dyn Kernels>, Diagnostic> {
        let call = self;
        let strides = distances(&call.operand);
        let in_updates = distances(&call.updates);
        let rank = call.operand.len();
        let kept = (0..rank).filter(|a| !call.inserted_window_dims.contains(a));
        let (mut window, mut update_strides) = (vec![1; rank], vec![0; rank]);
        for (axis, update) in kept.zip(&call.update_window_dims) {
            (window[axis], update_strides[axis]) = (call.updates[*update], in_updates[*update]);
        }
        let positions: Vec<(usize, usize)> = (0..call.updates.len())
            .filter(|a| !call.update_window_dims.contains(a))
            .map(|a| (call.updates[a], in_updates[a]))
            .collect();
        let even = positions.windows(2).all(|p| p[0].1 == p[1].0 * p[1].1);
        let others = &window[..rank.saturating_sub(1)];
        let run = rank > 0 && update_strides[rank - 1] == 1 && others.iter().all(|e| *e == 1);
        let mut result = CompiledScatter {
            kind: call.kind,
            // A bool is a byte, 0 or 1, so minimum and maximum are those of bytes.
            dtype: if call.dtype == DType::Bool { DType::U8 } else { call.dtype },
            index: call.index,
            clip: call.clip,
            shape: call.operand.clone(),
            strides,
            window,
            update_strides,
            even: even.then(|| positions.last().map_or(0, |p| p.1)),
            run,
            positions,
            moved: call.scatter_dims_to_operand_dims.clone(),
            copied: Division { axis: 0, part: usize::MAX },
            in_place: Division { axis: 0, part: usize::MAX },
        };
        let elements: usize = result.shape.iter().product();
        result.copied = result.divide(elements / 4);
        result.in_place = result.divide(0);
        Ok(Box::new(result))
    }
}

impl Kernels for CompiledScatter {
    fn run(&self, workspace: &Workspace, arguments: &Arguments<'_>) -> Result<(), Diagnostic> {
        with_element!(self.dtype, T => {
            if self.index == DType::I32 {
                self.run_with::<T, i32>(workspace, arguments)
            } else {
                self.run_with::<T, i64>(workspace, arguments)
            }
        })
    }
}

impl Owned {
    /// The part along an axis of that extent.
    fn along(&self, axis: usize, extent: usize) -> Range<usize> {
        if axis == self.axis { self.range.clone() } else { 0..extent }
    }
}

impl CompiledScatter {
    /// The division of all updates, and of work that is worth `more` updates.
    fn divide(&self, more: usize) -> Division {
        let updates: usize = self.window.iter().product::<usize>()
            * self.positions.iter().map(|p| p.0).product::<usize>();
        let whole = Division { axis: 0, part: usize::MAX };
        let tasks = (more.saturating_add(updates) / TASK).min(16);
        if tasks < 2 {
            return whole;
        }
        // A part along an axis is a run of the part's extent times the axis's stride.
        let parts = |axis: &usize| {
            let least = RUN.div_ceil(self.strides[*axis].max(1)).max(1);
            (self.shape[*axis] / least).min(tasks)
        };
        let free = (0..self.shape.len())
            .filter(|a| !self.moved.contains(a) && self.window[*a] == self.shape[*a]);
        let longest = free.max_by_key(parts).filter(|a| parts(a) > 1).map(|a| (a, parts(&a)));
        // Each task reads all indices, which takes as long as combining half a run.
        let by_index = || {
            let most = 2 * self.window.iter().product::<usize>() / RUN;
            let axis = (0..self.shape.len()).max_by_key(parts)?;
            Some((axis, parts(&axis).min(most))).filter(|(_, count)| *count > 1)
        };
        match longest.or_else(by_index) {
            Some((axis, count)) => Division { axis, part: self.shape[axis].div_ceil(count) },
            None => whole,
        }
    }

    fn run_with<T: Element, I: Copy + Into<i64>>(
        &self,
        workspace: &Workspace,
        arguments: &Arguments<'_>,
    ) -> Result<(), Diagnostic> {
        if self.shape.contains(&0) {
            return Ok(());
        }
        let in_place = std::ptr::eq(arguments.operand::<T>(0), arguments.result::<T>());
        let Division { axis, part } = if in_place { self.in_place } else { self.copied };
        let extent = self.shape.get(axis).copied().unwrap_or(1);
        let part = part.min(extent);
        let task = |_: usize, task: usize| {
            let owned = Owned { axis, range: task * part..extent.min((task + 1) * part) };
            // SAFETY: the arguments were checked, and no other task owns this part of the result.
            unsafe {
                if !in_place {
                    self.copy::<T>(arguments, &owned);
                }
                self.combine::<T, I>(arguments, &owned);
            }
        };
        Ok(workspace.pool().parallel_for(extent.div_ceil(part), task)?)
    }

    /// Copies the owned part of the operand to the result.
    ///
    /// # Safety
    ///
    /// The arguments are those of the call, checked; no other thread uses that part of the result.
    unsafe fn copy<T: Element>(&self, arguments: &Arguments<'_>, owned: &Owned) {
        let (operand, result) = (arguments.operand::<T>(0), arguments.result::<T>());
        let (extent, stride) = match self.shape.get(owned.axis) {
            Some(extent) => (*extent, self.strides[owned.axis]),
            None => (1, 1),
        };
        let outer: usize = self.shape.iter().take(owned.axis).product();
        for slab in 0..outer {
            let at = (slab * extent + owned.range.start) * stride;
            // SAFETY: the run is within the owned part, of operand and result alike; the two are
            // not the same memory, so they do not overlap.
            unsafe {
                operand.add(at).copy_to_nonoverlapping(result.add(at), owned.range.len() * stride);
            }
        }
    }

    /// Combines the updates that belong to the owned part.
    ///
    /// # Safety
    ///
    /// As for [`copy`](Self::copy).
    unsafe fn combine<T: Element, I: Copy + Into<i64>>(
        &self,
        arguments: &Arguments<'_>,
        owned: &Owned,
    ) {
        let (indices, updates) = (arguments.operand::<I>(1), arguments.operand::<T>(2));
        let result = arguments.result::<T>();
        let count: usize = self.positions.iter().map(|p| p.0).product();
        if self.window.contains(&0) {
            return;
        }
        for position in 0..count {
            let vector = indices.wrapping_add(position * self.moved.len());
            // SAFETY: there is an index vector for each position.
            let Some((to, first)) = (unsafe { self.start(vector, owned.axis) }) else { continue };
            // The owned part of the window.
            let extent = self.window.get(owned.axis).copied().unwrap_or(1);
            let skipped = owned.range.start.saturating_sub(first).min(extent);
            let end = owned.range.end.saturating_sub(first).min(extent);
            let mine = Owned { axis: owned.axis, range: skipped..end };
            if skipped >= end {
                continue;
            }
            let from = self.update(position);
            // SAFETY: `start` checked that the window is within the result, and its part from
            // `skipped` to `end` is owned. The updates have an element for each of its positions.
            unsafe {
                if self.run {
                    let last = self.window.len() - 1;
                    let along = mine.along(last, self.window[last]);
                    combine_run(
                        self.kind,
                        updates.add(from + along.start),
                        result.add(to + along.start),
                        along.len(),
                    );
                } else {
                    self.window(updates.add(from), result.add(to), 0, &mine);
                }
            }
        }
    }

    /// The offset of an index vector's window in the result, and its first coordinate along an
    /// axis; `None` if a part of the window is outside.
    ///
    /// # Safety
    ///
    /// The vector has a component for each moved axis.
    #[inline]
    unsafe fn start<I: Copy + Into<i64>>(
        &self,
        vector: *const I,
        along: usize,
    ) -> Option<(usize, usize)> {
        let (mut to, mut first) = (0, 0);
        for axis in 0..self.shape.len() {
            let mut start = 0i64;
            for (component, moved) in self.moved.iter().enumerate() {
                if *moved == axis {
                    // SAFETY: the caller guarantees the component.
                    let mut index: i64 = unsafe { vector.add(component).read() }.into();
                    if self.clip {
                        index = index.clamp(0, (self.shape[axis] - self.window[axis]) as i64);
                    }
                    start = start.saturating_add(index);
                }
            }
            let start = usize::try_from(start).ok()?;
            if start > self.shape[axis] - self.window[axis] {
                return None;
            }
            to += start * self.strides[axis];
            if axis == along {
                first = start;
            }
        }
        Some((to, first))
    }

    /// The offset of a scatter position's updates.
    fn update(&self, position: usize) -> usize {
        if let Some(distance) = self.even {
            return position * distance;
        }
        let mut rest = position;
        let mut from = 0;
        for (extent, stride) in self.positions.iter().rev() {
            from += rest % extent * stride;
            rest /= extent;
        }
        from
    }

    /// Combines the owned part of a window, from `axis` on.
    ///
    /// # Safety
    ///
    /// The elements of the window exist in the updates and in the result; no other thread uses
    /// the owned ones.
    unsafe fn window<T: Element>(&self, from: *const T, to: *mut T, axis: usize, owned: &Owned) {
        let Some(extent) = self.window.get(axis) else {
            // SAFETY: all axes are fixed: these are elements of the window.
            unsafe { combine_run(self.kind, from, to, 1) };
            return;
        };
        let along = owned.along(axis, *extent);
        let (from_stride, to_stride) = (self.update_strides[axis], self.strides[axis]);
        // SAFETY: `along` is within the window.
        unsafe {
            if axis + 1 == self.window.len() && (from_stride == 1 || along.len() == 1) {
                combine_run(
                    self.kind,
                    from.add(along.start * from_stride),
                    to.add(along.start),
                    along.len(),
                );
                return;
            }
            for i in along {
                self.window(from.add(i * from_stride), to.add(i * to_stride), axis + 1, owned);
            }
        }
    }
}

/// Combines neighbouring elements.
///
/// # Safety
///
/// `count` elements are valid to read and to write, and no other code uses those that are
/// written; they do not overlap.
#[inline]
unsafe fn combine_run<T: Element>(kind: ScatterKind, from: *const T, to: *mut T, count: usize) {
    // SAFETY: the caller guarantees the elements.
    let (elements, updates) = unsafe {
        (std::slice::from_raw_parts_mut(to, count), std::slice::from_raw_parts(from, count))
    };
    // One loop for each kind, so that each is vectorised.
    match kind {
        ScatterKind::Add => elements.iter_mut().zip(updates).for_each(|(x, u)| *x = x.plus(*u)),
        ScatterKind::Mul => elements.iter_mut().zip(updates).for_each(|(x, u)| *x = x.times(*u)),
        ScatterKind::Min => elements.iter_mut().zip(updates).for_each(|(x, u)| *x = x.lesser(*u)),
        ScatterKind::Max => elements.iter_mut().zip(updates).for_each(|(x, u)| *x = x.greater(*u)),
        ScatterKind::Replace => elements.copy_from_slice(updates),
    }
}

/// The strides of a dense array.
fn distances(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis].max(1);
    }
    strides
}
