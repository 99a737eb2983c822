//! Attention, forward and backward.

use super::*;
use wengert_core::call::Attention;

/// Operands of moderate size, so that no single score dominates. For a backward call they include
/// the results of the forward call.
fn operands(call: &Attention, seed: u64) -> Vec<Literal> {
    let small = |ty: &TensorType, seed: u64| {
        let shape = ty.extents().unwrap();
        let values: Vec<Scalar> = numbers(ty.dtype, &shape, seed)
            .scalars()
            .map(|x| Scalar::from_f64(ty.dtype, x.to_f64() / 4.0))
            .collect();
        Literal::from_scalars(ty.dtype, &shape, &values).unwrap()
    };
    let forward = Call::Attention(Attention { backward: false, ..call.clone() });
    let mut operands: Vec<Literal> =
        forward.operands().iter().zip(seed..).map(|(ty, seed)| small(ty, seed)).collect();
    if call.backward {
        let [out, l]: [TensorType; 2] = forward.results().try_into().unwrap();
        let logarithms = forward.references(&operands).unwrap()[1].literal();
        operands.extend([logarithms, small(&out, seed + 17), small(&l, seed + 18)]);
    }
    operands
}

fn attention(
    extents: [usize; 5],
    packed: bool,
    causal: bool,
    backward: bool,
    dtype: DType,
) -> Attention {
    let [batch, queries, keys, heads, width] = extents;
    let keys = if packed { queries } else { keys };
    let scale = Scalar::of(1.0 / (width as f64).sqrt());
    let bias = Vec::new();
    Attention { batch, queries, keys, heads, width, packed, bias, causal, backward, scale, dtype }
}

/// The same call with a bias. `repeats` selects the axes (examples, heads, queries) along which the
/// bias is broadcast.
fn biased(call: Attention, repeats: [bool; 3]) -> Attention {
    let [batch, heads, queries] = [(0, call.batch), (1, call.heads), (2, call.queries)]
        .map(|(axis, extent)| if repeats[axis] { 1 } else { extent });
    Attention { bias: vec![batch, heads, queries, call.keys], ..call }
}

fn checked(call: Attention, seed: u64) -> Result<(), TestCaseError> {
    let operands = operands(&call, seed);
    check(&Call::Attention(call), &operands)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn small_attentions(
        extents in [1usize..3, 1usize..20, 1usize..20, 1usize..4, 1usize..20],
        flags in [any::<bool>(); 4],
        repeats in prop::option::of([any::<bool>(); 3]),
        seed in 0u64..1 << 40,
    ) {
        let dtype = if flags[3] { DType::F64 } else { DType::F32 };
        let call = attention(extents, flags[0], flags[1], flags[2], dtype);
        checked(repeats.into_iter().fold(call, biased), seed)?;
    }
}

/// Several blocks of queries and of keys, of which the last are partial. There are more keys than
/// queries, and fewer.
#[test]
fn many_blocks() {
    for (queries, keys) in [(131, 131), (200, 70), (70, 200), (64, 128), (1, 300), (300, 1)] {
        for (causal, backward) in [(false, false), (false, true), (true, false), (true, true)] {
            let call =
                attention([1, queries, keys, 2, 9], queries == keys, causal, backward, DType::F32);
            checked(call.clone(), 7).unwrap();
            checked(biased(call.clone(), [true, false, false]), 8).unwrap();
            checked(biased(call, [false, true, true]), 9).unwrap();
        }
    }
}

/// The target does not claim attentions of halves. A plan that contains one gets an error.
#[test]
fn halves_are_refused() {
    for dtype in [DType::F16, DType::BF16] {
        let call = Call::Attention(attention([1, 2, 2, 1, 4], true, true, false, dtype));
        let error = CompiledCall::new(&call).unwrap_err().to_string();
        assert!(error.contains("call `attention`: there is no attention of halves"), "{error}");
    }
}

/// A bias of −∞ masks keys in the same way as a shorter sequence does, forward and backward.
#[test]
fn a_bias_hides_keys() {
    let shape = [2, 70, 150, 2, 5];
    for backward in [false, true] {
        let call =
            biased(attention(shape, false, false, backward, DType::F32), [false, true, true]);
        let mut operands = operands(&call, 3);
        let hidden = |s: usize, example: usize| s >= [90, 131][example];
        let bias: Vec<f32> = (0..300)
            .map(|at| if hidden(at % 150, at / 150) { f32::NEG_INFINITY } else { 0.0 })
            .collect();
        operands[3] = Literal::from_vec(&[2, 1, 1, 150], bias).unwrap();
        if backward {
            let forward = Call::Attention(Attention { backward: false, ..call.clone() });
            operands[4] = forward.references(&operands[..4]).unwrap()[1].literal();
        }
        check(&Call::Attention(call.clone()), &operands).unwrap();
        let results = run_all(&Call::Attention(call), &operands, &POOLS[0], Simd::Portable, None);
        if backward {
            // Masked keys have a zero cotangent.
            let of_keys: Vec<f64> = results[1].scalars().map(|x| x.to_f64()).collect();
            let row = |example: usize, s: usize| &of_keys[(example * 150 + s) * 10..][..10];
            assert!(row(0, 90).iter().chain(row(1, 131)).all(|x| *x == 0.0));
            assert!(row(0, 89).iter().chain(row(1, 130)).all(|x| *x != 0.0));
        }
    }
}

/// Infinite and NaN scores give the results of the formulas. A row with a NaN score is NaN, and a
/// score of −∞ has weight zero.
#[test]
fn special_scores() {
    let call = attention([1, 3, 200, 1, 2], false, false, false, DType::F32);
    let q = Literal::from_vec(&[1, 3, 1, 2], vec![1.0f32, 0.0, f32::NAN, 0.0, 0.0, 1.0]).unwrap();
    for special in [f32::INFINITY, f32::NAN] {
        let mut keys = vec![0.5f32; 400];
        // Key 150 is beyond the first block. Only its first component is special.
        keys[2 * 150] = special;
        let k = Literal::from_vec(&[1, 200, 1, 2], keys).unwrap();
        let v = Literal::from_vec(&[1, 200, 1, 2], vec![2.0f32; 400]).unwrap();
        let results = run_all(
            &Call::Attention(call.clone()),
            &[q.clone(), k, v],
            &POOLS[0],
            Simd::Portable,
            None,
        );
        let out: Vec<f64> = results[0].scalars().map(|x| x.to_f64()).collect();
        assert!(out[..4].iter().all(|x| x.is_nan()), "{special}: {out:?}");
        // 0 times infinity is NaN as well.
        assert!(out[4..].iter().all(|x| x.is_nan()), "{special}: {out:?}");
    }
    // A score of −∞ has weight zero, even if its whole block is −∞.
    let q = Literal::from_vec(&[1, 3, 1, 2], vec![1.0f32; 6]).unwrap();
    let mut keys = vec![f32::NEG_INFINITY; 400];
    keys[398..].fill(-400.0);
    let k = Literal::from_vec(&[1, 200, 1, 2], keys).unwrap();
    let v =
        Literal::from_vec(&[1, 200, 1, 2], (0..400).map(|n| n as f32).collect::<Vec<_>>()).unwrap();
    let results = run_all(&Call::Attention(call), &[q, k, v], &POOLS[1], Simd::Portable, None);
    let out: Vec<f64> = results[0].scalars().map(|x| x.to_f64()).collect();
    assert_eq!(out, [398.0, 399.0].repeat(3));
}
