//! `cumsum`, `cumprod`, `cummax`, `cummin`, `cumlogsumexp`: running reductions along an axis.

use super::attribute::{Attribute, AttributeStruct, Attributes, attributes};
use super::compute::Compute;
use super::derivative::{Derivative, Jvp};
use super::elementwise::Domain;
use super::reduce::ReduceKind;
use super::sample::{Sample, floats, values};
use super::{Batch, Cost, Entry, Op, Operation, Traits, has_axis, operand_count};
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::dtype::DType;
use crate::graph::Region;
use crate::interpret::{Array, Cell, Cells, Real, Regions};
use crate::nest::{Combine, CombineBuilder, ScalarOp};
use crate::scalar::Scalar;
use crate::ty::TensorType;
use std::collections::BTreeMap;

/// The operation that runs along the axis.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum CumulativeKind {
    /// Sum.
    Sum,
    /// Product.
    Prod,
    /// Greatest element so far; NaN from the first NaN on.
    Max,
    /// Least element so far; NaN from the first NaN on.
    Min,
    /// Logarithm of the sum of exponentials.
    LogSumExp,
}

impl CumulativeKind {
    /// Every kind.
    pub const ALL: [CumulativeKind; 5] = [
        CumulativeKind::Sum,
        CumulativeKind::Prod,
        CumulativeKind::Max,
        CumulativeKind::Min,
        CumulativeKind::LogSumExp,
    ];

    const fn name(self) -> &'static str {
        match self {
            CumulativeKind::Sum => "cumsum",
            CumulativeKind::Prod => "cumprod",
            CumulativeKind::Max => "cummax",
            CumulativeKind::Min => "cummin",
            CumulativeKind::LogSumExp => "cumlogsumexp",
        }
    }

    const fn doc(self) -> &'static str {
        match self {
            CumulativeKind::Sum => {
                "result[i] = Σ x[j] over j ≤ i along `axis` (j ≥ i with `reverse`). Halves are \
                 added in f32."
            }
            CumulativeKind::Prod => {
                "result[i] = Π x[j] over j ≤ i along `axis` (j ≥ i with `reverse`). Halves are \
                 multiplied in f32."
            }
            CumulativeKind::Max => {
                "result[i] = max x[j] over j ≤ i along `axis` (j ≥ i with `reverse`). The gradient \
                 goes to the first of equal elements."
            }
            CumulativeKind::Min => {
                "result[i] = min x[j] over j ≤ i along `axis` (j ≥ i with `reverse`). The gradient \
                 goes to the first of equal elements."
            }
            CumulativeKind::LogSumExp => {
                "result[i] = log Σ exp x[j] over j ≤ i along `axis` (j ≥ i with `reverse`), \
                 without overflow. Halves are computed in f32."
            }
        }
    }

    const fn domain(self) -> Domain {
        match self {
            CumulativeKind::LogSumExp => Domain::Float,
            _ => Domain::Number,
        }
    }

    /// Combines two neighbours.
    fn combine<R: Real>(self, a: &Cell<R>, b: &Cell<R>, dtype: DType) -> Result<Cell<R>> {
        let kind = match self {
            CumulativeKind::Sum => ReduceKind::Sum,
            CumulativeKind::Prod => ReduceKind::Prod,
            CumulativeKind::Max => ReduceKind::Max,
            CumulativeKind::Min => ReduceKind::Min,
            CumulativeKind::LogSumExp => {
                return Ok(Cell::Real(a.real().apply2(b.real(), "cumlogsumexp", log_add_exp)?));
            }
        };
        Ok(kind.combine(a, b, dtype))
    }

    /// The same as a combine program of a nest.
    fn program(self, dtype: DType) -> Combine {
        match self {
            CumulativeKind::Sum => Combine::sum(dtype),
            CumulativeKind::Prod => Combine::prod(dtype),
            CumulativeKind::Max => Combine::max(dtype),
            CumulativeKind::Min => Combine::min(dtype),
            CumulativeKind::LogSumExp => {
                use ScalarOp::*;
                let mut p = CombineBuilder::new(&[Scalar::lowest(dtype)]);
                let (a, b) = (p.left(0), p.right(0));
                let distance = p.emit(Sub, &[a, b]);
                let distance = p.emit(Abs, &[distance]);
                let less = p.emit(Neg, &[distance]);
                let ratio = p.emit(Exp, &[less]);
                let more = p.emit(Log1p, &[ratio]);
                let greater = p.emit(Max, &[a, b]);
                let sum = p.emit(Add, &[greater, more]);
                // The distance of equal infinities is NaN.
                let ln2 = p.constant(Scalar::from_f64(dtype, std::f64::consts::LN_2));
                let double = p.emit(Add, &[a, ln2]);
                let equal = p.emit(Eq, &[a, b]);
                let result = p.emit(Select, &[equal, double, sum]);
                p.finish(&[result])
            }
        }
    }
}

mod attribute_struct {
    use super::*;
    attributes! {
        /// Attributes of the running reductions.
        Along {
            /// The axis of the scan.
            axis: usize,
            /// Scans from the last element to the first.
            reverse: bool = false,
        }
    }
}
use attribute_struct::Along;

/// `cumsum %x {axis=0, reverse=true}`: inclusive running reduction along `axis`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cumulative {
    /// The operation.
    pub kind: CumulativeKind,
    /// The axis of the scan.
    pub axis: usize,
    /// Scans from the last element to the first.
    pub reverse: bool,
}

/// log(eᵃ + eᵇ)
fn log_add_exp(a: f64, b: f64) -> f64 {
    if a == b {
        // Includes infinities.
        return a + std::f64::consts::LN_2;
    }
    // NaN if either is.
    let greater = if a > b || a.is_nan() { a } else { b };
    greater + libm::log1p(libm::exp(-(a - b).abs()))
}

/// log(eᵛ + eʷ) and the shares of v and w in its derivative.
///
/// The value does not depend on the shift m, so the choice of m does not enter derivatives of any
/// order.
fn log_add_exp_shares(v: &Tensor, w: &Tensor) -> (Tensor, Tensor, Tensor) {
    let m = v.max(w);
    let m = m.is_finite().select(&m, &m.zeros_like());
    let value = &m + ((v - &m).exp() + (w - &m).exp()).log();
    // Equal infinities have equal shares.
    let apart = v.is_finite().or(w.is_finite()).or(v.ne(w));
    let distance = apart.select(&(v - w), &v.zeros_like());
    let (share, other) = (distance.logistic(), (-&distance).logistic());
    (value, share, other)
}

/// The tangent by doubling: after step s, the (value, tangent) of element i covers the 2ˢ
/// elements that end with it. Two neighbours are combined by the product rule or by selection,
/// without division.
fn jvp(j: &Jvp<'_>) -> Vec<Option<Tensor>> {
    let Op::Cumulative(op) = j.op else { unreachable!("the rule of the running reductions") };
    let Some(tangent) = &j.tangents[0] else { return vec![None] };
    let x = &j.operands[0];
    let Some(extent) = x.shape()[op.axis].as_constant() else {
        let error = format!(
            "the derivative of {} along axis {} of {} needs its extent",
            op.name(),
            op.axis,
            x.ty()
        );
        let error =
            Diagnostic::new(error).help("give the axis a number instead of dimension variables");
        return vec![Some(x.fail(error))];
    };
    let (mut value, mut tangent) = (x.clone(), tangent.clone());
    let mut distance = 1;
    while distance < extent {
        // Elements with a neighbour at this distance, those neighbours, and the remaining
        // elements, which are finished.
        let (near, far, rest) = match op.reverse {
            false => ((distance, extent), (0, extent - distance), (0, distance)),
            true => ((0, extent - distance), (distance, extent), (extent - distance, extent)),
        };
        let part = |t: &Tensor, range: (i64, i64)| t.slice_axis(op.axis, range.0, range.1);
        let (v, w) = (part(&value, near), part(&value, far));
        let (dv, dw) = (part(&tangent, near), part(&tangent, far));
        let (combined, derivative) = match op.kind {
            CumulativeKind::Sum => (&v + &w, dv + dw),
            CumulativeKind::Prod => (&v * &w, dv.scaled_by(&w) + dw.scaled_by(&v)),
            CumulativeKind::Max => (v.max(&w), v.gt(&w).select(&dv, &dw)),
            CumulativeKind::Min => (v.min(&w), v.lt(&w).select(&dv, &dw)),
            CumulativeKind::LogSumExp => {
                let (value, share, other) = log_add_exp_shares(&v, &w);
                (value, dv.scaled_by(&share) + dw.scaled_by(&other))
            }
        };
        let join = |finished: Tensor, new: Tensor| match op.reverse {
            false => Tensor::concatenate(&[&finished, &new], op.axis),
            true => Tensor::concatenate(&[&new, &finished], op.axis),
        };
        (value, tangent) =
            (join(part(&value, rest), combined), join(part(&tangent, rest), derivative));
        distance *= 2;
    }
    vec![Some(tangent)]
}

impl Operation for Cumulative {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 1)?;
        let x = &operands[0];
        self.kind.domain().check(x.dtype)?;
        has_axis(x, self.axis)?;
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
        let stride: usize = x.shape[self.axis + 1..].iter().product();
        let mut cells = Cells::copied(&x.cells)?;
        for flat in 0..cells.len() {
            let flat = if self.reverse { cells.len() - 1 - flat } else { flat };
            let i = flat / stride % extent;
            let first = if self.reverse { extent - 1 } else { 0 };
            if i != first {
                let before = if self.reverse { flat + stride } else { flat - stride };
                cells[flat] = self.kind.combine(&cells[before], &cells[flat], x.dtype)?;
            }
        }
        Ok(vec![Array::new(results[0].dtype, x.shape.clone(), cells)])
    }

    fn compute<'a>(
        &'a self,
        operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        let dtype = operands[0].dtype;
        let carried = if dtype.is_half() { DType::F32 } else { dtype };
        Compute::Prefix {
            axis: self.axis,
            reverse: self.reverse,
            combine: self.kind.program(carried),
        }
    }

    fn derivative(&self) -> Derivative {
        match self.kind {
            CumulativeKind::Sum => Derivative::Linear(|t| {
                let Op::Cumulative(op) = t.op else {
                    unreachable!("the rule of the running reductions")
                };
                let op = Cumulative { reverse: !op.reverse, ..op.clone() };
                vec![t.cotangents[0].as_ref().map(|ct| Tensor::apply(op, &[ct]))]
            }),
            _ => Derivative::Nonlinear(jvp),
        }
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(Cumulative { axis: self.axis + 1, ..self.clone() })
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Loop, elementwise: false, commutative: false }
    }

    fn attributes(&self) -> Attributes {
        Along { axis: self.axis, reverse: self.reverse }.to_attributes()
    }

    fn parse(name: &str, attributes: &mut BTreeMap<String, Attribute>) -> Option<Result<Self>> {
        let kind = CumulativeKind::ALL.into_iter().find(|k| k.name() == name)?;
        let along = Along::from_attributes(attributes);
        Some(along.map(|a| Cumulative { kind, axis: a.axis, reverse: a.reverse }))
    }

    fn entries() -> Vec<Entry> {
        let entry = |kind: CumulativeKind| {
            let sample = |axis, reverse, operand| {
                Sample::new(Cumulative { kind, axis, reverse }, vec![operand])
            };
            Entry {
                name: kind.name(),
                doc: kind.doc(),
                derivative: Cumulative { kind, axis: 0, reverse: false }.derivative().kind(),
                samples: [
                    sample(1, false, floats(&[3, 5], 0.5, 2.0)),
                    sample(0, false, floats(&[7, 2], -2.0, 2.0)),
                    sample(1, true, floats(&[2, 6, 2], -1.5, 1.5)),
                    sample(0, false, floats(&[1], 0.5, 2.0)),
                    sample(0, true, values(&[5], [3i32, -7, 1 << 30, 9, -2])),
                    sample(0, false, values(&[3], [3u64, u64::MAX, 5])),
                    sample(0, false, values(&[6], [-1e30f32, -200.0, 1.5, 90.0, 300.0, 1.0])),
                ]
                .into_iter()
                .filter(|s| kind.domain().contains(s.operands[0].literal(DType::F32, 0).dtype()))
                .collect(),
            }
        };
        CumulativeKind::ALL.into_iter().map(entry).collect()
    }
}
