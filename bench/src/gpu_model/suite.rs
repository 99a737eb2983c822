//! The programs of the GPU suite, each with one function, `step`.
//!
//! | label | program |
//! |---|---|
//! | G1, G2, G3 | a training step of GPT-2: 124M with 32 sequences, 355M with 32, 1558M with 16 |
//! | G4 | programs that launches dominate: a GPT of characters, an MLP |
//! | G5 | an encoder of 197 positions, as of patches of images |
//! | G6 | programs that memory dominates: norms, cross-entropy, AdamW, a chain, a transposition |
//! | G7 | attention: heads of 64 and 128, 1024 and 4096 positions, forward and with its gradient |
//!
//! Networks have 1024 positions, f32 variables and products of bf16, unless it is said otherwise.
//! (G8 of the suite compares choices of cuBLASLt, which needs a GPU.)

use wengert::core::build::FunctionBuilder;
use wengert::models::{Gpt, GptSettings, Mlp};
use wengert::nn::{Mask, SelfAttention, VisibleKeys, dot_product_attention};
use wengert::prelude::*;

/// A program of the suite.
pub struct Entry {
    /// Its label: G1.
    pub label: &'static str,
    /// Its label, and its number among several of that label: G1, G6.2.
    pub id: String,
    /// What it computes.
    pub name: String,
    make: Box<dyn Fn() -> Result<Program>>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.id, self.name)
    }
}

impl Entry {
    /// Builds the program.
    ///
    /// Errors: those of building it.
    pub fn program(&self) -> Result<Program> {
        (self.make)()
    }
}

fn entry(
    label: &'static str,
    name: impl Into<String>,
    make: impl Fn() -> Result<Program> + 'static,
) -> Entry {
    Entry { label, id: label.into(), name: name.into(), make: Box::new(make) }
}

/// All programs.
pub fn suite() -> Vec<Entry> {
    let mut all = vec![
        entry("G1", "GPT-2 124M, 32x1024", || gpt(GptSettings::SMALL, 32)),
        entry("G2", "GPT-2 355M, 32x1024", || gpt(GptSettings::MEDIUM, 32)),
        entry("G3", "GPT-2 1558M, 16x1024", || gpt(GptSettings::XL, 16)),
        entry("G4", "GPT of characters, 64x256", || {
            let settings =
                GptSettings { vocabulary: 65, positions: 256, width: 384, heads: 6, layers: 6 };
            gpt(settings, 64)
        }),
        entry("G4", "MLP, batch 128", mlp),
        entry("G5", "encoder, 256x197", encoder),
        entry("G6", "residual and layer norm, 65536x768", || single(residual_norm)),
        entry("G6", "its gradient, 65536x768", || single(residual_norm_gradient)),
        entry("G6", "cross-entropy and gradient, 32768x50304", || single(cross_entropy_gradient)),
        entry("G6", "AdamW, 124M", || single(adamw)),
        entry("G6", "chain of 8 ops, 64M", || single(chain)),
        entry("G6", "transposition, 8192x8192", || single(transposition)),
    ];
    for (width, heads) in [(64, 32), (128, 16)] {
        for positions in [1024, 4096] {
            for gradient in [false, true] {
                let what = if gradient { "forward and backward" } else { "forward" };
                all.push(entry(
                    "G7",
                    format!("attention d{width} {positions}, {what}"),
                    move || attention(16384 / positions, positions, heads, width, gradient),
                ));
            }
        }
    }
    number(&mut all);
    all
}

/// Numbers the programs of a label that has several.
fn number(all: &mut [Entry]) {
    for part in all.chunk_by_mut(|a, b| a.label == b.label).filter(|part| part.len() > 1) {
        for (n, entry) in part.iter_mut().enumerate() {
            entry.id = format!("{}.{}", entry.label, n + 1);
        }
    }
}

fn single(build: fn(&mut FunctionBuilder)) -> Result<Program> {
    let mut program = Program::new();
    program.function("step", build)?;
    Ok(program)
}

fn mixed(mut program: Program) -> Result<Program> {
    program.precision(&Precision::bf16())?;
    Ok(program)
}

/// A step of AdamW.
fn gpt(settings: GptSettings, batch: usize) -> Result<Program> {
    // GPT-2's vocabulary, rounded up to a multiple of 128.
    let vocabulary = match settings.vocabulary {
        50257 => 50304,
        other => other,
    };
    let settings = GptSettings { vocabulary, ..settings };
    let mut program = Program::new();
    program.function("step", |f| {
        let tokens = TensorType::new(DType::I32, [batch, settings.positions]);
        let (x, y) = (f.input("x", tokens.clone()), f.input("y", tokens));
        let model = f.state("model", Gpt::new(&settings));
        let (loss, gradient) = value_and_grad(&model, |m| m.loss(&x, &y));
        AdamW::new(1e-3).step(f, &model, &gradient);
        f.output("loss", loss);
    })?;
    mixed(program)
}

fn mlp() -> Result<Program> {
    let mut program = Program::new();
    program.function("step", |f| {
        let (x, y) = (f.input("x", f32("128,784")), f.input("y", i32("128")));
        let model = f.state("model", Mlp::new(&[784, 256, 256, 10], Activation::Relu));
        let (loss, gradient) = value_and_grad(&model, |m| cross_entropy(&m.call(&x), &y));
        AdamW::new(1e-3).step(f, &model, &gradient);
        f.output("loss", loss);
    })?;
    Ok(program)
}

/// A block of attention and MLP, as in an encoder of patches.
#[derive(Differentiable)]
struct Block {
    norms: (LayerNorm, LayerNorm),
    attention: SelfAttention,
    mlp: (Linear, Linear),
}

impl Block {
    fn new(width: usize, heads: usize) -> Self {
        Block {
            norms: (LayerNorm::new(width), LayerNorm::new(width)),
            attention: SelfAttention::new(width, heads, Mask::None),
            mlp: (Linear::new(width, 4 * width), Linear::new(4 * width, width)),
        }
    }

    fn call(&self, x: &Tensor) -> Tensor {
        let x = x + self.attention.call(&self.norms.0.call(x));
        let hidden = self.mlp.0.call(&self.norms.1.call(&x)).gelu();
        &x + self.mlp.1.call(&hidden)
    }
}

fn encoder() -> Result<Program> {
    let mut program = Program::new();
    program.function("step", |f| {
        let (x, y) = (f.input("x", f32("256,197,768")), f.input("y", i32("256")));
        let blocks: Vec<Block> = (0..12).map(|_| Block::new(768, 12)).collect();
        let model = f.state("model", (blocks, Linear::new(768, 1000)));
        let (loss, gradient) = value_and_grad(&model, |(blocks, head)| {
            let x = blocks.iter().fold(x.clone(), |x, block| block.call(&x));
            let first = x.slice_axis(1, 0, 1).reshape([256, 768]);
            cross_entropy(&head.call(&first), &y)
        });
        AdamW::new(1e-3).step(f, &model, &gradient);
        f.output("loss", loss);
    })?;
    mixed(program)
}

fn residual_norm(f: &mut FunctionBuilder) {
    let rows = || bf16("65536,768");
    let (x, y) = (f.input("x", rows()), f.input("y", rows()));
    let norm = f.param("norm", LayerNorm::new(768));
    let sum = x + y;
    f.output("normed", norm.call(&sum.convert(DType::F32)).convert(DType::BF16));
    f.output("sum", sum);
}

fn residual_norm_gradient(f: &mut FunctionBuilder) {
    let rows = || bf16("65536,768");
    let (x, dy) = (f.input("x", rows()), f.input("dy", rows()));
    let norm = f.param("norm", LayerNorm::new(768));
    let call =
        |(norm, x): &(LayerNorm, Tensor)| norm.call(&x.convert(DType::F32)).convert(DType::BF16);
    let (_, pullback) = vjp(&(norm, x), call);
    let (weights, dx) = pullback(&dy);
    f.output("dx", dx);
    f.output("weight", weights.weight);
    f.output("bias", weights.bias);
}

fn cross_entropy_gradient(f: &mut FunctionBuilder) {
    let logits = f.state("logits", Tensor::variable(bf16("32768,50304"), Initializer::Zeros));
    let labels = f.input("y", i32("32768"));
    let loss = |logits: &Tensor| cross_entropy(&logits.convert(DType::F32), &labels);
    let (loss, gradient) = value_and_grad(&logits, loss);
    f.update("logits", &gradient);
    f.output("loss", loss);
}

fn adamw(f: &mut FunctionBuilder) {
    // The parameters of GPT-2 124M as one tensor.
    let weights = Tensor::variable(f32("124439808"), Initializer::Zeros);
    let (weights, gradient) = (f.state("w", weights), f.input("g", f32("124439808")));
    AdamW::new(1e-3).step(f, &weights, &gradient);
}

fn chain(f: &mut FunctionBuilder) {
    let x = f.input("x", f32("67108864"));
    let x = (x * 1.5f32 + 0.25f32).abs() - 0.5f32;
    let x = (x.square() * 0.5f32).sqrt() + 1.0f32;
    f.output("y", x);
}

fn transposition(f: &mut FunctionBuilder) {
    let x = f.input("x", f32("8192,8192"));
    f.output("y", x.permute(&[1, 0]));
}

fn attention(
    batch: usize,
    positions: usize,
    heads: usize,
    width: usize,
    gradient: bool,
) -> Result<Program> {
    let mut program = Program::new();
    program.function("step", |f| {
        let ty = TensorType::new(DType::BF16, [batch, positions, heads, width]);
        let [q, k, v, dy] = ["q", "k", "v", "dy"].map(|name| f.input(name, ty.clone()));
        let call = |(q, k, v): &(Tensor, Tensor, Tensor)| {
            dot_product_attention(q, k, v, VisibleKeys::from(Mask::Causal), None)
        };
        let (y, pullback) = vjp(&(q, k, v), call);
        f.output("y", y);
        if gradient {
            let (dq, dk, dv) = pullback(&dy);
            f.output("dq", dq);
            f.output("dk", dk);
            f.output("dv", dv);
        }
    })?;
    Ok(program)
}
