//! What a run watches while it trains: evaluation sets, early stopping, the checkpoints it keeps.
//!
//! One number can be *watched*: a metric of an evaluation, or the mean loss of each epoch
//! ([`EPOCH_LOSS`]). Early stopping and the best checkpoints go by it. It counts at the evaluations
//! that are due by their [cadence](EvaluateRecipe::every), and not at one that takes place only
//! because the run ends. So a run that is ended and resumed stops after the same step as one that
//! is not.

use super::{Cadence, EvaluateRecipe, Recipe};
use std::fmt;
use std::str::FromStr;
use wengert_core::nearest::nearest;
use wengert_core::{Diagnostic, Result, diagnostic};

/// The name of the mean loss of an epoch as a watched number.
pub const EPOCH_LOSS: &str = "epoch_loss";

/// What a run watches, and what follows from it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Monitoring {
    /// Evaluations beside [`Recipe::evaluate`], each with a name.
    pub sets: Vec<EvaluationSet>,
    /// The number that early stopping and the best checkpoints go by.
    pub watched: Option<Watched>,
    /// When the run ends before its last step.
    pub early_stopping: Option<EarlyStopping>,
    /// The checkpoints that are kept.
    pub kept: Kept,
}

/// A further evaluation. Its metrics are called `SET/METRIC` where those of several evaluations
/// stand together.
#[derive(Clone, PartialEq, Debug)]
pub struct EvaluationSet {
    /// Its name, without a slash.
    pub name: String,
    /// Its function, data and metrics. The arrays are those of the run's data, unless the caller
    /// gives the set [data of its own](crate::train::Options::sets).
    pub evaluate: EvaluateRecipe,
}

/// The number that is watched. Its text is `METRIC:min` or `METRIC:max`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watched {
    /// [`EPOCH_LOSS`], a metric of [`Recipe::evaluate`], or `SET/METRIC`.
    pub metric: String,
    /// Whether less or more is better.
    pub goal: Goal,
}

/// Whether less or more is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goal {
    /// Less is better, as of a loss.
    Min,
    /// More is better, as of an accuracy.
    Max,
}

impl Goal {
    /// Whether `value` is better than `than` by more than `margin`.
    pub fn is_better(self, value: f64, than: f64, margin: f64) -> bool {
        match self {
            Goal::Min => value < than - margin,
            Goal::Max => value > than + margin,
        }
    }
}

/// The run ends once the watched number has not improved in several evaluations in a row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EarlyStopping {
    /// Number of evaluations in a row without an improvement, at least 1.
    pub patience: u64,
    /// An improvement is greater than this.
    pub min_change: f64,
}

/// The checkpoints that a run keeps. They are written in any case when they are due by
/// [`Recipe::checkpoint`], and also after an evaluation whose watched number is among the best.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// Number of newest checkpoints, at least 1. With one, nothing replaces a damaged checkpoint.
    pub last: u64,
    /// Number of checkpoints with the best watched numbers. Of equal ones the earlier is better.
    pub best: u64,
    /// The variables that are the result of the run.
    pub weights: FinalWeights,
}

impl Default for Kept {
    /// The last two, and the weights after the last step.
    fn default() -> Self {
        Kept { last: 2, best: 0, weights: FinalWeights::Last }
    }
}

/// The variables that `weights.safetensors` has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FinalWeights {
    /// Those after the last step.
    Last,
    /// Those of the best checkpoint; those after the last step if no evaluation has counted.
    Best,
}

impl Monitoring {
    /// Whether nothing differs from the default.
    pub fn is_default(&self) -> bool {
        *self == Monitoring::default()
    }

    pub(super) fn verify(&self, recipe: &Recipe) -> Result<()> {
        for (n, set) in self.sets.iter().enumerate() {
            if set.name.is_empty() || set.name.contains(['/', '=']) {
                return Err(diagnostic!("recipe: `{}` cannot name an evaluation set", set.name)
                    .help("a name has at least one character, and neither `/` nor `=`"));
            }
            if self.sets[..n].iter().any(|earlier| earlier.name == set.name) {
                return Err(diagnostic!("recipe: there are two evaluation sets `{}`", set.name));
            }
            set.evaluate
                .verify()
                .map_err(|error| error.context(format_args!("evaluation set `{}`", set.name)))?;
        }
        if let Some(EarlyStopping { patience, min_change }) = self.early_stopping {
            super::positive("the patience of early stopping", patience)?;
            if !min_change.is_finite() || min_change < 0.0 {
                return Err(diagnostic!("recipe: the least change that counts is {min_change}")
                    .help("it is a number of at least 0"));
            }
        }
        super::positive("the number of last checkpoints", self.kept.last)?;
        if self.kept.weights == FinalWeights::Best && self.kept.best == 0 {
            return Err(Diagnostic::new(
                "recipe: no best checkpoint is kept, so it has no weights",
            )
            .help("keep at least one: `Kept::best`, `--keep-best 1`"));
        }
        let user = match (self.early_stopping, self.kept.best) {
            (Some(_), _) => "early stopping goes by",
            (None, 1..) => "the best checkpoints go by",
            (None, 0) => "",
        };
        match &self.watched {
            Some(watched) => self.verify_watched(watched, recipe),
            None if user.is_empty() => Ok(()),
            None => Err(diagnostic!("recipe: {user} a metric, and none is watched").help(
                "name one, and whether less or more is better: `Monitoring::watched`, \
                 `--monitor METRIC:min`",
            )),
        }
    }

    fn verify_watched(&self, watched: &Watched, recipe: &Recipe) -> Result<()> {
        let mut known = vec![(EPOCH_LOSS.to_owned(), None)];
        for (set, evaluate) in recipe.evaluations() {
            let numbers = evaluate.metrics.iter().filter(|metric| metric.aggregate.is_number());
            known.extend(numbers.map(|m| (qualified(set, &m.name), Some(evaluate.every))));
        }
        let found = known.iter().find(|(name, _)| *name == watched.metric);
        match found {
            Some((name, Some(Cadence::Never))) => {
                Err(diagnostic!("recipe: `{name}` is evaluated at the end only").help(
                    "a watched metric is evaluated during the run: `EvaluateRecipe::every`, \
                     `--evaluate-every EPOCHS`",
                ))
            }
            Some(_) => Ok(()),
            None => {
                let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
                let all = crate::data::listed(&names);
                let help = match nearest(&watched.metric, names.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`? there are {all}"),
                    None => format!("there are {all}"),
                };
                Err(diagnostic!("recipe: there is no metric `{}` to watch", watched.metric)
                    .help(help))
            }
        }
    }
}

/// The name of a metric among those of all evaluations.
pub(crate) fn qualified(set: Option<&str>, metric: &str) -> String {
    match set {
        Some(set) => format!("{set}/{metric}"),
        None => metric.to_owned(),
    }
}

impl Recipe {
    /// The evaluation of a set with a name.
    pub fn set(&self, name: &str) -> Option<&EvaluateRecipe> {
        let set = self.monitoring.sets.iter().find(|set| set.name == name);
        set.map(|set| &set.evaluate)
    }

    /// All evaluations: the one without a name, then the further sets.
    pub fn evaluations(&self) -> impl Iterator<Item = (Option<&str>, &EvaluateRecipe)> {
        let first = self.evaluate.as_ref().map(|evaluate| (None, evaluate));
        let sets = self.monitoring.sets.iter();
        first.into_iter().chain(sets.map(|set| (Some(set.name.as_str()), &set.evaluate)))
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Goal::Min => "min",
            Goal::Max => "max",
        })
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.metric, self.goal)
    }
}

impl FromStr for Watched {
    type Err = Diagnostic;

    fn from_str(text: &str) -> Result<Self> {
        let goal = |goal: &str| match goal {
            "min" => Some(Goal::Min),
            "max" => Some(Goal::Max),
            _ => None,
        };
        let found = text.rsplit_once(':').and_then(|(name, text)| Some((name, goal(text)?)));
        match found {
            Some((metric, goal)) if !metric.is_empty() => {
                Ok(Watched { metric: metric.to_owned(), goal })
            }
            _ => Err(diagnostic!("`{text}` does not say whether less or more is better")
                .help("write METRIC:min or METRIC:max, as in `loss:min` and `test/accuracy:max`")),
        }
    }
}

impl fmt::Display for Monitoring {
    /// A line for each fact that differs from the default, without the evaluation sets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(watched) = &self.watched {
            writeln!(f, "watch {watched}")?;
        }
        if let Some(EarlyStopping { patience, min_change }) = self.early_stopping {
            write!(f, "stop after {patience} evaluations without an improvement")?;
            match min_change {
                0.0 => writeln!(f)?,
                change => writeln!(f, " by more than {change}")?,
            }
        }
        if self.kept != Kept::default() {
            let Kept { last, best, weights } = self.kept;
            let weights = match weights {
                FinalWeights::Last => "last",
                FinalWeights::Best => "best",
            };
            writeln!(f, "keep the last {last} and the best {best}, weights of the {weights}")?;
        }
        Ok(())
    }
}
