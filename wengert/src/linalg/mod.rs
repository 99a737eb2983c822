//! Linear algebra in the graph: factorizations and solvers.
//!
//! | function | gives | derivative |
//! |---|---|---|
//! | [`triangular_solve`] | x with op(a)·x = b, or x·op(a) = b | the op itself, to any order |
//! | [`cholesky()`] | L with L·Lᵀ = a | dL = L·Φ(L⁻¹·da·L⁻ᵀ) |
//! | [`lu()`] | L\U, pivots and permutation | dL = L·low(F), dU = up(F)·U, F = L⁻¹·P·da·U⁻¹ |
//! | [`qr()`] | a = Q·R, full or reduced | dQ = Q·(Ω − F) + da·R⁻¹, dR = Qᵀ·da − Ω·R |
//! | [`eigh()`], [`eigvalsh`] | w, v of a symmetric matrix | dw = diag(vᵀ·da·v), dv = v·(F∘(vᵀ·da·v)) |
//! | [`svd()`], [`svdvals`] | a = u·diag(s)·vt, full or reduced | ds = diag(uᵀ·da·v), … |
//! | [`solve()`], [`inv`] | a⁻¹·b, a⁻¹ | a⁻¹·(db − da·x), −y·da·y |
//! | [`det()`], [`slogdet`] | determinants | tr(adj(a)·da), tr(a⁻¹·da) |
//! | [`Cg`] | a⁻¹·b of a map known by its products | by the same iteration |
//! | [`matrix_exp()`] | eᵃ | that of the approximation |
//!
//! # Implementation
//!
//! A factorization is neither an op nor a library routine, but a program in the graph's own
//! language: a loop over columns within a loop over blocks of columns, so that most of the work
//! is in matrix products. The graph of a matrix of 1000 columns is as large as that of one of 40,
//! and a device needs only loops, products and elementwise kernels. So factorizations run on
//! every device, are planned to the byte, and are mapped over a batch like other programs:
//! leading axes `[…, n, n]` are a `vmap`.
//!
//! # Differentiation
//!
//! The loop is not differentiated. Each function has a rule for its tangents
//! ([`custom_jvp`](crate::operators::custom_jvp)), a formula in the *results*: the derivative of
//! a Cholesky factor solves with the factor and does not factorize again. The formulas are
//! products, masks and [`triangular_solve`], an op with its own rule. So rules can be
//! differentiated again, in both modes and to any order; a result used in a rule is
//! differentiated by its own rule.
//!
//! # Where there is no derivative
//!
//! A factorization has none where it is not unique in a neighbourhood. Each function documents
//! its result there.

mod cg;
mod cholesky;
mod det;
mod eigh;
mod lu;
mod matrix;
mod matrix_exp;
mod qr;
mod solve;
mod svd;
mod triangular;

pub use cg::{Cg, Preconditioner};
pub use cholesky::cholesky;
pub use det::{det, slogdet};
pub use eigh::{eigh, eigvalsh};
pub use lu::lu;
pub use matrix_exp::matrix_exp;
pub use qr::qr;
pub use solve::{inv, solve};
pub use svd::{svd, svdvals};
pub use triangular::triangular_solve;
pub use wengert_core::op::TriangularSolve;
