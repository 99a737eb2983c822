//! Training steps of the examples on 1, 2 and 4 ranks, in the interpreter: the same bits, near
//! those of one device without microbatches. And the steps that cannot be divided, with the reason.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use python_free_examples::{
    char_gpt, convnet, crf, deep_equilibrium, digits, dqn, graph_network, kfac, lstm, neural_ode,
    newton, onnx_classifier, speech, tree, vae,
};
use wengert::core::graph::{Function, InputRole, Program};
use wengert::core::interpret::{run, run_ranks};
use wengert::data::Arrays;
use wengert::models::ConvnetSettings;
use wengert::ranks::DataParallel;
use wengert::{Binding, DType, Literal, Scalar, Weights};

/// A step, and the inputs with examples.
struct Case {
    program: Program,
    step: Function,
    batch: &'static [&'static str],
    /// Values of variables that `init` does not make.
    weights: Arrays,
}

impl Case {
    fn new(
        program: wengert::Program,
        step: &str,
        binding: &[(&str, i64)],
        batch: &'static [&'static str],
    ) -> Case {
        Self::with_weights(program.into_inner(), Arrays::new(), step, binding, batch)
    }

    fn with_weights(
        program: Program,
        weights: Arrays,
        step: &str,
        binding: &[(&str, i64)],
        batch: &'static [&'static str],
    ) -> Case {
        let binding = binding.iter().fold(Binding::new(), |all, (name, n)| all.with(name, *n));
        let step = program.get(step).unwrap().bind(&binding).unwrap();
        Case { program, step, batch, weights }
    }

    fn of_rank(&self, ranks: usize, microbatches: usize) -> wengert::Result<Function> {
        DataParallel::new(self.batch.to_vec())
            .ranks(ranks)
            .microbatches(microbatches)
            .apply(&self.step)
    }

    /// Variables that `init` makes, and inputs: numbers in 0..1, and integers below `limits` of
    /// their names.
    fn inputs(&self, limits: &[(&str, usize)]) -> Vec<Literal> {
        let init = self.program.get("init").unwrap();
        let key = Literal::from_vec(&[2], vec![1u32, 2]).unwrap();
        let made = run(init, &vec![key.clone(); init.inputs.len()]).unwrap();
        let input = |i: usize| {
            let (input, ty) = (&self.step.inputs[i], self.step.input_type(i));
            match input.role {
                InputRole::Key => key.clone(),
                InputRole::Input => {
                    let limit = limits.iter().find(|(name, _)| *name == input.name);
                    let shape = ty.extents().unwrap();
                    let element = |at: usize| {
                        let number = match ty.dtype {
                            DType::Bool => below(2, at) as f64,
                            dtype if dtype.is_float() => below(256, at) as f64 / 256.0,
                            _ => below(limit.unwrap().1, at) as f64,
                        };
                        Scalar::from_f64(ty.dtype, number)
                    };
                    let elements: Vec<Scalar> = (0..shape.iter().product()).map(element).collect();
                    Literal::from_scalars(ty.dtype, &shape, &elements).unwrap()
                }
                _ => {
                    let at = init.outputs.iter().position(|o| o.name == input.name);
                    at.map_or_else(|| self.weights[&input.name].clone(), |at| made[at].clone())
                }
            }
        };
        (0..self.step.inputs.len()).map(input).collect()
    }

    /// The outputs of each number of ranks have the same bits, and are near those of the step.
    fn check(&self, limits: &[(&str, usize)]) {
        let inputs = self.inputs(limits);
        let wanted = run(&self.step, &inputs).unwrap();
        for microbatches in [4, 8] {
            let mut first: Option<Vec<Literal>> = None;
            for ranks in [1, 2, 4] {
                let of_rank = self.of_rank(ranks, microbatches).unwrap_or_else(|e| panic!("{e}"));
                let given = |rank: usize| {
                    let of = |(i, x): (usize, &Literal)| match self
                        .batch
                        .contains(&&*self.step.inputs[i].name)
                    {
                        true => part(x, rank, ranks),
                        false => x.clone(),
                    };
                    inputs.iter().enumerate().map(of).collect::<Vec<Literal>>()
                };
                let given: Vec<Vec<Literal>> = (0..ranks).map(given).collect();
                let mut made = run_ranks(&of_rank, &given).unwrap();
                assert!(made.iter().all(|on| on == &made[0]), "all outputs are invariant");
                let made = made.swap_remove(0);
                for (i, (a, b)) in made.iter().zip(&wanted).enumerate() {
                    let name = &self.step.outputs[i].name;
                    for (a, b) in numbers(a).into_iter().zip(numbers(b)) {
                        // Adam divides a gradient by its size, so a tiny one may move a weight by a
                        // part of the learning rate in either direction.
                        let near = (a - b).abs() <= 2e-4 * (1.0 + b.abs());
                        assert!(near, "M = {microbatches}: `{name}` has {a}, not {b}");
                    }
                }
                match &first {
                    None => first = Some(made),
                    Some(first) => {
                        for (i, (a, b)) in first.iter().zip(&made).enumerate() {
                            let name = &self.step.outputs[i].name;
                            let on = format!("M = {microbatches}, {ranks} ranks");
                            assert!(a == b, "{on}: `{name}` differs from that of one rank");
                        }
                    }
                }
            }
        }
    }

    /// The step cannot be divided. The error has these parts.
    #[track_caller]
    fn refuses(&self, parts: &[&str]) {
        let error = match self.of_rank(2, 4) {
            Ok(_) => panic!("no error"),
            Err(error) => error.to_string(),
        };
        for part in parts {
            assert!(error.contains(part), "`{part}` is missing in:\n{error}");
        }
    }
}

/// A number below `limit`, from a position.
fn below(limit: usize, at: usize) -> usize {
    let mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize % limit
}

/// Part `rank` of `ranks` of the examples.
fn part(x: &Literal, rank: usize, ranks: usize) -> Literal {
    let mut shape = x.shape().to_vec();
    shape[0] /= ranks;
    let bytes = x.to_bytes();
    let size = bytes.len() / ranks;
    Literal::from_bytes(x.dtype(), &shape, &bytes[rank * size..][..size]).unwrap()
}

fn numbers(x: &Literal) -> Vec<f64> {
    x.scalars().map(|s| s.to_f64()).collect()
}

#[test]
fn char_gpt() {
    let settings = char_gpt::Settings {
        width: 8,
        heads: 2,
        layers: 2,
        window: 6,
        batch: 8,
        dropout: 0.2,
        ..char_gpt::Settings::default()
    };
    let program = char_gpt::program(11, &settings).unwrap();
    Case::new(program, "train_step", &[("B", 8)], &["x", "y"]).check(&[("x", 11), ("y", 11)]);
}

#[test]
fn convnet() {
    let network = ConvnetSettings {
        image: [8, 8],
        channels: 1,
        features: [3, 4],
        width: 6,
        classes: 5,
        dropout: 0.3,
    };
    let settings = convnet::Settings { network, ..convnet::Settings::default() };
    let program = convnet::program(&settings).unwrap();
    Case::new(program, "train_step", &[("B", 16)], &["x", "y"]).check(&[("x", 256), ("y", 5)]);
}

#[test]
fn digits() {
    let program = digits::program().unwrap();
    Case::new(program, "train_step", &[("B", 8)], &["x", "y"]).check(&[("y", 10)]);
}

/// An imported model, of which updates of low rank are trained.
#[test]
fn onnx_classifier() {
    let file = onnx_classifier::adapted().unwrap();
    let Weights::Inline(weights) = file.weights else { panic!("the file has its weights") };
    let (binding, batch) = (&[("batch", 8)], &["image", "labels"]);
    let case = Case::with_weights(file.program, weights, "train_step", binding, batch);
    case.check(&[("labels", 10)]);
}

/// Sums over the tags of sentences, in a loop over their words.
#[test]
fn crf() {
    let program = crf::program().unwrap();
    let case = Case::new(program, "train_step", &[("B", 8), ("T", 5)], &["words", "tags"]);
    case.check(&[("words", crf::WORDS.len()), ("tags", crf::TAGS.len())]);
}

#[test]
fn vae() {
    let program = vae::program(8, 3).unwrap();
    Case::new(program, "train_step", &[("B", 8)], &["x"]).check(&[]);
}

#[test]
fn dqn() {
    let program = dqn::program(6).unwrap();
    let batch = &["observations", "actions", "rewards", "ended", "next"];
    Case::new(program, "learn", &[("B", 8)], batch).check(&[("actions", dqn::ACTIONS)]);
}

/// Loops of whole values, whose conditions are sums over the batch, and a branch.
#[test]
fn kfac() {
    let program = || kfac::program(&[64, 5, 4], 0.03, 1.0).unwrap();
    let case = Case::new(program(), "kfac_step", &[("B", 8)], &["x", "y"]);
    case.check(&[("y", 4)]);
    Case::new(program(), "sgd_step", &[("B", 8)], &["x", "y"]).check(&[("y", 4)]);
}

/// Trees whose nodes are of different kinds: a branch for each example runs as selections.
#[test]
fn tree() {
    let program = tree::program(4).unwrap();
    let batch = &["kinds", "values", "truth"];
    let case = Case::new(program, "train_step", &[("B", 8), ("T", 5)], batch);
    case.check(&[("kinds", 5), ("truth", 2)]);
}

/// With a fixed number of layers. Their equilibrium is found by a loop that runs until the whole
/// batch has it.
#[test]
fn deep_equilibrium() {
    let step = |depth| {
        let program = deep_equilibrium::program(6, depth).unwrap();
        Case::new(program, "train_step", &[("B", 8)], &["x", "y"])
    };
    step(deep_equilibrium::Depth::Layers(4)).check(&[("y", 10)]);
    let equilibrium = step(deep_equilibrium::Depth::Infinite(1e-5));
    equilibrium.refuses(&["`reduce_max` is an extremum over the examples within a loop"]);
}

/// A state for each stream of characters would differ between ranks.
#[test]
fn lstm_keeps_states_of_examples() {
    let settings =
        lstm::Settings { embedding: 4, width: 5, streams: 8, window: 4, ..Default::default() };
    let program = lstm::program(11, &settings).unwrap();
    let case = Case::new(program, "train_step", &[], &["x", "y"]);
    case.refuses(&["state `streams.", "would have a value for each example"]);
}

/// Axis 0 of the frames is time.
#[test]
fn speech_has_its_examples_along_axis_1() {
    let program = speech::program(4).unwrap();
    let batch = &["frames", "frame_counts", "labels", "label_counts"];
    let case = Case::new(program, "train_step", &[("B", 8)], batch);
    case.refuses(&["input `frame_counts`, i32[8], has 8 examples, but `frames` has 40"]);
}

/// Axis 0 of the observations is time.
#[test]
fn neural_ode_has_its_examples_along_axis_1() {
    let field = neural_ode::Network::new(2, 4);
    let memory = neural_ode::Memory::Tape(6);
    let program = neural_ode::program(field, 0.1.into(), memory).unwrap();
    let case = Case::new(program, "train_step", &[("W", 8), ("K", 4)], &["start", "seen"]);
    case.refuses(&["input `seen`, f64[4,8,2], has 4 examples, but `start` has 8"]);
}

/// A product with the Hessian in each step of a solver is a sum over the batch.
#[test]
fn newton_sums_over_the_batch_in_a_loop() {
    let program = newton::program(1e-3, 1e-6).unwrap();
    let case = Case::new(program, "newton_step", &[("B", 8)], &["x", "y"]);
    case.refuses(&["`custom_linear_solve` has regions, and operand"]);
}

/// Edges join the members, which are no independent examples.
#[test]
fn graph_network_has_no_examples() {
    let program = graph_network::program(&[8, 4, 2]).unwrap();
    let binding = &[("N", 8), ("E", 12), ("K", 4)];
    let case = Case::new(program, "train_step", binding, &["features"]);
    case.refuses(&["`gather` mixes the examples"]);
}
