//! The function with a variable δ = 0 added to each rounded value.

use super::Rounding;
use super::sums::{Sums, Terms};
use crate::autodiff::unpoisoned;
use wengert_core::build::Scope;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::interpret::Array;
use wengert_core::op::{
    Binary, Compute, Control, CumulativeKind, Derivative, ReduceKind, Scan, Unary, WindowKind,
};
use wengert_core::{DType, Location, LocationTable, Op, Result, Scalar, Tensor, TensorType};

/// Most equations of the steps of a loop that are counted one by one.
const STEPS: usize = 4096;

/// A function with a further input δ for each rounded value, which is added to it. Its outputs are
/// those of the function, then the tensors that the [magnitudes](Magnitude) name.
pub(super) struct Perturbed {
    pub body: Body,
    pub locations: LocationTable,
    pub roundings: Vec<Rounding>,
    magnitudes: Vec<Magnitude>,
}

/// What one rounding may change, for each element. Numbers of tensors count the further outputs.
struct Magnitude {
    /// The number of δ.
    delta: usize,
    /// The rounded values, or the results of the sums.
    value: usize,
    /// Of the roundings of partial sums.
    sums: Option<PartialSums>,
}

struct PartialSums {
    sums: Sums,
    /// The sums of the squares of the terms.
    squares: usize,
    /// The numbers of terms.
    count: usize,
}

/// The effect of one rounding.
pub(super) struct Effect {
    /// The number of the δ that the rounding changes.
    pub delta: usize,
    /// For each element, the most by which it changes.
    pub most: Vec<f64>,
}

impl Perturbed {
    /// The effects of the roundings, from the values of the further outputs.
    pub fn effects(&self, values: &[Array<f64>]) -> Vec<Effect> {
        let reals = |tensor: usize| values[tensor].cells.iter().map(|cell| *cell.real());
        let of = |(rounding, magnitude): (&Rounding, &Magnitude)| {
            let results = reals(magnitude.value);
            let sizes: Vec<f64> = match &magnitude.sums {
                None => results.map(f64::abs).collect(),
                Some(PartialSums { sums, squares, count }) => results
                    .zip(reals(*squares).zip(reals(*count)))
                    .map(|(result, (squares, count))| {
                        sums.partial(&Terms { count, result, squares })
                    })
                    .collect(),
            };
            let unit = rounding.dtype.unit_roundoff();
            let most = sizes.into_iter().map(|size| unit * size).collect();
            Effect { delta: magnitude.delta, most }
        };
        self.roundings.iter().zip(&self.magnitudes).map(of).collect()
    }
}

/// Adds δ to the rounded values of a function without dimension variables.
pub(super) fn perturbed(function: &Function) -> Result<Perturbed> {
    let scope = Scope::new(function.locations.clone());
    let inputs: Vec<Tensor> = function
        .body
        .types(&function.body.inputs)
        .into_iter()
        .map(|ty| scope.input_at(ty, Location::Unknown))
        .collect();
    let mut walk = Walk {
        scope: scope.clone(),
        tensors: vec![],
        deltas: 0,
        roundings: vec![],
        magnitudes: vec![],
    };
    let mut outputs = scope.enter(|| walk.body(&function.body, &inputs))?;
    outputs.append(&mut walk.tensors);
    unpoisoned(&outputs)?;
    let closure = scope.close(&outputs)?;
    assert!(closure.captures.is_empty(), "the outermost scope has nothing to capture from");
    let (locations, Walk { roundings, magnitudes, .. }) = (scope.locations(), walk);
    Ok(Perturbed { body: closure.body, locations, roundings, magnitudes })
}

struct Walk {
    scope: Scope,
    /// The further outputs.
    tensors: Vec<Tensor>,
    deltas: usize,
    roundings: Vec<Rounding>,
    magnitudes: Vec<Magnitude>,
}

impl Walk {
    fn body(&mut self, body: &Body, operands: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut tensors: IdVec<ValueId, Option<Tensor>> = body.values.ids().map(|_| None).collect();
        for (value, tensor) in body.inputs.iter().zip(operands) {
            tensors[*value] = Some(tensor.clone());
        }
        let of = |tensors: &IdVec<ValueId, Option<Tensor>>, value: ValueId| {
            tensors[value].clone().expect("the verifier found each value defined before its use")
        };
        for equation in &body.equations {
            let operands: Vec<Tensor> =
                equation.operands.iter().map(|v| of(&tensors, *v)).collect();
            let results = self.equation(body, equation, &operands)?;
            for (value, result) in equation.results.iter().zip(results) {
                tensors[*value] = Some(result);
            }
        }
        Ok(body.outputs.iter().map(|v| of(&tensors, *v)).collect())
    }

    fn equation(
        &mut self,
        body: &Body,
        equation: &Equation,
        operands: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        match equation.op.control() {
            // An error passes where a gradient is stopped.
            _ if matches!(equation.op, Op::Unary(Unary::StopGradient)) => {
                return Ok(operands.to_vec());
            }
            Some(Control::Scan(scan)) => {
                if let Some(results) = self.unrolled(scan, equation, operands)? {
                    return Ok(results);
                }
            }
            _ => {}
        }
        let location = self.scope.location(equation.location);
        let types = body.types(&equation.operands);
        let result_types = body.types(&equation.results);
        // Facets of literals are not computed.
        let is_opaque = matches!(equation.op.derivative(), Derivative::Opaque);
        let rule = if is_opaque && !matches!(equation.op, Op::Constant(_)) {
            match equation.op.compute(&types, &result_types, &equation.regions) {
                Compute::Decompose(rule) | Compute::CallOrDecompose(_, rule) => Some(rule),
                _ => None,
            }
        } else {
            None
        };
        let results = match rule {
            Some(rule) => {
                self.scope.derived(equation.location, "expand".to_owned(), || rule(operands))
            }
            None => Scope::emit(
                equation.op.clone(),
                operands,
                equation.regions.clone(),
                location.clone(),
            )?,
        };
        unpoisoned(&results)?;
        if !rounds(&equation.op, &types, &result_types) {
            return Ok(results);
        }
        if let Some(sums) = Sums::of(&equation.op, &types, &result_types) {
            self.partial_sums(sums, equation, operands, &results[0], &location)?;
        }
        results.into_iter().map(|value| self.perturb(value, equation, &location)).collect()
    }

    /// The roundings of the partial sums. They change the value by the δ that it gets next.
    fn partial_sums(
        &mut self,
        sums: Sums,
        equation: &Equation,
        operands: &[Tensor],
        value: &Tensor,
        location: &Location,
    ) -> Result<()> {
        let emit = |op: Op, operands: &[Tensor]| -> Result<Tensor> {
            let mut results = Scope::emit(op, operands, vec![], location.clone())?;
            unpoisoned(&results)?;
            Ok(results.swap_remove(0))
        };
        let (mut squares, mut ones) = (vec![], vec![]);
        for operand in operands {
            if !operand.dtype().is_float() {
                squares.push(operand.clone());
                ones.push(operand.clone());
                continue;
            }
            let constant = emit(Unary::StopGradient.into(), std::slice::from_ref(operand))?;
            squares.push(emit(Unary::Square.into(), &[constant])?);
            ones.push(Tensor::full(operand.ty(), Scalar::one(operand.dtype())));
        }
        let squares = emit(equation.op.clone(), &squares)?;
        let count = emit(sums.counting.clone(), &ones)?;
        let rounding = Rounding {
            location: equation.location,
            op: equation.op.name(),
            dtype: sums.dtype,
            converts: false,
            is_partial: true,
        };
        let (squares, count) = (self.output(squares), self.output(count));
        let value = self.output(value.clone());
        let sums = Some(PartialSums { sums, squares, count });
        self.roundings.push(rounding);
        self.magnitudes.push(Magnitude { delta: self.deltas, value, sums });
        Ok(())
    }

    /// The number of a further output.
    fn output(&mut self, tensor: Tensor) -> usize {
        self.tensors.push(tensor);
        self.tensors.len() - 1
    }

    /// The rounded value with its δ.
    fn perturb(
        &mut self,
        value: Tensor,
        equation: &Equation,
        location: &Location,
    ) -> Result<Tensor> {
        if !value.dtype().is_float() {
            return Ok(value);
        }
        let delta = self.scope.input_at(value.ty().clone(), location.clone());
        self.roundings.push(Rounding {
            location: equation.location,
            op: equation.op.name(),
            dtype: value.dtype(),
            converts: matches!(equation.op, Op::ConvertElementType(_)),
            is_partial: false,
        });
        let output = self.output(value.clone());
        self.magnitudes.push(Magnitude { delta: self.deltas, value: output, sums: None });
        self.deltas += 1;
        let add = Binary::Add.into();
        Ok(Scope::emit(add, &[value, delta], vec![], location.clone())?.swap_remove(0))
    }

    /// The results of a loop, step by step; `None` if there are too many.
    fn unrolled(
        &mut self,
        scan: &Scan,
        equation: &Equation,
        operands: &[Tensor],
    ) -> Result<Option<Vec<Tensor>>> {
        let length = scan.length.as_constant().and_then(|length| usize::try_from(length).ok());
        let region = &equation.regions[0];
        let Some(length) = length.filter(|length| {
            *length > 0 && length.saturating_mul(region.equations.len()) <= STEPS && !scan.counted
        }) else {
            return Ok(None);
        };
        let parts = scan.parts(operands)?;
        let slices: Vec<Vec<Tensor>> = parts.slices.iter().map(|whole| whole.unstack(0)).collect();
        let mut carries = parts.carries.to_vec();
        let mut stacks: Vec<Vec<Tensor>> = Vec::new();
        for step in 0..length {
            let step = if scan.reverse { length - 1 - step } else { step };
            let taken: Vec<Tensor> = carries
                .into_iter()
                .chain(slices.iter().map(|parts| parts[step].clone()))
                .chain(parts.captures.iter().cloned())
                .collect();
            carries = self.body(region, &taken)?;
            let made = carries.split_off(scan.carries);
            stacks.resize(made.len(), vec![]);
            stacks.iter_mut().zip(made).for_each(|(stack, part)| stack.push(part));
        }
        let stacks = stacks.into_iter().map(|mut stack| {
            if scan.reverse {
                stack.reverse();
            }
            Tensor::stack(&stack, 0)
        });
        Ok(Some(carries.into_iter().chain(stacks).collect()))
    }
}

/// Whether an equation rounds its results in floats.
fn rounds(op: &Op, operands: &[TensorType], results: &[TensorType]) -> bool {
    let chooses = match op {
        Op::Unary(op) => matches!(
            op,
            Unary::Neg | Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Round | Unary::Sign
        ),
        Op::Binary(op) => matches!(op, Binary::Max | Binary::Min),
        Op::Reduce(op) => matches!(op.kind, ReduceKind::Max | ReduceKind::Min),
        Op::Cumulative(op) => matches!(op.kind, CumulativeKind::Max | CumulativeKind::Min),
        Op::ReduceWindow(op) => matches!(op.kind, WindowKind::Max | WindowKind::Min),
        Op::ConvertElementType(_) => {
            let (from, to) = (operands[0].dtype, results[0].dtype);
            let is_small = |dtype: DType| dtype == DType::Bool || dtype.size() == 1;
            from == to
                || if from.is_float() {
                    to.unit_roundoff() < from.unit_roundoff()
                } else {
                    is_small(from)
                }
        }
        Op::Clamp(_)
        | Op::Select(_)
        | Op::SelectN(_)
        | Op::NextAfter(_)
        | Op::Constant(_)
        | Op::Iota(_)
        | Op::Sort(_)
        | Op::TopK(_)
        | Op::Probe(_) => true,
        op => op.traits().movement,
    };
    !chooses && results.iter().any(|ty| ty.dtype.is_float())
}
