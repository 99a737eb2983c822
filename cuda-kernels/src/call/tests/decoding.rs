//! A row of decoding attention has the same bits whatever is computed beside it.

use super::*;
use wengert_core::Scalar;
use wengert_core::call::Attention;
use wengert_testing::calls::attention::{grouped, operands, prefixed};

const WIDTH: usize = 12;
const GROUP: usize = 2;

fn call([batch, queries, keys]: [usize; 3], dtype: DType) -> Attention {
    let kind = Kind { packed: false, causal: true, backward: false };
    grouped(attention([batch, queries, keys, 2, WIDTH], kind, dtype), GROUP)
}

/// Out `[batch, queries, heads, width]` and l `[batch, heads, queries]`.
fn results(extents: [usize; 3], dtype: DType, operands: &[Literal]) -> [Literal; 2] {
    let call = Call::Attention(prefixed(call(extents, dtype)));
    let names = ["decode", "combine"].map(|name| format!("attention_{name}_{dtype}"));
    assert_eq!(kernels(&call), names);
    Emulated::run(&call, operands).try_into().unwrap()
}

/// Part of an axis of a tensor, and `missing` behind it.
fn part(x: &Literal, axis: usize, range: std::ops::Range<usize>, missing: usize) -> Literal {
    let shape = x.shape();
    let inner: usize = shape[axis + 1..].iter().product();
    let outer: usize = shape[..axis].iter().product();
    let nan = Scalar::from_f64(x.dtype(), f64::NAN);
    let all: Vec<Scalar> = (0..outer)
        .flat_map(|o| {
            let at = |n: usize| (o * shape[axis] + n) * inner;
            let here = (at(range.start)..at(range.end)).map(|at| x.get(at));
            here.chain(std::iter::repeat_n(nan, missing * inner)).collect::<Vec<_>>()
        })
        .collect();
    let mut extents = shape.to_vec();
    extents[axis] = range.len() + missing;
    Literal::from_scalars(x.dtype(), &extents, &all).unwrap()
}

#[test]
fn rows_have_bits_of_their_own() {
    const KEYS: usize = 300;
    let prefixes = [130, 3, 295];
    for dtype in FLOATS {
        let [q, k, v] = operands(&call([3, 3, KEYS], dtype), 8).try_into().unwrap();
        let prefix = |all: &[i32]| Literal::from_vec(&[all.len()], all.to_vec()).unwrap();
        let [out, l] =
            results([3, 3, KEYS], dtype, &[q.clone(), k.clone(), v.clone(), prefix(&prefixes)]);

        // A longer cache, of which the end is missing.
        let [k_long, v_long] = [&k, &v].map(|x| part(x, 1, 0..KEYS, 700));
        let long = [q.clone(), k_long, v_long, prefix(&prefixes)];
        assert!(results([3, 3, KEYS + 700], dtype, &long) == [out.clone(), l.clone()], "{dtype}");

        // One position of one example.
        for (b, t) in [(0, 0), (0, 2), (1, 1), (2, 2)] {
            let q = part(&part(&q, 0, b..b + 1, 0), 1, t..t + 1, 0);
            let [k, v] = [&k, &v].map(|x| part(x, 0, b..b + 1, 0));
            let given = [q, k, v, prefix(&[prefixes[b] + t as i32])];
            let found = results([1, 1, KEYS], dtype, &given);
            let wanted_out = part(&part(&out, 0, b..b + 1, 0), 1, t..t + 1, 0);
            let wanted_l = part(&part(&l, 0, b..b + 1, 0), 2, t..t + 1, 0);
            assert!(found == [wanted_out, wanted_l], "{dtype}: query {t} of example {b}");
        }
    }
}
