//! A variational autoencoder of handwritten digits (Kingma and Welling, *Auto-encoding variational
//! Bayes*, 2014).
//!
//! The encoder maps an image x to a normal distribution q(z) of the code z, by mean and variance of
//! each element. The decoder maps a code to the probability of each pixel being on. Both are
//! trained to maximise a lower bound of ln p(x), the *evidence*. Its negative has two terms:
//!
//! ```text
//! −ln p(x) ≤ E[−ln p(x | z)] + KL(q(z) ‖ N(0, 1))
//!          = reconstruction  + divergence
//! ```
//!
//! The expectation is estimated by one code z = mean + √variance · noise. Written so, the code is a
//! differentiable function of mean and variance. The noise comes from a key that is an input of the
//! step: the graph draws it.

use crate::digits::{digits, inputs};
use wengert::nn::loss::{BinaryCrossEntropy, Reduction};
use wengert::prelude::*;
use wengert::random::{SplitMix64, key};

/// Pixels of an image.
pub const PIXELS: usize = 64;

/// Images of a training step.
pub const BATCH: usize = 64;

/// Encoder and decoder, each of one hidden layer.
#[derive(Differentiable, Clone)]
pub struct Vae {
    encoder: [Linear; 2],
    decoder: [Linear; 2],
}

impl Vae {
    /// For codes of `code` elements.
    pub fn new(pixels: usize, hidden: usize, code: usize) -> Self {
        Vae {
            encoder: [Linear::new(pixels, hidden), Linear::new(hidden, 2 * code)],
            decoder: [Linear::new(code, hidden), Linear::new(hidden, pixels)],
        }
    }

    /// Mean and logarithm of the variance of the codes of images `[B, pixels]`: `[B, code]` each.
    pub fn encode(&self, images: &Tensor) -> [Tensor; 2] {
        let [hidden, output] = &self.encoder;
        let parts = output.call(&hidden.call(images).tanh()).chunk(2, -1);
        [0, 1].map(|part| parts[part].clone())
    }

    /// Logits of the pixels, `[B, pixels]`, for codes `[B, code]`.
    pub fn decode(&self, codes: &Tensor) -> Tensor {
        let [hidden, output] = &self.decoder;
        output.call(&hidden.call(codes).tanh())
    }

    /// Reconstruction and divergence of each image, `[B]`, in nats. The noise of the codes is drawn
    /// by `noise`, which is given the type of the codes.
    pub fn bound(&self, images: &Tensor, noise: impl Fn(&TensorType) -> Tensor) -> [Tensor; 2] {
        let [mean, log_variance] = self.encode(images);
        let codes = &mean + (&log_variance * 0.5).exp() * noise(mean.ty());
        let each = BinaryCrossEntropy { reduction: Reduction::None, ..Default::default() };
        let reconstruction = each.call(&self.decode(&codes), images).sum_axes(-1);
        let divergence = (log_variance.exp() + mean.square() - 1.0 - &log_variance) * 0.5;
        [reconstruction, divergence.sum_axes(-1)]
    }
}

/// Normally distributed numbers of a type, from a key.
fn normal(key: &Tensor) -> impl Fn(&TensorType) -> Tensor {
    move |ty| key.normal(ty.dtype, ty.shape.iter().cloned())
}

/// `train_step` learns from images `x`. `evaluate` gives the bound of each image. `generate` draws
/// codes for B images and decodes them, and `reconstruct` decodes the means of the codes of images.
pub fn program(hidden: usize, code: usize) -> Result<Program> {
    let model = || Vae::new(PIXELS, hidden, code);
    let images = [Dim::variable("B"), PIXELS.into()];
    let mut program = Program::new();
    program.function("train_step", |f| {
        let (x, key) = (f.input("x", f32(images.clone())), f.key("key"));
        let model = f.state("model", model());
        let (loss, gradient) = value_and_grad(&model, |model| {
            let [reconstruction, divergence] = model.bound(&x, normal(&key));
            (reconstruction + divergence).mean()
        });
        Adam::new(2e-3).step(f, &model, &gradient);
        f.output("loss", loss);
    })?;
    program.function("evaluate", |f| {
        let (x, key) = (f.input("x", f32(images.clone())), f.key("key"));
        let model = f.param("model", model());
        let [reconstruction, divergence] = model.bound(&x, normal(&key));
        f.output("reconstruction", reconstruction);
        f.output("divergence", divergence);
    })?;
    program.function("generate", |f| {
        let key = f.key("key");
        let model = f.param("model", model());
        let codes = key.normal(DType::F32, ["B".into(), Dim::from(code)]);
        f.output("images", model.decode(&codes).logistic());
    })?;
    program.function("reconstruct", |f| {
        let x = f.input("x", f32(images.clone()));
        let model = f.param("model", model());
        let [mean, _] = model.encode(&x);
        f.output("images", model.decode(&mean).logistic());
    })?;
    Ok(program)
}

/// The digits for training and for testing, `[N, 64]` each, as f32 from 0 to 1.
pub fn images() -> Result<[Literal; 2]> {
    let arrays = digits()?;
    let [(_, train), _] = inputs(&arrays, "train")?;
    let [(_, test), _] = inputs(&arrays, "test")?;
    Ok([train, test])
}

/// Images `[N, 64]` beside each other, a line of text for each row of pixels.
pub fn picture(images: &Literal) -> String {
    let count = images.shape()[0];
    let shade = |pixel: f64| [' ', '.', ':', 'o', '#'][(pixel * 4.999) as usize];
    let mut text = String::new();
    for row in 0..8 {
        for image in 0..count {
            let start = image * PIXELS + row * 8;
            text.extend((start..start + 8).map(|at| shade(images.get(at).to_f64())));
            text += "  ";
        }
        text += "\n";
    }
    text
}

/// Rows of images.
pub fn rows(images: &Literal, rows: &[usize]) -> Result<Literal> {
    let pixels = images.as_slice::<f32>().unwrap_or_default();
    let taken = rows.iter().flat_map(|row| &pixels[row * PIXELS..(row + 1) * PIXELS]);
    Literal::from_vec(&[rows.len(), PIXELS], taken.copied().collect())
}

/// Trains the program's model on batches of [`BATCH`] images in a random order. `report` is given
/// the step and the loss.
pub fn train(
    session: &mut Session,
    program: &Program,
    images: &Literal,
    steps: u32,
    report: &mut dyn FnMut(u32, f64),
) -> Result<()> {
    let mut train_step = session.compile(program, "train_step", bind!(B = BATCH as i64))?;
    let mut order = Vec::new();
    for step in 1..=steps {
        if order.len() < BATCH {
            order = SplitMix64::of(1, &[step.into()]).permutation(images.shape()[0]);
        }
        let x = rows(images, &order.split_off(order.len() - BATCH))?;
        let outputs = train_step.run(&[("x", x), ("key", key(1, step.into()))])?;
        report(step, outputs.scalar("loss")?);
    }
    Ok(())
}

/// Mean reconstruction and divergence of images, in nats.
pub fn evidence(session: &mut Session, program: &Program, images: &Literal) -> Result<(f64, f64)> {
    let count = images.shape()[0];
    let mut evaluate = session.compile(program, "evaluate", bind!(B = count as i64))?;
    let found = evaluate.run(&[("x", images.clone()), ("key", key(2, 0))])?;
    let mean = |name: &str| -> Result<f64> {
        Ok(found.get(name)?.scalars().map(|nats| nats.to_f64()).sum::<f64>() / count as f64)
    };
    Ok((mean("reconstruction")?, mean("divergence")?))
}
