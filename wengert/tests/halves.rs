//! A gradient as two functions, forward and backward, compiled and run separately. They give the
//! bits of the gradient in one function. The backward half can run many times, with any seed.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use wengert::Compiled;
use wengert::autodiff::function::{Grad, Halves, ResidualKind, grad, split};
use wengert::core::graph::Program as Functions;
use wengert::prelude::*;
use wengert_testing::Random;
use wengert_testing::digits::digits;
use wengert_testing::random::floats;

/// The number of images.
const COUNT: usize = 24;

const DEVICES: [Device; 2] = [Device::Cpu, Device::Emulator];

#[derive(Differentiable)]
struct Mlp {
    hidden: Linear,
    out: Linear,
}

/// The derivatives of one output of the digits' classifier: `@digits_vjp` is the whole gradient,
/// `@digits_forward` and `@digits_backward` are the halves.
struct Digits {
    program: Functions,
    halves: Halves,
    of: &'static str,
}

impl Digits {
    fn of(of: &'static str) -> Self {
        let mut program = Functions::new();
        let build = |f: &mut FunctionBuilder| {
            let (x, y) = (f.input("x", f32("B,64")), f.input("y", i32("B")));
            let m =
                f.param("model", Mlp { hidden: Linear::kaiming(64, 32), out: Linear::new(32, 10) });
            let logits = m.out.call(&m.hidden.call(&x).tanh());
            f.output("loss", cross_entropy(&logits, &y));
            f.output("logits", logits);
        };
        program.function("digits", build).unwrap();
        let request = Grad { of: Some(of), wrt: &["model"], value: true, seed: true };
        let whole = grad(&program, "digits", &request).unwrap().function;
        let halves = split(&program, "digits", &request).unwrap();
        assert!(halves.warnings.is_empty(), "{:?}", halves.warnings);
        [whole, halves.forward.clone(), halves.derivative.clone()]
            .into_iter()
            .for_each(|f| program.add(f).unwrap());
        if of == "loss" {
            let request = Grad { seed: false, ..request };
            program.add(grad(&program, "digits", &request).unwrap().function).unwrap();
        }
        Digits { program, halves, of }
    }

    /// The names of the residuals, which the forward half returns.
    fn stored(&self) -> Vec<&str> {
        let residuals = self.halves.residuals.0.iter();
        residuals
            .filter_map(
                |r| if let ResidualKind::Stored(name) = &r.kind { Some(&**name) } else { None },
            )
            .collect()
    }

    /// The names of the gradient's outputs.
    fn gradients(&self) -> Vec<&str> {
        self.halves.derivative.outputs.iter().map(|o| o.name.as_str()).collect()
    }

    /// A session with random variables.
    fn open(&self, device: Device) -> Session {
        let mut session = Session::open(device).unwrap();
        let mut stream = Random(11);
        let digits = self.program.get("digits").unwrap();
        for (i, input) in digits.inputs.iter().enumerate().skip(2) {
            session.set_variable(&input.name, &stream.scaled(digits.input_type(i), 0.125)).unwrap();
        }
        session
    }

    fn compile(&self, session: &mut Session, function: &str) -> Compiled {
        session
            .compile(&self.program, function, bind!(B = COUNT as i64))
            .unwrap_or_else(|e| panic!("{e}"))
    }

    /// Compares the halves with the whole for each seed in turn, bit for bit.
    fn compare(&self, device: Device, seeds: &[Literal]) {
        let mut session = self.open(device);
        let [mut whole, mut forward, mut backward] =
            ["digits_vjp", "digits_forward", "digits_backward"]
                .map(|name| self.compile(&mut session, name));
        let (images, labels) = digits(COUNT, DType::F32);
        let data = [("x", &images), ("y", &labels)];
        let first = forward.run(&data).unwrap();
        let seed_name = format!("ct_{}", self.of);
        for seed in seeds {
            let seeded: Vec<_> = data.into_iter().chain([(seed_name.as_str(), seed)]).collect();
            let takes =
                |f: &str, name: &str| self.program.get(f).unwrap().input_index(name).is_some();
            let given: Vec<_> =
                seeded.iter().copied().filter(|(name, _)| takes("digits_vjp", name)).collect();
            let expected = whole.run(&given).unwrap();
            assert_eq!(first.get(self.of).unwrap(), expected.get(self.of).unwrap(), "{device}");
            let given: Vec<_> = seeded
                .into_iter()
                .filter(|(name, _)| takes("digits_backward", name))
                .chain(self.stored().into_iter().map(|name| (name, first.get(name).unwrap())))
                .collect();
            let gradient = backward.run(&given).unwrap();
            for name in self.gradients() {
                let (a, b) = (gradient.get(name).unwrap(), expected.get(name).unwrap());
                assert_eq!(a, b, "{name} on {device}");
                assert!(floats(a).iter().any(|v| *v != 0.0), "{name} on {device}");
            }
        }
    }
}

#[test]
fn two_compiled_halves_give_the_bits_of_the_whole_for_seeds_one_after_the_other() {
    let digits = Digits::of("loss");
    for device in DEVICES {
        digits.compare(device, &[1.0f32, -3.0, 0.1, 1.0].map(Literal::from));
    }
}

#[test]
fn the_seed_1_gives_the_bits_of_value_and_gradient() {
    let problem = Digits::of("loss");
    let mut session = problem.open(Device::Cpu);
    let [mut fused, mut forward, mut backward] =
        ["digits_grad", "digits_forward", "digits_backward"]
            .map(|f| problem.compile(&mut session, f));
    let (images, labels) = digits(COUNT, DType::F32);
    let fused = fused.run(&[("x", &images), ("y", &labels)]).unwrap();
    let first = forward.run(&[("x", &images), ("y", &labels)]).unwrap();
    assert_eq!(first.get("loss").unwrap(), fused.get("loss").unwrap());
    let one = Literal::from(1.0f32);
    let second = problem.program.get("digits_backward").unwrap();
    let all = [("ct_loss", &one), ("x", &images), ("y", &labels)].into_iter();
    let all = all.chain(problem.stored().into_iter().map(|name| (name, first.get(name).unwrap())));
    let given: Vec<_> = all.filter(|(name, _)| second.input_index(name).is_some()).collect();
    let gradient = backward.run(&given).unwrap();
    for name in problem.gradients() {
        assert_eq!(gradient.get(name).unwrap(), fused.get(name).unwrap(), "{name}");
    }
}

#[test]
fn a_pullback_of_logits_takes_a_seed_for_each() {
    let digits = Digits::of("logits");
    let ty = TensorType::new(DType::F32, [COUNT, 10]);
    let mut stream = Random(5);
    let seeds: Vec<Literal> = (0..3).map(|_| stream.scaled(&ty, 1.0)).collect();
    for device in DEVICES {
        digits.compare(device, &seeds);
    }
}

#[test]
fn what_the_digits_hand_on_is_typed_and_printed() {
    let digits = Digits::of("loss");
    let residuals = &digits.halves.residuals;
    // tanh keeps its slope, the last layer its operands, and the loss the difference of
    // probabilities and labels.
    let expected = [
        "%x (input) f32[B,64] 256*B bytes read by jvp(dot_general)",
        "%r_0 f32[B,32] 128*B bytes read by jvp(tanh)",
        "%model.out.weight (input) f32[32,10] 1280 bytes read by jvp(dot_general)",
        "%r_1 f32[B,32] 128*B bytes read by jvp(dot_general)",
        "%r_2 f32[B,10] 40*B bytes read by jvp(softmax_cross_entropy)",
    ];
    let text = residuals.to_string();
    assert_eq!(text.lines().count(), expected.len(), "{text}");
    for ((line, expected), residual) in text.lines().zip(expected).zip(&residuals.0) {
        let (places, rest): (Vec<&str>, Vec<&str>) =
            line.split_whitespace().partition(|word| word.contains("tests/halves.rs:"));
        assert_eq!(rest.join(" "), expected, "{text}");
        assert_eq!(places, [residual.location.to_string()], "{text}");
    }
    assert_eq!(digits.stored(), ["r_0", "r_1", "r_2"]);
    // The types of the residuals are those in the signatures of both halves.
    let (forward, backward) = (&digits.halves.forward, &digits.halves.derivative);
    for residual in &residuals.0 {
        let (name, stored) = match &residual.kind {
            ResidualKind::Stored(name) => (name, true),
            ResidualKind::Input(name) => (name, false),
            ResidualKind::Captured => panic!("a function captures nothing"),
        };
        let input = backward.input_index(name).unwrap();
        assert_eq!(*backward.input_type(input), residual.ty, "{name}");
        if stored {
            let output = forward.outputs.iter().position(|o| o.name == *name).unwrap();
            assert_eq!(*forward.output_type(output), residual.ty, "{name}");
        }
    }
    assert_eq!(backward.inputs.len(), 5 + 1, "and the seed");
    // Bytes, once B is bound.
    let binding = Binding::new().with("B", COUNT as i64);
    let stored = residuals.0.iter().filter(|r| matches!(r.kind, ResidualKind::Stored(_)));
    let bytes: i64 =
        stored.map(|r| r.bytes().unwrap().bind(&binding).unwrap().as_constant().unwrap()).sum();
    assert_eq!(bytes, (32 + 32 + 10) * 4 * COUNT as i64);
}
