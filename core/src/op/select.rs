//! `select` and `clamp`: elementwise choice.

use crate::op::prelude::*;

attributes! {
    /// `select %pred, %on_true, %on_false`: element by element, the second operand's where the
    /// first is true, else the third's.
    Select {}
}

attributes! {
    /// `clamp %min, %x, %max`: `min(max(x, min), max)`. The gradient goes to the operand that the
    /// result comes from; to `x` where it equals a bound.
    Clamp {}
}

/// The index into an operand that is a scalar or has the result's shape.
fn aligned(scalar: bool, index: &[Affine]) -> &[Affine] {
    if scalar { &[] } else { index }
}

/// The element at a flat position of an operand that is a scalar or has the result's shape.
fn position<R>(array: &Array<R>, flat: usize) -> &Cell<R> {
    if array.shape.is_empty() { &array.cells[0] } else { &array.cells[flat] }
}

impl Operation for Select {
    named!("select", "x where the condition is true, else y.");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [pred, x, y] = t.exactly()?;
        if pred.dtype != DType::Bool || !(pred.rank() == 0 || pred.shape == x.shape) {
            bail!("the condition has type {pred}, the choices {x}";
                help "a condition is bool, a scalar or of the choices' shape");
        }
        ensure!(x == y, "choices have types {x} and {y}"; help "give them one type");
        Ok(vec![x.clone()])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let (x, y) = (&e.operands[1], &e.operands[2]);
        let pick =
            |i| if position(&e.operands[0], i).is_true() { &x.cells[i] } else { &y.cells[i] };
        let cells = Cells::collect((0..x.cells.len()).map(|i| pick(i).clone()))?;
        e.result(cells)
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let scalar = l.operands[0].rank() == 0;
        Compute::element(move |c, index| {
            let pred = c.operand(0, aligned(scalar, index));
            let (x, y) = (c.operand(1, index), c.operand(2, index));
            c.scalar(ScalarOp::Select, &[pred, x, y])
        })
    }

    const DERIVATIVE: Derivative = Derivative::Linear(|t| {
        let Some(ct) = &t.cotangents[0] else { return vec![None; 3] };
        let (pred, zero) = (t.operands[0].known(), ct.zeros_like());
        vec![
            None,
            t.operands[1].is_linear().then(|| pred.select(ct, &zero)),
            t.operands[2].is_linear().then(|| pred.select(&zero, ct)),
        ]
    });

    const TRAITS: Traits = Traits::elementwise(Cost::Cheap);
}

impl Operation for Clamp {
    named!("clamp", "min(max(x, min), max). The gradient goes to x where x equals a bound.");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [low, x, high] = t.exactly()?;
        Domain::Number.check(x.dtype)?;
        for bound in [low, high] {
            ensure!(
                bound.dtype == x.dtype && (bound.rank() == 0 || bound.shape == x.shape),
                "a bound of type {bound} for an operand of type {x}";
                help "a bound is a scalar or of the operand's shape, and has its dtype"
            );
        }
        Ok(vec![x.clone()])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let x = &e.operands[1];
        let extremum = |a: &Cell<R>, b: &Cell<R>, wanted: Ordering| match (a, b) {
            (Cell::Real(a), Cell::Real(b)) => Cell::Real(super::binary::extremum(a, b, wanted)),
            (a, b) => {
                let order = compare_bits(a.bits(), b.bits(), x.dtype);
                if order == wanted { a.clone() } else { b.clone() }
            }
        };
        let clamp = |(i, cell): (usize, &Cell<R>)| {
            let raised = extremum(cell, position(&e.operands[0], i), Ordering::Greater);
            extremum(&raised, position(&e.operands[2], i), Ordering::Less)
        };
        let cells = Cells::collect(x.cells.iter().enumerate().map(clamp))?;
        e.result(cells)
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let scalar = [l.operands[0].rank() == 0, l.operands[2].rank() == 0];
        Compute::element(move |c, index| {
            let low = c.operand(0, aligned(scalar[0], index));
            let x = c.operand(1, index);
            let high = c.operand(2, aligned(scalar[1], index));
            widened(c, &[low, x, high], |c, o| {
                let raised = c.scalar(ScalarOp::Max, &[o[1], o[0]]);
                c.scalar(ScalarOp::Min, &[raised, o[2]])
            })
        })
    }

    const DERIVATIVE: Derivative = Derivative::Nonlinear(|j| {
        let (low, x, high) = (&j.operands[0], &j.operands[1], &j.operands[2]);
        let above = x.max(low).gt(high);
        let below = x.lt(low);
        // A bound may be a scalar; its tangent is then repeated.
        let tangent = |i: usize| match &j.tangents[i] {
            Some(t) => t.broadcast_to(x.shape()),
            None => x.zeros_like(),
        };
        vec![Some(above.select(&tangent(2), &below.select(&tangent(0), &tangent(1))))]
    });

    const TRAITS: Traits = Traits::elementwise(Cost::Cheap);
}
