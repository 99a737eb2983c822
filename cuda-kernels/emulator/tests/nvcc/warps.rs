//! Warps: shuffles, votes, matches.

use crate::bench::{Numbers, each, line, value};
use half::f16;

#[test]
fn warp_reductions() {
    each("warp_reduce", |b| {
        let x = Numbers(20).floats(3 * 192, -1.0, 1.0);
        let (bx, out) = (b.input("x", &x), b.output::<f32>("out", 3));
        b.launch("block_sums", line(3), line(192), 0, &[bx.read(), out.write()]);
        // In shuffles down, lane 0 adds the value half a warp away, then a quarter, and so on.
        let warp = |v: &[f32]| {
            let mut v = v.to_vec();
            for step in [16, 8, 4, 2, 1] {
                for i in 0..step {
                    v[i] += v[i + step];
                }
            }
            v[0]
        };
        let expected = x.chunks(192).map(|block| {
            let mut sums: Vec<f32> = block.chunks(32).map(warp).collect();
            sums.resize(32, 0.0);
            warp(&sums)
        });
        b.expect(out, &expected.collect::<Vec<_>>());

        let x = Numbers(21).doubles(64, -1.0, 1.0);
        let (bx, out) = (b.input("x", &x), b.output::<f64>("out", 64));
        b.launch("segment_maxima", line(1), line(64), 0, &[bx.read(), out.write()]);
        let expected = x.chunks(8).flat_map(|c| [c.iter().fold(f64::MIN, |a, v| a.max(*v)); 8]);
        b.expect(out, &expected.collect::<Vec<_>>());
    });
}

#[test]
fn shuffles_of_every_kind() {
    each("shuffles", |b| {
        let x = Numbers(22).ints(32, -1_000_000, 1_000_000);
        let (bx, out) = (b.input("x", &x), b.output::<i32>("out", 9 * 32));
        b.launch("kinds", line(1), line(32), 0, &[bx.read(), out.write()]);
        let mut expected = Vec::new();
        let sources: [fn(usize) -> usize; 9] = [
            |l| (l * 7 + 3) % 32,
            |l| l / 8 * 8 + (l + 5) % 8,
            |l| if l >= 3 { l - 3 } else { l },
            |l| if l % 16 >= 3 { l - 3 } else { l },
            |l| if l + 5 < 32 { l + 5 } else { l },
            |l| if l % 4 + 2 < 4 { l + 2 } else { l },
            |l| l ^ 21,
            |l| l ^ 5,
            |l| if l < 16 { l ^ 9 } else { 31 - l + 16 },
        ];
        for source in sources {
            expected.extend((0..32).map(|lane| x[source(lane)]));
        }
        b.expect(out, &expected);

        let mut numbers = Numbers(23);
        let wide: Vec<i64> = (0..32).map(|_| numbers.bits() as i64).collect();
        let halves: Vec<[f16; 2]> =
            (0..32).map(|i| [f16::from_f32(i as f32), f16::from_f32(-0.5)]).collect();
        let (bw, bh) = (b.input("x", &wide), b.input("h", &halves));
        let (out, out_halves) = (b.output::<i64>("out", 32), b.output::<[f16; 2]>("halves", 32));
        b.launch(
            "wide",
            line(1),
            line(32),
            0,
            &[bw.read(), bh.read(), out.write(), out_halves.write()],
        );
        b.expect(
            out,
            &(0..32).map(|l| wide[if l + 9 < 32 { l + 9 } else { l }]).collect::<Vec<_>>(),
        );
        b.expect(
            out_halves,
            &(0..32usize).map(|l| halves[l.saturating_sub(1)]).collect::<Vec<_>>(),
        );
    });
}

#[test]
fn votes_and_matches() {
    each("votes", |b| {
        let mut x = Numbers(24).ints(64, -20, 20);
        x[32..].iter_mut().for_each(|v| *v = 64 + v.rem_euclid(8));
        let (bx, out) = (b.input("x", &x), b.output::<u32>("out", 11 * 64));
        b.launch("votes", line(1), line(64), 0, &[bx.read(), out.write()]);
        let mut expected = vec![0u32; 11 * 64];
        for (at, &v) in x.iter().enumerate() {
            let (lane, warp) = (at % 32, &x[at / 32 * 32..at / 32 * 32 + 32]);
            let ballot =
                |f: &dyn Fn(i32) -> bool| (0..32).fold(0u32, |m, l| m | u32::from(f(warp[l])) << l);
            let same = warp.iter().all(|w| w / 64 == v / 64);
            let results = [
                1,
                u32::from(warp.contains(&7)),
                ballot(&|w| w & 1 == 1),
                ballot(&|w| w == v),
                if same { u32::MAX } else { 0 },
                u32::from(same),
                warp.iter().sum::<i32>() as u32,
                *warp.iter().max().unwrap() as u32,
                warp.iter().fold(0, |a, w| a ^ *w as u32),
                (ballot(&|w| w > 0) & ((1 << lane) - 1)).count_ones(),
                if v & 2 != 0 { ballot(&|w| w & 2 != 0).trailing_zeros() } else { u32::MAX },
            ];
            results.iter().enumerate().for_each(|(k, r)| expected[k * 64 + at] = *r);
        }
        b.expect(out, &expected);

        let x = Numbers(25).ints(300, -100, 100);
        let (bx, count) = (b.input("x", &x), b.input("count", &[0i32]));
        let mut expected: Vec<i32> = x.iter().copied().filter(|v| v % 3 == 0).collect();
        let out = b.output::<i32>("out", expected.len());
        b.launch(
            "compact",
            line(3),
            line(128),
            0,
            &[bx.read(), out.write(), count.both(), value(300)],
        );
        b.expect(count, &[expected.len() as i32]);
        // The order of the warps is unspecified.
        let mut found = b.get::<i32>(out);
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    });
}
