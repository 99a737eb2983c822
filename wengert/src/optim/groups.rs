//! Groups of variables, by patterns of their key paths.

use super::Choice;
use std::rc::Rc;
use wengert_compiler::key_paths::{KeyPaths, listed};
use wengert_core::build::FunctionBuilder;
use wengert_core::{Location, Result, TensorType, diagnostic};

/// What an optimiser does otherwise for some variables. It is the same for all optimisers.
///
/// A pattern is a key path with `*`, `?` and `[…]`, as [`KeyPaths`] has it. It is matched against
/// the path of the variable among the function's state, e.g. `model.layers.0.bias`, of which
/// `model` is the name that `state` was given. All entries that match a variable apply.
///
/// ```
/// use wengert::optim::Groups;
/// use wengert::prelude::*;
///
/// let mut program = Program::new();
/// program.function("train_step", |f| {
///     let (x, y) = (f.input("x", f32("B,4")), f.input("y", f32("B,2")));
///     let model = f.state("model", (nn::Linear::new(4, 8), nn::Linear::new(8, 2)));
///     let gradient =
///         grad(&model, |(a, b)| (b.call(&a.call(&x).relu()) - &y).square().mean());
///     let groups = Groups::new()
///         .no_decay("*.bias")
///         .freeze("model.0.*")
///         .scale_rate("model.1.weight", 10.0);
///     AdamW::new(1e-3).groups(groups).step(f, &model, &gradient);
/// })?;
/// let step = program.get("train_step")?;
/// assert!(step.input_index("adamw.m.model.0.weight").is_none(), "no moments are kept");
/// # Ok::<(), Diagnostic>(())
/// ```
///
/// Errors, which the step reports: a text is no pattern; a pattern matches no variable of the
/// model; a factor is negative or not finite; all variables are frozen.
#[derive(Clone, Debug, Default)]
pub struct Groups(Vec<Entry>);

#[derive(Clone, Debug)]
struct Entry {
    members: Members,
    effect: Effect,
    /// Where it was given.
    location: Location,
}

#[derive(Clone, Debug)]
enum Members {
    Paths(Result<KeyPaths>),
    Where(Choice),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Effect {
    Frozen,
    /// Only the members decay.
    Decays,
    NoDecay,
    Rate(f64),
}

impl Groups {
    /// No groups: an optimiser treats all variables alike.
    pub fn new() -> Self {
        Self::default()
    }

    /// Variables that the optimiser does not change. They keep every bit, and have no moments.
    /// Gradients that nothing else uses are not computed.
    #[must_use]
    #[track_caller]
    pub fn freeze(self, pattern: &str) -> Self {
        self.with(pattern, Effect::Frozen)
    }

    /// Variables without weight decay.
    #[must_use]
    #[track_caller]
    pub fn no_decay(self, pattern: &str) -> Self {
        self.with(pattern, Effect::NoDecay)
    }

    /// Variables whose rate is that of the optimiser times a factor. Factors of several patterns
    /// that match a variable are multiplied.
    #[must_use]
    #[track_caller]
    pub fn scale_rate(self, pattern: &str, factor: f64) -> Self {
        self.with(pattern, Effect::Rate(factor))
    }

    /// Weight decay only of the variables that `decays` selects by key path and type, e.g. those
    /// with two axes or more.
    #[must_use]
    #[track_caller]
    pub fn decay_where(mut self, decays: impl Fn(&str, &TensorType) -> bool + 'static) -> Self {
        let (members, location) = (Members::Where(Choice(Rc::new(decays))), Location::caller());
        self.0.push(Entry { members, effect: Effect::Decays, location });
        self
    }

    #[track_caller]
    fn with(mut self, pattern: &str, effect: Effect) -> Self {
        let members = Members::Paths(KeyPaths::new().with(pattern));
        self.0.push(Entry { members, effect, location: Location::caller() });
        self
    }

    pub(super) fn extend(&mut self, others: Groups) {
        self.0.extend(others.0);
    }

    /// Reports what is wrong with the groups of a model with these variables.
    pub(super) fn check<'a>(
        &self,
        f: &FunctionBuilder,
        variables: impl Iterator<Item = &'a str> + Clone,
    ) {
        for entry in &self.0 {
            let error = match (&entry.members, entry.effect) {
                (Members::Paths(Err(error)), _) => Some(error.clone()),
                (_, Effect::Rate(factor)) if !factor.is_finite() || factor < 0.0 => {
                    Some(diagnostic!("a rate is multiplied by {factor}").help(
                        "a factor is a number of at least 0; `freeze` keeps variables as they are",
                    ))
                }
                // A function without variables has reported another error.
                (Members::Paths(Ok(paths)), _) if variables.clone().next().is_some() => {
                    paths.unmatched(variables.clone()).map(|pattern| {
                        diagnostic!("no variable of the model matches `{pattern}`").help(listed(
                            "variables are",
                            variables.clone(),
                            "there are none",
                        ))
                    })
                }
                _ => None,
            };
            if let Some(error) = error {
                let error = error.at(entry.location.clone(), "the group is given here");
                f.scope().fail(&error.at(Location::caller(), "updated here"));
            }
        }
    }

    /// The effects on a variable.
    fn of<'a>(&'a self, path: &'a str) -> impl Iterator<Item = Effect> + 'a {
        let matching = move |entry: &&Entry| match &entry.members {
            Members::Paths(Ok(paths)) => paths.matches(path),
            Members::Paths(Err(_)) | Members::Where(_) => false,
        };
        self.0.iter().filter(matching).map(|entry| entry.effect)
    }

    pub(super) fn freezes(&self, path: &str) -> bool {
        self.of(path).any(|effect| effect == Effect::Frozen)
    }

    pub(super) fn decays(&self, path: &str, ty: &TensorType) -> bool {
        let is_chosen = |entry: &Entry| match &entry.members {
            Members::Where(choice) => (choice.0)(path, ty),
            Members::Paths(_) => true,
        };
        self.0.iter().all(is_chosen) && !self.of(path).any(|effect| effect == Effect::NoDecay)
    }

    /// The factor of a variable's rate.
    pub(super) fn rate(&self, path: &str) -> f64 {
        let factors = self.of(path).map(|effect| match effect {
            Effect::Rate(factor) => factor,
            _ => 1.0,
        });
        factors.product()
    }
}
