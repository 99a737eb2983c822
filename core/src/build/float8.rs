//! Methods of [`Tensor`] for 8-bit floats: quantization with scales, and products of the results.
//!
//! A scale is an f32 for the whole tensor or for each row. It makes the largest element of its part
//! the largest number of the format, since a format has only 15 (f8e4m3fn) or 30 (f8e5m2) binary
//! orders of magnitude (Micikevicius et al., *FP8 Formats for Deep Learning*, 2022, §3).

use super::axes::{Axes, positions};
use super::failure::{composed, composed_many};
use super::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result, ensure};
use crate::dtype::DType;
use crate::float8::Layout;
use crate::op::DotGeneral;
use crate::scalar::Scalar;

impl Tensor {
    /// The tensor in an 8-bit float, and its scale: `self` ≈ quantized · scale.
    ///
    /// There is one scale for all elements along `axes`, which it keeps with extent 1: of `[m,k]`,
    /// `..` gives one scale `[1,1]`, and `-1` one for each row, `[m,1]`. It is the greatest
    /// magnitude divided by the largest number of `dtype`, in f32; 1 where all elements are 0. An
    /// element that is not finite makes its scale infinite or NaN.
    ///
    /// It has no derivative. To train through it, add the difference as a constant:
    /// `&x + (dequantized - &x).stop_gradient()`.
    ///
    /// # Errors
    /// The tensor is not of floats; `dtype` is no 8-bit float; there is no such axis; an axis is
    /// named twice.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let w = f.input("w", TensorType::new(DType::F32, [64, 10]));
    /// let (quantized, scale) = w.quantize(DType::F8E4M3FN, 0);
    /// assert_eq!(quantized.ty().to_string(), "f8e4m3fn[64,10]");
    /// assert_eq!(scale.ty().to_string(), "f32[1,10]");
    /// # }).expect("the example is right");
    /// ```
    #[track_caller]
    pub fn quantize(&self, dtype: DType, axes: impl Axes) -> (Tensor, Tensor) {
        let axes = axes.numbers(self.rank());
        let mut parts = composed_many("quantize", &[self], || {
            let layout = layout(dtype)?;
            ensure!(self.dtype().is_float(), "{} is not of floats", self.ty();
                help "convert it to f32");
            let axes = positions(self.ty(), &axes)?;
            let x = self.convert(DType::F32);
            let greatest = x.abs().max_keepdims(&axes);
            let largest = Scalar::from_bits(dtype, u64::from(layout.largest)).to_f64();
            let scale = greatest.eq(0.0).select(1.0, &(greatest / largest));
            Ok(vec![(x / &scale).convert(dtype), scale])
        });
        let scale = parts.pop().expect("there is a scale, or one poisoned tensor");
        (parts.pop().unwrap_or_else(|| scale.clone()), scale)
    }

    /// The numbers of a tensor of 8-bit floats times their scale, in f32: the inverse of
    /// [`quantize`](Tensor::quantize) up to its rounding. The scale broadcasts against the tensor.
    ///
    /// # Errors
    /// The tensor is not of 8-bit floats; the scale is not f32, or does not broadcast.
    #[track_caller]
    pub fn dequantize(&self, scale: &Tensor) -> Tensor {
        composed("dequantize", &[self, scale], || {
            layout(self.dtype())?;
            is_scale(scale)?;
            Ok(self.convert(DType::F32) * scale)
        })
    }

    /// Matrix product of quantized tensors, in f32: `[…,m,k] · [k,n]` is `[…,m,n]`, that is
    /// (self · scale) · (weight · weight_scale).
    ///
    /// The scales are one for each tensor, or one for each row of `self` (`[…,m,1]`) and for each
    /// column of `weight` (`[1,n]`), as [`quantize`](Tensor::quantize) gives them. Products of two
    /// 8-bit floats are exact. They are summed in f32, and the sum is multiplied by both scales.
    /// GPUs since sm_89 do this in one call; their tensor cores add parts of a sum with about 14
    /// bits.
    ///
    /// # Errors
    /// An operand is not of 8-bit floats; `weight` is no matrix; extents of the axes that are
    /// summed over differ; a scale is not f32, or has an extent other than 1 along these axes.
    ///
    /// ```
    /// # use wengert_core::{build::FunctionBuilder, DType, TensorType};
    /// # FunctionBuilder::build("f", |f| {
    /// let x = f.input("x", TensorType::new(DType::BF16, [32, 64]));
    /// let w = f.input("w", TensorType::new(DType::F32, [64, 10]));
    /// let (w, w_scale) = w.quantize(DType::F8E4M3FN, 0);
    /// let (x, x_scale) = x.quantize(DType::F8E4M3FN, -1);
    /// let y = x.scaled_matmul(&x_scale, &w, &w_scale);
    /// assert_eq!(y.ty().to_string(), "f32[32,10]");
    /// # }).expect("the example is right");
    /// ```
    #[track_caller]
    pub fn scaled_matmul(&self, scale: &Tensor, weight: &Tensor, weight_scale: &Tensor) -> Tensor {
        composed("scaled_matmul", &[self, scale, weight, weight_scale], || {
            for operand in [self, weight] {
                layout(operand.dtype())?;
            }
            ensure!(self.rank() > 0 && weight.rank() == 2,
                "operands have types {} and {}", self.ty(), weight.ty();
                help "the weight is a matrix, and the other operand has an axis to sum over");
            let last = self.rank() - 1;
            let (k, l) = (&self.shape()[last], &weight.shape()[0]);
            ensure!(k == l,
                "axis {last} of {} has extent {k}, axis 0 of {} has {l}", self.ty(), weight.ty();
                help "the last axis of the operand is as long as the first of the weight");
            let product =
                DotGeneral { result: Some(DType::F32), ..DotGeneral::matmul(self.rank()) };
            // bf16 has all numbers of both formats.
            let factors = [self, weight].map(|t| t.convert(DType::BF16));
            let product = Tensor::apply(product, &[&factors[0], &factors[1]]);
            for (of, summed, scale) in [(self, last, scale), (weight, 0, weight_scale)] {
                is_scale(scale)?;
                let along = (scale.rank() + summed).checked_sub(of.rank());
                let extent = along.map(|axis| &scale.shape()[axis]);
                ensure!(
                    scale.rank() <= of.rank() && extent.is_none_or(|extent| *extent == 1.into()),
                    "the scale {} of {} is not constant along axis {summed}", scale.ty(), of.ty();
                    help "quantize along that axis, or along all axes (`..`)");
            }
            // The product lacks the axis of the weight that is summed over.
            let columns = match weight_scale.rank() {
                2 => weight_scale.squeeze(0),
                _ => weight_scale.clone(),
            };
            let scaled = &product * scale * columns;
            ensure!(scaled.shape() == product.shape(),
                "the scales {} and {} do not fit the product {}",
                scale.ty(), weight_scale.ty(), product.ty();
                help "a scale has the extents of its tensor, or 1");
            Ok(scaled)
        })
    }
}

/// The layout of an 8-bit float.
fn layout(dtype: DType) -> Result<Layout> {
    Layout::of(dtype).ok_or_else(|| {
        Diagnostic::new(format!("{dtype} is no 8-bit float")).help("there are f8e4m3fn and f8e5m2")
    })
}

fn is_scale(scale: &Tensor) -> Result<()> {
    ensure!(scale.dtype() == DType::F32, "a scale has type {}", scale.ty();
        help "scales are f32");
    Ok(())
}
