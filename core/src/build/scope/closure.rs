//! Finished scopes and their captures.

use crate::build::tensor::Tensor;
use crate::graph::Body;

/// A finished child scope.
#[derive(Clone, Debug)]
pub struct Closure {
    /// The body. Its inputs are the explicit ones, followed by one for each capture.
    pub body: Body,
    /// The outer values for which the last inputs stand.
    pub captures: Vec<Tensor>,
}

impl Closure {
    /// Makes the closure capture exactly these tensors, in this order. They must include its
    /// present captures.
    pub fn capture(&mut self, tensors: &[Tensor]) {
        let explicit = self.body.inputs.len() - self.captures.len();
        let captured = self.body.inputs.split_off(explicit);
        for tensor in tensors {
            let known = self.captures.iter().position(|c| c.is_same(tensor));
            let value =
                known.map_or_else(|| self.body.values.push(tensor.ty().clone()), |i| captured[i]);
            self.body.inputs.push(value);
        }
        let all = |c: &Tensor| tensors.iter().any(|t| t.is_same(c));
        assert!(
            self.captures.iter().all(all),
            "what a closure uses is among what it shall capture"
        );
        self.captures = tensors.to_vec();
    }

    /// The captures of several closures, each once.
    pub fn captures_of(closures: &[Closure]) -> Vec<Tensor> {
        let mut all: Vec<Tensor> = Vec::new();
        for capture in closures.iter().flat_map(|c| &c.captures) {
            if !all.iter().any(|t| t.is_same(capture)) {
                all.push(capture.clone());
            }
        }
        all
    }
}
