//! Random data and the sampling of results.

use wengert::random::{SplitMix64, hash_name};
use wengert::{DType, Literal, Result};

/// The seed of all data. Data are the same in every run, so results can be compared between runs.
const SEED: u64 = 0x5eed;

/// Numbers uniform in `low..high`, rounded to `dtype`, from the stream of `name`.
///
/// Error: `dtype` is neither f32 nor bf16, the float dtypes of cases.
pub fn uniform(name: &str, dtype: DType, shape: &[usize], low: f64, high: f64) -> Result<Literal> {
    let mut stream = SplitMix64::of(SEED, &[hash_name(name)]);
    let count: usize = shape.iter().product();
    // 24 random bits per number: the precision of an f32.
    let mut draw =
        || (low + (high - low) * ((stream.next_u64() >> 40) as f64 / f64::from(1 << 24))) as f32;
    let values: Vec<f32> = (0..count).map(|_| draw()).collect();
    Ok(match dtype {
        DType::F32 => Literal::from_vec(shape, values)?,
        _ => Literal::from_vec(shape, values)?.convert(dtype),
    })
}

/// Integers uniform in `0..bound`.
pub fn labels(name: &str, count: usize, bound: usize) -> Result<Literal> {
    let mut stream = SplitMix64::of(SEED, &[hash_name(name)]);
    Literal::from_vec(&[count], (0..count).map(|_| stream.below(bound as u64) as i32).collect())
}

/// At most `wanted` distinct numbers of `0..count`, ascending: the first, the last, and random
/// ones between.
pub fn sampled(count: usize, wanted: usize) -> Vec<usize> {
    if count <= wanted {
        return (0..count).collect();
    }
    let mut stream = SplitMix64::of(SEED, &[count as u64]);
    let mut chosen = vec![0, count - 1];
    chosen.extend((2..wanted).map(|_| stream.below(count as u64) as usize));
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_are_random_repeatable_and_not_zero() {
        let x = uniform("x", DType::F32, &[50, 20], -1.0, 3.0).unwrap();
        assert_eq!(x, uniform("x", DType::F32, &[50, 20], -1.0, 3.0).unwrap());
        assert_ne!(x, uniform("w", DType::F32, &[50, 20], -1.0, 3.0).unwrap());
        let values = x.as_slice::<f32>().unwrap();
        assert!(values.iter().all(|v| (-1.0..3.0).contains(v)));
        let mean = values.iter().sum::<f32>() / 1000.0;
        assert!((mean - 1.0).abs() < 0.1, "{mean}");
        assert!(values.iter().filter(|v| **v == 0.0).count() < 2);
        assert_eq!(
            uniform("x", DType::BF16, &[50, 20], -1.0, 3.0).unwrap(),
            x.convert(DType::BF16)
        );
        let labels = labels("y", 1000, 7).unwrap();
        assert_eq!((0..7).filter(|k| labels.as_slice::<i32>().unwrap().contains(k)).count(), 7);
    }

    #[test]
    fn samples_are_ascending_and_hold_both_ends() {
        assert_eq!(sampled(3, 5), [0, 1, 2]);
        let some = sampled(1_000_000, 64);
        assert!(some.is_sorted_by(|a, b| a < b) && some.len() > 60);
        assert_eq!((some[0], some[some.len() - 1]), (0, 999_999));
    }
}
