//! SOAP: Adam in the eigenbasis of Shampoo.

use super::Rate;
use super::adam::{check_betas, correction};
use super::muon::extents;
use super::settings::{Settings, optimiser, weight_decay};
use super::step::{Decay, Rule, State, Turn};
use crate::linalg::{eigh, qr};
use wengert_core::build::FunctionBuilder;
use wengert_core::build::control::cond;
use wengert_core::{Result, Tensor, diagnostic};

/// SOAP, *ShampoO with Adam in the Preconditioner's eigenbasis* (Vyas et al., *SOAP: Improving and
/// Stabilizing Shampoo using Adam*, 2024). For a matrix of m rows and n columns with gradient g:
///
/// ```text
/// m = β₁ · m + (1 − β₁) · g                                    k = t − 1, t counts steps from 1
/// v = β₂ · v + (1 − β₂) · (Qlᵀ · g · Qr)²
/// d = (Qlᵀ · m · Qr / (1 − β₁ᵏ)) / (√(v / (1 − β₂ᵏ)) + ε)
/// p = p − rate · weight_decay · p − rate · Ql · d · Qrᵀ
/// L = β₂ · L + (1 − β₂) · g · gᵀ
/// R = β₂ · R + (1 − β₂) · gᵀ · g
/// Ql = Q of the QR factorization of L · Ql, Qr = Q of that of R · Qr, every few steps
/// ```
///
/// The first step makes the bases, the eigenvectors of L and R, and moves nothing, so that no
/// gradient is divided by moments in a basis that was made of it (as the authors' program does). A
/// QR factorization is one step of an orthogonal iteration. Both are programs of the graph
/// ([`linalg`](crate::linalg)) in a branch, so the other steps do not run them.
///
/// Of a side with more rows or columns than [`largest`](Soap::largest), as of a vocabulary, the
/// basis is the identity. Variables that are no matrices have Adam's update without bases, likewise
/// from the second step.
///
/// With mixed precision ([`Program::precision`](crate::Program::precision)), products with and for
/// bases take halves like others.
///
/// State: `soap.step`, `soap.m.<path>`, `soap.v.<path>`; for matrices L, R, Ql, Qr in
/// `soap.rows.<path>`, `soap.columns.<path>`, `soap.rows_basis.<path>`,
/// `soap.columns_basis.<path>`.
#[derive(Clone, Debug)]
pub struct Soap {
    settings: Settings,
    betas: (f64, f64),
    epsilon: f64,
    interval: u32,
    largest: usize,
}

optimiser!(Soap, settings);
weight_decay!(Soap, settings);

impl Soap {
    /// SOAP with β₁ = β₂ = 0.95, ε = 1e-8 and a weight decay of 0.01. Bases follow every 10 steps,
    /// of sides of at most 10,000.
    pub fn new(rate: impl Into<Rate>) -> Self {
        Soap {
            settings: Settings { weight_decay: 0.01, ..Settings::new("soap", rate) },
            betas: (0.95, 0.95),
            epsilon: 1e-8,
            interval: 10,
            largest: 10_000,
        }
    }

    /// β₁ and β₂; 0.95 by default.
    #[must_use]
    pub fn betas(mut self, first: f64, second: f64) -> Self {
        self.betas = (first, second);
        self
    }

    /// ε; 1e-8 by default.
    #[must_use]
    pub fn epsilon(mut self, epsilon: f64) -> Self {
        self.epsilon = epsilon;
        self
    }

    /// The number of steps after which bases follow L and R, at least 1; 10 by default.
    #[must_use]
    pub fn interval(mut self, steps: u32) -> Self {
        self.interval = steps;
        self
    }

    /// The most rows or columns of a matrix for which that side has a basis; 10,000 by default.
    #[must_use]
    pub fn largest(mut self, extent: usize) -> Self {
        self.largest = extent;
        self
    }
}

/// One side of a matrix.
struct Side {
    /// The moving mean of g·gᵀ, or of gᵀ·g.
    mean: State,
    /// Its approximate eigenvectors, as columns. Zeros before the first step.
    basis: State,
}

/// A matrix with its sides, where they have bases.
struct Sides {
    rows: Option<Side>,
    columns: Option<Side>,
}

impl Sides {
    fn rotated(&self, x: &Tensor) -> Tensor {
        let x = self.rows.as_ref().map_or(x.clone(), |s| s.basis.value.matrix_transpose().dot(x));
        self.columns.as_ref().map_or(x.clone(), |s| x.dot(&s.basis.value))
    }

    fn rotated_back(&self, x: &Tensor) -> Tensor {
        let x = self.rows.as_ref().map_or(x.clone(), |s| s.basis.value.dot(x));
        self.columns.as_ref().map_or(x.clone(), |s| x.dot(&s.basis.value.matrix_transpose()))
    }
}

impl Soap {
    fn sides(&self, f: &mut FunctionBuilder, turn: &Turn<'_>) -> Sides {
        let mut side = |extent: usize, what: &str| {
            (extent <= self.largest).then(|| {
                let shape = [extent.into(), extent.into()];
                let mean = turn.state(f, what, &shape);
                Side { mean, basis: turn.state(f, &format!("{what}_basis"), &shape) }
            })
        };
        match extents(turn.gradient.ty()) {
            Some([rows, columns]) => {
                Sides { rows: side(rows, "rows"), columns: side(columns, "columns") }
            }
            None => Sides { rows: None, columns: None },
        }
    }

    /// Updates a side by a product of the gradient with itself.
    fn follow(
        &self,
        f: &mut FunctionBuilder,
        turn: &Turn<'_>,
        side: &Side,
        product: &Tensor,
        done: &Tensor,
    ) {
        let second = self.betas.1;
        let mean = &side.mean.value * second + product * (1.0 - second);
        let basis = &side.basis.value;
        let is_due = (done % i64::from(self.interval)).eq(0);
        let next = cond(
            &is_due,
            || {
                cond(
                    &done.eq(0),
                    // In descending order, as the iteration orders them.
                    || eigh(&mean).1.reverse(1usize),
                    || qr(&mean.dot(basis), false).0,
                )
            },
            || basis.clone(),
        );
        turn.keep(f, &side.mean, &mean);
        turn.keep(f, &side.basis, &next);
    }
}

impl Rule for Soap {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn decay(&self) -> Decay {
        Decay::Decoupled
    }

    fn check(&self) -> Result<()> {
        check_betas(self.betas)?;
        match self.interval {
            0 => Err(diagnostic!("the bases of SOAP follow every 0 steps")
                .help("give an interval of at least 1")),
            _ => Ok(()),
        }
    }

    fn travel(&self, f: &mut FunctionBuilder, turn: &Turn<'_>) -> Tensor {
        let (first, second) = self.betas;
        let g = &turn.gradient;
        let sides = self.sides(f, turn);
        let (old_m, old_v) = (turn.moment(f, "m", 0), turn.moment(f, "v", 1));
        // Steps done. The first makes bases only.
        let done = turn.step() - 1;
        let moves = done.gt(0);
        let m = moves.select(&old_m.value * first + g * (1.0 - first), &old_m.value);
        let square = sides.rotated(g).square();
        let v = moves.select(&old_v.value * second + square * (1.0 - second), &old_v.value);
        turn.update(f, &old_m, &m);
        turn.update(f, &old_v, &v);
        if let Some(side) = &sides.rows {
            self.follow(f, turn, side, &g.dot(&g.matrix_transpose()), &done);
        }
        if let Some(side) = &sides.columns {
            self.follow(f, turn, side, &g.matrix_transpose().dot(g), &done);
        }
        // At the first step both moments are 0, and so is the move.
        let number = done.max(1);
        let denominator = (v / correction(&number, second, g.dtype())).sqrt() + self.epsilon;
        let direction = sides.rotated(&m) / correction(&number, first, g.dtype()) / denominator;
        -turn.times_rate(&sides.rotated_back(&direction))
    }
}
