//! Whole blocks: reductions, scans, histograms, sorting, row kernels.

use crate::bench::{Numbers, each, line, value};

/// The sum by the halving tree of the kernels. The partner of an element is half the range away,
/// then a quarter, and so on.
fn tree(mut part: Vec<f32>) -> f32 {
    let mut half = part.len() / 2;
    while half > 0 {
        for i in 0..half {
            part[i] += part[i + half];
        }
        half /= 2;
    }
    part[0]
}

#[test]
fn block_reductions() {
    each("block_reduce", |b| {
        let x = Numbers(1).floats(1000, -1.0, 1.0);
        let (bx, out) = (b.input("x", &x), b.output::<f32>("out", 4));
        b.launch("sum", line(4), line(256), 0, &[bx.read(), out.write(), value(1000)]);
        let mut padded = x;
        padded.resize(1024, 0.0);
        b.expect(out, &padded.chunks(256).map(|c| tree(c.to_vec())).collect::<Vec<_>>());

        let x = Numbers(2).ints(300, -1000, 1000);
        let (bx, out) = (b.input("x", &x), b.output::<[i32; 3]>("out", 3));
        b.launch("extremes", line(3), line(128), 0, &[bx.read(), out.write(), value(300)]);
        // A thread past the end uses x[0] for the extremes and the factor 1 for the product.
        let expected = x.chunks(128).map(|c| {
            let also = if c.len() < 128 { x[0] } else { c[0] };
            let least = c.iter().chain([&also]).min().unwrap();
            let greatest = c.iter().chain([&also]).max().unwrap();
            [*least, *greatest, c.iter().fold(1i32, |p, v| p.wrapping_mul(*v))]
        });
        b.expect(out, &expected.collect::<Vec<_>>());
    });
}

#[test]
fn scans() {
    each("scan", |b| {
        let x = Numbers(3).ints(1024, -50, 50);
        let (bx, out, totals) =
            (b.input("x", &x), b.output::<i32>("out", 1024), b.output::<i32>("totals", 4));
        b.launch("inclusive", line(4), line(256), 0, &[bx.read(), out.write(), totals.write()]);
        let running =
            |c: &[i32]| c.iter().scan(0, |s, v| (*s += v, Some(*s)).1).collect::<Vec<i32>>();
        b.expect(out, &x.chunks(256).flat_map(running).collect::<Vec<_>>());
        b.expect(totals, &x.chunks(256).map(|c| c.iter().sum()).collect::<Vec<i32>>());

        let x: Vec<u32> = Numbers(4).ints(512, 0, 1000).into_iter().map(|v| v as u32).collect();
        let (bx, out) = (b.input("x", &x), b.output::<u32>("out", 512));
        b.launch("exclusive", line(1), line(256), 512 * 4, &[bx.read(), out.write(), value(512)]);
        b.expect(out, &x.iter().scan(0, |s, v| (*s += v, Some(*s - v)).1).collect::<Vec<u32>>());
    });
}

#[test]
fn histograms() {
    each("histogram", |b| {
        let words: Vec<u32> = {
            let mut numbers = Numbers(5);
            (0..3000).map(|_| (numbers.bits() & numbers.bits()) as u32).collect()
        };
        let (bx, counts) = (b.input("words", &words), b.input("counts", &[0u32; 256]));
        b.launch("by_block", line(5), line(192), 0, &[bx.read(), counts.both(), value(3000)]);
        let mut expected = vec![0u32; 256];
        for byte in words.iter().flat_map(|w| w.to_le_bytes()) {
            expected[byte as usize] += 1;
        }
        b.expect(counts, &expected);

        let x: Vec<u8> = Numbers(6).ints(500, 0, 256).into_iter().map(|v| v as u8).collect();
        let (bx, counts) = (b.input("x", &x), b.input("counts", &[0u64; 16]));
        let ranks = b.output::<i32>("ranks", 500);
        b.launch(
            "straight",
            line(4),
            line(128),
            0,
            &[bx.read(), counts.both(), ranks.write(), value(500)],
        );
        let mut expected = [0u64; 16];
        x.iter().for_each(|v| expected[*v as usize % 16] += 1);
        b.expect(counts, &expected);
        // The order of the threads is unspecified, but each rank occurs once.
        let ranks = b.get::<i32>(ranks);
        for bin in 0..16 {
            let mut found: Vec<_> =
                (0..500).filter(|i| x[*i] % 16 == bin).map(|i| ranks[i]).collect();
            found.sort();
            assert_eq!(found, (0..expected[bin as usize] as i32).collect::<Vec<_>>());
        }
    });
}

#[test]
fn sorting_networks() {
    each("bitonic_sort", |b| {
        let keys: Vec<u32> =
            Numbers(7).ints(512, 0, 1 << 30).into_iter().map(|v| v as u32 * 3).collect();
        let values: Vec<u16> = (0..512).collect();
        let (bk, bv) = (b.input("keys", &keys), b.input("values", &values));
        b.launch("sort", line(1), line(512), 0, &[bk.both(), bv.both()]);
        let mut order = values;
        order.sort_by_key(|i| keys[*i as usize]);
        b.expect(bk, &order.iter().map(|i| keys[*i as usize]).collect::<Vec<_>>());
        b.expect(bv, &order);
    });
}

#[test]
fn softmaxes() {
    each("softmax", |b| {
        let (rows, columns) = (3, 500);
        let x = Numbers(8).floats(rows * columns, -8.0, 8.0);
        let (bx, out) = (b.input("x", &x), b.output::<f32>("out", rows * columns));
        let arguments = [bx.read(), out.both(), value(columns as i32)];
        b.launch("softmax", line(rows as u32), line(128), 0, &arguments);
        let expected = x.chunks(columns).flat_map(|row| {
            let greatest = row.iter().fold(f32::MIN, |a, v| a.max(*v));
            let e: Vec<f64> = row.iter().map(|v| f64::from(v - greatest).exp()).collect();
            let sum: f64 = e.iter().sum();
            e.into_iter().map(move |v| v / sum)
        });
        // exp adds 2 units, the tree of 4 + 5 + 4 additions half a unit each, and the quotient some
        // more. The total is below 12 units.
        b.expect_near(out, &expected.collect::<Vec<_>>(), 12.0);
    });
}

#[test]
fn layer_norms() {
    each("layer_norm", |b| {
        let (rows, columns) = (4, 200);
        let mut numbers = Numbers(9);
        let x = numbers.floats(rows * columns, -1.0, 3.0);
        let (scale, shift) = (numbers.floats(columns, 0.5, 2.0), vec![0.0f32; columns]);
        let (bx, bs, bt) = (b.input("x", &x), b.input("scale", &scale), b.input("shift", &shift));
        let out = b.output::<f32>("out", rows * columns);
        let arguments = [bx.read(), bs.read(), bt.read(), out.write(), value(columns as i32 / 4)];
        b.launch("layer_norm", line(2), [32, 2, 1], 0, &arguments);
        let found = b.get::<f32>(out);
        for (r, row) in x.chunks(columns).enumerate() {
            let mean = row.iter().map(|v| f64::from(*v)).sum::<f64>() / columns as f64;
            let variance =
                row.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / columns as f64;
            for (c, v) in row.iter().enumerate() {
                let exact = (f64::from(*v) - mean) / (variance + 1e-5).sqrt() * f64::from(scale[c]);
                let off = (f64::from(found[r * columns + c]) - exact).abs();
                // The values are about 1. The mean is off by a few units of 2⁻²⁴, the variance by a
                // few dozen.
                assert!(off < 1e-5, "row {r}, column {c}: {off}");
            }
        }
    });
}

#[test]
fn stencils() {
    each("stencil", |b| {
        let (width, height) = (37, 21);
        let x = Numbers(10).floats(width * height, -1.0, 1.0);
        let (bx, out) = (b.input("x", &x), b.output::<f32>("out", width * height));
        let arguments = [bx.read(), out.write(), value(width as i32), value(height as i32)];
        b.launch("five", [3, 3, 1], [16, 8, 1], 0, &arguments);
        let at = |c: isize, r: isize| {
            let inside = c >= 0 && r >= 0 && c < width as isize && r < height as isize;
            if inside { x[r as usize * width + c as usize] } else { 0.0 }
        };
        let expected = (0..(width * height) as isize).map(|i| {
            let (r, c) = (i / width as isize, i % width as isize);
            at(c, r).mul_add(-4.0, (at(c - 1, r) + at(c + 1, r)) + (at(c, r - 1) + at(c, r + 1)))
        });
        b.expect(out, &expected.collect::<Vec<_>>());

        let (nx, ny, nz) = (9, 7, 6);
        let x = Numbers(11).doubles(nx * ny * nz, -1.0, 1.0);
        let (bx, out) = (b.input("x", &x), b.output::<f64>("out", nx * ny * nz));
        let n = |v: usize| value(v as i32);
        let arguments = [bx.read(), out.write(), n(nx), n(ny), n(nz)];
        b.launch("seven", [2, 2, 3], [8, 4, 2], 0, &arguments);
        let expected = (0..x.len()).map(|at| {
            let (i, j, k) = (at % nx, at / nx % ny, at / nx / ny);
            if i == 0 || j == 0 || k == 0 || i == nx - 1 || j == ny - 1 || k == nz - 1 {
                return x[at];
            }
            let s = x[at - 1]
                + x[at + 1]
                + (x[at - nx] + x[at + nx])
                + (x[at - nx * ny] + x[at + nx * ny]);
            (-6.0f64).mul_add(x[at], s)
        });
        b.expect(out, &expected.collect::<Vec<_>>());
    });
}

#[test]
fn sums_by_the_last_block() {
    each("last_block", |b| {
        let x = Numbers(12).floats(2000, -1.0, 1.0);
        let bx = b.input("x", &x);
        let partial = (0..6).map(|block| {
            let of_thread =
                |t: usize| x.iter().skip(block * 128 + t).step_by(6 * 128).fold(0.0, |s, v| s + v);
            tree((0..128).map(of_thread).collect())
        });
        let expected = partial.fold(0.0f32, |s, v| s + v);
        // Two launches: the counter wraps to 0 for the second.
        for _ in 0..2 {
            let (partial, out) = (b.output::<f32>("partial", 6), b.output::<f32>("out", 1));
            let arguments = [bx.read(), partial.both(), out.write(), value(2000)];
            b.launch("grid_sum", line(6), line(128), 0, &arguments);
            b.expect(out, &[expected]);
        }
    });
}
