//! Optimizers, of the domain `ai.onnx.preview.training`.
//!
//! Operands are the learning rate, the number of the update, and then for all parameters their
//! values, their gradients, and each kind of state. Results are the values and states.

use super::{Call, Row};
use crate::value::Value;
use wengert_core::op::{Binary, Unary};
use wengert_core::{DType, Diagnostic, Result, Tensor};

pub(super) const ROWS: &[Row] =
    &[training("Adagrad", adagrad), training("Adam", adam), training("Momentum", momentum)];

const fn training(name: &'static str, rule: super::Rule) -> Row {
    Row { domain: "ai.onnx.preview.training", name, since: 1, folds: true, rule }
}

/// An update of one parameter. Its gradient has the part of the norm in it.
struct Update<const STATES: usize> {
    value: Tensor,
    gradient: Tensor,
    states: [Tensor; STATES],
}

/// Updates each parameter. The new value is followed by the new states.
fn each<const STATES: usize>(
    call: &Call<'_, '_, '_>,
    update: impl Fn(Update<STATES>) -> (Tensor, [Tensor; STATES]),
) -> Result<Vec<Value>> {
    let (operands, kinds) = (call.count().saturating_sub(2), 2 + STATES);
    if operands == 0 || operands % kinds != 0 {
        return Err(Diagnostic::new(format!(
            "it has {operands} operands after the first two, not {kinds} for each parameter"
        )));
    }
    let count = operands / kinds;
    let norm = call.float("norm_coefficient", 0.0)?;
    let mut results = vec![vec![]; 1 + STATES];
    for n in 0..count {
        let of = |kind: usize| call.tensor(2 + kind * count + n);
        let value = of(0)?;
        let gradient = of(1)? + &value * norm;
        let mut states = vec![];
        for kind in 2..kinds {
            states.push(of(kind)?);
        }
        let states = states.try_into().expect("one of each kind");
        let (value, states) = update(Update { value, gradient, states });
        for (results, result) in results.iter_mut().zip([value].into_iter().chain(states)) {
            results.push(Value::Tensor(result));
        }
    }
    Ok(results.concat())
}

/// The number of the update, as the dtype of the learning rate.
fn number(call: &Call<'_, '_, '_>, dtype: DType) -> Result<Tensor> {
    Ok(call.tensor(1)?.convert(dtype))
}

fn adagrad(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let rate = call.tensor(0)?;
    let (decay, epsilon) = (call.float("decay_factor", 0.0)?, call.float("epsilon", 1e-6)?);
    let rate = &rate / (number(call, rate.dtype())? * decay + 1.0);
    each(call, |Update { value, gradient, states: [squares] }| {
        let squares = squares + gradient.unary(Unary::Square);
        let step = &rate * gradient / (squares.unary(Unary::Sqrt) + epsilon);
        (value - step, [squares])
    })
}

fn adam(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let rate = call.tensor(0)?;
    let (alpha, beta) = (call.float("alpha", 0.9)?, call.float("beta", 0.999)?);
    let epsilon = call.float("epsilon", 1e-6)?;
    let after = call.float("norm_coefficient_post", 0.0)?;
    let number = number(call, rate.dtype())?;
    // What the first updates lack, as their states begin at 0.
    let missing = |of: f64| 1.0 - number.full_like(of).binary(Binary::Pow, &number);
    let corrected = &rate * missing(beta).unary(Unary::Sqrt) / missing(alpha);
    let rate = number.gt(0.0).select(&corrected, &rate);
    each(call, |Update { value, gradient, states: [mean, squares] }| {
        let mean = mean * alpha + &gradient * (1.0 - alpha);
        let squares = squares * beta + gradient.unary(Unary::Square) * (1.0 - beta);
        let step = &rate * &mean / (squares.unary(Unary::Sqrt) + epsilon);
        ((value - step) * (1.0 - after), [mean, squares])
    })
}

fn momentum(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let rate = call.tensor(0)?;
    let (alpha, beta) = (call.float("alpha", 0.0)?, call.float("beta", 0.0)?);
    let nesterov = match call.text("mode", "standard")? {
        "standard" => false,
        "nesterov" => true,
        other => return call.refuse("mode", other),
    };
    let number = number(call, rate.dtype())?;
    // The first update takes the whole gradient.
    let share = number.gt(0.0).select(number.full_like(beta), &number.full_like(1.0));
    each(call, |Update { value, gradient, states: [velocity] }| {
        let velocity = velocity * alpha + &share * &gradient;
        let direction = if nesterov { gradient + &velocity * alpha } else { velocity.clone() };
        (value - &rate * direction, [velocity])
    })
}
