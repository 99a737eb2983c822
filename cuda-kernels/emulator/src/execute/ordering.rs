//! Ordering between blocks: releases and acquires through global memory.

use super::Machine;
use super::address::untag;
use super::block::{Common, Order};
use super::warp::{Warp, lanes};
use crate::semantics::rows::Doubles;

impl Warp {
    /// A strong read of global memory: acquires the knowledge released there.
    pub(crate) fn acquire(
        &self,
        machine: &Machine<'_>,
        common: &mut Common,
        addresses: &Doubles,
        mask: u32,
    ) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        if !machine.options.sanitize.races
            || !machine.any_released.load(std::sync::atomic::Ordering::SeqCst)
        {
            return;
        }
        let released = machine.released.lock().expect("no holder of the lock panics");
        let mut last = u64::MAX;
        for lane in lanes(mask) {
            let (plain, _) = untag(addresses[lane]);
            if plain != last
                && let Some(known) = released.get(&plain)
            {
                join(&mut common.order, known);
            }
            last = plain;
        }
    }

    /// A strong write of global memory: releases the accesses that a fence before it (or the
    /// write itself) has ordered.
    pub(crate) fn release(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        addresses: &Doubles,
        mask: u32,
        releases: bool,
    ) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        if !machine.options.sanitize.races {
            return;
        }
        if releases {
            self.fenced = Some((common.order.time, common.order.all_time));
        }
        let Some((fence, met)) = self.fenced else { return };
        let order = &common.order;
        let mut publish = order.known.clone();
        // After a barrier that follows the fence, accesses of the whole block before the fence
        // are ordered too.
        let everyone = if fence <= order.all_time { fence } else { met };
        publish.insert((order.block, u32::MAX), everyone);
        publish.insert((order.block, self.index), fence);
        let mut released = machine.released.lock().expect("no holder of the lock panics");
        let mut last = u64::MAX;
        for lane in lanes(mask) {
            let (plain, _) = untag(addresses[lane]);
            if plain != last {
                let known = released.entry(plain).or_default();
                for (&who, &time) in &publish {
                    let old = known.entry(who).or_insert(0);
                    *old = time.max(*old);
                }
            }
            last = plain;
        }
        machine.any_released.store(true, std::sync::atomic::Ordering::SeqCst);
        // Accesses after this one are not released by it.
        common.order.time = common.order.time.saturating_add(1);
    }
}

fn join(order: &mut Order, known: &super::Known) {
    super::join_known(&mut order.known, known, order.block);
}
