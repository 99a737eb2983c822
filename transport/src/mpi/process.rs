//! MPI in this process: calls of the library under a lock, and the operations under way.

use super::abi::{Abi, Handles, TEXT};
use super::functions::Functions;
use crate::error::{Error, Kind, Result};
use crate::transport::Ticket;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Pauses of one wait without sleep: the time of short exchanges.
const YIELDS: u32 = 200;
/// Pauses with a short sleep, after which long ones follow.
const SHORT_SLEEPS: u32 = 1000;

/// MPI in this process, which is initialised once.
pub(super) struct Process<A: Abi> {
    pub name: &'static str,
    pub functions: Functions<A>,
    pub handles: Handles<A::Handle>,
    /// Held for every call: MPI takes one at a time.
    pub table: Mutex<Table<A>>,
    pub has_failed: AtomicBool,
    pub timeout: Duration,
    /// Most bytes of one call.
    pub chunk: usize,
}

pub(super) struct Table<A: Abi> {
    pub works: BTreeMap<Ticket, Work<A>>,
    pub next: Ticket,
    /// Communicators that were split off, to be freed in this order on all ranks.
    pub split: Vec<A::Handle>,
}

/// An operation under way. MPI reads and writes its buffers until its requests have ended, so they
/// are not touched before, and never freed if they do not end.
pub(super) struct Work<A: Abi> {
    pub requests: Vec<(A::Handle, Part)>,
    pub input: Vec<u8>,
    pub result: Vec<u8>,
    /// Lists of numbers that MPI reads.
    pub lists: Vec<Vec<c_int>>,
    pub returns_input: bool,
    /// The input is a copy of lent bytes.
    pub lent: bool,
    pub forgotten: bool,
}

/// What a request is.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Send { to: usize },
    Receive { from: usize, len: usize },
    Collective,
}

impl<A: Abi> Process<A> {
    pub fn table(&self) -> MutexGuard<'_, Table<A>> {
        self.table.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Turns the status of a call into a result.
    pub fn done(&self, call: &str, status: c_int) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let (mut text, mut len) = (vec![0u8; TEXT], 0);
        // SAFETY: the buffer has the largest size that an interface asks for.
        let told =
            unsafe { (self.functions.error_string)(status, text.as_mut_ptr().cast(), &mut len) };
        text.truncate(if told == 0 { usize::try_from(len).unwrap_or(0) } else { 0 });
        let text = String::from_utf8_lossy(&text);
        // Some libraries give several lines.
        let text: Vec<&str> = text.trim_end_matches('\0').lines().map(str::trim_end).collect();
        let text = text.join("; ");
        let message = format!("{call} of {} fails with code {status}: {text}", self.name);
        Err(Error::new(Kind::Library, message)
            .help("all ranks have to be started by one launcher, with one library"))
    }

    /// Makes errors of a communicator results, and gives this rank and the number of ranks.
    pub fn place(&self, communicator: A::Handle) -> Result<(usize, usize)> {
        let calls = &self.functions;
        let (mut rank, mut size) = (0, 0);
        // SAFETY: MPI is initialised, and the handles are those of its interface.
        unsafe {
            let handler = self.handles.errors_return;
            let set = (calls.set_errhandler)(communicator, handler);
            self.done("MPI_Comm_set_errhandler", set)?;
            self.done("MPI_Comm_rank", (calls.comm_rank)(communicator, &mut rank))?;
            self.done("MPI_Comm_size", (calls.comm_size)(communicator, &mut size))?;
        }
        Ok((rank as usize, size as usize))
    }

    /// Tests all requests of a work once. True if none is left.
    pub fn test(&self, work: &mut Work<A>) -> Result<bool> {
        let mut at = 0;
        while at < work.requests.len() {
            let (request, part) = &mut work.requests[at];
            let (mut flag, mut status) = (0, A::STATUS);
            // SAFETY: the request is active, and the status has the layout of the interface.
            let code = unsafe { (self.functions.test)(request, &mut flag, &mut status) };
            if let Part::Receive { from, len } = *part
                && A::is_truncation(code)
            {
                return Err(wrong_length(from, len, "more"));
            }
            self.done("MPI_Test", code)?;
            if flag == 0 {
                at += 1;
                continue;
            }
            if let Part::Receive { from, len } = *part {
                let mut count = 0;
                // SAFETY: the status is that of a completed receive of bytes.
                let code =
                    unsafe { (self.functions.get_count)(&status, self.handles.byte, &mut count) };
                self.done("MPI_Get_count", code)?;
                if count as usize != len {
                    return Err(wrong_length(from, len, &count.to_string()));
                }
            }
            work.requests.swap_remove(at);
        }
        Ok(work.requests.is_empty())
    }

    /// Waits until all forgotten works have ended, or until a moment.
    fn settle(&self, until: Instant) -> Result<bool> {
        let mut turn = 0;
        loop {
            let mut table = self.table();
            let tickets: Vec<Ticket> = table.works.keys().copied().collect();
            for ticket in tickets {
                let work = table.works.get_mut(&ticket).expect("it is in the table");
                if self.test(work)? {
                    table.works.remove(&ticket);
                }
            }
            if table.works.is_empty() || Instant::now() >= until {
                return Ok(table.works.is_empty());
            }
            drop(table);
            pause(turn, until);
            turn += 1;
        }
    }

    /// Ends MPI, together with all other ranks.
    fn finalize(&self) -> Result<()> {
        let until = Instant::now() + self.timeout;
        if !self.settle(until)? {
            return Ok(());
        }
        let mut table = self.table();
        // SAFETY: MPI is initialised. The barrier shows that all ranks finalize now; without it,
        // `MPI_Finalize` could wait for ever.
        unsafe {
            let mut request = self.handles.no_request;
            let status = (self.functions.ibarrier)(self.handles.world, &mut request);
            self.done("MPI_Ibarrier", status)?;
            let (mut flag, mut turn) = (0, 0);
            while flag == 0 {
                let mut found = A::STATUS;
                let status = (self.functions.test)(&mut request, &mut flag, &mut found);
                self.done("MPI_Test", status)?;
                if flag == 0 && Instant::now() >= until {
                    return Ok(());
                }
                pause(turn, until);
                turn += 1;
            }
            for mut split in std::mem::take(&mut table.split) {
                self.done("MPI_Comm_free", (self.functions.comm_free)(&mut split))?;
            }
            self.done("MPI_Finalize", (self.functions.finalize)())
        }
    }
}

impl<A: Abi> Drop for Process<A> {
    fn drop(&mut self) {
        if !self.has_failed.load(Ordering::Acquire) && !std::thread::panicking() {
            // If it fails, the launcher reports that this rank has not finalized.
            let _ = self.finalize();
        }
        // MPI may still write to buffers of operations that have not ended.
        std::mem::forget(std::mem::take(&mut self.table().works));
    }
}

/// Stands for buffers without bytes. The address of an empty slice in Rust is a small number, which
/// Open MPI takes for `MPI_IN_PLACE`; MPICH refuses equal addresses of input and result.
static NOTHING: [u8; 2] = [0; 2];

/// The address of bytes that MPI reads.
pub(super) fn readable(bytes: &[u8]) -> *const c_void {
    let bytes = if bytes.is_empty() { &NOTHING[..1] } else { bytes };
    bytes.as_ptr().cast()
}

/// The address of bytes that MPI writes. If there are none, nothing is written.
pub(super) fn writable(bytes: &mut [u8]) -> *mut c_void {
    if bytes.is_empty() {
        return NOTHING[1..].as_ptr().cast_mut().cast();
    }
    bytes.as_mut_ptr().cast()
}

/// The error of a message of another length than its receive.
fn wrong_length(from: usize, wanted: usize, found: &str) -> Error {
    let message = format!("{wanted} bytes are expected from rank {from}, its message has {found}");
    Error::new(Kind::Mismatch, message)
        .help("sender and receiver give the same number of bytes")
        .about([from])
}

/// Sleeps for a time that grows with the number of pauses.
pub(super) fn pause(turn: u32, until: Instant) {
    let time = match turn {
        0..YIELDS => return std::thread::yield_now(),
        YIELDS..SHORT_SLEEPS => Duration::from_micros(20),
        _ => Duration::from_micros(500),
    };
    std::thread::sleep(time.min(until.saturating_duration_since(Instant::now())));
}
