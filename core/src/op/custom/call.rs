//! `call`: runs a function.

use crate::op::batch::RegionOutput;
use crate::op::custom::{FunctionName, inputs, outputs};
use crate::op::prelude::*;

attributes! {
    /// `call %x… {function=@f} region`: the results of the region for the operands.
    ///
    /// An opaque function has no derivative: differentiating through it is an error. A result
    /// that depends on it must be cut off by `stop_gradient`, or the function needs a rule.
    FunctionCall {
        /// The function's name.
        function: FunctionName,
        /// Whether differentiating the region is an error.
        opaque: bool = false,
    }
}

impl Operation for FunctionCall {
    named!("call", "The results of a function. An opaque function cannot be differentiated.");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [region] = t.exactly_regions()?;
        let taken = inputs(region);
        if taken != t.operands {
            let name = &self.function.0;
            bail!("`@{name}` takes ({}), and is given ({})", listed(&taken), listed(t.operands));
        }
        Ok(outputs(region))
    }

    by_first_region!(1);

    const DERIVATIVE: Derivative = Derivative::Function;

    fn derivative(&self) -> Derivative {
        if self.opaque { Derivative::Opaque } else { Self::DERIVATIVE }
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        let function = FunctionName(format!("{}.vmap", self.function.0));
        batch_region(FunctionCall { function, ..self.clone() }, b)
    }
}

/// The batching rule of an op that runs its region on its operands.
pub(super) fn batch_region(op: impl Into<Op>, b: &Batch<'_>) -> Vec<Tensor> {
    let region = &b.regions[0];
    match (b.map_region)(region, b.batched, &vec![RegionOutput::AsItIs; region.outputs.len()]) {
        Ok((region, batched)) => {
            let results = b.with_regions(op, Ok(vec![region]));
            // An output that depends on no batched value is computed once, and repeated after the
            // op.
            results
                .iter()
                .zip(batched)
                .map(|(t, batched)| if batched { t.clone() } else { b.repeat(t) })
                .collect()
        }
        Err(error) => b.fail(error),
    }
}

impl Op {
    /// The name of the function that the op calls, whose body is its region.
    pub fn callee(&self) -> Option<&str> {
        match self {
            Op::FunctionCall(call) => Some(&call.function.0),
            _ => None,
        }
    }

    /// Renames the called function.
    pub(crate) fn set_callee(&mut self, name: FunctionName) {
        if let Op::FunctionCall(call) = self {
            call.function = name;
        }
    }
}
