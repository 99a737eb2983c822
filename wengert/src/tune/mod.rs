//! Training of a model that predicts: from a function such as an [imported](crate::onnx) one to a
//! program with a training step and a recipe.
//!
//! [`Tuning`] says what is chosen; [`Tuning::of`] makes the file. It has these functions:
//!
//! | function | inputs | outputs |
//! |---|---|---|
//! | `init` | | the optimiser's state |
//! | `train_step` | data, labels; weights: state if trained | `loss`, and numbers for the log |
//! | `predict` | data; all weights | those of the model |
//! | `evaluate` | data, labels; all weights | `loss`, and `accuracy` of classes |
//!
//! The model's function is inlined in the others, and its parameters keep their key paths. Frozen
//! variables have no gradient and no moments, and training keeps every bit of them.
//!
//! Normalisation and dropout stay in the form of the model's function: with running statistics,
//! which are frozen, and without dropout. [`Tuning::training`] names a function with other forms
//! for the step.
//!
//! ```
//! use wengert::data::Arrays;
//! use wengert::prelude::*;
//! use wengert::tune::{Loss, Tuning};
//! # fn main() -> Result<()> {
//! let mut program = Program::new();
//! program.function("predict", |f| {
//!     let (x, layer) = (f.input("x", f32("B,4")), f.param("layer", nn::Linear::new(4, 3)));
//!     f.output("y", layer.call(&x));
//! })?;
//! let weights = Arrays::from([
//!     ("layer.weight".to_owned(), Literal::from_vec(&[4, 3], vec![0.1f32; 12])?),
//!     ("layer.bias".to_owned(), Literal::from_vec(&[3], vec![0.0f32; 3])?),
//! ]);
//! let tuning = Tuning::new(Loss::CrossEntropy).freeze("*.bias")?;
//! let file = tuning.of(&program, weights)?;
//! let step = file.program.get("train_step")?;
//! assert_eq!(step.inputs[step.input_index("layer.bias").unwrap()].role.name(), "param");
//! # Ok(())
//! # }
//! ```

mod build;
mod loss;
mod model;
mod optimizer;

pub use loss::Loss;
pub use optimizer::Optimizer;

use crate::data::Arrays;
use crate::format::{GraphFile, Weights};
use crate::lora::{self, Lora, is_of_adapter};
use model::Model;
use std::collections::BTreeMap;
use wengert_compiler::key_paths::{KeyPaths, listed};
use wengert_core::graph::Program;
use wengert_core::{Diagnostic, Result, diagnostic};

/// The name of the function of a training step.
pub const STEP: &str = "train_step";

/// The name of the function that evaluates.
pub const EVALUATE: &str = "evaluate";

/// How a model is trained.
#[derive(Clone, PartialEq, Debug)]
pub struct Tuning {
    /// The model's function.
    pub function: String,
    /// The function that takes its place in the training step, such as one that normalises by the
    /// statistics of the batch. It may replace variables that are not trained.
    pub training: Option<String>,
    /// The output of which the loss is computed; `None`: the only one.
    pub output: Option<String>,
    /// The loss.
    pub loss: Loss,
    /// The optimiser.
    pub optimizer: Optimizer,
    /// The learning rate.
    pub learning_rate: f64,
    /// Whether a session can [set](crate::optim::Rate::settable) the learning rate.
    pub settable_rate: bool,
    /// Examples in a batch.
    pub batch: u64,
    /// Passes over all examples.
    pub epochs: u64,
    /// The seed of adapters, of the order of examples, and of keys.
    pub seed: u64,
    /// The name of the input with the labels.
    pub labels: String,
    /// For inputs, and the labels, the names of arrays in the data file, if these differ.
    pub arrays: BTreeMap<String, String>,
    /// Variables that are not trained.
    pub frozen: KeyPaths,
    /// Updates of low rank, which are trained in place of all of the model's own variables.
    pub updates: Vec<Lora>,
}

impl Tuning {
    /// AdamW at a rate of 10⁻³, batches of 32, 10 epochs. All variables of floats are trained.
    pub fn new(loss: Loss) -> Self {
        Tuning {
            function: "predict".into(),
            training: None,
            output: None,
            loss,
            optimizer: Optimizer::AdamW,
            learning_rate: 1e-3,
            settable_rate: false,
            batch: 32,
            epochs: 10,
            seed: 1,
            labels: "labels".into(),
            arrays: BTreeMap::new(),
            frozen: KeyPaths::new(),
            updates: vec![],
        }
    }

    /// Freezes variables, by a pattern of their key paths.
    ///
    /// # Errors
    /// The text is no pattern.
    pub fn freeze(mut self, pattern: &str) -> Result<Self> {
        self.frozen = self.frozen.with(pattern)?;
        Ok(self)
    }

    /// Freezes the variable of a key path.
    #[must_use]
    pub fn freeze_path(mut self, path: &str) -> Self {
        self.frozen = self.frozen.with_path(path);
        self
    }

    /// Trains updates of low rank, in place of all of the model's own variables. Calls add up.
    #[must_use]
    pub fn lora(mut self, lora: Lora) -> Self {
        self.updates.push(lora);
        self
    }

    /// The file with the functions, the recipe and the weights. Of the program, the model's
    /// function remains. `weights` are values of its variables, to which those of adapters are
    /// added.
    ///
    /// # Errors
    /// There is no such function or output, or several outputs and none is named; the output does
    /// not fit the loss; the model has no variable of floats; a pattern matches no variable, or all
    /// variables are frozen; an input has a fixed number of examples; the name of the labels is
    /// taken; an array is named for no input; batch, epochs or learning rate are not positive;
    /// those of [`Lora`].
    pub fn of(&self, program: &Program, weights: Arrays) -> Result<GraphFile> {
        self.check_numbers()?;
        let names = [Some(&self.function), self.training.as_ref()];
        let functions = names.into_iter().flatten().map(|name| program.get(name).cloned());
        let mut adapted = Program::from_functions(functions.collect::<Result<_>>()?)?;
        let mut weights = weights;
        for lora in &self.updates {
            weights.extend(lora::beginning(&lora.adapters(&adapted)?, self.seed)?);
            adapted = lora.apply_to_program(&adapted)?;
        }
        let predict = adapted.get(&self.function)?;
        let model = Model::new(self, predict)?;
        model.reads_only()?;
        let in_training = match &self.training {
            Some(name) => Model::new(self, adapted.get(name)?)?,
            None => model.clone(),
        };
        let trained = self.trained(&model)?;
        in_training.replaces_none_of(&trained)?;
        let (step, init) = build::step(self, &in_training, &trained)?;
        let evaluate = build::evaluate(self, &model)?;
        let recipe = build::recipe(self, &in_training, init.is_some());
        let functions = init.into_iter().chain([step, predict.clone(), evaluate]).collect();
        let program = Program::from_functions(functions)?;
        recipe.verify_for(&program)?;
        let weights = if weights.is_empty() { Weights::None } else { Weights::Inline(weights) };
        Ok(GraphFile { program, recipe: Some(recipe), weights })
    }

    fn check_numbers(&self) -> Result<()> {
        if !self.learning_rate.is_finite() || self.learning_rate <= 0.0 {
            return Err(diagnostic!("a learning rate of {}", self.learning_rate)
                .help("it is a positive number, such as 1e-3"));
        }
        for (what, number) in [("batch", self.batch), ("epochs", self.epochs)] {
            if number == 0 {
                return Err(diagnostic!("{what} of 0").help("it is at least 1"));
            }
        }
        if [STEP, EVALUATE, crate::program::INIT].contains(&self.function.as_str()) {
            return Err(diagnostic!(
                "the model's function is @{}, a name of training",
                self.function
            )
            .help("give it another name, such as `predict`"));
        }
        Ok(())
    }

    /// The key paths of the variables that are trained.
    fn trained<'m>(&self, model: &Model<'m>) -> Result<Vec<&'m str>> {
        let variables = || model.variables();
        let floats = || variables().filter(|(_, ty)| ty.dtype.is_float()).map(|(name, _)| name);
        if floats().next().is_none() {
            return Err(diagnostic!("@{} has no variable of floats to train", self.function).help(
                "a model of integers only, such as a quantized one, has no gradient: import the \
                 model of floats that it was made from",
            ));
        }
        if let Some(pattern) = self.frozen.unmatched(variables().map(|(name, _)| name)) {
            let names = variables().map(|(name, _)| name);
            return Err(diagnostic!("no variable matches `{pattern}`, which is to be frozen")
                .help(listed("variables are", names, "there are none")));
        }
        let is_adapted = !self.updates.is_empty();
        let is_trained =
            |name: &&str| !self.frozen.matches(name) && (!is_adapted || is_of_adapter(name));
        let trained: Vec<&str> = floats().filter(is_trained).collect();
        match trained.is_empty() {
            true => Err(Diagnostic::new("all variables are frozen, so there is nothing to train")
                .help(listed("variables of floats are", floats(), "there are none"))),
            false => Ok(trained),
        }
    }
}
