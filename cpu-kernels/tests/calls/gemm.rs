//! Matrix products.

use super::*;
use wengert_core::call::{Addends, Gemm, Matrix};

fn product(batch: usize, [m, n, k]: [usize; 3], operand: DType, result: DType) -> Gemm {
    Gemm {
        batch,
        m,
        n,
        k,
        lhs: Matrix { batch: m * k, row: k, column: 1 },
        rhs: Matrix { batch: k * n, row: n, column: 1 },
        operand,
        accumulate: if operand.is_half() { DType::F32 } else { operand },
        result,
        addends: Addends::default(),
    }
}

/// A layout: contiguous rows, contiguous columns, gaps between elements, one matrix for all
/// products, or interleaved products.
fn lay_out(order: usize, rows: usize, columns: usize) -> Matrix {
    match order % 5 {
        0 => Matrix { batch: rows * columns, row: columns, column: 1 },
        1 => Matrix { batch: rows * columns, row: 1, column: rows },
        2 => Matrix { batch: 1, row: columns * 3, column: 2 },
        3 => Matrix { batch: 0, row: columns, column: 1 },
        _ => Matrix { batch: columns, row: 1, column: rows + 1 },
    }
}

fn operands(call: &Call, seed: u64) -> Vec<Literal> {
    let types = call.operands().into_iter().enumerate();
    types
        .map(|(k, ty)| numbers(ty.dtype, &ty.extents().unwrap(), seed ^ (k as u64) << 50))
        .collect()
}

fn addends() -> impl Strategy<Value = Addends> {
    (any::<bool>(), any::<bool>()).prop_map(|(bias, residual)| Addends { bias, residual })
}

fn small() -> impl Strategy<Value = Call> {
    let extent = || prop_oneof![Just(1usize), 0usize..4, 4usize..40];
    (
        0usize..DTYPES.len(),
        any::<bool>(),
        0usize..4,
        [extent(), extent(), extent()],
        0usize..5,
        0usize..5,
    )
        .prop_flat_map(|(dtype, wide, batch, extents, left, right)| {
            let operand = DTYPES[dtype];
            let result = if wide && operand.is_half() { DType::F32 } else { operand };
            let [m, n, k] = extents;
            addends().prop_map(move |addends| {
                let (lhs, rhs) = (lay_out(left, m, k), lay_out(right, k, n));
                Call::Gemm(Gemm { lhs, rhs, addends, ..product(batch, extents, operand, result) })
            })
        })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn small_products(call in small(), seed: u64) {
        check(&call, &operands(&call, seed))?;
    }
}

/// Products of several tiles. Their edges are not multiples of the tile, and their depths are
/// split.
#[test]
fn large_products() {
    let shapes = [
        (1, [130, 261, 70]),
        (1, [1, 700, 1100]),
        (1, [700, 1, 1100]),
        (1, [5, 600, 700]),
        (1, [600, 130, 3]),
        (3, [97, 65, 130]),
        (40, [9, 10, 64]),
    ];
    for (n, (batch, extents)) in shapes.into_iter().enumerate() {
        let [m, columns, k] = extents;
        for order in 0..3 {
            let dtype =
                [DType::F32, DType::BF16, DType::F32, DType::F64, DType::I32][(n + order) % 5];
            let addends = Addends { bias: order != 0, residual: order != 1 };
            let (lhs, rhs) = (lay_out(order, m, k), lay_out(order / 2 + n % 2, k, columns));
            let call =
                Call::Gemm(Gemm { lhs, rhs, addends, ..product(batch, extents, dtype, dtype) });
            check(&call, &operands(&call, n as u64)).unwrap();
        }
    }
}

/// A product has so many tiles that threads finish in another order in each run. The bits are those
/// of one thread.
#[test]
fn threads_do_not_matter() {
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
        let call =
            Call::Gemm(Gemm { lhs, rhs, addends, ..product(1, [m, n, k], DType::F32, DType::F32) });
        let operands = operands(&call, 5);
        let one = run(&call, &operands, &POOLS[0], Simd::choose().unwrap(), None);
        for pool in &POOLS[1..] {
            for over in [None, Some(2)] {
                let found = run(&call, &operands, pool, Simd::choose().unwrap(), over);
                assert!(found.to_bytes() == one.to_bytes(), "{m} {n} {k}");
            }
        }
    }
}

/// Addends have the bits of their ops applied one by one to the sums of the product alone.
#[test]
fn addends_have_the_bits_of_their_ops() {
    use wengert_core::nest::ScalarOp;
    use wengert_core::nest::evaluate::evaluate;
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        let wide = if dtype.is_half() { DType::F32 } else { dtype };
        let convert = |x: Scalar, to: DType| evaluate(ScalarOp::Convert, &[x], to);
        let op = |op: ScalarOp, operands: &[Scalar]| {
            let operands: Vec<Scalar> = operands.iter().map(|x| convert(*x, wide)).collect();
            convert(evaluate(op, &operands, wide), dtype)
        };
        let plain = product(1, [37, 45, 8], dtype, dtype);
        let call =
            Call::Gemm(Gemm { addends: Addends { bias: true, residual: true }, ..plain.clone() });
        let mut operands = operands(&call, 9);
        // The sums include large, small, zero and negative numbers, and NaN.
        let scaled = operands[0].scalars().enumerate().map(|(i, x)| {
            let row = i / 8;
            let scale = if row == 30 { f64::NAN } else { 2f64.powi(row as i32 % 24 - 18) };
            Scalar::from_f64(dtype, if row % 7 == 3 { 0.0 } else { x.to_f64() * scale })
        });
        operands[0] = Literal::from_scalars(dtype, &[37 * 8], &scaled.collect::<Vec<_>>()).unwrap();
        let simd = Simd::choose().unwrap();
        let sums = run(&Call::Gemm(plain), &operands[..2], &POOLS[1], simd, None);
        let found = run(&call, &operands, &POOLS[1], simd, None);
        for at in 0..37 * 45 {
            let x = op(ScalarOp::Add, &[sums.get(at), operands[2].get(at % 45)]);
            let wanted = op(ScalarOp::Add, &[x, operands[3].get(at)]);
            let same = found.get(at).bits() == wanted.bits()
                || (found.get(at).to_f64().is_nan() && wanted.to_f64().is_nan());
            assert!(same, "{dtype} at {at}: {} instead of {wanted}", found.get(at));
        }
    }
}

/// Halves are summed in f32, and the sum is rounded once.
#[test]
fn halves_are_summed_in_f32() {
    // 256 + 1 + 1 is 258 in f32, and 258 in bf16 after one rounding. Rounded after each addition it
    // would stay 256.
    let call = Call::Gemm(product(1, [1, 1, 3], DType::BF16, DType::BF16));
    let of = |values: [f64; 3]| {
        Literal::from_scalars(DType::BF16, &[3], &values.map(|v| Scalar::from_f64(DType::BF16, v)))
            .unwrap()
    };
    let found = run(&call, &[of([256.0, 1.0, 1.0]), of([1.0; 3])], &POOLS[0], Simd::Portable, None);
    assert_eq!(found.get(0).to_f64(), 258.0);
}
