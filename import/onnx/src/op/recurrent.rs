//! Recurrent layers: RNN, GRU and LSTM, as loops over the steps.

use super::{Call, Row, row};
use crate::refusal::{Class, refuse};
use crate::value::Value;
use wengert_core::build::control;
use wengert_core::op::{Binary, Unary};
use wengert_core::{DType, Diagnostic, Dim, Result, Scalar, Tensor, TensorType};

pub(super) const ROWS: &[Row] = &[
    row("RNN", 7, |call| layer(call, Cell::Rnn)),
    row("GRU", 7, |call| layer(call, Cell::Gru)),
    row("LSTM", 7, |call| layer(call, Cell::Lstm)),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Rnn,
    Gru,
    Lstm,
}

impl Cell {
    /// Number of gates.
    fn gates(self) -> usize {
        match self {
            Cell::Rnn => 1,
            Cell::Gru => 3,
            Cell::Lstm => 4,
        }
    }

    /// The activations of one direction.
    fn activations(self) -> &'static [&'static str] {
        match self {
            Cell::Rnn => &["Tanh"],
            Cell::Gru => &["Sigmoid", "Tanh"],
            Cell::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

fn activation(name: &str, x: &Tensor) -> Tensor {
    match name {
        "Sigmoid" => x.unary(Unary::Logistic),
        "Relu" => x.binary(Binary::Max, &x.zeros_like()),
        "Softsign" => x / (x.unary(Unary::Abs) + 1.0),
        "Softplus" => x.softplus(),
        _ => x.unary(Unary::Tanh),
    }
}

/// One direction of a layer: its operands have no axis of directions.
struct Direction<'a> {
    cell: Cell,
    activations: Vec<&'a str>,
    weight: Tensor,
    recurrent: Tensor,
    /// Biases of both products.
    bias: Option<(Tensor, Tensor)>,
    peepholes: Option<Tensor>,
    lengths: Option<Tensor>,
    clip: Option<f64>,
    couples: bool,
    resets_after: bool,
    reverse: bool,
}

impl Direction<'_> {
    fn clipped(&self, x: Tensor) -> Tensor {
        self.clip.map_or(x.clone(), |clip| x.clamp(-clip, clip))
    }

    fn activate(&self, n: usize, x: Tensor) -> Tensor {
        activation(self.activations[n], &self.clipped(x))
    }

    /// The next hidden state, and the next state of the cell.
    fn step(&self, x: &Tensor, hidden: &Tensor, state: &Tensor) -> (Tensor, Tensor) {
        let turned = |w: &Tensor| w.matrix_transpose();
        let biased = |x: Tensor, of: fn(&(Tensor, Tensor)) -> &Tensor| match &self.bias {
            Some(bias) => x + of(bias),
            None => x,
        };
        let input = biased(x.matmul(&turned(&self.weight)), |b| &b.0);
        let gates = self.cell.gates();
        let part = |t: &Tensor, n: usize| chunk(t, gates, -1, n);
        let of_hidden = || biased(hidden.matmul(&turned(&self.recurrent)), |b| &b.1);
        match self.cell {
            Cell::Rnn => (self.activate(0, input + of_hidden()), state.clone()),
            Cell::Gru => {
                let all = of_hidden();
                let update = self.activate(0, part(&input, 0) + part(&all, 0));
                let reset = self.activate(0, part(&input, 1) + part(&all, 1));
                let candidate = match self.resets_after {
                    true => part(&input, 2) + &reset * part(&all, 2),
                    false => {
                        let weight = chunk(&self.recurrent, gates, 0, 2).matrix_transpose();
                        let product = (&reset * hidden).matmul(&weight);
                        let product = match &self.bias {
                            Some((_, bias)) => product + chunk(bias, gates, -1, 2),
                            None => product,
                        };
                        part(&input, 2) + product
                    }
                };
                let candidate = self.activate(1, candidate);
                ((1.0 - &update) * candidate + &update * hidden, state.clone())
            }
            Cell::Lstm => {
                let all = input + of_hidden();
                let peep = |n: usize, state: &Tensor, x: Tensor| match &self.peepholes {
                    Some(p) => x + chunk(p, 3, -1, n) * state,
                    None => x,
                };
                // Gates are in the order input, output, forget, cell; peepholes input, output,
                // forget.
                let enter = self.activate(0, peep(0, state, part(&all, 0)));
                let forget = match self.couples {
                    true => 1.0 - &enter,
                    false => self.activate(0, peep(2, state, part(&all, 2))),
                };
                let candidate = self.activate(1, part(&all, 3));
                let next = forget * state + enter * candidate;
                let leave = self.activate(0, peep(1, &next, part(&all, 1)));
                (leave * self.activate(2, next.clone()), next)
            }
        }
    }

    /// The hidden states of all steps, and the last states.
    fn run(&self, x: &Tensor, hidden: Tensor, state: Tensor) -> [Tensor; 3] {
        let steps = Tensor::iota(DType::I64, [x.shape()[0].clone()], 0);
        let body = |(hidden, state): &(Tensor, Tensor), (x, n): &(Tensor, Tensor)| {
            let (next, next_state) = self.step(x, hidden, state);
            match &self.lengths {
                None => ((next.clone(), next_state), next),
                Some(lengths) => {
                    let within = n.broadcast_to(lengths.shape());
                    let within =
                        within.compare(wengert_core::op::Compare::Lt, lengths).unsqueeze(1);
                    let kept = (within.select(&next, hidden), within.select(&next_state, state));
                    (kept, within.select(&next, &next.zeros_like()))
                }
            }
        };
        let all = (x.clone(), steps);
        let ((hidden, state), outputs) = match self.reverse {
            true => control::scan_reverse(&(hidden, state), &all, body),
            false => control::scan(&(hidden, state), &all, body),
        };
        [outputs, hidden, state]
    }
}

/// Chunk number `n`. If the axis has no such chunks, all are one tensor with the error.
fn chunk(t: &Tensor, count: usize, axis: i64, n: usize) -> Tensor {
    let chunks = t.chunk(count, axis);
    chunks.get(n).unwrap_or(&chunks[0]).clone()
}

fn layer(call: &Call<'_, '_, '_>, cell: Cell) -> Result<Vec<Value>> {
    // Operands are [steps, batch, features], or [batch, steps, features].
    let by_batch = call.flag("layout", false)?;
    let turned = |t: Tensor| if by_batch { t.permute([1, 0, 2]) } else { t };
    let x = turned(call.tensor(0)?);
    let (weight, recurrent) = (call.ranked(1, 3)?, call.ranked(2, 3)?);
    let [_, batch, _] = x.shape() else {
        return Err(Diagnostic::new(format!("{} is no batch of sequences", x.ty())));
    };
    let units = recurrent.shape()[2].clone();
    let directions = match call.text("direction", "forward")? {
        "forward" => vec![false],
        "reverse" => vec![true],
        "bidirectional" => vec![false, true],
        other => return call.refuse("direction", other),
    };
    let own = cell.activations();
    let names: Vec<String> = match call.attribute("activations") {
        Some(crate::model::Attribute::Texts(names)) => names.clone(),
        _ => own.iter().cycle().take(own.len() * directions.len()).map(|s| (*s).into()).collect(),
    };
    let known = ["Sigmoid", "Tanh", "Relu", "Softsign", "Softplus"];
    if let Some(other) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(refuse(Class::Attribute, format!("activation {other}")));
    }
    if names.len() != own.len() * directions.len() {
        return Err(Diagnostic::new(format!("{} activations", names.len())));
    }
    let (bias, lengths) = (call.optional(3)?, call.optional(4)?);
    let peepholes = if cell == Cell::Lstm { call.optional(7)? } else { None };
    let zeros = || {
        let shape = vec![Dim::from(directions.len()), batch.clone(), units.clone()];
        let ty = TensorType::of(x.dtype(), shape);
        Tensor::full(&ty, Scalar::zero(x.dtype()))
    };
    let start = |n: usize| -> Result<Tensor> { Ok(call.optional(n)?.map_or_else(zeros, turned)) };
    let first_hidden = start(5)?;
    let first_state = if cell == Cell::Lstm { start(6)? } else { zeros() };
    let (mut outputs, mut hiddens, mut states) = (vec![], vec![], vec![]);
    for (n, reverse) in directions.iter().copied().enumerate() {
        let of = |t: &Tensor| t.slice_axis(0, n as i64, n as i64 + 1).squeeze(0);
        let direction = Direction {
            cell,
            activations: names[n * own.len()..][..own.len()].iter().map(String::as_str).collect(),
            weight: of(&weight),
            recurrent: of(&recurrent),
            bias: bias.as_ref().map(|bias| {
                let bias = of(bias);
                (chunk(&bias, 2, 0, 0), chunk(&bias, 2, 0, 1))
            }),
            peepholes: peepholes.as_ref().map(of),
            lengths: lengths.as_ref().map(|l| l.convert(DType::I64)),
            clip: call.some_float("clip")?,
            couples: call.flag("input_forget", false)?,
            resets_after: call.flag("linear_before_reset", false)?,
            reverse,
        };
        let [all, hidden, state] = direction.run(&x, of(&first_hidden), of(&first_state));
        outputs.push(all);
        hiddens.push(hidden);
        states.push(state);
    }
    // Results are [steps, directions, batch, units], or [batch, steps, directions, units].
    let all = Tensor::stack(&outputs, 1);
    let all = if by_batch { all.permute([2, 0, 1, 3]) } else { all };
    let last = |parts: &[Tensor]| turned(Tensor::stack(parts, 0));
    let mut results = vec![all, last(&hiddens)];
    if cell == Cell::Lstm {
        results.push(last(&states));
    }
    Ok(results.into_iter().map(Value::Tensor).collect())
}
