//! Gradients of a batch, added up over parts of it.

use wengert_core::build::{Closure, Scope, control, inline};
use wengert_core::{
    DType, Diagnostic, Differentiable, Dim, KeyPath, Location, Result, Tensor, TensorType,
    diagnostic,
};

/// The result of `f` for a batch, computed in `microbatches` parts, one after another, so that the
/// activations of one part are in memory. The floats of the result are means over the parts, and
/// its integers sums.
///
/// Each tensor of `inputs` is divided along its first axis: a batch of B examples into parts of
/// B / `microbatches`. If `f` gives the mean of a loss over examples and its gradient, the result
/// is that of the whole batch, up to rounding. Multiply the mean of a sum by `microbatches`. Other
/// tensors that `f` uses, such as the model, are the same for all parts. Halves are added in f32,
/// and the result has f32 in their place.
///
/// ```
/// use wengert::optim::accumulate;
/// use wengert::prelude::*;
///
/// let mut program = Program::new();
/// program.function("train_step", |f| {
///     // Four parts of B examples.
///     let (x, y) = (f.input("x", f32("4*B,8")), f.input("y", i32("4*B")));
///     let model = f.state("model", nn::Linear::new(8, 3));
///     let (loss, gradient) = accumulate(4, &(x, y), |(x, y)| {
///         value_and_grad(&model, |m| cross_entropy(&m.call(x), y))
///     });
///     AdamW::new(1e-3).step(f, &model, &gradient);
///     f.output("loss", loss);
/// })?;
/// # Ok::<(), Diagnostic>(())
/// ```
///
/// Random numbers: give a key for each part, `key.split_key(…)`, as one of the inputs, or parts
/// have the same numbers.
///
/// Errors: `microbatches` is 0; an input has no axis, or the extent of its first one is not known
/// to be a multiple of `microbatches`; `f` gives bools; those of `f`.
#[track_caller]
pub fn accumulate<X: Differentiable, O: Differentiable>(
    microbatches: usize,
    inputs: &X,
    f: impl FnOnce(&X) -> O,
) -> O {
    let caller = Location::caller();
    let fail = |error: Diagnostic| {
        let error = error.within(&caller, "the batch is divided here");
        if let Some(scope) = Scope::current() {
            scope.fail(&error);
        }
        Tensor::poisoned(error)
    };
    let parts = caller.attribute(|| parts(microbatches, inputs));
    let (structure, closure) = match &parts {
        Ok(parts) => traced(parts, inputs, f),
        // The closure runs for the structure of its result only.
        Err(error) => {
            let poisoned = fail(error.clone());
            let given = f(&inputs.map_tensors(&KeyPath::default(), &mut |_, _| poisoned.clone()));
            (given, Err(error.clone()))
        }
    };
    let _user = caller.attributed();
    let mut totals = match parts.and_then(|parts| total(parts, &closure?, microbatches)) {
        Ok(totals) => totals,
        Err(error) => vec![fail(error); structure.tensors().len()],
    }
    .into_iter();
    structure.map_tensors(&KeyPath::default(), &mut |_, _| {
        totals.next().expect("there is a sum for each tensor of the result")
    })
}

/// The inputs with the parts along a new first axis.
fn parts<X: Differentiable>(count: usize, inputs: &X) -> Result<Vec<Tensor>> {
    if count == 0 {
        return Err(diagnostic!("a batch is divided into 0 parts").help("give 1 or more"));
    }
    let divided = |(path, tensor): (KeyPath, Tensor)| {
        if let Some(error) = tensor.error() {
            return Err(error.clone());
        }
        let examples = tensor.shape().first();
        let size = examples.and_then(|n| n.checked_exact_div(&Dim::from(count)));
        let Some(size) = size else {
            let name = if path.as_str().is_empty() { "it".into() } else { format!("`{path}`") };
            let error = diagnostic!(
                "a batch cannot be divided into {count} equal parts: {name} has type {}",
                tensor.ty()
            );
            let error = match tensor.defined_at() {
                Some(place) => error.at(place, "the batch is made here"),
                None => error,
            };
            return Err(error.help(format!(
                "give the first axis an extent that is a multiple of {count}: a number, or \
                 `{count}*B` with a dimension variable B"
            )));
        };
        let rest = tensor.shape().iter().skip(1).cloned();
        Ok(tensor.reshape([Dim::from(count), size].into_iter().chain(rest)))
    };
    inputs.tensors().into_iter().map(divided).collect()
}

/// The result of `f` for one part, and its computation as a closure of the part.
fn traced<X: Differentiable, O: Differentiable>(
    parts: &[Tensor],
    inputs: &X,
    f: impl FnOnce(&X) -> O,
) -> (O, Result<Closure>) {
    let Some(scope) = Scope::current().map(|scope| scope.child()) else {
        let error = Diagnostic::new("there is no function to put a loop in")
            .help("call `accumulate` inside `Program::function`");
        return (f(inputs), Err(error));
    };
    let mut slices = parts.iter().map(|part| {
        let ty = part.ty().with_shape(part.shape()[1..].to_vec());
        scope.input_at(ty, part.defined_at().unwrap_or_default())
    });
    let part = inputs.map_tensors(&KeyPath::default(), &mut |_, _| {
        slices.next().expect("there is a part of each input")
    });
    let given = scope.enter(|| f(&part));
    let outputs: Vec<Tensor> = given.tensors().into_iter().map(|(_, tensor)| tensor).collect();
    let closure = match outputs.iter().find_map(Tensor::error) {
        Some(error) => Err(error.clone()),
        None => scope.close(&outputs),
    };
    (given, closure)
}

/// The sums of the closure's results over all parts, divided by their number where they are floats.
fn total(parts: Vec<Tensor>, closure: &Closure, count: usize) -> Result<Vec<Tensor>> {
    let body = &closure.body;
    let sum_of = |ty: &TensorType| match ty.dtype {
        DType::Bool => Err(diagnostic!("parts of a batch give a tensor of {ty}, which has no sum")
            .help("convert it to integers to count, or reduce it to a mean of floats")),
        dtype => Ok(Tensor::zeros(&ty.with_dtype(dtype.wide()))),
    };
    let zeros: Vec<Tensor> = body.types(&body.outputs).iter().map(sum_of).collect::<Result<_>>()?;
    let (sums, _) = control::scan(&zeros, &parts, |sums, part| {
        let operands: Vec<Tensor> = part.iter().chain(&closure.captures).cloned().collect();
        let added = match inline(body, &operands) {
            Ok(results) => {
                sums.iter().zip(results).map(|(sum, t)| sum + t.convert(sum.dtype())).collect()
            }
            Err(error) => vec![Tensor::poisoned(error); sums.len()],
        };
        (added, Vec::<Tensor>::new())
    });
    let mean = |sum: Tensor| if sum.dtype().is_float() { sum / count as f64 } else { sum };
    Ok(sums.into_iter().map(mean).collect())
}
