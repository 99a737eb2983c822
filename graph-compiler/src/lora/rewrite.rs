//! The walk that gives the readers of weights their updates.

use super::adapter::{Adapter, OutputAxis, summed, swaps};
use crate::rewrite::push;
use wengert_core::graph::{Body, Equation, Function, Input, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::{Binary, BroadcastInDim, Constant, DotGeneral, Permute};
use wengert_core::{Literal, LocationId, Op, Scalar, TensorType};

/// A weight with its update, in the new body.
struct Weight {
    value: ValueId,
    /// The transpose of the weight, once something reads it.
    transpose: Option<ValueId>,
    /// The left factor of the update, `[…, r]`.
    left: ValueId,
    /// The right factor of the update, `[r, …]`.
    right: ValueId,
    /// The weight plus its update, once something reads it.
    sum: Option<ValueId>,
    /// The transpose of the sum, once something reads it.
    sum_transpose: Option<ValueId>,
}

/// What a value of the old body is in the new one.
#[derive(Clone, Copy)]
enum Held {
    Value(ValueId),
    /// A weight that has an update, or its transpose.
    Weight {
        number: usize,
        transposed: bool,
    },
}

struct Walk<'a> {
    old: &'a Body,
    body: Body,
    held: IdVec<ValueId, Option<Held>>,
    weights: Vec<Weight>,
    scale: f64,
}

/// The operands of a product whose operand number `side` is a weight or a factor of its update.
pub(super) fn ordered(side: usize, weight: ValueId, other: ValueId) -> [ValueId; 2] {
    match side {
        0 => [weight, other],
        _ => [other, weight],
    }
}

/// The two products of an update beside a product `op` with a weight as operand number `side`: with
/// the factor that takes what the weight takes, and with the one that gives what the weight gives.
/// `axis` is the axis of the weight, as it is stored, over which `op` sums, and `rank` is the
/// number of axes of the other operand.
pub(super) fn products(op: &DotGeneral, side: usize, axis: usize, rank: usize) -> [DotGeneral; 2] {
    let of_other = if side == 0 { op.contract.1[0] } else { op.contract.0[0] };
    // The axis of rank r is that of a weight: first if the weight is the left operand.
    let of_rank = if side == 0 { 0 } else { rank - 1 };
    [of_other, of_rank].map(|other| {
        let contract = match side {
            0 => (vec![axis], vec![other]),
            _ => (vec![other], vec![axis]),
        };
        DotGeneral { contract, batch: (vec![], vec![]), result: None }
    })
}

/// The body of a function in which the weights that have adapters have updates. Each weight is
/// followed by the two parameters of its adapter.
pub(super) fn body<'a>(
    function: &Function,
    adapter: impl Fn(&Input) -> Option<&'a Adapter>,
    scale: f64,
) -> Body {
    let old = &function.body;
    let mut walk = Walk {
        old,
        body: Body::default(),
        held: old.values.ids().map(|_| None).collect(),
        weights: vec![],
        scale,
    };
    for (input, value) in function.inputs.iter().zip(&old.inputs) {
        let new = walk.input(old.ty(*value).clone());
        let Some(adapter) = adapter(input) else {
            walk.held[*value] = Some(Held::Value(new));
            continue;
        };
        let (down, up) = (walk.input(adapter.down_type()), walk.input(adapter.up_type()));
        let (left, right) = match adapter.output {
            OutputAxis::First => (up, down),
            OutputAxis::Last => (down, up),
        };
        walk.held[*value] = Some(Held::Weight { number: walk.weights.len(), transposed: false });
        let (transpose, sum, sum_transpose) = (None, None, None);
        walk.weights.push(Weight { value: new, transpose, left, right, sum, sum_transpose });
    }
    for equation in &old.equations {
        walk.equation(equation);
    }
    let location = old.equations.last().map_or(LocationId(0), |last| last.location);
    walk.body.outputs = old.outputs.iter().map(|value| walk.read(*value, location)).collect();
    walk.body
}

impl Walk<'_> {
    fn input(&mut self, ty: TensorType) -> ValueId {
        let value = self.body.values.push(ty);
        self.body.inputs.push(value);
        value
    }

    fn of(&self, old: ValueId) -> Held {
        self.held[old].expect("a value is defined before it is used")
    }

    fn push(&mut self, op: impl Into<Op>, operands: &[ValueId], location: LocationId) -> ValueId {
        push(&mut self.body, op, operands, location)
    }

    fn transposed(&mut self, value: ValueId, location: LocationId) -> ValueId {
        self.push(Permute { permutation: vec![1, 0] }, &[value], location)
    }

    /// The value in the new body; of a weight, the sum with its update.
    fn read(&mut self, old: ValueId, location: LocationId) -> ValueId {
        match self.of(old) {
            Held::Value(value) => value,
            Held::Weight { number, transposed: false } => self.sum(number, location),
            Held::Weight { number, transposed: true } => {
                if let Some(known) = self.weights[number].sum_transpose {
                    return known;
                }
                let sum = self.sum(number, location);
                let made = self.transposed(sum, location);
                self.weights[number].sum_transpose = Some(made);
                made
            }
        }
    }

    /// w + (P·s)·Q.
    fn sum(&mut self, number: usize, location: LocationId) -> ValueId {
        let Weight { value, left, right, sum, .. } = self.weights[number];
        if let Some(known) = sum {
            return known;
        }
        let left = self.scaled(left, location);
        let rank = self.body.ty(left).rank();
        let update = self.push(DotGeneral::matmul(rank), &[left, right], location);
        let sum = self.push(Binary::Add, &[value, update], location);
        self.weights[number].sum = Some(sum);
        sum
    }

    /// A value times s.
    fn scaled(&mut self, value: ValueId, location: LocationId) -> ValueId {
        if self.scale == 1.0 {
            return value;
        }
        let ty = self.body.ty(value).clone();
        let number = Literal::full(&[], Scalar::from_f64(ty.dtype, self.scale));
        let number = self.push(Constant { value: number }, &[], location);
        let shape = ty.shape.to_vec();
        let factor = self.push(BroadcastInDim { dims: vec![], shape }, &[number], location);
        self.push(Binary::Mul, &[value, factor], location)
    }

    fn equation(&mut self, equation: &Equation) {
        let location = equation.location;
        if let ([operand], [result]) = (&equation.operands[..], &equation.results[..])
            && let Held::Weight { number, transposed } = self.of(*operand)
            && swaps(&equation.op)
        {
            self.held[*result] = Some(Held::Weight { number, transposed: !transposed });
            return;
        }
        for (side, operand) in equation.operands.iter().enumerate() {
            let Held::Weight { number, transposed } = self.of(*operand) else { continue };
            if let Some(axis) = summed(equation, *operand)
                && self.old.ty(*operand).rank() == 2
            {
                return self.product(equation, side, number, (transposed, axis));
            }
        }
        let operands = equation.operands.iter().map(|v| self.read(*v, location)).collect();
        self.keep(equation, operands);
    }

    /// The equation with other operands of the same types.
    fn keep(&mut self, equation: &Equation, operands: Vec<ValueId>) {
        let results: Vec<ValueId> = equation
            .results
            .iter()
            .map(|result| self.body.values.push(self.old.ty(*result).clone()))
            .collect();
        for (old, new) in equation.results.iter().zip(&results) {
            self.held[*old] = Some(Held::Value(*new));
        }
        self.body.equations.push(Equation { operands, results, ..equation.clone() });
    }

    /// The product of a weight, which is operand number `side`, and another value x, with the
    /// update: x·w + ((x·P)·s)·Q, or with the factors exchanged where the sum is over the outputs.
    fn product(
        &mut self,
        equation: &Equation,
        side: usize,
        number: usize,
        (transposed, axis): (bool, usize),
    ) {
        let location = equation.location;
        let Op::DotGeneral(op) = &equation.op else { unreachable!("it is a product") };
        let other = self.read(equation.operands[1 - side], location);
        let matrix = self.matrix(number, transposed, location);
        let ordered = |weight, other| ordered(side, weight, other);
        let Weight { left, right, .. } = self.weights[number];
        // The axis of the weight as it is stored.
        let axis = if transposed { 1 - axis } else { axis };
        let (first, second) = if axis == 0 { (left, right) } else { (right, left) };
        let [takes, gives] = products(op, side, axis, self.body.ty(other).rank());
        let inner = self.push(takes, &ordered(first, other), location);
        let inner = self.scaled(inner, location);
        let update = self.push(gives, &ordered(second, inner), location);
        let product = self.push(op.clone(), &ordered(matrix, other), location);
        let sum = self.push(Binary::Add, &[product, update], location);
        self.held[equation.results[0]] = Some(Held::Value(sum));
    }

    /// A weight without its update.
    fn matrix(&mut self, number: usize, transposed: bool, location: LocationId) -> ValueId {
        let Weight { value, transpose, .. } = self.weights[number];
        match (transposed, transpose) {
            (false, _) => value,
            (true, Some(known)) => known,
            (true, None) => {
                let made = self.transposed(value, location);
                self.weights[number].transpose = Some(made);
                made
            }
        }
    }
}
