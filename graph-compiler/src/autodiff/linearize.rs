//! Linearization: forward mode with a separate linear half.
//!
//! The tangents live in a child scope. An equation among primals is emitted outside of it, one
//! with a tangent operand inside. At the end, the child scope holds the derivative as a linear
//! program. Its captures are the residuals: the values through which the program depends on the
//! point. Constants are not residuals: the child scope repeats them
//! ([`Scope::repeating`](wengert_core::build::Scope::repeating)).

use super::custom::Purpose;
use super::jvp::run;
use super::transpose::transpose;
use super::{Activity, add, current_scope, custom, unpoisoned};
use wengert_core::build::Closure;
use wengert_core::graph::Body;
use wengert_core::{Diagnostic, Result, Tensor, TensorType};

/// A function's value at a point, and its derivative there.
pub struct Linearized {
    /// The outputs.
    pub outputs: Vec<Tensor>,
    /// The derivative.
    pub linear: Linear,
}

/// A linear map from tangents of a closure's inputs to tangents of its outputs.
#[derive(Clone, Debug)]
pub struct Linear {
    /// The linear program. Its inputs are the tangents of the active inputs, then the residuals.
    /// Its outputs are the nonzero tangents.
    pub body: Body,
    /// The residuals' values.
    pub residuals: Vec<Tensor>,
    /// For each input of the closure its type, and whether it is active.
    pub inputs: Vec<(TensorType, bool)>,
    /// For each output of the closure its type, and the output of the body that is its tangent;
    /// `None` is zero.
    pub outputs: Vec<(TensorType, Option<usize>)>,
}

/// Value and derivative of a closure at `primals`, with respect to the `active` inputs (floats
/// only).
///
/// `primals` are the closure's explicit inputs; its captures are constants. Tangents are made for
/// the `wanted` outputs.
pub fn linearize(
    closure: &Closure,
    primals: &[Tensor],
    active: &[bool],
    wanted: &[bool],
) -> Result<Linearized> {
    let tangent_scope = current_scope()?.repeating();
    let mut tangents: Vec<Option<Tensor>> = Vec::new();
    let mut inputs = Vec::new();
    for (primal, active) in primals.iter().zip(active) {
        let active = *active && primal.dtype().is_float();
        let location = primal.defined_at().unwrap_or_default();
        tangents.push(active.then(|| tangent_scope.input_at(primal.ty().clone(), location)));
        inputs.push((primal.ty().clone(), active));
    }
    let mut primals = primals.to_vec();
    primals.extend(closure.captures.iter().cloned());
    tangents.resize(primals.len(), None);
    let (outputs, tangents) = run(&closure.body, &primals, &tangents, wanted, true)?;

    let present: Vec<Tensor> = tangents.iter().flatten().cloned().collect();
    let linear = tangent_scope.close(&present)?;
    let mut position = 0..;
    let outputs_of = |(output, tangent): (&Tensor, &Option<Tensor>)| {
        let position = tangent.as_ref().and_then(|_| position.next());
        (output.ty().clone(), position)
    };
    let linear_outputs = outputs.iter().zip(&tangents).map(outputs_of).collect();
    let linear =
        Linear { body: linear.body, residuals: linear.captures, inputs, outputs: linear_outputs };
    Ok(Linearized { outputs, linear })
}

impl Linear {
    /// Tangents of the outputs from tangents of the inputs; `None` is zero. Tangents of inactive
    /// inputs are ignored.
    pub fn apply(&self, tangents: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        self.apply_as(Purpose::Forwards, tangents)
    }

    /// [`apply`](Self::apply) in a program of that kind.
    pub(super) fn apply_as(
        &self,
        purpose: Purpose,
        tangents: &[Option<Tensor>],
    ) -> Result<Vec<Option<Tensor>>> {
        check("tangent", self.inputs.iter().map(|(ty, _)| ty), tangents)?;
        let active = self.inputs.iter().zip(tangents).filter(|((_, active), _)| *active);
        let mut operands: Vec<Option<Tensor>> =
            active.map(|(_, tangent)| tangent.clone()).collect();
        operands.extend(self.residuals.iter().cloned().map(Some));
        let results = custom::run(&self.body, &operands, purpose)?;
        Ok(self.outputs.iter().map(|(_, at)| at.and_then(|at| results[at].clone())).collect())
    }

    /// For each input whether some output depends on it.
    pub fn depends(&self) -> Vec<bool> {
        let live = Activity::live(&self.body);
        let mut inputs = self.body.inputs.iter();
        let of =
            |(_, active): &(TensorType, bool)| *active && inputs.next().is_some_and(|v| live[*v]);
        self.inputs.iter().map(of).collect()
    }

    /// Cotangents of the inputs from cotangents of the outputs; `None` is zero.
    pub fn transpose(&self, cotangents: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        check("cotangent", self.outputs.iter().map(|(ty, _)| ty), cotangents)?;
        let mut present: Vec<Option<Tensor>> = vec![None; self.body.outputs.len()];
        for ((_, at), cotangent) in self.outputs.iter().zip(cotangents) {
            let (Some(at), Some(cotangent)) = (at, cotangent) else { continue };
            present[*at] = Some(match present[*at].take() {
                Some(sum) => add(sum, cotangent)?,
                None => cotangent.clone(),
            });
        }
        let count = self.inputs.iter().filter(|(_, active)| *active).count();
        let mut results = transpose(&self.body, count, &self.residuals, &present)?.into_iter();
        let result = |(_, active): &(TensorType, bool)| match active {
            true => {
                results.next().expect("the program gives a cotangent or zero for each active input")
            }
            false => None,
        };
        Ok(self.inputs.iter().map(result).collect())
    }
}

pub(super) fn check<'a>(
    what: &str,
    types: impl ExactSizeIterator<Item = &'a TensorType>,
    given: &[Option<Tensor>],
) -> Result<()> {
    if types.len() != given.len() {
        return Err(Diagnostic::new(format!(
            "{} {what}s given, {} wanted",
            given.len(),
            types.len()
        )));
    }
    for (i, (ty, given)) in types.zip(given).enumerate() {
        let Some(given) = given else { continue };
        unpoisoned([given])?;
        if given.ty() != ty {
            let at = given.defined_at().unwrap_or_default();
            return Err(Diagnostic::new(format!(
                "{what} {i} has type {}, the value has {ty}",
                given.ty()
            ))
            .at(at, format!("the {what} is made here"))
            .help("a tangent has the dtype and shape of its value"));
        }
    }
    Ok(())
}
