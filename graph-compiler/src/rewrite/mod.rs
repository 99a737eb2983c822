//! Rewriting graphs: the same bits with less work.
//!
//! A **rule** is data: a name, a description, a function that tries it at an equation, and
//! examples in the graph language. Rules are grouped by topic, one file each, and the driver
//! tries them in order. `docs/passes.md` is made from them. One test evaluates both sides of
//! every example on random and special values, bit by bit.
//!
//! # What a rule may do
//!
//! - It changes no bit of any result, except those of NaNs (in which machines differ). `x + 0.0`
//!   is not `x`, since −0.0 + 0.0 is 0.0; `x + −0.0` is. `x · 0` is 0 for integers only. Sums are
//!   never reassociated.
//! - It makes the graph smaller or cheaper, or brings it into the form that other rules and
//!   fusion expect. No two rules undo each other, so rewriting terminates.
//! - It looks at its equation and at the definitions of operands, and emits equations through the
//!   `Rewriter`, which infers their types.
//!
//! Normal forms: a value of equal elements is a scalar `constant` or the `broadcast_in_dim` of
//! one; a reshape, permute, or broadcast follows no other of its kind; an elementwise op on
//! broadcasts is the broadcast of the op.

//!
//! # The fixpoint
//!
//! `simplify`, `cse`, `dce`, `trim` and `hoist` run in turn until none of them changes anything.
//! No count ends this. A round that leads back to an earlier body ([`Seen`]) is a mistake of a
//! rule or a pass: it ends the fixpoint too, and a debug build panics. The sequence is finite:
//!
//! 1. `hoist` moves an equation that is not free to a region of lesser depth. No other pass
//!    increases the depth of such an equation: `trim` puts only free equations and numbers into
//!    regions. So the sum of the depths is the first component of the measure, together with the
//!    rules of `simplify`, which replace an equation by cheaper ones of the same depth and do not
//!    undo each other.
//! 2. `trim` removes a construct, a carry, or the use of a capture that is a number or a
//!    repetition of a smaller value. `hoist` adds captures only when it lowers the first
//!    component.
//! 3. `cse` and `dce` remove equations, operands and results, or uses of them.
//!
//! Each pass finishes its own work in one walk, however deep constructs nest and however many
//! follow each other: `cse` and `simplify` walk forward, `dce` walks backward, `trim` goes into
//! regions and comes out of them, `hoist` goes from the inside out. So the number of rounds is
//! the number of times that passes enable each other, not the number of equations. The limit of
//! this: where two passes must alternate at each link of a chain, such as branches whose
//! selectors are computed by the branches before them, each link takes a round.

mod accumulate;
mod arithmetic;
mod buckets;
mod channels;
mod control;
mod convert;
mod cse;
mod dce;
mod driver;
mod fold;
mod lay_out_float8;
mod logic;
mod masks;
mod movement;
mod product;
mod recompute;
mod reduction;
mod round_chains;
mod round_once;
mod split;
mod tidy;
mod wide;
mod window;

pub(crate) use accumulate::accumulate;
pub(crate) use buckets::buckets;
pub(crate) use control::{hoist, lay_out, steps, trim, trim_but, unstack};
pub(crate) use cse::{cse, cse_but};
pub(crate) use dce::{dce, dce_but};
pub(crate) use driver::{Rewriter, simplify};
pub(crate) use lay_out_float8::lay_out_float8;
pub(crate) use masks::masks;
pub(crate) use recompute::recompute;
pub(crate) use round_chains::round_chains;
pub(crate) use round_once::round_once;
pub(crate) use split::split_reductions;
pub use tidy::tidy;
pub(crate) use wide::narrow;

use rustc_hash::{FxHashSet, FxHasher};
use std::hash::{Hash, Hasher};
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::op::{BroadcastInDim, Constant};
use wengert_core::{Literal, LocationId, Op};

/// Hashes of the bodies with which rounds of passes have begun.
#[derive(Default)]
pub(crate) struct Seen(FxHashSet<u64>);

impl Seen {
    /// Whether no round has begun with this body.
    pub fn is_new(&mut self, body: &Body) -> bool {
        let mut hasher = FxHasher::default();
        body.hash(&mut hasher);
        self.0.insert(hasher.finish())
    }
}

/// A named rewrite.
pub struct Rule {
    /// Unique name.
    pub name: &'static str,
    /// The pattern and its replacement.
    pub doc: &'static str,
    /// Functions in the graph language to which it applies: a line of inputs, if there are any, and
    /// equations, the last of which gives the result.
    pub examples: &'static [&'static str],
    /// The value that replaces the equation's only result, if the rule applies.
    pub(crate) apply: fn(&mut Rewriter<'_>, &Equation) -> Option<ValueId>,
}

/// Changes a function's body with the given fuel. Returns the function and the fuel spent.
fn with_fuel(
    mut function: Function,
    fuel: u64,
    change: impl FnOnce(&mut Body, &mut u64),
) -> (Function, u64) {
    let mut left = fuel;
    change(&mut function.body, &mut left);
    // An unchanged function is numbered already.
    let function = if left == fuel { function } else { function.renumber() };
    (function, fuel - left)
}

/// Changes each region of an equation, and numbers those in which fuel was spent.
fn of_regions(equation: &mut Equation, left: &mut u64, change: &dyn Fn(&mut Body, &mut u64)) {
    for region in &mut equation.regions {
        let (mut body, before) = (std::mem::take(region).into_body(), *left);
        change(&mut body, left);
        *region = if *left == before { body } else { body.renumber() }.into();
    }
}

/// Takes a unit of fuel, if any is left.
fn spend(left: &mut u64) -> bool {
    let some = *left > 0;
    *left -= u64::from(some);
    some
}

/// Appends a number, repeated in the shape of a value.
fn repeated(body: &mut Body, number: Literal, like: ValueId, location: LocationId) -> ValueId {
    let shape = body.ty(like).shape.to_vec();
    let scalar = push(body, Constant { value: number }, &[], location);
    match shape.is_empty() {
        true => scalar,
        false => push(body, BroadcastInDim { dims: vec![], shape }, &[scalar], location),
    }
}

/// Appends an equation of one result.
pub(crate) fn push(
    body: &mut Body,
    op: impl Into<Op>,
    operands: &[ValueId],
    location: LocationId,
) -> ValueId {
    let op = op.into();
    let ty = op.infer(&body.types(operands), &[]).expect("operands are made for the op").remove(0);
    let result = body.values.push(ty);
    let (operands, results) = (operands.to_vec(), vec![result]);
    body.equations.push(Equation { op, operands, results, regions: vec![], location });
    result
}

/// An equation as a term: its op and operands, as [`Rewriter::definition`] gives those of a value.
fn term(equation: &Equation) -> (&Op, &[ValueId]) {
    (&equation.op, &equation.operands)
}

/// Rules for one subject.
pub struct Topic {
    /// The subject.
    pub name: &'static str,
    /// The rules, in the order in which they are tried.
    pub rules: &'static [Rule],
}

/// All rules, topic by topic, in the order in which they are tried.
pub const TOPICS: &[Topic] = &[
    Topic { name: "constants", rules: fold::RULES },
    Topic { name: "arithmetic", rules: arithmetic::RULES },
    Topic { name: "logic and choice", rules: logic::RULES },
    Topic { name: "conversions", rules: convert::RULES },
    Topic { name: "movement", rules: movement::RULES },
    Topic { name: "windows", rules: window::RULES },
    Topic { name: "channels", rules: channels::RULES },
    Topic { name: "reductions", rules: reduction::RULES },
    Topic { name: "products", rules: product::RULES },
];

/// Applies one rule alone, wherever it matches, in one walk over the function. Returns the
/// function and the number of applications. Other rules may be needed to bring the function into
/// the form that the rule expects.
pub fn apply(rule: &Rule, mut function: Function) -> (Function, u64) {
    let (body, applied) = Rewriter::run(function.body, &[rule], u64::MAX);
    function.body = body;
    (function, applied)
}

/// All rules in the order in which they are tried.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    TOPICS.iter().flat_map(|t| t.rules)
}
