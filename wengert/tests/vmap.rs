//! Per-example gradients of models on the digits: `vmap(grad(loss))` equals the loop over examples.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use wengert::Scalar;
use wengert::core::KeyPath;
use wengert::core::interpret;
use wengert::core::op::DotGeneral;
use wengert::prelude::*;
use wengert_testing::Random;
use wengert_testing::digits::digits;
use wengert_testing::random::floats;

/// The number of examples.
const COUNT: usize = 5;

/// Row `n` of a literal.
fn row(literal: &Literal, n: usize) -> Literal {
    let shape = &literal.shape()[1..];
    let size = shape.iter().product::<usize>();
    let scalars: Vec<Scalar> = literal.scalars().skip(n * size).take(size).collect();
    Literal::from_scalars(literal.dtype(), shape, &scalars).unwrap()
}

/// `each` is a gradient for each of B examples, `one` the gradient of one example, `mean` the
/// gradient of the mean loss of the batch.
fn program<M: Differentiable<TangentVector = M>>(
    dtype: DType,
    model: impl Fn() -> M,
    logits: impl Fn(&M, &Tensor) -> Tensor,
) -> Program {
    let loss = |m: &M, x: &Tensor, y: &Tensor| cross_entropy(&logits(m, x), y);
    let mut program = Program::new();
    for (name, axes) in
        [("each", vec![Dim::variable("B")]), ("one", vec![]), ("mean", vec![Dim::variable("B")])]
    {
        let ty = |dtype, rest: &[i64]| {
            TensorType::new(
                dtype,
                axes.iter().cloned().chain(rest.iter().map(|e| Dim::constant(*e))),
            )
        };
        program
            .function(name, |f| {
                let x = f.input("x", ty(dtype, &[64]));
                let y = f.input("y", ty(DType::I32, &[]));
                let model = f.param("m", nn::with_dtype(&model(), dtype));
                let gradient = match name {
                    "each" => vmap(&(x, y), |(x, y)| grad(&model, |m| loss(m, x, y))),
                    "one" => grad(&model, |m| loss(m, &x, &y)),
                    _ => grad(&model, |m| vmap(&(x, y), |(x, y)| loss(m, x, y)).mean()),
                };
                gradient
                    .visit_tensors(&KeyPath::root("d"), &mut |path, t| f.output(path.as_str(), t));
            })
            .unwrap();
    }
    program
}

/// In the interpreter the batch has the bits of the loop, and its mean is the gradient of the mean.
fn interpreted(program: &Program) {
    let (images, labels) = digits(COUNT, DType::F64);
    let binding = Binding::new().with("B", COUNT as i64);
    let [each, one, mean] =
        ["each", "one", "mean"].map(|f| program.get(f).unwrap().bind(&binding).unwrap());
    let mut stream = Random(7);
    let weights: Vec<Literal> =
        (2..one.inputs.len()).map(|i| stream.scaled(one.input_type(i), 0.25)).collect();
    let run = |f, x: &Literal, y: &Literal| {
        interpret::run(f, &[&[x.clone(), y.clone()], weights.as_slice()].concat()).unwrap()
    };
    let batch = run(&each, &images, &labels);
    let mut sums: Vec<Vec<f64>> = batch.iter().map(|g| vec![0.0; g.len() / COUNT]).collect();
    for n in 0..COUNT {
        let single = run(&one, &row(&images, n), &row(&labels, n));
        for ((batch, single), sum) in batch.iter().zip(&single).zip(&mut sums) {
            assert_eq!(row(batch, n), *single);
            sum.iter_mut().zip(floats(single)).for_each(|(s, v)| *s += v / COUNT as f64);
        }
    }
    assert!(sums.iter().flatten().any(|v| v.abs() > 1e-3), "the gradients are not all zero");
    for (mean, sum) in run(&mean, &images, &labels).iter().zip(&sums) {
        let scale = sum.iter().fold(1e-3f64, |s, v| s.max(v.abs()));
        for (a, b) in floats(mean).iter().zip(sum) {
            assert!((a - b).abs() < 1e-12 * scale, "{a} and {b}");
        }
    }
}

/// On the CPU a batch is summed in another order than an example.
fn on_the_cpu(program: &Program) {
    let (images, labels) = digits(COUNT, DType::F32);
    let mut session = Session::open(Device::Cpu).unwrap();
    let mut one = session.compile(program, "one", bind!()).unwrap();
    let mut each = session.compile(program, "each", bind!(B = COUNT as i64)).unwrap();
    let mut stream = Random(7);
    let one_of = program.get("one").unwrap();
    for i in 2..one_of.inputs.len() {
        session
            .set_variable(&one_of.inputs[i].name, &stream.scaled(one_of.input_type(i), 0.25))
            .unwrap();
    }
    let batch = each.run(&[("x", &images), ("y", &labels)]).unwrap();
    for n in 0..COUNT {
        let single = one.run(&[("x", &row(&images, n)), ("y", &row(&labels, n))]).unwrap();
        for (name, wanted) in single.iter().unwrap() {
            let (given, wanted) = (floats(&row(batch.get(name).unwrap(), n)), floats(wanted));
            let scale = wanted.iter().fold(1e-3f64, |s, v| s.max(v.abs()));
            for (a, b) in given.iter().zip(&wanted) {
                assert!((a - b).abs() < 1e-5 * scale, "{name}: {a} and {b}, scale {scale}");
            }
        }
    }
}

#[derive(Differentiable)]
struct Mlp {
    hidden: Linear,
    out: Linear,
}

fn mlp() -> Mlp {
    Mlp { hidden: Linear::new(64, 12), out: Linear::new(12, 10) }
}

fn mlp_logits(m: &Mlp, x: &Tensor) -> Tensor {
    m.out.call(&m.hidden.call(x).relu())
}

#[test]
fn per_example_gradients_of_an_mlp_are_the_loop() {
    interpreted(&program(DType::F64, mlp, mlp_logits));
    on_the_cpu(&program(DType::F32, mlp, mlp_logits));
}

/// A layer's weights are shared: the forward pass of a batch is one product for each layer, not one
/// for each example.
#[test]
fn weights_are_not_repeated() {
    let program = program(DType::F32, mlp, mlp_logits);
    let mean = program.get("mean").unwrap();
    let hidden = TensorType::new(DType::F32, [64usize, 12]);
    let repeated = TensorType::new(DType::F32, [Dim::variable("B"), 64i64.into(), 12i64.into()]);
    assert!(mean.body.values.iter().any(|(_, ty)| *ty == hidden));
    assert!(mean.body.values.iter().all(|(_, ty)| *ty != repeated));
}

#[derive(Differentiable)]
struct ConvNet {
    first: Conv2d,
    second: Conv2d,
    out: Linear,
}

fn conv_net() -> ConvNet {
    ConvNet {
        first: Conv2d::new(1, 3, [3, 3]).same().stride([2, 2]),
        second: Conv2d::new(3, 4, [3, 3]).without_bias(),
        out: Linear::new(2 * 2 * 4, 10),
    }
}

fn conv_logits(m: &ConvNet, x: &Tensor) -> Tensor {
    let image = x.reshape([1i64, 8, 8, 1]);
    let features = m.second.call(&m.first.call(&image).tanh()).relu();
    m.out.call(&features.reshape([16i64]))
}

#[test]
fn per_example_gradients_of_a_convolutional_net_are_the_loop() {
    interpreted(&program(DType::F64, conv_net, conv_logits));
    on_the_cpu(&program(DType::F32, conv_net, conv_logits));
}

/// A block of a transformer on the rows of an image.
#[derive(Differentiable)]
struct Attention {
    norm: LayerNorm,
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
}

fn attention() -> Attention {
    let square = || Linear::new(8, 8);
    let out = Linear::new(8, 10);
    Attention { norm: LayerNorm::new(8), query: square(), key: square(), value: square(), out }
}

fn attention_logits(m: &Attention, x: &Tensor) -> Tensor {
    let rows = m.norm.call(&x.reshape([8i64, 8]));
    let heads = |t: Tensor| t.reshape([8i64, 2, 4]);
    let (q, k, v) =
        (heads(m.query.call(&rows)), heads(m.key.call(&rows)), heads(m.value.call(&rows)));
    let product = |a: &Tensor, b: &Tensor, contract: (usize, usize), batch: (usize, usize)| {
        let contract = (vec![contract.0], vec![contract.1]);
        let op = DotGeneral { contract, batch: (vec![batch.0], vec![batch.1]), result: None };
        Tensor::apply(op, &[a, b])
    };
    let weights = (product(&q, &k, (2, 2), (1, 1)) * 0.5).softmax(2);
    let mixed = product(&weights, &v, (2, 0), (0, 1)).permute(&[1, 0, 2]).reshape([8i64, 8]);
    m.out.call(&(mixed + rows).mean_axes(&[0]))
}

#[test]
fn per_example_gradients_of_attention_are_the_loop() {
    interpreted(&program(DType::F64, attention, attention_logits));
    on_the_cpu(&program(DType::F32, attention, attention_logits));
}
