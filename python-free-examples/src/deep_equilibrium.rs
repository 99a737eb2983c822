//! A network of infinite depth: a deep equilibrium model (Bai, Kolter and Koltun 2019).
//!
//! All layers of the network are the same, z ← tanh(z·W + x·U + b). If it is deep enough, its last
//! state is one that a further layer does not change. So the state can be *defined* as the root of
//! z − tanh(z·W + x·U + b) = 0, and any solver may find it, with any number of applications of the
//! layer. The derivative of the state is that of the equation ([`custom_root`]): a linear system
//! with the layer's Jacobian, which is solved by iteration too. Reverse mode keeps the state but
//! not the solver's iterates, so memory does not grow with depth.
//!
//! The weights are scaled to a norm below 1. This makes the layer a contraction: there is exactly
//! one equilibrium, and iteration converges to it.

use wengert::prelude::*;

/// The network: images to a state, states to themselves, the state to scores.
#[derive(Clone, Differentiable)]
pub struct Equilibrium {
    input: Linear,
    state: Tensor,
    output: Linear,
}

/// What stands for infinitely many layers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Depth {
    /// The equilibrium, to a greatest difference between two states.
    Infinite(f64),
    /// So many layers, each of which reverse mode remembers.
    Layers(usize),
}

/// The norm that the state's weights have at most.
const NORM: f64 = 0.9;

/// Limit on a solver's applications of the layer. Each shrinks differences by a factor of 0.9 or
/// less: 200 of them by 0.9²⁰⁰ < 10⁻⁹, and 400 of them by less than 10⁻¹⁸.
const LIMIT: i32 = 400;

type Map<'a> = &'a dyn Fn(&Tensor) -> Tensor;

/// z ← z − f(z), until the greatest change is within the tolerance.
fn iterate(f: Map<'_>, z: &Tensor, tolerance: f64) -> Tensor {
    let change = |z: &Tensor| {
        let change = f(z);
        let size = change.abs().max_axes(&(0..z.rank()).collect::<Vec<_>>());
        (z - change, size)
    };
    let begin = (change(z), Tensor::constant(1i32));
    let goes_on =
        |((_, size), count): &((Tensor, Tensor), Tensor)| size.gt(tolerance).and(count.lt(LIMIT));
    control::while_loop(&begin, goes_on, |((z, _), count)| (change(z), count + 1i32)).0.0
}

impl Equilibrium {
    /// Random weights.
    pub fn new(pixels: usize, width: usize, classes: usize) -> Self {
        let square = TensorType::new(DType::F32, [width, width]);
        Equilibrium {
            input: Linear::new(pixels, width),
            state: Tensor::variable(square, nn::glorot_uniform(width, width)),
            output: Linear::new(width, classes),
        }
    }

    /// The state of images `[B, pixels]`, `[B, width]`.
    pub fn state(&self, x: &Tensor, depth: Depth) -> Tensor {
        let norm = self.state.square().sum().sqrt();
        let weights = &self.state * (NORM / norm.max(NORM)).broadcast_to(self.state.shape());
        let given = self.input.call(x);
        let layer = |z: &Tensor| (z.dot(&weights) + &given).tanh();
        let begin = given.zeros_like();
        match depth {
            Depth::Layers(count) => control::fori(count, &begin, |_, z| layer(z)),
            Depth::Infinite(tolerance) => {
                let solve = |f: Map<'_>, z: &Tensor| iterate(f, z, tolerance);
                let tangent_solve = |jacobian: Map<'_>, c: &Tensor| {
                    let series = |map: Map<'_>, c: &Tensor| iterate(&|y| map(y) - c, c, tolerance);
                    custom_linear_solve(jacobian, c, series, TransposeSolve::Same)
                };
                custom_root(|z| z - layer(z), &begin, solve, tangent_solve)
            }
        }
    }

    /// Scores of images.
    pub fn call(&self, x: &Tensor, depth: Depth) -> Tensor {
        self.output.call(&self.state(x, depth))
    }
}

/// On digits: a training step, and what share of images is read correctly.
pub fn program(width: usize, depth: Depth) -> Result<Program> {
    let mut program = Program::new();
    let model = Equilibrium::new(64, width, 10);
    program.function("train_step", |f| {
        let (x, y) = (f.input("x", f32("B,64")), f.input("y", i32("B")));
        let model = f.state("model", model.clone());
        let (loss, gradient) =
            value_and_grad(&model, |model| cross_entropy(&model.call(&x, depth), &y));
        Adam::new(3e-3).step(f, &model, &gradient);
        f.output("loss", loss);
    })?;
    program.function("accuracy", |f| {
        let (x, y) = (f.input("x", f32("B,64")), f.input("y", i32("B")));
        let model = f.param("model", model.clone());
        f.output("accuracy", model.call(&x, depth).argmax(1).eq(&y).convert(DType::F32).mean());
    })?;
    Ok(program)
}

/// The gradient of a loss in f64, its tensors one after the other: `gradient`.
pub fn gradient(width: usize, depth: Depth) -> Result<Program> {
    let mut program = Program::new();
    let model = Equilibrium::new(64, width, 10);
    program.function("gradient", |f| {
        let (x, y) = (f.input("x", f64("B,64")), f.input("y", i32("B")));
        let model = f.param("model", model.clone());
        let wide = model.map_tensors(&Default::default(), &mut |_, t| t.convert(DType::F64));
        let gradient = grad(&wide, |model| cross_entropy(&model.call(&x, depth), &y));
        let parts: Vec<Tensor> = gradient.tensors().iter().map(|(_, t)| t.flatten(0)).collect();
        f.output("gradient", Tensor::concatenate(&parts.iter().collect::<Vec<_>>(), 0));
    })?;
    Ok(program)
}
