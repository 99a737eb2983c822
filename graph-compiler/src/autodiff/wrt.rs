//! The choice of differentiated variables: by name, or by the beginning of their key path.
//!
//! `layers.0` selects itself and everything below it. The rest is constant, and no code is
//! emitted for it.

use super::operators::gradient;
use super::values::{Traced, enter_scope_of};
use wengert_core::nearest::suggest;
use wengert_core::{Diagnostic, Differentiable, Location, Result, Tensor};

/// A variable that can be selected.
pub(crate) struct Candidate<'a> {
    /// Its name or key path.
    pub name: &'a str,
    /// Its type, for messages.
    pub ty: &'a wengert_core::TensorType,
    /// Where it was declared or computed.
    pub location: Location,
}

/// For each candidate whether it is among `wrt`. `what` is the noun for candidates in messages.
pub(crate) fn select(candidates: &[Candidate<'_>], wrt: &[&str], what: &str) -> Result<Vec<bool>> {
    let names: Vec<&str> = candidates.iter().map(|c| c.name).collect();
    let is_float = |i: usize| candidates[i].ty.dtype.is_float();
    let mut selected = vec![false; names.len()];
    if wrt.is_empty() {
        let floats: Vec<&str> =
            (0..names.len()).filter(|i| is_float(*i)).map(|i| names[i]).collect();
        return Err(Diagnostic::new(format!(
            "no {what} is named to differentiate with respect to"
        ))
        .help(format!(
            "name some, or the beginning of their key paths; floats are {}",
            floats.join(", ")
        )));
    }
    for wanted in wrt {
        if let Some(i) = names.iter().position(|name| name == wanted) {
            if !is_float(i) {
                let (ty, dtype) = (candidates[i].ty, candidates[i].ty.dtype);
                return Err(Diagnostic::new(format!(
                    "`{wanted}` has type {ty}: {dtype} has no derivative"
                ))
                .at(candidates[i].location.clone(), "declared here")
                .help("differentiate with respect to floats only"));
            }
            selected[i] = true;
            continue;
        }
        let below =
            |name: &str| name.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.'));
        let matches: Vec<usize> = (0..names.len()).filter(|i| below(names[*i])).collect();
        if matches.is_empty() {
            return Err(Diagnostic::new(format!("there is no {what} `{wanted}`")).help(suggest(
                wanted,
                &names,
                &format!("{what}s"),
            )));
        }
        // Integers below a key path (a step counter, say) have no derivative and are skipped.
        let floats: Vec<usize> = matches.into_iter().filter(|i| is_float(*i)).collect();
        if floats.is_empty() {
            return Err(Diagnostic::new(format!("no {what} below `{wanted}` is of floats"))
                .help("integers and bools have no derivative"));
        }
        floats.into_iter().for_each(|i| selected[i] = true);
    }
    Ok(selected)
}

/// The gradient of a scalar-valued closure with respect to a part of its argument: tensors whose
/// key path is in `wrt`, or below a path in it. The others are constants, and their gradient is
/// zero.
///
/// ```
/// # use wengert_core::{DType, Literal, TensorType, build::FunctionBuilder, interpret};
/// # use wengert_compiler::autodiff::operators::grad_wrt;
/// let f = FunctionBuilder::build("f", |f| {
///     let scalar = || TensorType::scalar(DType::F64);
///     let pair = (f.input("x", scalar()), f.input("y", scalar()));
///     let (x, y) = grad_wrt(&pair, &["1"], |(x, y)| x * y);
///     f.output("x", x);
///     f.output("y", y);
/// })?;
/// let gradient = interpret::run(&f, &[Literal::from(2.0f64), Literal::from(3.0f64)])?;
/// assert_eq!(gradient, [Literal::from(0.0f64), Literal::from(2.0f64)]);
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[track_caller]
pub fn grad_wrt<M: Differentiable>(
    at: &M,
    wrt: &[&str],
    f: impl FnOnce(&M) -> Tensor,
) -> M::TangentVector {
    value_and_grad_wrt(at, wrt, f).1
}

/// Value, and the gradient with respect to a part of the argument. See [`grad_wrt`].
#[track_caller]
pub fn value_and_grad_wrt<M: Differentiable>(
    at: &M,
    wrt: &[&str],
    f: impl FnOnce(&M) -> Tensor,
) -> (Tensor, M::TangentVector) {
    let _entered = enter_scope_of(at);
    let traced = Traced::of(at, |m| (f(m), ()));
    let tensors = at.tensors();
    let paths: Vec<String> = tensors.iter().map(|(path, _)| path.to_string()).collect();
    let candidates: Vec<Candidate<'_>> = tensors
        .iter()
        .zip(&paths)
        .map(|((_, tensor), name)| Candidate {
            name,
            ty: tensor.ty(),
            location: tensor.defined_at().unwrap_or_default(),
        })
        .collect();
    let active = select(&candidates, wrt, "tensor");
    let (value, (), gradient) = gradient(at, traced, active);
    (value, gradient)
}
