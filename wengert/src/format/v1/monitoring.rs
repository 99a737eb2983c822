//! What a run watches, to and from version 1.

use super as v1;
use super::recipe::{evaluate_from, evaluate_to};
use crate::recipe::{
    EarlyStopping, EvaluationSet, FinalWeights, Goal, Kept, Monitoring, Recipe, Watched,
};
use wengert_core::Result;

/// Converts it to a record; `None` if nothing differs from the default. Earlier readers refuse the
/// section.
pub fn to_record(monitoring: &Monitoring) -> Option<v1::Monitoring> {
    if monitoring.is_default() {
        return None;
    }
    let Kept { last, best, weights } = monitoring.kept;
    Some(v1::Monitoring {
        sets: monitoring
            .sets
            .iter()
            .map(|set| v1::EvaluationSet {
                name: set.name.clone(),
                evaluate: evaluate_to(&set.evaluate),
            })
            .collect(),
        watched: monitoring.watched.as_ref().map(|watched| v1::Watched {
            metric: watched.metric.clone(),
            is_greater_better: watched.goal == Goal::Max,
        }),
        early_stopping: monitoring.early_stopping.map(|early| v1::EarlyStopping {
            patience: early.patience,
            min_change: early.min_change.to_bits(),
        }),
        last,
        best,
        weights_of_best: weights == FinalWeights::Best,
    })
}

/// Converts a record. The recipe, which has everything else, must pass [`Recipe::verify`].
pub fn from_record(record: v1::Monitoring, recipe: &mut Recipe) -> Result<()> {
    let set = |set: v1::EvaluationSet| {
        Ok(EvaluationSet { name: set.name, evaluate: evaluate_from(set.evaluate)? })
    };
    recipe.monitoring = Monitoring {
        sets: record.sets.into_iter().map(set).collect::<Result<_>>()?,
        watched: record.watched.map(|watched| Watched {
            metric: watched.metric,
            goal: if watched.is_greater_better { Goal::Max } else { Goal::Min },
        }),
        early_stopping: record.early_stopping.map(|early| EarlyStopping {
            patience: early.patience,
            min_change: f64::from_bits(early.min_change),
        }),
        kept: Kept {
            last: record.last,
            best: record.best,
            weights: match record.weights_of_best {
                true => FinalWeights::Best,
                false => FinalWeights::Last,
            },
        },
    };
    recipe.verify()
}

#[cfg(test)]
mod tests {
    use super::super::recipe::tests::sample;
    use super::*;
    use crate::format::codec;

    #[test]
    fn round_trip() {
        let mut recipe = sample();
        assert_eq!(to_record(&recipe.monitoring), None);
        let evaluate = recipe.evaluate.clone().unwrap();
        recipe.monitoring = Monitoring {
            sets: vec![EvaluationSet { name: "test".into(), evaluate }],
            watched: Some("test/mean:max".parse().unwrap()),
            early_stopping: Some(EarlyStopping { patience: 3, min_change: 0.1 }),
            kept: Kept { last: 1, best: 4, weights: FinalWeights::Best },
        };
        let bytes = codec::encode("monitoring", &to_record(&recipe.monitoring).unwrap()).unwrap();
        let mut read = sample();
        from_record(codec::decode("monitoring", &bytes).unwrap(), &mut read).unwrap();
        assert_eq!(read, recipe);
    }

    #[test]
    fn what_does_not_fit_the_recipe_is_refused() {
        let mut recipe = sample();
        let record = v1::Monitoring {
            sets: vec![],
            watched: Some(v1::Watched { metric: "median".into(), is_greater_better: false }),
            early_stopping: None,
            last: 2,
            best: 0,
            weights_of_best: false,
        };
        let error = from_record(record, &mut recipe).unwrap_err();
        assert_eq!(error.message, "recipe: there is no metric `median` to watch");
    }
}
