//! Composites over one axis: `softmax`, `log_softmax`, `logsumexp`.
//!
//! A composite stays one op through differentiation, so its derivative is stated in closed form
//! and no pattern has to be recognised in a differentiated graph. It is computed by its
//! decomposition into primitive ops, which fuse into one nest. All of them share their first
//! steps (maximum, shifted exponentials, their sum), so a loss and its gradient share them too.
//!
//! Halves are computed in f32 and rounded once at the end. A maximum that is infinite is replaced
//! by 0, so that the logarithm of a row of −∞ is −∞; its softmax is 0/0, NaN.

use crate::op::BroadcastInDim;
use crate::op::binary::extremum;
use crate::op::prelude::*;

kinds! {
    /// The kind of composite.
    SoftmaxKind {
        /// exp(x) / Σ exp(x).
        Softmax "softmax" "exp(x) / Σ exp(x) along `axis`.",
        /// x − ln Σ exp(x).
        LogSoftmax "log_softmax" "x − ln Σ exp(x) along `axis`.",
        /// ln Σ exp(x); the axis is reduced.
        LogSumExp "logsumexp"
            "ln Σ exp(x) along `axis`, which is removed; −∞ for a row of −∞ and for an empty row.",
    }
}

attributes! {
    /// `softmax %x {axis=1}` and its like.
    Softmax by kind: SoftmaxKind {
        /// The axis of the reduction.
        axis: usize,
    }
}

/// `reduced`, which lacks `axis`, broadcast along it to `shape`.
pub(super) fn restore(reduced: &Tensor, shape: &[Dim], axis: usize) -> Tensor {
    let dims = (0..shape.len()).filter(|a| *a != axis).collect();
    Tensor::apply(BroadcastInDim { shape: shape.to_vec(), dims }, &[reduced])
}

/// The common first steps for `x` of a wide dtype.
pub(super) struct Shifted {
    /// max x, or 0 where it is infinite; without the axis.
    pub max: Tensor,
    /// x − max.
    pub shifted: Tensor,
    /// exp(x − max).
    pub exponentials: Tensor,
    /// Σ exp(x − max); without the axis.
    pub sum: Tensor,
}

impl Shifted {
    pub(super) fn new(x: &Tensor, axis: usize) -> Self {
        let max = x.max_axes(&[axis]);
        let max = max.is_finite().select(&max, &max.zeros_like());
        let shifted = x - restore(&max, x.shape(), axis);
        let exponentials = shifted.exp();
        let sum = exponentials.sum_axes(&[axis]);
        Shifted { max, shifted, exponentials, sum }
    }
}

/// The same steps for one row in the interpreter: maximum, exponentials, their sum.
pub(super) fn shifted_row<R: Real>(row: &[R]) -> Result<(R, Vec<R>, R)> {
    let max = row.iter().cloned().reduce(|a, b| extremum(&a, &b, Ordering::Greater));
    let max = max.filter(|m| m.to_f64().is_finite()).unwrap_or(R::from_i64(0));
    let exponentials =
        row.iter().map(|x| x.sub(&max).apply("exp", libm::exp)).collect::<Result<Vec<R>>>()?;
    let sum = exponentials.iter().fold(R::from_i64(0), |s, e| s.add(e));
    Ok((max, exponentials, sum))
}

fn jvp(j: &Jvp<'_>) -> Vec<Option<Tensor>> {
    let Op::Softmax(op) = j.op else { unreachable!("the rule of softmax") };
    let Some(tangent) = &j.tangents[0] else { return vec![None] };
    let (x, y) = (&j.operands[0], &j.results[0]);
    let (dtype, axis) = (x.dtype().wide(), op.axis);
    let (t, y) = (tangent.convert(dtype), y.convert(dtype));
    let sum = |t: Tensor| t.sum_axes(&[axis]);
    let restored = |t: Tensor| restore(&t, x.shape(), axis);
    let result = match op.kind {
        // y∘(t − Σ y∘t): its transpose is y∘(c − Σ y∘c).
        SoftmaxKind::Softmax => {
            let weighted = t.scaled_by(&y);
            let mean = restored(sum(weighted.clone()));
            weighted - mean.scaled_by(&y)
        }
        // t − Σ softmax∘t: its transpose is c − softmax · Σ c.
        SoftmaxKind::LogSoftmax => {
            let mean = restored(sum(t.scaled_by(&y.exp())));
            t - mean
        }
        SoftmaxKind::LogSumExp => {
            let softmax = (x.convert(dtype) - restored(y)).exp();
            sum(t.scaled_by(&softmax))
        }
    };
    vec![Some(result.convert(x.dtype()))]
}

impl Operation for Softmax {
    named!(kind: SoftmaxKind, |_| Derivative::Nonlinear(jvp));

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        Domain::Float.check(x.dtype)?;
        has_axis(x, self.axis)?;
        let mut result = x.clone();
        if self.kind == SoftmaxKind::LogSumExp {
            result.shape.remove(self.axis);
        }
        Ok(vec![result])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let x = &e.operands[0];
        let extent = x.shape[self.axis];
        let inner: usize = x.shape[self.axis + 1..].iter().product();
        let outer: usize = x.shape[..self.axis].iter().product();
        let reduced = self.kind == SoftmaxKind::LogSumExp;
        let count = if reduced { outer * inner } else { x.cells.len() };
        let mut cells = Cells::filled(Cell::Real(R::from_i64(0)), count)?;
        for row in 0..outer * inner {
            let at = |i: usize| (row / inner * extent + i) * inner + row % inner;
            let values: Vec<R> = (0..extent).map(|i| x.cells[at(i)].real().clone()).collect();
            let (max, exponentials, sum) = shifted_row(&values)?;
            let log = || sum.apply("log", libm::log);
            if reduced {
                cells[row] = Cell::Real(max.add(&log()?));
                continue;
            }
            for i in 0..extent {
                cells[at(i)] = Cell::Real(match self.kind {
                    SoftmaxKind::Softmax => exponentials[i].div(&sum)?,
                    _ => values[i].sub(&max).sub(&log()?),
                });
            }
        }
        e.result(cells)
    }

    fn compute<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
        Compute::Decompose(Box::new(|tensors| {
            let x = tensors[0].convert(tensors[0].dtype().wide());
            let steps = Shifted::new(&x, self.axis);
            let restored = |t: &Tensor| restore(t, x.shape(), self.axis);
            let result = match self.kind {
                // One division a row: the sum is at least 1, so its reciprocal is normal.
                SoftmaxKind::Softmax => &steps.exponentials * restored(&steps.sum.reciprocal()),
                SoftmaxKind::LogSoftmax => &steps.shifted - restored(&steps.sum.log()),
                SoftmaxKind::LogSumExp => &steps.max + steps.sum.log(),
            };
            vec![result.convert(tensors[0].dtype())]
        }))
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(Softmax { axis: self.axis + 1, ..self.clone() })
    }
}
