//! The nests of a plan, each stored once, and what may alias in them.

use crate::kernels::{BufferId, Kernels, Work};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use wengert_core::id::{Id, IdVec};
use wengert_core::nest::{self, Nest};
use wengert_core::plan::NestId;

/// Nests without doubles.
pub(super) struct Nests {
    /// As the plan has them: the first of each kind, with a name of its own.
    pub distinct: IdVec<NestId, Nest>,
    /// For each kernel its nest; nothing for calls.
    pub of_kernel: Vec<Option<NestId>>,
    /// Known answers: (nest, operands, result).
    aliases: BTreeMap<(NestId, Vec<usize>, usize), bool>,
}

impl Nests {
    /// Two nests are one if they differ in names only.
    pub fn new(kernels: &Kernels) -> Nests {
        // Looked up, never iterated.
        let mut known: HashMap<Nest, NestId> = HashMap::new();
        let mut names: BTreeSet<String> = BTreeSet::new();
        let mut distinct: IdVec<NestId, Nest> = IdVec::new();
        let of_kernel = kernels.kernels.iter().map(|kernel| {
            let Work::Nest(nest) = &kernel.work else { return None };
            Some(*known.entry(nameless(nest)).or_insert_with(|| {
                let taken = |n: &u32| names.contains(&numbered(&nest.name, *n));
                let free = (0..).find(|n| !taken(n)).expect("there are more numbers than nests");
                let name = numbered(&nest.name, free);
                names.insert(name.clone());
                distinct.push(Nest { name, ..(**nest).clone() })
            }))
        });
        let of_kernel = of_kernel.collect();
        Nests { distinct, of_kernel, aliases: BTreeMap::new() }
    }

    /// True if kernel `k` may write its result number `write` over the buffer `read`, which it reads.
    pub fn may_alias(&mut self, kernels: &Kernels, k: usize, read: BufferId, write: usize) -> bool {
        let kernel = &kernels.kernels[k];
        let (operand, result) = (&kernels.buffers[read].ty, &kernels.buffers[kernel.writes[write]].ty);
        if operand.dtype != result.dtype || operand.bytes() != result.bytes() {
            return false;
        }
        let places: Vec<usize> = (0..kernel.reads.len()).filter(|n| kernel.reads[*n] == read).collect();
        let Some(id) = self.of_kernel[k] else {
            let Work::Call(call) = &kernel.work else { return false };
            let allowed = call.in_place();
            return places.len() == 1 && allowed.contains(&places[0]);
        };
        let nest = &self.distinct[id];
        let reads = kernel.reads.len();
        *self.aliases.entry((id, places.clone(), write)).or_insert_with(|| {
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

/// The nest with names that say nothing.
fn nameless(nest: &Nest) -> Nest {
    let mut nest = nest.clone();
    nest.name.clear();
    nest.buffers.iter_mut().for_each(|(_, b)| b.name.clear());
    nest.axes.iter_mut().for_each(|(_, a)| a.name.clear());
    nest
}
