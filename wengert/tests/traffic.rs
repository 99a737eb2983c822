//! Bytes that a training step of GPT-2 124M moves outside of products and attention, counted from
//! its nests. Nothing runs.
//!
//! The count uses the nests alone. Each kernel moves each of its parameters once, and only the
//! elements that its loads can reach. The compiler's cost model is not used.

#![allow(clippy::unwrap_used)]

use wengert::core::Target;
use wengert::core::nest::{BufferRole, Instr, Nest};
use wengert::kernels::{Kernel, Work};
use wengert::models::{Gpt, GptSettings};
use wengert::pipeline::{Options, compile_kernels};
use wengert::prelude::*;

/// GPT-2's smallest network, and the number of tokens in a step.
const WIDTH: usize = 768;
const LAYERS: usize = 12;
const VOCABULARY: usize = 50257;
const BATCH: usize = 32;
const STEPS: usize = 1024;

fn kernels() -> wengert::kernels::Kernels {
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
            let (loss, gradient) = value_and_grad(&model, |m| m.loss(&x, &y));
            AdamW::new(1e-3).step(f, &model, &gradient);
            f.output("loss", loss);
        })
        .unwrap();
    let function = program.get("step").unwrap().bind(&bind!()).unwrap();
    compile_kernels(&function, &Target::cpu(), &Options::default()).unwrap().kernels
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

#[test]
fn nests_of_gpt2_move_little_more_than_they_must() {
    let kernels = kernels();
    let tokens = (BATCH * STEPS) as u64;
    let [width, layers, vocabulary] = [WIDTH, LAYERS, VOCABULARY].map(|n| n as u64);
    let parameters = 124_439_808;
    // Minimum traffic, all in f32. For each token and layer, 25 rows of the width: norms and
    // residuals 8 forward and 8 backward, and 9 cotangents for the gradients of biases. The logits
    // are read and written once. For each parameter with two moments a gradient is read, and the
    // other three are read and written.
    let least = tokens * (100 * width * layers + 8 * vocabulary) + 28 * parameters;
    let nests: u64 = kernels
        .kernels
        .iter()
        .filter_map(|k| match &k.work {
            Work::Nest(nest) => Some(bytes(nest).iter().sum::<u64>()),
            _ => None,
        })
        .sum();
    let followers: u64 = kernels.kernels.iter().map(beside_the_product).sum();
    let calls = kernels.kernels.iter().filter(|k| k.call().is_some()).count();
    let pairs = kernels.kernels.iter().filter(|k| matches!(k.work, Work::Followed(_))).count();
    let flops: u64 = kernels.kernels.iter().filter_map(|k| k.call()).map(|c| c.flops()).sum();
    let ratio = nests as f64 / least as f64;
    println!(
        "{} kernels, {calls} calls, {pairs} of them with a nest; {flops:.3e} operations of calls; \
         nests {:.1} GB, at least {:.1}: {ratio:.3}; beside products {:.1} GB",
        kernels.kernels.len(),
        nests as f64 / 1e9,
        least as f64 / 1e9,
        followers as f64 / 1e9,
        flops = flops as f64
    );
    assert!(ratio <= 1.15, "{ratio}");
    assert!(ratio >= 0.9, "the count has lost something: {ratio}");
}
