//! `argmax` and `argmin`: the index of the extremum along an axis.

use crate::op::prelude::*;

kinds! {
    /// Maximum or minimum.
    Extremum {
        /// The greatest element.
        Max "argmax"
            "Index of the greatest element along `axis`. The first NaN wins, else the first of \
             equal elements.",
        /// The least element.
        Min "argmin"
            "Index of the least element along `axis`. The first NaN wins, else the first of equal \
             elements.",
    }
}

attributes! {
    /// `argmax %x {axis=1, index=i64}`: the index of the extremum along `axis`, which vanishes.
    Argument by extremum: Extremum {
        /// The axis that is reduced.
        axis: usize,
        /// Dtype of the result: an integer that can count the axis.
        index: DType = DType::I32,
    }
}

impl Extremum {
    /// Whether a later element takes the place of the best so far: it is greater or less, or the
    /// first NaN.
    pub(super) fn better<R: Real>(self, new: &Cell<R>, best: &Cell<R>, dtype: DType) -> bool {
        let wanted = match self {
            Extremum::Max => Ordering::Greater,
            Extremum::Min => Ordering::Less,
        };
        match (new, best) {
            (Cell::Real(n), Cell::Real(b)) => match n.compare(b) {
                Some(order) => order == wanted,
                None => b.compare(b).is_some(),
            },
            (n, b) => compare_bits(n.bits(), b.bits(), dtype) == wanted,
        }
    }

    /// The reduction of (element, index) pairs.
    pub(super) fn combine(self, dtype: DType, index: DType) -> Combine {
        match self {
            Extremum::Max => Combine::argmax(dtype, index),
            Extremum::Min => Combine::argmin(dtype, index),
        }
    }
}

impl Operation for Argument {
    named!(extremum: Extremum, |_| Derivative::Zero);

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        has_axis(x, self.axis)?;
        ensure!(self.index.is_integer(), "an index of dtype {}", self.index;
            help "indices are integers");
        let extent = &x.shape[self.axis];
        ensure!(extent.as_constant() != Some(0), "axis {} of {x} is empty", self.axis;
            help "nothing has no extremum: give it at least one element");
        // The greatest u64 is taken as the greatest i64, which no extent exceeds.
        let most = Scalar::highest(self.index)
            .to_i64()
            .map_or(i64::MAX, |m| if m < 0 { i64::MAX } else { m });
        ensure!(
            extent.as_constant().is_none_or(|e| e - 1 <= most),
            "an index of dtype {} cannot count to {extent}", self.index;
            help "use `index=i64`"
        );
        let mut shape = x.shape.clone();
        shape.remove(self.axis);
        Ok(vec![TensorType::of(self.index, shape)])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let x = &e.operands[0];
        e.build(|index| {
            let mut at = index.to_vec();
            at.insert(self.axis, 0);
            let mut best = 0;
            for i in 1..x.shape[self.axis] {
                let element = |i: usize| {
                    let mut at = at.clone();
                    at[self.axis] = i;
                    x.flat(&at)
                };
                if self.extremum.better(&x.cells[element(i)], &x.cells[element(best)], x.dtype) {
                    best = i;
                }
            }
            Cell::Bits(best as i64)
        })
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let dtype = l.operands[0].dtype;
        if self.index.size() == 1 {
            // Reductions count in 32 bits or more.
            return Compute::Decompose(Box::new(move |tensors| {
                let wide = Argument { index: DType::I32, ..self.clone() };
                vec![Tensor::apply(wide, &[&tensors[0]]).convert(self.index)]
            }));
        }
        let carried = match dtype {
            d if d.is_half() => DType::F32,
            DType::Bool => DType::U8,
            d => d,
        };
        Compute::Reduce {
            extents: l.extents(0),
            axes: vec![self.axis],
            values: Box::new(move |c, index| {
                let x = c.operand(0, index);
                let x = if carried == dtype { x } else { c.convert(x, carried) };
                vec![x, c.index(&index[self.axis], self.index)]
            }),
            combine: self.extremum.combine(carried, self.index),
            project: vec![1],
        }
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(Argument { axis: self.axis + 1, ..self.clone() })
    }
}
