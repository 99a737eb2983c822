//! `cumsum`, `cumprod`, `cummax`, `cummin`, `cumlogsumexp`: running reductions along an axis.

use crate::nest::CombineBuilder;
use crate::op::prelude::*;
use crate::op::reduce::ReduceKind;

kinds! {
    /// The running reduction.
    CumulativeKind {
        /// Sum.
        Sum "cumsum"
            "result[i] = Σ x[j] over j ≤ i along `axis` (j ≥ i with `reverse`). Halves are added \
             in f32.",
        /// Product.
        Prod "cumprod"
            "result[i] = Π x[j] over j ≤ i along `axis` (j ≥ i with `reverse`). Halves are \
             multiplied in f32.",
        /// Greatest element so far; NaN from the first NaN on.
        Max "cummax"
            "result[i] = max x[j] over j ≤ i along `axis` (j ≥ i with `reverse`). The gradient \
             goes to the first of equal elements.",
        /// Least element so far; NaN from the first NaN on.
        Min "cummin"
            "result[i] = min x[j] over j ≤ i along `axis` (j ≥ i with `reverse`). The gradient \
             goes to the first of equal elements.",
        /// Logarithm of the sum of exponentials.
        LogSumExp "cumlogsumexp"
            "result[i] = log Σ exp x[j] over j ≤ i along `axis` (j ≥ i with `reverse`), without \
             overflow. Halves are computed in f32.",
    }
}

impl CumulativeKind {
    const fn domain(self) -> Domain {
        match self {
            CumulativeKind::LogSumExp => Domain::Float,
            _ => Domain::Number,
        }
    }

    fn rule(self) -> Derivative {
        match self {
            CumulativeKind::Sum => Derivative::Linear(|t| {
                let Op::Cumulative(op) = t.op else {
                    unreachable!("only `Cumulative` has this rule")
                };
                let op = Cumulative { reverse: !op.reverse, ..op.clone() };
                vec![t.cotangents[0].as_ref().map(|ct| Tensor::apply(op, &[ct]))]
            }),
            _ => Derivative::Nonlinear(jvp),
        }
    }

    /// The op's reduction of a whole axis; `None` if there is no such op.
    const fn reduce(self) -> Option<ReduceKind> {
        match self {
            CumulativeKind::Sum => Some(ReduceKind::Sum),
            CumulativeKind::Prod => Some(ReduceKind::Prod),
            CumulativeKind::Max => Some(ReduceKind::Max),
            CumulativeKind::Min => Some(ReduceKind::Min),
            CumulativeKind::LogSumExp => None,
        }
    }

    /// Combines the running result `a` with the next element `b`.
    fn combine<R: Real>(self, a: &Cell<R>, b: &Cell<R>, dtype: DType) -> Result<Cell<R>> {
        match self.reduce() {
            Some(kind) => Ok(kind.combine(a, b, dtype)),
            None => a.real().apply2(b.real(), "cumlogsumexp", log_add_exp).map(Cell::Real),
        }
    }

    /// The same function as a combine program of a nest.
    fn program(self, dtype: DType) -> Combine {
        if let Some(kind) = self.reduce() {
            return kind.program(dtype);
        }
        let dtype = dtype.wide();
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

attributes! {
    /// `cumsum %x {axis=0, reverse=true}`: inclusive running reduction along `axis`.
    Cumulative by kind: CumulativeKind {
        /// The axis of the scan.
        axis: usize,
        /// Scans from the last element to the first.
        reverse: bool = false,
    }
}

/// log(eᵃ + eᵇ)
fn log_add_exp(a: f64, b: f64) -> f64 {
    if a == b {
        // Equal infinities too, whose difference is NaN.
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

/// The tangent, by recursive doubling: after step s, the (value, tangent) at i covers the 2ˢ
/// elements that end at i. Two adjacent ranges are combined by the product rule or by selection,
/// without division.
fn jvp(j: &Jvp<'_>) -> Vec<Option<Tensor>> {
    let Op::Cumulative(op) = j.op else { unreachable!("only `Cumulative` has this rule") };
    let Some(tangent) = &j.tangents[0] else { return vec![None] };
    let x = &j.operands[0];
    let Some(extent) = x.shape()[op.axis].as_constant() else {
        let error = format!(
            "the derivative of {} along axis {} of {} needs the number of elements",
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
    named!(kind: CumulativeKind, CumulativeKind::rule);

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        self.kind.domain().check(x.dtype)?;
        has_axis(x, self.axis)?;
        Ok(vec![x.clone()])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let x = &e.operands[0];
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
        e.result(cells)
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        Compute::Prefix {
            axis: self.axis,
            reverse: self.reverse,
            combine: self.kind.program(l.operands[0].dtype),
        }
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(Cumulative { axis: self.axis + 1, ..self.clone() })
    }
}
