//! Changes of plans, and the reasons why they are harmful.

use crate::values::Places;
use wengert_core::call::{Call, Collective, CollectiveKind};
use wengert_core::plan::{Address, Argument, Plan, Step, Transfer, Trip, ValueId};
use wengert_core::{DType, Mesh};
use wengert_testing::Random;

/// A change of the plan of some ranks, which the others do not have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OfRanks {
    /// A collective is missing.
    Dropped,
    /// The last step with a collective is missing.
    DroppedLast,
    /// A collective runs twice.
    Duplicated,
    /// Two collectives of a block change places.
    Swapped,
    /// A collective runs before or after others of its block.
    Moved,
    /// A collective leaves its loop or branch, or enters one.
    MovedBetweenBlocks,
    /// It is a collective of another kind.
    Kind,
    /// Its elements have another dtype.
    DType,
    /// Its operand has another size, or another number of parts.
    Size,
    /// It is over other axes.
    Axes,
    /// A permutation has other pairs.
    Pairs,
    /// A loop with collectives runs more or fewer times.
    Trip,
    /// The plan has another mesh.
    Mesh,
    /// Two starts of a block change places, and their transfers are numbered accordingly.
    StartsSwapped,
}

/// A change of the plan of all ranks, after which steps read bytes that do not hold their operand.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OfValues {
    /// A collective is missing, and others read its result.
    DroppedEverywhere,
    /// It reads its operand where no step puts it.
    OperandBuffer,
    /// It writes its result where no step reads it.
    ResultBuffer,
    /// A step that reads the result runs before the collective.
    ReadBefore,
    /// Operand and result have another size than their values.
    SizeEverywhere,
    /// Operand and result have another dtype than their values.
    DTypeEverywhere,
    /// It has another number of parts than ranks, or an axis that the mesh lacks.
    AxesEverywhere,
    /// Nothing waits for a transfer.
    WaitDropped,
    /// A reader of the result runs before the wait.
    WaitMoved,
    /// A step between start and wait writes its result over the operand or the result of the
    /// transfer, and all readers read it there.
    Reused,
}

impl OfRanks {
    pub const ALL: [OfRanks; 14] = [
        Self::Dropped,
        Self::DroppedLast,
        Self::Duplicated,
        Self::Swapped,
        Self::Moved,
        Self::MovedBetweenBlocks,
        Self::Kind,
        Self::DType,
        Self::Size,
        Self::Axes,
        Self::Pairs,
        Self::Trip,
        Self::Mesh,
        Self::StartsSwapped,
    ];
}

impl OfValues {
    pub const ALL: [OfValues; 10] = [
        Self::DroppedEverywhere,
        Self::OperandBuffer,
        Self::ResultBuffer,
        Self::ReadBefore,
        Self::SizeEverywhere,
        Self::DTypeEverywhere,
        Self::AxesEverywhere,
        Self::WaitDropped,
        Self::WaitMoved,
        Self::Reused,
    ];
}

/// Where a step is: the steps around it, each with the number of the block in it, and its place in
/// the innermost block.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Path {
    around: Vec<(usize, usize)>,
    at: usize,
}

fn exchange(step: &Step) -> Option<&Collective> {
    let collective = match step {
        Step::Call { call, .. } => call.collective(),
        Step::Start { call, .. } => Some(call),
        _ => None,
    };
    collective.filter(|c| c.kind != CollectiveKind::AxisIndex)
}

fn is_exchange(step: &Step) -> bool {
    exchange(step).is_some()
}

fn is_start(step: &Step) -> bool {
    matches!(step, Step::Start { .. })
}

fn has_exchange(step: &Step) -> bool {
    is_exchange(step) || step.blocks().into_iter().flatten().any(has_exchange)
}

/// The paths of the steps that `wanted` chooses.
fn paths(plan: &Plan, wanted: fn(&Step) -> bool) -> Vec<Path> {
    fn block(
        steps: &[Step],
        around: &[(usize, usize)],
        wanted: fn(&Step) -> bool,
        all: &mut Vec<Path>,
    ) {
        for (at, step) in steps.iter().enumerate() {
            if wanted(step) {
                all.push(Path { around: around.to_vec(), at });
            }
            for (number, inner) in step.blocks().into_iter().enumerate() {
                block(inner, &[around, &[(at, number)]].concat(), wanted, all);
            }
        }
    }
    let mut all = Vec::new();
    block(&plan.steps, &[], wanted, &mut all);
    all
}

/// The block around a path.
fn block<'p>(plan: &'p mut Plan, around: &[(usize, usize)]) -> &'p mut Vec<Step> {
    around.iter().fold(&mut plan.steps, |steps, (at, number)| match &mut steps[*at] {
        Step::Loop(l) => &mut l.body,
        Step::If { then, otherwise, .. } => [then, otherwise].into_iter().nth(*number).unwrap(),
        Step::Switch { arms, .. } => &mut arms[*number],
        step => panic!("{step:?} has no blocks"),
    })
}

fn step<'p>(plan: &'p mut Plan, path: &Path) -> &'p mut Step {
    &mut block(plan, &path.around)[path.at]
}

fn collective<'p>(plan: &'p mut Plan, path: &Path) -> &'p mut Collective {
    match step(plan, path) {
        Step::Call { call: Call::Collective(collective), .. } => collective,
        Step::Start { call, .. } => call,
        step => panic!("{step:?} is no collective"),
    }
}

/// The operand (0) or the result (1) of an exchange or a wait.
fn argument<'p>(plan: &'p mut Plan, path: &Path, at: usize) -> &'p mut Argument {
    match step(plan, path) {
        Step::Call { arguments, .. } => &mut arguments[at],
        Step::Start { transfer, .. } | Step::Wait(transfer) => {
            let Transfer { operand, result, .. } = transfer;
            if at == 0 { operand } else { result }
        }
        step => panic!("{step:?} is no collective"),
    }
}

/// The wait of a start.
fn wait(plan: &mut Plan, start: &Path) -> Option<Path> {
    let Step::Start { transfer, .. } = step(plan, start) else { return None };
    let wanted = Step::Wait(transfer.clone());
    let at = block(plan, &start.around).iter().position(|step| *step == wanted)?;
    Some(Path { around: start.around.clone(), at })
}

/// Applies a change at a random place. None if the plan has no such place.
pub fn change(plan: &mut Plan, mutation: OfRanks, random: &mut Random) -> Option<()> {
    let all = paths(plan, is_exchange);
    let path = (!all.is_empty()).then(|| random.pick(&all).clone())?;
    let mesh = plan.mesh.clone();
    match mutation {
        OfRanks::Dropped => drop(block(plan, &path.around).remove(path.at)),
        OfRanks::DroppedLast => {
            let last = plan.steps.iter().rposition(has_exchange)?;
            plan.steps.remove(last);
        }
        OfRanks::Duplicated => {
            let copy = step(plan, &path).clone();
            block(plan, &path.around).insert(path.at, copy);
        }
        OfRanks::Swapped | OfRanks::Moved => {
            let others = all.iter().filter(|p| p.around == path.around && p.at != path.at);
            let others: Vec<usize> = others.map(|p| p.at).collect();
            let other = (!others.is_empty()).then(|| *random.pick(&others))?;
            let steps = block(plan, &path.around);
            if mutation == OfRanks::Swapped {
                steps.swap(path.at, other);
            } else {
                let moved = steps.remove(path.at);
                steps.insert(other, moved);
            }
        }
        OfRanks::MovedBetweenBlocks => {
            let nested = paths(plan, |step| !step.blocks().is_empty());
            let around = (!nested.is_empty()).then(|| random.pick(&nested).clone())?;
            let blocks = step(plan, &around).blocks().len();
            let inside = [&around.around[..], &[(around.at, random.below(blocks))]].concat();
            if random.chance(50) {
                let of_block = all.iter().filter(|p| p.around == inside);
                let of_block: Vec<usize> = of_block.map(|p| p.at).collect();
                let at = (!of_block.is_empty()).then(|| *random.pick(&of_block))?;
                let moved = block(plan, &inside).remove(at);
                block(plan, &around.around).insert(around.at + random.below(2), moved);
            } else {
                let beside = all.iter().filter(|p| p.around == around.around && p.at > around.at);
                let beside: Vec<usize> = beside.map(|p| p.at).collect();
                let at = (!beside.is_empty()).then(|| *random.pick(&beside))?;
                let moved = block(plan, &around.around).remove(at);
                block(plan, &inside).push(moved);
            }
        }
        OfRanks::Kind => {
            let kind = *random.pick(&CollectiveKind::ALL);
            collective(plan, &path).kind = kind;
        }
        OfRanks::DType => {
            collective(plan, &path).dtype = *random.pick(&DType::ALL);
        }
        OfRanks::Size => resize(collective(plan, &path), random),
        OfRanks::Axes => collective(plan, &path).over = other_axes(&mesh, random),
        OfRanks::Pairs => {
            let permutations = paths(plan, |step| {
                exchange(step).is_some_and(|c| c.kind == CollectiveKind::Permute)
            });
            let path = (!permutations.is_empty()).then(|| random.pick(&permutations).clone())?;
            let size = mesh.ranks();
            let pairs = &mut collective(plan, &path).perm;
            match random.below(3) {
                0 => drop(pairs.pop()),
                1 => pairs.push((random.below(size), random.below(size))),
                _ => pairs.iter_mut().for_each(|(a, b)| std::mem::swap(a, b)),
            }
        }
        OfRanks::Trip => {
            let loops = paths(plan, |step| matches!(step, Step::Loop(_)) && has_exchange(step));
            let path = (!loops.is_empty()).then(|| random.pick(&loops).clone())?;
            let Step::Loop(l) = step(plan, &path) else { unreachable!("it is a loop") };
            let Trip::Constant(trip) = &mut l.trip else { return None };
            *trip = random.below(6) as u64;
        }
        OfRanks::Mesh => plan.mesh = other_mesh(&mesh, random),
        OfRanks::StartsSwapped => {
            let starts = paths(plan, is_start);
            let first = (!starts.is_empty()).then(|| random.pick(&starts).clone())?;
            let others = starts.iter().filter(|p| p.around == first.around && p.at != first.at);
            let others: Vec<usize> = others.map(|p| p.at).collect();
            let second = (!others.is_empty()).then(|| *random.pick(&others))?;
            let steps = block(plan, &first.around);
            let id = |step: &Step| match step {
                Step::Start { transfer, .. } | Step::Wait(transfer) => Some(transfer.id),
                _ => None,
            };
            let (a, b) = (id(&steps[first.at])?, id(&steps[second])?);
            steps.swap(first.at, second);
            for step in steps {
                if let Step::Start { transfer, .. } | Step::Wait(transfer) = step {
                    transfer.id = match transfer.id {
                        id if id == a => b,
                        id if id == b => a,
                        id => id,
                    };
                }
            }
        }
    }
    Some(())
}

fn resize(collective: &mut Collective, random: &mut Random) {
    match random.below(4) {
        0 => collective.inner += 1,
        1 => collective.inner = collective.inner.saturating_sub(1),
        2 => collective.outer *= 2,
        _ => collective.parts += 1,
    }
}

/// Some axes of the mesh in some order, or an axis that it lacks.
fn other_axes(mesh: &Mesh, random: &mut Random) -> Vec<String> {
    let mut names: Vec<String> = mesh.axes().iter().map(|(axis, _)| axis.to_string()).collect();
    if random.chance(20) {
        return vec!["pipe".into()];
    }
    if random.chance(50) {
        names.reverse();
    }
    if random.chance(50) {
        names.truncate(1);
    }
    names
}

fn other_mesh(mesh: &Mesh, random: &mut Random) -> Mesh {
    let mut axes: Vec<(String, usize)> =
        mesh.axes().iter().map(|(axis, extent)| (axis.to_string(), *extent)).collect();
    match random.below(5) {
        0 => axes.reverse(),
        1 => axes[0].1 *= 2,
        2 => axes[0].0 = "pipe".into(),
        3 if axes[0].1 > 2 => {
            axes[0].1 /= 2;
            axes.push(("more".into(), 2));
        }
        3 => axes[0].1 = 1,
        _ => {
            let extent = axes.iter().map(|(_, extent)| extent).product();
            axes = vec![("data".into(), extent)];
        }
    }
    Mesh::new(axes).unwrap()
}

/// Applies a change at a random place. Returns whether it is harmful; None if the plan has no such
/// place.
pub fn spoil(plan: &mut Plan, mutation: OfValues, random: &mut Random) -> Option<bool> {
    let all = paths(plan, is_exchange);
    let path = (!all.is_empty()).then(|| random.pick(&all).clone())?;
    let before = plan.clone();
    let old = collective(plan, &path).clone();
    let [operand, result] = [0, 1].map(|at| argument(plan, &path, at).clone());
    let places = Places::of(&before);
    Some(match mutation {
        OfValues::DroppedEverywhere => {
            block(plan, &path.around).remove(path.at);
            places.is_read(&before, result.value)
        }
        OfValues::OperandBuffer | OfValues::ResultBuffer => {
            let at = usize::from(mutation == OfValues::ResultBuffer);
            let value = if at == 0 { operand.value } else { result.value };
            let other = elsewhere(&before, random)?;
            let wait = wait(plan, &path);
            for path in [path].into_iter().chain(wait) {
                argument(plan, &path, at).at = other.clone();
            }
            let read = at == 0 || places.is_read(&before, result.value);
            read && !places.may_hold(&before, value, &other)
        }
        OfValues::ReadBefore => {
            let steps = block(plan, &path.around);
            let reader = reader(steps, path.at, result.value)?;
            let moved = steps.remove(reader);
            steps.insert(path.at, moved);
            true
        }
        OfValues::SizeEverywhere => {
            resize(collective(plan, &path), random);
            let new = collective(plan, &path);
            let elements = |c: &Collective| c.outer * c.inner * c.parts;
            elements(new) != elements(&old)
        }
        OfValues::DTypeEverywhere => {
            let dtype = *random.pick(&DType::ALL);
            collective(plan, &path).dtype = dtype;
            let of_value = before.values[operand.value].dtype.stored();
            dtype.size() != of_value.size() || old.kind.is_reduction() && dtype != of_value
        }
        OfValues::AxesEverywhere => {
            let over = other_axes(&before.mesh, random);
            collective(plan, &path).over = over.clone();
            let extent = |name: &String| before.mesh.extent(name);
            let size = over.iter().map(extent).collect::<Option<Vec<usize>>>();
            let size = size.map(|extents| extents.into_iter().product::<usize>());
            size.is_none_or(|size| old.kind.has_parts() && size != old.parts)
        }
        OfValues::WaitDropped | OfValues::WaitMoved => {
            let wait = wait(plan, &path)?;
            let steps = block(plan, &path.around);
            let moved = steps.remove(wait.at);
            if mutation == OfValues::WaitMoved {
                let reader = reader(steps, path.at, result.value)?;
                steps.insert(reader + 1, moved);
                true
            } else {
                places.is_read(&before, result.value)
            }
        }
        OfValues::Reused => {
            let wait = wait(plan, &path)?;
            let taken = if random.chance(50) { operand.at } else { result.at };
            let between = block(plan, &path.around).get(path.at + 1..wait.at)?;
            let written: Vec<ValueId> = between.iter().filter_map(written).collect();
            let value = (!written.is_empty()).then(|| *random.pick(&written))?;
            arguments(&mut plan.steps, &mut |argument: &mut Argument| {
                if argument.value == value {
                    argument.at = taken.clone();
                }
            });
            [value, operand.value, result.value].iter().all(|v| before.values[*v].bytes() > 0)
        }
    })
}

/// The first step behind a place of a block that names a value.
fn reader(steps: &[Step], behind: usize, value: ValueId) -> Option<usize> {
    let reads = |step: &Step| match step {
        Step::Nest { arguments, .. } | Step::Call { arguments, .. } => {
            arguments.iter().any(|a| a.value == value)
        }
        Step::Copy { value: copied, .. } => *copied == value,
        _ => false,
    };
    (behind + 1..steps.len()).find(|at| reads(&steps[*at]))
}

/// The last result of a nest or call: it is the last argument.
fn written(step: &Step) -> Option<ValueId> {
    match step {
        Step::Nest { arguments, .. } | Step::Call { arguments, .. } => {
            arguments.last().map(|a| a.value)
        }
        _ => None,
    }
}

/// Visits the arguments of all nests, calls and transfers.
fn arguments(steps: &mut [Step], visitor: &mut impl FnMut(&mut Argument)) {
    for step in steps {
        match step {
            Step::Nest { arguments, .. } | Step::Call { arguments, .. } => {
                arguments.iter_mut().for_each(&mut *visitor);
            }
            Step::Start { transfer, .. } | Step::Wait(transfer) => {
                visitor(&mut transfer.operand);
                visitor(&mut transfer.result);
            }
            Step::Copy { .. } => {}
            Step::Loop(l) => arguments(&mut l.body, visitor),
            Step::If { then, otherwise, .. } => {
                arguments(then, visitor);
                arguments(otherwise, visitor);
            }
            Step::Switch { arms, .. } => arms.iter_mut().for_each(|arm| arguments(arm, visitor)),
        }
    }
}

/// An address that some argument of the plan has, or one behind it.
fn elsewhere(plan: &Plan, random: &mut Random) -> Option<Address> {
    let mut all = Vec::new();
    plan.visit(&mut |step| match step {
        Step::Nest { arguments, .. } | Step::Call { arguments, .. } => {
            all.extend(arguments.iter().map(|a| a.at.clone()));
        }
        Step::Start { transfer, .. } => {
            all.extend([&transfer.operand, &transfer.result].map(|a| a.at.clone()));
        }
        _ => {}
    });
    all.retain(|at| at.strides.is_empty());
    let mut at = (!all.is_empty()).then(|| random.pick(&all).clone())?;
    if random.chance(30) {
        at.offset += plan.target.alignment;
    }
    Some(at)
}
