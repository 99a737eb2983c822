//! Communicators: ranks that exchange bytes.

use crate::check::{self, Signature};
use crate::error::{Error, Kind, Result};
use crate::operation::{Operation, check_tag, collective_tag};
use crate::options::Options;
use crate::request::{Comparison, Request};
use crate::transport::{Group, Transport};
use std::sync::{Arc, Mutex, OnceLock};

/// The ranks of a world, or of a part of it, as seen by one of them. A copy is the same
/// communicator.
///
/// Operations may be called from several threads. Collectives have to be started in the same
/// order on all ranks, so they should come from one thread, or under a lock.
#[derive(Clone)]
pub struct Communicator(Arc<Inner>);

struct Inner {
    /// Its name in errors.
    name: String,
    transport: Arc<dyn Transport>,
    options: Options,
    /// The number of the next collective.
    number: Mutex<u64>,
    /// The first failure of this rank, in any communicator.
    failure: Arc<OnceLock<Error>>,
}

impl Communicator {
    /// A world, with a transport that all its ranks have joined.
    pub fn new(transport: Arc<dyn Transport>, options: Options) -> Communicator {
        Communicator::of("world".into(), transport, options, Arc::new(OnceLock::new()))
    }

    fn of(
        name: String,
        transport: Arc<dyn Transport>,
        options: Options,
        failure: Arc<OnceLock<Error>>,
    ) -> Communicator {
        Communicator(Arc::new(Inner { name, transport, options, number: Mutex::new(0), failure }))
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.0.transport.rank()
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.0.transport.size()
    }

    /// A rank of this communicator as a rank of the world.
    pub fn world_rank(&self, rank: usize) -> usize {
        self.0.transport.world_rank(rank)
    }

    /// The rank of the world that failed first, if this rank has failed and its launcher, that of
    /// [`shared`](crate::shared), reports that one. So this rank need not.
    pub fn reported(&self) -> Option<usize> {
        self.0.failure.get().and_then(|_| self.0.transport.reported())
    }

    /// The name: `world`, or that of a split.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The options with which this rank joined.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// The transport.
    pub fn transport(&self) -> &dyn Transport {
        &*self.0.transport
    }

    /// Starts an operation.
    pub fn start(&self, operation: Operation) -> Result<Request> {
        self.start_into(operation, Vec::new())
    }

    /// Starts an operation whose result goes to the start of a buffer. The buffer is the result: it
    /// grows if it is too short, and keeps its length if it is longer than needed. So an operation
    /// that is repeated allocates nothing, and no memory is cleared for it.
    pub fn start_into(&self, operation: Operation, buffer: Vec<u8>) -> Result<Request> {
        let transport = &self.0.transport;
        let (rank, size) = (transport.rank(), transport.size());
        let name = &self.0.name;
        if !operation.is_collective() {
            let label = format!("{operation} in `{name}`");
            self.check_alive(&label)?;
            operation.verify(rank, size).map_err(|error| self.fail(error, &label))?;
            let ticket =
                transport.start(operation, buffer, 0).map_err(|error| self.fail(error, &label))?;
            return Ok(Request::new(self.clone(), label, ticket, Vec::new()));
        }
        let mut next = self.0.number.lock().unwrap_or_else(|poison| poison.into_inner());
        let number = *next;
        let label = format!("collective {number} of `{name}`, {operation}");
        let fail = |error| self.fail(error, &label);
        self.check_alive(&label)?;
        operation.verify(rank, size).map_err(fail)?;
        *next += 1;
        let mut comparisons = Vec::new();
        if self.0.options.check {
            for peer in (0..size).filter(|peer| *peer != rank) {
                let own = Signature::of(&operation, number, rank, peer, size);
                let tag = check_tag(number);
                let send = Operation::Send { to: peer, tag, bytes: own.to_bytes() };
                // A signature fits the buffers of a transport; its end needs no wait.
                transport
                    .start(send, Vec::new(), 0)
                    .map(|sent| transport.forget(sent))
                    .map_err(fail)?;
                let receive = Operation::Receive { from: peer, tag, len: check::LEN };
                let ticket = transport.start(receive, Vec::new(), 0).map_err(fail)?;
                comparisons.push(Comparison { peer, ticket, own });
            }
        }
        let tag = collective_tag(number);
        let ticket = transport.start(operation, buffer, tag).map_err(fail)?;
        Ok(Request::new(self.clone(), label, ticket, comparisons))
    }

    /// Sends a message and waits until `bytes` may be changed again, which may be before the
    /// message has arrived.
    pub fn send(&self, to: usize, tag: u32, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.start(Operation::Send { to, tag, bytes })?.wait()
    }

    /// Receives a message of exactly `len` bytes.
    pub fn receive(&self, from: usize, tag: u32, len: usize) -> Result<Vec<u8>> {
        self.start(Operation::Receive { from, tag, len })?.wait()
    }

    /// Exchanges blocks of one size: [`Operation::AllToAll`].
    pub fn all_to_all(&self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.start(Operation::AllToAll { bytes })?.wait()
    }

    /// Exchanges blocks of given sizes: [`Operation::AllToAllCounts`].
    pub fn all_to_all_counts(
        &self,
        bytes: Vec<u8>,
        send: Vec<usize>,
        receive: Vec<usize>,
    ) -> Result<Vec<u8>> {
        self.start(Operation::AllToAllCounts { bytes, send, receive })?.wait()
    }

    /// The bytes of all ranks, in order: [`Operation::AllGather`]. All have the same number.
    pub fn all_gather(&self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let counts = vec![bytes.len(); self.size()];
        self.all_gather_counts(bytes, counts)
    }

    /// The bytes of all ranks, in order, where rank i has `counts[i]` of them.
    pub fn all_gather_counts(&self, bytes: Vec<u8>, counts: Vec<usize>) -> Result<Vec<u8>> {
        self.start(Operation::AllGather { bytes, counts })?.wait()
    }

    /// The `len` bytes of the root. Other ranks give no bytes.
    pub fn broadcast(&self, root: usize, bytes: Vec<u8>, len: usize) -> Result<Vec<u8>> {
        self.start(Operation::Broadcast { root, bytes, len })?.wait()
    }

    /// Waits until all ranks have called it.
    pub fn barrier(&self) -> Result<()> {
        self.start(Operation::Barrier)?.wait().map(|_| ())
    }

    /// Divides the ranks into groups of one color each, and gives the communicator of this rank's
    /// group. Ranks of a group are ordered by `key`, then by their rank here. A rank without a
    /// color joins no group and gets none. All ranks call it. `name` is for errors; the axis of
    /// a mesh is a good one.
    pub fn split(&self, name: &str, color: Option<u32>, key: i64) -> Result<Option<Communicator>> {
        const LEN: usize = 24;
        let mine = color.map_or(-1, i64::from);
        let context = i64::from(self.0.transport.next_context());
        let bytes = [mine, key, context].iter().flat_map(|word| word.to_le_bytes()).collect();
        let all = self.all_gather(bytes)?;
        let words = |rank: usize| {
            let of_rank = &all[LEN * rank..LEN * (rank + 1)];
            let word = |i: usize| {
                let bytes = of_rank[8 * i..8 * i + 8].try_into();
                i64::from_le_bytes(bytes.expect("a word has eight bytes"))
            };
            (word(0), word(1), word(2))
        };
        let mut members: Vec<usize> =
            (0..self.size()).filter(|rank| words(*rank).0 == mine && color.is_some()).collect();
        // A stable sort: ranks with one key keep their order.
        members.sort_by_key(|rank| words(*rank).1);
        let context = (0..self.size()).map(|rank| words(rank).2).max().unwrap_or(0) as u32;
        let group = Group { color, members, context };
        let label = format!("split of `{}` into `{name}`", self.0.name);
        let transport = self.0.transport.split(&group).map_err(|error| self.fail(error, &label))?;
        Ok(transport.map(|transport| {
            let (options, failure) = (self.0.options.clone(), self.0.failure.clone());
            Communicator::of(name.into(), transport, options, failure)
        }))
    }

    /// Ends this process with a status, and the other ranks with it.
    pub fn abort(&self, status: i32) -> ! {
        self.0.transport.abort(status)
    }

    /// Error: an earlier operation of this rank failed.
    pub(crate) fn check_alive(&self, label: &str) -> Result<()> {
        match self.0.failure.get() {
            None => Ok(()),
            Some(error) => Err(error.earlier().at(self.world_rank(self.rank()), &label)),
        }
    }

    /// Adds the place to an error. If it ends the run, later operations of this rank fail.
    pub(crate) fn fail(&self, error: Error, label: &str) -> Error {
        let error = error.at(self.world_rank(self.rank()), &label);
        if !error.is_harmless() && self.0.failure.set(error.clone()).is_ok() {
            self.0.transport.failed(&error);
        }
        error
    }

    /// Fails like an operation does.
    pub(crate) fn refuse(&self, kind: Kind, message: String, help: &str, about: &[usize]) -> Error {
        let error = Error::new(kind, message).help(help).about(about.iter().copied());
        self.fail(error, &format!("comparison of hashes in `{}`", self.0.name))
    }
}
