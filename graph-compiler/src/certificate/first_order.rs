//! The first-order estimate: Σ |∂out/∂v| · u · |v| over all roundings.
//!
//! Each rounding changes a value v by at most u·|v|, where u is the unit roundoff of its dtype. To
//! first order, an output changes by the sum of these changes times its derivatives. The estimate
//! is the sum of magnitudes, so it does not rely on errors that cancel.
//!
//! The derivatives come from reverse mode. A variable δ = 0 is added to each rounded value, the
//! function is linearized with respect to all δ, and the linear program is transposed. Everything
//! is evaluated in f64, so the dtypes of the function decide u and nothing else.
//!
//! What is counted: one rounding of each element of every result in floats that an equation
//! computes. Equations that move or choose elements round nothing, nor do conversions to wider
//! dtypes. Steps of a `scan` are counted one by one, if they are at most [`STEPS`] equations
//! altogether. Of other control flow, the results count once. The partial sums of products,
//! convolutions and reductions do not count: a sum of n terms in f32 may add n roundings to the
//! one of its result. A jump of `floor`, `sign` or a comparison has derivative 0, and so a rounding
//! that crosses it does not count.
//!
//! An output of at most [`ELEMENTS`] elements gets the greatest estimate of its elements. Of a
//! larger one, [`PROJECTIONS`] random signs s give the derivatives of sᵀ·out. The mean of their
//! squares is an unbiased estimate of ‖∂out/∂v‖². With its root in place of |∂out/∂v|, the sum
//! estimates a first-order bound on the Euclidean norm of the output's error.

use crate::autodiff::{linearize, transpose, unpoisoned};
use crate::calls::inline_wrappers;
use wengert_core::build::{Closure, Scope};
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::interpret::{Array, Cell, Cells, evaluate_unrounded};
use wengert_core::op::{
    Binary, Compute, Control, CumulativeKind, Derivative, ReduceKind, Scan, Unary, WindowKind,
    philox,
};
use wengert_core::{
    DType, Literal, Location, LocationId, LocationTable, Op, Result, Tensor, TensorType,
};

/// Most elements of an output whose estimates are computed one by one.
pub const ELEMENTS: usize = 8;

/// Number of random projections of a larger output.
pub const PROJECTIONS: usize = 4;

/// Most equations of the steps of a loop that are counted one by one.
const STEPS: usize = 4096;

/// Key of the random signs.
const KEY: [u32; 2] = [0x5eed, 0xce27];

/// What an estimate is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Norm {
    /// The greatest error of an element.
    Greatest,
    /// The Euclidean norm of the errors of all elements.
    Euclidean,
}

/// The values of an equation that are rounded.
#[derive(Clone, PartialEq, Debug)]
pub struct Rounding {
    /// The location of the equation in the table of the function.
    pub location: LocationId,
    /// The name of its op.
    pub op: &'static str,
    /// The dtype of the values.
    pub dtype: DType,
    /// Whether the equation converts the values to another dtype.
    pub converts: bool,
}

/// The estimate of one output.
#[derive(Clone, PartialEq, Debug)]
pub struct Estimate {
    /// The estimated error.
    pub error: f64,
    /// What the error is.
    pub norm: Norm,
    /// The part of each rounding in the error, in the order of [`FirstOrder::roundings`].
    pub parts: Vec<f64>,
}

/// The estimates of a function.
#[derive(Clone, PartialEq, Debug)]
pub struct FirstOrder {
    /// All roundings.
    pub roundings: Vec<Rounding>,
    /// For each output its estimate; `None` for an output that holds no floats.
    pub outputs: Vec<Option<Estimate>>,
}

/// The first-order estimate of each output of a function (without dimension variables) at some
/// inputs.
///
/// # Errors
/// An op of the function has no derivative: the error names it and its place. Errors of the
/// interpreter.
pub fn first_order(function: &Function, inputs: &[Literal]) -> Result<FirstOrder> {
    // A rule of a user that is not the derivative would give a wrong estimate.
    let function = inline_wrappers(function)?;
    let perturbed = perturbed(&function)?;
    let arrays = inputs.iter().map(Array::from_literal).collect::<Result<Vec<Array<f64>>>>()?;

    // The value and the residuals of the derivative.
    let scope = Scope::new(perturbed.locations);
    let types = perturbed.body.types(&perturbed.body.inputs);
    let given = function.inputs.len();
    let inputs: Vec<Tensor> =
        types[..given].iter().map(|ty| scope.input_at(ty.clone(), Location::Unknown)).collect();
    let is_float = |n: usize| function.output_type(n).dtype.is_float();
    let (linearized, tensors) = scope.enter(|| -> Result<_> {
        let zeros = types[given..].iter().map(Tensor::zeros);
        let primals: Vec<Tensor> = inputs.iter().cloned().chain(zeros).collect();
        let active: Vec<bool> = (0..primals.len()).map(|n| n >= given).collect();
        let wanted: Vec<bool> = (0..perturbed.body.outputs.len())
            .map(|n| n < function.outputs.len() && is_float(n))
            .collect();
        let closure = Closure { body: perturbed.body, captures: vec![] };
        let linearized = linearize(&closure, &primals, &active, &wanted)?;
        let values = &linearized.outputs[function.outputs.len()..];
        let tensors = [values, &linearized.linear.residuals].concat();
        Ok((linearized, tensors))
    })?;
    unpoisoned(&tensors)?;
    let forward = scope.close(&tensors)?;
    let mut values = evaluate_unrounded(&forward.body, &scope.locations(), &arrays)?;
    let residuals = values.split_off(perturbed.roundings.len());

    let linear = &linearized.linear;
    let count = linear.inputs.iter().filter(|(_, active)| *active).count();
    let mut outputs = Vec::new();
    for n in 0..function.outputs.len() {
        if !is_float(n) {
            outputs.push(None);
            continue;
        }
        let ty = function.output_type(n);
        let mut adjoint = None;
        if let Some(at) = linear.outputs[n].1 {
            let scope = Scope::new(scope.locations());
            let known: Vec<Tensor> = linear
                .residuals
                .iter()
                .map(|r| scope.input_at(r.ty().clone(), Location::Unknown))
                .collect();
            let cotangent = scope.input_at(ty.clone(), Location::Unknown);
            let mut present = vec![None; linear.body.outputs.len()];
            present[at] = Some(cotangent);
            let gradients = scope.enter(|| transpose(&linear.body, count, &known, &present))?;
            let tensors: Vec<Tensor> = gradients.iter().flatten().cloned().collect();
            let closure = scope.close(&tensors)?;
            let which: Vec<usize> = (0..count).filter(|n| gradients[*n].is_some()).collect();
            adjoint = Some((closure.body, scope.locations(), which));
        }
        let run = |cotangent: Array<f64>| -> Result<Vec<Option<Array<f64>>>> {
            let mut gradients = vec![None; count];
            if let Some((body, locations, which)) = &adjoint {
                let inputs = [residuals.as_slice(), &[cotangent]].concat();
                let found = evaluate_unrounded(body, locations, &inputs)?;
                which.iter().zip(found).for_each(|(n, array)| gradients[*n] = Some(array));
            }
            Ok(gradients)
        };
        outputs.push(Some(estimate(ty, &values, &perturbed.roundings, run)?));
    }
    Ok(FirstOrder { roundings: perturbed.roundings, outputs })
}

/// The estimate of one output. `run` gives, for a cotangent, the derivative with respect to each
/// rounding.
fn estimate(
    ty: &TensorType,
    values: &[Array<f64>],
    roundings: &[Rounding],
    run: impl Fn(Array<f64>) -> Result<Vec<Option<Array<f64>>>>,
) -> Result<Estimate> {
    let shape = ty.extents().expect("the function has no dimension variables");
    let elements: usize = shape.iter().product();
    let array = |f: &dyn Fn(usize) -> f64| -> Result<Array<f64>> {
        let cells = Cells::collect((0..elements).map(|at| Cell::Real(f(at))))?;
        Ok(Array::new(ty.dtype, shape.clone(), cells))
    };
    // u·Σ |g|·|v| over the elements of one rounding.
    let part = |n: usize, gradient: &[f64]| {
        let cells = values[n].cells.iter();
        let terms =
            cells.zip(gradient).map(|(v, g)| if *g == 0.0 { 0.0 } else { (g * v.real()).abs() });
        roundings[n].dtype.unit_roundoff() * terms.sum::<f64>()
    };
    let reals = |array: &Array<f64>| array.cells.iter().map(|c| *c.real()).collect::<Vec<f64>>();
    if elements <= ELEMENTS {
        let none = Estimate { error: 0.0, norm: Norm::Greatest, parts: vec![0.0; roundings.len()] };
        return (0..elements).try_fold(none, |greatest, element| {
            let gradients = run(array(&|at| f64::from(u8::from(at == element)))?)?;
            let parts: Vec<f64> = gradients
                .iter()
                .enumerate()
                .map(|(n, g)| g.as_ref().map_or(0.0, |g| part(n, &reals(g))))
                .collect();
            let error = sum(&parts);
            let replaces = error > greatest.error || error.is_nan();
            Ok(if replaces { Estimate { error, norm: Norm::Greatest, parts } } else { greatest })
        });
    }
    let mut squares: Vec<Vec<f64>> = vec![vec![]; roundings.len()];
    for projection in 0..PROJECTIONS {
        let gradients = run(array(&|at| sign(projection, at))?)?;
        for (sum, gradient) in squares.iter_mut().zip(gradients) {
            let Some(gradient) = gradient else { continue };
            sum.resize(gradient.cells.len(), 0.0);
            sum.iter_mut().zip(reals(&gradient)).for_each(|(sum, g)| *sum += g * g);
        }
    }
    let parts: Vec<f64> = squares
        .iter()
        .enumerate()
        .map(|(n, squares)| {
            let roots: Vec<f64> =
                squares.iter().map(|sum| (sum / PROJECTIONS as f64).sqrt()).collect();
            part(n, &roots)
        })
        .collect();
    Ok(Estimate { error: sum(&parts), norm: Norm::Euclidean, parts })
}

/// The sum; 0 for no terms.
fn sum(terms: &[f64]) -> f64 {
    terms.iter().fold(0.0, |sum, term| sum + term)
}

/// A random sign: a bit of Philox.
fn sign(projection: usize, element: usize) -> f64 {
    let (low, high) = (element as u64 as u32, (element as u64 >> 32) as u32);
    let [bits, ..] = philox([low, high, projection as u32, 0], KEY);
    if bits & 1 == 0 { 1.0 } else { -1.0 }
}

/// A function with a further input δ for each rounding, which is added to the rounded value. Its
/// outputs are those of the function, then the rounded values.
struct Perturbed {
    body: Body,
    locations: LocationTable,
    roundings: Vec<Rounding>,
}

fn perturbed(function: &Function) -> Result<Perturbed> {
    let scope = Scope::new(function.locations.clone());
    let inputs: Vec<Tensor> = function
        .body
        .types(&function.body.inputs)
        .into_iter()
        .map(|ty| scope.input_at(ty, Location::Unknown))
        .collect();
    let mut walk = Walk { scope: scope.clone(), values: vec![], roundings: vec![] };
    let mut outputs = scope.enter(|| walk.body(&function.body, &inputs))?;
    outputs.append(&mut walk.values);
    unpoisoned(&outputs)?;
    let closure = scope.close(&outputs)?;
    assert!(closure.captures.is_empty(), "the outermost scope has nothing to capture from");
    let locations = scope.locations();
    Ok(Perturbed { body: closure.body, locations, roundings: walk.roundings })
}

struct Walk {
    scope: Scope,
    values: Vec<Tensor>,
    roundings: Vec<Rounding>,
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
        results.into_iter().map(|value| self.perturb(value, equation, &location)).collect()
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
        self.values.push(value.clone());
        self.roundings.push(Rounding {
            location: equation.location,
            op: equation.op.name(),
            dtype: value.dtype(),
            converts: matches!(equation.op, Op::ConvertElementType(_)),
        });
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
