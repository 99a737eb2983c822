//! The options of precision and of functions, and the policy that the former name.

use crate::console::Outcome;
use clap::Args;
use wengert::core::Target;
use wengert::precision::{Dtypes, Precision};
use wengert::{Diagnostic, Recipe, diagnostic};

/// The precision, options of several commands.
#[derive(Args, Clone, Debug)]
pub struct PrecisionArgs {
    /// Mixed precision: `bf16` has products, convolutions and attention on bf16, with sums in f32;
    /// `f16` likewise, and a training step must scale its loss. Variables, inputs and outputs keep
    /// their types, unless the options below give them others. `f32` leaves the arithmetic as it
    /// is. For `train` and `evaluate` the default is the recipe's, for all other commands f32.
    #[arg(long, value_name = "DTYPE")]
    pub precision: Option<String>,
    /// With --precision: ops that stay in f32, such as dot_general.
    #[arg(long, value_name = "OP", value_delimiter = ',', requires = "precision")]
    pub keep_f32: Vec<String>,
    /// With --precision: variables whose products stay in f32, by their key paths: `model.head.*`.
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', requires = "precision")]
    pub keep_f32_path: Vec<String>,
    /// With --precision: equations that stay in f32, by their function and number, such as
    /// train_step:12. `graphrun precision --within` finds them.
    #[arg(long, value_name = "FUNC:N", value_delimiter = ',', requires = "precision")]
    pub keep_f32_equation: Vec<String>,
    /// With --precision: the dtype in which parameters of f32 are stored: bf16 or f16. Weights in
    /// f32 are rounded to it when they are read.
    #[arg(long, value_name = "DTYPE", requires = "precision")]
    pub param_dtype: Option<String>,
    /// With --param-dtype: the variables that are parameters, by their key paths. The default are
    /// those that a function of the program takes as parameters.
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', requires = "param_dtype")]
    pub param_path: Vec<String>,
    /// With --param-dtype: parameters that are stored in f32, by their key paths: `model.head.*`.
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', requires = "param_dtype")]
    pub keep_f32_param: Vec<String>,
    /// With --precision: the dtype of results of f32: bf16 or f16.
    #[arg(long, value_name = "DTYPE", requires = "precision")]
    pub output_dtype: Option<String>,
    /// With --precision: only functions whose names match, such as `predict*`.
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', requires = "precision")]
    pub precision_function: Vec<String>,
}

impl PrecisionArgs {
    /// The policy of the options; `None` without --precision, and for f32 alone.
    ///
    /// # Errors
    /// There is no such policy, dtype or op; a text is no pattern, or names no equation; exceptions
    /// without a policy.
    pub fn policy(&self) -> Outcome<Option<Precision>> {
        let Some(name) = &self.precision else { return Ok(None) };
        let stores = self.param_dtype.is_some() || self.output_dtype.is_some();
        if name == "f32" {
            let kept = [&self.keep_f32, &self.keep_f32_path, &self.keep_f32_equation];
            if kept.iter().any(|texts| !texts.is_empty()) {
                return Err(Diagnostic::new("with --precision f32 there are no exceptions")
                    .help("leave out the options that begin with --keep-f32")
                    .into());
            }
            if !stores && !self.precision_function.is_empty() {
                return Err(Diagnostic::new(
                    "with --precision f32 there is no choice of functions",
                )
                .help("leave out --precision-function")
                .into());
            }
            if !stores {
                return Ok(None);
            }
        }
        let mut policy = match name.as_str() {
            "f32" => Precision::custom(Dtypes::default())?,
            name => Precision::named(name)?,
        };
        if let Some(dtype) = &self.param_dtype {
            policy = policy.param_dtype(dtype.parse()?)?;
        }
        if let Some(dtype) = &self.output_dtype {
            policy = policy.output_dtype(dtype.parse()?)?;
        }
        for op in &self.keep_f32 {
            policy = policy.keep_op(op)?;
        }
        for pattern in &self.keep_f32_path {
            policy = policy.keep_path(pattern)?;
        }
        for pattern in &self.param_path {
            policy = policy.param_path(pattern)?;
        }
        for pattern in &self.keep_f32_param {
            policy = policy.keep_param(pattern)?;
        }
        for pattern in &self.precision_function {
            policy = policy.only_function(pattern)?;
        }
        for text in &self.keep_f32_equation {
            let pair = text.rsplit_once(':').and_then(|(name, n)| Some((name, n.parse().ok()?)));
            let Some((function, number)) = pair.filter(|(name, _)| !name.is_empty()) else {
                return Err(diagnostic!("`--keep-f32-equation {text}` names no equation")
                    .help("write a function and a number, such as train_step:12")
                    .into());
            };
            policy = policy.keep_equation(function, number);
        }
        Ok(Some(policy))
    }
}

/// The recipe with the precision of the options, if they name one.
///
/// # Errors
/// As for [`PrecisionArgs::policy`].
pub fn with_precision(recipe: &Recipe, args: &PrecisionArgs) -> Outcome<Recipe> {
    let mut recipe = recipe.clone();
    if args.precision.is_some() {
        recipe.precision = args.policy()?;
    }
    Ok(recipe)
}

/// The elementary functions of GPUs, an option of several commands.
#[derive(Args, Clone, Debug)]
pub struct FunctionsArgs {
    /// GPUs and emulator: compute exp, log, tanh, square roots and quotients of f32 by approximate
    /// instructions, outside of products and attention. Errors are at most 2^-11 relatively for
    /// tanh, and some 2^-22 for the others; docs/precision.md has the bounds. Results are faster
    /// and less exact. On a CPU it changes nothing.
    #[arg(long)]
    pub approximate_functions: bool,
}

impl FunctionsArgs {
    /// The target with these functions.
    pub fn of(&self, target: Target) -> Target {
        if self.approximate_functions { target.with_approximate_functions() } else { target }
    }
}
