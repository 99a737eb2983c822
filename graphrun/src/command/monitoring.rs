//! The options of `train` and `evaluate` that change what the recipe watches.

use crate::cli::{DataArgs, MonitoringArgs, SetArgs};
use crate::console::Outcome;
use std::path::PathBuf;
use wengert::data::{self, Arrays};
use wengert::recipe::{Cadence, EarlyStopping, EvaluationSet};
use wengert::train::SetData;
use wengert::{Recipe, diagnostic, os_text};

/// The data of evaluation sets, read from files.
pub(super) struct Sets(Vec<(String, PathBuf, Arrays)>);

impl Sets {
    /// Reads the data, and adds the sets that the recipe lacks.
    pub fn read(args: &SetArgs, data: &DataArgs, recipe: &mut Recipe) -> Outcome<Sets> {
        let mut sets: Vec<(String, PathBuf, Arrays)> = Vec::new();
        for text in &args.sets {
            let named = os_text::split_once(text, b'=');
            let Some((name, path)) = named.and_then(|(name, path)| Some((name.to_str()?, path)))
            else {
                return Err(diagnostic!("`{}` does not name an evaluation set", text.display())
                    .help("write NAME=DATA, as in `--eval-data test=test.npz`")
                    .into());
            };
            if sets.iter().any(|(known, ..)| known == name) {
                return Err(diagnostic!("evaluation set `{name}` has data twice").into());
            }
            let arrays = data::read_all_within(path, data.reading.limit())?;
            sets.push((name.to_owned(), path.into(), arrays));
            if recipe.set(name).is_some() {
                continue;
            }
            let Some(evaluate) = recipe.evaluate.clone() else {
                return Err(diagnostic!(
                    "the recipe has no evaluation, so set `{name}` cannot be evaluated"
                )
                .help("give `Recipe::evaluate` a function and its metrics")
                .into());
            };
            recipe.monitoring.sets.push(EvaluationSet { name: name.to_owned(), evaluate });
        }
        Ok(Sets(sets))
    }

    /// The data as the library takes it.
    pub fn data(&self) -> Vec<SetData<'_>> {
        let sets = self.0.iter();
        sets.map(|(set, path, arrays)| SetData { set, arrays, file: Some(path) }).collect()
    }
}

/// Changes the recipe by the other options.
pub(super) fn apply(args: &MonitoringArgs, recipe: &mut Recipe) {
    if let Some(epochs) = args.evaluate_every {
        let sets = recipe.monitoring.sets.iter_mut().map(|set| &mut set.evaluate);
        for evaluate in recipe.evaluate.iter_mut().chain(sets) {
            evaluate.every = Cadence::Epochs(epochs);
        }
    }
    let monitoring = &mut recipe.monitoring;
    if let Some(watched) = &args.monitor {
        monitoring.watched = Some(watched.clone());
    }
    if let Some(patience) = args.patience {
        let min_change = args.min_change.unwrap_or(0.0);
        monitoring.early_stopping = Some(EarlyStopping { patience, min_change });
    }
    let kept = &mut monitoring.kept;
    kept.last = args.keep_last.unwrap_or(kept.last);
    kept.best = args.keep_best.unwrap_or(kept.best);
    kept.weights = args.weights.map_or(kept.weights, Into::into);
}
