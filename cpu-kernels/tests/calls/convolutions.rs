//! Convolutions of bf16 add their terms in one order, whatever the instructions and threads.
//!
//! The operands are such that the order shows in the result: large terms that cancel, and small
//! ones that a large partial sum absorbs.

use super::{POOLS, run};
use wengert_core::call::{Call, Convolution, Window};
use wengert_core::{DType, Literal, Scalar};
use wengert_cpu::Simd;
use wengert_testing::calls::compare;
use wengert_testing::calls::convolution::{directions, same};
use wengert_testing::random::extents;

/// ±2²⁴, or a number of eight bits between 1/2 and 2 of either sign; a quarter are large.
fn cancelling(shape: &[usize], large: bool, mut state: u64) -> Literal {
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let bits = state >> 33;
        let sign = if bits & 1 == 0 { 1.0 } else { -1.0 };
        let small = (64 + (bits >> 1) % 192) as f64 / 128.0;
        let magnitude = match (bits >> 20) % 4 {
            0 if large => (1 << 24) as f64,
            _ if large => small,
            _ => 1.0,
        };
        Scalar::from_f64(DType::BF16, sign * magnitude)
    };
    let all: Vec<Scalar> = (0..shape.iter().product()).map(|_| next()).collect();
    Literal::from_scalars(DType::BF16, shape, &all).expect("as many as the shape says")
}

/// The numbers of `x` in another dtype, each rounded once.
fn converted(x: &Literal, dtype: DType) -> Literal {
    let all: Vec<Scalar> = x.scalars().map(|x| Scalar::from_f64(dtype, x.to_f64())).collect();
    Literal::from_scalars(dtype, x.shape(), &all).expect("as many")
}

/// Channels of both sides, groups, and windows: read in place, and copied.
fn cases() -> Vec<(usize, usize, [usize; 2], Vec<Window>)> {
    let window = |input, filter, [stride, low, rhs_dilation]: [i64; 3]| {
        let reach = (filter as i64 - 1) * rhs_dilation + 1;
        let output = ((input as i64 + 2 * low - reach) / stride + 1) as usize;
        let (stride, rhs_dilation) = (stride as usize, rhs_dilation as usize);
        Window { input, filter, output, stride, low, lhs_dilation: 1, rhs_dilation }
    };
    let plain = |extent| vec![same(extent, 3, 1), same(extent, 3, 1)];
    vec![
        // One channel, odd and even channels; lines of odd and of even length.
        (2, 1, [1, 16], plain(11)),
        (2, 1, [16, 32], plain(14)),
        (1, 1, [48, 16], plain(9)),
        (2, 1, [3, 16], plain(8)),
        (2, 1, [16, 5], plain(9)),
        (1, 2, [16, 16], plain(7)),
        (1, 3, [5, 16], plain(8)),
        // Strides, dilations, more padding than taps, and cropping.
        (2, 1, [16, 16], vec![window(21, 3, [2, 1, 1]), window(19, 4, [2, 0, 1])]),
        (2, 1, [16, 16], vec![window(12, 3, [1, 2, 2]), window(13, 3, [1, 3, 3])]),
        (1, 1, [4, 16], vec![window(11, 2, [1, 3, 1]), window(14, 3, [1, -1, 1])]),
        // One and three axes, tiny images, and many taps.
        (2, 1, [16, 16], vec![same(50, 5, 1)]),
        (1, 1, [7, 16], vec![same(33, 4, 1)]),
        (1, 1, [3, 16], vec![same(5, 3, 1), same(6, 3, 1), same(4, 3, 1)]),
        (7, 1, [16, 16], plain(3)),
        (2, 1, [9, 7], plain(5)),
        (1, 1, [40, 24], vec![same(12, 1, 1), same(12, 1, 1)]),
        (1, 1, [150, 20], plain(6)),
    ]
}

#[test]
fn pairs_are_added_in_one_order() {
    let mut visible = [0; 3];
    for (batch, groups, channels, window) in cases() {
        let calls = directions(batch, groups, channels, window, DType::BF16);
        for (direction, call) in calls.iter().enumerate() {
            let types = call.operands();
            let given = [0, 1].map(|k| cancelling(&extents(&types[k]), k == 0, 3 + k as u64));
            let found = run(call, &given, &POOLS[0], Simd::Portable, None);
            compare(call, &given, &found).unwrap_or_else(|e| panic!("{e}"));
            for (pool, simd) in POOLS.iter().flat_map(|p| Simd::available().map(move |s| (p, s))) {
                let others = run(call, &given, pool, simd, None);
                let threads = pool.threads();
                assert!(
                    others[0].to_bytes() == found[0].to_bytes(),
                    "{call:?}: other bits with {threads} threads, {}",
                    simd.name()
                );
            }
            // The chain of f32 takes the terms one after the other. That other order shows.
            let Call::Convolution(wide) = call.clone() else { unreachable!() };
            let wide = Call::Convolution(Convolution { dtype: DType::F32, ..wide });
            let given = given.map(|x| converted(&x, DType::F32));
            let other = run(&wide, &given, &POOLS[0], Simd::Portable, None);
            visible[direction] +=
                (converted(&other[0], DType::BF16).to_bytes() != found[0].to_bytes()) as usize;
        }
    }
    assert!(visible.iter().all(|n| *n >= cases().len() / 2), "the order shows in {visible:?}");
}

/// A filter of so many taps and channels that a panel of it has several parts: a position's sum is
/// still one chain over taps and channels.
#[test]
fn sums_over_the_parts_of_a_panel_are_one_chain() {
    const SIDE: usize = 5;
    const FROM: usize = 300;
    const TO: usize = 40;
    let window = vec![same(SIDE, 3, 1), same(SIDE, 3, 1)];
    let [forward, ..] = directions(1, 1, [FROM, TO], window, DType::F32);
    let types = forward.operands();
    let given = [0, 1].map(|k| fractions(&extents(&types[k]), 7 + k as u64));
    let [source, filter] = [0, 1].map(|k| given[k].as_slice::<f32>().expect("floats"));
    let sum = |y: usize, x: usize, column: usize| {
        let mut sum = 0f32;
        for (tap, channel) in (0..9).flat_map(|tap| (0..FROM).map(move |c| (tap, c))) {
            let at = [y + tap / 3, x + tap % 3];
            if at.iter().all(|at| (1..=SIDE).contains(at)) {
                let from = source[((at[0] - 1) * SIDE + at[1] - 1) * FROM + channel];
                sum = from.mul_add(filter[(tap * FROM + channel) * TO + column], sum);
            }
        }
        sum.to_bits()
    };
    let positions = (0..SIDE).flat_map(|y| (0..SIDE).map(move |x| (y, x)));
    let wanted: Vec<u32> = positions
        .flat_map(|(y, x)| (0..TO).map(move |c| (y, x, c)))
        .map(|(y, x, c)| sum(y, x, c))
        .collect();
    for (pool, simd) in POOLS.iter().flat_map(|p| Simd::available().map(move |s| (p, s))) {
        let found = run(&forward, &given, pool, simd, None);
        let found = found[0].as_slice::<f32>().expect("floats").iter().map(|x| x.to_bits());
        assert!(found.eq(wanted.iter().copied()), "{simd:?}, {} threads", pool.threads());
    }
}

/// What lies beside a term without a partner takes part in no sum: an infinity there would make a
/// sum NaN.
#[test]
fn neighbours_of_lone_terms_are_not_multiplied() {
    let one = |shape: &[usize]| {
        let all = vec![Scalar::from_f64(DType::BF16, 1.0); shape.iter().product()];
        Literal::from_scalars(DType::BF16, shape, &all).expect("as many")
    };
    for channels in [1, 3] {
        let window = vec![same(9, 3, 1), same(9, 3, 1)];
        let [forward, ..] = directions(1, 1, [channels, 16], window, DType::BF16);
        let types = forward.operands();
        let [source, filter] = [0, 1].map(|k| one(&extents(&types[k])));
        let far = source.shape().iter().product::<usize>() - 1;
        let all = (0..source.len()).map(|k| match k == far {
            true => Scalar::from_f64(DType::BF16, f64::INFINITY),
            false => source.get(k),
        });
        let source = Literal::from_scalars(DType::BF16, source.shape(), &all.collect::<Vec<_>>())
            .expect("as many");
        for simd in Simd::available() {
            let found = run(&forward, &[source.clone(), filter.clone()], &POOLS[0], simd, None);
            let infinite = found[0].scalars().filter(|x| !x.to_f64().is_finite());
            let infinite: Vec<f64> = infinite.map(|x| x.to_f64()).collect();
            // The four positions whose windows reach the corner.
            assert_eq!(infinite, vec![f64::INFINITY; 4 * 16], "{simd:?}, {channels} channels");
        }
    }
}

/// Channels that are computed together have the bits of each channel alone, which is computed as a
/// product. NaN and infinities meet the zeros outside of the source.
#[test]
fn channels_of_a_depthwise_convolution_have_the_bits_of_one() {
    let window = |input, filter, [stride, low, lhs, rhs]: [i64; 4]| {
        let reach = (filter as i64 - 1) * rhs + 1;
        let output = (((input as i64 - 1) * lhs + 1 + 2 * low - reach) / stride + 1) as usize;
        let [stride, lhs_dilation, rhs_dilation] = [stride, lhs, rhs].map(|n| n as usize);
        Window { input, filter, output, stride, low, lhs_dilation, rhs_dilation }
    };
    let windows = [
        vec![same(14, 3, 1), same(14, 3, 1)],
        vec![same(15, 5, 2), window(13, 3, [2, 0, 1, 1])],
        vec![window(9, 3, [1, 2, 2, 1]), window(8, 3, [1, 2, 1, 3])],
        vec![same(5, 3, 1), same(4, 2, 1), same(6, 3, 1)],
        vec![same(70, 40, 1)],
    ];
    for (groups, window) in [4, 7, 16, 37, 130]
        .into_iter()
        .flat_map(|n| windows.iter().map(move |window| (n, window.clone())))
    {
        let together = directions(2, groups, [1, 1], window.clone(), DType::F32);
        let alone = directions(2, 1, [1, 1], window, DType::F32);
        for (together, alone) in together.iter().zip(&alone) {
            let types = together.operands();
            let given = [0, 1].map(|k| special(&extents(&types[k]), 5 + k as u64));
            for simd in Simd::available() {
                let found = run(together, &given, &POOLS[1], simd, None);
                for channel in 0..groups {
                    let given = [0, 1].map(|k| {
                        channel_of(&given[k], channel, groups, &extents(&alone.operands()[k]))
                    });
                    let wanted = run(alone, &given, &POOLS[0], simd, None);
                    let found = channel_of(&found[0], channel, groups, wanted[0].shape());
                    assert!(
                        bits(&found) == bits(&wanted[0]),
                        "{together:?}, channel {channel}, {simd:?}"
                    );
                }
            }
        }
    }
}

/// Numbers of which one in 101 is an infinity or NaN.
fn special(shape: &[usize], mut state: u64) -> Literal {
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        match (state >> 33) % 202 {
            0 => f32::INFINITY,
            1 => f32::NAN,
            n => n as f32 / 101.0 - 1.0,
        }
    };
    let all: Vec<f32> = (0..shape.iter().product()).map(|_| next()).collect();
    Literal::from_vec(shape, all).expect("as many")
}

/// Numbers between −1 and 1 of 24 bits, none of them 0.
fn fractions(shape: &[usize], mut state: u64) -> Literal {
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 40) as f32 + 0.5) / (1 << 23) as f32 - 1.0
    };
    let all: Vec<f32> = (0..shape.iter().product()).map(|_| next()).collect();
    Literal::from_vec(shape, all).expect("as many")
}

/// A channel of a tensor whose last axis has all of them.
fn channel_of(of: &Literal, channel: usize, channels: usize, shape: &[usize]) -> Literal {
    let all = of.as_slice::<f32>().expect("floats");
    let one: Vec<f32> = all.iter().skip(channel).step_by(channels).copied().collect();
    Literal::from_vec(shape, one).expect("as many")
}

/// The bits of floats; those of NaN are all the same.
fn bits(of: &Literal) -> Vec<Option<u32>> {
    let all = of.as_slice::<f32>().expect("floats").iter();
    all.map(|x| (!x.is_nan()).then(|| x.to_bits())).collect()
}

/// An image alone has the bits that it has among others. Alone, its columns are divided among
/// tasks; of several images they are not.
#[test]
fn columns_that_are_divided_have_the_same_bits() {
    const IMAGES: usize = 24;
    let image = |extent, taps| vec![same(extent, taps, 1); 2];
    let cases = [([128, 256], image(14, 3)), ([256, 512], image(7, 1)), ([300, 200], image(5, 3))];
    for (channels, window) in cases {
        for dtype in [DType::F32, DType::BF16] {
            let alone = directions(1, 1, channels, window.clone(), dtype);
            let all = directions(IMAGES, 1, channels, window.clone(), dtype);
            // The filter's gradient is a sum over images.
            for (direction, (alone, all)) in alone.iter().zip(&all).take(2).enumerate() {
                let types = alone.operands();
                let given = [0, 1].map(|k| {
                    converted(&cancelling(&extents(&types[k]), true, 9 + k as u64), dtype)
                });
                let image = if direction == 0 { 0 } else { 1 };
                let repeated = [0, 1].map(|k| {
                    if k != image {
                        return given[k].clone();
                    }
                    let one: Vec<Scalar> = given[k].scalars().collect();
                    let shape = extents(&all.operands()[k]);
                    Literal::from_scalars(dtype, &shape, &one.repeat(IMAGES)).expect("as many")
                });
                let simd = Simd::available().last().expect("there is one");
                let found = run(alone, &given, &POOLS[1], simd, None)[0].to_bytes();
                let wanted = run(all, &repeated, &POOLS[1], simd, None)[0].to_bytes();
                assert!(found == wanted[..found.len()], "{alone:?}");
                assert!(found == wanted[wanted.len() - found.len()..], "{alone:?}");
            }
        }
    }
}
