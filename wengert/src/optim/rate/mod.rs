//! Learning rates, and their schedules.

mod cosine;
mod decay;

use std::fmt;
use std::rc::Rc;
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::{Function, InputRole};
use wengert_core::{DType, Diagnostic, Initializer, Literal, Location, Tensor, TensorType};

/// The name of a step function's output that a training log shows as the learning rate.
pub const LEARNING_RATE: &str = "learning_rate";

/// The variables of a step function that set its learning rates: those of
/// [settable](Rate::settable) rates.
pub fn settable_rates(function: &Function) -> Vec<&str> {
    let is_rate = |(n, name): &(usize, &str)| {
        let of_optimiser = name.strip_suffix(LEARNING_RATE).is_some_and(|n| n.ends_with('.'));
        let is_param = function.inputs[*n].role == InputRole::Param;
        of_optimiser && is_param && *function.input_type(*n) == TensorType::scalar(DType::F32)
    };
    let names = function.inputs.iter().map(|input| input.name.as_str());
    names.enumerate().filter(is_rate).map(|(_, name)| name).collect()
}

/// A learning rate: a number, or a function of the step.
///
/// | schedule | | named as in |
/// |---|---|---|
/// | `Rate::from` a number | constant | |
/// | [`Rate::linear`] | along a line, then constant | `LinearLR`, `PolynomialLR` of power 1 |
/// | [`Rate::exponential`] | times γ at each step | `ExponentialLR` |
/// | [`Rate::step_decay`] | times γ every few steps | `StepLR` |
/// | [`Rate::inverse_square_root`] | up along a line, then as 1/√t | Vaswani et al. 2017 |
/// | [`Rate::warmup_cosine`] | up along a line, then down along half a cosine | |
/// | [`Rate::cosine_restarts`] | down along half a cosine, again and again | `CosineAnnealingWarmRestarts` |
/// | [`Rate::one_cycle`] | up and down along cosines | `OneCycleLR` |
/// | [`Rate::scheduled`] | any function of the step | |
///
/// [`Rate::warmup`] puts a warm-up before any of them, and [`Rate::settable`] lets a session set
/// the rate. A schedule is a part of the graph and is
/// computed in f32, from the optimiser's counter of steps, so a run that is resumed continues it.
#[derive(Clone)]
pub struct Rate {
    kind: Kind,
    /// Multiplies a scheduled rate.
    factor: f64,
    /// Whether a variable of the session replaces it.
    is_settable: bool,
}

#[derive(Clone)]
enum Kind {
    Constant(f64),
    Scheduled(Rc<dyn Fn(&Tensor) -> Tensor>),
}

impl Rate {
    /// A rate that depends on the step: `f` maps the step's number, a scalar f32 that is 1 at the
    /// first step, to a scalar f32.
    pub fn scheduled(f: impl Fn(&Tensor) -> Tensor + 'static) -> Self {
        Rate { kind: Kind::Scheduled(Rc::new(f)), factor: 1.0, is_settable: false }
    }

    /// This rate with a warm-up before it: over the first `steps` steps it rises linearly to the
    /// first rate of the schedule, which then takes its course.
    ///
    /// PyTorch's `SequentialLR` of `LinearLR` and the schedule.
    #[must_use]
    #[track_caller]
    pub fn warmup(self, steps: u32) -> Self {
        let caller = Location::caller();
        if steps == 0 {
            return self;
        }
        let steps = f64::from(steps);
        Rate::scheduled(move |step| {
            let _user = caller.attributed();
            let scheduled = (step - (steps - 1.0)).max(1.0);
            let rate = self.times(&step.ones_like(), Some(&scheduled));
            rate * (step * (1.0 / steps)).min(1.0)
        })
    }

    /// This rate, which a session can replace: the optimiser takes a parameter, a scalar f32 called
    /// `learning_rate` after its own name, e.g. `adamw.learning_rate`. While it is negative, as it
    /// begins, the rate is that of the schedule. Otherwise it is the rate.
    /// [`find_rate`](crate::train::find_rate()) sets it.
    ///
    /// A constant rate is then rounded to f32, as a schedule is.
    #[must_use]
    pub fn settable(self) -> Self {
        Rate { is_settable: true, ..self }
    }

    /// The rate with the parameter that sets it, which is declared under the optimiser's name.
    pub(super) fn declared(&self, f: &mut FunctionBuilder, name: &str) -> Rate {
        if !self.is_settable {
            return self.clone();
        }
        let unset = Initializer::Constant(Literal::from(-1.0f32));
        let variable = Tensor::variable(TensorType::scalar(DType::F32), unset);
        let set = f.param(&format!("{name}.{LEARNING_RATE}"), variable);
        let schedule = Rate { is_settable: false, ..self.clone() };
        Rate::scheduled(move |step| {
            let rate = schedule.times(&step.ones_like(), Some(step));
            set.lt(0.0).select(&rate, &set)
        })
    }

    /// A schedule of the number of steps done, which is 0 at the first step.
    #[track_caller]
    fn after(f: impl Fn(&Tensor) -> Tensor + 'static) -> Self {
        let caller = Location::caller();
        Rate::scheduled(move |step| {
            let _user = caller.attributed();
            f(&(step - 1.0))
        })
    }

    /// The rate whose numbers are wrong: an error of the function that uses it.
    #[track_caller]
    fn wrong(error: Diagnostic) -> Self {
        let error = error.at(Location::caller(), "the rate is given here");
        Rate::scheduled(move |_| Tensor::poisoned(error.clone()))
    }

    /// This rate times a factor.
    pub(super) fn scaled(&self, factor: f64) -> Rate {
        match &self.kind {
            Kind::Constant(rate) => Rate::from(rate * factor),
            Kind::Scheduled(_) => Rate { factor: self.factor * factor, ..self.clone() },
        }
    }

    pub(super) fn is_constant(&self) -> bool {
        matches!(self.kind, Kind::Constant(_))
    }

    /// Adds the rate of a step as the output [`LEARNING_RATE`], an f32.
    pub(super) fn report(&self, f: &mut FunctionBuilder, step: Option<&Tensor>) {
        let one = Tensor::constant(1.0f32);
        f.output(LEARNING_RATE, self.times(&one, step));
    }

    /// `tensor` times the rate of a step.
    pub(super) fn times(&self, tensor: &Tensor, step: Option<&Tensor>) -> Tensor {
        match (&self.kind, step) {
            (Kind::Constant(rate), _) => tensor * *rate,
            (Kind::Scheduled(f), Some(step)) => {
                let step = step.convert(DType::F32);
                let rate = Location::unattributed(|| f(&step));
                let rate = if self.factor == 1.0 { rate } else { rate * self.factor };
                tensor * rate.convert(tensor.dtype())
            }
            (Kind::Scheduled(_), None) => {
                unreachable!("optimisers count steps where the rate depends on them")
            }
        }
    }
}

impl From<f64> for Rate {
    fn from(rate: f64) -> Self {
        Rate { kind: Kind::Constant(rate), factor: 1.0, is_settable: false }
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Constant(rate) => write!(f, "{rate}"),
            Kind::Scheduled(_) => f.write_str("scheduled"),
        }
    }
}
