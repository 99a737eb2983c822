//! Merges that would take a product's follower away from it.
//!
//! A nest that [follows](wengert_core::nest::follows) a product reads it from registers. Merged
//! with a reduction of its result, it does not follow, since it is more than one pass over its
//! elements: the product is stored and loaded again. Apart, the reduction loads its operand again,
//! which costs nothing but that if other kernels read it as well.

use super::group::Group;
use super::merge::Merging;
use crate::view::Work;
use wengert_core::graph::ValueId;

impl Merging<'_, '_> {
    /// Whether `group` alone would be the follower of a product on the product's tiles, and other
    /// kernels than `with` read what `with` reduces of it. Only targets with a library give up a
    /// merge for it: without one, each product runs its follower.
    pub(super) fn follows(&self, group: &Group, with: &Group) -> bool {
        let loops = |group: &Group| group.members.iter().any(|m| self.roots[*m].loops);
        let elementwise = !group.has_inner() && group.band == 0 && !loops(group);
        if !self.target.has_library() || !elementwise || !(with.has_inner() || loops(with)) {
            return false;
        }
        let is_member = |group: &Group, root: &usize| group.members.binary_search(root).is_ok();
        let stored = |member: &usize| {
            let readers = &self.readers[*member];
            let outside = |reader: &&usize| !is_member(group, reader) && !is_member(with, reader);
            readers.iter().any(|r| is_member(with, r)) && readers.iter().any(|r| outside(&r))
        };
        if !group.members.iter().any(stored) {
            return false;
        }
        let bytes = |value: ValueId| self.view.count(value) * self.view.stored(value).size();
        // What the group moves beside the product, in the worst case.
        let writes = group.members.iter().flat_map(|member| {
            let equation = self.roots[*member].equation;
            let outside = self.readers[*member].iter().any(|reader| !is_member(group, reader));
            self.view.body.equations[equation].results.iter().filter(move |_| outside)
        });
        let moved: usize = group.reads.iter().chain(writes).map(|value| bytes(*value)).sum();
        let runs = |value: &ValueId| {
            let Some(product) = self.root_of.get(value) else { return false };
            let Work::Call(call) = &self.view.work[self.roots[*product].equation] else {
                return false;
            };
            let tile = bytes(*value);
            let alone = self.readers[*product].iter().all(|reader| is_member(group, reader));
            call.has_tiles()
                && alone
                && self.view.count(*value) == group.points()
                && moved - tile <= tile.saturating_mul(self.target.follower_traffic as usize)
                && self.target.runs_follower(call, tile as u64)
        };
        group.reads.iter().any(runs)
    }
}
