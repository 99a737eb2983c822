//! `polygamma`: the derivatives of the digamma function.

use super::attribute::{attributes, named};
use super::compute::{Compute, replay};
use super::derivative::Derivative;
use super::elementwise::{Domain, widened};
use super::sample::{Sample, floats, values};
use super::{Batch, Cost, Entry, Op, Operation, Traits, operand_count};
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::graph::Region;
use crate::interpret::{Array, Cell, Cells, Real, Regions, special};
use crate::math;
use crate::nest::ScalarOp;
use crate::ty::TensorType;

attributes! {
    /// `polygamma %x {order=1}`: ψ⁽ⁿ⁾(x), the n-th derivative of ψ = (ln Γ)′: ψ itself for n = 0,
    /// and (−1)ⁿ⁺¹·n!·Σ 1/(x + k)ⁿ⁺¹ over k ≥ 0 for n ≥ 1. At the poles 0, −1, −2, … it is +∞ for
    /// odd n and NaN for even n, whose sides have different signs, as in jax. The derivative is
    /// the polygamma function of the next order.
    ///
    /// On f64 the error is below 2n + 6 ULP for positive x, and below as many units of the
    /// nearest pole's term for negative x. For f32 and halves that result is rounded.
    Polygamma {
        /// n.
        order: usize,
    }
}

/// Largest order.
const MOST: usize = 10_000;

impl Operation for Polygamma {
    named!("polygamma");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 1)?;
        Domain::Float.check(operands[0].dtype)?;
        if self.order > MOST {
            return Err(Diagnostic::new(format!("order {} is out of range", self.order))
                .help(format!("orders are at most {MOST}")));
        }
        Ok(vec![operands[0].clone()])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        _results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let x = &operands[0];
        let value = |v: f64| match self.order {
            0 => special::digamma(v),
            order => special::polygamma(order, v),
        };
        let cell = |cell: &Cell<R>| cell.real().apply("polygamma", value).map(Cell::Real);
        let cells = Cells::try_collect(x.cells.iter().map(cell))?;
        Ok(vec![Array::new(x.dtype, x.shape.clone(), cells)])
    }

    fn compute<'a>(
        &'a self,
        _operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        Compute::Element {
            rule: Box::new(|c, index| {
                let x = c.operand(0, index);
                widened(c, &[x], |c, x| {
                    if self.order == 0 {
                        return c.scalar(ScalarOp::Digamma, x);
                    }
                    let program = math::polygamma(self.order as u32, c.dtype(x[0]));
                    replay(c, &program.expect("halves are f32 here"), x)
                })
            }),
            indirect: vec![],
        }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Nonlinear(|j| {
            let Op::Polygamma(Polygamma { order }) = j.op else {
                unreachable!("this op's own rule")
            };
            let slope = || j.operands[0].polygamma(order + 1);
            vec![j.tangents[0].as_ref().map(|t| t.scaled_by(&slope()))]
        })
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.elementwise(self.clone())
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Expensive, elementwise: true, commutative: false }
    }

    fn entries() -> Vec<Entry> {
        let sample = |order, operand| Sample::new(Polygamma { order }, vec![operand]);
        vec![Entry {
            name: "polygamma",
            doc: "The derivative of order n = `order` of digamma, (−1)ⁿ⁺¹·n!·Σ 1/(x + k)ⁿ⁺¹. At \
                  the poles 0, −1, … it is +∞ for odd orders and NaN for even orders. The \
                  derivative is the next order.",
            derivative: "nonlinear",
            samples: vec![
                sample(0, floats(&[5], 1.8, 6.0)),
                sample(1, floats(&[3, 5], 0.6, 6.0)),
                sample(1, floats(&[5], -1.7, -1.3)),
                sample(2, floats(&[5], 0.6, 3.0)),
                sample(3, floats(&[5], 0.9, 3.0)),
                sample(7, floats(&[5], 2.0, 4.0)),
                sample(1, values(&[6], [0.0f32, -3.0, 1e30, 1e-3, f32::INFINITY, f32::NAN])),
                sample(2, values(&[4], [0.0f32, -3.0, 30.0, f32::NAN])),
                sample(30, values(&[2], [10.5f64, 3.0])),
            ],
        }]
    }
}
