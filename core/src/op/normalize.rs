//! Composites that normalise along one axis: `standardize`, `rms_normalize`.
//!
//! They are the layer norm and the RMS norm without scale and bias. With y the result, r the
//! reciprocal root and n the extent,
//!
//! - `standardize`: y = r·(x − mean x), r = 1/√(mean (x − mean x)² + ε);
//! - `rms_normalize`: y = r·x, r = 1/√(mean x² + ε).
//!
//! A composite stays one op through differentiation (see [`super::softmax`]), which matters here:
//! the chain rule over mean, difference, square and root does not use that Σ (x − mean x) is 0,
//! nor that the size of y is known. The derivative in closed form does,
//!
//!   J = r·(1 − 1·1ᵀ/n − y·yᵀ/n) and J = r·(1 − y·yᵀ/n),
//!
//! and keeps only y and r. J is symmetric, so forward and reverse mode are the same few
//! equations. Halves are computed in f32 and rounded once at the end.

use crate::op::prelude::*;
use crate::op::softmax::restore;

kinds! {
    /// The kind of composite.
    NormalizeKind {
        /// Mean 0, mean square 1.
        Standardize "standardize"
            "(x − mean x) / √(mean (x − mean x)² + ε) along `axis`; `epsilon` is a finite f64 of \
             at least 0.",
        /// Mean square 1.
        Rms "rms_normalize"
            "x / √(mean x² + ε) along `axis`; `epsilon` is a finite f64 of at least 0.",
    }
}

attributes! {
    /// `standardize %x {axis=1, epsilon=f64(1e-05)}` and its like.
    Normalize by kind: NormalizeKind {
        /// The axis of normalisation.
        axis: usize,
        /// ε, added to the mean square: a finite f64 of at least 0.
        epsilon: Scalar,
    }
}

/// The intermediate values for `x` of a wide dtype.
struct Steps {
    /// x, less its mean in `standardize`.
    centred: Tensor,
    /// 1/√(mean square + ε), repeated along the axis.
    inverse: Tensor,
}

impl Normalize {
    fn steps(&self, x: &Tensor) -> Steps {
        let restored = |t: Tensor| restore(&t, x.shape(), self.axis);
        let centred = match self.kind {
            NormalizeKind::Standardize => x - restored(x.mean_axes(&[self.axis])),
            NormalizeKind::Rms => x.clone(),
        };
        let mean_square = centred.square().mean_axes(&[self.axis]);
        let inverse = restored((mean_square + self.epsilon.to_f64()).rsqrt());
        Steps { centred, inverse }
    }
}

/// J·t = s − mean s − y · mean(y∘s) with s = r·t; `rms_normalize` has no term mean s. The
/// transpose is r·(c − mean c − y · mean(y∘c)).
fn jvp(j: &Jvp<'_>) -> Vec<Option<Tensor>> {
    let Op::Normalize(op) = j.op else { unreachable!("the rule of normalize") };
    let Some(tangent) = &j.tangents[0] else { return vec![None] };
    let dtype = j.operands[0].dtype().wide();
    let (x, y) = (j.operands[0].convert(dtype), j.results[0].convert(dtype));
    let mean = |t: Tensor| restore(&t.mean_axes(&[op.axis]), x.shape(), op.axis);
    let scaled = tangent.convert(dtype).scaled_by(&op.steps(&x).inverse);
    let along = mean(scaled.scaled_by(&y)).scaled_by(&y);
    let rest = match op.kind {
        NormalizeKind::Standardize => &scaled - mean(scaled.clone()),
        NormalizeKind::Rms => scaled,
    };
    vec![Some((rest - along).convert(j.operands[0].dtype()))]
}

impl Operation for Normalize {
    named!(kind: NormalizeKind, |_| Derivative::Nonlinear(jvp));

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        Domain::Float.check(x.dtype)?;
        has_axis(x, self.axis)?;
        let epsilon = self.epsilon.to_f64();
        if self.epsilon.dtype() != DType::F64 || !epsilon.is_finite() || epsilon < 0.0 {
            bail!("epsilon is {}", self.epsilon;
                help "it is a finite f64 of at least 0, such as f64(1e-5)");
        }
        Ok(vec![x.clone()])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let x = &e.operands[0];
        let extent = x.shape[self.axis];
        let inner: usize = x.shape[self.axis + 1..].iter().product();
        let mut cells = Cells::copied(&x.cells)?;
        let rows = cells.len().checked_div(extent).unwrap_or(0);
        let count = R::from_i64(extent as i64);
        for row in 0..rows {
            let at = |i: usize| (row / inner * extent + i) * inner + row % inner;
            let mut values: Vec<R> = (0..extent).map(|i| x.cells[at(i)].real().clone()).collect();
            if self.kind == NormalizeKind::Standardize {
                let mean = values.iter().fold(R::from_i64(0), |s, v| s.add(v)).div(&count)?;
                values.iter_mut().for_each(|v| *v = v.sub(&mean));
            }
            let square = values.iter().fold(R::from_i64(0), |s, v| s.add(&v.mul(v))).div(&count)?;
            let size = square.add(&R::from_f64(self.epsilon.to_f64()));
            let inverse = size.apply("rsqrt", |x| 1.0 / libm::sqrt(x))?;
            for (i, value) in values.iter().enumerate() {
                cells[at(i)] = Cell::Real(value.mul(&inverse));
            }
        }
        e.result(cells)
    }

    fn compute<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
        Compute::Decompose(Box::new(|tensors| {
            let steps = self.steps(&tensors[0].convert(tensors[0].dtype().wide()));
            vec![(steps.centred * steps.inverse).convert(tensors[0].dtype())]
        }))
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(Normalize { axis: self.axis + 1, ..self.clone() })
    }
}
