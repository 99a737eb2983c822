//! Loads and stores without a copy.
//!
//! A register has a block of its own. A load copies elements into it, and a store copies them to
//! memory. A *direct* load binds the register to the memory instead. For a *direct* store, the
//! kernel that computes the value writes to memory ([`Direct`]).
//!
//! A direct load is wrong if its memory is overwritten before the register's last use. A direct
//! store is wrong if an instruction between the kernel and the store reads that memory. One walk
//! over a phase fills the tables that answer both questions, so a body of n instructions takes
//! O(n log n).

use super::analyse::{Analysis, Register};
use super::lower::{Op, Place};
use super::program::Direct;
use wengert_core::Id;
use wengert_core::nest::BufferId;

/// The stores of a phase whose value the kernel that computes it may write to memory.
pub(super) struct Forwarded {
    /// For each position of such a kernel: the position of the store, and when.
    stores: Vec<Option<(usize, Direct)>>,
    /// For each position of such a store: the position of the kernel, and when.
    kernels: Vec<Option<(usize, Direct)>>,
}

impl Forwarded {
    /// Of a phase; `contiguous` says of each position whether it stores adjacent elements.
    pub fn new(analysis: &Analysis<'_, '_>, p: usize, contiguous: &[bool]) -> Self {
        let body = &analysis.nest.phases[p].body;
        let loads = Loads::new(body, analysis.nest.nest.buffers.len());
        let mut forwarded =
            Forwarded { stores: vec![None; body.len()], kernels: vec![None; body.len()] };
        for (at, op) in body.iter().enumerate() {
            let Op::Store { place, value } = op else { continue };
            let register = analysis.registers[value.index()];
            let (_, defined) = register.defined;
            let may = register.reusable
                && place.guards.is_empty()
                && body[defined].is_arithmetic()
                && forwarded.stores[defined].is_none()
                && contiguous[at]
                && !loads.any_of(place.buffer, defined, at);
            if may {
                let aliased = !analysis.is_row(place.buffer) && loads.any(defined, at);
                let direct = if aliased { Direct::Unaliased } else { Direct::Always };
                forwarded.stores[defined] = Some((at, direct));
                forwarded.kernels[at] = Some((defined, direct));
            }
        }
        forwarded
    }

    /// The store that the kernel at a position makes superfluous.
    pub fn store_of(&self, kernel: usize) -> Option<(usize, Direct)> {
        self.stores[kernel]
    }

    /// When the store at a position is superfluous.
    pub fn of_store(&self, store: usize) -> Direct {
        self.kernels[store].map_or(Direct::Never, |(_, direct)| direct)
    }
}

/// Where a phase loads.
struct Loads {
    /// Positions for each buffer, in order.
    positions: Vec<Vec<usize>>,
    /// How many positions before each one load something.
    before: Vec<usize>,
}

impl Loads {
    fn new(body: &[Op<'_>], buffers: usize) -> Self {
        let mut loads =
            Loads { positions: vec![vec![]; buffers], before: Vec::with_capacity(body.len() + 1) };
        let mut count = 0;
        for (at, op) in body.iter().enumerate() {
            loads.before.push(count);
            let mut places = op.loaded().peekable();
            count += usize::from(places.peek().is_some());
            places.for_each(|place| loads.positions[place.buffer.index()].push(at));
        }
        loads.before.push(count);
        loads
    }

    fn any(&self, from: usize, to: usize) -> bool {
        self.before[to] > self.before[from]
    }

    fn any_of(&self, buffer: BufferId, from: usize, to: usize) -> bool {
        let positions = &self.positions[buffer.index()];
        positions.get(positions.partition_point(|at| *at < from)).is_some_and(|at| *at < to)
    }
}

/// When a phase first overwrites memory.
pub(super) struct Overwritten {
    /// For each buffer, the last position at which its previous elements may be read; `None` if the
    /// phase does not store to it.
    last: Vec<Option<i64>>,
    /// The least of them among buffers that are not row storage.
    outside: Option<i64>,
}

impl Overwritten {
    /// By a phase with these forwarded stores.
    pub fn new(analysis: &Analysis<'_, '_>, p: usize, forwarded: &Forwarded) -> Self {
        let mut found =
            Overwritten { last: vec![None; analysis.nest.nest.buffers.len()], outside: None };
        let earlier =
            |slot: &mut Option<i64>, at: i64| *slot = Some(slot.map_or(at, |known| known.min(at)));
        for (at, op) in analysis.nest.phases[p].body.iter().enumerate() {
            // A group may read its operands after its first store. Other stores read before they
            // write.
            let grouped = i64::from(matches!(op, Op::Group(_)));
            let early = forwarded.kernels[at].map_or(at, |(kernel, _)| kernel);
            let last = early as i64 - grouped;
            for place in op.stored() {
                earlier(&mut found.last[place.buffer.index()], last);
                if !analysis.is_row(place.buffer) {
                    earlier(&mut found.outside, last);
                }
            }
        }
        found
    }

    /// Whether the block of a register that is loaded in the phase `p` may be the memory itself.
    pub fn load(
        &self,
        analysis: &Analysis<'_, '_>,
        p: usize,
        register: Register,
        place: &Place,
    ) -> Direct {
        if register.used.0 != p {
            return Direct::Never;
        }
        let conflicts = |last: Option<i64>| {
            last.is_some_and(|last| !register.reusable || register.used.1 as i64 > last)
        };
        if conflicts(self.last[place.buffer.index()]) {
            Direct::Never
        } else if !analysis.is_row(place.buffer) && conflicts(self.outside) {
            Direct::Unaliased
        } else {
            Direct::Always
        }
    }
}
