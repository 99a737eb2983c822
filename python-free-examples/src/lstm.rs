//! A language model of characters: an LSTM that guesses the next one, trained on a play.
//!
//! The text is cut into as many *streams* as a batch has rows. A training step reads one window of
//! characters from every stream. The LSTM's state at the end of a window is state of the program,
//! and the next window begins with it. Derivatives end at the window's beginning (truncated
//! backpropagation through time, Williams and Peng 1990). Within a window the steps are one `scan`,
//! forwards and backwards, so the program is as small for a window of a thousand characters as for
//! one of ten.
//!
//! The text is Shakespeare's *As You Like It*, which is in the public domain. The file is that of
//! the Canterbury corpus (`asyoulik.txt`).
//!
//! Recurrences make gradients explode. Here they are clipped where that happens:
//! [`with_derivative`] clamps the cotangent of the state between each step and the one before. So
//! the cotangent cannot grow from step to step, and the sum over a window is bounded too.

use crate::characters;
pub use crate::characters::Characters;
use wengert::Recipe;
use wengert::core::KeyPath;
use wengert::data::Arrays;
use wengert::nn::{Lstm, LstmState};
use wengert::optim::Rate;
use wengert::prelude::*;
use wengert::recipe::{Batches, LastBatch};

/// Everything that may be chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Numbers that stand for a character.
    pub embedding: usize,
    /// Cells of the LSTM.
    pub width: usize,
    /// Streams that are read side by side.
    pub streams: usize,
    /// Characters of a stream at each training step.
    pub window: usize,
    /// Probability that an element of an embedding or of the LSTM's output is dropped out in
    /// training.
    pub dropout: f64,
    /// Cotangents of the state are clipped to this number, times the weight of one character in the
    /// loss.
    pub clip: f64,
    /// Highest learning rate.
    pub rate: f64,
    /// Training steps.
    pub steps: u32,
    /// Characters of a sample.
    pub sample: usize,
}

impl Default for Settings {
    /// Those of the example.
    fn default() -> Self {
        Settings {
            embedding: 64,
            width: 256,
            streams: 32,
            window: 64,
            dropout: 0.3,
            clip: 1.0,
            rate: 4e-3,
            steps: 1000,
            sample: 400,
        }
    }
}

/// The model.
#[derive(Differentiable, Clone, Debug)]
pub struct Model {
    embedding: Embedding,
    lstm: Lstm,
    out: Linear,
    #[no_derivative]
    dropout: Dropout,
    #[no_derivative]
    clip: f64,
}

impl Model {
    /// A model of so many characters, before training.
    pub fn new(characters: usize, settings: &Settings) -> Self {
        Model {
            embedding: Embedding::new(characters, settings.embedding),
            lstm: Lstm::new(settings.embedding, settings.width),
            out: Linear::new(settings.width, characters),
            dropout: Dropout::new(settings.dropout),
            clip: settings.clip / (settings.streams * settings.window) as f64,
        }
    }

    /// Logits of the character after each of `x`, `[steps, batch]`, as
    /// `[steps, batch, characters]`, and the state after the last step. Dropout uses the key;
    /// without a key there is no dropout.
    pub fn call(&self, x: &Tensor, begin: &LstmState, key: Option<&Tensor>) -> (Tensor, LstmState) {
        let keys = key.map(|key| key.split_key(2));
        let drop = |x: &Tensor, n: usize| self.dropout.call(x, keys.as_ref().map(|keys| &keys[n]));
        let projected = self.lstm.project(&drop(&self.embedding.call(x), 0));
        let (last, hidden) = control::scan(begin, &projected, |state, projected| {
            let state = self.lstm.step(state, projected);
            let state = with_derivative(&state, |ct| {
                ct.map_tensors(&KeyPath::default(), &mut |_, ct| ct.clamp(-self.clip, self.clip))
            });
            (state.clone(), state.hidden)
        });
        (self.out.call(&drop(&hidden, 1)), last)
    }

    /// The state before the first character of each stream.
    pub fn begin(&self, streams: impl Into<Dim>) -> LstmState {
        self.lstm.zero_state(streams)
    }

    /// `length` characters that follow those of `prompt`, `[characters]`. Each is drawn with a
    /// probability proportional to that of the model, raised to 1/`temperature`.
    pub fn sample(
        &self,
        prompt: &Tensor,
        temperature: &Tensor,
        key: &Tensor,
        length: usize,
    ) -> Tensor {
        let prompt = prompt.reshape([prompt.shape()[0].clone(), 1.into()]);
        let (_, state) = self.call(&prompt, &self.begin(1usize), None);
        let first = self.out.call(&state.hidden);
        let numbers = Tensor::iota(DType::I32, [length], 0);
        let (_, text) = control::scan(&(state, first), &numbers, |(state, logits), number| {
            let next = key.fold_in(number).categorical(&(logits / temperature), 1);
            let state = self.lstm.step(state, &self.lstm.project(&self.embedding.call(&next)));
            let logits = self.out.call(&state.hidden);
            ((state, logits), next)
        });
        text.reshape([length])
    }
}

impl Characters {
    /// The play.
    pub fn play() -> Result<Self> {
        Characters::of(&characters::AS_YOU_LIKE_IT.read()?)
    }

    /// What the recipe trains on: `train_x`, `train_y`, `test_x` and `test_y`, u8.
    ///
    /// The last tenth is for testing, as one stream. In the arrays for training, row
    /// `w · streams + s` is window `w` of stream `s`, so that consecutive batches read all streams
    /// from their beginnings to their ends.
    pub fn arrays(&self, settings: &Settings) -> Result<Arrays> {
        let Settings { streams, window, .. } = *settings;
        let (train, test) = self.numbers.split_at(self.numbers.len() / 10 * 9);
        let windows = train.len().saturating_sub(1) / streams / window;
        if windows == 0 || test.len() < 2 {
            return Err(Diagnostic::new(format!("{} characters are too few", self.numbers.len()))
                .help(format!("{streams} streams have at least one window of {window}")));
        }
        let rows = |shift: usize| {
            let row = |n: usize| (n % streams * windows + n / streams) * window + shift;
            let numbers = (0..windows * streams).flat_map(|n| &train[row(n)..][..window]);
            Literal::from_vec(&[windows * streams, window], numbers.copied().collect::<Vec<u8>>())
        };
        let whole = |numbers: &[u8]| Literal::from_vec(&[1, numbers.len()], numbers.to_vec());
        Ok(Arrays::from([
            ("train_x".into(), rows(0)?),
            ("train_y".into(), rows(1)?),
            ("test_x".into(), whole(&test[..test.len() - 1])?),
            ("test_y".into(), whole(&test[1..])?),
        ]))
    }
}

/// The functions `init`, `train_step`, `loss` and `sample` for a text of so many characters.
pub fn program(characters: usize, settings: &Settings) -> Result<Program> {
    let Settings { streams, window, .. } = *settings;
    let model = || Model::new(characters, settings);
    // Steps come first in the model, examples in the data.
    let by_steps = |x: &Tensor| x.permute(&[1, 0]);
    let mut program = Program::new();
    program.function("train_step", |f| {
        let x = by_steps(&f.input("x", i32([streams, window])));
        let y = by_steps(&f.input("y", i32([streams, window])));
        let key = f.key("key");
        let model = f.state("model", model());
        let begin = f.state("streams", model.lstm.first_state(streams));
        let (loss, last, gradient) = value_aux_and_grad(&model, |m| {
            let (logits, last) = m.call(&x, &begin, Some(&key));
            (cross_entropy(&logits, &y), last)
        });
        let rate = Rate::warmup_cosine(settings.rate, 50, settings.steps, 0.0);
        AdamW::new(rate).decay_where(|_, ty| ty.rank() > 1).step(f, &model, &gradient);
        f.update("streams.hidden", &last.hidden);
        f.update("streams.cell", &last.cell);
        f.output("loss", loss);
    })?;
    program.function("loss", |f| {
        let x = by_steps(&f.input("x", i32("B,T")));
        let y = by_steps(&f.input("y", i32("B,T")));
        let model = f.param("model", model());
        let (logits, _) = model.call(&x, &model.begin(x.shape()[1].clone()), None);
        f.output("bits", cross_entropy(&logits, &y) * std::f64::consts::LOG2_E);
    })?;
    program.function("sample", |f| {
        let prompt = f.input("prompt", i32("T"));
        let temperature = f.input("temperature", f32(""));
        let key = f.key("key");
        let model = f.param("model", model());
        f.output("text", model.sample(&prompt, &temperature, &key, settings.sample));
    })?;
    Ok(program)
}

/// How it is trained.
pub fn recipe(settings: &Settings) -> Recipe {
    let size = settings.streams as u64;
    let batches = Batches { size, shuffle: None, blocks: None, last: LastBatch::Drop };
    characters::recipe(batches, 1, 100, settings.steps)
}
