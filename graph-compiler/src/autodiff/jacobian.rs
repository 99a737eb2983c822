//! Derivatives as matrices: [`jacfwd`], [`jacrev`], [`hessian`], and products with them, [`hvp`] and [`gvp`].
//!
//! A linearized closure is a linear map J that can be applied to a tangent (`J·t`) and, transposed, to a cotangent (`Jᵀ·c`). To have J
//! itself, it is applied to the vectors of a basis, all at once: the linear program is *mapped* over them ([`vmap`](crate::vmap)), and
//! neither run once for each nor unrolled. Applied to the basis of the argument it gives columns of J (forward mode), to that of the
//! result rows (reverse mode). The cost is that of one derivative times the number of basis vectors, so forward mode suits functions of few
//! numbers, reverse mode those with few results. The program is mapped for each tensor of the basis' side by itself: the
//! others are symbolic zeros meanwhile, and what they would take part in is not computed.
//!
//! A Jacobian has the result's axes in front and the argument's behind: y of shape `[m, n]` and x of shape `[k]` give `[m, n, k]`, with
//! ∂y[i,j]/∂x[l] at `[i,j,l]`. For a model, it is a tangent vector of the model whose tensors have the result's axes in front, in
//! the model's dtypes. Of a result that is several tensors, there is one for each ([`Outputs`]).
//!
//! The Hessian is the Jacobian of the gradient, ∂²f/∂x∂y at row x and column y: forward mode over reverse mode, the cheapest order of the two.

use super::jvp::zeros;
use super::operators::{
    Differential, Traced, components_of, enter_scope_of, fit, linearize as linearize_closure, needs_scalar,
    poison, tangent_of,
};
use super::{Linear, jvp as jvp_of_body, linearize, record};
use crate::vmap::{Value, batch};
use wengert_core::graph::build::Closure;
use wengert_core::{
    DType, Diagnostic, Differentiable, Dim, KeyPath, Literal, Location, Result, Scalar, Tensor, TensorType,
};

/// What a closure may return if its Jacobian is wanted: a tensor, or several in tuples, arrays, vectors, options.
#[diagnostic::on_unimplemented(
    message = "the Jacobian of a `{Self}` has no type",
    label = "not `Outputs`",
    note = "return a tensor, or a tuple, array or vector of tensors"
)]
pub trait Outputs: Differentiable {
    /// The same arrangement of something for each tensor: its row of a Jacobian.
    type Each<T>;

    /// Makes something for each tensor, in the order of [`Differentiable::tensors`].
    fn each<T>(&self, make: &mut dyn FnMut() -> T) -> Self::Each<T>;
}

impl Outputs for Tensor {
    type Each<T> = T;
    fn each<T>(&self, make: &mut dyn FnMut() -> T) -> T {
        make()
    }
}

impl<O: Outputs> Outputs for Vec<O>
where
    Vec<O>: Differentiable,
{
    type Each<T> = Vec<O::Each<T>>;
    fn each<T>(&self, make: &mut dyn FnMut() -> T) -> Self::Each<T> {
        self.iter().map(|item| item.each(make)).collect()
    }
}

impl<O: Outputs> Outputs for Option<O>
where
    Option<O>: Differentiable,
{
    type Each<T> = Option<O::Each<T>>;
    fn each<T>(&self, make: &mut dyn FnMut() -> T) -> Self::Each<T> {
        self.as_ref().map(|item| item.each(make))
    }
}

impl<O: Outputs> Outputs for Box<O>
where
    Box<O>: Differentiable,
{
    type Each<T> = O::Each<T>;
    fn each<T>(&self, make: &mut dyn FnMut() -> T) -> Self::Each<T> {
        (**self).each(make)
    }
}

impl<O: Outputs, const N: usize> Outputs for [O; N]
where
    [O; N]: Differentiable,
{
    type Each<T> = [O::Each<T>; N];
    fn each<T>(&self, make: &mut dyn FnMut() -> T) -> Self::Each<T> {
        std::array::from_fn(|i| self[i].each(make))
    }
}

macro_rules! tuple {
    ($($t:ident $i:tt),+) => {
        impl<$($t: Outputs),+> Outputs for ($($t,)+)
        where
            ($($t,)+): Differentiable,
        {
            type Each<T> = ($($t::Each<T>,)+);
            fn each<T>(&self, make: &mut dyn FnMut() -> T) -> Self::Each<T> {
                ($(self.$i.each(make),)+)
            }
        }
    };
}
tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);

/// The Jacobian of a closure by forward mode, column by column; for functions of few numbers. See [`jacrev`].
#[track_caller]
pub fn jacfwd<M: Differentiable, O: Outputs>(at: &M, f: impl FnOnce(&M) -> O) -> O::Each<M::TangentVector> {
    value_and_jacfwd(at, f).1
}

/// The Jacobian of a closure by reverse mode, row by row; for functions with few results.
///
/// For each tensor y of the result a tangent vector of the argument, of which the tensor that belongs to x has the shape of y followed by that
/// of x. Integers have no derivative; theirs is zero.
///
/// ```
/// # use wengert_core::{DType, Literal, TensorType, graph::build::FunctionBuilder, interpret};
/// # use wengert_compiler::autodiff::operators::jacrev;
/// let f = FunctionBuilder::build("f", |f| {
///     let x = f.input("x", TensorType::new(DType::F64, [3usize]));
///     f.output("jacobian", jacrev(&x, |x| x * x));
/// })?;
/// let x = Literal::from_vec(&[3], vec![1.0, 2.0, 3.0])?;
/// let jacobian = interpret::run(&f, &[x])?.swap_remove(0);
/// assert_eq!(jacobian.as_slice::<f64>().unwrap(), [2.0, 0.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0, 6.0]);
/// # Ok::<(), wengert_core::Diagnostic>(())
/// ```
#[track_caller]
pub fn jacrev<M: Differentiable, O: Outputs>(at: &M, f: impl FnOnce(&M) -> O) -> O::Each<M::TangentVector> {
    value_and_jacrev(at, f).1
}

/// Value and Jacobian, by forward mode.
#[track_caller]
pub fn value_and_jacfwd<M: Differentiable, O: Outputs>(
    at: &M,
    f: impl FnOnce(&M) -> O,
) -> (O, O::Each<M::TangentVector>) {
    value_and_jacobian(at, f, columns)
}

/// Value and Jacobian, by reverse mode.
#[track_caller]
pub fn value_and_jacrev<M: Differentiable, O: Outputs>(
    at: &M,
    f: impl FnOnce(&M) -> O,
) -> (O, O::Each<M::TangentVector>) {
    value_and_jacobian(at, f, rows)
}

#[track_caller]
fn value_and_jacobian<M: Differentiable, O: Outputs>(
    at: &M,
    f: impl FnOnce(&M) -> O,
    blocks: fn(&Linear) -> Result<Vec<Blocks>>,
) -> (O, O::Each<M::TangentVector>) {
    let caller = Location::caller();
    let (output, differential) = linearize_closure(at, f);
    let blocks = differential.linear().and_then(blocks).map_err(|e| failed(e, caller));
    let mut row = 0..;
    let jacobian = output.each(&mut || {
        let row = row.next().expect("numbers do not end");
        match &blocks {
            Ok(blocks) => tangent_of(at, &blocks[row].iter().cloned().map(Some).collect::<Vec<_>>()),
            Err(poison) => at.tangent(&KeyPath::default(), &mut |_, _| poison.clone()),
        }
    });
    (output, jacobian)
}

/// The Hessian of a scalar-valued closure: for each tensor x of the argument a tangent vector of the argument, of which the tensor that
/// belongs to y is ∂²f/∂x∂y, with the shape of x followed by that of y.
///
/// The argument is a tensor, or several in tuples, arrays and vectors. For a model of any type there is [`hessian_blocks`].
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
    let hessian = gradient.each(&mut || blocks.next().expect("one block for each tensor of the gradient").1);
    (value, gradient, hessian)
}

/// The Hessian of a scalar-valued closure over a model of any type: for each of its tensors the key path, and the row of blocks.
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

/// The Hessian's product with a tangent, H·v, of a scalar-valued closure: the derivative of the gradient along `v`. It costs
/// about as much as two gradients, whatever the number of variables.
#[track_caller]
pub fn hvp<M: Differentiable>(
    at: &M,
    v: &M::TangentVector,
    f: impl FnOnce(&M) -> Tensor,
) -> M::TangentVector {
    grad_and_hvp(at, v, f).1
}

/// The gradient of a scalar-valued closure, and its Hessian's product with a tangent.
#[track_caller]
pub fn grad_and_hvp<M: Differentiable>(
    at: &M,
    v: &M::TangentVector,
    f: impl FnOnce(&M) -> Tensor,
) -> (M::TangentVector, M::TangentVector) {
    let caller = Location::caller();
    let _entered = enter_scope_of(at);
    let traced = Traced::of(at, f);
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

/// The Gauss-Newton matrix's product with a tangent, Jᵀ·H·J·v: J is the Jacobian of `model` and H the Hessian of `loss` at what `model`
/// returns. It is the part of the Hessian of the whole that does not bend the model, and is positive semidefinite where the loss is convex.
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

impl<M: Differentiable, O: Differentiable> Differential<M, O> {
    /// The tangents of the value along many tangents at once: each tensor has an axis in front over them, and so have the result's.
    #[track_caller]
    pub fn push_forward_batch(&self, tangents: &M::TangentVector) -> O::TangentVector {
        self.batch("tangent", &self.at, &self.output, &components_of(&self.at, tangents), |l, t| l.apply(t))
    }

    /// The cotangents of the point from many of the value at once: each tensor has an axis in front over them, and so have the result's.
    #[track_caller]
    pub fn pull_back_batch(&self, cotangents: &O::TangentVector) -> M::TangentVector {
        self.batch("cotangent", &self.output, &self.at, &components_of(&self.output, cotangents), |l, c| {
            l.transpose(c)
        })
    }

    #[track_caller]
    fn batch<A: Differentiable, B: Differentiable>(
        &self,
        what: &str,
        from: &A,
        to: &B,
        vectors: &[Option<Tensor>],
        f: impl FnOnce(&Linear, &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>>,
    ) -> B::TangentVector {
        let caller = Location::caller();
        let result = self.linear().and_then(|linear| {
            let size = fit_batch(what, from, vectors)?;
            let floats = |v: &Option<Tensor>| v.clone().filter(|t| t.dtype().is_float());
            let results = mapped(&vectors.iter().map(floats).collect::<Vec<_>>(), &size, |v| f(linear, v))?;
            let tensors = to.tensors();
            let present = |(result, (_, t)): (Option<Tensor>, &(KeyPath, Tensor))| {
                result
                    .map_or_else(|| zeros(&with_front(std::slice::from_ref(&size), t.ty(), t.dtype())), Ok)
                    .map(Some)
            };
            results.into_iter().zip(&tensors).map(present).collect::<Result<Vec<_>>>()
        });
        let results = result.unwrap_or_else(|error| vec![Some(failed(error, caller)); to.tensors().len()]);
        tangent_of(to, &results)
    }
}

/// Checks that each vector is a batch of vectors of `value`, all of one size, which is returned.
fn fit_batch(what: &str, value: &impl Differentiable, vectors: &[Option<Tensor>]) -> Result<Dim> {
    let first =
        vectors.iter().flatten().find_map(|v| v.error().map_or_else(|| v.shape().first().cloned(), |_| None));
    if let Some(error) = vectors.iter().flatten().find_map(Tensor::error) {
        return Err(error.clone());
    }
    let Some(size) = first else {
        return Err(Diagnostic::new(format!(
            "the batch of {what}s has no axis in front that runs over them"
        ))
        .help(format!("stack {what}s along a new first axis")));
    };
    for ((path, tensor), vector) in value.tensors().iter().zip(vectors) {
        let expected = with_front(std::slice::from_ref(&size), tensor.ty(), tensor.dtype());
        let Some(vector) = vector.as_ref().filter(|v| *v.ty() != expected) else { continue };
        let name = if path.as_str().is_empty() { String::new() } else { format!(" for `{path}`") };
        return Err(Diagnostic::new(format!(
            "the batch of {what}s{name} has type {}, a batch of {size} has {expected}",
            vector.ty()
        ))
        .at(vector.defined_at().unwrap_or_default(), "the batch is made here")
        .at(tensor.defined_at().unwrap_or_default(), "the value is made here")
        .help(format!("stack {what}s along a new first axis")));
    }
    Ok(size)
}

/// The poison of an error that is located at `caller`.
fn failed(error: Diagnostic, caller: Location) -> Tensor {
    poison(&error.at(caller, "differentiated here"))
}

/// A row of a Jacobian: a block for each input.
pub(super) type Blocks = Vec<Tensor>;

/// The Jacobian by forward mode: for each output the block of each input, with the output's axes in front and the input's dtype.
pub(super) fn columns(linear: &Linear) -> Result<Vec<Blocks>> {
    let mut blocks = empty(linear);
    for (i, (input, _)) in linear.inputs.iter().enumerate().filter(|(_, (_, active))| *active) {
        let column = against_basis(
            input,
            |vector| {
                let mut tangents = vec![None; linear.inputs.len()];
                tangents[i] = Some(vector);
                tangents
            },
            |tangents| linear.apply(tangents),
        )?;
        for (row, column) in blocks.iter_mut().zip(column) {
            let Some(column) = column else { continue };
            // The basis' axes are in front; they belong behind those of the output.
            let split = column.rank();
            let order: Vec<usize> = (input.rank()..split).chain(0..input.rank()).collect();
            row[i] = Some(column.permute(&order).convert(input.dtype));
        }
    }
    filled(linear, blocks)
}

/// The Jacobian by reverse mode: for each output the block of each input, with the output's axes in front and the input's dtype.
pub(super) fn rows(linear: &Linear) -> Result<Vec<Blocks>> {
    let mut blocks = empty(linear);
    for (o, (output, at)) in linear.outputs.iter().enumerate() {
        if at.is_none() {
            continue;
        }
        blocks[o] = against_basis(
            output,
            |vector| {
                let mut cotangents = vec![None; linear.outputs.len()];
                cotangents[o] = Some(vector);
                cotangents
            },
            |cotangents| linear.transpose(cotangents),
        )?;
    }
    filled(linear, blocks)
}

fn empty(linear: &Linear) -> Vec<Vec<Option<Tensor>>> {
    vec![vec![None; linear.inputs.len()]; linear.outputs.len()]
}

/// Symbolic zeros become numbers.
fn filled(linear: &Linear, blocks: Vec<Vec<Option<Tensor>>>) -> Result<Vec<Blocks>> {
    let row = |((output, _), row): (&(TensorType, Option<usize>), Vec<Option<Tensor>>)| {
        let block = |((input, _), block): (&(TensorType, bool), Option<Tensor>)| match block {
            Some(block) => match block.error() {
                Some(error) => Err(error.clone()),
                None => Ok(block),
            },
            None => zeros(&with_front(&output.shape, input, input.dtype)),
        };
        linear.inputs.iter().zip(row).map(block).collect()
    };
    linear.outputs.iter().zip(blocks).map(row).collect()
}

fn with_front(front: &[Dim], ty: &TensorType, dtype: DType) -> TensorType {
    TensorType { dtype, shape: front.iter().chain(&ty.shape).cloned().collect() }
}

/// `f` on each vector of the standard basis of a type; the results have the type's axes in front.
fn against_basis(
    ty: &TensorType,
    place: impl FnOnce(Tensor) -> Vec<Option<Tensor>>,
    f: impl FnOnce(&[Option<Tensor>]) -> Result<Vec<Option<Tensor>>>,
) -> Result<Vec<Option<Tensor>>> {
    if ty.rank() == 0 {
        return f(&place(Tensor::constant(Literal::full(&[], Scalar::one(ty.dtype)))));
    }
    let count = ty.shape.iter().try_fold(Dim::constant(1), |n, d| n.checked_mul(d)).ok_or_else(|| {
        Diagnostic::new(format!("a Jacobian needs the number of elements of {ty}, which is not linear"))
            .help("bind all but one of its dimension variables first")
    })?;
    // 1 where the number of the vector is that of the element.
    let index = match count.as_constant() {
        Some(n) if n <= i32::MAX as i64 => DType::I32,
        _ => DType::I64,
    };
    let square = [count.clone(), count.clone()];
    let ones = Tensor::iota(index, square.clone(), 0).eq(Tensor::iota(index, square, 1)).convert(ty.dtype);
    let basis = ones.reshape(std::iter::once(count.clone()).chain(ty.shape.iter().cloned()));
    if let Some(error) = basis.error() {
        return Err(error.clone());
    }
    let results = mapped(&place(basis), &count, f)?;
    let unfold = |t: Tensor| {
        let shape: Vec<Dim> = ty.shape.iter().chain(&t.shape()[1..]).cloned().collect();
        t.reshape(shape)
    };
    Ok(results.into_iter().map(|t| t.map(unfold)).collect())
}

/// `f` on each vector of a batch; `None` is zero, whichever the vector.
fn mapped(
    vectors: &[Option<Tensor>],
    size: &Dim,
    f: impl FnOnce(&[Option<Tensor>]) -> Result<Vec<Option<Tensor>>>,
) -> Result<Vec<Option<Tensor>>> {
    let one = |t: &Tensor| TensorType { dtype: t.dtype(), shape: t.shape()[1..].to_vec() };
    let types: Vec<TensorType> = vectors.iter().flatten().map(one).collect();
    let mut present = Vec::new();
    let closure = record(&types, |inputs| {
        let mut inputs = inputs.iter().cloned();
        let vectors: Vec<Option<Tensor>> =
            vectors.iter().map(|v| v.as_ref().and_then(|_| inputs.next())).collect();
        let results = f(&vectors)?;
        present = results.iter().map(Option::is_some).collect();
        Ok(results.into_iter().flatten().collect())
    })?;
    let mut values: Vec<Value> = vectors.iter().flatten().cloned().map(Value::Batched).collect();
    values.extend(closure.captures.iter().cloned().map(Value::Shared));
    let mut results = batch(&closure.body, &values, size)?.into_iter();
    let result = |present: &bool| match present {
        true => {
            let value = results.next().expect("a result for each that is present");
            value.along(0, size, &Location::Unknown).map(Some)
        }
        false => Ok(None),
    };
    present.iter().map(result).collect()
}

/// The gradient of a closure's one scalar output, as a closure of the same inputs: the value, then a cotangent for each input (zeros for
/// those that are not active).
pub(super) fn gradient_of_body(closure: &Closure, primals: &[Tensor], active: &[bool]) -> Result<Closure> {
    let types: Vec<TensorType> = primals.iter().map(|t| t.ty().clone()).collect();
    let ty = closure.body.ty(closure.body.outputs[0]).clone();
    record(&types, |inputs| {
        let linearized = linearize(closure, inputs, active, &[true])?;
        let one = Tensor::constant(Literal::full(&[], Scalar::one(ty.dtype)));
        let cotangents = linearized.linear.transpose(&[Some(one)])?;
        let mut outputs = linearized.outputs;
        for (cotangent, ty) in cotangents.into_iter().zip(&types) {
            outputs.push(cotangent.map_or_else(|| zeros(ty), Ok)?);
        }
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

/// Value, gradient, and for each input the row of second derivatives.
pub(super) fn hessian_of_body(
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

/// Value, gradient, and the Hessian's product with `tangents`; `None` is zero.
pub(super) fn hvp_of_body(
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
