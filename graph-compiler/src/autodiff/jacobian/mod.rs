//! Derivatives as matrices: [`jacfwd`], [`jacrev`], [`hessian`], and products with them, [`hvp`]
//! and [`gvp`].
//!
//! A linearized closure is a linear map J that can be applied to a tangent (`J·t`) and,
//! transposed, to a cotangent (`Jᵀ·c`). To obtain J itself, it is applied to all vectors of a
//! basis at once: the linear program is *mapped* over them ([`vmap`](crate::vmap)). It is neither
//! run once per vector nor unrolled. Applied to the basis of the argument it gives columns of J
//! (forward mode), to that of the result rows (reverse mode). The cost is that of one derivative
//! times the number of basis vectors. So forward mode suits functions with few input elements,
//! reverse mode functions with few result elements. The program is mapped separately for each
//! tensor on the side of the basis: the other tensors are symbolic zeros, and their terms are not
//! computed.
//!
//! A Jacobian has the result's axes in front of the argument's: y of shape `[m, n]` and x of
//! shape `[k]` give `[m, n, k]`, with `∂y[i,j]/∂x[l]` at `[i,j,l]`. For a model, it is a tangent
//! vector of the model whose tensors have the result's axes in front, in the model's dtypes. A
//! result of several tensors has one Jacobian for each ([`Outputs`]).
//!
//! The Hessian is the Jacobian of the gradient, ∂²f/∂x∂y at row x and column y. It uses forward
//! over reverse mode, the cheaper order of the two.

mod basis;
mod batch;
mod outputs;
mod second;

pub(super) use basis::{Blocks, columns, rows};
pub use outputs::Outputs;
pub use second::{grad_and_hvp, gvp, hessian, hessian_blocks, hvp, value_grad_and_hessian};
pub(super) use second::{hessian_of_body, hvp_of_body};

use super::Linear;
use super::operators::linearize as linearize_closure;
use super::values::{poison, tangent_of};
use wengert_core::{Diagnostic, Differentiable, KeyPath, Location, Result, Tensor};

/// The Jacobian of a closure, J\[i, j\] = ∂yᵢ/∂xⱼ, by forward mode: column j is J·eⱼ, the
/// derivative along the j-th vector of the standard basis. All columns are computed at once. It
/// costs one `jvp` per element of the argument, so it suits functions with few input elements.
/// The result has the form of [`jacrev`]'s.
#[track_caller]
pub fn jacfwd<M: Differentiable, O: Outputs>(
    at: &M,
    f: impl FnOnce(&M) -> O,
) -> O::Each<M::TangentVector> {
    value_and_jacfwd(at, f).1
}

/// The Jacobian of a closure, J\[i, j\] = ∂yᵢ/∂xⱼ, by reverse mode: row i is Jᵀ·eᵢ, the pullback
/// of the i-th vector of the standard basis. All rows are computed at once. It costs one `vjp`
/// per element of the result, so it suits functions with few result elements.
///
/// For each tensor y of the result there is a tangent vector of the argument, whose component for
/// the tensor x has the shape of y followed by that of x. Integers have no derivative; their
/// components are zero.
///
/// ```
/// # use wengert_core::{DType, Literal, TensorType, build::FunctionBuilder, interpret};
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
pub fn jacrev<M: Differentiable, O: Outputs>(
    at: &M,
    f: impl FnOnce(&M) -> O,
) -> O::Each<M::TangentVector> {
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
    let _user = caller.attributed();
    let blocks = differential.linear().and_then(blocks).map_err(|e| failed(e, caller));
    let mut row = 0..;
    let jacobian = output.each(&mut || {
        let row = row.next().expect("numbers do not end");
        match &blocks {
            Ok(blocks) => {
                tangent_of(at, &blocks[row].iter().cloned().map(Some).collect::<Vec<_>>())
            }
            Err(poison) => at.tangent(&KeyPath::default(), &mut |_, _| poison.clone()),
        }
    });
    (output, jacobian)
}

/// A poisoned tensor with an error located at `caller`.
fn failed(error: Diagnostic, caller: Location) -> Tensor {
    poison(&error.within(&caller, "differentiated here"))
}
