//! Mixed precision: a policy, and the pass that applies it to a function in f32.
//!
//! Products, convolutions and attention run on halves with sums in f32. Parameters, states,
//! statistics, losses and the optimiser stay in f32. The pass changes types inside the function
//! only: its inputs and outputs are as before, so parameters in f32 are *master weights*
//! (Micikevicius and others, *Mixed Precision Training*, 2018).
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
//! Cost: two walks over the equations.

mod class;
mod flow;
mod rewrite;

use crate::calls::inline_wrappers;
use crate::rewrite::tidy;
use class::{Class, class};
use flow::Port;
use glob::Pattern;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use wengert_core::graph::{Body, Function, InputRole, OutputRole, Program, verify};
use wengert_core::{DType, Diagnostic, Op, Result};

/// A policy of mixed precision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Precision {
    half: DType,
    /// Names of ops that stay in f32.
    wide: BTreeSet<String>,
    /// Key paths of variables, products with which stay in f32.
    paths: Vec<Pattern>,
    /// For functions by name, numbers of equations that stay in f32.
    equations: BTreeMap<String, BTreeSet<usize>>,
}

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
    /// Products in bf16. It has the range of f32, so gradients need no scaling.
    pub fn bf16() -> Self {
        Precision {
            half: DType::BF16,
            wide: BTreeSet::new(),
            paths: vec![],
            equations: BTreeMap::new(),
        }
    }

    /// Products in f16. It has three more bits than bf16 and a smaller range: numbers above 65504
    /// are infinite, and those below 6·10⁻⁸ are 0. A training step scales its loss, as
    /// `wengert::optim::LossScale` does.
    pub fn f16() -> Self {
        Precision { half: DType::F16, ..Precision::bf16() }
    }

    /// The dtype of products.
    pub fn half(&self) -> DType {
        self.half
    }

    /// Names of the ops that stay in f32, in order.
    pub fn kept_ops(&self) -> impl Iterator<Item = &str> {
        self.wide.iter().map(String::as_str)
    }

    /// Patterns of the key paths of variables whose products stay in f32, as they were given.
    pub fn kept_paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(Pattern::as_str)
    }

    /// Functions and numbers of the equations that stay in f32, in order.
    pub fn kept_equations(&self) -> impl Iterator<Item = (&str, usize)> {
        self.equations
            .iter()
            .flat_map(|(name, numbers)| numbers.iter().map(move |number| (name.as_str(), *number)))
    }

    /// The policy of that name, as the option `--precision` takes it.
    ///
    /// # Errors
    /// There is no such policy.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "bf16" => Ok(Precision::bf16()),
            "f16" => Ok(Precision::f16()),
            _ => Err(Diagnostic::new(format!("there is no precision `{name}`")).help(
                "there are bf16 and f16: products in halves with sums in f32; without one, all is \
                 f32",
            )),
        }
    }

    /// Keeps all ops of a name in f32, such as `dot_general` or `softmax`.
    ///
    /// # Errors
    /// There is no op of that name.
    pub fn keep_op(mut self, name: &str) -> Result<Self> {
        if !Op::catalogue().iter().any(|entry| entry.name == name) {
            return Err(Diagnostic::new(format!("there is no op `{name}`"))
                .help("`graphrun ops` lists the ops"));
        }
        self.wide.insert(name.into());
        Ok(self)
    }

    /// Keeps products with some variables in f32, and so those that compute their gradients. Key
    /// paths are matched with `*`, `?` and `[…]`, as in `model.h.*.mlp.*`; `*` matches dots, too. A
    /// loop that reads such a variable stays in f32.
    ///
    /// # Errors
    /// The text is no pattern.
    pub fn keep_path(mut self, pattern: &str) -> Result<Self> {
        let parsed = Pattern::new(pattern).map_err(|error| {
            Diagnostic::new(format!("`{pattern}` is no pattern of key paths: {}", error.msg))
                .help("a pattern is a path with *, ? and [abc], such as `model.head.*`")
        })?;
        self.paths.push(parsed);
        Ok(self)
    }

    /// Keeps one equation of a function in f32. What is made of its result element by element stays
    /// in f32, too.
    ///
    /// `number` counts the equations from 0, after checkpoints, calls and the rules of users have
    /// been inlined and equal equations merged. `graphrun precision --within` finds such numbers.
    #[must_use]
    pub fn keep_equation(mut self, function: &str, number: usize) -> Self {
        self.equations.entry(function.to_owned()).or_default().insert(number);
        self
    }

    /// The class of an op under this policy.
    fn class(&self, op: &Op) -> Class {
        if self.wide.contains(op.name()) { Class::Wide } else { class(op) }
    }

    /// The program with each function under this policy. Functions that take nothing but keys stay
    /// as they are: they make the initial values of variables.
    ///
    /// # Errors
    /// As for [`apply`](Self::apply); a pattern matches no variable of the program; it has no
    /// function of which an equation is kept; it has no product, convolution or attention of f32.
    pub fn apply_to_program(&self, program: &Program) -> Result<Program> {
        let names: Vec<&str> = program.functions().iter().map(|f| f.name.as_str()).collect();
        if let Some(name) = self.equations.keys().find(|name| !names.contains(&name.as_str())) {
            let known: Vec<String> = names.iter().map(|name| format!("@{name}")).collect();
            return Err(Diagnostic::new(format!("there is no function `@{name}`"))
                .help(format!("functions of the program are {}", known.join(", "))));
        }
        let ports = program.functions().iter().flat_map(|f| &f.inputs);
        let variables: BTreeSet<&str> =
            ports.filter(|port| is_variable(port.role)).map(|port| port.name.as_str()).collect();
        if let Some(pattern) =
            self.paths.iter().find(|pattern| !variables.iter().any(|path| pattern.matches(path)))
        {
            let few: Vec<String> = variables.iter().take(5).map(|p| format!("`{p}`")).collect();
            return Err(Diagnostic::new(format!("no variable matches `{pattern}`")).help(
                match few.is_empty() {
                    true => "the program has no variables".into(),
                    false => format!("variables of the program are {}", few.join(", ")),
                },
            ));
        }
        if !program.functions().iter().any(|function| has_product(&function.body)) {
            return Err(Diagnostic::new("a policy of precision changes nothing in this program")
                .help("no function has a product, a convolution or attention of f32"));
        }
        let mut changed = program.clone();
        for function in program.functions() {
            if function.inputs.iter().any(|input| input.role != InputRole::Key) {
                changed.replace(self.apply(function)?);
            }
        }
        Ok(changed)
    }

    /// The function under this policy. Inputs and outputs have the types that they had.
    ///
    /// # Errors
    /// A region of the function cannot be inlined; it has no equation of a number that is kept.
    ///
    /// # Panics
    /// If the pass breaks an invariant of the graph.
    pub fn apply(&self, function: &Function) -> Result<Function> {
        let function = tidy(self.apply_traced(function)?.after.renumber());
        if let Err(fault) = verify(&function) {
            panic!("the precision pass breaks an invariant of the graph: {fault}");
        }
        Ok(function)
    }

    /// [`apply`](Self::apply) with the origins of the equations.
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
        let port = |name: &str, is_variable: bool| Port {
            is_variable,
            is_kept: is_variable && self.paths.iter().any(|pattern| pattern.matches(name)),
        };
        let inputs: Vec<Port> =
            before.inputs.iter().map(|input| port(&input.name, is_variable(input.role))).collect();
        let outputs: Vec<Port> = before
            .outputs
            .iter()
            .map(|output| port(&output.name, output.role == OutputRole::State))
            .collect();
        let (body, origins) = rewrite::body(self, &before.body, &inputs, &outputs, kept);
        let after = Function { body, ..before.clone() };
        Ok(Traced { before, after, origins })
    }
}

impl fmt::Display for Precision {
    /// The dtype of products, and what stays in f32: `bf16, in f32: softmax, head.*, step:12`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let equations = self.kept_equations().map(|(name, number)| format!("{name}:{number}"));
        let named = self.kept_ops().chain(self.kept_paths()).map(str::to_owned);
        let kept: Vec<String> = named.chain(equations).collect();
        write!(f, "{}", self.half)?;
        if kept.is_empty() { Ok(()) } else { write!(f, ", in f32: {}", kept.join(", ")) }
    }
}

/// The function with everything inlined that a policy inlines.
fn counted(function: &Function) -> Result<Function> {
    Ok(tidy(inline_wrappers(function)?))
}

/// Whether a body or one of its regions has an op of f32 that may take halves.
fn has_product(body: &Body) -> bool {
    body.equations.iter().any(|equation| {
        let is_f32 = equation.operands.first().is_some_and(|v| body.ty(*v).dtype == DType::F32);
        (class(&equation.op) == Class::Product && is_f32)
            || equation.regions.iter().any(|region| has_product(region))
    })
}

fn is_variable(role: InputRole) -> bool {
    matches!(role, InputRole::Param | InputRole::State)
}
