//! Decoding: a Llama's logits for one token at the end of a long sequence, with the keys and values
//! of earlier positions in caches that stay on the device.
//!
//! A step multiplies one row with every matrix, so it is bandwidth-bound: its time is at least that
//! of reading the parameters and the caches once. The reference is the bandwidth of a sum over an
//! array larger than the caches of a CPU. All positions but the last are filled. The step computes
//! the last one, so every run writes the same row of the caches and gives the same logits.

use super::{Case, Drawn, Float, Kind, Made, drawn, first, llama, program, read, read_of_memory};
use crate::data::{labels, uniform};
use crate::parity::{Comparison, Parity, digest};
use crate::record::Work;
use crate::resident::Resident;
use serde::{Deserialize, Serialize};
use wengert::models::{Llama, LlamaSettings};
use wengert::nn::with_dtype;
use wengert::{DType, Differentiable, Literal, Program, Result};

/// A Llama decoder and its caches. The last layer has a matrix of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decoder {
    /// Blocks.
    pub layers: usize,
    /// Elements of a token's vector.
    pub width: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub key_value_heads: usize,
    /// Elements of the hidden layer of a block's MLP.
    pub intermediate: usize,
    /// Size of the vocabulary.
    pub vocabulary: usize,
    /// Positions of the caches.
    pub positions: usize,
}

impl Decoder {
    fn settings(&self) -> LlamaSettings {
        let Decoder { layers, width, heads, key_value_heads, intermediate, vocabulary, positions } =
            *self;
        LlamaSettings {
            vocabulary,
            width,
            layers,
            heads,
            key_value_heads,
            intermediate,
            positions,
            ..LlamaSettings::LLAMA_2_7B
        }
    }

    /// Elements of a position's keys in one layer.
    pub(super) fn key_width(&self) -> usize {
        self.key_value_heads * (self.width / self.heads)
    }

    /// All parameters: names, shapes, and bounds of their initial values, like
    /// [`Transformer::parameters`](super::Transformer::parameters).
    pub fn parameters(&self) -> Vec<Drawn> {
        let Decoder { layers, width, intermediate, vocabulary, .. } = *self;
        let even = 0.02 * 3f64.sqrt();
        let matrix = |name: String, shape: [usize; 2]| (name, shape.to_vec(), [-even, even]);
        let norm = |name: String| (name, vec![width], [0.9, 1.1]);
        let keys = [width, self.key_width()];
        let mut found = vec![matrix("model.embed_tokens.weight".into(), [vocabulary, width])];
        for layer in 0..layers {
            let at = |part: &str| format!("model.layers.{layer}.{part}.weight");
            found.push(matrix(at("self_attn.q_proj"), [width, width]));
            found.push(matrix(at("self_attn.k_proj"), keys));
            found.push(matrix(at("self_attn.v_proj"), keys));
            found.push(matrix(at("self_attn.o_proj"), [width, width]));
            found.push(matrix(at("mlp.gate_proj"), [width, intermediate]));
            found.push(matrix(at("mlp.up_proj"), [width, intermediate]));
            found.push(matrix(at("mlp.down_proj"), [intermediate, width]));
            found.push(norm(at("input_layernorm")));
            found.push(norm(at("post_attention_layernorm")));
        }
        found.push(norm("model.norm.weight".into()));
        found.push(matrix("lm_head.weight".into(), [width, vocabulary]));
        found
    }

    /// Names of the caches' variables: keys, then values of each layer.
    fn caches(&self) -> impl Iterator<Item = [String; 2]> {
        (0..self.layers).map(|layer| ["keys", "values"].map(|of| format!("caches.{layer}.{of}")))
    }

    fn program(&self, dtype: DType) -> Result<Program> {
        program(|f| {
            let model = with_dtype(&Llama::new(&self.settings()), dtype);
            let caches = f.state("caches", model.first_caches(1));
            let model = f.param("model", model);
            let token = read(f, "token", DType::I32, &[1, 1]);
            let position = read(f, "position", DType::I32, &[]);
            let (logits, caches) = model.call_cached(&token, &caches, &position);
            for (path, tensor) in caches.tensors() {
                f.update(&format!("caches.{path}"), &tensor);
            }
            f.create("y", &logits);
        })
    }
}

pub(super) fn cases(small: bool) -> Vec<Case> {
    let tiny = Decoder {
        layers: 2,
        width: 16,
        heads: 4,
        key_value_heads: 2,
        intermediate: 20,
        vocabulary: 11,
        positions: 5,
    };
    // 10 and 102 million parameters.
    let ten = Decoder {
        layers: 8,
        width: 256,
        heads: 8,
        key_value_heads: 2,
        intermediate: 768,
        vocabulary: 8192,
        positions: 512,
    };
    let hundred = Decoder {
        layers: 12,
        width: 768,
        heads: 12,
        key_value_heads: 4,
        intermediate: 2560,
        ..ten
    };
    let networks = match small {
        true => vec![tiny, Decoder { key_value_heads: 1, positions: 12, ..tiny }],
        false => [512, 128, 2048, 8192]
            .map(|positions| Decoder { positions, ..ten })
            .into_iter()
            .chain([hundred])
            .collect(),
    };
    let of = |network: &Decoder| Float::ALL.map(|dtype| case(dtype, *network, small));
    networks.iter().flat_map(of).collect()
}

/// The work: each matrix, each norm's weights and the token's row of the embedding are read once;
/// so are the caches, whose last position is written instead; the logits are written. There are two
/// operations for each element of a matrix, and 4·width per layer and position for attention.
fn case(dtype: Float, network: Decoder, small: bool) -> Case {
    let Decoder { layers, width, heads, key_value_heads, intermediate, vocabulary, positions } =
        network;
    let keys = network.key_width();
    let matrices = layers * (2 * width * width + 2 * width * keys + 3 * width * intermediate)
        + width * vocabulary;
    let vectors = (2 * layers + 1) * width + width + vocabulary;
    let caches = 2 * layers * positions * keys;
    Case {
        id: format!(
            "decode llama {} L{layers} C{width} H{heads}-{key_value_heads} V{vocabulary} \
             S{positions}",
            dtype.name()
        ),
        group: format!("decoding C{width}"),
        kind: Kind::Decoding { network },
        dtype,
        work: Work {
            elements: network.settings().parameters() as u64,
            bytes: dtype.bytes() * (matrices + vectors + caches) as u64,
            flops: (2 * matrices + 4 * layers * width * positions) as u64,
        },
        reference: Some(read_of_memory(small)),
    }
}

pub(super) fn make(dtype: DType, network: &Decoder) -> Result<Made> {
    let token = labels("token", 1, network.vocabulary)?.get(0).to_f64() as i32;
    let mut variables = vec![
        ("token".to_owned(), Literal::from_vec(&[1, 1], vec![token])?),
        ("position".to_owned(), Literal::from(network.positions as i32 - 1)),
    ];
    let heads = network.key_value_heads;
    let shape = [1, network.positions, heads, network.key_width() / heads];
    for name in network.caches().flatten() {
        let value = uniform(&name, dtype, &shape, -1.0, 1.0)?;
        variables.push((name, value));
    }
    let parameters = drawn(network.parameters())?;
    variables.extend(parameters.into_iter().map(|(name, value)| (name, value.convert(dtype))));
    Ok(Made { program: network.program(dtype)?, variables, init: None, check })
}

/// Compares the logits, and the row that was written into each cache. Deviations are relative to
/// the greatest element of the logits or of the row.
fn check(resident: &mut Resident, case: &Case, variables: &[(String, Literal)]) -> Result<Parity> {
    resident.run()?;
    resident.finish()?;
    let Kind::Decoding { network } = &case.kind else {
        unreachable!("this is the check of decoding")
    };
    let numbers =
        |literal: &Literal| -> Vec<f64> { literal.scalars().map(|s| s.to_f64()).collect() };
    let before = |name: &str| numbers(first(variables, name));
    let parameters: Vec<Vec<f64>> =
        network.parameters().iter().map(|(name, ..)| before(&format!("model.{name}"))).collect();
    let caches = network.caches().map(|names| names.map(|name| before(&name))).collect();
    let token = first(variables, "token").get(0).to_f64() as usize;
    let (expected, rows) = llama::decode(network, &parameters, caches, token);
    let mut comparison = Comparison::default();
    let mut compare = |found: &[f64], expected: &[f64]| {
        let greatest = expected.iter().fold(0.0f64, |a, v| a.max(v.abs()));
        let pairs = found.iter().zip(expected);
        pairs.for_each(|(found, expected)| comparison.add(*found, *expected, greatest));
    };
    let found = numbers(&resident.variable("y")?);
    compare(&found, &expected);
    for (names, rows) in network.caches().zip(&rows) {
        for (name, row) in names.iter().zip(rows) {
            let after = numbers(&resident.variable(name)?);
            compare(&after[after.len() - row.len()..], row);
        }
    }
    // Contenders round bf16 at other places, so their digests differ.
    let losses = (case.dtype == Float::F32).then(|| digest(&found));
    Ok(Parity { losses, ..comparison.finish(case.dtype.bound())? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_by_hand() {
        let cases = cases(false);
        let find = |id: &str| cases.iter().find(|case| case.id == id).expect("a case").work;
        let ten = find("decode llama f32 L8 C256 H8-2 V8192 S512");
        // A layer has 2·256² + 2·256·64 + 3·256·768 = 753,664 elements in matrices.
        let matrices = 8 * 753_664 + 256 * 8192;
        assert_eq!(ten.elements, matrices + 17 * 256 + 256 * 8192);
        assert_eq!(ten.bytes, 4 * (matrices + 18 * 256 + 8192 + 2 * 8 * 512 * 64));
        assert_eq!(ten.flops, 2 * matrices + 4 * 8 * 256 * 512);
        assert!((9_500_000..=10_500_000).contains(&ten.elements));
        let half = find("decode llama bf16 L8 C256 H8-2 V8192 S512");
        assert_eq!((2 * half.bytes, half.flops), (ten.bytes, ten.flops));
        let hundred = find("decode llama f32 L12 C768 H12-4 V8192 S512");
        assert_eq!(hundred.elements, 102_255_360);
    }

    /// The drawn parameters and caches are exactly the program's.
    #[test]
    fn variables_are_the_networks() {
        for case in cases(true) {
            let Kind::Decoding { network } = case.kind else { panic!("decoding") };
            let drawn: usize = network
                .parameters()
                .iter()
                .map(|(_, shape, _)| shape.iter().product::<usize>())
                .sum();
            assert_eq!(drawn as u64, case.work.elements, "{}", case.id);
            let made = make(case.dtype.dtype(), &network).unwrap();
            let function = made.program.get(crate::resident::FUNCTION).unwrap();
            for (i, input) in function.inputs.iter().enumerate() {
                assert_eq!(first(&made.variables, &input.name).ty(), *function.input_type(i));
            }
            assert_eq!(made.variables.len(), function.inputs.len());
        }
    }
}
