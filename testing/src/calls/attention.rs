//! Attention, forward and backward.

use super::{Device, FLOATS, check, check_random, numbers};
use crate::Random;
use crate::random::{extents, floats, literal};
use proptest::prelude::*;
use wengert_core::call::{Attention, Call};
use wengert_core::{DType, Literal, Scalar, TensorType};

/// The attributes of an attention besides its extents and dtype.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // They are those of the call.
pub struct Kind {
    pub packed: bool,
    pub causal: bool,
    pub backward: bool,
}

/// An attention of extents (batch, queries, keys, heads, width).
pub fn attention(
    [batch, queries, keys, heads, width]: [usize; 5],
    Kind { packed, causal, backward }: Kind,
    dtype: DType,
) -> Attention {
    let keys = if packed { queries } else { keys };
    let scale = Scalar::of(1.0 / (width as f64).sqrt());
    Attention {
        batch,
        queries,
        keys,
        heads,
        group: 1,
        width,
        packed,
        bias: vec![],
        prefix: false,
        causal,
        backward,
        out_given: false,
        scale,
        dtype,
    }
}

/// The same call with `group` times as many heads of queries.
pub fn grouped(call: Attention, group: usize) -> Attention {
    Attention { heads: call.heads * group, group, packed: false, ..call }
}

/// The same call with a bias. `repeats` selects the axes (examples, heads, queries) along which the
/// bias is broadcast.
pub fn biased(call: Attention, repeats: [bool; 3]) -> Attention {
    let [batch, heads, queries] = [(0, call.batch), (1, call.heads), (2, call.queries)]
        .map(|(axis, extent)| if repeats[axis] { 1 } else { extent });
    Attention { bias: vec![batch, heads, queries, call.keys], ..call }
}

/// The same backward call, given out in place of m.
pub fn given_out(call: Attention) -> Attention {
    Attention { out_given: true, ..call }
}

/// The same call with a prefix.
pub fn prefixed(call: Attention) -> Attention {
    Attention { prefix: true, ..call }
}

/// Operands of moderate size, so that no single score dominates. For a backward call they include
/// the results of the forward call. Prefixes are of all sizes, and some are out of range.
pub fn operands(call: &Attention, seed: u64) -> Vec<Literal> {
    let before = if call.causal { call.queries } else { 1 } as i64;
    let mut random = Random(seed);
    let prefixes = (0..call.batch)
        .map(|_| random.below(call.keys + before as usize + 2) as i64 - before)
        .map(|prefix| prefix as i32);
    operands_of(call, &prefixes.collect::<Vec<_>>(), seed)
}

/// [`operands`] with these prefixes, if the call has any. Keys and values that no query attends to
/// are NaN.
fn operands_of(call: &Attention, prefixes: &[i32], seed: u64) -> Vec<Literal> {
    let small = |ty: &TensorType, seed: u64| {
        let all = numbers(ty.dtype, &extents(ty), seed);
        let mut all = all.scalars();
        literal(ty.dtype, &extents(ty), |dtype| {
            Scalar::from_f64(dtype, all.next().expect("as many").to_f64() / 4.0)
        })
    };
    let forward = Call::Attention(forward(call));
    let mut operands: Vec<Literal> =
        forward.operands().iter().zip(seed..).map(|(ty, seed)| small(ty, seed)).collect();
    if call.prefix {
        let at = call.prefix_operand();
        operands[at] = Literal::from_vec(&[call.batch], prefixes.to_vec()).expect("one each");
        if !call.packed {
            for part in [1, 2] {
                operands[part] = hidden(call, &operands[part], prefixes);
            }
        }
    }
    if call.backward {
        let [out, l] = &forward.results()[..] else { unreachable!("attention has two results") };
        let logarithms = logarithms(call, &operands);
        let last = if call.out_given { out } else { l };
        operands.extend([logarithms, small(out, seed + 17), small(last, seed + 18)]);
    }
    operands
}

/// Keys or values with NaN in place of those that no query attends to.
fn hidden(call: &Attention, rows: &Literal, prefixes: &[i32]) -> Literal {
    let ty = rows.ty();
    let row = call.width * call.heads / call.group;
    let mut at = 0;
    let mut all = rows.scalars();
    literal(ty.dtype, &extents(&ty), |dtype| {
        let (example, key) = (at / row / call.keys, at / row % call.keys);
        at += 1;
        let found = all.next().expect("as many");
        let more = if call.causal { call.queries as i64 - 1 } else { 0 };
        let seen = (key as i64) < i64::from(prefixes[example]) + more;
        if seen { found } else { Scalar::from_f64(dtype, f64::NAN) }
    })
}

/// The forward call of a call.
fn forward(call: &Attention) -> Attention {
    Attention { backward: false, out_given: false, ..call.clone() }
}

/// The second result of the forward call.
fn logarithms(call: &Attention, operands: &[Literal]) -> Literal {
    let forward = Call::Attention(forward(call));
    forward.references(operands).expect("the call is valid")[1].literal()
}

fn check_one<D: Device>(call: Attention, seed: u64) {
    check::<D>(&Call::Attention(call.clone()), || operands(&call, seed));
}

/// Random extents and attributes.
pub fn small_attentions<D: Device>() {
    let calls = (
        [1usize..3, 1usize..20, 1usize..20, 1usize..4, 1usize..20],
        [any::<bool>(); 5],
        prop::sample::select(&FLOATS[..]),
        prop::option::of([any::<bool>(); 3]),
        1usize..5,
    )
        .prop_map(
            |(extents, [packed, causal, backward, prefix, out], dtype, repeats, group)| {
                let call = attention(extents, Kind { packed, causal, backward }, dtype);
                let call = if group > 1 { grouped(call, group) } else { call };
                let call = if prefix { prefixed(call) } else { call };
                let call = if backward && out { given_out(call) } else { call };
                Call::Attention(repeats.into_iter().fold(call, biased))
            },
        );
    check_random::<D>(150, calls, |call, seed| {
        let Call::Attention(call) = call else { unreachable!("all are attentions") };
        operands(call, seed)
    });
}

/// Several blocks of queries and of keys, of which the last are partial. There are more keys than
/// queries, and fewer.
pub fn many_blocks<D: Device>() {
    for (width, dtype) in [9, 24].into_iter().flat_map(|width| FLOATS.map(|d| (width, d))) {
        let some = [(131, 131), (200, 70), (150, 70), (70, 150), (64, 128), (1, 300), (300, 1)];
        for (queries, keys) in some {
            for (causal, backward) in [(false, false), (false, true), (true, false), (true, true)] {
                let kind = Kind { packed: queries == keys, causal, backward };
                let call = attention([1, queries, keys, 2, width], kind, dtype);
                check_one::<D>(call.clone(), 7);
                if backward {
                    check_one::<D>(given_out(call.clone()), 7);
                }
                if keys == 70 {
                    let one = attention([1, queries, keys, 1, width], kind, dtype);
                    let shared = grouped(one, 2);
                    let biases = causal.then_some([true, false, true]);
                    check_one::<D>(biases.into_iter().fold(shared, biased), 10);
                }
                if dtype == DType::F32 || queries == 70 {
                    check_one::<D>(biased(call.clone(), [true, false, false]), 8);
                    check_one::<D>(biased(call, [false, true, true]), 9);
                }
            }
        }
    }
}

/// Few queries to many keys: one to 16 rows of a head of keys, prefixes at and around the ends of
/// ranges of 32 to 128 keys, and out of range. Some widths are no multiple of 16 bytes.
pub fn decoding<D: Device>() {
    const KEYS: usize = 300;
    let prefixes = [[0, 1, 31], [32, 64, 127], [128, 129, 256], [300, 309, -3]];
    // Queries, size of a group, width.
    let some =
        [(1, 1, 9), (1, 4, 32), (3, 4, 20), (16, 1, 5), (1, 16, 64), (2, 3, 130), (1, 2, 255)];
    for (dtype, (queries, group, width)) in
        FLOATS.into_iter().flat_map(|dtype| some.map(|some| (dtype, some)))
    {
        let kind = |causal| Kind { packed: false, causal, backward: false };
        let call = |causal, keys| {
            grouped(attention([3, queries, keys, 1, width], kind(causal), dtype), group)
        };
        check_one::<D>(call(false, KEYS), 14);
        check_one::<D>(call(true, 256), 15);
        for (n, prefixes) in prefixes.iter().enumerate() {
            let call = prefixed(call(queries > 1, KEYS));
            let call = if n % 2 == 1 { biased(call, [n == 1, false, true]) } else { call };
            check::<D>(&Call::Attention(call.clone()), || operands_of(&call, prefixes, 16));
        }
    }
    // More than 128 ranges of 32 keys.
    for (dtype, width) in FLOATS.into_iter().zip([65, 33, 129, 129]) {
        let kind = Kind { packed: false, causal: false, backward: false };
        let call = prefixed(grouped(attention([2, 1, 4500, 1, width], kind, dtype), 2));
        check::<D>(&Call::Attention(call.clone()), || operands_of(&call, &[1100, 4500], 17));
    }
    let calls = (
        [1usize..3, 1usize..5, 33usize..400, 1usize..3, 1usize..80],
        [any::<bool>(); 2],
        prop::sample::select(&FLOATS[..]),
        prop::option::of([any::<bool>(); 3]),
        1usize..5,
    )
        .prop_map(|(extents, [causal, prefix], dtype, repeats, group)| {
            let kind = Kind { packed: false, causal, backward: false };
            let call = grouped(attention(extents, kind, dtype), group);
            let call = if prefix { prefixed(call) } else { call };
            Call::Attention(repeats.into_iter().fold(call, biased))
        });
    check_random::<D>(60, calls, |call, seed| {
        let Call::Attention(call) = call else { unreachable!("all are attentions") };
        operands(call, seed)
    });
}

/// Heads of one number to 256.
pub fn widths<D: Device>() {
    for dtype in FLOATS {
        for width in [1, 16, 40, 64, 80, 96, 128, 256] {
            for backward in [false, true] {
                let kind = Kind { packed: width != 40, causal: width != 64, backward };
                check_one::<D>(attention([1, 90, 33, 2, width], kind, dtype), width as u64);
            }
        }
    }
}

/// A bias of −∞ masks keys in the same way as a shorter sequence does, forward and backward: the
/// last keys, a part of a block, the first block.
pub fn a_bias_hides_keys<D: Device>() {
    const KEYS: usize = 150;
    let hidden: [[std::ops::Range<usize>; 2]; 2] = [[90..KEYS, 131..KEYS], [0..70, 131..KEYS]];
    for (hidden, dtype, width, backward) in hidden.iter().flat_map(|hidden| {
        let kinds = [(DType::F32, 5), (DType::F32, 16), (DType::BF16, 16)];
        kinds.into_iter().flat_map(move |(d, w)| [false, true].map(|b| (hidden, d, w, b)))
    }) {
        let kind = Kind { packed: false, causal: false, backward };
        let call = biased(attention([2, 70, KEYS, 2, width], kind, dtype), [false, true, true]);
        if !D::fits(&Call::Attention(call.clone())) {
            continue;
        }
        let mut operands = operands(&call, 3);
        let bias: Vec<f32> = (0..2 * KEYS)
            .map(|at| match hidden[at / KEYS].contains(&(at % KEYS)) {
                true => f32::NEG_INFINITY,
                false => 0.0,
            })
            .collect();
        operands[3] = Literal::from_vec(&[2, 1, 1, KEYS], bias).expect("two rows");
        if backward {
            operands[4] = logarithms(&call, &operands[..4]);
        }
        let call = Call::Attention(call);
        D::check(&call, &operands).unwrap_or_else(|e| panic!("{e}"));
        if backward {
            // Exactly the masked keys have a zero cotangent.
            let of_keys = floats(&D::run(&call, &operands)[1]);
            for (at, row) in of_keys.chunks(2 * width).enumerate() {
                let masked = hidden[at / KEYS].contains(&(at % KEYS));
                assert!(row.iter().all(|x| (*x == 0.0) == masked), "{call:?} at {at}: {row:?}");
            }
        }
    }
}

/// Several blocks of queries and of keys, with prefixes at and around their ends, and out of range.
pub fn prefixes<D: Device>() {
    const KEYS: usize = 200;
    let prefixes =
        [0, 1, 63, 64, 65, 128, KEYS as i32, KEYS as i32 + 9, -3, -70, i32::MIN, i32::MAX];
    let kinds = [false, true].map(|causal| [false, true].map(|backward| (causal, backward)));
    for (dtype, width, queries) in
        FLOATS.into_iter().flat_map(|d| [(d, 9, 1), (d, 16, 3), (d, 16, 131)])
    {
        for (causal, backward) in kinds.concat() {
            let kind = Kind { packed: false, causal, backward };
            for (n, prefixes) in prefixes.chunks(4).enumerate() {
                let call = attention([4, queries, KEYS, 1, width], kind, dtype);
                let call = prefixed(if n == 1 { grouped(call, 2) } else { call });
                let biases = (n == 2).then_some([true, false, true]);
                let call = biases.into_iter().fold(call, biased);
                check::<D>(&Call::Attention(call.clone()), || operands_of(&call, prefixes, 11));
            }
            let packed = Kind { packed: true, ..kind };
            let call = prefixed(attention([2, 70, 70, 2, width], packed, dtype));
            check::<D>(&Call::Attention(call.clone()), || operands_of(&call, &[5, 70], 12));
        }
    }
}

/// The maximum score of a row grows from block to block, by more and by less than 2⁸. All blocks
/// are whole.
pub fn maxima_grow<D: Device>() {
    const KEYS: usize = 256;
    for (dtype, backward) in FLOATS.into_iter().flat_map(|d| [(d, false), (d, true)]) {
        let kind = Kind { packed: false, causal: backward, backward };
        let call = attention([1, KEYS, KEYS, 1, 64], kind, dtype);
        let mut operands = operands(&call, 5);
        let keys = operands[1].clone();
        let mut all = keys.scalars();
        let mut at = 0;
        operands[1] = literal(dtype, &extents(&keys.ty()), |dtype| {
            let factor = [0.25, 0.5, 4.0, 5.0][at / (64 * 64)];
            at += 1;
            Scalar::from_f64(dtype, factor * all.next().expect("as many").to_f64())
        });
        if backward {
            operands[3] = logarithms(&call, &operands[..3]);
        }
        check::<D>(&Call::Attention(call), || operands.clone());
    }
}

/// The results of a query without keys: 0 and −∞, and its cotangents are 0.
pub fn queries_without_keys<D: Device>() {
    for (dtype, causal) in [(DType::F32, false), (DType::F32, true), (DType::BF16, true)] {
        let kind = |backward| Kind { packed: false, causal, backward };
        let call = |backward| prefixed(attention([2, 70, 70, 2, 16], kind(backward), dtype));
        if !D::fits(&Call::Attention(call(true))) {
            continue;
        }
        // Causal: queries 0 to 1, and 0 to 66, see no key.
        let prefixes = if causal { [-1, -66] } else { [0, -4] };
        let none = |example: usize, query: usize| !causal || query < [2, 67][example];
        let results = |backward| -> Vec<Vec<f64>> {
            let call = call(backward);
            let operands = operands_of(&call, &prefixes, 13);
            D::run(&Call::Attention(call), &operands).iter().map(floats).collect()
        };
        let [forward, backward] = [false, true].map(results);
        let (out, l, dq) = (&forward[0], &forward[1], &backward[0]);
        for (example, query) in (0..2).flat_map(|b| (0..70).map(move |t| (b, t))) {
            let row = (example * 70 + query) * 32..(example * 70 + query + 1) * 32;
            let is_zero = |x: &[f64]| x.iter().all(|x| *x == 0.0);
            let what = format!("{dtype} {causal}: query {query} of example {example}");
            assert_eq!(is_zero(&out[row.clone()]), none(example, query), "{what}");
            assert!(is_zero(&dq[row]) || !none(example, query), "{what}");
            for head in 0..2 {
                let l = l[(example * 2 + head) * 70 + query];
                assert_eq!(l == f64::NEG_INFINITY, none(example, query), "{what}: {l}");
            }
        }
    }
}

/// Infinite and NaN scores give the results of the formulas. A row with a NaN score is NaN, and a
/// score of −∞ has weight zero.
pub fn special_scores<D: Device>() {
    let kind = Kind { packed: false, causal: false, backward: false };
    let call = Call::Attention(attention([1, 3, 200, 1, 2], kind, DType::F32));
    let f32s = |shape: [usize; 4], all: Vec<f32>| Literal::from_vec(&shape, all).expect("as many");
    let q = f32s([1, 3, 1, 2], vec![1.0, 0.0, f32::NAN, 0.0, 0.0, 1.0]);
    for special in [f32::INFINITY, f32::NAN] {
        let mut keys = vec![0.5; 400];
        // Key 150 is beyond the first block. Only its first component is special.
        keys[2 * 150] = special;
        let (k, v) = (f32s([1, 200, 1, 2], keys), f32s([1, 200, 1, 2], vec![2.0; 400]));
        let out = floats(&D::run(&call, &[q.clone(), k, v])[0]);
        // In the last row 0 times infinity is NaN as well.
        assert!(out.iter().all(|x| x.is_nan()), "{special}: {out:?}");
    }
    // A score of −∞ has weight zero, even if its whole block is −∞.
    let q = f32s([1, 3, 1, 2], vec![1.0; 6]);
    let mut keys = vec![f32::NEG_INFINITY; 400];
    keys[398..].fill(-400.0);
    let k = f32s([1, 200, 1, 2], keys);
    let v = f32s([1, 200, 1, 2], (0..400).map(|n| n as f32).collect());
    assert_eq!(floats(&D::run(&call, &[q, k, v])[0]), [398.0, 399.0].repeat(3));
}
