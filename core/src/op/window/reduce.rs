//! `reduce_window_sum`, `reduce_window_max`, `reduce_window_min`.

use crate::op::prelude::*;
use crate::op::window::terms::Terms;
use crate::op::window::{WindowArgument, WindowGather, Windows, for_each, widened};
use crate::op::{Extremum, ReduceKind};

kinds! {
    /// The reduction of a window's elements.
    WindowKind {
        /// Sum; 0 for no elements.
        Sum "reduce_window_sum"
            "result[o] = Σ over k of x[(o·stride + k·window_dilation − low) / base_dilation], over \
             the indices that are integers within x. Halves are added in f32.",
        /// Greatest; NaN if one is NaN; −∞ or the least integer for no elements.
        Max "reduce_window_max"
            "The greatest element of each window, without padding; NaN if one is NaN. A window \
             without elements gives −∞ or the least integer. The gradient goes to the first of \
             equal elements.",
        /// Least; NaN if one is NaN; +∞ or the greatest integer for no elements.
        Min "reduce_window_min"
            "The least element of each window, without padding; NaN if one is NaN. A window \
             without elements gives +∞ or the greatest integer. The gradient goes to the first of \
             equal elements.",
    }
}

attributes! {
    /// `reduce_window_max %x {padding=[[0,0],[1,1]], stride=[1,2], window=[1,3]}`: see [`Windows`].
    ReduceWindow by kind: WindowKind {
        .. /// The geometry of the windows.
        windows: Windows,
    }
}

impl WindowKind {
    const fn reduce(self) -> ReduceKind {
        match self {
            WindowKind::Sum => ReduceKind::Sum,
            WindowKind::Max => ReduceKind::Max,
            WindowKind::Min => ReduceKind::Min,
        }
    }

    const fn rule(self) -> Derivative {
        match self {
            WindowKind::Sum => Derivative::Linear(transpose),
            WindowKind::Max | WindowKind::Min => Derivative::Nonlinear(jvp),
        }
    }
}

/// The windows of the transposed sum: position `w − 1 − k` of window `j` covers element j of the
/// operand, if the cotangent has `stride − 1` holes between neighbours. `None` if extents are not
/// linear expressions.
fn transposed(windows: &Windows, operand: &[Dim], result: &[Dim]) -> Option<Windows> {
    let rank = operand.len();
    let mut padding = Vec::with_capacity(rank);
    for axis in 0..rank {
        let reach = Dim::constant(
            (windows.window[axis] as i64 - 1).checked_mul(windows.dilation(axis) as i64)?,
        );
        let low = reach.checked_sub(&windows.pad(axis).0)?;
        // The number of windows at stride `base` is the operand's extent.
        let base = windows.base(axis) as i64;
        let wanted = operand[axis]
            .checked_scale(base)?
            .checked_add(&Dim::constant(1 - base))?
            .checked_add(&reach)?;
        let have = super::dilated(&result[axis], windows.stride(axis))?;
        padding.push((low.clone(), wanted.checked_sub(&have)?.checked_sub(&low)?));
    }
    Some(
        Windows {
            stride: windows.base_dilation.clone(),
            base_dilation: windows.stride.clone(),
            ..windows.clone()
        }
        .padded(padding),
    )
}

fn transpose(t: &Transpose<'_>) -> Vec<Option<Tensor>> {
    let Op::ReduceWindow(op) = t.op else { unreachable!("the rule of windows") };
    let Some(ct) = &t.cotangents[0] else { return vec![None] };
    let operand = t.operands[0].ty();
    if operand.elements() == Some(0) {
        return vec![Some(Tensor::zeros(operand))];
    }
    let Some(windows) = transposed(&op.windows, &operand.shape, ct.shape()) else {
        let error =
            Diagnostic::new(format!("the transpose of {} over {operand} overflows", op.name()));
        return vec![Some(
            ct.fail(error.help("give the axes numbers instead of dimension variables")),
        )];
    };
    vec![Some(Tensor::apply(ReduceWindow { kind: WindowKind::Sum, windows }, &[ct]))]
}

/// The tangent of the element that is the extremum; of the first if several are equal.
fn jvp(j: &Jvp<'_>) -> Vec<Option<Tensor>> {
    let Op::ReduceWindow(op) = j.op else { unreachable!("the rule of windows") };
    let Some(tangent) = &j.tangents[0] else { return vec![None] };
    let extremum = if op.kind == WindowKind::Max { Extremum::Max } else { Extremum::Min };
    let windows = op.windows.clone();
    let positions =
        Tensor::apply(WindowArgument { extremum, windows: windows.clone() }, &[&j.operands[0]]);
    vec![Some(Tensor::apply(WindowGather { windows }, &[tangent, &positions]))]
}

impl Operation for ReduceWindow {
    named!(kind: WindowKind, WindowKind::rule);

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        Domain::Number.check(x.dtype)?;
        Ok(vec![x.with_shape(self.windows.infer(&x.shape)?)])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let x = &e.operands[0];
        let shape = e.extents();
        let axes = self.windows.axes(&x.shape, &shape);
        let identity = Cell::try_from_scalar(self.kind.reduce().identity(x.dtype));
        let mut refused = None;
        let result = Array::from_fn(&e.results[0], |window| {
            let mut total: Option<Cell<R>> = None;
            for_each(&axes, window, |_, at| {
                let cell = x.at(at);
                total = Some(match total.take() {
                    Some(sum) => self.kind.reduce().combine(&sum, cell, x.dtype),
                    None => cell.clone(),
                });
            });
            total.unwrap_or_else(|| match &identity {
                Ok(identity) => identity.clone(),
                Err(error) => {
                    refused.get_or_insert_with(|| error.clone());
                    Cell::from_scalar(Scalar::zero(x.dtype))
                }
            })
        })?;
        refused.map_or(Ok(vec![result]), Err)
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let fill = self.kind.reduce().identity(l.operands[0].dtype);
        let terms = Terms::of_windows(self.windows.axes(&l.extents(0), &l.result_extents()));
        terms.reduced(l, self.kind.reduce(), move |c, term| {
            let fill = c.constant(fill);
            let element = c.guarded(0, &term.index, term.guards, fill);
            widened(c, element)
        })
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(ReduceWindow { windows: self.windows.batched(), ..self.clone() })
    }
}
