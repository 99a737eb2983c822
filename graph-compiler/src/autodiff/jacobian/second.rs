//! Second derivatives: the Hessian, and products with it and with the Gauss-Newton matrix.

use super::{Blocks, Outputs, columns, failed};
use crate::autodiff::jvp::with_zeros;
use crate::autodiff::operators::{linearize as linearize_closure, needs_scalar};
use crate::autodiff::values::{Traced, components_of, enter_scope_of, fit, tangent_of, types};
use crate::autodiff::{jvp as jvp_of_body, linearize, record};
use wengert_core::build::Closure;
use wengert_core::{Diagnostic, Differentiable, KeyPath, Location, Result, Scalar, Tensor};

/// The Hessian of a scalar-valued closure. For each tensor x of the argument it has a tangent
/// vector of the argument, whose component for the tensor y is ∂²f/∂x∂y, with the shape of x
/// followed by that of y.
///
/// It is the Jacobian of the gradient, by forward over reverse mode: one `jvp` of the gradient
/// per variable, all at once.
///
/// ```
/// # use wengert_core::{DType, Literal, TensorType, build::FunctionBuilder, interpret};
/// # use wengert_compiler::autodiff::operators::hessian;
/// let f = FunctionBuilder::build("f", |f| {
///     let scalar = || TensorType::scalar(DType::F64);
///     let (x, y) = (f.input("x", scalar()), f.input("y", scalar()));
///     let ((xx, xy), (yx, yy)) = hessian(&(x, y), |(x, y)| x * x * y);
///     for (name, h) in [("xx", xx), ("xy", xy), ("yx", yx), ("yy", yy)] {
///         f.output(name, h);
///     }
/// })?;
/// // 2y, 2x, 2x, 0.
/// let results = interpret::run(&f, &[Literal::from(3.0f64), Literal::from(5.0f64)])?;
/// assert_eq!(results, [10.0f64, 6.0, 6.0, 0.0].map(Literal::from));
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
///
/// The argument is a tensor, or several in tuples, arrays and vectors. For a model of any type
/// there is [`hessian_blocks`].
#[track_caller]
pub fn hessian<M: Differentiable>(
    at: &M,
    f: impl FnOnce(&M) -> Tensor,
) -> <M::TangentVector as Outputs>::Each<M::TangentVector>
where
    M::TangentVector: Outputs,
{
    value_grad_and_hessian(at, f).2
}

/// Value, gradient and Hessian of a scalar-valued closure.
#[track_caller]
pub fn value_grad_and_hessian<M: Differentiable>(
    at: &M,
    f: impl FnOnce(&M) -> Tensor,
) -> (Tensor, M::TangentVector, <M::TangentVector as Outputs>::Each<M::TangentVector>)
where
    M::TangentVector: Outputs,
{
    let (value, gradient, blocks) = second_order(at, f);
    let mut blocks = blocks.into_iter();
    let hessian =
        gradient.each(&mut || blocks.next().expect("one block for each tensor of the gradient").1);
    (value, gradient, hessian)
}

/// The Hessian of a scalar-valued closure over a model of any type: for each of its tensors the
/// key path, and the row of blocks.
#[track_caller]
pub fn hessian_blocks<M: Differentiable>(
    at: &M,
    f: impl FnOnce(&M) -> Tensor,
) -> Vec<(KeyPath, M::TangentVector)> {
    second_order(at, f).2
}

/// For each tensor of an argument its key path and its row.
type RowsByPath<T> = Vec<(KeyPath, T)>;

#[track_caller]
fn second_order<M: Differentiable>(
    at: &M,
    f: impl FnOnce(&M) -> Tensor,
) -> (Tensor, M::TangentVector, RowsByPath<M::TangentVector>) {
    let caller = Location::caller();
    let _entered = enter_scope_of(at);
    let traced = Traced::of(at, f);
    let _user = caller.attributed();
    let result = traced.closure.as_ref().map_err(Clone::clone).and_then(|closure| {
        let active: Vec<bool> = traced.primals.iter().map(|t| t.dtype().is_float()).collect();
        hessian_of_body(closure, &traced.primals, &active)
    });
    let paths = at.tensors().into_iter().map(|(path, _)| path);
    match result {
        Ok((value, gradient, rows)) => {
            let gradient: Vec<_> = gradient.into_iter().map(Some).collect();
            let row = |row: Blocks| tangent_of(at, &row.into_iter().map(Some).collect::<Vec<_>>());
            (value, tangent_of(at, &gradient), paths.zip(rows.into_iter().map(row)).collect())
        }
        Err(error) => {
            let poison = failed(error, caller);
            let all = || at.tangent(&KeyPath::default(), &mut |_, _| poison.clone());
            (poison.clone(), all(), paths.map(|path| (path, all())).collect())
        }
    }
}

/// The Hessian-vector product H·v of a scalar-valued closure: the derivative of the gradient
/// along `v`, lim (∇f(m + h·v) − ∇f(m)) / h, by forward over reverse mode. It costs about two
/// gradients, whatever the number of variables. H itself is never made.
///
/// ```
/// # use wengert_core::{DType, Literal, TensorType, build::FunctionBuilder, interpret};
/// # use wengert_compiler::autodiff::operators::hvp;
/// let f = FunctionBuilder::build("f", |f| {
///     let x = f.input("x", TensorType::new(DType::F64, [2usize]));
///     f.output("product", hvp(&x, &x.full_like(1.0), |x| (x * x * x).sum()));
/// })?;
/// // H is diagonal, with 6xᵢ.
/// let results = interpret::run(&f, &[Literal::from_vec(&[2], vec![1.0, 2.0])?])?;
/// assert_eq!(results[0].as_slice::<f64>().unwrap(), [6.0, 12.0]);
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[track_caller]
pub fn hvp<M: Differentiable>(
    at: &M,
    v: &M::TangentVector,
    f: impl FnOnce(&M) -> Tensor,
) -> M::TangentVector {
    grad_and_hvp(at, v, f).1
}

/// The gradient of a scalar-valued closure, and its Hessian-vector product.
#[track_caller]
pub fn grad_and_hvp<M: Differentiable>(
    at: &M,
    v: &M::TangentVector,
    f: impl FnOnce(&M) -> Tensor,
) -> (M::TangentVector, M::TangentVector) {
    let caller = Location::caller();
    let _entered = enter_scope_of(at);
    let traced = Traced::of(at, f);
    let _user = caller.attributed();
    let tangents = components_of(at, v);
    let result = traced.closure.as_ref().map_err(Clone::clone).and_then(|closure| {
        fit("tangent", at, &tangents)?;
        let active: Vec<bool> = traced.primals.iter().map(|t| t.dtype().is_float()).collect();
        let (_, gradient, product) = hvp_of_body(closure, &traced.primals, &active, &tangents)?;
        Ok((gradient, product))
    });
    let (gradient, product) = result.unwrap_or_else(|error| {
        let poison = failed(error, caller);
        (vec![poison.clone(); tangents.len()], vec![Some(poison); tangents.len()])
    });
    let gradient: Vec<_> = gradient.into_iter().map(Some).collect();
    (tangent_of(at, &gradient), tangent_of(at, &product))
}

/// The Gauss-Newton-vector product Jᵀ·H·J·v. J is the Jacobian of `model`, and H the Hessian of
/// `loss` at the model's result. The Hessian of the composition is Jᵀ·H·J + Σₖ ∂loss/∂yₖ · D²yₖ.
/// This is its first term, without the model's second derivatives; it is positive semidefinite
/// where the loss is convex.
#[track_caller]
pub fn gvp<M: Differentiable, O: Differentiable>(
    at: &M,
    v: &M::TangentVector,
    model: impl FnOnce(&M) -> O,
    loss: impl FnOnce(&O) -> Tensor,
) -> M::TangentVector {
    let (outputs, differential) = linearize_closure(at, model);
    let curved = hvp(&outputs, &differential.push_forward(v), loss);
    differential.pull_back(&curved)
}

/// The gradient of a closure's only output, a scalar, as a closure of the same inputs. It returns
/// the value, then a cotangent for each input (zeros for inactive ones).
fn gradient_of_body(closure: &Closure, primals: &[Tensor], active: &[bool]) -> Result<Closure> {
    let types = types(primals);
    let ty = closure.body.ty(closure.body.outputs[0]).clone();
    record(&types, |inputs| {
        let linearized = linearize(closure, inputs, active, &[true])?;
        let one = Tensor::full(&ty, Scalar::one(ty.dtype));
        let cotangents = linearized.linear.transpose(&[Some(one)])?;
        let mut outputs = linearized.outputs;
        outputs.extend(with_zeros(cotangents, &types)?);
        Ok(outputs)
    })
}

fn check_scalar(operator: &str, closure: &Closure, active: &[bool]) -> Result<()> {
    needs_scalar(operator, closure)?;
    match active.contains(&true) {
        true => Ok(()),
        false => Err(Diagnostic::new("there are no floats to differentiate with respect to")
            .help("integers and bools have no derivative")),
    }
}

/// Value, gradient, and for each input its row of second derivatives.
pub(in crate::autodiff) fn hessian_of_body(
    closure: &Closure,
    primals: &[Tensor],
    active: &[bool],
) -> Result<(Tensor, Vec<Tensor>, Vec<Blocks>)> {
    check_scalar("hessian", closure, active)?;
    let gradient = gradient_of_body(closure, primals, active)?;
    let wanted: Vec<bool> = std::iter::once(false).chain(active.iter().copied()).collect();
    let linearized = linearize(&gradient, primals, active, &wanted)?;
    let mut rows = columns(&linearized.linear)?;
    rows.remove(0);
    let mut outputs = linearized.outputs.into_iter();
    let value = outputs.next().expect("the value comes first");
    Ok((value, outputs.collect(), rows))
}

/// Value, gradient, and the Hessian-vector product with `tangents`; `None` is zero.
pub(in crate::autodiff) fn hvp_of_body(
    closure: &Closure,
    primals: &[Tensor],
    active: &[bool],
    tangents: &[Option<Tensor>],
) -> Result<(Tensor, Vec<Tensor>, Vec<Option<Tensor>>)> {
    check_scalar("hvp", closure, active)?;
    let gradient = gradient_of_body(closure, primals, active)?;
    let mut directions: Vec<Option<Tensor>> =
        tangents.iter().zip(active).map(|(t, active)| t.clone().filter(|_| *active)).collect();
    let mut primals = primals.to_vec();
    primals.extend(gradient.captures.iter().cloned());
    directions.resize(primals.len(), None);
    let wanted: Vec<bool> = std::iter::once(false).chain(active.iter().copied()).collect();
    let (outputs, mut products) = jvp_of_body(&gradient.body, &primals, &directions, &wanted)?;
    products.remove(0);
    let mut outputs = outputs.into_iter();
    let value = outputs.next().expect("the value comes first");
    Ok((value, outputs.collect(), products))
}
