//! Activation functions.

use wengert_core::Tensor;

/// An elementwise function, as a value that a model may hold in a field marked `#[no_derivative]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Activation {
    /// max(x, 0); NaN stays NaN. Its derivative at 0 is 0.
    #[default]
    Relu,
    /// x · Φ(x), Φ being the normal distribution: x/2 · (1 + erf(x/√2)).
    Gelu,
    /// The approximation x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³))).
    GeluTanh,
    /// x · logistic(x).
    Silu,
    /// tanh x.
    Tanh,
    /// 1 / (1 + e⁻ˣ).
    Logistic,
    /// x.
    Identity,
}

impl Activation {
    /// Applies it.
    #[track_caller]
    pub fn call(self, x: &Tensor) -> Tensor {
        match self {
            Activation::Relu => x.relu(),
            Activation::Gelu => x.gelu(),
            Activation::GeluTanh => x.gelu_tanh(),
            Activation::Silu => x.silu(),
            Activation::Tanh => x.tanh(),
            Activation::Logistic => x.logistic(),
            Activation::Identity => x.clone(),
        }
    }
}
