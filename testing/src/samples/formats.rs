//! Ops on the format of numbers, and powers.

use super::prelude::*;
use wengert_core::float8::{f8e4m3fn, f8e5m2};
use wengert_core::op::{
    BitcastConvertType, ConvertElementType, IntegerPow, NextAfter, Polygamma, ReducePrecision,
};

pub(super) fn samples() -> Vec<Sample> {
    [
        integer_pow(),
        polygamma(),
        nextafter(),
        reduce_precision(),
        convert_element_type(),
        bitcast_convert_type(),
    ]
    .concat()
}

fn integer_pow() -> Vec<Sample> {
    let sample = |exponent, operand| Sample::new(IntegerPow { exponent }, vec![operand]);
    let mut samples: Vec<Sample> =
        (-4..=7).map(|exponent| sample(exponent, floats(&[3, 5], 0.5, 2.0))).collect();
    samples.extend([
        sample(3, floats(&[3, 5], -2.0, -0.5)),
        sample(-3, floats(&[3, 5], -2.0, -0.5)),
        sample(37, values(&[4], [2.0f32, -0.5, -1.0, 0.25])),
        sample(0, values(&[4], [0.0f32, -0.0, f32::NAN, f32::INFINITY])),
        sample(-1, values(&[4], [0.0f32, -0.0, f32::INFINITY, -4.0])),
        sample(-2, values(&[3], [0.0f64, -0.0, f64::NEG_INFINITY])),
        sample(i64::from(i32::MAX), values(&[2], [1.0f32, -1.0])),
        sample(i64::from(i32::MIN), values(&[2], [1.0f32, -1.0])),
        sample(5, values(&[4], [-7i32, 0, 1, i32::MAX])),
        sample(0, values(&[2], [0u8, 9])),
        sample(3, values(&[3], [-7i8, 5, i8::MIN])),
        sample(2, values(&[2], [u64::MAX, 1 << 33])),
    ]);
    samples
}

fn polygamma() -> Vec<Sample> {
    let sample = |order, operand| Sample::new(Polygamma { order }, vec![operand]);
    vec![
        sample(0, floats(&[5], 1.8, 6.0)),
        sample(1, floats(&[3, 5], 0.6, 6.0)),
        sample(1, floats(&[5], -1.7, -1.3)),
        sample(2, floats(&[5], 0.6, 3.0)),
        sample(3, floats(&[5], 0.9, 3.0)),
        sample(7, floats(&[5], 2.0, 4.0)),
        sample(1, values(&[6], [0.0f32, -3.0, 1e30, 1e-3, f32::INFINITY, f32::NAN])),
        sample(2, values(&[4], [0.0f32, -3.0, 30.0, f32::NAN])),
        sample(30, values(&[2], [10.5f64, 3.0])),
    ]
}

fn nextafter() -> Vec<Sample> {
    use wengert_core::half::{bf16, f16};
    let (infinity, nan) = (f32::INFINITY, f32::NAN);
    let ends: [f32; 12] = [
        0.0,
        -0.0,
        0.0,
        1.0,
        1.0,
        -1.0,
        f32::MAX,
        infinity,
        -infinity,
        nan,
        1.0,
        f32::MIN_POSITIVE,
    ];
    let towards: [f32; 12] =
        [1.0, -1.0, -0.0, 2.0, 0.0, 0.0, infinity, 0.0, infinity, 1.0, nan, 0.0];
    // For halves, the values where the spacing changes: 2⁻¹⁴, the greatest number, infinity.
    let halves: [f64; 12] = [
        0.0,
        2f64.powi(-24),
        -(2f64.powi(-24)),
        2f64.powi(-14),
        -(2f64.powi(-14)),
        2f64.powi(-14),
        65504.0,
        f64::INFINITY,
        -65504.0,
        3.0 * 2f64.powi(-20),
        1.0,
        2f64.powi(-14) - 2f64.powi(-24),
    ];
    let others: [f64; 12] = [-1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1e9, 0.0, -1e9, -1.0, 0.0, 1.0];
    vec![
        Sample::new(NextAfter {}, vec![floats(&[3, 5], -2.0, 2.0), floats(&[3, 5], -2.0, 2.0)]),
        Sample::new(NextAfter {}, vec![values(&[12], ends), values(&[12], towards)]),
        Sample::new(
            NextAfter {},
            vec![values(&[12], ends.map(f64::from)), values(&[12], towards.map(f64::from))],
        ),
        Sample::new(
            NextAfter {},
            vec![
                values(&[12], halves.map(f16::from_f64)),
                values(&[12], others.map(f16::from_f64)),
            ],
        ),
        Sample::new(
            NextAfter {},
            vec![
                values(&[12], ends.map(bf16::from_f32)),
                values(&[12], towards.map(bf16::from_f32)),
            ],
        ),
    ]
}

fn reduce_precision() -> Vec<Sample> {
    use wengert_core::half::{bf16, f16};
    let sample = |exponent_bits, mantissa_bits, operand| {
        Sample::new(ReducePrecision { exponent_bits, mantissa_bits }, vec![operand])
    };
    let formats =
        [(5, 10), (8, 7), (4, 3), (5, 2), (1, 0), (8, 23), (11, 52), (20, 60), (11, 5), (3, 40)];
    // Ties, both sides of the limits of small formats, subnormal numbers, infinities and NaN.
    let edges: [f64; 16] = [
        0.0,
        -0.0,
        1.0625,
        1.1875,
        -65504.0,
        65519.0,
        65520.0,
        247.9,
        248.0,
        2f64.powi(-14),
        -(2f64.powi(-15)),
        3.7 * 2f64.powi(-20),
        2f64.powi(-133) * 1.25,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let halves =
        [0x0180, 0x8181, 0x0001, 0x03ff, 0x0400, 0x7bff, 0x7c00, 0xfbf0].map(f16::from_bits);
    let mut samples: Vec<Sample> =
        formats.iter().map(|(e, m)| sample(*e, *m, floats(&[3, 5], -3.0, 3.0))).collect();
    samples.extend([
        sample(5, 10, values(&[16], edges)),
        sample(8, 7, values(&[16], edges)),
        sample(4, 3, values(&[16], edges.map(|v| v as f32))),
        sample(8, 5, values(&[16], edges.map(|v| v as f32))),
        sample(5, 3, values(&[16], edges.map(f16::from_f64))),
        sample(4, 3, values(&[16], edges.map(f16::from_f64))),
        sample(5, 2, values(&[16], edges.map(bf16::from_f64))),
        sample(8, 3, values(&[16], edges.map(bf16::from_f64))),
        sample(5, 2, values(&[8], halves)),
        sample(11, 0, values(&[8], halves)),
    ]);
    samples
}

fn convert_element_type() -> Vec<Sample> {
    DType::ALL
        .into_iter()
        .flat_map(|dtype| {
            let sample = |operand| Sample::new(ConvertElementType { dtype }, vec![operand]);
            let inf = f64::INFINITY;
            [
                sample(floats(&[3, 5], -3.0, 3.0)),
                // Saturating, NaN to 0, truncated towards 0; halves and singles overflow and
                // round to nearest even.
                sample(values(
                    &[9],
                    [f64::NAN, inf, -inf, -0.0, -0.9, 300.5, -1e10, 1e20, 65520.0],
                )),
                sample(values(&[5], [i64::MIN, -1, 255, (1 << 24) + 1, i64::MAX])),
                sample(values(&[3], [u64::MAX, (1 << 53) + 1, 2])),
                sample(values(&[2], [true, false])),
                sample(values(&[0], [0.0f32; 0])),
                // All numbers of the 8-bit floats.
                sample(values(&[256], (0..=255).map(f8e4m3fn::from_bits))),
                sample(values(&[256], (0..=255).map(f8e5m2::from_bits))),
            ]
        })
        .chain([DType::F8E4M3FN, DType::F8E5M2].into_iter().flat_map(beside_ties))
        .collect()
}

/// Conversions to an 8-bit float of its numbers, of the middle between neighbours, and of the
/// values beside both.
fn beside_ties(dtype: DType) -> [Sample; 4] {
    let number = |bits: u64| Scalar::from_bits(dtype, bits).to_f64();
    let ties = (0..0x7e).filter(|bits| number(bits + 1).is_finite()).flat_map(|bits| {
        let (low, high) = (number(bits), number(bits + 1));
        [low, (low + high) / 2.0, -low, -(low + high) / 2.0]
    });
    let ties: Vec<f64> = ties.collect();
    let sample = |operand| Sample::new(ConvertElementType { dtype }, vec![operand]);
    let halves = ties.iter().map(|v| wengert_core::half::f16::from_f64(*v));
    let brains = ties.iter().map(|v| wengert_core::half::bf16::from_f64(*v));
    let singles = ties.iter().map(|v| *v as f32).flat_map(|v| [v.next_down(), v, v.next_up()]);
    let doubles = ties.iter().flat_map(|v| [v.next_down(), *v, v.next_up()]);
    [
        sample(values(&[ties.len()], halves)),
        sample(values(&[ties.len()], brains)),
        sample(values(&[3 * ties.len()], singles)),
        sample(values(&[3 * ties.len()], doubles)),
    ]
}

fn bitcast_convert_type() -> Vec<Sample> {
    let sample = |dtype, operand| Sample::new(BitcastConvertType { dtype }, vec![operand]);
    // Zeros, a subnormal number, the least and the greatest normal ones, an infinity, and NaNs
    // with a sign and a payload.
    let f16s = || {
        [
            0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x3c01, 0xfbff, 0x7c00, 0xfc00, 0x7e01, 0xfd00,
            0x4248,
        ]
    };
    let bf16s = || {
        [
            0x0000, 0x8000, 0x0001, 0x807f, 0x0080, 0x3f81, 0xff7f, 0x7f80, 0xff80, 0x7fc1, 0xffa0,
            0x4049,
        ]
    };
    let f16 = |shape: &[usize]| values(shape, f16s().map(wengert_core::half::f16::from_bits));
    let bf16 = |shape: &[usize]| values(shape, bf16s().map(wengert_core::half::bf16::from_bits));
    let bytes: [u8; 16] =
        [0, 1, 0x7f, 0xff, 0x18, 0x2d, 0x44, 0x54, 0xfb, 0x21, 0x09, 0x40, 0xdb, 0x0f, 0x49, 0xc0];
    vec![
        sample(DType::U32, values(&[3], [1.5f32, -0.0, f32::INFINITY])),
        sample(DType::F32, values(&[3], [0x3f80_0000u32, 0x8000_0000, 3])),
        sample(DType::I64, values(&[2], [1.5f64, -2.25])),
        sample(DType::F64, values(&[2], [0x3ff0_0000_0000_0000i64, 0])),
        sample(DType::I8, values(&[3], [255u8, 0, 7])),
        sample(DType::U8, values(&[3], [-1i8, 0, 7])),
        sample(DType::I32, values(&[2], [u32::MAX, 5])),
        sample(DType::U64, values(&[2], [-1i64, 5])),
        sample(
            DType::BF16,
            values(
                &[2],
                [
                    wengert_core::half::f16::from_bits(0x3c00),
                    wengert_core::half::f16::from_bits(0x4200),
                ],
            ),
        ),
        // Parts of an element: of 4, 8 and 2 bytes; of scalars, several axes and no elements.
        sample(DType::U8, values(&[3], [1.5f32, -0.0, f32::NEG_INFINITY])),
        sample(DType::I8, values(&[], [0x80ff_7f01u32])),
        sample(
            DType::U8,
            values(&[2, 3], [1.5f64, -0.0, 5e-324, f64::MAX, -std::f64::consts::PI, 0.1]),
        ),
        sample(DType::I32, values(&[2], [i64::MIN + 7, 0x0123_4567_89ab_cdef])),
        sample(DType::F32, values(&[3], [1.5f64, -2.25, 1e300])),
        sample(DType::F16, values(&[3], [0x7c00_3c00u32, 0x8001_fbff, 0x0400_83ff])),
        sample(DType::BF16, values(&[3], [0x7f80_3f80i32, 0x0001_ff7f, 0x0080_807f])),
        sample(DType::F16, values(&[2], [1.5f32, -0.1])),
        sample(DType::BF16, values(&[1, 2], [0x4000_3c00_8001_0400u64, 0x7c00_fc00_7e01_fd00])),
        sample(DType::U8, f16(&[12])),
        sample(DType::I8, bf16(&[3, 4])),
        sample(DType::U8, values(&[0, 3], [0.0f32; 0])),
        // Elements from parts.
        sample(DType::F32, values(&[4, 4], bytes)),
        sample(DType::I64, values(&[2, 8], bytes)),
        sample(DType::F64, values(&[2, 1, 8], bytes)),
        sample(DType::U32, values(&[4], [-1i8, 0, 127, -128])),
        sample(DType::F16, values(&[8, 2], bytes)),
        sample(DType::BF16, values(&[8, 2], bytes)),
        sample(DType::U32, f16(&[6, 2])),
        sample(DType::U64, bf16(&[3, 4])),
        sample(DType::F32, bf16(&[2, 3, 2])),
        sample(DType::F64, f16(&[3, 4])),
        sample(DType::F64, values(&[2, 2], [0u32, 0x3ff8_0000, 7, 0])),
        sample(DType::I64, values(&[2], [-1i32, 5])),
        sample(DType::U32, values(&[0, 4], [0u8; 0])),
    ]
}
