//! The equations of a bucket.

use super::super::movement::shape;
use super::super::push;
use wengert_core::graph::{Body, Equation, ValueId};
use wengert_core::op::collective::{AllGather, PsumScatter};
use wengert_core::op::{Concatenate, Permute, Reshape, Slice};
use wengert_core::{LocationId, Op};

/// A member's operand or result with parts for the ranks: `[outer, parts, inner]`.
struct Parts {
    outer: usize,
    parts: usize,
    inner: usize,
}

/// Appends the joined collective of these equations, which defines their results.
pub(super) fn join(body: &mut Body, op: &Op, members: &[Equation]) {
    let last = members.last().expect("a bucket has members").location;
    let operands: Vec<ValueId> = members.iter().map(|member| before(body, member)).collect();
    let along = body.ty(operands[0]).rank() - 1;
    let all = push(body, Concatenate { axis: along }, &operands, last);
    let all = push(body, op.clone(), &[all], last);
    let mut start = 0;
    for (member, operand) in members.iter().zip(&operands) {
        let count = *extents(body, *operand).last().expect("it has an axis");
        after(body, member, all, start..start + count);
        start += count;
    }
}

/// A member's operand in the form of the bucket.
fn before(body: &mut Body, member: &Equation) -> ValueId {
    let (operand, location) = (member.operands[0], member.location);
    let found = extents(body, operand);
    match &member.op {
        Op::PsumScatter(op) => {
            let parts = scattered(op, &found);
            let inner = parts.outer * parts.inner;
            let moved = parts.first(body, operand, location);
            reshape(body, moved, &[parts.parts, inner], location)
        }
        _ => reshape(body, operand, &[found.iter().product()], location),
    }
}

/// Defines a member's result by its elements in that of the bucket.
fn after(body: &mut Body, member: &Equation, all: ValueId, range: std::ops::Range<usize>) {
    let (result, location) = (member.results[0], member.location);
    let whole = extents(body, all);
    let (mut from, mut to) = (vec![0; whole.len()], whole);
    let along = from.len() - 1;
    (from[along], to[along]) = (range.start, range.end);
    let slice = Slice { start: shape(&from), limit: shape(&to), stride: vec![] };
    let mut value = push(body, slice, &[all], location);
    if let Op::AllGather(op) = &member.op {
        let operand = extents(body, member.operands[0]);
        value = gathered(op, &operand).behind(body, value, location);
    }
    let wanted = extents(body, result);
    value = reshape(body, value, &wanted, location);
    assert_eq!(body.ty(value), body.ty(result), "a bucket keeps the types of its members");
    let made = body.equations.last_mut().expect("a slice at least was made");
    made.results = vec![result];
}

/// The operand of a `psum_scatter` with these extents.
fn scattered(op: &PsumScatter, operand: &[usize]) -> Parts {
    let (outer, rest) = operand.split_at(op.axis);
    let inner = rest.iter().product::<usize>() / op.size;
    Parts { outer: outer.iter().product(), parts: op.size, inner }
}

/// The result of an `all_gather` of an operand with these extents.
fn gathered(op: &AllGather, operand: &[usize]) -> Parts {
    let (outer, inner) = operand.split_at(op.axis);
    Parts { outer: outer.iter().product(), parts: op.size, inner: inner.iter().product() }
}

impl Parts {
    /// `[outer, parts, inner]` as `[parts, outer, inner]`.
    fn first(&self, body: &mut Body, value: ValueId, location: LocationId) -> ValueId {
        self.exchanged(body, value, [self.outer, self.parts, self.inner], location)
    }

    /// `[parts, outer, inner]` as `[outer, parts, inner]`.
    fn behind(&self, body: &mut Body, value: ValueId, location: LocationId) -> ValueId {
        self.exchanged(body, value, [self.parts, self.outer, self.inner], location)
    }

    /// Exchanges the first two axes of a value, in this form.
    fn exchanged(
        &self,
        body: &mut Body,
        value: ValueId,
        form: [usize; 3],
        location: LocationId,
    ) -> ValueId {
        if self.outer == 1 {
            return value;
        }
        let value = reshape(body, value, &form, location);
        push(body, Permute { permutation: vec![1, 0, 2] }, &[value], location)
    }
}

fn extents(body: &Body, value: ValueId) -> Vec<usize> {
    body.ty(value).extents().expect("functions are bound before their collectives are joined")
}

fn reshape(body: &mut Body, value: ValueId, to: &[usize], location: LocationId) -> ValueId {
    match extents(body, value) == to {
        true => value,
        false => push(body, Reshape { shape: shape(to) }, &[value], location),
    }
}
