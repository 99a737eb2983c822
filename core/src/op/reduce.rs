//! `reduce_sum`, `reduce_prod`, `reduce_max`, `reduce_min`, `reduce_and`, `reduce_or`,
//! `reduce_xor`: reductions of one operand.

use crate::op::BroadcastInDim;
use crate::op::prelude::*;

kinds! {
    /// The kind of a reduction.
    ReduceKind {
        /// Sum; halves are added in f32 and rounded once. It begins with +0, which is the empty
        /// sum.
        Sum "reduce_sum" "Σ x over `axes`. Halves are added in f32 and rounded once.",
        /// Product; halves are multiplied in f32 and rounded once. An empty product is 1.
        Prod "reduce_prod" "Π x over `axes`. Halves are multiplied in f32 and rounded once.",
        /// Greatest element; NaN if one is NaN; −∞ or the least integer for no elements. All
        /// elements that equal the maximum share the gradient in equal parts.
        Max "reduce_max" "max x over `axes`. Ties share the gradient in equal parts.",
        /// Least element; NaN if one is NaN; +∞ or the greatest integer for no elements. All
        /// elements that equal the minimum share the gradient in equal parts.
        Min "reduce_min" "min x over `axes`. Ties share the gradient in equal parts.",
        /// Conjunction of bools, or of the bits of integers.
        And "reduce_and" "Bitwise ∧ x over `axes`.",
        /// Disjunction of bools, or of the bits of integers.
        Or "reduce_or" "Bitwise ∨ x over `axes`.",
        /// Exclusive disjunction (parity) of bools, or of the bits of integers.
        Xor "reduce_xor" "Bitwise ⊕ x over `axes`: the parity.",
    }
}

attributes! {
    /// `reduce_… %x {axes=[…]}`: combines all elements along `axes`, which vanish.
    Reduce by kind: ReduceKind {
        /// Axes that are reduced, ascending.
        axes: Vec<usize>,
    }
}

impl ReduceKind {
    const fn domain(self) -> Domain {
        match self {
            ReduceKind::And | ReduceKind::Or | ReduceKind::Xor => Domain::Bits,
            _ => Domain::Number,
        }
    }

    pub(super) const fn instruction(self) -> ScalarOp {
        match self {
            ReduceKind::Sum => ScalarOp::Add,
            ReduceKind::Prod => ScalarOp::Mul,
            ReduceKind::Max => ScalarOp::Max,
            ReduceKind::Min => ScalarOp::Min,
            ReduceKind::And => ScalarOp::And,
            ReduceKind::Or => ScalarOp::Or,
            ReduceKind::Xor => ScalarOp::Xor,
        }
    }

    /// The identity.
    pub fn identity(self, dtype: DType) -> Scalar {
        match self {
            ReduceKind::Sum | ReduceKind::Or | ReduceKind::Xor => Scalar::zero(dtype),
            ReduceKind::Prod => Scalar::one(dtype),
            ReduceKind::Max => Scalar::lowest(dtype),
            ReduceKind::Min => Scalar::highest(dtype),
            ReduceKind::And => match dtype {
                DType::Bool => Scalar::of(true),
                _ => Scalar::from_i64(dtype, -1),
            },
        }
    }

    const fn rule(self) -> Derivative {
        match self {
            ReduceKind::Sum => Derivative::Linear(transpose_sum),
            ReduceKind::Prod => Derivative::Nonlinear(jvp_product),
            ReduceKind::Max | ReduceKind::Min => Derivative::Nonlinear(jvp_extremum),
            ReduceKind::And | ReduceKind::Or | ReduceKind::Xor => Derivative::Zero,
        }
    }

    /// The combine program for elements of a dtype. Halves are carried in f32.
    pub(super) fn program(self, dtype: DType) -> Combine {
        let carried = dtype.wide();
        Combine::binary(self.instruction(), self.identity(carried))
    }

    /// Combines two partial results.
    pub(super) fn combine<R: Real>(self, a: &Cell<R>, b: &Cell<R>, dtype: DType) -> Cell<R> {
        let wanted = if self == ReduceKind::Min { Ordering::Less } else { Ordering::Greater };
        match (self, a, b) {
            (ReduceKind::Sum, Cell::Real(a), Cell::Real(b)) => Cell::Real(a.add(b)),
            (ReduceKind::Prod, Cell::Real(a), Cell::Real(b)) => Cell::Real(a.mul(b)),
            (ReduceKind::Max | ReduceKind::Min, Cell::Real(x), Cell::Real(y)) => {
                // NaN wins. The interpreter does not distinguish zeros of two signs.
                let first = x.compare(y).map_or(x.compare(x).is_none(), |order| order == wanted);
                if first { a.clone() } else { b.clone() }
            }
            (kind, a, b) => {
                let (x, y) = (a.bits(), b.bits());
                let bits =
                    match kind {
                        ReduceKind::Sum => x.wrapping_add(y),
                        ReduceKind::Prod => x.wrapping_mul(y),
                        ReduceKind::Max | ReduceKind::Min => {
                            if compare_bits(x, y, dtype) == wanted { x } else { y }
                        }
                        ReduceKind::And => x & y,
                        ReduceKind::Or => x | y,
                        ReduceKind::Xor => x ^ y,
                    };
                Cell::Bits(wrap(bits, dtype))
            }
        }
    }
}

impl Reduce {
    /// A reduction; `axes` may be in any order.
    pub fn new(kind: ReduceKind, axes: impl IntoIterator<Item = usize>) -> Self {
        let mut axes: Vec<usize> = axes.into_iter().collect();
        axes.sort();
        Reduce { kind, axes }
    }

    /// Axes of the operand that remain.
    pub fn kept(&self, rank: usize) -> Vec<usize> {
        (0..rank).filter(|axis| !self.axes.contains(axis)).collect()
    }

    /// Broadcasts a reduced tensor along the reduced axes to the operand's shape.
    fn restore(&self, reduced: &Tensor, operand: &TensorType) -> Tensor {
        let op = BroadcastInDim { shape: operand.shape.clone(), dims: self.kept(operand.rank()) };
        Tensor::apply(op, &[reduced])
    }
}

fn transpose_sum(t: &Transpose<'_>) -> Vec<Option<Tensor>> {
    let Op::Reduce(op) = t.op else { unreachable!("the rule of reduce") };
    vec![t.cotangents[0].as_ref().map(|ct| op.restore(ct, t.operands[0].ty()))]
}

/// The mean of the tangents of the elements that equal the extremum.
fn jvp_extremum(j: &Jvp<'_>) -> Vec<Option<Tensor>> {
    let Op::Reduce(op) = j.op else { unreachable!("the rule of reduce") };
    let Some(tangent) = &j.tangents[0] else { return vec![None] };
    let x = &j.operands[0];
    let chosen = x.eq(op.restore(&j.results[0], x.ty()));
    // A half holds consecutive integers only up to a small bound, so counts are f32.
    let counter = x.dtype().wide();
    let sum =
        |t: &Tensor| Tensor::apply(Reduce { kind: ReduceKind::Sum, axes: op.axes.clone() }, &[t]);
    let share = sum(&chosen.convert(counter)).reciprocal().convert(x.dtype());
    vec![Some(sum(&chosen.select(tangent, &tangent.zeros_like())).scaled_by(&share))]
}

/// d Πx = Σᵢ dxᵢ · Π_{j≠i} xⱼ without dividing: a balanced tree over (product, tangent) pairs.
fn jvp_product(j: &Jvp<'_>) -> Vec<Option<Tensor>> {
    let Op::Reduce(op) = j.op else { unreachable!("the rule of reduce") };
    let Some(tangent) = &j.tangents[0] else { return vec![None] };
    let x = &j.operands[0];
    // Bring the reduced axes to the front as one axis.
    let kept = op.kept(x.rank());
    let order: Vec<usize> = op.axes.iter().chain(&kept).copied().collect();
    let count = op.axes.iter().try_fold(Dim::constant(1), |n, a| n.checked_mul(&x.shape()[*a]));
    let Some(n) = count.as_ref().and_then(Dim::as_extent) else {
        return vec![Some(
            x.fail(
                Diagnostic::new(format!(
                    "the derivative of reduce_prod over {} needs the extents of {:?}",
                    x.ty(),
                    op.axes
                ))
                .help("give the reduced axes numbers instead of dimension variables"),
            ),
        )];
    };
    let shape: Vec<Dim> =
        std::iter::once(Dim::from(n)).chain(kept.iter().map(|a| x.shape()[*a].clone())).collect();
    let mut p = x.permute(&order).reshape(shape.clone());
    let mut t = tangent.permute(&order).reshape(shape);
    let mut length = n;
    if length == 0 {
        return vec![None];
    }
    while length > 1 {
        let half = length / 2;
        let part = |v: &Tensor, from: usize, to: usize| v.slice_axis(0, from as i64, to as i64);
        let (p0, p1) = (part(&p, 0, half), part(&p, half, 2 * half));
        let (t0, t1) = (part(&t, 0, half), part(&t, half, 2 * half));
        let mut product = &p0 * &p1;
        let mut sum = t0.scaled_by(&p1) + t1.scaled_by(&p0);
        if length % 2 == 1 {
            product = Tensor::concatenate(&[&product, &part(&p, length - 1, length)], 0);
            sum = Tensor::concatenate(&[&sum, &part(&t, length - 1, length)], 0);
        }
        (p, t, length) = (product, sum, half + length % 2);
    }
    vec![Some(t.reshape(j.results[0].shape().to_vec()))]
}

impl Operation for Reduce {
    named!(kind: ReduceKind, ReduceKind::rule);

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        self.kind.domain().check(x.dtype)?;
        distinct_axes("axes", &self.axes, x.rank())?;
        ensure!(self.axes.is_sorted(), "axes must ascend");
        Ok(vec![
            x.with_shape(self.kept(x.rank()).into_iter().map(|a| x.shape[a].clone()).collect()),
        ])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let x = &e.operands[0];
        let kept = self.kept(x.shape.len());
        let shape = e.extents();
        let count = shape.iter().product();
        // Whether each result has a term yet.
        let mut begun: Vec<bool> = reserved(count)?;
        begun.resize(count, false);
        let zero = if x.dtype.is_float() { Cell::Real(R::from_i64(0)) } else { Cell::Bits(0) };
        let mut cells = Cells::filled(zero, count)?;
        let mut index = vec![0; x.shape.len()];
        for cell in x.cells.iter() {
            let flat = kept.iter().fold(0, |flat, a| flat * x.shape[*a] + index[*a]);
            cells[flat] = match (std::mem::replace(&mut begun[flat], true), cell) {
                (true, _) => self.kind.combine(&cells[flat], cell, x.dtype),
                // A sum begins with +0: the sum of a single −0.0 is 0.0, and so is that of two.
                (false, Cell::Real(_)) if self.kind == ReduceKind::Sum => {
                    self.kind.combine(&Cell::Real(R::from_i64(0)), cell, x.dtype)
                }
                (false, _) => cell.clone(),
            };
            advance(&mut index, &x.shape);
        }
        // The number system may lack the identity: −∞ is not a rational.
        for (cell, _) in cells.iter_mut().zip(&begun).filter(|(_, begun)| !**begun) {
            *cell = Cell::from_scalar(self.kind.identity(x.dtype));
        }
        e.result(cells)
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let dtype = l.operands[0].dtype;
        // Sums and products of halves are carried in f32.
        let carried = dtype.wide();
        Compute::Reduce {
            extents: l.extents(0),
            axes: self.axes.clone(),
            values: Box::new(move |c, index| {
                let x = c.operand(0, index);
                vec![if carried == dtype { x } else { c.convert(x, carried) }]
            }),
            combine: self.kind.program(dtype),
            project: vec![0],
        }
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(Reduce { kind: self.kind, axes: shifted(&self.axes) })
    }
}
