//! Certificates of the library's models at small sizes, values and gradients, on the CPU.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.
#![allow(clippy::print_stdout)] // Prints the figures of each model.

use std::sync::LazyLock;
use wengert::Evaluation;
use wengert::certificate::{Certificate, Norm};
use wengert::core::graph::{self, InputRole, parse_program};
use wengert::core::{KeyPath, Scalar};
use wengert::models::{
    Bert, BertSettings, Convnet, ConvnetSettings, Gpt, GptSettings, Llama, LlamaSettings,
    LstmModel, LstmModelSettings, Mlp, ResNet, ResNetSettings, UNet, UNetSettings,
};
use wengert::prelude::*;
use wengert_testing::Random;

/// A program with the function `loss`, whose outputs are a loss and its gradients.
fn program<M: Differentiable<TangentVector = M>>(
    model: M,
    inputs: &[(&str, TensorType)],
    logits: impl Fn(&M, &[Tensor]) -> Tensor,
) -> Program {
    let mut program = Program::new();
    program
        .function("loss", |f| {
            let given: Vec<Tensor> =
                inputs.iter().map(|(name, ty)| f.input(name, ty.clone())).collect();
            let model = f.param("model", model);
            // The squares of the logits weigh all of them.
            let (loss, gradient) =
                value_and_grad(&model, |model| logits(model, &given).square().mean());
            f.output("loss", loss);
            gradient.visit_tensors(&KeyPath::root("d"), &mut |path, t| f.output(path.as_str(), t));
        })
        .unwrap();
    program
}

/// Values for all inputs: small numbers, and integers below 5.
fn values(program: &Program) -> Vec<Literal> {
    let function = program.get("loss").unwrap();
    let mut random = Random(7);
    (0..function.inputs.len())
        .map(|n| {
            let ty = function.input_type(n);
            let shape: Vec<usize> = ty.extents().unwrap();
            if ty.dtype.is_float() {
                let scale = if function.inputs[n].role == InputRole::Param { 0.5 } else { 1.0 };
                return random.scaled(ty, scale);
            }
            let count = shape.iter().product();
            let elements: Vec<Scalar> =
                (0..count).map(|_| Scalar::from_i64(ty.dtype, random.below(5) as i64)).collect();
            Literal::from_scalars(ty.dtype, &shape, &elements).unwrap()
        })
        .collect()
}

/// A function without dimension variables on the CPU.
fn on<'a>(program: &'a graph::Program, function: &'a str, inputs: &'a [Literal]) -> Evaluation<'a> {
    static NONE: LazyLock<Binding> = LazyLock::new(Binding::new);
    Evaluation::new(Device::Cpu, program, function, &NONE, inputs)
}

/// Certifies a program as it is, and in mixed precision. No output may exceed its bound.
fn check(name: &str, program: &Program) {
    let inputs = values(program);
    let mut mixed = program.clone();
    mixed.precision(&Precision::bf16()).unwrap();
    for (precision, program) in [("f32", program), ("bf16", &mixed)] {
        let certificate = on(program, "loss", &inputs).certify().unwrap();
        print(name, precision, &certificate);
        for output in &certificate.outputs {
            let Ok(bound) = output.worst_case.as_ref() else { continue };
            assert!(
                output.observed.greatest <= bound.absolute * (1.0 + 1e-6),
                "{name}: {output:?}"
            );
            let (estimate, norm) = output.first_order.unwrap();
            let observed = match norm {
                Norm::Greatest => output.observed.greatest,
                Norm::Euclidean => output.observed.norm,
            };
            // The estimate is no bound, but errors of different roundings cancel.
            assert!(observed <= estimate.absolute, "{name}, {precision}: {output:?}");
        }
        assert!(certificate.no_estimate.is_none(), "{name}: {:?}", certificate.no_estimate);
        assert!(!certificate.contributions.is_empty());
    }
}

fn print(name: &str, precision: &str, certificate: &Certificate) {
    let outputs = &certificate.outputs;
    let lost = outputs.iter().filter(|output| output.worst_case.is_err()).count();
    let loss = &outputs[0];
    println!(
        "{name} {precision}: {lost} of {} outputs have no bound; loss: bound {:?}, estimate {:?}, \
         observed {:.1e}",
        outputs.len(),
        loss.worst_case,
        loss.first_order,
        loss.observed.relative()
    );
}

fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape.iter().copied())
}

fn i32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::I32, shape.iter().copied())
}

#[test]
fn a_perceptron_is_within_its_bounds() {
    let model = Mlp::new(&[6, 8, 3], Activation::Relu);
    check("mlp", &program(model, &[("x", f32s(&[4, 6]))], |m, x| m.call(&x[0])));
}

#[test]
fn a_convolutional_network_is_within_its_bounds() {
    let settings = ConvnetSettings {
        image: [4, 4],
        channels: 1,
        features: [2, 3],
        width: 4,
        classes: 3,
        dropout: 0.0,
    };
    let model = Convnet::new(&settings);
    check("convnet", &program(model, &[("x", f32s(&[2, 4, 4, 1]))], |m, x| m.call(&x[0], None)));
}

#[test]
fn transformers_are_within_their_bounds() {
    let settings = GptSettings { vocabulary: 7, positions: 4, width: 4, heads: 2, layers: 1 };
    let gpt = program(Gpt::new(&settings), &[("x", i32s(&[2, 4]))], |m, x| m.call(&x[0]));
    check("gpt", &gpt);
    let settings = BertSettings {
        vocabulary: 7,
        positions: 4,
        types: 2,
        width: 4,
        intermediate: 6,
        heads: 2,
        layers: 1,
    };
    let bert = program(Bert::new(&settings), &[("x", i32s(&[2, 4]))], |m, x| {
        let mask = x[0].ge(0);
        m.call(&x[0], &mask, None)
    });
    check("bert", &bert);
    let settings = LlamaSettings {
        vocabulary: 7,
        width: 4,
        layers: 1,
        heads: 2,
        key_value_heads: 1,
        intermediate: 6,
        positions: 4,
        ..LlamaSettings::LLAMA_2_7B
    };
    let llama = program(Llama::new(&settings), &[("x", i32s(&[2, 4]))], |m, x| m.call(&x[0]));
    check("llama", &llama);
}

#[test]
fn a_recurrent_network_is_within_its_bounds() {
    let settings =
        LstmModelSettings { vocabulary: 7, embedding: 3, width: 4, layers: 1, dropout: 0.0 };
    let model = LstmModel::new(&settings);
    check(
        "lstm",
        &program(model, &[("x", i32s(&[3, 2]))], |m, x| m.call(&x[0], &m.zero_state(2), None).0),
    );
}

/// Batch statistics of a training step: the gradients of a norm divide by them.
#[test]
fn a_residual_network_is_within_its_bounds() {
    let settings = ResNetSettings { channels: 1, width: 2, blocks: [1; 4], classes: 3 };
    let model = ResNet::new(&settings);
    let mut program = Program::new();
    program
        .function("loss", |f| {
            let x = f.input("x", f32s(&[2, 32, 32, 1]));
            let statistics = f.state("statistics", model.statistics());
            let model = f.param("model", model);
            let (loss, gradient) =
                value_and_grad(&model, |model| model.train(&x, &statistics).0.square().mean());
            f.output("loss", loss);
            f.output("d", &gradient.fc.weight);
        })
        .unwrap();
    check("resnet", &program);
}

#[test]
fn a_u_net_is_within_its_bounds() {
    let settings = UNetSettings { channels: 1, width: 2, depth: 1, classes: 2 };
    let model = UNet::new(&settings);
    check("unet", &program(model, &[("x", f32s(&[1, 4, 4, 1]))], |m, x| m.call(&x[0])));
}

/// The same equations are kept on the CPU, and the option's program gives the error that was found.
#[test]
fn a_perceptron_is_kept_within_an_error() {
    let program =
        program(Mlp::new(&[6, 8, 3], Activation::Relu), &[("x", f32s(&[4, 6]))], |m, x| {
            m.call(&x[0])
        });
    let inputs = values(&program);
    let policy = Precision::bf16();
    let kept_within = |within| on(&program, "loss", &inputs).keep(&policy, within).unwrap();
    let all = kept_within(1.0);
    assert!(all.equations.is_empty() && all.without > all.given * 100.0, "{all:?}");
    let kept = kept_within(all.without / 4.0);
    assert!(!kept.equations.is_empty() && kept.equations.len() < kept.candidates, "{kept:?}");
    let mut mixed = program.clone();
    mixed.precision(&kept.policy).unwrap();
    let certificate = on(&mixed, "loss", &inputs).certify().unwrap();
    let error = certificate.outputs.iter().map(|o| o.observed.relative()).fold(0.0, f64::max);
    assert_eq!(error, kept.with);
    assert!(kept.with <= all.without / 4.0 && kept.with >= kept.given, "{kept:?}");
}

/// The policy refers to names of the program.
#[test]
fn mistakes_of_the_caller_are_errors() {
    let text = "func @f(%x: f32[2]) -> (f32[2]) {\n %0: f32[2] = exp %x\n return %0\n}";
    let program = parse_program(text, "f.ir").unwrap();
    let x = Literal::from_vec(&[2], vec![1.0f32, 2.0]).unwrap();
    let error = on(&program, "g", &[x]).certify().unwrap_err();
    assert!(error.to_string().contains("no function `@g`"), "{error}");
}
