//! `custom_jvp`: a function with a tangent rule of its own.

use super::{
    FunctionName, arguments, floats as float_types, inputs, outputs, region_count, same_types,
};
use crate::build::inline::inline_or_poison;
use crate::build::tensor::Tensor;
use crate::diagnostic::Result;
use crate::graph::{Body, Region};
use crate::interpret::{Array, Real, Regions};
use crate::op::attribute::{attributes, named};
use crate::op::batch::RegionOutput;
use crate::op::compute::Compute;
use crate::op::derivative::{Custom, Derivative};
use crate::op::sample::{Sample, floats, region, values};
use crate::op::{Batch, Cost, Entry, Operation, Traits};
use crate::ty::TensorType;

attributes! {
    /// `custom_jvp %x…, %c… {captures=…, function=@f} region region`: results y = f(x, c) by the
    /// first region; their tangents by the second.
    ///
    /// The second region takes x, c, the results y, and a tangent for each float among x. It
    /// gives a tangent for each float among y. Reverse mode requires it to be linear in the
    /// tangents.
    CustomJvp {
        /// Number of last operands that are captures, constant to the rule.
        captures: usize = 0,
        /// The function's name in errors.
        function: FunctionName = FunctionName::default(),
    }
}

impl Operation for CustomJvp {
    named!("custom_jvp");

    fn infer(&self, operands: &[TensorType], regions: &[Region]) -> Result<Vec<TensorType>> {
        region_count(regions, 2)?;
        let arguments = arguments(operands, self.captures)?;
        same_types("the function's inputs", &inputs(&regions[0]), operands)?;
        let results = outputs(&regions[0]);
        let mut taken = operands.to_vec();
        taken.extend(results.iter().cloned());
        taken.extend(float_types(arguments));
        same_types("the rule's inputs", &inputs(&regions[1]), &taken)?;
        let given: Vec<TensorType> = float_types(&results).collect();
        same_types("the rule's outputs", &outputs(&regions[1]), &given)?;
        Ok(results)
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        _results: &[TensorType],
        regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        regions.run(0, operands)
    }

    fn compute<'a>(
        &'a self,
        _operands: &[TensorType],
        _results: &[TensorType],
        regions: &'a [Region],
    ) -> Compute<'a> {
        Compute::Decompose(Box::new(|operands| inline_or_poison(&regions[0], operands)))
    }

    fn derivative(&self) -> Derivative {
        Derivative::Custom(Custom::Jvp { captures: self.captures })
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        let map = |region: &Body, inputs: &[bool]| {
            let outputs = vec![RegionOutput::Batched; region.outputs.len()];
            (b.map_region)(region, inputs, &outputs).map(|(region, _)| region)
        };
        // The rule takes the operands, the results, and a tangent for each float argument,
        // batched if the argument is.
        let arguments = b.operands.len() - self.captures;
        let tangents =
            (0..arguments).filter(|i| b.operands[*i].dtype().is_float()).map(|i| b.batched[i]);
        let results = std::iter::repeat_n(true, b.results.len());
        let taken: Vec<bool> = b.batched.iter().copied().chain(results).chain(tangents).collect();
        let function = map(&b.regions[0], b.batched);
        b.with_regions(
            self.clone(),
            function.and_then(|f| Ok(vec![f, map(&b.regions[1], &taken)?])),
        )
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Loop, elementwise: false, commutative: false }
    }

    fn region_count(&self) -> std::ops::RangeInclusive<usize> {
        2..=2
    }

    fn entries() -> Vec<Entry> {
        let op = |captures| CustomJvp { captures, function: FunctionName("f".into()) };
        // y = x·exp(c), with its true derivative.
        let regions = |types: &[TensorType]| {
            let [x, c] = types else { return vec![] };
            let rule = region(&[x.clone(), c.clone(), x.clone(), x.clone()], |v| {
                vec![v[3].scaled_by(&v[1].convert(v[0].dtype()).exp())]
            });
            vec![region(types, |v| vec![&v[0] * v[1].convert(v[0].dtype()).exp()]), rule]
        };
        // Two arguments, one of integers, and two results.
        let mixed = |types: &[TensorType]| {
            let [x, n] = types else { return vec![] };
            let rule = region(&[x.clone(), n.clone(), x.clone(), n.clone(), x.clone()], |v| {
                vec![v[4].scaled_by(&v[0].cos())]
            });
            vec![region(types, |v| vec![v[0].sin(), &v[1] + &v[1]]), rule]
        };
        vec![Entry {
            name: "custom_jvp",
            doc: "The results of a function with a user-defined jvp rule.",
            derivative: "custom",
            samples: vec![
                Sample::with_regions(
                    op(0),
                    vec![floats(&[3], -1.0, 1.0), values(&[2], [3i32, -4])],
                    mixed,
                ),
                Sample::with_regions(
                    op(1),
                    vec![floats(&[3], -1.0, 1.0), values(&[3], [1i32, 2, -1])],
                    regions,
                ),
            ],
        }]
    }
}
