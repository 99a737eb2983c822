//! Methods of [`Tensor`] that join tensors, split them, repeat them and move elements around.
//!
//! *Repeat* means two things, so neither method has that name alone. Of `[1, 2]`:
//!
//! | method | PyTorch | NumPy | result |
//! |---|---|---|---|
//! | [`tile`](Tensor::tile)`([2])` | `repeat`, `tile` | `tile` | `[1, 2, 1, 2]` |
//! | [`repeat_interleave`](Tensor::repeat_interleave)`(2, 0)` | `repeat_interleave` | `repeat` | `[1, 1, 2, 2]` |

use super::axes::{Axes, Axis, new_positions, position};
use super::failure::{composed, composed_many};
use super::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result, bail, ensure};
use crate::dim::Dim;
use crate::text::joined;

impl Tensor {
    /// Tensors of one type along a new axis. Of two `[3]`, the result is `[2,3]` along axis 0, and
    /// `[3,2]` along −1, the last axis of the result.
    ///
    /// # Errors
    /// There is no tensor; types differ; the result has no such axis.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, Tensor, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::F32, [3]));
    /// let y = x.exp();
    /// assert_eq!(Tensor::stack(&[&x, &y], 0).ty().to_string(), "f32[2,3]");
    /// assert_eq!(Tensor::stack(&[x, y], -1).ty().to_string(), "f32[3,2]");
    /// # }).expect("the example is right");
    /// ```
    #[track_caller]
    pub fn stack(parts: &[impl AsRef<Tensor>], axis: impl Axis) -> Tensor {
        let parts: Vec<&Tensor> = parts.iter().map(AsRef::as_ref).collect();
        composed("stack", &parts, || {
            let Some(first) = parts.first() else {
                bail!("there is no tensor to stack"; help "give at least one");
            };
            if let Some(i) = parts.iter().position(|part| part.ty() != first.ty()) {
                bail!("part 0 has type {}, part {i} has {}", first.ty(), parts[i].ty();
                    help "all parts have one type; `concatenate` joins parts along an old axis");
            }
            let axis = new_positions(first.ty(), &[axis.number()])?[0];
            let rows: Vec<Tensor> = parts.iter().map(|part| part.unsqueeze(axis)).collect();
            Ok(Tensor::concatenate(&rows, axis))
        })
    }

    /// The parts of a tensor along an axis, which is removed: the inverse of
    /// [`stack`](Self::stack). Of `[2,3]`, `unstack(0)` is two tensors `[3]`. On an error there is
    /// one result, which is poisoned.
    ///
    /// # Errors
    /// There is no such axis; its extent is a dimension variable.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::F32, [2, 3]));
    /// let columns = x.unstack(-1);
    /// assert_eq!((columns.len(), columns[0].ty().to_string()), (3, "f32[2]".into()));
    /// # }).expect("the example is right");
    /// ```
    #[track_caller]
    pub fn unstack(&self, axis: impl Axis) -> Vec<Tensor> {
        composed_many("unstack", &[self], || {
            let axis = position(self.ty(), axis.number())?;
            let count = self.known_extent(axis)?;
            Ok((0..count).map(|i| self.slice_axis(axis, i, i + 1).squeeze(axis)).collect())
        })
    }

    /// Parts of these extents along an axis, in order. Of `[7,3]`, `split([2, 5], 0)` is a tensor
    /// `[2,3]` and a tensor `[5,3]`. One extent may be [`Dim::INFER`]. On an error there is one
    /// result, which is poisoned.
    ///
    /// # Errors
    /// There is no such axis; the extents do not add up to its extent.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, Dim, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::F32, ["B".into(), Dim::from(7)]));
    /// let parts = x.split([2, 5], -1);
    /// assert_eq!(parts[1].ty().to_string(), "f32[B,5]");
    /// let [first, others] = &x.split([1, -1], 0)[..] else { panic!("two parts") };
    /// assert_eq!(others.ty().to_string(), "f32[B+-1,7]");
    /// # }).expect("the example is right");
    /// ```
    #[track_caller]
    pub fn split<D: Into<Dim>>(
        &self,
        extents: impl IntoIterator<Item = D>,
        axis: impl Axis,
    ) -> Vec<Tensor> {
        let extents: Vec<Dim> = extents.into_iter().map(Into::into).collect();
        composed_many("split", &[self], || {
            let axis = position(self.ty(), axis.number())?;
            let extents = filled_up(&extents, &self.shape()[axis])
                .map_err(|d| d.context(format_args!("axis {axis} of {}", self.ty())))?;
            let mut start = Dim::constant(0);
            let mut parts = Vec::with_capacity(extents.len());
            for extent in extents {
                let end = start.checked_add(&extent).ok_or_else(|| {
                    Diagnostic::new("the extents overflow").help("give smaller extents")
                })?;
                parts.push(self.slice_axis(axis, start, end.clone()));
                start = end;
            }
            Ok(parts)
        })
    }

    /// `count` equal parts along an axis, in order. Of `[6,3]`, `chunk(2, 0)` is two tensors
    /// `[3,3]`. On an error there is one result, which is poisoned.
    ///
    /// # Errors
    /// There is no such axis; the count is 0 or does not divide its extent.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::F32, [2, 6]));
    /// let [q, k, v] = &x.chunk(3, -1)[..] else { panic!("three parts") };
    /// assert_eq!(v.ty().to_string(), "f32[2,2]");
    /// # }).expect("the example is right");
    /// ```
    #[track_caller]
    pub fn chunk(&self, count: usize, axis: impl Axis) -> Vec<Tensor> {
        composed_many("chunk", &[self], || {
            let axis = position(self.ty(), axis.number())?;
            ensure!(count > 0, "0 parts of {}", self.ty(); help "ask for at least one part");
            let extent = &self.shape()[axis];
            let Some(part) = extent.checked_exact_div(&Dim::from(count)) else {
                bail!("axis {axis} of {} has extent {extent}, which {count} does not divide",
                    self.ty();
                    help "`split` takes the extent of each part");
            };
            let extents = vec![part; count];
            Ok(self.split(extents, axis))
        })
    }

    /// The whole tensor, repeated along each axis: `tile` of NumPy, `repeat` and `tile` of PyTorch.
    /// If there are fewer numbers than axes, they are those of the last axes; if there are more,
    /// the tensor gets leading axes of extent 1. Of `[1, 2]`, `tile([2])` is `[1, 2, 1, 2]`, and
    /// `tile([3, 2])` has three such rows.
    ///
    /// # Errors
    /// An extent would be negative or overflow.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::F32, [2, 3]));
    /// assert_eq!(x.tile([2, 4]).ty().to_string(), "f32[4,12]");
    /// assert_eq!(x.tile([4]).ty().to_string(), "f32[2,12]");
    /// # }).expect("the example is right");
    /// ```
    #[doc(alias = "repeat")]
    #[track_caller]
    pub fn tile<D: Into<Dim>>(&self, times: impl IntoIterator<Item = D>) -> Tensor {
        let mut times: Vec<Dim> = times.into_iter().map(Into::into).collect();
        composed("tile", &[self], || {
            let one = Dim::constant(1);
            let rank = times.len().max(self.rank());
            times.splice(0..0, vec![one.clone(); rank - times.len()]);
            let own = [vec![one; rank - self.rank()], self.shape().to_vec()].concat();
            // [a, b] is broadcast to [times of a, a, times of b, b], whose axes merge in pairs.
            let wide: Vec<Dim> = times
                .iter()
                .zip(&own)
                .flat_map(|(n, extent)| [n.clone(), extent.clone()])
                .collect();
            let places: Vec<usize> = (rank - self.rank()..rank).map(|axis| 2 * axis + 1).collect();
            let merged = products(&times, &own)?;
            Ok(self.broadcast_in_dim(wide, &places).reshape(merged))
        })
    }

    /// Each element, repeated `times` times in a row along an axis: `repeat_interleave` of PyTorch,
    /// `repeat` of NumPy. Of `[1, 2]`, `repeat_interleave(2, 0)` is `[1, 1, 2, 2]`.
    ///
    /// # Errors
    /// There is no such axis; the extent would be negative or overflow.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::F32, [2, 3]));
    /// assert_eq!(x.repeat_interleave(4, -1).ty().to_string(), "f32[2,12]");
    /// # }).expect("the example is right");
    /// ```
    #[doc(alias = "repeat")]
    #[track_caller]
    pub fn repeat_interleave(&self, times: impl Into<Dim>, axis: impl Axis) -> Tensor {
        let times = times.into();
        composed("repeat_interleave", &[self], || {
            let axis = position(self.ty(), axis.number())?;
            let mut wide = self.shape().to_vec();
            let mut merged = wide.clone();
            merged[axis] = products(std::slice::from_ref(&times), &wide[axis..=axis])?.remove(0);
            wide.insert(axis + 1, times);
            let places: Vec<usize> = (0..self.rank()).map(|a| a + usize::from(a > axis)).collect();
            Ok(self.broadcast_in_dim(wide, &places).reshape(merged))
        })
    }

    /// The elements in reverse order along axes: [`reverse`](Self::reverse) by the name of NumPy
    /// and PyTorch.
    ///
    /// # Errors
    /// There is no such axis; an axis is named twice.
    #[track_caller]
    pub fn flip(&self, axes: impl Axes) -> Tensor {
        self.reverse(axes)
    }

    /// The elements moved by `shift` places along an axis; those that leave at one end enter at the
    /// other. A negative shift moves towards index 0. Of `[1, 2, 3]`, `roll(1, 0)` is `[3, 1, 2]`.
    ///
    /// # Errors
    /// There is no such axis; its extent is a dimension variable that may be smaller than the
    /// shift.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, interpret, DType, Literal, TensorType};
    /// # let function = FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::I32, [4]));
    /// f.output("right", x.roll(1, 0));
    /// f.output("left", x.roll(-1, 0));
    /// # }).expect("the example is right");
    /// # let x = Literal::from_vec(&[4], vec![1i32, 2, 3, 4]).expect("four elements");
    /// # let y = interpret::run(&function, &[x]).expect("it runs");
    /// assert_eq!(y[0].as_slice::<i32>(), Some(&[4, 1, 2, 3][..]));
    /// assert_eq!(y[1].as_slice::<i32>(), Some(&[2, 3, 4, 1][..]));
    /// ```
    #[track_caller]
    pub fn roll(&self, shift: i64, axis: impl Axis) -> Tensor {
        composed("roll", &[self], || {
            let axis = position(self.ty(), axis.number())?;
            let extent = &self.shape()[axis];
            let shift = match extent.as_constant() {
                Some(0) => 0,
                Some(extent) => shift.rem_euclid(extent),
                None => shift,
            };
            if shift == 0 {
                return Ok(self.clone());
            }
            // The elements from `cut` on come first.
            let cut = match shift > 0 {
                true => extent.checked_sub(&Dim::constant(shift)),
                false => shift.checked_neg().map(Dim::constant),
            };
            let Some(cut) = cut.filter(|cut| cut.at_least(0) && cut.at_most(extent)) else {
                bail!("axis {axis} of {} may be shorter than the shift {shift}", self.ty();
                    help "give the axis a number, or shift by less");
            };
            let front = self.slice_axis(axis, cut.clone(), extent.clone());
            let back = self.slice_axis(axis, 0, cut);
            Ok(Tensor::concatenate(&[front, back], axis))
        })
    }

    /// The extent of an axis as a number.
    fn known_extent(&self, axis: usize) -> Result<usize> {
        match self.shape()[axis].as_extent() {
            Some(extent) => Ok(extent),
            None => bail!("axis {axis} of {} has no number as extent", self.ty();
                help "give the axis a number; `scan` and `vmap` go over a variable one"),
        }
    }
}

/// The products of pairs of extents.
fn products(a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>> {
    let product = |(m, n): (&Dim, &Dim)| match m.checked_mul(n) {
        Some(product) => Ok(product),
        None => bail!("the extent ({m})·({n}) is no dimension"; help "give one of them a number"),
    };
    a.iter().zip(b).map(product).collect()
}

/// Extents of the parts of an axis, with the inferred one as a number.
fn filled_up(extents: &[Dim], whole: &Dim) -> Result<Vec<Dim>> {
    let shown = || joined(extents, " + ");
    let open: Vec<usize> = (0..extents.len()).filter(|i| extents[*i] == Dim::INFER).collect();
    let given = extents.iter().filter(|extent| **extent != Dim::INFER);
    let sum = given.clone().try_fold(Dim::constant(0), |sum, extent| sum.checked_add(extent));
    let rest = sum.and_then(|sum| whole.checked_sub(&sum));
    let rest = rest.filter(|rest| given.clone().all(|e| e.at_least(0)) && rest.at_least(0));
    match (&open[..], rest) {
        ([open], Some(rest)) => {
            let mut full = extents.to_vec();
            full[*open] = rest;
            Ok(full)
        }
        ([], Some(rest)) if rest == Dim::constant(0) => Ok(extents.to_vec()),
        ([_, _, ..], _) => bail!("{} extents of {} are open", open.len(), shown();
            help "one extent may be -1 (`Dim::INFER`); the others are given"),
        _ => bail!("parts of {} do not fill extent {whole}", shown();
            help "the extents of the parts add up to that of the axis; one of them may be -1, \
                  which takes what is left"),
    }
}
