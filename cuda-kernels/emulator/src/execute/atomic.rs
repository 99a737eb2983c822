//! Atomics, executed lane by lane.

use super::Machine;
use super::access::{put, take};
use super::block::Common;
use super::check::{Does, Page};
use super::warp::{Warp, lanes};
use crate::decode::program::{Access, AtomicOperation, Instruction, Operand};
use crate::parse::syntax::Space;
use crate::sanitize::{Fault, FaultKind};
use crate::semantics::convert::{extend, low};
use crate::semantics::rows::{Doubles, WARP};
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

type Result<T> = std::result::Result<T, Box<Fault>>;

/// The value that an atomic stores, given the old value.
pub(crate) fn apply(operation: AtomicOperation, bits: u32, old: u64, a: u64, b: u64) -> u64 {
    let signed = |x: u64| extend(x, bits);
    let new = match operation {
        AtomicOperation::And => old & a,
        AtomicOperation::Or => old | a,
        AtomicOperation::Xor => old ^ a,
        AtomicOperation::Exchange => a,
        AtomicOperation::CompareAndSwap => {
            if old == a {
                b
            } else {
                old
            }
        }
        AtomicOperation::Add => old.wrapping_add(a),
        AtomicOperation::Increment => {
            if old >= a {
                0
            } else {
                old + 1
            }
        }
        AtomicOperation::Decrement => {
            if old == 0 || old > a {
                a
            } else {
                old - 1
            }
        }
        AtomicOperation::Minimum { signed: true } => signed(old).min(signed(a)) as u64,
        AtomicOperation::Maximum { signed: true } => signed(old).max(signed(a)) as u64,
        AtomicOperation::Minimum { .. } => old.min(a),
        AtomicOperation::Maximum { .. } => old.max(a),
        AtomicOperation::Float(float) => float.evaluate(old, a, 0),
        AtomicOperation::FloatPair(float) => {
            let half =
                |shift: u32| float.evaluate(old >> shift & 0xffff, a >> shift & 0xffff, 0) << shift;
            half(0) | half(16)
        }
    };
    low(new, bits)
}

impl Warp {
    /// `atom`, `red`
    pub(crate) fn atomic(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        (access, operation): (Access, AtomicOperation),
        pc: u32,
        active: u32,
    ) -> Result<()> {
        let mut addresses = self.addresses(machine, i.inputs[0], access.offset);
        let a = self.any(machine, i.inputs[1]);
        let b = i.inputs.get(2).map_or([0; WARP], |&b| self.any(machine, b));
        let mut result = [0; WARP];
        let spaces = match access.space {
            Some(space) => vec![(space, active)],
            None => self.spaces(&mut addresses, active),
        };
        let gives = i.outputs[0] != Operand::Sink;
        for (space, mask) in spaces {
            let values = (&a, &b);
            self.atomic_in(
                machine,
                common,
                (access, operation, gives),
                space,
                &addresses,
                values,
                mask,
                pc,
                &mut result,
            )?;
        }
        self.set_any(i.outputs[0], active, &result);
        Ok(())
    }

    fn atomic_in(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        (access, operation, _gives): (Access, AtomicOperation, bool),
        space: Space,
        addresses: &Doubles,
        (a, b): (&Doubles, &Doubles),
        mask: u32,
        pc: u32,
        result: &mut Doubles,
    ) -> Result<()> {
        let bytes = access.bytes;
        let bits = bytes * 8;
        // An exchange ignores the old value, so it may be the first write.
        let does = Does { reads: operation != AtomicOperation::Exchange, writes: true };
        match space {
            Space::Global | Space::Const => {
                // Memory is words of 32 bits: a 64-bit atomic needs two, so it takes a lock.
                let guard = (bytes == 8)
                    .then(|| machine.wide.lock().expect("no holder of the lock panics"));
                self.acquire(machine, common, addresses, mask);
                self.release(machine, common, addresses, mask, access.ordering.release);
                let (mut region, mut page) = (None, Page::default());
                for lane in lanes(mask) {
                    let place = (addresses[lane], bytes);
                    let (found, offset) = self.global(
                        machine,
                        common,
                        &mut region,
                        &mut page,
                        place,
                        does,
                        access.ordering,
                        pc,
                        lane,
                    )?;
                    let allocation = &machine.memory.allocations[found.allocation as usize];
                    let new = |old: u64| {
                        apply(operation, bits, old, low(a[lane], bits), low(b[lane], bits))
                    };
                    result[lane] = match bytes {
                        8 => {
                            let old = allocation.load(offset, 8);
                            allocation.store(offset, 8, new(old));
                            old
                        }
                        4 => {
                            let word = allocation.word(offset);
                            let old = word
                                .fetch_update(AcqRel, Relaxed, |old| Some(new(old.into()) as u32));
                            old.expect("the closure always gives a word").into()
                        }
                        _ => {
                            let shift = 8 * (offset % 4);
                            let word = allocation.word(offset);
                            let put = |word: u32| {
                                let value = new(u64::from(word >> shift & 0xffff)) as u32;
                                Some(word & !(0xffff << shift) | value << shift)
                            };
                            let old = word.fetch_update(AcqRel, Relaxed, put);
                            u64::from(
                                old.expect("the closure always gives a word") >> shift & 0xffff,
                            )
                        }
                    };
                }
                drop(guard);
            }
            Space::Shared => {
                for lane in lanes(mask) {
                    let (address, visited) = self.visit(
                        machine,
                        common,
                        (addresses[lane], access.cluster),
                        does,
                        pc,
                        lane,
                    )?;
                    let place = (address, bytes);
                    let at = self.shared(machine, common, place, does, true, pc, lane)?;
                    let old = take(&common.shared.bytes, at, bytes);
                    let new = apply(operation, bits, old, low(a[lane], bits), low(b[lane], bits));
                    put(&mut common.shared.bytes, at, bytes, new);
                    result[lane] = old;
                    Warp::leave(common, visited);
                }
            }
            Space::Local | Space::Param => {
                let message = format!("an atomic on {space} memory");
                let kind = FaultKind::OutOfBounds(space);
                return Err(self.fault(machine, common, kind, message, pc, mask));
            }
        }
        common.count_atomic(self, pc, access, space, addresses, mask);
        Ok(())
    }
}
