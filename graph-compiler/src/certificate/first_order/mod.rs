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
//! What is counted:
//!
//! - One rounding of each element of every result in floats that an equation computes. Equations
//!   that move or choose elements round nothing, nor do conversions to wider dtypes.
//! - The partial sums of `dot_general`, convolutions, `reduce_sum`, `cumsum`, sums of windows,
//!   `segment_sum`, `scatter_add` and `window_scatter_add`, and the partial products of
//!   `reduce_prod` and `cumprod`. A sum of n terms has n − 1 roundings, its result included; a sum
//!   of products of f32 has n, and a product of n factors n − 1. [`sums`] says what the magnitude
//!   of a partial sum is, and in which order they are added.
//! - Steps of a `scan` one by one, if they are at most 4096 equations altogether. Of other control
//!   flow, the results count once.
//!
//! What is not counted: roundings within `softmax`, norms, losses, attention and triangular solves,
//! whose results count once; those within an elementary function; effects of second order. A jump
//! of `floor`, `sign` or a comparison has derivative 0, and so a rounding that crosses it does not
//! count.
//!
//! An output of at most [`ELEMENTS`] elements gets the greatest estimate of its elements. Of a
//! larger one, [`PROJECTIONS`] random signs s give the derivatives of sᵀ·out. The mean of their
//! squares is an unbiased estimate of ‖∂out/∂v‖². With its root in place of |∂out/∂v|, the sum
//! estimates a first-order bound on the Euclidean norm of the output's error.

mod perturbed;
mod sums;

use crate::autodiff::{linearize, transpose, unpoisoned};
use crate::calls::inline_wrappers;
use perturbed::{Effect, perturbed};
use wengert_core::build::{Closure, Scope};
use wengert_core::graph::Function;
use wengert_core::interpret::{Array, Cell, Cells, evaluate_unrounded};
use wengert_core::op::philox;
use wengert_core::{DType, Literal, Location, LocationId, Result, Tensor, TensorType};

/// Most elements of an output whose estimates are computed one by one.
pub const ELEMENTS: usize = 8;

/// Number of random projections of a larger output.
pub const PROJECTIONS: usize = 4;

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

/// The values of an equation that are rounded: its results, or the partial sums of them.
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
    /// Whether the values are partial sums, or partial products, of one result.
    pub is_partial: bool,
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
    let mut perturbed = perturbed(&function)?;
    let arrays = inputs.iter().map(Array::from_literal).collect::<Result<Vec<Array<f64>>>>()?;

    // The value and the residuals of the derivative.
    let scope = Scope::new(std::mem::take(&mut perturbed.locations));
    let body = std::mem::take(&mut perturbed.body);
    let further = body.outputs.len() - function.outputs.len();
    let types = body.types(&body.inputs);
    let given = function.inputs.len();
    let inputs: Vec<Tensor> =
        types[..given].iter().map(|ty| scope.input_at(ty.clone(), Location::Unknown)).collect();
    let is_float = |n: usize| function.output_type(n).dtype.is_float();
    let (linearized, tensors) = scope.enter(|| -> Result<_> {
        let zeros = types[given..].iter().map(Tensor::zeros);
        let primals: Vec<Tensor> = inputs.iter().cloned().chain(zeros).collect();
        let active: Vec<bool> = (0..primals.len()).map(|n| n >= given).collect();
        let wanted: Vec<bool> =
            (0..body.outputs.len()).map(|n| n < function.outputs.len() && is_float(n)).collect();
        let closure = Closure { body, captures: vec![] };
        let linearized = linearize(&closure, &primals, &active, &wanted)?;
        let values = &linearized.outputs[function.outputs.len()..];
        let tensors = [values, &linearized.linear.residuals].concat();
        Ok((linearized, tensors))
    })?;
    unpoisoned(&tensors)?;
    let forward = scope.close(&tensors)?;
    let mut values = evaluate_unrounded(&forward.body, &scope.locations(), &arrays)?;
    let residuals = values.split_off(further);
    let effects = perturbed.effects(&values);

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
        outputs.push(Some(estimate(ty, &effects, run)?));
    }
    Ok(FirstOrder { roundings: perturbed.roundings, outputs })
}

/// The estimate of one output. `run` gives, for a cotangent, the derivative with respect to each δ.
fn estimate(
    ty: &TensorType,
    effects: &[Effect],
    run: impl Fn(Array<f64>) -> Result<Vec<Option<Array<f64>>>>,
) -> Result<Estimate> {
    let shape = ty.extents().expect("the function has no dimension variables");
    let elements: usize = shape.iter().product();
    let array = |f: &dyn Fn(usize) -> f64| -> Result<Array<f64>> {
        let cells = Cells::collect((0..elements).map(|at| Cell::Real(f(at))))?;
        Ok(Array::new(ty.dtype, shape.clone(), cells))
    };
    // Σ |g|·most over the elements of each rounding. Without a derivative it is 0.
    let parts = |gradients: &[Vec<f64>]| -> Vec<f64> {
        let part = |effect: &Effect| {
            let terms = effect.most.iter().zip(&gradients[effect.delta]);
            terms.map(|(most, g)| if *g == 0.0 { 0.0 } else { (g * most).abs() }).sum()
        };
        effects.iter().map(part).collect()
    };
    let reals = |array: &Array<f64>| array.cells.iter().map(|c| *c.real()).collect::<Vec<f64>>();
    if elements <= ELEMENTS {
        let none = Estimate { error: 0.0, norm: Norm::Greatest, parts: vec![0.0; effects.len()] };
        return (0..elements).try_fold(none, |greatest, element| {
            let gradients = run(array(&|at| f64::from(u8::from(at == element)))?)?;
            let gradients: Vec<Vec<f64>> =
                gradients.iter().map(|g| g.as_ref().map_or_else(Vec::new, reals)).collect();
            let parts = parts(&gradients);
            let error = sum(&parts);
            let replaces = error > greatest.error || error.is_nan();
            Ok(if replaces { Estimate { error, norm: Norm::Greatest, parts } } else { greatest })
        });
    }
    let mut squares: Vec<Vec<f64>> = vec![];
    for projection in 0..PROJECTIONS {
        let gradients = run(array(&|at| sign(projection, at))?)?;
        squares.resize(gradients.len(), vec![]);
        for (sum, gradient) in squares.iter_mut().zip(gradients) {
            let Some(gradient) = gradient else { continue };
            sum.resize(gradient.cells.len(), 0.0);
            sum.iter_mut().zip(reals(&gradient)).for_each(|(sum, g)| *sum += g * g);
        }
    }
    let roots = |squares: Vec<f64>| -> Vec<f64> {
        squares.into_iter().map(|sum| (sum / PROJECTIONS as f64).sqrt()).collect()
    };
    let parts = parts(&squares.into_iter().map(roots).collect::<Vec<_>>());
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
