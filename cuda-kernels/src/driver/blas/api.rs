//! The functions of cuBLASLt as a table, and the library.
//!
//! As for the driver ([`super::super::api`]): looked up at run time, statuses as numbers,
//! signatures checked against cudarc's.

use super::super::api::{Code, table};
use super::super::error::{Cause, DeviceError, Result};
use super::super::library;
use super::super::probe::{Missing, guarded, version_text};
use cudarc::cublaslt::sys::{self, *};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

/// Minimum version, as [`Lt::version`].
const MINIMUM: u32 = 120_000;

table! {
    /// Functions of `libcublasLt.so`.
    LtApi, sys, cublasStatus_t;
    fn cublasLtCreate(handle: *mut cublasLtHandle_t);
    fn cublasLtDestroy(handle: cublasLtHandle_t);
    fn cublasLtMatmulDescCreate(
        desc: *mut cublasLtMatmulDesc_t,
        compute: cublasComputeType_t,
        scale: cudaDataType,
    );
    fn cublasLtMatmulDescDestroy(desc: cublasLtMatmulDesc_t);
    fn cublasLtMatmulDescSetAttribute(
        desc: cublasLtMatmulDesc_t,
        attribute: cublasLtMatmulDescAttributes_t,
        value: *const c_void,
        bytes: usize,
    );
    fn cublasLtMatrixLayoutCreate(
        layout: *mut cublasLtMatrixLayout_t,
        dtype: cudaDataType,
        rows: u64,
        columns: u64,
        ld: i64,
    );
    fn cublasLtMatrixLayoutDestroy(layout: cublasLtMatrixLayout_t);
    fn cublasLtMatrixLayoutSetAttribute(
        layout: cublasLtMatrixLayout_t,
        attribute: cublasLtMatrixLayoutAttribute_t,
        value: *const c_void,
        bytes: usize,
    );
    fn cublasLtMatmulPreferenceCreate(preference: *mut cublasLtMatmulPreference_t);
    fn cublasLtMatmulPreferenceDestroy(preference: cublasLtMatmulPreference_t);
    fn cublasLtMatmulPreferenceSetAttribute(
        preference: cublasLtMatmulPreference_t,
        attribute: cublasLtMatmulPreferenceAttributes_t,
        value: *const c_void,
        bytes: usize,
    );
    fn cublasLtMatmulAlgoGetHeuristic(
        handle: cublasLtHandle_t,
        desc: cublasLtMatmulDesc_t,
        a: cublasLtMatrixLayout_t,
        b: cublasLtMatrixLayout_t,
        c: cublasLtMatrixLayout_t,
        d: cublasLtMatrixLayout_t,
        preference: cublasLtMatmulPreference_t,
        requested: c_int,
        results: *mut cublasLtMatmulHeuristicResult_t,
        returned: *mut c_int,
    );
    fn cublasLtMatmulAlgoCheck(
        handle: cublasLtHandle_t,
        desc: cublasLtMatmulDesc_t,
        a: cublasLtMatrixLayout_t,
        b: cublasLtMatrixLayout_t,
        c: cublasLtMatrixLayout_t,
        d: cublasLtMatrixLayout_t,
        algorithm: *const cublasLtMatmulAlgo_t,
        result: *mut cublasLtMatmulHeuristicResult_t,
    );
    fn cublasLtMatmulAlgoConfigGetAttribute(
        algorithm: *const cublasLtMatmulAlgo_t,
        attribute: cublasLtMatmulAlgoConfigAttributes_t,
        value: *mut c_void,
        bytes: usize,
        written: *mut usize,
    );
    fn cublasLtMatmul(
        handle: cublasLtHandle_t,
        desc: cublasLtMatmulDesc_t,
        alpha: *const c_void,
        a: *const c_void,
        a_layout: cublasLtMatrixLayout_t,
        b: *const c_void,
        b_layout: cublasLtMatrixLayout_t,
        beta: *const c_void,
        c: *const c_void,
        c_layout: cublasLtMatrixLayout_t,
        d: *mut c_void,
        d_layout: cublasLtMatrixLayout_t,
        algorithm: *const cublasLtMatmulAlgo_t,
        workspace: *mut c_void,
        workspace_bytes: usize,
        stream: cudaStream_t,
    );
}

/// The library: its functions and its path. Never unloaded.
pub struct Lt {
    /// The functions.
    pub api: LtApi,
    /// The path under which the library was opened.
    pub path: String,
    /// 10000 · major + 100 · minor + patch.
    pub version: u32,
    pub(in crate::driver) name: Option<unsafe extern "C" fn(u32) -> *const c_char>,
}

impl Lt {
    /// The installed library, in a version that a driver of this version (1000 · major + 10 ·
    /// minor) can run.
    ///
    /// Errors: it is missing, too old, or lacks a function.
    pub(in crate::driver) fn find(driver: u32) -> Result<Arc<Lt>, Missing> {
        let open = || {
            let environment = |variable: &str| std::env::var_os(variable);
            Lt::open(&library::cublas_lt_candidates(driver / 1000, &environment), driver)
                .map(Arc::new)
        };
        let broken = |why: String| missing(format!("opening it failed: {why}"), Vec::new());
        guarded(open).unwrap_or_else(|why| Err(broken(why)))
    }

    /// Opens the first candidate that opens, for a driver of this version (1000 · major + 10 ·
    /// minor).
    pub(in crate::driver) fn open(candidates: &[String], driver: u32) -> Result<Lt, Missing> {
        // SAFETY: these are names and paths of NVIDIA's library, whose initialisers are meant to
        // run.
        let (library, path) = unsafe { library::open(candidates) }
            .map_err(|tried| missing("it is not installed, or not found".into(), tried))?;
        // SAFETY: the library is cuBLASLt by its name, and is never closed, see below.
        let api = unsafe { LtApi::from_library(&library) };
        // SAFETY: signatures from NVIDIA's header; the status is an `int`-sized enum there.
        let (version, name) = unsafe {
            let version =
                library.get::<unsafe extern "C" fn() -> usize>("cublasLtGetVersion").map(|f| f());
            let name =
                library.get::<unsafe extern "C" fn(u32) -> *const c_char>("cublasLtGetStatusName");
            (version.unwrap_or(0) as u32, name.ok().map(|f| *f))
        };
        // Its own threads and the driver hold pointers into it.
        std::mem::forget(library);
        let api =
            api.map_err(|names| missing(format!("{path} lacks {}", names.join(", ")), Vec::new()))?;
        let lt = Lt { api, path, version, name };
        lt.runs_on(driver)?;
        Ok(lt)
    }

    /// Checks the version.
    fn runs_on(&self, driver: u32) -> Result<(), Missing> {
        let (path, version) = (&self.path, self.version_text());
        if self.version < MINIMUM {
            return Err(missing(
                format!("{path} is version {version}, and 12.0 is needed"),
                Vec::new(),
            ));
        }
        if self.version / 10_000 > driver / 1000 {
            let has = version_text(driver);
            let why =
                format!("{path} is version {version}, and the driver implements CUDA {has} only");
            return Err(missing(why, Vec::new()));
        }
        Ok(())
    }

    /// `13.0.2`.
    pub fn version_text(&self) -> String {
        let v = self.version;
        format!("{}.{}.{}", v / 10_000, v / 100 % 100, v % 100)
    }

    /// Success, or the error. `doing` names the operation.
    pub fn check(&self, code: Code, doing: impl FnOnce() -> String) -> Result<()> {
        if code.code == 0 {
            return Ok(());
        }
        let name = self.name.and_then(|name| {
            // SAFETY: the function takes any number and gives a static string or null.
            let text = unsafe { name(code.code) };
            // SAFETY: not null, static, ends with a zero.
            (!text.is_null())
                .then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        });
        let name = name.unwrap_or_else(|| "an unknown status".into());
        let cause = Cause::Call { call: code.call, code: code.code, name, text: String::new() };
        Err(DeviceError::new(doing(), cause))
    }
}

fn missing(why: String, tried: Vec<library::Tried>) -> Missing {
    Missing {
        library: "cuBLASLt",
        why,
        tried,
        help: format!(
            "`pip install nvidia-cublas` (of the driver's CUDA version) or install the CUDA \
             toolkit; elsewhere, name its folder in {} or LD_LIBRARY_PATH",
            library::FOLDERS_VARIABLE
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::probe::Missing;
    use super::*;

    fn refused(version: u32, driver: u32) -> Option<Missing> {
        let fake = super::super::super::fake::Fake::new();
        let lt = Lt { version, path: "lib".into(), ..fake.lt() };
        lt.runs_on(driver).err()
    }

    #[test]
    fn a_version_fits_the_driver_or_says_why_not() {
        assert!(refused(120_804, 12_080).is_none());
        assert!(refused(120_804, 13_000).is_none());
        assert!(refused(131_000, 13_000).is_none());
        assert_eq!(
            refused(131_002, 12_080).unwrap().why,
            "lib is version 13.10.2, and the driver implements CUDA 12.8 only"
        );
        assert_eq!(
            refused(111_103, 12_080).unwrap().why,
            "lib is version 11.11.3, and 12.0 is needed"
        );
    }

    #[test]
    fn no_library_says_how_to_get_one() {
        let missing = Lt::open(&["libnone-such.so.13".into()], 13_000).err().unwrap();
        let text = wengert_core::Diagnostic::from(missing).to_string();
        for part in
            ["cuBLASLt", "libnone-such.so.13", "pip install nvidia-cublas", "WENGERT_CUDA_LIBS"]
        {
            assert!(text.contains(part), "{text}");
        }
        let missing = Lt::open(&["libc.so.6".into()], 13_000).err().unwrap();
        assert!(missing.why.contains("libc.so.6 lacks cublasLtCreate"), "{}", missing.why);
    }
}
