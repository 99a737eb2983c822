//! Moving averages of weights.

use wengert_core::build::FunctionBuilder;
use wengert_core::{
    DType, Diagnostic, Differentiable, Initializer, KeyPath, Location, Tensor, TensorType,
    diagnostic,
};

/// An exponential moving average of a model's weights, kept beside the model (Polyakov averaging
/// with forgetting; Tarvainen and Valpola, *Mean teachers are better role models*, 2017):
///
/// ```text
/// d = decay                         with a warm-up: min(decay, 1 − t^−power)
/// a = a + (1 − d) · (p − a)         t counts steps from 1; at the first step a = p
/// ```
///
/// State: `ema.<path>` for each float variable, in f32 for halves and otherwise in the dtype of the
/// variable, and `ema.step`.
///
/// ```
/// use wengert::optim::Ema;
/// use wengert::prelude::*;
///
/// let mut program = Program::new();
/// program.function("train_step", |f| {
///     let (x, y) = (f.input("x", f32("B,4")), f.input("y", f32("B,2")));
///     let model = f.state("model", nn::Linear::new(4, 2));
///     let (loss, gradient) = value_and_grad(&model, |m| (m.call(&x) - &y).square().mean());
///     AdamW::new(1e-3).step(f, &model, &gradient);
///     Ema::new(0.999).warmup(1.0).step(f, &model);
///     f.output("loss", loss);
/// })?;
/// program.function("predict", |f| {
///     let x = f.input("x", f32("B,4"));
///     let model = Ema::param(f, "model", nn::Linear::new(4, 2));
///     f.output("y", model.call(&x));
/// })?;
/// assert!(program.get("predict")?.input_index("ema.model.weight").is_some());
/// # Ok::<(), Diagnostic>(())
/// ```
#[derive(Clone, Debug)]
pub struct Ema {
    decay: f64,
    power: Option<f64>,
    name: String,
}

/// The name of the averages' state, if no other is given.
const NAME: &str = "ema";

impl Ema {
    /// An average of this decay, e.g. 0.999, without warm-up.
    pub fn new(decay: f64) -> Self {
        Ema { decay, power: None, name: NAME.into() }
    }

    /// With a decay that rises from 0 to the decay given: 1 − t^−`power` at step t. With a power of
    /// 1 the average is the plain mean of all weights so far, until the decay is reached.
    #[must_use]
    pub fn warmup(mut self, power: f64) -> Self {
        self.power = Some(power);
        self
    }

    /// Sets another name for its state, and the beginning of its key paths, than `ema`. Two
    /// averages in one function need different names.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Averages the weights that a model has after this step: after the updates that the function
    /// was given so far. So it follows the optimiser's `step`, and precedes
    /// [`Scaled::finish`](super::Scaled::finish), which may skip all.
    ///
    /// Integers of the model have no average.
    ///
    /// Errors, which the function reports: a tensor of the model is not state of the function; the
    /// decay is not in 0..1; the power is not positive.
    #[track_caller]
    pub fn step<M: Differentiable>(&self, f: &mut FunctionBuilder, model: &M) {
        let _user = Location::caller().attributed();
        if let Some(error) = self.fault() {
            return f.scope().fail(&error.at(Location::caller(), "averaged here"));
        }
        let counter = format!("{}.step", self.name);
        let zero = Tensor::variable(TensorType::scalar(DType::I32), Initializer::Zeros);
        let step = f.state(&counter, zero) + 1;
        f.update(&counter, &step);
        for (path, tensor) in model.tensors() {
            if !tensor.dtype().is_float() || tensor.error().is_some() {
                continue;
            }
            let Some(state) = f.state_path(&tensor).map(str::to_owned) else {
                let error = diagnostic!("`{path}` cannot be averaged: it is not state")
                    .at(Location::caller(), "averaged here")
                    .help("give `step` the model that `state` of the function returned");
                return f.scope().fail(&error);
            };
            let next = f.next_state(&state).expect("the state has this path").clone();
            let average = format!("{}.{state}", self.name);
            let old = f.state(&average, averaged(&tensor));
            let fresh = self.fresh(&step.convert(old.dtype()));
            f.update(&average, &(&old + (next.convert(old.dtype()) - &old) * fresh));
        }
    }

    /// 1 − d at a step. It is 1 at the first.
    fn fresh(&self, step: &Tensor) -> Tensor {
        let least = 1.0 - self.decay;
        match self.power {
            Some(power) => (step.log() * -power).exp().max(least),
            None => step.gt(1.0).select(least, step.ones_like()),
        }
    }

    fn fault(&self) -> Option<Diagnostic> {
        if !(0.0..1.0).contains(&self.decay) {
            return Some(
                diagnostic!("weights are averaged with a decay of {}", self.decay)
                    .help("it is at least 0 and less than 1, as 0.999"),
            );
        }
        let power = self.power?;
        (!power.is_finite() || power <= 0.0).then(|| {
            diagnostic!("the warm-up of an average has a power of {power}")
                .help("it is a positive number, as 1 or 0.75")
        })
    }

    /// Declares the averaged weights of a model as parameters of a function, such as `predict` or
    /// `evaluate`: the model that `param` of the function would give, with averages of the name
    /// `ema` in place of floats. The model's name is the one that the training step gave it.
    #[track_caller]
    pub fn param<M: Differentiable>(f: &mut FunctionBuilder, name: &str, model: M) -> M {
        Ema::param_named(f, NAME, name, model)
    }

    /// [`param`](Self::param) of averages of another [name](Self::named).
    #[track_caller]
    pub fn param_named<M: Differentiable>(
        f: &mut FunctionBuilder,
        average: &str,
        name: &str,
        model: M,
    ) -> M {
        let _user = Location::caller().attributed();
        model.map_tensors(&KeyPath::root(name), &mut |path, tensor| match tensor.dtype().is_float()
        {
            true => f.param(&format!("{average}.{path}"), averaged(tensor)).convert(tensor.dtype()),
            false => f.param(path.as_str(), tensor.clone()),
        })
    }
}

/// The variable of a tensor's average. The first step replaces its zeros.
fn averaged(tensor: &Tensor) -> Tensor {
    let dtype = if tensor.dtype().is_half() { DType::F32 } else { tensor.dtype() };
    Tensor::variable(tensor.ty().with_dtype(dtype), Initializer::Zeros)
}
