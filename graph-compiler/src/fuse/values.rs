//! The choice of realised values.
//!
//! A value that is not realised is recomputed by every kernel that needs an element of it. That
//! saves a round trip to memory and a kernel, and costs its instructions once per use. A realised
//! value costs next to nothing if its users are merged into its own kernel: then it stays in a
//! register. So in doubt, values with expensive instructions or many operands are realised:
//!
//! - values that must be in memory: outputs, operands of calls, tensors accessed at indices from
//!   data; reductions, scans, calls;
//! - values with an expensive instruction and several uses, or a use that repeats them along an
//!   axis, unless they are functions of one tensor (below). Uses of parts that together are no
//!   more than the whole count as one use: the uniform numbers from which normal numbers are made
//!   in pairs;
//! - operands of a reduction, if they can be computed beside a reduction that they depend on (a
//!   loss of each row, before its mean);
//! - values with several uses and so many operands that storing them moves fewer bytes than
//!   recomputing them;
//! - values that would make a kernel or an index expression too large. If an op reads too many
//!   values from memory, its operands are realised.
//!
//! Free ops (broadcasts, slices, …) are realised only for the first and the last reason. In place
//! of a half that is widened, the half is realised.
//!
//! The `tanh` within a GELU is a function of the layer's sums alone, and both the layer and its
//! derivative read these anyway. Storing the `tanh` would write and read one more tensor, and
//! keep it in memory between forward and backward pass. So a few elementwise instructions on one
//! tensor are recomputed. The standardized values of a norm are such a function, too: besides the
//! norm's operand they read a mean and a deviation for each row.

use crate::emit::{Emitter, Memory, Read};
use crate::view::{View, Work};
use std::collections::BTreeSet;
use wengert_core::Op;
use wengert_core::graph::ValueId;
use wengert_core::id::IdVec;
use wengert_core::nest::{Affine, Term};
use wengert_core::op::{Compute, Cost};

/// Maximum number of equations recomputed for one element.
const MAX_EQUATIONS: usize = 96;
/// Maximum number of values that an element is computed from. A kernel has a parameter for each.
const MAX_LEAVES: usize = 256;
/// Maximum number of uses for which a function of one tensor is recomputed.
const AGAIN: usize = 4;
/// Maximum number of equations of such a function, besides conversions.
const SHORT: usize = 16;
/// Minimum number of elements of such a tensor for each element of a statistic of its rows.
const STATISTIC: usize = 16;
/// Maximum number of chained ops whose index arithmetic divides.
const MAX_DIVISIONS: usize = 3;
/// Maximum number of chained ops that access their operands under guards.
const MAX_GUARDS: usize = 6;

/// For each value the realised value whose elements it has, if it is in memory.
pub(crate) fn realise(view: &View<'_>, fuse: bool) -> Memory {
    let required = required(view);
    let everywhere: Memory = view.body.values.ids().map(Some).collect();
    let uses = Uses::new(view, &required, &everywhere);
    let mut memory: Memory = view.body.values.ids().map(|_| None).collect();
    let mut closures: IdVec<ValueId, Closure> =
        view.body.values.ids().map(|_| Closure::default()).collect();
    for input in &view.body.inputs {
        memory[*input] = Some(*input);
        closures[*input] = Closure::leaf(*input);
    }
    for (n, equation) in view.body.equations.iter().enumerate() {
        for result in &equation.results {
            if let Some(base) = view.alias(*result).and_then(|operand| memory[operand]) {
                memory[*result] = Some(base);
                closures[*result] = Closure::leaf(base);
                continue;
            }
            let realised = match &view.work[n] {
                Work::Compute(Compute::Element { .. }) => {
                    let mut closure = Closure::of(view, &closures, &everywhere, n);
                    if closure.leaves.len() > MAX_LEAVES {
                        for operand in &view.operands[n] {
                            if memory[*operand].is_none() {
                                memory[*operand] = Some(*operand);
                                closures[*operand] = Closure::leaf(*operand);
                            }
                        }
                        closure = Closure::of(view, &closures, &everywhere, n);
                    }
                    let mut realised =
                        !fuse || required[*result] || is_worth_it(view, &uses, &closure, n);
                    if realised
                        && fuse
                        && !required[*result]
                        && let Some(half) = widened(view, n)
                    {
                        if memory[half].is_none() {
                            memory[half] = Some(half);
                            closures[half] = Closure::leaf(half);
                            closure = Closure::of(view, &closures, &everywhere, n);
                        }
                        realised = false;
                    }
                    closures[*result] = closure;
                    realised
                }
                Work::Literal(_) | Work::Compute(_) | Work::Call(_) | Work::Control => true,
                Work::Covered => false,
            };
            if realised {
                memory[*result] = Some(*result);
                closures[*result] = Closure::leaf(*result);
            }
        }
    }
    memory
}

/// The half that an equation only widens. It takes half the bytes, so it is realised in place of
/// the wider value.
fn widened(view: &View<'_>, equation: usize) -> Option<ValueId> {
    let equation = &view.body.equations[equation];
    let (Op::ConvertElementType(_), [half]) = (&equation.op, &equation.operands[..]) else {
        return None;
    };
    let is_wider = view.body.ty(equation.results[0]).dtype.is_float();
    (view.body.ty(*half).dtype.is_half() && is_wider).then_some(*half)
}

fn is_worth_it(view: &View<'_>, uses_of: &Uses, closure: &Closure, equation: usize) -> bool {
    let value = view.body.equations[equation].results[0];
    if closure.equations.len() > MAX_EQUATIONS
        || closure.divisions > MAX_DIVISIONS
        || closure.guards > MAX_GUARDS
    {
        return true;
    }
    if view.cost[equation] == Cost::Free {
        return false;
    }
    let (count, uses, points) = (view.count(value), uses_of.count[value], uses_of.points[value]);
    let repeated = points >= count.saturating_mul(2);
    let leaves = closure.leaves.len();
    let beside = |leaf: &ValueId| {
        let reduced = view.definitions[*leaf]
            .is_some_and(|n| matches!(view.work[n], Work::Compute(Compute::Reduce { .. })));
        reduced && view.count(*leaf) == count
    };
    if uses_of.reduced[value] && leaves >= 2 && closure.leaves.iter().any(beside) {
        return true;
    }
    if !repeated
        && !uses_of.reduced[value]
        && uses <= AGAIN
        && closure.is_of_one_tensor(view, count)
    {
        return false;
    }
    // Uses of several parts compute no element twice if together they read no more elements than
    // the value has.
    let shared = uses >= 2 && uses_of.total[value] > count;
    if closure.expensive && (shared || repeated) {
        return true;
    }
    if repeated && closure.equations.len() >= 4 {
        return true;
    }
    // Computing it for each of u uses reads u·l values; storing it reads l, writes one, and reads
    // it u times.
    shared && uses * leaves > leaves + 1 + uses
}

/// The equations and operands from which an element of a value is recomputed.
#[derive(Clone, Default)]
struct Closure {
    /// Equations, each once; counting stops above the limit.
    equations: BTreeSet<usize>,
    /// Values read from memory.
    leaves: BTreeSet<ValueId>,
    expensive: bool,
    divisions: usize,
    guards: usize,
}

impl Closure {
    /// Whether it is a short function of the elements of one tensor of `count` elements. If it is
    /// cheap, statistics of the tensor's rows may be among its operands.
    fn is_of_one_tensor(&self, view: &View<'_>, count: usize) -> bool {
        let tensors = self.leaves.iter().filter(|leaf| view.count(**leaf) == count).count();
        let is_statistic = |count_of_leaf: usize| {
            count_of_leaf == 1
                || (!self.expensive && count_of_leaf.saturating_mul(STATISTIC) <= count)
        };
        tensors == 1
            && self.leaves.iter().all(|leaf| match view.count(*leaf) {
                of_leaf if of_leaf == count => true,
                of_leaf => is_statistic(of_leaf),
            })
            && self.equations.iter().filter(|n| !is_conversion(view, **n)).count() <= SHORT
            && self.divisions == 0
            && self.guards == 0
    }

    fn leaf(value: ValueId) -> Closure {
        Closure { leaves: [value].into(), ..Closure::default() }
    }

    fn of(
        view: &View<'_>,
        closures: &IdVec<ValueId, Closure>,
        everywhere: &Memory,
        equation: usize,
    ) -> Closure {
        let mut closure = Closure { equations: [equation].into(), ..Closure::default() };
        let operands = &view.operands[equation];
        for part in operands.iter().map(|v| &closures[*v]) {
            if closure.equations.len() <= MAX_EQUATIONS {
                closure.equations.extend(&part.equations);
            }
            closure.leaves.extend(&part.leaves);
            closure.expensive |= part.expensive;
            closure.divisions = closure.divisions.max(part.divisions);
            closure.guards = closure.guards.max(part.guards);
        }
        closure.expensive |= view.cost[equation] >= Cost::Expensive;
        if !view.elementwise[equation] && !operands.is_empty() {
            let (divisions, guards) = complexity(view, everywhere, equation);
            closure.divisions += usize::from(divisions);
            closure.guards += usize::from(guards);
        }
        closure
    }
}

fn is_conversion(view: &View<'_>, equation: usize) -> bool {
    matches!(view.body.equations[equation].op, Op::ConvertElementType(_))
}

/// The reads by which an equation computes an element from its operands.
fn reads_of(view: &View<'_>, everywhere: &Memory, equation: usize) -> Vec<Read> {
    let mut emitter = Emitter::new(view, everywhere, "probe");
    let extents = &view.extents[view.body.equations[equation].results[0]];
    let index: Vec<Affine> =
        extents.iter().map(|e| Affine::axis(emitter.builder.parallel("i", *e))).collect();
    emitter.phase(&[]);
    emitter.rule(equation, &index);
    emitter.reads
}

/// Whether an equation accesses its operands by divisions, and whether it does so under guards.
fn complexity(view: &View<'_>, everywhere: &Memory, equation: usize) -> (bool, bool) {
    let divides =
        |e: &Affine| e.terms.iter().any(|(t, _)| matches!(t, Term::FloorDiv(..) | Term::Mod(..)));
    let reads = reads_of(view, everywhere, equation);
    let divisions = reads.iter().any(|r| r.index.iter().any(divides));
    (divisions, reads.iter().any(|r| r.guarded))
}

/// The most elements of one operand from which an element of the result is computed: those of the
/// window of a pool.
fn reads(view: &View<'_>, everywhere: &Memory, equation: usize) -> usize {
    let reads = reads_of(view, everywhere, equation);
    let of = |value: &ValueId| reads.iter().filter(|read| read.value == *value).count();
    view.operands[equation].iter().map(of).max().unwrap_or(1).max(1)
}

/// The uses of values, seen through free ops.
struct Uses {
    /// The number of equations that use it and are not free; saturates at a few.
    count: IdVec<ValueId, usize>,
    /// The maximum number of points at which one of them reads an element.
    points: IdVec<ValueId, usize>,
    /// The points of all of them together.
    total: IdVec<ValueId, usize>,
    /// Whether one of them is a reduction.
    reduced: IdVec<ValueId, bool>,
}

impl Uses {
    fn new(view: &View<'_>, required: &IdVec<ValueId, bool>, everywhere: &Memory) -> Uses {
        let mut count: IdVec<ValueId, usize> = view.body.values.ids().map(|_| 0).collect();
        let mut points: IdVec<ValueId, usize> = view.body.values.ids().map(|_| 0).collect();
        let mut total: IdVec<ValueId, usize> = view.body.values.ids().map(|_| 0).collect();
        let mut reduced: IdVec<ValueId, bool> = view.body.values.ids().map(|_| false).collect();
        for (n, equation) in view.body.equations.iter().enumerate().rev() {
            let Some(result) = equation.results.first().copied() else { continue };
            let reduces = matches!(view.work[n], Work::Compute(Compute::Reduce { .. }));
            let seen_through = view.cost[n] == Cost::Free && !required[result];
            let once = |points: usize| (1, points, points);
            let (uses, asked, in_all) = match &view.work[n] {
                _ if seen_through => (count[result], points[result], total[result]),
                Work::Compute(Compute::Reduce { extents, .. }) => once(extents.iter().product()),
                Work::Compute(Compute::Element { .. }) if !view.elementwise[n] => {
                    once(view.count(result).saturating_mul(reads(view, everywhere, n)))
                }
                _ => once(view.count(result)),
            };
            let distinct: BTreeSet<ValueId> = match view.work[n] {
                Work::Covered => continue,
                _ => view.operands[n].iter().copied().collect(),
            };
            // An op that puts its operands side by side reads each of their elements once.
            let elements: usize = distinct.iter().map(|v| view.count(*v)).sum();
            let beside =
                view.cost[n] == Cost::Free && distinct.len() > 1 && elements == view.count(result);
            for operand in distinct {
                let part = |points: usize| match beside {
                    true => points.div_ceil(elements.max(1)).saturating_mul(view.count(operand)),
                    false => points,
                };
                count[operand] = (count[operand] + uses).min(16);
                points[operand] = points[operand].max(part(asked));
                total[operand] = total[operand].saturating_add(part(in_all));
                reduced[operand] |= if seen_through { reduced[result] } else { reduces };
            }
        }
        Uses { count, points, total, reduced }
    }
}

/// The values that must be in memory: outputs, operands of calls, and tensors accessed at indices
/// from data. If a reshape must be in memory, so must its operand.
fn required(view: &View<'_>) -> IdVec<ValueId, bool> {
    let mut required: IdVec<ValueId, bool> = view.body.values.ids().map(|_| false).collect();
    view.body.outputs.iter().for_each(|v| required[*v] = true);
    for (n, equation) in view.body.equations.iter().enumerate().rev() {
        match &view.work[n] {
            Work::Call(_) | Work::Control => {
                view.operands[n].iter().for_each(|v| required[*v] = true)
            }
            Work::Compute(Compute::Element { indirect, .. }) => {
                indirect.iter().for_each(|k| required[equation.operands[*k]] = true);
            }
            _ => {}
        }
        for result in &equation.results {
            if required[*result]
                && let Some(operand) = view.alias(*result)
            {
                required[operand] = true;
            }
        }
    }
    required
}
