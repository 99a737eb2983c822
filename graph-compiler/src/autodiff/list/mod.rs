//! Wengert lists as values: traced Rust closures.
//!
//! [`trace`] runs a closure once, on symbolic tensors, and records its operations line by line: a
//! list in the sense of Wengert (1964), v₁ = mul x, x and so on. Rust control flow is not
//! recorded: a loop over a known number of rounds is unrolled, and an `if` on a Rust value is
//! replaced by the taken branch. The list is a value that can be
//!
//! - printed, one operation a line, with types and source lines;
//! - evaluated on numbers, by the graph interpreter ([`WengertList::evaluate`]);
//! - called on other tensors, in a function being built, in another list, or eagerly
//!   ([`WengertList::call`]): lists nest;
//! - differentiated ([`grad`](WengertList::grad), [`vjp`](WengertList::vjp),
//!   [`jvp`](WengertList::jvp)), which gives a list again, so to any order;
//! - called by name ([`named`](WengertList::named)): the caller then holds a call, and every
//!   derivative of the list is made once;
//! - turned into a function of a program ([`WengertList::function`]), and so compiled, saved and
//!   run as any other.
//!
//! The argument and the result may be any `Differentiable` values. A closure may use tensors of
//! the function in which it is traced. These are *captured*: they are the list's environment, and
//! the list can then only be called there. A list is thus a closure as a value, and is
//! differentiable with respect to its environment ([`value`]). It can be a field of a model, be
//! returned, be partially applied, or be chosen at run time.
//!
//! ```
//! use wengert_compiler::autodiff::list::trace;
//! use wengert_core::Tensor;
//! # fn main() -> wengert_core::Result<()> {
//! let cube = trace(&Tensor::constant(0.0f64), |x| (1..3).fold(x.clone(), |y, _| y * x))?;
//! assert_eq!(cube.len(), 2);
//! let dcube = cube.grad()?;
//! assert_eq!(dcube.evaluate(&Tensor::constant(5.0f64))?.item()?, 75.0);
//! # Ok(())
//! # }
//! ```

mod named;
pub(super) mod print;
mod value;

use super::values::{enter_scope_of, leaves, poison, with_tensors};
use super::{Activity, operators, unpoisoned};
use wengert_core::build::inline;
use wengert_core::build::{Closure, Scope};
use wengert_core::graph::{Body, Function, Input, InputRole, Output, OutputRole, Region, verify};
use wengert_core::interpret::{self, Array};
use wengert_core::op::FunctionName;
use wengert_core::{
    Diagnostic, Differentiable, Initializer, KeyPath, Literal, Location, LocationId, LocationTable,
    Mesh, Result, Tensor,
};

/// A closure from `I` to `O` as a list of operations. See the [module](self).
pub struct WengertList<I, O> {
    /// The argument's structure; its tensors have the types of the inputs and no values.
    input: I,
    /// The result's structure, likewise.
    output: O,
    body: Region,
    /// Values of the function in which the list was traced; the last inputs of the body.
    captures: Vec<Tensor>,
    locations: LocationTable,
    /// The function name, if the list is called by name.
    name: Option<FunctionName>,
}

/// Runs `f` on symbolic tensors of the types of those in `like`, whose values do not matter, and
/// returns its operations as a list.
///
/// Errors: those of the operations; a tensor of a function that is not being built here; a
/// request for the value of a traced tensor (`item`).
#[track_caller]
pub fn trace<I: Differentiable, O: Differentiable>(
    like: &I,
    f: impl FnOnce(&I) -> O,
) -> Result<WengertList<I, O>> {
    let caller = Location::caller();
    let scope = match Scope::current() {
        Some(scope) => scope.child(),
        None => Scope::new(LocationTable::default()),
    };
    let mut inputs = Vec::new();
    for (path, tensor) in like.tensors() {
        unpoisoned([&tensor]).map_err(|e| e.context(format!("the argument at `{path}`")))?;
        inputs.push(scope.input_at(tensor.ty().clone(), caller.clone()));
    }
    let output = scope.guarded(|| f(&with_tensors(like, &inputs)))?;
    let outputs: Vec<Tensor> = leaves(&output);
    unpoisoned(&outputs)?;
    let closure = scope.close(&outputs)?;
    Ok(WengertList::of_closure(like, &output, closure, scope.locations()))
}

/// The same structure, with tensors that have types only.
fn without_values<T: Differentiable>(value: &T) -> T {
    let of = |t: &Tensor| {
        let made = t.defined_at().unwrap_or_default();
        made.attribute(|| Tensor::variable(t.ty().clone(), Initializer::Zeros))
    };
    value.map_tensors(&KeyPath::default(), &mut |_, t| of(t))
}

impl<I: Differentiable, O: Differentiable> WengertList<I, O> {
    /// The list of a closure's body; `input` and `output` give the structure of argument and
    /// result.
    pub(super) fn of_closure(
        input: &I,
        output: &O,
        closure: Closure,
        locations: LocationTable,
    ) -> Self {
        let Closure { body, captures } = closure;
        WengertList {
            input: without_values(input),
            output: without_values(output),
            body: body.into(),
            captures,
            locations,
            name: None,
        }
    }

    /// The structure of an argument; its tensors have types and no values.
    pub fn input(&self) -> &I {
        &self.input
    }

    /// The structure of a result.
    pub fn output(&self) -> &O {
        &self.output
    }

    /// The operations. Inputs are the argument's tensors, then the captures.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// The number of operations, not counting constants.
    pub fn len(&self) -> usize {
        self.body.equations.iter().filter(|e| !print::is_number(e)).count()
    }

    /// Whether the list has no operations, not counting constants.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The result for tensors of the function that is being built, of a list that is being
    /// traced, or with values. The operations are emitted there. On an error the result is
    /// poisoned.
    #[track_caller]
    pub fn call(&self, at: &I) -> O {
        let caller = Location::caller();
        let _entered = enter_scope_of(at).or_else(|| enter_scope_of(&self.captures));
        let result = self.operands(at).and_then(|mut operands| {
            let scope = Scope::current().ok_or_else(|| {
                Diagnostic::new(
                    "a list is called, and there is no function to put its operations in",
                )
                .help(
                    "`evaluate` it on numbers, or call it inside a function, a list or a tracked \
                     computation",
                )
            })?;
            operands.extend(self.captures.iter().cloned());
            match &self.name {
                Some(name) => self.call_by_name(&scope, name, &operands, caller.clone()),
                None => {
                    let body = scope.adopt(&self.body, &self.locations);
                    scope.enter(|| inline(&body, &operands))
                }
            }
        });
        match result {
            Ok(outputs) => with_tensors(&self.output, &outputs),
            Err(error) => {
                let poison = poison(&error.at(caller, "called here"));
                with_tensors(&self.output, &vec![poison; self.body.outputs.len()])
            }
        }
    }

    /// The result for numbers: constants, and tensors with values. The graph interpreter computes
    /// it; the result's tensors are constants.
    #[track_caller]
    pub fn evaluate(&self, at: &I) -> Result<O> {
        let caller = Location::caller();
        let given = self.numbers(at).map_err(|e| e.at(caller, "evaluated here"))?;
        let mut arrays =
            given.iter().map(Array::from_literal).collect::<Result<Vec<Array<f64>>>>()?;
        for captured in &self.captures {
            arrays.push(Array::from_literal(&captured.value()?)?);
        }
        let results = interpret::evaluate(&self.body, &self.locations, &arrays)?;
        let results = results.iter().map(Array::to_literal).collect::<Result<Vec<_>>>()?;
        Ok(self.result(results))
    }

    /// The values of an argument, tensor by tensor.
    ///
    /// Errors: a tensor has no value, or another type than that of the trace.
    pub fn numbers(&self, at: &I) -> Result<Vec<Literal>> {
        self.operands(at)?.iter().map(Tensor::value).collect()
    }

    /// A result with these values, one for each output.
    pub fn result(&self, numbers: impl IntoIterator<Item = Literal>) -> O {
        let tensors: Vec<Tensor> = numbers.into_iter().map(Tensor::constant).collect();
        assert_eq!(tensors.len(), self.body.outputs.len(), "a list has one number for each output");
        with_tensors(&self.output, &tensors)
    }

    /// The tensors of an argument, which must have the types of the list's inputs.
    fn operands(&self, at: &I) -> Result<Vec<Tensor>> {
        let (mine, given) = (self.input.tensors(), at.tensors());
        if mine.len() != given.len() {
            return Err(Diagnostic::new(format!(
                "the argument has {} tensors, the list was traced on one of {}",
                given.len(),
                mine.len()
            )));
        }
        for ((path, mine), (_, given)) in mine.iter().zip(&given) {
            unpoisoned([given])?;
            if mine.ty() != given.ty() {
                return Err(Diagnostic::new(format!(
                    "the argument{} has type {}, the list was traced on {}",
                    if path.as_str().is_empty() { String::new() } else { format!(" at `{path}`") },
                    given.ty(),
                    mine.ty()
                ))
                .help("trace the closure again for other types"));
            }
        }
        Ok(given.into_iter().map(|(_, t)| t).collect())
    }

    /// The list as a function of that name. Inputs are `x` and outputs `y`, followed by the key
    /// path of the tensor in the argument or result.
    ///
    /// Error: the list has captured values of another function.
    pub fn function(&self, name: &str) -> Result<Function> {
        if let Some(captured) = self.captures.first() {
            let error = Diagnostic::new(format!(
                "a list that uses {} values of the function it was traced in is no function of its \
                 own",
                self.captures.len()
            ));
            let at = captured.defined_at().unwrap_or_default();
            return Err(error
                .at(at, "one of them is made here")
                .help("pass them in with the argument"));
        }
        let input = |name| Input { name, role: InputRole::Input, location: LocationId(0) };
        let output = |name| Output { name, role: OutputRole::Output };
        let function = Function {
            name: name.into(),
            mesh: Mesh::default(),
            inputs: paths("x", &self.input).into_iter().map(input).collect(),
            outputs: paths("y", &self.output).into_iter().map(output).collect(),
            body: self.body.to_body(),
            locations: self.locations.clone(),
        };
        verify(&function)?;
        Ok(function)
    }

    /// The list of the directional derivative: (argument, its tangent) ↦ (result, its tangent).
    #[track_caller]
    pub fn jvp(&self) -> Result<Derivative<I, O>> {
        let pair = (copy(&self.input), tangent_like(&self.input)?);
        derived(trace(&pair, |(x, t)| operators::jvp(x, t, |x| self.call(x)))?)
    }

    /// The list of the pullback: (argument, cotangent of the result) ↦ (result, cotangent of the
    /// argument).
    #[track_caller]
    pub fn vjp(&self) -> Result<Adjoint<I, O>> {
        let pair = (copy(&self.input), tangent_like(&self.output)?);
        derived(trace(&pair, |(x, cotangent)| {
            let (y, pullback) = operators::vjp(x, |x| self.call(x));
            (y, pullback(cotangent))
        })?)
    }
}

impl<I: Differentiable> WengertList<I, Tensor> {
    /// The list of the gradient of its scalar result.
    ///
    /// Error: the result is not a float scalar.
    #[track_caller]
    pub fn grad(&self) -> Result<WengertList<I, I::TangentVector>> {
        derived(trace(&self.input, |x| operators::grad(x, |x| self.call(x)))?)
    }

    /// The list of the result and its gradient.
    #[track_caller]
    pub fn value_and_grad(&self) -> Result<WengertList<I, (Tensor, I::TangentVector)>> {
        derived(trace(&self.input, |x| operators::value_and_grad(x, |x| self.call(x)))?)
    }
}

/// The list of a directional derivative: (argument, tangent) ↦ (result, tangent).
pub type Derivative<I, O> = WengertList<
    (I, <I as Differentiable>::TangentVector),
    (O, <O as Differentiable>::TangentVector),
>;

/// The list of a pullback: (argument, cotangent of the result) ↦ (result, cotangent of the
/// argument).
pub type Adjoint<I, O> = WengertList<
    (I, <O as Differentiable>::TangentVector),
    (O, <I as Differentiable>::TangentVector),
>;

/// The list without dead operations, such as those of a function's value when only the gradient
/// is returned.
fn derived<I, O>(mut list: WengertList<I, O>) -> Result<WengertList<I, O>> {
    let live = Activity::prune(&mut list.body);
    // Captures that are no longer live are removed.
    let own = list.body.inputs.len() - list.captures.len();
    let needed: Vec<bool> = list.body.inputs[own..].iter().map(|v| live[*v]).collect();
    let mut kept = needed.iter().copied();
    list.captures.retain(|_| kept.next() == Some(true));
    let mut kept = std::iter::repeat_n(true, own).chain(needed);
    list.body.inputs.retain(|_| kept.next() == Some(true));
    list.body = std::mem::take(&mut list.body).into_body().renumber().into();
    Ok(list)
}

fn copy<T: Differentiable>(value: &T) -> T {
    value.map_tensors(&KeyPath::default(), &mut |_, t| t.clone())
}

/// The structure of a tangent vector of `value`.
fn tangent_like<T: Differentiable>(value: &T) -> Result<T::TangentVector> {
    let scope = Scope::new(LocationTable::default());
    let types = value.tensors().into_iter();
    let inputs: Vec<Tensor> =
        types.map(|(_, t)| scope.input_at(t.ty().clone(), Location::Unknown)).collect();
    let zero = scope.enter(|| with_tensors(value, &inputs).zero_tangent());
    unpoisoned(&leaves(&zero))?;
    Ok(without_values(&zero))
}

/// Key paths of the tensors below `root`.
fn paths(root: &str, value: &impl Differentiable) -> Vec<String> {
    let mut paths = Vec::new();
    value.visit_tensors(&KeyPath::root(root), &mut |path, _| paths.push(path.to_string()));
    paths
}

impl<I: Differentiable, O: Differentiable> Clone for WengertList<I, O> {
    fn clone(&self) -> Self {
        WengertList {
            input: copy(&self.input),
            output: copy(&self.output),
            body: self.body.clone(),
            captures: self.captures.clone(),
            locations: self.locations.clone(),
            name: self.name.clone(),
        }
    }
}

impl<I: Differentiable, O: Differentiable> std::fmt::Display for WengertList<I, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut inputs = paths("x", &self.input);
        inputs.extend((0..self.captures.len()).map(|i| format!("c{i}")));
        let text = print::Text {
            body: &self.body,
            inputs,
            outputs: paths("y", &self.output),
            values: None,
        };
        f.write_str(&text.print(&self.locations))
    }
}

impl<I: Differentiable, O: Differentiable> std::fmt::Debug for WengertList<I, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
