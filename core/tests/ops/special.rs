//! Edge cases of ops: NaN, signed zeros, ties, overflow, indices out of bounds.

use super::lower::execute;
use wengert_core::call::ScatterKind;
use wengert_core::interpret::{Array, Regions};
use wengert_core::nest::Tree;
use wengert_core::op::{
    Argument, Binary, BitcastConvertType, Clamp, ConvGeneralDilated, ConvertElementType,
    DotGeneral, Extremum, Gather, NextAfter, Normalize, NormalizeKind, ReducePrecision, Scatter,
    Softmax, SoftmaxCrossEntropy, SoftmaxKind, Unary,
};
use wengert_core::{DType, Element, Literal, Op, Scalar, TensorType};

fn vector<T: Element>(values: &[T]) -> Literal {
    Literal::from_vec(&[values.len()], values.to_vec()).unwrap()
}

/// The result of an op. The interpreter and the nest must agree on it.
fn both(op: impl Into<Op>, operands: &[Literal]) -> Literal {
    let op = op.into();
    let types: Vec<TensorType> = operands.iter().map(Literal::ty).collect();
    let results = op.infer(&types, &[]).unwrap();
    let arrays: Vec<Array<f64>> =
        operands.iter().map(|l| Array::from_literal(l).unwrap()).collect();
    let meaning =
        op.evaluate(&arrays, &results, &Regions::of(&[])).unwrap()[0].to_literal().unwrap();
    let computed = execute(&op, &[], operands, Tree::SEQUENTIAL).swap_remove(0);
    let canonical = |l: &Literal| {
        l.scalars()
            .map(|s| if s.to_f64().is_nan() { "NaN".into() } else { s.to_string() })
            .collect::<Vec<_>>()
    };
    assert_eq!(canonical(&meaning), canonical(&computed), "{op:?} of {operands:?}");
    computed
}

/// [`both`] for an op of one operand.
fn one(op: impl Into<Op>, x: &Literal) -> Literal {
    both(op, std::slice::from_ref(x))
}

fn floats(literal: &Literal) -> Vec<String> {
    literal
        .scalars()
        .map(|s| if s.to_f64().is_nan() { "nan".into() } else { s.to_string() })
        .collect()
}

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

#[test]
fn extrema_of_not_numbers_and_zeros() {
    let (x, y) = (vector(&[NAN, 1.0, 0.0, -0.0, -INF]), vector(&[1.0, NAN, -0.0, 0.0, 3.0]));
    assert_eq!(
        floats(&both(Binary::Max, &[x.clone(), y.clone()])),
        ["nan", "nan", "0.0", "0.0", "3.0"]
    );
    assert_eq!(floats(&both(Binary::Min, &[x, y])), ["nan", "nan", "-0.0", "-0.0", "-inf"]);
}

#[test]
fn signs_and_roundings_keep_signed_zeros() {
    let x = vector(&[-0.0f32, 0.0, -0.4, 0.5, 1.5, -2.5, NAN, -INF]);
    assert_eq!(
        floats(&one(Unary::Round, &x)),
        ["-0.0", "0.0", "-0.0", "0.0", "2.0", "-2.0", "nan", "-inf"]
    );
    assert_eq!(
        floats(&one(Unary::Ceil, &x)),
        ["-0.0", "0.0", "-0.0", "1.0", "2.0", "-2.0", "nan", "-inf"]
    );
    assert_eq!(
        floats(&one(Unary::Floor, &x)),
        ["-0.0", "0.0", "-1.0", "0.0", "1.0", "-3.0", "nan", "-inf"]
    );
    assert_eq!(
        floats(&one(Unary::Sign, &x)),
        ["-0.0", "0.0", "-1.0", "1.0", "1.0", "-1.0", "nan", "-1.0"]
    );
    assert_eq!(
        floats(&both(Unary::Abs, &[x])),
        ["0.0", "0.0", "0.4", "0.5", "1.5", "2.5", "nan", "inf"]
    );
}

#[test]
fn the_strong_product_is_zero_against_anything() {
    let coefficient = vector(&[INF, NAN, -3.0, INF, 0.0]);
    let tangent = vector(&[0.0, -0.0, -0.0, 2.0, INF]);
    assert_eq!(
        floats(&both(Binary::MulZero, &[coefficient, tangent])),
        ["0.0", "0.0", "0.0", "inf", "nan"]
    );
}

#[test]
fn powers() {
    let x = vector(&[0.0f32, 0.0, -2.0, -2.0, 1.0, INF, -0.0]);
    let y = vector(&[0.0f32, -1.0, 3.0, 0.5, NAN, -1.0, 3.0]);
    assert_eq!(
        floats(&both(Binary::Pow, &[x, y])),
        ["1.0", "inf", "-8.0", "nan", "1.0", "0.0", "-0.0"]
    );
}

#[test]
fn the_logistic_function_is_accurate_far_out() {
    let y = both(Unary::Logistic, &[vector(&[-100.0f32, -90.0, 0.0, 30.0, INF, -INF])]);
    let y = y.as_slice::<f32>().unwrap();
    assert!((y[0] / 3.78e-44 - 1.0).abs() < 0.05 && (y[1] / 8.194e-40 - 1.0).abs() < 1e-3, "{y:?}");
    assert_eq!(y[2..], [0.5, 1.0, 1.0, 0.0]);
}

#[test]
fn integers_divide_by_zero_and_wrap() {
    let (x, y) = (vector(&[7, -7, i32::MIN, 5]), vector(&[0, 2, -1, -3]));
    assert_eq!(both(Binary::Div, &[x.clone(), y.clone()]), vector(&[-1, -3, i32::MIN, -1]));
    assert_eq!(both(Binary::Rem, &[x, y]), vector(&[7, -1, 0, 2]));
    let large = vector(&[u64::MAX, 3]);
    assert_eq!(
        both(Binary::Div, &[large.clone(), vector(&[2u64, 0])]),
        vector(&[u64::MAX / 2, u64::MAX])
    );
    assert_eq!(both(Binary::Mul, &[vector(&[200u8]), vector(&[2u8])]), vector(&[144u8]));
}

#[test]
fn conversions_truncate_saturate_and_wrap() {
    let x = vector(&[-1.9f32, 300.7, NAN, INF, -INF, 0.0]);
    assert_eq!(
        one(ConvertElementType { dtype: DType::I8 }, &x),
        vector(&[-1i8, 127, 0, 127, -128, 0])
    );
    assert_eq!(one(ConvertElementType { dtype: DType::U8 }, &x), vector(&[0u8, 255, 0, 255, 0, 0]));
    let bools = vector(&[true, true, true, true, true, false]);
    assert_eq!(both(ConvertElementType { dtype: DType::Bool }, &[x]), bools);
    let integers = vector(&[-1i64, 1 << 40, 257]);
    assert_eq!(one(ConvertElementType { dtype: DType::U8 }, &integers), vector(&[255u8, 0, 1]));
    assert_eq!(
        both(ConvertElementType { dtype: DType::U64 }, &[integers]),
        vector(&[u64::MAX, 1 << 40, 257])
    );
    // Beyond 2⁵³ a conversion by way of f64 would round twice. This number is just above the tie of
    // two f32.
    let beside_a_tie = (1i64 << 60) + (1 << 36) + 1;
    let f =
        both(ConvertElementType { dtype: DType::F32 }, &[vector(&[beside_a_tie, -beside_a_tie])]);
    let up = ((1i64 << 60) + (1 << 37)) as f32;
    let half =
        both(ConvertElementType { dtype: DType::BF16 }, &[vector(&[(1i64 << 60) + (1 << 52) + 1])]);
    assert_eq!(
        half,
        Literal::from_vec(&[1], vec![half::bf16::from_f32((1u64 << 60) as f32 * 1.0078125)])
            .unwrap()
    );
    assert_eq!(f, vector(&[up, -up]));
    let f = both(ConvertElementType { dtype: DType::F32 }, &[vector(&[beside_a_tie as u64 * 8])]);
    assert_eq!(f, vector(&[up * 8.0]));
}

#[test]
fn the_first_of_equals_and_the_first_not_a_number() {
    let arg = |extremum, x: &Literal| one(Argument { extremum, axis: 0, index: DType::I64 }, x);
    let ties = vector(&[1.0f32, 7.0, 7.0, -2.0, -2.0]);
    assert_eq!(arg(Extremum::Max, &ties), Literal::from(1i64));
    assert_eq!(arg(Extremum::Min, &ties), Literal::from(3i64));
    let nans = vector(&[1.0f32, -7.0, NAN, 70.0, NAN]);
    assert_eq!(arg(Extremum::Max, &nans), Literal::from(2i64));
    assert_eq!(arg(Extremum::Min, &nans), Literal::from(2i64));
    assert_eq!(arg(Extremum::Max, &vector(&[-0.0f32, 0.0])), Literal::from(0i64));
    assert_eq!(arg(Extremum::Max, &vector(&[i64::MIN, i64::MIN])), Literal::from(0i64));
}

#[test]
fn bounds_that_cross_give_the_upper_one() {
    let clamp = both(
        Clamp {},
        &[Literal::from(5.0f32), vector(&[0.0f32, 4.0, 9.0, NAN]), Literal::from(3.0f32)],
    );
    assert_eq!(floats(&clamp), ["3.0", "3.0", "3.0", "nan"]);
}

#[test]
fn windows_out_of_bounds() {
    let table = Literal::from_vec(&[3, 2], vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let ids = Literal::from_vec(&[4, 1], vec![i32::MIN, -1, 3, i32::MAX]).unwrap();
    let rows = Gather::rows(&table.ty(), 1);
    let clipped = both(rows.clone(), &[table.clone(), ids.clone()]);
    assert_eq!(clipped.as_slice::<f32>().unwrap(), [1.0, 2.0, 1.0, 2.0, 5.0, 6.0, 5.0, 6.0]);
    let filled = both(Gather { fill: Some(9.0f32.into()), ..rows }, &[table.clone(), ids.clone()]);
    assert_eq!(filled.as_slice::<f32>().unwrap(), [9.0; 8]);
    let scatter = |clip| Scatter {
        kind: ScatterKind::Add,
        update_window_dims: vec![1],
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        operand_batching_dims: vec![],
        scatter_indices_batching_dims: vec![],
        clip,
        unique_indices: false,
    };
    let ones = Literal::from_vec(&[4, 2], vec![1.0f32; 8]).unwrap();
    let zeros = Literal::zeros(DType::F32, &[3, 2]);
    let skipped = both(scatter(false), &[zeros.clone(), ids.clone(), ones.clone()]);
    assert_eq!(skipped, zeros);
    let clipped = both(scatter(true), &[zeros, ids, ones]);
    assert_eq!(clipped.as_slice::<f32>().unwrap(), [2.0, 2.0, 0.0, 0.0, 2.0, 2.0]);
}

#[test]
fn additions_to_one_element_are_made_in_order() {
    // 2²⁴ + 1 + 1 is 2²⁴ in f32; 1 + 1 + 2²⁴ is 2²⁴ + 2.
    let large = (1u32 << 24) as f32;
    let scatter = Scatter {
        kind: ScatterKind::Add,
        update_window_dims: vec![],
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        operand_batching_dims: vec![],
        scatter_indices_batching_dims: vec![],
        clip: false,
        unique_indices: false,
    };
    let at = Literal::from_vec(&[3, 1], vec![0i32; 3]).unwrap();
    let sum = |updates: [f32; 3]| {
        let zero = Literal::zeros(DType::F32, &[1]);
        both(scatter.clone(), &[zero, at.clone(), vector(&updates)]).as_slice::<f32>().unwrap()[0]
    };
    assert_eq!(sum([large, 1.0, 1.0]), large);
    assert_eq!(sum([1.0, 1.0, large]), large + 2.0);
}

#[test]
fn softmax_of_extremes() {
    let run = |kind, x: &[f32]| floats(&both(Softmax { kind, axis: 0 }, &[vector(x)]));
    assert_eq!(run(SoftmaxKind::Softmax, &[-INF, 0.0, -INF]), ["0.0", "1.0", "0.0"]);
    assert_eq!(run(SoftmaxKind::Softmax, &[1e30, 0.0]), ["1.0", "0.0"]);
    assert_eq!(run(SoftmaxKind::LogSumExp, &[-INF, -INF]), ["-inf"]);
    assert_eq!(run(SoftmaxKind::LogSumExp, &[]), ["-inf"]);
    assert_eq!(run(SoftmaxKind::LogSumExp, &[88.0, NAN]), ["nan"]);
    assert_eq!(run(SoftmaxKind::LogSoftmax, &[1e4, 0.0]), ["0.0", "-10000.0"]);
}

#[test]
fn normalizing_rows_without_size() {
    let op = |kind, epsilon: f64| Normalize { kind, axis: 0, epsilon: Scalar::of(epsilon) };
    let run = |kind, epsilon, x: &[f32]| floats(&both(op(kind, epsilon), &[vector(x)]));
    let (standard, rms) = (NormalizeKind::Standardize, NormalizeKind::Rms);
    assert_eq!(run(standard, 1e-3, &[2.0, 2.0]), ["0.0", "0.0"]);
    assert_eq!(run(standard, 0.0, &[2.0, 2.0]), ["nan", "nan"]);
    assert_eq!(run(standard, 0.0, &[1.0, 3.0]), ["-1.0", "1.0"]);
    assert_eq!(run(rms, 0.0, &[-2.0, 2.0]), ["-1.0", "1.0"]);
    assert_eq!(run(rms, 1e-3, &[-0.0, 0.0]), ["-0.0", "0.0"]);
    assert_eq!(run(rms, 1e-3, &[]), [] as [&str; 0]);
    // ε must be a finite, non-negative f64.
    let x = [TensorType::new(DType::F32, [2usize])];
    for epsilon in [Scalar::of(-1e-5), Scalar::of(f64::NAN), Scalar::of(1e-5f32)] {
        let op = Op::from(Normalize { kind: rms, axis: 0, epsilon });
        let error = op.infer(&x, &[]).unwrap_err().to_string();
        assert!(error.contains("a finite f64 of at least 0"), "{error}");
    }
}

#[test]
fn the_loss_of_a_label_that_is_no_class_is_not_a_number() {
    let logits = Literal::from_vec(&[4, 2], vec![0.0f32; 8]).unwrap();
    let loss = both(SoftmaxCrossEntropy {}, &[logits, vector(&[0i32, 2, -1, 1])]);
    let ln2 = std::f32::consts::LN_2.to_string();
    assert_eq!(floats(&loss), [ln2.as_str(), "nan", "nan", ln2.as_str()]);
    // Labels may have a dtype that is too narrow to count the classes.
    let wide = Literal::from_vec(&[1, 300], (0..300).map(|i| i as f32 / 100.0).collect()).unwrap();
    let loss = |labels| {
        execute(&SoftmaxCrossEntropy {}.into(), &[], &[wide.clone(), labels], Tree::SEQUENTIAL)
    };
    assert_eq!(loss(vector(&[44u8])), loss(vector(&[44i64])));
    assert!((loss(vector(&[44u8]))[0].get(0).to_f64() - 7.109).abs() < 1e-3);
}

/// Every half, in formats that have fewer exponent bits, fewer mantissa bits, fewer of both, or no
/// fewer.
#[test]
fn every_half_in_every_small_format() {
    let f16s: Vec<half::f16> = (0..=u16::MAX).map(half::f16::from_bits).collect();
    let bf16s: Vec<half::bf16> = (0..=u16::MAX).map(half::bf16::from_bits).collect();
    for (exponent_bits, mantissa_bits) in
        [(5, 9), (5, 3), (4, 10), (4, 3), (2, 1), (1, 0), (8, 0), (8, 7), (3, 8)]
    {
        let op = ReducePrecision { exponent_bits, mantissa_bits };
        one(op.clone(), &vector(&f16s));
        one(op, &vector(&bf16s));
    }
}

#[test]
fn roundings_to_known_formats_are_those_of_the_formats() {
    let x: Vec<f32> = (0..20_000u32).map(|i| f32::from_bits(i.wrapping_mul(214_783))).collect();
    // A normal number of f16 equals the conversion to f16. Numbers that would be subnormal in f16
    // become zero.
    let found = one(ReducePrecision { exponent_bits: 5, mantissa_bits: 10 }, &vector(&x));
    for (x, found) in x.iter().zip(found.as_slice::<f32>().unwrap()) {
        let half = half::f16::from_f32(*x);
        let tiny = half.to_f32().abs() < 2f32.powi(-14);
        let wanted = if tiny { 0.0f32.copysign(*x) } else { half.to_f32() };
        assert!(*found == wanted || x.is_nan() && found.is_nan(), "{x}: {found}, not {wanted}");
    }
    // bf16 has the range of f32, including subnormal numbers.
    let found = one(ReducePrecision { exponent_bits: 8, mantissa_bits: 7 }, &vector(&x));
    for (x, found) in x.iter().zip(found.as_slice::<f32>().unwrap()) {
        let wanted = half::bf16::from_f32(*x).to_f32();
        assert!(
            found.to_bits() == wanted.to_bits() || x.is_nan() && found.is_nan(),
            "{x}: {found}"
        );
    }
}

/// Every finite half: the next number up, and back again.
#[test]
fn every_half_has_its_neighbours() {
    let up = |x: &Literal, y: f32| {
        let y = Literal::full(x.shape(), Scalar::from_f64(x.dtype(), y.into()));
        both(NextAfter {}, &[x.clone(), y])
    };
    let finite: Vec<half::f16> =
        (0..=u16::MAX).map(half::f16::from_bits).filter(|x| x.is_finite()).collect();
    let next = up(&vector(&finite), INF);
    for (x, next) in finite.iter().zip(next.as_slice::<half::f16>().unwrap()) {
        let least = half::f16::from_bits(1);
        assert!(next > x && (next.to_f32() - x.to_f32() >= least.to_f32()), "{x}: {next}");
    }
    let back = up(&next, -INF);
    assert!(finite.iter().zip(back.as_slice::<half::f16>().unwrap()).all(|(x, back)| x == back));
    let finite: Vec<half::bf16> =
        (0..=u16::MAX).map(half::bf16::from_bits).filter(|x| x.is_finite()).collect();
    let next = up(&vector(&finite), INF);
    assert!(finite.iter().zip(next.as_slice::<half::bf16>().unwrap()).all(|(x, next)| next > x));
    let back = up(&next, -INF);
    assert!(finite.iter().zip(back.as_slice::<half::bf16>().unwrap()).all(|(x, back)| x == back));
    // Of equal numbers the second is the result, including the sign of its zero.
    let equal = both(NextAfter {}, &[vector(&[0.0f32, -0.0, 1.0]), vector(&[-0.0f32, 0.0, 1.0])]);
    assert_eq!(floats(&equal), ["-0.0", "0.0", "1.0"]);
}

/// Operands are converted to the result's dtype before they are multiplied, as lax does.
#[test]
fn products_of_integers_in_the_dtype_that_is_asked_for() {
    let dot = |result, x: Literal, y: Literal| {
        let op = DotGeneral {
            contract: (vec![0], vec![0]),
            batch: (vec![], vec![]),
            result: Some(result),
        };
        both(op, &[x, y])
    };
    let bytes = || vector(&[127i8, -128]);
    assert_eq!(dot(DType::I32, bytes(), bytes()), Literal::from(127 * 127 + 128 * 128i32));
    // 2²⁴ + 1 is not an f32. Its conversion rounds before the product, so the difference is lost.
    let large = vector(&[(1i32 << 24) + 1, -(1 << 24)]);
    assert_eq!(dot(DType::F32, large.clone(), vector(&[1, 1])), Literal::from(0.0f32));
    assert_eq!(dot(DType::I64, large, vector(&[1, 1])), Literal::from(1i64));
    assert_eq!(dot(DType::F64, vector(&[u64::MAX]), vector(&[1u64])), Literal::from(2f64.powi(64)));
    // Integers wrap as in the result's dtype. True is 1.
    assert_eq!(dot(DType::I8, vector(&[200u8]), vector(&[1u8])), Literal::from(-56i8));
    assert_eq!(
        dot(DType::I32, vector(&[true; 3]), vector(&[true, false, true])),
        Literal::from(2i32)
    );
    let count = ConvGeneralDilated { result: Some(DType::I32), ..ConvGeneralDilated::new(1) };
    let pairs = Literal::from_vec(&[1, 4, 1], vec![true, true, false, true]).unwrap();
    let window = Literal::from_vec(&[2, 1, 1], vec![true, true]).unwrap();
    assert_eq!(
        both(count, &[pairs, window]),
        Literal::from_vec(&[1, 3, 1], vec![2i32, 1, 1]).unwrap()
    );
}

/// Part 0 contains the lowest bits, on every machine.
#[test]
fn bits_are_little_endian() {
    let to = |dtype| BitcastConvertType { dtype };
    let bytes = both(to(DType::U8), &[vector(&[1.5f32, -0.0])]);
    assert_eq!(bytes, Literal::from_vec(&[2, 4], vec![0u8, 0, 0xc0, 0x3f, 0, 0, 0, 0x80]).unwrap());
    assert_eq!(both(to(DType::F32), &[bytes]), vector(&[1.5f32, -0.0]));
    let halves = both(to(DType::F16), &[Literal::from(0xfe00_3c00u32)]);
    let bits: Vec<u64> = halves.scalars().map(|s| s.bits()).collect();
    assert_eq!((bits[0], halves.get(1).to_f64().is_nan()), (0x3c00, true));
    // A NaN half is read as the bits of the canonical NaN.
    let nans = vector(&[half::f16::from_bits(0xfe03), half::f16::from_bits(0x7d00)]);
    assert_eq!(both(to(DType::U32), &[nans]), Literal::from(0x7e00_7e00u32));
    let nan = vector(&[half::bf16::from_bits(0xffa1)]);
    assert_eq!(
        both(to(DType::U8), &[nan]),
        Literal::from_vec(&[1, 2], vec![0xc0u8, 0x7f]).unwrap()
    );
}
