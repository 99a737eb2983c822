//! Sharded variables: each rank stores a part of a variable instead of all of it.
//!
//! The step that [`DataParallel`](super::DataParallel) makes keeps every variable on every rank.
//! Most of that memory is redundant, and ZeRO ("Memory Optimizations Toward Training Trillion
//! Parameter Models", Rajbhandari et al. 2020) removes it in three stages, [`Sharding`]. A
//! variable is divided along one axis into a part for each rank.
//!
//! # Meaning
//!
//! **No bit changes.** Values are the same as without shards, whatever the number of ranks:
//!
//! - What is elementwise in a divided variable, or moves its elements, is computed for the rank's
//!   part. An operand that is whole on every rank is sliced, or computed for the part as well.
//! - A gradient that is needed by part only is summed by `psum_scatter` instead of `psum`
//!   ([`Sharding::Gradients`]). Both add in one tree.
//! - Any other op gets the whole value by `all_gather`, and computes it on every rank. So a norm
//!   or a product of matrices is that of whole tensors. Readers that are far apart, as those of the
//!   forward and the backward pass, gather it each ([`rewrite`]).
//!
//! # The axis
//!
//! A variable is divided along its first axis with a multiple of as many elements as there are
//! ranks. A variable without such an axis stays whole. So do variables of less than
//! [`Shards::LEAST`] elements, where a transfer costs more than the memory is worth.
//!
//! # The ranks
//!
//! Variables are divided along the axes of the mesh over which none of them varies. So the parts
//! of [tensor parallelism](super::TensorParallel) are divided further, among the ranks that have
//! the same part.
//!
//! # Which variables
//!
//! A *parameter* is a variable from which the values of examples are computed. The others are
//! states of the optimiser. A caller names further variables that stay whole, such as running
//! statistics that an evaluation reads.

mod analysis;
mod rewrite;

use crate::calls::inline_wrappers;
use crate::rewrite::tidy;
use analysis::{Among, Analysis};
use rewrite::Rewrite;
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::graph::{Function, InputRole, ValueId};
use wengert_core::mesh::Varying;
use wengert_core::{Diagnostic, Mesh, Op, Result};

/// What ranks store in parts. Each stage includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Sharding {
    /// Every rank has all variables.
    #[default]
    Replicated,
    /// The states of the optimiser, ZeRO-1.
    States,
    /// Gradients, once they are summed over the ranks, ZeRO-2.
    Gradients,
    /// Parameters, which are gathered where they are needed, ZeRO-3.
    Parameters,
}

impl Sharding {
    /// All, in order of their stage.
    pub const ALL: [Sharding; 4] =
        [Sharding::Replicated, Sharding::States, Sharding::Gradients, Sharding::Parameters];
}

/// The variables that ranks store in parts.
///
/// ```
/// # use wengert_compiler::ranks::{DataParallel, Sharding, Shards};
/// # use wengert_core::graph::parse_program;
/// let text = "func @step(%x: f32[8,1024], state %v: f32[1024]) -> (state v: f32[1024]) {
///     %0: f32[1024] = reduce_sum %x {axes=[0]}
///     %1: f32[1024] = add %v, %0
///     return %1
/// }";
/// let program = parse_program(text, "step.ir")?;
/// let of_rank = DataParallel::new(["x"]).ranks(2).microbatches(2).apply(program.get("step")?)?;
/// let shards = Shards::choose(&of_rank, Sharding::Gradients, []);
/// assert_eq!(shards.axis("v"), Some(0));
/// let of_rank = shards.apply(&of_rank)?;
/// assert_eq!(of_rank.input_type(1).to_string(), "f32[512]{data}");
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shards {
    mesh: Mesh,
    /// The axes of the mesh along which variables are divided.
    over: Vec<String>,
    sharding: Sharding,
    /// The axis along which each variable is divided.
    axes: BTreeMap<String, usize>,
}

impl Shards {
    /// The least number of elements of a variable that is divided.
    pub const LEAST: usize = 1024;

    /// Chooses the variables of a rank's training step. `whole` are names of variables that are
    /// not divided unless they are parameters.
    pub fn choose<'a>(
        of_rank: &Function,
        sharding: Sharding,
        whole: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let (mesh, whole) = (of_rank.mesh.clone(), BTreeSet::from_iter(whole));
        let over = shared(of_rank);
        let none = Shards { mesh, over, sharding, axes: BTreeMap::new() };
        let ranks = none.ranks();
        if sharding == Sharding::Replicated || ranks == 1 {
            return none;
        }
        let parameters = parameters(of_rank);
        let axes = of_rank.inputs.iter().zip(&of_rank.body.inputs).filter_map(|(input, value)| {
            let stored = match parameters.contains(value) {
                true => sharding == Sharding::Parameters,
                false => !whole.contains(input.name.as_str()),
            };
            let variable = matches!(input.role, InputRole::State | InputRole::Param);
            let extents = of_rank.body.ty(*value).extents()?;
            let large = extents.iter().product::<usize>() >= Self::LEAST;
            let axis = extents.iter().position(|n| *n > 0 && n.is_multiple_of(ranks))?;
            (variable && stored && large).then(|| (input.name.clone(), axis))
        });
        Shards { axes: axes.collect(), ..none }
    }

    /// The axis along which a variable is divided; none if it is whole.
    pub fn axis(&self, variable: &str) -> Option<usize> {
        self.axes.get(variable).copied()
    }

    /// The number of ranks among which variables are divided.
    fn ranks(&self) -> usize {
        self.mesh.size(&self.over).expect("the axes are of this mesh")
    }

    /// Whether every variable is whole.
    pub fn is_empty(&self) -> bool {
        self.axes.is_empty()
    }

    /// The divided variables with their axes, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, usize)> {
        self.axes.iter().map(|(name, axis)| (name.as_str(), *axis))
    }

    /// The function of a rank whose variables are divided. A function without a mesh, such as an
    /// evaluation, runs on every rank alike. One whose mesh has some of the axes gets all of them.
    ///
    /// Errors: the function has dimension variables, or another mesh; a variable has another type
    /// than it has in the training step.
    pub fn apply(&self, function: &Function) -> Result<Function> {
        let lacks_axes = !function.mesh.is_empty() && function.mesh != self.mesh;
        if self.is_empty() && !(lacks_axes && self.has_axes(&function.mesh)) {
            return Ok(function.clone());
        }
        self.applied(function).map_err(|error| error.context("sharding of variables"))
    }

    /// Whether the mesh has all axes of another.
    fn has_axes(&self, other: &Mesh) -> bool {
        other.axes().iter().all(|(name, extent)| self.mesh.extent(name) == Some(*extent))
    }

    fn applied(&self, function: &Function) -> Result<Function> {
        let name = &function.name;
        if !self.has_axes(&function.mesh) {
            let (has, wanted) = (&function.mesh, &self.mesh);
            return Err(Diagnostic::new(format!("@{name} has {has}, the variables {wanted}"))
                .help("make both for the same ranks"));
        }
        if let Some(variable) = function.variables().first() {
            return Err(Diagnostic::new(format!("@{name} has the dimension variable {variable}"))
                .help("bind it to a number first"));
        }
        let function = tidy(inline_wrappers(function)?);
        let axes = function.inputs.iter().zip(&function.body.inputs).map(|(input, value)| {
            let variable = matches!(input.role, InputRole::State | InputRole::Param);
            let axis = self.axes.get(&input.name).filter(|_| variable).copied();
            let ty = function.body.ty(*value);
            let divides = |axis: usize| {
                let extent = ty.shape.get(axis).and_then(|dim| dim.as_extent());
                extent.is_some_and(|n| n.is_multiple_of(self.ranks()))
            };
            if axis.is_some_and(|axis| !divides(axis)) {
                return Err(Diagnostic::new(format!(
                    "@{name}: `{}` is {ty} here, and has another shape in the training step",
                    input.name
                ))
                .help("a variable has one type in all functions"));
            }
            Ok(axis)
        });
        let inputs = axes.collect::<Result<Vec<Option<usize>>>>()?;
        let outputs = function.outputs.iter().map(|output| {
            use wengert_core::graph::OutputRole::State;
            self.axes.get(&output.name).filter(|_| output.role == State).copied()
        });
        let outputs: Vec<Option<usize>> = outputs.collect();
        let scatters = self.sharding >= Sharding::Gradients;
        let among = Among { over: &self.over, ranks: self.ranks() };
        let analysis = Analysis::of(&function, among, &inputs, &outputs, scatters);
        let rewrite = Rewrite {
            function: &function,
            mesh: &self.mesh,
            over: &self.over,
            ranks: among.ranks,
            analysis: &analysis,
            inputs: &inputs,
            outputs: &outputs,
        };
        Ok(tidy(rewrite.run()?))
    }
}

/// The axes of a function's mesh over which none of its variables varies.
fn shared(of_rank: &Function) -> Vec<String> {
    let inputs = of_rank.inputs.iter().zip(&of_rank.body.inputs);
    let variables = inputs.filter(|(i, _)| matches!(i.role, InputRole::State | InputRole::Param));
    let varying = variables.map(|(_, value)| &of_rank.body.ty(*value).varying);
    let varying = varying.fold(Varying::default(), |all, more| all.union(more));
    let axes = of_rank.mesh.axes().iter().map(|(name, _)| name.to_string());
    axes.filter(|name| !varying.contains(name)).collect()
}

/// The parameters among the inputs of a rank's function: what the values of its examples are
/// computed from. Further values of the function are among the results.
pub fn parameters(of_rank: &Function) -> BTreeSet<ValueId> {
    let (body, over) = (&of_rank.body, shared(of_rank));
    let mut reaches: BTreeSet<ValueId> = BTreeSet::new();
    for equation in body.equations.iter().rev() {
        let of_examples = |v: &ValueId| over.iter().any(|o| body.ty(*v).varying.contains(o));
        let varies = |v: &ValueId| of_examples(v) || reaches.contains(v);
        let reduces = match &equation.op {
            Op::PReduce(op) => op.over.iter().any(|o| over.contains(o)),
            _ => false,
        };
        if !reduces && equation.results.iter().any(varies) {
            reaches.extend(equation.operands.iter().copied());
        }
    }
    reaches
}
