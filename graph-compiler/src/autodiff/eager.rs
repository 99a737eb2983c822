//! Define by run: values are computed at once, and differentiated through the recorded
//! operations.
//!
//! A [`Tracked`] value holds tensors that have values. Each operation on them is evaluated
//! immediately and recorded: a Wengert list grows as the program runs, with the value of each
//! line beside it. So a program may look at a value
//! ([`Tensor::item`](wengert_core::Tensor::item)) and decide with Rust's own `if` and `while` how
//! to go on. [`gradient`] walks the list backwards from a result.
//!
//! There is no second set of operations: the tensors are those of the builder, in a scope that
//! evaluates each equation as it is emitted
//! ([`Scope::eager`](wengert_core::build::Scope::eager)). Hence layers, losses, lists, and
//! operators on closures such as `grad` work as in a static graph, and an equation has the value
//! that the graph interpreter would give it, bit for bit. The closure of a nested `grad` is also
//! run on values, so it may look at them.
//!
//! Derivatives are emitted into the same list, computed at once, and can be differentiated again.
//! The value is not recomputed for them. A gradient has the bits of the static graph's, if the
//! program does not branch on values. The gradient of such a gradient may add in another order,
//! since equations that it shares with the value stand earlier in the list. Nested `grad` on
//! closures adds as a static graph does.
//!
//! ```
//! use wengert_compiler::autodiff::eager::Tracked;
//! use wengert_core::Tensor;
//! # fn main() -> wengert_core::Result<()> {
//! let x = Tracked::new(&Tensor::constant(3.0f64));
//! let mut y = x.clone();
//! while y.item()? < 100.0 {
//!     y = y * &*x; // x, x², x³, …: how often is seen as it runs
//! }
//! assert_eq!(y.item()?, 243.0);
//! assert_eq!(x.gradient(&y).item()?, 5.0 * 81.0);
//! assert_eq!(x.gradient(&x.gradient(&y)).item()?, 20.0 * 27.0);
//! # Ok(())
//! # }
//! ```

use super::list::{WengertList, print};
use super::values::{components_of, enter_scope_of, leaves, poison, tangent_of};
use super::{Linearized, linearize, unpoisoned};
use std::fmt;
use std::ops::Deref;
use wengert_core::build::Scope;
use wengert_core::{
    Diagnostic, Differentiable, KeyPath, Literal, Location, Result, Scalar, Tensor,
};

/// A value whose tensors have values and are the inputs of a list. It is used like the value
/// itself (`Deref`).
pub struct Tracked<M = Tensor> {
    value: M,
    scope: Scope,
}

impl<M: Differentiable> Tracked<M> {
    /// Begins a list. The tensors of `value` must be constants, or have values. Tensors of
    /// another list are cut off from it.
    ///
    /// If a tensor has no value, all are poisoned with the error.
    #[track_caller]
    pub fn new(value: &M) -> Self {
        Tracked::within(&Scope::eager(), value)
    }

    /// Another value as an input of the same list. Results computed from both can be
    /// differentiated with respect to either.
    #[track_caller]
    pub fn beside<N: Differentiable>(&self, value: &N) -> Tracked<N> {
        Tracked::within(&self.scope, value)
    }

    #[track_caller]
    fn within(scope: &Scope, value: &M) -> Self {
        let caller = Location::caller();
        let value = value.map_tensors(&KeyPath::default(), &mut |path, t| match t.value() {
            Ok(literal) => scope.input_with_value(&literal, caller.clone()),
            Err(error) => {
                let what = if path.as_str().is_empty() {
                    "tracked here".into()
                } else {
                    format!("`{path}` is tracked here")
                };
                let error = error.at(caller.clone(), what);
                scope.fail(&error);
                Tensor::poisoned(error)
            }
        });
        Tracked { value, scope: scope.clone() }
    }

    /// Runs `f` with this list as the scope for operations without operands, such as
    /// `Tensor::iota`.
    pub fn run<T>(&self, f: impl FnOnce(&M) -> T) -> T {
        self.scope.enter(|| f(&self.value))
    }

    /// The gradient of a scalar that was computed from this value. See [`gradient`].
    #[track_caller]
    pub fn gradient(&self, of: &Tensor) -> M::TangentVector {
        gradient(of, &self.value)
    }

    /// The list of the operations that lead from this value to `result`.
    ///
    /// Other tensors that `result` depends on are captured.
    pub fn list<O: Differentiable>(&self, result: &O) -> Result<WengertList<M, O>> {
        let outputs: Vec<Tensor> = leaves(result);
        let inputs: Vec<Tensor> = leaves(&self.value);
        let scope = innermost(&self.scope, &outputs)?;
        let closure = scope.between(&inputs, &outputs)?;
        Ok(WengertList::of_closure(&self.value, result, closure, scope.locations()))
    }
}

/// The gradient of a scalar with respect to the tensors of `at`, from which it was computed.
/// These may be inputs or intermediate values of a list. No value is recomputed. The gradient is
/// computed at once, and recorded.
///
/// Errors, as poison: `of` is not a float scalar, has no value, or belongs to another list.
#[track_caller]
pub fn gradient<M: Differentiable>(of: &Tensor, at: &M) -> M::TangentVector {
    let caller = Location::caller();
    if of.error().is_none() && (of.rank() != 0 || !of.dtype().is_float()) {
        let error =
            Diagnostic::new(format!("a gradient needs a scalar of floats; this is {}", of.ty()))
                .help("reduce it with `.sum()`, or use `pull_back` and give it a cotangent");
        return poisoned_tangent(at, error.at(caller, "differentiated here"));
    }
    let one = Tensor::constant(Literal::full(&[], Scalar::one(of.dtype())));
    pull_back_at(of, &one, at, caller)
}

/// The cotangent of `at` for a cotangent of a result that was computed from it.
#[track_caller]
pub fn pull_back<M: Differentiable, O: Differentiable>(
    of: &O,
    cotangent: &O::TangentVector,
    at: &M,
) -> M::TangentVector {
    pull_back_at(of, cotangent, at, Location::caller())
}

fn pull_back_at<M: Differentiable, O: Differentiable>(
    of: &O,
    cotangent: &O::TangentVector,
    at: &M,
    caller: Location,
) -> M::TangentVector {
    let _entered = enter_scope_of(of).or_else(|| enter_scope_of(at));
    let _user = caller.attributed();
    let cotangents: Vec<Option<Tensor>> = components_of(of, cotangent);
    let result = replayed(of, at).and_then(|linearized| linearized.linear.transpose(&cotangents));
    match result {
        Ok(cotangents) => tangent_of(at, &cotangents),
        Err(error) => poisoned_tangent(at, error.at(caller, "differentiated here")),
    }
}

/// The tangent of a result along a tangent of `at`, from which it was computed.
#[track_caller]
pub fn push_forward<M: Differentiable, O: Differentiable>(
    of: &O,
    at: &M,
    tangent: &M::TangentVector,
) -> O::TangentVector {
    let caller = Location::caller();
    let _entered = enter_scope_of(of).or_else(|| enter_scope_of(at));
    let _user = caller.attributed();
    let tangents = components_of(at, tangent);
    match replayed(of, at).and_then(|linearized| linearized.linear.apply(&tangents)) {
        Ok(tangents) => tangent_of(of, &tangents),
        Err(error) => poisoned_tangent(of, error.at(caller, "differentiated here")),
    }
}

/// The derivative of `of` with respect to `at`. Replays the operations between them, whose values
/// are known.
fn replayed<M: Differentiable, O: Differentiable>(of: &O, at: &M) -> Result<Linearized> {
    let (inputs, outputs) = (leaves(at), leaves(of));
    unpoisoned(inputs.iter().chain(&outputs))?;
    let scope = inputs.iter().find_map(Tensor::scope).ok_or_else(|| {
        Diagnostic::new("a value without tensors in a list has no derivative")
            .help("begin with `Tracked::new`, and differentiate by what it holds")
    })?;
    let scope = innermost(scope, &outputs)?;
    if !scope.is_eager() {
        return Err(Diagnostic::new(
            "the tensors have no values, so there is no list to walk back",
        )
        .help("in a static graph, use `grad` or `vjp` on a closure"));
    }
    let closure = scope.between(&inputs, &outputs)?;
    let active: Vec<bool> = inputs.iter().map(|t| t.dtype().is_float()).collect();
    if !active.contains(&true) {
        return Err(Diagnostic::new("there are no floats to differentiate with respect to")
            .help("integers and bools have no derivative"));
    }
    scope
        .enter(|| scope.reuse(|| linearize(&closure, &inputs, &active, &vec![true; outputs.len()])))
}

/// The scope of the outputs, which must be `outer` or nested in it.
fn innermost(outer: &Scope, outputs: &[Tensor]) -> Result<Scope> {
    let mut scope = outer.clone();
    for tensor in outputs {
        unpoisoned([tensor])?;
        let Some(of) = tensor.scope() else { continue };
        if of.is_within(&scope) {
            scope = of.clone();
        } else if !scope.is_within(of) {
            let at = tensor.defined_at().unwrap_or_default();
            return Err(Diagnostic::new(
                "a tensor belongs to another list than what it is differentiated by",
            )
            .at(at, "made here")
            .help("begin both with one `Tracked`, the second by `beside`"));
        }
    }
    Ok(scope)
}

fn poisoned_tangent<M: Differentiable>(at: &M, error: Diagnostic) -> M::TangentVector {
    let poison = poison(&error);
    tangent_of(at, &vec![Some(poison); at.tensors().len()])
}

impl<M> Deref for Tracked<M> {
    type Target = M;
    fn deref(&self) -> &M {
        &self.value
    }
}

/// The whole list recorded so far, with the value of each line.
impl<M: Differentiable> fmt::Display for Tracked<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.scope.body();
        let values = |value| self.scope.known(value)?.to_literal().ok();
        let inputs = (0..body.inputs.len()).map(|i| format!("x{i}")).collect();
        let text = print::Text { body: &body, inputs, outputs: vec![], values: Some(&values) };
        f.write_str(&text.print(&self.scope.locations()))
    }
}

impl<M: Differentiable> fmt::Debug for Tracked<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A result as a tensor: an error becomes poison. For closures that look at values and must
/// return a tensor: `grad(&*x, |x| or_poison(f(x)))`, where `f` returns a `Result`.
#[track_caller]
pub fn or_poison(result: Result<Tensor>) -> Tensor {
    let caller = Location::caller();
    result.unwrap_or_else(|error| poison(&error.within(&caller, "")))
}
