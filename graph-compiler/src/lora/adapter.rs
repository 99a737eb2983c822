//! Adapters: what the pass adds for a weight, and which weights can have one.

use super::{DOWN, Lora, UP, is_of_adapter};
use crate::key_paths::listed;
use wengert_core::graph::{Equation, Function, InputRole, OutputRole, ValueId};
use wengert_core::{Diagnostic, Dim, Initializer, Op, Result, TensorType, diagnostic};

/// The axis of a weight that its outputs have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputAxis {
    /// The first: `[out, in…]`.
    First,
    /// The last: `[in…, out]`.
    Last,
}

/// The two parameters that give a weight its update.
#[derive(Clone, PartialEq, Debug)]
pub struct Adapter {
    /// The key path of the weight.
    pub path: String,
    /// The type of the weight.
    pub weight: TensorType,
    /// The weight's axis of outputs.
    pub output: OutputAxis,
    /// The rank of the update.
    pub rank: usize,
}

impl Adapter {
    /// The key path of the parameter that takes the inputs.
    pub fn down(&self) -> String {
        format!("{}.{DOWN}", self.path)
    }

    /// The key path of the parameter that gives the outputs.
    pub fn up(&self) -> String {
        format!("{}.{UP}", self.path)
    }

    /// The type of the parameter at [`down`](Self::down).
    pub fn down_type(&self) -> TensorType {
        match self.output {
            OutputAxis::First => self.right(),
            OutputAxis::Last => self.left(),
        }
    }

    /// The type of the parameter at [`up`](Self::up).
    pub fn up_type(&self) -> TensorType {
        match self.output {
            OutputAxis::First => self.left(),
            OutputAxis::Last => self.right(),
        }
    }

    /// How the parameter at [`down`](Self::down) begins: with numbers of the deviation 1/√n for n
    /// inputs, so that what it gives has the magnitude of the inputs. That at [`up`](Self::up)
    /// begins with zeros.
    pub fn beginning(&self) -> Initializer {
        let inputs: i64 = self.inputs().iter().filter_map(Dim::as_constant).product();
        Initializer::Normal { mean: 0.0, std: 1.0 / (inputs as f64).sqrt() }
    }

    /// The left factor of the update: `[…, r]`.
    pub(super) fn left(&self) -> TensorType {
        let mut shape = self.weight.shape.to_vec();
        match self.output {
            OutputAxis::First => shape.truncate(1),
            OutputAxis::Last => _ = shape.pop(),
        }
        shape.push(self.rank.into());
        self.weight.with_shape(shape)
    }

    /// The right factor of the update: `[r, …]`.
    pub(super) fn right(&self) -> TensorType {
        let shape = &self.weight.shape;
        let rest = match self.output {
            OutputAxis::First => &shape[1..],
            OutputAxis::Last => &shape[shape.len() - 1..],
        };
        let shape = std::iter::once(self.rank.into()).chain(rest.iter().cloned()).collect();
        self.weight.with_shape(shape)
    }

    fn inputs(&self) -> &[Dim] {
        let shape = &self.weight.shape;
        match self.output {
            OutputAxis::First => &shape[1..],
            OutputAxis::Last => &shape[..shape.len() - 1],
        }
    }
}

/// The adapters of functions that share their variables.
pub(super) fn find(lora: &Lora, functions: &[Function]) -> Result<Vec<Adapter>> {
    if lora.paths.is_empty() {
        return Err(Diagnostic::new("LoRA for no weight").help("name some: `path`, with a pattern"));
    }
    let variables = || {
        functions.iter().flat_map(|function| {
            let taken = function.inputs.iter().enumerate();
            taken
                .filter(|(_, input)| matches!(input.role, InputRole::Param | InputRole::State))
                .map(move |(n, input)| (input.name.as_str(), function.input_type(n)))
        })
    };
    let matrices = || {
        let all = variables()
            .filter(|(name, ty)| ty.rank() >= 2 && ty.dtype.is_float() && !is_of_adapter(name));
        listed(
            "variables with at least two axes are",
            all.map(|(name, _)| name),
            "the program has no variable that is a matrix of floats",
        )
    };
    let weights = variables().map(|(name, _)| name).filter(|name| !is_of_adapter(name));
    if let Some(pattern) = lora.paths.unmatched(weights) {
        return Err(diagnostic!("LoRA: no variable matches `{pattern}`").help(matrices()));
    }
    let mut adapters: Vec<Adapter> = Vec::new();
    for (name, ty) in variables() {
        if !lora.is_for(name) || adapters.iter().any(|adapter| adapter.path == name) {
            continue;
        }
        let fault = |what: String| diagnostic!("LoRA: `{name}` of type {ty} {what}");
        if let Some(writer) = functions.iter().find(|function| replaces(function, name)) {
            return Err(fault(format!("is replaced by @{}", writer.name)).help(
                "the pass runs before differentiation: adapt the functions that only read their \
                 parameters, and build the training step of these",
            ));
        }
        if !ty.dtype.is_float() || ty.rank() < 2 {
            return Err(fault("is no matrix of floats, and no kernel of a convolution".into())
                .help(matrices()));
        }
        let output = output_axis(functions, name, ty.rank()).map_err(|reason| {
            fault(reason.into()).help(
                "a weight has an axis of inputs and one of outputs, or is the kernel of a \
                 convolution whose outputs are its first or last axis",
            )
        })?;
        let adapter = Adapter { path: name.into(), weight: ty.clone(), output, rank: lora.rank };
        check_rank(&adapter).map_err(|(what, help)| fault(what).help(help))?;
        if variables().any(|(other, _)| other == adapter.down() || other == adapter.up()) {
            return Err(fault("is adapted already".into())
                .help("give each weight one update: let the patterns of the ranks not overlap"));
        }
        adapters.push(adapter);
    }
    Ok(adapters)
}

/// Whether a function replaces a variable that it reads.
fn replaces(function: &Function, name: &str) -> bool {
    function.input_index(name).is_some() && function.output_index(name, OutputRole::State).is_some()
}

/// Checks that an update of the rank is smaller than the weight: that it is below the number of
/// outputs, and of inputs. If not, the message and the mend.
fn check_rank(adapter: &Adapter) -> std::result::Result<(), (String, String)> {
    let number = |extents: &[Dim]| {
        extents.iter().try_fold(1i64, |all, extent| all.checked_mul(extent.as_constant()?))
    };
    let shape = &adapter.weight.shape;
    let output = match adapter.output {
        OutputAxis::First => &shape[..1],
        OutputAxis::Last => &shape[shape.len() - 1..],
    };
    let (Some(inputs), Some(outputs)) = (number(adapter.inputs()), number(output)) else {
        return Err((
            "has extents that are not numbers".into(),
            "bind its dimension variables first".into(),
        ));
    };
    let most = inputs.min(outputs);
    if i64::try_from(adapter.rank).is_ok_and(|rank| rank < most) {
        return Ok(());
    }
    Err((
        format!("has an update of rank {}, which is not below {most}", adapter.rank),
        format!(
            "give a rank below {most}, or train the weight itself: leave it out of the patterns"
        ),
    ))
}

/// The axis of outputs of a variable of rank `rank`, by its first use as a factor.
fn output_axis(
    functions: &[Function],
    name: &str,
    rank: usize,
) -> std::result::Result<OutputAxis, &'static str> {
    for function in functions {
        let Some(input) = function.input_index(name) else { continue };
        let weight = function.body.inputs[input];
        let mut transposed = Vec::new();
        for equation in &function.body.equations {
            if equation.operands.contains(&weight) && rank == 2 && swaps(&equation.op) {
                transposed.extend(equation.results.first().copied());
            }
            if let Some(axis) = summed(equation, weight) {
                return Ok(if axis == 0 { OutputAxis::Last } else { OutputAxis::First });
            }
            if let Some(axis) = transposed.iter().find_map(|value| summed(equation, *value)) {
                return Ok(if axis == 0 { OutputAxis::First } else { OutputAxis::Last });
            }
            let Op::ConvGeneralDilated(op) = &equation.op else { continue };
            if equation.operands.get(1) != Some(&weight) {
                continue;
            }
            return match op.rhs_spec.first() {
                None => Ok(OutputAxis::Last),
                Some(0) => Ok(OutputAxis::First),
                Some(axis) if axis + 1 == rank => Ok(OutputAxis::Last),
                Some(_) => Err("has its outputs on an axis that is neither first nor last"),
            };
        }
    }
    // A matrix in a lookup or in a loop: rows are found by the first axis.
    if rank == 2 { Ok(OutputAxis::Last) } else { Err("has more than two axes") }
}

/// The axis of a matrix over which a product sums. `None` if it is no plain product with it.
pub(super) fn summed(equation: &Equation, matrix: ValueId) -> Option<usize> {
    let Op::DotGeneral(op) = &equation.op else { return None };
    if op.result.is_some() || !op.batch.0.is_empty() {
        return None;
    }
    let (left, right) = (&op.contract.0, &op.contract.1);
    match equation.operands[..] {
        // A product with itself is not linear in it.
        [lhs, rhs] if lhs == rhs => None,
        [lhs, _] if lhs == matrix && left.len() == 1 => Some(left[0]),
        [_, rhs] if rhs == matrix && right.len() == 1 => Some(right[0]),
        _ => None,
    }
}

/// Whether an op exchanges the two axes of a matrix.
pub(super) fn swaps(op: &Op) -> bool {
    matches!(op, Op::Permute(op) if op.permutation == [1, 0])
}
