//! Matrix products.

use super::{DTYPES, Device, check, check_random, operands};
use proptest::prelude::*;
use wengert_core::call::{Addends, Call, Gemm, Matrix, Scale, Scales};
use wengert_core::nest::ScalarOp;
use wengert_core::nest::evaluate::evaluate;
use wengert_core::{DType, Literal, Scalar};

/// A product of row-major matrices, without addends.
pub fn product(batch: usize, [m, n, k]: [usize; 3], operand: DType, result: DType) -> Gemm {
    Gemm {
        batch,
        m,
        n,
        k,
        lhs: Matrix { batch: m * k, row: k, column: 1 },
        rhs: Matrix { batch: k * n, row: n, column: 1 },
        operand,
        rhs_operand: None,
        scales: None,
        accumulate: if operand.is_half() || operand.is_float8() { DType::F32 } else { operand },
        result,
        addends: Addends::default(),
        pitch: None,
    }
}

/// A product with padding between the rows of its result, unless it adds a residual.
fn padded(gemm: Gemm, padding: usize) -> Gemm {
    let pitch = (padding > 0 && !gemm.addends.residual).then_some(gemm.n + padding);
    Gemm { pitch, ..gemm }
}

/// A layout: contiguous rows, contiguous columns, gaps between elements, one matrix for all
/// products, or interleaved products.
pub fn lay_out(order: usize, rows: usize, columns: usize) -> Matrix {
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

fn check_product<D: Device>(gemm: Gemm, seed: u64) {
    let call = Call::Gemm(gemm);
    check::<D>(&call, || operands(&call, seed));
}

/// Random extents, layouts, dtypes and addends.
pub fn small_products<D: Device>() {
    let extent = || prop_oneof![Just(1usize), 0usize..4, 4usize..40];
    let calls = (
        prop::sample::select(&DTYPES[..]),
        any::<bool>(),
        0usize..4,
        [extent(), extent(), extent()],
        [0usize..5, 0usize..5, 0usize..4, 0usize..9],
    )
        .prop_map(|(operand, wide, batch, [m, n, k], [left, right, steps, padding])| {
            let result = if wide && operand.is_half() { DType::F32 } else { operand };
            let (lhs, rhs) = (lay_out(left, m, k), lay_out(right, k, n));
            let addends = addends(steps);
            let product = product(batch, [m, n, k], operand, result);
            Call::Gemm(padded(Gemm { lhs, rhs, addends, ..product }, padding.saturating_sub(3)))
        });
    check_random::<D>(300, calls, operands);
}

/// Products of several tiles. Their edges are not multiples of the tile, and their depths are
/// split.
pub fn large_products<D: Device>() {
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
            let gemm = Gemm { lhs, rhs, addends, ..product(batch, extents, dtype, dtype) };
            check_product::<D>(padded(gemm, 3 * (n % 2)), n as u64);
        }
    }
}

/// Several tiles, whose edges are at, just before and just after those of the matrices; every
/// layout.
pub fn tiles_and_edges<D: Device>() {
    for (n, extents) in
        [[64, 64, 64], [63, 65, 33], [65, 63, 31], [129, 5, 17], [5, 129, 70], [128, 72, 96]]
            .into_iter()
            .enumerate()
    {
        let [m, columns, k] = extents;
        for dtype in [DType::F32, DType::BF16, DType::F16, DType::F64, DType::I8, DType::I64] {
            for order in 0..4 {
                let (lhs, rhs) = (lay_out(order % 2, m, k), lay_out(order / 2, k, columns));
                let addends = addends(5 * n + 3 * order);
                let gemm = Gemm { lhs, rhs, addends, ..product(1, extents, dtype, dtype) };
                check_product::<D>(padded(gemm, 5 * ((n + order) % 2)), n as u64);
            }
        }
    }
}

/// A product of 8-bit floats, whose operands lie along the sum.
pub fn float8(extents: [usize; 3], factors: [DType; 2], result: DType) -> Gemm {
    let [_, n, k] = extents;
    let [operand, rhs] = factors;
    Gemm {
        rhs: lay_out(1, k, n),
        rhs_operand: (rhs != operand).then_some(rhs),
        ..product(1, extents, operand, result)
    }
}

/// Operands of a product of 8-bit floats: finite numbers, and scales of either sign.
pub fn float8_operands(gemm: &Gemm, seed: u64) -> Vec<Literal> {
    let mut all = operands(&Call::Gemm(gemm.clone()), seed);
    for (operand, dtype) in all.iter_mut().zip(gemm.factors()) {
        let numbers = super::numbers(DType::F32, operand.shape(), seed ^ operand.len() as u64);
        let bits = numbers.scalars().map(|x| {
            let bits = Scalar::from_f64(dtype, x.to_f64()).bits();
            Scalar::from_bits(DType::U8, bits)
        });
        let bits: Vec<Scalar> = bits.collect();
        *operand = Literal::from_scalars(DType::U8, numbers.shape(), &bits).expect("as many");
    }
    if gemm.scales.is_some() {
        for scale in &mut all[2..4] {
            // Sums of thousands of terms stay within f16.
            let small = scale.scalars().map(|x| Scalar::from_f64(DType::F32, x.to_f64() / 64.0));
            let small: Vec<Scalar> = small.collect();
            *scale = Literal::from_scalars(DType::F32, scale.shape(), &small).expect("as many");
        }
    }
    all
}

/// Products of 8-bit floats of both formats, with scales and addends. Tiles are whole and partial,
/// rows aligned and not, and sums are split.
pub fn products_of_float8<D: Device>() {
    let formats = [DType::F8E4M3FN, DType::F8E5M2];
    let scales = [
        None,
        Some(Scales { lhs: Scale::Whole, rhs: Scale::Whole }),
        Some(Scales { lhs: Scale::Rows, rhs: Scale::Rows }),
        Some(Scales { lhs: Scale::Rows, rhs: Scale::Whole }),
        Some(Scales { lhs: Scale::Whole, rhs: Scale::Rows }),
    ];
    let extents = [
        [1, 1, 1],
        [3, 5, 0],
        [64, 64, 64],
        [65, 63, 33],
        [17, 130, 100],
        [1, 70, 4096],
        [5, 3, 1000],
        [130, 16, 2048],
    ];
    let mut n = 0;
    for extents in extents {
        for scales in scales {
            let factors = [formats[n % 2], formats[n / 2 % 2]];
            let result = [DType::F32, DType::BF16, DType::F16][n % 3];
            let gemm = Gemm { scales, addends: addends(n), ..float8(extents, factors, result) };
            let call = Call::Gemm(padded(gemm.clone(), n % 5));
            check::<D>(&call, || float8_operands(&gemm, n as u64));
            n += 1;
        }
    }
    // A batch, and rows of lhs that are apart.
    let one = float8([20, 24, 96], formats, DType::F32);
    let batch = Gemm {
        batch: 3,
        lhs: Matrix { batch: 20 * 112, row: 112, column: 1 },
        rhs: Matrix { batch: 24 * 96, ..one.rhs },
        ..one
    };
    check::<D>(&Call::Gemm(batch.clone()), || float8_operands(&batch, 5));
}

/// Products with long sums, or with one row or one column.
pub fn long() -> impl Iterator<Item = Gemm> {
    let row_major = [
        ([20, 30, 1111], DType::F32),
        ([20, 32, 1040], DType::BF16),
        ([20, 30, 1000], DType::F64),
        ([20, 30, 700], DType::I64),
        ([1, 300, 5000], DType::F32),
        ([1, 40, 100], DType::F64),
        ([300, 1, 5000], DType::F32),
        ([7, 1, 30000], DType::F32),
        ([1, 1, 3000], DType::F64),
        ([41, 1, 1001], DType::F16),
        ([41, 1, 130], DType::I64),
        ([41, 1, 132], DType::U8),
    ]
    .into_iter()
    .map(|(extents, dtype)| {
        let addends = Addends { bias: true, residual: true };
        Gemm { addends, ..product(1, extents, dtype, dtype) }
    });
    let rhs = lay_out(1, 800, 33);
    row_major.chain([Gemm { rhs, ..product(2, [1, 33, 800], DType::BF16, DType::F32) }])
}

/// Products of a few rows, or columns, with a matrix of each layout.
pub fn few() -> impl Iterator<Item = Gemm> {
    let cases = [
        (1, [2, 70, 64], DType::F32),
        (1, [8, 264, 300], DType::BF16),
        (3, [4, 48, 130], DType::F16),
        (1, [3, 33, 65], DType::F64),
        (1, [5, 2100, 70], DType::BF16),
        (2, [1, 24, 9000], DType::F32),
        (1, [8, 16, 2048], DType::F32),
        (1, [7, 40, 100], DType::I8),
        (1, [100, 6, 96], DType::BF16),
        (1, [1, 520, 257], DType::F16),
    ];
    cases.into_iter().enumerate().flat_map(|(n, (batch, extents, dtype))| {
        let [m, columns, k] = extents;
        (0..2).map(move |order| {
            let (lhs, rhs) = (lay_out(n % 2, m, k), lay_out(order, k, columns));
            let addends = addends(n + order);
            Gemm { lhs, rhs, addends, ..product(batch, extents, dtype, dtype) }
        })
    })
}

/// The products of [`few`].
pub fn few_rows<D: Device>() {
    few().for_each(|gemm| check_product::<D>(gemm, 5));
}

/// The products of [`long`].
pub fn long_sums<D: Device>() {
    long().for_each(|gemm| check_product::<D>(gemm, 4));
}

/// Addends have the bits of their ops, applied one by one to the sums of the product alone. Sums of
/// halves are rounded once, after the residual and then the bias are added in f32.
pub fn addends_have_the_bits_of_their_ops<D: Device>() {
    for dtype in super::FLOATS {
        let wide = if dtype.is_half() { DType::F32 } else { dtype };
        let convert = |x: Scalar, to: DType| evaluate(ScalarOp::Convert, &[x], to);
        let add = |x: Scalar, y: Scalar| evaluate(ScalarOp::Add, &[x, convert(y, wide)], wide);
        let plain = product(1, [37, 45, 8], dtype, wide);
        let addends = Addends { bias: true, residual: true };
        let call = Call::Gemm(Gemm { addends, result: dtype, ..plain.clone() });
        let mut operands = operands(&call, 9);
        // The sums include large, small, zero and negative numbers, and NaN.
        let scaled = operands[0].scalars().enumerate().map(|(i, x)| {
            let row = i / 8;
            let scale = if row == 30 { f64::NAN } else { 2f64.powi(row as i32 % 24 - 18) };
            Scalar::from_f64(dtype, if row % 7 == 3 { 0.0 } else { x.to_f64() * scale })
        });
        let scaled: Vec<Scalar> = scaled.collect();
        operands[0] = Literal::from_scalars(dtype, &[37 * 8], &scaled).expect("37 rows of 8");
        let sums = D::run(&Call::Gemm(plain), &operands[..2]).remove(0);
        let found = D::run(&call, &operands).remove(0);
        for at in 0..37 * 45 {
            let (bias, residual) = (operands[2].get(at % 45), operands[3].get(at));
            let [first, second] = if dtype.is_half() { [residual, bias] } else { [bias, residual] };
            let wanted = convert(add(add(sums.get(at), first), second), dtype);
            let found = found.get(at);
            let same = found.bits() == wanted.bits()
                || (found.to_f64().is_nan() && wanted.to_f64().is_nan());
            assert!(same, "{dtype} at {at}: {found} instead of {wanted}");
        }
    }
}

/// Halves are summed in f32, and the sum is rounded once.
pub fn halves_are_summed_in_f32<D: Device>() {
    let of = |values: &[f64]| {
        let values: Vec<Scalar> =
            values.iter().map(|v| Scalar::from_f64(DType::BF16, *v)).collect();
        Literal::from_scalars(DType::BF16, &[values.len()], &values).expect("one dimension")
    };
    // 256 + 1 + 1 is 258 in f32, and 258 in bf16 after one rounding. Rounded after each addition it
    // would stay 256.
    for rows in [1, 3] {
        let call = Call::Gemm(product(1, [rows, rows, 3], DType::BF16, DType::BF16));
        let operands = [of(&[256.0, 1.0, 1.0].repeat(rows)), of(&vec![1.0; 3 * rows])];
        assert_eq!(D::run(&call, &operands)[0].get(0).to_f64(), 258.0);
    }
}
