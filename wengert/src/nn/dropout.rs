//! Dropout.

use wengert_core::Tensor;

/// Sets elements to zero at random and scales the others, so that the mean is preserved
/// (Srivastava et al. 2014).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Dropout {
    /// Probability of an element to become zero, in 0..1.
    pub rate: f64,
}

impl Dropout {
    /// Dropout with a rate.
    pub fn new(rate: f64) -> Self {
        Dropout { rate }
    }

    /// Drops out elements of `x` by the random numbers of `key`; without a key (in prediction),
    /// `x` itself.
    #[track_caller]
    pub fn call(&self, x: &Tensor, key: Option<&Tensor>) -> Tensor {
        let Some(key) = key.filter(|_| self.rate != 0.0) else { return x.clone() };
        let kept = key.dropout_kept(x.shape().to_vec(), self.rate);
        kept.select(&(x * (1.0 / (1.0 - self.rate))), &x.zeros_like())
    }
}
