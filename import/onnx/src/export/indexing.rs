//! Positions from data: gathers, scatters, and orders.

use super::elementwise::{choose, computed};
use super::graph::{Exporter, Value, attribute_int, attribute_text};
use super::table::{Rule, rule};
use super::walk::{Call, constant, refuse};
use wengert_core::call::ScatterKind;
use wengert_core::op::{Argsort, Gather};
use wengert_core::{DType, Dim, Op, Result, Scalar, Tensor, TensorType, diagnostic};

pub(super) const RULES: &[Rule] = &[
    rule("gather", "Gather", gather),
    rule("dynamic_slice", "Gather along each axis that is cut", |e, c| {
        let Op::DynamicSlice(op) = c.op else { unreachable!("the rule of dynamic_slice") };
        let mut x = e.full(c, 0)?;
        for (axis, size) in op.slice_sizes.iter().enumerate() {
            let extent = x.ty.shape[axis].clone();
            if *size == extent {
                continue;
            }
            let (types, values) = (&c.types[axis + 1..axis + 2], &c.values[axis + 1..axis + 2]);
            let positions = e.compute(values, types, |start| {
                let along = Tensor::iota(DType::I64, [size.clone()], 0);
                vec![along + clamped(&start[0], &extent, size)]
            })?;
            x = gathered(e, &x, &positions[0], axis);
        }
        Ok(vec![x])
    }),
    rule("dynamic_update_slice", "Gather, Where", dynamic_update_slice),
    rule("take_along_axis", "GatherElements", |e, c| {
        let Op::TakeAlongAxis(op) = c.op else { unreachable!("the rule of take_along_axis") };
        let extent = c.types[0].shape[op.axis].clone();
        let x = e.full(c, 0)?;
        let positions = e.compute(&c.values[1..], &c.types[1..], |x| {
            vec![clamped(&x[0], &extent, &Dim::constant(1))]
        })?;
        let positions = e.expanded(&positions[0], &c.types[1].shape)?;
        Ok(vec![along(e, &x, &positions, op.axis)])
    }),
    rule("scatter", "ScatterND, for `unique_indices` only", scatter),
    rule("scatter_add", "ScatterND", scatter),
    rule("scatter_mul", "ScatterND", scatter),
    rule("scatter_min", "ScatterND", scatter),
    rule("scatter_max", "ScatterND", scatter),
    rule("segment_sum", "ScatterND", |e, c| {
        let ty = c.results[0].clone();
        e.composed(c, |x| {
            let rows = &x[0].shape()[0];
            let ids = x[1].reshape([rows.clone(), Dim::constant(1)]);
            let add = wengert_core::op::Scatter {
                kind: ScatterKind::Add,
                update_window_dims: (1..x[0].rank()).collect(),
                inserted_window_dims: vec![0],
                scatter_dims_to_operand_dims: vec![0],
                operand_batching_dims: vec![],
                scatter_indices_batching_dims: vec![],
                clip: false,
                unique_indices: false,
            };
            let wide = ty.dtype.wide();
            let zeros = Tensor::zeros(&ty.with_dtype(wide));
            vec![Tensor::apply(add, &[&zeros, &ids, &x[0].convert(wide)]).convert(ty.dtype)]
        })
    }),
    rule("argsort", "TopK, for an extent that is a number", argsort),
    rule("sort", "TopK, GatherElements", |e, c| e.decomposed(c)),
    rule("top_k_indices", "TopK", |e, c| {
        let Op::TopKIndices(op) = c.op else { unreachable!("the rule of top_k_indices") };
        let axis = c.types[0].rank() - 1;
        let x = e.full(c, 0)?;
        let [_, positions] = ordered(e, &x, axis, op.k, true)?;
        Ok(vec![e.cast(&positions, c.results[0].dtype)])
    }),
    rule("top_k", "TopK", |e, c| {
        let Op::TopK(op) = c.op else { unreachable!("the rule of top_k") };
        let x = e.full(c, 0)?;
        let [values, positions] = ordered(e, &x, op.axis, op.k, true)?;
        Ok(vec![values, e.cast(&positions, DType::I32)])
    }),
];

/// Starts as i64, moved so that a window of this size lies within the extent.
fn clamped(start: &Tensor, extent: &Dim, size: &Dim) -> Tensor {
    let last = extent.checked_sub(size).unwrap_or_else(|| Dim::constant(0));
    let start = signed(start);
    start.min(Tensor::dim_as_value(last, DType::I64)).max(0)
}

/// Slices of `x` at positions along an axis, in whose place their axes are.
fn gathered(e: &mut Exporter, x: &Value, positions: &Value, axis: usize) -> Value {
    let shape = [&x.ty.shape[..axis], &positions.ty.shape, &x.ty.shape[axis + 1..]].concat();
    let attribute = attribute_int("axis", axis as i64);
    e.op("Gather", &[x, positions], vec![attribute], x.ty.with_shape(shape))
}

/// Elements of `x` at positions along an axis.
fn along(e: &mut Exporter, x: &Value, positions: &Value, axis: usize) -> Value {
    let attribute = attribute_int("axis", axis as i64);
    let ty = x.ty.with_shape(positions.ty.shape.clone());
    e.op("GatherElements", &[x, positions], vec![attribute], ty)
}

fn gather(e: &mut Exporter, c: &Call<'_>) -> Result<Vec<Value>> {
    let Op::Gather(op) = c.op else { unreachable!("the rule of gather") };
    let x = e.full(c, 0)?;
    let table = &c.types[0];
    let rank = c.types[1].rank() - 1;
    if let [axis] = op.start_index_map[..]
        && *op == Gather::along(table, axis, rank)
    {
        let extent = table.shape[axis].clone();
        let shape = c.types[1].shape[..rank].to_vec();
        let positions = e.compute(&c.values[1..], &c.types[1..], |x| {
            vec![clamped(&x[0].reshape(shape.clone()), &extent, &Dim::constant(1))]
        })?;
        let positions = e.expanded(&positions[0], &shape)?;
        return Ok(vec![gathered(e, &x, &positions, axis)]);
    }
    // Each element by its number among all.
    let (sizes, result) = (&op.slice_sizes, c.results[0].shape.clone());
    let window = |axis: usize| {
        let dropped = |axes: &[usize]| axes.contains(&axis);
        !dropped(&op.collapsed_slice_dims) && !dropped(&op.operand_batching_dims)
    };
    let kept: Vec<usize> = (0..table.rank()).filter(|axis| window(*axis)).collect();
    let positions = Positions {
        operand: table,
        sizes,
        starts: &op.start_index_map,
        batching: (&op.operand_batching_dims, &op.start_indices_batching_dims),
        window: kept.into_iter().zip(op.offset_dims.iter().copied()).collect(),
        shape: &result,
        clip: op.fill.is_none(),
    };
    let mut made = e.compute(&c.values[1..], &c.types[1..], |x| positions.of(&x[0]))?;
    let [numbers, inside] = [made.remove(0), made.remove(0)];
    let flat = e.reshaped(&x, &[Dim::constant(-1)])?;
    let numbers = e.expanded(&numbers, &result)?;
    let taken = gathered(e, &flat, &numbers, 0);
    match op.fill {
        Some(fill) => {
            let fill = e.scalar(fill);
            let chosen = choose(e, &inside, &taken, &fill);
            Ok(vec![e.expanded(&chosen, &result)?])
        }
        None => Ok(vec![taken]),
    }
}

/// The numbers of elements of an operand in row-major order, for each element of windows.
struct Positions<'a> {
    operand: &'a TensorType,
    /// Extents of the window.
    sizes: &'a [Dim],
    /// For each component of an index vector, the operand's axis.
    starts: &'a [usize],
    /// Axes of the operand, and those of the indices that give them.
    batching: (&'a [usize], &'a [usize]),
    /// Axes of the operand, and those of the windows' elements along them.
    window: Vec<(usize, usize)>,
    /// The shape of all windows.
    shape: &'a [Dim],
    clip: bool,
}

impl Positions<'_> {
    /// The numbers, and whether the window lies within the operand. Where it does not, numbers
    /// are 0.
    fn of(&self, indices: &Tensor) -> Vec<Tensor> {
        let last = indices.rank() - 1;
        let outside: Vec<usize> = (0..self.shape.len())
            .filter(|axis| !self.window.iter().any(|(_, own)| own == axis))
            .collect();
        let whole = self.shape.to_vec();
        let spread = |x: &Tensor| x.broadcast_in_dim(whole.clone(), &outside);
        let zero = Tensor::zeros(&TensorType::of(DType::I64, whole.clone()));
        let mut number = zero.clone();
        let mut inside = zero.eq(0);
        for axis in 0..self.operand.rank() {
            let (extent, size) = (&self.operand.shape[axis], &self.sizes[axis]);
            let mut at = zero.clone();
            if let Some(n) = self.starts.iter().position(|own| *own == axis) {
                let n = n as i64;
                let start = indices.slice_axis(last, n, n + 1).squeeze(last as i64);
                let limited = spread(&clamped(&start, extent, size));
                if !self.clip {
                    let same = limited.eq(spread(&signed(&start)));
                    inside = inside.and(&same);
                }
                at = at + limited;
            }
            if let Some(n) = self.batching.0.iter().position(|own| *own == axis) {
                let own = outside[self.batching.1[n]];
                at = at + Tensor::iota(DType::I64, whole.clone(), own as i64);
            }
            if let Some((_, own)) = self.window.iter().find(|(of, _)| *of == axis) {
                at = at + Tensor::iota(DType::I64, whole.clone(), *own as i64);
            }
            number = number * Tensor::dim_as_value(extent.clone(), DType::I64) + at;
        }
        vec![inside.select(&number, &zero), inside]
    }
}

/// Indices as i64. A large u64 is beyond the end, not before the start.
fn signed(start: &Tensor) -> Tensor {
    match start.dtype() {
        DType::U64 => start.min(i64::MAX).convert(DType::I64),
        _ => start.convert(DType::I64),
    }
}

fn scatter(e: &mut Exporter, c: &Call<'_>) -> Result<Vec<Value>> {
    let Op::Scatter(op) = c.op else { unreachable!("the rule of scatters") };
    let dtype = c.dtype();
    let reduction = match op.kind {
        ScatterKind::Add => "add",
        ScatterKind::Mul => "mul",
        ScatterKind::Min => "min",
        ScatterKind::Max => "max",
        ScatterKind::Replace => "none",
    };
    if op.kind == ScatterKind::Replace && !op.unique_indices {
        return refuse(
            "of several updates of an element ONNX keeps any, not the last",
            "say `unique_indices`, if no element has two updates",
        );
    }
    let carrier = match dtype {
        DType::U64 if matches!(op.kind, ScatterKind::Min | ScatterKind::Max) => {
            return refuse("runtimes have no extrema of u64", "convert the operand to i64");
        }
        DType::Bool => DType::I32,
        half if half.is_half() => DType::F32,
        other => computed(other),
    };
    let (table, updates) = (&c.types[0], &c.types[2]);
    let lacks = |axis: &usize| {
        op.inserted_window_dims.contains(axis) || op.operand_batching_dims.contains(axis)
    };
    let kept: Vec<usize> = (0..table.rank()).filter(|axis| !lacks(axis)).collect();
    let window: Vec<(usize, usize)> =
        kept.into_iter().zip(op.update_window_dims.iter().copied()).collect();
    let size = |axis: usize| {
        let own = window.iter().find(|(of, _)| *of == axis);
        own.map_or(Dim::constant(1), |(_, own)| updates.shape[*own].clone())
    };
    let sizes: Vec<Dim> = (0..table.rank()).map(size).collect();
    let positions = Positions {
        operand: table,
        sizes: &sizes,
        starts: &op.scatter_dims_to_operand_dims,
        batching: (&op.operand_batching_dims, &op.scatter_indices_batching_dims),
        window,
        shape: &updates.shape,
        clip: op.clip,
    };
    let overflow = || diagnostic!("the elements of {table} have no number");
    let mut count = Dim::constant(1);
    for dim in &table.shape {
        count = count.checked_mul(dim).ok_or_else(overflow)?;
    }
    // What lies outside goes to one more element, which is dropped.
    let more = count.checked_add(&Dim::constant(1)).ok_or_else(overflow)?;
    let mut made = e.compute(&c.values[1..2], &c.types[1..2], |x| {
        let [number, inside] = <[Tensor; 2]>::try_from(positions.of(&x[0]))
            .unwrap_or_else(|_| unreachable!("numbers, and whether they are inside"));
        let beyond = Tensor::dim_as_value(count.clone(), DType::I64);
        vec![inside.select(&number, beyond.broadcast_to(number.shape())).unsqueeze(-1)]
    })?;
    let numbers = made.remove(0);
    let shape = [updates.shape.as_slice(), &[Dim::constant(1)]].concat();
    let numbers = e.expanded(&numbers, &shape)?;
    let x = e.full(c, 0)?;
    let x = e.cast(&x, carrier);
    let flat = e.reshaped(&x, std::slice::from_ref(&count))?;
    let zero = e.scalar(Scalar::zero(carrier));
    let none = e.reshaped(&zero, &[Dim::constant(1)])?;
    let ty = TensorType::of(carrier, vec![more]);
    let longer = e.op("Concat", &[&flat, &none], vec![attribute_int("axis", 0)], ty.clone());
    let updates = e.full(c, 2)?;
    let updates = e.cast(&updates, carrier);
    let attribute = attribute_text("reduction", reduction);
    let result = e.op("ScatterND", &[&longer, &numbers, &updates], vec![attribute], ty);
    let (first, last) = (e.ints(&[0]), e.dim(&count)?);
    let flat = TensorType::of(carrier, vec![count]);
    let all = e.op("Slice", &[&result, &first, &last, &first], vec![], flat);
    let result = e.reshaped(&all, &table.shape)?;
    Ok(vec![e.cast(&result, dtype)])
}

/// Where the update lies, its elements; elsewhere those of x.
fn dynamic_update_slice(e: &mut Exporter, c: &Call<'_>) -> Result<Vec<Value>> {
    let (x, mut update) = (e.full(c, 0)?, e.full(c, 1)?);
    let (table, part) = (&c.types[0], &c.types[1]);
    let mut inside: Option<Value> = None;
    for axis in 0..table.rank() {
        let (extent, size) = (&table.shape[axis], &part.shape[axis]);
        if extent == size {
            continue;
        }
        if *size == Dim::constant(0) {
            return Ok(vec![x]);
        }
        let start = axis + 2;
        let made = e.compute(&c.values[start..=start], &c.types[start..=start], |start| {
            let along = Tensor::iota(DType::I64, [extent.clone()], 0);
            let at = along - clamped(&start[0], extent, size);
            let size = Tensor::dim_as_value(size.clone(), DType::I64);
            let within = at.ge(0).and(at.lt(&size));
            let mut shape = vec![Dim::constant(1); table.rank()];
            shape[axis] = extent.clone();
            vec![at.min(&size - 1).max(0), within.reshape(shape)]
        })?;
        update = gathered(e, &update, &made[0], axis);
        inside = Some(match inside {
            None => made[1].clone(),
            Some(inside) => e.elementwise("And", &[&inside, &made[1]], DType::Bool),
        });
    }
    Ok(vec![match inside {
        None => update,
        Some(inside) => choose(e, &inside, &update, &x),
    }])
}

/// The `k` greatest or least elements along an axis in order, and their positions as i64. Of equal
/// elements, the first comes first.
fn ordered(
    e: &mut Exporter,
    x: &Value,
    axis: usize,
    k: usize,
    descending: bool,
) -> Result<[Value; 2]> {
    let dtype = x.ty.dtype;
    let carrier = match dtype {
        DType::U64 => {
            return refuse("runtimes have no order of u64", "convert the operand to i64");
        }
        DType::Bool => DType::I32,
        half if half.is_half() => DType::F32,
        other => computed(other),
    };
    let x = e.cast(x, carrier);
    let count = e.ints(&[k as i64]);
    let attributes = vec![
        attribute_int("axis", axis as i64),
        attribute_int("largest", i64::from(descending)),
        attribute_int("sorted", 1),
    ];
    let mut shape = x.ty.shape.clone();
    shape[axis] = Dim::from(k);
    let types = vec![TensorType::of(carrier, shape.clone()), TensorType::of(DType::I64, shape)];
    let mut results = e.node("TopK", &[&x, &count], attributes, types);
    let positions = results.remove(1);
    let values = results.remove(0);
    Ok([e.cast(&values, dtype), positions])
}

/// Sorted by the last key first: an order is stable.
fn argsort(e: &mut Exporter, c: &Call<'_>) -> Result<Vec<Value>> {
    let Op::Argsort(op) = c.op else { unreachable!("the rule of argsort") };
    let Argsort { axis, descending } = *op;
    let n = constant(&c.types[0].shape[axis])? as usize;
    let keys = e.all_full(c)?;
    let mut order: Option<Value> = None;
    for key in keys.iter().rev() {
        let key = match &order {
            Some(order) => along(e, key, order, axis),
            None => key.clone(),
        };
        let [_, next] = ordered(e, &key, axis, n, descending)?;
        order = Some(match &order {
            Some(order) => along(e, order, &next, axis),
            None => next,
        });
    }
    let order = order.expect("infer requires a key");
    Ok(vec![e.cast(&order, c.results[0].dtype)])
}
