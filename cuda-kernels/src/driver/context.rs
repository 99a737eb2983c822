//! An open GPU: a stream in its primary context, and the properties of both.
//!
//! [`Device`] is a handle that may be cloned and sent to other threads; dropping the last one
//! closes the stream. All objects on the device (memory, modules, events, graphs) hold such a
//! handle, so stream and context outlive them, whatever the drop order.
//!
//! A context is current *for a thread*, so each entry of this crate makes it current first. That
//! costs nanoseconds, and the caller need not do it.

use super::allocation::Regions;
#[cfg(test)]
use super::api::Driver;
use super::api::DriverApi;
use super::conditional::Conditionals;
use super::error::{DeviceError, Result};
use super::graph::Capturing;
use super::nccl::Exchanges;
use super::primary::{Primaries, Primary};
use super::probe::{self, DeviceFound};
use cudarc::driver::sys::{CUevent, CUevent_flags_enum, CUmodule, CUstream, CUstream_flags_enum};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A GPU that is open: a stream in its primary context.
#[derive(Clone)]
pub struct Device {
    pub(super) context: Arc<Context>,
}

/// The state of a [`Device`]. It contains the [`Primary`], whose methods it has too.
pub(super) struct Context {
    primary: Arc<Primary>,
    pub(super) stream: CUstream,
    /// Allocations, against which copies are checked.
    regions: Mutex<Regions>,
    /// The capture in progress.
    capturing: Mutex<Option<Capturing>>,
    /// The kernels that set conditions, as long as a plan uses them.
    pub(super) conditionals: Mutex<Weak<Conditionals>>,
    /// The exchanges with other ranks, if it has joined any.
    exchanges: Mutex<Weak<Exchanges>>,
}

// SAFETY: a stream is a handle of the driver, which is thread-safe.
unsafe impl Send for Context {}
// SAFETY: as above; Rust state in it is behind a mutex or written once.
unsafe impl Sync for Context {}

/// An object that a destructor releases.
pub(super) enum Freed {
    /// The address of an allocation.
    Memory(u64),
    /// A module.
    Module(CUmodule),
}

impl Deref for Context {
    type Target = Primary;

    fn deref(&self) -> &Primary {
        &self.primary
    }
}

impl Device {
    /// Opens `cuda:ordinal`. The process keeps the context of that GPU until it ends.
    ///
    /// Errors: no driver, an old driver, no such GPU, or a context cannot be made. Another device
    /// is never opened instead.
    pub fn open(ordinal: u32) -> Result<Device> {
        static PRIMARIES: Primaries = Primaries::none();
        let opening = || format!("opening `cuda:{ordinal}`");
        let opened =
            probe::guarded(|| Device::in_context(PRIMARIES.get(&probe::driver()?, ordinal)?));
        opened.unwrap_or_else(|why| Err(DeviceError::refused(opening(), why, "please report it")))
    }

    /// Opens `cuda:ordinal` of this driver, and keeps nothing after it.
    #[cfg(test)]
    pub(super) fn open_with(driver: Arc<Driver>, ordinal: u32) -> Result<Device> {
        Device::in_context(Primaries::none().get(&driver, ordinal)?)
    }

    /// A stream in a context.
    pub(super) fn in_context(primary: Arc<Primary>) -> Result<Device> {
        primary.enter()?;
        let mut stream = std::ptr::null_mut();
        let flags = CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the pointer is valid for a write; the stream is destroyed in `drop`. A
        // non-blocking stream does not wait for the legacy default stream, which other libraries of
        // the process may use.
        let code = unsafe { primary.driver.api.cuStreamCreate(&mut stream, flags) };
        let found = &primary.found;
        primary.check(code, || format!("opening `cuda:{}` ({})", found.ordinal, found.name))?;
        Ok(Device {
            context: Arc::new(Context {
                primary,
                stream,
                regions: Mutex::default(),
                capturing: Mutex::default(),
                conditionals: Mutex::default(),
                exchanges: Mutex::default(),
            }),
        })
    }

    /// The device's properties; `free` is as of the first opening in this process.
    pub fn found(&self) -> &DeviceFound {
        &self.context.found
    }

    /// `cuda:0`, for example.
    pub fn name(&self) -> String {
        format!("cuda:{}", self.context.found.ordinal)
    }

    /// Free and total memory in bytes.
    pub fn memory_info(&self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        let doing = || "asking for free memory".into();
        // SAFETY: both pointers are valid for writes; the context is current.
        self.context.call(doing, |api| unsafe { api.cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Waits until all work of the stream is done. Faults of kernels surface here.
    pub fn synchronise(&self) -> Result<()> {
        let context = &*self.context;
        context.enter()?;
        context.not_capturing("waiting for the device")?;
        let settled = context.settle();
        // Also after an error: the owner of memory that is copied relies on the wait.
        // SAFETY: the stream lives as long as the context.
        let code = unsafe { context.driver.api.cuStreamSynchronize(context.stream) };
        settled.and(context.check(code, || "waiting for the device".into()))
    }

    /// An event that has not been recorded. A `timed` event costs more to record, and can be
    /// subtracted.
    pub fn event(&self, timed: bool) -> Result<Event> {
        let flags = if timed { 0 } else { CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32 };
        let mut handle = std::ptr::null_mut();
        let doing = || "making an event".into();
        // SAFETY: the pointer is valid for a write; the event is destroyed in `drop`.
        self.context.call(doing, |api| unsafe { api.cuEventCreate(&mut handle, flags) })?;
        Ok(Event { device: self.clone(), handle, timed })
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.context.found)
    }
}

impl Context {
    /// Frees an object that the stream may still use, once the stream is done with it. A capture
    /// allows no waiting, so during a capture it is freed when the capture ends.
    pub(super) fn free(&self, what: Freed) {
        if let Some(capturing) = &mut *self.capturing() {
            capturing.free_later(what);
            return;
        }
        if self.enter().is_err() {
            return;
        }
        if let Err(error) = self.settle() {
            tracing::debug!(%error, "while dropping");
        }
        // SAFETY: the stream lives as long as the context. Afterwards nothing uses the freed
        // objects: all work that could was given to this stream.
        self.log(unsafe { self.driver.api.cuStreamSynchronize(self.stream) });
        self.log(match what {
            // SAFETY: the owner allocated it, and releases it in its destructor: it is freed
            // once.
            Freed::Memory(address) => unsafe { self.driver.api.cuMemFree_v2(address) },
            // SAFETY: as above, of a module that was loaded.
            Freed::Module(module) => unsafe { self.driver.api.cuModuleUnload(module) },
        });
    }

    /// Waits for exchanges with other ranks, which a wait for a stream would do for ever if a rank
    /// does not come.
    ///
    /// Errors: those of [`Exchanges`].
    pub(super) fn settle(&self) -> Result<()> {
        let exchanges = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        exchanges.map_or(Ok(()), |exchanges| exchanges.settle())
    }

    /// Sets the exchanges for which every wait waits first.
    pub(super) fn exchange_with(&self, exchanges: &Arc<Exchanges>) {
        *self.exchanges.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(exchanges);
    }

    /// An error if this stream is being captured: `what` would invalidate the capture.
    pub(super) fn not_capturing(&self, what: &str) -> Result<()> {
        if self.capturing().is_none() {
            return Ok(());
        }
        let help =
            "end the capture first; a CUDA graph holds launches and copies on the device only";
        Err(DeviceError::refused(what, "the stream is being captured into a CUDA graph", help))
    }

    pub(super) fn capturing(&self) -> MutexGuard<'_, Option<Capturing>> {
        self.capturing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn regions(&self) -> MutexGuard<'_, Regions> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.enter().is_ok() {
            // SAFETY: this is the last handle, so nothing that uses the stream is left. A stream
            // with work in it may be destroyed: it is freed when the work is done.
            self.log(unsafe { self.driver.api.cuStreamDestroy_v2(self.stream) });
        }
    }
}

/// A point in the stream.
pub struct Event {
    device: Device,
    handle: CUevent,
    timed: bool,
}

// SAFETY: an event is a handle of the driver, which is thread-safe.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Records the event after all work that is in the stream now. Recording it again moves it.
    pub fn record(&self) -> Result<()> {
        self.record_in(self.device.context.stream)
    }

    /// [`record`](Self::record) in a stream of the same context, which lives.
    pub(super) fn record_in(&self, stream: CUstream) -> Result<()> {
        let context = &*self.device.context;
        context.enter()?;
        context.not_capturing("recording an event")?;
        // SAFETY: event and stream live, and belong to the same context.
        let code = unsafe { context.driver.api.cuEventRecord(self.handle, stream) };
        context.check(code, || "recording an event".into())
    }

    /// Lets later work of the device's stream wait for all work that is in front of the event now.
    pub(super) fn hold_back_device(&self) -> Result<()> {
        self.hold_back(self.device.context.stream)
    }

    /// Lets later work of a stream of the same context, which lives, wait for all work that is in
    /// front of the event now. An event that was never recorded is not waited for.
    pub(super) fn hold_back(&self, stream: CUstream) -> Result<()> {
        let context = &*self.device.context;
        context.enter()?;
        context.not_capturing("ordering streams")?;
        // SAFETY: event and stream live, and belong to the same context; the flags must be 0.
        let code = unsafe { context.driver.api.cuStreamWaitEvent(stream, self.handle, 0) };
        context.check(code, || "ordering streams".into())
    }

    /// Waits until the stream has passed it; returns at once if it was never recorded. Faults of
    /// kernels may surface here.
    pub fn wait(&self) -> Result<()> {
        let doing = || "waiting for an event".into();
        let settled = self.device.context.settle();
        // Also after an error, as in `Device::synchronise`.
        // SAFETY: the event lives.
        let event = |api: &DriverApi| unsafe { api.cuEventSynchronize(self.handle) };
        settled.and(self.device.context.call(doing, event))
    }

    /// Whether the stream has passed it, or it was never recorded. Faults of kernels may surface
    /// here.
    pub(super) fn is_done(&self) -> Result<bool> {
        const NOT_READY: u32 = 600;
        let context = &*self.device.context;
        context.enter()?;
        // SAFETY: the event lives.
        let code = unsafe { context.driver.api.cuEventQuery(self.handle) };
        match code.code {
            NOT_READY => Ok(false),
            _ => context.check(code, || "asking whether an event is done".into()).map(|()| true),
        }
    }

    /// Milliseconds from `start` to this event; both are timed, recorded and done.
    pub fn milliseconds_since(&self, start: &Event) -> Result<f32> {
        if !(self.timed && start.timed) {
            let help = "make both events with `timed`";
            return Err(DeviceError::refused("measuring time", "an event is not timed", help));
        }
        let mut milliseconds = 0.0;
        let (doing, context) = (|| "measuring time".into(), &self.device.context);
        // SAFETY: the pointer is valid for a write, both events live.
        context.call(doing, |api| unsafe {
            api.cuEventElapsedTime(&mut milliseconds, start.handle, self.handle)
        })?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let context = &*self.device.context;
        if context.enter().is_ok() {
            // SAFETY: destroyed once; an event that is still in the stream is freed when it is
            // done.
            context.log(unsafe { context.driver.api.cuEventDestroy_v2(self.handle) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;

    #[test]
    fn opening_and_closing_leaves_nothing() {
        let fake = Fake::new();
        let device = Device::open_with(fake.driver(), 1).unwrap();
        assert_eq!(device.name(), "cuda:1");
        assert_eq!(device.context.driver.version, 13_000);
        let other = device.clone();
        drop(device);
        other.synchronise().unwrap();
        assert_eq!(other.memory_info().unwrap(), (64 << 20, 64 << 20));
        drop(other);
        fake.nothing_left();
    }

    #[test]
    fn a_failed_opening_leaves_nothing() {
        // The probe queries free memory in a context first; a failure there is no error.
        for (call, before) in [
            ("cuDevicePrimaryCtxRetain", 0),
            ("cuCtxSetCurrent", 2),
            ("cuStreamCreate", 0),
            ("cuDeviceGetName", 0),
        ] {
            let fake = Fake::new();
            let driver = fake.driver();
            fake.fail_after(call, before, 999);
            let error = Device::open_with(driver, 0).unwrap_err();
            assert_eq!(error.code(), Some(999), "{call}");
            assert!(error.doing.contains("cuda:0"), "{error}");
            fake.nothing_left();
        }
        let fake = Fake::new();
        assert!(
            Device::open_with(fake.driver(), 9)
                .unwrap_err()
                .to_string()
                .contains("there are 2 GPUs")
        );
    }

    #[test]
    fn the_first_fault_is_named_with_every_later_error() {
        let fake = Fake::new();
        let device = Device::open_with(fake.driver(), 0).unwrap();
        fake.fail("cuStreamSynchronize", 700);
        let first = device.synchronise().unwrap_err();
        assert!(first.is_sticky() && first.earlier.is_none());
        fake.fail("cuMemGetInfo_v2", 700);
        let later = device.memory_info().unwrap_err();
        assert_eq!(later.earlier.as_deref(), Some(&first));
        assert!(later.to_string().contains("the first fault: waiting for the device"), "{later}");
        drop(device);
        fake.nothing_left();
    }

    #[test]
    fn events_are_recorded_waited_for_and_subtracted() {
        let fake = Fake::new();
        let device = Device::open_with(fake.driver(), 0).unwrap();
        let (start, end) = (device.event(true).unwrap(), device.event(true).unwrap());
        start.record().unwrap();
        end.record().unwrap();
        end.wait().unwrap();
        assert!(end.milliseconds_since(&start).unwrap() > 0.0);
        let untimed = device.event(false).unwrap();
        untimed.record().unwrap();
        assert!(untimed.milliseconds_since(&start).unwrap_err().to_string().contains("not timed"));
        drop((start, end, untimed, device));
        fake.nothing_left();
    }

    #[test]
    fn a_device_goes_to_other_threads() {
        fn sent<T: Send + Sync>() {}
        sent::<Device>();
        sent::<Event>();
    }
}
