//! Adafactor.

use super::Rate;
use super::settings::{Settings, optimiser, weight_decay, within};
use super::step::{Decay, Rule, Turn};
use wengert_core::build::FunctionBuilder;
use wengert_core::{DType, Dim, Result, Tensor};

/// Adafactor (Shazeer and Stern, *Adafactor: Adaptive Learning Rates with Sublinear Memory Cost*,
/// 2018), as in PyTorch. Of the second moment of a matrix it keeps the means of rows and columns:
///
/// ```text
/// p = p − rate · weight_decay · p                              t counts steps from 1
/// β = 1 − t^−k
/// r = β · r + (1 − β) · mean of gradient² along columns
/// c = β · c + (1 − β) · mean of gradient² along rows
/// v = r · c / max(mean(r), ε₁)
/// u = gradient / √max(v, ε₁²)
/// u = u / max(1, RMS(u) / d)
/// p = p − min(rate, 1/√t) · max(ε₂, RMS(p)) · u
/// ```
///
/// RMS is the root of the mean of squares. A variable of one axis has the whole v, as
/// [`RmsProp`](super::RmsProp) has; one of more than two axes is a batch of matrices, its last two
/// axes.
///
/// State: `adafactor.step`; `adafactor.rows.<path>` and `adafactor.columns.<path>`, or
/// `adafactor.v.<path>`.
#[derive(Clone, Debug)]
pub struct Adafactor {
    settings: Settings,
    exponent: f64,
    epsilons: (Option<f64>, f64),
    clipping: Option<f64>,
    has_relative_step: bool,
}

optimiser!(Adafactor, settings);
weight_decay!(Adafactor, settings);

impl Adafactor {
    /// Adafactor with relative steps clipped at 1, k = 0.8, ε₂ = 10⁻³, and for ε₁ the distance from
    /// 1 to the next number of the dtype of the arithmetic. The usual rate is 0.01.
    pub fn new(rate: impl Into<Rate>) -> Self {
        Adafactor {
            settings: Settings::new("adafactor", rate),
            exponent: 0.8,
            epsilons: (None, 1e-3),
            clipping: Some(1.0),
            has_relative_step: true,
        }
    }

    /// k, the exponent by which moments are forgotten; 0.8 by default. 0 forgets all at each step.
    #[must_use]
    pub fn exponent(mut self, exponent: f64) -> Self {
        self.exponent = exponent;
        self
    }

    /// ε₁ and ε₂.
    #[must_use]
    pub fn epsilons(mut self, first: f64, second: f64) -> Self {
        self.epsilons = (Some(first), second);
        self
    }

    /// d, the greatest root mean square of a step before its rate; 1 by default. `None`: steps are
    /// not clipped.
    #[must_use]
    pub fn clipping(mut self, threshold: impl Into<Option<f64>>) -> Self {
        self.clipping = threshold.into();
        self
    }

    /// Whether steps are relative to the size of the variable, and their rate at most 1/√t, as by
    /// default. Otherwise p = p − rate · u.
    #[must_use]
    pub fn relative_step(mut self, is_relative: bool) -> Self {
        self.has_relative_step = is_relative;
        self
    }
}

/// The root of the mean of squares.
fn rms(x: &Tensor) -> Tensor {
    x.square().mean().sqrt()
}

impl Rule for Adafactor {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn decay(&self) -> Decay {
        Decay::Decoupled
    }

    fn check(&self) -> Result<()> {
        within("the exponent of the decay of moments", self.exponent, 0.0..f64::INFINITY)?;
        within("ε₁", self.epsilons.0.unwrap_or(0.0), 0.0..f64::INFINITY)?;
        within("ε₂", self.epsilons.1, 0.0..f64::INFINITY)?;
        // Its inverse is finite.
        within("the threshold of clipping", self.clipping.unwrap_or(1.0), 1e-30..f64::INFINITY)
    }

    fn travel(&self, f: &mut FunctionBuilder, turn: &Turn<'_>) -> Tensor {
        let g = &turn.gradient;
        let step = turn.step().convert(g.dtype());
        // 1 − β. It is 1 at the first step, exactly.
        let fresh = (step.log() * -self.exponent).exp();
        let epsilon = self.epsilons.0.unwrap_or(match g.dtype() {
            DType::F64 => f64::EPSILON,
            _ => f32::EPSILON.into(),
        });
        let square = g.square();
        let v = if g.rank() < 2 {
            let old = turn.moment(f, "v", 0);
            let v = &old.value + (&square - &old.value) * &fresh;
            turn.update(f, &old, &v);
            v
        } else {
            let mut mean = |what: &str, axis: usize| {
                let mut shape = g.shape().to_vec();
                shape[axis] = Dim::constant(1);
                let old = turn.state(f, what, &shape);
                let now = square.mean_keepdims(axis);
                let next = &old.value + (now - &old.value) * &fresh;
                turn.keep(f, &old, &next);
                next
            };
            let (rows, columns) = (mean("rows", g.rank() - 1), mean("columns", g.rank() - 2));
            let whole = rows.mean_keepdims(g.rank() - 2).max(epsilon);
            rows / whole * columns
        };
        let mut u = v.max(epsilon * epsilon).rsqrt() * g;
        if let Some(threshold) = self.clipping {
            let excess = (rms(&u) / threshold).max(1.0);
            u = u / excess;
        }
        if !self.has_relative_step {
            return -turn.times_rate(&u);
        }
        let rate = turn.times_rate(&step.ones_like()).min(step.rsqrt());
        -(u * (rate * rms(&turn.value).max(self.epsilons.1)))
    }
}
