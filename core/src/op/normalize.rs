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

use super::attribute::{Attribute, AttributeStruct, Attributes, attributes};
use super::compute::Compute;
use super::derivative::{Derivative, Jvp};
use super::elementwise::Domain;
use super::sample::{Sample, floats, values};
use super::softmax::{restore, wide};
use super::{Batch, Cost, Entry, Op, Operation, Traits, has_axis, operand_count};
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::dtype::DType;
use crate::graph::Region;
use crate::interpret::{Array, Cell, Cells, Real, Regions};
use crate::scalar::Scalar;
use crate::ty::TensorType;
use std::collections::BTreeMap;

/// The kind of composite.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum NormalizeKind {
    /// Mean 0, mean square 1.
    Standardize,
    /// Mean square 1.
    Rms,
}

impl NormalizeKind {
    /// Every kind.
    pub const ALL: [NormalizeKind; 2] = [NormalizeKind::Standardize, NormalizeKind::Rms];

    const fn name(self) -> &'static str {
        match self {
            NormalizeKind::Standardize => "standardize",
            NormalizeKind::Rms => "rms_normalize",
        }
    }

    const fn doc(self) -> &'static str {
        match self {
            NormalizeKind::Standardize => {
                "(x − mean x) / √(mean (x − mean x)² + ε) along `axis`; `epsilon` is a finite f64 \
                 of at least 0."
            }
            NormalizeKind::Rms => {
                "x / √(mean x² + ε) along `axis`; `epsilon` is a finite f64 of at least 0."
            }
        }
    }
}

mod attribute_struct {
    use super::*;
    attributes! {
        /// Attributes of the composites.
        Along {
            /// The axis of normalisation.
            axis: usize,
            /// ε, an f64.
            epsilon: Scalar,
        }
    }
}
use attribute_struct::Along;

/// `standardize %x {axis=1, epsilon=f64(1e-05)}` and its like.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Normalize {
    /// The kind of composite.
    pub kind: NormalizeKind,
    /// The axis of normalisation.
    pub axis: usize,
    /// ε, added to the mean square: a finite f64 of at least 0.
    pub epsilon: Scalar,
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
    let dtype = wide(j.operands[0].dtype());
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
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 1)?;
        let x = &operands[0];
        Domain::Float.check(x.dtype)?;
        has_axis(x, self.axis)?;
        let epsilon = self.epsilon.to_f64();
        if self.epsilon.dtype() != DType::F64 || !epsilon.is_finite() || epsilon < 0.0 {
            return Err(Diagnostic::new(format!("epsilon is {}", self.epsilon))
                .help("it is a finite f64 of at least 0, such as f64(1e-5)"));
        }
        Ok(vec![x.clone()])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let x = &operands[0];
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
        let shape = results[0].extents().expect("the interpreter runs bound functions only");
        Ok(vec![Array::new(x.dtype, shape, cells)])
    }

    fn compute<'a>(
        &'a self,
        _operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        Compute::Decompose(Box::new(|tensors| {
            let steps = self.steps(&tensors[0].convert(wide(tensors[0].dtype())));
            vec![(steps.centred * steps.inverse).convert(tensors[0].dtype())]
        }))
    }

    fn derivative(&self) -> Derivative {
        Derivative::Nonlinear(jvp)
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(Normalize { axis: self.axis + 1, ..self.clone() })
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Loop, elementwise: false, commutative: false }
    }

    fn attributes(&self) -> Attributes {
        Along { axis: self.axis, epsilon: self.epsilon }.to_attributes()
    }

    fn parse(name: &str, attributes: &mut BTreeMap<String, Attribute>) -> Option<Result<Self>> {
        let kind = NormalizeKind::ALL.into_iter().find(|k| k.name() == name)?;
        let with = |a: Along| Normalize { kind, axis: a.axis, epsilon: a.epsilon };
        Some(Along::from_attributes(attributes).map(with))
    }

    fn entries() -> Vec<Entry> {
        let entry = |kind: NormalizeKind| {
            let sample = |axis, epsilon: f64, operand| {
                Sample::new(Normalize { kind, axis, epsilon: Scalar::of(epsilon) }, vec![operand])
            };
            Entry {
                name: kind.name(),
                doc: kind.doc(),
                derivative: "nonlinear",
                samples: vec![
                    sample(1, 1e-5, floats(&[3, 5], -2.0, 2.0)),
                    sample(0, 0.0, floats(&[4, 3], 1.0, 5.0)),
                    sample(1, 0.5, floats(&[2, 7, 2], -1.0, 1.0)),
                    sample(0, 1e-3, values(&[4], [1000.0f32, -1000.0, 0.0, 999.0])),
                    sample(1, 1e-3, values(&[2, 3], [0.0f32, 0.0, 0.0, 2.0, 2.0, 2.0])),
                ],
            }
        };
        NormalizeKind::ALL.into_iter().map(entry).collect()
    }
}
