//! A GPU's primary context, and cuBLASLt's handle in it: one of each for a device and process.
//!
//! The driver has one **primary context** for each GPU and process. Making it takes tenths of a
//! second and hundreds of megabytes of the GPU's memory. It ends when it has been released as
//! often as it was retained. So a process retains it once for each GPU that it opens, and keeps
//! it until the process ends ([`Primaries`]); each [`super::Device`] is a stream in it. A fault
//! loses the primary context, and so every `Device` of that GPU.
//!
//! cuBLASLt's handle uses memory on the GPU too. It is made when the first product is prepared: a
//! plan without products needs no cuBLASLt.

use super::api::{Code, Driver, DriverApi};
use super::blas::Lt;
use super::error::{DeviceError, Result};
use super::probe::{self, DeviceFound};
use cudarc::cublaslt::sys::cublasLtHandle_t;
use cudarc::driver::sys::{CUcontext, CUdevice};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The retained primary contexts, by the numbers of their devices.
pub(super) struct Primaries(Mutex<BTreeMap<u32, Arc<Primary>>>);

impl Primaries {
    pub(super) const fn none() -> Primaries {
        Primaries(Mutex::new(BTreeMap::new()))
    }

    /// The primary context of a device, retained at the first call.
    ///
    /// Errors: there is no such GPU, or its context cannot be made; the next call tries again.
    pub(super) fn get(&self, driver: &Arc<Driver>, ordinal: u32) -> Result<Arc<Primary>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(primary) = kept.get(&ordinal) {
            return Ok(primary.clone());
        }
        let primary = Arc::new(Primary::retain(driver.clone(), ordinal)?);
        kept.insert(ordinal, primary.clone());
        Ok(primary)
    }
}

/// A primary context. Released when dropped.
pub(super) struct Primary {
    pub(super) driver: Arc<Driver>,
    pub(super) found: DeviceFound,
    device: CUdevice,
    pub(super) handle: CUcontext,
    /// cuBLASLt's handle, after the first request.
    lt: Mutex<Option<LtHandle>>,
    /// The fault that lost the context.
    first_fault: OnceLock<DeviceError>,
}

/// cuBLASLt's handle. It belongs to the context, which destroys it.
#[derive(Clone)]
pub(super) struct LtHandle {
    pub(super) lt: Arc<Lt>,
    pub(super) handle: cublasLtHandle_t,
}

// SAFETY: contexts are handles of the driver, which is thread-safe: any thread may use them once
// they are current for it, which `Primary::enter` ensures. A handle of cuBLASLt may be used from
// any thread, and from several at once (cuBLASLt documentation).
unsafe impl Send for Primary {}
// SAFETY: as above; Rust state in it is behind a mutex or written once.
unsafe impl Sync for Primary {}

impl Primary {
    fn retain(driver: Arc<Driver>, ordinal: u32) -> Result<Primary> {
        let device = probe::handle(&driver, ordinal)?;
        let doing = || format!("opening `cuda:{ordinal}`");
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is valid for a write; the retain is matched by the release in `drop`,
        // or below.
        driver.check(unsafe { driver.api.cuDevicePrimaryCtxRetain(&mut handle, device) }, doing)?;
        // With this context, querying the device's free memory makes no other.
        match probe::device(&driver, ordinal) {
            Ok(found) => {
                tracing::debug!(device = %found, "opened");
                let (lt, first_fault) = (Mutex::default(), OnceLock::new());
                Ok(Primary { driver, found, device, handle, lt, first_fault })
            }
            Err(error) => {
                // SAFETY: matches the retain above, and nothing uses the context.
                let _ = unsafe { driver.api.cuDevicePrimaryCtxRelease_v2(device) };
                Err(error)
            }
        }
    }

    /// Makes the context current for this thread.
    pub(super) fn enter(&self) -> Result<()> {
        // SAFETY: the context is retained until `drop`.
        let code = unsafe { self.driver.api.cuCtxSetCurrent(self.handle) };
        self.check(code, || format!("entering `cuda:{}`", self.found.ordinal))
    }

    /// A call of the driver with the context current.
    pub(super) fn call(
        &self,
        doing: impl FnOnce() -> String,
        call: impl FnOnce(&DriverApi) -> Code,
    ) -> Result<()> {
        self.enter()?;
        self.check(call(&self.driver.api), doing)
    }

    /// Success, or the error. It remembers the fault that loses the context, and adds it to every
    /// later error.
    pub(super) fn check(&self, code: Code, doing: impl FnOnce() -> String) -> Result<()> {
        self.driver.check(code, doing).map_err(|error| self.remember(error))
    }

    /// Records a fault that loses the context; adds the first one to a later error.
    pub(super) fn remember(&self, mut error: DeviceError) -> DeviceError {
        if error.is_sticky() && self.first_fault.get().is_none() {
            let _ = self.first_fault.set(error.clone());
        } else if let Some(first) = self.first_fault.get() {
            error.earlier = Some(Box::new(first.clone()));
        }
        error
    }

    /// For destructors, which cannot return an error: logs it. After a fault every call fails.
    pub(super) fn log(&self, code: Code) {
        if let Err(error) = self.driver.check(code, || "freeing".into()) {
            tracing::debug!(%error, "while dropping");
        }
    }

    /// cuBLASLt's handle, made at the first call. The context is current, and no capture is in
    /// progress.
    ///
    /// Errors: the library is missing, too old, or does not start; the next call tries again.
    pub(super) fn lt(&self) -> Result<LtHandle> {
        let mut kept = self.lt.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &*kept {
            return Ok(handle.clone());
        }
        let lt = self.driver.cublas_lt().map_err(DeviceError::from)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is valid for a write; the context is current, so the handle belongs
        // to it.
        let code = unsafe { lt.api.cublasLtCreate(&mut handle) };
        lt.check(code, || format!("starting cuBLASLt ({})", lt.path))?;
        Ok(kept.insert(LtHandle { lt, handle }).clone())
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        let kept = self.lt.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // SAFETY: this is the last handle, so nothing that lives in the context is left; each
        // object is released once.
        unsafe {
            self.log(self.driver.api.cuCtxSetCurrent(self.handle));
            if let Some(LtHandle { lt, handle }) = kept {
                let _ = lt.api.cublasLtDestroy(handle);
            }
            self.log(self.driver.api.cuCtxSetCurrent(std::ptr::null_mut()));
            self.log(self.driver.api.cuDevicePrimaryCtxRelease_v2(self.device));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::context::Device;
    use super::super::fake::Fake;
    use super::*;

    #[test]
    fn devices_of_one_gpu_share_context_and_cublas() {
        let fake = Fake::new();
        let (driver, primaries) = (fake.driver(), Primaries::none());
        let open = |ordinal| Device::in_context(primaries.get(&driver, ordinal).unwrap()).unwrap();
        let (first, second) = (open(0), open(0));
        assert_eq!(fake.contexts_made(), [1, 0]);
        assert_eq!(fake.count("cublasLtCreate"), 0, "until a product is prepared");
        let blas = [first.blas().unwrap(), second.blas().unwrap(), first.blas().unwrap()];
        assert_eq!(fake.count("cublasLtCreate"), 1);
        // Another GPU has its own context; a session that ends leaves its context to the next.
        drop((blas, first, second));
        let (other, again) = (open(1), open(0));
        assert_eq!(fake.contexts_made(), [1, 1]);
        drop((other.blas().unwrap(), again.blas().unwrap()));
        assert_eq!(fake.count("cublasLtCreate"), 2);
        drop((other, again, primaries));
        fake.nothing_left();
    }

    #[test]
    fn what_could_not_be_opened_is_tried_again() {
        let fake = Fake::new();
        let (driver, primaries) = (fake.driver(), Primaries::none());
        fake.fail("cuDevicePrimaryCtxRetain", 46);
        assert_eq!(primaries.get(&driver, 0).err().unwrap().code(), Some(46));
        let device = Device::in_context(primaries.get(&driver, 0).unwrap()).unwrap();
        fake.fail("cublasLtCreate", 1);
        assert!(device.blas().err().unwrap().to_string().contains("starting cuBLASLt"));
        device.blas().unwrap();
        drop((device, primaries));
        fake.nothing_left();
    }
}
