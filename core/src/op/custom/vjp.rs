//! `custom_vjp`: a function with a forward and a backward half of its own.

use crate::op::batch::RegionOutput;
use crate::op::custom::{
    FunctionName, arguments, floats as float_types, inputs, outputs, same_types,
};
use crate::op::derivative::Custom;
use crate::op::prelude::*;

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
    named!(
        "custom_vjp",
        "The results of a function with user-defined forward and backward halves."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [forward, backward] = t.exactly_regions()?;
        let arguments = arguments(t.operands, self.captures)?;
        same_types("the forward half's inputs", &inputs(forward), t.operands)?;
        let mut results = outputs(forward);
        let count = results.len().checked_sub(self.residuals).ok_or_else(|| {
            Diagnostic::new(format!(
                "keeps {} residuals of {} outputs",
                self.residuals,
                results.len()
            ))
        })?;
        let mut taken = results.split_off(count);
        taken.extend(float_types(&results));
        same_types("the backward half's inputs", &inputs(backward), &taken)?;
        let given: Vec<TensorType> = float_types(arguments).collect();
        same_types("the backward half's outputs", &outputs(backward), &given)?;
        Ok(results)
    }

    by_first_region!(2);

    const DERIVATIVE: Derivative = Derivative::Custom(Custom::Vjp { captures: 0 });

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
}
