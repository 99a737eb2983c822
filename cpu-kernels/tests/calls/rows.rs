//! A row of a result has the same bits alone and among other rows: a model gives the same logits
//! for a token whether its prompt was computed at once, in chunks, or token by token.

use super::{POOLS, run};
use wengert_core::call::{Addends, Attention, Call, Gemm, Matrix};
use wengert_core::{DType, Literal, Scalar};
use wengert_cpu::Simd;
use wengert_testing::calls::numbers;

/// Elements `[from, to)` of the axis 1 of a tensor.
fn window(x: &Literal, from: usize, to: usize) -> Literal {
    let shape = x.shape();
    let inner: usize = shape[2..].iter().product();
    let at = |b: usize, t: usize| (b * shape[1] + t) * inner;
    let all: Vec<Scalar> =
        (0..shape[0]).flat_map(|b| (at(b, from)..at(b, to)).map(|i| x.get(i))).collect();
    let mut extents = shape.to_vec();
    extents[1] = to - from;
    Literal::from_scalars(x.dtype(), &extents, &all).unwrap()
}

#[test]
fn rows_of_products() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        // The threads divide the longest sums of halves.
        for (n, k, contiguous) in [(150, 333, true), (150, 333, false), (150, 1000, true)] {
            let rhs = if contiguous { [n, 1] } else { [1, k] };
            let call = |m: usize| {
                Call::Gemm(Gemm {
                    batch: 1,
                    m,
                    n,
                    k,
                    lhs: Matrix { batch: 0, row: k, column: 1 },
                    rhs: Matrix { batch: 0, row: rhs[0], column: rhs[1] },
                    operand: dtype,
                    rhs_operand: None,
                    scales: None,
                    accumulate: dtype.wide(),
                    result: dtype.wide(),
                    addends: Addends::default(),
                    pitch: None,
                })
            };
            let x = numbers(dtype, &[1, 70, k], 5);
            let w = numbers(dtype, &[n * k], 6);
            let flat =
                |x: &Literal| Literal::from_bytes(x.dtype(), &[x.len()], &x.to_bytes()).unwrap();
            for simd in Simd::available() {
                let of = |from: usize, to: usize| {
                    let lhs = flat(&window(&x, from, to));
                    run(&call(to - from), &[lhs, w.clone()], &POOLS[1], simd, None)[0].to_bytes()
                };
                let all = of(0, 70);
                let row = n * dtype.wide().size();
                for (from, to) in [(0, 1), (69, 70), (3, 5), (10, 18), (20, 35), (0, 64)] {
                    assert!(
                        of(from, to) == all[from * row..to * row],
                        "{dtype} {rhs:?} {simd:?}: rows {from} to {to}"
                    );
                }
            }
        }
    }
}

/// A query that sees a prefix of the keys has the results that it has without the other keys.
#[test]
fn rows_of_attention() {
    let (batch, positions, heads) = (2, 700, 6);
    // A few queries of rows of whole vectors have kernels of their own.
    let of_floats = [(DType::F32, 1, 40), (DType::F32, 3, 80), (DType::F64, 6, 40)];
    let of_halves = [(DType::BF16, 1, 48), (DType::BF16, 3, 40), (DType::F16, 6, 32)];
    for (dtype, group, width) in of_floats.into_iter().chain(of_halves) {
        let call = |queries: usize, keys: usize, causal: bool, prefix: bool| {
            Call::Attention(Attention {
                batch,
                queries,
                keys,
                heads,
                group,
                width,
                packed: false,
                bias: vec![],
                prefix,
                causal,
                backward: false,
                out_given: false,
                scale: Scalar::of(1.0 / 256.0),
                dtype,
            })
        };
        let q = numbers(dtype, &[batch, positions, heads, width], 1);
        let [k, v] =
            [2, 3].map(|seed| numbers(dtype, &[batch, positions, heads / group, width], seed));
        for (simd, pool) in Simd::available().zip(POOLS.iter().cycle()) {
            let prompt = call(positions, positions, true, false);
            let [out, l] = &run(&prompt, &[q.clone(), k.clone(), v.clone()], pool, simd, None)[..]
            else {
                panic!("attention has two results")
            };
            for t in [0, 1, 63, 64, 127, 128, 129, 300, 511, 512, 699] {
                let q = window(&q, t, t + 1);
                let alone = (
                    call(1, t + 1, false, false),
                    vec![q.clone(), window(&k, 0, t + 1), window(&v, 0, t + 1)],
                );
                let prefix = Literal::from_vec(&[batch], vec![t as i32 + 1; batch]).unwrap();
                let cached =
                    (call(1, positions, true, true), vec![q, k.clone(), v.clone(), prefix]);
                let both = [alone, cached];
                for (pool, (call, operands)) in
                    POOLS.iter().flat_map(|p| both.iter().map(move |c| (p, c)))
                {
                    let alone = run(call, operands, pool, simd, None);
                    let what = format!("{dtype} group {group} {simd:?}: position {t}");
                    assert!(alone[0].to_bytes() == window(out, t, t + 1).to_bytes(), "{what}");
                    for head in 0..batch * heads {
                        assert_eq!(alone[1].get(head), l.get(head * positions + t), "{what}");
                    }
                }
            }
        }
    }
}
