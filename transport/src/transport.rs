//! The trait that each transport implements.
//!
//! A transport starts operations and moves bytes. Everything that is the same for all transports
//! is in [`crate::Communicator`]: waits and their timeouts, the comparison of collectives, errors
//! with their place, the failed state. A transport has three duties:
//!
//! - **Progress.** [`Transport::poll`] advances all operations of the rank, not only the one asked
//!   for. So a rank that waits for one operation completes the others, and no order of waits stops
//!   two ranks that exchange several messages.
//! - **No lost wake-ups.** A wait takes a [`Transport::stamp`], polls, and pauses with the stamp. A
//!   pause returns at once if something has changed since the stamp.
//! - **Order.** Messages of one rank to another with one tag keep their order. Collectives of one
//!   communicator are matched by their order.

use crate::error::{Error, Result};
use crate::messages::Buffers;
use crate::operation::Operation;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An operation that was started, in one transport.
pub type Ticket = u64;

/// Another rank that an operation still waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Awaited {
    /// The rank, in the world.
    pub rank: usize,
    /// Its process, where that is known.
    pub process: Option<u32>,
    /// How long its heartbeat has not advanced, where there is one.
    pub silent: Option<Duration>,
}

/// One group of a split, as all its members know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// The color, or none if this rank joins no group.
    pub color: Option<u32>,
    /// The ranks of the parent in the group, in their new order.
    pub members: Vec<usize>,
    /// The largest [`Transport::next_context`] of the parent's ranks.
    pub context: u32,
}

/// Moves bytes between the ranks of one communicator. Arguments are checked before.
pub trait Transport: Send + Sync {
    /// Its name: `shared memory`, `Open MPI`.
    fn name(&self) -> &str;

    /// This rank.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// A rank of this communicator as a rank of the world.
    fn world_rank(&self, rank: usize) -> usize;

    /// Starts an operation, whose result goes to the start of `buffer`, which grows if it is too
    /// short. `tag` is that of the messages of a collective.
    fn start(&self, operation: Operation, buffer: Vec<u8>, tag: u32) -> Result<Ticket>;

    /// Advances all operations of this rank. Gives the buffers of the operation if it has ended;
    /// its ticket is then used up.
    fn poll(&self, ticket: Ticket) -> Result<Option<Buffers>>;

    /// The other ranks that an operation waits for. Empty if the transport does not know them.
    fn awaited(&self, ticket: Ticket) -> Vec<Awaited>;

    /// Gives up the result of an operation. Its messages still move, and its memory stays
    /// allocated until they have. A ticket that is used up is ignored.
    fn forget(&self, ticket: Ticket);

    /// A number that changes when a poll could find something new.
    fn stamp(&self) -> u32;

    /// Sleeps until the stamp has changed or `until` has come, possibly for a shorter time.
    /// `turn` counts the pauses of one wait.
    fn pause(&self, stamp: u32, turn: u32, until: Instant);

    /// A number that no communicator of this rank has yet.
    fn next_context(&self) -> u32;

    /// Makes the communicator of this rank's group. All ranks call it at about the same time.
    fn split(&self, group: &Group) -> Result<Option<Arc<dyn Transport>>>;

    /// Told once that an operation has failed: this rank will start no others.
    fn failed(&self, error: &Error);

    /// The rank of the world that failed first, if a launcher of this crate knows and reports it.
    fn reported(&self) -> Option<usize> {
        None
    }

    /// Ends this process and the other ranks.
    fn abort(&self, status: i32) -> !;
}
