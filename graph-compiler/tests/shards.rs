//! Sharded variables: the bits are those of whole variables, and each rank stores its part.
#![allow(clippy::unwrap_used)] // Helpers outside of `#[test]` functions unwrap too.

use wengert_compiler::autodiff::operators::value_and_grad;
use wengert_compiler::pipeline::{Options, compile};
use wengert_compiler::ranks::{DataParallel, Sharding, Shards};
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::{Function, OutputRole, Program, parse_program};
use wengert_core::interpret::run_ranks;
use wengert_core::plan::Account;
use wengert_core::{Binding, DType, Initializer, Literal, Target, Tensor, TensorType};
use wengert_testing::Random;
use wengert_testing::ranks::{count, join, part};

fn ty(dtype: DType, shape: &[usize]) -> TensorType {
    TensorType::new(dtype, shape.iter().copied())
}

fn zeros(dtype: DType, shape: &[usize]) -> Tensor {
    Tensor::variable(ty(dtype, shape), Initializer::Zeros)
}

/// The weights: the first has its second axis divided, the second its first; the biases are small,
/// and 1026 elements are not divisible by 4.
const SHAPES: [&[usize]; 5] = [&[33, 64], &[64], &[64, 32], &[32], &[1026]];

/// A step of Adam in bf16 or f32, with states in f32, that clips gradients by a norm on request.
fn adam(dtype: DType, clips: bool) -> Function {
    let built = FunctionBuilder::build("step", |f| {
        let x = f.input("x", ty(DType::F32, &[8, 33])).convert(dtype);
        let y = f.input("y", ty(DType::F32, &[8, 32])).convert(dtype);
        let model = f.state("model", SHAPES.map(|shape| zeros(DType::F32, shape)).to_vec());
        let count = f.state("adam.step", zeros(DType::F32, &[])) + 1.0;
        let (loss, gradient) = value_and_grad(&model, |m| {
            let m: Vec<Tensor> = m.iter().map(|w| w.convert(dtype)).collect();
            let hidden = (x.dot(&m[0]) + &m[1]).tanh();
            let error = hidden.dot(&m[2]) + &m[3] - &y;
            let extra = m[4].slice_axis(0, 0, 32).reshape([1, 32]) * &error;
            (error.square() + extra).convert(DType::F32).sum() * (1.0 / 256.0)
        });
        let norm = gradient.iter().map(|g| g.square().sum());
        let norm = norm.reduce(|a, b| a + b).unwrap().sqrt();
        for (i, (w, g)) in model.iter().zip(&gradient).enumerate() {
            let g = if clips { g / (&norm + 1.0) } else { g.clone() };
            let (m, v) = (format!("adam.m.{i}"), format!("adam.v.{i}"));
            let next_m = f.state(&m, zeros(DType::F32, SHAPES[i])) * 0.9 + &g * 0.1;
            let next_v = f.state(&v, zeros(DType::F32, SHAPES[i])) * 0.99 + g.square() * 0.01;
            let correction = 1.0 - (&count * 0.9f32.ln()).exp();
            let change = (&next_m / &correction) / (next_v.sqrt() + 1e-5);
            f.update(&m, &next_m);
            f.update(&v, &next_v);
            f.update(&format!("model.{i}"), &(w - change * 0.01));
        }
        f.update("adam.step", &count);
        f.output("loss", loss);
        f.output("norm", norm);
    });
    built.unwrap_or_else(|e| panic!("{e}"))
}

/// The outputs of a function on its ranks, whole.
fn outputs(of_rank: &Function, shards: &Shards, inputs: &[Literal]) -> Vec<Literal> {
    let ranks = of_rank.mesh.ranks();
    let given = |rank: usize| {
        let pairs = of_rank.inputs.iter().zip(inputs);
        let of = |(input, x): (&wengert_core::graph::Input, &Literal)| match &*input.name {
            "x" | "y" => part(x, [0, 1], rank, ranks),
            name => shards.axis(name).map_or(x.clone(), |axis| part(x, [axis, 1], rank, ranks)),
        };
        pairs.map(of).collect::<Vec<Literal>>()
    };
    let given: Vec<Vec<Literal>> = (0..ranks).map(given).collect();
    let made = run_ranks(of_rank, &given).unwrap_or_else(|e| panic!("{e}\n{of_rank}"));
    let output = |i: usize| match shards.axis(&of_rank.outputs[i].name) {
        Some(axis) => join(&made.iter().map(|on| &on[i]).collect::<Vec<_>>(), [axis, 1]),
        None => {
            assert!(made.iter().all(|on| on[i] == made[0][i]), "output {i} is invariant");
            made[0][i].clone()
        }
    };
    (0..of_rank.outputs.len()).map(output).collect()
}

fn inputs(function: &Function, seed: u64) -> Vec<Literal> {
    let mut random = Random(seed);
    (0..function.inputs.len())
        .map(|i| match &*function.inputs[i].name {
            name if name.starts_with("adam.v") => Literal::full(
                &function.input_type(i).extents().unwrap(),
                wengert_core::Scalar::from(0.5f32),
            ),
            _ => random.literal(function.input_type(i)),
        })
        .collect()
}

#[test]
fn shards_change_no_bits() {
    for (dtype, clips) in [(DType::F32, false), (DType::F32, true), (DType::BF16, true)] {
        let function = adam(dtype, clips);
        let inputs = inputs(&function, 5);
        for (ranks, microbatches) in [(2, 2), (2, 4), (4, 4)] {
            let parallel = DataParallel::new(["x", "y"]).ranks(ranks).microbatches(microbatches);
            let of_rank = parallel.apply(&function).unwrap();
            let whole = outputs(&of_rank, &Shards::default(), &inputs);
            for sharding in Sharding::ALL {
                let shards = Shards::choose(&of_rank, sharding, []);
                let sharded = shards.apply(&of_rank).unwrap_or_else(|e| panic!("{e}"));
                let text = sharded.to_string();
                let again = parse_program(&text, "f.ir").unwrap_or_else(|e| panic!("{e}\n{text}"));
                assert_eq!(again.to_string(), text);
                let found = outputs(&sharded, &shards, &inputs);
                for (i, (a, b)) in found.iter().zip(&whole).enumerate() {
                    let name = &function.outputs[i].name;
                    assert!(a == b, "{sharding:?}, {ranks} ranks: the bits of `{name}` differ");
                }
            }
        }
    }
}

/// The names of divided variables, with their axes.
fn divided(sharding: Sharding, whole: &[&str]) -> Vec<String> {
    let of_rank = DataParallel::new(["x", "y"]).ranks(4).microbatches(4);
    let of_rank = of_rank.apply(&adam(DType::F32, false)).unwrap();
    let shards = Shards::choose(&of_rank, sharding, whole.iter().copied());
    shards.iter().map(|(name, axis)| format!("{name} {axis}")).collect()
}

#[test]
fn each_stage_divides_more() {
    assert!(divided(Sharding::Replicated, &[]).is_empty());
    let states = ["adam.m.0 1", "adam.m.2 0", "adam.v.0 1", "adam.v.2 0"];
    assert_eq!(divided(Sharding::States, &[]), states);
    assert_eq!(divided(Sharding::Gradients, &[]), states);
    let all = [&states[..], &["model.0 1", "model.2 0"]].concat();
    assert_eq!(divided(Sharding::Parameters, &[]), all);
    // A name in this list keeps a state whole, and has no effect on a parameter.
    assert_eq!(divided(Sharding::Parameters, &["adam.m.0", "model.0"]), {
        let mut all = all.clone();
        all.retain(|name| *name != "adam.m.0 1");
        all
    });
}

#[test]
fn collectives_of_each_stage() {
    let parallel = DataParallel::new(["x", "y"]).ranks(4).microbatches(4);
    let counts = |clips: bool, sharding| {
        let of_rank = parallel.apply(&adam(DType::F32, clips)).unwrap();
        let of_rank = Shards::choose(&of_rank, sharding, []).apply(&of_rank).unwrap();
        ["psum", "psum_scatter", "all_gather", "dynamic_slice"].map(|name| count(&of_rank, name))
    };
    // The loss and five gradients.
    assert_eq!(counts(true, Sharding::Replicated), [6, 0, 0, 0]);
    // The norm needs whole gradients. Two parameters are gathered after their update, and both
    // they and their gradients are sliced before it.
    assert_eq!(counts(true, Sharding::Gradients), [6, 0, 2, 4]);
    assert_eq!(counts(true, Sharding::Parameters), [6, 0, 2, 2]);
}

#[test]
fn a_gradient_that_is_read_by_part_is_scattered() {
    let text = "func @step(%x: f32[8,2048], state %w: f32[2048], state %m: f32[2048]) -> \
                (state w: f32[2048], state m: f32[2048]) {
        %0: f32[8,2048] = broadcast_in_dim %w {dims=[1], shape=[8,2048]}
        %1: f32[8,2048] = mul %x, %0
        %2: f32[2048] = reduce_sum %1 {axes=[0]}
        %3: f32[] = constant {value=f32[] 0.1}
        %4: f32[2048] = broadcast_in_dim %3 {dims=[], shape=[2048]}
        %5: f32[2048] = mul %2, %4
        %6: f32[2048] = add %m, %5
        %7: f32[2048] = sub %w, %6
        return %7, %6
    }";
    let program = parse_program(text, "step.ir").unwrap();
    let of_rank = DataParallel::new(["x"]).ranks(2).microbatches(2);
    let of_rank = of_rank.apply(program.get("step").unwrap()).unwrap();
    let apply = |sharding| {
        let of_rank = Shards::choose(&of_rank, sharding, []).apply(&of_rank).unwrap();
        ["psum", "psum_scatter", "all_gather", "dynamic_slice"].map(|name| count(&of_rank, name))
    };
    assert_eq!(apply(Sharding::States), [1, 0, 1, 2]);
    assert_eq!(apply(Sharding::Gradients), [0, 1, 1, 1]);
    assert_eq!(apply(Sharding::Parameters), [0, 1, 1, 0]);
}

/// A parameter is gathered, and not the tensor in which it is repeated for each example.
#[test]
fn the_smallest_tensor_is_gathered() {
    let built = FunctionBuilder::build("step", |f| {
        let x = f.input("x", ty(DType::F32, &[16, 2048]));
        let bias = f.state("bias", zeros(DType::F32, &[2048]));
        let (loss, gradient) = value_and_grad(&bias, |bias| (&x * bias).square().sum());
        f.update("bias", &(&bias - gradient * 0.01));
        f.output("loss", loss);
    });
    let function = built.unwrap_or_else(|e| panic!("{e}"));
    let of_rank = DataParallel::new(["x"]).ranks(2).microbatches(2).apply(&function).unwrap();
    let sharded = Shards::choose(&of_rank, Sharding::Parameters, []).apply(&of_rank).unwrap();
    let numbered = sharded.numbered();
    let gathers = numbered.iter().filter(|n| n.equation.op.name() == "all_gather");
    let types = gathers.map(|n| n.body.ty(n.equation.results[0]).to_string());
    assert_eq!(types.collect::<Vec<_>>(), ["f32[2048]"]);
}

/// A network of layers in which a rank gathers parameters in both passes. Those of the last two
/// layers are still there when the backward pass begins, and the first has no further reader.
#[test]
fn parameters_are_gathered_again() {
    let built = FunctionBuilder::build("step", |f| {
        let x = f.input("x", ty(DType::F32, &[4, 64]));
        let layers = (0..6).map(|_| zeros(DType::F32, &[64, 64])).collect::<Vec<Tensor>>();
        let model = f.state("model", layers);
        let (loss, gradient) =
            value_and_grad(&model, |m| m.iter().fold(x.clone(), |x, w| x.dot(w).tanh()).sum());
        for (i, (w, g)) in model.iter().zip(&gradient).enumerate() {
            f.update(&format!("model.{i}"), &(w - g * 0.01));
        }
        f.output("loss", loss);
    });
    let function = built.unwrap_or_else(|e| panic!("{e}"));
    let of_rank = DataParallel::new(["x"]).ranks(4).microbatches(4).apply(&function).unwrap();
    let stored = |sharding| {
        let function = Shards::choose(&of_rank, sharding, []).apply(&of_rank).unwrap();
        let gathers = count(&function, "all_gather");
        let program = Program::from_functions(vec![function]).unwrap();
        let (binding, options) = (Binding::new(), Options::default());
        let plan = compile(&program, "step", &binding, &Target::cpu(), &options);
        (gathers, Account::sizes(&plan.unwrap_or_else(|e| panic!("{e}"))))
    };
    let (gathers, gradients) = stored(Sharding::Gradients);
    let (again, parameters) = stored(Sharding::Parameters);
    // No state is divided without parameters. These are gathered before the forward pass, and
    // those of layers 4 to 2 again.
    assert_eq!([gathers, again], [0, 6 + 3]);
    const LAYER: u64 = 64 * 64 * 4;
    assert_eq!([gradients.state, parameters.state], [6 * LAYER, 6 * LAYER / 4]);
    // At most three parameters are whole at a time.
    assert!(parameters.arena <= gradients.arena + 3 * LAYER, "{parameters:?}, {gradients:?}");
}

/// An evaluation runs on every rank alike, and gathers what it reads.
#[test]
fn an_evaluation_gathers_its_parameters() {
    let parallel = DataParallel::new(["x", "y"]).ranks(2).microbatches(2);
    let of_rank = parallel.apply(&adam(DType::F32, false)).unwrap();
    let shards = Shards::choose(&of_rank, Sharding::Parameters, []);
    let text = "func @sum(%t: f32[33], param %model.0: f32[33,64]) -> (y: f32[64]) {
        %0: f32[64] = dot_general %t, %model.0 {contract=[[0],[0]]}
        return %0
    }";
    let program = parse_program(text, "sum.ir").unwrap();
    let function = shards.apply(program.get("sum").unwrap()).unwrap();
    assert_eq!(function.input_type(1).to_string(), "f32[33,32]{data}");
    assert_eq!(function.output_type(0).to_string(), "f32[64]");
    assert_eq!(count(&function, "all_gather"), 1);
    let other = text.replace("33,64", "33,63").replace("f32[64]", "f32[63]");
    let program = parse_program(&other, "sum.ir").unwrap();
    let error = shards.apply(program.get("sum").unwrap()).unwrap_err().to_string();
    assert!(error.contains("`model.0` is f32[33,63] here"), "{error}");
}

#[test]
fn states_are_outputs_of_the_types_of_their_inputs() {
    let parallel = DataParallel::new(["x", "y"]).ranks(2).microbatches(4);
    let of_rank = parallel.apply(&adam(DType::BF16, true)).unwrap();
    for sharding in Sharding::ALL {
        let function = Shards::choose(&of_rank, sharding, []).apply(&of_rank).unwrap();
        for (i, output) in function.outputs.iter().enumerate() {
            if output.role == OutputRole::State {
                let input = function.input_index(&output.name).unwrap();
                assert_eq!(function.output_type(i), function.input_type(input));
            }
        }
    }
}
