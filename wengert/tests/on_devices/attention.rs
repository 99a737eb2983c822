//! Attention in a network, with its derivatives, on devices: the calls in a training step of a GPT,
//! and their results against the interpreter.

use wengert::Evaluation;
use wengert::check::Finding;
use wengert::core::call::{Attention, Call};
use wengert::core::graph::OutputRole;
use wengert::core::plan::{Plan, Step};
use wengert::core::{KeyPath, interpret};
use wengert::models::{Gpt, GptSettings};
use wengert::pipeline::{Options, compile};
use wengert::prelude::*;
use wengert_testing::Random;
use wengert_testing::random::floats;

/// More positions than a block has, and a head width that is not a power of two.
const SMALL: GptSettings =
    GptSettings { vocabulary: 19, positions: 70, width: 48, heads: 2, layers: 2 };

/// The loss, and its gradient by every parameter. Layers compute in `dtype`.
fn gradient(batch: usize, dtype: DType) -> Program {
    let mut program = Program::new();
    program
        .function("gradient", |f| {
            let tokens = TensorType::new(DType::I32, [batch, SMALL.positions]);
            let (x, y) = (f.input("x", tokens.clone()), f.input("y", tokens));
            let model = f.param("model", Gpt::new(&SMALL));
            let (loss, gradient) = value_and_grad(&model, |m| {
                m.map_tensors(&KeyPath::default(), &mut |_, t| t.convert(dtype)).loss(&x, &y)
            });
            f.output("loss", loss);
            for (path, value) in gradient.tensors() {
                f.output(&format!("d.{path}"), value);
            }
        })
        .unwrap();
    program
}

fn given(program: &Program, batch: usize) -> Vec<Literal> {
    let function = program.get("gradient").unwrap();
    let mut stream = Random(3);
    let mut tokens = || {
        let all: Vec<i32> = (0..batch * SMALL.positions).map(|_| stream.below(19) as i32).collect();
        Literal::from_vec(&[batch, SMALL.positions], all).unwrap()
    };
    let mut given = vec![tokens(), tokens()];
    given.extend((2..function.inputs.len()).map(|i| stream.scaled(function.input_type(i), 0.3)));
    given
}

fn attentions(plan: &Plan) -> Vec<&Attention> {
    let call = |step| match step {
        &Step::Call { call: Call::Attention(ref a), .. } => Some(a),
        _ => None,
    };
    plan.steps.iter().filter_map(call).collect()
}

/// On GPUs each layer has one call forward and one backward, in the layers' dtype. No buffer has
/// the size of the scores.
#[test]
fn a_gpt_has_no_scores_on_gpus() {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let program = gradient(4, dtype);
        let plan = compile(
            &program,
            "gradient",
            &Binding::new(),
            &wengert::target("sm_80").unwrap(),
            &Options::default(),
        )
        .unwrap();
        let calls = attentions(&plan);
        assert_eq!(calls.len(), 2 * SMALL.layers);
        assert!(calls.iter().all(|a| a.packed && a.causal && a.dtype == dtype), "{calls:?}");
        assert_eq!(calls.iter().filter(|a| a.backward).count(), SMALL.layers);
        let scores = |shape: &[usize]| shape.iter().filter(|n| **n == SMALL.positions).count() > 1;
        assert!(!plan.values.iter().any(|(_, v)| scores(&v.shape)), "{plan}");
    }
}

fn a_gpt_on(device: Device) {
    let program = gradient(1, DType::F32);
    let (binding, inputs) = (Binding::new(), given(&program, 1));
    let on = Evaluation::new(device, &program, "gradient", &binding, &inputs);
    let found = on.compare().unwrap();
    assert!(!matches!(found, Finding::Bad(_)), "{found:?}");
}

/// Products of halves: gradients agree within the rounding of halves.
fn a_gpt_of_halves_on(device: Device) {
    let program = gradient(1, DType::BF16);
    let inputs = given(&program, 1);
    let mut session = Session::open(device).unwrap();
    let mut compiled = session.compile(&program, "gradient", Binding::new()).unwrap();
    let bound = program.get("gradient").unwrap().bind(&Binding::new()).unwrap();
    for (input, value) in bound.inputs.iter().zip(&inputs).skip(2) {
        session.set_variable(&input.name, value).unwrap();
    }
    let results = compiled.run(&[("x", &inputs[0]), ("y", &inputs[1])]).unwrap();
    let expected = interpret::run(&bound, &inputs).unwrap();
    for (output, expected) in bound.outputs.iter().zip(&expected) {
        assert_eq!(output.role, OutputRole::Output);
        let (found, expected) = (floats(results.get(&output.name).unwrap()), floats(expected));
        let greatest = expected.iter().fold(0f64, |most, x| most.max(x.abs()));
        let off = found.iter().zip(&expected).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        assert!(greatest > 0.0 && off <= 0.04 * greatest, "{}: {off} of {greatest}", output.name);
    }
}

#[test]
fn a_gpt_on_the_emulator() {
    a_gpt_on(Device::Emulator);
}

#[test]
fn a_gpt_of_halves_on_the_emulator() {
    a_gpt_of_halves_on(Device::Emulator);
}

#[test]
fn a_gpt_on_the_device_that_is_asked_for() {
    if let Ok(name) = std::env::var("WENGERT_TEST_DEVICE") {
        let device: Device = name.parse().unwrap();
        a_gpt_on(device);
        a_gpt_of_halves_on(device);
    }
}
