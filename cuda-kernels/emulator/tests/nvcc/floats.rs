//! Floating point: library functions within their bounds, roundings, conversions, f16 and bf16.

use crate::bench::{Numbers, each, line, value};
use half::{bf16, f16};

/// The nearest number with `bits` bits of mantissa and at least the exponent `least`, ties to even.
/// It is infinite above the magnitude `greatest`.
fn round_to(x: f64, bits: i32, least: i32, greatest: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let exponent = (((x.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(least);
    let quantum = 2f64.powi(exponent - bits);
    let rounded = (x / quantum).round_ties_even() * quantum;
    if rounded.abs() > greatest { f64::INFINITY.copysign(x) } else { rounded.abs().copysign(x) }
}

fn to_f16(x: f64) -> f16 {
    // This conversion is exact: the number has no more bits than an f16.
    f16::from_f32(round_to(x, 10, -14, 65504.0) as f32)
}

fn to_bf16(x: f64) -> bf16 {
    bf16::from_f32(round_to(x, 7, -126, f64::from(bf16::MAX.to_f32())) as f32)
}

#[test]
fn functions_of_f32() {
    each("float_functions", |b| {
        let n = 200;
        let mut numbers = Numbers(80);
        let (mut x, mut y) = (numbers.floats(n, -30.0, 30.0), numbers.floats(n, 0.001, 50.0));
        x[..6].copy_from_slice(&[0.0, 1.0, 1e-20, -3e5, 89.5, -110.0]);
        y[..6].copy_from_slice(&[1.0, 1e-30, 3e30, 2.0, 0.5, 1e-40]);
        let (bx, by, out) = (b.input("x", &x), b.input("y", &y), b.output::<f32>("out", 16 * n));
        b.launch(
            "functions",
            line(4),
            line(64),
            0,
            &[bx.read(), by.read(), out.write(), value(n as i32)],
        );
        let found = b.get::<f32>(out);
        // The maximum errors of the CUDA C++ Programming Guide, in units in the last place.
        type Row = (&'static str, f64, fn(f64, f64) -> f64);
        let rows: [Row; 16] = [
            ("exp", 2.0, |x, _| x.exp()),
            ("log", 1.0, |_, y| y.ln()),
            ("sin", 2.0, |x, _| x.sin()),
            ("cos", 2.0, |x, _| f64::from(x as f32 * 1000.0).cos()),
            ("tanh", 2.0, |x, _| x.tanh()),
            ("pow", 4.0, |x, y| y.powf(x)),
            ("erf", 2.0, |x, _| libm::erf(x)),
            ("cbrt", 1.0, |x, _| x.cbrt()),
            ("log1p", 1.0, |_, y| y.ln_1p()),
            ("expm1", 1.0, |x, _| x.exp_m1()),
            ("rsqrt", 2.0, |_, y| 1.0 / y.sqrt()),
            ("atan2", 3.0, |x, y| x.atan2(y)),
            ("sqrt", 0.5, |_, y| y.sqrt()),
            ("divide", 0.5, |x, y| x / y),
            ("fmod", 0.0, |x, y| x % y),
            ("round", 0.5, |x, _| {
                x.round_ties_even() + x.floor() * 4.0 + x.ceil() * 16.0 + x.trunc() * 64.0
            }),
        ];
        for (k, (name, ulps, exact)) in rows.into_iter().enumerate() {
            for i in 0..n {
                let (v, w) = (f64::from(x[i]), f64::from(y[i]));
                b.near(&format!("{name}({v:e}, {w:e})"), found[k * n + i], exact(v, w), ulps);
            }
        }
    });
}

/// Rounds the sum or product of two f32 in a direction. In f64 it is exact, except for sums of very
/// different magnitudes.
fn directed(exact: f64, up: bool) -> f32 {
    let near = exact as f32;
    let wrong = if up { f64::from(near) < exact } else { f64::from(near) > exact };
    match (wrong, up) {
        (false, _) => near,
        (true, true) => near.next_up(),
        (true, false) => near.next_down(),
    }
}

#[test]
fn roundings_of_f32() {
    each("float_functions", |b| {
        let n = 256;
        let mut numbers = Numbers(81);
        let (x, mut y) = (numbers.floats(n, -8.0, 8.0), numbers.floats(n, 0.01, 4.0));
        y[..3].copy_from_slice(&[4.0, 1.0, 0.25]);
        let (bx, by, out) = (b.input("x", &x), b.input("y", &y), b.output::<f32>("out", 12 * n));
        b.launch(
            "rounded",
            line(4),
            line(64),
            0,
            &[bx.read(), by.read(), out.write(), value(n as i32)],
        );
        let mut expected = vec![0.0f32; 12 * n];
        for i in 0..n {
            let (v, w) = (x[i], y[i]);
            let (sum, product) = (f64::from(v) + f64::from(w), f64::from(v) * f64::from(w));
            let results = [
                directed(sum, sum < 0.0),
                directed(sum, true),
                directed(product, false),
                directed(product, product < 0.0),
                v / w,
                w.sqrt(),
                1.0 / w,
                v.mul_add(w, v),
                v.min(w),
                v.max(w),
                w.copysign(v),
                -v,
            ];
            results.iter().enumerate().for_each(|(k, r)| expected[k * n + i] = *r);
        }
        b.expect(out, &expected);
    });
}

#[test]
fn functions_of_f64() {
    each("double_functions", |b| {
        let n = 100;
        let mut numbers = Numbers(82);
        let (mut x, mut y) = (numbers.doubles(n, -20.0, 20.0), numbers.doubles(n, 0.001, 50.0));
        x[..4].copy_from_slice(&[0.0, 1.0, 1e-20, 1e6]);
        y[..4].copy_from_slice(&[1.0, 1e-300, 1e300, 0.5]);
        let (bx, by, out) = (b.input("x", &x), b.input("y", &y), b.output::<f64>("out", 12 * n));
        b.launch(
            "functions",
            line(2),
            line(64),
            0,
            &[bx.read(), by.read(), out.write(), value(n as i32)],
        );
        let found = b.get::<f64>(out);
        // The bounds of the CUDA C++ Programming Guide plus one, since the expected value is
        // rounded too.
        type Row = (&'static str, i64, fn(f64, f64) -> f64);
        let rows: [Row; 12] = [
            ("exp", 2, |x, _| x.exp()),
            ("log", 2, |_, y| y.ln()),
            ("sin", 3, |x, _| (x * 100.0).sin()),
            ("pow", 3, |x, y| y.powf(x)),
            ("tanh", 3, |x, _| x.tanh()),
            ("divide", 0, |x, y| x / y),
            ("sqrt", 0, |_, y| y.sqrt()),
            ("fma", 0, |x, y| x.mul_add(y, -x)),
            ("cos", 3, |_, y| y.cos()),
            ("round", 0, |x, y| x.floor() + y.round_ties_even() * 8.0),
            ("f32", 0, |x, _| f64::from(x as f32)),
            ("reciprocal", 0, |_, y| 1.0 / y),
        ];
        for (k, (name, ulps, f)) in rows.into_iter().enumerate() {
            for i in 0..n {
                let (a, e) = (found[k * n + i], f(x[i], y[i]));
                let off = (a.to_bits() as i64 - e.to_bits() as i64).abs();
                assert!(
                    a == e || off <= ulps,
                    "{name}({:e}, {:e}) is {a:e}, not {e:e}",
                    x[i],
                    y[i]
                );
            }
        }
    });
}

#[test]
fn conversions_of_every_kind() {
    each("conversions", |b| {
        let mut x = Numbers(83).floats(100, -300.0, 300.0);
        x.extend([
            0.5, -0.5, 1.5, 2.5, -2.5, 3e9, -3e9, 5e9, 1e19, -1e19, 2e19, 0.25, 127.5, 128.4,
            -128.6, 255.9,
        ]);
        x.extend([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-40]);
        let n = x.len();
        let (bx, out, wide) =
            (b.input("x", &x), b.output::<i32>("out", 9 * n), b.output::<i64>("wide", 4 * n));
        b.launch(
            "from_floats",
            line(1),
            line(128),
            0,
            &[bx.read(), out.write(), wide.write(), value(n as i32)],
        );
        // Rust's casts saturate, and give 0 for NaN. PTX does so for types of 32 bits and less. For
        // 64 bits PTX gives 2⁶³.
        let (mut expected, mut expected_wide) = (vec![0i32; 9 * n], vec![0i64; 4 * n]);
        for (i, &v) in x.iter().enumerate() {
            let results = [
                v.round_ties_even() as i32,
                v as i32,
                v.ceil() as i32,
                v.floor() as i32,
                v as u32 as i32,
                if v > 0.0 { v.min(1.0) } else { 0.0 }.to_bits() as i32,
                i32::from(v.round_ties_even() as i8),
                i32::from(v as u8),
                i32::from(v.round_ties_even() as i16),
            ];
            results.iter().enumerate().for_each(|(k, r)| expected[k * n + i] = *r);
            let nan = |v: i64| if x[i].is_nan() { i64::MIN } else { v };
            let results = [
                nan(v.round_ties_even() as i64),
                nan(v as u64 as i64),
                nan((f64::from(v) * 1.5).floor() as i64),
                f64::from(v).to_bits() as i64,
            ];
            results.iter().enumerate().for_each(|(k, r)| expected_wide[k * n + i] = *r);
        }
        b.expect(out, &expected);
        let found = b.get::<i64>(wide);
        for (i, (a, e)) in found.iter().zip(&expected_wide).enumerate() {
            // The bits of a converted NaN are unspecified.
            assert!(
                a == e || i >= 3 * n && x[i - 3 * n].is_nan(),
                "wide[{i}] is {a}, not {e}: {}",
                x[i % n]
            );
        }

        let mut numbers = Numbers(84);
        let mut x: Vec<i64> = (0..100).map(|i| numbers.bits() as i64 >> (i * 5 % 63)).collect();
        x.extend([
            0,
            -1,
            i64::MIN,
            i64::MAX,
            127,
            128,
            -128,
            -129,
            255,
            256,
            65535,
            65536,
            0x0100_0001,
        ]);
        let n = x.len();
        let (bx, f, d) =
            (b.input("x", &x), b.output::<f32>("f", 5 * n), b.output::<f64>("d", 3 * n));
        let narrow = b.output::<i32>("narrow", 5 * n);
        let arguments = [bx.read(), f.write(), d.write(), narrow.write(), value(n as i32)];
        b.launch("from_integers", line(1), line(128), 0, &arguments);
        let (mut ef, mut ed, mut en) =
            (vec![0.0f32; 5 * n], vec![0.0f64; 3 * n], vec![0i32; 5 * n]);
        for (i, &v) in x.iter().enumerate() {
            // Rounding towards zero gives the nearest number, or the one before it. i128 represents
            // every value of both types exactly.
            let cut = |near: f32| {
                if (near as i128).abs() > i128::from(v).abs() { step_in(near) } else { near }
            };
            let below = |near: f32| {
                if near as i128 > i128::from(v as i32) { near.next_down() } else { near }
            };
            let cut64 = |near: f64| {
                if near as u128 > u128::from(v as u64) { near.next_down() } else { near }
            };
            let results = [
                v as f32,
                cut(v as f32),
                v as u64 as f32,
                below(v as i32 as f32),
                f32::from(v as u16),
            ];
            results.iter().enumerate().for_each(|(k, r)| ef[k * n + i] = *r);
            let results = [v as f64, cut64(v as u64 as f64), f64::from(v as i32)];
            results.iter().enumerate().for_each(|(k, r)| ed[k * n + i] = *r);
            let results = [
                i32::from(v as i8),
                i32::from(v as u8),
                i32::from(v as i16),
                (v as i32).clamp(-128, 127),
                (v as i32).clamp(0, 65535),
            ];
            results.iter().enumerate().for_each(|(k, r)| en[k * n + i] = *r);
        }
        b.expect(f, &ef);
        b.expect(d, &ed);
        b.expect(narrow, &en);
    });
}

/// The next number towards zero.
fn step_in(v: f32) -> f32 {
    if v > 0.0 { v.next_down() } else { v.next_up() }
}

#[test]
fn arithmetic_of_f16() {
    each("half_arithmetic", |b| {
        let n = 200;
        let mut numbers = Numbers(85);
        // The magnitudes are similar, so that a product plus a number is exact in f64.
        let mut halves = || (0..n).map(|_| to_f16(numbers.float(-20.0, 20.0))).collect::<Vec<_>>();
        let (x, mut y, z) = (halves(), halves(), halves());
        (y[0], y[1]) = (x[0], f16::from_f32(60000.0));
        let (bx, by, bz) = (b.input("a", &x), b.input("b", &y), b.input("c", &z));
        let out = b.output::<f16>("out", 11 * n);
        let arguments = [bx.read(), by.read(), bz.read(), out.write(), value(n as i32)];
        b.launch("scalar", line(4), line(64), 0, &arguments);
        let mut expected = vec![f16::ZERO; 11 * n];
        for i in 0..n {
            let (v, w, u) = (x[i].to_f64(), y[i].to_f64(), z[i].to_f64());
            let results = [
                to_f16(v + w),
                to_f16(v - w),
                to_f16(v * w),
                to_f16(v * w + u),
                -x[i],
                to_f16(v.abs()),
                to_f16(v.min(w)),
                to_f16(v.max(w)),
                to_f16(f64::from(u8::from(v < w))),
                to_f16(if v * w + u > 0.0 { v * w + u } else { 0.0 }),
                to_f16((v + w).clamp(0.0, 1.0)),
            ];
            results.iter().enumerate().for_each(|(k, r)| expected[k * n + i] = *r);
        }
        b.expect(out, &expected);

        let pairs = |v: &[f16]| v.chunks(2).map(|c| [c[0], c[1]]).collect::<Vec<_>>();
        let (px, py) = (pairs(&x), pairs(&z));
        let (bx, by) = (b.input("a", &px), b.input("b", &py));
        let (out, compared) =
            (b.output::<[f16; 2]>("out", n / 2), b.output::<u32>("compared", n / 2));
        let arguments = [bx.read(), by.read(), out.write(), compared.write(), value(n as i32 / 2)];
        b.launch("packed", line(1), line(128), 0, &arguments);
        let lane = |i: usize, k: usize| {
            let product = to_f16(px[i][k].to_f64() * py[i][k].to_f64());
            to_f16(product.to_f64() + py[i][1 - k].to_f64())
        };
        b.expect(out, &(0..n / 2).map(|i| [lane(i, 0), lane(i, 1)]).collect::<Vec<_>>());
        let mask = |i: usize, k: usize| if px[i][k] > py[i][k] { 0xffffu32 << (16 * k) } else { 0 };
        b.expect(compared, &(0..n / 2).map(|i| mask(i, 0) | mask(i, 1)).collect::<Vec<_>>());

        let mut x = numbers.floats(90, -3000.0, 3000.0);
        x.extend([0.0, -0.0, 1e-8, -1e-8, 6e-8, 65519.0, 65520.0, -1e6, f32::INFINITY, 3e-5]);
        let n = x.len();
        let (bx, out) = (b.input("x", &x), b.output::<u16>("out", 4 * n));
        let (back, whole) = (b.output::<f32>("back", n), b.output::<i32>("whole", n));
        let arguments = [bx.read(), out.write(), back.write(), whole.write(), value(n as i32)];
        b.launch("conversions", line(1), line(128), 0, &arguments);
        let (near, wanted) = (|v: f32| to_f16(v.into()), &mut vec![0u16; 4 * n]);
        for (i, &v) in x.iter().enumerate() {
            let r = near(v);
            // The nearest number, or its neighbour where the nearest is on the wrong side.
            let up = if r.to_f32() < v { f16_up(r) } else { r };
            let down = if r.to_f32() > v { -f16_up(-r) } else { r };
            let zero = if v > 0.0 { down } else { up };
            [r, zero, up, down]
                .iter()
                .enumerate()
                .for_each(|(k, r)| wanted[k * n + i] = r.to_bits());
        }
        b.expect(out, wanted);
        b.expect(back, &x.iter().map(|v| near(*v).to_f32()).collect::<Vec<_>>());
        b.expect(
            whole,
            &x.iter().map(|v| near(*v).to_f32().round_ties_even() as i32).collect::<Vec<_>>(),
        );
    });
}

/// The next f16 above.
fn f16_up(v: f16) -> f16 {
    let bits = v.to_bits();
    match bits {
        0x8000 => f16::from_bits(1),
        _ if v.is_sign_negative() => f16::from_bits(bits - 1),
        _ => f16::from_bits(bits + 1),
    }
}

#[test]
fn arithmetic_of_bf16() {
    each("bf16_arithmetic", |b| {
        let n = 200;
        let mut numbers = Numbers(86);
        let mut values = || (0..n).map(|_| to_bf16(numbers.float(-20.0, 20.0))).collect::<Vec<_>>();
        let (x, y, z) = (values(), values(), values());
        let (bx, by, bz) = (b.input("a", &x), b.input("b", &y), b.input("c", &z));
        let out = b.output::<bf16>("out", 6 * n);
        let arguments = [bx.read(), by.read(), bz.read(), out.write(), value(n as i32)];
        b.launch("scalar", line(4), line(64), 0, &arguments);
        let mut expected = vec![bf16::ZERO; 6 * n];
        for i in 0..n {
            let (v, w, u) = (x[i].to_f64(), y[i].to_f64(), z[i].to_f64());
            let results = [v + w, v - w, v * w, v * w + u, v.min(w), v.max(w)];
            results.iter().enumerate().for_each(|(k, r)| expected[k * n + i] = to_bf16(*r));
        }
        b.expect(out, &expected);

        let wide: Vec<[f32; 2]> =
            numbers.floats(n, -50.0, 50.0).chunks(2).map(|c| [c[0], c[1]]).collect();
        let pairs: Vec<[bf16; 2]> = y.chunks(2).map(|c| [c[0], c[1]]).collect();
        let (bx, by) = (b.input("x", &wide), b.input("y", &pairs));
        let (out, back) =
            (b.output::<[bf16; 2]>("out", n / 2), b.output::<[f32; 2]>("wide", n / 2));
        let arguments = [bx.read(), by.read(), out.write(), back.write(), value(n as i32 / 2)];
        b.launch("packed", line(1), line(128), 0, &arguments);
        let narrow = |v: f32| to_bf16(v.into());
        b.expect(back, &wide.iter().map(|p| p.map(|v| narrow(v).to_f32())).collect::<Vec<_>>());
        let fma = |v: f32, w: bf16| to_bf16(narrow(v).to_f64() * w.to_f64() + 0.5);
        let expected = wide.iter().zip(&pairs).map(|(v, w)| [fma(v[0], w[0]), fma(v[1], w[1])]);
        b.expect(out, &expected.collect::<Vec<_>>());
    });
}
