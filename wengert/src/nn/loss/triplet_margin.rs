//! Distances of an anchor to a similar vector and to a dissimilar one.

use super::{Reduction, alike, refused};
use wengert_core::{Location, Tensor, diagnostic};

/// For each row of an anchor a, a positive p and a negative n: max(0, d(a, p) − d(a, n) + margin)
/// (Schroff, Kalenichenko and Philbin, *FaceNet*, 2015). The distance d(x, y) is the norm
/// (Σ|x − y + ε|ʳ)^(1/r) along the last axis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TripletMargin {
    /// The negative is to be farther than the positive by this distance.
    pub margin: f64,
    /// r: the order of the norm, at least 1.
    pub order: f64,
    /// ε, which keeps the derivative of the norm finite at equal vectors.
    pub epsilon: f64,
    /// Whether d(p, n) replaces d(a, n) where it is smaller (Balntas and others, *Learning local
    /// feature descriptors with triplets*, 2016).
    pub swap: bool,
    /// Of the rows.
    pub reduction: Reduction,
}

impl Default for TripletMargin {
    /// A margin of 1, the Euclidean norm, ε = 10⁻⁶, no swap.
    fn default() -> Self {
        let reduction = Reduction::Mean;
        TripletMargin { margin: 1.0, order: 2.0, epsilon: 1e-6, swap: false, reduction }
    }
}

impl TripletMargin {
    /// The loss of three vectors for each row, floats of one type `[…, C]`.
    ///
    /// # Errors
    ///
    /// The operands have different types, are not floats, or have no axis; the order of the norm
    /// is below 1 or not finite.
    #[track_caller]
    pub fn call(&self, anchor: &Tensor, positive: &Tensor, negative: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        let operands = [("anchors", anchor), ("positives", positive), ("negatives", negative)];
        let [a, p, n] = match alike(operands) {
            Ok(operands) => operands,
            Err(poisoned) => return poisoned,
        };
        if !(self.order >= 1.0 && self.order.is_finite()) {
            let operands = operands.map(|(_, tensor)| tensor);
            return refused("a norm of order", self.order, "finite and at least 1", &operands);
        }
        if a.rank() == 0 {
            let error = diagnostic!("a triplet loss of {}", anchor.ty());
            return Tensor::fail_of(&[anchor], error.help("vectors have at least one axis"));
        }
        let mut apart = self.distance(&a, &n);
        if self.swap {
            apart = apart.min(self.distance(&p, &n));
        }
        self.reduction.call(&(self.distance(&a, &p) - apart + self.margin).relu())
    }

    #[track_caller]
    fn distance(&self, x: &Tensor, y: &Tensor) -> Tensor {
        let axis = [x.rank() - 1];
        let difference = x - y + self.epsilon;
        if self.order == 1.0 {
            difference.abs().sum_axes(&axis)
        } else if self.order == 2.0 {
            difference.square().sum_axes(&axis).sqrt()
        } else {
            difference.abs().pow(self.order).sum_axes(&axis).pow(1.0 / self.order)
        }
    }
}
