//! Products and convolutions.

use super::window::{Geometry, spatial};
use super::{Call, Row, one, row};
use crate::value::Value;
use wengert_core::op::ConvGeneralDilated;
use wengert_core::{DType, Diagnostic, Dim, Result, Tensor};

pub(super) const ROWS: &[Row] = &[
    row("MatMul", 1, |call| one(call.tensor(0)?.matmul(&call.tensor(1)?))),
    row("MatMulInteger", 10, |call| {
        let x = centred(&call.tensor(0)?, call.optional(2)?, false)?;
        let w = centred(&call.tensor(1)?, call.optional(3)?, true)?;
        one(x.matmul(&w))
    }),
    row("Gemm", 1, |call| {
        let turned = |n: usize, name: &str| -> Result<Tensor> {
            let x = call.tensor(n)?;
            Ok(if call.flag(name, false)? { x.matrix_transpose() } else { x })
        };
        let product = turned(0, "transA")?.matmul(&turned(1, "transB")?);
        let (alpha, beta) = (call.float("alpha", 1.0)?, call.float("beta", 1.0)?);
        let scaled = |x: Tensor, by: f64| if by == 1.0 { x } else { x * by };
        let product = scaled(product, alpha);
        one(match call.optional(2)? {
            Some(c) => product + scaled(c, beta),
            None => product,
        })
    }),
    row("Einsum", 12, |call| {
        let equation = call.text("equation", "")?.replace(' ', "");
        one(Tensor::einsum(&equation, &call.tensors()?))
    }),
    row("Conv", 1, |call| {
        let (x, w) = (call.tensor(0)?, call.tensor(1)?);
        convolution(call, &x, &w, call.optional(2)?)
    }),
    row("ConvInteger", 10, |call| {
        let x = centred(&call.tensor(0)?, call.optional(2)?, false)?;
        let w = call.tensor(1)?;
        let zero = call.optional(3)?;
        let zero = zero.map(|z| match (z.rank(), w.rank()) {
            (1, rank) => z.unsqueeze(&(1..rank as i64).collect::<Vec<_>>()),
            _ => z,
        });
        let w = centred(&w, zero, false)?;
        convolution(call, &x, &w, None)
    }),
    row("ConvTranspose", 1, transposed),
];

/// Integers minus their zero point, as i32.
fn centred(x: &Tensor, zero: Option<Tensor>, of_columns: bool) -> Result<Tensor> {
    let wide = x.convert(DType::I32);
    let Some(zero) = zero else { return Ok(wide) };
    let zero = zero.convert(DType::I32);
    // Of lhs there is one for each row.
    let zero = match (zero.rank(), of_columns) {
        (1, false) if zero.shape() != [Dim::constant(1)] => zero.unsqueeze(-1),
        _ => zero,
    };
    Ok(wide - zero)
}

/// Axes of images and filters with channels first.
fn channels_first(rank: usize) -> Vec<usize> {
    (0..rank).collect()
}

/// A convolution of each channel with a filter of its own, along one axis, without padding.
pub(super) fn depthwise(x: &Tensor, w: &Tensor, bias: Option<Tensor>) -> Tensor {
    let op = ConvGeneralDilated {
        stride: vec![1],
        padding: vec![(Dim::constant(0), Dim::constant(0))],
        lhs_dilation: vec![],
        rhs_dilation: vec![],
        feature_group_count: w.shape()[0].clone(),
        batch_group_count: Dim::constant(1),
        lhs_spec: channels_first(3),
        rhs_spec: channels_first(3),
        out_spec: channels_first(3),
        result: None,
    };
    with_bias(Tensor::apply(op, &[x, w]), bias, 1)
}

pub(super) fn convolution(
    call: &Call<'_, '_, '_>,
    x: &Tensor,
    w: &Tensor,
    bias: Option<Tensor>,
) -> Result<Vec<Value>> {
    let axes = spatial(x)?;
    let extents: Vec<Dim> = match call.some_ints("kernel_shape")? {
        Some(shape) => shape.into_iter().map(Dim::constant).collect(),
        None => w.shape().iter().skip(2).cloned().collect(),
    };
    let geometry = Geometry::of(call, x, &extents)?;
    let op = ConvGeneralDilated {
        stride: geometry.strides,
        padding: geometry.padding,
        lhs_dilation: vec![],
        rhs_dilation: geometry.dilations,
        feature_group_count: Dim::constant(call.int("group", 1)?),
        batch_group_count: Dim::constant(1),
        lhs_spec: channels_first(axes + 2),
        rhs_spec: channels_first(axes + 2),
        out_spec: channels_first(axes + 2),
        result: None,
    };
    let product = Tensor::apply(op, &[x, w]);
    one(with_bias(product, bias, axes))
}

fn with_bias(product: Tensor, bias: Option<Tensor>, axes: usize) -> Tensor {
    match bias {
        Some(bias) => product + bias.unsqueeze(&(1..=axes as i64).collect::<Vec<_>>()),
        None => product,
    }
}

/// The transpose of a convolution: a convolution of the operand with holes between its elements,
/// by the reversed filter.
fn transposed(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (x, w) = (call.tensor(0)?, call.tensor(1)?);
    let axes = spatial(&x)?;
    if w.rank() != x.rank() {
        return Err(Diagnostic::new(format!("a filter {} for {}", w.ty(), x.ty())));
    }
    let group = call.int("group", 1)?;
    let ones = || vec![1i64; axes];
    let strides = call.some_ints("strides")?.unwrap_or_else(ones);
    let dilations = call.some_ints("dilations")?.unwrap_or_else(ones);
    let extra = call.some_ints("output_padding")?.unwrap_or_else(|| vec![0; axes]);
    let mut pads = call.some_ints("pads")?.unwrap_or_else(|| vec![0; 2 * axes]);
    if [strides.len(), dilations.len(), extra.len()].iter().any(|n| *n != axes)
        || pads.len() != 2 * axes
    {
        return Err(Diagnostic::new(format!("attributes are not of {axes} axes")));
    }
    let kernel = w.shape()[2..]
        .iter()
        .map(|d| {
            d.as_constant().ok_or_else(|| Diagnostic::new("the filter's extents are not known"))
        })
        .collect::<Result<Vec<i64>>>()?;
    let reach = |n: usize| dilations[n] * (kernel[n] - 1) + 1;
    let auto = call.text("auto_pad", "NOTSET")?.to_owned();
    let wanted = call.some_ints("output_shape")?;
    for n in 0..axes {
        let total = match (&wanted, auto.as_str()) {
            (Some(shape), _) => {
                let extent = x.shape()[2 + n].as_constant().ok_or_else(|| {
                    Diagnostic::new("`output_shape` of an extent that is not known")
                })?;
                let out = shape.iter().rev().nth(axes - 1 - n).ok_or_else(|| {
                    Diagnostic::new(format!("`output_shape` is {shape:?} for {axes} axes"))
                })?;
                Some(strides[n] * (extent - 1) + extra[n] + reach(n) - out)
            }
            (None, "SAME_UPPER" | "SAME_LOWER") => Some(reach(n) + extra[n] - strides[n]),
            (None, "VALID") => Some(0),
            _ => None,
        };
        if let Some(total) = total {
            let small = total.div_euclid(2);
            let (low, high) = match auto.as_str() {
                "SAME_UPPER" => (small, total - small),
                _ => (total - small, small),
            };
            (pads[n], pads[axes + n]) = (low, high);
        }
    }
    let padding = (0..axes).map(|n| {
        let low = reach(n) - 1 - pads[n];
        let high = reach(n) - 1 - pads[axes + n] + extra[n];
        (Dim::constant(low), Dim::constant(high))
    });
    let plain = |list: &[i64]| list.iter().map(|n| *n as usize).collect::<Vec<_>>();
    // The filter is [channels, channels of out in a group, …]: its groups become groups of out.
    let [channels, inner] = [&w.shape()[0], &w.shape()[1]].map(Clone::clone);
    let groups = Dim::constant(group);
    let own = channels
        .checked_exact_div(&groups)
        .ok_or_else(|| Diagnostic::new(format!("{channels} channels in {group} groups")))?;
    let rest = w.shape()[2..].to_vec();
    let filters = [vec![groups.clone(), own.clone(), inner.clone()], rest.clone()].concat();
    let mut order: Vec<i64> = (0..filters.len() as i64).collect();
    order.swap(1, 2);
    let all = inner.checked_mul(&groups).ok_or_else(|| Diagnostic::new("too many channels"))?;
    let w = w.reshape(filters).permute(&order).reshape([vec![all, own], rest].concat());
    let w = w.reverse(&(2..2 + axes as i64).collect::<Vec<_>>());
    let op = ConvGeneralDilated {
        stride: vec![1; axes],
        padding: padding.collect(),
        lhs_dilation: plain(&strides),
        rhs_dilation: plain(&dilations),
        feature_group_count: groups,
        batch_group_count: Dim::constant(1),
        lhs_spec: channels_first(axes + 2),
        rhs_spec: channels_first(axes + 2),
        out_spec: channels_first(axes + 2),
        result: None,
    };
    let product = Tensor::apply(op, &[&x, &w]);
    one(with_bias(product, call.optional(2)?, axes))
}
