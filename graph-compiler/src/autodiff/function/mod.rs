//! Derivatives of whole functions: a function in, a function out.
//!
//! This is how files are differentiated. [`grad`] of `@loss` is a function `@loss_grad` with the
//! same inputs, whose outputs are the derivatives, named `d_` + input. [`jvp`] is `@loss_jvp`,
//! with further inputs `t_` + input and further outputs `t_` + output. All are ordinary
//! functions, so applying them again gives higher derivatives: the gradient of `d_w` with respect
//! to `w` is `d_d_w`.
//!
//! [`jacobian`] and [`hessian`] give matrices, [`hvp`] a product with one, [`jet`] derivatives of
//! high order, [`transpose`] the transpose of a linear function. [`split`] makes the two halves
//! of a gradient functions of their own, which are compiled and run separately, and names the
//! residuals passed from the first to the second. [`linearize`] does the same for forward mode.
//!
//! A gradient function reads variables and replaces none, so inputs of role `state` become
//! `param`. A jvp keeps all outputs, and so all roles.

mod choose;
mod forward;
mod jacobian;
mod maker;
mod reverse;
mod split;
mod transposed;

pub use super::residuals::{Residual, ResidualKind, Residuals};
pub(crate) use maker::Maker;

use wengert_core::graph::{Function, Program};
use wengert_core::{Diagnostic, Result};

/// A request for reverse mode.
#[derive(Clone, Debug, Default)]
pub struct Grad<'a> {
    /// The output that is differentiated. May be omitted if there is only one candidate.
    pub of: Option<&'a str>,
    /// Inputs by name, or by the beginning of their key path: `model.layers.0` stands for all
    /// variables below it.
    pub wrt: &'a [&'a str],
    /// Whether the value is an output too, ahead of the derivatives.
    pub value: bool,
    /// Whether the output's cotangent is an input, `ct_` + output, instead of 1. Then the output
    /// need not be a scalar.
    pub seed: bool,
}

/// A request for forward mode.
#[derive(Clone, Debug, Default)]
pub struct Jvp<'a> {
    /// Inputs by name, or by the beginning of their key path. Each gets a tangent, an input
    /// `t_` + name.
    pub wrt: &'a [&'a str],
}

/// A request for derivatives of high order.
#[derive(Clone, Debug, Default)]
pub struct Jet<'a> {
    /// Inputs by name, or by the beginning of their key path. Each gets the derivatives of its
    /// curve, inputs `t1_` + name, `t2_` + name, ….
    pub wrt: &'a [&'a str],
    /// The highest order, at least 1.
    pub order: usize,
}

/// A request for a Jacobian.
#[derive(Clone, Debug, Default)]
pub struct Jacobian<'a> {
    /// The output that is differentiated. May be omitted if there is only one candidate.
    pub of: Option<&'a str>,
    /// Inputs by name, or by the beginning of their key path.
    pub wrt: &'a [&'a str],
    /// Whether the value is an output too, ahead of the derivatives.
    pub value: bool,
    /// Whether it is made by forward mode, column by column. Otherwise by reverse mode, row by
    /// row.
    pub forward: bool,
}

/// A request for second derivatives of a scalar.
#[derive(Clone, Debug, Default)]
pub struct Hessian<'a> {
    /// The output that is differentiated. May be omitted if there is only one candidate.
    pub of: Option<&'a str>,
    /// Inputs by name, or by the beginning of their key path.
    pub wrt: &'a [&'a str],
    /// Whether value and gradient are outputs too, ahead of the second derivatives.
    pub value: bool,
}

/// A derivative with its warnings.
#[derive(Clone, Debug)]
pub struct Derived {
    /// The function.
    pub function: Function,
    /// E.g. that the result does not depend on an input.
    pub warnings: Vec<Diagnostic>,
}

/// A derivative as two functions.
#[derive(Clone, Debug)]
pub struct Halves {
    /// The function itself, with the residuals as its last outputs.
    pub forward: Function,
    /// The derivative, a function of residuals and (co)tangents.
    pub derivative: Function,
    /// The values that the derivative reads of the forward run.
    pub residuals: Residuals,
    /// E.g. that the result does not depend on an input.
    pub warnings: Vec<Diagnostic>,
}

/// The gradient of an output of `@function`, as a function `@function_grad` (`@function_vjp` if
/// seeded).
pub fn grad(program: &Program, function: &str, request: &Grad<'_>) -> Result<Derived> {
    of(program, function, |f| reverse::grad_of(f, request))
}

/// The directional derivative of all float outputs of `@function`, as a function `@function_jvp`.
pub fn jvp(program: &Program, function: &str, request: &Jvp<'_>) -> Result<Derived> {
    of(program, function, |f| forward::jvp_of(f, request))
}

/// The derivatives of all float outputs of `@function` along a curve, as a function
/// `@function_jet` with further outputs `t1_` + output, `t2_` + output and so on. See
/// [`jet`](super::operators::jet).
pub fn jet(program: &Program, function: &str, request: &Jet<'_>) -> Result<Derived> {
    of(program, function, |f| forward::jet_of(f, request))
}

/// The Jacobian of an output of `@function`, as a function `@function_jacfwd` or
/// `@function_jacrev`. Its outputs are named `d_` + input and have the output's axes in front of
/// the input's.
pub fn jacobian(program: &Program, function: &str, request: &Jacobian<'_>) -> Result<Derived> {
    of(program, function, |f| jacobian::jacobian_of(f, request))
}

/// The Hessian of a scalar output of `@function`, as a function `@function_hessian`. For each two
/// inputs x and y there is an output `d_x_d_y` with the axes of x in front of those of y.
pub fn hessian(program: &Program, function: &str, request: &Hessian<'_>) -> Result<Derived> {
    of(program, function, |f| jacobian::hessian_of(f, request))
}

/// The product of a scalar output's Hessian with a tangent, as a function `@function_hvp` with
/// further inputs `t_` + input, and outputs `t_d_` + input.
pub fn hvp(program: &Program, function: &str, request: &Hessian<'_>) -> Result<Derived> {
    of(program, function, |f| jacobian::hvp_of(f, request))
}

/// The transpose of `@function`, which must be linear in the inputs `wrt` together, as a function
/// `@function_transpose` of the other inputs and cotangents `ct_` + output. Its outputs are
/// `ct_` + input.
pub fn transpose(program: &Program, function: &str, wrt: &[&str]) -> Result<Derived> {
    of(program, function, |f| transposed::transpose_of(f, wrt))
}

/// The two halves of a gradient (of [`Grad::of`] with respect to [`Grad::wrt`]; its other fields
/// do not matter). `@function_forward` is the function with residuals as further outputs.
/// `@function_backward` maps residuals and the cotangent `ct_` + output to the gradients `d_` +
/// input.
pub fn split(program: &Program, function: &str, request: &Grad<'_>) -> Result<Halves> {
    of(program, function, |f| split::split_of(f, request))
}

/// `@function` at a point and its derivative there. `@function_forward` is the function with
/// residuals as further outputs. `@function_linear` maps residuals and tangents `t_` + input to
/// the tangents `t_` + output of all float outputs.
pub fn linearize(program: &Program, function: &str, request: &Jvp<'_>) -> Result<Halves> {
    of(program, function, |f| split::linearize_of(f, request))
}

fn of<T>(
    program: &Program,
    function: &str,
    derive: impl FnOnce(&Function) -> Result<T>,
) -> Result<T> {
    let function = program.get(function)?;
    derive(function).map_err(|d| d.context(format!("@{}", function.name)))
}
