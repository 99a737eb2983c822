//! `custom_jvp`: a function with a tangent rule of its own.

use crate::op::batch::RegionOutput;
use crate::op::custom::{
    FunctionName, arguments, floats as float_types, inputs, outputs, same_types,
};
use crate::op::derivative::Custom;
use crate::op::prelude::*;

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
    named!("custom_jvp", "The results of a function with a user-defined jvp rule.");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [function, rule] = t.exactly_regions()?;
        let arguments = arguments(t.operands, self.captures)?;
        same_types("the function's inputs", &inputs(function), t.operands)?;
        let results = outputs(function);
        let mut taken = t.operands.to_vec();
        taken.extend(results.iter().cloned());
        taken.extend(float_types(arguments));
        same_types("the rule's inputs", &inputs(rule), &taken)?;
        let given: Vec<TensorType> = float_types(&results).collect();
        same_types("the rule's outputs", &outputs(rule), &given)?;
        Ok(results)
    }

    by_first_region!(2);

    const DERIVATIVE: Derivative = Derivative::Custom(Custom::Jvp { captures: 0 });

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
}
