//! Exchanges of emulated GPUs, by the transport between ranks.
//!
//! A GPU moves bytes beside its kernels: from the start of an exchange to the wait for it, what is
//! sent must not change, and what is received is undefined. Here the bytes move at the start, and
//! are stored in the target at the wait. Until then the target is undefined memory, so a kernel
//! that reads it without a wait is reported as any other read of undefined memory. What is sent is
//! compared at the wait with the bytes of the start. A wait without a start, and a start without a
//! wait, are errors.

use super::failed;
use std::collections::BTreeMap;
use wengert_core::{Diagnostic, Result, diagnostic};
use wengert_cpu::ranks::Ranks;
use wengert_cuda::lowered::{Block, Exchange};
use wengert_emulator::Memory;

/// The exchanges of a plan.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    /// This rank in the groups of the plan.
    ranks: Ranks,
    /// Exchanges that were started, by their numbers.
    started: BTreeMap<usize, Started>,
}

#[derive(Debug)]
struct Started {
    /// Addresses of source and target.
    addresses: [u64; 2],
    /// What the source held.
    source: Vec<u8>,
    /// Bytes for the target, and where they go.
    received: Vec<u8>,
    blocks: Vec<Block>,
}

impl Exchanges {
    /// The exchanges of a plan with these groups.
    pub fn among(ranks: Ranks) -> Exchanges {
        Exchanges { ranks, started: BTreeMap::new() }
    }

    /// Begins a run.
    pub fn begin(&mut self) {
        self.started.clear();
    }

    /// Starts an exchange; `addresses` are those of its source and its target.
    ///
    /// Errors: it was started before; it sends undefined memory; those of the transport.
    pub fn start(
        &mut self,
        exchange: &Exchange,
        addresses: [u64; 2],
        memory: &mut Memory,
    ) -> Result<()> {
        let group = self.ranks.group(&exchange.over)?;
        let blocks = exchange.blocks(group.position, group.size);
        let (mut bytes, mut sent) = (Vec::new(), vec![0; group.size]);
        for Block { peer, offset, bytes: length } in &blocks.sent {
            let (at, length) = (addresses[0] + offset, size(*length));
            if let Some(first) = memory.first_uninitialised(at, length as u64).map_err(failed)? {
                return Err(fault(format!(
                    "an exchange over {} sends undefined memory, byte {} of its source",
                    exchange.over.join(", "),
                    offset + first
                )));
            }
            bytes.extend(memory.read(at, length).map_err(failed)?);
            sent[*peer] = length;
        }
        let mut received = vec![0; group.size];
        for Block { peer, bytes, .. } in &blocks.received {
            received[*peer] = size(*bytes);
        }
        let received = group.all_to_all(bytes, sent, received)?;
        let source = memory.read(addresses[0], size(exchange.source.bytes)).map_err(failed)?;
        memory.forget(addresses[1], exchange.target.bytes).map_err(failed)?;
        let started = Started { addresses, source, received, blocks: blocks.received };
        match self.started.insert(exchange.number, started) {
            None => Ok(()),
            Some(_) => Err(fault("an exchange is started again before its wait".into())),
        }
    }

    /// Ends an exchange. `label` is that of the value in its target.
    ///
    /// Errors: it was not started; the memory that is sent has changed.
    pub fn wait(
        &mut self,
        exchange: &Exchange,
        label: Option<u32>,
        memory: &mut Memory,
    ) -> Result<()> {
        let started = self.started.remove(&exchange.number);
        let Started { addresses: [source, target], source: before, received, blocks } =
            started.ok_or_else(|| fault("a wait for an exchange that was not started".into()))?;
        let now = memory.read(source, before.len()).map_err(failed)?;
        if let Some(byte) = now.iter().zip(&before).position(|(now, before)| now != before) {
            let over = exchange.over.join(", ");
            return Err(fault(format!(
                "byte {byte} of the source of an exchange over {over} changes while it is sent"
            )));
        }
        let mut rest = &received[..];
        for Block { offset, bytes, .. } in &blocks {
            let (block, after) = rest.split_at(size(*bytes));
            memory.write(target + offset, block).map_err(failed)?;
            rest = after;
        }
        if blocks.is_empty() {
            memory.write(target, &vec![0; size(exchange.target.bytes)]).map_err(failed)?;
        }
        memory.label(target, exchange.target.bytes, label).map_err(failed)
    }

    /// Error: an exchange was started, and nothing waited for it.
    pub fn all_ended(&self) -> Result<()> {
        match self.started.len() {
            0 => Ok(()),
            n => Err(fault(format!("{n} exchanges were started, and nothing waits for them"))),
        }
    }

    /// The position of this rank in a group.
    pub fn position(&self, over: &[String]) -> Result<i32> {
        let position = self.ranks.group(over)?.position;
        Ok(i32::try_from(position).expect("a mesh has at most 2²⁰ ranks"))
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("the verifier bounds the bytes of values")
}

/// A fault of the plan or its lowering.
fn fault(what: String) -> Diagnostic {
    let error: Diagnostic = diagnostic!("{what}");
    Diagnostic::of_device(error.message).help("please report it with the program")
}

#[cfg(test)]
mod tests;
