//! The area under the ROC curve, by ranks.
//!
//! Mann and Whitney's U counts the pairs of a positive and a negative example in which the positive
//! one has the greater score, and a half for equal scores. Within a group of equal scores, and with
//! the negative examples before it counted, 2U is an integer. So the area, U over the number of
//! pairs, is rounded once.

/// Scores of positive and negative examples.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    scores: Vec<(f64, bool)>,
}

impl Ranks {
    pub fn add(&mut self, score: f64, is_positive: bool) {
        // Both zeros are one score.
        self.scores.push((score + 0.0, is_positive));
    }

    /// The area; NaN if a score is NaN.
    ///
    /// Error: all examples are of one class, which is named.
    pub fn area(mut self) -> Result<f64, &'static str> {
        if self.scores.iter().any(|(score, _)| score.is_nan()) {
            return Ok(f64::NAN);
        }
        self.scores.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let (mut twice, mut negatives, mut positives) = (0u128, 0u128, 0u128);
        for group in self.scores.chunk_by(|a, b| a.0 == b.0) {
            let positive = group.iter().filter(|(_, is_positive)| *is_positive).count() as u128;
            let negative = group.len() as u128 - positive;
            twice += positive * (2 * negatives + negative);
            positives += positive;
            negatives += negative;
        }
        match (positives, negatives) {
            (_, 0) => Err("positive"),
            (0, _) => Err("negative"),
            _ => Ok(twice as f64 / (2 * positives * negatives) as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(scores: &[(f64, bool)]) -> Result<f64, &'static str> {
        let mut ranks = Ranks::default();
        scores.iter().for_each(|(score, is_positive)| ranks.add(*score, *is_positive));
        ranks.area()
    }

    #[test]
    fn equal_scores_count_half() {
        assert_eq!(area(&[(0.1, false), (0.2, true)]), Ok(1.0));
        assert_eq!(area(&[(0.2, false), (0.1, true)]), Ok(0.0));
        assert_eq!(area(&[(0.1, false), (0.1, true)]), Ok(0.5));
        // Pairs: (2 > 1), (2 = 2), (3 > 1), (3 > 2).
        assert_eq!(area(&[(2.0, true), (1.0, false), (2.0, false), (3.0, true)]), Ok(3.5 / 4.0));
        assert_eq!(area(&[(-0.0, true), (0.0, false)]), Ok(0.5));
        assert_eq!(area(&[(f64::INFINITY, true), (f64::NEG_INFINITY, false)]), Ok(1.0));
    }

    #[test]
    fn one_class_has_no_area() {
        assert_eq!(area(&[(0.1, true)]), Err("positive"));
        assert_eq!(area(&[(0.1, false)]), Err("negative"));
        assert!(area(&[(0.1, false), (f64::NAN, true)]).unwrap().is_nan());
    }
}
