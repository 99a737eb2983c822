//! Slices in the notation of ndarray: `x.slice(s![.., -1, 2..-1;2])`.
//!
//! [`s!`](crate::s) is a macro like ndarray's. That one may be used too, but it expands to `unsafe`
//! code, which a crate may forbid. An entry is one of
//!
//! | entry | axis |
//! |---|---|
//! | `..` | as it is |
//! | `a..b`, `a..`, `..b`, `a..=b` | elements a to b |
//! | `a..b;k` | every k-th of these, from the first |
//! | `a..b;-k` | every k-th of these, from the last backwards |
//! | `i` | removed: element i alone |
//! | `NewAxis` | a new axis of extent 1 |
//!
//! Negative numbers count from the end of the axis: −1 is the last element. There may be fewer
//! entries than axes; the axes after them are kept as they are. Bounds that are dimension
//! variables are given to [`Tensor::slice_axis`].

use super::failure::composed;
use super::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result, bail, ensure};
use crate::dim::Dim;
use crate::op::Slice;
use crate::ty::TensorType;
use ndarray::SliceInfoElem;

/// The entries of a slice, in the notation of ndarray: `s![.., -1, 2..-1;2]`. See
/// [`slicing`](crate::build::slicing) for their meaning. The value is an array of ndarray's
/// [`SliceInfoElem`].
///
/// ```
/// use wengert_core::{Literal, ndarray::NewAxis, s};
/// # fn main() -> wengert_core::Result<()> {
/// let x = Literal::from_vec(&[2, 3], vec![1i32, 2, 3, 4, 5, 6])?;
/// assert_eq!(x.slice(s![-1, ..;-1])?.as_slice::<i32>(), Some(&[6, 5, 4][..]));
/// assert_eq!(x.slice(s![.., 1.., NewAxis])?.shape(), [2, 2, 1]);
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! s {
    // `1..-1` is empty as a range of numbers, but not here.
    (@entry $range:expr) => {{
        #[allow(clippy::reversed_empty_ranges)]
        let range = $range;
        $crate::ndarray::SliceInfoElem::from(range)
    }};
    (@entry $range:expr; $step:expr) => {{
        #[allow(clippy::reversed_empty_ranges)]
        let range = $crate::ndarray::Slice::from($range);
        $crate::ndarray::SliceInfoElem::from(range.step_by($step))
    }};
    ($($range:expr $(; $step:expr)?),* $(,)?) => { [$($crate::s!(@entry $range $(; $step)?)),*] };
}

/// One axis of the operand and the part that is taken of it.
struct Part {
    start: Dim,
    limit: Dim,
    step: i64,
    /// The part is one element and the result lacks the axis.
    is_index: bool,
}

impl Tensor {
    /// `slice` in the notation of [`s!`](crate::s), see the
    /// [module](crate::build::slicing). Of `[4,5,6]`, `slice(s![.., -1, 1..-1;2])` is `[4,2]`.
    ///
    /// # Errors
    /// More entries than axes; an index or a range that does not lie within its axis, for each
    /// value of its dimension variables; a step of 0.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, s, DType, Dim, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::F32, ["B".into(), Dim::from(5), 6.into()]));
    /// assert_eq!(x.slice(s![.., -1, 1..-1;2]).ty().to_string(), "f32[B,2]");
    /// assert_eq!(x.slice(s![..-1, 2..]).ty().to_string(), "f32[B+-1,3,6]");
    /// # }).expect("the example is right");
    /// ```
    #[track_caller]
    pub fn slice(&self, entries: impl AsRef<[SliceInfoElem]>) -> Tensor {
        let entries = entries.as_ref();
        composed("slice", &[self], || {
            let (mut parts, new_axes) = parts(self.ty(), entries)?;
            let backwards: Vec<usize> =
                (0..parts.len()).filter(|axis| parts[*axis].step < 0).collect();
            let mut x = self.clone();
            if !backwards.is_empty() {
                x = x.boxed(&parts, |_| 1).reverse(&backwards);
                for (part, extent) in parts.iter_mut().zip(x.shape()) {
                    (part.start, part.limit) = (Dim::constant(0), extent.clone());
                    part.step = part.step.saturating_abs();
                }
            }
            let x = x.boxed(&parts, |part| part.step);
            let indices: Vec<usize> =
                (0..parts.len()).filter(|axis| parts[*axis].is_index).collect();
            Ok(x.squeeze(&indices).unsqueeze(&new_axes))
        })
    }

    /// The box of these parts, with steps.
    #[track_caller]
    fn boxed(&self, parts: &[Part], step: impl Fn(&Part) -> i64) -> Tensor {
        let whole = |(part, extent): (&Part, &Dim)| {
            part.start == Dim::constant(0) && part.limit == *extent && step(part) == 1
        };
        if self.error().is_some() || parts.iter().zip(self.shape()).all(whole) {
            return self.clone();
        }
        let mut stride: Vec<i64> = parts.iter().map(step).collect();
        if stride.iter().all(|step| *step == 1) {
            stride.clear();
        }
        let start = parts.iter().map(|part| part.start.clone()).collect();
        let limit = parts.iter().map(|part| part.limit.clone()).collect();
        Tensor::apply(Slice { start, limit, stride }, &[self])
    }
}

/// Error: the entries are no slice of a tensor of this type.
pub(crate) fn check(ty: &TensorType, entries: &[SliceInfoElem]) -> Result<()> {
    parts(ty, entries).map(drop)
}

/// The part that the entries take of each axis, and the axes of the result that are new.
fn parts(ty: &TensorType, entries: &[SliceInfoElem]) -> Result<(Vec<Part>, Vec<usize>)> {
    let mut parts: Vec<Part> = Vec::with_capacity(ty.rank());
    let mut new_axes = Vec::new();
    let mut result_rank = 0;
    for entry in entries {
        if let SliceInfoElem::NewAxis = entry {
            new_axes.push(result_rank);
            result_rank += 1;
            continue;
        }
        let axis = parts.len();
        let Some(extent) = ty.shape.get(axis) else {
            bail!("the slice has more entries than {ty} has axes";
                help "write at most one entry for each axis, beside those of `NewAxis`");
        };
        let part =
            part(entry, extent).map_err(|d| d.context(format_args!("axis {axis} of {ty}")))?;
        result_rank += usize::from(!part.is_index);
        parts.push(part);
    }
    for extent in &ty.shape[parts.len()..] {
        let (start, limit) = (Dim::constant(0), extent.clone());
        parts.push(Part { start, limit, step: 1, is_index: false });
    }
    Ok((parts, new_axes))
}

/// The part of an axis that an entry takes.
fn part(entry: &SliceInfoElem, extent: &Dim) -> Result<Part> {
    let overflow = || Diagnostic::new("a bound is beyond 64 bits").help("give a smaller number");
    let bound = |number: isize| {
        let number = Dim::constant(number as i64);
        match number.at_least(0) {
            true => Ok(number),
            false => extent.checked_add(&number).ok_or_else(overflow),
        }
    };
    let shown = |written: String, extent: &Dim| match extent.as_constant() {
        Some(_) => format!("{written} does not lie within its extent {extent}"),
        None => format!("{written} does not lie within its extent {extent} for each value of it"),
    };
    let last = extent.checked_sub(&Dim::constant(1)).ok_or_else(overflow)?;
    match *entry {
        SliceInfoElem::Index(index) => {
            let start = bound(index)?;
            ensure!(start.at_least(0) && start.at_most(&last),
                "{}", shown(format!("index {index}"), extent);
                help "indices are 0 to extent - 1, or -1 to -extent from the end");
            let limit = start.checked_add(&Dim::constant(1)).ok_or_else(overflow)?;
            Ok(Part { start, limit, step: 1, is_index: true })
        }
        SliceInfoElem::Slice { start, end, step } => {
            ensure!(step.checked_abs().is_some_and(|step| step > 0), "a step of {step}";
                help "a step is 1 or more, or negative to go back");
            let (from, to) = (bound(start)?, end.map_or(Ok(extent.clone()), bound)?);
            ensure!(from.at_least(0) && from.at_most(&to) && to.at_most(extent),
                "{}", shown(written(start, end), extent);
                help "bounds are 0 to the extent, or negative from the end, and the first is not \
                      above the second");
            Ok(Part { start: from, limit: to, step: step as i64, is_index: false })
        }
        SliceInfoElem::NewAxis => unreachable!("a new axis takes no part of an axis"),
    }
}

/// A range as the user wrote it.
fn written(start: isize, end: Option<isize>) -> String {
    format!("{start}..{}", end.map_or(String::new(), |end| end.to_string()))
}
