//! Every layout of A and B, by values whose products tell where each element lies.

use crate::bench::Numbers;
use crate::products::{Layout, Spec};
use half::bf16;
use wengert_emulator::Asynchrony;

const PLAIN: Layout = Layout { mode: 0, transposed: false, skip: 0 };

/// Small integers, whose sums of products are exact in f32 in any order.
fn integers(numbers: &mut Numbers, count: usize) -> Vec<f32> {
    (0..count).map(|_| numbers.below(33) as f32 - 16.0).collect()
}

fn halves(values: &[f32]) -> Vec<u32> {
    values.iter().map(|&v| bf16::from_f32(v).to_bits().into()).collect()
}

fn words(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn check(spec: Spec, numbers: &mut Numbers) {
    let (n, k) = (spec.n as usize, spec.k as usize);
    let (a, b) = (integers(numbers, 64 * k), integers(numbers, n * k));
    let c = integers(numbers, 64 * n);
    let encode = if spec.bytes == 2 { halves } else { words };
    let found = spec.run(&encode(&a), &encode(&b), &words(&c), Asynchrony::Late);
    let sign = if spec.negate[0] != spec.negate[1] { -1.0 } else { 1.0 };
    for row in 0..64 {
        for column in 0..n {
            let sum: f32 = (0..k).map(|i| a[row * k + i] * b[column * k + i]).sum();
            let start = if spec.adds { c[row * n + column] } else { 0.0 };
            let expected = start + sign * sum;
            let found = f32::from_bits(found[row * n + column]);
            assert_eq!(found, expected, "{spec:?}: row {row}, column {column}");
        }
    }
}

fn spec(n: u32, a: Option<Layout>, b: Layout) -> Spec {
    Spec {
        n,
        k: 16,
        types: ["f32", "bf16", "bf16"],
        bytes: 2,
        a,
        b,
        negate: [false; 2],
        adds: true,
        saturate: false,
    }
}

#[test]
fn sixteen_bit_operands_in_every_layout() {
    let mut numbers = Numbers(1);
    let mut layouts = Vec::new();
    for mode in 0..4 {
        for transposed in [false, true] {
            layouts.push(Layout { mode, transposed, skip: 0 });
        }
    }
    // Steps along k within the rows of a swizzle.
    layouts.push(Layout { mode: 1, transposed: false, skip: 32 });
    layouts.push(Layout { mode: 1, transposed: false, skip: 96 });
    layouts.push(Layout { mode: 2, transposed: false, skip: 32 });
    for &layout in &layouts {
        check(spec(64, Some(layout), PLAIN), &mut numbers);
        check(spec(128, Some(PLAIN), layout), &mut numbers);
    }
    // A's 64 rows fill the widest pattern of a transposed operand; so must B's columns.
    check(spec(256, Some(layouts[3]), layouts[3]), &mut numbers);
}

#[test]
fn sixteen_bit_operands_from_registers() {
    let mut numbers = Numbers(2);
    for n in [8, 24, 256] {
        check(spec(n, None, PLAIN), &mut numbers);
    }
    let transposed = Layout { mode: 1, transposed: true, skip: 0 };
    check(spec(64, None, transposed), &mut numbers);
}

#[test]
fn signs_and_accumulators() {
    let mut numbers = Numbers(3);
    for negate in [[true, false], [false, true], [true, true]] {
        check(Spec { negate, ..spec(16, Some(PLAIN), PLAIN) }, &mut numbers);
    }
    check(Spec { adds: false, ..spec(16, Some(PLAIN), PLAIN) }, &mut numbers);
    check(Spec { adds: false, negate: [true, false], ..spec(16, None, PLAIN) }, &mut numbers);
}

#[test]
fn tf32_operands() {
    let mut numbers = Numbers(4);
    let tf32 = |a, b| Spec { k: 8, types: ["f32", "tf32", "tf32"], bytes: 4, ..spec(32, a, b) };
    for mode in 0..4 {
        let layout = Layout { mode, transposed: false, skip: 0 };
        check(tf32(Some(layout), PLAIN), &mut numbers);
        check(tf32(None, layout), &mut numbers);
    }
}

#[test]
fn integer_operands() {
    let mut numbers = Numbers(5);
    for (types, signed) in [
        (["s32", "s8", "s8"], [true, true]),
        (["s32", "u8", "s8"], [false, true]),
        (["s32", "u8", "u8"], [false, false]),
    ] {
        for (a, saturate) in [(None, false), (Some(Layout { mode: 3, ..PLAIN }), true)] {
            let b = Layout { mode: 1, transposed: false, skip: 64 };
            let (n, k) = (48, 32);
            let spec = Spec { n, k, types, bytes: 1, saturate, ..spec(n, a, b) };
            let (n, k) = (n as usize, k as usize);
            let mut bytes = |count: usize| -> Vec<u32> {
                (0..count).map(|_| numbers.below(256) as u32).collect()
            };
            let (x, y) = (bytes(64 * k), bytes(n * k));
            // Accumulators near the ends of the range overflow.
            let c: Vec<u32> = (0..64 * n)
                .map(|at| [0, i32::MAX as u32 - 99, i32::MIN as u32 + 99][at % 3])
                .collect();
            let found = spec.run(&x, &y, &c, Asynchrony::Late);
            let value = |bits: u32, signed: bool| {
                if signed { i64::from(bits as u8 as i8) } else { i64::from(bits) }
            };
            for at in 0..64 * n {
                let (row, column) = (at / n, at % n);
                let sum: i64 = (0..k)
                    .map(|i| value(x[row * k + i], signed[0]) * value(y[column * k + i], signed[1]))
                    .sum();
                let sum = sum + i64::from(c[at] as i32);
                let expected =
                    if saturate { sum.clamp(i32::MIN.into(), i32::MAX.into()) } else { sum };
                assert_eq!(found[at], expected as u32, "{spec:?}: {at}");
            }
        }
    }
}
