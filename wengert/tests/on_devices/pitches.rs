//! Padding between the rows of logits changes no bit on the CPU and on the interpreter of plans,
//! and no device reads it: there, memory that was never written is found.

use wengert::core::plan::{Plan, Value, interpret};
use wengert::core::{Target, Verified};
use wengert::nn::loss::linear_cross_entropy;
use wengert::pipeline::{Options, compile};
use wengert::prelude::*;
use wengert_testing::Random;
use wengert_testing::random::floats;

/// Classes: rows of 67 elements, which are not aligned in any dtype.
const CLASSES: usize = 67;
const OUTPUTS: [&str; 3] = ["loss", "by_hidden", "by_weight"];

/// A loss of rows, weights and labels.
type Loss = fn(&Tensor, &Tensor, &Tensor) -> Tensor;

/// The loss of 12 rows and its gradients: at once, in chunks (a loop), and of probabilities that
/// another product reads.
fn program(dtype: DType) -> Program {
    let mut program = Program::new();
    let losses: [(&str, Loss); 3] = [
        ("at_once", |h, w, labels| {
            h.dot(&w.matrix_transpose()).softmax_cross_entropy(labels).mean()
        }),
        ("in_chunks", |h, w, labels| linear_cross_entropy(h, w, labels, 3)),
        ("probabilities", |h, w, _| h.dot(&w.matrix_transpose()).softmax(1).dot(w).tanh().sum()),
    ];
    for (name, loss) in losses {
        let build = |f: &mut FunctionBuilder| {
            let hidden = f.input("hidden", TensorType::new(dtype, [12, 24]));
            let weight = f.input("weight", TensorType::new(dtype, [CLASSES, 24]));
            let labels = f.input("labels", TensorType::new(DType::I32, [12]));
            let at = (hidden, weight);
            let (loss, (hidden, weight)) = value_and_grad(&at, |(h, w)| loss(h, w, &labels));
            f.output("loss", loss);
            f.output("by_hidden", hidden);
            f.output("by_weight", weight);
        };
        program.function(name, build).unwrap();
    }
    program
}

fn inputs(dtype: DType) -> [(&'static str, Literal); 3] {
    let mut random = Random(7);
    let mut drawn = |shape| random.scaled(&TensorType::new(dtype, shape), 1.0);
    let labels = (0..12).map(|n| n * 29 % CLASSES as i32).collect();
    let (hidden, weight) = (drawn([12, 24]), drawn([CLASSES, 24]));
    [("hidden", hidden), ("weight", weight), ("labels", Literal::from_vec(&[12], labels).unwrap())]
}

fn plan(dtype: DType, name: &str, target: &Target) -> Verified<Plan> {
    compile(&program(dtype), name, &bind!(), target, &Options::default()).unwrap()
}

fn padded(plan: &Plan) -> usize {
    let is_padded = |value: &Value| value.pitch.is_some();
    plan.values.iter().filter(|(_, value)| is_padded(value)).count()
}

fn run(device: Device, plan: Verified<Plan>, dtype: DType) -> Vec<Literal> {
    let mut session = Session::open(device).unwrap();
    let outputs = session.load_plan(plan).unwrap().run(&inputs(dtype)).unwrap();
    OUTPUTS.iter().map(|name| outputs.get(name).unwrap().clone()).collect()
}

const NAMES: [&str; 3] = ["at_once", "in_chunks", "probabilities"];

#[test]
fn bits_on_the_cpu_and_on_the_interpreter_do_not_depend_on_pitches() {
    for dtype in [DType::F32, DType::BF16] {
        for name in NAMES {
            let dense = plan(dtype, name, &Target::cpu());
            let aligned = plan(dtype, name, &Target { row_alignment: 16, ..Target::cpu() });
            assert_eq!(padded(&dense), 0);
            assert!(padded(&aligned) > 0, "{name}\n{aligned}");
            let bytes = |plan: &Plan| plan.values.iter().map(|(_, v)| v.bytes()).sum::<u64>();
            assert!(bytes(&aligned) > bytes(&dense), "{name}");
            let literals = inputs(dtype).map(|(_, literal)| literal);
            let interpreted = |plan| interpret(plan, &literals, &[]).unwrap().outputs;
            assert_eq!(interpreted(&dense), interpreted(&aligned), "{name}");
            let (dense, aligned) =
                (run(Device::Cpu, dense, dtype), run(Device::Cpu, aligned, dtype));
            assert_eq!(dense, aligned, "{name}");
        }
    }
}

/// The device's own target pads; its results are those of the interpreter up to the order of sums.
fn check(device: Device) {
    let target = Session::open(device).unwrap().target().clone();
    for dtype in [DType::F32, DType::BF16] {
        for name in NAMES {
            let plan = plan(dtype, name, &target);
            assert_eq!(padded(&plan) > 0, target.row_alignment > 1, "{name}\n{plan}");
            let literals = inputs(dtype).map(|(_, literal)| literal);
            let wanted = interpret(&plan, &literals, &[]).unwrap().outputs;
            let tolerance = if dtype == DType::F32 { 1e-5 } else { 3e-2 };
            for (wanted, found) in wanted.iter().zip(run(device, plan, dtype)) {
                for (x, y) in floats(wanted).into_iter().zip(floats(&found)) {
                    assert!((x - y).abs() <= tolerance * (1.0 + x.abs()), "{name}: {x} {y}");
                }
            }
        }
    }
}

#[test]
fn on_the_cpu() {
    check(Device::Cpu);
}

#[test]
fn on_the_emulator() {
    check(Device::Emulator);
}

#[test]
fn on_the_device_that_is_asked_for() {
    if let Ok(name) = std::env::var("WENGERT_TEST_DEVICE") {
        check(name.parse().unwrap());
    }
}
