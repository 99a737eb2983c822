//! Newton's method on a softmax regression, without forming the Hessian.
//!
//! A step goes from w to w − p, where H·p = g. The linear approximation of the gradient is 0 there.
//! The method of conjugate gradients ([`Cg`]) finds p from products H·v alone. Such a product is
//! the derivative of the gradient along v ([`hvp`]). It costs about two gradients, for any number
//! of weights. Near the solution each step squares the error.
//!
//! The loss is the mean cross-entropy plus ρ/2·|w|². The cross-entropy alone is not strictly
//! convex, as it does not change if the same number is added to the scores of all classes. The sum
//! is strictly convex.

use wengert::linalg::Cg;
use wengert::prelude::*;

/// Weights and bias of a softmax regression in f64.
#[derive(Clone, Differentiable)]
pub struct Regression {
    weight: Tensor,
    bias: Tensor,
}

impl Regression {
    /// Zeros, from where the first step goes.
    pub fn new(pixels: usize, classes: usize) -> Self {
        let zeros = |shape: &[usize]| {
            Tensor::variable(TensorType::new(DType::F64, shape.iter().copied()), Initializer::Zeros)
        };
        Regression { weight: zeros(&[pixels, classes]), bias: zeros(&[classes]) }
    }

    /// Scores of images `[B, pixels]`.
    pub fn call(&self, x: &Tensor) -> Tensor {
        x.dot(&self.weight) + &self.bias
    }

    /// The regularized loss.
    pub fn loss(&self, x: &Tensor, y: &Tensor, ridge: f64) -> Tensor {
        cross_entropy(&self.call(x), y) + self.inner(self) * (ridge / 2.0)
    }
}

/// On digits: Newton's step with the loss and the norm of the gradient before it, and the accuracy.
/// The system of each step is solved to `tolerance`.
pub fn program(ridge: f64, tolerance: f64) -> Result<Program> {
    let mut program = Program::new();
    let model = Regression::new(64, 10);
    program.function("newton_step", |f| {
        let (x, y) = (f.input("x", f64("B,64")), f.input("y", i32("B")));
        let model = f.state("model", model.clone());
        let loss = |model: &Regression| model.loss(&x, &y, ridge);
        let (value, gradient) = value_and_grad(&model, loss);
        let hessian = |v: &Regression| hvp(&model, v, loss);
        let step = Cg { tol: tolerance, ..Cg::default() }.solve(hessian, &gradient);
        for (path, tensor) in model.minus(&step).tensors() {
            f.update(&format!("model.{path}"), &tensor);
        }
        f.output("loss", value);
        f.output("gradient", gradient.inner(&gradient).sqrt());
    })?;
    program.function("accuracy", |f| {
        let (x, y) = (f.input("x", f64("B,64")), f.input("y", i32("B")));
        let model = f.param("model", model.clone());
        f.output("accuracy", model.call(&x).argmax(1).eq(&y).convert(DType::F64).mean());
    })?;
    Ok(program)
}
