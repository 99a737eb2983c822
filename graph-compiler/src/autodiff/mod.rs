//! Automatic differentiation of graphs.
//!
//! There is one derivative rule per op ([`wengert_core::op::derivative`]) and there are three
//! drivers, which contain no code for particular ops:
//!
//! - [`jvp`](jvp::jvp) runs a body forwards on pairs of a primal and a tangent;
//! - [`linearize`](linearize::linearize) is the same run with the tangents in a scope of their
//!   own. The contents of that scope are a *linear program*, and its captures are exactly the
//!   *residuals*;
//! - [`transpose`](transpose::transpose) runs a linear program backwards on cotangents, adding
//!   where a value was used twice.
//!
//! A fourth, [`series`](series::series()), runs a body on power series, for derivatives of high
//! order.
//!
//! Reverse mode is `vjp = transpose ∘ linearize`. Drivers emit ordinary equations into the
//! enclosing scope, so the same drivers differentiate derivatives again, to any order.
//! Perturbations cannot be confused: the inputs of each differentiated closure are fresh values
//! of its own scope. A value of an outer scope that it uses is a capture, hence a constant.
//!
//! A missing tangent or cotangent (`None`) is a *symbolic zero*: no equation is emitted for it.
//! Integers and bools have no tangents at all. Code is emitted only for equations between the
//! active inputs and the differentiated outputs ([`Activity`]). Each derivative equation's
//! location names the rule and the equation that it comes from.
//!
//! [`jacobian`] maps linear programs over bases, for derivatives as matrices. [`operators`]
//! offers all this on closures over models, [`function`] on whole functions: a function in, a
//! function out. [`list`] makes closures values of their own. [`eager`] computes at once and
//! differentiates the recorded operations.

mod activity;
mod control;
mod cotangent;
mod custom;
pub mod eager;
pub mod function;
pub mod implicit;
pub mod jacobian;
mod jet;
pub mod jvp;
mod linear_solve;
pub mod linearize;
pub mod list;
pub mod operators;
pub mod residuals;
pub mod rules;
pub mod series;
mod slices;
pub mod trace;
pub mod transpose;
pub(crate) mod values;
pub(crate) mod wrt;

pub use activity::Activity;
pub use jvp::jvp;
pub use linearize::{Linear, Linearized, linearize};
pub(crate) use trace::record;
pub use trace::trace;
pub use transpose::transpose;

use wengert_core::build::Scope;
use wengert_core::{Diagnostic, Location, Result, Tensor};

/// The scope of derivative code whose operands do not determine one.
pub(crate) fn current_scope() -> Result<Scope> {
    Scope::current().ok_or_else(|| {
        Diagnostic::new("there is no function to put derivatives in")
            .help("differentiate inside `Program::function`")
    })
}

/// Fails with the first error that poisons a tensor.
pub(crate) fn unpoisoned<'t>(tensors: impl IntoIterator<Item = &'t Tensor>) -> Result<()> {
    tensors.into_iter().find_map(Tensor::error).map_or(Ok(()), |error| Err(error.clone()))
}

/// The tensors, or the first error that poisons one.
fn sound(tensors: Vec<Option<Tensor>>) -> Result<Vec<Option<Tensor>>> {
    unpoisoned(tensors.iter().flatten()).map(|()| tensors)
}

/// A tangent or cotangent that a rule made without operands that vary, as one that varies over the
/// axes of its value.
fn varying_as(tensor: Tensor, ty: &wengert_core::TensorType) -> Tensor {
    match ty.varying.is_empty() {
        true => tensor,
        false => tensor.pvary(ty.varying.names()),
    }
}

/// `a + b`; neither is a symbolic zero.
fn add(a: Tensor, b: &Tensor) -> Result<Tensor> {
    emit_one(wengert_core::op::Binary::Add.into(), &[a, b.clone()])
}

/// The sum of two tensors; `None` is zero.
fn plus(a: Option<Tensor>, b: Option<Tensor>) -> Result<Option<Tensor>> {
    match (a, b) {
        (Some(a), Some(b)) => add(a, &b).map(Some),
        (a, b) => Ok(a.or(b)),
    }
}

/// Emits an op of one result for a driver. Its location is the current derivation.
fn emit_one(op: wengert_core::Op, operands: &[Tensor]) -> Result<Tensor> {
    Ok(Scope::emit(op, operands, vec![], Location::Unknown)?.swap_remove(0))
}
