//! Integers: 64 bits, bit manipulation, quotients, dot products of bytes, Philox, sparse indices.

use crate::bench::{Numbers, each, line, value};
use crate::memory::c_div;

/// Edge cases, then random values of every magnitude.
fn corners(seed: u64, count: usize) -> Vec<i64> {
    let mut numbers = Numbers(seed);
    let edge =
        [0, 1, -1, 2, i64::MAX, i64::MIN, 0xffff_ffff, 0x8000_0000, -0x8000_0000, 0x1_0000_0000];
    let random = |i: usize| (numbers.bits() as i64) >> (i * 7 % 61);
    edge.into_iter().chain((0..count - edge.len()).map(random)).collect()
}

#[test]
fn sixty_four_bits() {
    each("int64", |b| {
        let n = 130;
        let a = corners(60, n);
        // Excludes the divisors 0, and −1, which alone can overflow.
        let other: Vec<i64> = corners(61, n)
            .into_iter()
            .rev()
            .map(|v| if v == 0 || v == -1 { 3 } else { v })
            .collect();
        let (ba, bb, out) =
            (b.input("a", &a), b.input("b", &other), b.output::<i64>("out", 16 * n));
        b.launch(
            "arithmetic",
            line(3),
            line(64),
            0,
            &[ba.read(), bb.read(), out.write(), value(n as i32)],
        );
        let mut expected = vec![0i64; 16 * n];
        for i in 0..n {
            let (x, y) = (a[i], other[i]);
            let (ux, uy) = (x as u64, y as u64);
            let results = [
                x.wrapping_mul(y),
                ((i128::from(x) * i128::from(y)) >> 64) as i64,
                ((u128::from(ux) * u128::from(uy)) >> 64) as i64,
                x / y,
                x % y,
                (ux / uy) as i64,
                (ux % uy) as i64,
                x >> (y & 63),
                (ux >> (y & 63)) as i64,
                x << (y & 63),
                i64::from(x < y) | i64::from(ux < uy) << 1 | i64::from(x == y) << 2,
                i64::from(x.count_ones()) * 1000 + i64::from(x.leading_zeros()) * 10,
                x.reverse_bits(),
                (i64::from(x as i32) * i64::from(y as i32)).wrapping_add(x),
                (u64::from(x as u32) * u64::from(y as u32)) as i64,
                x.min(y) ^ ux.max(uy) as i64,
            ];
            results.iter().enumerate().for_each(|(k, r)| expected[k * n + i] = *r);
        }
        b.expect(out, &expected);
    });
}

/// `prmt.b32`: each nibble of the selector picks one of the eight bytes of `y:x`, or eight copies
/// of its sign bit.
fn permute(x: u32, y: u32, selector: u32) -> u32 {
    let all = u64::from(y) << 32 | u64::from(x);
    (0..4).fold(0, |r, k| {
        let nibble = selector >> (4 * k) & 15;
        let byte = (all >> (8 * (nibble & 7))) as u8;
        let byte = if nibble & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte };
        r | u32::from(byte) << (8 * k)
    })
}

#[test]
fn bit_tricks() {
    each("bits", |b| {
        let n = 128;
        let words =
            |seed| corners(seed, n).into_iter().map(|v| (v ^ v >> 32) as u32).collect::<Vec<_>>();
        let (a, other) = (words(62), words(63));
        let (ba, bb, out) =
            (b.input("a", &a), b.input("b", &other), b.output::<u32>("out", 20 * n));
        b.launch(
            "tricks",
            line(1),
            line(n as u32),
            0,
            &[ba.read(), bb.read(), out.write(), value(n as i32)],
        );
        let mut expected = vec![0u32; 20 * n];
        for i in 0..n {
            let (x, y) = (a[i], other[i]);
            let (position, length) = (y & 255, y >> 8 & 255);
            let shifted = if position > 31 { 0 } else { x >> position };
            let unsigned_field = if length > 31 { shifted } else { shifted & ((1 << length) - 1) };
            let (position, length) = (y & 31, y >> 8 & 31);
            // Field bits past bit 31 are copies of the word's sign bit. The result is
            // sign-extended from the field.
            let field = if length == 0 {
                0
            } else {
                let wide = i64::from(x as i32) >> position;
                (wide << (64 - length) >> (64 - length)) as u32
            };
            let (at, size) = (x & 31, y & 15);
            let mask = (((1u64 << size) - 1) << at) as u32;
            let pair = u64::from(y) << 32 | u64::from(x);
            let (sx, sy) = (x as i32, y as i32);
            let high = |p: i64| (p >> 32) as u32;
            let low24 = (x & 0xff_ffff).wrapping_mul(y & 0xff_ffff);
            let results = [
                x.count_ones(),
                x.leading_zeros(),
                if x == 0 { 0 } else { x.trailing_zeros() + 1 },
                x.reverse_bits(),
                permute(x, y, 0x5173),
                // CUDA's `__byte_perm` ignores the sign bit of each nibble of the selector.
                permute(x, y, y & 0x7777),
                (pair << (x & 31) >> 32) as u32,
                (pair >> (y & 63).min(32)) as u32,
                x >> (y & 31),
                (sx >> (y & 31)) as u32,
                (x & y) | (!x & (y >> 7)),
                unsigned_field,
                field,
                y & !mask | (((u64::from(x)) << at) as u32 & mask),
                x ^ y ^ (x << 3),
                if x == 0 { u32::MAX } else { 31 - x.leading_zeros() },
                x.abs_diff(y).wrapping_add(5),
                (((u64::from(x) * u64::from(y)) >> 32) as u32).wrapping_add(low24),
                high(i64::from(sx) * i64::from(sy))
                    .wrapping_add(((i64::from(sx) + i64::from(sy)) >> 1) as u32),
                permute(x, y, x ^ y),
            ];
            results.iter().enumerate().for_each(|(k, r)| expected[k * n + i] = *r);
        }
        b.expect(out, &expected);
    });
}

#[test]
fn divisions() {
    each("division", |b| {
        let n = 140;
        let words =
            |seed| corners(seed, n).into_iter().map(|v| (v ^ v >> 32) as i32).collect::<Vec<_>>();
        let a = words(64);
        let other: Vec<i32> =
            words(65).into_iter().rev().map(|v| if v == 0 || v == -1 { -5 } else { v }).collect();
        let (ba, bb, out) =
            (b.input("a", &a), b.input("b", &other), b.output::<i32>("out", 12 * n));
        b.launch(
            "divide",
            line(3),
            line(64),
            0,
            &[ba.read(), bb.read(), out.write(), value(n as i32)],
        );
        let mut expected = vec![0i32; 12 * n];
        for i in 0..n {
            let (x, y) = (a[i], other[i]);
            let (sx, sy) = (i32::from(x as i16), i32::from(y as i16 | 1));
            let (cx, cy) = (i32::from(x as i8), i32::from(y as i8 | 1));
            let results = [
                c_div(x, y).0,
                c_div(x, y).1,
                (x as u32 / y as u32) as i32,
                (x as u32 % y as u32) as i32,
                x / 7,
                x % 1_000_003,
                (x as u32 / 10) as i32,
                x / 8,
                i32::from((sx / sy) as i16),
                i32::from((sx % sy) as i16),
                cx / cy,
                i32::from(x as u8 % (y as u8 | 1)),
            ];
            results.iter().enumerate().for_each(|(k, r)| expected[k * n + i] = *r);
        }
        b.expect(out, &expected);
    });
}

#[test]
fn dot_products_of_bytes() {
    each("dot_products", |b| {
        let n = 96;
        let mut numbers = Numbers(66);
        let mut words = || (0..n).map(|_| numbers.bits() as i32).collect::<Vec<_>>();
        let (a, other) = (words(), words());
        let (ba, bb, out) = (b.input("a", &a), b.input("b", &other), b.output::<i32>("out", 7 * n));
        b.launch(
            "dots",
            line(1),
            line(n as u32),
            0,
            &[ba.read(), bb.read(), out.write(), value(n as i32)],
        );
        let mut expected = vec![0i32; 7 * n];
        for i in 0..n {
            let (x, y) = (a[i].to_le_bytes(), other[i].to_le_bytes());
            let signed = |v: [u8; 4]| v.map(|b| i32::from(b as i8));
            let unsigned = |v: [u8; 4]| v.map(i32::from);
            let dot = |p: [i32; 4], q: [i32; 4]| (0..4).map(|k| p[k] * q[k]).sum::<i32>();
            let pair = |low: usize| {
                let half = |k: usize| i32::from(i16::from_le_bytes([x[2 * k], x[2 * k + 1]]));
                (0..2).map(|k| half(k) * i32::from(y[low + k] as i8)).sum::<i32>() - 3
            };
            let (xi, yi, ti) = (a[i], other[i], i as i32);
            let results = [
                dot(signed(x), signed(y)) + 17,
                dot(unsigned(x), unsigned(y)) + 17,
                pair(0),
                pair(2),
                dot(signed(x), unsigned(y)) + ti,
                i32::from(xi as i16) * i32::from(yi as i16) + ti,
                ((i64::from(xi) * i64::from(yi)) >> 32) as i32 + ti,
            ];
            results.iter().enumerate().for_each(|(k, r)| expected[k * n + i] = *r);
        }
        b.expect(out, &expected);
    });
}

#[test]
fn philox_numbers() {
    each("philox", |b| {
        let (key, n) = ([0xdead_beef_u32, 42], 200u32);
        let (bits, uniform) =
            (b.output::<[u32; 4]>("bits", 200), b.output::<[f32; 4]>("uniform", 200));
        let arguments = [value(key[0]), value(key[1]), bits.write(), uniform.write(), value(n)];
        b.launch("philox", line(2), line(128), 0, &arguments);
        let expected: Vec<[u32; 4]> = (0..n)
            .map(|i| {
                let (mut c, mut k) = ([i, 0x1234, i * 3, 99], key);
                for _ in 0..10 {
                    let (p, q) = (0xD251_1F53 * u64::from(c[0]), 0xCD9E_8D57 * u64::from(c[2]));
                    c = [
                        (q >> 32) as u32 ^ c[1] ^ k[0],
                        q as u32,
                        (p >> 32) as u32 ^ c[3] ^ k[1],
                        p as u32,
                    ];
                    k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
                }
                c
            })
            .collect();
        b.expect(bits, &expected);
        b.expect(
            uniform,
            &expected.iter().map(|c| c.map(|v| (v >> 8) as f32 / 16_777_216.0)).collect::<Vec<_>>(),
        );
    });
}

#[test]
fn sparse_products() {
    each("spmv", |b| {
        let (rows, columns) = (50, 300);
        let mut numbers = Numbers(67);
        let (mut starts, mut index, mut values) = (vec![0i32], Vec::new(), Vec::new());
        for row in 0..rows {
            for _ in 0..(if row % 7 == 3 { 0 } else { numbers.within(1, 100) }) {
                index.push(numbers.within(0, columns) as i32);
                values.push(numbers.float(-1.0, 1.0) as f32);
            }
            starts.push(index.len() as i32);
        }
        let x = numbers.floats(columns as usize, -1.0, 1.0);
        let (bs, bc, bv) =
            (b.input("starts", &starts), b.input("columns", &index), b.input("values", &values));
        let (bx, by) = (b.input("x", &x), b.output::<f32>("y", rows));
        let arguments =
            [bs.read(), bc.read(), bv.read(), bx.read(), by.write(), value(rows as i32)];
        b.launch("spmv", line(13), line(128), 0, &arguments);
        let expected = starts.windows(2).map(|w| {
            let (from, to) = (w[0] as usize, w[1] as usize);
            let lane = |l: usize| {
                (from + l..to)
                    .step_by(32)
                    .fold(0.0f32, |s, at| values[at].mul_add(x[index[at] as usize], s))
            };
            let mut sums: Vec<f32> = (0..32).map(lane).collect();
            for step in [16, 8, 4, 2, 1] {
                sums = (0..32).map(|l| sums[l] + sums[l ^ step]).collect();
            }
            sums[0]
        });
        b.expect(by, &expected.collect::<Vec<_>>());
    });
}
