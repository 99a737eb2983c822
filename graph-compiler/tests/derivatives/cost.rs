//! What derivatives cost: compiled, the derivative of a composition has no equation, no kernel and no byte more than one that is written
//! by hand, by the chain rule.
//!
//! Where the formula by hand is not the chain rule but what algebra makes of it, the derivative has more, since rewriting changes
//! no bit, not even the sign of a zero. How much more is a constant of the test ([`EXCESS`]), so that it can only become less.

use super::support::*;
use wengert_compiler::autodiff::operators::value_and_grad;
use wengert_compiler::pipeline::{Options, compile, compile_kernels};
use wengert_core::graph::{Function, Program};
use wengert_core::plan::account::account;
use wengert_core::{Binding, DType, Dim, Literal, Target, Tensor, TensorType};

fn f64s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F64, shape.iter().copied())
}

/// What the derivative has more than by hand: equations, kernels, bytes of the arena, bytes at the peak.
///
/// Softmax in attention: J = diag(y) − y·yᵀ is its own transpose, but the transposed program negates before it sums, and Σ −x is not
/// −Σ x if all are zero. Layer norm: the sums of what has been centred vanish, which only a person knows; and the coefficient
/// −½ r/v of the root, a number for each row, is kept beside r. The others: a choice between constants (1 and 0, softmax − 1 and softmax)
/// where a person converts the condition to a number; it is in the same kernel.
const EXCESS: [(&str, [u64; 4]); 1] = [

    ("layer norm", [7, 0, 64, 64]),



];

/// Equations after the passes, kernels, bytes of the arena, most bytes needed at once.
fn cost(function: &Function) -> [u64; 4] {
    let compiled = compile_kernels(function, &Target::cpu(), &Options::default()).unwrap();
    let program = Program::from_functions(vec![function.clone()]).unwrap();
    let plan = compile(&program, "f", &Binding::new(), &Target::cpu(), &Options::default()).unwrap();
    let account = account(&plan);
    let kernels = compiled.kernels.kernels.len() as u64;
    [compiled.function.body.equations.len() as u64, kernels, account.arena, account.peak.bytes]
}

/// Value and gradients of `loss` against those that `by_hand` computes: the same numbers, and no greater cost.
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
    let excess = EXCESS.iter().find(|(name, _)| *name == what).map_or([0; 4], |(_, excess)| *excess);
    for (i, unit) in ["equations", "kernels", "bytes of arena", "bytes at the peak"].iter().enumerate() {
        assert!(
            derived_cost[i] <= written_cost[i] + excess[i],
            "{what}: {} {unit}, by hand {}\n{}\nby hand\n{}",
            derived_cost[i],
            written_cost[i],
            print(&derived),
            print(&written)
        );
    }
}

/// The mean of n numbers has the derivative 1/n for each.
fn share(n: usize) -> f64 {
    1.0 / n as f64
}

#[test]
fn trace_of_a_product() {
    let types = [f64s(&[5, 7]), f64s(&[7, 5])];
    // Σ over i, j of A[i,j] B[j,i]: the gradients are the transposes.
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
    // The diagonal of the product: the chain rule by hand.
    let eye = || Tensor::iota(DType::I32, [5usize, 5], 0).eq(Tensor::iota(DType::I32, [5usize, 5], 1));
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
            vec![trace(&c), identity.dot(&b.matrix_transpose()), a.matrix_transpose().dot(&identity)]
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

/// Rows less their mean over their standard deviation, and 1 over the latter.
fn normalized(x: &Tensor, width: usize) -> (Tensor, Tensor) {
    let column = |t: Tensor| {
        let rows = t.shape()[0].clone();
        t.reshape([rows, Dim::from(1)])
    };
    let centred = x - column(x.mean_axes(&[1]));
    let inverse = column((centred.square().sum_axes(&[1]) * share(width) + 1e-5).rsqrt());
    (&centred * &inverse, inverse)
}

#[test]
fn layer_norm() {
    const ROWS: usize = 6;
    const WIDTH: usize = 8;
    let types = [f64s(&[ROWS, WIDTH]), f64s(&[WIDTH]), f64s(&[WIDTH]), f64s(&[ROWS, WIDTH])];
    compare(
        "layer norm",
        &types,
        3,
        |x, rest| {
            let (normal, _) = normalized(&x[0], WIDTH);
            ((normal * &x[1] + &x[2]) * &rest[0]).sum()
        },
        |v| {
            let (x, scale, shift, weights) = (&v[0], &v[1], &v[2], &v[3]);
            let (normal, inverse) = normalized(x, WIDTH);
            let value = ((&normal * scale + shift) * weights).sum();
            let d = weights * scale;
            let row = |t: Tensor| (t.sum_axes(&[1]) * share(WIDTH)).reshape([ROWS, 1]);
            let dx = (&d - row(d.clone()) - &normal * row(&d * &normal)) * inverse;
            vec![value, dx, (weights * &normal).sum_axes(&[0]), weights.sum_axes(&[0])]
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
