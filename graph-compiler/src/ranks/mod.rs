//! Data parallelism: the function of one device as the function of each of N ranks.
//!
//! [`DataParallel`] takes a function, such as a training step with its loss, gradients and
//! optimiser. It has no mesh, or one with other axes. Some of its inputs hold a batch of examples
//! along axis 0. The result runs on the ranks of `mesh(data=N)`: each rank is given `1/N` of the
//! examples, and everything else is the same on all ranks.
//!
//! # Meaning
//!
//! The bits depend on the number of *microbatches* M, and not on N. Microbatch m of M consists of
//! `B/M` consecutive examples. An op that reduces the axis of examples, such as the sum of a mean
//! loss or the product of a weight's gradient, is computed for each microbatch and rounded to its
//! dtype. These M *partial results* are added in a balanced tree: neighbours 2i and 2i + 1 are
//! added, and so on, each sum rounded to the dtype, or to f32 for halves, which are rounded once
//! more at the end. This is the tree of `psum`
//! ([`wengert_core::op::collective`]). Maxima and minima are combined alike.
//!
//! The result is the value for the whole batch. It is the same on all ranks, and whatever is
//! computed from it is computed once, on every rank: a norm of gradients, a clipping factor, the
//! optimiser. The statistics of a batch normalisation are such results too, so they are those of
//! the whole batch. A divisor B is a constant of the function and remains B.
//!
//! Rank r has microbatches r·M/N to (r + 1)·M/N − 1. If M/N is a power of two, their tree is a
//! subtree of the whole tree. So the rank adds its own, `psum` adds those of the ranks, and 1, 2
//! and 4 ranks give the same bits. Other N are refused, except N = 1, which has no mesh and runs
//! every microbatch itself. With M microbatches and one rank, the pass is accumulation of
//! gradients.
//!
//! # Form
//!
//! A rank runs its microbatches in nested loops of two steps. The examples are computed by one
//! copy of the equations, and at most two partial results are kept for each level of the nest:
//! memory for 2·log₂(M/N) gradients, where one loop would keep M/N.
//!
//! Random bits are drawn for the whole batch on every rank, and each microbatch takes its part of
//! them. So example i has the same random numbers in every arrangement.
//!
//! An output with a value for each example has those of the rank's examples, and varies over the
//! axis of the mesh. A state must not depend on the rank, so a state with a value for each example
//! is an error, and so is an op that mixes examples otherwise: a sort of the batch, a softmax along
//! it. Loops and branches take the same way for all examples.
//!
//! The parts are [`axes`] (ops along one axis), [`examples`] (the analysis), [`control`] (that of
//! loops and branches, by their [`regions`]) and [`rewrite`] (by equations that [`divide`] makes).
//! [`Shards`] then divides the variables among the ranks. [`TensorParallel`] divides products
//! instead of examples, before this pass.

mod axes;
mod control;
mod divide;
mod examples;
mod mixing;
mod partial;
mod refuse;
mod regions;
mod rewrite;
mod shards;
mod tensor;

pub(crate) use refuse::check;
pub use shards::{Sharding, Shards, parameters};
pub use tensor::{Split, TensorParallel, TensorSplits};

use crate::calls::inline_wrappers;
use crate::rewrite::tidy;
use wengert_core::graph::{Function, InputRole, OutputRole};
use wengert_core::nearest::suggest;
use wengert_core::{Diagnostic, Result};

/// A request to run a function on several ranks, with a part of the batch on each.
///
/// ```
/// # use wengert_compiler::ranks::DataParallel;
/// # use wengert_core::graph::parse_program;
/// let text = "func @mean(%x: f32[8]) -> (f32[]) {
///     %0: f32[] = reduce_sum %x {axes=[0]}
///     %1: f32[] = constant {value=f32[] 8.0}
///     %2: f32[] = div %0, %1
///     return %2
/// }";
/// let program = parse_program(text, "mean.ir")?;
/// let of_rank = DataParallel::new(["x"]).ranks(2).microbatches(4).apply(program.get("mean")?)?;
/// assert_eq!(of_rank.mesh.ranks(), 2);
/// assert_eq!(of_rank.input_type(0).to_string(), "f32[4]{data}");
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataParallel {
    batch: Vec<String>,
    axis: String,
    ranks: usize,
    microbatches: usize,
}

impl DataParallel {
    /// One rank and one microbatch. Axis 0 of these inputs runs over the examples. They are named,
    /// or given by the beginning of their key paths.
    pub fn new<N: Into<String>>(batch: impl IntoIterator<Item = N>) -> Self {
        let batch = batch.into_iter().map(Into::into).collect();
        DataParallel { batch, axis: "data".into(), ranks: 1, microbatches: 1 }
    }

    /// The number of ranks, N.
    #[must_use]
    pub fn ranks(self, ranks: usize) -> Self {
        DataParallel { ranks, ..self }
    }

    /// The number of microbatches of the whole batch, M. It decides the bits.
    #[must_use]
    pub fn microbatches(self, microbatches: usize) -> Self {
        DataParallel { microbatches, ..self }
    }

    /// The name of the axis of the mesh, `data` by default.
    #[must_use]
    pub fn axis(self, axis: impl Into<String>) -> Self {
        DataParallel { axis: axis.into(), ..self }
    }

    /// The function of each rank. Its mesh has the axis in front of those of the function. With one
    /// rank the mesh is that of the function.
    ///
    /// Errors: the mesh has the axis already; the function has dimension variables; an input that
    /// is named does not exist, or cannot be divided; N and M do not fit; an op mixes examples.
    pub fn apply(&self, function: &Function) -> Result<Function> {
        self.applied(function).map_err(|error| error.context("data parallelism"))
    }

    fn applied(&self, function: &Function) -> Result<Function> {
        let name = &function.name;
        self.check_numbers()?;
        if function.mesh.extent(&self.axis).is_some() {
            let (mesh, axis) = (&function.mesh, &self.axis);
            return Err(Diagnostic::new(format!("@{name} has {mesh} already, with axis `{axis}`"))
                .help("give a function without this axis, or name the axis otherwise"));
        }
        if let Some(variable) = function.variables().first() {
            return Err(Diagnostic::new(format!("@{name} has the dimension variable {variable}"))
                .help("bind it to a number first: the number of examples is divided"));
        }
        let batch = self.inputs_of_examples(function)?;
        let function = tidy(inline_wrappers(function)?);
        let examples = examples::examples(&function, &batch, self.microbatches)?;
        self.check_states(&function, &examples)?;
        let rewrite = rewrite::Rewrite { options: self, function: &function, examples: &examples };
        Ok(tidy(rewrite.run(&batch)?))
    }

    fn check_numbers(&self) -> Result<()> {
        let (ranks, microbatches) = (self.ranks, self.microbatches);
        if ranks == 0 || microbatches == 0 {
            return Err(Diagnostic::new(format!("{ranks} ranks, and {microbatches} microbatches"))
                .help("there is at least one of each"));
        }
        let fits = microbatches.is_multiple_of(ranks)
            && (ranks == 1 || (microbatches / ranks).is_power_of_two());
        if fits {
            return Ok(());
        }
        Err(Diagnostic::new(format!(
            "{microbatches} microbatches cannot be distributed over {ranks} ranks: each has to \
             have a number of them that is a power of two, so that its sum is a part of the sum \
             over all"
        ))
        .help(format!(
            "use {ranks} or {} microbatches, or another number of ranks",
            ranks.saturating_mul(2)
        )))
    }

    /// The positions of the inputs with examples.
    fn inputs_of_examples(&self, function: &Function) -> Result<Vec<usize>> {
        let names: Vec<&str> = function.inputs.iter().map(|i| i.name.as_str()).collect();
        if self.batch.is_empty() {
            return Err(Diagnostic::new("no input is named to hold examples")
                .help(format!("name some; inputs are {}", names.join(", "))));
        }
        let mut found = vec![];
        for wanted in &self.batch {
            let below = |name: &str| {
                name.strip_prefix(wanted.as_str()).is_some_and(|rest| rest.starts_with('.'))
            };
            let matches = |i: &usize| names[*i] == wanted || below(names[*i]);
            let of_name: Vec<usize> = (0..names.len()).filter(matches).collect();
            if of_name.is_empty() {
                return Err(Diagnostic::new(format!("there is no input `{wanted}`"))
                    .help(suggest(wanted, &names, "inputs")));
            }
            found.extend(of_name);
        }
        found.sort();
        found.dedup();
        let mut first: Option<(usize, &str)> = None;
        for input in &found {
            let (declared, ty) = (&function.inputs[*input], function.input_type(*input));
            let at = function.locations.origin(declared.location).clone();
            let fail = |problem: String, help: String| {
                let problem = format!("input `{}`, {ty}, {problem}", declared.name);
                Err(Diagnostic::new(problem).at(at.clone(), "declared here").help(help))
            };
            if declared.role != InputRole::Input {
                let role = declared.role.name();
                return fail(
                    format!("is a {role}, which is the same on all ranks"),
                    "name inputs that are passed to each run".into(),
                );
            }
            let Some(extent) = ty.shape.first().and_then(|dim| dim.as_extent()) else {
                return fail("has no axis of examples".into(), "axis 0 is that axis".into());
            };
            if extent == 0 || !extent.is_multiple_of(self.microbatches) {
                let m = self.microbatches;
                let below = extent / m * m;
                let near = if below == 0 { m } else { below };
                return fail(
                    format!("has {extent} examples, which are not {m} equal microbatches"),
                    format!("use a batch of {near} examples, or another number of microbatches"),
                );
            }
            match first {
                Some((known, name)) if known != extent => {
                    return fail(
                        format!("has {extent} examples, but `{name}` has {known}"),
                        "all inputs with examples have the same number of them along axis 0".into(),
                    );
                }
                _ => first = Some((extent, &declared.name)),
            }
        }
        Ok(found)
    }

    /// Checks that new states are the same on all ranks.
    fn check_states(&self, function: &Function, examples: &examples::Examples) -> Result<()> {
        for (output, value) in function.outputs.iter().zip(&function.body.outputs) {
            if output.role == OutputRole::State && examples.axis[*value].is_some() {
                let ty = function.body.ty(*value);
                return Err(Diagnostic::new(format!(
                    "@{}: state `{}`, {ty}, would have a value for each example, and differ \
                     between ranks",
                    function.name, output.name
                ))
                .help("reduce it over the batch, or make it an input and an output"));
            }
        }
        Ok(())
    }
}
