//! Calls with so many tasks that threads finish in another order in each run. The bits are those of
//! one thread.

use super::*;
use wengert_core::call::{Addends, Gemm};
use wengert_testing::calls::convolution::{directions, same};
use wengert_testing::calls::gemm::{lay_out, product};

fn check(call: &Call, seed: u64) {
    let operands = calls::operands(call, seed);
    let simd = Simd::choose().unwrap();
    let one = run(call, &operands, &POOLS[0], simd, None);
    for pool in &POOLS[1..] {
        for over in call.in_place().into_iter().map(Some).chain([None]) {
            let found = run(call, &operands, pool, simd, over);
            assert!(found[0].to_bytes() == one[0].to_bytes(), "{call:?} over {over:?}");
        }
    }
}

/// Products of many tiles.
#[test]
fn products() {
    let shapes = [
        (300, 700, 300, 0, 0),
        (96, 1000, 600, 0, 1),
        (2, 3000, 500, 0, 0),
        (600, 200, 520, 1, 1),
        (1, 3000, 500, 0, 1),
        (1, 3000, 500, 0, 0),
        (3000, 1, 500, 0, 0),
        (3000, 1, 500, 1, 0),
    ];
    for (m, n, k, left, right) in shapes {
        let (lhs, rhs) = (lay_out(left, m, k), lay_out(right, k, n));
        let addends = Addends { residual: true, ..Addends::default() };
        let product = product(1, [m, n, k], DType::F32, DType::F32);
        check(&Call::Gemm(Gemm { lhs, rhs, addends, ..product }), 5);
    }
}

/// Products of few rows whose blocks of k are divided, and of more rows, whose tiles are.
#[test]
fn products_in_blocks() {
    for (m, n, k) in [(1, 768, 768), (8, 200, 2600), (3, 1100, 520), (20, 300, 1030)] {
        for result in [DType::F32, DType::BF16] {
            for which in 0..4 {
                let addends = Addends { bias: which % 2 == 1, residual: which > 1 };
                let product = product(1, [m, n, k], DType::BF16, result);
                check(&Call::Gemm(Gemm { addends, ..product }), 9);
            }
        }
    }
}

/// Sums over positions that are split into several ranges.
#[test]
fn convolutions() {
    let image = vec![same(28, 3, 1), same(28, 3, 1)];
    for call in directions(32, 1, [8, 32], image, DType::F32) {
        check(&call, 3);
    }
}
