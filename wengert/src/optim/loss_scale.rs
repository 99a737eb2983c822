//! Loss scaling, for gradients in f16.
//!
//! f16 has no numbers between 0 and 6·10⁻⁸. Most of the cotangents of a deep network are below that
//! and would become 0. So the loss is multiplied by a scale before it is differentiated, and the
//! gradient is divided by it (Micikevicius and others, *Mixed Precision Training*, 2018, §3.2). The
//! scale is a power of two, so both are exact in f32.
//!
//! The scale is state of the step. If the gradient is not finite, the scale was too large: the step
//! is skipped and the scale is halved. After some steps without that, it is doubled.

use super::global_norm;
use wengert_compiler::autodiff::operators::{value_and_grad, value_aux_and_grad};
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::{Function, InputRole};
use wengert_core::{
    DType, Differentiable, Initializer, KeyPath, Literal, Location, Scalar, Tensor, TensorType,
    diagnostic,
};

/// The name of a step function's output that a training log shows as the scale of the loss.
pub const LOSS_SCALE: &str = "loss_scale";
/// The name of a step function's output that is 1 if the step was skipped, else 0.
pub const SKIPPED: &str = "skipped";
/// The least scale. If a gradient is not finite with this scale, training ends with an error.
pub const LEAST_LOSS_SCALE: f64 = 1.0;
/// The greatest scale: a power of two whose product with a loss is far from the greatest f32.
const GREATEST: f64 = 16_777_216.0;
/// Key paths of the state.
const SCALE: &str = "loss_scale.scale";
const GOOD_STEPS: &str = "loss_scale.good_steps";

/// Dynamic loss scaling.
///
/// ```
/// use wengert::optim::LossScale;
/// use wengert::prelude::*;
///
/// let mut program = Program::new();
/// program.function("train_step", |f| {
///     let (x, y) = (f.input("x", f32("B,4")), f.input("y", f32("B,2")));
///     let layer = f.state("layer", nn::Linear::new(4, 2));
///     let scaled = LossScale::dynamic().begin(f);
///     let (loss, gradient) =
///         scaled.value_and_grad(&layer, |layer| (layer.call(&x) - &y).square().mean());
///     Adam::new(1e-3).step(f, &layer, &gradient);
///     scaled.finish(f, &gradient);
///     f.output("loss", loss);
/// })?;
/// program.precision(&Precision::f16())?;
/// # Ok::<(), Diagnostic>(())
/// ```
///
/// State: `loss_scale.scale` (f32) and `loss_scale.good_steps` (i32). Outputs: [`LOSS_SCALE`], the
/// scale of this step, and [`SKIPPED`].
#[derive(Clone, Debug)]
pub struct LossScale {
    initial: f64,
    interval: i32,
    is_none: bool,
}

impl LossScale {
    /// A scale that begins with 2¹⁶ and is doubled after 2000 good steps.
    pub fn dynamic() -> Self {
        LossScale { initial: 65536.0, interval: 2000, is_none: false }
    }

    /// No scale, state or output, and no step is skipped: for a step in bf16 or f32 that is written
    /// like one in f16.
    pub fn none() -> Self {
        LossScale { is_none: true, ..LossScale::dynamic() }
    }

    /// Sets the first scale, a power of two from 1 to 2²⁴.
    #[must_use]
    pub fn initial(mut self, scale: f64) -> Self {
        self.initial = scale;
        self
    }

    /// Sets the number of good steps after which the scale is doubled, at least 1.
    #[must_use]
    pub fn interval(mut self, steps: u32) -> Self {
        self.interval = i32::try_from(steps).unwrap_or(i32::MAX);
        self
    }

    /// Declares the state of the scale in a step function.
    ///
    /// Errors, which the function reports: the first scale is no such power of two; the interval
    /// is 0; the function has a scale already.
    #[track_caller]
    pub fn begin(self, f: &mut FunctionBuilder) -> Scaled {
        if self.is_none {
            return Scaled(None);
        }
        let exponent = self.initial.log2();
        let is_power = exponent.fract() == 0.0;
        if !is_power || !(LEAST_LOSS_SCALE..=GREATEST).contains(&self.initial) {
            f.scope().fail(
                &diagnostic!("the first scale of a loss is {}", self.initial)
                    .at(Location::caller(), "declared here")
                    .help("it is a power of two from 1 to 2^24, so that scaling is exact"),
            );
        }
        if self.interval == 0 {
            f.scope().fail(
                &diagnostic!("a scale cannot be doubled after 0 steps")
                    .at(Location::caller(), "declared here")
                    .help("give a number of steps of at least 1"),
            );
        }
        let initial = Initializer::Constant(Literal::full(&[], Scalar::of(self.initial as f32)));
        let scale = Tensor::variable(TensorType::scalar(DType::F32), initial);
        let zero = Tensor::variable(TensorType::scalar(DType::I32), Initializer::Zeros);
        let (scale, good_steps) = (f.state(SCALE, scale), f.state(GOOD_STEPS, zero));
        Scaled(Some(Variables { interval: self.interval, scale, good_steps }))
    }
}

/// A step function whose loss is scaled.
#[must_use = "`finish` skips the step if its gradient is not finite"]
#[derive(Debug)]
pub struct Scaled(Option<Variables>);

/// The state of a scale.
#[derive(Debug)]
struct Variables {
    interval: i32,
    scale: Tensor,
    good_steps: Tensor,
}

impl Scaled {
    /// Value and gradient of a scalar loss, as [`value_and_grad`](crate::operators::value_and_grad)
    /// gives them: neither is scaled. The scale multiplies the loss inside. With a scale, gradients
    /// of halves are f32, because they could be smaller than the least half.
    ///
    /// Gradients of several parts of a batch may be added up, and clipped afterwards.
    #[track_caller]
    pub fn value_and_grad<M: Differentiable>(
        &self,
        at: &M,
        loss: impl FnOnce(&M) -> Tensor,
    ) -> (Tensor, M::TangentVector) {
        let _user = Location::caller().attributed();
        let Some(Variables { scale, .. }) = &self.0 else { return value_and_grad(at, loss) };
        let (_, loss, gradient) = value_aux_and_grad(at, |m| {
            let loss = loss(m);
            (&loss * scale.convert(loss.dtype()), loss)
        });
        let inverse = scale.full_like(1.0) / scale;
        let gradient = gradient.map_tensors(&KeyPath::default(), &mut |_, t| match t.dtype() {
            dtype if !dtype.is_float() => t.clone(),
            dtype => {
                let wide = if dtype.is_half() { DType::F32 } else { dtype };
                t.convert(wide) * inverse.convert(wide)
            }
        });
        (loss, gradient)
    }

    /// Ends the step, after the optimiser: if the norm of the gradient is not finite, all state
    /// that was updated so far keeps its value. Then updates the scale.
    ///
    /// The gradient may be clipped or not: an infinite element makes a clipped gradient NaN.
    #[track_caller]
    pub fn finish<G: Differentiable>(self, f: &mut FunctionBuilder, gradient: &G) {
        let _user = Location::caller().attributed();
        let Some(Variables { interval, scale, good_steps }) = self.0 else { return };
        let good = global_norm(gradient).is_finite();
        f.update_only_if(&good);
        f.output(LOSS_SCALE, &scale);
        f.output(SKIPPED, good.select(0.0f32, 1.0f32));
        let count = &good_steps + 1;
        let grows = count.ge(interval);
        let larger = grows.select((&scale * 2.0).min(GREATEST), &scale);
        let smaller = (&scale * 0.5).max(LEAST_LOSS_SCALE);
        f.update(SCALE, &good.select(&larger, &smaller));
        let zero = good_steps.full_like(0.0);
        f.update(GOOD_STEPS, &good.select(&grows.select(&zero, &count), &zero));
    }
}

/// Whether a step function has state of a [`LossScale`].
pub fn scales_loss(function: &Function) -> bool {
    function.inputs.iter().any(|input| input.role == InputRole::State && input.name == SCALE)
}
