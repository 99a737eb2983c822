//! Steps that reduce, multiply, sort, gather and scatter.

use super::{LARGE, Pool, extents, literal};
use wengert_core::build::Padding;
use wengert_core::build::indexing::{ScatterDimensionNumbers, ScatterMode};
use wengert_core::op::{Cumulative, CumulativeKind, DotGeneral, Reduce, ReduceKind};
use wengert_core::{DType, Literal, Tensor, TensorType};

impl Pool<'_> {
    pub(super) fn axes(&mut self, x: &Tensor) -> Vec<usize> {
        let rank = x.rank();
        let axes: Vec<usize> = (0..rank).filter(|_| self.random.below(2) == 0).collect();
        if axes.is_empty() && rank > 0 { vec![rank - 1] } else { axes }
    }

    pub(super) fn reduced(&mut self) -> Vec<Tensor> {
        let x = self.any();
        let axes = self.axes(&x);
        let kinds = match x.dtype() {
            DType::Bool => &[ReduceKind::And, ReduceKind::Or, ReduceKind::Xor][..],
            d if d.is_integer() => {
                &[ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::And]
            }
            _ => &[
                ReduceKind::Sum,
                ReduceKind::Sum,
                ReduceKind::Sum,
                ReduceKind::Max,
                ReduceKind::Min,
            ],
        };
        let kind = *self.random.pick(kinds);
        let reduced = Tensor::apply(Reduce { kind, axes: axes.clone() }, &[&x]);
        match self.random.below(4) {
            0 if x.dtype().is_float() => {
                let centred = &x - x.mean_axes(&axes).restore_axes(x.shape(), &axes);
                vec![centred, x.var_axes(&axes)]
            }
            1 if x.dtype().is_float() && x.rank() > 0 => {
                let axis = self.axis(&x);
                if extents(&x)[axis] == 0 {
                    return vec![reduced];
                }
                vec![
                    if self.random.below(2) == 0 { x.argmax(axis) } else { x.argmin(axis) },
                    reduced,
                ]
            }
            _ => vec![reduced],
        }
    }

    pub(super) fn running(&mut self) -> Vec<Tensor> {
        let Some(x) = self.ranked(1) else { return vec![] };
        let axis = self.axis(&x);
        let kinds = [CumulativeKind::Sum, CumulativeKind::Max, CumulativeKind::Prod];
        let kind = *self.random.pick(&kinds);
        let reverse = self.random.below(2) == 0;
        vec![Tensor::apply(Cumulative { kind, axis, reverse }, &[&x])]
    }

    /// Ops that read a row more than once.
    pub(super) fn row(&mut self) -> Vec<Tensor> {
        let Some(x) = self.ranked(1) else { return vec![] };
        let axis = self.axis(&x);
        if extents(&x)[axis] == 0 {
            return vec![];
        }
        vec![match self.random.below(7) {
            0 => x.softmax(axis),
            1 => x.log_softmax(axis),
            2 => x.logsumexp(axis),
            3 => x.standardize(axis, 1e-3),
            4 => x.rms_normalize(axis, 1e-3),
            5 => {
                // A layer norm with scale and shift, by hand.
                let centred = &x - x.mean_axes(&[axis]).restore_axes(x.shape(), &[axis]);
                let size = (&centred * &centred).mean_axes(&[axis]) + 0.01;
                let normal = centred * size.rsqrt().restore_axes(x.shape(), &[axis]);
                let scale = self.like(&normal);
                normal * &scale + &scale
            }
            _ => {
                let shifted = &x - x.max_axes(&[axis]).restore_axes(x.shape(), &[axis]);
                let e = shifted.exp();
                let sum = e.sum_axes(&[axis]).restore_axes(x.shape(), &[axis]);
                e / sum
            }
        }]
    }

    pub(super) fn product(&mut self) -> Vec<Tensor> {
        let Some(x) = self.ranked(1) else { return vec![] };
        let (shape, dtype) = (extents(&x), x.dtype());
        // Any two axes of the same extent, with no batch axis or with the first axis as batch.
        let y = self.one(|t| {
            t.dtype() == dtype && t.rank() >= 1 && extents(t).iter().any(|e| shape.contains(e))
        });
        let Some(y) = y else { return vec![] };
        let other = extents(&y);
        let pairs: Vec<(usize, usize)> = (0..shape.len())
            .flat_map(|a| (0..other.len()).map(move |b| (a, b)))
            .filter(|(a, b)| shape[*a] == other[*b])
            .collect();
        if pairs.is_empty() {
            return vec![];
        }
        let (a, b) = *self.random.pick(&pairs);
        let batch: Vec<(usize, usize)> = pairs
            .iter()
            .copied()
            .filter(|(c, d)| *c != a && *d != b && self.random.below(3) == 0)
            .take(1)
            .collect();
        let op = DotGeneral {
            contract: (vec![a], vec![b]),
            batch: batch.into_iter().unzip(),
            result: None,
        };
        let product = Tensor::apply(op, &[&x, &y]);
        if product.error().is_some() || product.rank() < 2 {
            return vec![product];
        }
        let mut permutation: Vec<usize> = (0..product.rank()).collect();
        match self.random.below(3) {
            0 => {
                permutation.rotate_left(1);
                vec![product.permute(&permutation)]
            }
            _ => vec![product],
        }
    }

    /// An affine layer and the ops that follow it.
    pub(super) fn layer(&mut self) -> Vec<Tensor> {
        let Some(x) = self.one(|t| t.dtype().is_float() && t.rank() == 2) else { return vec![] };
        let (dtype, width) = (x.dtype(), extents(&x)[1]);
        let weight = self.one(|t| t.dtype() == dtype && t.rank() == 2 && extents(t)[0] == width);
        let bias = |pool: &mut Self, y: &Tensor| {
            let columns = extents(y)[1];
            pool.one(|t| t.dtype() == dtype && t.rank() == 1 && extents(t)[0] == columns)
        };
        let Some(weight) = weight else { return vec![] };
        let y = x.dot(&weight);
        let y = match bias(self, &y) {
            Some(bias) => &y + bias.broadcast_in_dim(y.shape().to_vec(), &[1]),
            None => y,
        };
        let made = match self.random.below(4) {
            0 => y.relu(),
            1 => y.tanh(),
            2 => y.gelu_tanh(),
            _ => y.clone(),
        };
        let residual = if made.ty() == x.ty() { &made + &x } else { made };
        if self.random.below(3) == 0 { vec![y, residual] } else { vec![residual] }
    }

    /// An index: a number of the data, or a constant.
    pub(super) fn index(&mut self) -> Tensor {
        match self.one(|t| t.dtype() == DType::I32 && t.rank() <= 1) {
            Some(i) if extents(&i).iter().product::<usize>() > 0 && self.random.below(2) == 0 => {
                i.sum()
            }
            _ => Tensor::constant(Literal::from(self.random.below(5) as i32 - 1)),
        }
    }

    pub(super) fn indexed(&mut self) -> Vec<Tensor> {
        let Some(x) = self.ranked(1) else { return vec![] };
        let shape = extents(&x);
        if shape.contains(&0) {
            return vec![];
        }
        let axis = self.axis(&x);
        let indices = self.one(|t| t.dtype() == DType::I32 && t.rank() == 1);
        vec![match self.random.below(5) {
            0 => {
                let start = self.index();
                x.dynamic_slice_in_dim(&start, 1 + self.random.below(shape[axis]), axis)
            }
            1 => {
                let start = self.index();
                let update =
                    x.slice_axis(axis, 0i64, 1 + self.random.below(shape[axis]) as i64) * 0.5;
                x.dynamic_update_slice_in_dim(&update, &start, axis)
            }
            2 => match indices {
                Some(i) => x.gather_rows(&i),
                None => return vec![],
            },
            // Halves are left out: each addition is rounded, in the order of the updates.
            3 if !x.dtype().is_half() => {
                let Some(i) = indices else { return vec![] };
                let rows = extents(&i)[0];
                let mut updates = shape.clone();
                updates[0] = rows;
                if updates.iter().product::<usize>() > LARGE {
                    return vec![];
                }
                let updates = Tensor::constant(literal(
                    self.random,
                    &TensorType::new(x.dtype(), updates),
                    false,
                ));
                let numbers = ScatterDimensionNumbers {
                    update_window_dims: (1..shape.len()).collect(),
                    inserted_window_dims: vec![0],
                    scatter_dims_to_operand_dims: vec![0],
                    ..ScatterDimensionNumbers::default()
                };
                let mode = *self.random.pick(&[ScatterMode::Drop, ScatterMode::Clip]);
                x.scatter_add(&i.reshape([rows, 1]), &updates, &numbers, mode)
            }
            _ => {
                let order = x.argsort(axis);
                x.take_along_axis(&order, axis)
            }
        }]
    }

    pub(super) fn ordered(&mut self) -> Vec<Tensor> {
        let Some(x) = self.ranked(1) else { return vec![] };
        let axis = self.axis(&x);
        let extent = extents(&x)[axis];
        if extent == 0 {
            return vec![];
        }
        match self.random.below(2) {
            0 => vec![x.sort(axis)],
            _ => {
                let (values, indices) = x.top_k(1 + self.random.below(extent), axis);
                vec![indices, values]
            }
        }
    }

    pub(super) fn windowed(&mut self) -> Vec<Tensor> {
        let Some(x) = self.ranked(1) else { return vec![] };
        let count: usize = extents(&x).iter().product();
        if count == 0 {
            return vec![];
        }
        let x = x.reshape([1, count, 1]);
        let window = 1 + self.random.below(count.min(4));
        let stride = 1 + self.random.below(2);
        vec![match self.random.below(3) {
            0 => x.max_pool(&[window], &[stride], &Padding::Same),
            1 => x.avg_pool(&[window], &[stride], &Padding::Valid),
            _ => x.avg_pool(&[window], &[stride], &Padding::Same),
        }]
    }
}
