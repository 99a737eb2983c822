//! `checkpoint`: a function whose values reverse mode mostly recomputes; and the two ops that
//! belong to it.

use crate::graph::{Equation, ValueId};
use crate::op::custom::call::batch_region;
use crate::op::custom::{FunctionName, inputs, outputs, same_types};
use crate::op::define::texts;
use crate::op::prelude::*;

texts! {
    /// The values of a checkpointed function that reverse mode keeps.
    Keep {
        /// Nothing: all values are recomputed from the function's arguments.
        Nothing "nothing",
        /// Results of matrix products and convolutions, which cost most to compute.
        Dots "dots",
        /// Values with one of the given names ([`CheckpointName`]).
        Names "names",
        /// All needed values except those with one of the given names.
        AllButNames "all_but_names",
    }
}

attributes! {
    /// `checkpoint %x… {keep="dots"} region`: the results of the region for the operands.
    ///
    /// A derivative in reverse mode keeps the operands and the values selected by `keep`, and
    /// recomputes all others when they are needed.
    Checkpoint {
        /// The kept values of the region.
        keep: Keep = Keep::Nothing,
        /// The names for `keep`.
        names: Vec<String> = vec![],
        /// The function's name, if it has one.
        function: FunctionName = FunctionName::default(),
    }
}

impl Checkpoint {
    fn policy(keep: Keep, names: &[&str]) -> Self {
        let names = names.iter().map(|name| name.to_string()).collect();
        Checkpoint { keep, names, function: FunctionName::default() }
    }

    /// Keeps nothing but the function's arguments.
    pub fn nothing() -> Self {
        Self::policy(Keep::Nothing, &[])
    }

    /// Keeps the results of matrix products and convolutions.
    pub fn dots() -> Self {
        Self::policy(Keep::Dots, &[])
    }

    /// Keeps the values with these names.
    pub fn names(names: &[&str]) -> Self {
        Self::policy(Keep::Names, names)
    }

    /// Keeps all needed values except those with these names.
    pub fn all_but_names(names: &[&str]) -> Self {
        Self::policy(Keep::AllButNames, names)
    }

    /// The values of the region that are kept if a derivative needs them; each once, in the order
    /// of their definition.
    pub fn kept(&self, region: &Body) -> Vec<ValueId> {
        // The name applies to the operand of `checkpoint_name`. Its result is a copy, which is
        // recomputed.
        let named = |equation: &Equation| match &equation.op {
            Op::CheckpointName(op) => self.names.contains(&op.name),
            _ => false,
        };
        let names: Vec<&Equation> = region.equations.iter().filter(|e| named(e)).collect();
        let is_named = |v: &ValueId| names.iter().any(|e| e.operands[0] == *v);
        let is_copy = |v: &ValueId| names.iter().any(|e| e.results[0] == *v);
        let keeps = |equation: &Equation, v: &ValueId| match self.keep {
            Keep::Nothing => false,
            Keep::Dots => matches!(equation.op, Op::DotGeneral(_) | Op::ConvGeneralDilated(_)),
            Keep::Names => is_named(v),
            Keep::AllButNames => !is_named(v) && !is_copy(v) && !equation.operands.is_empty(),
        };
        let of = |equation: &Equation| {
            equation
                .results
                .iter()
                .copied()
                .filter(|v| keeps(equation, v))
                .collect::<Vec<ValueId>>()
        };
        region.equations.iter().flat_map(of).collect()
    }
}

impl Operation for Checkpoint {
    named!(
        "checkpoint",
        "The results of a function; reverse mode keeps the values that `keep` selects and \
         recomputes the rest."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [region] = t.exactly_regions()?;
        same_types("the region's inputs", &inputs(region), t.operands)?;
        ensure!(
            self.names.is_empty() || matches!(self.keep, Keep::Names | Keep::AllButNames),
            "names are given, but it keeps \"{}\"", self.keep.name();
            help "keep \"names\" or \"all_but_names\""
        );
        Ok(outputs(region))
    }

    by_first_region!(1);

    const DERIVATIVE: Derivative = Derivative::Checkpoint;

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        batch_region(self.clone(), b)
    }
}

attributes! {
    /// `checkpoint_name %x {name="h"}`: x, under a name that an enclosing `checkpoint` may use.
    CheckpointName {
        /// The name.
        name: String,
    }
}

attributes! {
    /// `optimization_barrier %x`: x, but no pass treats it as equal to x.
    ///
    /// Values computed from the result are not merged with values computed from x, so a
    /// deliberately recomputed value stays recomputed.
    OptimizationBarrier {}
}

macro_rules! identity {
    ($t:ident, $name:literal, $doc:literal, $rule:expr) => {
        impl Operation for $t {
            named!($name, $doc);

            fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
                let [x] = t.exactly()?;
                Ok(vec![x.clone()])
            }

            fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
                Ok(e.operands.to_vec())
            }

            fn compute<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
                Compute::element(|c, index| c.operand(0, index))
            }

            const DERIVATIVE: Derivative = $rule;

            const TRAITS: Traits = Traits { elementwise: true, ..Traits::movement(Cost::Free) };
        }
    };
}

identity!(
    CheckpointName,
    "checkpoint_name",
    "x, under a name that an enclosing `checkpoint` may use.",
    Derivative::Nonlinear(|j| vec![j.tangents[0].clone()])
);
identity!(
    OptimizationBarrier,
    "optimization_barrier",
    "x, but no pass treats it as equal to x.",
    Derivative::Linear(|t| vec![t.cotangents[0].clone()])
);
