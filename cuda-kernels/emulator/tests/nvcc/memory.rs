//! Address spaces and layouts: transposes, local arrays, constants, structures as parameters,
//! dynamic shared memory, vectors, atomics.

use crate::bench::{Bench, Numbers, each, line, value};
use bytemuck::{Pod, Zeroable};

/// Quotient and remainder as in C: rounded towards zero, wrapping.
pub fn c_div(a: i32, b: i32) -> (i32, i32) {
    (a.wrapping_div(b), a.wrapping_rem(b))
}

fn transposed<T: Pod + PartialEq + std::fmt::Debug>(
    b: &mut Bench,
    kernel: &str,
    make: impl Fn(i64) -> T,
) {
    let (rows, columns) = (45, 70);
    let x: Vec<T> =
        Numbers(40).ints(rows * columns, 0, 1 << 30).into_iter().map(|v| make(v.into())).collect();
    let (bx, out) = (b.input("x", &x), b.output::<T>("out", x.len()));
    let arguments = [bx.read(), out.write(), value(rows as i32), value(columns as i32)];
    b.launch(kernel, [3, 2, 1], [32, 8, 1], 0, &arguments);
    b.expect(out, &(0..x.len()).map(|i| x[i % rows * columns + i / rows]).collect::<Vec<_>>());
}

#[test]
fn transposes() {
    each("transpose", |b| {
        transposed(b, "transpose8", |v| v as u8);
        transposed(b, "transpose16", |v| v as i16);
        transposed(b, "transpose32", |v| v as f32);
        transposed(b, "transpose64", |v| v as f64 * 1e-3);
    });
}

#[test]
fn local_arrays() {
    each("local_arrays", |b| {
        let x = Numbers(41).ints(96 * 20, -500, 500);
        let (bx, out) = (b.input("x", &x), b.output::<i32>("out", x.len()));
        b.launch("sort_rows", line(3), line(32), 0, &[bx.read(), out.write(), value(20)]);
        let sorted = |row: &[i32]| {
            let mut row = row.to_vec();
            row.sort();
            row
        };
        b.expect(out, &x.chunks(20).flat_map(sorted).collect::<Vec<_>>());

        let x: Vec<u32> =
            Numbers(42).ints(64, 0, i32::MAX.into()).into_iter().map(|v| v as u32).collect();
        let (bx, out) = (b.input("x", &x), b.output::<u8>("out", 64 * 11));
        b.launch("digits", line(1), line(64), 0, &[bx.read(), out.write()]);
        let expected = x.iter().flat_map(|v| {
            let mut counts = vec![0u8; 10];
            v.to_string().bytes().for_each(|d| counts[(d - b'0') as usize] += 1);
            let weight = [0.5, 0.25, 2.0][(v % 3) as usize];
            counts.push((weight * f64::from(counts[(v % 10) as usize]) * 4.0) as u8);
            counts
        });
        b.expect(out, &expected.collect::<Vec<_>>());
    });
}

#[test]
fn constants_and_globals() {
    each("constants", |b| {
        let index = Numbers(43).ints(64, 0, 1000);
        let (bi, f, c) =
            (b.input("index", &index), b.output::<f32>("f", 64), b.output::<u8>("c", 64));
        let (w, e) = (b.output::<i64>("w", 64), b.output::<i32>("e", 64));
        b.launch(
            "lookup",
            line(1),
            line(64),
            0,
            &[bi.read(), f.write(), c.write(), w.write(), e.write()],
        );
        let weights = [1.0f32, -0.5, 0.25, -0.125, 3.0, 0.0, 1e-3, -2.5e7];
        let at = |i: &i32, n: usize| *i as usize % n;
        b.expect(f, &index.iter().map(|i| weights[at(i, 8)]).collect::<Vec<_>>());
        b.expect(c, &index.iter().map(|i| b"wengert lists!!\0"[at(i, 16)]).collect::<Vec<_>>());
        b.expect(
            w,
            &index.iter().map(|i| [-1, 0x0123_4567_89ab_cdef, 7][at(i, 3)]).collect::<Vec<i64>>(),
        );
        b.expect(e, &index.iter().map(|i| [10, 40][at(i, 2)]).collect::<Vec<i32>>());

        // A global variable keeps its value between launches.
        for first in [40, 72] {
            let out = b.output::<i32>("out", 32);
            b.launch("count", line(1), line(32), 0, &[out.write()]);
            let mut found = b.get::<i32>(out);
            found.sort();
            assert_eq!(found, (first..first + 32).collect::<Vec<_>>());
        }
    });
}

/// The kernel's `struct Layout` with explicit padding.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Layout {
    rank: u8,
    pad0: u8,
    bias: i16,
    extents: [i32; 4],
    pad1: u32,
    strides: [i64; 4],
    scale: f64,
    from: u64,
    tag: [i8; 3],
    pad2: [u8; 5],
}

#[test]
fn structures_as_parameters() {
    each("structures", |b| {
        let x = Numbers(44).floats(600, -1.0, 1.0);
        let bx = b.input("x", &x);
        let layout = Layout {
            rank: 3,
            pad0: 0,
            bias: -30,
            extents: [4, 5, 6, -1],
            pad1: 0,
            strides: [1, 40, 7, -1],
            scale: 0.75,
            from: b.address(bx),
            tag: [1, 100, -128],
            pad2: [0; 5],
        };
        let out = b.output::<f32>("out", 120);
        b.launch(
            "gather",
            line(2),
            line(64),
            0,
            &[value(layout), out.write(), value(120), value(200u8)],
        );
        let expected = (0..120usize).map(|i| {
            let at = i / 30 + i / 6 % 5 * 40 + i % 6 * 7;
            let add = -30 + i32::from(layout.tag[i % 3]) + 200;
            (f64::from(x[at]) * 0.75 + f64::from(add)) as f32
        });
        b.expect(out, &expected.collect::<Vec<_>>());
    });
}

#[test]
fn dynamic_shared_memory() {
    each("dynamic_shared", |b| {
        let n = 1000;
        let x = Numbers(45).doubles(n, -1.0, 1.0);
        let y: Vec<i16> = Numbers(46).ints(n, -3000, 3000).into_iter().map(|v| v as i16).collect();
        let (bx, by) = (b.input("x", &x), b.input("y", &y));
        let (out, sums) = (b.output::<f64>("out", n), b.output::<i32>("sums", n));
        let arguments = [bx.read(), by.read(), out.write(), sums.write(), value(n as i32)];
        b.launch("reverse", line(1), line(256), n as u32 * 10, &arguments);
        b.expect(out, &x.iter().rev().copied().collect::<Vec<_>>());
        let sum = |i: usize| i32::from(y[n - 1 - i]) + (i % 32 * (i % 32)) as i32;
        b.expect(sums, &(0..n).map(sum).collect::<Vec<_>>());
    });
}

#[test]
fn grid_stride_loops_and_vectors() {
    each("grid_stride", |b| {
        for n in [1usize, 999, 4096] {
            let mut numbers = Numbers(47);
            let (x, y) = (numbers.floats(n, -1.0, 1.0), numbers.floats(n, -1.0, 1.0));
            let (bx, by) = (b.input("x", &x), b.input("y", &y));
            b.launch(
                "axpy",
                line(3),
                line(96),
                0,
                &[value(0.3f32), bx.read(), by.both(), value(n as i32)],
            );
            let expected = x.iter().zip(&y).map(|(x, y)| 0.3f32.mul_add(*x, *y));
            b.expect(by, &expected.collect::<Vec<_>>());
        }

        let n = 150;
        let mut numbers = Numbers(48);
        let bytes: Vec<[u8; 4]> = (0..n).map(|_| (numbers.bits() as u32).to_le_bytes()).collect();
        let shorts: Vec<[i16; 2]> =
            (0..n).map(|_| [numbers.bits() as i16, numbers.bits() as i16]).collect();
        let doubles: Vec<[f64; 2]> =
            numbers.doubles(2 * n, -1.0, 1.0).chunks(2).map(|c| [c[0], c[1]]).collect();
        let (bb, bs, bd) = (b.input("b", &bytes), b.input("s", &shorts), b.input("d", &doubles));
        let (out, sums) = (b.output::<[i32; 4]>("out", n), b.output::<f64>("sums", n));
        let arguments =
            [bb.read(), bs.read(), bd.read(), out.write(), sums.write(), value(n as i32)];
        b.launch("widths", line(2), line(32), 0, &arguments);
        let expected = bytes.iter().zip(&shorts).map(|(q, p)| {
            let (q, p) = (q.map(i32::from), p.map(i32::from));
            [q[0] + p[0], q[1] - p[1], q[2] * p[0], q[3]]
        });
        b.expect(out, &expected.collect::<Vec<_>>());
        b.expect(sums, &doubles.iter().map(|d| d[0] + d[1]).collect::<Vec<_>>());
    });
}

#[test]
fn atomics_of_every_kind() {
    each("atomics", |b| {
        let x = Numbers(49).ints(200, -1000, 1000);
        let (bx, cells) = (b.input("x", &x), b.input("cells", &[5i32, 5, 5, 5, -1, 0, 0]));
        let (wrap, wide) = (b.input("wrap", &[0u32, 0]), b.input("wide", &[10u64, 0]));
        let (f, d) = (b.input("f", &[0.5f32]), b.input("d", &[0.25f64]));
        let arguments = [bx.read(), cells.both(), wrap.both(), wide.both(), f.both(), d.both()];
        b.launch("all_kinds", line(4), line(50), 0, &arguments);
        let sum: i32 = x.iter().sum();
        let expected = [
            5 + sum,
            5 - sum,
            *x.iter().chain([&5]).min().unwrap(),
            *x.iter().chain([&5]).max().unwrap(),
            x.iter().fold(-1, |a, v| a & (v | 0xff)),
            x.iter().fold(0, |a, v| a | v & 0xf0f0),
            x.iter().fold(0, |a, v| a ^ v),
        ];
        b.expect(cells, &expected);
        // 200 increments that wrap in 0..=9, and 200 decrements that wrap in 6..=0.
        b.expect(wrap, &[200 % 10, 7 - 200 % 7]);
        let highest = x.iter().map(|v| ((v & 0xffff) as u64) << 20).max().unwrap();
        b.expect(wide, &[10u64.wrapping_add_signed(sum.into()), highest]);
        b.expect(f, &[0.5 + x.iter().map(|v| (v & 7) as f32).sum::<f32>()]);
        b.expect(d, &[0.25 + f64::from(sum)]);

        let x = Numbers(50).floats(500, -10.0, 10.0);
        let (bx, out) = (b.input("x", &x), b.input("out", &[-5.0f32]));
        b.launch("greatest", line(4), line(128), 0, &[bx.read(), out.both(), value(500)]);
        b.expect(out, &[x.iter().fold(-5.0f32, |a, v| a.max(*v))]);

        let (ticket, taken) = (b.input("ticket", &[0i32]), b.input("taken", &[0i32; 256]));
        b.launch("tickets", line(4), line(64), 0, &[ticket.both(), taken.both()]);
        b.expect(ticket, &[256]);
        b.expect(taken, &[5; 256]);

        let (lock, account) = (b.input("lock", &[0i32]), b.input("account", &[17i32]));
        b.launch("locked", line(6), line(64), 0, &[lock.both(), account.both()]);
        b.expect(account, &[(0..6).fold(17, |a, _| a * 3 % 1_000_003 + 1)]);
    });
}
