//! Reductions along axes, running ones too.

use super::prelude::*;
use wengert_core::op::{
    Argument, Cumulative, CumulativeKind, Extremum, Reduce, ReduceKind, ReduceWith,
};

pub(super) fn samples() -> Vec<Sample> {
    [reductions(), reduce_with(), arguments(), cumulative()].concat()
}

fn reductions() -> Vec<Sample> {
    let of = |kind: ReduceKind| -> Vec<Sample> {
        let operand = |shape: &[usize]| match kind {
            ReduceKind::And | ReduceKind::Or | ReduceKind::Xor => SampleOperand::Values(
                Literal::from_vec(
                    shape,
                    (0..shape.iter().product::<usize>() as i32).map(|i| (i * 7) ^ 5).collect(),
                )
                .expect("as many elements as the shape says"),
            ),
            _ => floats(shape, 0.5, 2.0),
        };
        let sample = |axes: &[usize], shape: &[usize]| {
            Sample::new(Reduce { kind, axes: axes.to_vec() }, vec![operand(shape)])
        };
        vec![
            sample(&[1], &[3, 5]),
            sample(&[0], &[3, 5]),
            sample(&[0, 2], &[2, 3, 4]),
            sample(&[0, 1], &[5, 37]),
        ]
    };
    ReduceKind::ALL.into_iter().flat_map(of).collect()
}

fn reduce_with() -> Vec<Sample> {
    let op = |axes: &[usize], init: Vec<Scalar>| ReduceWith { axes: axes.to_vec(), init };
    // a + b + a·b = (1 + a)(1 + b) − 1
    let compound: RegionRule =
        |types| vec![region(&twice(types), |x| vec![&x[0] + &x[1] + &x[0] * &x[1]])];
    // Products of numbers a + b·ε with ε² = −1/2: scaled complex numbers.
    let complex: RegionRule = |types| {
        vec![region(&twice(types), |x| {
            let (a, b, c, d) = (&x[0], &x[1], &x[2], &x[3]);
            vec![a * c - (b * d) * 0.5, a * d + b * c]
        })]
    };
    // The pair with the greater first component; of equals the lower label.
    let labelled: RegionRule = |types| {
        vec![region(&twice(types), |x| {
            let (a, i, b, j) = (&x[0], &x[1], &x[2], &x[3]);
            let wins = a.gt(b).or(a.eq(b).and(i.lt(j)));
            vec![wins.select(a, b), wins.select(i, j)]
        })]
    };
    let bits: RegionRule = |types| vec![region(&twice(types), |x| vec![x[0].xor(&x[1])])];
    let mut samples = Vec::new();
    for d in DType::ALL.into_iter().filter(|d| d.is_float()) {
        let given = |shape: &[usize], seed| {
            SampleOperand::Values(floats(shape, 0.25, 1.0).literal(d, seed))
        };
        let number = |v| Scalar::from_f64(d, v);
        let add = |axes: &[usize], shape: &[usize]| {
            Sample::with_regions(op(axes, vec![number(0.0)]), vec![given(shape, 1)], compound)
        };
        samples.push(add(&[1], &[3, 5]));
        samples.push(add(&[0, 2], &[2, 3, 3]));
        samples.push(add(&[0], &[1, 2]));
        let pair = |axes: &[usize], shape: &[usize]| {
            Sample::with_regions(
                op(axes, vec![number(1.0), number(0.0)]),
                vec![given(shape, 2), given(shape, 3)],
                complex,
            )
        };
        samples.push(pair(&[0], &[5]));
        if !d.is_half() {
            samples.push(pair(&[1], &[2, 18]));
        }
        let labels =
            Literal::from_vec(&[2, 4], vec![3i32, 1, 0, 2, 5, 6, 7, 4]).expect("eight labels");
        samples.push(Sample::with_regions(
            op(&[1], vec![number(f64::NEG_INFINITY), Scalar::of(i32::MAX)]),
            vec![given(&[2, 4], 4), SampleOperand::Values(labels)],
            labelled,
        ));
    }
    samples.push(Sample::with_regions(
        op(&[0], vec![Scalar::of(0u32)]),
        vec![values(&[5, 2], [3u32, 5, 1 << 31, 7, 9, 9, 1, 0, 77, u32::MAX])],
        bits,
    ));
    samples.push(Sample::with_regions(
        op(&[0], vec![Scalar::of(0i64)]),
        vec![values::<i64>(&[0, 2], [])],
        bits,
    ));
    samples
}

/// The inputs of a combiner for operands of these types.
fn twice(operands: &[TensorType]) -> Vec<TensorType> {
    operands.iter().chain(operands).map(|t| TensorType::scalar(t.dtype)).collect()
}

fn arguments() -> Vec<Sample> {
    let of = |extremum: Extremum| -> Vec<Sample> {
        let sample =
            |axis, index, operand| Sample::new(Argument { extremum, axis, index }, vec![operand]);
        let nan = f32::NAN;
        vec![
            sample(1, DType::I32, floats(&[3, 5], -2.0, 2.0)),
            sample(0, DType::I64, floats(&[37, 2], -2.0, 2.0)),
            sample(1, DType::U32, floats(&[2, 70, 2], -2.0, 2.0)),
            sample(0, DType::U64, values(&[6], [3i32, -5, 9, 9, -5, 3])),
            sample(0, DType::I32, values(&[4], [3u64, u64::MAX, 0, 0])),
            sample(0, DType::I32, values(&[6], [1.0f32, nan, 5.0, nan, -7.0, 2.0])),
            sample(
                1,
                DType::I32,
                values(&[2, 3], [f32::INFINITY, f32::INFINITY, 1.0, -f32::INFINITY, -1.0, 0.0]),
            ),
            sample(0, DType::I32, values(&[3], [f32::NEG_INFINITY; 3])),
            sample(0, DType::I32, values(&[2], [-0.0f32, 0.0])),
            sample(1, DType::I8, floats(&[2, 6], -2.0, 2.0)),
            sample(0, DType::U8, values(&[3], [3i8, 9, -9])),
            sample(1, DType::I32, values(&[2, 3], [false, true, true, true, false, false])),
            sample(0, DType::I32, floats(&[3, 0], -2.0, 2.0)),
        ]
    };
    Extremum::ALL.into_iter().flat_map(of).collect()
}

fn cumulative() -> Vec<Sample> {
    let of = |kind: CumulativeKind| -> Vec<Sample> {
        let sample =
            |axis, reverse, operand| Sample::new(Cumulative { kind, axis, reverse }, vec![operand]);
        [
            sample(1, false, floats(&[3, 5], 0.5, 2.0)),
            sample(0, false, floats(&[7, 2], -2.0, 2.0)),
            sample(1, true, floats(&[2, 6, 2], -1.5, 1.5)),
            sample(0, false, floats(&[1], 0.5, 2.0)),
            sample(0, true, values(&[5], [3i32, -7, 1 << 30, 9, -2])),
            sample(0, false, values(&[3], [3u64, u64::MAX, 5])),
            sample(0, false, values(&[6], [-1e30f32, -200.0, 1.5, 90.0, 300.0, 1.0])),
        ]
        .into_iter()
        .filter(|s| {
            let dtype = s.operands[0].literal(DType::F32, 0).dtype();
            dtype.is_float() || kind != CumulativeKind::LogSumExp
        })
        .collect()
    };
    CumulativeKind::ALL.into_iter().flat_map(of).collect()
}
