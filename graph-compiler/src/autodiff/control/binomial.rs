//! Transposition of a loop that keeps the carries of a few steps only: binomial checkpointing.
//!
//! The transposed loop needs the carries of every step, the last step's first. It has s slots for
//! them. From a slot it runs the loop forward again, and stores carries on the way into free
//! slots. A step is transposed when its carries are available; its slot is free afterwards. The
//! distance to the next slot decides how many steps are run in all.
//!
//! Let β(s, r) = C(s + r, r). A stretch of l steps with s slots, β(s, r − 1) < l ≤ β(s, r),
//! takes at least r·l − β(s + 1, r − 1) steps. It takes this many if the next slot is filled
//! after m = min(β(s, r − 1), l − β(s − 1, r − 1)) steps. The stretch after it, of
//! l − m ≤ β(s − 1, r) steps, has one slot less, and the stretch before it, of
//! m ≤ β(s, r − 1) steps, is rerun once less.
//!
//! All this is ordinary IR. The outer loop transposes one step per iteration. The inner loop runs
//! forward to the step before the last remaining one. Their state is a few integers, the slots,
//! which are updated in place, and the carries. Both loops have checkpoints themselves, in case
//! they are differentiated.
//!
//! # References
//!
//! Griewank, *Achieving logarithmic growth of temporal and spatial complexity in reverse
//! automatic differentiation*, 1992; Griewank and Walther, *Algorithm 799: Revolve*, 2000.

use super::transposed::{known_step, reordered};
use super::{Operand, innermost, kept, or_zeros, present, spread};
use crate::autodiff::add;
use crate::autodiff::jvp::zeros;
use crate::autodiff::transpose::transpose as transpose_body;
use std::cell::RefCell;
use wengert_core::build::Scope;
use wengert_core::build::control::{cond, while_checkpointed, while_loop};
use wengert_core::build::indexing::{ScatterDimensionNumbers, ScatterOptions};
use wengert_core::build::inline;
use wengert_core::graph::{Body, Equation};
use wengert_core::op::Scan;
use wengert_core::{DType, Diagnostic, Dim, Result, Tensor, TensorType};

/// A linear loop with known carries, to be transposed.
pub(super) struct Loop<'a> {
    pub scope: &'a Scope,
    pub equation: &'a Equation,
    pub op: &'a Scan,
    pub count: Option<&'a Tensor>,
    /// Whether a step is linear in each of its inputs.
    pub linear: &'a [bool],
}

/// The parts from which a transposed step is made.
struct Step {
    /// The step with its linear inputs in front, and their number.
    body: Body,
    lines: usize,
    /// The known carries of the next step.
    advance: Body,
    /// Whether `advance` takes each input.
    used: Vec<bool>,
    /// Known slices and captures; `None` for linear ones.
    operands: Vec<Operand>,
    /// Cotangents of stacks.
    stacked: Vec<Option<Tensor>>,
    known_carries: Vec<bool>,
    slices: std::ops::Range<usize>,
}

impl Step {
    /// The known inputs of step `number`: carries, rows of slices, captures; `None` for linear
    /// ones.
    fn inputs(&self, carries: &[Tensor], number: &Tensor) -> Vec<Option<Tensor>> {
        let mut inputs = spread(carries, &self.known_carries);
        for (i, operand) in self.operands.iter().enumerate().skip(self.slices.start) {
            let part = |whole: &Tensor| whole.dynamic_index_in_dim(number, 0);
            inputs.push(match self.slices.contains(&i) {
                true => operand.as_ref().map(part),
                false => operand.clone(),
            });
        }
        inputs
    }

    /// The known carries after step `number`.
    fn advance(&self, carries: &[Tensor], number: &Tensor) -> Result<Vec<Tensor>> {
        let inputs = self.inputs(carries, number);
        let inputs: Vec<Tensor> = kept(&inputs, &self.used).into_iter().flatten().collect();
        inline(&self.advance, &inputs)
    }

    /// Cotangents of the linear inputs of step `number` from those of its linear carries.
    fn transpose(
        &self,
        carries: &[Tensor],
        number: &Tensor,
        cotangents: &[Tensor],
    ) -> Result<Vec<Option<Tensor>>> {
        let linear_carries: Vec<bool> = self.known_carries.iter().map(|k| !k).collect();
        let mut given = spread(cotangents, &linear_carries);
        let part = |whole: &Tensor| whole.dynamic_index_in_dim(number, 0);
        given.extend(self.stacked.iter().map(|whole| whole.as_ref().map(part)));
        let known = present(&self.inputs(carries, number));
        transpose_body(&self.body, self.lines, &known, &given)
    }
}

fn int(value: i32) -> Tensor {
    Tensor::constant(value)
}

/// 1 for true, 0 for false.
fn as_int(flag: &Tensor) -> Tensor {
    flag.convert(DType::I32)
}

/// Stores `row` at `index` of a stack; an index out of bounds stores nothing.
fn put(stack: &Tensor, index: &Tensor, row: &Tensor) -> Tensor {
    let numbers = ScatterDimensionNumbers {
        update_window_dims: (0..row.rank()).collect(),
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        ..Default::default()
    };
    stack.scatter(&index.reshape([1usize]), row, &numbers, ScatterOptions::default())
}

/// The number of steps, of a stretch of `length`, after which the next of `slots` slots is
/// filled. Both are `i32[]` of at least 1. A stretch of one step gives 0: no slot is filled.
pub(super) fn distance(length: &Tensor, slots: &Tensor) -> Tensor {
    let (l, s) = (length.convert(DType::I64), slots.convert(DType::I64));
    let one = Tensor::constant(1i64);
    // With one slot, r is l − 1 from the start; else it is at most about √(2l), and b = β(s, r).
    let first = slots.eq(int(1)).select(&(&l - 1i64).max(&one), &one);
    let begin = first.eq(&one).select(&(&s + 1i64), &(&first + 1i64));
    let (r, b) = while_loop(
        &(first, begin),
        |(_, b)| b.lt(&l),
        |(r, b)| {
            let next = r + 1i64;
            let b = b * (&s + &next) / &next;
            (next, b)
        },
    );
    let before = &b * &r / (&s + &r);
    let behind = &before * &s / (&s + &r - 1i64);
    before.min(&(&l - &behind)).convert(DType::I32)
}

impl Loop<'_> {
    /// Cotangents of carries, slices and captures.
    pub fn transpose(
        &self,
        operands: &[Operand],
        cotangents: &[Option<Tensor>],
    ) -> Result<Vec<Option<Tensor>>> {
        let rule = format!("transpose({})", self.equation.op.name());
        let outer = innermost(present(operands).iter().chain(cotangents.iter().flatten()))?;
        self.scope.derived(self.equation.location, rule, || {
            outer.enter(|| self.emit(operands, cotangents))
        })
    }

    fn emit(
        &self,
        operands: &[Operand],
        cotangents: &[Option<Tensor>],
    ) -> Result<Vec<Option<Tensor>>> {
        let (op, linear) = (self.op, self.linear);
        let step = &self.equation.regions[0];
        let types = step.types(&step.inputs);
        let slices = op.carries..operands.len() - op.captures;
        let linear_in =
            |range: std::ops::Range<usize>| range.filter(|i| linear[*i]).collect::<Vec<usize>>();
        let (in_carries, in_slices) = (linear_in(0..op.carries), linear_in(slices.clone()));
        let in_captures = linear_in(slices.end..operands.len());
        let known_carries: Vec<bool> = linear[..op.carries].iter().map(|l| !l).collect();
        let (body, lines) = reordered(step, linear);
        let (advance, used) = known_step(step, op.carries, &known_carries);
        let begin: Vec<Tensor> =
            kept(&operands[..op.carries], &known_carries).into_iter().flatten().collect();
        let stacked = cotangents[op.carries..].to_vec();
        let operands = operands.to_vec();
        let step = Step { body, lines, advance, used, operands, stacked, known_carries, slices };

        let slots = i32::try_from(op.checkpoints).unwrap_or(i32::MAX);
        let extent = |length: i64, ty: &TensorType| {
            let mut shape = ty.shape.clone();
            shape.insert(0, Dim::constant(length));
            Tensor::zeros(&ty.with_shape(shape))
        };
        let length = Tensor::dim_as_value(op.length.clone(), DType::I32);
        let total = match self.count {
            Some(count) => count.max(int(0)).min(&length),
            None => length,
        };
        let number = |position: &Tensor| {
            if op.reverse { &total - position - 1i32 } else { position.clone() }
        };

        // The state of the outer loop.
        let mut state = State {
            left: total.clone(),
            at: At {
                carries: begin.clone(),
                position: int(0),
                top: int(1),
                target: distance(&total.max(int(1)), &int(slots)),
                slots: begin
                    .iter()
                    .map(|c| put(&extent(slots.into(), c.ty()), &int(0), c))
                    .collect(),
                positions: extent(slots.into(), &TensorType::scalar(DType::I32)),
            },
            cotangents: vec![],
            sums: vec![],
            stacks: vec![],
        };
        for i in &in_carries {
            state.cotangents.push(or_zeros(cotangents[*i].as_ref(), &types[*i])?);
        }
        for i in &in_captures {
            state.sums.push(zeros(&types[*i])?);
        }
        for i in &in_slices {
            let mut shape = types[*i].shape.clone();
            shape.insert(0, op.length.clone());
            state.stacks.push(zeros(&types[*i].with_shape(shape))?);
        }

        let failed: RefCell<Option<Diagnostic>> = RefCell::new(None);
        let fail = |error: Diagnostic| *failed.borrow_mut() = Some(error);
        let end = while_checkpointed(
            op.checkpoints,
            &state.flat(),
            |s| s[0].gt(int(0)),
            |s| {
                let mut state = state.with(s);
                state.at = self.forward(&step, state.at, &state.left, slots, &number, &fail);
                match step.transpose(
                    &state.at.carries,
                    &number(&state.at.position),
                    &state.cotangents,
                ) {
                    Ok(made) => {
                        self.backward(state, &made, &in_carries, &in_slices, slots, &number).flat()
                    }
                    Err(error) => {
                        fail(error);
                        s.clone()
                    }
                }
            },
        );
        if let Some(error) =
            failed.into_inner().or_else(|| end.iter().find_map(|t| t.error().cloned()))
        {
            return Err(error);
        }
        let end = state.with(&end);
        let mut results: Vec<Option<Tensor>> = vec![None; linear.len()];
        for (indices, values) in
            [(&in_carries, end.cotangents), (&in_slices, end.stacks), (&in_captures, end.sums)]
        {
            indices.iter().zip(values).for_each(|(i, value)| results[*i] = Some(value));
        }
        Ok(results)
    }

    /// Runs forward to the last remaining step, and fills slots on the way.
    fn forward(
        &self,
        step: &Step,
        at: At,
        left: &Tensor,
        slots: i32,
        number: &dyn Fn(&Tensor) -> Tensor,
        fail: &dyn Fn(Diagnostic),
    ) -> At {
        let last = left - 1i32;
        let end = while_checkpointed(
            self.op.checkpoints,
            &at.flat(),
            |s| at.with(s).position.lt(&last),
            |s| {
                let mut at = at.with(s);
                match step.advance(&at.carries, &number(&at.position)) {
                    Ok(carries) => at.carries = carries,
                    Err(error) => fail(error),
                }
                at.position = &at.position + 1i32;
                let keeps = at.position.eq(&at.target).and(at.position.lt(&last));
                let slot = keeps.select(&at.top, &int(slots));
                for (slots, carry) in at.slots.iter_mut().zip(&at.carries) {
                    *slots = put(slots, &slot, carry);
                }
                at.positions = put(&at.positions, &slot, &at.position);
                at.top = &at.top + as_int(&keeps);
                at.target = cond(&keeps, || at.next_target(left, slots), || at.target.clone());
                at.flat()
            },
        );
        at.with(&end)
    }

    /// The state after the last remaining step has been transposed, with `made` as its
    /// cotangents. Continues at the next slot.
    fn backward(
        &self,
        mut state: State,
        made: &[Option<Tensor>],
        in_carries: &[usize],
        in_slices: &[usize],
        slots: i32,
        number: &dyn Fn(&Tensor) -> Tensor,
    ) -> State {
        let (of_carries, rest) = made.split_at(in_carries.len());
        let (of_slices, of_captures) = rest.split_at(in_slices.len());
        for (cotangent, made) in state.cotangents.iter_mut().zip(of_carries) {
            *cotangent = made.clone().unwrap_or_else(|| cotangent.zeros_like());
        }
        for (sum, share) in state.sums.iter_mut().zip(of_captures) {
            if let Some(share) = share {
                *sum = add(sum.clone(), share).unwrap_or_else(Tensor::poisoned);
            }
        }
        let position = state.at.position.clone();
        for (stack, part) in state.stacks.iter_mut().zip(of_slices) {
            if let Some(part) = part {
                *stack = put(stack, &number(&position), part);
            }
        }
        let at = &mut state.at;
        let top = |top: &Tensor| top - 1i32;
        let own = at.positions.dynamic_index_in_dim(&top(&at.top), 0).eq(&position);
        at.top = &at.top - as_int(&own);
        let slot = top(&at.top);
        at.carries = at.slots.iter().map(|slots| slots.dynamic_index_in_dim(&slot, 0)).collect();
        at.position = at.positions.dynamic_index_in_dim(&slot, 0);
        state.left = position;
        at.target = at.next_target(&state.left, slots);
        state
    }
}

/// State of the forward run.
struct At {
    /// The known carries before step `position`.
    carries: Vec<Tensor>,
    position: Tensor,
    /// The number of filled slots.
    top: Tensor,
    /// The step before which the next slot is to be filled.
    target: Tensor,
    /// Per known carry a stack of slots, and the steps before which they were filled.
    slots: Vec<Tensor>,
    positions: Tensor,
}

impl At {
    fn flat(&self) -> Vec<Tensor> {
        let numbers = [&self.position, &self.top, &self.target, &self.positions].map(Tensor::clone);
        numbers
            .into_iter()
            .chain(self.carries.iter().cloned())
            .chain(self.slots.iter().cloned())
            .collect()
    }

    fn with(&self, flat: &[Tensor]) -> At {
        let [position, top, target, positions, rest @ ..] = flat else {
            unreachable!("it has its length")
        };
        let (carries, slots) = rest.split_at(self.carries.len());
        At {
            carries: carries.to_vec(),
            position: position.clone(),
            top: top.clone(),
            target: target.clone(),
            slots: slots.to_vec(),
            positions: positions.clone(),
        }
    }

    /// The step before which the next slot is to be filled, if the current slot is the last one
    /// filled.
    fn next_target(&self, left: &Tensor, slots: i32) -> Tensor {
        let length = (left - &self.position).max(int(1));
        let free = (int(slots) - &self.top + 1i32).max(int(1));
        distance(&length, &free) + &self.position
    }
}

/// State of the transposed run.
struct State {
    /// The number of steps that remain to be transposed.
    left: Tensor,
    at: At,
    /// Cotangents of the linear carries.
    cotangents: Vec<Tensor>,
    /// Accumulated cotangents of the captures.
    sums: Vec<Tensor>,
    /// Stacked cotangents of the slices.
    stacks: Vec<Tensor>,
}

impl State {
    fn flat(&self) -> Vec<Tensor> {
        let mut all = vec![self.left.clone()];
        all.extend(self.at.flat());
        all.extend([&self.cotangents, &self.sums, &self.stacks].into_iter().flatten().cloned());
        all
    }

    fn with(&self, flat: &[Tensor]) -> State {
        let (left, rest) = flat.split_first().expect("it has its length");
        let (at, rest) = rest.split_at(4 + self.at.carries.len() + self.at.slots.len());
        let (cotangents, rest) = rest.split_at(self.cotangents.len());
        let (sums, stacks) = rest.split_at(self.sums.len());
        State {
            left: left.clone(),
            at: self.at.with(at),
            cotangents: cotangents.to_vec(),
            sums: sums.to_vec(),
            stacks: stacks.to_vec(),
        }
    }
}
