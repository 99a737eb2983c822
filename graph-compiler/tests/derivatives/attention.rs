//! Attention with a prefix: its value and its derivatives, against a composition of products,
//! exponentials and a mask.

use wengert_compiler::autodiff::jacobian::hvp;
use wengert_compiler::autodiff::operators::{grad, jvp};
use wengert_compiler::vmap::operators::vmap;
use wengert_core::op::{Attention, AttentionKind};
use wengert_core::{DType, Literal, Scalar, Tensor};
use wengert_testing::Random;
use wengert_testing::derivative::*;

type Values = Vec<Tensor>;

const SCALE: f64 = 0.7;
/// Examples, queries, keys, heads, width.
const SIZES: [usize; 5] = [4, 3, 5, 2, 2];

/// The first result of the op.
fn attention(x: &Values, prefix: &Tensor, causal: bool, bias: bool) -> Tensor {
    let (kind, scale) = (AttentionKind::Value, Scalar::of(SCALE));
    let op = Attention { kind, causal, bias, prefix: true, scale };
    let operands: Vec<&Tensor> = x.iter().chain([prefix]).collect();
    Tensor::apply_many(op, &operands).swap_remove(0)
}

/// The same by other ops: weights of hidden keys are 0, and so is their sum if all are hidden.
fn composed(x: &Values, prefix: &Tensor, causal: bool) -> Tensor {
    let [b, t, s, n, _] = SIZES;
    let scores = Tensor::einsum("btnh,bsnh->bnts", &[&x[0], &x[1]]) * SCALE;
    let scores = x.get(3).map_or(scores.clone(), |bias| &scores + bias);
    let along = |axis| Tensor::iota(DType::I64, [b, n, t, s], axis);
    let end = prefix.convert(DType::I64).reshape([b, 1, 1, 1]);
    let seen = if causal { along(3).lt(end + along(2)) } else { along(3).lt(end) };
    let weights = seen.select(scores.exp(), 0.0);
    let sum = weights.sum_axes(&[3]);
    let sum = sum.gt(0.0).select(&sum, 1.0).reshape([b, n, t, 1]);
    Tensor::einsum("bnts,bsnh->btnh", &[&(weights / sum), &x[2]])
}

/// A number for which no second derivative vanishes.
fn loss(y: &Tensor) -> Tensor {
    (y * 0.8).sin().sum() + (y * y).sum() * 0.25
}

/// The result, the gradient, and second derivatives in the three combinations of modes.
fn derivatives(x: &Values, v: &Values, f: impl Fn(&Values) -> Tensor) -> Values {
    let loss = |x: &Values| loss(&f(x));
    let mut made = vec![f(x)];
    made.extend(grad(x, loss));
    made.push(jvp(x, v, loss).1);
    made.extend(hvp(x, v, loss));
    made.extend(grad(x, |x: &Values| jvp(x, v, loss).1));
    made.extend(jvp(x, v, |x: &Values| grad(x, loss)).1);
    made
}

fn inputs(bias: bool) -> Vec<Literal> {
    let [b, t, s, n, h] = SIZES;
    let mut shapes = vec![vec![b, t, n, h], vec![b, s, n, h], vec![b, s, n, h]];
    shapes.extend(bias.then(|| vec![b, 1, t, s]));
    let mut random = Random(0xa77e);
    let both = [shapes.clone(), shapes].concat();
    both.iter().map(|shape| random.literal(&f64s(shape))).collect()
}

/// Prefixes within and beyond the keys, also such that some or all queries see no key.
const PREFIXES: [[i32; 4]; 3] = [[1, 3, 5, 9], [0, 2, -1, 4], [-2, -7, i32::MIN, i32::MAX]];

fn prefix(prefixes: [i32; 4]) -> Literal {
    Literal::from_vec(&[4], prefixes.to_vec()).unwrap()
}

#[test]
fn a_prefix_is_a_mask_in_all_derivatives() {
    for (prefixes, causal, bias) in PREFIXES.into_iter().flat_map(|p| {
        [(false, false), (true, false), (false, true), (true, true)].map(|(c, b)| (p, c, b))
    }) {
        let inputs = [vec![prefix(prefixes)], inputs(bias)].concat();
        let of = |composes: bool| {
            let function = build(&types(&inputs), |given| {
                let (x, v) = given[1..].split_at(if bias { 4 } else { 3 });
                derivatives(&x.to_vec(), &v.to_vec(), |x| match composes {
                    true => composed(x, &given[0], causal),
                    false => attention(x, &given[0], causal, bias),
                })
            });
            flat(&run(&function, &inputs))
        };
        let what = format!("{prefixes:?}, causal {causal}, bias {bias}");
        assert_close(&of(false), &of(true), 1e-12, &what);
    }
}

/// Keys and values that no query sees reach no result and no derivative, even if they are NaN.
#[test]
fn hidden_keys_may_be_nan() {
    let [b, _, s, n, h] = SIZES;
    for (prefixes, causal) in PREFIXES.into_iter().flat_map(|p| [(p, false), (p, true)]) {
        let with = |hidden: f64| {
            let mut inputs = inputs(false);
            for rows in &mut inputs[1..3] {
                let all: Vec<f64> = rows
                    .scalars()
                    .enumerate()
                    .map(|(at, x)| {
                        let (example, key) = (at / (s * n * h), at / (n * h) % s);
                        let more = if causal { SIZES[1] as i64 - 1 } else { 0 };
                        let seen = (key as i64) < i64::from(prefixes[example]) + more;
                        if seen { x.to_f64() } else { hidden }
                    })
                    .collect();
                *rows = Literal::from_vec(&[b, s, n, h], all).unwrap();
            }
            let inputs = [vec![prefix(prefixes)], inputs].concat();
            let function = build(&types(&inputs), |given| {
                let (x, v) = given[1..].split_at(3);
                derivatives(&x.to_vec(), &v.to_vec(), |x| attention(x, &given[0], causal, false))
            });
            flat(&run(&function, &inputs))
        };
        let (found, wanted) = (with(f64::NAN), with(0.5));
        assert!(wanted.iter().all(|x| x.is_finite()), "{prefixes:?}, causal {causal}");
        assert_eq!(found, wanted, "{prefixes:?}, causal {causal}");
    }
}

/// A map over examples of an attention to one example each, whose prefix is mapped or shared.
#[test]
fn prefixes_are_mapped() {
    let [b, t, s, n, h] = SIZES;
    let inputs = &inputs(false)[..3];
    for causal in [false, true] {
        let one = |x: &Values, prefix: &Tensor| {
            let [q, k, v] = &x[..] else { unreachable!("three operands") };
            let row = |x: &Tensor, rows: usize| x.reshape([1, rows, n, h]);
            let x = vec![row(q, t), row(k, s), row(v, s)];
            attention(&x, &prefix.reshape([1usize]), causal, false).reshape([t, n, h])
        };
        let found = build(&types(inputs), |x| {
            let prefixes = Tensor::constant(prefix(PREFIXES[1]));
            let two = Tensor::constant(2i32);
            let mapped = |(x, prefix): &(Values, Tensor)| one(x, prefix);
            vec![vmap(&(x.to_vec(), prefixes), mapped), vmap(&x.to_vec(), |x| one(x, &two))]
        });
        let wanted = build(&types(inputs), |x| {
            let of = |prefixes| {
                let prefix = Tensor::constant(prefix(prefixes));
                attention(&x.to_vec(), &prefix, causal, false)
            };
            vec![of(PREFIXES[1]), of([2; 4])]
        });
        assert_eq!(run(&found, inputs), run(&wanted, inputs), "{b} examples, causal {causal}");
    }
}
