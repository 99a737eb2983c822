//! Quantization with scales and zero points, as integer arithmetic.

use super::{Call, Row, one, row};
use crate::model::{Element, dtype};
use crate::refusal::{Class, refuse};
use crate::value::Value;
use wengert_core::op::{Binary, Unary};
use wengert_core::{DType, Diagnostic, Dim, Result, Tensor};

pub(super) const ROWS: &[Row] = &[
    row("QuantizeLinear", 10, |call| {
        let (x, scale) = (call.tensor(0)?, call.tensor(1)?);
        let zero = call.given(2).map(|_| call.carried(2)).transpose()?;
        let of_zero = zero.as_ref().map(|(zero, narrow)| match narrow {
            Some(narrow) => Element::Narrow(*narrow),
            None => Element::Plain(zero.dtype()),
        });
        let to = call.element("output_dtype")?.or(of_zero).unwrap_or(Element::Plain(DType::U8));
        let along = Along::of(call, &x, 1)?;
        let scale = along.spread(&scale)?;
        let zero = zero.map(|(zero, _)| along.spread(&zero)).transpose()?;
        let precision = match call.int("precision", 0)? {
            0 => x.dtype(),
            number => dtype(i32::try_from(number).unwrap_or(0))?,
        };
        let quotient = x.convert(precision) / scale.convert(precision);
        let saturate = call.flag("saturate", true)?;
        let result = match to {
            Element::Narrow(narrow) if !narrow.is_integer() => narrow.cast(&quotient, saturate),
            Element::Plain(to) if to.is_float8() => {
                let largest = if to == DType::F8E4M3FN { 448.0 } else { 57344.0 };
                let wide = quotient.convert(DType::F32);
                if saturate { wide.clamp(-largest, largest) } else { wide }.convert(to)
            }
            _ => quantized(&quotient, zero.as_ref(), to)?,
        };
        Ok(vec![Value::of(result, to.narrow())])
    }),
    row("DequantizeLinear", 10, |call| {
        let ((x, _), scale) = (call.carried(0)?, call.tensor(1)?);
        let zero = call.given(2).map(|_| call.carried(2)).transpose()?;
        let to = match call.int("output_dtype", 0)? {
            0 => scale.dtype(),
            number => dtype(i32::try_from(number).unwrap_or(0))?,
        };
        let along = Along::of(call, &x, 1)?;
        let scale = along.spread(&scale)?.convert(DType::F32);
        let number = match zero {
            Some((zero, _)) if x.dtype().is_integer() => {
                let wide = x.convert(DType::I32) - along.spread(&zero)?.convert(DType::I32);
                wide.convert(DType::F32)
            }
            _ => x.convert(DType::F32),
        };
        one((number * scale).convert(to))
    }),
    row("DynamicQuantizeLinear", 11, |call| {
        let x = call.tensor(0)?;
        let zero = Tensor::constant(0f32);
        let axes: Vec<i64> = (0..x.rank() as i64).collect();
        let high = x.max_axes(&axes).binary(Binary::Max, &zero);
        let low = x.min_axes(&axes).binary(Binary::Min, &zero);
        let scale = (&high - &low) / 255.0;
        let point = (-low / &scale).clamp(0.0, 255.0).unary(Unary::Round).convert(DType::U8);
        let quotient = &x / &scale;
        let y = quantized(&quotient, Some(&point), Element::Plain(DType::U8))?;
        Ok([y, scale, point].map(Value::Tensor).into())
    }),
    row("QLinearConv", 10, |call| {
        let (x, w) = (call.tensor(0)?, call.ranked(3, 2)?);
        // A filter has a zero point and a scale, or each of its channels of out.
        let of_filters = |t: Tensor, axes: usize| match t.rank() {
            1 => t.unsqueeze(&(1..=axes as i64).collect::<Vec<_>>()),
            _ => t,
        };
        let centred = |t: &Tensor, zero: Tensor| t.convert(DType::I32) - zero.convert(DType::I32);
        let x = centred(&x, call.tensor(2)?);
        let w = centred(&w, of_filters(call.tensor(5)?, w.rank() - 1));
        let sums = super::product::convolution(call, &x, &w, call.optional(8)?)?;
        let [Value::Tensor(sums)] = &sums[..] else { unreachable!("it has one result") };
        let (scale, zero) = (call.tensor(6)?, call.tensor(7)?);
        let own = of_filters(call.tensor(4)?, w.rank() - 2);
        let units = sums.convert(DType::F32) * (call.tensor(1)? * own / scale);
        one(quantized(&units, Some(&zero), Element::Plain(zero.dtype()))?)
    }),
    row("QLinearMatMul", 10, |call| {
        let side = |n: usize, of_rows: bool| -> Result<(Tensor, Tensor)> {
            let (x, scale, zero) = (call.tensor(n)?, call.tensor(n + 1)?, call.tensor(n + 2)?);
            let column = |t: &Tensor| match t.rank() {
                1 if of_rows && t.shape() != [Dim::constant(1)] => t.unsqueeze(-1),
                _ => t.clone(),
            };
            let centred = x.convert(DType::I32) - column(&zero).convert(DType::I32);
            Ok((centred, column(&scale)))
        };
        let ((a, a_scale), (b, b_scale)) = (side(0, true)?, side(3, false)?);
        let sums = a.matmul(&b).convert(DType::F32);
        let scales = a_scale.convert(DType::F32) * b_scale.convert(DType::F32);
        let (scale, zero) = (call.tensor(6)?.convert(DType::F32), call.tensor(7)?);
        one(quantized(&(sums * (scales / scale)), Some(&zero), Element::Plain(zero.dtype()))?)
    }),
];

/// Numbers in units of the scale, rounded, with the zero point, in a dtype of integers.
fn quantized(units: &Tensor, zero: Option<&Tensor>, to: Element) -> Result<Tensor> {
    let (low, high) = match to {
        Element::Plain(DType::U8) => (0.0, 255.0),
        Element::Plain(DType::I8) => (-128.0, 127.0),
        Element::Narrow(narrow) => narrow.range(),
        Element::Plain(to) => {
            return Err(refuse(Class::DType, format!("quantization to {to}")));
        }
    };
    let rounded = units.convert(DType::F32).unary(Unary::Round);
    let moved = match zero {
        Some(zero) => rounded + zero.convert(DType::F32),
        None => rounded,
    };
    Ok(moved.clamp(low, high).convert(DType::I32).convert(to.carrier()))
}

/// How scales belong to a tensor: one for all, for each entry of an axis, or for blocks of it.
struct Along {
    shape: Vec<Dim>,
    axis: usize,
    block: i64,
}

impl Along {
    fn of(call: &Call<'_, '_, '_>, x: &Tensor, usual: i64) -> Result<Along> {
        let axis = call.int("axis", usual)?;
        let axis = if x.rank() == 0 { 0 } else { call.axis(axis, x.rank()).unwrap_or(0) };
        Ok(Along { shape: x.shape().to_vec(), axis, block: call.int("block_size", 0)? })
    }

    /// Scales in a shape that broadcasts with the tensor.
    fn spread(&self, scales: &Tensor) -> Result<Tensor> {
        if self.block > 0 && self.axis < self.shape.len() {
            let repeated = scales.repeat_interleave(self.block, self.axis);
            return Ok(repeated.slice_axis(self.axis, 0, self.shape[self.axis].clone()));
        }
        match scales.rank() {
            0 => Ok(scales.clone()),
            1 if scales.shape() == [Dim::constant(1)] => Ok(scales.reshape(Vec::<Dim>::new())),
            1 => {
                let after = self.shape.len().checked_sub(1 + self.axis);
                let after = after.ok_or_else(|| {
                    Diagnostic::new(format!("scales of type {} for a scalar", scales.ty()))
                })?;
                Ok(scales.unsqueeze(&(1..=after as i64).collect::<Vec<_>>()))
            }
            _ => Err(Diagnostic::new(format!("scales of type {}", scales.ty()))),
        }
    }
}
