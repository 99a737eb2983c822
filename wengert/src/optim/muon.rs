//! Muon: momentum with orthogonalised matrix steps.

use super::storage::{Storage, storage_settings};
use super::{AdamW, Choice, Rate, advance, count, no_decay, variables, wide};
use std::rc::Rc;
use wengert_core::build::FunctionBuilder;
use wengert_core::{DType, Differentiable, Tensor, TensorType};

/// Muon (Jordan et al. 2024): momentum with an orthogonalised step, scaled as by Liu et al.
/// (2025), so that a rate of AdamW fits:
///
/// ```text
/// m = β · m + gradient
/// u = gradient + β · m
/// o = an orthogonal matrix near u: UVᵀ, if u = U·S·Vᵀ
/// p = p − rate · weight_decay · p − rate · 0.2 · √max(rows, columns) · o
/// ```
///
/// The orthogonal matrix is computed by five steps of a Newton-Schulz iteration, which brings all
/// singular values to between about 0.7 and 1.2 and consists of products only. It lets all
/// directions of a weight with few large singular values be learnt at the same speed.
///
/// It is for matrices between layers. All other variables (vectors, embeddings, the last layer)
/// are updated by a separate AdamW ([`rest`](Muon::rest)); [`matrices`](Muon::matrices) selects
/// the matrices.
///
/// State: `muon.step`, `muon.momentum.<path>`, and that of AdamW for the rest, `adamw.m.<path>`
/// and `adamw.v.<path>`.
#[derive(Clone, Debug)]
pub struct Muon {
    rate: Rate,
    momentum: f64,
    weight_decay: f64,
    matrices: Choice,
    rest: AdamW,
    reports_rate: bool,
    name: String,
    /// Also that of the rest.
    storage: Storage,
}

storage_settings!(Muon, storage);

/// Coefficients of X, XXᵀX and (XXᵀ)²X. They maximise the slope at 0, where singular values are
/// small; in exchange the iteration does not converge to 1 exactly.
const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];
const STEPS: usize = 5;
/// The root mean square of AdamW's steps is about this multiple of its rate.
const SCALE: f64 = 0.2;

/// An approximately orthogonal matrix with the singular vectors of `u`; zeros for zeros.
#[track_caller]
fn orthogonal(u: &Tensor, [rows, columns]: [usize; 2]) -> Tensor {
    // The smaller of the two products of the matrix with its transpose.
    let turned = rows > columns;
    let u = if turned { u.permute(&[1, 0]) } else { u.clone() };
    let norm = u.square().sum().sqrt() + 1e-7;
    let mut x = u / norm;
    let [a, b, c] = COEFFICIENTS;
    for _ in 0..STEPS {
        let square = x.dot(&x.permute(&[1, 0]));
        let odd = &square * b + square.dot(&square) * c;
        x = &x * a + odd.dot(&x);
    }
    if turned { x.permute(&[1, 0]) } else { x }
}

/// The extents of a matrix.
fn extents(ty: &TensorType) -> Option<[usize; 2]> {
    ty.extents()?.try_into().ok()
}

impl Muon {
    /// Muon with a momentum of 0.95 and a weight decay of 0.01, for all matrices; AdamW of the
    /// same rate for the rest.
    pub fn new(rate: impl Into<Rate>) -> Self {
        let rate = rate.into();
        Muon {
            rest: AdamW::new(rate.clone()),
            rate,
            momentum: 0.95,
            weight_decay: 0.01,
            matrices: Choice(Rc::new(|_, _| true)),
            reports_rate: false,
            name: "muon".into(),
            storage: Storage::default(),
        }
    }

    /// β.
    #[must_use]
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self
    }

    /// The weight decay of matrices; the rest uses AdamW's.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.weight_decay = weight_decay;
        self
    }

    /// Selects matrices by key path and type among the variables with two axes of known extents,
    /// e.g. all but the embeddings.
    #[must_use]
    pub fn matrices(mut self, matrices: impl Fn(&str, &TensorType) -> bool + 'static) -> Self {
        self.matrices = Choice(Rc::new(matrices));
        self
    }

    /// The optimiser of all other variables.
    #[must_use]
    pub fn rest(mut self, rest: AdamW) -> Self {
        self.rest = rest;
        self
    }

    /// Sets another name for its state; two optimisers in one function need different names.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Adds an output [`LEARNING_RATE`](super::LEARNING_RATE) to the function, for a
    /// training log: the rate of matrices.
    #[must_use]
    pub fn report_rate(mut self) -> Self {
        self.reports_rate = true;
        self
    }

    /// Updates the model's state with its gradient.
    #[track_caller]
    pub fn step<M: Differentiable>(
        &self,
        f: &mut FunctionBuilder,
        model: &M,
        gradient: &M::TangentVector,
    ) {
        let step = count(f, &self.name);
        if self.reports_rate {
            self.rate.report(f, Some(&step));
        }
        let variables = variables(f, model, gradient);
        let (mut decays, mut steps) = (Vec::new(), Vec::new());
        for variable in &variables {
            let extents = extents(variable.gradient.ty())
                .filter(|_| (self.matrices.0)(&variable.path, variable.value.ty()));
            let Some([rows, columns]) = extents else {
                let Some([decay, direction]) = self.rest.moves(f, &self.storage, &step, variable)
                else {
                    return;
                };
                decays.push(decay);
                steps.push(direction);
                continue;
            };
            let dtype = wide(&variable.value);
            let (value, g) = (variable.value.convert(dtype), variable.gradient.convert(dtype));
            let old = self.storage.moment(f, [&self.name, "momentum"], 0, variable);
            let m = &old.value * self.momentum + &g;
            self.storage.update(f, &old, variable, &m);
            let direction = orthogonal(&(&g + &m * self.momentum), [rows, columns]);
            let scale = SCALE * (rows.max(columns) as f64).sqrt();
            steps.push(-self.rate.times(&(direction * scale), Some(&step)));
            decays.push(match self.weight_decay != 0.0 {
                true if value.ty() != g.ty() => return no_decay(f, variable),
                true => -self.rate.times(&(&value * self.weight_decay), Some(&step)),
                false => g.full_like(-0.0),
            });
        }
        advance(f, model, gradient, &variables, &[decays, steps], &self.storage);
    }
}
