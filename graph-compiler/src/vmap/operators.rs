//! `vmap` on closures over anything [`Differentiable`].
//!
//! It is called inside a function that is being built. The closure is traced once on the types of
//! one example; its operations are emitted into the enclosing function for all examples at once.
//! All examples share the captured tensors.
//!
//! A mistake yields poisoned tensors that carry the error, as everywhere in the builder; the
//! function's `finish` returns it.

use super::body::{Value, batch, moved};
use crate::autodiff::values::{leaves, poison, with_tensors};
use crate::autodiff::{current_scope, trace};
use wengert_core::{
    Diagnostic, Differentiable, Dim, KeyPath, Location, Result, Tensor, TensorType,
};

/// The axis of each tensor of a value that runs over the examples. A tensor without such an axis
/// is shared by all examples.
///
/// - A number: that axis of every tensor.
/// - A list: an axis, or none, for each tensor in the order of [`Differentiable::tensors`].
/// - A closure of key path and tensor.
pub trait Axes {
    /// The axis of each tensor of a value.
    fn of(&self, tensors: &[(KeyPath, Tensor)]) -> Result<Vec<Option<usize>>>;
}

impl Axes for usize {
    fn of(&self, tensors: &[(KeyPath, Tensor)]) -> Result<Vec<Option<usize>>> {
        Ok(vec![Some(*self); tensors.len()])
    }
}

impl Axes for [Option<usize>] {
    fn of(&self, tensors: &[(KeyPath, Tensor)]) -> Result<Vec<Option<usize>>> {
        if self.len() == tensors.len() {
            return Ok(self.to_vec());
        }
        let paths: Vec<String> =
            tensors.iter().map(|(path, t)| format!("`{path}` ({})", t.ty())).collect();
        let help = match tensors {
            [(path, t)] if path.as_str().is_empty() => {
                format!("give one axis, or `None`, for the {}", t.ty())
            }
            _ => format!("give an axis or `None` for each of {}", paths.join(", ")),
        };
        Err(Diagnostic::new(format!("{} axes for {} tensors", self.len(), tensors.len()))
            .help(help))
    }
}

impl<const N: usize> Axes for [Option<usize>; N] {
    fn of(&self, tensors: &[(KeyPath, Tensor)]) -> Result<Vec<Option<usize>>> {
        self.as_slice().of(tensors)
    }
}

impl<A: Axes + ?Sized> Axes for &A {
    fn of(&self, tensors: &[(KeyPath, Tensor)]) -> Result<Vec<Option<usize>>> {
        (**self).of(tensors)
    }
}

/// Axes by key path: a closure as [`Axes`].
pub struct ByPath<F>(pub F);

impl<F: Fn(&KeyPath, &Tensor) -> Option<usize>> Axes for ByPath<F> {
    fn of(&self, tensors: &[(KeyPath, Tensor)]) -> Result<Vec<Option<usize>>> {
        Ok(tensors.iter().map(|(path, tensor)| (self.0)(path, tensor)).collect())
    }
}

/// The closure applied to each example: y\[i\] = f(x\[i\]). Axis 0 of every tensor of `xs` runs
/// over the examples, and so does axis 0 of every tensor of the result.
///
/// It has the bits of the loop over examples, but is no loop: every op acts on all examples at
/// once, and values that do not depend on an example are computed once. It composes with
/// derivatives in both orders; `vmap` of `grad` gives the gradient of each example.
///
/// ```
/// # use wengert_core::{DType, Literal, TensorType, build::FunctionBuilder, interpret};
/// # use wengert_compiler::{autodiff::operators::grad, vmap::operators::vmap};
/// let f = FunctionBuilder::build("f", |f| {
///     let w = f.input("w", TensorType::scalar(DType::F64));
///     let xs = f.input("xs", TensorType::new(DType::F64, [3usize]));
///     f.output("each", vmap(&xs, |x| grad(&w, |w| w * w * x)));
/// })?;
/// // 2wx for each x.
/// let (w, xs) = (Literal::from(5.0f64), Literal::from_vec(&[3], vec![1.0, 2.0, 3.0])?);
/// let results = interpret::run(&f, &[w, xs])?;
/// assert_eq!(results[0].as_slice::<f64>().unwrap(), [10.0, 20.0, 30.0]);
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[track_caller]
pub fn vmap<M: Differentiable, O: Differentiable>(xs: &M, f: impl FnOnce(&M) -> O) -> O {
    vmap_axes(xs, 0, 0, f)
}

/// The closure applied to each example, with the axes of `xs` and of the result that run over the
/// examples.
///
/// At least one tensor of `xs` must be mapped. All mapped tensors have one extent along their
/// axes. A result without an axis must be shared by all examples.
#[track_caller]
pub fn vmap_axes<M: Differentiable, O: Differentiable>(
    xs: &M,
    axes: impl Axes,
    out_axes: impl Axes,
    f: impl FnOnce(&M) -> O,
) -> O {
    let caller = Location::caller();
    let tensors = xs.tensors();
    let fail = |error: Diagnostic| poison(&error.within(&caller, "mapped here"));
    let usable = current_scope().and_then(|_| {
        let unusable =
            |(_, t): &&(KeyPath, Tensor)| t.literal().is_none() && t.traced_value().is_err();
        tensors.iter().find(unusable).map_or(Ok(()), |(_, t)| t.traced_value().map(|_| ()))
    });
    if let Err(error) = usable {
        // Only the structure of the closure's result is needed for the poisoned one, not its
        // tensors.
        let poison = fail(error);
        return f(xs).map_tensors(&KeyPath::default(), &mut |_, _| poison.clone());
    }
    let mapped = axes.of(&tensors).and_then(|axes| Ok((batch_size(&tensors, &axes)?, axes)));
    // Report this error to the builder before errors that follow from it.
    let mapped = mapped.map_err(fail);
    let none = vec![None; tensors.len()];
    let axes = mapped.as_ref().map_or(&none, |(_, axes)| axes);
    let types: Vec<TensorType> =
        tensors.iter().zip(axes).map(|((_, t), axis)| example(t.ty(), *axis)).collect();
    let mut output = None;
    let closure = trace(&types, |inputs| {
        let returned = f(&with_tensors(xs, inputs));
        let tensors = leaves(&returned);
        output = Some(returned);
        tensors
    });
    let output = output.expect("there is a current scope, so the closure has been run");
    let results = mapped.and_then(|(size, axes)| {
        let run = || {
            let closure = closure?;
            let value = |((_, t), axis): (&(KeyPath, Tensor), &Option<usize>)| match axis {
                Some(axis) => moved(t, *axis, 0, &caller).map(Value::Batched),
                None => Ok(Value::Shared(t.clone())),
            };
            let mut values = tensors.iter().zip(&axes).map(value).collect::<Result<Vec<_>>>()?;
            values.extend(closure.captures.into_iter().map(Value::Shared));
            let results = batch(&closure.body, &values, &size)?;
            place(&output, &out_axes, &results, &size, &caller)
        };
        run().map_err(fail)
    });
    match results {
        Ok(results) => with_tensors(&output, &results),
        Err(poison) => output.map_tensors(&KeyPath::default(), &mut |_, _| poison.clone()),
    }
}

/// The type of one example.
fn example(ty: &TensorType, axis: Option<usize>) -> TensorType {
    let mut ty = ty.clone();
    if let Some(axis) = axis.filter(|axis| *axis < ty.rank()) {
        ty.shape.remove(axis);
    }
    ty
}

/// The common extent of the mapped axes.
fn batch_size(tensors: &[(KeyPath, Tensor)], axes: &[Option<usize>]) -> Result<Dim> {
    let name = |path: &KeyPath| {
        if path.as_str().is_empty() { "the tensor".into() } else { format!("`{path}`") }
    };
    let made = |t: &Tensor| t.defined_at().unwrap_or_default();
    let mut size: Option<(&Dim, &KeyPath, &Tensor)> = None;
    for ((path, tensor), axis) in tensors.iter().zip(axes) {
        let Some(axis) = *axis else { continue };
        let Some(extent) = tensor.shape().get(axis) else {
            let error = match tensor.rank() {
                0 => Diagnostic::new(format!(
                    "{} of type {} is a scalar: it has no axis to map over",
                    name(path),
                    tensor.ty()
                ))
                .help(
                    "capture it in the closure, or give it no axis, so that all examples share it",
                ),
                rank => Diagnostic::new(format!(
                    "{} of type {} has no axis {axis}",
                    name(path),
                    tensor.ty()
                ))
                .help(format!("its axes are 0 to {}", rank - 1)),
            };
            return Err(error.at(made(tensor), "it is made here"));
        };
        match size {
            None => size = Some((extent, path, tensor)),
            Some((first, ..)) if first == extent => {}
            Some((first, other, t)) => {
                return Err(Diagnostic::new(format!(
                    "{} has {first} examples, {} has {extent}",
                    name(other),
                    name(path)
                ))
                .at(made(t), format!("{} of type {} is made here", name(other), t.ty()))
                .at(
                    made(tensor),
                    format!(
                        "{} of type {}, with axis {axis} for the examples, here",
                        name(path),
                        tensor.ty()
                    ),
                )
                .help("mapped axes have one extent; what all examples share has none"));
            }
        }
    }
    size.map(|(extent, ..)| extent.clone()).ok_or_else(|| {
        Diagnostic::new("nothing is mapped: no tensor has an axis for the examples")
            .help("map at least one, or call the closure without `vmap`")
    })
}

/// The results with their axes of examples.
fn place(
    output: &impl Differentiable,
    axes: &impl Axes,
    results: &[Value],
    size: &Dim,
    caller: &Location,
) -> Result<Vec<Tensor>> {
    let tensors = output.tensors();
    let axes = axes.of(&tensors).map_err(|d| d.context("the result's axes"))?;
    let place = |((value, axis), (path, _)): ((&Value, Option<usize>), &(KeyPath, Tensor))| {
        let rank = value.tensor().rank() - usize::from(value.is_batched());
        let path = if path.as_str().is_empty() { String::new() } else { format!(" `{path}`") };
        let made = || value.tensor().defined_at().unwrap_or_default();
        match (value, axis) {
            (_, Some(axis)) if axis > rank => Err(Diagnostic::new(format!(
                "the result{path} of one example has {rank} axes, so the examples cannot lie along \
                 axis {axis}"
            ))
            .at(made(), "it is made here")
            .help(format!("axes 0 to {rank} are possible"))),
            (_, Some(axis)) => value.along(axis, size, caller),
            (Value::Shared(tensor), None) => Ok(tensor.clone()),
            (Value::Batched(_), None) => Err(Diagnostic::new(format!(
                "the result{path} has no axis for the examples, but differs between them"
            ))
            .at(made(), "it is made here")
            .help("give it an axis; only what does not depend on a mapped tensor can do without")),
        }
    };
    results.iter().zip(axes).zip(&tensors).map(place).collect()
}
