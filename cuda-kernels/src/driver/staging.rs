//! Inputs and outputs of steps: copied beside the kernels, double-buffered in pinned memory.
//!
//! The GPU copies from pinned memory asynchronously. So the host may fill one buffer while the
//! GPU still copies out of the other, or runs the step after that copy. An event after each copy
//! says when its buffer is free again. No buffer is written or read before that:
//! [`Upload::begin`] and [`Received::wait`] wait.
//!
//! Copies between host and device have streams of their own ([`super::copies`]), one for each
//! direction and executable, so they overlap with kernels. The addresses of inputs and outputs in a
//! captured step are fixed, and the step before may still use them. So inputs arrive in an area of
//! their own on the device, the *landing*, and the device's stream copies them to their addresses
//! at the beginning of the step. At its end the device's stream copies the outputs to another area,
//! the *departure*. These copies stay on the device, at its memory's speed.
//!
//! ```text
//! host     fill A │ send A, replay │ fill B │ send B, replay │ wait for A's copy, fill A …
//! uploads         │ A to landing ●─┐        │ ○ B to landing ●─┐
//! device                         └─○ take A ● step 1, outputs to departure ● ○ take B ● step 2 …
//! downloads                                                  └─○ departure to host ●
//! ```
//!
//! The order of the streams (● records an event, ○ waits for it):
//!
//! | before | after | so that |
//! |---|---|---|
//! | upload to the landing | the device takes it | the step reads this step's inputs |
//! | the device takes it | the next upload to the landing | no input is overwritten |
//! | the device fills the departure | the download from it | the host gets this step's outputs |
//! | the download from it | the device fills it again | no output is overwritten |
//!
//! All kernels and copies on the device, of all plans, are in the device's one stream, so the order
//! between plans that share variables is that of their runs.
//!
//! **Failures.** A call that fails leaves the copies before it in their streams. If an event was
//! not recorded, the next use of its buffer or area waits for the whole stream instead.
//!
//! Each [`Download::request`] returns a [`Received`], and only [`Received::wait`] waits. Outputs
//! that are dropped unread are never waited for: the next copy into their buffer is ordered after
//! theirs in the stream. If the outputs of two runs are kept unread, the third request waits for
//! the older ones and moves them into memory of their own.
//!
//! Buffers for uploads are write-combined: the host's writes bypass its caches, and the GPU need
//! not snoop them. The host never needs to read them back, which would be slow. Copies stay
//! outside captured graphs, so graphs contain device addresses only and never change for a copy.

use super::allocation::{Address, Memory};
use super::context::{Device, Event};
use super::copies::CopyStream;
use super::error::{DeviceError, Result};
use cudarc::driver::sys::CU_MEMHOSTALLOC_WRITECOMBINED;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// A range of a buffer, and the device address that it is copied to or from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// First byte in the buffer.
    pub offset: u64,
    /// First byte on the device.
    pub address: Address,
    /// Bytes.
    pub bytes: u64,
}

/// Two buffers through which inputs go to the device.
pub struct Upload {
    // Fields are dropped in this order: copies are waited for, then their memory is freed.
    slots: [Slot; 2],
    landing: Area,
    next: usize,
}

/// A buffer of an [`Upload`], being filled.
pub struct Filling<'a> {
    upload: &'a mut Upload,
}

/// Two buffers through which outputs come from the device.
pub struct Download {
    buffers: Arc<Mutex<Buffers>>,
}

/// The buffers of a [`Download`]. Each [`Received`] keeps them alive, too.
struct Buffers {
    // Dropped in this order, as those of an upload.
    slots: [Slot; 2],
    departure: Area,
    /// The outputs in each buffer.
    holders: [Weak<Outputs>; 2],
    /// The slot for the next request.
    next: usize,
    /// The slot of the latest copy from the departure.
    latest: usize,
}

/// An area on the device that a copy stream and the device's stream use in turn.
struct Area {
    memory: Memory,
    /// Recorded in the device's stream when it has used the area.
    used: Event,
    state: Used,
    /// None if there are no bytes to copy.
    stream: Option<CopyStream>,
    device: Device,
}

/// Outputs that were taken out of their buffer: the bytes, or the error of their copy.
type Outputs = OnceLock<Result<Box<[u8]>>>;

/// Requested outputs, which may not have arrived yet. Dropped unread, they are never waited for.
pub struct Received {
    buffers: Arc<Mutex<Buffers>>,
    outputs: Arc<Outputs>,
}

/// Pinned memory, and the event after the last copy that uses it.
struct Slot {
    pinned: Pinned,
    copied: Event,
    used: Used,
}

/// Whether a stream may use a buffer or an area.
#[derive(Clone, Copy, PartialEq)]
enum Used {
    /// It does not.
    Free,
    /// It may, until the event is done.
    UntilEvent,
    /// It may, and there is no event: only a synchronisation of the stream tells.
    UntilIdle,
}

/// Page-locked host memory, initially zero.
struct Pinned {
    device: Device,
    memory: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory as a box of bytes does; the driver's calls for it may come from any
// thread.
unsafe impl Send for Pinned {}
// SAFETY: nothing changes through a shared reference.
unsafe impl Sync for Pinned {}

impl Pinned {
    fn new(device: &Device, bytes: u64, flags: u32, what: &str) -> Result<Pinned> {
        let context = &*device.context;
        let doing = || format!("pinning {bytes} bytes of the host's memory for {what}");
        context.not_capturing(&doing())?;
        let mut pinned = Pinned { device: device.clone(), memory: NonNull::dangling(), bytes: 0 };
        if bytes == 0 {
            return Ok(pinned);
        }
        let help = "use a smaller batch, or raise the limit of locked memory";
        let too_much = |why: &str| DeviceError::refused(doing(), why, help);
        let size =
            isize::try_from(bytes).map_err(|_| too_much("there is no such memory"))? as usize;
        let mut memory = std::ptr::null_mut();
        // SAFETY: the pointer is valid for a write, the size is not 0, the context is current.
        context.call(doing, |api| unsafe { api.cuMemHostAlloc(&mut memory, size, flags) })?;
        pinned.memory =
            NonNull::new(memory.cast()).ok_or_else(|| too_much("the driver gave none"))?;
        pinned.bytes = size;
        // SAFETY: the driver has just allocated that many bytes, which are not shared yet.
        // Zeroing them makes slices of them initialised.
        unsafe { pinned.memory.as_ptr().write_bytes(0, size) };
        Ok(pinned)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let context = &*self.device.context;
        if self.bytes != 0 && context.enter().is_ok() {
            // SAFETY: allocated once by `cuMemHostAlloc`, freed once; the slot has waited for its
            // copy.
            context.log(unsafe { context.driver.api.cuMemFreeHost(self.memory.as_ptr().cast()) });
        }
    }
}

impl Slot {
    fn new(device: &Device, bytes: u64, flags: u32, what: &str) -> Result<Slot> {
        Ok(Slot {
            pinned: Pinned::new(device, bytes, flags, what)?,
            copied: device.event(false)?,
            used: Used::Free,
        })
    }

    /// Waits until no copy of the stream uses the buffer.
    fn wait(&mut self, stream: Option<&CopyStream>) -> Result<()> {
        match self.used {
            Used::Free => {}
            Used::UntilEvent => self.copied.wait()?,
            Used::UntilIdle => stream.map_or(Ok(()), CopyStream::synchronise)?,
        }
        self.used = Used::Free;
        Ok(())
    }

    /// Enqueues a copy of some bytes in the stream, and the event after it. `copy` gets a pointer
    /// to the first byte.
    fn copy(
        &mut self,
        stream: &CopyStream,
        span: Span,
        copy: impl FnOnce(*mut u8) -> Result<()>,
    ) -> Result<()> {
        // The stream owns the buffer from here, even if the event fails.
        self.used = Used::UntilIdle;
        // SAFETY: the span was checked to be within the buffer.
        let copied = copy(unsafe { self.pinned.memory.as_ptr().add(span.start as usize) });
        let recorded = stream.record(&self.copied);
        if recorded.is_ok() {
            self.used = Used::UntilEvent;
        }
        copied.and(recorded)
    }
}

/// Bytes of a buffer, and of the area with the same layout.
#[derive(Clone, Copy)]
struct Span {
    start: u64,
    bytes: u64,
}

impl Span {
    /// The bytes of some parts, with those between them; `None` if there are none.
    ///
    /// Error: they are not in a buffer of `length` bytes.
    fn of(parts: &[Part], length: usize) -> Result<Option<Span>> {
        let mut span: Option<(u64, u64)> = None;
        for part in parts {
            let end = part.offset.checked_add(part.bytes).filter(|end| *end <= length as u64);
            let Some(end) = end else {
                let (offset, bytes) = (part.offset, part.bytes);
                let why = format!("{bytes} bytes at {offset} are not in a buffer of {length}");
                return Err(DeviceError::refused("staging", why, "please report it"));
            };
            if part.bytes > 0 {
                let (start, last) = span.unwrap_or((part.offset, end));
                span = Some((start.min(part.offset), last.max(end)));
            }
        }
        Ok(span.map(|(start, end)| Span { start, bytes: end - start }))
    }
}

impl Area {
    fn new(device: &Device, bytes: u64, what: &str) -> Result<Area> {
        let stream = match bytes {
            0 => None,
            _ => Some(CopyStream::new(device, what)?),
        };
        let memory = device.allocate(bytes, &format!("the copies of {what}"))?;
        let used = device.event(false)?;
        Ok(Area { memory, used, state: Used::Free, stream, device: device.clone() })
    }

    /// The copy stream, whose next copy comes after the device's use of the area.
    fn for_copy(&mut self) -> Result<&CopyStream> {
        let stream = self.stream.as_ref().expect("an area with bytes has a stream");
        match self.state {
            Used::Free => {}
            Used::UntilEvent => stream.wait_for(&self.used)?,
            Used::UntilIdle => self.device.synchronise()?,
        }
        self.state = Used::Free;
        Ok(stream)
    }

    /// Lets the device's stream use the area. `copy` enqueues the copy of a part, from or to its
    /// address in the area.
    fn use_now(
        &mut self,
        parts: &[Part],
        copy: impl Fn(&Device, &Part, Address) -> Result<()>,
    ) -> Result<()> {
        self.state = Used::UntilIdle;
        let at = |part: &Part| self.memory.address().offset(part.offset);
        let copied = parts.iter().try_for_each(|part| copy(&self.device, part, at(part)));
        let recorded = self.used.record();
        if recorded.is_ok() {
            self.state = Used::UntilEvent;
        }
        copied.and(recorded)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        wait_for_all(&mut self.slots, &self.landing);
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        wait_for_all(&mut self.slots, &self.departure);
    }
}

/// Waits until no copy uses the buffers: freed memory must not be copied from or to. After a
/// fault nothing is copied any more, and waiting fails at once.
fn wait_for_all(slots: &mut [Slot; 2], area: &Area) {
    for slot in slots {
        if let Err(error) = slot.wait(area.stream.as_ref()) {
            tracing::debug!(%error, "while dropping a staging buffer");
        }
    }
}

impl Upload {
    /// Allocates two buffers of `bytes` bytes, and as much on the device.
    pub fn new(device: &Device, bytes: u64) -> Result<Upload> {
        let slot = || Slot::new(device, bytes, CU_MEMHOSTALLOC_WRITECOMBINED, "inputs");
        let slots = [slot()?, slot()?];
        Ok(Upload { slots, landing: Area::new(device, bytes, "inputs")?, next: 0 })
    }

    /// Size of each buffer.
    pub fn bytes(&self) -> u64 {
        self.slots[0].pinned.bytes as u64
    }

    /// Bytes of device memory.
    pub fn device_bytes(&self) -> u64 {
        self.landing.memory.bytes()
    }

    /// Waits until the older buffer is free, and returns it. It holds the inputs of two steps
    /// before, so inputs that do not change need not be written again.
    pub fn begin(&mut self) -> Result<Filling<'_>> {
        self.slots[self.next].wait(self.landing.stream.as_ref())?;
        Ok(Filling { upload: self })
    }
}

impl Filling<'_> {
    /// The buffer's bytes. Reading from them is slow.
    pub fn bytes(&mut self) -> &mut [u8] {
        let pinned = &mut self.upload.slots[self.upload.next].pinned;
        // SAFETY: the slot was waited for, so no copy uses the memory; it was zeroed when made;
        // `self` is borrowed with the slice. Memory of no bytes is a dangling, aligned pointer.
        unsafe { std::slice::from_raw_parts_mut(pinned.memory.as_ptr(), pinned.bytes) }
    }

    /// Enqueues the copies; later work in the device's stream sees them. Does not wait.
    pub fn send(self, parts: &[Part]) -> Result<()> {
        let Upload { slots, landing, next } = self.upload;
        landing.device.context.not_capturing("sending inputs")?;
        let slot = &mut slots[*next];
        *next = 1 - *next;
        let Some(span) = Span::of(parts, slot.pinned.bytes)? else { return Ok(()) };
        let to = landing.memory.address().offset(span.start);
        let stream = landing.for_copy()?;
        // SAFETY: the memory is not written or freed before `copied` is done (`Slot::wait` in
        // `begin` and `drop`). The landing is freed after that.
        slot.copy(stream, span, |from| unsafe { stream.send(to, from, span.bytes) })?;
        slot.copied.hold_back_device()?;
        landing.use_now(parts, |device, part, from| device.copy(from, part.address, part.bytes))
    }
}

impl Download {
    /// Allocates two buffers of `bytes` bytes, and as much on the device.
    pub fn new(device: &Device, bytes: u64) -> Result<Download> {
        let slot = || Slot::new(device, bytes, 0, "outputs");
        let buffers = Buffers {
            slots: [slot()?, slot()?],
            departure: Area::new(device, bytes, "outputs")?,
            holders: Default::default(),
            next: 0,
            latest: 0,
        };
        Ok(Download { buffers: Arc::new(Mutex::new(buffers)) })
    }

    /// Bytes of device memory.
    pub fn device_bytes(&self) -> u64 {
        lock(&self.buffers).departure.memory.bytes()
    }

    /// Enqueues copies of device memory, which take its values at this point of the device's
    /// stream. Waits only if the outputs of the last two requests are both kept and were not
    /// waited for; then it waits for the older ones.
    pub fn request(&mut self, parts: &[Part]) -> Result<Received> {
        let mut buffers = lock(&self.buffers);
        buffers.departure.device.context.not_capturing("asking for outputs")?;
        let slot = buffers.next;
        buffers.put_aside(slot);
        buffers.copy(slot, parts)?;
        let outputs = Arc::new(Outputs::new());
        buffers.holders[slot] = Arc::downgrade(&outputs);
        buffers.next = 1 - slot;
        drop(buffers);
        Ok(Received { buffers: self.buffers.clone(), outputs })
    }
}

fn lock(buffers: &Mutex<Buffers>) -> MutexGuard<'_, Buffers> {
    buffers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Buffers {
    /// Enqueues the copies of parts to a slot.
    fn copy(&mut self, slot: usize, parts: &[Part]) -> Result<()> {
        let Buffers { slots, departure, latest, .. } = self;
        let Some(span) = Span::of(parts, slots[slot].pinned.bytes)? else { return Ok(()) };
        // The copy before this one still reads the area.
        let before = &slots[*latest];
        match before.used {
            Used::Free => {}
            Used::UntilEvent => before.copied.hold_back_device()?,
            Used::UntilIdle => departure.stream.as_ref().map_or(Ok(()), CopyStream::synchronise)?,
        }
        departure.use_now(parts, |device, part, to| device.copy(part.address, to, part.bytes))?;
        let from = departure.memory.address().offset(span.start);
        let stream = departure.for_copy()?;
        *latest = slot;
        // SAFETY: the memory is not read or freed before `copied` is done (`Slot::wait` in
        // `put_aside` and `drop`). The departure is freed after that.
        slots[slot].copy(stream, span, |to| unsafe { stream.receive(from, to, span.bytes) })
    }

    /// Waits for the outputs in a buffer, and moves them out of it. Does nothing if they were
    /// dropped or moved before.
    fn put_aside(&mut self, slot: usize) {
        let Some(outputs) = std::mem::take(&mut self.holders[slot]).upgrade() else { return };
        let (slot, stream) = (&mut self.slots[slot], self.departure.stream.as_ref());
        let bytes = slot.wait(stream).map(|()| {
            // SAFETY: the slot was waited for, so no copy uses the memory; it was zeroed when made;
            // `slot` is borrowed meanwhile. Memory of no bytes is a dangling, aligned pointer.
            unsafe { std::slice::from_raw_parts(slot.pinned.memory.as_ptr(), slot.pinned.bytes) }
                .into()
        });
        outputs
            .set(bytes)
            .expect("outputs are put aside by the holder of the lock, and leave their buffer then");
    }
}

impl Received {
    /// Waits until the outputs have arrived, and returns the buffer's bytes. Faults of kernels
    /// may surface here.
    pub fn wait(&self) -> Result<&[u8]> {
        if self.outputs.get().is_none() {
            let mut buffers = lock(&self.buffers);
            let holds =
                |holder: &Weak<Outputs>| std::ptr::eq(holder.as_ptr(), Arc::as_ptr(&self.outputs));
            if let Some(slot) = buffers.holders.iter().position(holds) {
                buffers.put_aside(slot);
            }
        }
        match self.outputs.get().expect("what left its buffer was put aside") {
            Ok(bytes) => Ok(bytes),
            Err(error) => Err(error.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
