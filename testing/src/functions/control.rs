//! Steps that run regions, and samples of the catalogue.

use super::{Pool, extents};
use crate::samples::SampleOperand;
use wengert_core::build::control::{cond, fori, map, scan, scan_reverse, switch, while_at_most};
use wengert_core::op::Binary;
use wengert_core::{DType, Literal, Scalar, Tensor, TensorType};

impl Pool<'_> {
    /// Some steps in a region, on its inputs and on values outside of it; then one more value with
    /// the type of `t`.
    pub(super) fn region(&mut self, given: &[Tensor], t: &Tensor) -> Tensor {
        let mut values: Vec<Tensor> = (0..4).map(|_| self.any()).collect();
        values.push(self.float());
        values.extend(given.iter().cloned());
        let (samples, differentiated) = (self.samples, self.differentiated);
        let mut inner = Pool {
            random: &mut *self.random,
            values,
            samples,
            depth: self.depth + 1,
            differentiated,
        };
        (0..1 + inner.random.below(4)).for_each(|_| inner.step());
        let reached = inner.reach(t);
        // tanh bounds the value, however often the region runs.
        if reached.dtype().is_float() { reached.tanh() } else { reached }
    }

    pub(super) fn control(&mut self) -> Vec<Tensor> {
        let x = self.float();
        match self.random.below(7) {
            0 => {
                let y = self.float();
                let predicate = y.sum().gt(Tensor::zeros(&TensorType::scalar(y.dtype())));
                vec![cond(&predicate, || self.region(std::slice::from_ref(&x), &x), || &x * 0.5)]
            }
            1 => {
                let index = self.index();
                let pool = std::cell::RefCell::new(self);
                let way = || pool.borrow_mut().region(std::slice::from_ref(&x), &x);
                let ways: Vec<Box<dyn FnOnce() -> Tensor + '_>> =
                    vec![Box::new(|| x.clone()), Box::new(&way), Box::new(&way)];
                vec![switch(&index, ways)]
            }
            2 => {
                let count = 1 + self.random.below(3);
                vec![fori(count, &x, |i, c| {
                    let i = i.clone();
                    self.region(&[i, c.clone()], c)
                })]
            }
            3 if x.rank() > 0 && extents(&x)[0] > 0 => {
                vec![map(&x, |part| self.region(std::slice::from_ref(part), part))]
            }
            4 if !self.differentiated => {
                let limit = 1 + self.random.below(4);
                let begin = (Tensor::constant(Literal::from(0i32)), x);
                let (n, x) = while_at_most(
                    limit,
                    &begin,
                    |(n, x)| {
                        let small = x.abs().sum().lt(Tensor::full(
                            &TensorType::scalar(x.dtype()),
                            Scalar::from_f64(x.dtype(), 40.0),
                        ));
                        small.binary(Binary::And, &n.lt(Tensor::constant(Literal::from(3i32))))
                    },
                    |(n, x)| (n + 1.0, self.region(&[n.clone(), x.clone()], x)),
                );
                vec![n, x]
            }
            _ => {
                let Some(xs) = self.ranked(1) else { return vec![] };
                if extents(&xs)[0] == 0 {
                    return vec![];
                }
                let back = self.random.below(3) == 0;
                let step = |c: &Tensor, part: &Tensor| {
                    let next = self.region(&[part.clone(), c.clone()], c);
                    let given = if self.random.below(2) == 0 { next.clone() } else { part * 2.0 };
                    (next, given)
                };
                let (last, all) =
                    if back { scan_reverse(&x, &xs, step) } else { scan(&x, &xs, step) };
                vec![all, last]
            }
        }
    }

    /// A sample of the catalogue on existing values, which are mapped into the interval on which it
    /// is smooth.
    pub(super) fn sample(&mut self) -> Vec<Tensor> {
        let samples = self.samples;
        let sample = self.random.pick(samples);
        let dtype = *self.random.pick(&[DType::F32, DType::F64]);
        let literals = sample.literals(dtype, self.random.bits());
        let types: Vec<TensorType> = literals.iter().map(Literal::ty).collect();
        if sample.infer(&types).is_err() {
            return vec![];
        }
        let operands: Vec<Tensor> = sample
            .operands
            .iter()
            .zip(literals)
            .map(|(operand, literal)| {
                let (low, high) = match operand {
                    SampleOperand::Float { low, high, .. }
                    | SampleOperand::Wide { low, high, .. } => (*low, *high),
                    SampleOperand::Values(_) | SampleOperand::Ascending(_) => {
                        return Tensor::constant(literal);
                    }
                };
                let count = literal.len();
                let same = self.one(|t| {
                    t.dtype() == literal.dtype() && extents(t).iter().product::<usize>() == count
                });
                match same {
                    Some(value) if self.random.below(4) > 0 => {
                        let value = value.reshape(literal.shape().iter().copied());
                        value.tanh() * ((high - low) * 0.45) + (high + low) * 0.5
                    }
                    _ => Tensor::constant(literal),
                }
            })
            .collect();
        let regions = sample.regions(&types);
        Tensor::apply_with(sample.op.clone(), &operands.iter().collect::<Vec<_>>(), regions)
    }
}
