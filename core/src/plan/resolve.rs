//! Resolved plans: the form in which every device executes a plan.
//!
//! [`resolve`] visits the steps of a verified plan once, when the plan is prepared. Loops,
//! branches and copies become [`Action`]s with resolved [`Place`]s. For each other step it asks
//! the device ([`Prepare`]) for the kernels that execute it. [`super::walk`] then executes the
//! actions, for all devices alike.
//!
//! Every place says how its step accesses it, and has the label of its value. A value that a loop
//! or branch passes on without a step of its own keeps its label. A device that records writes
//! (the emulator) checks each read against the label.

use super::labels::labels;
use super::work::STEP;
use super::{Address, Argument, LoopId, Plan, Space, Step, ValueId, Work};
use crate::diagnostic::Result;
use crate::dtype::DType;
use crate::id::{Id, IdVec};
use crate::nest::BufferRole;
use crate::verified::Verified;

/// How a step accesses memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// It reads only.
    Read,
    /// It writes every byte, and reads none before it has written it.
    Write,
    /// It reads and writes.
    ReadWrite,
}

/// The memory of a step's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The memory space.
    pub space: Space,
    /// Bytes from the beginning of the space, when all counters are 0.
    pub offset: u64,
    /// For each loop whose counter moves the place: its number, and bytes for each count.
    pub strides: Vec<(usize, u64)>,
    /// Size in bytes.
    pub bytes: u64,
    /// How the step accesses it.
    pub access: Access,
    /// Label of the value in it. None for values from before the plan began, and for workspace.
    pub label: Option<u32>,
}

impl Place {
    /// True if the step writes it.
    pub fn is_written(&self) -> bool {
        self.access != Access::Read
    }

    /// True if both are the same bytes.
    pub fn is_same(&self, other: &Place) -> bool {
        (self.space, self.offset, self.bytes) == (other.space, other.offset, other.bytes)
            && self.strides == other.strides
    }

    /// True if the two may share bytes.
    pub fn may_overlap(&self, other: &Place) -> bool {
        let some = self.space == other.space && self.bytes > 0 && other.bytes > 0;
        let end = |place: &Place| place.offset.saturating_add(place.bytes);
        let within = self.offset < end(other) && other.offset < end(self);
        // With different strides it may be anywhere.
        some && (within || self.strides != other.strides)
    }
}

/// The operands and results of a step that are the same bytes: pairs of their numbers.
pub fn in_place(arguments: &[Place]) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    for (n, result) in arguments.iter().enumerate().filter(|(_, a)| a.is_written()) {
        // A value without bytes overlaps nothing, whatever its address.
        let shares = |m: &usize| {
            let operand = &arguments[*m];
            !operand.is_written() && result.bytes > 0 && operand.is_same(result)
        };
        pairs.extend((0..arguments.len()).filter(shares).map(|operand| (operand, n)));
    }
    pairs
}

/// A plan with resolved places and a device's kernels.
#[derive(Clone, Debug)]
pub struct ResolvedPlan<K> {
    /// The actions, in order.
    pub(super) actions: Vec<Action<K>>,
    /// A lower bound of the operations of a run, whatever the data.
    pub(super) least: u64,
    /// Number of loops.
    pub(super) loops: usize,
}

/// Part of a step, or a whole step.
#[derive(Clone, Debug)]
pub(super) struct Action<K> {
    /// Number of the plan's step, in the order of the text.
    pub step: usize,
    /// Operations of the step without those of nested actions. If several actions execute a step,
    /// the first counts for all.
    pub work: u64,
    pub kind: ActionKind<K>,
}

#[derive(Clone, Debug)]
pub(super) enum ActionKind<K> {
    Kernel(K),
    Copy {
        from: Place,
        to: Place,
    },
    Loop {
        /// Number of its counter.
        counter: usize,
        trip: Trip,
        /// Whether it counts down.
        reverse: bool,
        /// A lower bound of the operations of an iteration.
        least: u64,
        body: Vec<Action<K>>,
    },
    /// Executes the arm whose number is the selector, clamped.
    Branch {
        selector: Place,
        arms: Vec<Vec<Action<K>>>,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Trip {
    Constant(u64),
    Value { count: Place, limit: u64 },
    While { condition: Place, limit: u64 },
}

/// A kernel of a plan's step, or of several neighbouring ones.
#[derive(Clone, Debug)]
pub struct Scheduled<K> {
    /// Number of the plan's step, for messages.
    pub step: usize,
    /// Operations that count for it.
    pub work: u64,
    /// The kernel.
    pub kernel: K,
}

/// A device's part of [`resolve`].
pub trait Prepare<'p> {
    /// A prepared nest or call, or a part of one.
    type Kernel;

    /// Appends the kernels that execute the first of `steps`, and returns the number of steps that
    /// they execute: more than 1 if they execute nests that follow it too. The first step is a
    /// nest, a call, a start or a wait.
    fn prepare(
        &mut self,
        resolver: &Resolver<'p>,
        steps: &'p [Step],
        kernels: &mut Vec<Self::Kernel>,
    ) -> Result<usize>;
}

/// Resolves a plan for a device.
///
/// Errors: those of the device.
pub fn resolve<'p, P: Prepare<'p>>(
    plan: &'p Verified<Plan>,
    device: &mut P,
) -> Result<ResolvedPlan<P::Kernel>> {
    Resolver::new(plan).resolve(device)
}

/// Resolves the addresses of steps.
#[derive(Debug)]
pub struct Resolver<'p> {
    plan: &'p Plan,
    work: Work,
    labels: IdVec<ValueId, Option<u32>>,
}

impl<'p> Resolver<'p> {
    /// A resolver of a plan that the verifier has accepted.
    pub(super) fn new(plan: &'p Plan) -> Self {
        Resolver { plan, work: Work::of(plan), labels: labels(plan) }
    }

    pub(super) fn resolve<P: Prepare<'p>>(self, device: &mut P) -> Result<ResolvedPlan<P::Kernel>> {
        let mut steps = Steps { resolver: &self, device, number: 0, loops: 0 };
        let actions = steps.block(&self.plan.steps)?;
        Ok(ResolvedPlan { least: least(&actions), loops: steps.loops, actions })
    }

    /// The arguments of a nest, a call or a transfer: which memory, and whether it is read or
    /// written.
    pub fn arguments(&self, step: &Step) -> Vec<Place> {
        let access = |written: bool| if written { Access::Write } else { Access::Read };
        match step {
            Step::Nest { nest, arguments } => {
                let roles = self.plan.nests[*nest].parameters().map(|(_, b)| b.role);
                let arguments = arguments.iter().zip(roles);
                arguments
                    .map(|(a, role)| self.argument(a, access(role != BufferRole::In)))
                    .collect()
            }
            Step::Call { call, arguments, .. } => {
                let operands = call.operands().len();
                let arguments = arguments.iter().enumerate();
                arguments.map(|(n, a)| self.argument(a, access(n >= operands))).collect()
            }
            Step::Start { transfer, .. } | Step::Wait(transfer) => vec![
                self.argument(&transfer.operand, Access::Read),
                self.argument(&transfer.result, Access::Write),
            ],
            _ => Vec::new(),
        }
    }

    /// The workspace of a call.
    pub fn workspace(&self, step: &Step) -> Option<Place> {
        let Step::Call { workspace: Some((at, bytes)), .. } = step else { return None };
        Some(self.place(at, *bytes, Access::ReadWrite, None))
    }

    fn argument(&self, argument: &Argument, access: Access) -> Place {
        self.value(argument.value, &argument.at, access)
    }

    fn value(&self, value: ValueId, at: &Address, access: Access) -> Place {
        self.place(at, self.plan.values[value].bytes(), access, self.labels[value])
    }

    fn place(&self, at: &Address, bytes: u64, access: Access, label: Option<u32>) -> Place {
        let stride = |(l, stride): &(LoopId, u64)| (l.index(), *stride);
        let strides = at.strides.iter().map(stride).collect();
        Place { space: at.space, offset: at.offset, strides, bytes, access, label }
    }

    /// Operations of a step without those of nested steps.
    fn work(&self, step: &Step) -> u64 {
        match step {
            Step::Nest { nest, .. } => self.work.nest(*nest),
            Step::Call { call, .. } => Work::call(call),
            Step::Start { call, .. } => Work::call(&call.clone().into()),
            Step::Copy { value, .. } => Work::copy(&self.plan.values[*value]),
            Step::Wait(_) | Step::Loop(_) | Step::If { .. } | Step::Switch { .. } => STEP,
        }
    }
}

/// The visit of the steps.
struct Steps<'r, 'p, P> {
    resolver: &'r Resolver<'p>,
    device: &'r mut P,
    /// Number of the next step.
    number: usize,
    loops: usize,
}

impl<'p, P: Prepare<'p>> Steps<'_, 'p, P> {
    fn block(&mut self, steps: &'p [Step]) -> Result<Vec<Action<P::Kernel>>> {
        let mut actions = Vec::with_capacity(steps.len());
        let mut kernels = Vec::new();
        let mut rest = steps;
        while let Some(step) = rest.first() {
            let number = self.number;
            let count = match step {
                Step::Nest { .. } | Step::Call { .. } | Step::Start { .. } | Step::Wait(_) => {
                    self.device.prepare(self.resolver, rest, &mut kernels)?
                }
                _ => 1,
            };
            let (done, after) = rest.split_at(count);
            self.number += count;
            let work = done.iter().map(|s| self.resolver.work(s)).fold(0, u64::saturating_add);
            if let Some(kind) = self.control(step)? {
                actions.push(Action { step: number, work, kind });
            }
            for (n, kernel) in kernels.drain(..).enumerate() {
                let work = if n == 0 { work } else { 0 };
                actions.push(Action { step: number, work, kind: ActionKind::Kernel(kernel) });
            }
            rest = after;
        }
        Ok(actions)
    }

    /// The action of a step for which the device prepares no kernel.
    fn control(&mut self, step: &'p Step) -> Result<Option<ActionKind<P::Kernel>>> {
        let resolver = self.resolver;
        let read = |argument: &Argument| resolver.argument(argument, Access::Read);
        Ok(Some(match step {
            Step::Nest { .. } | Step::Call { .. } | Step::Start { .. } | Step::Wait(_) => {
                return Ok(None);
            }
            Step::Copy { value, from, to } => ActionKind::Copy {
                from: resolver.value(*value, from, Access::Read),
                to: resolver.value(*value, to, Access::Write),
            },
            Step::Loop(l) => {
                let counter = l.id.index();
                self.loops = self.loops.max(counter + 1);
                let trip = match &l.trip {
                    super::Trip::Constant(count) => Trip::Constant(*count),
                    super::Trip::Value { count, limit } => {
                        Trip::Value { count: read(count), limit: *limit }
                    }
                    super::Trip::While { before, limit, .. } => {
                        Trip::While { condition: read(before), limit: *limit }
                    }
                };
                let body = self.block(&l.body)?;
                ActionKind::Loop { counter, trip, reverse: l.reverse, least: least(&body), body }
            }
            Step::If { predicate, then, otherwise, .. } => {
                debug_assert_eq!(resolver.plan.values[predicate.value].dtype, DType::Bool);
                let (then, otherwise) = (self.block(then)?, self.block(otherwise)?);
                // `false` is 0.
                ActionKind::Branch { selector: read(predicate), arms: vec![otherwise, then] }
            }
            Step::Switch { index, arms, .. } => ActionKind::Branch {
                selector: read(index),
                arms: arms.iter().map(|arm| self.block(arm)).collect::<Result<_>>()?,
            },
        }))
    }
}

/// A lower bound of the operations of some actions for any data. Constant loops count in full,
/// other loops count no iterations, and of a branch the cheapest arm counts.
fn least<K>(actions: &[Action<K>]) -> u64 {
    let nested = |action: &Action<K>| match &action.kind {
        ActionKind::Loop { trip: Trip::Constant(count), least, .. } => {
            Work::repeated(*count, *least)
        }
        ActionKind::Branch { arms, .. } => arms.iter().map(|arm| least(arm)).min().unwrap_or(0),
        _ => 0,
    };
    let all = actions.iter().map(|action| action.work.saturating_add(nested(action)));
    all.fold(0, u64::saturating_add)
}

impl<K> ResolvedPlan<K> {
    /// Number of kernels and copies of a run; `None` if it depends on data.
    pub fn straight_length(&self) -> Option<u64> {
        fn length<K>(actions: &[Action<K>]) -> Option<u64> {
            actions.iter().try_fold(0u64, |sum, action| {
                let more = match &action.kind {
                    ActionKind::Loop { trip: Trip::Constant(n), body, .. } => {
                        length(body)?.saturating_mul(*n)
                    }
                    ActionKind::Loop { .. } | ActionKind::Branch { .. } => return None,
                    ActionKind::Kernel(_) | ActionKind::Copy { .. } => 1,
                };
                Some(sum.saturating_add(more))
            })
        }
        length(&self.actions)
    }

    /// Replaces each sequence of kernels, between copies, loops and branches, by what `arrange`
    /// makes of it. Its kernels may be in another order or united, if each still reads what it
    /// read before. Their operations must add up to as many.
    pub fn arrange(&mut self, arrange: &mut impl FnMut(Vec<Scheduled<K>>) -> Vec<Scheduled<K>>) {
        fn block<K>(
            actions: &mut Vec<Action<K>>,
            arrange: &mut impl FnMut(Vec<Scheduled<K>>) -> Vec<Scheduled<K>>,
        ) {
            let mut done = Vec::with_capacity(actions.len());
            let mut sequence = Vec::new();
            let mut end =
                |sequence: &mut Vec<Scheduled<K>>, done: &mut Vec<Action<K>>| {
                    let arranged = match sequence.is_empty() {
                        true => Vec::new(),
                        false => arrange(std::mem::take(sequence)),
                    };
                    done.extend(arranged.into_iter().map(|Scheduled { step, work, kernel }| {
                        Action { step, work, kind: ActionKind::Kernel(kernel) }
                    }));
                };
            for Action { step, work, kind } in actions.drain(..) {
                match kind {
                    ActionKind::Kernel(kernel) => sequence.push(Scheduled { step, work, kernel }),
                    kind => {
                        end(&mut sequence, &mut done);
                        done.push(Action { step, work, kind });
                    }
                }
            }
            end(&mut sequence, &mut done);
            *actions = done;
            for action in actions {
                match &mut action.kind {
                    ActionKind::Kernel(_) | ActionKind::Copy { .. } => {}
                    ActionKind::Loop { body, .. } => block(body, arrange),
                    ActionKind::Branch { arms, .. } => {
                        arms.iter_mut().for_each(|arm| block(arm, arrange));
                    }
                }
            }
        }
        block(&mut self.actions, arrange);
    }

    /// The kernels, in order, those of loops and branches included.
    pub fn kernels(&self) -> Vec<&K> {
        fn collect<'a, K>(actions: &'a [Action<K>], found: &mut Vec<&'a K>) {
            for action in actions {
                match &action.kind {
                    ActionKind::Kernel(kernel) => found.push(kernel),
                    ActionKind::Copy { .. } => {}
                    ActionKind::Loop { body, .. } => collect(body, found),
                    ActionKind::Branch { arms, .. } => {
                        arms.iter().for_each(|arm| collect(arm, found));
                    }
                }
            }
        }
        let mut found = Vec::new();
        collect(&self.actions, &mut found);
        found
    }
}
