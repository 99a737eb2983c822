//! Calls, executed in the simplest way.

use crate::random::extents;
use wengert_core::call::{Attention, Call, Convolution, Gemm, Scale, Scatter};
use wengert_core::nest::ScalarOp;
use wengert_core::nest::evaluate::evaluate;
use wengert_core::{DType, Literal, Result, Scalar, TensorType};

/// Executes a call one scalar after another.
pub fn execute(call: &Call, operands: &[Literal]) -> Result<Vec<Literal>> {
    let one = match call {
        Call::Gemm(gemm) => product(gemm, operands),
        Call::Scatter(scatter) => combined(scatter, operands),
        Call::Convolution(convolution) => convolve(convolution, operands),
        Call::Attention(attention) => return Ok(attend(attention, operands)),
        // The result is exact, so another implementation would show nothing; or it is opaque, but
        // the same on both sides.
        _ => return Ok(call.references(operands)?.iter().map(|r| r.literal()).collect()),
    };
    Ok(vec![one])
}

/// An op on halves is computed in f32 and rounded once.
fn scalar(op: ScalarOp, operands: &[Scalar]) -> Scalar {
    let dtype = operands[0].dtype();
    if !dtype.is_half() {
        return evaluate(op, operands, dtype);
    }
    let wide: Vec<Scalar> = operands.iter().map(|s| convert(*s, DType::F32)).collect();
    convert(evaluate(op, &wide, DType::F32), dtype)
}

fn convert(value: Scalar, dtype: DType) -> Scalar {
    evaluate(ScalarOp::Convert, &[value], dtype)
}

fn product(g: &Gemm, operands: &[Literal]) -> Literal {
    let [lhs, rhs] = g.factors();
    // The bits of an 8-bit float are an element of u8.
    let number = |x: Scalar, dtype: DType| match dtype.is_float8() {
        true => Scalar::from_f64(DType::F32, Scalar::from_bits(dtype, x.bits()).to_f64()),
        false => x,
    };
    let mut values = Vec::with_capacity(g.batch * g.m * g.n);
    for b in 0..g.batch {
        for i in 0..g.m {
            for j in 0..g.n {
                let mut sum = Scalar::zero(g.accumulate);
                for k in 0..g.k {
                    let x = operands[0].get(b * g.lhs.batch + i * g.lhs.row + k * g.lhs.column);
                    let y = operands[1].get(b * g.rhs.batch + k * g.rhs.row + j * g.rhs.column);
                    let (x, y) = (number(x, lhs), number(y, rhs));
                    let term = scalar(
                        ScalarOp::Mul,
                        &[convert(x, g.accumulate), convert(y, g.accumulate)],
                    );
                    sum = scalar(ScalarOp::Add, &[sum, term]);
                }
                if let Some(scales) = g.scales {
                    let of = |scale, argument: usize, row: usize| match scale {
                        Scale::Whole => operands[argument].get(0),
                        Scale::Rows => operands[argument].get(row),
                    };
                    for scale in [of(scales.lhs, 2, i), of(scales.rhs, 3, j)] {
                        sum = scalar(ScalarOp::Mul, &[sum, scale]);
                    }
                }
                let bias = g.bias_argument().map(|n| operands[n].get(j));
                let at = (b * g.m + i) * g.n + j;
                let residual = g.residual_argument().map(|n| operands[n].get(at));
                // Addends of halves come before the rounding, the residual first.
                let halves = g.result.is_half();
                let order = if halves { [residual, bias] } else { [bias, residual] };
                for addend in order.into_iter().flatten() {
                    sum = scalar(ScalarOp::Add, &[sum, convert(addend, g.accumulate)]);
                }
                values.push(convert(sum, g.result));
            }
        }
    }
    Literal::from_scalars(g.result, &[g.batch, g.m, g.n], &values).expect("all have the dtype")
}

fn combined(s: &Scatter, operands: &[Literal]) -> Literal {
    let mut values: Vec<Scalar> = operands[0].scalars().collect();
    let vector = s.indices.len() - 1;
    let kept: Vec<usize> =
        (0..s.operand.len()).filter(|a| !s.inserted_window_dims.contains(a)).collect();
    // One window after another, in the order of their positions.
    let positions = (0..s.updates.len()).filter(|a| !s.update_window_dims.contains(a));
    let order: Vec<usize> = positions.chain(s.update_window_dims.iter().copied()).collect();
    for counter in indices(order.iter().map(|a| s.updates[*a]).collect()) {
        let mut index = vec![0; s.updates.len()];
        order.iter().zip(counter).for_each(|(axis, i)| index[*axis] = i);
        let mut position: Vec<usize> = (0..index.len())
            .filter(|a| !s.update_window_dims.contains(a))
            .map(|a| index[a])
            .collect();
        position.push(0);
        let mut window = vec![1usize; s.operand.len()];
        kept.iter().zip(&s.update_window_dims).for_each(|(axis, w)| window[*axis] = s.updates[*w]);
        let mut start = vec![0i64; s.operand.len()];
        for (k, axis) in s.scatter_dims_to_operand_dims.iter().enumerate() {
            position[vector] = k;
            let index = operands[1].get(flat(&s.indices, &position));
            let index = index.to_i64().expect("indices are integers");
            let last = (s.operand[*axis] - window[*axis]) as i64;
            start[*axis] += if s.clip { index.clamp(0, last) } else { index };
        }
        if (0..start.len()).any(|a| start[a] < 0 || start[a] as usize + window[a] > s.operand[a]) {
            continue;
        }
        let mut at: Vec<usize> = start.iter().map(|i| *i as usize).collect();
        kept.iter().zip(&s.update_window_dims).for_each(|(axis, w)| at[*axis] += index[*w]);
        let at = flat(&s.operand, &at);
        let update = operands[2].get(flat(&s.updates, &index));
        values[at] = match s.kind.instruction() {
            // For bool, min is a conjunction.
            Some(ScalarOp::Min) if s.dtype == DType::Bool => {
                scalar(ScalarOp::And, &[values[at], update])
            }
            Some(_) if s.dtype == DType::Bool => scalar(ScalarOp::Or, &[values[at], update]),
            Some(op) => scalar(op, &[values[at], update]),
            None => update,
        };
    }
    Literal::from_scalars(s.dtype, &s.operand, &values).expect("all have the dtype")
}

/// The row-major position of an index.
fn flat(shape: &[usize], at: &[usize]) -> usize {
    at.iter().zip(shape).fold(0, |n, (i, e)| n * e + i)
}

/// Every index of a shape, in row-major order.
fn indices(shape: Vec<usize>) -> impl Iterator<Item = Vec<usize>> {
    (0..shape.iter().product()).map(move |n: usize| {
        let mut rest = n;
        let mut index: Vec<usize> = shape
            .iter()
            .rev()
            .map(|e| {
                let i = rest % e;
                rest /= e;
                i
            })
            .collect();
        index.reverse();
        index
    })
}

/// Each product of an input element and a filter element, in f64 or wrapping integers, added to its
/// result element.
fn convolve(c: &Convolution, operands: &[Literal]) -> Literal {
    let shapes: Vec<Vec<usize>> = c.tensors().iter().map(extents).collect();
    let computed = c.direction.computed();
    let mut given = operands.iter();
    let known: Vec<Option<&Literal>> =
        (0..3).map(|n| (n != computed).then(|| given.next().expect("two operands"))).collect();
    let mut sums = vec![(0f64, 0i64); shapes[computed].iter().product()];
    let spatial =
        |f: fn(&wengert_core::call::Window) -> usize| c.window.iter().map(f).collect::<Vec<_>>();
    for output in indices(spatial(|w| w.output)) {
        'filter: for filter in indices(spatial(|w| w.filter)) {
            let mut input = Vec::new();
            for (w, (o, k)) in c.window.iter().zip(output.iter().zip(&filter)) {
                let at = (o * w.stride + k * w.rhs_dilation) as i64 - w.low;
                let dilation = w.lhs_dilation as i64;
                if at < 0 || at % dilation != 0 || at / dilation >= w.input as i64 {
                    continue 'filter;
                }
                input.push((at / dilation) as usize);
            }
            for at in indices(vec![c.batch, c.groups, c.input_channels, c.output_channels]) {
                let [b, g, i, o] = at[..] else { unreachable!() };
                let place =
                    |head: &[usize], space: &[usize], tail: &[usize]| [head, space, tail].concat();
                let places = [
                    flat(&shapes[0], &place(&[b], &input, &[g * c.input_channels + i])),
                    flat(&shapes[1], &place(&[], &filter, &[i, g * c.output_channels + o])),
                    flat(&shapes[2], &place(&[b], &output, &[g * c.output_channels + o])),
                ];
                let factors = (0..3).filter_map(|n| known[n].map(|l| l.get(places[n])));
                let sum = &mut sums[places[computed]];
                sum.0 += factors.clone().map(Scalar::to_f64).product::<f64>();
                let whole = factors.map(|s| s.to_i64().unwrap_or(0)).fold(1i64, i64::wrapping_mul);
                sum.1 = sum.1.wrapping_add(whole);
            }
        }
    }
    let dtype = c.result_dtype();
    let scalar = |(real, whole): &(f64, i64)| match dtype.is_float() {
        true => Scalar::from_f64(dtype, *real),
        false => Scalar::from_i64(dtype, *whole),
    };
    let values: Vec<Scalar> = sums.iter().map(scalar).collect();
    Literal::from_scalars(dtype, &shapes[computed], &values).expect("all have the dtype")
}

/// The matrices of one head in f64: a list of rows each.
type Matrix = Vec<Vec<f64>>;

/// x · y.
fn multiplied(x: &Matrix, y: &Matrix) -> Matrix {
    let columns = y.first().map_or(0, Vec::len);
    let element = |row: &Vec<f64>, j: usize| row.iter().zip(y).map(|(x, y)| x * y[j]).sum();
    x.iter().map(|row| (0..columns).map(|j| element(row, j)).collect()).collect()
}

fn transposed(x: &Matrix, columns: usize) -> Matrix {
    (0..columns).map(|j| x.iter().map(|row| row[j]).collect()).collect()
}

/// The matrix of an expression of its row and column.
fn matrix([rows, columns]: [usize; 2], element: impl Fn(usize, usize) -> f64) -> Matrix {
    (0..rows).map(|i| (0..columns).map(|j| element(i, j)).collect()).collect()
}

/// Attention by matrices of scores in f64. Keys and values that are hidden from all queries count
/// as 0.
fn attend(a: &Attention, operands: &[Literal]) -> Vec<Literal> {
    let types = Call::Attention(a.clone()).results();
    let mut results: Vec<Vec<f64>> =
        types.iter().map(|ty| vec![0.0; extents(ty).iter().product()]).collect();
    let prefix = a.packed_or_three() + usize::from(!a.bias.is_empty());
    let given = &operands[prefix + usize::from(a.prefix)..];
    let (t, s, heads, width) = (a.queries, a.keys, a.heads, a.width);
    // Positions in queries (0), keys (1) and values (2) of head n.
    let at = |part: usize, b: usize, n: usize, row: usize, h: usize| match (a.packed, part) {
        (true, _) => flat(&[a.batch, t, 3, heads, width], &[b, row, part, n, h]),
        (false, 0) => flat(&[a.batch, t, heads, width], &[b, row, n, h]),
        _ => flat(&[a.batch, s, heads / a.group, width], &[b, row, n / a.group, h]),
    };
    let index = |part: usize| if a.packed { 0 } else { part };
    let scale = a.scale.to_f64();
    for (b, n) in (0..a.batch).flat_map(|b| (0..heads).map(move |n| (b, n))) {
        let sees = |i: usize, j: usize| match (a.prefix, a.causal) {
            (false, causal) => !causal || j <= i,
            (true, causal) => {
                let prefix = operands[prefix].get(b).to_i64().expect("it is an i32");
                (j as i64) < prefix + if causal { i as i64 } else { 0 }
            }
        };
        let rows = |part: usize| {
            matrix([if part == 0 { t } else { s }, width], |row, h| {
                let hidden = part > 0 && (0..t).all(|i| !sees(i, row));
                let element = || operands[index(part)].get(at(part, b, n, row, h)).to_f64();
                if hidden { 0.0 } else { element() }
            })
        };
        let (q, k, v) = (rows(0), rows(1), rows(2));
        let bias = |i: usize, j: usize| {
            let place = [b, n, i, j].into_iter().zip(&a.bias);
            let place: Vec<usize> = place.map(|(at, e)| if *e == 1 { 0 } else { at }).collect();
            operands[a.packed_or_three()].get(flat(&a.bias, &place)).to_f64()
        };
        let products = multiplied(&q, &transposed(&k, width));
        let score = |i: usize, j: usize| {
            products[i][j] * scale + if a.bias.is_empty() { 0.0 } else { bias(i, j) }
        };
        let of_query = |i: usize| flat(&[a.batch, heads, t], &[b, n, i]);
        let weights = |l: &[f64]| {
            matrix([t, s], |i, j| if sees(i, j) { (score(i, j) - l[i]).exp() } else { 0.0 })
        };
        let mut add = |result: usize, place: usize, value: f64| results[result][place] += value;
        if !a.backward {
            for i in 0..t {
                let seen: Vec<f64> = (0..s).filter(|j| sees(i, *j)).map(|j| score(i, j)).collect();
                let most = seen.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let most = if most.is_finite() { most } else { 0.0 };
                let sum: f64 = seen.iter().map(|x| (x - most).exp()).sum();
                add(1, of_query(i), most + sum.ln());
                let l = most + sum.ln();
                let p: Vec<f64> = (0..s)
                    .map(|j| if sees(i, j) { (score(i, j) - l).exp() } else { 0.0 })
                    .collect();
                for (h, out) in multiplied(&vec![p], &v)[0].iter().enumerate() {
                    add(0, flat(&[a.batch, t, heads, width], &[b, i, n, h]), *out);
                }
            }
            continue;
        }
        let l: Vec<f64> = (0..t).map(|i| given[0].get(of_query(i)).to_f64()).collect();
        let [c, last] = [1, 2].map(|of: usize| {
            // m has no width.
            let width = if of == 2 && !a.out_given { 0 } else { width };
            matrix([t, width], |i, h| {
                given[of].get(flat(&[a.batch, t, heads, width], &[b, i, n, h])).to_f64()
            })
        });
        let m = |i: usize| match a.out_given {
            true => c[i].iter().zip(&last[i]).map(|(c, out)| c * out).sum(),
            false => given[2].get(of_query(i)).to_f64(),
        };
        let p = weights(&l);
        let slopes = multiplied(&c, &transposed(&v, width));
        let ds = matrix([t, s], |i, j| match sees(i, j) {
            true => scale * p[i][j] * (slopes[i][j] - m(i)),
            false => 0.0,
        });
        let cotangents = [
            multiplied(&ds, &k),
            multiplied(&transposed(&ds, s), &q),
            multiplied(&transposed(&p, s), &c),
        ];
        for (part, rows) in cotangents.iter().enumerate() {
            for (row, numbers) in rows.iter().enumerate() {
                for (h, number) in numbers.iter().enumerate() {
                    add(index(part), at(part, b, n, row, h), *number);
                }
            }
        }
    }
    let literal = |(ty, numbers): (&TensorType, Vec<f64>)| {
        let scalars: Vec<Scalar> = numbers.iter().map(|x| Scalar::from_f64(ty.dtype, *x)).collect();
        Literal::from_scalars(ty.dtype, &extents(ty), &scalars).expect("all have the dtype")
    };
    types.iter().zip(results).map(literal).collect()
}
