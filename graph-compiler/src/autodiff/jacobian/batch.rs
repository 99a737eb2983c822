//! A differential applied to many vectors at once.

use super::basis::{mapped, with_front};
use super::failed;
use crate::autodiff::jvp::zeros;
use crate::autodiff::operators::Differential;
use crate::autodiff::values::{components_of, tangent_of};
use crate::autodiff::{Linear, unpoisoned};
use wengert_core::{Diagnostic, Differentiable, Dim, KeyPath, Location, Result, Tensor};

impl<M: Differentiable, O: Differentiable> Differential<M, O> {
    /// The tangents of the value along many tangents at once. Each tensor has a leading axis over
    /// them, and so have the result's.
    #[track_caller]
    pub fn push_forward_batch(&self, tangents: &M::TangentVector) -> O::TangentVector {
        self.batch("tangent", &self.at, &self.output, &components_of(&self.at, tangents), |l, t| {
            l.apply(t)
        })
    }

    /// The cotangents of the point from many cotangents of the value at once. Each tensor has a
    /// leading axis over them, and so have the result's.
    #[track_caller]
    pub fn pull_back_batch(&self, cotangents: &O::TangentVector) -> M::TangentVector {
        self.batch(
            "cotangent",
            &self.output,
            &self.at,
            &components_of(&self.output, cotangents),
            |l, c| l.transpose(c),
        )
    }

    #[track_caller]
    fn batch<A: Differentiable, B: Differentiable>(
        &self,
        what: &str,
        from: &A,
        to: &B,
        vectors: &[Option<Tensor>],
        f: impl FnOnce(&Linear, &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>>,
    ) -> B::TangentVector {
        let caller = Location::caller();
        let _user = caller.attributed();
        let result = self.linear().and_then(|linear| {
            let size = fit_batch(what, from, vectors)?;
            let floats = |v: &Option<Tensor>| v.clone().filter(|t| t.dtype().is_float());
            let results =
                mapped(&vectors.iter().map(floats).collect::<Vec<_>>(), &size, |v| f(linear, v))?;
            let tensors = to.tensors();
            let present = |(result, (_, t)): (Option<Tensor>, &(KeyPath, Tensor))| {
                result
                    .map_or_else(
                        || zeros(&with_front(std::slice::from_ref(&size), t.ty(), t.dtype())),
                        Ok,
                    )
                    .map(Some)
            };
            results.into_iter().zip(&tensors).map(present).collect::<Result<Vec<_>>>()
        });
        let results =
            result.unwrap_or_else(|error| vec![Some(failed(error, caller)); to.tensors().len()]);
        tangent_of(to, &results)
    }
}

/// Checks that each vector is a batch of vectors of `value`, all of one size. Returns the size.
fn fit_batch(what: &str, value: &impl Differentiable, vectors: &[Option<Tensor>]) -> Result<Dim> {
    let first = vectors
        .iter()
        .flatten()
        .find_map(|v| v.error().map_or_else(|| v.shape().first().cloned(), |_| None));
    unpoisoned(vectors.iter().flatten())?;
    let Some(size) = first else {
        return Err(Diagnostic::new(format!(
            "the batch of {what}s has no axis in front that runs over them"
        ))
        .help(format!("stack {what}s along a new first axis")));
    };
    for ((path, tensor), vector) in value.tensors().iter().zip(vectors) {
        let expected = with_front(std::slice::from_ref(&size), tensor.ty(), tensor.dtype());
        let Some(vector) = vector.as_ref().filter(|v| *v.ty() != expected) else { continue };
        let name = if path.as_str().is_empty() { String::new() } else { format!(" for `{path}`") };
        return Err(Diagnostic::new(format!(
            "the batch of {what}s{name} has type {}, a batch of {size} has {expected}",
            vector.ty()
        ))
        .at(vector.defined_at().unwrap_or_default(), "the batch is made here")
        .at(tensor.defined_at().unwrap_or_default(), "the value is made here")
        .help(format!("stack {what}s along a new first axis")));
    }
    Ok(size)
}
