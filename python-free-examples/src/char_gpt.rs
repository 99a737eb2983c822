//! A GPT that guesses the next character of two books, [`Gpt`] at 0.8 million parameters.
//!
//! The network reads a window of characters and is trained to predict the character after each of
//! them. Windows for training lie in the first nine tenths of a book. The last tenths are for
//! testing. Windows there overlap by half, and only the predictions of the second half of each
//! count. So no character is predicted twice, and each prediction has at least half a window of
//! context.
//!
//! To write, the network predicts the character after a text, one is drawn and appended, and so on:
//! a `scan` whose state is the window so far.

pub use crate::characters::Characters;

use crate::characters::{self, ALICE, AS_YOU_LIKE_IT};
use crate::states::States;
use wengert::Recipe;
use wengert::data::Arrays;
use wengert::models::{Gpt, GptSettings};
use wengert::optim::{Rate, clip_by_global_norm};
use wengert::prelude::*;
use wengert::recipe::{Batches, LastBatch};

/// Everything that may be chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Numbers that stand for a character.
    pub width: usize,
    /// Heads of attention.
    pub heads: usize,
    /// Blocks.
    pub layers: usize,
    /// Characters that the network sees, an even number.
    pub window: usize,
    /// Windows of a training step.
    pub batch: usize,
    /// One window for training begins every so many characters.
    pub stride: usize,
    /// Probability of an element to be dropped out in training.
    pub dropout: f64,
    /// What the gradient's norm is clipped to.
    pub clip: f64,
    /// Highest learning rate.
    pub rate: f64,
    /// Weight decay of matrices.
    pub decay: f64,
    /// Training steps.
    pub steps: u32,
    /// Steps from one evaluation to the next.
    pub evaluate: u64,
    /// Characters of a sample.
    pub sample: usize,
    /// How variables and moments are stored.
    pub states: States,
}

impl Default for Settings {
    /// Those of the example.
    fn default() -> Self {
        Settings {
            width: 128,
            heads: 4,
            layers: 4,
            window: 128,
            batch: 16,
            stride: 8,
            dropout: 0.05,
            clip: 1.0,
            rate: 0.015,
            decay: 0.1,
            steps: 1000,
            evaluate: 250,
            sample: 500,
            states: States::F32,
        }
    }
}

impl Settings {
    /// The network's size for so many characters.
    pub fn gpt(&self, characters: usize) -> GptSettings {
        let Settings { width, heads, layers, window, .. } = *self;
        GptSettings { vocabulary: characters, positions: window, width, heads, layers }
    }
}

/// The books, one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Books {
    /// Their characters.
    pub characters: Characters,
    /// How many each has.
    pub lengths: Vec<usize>,
}

impl Books {
    /// *As You Like It* and *Alice's Adventures in Wonderland*.
    pub fn two() -> Result<Self> {
        Books::of(&[AS_YOU_LIKE_IT.read()?, ALICE.read()?])
    }

    /// Texts of at most 256 different characters.
    pub fn of(texts: &[String]) -> Result<Self> {
        let lengths = texts.iter().map(|text| text.chars().count()).collect();
        Ok(Books { characters: Characters::of(&texts.concat())?, lengths })
    }

    /// The arrays of the recipe, u8: `train_x` and `train_y`, `[windows, window]`; `test_x`,
    /// `[windows, window]`; and `test_y`, `[windows, window/2]`, the characters after those of the
    /// second half of each window.
    ///
    /// At the beginning of the last tenth of a book, fewer than half a window of characters are not
    /// predicted.
    pub fn arrays(&self, settings: &Settings) -> Result<Arrays> {
        let Settings { window, stride, .. } = *settings;
        let half = window / 2;
        let (mut train, mut test) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        let mut rest = self.characters.numbers.as_slice();
        for length in &self.lengths {
            let (book, others) = rest.split_at(*length);
            rest = others;
            let learnt = length / 10 * 9;
            if learnt <= window || length - learnt <= half {
                return Err(Diagnostic::new(format!("a book of {length} characters is too short"))
                    .help(format!(
                        "windows of {window} fit into nine tenths, and half of one into the last"
                    )));
            }
            for begin in (0..learnt - window).step_by(stride) {
                train.0.extend_from_slice(&book[begin..begin + window]);
                train.1.extend_from_slice(&book[begin + 1..begin + 1 + window]);
            }
            let halves = (length - learnt) / half;
            for begin in (0..halves).map(|n| length - 1 - window - (halves - 1 - n) * half) {
                test.0.extend_from_slice(&book[begin..begin + window]);
                test.1.extend_from_slice(&book[begin + 1 + half..begin + 1 + window]);
            }
        }
        let rows = |numbers: Vec<u8>, width: usize| {
            Literal::from_vec(&[numbers.len() / width, width], numbers)
        };
        Ok(Arrays::from([
            ("train_x".into(), rows(train.0, window)?),
            ("train_y".into(), rows(train.1, window)?),
            ("test_x".into(), rows(test.0, window)?),
            ("test_y".into(), rows(test.1, half)?),
        ]))
    }

    /// The inputs `prompt` and `given` of `sample` for a text to be continued. If the text is
    /// longer than a window, its end is used.
    pub fn prompt(&self, text: &str, settings: &Settings) -> Result<[(&'static str, Literal); 2]> {
        let numbers = self.characters.numbers_of(text)?;
        let numbers = numbers.as_slice::<i32>().unwrap_or_default();
        if numbers.is_empty() {
            return Err(
                Diagnostic::new("there is nothing to go on from").help("begin with a character")
            );
        }
        let mut window = numbers[numbers.len().saturating_sub(settings.window)..].to_vec();
        let given = window.len() as i32;
        window.resize(settings.window, 0);
        Ok([
            ("prompt", Literal::from_vec(&[settings.window], window)?),
            ("given", Literal::from(given)),
        ])
    }
}

/// `length` characters that follow the first `given`, `i32[]`, of `prompt`, `i32[window]`. Each is
/// drawn with a probability proportional to that of the model, raised to 1/`temperature`.
pub fn sample(
    model: &Gpt,
    prompt: (&Tensor, &Tensor),
    temperature: &Tensor,
    key: &Tensor,
    [window, width, length]: [usize; 3],
) -> Tensor {
    let begin = (prompt.0.clone(), prompt.1.clone());
    let numbers = Tensor::iota(DType::I32, [length], 0);
    let (_, text) = control::scan(&begin, &numbers, |(seen, count), number| {
        // What stands behind the last character is not seen, as attention is causal.
        let hidden = model.hidden(&seen.reshape([1, window])).reshape([window, width]);
        let logits = model.logits(&hidden.dynamic_index_in_dim(&(count - 1), 0));
        let next = key.fold_in(number).categorical(&(logits / temperature), 0);
        let one = next.reshape([1usize]);
        let written = seen.dynamic_update_slice_in_dim(&one, count, 0);
        let moved = Tensor::concatenate(&[&seen.slice_axis(0, 1, window), &one], 0);
        let seen = count.lt(window as i32).select(&written, &moved);
        ((seen, (count + 1).min(window as i32)), next)
    });
    text
}

/// The functions `init`, `train_step`, `loss` and `sample` for so many characters.
pub fn program(characters: usize, settings: &Settings) -> Result<Program> {
    let Settings { window, batch, width, .. } = *settings;
    let states = settings.states;
    let model = || states.stored(Gpt::new(&settings.gpt(characters)));
    let mut program = Program::new();
    program.function("train_step", |f| {
        let x = f.input("x", i32([batch, window]));
        let y = f.input("y", i32([batch, window]));
        let key = f.key("key");
        let stored = f.state("gpt", model());
        let model = states.read(&stored);
        // In f32 a scale changes no bit. With it, `graphrun train --precision f16` is possible.
        let scaled = LossScale::dynamic().begin(f);
        let (loss, gradient) = scaled.value_and_grad(&model, |m| {
            cross_entropy(&m.call_dropping(&x, Dropout::new(settings.dropout), &key), &y)
        });
        let (gradient, _) = clip_by_global_norm(&gradient, settings.clip);
        let rate = Rate::warmup_cosine(
            settings.rate,
            settings.steps / 20,
            settings.steps,
            settings.rate / 50.0,
        );
        // What lies between layers; embeddings and vectors are AdamW's.
        let rest = AdamW::new(rate.clone())
            .betas(0.9, 0.95)
            .weight_decay(settings.decay)
            .decay_where(|_, ty| ty.rank() > 1);
        let muon = Muon::new(rate)
            .weight_decay(settings.decay)
            .matrices(|path, _| path.contains(".h."))
            .rest(rest);
        states.muon(muon, &key).step(f, &stored, &gradient);
        scaled.finish(f, &gradient);
        f.output("loss", loss);
    })?;
    program.function("loss", |f| {
        let x = f.input("x", i32([Dim::variable("B"), window.into()]));
        let y = f.input("y", i32([Dim::variable("B"), (window / 2).into()]));
        let model = states.read(&f.param("gpt", model()));
        let second = model.hidden(&x).slice_axis(1, window / 2, window);
        f.output("bits", cross_entropy(&model.logits(&second), &y) * std::f64::consts::LOG2_E);
    })?;
    program.function("sample", |f| {
        let (prompt, given) = (f.input("prompt", i32([window])), f.input("given", i32("")));
        let temperature = f.input("temperature", f32(""));
        let key = f.key("key");
        let model = states.read(&f.param("gpt", model()));
        let sizes = [window, width, settings.sample];
        f.output("text", sample(&model, (&prompt, &given), &temperature, &key, sizes));
    })?;
    Ok(program)
}

/// How it is trained.
pub fn recipe(settings: &Settings) -> Recipe {
    let size = settings.batch as u64;
    let batches = Batches { size, shuffle: Some(1), blocks: None, last: LastBatch::Drop };
    characters::recipe(batches, 32, settings.evaluate, settings.steps)
}
