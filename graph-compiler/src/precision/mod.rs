//! Mixed precision: a policy, and the pass that applies it to a function in f32.
//!
//! Products, convolutions and attention run on halves with sums in f32. Parameters, states,
//! statistics, losses and the optimiser stay in f32. The pass changes types inside the function
//! only: its inputs and outputs are as before, so parameters in f32 are *master weights*
//! (Micikevicius and others, *Mixed Precision Training*, 2018). A policy may also give parameters
//! and results another dtype: see [below](#parameters-and-results).
//!
//! # The rule
//!
//! The policy decides which values are *rounded* to halves. Arithmetic stays in f32. Every value in
//! f32 has one of three [kinds](flow::Kind):
//!
//! | kind | which | memory |
//! |---|---|---|
//! | leaf | an input, a constant, or a function of these | f32, converted for its readers |
//! | half | a product, and what is made of halves element by element | half |
//! | wide | a sum over an axis, a statistic, a state, and what is made of these | f32 |
//!
//! An elementwise op of halves gives a half; with a wide operand it gives a wide value. An addition
//! of tensors gives a half, even of wide ones: it joins a branch to its stream, or ends the
//! derivative of a norm. A repeated wide operand, such as a mean, is no such tensor. `class.rs` has
//! the table of ops.
//!
//! One walk against the order of the equations finds what each value is for
//! ([`uses`](flow::uses)):
//!
//! - A value on which no later product depends is not rounded: that would cost accuracy and save
//!   little. Examples are logits that are returned, and gradients, which only the optimiser reads.
//! - A value that becomes a state is not rounded. A small update would be lost.
//!
//! A half whose readers are elementwise, and end in one value or sum, is not rounded, because a
//! kernel has it in a register. It is rounded at the end. Sums of a product, a bias and a residual
//! are emitted in halves, in the form for which [`round_once`](crate::rewrite) has one rounding.
//!
//! Numbers such as the factor of a dropout stay exact, and so do the targets of a loss: a half is
//! converted to f32 before it meets them.
//!
//! # Order
//!
//! The pass runs on finished functions, after differentiation: a derivative is a function like
//! every other, and a file that holds a finished training step can be given a policy as well.
//! Calls, checkpoints and rules of users are inlined first.
//!
//! Regions of loops and branches are treated like functions: their inputs and outputs stay in f32.
//!
//! # Parameters and results
//!
//! A policy has three [dtypes](Dtypes): of parameters, of products and of results. The last two are
//! for the functions that the policy is for. The first one is for a variable, which all functions
//! of a program share, and the functions that create it. So a program in which another function
//! takes such a variable is an error.
//!
//! A parameter that is stored in the dtype of products is a half and a leaf: products read it as it
//! is, movements move it as it is, and every other reader converts it. A parameter in another dtype
//! is converted to f32 once. Arithmetic does not change: the next value of a state is computed in
//! f32 and rounded at the end, and so is a result.
//!
//! Cost: two walks over the equations.

mod class;
mod flow;
mod interface;
mod policy;
mod rewrite;

pub use policy::{Dtypes, Precision};

use crate::calls::inline_wrappers;
use crate::rewrite::tidy;
use class::{Class, class};
use std::collections::BTreeSet;
use wengert_core::graph::{Body, Function, InputRole, Program, verify};
use wengert_core::{DType, Diagnostic, Result};

/// A function before and after a policy.
pub(crate) struct Traced {
    /// The function whose equations are counted: see [`Precision::keep_equation`].
    pub before: Function,
    /// The function under the policy. Equal equations have not been merged.
    pub after: Function,
    /// For each equation of `after` the number of the one of `before` for which it was made.
    pub origins: Vec<usize>,
}

impl Precision {
    /// The program with each function under this policy. Functions that take nothing but keys make
    /// the initial values of variables. They stay as they are, except that they create parameters
    /// in the [dtype](Self::param_dtype) of the policy.
    ///
    /// # Errors
    /// As for [`apply`](Self::apply) and [`for_program`](Self::for_program); the program has no
    /// function of which an equation is kept; the policy changes nothing, since no function that it
    /// is for has a product, convolution or attention of f32, and it gives no parameter and no
    /// result a dtype.
    pub fn apply_to_program(&self, program: &Program) -> Result<Program> {
        let policy = self.for_program(program)?;
        policy.changes(program)?;
        let mut changed = program.clone();
        for function in program.functions() {
            if !is_initializer(function) {
                changed.replace(policy.apply(function)?);
            } else if let Some(stored) = policy.stored_only(function)? {
                changed.replace(stored);
            }
        }
        Ok(changed)
    }

    /// The function under this policy. Inputs and outputs have the types that they had, except for
    /// parameters and results to which the policy gives a dtype. A function that the policy is
    /// [not for](Self::only_function) stays as it is.
    ///
    /// The function's parameters are the variables that it takes as such, or those of
    /// [`param_path`](Self::param_path). [`for_program`](Self::for_program) finds those of a
    /// program.
    ///
    /// # Errors
    /// A region of the function cannot be inlined; it has no equation of a number that is kept.
    ///
    /// # Panics
    /// If the pass breaks an invariant of the graph.
    pub fn apply(&self, function: &Function) -> Result<Function> {
        if !self.is_for(&function.name) {
            return Ok(self.stored_only(function)?.unwrap_or_else(|| function.clone()));
        }
        Ok(finished(self.apply_traced(function)?))
    }

    /// The function with its parameters in their dtype, and nothing else. `None` if none of them
    /// has another one.
    fn stored_only(&self, function: &Function) -> Result<Option<Function>> {
        let only = self.params_only();
        if self.dtypes().param_dtype == DType::F32 || !only.has_params(function) {
            return Ok(None);
        }
        Ok(Some(finished(only.apply_traced(function)?)))
    }

    /// [`apply`](Self::apply) with the origins of the equations, to a function that the policy is
    /// for.
    pub(crate) fn apply_traced(&self, function: &Function) -> Result<Traced> {
        let before = counted(function)?;
        let none = BTreeSet::new();
        let kept = self.equations.get(&function.name).unwrap_or(&none);
        let count = before.body.equations.len();
        if let Some(number) = kept.iter().find(|number| **number >= count) {
            return Err(Diagnostic::new(format!("@{} has no equation {number}", function.name))
                .help(format!(
                    "its {count} equations count from 0; `graphrun precision --within` finds \
                     those to keep"
                )));
        }
        let (inputs, outputs) = self.ports(&before);
        let (body, origins) = rewrite::body(self, &before.body, &inputs, &outputs, kept);
        let after = Function { body, ..before.clone() };
        Ok(Traced { before, after, origins })
    }

    /// An error if the policy changes no function of the program.
    fn changes(&self, program: &Program) -> Result<()> {
        let functions = || program.functions().iter().filter(|f| self.is_for(&f.name));
        let has_products = functions().any(|function| has_product(&function.body));
        let has_results =
            functions().any(|function| !is_initializer(function) && self.has_results(function));
        let has_params = program.functions().iter().any(|function| self.has_params(function));
        if self.computes_in_halves() && has_products || has_results || has_params {
            return Ok(());
        }
        Err(Diagnostic::new("a policy of precision changes nothing in this program").help(
            match self.dtypes() {
                dtypes if dtypes == Dtypes::default() => "all of its dtypes are f32",
                dtypes if dtypes.output_dtype != DType::F32 => "no function has a result of f32",
                _ => "no function has a product, a convolution or attention of f32",
            },
        ))
    }
}

/// The function after the pass, tidied and verified.
fn finished(traced: Traced) -> Function {
    let function = tidy(traced.after.renumber());
    if let Err(fault) = verify(&function) {
        panic!("the precision pass breaks an invariant of the graph: {fault}");
    }
    function
}

/// The function with everything inlined that a policy inlines.
fn counted(function: &Function) -> Result<Function> {
    Ok(tidy(inline_wrappers(function)?))
}

/// Whether a function takes nothing but keys: it makes the initial values of variables.
fn is_initializer(function: &Function) -> bool {
    function.inputs.iter().all(|input| input.role == InputRole::Key)
}

/// Whether a body or one of its regions has an op of f32 that may take halves.
fn has_product(body: &Body) -> bool {
    body.equations.iter().any(|equation| {
        let is_f32 = equation.operands.first().is_some_and(|v| body.ty(*v).dtype == DType::F32);
        (class(&equation.op) == Class::Product && is_f32)
            || equation.regions.iter().any(|region| has_product(region))
    })
}
