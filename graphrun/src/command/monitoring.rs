//! The options of `train` and `evaluate` that change what the recipe watches.

use super::data::opened;
use crate::cli::{DataArgs, MonitoringArgs, SetArgs};
use crate::console::{Console, Outcome};
use std::path::PathBuf;
use wengert::data::source::Opened;
use wengert::recipe::{Cadence, EarlyStopping, EvaluationSet};
use wengert::train::SetData;
use wengert::{Recipe, diagnostic, os_text};

/// The data of evaluation sets, from files.
pub(super) struct Sets(Vec<(String, PathBuf, Opened)>);

impl Sets {
    /// Opens the data, and adds the sets that the recipe lacks.
    pub fn open(
        args: &SetArgs,
        data: &DataArgs,
        recipe: &mut Recipe,
        console: &mut Console<'_>,
    ) -> Outcome<Sets> {
        let mut sets: Vec<(String, PathBuf, Opened)> = Vec::new();
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
            let found = opened(path.as_ref(), &data.opening(), console)?;
            sets.push((name.to_owned(), path.into(), found));
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
        sets.map(|(set, path, found)| SetData { set, data: &*found.source, file: Some(path) })
            .collect()
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
