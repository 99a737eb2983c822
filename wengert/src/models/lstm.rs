//! A language model of LSTMs.

use crate::nn::{Dropout, Embedding, Linear, Lstm, LstmState, parameters};
use wengert_core::{Differentiable, Dim, Location, Tensor};

/// Sizes of the network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LstmModelSettings {
    /// Size of the vocabulary.
    pub vocabulary: usize,
    /// Elements of a token's vector.
    pub embedding: usize,
    /// Cells of each layer.
    pub width: usize,
    /// Number of LSTMs, each of which reads the outputs of the one before.
    pub layers: usize,
    /// Dropout probability in training, for the embedding and the outputs of each layer.
    pub dropout: f64,
}

impl LstmModelSettings {
    /// Number of learnt parameters.
    pub fn parameters(&self) -> usize {
        parameters(&LstmModel::new(self))
    }
}

/// LSTMs from tokens to the logits of the next token (Zaremba, Sutskever and Vinyals 2014).
#[derive(Differentiable, Clone, Debug)]
pub struct LstmModel {
    /// Tokens.
    pub embedding: Embedding,
    /// The layers.
    pub lstm: Vec<Lstm>,
    /// To the logits.
    pub out: Linear,
    #[no_derivative]
    dropout: Dropout,
}

impl LstmModel {
    /// A network before training.
    #[track_caller]
    pub fn new(settings: &LstmModelSettings) -> Self {
        let _user = Location::caller().attributed();
        let LstmModelSettings { vocabulary, embedding, width, layers, dropout } = *settings;
        let inputs = |layer: usize| if layer == 0 { embedding } else { width };
        LstmModel {
            embedding: Embedding::new(vocabulary, embedding),
            lstm: (0..layers).map(|layer| Lstm::new(inputs(layer), width)).collect(),
            out: Linear::new(inputs(layers), vocabulary),
            dropout: Dropout::new(dropout),
        }
    }

    /// States of zeros, one for each layer.
    #[track_caller]
    pub fn zero_state(&self, batch: impl Into<Dim>) -> Vec<LstmState> {
        let _user = Location::caller().attributed();
        let batch = batch.into();
        self.lstm.iter().map(|layer| layer.zero_state(batch.clone())).collect()
    }

    /// Logits `[steps, batch, vocabulary]` of the token after each of the tokens, integers
    /// `[steps, batch]`, and the layers' states after the last. A key, as in training, enables
    /// dropout with its random numbers; without a key there is no dropout.
    ///
    /// # Panics
    ///
    /// If there are not as many states as layers.
    #[track_caller]
    pub fn call(
        &self,
        tokens: &Tensor,
        begin: &[LstmState],
        key: Option<&Tensor>,
    ) -> (Tensor, Vec<LstmState>) {
        let _user = Location::caller().attributed();
        assert_eq!(begin.len(), self.lstm.len(), "each layer begins with a state");
        let keys = key.map(|key| key.split_key(1 + self.lstm.len()));
        let drop = |x: &Tensor, n: usize| self.dropout.call(x, keys.as_ref().map(|keys| &keys[n]));
        let (mut x, mut last) = (drop(&self.embedding.call(tokens), 0), Vec::new());
        for (n, (layer, begin)) in self.lstm.iter().zip(begin).enumerate() {
            let (all, end) = layer.call(&x, begin);
            x = drop(&all, n + 1);
            last.push(end);
        }
        (self.out.call(&x), last)
    }
}
