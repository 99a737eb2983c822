//! Samples of elementwise ops, of `select` and of `select_n`.

use super::prelude::*;
use wengert_core::op::{Binary, Clamp, Compare, IsFinite, Select, SelectN, Unary};

pub(super) fn samples() -> Vec<Sample> {
    [unary(), binary(), compare(), select(), select_n(), clamp(), is_finite()].concat()
}

/// An op that is smooth on −2..2 needs no arm.
fn unary() -> Vec<Sample> {
    let of = |op: &Unary| {
        let operands = match op {
            Unary::Exp | Unary::Exp2 | Unary::Cosh => vec![floats(&[3, 5], -3.0, 3.0)],
            Unary::Logistic | Unary::Sin | Unary::Cos => vec![floats(&[3, 5], -4.0, 4.0)],
            Unary::Asin | Unary::Acos | Unary::Atanh => {
                vec![floats(&[3, 5], -0.9, 0.9), values(&[5], [-0.0f32, 1.0, -1.0, 1.5, f32::NAN])]
            }
            Unary::Sqrt | Unary::Log => vec![floats(&[3, 5], 0.1, 5.0)],
            Unary::Neg => vec![floats(&[3, 5], -2.0, 2.0), values(&[4], [1i32, -7, i32::MIN, 0])],
            Unary::Abs => vec![
                floats(&[3, 5], -2.0, -0.1),
                floats(&[3, 5], 0.1, 2.0),
                values(&[3], [-7i8, i8::MIN, 5]),
            ],
            Unary::Sign => vec![
                floats(&[3, 5], -2.0, -0.1),
                floats(&[3, 5], 0.1, 2.0),
                values(&[4], [-7i32, 0, 5, i32::MIN]),
                values(&[3], [0u64, u64::MAX, 5]),
            ],
            Unary::Floor => vec![floats(&[3, 5], -1.9, -1.1), floats(&[3, 5], 3.1, 3.9)],
            Unary::Ceil => vec![
                floats(&[3, 5], -1.9, -1.1),
                floats(&[3, 5], 3.1, 3.9),
                floats(&[5], -0.9, -0.1),
            ],
            Unary::Round => vec![floats(&[3, 5], -1.4, -0.6), floats(&[3, 5], 2.6, 3.4)],
            Unary::Square => vec![floats(&[3, 5], -2.0, 2.0), values(&[3], [-7i32, 46341, 5])],
            Unary::Reciprocal => vec![floats(&[3, 5], 0.5, 3.0), floats(&[3, 5], -3.0, -0.5)],
            Unary::Rsqrt => vec![floats(&[3, 5], 0.2, 5.0)],
            Unary::Log1p => vec![floats(&[3, 5], -0.5, 3.0)],
            Unary::Tan => vec![floats(&[3, 5], -1.2, 1.2)],
            Unary::Sinh => vec![
                floats(&[3, 5], -3.0, 3.0),
                values(&[5], [-0.0f32, 100.0, -89.0, f32::INFINITY, f32::NAN]),
            ],
            Unary::Atan => vec![
                floats(&[3, 5], -3.0, 3.0),
                values(&[4], [-0.0f32, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]),
            ],
            Unary::Asinh => vec![
                floats(&[3, 5], -3.0, 3.0),
                values(&[4], [-0.0f32, 1e30, f32::NEG_INFINITY, f32::NAN]),
            ],
            Unary::Acosh => vec![
                floats(&[3, 5], 1.2, 4.0),
                values(&[5], [1.0f32, 0.5, 1e30, f32::INFINITY, f32::NAN]),
            ],
            Unary::Cbrt => vec![
                floats(&[3, 5], 0.2, 5.0),
                floats(&[3, 5], -5.0, -0.2),
                values(&[5], [-0.0f32, -27.0, 1e-44, f32::NEG_INFINITY, f32::NAN]),
            ],
            Unary::Log2 => vec![
                floats(&[3, 5], 0.1, 5.0),
                values(&[6], [0.0f32, 8.0, 1e-44, -1.0, f32::INFINITY, f32::NAN]),
            ],
            Unary::Not => vec![
                values(&[2], [true, false]),
                values(&[3], [0u8, 255, 9]),
                values(&[3], [0i64, -1, 9]),
            ],
            Unary::Popcnt => vec![
                values(&[5], [0i8, -1, 1, i8::MIN, 0x55]),
                values(&[4], [0u8, 255, 1, 0x80]),
                values(&[5], [0i32, -1, 7, i32::MIN, 0x5555_5555]),
                values(&[3], [u32::MAX, 0, 0x8000_0001]),
                values(&[4], [0i64, -1, i64::MIN, 0x0f0f_0f0f_0f0f_0f0f]),
                values(&[3], [u64::MAX, 1 << 63 | 1, 0]),
            ],
            Unary::Clz => vec![
                values(&[5], [0i8, -1, 1, i8::MIN, 0x35]),
                values(&[4], [0u8, 255, 1, 0x40]),
                values(&[5], [0i32, -1, 7, i32::MIN, 0x0055_5555]),
                values(&[3], [u32::MAX, 0, 0x4000_0001]),
                values(&[4], [0i64, -1, 1 << 33, 0x0f0f_0f0f]),
                values(&[3], [u64::MAX, 1 << 62 | 1, 0]),
            ],
            Unary::StopGradient => vec![
                floats(&[3, 5], -2.0, 2.0),
                values(&[4], [-0.0f32, f32::INFINITY, f32::NAN, 1e-40]),
                values(&[2], [i32::MIN, 5]),
                values(&[2], [u64::MAX, 0]),
                values(&[2], [true, false]),
            ],
            Unary::Erfc => vec![
                floats(&[3, 5], -2.0, 3.0),
                values(&[5], [9.0f32, 11.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]),
            ],
            Unary::ErfInv => vec![
                floats(&[3, 5], -0.95, 0.95),
                values(&[6], [-0.0f32, 1.0, -1.0, 0.999_999_9, 1.5, f32::NAN]),
            ],
            Unary::Lgamma => vec![
                floats(&[3, 5], 0.3, 9.5),
                floats(&[3, 5], -1.8, -1.2),
                values(&[6], [0.0f32, -3.0, 1.0, 2.0, f32::NEG_INFINITY, f32::NAN]),
            ],
            Unary::Digamma => vec![
                floats(&[3, 5], 1.8, 9.5),
                floats(&[3, 5], 0.2, 1.1),
                floats(&[3, 5], -1.4, -1.1),
                values(&[5], [0.0f32, -3.0, 1e30, f32::INFINITY, f32::NAN]),
            ],
            _ => vec![floats(&[3, 5], -2.0, 2.0)],
        };
        operands.into_iter().map(|x| Sample::new(*op, vec![x])).collect::<Vec<_>>()
    };
    Unary::ALL.iter().flat_map(of).collect()
}

/// An op that is smooth on −2..2 in both operands needs no arm.
fn binary() -> Vec<Sample> {
    let of = |op: &Binary| {
        let operands = match op {
            Binary::Max | Binary::Min => vec![
                (floats(&[3, 5], -2.0, 2.0), floats(&[3, 5], -2.0, 2.0)),
                (values(&[3], [-7i32, 3, 5]), values(&[3], [2i32, 3, -5])),
                (values(&[2], [u64::MAX, 3]), values(&[2], [1u64, 4])),
            ],
            Binary::And | Binary::Or => vec![
                (
                    values(&[4], [true, true, false, false]),
                    values(&[4], [true, false, true, false]),
                ),
                (values(&[3], [12i32, -1, 7]), values(&[3], [10i32, 99, -8])),
            ],
            Binary::Div => vec![(floats(&[3, 5], -2.0, 2.0), floats(&[3, 5], 0.5, 2.0))],
            Binary::Rem => vec![(floats(&[3, 5], 3.1, 3.9), floats(&[3, 5], 0.81, 0.99))],
            Binary::Pow => vec![(floats(&[3, 5], 0.2, 3.0), floats(&[3, 5], -2.0, 2.0))],
            Binary::Atan2 => vec![
                (floats(&[3, 5], 0.2, 2.0), floats(&[3, 5], -2.0, 2.0)),
                (floats(&[3, 5], -2.0, -0.2), floats(&[3, 5], -2.0, 2.0)),
            ],
            Binary::Xor => vec![
                (
                    values(&[4], [true, true, false, false]),
                    values(&[4], [true, false, true, false]),
                ),
                (values(&[3], [12u8, 255, 7]), values(&[3], [10u8, 99, 8])),
            ],
            Binary::ShiftLeft => vec![
                (values(&[5], [1u32, 3, 5, 7, 9]), values(&[5], [0u32, 31, 32, 4, u32::MAX])),
                (values(&[4], [-1i64, 3, 5, 7]), values(&[4], [63i64, 64, -1, 4])),
                (values(&[4], [-1i8, 3, 5, 7]), values(&[4], [7i8, 8, -1, 4])),
            ],
            Binary::ShiftRightLogical => vec![
                (values(&[5], [u32::MAX, 3, 5, 7, 9]), values(&[5], [3u32, 31, 32, 1, u32::MAX])),
                (values(&[4], [-1i64, -3, 5, 7]), values(&[4], [63i64, 64, -1, 0])),
                (values(&[4], [-1i8, -3, 5, -7]), values(&[4], [7i8, 8, -1, 1])),
            ],
            Binary::ShiftRightArithmetic => vec![
                (values(&[4], [-1i64, i64::MIN, 5, -7]), values(&[4], [63i64, 64, -1, 1])),
                (values(&[4], [-128i8, -3, 5, -7]), values(&[4], [7i8, 8, -1, 1])),
                (values(&[4], [u32::MAX - 1, 1 << 31, 5, 7]), values(&[4], [1u32, 32, 1, 0])),
            ],
            _ => vec![(floats(&[3, 5], -2.0, 2.0), floats(&[3, 5], -2.0, 2.0))],
        };
        operands.into_iter().map(|(x, y)| Sample::new(*op, vec![x, y])).collect::<Vec<_>>()
    };
    Binary::ALL.iter().flat_map(of).collect()
}

fn compare() -> Vec<Sample> {
    let of = |&op: &Compare| {
        vec![
            Sample::new(op, vec![floats(&[3, 5], -1.0, 1.0), floats(&[3, 5], -1.0, 1.0)]),
            Sample::new(
                op,
                vec![
                    values(&[2, 3], [1i32, 2, 3, -4, 5, 6]),
                    values(&[2, 3], [1i32, 3, 2, -4, -5, 6]),
                ],
            ),
            Sample::new(op, vec![values(&[3], [u64::MAX, 0, 3]), values(&[3], [1u64, 1, 3])]),
            Sample::new(op, vec![values(&[2], [false, true]), values(&[2], [true, true])]),
            Sample::new(
                op,
                vec![
                    values(&[5], [0.0f32, f32::NAN, f32::INFINITY, 1.0, 2.0]),
                    values(&[5], [-0.0f32, f32::NAN, f32::INFINITY, f32::NAN, 1.0]),
                ],
            ),
        ]
    };
    Compare::ALL.iter().flat_map(of).collect()
}

fn select() -> Vec<Sample> {
    let choices = || (floats(&[2, 3], -2.0, 2.0), floats(&[2, 3], -2.0, 2.0));
    let sample = |pred| Sample::new(Select {}, vec![pred, choices().0, choices().1]);
    vec![
        sample(values(&[2, 3], [true, false, false, true, true, false])),
        sample(values(&[], [true])),
        sample(values(&[], [false])),
        Sample::new(
            Select {},
            vec![values(&[2], [true, false]), values(&[2], [3i8, 4]), values(&[2], [5i8, 6])],
        ),
    ]
}

fn select_n() -> Vec<Sample> {
    let case = || floats(&[2, 3], -2.0, 2.0);
    let sample = |which, count| {
        let cases = (0..count).map(|_| case());
        Sample::new(SelectN {}, std::iter::once(which).chain(cases).collect())
    };
    vec![
        sample(values(&[2, 3], [true, false, false, true, true, false]), 2),
        sample(values(&[], [true]), 2),
        sample(values(&[], [false]), 2),
        sample(values(&[], [true]), 1),
        sample(values(&[2, 3], [0i32, 1, 2, 2, 1, 0]), 3),
        sample(values(&[2, 3], [-1i32, 4, i32::MIN, i32::MAX, 3, 1]), 4),
        sample(values(&[], [1i32]), 3),
        sample(values(&[], [7i32]), 3),
        sample(values(&[2, 3], [0i32, 1, 2, -9, 9, 0]), 1),
        Sample::new(
            SelectN {},
            vec![
                values(&[3], [2i32, 0, 1]),
                values(&[3], [3i8, 4, 5]),
                values(&[3], [5i8, 6, 7]),
                values(&[3], [7i8, 8, 9]),
            ],
        ),
        Sample::new(
            SelectN {},
            vec![
                values(&[2], [true, false]),
                values(&[2], [true, false]),
                values(&[2], [false, true]),
            ],
        ),
    ]
}

fn clamp() -> Vec<Sample> {
    let sample = |bound: &[usize]| {
        let operands =
            vec![floats(bound, -0.9, -0.6), floats(&[3, 5], -2.0, 2.0), floats(bound, 0.7, 0.9)];
        Sample::new(Clamp {}, operands)
    };
    vec![
        sample(&[]),
        sample(&[3, 5]),
        Sample::new(
            Clamp {},
            vec![values(&[], [2u64]), values(&[3], [u64::MAX, 0, 5]), values(&[], [7u64])],
        ),
    ]
}

fn is_finite() -> Vec<Sample> {
    let special = values(&[4], [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX]);
    vec![
        Sample::new(IsFinite {}, vec![floats(&[3, 5], -2.0, 2.0)]),
        Sample::new(IsFinite {}, vec![special]),
    ]
}
