//! `reduce_window_argmax`, `reduce_window_argmin`: the position of the extremum in each window.

use crate::op::Extremum;
use crate::op::prelude::*;
use crate::op::window::terms::Terms;
use crate::op::window::{Windows, for_each, widened};

attributes! {
    /// `reduce_window_argmax %x {window=[2]}`: for each window the position of its extremum among
    /// the elements of the window in row-major order, as i32: the first of equals, the first NaN if
    /// there is one, and the greatest i32 if the window has no element. See [`Windows`].
    WindowArgument by extremum: Extremum {
        .. /// The geometry of the windows.
        windows: Windows,
    }
}

const fn name(extremum: Extremum) -> &'static str {
    match extremum {
        Extremum::Max => "reduce_window_argmax",
        Extremum::Min => "reduce_window_argmin",
    }
}

const fn doc(extremum: Extremum) -> &'static str {
    match extremum {
        Extremum::Max => {
            "The position of each window's greatest element in the window, as i32. The first NaN \
             wins, else the first of equal elements. A window without elements gives the greatest \
             i32."
        }
        Extremum::Min => {
            "The position of each window's least element in the window, as i32. The first NaN \
             wins, else the first of equal elements. A window without elements gives the greatest \
             i32."
        }
    }
}

impl WindowArgument {
    /// The value that every element is at least as good as.
    fn worst(&self, dtype: DType) -> Scalar {
        match self.extremum {
            Extremum::Max => Scalar::lowest(dtype),
            Extremum::Min => Scalar::highest(dtype),
        }
    }
}

impl Operation for WindowArgument {
    named!(extremum: Extremum, name, doc, |_| Derivative::Zero);

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        Domain::Number.check(x.dtype)?;
        Ok(vec![TensorType::of(DType::I32, self.windows.infer(&x.shape)?)])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let x = &e.operands[0];
        let shape = e.extents();
        let axes = self.windows.axes(&x.shape, &shape);
        e.build(|window| {
            let mut best: Option<(usize, &Cell<R>)> = None;
            for_each(&axes, window, |number, at| {
                let cell = x.at(at);
                if best.is_none_or(|(_, b)| self.extremum.better(cell, b, x.dtype)) {
                    best = Some((number, cell));
                }
            });
            Cell::Bits(best.map_or(i32::MAX.into(), |(number, _)| number as i64))
        })
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        use ScalarOp::*;
        let (dtype, shape) = (l.operands[0].dtype, l.result_extents());
        let terms = Terms::of_windows(self.windows.axes(&l.extents(0), &shape));
        let carried = dtype.wide();
        let worst = self.worst(dtype);
        if terms.is_written_out() {
            return Compute::element(move |c, index| {
                let (fill, none) = (c.constant(worst), c.constant(Scalar::of(i32::MAX)));
                let (mut best, mut position) = (widened(c, fill), none);
                for term in terms.written_out(index) {
                    let counts = c.test(term.guards.clone());
                    let number = c.index(&term.number, DType::I32);
                    let element = c.guarded(0, &term.index, term.guards, fill);
                    let element = widened(c, element);
                    // The element is better than the best so far, or the first.
                    let (low, high) = match self.extremum {
                        Extremum::Max => (best, element),
                        Extremum::Min => (element, best),
                    };
                    let mut better = c.scalar(Lt, &[low, high]);
                    if carried.is_float() {
                        let nan = c.scalar(Ne, &[element, element]);
                        let number = c.scalar(Eq, &[best, best]);
                        let first_nan = c.scalar(And, &[nan, number]);
                        better = c.scalar(Or, &[better, first_nan]);
                    }
                    let first = c.scalar(Eq, &[position, none]);
                    let better = c.scalar(Or, &[better, first]);
                    let wins = c.scalar(And, &[better, counts]);
                    best = c.scalar(Select, &[wins, element, best]);
                    position = c.scalar(Select, &[wins, number, position]);
                }
                position
            });
        }
        let rank = shape.len();
        Compute::Reduce {
            extents: shape.iter().chain(&terms.counts).copied().collect(),
            axes: (rank..2 * rank).collect(),
            values: Box::new(move |c, index| {
                let (fill, none) = (c.constant(worst), c.constant(Scalar::of(i32::MAX)));
                let term = terms.find(&index[..rank], &index[rank..]);
                let counts = c.test(term.guards.clone());
                let number = c.index(&term.number, DType::I32);
                let element = c.guarded(0, &term.index, term.guards, fill);
                vec![widened(c, element), c.scalar(Select, &[counts, number, none])]
            }),
            combine: self.extremum.combine(carried, DType::I32),
            project: vec![1],
        }
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(WindowArgument { windows: self.windows.batched(), ..self.clone() })
    }
}
