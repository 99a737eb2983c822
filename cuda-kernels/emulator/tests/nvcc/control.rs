//! Control flow: divergent loops, switches, calls.

use crate::bench::{Numbers, each, line, value};
use crate::memory::c_div;

#[test]
fn divergent_loops() {
    each("divergence", |b| {
        let x: Vec<u32> = Numbers(30).ints(150, 1, 5000).into_iter().map(|v| v as u32).collect();
        let (bx, steps, peaks) =
            (b.input("x", &x), b.output::<i32>("steps", 150), b.output::<u32>("peaks", 150));
        b.launch(
            "collatz",
            line(3),
            line(64),
            0,
            &[bx.read(), steps.write(), peaks.write(), value(150)],
        );
        let walks = x.iter().map(|&x| {
            let (mut v, mut peak, mut count) = (x, x, 0);
            while v != 1 {
                v = if v % 2 == 1 { 3 * v + 1 } else { v / 2 };
                peak = peak.max(v);
                count += 1;
                if count == 200 {
                    break;
                }
            }
            (count, peak)
        });
        let (counts, tops): (Vec<i32>, Vec<u32>) = walks.unzip();
        b.expect(steps, &counts);
        b.expect(peaks, &tops);

        let out = b.output::<i32>("out", 70);
        b.launch("primes", line(1), line(70), 0, &[out.write(), value(12)]);
        let expected = (0..70).map(|i| {
            if i % 5 == 4 {
                return -1;
            }
            let (mut found, mut sum) = (0, 0);
            for p in (2..).filter(|p| p % 5 != i % 5 && (2..*p).all(|d| p % d != 0)) {
                found += 1;
                sum += p;
                if sum > 40 * i + 100 || found == 12 {
                    break;
                }
            }
            sum
        });
        b.expect(out, &expected.collect::<Vec<_>>());

        let (width, height, limit) = (32, 16, 60);
        let out = b.output::<i32>("out", width * height);
        let arguments = [out.write(), value(width as i32), value(height as i32), value(limit)];
        b.launch("mandelbrot", [3, 2, 1], [12, 8, 1], 0, &arguments);
        let expected = (0..width * height).map(|i| {
            let cx = (i % width) as f32 * (3.0 / 32.0) - 2.0;
            let cy = (i / width) as f32 * (2.0 / 16.0) - 1.0;
            let (mut zx, mut zy) = (0.0f32, 0.0f32);
            for it in 0..limit {
                let (xx, yy) = (zx * zx, zy * zy);
                if xx + yy > 4.0 {
                    return it;
                }
                zy = (2.0 * zx).mul_add(zy, cy);
                zx = xx - yy + cx;
            }
            limit
        });
        b.expect(out, &expected.collect::<Vec<_>>());
    });
}

fn machine(code: &[u8], start: i32, i: i32) -> i32 {
    let (mut acc, mut b, mut pc) = (i, 1i32, start as usize);
    for _ in 0..100 {
        let op = code[pc];
        pc += 1;
        match op {
            0 => return acc,
            1 => acc = acc.wrapping_add(b),
            2 => acc = acc.wrapping_sub(b),
            3 => acc = acc.wrapping_mul(3),
            4 => b = acc & 15,
            5 => acc ^= b << 3,
            6 => (acc, b) = (b, acc),
            7 => acc = if b != 0 { c_div(acc, b).0 } else { -1 },
            8 => pc += (acc & 1) as usize,
            9 => pc += code[pc] as usize,
            10 => acc = !acc,
            11 => {
                b = i32::from(code[pc]);
                pc += 1;
            }
            12 => acc = acc.count_ones() as i32,
            _ => return -77,
        }
    }
    -1000 - acc
}

#[test]
fn switches_and_tables() {
    each("switches", |b| {
        let mut numbers = Numbers(31);
        // Programs of eleven steps and a halt. Operands are small, so that no jump leaves the code.
        // Every tenth program ends with an opcode that no case of the switch names.
        let mut code: Vec<u8> = Vec::new();
        let mut starts = Vec::new();
        for program in 0..100 {
            starts.push(code.len() as i32);
            for _ in 0..11 {
                let op = numbers.within(1, 13) as u8;
                code.push(op);
                if op == 9 || op == 11 {
                    code.push(numbers.within(0, 4) as u8);
                }
            }
            code.extend([if program % 10 == 0 { 200 } else { 0 }, 0, 0, 0, 0, 0]);
        }
        // A skipped operand may be read as a jump past the last program. These zeros halt there.
        code.extend([0; 32]);
        let (bc, bs, out) =
            (b.input("code", &code), b.input("starts", &starts), b.output::<i32>("out", 100));
        b.launch("machine", line(2), line(64), 0, &[bc.read(), bs.read(), out.write(), value(100)]);
        let expected: Vec<_> = (0..100).map(|i| machine(&code, starts[i as usize], i)).collect();
        b.expect(out, &expected);

        let x = Numbers(32).ints(64, -1000, 1000);
        let (bx, out) = (b.input("x", &x), b.output::<i32>("out", 64));
        b.launch("table", line(1), line(64), 0, &[bx.read(), out.write()]);
        let expected = x.iter().map(|&v| match v & 3 {
            1 => v * 2 + 1,
            2 => -v + 1,
            _ => v + 1001,
        });
        b.expect(out, &expected.collect::<Vec<_>>());
    });
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[test]
fn calls_of_functions() {
    each("functions", |b| {
        let z: Vec<[f64; 2]> =
            Numbers(33).doubles(128, -2.0, 2.0).chunks(2).map(|c| [c[0], c[1]]).collect();
        let (bz, powers, gcds) =
            (b.input("z", &z), b.output::<[f64; 2]>("powers", 64), b.output::<u32>("gcds", 64));
        let (order, narrowed) = (b.output::<i32>("order", 128), b.output::<i16>("narrowed", 64));
        let arguments = [bz.read(), powers.write(), gcds.write(), order.write(), narrowed.write()];
        b.launch("calls", line(1), line(64), 0, &arguments);
        let times =
            |a: [f64; 2], b: [f64; 2]| [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]];
        let power = |i: usize| (0..i % 5).fold([1.0, 0.0], |p, _| times(p, z[i]));
        b.expect(powers, &(0..64).map(power).collect::<Vec<_>>());
        let of = |i: u32| if i % 2 == 1 { gcd(i * 36, 120) } else { gcd(i * 77 + 11, 1001) };
        b.expect(gcds, &(0..64).map(of).collect::<Vec<_>>());
        let pairs = (0..64i32).map(|i| i.min(100 - i) * 1000 + i.max(100 - i));
        b.expect(order, &pairs.chain((0..64).map(|i| i ^ 1)).collect::<Vec<_>>());
        let narrow = |i: i32| (if i % 3 == 0 { -(i - 40 + i * 3) } else { i - 40 + i * 3 }) as i16;
        b.expect(narrowed, &(0..64).map(narrow).collect::<Vec<_>>());
    });
}
