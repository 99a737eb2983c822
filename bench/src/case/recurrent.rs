//! Training steps of a recurrent network, whose time steps are a loop or unrolled.
//!
//! An LSTM reads a window of a few examples, and is trained on the cross-entropy of an affine
//! layer after it. The cost of a loop is the ratio of the two forms: `step lstm …` takes the
//! steps by `scan`, `… unrolled` has separate equations for each.

use super::plain::{add_product, repeated, transposed};
use super::training::{Algorithm, check_steps};
use super::{Case, Drawn, Float, Kind, Made, drawn, first, program, read};
use crate::data::{labels, uniform};
use crate::parity::Parity;
use crate::record::Work;
use crate::resident::Resident;
use serde::{Deserialize, Serialize};
use wengert::nn::{Lstm, LstmState};
use wengert::prelude::{AdamW, Linear, cross_entropy, value_and_grad};
use wengert::{DType, Differentiable, Literal, Result, Tensor};

/// An LSTM and an affine layer, trained by AdamW.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recurrent {
    /// Features of a step's input.
    pub inputs: usize,
    /// Cells.
    pub width: usize,
    /// Classes of a step's result.
    pub classes: usize,
    /// Steps of the window.
    pub steps: usize,
    /// Examples.
    pub batch: usize,
    /// The form of the time steps.
    pub form: Form,
}

/// The form of the time steps of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// A loop.
    Scan,
    /// Separate equations for each.
    Unrolled,
}

#[derive(Differentiable)]
struct Model {
    lstm: Lstm,
    out: Linear,
}

/// Its variables, in the order of the operands and results of [`plain`].
const PARAMETERS: [&str; 5] =
    ["lstm.input", "lstm.recurrent", "lstm.bias", "out.weight", "out.bias"];

impl Model {
    /// `[steps, batch, inputs]` to `[steps, batch, classes]`.
    fn call(&self, x: &Tensor, network: &Recurrent) -> Tensor {
        let begin = self.lstm.zero_state(network.batch);
        let hidden = match network.form {
            Form::Scan => self.lstm.call(x, &begin).0,
            Form::Unrolled => self.unrolled(x, begin, network),
        };
        self.out.call(&hidden)
    }

    fn unrolled(&self, x: &Tensor, begin: LstmState, network: &Recurrent) -> Tensor {
        let projected = self.lstm.project(x);
        let mut state = begin;
        let mut hidden = Vec::with_capacity(network.steps);
        for step in 0..network.steps {
            let of_step =
                projected.slice_axis(0, step, step + 1).reshape([network.batch, 4 * network.width]);
            state = self.lstm.step(&state, &of_step);
            hidden.push(state.hidden.reshape([1, network.batch, network.width]));
        }
        Tensor::concatenate(&hidden.iter().collect::<Vec<_>>(), 0)
    }
}

pub(super) fn cases(small: bool) -> Vec<Case> {
    let [inputs, width, classes, steps, batch] =
        if small { [5, 7, 4, 6, 3] } else { [64, 256, 68, 64, 32] };
    let of = |form| case(Recurrent { inputs, width, classes, steps, batch, form });
    vec![of(Form::Scan), of(Form::Unrolled)]
}

/// The work of a step: products of inputs, states and outputs with their weights, the same for
/// the weights' gradients and, except for the inputs, for the gradients of the other operands;
/// parameters and two moments are read and written, and the window is read.
fn case(network: Recurrent) -> Case {
    let Recurrent { inputs, width, classes, steps, batch, form } = network;
    let [inputs, width, classes, steps, batch] =
        [inputs, width, classes, steps, batch].map(|n| n as u64);
    let matrices = 4 * width * (inputs + width) + width * classes;
    let parameters = matrices + 4 * width + classes;
    let unrolled = if form == Form::Unrolled { " unrolled" } else { "" };
    Case {
        id: format!("step lstm {inputs}-{width}-{classes} T{steps} B{batch}{unrolled}"),
        group: "lstm".into(),
        dtype: Float::F32,
        work: Work {
            elements: parameters,
            bytes: 24 * parameters + steps * batch * (4 * inputs + 4),
            flops: 2 * steps * batch * (3 * matrices - 4 * width * inputs),
        },
        reference: None,
        kind: Kind::Recurrent { network },
    }
}

/// Initial values of the network; the weights' bounds are PyTorch's.
fn parameters(network: &Recurrent) -> Vec<Drawn> {
    let Recurrent { inputs, width, classes, .. } = *network;
    let bound = 1.0 / (width as f64).sqrt();
    let shapes = [
        vec![inputs, 4 * width],
        vec![width, 4 * width],
        vec![4 * width],
        vec![width, classes],
        vec![classes],
    ];
    PARAMETERS
        .iter()
        .zip(shapes)
        .map(|(name, shape)| (name.to_string(), shape, [-bound, bound]))
        .collect()
}

pub(super) fn make(network: &Recurrent) -> Result<Made> {
    let Recurrent { inputs, width, classes, steps, batch, .. } = *network;
    let program = program(|f| {
        let x = read(f, "x", DType::F32, &[steps, batch, inputs]);
        let y = read(f, "y", DType::I32, &[steps, batch]);
        let model = f.state(
            "model",
            Model { lstm: Lstm::new(inputs, width), out: Linear::new(width, classes) },
        );
        let (loss, gradient) = value_and_grad(&model, |m| cross_entropy(&m.call(&x, network), &y));
        AdamW::new(super::training::RATE).step(f, &model, &gradient);
        f.create("loss", &loss);
    })?;
    let rows = labels("y", steps * batch, classes)?;
    let rows: Vec<i32> = rows.scalars().map(|s| s.to_f64() as i32).collect();
    let mut variables = drawn(parameters(network))?;
    variables.push(("x".into(), uniform("x", DType::F32, &[steps, batch, inputs], 0.0, 1.0)?));
    variables.push(("y".into(), Literal::from_vec(&[steps, batch], rows)?));
    Ok(Made { program, variables, init: Some(1), check })
}

fn check(resident: &mut Resident, case: &Case, variables: &[(String, Literal)]) -> Result<Parity> {
    let Kind::Recurrent { network } = &case.kind else {
        unreachable!("this is the check of recurrent networks")
    };
    let values =
        |name: &str| -> Vec<f64> { first(variables, name).scalars().map(|s| s.to_f64()).collect() };
    let (x, y) = (values("x"), values("y"));
    let names = PARAMETERS.map(|name| format!("model.{name}"));
    check_steps(resident, &names, Algorithm::AdamW, case.dtype.bound(), &|parameters| {
        plain(network, parameters, &x, &y)
    })
}

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Residuals of a step of the plain network.
struct Remembered {
    before: [Vec<f64>; 2],
    gates: Vec<f64>,
    cell: Vec<f64>,
    hidden: Vec<f64>,
}

/// Loss and gradients of a step, parameters in the order of [`PARAMETERS`].
fn plain(
    network: &Recurrent,
    parameters: &[Vec<f64>],
    x: &[f64],
    y: &[f64],
) -> (f64, Vec<Vec<f64>>) {
    let Recurrent { inputs, width, classes, steps, batch, .. } = *network;
    let [input, recurrent, bias, weight, out_bias] = parameters else {
        unreachable!("five parameters")
    };
    let of_step = |t: usize| &x[t * batch * inputs..(t + 1) * batch * inputs];
    let mut remembered: Vec<Remembered> = Vec::new();
    let mut state = [vec![0.0; batch * width], vec![0.0; batch * width]];
    for t in 0..steps {
        let mut gates = repeated(bias, batch);
        add_product(&mut gates, of_step(t), input, [batch, inputs, 4 * width]);
        add_product(&mut gates, &state[0], recurrent, [batch, width, 4 * width]);
        for (n, gate) in gates.iter_mut().enumerate() {
            *gate = if n % (4 * width) / width == 2 { gate.tanh() } else { logistic(*gate) };
        }
        let gate = |row: usize, which: usize, n: usize| gates[row * 4 * width + which * width + n];
        let (mut hidden, mut cell) = (state[0].clone(), state[1].clone());
        for n in 0..batch * width {
            let (row, column) = (n / width, n % width);
            let [i, f, g, o] = [0, 1, 2, 3].map(|which| gate(row, which, column));
            cell[n] = f * state[1][n] + i * g;
            hidden[n] = o * cell[n].tanh();
        }
        let before = std::mem::replace(&mut state, [hidden.clone(), cell.clone()]);
        remembered.push(Remembered { before, gates, cell, hidden });
    }
    let mut gradients: Vec<Vec<f64>> = parameters.iter().map(|p| vec![0.0; p.len()]).collect();
    let (mut loss, share) = (0.0, 1.0 / (steps * batch) as f64);
    let (weight_t, recurrent_t) =
        (transposed(weight, [width, classes]), transposed(recurrent, [width, 4 * width]));
    let mut later = [vec![0.0; batch * width], vec![0.0; batch * width]];
    for (t, step) in remembered.iter().enumerate().rev() {
        let mut logits = repeated(out_bias, batch);
        add_product(&mut logits, &step.hidden, weight, [batch, width, classes]);
        for (row, logits) in logits.chunks_mut(classes).enumerate() {
            let label = y[t * batch + row] as usize;
            let sum: f64 = logits.iter().map(|v| v.exp()).sum();
            loss += (sum.ln() - logits[label]) * share;
            for (class, logit) in logits.iter_mut().enumerate() {
                *logit = (logit.exp() / sum - f64::from(u8::from(class == label))) * share;
            }
        }
        let cotangents = logits;
        let [mut of_hidden, of_cell] = later;
        add_product(
            &mut gradients[3],
            &transposed(&step.hidden, [batch, width]),
            &cotangents,
            [width, batch, classes],
        );
        add_product(&mut gradients[4], &vec![1.0; batch], &cotangents, [1, batch, classes]);
        add_product(&mut of_hidden, &cotangents, &weight_t, [batch, classes, width]);
        let (mut of_gates, mut cell_before) =
            (vec![0.0; batch * 4 * width], vec![0.0; batch * width]);
        for n in 0..batch * width {
            let at = |which: usize| n / width * 4 * width + which * width + n % width;
            let [i, f, g, o] = [0, 1, 2, 3].map(|which| step.gates[at(which)]);
            let bent = step.cell[n].tanh();
            let of_cell = of_cell[n] + of_hidden[n] * o * (1.0 - bent * bent);
            of_gates[at(0)] = of_cell * g * i * (1.0 - i);
            of_gates[at(1)] = of_cell * step.before[1][n] * f * (1.0 - f);
            of_gates[at(2)] = of_cell * i * (1.0 - g * g);
            of_gates[at(3)] = of_hidden[n] * bent * o * (1.0 - o);
            cell_before[n] = of_cell * f;
        }
        add_product(
            &mut gradients[0],
            &transposed(of_step(t), [batch, inputs]),
            &of_gates,
            [inputs, batch, 4 * width],
        );
        let before = transposed(&step.before[0], [batch, width]);
        add_product(&mut gradients[1], &before, &of_gates, [width, batch, 4 * width]);
        add_product(&mut gradients[2], &vec![1.0; batch], &of_gates, [1, batch, 4 * width]);
        let mut hidden_before = vec![0.0; batch * width];
        add_product(&mut hidden_before, &of_gates, &recurrent_t, [batch, 4 * width, width]);
        later = [hidden_before, cell_before];
    }
    (loss, gradients)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::assert_gradient;

    #[test]
    fn steps_are_counted_by_hand() {
        let network =
            Recurrent { inputs: 3, width: 5, classes: 2, steps: 7, batch: 4, form: Form::Unrolled };
        let case = case(network);
        assert_eq!(case.id, "step lstm 3-5-2 T7 B4 unrolled");
        assert_eq!(case.work.elements, (3 + 5 + 1) * 20 + (5 + 1) * 2);
        // Forward 60 + 100 + 10 per row, the weights' gradients the same, the states' 100 + 10.
        assert_eq!(case.work.flops, 2 * 28 * (2 * 170 + 110));
    }

    /// The plain gradient against differences of the plain loss.
    #[test]
    fn the_plain_step_is_right() {
        let network =
            Recurrent { inputs: 2, width: 3, classes: 3, steps: 4, batch: 2, form: Form::Scan };
        let values = |name: &str, count: usize| -> Vec<f64> {
            let drawn = uniform(name, DType::F32, &[count], -1.0, 1.0).unwrap();
            drawn.scalars().map(|s| s.to_f64()).collect()
        };
        let parameters =
            vec![values("a", 24), values("b", 36), values("c", 12), values("d", 9), values("e", 3)];
        let x = values("x", 16);
        let y: Vec<f64> = (0..8).map(|n| f64::from(n * n % 3)).collect();
        assert_gradient(parameters, 1e-9, |parameters| plain(&network, parameters, &x, &y));
    }
}
