//! Training steps of a GPT-2 network: [`Gpt`], its mean cross-entropy, [`AdamW`] with default
//! settings.
//!
//! All contenders have the same initial values: `data.rs` draws them within the bounds of
//! [`Transformer::parameters`]. The losses of the first [`STEPS`] steps are therefore the same for
//! all, up to rounding; [`harness`](crate::harness) compares them.
//!
//! A small network is compared with a plain step in f64, element by element. For a large network
//! the plain gradients would take minutes, so only the first loss is compared with the plain step;
//! the other losses are compared between contenders.

use super::{Case, Drawn, Float, Kind, Made, drawn, first, gpt, program, read};
use crate::data::labels;
use crate::parity::{Comparison, Parity, STEPS};
use crate::record::Work;
use crate::resident::Resident;
use serde::{Deserialize, Serialize};
use wengert::models::{Gpt, GptSettings};
use wengert::prelude::{AdamW, value_and_grad};
use wengert::{DType, Literal, Program, Result};

/// A network and the sizes of its batch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transformer {
    /// Blocks.
    pub layers: usize,
    /// Elements of a token's vector.
    pub width: usize,
    /// Heads of attention.
    pub heads: usize,
    /// Size of the vocabulary.
    pub vocabulary: usize,
    /// Sequences of a step.
    pub batch: usize,
    /// Tokens of a sequence, and number of positions.
    pub steps: usize,
}

const RATE: f64 = 1e-3;
const DECAY: f64 = 0.01;
const BETAS: [f64; 2] = [0.9, 0.999];

/// Most parameters of a network that is compared with a plain step element by element.
const SMALL: u64 = 1 << 20;

impl Transformer {
    /// All parameters: names, shapes, and bounds of their initial values. Weights have the
    /// standard deviation of GPT-2's. Norms and biases begin with values other than ones and
    /// zeros, so that a forgotten one is detected.
    pub fn parameters(&self) -> Vec<Drawn> {
        let Transformer { layers, width: c, vocabulary, steps, .. } = *self;
        let even = 0.02 * 3f64.sqrt();
        let added = even / ((2 * layers) as f64).sqrt();
        let mut found: Vec<Drawn> = Vec::new();
        let mut put = |name: String, shape: &[usize], low, high| {
            found.push((name, shape.into(), [low, high]))
        };
        put("wte.weight".into(), &[vocabulary, c], -even, even);
        put("wpe.weight".into(), &[steps, c], -even, even);
        let mut pair = |name: String, shape: &[usize], [low, high]: [f64; 2]| {
            put(format!("{name}.weight"), shape, low, high);
            put(format!("{name}.bias"), &shape[shape.len() - 1..], -0.02, 0.02);
        };
        for layer in 0..layers {
            let at = |part| format!("h.{layer}.{part}");
            pair(at("ln_1"), &[c], [0.9, 1.1]);
            pair(at("attn.c_attn"), &[c, 3 * c], [-even, even]);
            pair(at("attn.c_proj"), &[c, c], [-added, added]);
            pair(at("ln_2"), &[c], [0.9, 1.1]);
            pair(at("mlp.c_fc"), &[c, 4 * c], [-even, even]);
            pair(at("mlp.c_proj"), &[4 * c, c], [-added, added]);
        }
        pair("ln_f".into(), &[c], [0.9, 1.1]);
        found
    }

    pub(super) fn settings(&self) -> GptSettings {
        let Transformer { layers, width, heads, vocabulary, steps, .. } = *self;
        GptSettings { vocabulary, positions: steps, width, heads, layers }
    }

    fn program(&self) -> Result<Program> {
        let tokens = [self.batch, self.steps];
        program(|f| {
            let x = read(f, "x", DType::I32, &tokens);
            let y = read(f, "y", DType::I32, &tokens);
            let model = f.state("model", Gpt::new(&self.settings()));
            let (loss, gradient) = value_and_grad(&model, |m| m.loss(&x, &y));
            AdamW::new(RATE).step(f, &model, &gradient);
            f.create("loss", &loss);
        })
    }

    /// Tokens `x`, and the next tokens `y`.
    pub(super) fn tokens(&self) -> Result<Vec<(String, Literal)>> {
        let of = |name: &str| {
            let drawn = labels(name, self.batch * self.steps, self.vocabulary)?;
            let drawn = drawn.scalars().map(|s| s.to_f64() as i32).collect();
            Ok((name.to_owned(), Literal::from_vec(&[self.batch, self.steps], drawn)?))
        };
        ["x", "y"].map(of).into_iter().collect()
    }
}

pub(super) fn cases(small: bool) -> Vec<Case> {
    let tiny = Transformer { layers: 2, width: 12, heads: 3, vocabulary: 11, batch: 2, steps: 5 };
    let c3 =
        Transformer { layers: 6, width: 384, heads: 6, vocabulary: 4096, batch: 8, steps: 128 };
    let c4 =
        Transformer { layers: 12, width: 768, heads: 12, vocabulary: 50257, batch: 2, steps: 128 };
    let networks = if small { vec![tiny] } else { vec![c3, c4] };
    networks.into_iter().map(case).collect()
}

/// The case whose memory is compared: GPT-2 with 124 million parameters, on more and longer
/// sequences than in the timed case.
pub(super) fn case_of_memory(small: bool) -> Case {
    let Some(Case { kind: Kind::Transformer { network }, .. }) = cases(small).pop() else {
        unreachable!("cases of transformers are transformers")
    };
    case(if small { network } else { Transformer { batch: 8, steps: 256, ..network } })
}

/// The work of a step: 6 operations per token for each element of the matrices that tokens are
/// multiplied with (12·width² per block, vocabulary·width after the last; two operations forward,
/// four backward), and 12·layers·width·steps per token for attention. This is the usual count,
/// although half of attention is masked. Parameters and two moments are read and written, tokens
/// are read.
fn case(network: Transformer) -> Case {
    let Transformer { layers, width, heads, vocabulary, batch, steps } = network;
    let [l, c, v, b, t] = [layers, width, vocabulary, batch, steps].map(|n| n as u64);
    let parameters = network.settings().parameters() as u64;
    Case {
        id: format!("step gpt L{layers} C{width} H{heads} V{vocabulary} B{batch} T{steps}"),
        // Each size has its own group: two sets of states at a time exceed the memory of many
        // machines.
        group: format!("gpt L{layers} C{width}"),
        dtype: Float::F32,
        work: Work {
            elements: parameters,
            bytes: 24 * parameters + 8 * b * t,
            flops: b * t * (6 * (12 * l * c * c + v * c) + 12 * l * c * t),
        },
        reference: None,
        kind: Kind::Transformer { network },
    }
}

pub(super) fn make(network: &Transformer) -> Result<Made> {
    let mut variables = network.tokens()?;
    variables.extend(drawn(network.parameters())?);
    Ok(Made { program: network.program()?, variables, init: Some(1), check })
}

/// The same, with the program's own initial values.
pub(super) fn make_fresh(network: &Transformer) -> Result<Made> {
    Ok(Made { program: network.program()?, variables: network.tokens()?, init: Some(1), check })
}

fn check(resident: &mut Resident, case: &Case, variables: &[(String, Literal)]) -> Result<Parity> {
    let Kind::Transformer { network } = &case.kind else {
        unreachable!("this is the check of transformers")
    };
    let values =
        |literal: &Literal| -> Vec<f64> { literal.scalars().map(|s| s.to_f64()).collect() };
    let tokens = |name| -> Vec<usize> {
        values(first(variables, name)).iter().map(|v| *v as usize).collect()
    };
    let (x, y) = (tokens("x"), tokens("y"));
    let names: Vec<String> =
        network.parameters().into_iter().map(|(name, ..)| format!("model.{name}")).collect();
    let mut parameters: Vec<Vec<f64>> =
        names.iter().map(|name| values(first(variables, name))).collect();
    let is_small = case.work.elements <= SMALL;
    let mut moments: [Vec<Vec<f64>>; 2] = [vec![], vec![]];
    if is_small {
        moments = [(); 2].map(|()| parameters.iter().map(|p| vec![0.0; p.len()]).collect());
    }
    let (mut comparison, mut losses) = (Comparison::default(), [0.0; STEPS]);
    for (step, loss) in losses.iter_mut().enumerate() {
        resident.run()?;
        resident.finish()?;
        *loss = resident.variable("loss")?.get(0).to_f64();
        if step > 0 && !is_small {
            continue;
        }
        let (expected, trace) = gpt::forward(network, &parameters, &x, &y);
        comparison.add(*loss, expected, expected);
        if !is_small {
            continue;
        }
        let gradients = gpt::backward(network, &parameters, &x, &trace);
        let corrections = BETAS.map(|beta| 1.0 - beta.powi(step as i32 + 1));
        for (p, name) in names.iter().enumerate() {
            let found = |prefix: &str| {
                Ok::<_, wengert::Diagnostic>(values(
                    &resident.variable(&format!("{prefix}{name}"))?,
                ))
            };
            let [found_m, found_v, after] = [found("adamw.m.")?, found("adamw.v.")?, found("")?];
            let largest = gradients[p].iter().fold(0.0f64, |a, g| a.max(g.abs()));
            for (i, g) in gradients[p].iter().enumerate() {
                let [m, v] = [&moments[0][p][i], &moments[1][p][i]];
                // Deviations of gradients are relative to the array's largest element.
                comparison.add(found_m[i], BETAS[0] * m + (1.0 - BETAS[0]) * g, largest);
                comparison.add(
                    found_v[i],
                    BETAS[1] * v + (1.0 - BETAS[1]) * g * g,
                    largest * largest,
                );
                let direction =
                    found_m[i] / corrections[0] / ((found_v[i] / corrections[1]).sqrt() + 1e-8);
                let moved = parameters[p][i] * (1.0 - RATE * DECAY) - RATE * direction;
                comparison.add(after[i], moved, 1.0);
            }
            // The next step starts from the device's values: the update divides by moments, which
            // amplifies rounding.
            (parameters[p], moments[0][p], moments[1][p]) = (after, found_m, found_v);
        }
    }
    Ok(Parity { losses: Some(losses), ..comparison.finish(case.dtype.bound())? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_by_hand() {
        let [c3, c4] = &cases(false)[..] else { panic!("two networks") };
        assert_eq!(c3.id, "step gpt L6 C384 H6 V4096 B8 T128");
        // Blocks of 1,774,464 elements and 768 of the last norm; matrices of 1,769,472 and
        // 1,572,864.
        assert_eq!(c3.work.elements, (4096 + 128) * 384 + 6 * 1_774_464 + 768);
        assert_eq!(c3.work.flops, 1024 * (6 * (6 * 1_769_472 + 1_572_864) + 12 * 6 * 384 * 128));
        // 128 of 1024 positions: 124,439,808 less 896·768.
        assert_eq!(c4.work.elements, 124_439_808 - 896 * 768);
        assert_eq!(c4.work.bytes, 24 * c4.work.elements + 8 * 256);
    }

    /// The drawn parameters are exactly the program's.
    #[test]
    fn parameters_are_the_networks() {
        let Kind::Transformer { network } = cases(true).remove(0).kind else {
            panic!("a transformer")
        };
        let count: usize =
            network.parameters().iter().map(|(_, shape, _)| shape.iter().product::<usize>()).sum();
        assert_eq!(count, network.settings().parameters());
        let made = make(&network).unwrap();
        let fresh = make_fresh(&network).unwrap();
        assert_eq!((made.variables.len(), fresh.variables.len()), (2 + 2 + 24 + 2, 2));
    }
}
