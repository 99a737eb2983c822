//! Taylor mode on closures: [`jet`] and [`nth_derivative`], by [`series`](super::series()).

use super::series;
use super::values::{
    Traced, components_of, enter_scope_of, fit, poison, settle, tangent_of, with_tensors,
};
use wengert_core::{Diagnostic, Differentiable, Location, Result, Tensor};

/// The derivatives of f(x(s)) along a curve x(s), to the order of the given derivatives of the
/// curve.
///
/// `at` is x(0), and `series` are the curve's derivatives x′(0), x″(0), …, x⁽ⁿ⁾(0), as in
/// `jax.experimental.jet`: derivatives, not Taylor coefficients, which are the derivatives over
/// k!. The result is f(x(0)) and the first n derivatives of s ↦ f(x(s)) at 0. The first is `jvp`
/// along x′(0). With the straight line `[t, 0, 0]` the k-th is Dᵏf applied to t, k times.
///
/// ```
/// # use wengert_core::{DType, Literal, TensorType, build::FunctionBuilder, interpret};
/// # use wengert_compiler::autodiff::operators::jet;
/// let f = FunctionBuilder::build("f", |f| {
///     let x = f.input("x", TensorType::scalar(DType::F64));
///     // e^(s²) at s = 0, where s² has the derivatives 0, 2, 0, 0.
///     let (zero, two) = (x.zeros_like(), x.full_like(2.0));
///     let (value, derivatives) = jet(&x, &[zero.clone(), two, zero.clone(), zero], |y| y.exp());
///     f.output("value", value);
///     (1..).zip(&derivatives).for_each(|(k, d)| f.output(&format!("d{k}"), d));
/// }).unwrap();
/// // 1 + s² + s⁴/2 + …
/// let outputs = interpret::run(&f, &[Literal::from(0.0f64)]).unwrap();
/// let outputs: Vec<f64> = outputs.iter().map(|y| y.get(0).to_f64()).collect();
/// assert_eq!(outputs, [1.0, 0.0, 2.0, 0.0, 12.0]);
/// ```
#[track_caller]
pub fn jet<M: Differentiable, O: Differentiable>(
    at: &M,
    series: &[M::TangentVector],
    f: impl FnOnce(&M) -> O,
) -> (O, Vec<O::TangentVector>) {
    let series: Vec<Vec<Option<Tensor>>> = series.iter().map(|s| components_of(at, s)).collect();
    let (value, derivatives) = along(at, &series, f);
    let _user = Location::caller().attributed();
    let derivatives = derivatives.iter().map(|d| tangent_of(&value, d)).collect();
    (value, derivatives)
}

/// The n-th derivative of a closure of one scalar, with a result of any structure; the 0th is its
/// value.
///
/// By Taylor mode: it emits O(n²) times the closure's equations, where n nested derivatives would
/// emit 2ⁿ times as many.
#[track_caller]
pub fn nth_derivative<O: Differentiable>(
    n: usize,
    x: &Tensor,
    f: impl FnOnce(&Tensor) -> O,
) -> O::TangentVector {
    let scalar = x.error().is_some() || (x.rank() == 0 && x.dtype().is_float());
    let x = match scalar {
        true => x.clone(),
        false => {
            let error = format!(
                "nth_derivative needs a closure of a float scalar; this one is of {}",
                x.ty()
            );
            let error = Diagnostic::new(error)
                .at(Location::caller(), "differentiated here")
                .operand(x.defined_at(), x.ty());
            poison(&error.help("use `jet` with a direction"))
        }
    };
    let caller = Location::caller();
    let one = |k| (k == 0).then(|| caller.attribute(|| x.ones_like()));
    let series: Vec<_> = (0..n).map(|k| vec![one(k)]).collect();
    let (value, mut derivatives) = along(&x, &series, f);
    match derivatives.pop() {
        Some(last) => tangent_of(&value, &last),
        None => {
            let mut tensors = value.tensors().into_iter();
            value.tangent(&Default::default(), &mut |_, t| {
                tensors.next().map_or_else(|| t.clone(), |(_, t)| t)
            })
        }
    }
}

/// Value and derivatives; `None` is zero.
#[track_caller]
fn along<M: Differentiable, O: Differentiable>(
    at: &M,
    given: &[Vec<Option<Tensor>>],
    f: impl FnOnce(&M) -> O,
) -> (O, Vec<Vec<Option<Tensor>>>) {
    let caller = Location::caller();
    let _entered = enter_scope_of(at);
    let traced = Traced::of(at, f);
    let result = traced.closure.as_ref().map_err(Clone::clone).and_then(|closure| -> Result<_> {
        for (k, derivatives) in given.iter().enumerate() {
            fit("derivative", at, derivatives)
                .map_err(|d| d.context(format!("order {} of the series", k + 1)))?;
        }
        let of = |(i, x): (usize, &Tensor)| {
            given.iter().map(|d| d[i].clone().filter(|_| x.dtype().is_float())).collect()
        };
        let mut curves: Vec<series::Series> = traced.primals.iter().enumerate().map(of).collect();
        let mut primals = traced.primals.clone();
        primals.extend(closure.captures.iter().cloned());
        curves.resize(primals.len(), vec![]);
        series::series(&closure.body, &primals, &curves, given.len())
    });
    match result {
        Ok((outputs, series)) => {
            let order = |k: usize| series.iter().map(|s| s[k].clone()).collect();
            (with_tensors(&traced.output, &outputs), (0..given.len()).map(order).collect())
        }
        Err(error) => {
            let (outputs, poison) = settle(Err(error), &traced.output, &traced.output, caller);
            (with_tensors(&traced.output, &outputs), vec![poison; given.len()])
        }
    }
}
