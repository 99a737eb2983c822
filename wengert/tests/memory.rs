//! Memory of large networks, planned and not run: the memory of a step, and the cost of using less.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use wengert::core::plan::Account;
use wengert::core::{KeyPath, Target};
use wengert::memory::{Buffer, Minimized, Point, Problem, minimize};
use wengert::models::{Gpt, GptSettings, ResNet, ResNetSettings};
use wengert::pipeline::{Bound, Options, compile, frontier};
use wengert::prelude::*;
use wengert::random::SplitMix64;

const GIB: u64 = 1 << 30;

/// A training step of GPT-2's smallest network. Products are of `dtype`. The loss is in chunks if
/// `chunks` is above 1.
fn gpt2(batch: usize, steps: usize, dtype: DType, chunks: usize) -> Program {
    step(&GptSettings { positions: steps, ..GptSettings::SMALL }, batch, dtype, chunks)
}

fn step(settings: &GptSettings, batch: usize, dtype: DType, chunks: usize) -> Program {
    let steps = settings.positions;
    let mut program = Program::new();
    program
        .function("step", |f| {
            let tokens = TensorType::new(DType::I32, [batch, steps]);
            let (x, y) = (f.input("x", tokens.clone()), f.input("y", tokens));
            let model = f.state("model", Gpt::new(settings));
            let (loss, gradient) = value_and_grad(&model, |m| {
                let m = m.map_tensors(&KeyPath::default(), &mut |_, t| t.convert(dtype));
                if chunks > 1 { m.loss_in_chunks(&x, &y, chunks) } else { m.loss(&x, &y) }
            });
            AdamW::new(1e-3).step(f, &model, &gradient);
            f.output("loss", loss);
        })
        .unwrap();
    program
}

/// A plan with half of the arena has at most 15 % more operations, one with 30 % of it at most 30 %
/// more.
fn costs_little_in_less_memory(program: &Program) {
    let plans =
        frontier(program, "step", &bind!(), &Target::cpu(), &Options::default(), 24).unwrap();
    let points: Vec<Point> = plans.iter().map(Point::of).collect();
    let whole = points.last().unwrap().arena as f64;
    for (share, more) in [(0.5, 0.15), (0.3, 0.3)] {
        let within = points.iter().rev().find(|p| p.arena as f64 <= share * whole);
        assert!(within.is_some_and(|p| p.added_operations() <= more), "{share}: {points:#?}");
    }
}

/// The logits of GPT-2 are a quarter of a step's memory, so the loss is computed in chunks.
#[test]
fn a_gpt2_in_half_of_its_memory() {
    let program = gpt2(8, 256, DType::F32, 8);
    costs_little_in_less_memory(&program);
}

/// Most of a ResNet's memory is in its first blocks, where images are large.
#[test]
fn a_resnet_in_half_of_its_memory() {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let x = f.input("x", f32([16, 224, 224, 3]));
            let y = f.input("y", i32([16]));
            let network = ResNet::new(&ResNetSettings::RESNET_50);
            let statistics = f.state("statistics", network.statistics());
            let model = f.state("model", network);
            let (loss, seen, gradient) = value_aux_and_grad(&model, |m| {
                let (logits, seen) = m.train(&x, &statistics);
                (cross_entropy(&logits, &y), seen)
            });
            Sgd::new(0.1).momentum(0.9).step(f, &model, &gradient);
            for (path, value) in seen.tensors() {
                f.update(&format!("statistics.{path}"), &value);
            }
            f.output("loss", loss);
        })
        .unwrap();
    costs_little_in_less_memory(&program);
}

/// The reference is llm.c. Its activations take 11.1 GiB with recomputed layer norms and GELUs, and
/// 14.3 GiB without. This plan stores no attention scores and no copies of queries, keys and
/// values. It recomputes GELUs without being asked to.
#[test]
fn gpt2_with_32_thousand_tokens_on_a_gpu_within_a_budget() {
    let program = gpt2(32, 1024, DType::BF16, 32);
    let target = wengert::target("sm_90").unwrap();
    let free = compile(&program, "step", &bind!(), &target, &Options::default()).unwrap();
    println!("arena without a budget: {:.2} GiB", free.arena as f64 / GIB as f64);
    assert!(free.arena <= 19 * GIB / 2, "{}", free.arena);
    let outside = Account::sizes(&free).total() - free.arena;
    let options = Options { memory_budget: Some(outside + 6 * GIB), ..Options::default() };
    let plan = compile(&program, "step", &bind!(), &target, &options).unwrap();
    assert!(plan.arena <= 6 * GIB, "{}", plan.arena);
}

/// The call keeps no matrix of scores. Its decomposition keeps the probabilities of each layer for
/// the derivative.
#[test]
fn attention_of_halves_keeps_no_scores_on_cpus() {
    let (batch, steps) = (2, 1024);
    let program = gpt2(batch, steps, DType::BF16, 1);
    let [call, decomposed] = [true, false].map(|half_attention| {
        let target = Target { half_attention, ..Target::cpu() };
        let plan = compile(&program, "step", &bind!(), &target, &Options::default()).unwrap();
        println!("arena: {:.2} GiB", plan.arena as f64 / GIB as f64);
        plan.arena
    });
    let GptSettings { layers, heads, .. } = GptSettings::SMALL;
    let probabilities = (layers * batch * heads * steps * steps * DType::BF16.size()) as u64;
    assert!(call + probabilities <= decomposed, "{call} and {decomposed}");
}

/// Buffers of real steps, and variants whose sizes differ by up to a tenth, so that no two sizes
/// match by chance.
#[test]
fn buffers_of_gpt2_lie_as_close_as_their_load() {
    let mut stream = SplitMix64::of(7, &[]);
    for settings in [GptSettings::SMALL, GptSettings::XL] {
        let program = step(&GptSettings { positions: 128, ..settings }, 2, DType::F32, 1);
        let options = Options::default();
        let bound = Bound::new(program.get("step").unwrap(), &bind!()).unwrap();
        let (problem, names) = bound.buffers(&Target::cpu(), &options).unwrap();
        assert_eq!(problem.buffers.len(), names.len());
        for jitter in [0, 100, 100, 100] {
            let mut copy = Problem::default();
            for b in &problem.buffers {
                let size = b.size * (1000 - jitter + stream.below(2 * jitter + 1)) / 1000;
                copy.push(Buffer::new(b.lower, b.upper, size.next_multiple_of(64)));
            }
            let Minimized { solution, bound } = minimize(&copy, 20_000);
            assert!(
                solution.height * 100 <= bound * 101,
                "{jitter}: {} of {bound}",
                solution.height
            );
        }
    }
}
