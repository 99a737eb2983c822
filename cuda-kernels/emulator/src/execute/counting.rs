//! Reports accesses to the counters of a block.

use super::address::{from_generic, untag};
use super::block::Common;
use super::check::Does;
use super::warp::Warp;
use crate::count::Kind;
use crate::decode::program::{Access, Level};
use crate::parse::syntax::Space;
use crate::semantics::rows::{Doubles, WARP};

impl Common {
    /// Counts a load or store of `warp` in one space.
    pub(crate) fn count_access(
        &mut self,
        warp: &Warp,
        pc: u32,
        access: Access,
        does: Does,
        space: Space,
        addresses: &Doubles,
        mask: u32,
    ) {
        let Some(tally) = &mut self.tally else { return };
        if access.level == Level::Register || mask == 0 {
            return;
        }
        let bytes = access.bytes * access.count;
        let kind = match access.level {
            _ if does.writes => Kind::Store,
            Level::L1 => Kind::Load,
            _ => Kind::LoadFromL2,
        };
        let address = |lane: usize| addresses[lane];
        match space {
            Space::Global => {
                let span = |lane: usize| (untag(addresses[lane]).0, bytes);
                tally.global(warp.index, pc, kind, (mask, bytes), span);
            }
            Space::Shared => tally.shared(pc, (mask, bytes), false, address),
            Space::Local => tally.local(pc, (mask, bytes), address),
            Space::Const => tally.constants(pc, mask, address),
            Space::Param => {}
        }
    }

    /// Counts an atomic operation of `warp` in one space.
    pub(crate) fn count_atomic(
        &mut self,
        warp: &Warp,
        pc: u32,
        access: Access,
        space: Space,
        addresses: &Doubles,
        mask: u32,
    ) {
        let Some(tally) = &mut self.tally else { return };
        let bytes = access.bytes;
        if space == Space::Shared {
            tally.shared(pc, (mask, bytes), true, |lane| addresses[lane]);
        } else {
            let span = |lane: usize| (untag(addresses[lane]).0, bytes);
            tally.global(warp.index, pc, Kind::Atomic, (mask, bytes), span);
        }
    }

    /// Counts an asynchronous copy of `warp`: `sizes` bytes of the source are read in each lane,
    /// `bytes` of the target are written.
    pub(crate) fn count_copy(
        &mut self,
        warp: &Warp,
        pc: u32,
        level: Level,
        (sources, targets): (&Doubles, &Doubles),
        (sizes, bytes): (&Doubles, u32),
        mask: u32,
    ) {
        let Some(tally) = &mut self.tally else { return };
        let kind = if level == Level::L1 { Kind::Load } else { Kind::LoadFromL2 };
        let span = |lane: usize| (untag(sources[lane]).0, sizes[lane] as u32);
        tally.global(warp.index, pc, kind, (mask, bytes), span);
        tally.shared(pc, (mask, bytes), false, |lane| from_generic(targets[lane]).1);
    }

    /// Counts a bulk copy of `warp`: its parts in global memory, each an address and at most 16
    /// bytes. They bypass L1.
    pub(crate) fn count_bulk(&mut self, warp: &Warp, pc: u32, kind: Kind, parts: &[(u64, u32)]) {
        let Some(tally) = &mut self.tally else { return };
        for parts in parts.chunks(WARP) {
            let mask = (u64::MAX >> (64 - parts.len())) as u32;
            let span = |lane: usize| (untag(parts[lane].0).0, parts[lane].1);
            tally.global(warp.index, pc, kind, (mask, 16), span);
        }
    }

    /// Counts the rows of `count` matrices of `ldmatrix` or `stmatrix`.
    pub(crate) fn count_matrices(&mut self, pc: u32, count: u32, rows: &Doubles) {
        let Some(tally) = &mut self.tally else { return };
        let mask = ((1u64 << (count * 8)) - 1) as u32;
        tally.shared(pc, (mask, 16), false, |lane| rows[lane]);
    }
}
