//! `window_scatter_add`: one value for each window, added to the element at its position.

use crate::op::ReduceKind;
use crate::op::prelude::*;
use crate::op::window::terms::Terms;
use crate::op::window::{WindowGather, Windows, check_positions, for_each, widened};

attributes! {
    /// `window_scatter_add %x, %positions {shape=[4], stride=[2], window=[2]}`: the transpose of
    /// [`WindowGather`]: element j of the result is the sum of `x[o]` over the windows o of a
    /// tensor of that shape whose position `positions[o]` is element j. See [`Windows`].
    WindowScatterAdd {
        /// Shape of the result.
        shape: Vec<Dim>,
        .. /// The geometry of the windows.
        windows: Windows,
    }
}

fn transpose(t: &Transpose<'_>) -> Vec<Option<Tensor>> {
    let Op::WindowScatterAdd(op) = t.op else { unreachable!("the rule of window_scatter_add") };
    let Some(ct) = &t.cotangents[0] else { return vec![None, None] };
    let gather = WindowGather { windows: op.windows.clone() };
    vec![Some(Tensor::apply(gather, &[ct, t.operands[1].known()])), None]
}

impl Operation for WindowScatterAdd {
    named!(
        "window_scatter_add",
        "The transpose of `window_gather`. Each element of the result is the sum of x over the \
         windows whose given position is that element. Halves are added in f32."
    );

    const DERIVATIVE: Derivative = Derivative::Linear(transpose);

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x, positions] = t.exactly()?;
        Domain::Number.check(x.dtype)?;
        if let Some(extent) = self.shape.iter().find(|d| !d.at_least(0)) {
            bail!("a result of extent {extent}");
        }
        let result = x.with_shape(self.shape.clone());
        crate::graph::verify::types::well_formed(&result)?;
        let windows = self.windows.infer(&self.shape)?;
        ensure!(x.shape == windows, "an operand of type {x} for windows over {result}";
            help "there are {} of them", x.with_shape(windows));
        check_positions(positions, &windows)?;
        Ok(vec![result])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let (x, positions) = (&e.operands[0], &e.operands[1]);
        let shape = e.extents();
        let zero = Cell::<R>::from_scalar(Scalar::zero(x.dtype));
        let mut cells = Cells::filled(zero, shape.iter().product())?;
        let flat =
            |at: &[usize]| at.iter().zip(&shape).fold(0, |flat, (i, extent)| flat * extent + i);
        let axes = self.windows.axes(&shape, &x.shape);
        let mut window = vec![0; x.shape.len()];
        for (cell, position) in x.cells.iter().zip(positions.cells.iter()) {
            for_each(&axes, &window, |number, at| {
                if number as i64 != position.bits() {
                    return;
                }
                let total = &mut cells[flat(at)];
                *total = match (&*total, cell) {
                    (Cell::Real(a), Cell::Real(b)) => Cell::Real(a.add(b)),
                    (a, b) => Cell::Bits(wrap(a.bits().wrapping_add(b.bits()), x.dtype)),
                };
            });
            advance(&mut window, &x.shape);
        }
        e.result(cells)
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let (zero, none) = (Scalar::zero(l.operands[0].dtype), Scalar::of(i32::MAX));
        let terms = Terms::of_elements(self.windows.axes(&l.result_extents(), &l.extents(0)));
        terms.reduced(l, ReduceKind::Sum, move |c, term| {
            let (zero, none) = (c.constant(zero), c.constant(none));
            let number = c.index(&term.number, DType::I32);
            let position = c.guarded(1, &term.index, term.guards.clone(), none);
            let element = c.guarded(0, &term.index, term.guards, zero);
            let chosen = c.scalar(ScalarOp::Eq, &[position, number]);
            let element = c.scalar(ScalarOp::Select, &[chosen, element, zero]);
            widened(c, element)
        })
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.all(WindowScatterAdd { shape: b.shape(&self.shape), windows: self.windows.batched() })
    }
}
