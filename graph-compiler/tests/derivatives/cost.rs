//! The cost of derivatives. The compiled derivative of a composition has no more equations, kernels
//! or bytes than a derivative written by hand with the chain rule.

use wengert_compiler::autodiff::operators::value_and_grad;
use wengert_compiler::pipeline::{Options, compile, compile_kernels};
use wengert_core::graph::{Function, Program};
use wengert_core::plan::account::account;
use wengert_core::{Binding, DType, Dim, Literal, Target, Tensor, TensorType};
use wengert_testing::Random;
use wengert_testing::derivative::*;

fn f64s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F64, shape.iter().copied())
}

/// The number of equations after the passes, kernels, bytes of the arena, and peak bytes.
fn cost(function: &Function) -> [u64; 4] {
    let compiled = compile_kernels(function, &Target::cpu(), &Options::default()).unwrap();
    let program = Program::from_functions(vec![function.clone()]).unwrap();
    let plan =
        compile(&program, "f", &Binding::new(), &Target::cpu(), &Options::default()).unwrap();
    let account = account(&plan);
    let kernels = compiled.kernels.kernels.len() as u64;
    [compiled.function.body.equations.len() as u64, kernels, account.arena, account.peak.bytes]
}

/// Compares the value and the gradients of `loss` with those of `by_hand`: the numbers are equal,
/// and the cost is not greater.
fn compare(
    what: &str,
    types: &[TensorType],
    wrt: usize,
    loss: impl Fn(&[Tensor], &[Tensor]) -> Tensor,
    by_hand: impl Fn(&[Tensor]) -> Vec<Tensor>,
) {
    let derived = build(types, |v| {
        let (at, rest) = v.split_at(wrt);
        let (value, gradient) = value_and_grad(&at.to_vec(), |x: &Vec<Tensor>| loss(x, rest));
        [vec![value], gradient].concat()
    });
    let written = build(types, by_hand);
    let mut random = Random(0xc057);
    let inputs: Vec<Literal> = types
        .iter()
        .map(|ty| match ty.dtype.is_float() {
            true => random.literal(ty),
            false => Literal::from_vec(
                &ty.extents().unwrap(),
                (0..ty.elements().unwrap() as i32).map(|i| i % 3).collect(),
            )
            .unwrap(),
        })
        .collect();
    let (a, b) = (run(&derived, &inputs), run(&written, &inputs));
    assert_close(&flat(&a), &flat(&b), 1e-12, what);
    let (derived_cost, written_cost) = (cost(&derived), cost(&written));
    let print = |f: &Function| {
        let compiled = compile_kernels(f, &Target::cpu(), &Options::default()).unwrap();
        format!("{}", compiled.function)
    };
    for (i, unit) in
        ["equations", "kernels", "bytes of arena", "bytes at the peak"].iter().enumerate()
    {
        assert!(
            derived_cost[i] <= written_cost[i],
            "{what}: {} {unit}, by hand {}\n{}\nby hand\n{}",
            derived_cost[i],
            written_cost[i],
            print(&derived),
            print(&written)
        );
    }
}

/// The derivative of the mean of n numbers in each number: 1/n.
fn share(n: usize) -> f64 {
    1.0 / n as f64
}

#[test]
fn trace_of_a_product() {
    let types = [f64s(&[5, 7]), f64s(&[7, 5])];
    // Σ over i, j of A[i,j]·B[j,i]. The gradients are the transposes.
    compare(
        "tr(A·B) as a sum",
        &types,
        2,
        |x, _| (&x[0] * x[1].matrix_transpose()).sum(),
        |v| {
            let (a, b) = (&v[0], &v[1]);
            vec![(a * b.matrix_transpose()).sum(), b.matrix_transpose(), a.matrix_transpose()]
        },
    );
    // The diagonal of the product, with the chain rule by hand.
    let eye =
        || Tensor::iota(DType::I32, [5usize, 5], 0).eq(Tensor::iota(DType::I32, [5usize, 5], 1));
    let trace = move |c: &Tensor| eye().select(c, &c.zeros_like()).sum();
    compare(
        "tr(A·B) as a product",
        &types,
        2,
        |x, _| trace(&x[0].dot(&x[1])),
        |v| {
            let (a, b) = (&v[0], &v[1]);
            let c = a.dot(b);
            let identity = eye().convert(DType::F64);
            vec![
                trace(&c),
                identity.dot(&b.matrix_transpose()),
                a.matrix_transpose().dot(&identity),
            ]
        },
    );
}

#[test]
fn tanh() {
    compare(
        "tanh",
        &[f64s(&[33])],
        1,
        |x, _| x[0].tanh().sum(),
        |v| {
            let y = v[0].tanh();
            vec![y.sum(), 1.0 - &y * &y]
        },
    );
    compare(
        "tanh of a product",
        &[f64s(&[33]), f64s(&[33])],
        2,
        |x, _| (&x[0] * &x[1]).tanh().sum(),
        |v| {
            let y = (&v[0] * &v[1]).tanh();
            let d = 1.0 - &y * &y;
            vec![y.sum(), &d * &v[1], d * &v[0]]
        },
    );
}

#[test]
fn softmax_cross_entropy() {
    let types = [f64s(&[6, 3]), TensorType::new(DType::I32, [6usize])];
    compare(
        "softmax cross-entropy",
        &types,
        1,
        |x, rest| x[0].softmax_cross_entropy(&rest[0]).mean(),
        |v| {
            let loss = v[0].softmax_cross_entropy(&v[1]).mean();
            let onehot = v[1].one_hot(3, DType::F64);
            vec![loss, (v[0].softmax(1) - onehot) * share(6)]
        },
    );
}

/// The normalised rows (minus the mean, divided by the standard deviation), and the reciprocal of
/// the standard deviation.
fn normalized(x: &Tensor, width: usize) -> (Tensor, Tensor) {
    let column = |t: Tensor| {
        let rows = t.shape()[0].clone();
        t.reshape([rows, Dim::from(1)])
    };
    let centred = x - column(x.mean_axes(&[1]));
    let inverse = column((centred.square().sum_axes(&[1]) * share(width) + 1e-5).rsqrt());
    (&centred * &inverse, inverse)
}

const ROWS: usize = 6;
const WIDTH: usize = 8;

/// The mean of each row, as a column.
fn row_mean(t: Tensor) -> Tensor {
    (t.sum_axes(&[1]) * share(WIDTH)).reshape([ROWS, 1])
}

/// The types of the rows, the scale, the shift, and the weights of the sum that is the loss.
fn norm_types() -> [TensorType; 4] {
    [f64s(&[ROWS, WIDTH]), f64s(&[WIDTH]), f64s(&[WIDTH]), f64s(&[ROWS, WIDTH])]
}

#[test]
fn layer_norm() {
    // The derivative by hand uses that the sums of centred rows vanish.
    compare(
        "layer norm",
        &norm_types(),
        3,
        |x, rest| ((x[0].standardize(1, 1e-5) * &x[1] + &x[2]) * &rest[0]).sum(),
        |v| {
            let (x, scale, shift, weights) = (&v[0], &v[1], &v[2], &v[3]);
            let (normal, inverse) = normalized(x, WIDTH);
            let value = ((&normal * scale + shift) * weights).sum();
            let d = weights * scale;
            let dx = (&d - row_mean(d.clone()) - &normal * row_mean(&d * &normal)) * inverse;
            vec![value, dx, (weights * &normal).sum_axes(&[0]), weights.sum_axes(&[0])]
        },
    );
}

#[test]
fn layer_norm_of_primitives() {
    // By the chain rule, through the product, the root, the squares and the mean.
    compare(
        "layer norm of primitives",
        &norm_types(),
        3,
        |x, rest| {
            let (normal, _) = normalized(&x[0], WIDTH);
            ((normal * &x[1] + &x[2]) * &rest[0]).sum()
        },
        |v| {
            let (x, scale, shift, weights) = (&v[0], &v[1], &v[2], &v[3]);
            let centred = x - row_mean(x.clone());
            let inverse = (row_mean(centred.square()) + 1e-5).rsqrt();
            let normal = &centred * &inverse;
            let value = ((&normal * scale + shift) * weights).sum();
            let d = weights * scale;
            let d_inverse = (&d * &centred).sum_axes(&[1]).reshape([ROWS, 1]);
            let d_square = d_inverse * (&inverse * -0.5) * inverse.square() * share(WIDTH);
            let d_centred = &d * &inverse + d_square * (&centred + &centred);
            let dx = &d_centred - row_mean(d_centred.clone());
            vec![value, dx, (weights * &normal).sum_axes(&[0]), weights.sum_axes(&[0])]
        },
    );
}

#[test]
fn rms_norm() {
    let types = [f64s(&[ROWS, WIDTH]), f64s(&[WIDTH]), f64s(&[ROWS, WIDTH])];
    let inverse = |x: &Tensor| (row_mean(x.square()) + 1e-5).rsqrt();
    // The derivative by hand uses that the magnitude of the normalised rows is known.
    compare(
        "RMS norm",
        &types,
        2,
        |x, rest| (x[0].rms_normalize(1, 1e-5) * &x[1] * &rest[0]).sum(),
        |v| {
            let (x, scale, weights) = (&v[0], &v[1], &v[2]);
            let inverse = inverse(x);
            let normal = x * &inverse;
            let d = weights * scale;
            let dx = (&d - &normal * row_mean(&d * &normal)) * inverse;
            vec![(&normal * scale * weights).sum(), dx, (weights * &normal).sum_axes(&[0])]
        },
    );
    // By the chain rule.
    compare(
        "RMS norm of primitives",
        &types,
        2,
        |x, rest| (&x[0] * inverse(&x[0]) * &x[1] * &rest[0]).sum(),
        |v| {
            let (x, scale, weights) = (&v[0], &v[1], &v[2]);
            let inverse = inverse(x);
            let normal = x * &inverse;
            let d = weights * scale;
            let d_inverse = (&d * x).sum_axes(&[1]).reshape([ROWS, 1]);
            let d_square = d_inverse * (&inverse * -0.5) * inverse.square() * share(WIDTH);
            let dx = &d * &inverse + d_square * (x + x);
            vec![(&normal * scale * weights).sum(), dx, (weights * &normal).sum_axes(&[0])]
        },
    );
}

#[test]
fn gelu() {
    use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
    compare(
        "GELU",
        &[f64s(&[33])],
        1,
        |x, _| x[0].gelu().sum(),
        |v| {
            let (half, u) = (&v[0] * 0.5, &v[0] * FRAC_1_SQRT_2);
            let twice = u.erf() + 1.0;
            let density = (-u.square()).exp() * FRAC_2_SQRT_PI;
            vec![(&half * &twice).sum(), twice * 0.5 + half * density * FRAC_1_SQRT_2]
        },
    );
}

#[test]
fn linear_layer() {
    let types = [f64s(&[5, 8]), f64s(&[8]), f64s(&[6, 5]), f64s(&[6, 8])];
    compare(
        "linear layer with bias",
        &types,
        3,
        |x, rest| ((x[2].dot(&x[0]) + &x[1]) * &rest[0]).sum(),
        |v| {
            let (w, bias, x, weights) = (&v[0], &v[1], &v[2], &v[3]);
            let value = ((x.dot(w) + bias) * weights).sum();
            let dw = x.matrix_transpose().dot(weights);
            vec![value, dw, weights.sum_axes(&[0]), weights.dot(&w.matrix_transpose())]
        },
    );
}

#[test]
fn attention() {
    const N: usize = 6;
    const D: usize = 4;
    let types = [f64s(&[N, D]), f64s(&[N, D]), f64s(&[N, D]), f64s(&[N, D])];
    let scale = 1.0 / (D as f64).sqrt();
    compare(
        "attention",
        &types,
        3,
        |x, rest| {
            let scores = x[0].dot(&x[1].matrix_transpose()) * scale;
            (scores.softmax(1).dot(&x[2]) * &rest[0]).sum()
        },
        |v| {
            let (q, k, values, weights) = (&v[0], &v[1], &v[2], &v[3]);
            let p = (q.dot(&k.matrix_transpose()) * scale).softmax(1);
            let value = (p.dot(values) * weights).sum();
            let dp = weights.dot(&values.matrix_transpose());
            let weighted = &dp * &p;
            let ds = (&weighted - &p * weighted.sum_axes(&[1]).reshape([N, 1])) * scale;
            vec![value, ds.dot(k), ds.matrix_transpose().dot(q), p.matrix_transpose().dot(weights)]
        },
    );
}

#[test]
fn mlp() {
    const N: usize = 6;
    let types = [
        f64s(&[5, 8]),
        f64s(&[8]),
        f64s(&[8, 3]),
        f64s(&[3]),
        f64s(&[N, 5]),
        TensorType::new(DType::I32, [N]),
    ];
    compare(
        "MLP",
        &types,
        4,
        |w, rest| {
            let hidden = (rest[0].dot(&w[0]) + &w[1]).tanh();
            (hidden.dot(&w[2]) + &w[3]).softmax_cross_entropy(&rest[1]).mean()
        },
        |v| {
            let (x, labels) = (&v[4], &v[5]);
            let hidden = (x.dot(&v[0]) + &v[1]).tanh();
            let logits = hidden.dot(&v[2]) + &v[3];
            let loss = logits.softmax_cross_entropy(labels).mean();
            let d = (logits.softmax(1) - labels.one_hot(3, DType::F64)) * share(N);
            let before = d.dot(&v[2].matrix_transpose()) * (1.0 - &hidden * &hidden);
            vec![
                loss,
                x.matrix_transpose().dot(&before),
                before.sum_axes(&[0]),
                hidden.matrix_transpose().dot(&d),
                d.sum_axes(&[0]),
            ]
        },
    );
}
