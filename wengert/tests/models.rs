//! Models: layers, programs that keep their variables, gradients against finite differences.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use wengert::core::interpret;
use wengert::core::{KeyPath, Scalar};
use wengert::prelude::*;
use wengert_testing::Random;

#[derive(Differentiable)]
struct Mlp {
    hidden: Vec<Linear>,
    out: Linear,
    #[no_derivative]
    activation: Activation,
}

impl Mlp {
    fn new(widths: &[usize], activation: Activation) -> Self {
        let layers: Vec<Linear> = widths.windows(2).map(|w| Linear::new(w[0], w[1])).collect();
        let (out, hidden) = layers.split_last().unwrap();
        Mlp { hidden: hidden.to_vec(), out: out.clone(), activation }
    }

    #[track_caller]
    fn call(&self, x: &Tensor) -> Tensor {
        let hidden =
            self.hidden.iter().fold(x.clone(), |x, layer| self.activation.call(&layer.call(&x)));
        self.out.call(&hidden)
    }
}

/// One block of a transformer: attention over positions with a causal mask, then an MLP. Each has a
/// layer norm before it and a residual connection around it.
#[derive(Differentiable)]
struct Block {
    norms: [LayerNorm; 2],
    qkv: Linear,
    project: Linear,
    mlp: Mlp,
    #[no_derivative]
    heads: usize,
}

impl Block {
    fn new(width: usize, heads: usize) -> Self {
        Block {
            norms: [LayerNorm::new(width), LayerNorm::new(width)],
            qkv: Linear::new(width, 3 * width),
            project: Linear::new(width, width).without_bias(),
            mlp: Mlp::new(&[width, 2 * width, width], Activation::Gelu),
            heads,
        }
    }

    /// Maps `[positions, width]` to the same shape.
    fn call(&self, x: &Tensor) -> Tensor {
        let (length, width) =
            (x.shape()[0].as_extent().unwrap(), x.shape()[1].as_extent().unwrap());
        let qkv = self.qkv.call(&self.norms[0].call(x)).reshape([
            length,
            3,
            self.heads,
            width / self.heads,
        ]);
        // [heads, positions, …] of query, key and value.
        let part = |i: i64| {
            let part =
                qkv.slice_axis(1, i, i + 1).reshape([length, self.heads, width / self.heads]);
            part.permute(&[1, 0, 2])
        };
        let product = |a: &Tensor, b: &Tensor, axes: (usize, usize)| {
            let contract = (vec![axes.0], vec![axes.1]);
            let dot =
                wengert::core::op::DotGeneral { contract, batch: (vec![0], vec![0]), result: None };
            Tensor::apply(dot, &[a, b])
        };
        let scores =
            product(&part(0), &part(1), (2, 2)) * (1.0 / ((width / self.heads) as f64).sqrt());
        let shape = [self.heads, length, length];
        let past = Tensor::iota(DType::I32, shape, 1).ge(Tensor::iota(DType::I32, shape, 2));
        let weights = past.select(&scores, &scores.full_like(f64::NEG_INFINITY)).softmax(2);
        let mixed =
            product(&weights, &part(2), (2, 1)).permute(&[1, 0, 2]).reshape([length, width]);
        let x = x + self.project.call(&mixed);
        &x + self.mlp.call(&self.norms[1].call(&x))
    }
}

/// Compares the gradient of `loss` at random parameters with fourth-order central differences along
/// random directions.
fn check_gradient<M: Differentiable<TangentVector = M>>(
    model: M,
    x: Literal,
    loss: impl Fn(&M, &Tensor) -> Tensor,
) {
    let model = nn::with_dtype(&model, DType::F64);
    let mut program = Program::new();
    program
        .function("loss", |f| {
            let tensor = f.input("x", x.ty());
            let model = f.param("m", model);
            let (value, gradient) = value_and_grad(&model, |m| loss(m, &tensor));
            f.output("loss", value);
            gradient.visit_tensors(&KeyPath::root("d"), &mut |path, t| f.output(path.as_str(), t));
        })
        .unwrap();
    let f = program.get("loss").unwrap();
    let mut stream = Random(11);
    let mut inputs = vec![x];
    inputs.extend((1..f.inputs.len()).map(|i| stream.scaled(f.input_type(i), 0.5)));
    let at = |inputs: &[Literal]| interpret::run(f, inputs).unwrap();
    let gradient = at(&inputs);
    for _ in 0..3 {
        let direction: Vec<Literal> =
            (1..f.inputs.len()).map(|i| stream.scaled(f.input_type(i), 0.5)).collect();
        let along = |h: f64| {
            let mut moved = inputs.clone();
            for (value, t) in moved[1..].iter_mut().zip(&direction) {
                let sum: Vec<f64> = value
                    .scalars()
                    .zip(t.scalars())
                    .map(|(v, t)| v.to_f64() + h * t.to_f64())
                    .collect();
                *value = Literal::from_vec(value.shape(), sum).unwrap();
            }
            at(&moved)[0].get(0).to_f64()
        };
        let h = 1e-3;
        let slope =
            (8.0 * (along(h) - along(-h)) - (along(2.0 * h) - along(-2.0 * h))) / (12.0 * h);
        let dot = |a: &Literal, b: &Literal| -> f64 {
            a.scalars().zip(b.scalars()).map(|(a, b)| a.to_f64() * b.to_f64()).sum()
        };
        let product: f64 = gradient[1..].iter().zip(&direction).map(|(g, t)| dot(g, t)).sum();
        assert!((product - slope).abs() <= 1e-9 * (1.0 + slope.abs()), "{product} and {slope}");
    }
}

fn input(shape: &[usize]) -> Literal {
    Random(3).scaled(&TensorType::new(DType::F64, shape.iter().copied()), 0.5)
}

#[test]
fn the_gradient_of_an_mlp() {
    use Activation::*;
    for activation in [Gelu, GeluTanh, Silu, Tanh, Logistic, Identity] {
        let model = Mlp::new(&[5, 7, 6, 3], activation);
        check_gradient(model, input(&[4, 5]), |m, x| {
            let labels = Tensor::constant(Literal::from_vec(&[4], vec![0i32, 2, 1, 2]).unwrap());
            cross_entropy(&m.call(x), &labels)
        });
    }
}

#[test]
fn the_gradient_of_a_relu_network() {
    check_gradient(Mlp::new(&[5, 7, 3], Activation::Relu), input(&[4, 5]), |m, x| {
        m.call(x).square().mean()
    });
}

#[test]
fn the_gradient_of_layer_norm() {
    check_gradient(LayerNorm::new(6), input(&[3, 6]), |m, x| m.call(x).tanh().sum());
    // With respect to its input as well.
    let norm = (
        LayerNorm::new(6),
        Tensor::variable(TensorType::new(DType::F32, [3usize, 6]), Initializer::Zeros),
    );
    check_gradient(norm, input(&[3, 6]), |m, x| (m.0.call(&m.1) * x).sum());
}

#[test]
fn the_gradient_of_a_transformer_block() {
    check_gradient(Block::new(8, 2), input(&[5, 8]), |m, x| m.call(x).tanh().sum());
}

#[test]
fn the_gradient_of_a_convolutional_network() {
    #[derive(Differentiable)]
    struct Convolutional(Conv2d, Conv2d, Linear);
    let layers =
        (Conv2d::new(2, 3, [3, 3]).same(), Conv2d::new(3, 4, [2, 3]).stride([2, 1]).without_bias());
    let model = Convolutional(layers.0, layers.1, Linear::new(4 * 2 * 2, 3));
    check_gradient(model, input(&[2, 4, 4, 2]), |m, x| {
        let features = m.1.call(&m.0.call(x).silu()).tanh();
        m.2.call(&features.flatten(1)).square().mean()
    });
}

#[test]
fn the_gradient_of_an_embedding() {
    check_gradient(Embedding::new(5, 3), input(&[4, 3]), |m, x| {
        let numbers = Tensor::constant(Literal::from_vec(&[4], vec![4i32, 0, 4, 2]).unwrap());
        (m.call(&numbers) * x).tanh().sum()
    });
}

#[test]
fn the_gradient_of_a_network_with_dropout() {
    check_gradient(Mlp::new(&[5, 7, 3], Activation::Tanh), input(&[4, 5]), |m, x| {
        let key = Tensor::constant(Literal::from_vec(&[2], vec![1u32, 2]).unwrap());
        let dropped = Dropout::new(0.5).call(x, Some(&key));
        m.call(&dropped).square().sum()
    });
}

#[test]
fn dropout_keeps_the_mean_and_does_nothing_without_a_key() {
    let mut program = Program::new();
    program
        .function("drop", |f| {
            let x = f.input("x", f32("B"));
            let key = f.key("key");
            f.output("y", Dropout::new(0.25).call(&x, Some(&key)));
            f.output("same", Dropout::new(0.25).call(&x, None));
        })
        .unwrap();
    let mut session = Session::open(Device::Interpreter).unwrap();
    let mut drop = session.compile(&program, "drop", bind!(B = 4000)).unwrap();
    let ones = Literal::full(&[4000], Scalar::of(1.0f32));
    let key = Literal::from_vec(&[2], vec![7u32, 8]).unwrap();
    let out = drop.run(&[("x", ones.clone()), ("key", key)]).unwrap();
    assert_eq!(*out.get("same").unwrap(), ones);
    let y = out.get("y").unwrap().as_slice::<f32>().unwrap();
    let kept = y.iter().filter(|v| **v != 0.0).count();
    assert!((2880..3120).contains(&kept), "{kept} of 4000 are kept");
    assert!(y.iter().all(|v| *v == 0.0 || (*v - 1.0 / 0.75).abs() < 1e-6));
}

fn train_step(f: &mut FunctionBuilder) {
    let x = f.input("x", f32("B,5"));
    let y = f.input("y", i32("B"));
    let model = f.state("model", Mlp::new(&[5, 7, 3], Activation::Tanh));
    let (loss, gradient) = value_and_grad(&model, |m| cross_entropy(&m.call(&x), &y));
    AdamW::new(1e-2).step(f, &model, &gradient);
    f.output("loss", loss);
}

#[test]
fn a_program_makes_its_own_init() {
    let mut program = Program::new();
    program.function("train_step", train_step).unwrap();
    program
        .function("predict", |f| {
            let x = f.input("x", f32("B,5"));
            let model = f.param("model", Mlp::new(&[5, 7, 3], Activation::Tanh));
            f.output("y", model.call(&x));
        })
        .unwrap();
    let init = program.get("init").unwrap();
    let step = program.get("train_step").unwrap();
    let mut made: Vec<(&str, &TensorType)> = (0..init.outputs.len())
        .map(|i| (init.outputs[i].name.as_str(), init.output_type(i)))
        .collect();
    let mut wanted: Vec<(&str, &TensorType)> = (2..step.inputs.len())
        .map(|i| (step.inputs[i].name.as_str(), step.input_type(i)))
        .collect();
    made.sort();
    wanted.sort();
    assert_eq!(made, wanted);
    assert!(made.iter().any(|(name, _)| *name == "adamw.m.model.hidden.0.weight"), "{made:?}");

    let mut session = Session::open(Device::Interpreter).unwrap();
    let mut start = |seed: u32| {
        let key = Literal::from_vec(&[2], vec![seed, 0]).unwrap();
        session.compile(&program, "init", bind!()).unwrap().run(&[("key", key)]).unwrap();
        session.variables().unwrap()
    };
    let (a, again, b) = (start(1), start(1), start(2));
    assert_eq!(a, again);
    let weight = "model.hidden.0.weight";
    assert_ne!(a[weight], b[weight]);
    let limit = (6.0f32 / 12.0).sqrt();
    let drawn = a[weight].as_slice::<f32>().unwrap();
    assert!(
        drawn.iter().all(|v| v.abs() <= limit) && drawn.iter().any(|v| v.abs() > limit / 2.0),
        "{drawn:?}"
    );
    assert_ne!(a["model.hidden.0.weight"].get(0), a["model.out.weight"].get(0));
    assert!(a["model.out.bias"].scalars().all(|s| s.to_f64() == 0.0));
}

#[test]
fn what_a_variable_begins_with_does_not_depend_on_the_others() {
    let first = |with_other: bool| {
        let mut program = Program::new();
        program
            .function("f", |f| {
                if with_other {
                    f.param("other", Linear::new(2, 2));
                }
                let layer = f.param("layer", Linear::new(3, 2));
                f.output("y", &layer.weight);
            })
            .unwrap();
        let mut session = Session::open(Device::Interpreter).unwrap();
        let key = Literal::from_vec(&[2], vec![5u32, 6]).unwrap();
        session.compile(&program, "init", bind!()).unwrap().run(&[("key", key)]).unwrap();
        session.variable("layer.weight").unwrap()
    };
    assert_eq!(first(true), first(false));
}

#[test]
fn normal_numbers_are_normal() {
    let mut program = Program::new();
    program
        .function("f", |f| {
            let table = f.param("table", Embedding::new(100, 50));
            f.output("y", &table.weight);
        })
        .unwrap();
    let mut session = Session::open(Device::Interpreter).unwrap();
    let key = Literal::from_vec(&[2], vec![5u32, 6]).unwrap();
    session.compile(&program, "init", bind!()).unwrap().run(&[("key", key)]).unwrap();
    let values: Vec<f64> =
        session.variable("table.weight").unwrap().scalars().map(Scalar::to_f64).collect();
    let mean = values.iter().sum::<f64>() / 5000.0;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 5000.0;
    assert!(
        mean.abs() < 0.001 && (variance.sqrt() - 0.02).abs() < 0.001,
        "mean {mean}, variance {variance}"
    );
}

#[test]
fn one_key_path_is_one_variable() {
    let mut program = Program::new();
    program.function("train_step", train_step).unwrap();
    let message = |program: &mut Program, model: Mlp| {
        let result = program.function("predict", |f| {
            let model = f.param("model", model);
            f.output("y", &model.out.weight);
        });
        result.unwrap_err().to_string()
    };
    let text = message(&mut program, Mlp::new(&[5, 8, 3], Activation::Tanh));
    assert!(
        text.contains(
            "@predict: variable `model.hidden.0.weight` has type f32[5,8], \
             in an earlier function f32[5,7]"
        ),
        "{text}"
    );
    let mut kaiming = Mlp::new(&[5, 7, 3], Activation::Tanh);
    kaiming.hidden[0] = Linear::kaiming(5, 7);
    let text = message(&mut program, kaiming);
    assert!(text.contains("in an earlier function as Uniform"), "{text}");
    assert!(program.get("predict").is_err());
}

#[test]
fn a_program_may_have_its_own_init() {
    let mut program = Program::new();
    program.function("train_step", train_step).unwrap();
    program
        .function("init", |f| {
            f.create("model.out.bias", &Tensor::constant(Literal::zeros(DType::F32, &[3])))
        })
        .unwrap();
    program
        .function("other", |f| {
            let layer = f.param("layer", Linear::new(1, 1));
            f.output("y", &layer.weight);
        })
        .unwrap();
    assert_eq!(program.get("init").unwrap().outputs.len(), 1);
    assert!(program.function("init", |_| {}).unwrap_err().message.contains("defined twice"));
}

#[test]
fn a_training_step_learns() {
    let mut program = Program::new();
    program.function("train_step", train_step).unwrap();
    let mut session = Session::open(Device::Interpreter).unwrap();
    let key = Literal::from_vec(&[2], vec![1u32, 0]).unwrap();
    session.compile(&program, "init", bind!()).unwrap().run(&[("key", key)]).unwrap();
    let mut step = session.compile(&program, "train_step", bind!(B = 12)).unwrap();
    let x = Random(9).scaled(&TensorType::new(DType::F32, [12usize, 5]), 0.5);
    let y = Literal::from_vec(&[12], (0..12).map(|i| i % 3).collect::<Vec<i32>>()).unwrap();
    let losses: Vec<f64> = (0..250)
        .map(|_| step.run(&[("x", x.clone()), ("y", y.clone())]).unwrap().scalar("loss").unwrap())
        .collect();
    assert!(losses[0] > 0.9 && losses[249] < 0.2, "from {} to {}", losses[0], losses[249]);
}

#[test]
fn an_equation_of_a_layer_is_located_at_its_call() {
    let error = Program::new().function("f", |f| {
        let x = f.input("x", f32("B,4"));
        let layer = f.param("layer", Linear::new(3, 2));
        f.output("y", layer.call(&x));
    });
    let text = error.unwrap_err().to_string();
    assert!(text.contains("axis 1 of f32[B,4] has extent 4, axis 0 of f32[3,2] has 3"), "{text}");
    assert!(text.contains("models.rs:"), "{text}");
    assert!(!text.contains("linear.rs"), "{text}");
}
