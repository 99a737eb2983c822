//! Matrix products: through shared tiles, and on tensor cores with every input type.

use crate::bench::{Numbers, each, line, value};
use half::{bf16, f16};

/// Multiples of 1/8 with magnitude up to 2. The sum of fewer than 2¹⁶ of their products is exact in
/// f32, in any order.
fn eighths(numbers: &mut Numbers, count: usize) -> Vec<f32> {
    numbers.ints(count, -16, 17).into_iter().map(|v| v as f32 / 8.0).collect()
}

/// a[m,k]·b[k,n], summed in the order of k.
fn product(a: &[f32], b: &[f32], m: usize, n: usize, k: usize) -> Vec<f32> {
    let entry =
        |i: usize| (0..k).fold(0.0f32, |s, j| a[i / n * k + j].mul_add(b[j * n + i % n], s));
    (0..m * n).map(entry).collect()
}

#[test]
fn products_through_shared_tiles() {
    each("matmul", |b| {
        let (m, n, k) = (37, 21, 50);
        let mut numbers = Numbers(90);
        let (x, y) = (numbers.floats(m * k, -1.0, 1.0), numbers.floats(k * n, -1.0, 1.0));
        let (bx, by, out) = (b.input("a", &x), b.input("b", &y), b.output::<f32>("c", m * n));
        let sizes = [value(m as i32), value(n as i32), value(k as i32)];
        let arguments = [&[bx.read(), by.read(), out.write()], &sizes[..]].concat();
        b.launch("matmul", [2, 3, 1], [16, 16, 1], 0, &arguments);
        // The zeros past the end of k add nothing.
        b.expect(out, &product(&x, &y, m, n, k));
    });
}

#[test]
fn tensor_cores_on_f16() {
    each("mma_f16", |b| {
        let (m, n, k) = (128, 64, 80);
        let mut numbers = Numbers(91);
        let (x, y) = (eighths(&mut numbers, m * k), eighths(&mut numbers, k * n));
        let halves = |v: &[f32]| v.iter().map(|x| f16::from_f32(*x)).collect::<Vec<_>>();
        let (bx, by) = (b.input("a", &halves(&x)), b.input("b", &halves(&y)));
        let out = b.output::<f32>("c", m * n);
        let arguments = [bx.read(), by.read(), out.write(), value(n as i32), value(k as i32)];
        b.launch("product", [2, 2, 1], line(128), 0, &arguments);
        b.expect(out, &product(&x, &y, m, n, k));

        let (x, y, z) =
            (eighths(&mut numbers, 128), eighths(&mut numbers, 64), eighths(&mut numbers, 128));
        let (bx, by, bz) =
            (b.input("a", &halves(&x)), b.input("b", &halves(&y)), b.input("c", &halves(&z)));
        b.launch("accumulate", line(1), line(32), 0, &[bx.read(), by.read(), bz.both()]);
        // Multiples of 1/64 below 32 + 2 are exact in f32, and are rounded once to f16.
        let sums = product(&x, &y, 16, 8, 8);
        b.expect(bz, &sums.iter().zip(&z).map(|(s, z)| f16::from_f32(s + z)).collect::<Vec<_>>());
    });
}

#[test]
fn tensor_cores_on_bf16() {
    each("mma_bf16", |b| {
        let (m, n, k) = (45, 19, 64);
        let mut numbers = Numbers(92);
        // The second operand is stored by columns.
        let (x, columns) = (eighths(&mut numbers, m * k), eighths(&mut numbers, n * k));
        let narrow = |v: &[f32]| v.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>();
        let (bx, by) = (b.input("a", &narrow(&x)), b.input("b", &narrow(&columns)));
        let out = b.output::<f32>("c", m * n);
        let sizes = [value(m as i32), value(n as i32), value(k as i32)];
        let arguments = [&[bx.read(), by.read(), out.write()], &sizes[..]].concat();
        b.launch("product", [3, 3, 1], line(32), 0, &arguments);
        let y: Vec<f32> = (0..k * n).map(|i| columns[i % n * k + i / n]).collect();
        b.expect(out, &product(&x, &y, m, n, k));
    });
}

#[test]
fn tensor_cores_on_tf32() {
    each("mma_tf32", |b| {
        let k = 28;
        let mut numbers = Numbers(93);
        let (mut x, y) = (eighths(&mut numbers, 16 * k), eighths(&mut numbers, k * 8));
        // Ties of the rounding to ten bits of mantissa are rounded away from zero. 1 + 2⁻¹² is
        // rounded down.
        x[..3].copy_from_slice(&[
            1.0 + 2f32.powi(-11),
            -1.0 - 2f32.powi(-11),
            1.0 + 2f32.powi(-12),
        ]);
        let (bx, by, out) = (b.input("a", &x), b.input("b", &y), b.output::<f32>("c", 128));
        let rounded = b.output::<f32>("rounded", 32);
        let arguments = [bx.read(), by.read(), out.write(), rounded.write(), value(k as i32)];
        b.launch("product", line(1), line(32), 0, &arguments);
        let ten = 2f32.powi(-10);
        x[..3].copy_from_slice(&[1.0 + ten, -1.0 - ten, 1.0]);
        b.expect(rounded, &x[..32]);
        b.expect(out, &product(&x, &y, 16, 8, k));
    });
}

#[test]
fn tensor_cores_on_f64() {
    each("mma_f64", |b| {
        let k = 20;
        let mut numbers = Numbers(94);
        let (x, y, z) =
            (eighths(&mut numbers, 8 * k), eighths(&mut numbers, k * 8), eighths(&mut numbers, 64));
        let wide = |v: &[f32]| v.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
        let (bx, by, bz) =
            (b.input("a", &wide(&x)), b.input("b", &wide(&y)), b.input("c", &wide(&z)));
        b.launch(
            "product",
            line(1),
            line(32),
            0,
            &[bx.read(), by.read(), bz.both(), value(k as i32)],
        );
        let sums = product(&x, &y, 8, 8, k);
        b.expect(bz, &sums.iter().zip(&z).map(|(s, z)| f64::from(s + z)).collect::<Vec<_>>());
    });
}
