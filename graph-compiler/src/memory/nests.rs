//! The nests of a plan, each stored once, and which results may be in place.

use super::run::Run;
use crate::kernels::control::Form;
use crate::kernels::{BufferId, Kernel, Kernels, Work};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::call::Call;
use wengert_core::id::{Id, IdVec};
use wengert_core::nest::{self, Nest};
use wengert_core::plan::NestId;

/// The distinct nests of a function and of all its regions.
#[derive(Default)]
pub(super) struct Table {
    /// The nests of the plan: the first of each kind, with a unique name.
    pub distinct: IdVec<NestId, Nest>,
    /// Looked up, never iterated.
    known: FxHashMap<Nest, NestId>,
    names: BTreeSet<String>,
    /// Cached answers: (nest, operands, result).
    aliases: BTreeMap<(NestId, Vec<usize>, usize), bool>,
}

impl Table {
    /// Nests that differ in names only are equal.
    fn add(&mut self, nest: &Nest) -> NestId {
        let Table { distinct, known, names, .. } = self;
        *known.entry(nameless(nest)).or_insert_with(|| {
            let taken = |n: &u32| names.contains(&numbered(&nest.name, *n));
            let free = (0..).find(|n| !taken(n)).expect("there are more numbers than nests");
            let name = numbered(&nest.name, free);
            names.insert(name.clone());
            distinct.push(Nest { name, ..nest.clone() })
        })
    }
}

/// The nests of a function, or of one region.
pub(super) struct Nests<'t> {
    table: &'t mut Table,
    /// The nest of each kernel; None for kernels without one.
    pub of_kernel: Vec<Option<NestId>>,
}

impl<'t> Nests<'t> {
    pub fn new(kernels: &Kernels, table: &'t mut Table) -> Nests<'t> {
        let of_kernel = kernels.kernels.iter().map(|kernel| match &kernel.work {
            Work::Nest(nest) => Some(table.add(nest)),
            Work::Followed(followed) => Some(table.add(&followed.follower)),
            Work::Call(_) | Work::Control(_) => None,
        });
        let of_kernel = of_kernel.collect();
        Nests { table, of_kernel }
    }

    /// The nests of a region.
    pub fn of_region<'s>(&'s mut self, region: &Kernels) -> Nests<'s> {
        Nests::new(region, self.table)
    }

    /// The nests of a run of the kernels.
    pub fn of_run<'s>(&'s mut self, run: &Run<'_>) -> Nests<'s> {
        let nest = |(kernel, from): (&Kernel, &usize)| kernel.nest().and(self.of_kernel[*from]);
        let of_kernel = run.kernels.kernels.iter().zip(&run.from).map(nest).collect();
        Nests { table: self.table, of_kernel }
    }

    /// True if kernel `k` may write its result number `write` over its operand `read`.
    pub fn may_alias(&mut self, kernels: &Kernels, k: usize, read: BufferId, write: usize) -> bool {
        let kernel = &kernels.kernels[k];
        let (operand, result) = (&kernels.buffers[read], &kernels.buffers[kernel.writes[write]]);
        // Rows of different pitches lie at different places.
        if operand.ty.dtype != result.ty.dtype
            || operand.pitch != result.pitch
            || operand.bytes() != result.bytes()
        {
            return false;
        }
        let at = |reads: &[BufferId]| -> Vec<usize> {
            (0..reads.len()).filter(|n| reads[*n] == read).collect()
        };
        let of_call = |call: &Call, places: &[usize]| {
            let allowed = call.in_place();
            places.len() == 1 && allowed.contains(&places[0])
        };
        let places = at(&kernel.reads);
        let (id, places, reads, write) = match (&kernel.work, self.of_kernel[k]) {
            (Work::Nest(_), Some(id)) => (id, places, kernel.reads.len(), write),
            (Work::Call(call), _) => return of_call(call, &places),
            (Work::Followed(followed), Some(id)) => {
                let parts = followed.split(kernel);
                let (of_operands, of_nest) = (at(parts.operands), at(&parts.reads));
                match (of_operands.is_empty(), of_nest.is_empty()) {
                    // An operand of both parts is still read after the other part began to write.
                    (false, false) => return false,
                    (false, true) => return write == 0 && of_call(&followed.call, &of_operands),
                    _ if write == 0 => return false,
                    _ => (id, of_nest, parts.reads.len(), write - 1),
                }
            }
            (Work::Control(control), _) => {
                let Form::Loop(form) = control.form(kernel) else { return false };
                if let Some(stack) = write.checked_sub(form.carries) {
                    return form.has_initials() && places == [form.first_initial() + stack];
                }
                // Other carries with the same initial value are copied before the first step. No
                // other operand may be that buffer.
                let carries = form.first_carry()..form.first_slice();
                return places.iter().all(|n| carries.contains(n))
                    && places.contains(&(carries.start + write));
            }
            (Work::Nest(_) | Work::Followed(_), None) => unreachable!("every nest is in the table"),
        };
        let nest = &self.table.distinct[id];
        *self.table.aliases.entry((id, places.clone(), write)).or_insert_with(|| {
            let pairs: Vec<_> = places
                .iter()
                .map(|n| (nest::BufferId::new(*n), nest::BufferId::new(reads + write)))
                .collect();
            nest::may_alias(nest, &pairs)
        })
    }
}

fn numbered(name: &str, n: u32) -> String {
    if n == 0 { name.to_string() } else { format!("{name}_{n}") }
}

/// The nest without names.
fn nameless(nest: &Nest) -> Nest {
    let mut nest = nest.clone();
    nest.name.clear();
    nest.buffers.iter_mut().for_each(|(_, b)| b.name.clear());
    nest.axes.iter_mut().for_each(|(_, a)| a.name.clear());
    nest
}
