//! Slots: bytes that hold one buffer after another.

use super::assign::arrange;
use super::assign::bound::max_load;
use super::assign::problem::{Buffer, Problem};
use super::homes::{Homes, bytes};
use super::moves::Moves;
use super::nests::Nests;
use crate::kernels::{BufferId, Kernel, Kernels, Work};
use std::collections::BTreeMap;
use wengert_core::id::IdVec;
use wengert_core::plan::{Address, Space};
use wengert_core::{Diagnostic, Result};

/// Bytes that hold one buffer after another, each computed in place of the one before.
#[derive(Clone, Debug)]
struct Slot {
    lower: u64,
    upper: u64,
    bytes: u64,
    /// The last buffer that it holds; None for workspace.
    tail: Option<BufferId>,
    /// The memory of the output or new variable that is its last buffer's home; else it is in the
    /// arena.
    outside: Option<Space>,
}

/// The place of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Outside(Space),
    Slot(usize),
    /// The buffer has no bytes.
    Nowhere,
}

/// Effort of layout for a number of slots, if the first method does not reach the bound. At most
/// some 25 milliseconds, for a training step that takes ten times as long to compile.
fn effort(slots: usize) -> u64 {
    (1000 * slots as u64).min(500_000)
}

/// Bytes of a buffer that rests after its last use.
const SMALL: u64 = 32 << 10;
/// Steps for which it rests.
const REST: u64 = 8;

/// The place of every buffer.
#[derive(Default)]
pub(super) struct Slots {
    pub homes: Homes,
    place: IdVec<BufferId, Place>,
    slots: Vec<Slot>,
    /// The slots of temporary copies of old values, by their buffers.
    temporaries: BTreeMap<BufferId, usize>,
    /// For each kernel the slot and bytes of its workspace: of a call, or the arena of regions.
    workspaces: Vec<Option<(usize, u64)>>,
}

/// The layout of the arena.
#[derive(Default)]
pub(super) struct Arena {
    /// Offsets of slots; 0 for slots outside the arena.
    offsets: Vec<u64>,
    /// Size of the arena.
    pub bytes: u64,
    /// The max load.
    pub lower_bound: u64,
}

/// Operands whose bytes a result may take, in the order of preference. A product is an
/// operand of its follower's results.
fn candidates(kernel: &Kernel, write: usize) -> impl Iterator<Item = BufferId> {
    let product = match &kernel.work {
        Work::Followed(_) if write > 0 => kernel.writes.first(),
        _ => None,
    };
    product.copied().into_iter().chain(kernel.distinct_reads())
}

/// The results of kernel `k` in the arena, each with the operands that it may overwrite.
pub(super) fn in_place(
    kernels: &Kernels,
    k: usize,
    bytes: &IdVec<BufferId, u64>,
    nests: &mut Nests<'_>,
) -> Vec<(BufferId, BufferId)> {
    let kernel = &kernels.kernels[k];
    let mut pairs = Vec::new();
    for (write, result) in kernel.writes.iter().enumerate().filter(|(_, b)| bytes[**b] > 0) {
        let same = candidates(kernel, write).filter(|read| bytes[*read] == bytes[*result]);
        pairs.extend(
            same.filter(|read| nests.may_alias(kernels, k, *read, write))
                .map(|read| (*result, read)),
        );
    }
    pairs
}

impl Slots {
    /// No slots yet: only buffers with homes have places.
    pub fn new(kernels: &Kernels, homes: Homes) -> Slots {
        let place = |id| homes.home[id].map_or(Place::Nowhere, Place::Outside);
        let place = kernels.buffers.ids().map(place).collect();
        let workspaces = vec![None; kernels.kernels.len()];
        let (slots, temporaries) = (Vec::new(), BTreeMap::new());
        Slots { homes, place, slots, temporaries, workspaces }
    }

    /// Gives the buffers of the arena slots. `workspaces` holds the bytes of each kernel's call
    /// workspace or arena of regions.
    pub fn assign(
        &mut self,
        kernels: &Kernels,
        order: &[usize],
        workspaces: &[u64],
        moves: &Moves,
        nests: &mut Nests<'_>,
    ) {
        let end = order.len() as u64;
        let mut last: IdVec<BufferId, u64> = kernels.buffers.ids().map(|_| 0).collect();
        for (moment, k) in order.iter().enumerate() {
            let kernel = &kernels.kernels[*k];
            kernel.reads.iter().chain(&kernel.writes).for_each(|b| last[*b] = moment as u64);
        }
        for (n, step) in moves.last.iter().enumerate().filter(|(_, m)| !m.from_temporary) {
            last[step.buffer] = end + n as u64;
        }
        for (moment, k) in order.iter().enumerate() {
            let writes = &kernels.kernels[*k].writes;
            // Buffers of the arena choose first: a slot saved there saves memory.
            let inside = |w: &usize| matches!(self.place[writes[*w]], Place::Nowhere);
            let (inside, outside): (Vec<usize>, Vec<usize>) = (0..writes.len()).partition(inside);
            for write in inside.into_iter().chain(outside) {
                self.write(kernels, *k, write, moment as u64, &last, nests);
            }
            let bytes = workspaces[*k];
            if bytes > 0 {
                self.workspaces[*k] = Some((self.slots.len(), bytes));
                let (lower, upper) = (moment as u64, moment as u64 + 1);
                self.slots.push(Slot { lower, upper, bytes, tail: None, outside: None });
            }
        }
        let mut last_read: BTreeMap<BufferId, usize> = BTreeMap::new();
        let reads = moves.last.iter().enumerate().filter(|(_, m)| m.from_temporary);
        last_read.extend(reads.map(|(n, m)| (m.buffer, n)));
        for (n, step) in moves.last.iter().enumerate().filter(|(_, m)| m.to.is_none()) {
            let bytes = bytes(kernels, step.buffer);
            let last = last_read.get(&step.buffer).copied().unwrap_or(n);
            self.temporaries.insert(step.buffer, self.slots.len());
            let (lower, upper) = (end + n as u64, end + last as u64 + 1);
            self.slots.push(Slot { lower, upper, bytes, tail: Some(step.buffer), outside: None });
        }
    }

    /// Gives result number `write` of kernel `k` a slot: that of an operand that dies here, or a
    /// new one.
    fn write(
        &mut self,
        kernels: &Kernels,
        k: usize,
        write: usize,
        moment: u64,
        last: &IdVec<BufferId, u64>,
        nests: &mut Nests<'_>,
    ) {
        let buffer = kernels.kernels[k].writes[write];
        let bytes = bytes(kernels, buffer);
        let outside = match self.place[buffer] {
            _ if bytes == 0 => return,
            // A slot must not occupy a variable's memory while the old value may be live.
            Place::Outside(Space::Variable(v))
                if self.homes.variables[v as usize].before.is_some() =>
            {
                return;
            }
            Place::Outside(space) => Some(space),
            _ => None,
        };
        let dying =
            candidates(&kernels.kernels[k], write).find_map(|read| match self.place[read] {
                Place::Slot(slot)
                    if last[read] == moment && self.slots[slot].tail == Some(read) =>
                {
                    let fits =
                        self.slots[slot].bytes == bytes && self.slots[slot].outside.is_none();
                    (fits && nests.may_alias(kernels, k, read, write)).then_some(slot)
                }
                _ => None,
            });
        match (dying, outside) {
            (Some(slot), _) => {
                let slot_of = &mut self.slots[slot];
                *slot_of = Slot {
                    upper: last[buffer] + 1,
                    tail: Some(buffer),
                    outside,
                    ..slot_of.clone()
                };
                self.place[buffer] = Place::Slot(slot);
            }
            (None, None) => {
                self.place[buffer] = Place::Slot(self.slots.len());
                let (lower, upper) = (moment, last[buffer] + 1);
                self.slots.push(Slot { lower, upper, bytes, tail: Some(buffer), outside });
            }
            (None, Some(_)) => {}
        }
    }

    /// The slots of the arena as a problem, and the slot of each of its buffers.
    pub fn problem(&self, alignment: u64) -> Result<(Problem, Vec<usize>)> {
        let mut problem = Problem::default();
        let mut numbers = Vec::new();
        let mut total = 0u64;
        for (n, slot) in self.slots.iter().enumerate().filter(|(_, s)| s.outside.is_none()) {
            let size = slot.bytes.checked_next_multiple_of(alignment);
            total = size
                .and_then(|size| total.checked_add(size))
                .filter(|total| i64::try_from(*total).is_ok())
                .ok_or_else(|| {
                    Diagnostic::new("the values of this function together are beyond 2^63 bytes")
                        .help("bind smaller dimensions")
                })?;
            problem.push(Buffer::new(slot.lower, slot.upper, size.unwrap_or(0)));
            numbers.push(n);
        }
        Ok((problem, numbers))
    }

    /// The name of a slot: that of its last buffer.
    pub fn name(&self, kernels: &Kernels, slot: usize) -> String {
        let name = self.slots[slot].tail.map(|buffer| kernels.buffers[buffer].name.clone());
        name.unwrap_or_else(|| "workspace".into())
    }

    /// Lays the arena out. `rests`: the bytes of small buffers are not used again at once.
    pub fn solve(&self, alignment: u64, rests: bool) -> Result<Arena> {
        let (mut problem, numbers) = self.problem(alignment)?;
        let lower_bound = max_load(&problem);
        if rests {
            let small = problem.buffers.iter_mut().filter(|buffer| buffer.size <= SMALL);
            small.for_each(|buffer| buffer.upper += REST);
        }
        let solution = arrange(&problem, effort(numbers.len()));
        let mut offsets = vec![0; self.slots.len()];
        for (n, offset) in numbers.into_iter().zip(&solution.offsets) {
            offsets[n] = *offset;
        }
        Ok(Arena { offsets, bytes: solution.height, lower_bound })
    }

    /// The address of a buffer.
    pub fn address(&self, arena: &Arena, buffer: BufferId) -> Address {
        match self.place[buffer] {
            Place::Outside(space) => Address::new(space, 0),
            Place::Slot(slot) => self.slot_address(arena, slot),
            Place::Nowhere => Address::new(Space::Arena, 0),
        }
    }

    /// The address and bytes of kernel `k`'s workspace.
    pub fn workspace(&self, arena: &Arena, k: usize) -> Option<(Address, u64)> {
        self.workspaces[k].map(|(slot, bytes)| (self.slot_address(arena, slot), bytes))
    }

    /// The address of the temporary copy of a buffer.
    pub fn temporary(&self, arena: &Arena, buffer: BufferId) -> Address {
        let slot = self.temporaries.get(&buffer).expect("moves name the temporaries they make");
        self.slot_address(arena, *slot)
    }

    fn slot_address(&self, arena: &Arena, slot: usize) -> Address {
        match self.slots[slot].outside {
            Some(space) => Address::new(space, 0),
            None => Address::new(Space::Arena, arena.offsets[slot]),
        }
    }
}
