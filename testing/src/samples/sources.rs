//! Ops without tensors as operands, and random bits.

use super::prelude::*;
use wengert_core::op::{Constant, DimAsValue, Iota, RandomBits};

pub(super) fn samples() -> Vec<Sample> {
    [constant(), dim_as_value(), iota(), random_bits()].concat()
}

fn constant() -> Vec<Sample> {
    let value =
        Literal::from_vec(&[2, 2], vec![1.0f32, 2.0, 3.0, 4.0]).expect("four elements fill 2x2");
    vec![
        Sample::new(Constant { value }, vec![]),
        Sample::new(Constant { value: Literal::from(1.5f64) }, vec![]),
    ]
}

fn dim_as_value() -> Vec<Sample> {
    let sample = |dtype| Sample::new(DimAsValue { dim: Dim::constant(300), dtype }, vec![]);
    DType::IN_KERNELS.into_iter().filter(|d| *d != DType::Bool).map(sample).collect()
}

fn iota() -> Vec<Sample> {
    let sample = |dtype, shape: &[usize], axis| {
        Sample::new(
            Iota { dtype, shape: shape.iter().map(|e| Dim::from(*e)).collect(), axis },
            vec![],
        )
    };
    let mut samples: Vec<Sample> = DType::IN_KERNELS
        .into_iter()
        .filter(|d| *d != DType::Bool)
        .map(|d| sample(d, &[3, 4], 1))
        .collect();
    samples.extend([
        sample(DType::I32, &[2, 3, 2], 0),
        sample(DType::I8, &[300], 0),
        sample(DType::F16, &[2, 5000], 1),
        sample(DType::F32, &[0, 3], 1),
    ]);
    samples
}

fn random_bits() -> Vec<Sample> {
    let sample = |dtype, shape: &[usize], key| {
        let shape = shape.iter().map(|e| Dim::from(*e)).collect();
        Sample::new(RandomBits { dtype, shape }, vec![values(&[2], key)])
    };
    vec![
        sample(DType::U32, &[3, 5], [0u32, 0]),
        sample(DType::U64, &[7], [0xa409_3822, 0x299f_31d0]),
        sample(DType::U8, &[2, 2, 2], [u32::MAX, u32::MAX]),
        sample(DType::U32, &[], [1, 2]),
        Sample::new(
            RandomBits { dtype: DType::U64, shape: vec![Dim::from(2usize), Dim::from(3usize)] },
            vec![values(&[2, 1, 2], [7u32, 8, 9, u32::MAX])],
        ),
    ]
}
