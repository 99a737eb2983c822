//! A range test of learning rates.
//!
//! [`find_rate`] trains for some steps while the rate grows exponentially, and looks at the loss
//! (L. N. Smith, *Cyclical learning rates for training neural networks*, 2017, section 3.3). Too
//! small a rate changes nothing, then the loss falls, and then it diverges.
//!
//! - The loss of a step is smoothed: sᵢ = β·sᵢ₋₁ + (1 − β)·lossᵢ, divided by 1 − βⁱ so that the
//!   first ones are not near 0.
//! - The test ends early if the loss is not finite, or once the smoothed loss is more than
//!   [`divergence`](RateSearch::divergence) times its least value so far (after the first step).
//! - The suggestion is the rate at which the smoothed loss falls most steeply, by central
//!   differences over the logarithm of the rate. The first [`SKIPPED`] steps and the last one are
//!   left out, as PyTorch Lightning's finder does: the first ones have seen few batches, and the
//!   last one may have diverged.
//!
//! The steps are those that a run would make: the same batches in the same order, the same keys.
//! The rate must be settable ([`Rate::settable`](crate::optim::Rate::settable)). The variables of
//! the session are restored, and nothing is written.

use super::batches::{Examples, Feed, Schedule};
use super::check_data::DataChecks;
use super::event::Recorded;
use super::functions::Function;
use super::ranks::Ranks;
use super::run::needs_loss_scale;
use super::{Event, Options, TrainError, weights};
use crate::data::source::Source;
use crate::optim::settable_rates;
use crate::recipe::Recipe;
use crate::session::Session;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, Scope};
use wengert_core::graph::Program;
use wengert_core::{Diagnostic, Literal, Result, diagnostic};

/// Steps at the beginning that the suggestion leaves out.
pub const SKIPPED: usize = 10;

/// The rates that are tried.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RateSearch {
    /// The rate of the first step.
    pub from: f64,
    /// The rate of the last step.
    pub to: f64,
    /// Number of steps, at least 2.
    pub steps: u64,
    /// β, in 0..1.
    pub smoothing: f64,
    /// The test ends once the smoothed loss is this many times its least value.
    pub divergence: f64,
}

impl Default for RateSearch {
    /// From 1e-7 to 10 in 100 steps, with β = 0.98; diverged at 4 times the least loss.
    fn default() -> Self {
        RateSearch { from: 1e-7, to: 10.0, steps: 100, smoothing: 0.98, divergence: 4.0 }
    }
}

/// A step of the test.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RateTrial {
    /// Its rate.
    pub rate: f64,
    /// Its loss, before the update.
    pub loss: f64,
    /// The smoothed loss.
    pub smoothed: f64,
}

/// The result of the test.
#[derive(Clone, PartialEq, Debug)]
pub struct RateCurve {
    /// The steps. A loss that is not finite has none.
    pub trials: Vec<RateTrial>,
    /// Whether the loss diverged before the last step.
    pub diverged: bool,
    /// The rate at which the smoothed loss falls most steeply; `None` if it falls nowhere, or if
    /// there are too few steps.
    pub suggestion: Option<f64>,
}

impl RateSearch {
    fn verify(&self) -> Result<()> {
        let is_positive = |rate: f64| rate.is_finite() && rate > 0.0;
        if !is_positive(self.from) || !is_positive(self.to) || self.from >= self.to {
            return Err(diagnostic!("rates from {} to {}", self.from, self.to)
                .help("both are positive numbers, and the second is greater"));
        }
        // A variable of f32 holds the rate.
        if (self.from as f32) < f32::MIN_POSITIVE || !(self.to as f32).is_finite() {
            return Err(diagnostic!("rates from {} to {}", self.from, self.to)
                .help("an f32 holds each of them: they are from 1.2e-38 to 3.4e38"));
        }
        if self.steps < 2 {
            return Err(diagnostic!("a search of {} steps", self.steps)
                .help("it has at least 2 steps, and a suggestion takes more than 12"));
        }
        if !(0.0..1.0).contains(&self.smoothing) {
            return Err(diagnostic!("a smoothing of {}", self.smoothing)
                .help("it is at least 0 and less than 1"));
        }
        if self.divergence.is_nan() || self.divergence <= 1.0 {
            return Err(diagnostic!("a divergence of {}", self.divergence)
                .help("it is a number greater than 1"));
        }
        Ok(())
    }

    /// The rate of a step, counted from 0.
    fn rate(&self, step: u64) -> f64 {
        let part = step as f64 / (self.steps - 1) as f64;
        self.from * (self.to / self.from).powf(part)
    }
}

/// Tries learning rates for a recipe. The variables begin as those of a run do: as `init` makes
/// them, or from the weights of the options. Of the options, `weights`, `partial`, `allow`, `stop`
/// and the files for messages count. `observe` is told of weights that do not fit.
///
/// # Errors
///
/// - The step has no rate that can be set, or the search has impossible numbers.
/// - [`TrainError::Stopped`]: [`Options::stop`] was set.
/// - Those of [`train`](super::train()) before its first step, and those of the device.
pub fn find_rate(
    session: &mut Session,
    program: &Program,
    recipe: &Recipe,
    data: &dyn Source,
    options: Options<'_>,
    search: &RateSearch,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<RateCurve, TrainError> {
    search.verify()?;
    recipe.verify_for(program)?;
    needs_loss_scale(program, recipe)?;
    let program = &*recipe.apply_precision(program)?;
    let before = session.variables()?;
    let found = thread::scope(|scope| {
        tried(scope, session, program, recipe, data, options, search, observe)
    });
    session.set_variables(&before)?;
    found
}

#[expect(clippy::too_many_arguments, reason = "those of `find_rate`, and the threads that read")]
fn tried<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    session: &mut Session,
    program: &Program,
    recipe: &'env Recipe,
    data: &'env dyn Source,
    options: Options<'env>,
    search: &RateSearch,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<RateCurve, TrainError> {
    let function = program.get(&recipe.step.function)?;
    let rates = settable_rates(function);
    if rates.is_empty() {
        return Err(diagnostic!("`@{}` has no learning rate that can be set", function.name)
            .help(
                "its rate is a part of the graph. Build the optimiser with a settable one, as in \
                 `AdamW::new(Rate::from(1e-3).settable())`; for a model, import it with \
                 `--settable-rate`",
            )
            .into());
    }
    let checks = DataChecks::new(function, options.data_file, options.allow);
    let examples = Examples::new(&recipe.step.inputs, data, checks, recipe.key_seed)?;
    let examples = Arc::new(examples);
    let mut schedule = Schedule::of(&examples, recipe.batches)?;
    let ranks = Ranks::join(session, recipe, &Options { world: None, tensor: None, ..options })?;
    schedule.check_parts(ranks.microbatches())?;
    let recorded = Recorded::of(function, &recipe.step);
    let mut step = Function::among(program, &recipe.step.function, ranks);
    step.binding(&examples.batch(&mut schedule, 0)?.inputs)?;
    weights::initialize(session, program, recipe, options, observe)?;
    let mut curve = RateCurve { trials: Vec::new(), diverged: false, suggestion: None };
    let (mut sum, mut least) = (0.0, f64::INFINITY);
    let steps = 0..search.steps;
    let mut feed = Feed::start(scope, &examples, &schedule, steps, options.data_threads)?;
    for n in 0..search.steps {
        if options.stop.is_some_and(|stop| stop.load(Ordering::SeqCst)) {
            let message = format!("stopped after step {n} of {}", search.steps);
            return Err(TrainError::Stopped(Diagnostic::new(message)));
        }
        let rate = search.rate(n);
        for name in &rates {
            session.set_variable(name, &Literal::from(rate as f32))?;
        }
        let (batch, _) = feed.next()?.expect("there is a batch for each step");
        let loss = recorded.loss(&step.run(session, batch.inputs, &recipe.key_for(n + 1))?)?;
        if !loss.is_finite() {
            curve.diverged = true;
            break;
        }
        sum = search.smoothing * sum + (1.0 - search.smoothing) * loss;
        let smoothed = sum / (1.0 - search.smoothing.powf((n + 1) as f64));
        curve.trials.push(RateTrial { rate, loss, smoothed });
        if n > 0 && smoothed > search.divergence * least {
            curve.diverged = n + 1 < search.steps;
            break;
        }
        least = least.min(smoothed);
    }
    curve.suggestion = steepest(&curve.trials);
    Ok(curve)
}

/// The rate at which the smoothed loss falls most steeply.
fn steepest(trials: &[RateTrial]) -> Option<f64> {
    let inner = trials.get(SKIPPED..trials.len().checked_sub(1)?)?;
    // The logarithms of the rates are equally far apart, so the differences stand for slopes. At
    // the ends they are of one side.
    let slope = |n: usize| {
        let (low, high) = (n.saturating_sub(1), (n + 1).min(inner.len() - 1));
        (inner[high].smoothed - inner[low].smoothed) / (high - low) as f64
    };
    if inner.len() < 2 {
        return None;
    }
    let slopes = (0..inner.len()).map(|n| (slope(n), n));
    let (slope, n) = slopes.min_by(|a, b| a.0.total_cmp(&b.0))?;
    (slope < 0.0).then(|| inner[n].rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trials(smoothed: impl IntoIterator<Item = f64>) -> Vec<RateTrial> {
        let trial = |(n, smoothed): (usize, f64)| RateTrial {
            rate: 10f64.powi(n as i32),
            loss: 0.0,
            smoothed,
        };
        smoothed.into_iter().enumerate().map(trial).collect()
    }

    #[test]
    fn the_steepest_fall_is_suggested() {
        // It falls by 5 between steps 12 and 14, and by more only where it is left out: in the
        // first ten steps and before the last.
        let falls = [90.0, 50.0].into_iter().chain([9.0; 10]).chain([8.0, 5.0, 3.0, 2.5, -70.0]);
        assert_eq!(steepest(&trials(falls)), Some(1e13));
        assert_eq!(steepest(&trials([1.0; 20])), None);
        assert_eq!(steepest(&trials((0..20).map(f64::from))), None);
        assert_eq!(steepest(&trials([3.0, 2.0])), None);
        assert_eq!(steepest(&trials((0..12).map(|n| f64::from(-n)))), None);
        assert_eq!(steepest(&trials((0..13).map(|n| f64::from(-n)))), Some(1e10));
    }

    #[test]
    fn impossible_searches_are_refused() {
        let fails = |search: RateSearch, text: &str| {
            let error = search.verify().unwrap_err();
            assert_eq!(error.message, text);
            assert!(error.help.is_some());
        };
        let good = RateSearch::default();
        good.verify().unwrap();
        fails(RateSearch { from: 0.0, ..good }, "rates from 0 to 10");
        fails(RateSearch { to: 1e-7, ..good }, "rates from 0.0000001 to 0.0000001");
        fails(RateSearch { to: f64::NAN, ..good }, "rates from 0.0000001 to NaN");
        fails(RateSearch { from: 1.0, to: 2e39, ..good }, &format!("rates from 1 to {}", 2e39));
        fails(RateSearch { steps: 1, ..good }, "a search of 1 steps");
        fails(RateSearch { smoothing: 1.0, ..good }, "a smoothing of 1");
        fails(RateSearch { divergence: 1.0, ..good }, "a divergence of 1");
    }
}
