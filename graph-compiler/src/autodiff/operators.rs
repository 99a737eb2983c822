//! Differential operators on closures over anything [`Differentiable`].
//!
//! They are called inside a function that is being built. The closure is traced once on fresh
//! values and differentiated; value and derivatives are emitted into the enclosing function.
//! Captured tensors are constants of the closure. Operators nest to any order.
//!
//! A mistake yields poisoned tensors that carry the error, as everywhere in the builder; the
//! function's `finish` returns it.

pub use super::jacobian::{
    Outputs, grad_and_hvp, gvp, hessian, hessian_blocks, hvp, jacfwd, jacrev, value_and_jacfwd,
    value_and_jacrev, value_grad_and_hessian,
};
pub use super::jet::{jet, nth_derivative};
use super::values::{
    Traced, components_of, enter_scope_of, fit, poison, settle, tangent_of, warn_of_zeros,
    with_tensors,
};
pub use super::wrt::{grad_wrt, value_and_grad_wrt};
use super::{Linear, Linearized, current_scope, jvp as jvp_of_body};
use std::marker::PhantomData;
use wengert_core::build::{Closure, Scope};
use wengert_core::{Diagnostic, Differentiable, Location, Result, Scalar, Tensor, TensorType};

/// The gradient ∇f of a scalar-valued closure: for each tensor x of the argument the tensor
/// ∂f/∂x, of the shape and dtype of x, as a tangent vector of the argument.
///
/// It is the transpose of the derivative, applied to 1: ∇f(m) = Df(m)ᵀ·1. It costs a small
/// multiple of f, whatever the number of variables. The gradient with respect to integers is
/// zero. The gradient with respect to a tensor that the result does not depend on is also zero,
/// with a warning. A result that is not a scalar is an error.
///
/// ```
/// # use wengert_core::{DType, Literal, TensorType, build::FunctionBuilder, interpret};
/// # use wengert_compiler::autodiff::operators::grad;
/// let f = FunctionBuilder::build("f", |f| {
///     let x = f.input("x", TensorType::new(DType::F64, [3usize]));
///     f.output("gradient", grad(&x, |x| (x * x * x).sum()));
/// })?;
/// // ∂(Σ xᵢ³)/∂xᵢ = 3xᵢ².
/// let gradient = interpret::run(&f, &[Literal::from_vec(&[3], vec![1.0, 2.0, -3.0])?])?;
/// assert_eq!(gradient[0].as_slice::<f64>().unwrap(), [3.0, 12.0, 27.0]);
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[track_caller]
pub fn grad<M: Differentiable>(at: &M, f: impl FnOnce(&M) -> Tensor) -> M::TangentVector {
    value_and_grad(at, f).1
}

/// Value and gradient of a scalar-valued closure, (f(m), ∇f(m)). The value is computed once. See
/// [`grad`].
#[track_caller]
pub fn value_and_grad<M: Differentiable>(
    at: &M,
    f: impl FnOnce(&M) -> Tensor,
) -> (Tensor, M::TangentVector) {
    let (value, (), gradient) = value_aux_and_grad(at, |m| (f(m), ()));
    (value, gradient)
}

/// Value and gradient of a closure with an auxiliary result a, e.g. a metric: from (f(m), a) the
/// triple (f(m), a, ∇f(m)). a is not differentiated. See [`grad`].
#[track_caller]
pub fn value_aux_and_grad<M: Differentiable, A: Differentiable>(
    at: &M,
    f: impl FnOnce(&M) -> (Tensor, A),
) -> (Tensor, A, M::TangentVector) {
    let _entered = enter_scope_of(at);
    let traced = Traced::of(at, f);
    let active = traced.floats();
    gradient(at, traced, Ok(active))
}

/// Value and gradient of a traced closure's first output with respect to the active tensors.
#[track_caller]
pub(super) fn gradient<M: Differentiable, A: Differentiable>(
    at: &M,
    traced: Traced<(Tensor, A)>,
    active: Result<Vec<bool>>,
) -> (Tensor, A, M::TangentVector) {
    let caller = Location::caller();
    let _user = caller.attributed();
    let result = traced.closure.as_ref().map_err(Clone::clone).and_then(|closure| {
        let active = active?;
        needs_scalar("grad", closure)?;
        let outputs = closure.body.outputs.len();
        let wanted: Vec<bool> = (0..outputs).map(|i| i == 0).collect();
        let linearized = traced.linearize_wrt(&active, &wanted)?;
        let ty = closure.body.ty(closure.body.outputs[0]);
        let one = Tensor::full(ty, Scalar::one(ty.dtype));
        let seeds: Vec<_> = wanted.iter().map(|w| w.then(|| one.clone())).collect();
        let cotangents = linearized.linear.transpose(&seeds)?;
        warn_of_zeros(at, &active, &cotangents, &caller);
        Ok((linearized.outputs, cotangents))
    });
    let (outputs, cotangents) = settle(result, &traced.output, at, caller);
    let (value, aux) = with_tensors(&traced.output, &outputs);
    (value, aux, tangent_of(at, &cotangents))
}

/// Checks that the first output of a closure is a float scalar.
pub(super) fn needs_scalar(operator: &str, closure: &Closure) -> Result<()> {
    let output = closure.body.outputs[0];
    let ty = closure.body.ty(output);
    let error = match (ty.rank(), ty.dtype.is_float()) {
        (0, true) => return Ok(()),
        (_, true) => not_scalar(operator, "the closure's", ty),
        _ => Diagnostic::new(format!(
            "{operator} needs an output of floats; the closure's is {ty}: {} has no derivative",
            ty.dtype
        )),
    };
    let made = closure.body.equations.iter().find(|e| e.results.contains(&output));
    let made = match (made, Scope::current()) {
        (Some(equation), Some(scope)) => Some(scope.origin(equation.location)),
        _ => {
            // An input of the closure has no line of its own; a captured tensor has its
            // definition's.
            let given = closure.body.inputs.len() - closure.captures.len();
            let captured = closure.body.inputs[given..].iter().position(|v| *v == output);
            captured.and_then(|i| closure.captures[i].defined_at())
        }
    };
    Err(match made {
        Some(place) => error.at(place, "the output is made here"),
        None => error,
    })
}

/// The error for an output with more than one element.
pub(super) fn not_scalar(operator: &str, output: &str, ty: &TensorType) -> Diagnostic {
    let mend = match operator {
        "grad" => "Reduce it with `.sum()` or use `jacrev`",
        _ => "Reduce it with `.sum()`",
    };
    Diagnostic::new(format!("{operator} needs a scalar output; {output} has shape {ty}. {mend}"))
}

/// The value of a closure, and its derivative in the direction `along`: (f(m), Df(m)·t), where
/// Df(m)·t = lim (f(m + h·t) − f(m)) / h.
///
/// Forward mode: each operation is followed by its derivative, so no residuals are kept. One
/// direction costs about as much again as f. Integers have no tangent; their components of
/// `along` are ignored.
///
/// ```
/// # use wengert_core::{DType, Literal, TensorType, build::FunctionBuilder, interpret};
/// # use wengert_compiler::autodiff::operators::jvp;
/// let f = FunctionBuilder::build("f", |f| {
///     let scalar = || TensorType::scalar(DType::F64);
///     let (x, y) = (f.input("x", scalar()), f.input("y", scalar()));
///     let along = (x.full_like(1.0), x.full_like(10.0));
///     let (value, tangent) = jvp(&(x, y), &along, |(x, y)| x * y);
///     f.output("value", value);
///     f.output("tangent", tangent);
/// })?;
/// // y·1 + x·10
/// let results = interpret::run(&f, &[Literal::from(2.0f64), Literal::from(3.0f64)])?;
/// assert_eq!(results, [Literal::from(6.0f64), Literal::from(23.0f64)]);
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[track_caller]
pub fn jvp<M: Differentiable, O: Differentiable>(
    at: &M,
    along: &M::TangentVector,
    f: impl FnOnce(&M) -> O,
) -> (O, O::TangentVector) {
    let _entered = enter_scope_of(at);
    let traced = Traced::of(at, f);
    let _user = Location::caller().attributed();
    let result = traced.closure.as_ref().map_err(Clone::clone).and_then(|closure| {
        let mut tangents = components_of(at, along);
        fit("tangent", at, &tangents)?;
        for (primal, tangent) in traced.primals.iter().zip(&mut tangents) {
            tangent.take_if(|_| !primal.dtype().is_float());
        }
        let mut primals = traced.primals.clone();
        primals.extend(closure.captures.iter().cloned());
        tangents.resize(primals.len(), None);
        jvp_of_body(&closure.body, &primals, &tangents, &vec![true; closure.body.outputs.len()])
    });
    let (outputs, tangents) = settle(result, &traced.output, &traced.output, Location::caller());
    let output = with_tensors(&traced.output, &outputs);
    let tangent = tangent_of(&output, &tangents);
    (output, tangent)
}

/// A linear function from cotangents of a value to cotangents of the point at which it was
/// computed.
pub type Pullback<'m, M, O> =
    Box<dyn Fn(&<O as Differentiable>::TangentVector) -> <M as Differentiable>::TangentVector + 'm>;

/// The value of a closure, and its pullback: (f(m), c ↦ Df(m)ᵀ·c). The pullback maps a cotangent
/// of the value, ∂L/∂f for some scalar L, to the cotangent of the argument, ∂L/∂m. It is the only
/// map with ⟨c, Df(m)·t⟩ = ⟨Df(m)ᵀ·c, t⟩ for all tangents t.
///
/// Reverse mode. The pullback does not recompute the value. It takes any seed and may be called
/// more than once.
///
/// ```
/// # use wengert_core::{DType, Literal, TensorType, build::FunctionBuilder, interpret};
/// # use wengert_compiler::autodiff::operators::vjp;
/// let f = FunctionBuilder::build("f", |f| {
///     let x = f.input("x", TensorType::new(DType::F64, [2usize]));
///     let (_, pullback) = vjp(&x, |x| (x * x, x.sum()));
///     let first = (x.full_like(1.0), x.sum().full_like(0.0));
///     let second = (x.full_like(0.0), x.sum().full_like(5.0));
///     f.output("first", pullback(&first));
///     f.output("second", pullback(&second));
/// })?;
/// let results = interpret::run(&f, &[Literal::from_vec(&[2], vec![3.0, 4.0])?])?;
/// assert_eq!(results[0].as_slice::<f64>().unwrap(), [6.0, 8.0]);
/// assert_eq!(results[1].as_slice::<f64>().unwrap(), [5.0, 5.0]);
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[track_caller]
pub fn vjp<'m, M: Differentiable + 'm, O: Differentiable + 'm>(
    at: &M,
    f: impl FnOnce(&M) -> O,
) -> (O, Pullback<'m, M, O>) {
    let caller = Location::caller();
    let (output, differential) = linearize(at, f);
    (output, Box::new(move |cotangent| differential.pull_back_at(cotangent, caller.clone())))
}

/// The value f(m) of a closure, and its derivative there as a linear map Df(m). The map [pushes
/// tangents forward](Differential::push_forward), t ↦ Df(m)·t, and [pulls cotangents
/// back](Differential::pull_back), c ↦ Df(m)ᵀ·c.
///
/// Both run one linear program, whose only inputs from the forward run are the *residuals*
/// ([`Differential::linear`]). [`jvp`] and [`vjp`] are its two uses.
///
/// ```
/// # use wengert_core::{DType, Literal, TensorType, build::FunctionBuilder, interpret};
/// # use wengert_compiler::autodiff::operators::linearize;
/// let f = FunctionBuilder::build("f", |f| {
///     let x = f.input("x", TensorType::scalar(DType::F64));
///     let (sine, slope) = linearize(&x, |x| x.sin());
///     // The linear program multiplies by cos x, which is all that is kept.
///     assert_eq!(slope.linear().unwrap().residuals.len(), 1);
///     f.output("sine", sine);
///     f.output("forward", slope.push_forward(&x.full_like(2.0)));
///     f.output("back", slope.pull_back(&x.full_like(3.0)));
/// })?;
/// let results = interpret::run(&f, &[Literal::from(0.0f64)])?;
/// assert_eq!(results, [0.0f64, 2.0, 3.0].map(Literal::from));
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[track_caller]
pub fn linearize<M: Differentiable, O: Differentiable>(
    at: &M,
    f: impl FnOnce(&M) -> O,
) -> (O, Differential<M, O>) {
    let _entered = enter_scope_of(at);
    let traced = Traced::of(at, f);
    let _user = Location::caller().attributed();
    let result = traced
        .closure
        .as_ref()
        .map_err(Clone::clone)
        .and_then(|closure| traced.linearize(&vec![true; closure.body.outputs.len()]));
    let (outputs, linear) = match result {
        Ok(Linearized { outputs, linear }) => (outputs, Ok(linear)),
        Err(error) => {
            let error = error.within(&Location::caller(), "differentiated here");
            (vec![poison(&error); traced.output.tensors().len()], Err(error))
        }
    };
    let output = with_tensors(&traced.output, &outputs);
    let differential = Differential {
        linear,
        at: with_tensors(at, &traced.primals),
        output: with_tensors(&traced.output, &outputs),
        function: PhantomData,
    };
    (output, differential)
}

/// The transpose Aᵀ of a linear closure A: ⟨c, A·x⟩ = ⟨Aᵀ·c, x⟩ for all x and c. It maps
/// cotangents of the value to cotangents of the argument.
///
/// `like` gives the structure and types of the argument; its values do not matter. A closure that
/// is not linear, or that adds a constant, is an error that names the operation. The transpose of
/// the transpose is A.
///
/// ```
/// # use wengert_core::{DType, Literal, TensorType, build::FunctionBuilder, interpret};
/// # use wengert_compiler::autodiff::operators::transpose;
/// let f = FunctionBuilder::build("f", |f| {
///     let c = f.input("c", TensorType::new(DType::F64, [2usize]));
///     let weights = Literal::from_vec(&[2, 2], vec![1.0, 2.0, 3.0, 4.0]).unwrap();
///     let weights = wengert_core::Tensor::constant(weights);
///     f.output("rows", transpose(&c, |x| weights.dot(x))(&c));
/// })?;
/// // The weights' columns, weighted by c.
/// let results = interpret::run(&f, &[Literal::from_vec(&[2], vec![1.0, 10.0])?])?;
/// assert_eq!(results[0].as_slice::<f64>().unwrap(), [31.0, 42.0]);
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[track_caller]
pub fn transpose<'m, M: Differentiable + 'm, O: Differentiable + 'm>(
    like: &M,
    f: impl FnOnce(&M) -> O,
) -> Pullback<'m, M, O> {
    let caller = Location::caller();
    let _entered = enter_scope_of(like);
    let traced = Traced::of(like, f);
    let linear = traced.closure.as_ref().map_err(Clone::clone).and_then(|closure| {
        if let Some(other) = traced.primals.iter().find(|t| !t.dtype().is_float()) {
            return Err(Diagnostic::new(format!("a function of {} is not linear", other.ty()))
                .help("capture integers and bools instead of passing them in"));
        }
        let scope = current_scope()?;
        super::transpose::verify_linear(&closure.body, traced.primals.len(), |id| {
            scope.origin(id)
        })?;
        let outputs = closure.body.types(&closure.body.outputs).into_iter().enumerate();
        Ok(Linear {
            body: closure.body.clone(),
            residuals: closure.captures.clone(),
            inputs: traced.primals.iter().map(|t| (t.ty().clone(), true)).collect(),
            outputs: outputs.map(|(i, ty)| (ty, Some(i))).collect(),
        })
    });
    let differential = Differential {
        linear,
        at: with_tensors(like, &traced.primals),
        output: traced.output,
        function: PhantomData,
    };
    Box::new(move |cotangent| differential.pull_back_at(cotangent, caller.clone()))
}

/// The derivative of a function at a point: a linear map from tangents of the point to tangents
/// of the value.
pub struct Differential<M: Differentiable, O: Differentiable> {
    linear: Result<Linear>,
    pub(super) at: M,
    pub(super) output: O,
    function: PhantomData<fn(M) -> O>,
}

impl<M: Differentiable, O: Differentiable> Differential<M, O> {
    /// The tangent of the value along `tangent`.
    #[track_caller]
    pub fn push_forward(&self, tangent: &M::TangentVector) -> O::TangentVector {
        let _entered = enter_scope_of(&self.at);
        let _user = Location::caller().attributed();
        let tangents = components_of(&self.at, tangent);
        let fits = || fit("tangent", &self.at, &tangents);
        let result = self.linear.clone().and_then(|l| fits().and_then(|()| l.apply(&tangents)));
        let caller = Location::caller();
        tangent_of(
            &self.output,
            &settle(result.map(|t| (vec![], t)), &self.output, &self.output, caller).1,
        )
    }

    /// The cotangent of the point for a cotangent of the value.
    #[track_caller]
    pub fn pull_back(&self, cotangent: &O::TangentVector) -> M::TangentVector {
        self.pull_back_at(cotangent, Location::caller())
    }

    /// Errors are located at `caller`.
    fn pull_back_at(&self, cotangent: &O::TangentVector, caller: Location) -> M::TangentVector {
        let _entered = enter_scope_of(&self.at);
        let _user = caller.attributed();
        let cotangents = components_of(&self.output, cotangent);
        let fits = || fit("cotangent", &self.output, &cotangents);
        let result =
            self.linear.clone().and_then(|l| fits().and_then(|()| l.transpose(&cotangents)));
        tangent_of(&self.at, &settle(result.map(|t| (vec![], t)), &self.output, &self.at, caller).1)
    }

    /// The linear program with its residuals.
    ///
    /// Errors: the closure could not be linearized.
    pub fn linear(&self) -> Result<&Linear> {
        self.linear.as_ref().map_err(Clone::clone)
    }
}
