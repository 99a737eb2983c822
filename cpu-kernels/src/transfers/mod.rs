//! Collectives under way.
//!
//! A transfer is started, and ends when a step waits for it. Its messages move when this rank
//! starts, tests or waits for an operation of the transport; there is no thread for them. So a run
//! tests between kernels ([`Transfers::progress`]), and every wait advances all transfers.
//!
//! **Order.** The transport matches the operations of a communicator by their order, so that has
//! to be the same on all ranks. Most transfers have one exchange, which begins with the start, in
//! the order of the plan. A large reduction has two. The second can begin when this rank has
//! combined what the first has brought, and that is at another moment on each rank. So the second
//! exchanges of a group have a communicator of their own, and begin in the order of the starts: a
//! transfer whose first exchange has ended waits for its predecessors.
//!
//! **No deadlock.** The ranks of a group start its transfers in one order
//! ([`wengert_core::plan::verify_ranks()`]). Assume that all ranks have started a transfer, and
//! one waits for it. Then they have started all its predecessors over the same axes. Every rank
//! advances all of its transfers at its steps and in its waits, so the first exchanges end, the
//! second ones begin in order, and they end.
//!
//! **Memory.** Large operands are [lent](Lent) to the transport until the wait. It owns the other
//! buffers of an operation until that ends. They are kept for later exchanges, those of the next
//! run too ([`spare`]): a step needs the same ones as the step before.

mod spare;

use crate::call::CompiledCollective;
use crate::ranks::{Group, failed};
use spare::Spare;
use std::collections::BTreeSet;
use wengert_core::Diagnostic;
use wengert_transport::{Buffers, Communicator, Lent, Operation, Request};

/// A transfer: its number in the plan, or none for a call, of which one runs at a time.
pub(crate) type Id = Option<usize>;

/// The transfers of a run that are under way, and buffers for them.
#[derive(Default)]
pub(crate) struct Transfers {
    /// In the order of their starts.
    list: Vec<Transfer>,
    /// The exchanges under way, in the order in which they began, and the transfer of each.
    requests: Vec<Request>,
    owners: Vec<Id>,
    spare: Spare,
}

struct Transfer {
    id: Id,
    call: CompiledCollective,
    group: Group,
    operand: Lent,
    state: State,
}

enum State {
    /// In its first exchange.
    First,
    /// Its second exchange has not begun.
    Combined(Operation),
    /// In its second exchange.
    Second,
    /// Received.
    Done(Vec<u8>),
}

impl Transfers {
    /// True if nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Gives up all transfers. Buffers are kept.
    pub fn abandon(&mut self) {
        self.requests.clear();
        self.owners.clear();
        self.list.clear();
    }

    /// Starts a transfer.
    ///
    /// # Safety
    ///
    /// The operand stays where it is, and nothing writes it, until the transfer was waited for, or
    /// it was abandoned with all others.
    pub unsafe fn start(
        &mut self,
        id: Id,
        call: &CompiledCollective,
        group: &Group,
        operand: &[u8],
    ) -> Result<(), Diagnostic> {
        // SAFETY: the requests of the transfer end before its wait does, and are dropped when it is
        // abandoned.
        let operand = unsafe { Lent::new(operand) };
        let operation = call.first(group, operand, |len| self.spare.input(len));
        let (call, group) = (call.clone(), group.clone());
        self.list.push(Transfer { id, call, group, operand, state: State::First });
        let at = self.list.len() - 1;
        match self.list[at].group.first.clone() {
            Some(communicator) => self.begin(id, &communicator, operation),
            None => self.received(id, own(operation), Vec::new()),
        }
    }

    /// Advances the transfers, and does not wait for other ranks.
    pub fn progress(&mut self) -> Result<(), Diagnostic> {
        // A test of one request moves the messages of all.
        while let Some(first) = self.requests.first_mut() {
            if !first.test().map_err(failed)? {
                break;
            }
            let (request, id) = (self.requests.remove(0), self.owners.remove(0));
            let Buffers { result, input } = request.buffers().map_err(failed)?;
            self.received(id, result, input)?;
        }
        Ok(())
    }

    /// Waits for a transfer, and writes its result.
    pub fn wait(&mut self, id: Id, result: &mut [u8]) -> Result<(), Diagnostic> {
        loop {
            let at = self.list.iter().position(|transfer| transfer.id == id);
            let at = at.expect("the plan's verifier finds the start of each wait (P18)");
            if matches!(self.list[at].state, State::Done(_)) {
                let Transfer { call, group, operand, state, .. } = self.list.remove(at);
                let State::Done(received) = state else { unreachable!("as was just asked") };
                call.finish(&group, &operand, &received, result);
                match group.first {
                    Some(_) => self.spare.give_result(received),
                    // A rank that is alone has received the copy of its operand.
                    None => self.spare.give_input(received),
                }
                return Ok(());
            }
            // There is one: if the second exchange of this transfer has not begun, a predecessor
            // is in its first.
            let (at, buffers) = Request::wait_any(&mut self.requests).map_err(failed)?;
            let owner = self.owners.remove(at);
            self.received(owner, buffers.result, buffers.input)?;
        }
    }

    fn begin(
        &mut self,
        id: Id,
        communicator: &Communicator,
        operation: Operation,
    ) -> Result<(), Diagnostic> {
        let buffer = self.spare.result(operation.receives());
        self.requests.push(communicator.start_into(operation, buffer).map_err(failed)?);
        self.owners.push(id);
        Ok(())
    }

    /// An exchange of a transfer has ended. What was sent is no longer needed.
    fn received(&mut self, id: Id, received: Vec<u8>, sent: Vec<u8>) -> Result<(), Diagnostic> {
        self.spare.give_input(sent);
        let transfer = self.list.iter_mut().find(|transfer| transfer.id == id);
        let transfer = transfer.expect("a transfer stays in the list until it is done");
        let is_first = matches!(transfer.state, State::First);
        if !is_first || !transfer.call.has_two_exchanges(&transfer.group) {
            transfer.state = State::Done(received);
            return Ok(());
        }
        let buffer = self.spare.input(transfer.call.share(&transfer.group));
        let Transfer { call, group, operand, .. } = &*transfer;
        let operation = call.second(group, operand, &received, buffer);
        transfer.state = State::Combined(operation);
        self.spare.give_result(received);
        self.seconds()
    }

    /// Begins second exchanges whose predecessors have begun.
    fn seconds(&mut self) -> Result<(), Diagnostic> {
        let mut held: BTreeSet<Vec<String>> = BTreeSet::new();
        for at in 0..self.list.len() {
            let Transfer { id, call, group, state, .. } = &mut self.list[at];
            let id = *id;
            match std::mem::replace(state, State::Second) {
                State::Combined(operation) if !held.contains(call.over()) => {
                    match group.second.clone() {
                        Some(communicator) => self.begin(id, &communicator, operation)?,
                        None => *state = State::Done(own(operation)),
                    }
                }
                before => {
                    let begins = matches!(before, State::Combined(_))
                        || matches!(before, State::First) && call.has_two_exchanges(group);
                    if begins {
                        held.insert(call.over().to_vec());
                    }
                    *state = before;
                }
            }
        }
        Ok(())
    }
}

/// What a rank receives that is alone in its group: its own bytes, unless they stay in the operand.
fn own(operation: Operation) -> Vec<u8> {
    match operation {
        Operation::Exchange { .. } => Vec::new(),
        Operation::AllToAllCounts { bytes, .. } | Operation::AllGather { bytes, .. } => bytes,
        other => unreachable!("no collective of a plan exchanges by {}", other.name()),
    }
}

impl std::fmt::Debug for Transfers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transfers({} under way)", self.list.len())
    }
}
