//! `window_gather`: one element of each window.

use crate::op::prelude::*;
use crate::op::window::{WindowScatterAdd, Windows, check_positions};

attributes! {
    /// `window_gather %x, %positions {window=[2]}`: for each window, the element at the given
    /// position, counted in row-major order within the window; 0 if the operand has no element
    /// there. See [`Windows`].
    WindowGather {
        .. /// The geometry of the windows.
        windows: Windows,
    }
}

fn transpose(t: &Transpose<'_>) -> Vec<Option<Tensor>> {
    let Op::WindowGather(op) = t.op else { unreachable!("the rule of window_gather") };
    let Some(ct) = &t.cotangents[0] else { return vec![None, None] };
    let shape = t.operands[0].ty().shape.clone();
    let scatter = WindowScatterAdd { shape, windows: op.windows.clone() };
    vec![Some(Tensor::apply(scatter, &[ct, t.operands[1].known()])), None]
}

impl Operation for WindowGather {
    named!(
        "window_gather",
        "For each window of x, the element at the given position. Positions in a window count in \
         row-major order. A position outside x gives 0."
    );

    const DERIVATIVE: Derivative = Derivative::Linear(transpose);

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x, positions] = t.exactly()?;
        let windows = self.windows.infer(&x.shape)?;
        check_positions(positions, &windows)?;
        Ok(vec![x.with_shape(windows)])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let (x, positions) = (&e.operands[0], &e.operands[1]);
        let shape = e.extents();
        let axes = self.windows.axes(&x.shape, &shape);
        e.build(|window| {
            let number = positions.at(window).bits();
            let mut rest = usize::try_from(number).ok().filter(|n| *n < self.windows.count());
            let mut at = vec![0; axes.len()];
            for (a, axis) in axes.iter().enumerate().rev() {
                let Some(n) = rest else { break };
                let extent = axis.window as usize;
                let element = axis.element(window[a], n % extent);
                at[a] = element.unwrap_or(0);
                rest = element.map(|_| n / extent);
            }
            match rest {
                Some(_) => x.at(&at).clone(),
                None => Cell::from_scalar(Scalar::zero(x.dtype)),
            }
        })
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let (dtype, count) = (l.operands[0].dtype, self.windows.count() as i64);
        let axes = self.windows.axes(&l.extents(0), &l.result_extents());
        Compute::indirect(vec![0], move |c, index| {
            let number = Affine::reg(c.operand(1, index));
            let mut guards = vec![Guard { index: number.clone(), low: 0, high: count }];
            let mut at = vec![Affine::constant(0); axes.len()];
            let mut stride = 1;
            for (a, axis) in axes.iter().enumerate().rev() {
                let digits = number.floor_div(stride);
                // The guard on the number bounds the first digit, so it takes no modulo.
                // Simplification would drop that modulo from the index but not from the guard
                // below.
                let first = axes[..a].iter().all(|axis| axis.window == 1);
                let k = if first && axis.window > 1 { digits } else { digits.modulo(axis.window) };
                stride *= axis.window;
                let start = index[a].scale(axis.stride).offset(-axis.low);
                let position = start.add(&k.scale(axis.dilation));
                if axis.base > 1 {
                    guards.push(Guard { index: position.modulo(axis.base), low: 0, high: 1 });
                }
                at[a] = position.floor_div(axis.base);
                guards.push(Guard { index: at[a].clone(), low: 0, high: axis.extent });
            }
            let zero = c.constant(Scalar::zero(dtype));
            c.guarded(0, &at, guards, zero)
        })
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.all(WindowGather { windows: self.windows.batched() })
    }

    const TRAITS: Traits = Traits::movement(Cost::Cheap);
}
