//! The interpreter's evaluation of attention and its derivatives, one query at a time.

use crate::op::attention::{Attention, AttentionKind, Operands};
use crate::op::prelude::*;
use crate::op::softmax::shifted_row;

/// Queries, keys or values: `[B, T, N, H]`, or a part of `[B, T, 3, N, H]`.
struct Heads<'a, R> {
    array: &'a Array<R>,
    part: Option<usize>,
    /// Number of heads of queries that share one of these.
    group: usize,
}

impl<R> Clone for Heads<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<R> Copy for Heads<'_, R> {}

impl<'a, R: Real> Heads<'a, R> {
    /// Flat index of the first element of a head.
    fn row(&self, [b, n]: [usize; 2], t: usize) -> usize {
        let n = n / self.group;
        match self.part {
            Some(part) => self.array.flat(&[b, t, part, n, 0]),
            None => self.array.flat(&[b, t, n, 0]),
        }
    }

    /// The elements of a head at a position.
    fn get(self, head: [usize; 2], t: usize, width: usize) -> impl Iterator<Item = &'a R> {
        let row = self.row(head, t);
        self.array.cells[row..row + width].iter().map(Cell::real)
    }
}

fn three<R>(operands: &[Array<R>]) -> [Heads<'_, R>; 3] {
    match operands {
        [one] => [0, 1, 2].map(|part| Heads { array: one, part: Some(part), group: 1 }),
        _ => [0, 1, 2].map(|n: usize| Heads {
            array: &operands[n],
            part: None,
            group: (operands[0].shape[2] / operands[n].shape[2].max(1)).max(1),
        }),
    }
}

/// The bias of a score.
fn of_bias<R: Real>(bias: &Array<R>, position: [usize; 4]) -> &R {
    let at = |axis: usize| if bias.shape[axis] == 1 { 0 } else { position[axis] };
    bias.cells[bias.flat(&[0, 1, 2, 3].map(at))].real()
}

fn dot<'a, R: Real>(x: impl Iterator<Item = &'a R>, y: impl Iterator<Item = &'a R>) -> R {
    x.zip(y).fold(R::from_i64(0), |sum, (x, y)| sum.add(&x.mul(y)))
}

/// `sums += weight · row`.
fn add_scaled<'a, R: Real>(sums: &mut [R], weight: &R, row: impl Iterator<Item = &'a R>) {
    sums.iter_mut().zip(row).for_each(|(sum, x)| *sum = sum.add(&weight.mul(x)));
}

/// Number of keys that query t of example b attends to.
fn seen<R: Real>(
    op: &Attention,
    prefix: Option<&Array<R>>,
    b: usize,
    t: usize,
    keys: usize,
) -> usize {
    let first = match prefix {
        Some(prefix) => prefix.cells[b].bits(),
        None if op.causal => 1,
        None => keys as i64,
    };
    (first + if op.causal { t as i64 } else { 0 }).clamp(0, keys as i64) as usize
}

/// The results of the op.
pub(super) fn evaluate<R: Real>(
    op: &Attention,
    operands: &[Array<R>],
    results: &[TensorType],
) -> Result<Vec<Array<R>>> {
    let Operands { primals, bias, prefix, more } = op.split(operands, operands[0].shape.len());
    let [q, k, v] = three(primals);
    let shape = &q.array.shape;
    let (batch, queries, width) = (shape[0], shape[1], shape[shape.len() - 1]);
    let heads = shape[shape.len() - 2];
    let keys = k.array.shape[1];
    let scale = R::from_f64(op.scale.to_f64());
    let zero = || R::from_i64(0);
    let extents: Vec<Vec<usize>> = results
        .iter()
        .map(|ty| ty.extents().expect("the interpreter runs bound functions only"))
        .collect();
    let mut sums: Vec<Vec<R>> = Vec::new();
    for shape in &extents {
        let count = shape.iter().product();
        let mut sum = reserved(count)?;
        sum.resize(count, zero());
        sums.push(sum);
    }
    // The result and the flat index in it at which a row begins; a packed result has the layout
    // of a packed operand.
    let place = |part: usize, [b, n]: [usize; 2], t: usize, length: usize| match extents.len() {
        1 => (0, (((b * length + t) * 3 + part) * heads + n) * width),
        _ => {
            let group = [q, k, v][part].group;
            (part, ((b * length + t) * (heads / group) + n / group) * width)
        }
    };
    for head in (0..batch).flat_map(|b| (0..heads).map(move |n| [b, n])) {
        for t in 0..queries {
            let seen = seen(op, prefix, head[0], t, keys);
            let row = |t: usize| (head[0] * queries + t) * heads + head[1];
            let logarithm = (head[0] * heads + head[1]) * queries + t;
            let score = |x: Heads<'_, R>, y: Heads<'_, R>, s: usize| {
                dot(x.get(head, t, width), y.get(head, s, width)).mul(&scale)
            };
            let biased = |score: R, bias: Option<&Array<R>>, s: usize| match bias {
                Some(bias) => score.add(of_bias(bias, [head[0], head[1], t, s])),
                None => score,
            };
            let scores: Vec<R> = (0..seen).map(|s| biased(score(q, k, s), bias, s)).collect();
            let out = row(t) * width..(row(t) + 1) * width;
            if op.kind == AttentionKind::Value {
                let (max, exponentials, sum) = shifted_row(&scores)?;
                for (s, e) in exponentials.iter().enumerate() {
                    add_scaled(&mut sums[0][out.clone()], &e.div(&sum)?, v.get(head, s, width));
                }
                // Without keys the maximum is −∞, replaced by 0, as in the decomposition.
                sums[1][logarithm] = max.add(&sum.apply("log", libm::log)?);
                continue;
            }
            let l = more[if op.kind == AttentionKind::Jvp { 1 } else { 0 }].cells[logarithm].real();
            let p: Vec<R> =
                scores.iter().map(|s| s.sub(l).apply("exp", libm::exp)).collect::<Result<_>>()?;
            if op.kind == AttentionKind::Jvp {
                let given = Heads { array: &more[0], part: None, group: 1 };
                let (three_tangents, of_bias) = more[2..].split_at(primals.len());
                let [dq, dk, dv] = three(three_tangents);
                let mut dl = zero();
                for (s, p) in p.iter().enumerate() {
                    let ds = score(dq, k, s).add(&score(q, dk, s));
                    let moved = p.mul(&biased(ds, of_bias.first(), s));
                    dl = dl.add(&moved);
                    add_scaled(&mut sums[0][out.clone()], &moved, v.get(head, s, width));
                    add_scaled(&mut sums[0][out.clone()], p, dv.get(head, s, width));
                }
                add_scaled(&mut sums[0][out], &dl.neg(), given.get(head, t, width));
                sums[1][logarithm] = dl;
                continue;
            }
            let c = Heads { array: &more[1], part: None, group: 1 };
            let mean = more[2].cells[logarithm].real();
            for (s, p) in p.iter().enumerate() {
                let slope = dot(c.get(head, t, width), v.get(head, s, width)).sub(mean);
                let ds = p.mul(&slope).mul(&scale);
                let terms = [(&ds, k, s, t, queries), (&ds, q, t, s, keys), (p, c, t, s, keys)];
                for (part, (weight, from, at, to, length)) in terms.into_iter().enumerate() {
                    let (result, begin) = place(part, head, to, length);
                    add_scaled(
                        &mut sums[result][begin..begin + width],
                        weight,
                        from.get(head, at, width),
                    );
                }
            }
        }
    }
    let arrays = results.iter().zip(extents).zip(sums);
    let array = |((ty, shape), sums): ((&TensorType, Vec<usize>), Vec<R>)| {
        Ok(Array::new(ty.dtype, shape, Cells::collect(sums.into_iter().map(Cell::Real))?))
    };
    arrays.map(array).collect()
}
