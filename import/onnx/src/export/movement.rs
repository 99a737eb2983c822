//! Ops that make and move elements.

use super::graph::{Exporter, Value, attribute_int, attribute_ints};
use super::table::{Rule, rule};
use super::walk::Call;
use wengert_core::{DType, Dim, Literal, Op, Result, TensorType};

pub(super) const RULES: &[Rule] = &[
    rule("constant", "Constant", |e, c| {
        let Op::Constant(op) = c.op else { unreachable!("the rule of constant") };
        // One number is a scalar, which every op repeats.
        let literal = match op.value.splat() {
            Some(splat) => Literal::full(&[], splat),
            None => op.value.clone(),
        };
        Ok(vec![e.constant(&literal)])
    }),
    rule("iota", "Range", iota),
    rule("dim_as_value", "Shape", |e, c| {
        let Op::DimAsValue(op) = c.op else { unreachable!("the rule of dim_as_value") };
        let dim = e.dim(&op.dim)?;
        let scalar = e.reshaped(&dim, &[])?;
        Ok(vec![e.cast(&scalar, op.dtype)])
    }),
    rule("broadcast_in_dim", "Unsqueeze, Expand, or none", broadcast_in_dim),
    rule("reshape", "Reshape", |e, c| {
        let Op::Reshape(op) = c.op else { unreachable!("the rule of reshape") };
        if e.splat(&c.values[0]).is_some() && c.values[0].ty.rank() == 0 {
            return Ok(c.values.clone());
        }
        let full = e.full(c, 0)?;
        Ok(vec![e.reshaped(&full, &op.shape)?])
    }),
    rule("permute", "Transpose", |e, c| {
        let Op::Permute(op) = c.op else { unreachable!("the rule of permute") };
        if c.values[0].ty.rank() == 0 {
            return Ok(c.values.clone());
        }
        let x = e.ranked(&c.values[0], c.types[0].rank())?;
        Ok(vec![e.permuted(&x, &op.permutation)])
    }),
    rule("slice", "Slice", |e, c| {
        let Op::Slice(op) = c.op else { unreachable!("the rule of slice") };
        let x = e.full(c, 0)?;
        let axes: Vec<usize> = (0..op.start.len())
            .filter(|axis| {
                op.start[*axis] != Dim::constant(0)
                    || op.limit[*axis] != c.types[0].shape[*axis]
                    || op.stride.get(*axis).is_some_and(|stride| *stride != 1)
            })
            .collect();
        let of = |dims: &[Dim]| axes.iter().map(|axis| dims[*axis].clone()).collect::<Vec<_>>();
        let strides: Vec<i64> =
            axes.iter().map(|axis| op.stride.get(*axis).copied().unwrap_or(1)).collect();
        Ok(vec![sliced(e, &x, &axes, &of(&op.start), &of(&op.limit), &strides, &c.results[0])?])
    }),
    rule("pad", "Pad, Slice", |e, c| {
        let Op::Pad(op) = c.op else { unreachable!("the rule of pad") };
        let x = e.full(c, 0)?;
        let fill = e.reshaped(&c.values[1], &[])?;
        let mut x = x;
        for (axis, holes) in op.interior.iter().enumerate() {
            let holes = usize::try_from(*holes).expect("infer admits no negative holes");
            x = dilated(e, &x, axis, holes + 1, &fill)?;
        }
        Ok(vec![padded(e, &x, &op.low, &op.high, &fill, &c.results[0])?])
    }),
    rule("concatenate", "Concat", |e, c| {
        let Op::Concatenate(op) = c.op else { unreachable!("the rule of concatenate") };
        let parts = e.all_full(c)?;
        let parts: Vec<&Value> = parts.iter().collect();
        let axis = attribute_int("axis", op.axis as i64);
        Ok(vec![e.op("Concat", &parts, vec![axis], c.results[0].clone())])
    }),
    rule("reverse", "Slice", |e, c| {
        let Op::Reverse(op) = c.op else { unreachable!("the rule of reverse") };
        let x = e.ranked(&c.values[0], c.types[0].rank())?;
        Ok(vec![reversed(e, &x, &op.axes)])
    }),
];

fn iota(e: &mut Exporter, c: &Call<'_>) -> Result<Vec<Value>> {
    let Op::Iota(op) = c.op else { unreachable!("the rule of iota") };
    let n = &op.shape[op.axis];
    // An extent is an i64.
    let dtype = match op.dtype {
        DType::F64 | DType::F32 | DType::I32 if n.as_constant().is_some() => op.dtype,
        _ => DType::I64,
    };
    let ty = TensorType::of(dtype, vec![n.clone()]);
    let [start, step] = [0.0, 1.0].map(|value| e.number(dtype, value));
    let limit = match n.as_constant() {
        Some(n) => e.number(dtype, n as f64),
        None => {
            let n = e.dim(n)?;
            e.reshaped(&n, &[])?
        }
    };
    let range = e.op("Range", &[&start, &limit, &step], vec![], ty);
    let range = e.cast(&range, op.dtype);
    let behind = op.shape.len() - op.axis - 1;
    if behind == 0 {
        return Ok(vec![range]);
    }
    let axes = e.axes(&(1..=behind).collect::<Vec<_>>());
    let shape = std::iter::once(n.clone()).chain(std::iter::repeat_n(Dim::constant(1), behind));
    let ty = range.ty.with_shape(shape.collect());
    Ok(vec![e.op("Unsqueeze", &[&range, &axes], vec![], ty)])
}

fn broadcast_in_dim(e: &mut Exporter, c: &Call<'_>) -> Result<Vec<Value>> {
    let Op::BroadcastInDim(op) = c.op else { unreachable!("the rule of broadcast_in_dim") };
    let value = &c.values[0];
    let one = Dim::constant(1);
    let missing = c.types[0].rank() - value.ty.rank();
    let mut shape = vec![one.clone(); op.shape.len()];
    for (axis, dim) in value.ty.shape.iter().enumerate() {
        shape[op.dims[missing + axis]] = dim.clone();
    }
    // Leading ones are left out: of the target, and of the operand.
    let stripped = |shape: &[Dim]| {
        shape.iter().position(|dim| *dim != one).map_or(vec![], |first| shape[first..].to_vec())
    };
    let target = stripped(&shape);
    if target == stripped(&value.ty.shape) {
        let few = value.ty.rank() <= op.shape.len();
        return Ok(vec![if few { value.clone() } else { e.reshaped(value, &target)? }]);
    }
    let reshaped = e.reshaped(value, &target)?;
    e.same_splat(value, &reshaped);
    Ok(vec![reshaped])
}

/// A box of `x` along some axes.
fn sliced(
    e: &mut Exporter,
    x: &Value,
    axes: &[usize],
    start: &[Dim],
    limit: &[Dim],
    strides: &[i64],
    ty: &TensorType,
) -> Result<Value> {
    if axes.is_empty() {
        return Ok(x.clone());
    }
    let (start, limit) = (e.shape(start)?, e.shape(limit)?);
    let axes = e.axes(axes);
    let steps = match strides.iter().all(|stride| *stride == 1) {
        true => Value::absent(),
        false => e.ints(strides),
    };
    Ok(e.op("Slice", &[x, &start, &limit, &axes, &steps], vec![], ty.clone()))
}

/// `x` with `low` and `high` elements before and after each axis; negative ones are removed.
pub(super) fn padded(
    e: &mut Exporter,
    x: &Value,
    low: &[Dim],
    high: &[Dim],
    fill: &Value,
    ty: &TensorType,
) -> Result<Value> {
    if low.iter().chain(high).all(|dim| *dim == Dim::constant(0)) {
        return Ok(x.clone());
    }
    let pads = e.shape(&[low, high].concat())?;
    // Runtimes pad numbers, and bytes.
    let carrier = match ty.dtype {
        DType::Bool => DType::U8,
        other => other,
    };
    let (x, fill) = (e.cast(x, carrier), e.cast(fill, carrier));
    let padded = e.op("Pad", &[&x, &pads, &fill], vec![], ty.with_dtype(carrier));
    Ok(e.cast(&padded, ty.dtype))
}

/// `x` with `by − 1` elements `fill` between neighbours along an axis.
pub(super) fn dilated(
    e: &mut Exporter,
    x: &Value,
    axis: usize,
    by: usize,
    fill: &Value,
) -> Result<Value> {
    let extent = x.ty.shape[axis].clone();
    if by == 1 || extent == Dim::constant(0) {
        return Ok(x.clone());
    }
    let overflow = || wengert_core::diagnostic!("extent {extent} · {by} overflows");
    let by = i64::try_from(by).map_err(|_| overflow())?;
    let whole = extent.checked_scale(by).ok_or_else(overflow)?;
    let limit = whole.checked_add(&Dim::constant(1 - by)).ok_or_else(overflow)?;
    let mut shape = x.ty.shape.clone();
    // [.., n, 1, ..], padded to [.., n, by, ..], is [.., n·by, ..].
    let mut split = shape.clone();
    split.insert(axis + 1, Dim::constant(1));
    let column = e.reshaped(x, &split)?;
    let zeros = vec![Dim::constant(0); split.len()];
    let mut high = zeros.clone();
    high[axis + 1] = Dim::constant(by - 1);
    split[axis + 1] = Dim::constant(by);
    let wide = padded(e, &column, &zeros, &high, fill, &x.ty.with_shape(split))?;
    shape[axis] = whole;
    let merged = e.reshaped(&wide, &shape)?;
    shape[axis] = limit.clone();
    let ty = x.ty.with_shape(shape);
    sliced(e, &merged, &[axis], &[Dim::constant(0)], &[limit], &[1], &ty)
}

/// `x` from the last element to the first along these axes.
pub(super) fn reversed(e: &mut Exporter, x: &Value, axes: &[usize]) -> Value {
    let one = Dim::constant(1);
    let axes: Vec<usize> = axes.iter().copied().filter(|axis| x.ty.shape[*axis] != one).collect();
    if axes.is_empty() {
        return x.clone();
    }
    let start = e.ints(&vec![-1; axes.len()]);
    let limit = e.ints(&vec![i64::MIN; axes.len()]);
    let (steps, axes) = (start.clone(), e.axes(&axes));
    e.op("Slice", &[x, &start, &limit, &axes, &steps], vec![], x.ty.clone())
}

impl Exporter {
    /// The value with all its elements.
    pub fn expanded(&mut self, value: &Value, shape: &[Dim]) -> Result<Value> {
        if value.ty.shape == shape {
            return Ok(value.clone());
        }
        let full = self.shape(shape)?;
        let ty = value.ty.with_shape(shape.to_vec());
        // Runtimes expand bools, but not all integers.
        let carrier = super::elementwise::computed(value.ty.dtype);
        let value = self.cast(value, carrier);
        let expanded = self.op("Expand", &[&value, &full], vec![], ty.with_dtype(carrier));
        let result = self.cast(&expanded, ty.dtype);
        self.same_splat(&value, &result);
        Ok(result)
    }

    /// The elements of a value in another shape.
    pub fn reshaped(&mut self, value: &Value, shape: &[Dim]) -> Result<Value> {
        if value.ty.shape == shape {
            return Ok(value.clone());
        }
        let ty = value.ty.with_shape(shape.to_vec());
        let empty = |dims: &[Dim]| dims.iter().any(|dim| *dim == Dim::constant(0));
        let unknown: Vec<usize> =
            (0..shape.len()).filter(|axis| shape[*axis].as_constant().is_none()).collect();
        // 0 copies an extent, and −1 is computed by the runtime.
        let copied = |axis: usize| value.ty.shape.get(axis) == Some(&shape[axis]);
        let open: Vec<usize> = unknown.iter().copied().filter(|axis| !copied(*axis)).collect();
        if !empty(shape) && open.len() <= 1 {
            let number = |axis: usize| match shape[axis].as_constant() {
                Some(number) => number,
                None if copied(axis) => 0,
                None => -1,
            };
            let numbers: Vec<i64> = (0..shape.len()).map(number).collect();
            let target = self.ints(&numbers);
            return Ok(self.op("Reshape", &[value, &target], vec![], ty));
        }
        let target = self.shape(shape)?;
        Ok(self.op("Reshape", &[value, &target], vec![attribute_int("allowzero", 1)], ty))
    }

    /// A value with permuted axes.
    pub fn permuted(&mut self, value: &Value, permutation: &[usize]) -> Value {
        if permutation.iter().enumerate().all(|(i, axis)| i == *axis) {
            return value.clone();
        }
        let shape = permutation.iter().map(|axis| value.ty.shape[*axis].clone()).collect();
        let ty = value.ty.with_shape(shape);
        let attribute = attribute_ints("perm", permutation.iter().copied());
        self.op("Transpose", &[value], vec![attribute], ty)
    }
}
