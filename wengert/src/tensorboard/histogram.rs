//! The distribution of a tensor's elements.
//!
//! The limits of buckets grow by a tenth from 10⁻¹² on, on both sides of 0: those of TensorFlow, so
//! distributions of several programs can be laid over each other. Only the range of buckets that
//! has elements is kept.

use super::proto::Histogram;
use std::sync::LazyLock;
use wengert_core::Literal;

/// The limits of all buckets, increasing; the last one is infinite.
static LIMITS: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let growing = std::iter::successors(Some(1e-12), |limit| Some(limit * 1.1));
    let positive: Vec<f64> = growing.take_while(|limit| *limit < 1e20).collect();
    let negative = positive.iter().rev().map(|limit| -limit);
    negative.chain([0.0]).chain(positive.iter().copied()).chain([f64::MAX]).collect()
});

/// The distribution of the finite elements; `None` if there are none.
pub(super) fn of(values: &Literal) -> Option<Histogram> {
    let limits = &*LIMITS;
    let mut counts = vec![0u64; limits.len()];
    let mut all = Histogram { min: f64::INFINITY, max: f64::NEG_INFINITY, ..Default::default() };
    for value in values.scalars().map(|scalar| scalar.to_f64()).filter(|v| v.is_finite()) {
        all.min = all.min.min(value);
        all.max = all.max.max(value);
        all.num += 1.0;
        all.sum += value;
        all.sum_squares += value * value;
        let bucket = limits.partition_point(|limit| *limit < value);
        counts[bucket.min(limits.len() - 1)] += 1;
    }
    let first = counts.iter().position(|count| *count > 0)?;
    let last = counts.iter().rposition(|count| *count > 0)?;
    all.bucket_limit = limits[first..=last].to_vec();
    all.bucket = counts[first..=last].iter().map(|count| *count as f64).collect();
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finite_element_is_in_its_bucket() {
        let values = vec![0.0, 1.0, 1.0, -1e-13, 1e30, -1e30, f64::NAN, f64::INFINITY];
        let found = of(&Literal::from_vec(&[8], values.clone()).unwrap()).unwrap();
        assert_eq!((found.min, found.max, found.num), (-1e30, 1e30, 6.0));
        assert_eq!(found.bucket.iter().sum::<f64>(), 6.0);
        assert_eq!(found.bucket.len(), found.bucket_limit.len());
        assert!(found.bucket_limit.is_sorted_by(|a, b| a < b));
        let mut from = f64::NEG_INFINITY;
        for (limit, count) in found.bucket_limit.iter().zip(&found.bucket) {
            let within = values.iter().filter(|v| v.is_finite() && **v > from && **v <= *limit);
            assert_eq!(within.count() as f64, *count, "{from} to {limit}");
            from = *limit;
        }
        assert!(of(&Literal::from_vec(&[1], vec![f32::NAN]).unwrap()).is_none());
        let integers = of(&Literal::from_vec(&[3], vec![3i32, -3, 5]).unwrap()).unwrap();
        assert_eq!((integers.min, integers.max), (-3.0, 5.0));
        assert_eq!((integers.sum, integers.sum_squares), (5.0, 43.0));
    }
}
