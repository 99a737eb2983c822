//! Bytes that a training step of GPT-2 124M moves outside of products and attention, counted from
//! its nests. Nothing runs.
//!
//! The count uses the nests alone. Each kernel moves each of its parameters once, and only the
//! elements that its loads can reach. The compiler's cost model is not used.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write;
use wengert::core::Target;
use wengert::core::nest::{BufferRole, Instr, Nest};
use wengert::kernels::control::Form;
use wengert::kernels::{Kernel, Work};
use wengert::models::{Gpt, GptSettings};
use wengert::pipeline::{Options, compile, compile_kernels};
use wengert::prelude::*;

/// GPT-2's smallest network, and the number of tokens in a step.
const WIDTH: usize = 768;
const LAYERS: usize = 12;
const VOCABULARY: usize = 50257;
const BATCH: usize = 32;
const STEPS: usize = 1024;

/// A training step. With `chunks`, the loss is computed in so many parts.
fn step(precision: Option<Precision>, chunks: Option<usize>) -> Program {
    let settings = GptSettings {
        vocabulary: VOCABULARY,
        positions: STEPS,
        width: WIDTH,
        heads: 12,
        layers: LAYERS,
    };
    let mut program = Program::new();
    program
        .function("step", |f| {
            let tokens = TensorType::new(DType::I32, [BATCH, STEPS]);
            let (x, y) = (f.input("x", tokens.clone()), f.input("y", tokens));
            let model = f.state("model", Gpt::new(&settings));
            let (loss, gradient) = value_and_grad(&model, |m| match chunks {
                Some(chunks) => m.loss_in_chunks(&x, &y, chunks),
                None => m.loss(&x, &y),
            });
            AdamW::new(1e-3).step(f, &model, &gradient);
            f.output("loss", loss);
        })
        .unwrap();
    if let Some(precision) = precision {
        program.precision(&precision).unwrap();
    }
    program
}

fn kernels(program: &Program, target: &Target) -> wengert::kernels::Kernels {
    let function = program.get("step").unwrap().bind(&bind!()).unwrap();
    compile_kernels(&function, target, &Options::default()).unwrap().kernels
}

/// The bytes of a nest's parameters. Only reachable elements count.
fn bytes(nest: &Nest) -> Vec<u64> {
    let reached = |id| {
        let loads = |phase: &wengert::core::nest::Phase| {
            let count = phase
                .body
                .iter()
                .filter(|i| match i {
                    Instr::Load { access, .. } | Instr::Store { access, .. } => access.buffer == id,
                    _ => false,
                })
                .count();
            (count * phase.iterations(nest)) as u64
        };
        nest.phases.iter().map(loads).sum::<u64>() * nest.rows() as u64
    };
    let size = |(id, b): (_, &wengert::core::nest::Buffer)| {
        let elements = b.shape.iter().product::<usize>() as u64;
        elements.min(reached(id)) * b.dtype.size() as u64
    };
    nest.parameters().map(size).collect()
}

/// The bytes that the nest of a pair moves besides the product that it follows. A result in the
/// product's place costs nothing either.
fn beside_the_product(kernel: &Kernel) -> u64 {
    let Work::Followed(followed) = &kernel.work else { return 0 };
    let bytes = bytes(&followed.follower);
    let same = |(n, b): &(usize, &wengert::core::nest::Buffer)| {
        let product = &followed.follower.buffers[wengert::core::Id::new(followed.tile)];
        *n != followed.tile && b.role == BufferRole::Out && b.shape.len() == product.shape.len()
    };
    let in_place = followed.follower.parameters().enumerate().map(|(n, (_, b))| (n, b)).find(same);
    let in_place = in_place.map_or(0, |(n, _)| bytes[n]);
    bytes.iter().sum::<u64>() - bytes[followed.tile] - in_place
}

/// For kinds of kernels, by their parameters, the number of launches and the bytes.
type Kinds = BTreeMap<(&'static str, Vec<String>), (usize, u64)>;

/// The bytes that kernels move, without those of products, attention and other calls.
struct Traffic {
    nests: u64,
    beside_products: u64,
    /// The kinds of kernels by their bytes.
    table: String,
}

impl Traffic {
    /// Adds kernels that run so many times.
    fn add(&mut self, kernels: &wengert::kernels::Kernels, times: usize, kinds: &mut Kinds) {
        for kernel in &kernels.kernels {
            let (kind, nest, moved) = match &kernel.work {
                Work::Nest(nest) => ("nest", &**nest, bytes(nest).iter().sum::<u64>()),
                Work::Followed(f) => ("beside a product", &f.follower, beside_the_product(kernel)),
                Work::Control(control) => {
                    let Form::Loop(form) = control.form(kernel) else { panic!("a branch") };
                    let steps = usize::try_from(form.limit).unwrap();
                    let step = control.regions.last().unwrap();
                    self.add(step, times * steps, kinds);
                    continue;
                }
                Work::Call(_) => continue,
            };
            let moved = moved * times as u64;
            *(if kind == "nest" { &mut self.nests } else { &mut self.beside_products }) += moved;
            let parameters = nest.parameters().map(|(_, b)| format!("{}{:?}", b.dtype, b.shape));
            let entry = kinds.entry((kind, parameters.collect())).or_default();
            *entry = (entry.0 + times, entry.1 + moved);
        }
    }
}

fn traffic(kernels: &wengert::kernels::Kernels) -> Traffic {
    let mut kinds = Kinds::new();
    let mut found = Traffic { nests: 0, beside_products: 0, table: String::new() };
    found.add(kernels, 1, &mut kinds);
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, (_, moved))| std::cmp::Reverse(*moved));
    for ((kind, parameters), (count, moved)) in kinds {
        let (gigabytes, parameters) = (moved as f64 / 1e9, parameters.join(" "));
        writeln!(found.table, "{gigabytes:6.3} GB in {count:3} {kind}: {parameters}").unwrap();
    }
    let calls = kernels.kernels.iter().filter(|k| k.call().is_some()).count();
    let pairs = kernels.kernels.iter().filter(|k| matches!(k.work, Work::Followed(_))).count();
    let flops: u64 = kernels.kernels.iter().filter_map(|k| k.call()).map(|c| c.flops()).sum();
    writeln!(
        found.table,
        "{} kernels, {calls} calls, {pairs} of them with a nest; {flops:.3e} operations of calls; \
         nests {:.1} GB, beside products {:.1} GB",
        kernels.kernels.len(),
        found.nests as f64 / 1e9,
        found.beside_products as f64 / 1e9,
        flops = flops as f64
    )
    .unwrap();
    found
}

/// Minimum traffic of activations, in elements: for each token and layer, 25 rows of the width,
/// norms and residuals 8 forward and 8 backward, and 9 cotangents for the gradients of biases. The
/// logits are read and written once, with one element of each written and one of each read.
fn least_elements() -> u64 {
    let tokens = (BATCH * STEPS) as u64;
    let [width, layers, vocabulary] = [WIDTH, LAYERS, VOCABULARY].map(|n| n as u64);
    tokens * (25 * width * layers + 2 * vocabulary)
}

/// For each parameter with two moments, all in f32, a gradient is read, and the other three are
/// read and written.
const LEAST_OF_THE_OPTIMISER: u64 = 28 * 124_439_808;

#[test]
fn nests_of_gpt2_move_little_more_than_they_must() {
    let found = traffic(&kernels(&step(None, None), &Target::cpu()));
    println!("{}", found.table);
    let ratio = found.nests as f64 / (4 * least_elements() + LEAST_OF_THE_OPTIMISER) as f64;
    assert!(ratio <= 1.15, "{ratio}");
    assert!(ratio >= 0.9, "the count has lost something: {ratio}");
}

#[test]
fn nests_of_gpt2_in_mixed_precision_move_little_more_than_they_must() {
    let target = wengert::target("sm_90").unwrap();
    let program = step(Some(Precision::bf16()), None);
    let found = traffic(&kernels(&program, &target));
    let least = 2 * least_elements() + LEAST_OF_THE_OPTIMISER;
    let ratio = (found.nests + found.beside_products) as f64 / least as f64;
    println!("{}{ratio:.3} of {:.1} GB", found.table, least as f64 / 1e9);
    assert!(ratio <= 1.25, "{ratio}");
    assert!(ratio >= 0.9, "the count has lost something: {ratio}");
    // What the backward pass reads of each layer, the weights in halves, and one array of logits:
    // their gradient overwrites them.
    let plan = compile(&program, "step", &bind!(), &target, &Options::default()).unwrap();
    assert!(plan.arena <= 11_200_000_000, "{}", plan.arena);
}

/// Half of the logits at a time.
#[test]
fn a_step_of_gpt2_with_a_loss_in_two_parts_takes_little_memory() {
    let target = wengert::target("sm_90").unwrap();
    let program = step(Some(Precision::bf16()), Some(2));
    let found = traffic(&kernels(&program, &target));
    let least = 2 * least_elements() + LEAST_OF_THE_OPTIMISER;
    let ratio = (found.nests + found.beside_products) as f64 / least as f64;
    let plan = compile(&program, "step", &bind!(), &target, &Options::default()).unwrap();
    println!("{}{ratio:.3}, arena {:.3} GiB", found.table, plan.arena as f64 / (1u64 << 30) as f64);
    assert!(plan.arena <= 19 << 29, "{} is more than 9.5 GiB", plan.arena);
    assert!((0.9..=1.25).contains(&ratio), "{ratio}");
}
