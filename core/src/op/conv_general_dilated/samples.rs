//! Convolutions to test with: every attribute alone and several together.

use super::ConvGeneralDilated;
use crate::dim::Dim;
use crate::op::sample::{Sample, floats, values};

fn padding(pairs: &[(i64, i64)]) -> Vec<(Dim, Dim)> {
    pairs.iter().map(|(l, h)| (Dim::constant(*l), Dim::constant(*h))).collect()
}

pub(super) fn samples() -> Vec<Sample> {
    let sample = |op: ConvGeneralDilated, x: &[usize], w: &[usize]| {
        Sample::new(op, vec![floats(x, -1.0, 1.0), floats(w, -1.0, 1.0)])
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
        sample(ConvGeneralDilated { padding: padding(&[(2, 1)]), ..line.clone() }, &[1, 5, 2], &[3, 2, 2]),
        sample(ConvGeneralDilated { padding: padding(&[(-1, -2)]), ..line.clone() }, &[1, 8, 2], &[3, 2, 2]),
        sample(
            ConvGeneralDilated { lhs_dilation: vec![3], padding: padding(&[(1, 2)]), ..line.clone() },
            &[2, 4, 2],
            &[4, 2, 2],
        ),
        sample(ConvGeneralDilated { rhs_dilation: vec![2], ..line.clone() }, &[2, 9, 2], &[3, 2, 2]),
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
            channels_first(ConvGeneralDilated { batch_group_count: Dim::constant(3), ..everything }),
            &[6, 2, 4, 9],
            &[3, 2, 3, 2],
        ),
        sample(
            ConvGeneralDilated {
                lhs_spec: vec![3, 0, 2, 1],
                rhs_spec: vec![1, 2, 0, 3],
                out_spec: vec![2, 3, 1, 0],
                ..plane
            },
            &[3, 5, 6, 2],
            &[3, 4, 3, 2],
        ),
        sample(
            ConvGeneralDilated { stride: vec![1, 2, 1], ..ConvGeneralDilated::new(3) },
            &[1, 3, 4, 3, 2],
            &[2, 2, 2, 2, 3],
        ),
        Sample::new(line, vec![values(&[1, 3, 1], [1i32, 2, i32::MAX]), values(&[2, 1, 1], [3i32, 5])]),
    ]
}
