//! Composites: ops that are several equations elsewhere, and one node here.

use super::elementwise::computed;
use super::graph::{Exporter, Value, attribute_float, attribute_int};
use super::pattern::Pattern;
use super::table::{Rule, rule};
use super::walk::Call;
use wengert_core::op::{
    Attention, AttentionKind, DotGeneral, Normalize, NormalizeKind, Softmax, SoftmaxKind,
};
use wengert_core::{DType, Dim, Literal, Op, Result, Scalar, Tensor, TensorType};

pub(super) const RULES: &[Rule] = &[
    rule("softmax", "Softmax", |e, c| softmax(e, c, "Softmax")),
    rule("log_softmax", "LogSoftmax", |e, c| softmax(e, c, "LogSoftmax")),
    rule("logsumexp", "ReduceMax, Exp, ReduceSum, Log", |e, c| e.decomposed(c)),
    rule("standardize", "LayerNormalization", normalize),
    rule("rms_normalize", "RMSNormalization from op set 23 on, else Mul, ReduceMean", normalize),
    rule("softmax_cross_entropy", "Exp, Log, GatherElements and others", |e, c| {
        let (dtype, result) = (c.dtype(), c.results[0].dtype);
        e.composed(c, |x| {
            let shares = x[0].convert(dtype.wide()).log_softmax(-1);
            let labels = x[1].convert(DType::I64);
            let classes = Tensor::dim_as_value(x[0].shape()[x[0].rank() - 1].clone(), DType::I64);
            let valid = labels.ge(0).and(labels.lt(&classes));
            let picked = shares.take_along_axis(&labels.unsqueeze(-1), -1).squeeze(-1);
            let loss = (-picked).convert(result);
            vec![valid.select(&loss, loss.full_like(f64::NAN))]
        })
    }),
    rule("dot_product_attention", "Attention from op set 23 on, else MatMul, Softmax", attention),
    rule("dot_product_attention_jvp", "MatMul and others", |e, c| e.decomposed(c)),
    rule("dot_product_attention_vjp", "MatMul and others", |e, c| e.decomposed(c)),
];

fn softmax(e: &mut Exporter, c: &Call<'_>, node: &str) -> Result<Vec<Value>> {
    let Op::Softmax(op) = c.op else { unreachable!("the rule of softmax") };
    let x = e.full(c, 0)?;
    let x = e.cast(&x, computed(c.dtype()));
    let axis = attribute_int("axis", op.axis as i64);
    let result = e.op(node, &[&x], vec![axis], x.ty.clone());
    Ok(vec![e.cast(&result, c.dtype())])
}

/// A normalization without scale and bias.
fn normalize(e: &mut Exporter, c: &Call<'_>) -> Result<Vec<Value>> {
    let Op::Normalize(op) = c.op else { unreachable!("the rule of normalizations") };
    if !has_node(e, op.kind, c.dtype()) {
        return e.decomposed(c);
    }
    let x = e.full(c, 0)?;
    let last = x.ty.rank() - 1;
    let mut order: Vec<usize> = (0..=last).filter(|axis| *axis != op.axis).collect();
    order.push(op.axis);
    let moved = e.permuted(&x, &order);
    let scale = ones(e, &moved.ty.shape[last], moved.ty.dtype)?;
    let result = node(e, op, &moved, &[&scale]);
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, axis)| back[*axis] = at);
    Ok(vec![e.permuted(&result, &back)])
}

/// Ones along an extent.
fn ones(e: &mut Exporter, extent: &Dim, dtype: DType) -> Result<Value> {
    match extent.as_extent() {
        Some(n) => Ok(e.constant(&Literal::full(&[n], Scalar::one(dtype)))),
        None => {
            let one = e.scalar(Scalar::one(dtype));
            e.expanded(&one, std::slice::from_ref(extent))
        }
    }
}

/// Whether ONNX has a node for it that computes in f32 or in the operand's dtype.
fn has_node(e: &Exporter, kind: NormalizeKind, dtype: DType) -> bool {
    let since = match kind {
        NormalizeKind::Standardize => 17,
        NormalizeKind::Rms => 23,
    };
    e.opset >= since && dtype != DType::F64
}

fn node(e: &mut Exporter, op: &Normalize, x: &Value, rest: &[&Value]) -> Value {
    let name = match op.kind {
        NormalizeKind::Standardize => "LayerNormalization",
        NormalizeKind::Rms => "RMSNormalization",
    };
    let attributes =
        vec![attribute_int("axis", -1), attribute_float("epsilon", op.epsilon.to_f64() as f32)];
    let dtype = x.ty.dtype;
    let operands: Vec<Value> = std::iter::once(x)
        .chain(rest.iter().copied())
        .map(|operand| e.cast(operand, computed(dtype)))
        .collect();
    let operands: Vec<&Value> = operands.iter().collect();
    let result = e.op(name, &operands, attributes, operands[0].ty.clone());
    e.cast(&result, dtype)
}

/// A normalization along the last axis with its scale, and perhaps its bias.
pub(super) fn normalization(
    e: &mut Exporter,
    c: &Call<'_>,
    pattern: &Pattern,
) -> Result<Vec<Value>> {
    let Some(Op::Normalize(op)) = &pattern.norm else {
        unreachable!("the pattern of normalizations has one")
    };
    let values = e.all_full(c)?;
    if !has_node(e, op.kind, c.dtype()) {
        // The normalization by itself is no such pattern.
        let (types, rest) = (&c.types[..1], &values[1..]);
        let normal =
            e.compute(&values[..1], types, |x| vec![Tensor::apply(op.clone(), &[&x[0]])])?;
        let values = [normal.as_slice(), rest].concat();
        return e.compute(&values, &c.types, |x| {
            let result = &x[0] * &x[1];
            vec![x.get(2).map_or_else(|| result.clone(), |bias| &result + bias)]
        });
    }
    let rest: Vec<&Value> = values[1..].iter().collect();
    Ok(vec![node(e, op, &values[0], &rest)])
}

/// `Gelu` by erf.
pub(super) fn gelu(e: &mut Exporter, c: &Call<'_>, _: &Pattern) -> Result<Vec<Value>> {
    activation(e, c, "Gelu")
}

/// `Relu`.
pub(super) fn relu(e: &mut Exporter, c: &Call<'_>, _: &Pattern) -> Result<Vec<Value>> {
    activation(e, c, "Relu")
}

fn activation(e: &mut Exporter, c: &Call<'_>, node: &str) -> Result<Vec<Value>> {
    let x = e.cast(&c.values[0], computed(c.dtype()));
    let result = e.op(node, &[&x], vec![], x.ty.clone());
    Ok(vec![e.cast(&result, c.dtype())])
}

fn attention(e: &mut Exporter, c: &Call<'_>) -> Result<Vec<Value>> {
    let Op::Attention(op) = c.op else { unreachable!("the rule of attention") };
    let plain = op.kind == AttentionKind::Value && !op.prefix && !c.used[1];
    if e.opset < 23 || !plain || op.scale.to_f64() <= 0.0 {
        let with = c.used[1];
        let mut results = e.composed(c, |x| attended(op, x, with))?;
        results.resize(2, Value::absent());
        return Ok(results);
    }
    let packed = c.types[0].rank() == 5;
    let count = if packed { 1 } else { 3 };
    // [batch, positions, heads, width] to [batch, heads, positions, width].
    let separate = e.compute(&c.values[..count], &c.types[..count], |x| {
        let parts = match packed {
            true => (0..3).map(|n| x[0].slice_axis(2, n, n + 1).squeeze(2)).collect(),
            false => x.to_vec(),
        };
        parts.iter().map(|part| part.permute([0, 2, 1, 3])).collect()
    })?;
    let q = &c.types[0].shape;
    let (heads, width) = (q[q.len() - 2].clone(), q[q.len() - 1].clone());
    let of_keys = if packed { heads.clone() } else { c.types[1].shape[2].clone() };
    let keys = if packed { q[1].clone() } else { c.types[1].shape[1].clone() };
    let full = |positions: &Dim, heads: &Dim| {
        vec![q[0].clone(), heads.clone(), positions.clone(), width.clone()]
    };
    let shapes = [full(&q[1], &heads), full(&keys, &of_keys), full(&keys, &of_keys)];
    let mut operands = vec![];
    for (part, shape) in separate.iter().zip(&shapes) {
        operands.push(e.expanded(part, shape)?);
    }
    if op.bias {
        // Runtimes repeat a mask for examples and heads only.
        let mut shape = c.types[count].shape.clone();
        shape[2..].clone_from_slice(&[q[1].clone(), keys.clone()]);
        let bias = e.expanded(&c.values[count], &shape)?;
        operands.push(e.cast(&bias, c.dtype()));
    }
    let attributes = vec![
        attribute_int("is_causal", i64::from(op.causal)),
        attribute_float("scale", op.scale.to_f64() as f32),
    ];
    let carrier = computed(c.dtype());
    let ty = TensorType::of(carrier, shapes[0].clone());
    let operands: Vec<Value> = operands.iter().map(|operand| e.cast(operand, carrier)).collect();
    let operands: Vec<&Value> = operands.iter().collect();
    let result = e.op("Attention", &operands, attributes, ty);
    let result = e.cast(&result, c.dtype());
    // Nothing reads the logarithms.
    Ok(vec![e.permuted(&result, &[0, 2, 1, 3]), Value::absent()])
}

/// Queries, keys and values `[batch, heads, positions, width]` of a wide dtype, each head of keys
/// and values once for each head of queries that shares it.
fn heads(x: &[Tensor]) -> Vec<Tensor> {
    let packed = x[0].rank() == 5;
    let parts: Vec<Tensor> = match packed {
        true => (0..3).map(|n| x[0].slice_axis(2, n, n + 1).squeeze(2)).collect(),
        false => x[..3].to_vec(),
    };
    let count = parts[0].shape()[2].clone();
    let separate = |part: &Tensor| {
        let part = part.convert(part.dtype().wide()).permute([0, 2, 1, 3]);
        let [batch, own, positions, width] = [0, 1, 2, 3].map(|axis| part.shape()[axis].clone());
        match count.checked_exact_div(&own) {
            Some(group) if group != Dim::constant(1) => {
                let shape = vec![batch.clone(), own, group, positions.clone(), width.clone()];
                let repeated = part.broadcast_in_dim(shape, &[0, 1, 3, 4]);
                repeated.reshape([batch, count.clone(), positions, width])
            }
            _ => part,
        }
    };
    parts.iter().map(separate).collect()
}

/// A product of matrices for each example and head.
fn product(x: &Tensor, y: &Tensor, along: usize) -> Tensor {
    let batch = vec![0, 1];
    let contract = (vec![3], vec![along]);
    Tensor::apply(DotGeneral { contract, batch: (batch.clone(), batch), result: None }, &[x, y])
}

/// Attention of other ops: the result and, if it is wanted, the logarithm.
fn attended(op: &Attention, x: &[Tensor], with_logarithm: bool) -> Vec<Tensor> {
    let dtype = x[0].dtype();
    let parts = heads(x);
    let (q, k, v) = (&parts[0], &parts[1], &parts[2]);
    let mut scores = product(q, k, 3) * op.scale.to_f64();
    let shape = scores.shape().to_vec();
    let first = if x[0].rank() == 5 { 1 } else { 3 };
    if op.bias {
        scores = scores + x[first].broadcast_to(&shape);
    }
    let mut none = None;
    if op.prefix || op.causal {
        let along = |axis| Tensor::iota(DType::I64, shape.clone(), axis);
        let mut limit = match op.prefix {
            true => x[first + usize::from(op.bias)]
                .convert(DType::I64)
                .broadcast_in_dim(shape.clone(), &[0]),
            false => {
                Tensor::full(&TensorType::of(DType::I64, shape.clone()), Scalar::one(DType::I64))
            }
        };
        if op.causal {
            limit = limit + along(2);
        }
        let hidden = Tensor::full(scores.ty(), Scalar::lowest(scores.dtype()));
        scores = along(3).lt(&limit).select(&scores, hidden);
        none = op.prefix.then(|| limit.le(0));
    }
    let mut shares = scores.softmax(3);
    if let Some(none) = none {
        shares = none.select(shares.zeros_like(), &shares);
    }
    let result = product(&shares, v, 2).permute([0, 2, 1, 3]).convert(dtype);
    match with_logarithm {
        true => {
            let kind = SoftmaxKind::LogSumExp;
            vec![result, Tensor::apply(Softmax { kind, axis: 3 }, &[&scores])]
        }
        false => vec![result],
    }
}
