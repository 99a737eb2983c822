//! Composites along one axis, and attention.

use super::prelude::*;
use wengert_core::op::{
    Attention, AttentionKind, Normalize, NormalizeKind, Softmax, SoftmaxCrossEntropy, SoftmaxKind,
};

pub(super) fn samples() -> Vec<Sample> {
    [softmax(), normalize(), softmax_cross_entropy(), attentions()].concat()
}

fn softmax() -> Vec<Sample> {
    let of = |kind: SoftmaxKind| -> Vec<Sample> {
        let sample = |axis, operand| Sample::new(Softmax { kind, axis }, vec![operand]);
        vec![
            sample(1, floats(&[3, 5], -2.0, 2.0)),
            sample(0, floats(&[4, 3], -40.0, 40.0)),
            sample(1, floats(&[2, 5, 2], -1.0, 1.0)),
            sample(0, values(&[4], [1000.0f32, -1000.0, f32::NEG_INFINITY, 999.0])),
        ]
    };
    SoftmaxKind::ALL.into_iter().flat_map(of).collect()
}

fn normalize() -> Vec<Sample> {
    let of = |kind: NormalizeKind| -> Vec<Sample> {
        let sample = |axis, epsilon: f64, operand| {
            Sample::new(Normalize { kind, axis, epsilon: Scalar::of(epsilon) }, vec![operand])
        };
        vec![
            sample(1, 1e-5, floats(&[3, 5], -2.0, 2.0)),
            sample(0, 0.0, floats(&[4, 3], 1.0, 5.0)),
            sample(1, 0.5, floats(&[2, 7, 2], -1.0, 1.0)),
            sample(0, 1e-3, values(&[4], [1000.0f32, -1000.0, 0.0, 999.0])),
            sample(1, 1e-3, values(&[2, 3], [0.0f32, 0.0, 0.0, 2.0, 2.0, 2.0])),
        ]
    };
    NormalizeKind::ALL.into_iter().flat_map(of).collect()
}

fn softmax_cross_entropy() -> Vec<Sample> {
    let sample = |logits: &[usize], labels| {
        Sample::new(SoftmaxCrossEntropy {}, vec![floats(logits, -3.0, 3.0), labels])
    };
    vec![
        sample(&[4, 5], values(&[4], [0i32, 4, 2, 2])),
        sample(&[2, 3, 4], values(&[2, 3], [0i64, 1, 2, 3, 0, 3])),
        sample(&[7], values(&[], [6u8])),
        Sample::new(
            SoftmaxCrossEntropy {},
            vec![
                values(&[2, 3], [500.0f32, -500.0, 0.0, f32::NEG_INFINITY, 1.0, 2.0]),
                values(&[2], [1u32, 2]),
            ],
        ),
    ]
}

fn attentions() -> Vec<Sample> {
    AttentionKind::ALL.into_iter().flat_map(attention).collect()
}

fn attention(kind: AttentionKind) -> Vec<Sample> {
    let attention = |causal, scale: f64| Attention {
        kind,
        causal,
        bias: false,
        prefix: false,
        scale: Scalar::of(scale),
    };
    let some = |shape: &[usize]| floats(shape, -1.0, 1.0);
    let rest = |out: &[usize], logarithm: &[usize], tangents: Vec<SampleOperand>| match kind {
        AttentionKind::Value => vec![],
        AttentionKind::Jvp => {
            [vec![some(out), wide_floats(logarithm, 0.5, 1.5)], tangents].concat()
        }
        AttentionKind::Vjp => {
            vec![wide_floats(logarithm, 0.5, 1.5), some(out), wide_floats(logarithm, -1.0, 1.0)]
        }
    };
    let apart = |causal, scale, [b, t, s, n, h]: [usize; 5]| {
        let (q, k) = ([b, t, n, h], [b, s, n, h]);
        let three = vec![some(&q), some(&k), some(&k)];
        let rest = rest(&q, &[b, n, t], three.clone());
        Sample::new(attention(causal, scale), [three, rest].concat())
    };
    // Heads of queries in groups of two, each of which shares a head of keys and values.
    let grouped = |causal, scale, [b, t, s, n, h]: [usize; 5]| {
        let (q, k) = ([b, t, 2 * n, h], [b, s, n, h]);
        let three = vec![some(&q), some(&k), some(&k)];
        let rest = rest(&q, &[b, 2 * n, t], three.clone());
        Sample::new(attention(causal, scale), [three, rest].concat())
    };
    let packed = |causal, scale, [b, t, n, h]: [usize; 4]| {
        let one = vec![some(&[b, t, 3, n, h])];
        let rest = rest(&[b, t, n, h], &[b, n, t], one.clone());
        Sample::new(attention(causal, scale), [one, rest].concat())
    };
    let biased = |op: Sample, at: usize, shape: [usize; 4]| {
        let bias = || wide_floats(&shape, -1.0, 1.0);
        let mut operands = op.operands;
        operands.insert(at, bias());
        if kind == AttentionKind::Jvp {
            operands.push(bias());
        }
        let attention = |causal| Attention { bias: true, ..attention(causal, 0.8) };
        Sample::new(attention(at == 1), operands)
    };
    // The prefixes are operand `at`. Each query sees a key.
    let prefixed = |sample: Sample, at: usize, prefixes: &[i32]| {
        let Op::Attention(op) = sample.op else { unreachable!("all are attentions") };
        let mut operands = sample.operands;
        let shape = [prefixes.len()];
        let prefixes = Literal::from_vec(&shape, prefixes.to_vec()).expect("a vector");
        operands.insert(at, SampleOperand::Values(prefixes));
        Sample::new(Attention { prefix: true, ..op }, operands)
    };
    let mut samples = vec![
        apart(false, 0.5, [2, 3, 4, 2, 3]),
        apart(true, 1.5, [1, 4, 4, 1, 2]),
        apart(true, -0.5, [1, 2, 3, 2, 1]),
        packed(true, 0.7, [2, 3, 2, 2]),
        packed(false, 1.0, [1, 2, 1, 3]),
        biased(apart(false, 0.8, [2, 3, 2, 2, 2]), 3, [2, 1, 1, 2]),
        biased(apart(false, 0.8, [1, 2, 3, 2, 2]), 3, [1, 2, 2, 3]),
        biased(packed(true, 0.8, [2, 2, 2, 2]), 1, [1, 2, 2, 2]),
        biased(apart(false, 0.8, [2, 2, 2, 1, 2]), 3, [2, 1, 2, 1]),
        grouped(true, 0.6, [2, 3, 3, 2, 2]),
        biased(grouped(false, 0.8, [1, 2, 3, 1, 3]), 3, [1, 2, 1, 3]),
        prefixed(apart(false, 0.5, [2, 2, 4, 2, 3]), 3, &[3, 1]),
        prefixed(grouped(true, 0.6, [2, 2, 4, 1, 2]), 3, &[1, 9]),
        prefixed(packed(false, 0.7, [2, 3, 1, 2]), 1, &[3, 2]),
    ];
    // Tests of all choices of operands would take long for the tangents of such an attention.
    if kind != AttentionKind::Jvp {
        let sample = biased(apart(false, 0.8, [2, 2, 3, 2, 2]), 3, [2, 1, 1, 3]);
        samples.push(prefixed(sample, 4, &[2, 3]));
    }
    samples
}
