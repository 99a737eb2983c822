//! A policy: its dtypes, the functions and parameters that they are for, and the exceptions.

use super::class::{Class, class};
use glob::Pattern;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use wengert_core::{DType, Diagnostic, Op, Result, diagnostic};

/// The three dtypes of a policy, as in JMP (DeepMind's library of mixed precision for JAX).
///
/// Each is f32, bf16 or f16. f32 leaves what the program has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dtypes {
    /// The dtype in which parameters in f32 are stored.
    pub param_dtype: DType,
    /// The dtype of the operands of products, convolutions and attention. Sums are in f32.
    pub compute_dtype: DType,
    /// The dtype of results in f32. States are no results.
    pub output_dtype: DType,
}

impl Default for Dtypes {
    /// f32 for all three.
    fn default() -> Self {
        Dtypes { param_dtype: DType::F32, compute_dtype: DType::F32, output_dtype: DType::F32 }
    }
}

/// A policy of mixed precision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Precision {
    pub(super) dtypes: Dtypes,
    /// Names of ops that stay in f32.
    pub(super) wide: BTreeSet<String>,
    /// Key paths of variables, products with which stay in f32.
    pub(super) paths: Vec<Pattern>,
    /// For functions by name, numbers of equations that stay in f32.
    pub(super) equations: BTreeMap<String, BTreeSet<usize>>,
    /// Names of the functions that the policy is for; empty: all.
    pub(super) functions: Vec<Pattern>,
    /// Key paths of the parameters; empty: the variables that functions take as parameters.
    pub(super) params: Vec<Pattern>,
    /// Key paths of parameters that are stored in f32.
    pub(super) kept_params: Vec<Pattern>,
}

impl Precision {
    /// Products in bf16. It has the range of f32, so gradients need no scaling.
    pub fn bf16() -> Self {
        Precision::of(DType::BF16)
    }

    /// Products in f16. It has three more bits than bf16 and a smaller range: numbers above 65504
    /// are infinite, and those below 6·10⁻⁸ are 0. A training step scales its loss, as
    /// `wengert::optim::LossScale` does.
    pub fn f16() -> Self {
        Precision::of(DType::F16)
    }

    fn of(compute_dtype: DType) -> Self {
        Precision {
            dtypes: Dtypes { compute_dtype, ..Dtypes::default() },
            wide: BTreeSet::new(),
            paths: vec![],
            equations: BTreeMap::new(),
            functions: vec![],
            params: vec![],
            kept_params: vec![],
        }
    }

    /// A policy with these dtypes.
    ///
    /// ```
    /// # use wengert_core::DType;
    /// # use wengert_compiler::precision::{Dtypes, Precision};
    /// let halves = Precision::custom(Dtypes {
    ///     param_dtype: DType::BF16,
    ///     compute_dtype: DType::BF16,
    ///     ..Dtypes::default()
    /// })?;
    /// assert_eq!(halves, Precision::bf16().param_dtype(DType::BF16)?);
    /// # Ok::<(), wengert_core::Diagnostic>(())
    /// ```
    ///
    /// # Errors
    /// A dtype is not f32, bf16 or f16.
    pub fn custom(dtypes: Dtypes) -> Result<Self> {
        check("products", dtypes.compute_dtype)?;
        Precision::of(dtypes.compute_dtype)
            .param_dtype(dtypes.param_dtype)?
            .output_dtype(dtypes.output_dtype)
    }

    /// The policy of that name, as the option `--precision` takes it.
    ///
    /// # Errors
    /// There is no such policy.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "bf16" => Ok(Precision::bf16()),
            "f16" => Ok(Precision::f16()),
            _ => Err(Diagnostic::new(format!("there is no precision `{name}`")).help(
                "there are bf16 and f16: products in halves with sums in f32; without one, all is \
                 f32",
            )),
        }
    }

    /// The dtypes.
    pub fn dtypes(&self) -> Dtypes {
        self.dtypes
    }

    /// Names of the ops that stay in f32, in order.
    pub fn kept_ops(&self) -> impl Iterator<Item = &str> {
        self.wide.iter().map(String::as_str)
    }

    /// Patterns of the key paths of variables whose products stay in f32, as they were given.
    pub fn kept_paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(Pattern::as_str)
    }

    /// Functions and numbers of the equations that stay in f32, in order.
    pub fn kept_equations(&self) -> impl Iterator<Item = (&str, usize)> {
        self.equations
            .iter()
            .flat_map(|(name, numbers)| numbers.iter().map(move |number| (name.as_str(), *number)))
    }

    /// Patterns of the names of the functions that the policy is for. Without one, it is for all.
    pub fn only_functions(&self) -> impl Iterator<Item = &str> {
        self.functions.iter().map(Pattern::as_str)
    }

    /// Patterns of the key paths of the parameters. Without one, the parameters are the variables
    /// that functions take as parameters.
    pub fn param_paths(&self) -> impl Iterator<Item = &str> {
        self.params.iter().map(Pattern::as_str)
    }

    /// Patterns of the key paths of parameters that are stored in f32.
    pub fn kept_params(&self) -> impl Iterator<Item = &str> {
        self.kept_params.iter().map(Pattern::as_str)
    }

    /// Keeps all ops of a name in f32, such as `dot_general` or `softmax`.
    ///
    /// # Errors
    /// There is no op of that name.
    pub fn keep_op(mut self, name: &str) -> Result<Self> {
        if !Op::catalogue().iter().any(|entry| entry.name == name) {
            return Err(Diagnostic::new(format!("there is no op `{name}`"))
                .help("`graphrun ops` lists the ops"));
        }
        self.wide.insert(name.into());
        Ok(self)
    }

    /// Keeps products with some variables in f32, and so those that compute their gradients. Key
    /// paths are matched with `*`, `?` and `[…]`, as in `model.h.*.mlp.*`; `*` matches dots, too. A
    /// loop that reads such a variable stays in f32.
    ///
    /// # Errors
    /// The text is no pattern.
    pub fn keep_path(mut self, pattern: &str) -> Result<Self> {
        self.paths.push(path_pattern(pattern)?);
        Ok(self)
    }

    /// Keeps one equation of a function in f32. What is made of its result element by element stays
    /// in f32, too.
    ///
    /// `number` counts the equations from 0, after checkpoints, calls and the rules of users have
    /// been inlined and equal equations merged. `graphrun precision --within` finds such numbers.
    #[must_use]
    pub fn keep_equation(mut self, function: &str, number: usize) -> Self {
        self.equations.entry(function.to_owned()).or_default().insert(number);
        self
    }

    /// Stores parameters that are f32 in a dtype. Functions take them in it, and states that are
    /// parameters take their new values, rounded to the nearest number. Functions that take nothing
    /// but keys create them in it. The moments of an optimiser keep their types.
    ///
    /// A parameter is a variable that some function of the program takes as one (`param`), unless
    /// [`param_path`](Self::param_path) says which are.
    ///
    /// # Errors
    /// The dtype is not f32, bf16 or f16.
    pub fn param_dtype(mut self, dtype: DType) -> Result<Self> {
        check("parameters", dtype)?;
        self.dtypes.param_dtype = dtype;
        Ok(self)
    }

    /// Says which variables the [dtype of parameters](Self::param_dtype) is for, by their key
    /// paths; those of all calls together. Needed if the program has a training step only, to which
    /// all variables are states.
    ///
    /// # Errors
    /// The text is no pattern.
    pub fn param_path(mut self, pattern: &str) -> Result<Self> {
        self.params.push(path_pattern(pattern)?);
        Ok(self)
    }

    /// Stores some parameters in f32, by their key paths, whatever the
    /// [dtype of parameters](Self::param_dtype) is. Running statistics are an example: their
    /// updates are small.
    ///
    /// # Errors
    /// The text is no pattern.
    pub fn keep_param(mut self, pattern: &str) -> Result<Self> {
        self.kept_params.push(path_pattern(pattern)?);
        Ok(self)
    }

    /// Gives results that are f32 a dtype, by a conversion at the end of the function. States keep
    /// theirs.
    ///
    /// # Errors
    /// The dtype is not f32, bf16 or f16.
    pub fn output_dtype(mut self, dtype: DType) -> Result<Self> {
        check("results", dtype)?;
        self.dtypes.output_dtype = dtype;
        Ok(self)
    }

    /// Restricts the policy to functions whose names match, such as `predict*`; those of all calls
    /// together. Other functions stay as they are, except that those that take nothing but keys
    /// create parameters in their dtype.
    ///
    /// # Errors
    /// The text is no pattern.
    pub fn only_function(mut self, pattern: &str) -> Result<Self> {
        let parsed = Pattern::new(pattern).map_err(|error| {
            diagnostic!("`{pattern}` is no pattern of functions: {}", error.msg)
                .help("a pattern is a name with *, ? and [abc], such as `predict*`")
        })?;
        self.functions.push(parsed);
        Ok(self)
    }

    /// Whether the policy is for a function of that name.
    pub fn is_for(&self, function: &str) -> bool {
        self.functions.is_empty() || self.functions.iter().any(|of| of.matches(function))
    }

    /// Whether products take halves.
    pub(super) fn computes_in_halves(&self) -> bool {
        self.dtypes.compute_dtype.is_half()
    }

    /// The class of an op under this policy.
    pub(super) fn class(&self, op: &Op) -> Class {
        let is_wide = !self.computes_in_halves() || self.wide.contains(op.name());
        if is_wide { Class::Wide } else { class(op) }
    }
}

/// Checks that a policy may give something a dtype.
fn check(what: &str, dtype: DType) -> Result<()> {
    if dtype == DType::F32 || dtype.is_half() {
        return Ok(());
    }
    Err(diagnostic!("a policy of precision with {what} in {dtype}").help(match () {
        () if dtype.is_float8() => {
            "8-bit floats have no arithmetic and need a scale: use `Tensor::quantize` and \
             `Tensor::scaled_matmul`"
        }
        () if !dtype.is_float() => "these are floats: f32, bf16 or f16",
        () => "a policy rounds f32 to bf16 or f16; build the function in f64 to have more digits",
    }))
}

fn path_pattern(pattern: &str) -> Result<Pattern> {
    Pattern::new(pattern).map_err(|error| {
        diagnostic!("`{pattern}` is no pattern of key paths: {}", error.msg)
            .help("a pattern is a path with *, ? and [abc], such as `model.head.*`")
    })
}

impl fmt::Display for Precision {
    /// The dtype of products, what else the policy gives dtypes, and what stays in f32: `bf16,
    /// parameters bf16 but *.norm, results f16, only @predict*, in f32: softmax, head.*, step:12`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |patterns: &[Pattern]| {
            patterns.iter().map(Pattern::as_str).collect::<Vec<_>>().join(" ")
        };
        let Dtypes { param_dtype, compute_dtype, output_dtype } = self.dtypes;
        write!(f, "{compute_dtype}")?;
        if param_dtype != DType::F32 {
            write!(f, ", parameters {param_dtype}")?;
            if !self.params.is_empty() {
                write!(f, " of {}", list(&self.params))?;
            }
            if !self.kept_params.is_empty() {
                write!(f, " but {}", list(&self.kept_params))?;
            }
        }
        if output_dtype != DType::F32 {
            write!(f, ", results {output_dtype}")?;
        }
        if !self.functions.is_empty() {
            let names: Vec<String> = self.functions.iter().map(|of| format!("@{of}")).collect();
            write!(f, ", only {}", names.join(" "))?;
        }
        let equations = self.kept_equations().map(|(name, number)| format!("{name}:{number}"));
        let named = self.kept_ops().chain(self.kept_paths()).map(str::to_owned);
        let kept: Vec<String> = named.chain(equations).collect();
        if kept.is_empty() { Ok(()) } else { write!(f, ", in f32: {}", kept.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtypes_are_f32_or_halves() {
        let says = |dtype: DType, help: &str| {
            let custom = |dtypes: Dtypes| Precision::custom(dtypes).unwrap_err();
            let all = Dtypes::default();
            for (error, what) in [
                (custom(Dtypes { param_dtype: dtype, ..all }), "parameters"),
                (custom(Dtypes { compute_dtype: dtype, ..all }), "products"),
                (custom(Dtypes { output_dtype: dtype, ..all }), "results"),
            ] {
                let message = format!("a policy of precision with {what} in {dtype}");
                assert_eq!(error.message, message);
                assert!(error.help.as_deref().is_some_and(|text| text.contains(help)), "{error}");
            }
        };
        says(DType::I32, "these are floats: f32, bf16 or f16");
        says(DType::Bool, "these are floats");
        says(DType::F8E4M3FN, "8-bit floats have no arithmetic and need a scale");
        says(DType::F64, "build the function in f64");
    }

    #[test]
    fn a_policy_says_what_it_does() {
        let policy = Precision::custom(Dtypes {
            param_dtype: DType::F16,
            compute_dtype: DType::BF16,
            output_dtype: DType::BF16,
        })
        .and_then(|policy| policy.param_path("model.*")?.keep_param("model.head.*"))
        .and_then(|policy| policy.only_function("predict*")?.keep_op("softmax"));
        assert_eq!(
            policy.unwrap().to_string(),
            "bf16, parameters f16 of model.* but model.head.*, results bf16, only @predict*, in \
             f32: softmax"
        );
        assert_eq!(Precision::custom(Dtypes::default()).unwrap().to_string(), "f32");
        let error = Precision::f16().only_function("a***").unwrap_err();
        assert!(error.to_string().contains("`a***` is no pattern of functions"), "{error}");
    }
}
