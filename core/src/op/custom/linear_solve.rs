//! `custom_linear_solve`: the solution of a linear system by a user-defined solver.
//!
//! The solution of A(k)·x = b is a function of b and k, independent of the solver, so its
//! derivative follows from the system alone: A·ẋ = ḃ − Ȧ·x. This is a system with the same map,
//! and the same solver serves it. The solution is linear in b; the transposed solver computes the
//! transpose. So a solver may be a loop of any number of steps and may stop by its residuals, and
//! reverse mode keeps none of its values: it keeps only x.

use crate::build::inline::inline_or_poison;
use crate::op::batch::RegionOutput;
use crate::op::custom::{arguments, inputs, outputs, same_types};
use crate::op::derivative::Custom;
use crate::op::prelude::*;

attributes! {
    /// `custom_linear_solve %b…, %k… {captures=1, symmetric=true} region region [region region]`:
    /// x with A(k)·x = b.
    ///
    /// The regions take values of the types of b, then k, and give values of the types of b: the
    /// first A·x, the second the solution for a right-hand side. The third and fourth are the
    /// same for Aᵀ. A *symmetric* map is its own transpose, and has two regions only. A map with
    /// two regions that is not symmetric has a forward mode, and no reverse mode.
    CustomLinearSolve {
        /// Number of last operands that are captures, such as the coefficients of the map.
        captures: usize = 0,
        /// Whether the map is its own transpose.
        symmetric: bool = false,
    }
}

impl CustomLinearSolve {
    /// The regions that solve the transposed system, if they are known.
    pub fn transposed<'a>(&self, regions: &'a [Region]) -> Option<Vec<&'a Region>> {
        match regions {
            [map, solve] if self.symmetric => Some(vec![map, solve]),
            [map, solve, transposed_map, transposed_solve] => {
                Some(vec![transposed_map, transposed_solve, map, solve])
            }
            _ => None,
        }
    }
}

impl Operation for CustomLinearSolve {
    named!(
        "custom_linear_solve",
        "The solution of a linear system by a user-defined solver. The derivative is that of the \
         system, not of the solver."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let b = arguments(t.operands, self.captures)?;
        ensure!(!b.is_empty(), "has no right-hand side");
        if let Some(ty) = b.iter().find(|ty| !ty.dtype.is_float()) {
            bail!("a right-hand side has type {ty}"; help "solutions are floats");
        }
        let wanted: &[usize] = if self.symmetric { &[2] } else { &[2, 4] };
        if !wanted.contains(&t.regions.len()) {
            let wanted = if self.symmetric { "2 regions" } else { "2 or 4 regions" };
            return Err(Diagnostic::new(format!("takes {wanted}, found {}", t.regions.len())).help(
                "a map and its solver, then the transposed map and its solver; or `symmetric=true`",
            ));
        }
        for (region, what) in t.regions.iter().zip(REGIONS) {
            same_types(&format!("the inputs of the {what}"), &inputs(region), t.operands)?;
            same_types(&format!("the outputs of the {what}"), &outputs(region), b)?;
        }
        Ok(b.to_vec())
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        e.regions.run(1, e.operands)
    }

    fn lockstep<R: Real>(&self, l: Lockstep<'_, R>) -> Result<Vec<Vec<Array<R>>>> {
        let ranks = l.all();
        (l.run)(1, &ranks, l.operands)
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        Compute::Decompose(Box::new(|operands| inline_or_poison(&l.regions[1], operands)))
    }

    const DERIVATIVE: Derivative = Derivative::Custom(Custom::LinearSolve { captures: 0 });

    fn derivative(&self) -> Derivative {
        Derivative::Custom(Custom::LinearSolve { captures: self.captures })
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        // Each example is a system of its own. A shared right-hand side has a solution for each
        // of the maps.
        let count = b.operands.len() - self.captures;
        let taken: Vec<bool> = (0..b.operands.len()).map(|i| i < count || b.batched[i]).collect();
        let given = vec![RegionOutput::Batched; count];
        let map = |region: &Region| Ok((b.map_region)(region, &taken, &given)?.0);
        match b.regions.iter().map(map).collect::<Result<Vec<Region>>>() {
            Ok(regions) => {
                let operand =
                    |i: usize| if taken[i] { b.operand(i) } else { b.operands[i].clone() };
                let operands: Vec<Tensor> = (0..b.operands.len()).map(operand).collect();
                Tensor::apply_with(self.clone(), &operands.iter().collect::<Vec<_>>(), regions)
            }
            Err(error) => b.fail(error),
        }
    }

    const REGIONS: RangeInclusive<usize> = 2..=4;

    const VARIES: Varies = Varies::ByRegions;
}

/// The names of the regions in errors.
const REGIONS: [&str; 4] = ["map", "solver", "transposed map", "transposed solver"];
