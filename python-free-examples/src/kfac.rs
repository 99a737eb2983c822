//! Natural gradient descent with Kronecker factors, K-FAC (Martens and Grosse 2015), on a small
//! network.
//!
//! A classifier gives a distribution. The Fisher matrix F of its parameters measures how far a step
//! moves the distribution, and the steepest descent for this measure is −F⁻¹·∇. F has as many
//! elements as the square of the number of parameters. For a layer with the sums s = ā·W, where ā
//! is its inputs and a 1 for the bias, a good approximation is a Kronecker product of two small
//! matrices, F ≈ A ⊗ G:
//!
//! ```text
//! A = E[āᵀā]     of the inputs
//! G = E[gᵀg]     of the gradients g of log p by s, labels drawn from the network's distribution
//! ```
//!
//! The step is then −A⁻¹·∇·G⁻¹. It is scaled, and a multiple of the previous step is added. The two
//! coefficients minimise the quadratic model with the *exact* F, which takes two products of F with
//! a vector. A damping λ is added to F. It decreases if the loss falls by more than 3/4 of the
//! model's prediction, and increases if the loss falls by less than 1/4 of it.
//!
//! This needs four features of a differentiable language:
//!
//! - The gradient with respect to a layer's sums is that of a zero tensor (a *nudge*) that is added
//!   to them.
//! - The expectation over labels is a pullback of a batch of seeds, one for each label.
//! - [`gvp`] multiplies by F, which for a softmax is the Gauss-Newton matrix.
//! - A loop inverts the factors. It runs until the residual stops shrinking.

use wengert::prelude::*;

/// A network with tanh between its layers.
#[derive(Clone, Differentiable)]
pub struct Mlp {
    /// `[inputs + 1, outputs]`; the last row is the bias.
    pub layers: Vec<Tensor>,
}

impl Mlp {
    /// Random weights of layers between these widths.
    pub fn new(widths: &[usize]) -> Self {
        let layer = |w: &[usize]| {
            let ty = TensorType::new(DType::F32, [w[0] + 1, w[1]]);
            Tensor::variable(ty, nn::glorot_uniform(w[0], w[1]))
        };
        Mlp { layers: widths.windows(2).map(layer).collect() }
    }

    /// Logits of images `[B, pixels]`.
    pub fn call(&self, x: &Tensor) -> Tensor {
        self.run(x, &[]).0
    }

    /// Logits, and the layers' inputs with a 1 appended to each. A layer's nudge, if there is one,
    /// is added to its sums.
    fn run(&self, x: &Tensor, nudges: &[Tensor]) -> (Tensor, Vec<Tensor>) {
        let (mut x, mut inputs) = (x.clone(), vec![]);
        for (i, layer) in self.layers.iter().enumerate() {
            if i > 0 {
                x = x.tanh();
            }
            let one = x.slice_axis(1, 0, 1).ones_like();
            let input = Tensor::concatenate(&[&x, &one], 1);
            x = input.dot(layer);
            if let Some(nudge) = nudges.get(i) {
                x = x + nudge;
            }
            inputs.push(input);
        }
        (x, inputs)
    }
}

fn identity(n: usize) -> Tensor {
    Tensor::iota(DType::I32, [n], 0).one_hot(n, DType::F32)
}

/// A and G of a layer.
pub struct Factors {
    /// `[inputs + 1, inputs + 1]`.
    pub inputs: Tensor,
    /// `[outputs, outputs]`.
    pub sums: Tensor,
}

/// Those of all layers, over images `[B, pixels]`.
pub fn factors(model: &Mlp, x: &Tensor) -> Vec<Factors> {
    let (logits, inputs) = model.run(x, &[]);
    let count = Tensor::dim_as_value(x.shape()[0].clone(), x.dtype());
    let layers = inputs.iter().zip(&model.layers);
    let nudges: Vec<Tensor> = layers.map(|(input, layer)| input.dot(layer).zeros_like()).collect();
    let (_, pullback) = vjp(&nudges, |nudges| model.run(x, nudges).0);

    // The gradient of log p of a label by the logits is the label's one-hot vector less p. Its
    // weight in G is the label's probability. As g occurs twice in gᵀg, each gets the square root.
    let p = logits.softmax(1);
    let labels = identity(p.shape()[1].as_extent().unwrap_or(0));
    let squares = vmap(&labels, |label| {
        let weight = p.dot(label).sqrt().reshape([p.shape()[0].clone(), 1.into()]);
        let gradients = pullback(&((label - &p) * weight));
        gradients.iter().map(|g| g.matrix_transpose().dot(g)).collect::<Vec<_>>()
    });
    let sums = squares.iter().map(|square| square.sum_axes(&[0]) / &count);
    let inputs = inputs.iter().map(|input| input.matrix_transpose().dot(input) / &count);
    inputs.zip(sums).map(|(inputs, sums)| Factors { inputs, sums }).collect()
}

/// The inverse of a symmetric positive definite matrix, by Newton's iteration (Schulz 1933). A step
/// X ← X + (I − X·M)·X squares the residual I − X·M. The iteration ends when rounding errors keep
/// the residual from shrinking.
pub fn inverse(m: &Tensor) -> Tensor {
    let one = identity(m.shape()[0].as_extent().unwrap_or(0));
    let missing = |x: &Tensor| &one - x.dot(m);
    let size = |r: &Tensor| r.square().sum();
    // No eigenvalue of M is greater than its norm, so all of I − X·M are within 0..1 at first.
    let begin = &one / size(m).sqrt();
    let sizes = (size(&missing(&begin)), size(&one) * 2.0);
    let (x, _) = control::while_loop(
        &(begin, sizes),
        |(_, (now, before))| now.lt(before),
        |(x, (now, _))| {
            let x = x + missing(x).dot(x);
            let sizes = (size(&missing(&x)), now.clone());
            (x, sizes)
        },
    );
    x
}

/// A⁻¹·∇·G⁻¹ for each layer, the damping λ shared between the factors as their sizes are.
fn precondition(factors: &[Factors], gradient: &Mlp, damping: &Tensor) -> Mlp {
    let mean = |m: &Tensor| {
        (m * m.shape()[0].as_extent().map_or(m.ones_like(), identity)).sum_axes(&[1]).mean()
    };
    let damped = |m: &Tensor, by: &Tensor| m + identity(m.shape()[0].as_extent().unwrap_or(0)) * by;
    let layer = |(factors, gradient): (&Factors, &Tensor)| {
        let ratio = (mean(&factors.inputs) / mean(&factors.sums)).sqrt();
        let root = damping.sqrt();
        let inputs = inverse(&damped(&factors.inputs, &(&ratio * &root)));
        let sums = inverse(&damped(&factors.sums, &(root / ratio)));
        inputs.dot(gradient).dot(&sums)
    };
    Mlp { layers: factors.iter().zip(&gradient.layers).map(layer).collect() }
}

/// What training remembers between its steps.
#[derive(Clone, Differentiable)]
pub struct State {
    /// The last step.
    pub step: Mlp,
    /// λ.
    pub damping: Tensor,
}

impl State {
    /// No step yet, and a damping.
    pub fn new(model: &Mlp, damping: f32) -> Self {
        let zeros = |layer: &Tensor| Tensor::variable(layer.ty().clone(), Initializer::Zeros);
        State {
            step: Mlp { layers: model.layers.iter().map(zeros).collect() },
            damping: Tensor::variable(
                TensorType::scalar(DType::F32),
                Initializer::Constant(damping.into()),
            ),
        }
    }
}

/// A step: the loss before it, the model and the state after it.
pub fn step(model: &Mlp, state: &State, x: &Tensor, y: &Tensor) -> (Tensor, Mlp, State) {
    let loss_of = |model: &Mlp| cross_entropy(&model.call(x), y);
    let (loss, gradient) = value_and_grad(model, loss_of);
    let newest = precondition(&factors(model, x), &gradient, &state.damping).negated();
    let last = &state.step;

    // The minimum of the model loss + ∇·d + ½ d·(F + λ)·d over d = α·newest + μ·last: two linear
    // equations.
    let curved = |v: &Mlp| {
        let fisher = gvp(model, v, |model: &Mlp| model.call(x), |logits| cross_entropy(logits, y));
        fisher.plus(&v.scaled(&state.damping))
    };
    let (curved_newest, curved_last) = (curved(&newest), curved(last));
    let (a, b, c) =
        (newest.inner(&curved_newest), newest.inner(&curved_last), last.inner(&curved_last));
    let (p, q) = (gradient.inner(&newest), gradient.inner(last));
    let determinant = &a * &c - b.square();
    // There is no last step at first, and it may point where the newest does.
    let both = determinant.gt(&a * &c * 1e-4);
    let alpha = both.select(&((&b * &q - &c * &p) / &determinant), &(-&p / &a));
    let mu = both.select(&((&b * &p - &a * &q) / &determinant), &q.zeros_like());
    let step = newest.scaled(&alpha).plus(&last.scaled(&mu));
    let expected = (&alpha * &p + &mu * &q) * 0.5;

    // A step that does not lower the loss is not taken. The damping depends on the ratio of the
    // loss's change to the change that the model predicts.
    let moved = model.move_along(&step);
    let gained = loss_of(&moved) - &loss;
    let helps = gained.lt(0.0);
    let ratio = gained / expected;
    let damping = ratio.gt(0.75).select(&(&state.damping * 0.7), &state.damping);
    let damping = ratio.lt(0.25).select(&(&state.damping / 0.7), &damping);
    let (model, step) =
        control::cond(&helps, || (moved.clone(), step.clone()), || (model.clone(), last.zero()));
    (loss, model, State { step, damping })
}

/// On digits: a step of K-FAC, a step of gradient descent with momentum for comparison, and the
/// accuracy.
pub fn program(widths: &[usize], damping: f32, rate: f64) -> Result<Program> {
    let mut program = Program::new();
    let model = Mlp::new(widths);
    program.function("kfac_step", |f| {
        let (x, y) = (f.input("x", f32("B,64")), f.input("y", i32("B")));
        let (model, state) = f.state("training", (model.clone(), State::new(&model, damping)));
        let (loss, model, state) = step(&model, &state, &x, &y);
        f.output("damping", &state.damping);
        for (path, value) in (model, state).tensors() {
            f.update(&format!("training.{path}"), &value);
        }
        f.output("loss", loss);
    })?;
    program.function("sgd_step", |f| {
        let (x, y) = (f.input("x", f32("B,64")), f.input("y", i32("B")));
        let (model,) = f.state("training", (model.clone(),));
        let (loss, gradient) = value_and_grad(&model, |model| cross_entropy(&model.call(&x), &y));
        Sgd::new(rate).momentum(0.9).step(f, &model, &gradient);
        f.output("loss", loss);
    })?;
    program.function("accuracy", |f| {
        let (x, y) = (f.input("x", f32("B,64")), f.input("y", i32("B")));
        let (model,) = f.param("training", (model.clone(),));
        f.output("accuracy", model.call(&x).argmax(1).eq(&y).convert(DType::F32).mean());
    })?;
    Ok(program)
}
