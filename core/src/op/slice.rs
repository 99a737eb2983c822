//! `slice`: a box of a tensor, with steps.

use crate::op::Pad;
use crate::op::prelude::*;

attributes! {
    /// `slice %x {limit=[…], start=[…], stride=[…]}`: elements `start, start + stride, … < limit`
    /// of each axis.
    Slice {
        /// First index of each axis.
        start: Vec<Dim>,
        /// Least excluded index of each axis; at most the extent.
        limit: Vec<Dim>,
        /// Step of each axis, at least 1; empty: all 1.
        stride: Vec<i64> = vec![],
    }
}

impl Slice {
    fn step(&self, axis: usize) -> i64 {
        self.stride.get(axis).copied().unwrap_or(1)
    }
}

impl Op {
    /// The slice that the result is of the op's only operand, if it is a box of neighbouring
    /// elements.
    pub fn part(&self) -> Option<&Slice> {
        match self {
            Op::Slice(slice) if slice.stride.iter().all(|step| *step == 1) => Some(slice),
            _ => None,
        }
    }
}

impl Operation for Slice {
    named!("slice", "result[i…] = x[start + i · stride …].");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        ensure!(
            self.start.len() == x.rank()
                && self.limit.len() == x.rank()
                && [0, x.rank()].contains(&self.stride.len()),
            "start, limit and stride need one entry for each axis of {x}"
        );
        let mut shape = Vec::with_capacity(x.rank());
        for axis in 0..x.rank() {
            let (start, limit, step) = (&self.start[axis], &self.limit[axis], self.step(axis));
            ensure!(step >= 1, "stride {step} of axis {axis}"; help "a stride is at least 1");
            if !start.at_least(0) || !start.at_most(limit) || !limit.at_most(&x.shape[axis]) {
                let symbolic =
                    [start, limit, &x.shape[axis]].into_iter().any(|d| d.as_constant().is_none());
                let error = Diagnostic::new(format!(
                    "{start}..{limit} does not lie within axis {axis} of {x}"
                ));
                return Err(error.help(match symbolic {
                    true => "bounds hold for every value from 1 on that a dimension variable may \
                             have; if they do not, give the axis a number"
                        .into(),
                    false => format!(
                        "bounds lie within 0..{}, the first not above the second",
                        x.shape[axis]
                    ),
                }));
            }
            let extent = limit
                .checked_sub(start)
                .and_then(|d| d.checked_add(&Dim::constant(step - 1)))
                .and_then(|d| d.checked_floor_div(step));
            shape.push(extent.ok_or_else(|| {
                Diagnostic::new(format!(
                    "the extent of {start}..{limit} in steps of {step} is no dimension"
                ))
                .help("give the axis a number instead of dimension variables")
            })?);
        }
        Ok(vec![x.with_shape(shape)])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let start: Vec<usize> = self.start.iter().map(|d| d.as_extent().expect("bound")).collect();
        e.build(|index| {
            let at: Vec<usize> = index
                .iter()
                .enumerate()
                .map(|(a, i)| start[a] + i * self.step(a) as usize)
                .collect();
            e.operands[0].at(&at).clone()
        })
    }

    fn compute<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
        Compute::element(|c, index| {
            let at: Vec<Affine> = index
                .iter()
                .enumerate()
                .map(|(a, i)| {
                    let start =
                        self.start[a].as_constant().expect("compute is asked for bound types only");
                    i.scale(self.step(a)).offset(start)
                })
                .collect();
            c.operand(0, &at)
        })
    }

    const DERIVATIVE: Derivative = Derivative::Linear(|t| {
        let Op::Slice(op) = t.op else { unreachable!("the rule of slice") };
        let operand = t.operands[0].ty();
        let Some(ct) = &t.cotangents[0] else { return vec![None] };
        // low = start; high = extent − start − ((n − 1)·stride + 1), all linear in the
        // variables.
        let high: Option<Vec<Dim>> = (0..operand.rank())
            .map(|a| {
                let span =
                    ct.shape()[a].checked_add(&Dim::constant(-1))?.checked_scale(op.step(a))?;
                operand.shape[a]
                    .checked_sub(&op.start[a])?
                    .checked_sub(&span)?
                    .checked_sub(&Dim::constant(1))
            })
            .collect();
        let Some(high) = high else {
            return vec![Some(Tensor::poisoned(Diagnostic::new(
                "the extents of a slice overflow",
            )))];
        };
        let interior = (0..operand.rank()).map(|a| op.step(a) - 1).collect();
        let zero = Tensor::constant(Literal::full(&[], Scalar::zero(operand.dtype)));
        let pad = Pad { low: op.start.clone(), high, interior };
        // `high` counts from the last element, which an empty slice lacks.
        if ct.shape().iter().any(|d| d.as_constant() == Some(0)) {
            return vec![None];
        }
        vec![Some(Tensor::apply(pad, &[ct, &zero]))]
    });

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(Slice {
            start: prepended(Dim::constant(0), &self.start, false),
            limit: b.shape(&self.limit),
            stride: prepended(1, &self.stride, true),
        })
    }

    const TRAITS: Traits = Traits::movement(Cost::Free);
}
