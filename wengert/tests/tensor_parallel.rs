//! Steps of GPT-2 and Llama on ranks that share products, on the CPU: for a fixed number of these
//! the bits do not depend on the number of data-parallel ranks, and they are near those of one
//! device.
#![allow(clippy::unwrap_used)] // This is a test.

use std::time::Duration;
use wengert::DeviceOptions;
use wengert::core::build::FunctionBuilder;
use wengert::core::graph::{Function, InputRole, Program};
use wengert::data::Arrays;
use wengert::models::{Gpt, GptSettings, Llama, LlamaSettings};
use wengert::operators::value_and_grad;
use wengert::optim::{AdamW, clip_by_global_norm};
use wengert::prelude::*;
use wengert::train::{Split, TensorParallel};
use wengert::transport::{Communicator, Options, shared};
use wengert_compiler::ranks::{DataParallel, TensorSplits};
use wengert_testing::Random;
use wengert_testing::ranks::{join, part};

const EXAMPLES: usize = 4;
const POSITIONS: usize = 6;
const VOCABULARY: usize = 11;

/// A step of AdamW on a clipped gradient.
fn step<M: Differentiable + Clone>(
    model: M,
    loss: impl Fn(&M, &Tensor, &Tensor) -> Tensor,
) -> Function {
    let built = FunctionBuilder::build("step", |f| {
        let ty = || TensorType::new(DType::I32, [EXAMPLES, POSITIONS]);
        let (x, y) = (f.input("tokens", ty()), f.input("targets", ty()));
        let model = f.state("model", model);
        let (loss, gradient) = value_and_grad(&model, |m| loss(m, &x, &y));
        let gradient = clip_by_global_norm(&gradient, 1.0).0;
        AdamW::new(1e-2).epsilon(1e-2).step(f, &model, &gradient);
        f.output("loss", loss);
    });
    built.unwrap_or_else(|e| panic!("{e}"))
}

fn of(split: Split) -> [usize; 2] {
    [split.axis, split.blocks]
}

/// A session on one thread.
fn session() -> Session {
    let one = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
    Session::open_with(Device::Cpu, &one).unwrap()
}

/// The loss and the variables after a step.
fn run(mut session: Session, function: &Function, given: &Arrays) -> (Literal, Arrays) {
    let program = Program::from_functions(vec![function.clone()]).unwrap();
    let is_variable = |name: &str| {
        let input = function.inputs.iter().find(|input| input.name == name);
        input.is_some_and(|input| input.role == InputRole::State)
    };
    let mut variables = given.clone();
    variables.retain(|name, _| is_variable(name));
    session.set_variables(&variables).unwrap();
    let mut compiled = session.compile(&program, "step", bind!()).unwrap();
    let inputs = ["tokens", "targets"].map(|name| (name, &given[name]));
    let outputs = compiled.run(&inputs).unwrap();
    let loss = outputs.get("loss").unwrap().clone();
    (loss, session.variables().unwrap())
}

/// The same on the ranks of `mesh(data=N, tensor=T)`, with whole variables.
fn run_on_ranks(of_rank: &Function, splits: &TensorSplits, given: &Arrays) -> (Literal, Arrays) {
    let tensor = splits.ranks();
    let data = of_rank.mesh.ranks() / tensor;
    let on_rank = |world: Communicator| {
        let rank = world.rank();
        let mut own = given.clone();
        for (name, value) in &mut own {
            match splits.split(name) {
                Some(split) => *value = part(value, of(split), rank % tensor, tensor),
                None if name == "tokens" || name == "targets" => {
                    *value = part(value, [0, 1], rank / tensor, data);
                }
                None => {}
            }
        }
        let mut session = session();
        session.join(world).unwrap();
        run(session, of_rank, &own)
    };
    let options = Options { timeout: Duration::from_secs(120), ..Options::default() };
    let world = shared::threads(of_rank.mesh.ranks(), &options).unwrap();
    let found: Vec<(Literal, Arrays)> = std::thread::scope(|scope| {
        let on_rank = &on_rank;
        let threads: Vec<_> =
            world.into_iter().map(|rank| scope.spawn(move || on_rank(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut variables = found[0].1.clone();
    for (name, value) in &mut variables {
        let all: Vec<&Literal> = found.iter().map(|(_, variables)| &variables[name]).collect();
        assert!((0..all.len()).all(|rank| all[rank] == all[rank % tensor]), "{name}");
        match splits.split(name) {
            Some(split) => *value = join(&all[..tensor], of(split)),
            None => assert!(all.iter().all(|x| *x == all[0]), "{name}"),
        }
    }
    assert!(found.iter().all(|(loss, _)| *loss == found[0].0));
    (found[0].0.clone(), variables)
}

fn check(function: &Function, splits: &[(&str, Split)], degrees: &[usize]) {
    let mut random = Random(7);
    let input = |i: usize| {
        let (input, ty) = (&function.inputs[i], function.input_type(i));
        let shape = ty.extents().unwrap();
        let value = match (&*input.name, input.role) {
            ("tokens" | "targets", _) => {
                let count = shape.iter().product::<usize>();
                let ids = (0..count).map(|_| random.below(VOCABULARY) as i32).collect();
                Literal::from_vec(&shape, ids).unwrap()
            }
            (name, _) if name.starts_with("model.") => random.scaled(ty, 0.5),
            _ => Literal::zeros(ty.dtype, &shape),
        };
        (input.name.clone(), value)
    };
    let given: Arrays = (0..function.inputs.len()).map(input).collect();
    let (loss, wanted) = run(session(), function, &given);
    for degree in degrees {
        let parallel = splits.iter().fold(TensorParallel::new(*degree), |all, (path, split)| {
            all.split(path, *split).unwrap()
        });
        let splits = parallel.choose(function).unwrap_or_else(|e| panic!("{e}"));
        let of_rank = splits.apply(function).unwrap_or_else(|e| panic!("{e}"));
        let gathers = of_rank.numbered();
        let gathers = gathers.iter().filter(|n| n.equation.op.name() == "all_gather").count();
        assert_eq!(gathers, 0, "{of_rank}");
        let arranged = |data: usize| {
            let both = DataParallel::new(["tokens", "targets"]).ranks(data).microbatches(2);
            run_on_ranks(&both.apply(&of_rank).unwrap(), &splits, &given)
        };
        let one = arranged(1);
        assert!(one == arranged(2), "T = {degree}: bits differ");
        let near = |found: &Literal, wanted: &Literal, name: &str| {
            for (a, b) in found.scalars().zip(wanted.scalars()) {
                let (a, b) = (a.to_f64(), b.to_f64());
                assert!((a - b).abs() <= 2e-5 * (1.0 + b.abs()), "T = {degree}, {name}: {a}, {b}");
            }
        };
        near(&one.0, &loss, "loss");
        assert_eq!(one.1.len(), wanted.len());
        wanted.iter().for_each(|(name, value)| near(&one.1[name], value, name));
    }
}

#[test]
fn a_step_of_gpt() {
    let settings = GptSettings {
        vocabulary: VOCABULARY,
        positions: POSITIONS,
        width: 16,
        heads: 4,
        layers: 2,
    };
    let function = step(Gpt::new(&settings), |m, x, y| m.loss(x, y));
    let splits = [
        ("model.h.*.attn.c_attn.weight", Split::from(1).blocks(3)),
        ("model.h.*.attn.c_proj.weight", Split::from(0)),
        ("model.h.*.mlp.c_fc.weight", Split::from(1)),
        ("model.h.*.mlp.c_proj.weight", Split::from(0)),
    ];
    check(&function, &splits, &[2, 4]);
}

#[test]
fn a_step_of_llama() {
    let settings = LlamaSettings {
        vocabulary: VOCABULARY,
        width: 16,
        layers: 2,
        heads: 4,
        key_value_heads: 2,
        intermediate: 12,
        positions: 8,
        ..LlamaSettings::LLAMA_2_7B
    };
    let function = step(Llama::new(&settings), |m, x, y| m.loss(x, y));
    let splits = [
        ("model.model.layers.*.self_attn.[qkv]_proj.weight", Split::from(1)),
        ("model.model.layers.*.self_attn.o_proj.weight", Split::from(0)),
        ("model.model.layers.*.mlp.gate_proj.weight", Split::from(1)),
        ("model.model.layers.*.mlp.up_proj.weight", Split::from(1)),
        ("model.model.layers.*.mlp.down_proj.weight", Split::from(0)),
    ];
    check(&function, &splits, &[2]);
}
