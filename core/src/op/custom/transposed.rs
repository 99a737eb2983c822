//! `transposed`: the linear map whose transpose is given as a region.

use crate::op::attribute::Attribute;
use crate::op::batch::RegionOutput;
use crate::op::custom::{inputs, outputs, same_types};
use crate::op::derivative::Custom;
use crate::op::prelude::*;
use std::collections::BTreeMap;

attributes! {
    /// `transposed %r…, %t… {tangents=k} region`: the region computes x̄ = A(r)·ȳ; the results
    /// are Aᵀ(r)·t.
    ///
    /// This is the tangent of a `custom_vjp`; it is never evaluated. Reverse mode transposes it,
    /// which is the region itself, linear or not. Forward mode replaces it by the region's
    /// transpose. It occurs in linear programs only; text and files have no form for it.
    Transposed {
        /// Number of last operands that are tangents.
        tangents: usize,
    }
}

const NOT_RUN: &str = "`transposed` is replaced before a linear program is run";

impl Operation for Transposed {
    fn name(&self) -> &'static str {
        "transposed"
    }

    named!(struct);

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [region] = t.exactly_regions()?;
        let (taken, given) = (inputs(region), outputs(region));
        let residuals = t.operands.len().checked_sub(self.tangents).filter(|r| *r <= taken.len());
        let Some(residuals) = residuals else {
            bail!("has fewer operands than tangents, or a region with fewer inputs than residuals");
        };
        same_types("the residuals", &t.operands[..residuals], &taken[..residuals])?;
        same_types("the tangents", &t.operands[residuals..], &given)?;
        Ok(taken[residuals..].to_vec())
    }

    fn evaluate<R: Real>(&self, _: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        Err(Diagnostic::new(NOT_RUN))
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let count = l.results.len();
        Compute::Decompose(Box::new(move |_| {
            vec![Tensor::poisoned(Diagnostic::new(NOT_RUN)); count]
        }))
    }

    fn derivative(&self) -> Derivative {
        Derivative::Custom(Custom::Transposed { tangents: self.tangents })
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        // Cotangents of the results are batched. The cotangent of a shared operand is the sum
        // over all examples.
        let residuals = b.operands.len() - self.tangents;
        let cotangents = std::iter::repeat_n(true, b.results.len());
        let taken: Vec<bool> = b.batched[..residuals].iter().copied().chain(cotangents).collect();
        let given: Vec<RegionOutput> = b.batched[residuals..]
            .iter()
            .map(|batched| if *batched { RegionOutput::Batched } else { RegionOutput::Summed })
            .collect();
        let region = (b.map_region)(&b.regions[0], &taken, &given).map(|(region, _)| vec![region]);
        b.with_regions(self.clone(), region)
    }

    fn parse(_name: &str, _attributes: &mut BTreeMap<String, Attribute>) -> Option<Result<Self>> {
        None
    }

    const REGIONS: RangeInclusive<usize> = 1..=1;

    const VARIES: Varies = Varies::ByRegions;

    fn entries() -> Vec<crate::op::Entry> {
        vec![]
    }
}
