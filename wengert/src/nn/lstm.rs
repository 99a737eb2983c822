//! Long short-term memory.

use super::variable;
use wengert_core::build::control::scan;
use wengert_core::{Differentiable, Dim, Initializer, Literal, Location, Tensor, TensorType};

/// The state that an [`Lstm`] carries from step to step, `[batch, width]` each.
#[derive(Differentiable, Clone, Debug)]
pub struct LstmState {
    /// The output of the layer at each step.
    pub hidden: Tensor,
    /// The memory cells.
    pub cell: Tensor,
}

/// A recurrent layer with gates (Hochreiter and Schmidhuber 1997; forget gates by Gers,
/// Schmidhuber and Cummins 2000):
///
/// ```text
/// i, f, g, o = x · input + hidden · recurrent + bias         a quarter of the columns each
/// cell′   = logistic(f) · cell + logistic(i) · tanh(g)
/// hidden′ = logistic(o) · tanh(cell′)
/// ```
///
/// The order of the gates is that of PyTorch and cuDNN. The inputs' contribution to the gates
/// does not depend on the state, so it is one product for all steps ([`project`](Self::project)).
/// A [`step`](Self::step) is one product for all gates. [`call`](Self::call) takes the steps by
/// `scan`. To change the state between steps, write the loop:
///
/// ```
/// # use wengert::prelude::*;
/// # use wengert::nn::Lstm;
/// # fn main() -> Result<()> {
/// # let mut program = Program::new();
/// # program.function("f", |f| {
/// let x = f.input("x", f32("T,B,3"));
/// let layer = f.param("layer", Lstm::new(3, 5));
/// let begin = layer.zero_state(x.shape()[1].clone());
/// let (last, all) = control::scan(&begin, &layer.project(&x), |state, projected| {
///     let state = with_derivative(&layer.step(state, projected), |ct| {
///         ct.map_tensors(&Default::default(), &mut |_, ct| ct.clamp(-1.0, 1.0))
///     });
///     (state.clone(), state.hidden)
/// });
/// # f.output("all", all);
/// # f.output("last", last.cell);
/// # })
/// # }
/// ```
#[derive(Differentiable, Clone, Debug)]
pub struct Lstm {
    /// `[inputs, 4 · width]`.
    pub input: Tensor,
    /// `[width, 4 · width]`.
    pub recurrent: Tensor,
    /// `[4 · width]`.
    pub bias: Tensor,
    #[no_derivative]
    width: usize,
}

impl Lstm {
    /// A layer with weights uniform in ±1/√width, as PyTorch's. Biases are 0, and 1 for forget
    /// gates, so that the cells keep their contents at first (Jozefowicz, Zaremba and Sutskever
    /// 2015).
    #[track_caller]
    pub fn new(inputs: usize, width: usize) -> Self {
        let _user = Location::caller().attributed();
        let limit = 1.0 / (width.max(1) as f64).sqrt();
        let weight = |rows: usize| {
            variable(&[rows, 4 * width], Initializer::Uniform { low: -limit, high: limit })
        };
        let bias: Vec<f32> =
            (0..4 * width).map(|n| if n / width == 1 { 1.0 } else { 0.0 }).collect();
        let bias = Literal::from_vec(&[4 * width], bias).expect("there is a number for each gate");
        Lstm {
            input: weight(inputs),
            recurrent: weight(width),
            bias: variable(&[4 * width], Initializer::Constant(bias)),
            width,
        }
    }

    /// The number of cells.
    pub fn width(&self) -> usize {
        self.width
    }

    /// A state of zeros.
    #[track_caller]
    pub fn zero_state(&self, batch: impl Into<Dim>) -> LstmState {
        let zeros =
            Tensor::zeros(&TensorType::new(self.bias.dtype(), [batch.into(), self.width.into()]));
        LstmState { hidden: zeros.clone(), cell: zeros }
    }

    /// A state kept from run to run: variables with zeros as initial values.
    #[track_caller]
    pub fn first_state(&self, batch: usize) -> LstmState {
        let _user = Location::caller().attributed();
        let ty = TensorType::new(self.bias.dtype(), [batch, self.width]);
        let zeros = || Tensor::variable(ty.clone(), Initializer::Zeros);
        LstmState { hidden: zeros(), cell: zeros() }
    }

    /// The contribution of inputs `[…, inputs]` to the gates, bias included: `[…, 4 · width]`.
    #[track_caller]
    pub fn project(&self, x: &Tensor) -> Tensor {
        x.dot(&self.input) + &self.bias
    }

    /// The next state, from the state before and the projected inputs of the step,
    /// `[batch, 4 · width]`.
    #[track_caller]
    pub fn step(&self, state: &LstmState, projected: &Tensor) -> LstmState {
        let _user = Location::caller().attributed();
        let gates = projected + state.hidden.dot(&self.recurrent);
        let gate = |n: usize| gates.slice_axis(1, n * self.width, (n + 1) * self.width);
        let [write, keep, new, give] =
            [gate(0).logistic(), gate(1).logistic(), gate(2).tanh(), gate(3).logistic()];
        let cell = keep * &state.cell + write * new;
        LstmState { hidden: give * cell.tanh(), cell }
    }

    /// Maps inputs `[steps, batch, inputs]` to the outputs `[steps, batch, width]` and the last
    /// state.
    #[track_caller]
    pub fn call(&self, x: &Tensor, begin: &LstmState) -> (Tensor, LstmState) {
        let _user = Location::caller().attributed();
        let (last, all) = scan(begin, &self.project(x), |state, projected| {
            let state = self.step(state, projected);
            let hidden = state.hidden.clone();
            (state, hidden)
        });
        (all, last)
    }
}
