//! Ranks of one machine, joined by shared memory.
//!
//! Ranks are processes that a [`Launcher`] has started, or threads of one process ([`threads`]).
//! Nothing has to be installed. [`segment`] is the memory, [`ring`] the way of bytes through it,
//! [`engine`] the matching of messages, [`doorbell`] the sleep, [`monitor`] the watch over other
//! ranks, [`processors`] where a rank runs.
//!
//! # Faults
//!
//! A wait fails at once if any rank of the world has died, or if a rank that it waits for has left
//! or has failed itself. What that rank had sent before is still delivered. A wait for a rank that
//! is stopped, or that never calls the operation, fails at its timeout. All processes of a run
//! belong to one user and trust each other: a process that writes garbage into the segment is found
//! in headers and positions, but not in the bytes of messages.
#![allow(unsafe_code)]

mod doorbell;
mod engine;
mod frame;
mod join;
mod launcher;
mod monitor;
mod processors;
mod ring;
mod segment;

pub use join::{VARIABLE, join};
pub use launcher::{Failure, Launcher};
pub use segment::MAX_RANKS;

use crate::communicator::Communicator;
use crate::error::{Error, Kind, Result, ranks_text};
use crate::messages::Buffers;
use crate::operation::Operation;
use crate::options::Options;
use crate::transport::{Awaited, Group, Ticket, Transport};
use engine::{Engine, Members};
use monitor::Monitor;
use segment::{FAILED, JOINED, LEFT, NEW, PANICKED, Segment};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Looks at a doorbell before a thread sleeps, where each rank has a processor: some tens of
/// microseconds, which is about what falling asleep and waking up take.
const SPINS: u32 = 500;

/// The communicators of a world whose ranks are threads of this process, in order of the ranks.
pub fn threads(ranks: usize, options: &Options) -> Result<Vec<Communicator>> {
    let segment = Arc::new(Segment::create(ranks, segment::new_run()?)?);
    for rank in 0..ranks {
        claim(&segment, rank)?;
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let one = |rank| enter(segment.clone(), rank, None, ranks <= cpus, options);
    (0..ranks).map(one).collect()
}

/// Takes a rank of a segment, which another may not take again.
fn claim(segment: &Segment, rank: usize) -> Result<()> {
    let cell = segment.rank(rank);
    // A process that has the rank already keeps it.
    let own = std::process::id();
    if cell.process.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire).is_err() {
        let process = cell.process.load(Ordering::Acquire);
        let message = format!("rank {rank} has joined already, as process {process}");
        return Err(Error::new(Kind::Environment, message)
            .help("a process joins once; a child of a rank may not be a rank itself"));
    }
    cell.state.store(JOINED, Ordering::Release);
    (0..segment.ranks()).for_each(|other| doorbell::ring(segment.rank(other)));
    Ok(())
}

/// Waits until all ranks have joined, and makes the world of a rank that was claimed. `has_own`:
/// each rank has a processor of its own.
fn enter(
    segment: Arc<Segment>,
    rank: usize,
    launcher: Option<u32>,
    has_own: bool,
    options: &Options,
) -> Result<Communicator> {
    let ranks = segment.ranks();
    let until = Instant::now() + options.timeout.min(Duration::from_secs(1 << 32));
    loop {
        let stamp = doorbell::stamp(segment.rank(rank));
        let is_new = |rank: &usize| segment.rank(*rank).state.load(Ordering::Acquire) == NEW;
        let missing: Vec<usize> = (0..ranks).filter(is_new).collect();
        if missing.is_empty() {
            break;
        }
        let place = format!("joining a world of {ranks} ranks");
        if launcher.is_some_and(|launcher| monitor::descriptor(launcher).is_err()) {
            return Err(launcher_ended(launcher).at(rank, &place));
        }
        if Instant::now() >= until {
            let (took, who) = (options.timeout.as_secs_f64(), ranks_text(&missing));
            let message = format!("after {took} s, {who} of {ranks} have not joined");
            let error = Error::new(Kind::Timeout, message)
                .help("a rank joins when its program starts; see the output of that rank")
                .about(missing);
            return Err(error.at(rank, &place));
        }
        doorbell::sleep(segment.rank(rank), stamp, 0, until);
    }
    let monitor = Monitor::start(segment.clone(), rank, launcher)?;
    let endpoint = Endpoint {
        engine: Mutex::new(Engine::new(rank, ranks)),
        segment,
        rank,
        launcher,
        monitor,
        next_context: AtomicU32::new(1),
        spins: if has_own { SPINS } else { 0 },
        timeout: options.timeout,
        has_failed: AtomicBool::new(false),
    };
    let members = Members { context: 0, rank, world: (0..ranks).collect() };
    let world = Shared { endpoint: Arc::new(endpoint), members };
    Ok(Communicator::new(Arc::new(world), options.clone()))
}

fn launcher_ended(launcher: Option<u32>) -> Error {
    let process = launcher.map_or(String::new(), |process| format!(" (process {process})"));
    Error::new(Kind::Died, format!("the launcher{process} has ended"))
        .help("the ranks of a run end with its launcher; see its output")
}

/// One rank of a segment. There is one for each rank, since [`claim`] succeeds once.
struct Endpoint {
    segment: Arc<Segment>,
    rank: usize,
    launcher: Option<u32>,
    monitor: Monitor,
    engine: Mutex<Engine>,
    next_context: AtomicU32,
    spins: u32,
    timeout: Duration,
    has_failed: AtomicBool,
}

impl Endpoint {
    fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn advance(&self, engine: &mut Engine) -> Result<()> {
        engine.progress(&self.segment, &|rank| doorbell::ring(self.segment.rank(rank)))
    }

    fn ring_all(&self) {
        (0..self.segment.ranks()).for_each(|rank| doorbell::ring(self.segment.rank(rank)));
    }

    /// Why a rank will do nothing more, if that is so.
    fn absence(&self, rank: usize) -> Option<Error> {
        let cell = self.segment.rank(rank);
        let who = || {
            let process = cell.process.load(Ordering::Acquire);
            format!("rank {rank} (process {process})")
        };
        let absent = |kind, what: &str, help: &str| {
            Some(Error::new(kind, format!("{} {what}", who())).help(help).about([rank]))
        };
        match cell.state.load(Ordering::Acquire) {
            LEFT => absent(
                Kind::Left,
                "has left the world",
                "a rank leaves when it drops its communicator; all ranks call the same operations",
            ),
            FAILED => absent(Kind::Left, "has failed", "see its own error"),
            PANICKED => absent(Kind::Died, "has panicked", "see its output"),
            _ if self.monitor.health().has_ended(rank) => absent(
                Kind::Died,
                "has ended without leaving the world",
                "see its output, and that of the launcher, for the reason",
            ),
            _ => None,
        }
    }

    /// Writes what is still to be written, such as signatures, before the rank leaves.
    fn flush(&self) {
        let until = Instant::now() + self.timeout.min(Duration::from_secs(1 << 32));
        loop {
            let stamp = doorbell::stamp(self.segment.rank(self.rank));
            let mut engine = self.engine();
            if self.advance(&mut engine).is_err() {
                return;
            }
            let open = engine.unwritten();
            drop(engine);
            let is_present = |rank: &usize| self.absence(*rank).is_none();
            if !open.iter().any(is_present) || Instant::now() >= until {
                return;
            }
            doorbell::sleep(self.segment.rank(self.rank), stamp, self.spins, until);
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let panics = std::thread::panicking();
        if !panics && !self.has_failed.load(Ordering::Acquire) {
            self.flush();
        }
        let state = &self.segment.rank(self.rank).state;
        let last = if panics { PANICKED } else { LEFT };
        // A rank that has failed stays so.
        let _ = state.compare_exchange(JOINED, last, Ordering::AcqRel, Ordering::Acquire);
        self.ring_all();
    }
}

/// A communicator on shared memory.
struct Shared {
    endpoint: Arc<Endpoint>,
    members: Members,
}

impl Transport for Shared {
    fn name(&self) -> &str {
        "shared memory"
    }

    fn rank(&self) -> usize {
        self.members.rank
    }

    fn size(&self) -> usize {
        self.members.world.len()
    }

    fn world_rank(&self, rank: usize) -> usize {
        self.members.world[rank]
    }

    fn start(&self, operation: Operation, buffer: Vec<u8>, tag: u32) -> Result<Ticket> {
        let mut engine = self.endpoint.engine();
        let ticket = engine.start(operation, buffer, &self.members, tag)?;
        self.endpoint.advance(&mut engine).inspect_err(|_| engine.forget(ticket))?;
        Ok(ticket)
    }

    fn poll(&self, ticket: Ticket) -> Result<Option<Buffers>> {
        let endpoint = &self.endpoint;
        // First the absences, then the rings: what a rank sent before it left is received.
        let absences: Vec<(usize, Error)> = (0..endpoint.segment.ranks())
            .filter_map(|rank| Some((rank, endpoint.absence(rank)?)))
            .collect();
        let mut engine = endpoint.engine();
        endpoint.advance(&mut engine)?;
        if let Some(buffers) = engine.take(ticket)? {
            return Ok(Some(buffers));
        }
        if !absences.is_empty() {
            // A death ends the run, also if this wait is for a rank that waits for the dead one.
            let awaited = engine.awaited(ticket);
            let is_fatal = |(rank, error): &(usize, Error)| {
                error.kind() == Kind::Died || awaited.contains(rank)
            };
            if let Some((_, error)) = absences.into_iter().find(is_fatal) {
                return Err(error);
            }
        }
        if endpoint.monitor.health().launcher_has_ended() {
            return Err(launcher_ended(endpoint.launcher));
        }
        Ok(None)
    }

    fn awaited(&self, ticket: Ticket) -> Vec<Awaited> {
        let endpoint = &self.endpoint;
        let of_rank = |rank: usize| Awaited {
            rank,
            process: Some(endpoint.segment.rank(rank).process.load(Ordering::Acquire)),
            silent: Some(endpoint.monitor.health().silent(rank)),
        };
        endpoint.engine().awaited(ticket).into_iter().map(of_rank).collect()
    }

    fn forget(&self, ticket: Ticket) {
        self.endpoint.engine().forget(ticket);
    }

    fn stamp(&self) -> u32 {
        doorbell::stamp(self.endpoint.segment.rank(self.endpoint.rank))
    }

    fn pause(&self, stamp: u32, _turn: u32, until: Instant) {
        let cell = self.endpoint.segment.rank(self.endpoint.rank);
        doorbell::sleep(cell, stamp, self.endpoint.spins, until);
    }

    fn next_context(&self) -> u32 {
        self.endpoint.next_context.load(Ordering::Acquire)
    }

    fn split(&self, group: &Group) -> Result<Option<Arc<dyn Transport>>> {
        // Also without a group: two communicators that share two ranks have different contexts.
        self.endpoint.next_context.fetch_max(group.context + 1, Ordering::AcqRel);
        if group.color.is_none() {
            return Ok(None);
        }
        let own = |rank: &usize| *rank == self.members.rank;
        let rank = group.members.iter().position(own).expect("a rank is in its own group");
        let world = group.members.iter().map(|rank| self.members.world[*rank]).collect();
        let members = Members { context: group.context, rank, world };
        Ok(Some(Arc::new(Shared { endpoint: self.endpoint.clone(), members })))
    }

    fn failed(&self, error: &Error) {
        let endpoint = &self.endpoint;
        endpoint.has_failed.store(true, Ordering::Release);
        let of_another = matches!(error.kind(), Kind::Died | Kind::Stopped | Kind::Left);
        let culprit = error.ranks().first().filter(|_| of_another);
        endpoint.segment.accuse(*culprit.unwrap_or(&endpoint.rank));
        endpoint.segment.rank(endpoint.rank).state.store(FAILED, Ordering::Release);
        endpoint.ring_all();
    }

    fn reported(&self) -> Option<usize> {
        crate::is_rank().then(|| self.endpoint.segment.culprit()).flatten()
    }

    fn abort(&self, status: i32) -> ! {
        let endpoint = &self.endpoint;
        endpoint.segment.accuse(endpoint.rank);
        endpoint.segment.rank(endpoint.rank).state.store(FAILED, Ordering::Release);
        endpoint.ring_all();
        std::process::exit(status)
    }
}
