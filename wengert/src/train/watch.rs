//! The watched number: early stopping, and the best checkpoints.
//!
//! [`Monitoring`] says what is watched. A [`Watch`] is what a run remembers of it. Checkpoints hold
//! it, so a resumed run stops after the same step and keeps the same checkpoints.

use crate::data::Arrays;
use crate::recipe::Monitoring;
use wengert_core::{Diagnostic, Element, Literal, Result};

/// What a run remembers of the watched number.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Watch {
    /// The step and the value of the last improvement that early stopping has counted.
    pub improved: Option<(u64, f64)>,
    /// Evaluations since then.
    pub waited: u64,
    /// Steps and values of the best checkpoints, the best first.
    pub best: Vec<(u64, f64)>,
    /// Steps of the best checkpoints when the checkpoint before was written. They are kept until
    /// the next one, so that a run that resumes from the checkpoint before finds them.
    pub previous: Vec<u64>,
}

const IMPROVED_STEP: &str = "/watched.step";
const IMPROVED: &str = "/watched.value";
const WAITED: &str = "/watched.waited";
const BEST_STEPS: &str = "/best.steps";
const BEST: &str = "/best.values";
const PREVIOUS: &str = "/best.previous";

impl Watch {
    /// Takes the value after a step. Returns whether it is among the best that are kept.
    pub(super) fn observe(&mut self, step: u64, value: f64, monitoring: &Monitoring) -> bool {
        let Some(watched) = &monitoring.watched else { return false };
        let goal = watched.goal;
        let margin = monitoring.early_stopping.map_or(0.0, |early| early.min_change);
        match self.improved {
            Some((_, best)) if !goal.is_better(value, best, margin) => self.waited += 1,
            _ => (self.improved, self.waited) = (Some((step, value)), 0),
        }
        let place = self.best.partition_point(|(_, best)| !goal.is_better(value, *best, 0.0));
        self.best.insert(place, (step, value));
        self.best.truncate(usize::try_from(monitoring.kept.best).unwrap_or(usize::MAX));
        place < self.best.len()
    }

    /// Whether early stopping ends the run.
    pub(super) fn is_over(&self, monitoring: &Monitoring) -> bool {
        monitoring.early_stopping.is_some_and(|early| self.waited >= early.patience)
    }

    /// Whether the checkpoint of a step is one of the best, or was one before.
    pub(super) fn keeps(&self, step: u64) -> bool {
        self.best.iter().any(|(best, _)| *best == step) || self.previous.contains(&step)
    }

    /// The steps of the best checkpoints.
    pub(super) fn best_steps(&self) -> Vec<u64> {
        self.best.iter().map(|(step, _)| *step).collect()
    }

    /// The arrays of a checkpoint; none if nothing was watched.
    pub(super) fn to_arrays(&self) -> Vec<(&'static str, Literal)> {
        let mut arrays = Vec::new();
        if let Some((step, value)) = self.improved {
            arrays.push((IMPROVED_STEP, Literal::from(step)));
            arrays.push((IMPROVED, Literal::from(value)));
            arrays.push((WAITED, Literal::from(self.waited)));
        }
        if !self.best.is_empty() {
            arrays.push((BEST_STEPS, list(self.best_steps())));
            arrays.push((BEST, list(self.best.iter().map(|(_, value)| *value).collect())));
        }
        if !self.previous.is_empty() {
            arrays.push((PREVIOUS, list(self.previous.clone())));
        }
        arrays
    }

    /// Takes it out of the arrays of a checkpoint.
    pub(super) fn take(arrays: &mut Arrays) -> Result<Watch> {
        let wrong = || Diagnostic::new("it is no checkpoint of this version");
        let mut steps = |name: &str| match arrays.remove(name) {
            None => Ok(Vec::new()),
            Some(literal) => literal.as_slice::<u64>().map(<[u64]>::to_vec).ok_or_else(wrong),
        };
        let (step, waited) = (steps(IMPROVED_STEP)?, steps(WAITED)?);
        let (best_steps, previous) = (steps(BEST_STEPS)?, steps(PREVIOUS)?);
        let mut values = |name: &str| match arrays.remove(name) {
            None => Ok(Vec::new()),
            Some(literal) => literal.as_slice::<f64>().map(<[f64]>::to_vec).ok_or_else(wrong),
        };
        let (value, best) = (values(IMPROVED)?, values(BEST)?);
        let (improved, waited) = match (&step[..], &value[..], &waited[..]) {
            ([], [], []) => (None, 0),
            ([step], [value], [waited]) => (Some((*step, *value)), *waited),
            _ => return Err(wrong()),
        };
        if best_steps.len() != best.len() {
            return Err(wrong());
        }
        Ok(Watch { improved, waited, best: best_steps.into_iter().zip(best).collect(), previous })
    }
}

fn list<T: Element>(values: Vec<T>) -> Literal {
    Literal::from_vec(&[values.len()], values).expect("the shape is the length of the list")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{EarlyStopping, Kept};

    fn monitoring(watched: &str, patience: u64, min_change: f64, best: u64) -> Monitoring {
        Monitoring {
            watched: Some(watched.parse().unwrap()),
            early_stopping: Some(EarlyStopping { patience, min_change }),
            kept: Kept { best, ..Kept::default() },
            ..Monitoring::default()
        }
    }

    #[test]
    fn patience_counts_evaluations_without_an_improvement() {
        let rules = monitoring("loss:min", 2, 0.5, 0);
        let mut watch = Watch::default();
        // 9.6 is less than 10, but not by more than 0.5; 9.5 neither.
        for (step, value, waited) in [(1, 10.0, 0), (2, 9.6, 1), (3, 9.4, 0), (4, 8.9, 1)] {
            assert!(!watch.observe(step, value, &rules));
            assert_eq!((watch.waited, watch.is_over(&rules)), (waited, false), "{step}");
        }
        watch.observe(5, 9.0, &rules);
        assert!(watch.is_over(&rules));
        assert_eq!((watch.improved, watch.waited), (Some((3, 9.4)), 2));
        let rules = monitoring("accuracy:max", 1, 0.0, 0);
        let mut watch = Watch::default();
        watch.observe(1, 0.5, &rules);
        watch.observe(2, 0.6, &rules);
        assert!(!watch.is_over(&rules));
        watch.observe(3, 0.6, &rules);
        assert!(watch.is_over(&rules), "an equal number is no improvement");
    }

    #[test]
    fn the_best_are_in_order_and_the_earlier_of_equals_precedes() {
        let rules = monitoring("accuracy:max", 9, 0.0, 2);
        let mut watch = Watch::default();
        let entered: Vec<bool> = [(1, 0.5), (2, 0.4), (3, 0.5), (4, 0.5), (5, 0.6)]
            .into_iter()
            .map(|(step, value)| watch.observe(step, value, &rules))
            .collect();
        assert_eq!(entered, [true, true, true, false, true]);
        assert_eq!(watch.best, [(5, 0.6), (1, 0.5)]);
        assert!(watch.keeps(1) && !watch.keeps(3));
    }

    #[test]
    fn arrays_hold_it() {
        for watch in [
            Watch::default(),
            Watch {
                improved: Some((7, 0.25)),
                waited: 3,
                best: vec![(7, 0.25), (1, 0.5)],
                previous: vec![4],
            },
        ] {
            let arrays = watch.to_arrays().into_iter();
            let mut arrays: Arrays = arrays.map(|(name, value)| (name.to_owned(), value)).collect();
            assert_eq!(Watch::take(&mut arrays).unwrap(), watch);
            assert!(arrays.is_empty());
        }
        let mut torn = Arrays::from([(BEST.to_owned(), list(vec![0.5]))]);
        assert!(Watch::take(&mut torn).is_err());
    }
}
