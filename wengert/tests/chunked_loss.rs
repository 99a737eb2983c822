//! A classifier's loss in chunks of rows equals the loss without chunks. Its logits are never in
//! memory all at once.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use wengert::core::Target;
use wengert::models::{Gpt, GptSettings};
use wengert::nn::loss::linear_cross_entropy;
use wengert::pipeline::{Options, compile, compile_kernels};
use wengert::prelude::*;
use wengert_testing::Random;
use wengert_testing::random::floats;

/// `B` examples of three rows of four numbers, seven classes.
fn rows(f: &mut FunctionBuilder, dtype: DType) -> (Tensor, Tensor, Tensor) {
    (
        f.input("hidden", TensorType::new(dtype, ["B".into(), Dim::from(3), Dim::from(4)])),
        f.input("weight", TensorType::new(dtype, [7usize, 4])),
        f.input("labels", TensorType::new(DType::I32, ["B".into(), Dim::from(3)])),
    )
}

/// The loss, its gradients, and the derivatives of the gradients along the operands themselves.
fn outputs(
    f: &mut FunctionBuilder,
    at: &(Tensor, Tensor),
    loss: impl Fn(&(Tensor, Tensor)) -> Tensor,
) {
    let (value, (hidden, weight)) = value_and_grad(at, |at| 3.0 * loss(at));
    f.output("loss", value);
    f.output("by_hidden", hidden);
    f.output("by_weight", weight);
    let (hidden, weight) = hvp(at, at, loss);
    f.output("hvp_by_hidden", hidden);
    f.output("hvp_by_weight", weight);
}

fn program(dtype: DType) -> Program {
    let mut program = Program::new();
    program
        .function("written_out", |f| {
            let (hidden, weight, labels) = rows(f, dtype);
            outputs(f, &(hidden, weight), |(hidden, weight)| {
                hidden.dot(&weight.matrix_transpose()).softmax_cross_entropy(&labels).mean()
            });
        })
        .unwrap();
    program
        .function("in_chunks", |f| {
            let (hidden, weight, labels) = rows(f, dtype);
            outputs(f, &(hidden, weight), |(h, w)| linear_cross_entropy(h, w, &labels, 3));
        })
        .unwrap();
    program
}

const RESULTS: [&str; 5] = ["loss", "by_hidden", "by_weight", "hvp_by_hidden", "hvp_by_weight"];

fn results(device: Device, dtype: DType, name: &str) -> Vec<Vec<f64>> {
    let program = program(dtype);
    let mut session = Session::open(device).unwrap();
    let mut stream = Random(11);
    let hidden = stream.scaled(&TensorType::new(dtype, [4usize, 3, 4]), 1.0);
    let weight = stream.scaled(&TensorType::new(dtype, [7usize, 4]), 1.0);
    let labels = Literal::from_vec(&[4, 3], vec![0i32, 6, 1, 5, 2, 4, 3, 3, 0, 1, 6, 2]).unwrap();
    let mut compiled = session.compile(&program, name, bind!(B = 4)).unwrap();
    let given = [("hidden", hidden), ("weight", weight), ("labels", labels)];
    let run = compiled.run(&given).unwrap();
    RESULTS.iter().map(|name| floats(run.get(name).unwrap())).collect()
}

fn assert_close(device: Device, dtype: DType, tolerance: f64) {
    let (whole, parts) =
        (results(device, dtype, "written_out"), results(device, dtype, "in_chunks"));
    for ((name, whole), parts) in RESULTS.iter().zip(&whole).zip(&parts) {
        assert_eq!(whole.len(), parts.len());
        let scale = whole.iter().fold(0.0f64, |max, x| max.max(x.abs()));
        assert!(scale > 0.01, "{name} is {whole:?}");
        for (a, b) in whole.iter().zip(parts) {
            assert!((a - b).abs() <= tolerance * scale, "{name}: {a} in one, {b} in chunks");
        }
    }
}

#[test]
fn the_loss_in_chunks_is_the_loss_written_out() {
    assert_close(Device::Interpreter, DType::F64, 1e-14);
    assert_close(Device::Cpu, DType::F64, 1e-13);
    assert_close(Device::Cpu, DType::F32, 1e-5);
    assert_close(Device::Cpu, DType::BF16, 2e-2);
}

#[test]
fn the_loss_in_chunks_is_the_loss_written_out_on_gpus() {
    let device = Device::Emulator;
    assert_close(device, DType::F32, 1e-5);
    assert_close(device, DType::BF16, 2e-2);
}

const SMALL: GptSettings =
    GptSettings { vocabulary: 96, positions: 16, width: 8, heads: 2, layers: 1 };

/// A training step of a GPT on 4 · 16 tokens.
fn training(program: &mut Program, chunks: Option<usize>) {
    program
        .function("step", |f| {
            let tokens = TensorType::new(DType::I32, [4usize, 16]);
            let (x, y) = (f.input("x", tokens.clone()), f.input("y", tokens));
            let model = f.state("model", Gpt::new(&SMALL));
            let (loss, gradient) = value_and_grad(&model, |m| match chunks {
                None => m.loss(&x, &y),
                Some(chunks) => m.loss_in_chunks(&x, &y, chunks),
            });
            AdamW::new(1e-3).step(f, &model, &gradient);
            f.output("loss", loss);
        })
        .unwrap();
}

/// Bytes of the arena of the step's plan.
fn arena(chunks: Option<usize>) -> u64 {
    let mut program = Program::new();
    training(&mut program, chunks);
    compile(&program, "step", &bind!(), &Target::cpu(), &Options::default()).unwrap().arena
}

#[test]
fn memory_holds_the_logits_of_one_chunk() {
    let logits = 4 * 16 * 96 * 4;
    let (whole, quarters, rows) = (arena(None), arena(Some(4)), arena(Some(64)));
    // With one row in a chunk almost none of the logits stay in memory. The loop itself needs a
    // little.
    assert!(whole > quarters && quarters > rows, "{whole}, {quarters}, {rows}");
    assert!(whole - rows > logits * 3 / 4, "{whole}, {quarters}, {rows}");
}

/// One loop computes the value and the residuals of the gradient. It computes the logits itself and
/// accumulates the gradient of the weights in place.
#[test]
fn value_and_gradient_take_one_loop() {
    let mut program = Program::new();
    training(&mut program, Some(4));
    let function = program.get("step").unwrap().bind(&bind!()).unwrap();
    let kernels = compile_kernels(&function, &Target::cpu(), &Options::default()).unwrap().kernels;
    let text = kernels.to_string();
    let loops: Vec<&str> = text.lines().filter(|line| line.contains("= scan {")).collect();
    assert_eq!(loops.len(), 1, "{loops:?}");
    assert!(loops[0].contains("captures=1, carries=1, length=4"), "{}", loops[0]);
    // The gradients by logits and by lookups are one sum, too. Only the initial sums of the loop
    // are filled with zeros.
    assert!(!text.lines().any(|line| line.contains("copy")), "{text}");
}

#[test]
fn a_step_with_its_loss_in_chunks_is_the_step() {
    let mut losses = Vec::new();
    for chunks in [None, Some(1), Some(8)] {
        let mut session = Session::open(Device::Cpu).unwrap();
        let mut program = Program::new();
        training(&mut program, chunks);
        session.initialize(&program, 7).unwrap();
        let mut stepper = session.compile(&program, "step", bind!()).unwrap();
        let tokens = |shift: i32| {
            Literal::from_vec(&[4, 16], (0..64).map(|n| (n * 37 + shift) % 96).collect()).unwrap()
        };
        let losses_of_steps = (0..5).map(|_| {
            stepper.run(&[("x", tokens(0)), ("y", tokens(37))]).unwrap().scalar("loss").unwrap()
        });
        losses.push(losses_of_steps.collect::<Vec<f64>>());
    }
    let [whole, one, eight] = &losses[..] else { unreachable!("three runs") };
    assert!(whole[4] < whole[0], "{whole:?}");
    for other in [one, eight] {
        assert!(
            whole.iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-5 * a),
            "{whole:?}, {other:?}"
        );
    }
}

/// The error message for a loss of `rows` rows of `width` numbers.
fn refusal(rows: &[usize], width: usize, labels: DType, chunks: usize) -> String {
    let mut program = Program::new();
    let made = program.function("loss", |f| {
        let hidden =
            f.input("hidden", TensorType::new(DType::F32, rows.iter().copied().chain([4])));
        let weight = f.input("weight", TensorType::new(DType::F32, [7, width]));
        let labels = f.input("labels", TensorType::new(labels, rows.iter().copied()));
        f.output("loss", linear_cross_entropy(&hidden, &weight, &labels, chunks));
    });
    made.unwrap_err().to_string()
}

#[test]
fn what_does_not_fit_is_refused_where_the_user_wrote_it() {
    for (message, expected) in [
        (refusal(&[2, 3], 4, DType::I32, 4), "2 · 3 rows in 4 chunks"),
        (refusal(&[2, 3], 4, DType::I32, 0), "2 · 3 rows in 0 chunks"),
        (refusal(&[6], 5, DType::I32, 2), "weights f32[7,5]"),
        (refusal(&[6], 4, DType::F32, 2), "labels f32[6]"),
    ] {
        assert!(message.contains(expected) && message.contains("chunked_loss.rs"), "{message}");
    }
}
