//! The functions of NCCL as a table, and the library.
//!
//! As for cuBLASLt ([`super::super::blas`]): looked up at run time, statuses as numbers, signatures
//! checked against cudarc's.

use super::super::api::{Code, table};
use super::super::error::{Cause, DeviceError, Result};
use super::super::library;
use super::super::probe::{Missing, guarded};
use cudarc::nccl::sys::{self, *};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

/// Minimum version, as [`Nccl::version`]: that of the header whose signatures are checked.
const MINIMUM: u32 = 22_200;

table! {
    /// Functions of `libnccl.so.2`.
    NcclApi, sys, ncclResult_t;
    fn ncclGetVersion(version: *mut c_int);
    fn ncclGetUniqueId(id: *mut ncclUniqueId);
    fn ncclCommInitRank(comm: *mut ncclComm_t, ranks: c_int, id: ncclUniqueId, rank: c_int);
    fn ncclCommDestroy(comm: ncclComm_t);
    fn ncclCommAbort(comm: ncclComm_t);
    fn ncclCommGetAsyncError(comm: ncclComm_t, error: *mut ncclResult_t);
    fn ncclGroupStart();
    fn ncclGroupEnd();
    fn ncclSend(
        from: *const c_void,
        count: usize,
        dtype: ncclDataType_t,
        peer: c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
    );
    fn ncclRecv(
        to: *mut c_void,
        count: usize,
        dtype: ncclDataType_t,
        peer: c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
    );
}

/// `ncclGetErrorString`. It takes any number.
pub(in crate::driver) type ErrorText = unsafe extern "C" fn(u32) -> *const c_char;

/// The library: its functions and its path. Never unloaded.
pub struct Nccl {
    /// The functions.
    pub api: NcclApi,
    /// The path under which the library was opened.
    pub path: String,
    /// 10000 · major + 100 · minor + patch; before 2.9: 1000 · major + 100 · minor + patch.
    pub version: u32,
    pub(in crate::driver) text: Option<ErrorText>,
}

impl Nccl {
    /// The installed library.
    ///
    /// Errors: it is missing, too old, or lacks a function.
    pub(in crate::driver) fn find() -> Result<Arc<Nccl>, Missing> {
        let open = || {
            let environment = |variable: &str| std::env::var_os(variable);
            Nccl::open(&library::nccl_candidates(&environment)).map(Arc::new)
        };
        let broken = |why: String| missing(format!("opening it failed: {why}"), Vec::new());
        guarded(open).unwrap_or_else(|why| Err(broken(why)))
    }

    /// Opens the first candidate that opens.
    fn open(candidates: &[String]) -> Result<Nccl, Missing> {
        // SAFETY: these are names and paths of NVIDIA's library, whose initialisers are meant to
        // run.
        let (library, path) = unsafe { library::open(candidates) }
            .map_err(|tried| missing("it is not installed, or not found".into(), tried))?;
        // SAFETY: the library is NCCL by its name, and is never closed, see below.
        let api = unsafe { NcclApi::from_library(&library) };
        // SAFETY: the signature is that of NVIDIA's header; the status is an `int`-sized enum.
        let text = unsafe { library.get::<ErrorText>("ncclGetErrorString") }.ok().map(|f| *f);
        // Its own threads hold pointers into it.
        std::mem::forget(library);
        let api =
            api.map_err(|names| missing(format!("{path} lacks {}", names.join(", ")), Vec::new()))?;
        let mut version = 0;
        // SAFETY: the pointer is valid for a write; the function needs no device.
        let code = unsafe { api.ncclGetVersion(&mut version) };
        if code.code != 0 {
            let why = format!("the version query of {path} fails with status {}", code.code);
            return Err(missing(why, Vec::new()));
        }
        let nccl = Nccl { api, path, version: version.try_into().unwrap_or(0), text };
        nccl.is_new_enough()?;
        Ok(nccl)
    }

    fn is_new_enough(&self) -> Result<(), Missing> {
        if self.version >= MINIMUM {
            return Ok(());
        }
        let (path, version) = (&self.path, self.version_text());
        Err(missing(format!("{path} is version {version}, and 2.22 is needed"), Vec::new()))
    }

    /// `2.18.3`.
    pub fn version_text(&self) -> String {
        let v = self.version;
        let major = if v < 10_000 { 1000 } else { 10_000 };
        format!("{}.{}.{}", v / major, v % major / 100, v % 100)
    }

    /// Success, or the error. `doing` names the operation.
    pub(super) fn check(&self, code: Code, doing: impl FnOnce() -> String) -> Result<()> {
        if code.code == 0 {
            return Ok(());
        }
        Err(DeviceError::new(doing(), self.cause(code)))
    }

    /// The cause of an error, with NCCL's text.
    fn cause(&self, code: Code) -> Cause {
        let text = self.text.and_then(|text| {
            // SAFETY: the function takes any number and gives a static string or null.
            let text = unsafe { text(code.code) };
            // SAFETY: not null, static, ends with a zero.
            (!text.is_null())
                .then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        });
        let name = text.unwrap_or_else(|| "an unknown status".into());
        Cause::Call { call: code.call, code: code.code, name, text: String::new() }
    }
}

fn missing(why: String, tried: Vec<library::Tried>) -> Missing {
    Missing {
        library: "NCCL",
        why,
        tried,
        help: format!(
            "`pip install nvidia-nccl-cu13` (or -cu12, of the driver's CUDA version), or install \
             libnccl2; elsewhere, name its folder in {} or LD_LIBRARY_PATH",
            library::FOLDERS_VARIABLE
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::fake::Fake;

    #[test]
    fn a_version_is_new_enough_or_says_that_it_is_not() {
        let of = |version| Nccl { version, path: "lib".into(), ..Fake::new().nccl() };
        assert!(of(22_200).is_new_enough().is_ok());
        assert_eq!(of(22_703).version_text(), "2.27.3");
        let why = |version| of(version).is_new_enough().unwrap_err().why;
        assert_eq!(why(21_805), "lib is version 2.18.5, and 2.22 is needed");
        assert_eq!(why(2708), "lib is version 2.7.8, and 2.22 is needed");
    }

    #[test]
    fn no_library_says_how_to_get_one() {
        let missing = Nccl::open(&["libnone-such.so.2".into()]).err().unwrap();
        let text = wengert_core::Diagnostic::from(missing).to_string();
        for part in ["NCCL", "libnone-such.so.2", "nvidia-nccl", "WENGERT_CUDA_LIBS"] {
            assert!(text.contains(part), "{text}");
        }
        let missing = Nccl::open(&["libc.so.6".into()]).err().unwrap();
        let wanted = "libc.so.6 lacks ncclGetVersion, ncclGetUniqueId";
        assert!(missing.why.contains(wanted), "{}", missing.why);
    }
}
