//! Re-exports of differential operators and maps on closures, and of custom rules: see
//! [`wengert_compiler::autodiff::operators`], [`wengert_compiler::autodiff::rules`] and
//! [`wengert_compiler::vmap::operators`].
//!
//! ```
//! use wengert::prelude::*;
//! # fn main() -> Result<()> {
//! let mut program = Program::new();
//! program.function("slope", |f| {
//!     let x = f.input("x", f32(""));
//!     // d/dx x³ = 3x²; d²/dx² x³ = 6x.
//!     let cube = |x: &Tensor| x * x * x;
//!     f.output("first", grad(&x, cube));
//!     f.output("second", grad(&x, |x| grad(x, cube)));
//! })?;
//! let mut session = Session::open(Device::Interpreter)?;
//! let y = session.compile(&program, "slope", bind!())?.run(&[("x", Literal::from(5.0f32))])?;
//! assert_eq!((y.scalar("first")?, y.scalar("second")?), (75.0, 30.0));
//! # Ok(())
//! # }
//! ```

pub use wengert_compiler::autodiff::implicit::{
    Solver, TransposeSolve, custom_linear_solve, custom_root,
};
pub use wengert_compiler::autodiff::operators::{
    Differential, Outputs, Pullback, grad, grad_and_hvp, grad_wrt, gvp, hessian, hessian_blocks,
    hvp, jacfwd, jacrev, jet, jvp, linearize, nth_derivative, transpose, value_and_grad,
    value_and_grad_wrt, value_and_jacfwd, value_and_jacrev, value_aux_and_grad,
    value_grad_and_hessian, vjp,
};
pub use wengert_compiler::autodiff::residuals::{
    Residual, ResidualKind, Residuals, saved_residuals,
};
pub use wengert_compiler::autodiff::rules::{
    call, checkpoint, custom_jvp, custom_jvp_named, custom_vjp, opaque, with_derivative,
};
pub use wengert_compiler::vmap::operators::{Axes, ByPath, vmap, vmap_axes};
pub use wengert_core::op::Checkpoint;

use wengert_core::{Differentiable, Result};

/// Prints to standard error the residuals that reverse mode would keep of a closure, as the table
/// of [`saved_residuals`], and the sum of the stored bytes.
///
/// Errors: those of the closure and of its derivative.
#[track_caller]
pub fn print_saved_residuals<M: Differentiable, O: Differentiable>(
    at: &M,
    f: impl FnOnce(&M) -> O,
) -> Result<()> {
    let residuals = saved_residuals(at, f)?;
    let bytes =
        residuals.stored_bytes().map_or_else(|| "an unknown number of".into(), |n| n.to_string());
    eprint!("{residuals}");
    eprintln!("{} values stored, {bytes} bytes", residuals.stored().count());
    Ok(())
}
