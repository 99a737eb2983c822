//! A driver made of Rust functions on the host's memory, for tests of everything above
//! [`super::api`].
//!
//! It is as strict as the real driver. Handles are checked, and contexts must be current. A stream
//! does its work *lazily* (at a wait, not at the call), so that memory reused too early is
//! detected, and only events order the streams (`stream`). Conditional nodes of graphs are
//! executed (`graph`). Ranks exchange bytes (`nccl`), and the order of all that uses these is
//! watched (`watch`). Waiting during a capture invalidates the capture. Memory is bounded.
//! Everything that was created must be destroyed ([`Fake::nothing_left`]). Any call can be made to
//! fail ([`Fake::fail`]). Each thread has a driver of its own.

mod graph;
mod lt;
mod nccl;
mod stream;
mod watch;

use graph::{Exec, Nodes};
use stream::{Event, Work};

use super::api::{ConditionalApi, Driver, DriverApi};
use super::blas::Lt;
use super::context::Device;
use super::nccl::Nccl;
use cudarc::driver::sys::*;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// Bytes of memory of a fake GPU.
const MEMORY: usize = 64 << 20;
const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const INVALID_CONTEXT: u32 = 201;
const INVALID_PTX: u32 = 218;
const INVALID_HANDLE: u32 = 400;
const NOT_FOUND: u32 = 500;
const NOT_READY: u32 = 600;
const NOT_SUPPORTED: u32 = 801;
const CAPTURE_UNSUPPORTED: u32 = 900;
const CAPTURE_INVALIDATED: u32 = 901;

/// Implementation of a kernel: grid, block, bytes of dynamic shared memory, arguments.
pub type Kernel = Rc<dyn Fn([u32; 3], [u32; 3], u32, &[u64])>;

/// Runs the kernels without a [`Kernel`], given the module's PTX and the launch.
pub type Executor = Rc<dyn Fn(&str, &Launched)>;

/// A launch of a kernel.
#[derive(Clone)]
pub struct Launched {
    /// The kernel.
    pub name: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Arguments.
    pub arguments: Vec<u64>,
}

/// A kernel of a loaded module.
struct Function {
    module: usize,
    name: String,
    /// Numbers of 64 bits of each parameter.
    parameters: Vec<usize>,
    max_shared: c_int,
}

#[derive(Default)]
pub(super) struct State {
    calls: Vec<&'static str>,
    /// For each function of the API: the number of calls that still succeed, and the error code of
    /// the call after them.
    failures: BTreeMap<&'static str, VecDeque<(usize, u32)>>,
    next: usize,
    /// For each GPU: how often its primary context is retained, and how often it was created.
    retained: [i64; 2],
    made: [usize; 2],
    current: bool,
    /// Bytes of each allocation by its address: of the device, and pinned memory of the host.
    memory: BTreeMap<usize, usize>,
    pinned: BTreeMap<usize, usize>,
    /// The pending work of each stream.
    streams: BTreeMap<usize, VecDeque<Work>>,
    /// Whether an order between streams is left out, by its number.
    skips: Option<Rc<dyn Fn(usize) -> bool>>,
    waits: usize,
    /// State of the random moments at which other streams go on; 0 if they do not.
    interleaving: u64,
    capture: Option<graph::Capture>,
    events: BTreeMap<usize, Event>,
    graphs: BTreeMap<usize, graph::Graph>,
    /// Graphs that are not a capture's own.
    created: BTreeSet<usize>,
    /// The list of bodies of each conditional node.
    body_lists: BTreeMap<usize, Vec<usize>>,
    /// The value of each condition, by its address.
    conditions: BTreeMap<u64, Box<u32>>,
    executables: BTreeMap<usize, Nodes<Exec>>,
    /// The CUDA version of the driver, as [`Driver::version`].
    version: u32,
    modules: BTreeMap<usize, String>,
    functions: BTreeMap<usize, Function>,
    /// Options of the last compilation.
    jit_options: Vec<(CUjit_option, usize)>,
    /// Seconds that a real driver would have taken to compile.
    modelled_seconds: f64,
    kernels: BTreeMap<String, Kernel>,
    launches: Vec<String>,
    /// Number of launches that need not wait for the preceding kernels.
    early: usize,
    executor: Option<Executor>,
    clock: u64,
    /// Memory that was freed while work in a stream still used it.
    violations: Vec<String>,
    lt: lt::LtState,
    nccl: nccl::NcclState,
    watch: watch::Watch,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

fn with<T>(f: impl FnOnce(&mut State) -> T) -> T {
    STATE.with(|s| f(&mut s.borrow_mut()))
}

impl State {
    fn handle(&mut self) -> usize {
        self.next += 16;
        0x10_0000 + self.next
    }

    fn used(&self) -> usize {
        self.memory.values().sum()
    }

    /// Logs the call, and returns the failure that a test has requested.
    fn enter(&mut self, call: &'static str) -> Result<(), u32> {
        self.calls.push(call);
        let Some(queue) = self.failures.get_mut(call) else { return Ok(()) };
        match queue.front_mut() {
            Some((0, code)) => {
                let code = *code;
                queue.pop_front();
                Err(code)
            }
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn in_context(&mut self, call: &'static str) -> Result<(), u32> {
        self.enter(call)?;
        if self.current { Ok(()) } else { Err(INVALID_CONTEXT) }
    }

    /// For calls that are not allowed during a capture.
    fn outside_capture(&mut self) -> Result<(), u32> {
        match &mut self.capture {
            Some(capture) => {
                capture.invalid = true;
                Err(CAPTURE_UNSUPPORTED)
            }
            None => Ok(()),
        }
    }
}

impl State {
    /// A stream that goes on now, at a random moment, and the most steps that it takes.
    fn interleaved(&mut self) -> Option<(usize, usize)> {
        if self.interleaving == 0 || self.streams.is_empty() {
            return None;
        }
        self.interleaving =
            self.interleaving.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let random = (self.interleaving >> 33) as usize;
        let stream = self.streams.keys().nth(random / 16 % self.streams.len());
        stream.copied().map(|stream| (stream, random % 16))
    }
}

fn status(result: Result<(), u32>) -> u32 {
    result.err().unwrap_or(0)
}

/// The fake driver of this thread.
pub struct Fake(());

impl Fake {
    /// Installs a new fake driver.
    pub fn new() -> Fake {
        Fake::of_version(13_000)
    }

    /// Installs a new fake driver of a CUDA version.
    pub fn of_version(version: u32) -> Fake {
        with(|s| *s = State { version, ..State::default() });
        Fake(())
    }

    /// The installed fake driver, unchanged.
    pub fn current() -> Fake {
        Fake(())
    }

    /// Its functions.
    pub fn driver(&self) -> Arc<Driver> {
        let lt = OnceLock::from(Ok(Arc::new(self.lt())));
        let version = with(|s| s.version);
        let conditional = match version >= 12_030 {
            true => Ok(conditional_api()),
            false => Err("it lacks cuGraphConditionalHandleCreate".into()),
        };
        let nccl = OnceLock::from(Ok(Arc::new(self.nccl())));
        Arc::new(Driver { api: api(), path: "fake".into(), version, conditional, lt, nccl })
    }

    /// Leaves out the orders between streams that have these numbers, from 0.
    pub fn skip_waits(&self, skips: impl Fn(usize) -> bool + 'static) {
        with(|s| s.skips = Some(Rc::new(skips)));
    }

    /// Lets streams that are not waited for go on at random moments.
    pub fn interleave(&self, seed: u64) {
        with(|s| s.interleaving = seed);
    }

    /// Its first device, open.
    pub fn device(&self) -> Device {
        Device::open_with(self.driver(), 0).expect("the fake opens")
    }

    /// Makes the next call of this function fail.
    pub fn fail(&self, call: &'static str, code: u32) {
        self.fail_after(call, 0, code);
    }

    /// Lets `successes` more calls of this function succeed, and makes the next one fail.
    pub fn fail_after(&self, call: &'static str, successes: usize, code: u32) {
        with(|s| s.failures.entry(call).or_default().push_back((successes, code)));
    }

    /// A fake cuBLASLt, which works in the fake driver's streams.
    pub fn lt(&self) -> Lt {
        lt::library()
    }

    /// A fake NCCL, whose ranks are the fake drivers of the threads of this process.
    pub fn nccl(&self) -> Nccl {
        nccl::library()
    }

    /// Removes and returns what breaks a rule of the driver or NCCL, and goes on.
    pub fn violations(&self) -> Vec<String> {
        with(|s| std::mem::take(&mut s.violations))
    }

    /// Sets the implementation of a kernel. A kernel without implementation and executor does
    /// nothing.
    pub fn kernel(&self, name: &str, kernel: impl Fn([u32; 3], [u32; 3], u32, &[u64]) + 'static) {
        with(|s| s.kernels.insert(name.into(), Rc::new(kernel)));
    }

    /// Sets the executor of kernels without an implementation.
    pub fn executor(&self, executor: impl Fn(&str, &Launched) + 'static) {
        with(|s| s.executor = Some(Rc::new(executor)));
    }

    /// Lets the stream's clock advance: the time that a kernel takes.
    pub fn spend(ticks: u64) {
        with(|s| s.clock += ticks);
    }

    /// Allocations of the device and the values of conditions: address and bytes.
    pub fn allocations() -> Vec<(u64, usize)> {
        with(|s| {
            let memory = s.memory.iter().map(|(address, bytes)| (*address as u64, *bytes));
            let mut all: Vec<_> = memory.chain(s.conditions.keys().map(|at| (*at, 4))).collect();
            all.sort_unstable();
            all
        })
    }

    /// Sets the value of a condition, for kernels of tests.
    pub fn set_condition(handle: u64, value: u32) {
        with(|s| **s.conditions.get_mut(&handle).expect("a condition") = value);
    }

    /// How often the primary context of each GPU was made.
    pub fn contexts_made(&self) -> [usize; 2] {
        with(|s| s.made)
    }

    /// Options of the last compilation, without the buffer for errors.
    pub fn jit_options(&self) -> Vec<(CUjit_option, usize)> {
        with(|s| s.jit_options.clone())
    }

    /// Seconds that a real driver would have taken to compile the modules so far.
    pub fn modelled_seconds(&self) -> f64 {
        with(|s| s.modelled_seconds)
    }

    /// Number of calls so far.
    pub fn calls(&self) -> usize {
        with(|s| s.calls.iter().filter(|c| **c != "cuCtxSetCurrent").count())
    }

    /// Number of calls of a function so far.
    pub fn count(&self, call: &str) -> usize {
        with(|s| s.calls.iter().filter(|c| **c == call).count())
    }

    /// Number of launches that need not wait for the preceding kernels.
    pub fn early(&self) -> usize {
        with(|s| s.early)
    }

    /// Kernels that ran, in order, with grid, block, shared memory.
    pub fn launches(&self) -> Vec<String> {
        with(|s| s.launches.clone())
    }

    /// Asserts that everything that was created is destroyed.
    pub fn nothing_left(&self) {
        with(|s| {
            assert_eq!(s.retained, [0; 2], "contexts");
            assert!(s.violations.is_empty(), "{:?}", s.violations);
            assert!(s.memory.is_empty() && s.pinned.is_empty(), "memory");
            assert!(s.streams.is_empty() && s.events.is_empty(), "streams and events");
            assert!(s.root_graphs() == 0 && s.executables.is_empty(), "graphs");
            assert!(s.modules.is_empty() && s.functions.is_empty(), "modules");
            assert!(s.lt.is_empty(), "descriptors of cuBLASLt");
            assert!(s.nccl.is_empty(), "communicators");
        });
    }
}

/// Bytes of the fake device's memory, for kernels of tests.
pub fn bytes_at<'a>(address: u64, bytes: usize) -> &'a mut [u8] {
    // SAFETY: tests name allocations of the fake device, which is memory of this process, and
    // hold one such slice at a time.
    unsafe { std::slice::from_raw_parts_mut(address as *mut u8, bytes) }
}

/// Writes through an out-pointer of the API.
///
/// # Safety
/// The pointer is valid for a write.
unsafe fn put<T>(to: *mut T, value: T) {
    // SAFETY: the caller guarantees it.
    unsafe { to.write(value) };
}

fn api() -> DriverApi {
    type Text = unsafe extern "C" fn(CUresult, *mut *const c_char) -> u32;
    type Number = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
    // SAFETY: `CUresult` is `repr(u32)`; these are called with numbers only.
    let (name, text) = unsafe {
        (
            std::mem::transmute::<Number, Text>(error_name),
            std::mem::transmute::<Number, Text>(error_string),
        )
    };
    DriverApi {
        cuInit,
        cuDriverGetVersion,
        cuGetErrorName: name,
        cuGetErrorString: text,
        cuDeviceGetCount,
        cuDeviceGet,
        cuDeviceGetName,
        cuDeviceGetAttribute,
        cuDeviceTotalMem_v2,
        cuDevicePrimaryCtxRetain,
        cuDevicePrimaryCtxRelease_v2,
        cuCtxSetCurrent,
        cuMemGetInfo_v2,
        cuMemAlloc_v2,
        cuMemFree_v2,
        cuMemHostAlloc,
        cuMemFreeHost,
        cuMemcpyHtoDAsync_v2: stream::cuMemcpyHtoDAsync_v2,
        cuMemcpyDtoHAsync_v2: stream::cuMemcpyDtoHAsync_v2,
        cuMemcpyDtoDAsync_v2: stream::cuMemcpyDtoDAsync_v2,
        cuMemsetD8Async: stream::cuMemsetD8Async,
        cuStreamCreate: stream::cuStreamCreate,
        cuStreamDestroy_v2: stream::cuStreamDestroy_v2,
        cuStreamSynchronize: stream::cuStreamSynchronize,
        cuStreamWaitEvent: stream::cuStreamWaitEvent,
        cuStreamBeginCapture_v2: graph::cuStreamBeginCapture_v2,
        cuStreamEndCapture: graph::cuStreamEndCapture,
        cuEventCreate: stream::cuEventCreate,
        cuEventDestroy_v2: stream::cuEventDestroy_v2,
        cuEventRecord: stream::cuEventRecord,
        cuEventQuery: stream::cuEventQuery,
        cuEventSynchronize: stream::cuEventSynchronize,
        cuEventElapsedTime: stream::cuEventElapsedTime,
        cuGraphInstantiateWithFlags: graph::cuGraphInstantiateWithFlags,
        cuGraphUpload: graph::cuGraphUpload,
        cuGraphLaunch: graph::cuGraphLaunch,
        cuGraphExecUpdate_v2: graph::cuGraphExecUpdate_v2,
        cuGraphExecDestroy: graph::cuGraphExecDestroy,
        cuGraphDestroy: graph::cuGraphDestroy,
        cuGraphGetNodes: graph::cuGraphGetNodes,
        cuModuleLoadDataEx,
        cuModuleUnload,
        cuModuleGetFunction,
        cuFuncGetAttribute,
        cuFuncSetAttribute,
        cuLaunchKernelEx: stream::cuLaunchKernelEx,
    }
}

fn conditional_api() -> ConditionalApi {
    ConditionalApi {
        cuGraphCreate: graph::cuGraphCreate,
        cuStreamBeginCaptureToGraph: graph::cuStreamBeginCaptureToGraph,
        cuStreamGetCaptureInfo_v3: graph::cuStreamGetCaptureInfo_v3,
        cuGraphConditionalHandleCreate: graph::cuGraphConditionalHandleCreate,
        cuGraphAddNode_v2: graph::cuGraphAddNode_v2,
    }
}

unsafe extern "C" fn error_name(code: u32, text: *mut *const c_char) -> u32 {
    let name: &CStr = match code {
        INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
        100 => c"CUDA_ERROR_NO_DEVICE",
        INVALID_PTX => c"CUDA_ERROR_INVALID_PTX",
        700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        CAPTURE_UNSUPPORTED => c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        CAPTURE_INVALIDATED => c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        999 => c"CUDA_ERROR_UNKNOWN",
        _ => return INVALID_VALUE,
    };
    // SAFETY: an out-pointer of the API.
    unsafe { put(text, name.as_ptr()) };
    0
}

unsafe extern "C" fn error_string(_code: u32, text: *mut *const c_char) -> u32 {
    // SAFETY: an out-pointer of the API.
    unsafe { put(text, c"a failure that the test requested".as_ptr()) };
    0
}

extern "C" fn cuInit(_flags: c_uint) -> u32 {
    status(with(|s| s.enter("cuInit")))
}

unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> u32 {
    // SAFETY: an out-pointer of the API.
    unsafe { put(version, with(|s| s.version) as c_int) };
    0
}

unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> u32 {
    // SAFETY: an out-pointer of the API.
    unsafe { put(count, 2) };
    status(with(|s| s.enter("cuDeviceGetCount")))
}

unsafe extern "C" fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> u32 {
    // SAFETY: an out-pointer of the API.
    unsafe { put(device, ordinal) };
    status(with(|s| s.enter("cuDeviceGet")))
}

unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, _device: CUdevice) -> u32 {
    assert!(length >= 9);
    // SAFETY: the buffer has `length` bytes.
    unsafe { std::ptr::copy_nonoverlapping(c"Fake GPU".as_ptr(), name, 9) };
    status(with(|s| s.enter("cuDeviceGetName")))
}

unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: CUdevice_attribute,
    _: CUdevice,
) -> u32 {
    use CUdevice_attribute_enum as A;
    let number = match attribute {
        A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => 9,
        A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => 0,
        A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => 132,
        A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => 227 << 10,
        _ => return INVALID_VALUE,
    };
    // SAFETY: an out-pointer of the API.
    unsafe { put(value, number) };
    status(with(|s| s.enter("cuDeviceGetAttribute")))
}

unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, _device: CUdevice) -> u32 {
    // SAFETY: an out-pointer of the API.
    unsafe { put(bytes, MEMORY) };
    0
}

unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> u32 {
    // SAFETY: an out-pointer of the API.
    unsafe { put(context, (0x1000 + device as usize) as CUcontext) };
    status(with(|s| {
        s.enter("cuDevicePrimaryCtxRetain")?;
        let of = device as usize;
        s.made[of] += usize::from(s.retained[of] == 0);
        s.retained[of] += 1;
        Ok(())
    }))
}

extern "C" fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> u32 {
    with(|s| s.retained[device as usize] -= 1);
    0
}

extern "C" fn cuCtxSetCurrent(context: CUcontext) -> u32 {
    status(with(|s| {
        s.enter("cuCtxSetCurrent")?;
        s.current = !context.is_null();
        Ok(())
    }))
}

unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> u32 {
    status(with(|s| {
        s.in_context("cuMemGetInfo_v2")?;
        // SAFETY: out-pointers of the API.
        unsafe { (put(free, MEMORY - s.used()), put(total, MEMORY)) };
        Ok(())
    }))
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 256).expect("bounded by the fake's memory")
}

unsafe extern "C" fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) -> u32 {
    status(with(|s| {
        s.in_context("cuMemAlloc_v2")?;
        s.outside_capture()?;
        if bytes == 0 || s.used() + bytes > MEMORY {
            return Err(if bytes == 0 { INVALID_VALUE } else { OUT_OF_MEMORY });
        }
        // SAFETY: the layout is not empty; `address` is an out-pointer of the API.
        unsafe {
            let memory = alloc_zeroed(layout(bytes));
            // Memory of a device is not zeroed, so code that relies on zeros must fail.
            memory.write_bytes(0xCD, bytes);
            s.memory.insert(memory as usize, bytes);
            put(address, memory as CUdeviceptr);
        }
        Ok(())
    }))
}

extern "C" fn cuMemFree_v2(address: CUdeviceptr) -> u32 {
    with(|s| s.not_in_use(address as usize, s.memory.get(&(address as usize)).copied()));
    stream::flush();
    status(with(|s| {
        s.in_context("cuMemFree_v2")?;
        let bytes = s.memory.remove(&(address as usize)).ok_or(INVALID_VALUE)?;
        // SAFETY: allocated above with this layout, freed once.
        unsafe { dealloc(address as *mut u8, layout(bytes)) };
        Ok(())
    }))
}

unsafe extern "C" fn cuMemHostAlloc(memory: *mut *mut c_void, bytes: usize, _flags: c_uint) -> u32 {
    status(with(|s| {
        s.in_context("cuMemHostAlloc")?;
        s.outside_capture()?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the layout is not empty; `memory` is an out-pointer of the API.
        unsafe {
            let address = alloc_zeroed(layout(bytes));
            s.pinned.insert(address as usize, bytes);
            put(memory, address.cast());
        }
        Ok(())
    }))
}

extern "C" fn cuMemFreeHost(memory: *mut c_void) -> u32 {
    with(|s| s.not_in_use(memory as usize, s.pinned.get(&(memory as usize)).copied()));
    stream::flush();
    status(with(|s| {
        s.in_context("cuMemFreeHost")?;
        let bytes = s.pinned.remove(&(memory as usize)).ok_or(INVALID_VALUE)?;
        // SAFETY: allocated above with this layout, freed once.
        unsafe { dealloc(memory.cast(), layout(bytes)) };
        Ok(())
    }))
}

/// Seconds that the real driver takes to compile a module: the mean over the modules of the op
/// samples.
pub const COMPILING: f64 = 0.022;

/// The options of a compilation without its buffer for errors, and that buffer.
///
/// # Safety
/// Both arrays have `count` elements.
unsafe fn jit_options(
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> (Vec<(CUjit_option, usize)>, (*mut u8, usize)) {
    let (mut given, mut buffer, mut length) = (Vec::new(), std::ptr::null_mut::<u8>(), 0);
    for n in 0..count as usize {
        // SAFETY: the caller guarantees it.
        let (option, value) = unsafe { (*options.add(n), *values.add(n)) };
        match option {
            CUjit_option_enum::CU_JIT_ERROR_LOG_BUFFER => buffer = value.cast(),
            CUjit_option_enum::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => length = value as usize,
            other => given.push((other, value as usize)),
        }
    }
    (given, (buffer, length))
}

unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut CUmodule,
    image: *const c_void,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> u32 {
    status(with(|s| {
        s.in_context("cuModuleLoadDataEx")?;
        s.outside_capture()?;
        // SAFETY: the options are arrays of `count`.
        let (given, (log, length)) = unsafe { jit_options(count, options, values) };
        assert!(!log.is_null() && length > 1000, "the caller gives a buffer for the log");
        s.jit_options = given;
        s.modelled_seconds += COMPILING;
        // SAFETY: an image is PTX that ends with a zero.
        let ptx = unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy().into_owned();
        if !ptx.lines().any(|line| line.starts_with(".version")) {
            let text =
                c"ptxas fake, line 1; fatal : Missing .version directive".to_bytes_with_nul();
            // SAFETY: the buffer has more bytes than this.
            unsafe { log.copy_from_nonoverlapping(text.as_ptr(), text.len()) };
            return Err(INVALID_PTX);
        }
        let handle = s.handle();
        s.modules.insert(handle, ptx);
        // SAFETY: an out-pointer of the API.
        unsafe { put(module, handle as CUmodule) };
        Ok(())
    }))
}

extern "C" fn cuModuleUnload(module: CUmodule) -> u32 {
    stream::flush();
    status(with(|s| {
        s.in_context("cuModuleUnload")?;
        s.modules.remove(&(module as usize)).ok_or(INVALID_HANDLE)?;
        s.functions.retain(|_, f| f.module != module as usize);
        Ok(())
    }))
}

unsafe extern "C" fn cuModuleGetFunction(
    function: *mut CUfunction,
    module: CUmodule,
    name: *const c_char,
) -> u32 {
    status(with(|s| {
        s.in_context("cuModuleGetFunction")?;
        let ptx = s.modules.get(&(module as usize)).ok_or(INVALID_HANDLE)?;
        // SAFETY: names end with a zero.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let at = ptx.find(&format!(".entry {name}(")).ok_or(NOT_FOUND)?;
        let header = &ptx[at..at + ptx[at..].find(')').ok_or(INVALID_PTX)?];
        let count = |parameter: &str| match parameter.split_once('[') {
            Some((_, rest)) => {
                let bytes = rest.split_once(']').and_then(|(bytes, _)| bytes.parse::<usize>().ok());
                bytes.map(|bytes| bytes / 8).ok_or(INVALID_PTX)
            }
            None => Ok(1),
        };
        let parameters = header.split(".param").skip(1).map(count).collect::<Result<_, _>>()?;
        let handle = s.handle();
        let module = module as usize;
        s.functions.insert(handle, Function { module, name, parameters, max_shared: 48 << 10 });
        // SAFETY: an out-pointer of the API.
        unsafe { put(function, handle as CUfunction) };
        Ok(())
    }))
}

unsafe extern "C" fn cuFuncGetAttribute(
    value: *mut c_int,
    attribute: CUfunction_attribute,
    f: CUfunction,
) -> u32 {
    use CUfunction_attribute_enum as A;
    status(with(|s| {
        s.in_context("cuFuncGetAttribute")?;
        let function = s.functions.get(&(f as usize)).ok_or(INVALID_HANDLE)?;
        let number = match attribute {
            A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => 1024,
            A::CU_FUNC_ATTRIBUTE_NUM_REGS => 32,
            A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => 1024,
            A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => 0,
            A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => function.max_shared,
            _ => return Err(INVALID_VALUE),
        };
        // SAFETY: an out-pointer of the API.
        unsafe { put(value, number) };
        Ok(())
    }))
}

extern "C" fn cuFuncSetAttribute(
    f: CUfunction,
    attribute: CUfunction_attribute,
    value: c_int,
) -> u32 {
    status(with(|s| {
        s.in_context("cuFuncSetAttribute")?;
        let function = s.functions.get_mut(&(f as usize)).ok_or(INVALID_HANDLE)?;
        if attribute != CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            || value + 1024 > 227 << 10
        {
            return Err(INVALID_VALUE);
        }
        function.max_shared = value;
        Ok(())
    }))
}
