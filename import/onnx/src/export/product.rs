//! Products of matrices, convolutions, and triangular systems.

use super::elementwise::computed;
use super::graph::{Exporter, Value, attribute_int, attribute_ints};
use super::movement::{dilated, padded, reversed};
use super::table::{Rule, rule};
use super::walk::{Call, constant, refuse};
use wengert_core::op::ConvGeneralDilated;
use wengert_core::{DType, Dim, Op, Result, TensorType, diagnostic};

pub(super) const RULES: &[Rule] = &[
    rule("dot_general", "MatMul, Transpose, Reshape", dot_general),
    rule("conv_general_dilated", "Conv, ConvTranspose, Transpose, Pad", convolution),
    rule("triangular_solve", "MatMul, Div and others, for extents that are numbers", |e, c| {
        e.decomposed_bound(c)
    }),
];

/// The number of elements along axes.
fn product(shape: &[Dim], axes: &[usize]) -> Result<Dim> {
    axes.iter().try_fold(Dim::constant(1), |product, axis| {
        product.checked_mul(&shape[*axis]).ok_or_else(|| {
            diagnostic!("the product of extents {} and {product} has no name", shape[*axis])
                .help("bind a dimension variable: `--bind NAME=N`")
        })
    })
}

fn extents(shape: &[Dim], axes: &[usize]) -> Vec<Dim> {
    axes.iter().map(|axis| shape[*axis].clone()).collect()
}

/// The dtype of the factors, and that in which a runtime multiplies them.
fn factors(dtype: DType, result: Option<DType>) -> (DType, DType) {
    let result = result.unwrap_or(dtype);
    let carrier = match result {
        DType::Bool => DType::I32,
        other => computed(other),
    };
    (result, carrier)
}

fn dot_general(e: &mut Exporter, c: &Call<'_>) -> Result<Vec<Value>> {
    let Op::DotGeneral(op) = c.op else { unreachable!("the rule of dot_general") };
    let (dtype, carrier) = factors(c.dtype(), op.result);
    let sides = [(&op.batch.0, &op.contract.0), (&op.batch.1, &op.contract.1)];
    let mut operands = vec![];
    let mut free = vec![];
    for (n, (batch, contract)) in sides.into_iter().enumerate() {
        let x = e.full(c, n)?;
        let x = if dtype == x.ty.dtype { x } else { e.cast(&x, dtype) };
        let x = e.cast(&x, carrier);
        let rank = x.ty.rank();
        let rest: Vec<usize> =
            (0..rank).filter(|a| !batch.contains(a) && !contract.contains(a)).collect();
        operands.push(x);
        free.push(rest);
    }
    let (a, b) = (&operands[0], &operands[1]);
    let depth = product(&a.ty.shape, &op.contract.0)?;
    let batch = extents(&a.ty.shape, &op.batch.0);
    let rows = extents(&a.ty.shape, &free[0]);
    let columns = extents(&b.ty.shape, &free[1]);
    // A matrix on the right is multiplied by all rows of any number of axes.
    let many = op.batch.0.is_empty() && !rows.is_empty() && op.contract.0.len() == 1;
    let first = [op.batch.0.as_slice(), &free[0], &op.contract.0].concat();
    let second = [op.batch.1.as_slice(), &op.contract.1, &free[1]].concat();
    let (a, b) = (e.permuted(a, &first), e.permuted(b, &second));
    let height = match many {
        true => rows.clone(),
        false => vec![product(&operands[0].ty.shape, &free[0])?],
    };
    let width = product(&operands[1].ty.shape, &free[1])?;
    let left = [batch.as_slice(), &height, std::slice::from_ref(&depth)].concat();
    let right = [batch.as_slice(), &[depth, width.clone()]].concat();
    let (a, b) = (e.reshaped(&a, &left)?, e.reshaped(&b, &right)?);
    let shape = [batch.as_slice(), &height, &[width]].concat();
    let result = e.op("MatMul", &[&a, &b], vec![], TensorType::of(carrier, shape));
    let wanted = [batch, rows, columns].concat();
    let result = e.reshaped(&result, &wanted)?;
    Ok(vec![e.cast(&result, dtype)])
}

/// The layouts of the operands and the result: axes of batch (or result features), features,
/// spatial axes.
fn layouts(op: &ConvGeneralDilated, rank: usize) -> [Vec<usize>; 3] {
    let or = |spec: &[usize], default: &dyn Fn() -> Vec<usize>| {
        if spec.is_empty() { default() } else { spec.to_vec() }
    };
    let image = || [0, rank - 1].into_iter().chain(1..rank - 1).collect::<Vec<_>>();
    let filter = || [rank - 1, rank - 2].into_iter().chain(0..rank - 2).collect::<Vec<_>>();
    [or(&op.lhs_spec, &image), or(&op.rhs_spec, &filter), or(&op.out_spec, &image)]
}

fn convolution(e: &mut Exporter, c: &Call<'_>) -> Result<Vec<Value>> {
    let Op::ConvGeneralDilated(op) = c.op else { unreachable!("the rule of convolutions") };
    if op.batch_group_count != Dim::constant(1) {
        return refuse(
            "ONNX has no convolution with groups of the batch",
            "they occur in derivatives: export the function itself",
        );
    }
    let (dtype, carrier) = factors(c.dtype(), op.result);
    if !carrier.is_float() {
        return refuse(
            "ONNX has no convolution of integers",
            "convert the operands to f32 or f64, or give the result such a dtype",
        );
    }
    let rank = c.types[0].rank();
    let spatial = rank - 2;
    let [lhs, rhs, out] = layouts(op, rank);
    let [x, w] = [e.full(c, 0)?, e.full(c, 1)?];
    let [x, w] = [x, w].map(|value| {
        let value = e.cast(&value, dtype);
        e.cast(&value, carrier)
    });
    let (mut x, w) = (e.permuted(&x, &lhs), e.permuted(&w, &rhs));
    let kernel = w.ty.shape[2..].iter().map(constant).collect::<Result<Vec<_>>>()?;
    let of = |list: &[usize], axis: usize| list.get(axis).map_or(1, |n| *n as i64);
    let groups = constant(&op.feature_group_count)?;
    let shape: Vec<Dim> = out.iter().map(|axis| c.results[0].shape[*axis].clone()).collect();
    let ty = TensorType::of(carrier, shape);
    let holes = (0..spatial).any(|axis| of(&op.lhs_dilation, axis) != 1);
    let mut result = None;
    if holes {
        result = transposed(e, op, &x, &w, &kernel, groups, &ty)?;
    }
    let result = match result {
        Some(result) => result,
        None => {
            let zero = e.number(carrier, 0.0);
            for axis in 0..spatial {
                let by = op.lhs_dilation.get(axis).copied().unwrap_or(1);
                x = dilated(e, &x, axis + 2, by, &zero)?;
            }
            conv(e, op, &x, &w, &kernel, groups, ty)?
        }
    };
    let mut back = vec![0; rank];
    out.iter().enumerate().for_each(|(role, axis)| back[*axis] = role);
    let result = e.permuted(&result, &back);
    Ok(vec![e.cast(&result, dtype)])
}

/// A convolution of an image `[N, C, …]` with filters `[O, I, …]`.
fn conv(
    e: &mut Exporter,
    op: &ConvGeneralDilated,
    x: &Value,
    w: &Value,
    kernel: &[i64],
    groups: i64,
    ty: TensorType,
) -> Result<Value> {
    let spatial = kernel.len();
    let known: Option<Vec<(i64, i64)>> = op
        .padding
        .iter()
        .map(|(low, high)| Some((low.as_constant()?, high.as_constant()?)))
        .collect();
    let known = known.filter(|pads| pads.iter().all(|(low, high)| *low >= 0 && *high >= 0));
    let (mut x, mut pads) = (x.clone(), vec![0; 2 * spatial]);
    match known {
        Some(known) => {
            for (axis, (low, high)) in known.into_iter().enumerate() {
                pads[axis] = low as usize;
                pads[spatial + axis] = high as usize;
            }
        }
        None => {
            let none = [Dim::constant(0), Dim::constant(0)];
            let side = |high: bool| {
                let dims = op.padding.iter().map(|(l, h)| if high { h } else { l }.clone());
                none.iter().cloned().chain(dims).collect::<Vec<_>>()
            };
            let (low, high) = (side(false), side(true));
            let sum =
                |axis: usize| x.ty.shape[axis].checked_add(&low[axis])?.checked_add(&high[axis]);
            let shape = (0..x.ty.rank()).map(sum).collect::<Option<Vec<_>>>();
            let shape = shape.ok_or_else(|| diagnostic!("a padded extent overflows"))?;
            let zero = e.number(x.ty.dtype, 0.0);
            x = padded(e, &x, &low, &high, &zero, &x.ty.with_shape(shape))?;
        }
    }
    let one = |list: &[usize]| (0..spatial).map(|a| list.get(a).copied().unwrap_or(1)).collect();
    let (strides, dilations): (Vec<usize>, Vec<usize>) = (one(&op.stride), one(&op.rhs_dilation));
    let attributes = vec![
        attribute_ints("kernel_shape", kernel.iter().map(|k| *k as usize)),
        attribute_ints("strides", strides),
        attribute_ints("pads", pads),
        attribute_ints("dilations", dilations),
        attribute_int("group", groups),
    ];
    Ok(e.op("Conv", &[&x, w], attributes, ty))
}

/// A convolution of an image with holes as the transpose of one; `None` if its padding does not
/// fit.
fn transposed(
    e: &mut Exporter,
    op: &ConvGeneralDilated,
    x: &Value,
    w: &Value,
    kernel: &[i64],
    groups: i64,
    ty: &TensorType,
) -> Result<Option<Value>> {
    let spatial = kernel.len();
    if op.stride.iter().any(|stride| *stride != 1) {
        return Ok(None);
    }
    let of = |list: &[usize], axis: usize| list.get(axis).copied().unwrap_or(1);
    let (mut pads, mut more) = (vec![0; 2 * spatial], vec![0; spatial]);
    for axis in 0..spatial {
        let (low, high) = &op.padding[axis];
        let (Some(low), Some(high)) = (low.as_constant(), high.as_constant()) else {
            return Ok(None);
        };
        let reach = (kernel[axis] - 1) * of(&op.rhs_dilation, axis) as i64;
        let Ok(before) = usize::try_from(reach - low) else { return Ok(None) };
        pads[axis] = before;
        match usize::try_from(reach - high) {
            Ok(after) => pads[spatial + axis] = after,
            Err(_) => {
                more[axis] = (high - reach) as usize;
                if more[axis] >= of(&op.lhs_dilation, axis) {
                    return Ok(None);
                }
            }
        }
    }
    // Filters [O, I, …] of g groups become [g·I, O/g, …], reversed.
    let (outputs, inputs) = (constant(&w.ty.shape[0])?, w.ty.shape[1].clone());
    let axes: Vec<usize> = (2..w.ty.rank()).collect();
    let mut flipped = reversed(e, w, &axes);
    let each = Dim::constant(outputs / groups);
    if groups == 1 {
        let order: Vec<usize> = [1, 0].into_iter().chain(axes.iter().copied()).collect();
        flipped = e.permuted(&flipped, &order);
    } else {
        let rest = &w.ty.shape[2..];
        let split = [&[Dim::constant(groups), each.clone(), inputs.clone()], rest].concat();
        let order: Vec<usize> = [0, 2, 1].into_iter().chain(3..split.len()).collect();
        let whole = inputs
            .checked_scale(groups)
            .ok_or_else(|| diagnostic!("{inputs} features of {groups} groups overflow"))?;
        let merged = [&[whole, each], rest].concat();
        flipped = e.reshaped(&flipped, &split)?;
        flipped = e.permuted(&flipped, &order);
        flipped = e.reshaped(&flipped, &merged)?;
    }
    let one = |list: &[usize]| (0..spatial).map(|a| of(list, a)).collect::<Vec<_>>();
    let attributes = vec![
        attribute_ints("kernel_shape", kernel.iter().map(|k| *k as usize)),
        attribute_ints("strides", one(&op.lhs_dilation)),
        attribute_ints("pads", pads),
        attribute_ints("output_padding", more),
        attribute_ints("dilations", one(&op.rhs_dilation)),
        attribute_int("group", groups),
    ];
    Ok(Some(e.op("ConvTranspose", &[x, &flipped], attributes, ty.clone())))
}
