//! Jacobians, Hessians and products with them, on closures: against closed forms, against each
//! other, and their costs.

use wengert_compiler::autodiff::operators::{
    grad, grad_and_hvp, grad_wrt, gvp, hessian, hessian_blocks, hvp, jacfwd, jacrev, jvp,
    linearize, value_and_grad_wrt, value_and_jacfwd, value_and_jacrev, value_grad_and_hessian, vjp,
};
use wengert_core::build::FunctionBuilder;
use wengert_core::{Binding, DType, Differentiable, Dim, Literal, Tensor, TensorType};
use wengert_testing::Random;
use wengert_testing::derivative::*;
use wengert_testing::smooth;

fn literal(shape: &[usize], values: &[f64]) -> Literal {
    Literal::from_vec(shape, values.to_vec()).unwrap()
}

fn shapes(tensors: &[Literal]) -> Vec<Vec<usize>> {
    tensors.iter().map(|t| t.shape().to_vec()).collect()
}

#[test]
fn a_jacobian_has_the_axes_of_the_result_in_front_in_both_modes() {
    // y[i,j] = a[i] · b[j]² has ∂y[i,j]/∂a[k] = δik b[j]² and ∂y[i,j]/∂b[k] = 2 a[i] b[j] δjk.
    let outer = |(a, b): &(Tensor, Tensor)| {
        let shape = || vec![Dim::from(2), Dim::from(3)];
        a.broadcast_in_dim(shape(), &[0]) * (b * b).broadcast_in_dim(shape(), &[1])
    };
    let (a, b) = ([2.0, 3.0], [5.0, 7.0, 11.0]);
    let (mut by_a, mut by_b) = (vec![], vec![]);
    for (i, a) in a.iter().enumerate() {
        for (j, b) in b.iter().enumerate() {
            by_a.extend((0..2).map(|k| if i == k { b * b } else { 0.0 }));
            by_b.extend((0..3).map(|k| if j == k { 2.0 * a * b } else { 0.0 }));
        }
    }
    let f = build(&[f64s(&[2]), f64s(&[3])], |x| {
        let at = (x[0].clone(), x[1].clone());
        let (forward, reverse) = (jacfwd(&at, outer), jacrev(&at, outer));
        let (y, (p, q)) = value_and_jacfwd(&at, outer);
        let (z, (r, s)) = value_and_jacrev(&at, outer);
        vec![forward.0, forward.1, reverse.0, reverse.1, p - r, q - s, y - z]
    });
    let outputs = run(&f, &[literal(&[2], &a), literal(&[3], &b)]);
    assert_eq!(shapes(&outputs[..4]), [vec![2, 3, 2], vec![2, 3, 3], vec![2, 3, 2], vec![2, 3, 3]]);
    for modes in [&outputs[..2], &outputs[2..4]] {
        assert_eq!(flat(&modes[..1]), by_a);
        assert_eq!(flat(&modes[1..]), by_b);
    }
    assert!(flat(&outputs[4..]).iter().all(|v| *v == 0.0));
}

#[test]
fn jacobians_of_random_programs_agree_with_products_of_both_modes() {
    for seed in 1..25 {
        let program = smooth::random(seed, 4 + seed as usize % 7, true);
        let types = vec![smooth::ty(); 5];
        let f = build(&types, |v| {
            let (x, t, c) = (v[..2].to_vec(), v[2..4].to_vec(), &v[4]);
            let forward = jacfwd(&x, |x: &Vec<Tensor>| program(x));
            let reverse = jacrev(&x, |x: &Vec<Tensor>| program(x));
            let push = jvp(&x, &t, |x: &Vec<Tensor>| program(x)).1;
            let pull = vjp(&x, |x: &Vec<Tensor>| program(x)).1(c);
            // J·t over the last two axes, and cᵀ·J over the first two.
            let along = |j: &Tensor, t: &Tensor| (j * t).sum_axes(&[2, 3]);
            let against = |j: &Tensor| (j * c.reshape([2usize, 3, 1, 1])).sum_axes(&[0, 1]);
            let pushed = along(&forward[0], &t[0]) + along(&forward[1], &t[1]);
            vec![
                &forward[0] - &reverse[0],
                &forward[1] - &reverse[1],
                pushed - push,
                against(&reverse[0]) - &pull[0],
                against(&reverse[1]) - &pull[1],
                forward[0].clone(),
            ]
        });
        let mut random = Random(seed << 9 | 1);
        let inputs: Vec<Literal> = types.iter().map(|ty| random.literal(ty)).collect();
        let outputs = run(&f, &inputs);
        let scale = flat(&outputs[5..]).iter().fold(1.0f64, |s, v| s.max(v.abs()));
        for difference in flat(&outputs[..5]) {
            assert!(difference.abs() <= 1e-12 * scale, "program {seed}: {difference} of {scale}");
        }
    }
}

#[test]
fn several_results_have_a_jacobian_each_and_integers_a_zero() {
    let types = [f64s(&[2]), TensorType::new(DType::I32, [3usize]), f64s(&[])];
    let f = build(&types, |x| {
        let at = (x[0].clone(), x[1].clone(), x[2].clone());
        let both = |(a, i, s): &(Tensor, Tensor, Tensor)| (a * s, vec![a.sum(), s * s], i.clone());
        let (first, rest, integers) = jacrev(&at, both);
        let (same, other, _) = jacfwd(&at, both);
        vec![
            first.0,
            first.1,
            first.2,
            rest[0].0.clone(),
            rest[0].2.clone(),
            rest[1].0.clone(),
            rest[1].2.clone(),
            integers.0,
            same.0,
            same.2,
            other[1].2.clone(),
        ]
    });
    let inputs = [
        literal(&[2], &[3.0, 4.0]),
        Literal::from_vec(&[3], vec![1i32, 2, 3]).unwrap(),
        Literal::from(5.0),
    ];
    let outputs = run(&f, &inputs);
    assert_eq!(flat(&outputs[..1]), [5.0, 0.0, 0.0, 5.0]);
    assert_eq!((outputs[1].dtype(), outputs[1].shape()), (DType::I32, &[2usize, 3][..]));
    assert_eq!(flat(&outputs[2..3]), [3.0, 4.0]);
    assert_eq!(flat(&outputs[3..5]), [1.0, 1.0, 0.0]);
    assert_eq!(flat(&outputs[5..7]), [0.0, 0.0, 10.0]);
    assert_eq!((outputs[7].shape(), flat(&outputs[7..8])), (&[3usize, 2][..], vec![0.0; 6]));
    assert_eq!(flat(&outputs[8..11]), [5.0, 0.0, 0.0, 5.0, 3.0, 4.0, 10.0]);
}

#[test]
fn the_program_is_mapped_over_the_basis_and_not_unrolled() {
    type Jacobian = fn(&Tensor, fn(&Tensor) -> Tensor) -> Tensor;
    let count = |n: usize, jacobian: Jacobian| {
        build(&[f64s(&[n])], |x| vec![jacobian(&x[0], |x| (x.tanh() * x).exp())])
            .body
            .equations
            .len()
    };
    for jacobian in [(|x, f| jacfwd(x, f)) as Jacobian, |x, f| jacrev(x, f)] {
        assert_eq!(count(3, jacobian), count(300, jacobian));
        assert!(count(3, jacobian) < 30, "{}", count(3, jacobian));
    }
}

#[test]
fn a_jacobian_keeps_dimension_variables() {
    let batch = TensorType::new(DType::F64, [Dim::variable("B"), Dim::from(2)]);
    let f = build(&[batch, f64s(&[2, 3])], |x| {
        let at = x[1].clone();
        vec![jacfwd(&at, |w| x[0].dot(w)), jacrev(&x[0], |x1| x1.dot(&at).sum_axes(&[1]))]
    });
    let f = f.bind(&Binding::new().with("B", 4)).unwrap();
    let mut random = Random(77);
    let outputs = run(&f, &[random.literal(&f64s(&[4, 2])), random.literal(&f64s(&[2, 3]))]);
    assert_eq!(shapes(&outputs), [vec![4, 3, 2, 3], vec![4, 4, 2]]);
}

/// Mean cross-entropy of logistic regression with labels ±1, and its closed-form gradient and
/// Hessian.
fn logistic_regression(w: &Tensor, x: &Tensor, labels: &Tensor) -> Tensor {
    (-(x.dot(w)) * labels).exp().log1p().mean()
}

#[test]
fn the_hessian_of_logistic_regression_is_the_closed_form() {
    const N: usize = 25;
    const P: usize = 10;
    let f = build(&[f64s(&[P]), f64s(&[N, P]), f64s(&[N])], |v| {
        let loss = |w: &Tensor| logistic_regression(w, &v[1], &v[2]);
        let (value, gradient, h) = value_grad_and_hessian(&v[0], loss);
        let nested = jacrev(&v[0], |w| grad(w, loss));
        vec![
            value - loss(&v[0]),
            gradient - grad(&v[0], loss),
            &h - nested,
            h,
            hessian(&v[0], loss),
        ]
    });
    let mut random = Random(0xb00);
    let x = random.literal(&f64s(&[N, P]));
    let w = random.literal(&f64s(&[P]));
    let labels: Vec<f64> = (0..N).map(|_| if random.below(2) == 0 { -1.0 } else { 1.0 }).collect();
    let outputs = run(&f, &[w.clone(), x.clone(), literal(&[N], &labels)]);
    // H = Σ σ(z)(1 − σ(z)) x xᵀ / N with z = x·w. The signs of the labels do not matter.
    let (x, w) = (flat(&[x]), flat(&[w]));
    let mut closed = vec![0.0; P * P];
    for row in x.chunks(P) {
        let z: f64 = row.iter().zip(&w).map(|(a, b)| a * b).sum();
        let s = 1.0 / (1.0 + (-z).exp());
        for (i, j) in (0..P).flat_map(|i| (0..P).map(move |j| (i, j))) {
            closed[i * P + j] += s * (1.0 - s) * row[i] * row[j] / N as f64;
        }
    }
    assert_close(&flat(&outputs[..2]), &[0.0; P + 1], 1e-15, "value and gradient");
    assert_close(
        &flat(&outputs[2..3]),
        &[0.0; P * P],
        1e-12,
        "forward over reverse, reverse over reverse",
    );
    assert_close(&flat(&outputs[3..4]), &closed, 1e-12, "Hessian");
    assert_eq!(outputs[3], outputs[4]);
}

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct Layer {
    weight: Tensor,
    bias: Option<Tensor>,
}

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct Mlp {
    layers: Vec<Layer>,
}

impl Mlp {
    fn call(&self, x: &Tensor) -> Tensor {
        self.layers.iter().fold(x.clone(), |x, layer| {
            let y = x.dot(&layer.weight).tanh();
            layer.bias.as_ref().map_or_else(|| y.clone(), |b| &y + b)
        })
    }
}

const MODEL: [&[usize]; 3] = [&[3, 4], &[4], &[4, 2]];

fn mlp(v: &[Tensor]) -> Mlp {
    Mlp {
        layers: vec![
            Layer { weight: v[0].clone(), bias: Some(v[1].clone()) },
            Layer { weight: v[2].clone(), bias: None },
        ],
    }
}

fn leaves(model: &Mlp) -> Vec<Tensor> {
    model.tensors().into_iter().map(|(_, t)| t).collect()
}

#[test]
fn products_with_the_hessian_and_the_gauss_newton_matrix_of_a_model() {
    // The model's tensors, a direction, and the data.
    let types: Vec<TensorType> =
        [&MODEL[..], &MODEL[..], &[&[5, 3], &[5, 2]]].concat().into_iter().map(f64s).collect();
    let f = build(&types, |v| {
        let (model, direction, x, target) = (mlp(&v[..3]), mlp(&v[3..6]), &v[6], &v[7]);
        let error = |y: &Tensor| ((y - target).square()).sum();
        let loss = |m: &Mlp| error(&m.call(x));
        let product = leaves(&hvp(&model, &direction, loss));
        let (gradient, again) = grad_and_hvp(&model, &direction, loss);
        // H·v by rows of the whole matrix.
        let rows = hessian_blocks(&model, loss);
        let paths: Vec<String> = rows.iter().map(|(path, _)| path.to_string()).collect();
        assert_eq!(paths, ["layers.0.weight", "layers.0.bias", "layers.1.weight"]);
        let by_rows = rows.iter().zip(&product).map(|((_, row), like)| {
            let terms = leaves(row).into_iter().zip(&v[3..6]).map(|(block, t)| {
                let axes: Vec<usize> = (like.rank()..block.rank()).collect();
                (block * t).sum_axes(&axes)
            });
            terms.reduce(|a, b| a + b).unwrap()
        });
        let by_rows: Vec<Tensor> = by_rows.collect();
        // Jᵀ·(2·J·v), since the Hessian of the squared error is twice the identity.
        let gauss_newton = leaves(&gvp(&model, &direction, |m| m.call(x), error));
        let (_, differential) = linearize(&model, |m: &Mlp| m.call(x));
        let expected =
            leaves(&differential.pull_back(&(differential.push_forward(&direction) * 2.0)));
        let plain = leaves(&grad(&model, loss));
        let difference = |a: Vec<Tensor>, b: &[Tensor]| -> Vec<Tensor> {
            a.iter().zip(b).map(|(a, b)| a - b).collect()
        };
        [
            difference(by_rows, &product),
            difference(leaves(&again), &product),
            difference(leaves(&gradient), &plain),
            difference(gauss_newton, &expected),
            product,
        ]
        .concat()
    });
    let mut random = Random(0x96f);
    let inputs: Vec<Literal> = types.iter().map(|ty| random.literal(ty)).collect();
    let outputs = run(&f, &inputs);
    let scale = flat(&outputs[12..]).iter().fold(0.0f64, |s, v| s.max(v.abs()));
    assert!(scale > 0.1, "{scale}");
    for difference in flat(&outputs[..12]) {
        assert!(difference.abs() <= 1e-12 * scale.max(1.0), "{difference} of {scale}");
    }
}

#[test]
fn batches_of_seeds_are_pulled_back_at_once() {
    let f = build(&[f64s(&[3]), f64s(&[4, 3]), f64s(&[4, 3])], |v| {
        let (_, differential) = linearize(&v[0], |x: &Tensor| x.cumsum(0).sin());
        let pulled = differential.pull_back_batch(&v[1]);
        let pushed = differential.push_forward_batch(&v[2]);
        let one = |t: &Tensor, i: i64| t.slice_axis(0, i, i + 1).reshape([3usize]);
        let mut differences = Vec::new();
        for i in 0..4 {
            differences.push(one(&pulled, i) - differential.pull_back(&one(&v[1], i)));
            differences.push(one(&pushed, i) - differential.push_forward(&one(&v[2], i)));
        }
        differences.push(pulled);
        differences
    });
    let mut random = Random(5);
    let inputs: Vec<Literal> =
        [&[3][..], &[4, 3], &[4, 3]].map(|s| random.literal(&f64s(s))).to_vec();
    let outputs = run(&f, &inputs);
    assert_close(&flat(&outputs[..8]), &[0.0; 24], 1e-15, "each seed by itself");
    assert!(flat(&outputs[8..]).iter().any(|v| v.abs() > 0.1));
}

#[test]
fn a_part_of_a_model_is_differentiated_and_the_rest_costs_nothing() {
    let types: Vec<TensorType> = [&MODEL[..], &[&[5, 3]]].concat().into_iter().map(f64s).collect();
    let loss = |m: &Mlp, x: &Tensor| m.call(x).square().sum();
    let function = |wrt: &[&str]| {
        build(&types, |v| {
            let (value, gradient) = value_and_grad_wrt(&mlp(v), wrt, |m| loss(m, &v[3]));
            [vec![value], leaves(&gradient)].concat()
        })
    };
    let whole = build(&types, |v| leaves(&grad(&mlp(v), |m| loss(m, &v[3]))));
    let mut random = Random(8);
    let inputs: Vec<Literal> = types.iter().map(|ty| random.literal(ty)).collect();
    let all = run(&whole, &inputs);
    for (wrt, chosen) in [
        (&["layers"][..], [true, true, true]),
        (&["layers.0"], [true, true, false]),
        (&["layers.1.weight"], [false, false, true]),
        (&["layers.0.bias", "layers.1"], [false, true, true]),
    ] {
        let part = run(&function(wrt), &inputs);
        for (i, chosen) in chosen.into_iter().enumerate() {
            let expected =
                if chosen { flat(&all[i..=i]) } else { vec![0.0; flat(&all[i..=i]).len()] };
            assert_eq!(flat(&part[i + 1..i + 2]), expected, "{wrt:?}");
        }
    }
    let products = |wrt: &[&str]| {
        let equations = function(wrt).body.equations;
        equations.iter().filter(|e| e.op.name() == "dot_general").count()
    };
    // Two products forward. Backward there is one for each weight, and one for the cotangent of the
    // hidden activations.
    assert_eq!(
        (products(&["layers"]), products(&["layers.0.bias"]), products(&["layers.1"])),
        (5, 3, 3)
    );
}

fn error_of(f: impl FnOnce(&mut FunctionBuilder)) -> String {
    FunctionBuilder::build("f", f).unwrap_err().to_string()
}

/// Asserts that the text contains every line of `parts`, and names this file `places` times.
fn assert_says(text: &str, parts: &[&str], places: usize) {
    parts.iter().for_each(|part| assert!(text.contains(part), "`{part}` in: {text}"));
    assert_eq!(text.matches("jacobians.rs:").count(), places, "{text}");
    assert!(!text.contains("src/autodiff"), "a place inside the library: {text}");
}

#[test]
fn mistakes_name_both_places_and_the_mend() {
    let vector = || TensorType::new(DType::F32, [3usize]);
    let text = error_of(|f| {
        let x = f.input("x", vector());
        let y = grad(&x, |x| x * x);
        f.output("y", y);
    });
    assert_says(
        &text,
        &["grad needs a scalar output; the closure's has shape f32[3]. Reduce it with `.sum()` \
             or use `jacrev`"],
        2,
    );
    for (operator, text) in [
        (
            "hessian",
            error_of(|f| {
                let x = f.input("x", vector());
                f.output("y", hessian(&x, |x| x * x));
            }),
        ),
        (
            "hvp",
            error_of(|f| {
                let x = f.input("x", vector());
                f.output("y", hvp(&x, &x, |x| x * x));
            }),
        ),
    ] {
        let says = format!(
            "{operator} needs a scalar output; the closure's has shape f32[3]. Reduce it with \
             `.sum()`"
        );
        assert_says(&text, &[&says], 2);
    }
    let text = error_of(|f| {
        let i = f.input("i", TensorType::new(DType::I32, [3usize]));
        f.output("y", grad(&i, |i| i.convert(DType::F32).sum()));
    });
    assert_says(&text, &["no floats to differentiate with respect to", "i32[3] is made here"], 2);
    let text = error_of(|f| {
        let x = f.input("x", vector());
        let i = f.input("i", TensorType::new(DType::I32, [3usize]));
        f.output("y", grad_wrt(&(x, i), &["1"], |(x, _)| x.sum()).0);
    });
    assert_says(&text, &["`1` has type i32[3]: i32 has no derivative", "floats only"], 2);
    let text = error_of(|f| {
        let v: Vec<Tensor> =
            MODEL.iter().map(|s| f.input(&format!("x{}", s.len() * s[0]), f64s(s))).collect();
        f.output(
            "y",
            &grad_wrt(&mlp(&v), &["layers.0.wieght"], |m| m.layers[0].weight.sum()).layers[0]
                .weight,
        );
    });
    assert_says(
        &text,
        &["there is no tensor `layers.0.wieght`", "did you mean `layers.0.weight`?"],
        1,
    );
    let text = error_of(|f| {
        let x = f.input("x", vector());
        let seed = f.input("seed", TensorType::new(DType::F32, [2usize]));
        f.output("y", vjp(&x, |x: &Tensor| x * x).1(&seed));
    });
    assert_says(
        &text,
        &["the cotangent has type f32[2], the value has f32[3]", "the value is made here"],
        3,
    );
    let text = error_of(|f| {
        let x = f.input("x", vector());
        let t = f.input("t", TensorType::new(DType::F64, [3usize]));
        f.output("y", jvp(&(x.clone(), x), &(t.clone(), t), |(a, b)| a * b).1);
    });
    assert_says(&text, &["the tangent for `0` has type f64[3], the value has f32[3]"], 3);
    let text = error_of(|f| {
        let x = f.input("x", vector());
        let seeds = f.input("seeds", TensorType::new(DType::F32, [4usize, 2]));
        let (_, differential) = linearize(&x, |x: &Tensor| x * x);
        f.output("y", differential.pull_back_batch(&seeds));
    });
    assert_says(
        &text,
        &["the batch of cotangents has type f32[4,2], a batch of 4 has f32[4,3]"],
        3,
    );
    let text = error_of(|f| {
        let dims = ["A", "B", "C", "D", "E", "F", "G", "H", "I"].map(Dim::variable);
        let x = f.input("x", TensorType::new(DType::F32, dims));
        f.output("y", jacrev(&x, |x| x * x));
    });
    assert_says(
        &text,
        &[
            "the number of elements of f32[A,B,C,D,E,F,G,H,I], which is no dimension",
            "give some of its dimension variables numbers",
        ],
        1,
    );
}

/// The basis has B·T elements.
#[test]
fn a_jacobian_may_have_a_product_of_variables() {
    let ty = TensorType::new(DType::F64, ["B", "T"].map(Dim::variable));
    let f = build(&[ty], |x| vec![jacrev(&x[0], |x| x * x)]);
    let bound = f.bind(&Binding::new().with("B", 2).with("T", 3)).unwrap();
    let x: Vec<f64> = (1..=6).map(f64::from).collect();
    let result = run(&bound, &[Literal::from_vec(&[2, 3], x.clone()).unwrap()]).remove(0);
    assert_eq!(result.shape(), [2, 3, 2, 3]);
    let expected = (0..36).map(|i| if i / 6 == i % 6 { 2.0 * x[i / 6] } else { 0.0 });
    assert_eq!(result.as_slice::<f64>().unwrap(), expected.collect::<Vec<_>>());
}
