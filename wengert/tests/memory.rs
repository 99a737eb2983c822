//! Memory of large networks, planned and not run: what a step takes, and what less costs.
#![allow(clippy::unwrap_used)] // Clippy sees tests, but not the functions that serve them.

use wengert::core::plan::Account;
use wengert::core::{KeyPath, Target};
use wengert::memory::Point;
use wengert::models::{Gpt, GptSettings, ResNet, ResNetSettings};
use wengert::pipeline::{Options, compile, frontier};
use wengert::prelude::*;

const GIB: u64 = 1 << 30;

/// A training step of GPT-2's smallest network; products of `dtype`, and the loss in chunks, if there are several.
fn gpt2(batch: usize, steps: usize, dtype: DType, chunks: usize) -> Program {
    let settings = GptSettings { positions: steps, ..GptSettings::SMALL };
    let mut program = Program::new();
    program
        .function("step", |f| {
            let tokens = TensorType::new(DType::I32, [batch, steps]);
            let (x, y) = (f.input("x", tokens.clone()), f.input("y", tokens));
            let model = f.state("model", Gpt::new(&settings));
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

/// The logits of GPT-2 alone are a quarter of what a step keeps, so their head is in chunks.
#[test]
fn half_of_the_memory_costs_a_tenth_of_the_time() {
    let program = gpt2(8, 256, DType::F32, 8);
    let plans = frontier(&program, "step", &bind!(), &Target::cpu(), &Options::default(), 24).unwrap();
    let points: Vec<Point> = plans.iter().map(Point::of).collect();
    let whole = points.last().unwrap().arena as f64;
    for (share, more) in [(0.5, 0.15), (0.3, 0.3)] {
        let within = points.iter().rev().find(|p| p.arena as f64 <= share * whole);
        assert!(within.is_some_and(|p| p.added_operations() <= more), "{share}: {points:#?}");
    }
}

/// A ResNet's memory is that of its first blocks, where images are large.
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
    let plans = frontier(&program, "step", &bind!(), &Target::cpu(), &Options::default(), 24).unwrap();
    let points: Vec<Point> = plans.iter().map(Point::of).collect();
    let whole = points.last().unwrap().arena as f64;
    for (share, more) in [(0.5, 0.15), (0.3, 0.3)] {
        let within = points.iter().rev().find(|p| p.arena as f64 <= share * whole);
        assert!(within.is_some_and(|p| p.added_operations() <= more), "{share}: {points:#?}");
    }
}

/// llm.c, which this is measured against, takes 11.1 GiB for activations where it computes layer norms and GELUs again, 14.3 where it does not. Attention's scores are in memory on GPUs,
/// but not of all layers at once.
#[test]
fn gpt2_with_32_thousand_tokens_on_a_gpu_within_a_budget() {
    let program = gpt2(32, 1024, DType::BF16, 32);
    let target = Target::cuda("sm_90");
    let free = compile(&program, "step", &bind!(), &target, &Options::default()).unwrap();
    let outside = Account::sizes(&free).total() - free.arena;
    let options = Options { memory_budget: Some(outside + 19 * GIB / 2), ..Options::default() };
    let plan = compile(&program, "step", &bind!(), &target, &options).unwrap();
    assert!(plan.arena <= 19 * GIB / 2, "{}", plan.arena);
}
