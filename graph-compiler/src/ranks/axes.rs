//! The axes along which an op is independent, or reduces.
//!
//! An [`Along`] describes an op along one axis, as a letter of an einsum does: the place of that
//! axis in each operand, and its fate in each result. If the axis is *kept*, then part i of each
//! result along it is made of parts i of the operands that have it. If it is *reduced*, then the
//! result is the combination of the results for the parts. An operand without the axis is the
//! same for all parts.
//!
//! An axis for which an op has no `Along` is one along which it is not independent, such as the
//! axis of a sort.

use super::regions::Inner;
use wengert_core::call::ScatterKind;
use wengert_core::graph::Equation;
use wengert_core::op::collective::PReduceKind;
use wengert_core::op::{Attention, AttentionKind, Gather, ReduceKind, Scatter, Windows};
use wengert_core::{Dim, Literal, Op, Scalar, TensorType};

/// The fate of an axis in a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It is this axis of the result.
    Kept(usize),
    /// The result combines the results for the parts of the axis.
    Reduced(PReduceKind),
    /// The result is the same for all parts.
    Whole,
}

/// An op along one axis.
#[derive(Clone, Debug)]
pub(super) struct Along {
    /// The axis of each operand; `None` if the operand lacks it.
    pub operands: Vec<Option<usize>>,
    /// The fate of the axis in each result.
    pub results: Vec<Fate>,
    /// An operand that has to be zero, since it enters the result for each part.
    pub zero: Option<usize>,
    /// The regions of a loop or branch.
    pub regions: Vec<Inner>,
}

impl Along {
    pub(super) fn new(operands: Vec<Option<usize>>, result: Fate) -> Self {
        Along { operands, results: vec![result], zero: None, regions: vec![] }
    }

    /// The numbers of the results that are the same for all parts.
    pub fn whole(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.results.len()).filter(|i| self.results[*i] == Fate::Whole)
    }
}

/// An op with the types of its operands and results.
pub(super) struct Typed<'a> {
    pub op: &'a Op,
    pub operands: Vec<TensorType>,
    pub results: Vec<TensorType>,
}

impl<'a> Typed<'a> {
    /// An equation of a body.
    pub fn of(body: &wengert_core::graph::Body, equation: &'a Equation) -> Self {
        let (operands, results) = (&equation.operands, &equation.results);
        Typed { op: &equation.op, operands: body.types(operands), results: body.types(results) }
    }

    fn rank(&self, operand: usize) -> usize {
        self.operands[operand].rank()
    }

    /// The axes but for `excluded`, which all operands and results share. Results that have
    /// fewer axes lack `excluded`.
    fn but(&self, excluded: &[usize]) -> Vec<Along> {
        let rank = self.rank(0);
        let along = |axis: usize| {
            let fate = |ty: &TensorType| match ty.rank() == rank {
                true => Fate::Kept(axis),
                false => Fate::Kept(axis - excluded.iter().filter(|e| **e < axis).count()),
            };
            Along {
                operands: vec![Some(axis); self.operands.len()],
                results: self.results.iter().map(fate).collect(),
                zero: None,
                regions: vec![],
            }
        };
        (0..rank).filter(|axis| !excluded.contains(axis)).map(along).collect()
    }

    /// Everything that the op does along single axes. The extents of axes of examples are
    /// multiples of `parts`.
    pub fn axes(&self, parts: usize) -> Vec<Along> {
        let one = |from: usize, to: usize| Along::new(vec![Some(from)], Fate::Kept(to));
        match self.op {
            Op::BitcastConvertType(_) => {
                let rank = self.rank(0).min(self.results[0].rank());
                (0..rank).map(|axis| one(axis, axis)).collect()
            }
            op if op.traits().elementwise => self.elementwise(),
            Op::Permute(op) => {
                let places = op.permutation.iter().enumerate();
                places.map(|(to, from)| one(*from, to)).collect()
            }
            Op::Reshape(_) => self.reshape(parts),
            Op::BroadcastInDim(op) => {
                let along = |axis: usize| {
                    let from = op.dims.iter().position(|d| *d == axis);
                    let from = from.filter(|i| self.operands[0].shape[*i] == op.shape[axis]);
                    Along::new(vec![from], Fate::Kept(axis))
                };
                (0..op.shape.len()).map(along).collect()
            }
            Op::Iota(op) => {
                let others = (0..op.shape.len()).filter(|axis| *axis != op.axis);
                others.map(|axis| Along::new(vec![], Fate::Kept(axis))).collect()
            }
            Op::Constant(op) if op.value.splat().is_some() => {
                let axes = 0..self.results[0].rank();
                axes.map(|axis| Along::new(vec![], Fate::Kept(axis))).collect()
            }
            Op::RandomBits(_) => (0..self.rank(0) - 1).map(|axis| one(axis, axis)).collect(),
            Op::Reduce(op) => {
                let mut all = self.but(&op.axes);
                let kind = match op.kind {
                    ReduceKind::Sum => Some(PReduceKind::Sum),
                    ReduceKind::Max => Some(PReduceKind::Max),
                    ReduceKind::Min => Some(PReduceKind::Min),
                    _ => None,
                };
                let reduced = kind.into_iter().flat_map(|kind| {
                    op.axes.iter().map(move |a| Along::new(vec![Some(*a)], Fate::Reduced(kind)))
                });
                all.extend(reduced);
                all
            }
            Op::ReduceWith(op) => self.but(&op.axes),
            Op::Argument(op) => self.but(&[op.axis]),
            Op::Cumulative(op) => self.but(&[op.axis]),
            Op::Softmax(op) => self.but(&[op.axis]),
            Op::Normalize(op) => self.but(&[op.axis]),
            Op::Sort(op) => self.but(&[op.axis]),
            Op::Argsort(op) => self.but(&[op.axis]),
            Op::TopK(op) => self.but(&[op.axis]),
            Op::TopKIndices(_) | Op::SoftmaxCrossEntropy(_) => {
                self.but(&[self.rank(0).saturating_sub(1)])
            }
            Op::Reverse(op) => self.but(&op.axes),
            Op::TakeAlongAxis(op) => self.but(&[op.axis]),
            Op::Concatenate(op) => self.but(&[op.axis]),
            Op::DotGeneral(_) => self.product(),
            Op::ConvGeneralDilated(_) => self.convolution(),
            Op::Slice(op) => {
                let whole = |axis: &usize| {
                    op.start[*axis] == Dim::constant(0)
                        && op.limit[*axis] == self.operands[0].shape[*axis]
                        && op.stride.get(*axis).is_none_or(|step| *step == 1)
                };
                (0..self.rank(0)).filter(whole).map(|axis| one(axis, axis)).collect()
            }
            Op::Pad(op) => {
                let zero = Dim::constant(0);
                let whole = |axis: &usize| {
                    op.low[*axis] == zero
                        && op.high[*axis] == zero
                        && op.interior.get(*axis).is_none_or(|step| *step == 0)
                };
                let along = |axis| Along::new(vec![Some(axis), None], Fate::Kept(axis));
                (0..self.rank(0)).filter(whole).map(along).collect()
            }
            Op::DynamicSlice(op) => {
                let sizes = &op.slice_sizes;
                let whole = |axis: &usize| sizes[*axis] == self.operands[0].shape[*axis];
                (0..self.rank(0)).filter(whole).map(|axis| self.with_starts(1, axis)).collect()
            }
            Op::DynamicUpdateSlice(_) => {
                let (x, update) = (&self.operands[0], &self.operands[1]);
                let whole = |axis: &usize| x.shape[*axis] == update.shape[*axis];
                (0..x.rank()).filter(whole).map(|axis| self.with_starts(2, axis)).collect()
            }
            Op::ReduceWindow(op) => self.windows(&op.windows),
            Op::WindowArgument(op) => self.windows(&op.windows),
            Op::WindowGather(op) => self.windows(&op.windows),
            Op::WindowScatterAdd(op) => self.windows(&op.windows),
            Op::Gather(op) => self.gather(op),
            Op::Scatter(op) => self.scatter(op),
            Op::Attention(op) => self.attention(op, parts),
            Op::PReduce(_) | Op::PVary(_) | Op::PPermute(_) => self.but(&[]),
            Op::AllGather(op) if op.tiled => self.but(&[op.axis]),
            Op::PsumScatter(op) if op.tiled => self.but(&[op.axis]),
            Op::AllToAll(op) if op.tiled => self.but(&[op.split_axis, op.concat_axis]),
            Op::TriangularSolve(_) => {
                let rank = self.rank(0);
                self.but(&[rank.saturating_sub(2), rank.saturating_sub(1)])
            }
            _ => vec![],
        }
    }

    /// How the only result is computed for a part of `axis`; `None` if it cannot be.
    pub fn computes(&self, axis: usize, parts: usize) -> Option<Along> {
        self.axes(parts).into_iter().find(|along| along.results == [Fate::Kept(axis)])
    }

    fn elementwise(&self) -> Vec<Along> {
        let shape = &self.results[0].shape;
        let along = |axis: usize| {
            let place = |ty: &TensorType| (ty.shape == *shape).then_some(axis);
            Along::new(self.operands.iter().map(place).collect(), Fate::Kept(axis))
        };
        (0..shape.len()).map(along).collect()
    }

    /// The first `count` operands have the axis, the scalars behind them lack it.
    fn with_starts(&self, count: usize, axis: usize) -> Along {
        let place = |i: usize| (i < count).then_some(axis);
        Along::new((0..self.operands.len()).map(place).collect(), Fate::Kept(axis))
    }

    /// Consecutive parts of an axis are consecutive parts of an axis of the result if the axes
    /// before both have the same number of elements, and both fall into that many parts.
    fn reshape(&self, parts: usize) -> Vec<Along> {
        let (from, to) = (extents(&self.operands[0]), extents(&self.results[0]));
        let before = |shape: &[usize], axis: usize| shape[..axis].iter().product::<usize>();
        let place = |axis: usize| {
            let fits = |b: &usize| before(&to, *b) == before(&from, axis);
            let divides = |b: &usize| to[*b] > 1 && to[*b].is_multiple_of(parts);
            let found = (0..to.len()).filter(fits).find(divides);
            found.map(|b| Along::new(vec![Some(axis)], Fate::Kept(b)))
        };
        let divides = |axis: &usize| from[*axis] > 1 && from[*axis].is_multiple_of(parts);
        let mut found: Vec<Along> = (0..from.len()).filter(divides).filter_map(place).collect();
        // A part of one example: extents of 1 move, the others stay in their order.
        if parts == 1 {
            let units = |shape: &[usize]| (0..shape.len()).filter(|a| shape[*a] == 1).collect();
            let (a, b): (Vec<usize>, Vec<usize>) = (units(&from), units(&to));
            let pairs = a.into_iter().zip(b);
            found.extend(pairs.map(|(a, b)| Along::new(vec![Some(a)], Fate::Kept(b))));
        }
        found
    }

    fn product(&self) -> Vec<Along> {
        let Op::DotGeneral(op) = self.op else { unreachable!("the rule of dot_general") };
        let mut all = Vec::new();
        for (i, (a, b)) in op.batch.0.iter().zip(&op.batch.1).enumerate() {
            all.push(Along::new(vec![Some(*a), Some(*b)], Fate::Kept(i)));
        }
        let free = |operand: usize, contract: &[usize], batch: &[usize]| -> Vec<usize> {
            let bound = |axis: &usize| contract.contains(axis) || batch.contains(axis);
            (0..self.rank(operand)).filter(|axis| !bound(axis)).collect()
        };
        let mut place = op.batch.0.len();
        for axis in free(0, &op.contract.0, &op.batch.0) {
            all.push(Along::new(vec![Some(axis), None], Fate::Kept(place)));
            place += 1;
        }
        for axis in free(1, &op.contract.1, &op.batch.1) {
            all.push(Along::new(vec![None, Some(axis)], Fate::Kept(place)));
            place += 1;
        }
        for (a, b) in op.contract.0.iter().zip(&op.contract.1) {
            let fate = Fate::Reduced(PReduceKind::Sum);
            all.push(Along::new(vec![Some(*a), Some(*b)], fate));
        }
        all
    }

    /// The batch, the output features, and the input features, over which a convolution sums.
    /// Features in groups and a batch in groups are not independent along these axes.
    fn convolution(&self) -> Vec<Along> {
        let Op::ConvGeneralDilated(op) = self.op else { unreachable!("the rule of convolutions") };
        let rank = self.rank(0);
        let or = |spec: &[usize], first: usize, second: usize| match spec {
            [a, b, ..] => [*a, *b],
            _ => [first, second],
        };
        let lhs = or(&op.lhs_spec, 0, rank - 1);
        let rhs = or(&op.rhs_spec, rank - 1, rank - 2);
        let out = or(&op.out_spec, 0, rank - 1);
        let one = Dim::constant(1);
        let mut all = Vec::new();
        if op.batch_group_count == one {
            all.push(Along::new(vec![Some(lhs[0]), None], Fate::Kept(out[0])));
        }
        if op.batch_group_count == one && op.feature_group_count == one {
            all.push(Along::new(vec![None, Some(rhs[0])], Fate::Kept(out[1])));
            let fate = Fate::Reduced(PReduceKind::Sum);
            all.push(Along::new(vec![Some(lhs[1]), Some(rhs[1])], fate));
        }
        all
    }

    /// Axes along which every window is one element, and every element is a window.
    fn windows(&self, windows: &Windows) -> Vec<Along> {
        let single = |list: &[usize], axis: usize| list.get(axis).is_none_or(|n| *n == 1);
        let zero = Dim::constant(0);
        let padded =
            |axis: usize| windows.padding.get(axis).is_some_and(|p| p.0 != zero || p.1 != zero);
        let alone = |axis: &usize| {
            windows.window[*axis] == 1
                && single(&windows.stride, *axis)
                && single(&windows.base_dilation, *axis)
                && !padded(*axis)
        };
        let along = |axis| Along::new(vec![Some(axis); self.operands.len()], Fate::Kept(axis));
        (0..self.rank(0)).filter(alone).map(along).collect()
    }

    fn gather(&self, op: &Gather) -> Vec<Along> {
        let (x, indices) = (&self.operands[0], &self.operands[1]);
        let offset = |axis: &usize| op.offset_dims.contains(axis);
        let positions: Vec<usize> = (0..self.results[0].rank()).filter(|a| !offset(a)).collect();
        let mut all = Vec::new();
        for (axis, place) in (0..indices.rank().saturating_sub(1)).zip(positions) {
            let pair = op.start_indices_batching_dims.iter().position(|a| *a == axis);
            let of_x = pair.map(|i| op.operand_batching_dims[i]);
            all.push(Along::new(vec![of_x, Some(axis)], Fate::Kept(place)));
        }
        let dropped = |axis: &usize| {
            op.collapsed_slice_dims.contains(axis) || op.operand_batching_dims.contains(axis)
        };
        let window = (0..x.rank()).filter(|axis| !dropped(axis)).zip(&op.offset_dims);
        for (axis, place) in window {
            if op.slice_sizes[axis] == x.shape[axis] {
                all.push(Along::new(vec![Some(axis), None], Fate::Kept(*place)));
            }
        }
        all
    }

    fn scatter(&self, op: &Scatter) -> Vec<Along> {
        let (x, indices, updates) = (&self.operands[0], &self.operands[1], &self.operands[2]);
        let window = |axis: &usize| op.update_window_dims.contains(axis);
        let positions: Vec<usize> = (0..updates.rank()).filter(|axis| !window(axis)).collect();
        let mut all = Vec::new();
        for (axis, place) in (0..indices.rank().saturating_sub(1)).zip(positions) {
            let pair = op.scatter_indices_batching_dims.iter().position(|a| *a == axis);
            match pair.map(|i| op.operand_batching_dims[i]) {
                Some(of_x) => {
                    let places = vec![Some(of_x), Some(axis), Some(place)];
                    all.push(Along::new(places, Fate::Kept(of_x)));
                }
                None if op.kind == ScatterKind::Add => {
                    let places = vec![None, Some(axis), Some(place)];
                    let fate = Fate::Reduced(PReduceKind::Sum);
                    all.push(Along { zero: Some(0), ..Along::new(places, fate) });
                }
                None => {}
            }
        }
        let inserted = |axis: &usize| {
            op.inserted_window_dims.contains(axis) || op.operand_batching_dims.contains(axis)
        };
        let windows = (0..x.rank()).filter(|axis| !inserted(axis)).zip(&op.update_window_dims);
        for (axis, place) in windows {
            if updates.shape[*place] == x.shape[axis] {
                all.push(Along::new(vec![Some(axis), None, Some(*place)], Fate::Kept(axis)));
            }
        }
        all
    }

    /// The axis of examples, and that of heads, if all heads fall into equal parts. A bias may be
    /// the same for all of them.
    fn attention(&self, op: &Attention, parts: usize) -> Vec<Along> {
        let examples = &self.operands[0].shape[0];
        let example = |ty: &TensorType| (ty.shape[0] == *examples).then_some(0);
        let packed = self.rank(0) == 5;
        let bias = if packed { 1 } else { 3 };
        let tangent = (op.kind == AttentionKind::Jvp).then(|| self.operands.len() - 1);
        let is_bias = |i: usize| op.bias && (i == bias || Some(i) == tangent);
        // [B, T, 3, N, H], [B, T, N, H], [B, N, T], and the prefix, [B].
        let head = |ty: &TensorType| match ty.rank() {
            5 => Some(3),
            4 => Some(2),
            3 => Some(1),
            _ => None,
        };
        let place = |(i, ty): (usize, &TensorType)| match is_bias(i) {
            true => (ty.shape[1] != Dim::from(1)).then_some(1),
            false => head(ty),
        };
        let along = |operands: Vec<Option<usize>>, results: Vec<Fate>| Along {
            operands,
            results,
            zero: None,
            regions: vec![],
        };
        let mut all = vec![along(
            self.operands.iter().map(example).collect(),
            vec![Fate::Kept(0); self.results.len()],
        )];
        let operands: Vec<Option<usize>> = self.operands.iter().enumerate().map(place).collect();
        let falls = |(ty, axis): (&TensorType, &Option<usize>)| {
            axis.is_none_or(|axis| extents(ty)[axis].is_multiple_of(parts))
        };
        if self.operands.iter().zip(&operands).all(falls) {
            let kept = |ty| Fate::Kept(head(ty).expect("a result of attention has heads"));
            all.push(along(operands, self.results.iter().map(kept).collect()));
        }
        all
    }

    /// The op for one of `parts` equal parts of the axis: its attributes have the smaller extent.
    pub fn part(&self, along: &Along, parts: usize) -> Op {
        let mut op = self.op.clone();
        let kept = match along.results.first() {
            Some(Fate::Kept(axis)) => Some(*axis),
            _ => None,
        };
        let first = along.operands.first().copied().flatten();
        match &mut op {
            Op::Reshape(op) => divide(&mut op.shape, kept, parts),
            Op::BroadcastInDim(op) => divide(&mut op.shape, kept, parts),
            Op::Iota(op) => divide(&mut op.shape, kept, parts),
            Op::Slice(op) => divide(&mut op.limit, first, parts),
            Op::DynamicSlice(op) => divide(&mut op.slice_sizes, first, parts),
            Op::WindowScatterAdd(op) => divide(&mut op.shape, kept, parts),
            Op::Gather(op) => {
                let dropped = |axis: &usize| {
                    op.collapsed_slice_dims.contains(axis)
                        || op.operand_batching_dims.contains(axis)
                };
                let window = first.filter(|axis| !dropped(axis));
                divide(&mut op.slice_sizes, window, parts);
            }
            Op::Constant(op) => {
                let splat = op.value.splat().expect("only repeated elements have axes");
                let mut shape = op.value.shape().to_vec();
                let axis = kept.expect("a constant keeps the axis");
                shape[axis] /= parts;
                op.value = full(&shape, splat);
            }
            _ => {}
        }
        op
    }
}

fn full(shape: &[usize], value: Scalar) -> Literal {
    Literal::full(shape, value)
}

fn divide(shape: &mut [Dim], axis: Option<usize>, parts: usize) {
    if let Some(axis) = axis {
        let extent = shape[axis].as_extent().expect("the function is bound");
        shape[axis] = Dim::from(extent / parts);
    }
}

/// The extents of a type of a bound function.
pub(super) fn extents(ty: &TensorType) -> Vec<usize> {
    ty.extents().expect("the function is bound")
}
