//! The driver's functions as a table of pointers.
//!
//! The signatures are those of cudarc's `sys`, and the compiler checks each against it (see the
//! `const _` in [`table`]). The functions themselves are looked up here, by their exported names,
//! for three reasons:
//!
//! - cudarc panics where a library or a symbol is missing; here that is an error that names them.
//! - cudarc's status is a Rust `enum`, and a driver newer than the bindings may return a code
//!   that the `enum` lacks, which would be undefined behaviour. Here a status is a number
//!   ([`Code`]).
//! - A table can be filled with other functions, so that everything above it is tested on
//!   machines without a GPU (`fake`).
//!
//! Functions that older drivers lack are in tables of their own, such as [`ConditionalApi`]. A
//! driver without them is used without what they do.
//!
//! Names carry the suffix that they have in the library (`cuMemAlloc_v2`): without it, the name
//! is that of an older function. Those of [`DriverApi`] are exported by every driver since CUDA
//! 12.0, so cudarc's version feature decides only which constants have names.

use super::blas::Lt;
use super::error::{Cause, DeviceError};
use super::nccl::Nccl;
use super::probe::Missing;
use cudarc::driver::sys::{self, *};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::sync::{Arc, OnceLock};

/// The result of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Code {
    /// Name of the function.
    pub call: &'static str,
    /// 0 is success.
    pub code: u32,
}

/// Defines a table of functions: the struct, the lookup, and one method for each function.
macro_rules! table {
    (
        $(#[$meta:meta])* $table:ident, $sys:ident, $status:ty;
        $( fn $f:ident ( $($argument:ident : $ty:ty),* $(,)? ); )*
    ) => {
        $(#[$meta])*
        #[allow(non_snake_case)]
        pub struct $table {
            $( pub(in crate::driver) $f: unsafe extern "C" fn($($ty),*) -> u32, )*
        }

        // A signature that differs from cudarc's does not compile.
        $( const _: unsafe fn($($ty),*) -> $status = $sys::$f; )*

        #[allow(non_snake_case, clippy::too_many_arguments, clippy::missing_safety_doc)]
        impl $table {
            /// Looks up every function; an error lists the names that the library lacks.
            ///
            /// # Safety
            /// The library is the one that these functions belong to, and stays open as long as
            /// the table is used.
            pub unsafe fn from_library(
                library: &libloading::Library,
            ) -> Result<Self, Vec<&'static str>> {
                let mut missing = Vec::new();
                $(
                    // SAFETY: the caller guarantees that the library is the one whose header the
                    // signature comes from.
                    let $f = unsafe {
                        library.get::<unsafe extern "C" fn($($ty),*) -> u32>(stringify!($f))
                    };
                    if $f.is_err() {
                        missing.push(stringify!($f));
                    }
                )*
                if !missing.is_empty() {
                    return Err(missing);
                }
                Ok($table { $( $f: *$f.expect("nothing is missing"), )* })
            }

            $(
                #[doc = concat!(
                    "`",
                    stringify!($f),
                    "`; what the CUDA documentation demands of its arguments, the caller must keep."
                )]
                pub unsafe fn $f(&self, $($argument: $ty),*) -> $crate::driver::api::Code {
                    // SAFETY: the pointer is that function; the caller keeps its contract.
                    let code = unsafe { (self.$f)($($argument),*) };
                    $crate::driver::api::Code { call: stringify!($f), code }
                }
            )*
        }
    };
}
pub(super) use table;

table! {
    /// Functions of `libcuda.so.1`.
    DriverApi, sys, CUresult;
    fn cuInit(flags: c_uint);
    fn cuDriverGetVersion(version: *mut c_int);
    fn cuGetErrorName(error: CUresult, name: *mut *const c_char);
    fn cuGetErrorString(error: CUresult, text: *mut *const c_char);
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice);
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    fn cuCtxSetCurrent(context: CUcontext);
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    fn cuMemFree_v2(address: CUdeviceptr);
    fn cuMemHostAlloc(memory: *mut *mut c_void, bytes: usize, flags: c_uint);
    fn cuMemFreeHost(memory: *mut c_void);
    fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemsetD8Async(to: CUdeviceptr, byte: c_uchar, bytes: usize, stream: CUstream);
    fn cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    fn cuStreamDestroy_v2(stream: CUstream);
    fn cuStreamSynchronize(stream: CUstream);
    fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode);
    fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    fn cuEventCreate(event: *mut CUevent, flags: c_uint);
    fn cuEventDestroy_v2(event: CUevent);
    fn cuEventRecord(event: CUevent, stream: CUstream);
    fn cuEventQuery(event: CUevent);
    fn cuEventSynchronize(event: CUevent);
    fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);
    fn cuGraphInstantiateWithFlags(
        executable: *mut CUgraphExec,
        graph: CUgraph,
        flags: c_ulonglong,
    );
    fn cuGraphUpload(executable: CUgraphExec, stream: CUstream);
    fn cuGraphLaunch(executable: CUgraphExec, stream: CUstream);
    fn cuGraphExecUpdate_v2(
        executable: CUgraphExec,
        graph: CUgraph,
        result: *mut CUgraphExecUpdateResultInfo,
    );
    fn cuGraphExecDestroy(executable: CUgraphExec);
    fn cuGraphDestroy(graph: CUgraph);
    fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    fn cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        count: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    );
    fn cuModuleUnload(module: CUmodule);
    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    fn cuFuncGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, function: CUfunction);
    fn cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int);
    fn cuLaunchKernelEx(
        config: *const CUlaunchConfig,
        function: CUfunction,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void,
    );
}

table! {
    /// Functions of `libcuda.so.1` since CUDA 12.3: graphs that are made of parts, and conditional
    /// nodes.
    ConditionalApi, sys, CUresult;
    fn cuGraphCreate(graph: *mut CUgraph, flags: c_uint);
    fn cuStreamBeginCaptureToGraph(
        stream: CUstream,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        data: *const CUgraphEdgeData,
        count: usize,
        mode: CUstreamCaptureMode,
    );
    fn cuStreamGetCaptureInfo_v3(
        stream: CUstream,
        status: *mut CUstreamCaptureStatus,
        id: *mut cuuint64_t,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        data: *mut *const CUgraphEdgeData,
        count: *mut usize,
    );
    fn cuGraphConditionalHandleCreate(
        handle: *mut CUgraphConditionalHandle,
        graph: CUgraph,
        context: CUcontext,
        value: c_uint,
        flags: c_uint,
    );
    fn cuGraphAddNode_v2(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        data: *const CUgraphEdgeData,
        count: usize,
        parameters: *mut CUgraphNodeParams,
    );
}

/// The driver: its functions and its path. It is never unloaded, since other libraries of the
/// process use it.
pub struct Driver {
    /// The functions.
    pub api: DriverApi,
    /// The path under which the library was opened.
    pub path: String,
    /// 1000 · major + 10 · minor of the CUDA version that the driver implements.
    pub version: u32,
    /// Functions for conditional nodes, or why they are not used.
    pub(super) conditional: Result<ConditionalApi, String>,
    /// cuBLASLt, after the first request ([`Driver::cublas_lt`]).
    pub(super) lt: OnceLock<Result<Arc<Lt>, Missing>>,
    /// NCCL, after the first request ([`Driver::nccl`]).
    pub(super) nccl: OnceLock<Result<Arc<Nccl>, Missing>>,
}

/// Reason why a library cannot be used as the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Unusable {
    /// It lacks the functions of these names.
    Lacks(String),
    /// It is the CUDA toolkit's library for linking programs, whose functions all fail.
    Stub,
    /// Its version query fails with this code.
    Version(u32),
}

/// The status that the functions of the toolkit's stub return: `CUDA_ERROR_STUB_LIBRARY`.
const STUB: u32 = 34;

impl Driver {
    /// Looks up the functions and queries the version. [`super::probe`] opens the library and
    /// reports what is missing.
    ///
    /// # Safety
    /// The library is NVIDIA's driver.
    pub(super) unsafe fn new(library: Library, path: String) -> Result<Driver, Unusable> {
        // SAFETY: the caller guarantees it; the library is never closed, see below.
        let api = unsafe { DriverApi::from_library(&library) };
        // SAFETY: as above.
        let conditional = unsafe { ConditionalApi::from_library(&library) };
        let conditional = conditional.map_err(|names| format!("it lacks {}", names.join(", ")));
        // Closing it would leave dangling pointers in cuBLASLt and the driver's own threads.
        std::mem::forget(library);
        let api = api.map_err(|names| Unusable::Lacks(names.join(", ")))?;
        let mut version = 0;
        // SAFETY: the pointer is valid for a write; this function may be called before `cuInit`.
        let code = unsafe { api.cuDriverGetVersion(&mut version) };
        match (code.code, version) {
            (0, 1..) => {
                let (version, lt, nccl) = (version as u32, OnceLock::new(), OnceLock::new());
                Ok(Driver { api, path, version, conditional, lt, nccl })
            }
            (STUB, _) => Err(Unusable::Stub),
            (other, _) => Err(Unusable::Version(other)),
        }
    }

    /// cuBLASLt, in a version that this driver runs; opened at the first call.
    ///
    /// Errors: it is missing, too old, or lacks a function.
    pub fn cublas_lt(&self) -> Result<Arc<Lt>, Missing> {
        self.lt.get_or_init(|| Lt::find(self.version)).clone()
    }

    /// NCCL; opened at the first call.
    ///
    /// Errors: it is missing, too old, or lacks a function.
    pub fn nccl(&self) -> Result<Arc<Nccl>, Missing> {
        self.nccl.get_or_init(Nccl::find).clone()
    }

    /// Success, or the error with its name and text. `doing` names the operation.
    pub fn check(&self, code: Code, doing: impl FnOnce() -> String) -> Result<(), DeviceError> {
        if code.code == 0 {
            return Ok(());
        }
        let (name, text) = self.describe(code.code);
        Err(DeviceError::new(doing(), Cause::Call { call: code.call, code: code.code, name, text }))
    }

    /// The driver's name and text of a code.
    fn describe(&self, code: u32) -> (String, String) {
        let ask = |f: unsafe extern "C" fn(u32, *mut *const c_char) -> u32| {
            let mut text = std::ptr::null();
            // SAFETY: both functions take any number, write a pointer to a static string or null,
            // and return a status.
            let status = unsafe { f(code, &mut text) };
            if status != 0 || text.is_null() {
                return None;
            }
            // SAFETY: the driver's strings are static and end with a zero.
            Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        type Asked = unsafe extern "C" fn(CUresult, *mut *const c_char) -> u32;
        type Number = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
        // SAFETY: `CUresult` is `repr(u32)`, so both types are called alike; a number that the
        // enum lacks is passed as a number only.
        let (name, text) = unsafe {
            (
                std::mem::transmute::<Asked, Number>(self.api.cuGetErrorName),
                std::mem::transmute::<Asked, Number>(self.api.cuGetErrorString),
            )
        };
        let name = ask(name).unwrap_or_else(|| "an unknown error".into());
        (name, ask(text).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_the_driver_is_refused_by_names() {
        // SAFETY: the C library is loaded already; only lookups happen.
        let library = unsafe { Library::new("libc.so.6") }.unwrap();
        // SAFETY: no function is called, since none is found.
        let error = unsafe { Driver::new(library, "libc.so.6".into()) }.err().unwrap();
        let Unusable::Lacks(names) = error else { panic!("{error:?}") };
        assert!(names.starts_with("cuInit, ") && names.contains("cuLaunchKernelEx"), "{names}");
    }
}
