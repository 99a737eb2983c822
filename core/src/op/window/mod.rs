//! Windows that slide over a tensor: `reduce_window_sum`, `_max`, `_min`, the position of the
//! extremum of each window, and the two linear ops that move elements between windows and
//! operand.
//!
//! All ops here share one geometry, [`Windows`]. Element k of window o lies at position
//! `o·stride + k·window_dilation − low` of the dilated operand, in which element j is at
//! `j·base_dilation`. Positions without an element (padding and holes) are ignored.
//!
//! **Derivatives.** A sum is linear, and its transpose is a sum of windows again, with stride and
//! base dilation swapped. The tangent of a maximum is the tangent of the element that is the
//! maximum. `reduce_window_argmax` computes its position in the window once; `window_gather`
//! takes one element of each window, and `window_scatter_add`, its transpose, adds the value of
//! each window to the element at its position. No tensor of the operand's size times the window's
//! is stored, and all of these are loops over scalars that fuse.

mod argument;
mod gather;
mod reduce;
mod scatter_add;
mod terms;

use crate::op::prelude::*;

pub use argument::WindowArgument;
pub use gather::WindowGather;
pub use reduce::{ReduceWindow, WindowKind};
pub use scatter_add::WindowScatterAdd;

/// Bound of all arithmetic on positions.
const LIMIT: i64 = 1 << 40;

attributes! {
    /// The geometry of windows over a tensor. Each list has an entry for each axis, or is empty.
    Windows {
        /// Extents of the window, at least 1.
        window: Vec<usize>,
        /// Distance between the starts of neighbouring windows; empty: 1.
        stride: Vec<usize> = vec![],
        /// Padding before and after the dilated operand; negative crops; empty: none.
        padding: Vec<(Dim, Dim)> = vec![],
        /// Distance between neighbouring elements of the dilated operand; empty: 1.
        base_dilation: Vec<usize> = vec![],
        /// Distance between neighbouring elements of a window; empty: 1.
        window_dilation: Vec<usize> = vec![],
    }
}

/// The geometry along one axis.
#[derive(Clone, Copy, Debug)]
struct Axis {
    window: i64,
    stride: i64,
    low: i64,
    base: i64,
    dilation: i64,
    /// Extent of the operand; `windows` is that of the result.
    extent: i64,
    windows: i64,
}

/// Extent with `dilation − 1` holes between neighbours; `None` on overflow.
pub(super) fn dilated(extent: &Dim, dilation: usize) -> Option<Dim> {
    if extent.as_constant() == Some(0) {
        return Some(Dim::constant(0));
    }
    let dilation = i64::try_from(dilation).ok()?;
    extent.checked_scale(dilation)?.checked_add(&Dim::constant(1 - dilation))
}

impl Windows {
    /// Windows of these extents at distance `stride`, without padding.
    pub fn new(window: &[usize], stride: &[usize]) -> Self {
        let stride = if stride.iter().all(|s| *s == 1) { vec![] } else { stride.to_vec() };
        Windows {
            window: window.to_vec(),
            stride,
            padding: vec![],
            base_dilation: vec![],
            window_dilation: vec![],
        }
    }

    /// With this padding.
    #[must_use]
    pub fn padded(mut self, padding: Vec<(Dim, Dim)>) -> Self {
        let none = padding.iter().all(|(l, h)| [l, h].iter().all(|d| d.as_constant() == Some(0)));
        self.padding = if none { vec![] } else { padding };
        self
    }

    /// The same windows for each example of a batch.
    fn batched(&self) -> Windows {
        Windows {
            window: prepended(1, &self.window, false),
            stride: prepended(1, &self.stride, true),
            padding: prepended((Dim::constant(0), Dim::constant(0)), &self.padding, true),
            base_dilation: prepended(1, &self.base_dilation, true),
            window_dilation: prepended(1, &self.window_dilation, true),
        }
    }

    fn stride(&self, axis: usize) -> usize {
        self.stride.get(axis).copied().unwrap_or(1)
    }

    fn base(&self, axis: usize) -> usize {
        self.base_dilation.get(axis).copied().unwrap_or(1)
    }

    fn dilation(&self, axis: usize) -> usize {
        self.window_dilation.get(axis).copied().unwrap_or(1)
    }

    fn pad(&self, axis: usize) -> (Dim, Dim) {
        self.padding.get(axis).cloned().unwrap_or((Dim::constant(0), Dim::constant(0)))
    }

    /// Number of elements of a window.
    fn count(&self) -> usize {
        self.window.iter().product()
    }

    /// Number of windows along each axis of an operand of this shape.
    fn infer(&self, shape: &[Dim]) -> Result<Vec<Dim>> {
        let rank = shape.len();
        let lists = [
            ("stride", &self.stride),
            ("base_dilation", &self.base_dilation),
            ("window_dilation", &self.window_dilation),
        ];
        let wrong_length = |n: usize| n != 0 && n != rank;
        let wrong = lists.iter().find(|(_, l)| wrong_length(l.len())).map(|(name, _)| *name);
        let wrong = wrong.or((self.window.len() != rank).then_some("window"));
        if let Some(name) = wrong.or(wrong_length(self.padding.len()).then_some("padding")) {
            bail!(
                "{name} needs one entry for each of {rank} axes";
                help "a window covers every axis: give it extent 1 along those that it does not \
                 combine"
            );
        }
        for (name, list) in lists.into_iter().chain([("window", &self.window)]) {
            if let Some(entry) = list.iter().find(|e| **e < 1 || **e as u64 >= LIMIT as u64) {
                bail!("{name} of {entry}";
                    help "extents, strides and dilations of windows are at least 1");
            }
        }
        let count = self.window.iter().try_fold(1usize, |n, w| n.checked_mul(*w));
        ensure!(
            count.is_some_and(|n| n < i32::MAX as usize),
            "a window of {:?} has more elements than i32 can count",
            self.window
        );
        (0..rank).map(|axis| self.windows(axis, &shape[axis])).collect()
    }

    fn windows(&self, axis: usize, extent: &Dim) -> Result<Dim> {
        let too_large =
            || Diagnostic::new(format!("the extents of windows along axis {axis} overflow"));
        let (low, high) = self.pad(axis);
        let small = |d: &Dim| d.as_constant().is_none_or(|c| c.abs() < LIMIT);
        let reach = (self.window[axis] as i64 - 1).checked_mul(self.dilation(axis) as i64);
        let Some(reach) = reach.filter(|r| *r < LIMIT) else { return Err(too_large()) };
        let padded = dilated(extent, self.base(axis))
            .and_then(|d| d.checked_add(&low))
            .and_then(|d| d.checked_add(&high))
            .filter(|d| small(d) && small(&low) && small(&high))
            .ok_or_else(too_large)?;
        let cropped = || {
            Diagnostic::new(format!(
                "axis {axis} of extent {extent} would have extent {padded} with its padding"
            ))
            .help("crop no more than there is")
        };
        let room = padded.checked_add(&Dim::constant(-1 - reach)).ok_or_else(too_large)?;
        if let (Some(padded), Some(room)) = (padded.as_constant(), room.as_constant()) {
            return match (padded < 0, room < 0) {
                (true, _) => Err(cropped()),
                (_, true) => Ok(Dim::constant(0)),
                _ => Ok(Dim::constant(room / self.stride(axis) as i64 + 1)),
            };
        }
        if !padded.at_least(0) {
            return Err(cropped());
        }
        let windows = room
            .checked_floor_div(self.stride(axis) as i64)
            .and_then(|d| d.checked_add(&Dim::constant(1)));
        windows.filter(|d| d.at_least(0)).ok_or_else(|| {
            Diagnostic::new(format!(
                "windows of reach {} at stride {} over an axis of extent {extent}",
                reach + 1,
                self.stride(axis)
            ))
            .help("their number is no linear expression of at least 0: give the axis a number")
        })
    }

    /// The geometry of every axis, for an operand and a result without dimension variables.
    fn axes(&self, operand: &[usize], result: &[usize]) -> Vec<Axis> {
        let number = |d: &Dim| d.as_constant().expect("the dimension is bound");
        (0..operand.len())
            .map(|a| Axis {
                window: self.window[a] as i64,
                stride: self.stride(a) as i64,
                low: number(&self.pad(a).0),
                base: self.base(a) as i64,
                dilation: self.dilation(a) as i64,
                extent: operand[a] as i64,
                windows: result[a] as i64,
            })
            .collect()
    }
}

impl Axis {
    /// The operand's element at position k of window o, if there is one.
    fn element(&self, o: usize, k: usize) -> Option<usize> {
        let position = o as i64 * self.stride + k as i64 * self.dilation - self.low;
        let j = position.div_euclid(self.base);
        (position.rem_euclid(self.base) == 0 && (0..self.extent).contains(&j)).then_some(j as usize)
    }
}

/// Calls `f` for each position of a window that has an element, in order, with the number of the
/// position and the index of the element.
fn for_each(axes: &[Axis], window: &[usize], mut f: impl FnMut(usize, &[usize])) {
    let shape: Vec<usize> = axes.iter().map(|a| a.window as usize).collect();
    let (mut k, mut at) = (vec![0; axes.len()], vec![0; axes.len()]);
    for number in 0..shape.iter().product() {
        let inside = axes.iter().enumerate().all(|(a, axis)| {
            let element = axis.element(window[a], k[a]);
            at[a] = element.unwrap_or(0);
            element.is_some()
        });
        if inside {
            f(number, &at);
        }
        advance(&mut k, &shape);
    }
}

/// Checks the type of positions: one i32 for each window.
fn check_positions(positions: &TensorType, windows: &[Dim]) -> Result<()> {
    if positions.dtype == DType::I32 && positions.shape == windows {
        return Ok(());
    }
    let wanted = TensorType::of(DType::I32, windows.to_vec());
    Err(Diagnostic::new(format!("positions of type {positions}, where {wanted} is wanted")).help(
        "give the position in its window of one element for each window, as `reduce_window_argmax` \
         does",
    ))
}

/// `value` in the dtype of sums and comparisons.
fn widened(c: &mut dyn ElementContext, value: Reg) -> Reg {
    if c.dtype(value).is_half() { c.convert(value, DType::F32) } else { value }
}
