//! Elementwise steps, and steps that move elements.

use super::{LARGE, Pool, dims, extents};
use wengert_core::op::{Binary, Compare, Pad, Slice, Unary};
use wengert_core::{DType, Dim, Literal, Tensor};

impl Pool<'_> {
    pub(super) fn unary(&mut self) -> Vec<Tensor> {
        let x = self.float();
        // Maps the operand into the domain, away from poles.
        let positive = |x: &Tensor| x.abs() + 0.5;
        vec![match self.random.below(24) {
            0 => x.abs(),
            1 => x.sign(),
            2 => x.floor(),
            3 => x.unary(Unary::Ceil),
            4 => x.round(),
            5 => x.tanh().square(),
            6 => positive(&x).sqrt(),
            7 => positive(&x).rsqrt(),
            8 => x.tanh().exp(),
            9 => x.tanh().expm1(),
            10 => positive(&x).log(),
            11 => x.abs().log1p(),
            12 => x.logistic(),
            13 => x.sin(),
            14 => x.cos(),
            15 | 16 => x.tanh(),
            17 => x.erf(),
            18 => positive(&x).reciprocal(),
            19 => positive(&x).cbrt(),
            20 => x.tanh().integer_pow(3),
            21 => x.gelu_tanh(),
            22 => x.relu(),
            _ => -x,
        }]
    }

    pub(super) fn binary(&mut self) -> Vec<Tensor> {
        let x = self.any();
        let y = self.like(&x);
        let (x, y) = if self.random.below(2) == 0 { (x, y) } else { (y, x) };
        let op = match x.dtype() {
            DType::Bool => *self.random.pick(&[Binary::And, Binary::Or, Binary::Xor]),
            d if d.is_integer() => *self.random.pick(&[
                Binary::Add,
                Binary::Sub,
                Binary::Mul,
                Binary::Max,
                Binary::Min,
                Binary::And,
                Binary::Or,
                Binary::Xor,
                Binary::Div,
                Binary::Rem,
                Binary::ShiftLeft,
                Binary::ShiftRightArithmetic,
            ]),
            _ => match self.random.below(16) {
                0 => return vec![x / (y.abs() + 0.5)],
                1 => return vec![(x.abs() + 0.5).pow(y.tanh())],
                2 => return vec![x.atan2(y.abs() + 0.5)],
                3 => Binary::Div,
                4 => Binary::MulZero,
                5 => Binary::Max,
                6 => Binary::Min,
                7..=9 => Binary::Mul,
                10..=12 => Binary::Sub,
                _ => Binary::Add,
            },
        };
        vec![x.binary(op, &y)]
    }

    pub(super) fn choice(&mut self) -> Vec<Tensor> {
        let x = self.any();
        let y = self.like(&x);
        let op = *self.random.pick(&[
            Compare::Lt,
            Compare::Le,
            Compare::Gt,
            Compare::Ge,
            Compare::Eq,
            Compare::Ne,
        ]);
        let there = self.one(|t| t.dtype() == DType::Bool && t.shape() == x.shape());
        let predicate = match there {
            Some(predicate) if self.random.below(3) == 0 => predicate,
            _ => x.compare(op, &y),
        };
        let z = self.like(&x);
        vec![predicate.clone(), predicate.select(&x, &z)]
    }

    pub(super) fn conversion(&mut self) -> Vec<Tensor> {
        let x = self.any();
        let dtype = match x.dtype() {
            d if d.is_float() => *self.random.pick(&[
                DType::F32,
                DType::F64,
                DType::F16,
                DType::BF16,
                DType::I32,
                DType::I64,
                DType::I8,
            ]),
            _ => *self.random.pick(&[DType::F32, DType::F64, DType::I32, DType::U8, DType::I64]),
        };
        // A conversion to integers from beyond their range is not a useful test.
        let x = if x.dtype().is_float() && !dtype.is_float() { x.tanh() * 50.0 } else { x };
        let converted = x.convert(dtype);
        match self.random.below(2) {
            0 => vec![converted.convert(x.dtype())],
            _ => vec![converted],
        }
    }

    pub(super) fn moved(&mut self) -> Vec<Tensor> {
        let x = self.any();
        let shape = extents(&x);
        let rank = shape.len();
        let count: usize = shape.iter().product();
        vec![match self.random.below(12) {
            0 => {
                let splits: Vec<usize> =
                    (1..=count.max(1)).filter(|d| count.is_multiple_of(*d)).collect();
                let first = *self.random.pick(&splits);
                x.reshape([first, count / first])
            }
            1 => x.reshape([count]),
            2 | 3 if rank > 1 => {
                let mut permutation: Vec<usize> = (0..rank).collect();
                permutation.swap(self.random.below(rank), self.random.below(rank));
                x.permute(&permutation)
            }
            4 | 5 if count <= LARGE / 4 => {
                let axis = self.random.below(rank + 1);
                let mut wide = shape.clone();
                wide.insert(axis, 1 + self.random.below(4));
                let kept: Vec<usize> = (0..=rank).filter(|a| *a != axis).collect();
                x.broadcast_in_dim(dims(&wide), &kept)
            }
            6 | 7 if count > 0 && rank > 0 => {
                let bounds: Vec<(usize, usize, i64)> = shape
                    .iter()
                    .map(|e| {
                        let start = self.random.below(*e);
                        (
                            start,
                            start + 1 + self.random.below(e - start),
                            1 + self.random.below(2) as i64,
                        )
                    })
                    .collect();
                let start = bounds.iter().map(|b| Dim::from(b.0)).collect();
                let limit = bounds.iter().map(|b| Dim::from(b.1)).collect();
                let stride = bounds.iter().map(|b| b.2).collect();
                Tensor::apply(Slice { start, limit, stride }, &[&x])
            }
            8 if rank > 0 => {
                let axes = vec![self.random.below(rank)];
                x.reverse(&axes)
            }
            9 if count <= LARGE / 8 => {
                let mut entry = |from: i64, n: usize| -> Vec<i64> {
                    (0..rank).map(|_| from + self.random.below(n) as i64).collect()
                };
                let (low, high, interior) = (entry(0, 3), entry(0, 3), entry(0, 2));
                let value = self.number(x.dtype());
                let of = |list: Vec<i64>| list.into_iter().map(Dim::constant).collect();
                let pad = Pad { low: of(low), high: of(high), interior };
                Tensor::apply(pad, &[&x, &Tensor::constant(Literal::full(&[], value))])
            }
            10 | 11 if rank > 0 => {
                let axis = self.random.below(rank);
                let y = self.like(&x);
                match self.random.below(3) {
                    // Sliced and concatenated again, in either order.
                    0 if shape[axis] > 1 => {
                        let (a, b) = (
                            x.slice_axis(axis, 0i64, 1i64),
                            x.slice_axis(axis, 1i64, shape[axis] as i64),
                        );
                        let parts = if self.random.below(2) == 0 { [&a, &b] } else { [&b, &a] };
                        Tensor::concatenate(&parts, axis)
                    }
                    1 => Tensor::concatenate(&[&x, &y, &x], axis),
                    _ => Tensor::concatenate(&[&x, &y], axis),
                }
            }
            _ => match self.random.below(4) {
                0 if rank > 0 => {
                    let axis = self.random.below(rank);
                    let dtype = if x.dtype() == DType::Bool { DType::I32 } else { x.dtype() };
                    Tensor::iota(dtype, shape, axis)
                }
                _ => x.reshape([count]).reshape(shape),
            },
        }]
    }
}
