//! The collectives of a plan on a GPU.
//!
//! A plan has no rank. [`Ranks`] says where this rank is in each group of its mesh. Exchanges run
//! in the stream of [`Exchanges`]: one command starts an exchange behind the work so far, and a
//! second one lets the work after it wait. A run with exchanges is not captured.

use crate::driver::nccl::{Exchanges, Group, Transfer, Transfers};
use crate::driver::{Address, Device, Event, Memory};
use crate::lowered::{Block, Command, Exchange, LoweredPlan};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wengert_core::plan::Place;
use wengert_core::{Result, diagnostic};

/// This rank among the ranks of a plan's mesh.
#[derive(Clone, Debug)]
pub struct Ranks {
    /// The device's exchanges with them.
    pub exchanges: Arc<Exchanges>,
    /// Its place in the group of each list of axes that a collective of the plan names.
    pub groups: BTreeMap<Vec<String>, Group>,
}

/// The collectives of a loaded plan.
pub(super) struct Collectives {
    ranks: Ranks,
    /// For each exchange an event after it.
    ended: Vec<Arc<Event>>,
    /// The position of this rank in each group whose position the plan needs, an i32.
    positions: Memory,
    places: BTreeMap<Vec<String>, Address>,
}

/// Alignment of a position in memory.
const ALIGNMENT: u64 = 256;

impl Collectives {
    /// The collectives of a plan; none if it has no collective.
    ///
    /// Errors: the plan has collectives, and `ranks` lacks their groups; there is not enough
    /// memory.
    pub fn new(
        device: &Device,
        lowered: &LoweredPlan,
        ranks: Option<&Ranks>,
    ) -> Result<Option<Collectives>> {
        let commands = lowered.resolved.kernels();
        let groups: BTreeSet<&[String]> = commands.iter().filter_map(|c| c.group()).collect();
        if groups.is_empty() {
            return Ok(None);
        }
        let function = &lowered.plan.function;
        let ranks = ranks.ok_or_else(|| {
            let mesh = &lowered.plan.mesh;
            diagnostic!("@{function} runs on the ranks of {mesh}, and this device has joined none")
                .help("load the plan by `CudaExecutable::among`")
        })?;
        if let Some(over) = groups.iter().find(|over| !ranks.groups.contains_key(**over)) {
            return Err(diagnostic!("@{function}: no group of ranks over {}", over.join(", "))
                .help("give each list of axes that a collective names its group"));
        }
        for over in groups {
            let (group, wanted) = (&ranks.groups[over], lowered.plan.mesh.size(over)?);
            if group.size != wanted || group.position >= wanted {
                let (position, size, over) = (group.position, group.size, over.join(", "));
                return Err(diagnostic!(
                    "@{function}: the group over {over} has {wanted} ranks, position {position} of \
                     {size} is given"
                ));
            }
        }
        let wanted: BTreeSet<&Vec<String>> = commands
            .iter()
            .filter_map(|command| match command {
                Command::Position { over, .. } => Some(over),
                _ => None,
            })
            .collect();
        let bytes = ALIGNMENT * wanted.len() as u64;
        let positions =
            device.allocate(bytes, &format!("the positions of ranks in @{function}"))?;
        let mut places = BTreeMap::new();
        for (n, over) in wanted.into_iter().enumerate() {
            let address = positions.address().offset(ALIGNMENT * n as u64);
            let position = i32::try_from(ranks.groups[over].position);
            let position = position.expect("a mesh has at most 2²⁰ ranks");
            device.write(address, &position.to_le_bytes())?;
            places.insert(over.clone(), address);
        }
        let ended = (0..lowered.exchanges).map(|_| Ok(Arc::new(device.event(false)?)));
        let ended = ended.collect::<Result<_>>()?;
        Ok(Some(Collectives { ranks: ranks.clone(), ended, positions, places }))
    }

    /// Bytes of device memory.
    pub fn bytes(&self) -> u64 {
        self.positions.bytes()
    }

    /// How they are executed, in words.
    pub fn decision(&self) -> String {
        let (count, library) = (self.ended.len(), self.ranks.exchanges.library());
        format!("collectives: {count} exchanges by {library}, so the run is not captured")
    }

    /// Starts an exchange.
    pub fn start(
        &self,
        device: &Device,
        exchange: &Exchange,
        address: impl Fn(&Place) -> Address,
    ) -> Result<()> {
        let group = &self.ranks.groups[&exchange.over];
        let blocks = exchange.blocks(group.position, group.size);
        let (source, target) = (address(&exchange.source), address(&exchange.target));
        if blocks.received.is_empty() {
            device.fill(target, 0, exchange.target.bytes)?;
        }
        let at = |start: Address, blocks: Vec<Block>| -> Vec<Transfer> {
            let transfer = |Block { peer, offset, bytes }: Block| Transfer {
                peer,
                address: start.offset(offset),
                bytes,
            };
            blocks.into_iter().map(transfer).collect()
        };
        let transfers =
            Transfers { sent: at(source, blocks.sent), received: at(target, blocks.received) };
        Ok(self.ranks.exchanges.start(group, &transfers, &self.ended[exchange.number])?)
    }

    /// Lets later work of the device wait for an exchange.
    pub fn wait(&self, exchange: &Exchange) -> Result<()> {
        Ok(self.ranks.exchanges.wait(&self.ended[exchange.number])?)
    }

    /// Writes the position of this rank in a group.
    pub fn position(&self, device: &Device, over: &[String], to: Address) -> Result<()> {
        let bytes = size_of::<i32>() as u64;
        Ok(device.copy(self.places[over], to, bytes)?)
    }
}

#[cfg(test)]
mod tests;
