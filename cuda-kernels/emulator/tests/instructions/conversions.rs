//! `cvt`, `mov` of parts, `cvta`.

use crate::row;
use crate::table::check;

fn f(value: f32) -> u32 {
    value.to_bits()
}

fn d(value: f64) -> u64 {
    value.to_bits()
}

#[test]
fn between_integers() {
    check(&[
        row!(Word, "cvt.s32.s8 %w9, %w0;", [0x180] => 0xffff_ff80_u32),
        row!(Word, "cvt.u32.u8 %w9, %w0;", [0x180] => 0x80),
        row!(Long, "cvt.s64.s32 %x9, %w0;", [0x8000_0000_u32] => -0x8000_0000_i64),
        row!(Long, "cvt.u64.u32 %x9, %w0;", [0x8000_0000_u32] => 0x8000_0000_u32),
        row!(Half, "cvt.u16.u32 %h9, %w0;", [0x1_2345] => 0x2345),
        row!(Half, "cvt.s16.s8 %h9, %h0;", [0x80] => 0xff80),
        row!(Word, "cvt.sat.u8.s32 %w9, %w0;", [-5i32 as u32] => 0, [300] => 255),
        row!(Word, "cvt.sat.s8.s32 %w9, %w0;", [-500i32 as u32] => 0xffff_ff80_u32),
        row!(Word, "cvt.sat.s32.s64 %w9, %x0;", [1i64 << 40] => 0x7fff_ffff),
        row!(
            Word, "cvt.pack.sat.u8.s32.b32 %w9, %w0, %w1, %w2;",
            [300, -1i32 as u32, 0x1234] => 0x1234_ff00,
        ),
    ]);
}

#[test]
fn to_and_from_floats() {
    check(&[
        row!(
            Word, "cvt.rn.f32.s32 %w9, %w0;",
            [-1i32 as u32] => f(-1.0), [0x0100_0001] => f(16_777_216.0),
        ),
        row!(Word, "cvt.rp.f32.u32 %w9, %w0;", [0x0100_0001] => f(16_777_218.0)),
        row!(Word, "cvt.rz.f32.u64 %w9, %x0;", [u64::MAX] => 0x5f7f_ffff),
        row!(Long, "cvt.rn.f64.u64 %x9, %x0;", [u64::MAX] => d(18_446_744_073_709_551_616.0)),
        row!(
            Word, "cvt.rzi.s32.f32 %w9, %w0;",
            [f(-1.9)] => -1i32 as u32, [f(3e9)] => 0x7fff_ffff, [f(f32::NAN)] => 0,
        ),
        row!(Word, "cvt.rni.s32.f32 %w9, %w0;", [f(2.5)] => 2, [f(3.5)] => 4),
        row!(Word, "cvt.rmi.s32.f32 %w9, %w0;", [f(-1.1)] => -2i32 as u32),
        row!(Word, "cvt.rpi.u32.f32 %w9, %w0;", [f(1.1)] => 2, [f(-1.1)] => 0),
        row!(Word, "cvt.rni.ftz.s32.f32 %w9, %w0;", [1] => 0),
        row!(Long, "cvt.rzi.s64.f64 %x9, %x0;", [d(-1e300)] => i64::MIN, [d(7.9)] => 7),
        row!(Word, "cvt.rzi.u32.f64 %w9, %x0;", [d(f64::NAN)] => 0x8000_0000_u32, [d(5.5)] => 5),
        row!(Half, "cvt.rzi.u16.f16 %h9, %h0;", [0x4580] => 5),
        row!(
            Half, "cvt.rn.f16.s32 %h9, %w0;",
            [2049] => 0x6800, [2051] => 0x6802, [70_000] => 0x7c00,
        ),
        row!(Word, "cvt.rni.f32.f32 %w9, %w0;", [f(2.5)] => f(2.0), [f(-0.3)] => 0x8000_0000_u32),
        row!(Word, "cvt.rmi.f32.f32 %w9, %w0;", [f(-0.3)] => f(-1.0)),
        row!(Long, "cvt.rpi.f64.f64 %x9, %x0;", [d(0.2)] => d(1.0)),
        row!(Word, "cvt.sat.f32.f32 %w9, %w0;", [f(1.5)] => f(1.0), [f(-1.5)] => 0),
        row!(
            Word, "cvt.rn.f32.f64 %w9, %x0;",
            [d(1.0 + 2f64.powi(-24))] => f(1.0), [d(1e300)] => f(f32::INFINITY),
        ),
        row!(Word, "cvt.rz.f32.f64 %w9, %x0;", [d(1e300)] => f(f32::MAX)),
        row!(Word, "cvt.rm.f32.f64 %w9, %x0;", [d(-1.0 - 2f64.powi(-40))] => f(-1.0) + 1),
        row!(Long, "cvt.f64.f32 %x9, %w0;", [f(0.1)] => d(f64::from(0.1f32))),
        row!(Long, "cvt.ftz.f64.f32 %x9, %w0;", [1] => 0),
    ]);
}

#[test]
fn narrow_floats() {
    check(&[
        row!(
            Word, "cvt.f32.f16 %w9, %h0;",
            [1] => f(2f32.powi(-24)), [0xfc00] => f(f32::NEG_INFINITY),
        ),
        row!(Word, "cvt.f32.bf16 %w9, %h0;", [0x3fc0] => f(1.5)),
        row!(
            Half, "cvt.rn.f16.f32 %h9, %w0;",
            [f(65520.0)] => 0x7c00, [f(65519.0)] => 0x7bff, [f(f32::NAN)] => 0x7fff,
        ),
        row!(Half, "cvt.rz.f16.f32 %h9, %w0;", [f(65520.0)] => 0x7bff),
        row!(Half, "cvt.rn.bf16.f32 %h9, %w0;", [0x3f80_8000] => 0x3f80, [0x3f81_8000] => 0x3f82),
        row!(Half, "cvt.rn.relu.bf16.f32 %h9, %w0;", [f(-2.0)] => 0),
        row!(
            Half, "cvt.rn.f16.f64 %h9, %x0;",
            [d(1.0 + 2f64.powi(-11) + 2f64.powi(-50))] => 0x3c01,
        ),
        row!(Long, "cvt.f64.f16 %x9, %h0;", [0x3e00] => d(1.5)),
        row!(Word, "cvt.rn.f16x2.f32 %w9, %w0, %w1;", [f(1.0), f(2.0)] => 0x3c00_4000),
        row!(Word, "cvt.rn.relu.f16x2.f32 %w9, %w0, %w1;", [f(-1.0), f(2.0)] => 0x0000_4000),
        row!(Word, "cvt.rz.bf16x2.f32 %w9, %w0, %w1;", [0x3f80_ffff, f(2.0)] => 0x3f80_4000),
        row!(Word, "cvt.rna.tf32.f32 %w9, %w0;", [0x3f80_1000] => 0x3f80_2000),
        row!(Word, "cvt.rn.tf32.f32 %w9, %w0;", [0x3f80_1000] => 0x3f80_0000),
        row!(Half, "cvt.rn.satfinite.e4m3x2.f32 %h9, %w0, %w1;", [f(1.0), f(1e9)] => 0x387e),
        row!(Half, "cvt.rn.satfinite.e5m2x2.f32 %h9, %w0, %w1;", [f(1.0), f(1e9)] => 0x3c7b),
        row!(Word, "cvt.rn.f16x2.e4m3x2 %w9, %h0;", [0x387e] => 0x3c00_5f00),
        row!(Word, "cvt.rn.f16x2.e5m2x2 %w9, %h0;", [0x3c7b] => 0x3c00_7b00),
    ]);
}

#[test]
fn parts() {
    check(&[
        row!(Long, "mov.b64 %x9, {%w0, %w1};", [1, 2] => 0x2_0000_0001_u64),
        row!(Word, "mov.b64 {%w8, %w9}, %x0;", [0x2_0000_0001_u64] => 2),
        row!(Word, "mov.b64 {_, %w9}, %x0;", [0x2_0000_0001_u64] => 2),
        row!(Word, "mov.b32 %w9, {%h0, %h1};", [1, 2] => 0x2_0001),
        row!(Half, "mov.b32 {%h8, %h9}, %w0;", [0x2_0001] => 2),
        row!(Long, "mov.b64 %x9, {%h0, %h1, %h2, %h3};", [1, 2, 3, 4] => 0x0004_0003_0002_0001_u64),
        row!(Half, "mov.b64 {%h6, %h7, %h8, %h9}, %x0;", [0x0004_0003_0002_0001_u64] => 4),
        row!(Half, "mov.b16 %h9, %h0;", [0x12345] => 0x2345),
        row!(Word, "mov.f32 %w9, 0f3F800000;", [0] => f(1.0)),
        row!(Word, "mov.f32 %w9, 1.5;", [0] => f(1.5)),
        row!(Long, "mov.f64 %x9, 0d3FF8000000000000;", [0] => d(1.5)),
        row!(Word, "mov.u32 %w9, WARP_SZ;", [0] => 32),
        row!(Word, "mov.b32 %w9, 0x80000000U;", [0] => 0x8000_0000_u32),
        row!(Word, "mov.s32 %w9, -1;", [0] => u32::MAX),
        row!(
            Predicate, "{ .reg .b64 %y; cvta.shared.u64 %y, %x0; isspacep.shared %p9, %y; }",
            [0] => 1,
        ),
        row!(
            Predicate, "{ .reg .b64 %y; cvta.shared.u64 %y, %x0; isspacep.global %p9, %y; }",
            [0] => 0,
        ),
        row!(
            Long, "{ .reg .b64 %y; cvta.local.u64 %y, %x0; cvta.to.local.u64 %x9, %y; }",
            [24] => 24,
        ),
        row!(Predicate, "isspacep.global %p9, %xa;", [0] => 1),
    ]);
}
