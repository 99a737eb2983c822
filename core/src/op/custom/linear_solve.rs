//! `custom_linear_solve`: the solution of a linear system by a user-defined solver.
//!
//! The solution of A(k)·x = b is a function of b and k, independent of the solver, so its
//! derivative follows from the system alone: A·ẋ = ḃ − Ȧ·x. This is a system with the same map,
//! and the same solver serves it. The solution is linear in b; the transposed solver computes the
//! transpose. So a solver may be a loop of any number of steps and may stop by its residuals, and
//! reverse mode keeps none of its values: it keeps only x.

use super::{arguments, inputs, outputs, same_types};
use crate::build::control::{fori, scan, scan_reverse, while_loop};
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
    named!("custom_linear_solve");

    fn infer(&self, operands: &[TensorType], regions: &[Region]) -> Result<Vec<TensorType>> {
        let b = arguments(operands, self.captures)?;
        if b.is_empty() {
            return Err(Diagnostic::new("has no right-hand side"));
        }
        if let Some(ty) = b.iter().find(|ty| !ty.dtype.is_float()) {
            return Err(Diagnostic::new(format!("a right-hand side has type {ty}"))
                .help("solutions are floats"));
        }
        let wanted: &[usize] = if self.symmetric { &[2] } else { &[2, 4] };
        if !wanted.contains(&regions.len()) {
            let wanted = if self.symmetric { "2 regions" } else { "2 or 4 regions" };
            return Err(Diagnostic::new(format!("takes {wanted}, found {}", regions.len())).help(
                "a map and its solver, then the transposed map and its solver; or `symmetric=true`",
            ));
        }
        for (region, what) in regions.iter().zip(REGIONS) {
            same_types(&format!("the inputs of the {what}"), &inputs(region), operands)?;
            same_types(&format!("the outputs of the {what}"), &outputs(region), b)?;
        }
        Ok(b.to_vec())
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        _results: &[TensorType],
        regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        regions.run(1, operands)
    }

    fn compute<'a>(
        &'a self,
        _operands: &[TensorType],
        _results: &[TensorType],
        regions: &'a [Region],
    ) -> Compute<'a> {
        Compute::Decompose(Box::new(|operands| inline_or_poison(&regions[1], operands)))
    }

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

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Loop, elementwise: false, commutative: false }
    }

    fn region_count(&self) -> std::ops::RangeInclusive<usize> {
        2..=4
    }

    fn entries() -> Vec<Entry> {
        let op = |captures, symmetric| CustomLinearSolve { captures, symmetric };
        let near = |shape: &[usize]| floats(shape, -1.0, 1.0);
        vec![Entry {
            name: "custom_linear_solve",
            doc: "The solution of a linear system by a user-defined solver. The derivative is that \
                  of the system, not of the solver.",
            derivative: "custom",
            samples: vec![
                Sample::with_regions(
                    op(2, true),
                    vec![near(&[2, 3]), floats(&[3], 1.0, 2.0), values(&[], [2i32])],
                    diagonal,
                ),
                Sample::with_regions(
                    op(2, false),
                    vec![near(&[4]), floats(&[4], 1.0, 2.0), floats(&[4], -0.5, 0.5)],
                    bidiagonal,
                ),
                Sample::with_regions(
                    op(3, false),
                    vec![near(&[2]), near(&[2]), near(&[2]), near(&[2]), near(&[2])],
                    coupled,
                ),
                Sample::with_regions(op(0, true), vec![near(&[0])], |types| {
                    vec![region(types, |v| vec![&v[0] * 2.0]), region(types, |v| vec![&v[0] * 0.5])]
                }),
            ],
        }]
    }
}

/// The names of the regions in errors.
const REGIONS: [&str; 4] = ["map", "solver", "transposed map", "transposed solver"];

/// A diagonal matrix times an integer, on each row.
fn diagonal(types: &[TensorType]) -> Vec<Region> {
    let [b, ..] = types else { return vec![] };
    let scale = |v: &[Tensor]| {
        let n = v[2].convert(v[1].dtype()).broadcast_in_dim(v[1].shape().to_vec(), &[]);
        (&v[1] * n).broadcast_in_dim(b.shape.clone(), &[1])
    };
    vec![region(types, |v| vec![&v[0] * scale(v)]), region(types, |v| vec![&v[0] / scale(v)])]
}

/// dᵢ·xᵢ + lᵢ·xᵢ₋₁, solved by substitution: a scan, and a reverse scan for the transpose.
fn bidiagonal(types: &[TensorType]) -> Vec<Region> {
    let before = |x: &Tensor| x.pad(&[(1, -1)], 0.0);
    let behind = |x: &Tensor| x.pad(&[(-1, 1)], 0.0);
    let step = |last: &Tensor, (b, d, l): &(Tensor, Tensor, Tensor)| {
        let x = (b - l * last) / d;
        (x.clone(), x)
    };
    let zero = |v: &[Tensor]| Tensor::zeros(&TensorType::scalar(v[0].dtype()));
    vec![
        region(types, |v| vec![&v[1] * &v[0] + &v[2] * before(&v[0])]),
        region(types, |v| {
            vec![scan(&zero(v), &(v[0].clone(), v[1].clone(), v[2].clone()), step).1]
        }),
        region(types, |v| vec![&v[1] * &v[0] + behind(&(&v[2] * &v[0]))]),
        region(types, |v| {
            vec![scan_reverse(&zero(v), &(v[0].clone(), v[1].clone(), behind(&v[2])), step).1]
        }),
    ]
}

/// (4u + e·v, f·u + 4v), iterated from a guess by a `while`, and for the transpose by a counted
/// loop.
fn coupled(types: &[TensorType]) -> Vec<Region> {
    const STEPS: i32 = 28;
    let next = |u: &Tensor, v: &Tensor, b: &[Tensor], e: &Tensor, f: &Tensor| {
        ((&b[0] - e * v) * 0.25, (&b[1] - f * u) * 0.25)
    };
    let map =
        |u: &Tensor, v: &Tensor, e: &Tensor, f: &Tensor| vec![u * 4.0 + e * v, f * u + v * 4.0];
    vec![
        region(types, |v| map(&v[0], &v[1], &v[2], &v[3])),
        region(types, |b| {
            let init = (Tensor::constant(0i32), (b[4].clone(), b[4].clone()));
            let (_, (u, v)) = while_loop(
                &init,
                |(i, _)| i.lt(Tensor::constant(STEPS)),
                |(i, (u, v))| (i + 1i32, next(u, v, b, &b[2], &b[3])),
            );
            vec![u, v]
        }),
        region(types, |v| map(&v[0], &v[1], &v[3], &v[2])),
        region(types, |b| {
            let init = (b[4].clone(), b[4].clone());
            let (u, v) = fori(STEPS as usize, &init, |_, (u, v)| next(u, v, b, &b[3], &b[2]));
            vec![u, v]
        }),
    ]
}
