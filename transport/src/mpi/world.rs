//! Ranks that are joined by a library of MPI.

use super::abi::{Abi, THREAD_SERIALIZED, UNDEFINED};
use super::collective::Native;
use super::functions::Functions;
use super::launch::Launch;
use super::library::Library;
use super::process::{Part, Process, Table, Work, pause, readable, writable};
use crate::communicator::Communicator;
use crate::error::{Error, Kind, Result};
use crate::lent::Input;
use crate::messages::{Buffers, Messages, at_least};
use crate::operation::Operation;
use crate::options::Options;
use crate::transport::{Awaited, Group, Ticket, Transport};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Initialises MPI and makes the world.
pub(super) fn join<A: Abi>(
    library: &Library,
    launch: &Launch,
    options: &Options,
) -> Result<Communicator> {
    // SAFETY: `A` is the interface of the library's vendor, which its version states.
    let functions: Functions<A> = unsafe { Functions::of(library)? };
    let handles = A::handles(library)?;
    let process = Process {
        name: library.vendor.name(),
        functions,
        handles,
        table: Mutex::new(Table { works: BTreeMap::new(), next: 0, split: Vec::new() }),
        // Until the world is complete, nothing may wait for others.
        has_failed: AtomicBool::new(true),
        timeout: options.timeout.min(Duration::from_secs(1 << 32)),
        chunk: options.mpi_chunk,
    };
    let calls = &process.functions;
    let mut flag = 0;
    // SAFETY: the function may be called at any time.
    process.done("MPI_Initialized", unsafe { (calls.initialized)(&mut flag) })?;
    if flag != 0 {
        let message = "MPI is in use in this process already";
        return Err(Error::new(Kind::Library, message).help("a process joins a world once"));
    }
    let mut provided = 0;
    // SAFETY: null stands for the arguments of `main`, which MPI does not need.
    let status =
        unsafe { (calls.init_thread)(null_mut(), null_mut(), THREAD_SERIALIZED, &mut provided) };
    process.done("MPI_Init_thread", status)?;
    if provided < THREAD_SERIALIZED {
        let message = format!(
            "{} gives thread level {provided}, which allows calls from one thread only",
            library.version
        );
        return Err(Error::new(Kind::Library, message)
            .help("use a library that was built with support for threads"));
    }
    let world = process.handles.world;
    let (rank, size) = process.place(world)?;
    launch.compare(library, rank, size)?;
    process.has_failed.store(false, Ordering::Release);
    let members = (0..size).collect();
    let world = Mpi { process: Arc::new(process), communicator: world, rank, members };
    Ok(Communicator::new(Arc::new(world), options.clone()))
}

/// A communicator of MPI.
pub(super) struct Mpi<A: Abi> {
    pub(super) process: Arc<Process<A>>,
    pub(super) communicator: A::Handle,
    pub(super) rank: usize,
    /// Its ranks, as ranks of the world.
    members: Vec<usize>,
}

impl<A: Abi> Mpi<A> {
    /// Starts the requests of an operation, whose result goes to the start of that of `work`. On an
    /// error, those that were started stay in `work`.
    fn begin(&self, messages: Messages, kind: Native, tag: u32, work: &mut Work<A>) -> Result<()> {
        let Messages { input, len, sends, receives, copy, returns_input } = messages;
        // MPI may read the input after the request was given up.
        work.lent = matches!(input, Input::Lent(_));
        work.input = match input {
            Input::Owned(bytes) => bytes,
            Input::Lent(bytes) => bytes.to_vec(),
        };
        work.returns_input = returns_input;
        work.result = at_least(len, std::mem::take(&mut work.result))?;
        if let Some((from, into)) = copy {
            work.result[into].copy_from_slice(&work.input[from]);
        }
        match kind {
            Native::None => {
                for (from, range) in receives {
                    let world = self.members[from];
                    for range in self.chunks(range) {
                        let part = Part::Receive { from: world, len: range.len() };
                        self.receive(work, from, tag, range, part)?;
                    }
                }
                for (to, range) in sends {
                    let part = Part::Send { to: self.members[to] };
                    for range in self.chunks(range) {
                        self.send(work, to, tag, range, part)?;
                    }
                }
                Ok(())
            }
            native => self.collective(native, work),
        }
    }

    /// The parts of a message, in order. An empty message is one part.
    fn chunks(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<A> {
        let chunk = self.process.chunk;
        let count = range.len().div_ceil(chunk).max(1);
        (0..count).map(move |i| {
            let start = range.start + i * chunk;
            start..range.end.min(start + chunk)
        })
    }

    /// Starts a receive of a part of the result.
    fn receive(
        &self,
        work: &mut Work<A>,
        from: usize,
        tag: u32,
        range: Range<usize>,
        part: Part,
    ) -> Result<()> {
        let (calls, byte) = (&self.process.functions, self.process.handles.byte);
        let count = range.len() as c_int;
        let at = writable(&mut work.result[range]);
        // SAFETY: the place is in the work's result, which stays where it is until the request has
        // ended.
        self.started(work, part, "MPI_Irecv", |request| unsafe {
            let (from, tag) = (from as c_int, tag as c_int);
            (calls.irecv)(at, count, byte, from, tag, self.communicator, request)
        })
    }

    /// Starts a send of a part of the input.
    fn send(
        &self,
        work: &mut Work<A>,
        to: usize,
        tag: u32,
        range: Range<usize>,
        part: Part,
    ) -> Result<()> {
        let (calls, byte) = (&self.process.functions, self.process.handles.byte);
        let count = range.len() as c_int;
        let at = readable(&work.input[range]);
        // SAFETY: as for `receive`, with the work's input.
        self.started(work, part, "MPI_Isend", |request| unsafe {
            let (to, tag) = (to as c_int, tag as c_int);
            (calls.isend)(at, count, byte, to, tag, self.communicator, request)
        })
    }

    /// Keeps the request that `call` starts.
    pub(super) fn started(
        &self,
        work: &mut Work<A>,
        part: Part,
        call: &str,
        start: impl FnOnce(&mut A::Handle) -> c_int,
    ) -> Result<()> {
        let mut request = self.process.handles.no_request;
        self.process.done(call, start(&mut request))?;
        work.requests.push((request, part));
        Ok(())
    }
}

impl<A: Abi> Transport for Mpi<A> {
    fn name(&self) -> &str {
        self.process.name
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn world_rank(&self, rank: usize) -> usize {
        self.members[rank]
    }

    fn start(&self, operation: Operation, buffer: Vec<u8>, tag: u32) -> Result<Ticket> {
        let tag = match &operation {
            Operation::Send { tag, .. } | Operation::Receive { tag, .. } => *tag,
            _ => tag,
        };
        let native = Native::of(&operation, self.members.len(), self.process.chunk);
        let messages = operation.messages(self.rank, self.members.len());
        let mut table = self.process.table();
        table.next += 1;
        let ticket = table.next;
        let mut work = Work {
            requests: Vec::new(),
            input: Vec::new(),
            result: buffer,
            lists: Vec::new(),
            returns_input: false,
            lent: false,
            forgotten: false,
        };
        let begun = self.begin(messages, native, tag, &mut work);
        table.works.insert(ticket, work);
        begun.map(|()| ticket)
    }

    fn poll(&self, ticket: Ticket) -> Result<Option<Buffers>> {
        let mut table = self.process.table();
        let work = table.works.get_mut(&ticket).expect("the ticket is of a started operation");
        if !self.process.test(work)? {
            return Ok(None);
        }
        let work = table.works.remove(&ticket).expect("it was there");
        let input = if work.lent { Vec::new() } else { work.input };
        Ok(Some(Buffers::of(Input::Owned(input), work.result, work.returns_input)))
    }

    fn awaited(&self, ticket: Ticket) -> Vec<Awaited> {
        let table = self.process.table();
        let parts = table.works.get(&ticket).map_or(&[][..], |work| &work.requests);
        let ranks = parts.iter().filter_map(|(_, part)| match part {
            Part::Send { to } => Some(*to),
            Part::Receive { from, .. } => Some(*from),
            // MPI does not say whom a collective waits for.
            Part::Collective => None,
        });
        ranks.map(|rank| Awaited { rank, process: None, silent: None }).collect()
    }

    fn forget(&self, ticket: Ticket) {
        let mut table = self.process.table();
        if let Some(work) = table.works.get_mut(&ticket) {
            work.forgotten = true;
        }
        // What was forgotten and has ended since is freed.
        let mut kept = BTreeMap::new();
        for (ticket, mut work) in std::mem::take(&mut table.works) {
            let ended = work.forgotten && matches!(self.process.test(&mut work), Ok(true));
            if !ended {
                kept.insert(ticket, work);
            }
        }
        table.works = kept;
    }

    fn stamp(&self) -> u32 {
        0
    }

    fn pause(&self, _stamp: u32, turn: u32, until: Instant) {
        pause(turn, until);
    }

    fn next_context(&self) -> u32 {
        // MPI finds contexts by itself.
        0
    }

    fn split(&self, group: &Group) -> Result<Option<Arc<dyn Transport>>> {
        let calls = &self.process.functions;
        let own = |rank: &usize| *rank == self.rank;
        let color = match group.color.map(c_int::try_from) {
            None => UNDEFINED,
            Some(Ok(color)) => color,
            Some(Err(_)) => {
                let message = format!("color {} is too large for MPI", group.color.unwrap_or(0));
                return Err(Error::new(Kind::Argument, message).help("colors are below 2147483648"));
            }
        };
        let key = group.members.iter().position(own).unwrap_or(0) as c_int;
        let mut communicator = self.process.handles.no_request;
        let mut table = self.process.table();
        // SAFETY: all ranks call it after the exchange that made `group`. The handle is replaced.
        let status =
            unsafe { (calls.comm_split)(self.communicator, color, key, &mut communicator) };
        self.process.done("MPI_Comm_split", status)?;
        if group.color.is_none() {
            return Ok(None);
        }
        table.split.push(communicator);
        let (rank, size) = self.process.place(communicator)?;
        drop(table);
        assert_eq!((rank, size), (key as usize, group.members.len()), "MPI orders by key");
        let members = group.members.iter().map(|rank| self.members[*rank]).collect();
        Ok(Some(Arc::new(Mpi { process: self.process.clone(), communicator, rank, members })))
    }

    fn failed(&self, _: &Error) {
        self.process.has_failed.store(true, Ordering::Release);
    }

    fn abort(&self, status: i32) -> ! {
        let _table = self.process.table();
        // SAFETY: MPI is initialised. It ends the process, as a rule.
        unsafe { (self.process.functions.abort)(self.process.handles.world, status) };
        std::process::exit(status)
    }
}
