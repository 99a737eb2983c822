//! Sorting and top-k.

use super::*;
use wengert_core::call::{Sort, TopK};

/// Elements with many duplicates and some special values.
fn keys(dtype: DType, shape: &[usize], seed: u64, distinct: i64) -> Literal {
    let values: Vec<Scalar> = numbers(DType::I64, shape, seed)
        .scalars()
        .map(|x| {
            let x = x.to_i64().unwrap();
            match x.rem_euclid(9) {
                0 => Scalar::highest(dtype),
                1 => Scalar::lowest(dtype),
                // Zeros and NaNs of both signs; for integers just large numbers.
                2 => Scalar::from_bits(dtype, 1 << (dtype.bits() - 1)),
                3 => Scalar::from_bits(dtype, !(x as u64 & 0b11_0000_0011)),
                4 => Scalar::from_bits(dtype, (!(x as u64 & 0b11)) >> (65 - dtype.bits())),
                5 => Scalar::from_bits(dtype, (x as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                _ => Scalar::from_i64(dtype, (x / 9) % distinct),
            }
        })
        .collect();
    Literal::from_scalars(dtype, shape, &values).unwrap()
}

fn operands(sort: &Sort, seed: u64) -> Vec<Literal> {
    let shape = [sort.outer, sort.length, sort.inner];
    // The leading keys have few distinct values, so that the following keys decide.
    sort.keys
        .iter()
        .zip(seed..)
        .map(|(dtype, seed)| keys(*dtype, &shape, seed, 1 + (seed % 7) as i64))
        .collect()
}

fn dtypes() -> impl Strategy<Value = DType> {
    (0..DType::ALL.len()).prop_map(|n| DType::ALL[n])
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn small_sorts(
        extents in [0usize..5, 0usize..40, 0usize..5],
        keys in prop::collection::vec(dtypes(), 1..5),
        descending: bool,
        seed in 0u64..1 << 40,
    ) {
        let sort =
            Sort { outer: extents[0], length: extents[1], inner: extents[2], keys, descending };
        let operands = operands(&sort, seed);
        check(&Call::Sort(sort), &operands)?;
    }

    #[test]
    fn small_top_ks(
        outer in 0usize..6,
        length in 0usize..60,
        k in 0usize..60,
        dtype in dtypes(),
        seed in 0u64..1 << 40,
    ) {
        let top = TopK { outer, length, k: k.min(length), dtype };
        let operand = keys(dtype, &[outer, length], seed, 5);
        check(&Call::TopK(top), &[operand])?;
    }
}

/// More rows than one task takes, and rows that are longer than a task.
#[test]
fn many_and_long_rows() {
    use DType::*;
    for (outer, length, inner, keys) in [
        (3000, 10, 1, vec![F32]),
        (2, 300, 70, vec![BF16, Bool]),
        (1, 20_000, 1, vec![F64]),
        (2, 5000, 2, vec![I8, U64, F16, F64, I32]),
    ] {
        let sort = Sort { outer, length, inner, keys, descending: length % 3 == 0 };
        let operands = operands(&sort, 11);
        check(&Call::Sort(sort), &operands).unwrap();
    }
    for (outer, length, k, dtype) in
        [(500, 100, 3, F16), (2, 30_000, 100, F32), (1, 9000, 8999, I64)]
    {
        let operand = keys(dtype, &[outer, length], 5, 1000);
        check(&Call::TopK(TopK { outer, length, k, dtype }), &[operand]).unwrap();
    }
}
