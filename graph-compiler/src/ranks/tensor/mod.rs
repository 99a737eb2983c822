//! Tensor parallelism: the function of one device as the function of each of T ranks, which share
//! products.
//!
//! [`TensorParallel`] takes a function without a mesh, such as a training step with its loss,
//! gradients and optimiser, and divisions of some variables, by key path. The result runs on the
//! ranks of `mesh(tensor=T)`. Each rank stores its part of a divided variable, and computes its
//! part of what is made of it.
//!
//! The usual divisions of a transformer are those of Megatron-LM (Shoeybi and others 2019). An
//! MLP's first weight is divided by columns, its second by rows: no data is exchanged between them,
//! and one sum over the ranks follows. So it is with the projections of queries, keys and values,
//! by columns, and attention's output, by rows: each rank has some of the heads.
//!
//! # Meaning
//!
//! A value is whole, the same on all ranks, or divided along an axis ([`Split`]).
//!
//! - An op that treats the parts of an axis alike is computed by part: elementwise ops, a product
//!   along an axis that it keeps, attention along heads. Whole operands are cut.
//! - An op that reduces a divided axis, such as a product that contracts it, gives a partial result
//!   on each rank. `psum` adds them, each rounded to its dtype, in its balanced tree. Maxima and
//!   minima are combined alike.
//! - For any other op, and for loops and branches, `all_gather` makes operands whole, and every
//!   rank computes the op.
//!
//! Random bits are drawn whole, and then cut, so a dropout draws the same numbers for any T. Inputs
//! and outputs other than variables are whole.
//!
//! So T decides the bits: with T parts, a sum has another order. Worst-case bounds of
//! [certificates](crate::certificate) hold for every order of sums, so in f32 results for two T
//! differ by at most the sum of both bounds. A partial result in a half is rounded once more than
//! the bound counts.
//!
//! # Variables
//!
//! The gradient of a divided parameter is divided by itself, and so are the moments of an
//! optimiser that are made of it. [`TensorParallel::choose`] infers these: a state whose new value
//! is divided becomes divided, until nothing changes. That also finds the bias of a layer whose
//! outputs are divided.
//!
//! # Data parallelism
//!
//! [`DataParallel`](super::DataParallel) divides the examples of a rank's function further: apply
//! it to the result. Sums over `tensor` are within microbatches, so for a fixed T the bits do not
//! depend on the number of ranks along `data`.
//!
//! # Limits
//!
//! A loop gets whole variables, so a network that is a loop over its layers has no use for this
//! pass. The cross-entropy of divided logits and the rows of a divided vocabulary are gathered.

mod analysis;
mod rewrite;
mod split;

pub use split::Split;

use crate::calls::inline_wrappers;
use crate::key_paths::{KeyPaths, listed};
use crate::rewrite::tidy;
use analysis::Analysis;
use rewrite::Rewrite;
use std::collections::BTreeMap;
use wengert_core::graph::{Function, Input, InputRole, OutputRole};
use wengert_core::{Diagnostic, Result};

/// A request to run a function on several ranks that share products.
///
/// ```
/// # use wengert_compiler::ranks::TensorParallel;
/// # use wengert_core::graph::parse_program;
/// let text = "func @mlp(%x: f32[8,4], param %up: f32[4,6], param %down: f32[6,4]) -> (f32[8,4]) {
///     %0: f32[8,6] = dot_general %x, %up {contract=[[1],[0]]}
///     %1: f32[8,6] = tanh %0
///     %2: f32[8,4] = dot_general %1, %down {contract=[[1],[0]]}
///     return %2
/// }";
/// let program = parse_program(text, "mlp.ir")?;
/// let parallel = TensorParallel::new(2).split("up", 1)?.split("down", 0)?;
/// let function = program.get("mlp")?;
/// let of_rank = parallel.choose(function)?.apply(function)?;
/// assert_eq!(of_rank.input_type(1).to_string(), "f32[4,3]{tensor}");
/// assert!(of_rank.to_string().contains("psum"));
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorParallel {
    ranks: usize,
    axis: String,
    splits: Vec<(KeyPaths, Split)>,
}

impl TensorParallel {
    /// T ranks, and no divided variable.
    pub fn new(ranks: usize) -> Self {
        TensorParallel { ranks, axis: "tensor".into(), splits: vec![] }
    }

    /// The number of ranks, T.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Divides the variables whose key paths match a pattern with `*`, `?` and `[…]`.
    ///
    /// Error: it is no pattern.
    pub fn split(mut self, pattern: &str, split: impl Into<Split>) -> Result<Self> {
        self.splits.push((KeyPaths::new().with(pattern)?, split.into()));
        Ok(self)
    }

    /// The name of the axis of the mesh, `tensor` by default.
    #[must_use]
    pub fn axis(self, axis: impl Into<String>) -> Self {
        TensorParallel { axis: axis.into(), ..self }
    }

    /// The divided variables of a function, such as a training step: those that are named, and the
    /// states that follow from them.
    ///
    /// Errors: the function has a mesh, or dimension variables; a pattern matches no variable; two
    /// contradict each other; a variable does not fall into parts; no variable is divided.
    pub fn choose(&self, function: &Function) -> Result<TensorSplits> {
        self.chosen(function).map_err(|error| error.context(CONTEXT))
    }

    fn chosen(&self, function: &Function) -> Result<TensorSplits> {
        if self.ranks == 0 {
            return Err(Diagnostic::new("0 ranks").help("there is at least one"));
        }
        let prepared = prepared(function)?;
        let splits = self.named(function)?;
        let (ranks, axis) = (self.ranks, self.axis.clone());
        if splits.is_empty() && ranks > 1 {
            let (name, paths) = (&function.name, variables(function).map(|(_, i)| &*i.name));
            let listed = listed("divide some of", paths, "the function has no variables");
            return Err(Diagnostic::new(format!(
                "@{name}: no variable is divided, so the {ranks} ranks along `{axis}` would \
                 compute the same"
            ))
            .help(listed));
        }
        let mut found = TensorSplits { ranks, axis, splits };
        if ranks == 1 {
            found.splits.clear();
            return Ok(found);
        }
        loop {
            let inputs = found.of_inputs(&prepared)?;
            let analysis = Analysis::of(&prepared, &inputs, ranks)?;
            let known = found.splits.len();
            for (output, value) in prepared.outputs.iter().zip(&prepared.body.outputs) {
                if let (OutputRole::State, Some(split)) = (output.role, analysis.splits[*value]) {
                    found.splits.entry(output.name.clone()).or_insert(split);
                }
            }
            if found.splits.len() == known {
                return Ok(found);
            }
        }
    }

    /// The divisions of variables that match patterns.
    fn named(&self, function: &Function) -> Result<BTreeMap<String, Split>> {
        let name = &function.name;
        let mut splits: BTreeMap<String, Split> = BTreeMap::new();
        for (paths, split) in &self.splits {
            let names = variables(function).map(|(_, input)| &*input.name);
            if let Some(pattern) = paths.unmatched(names.clone()) {
                let help = listed("variables are", names, "it has no variables");
                return Err(
                    Diagnostic::new(format!("@{name} has no variable `{pattern}`")).help(help)
                );
            }
            for (number, input) in variables(function).filter(|(_, i)| paths.matches(&i.name)) {
                self.check(function, number, *split)?;
                let known = splits.insert(input.name.clone(), *split);
                if let Some(known) = known.filter(|known| known != split) {
                    let path = &input.name;
                    return Err(Diagnostic::new(format!(
                        "@{name}: `{path}` is to be divided along axis {known} and along axis \
                         {split}"
                    ))
                    .help("let one pattern match it"));
                }
            }
        }
        Ok(splits)
    }

    /// Checks that a variable falls into parts.
    fn check(&self, function: &Function, number: usize, split: Split) -> Result<()> {
        let (input, ty) = (&function.inputs[number], function.input_type(number));
        let Split { axis, blocks } = split;
        if split.divides(ty, self.ranks) {
            return Ok(());
        }
        let (problem, help) = match ty.shape.get(axis) {
            None => (
                format!("has no axis {axis}"),
                match ty.rank() {
                    0 => "leave it whole: it is one number".to_owned(),
                    rank => format!("its axes are 0 to {}", rank - 1),
                },
            ),
            Some(_) if blocks == 0 => {
                ("is to be divided in 0 blocks".into(), "there is at least one block".into())
            }
            Some(extent) => {
                let blocks = match blocks {
                    1 => String::new(),
                    blocks => format!(" in each of {blocks} blocks"),
                };
                (
                    format!(
                        "has extent {extent} along axis {axis}, which does not fall into {} equal \
                         parts{blocks}",
                        self.ranks
                    ),
                    "use a number of ranks that divides it, or another axis".into(),
                )
            }
        };
        let (name, path) = (&function.name, &input.name);
        let at = function.locations.origin(input.location).clone();
        Err(Diagnostic::new(format!("@{name}: `{path}`, {ty}, {problem}"))
            .at(at, "declared here")
            .help(help))
    }
}

/// The divided variables of tensor parallelism.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorSplits {
    ranks: usize,
    axis: String,
    splits: BTreeMap<String, Split>,
}

impl TensorSplits {
    /// The number of ranks, T.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// The division of a variable; none if it is whole.
    pub fn split(&self, variable: &str) -> Option<Split> {
        self.splits.get(variable).copied()
    }

    /// The divided variables, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Split)> {
        self.splits.iter().map(|(name, split)| (name.as_str(), *split))
    }

    /// The function of a rank: that of which the variables were chosen, or another one with some
    /// of these variables, such as an evaluation. With one rank it is the function itself.
    ///
    /// Errors: the function has a mesh, or dimension variables; a variable does not fall into
    /// parts; a reshape makes axes of a divided one that do not fall into parts, such as heads
    /// whose number T does not divide.
    pub fn apply(&self, function: &Function) -> Result<Function> {
        if self.ranks == 1 {
            return Ok(function.clone());
        }
        self.applied(function).map_err(|error| error.context(CONTEXT))
    }

    fn applied(&self, function: &Function) -> Result<Function> {
        let function = prepared(function)?;
        let inputs = self.of_inputs(&function)?;
        let state = |output: &wengert_core::graph::Output| match output.role {
            OutputRole::State => self.split(&output.name),
            _ => None,
        };
        let outputs: Vec<Option<Split>> = function.outputs.iter().map(state).collect();
        let analysis = Analysis::of(&function, &inputs, self.ranks)?;
        let rewrite = Rewrite {
            function: &function,
            analysis: &analysis,
            axis: &self.axis,
            ranks: self.ranks,
            inputs: &inputs,
            outputs: &outputs,
        };
        Ok(tidy(rewrite.run()?))
    }

    /// The divisions of a function's inputs.
    fn of_inputs(&self, function: &Function) -> Result<Vec<Option<Split>>> {
        let mut inputs = vec![None; function.inputs.len()];
        for (number, input) in variables(function) {
            let Some(split) = self.split(&input.name) else { continue };
            let ty = function.input_type(number);
            if !split.divides(ty, self.ranks) {
                let (name, path) = (&function.name, &input.name);
                return Err(Diagnostic::new(format!(
                    "@{name}: `{path}` is {ty} here, and has another shape where it was divided \
                     along axis {split}"
                ))
                .help("a variable has one type in all functions"));
            }
            inputs[number] = Some(split);
        }
        Ok(inputs)
    }
}

/// What errors are about.
const CONTEXT: &str = "tensor parallelism";

/// The function without wrappers, if it may be divided.
fn prepared(function: &Function) -> Result<Function> {
    let name = &function.name;
    if !function.mesh.is_empty() {
        return Err(Diagnostic::new(format!("@{name} has {} already", function.mesh))
            .help("give the function of one device; data parallelism comes afterwards"));
    }
    if let Some(variable) = function.variables().first() {
        return Err(Diagnostic::new(format!("@{name} has the dimension variable {variable}"))
            .help("bind it to a number first"));
    }
    Ok(tidy(inline_wrappers(function)?))
}

/// The variables among the inputs, with their numbers.
fn variables(function: &Function) -> impl Iterator<Item = (usize, &Input)> + Clone {
    let inputs = function.inputs.iter().enumerate();
    inputs.filter(|(_, input)| matches!(input.role, InputRole::State | InputRole::Param))
}
