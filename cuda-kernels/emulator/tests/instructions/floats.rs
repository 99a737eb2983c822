//! Floating-point arithmetic, comparisons and approximations.

use crate::row;
use crate::table::check;

fn f(value: f32) -> u32 {
    value.to_bits()
}

fn d(value: f64) -> u64 {
    value.to_bits()
}

const NAN: u32 = 0x7fff_ffff;
/// The smallest subnormal f32.
const TINY: u32 = 1;
const MINUS_ZERO: u32 = 1 << 31;

#[test]
fn single_precision() {
    let (one, half_ulp) = (f(1.0), f(2f32.powi(-24)));
    check(&[
        row!(
            Word, "add.rn.f32 %w9, %w0, %w1;",
            [one, half_ulp] => one, [one, f(2f32.powi(-23))] => one + 1,
            [f(f32::INFINITY), f(f32::NEG_INFINITY)] => NAN,
        ),
        row!(
            Word, "add.rp.f32 %w9, %w0, %w1;",
            [one, TINY] => one + 1, [one, MINUS_ZERO | TINY] => one,
        ),
        row!(
            Word, "add.rm.f32 %w9, %w0, %w1;",
            [one, TINY] => one, [one, MINUS_ZERO | TINY] => one - 1, [one, f(-1.0)] => MINUS_ZERO,
        ),
        row!(Word, "add.rz.f32 %w9, %w0, %w1;", [f(f32::MAX), f(f32::MAX)] => f(f32::MAX)),
        row!(
            Word, "add.ftz.f32 %w9, %w0, %w1;",
            [TINY, TINY] => 0, [MINUS_ZERO | TINY, MINUS_ZERO] => MINUS_ZERO,
        ),
        row!(
            Word, "add.sat.f32 %w9, %w0, %w1;",
            [one, one] => one, [one, f(-3.0)] => 0, [0x7fc0_0000, one] => 0,
        ),
        row!(Word, "sub.f32 %w9, %w0, %w1;", [one, one] => 0),
        row!(
            Word, "mul.rn.f32 %w9, %w0, %w1;",
            [f(3.0), f(-0.0)] => MINUS_ZERO, [f(f32::INFINITY), 0] => NAN,
        ),
        row!(Word, "mul.rz.f32 %w9, %w0, %w1;", [0x3f80_0001, 0x3f80_0001] => 0x3f80_0002),
        row!(Word, "mul.rp.f32 %w9, %w0, %w1;", [0x3f80_0001, 0x3f80_0001] => 0x3f80_0003),
        row!(
            Word, "fma.rn.f32 %w9, %w0, %w1, %w2;",
            [0x3f80_0001, 0x3f80_0001, 0xbf80_0002_u32] => f(2f32.powi(-46)),
        ),
        row!(Word, "fma.rn.ftz.f32 %w9, %w0, %w1, %w2;", [TINY, one, TINY] => 0),
        row!(Word, "fma.rm.sat.f32 %w9, %w0, %w1, %w2;", [one, one, one] => one),
        row!(Word, "mad.rn.f32 %w9, %w0, %w1, %w2;", [f(2.0), f(3.0), f(4.0)] => f(10.0)),
        row!(
            Word, "div.rn.f32 %w9, %w0, %w1;",
            [one, f(3.0)] => 0x3eaa_aaab, [one, 0] => f(f32::INFINITY), [0, 0] => NAN,
        ),
        row!(Word, "div.rz.f32 %w9, %w0, %w1;", [one, f(3.0)] => 0x3eaa_aaaa),
        row!(Word, "div.approx.f32 %w9, %w0, %w1;", [f(6.0), f(3.0)] => f(2.0)),
        row!(Word, "div.full.ftz.f32 %w9, %w0, %w1;", [TINY, f(3.0)] => 0),
        row!(Word, "rcp.rn.f32 %w9, %w0;", [f(3.0)] => 0x3eaa_aaab),
        row!(Word, "rcp.rp.f32 %w9, %w0;", [f(10.0)] => 0x3dcc_cccd),
        row!(
            Word, "sqrt.rn.f32 %w9, %w0;",
            [f(2.0)] => 0x3fb5_04f3, [f(-1.0)] => NAN, [MINUS_ZERO] => MINUS_ZERO,
        ),
        row!(Word, "sqrt.rp.f32 %w9, %w0;", [f(2.0)] => 0x3fb5_04f4),
        row!(
            Word, "min.f32 %w9, %w0, %w1;",
            [f(-0.0), 0] => MINUS_ZERO, [0x7fc0_0000, one] => one,
            [0x7fc0_0000, 0x7fc0_0000] => NAN,
        ),
        row!(Word, "max.f32 %w9, %w0, %w1;", [f(-0.0), 0] => 0, [f(-2.0), f(-3.0)] => f(-2.0)),
        row!(
            Word, "max.NaN.f32 %w9, %w0, %w1;",
            [0x7fc0_0000, one] => NAN, [one, f(2.0)] => f(2.0),
        ),
        row!(
            Word, "min.xorsign.abs.f32 %w9, %w0, %w1;",
            [f(-3.0), f(2.0)] => f(-2.0), [f(-3.0), f(-4.0)] => f(3.0),
        ),
        row!(Word, "abs.f32 %w9, %w0;", [f(-2.0)] => f(2.0), [MINUS_ZERO] => 0),
        row!(Word, "neg.ftz.f32 %w9, %w0;", [TINY] => MINUS_ZERO, [one] => f(-1.0)),
        row!(Word, "copysign.f32 %w9, %w0, %w1;", [f(-1.0), f(5.0)] => f(-5.0)),
    ]);
}

#[test]
fn double_precision() {
    check(&[
        row!(Long, "add.rn.f64 %x9, %x0, %x1;", [d(1.0), d(2f64.powi(-53))] => d(1.0)),
        row!(Long, "add.rp.f64 %x9, %x0, %x1;", [d(1.0), 1] => d(1.0) + 1),
        row!(
            Long, "sub.f64 %x9, %x0, %x1;",
            [d(f64::INFINITY), d(f64::INFINITY)] => 0xfff8_0000_0000_0000_u64,
        ),
        row!(Long, "mul.rm.f64 %x9, %x0, %x1;", [d(1.0) + 1, d(1.0) + 1] => d(1.0) + 2),
        row!(
            Long, "fma.rn.f64 %x9, %x0, %x1, %x2;",
            [d(1.0) + 1, d(1.0) + 1, d(-1.0) + 2] => d(2f64.powi(-104)),
        ),
        row!(Long, "div.rn.f64 %x9, %x0, %x1;", [d(1.0), d(3.0)] => d(1.0 / 3.0)),
        row!(Long, "sqrt.rz.f64 %x9, %x0;", [d(2.0)] => 0x3ff6_a09e_667f_3bcc_u64),
        row!(Long, "sqrt.rp.f64 %x9, %x0;", [d(2.0)] => 0x3ff6_a09e_667f_3bcd_u64),
        row!(Long, "rcp.rn.f64 %x9, %x0;", [d(4.0)] => d(0.25)),
        row!(Long, "rcp.approx.ftz.f64 %x9, %x0;", [d(4.0)] => d(0.25)),
        row!(Long, "min.f64 %x9, %x0, %x1;", [d(1.0), d(-1.0)] => d(-1.0)),
        row!(Long, "abs.f64 %x9, %x0;", [d(-1.0)] => d(1.0)),
        row!(Long, "copysign.f64 %x9, %x0, %x1;", [d(-1.0), d(5.0)] => d(-5.0)),
    ]);
}

#[test]
fn half_precision() {
    // 1 is 0x3c00 and 0x3f80; 2048 is 0x6800.
    check(&[
        row!(
            Half, "add.rn.f16 %h9, %h0, %h1;",
            [0x3c00, 0x3c00] => 0x4000, [0x6800, 0x3c00] => 0x6800, [0x7bff, 0x7bff] => 0x7c00,
        ),
        row!(Half, "add.sat.f16 %h9, %h0, %h1;", [0x3c00, 0x3c00] => 0x3c00),
        row!(Half, "add.ftz.f16 %h9, %h0, %h1;", [1, 1] => 0),
        row!(Half, "sub.f16 %h9, %h0, %h1;", [0x3c00, 0x3c00] => 0),
        row!(Half, "mul.rn.f16 %h9, %h0, %h1;", [1, 0x3800] => 0, [3, 0x3800] => 2),
        row!(Half, "fma.rn.f16 %h9, %h0, %h1, %h2;", [0x3c01, 0x3c01, 0xbc02] => 0x0010),
        row!(Half, "fma.rn.relu.f16 %h9, %h0, %h1, %h2;", [0x3c00, 0x3c00, 0xc000] => 0),
        row!(
            Word, "fma.rn.f16x2 %w9, %w0, %w1, %w2;",
            [0x3c00_4000, 0x4000_4000, 0x3c00_3c00] => 0x4200_4500,
        ),
        row!(Word, "add.rn.f16x2 %w9, %w0, %w1;", [0x3c00_4000, 0x3c00_4000] => 0x4000_4400),
        row!(Word, "mul.f16x2 %w9, %w0, %w1;", [0x3c00_4000, 0xbc00_4000_u32] => 0xbc00_4400_u32),
        row!(Word, "max.f16x2 %w9, %w0, %w1;", [0x3c00_7e00, 0xbc00_4000_u32] => 0x3c00_4000),
        row!(
            Word, "min.NaN.f16x2 %w9, %w0, %w1;",
            [0x3c00_7e00, 0xbc00_4000_u32] => 0xbc00_7fff_u32,
        ),
        row!(Word, "neg.f16x2 %w9, %w0;", [0x3c00_bc00] => 0xbc00_3c00_u32),
        row!(Word, "abs.bf16x2 %w9, %w0;", [0xbf80_bf80_u32] => 0x3f80_3f80),
        row!(
            Half, "fma.rn.bf16 %h9, %h0, %h1, %h2;",
            [0x3f80, 0x4000, 0x3f80] => 0x4040, [0x3f81, 0x3f81, 0xbf82] => 0x3880,
        ),
        row!(
            Word, "fma.rn.relu.bf16x2 %w9, %w0, %w1, %w2;",
            [0x3f80_3f80, 0x4000_4000, 0x3f80_c080] => 0x4040_0000,
        ),
        row!(
            Half, "add.rn.bf16 %h9, %h0, %h1;",
            [0x3f80, 0x3f80] => 0x4000, [0x4380, 0x3f80] => 0x4380,
        ),
        row!(Half, "mul.rn.bf16 %h9, %h0, %h1;", [0x3fc0, 0x3fc0] => 0x4010),
        row!(Half, "max.bf16 %h9, %h0, %h1;", [0xbf80, 0x3f80] => 0x3f80),
        row!(Half, "tanh.approx.f16 %h9, %h0;", [0] => 0, [0x7c00] => 0x3c00),
        row!(Half, "ex2.approx.f16 %h9, %h0;", [0x3c00] => 0x4000),
        row!(Word, "ex2.approx.ftz.bf16x2 %w9, %w0;", [0x3f80_4000] => 0x4000_4080),
    ]);
}

#[test]
fn approximations_are_rounded_once() {
    check(&[
        row!(
            Word, "ex2.approx.f32 %w9, %w0;",
            [f(3.0)] => f(8.0), [f(0.5)] => f(std::f32::consts::SQRT_2),
            [f(f32::NEG_INFINITY)] => 0,
        ),
        row!(Word, "ex2.approx.ftz.f32 %w9, %w0;", [f(-130.0)] => 0),
        row!(
            Word, "lg2.approx.f32 %w9, %w0;",
            [f(8.0)] => f(3.0), [0] => f(f32::NEG_INFINITY), [f(-1.0)] => NAN,
        ),
        row!(
            Word, "sin.approx.f32 %w9, %w0;",
            [0] => 0, [f(1.0)] => f(1f64.sin() as f32), [f(f32::INFINITY)] => NAN,
        ),
        row!(Word, "cos.approx.ftz.f32 %w9, %w0;", [TINY] => f(1.0)),
        row!(Word, "tanh.approx.f32 %w9, %w0;", [f(20.0)] => f(1.0)),
        row!(Word, "rsqrt.approx.f32 %w9, %w0;", [f(4.0)] => f(0.5), [0] => f(f32::INFINITY)),
        row!(Word, "rcp.approx.ftz.f32 %w9, %w0;", [f(4.0)] => f(0.25), [TINY] => f(f32::INFINITY)),
        row!(Word, "sqrt.approx.f32 %w9, %w0;", [f(9.0)] => f(3.0)),
    ]);
}

#[test]
fn comparisons() {
    let nan = 0x7fc0_0000;
    check(&[
        row!(Predicate, "setp.lt.f32 %p9, %w0, %w1;", [f(1.0), f(2.0)] => 1, [nan, f(2.0)] => 0),
        row!(Predicate, "setp.ltu.f32 %p9, %w0, %w1;", [f(3.0), f(2.0)] => 0, [nan, f(2.0)] => 1),
        row!(Predicate, "setp.eq.f32 %p9, %w0, %w1;", [MINUS_ZERO, 0] => 1, [nan, nan] => 0),
        row!(Predicate, "setp.ne.f32 %p9, %w0, %w1;", [f(1.0), f(2.0)] => 1, [nan, nan] => 0),
        row!(Predicate, "setp.neu.f32 %p9, %w0, %w1;", [nan, nan] => 1),
        row!(Predicate, "setp.num.f32 %p9, %w0, %w1;", [nan, 0] => 0, [0, 0] => 1),
        row!(Predicate, "setp.nan.f64 %p9, %x0, %x1;", [d(f64::NAN), 0] => 1),
        row!(Predicate, "setp.eq.ftz.f32 %p9, %w0, %w1;", [TINY, MINUS_ZERO] => 1),
        row!(Predicate, "setp.gt.f16 %p9, %h0, %h1;", [0x4000, 0x3c00] => 1, [0x7e00, 0] => 0),
        row!(Predicate, "setp.le.bf16 %p9, %h0, %h1;", [0xbf80, 0x3f80] => 1),
        row!(
            Predicate, "setp.gt.f16x2 %p8|%p9, %w0, %w1;",
            [0x4000_0000, 0x3c00_3c00] => 1, [0x0000_4000, 0x3c00_3c00] => 0,
        ),
        row!(
            Word, "set.lt.f32.f32 %w9, %w0, %w1;",
            [f(1.0), f(2.0)] => f(1.0), [f(2.0), f(1.0)] => 0,
        ),
        row!(Word, "set.gt.f16x2.f16x2 %w9, %w0, %w1;", [0x4000_0000, 0x3c00_3c00] => 0x3c00_0000),
        row!(Predicate, "testp.finite.f32 %p9, %w0;", [f(f32::MAX)] => 1, [f(f32::INFINITY)] => 0),
        row!(Predicate, "testp.subnormal.f32 %p9, %w0;", [TINY] => 1, [0] => 0),
        row!(Predicate, "testp.normal.f64 %p9, %x0;", [d(1.0)] => 1, [1] => 0),
        row!(Predicate, "testp.notanumber.f32 %p9, %w0;", [nan] => 1, [0] => 0),
        row!(Predicate, "testp.infinite.f64 %p9, %x0;", [d(f64::NEG_INFINITY)] => 1),
    ]);
}
