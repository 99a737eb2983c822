//! Learning rates.

use std::fmt;
use std::rc::Rc;
use wengert_core::build::FunctionBuilder;
use wengert_core::{DType, Location, Tensor};

/// The name of a step function's output that a training log shows as the learning rate.
pub const LEARNING_RATE: &str = "learning_rate";

/// A learning rate: a number, or a function of the step.
#[derive(Clone)]
pub struct Rate(Kind);

#[derive(Clone)]
enum Kind {
    Constant(f64),
    Scheduled(Rc<dyn Fn(&Tensor) -> Tensor>),
}

impl Rate {
    /// A rate that depends on the step: `f` maps the step's number, a scalar f32 that is 1 at the
    /// first step, to a scalar f32.
    pub fn scheduled(f: impl Fn(&Tensor) -> Tensor + 'static) -> Self {
        Rate(Kind::Scheduled(Rc::new(f)))
    }

    /// Rises linearly from 0 to `peak` over the first `warmup` steps, then falls along half a
    /// cosine to `end` until step `total`, and stays at `end`.
    #[track_caller]
    pub fn warmup_cosine(peak: f64, warmup: u32, total: u32, end: f64) -> Self {
        let caller = Location::caller();
        let (warmup, total) = (f64::from(warmup), f64::from(total));
        Rate::scheduled(move |step| {
            let _user = caller.attributed();
            let rising = step * (peak / warmup.max(1.0));
            let done = ((step - warmup) * (1.0 / (total - warmup).max(1.0))).clamp(0.0, 1.0);
            let falling = ((done * std::f64::consts::PI).cos() + 1.0) * (0.5 * (peak - end)) + end;
            step.lt(warmup).select(&rising, &falling)
        })
    }

    pub(super) fn is_constant(&self) -> bool {
        matches!(self.0, Kind::Constant(_))
    }

    /// Adds the rate of a step as the output [`LEARNING_RATE`], an f32.
    #[track_caller]
    pub(super) fn report(&self, f: &mut FunctionBuilder, step: Option<&Tensor>) {
        let one = Tensor::constant(1.0f32);
        f.output(LEARNING_RATE, self.times(&one, step));
    }

    /// `tensor` times the rate of a step.
    #[track_caller]
    pub(super) fn times(&self, tensor: &Tensor, step: Option<&Tensor>) -> Tensor {
        match (&self.0, step) {
            (Kind::Constant(rate), _) => tensor * *rate,
            (Kind::Scheduled(f), Some(step)) => {
                tensor * f(&step.convert(DType::F32)).convert(tensor.dtype())
            }
            (Kind::Scheduled(_), None) => {
                unreachable!("optimisers count steps where the rate depends on them")
            }
        }
    }
}

impl From<f64> for Rate {
    fn from(rate: f64) -> Self {
        Rate(Kind::Constant(rate))
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Constant(rate) => write!(f, "{rate}"),
            Kind::Scheduled(_) => f.write_str("scheduled"),
        }
    }
}
