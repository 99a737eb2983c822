//! Operations that are under way, and waits for them.

use crate::check::Signature;
use crate::communicator::Communicator;
use crate::error::{Error, Kind, Result, ranks_text};
use crate::messages::Buffers;
use crate::transport::{Awaited, Ticket};
use std::time::{Duration, Instant};

/// A signature that another rank will send.
pub(crate) struct Comparison {
    /// The rank, in the communicator.
    pub peer: usize,
    /// The receive of its signature.
    pub ticket: Ticket,
    /// What this rank told it.
    pub own: Signature,
}

/// An operation that was started.
///
/// Messages move when this rank starts, tests or waits for an operation; there is no thread for
/// it. A wait for one request advances all requests of the rank. A request that is dropped before
/// it has ended is given up: its result is lost, and what it would have received, too.
#[must_use = "an operation ends when its request has been waited for"]
pub struct Request {
    communicator: Communicator,
    /// The operation in errors.
    label: String,
    ticket: Option<Ticket>,
    comparisons: Vec<Comparison>,
    buffers: Buffers,
}

impl Request {
    /// A request of started operations.
    pub(crate) fn new(
        communicator: Communicator,
        label: String,
        ticket: Ticket,
        comparisons: Vec<Comparison>,
    ) -> Request {
        Request {
            communicator,
            label,
            ticket: Some(ticket),
            comparisons,
            buffers: Buffers::default(),
        }
    }

    /// Advances this rank's operations. True if this one has ended.
    pub fn test(&mut self) -> Result<bool> {
        self.communicator.check_alive(&self.label)?;
        self.advance().map_err(|error| self.fail(error))
    }

    /// Waits for the end, at most for the timeout of the options, and gives the result: what was
    /// received, or the buffer of a send or of the root of a broadcast.
    pub fn wait(self) -> Result<Vec<u8>> {
        let timeout = self.communicator.options().timeout;
        self.wait_for(timeout)
    }

    /// As [`Request::wait`], with a timeout of its own.
    pub fn wait_for(self, timeout: Duration) -> Result<Vec<u8>> {
        Ok(self.finish(timeout)?.result)
    }

    /// As [`Request::wait`], and gives all buffers of the operation.
    pub fn buffers(self) -> Result<Buffers> {
        let timeout = self.communicator.options().timeout;
        self.finish(timeout)
    }

    fn finish(mut self, timeout: Duration) -> Result<Buffers> {
        let mut wait = Wait::new(timeout);
        loop {
            let stamp = self.communicator.transport().stamp();
            if self.test()? {
                return Ok(std::mem::take(&mut self.buffers));
            }
            wait.pause(&mut self, stamp)?;
        }
    }

    /// Waits for all of several requests of one rank. Results are in order of the requests.
    pub fn wait_all(requests: impl IntoIterator<Item = Request>) -> Result<Vec<Vec<u8>>> {
        let mut requests: Vec<Request> = requests.into_iter().collect();
        let Some(first) = requests.first() else { return Ok(Vec::new()) };
        let mut wait = Wait::new(first.communicator.options().timeout);
        loop {
            let stamp = requests[0].communicator.transport().stamp();
            let mut open = None;
            for (at, request) in requests.iter_mut().enumerate() {
                if !request.test()? {
                    open.get_or_insert(at);
                }
            }
            let Some(at) = open else { break };
            wait.pause(&mut requests[at], stamp)?;
        }
        Ok(requests.iter_mut().map(|request| std::mem::take(&mut request.buffers.result)).collect())
    }

    /// Waits until one of several requests of one rank has ended, removes it from the list, and
    /// gives its former index and its buffers.
    ///
    /// Panics if the list is empty.
    pub fn wait_any(requests: &mut Vec<Request>) -> Result<(usize, Buffers)> {
        let first = requests.first().expect("a list with at least one request");
        let mut wait = Wait::new(first.communicator.options().timeout);
        loop {
            let stamp = requests[0].communicator.transport().stamp();
            for at in 0..requests.len() {
                if requests[at].test()? {
                    let mut done = requests.remove(at);
                    return Ok((at, std::mem::take(&mut done.buffers)));
                }
            }
            wait.pause(&mut requests[0], stamp)?;
        }
    }

    fn advance(&mut self) -> Result<bool> {
        // Signatures first: a difference explains what goes wrong with the data.
        self.compare()?;
        if let Some(ticket) = self.ticket {
            match self.communicator.transport().poll(ticket) {
                Ok(None) => {}
                Ok(Some(buffers)) => (self.ticket, self.buffers) = (None, buffers),
                Err(error) => return Err(self.reason(error)),
            }
        }
        Ok(self.ticket.is_none() && self.comparisons.is_empty())
    }

    /// Compares the signatures that have arrived.
    fn compare(&mut self) -> Result<()> {
        let transport = self.communicator.transport();
        let mut at = 0;
        while let Some(comparison) = self.comparisons.get(at) {
            let Some(Buffers { result: bytes, .. }) = transport.poll(comparison.ticket)? else {
                at += 1;
                continue;
            };
            let Comparison { peer, own, .. } = self.comparisons.swap_remove(at);
            let theirs = Signature::from_bytes(&bytes);
            if !own.agrees_with(theirs) {
                let world = |rank| transport.world_rank(rank);
                return Err(own.mismatch(world(transport.rank()), theirs, world(peer)));
            }
        }
        Ok(())
    }

    /// The reason of an error of the data. Data of another collective may be refused before the
    /// signature that explains it has arrived; it is given a moment.
    fn reason(&mut self, error: Error) -> Error {
        if !matches!(error.kind(), Kind::Mismatch | Kind::Library) {
            return error;
        }
        let until = Instant::now() + Duration::from_secs(1);
        let mut turn = 0;
        while !self.comparisons.is_empty() && Instant::now() < until {
            let stamp = self.communicator.transport().stamp();
            match self.compare() {
                Ok(()) => self.communicator.transport().pause(stamp, turn, until),
                Err(other) if other.kind() == Kind::Mismatch => return other,
                Err(_) => break,
            }
            turn += 1;
        }
        error
    }

    fn fail(&self, error: Error) -> Error {
        self.communicator.fail(error, &self.label)
    }

    fn tickets(&self) -> impl Iterator<Item = Ticket> {
        self.comparisons.iter().map(|comparison| comparison.ticket).chain(self.ticket)
    }

    /// The error of a wait that took too long.
    fn too_long(&self, timeout: Duration) -> Error {
        let transport = self.communicator.transport();
        let mut awaited: Vec<Awaited> =
            self.tickets().flat_map(|ticket| transport.awaited(ticket)).collect();
        awaited.sort_by_key(|one| one.rank);
        awaited.dedup_by_key(|one| one.rank);
        let took = format!("this rank has waited for {} s", timeout.as_secs_f64());
        let stopped = |one: &&Awaited| one.silent.is_some_and(|silent| silent >= timeout / 2);
        let texts = |list: &[&Awaited]| list.iter().map(|one| text(one)).collect::<Vec<_>>();
        let silent: Vec<&Awaited> = awaited.iter().filter(stopped).collect();
        if !silent.is_empty() {
            let message =
                format!("{took}; the heartbeat has stopped of {}", texts(&silent).join(", "));
            return Error::new(Kind::Stopped, message)
                .help("a process that is stopped, suspended or starved has no heartbeat")
                .about(silent.iter().map(|one| one.rank));
        }
        let help = "a rank that needs longer between its calls needs a larger timeout; a rank \
                    that calls something else does not come";
        if awaited.is_empty() {
            let others: Vec<usize> = (0..transport.size())
                .filter(|rank| *rank != transport.rank())
                .map(|rank| transport.world_rank(rank))
                .collect();
            let message = format!("{took}; not all of {} have taken part", ranks_text(&others));
            return Error::new(Kind::Timeout, message).help(help);
        }
        let all: Vec<&Awaited> = awaited.iter().collect();
        Error::new(Kind::Timeout, format!("{took} for {}", texts(&all).join(", ")))
            .help(help)
            .about(awaited.iter().map(|one| one.rank))
    }
}

fn text(one: &Awaited) -> String {
    match one.process {
        Some(process) => format!("rank {} (process {process})", one.rank),
        None => format!("rank {}", one.rank),
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        for ticket in self.tickets() {
            self.communicator.transport().forget(ticket);
        }
    }
}

/// The state of one wait.
struct Wait {
    timeout: Duration,
    until: Instant,
    turn: u32,
}

impl Wait {
    fn new(timeout: Duration) -> Wait {
        // A timeout of centuries is a wait without end.
        let timeout = timeout.min(Duration::from_secs(1 << 32));
        Wait { timeout, until: Instant::now() + timeout, turn: 0 }
    }

    /// Sleeps until something may have changed. Error: the time is over.
    fn pause(&mut self, request: &mut Request, stamp: u32) -> Result<()> {
        if Instant::now() >= self.until {
            let error = request.too_long(self.timeout);
            return Err(request.fail(error));
        }
        request.communicator.transport().pause(stamp, self.turn, self.until);
        self.turn = self.turn.saturating_add(1);
        Ok(())
    }
}
