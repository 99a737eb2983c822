//! The fake's stream: work stays in a queue until the host waits for it; a capture records it
//! instead.

use super::{
    CAPTURE_INVALIDATED, CAPTURE_UNSUPPORTED, Executor, INVALID_HANDLE, INVALID_VALUE, Kernel,
    Launched, NOT_READY, State, put, status, with,
};
use crate::ptx;
use cudarc::driver::sys::*;
use std::ffi::{c_uchar, c_uint, c_ulonglong, c_void};
use std::rc::Rc;

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
    },
    /// Work that another library put into the stream.
    Other(Rc<dyn Fn()>),
}

/// Pending work of a stream.
pub(super) enum Work {
    Node(Node),
    Graph(Vec<Node>),
    Record(usize),
}

impl State {
    fn on_device(&self, address: usize, bytes: usize) -> Result<(), u32> {
        let found = self.memory.range(..=address).next_back();
        let inside = found.is_some_and(|(start, length)| address + bytes <= start + length);
        if inside { Ok(()) } else { Err(INVALID_VALUE) }
    }

    pub(super) fn submit(&mut self, stream: CUstream, node: Node) -> Result<(), u32> {
        if !self.streams.contains(&(stream as usize)) {
            return Err(INVALID_HANDLE);
        }
        match &mut self.capture {
            Some(Ok(nodes)) => nodes.push(node),
            Some(Err(())) => return Err(CAPTURE_INVALIDATED),
            None => self.queue.push_back(Work::Node(node)),
        }
        Ok(())
    }
}

impl Node {
    /// Whether it accesses any of these bytes, as far as its addresses tell.
    fn uses(&self, start: usize, bytes: usize) -> bool {
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
            Work::Graph(nodes) => nodes.iter().any(|node| node.uses(start, bytes)),
            Work::Record(_) => false,
        };
        if self.queue.iter().any(uses) {
            self.violations
                .push(format!("{bytes} bytes at {start:#x} are freed while a stream uses them"));
        }
    }
}

fn run(node: Node) {
    match node {
        // SAFETY: the ranges were checked when the copy was enqueued; pinned and device memory
        // outlive the queue, since freeing flushes it.
        Node::Copy { to, from, bytes } => unsafe {
            std::ptr::copy(from as *const u8, to as *mut u8, bytes)
        },
        // SAFETY: as above.
        Node::Set { to, byte, bytes } => unsafe { (to as *mut u8).write_bytes(byte, bytes) },
        Node::Launch { launched, kernel, executor } => {
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

/// Does the first pending work; false if there is none.
fn step() -> bool {
    match with(|s| s.queue.pop_front()) {
        None => return false,
        Some(Work::Node(node)) => run(node),
        Some(Work::Graph(nodes)) => nodes.into_iter().for_each(run),
        Some(Work::Record(event)) => with(|s| {
            s.clock += 1;
            let clock = s.clock;
            s.events.entry(event).and_modify(|e| *e = clock);
        }),
    }
    true
}

/// Does all pending work.
pub(super) fn flush() {
    while step() {}
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
        s.streams.insert(handle);
        // SAFETY: an out-pointer of the API.
        unsafe { put(stream, handle as CUstream) };
        Ok(())
    }))
}

pub(super) extern "C" fn cuStreamDestroy_v2(stream: CUstream) -> u32 {
    flush();
    status(with(|s| {
        s.in_context("cuStreamDestroy_v2")?;
        if s.streams.remove(&(stream as usize)) { Ok(()) } else { Err(INVALID_HANDLE) }
    }))
}

pub(super) extern "C" fn cuStreamSynchronize(_stream: CUstream) -> u32 {
    let result = with(|s| {
        s.in_context("cuStreamSynchronize")?;
        s.outside_capture()
    });
    if result.is_ok() {
        flush();
    }
    status(result)
}

pub(super) extern "C" fn cuStreamBeginCapture_v2(
    _stream: CUstream,
    mode: CUstreamCaptureMode,
) -> u32 {
    status(with(|s| {
        s.in_context("cuStreamBeginCapture_v2")?;
        assert_eq!(mode, CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        if s.capture.is_some() {
            return Err(INVALID_VALUE);
        }
        s.capture = Some(Ok(Vec::new()));
        Ok(())
    }))
}

pub(super) unsafe extern "C" fn cuStreamEndCapture(_stream: CUstream, graph: *mut CUgraph) -> u32 {
    // SAFETY: an out-pointer of the API; a failed capture gives no graph.
    unsafe { put(graph, std::ptr::null_mut()) };
    status(with(|s| {
        s.in_context("cuStreamEndCapture")?;
        let nodes = s.capture.take().ok_or(INVALID_VALUE)?.map_err(|()| CAPTURE_INVALIDATED)?;
        let handle = s.handle();
        s.graphs.insert(handle, nodes);
        // SAFETY: an out-pointer of the API.
        unsafe { put(graph, handle as CUgraph) };
        Ok(())
    }))
}

pub(super) unsafe extern "C" fn cuEventCreate(event: *mut CUevent, _flags: c_uint) -> u32 {
    status(with(|s| {
        s.in_context("cuEventCreate")?;
        let handle = s.handle();
        s.events.insert(handle, 0);
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

pub(super) extern "C" fn cuEventRecord(event: CUevent, _stream: CUstream) -> u32 {
    status(with(|s| {
        s.in_context("cuEventRecord")?;
        if !s.events.contains_key(&(event as usize)) {
            return Err(INVALID_HANDLE);
        }
        s.queue.push_back(Work::Record(event as usize));
        Ok(())
    }))
}

fn pending(event: CUevent) -> bool {
    with(|s| s.queue.iter().any(|w| matches!(w, Work::Record(e) if *e == event as usize)))
}

pub(super) extern "C" fn cuEventSynchronize(event: CUevent) -> u32 {
    let result = with(|s| s.in_context("cuEventSynchronize"));
    // Only up to the event: tests must not depend on later work.
    while result.is_ok() && pending(event) {
        step();
    }
    status(result)
}

pub(super) unsafe extern "C" fn cuEventElapsedTime(
    milliseconds: *mut f32,
    start: CUevent,
    end: CUevent,
) -> u32 {
    status(with(|s| {
        s.in_context("cuEventElapsedTime")?;
        let time = |event: CUevent| s.events.get(&(event as usize)).copied().filter(|t| *t > 0);
        let (start, end) = (time(start).ok_or(NOT_READY)?, time(end).ok_or(NOT_READY)?);
        // SAFETY: an out-pointer of the API.
        unsafe { put(milliseconds, (end - start) as f32) };
        Ok(())
    }))
}

pub(super) unsafe extern "C" fn cuGraphInstantiateWithFlags(
    executable: *mut CUgraphExec,
    graph: CUgraph,
    _flags: c_ulonglong,
) -> u32 {
    status(with(|s| {
        s.in_context("cuGraphInstantiateWithFlags")?;
        let nodes = s.graphs.get(&(graph as usize)).cloned().ok_or(INVALID_HANDLE)?;
        let handle = s.handle();
        s.executables.insert(handle, nodes);
        // SAFETY: an out-pointer of the API.
        unsafe { put(executable, handle as CUgraphExec) };
        Ok(())
    }))
}

pub(super) extern "C" fn cuGraphUpload(executable: CUgraphExec, _stream: CUstream) -> u32 {
    status(with(|s| {
        s.in_context("cuGraphUpload")?;
        s.executables.get(&(executable as usize)).map(|_| ()).ok_or(INVALID_HANDLE)
    }))
}

pub(super) extern "C" fn cuGraphLaunch(executable: CUgraphExec, _stream: CUstream) -> u32 {
    status(with(|s| {
        s.in_context("cuGraphLaunch")?;
        if s.capture.is_some() {
            return Err(CAPTURE_UNSUPPORTED);
        }
        let nodes = s.executables.get(&(executable as usize)).cloned().ok_or(INVALID_HANDLE)?;
        s.queue.push_back(Work::Graph(nodes));
        Ok(())
    }))
}

pub(super) unsafe extern "C" fn cuGraphExecUpdate_v2(
    executable: CUgraphExec,
    graph: CUgraph,
    _result: *mut CUgraphExecUpdateResultInfo,
) -> u32 {
    const UPDATE_FAILURE: u32 = 910;
    status(with(|s| {
        s.in_context("cuGraphExecUpdate_v2")?;
        let nodes = s.graphs.get(&(graph as usize)).cloned().ok_or(INVALID_HANDLE)?;
        let old = s.executables.get_mut(&(executable as usize)).ok_or(INVALID_HANDLE)?;
        if old.len() != nodes.len() {
            return Err(UPDATE_FAILURE);
        }
        *old = nodes;
        Ok(())
    }))
}

pub(super) extern "C" fn cuGraphExecDestroy(executable: CUgraphExec) -> u32 {
    status(with(|s| {
        s.in_context("cuGraphExecDestroy")?;
        s.executables.remove(&(executable as usize)).map(|_| ()).ok_or(INVALID_HANDLE)
    }))
}

pub(super) extern "C" fn cuGraphDestroy(graph: CUgraph) -> u32 {
    status(with(|s| {
        s.in_context("cuGraphDestroy")?;
        s.graphs.remove(&(graph as usize)).map(|_| ()).ok_or(INVALID_HANDLE)
    }))
}

pub(super) unsafe extern "C" fn cuGraphGetNodes(
    graph: CUgraph,
    nodes: *mut CUgraphNode,
    count: *mut usize,
) -> u32 {
    status(with(|s| {
        s.in_context("cuGraphGetNodes")?;
        assert!(nodes.is_null(), "only the count is asked for");
        let number = s.graphs.get(&(graph as usize)).ok_or(INVALID_HANDLE)?.len();
        // SAFETY: an out-pointer of the API.
        unsafe { put(count, number) };
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
        // SAFETY: there is a pointer to a number for each parameter of the kernel.
        let arguments =
            (0..found.parameters).map(|n| unsafe { *(*arguments.add(n)).cast::<u64>() }).collect();
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
        s.submit(stream, Node::Launch { launched, kernel, executor })
    }))
}
