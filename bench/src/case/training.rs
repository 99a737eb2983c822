//! Training steps: forward, backward and the optimiser's update of a small network, all on the
//! device.
//!
//! On a GPU these are latency-bound: they show the cost of launches, and the benefit of capturing
//! a step as one graph.

use super::{Case, Drawn, Float, Kind, Made, drawn, first, program, read};
use crate::data::{labels, uniform};
use crate::parity::{Comparison, Parity, STEPS};
use crate::record::Work;
use crate::resident::Resident;
use serde::{Deserialize, Serialize};
use wengert::prelude::{Adam, AdamW, Linear, cross_entropy, value_and_grad};
use wengert::{DType, Differentiable, Literal, Result, Tensor};

/// A network of affine layers with relu between, trained on the cross-entropy of its logits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Widths: of the input, of the hidden layers, of the result.
    pub widths: Vec<usize>,
    /// Examples in a step.
    pub batch: usize,
    /// The optimiser.
    pub algorithm: Algorithm,
}

/// An optimiser, with a rate of 0.001 and otherwise default settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// β₁ = 0.9, β₂ = 0.999, ε = 1e-8.
    Adam,
    /// The same with a weight decay of 0.01.
    AdamW,
}

impl Algorithm {
    /// Its name in variables.
    fn name(self) -> &'static str {
        match self {
            Algorithm::Adam => "adam",
            Algorithm::AdamW => "adamw",
        }
    }

    fn decay(self) -> f64 {
        match self {
            Algorithm::Adam => 0.0,
            Algorithm::AdamW => 0.01,
        }
    }
}

/// The learning rate of all steps.
pub(super) const RATE: f64 = 1e-3;

#[derive(Differentiable)]
struct Mlp {
    layers: Vec<Linear>,
}

impl Mlp {
    fn new(widths: &[usize]) -> Self {
        Mlp { layers: widths.windows(2).map(|w| Linear::kaiming(w[0], w[1])).collect() }
    }

    fn call(&self, x: &Tensor) -> Tensor {
        let (first, rest) = self.layers.split_first().expect("networks of cases have layers");
        rest.iter().fold(first.call(x), |x, layer| layer.call(&x.relu()))
    }
}

pub(super) fn cases(small: bool) -> Vec<Case> {
    let digits = Network { widths: vec![64, 128, 10], batch: 64, algorithm: Algorithm::AdamW };
    let (widths, batch) =
        if small { (vec![40, 24, 24, 10], 16) } else { (vec![784, 512, 512, 10], 128) };
    [digits, Network { widths, batch, algorithm: Algorithm::Adam }].map(case).into()
}

/// The work of a step. Each layer computes a product, the gradient of its weights, and, unless it
/// is the first layer, the gradient of its input: 2·batch·in·out operations each. The step reads
/// the batch, and reads and writes the parameters and two moments.
fn case(network: Network) -> Case {
    let Network { widths, batch, algorithm } = &network;
    let batch_size = *batch as u64;
    let layers: Vec<u64> = widths.windows(2).map(|w| (w[0] * w[1]) as u64).collect();
    let parameters: u64 = widths.windows(2).map(|w| (w[0] * w[1] + w[1]) as u64).sum();
    let products = 3 * layers.iter().sum::<u64>() - layers[0];
    let shape: Vec<String> = widths.iter().map(usize::to_string).collect();
    Case {
        id: format!("step mlp {} {} B{batch}", shape.join("-"), algorithm.name()),
        group: "steps".into(),
        dtype: Float::F32,
        work: Work {
            elements: parameters,
            bytes: 24 * parameters + batch_size * (4 * widths[0] as u64 + 4),
            flops: 2 * batch_size * products,
        },
        reference: None,
        kind: Kind::Training { network },
    }
}

/// Initial values of affine layers with relu between: weights within Kaiming's bounds, and
/// nonzero biases, so that a forgotten one is detected.
pub(super) fn parameters(widths: &[usize]) -> Vec<Drawn> {
    let of_layer = |(n, w): (usize, &[usize])| {
        let bound = (6.0 / w[0] as f64).sqrt();
        let weight = (format!("layers.{n}.weight"), w.to_vec(), [-bound, bound]);
        [weight, (format!("layers.{n}.bias"), vec![w[1]], [-0.1, 0.1])]
    };
    widths.windows(2).enumerate().flat_map(of_layer).collect()
}

pub(super) fn make(network: &Network) -> Result<Made> {
    let Network { widths, batch, algorithm } = network;
    let (input, classes) = (widths[0], widths[widths.len() - 1]);
    let program = program(|f| {
        let x = read(f, "x", DType::F32, &[*batch, input]);
        let y = read(f, "y", DType::I32, &[*batch]);
        let model = f.state("model", Mlp::new(widths));
        let (loss, gradient) = value_and_grad(&model, |m| cross_entropy(&m.call(&x), &y));
        match algorithm {
            Algorithm::Adam => Adam::new(RATE).step(f, &model, &gradient),
            Algorithm::AdamW => AdamW::new(RATE).step(f, &model, &gradient),
        }
        f.create("loss", &loss);
    })?;
    let mut variables = drawn(parameters(widths))?;
    variables.push(("x".into(), uniform("x", DType::F32, &[*batch, input], 0.0, 1.0)?));
    variables.push(("y".into(), labels("y", *batch, classes)?));
    Ok(Made { program, variables, init: Some(1), check })
}

fn check(resident: &mut Resident, case: &Case, variables: &[(String, Literal)]) -> Result<Parity> {
    let Kind::Training { network } = &case.kind else {
        unreachable!("this is the check of training steps")
    };
    let (x, y) = (first(variables, "x"), first(variables, "y"));
    let names = parameters(&network.widths).into_iter().map(|(name, ..)| format!("model.{name}"));
    let names = names.collect::<Vec<_>>();
    check_steps(resident, &names, network.algorithm, case.dtype.bound(), &|parameters| {
        plain(network, parameters, x, y)
    })
}

/// Loss and gradients of a step from its parameters.
pub(super) type Plain<'a> = dyn Fn(&[Vec<f64>]) -> (f64, Vec<Vec<f64>>) + 'a;

/// Runs [`STEPS`] steps. After each, the loss, both moments and the weights are compared with a
/// plain step from the values before it. The weights' update starts from the device's own
/// moments, since it divides by them. No deviation may exceed `bound`.
pub(super) fn check_steps(
    resident: &mut Resident,
    names: &[String],
    algorithm: Algorithm,
    bound: f64,
    plain: &Plain<'_>,
) -> Result<Parity> {
    let name = algorithm.name();
    let (mut comparison, mut losses) = (Comparison::default(), [0.0; STEPS]);
    for (step, of_step) in (1..).zip(&mut losses) {
        let parameters = |resident: &Resident, prefix: &str| -> Result<Vec<Vec<f64>>> {
            let value = |name: &String| {
                let literal = resident.variable(&format!("{prefix}{name}"))?;
                Ok(literal.scalars().map(|s| s.to_f64()).collect())
            };
            names.iter().map(value).collect()
        };
        let moments = |resident: &Resident| -> Result<_> {
            Ok((
                parameters(resident, &format!("{name}.m."))?,
                parameters(resident, &format!("{name}.v."))?,
            ))
        };
        let (before, (m, v)) = (parameters(resident, "")?, moments(resident)?);
        resident.run()?;
        resident.finish()?;
        let (after, (found_m, found_v)) = (parameters(resident, "")?, moments(resident)?);
        let (loss, gradient) = plain(&before);
        *of_step = resident.variable("loss")?.get(0).to_f64();
        comparison.add(*of_step, loss, loss);
        for (p, gradient) in gradient.iter().enumerate() {
            let largest = gradient.iter().fold(0.0f64, |a, g| a.max(g.abs()));
            for (i, g) in gradient.iter().enumerate() {
                // Deviations of gradients are relative to the array's largest element.
                comparison.add(found_m[p][i], 0.9 * m[p][i] + 0.1 * g, largest);
                comparison.add(found_v[p][i], 0.999 * v[p][i] + 0.001 * g * g, largest * largest);
                let m = found_m[p][i] / (1.0 - 0.9f64.powi(step));
                let v = found_v[p][i] / (1.0 - 0.999f64.powi(step));
                let decayed = before[p][i] * (1.0 - RATE * algorithm.decay());
                comparison.add(after[p][i], decayed - RATE * m / (v.sqrt() + 1e-8), 1.0);
            }
        }
    }
    Ok(Parity { losses: Some(losses), ..comparison.finish(bound)? })
}

/// Loss and gradients of a step, parameters in the order weight, bias of each layer.
fn plain(
    network: &Network,
    parameters: &[Vec<f64>],
    x: &Literal,
    y: &Literal,
) -> (f64, Vec<Vec<f64>>) {
    let (widths, batch) = (&network.widths, network.batch);
    let layers = widths.len() - 1;
    // The input of each layer: the network's input, then the relu of the layer before.
    let mut inputs: Vec<Vec<f64>> = vec![x.scalars().map(|s| s.to_f64()).collect()];
    let mut result = Vec::new();
    for layer in 0..layers {
        let (weight, bias) = (&parameters[2 * layer], &parameters[2 * layer + 1]);
        let (wide, out) = (widths[layer], widths[layer + 1]);
        result = (0..batch).flat_map(|_| bias.iter().copied()).collect::<Vec<f64>>();
        for row in 0..batch {
            for k in 0..wide {
                let value = inputs[layer][row * wide + k];
                for n in 0..out {
                    result[row * out + n] += value * weight[k * out + n];
                }
            }
        }
        if layer + 1 < layers {
            inputs.push(result.iter().map(|v| v.max(0.0)).collect());
        }
    }
    let classes = widths[layers];
    let mut loss = 0.0;
    let mut cotangent = vec![0.0; batch * classes];
    for row in 0..batch {
        let logits = &result[row * classes..(row + 1) * classes];
        let label = y.get(row).to_f64() as usize;
        let sum: f64 = logits.iter().map(|v| v.exp()).sum();
        loss += (sum.ln() - logits[label]) / batch as f64;
        for class in 0..classes {
            let hit = f64::from(u8::from(class == label));
            cotangent[row * classes + class] = (logits[class].exp() / sum - hit) / batch as f64;
        }
    }
    let mut gradients = vec![Vec::new(); 2 * layers];
    for layer in (0..layers).rev() {
        let (wide, out) = (widths[layer], widths[layer + 1]);
        let (mut weight, mut bias) = (vec![0.0; wide * out], vec![0.0; out]);
        let mut next = vec![0.0; batch * wide];
        for row in 0..batch {
            let cotangent = &cotangent[row * out..(row + 1) * out];
            for (b, c) in bias.iter_mut().zip(cotangent) {
                *b += c;
            }
            for k in 0..wide {
                let value = inputs[layer][row * wide + k];
                let mut sum = 0.0;
                for n in 0..out {
                    weight[k * out + n] += value * cotangent[n];
                    sum += parameters[2 * layer][k * out + n] * cotangent[n];
                }
                next[row * wide + k] = if value > 0.0 { sum } else { 0.0 };
            }
        }
        gradients[2 * layer] = weight;
        gradients[2 * layer + 1] = bias;
        cotangent = next;
    }
    (loss, gradients)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::assert_gradient;

    #[test]
    fn steps_are_counted_by_hand() {
        let network = Network { widths: vec![64, 128, 10], batch: 64, algorithm: Algorithm::AdamW };
        let case = case(network);
        assert_eq!(case.id, "step mlp 64-128-10 adamw B64");
        // Forward 8192 + 1280, gradients of weights the same, of the hidden layer 1280.
        assert_eq!(case.work.flops, 2 * 64 * (2 * (8192 + 1280) + 1280));
        assert_eq!(case.work.elements, 8192 + 128 + 1280 + 10);
    }

    /// The plain gradient against differences of the plain loss.
    #[test]
    fn the_plain_step_is_right() {
        let network = Network { widths: vec![3, 4, 2], batch: 5, algorithm: Algorithm::Adam };
        let values = |name: &str, count: usize| -> Vec<f64> {
            let drawn = uniform(name, DType::F32, &[count], -1.0, 1.0).unwrap();
            drawn.scalars().map(|s| s.to_f64()).collect()
        };
        let parameters = vec![values("a", 12), values("b", 4), values("c", 8), values("d", 2)];
        let x = uniform("x", DType::F32, &[5, 3], 0.0, 1.0).unwrap();
        let y = labels("y", 5, 2).unwrap();
        assert_gradient(parameters, 1e-9, |parameters| plain(&network, parameters, &x, &y));
    }
}
