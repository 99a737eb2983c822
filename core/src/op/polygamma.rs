//! `polygamma`: the derivatives of the digamma function.

use crate::interpret::special;
use crate::math;
use crate::op::compute::replay;
use crate::op::prelude::*;

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
    named!(
        "polygamma",
        "The derivative of order n = `order` of digamma, (−1)ⁿ⁺¹·n!·Σ 1/(x + k)ⁿ⁺¹. At the poles \
         0, −1, … it is +∞ for odd orders and NaN for even orders. The derivative is the next \
         order."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        Domain::Float.check(x.dtype)?;
        ensure!(self.order <= MOST, "order {} is out of range", self.order;
            help "orders are at most {MOST}");
        Ok(vec![x.clone()])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let value = |v: f64| match self.order {
            0 => special::digamma(v),
            order => special::polygamma(order, v),
        };
        e.map(|x| x.real().apply("polygamma", value).map(Cell::Real))
    }

    fn compute<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
        Compute::element(|c, index| {
            let x = c.operand(0, index);
            widened(c, &[x], |c, x| {
                if self.order == 0 {
                    return c.scalar(ScalarOp::Digamma, x);
                }
                let program = math::polygamma(self.order as u32, c.dtype(x[0]));
                replay(c, &program.expect("halves are f32 here"), x)
            })
        })
    }

    const DERIVATIVE: Derivative = Derivative::Nonlinear(|j| {
        let Op::Polygamma(Polygamma { order }) = j.op else { unreachable!("this op's own rule") };
        let slope = || j.operands[0].polygamma(order + 1);
        vec![j.tangents[0].as_ref().map(|t| t.scaled_by(&slope()))]
    });

    const TRAITS: Traits = Traits::elementwise(Cost::Expensive);
}
