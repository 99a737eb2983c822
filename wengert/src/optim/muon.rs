//! Muon: momentum with orthogonalised matrix steps.

use super::settings::{Settings, optimiser, weight_decay};
use super::step::{Decay, Rule, Turn, Variable};
use super::{AdamW, Choice, Rate};
use std::rc::Rc;
use wengert_core::build::FunctionBuilder;
use wengert_core::{Tensor, TensorType};

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
/// the matrices. [Groups](Muon::groups) of Muon are for all variables, those of the AdamW for the
/// rest.
///
/// State: `muon.step`, `muon.momentum.<path>`, and that of AdamW for the rest, `adamw.m.<path>`
/// and `adamw.v.<path>`.
#[derive(Clone, Debug)]
pub struct Muon {
    /// The storage is also that of the rest.
    settings: Settings,
    momentum: f64,
    matrices: Choice,
    rest: AdamW,
}

optimiser!(Muon, settings);
weight_decay!(Muon, settings);

/// Coefficients of X, XXᵀX and (XXᵀ)²X. They maximise the slope at 0, where singular values are
/// small; in exchange the iteration does not converge to 1 exactly.
const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];
const STEPS: usize = 5;
/// The root mean square of AdamW's steps is about this multiple of its rate.
const SCALE: f64 = 0.2;

/// An approximately orthogonal matrix with the singular vectors of `u`; zeros for zeros.
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
pub(super) fn extents(ty: &TensorType) -> Option<[usize; 2]> {
    ty.extents()?.try_into().ok()
}

impl Muon {
    /// Muon with a momentum of 0.95 and a weight decay of 0.01, for all matrices; AdamW of the
    /// same rate for the rest.
    pub fn new(rate: impl Into<Rate>) -> Self {
        let rate = rate.into();
        Muon {
            rest: AdamW::new(rate.clone()),
            settings: Settings { weight_decay: 0.01, ..Settings::new("muon", rate) },
            momentum: 0.95,
            matrices: Choice(Rc::new(|_, _| true)),
        }
    }

    /// β.
    #[must_use]
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
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
}

impl Rule for Muon {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn decay(&self) -> Decay {
        Decay::Decoupled
    }

    fn rest(&self) -> Option<&dyn Rule> {
        Some(&self.rest)
    }

    fn takes(&self, variable: &Variable) -> bool {
        extents(variable.gradient.ty()).is_some()
            && (self.matrices.0)(&variable.path, variable.value.ty())
    }

    fn travel(&self, f: &mut FunctionBuilder, turn: &Turn<'_>) -> Tensor {
        let g = &turn.gradient;
        let [rows, columns] = extents(g.ty()).expect("Muon takes matrices");
        let old = turn.moment(f, "momentum", 0);
        let m = &old.value * self.momentum + g;
        turn.update(f, &old, &m);
        let direction = orthogonal(&(g + &m * self.momentum), [rows, columns]);
        let scale = SCALE * (rows.max(columns) as f64).sqrt();
        -turn.times_rate(&(direction * scale))
    }
}
