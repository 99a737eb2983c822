//! Methods of [`Tensor`] that read and write at computed indices: gathers, scatters and dynamic
//! slices. The dimension numbers of `jax.lax` are structs.

use super::axes::{Axis, or_poison, position};
use super::failure::composed;
use super::tensor::Tensor;
use crate::call::ScatterKind;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::location::Location;
use crate::op::{DynamicSlice, DynamicUpdateSlice, Gather, Scatter};
use crate::scalar::Scalar;

/// Roles of the axes in a gather; see [`Gather`]. Lists are empty by default.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct GatherDimensionNumbers {
    /// Axes of the result that are window axes, ascending.
    pub offset_dims: Vec<usize>,
    /// Axes of the operand that are dropped, ascending.
    pub collapsed_slice_dims: Vec<usize>,
    /// For each component of an index vector, the operand axis whose start it gives.
    pub start_index_map: Vec<usize>,
    /// Batch axes of the operand, ascending.
    pub operand_batching_dims: Vec<usize>,
    /// Batch axes of the indices, parallel to those of the operand.
    pub start_indices_batching_dims: Vec<usize>,
}

/// Result of a gather for a window that does not lie within the operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GatherMode {
    /// Starts are clamped.
    Clip,
    /// NaN for floats, the least signed and the greatest unsigned integer, and true: `fill` of
    /// lax without a value.
    Fill,
    /// This scalar, of the operand's dtype.
    FillWith(Scalar),
    /// The caller promises that there is no such window. Computed as [`GatherMode::Clip`], so the
    /// result is defined in any case.
    PromiseInBounds,
}

/// Roles of the axes in a scatter; see [`Scatter`]. Lists are empty by default.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ScatterDimensionNumbers {
    /// Axes of the updates that are window axes, ascending.
    pub update_window_dims: Vec<usize>,
    /// Axes of the operand that the updates lack, ascending.
    pub inserted_window_dims: Vec<usize>,
    /// For each component of an index vector, the operand axis whose start it gives.
    pub scatter_dims_to_operand_dims: Vec<usize>,
    /// Batch axes of the operand, ascending.
    pub operand_batching_dims: Vec<usize>,
    /// Batch axes of the indices, parallel to those of the operand.
    pub scatter_indices_batching_dims: Vec<usize>,
}

/// Effect of a scatter on a window that does not lie within the operand.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ScatterMode {
    /// No effect: `fill_or_drop` of lax.
    #[default]
    Drop,
    /// Starts are clamped.
    Clip,
    /// The caller promises that there is no such window. Computed as [`ScatterMode::Drop`], so
    /// the result is defined in any case.
    PromiseInBounds,
}

/// Options of a scatter.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ScatterOptions {
    /// Treatment of windows out of bounds.
    pub mode: ScatterMode,
    /// A promise that no element gets two updates, which makes derivatives shorter. The order of
    /// updates is fixed even without it.
    pub unique_indices: bool,
}

impl From<ScatterMode> for ScatterOptions {
    fn from(mode: ScatterMode) -> Self {
        ScatterOptions { mode, unique_indices: false }
    }
}

/// The default fill value of lax.
fn default_fill(dtype: DType) -> Scalar {
    match dtype {
        d if d.is_float() => Scalar::from_f64(d, f64::NAN),
        d if d.is_signed_integer() => Scalar::lowest(d),
        d => Scalar::highest(d),
    }
}

macro_rules! scatters {
    ($($(#[doc = $doc:literal])+ $name:ident $kind:ident;)*) => {
        impl Tensor {
            $($(#[doc = $doc])+
            #[track_caller]
            pub fn $name(
                &self,
                indices: &Tensor,
                updates: &Tensor,
                numbers: &ScatterDimensionNumbers,
                options: impl Into<ScatterOptions>,
            ) -> Tensor {
                let options = options.into();
                let op = Scatter {
                    kind: ScatterKind::$kind,
                    update_window_dims: numbers.update_window_dims.clone(),
                    inserted_window_dims: numbers.inserted_window_dims.clone(),
                    scatter_dims_to_operand_dims: numbers.scatter_dims_to_operand_dims.clone(),
                    operand_batching_dims: numbers.operand_batching_dims.clone(),
                    scatter_indices_batching_dims: numbers.scatter_indices_batching_dims.clone(),
                    clip: options.mode == ScatterMode::Clip,
                    unique_indices: options.unique_indices,
                };
                Tensor::apply(op, &[self, indices, updates])
            })*
        }
    };
}

scatters! {
    /// `scatter`: windows are replaced by the updates. Of several updates of an element the last
    /// one wins.
    scatter Replace;
    /// `scatter_add`: updates are added, in their order.
    scatter_add Add;
    /// `scatter_mul`: elements are multiplied by updates, in their order.
    scatter_mul Mul;
    /// `scatter_min`: the least of each element and its updates.
    scatter_min Min;
    /// `scatter_max`: the greatest of each element and its updates.
    scatter_max Max;
}

impl Tensor {
    /// `gather`: windows of extents `slice_sizes` at computed positions. The last axis of the
    /// indices is the index vector.
    #[track_caller]
    pub fn gather<D: Into<Dim>>(
        &self,
        indices: &Tensor,
        numbers: &GatherDimensionNumbers,
        slice_sizes: impl IntoIterator<Item = D>,
        mode: GatherMode,
    ) -> Tensor {
        let op = Gather {
            offset_dims: numbers.offset_dims.clone(),
            collapsed_slice_dims: numbers.collapsed_slice_dims.clone(),
            start_index_map: numbers.start_index_map.clone(),
            slice_sizes: slice_sizes.into_iter().map(Into::into).collect(),
            operand_batching_dims: numbers.operand_batching_dims.clone(),
            start_indices_batching_dims: numbers.start_indices_batching_dims.clone(),
            fill: match mode {
                GatherMode::Clip | GatherMode::PromiseInBounds => None,
                GatherMode::Fill => Some(default_fill(self.dtype())),
                GatherMode::FillWith(value) => Some(value),
            },
        };
        Tensor::apply(op, &[self, indices])
    }

    /// The entries of an axis at `indices` (integers): PyTorch's `index_select`, NumPy's `take`
    /// along an axis. The axes of the indices take the place of the axis: of `[2,5,3]`, axis 1 at
    /// indices
    /// `[4]` gives `[2,4,3]`. Indices out of bounds are clamped.
    ///
    /// # Errors
    /// There is no such axis; the indices are not integers; the axis has no elements.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::F32, [2, 5, 3]));
    /// let at = f.input("at", TensorType::new(DType::I32, [4]));
    /// assert_eq!(x.index_select(1, &at).ty().to_string(), "f32[2,4,3]");
    /// # }).expect("the example is right");
    /// ```
    #[doc(alias = "take")]
    #[track_caller]
    pub fn index_select(&self, axis: impl Axis, indices: &Tensor) -> Tensor {
        let number = axis.number();
        composed("index_select", &[self, indices], || {
            let axis = position(self.ty(), number)?;
            let indices = match indices.dtype() {
                DType::I32 | DType::I64 => indices.clone(),
                DType::I8 | DType::U8 => indices.convert(DType::I32),
                d if d.is_integer() => indices.convert(DType::I64),
                // The op's own rule reports the error.
                _ => indices.clone(),
            };
            let op = Gather::along(self.ty(), axis, indices.rank());
            Ok(Tensor::apply(op, &[self, &indices.unsqueeze(-1)]))
        })
    }

    /// `dynamic_slice`: a box of extents `slice_sizes` that begins at `starts`, clamped so that
    /// the box lies within the tensor. Starts are integer scalars, one for each axis, or one
    /// vector of all.
    #[track_caller]
    pub fn dynamic_slice<D: Into<Dim>>(
        &self,
        starts: &[&Tensor],
        slice_sizes: impl IntoIterator<Item = D>,
    ) -> Tensor {
        let starts = scalars(starts);
        let operands: Vec<&Tensor> = std::iter::once(self).chain(&starts).collect();
        let slice_sizes = slice_sizes.into_iter().map(Into::into).collect();
        Tensor::apply(DynamicSlice { slice_sizes }, &operands)
    }

    /// `dynamic_update_slice`: `self` with the box that begins at `starts` replaced by `update`.
    /// Starts are integer scalars, one for each axis, or one vector of all. They are clamped so
    /// that the box lies within the tensor.
    #[track_caller]
    pub fn dynamic_update_slice(&self, update: &Tensor, starts: &[&Tensor]) -> Tensor {
        let starts = scalars(starts);
        let operands: Vec<&Tensor> = [self, update].into_iter().chain(&starts).collect();
        Tensor::apply(DynamicUpdateSlice {}, &operands)
    }

    /// [`dynamic_slice`](Self::dynamic_slice) of `size` elements along one axis and of all
    /// elements along the others.
    #[track_caller]
    pub fn dynamic_slice_in_dim(
        &self,
        start: &Tensor,
        size: impl Into<Dim>,
        axis: impl Axis,
    ) -> Tensor {
        let axis = or_poison!(self.op_axis("dynamic_slice", axis));
        let mut sizes = self.shape().to_vec();
        let Some(along) = sizes.get_mut(axis) else { return self.no_axis("dynamic_slice", axis) };
        *along = size.into();
        self.dynamic_slice(&self.along(start, axis).iter().collect::<Vec<_>>(), sizes)
    }

    /// The element at an index along an axis, which is removed. The index is clamped.
    #[track_caller]
    pub fn dynamic_index_in_dim(&self, index: &Tensor, axis: impl Axis) -> Tensor {
        let axis = or_poison!(self.op_axis("dynamic_slice", axis));
        let mut shape = self.shape().to_vec();
        let slice = self.dynamic_slice_in_dim(index, 1usize, axis);
        if slice.error().is_some() {
            return slice;
        }
        shape.remove(axis);
        slice.reshape(shape)
    }

    /// [`dynamic_update_slice`](Self::dynamic_update_slice) that begins at 0 along all other
    /// axes.
    #[track_caller]
    pub fn dynamic_update_slice_in_dim(
        &self,
        update: &Tensor,
        start: &Tensor,
        axis: impl Axis,
    ) -> Tensor {
        let axis = or_poison!(self.op_axis("dynamic_update_slice", axis));
        if axis >= self.rank() {
            return self.no_axis("dynamic_update_slice", axis);
        }
        self.dynamic_update_slice(update, &self.along(start, axis).iter().collect::<Vec<_>>())
    }

    /// Starts with `start` for one axis and 0 for the others.
    fn along(&self, start: &Tensor, axis: usize) -> Vec<Tensor> {
        let zero = Tensor::constant(0i32);
        (0..self.rank()).map(|a| if a == axis { start.clone() } else { zero.clone() }).collect()
    }
}

/// Starts as scalars. If they are one vector, it is split.
#[track_caller]
fn scalars(starts: &[&Tensor]) -> Vec<Tensor> {
    match starts {
        [vector] if vector.rank() == 1 => match vector.shape()[0].as_extent() {
            Some(count) => {
                let _user = Location::caller().attributed();
                (0..count as i64)
                    .map(|i| vector.slice_axis(0, i, i + 1).reshape(Vec::<Dim>::new()))
                    .collect()
            }
            None => vec![(*vector).clone()],
        },
        _ => starts.iter().map(|t| (*t).clone()).collect(),
    }
}
