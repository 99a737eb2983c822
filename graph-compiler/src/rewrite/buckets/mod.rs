//! Buckets: small collectives of one kind as one.
//!
//! A training step has a collective for each gradient, and most gradients are small: biases, and
//! scales of norms. Each collective costs a start, messages to every rank and a wait, whatever its
//! size. So small collectives are joined: their operands are concatenated, exchanged by one
//! collective, and its result is sliced. Fusion reads the slices where they are used.
//!
//! # Bits
//!
//! Every collective moves elements, or combines those at one index in a tree over the ranks that
//! does not depend on the index. So the bits are those of the single collectives.
//!
//! # Form
//!
//! | op | operands | joined | result of each |
//! |---|---|---|---|
//! | `psum`, `pmax`, `pmin` | `[n]` | `[Σ n]` | a slice |
//! | `psum_scatter` | `[ranks, n]` | `[ranks, Σ n]` | a slice of the rank's `[Σ n]` |
//! | `all_gather` | `[n]` | `[Σ n]` | a slice `[ranks, n]` of `[ranks, Σ n]` |
//!
//! Operands are reshaped to this form, and results back. Where the axis of the parts is not the
//! first one, elements are permuted. `all_to_all` and `ppermute` are not joined: training steps
//! have no small ones.
//!
//! # Which collectives
//!
//! [`choose`] has the rule. It depends on the body alone, so all ranks join alike. Collectives of
//! a loop or branch are joined with others of the same region only.
//!
//! # Order
//!
//! The equations of a bucket stand where its last member stood. What depends on an earlier member
//! moves behind them.

mod choose;
mod join;
#[cfg(test)]
mod tests;

use super::{of_regions, with_fuel};
use choose::{Bucket, choose};
use join::join;
use std::collections::BTreeMap;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;

/// Joins small collectives of functions on several ranks; at most `fuel` buckets.
pub(crate) fn buckets(function: Function, fuel: u64) -> (Function, u64) {
    if function.mesh.is_empty() {
        return (function, 0);
    }
    with_fuel(function, fuel, of_body)
}

fn of_body(body: &mut Body, left: &mut u64) {
    let mut equations = std::mem::take(&mut body.equations);
    for equation in equations.iter_mut().filter(|equation| equation.op.control().is_some()) {
        of_regions(equation, left, &of_body);
    }
    let mut chosen = choose(body, &equations);
    chosen.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
    *left -= chosen.len() as u64;
    if chosen.is_empty() {
        body.equations = equations;
        return;
    }
    Order::new(body, &chosen).run(equations);
}

/// The equations of a body in their new order.
struct Order<'a> {
    body: &'a mut Body,
    /// The bucket of each member, by the number of its equation.
    buckets: BTreeMap<usize, &'a Bucket>,
    /// Members that have been reached.
    reached: BTreeMap<usize, Equation>,
    /// Whether a value is a result of a member that has been reached, or depends on one, and its
    /// equation is not in the new order yet.
    waits: IdVec<ValueId, bool>,
    /// Equations that read such values, in their order.
    deferred: Vec<Equation>,
}

impl<'a> Order<'a> {
    fn new(body: &'a mut Body, chosen: &'a [Bucket]) -> Order<'a> {
        let members = |bucket: &'a Bucket| bucket.members.iter().map(move |n| (*n, bucket));
        let waits = body.values.ids().map(|_| false).collect();
        let buckets = chosen.iter().flat_map(members).collect();
        Order { body, buckets, reached: BTreeMap::new(), waits, deferred: Vec::new() }
    }

    fn run(mut self, equations: Vec<Equation>) {
        for (number, equation) in equations.into_iter().enumerate() {
            let Some(bucket) = self.buckets.get(&number).copied() else {
                self.add(equation);
                continue;
            };
            equation.results.iter().for_each(|v| self.waits[*v] = true);
            self.reached.insert(number, equation);
            if bucket.members.last() == Some(&number) {
                let taken = bucket.members.iter().map(|n| self.reached.remove(n));
                let members = taken.map(|member| member.expect("it was reached before the last"));
                let members: Vec<Equation> = members.collect();
                self.join(bucket, &members);
            }
        }
        assert!(self.deferred.is_empty(), "buckets: what depends on a bucket follows it");
    }

    /// Adds an equation, or defers it behind the bucket that it depends on.
    fn add(&mut self, equation: Equation) {
        if equation.operands.iter().any(|v| self.waits[*v]) {
            equation.results.iter().for_each(|v| self.waits[*v] = true);
            self.deferred.push(equation);
            return;
        }
        equation.results.iter().for_each(|v| self.waits[*v] = false);
        self.body.equations.push(equation);
    }

    /// Adds the equations of a bucket, and those that waited for it.
    fn join(&mut self, bucket: &Bucket, members: &[Equation]) {
        // A member depends on buckets whose members all precede it (`choose`).
        let exists = |v: &ValueId| !self.waits[*v];
        assert!(
            members.iter().flat_map(|member| &member.operands).all(exists),
            "buckets: no bucket depends on itself"
        );
        join(self.body, &bucket.op, members);
        // Values that were made here wait for nothing.
        while self.waits.len() < self.body.values.len() {
            self.waits.push(false);
        }
        members.iter().flat_map(|member| &member.results).for_each(|v| self.waits[*v] = false);
        for equation in std::mem::take(&mut self.deferred) {
            self.add(equation);
        }
    }
}
