//! The bits of products, against the documented arithmetic written once more.
//!
//! The reference follows `semantics::tensor_core`'s definition in f64, in which every step of it is
//! exact for numbers of this size.

use crate::bench::Numbers;
use crate::products::{Layout, Spec};
use half::{bf16, f16};
use wengert_emulator::Asynchrony;

const PLAIN: Layout = Layout { mode: 0, transposed: false, skip: 0 };

/// A format of elements: name, bytes, exponent bits, fraction bits.
#[derive(Clone, Copy)]
struct Format(&'static str, u32, u32, u32);

const BF16: Format = Format("bf16", 2, 8, 7);
const F16: Format = Format("f16", 2, 5, 10);
const TF32: Format = Format("tf32", 4, 8, 10);
const E4M3: Format = Format("e4m3", 1, 4, 3);
const E5M2: Format = Format("e5m2", 1, 5, 2);

impl Format {
    /// The value of an element's bits: significand and exponent.
    fn value(self, bits: u32) -> (f64, i32) {
        let Format(name, _, exponent_bits, fraction_bits) = self;
        let bits = if name == "tf32" { bits >> 13 } else { bits };
        let sign = if bits >> (exponent_bits + fraction_bits) & 1 == 1 { -1.0 } else { 1.0 };
        let biased = (bits >> fraction_bits & ((1 << exponent_bits) - 1)) as i32;
        let fraction =
            f64::from(bits & ((1 << fraction_bits) - 1)) / f64::from(1u32 << fraction_bits);
        let bias = (1 << (exponent_bits - 1)) - 1;
        match (biased, fraction == 0.0) {
            (0, true) => (0.0, -126),
            (0, false) => (sign * fraction, 1 - bias),
            _ => (sign * (1.0 + fraction), biased - bias),
        }
    }

    /// Random bits of a finite number, of moderate size, sometimes zero or subnormal.
    fn random(self, numbers: &mut Numbers) -> u32 {
        let Format(name, _, exponent_bits, fraction_bits) = self;
        let bias = (1u64 << (exponent_bits - 1)) - 1;
        let spread = if exponent_bits == 8 { 24 } else { bias };
        let exponent = match numbers.below(16) {
            0 if exponent_bits != 8 => 0,
            _ => bias + numbers.below(spread) - spread / 2,
        };
        let fraction = if numbers.below(12) == 0 && exponent == 0 {
            0
        } else {
            numbers.below(1 << fraction_bits)
        };
        let sign = numbers.below(2) << (exponent_bits + fraction_bits);
        let bits = (sign | exponent << fraction_bits | fraction) as u32;
        if name == "tf32" { bits << 13 | numbers.below(1 << 13) as u32 } else { bits }
    }
}

fn exponent(x: f64, least: i32) -> i32 {
    if x == 0.0 {
        return -126;
    }
    // The exponent in the bits of an f64 is exact, a logarithm may not be.
    ((x.abs().to_bits() >> 52) as i32 - 1023).max(least)
}

/// A number, and its exponent.
type Parts = (f64, i32);

/// The fused sum of c and the products, in f64, and what is then kept of it.
fn reference(c: f64, c_exponent: i32, pairs: &[(Parts, Parts)], kept: i32) -> f64 {
    let largest = pairs.iter().map(|(a, b)| a.1 + b.1).fold(c_exponent, i32::max);
    let cut = |value: f64| (value * 2f64.powi(kept - largest)).trunc();
    let sum: f64 = pairs
        .iter()
        .map(|(a, b)| cut(a.0 * b.0 * 2f64.powi(a.1 + b.1)))
        .fold(cut(c), |sum, term| sum + term);
    sum * 2f64.powi(largest - kept)
}

fn check(format: [Format; 2], d: &'static str, seed: u64) {
    let mut numbers = Numbers(seed);
    let [x, y] = format;
    let k = 32 / x.1;
    let spec = Spec {
        n: 64,
        k,
        types: [d, x.0, y.0],
        bytes: x.1,
        a: if seed.is_multiple_of(2) { None } else { Some(PLAIN) },
        b: PLAIN,
        negate: [false; 2],
        adds: true,
        saturate: false,
    };
    let (n, k) = (64, k as usize);
    let a: Vec<u32> = (0..64 * k).map(|_| x.random(&mut numbers)).collect();
    let b: Vec<u32> = (0..n * k).map(|_| y.random(&mut numbers)).collect();
    let c: Vec<u32> = (0..64 * n)
        .map(|_| match d {
            "f16" => F16.random(&mut numbers),
            _ => (numbers.below(1 << 26) as f32 / 4096.0 - 8192.0).to_bits(),
        })
        .collect();
    let found = spec.run(&a, &b, &c, Asynchrony::Seeded(seed));
    let kept = if x.1 == 1 { 13 } else { 25 };
    let mut inexact = 0;
    for at in 0..64 * n {
        let (row, column) = (at / n, at % n);
        let pairs: Vec<_> =
            (0..k).map(|i| (x.value(a[row * k + i]), y.value(b[column * k + i]))).collect();
        let (c, e) = if d == "f16" {
            let (s, e) = F16.value(c[at]);
            (s * 2f64.powi(e), e)
        } else {
            let c = f64::from(f32::from_bits(c[at]));
            (c, exponent(c, -126))
        };
        let sum = reference(c, e, &pairs, kept);
        let exact: f64 =
            c + pairs.iter().map(|(a, b)| a.0 * b.0 * 2f64.powi(a.1 + b.1)).sum::<f64>();
        let expected = if d == "f16" {
            f16::from_f64(sum).to_bits().into()
        } else {
            let bits = if x.1 == 1 { 13 } else { 23 };
            let unit = 2f64.powi(exponent(sum, -126) - bits);
            (((sum / unit).trunc() * unit) as f32).to_bits()
        };
        // The sign of a zero is the definition's.
        let expected = if sum == 0.0 { 0 } else { expected };
        assert_eq!(found[at], expected, "{spec:?}: row {row}, column {column}");
        inexact += usize::from(sum != exact);
    }
    // The truncation of terms must show somewhere, else this test could not tell it.
    assert!(inexact > 100, "{}: {inexact} sums were cut", x.0);
}

#[test]
fn bits_of_sixteen_bit_products() {
    check([BF16, BF16], "f32", 11);
    check([F16, F16], "f32", 12);
    check([F16, F16], "f16", 13);
}

#[test]
fn bits_of_tf32_products() {
    check([TF32, TF32], "f32", 14);
    check([TF32, TF32], "f32", 15);
}

#[test]
fn bits_of_eight_bit_products() {
    check([E4M3, E4M3], "f32", 16);
    check([E5M2, E4M3], "f32", 17);
    check([E4M3, E5M2], "f16", 18);
    check([E5M2, E5M2], "f16", 19);
}

/// Sums stay near those in f64: each of the 17 terms loses less than a unit of 2⁻²⁵, and the result
/// less than 2⁻²³, of the largest term.
#[test]
fn sums_are_near_the_exact_ones() {
    let mut numbers = Numbers(20);
    let spec = Spec {
        n: 8,
        k: 16,
        types: ["f32", "bf16", "bf16"],
        bytes: 2,
        a: None,
        b: PLAIN,
        negate: [false; 2],
        adds: true,
        saturate: false,
    };
    let a: Vec<u32> = (0..1024).map(|_| BF16.random(&mut numbers)).collect();
    let b: Vec<u32> = (0..128).map(|_| BF16.random(&mut numbers)).collect();
    let found = spec.run(&a, &b, &[0; 512], Asynchrony::Late);
    for (at, found) in found.into_iter().enumerate() {
        let value = |bits: u32| bf16::from_bits(bits as u16).to_f64();
        let terms: Vec<f64> =
            (0..16).map(|i| value(a[at / 8 * 16 + i]) * value(b[at % 8 * 16 + i])).collect();
        let exact: f64 = terms.iter().sum();
        let largest = terms.iter().fold(0f64, |m, t| m.max(t.abs()));
        // A product of two significands may be up to four times its power of two.
        let bound = largest * (17.0 * 2f64.powi(-25) + 16.0 * 2f64.powi(-23));
        let off = (f64::from(f32::from_bits(found)) - exact).abs();
        assert!(off <= bound, "{at}: {off:e} beyond {bound:e}");
    }
}
