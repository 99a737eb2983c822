//! Products on the emulator: large tiles, the order of sums, and tf32.

use super::*;
use wengert_core::Scalar;
use wengert_testing::calls::gemm::{lay_out, product};
use wengert_testing::calls::operands;

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
        let found = run(&call, &compiled, &operands, None).remove(0);
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
    let found = run(&call, &compiled, &operands, None).remove(0);
    let (x, y) = (operands[0].as_slice::<f32>().unwrap(), operands[1].as_slice::<f32>().unwrap());
    for (at, sum) in found.as_slice::<f32>().unwrap().iter().enumerate() {
        let (i, j) = (at / 35, at % 35);
        let wanted = (0..77).fold(0f32, |s, k| x[i * 77 + k].mul_add(y[k * 35 + j], s));
        assert_eq!(sum.to_bits(), wanted.to_bits(), "{i} {j}");
    }
}

/// The bits of a row do not depend on the number of rows, whatever the layout of the matrix.
#[test]
fn few_rows_have_the_bits_of_one() {
    for (dtype, order, name) in [
        (DType::F32, 0, "gemm_f32_few"),
        (DType::BF16, 0, "gemm_bf16_few"),
        (DType::F32, 1, "gemm_f32_dot"),
        (DType::F16, 1, "gemm_f16_dot"),
    ] {
        let (columns, k) = (72, 2100);
        let gemm = |rows| {
            let rhs = lay_out(order, k, columns);
            Call::Gemm(Gemm { rhs, ..product(1, [rows, columns, k], dtype, dtype) })
        };
        let given = operands(&gemm(8), 3);
        let bits = |rows: usize, first: usize| {
            let call = gemm(rows);
            assert_eq!(kernels(&call), [name]);
            let lhs: Vec<Scalar> = given[0].scalars().skip(first * k).take(rows * k).collect();
            let lhs = Literal::from_scalars(dtype, &[rows * k], &lhs).unwrap();
            let compiled = compile(&call, architecture(SM_90), None).unwrap();
            run(&call, &compiled, &[lhs, given[1].clone()], None).remove(0).to_bytes()
        };
        let all = bits(8, 0);
        let row = columns * dtype.size();
        assert_eq!(all[3 * row..6 * row], bits(3, 3)[..]);
        for n in 0..8 {
            assert_eq!(all[n * row..(n + 1) * row], bits(1, n)[..], "{dtype} {order} {n}");
        }
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
        let found = run(&call, &compiled, &operands, None).remove(0);
        call.reference(&operands).unwrap().check(&found).unwrap();
        assert_eq!(kernels(&call), ["gemm_f32_32"]);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let good = product(1, [2, 2, 2], DType::F32, DType::F32);
    assert!(
        refused(&Call::Gemm(good.clone()), Some(0))
            .contains("call `gemm`: the result cannot be in the place of operand 0")
    );
    assert!(
        refused(&Call::Gemm(Gemm { accumulate: DType::F64, ..good }), None)
            .contains("accumulates in f32")
    );
    let long = product(1, [1, 1, 1 << 31], DType::F32, DType::F32);
    assert!(refused(&Call::Gemm(long), None).contains("k is 2147483648"));
}
