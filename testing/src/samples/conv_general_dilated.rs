//! Sample convolutions: every attribute alone and several together.

use super::prelude::*;
use wengert_core::op::ConvGeneralDilated;

fn padding(pairs: &[(i64, i64)]) -> Vec<(Dim, Dim)> {
    pairs.iter().map(|(l, h)| (Dim::constant(*l), Dim::constant(*h))).collect()
}

pub(super) fn samples() -> Vec<Sample> {
    let sample = |op: ConvGeneralDilated, x: &[usize], w: &[usize]| {
        Sample::new(op, vec![floats(x, -1.0, 1.0), floats(w, -1.0, 1.0)])
    };
    let to = |result, op: &ConvGeneralDilated, x: SampleOperand, w: SampleOperand| {
        Sample::new(ConvGeneralDilated { result: Some(result), ..op.clone() }, vec![x, w])
    };
    let (line, plane) = (ConvGeneralDilated::new(1), ConvGeneralDilated::new(2));
    let everything = ConvGeneralDilated {
        stride: vec![2, 3],
        padding: padding(&[(2, 1), (1, 3)]),
        lhs_dilation: vec![2, 1],
        rhs_dilation: vec![1, 2],
        ..plane.clone()
    };
    // NCHW, OIHW, NCHW.
    let channels_first = |op: ConvGeneralDilated| ConvGeneralDilated {
        lhs_spec: vec![0, 1, 2, 3],
        rhs_spec: vec![0, 1, 2, 3],
        out_spec: vec![0, 1, 2, 3],
        ..op
    };
    vec![
        sample(line.clone(), &[2, 7, 3], &[3, 3, 4]),
        sample(ConvGeneralDilated { stride: vec![2], ..line.clone() }, &[2, 8, 2], &[3, 2, 3]),
        sample(
            ConvGeneralDilated { padding: padding(&[(2, 1)]), ..line.clone() },
            &[1, 5, 2],
            &[3, 2, 2],
        ),
        sample(
            ConvGeneralDilated { padding: padding(&[(-1, -2)]), ..line.clone() },
            &[1, 8, 2],
            &[3, 2, 2],
        ),
        sample(
            ConvGeneralDilated {
                lhs_dilation: vec![3],
                padding: padding(&[(1, 2)]),
                ..line.clone()
            },
            &[2, 4, 2],
            &[4, 2, 2],
        ),
        sample(
            ConvGeneralDilated { rhs_dilation: vec![2], ..line.clone() },
            &[2, 9, 2],
            &[3, 2, 2],
        ),
        sample(
            ConvGeneralDilated { feature_group_count: Dim::constant(2), ..line.clone() },
            &[2, 5, 4],
            &[2, 2, 6],
        ),
        sample(
            ConvGeneralDilated { batch_group_count: Dim::constant(2), ..line.clone() },
            &[4, 5, 3],
            &[2, 3, 6],
        ),
        sample(plane.clone(), &[2, 5, 6, 3], &[3, 2, 3, 4]),
        sample(everything.clone(), &[2, 4, 9, 2], &[3, 2, 2, 3]),
        sample(
            channels_first(ConvGeneralDilated {
                feature_group_count: Dim::constant(2),
                ..everything.clone()
            }),
            &[2, 4, 4, 9],
            &[6, 2, 3, 2],
        ),
        sample(
            channels_first(ConvGeneralDilated {
                batch_group_count: Dim::constant(3),
                ..everything
            }),
            &[6, 2, 4, 9],
            &[3, 2, 3, 2],
        ),
        sample(
            ConvGeneralDilated {
                lhs_spec: vec![3, 0, 2, 1],
                rhs_spec: vec![1, 2, 0, 3],
                out_spec: vec![2, 3, 1, 0],
                ..plane.clone()
            },
            &[3, 5, 6, 2],
            &[3, 4, 3, 2],
        ),
        sample(
            ConvGeneralDilated { stride: vec![1, 2, 1], ..ConvGeneralDilated::new(3) },
            &[1, 3, 4, 3, 2],
            &[2, 2, 2, 2, 3],
        ),
        // Cotangents of filters with channels last.
        sample(
            ConvGeneralDilated {
                stride: vec![2],
                rhs_dilation: vec![2],
                padding: padding(&[(1, 1)]),
                batch_group_count: Dim::constant(2),
                lhs_spec: vec![2, 0, 1],
                rhs_spec: vec![2, 0, 1],
                out_spec: vec![1, 2, 0],
                ..line.clone()
            },
            &[2, 7, 4],
            &[2, 3, 6],
        ),
        sample(
            ConvGeneralDilated {
                lhs_dilation: vec![1, 2],
                padding: padding(&[(1, 0), (0, 2)]),
                lhs_spec: vec![3, 0, 1, 2],
                rhs_spec: vec![3, 0, 1, 2],
                out_spec: vec![2, 3, 0, 1],
                ..plane
            },
            &[3, 5, 4, 2],
            &[3, 4, 6, 5],
        ),
        // Layouts and groups of lines and volumes.
        sample(
            ConvGeneralDilated {
                lhs_spec: vec![0, 1, 2],
                rhs_spec: vec![0, 1, 2],
                out_spec: vec![1, 2, 0],
                batch_group_count: Dim::constant(2),
                ..line.clone()
            },
            &[4, 3, 5],
            &[4, 3, 2],
        ),
        sample(
            ConvGeneralDilated {
                stride: vec![1, 2, 1],
                padding: padding(&[(1, 0), (-1, 2), (0, 1)]),
                lhs_dilation: vec![1, 2, 1],
                rhs_dilation: vec![2, 1, 1],
                feature_group_count: Dim::constant(2),
                ..ConvGeneralDilated::new(3)
            },
            &[1, 3, 3, 2, 4],
            &[2, 2, 1, 2, 4],
        ),
        sample(
            ConvGeneralDilated {
                lhs_spec: vec![0, 1, 2, 3, 4],
                rhs_spec: vec![0, 1, 2, 3, 4],
                out_spec: vec![0, 1, 2, 3, 4],
                padding: padding(&[(0, 1), (1, 1), (-1, 1)]),
                batch_group_count: Dim::constant(2),
                ..ConvGeneralDilated::new(3)
            },
            &[2, 2, 2, 3, 4],
            &[4, 2, 2, 2, 1],
        ),
        // A window that does not fit: no result. A filter larger than the operand with its
        // padding.
        sample(line.clone(), &[1, 2, 1], &[3, 1, 1]),
        sample(
            ConvGeneralDilated { padding: padding(&[(-2, -2)]), ..line.clone() },
            &[1, 4, 1],
            &[1, 1, 1],
        ),
        // Results of other dtypes than the operands'.
        Sample::new(
            ConvGeneralDilated { result: Some(DType::F32), ..line.clone() },
            [&[1usize, 5, 2][..], &[2, 2, 3]]
                .map(|s| SampleOperand::Values(floats(s, -1.0, 1.0).literal(DType::BF16, 5)))
                .to_vec(),
        ),
        Sample::new(
            ConvGeneralDilated {
                result: Some(DType::F64),
                feature_group_count: Dim::constant(2),
                ..line.clone()
            },
            [&[1usize, 5, 2][..], &[2, 1, 4]]
                .map(|s| SampleOperand::Values(floats(s, -1.0, 1.0).literal(DType::F32, 5)))
                .to_vec(),
        ),
        Sample::new(
            ConvGeneralDilated { result: Some(DType::I32), ..line.clone() },
            vec![values(&[1, 3, 1], [127i8, -128, 1]), values(&[2, 1, 1], [127i8, -128])],
        ),
        // Integers and bools as floats and as wider integers; in groups and other layouts.
        to(
            DType::F32,
            &line,
            values(&[1, 3, 1], [127i8, -128, 1]),
            values(&[2, 1, 1], [127i8, -128]),
        ),
        to(DType::F16, &line, values(&[1, 3, 1], [127i8, -128, 1]), values(&[2, 1, 1], [1i8, -2])),
        to(DType::BF16, &line, values(&[1, 3, 1], [255u8, 129, 1]), values(&[2, 1, 1], [255u8, 3])),
        to(
            DType::F32,
            &line,
            values(&[1, 2, 1], [i32::MAX, 16_777_217]),
            values(&[1, 1, 1], [3i32]),
        ),
        to(
            DType::F64,
            &line,
            values(&[1, 2, 1], [u64::MAX, (1 << 53) + 1]),
            values(&[1, 1, 1], [3u64]),
        ),
        to(DType::U32, &line, values(&[1, 3, 1], [255u8, 254, 1]), values(&[2, 1, 1], [255u8, 3])),
        to(
            DType::I64,
            &line,
            values(&[1, 2, 1], [i32::MAX, i32::MIN]),
            values(&[2, 1, 1], [i32::MAX, 2]),
        ),
        to(
            DType::I32,
            &line,
            values(&[1, 3, 1], [true, true, false]),
            values(&[2, 1, 1], [true, true]),
        ),
        to(
            DType::F32,
            &line,
            values(&[1, 3, 1], [true, true, false]),
            values(&[2, 1, 1], [true, true]),
        ),
        to(
            DType::F32,
            &channels_first(ConvGeneralDilated {
                stride: vec![2, 1],
                padding: padding(&[(1, 0), (0, 1)]),
                feature_group_count: Dim::constant(2),
                ..ConvGeneralDilated::new(2)
            }),
            values(&[1, 2, 2, 3], [1i8, -2, 3, 4, -5, 6, 7, 8, -9, 10, 11, 12]),
            values(&[2, 1, 1, 2], [1i8, -1, 2, 3]),
        ),
        Sample::new(
            line,
            vec![values(&[1, 3, 1], [1i32, 2, i32::MAX]), values(&[2, 1, 1], [3i32, 5])],
        ),
    ]
}
