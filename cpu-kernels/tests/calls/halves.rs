//! Attention of f16 has the bits of attention of the same numbers in f32, rounded once; attention
//! of bf16 has the same bits with all sets of vector instructions.

use super::{POOLS, run};
use wengert_core::call::{Attention, Call};
use wengert_core::{DType, Literal, Scalar};
use wengert_cpu::Simd;
use wengert_testing::calls::attention::{Kind, attention, biased, grouped, operands, prefixed};

/// The numbers of `x` in another dtype, each rounded once.
fn converted(x: &Literal, dtype: DType) -> Literal {
    let all: Vec<Scalar> = x.scalars().map(|x| Scalar::from_f64(dtype, x.to_f64())).collect();
    Literal::from_scalars(dtype, x.shape(), &all).expect("as many")
}

/// Calls of every path: packed and causal, grouped, few queries, many keys, with a bias.
fn calls(dtype: DType, backward: bool) -> [Attention; 5] {
    let kind = |packed, causal| Kind { packed, causal, backward };
    [
        attention([2, 150, 150, 2, 24], kind(true, true), dtype),
        grouped(attention([1, 70, 300, 2, 40], kind(false, false), dtype), 3),
        grouped(prefixed(attention([3, 3, 300, 2, 17], kind(false, true), dtype)), 2),
        grouped(prefixed(attention([2, 7, 300, 2, 32], kind(false, true), dtype)), 3),
        biased(attention([2, 1, 200, 1, 64], kind(false, false), dtype), [true; 3]),
    ]
}

#[test]
fn attention_of_f16_is_rounded_once() {
    let calls = [false, true].into_iter().flat_map(|backward| calls(DType::F16, backward));
    for (call, simd) in calls.flat_map(|c| Simd::available().map(move |s| (c.clone(), s))) {
        let given = operands(&call, 21);
        let wide = Call::Attention(Attention { dtype: DType::F32, ..call.clone() });
        let call = Call::Attention(call);
        let in_f32 = given.iter().map(|x| match x.dtype().is_half() {
            true => converted(x, DType::F32),
            false => x.clone(),
        });
        let in_f32 = run(&wide, &in_f32.collect::<Vec<_>>(), &POOLS[0], simd, None);
        let found = run(&call, &given, &POOLS[2], simd, None);
        assert_eq!(found.len(), in_f32.len());
        for (n, (found, in_f32)) in found.iter().zip(&in_f32).enumerate() {
            let rounded = converted(in_f32, found.dtype());
            assert!(found.to_bytes() == rounded.to_bytes(), "{call:?} {simd:?}: result {n}");
        }
    }
}

#[test]
fn attention_of_bf16_has_the_same_bits_with_all_instructions() {
    for call in [false, true].into_iter().flat_map(|backward| calls(DType::BF16, backward)) {
        let given = operands(&call, 21);
        let call = Call::Attention(call);
        let bits = |simd: Simd, pool: usize| -> Vec<Vec<u8>> {
            let found = run(&call, &given, &POOLS[pool], simd, None);
            found.iter().map(|result| result.to_bytes()).collect()
        };
        let portable = bits(Simd::Portable, 0);
        for simd in Simd::available() {
            assert!(bits(simd, 2) == portable, "{call:?} {simd:?}");
        }
    }
}
