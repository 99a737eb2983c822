//! The method of conjugate gradients (M. Hestenes and E. Stiefel, *Methods of conjugate gradients
//! for solving linear systems*, 1952).

use crate::control::while_at_most;
use crate::core::KeyPath;
use crate::core::build::Scope;
use crate::operators::{TransposeSolve, custom_linear_solve};
use crate::{Diagnostic, Dim, Location, Tensor, VectorSpace};

/// Approximates A⁻¹·r for a residual r of [`Cg`].
pub type Preconditioner<'a, B> = &'a dyn Fn(&B) -> B;

/// Start and termination of conjugate gradients. The names and defaults are those of
/// `jax.scipy.sparse.linalg.cg`.
#[derive(Clone, Copy)]
pub struct Cg<'a, B> {
    /// The starting point; 0 by default.
    pub x0: Option<&'a B>,
    /// The iteration ends when |b − A·x| ≤ max(tol · |b|, atol).
    pub tol: f64,
    /// See `tol`.
    pub atol: f64,
    /// Most steps; by default ten times the number of elements of b.
    pub max_steps: Option<usize>,
    /// An approximation of A⁻¹, symmetric and positive definite; the identity by default.
    pub preconditioner: Option<Preconditioner<'a, B>>,
}

impl<B> Default for Cg<'_, B> {
    fn default() -> Self {
        Cg { x0: None, tol: 1e-5, atol: 0.0, max_steps: None, preconditioner: None }
    }
}

impl<B: VectorSpace> Cg<'_, B> {
    /// The solution x of A·x = b, where A is known only by its product `map`, x ↦ A·x. A is
    /// linear, symmetric and positive definite; this is not checked.
    ///
    /// `b` is any value of floats: a tensor, a tuple, a model, so A may be a Hessian of a model's
    /// loss (`hvp`). Differentiable in `b` and in the captures of the map, in both modes and to
    /// any order: the derivative solves another system in the same way ([`custom_linear_solve`]),
    /// with the same tolerance. It depends neither on the starting point nor on the
    /// preconditioner.
    ///
    /// Errors: those of [`custom_linear_solve`]; a number of elements that is neither known nor
    /// linear in the dimension variables.
    ///
    /// ```
    /// use wengert::prelude::*;
    /// use wengert::linalg::Cg;
    /// # fn main() -> Result<()> {
    /// let mut program = Program::new();
    /// program.function("solve", |f| {
    ///     let (a, b) = (f.input("a", f64("2,2")), f.input("b", f64("2")));
    ///     f.output("x", Cg { tol: 1e-12, ..Cg::default() }.solve(|x: &Tensor| a.dot(x), &b));
    /// })?;
    /// let mut session = Session::open(Device::Interpreter)?;
    /// let a = Literal::from_vec(&[2, 2], vec![4.0, 1.0, 1.0, 3.0])?;
    /// let b = Literal::from_vec(&[2], vec![1.0, 2.0])?;
    /// let x = session.compile(&program, "solve", bind!())?.run(&[("a", a), ("b", b)])?;
    /// let x = x.get("x").expect("it is an output").clone();
    /// assert!((x.get(0).to_f64() - 1.0 / 11.0).abs() < 1e-12);
    /// assert!((x.get(1).to_f64() - 7.0 / 11.0).abs() < 1e-12);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn solve(&self, map: impl FnOnce(&B) -> B, b: &B) -> B {
        let caller = Location::caller();
        let steps = match self.max_steps {
            Some(steps) => Ok(Dim::from(steps)),
            None => ten_times_the_elements(b),
        };
        match steps {
            Ok(steps) => {
                let run =
                    |map: &dyn Fn(&B) -> B, b: &B| caller.attribute(|| self.run(map, b, &steps));
                custom_linear_solve(map, b, run, TransposeSolve::Symmetric)
            }
            Err(error) => {
                let error = error.at(caller, "conjugate gradients are taken here");
                if let Some(scope) = Scope::current() {
                    scope.fail(&error);
                }
                b.map_tensors(&KeyPath::default(), &mut |_, _| Tensor::poisoned(error.clone()))
            }
        }
    }

    fn run(&self, map: &dyn Fn(&B) -> B, b: &B, steps: &Dim) -> B {
        let prepared = |r: &B| {
            self.preconditioner.map_or_else(|| copy(r), |m| Location::unattributed(|| m(r)))
        };
        // ⟨r, z⟩ of a residual and its preconditioned form, followed by |r|² if that is another
        // number.
        let products = |r: &B, z: &B| match self.preconditioner {
            Some(_) => vec![r.inner(z), r.inner(r)],
            None => vec![r.inner(r)],
        };
        let (x, r) = match self.x0 {
            Some(x0) => (copy(x0), b.minus(&map(x0))),
            None => (b.zero(), copy(b)),
        };
        let within = (b.inner(b) * (self.tol * self.tol)).max(self.atol * self.atol);
        let z = prepared(&r);
        let measures = products(&r, &z);
        let goes_on =
            |(_, measures): &((B, B, B), Vec<Tensor>)| measures[measures.len() - 1].gt(&within);
        let step = |((x, r, p), measures): &((B, B, B), Vec<Tensor>)| {
            let image = map(p);
            let length = &measures[0] / p.inner(&image);
            let x = x.plus(&p.scaled(&length));
            let r = r.minus(&image.scaled(&length));
            let z = prepared(&r);
            let next = products(&r, &z);
            let p = z.plus(&p.scaled(&(&next[0] / &measures[0])));
            ((x, r, p), next)
        };
        while_at_most(steps.clone(), &((x, r, z), measures), goes_on, step).0.0
    }
}

fn copy<B: VectorSpace>(value: &B) -> B {
    value.map_tensors(&KeyPath::default(), &mut |_, tensor| tensor.clone())
}

fn ten_times_the_elements<B: VectorSpace>(b: &B) -> Result<Dim, Diagnostic> {
    let unknown = || {
        Diagnostic::new("the number of elements of the right-hand side is no dimension")
            .help("say how many steps are taken at most by the field `max_steps`")
    };
    let mut sum = Dim::from(0usize);
    for (_, tensor) in b.tensors() {
        if let Some(error) = tensor.error() {
            return Err(error.clone());
        }
        let size = tensor.shape().iter().try_fold(Dim::from(10usize), |n, d| n.checked_mul(d));
        sum = size.and_then(|size| sum.checked_add(&size)).ok_or_else(unknown)?;
    }
    Ok(sum)
}
