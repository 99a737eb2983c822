//! Random smooth functions of tensors of one type, for derivatives.

use crate::Random;
use wengert_core::op::{Concatenate, DotGeneral, Pad, Reduce, ReduceKind, Slice, Unary};
use wengert_core::{DType, Dim, Literal, Scalar, Tensor, TensorType};

/// The type of all values of a random program.
pub fn ty() -> TensorType {
    TensorType::new(DType::F64, [2usize, 3])
}

/// A program from some values of type [`ty`] to one more. It consists of polynomial and rational
/// operations and of ops that move elements; with `smooth` also of transcendental functions.
///
/// The same seed gives the same program each time it is called.
pub fn random(seed: u64, length: usize, smooth: bool) -> impl Fn(&[Tensor]) -> Tensor {
    move |inputs: &[Tensor]| {
        let mut random = Random(seed);
        let mut values = inputs.to_vec();
        for _ in 0..length {
            // Recent values are chosen more often, so that programs are deep as well as wide.
            let pick = |random: &mut Random, values: &[Tensor]| {
                let back = random.below(values.len()).min(random.below(values.len()));
                values[values.len() - 1 - back].clone()
            };
            let x = pick(&mut random, &values);
            let y = pick(&mut random, &values);
            values.push(step(&mut random, smooth, &x, &y));
        }
        values.pop().expect("there is at least one input")
    }
}

fn step(random: &mut Random, smooth: bool, x: &Tensor, y: &Tensor) -> Tensor {
    let dims = |v: [i64; 2]| v.map(Dim::constant).to_vec();
    match random.below(if smooth { 15 } else { 12 }) {
        0 | 1 => x + y,
        2 => x - y,
        3 => x * y,
        // The denominator is at least 1.
        4 => x / (1.0 + y * y),
        5 => -x,
        6 => x * 0.5 + 1.0,
        7 => x.permute(&[1, 0]).reshape([2usize, 3]),
        8 => {
            let zero = Tensor::constant(Literal::full(&[], Scalar::from_f64(DType::F64, 0.5)));
            let pad = Pad { low: dims([0, 1]), high: dims([1, 0]), interior: vec![] };
            let padded = Tensor::apply(pad, &[x, &zero]);
            Tensor::apply(
                Slice { start: dims([1, 0]), limit: dims([3, 3]), stride: vec![] },
                &[&padded],
            )
        }
        9 => {
            let both = Tensor::apply(Concatenate { axis: 0 }, &[x, y]);
            Tensor::apply(
                Slice { start: dims([0, 0]), limit: dims([4, 3]), stride: vec![3, 1] },
                &[&both],
            )
        }
        10 => {
            let sums = Tensor::apply(Reduce::new(ReduceKind::Sum, [1]), &[x]);
            sums.broadcast_in_dim(ty().shape, &[0]) * y
        }
        11 => {
            // [2,3] · [3,2] · [2,3]
            let square = Tensor::apply(DotGeneral::matmul(2), &[x, &y.permute(&[1, 0])]);
            Tensor::apply(DotGeneral::matmul(2), &[&square, &(x * 0.25)])
        }
        12 => x.unary(Unary::Tanh),
        13 => (x.unary(Unary::Tanh) * 0.5).unary(Unary::Exp),
        _ => (x * x + 1.0).unary(Unary::Log),
    }
}
