//! The fake's streams: work stays in a queue until the host waits for it; a capture records it
//! instead.
//!
//! The streams are as unordered as the real driver allows. Work of a stream is done only when the
//! host waits for it, or when work that must be done waits for an event after it. So a copy in one
//! stream overtakes all work of another one that no event puts in front of it. With
//! [`Fake::interleave`](super::Fake::interleave) the other streams go on at random moments, too.

use super::graph::{Exec, Nodes};
use super::nccl::{Group, wait_for_others};
use super::watch;
use super::{
    CAPTURE_INVALIDATED, Executor, INVALID_HANDLE, INVALID_VALUE, Kernel, Launched, NOT_READY,
    State, put, status, with,
};
use crate::ptx;
use cudarc::driver::sys::*;
use std::collections::VecDeque;
use std::ffi::{c_uchar, c_uint, c_void};
use std::rc::Rc;
use std::time::Instant;

/// A node of a stream or a graph.
#[derive(Clone)]
pub(super) enum Node {
    Copy {
        to: usize,
        from: usize,
        bytes: usize,
    },
    Set {
        to: usize,
        byte: u8,
        bytes: usize,
    },
    Launch {
        launched: Launched,
        kernel: Option<Kernel>,
        /// The kernel's executor, and the text of its module.
        executor: Option<(Executor, String)>,
        /// Whether it need not wait for the preceding kernels.
        early: bool,
    },
    /// Work that another library put into the stream.
    Other(Rc<dyn Fn()>),
}

/// Pending work of a stream.
pub(super) enum Work {
    Node(Node),
    Graph(Nodes<Exec>),
    /// An event, and how often it has been recorded with this one.
    Record(usize, u64),
    /// Waits until an event has been recorded so often, in that stream.
    Wait(usize, u64, usize),
    /// Sends to and receives from other ranks.
    Exchange(Rc<Group>),
    /// A node that must not change these ranges: start and bytes.
    Compared(Node, Vec<(usize, usize)>),
}

/// An event.
#[derive(Clone, Copy, Default)]
pub(super) struct Event {
    /// How often it was recorded, and how many of these records are done.
    recorded: u64,
    done: u64,
    /// The stream of the latest record.
    stream: usize,
    /// The time of the latest record that is done.
    time: u64,
}

impl State {
    pub(super) fn on_device(&self, address: usize, bytes: usize) -> Result<(), u32> {
        let found = self.memory.range(..=address).next_back();
        let inside = found.is_some_and(|(start, length)| address + bytes <= start + length);
        if inside { Ok(()) } else { Err(INVALID_VALUE) }
    }

    pub(super) fn submit(&mut self, stream: CUstream, node: Node) -> Result<(), u32> {
        let stream = stream as usize;
        if !self.streams.contains_key(&stream) {
            return Err(INVALID_HANDLE);
        }
        if self.capture.as_ref().is_some_and(|capture| capture.stream == stream) {
            return self.captured(node);
        }
        self.enqueue(stream, Work::Node(node))
    }

    pub(super) fn enqueue(&mut self, stream: usize, work: Work) -> Result<(), u32> {
        if !self.streams.contains_key(&stream) {
            return Err(INVALID_HANDLE);
        }
        let work = self.watched(stream, work);
        self.streams.get_mut(&stream).ok_or(INVALID_HANDLE)?.push_back(work);
        Ok(())
    }

    /// For calls that must not be made for a stream that is being captured.
    pub(super) fn not_captured(&mut self, stream: CUstream) -> Result<(), u32> {
        match &mut self.capture {
            Some(capture) if capture.stream == stream as usize => {
                capture.invalid = true;
                Err(CAPTURE_INVALIDATED)
            }
            _ => Ok(()),
        }
    }
}

impl Node {
    /// Whether it accesses any of these bytes, as far as its addresses tell.
    pub(super) fn uses(&self, start: usize, bytes: usize) -> bool {
        let within = |at: &usize| (start..start + bytes).contains(at);
        match self {
            Node::Copy { to, from, .. } => within(to) || within(from),
            Node::Set { to, .. } => within(to),
            Node::Launch { launched, .. } => {
                launched.arguments.iter().any(|a| within(&(*a as usize)))
            }
            Node::Other(_) => false,
        }
    }
}

impl State {
    /// Records a violation if pending work of a stream uses memory that is freed now.
    pub(super) fn not_in_use(&mut self, start: usize, bytes: Option<usize>) {
        let Some(bytes) = bytes else { return };
        let uses = |work: &Work| match work {
            Work::Node(node) => node.uses(start, bytes),
            Work::Graph(nodes) => nodes.uses(start, bytes),
            Work::Compared(node, _) => node.uses(start, bytes),
            Work::Exchange(group) => {
                let mut all = group.sources().into_iter().chain(group.targets());
                all.any(|(at, _)| (start..start + bytes).contains(&at))
            }
            Work::Record(..) | Work::Wait(..) => false,
        };
        if self.streams.values().flatten().any(uses) {
            self.violations
                .push(format!("{bytes} bytes at {start:#x} are freed while a stream uses them"));
        }
    }
}

pub(super) fn run(node: Node) {
    match node {
        // SAFETY: the ranges were checked when the copy was enqueued; pinned and device memory
        // outlive the queue, since freeing flushes it.
        Node::Copy { to, from, bytes } => unsafe {
            std::ptr::copy(from as *const u8, to as *mut u8, bytes)
        },
        // SAFETY: as above.
        Node::Set { to, byte, bytes } => unsafe { (to as *mut u8).write_bytes(byte, bytes) },
        Node::Launch { launched, kernel, executor, .. } => {
            let Launched { name, grid, block, shared, arguments } = &launched;
            with(|s| s.launches.push(format!("{name} {grid:?} {block:?} {shared}")));
            match (kernel, executor) {
                (Some(kernel), _) => kernel(*grid, *block, *shared, arguments),
                (None, Some((executor, text))) => executor(&text, &launched),
                (None, None) => {}
            }
        }
        Node::Other(work) => work(),
    }
}

/// How far a stream has gone.
enum Progress {
    /// It has done some work.
    Done,
    /// It has no work.
    Empty,
    /// It, or a stream that it waits for, waits for other ranks.
    Waits(Rc<Group>),
}

/// Does the first pending work of a stream, and all work before it that an event demands; false
/// if there is none. Waits for other ranks.
fn step(stream: usize) -> bool {
    let since = Instant::now();
    loop {
        match advance(stream) {
            Progress::Done => return true,
            Progress::Empty => return false,
            Progress::Waits(group) => wait_for_others(&group, since),
        }
    }
}

/// [`step`] without waiting for other ranks.
fn advance(stream: usize) -> Progress {
    // A wait stays in the queue until its event is done, so nothing after it goes on before.
    // Meanwhile the stream may go on at a random moment, up to another wait.
    while let Some((event, number, other)) = with(|s| s.blocked(stream)) {
        while with(|s| s.is_pending(event, number)) {
            interleave();
            match advance(other) {
                Progress::Done => {}
                // The event was destroyed: all work of its stream is done.
                Progress::Empty => break,
                waits => return waits,
            }
        }
        if with(|s| s.is_pending(event, number)) {
            break;
        }
    }
    let exchange = with(|s| match s.streams.get(&stream).and_then(VecDeque::front) {
        Some(Work::Exchange(group)) => Some(group.clone()),
        _ => None,
    });
    if let Some(group) = exchange.filter(|group| !group.advance()) {
        return Progress::Waits(group);
    }
    match with(|s| s.streams.get_mut(&stream).and_then(VecDeque::pop_front)) {
        None => return Progress::Empty,
        Some(Work::Node(node)) => run(node),
        Some(Work::Compared(node, ranges)) => watch::run(node, &ranges),
        Some(Work::Graph(nodes)) => nodes.run(),
        Some(Work::Record(event, number)) => with(|s| {
            s.clock += 1;
            let clock = s.clock;
            s.events.entry(event).and_modify(|e| {
                e.done = number;
                e.time = clock;
            });
        }),
        Some(Work::Wait(..) | Work::Exchange(_)) => {}
    }
    Progress::Done
}

/// Lets a stream go on that is not waited for, at a random moment, up to an event that holds it
/// back.
fn interleave() {
    let Some((stream, most)) = with(State::interleaved) else { return };
    for _ in 0..most {
        let is_blocked = with(|s| s.blocked(stream)).is_some();
        if is_blocked || !matches!(advance(stream), Progress::Done) {
            return;
        }
    }
}

impl State {
    /// The event that holds back a stream: its number of records, and their stream.
    fn blocked(&self, stream: usize) -> Option<(usize, u64, usize)> {
        let Some(Work::Wait(event, number, other)) = self.streams.get(&stream)?.front() else {
            return None;
        };
        let done = self.events.get(event).is_some_and(|e| e.done >= *number);
        (!done).then_some((*event, *number, *other))
    }

    /// Whether an event has not been recorded so often, or does not exist.
    fn is_pending(&self, event: usize, number: u64) -> bool {
        self.events.get(&event).is_none_or(|e| e.done < number)
    }
}

/// Works in a stream until an event has been recorded so often. For an event that was destroyed,
/// all work of the stream is done.
fn until(event: usize, number: u64, stream: usize) {
    while with(|s| s.is_pending(event, number)) {
        interleave();
        if !step(stream) {
            return;
        }
    }
}

/// Does all pending work of a stream.
fn flush_stream(stream: usize) {
    while step(stream) {
        interleave();
    }
}

/// Does all pending work.
pub(super) fn flush() {
    let streams: Vec<usize> = with(|s| s.streams.keys().copied().collect());
    streams.into_iter().for_each(flush_stream);
}

pub(super) unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: CUdeviceptr,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> u32 {
    status(with(|s| {
        s.in_context("cuMemcpyHtoDAsync_v2")?;
        s.on_device(to as usize, bytes)?;
        s.submit(stream, Node::Copy { to: to as usize, from: from as usize, bytes })
    }))
}

pub(super) unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> u32 {
    status(with(|s| {
        s.in_context("cuMemcpyDtoHAsync_v2")?;
        s.on_device(from as usize, bytes)?;
        s.submit(stream, Node::Copy { to: to as usize, from: from as usize, bytes })
    }))
}

pub(super) extern "C" fn cuMemcpyDtoDAsync_v2(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> u32 {
    status(with(|s| {
        s.in_context("cuMemcpyDtoDAsync_v2")?;
        s.on_device(from as usize, bytes)?;
        s.on_device(to as usize, bytes)?;
        s.submit(stream, Node::Copy { to: to as usize, from: from as usize, bytes })
    }))
}

pub(super) extern "C" fn cuMemsetD8Async(
    to: CUdeviceptr,
    byte: c_uchar,
    bytes: usize,
    stream: CUstream,
) -> u32 {
    status(with(|s| {
        s.in_context("cuMemsetD8Async")?;
        s.on_device(to as usize, bytes)?;
        s.submit(stream, Node::Set { to: to as usize, byte, bytes })
    }))
}

pub(super) unsafe extern "C" fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> u32 {
    status(with(|s| {
        s.in_context("cuStreamCreate")?;
        assert_eq!(flags, CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32);
        let handle = s.handle();
        s.streams.insert(handle, Default::default());
        // SAFETY: an out-pointer of the API.
        unsafe { put(stream, handle as CUstream) };
        Ok(())
    }))
}

pub(super) extern "C" fn cuStreamDestroy_v2(stream: CUstream) -> u32 {
    flush_stream(stream as usize);
    status(with(|s| {
        s.in_context("cuStreamDestroy_v2")?;
        s.streams.remove(&(stream as usize)).map(|_| ()).ok_or(INVALID_HANDLE)
    }))
}

pub(super) extern "C" fn cuStreamSynchronize(stream: CUstream) -> u32 {
    let result = with(|s| {
        s.in_context("cuStreamSynchronize")?;
        s.outside_capture()
    });
    if result.is_ok() {
        flush_stream(stream as usize);
        with(|s| s.watch.synchronised(stream as usize));
    }
    status(result)
}

pub(super) extern "C" fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) -> u32 {
    status(with(|s| {
        s.in_context("cuStreamWaitEvent")?;
        s.not_captured(stream)?;
        assert_eq!(flags, 0);
        let known = *s.events.get(&(event as usize)).ok_or(INVALID_HANDLE)?;
        // An event that was never recorded is not waited for.
        if known.recorded == 0 {
            return Ok(());
        }
        s.waits += 1;
        if s.skips.as_ref().is_some_and(|skips| skips(s.waits - 1)) {
            return Ok(());
        }
        let wait = Work::Wait(event as usize, known.recorded, known.stream);
        s.enqueue(stream as usize, wait)
    }))
}

pub(super) unsafe extern "C" fn cuEventCreate(event: *mut CUevent, _flags: c_uint) -> u32 {
    status(with(|s| {
        s.in_context("cuEventCreate")?;
        let handle = s.handle();
        s.events.insert(handle, Event::default());
        // SAFETY: an out-pointer of the API.
        unsafe { put(event, handle as CUevent) };
        Ok(())
    }))
}

pub(super) extern "C" fn cuEventDestroy_v2(event: CUevent) -> u32 {
    status(with(|s| {
        s.in_context("cuEventDestroy_v2")?;
        s.events.remove(&(event as usize)).map(|_| ()).ok_or(INVALID_HANDLE)
    }))
}

pub(super) extern "C" fn cuEventRecord(event: CUevent, stream: CUstream) -> u32 {
    status(with(|s| {
        s.in_context("cuEventRecord")?;
        s.not_captured(stream)?;
        let known = s.events.get_mut(&(event as usize)).ok_or(INVALID_HANDLE)?;
        known.recorded += 1;
        known.stream = stream as usize;
        let record = Work::Record(event as usize, known.recorded);
        s.enqueue(stream as usize, record)
    }))
}

pub(super) extern "C" fn cuEventSynchronize(event: CUevent) -> u32 {
    let result = with(|s| {
        s.in_context("cuEventSynchronize")?;
        s.events.get(&(event as usize)).copied().ok_or(INVALID_HANDLE)
    });
    // Only up to the event: tests must not depend on later work.
    if let Ok(known) = result {
        until(event as usize, known.recorded, known.stream);
        with(|s| s.watch.passed(event as usize));
    }
    status(result.map(|_| ()))
}

pub(super) extern "C" fn cuEventQuery(event: CUevent) -> u32 {
    let known = with(|s| {
        s.in_context("cuEventQuery")?;
        s.events.get(&(event as usize)).copied().ok_or(INVALID_HANDLE)
    });
    // The device works while the host asks.
    status(known.and_then(|known| {
        while with(|s| s.is_pending(event as usize, known.recorded)) {
            interleave();
            if !matches!(advance(known.stream), Progress::Done) {
                return Err(NOT_READY);
            }
        }
        with(|s| s.watch.passed(event as usize));
        Ok(())
    }))
}

pub(super) unsafe extern "C" fn cuEventElapsedTime(
    milliseconds: *mut f32,
    start: CUevent,
    end: CUevent,
) -> u32 {
    status(with(|s| {
        s.in_context("cuEventElapsedTime")?;
        let time = |event: CUevent| {
            s.events.get(&(event as usize)).map(|e| e.time).filter(|time| *time > 0)
        };
        let (start, end) = (time(start).ok_or(NOT_READY)?, time(end).ok_or(NOT_READY)?);
        // SAFETY: an out-pointer of the API.
        unsafe { put(milliseconds, (end - start) as f32) };
        Ok(())
    }))
}

pub(super) unsafe extern "C" fn cuLaunchKernelEx(
    config: *const CUlaunchConfig,
    function: CUfunction,
    arguments: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> u32 {
    status(with(|s| {
        s.in_context("cuLaunchKernelEx")?;
        // SAFETY: a valid description of the API.
        let config = unsafe { &*config };
        let found = s.functions.get(&(function as usize)).ok_or(INVALID_HANDLE)?;
        let (grid, block) = (
            [config.gridDimX, config.gridDimY, config.gridDimZ],
            [config.blockDimX, config.blockDimY, config.blockDimZ],
        );
        let (shared, stream) = (config.sharedMemBytes, config.hStream);
        let fits = shared as i32 <= found.max_shared && block.iter().product::<u32>() <= 1024;
        if !fits || grid.contains(&0) || block.contains(&0) {
            return Err(INVALID_VALUE);
        }
        let parameters = found.parameters.iter().enumerate();
        let arguments = parameters
            .flat_map(|(n, count)| {
                // SAFETY: there is a pointer to the numbers of each parameter of the kernel.
                unsafe { std::slice::from_raw_parts((*arguments.add(n)).cast::<u64>(), *count) }
            })
            .copied()
            .collect();
        let name = found.name.clone();
        let kernel = s.kernels.get(&name).cloned();
        let text = s.modules.get(&found.module).cloned().ok_or(INVALID_HANDLE)?;
        let early = config.numAttrs > 0;
        assert!(
            !early || text.contains(ptx::Kernel::WAIT),
            "`{name}` is launched early and does not wait"
        );
        s.early += usize::from(early);
        let executor = s.executor.clone().map(|e| (e, text));
        let launched = Launched { name, grid, block, shared, arguments };
        s.submit(stream, Node::Launch { launched, kernel, executor, early })
    }))
}
