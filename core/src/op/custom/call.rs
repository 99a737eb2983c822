//! `call`: runs a function.

use super::{FunctionName, inputs, outputs, region_count};
use crate::build::inline::inline_or_poison;
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::graph::Region;
use crate::interpret::{Array, Real, Regions};
use crate::op::attribute::{attributes, named};
use crate::op::batch::RegionOutput;
use crate::op::compute::Compute;
use crate::op::derivative::Derivative;
use crate::op::sample::{Sample, floats, region};
use crate::op::{Batch, Cost, Entry, Op, Operation, Traits};
use crate::ty::TensorType;

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
    named!("call");

    fn infer(&self, operands: &[TensorType], regions: &[Region]) -> Result<Vec<TensorType>> {
        region_count(regions, 1)?;
        let types = |types: &[TensorType]| {
            types.iter().map(TensorType::to_string).collect::<Vec<_>>().join(", ")
        };
        let taken = inputs(&regions[0]);
        if taken != operands {
            let name = &self.function.0;
            return Err(Diagnostic::new(format!(
                "`@{name}` takes ({}), and is given ({})",
                types(&taken),
                types(operands)
            )));
        }
        Ok(outputs(&regions[0]))
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
        if self.opaque { Derivative::Opaque } else { Derivative::Function }
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        let function = FunctionName(format!("{}.vmap", self.function.0));
        batch_region(FunctionCall { function, ..self.clone() }, b)
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Loop, elementwise: false, commutative: false }
    }

    fn region_count(&self) -> std::ops::RangeInclusive<usize> {
        1..=1
    }

    fn entries() -> Vec<Entry> {
        let call = FunctionCall { function: FunctionName("f".into()), opaque: false };
        let operands = vec![floats(&[3], 0.5, 2.0), floats(&[3], -2.0, 2.0)];
        let regions =
            |types: &[TensorType]| vec![region(types, |x| vec![&x[0] * &x[1], x[0].log()])];
        vec![Entry {
            name: "call",
            doc: "The results of a function. An opaque function cannot be differentiated.",
            derivative: Derivative::Function.kind(),
            samples: vec![Sample::with_regions(call, operands, regions)],
        }]
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
