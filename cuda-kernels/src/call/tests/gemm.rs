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

/// A dense matrix with contiguous rows or columns, or with gaps, or one shared by all products.
fn lay_out(order: usize, rows: usize, columns: usize) -> Matrix {
    match order % 5 {
        0 => Matrix { batch: rows * columns, row: columns, column: 1 },
        1 => Matrix { batch: rows * columns, row: 1, column: rows },
        2 => Matrix { batch: 1, row: columns * 3, column: 2 },
        3 => Matrix { batch: 0, row: columns, column: 1 },
        _ => Matrix { batch: columns, row: 1, column: rows + 1 },
    }
}

/// Addends, by their number.
fn addends(number: usize) -> Addends {
    Addends { bias: number & 1 != 0, residual: number & 2 != 0 }
}

fn small() -> impl Strategy<Value = Call> {
    let extent = || prop_oneof![Just(1usize), 0usize..4, 4usize..40];
    (
        0usize..DTYPES.len(),
        any::<bool>(),
        0usize..4,
        [extent(), extent(), extent()],
        [0usize..5, 0usize..5, 0usize..4],
    )
        .prop_map(|(dtype, wide, batch, [m, n, k], [left, right, steps])| {
            let operand = DTYPES[dtype];
            let result = if wide && operand.is_half() { DType::F32 } else { operand };
            let (lhs, rhs) = (lay_out(left, m, k), lay_out(right, k, n));
            let addends = addends(steps);
            Call::Gemm(Gemm { lhs, rhs, addends, ..product(batch, [m, n, k], operand, result) })
        })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn small_products(call in small(), seed: u64) {
        check(&call, &operands(&call, seed))?;
    }
}

/// Several tiles, whose edges are at, just before and just after those of the matrices; every
/// kernel, every layout.
#[test]
fn tiles_and_edges() {
    for (n, [m, columns, k]) in
        [[64, 64, 64], [63, 65, 33], [65, 63, 31], [129, 5, 17], [5, 129, 70], [128, 72, 96]]
            .into_iter()
            .enumerate()
    {
        for dtype in [DType::F32, DType::BF16, DType::F16, DType::F64, DType::I8, DType::I64] {
            for order in 0..4 {
                let (lhs, rhs) = (lay_out(order % 2, m, k), lay_out(order / 2, k, columns));
                let addends = addends(5 * n + 3 * order);
                let call = Call::Gemm(Gemm {
                    lhs,
                    rhs,
                    addends,
                    ..product(1, [m, columns, k], dtype, dtype)
                });
                check(&call, &operands(&call, n as u64)).unwrap();
            }
        }
    }
}

/// Long sums are split into parts, and one row or column has kernels of its own.
#[test]
fn long_sums() {
    for (extents, dtype, wanted) in [
        ([20, 30, 1111], DType::F32, "gemm_f32_32 gemm_sum"),
        ([20, 32, 1040], DType::BF16, "gemm_bf16_mma_64 gemm_sum"),
        ([20, 30, 1000], DType::F64, "gemm_f64_mma_64 gemm_sum"),
        ([20, 30, 700], DType::I64, "gemm_i64_32 gemm_sum"),
        ([1, 300, 5000], DType::F32, "gemm_f32_direct gemm_sum"),
        ([1, 40, 100], DType::F64, "gemm_f64_direct"),
        ([300, 1, 5000], DType::F32, "gemm_f32_dot"),
        ([7, 1, 30000], DType::F32, "gemm_f32_dot gemm_sum"),
        ([1, 1, 3000], DType::F64, "gemm_f64_dot"),
        ([41, 1, 1001], DType::F16, "gemm_f16_dot"),
        ([41, 1, 130], DType::I64, "gemm_i64_dot"),
        ([41, 1, 132], DType::U8, "gemm_u8_dot"),
    ] {
        let addends = Addends { bias: true, residual: true };
        let call = Call::Gemm(Gemm { addends, ..product(1, extents, dtype, dtype) });
        assert_eq!(kernels(&call).join(" "), wanted, "{extents:?}");
        check(&call, &operands(&call, 4)).unwrap();
    }
    let rhs = lay_out(1, 800, 33);
    let call = Call::Gemm(Gemm { rhs, ..product(2, [1, 33, 800], DType::BF16, DType::F32) });
    assert_eq!(kernels(&call), ["gemm_bf16_dot"]);
    check(&call, &operands(&call, 4)).unwrap();
}

/// Enough tiles that they are large ones.
#[test]
fn large_tiles() {
    for (dtype, wanted) in [
        (DType::F32, "gemm_f32_128"),
        (DType::BF16, "gemm_bf16_mma_128"),
        (DType::I64, "gemm_i64_64"),
    ] {
        let call = Call::Gemm(Gemm {
            rhs: lay_out(0, 24, 1412),
            ..product(1, [1410, 1412, 24], dtype, dtype)
        });
        assert_eq!(kernels(&call), [wanted]);
        let operands = operands(&call, 11);
        // Few rows, since the reference is slow.
        let compiled = compile(&call, architecture(SM_90), None).unwrap();
        let found = run(&call, &compiled, &operands, None);
        for row in [0, 1, 127, 128, 700, 1409] {
            let rows = |l: &Literal, width: usize| {
                let all: Vec<Scalar> = l.scalars().skip(row * width).take(width).collect();
                Literal::from_scalars(dtype, &[1, 1, width], &all).unwrap()
            };
            let one = Call::Gemm(product(1, [1, 1412, 24], dtype, dtype));
            let lhs = rows(&operands[0], 24).reshape(&[24]).unwrap();
            let reference = one.reference(&[lhs, operands[1].clone()]).unwrap();
            reference.check(&rows(&found, 1412)).unwrap();
        }
    }
}

/// A sum that is not split has the bits of the plain loop with fused multiply-adds.
#[test]
fn sums_are_made_in_order() {
    let call = Call::Gemm(product(1, [9, 35, 77], DType::F32, DType::F32));
    let operands = operands(&call, 8);
    let compiled = compile(&call, architecture(SM_90), None).unwrap();
    let found = run(&call, &compiled, &operands, None);
    let (x, y) = (operands[0].as_slice::<f32>().unwrap(), operands[1].as_slice::<f32>().unwrap());
    for (at, sum) in found.as_slice::<f32>().unwrap().iter().enumerate() {
        let (i, j) = (at / 35, at % 35);
        let wanted = (0..77).fold(0f32, |s, k| x[i * 77 + k].mul_add(y[k * 35 + j], s));
        assert_eq!(sum.to_bits(), wanted.to_bits(), "{i} {j}");
    }
}

/// f32 keeps its precision, unless tf32 is requested: then operands have 10 bits of mantissa, and
/// their products are exact.
#[test]
fn tf32_is_a_choice() {
    let call = Call::Gemm(product(1, [70, 40, 20], DType::F32, DType::F32));
    let tf32 = Options { tf32: true, ..Options::default() };
    let coarse = |l: &Literal| {
        let values: Vec<f32> =
            l.as_slice::<f32>().unwrap().iter().map(|x| (x * 16.0).round() / 16.0).collect();
        Literal::from_vec(l.shape(), values).unwrap()
    };
    let operands: Vec<Literal> = operands(&call, 2).iter().map(coarse).collect();
    for order in 0..4 {
        let Call::Gemm(gemm) = &call else { unreachable!() };
        let (lhs, rhs) = (lay_out(order % 2, 70, 20), lay_out(order / 2, 20, 40));
        let call = Call::Gemm(Gemm { lhs, rhs, ..gemm.clone() });
        let compiled = compile_with(&call, architecture("sm_80"), tf32).unwrap();
        assert_eq!(compiled.stages[0].kernel.name, "gemm_f32_mma_64");
        let found = run(&call, &compiled, &operands, None);
        call.reference(&operands).unwrap().check(&found).unwrap();
        assert_eq!(kernels(&call), ["gemm_f32_32"]);
    }
}

/// Addends have the bits of their ops, applied to the sums of the product alone.
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
        let addends = Addends { bias: true, residual: true };
        let call = Call::Gemm(Gemm { addends, ..plain.clone() });
        let mut operands = operands(&call, 9);
        // The sums include large, small, zero and negative ones, and NaN.
        let scaled = operands[0].scalars().enumerate().map(|(i, x)| {
            let row = i / 8;
            let scale = if row == 30 { f64::NAN } else { 2f64.powi(row as i32 % 24 - 18) };
            Scalar::from_f64(dtype, if row % 7 == 3 { 0.0 } else { x.to_f64() * scale })
        });
        operands[0] = Literal::from_scalars(dtype, &[37 * 8], &scaled.collect::<Vec<_>>()).unwrap();
        let sm_90 = architecture(SM_90);
        let plain = Call::Gemm(plain);
        let sums = run(&plain, &compile(&plain, sm_90, None).unwrap(), &operands[..2], None);
        let found = run(&call, &compile(&call, sm_90, None).unwrap(), &operands, None);
        for at in 0..37 * 45 {
            let x = op(ScalarOp::Add, &[sums.get(at), operands[2].get(at % 45)]);
            let wanted = op(ScalarOp::Add, &[x, operands[3].get(at)]);
            let same = found.get(at).bits() == wanted.bits()
                || (found.get(at).to_f64().is_nan() && wanted.to_f64().is_nan());
            assert!(same, "{dtype} at {at}: {} instead of {wanted}", found.get(at));
        }
    }
}

/// Sums of halves are in f32, rounded once.
#[test]
fn halves_are_summed_in_f32() {
    let of = |values: &[f64]| {
        let values: Vec<Scalar> =
            values.iter().map(|v| Scalar::from_f64(DType::BF16, *v)).collect();
        Literal::from_scalars(DType::BF16, &[values.len()], &values).unwrap()
    };
    // 256 + 1 + 1 is 258 in f32 and, rounded once, in bf16; rounded after each addition it would
    // stay 256.
    for rows in [1, 3] {
        let call = Call::Gemm(product(1, [rows, rows, 3], DType::BF16, DType::BF16));
        let operands = [of(&[256.0, 1.0, 1.0].repeat(rows)), of(&vec![1.0; 3 * rows])];
        let compiled = compile(&call, architecture(SM_90), None).unwrap();
        assert_eq!(run(&call, &compiled, &operands, None).get(0).to_f64(), 258.0);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |gemm: Gemm, in_place: Option<usize>| {
        compile(&Call::Gemm(gemm), architecture(SM_90), in_place).unwrap_err().to_string()
    };
    let good = product(1, [2, 2, 2], DType::F32, DType::F32);
    assert!(
        refused(good.clone(), Some(0))
            .contains("call `gemm`: the result cannot be in the place of operand 0")
    );
    assert!(
        refused(Gemm { accumulate: DType::F64, ..good.clone() }, None)
            .contains("accumulates in f32")
    );
    let long = product(1, [1, 1, 1 << 31], DType::F32, DType::F32);
    assert!(refused(long, None).contains("k is 2147483648"));
}
