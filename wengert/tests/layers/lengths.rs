//! Attention to sequences of different lengths: padding, and caches of which a prefix is valid.

use super::*;
use wengert::nn::{Mask, SelfAttention, VisibleKeys, dot_product_attention};

/// Examples, queries, keys, heads, heads of keys, width.
const SIZES: [usize; 6] = [4, 3, 7, 4, 2, 5];

/// softmax(q·kᵀ/√H)·v, computed in loops over the keys that a query attends to.
fn naive(q: &[f64], k: &[f64], v: &[f64], seen: impl Fn(usize, usize) -> usize) -> Vec<f64> {
    let [batch, queries, keys, heads, of_keys, width] = SIZES;
    let mut out = Vec::new();
    for (b, t, n) in
        (0..batch).flat_map(|b| (0..queries).flat_map(move |t| (0..heads).map(move |n| (b, t, n))))
    {
        let of_query = ((b * queries + t) * heads + n) * width;
        let row = |s: usize| ((b * keys + s) * of_keys + n * of_keys / heads) * width;
        let score = |s: usize| -> f64 {
            let products = (0..width).map(|h| q[of_query + h] * k[row(s) + h]);
            products.sum::<f64>() / (width as f64).sqrt()
        };
        let weights: Vec<f64> = (0..seen(b, t)).map(|s| score(s).exp()).collect();
        let sum: f64 = weights.iter().sum();
        out.extend((0..width).map(|h| {
            weights.iter().enumerate().map(|(s, w)| w / sum * v[row(s) + h]).sum::<f64>()
        }));
    }
    out
}

fn three(dtype: DType) -> [(&'static str, Literal); 3] {
    let [batch, queries, keys, heads, of_keys, width] = SIZES;
    [
        ("q", draw(1, dtype, &[batch, queries, heads, width])),
        ("k", draw(2, dtype, &[batch, keys, of_keys, width])),
        ("v", draw(3, dtype, &[batch, keys, of_keys, width])),
    ]
}

/// Rows of keys or values from `end(example)` on are NaN.
fn hidden(rows: &Literal, end: impl Fn(usize) -> usize) -> Literal {
    let row: usize = rows.shape()[2..].iter().product();
    let keys = rows.shape()[1];
    let numbers = floats(rows).into_iter().enumerate().map(|(at, x)| {
        let (example, key) = (at / row / keys, at / row % keys);
        if key < end(example) { x } else { f64::NAN }
    });
    let all = Literal::from_vec(rows.shape(), numbers.collect::<Vec<f64>>()).unwrap();
    all.convert(rows.dtype())
}

const DEVICES: [(Device, DType, f64); 6] = [
    (Device::Interpreter, DType::F64, 1e-13),
    (Device::Cpu, DType::F64, 1e-13),
    (Device::Cpu, DType::F32, 1e-5),
    (Device::Cpu, DType::BF16, 3e-2),
    (Device::Emulator, DType::F32, 1e-5),
    (Device::Emulator, DType::BF16, 3e-2),
];

#[test]
fn keys_beyond_a_length_or_a_position_are_not_read() {
    let [_, queries, keys, ..] = SIZES;
    let numbers = [0, 2, 7, 4];
    for (device, dtype, tolerance) in DEVICES {
        for causal in [false, true] {
            // First position p: query 0 sees p + 1 keys.
            let seen = |b: usize, t: usize| match causal {
                false => numbers[b] as usize,
                true => keys.min(numbers[b] as usize + 1 + t),
            };
            let mut inputs = three(dtype).to_vec();
            let wanted =
                naive(&floats(&inputs[0].1), &floats(&inputs[1].1), &floats(&inputs[2].1), seen);
            for (_, rows) in &mut inputs[1..] {
                *rows = hidden(rows, |b| seen(b, queries - 1));
            }
            inputs.push(("numbers", integers(&[4], &numbers)));
            let found = run(device, &inputs, |f, given| {
                let [q, k, v, numbers] = given else { unreachable!("four inputs") };
                let visible = match causal {
                    false => VisibleKeys::Lengths(numbers),
                    true => VisibleKeys::CausalFrom(numbers),
                };
                f.output("y", dot_product_attention(q, k, v, visible, None));
            });
            assert_close(&found[0], &wanted, tolerance);
        }
    }
}

/// Lengths have the values and gradients of a bias of −∞, which the derivatives of the bias-free
/// path do not share.
#[test]
fn lengths_are_a_bias_of_negative_infinity() {
    let numbers = [1, 2, 7, 4];
    for (device, dtype, tolerance) in DEVICES {
        for causal in [false, true] {
            let mut inputs = three(dtype).to_vec();
            let out = inputs[0].1.shape().to_vec();
            inputs.push(("c", draw(4, dtype, &out)));
            inputs.push(("numbers", integers(&[4], &numbers)));
            let results = run(device, &inputs, |f, given| {
                let [q, k, v, c, numbers] = given else { unreachable!("five inputs") };
                let [batch, queries, keys, ..] = SIZES;
                let shape = [batch, 1, queries, keys];
                let along = |axis| Tensor::iota(DType::I32, shape, axis);
                let end = numbers.reshape([batch, 1, 1, 1]).broadcast_to(&shape.map(Dim::from));
                let end = if causal { end + along(2) + 1 } else { end };
                let zeros = Tensor::zeros(&TensorType::new(dtype.wide(), shape));
                let bias = along(3).lt(end).select(&zeros, &zeros.full_like(f64::NEG_INFINITY));
                let visible = match causal {
                    false => VisibleKeys::Lengths(numbers),
                    true => VisibleKeys::CausalFrom(numbers),
                };
                let three = (q.clone(), k.clone(), v.clone());
                let mut outputs = |name: &str, visible: VisibleKeys<'_>, bias: Option<&Tensor>| {
                    let (value, gradient) = value_and_grad(&three, |(q, k, v)| {
                        let y = dot_product_attention(q, k, v, visible, bias);
                        (y * c).convert(dtype.wide()).sum()
                    });
                    f.output(&format!("{name}.value"), value);
                    for (path, by) in gradient.tensors() {
                        f.output(&format!("{name}.{path}"), by);
                    }
                };
                outputs("visible", visible, None);
                outputs("bias", Mask::None.into(), Some(&bias));
            });
            let (visible, bias) = results.split_at(4);
            for (found, wanted) in visible.iter().zip(bias) {
                let scale = wanted.iter().fold(0f64, |most, x| most.max(x.abs()));
                assert!(scale > 0.1);
                for (x, y) in found.iter().zip(wanted) {
                    let what = format!("{device} {dtype}, causal {causal}: {x}, not {y}");
                    assert!((x - y).abs() <= tolerance * scale, "{what}");
                }
            }
        }
    }
}

/// A padded batch has the results of its sequences alone.
#[test]
fn padding_changes_no_result() {
    let lengths = [5, 2, 1];
    let x = draw(6, DType::F64, &[3, 5, WIDTH]);
    let self_attention = || with_dtype(&SelfAttention::new(WIDTH, 3, Mask::None), DType::F64);
    let cross_attention = || with_dtype(&CrossAttention::new(WIDTH, WIDTH, 2), DType::F64);
    let padded = [("x", x.clone()), ("lengths", integers(&[3], &lengths))];
    let found = run(Device::Cpu, &padded, |f, given| {
        let [x, lengths] = given else { unreachable!("two inputs") };
        let (own, cross) = (f.param("own", self_attention()), f.param("cross", cross_attention()));
        f.output("own", own.call_padded(x, lengths));
        f.output("cross", cross.call(x, x, Some(lengths)));
        let valid = Tensor::iota(DType::I32, [3, 5], 1).lt(lengths.reshape([3, 1]));
        f.output("by_bools", cross.call(x, x, Some(&valid)));
    });
    assert_close(&found[1], &found[2], 1e-13);
    for (example, length) in lengths.into_iter().enumerate() {
        let length = length as usize;
        let rows = example * 5 * WIDTH..(example * 5 + length) * WIDTH;
        let alone = floats(&x)[rows.clone()].to_vec();
        let alone = [("x", Literal::from_vec(&[1, length, WIDTH], alone).unwrap())];
        let wanted = run(Device::Cpu, &alone, |f, given| {
            let own = f.param("own", self_attention());
            let cross = f.param("cross", cross_attention());
            f.output("own", own.call(&given[0]));
            f.output("cross", cross.call(&given[0], &given[0], None));
        });
        assert_close(&found[0][rows.clone()], &wanted[0], 1e-13);
        assert_close(&found[1][rows], &wanted[1], 1e-13);
    }
}

/// Examples of one batch have positions of their own in the cache: each has the results of a run
/// for itself. What the cache holds after them does not count.
#[test]
fn examples_have_positions_of_their_own() {
    const LENGTH: usize = 8;
    let positions = [0, 5, 2, 6, -1];
    let batch = positions.len();
    for new in [1, 3] {
        let cache = |seed| draw(seed, DType::F64, &[batch, LENGTH, 2, 2]);
        let first = |b: usize| positions[b].max(0) as usize;
        let inputs = [
            ("x", draw(7, DType::F64, &[batch, new, WIDTH])),
            ("keys", hidden(&cache(8), first)),
            ("values", hidden(&cache(9), first)),
            ("position", integers(&[batch], &positions)),
        ];
        let step = |f: &mut FunctionBuilder, given: &[Tensor]| {
            let [x, keys, values, position] = given else { unreachable!("four inputs") };
            let layer = f.param("layer", grouped());
            let cache = KeyValueCache { keys: keys.clone(), values: values.clone() };
            let (y, cache) = layer.call_cached(x, &cache, position);
            f.output("y", y);
            f.output("new_keys", cache.keys);
            f.output("new_values", cache.values);
        };
        let found = run(Device::Cpu, &inputs, step);
        for example in 0..batch {
            let of_example = |literal: &Literal| {
                let size = literal.len() / batch;
                let numbers = floats(literal)[example * size..][..size].to_vec();
                let mut shape = literal.shape().to_vec();
                shape[0] = 1;
                Literal::from_vec(&shape, numbers).unwrap()
            };
            let mut alone: Vec<(&str, Literal)> =
                inputs[..3].iter().map(|(name, all)| (*name, of_example(all))).collect();
            alone.push(("position", Literal::from(positions[example])));
            let wanted = run(Device::Cpu, &alone, step);
            for (all, wanted) in found.iter().zip(&wanted) {
                let found = &all[example * wanted.len()..][..wanted.len()];
                for (x, y) in found.iter().zip(wanted) {
                    let close = (x - y).abs() <= 1e-13 || (x.is_nan() && y.is_nan());
                    assert!(close, "example {example}: {x}, not {y}");
                }
            }
            let within = positions[example] >= 0 && first(example) + new <= LENGTH;
            assert_eq!(wanted[0].iter().all(|y| y.is_finite()), within, "example {example}");
        }
    }
}
