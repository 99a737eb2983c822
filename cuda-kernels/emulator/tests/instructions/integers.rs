//! Integer and bitwise instructions.

use crate::row;
use crate::table::check;

#[test]
fn sums_and_products() {
    check(&[
        row!(Word, "add.s32 %w9, %w0, %w1;", [1, 2] => 3, [0xffff_ffff_u32, 1] => 0),
        row!(
            Word, "add.sat.s32 %w9, %w0, %w1;",
            [0x7fff_ffff, 1] => 0x7fff_ffff, [0x8000_0000_u32, -1i32] => 0x8000_0000_u32,
        ),
        row!(Half, "add.u16 %h9, %h0, %h1;", [0xffff, 2] => 1),
        row!(Long, "add.s64 %x9, %x0, %x1;", [u64::MAX, 2] => 1),
        row!(Word, "add.u16x2 %w9, %w0, %w1;", [0x0001_ffff, 0x0002_0001] => 0x0003_0000),
        row!(Word, "sub.u32 %w9, %w0, %w1;", [1, 2] => 0xffff_ffff_u32),
        row!(Word, "sub.sat.s32 %w9, %w0, %w1;", [0x8000_0000_u32, 1] => 0x8000_0000_u32),
        row!(Word, "mul.lo.s32 %w9, %w0, %w1;", [0x1_0001, 0x1_0001] => 0x2_0001),
        row!(Word, "mul.hi.u32 %w9, %w0, %w1;", [u32::MAX, u32::MAX] => 0xffff_fffe_u32),
        row!(
            Word, "mul.hi.s32 %w9, %w0, %w1;",
            [u32::MAX, u32::MAX] => 0, [0x8000_0000_u32, 2] => 0xffff_ffff_u32,
        ),
        row!(Long, "mul.wide.s32 %x9, %w0, %w1;", [-3i32 as u32, 5] => -15i64),
        row!(Long, "mul.wide.u32 %x9, %w0, %w1;", [u32::MAX, 2] => 0x1_ffff_fffe_u64),
        row!(Word, "mul.wide.s16 %w9, %h0, %h1;", [0xffff, 3] => -3i32 as u32),
        row!(Long, "mul.hi.u64 %x9, %x0, %x1;", [u64::MAX, u64::MAX] => 0xffff_ffff_ffff_fffe_u64),
        row!(Long, "mul.hi.s64 %x9, %x0, %x1;", [u64::MAX, 5] => -1i64),
        row!(Word, "mul24.lo.u32 %w9, %w0, %w1;", [0xff00_0003_u32, 5] => 15),
        row!(Word, "mul24.hi.s32 %w9, %w0, %w1;", [0x0080_0000, 0x10000] => 0xff80_0000_u32),
        row!(Word, "mad.lo.s32 %w9, %w0, %w1, %w2;", [3, 4, 5] => 17),
        row!(Word, "mad.hi.u32 %w9, %w0, %w1, %w2;", [0x8000_0000_u32, 4, 5] => 7),
        row!(
            Word, "mad.hi.sat.s32 %w9, %w0, %w1, %w2;",
            [0x7fff_ffff, 4, 0x7fff_ffff] => 0x7fff_ffff,
        ),
        row!(Long, "mad.wide.s32 %x9, %w0, %w1, %x2;", [-1i32 as u32, 4, 100] => 96),
        row!(Word, "mad24.lo.s32 %w9, %w0, %w1, %w2;", [3, 4, 5] => 17),
        row!(Word, "sad.s32 %w9, %w0, %w1, %w2;", [-5i32 as u32, 5, 1] => 11),
        row!(Word, "sad.u32 %w9, %w0, %w1, %w2;", [5, 9, 1] => 5),
        row!(Word, "dp4a.u32.u32 %w9, %w0, %w1, %w2;", [0x0102_0304, 0x0101_0101, 7] => 17),
        row!(
            Word, "dp4a.s32.u32 %w9, %w0, %w1, %w2;",
            [0xff00_0000_u32, 0x0200_0000, 1] => -1i32 as u32,
        ),
        row!(Word, "dp2a.lo.s32.s32 %w9, %w0, %w1, %w2;", [0xffff_0002_u32, 0x0505_0304, 0] => 5),
        row!(Word, "dp2a.hi.u32.u32 %w9, %w0, %w1, %w2;", [0x0001_0002, 0x0304_0000, 0] => 11),
    ]);
}

#[test]
fn quotients_and_extremes() {
    check(&[
        row!(
            Word, "div.s32 %w9, %w0, %w1;",
            [-7i32 as u32, 2] => -3i32 as u32, [0x8000_0000_u32, -1i32 as u32] => 0x8000_0000_u32,
            [7, 0] => u32::MAX,
        ),
        row!(Word, "div.u32 %w9, %w0, %w1;", [-7i32 as u32, 2] => 0x7fff_fffc),
        row!(
            Word, "rem.s32 %w9, %w0, %w1;",
            [-7i32 as u32, 2] => -1i32 as u32, [7, -2i32 as u32] => 1,
        ),
        row!(Long, "div.s64 %x9, %x0, %x1;", [-9i64, 4] => -2i64),
        row!(Long, "rem.u64 %x9, %x0, %x1;", [10, 4] => 2),
        row!(Half, "div.s16 %h9, %h0, %h1;", [0xfff9, 2] => 0xfffd),
        row!(Word, "abs.s32 %w9, %w0;", [-5i32 as u32] => 5, [0x8000_0000_u32] => 0x8000_0000_u32),
        row!(Long, "neg.s64 %x9, %x0;", [1] => -1i64),
        row!(Half, "neg.s16 %h9, %h0;", [1] => 0xffff),
        row!(Word, "min.s32 %w9, %w0, %w1;", [-1i32 as u32, 1] => -1i32 as u32),
        row!(Word, "min.u32 %w9, %w0, %w1;", [-1i32 as u32, 1] => 1),
        row!(Half, "max.s16 %h9, %h0, %h1;", [0xffff, 1] => 1),
        row!(Long, "max.u64 %x9, %x0, %x1;", [-1i64, 1] => -1i64),
        row!(Word, "max.relu.s32 %w9, %w0, %w1;", [-1i32 as u32, -7i32 as u32] => 0),
        row!(Word, "min.s16x2 %w9, %w0, %w1;", [0xffff_0005_u32, 0x0001_0003] => 0xffff_0003_u32),
        row!(Word, "max.u16x2 %w9, %w0, %w1;", [0xffff_0005_u32, 0x0001_0007] => 0xffff_0007_u32),
        row!(Word, "slct.u32.s32 %w9, %w0, %w1, %w2;", [1, 2, 0] => 1, [1, 2, -1i32 as u32] => 2),
        row!(
            Long, "slct.u64.f32 %x9, %x0, %x1, %w2;",
            [1, 2, 0x8000_0000_u32] => 1, [1, 2, 0xbf80_0000_u32] => 2, [1, 2, 0x7fc0_0000] => 2,
        ),
    ]);
}

#[test]
fn bits() {
    check(&[
        row!(Word, "lop3.b32 %w9, %w0, %w1, %w2, 0xe8;", [0b1100, 0b1010, 0b1001] => 0b1000),
        row!(Word, "lop3.b32 %w9, %w0, %w1, %w2, 0x96;", [0xff, 0x0f, 0x3c] => 0xcc),
        row!(Half, "not.b16 %h9, %h0;", [0x0f0f] => 0xf0f0),
        row!(Word, "cnot.b32 %w9, %w0;", [0] => 1, [9] => 0),
        row!(
            Word, "shl.b32 %w9, %w0, %w1;",
            [1, 31] => 0x8000_0000_u32, [1, 32] => 0, [1, 0xffff_ffff_u32] => 0,
        ),
        row!(
            Word, "shr.s32 %w9, %w0, %w1;",
            [0x8000_0000_u32, 31] => u32::MAX, [0x8000_0000_u32, 99] => u32::MAX,
        ),
        row!(
            Word, "shr.u32 %w9, %w0, %w1;",
            [0x8000_0000_u32, 31] => 1, [0x8000_0000_u32, 32] => 0,
        ),
        row!(Half, "shr.s16 %h9, %h0, %w1;", [0x8000, 15] => 0xffff, [0x8000, 77] => 0xffff),
        row!(Long, "shl.b64 %x9, %x0, %w1;", [1, 63] => 1u64 << 63, [1, 64] => 0),
        row!(Word, "popc.b64 %w9, %x0;", [u64::MAX] => 64),
        row!(Word, "clz.b32 %w9, %w0;", [0] => 32, [1] => 31),
        row!(Word, "clz.b64 %w9, %x0;", [0] => 64, [1] => 63),
        row!(Word, "brev.b32 %w9, %w0;", [1] => 0x8000_0000_u32),
        row!(Word, "bfind.u32 %w9, %w0;", [0] => u32::MAX, [0x8000] => 15),
        row!(Word, "bfind.s32 %w9, %w0;", [u32::MAX] => u32::MAX, [-2i32 as u32] => 0),
        row!(Word, "bfind.shiftamt.u32 %w9, %w0;", [0x8000] => 16),
        row!(
            Word, "bfe.u32 %w9, %w0, %w1, %w2;",
            [0xabcd_1234_u32, 8, 8] => 0x12, [0xabcd_1234_u32, 24, 16] => 0xab, [5, 0, 0] => 0,
        ),
        row!(
            Word, "bfe.s32 %w9, %w0, %w1, %w2;",
            [0x0000_8000, 8, 8] => -128i32 as u32, [0x8000_0000_u32, 40, 4] => u32::MAX,
        ),
        row!(Long, "bfe.u64 %x9, %x0, %w1, %w2;", [0xabcd_0000_0000_0000_u64, 48, 16] => 0xabcd),
        row!(
            Word, "bfi.b32 %w9, %w0, %w1, %w2, %w3;",
            [0xff, 0, 4, 4] => 0xf0, [0xff, 7, 32, 4] => 7, [0xff, 0, 28, 8] => 0xf000_0000_u32,
        ),
        row!(
            Long, "bfi.b64 %x9, %x0, %x1, %w2, %w3;",
            [0xff, 0, 60, 8] => 0xf000_0000_0000_0000_u64,
        ),
        row!(
            Word, "prmt.b32 %w9, %w0, %w1, %w2;",
            [0x0302_0100, 0x0706_0504, 0x7531] => 0x0705_0301, [0x80, 0, 0x1118] => 0xff,
        ),
        row!(
            Word, "prmt.b32.f4e %w9, %w0, %w1, %w2;",
            [0x0302_0100, 0x0706_0504, 1] => 0x0403_0201,
        ),
        row!(
            Word, "prmt.b32.b4e %w9, %w0, %w1, %w2;",
            [0x0302_0100, 0x0706_0504, 0] => 0x0506_0700,
        ),
        row!(Word, "prmt.b32.rc8 %w9, %w0, %w1, %w2;", [0x0302_0100, 0, 2] => 0x0202_0202),
        row!(Word, "prmt.b32.ecl %w9, %w0, %w1, %w2;", [0x0302_0100, 0, 1] => 0x0302_0101),
        row!(Word, "prmt.b32.ecr %w9, %w0, %w1, %w2;", [0x0302_0100, 0, 1] => 0x0101_0100),
        row!(Word, "prmt.b32.rc16 %w9, %w0, %w1, %w2;", [0x0302_0100, 0, 1] => 0x0302_0302),
        row!(Word, "shf.l.wrap.b32 %w9, %w0, %w1, %w2;", [0x8000_0000_u32, 1, 33] => 3),
        row!(Word, "shf.l.clamp.b32 %w9, %w0, %w1, %w2;", [0x1234_5678, 1, 40] => 0x1234_5678),
        row!(Word, "shf.r.wrap.b32 %w9, %w0, %w1, %w2;", [0, 1, 1] => 0x8000_0000_u32),
        row!(Word, "shf.r.clamp.b32 %w9, %w0, %w1, %w2;", [0, 0x1234_5678, 99] => 0x1234_5678),
        row!(
            Word, "fns.b32 %w9, %w0, %w1, %w2;",
            [0b1_0110, 1, 2] => 2, [0b1_0110, 4, -2i32 as u32] => 2, [1, 0, 2] => u32::MAX,
        ),
        row!(
            Word, "bmsk.clamp.b32 %w9, %w0, %w1;",
            [4, 8] => 0xff0, [0, 99] => u32::MAX, [40, 3] => 0,
        ),
        row!(Word, "szext.wrap.s32 %w9, %w0, %w1;", [0xff, 8] => u32::MAX, [0x7f, 8] => 0x7f),
        row!(Word, "szext.clamp.u32 %w9, %w0, %w1;", [0x1ff, 8] => 0xff, [0x1ff, 99] => 0x1ff),
    ]);
}

#[test]
fn long_chains() {
    check(&[
        row!(
            Word, "add.cc.u32 %w8, %w0, %w1; addc.u32 %w9, %w2, %w3;",
            [u32::MAX, 1, 5, 6] => 12, [1, 1, 5, 6] => 11,
        ),
        row!(
            Word, "add.cc.u32 %w8, %w0, %w1; addc.cc.u32 %w7, %w2, %w3; addc.u32 %w9, 0, 0;",
            [u32::MAX, 1, u32::MAX, 0] => 1,
        ),
        row!(
            Word, "sub.cc.u32 %w8, %w0, %w1; subc.u32 %w9, %w2, %w3;",
            [0, 1, 7, 2] => 4, [1, 1, 7, 2] => 5,
        ),
        row!(Long, "add.cc.u64 %x8, %x0, %x1; addc.u64 %x9, %x2, %x3;", [u64::MAX, 1, 5, 6] => 12),
        row!(
            Word, "mad.lo.cc.u32 %w8, %w0, %w1, %w2; madc.hi.u32 %w9, %w0, %w1, %w3;",
            [u32::MAX, u32::MAX, u32::MAX, 0] => 0xffff_ffff_u32,
        ),
        row!(
            Word, "mad.hi.cc.u32 %w8, %w0, %w1, %w2; addc.u32 %w9, 0, 0;",
            [u32::MAX, u32::MAX, 2] => 1, [u32::MAX, u32::MAX, 1] => 0,
        ),
    ]);
}

#[test]
fn comparisons_and_choices() {
    check(&[
        row!(Predicate, "setp.lt.s32 %p9, %w0, %w1;", [-1i32 as u32, 0] => 1),
        row!(Predicate, "setp.lo.u32 %p9, %w0, %w1;", [-1i32 as u32, 0] => 0),
        row!(Predicate, "setp.ge.u64 %p9, %x0, %x1;", [5, 5] => 1),
        row!(Predicate, "setp.gt.s16 %p9, %h0, %h1;", [0x8000, 1] => 0),
        row!(Predicate, "setp.hi.u16 %p9, %h0, %h1;", [0x8000, 1] => 1),
        row!(
            Predicate, "setp.ne.u32 %p1, %w2, 0; setp.eq.and.s32 %p8|%p9, %w0, %w1, %p1;",
            [1, 1, 1] => 0, [1, 2, 1] => 1, [1, 2, 0] => 0,
        ),
        row!(
            Predicate, "setp.ne.u32 %p1, %w2, 0; setp.eq.or.s32 %p9, %w0, %w1, !%p1;",
            [1, 2, 0] => 1, [1, 2, 1] => 0,
        ),
        row!(
            Predicate, "setp.ne.u32 %p1, %w2, 0; setp.eq.xor.s32 %p9, %w0, %w1, %p1;",
            [1, 1, 1] => 0, [1, 2, 1] => 1,
        ),
        row!(Word, "set.gt.u32.s32 %w9, %w0, %w1;", [2, 1] => u32::MAX, [1, 2] => 0),
        row!(Word, "set.le.f32.u32 %w9, %w0, %w1;", [1, 1] => 0x3f80_0000, [2, 1] => 0),
        row!(
            Word, "setp.ne.u32 %p1, %w2, 0; selp.b32 %w9, %w0, %w1, %p1;",
            [7, 8, 1] => 7, [7, 8, 0] => 8,
        ),
        row!(
            Predicate,
            "setp.ne.u32 %p1, %w0, 0; setp.ne.u32 %p2, %w1, 0; \
             xor.pred %p3, %p1, %p2; not.pred %p9, %p3;",
            [1, 0] => 0, [1, 1] => 1,
        ),
        row!(Predicate, "setp.ne.u32 %p1, %w0, 0; mov.pred %p9, %p1;", [1] => 1, [0] => 0),
    ]);
}
