//! Gated recurrent units.

use super::variable;
use wengert_core::build::control::scan;
use wengert_core::{Differentiable, Dim, Initializer, Location, Tensor, TensorType};

/// A recurrent layer with a reset gate and an update gate (Cho and others 2014), with the reset
/// gate applied after the product, as in PyTorch and cuDNN:
///
/// ```text
/// r, z, n = x · input + bias                    a third of the columns each
/// u, v, w = hidden · recurrent
/// new     = tanh(n + logistic(r + u) · (w + recurrent_bias))
/// hidden′ = (1 − logistic(z + v)) · new + logistic(z + v) · hidden
/// ```
///
/// PyTorch adds two biases to each gate. Here the gates r and z have one, their sum; the candidate
/// n has two, since only one of them is multiplied by the reset gate.
///
/// The inputs' contribution does not depend on the state, so it is one product for all steps
/// ([`project`](Self::project)). A [`step`](Self::step) is one product for all gates.
/// [`call`](Self::call) takes the steps by `scan`.
#[derive(Differentiable, Clone, Debug)]
pub struct Gru {
    /// `[inputs, 3 · width]`.
    pub input: Tensor,
    /// `[width, 3 · width]`.
    pub recurrent: Tensor,
    /// `[3 · width]`.
    pub bias: Tensor,
    /// `[width]`: the bias of the candidate that the reset gate multiplies.
    pub recurrent_bias: Tensor,
    #[no_derivative]
    width: usize,
}

impl Gru {
    /// A layer with weights uniform in ±1/√width, as PyTorch's, and biases of 0.
    #[track_caller]
    pub fn new(inputs: usize, width: usize) -> Self {
        let _user = Location::caller().attributed();
        let limit = 1.0 / (width.max(1) as f64).sqrt();
        let weight = |rows: usize| {
            variable(&[rows, 3 * width], Initializer::Uniform { low: -limit, high: limit })
        };
        Gru {
            input: weight(inputs),
            recurrent: weight(width),
            bias: variable(&[3 * width], Initializer::Zeros),
            recurrent_bias: variable(&[width], Initializer::Zeros),
            width,
        }
    }

    /// The number of units.
    pub fn width(&self) -> usize {
        self.width
    }

    /// A state of zeros, `[batch, width]`.
    #[track_caller]
    pub fn zero_state(&self, batch: impl Into<Dim>) -> Tensor {
        Tensor::zeros(&TensorType::new(self.bias.dtype(), [batch.into(), self.width.into()]))
    }

    /// A state kept from run to run: a variable with zeros as initial value, `[batch, width]`.
    #[track_caller]
    pub fn first_state(&self, batch: usize) -> Tensor {
        let ty = TensorType::new(self.bias.dtype(), [batch, self.width]);
        Tensor::variable(ty, Initializer::Zeros)
    }

    /// The contribution of inputs `[…, inputs]` to the gates, bias included: `[…, 3 · width]`.
    ///
    /// # Errors
    ///
    /// The last axis has another extent than the layer's inputs.
    #[track_caller]
    pub fn project(&self, x: &Tensor) -> Tensor {
        x.dot(&self.input) + &self.bias
    }

    /// The next state, from the state before, `[batch, width]`, and the projected inputs of the
    /// step, `[batch, 3 · width]`.
    ///
    /// # Errors
    ///
    /// An operand has another shape.
    #[track_caller]
    pub fn step(&self, hidden: &Tensor, projected: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        let carried = hidden.dot(&self.recurrent);
        let third = |t: &Tensor, n: usize| t.slice_axis(1, n * self.width, (n + 1) * self.width);
        let reset = (third(projected, 0) + third(&carried, 0)).logistic();
        let update = (third(projected, 1) + third(&carried, 1)).logistic();
        let inner = third(&carried, 2) + &self.recurrent_bias;
        let new = (third(projected, 2) + reset * inner).tanh();
        (1.0 - &update) * new + update * hidden
    }

    /// Maps inputs `[steps, batch, inputs]` to the outputs `[steps, batch, width]` and the last
    /// state, `[batch, width]`.
    ///
    /// # Errors
    ///
    /// The inputs or the state have other shapes.
    #[track_caller]
    pub fn call(&self, x: &Tensor, begin: &Tensor) -> (Tensor, Tensor) {
        let _user = Location::caller().attributed();
        let (last, all) = scan(begin, &self.project(x), |hidden, projected| {
            let hidden = self.step(hidden, projected);
            (hidden.clone(), hidden)
        });
        (all, last)
    }
}
