//! `custom_vjp`: a function with a forward and a backward half of its own.

use super::{
    FunctionName, arguments, floats as float_types, inputs, outputs, region_count, same_types,
};
use crate::build::inline::inline_or_poison;
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::graph::Region;
use crate::interpret::{Array, Real, Regions};
use crate::op::attribute::{attributes, named};
use crate::op::batch::RegionOutput;
use crate::op::compute::Compute;
use crate::op::derivative::{Custom, Derivative};
use crate::op::sample::{Sample, floats, region, values};
use crate::op::{Batch, Cost, Entry, Operation, Traits};
use crate::ty::TensorType;

attributes! {
    /// `custom_vjp %x…, %c… {captures=…, function=@f, residuals=r} region region`: the first
    /// region takes x and c and gives the results y, then r residuals; the second takes the
    /// residuals and a cotangent for each float among y, and gives a cotangent for each float
    /// among x.
    ///
    /// Its forward mode is the transpose of the second region, which must then be linear in the
    /// cotangents.
    CustomVjp {
        /// Number of last operands that are captures, constant to the rule.
        captures: usize = 0,
        /// The function's name in errors.
        function: FunctionName = FunctionName::default(),
        /// Number of outputs of the first region that are kept for the second.
        residuals: usize = 0,
    }
}

impl Operation for CustomVjp {
    named!("custom_vjp");

    fn infer(&self, operands: &[TensorType], regions: &[Region]) -> Result<Vec<TensorType>> {
        region_count(regions, 2)?;
        let arguments = arguments(operands, self.captures)?;
        same_types("the forward half's inputs", &inputs(&regions[0]), operands)?;
        let mut results = outputs(&regions[0]);
        let count = results.len().checked_sub(self.residuals).ok_or_else(|| {
            Diagnostic::new(format!(
                "keeps {} residuals of {} outputs",
                self.residuals,
                results.len()
            ))
        })?;
        let mut taken = results.split_off(count);
        taken.extend(float_types(&results));
        same_types("the backward half's inputs", &inputs(&regions[1]), &taken)?;
        let given: Vec<TensorType> = float_types(arguments).collect();
        same_types("the backward half's outputs", &outputs(&regions[1]), &given)?;
        Ok(results)
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        results: &[TensorType],
        regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let mut outputs = regions.run(0, operands)?;
        outputs.truncate(results.len());
        Ok(outputs)
    }

    fn compute<'a>(
        &'a self,
        _operands: &[TensorType],
        results: &[TensorType],
        regions: &'a [Region],
    ) -> Compute<'a> {
        let count = results.len();
        Compute::Decompose(Box::new(move |operands| {
            let mut outputs = inline_or_poison(&regions[0], operands);
            outputs.truncate(count);
            outputs
        }))
    }

    fn derivative(&self) -> Derivative {
        Derivative::Custom(Custom::Vjp { captures: self.captures })
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        let wanted =
            |batched: bool, otherwise| if batched { RegionOutput::Batched } else { otherwise };
        let forward: Vec<RegionOutput> = (0..b.regions[0].outputs.len())
            .map(|i| wanted(i < b.results.len(), RegionOutput::AsItIs))
            .collect();
        let regions =
            (b.map_region)(&b.regions[0], b.batched, &forward).and_then(|(forward, batched)| {
                // The backward half takes the residuals as the forward half gives them, and batched
                // cotangents. The cotangent of a shared argument is the sum over all examples.
                let cotangents = b.results.iter().filter(|ty| ty.dtype.is_float()).map(|_| true);
                let taken: Vec<bool> =
                    batched[b.results.len()..].iter().copied().chain(cotangents).collect();
                let given: Vec<RegionOutput> = (0..b.operands.len() - self.captures)
                    .filter(|i| b.operands[*i].dtype().is_float())
                    .map(|i| wanted(b.batched[i], RegionOutput::Summed))
                    .collect();
                let (backward, _) = (b.map_region)(&b.regions[1], &taken, &given)?;
                Ok(vec![forward, backward])
            });
        b.with_regions(self.clone(), regions)
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Loop, elementwise: false, commutative: false }
    }

    fn region_count(&self) -> std::ops::RangeInclusive<usize> {
        2..=2
    }

    fn entries() -> Vec<Entry> {
        let op = |captures, residuals| CustomVjp {
            captures,
            function: FunctionName("f".into()),
            residuals,
        };
        // tanh, with its result as the residual.
        let tanh = |types: &[TensorType]| {
            let forward = region(types, |v| {
                let y = v[0].tanh();
                vec![y.clone(), y]
            });
            let backward = |v: &[Tensor]| vec![v[1].scaled_by(&(1.0 - v[0].square()))];
            vec![forward, region(&[types[0].clone(), types[0].clone()], backward)]
        };
        // (x·w, Σx) with a captured factor and an integer argument.
        let mixed = |types: &[TensorType]| {
            let [x, _, w] = types else { return vec![] };
            let forward = region(types, |v| {
                vec![&v[0] * v[2].convert(v[0].dtype()), v[1].clone(), v[0].sum(), v[2].clone()]
            });
            let taken = [w.clone(), x.clone(), TensorType::scalar(x.dtype)];
            let backward = region(&taken, |v| {
                vec![&v[1] * v[0].convert(v[1].dtype()) + v[2].broadcast_to(v[1].shape())]
            });
            vec![forward, backward]
        };
        let integers = || values(&[2], [3i32, -4]);
        vec![Entry {
            name: "custom_vjp",
            doc: "The results of a function with user-defined forward and backward halves.",
            derivative: "custom",
            samples: vec![
                Sample::with_regions(op(0, 1), vec![floats(&[2, 3], -1.0, 1.0)], tanh),
                Sample::with_regions(
                    op(1, 1),
                    vec![floats(&[3], -1.0, 1.0), integers(), values(&[3], [1i32, 2, -1])],
                    mixed,
                ),
            ],
        }]
    }
}
