//! A stream for copies between host and device, beside the device's stream of kernels.
//!
//! A GPU has engines that copy while kernels run, if the copies are in another stream. Two streams
//! are not ordered. Events order them: a stream that waits for an event goes on when the work in
//! front of the event is done. A copy stream accesses pinned memory and one area on the device that
//! [`super::staging`] owns, so only that module has to order anything.

use super::allocation::Address;
use super::context::{Device, Event};
use super::error::Result;
use cudarc::driver::sys::{CUstream, CUstream_flags_enum};

/// A stream of copies, destroyed when dropped.
pub(super) struct CopyStream {
    device: Device,
    handle: CUstream,
}

// SAFETY: a stream is a handle of the driver, which is thread-safe.
unsafe impl Send for CopyStream {}
// SAFETY: as above.
unsafe impl Sync for CopyStream {}

impl CopyStream {
    /// A new stream. `what` is what it copies.
    pub(super) fn new(device: &Device, what: &str) -> Result<CopyStream> {
        let mut handle = std::ptr::null_mut();
        let flags = CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        let doing = || format!("making a stream for {what}");
        // SAFETY: the pointer is valid for a write; the stream is destroyed in `drop`.
        device.context.call(doing, |api| unsafe { api.cuStreamCreate(&mut handle, flags) })?;
        Ok(CopyStream { device: device.clone(), handle })
    }

    /// Lets later copies wait for all work that is in front of the event now.
    pub(super) fn wait_for(&self, event: &Event) -> Result<()> {
        event.hold_back(self.handle)
    }

    /// Records an event after the copies so far.
    pub(super) fn record(&self, event: &Event) -> Result<()> {
        event.record_in(self.handle)
    }

    /// Waits until all copies are done.
    pub(super) fn synchronise(&self) -> Result<()> {
        // The copies are waited for also after an error, as in `Device::synchronise`.
        let settled = self.device.context.settle();
        settled.and(self.drain())
    }

    /// [`synchronise`](Self::synchronise) that does not wait for exchanges with other ranks before.
    pub(super) fn drain(&self) -> Result<()> {
        let doing = || "waiting for copies".into();
        // SAFETY: the stream lives.
        self.device.context.call(doing, |api| unsafe { api.cuStreamSynchronize(self.handle) })
    }

    /// The handle, for a library that works in this stream.
    pub(super) fn handle(&self) -> CUstream {
        self.handle
    }

    /// Enqueues a copy on the device. The ranges are disjoint.
    pub(super) fn copy(&self, from: Address, to: Address, bytes: u64) -> Result<()> {
        self.device.within("copying from", from, bytes)?;
        self.device.within("copying to", to, bytes)?;
        let doing = || format!("copying {bytes} bytes on the device");
        // SAFETY: both ranges lie in allocations of this device.
        self.device.context.call(doing, |api| unsafe {
            api.cuMemcpyDtoDAsync_v2(to.0, from.0, bytes as usize, self.handle)
        })
    }

    /// Enqueues a copy from the host.
    ///
    /// # Safety
    /// `from` is valid for reads of `bytes` bytes until the stream has completed the copy, and is
    /// not written before. The bytes at `to` are not freed before.
    pub(super) unsafe fn send(&self, to: Address, from: *const u8, bytes: u64) -> Result<()> {
        self.device.within("writing to the device", to, bytes)?;
        let doing = || format!("copying {bytes} bytes to the device");
        // SAFETY: the caller guarantees `from`; `to` lies in an allocation of this device.
        self.device.context.call(doing, |api| unsafe {
            api.cuMemcpyHtoDAsync_v2(to.0, from.cast(), bytes as usize, self.handle)
        })
    }

    /// Enqueues a copy to the host.
    ///
    /// # Safety
    /// `to` is valid for writes of `bytes` bytes until the stream has completed the copy, and is
    /// not used before. The bytes at `from` are not freed before.
    pub(super) unsafe fn receive(&self, from: Address, to: *mut u8, bytes: u64) -> Result<()> {
        self.device.within("reading from the device", from, bytes)?;
        let doing = || format!("copying {bytes} bytes from the device");
        // SAFETY: the caller guarantees `to`; `from` lies in an allocation of this device.
        self.device.context.call(doing, |api| unsafe {
            api.cuMemcpyDtoHAsync_v2(to.cast(), from.0, bytes as usize, self.handle)
        })
    }
}

impl Drop for CopyStream {
    fn drop(&mut self) {
        let context = &*self.device.context;
        if context.enter().is_ok() {
            // SAFETY: destroyed once; a stream with work in it is freed when the work is done.
            context.log(unsafe { context.driver.api.cuStreamDestroy_v2(self.handle) });
        }
    }
}
