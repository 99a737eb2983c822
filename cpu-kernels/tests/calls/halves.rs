//! Attention of halves has the bits of attention of the same numbers in f32, rounded once.

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

#[test]
fn attention_is_rounded_once() {
    for (dtype, backward) in
        [DType::F16, DType::BF16].into_iter().flat_map(|d| [false, true].map(|b| (d, b)))
    {
        let kind = |packed, causal| Kind { packed, causal, backward };
        let calls = [
            attention([2, 150, 150, 2, 24], kind(true, true), dtype),
            grouped(attention([1, 70, 300, 2, 40], kind(false, false), dtype), 3),
            grouped(prefixed(attention([3, 3, 300, 2, 17], kind(false, true), dtype)), 2),
            biased(attention([2, 1, 200, 1, 64], kind(false, false), dtype), [true; 3]),
        ];
        for (call, simd) in calls.iter().flat_map(|c| Simd::available().map(move |s| (c, s))) {
            let given = operands(call, 21);
            let wide = Call::Attention(Attention { dtype: DType::F32, ..call.clone() });
            let call = Call::Attention(call.clone());
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
}
