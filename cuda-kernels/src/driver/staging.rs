//! Inputs and outputs of steps, double-buffered in pinned memory.
//!
//! The GPU copies from pinned memory asynchronously. So the host may fill one buffer while the
//! GPU still copies out of the other, or runs the step after that copy. An event after each copy
//! says when its buffer is free again. No buffer is written or read before that:
//! [`Upload::begin`] and [`Received::wait`] wait.
//!
//! ```text
//! host    fill A │ send A, replay │ fill B │ send B, replay │ wait for A's copy, fill A …
//! stream         │ copy A │ step 1         │ copy B │ step 2 …
//! ```
//!
//! Outputs go the other way: each [`Download::request`] returns a [`Received`], and only
//! [`Received::wait`] waits. Outputs that are dropped unread are never waited for: the next copy
//! into their buffer is ordered after theirs in the stream. If the outputs of two runs are kept
//! unread, the third request waits for the older ones and moves them into memory of their own.
//!
//! Buffers for uploads are write-combined: the host's writes bypass its caches, and the GPU need
//! not snoop them. The host never needs to read them back, which would be slow. Copies stay
//! outside captured graphs, so graphs contain device addresses only and never change for a copy.

use super::allocation::Address;
use super::context::{Device, Event};
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
    device: Device,
    slots: [Slot; 2],
    next: usize,
}

/// A buffer of an [`Upload`], being filled.
pub struct Filling<'a> {
    upload: &'a mut Upload,
}

/// Two buffers through which outputs come from the device.
pub struct Download {
    device: Device,
    buffers: Arc<Mutex<Buffers>>,
}

/// The buffers of a [`Download`]. Each [`Received`] keeps them alive, too.
struct Buffers {
    slots: [Slot; 2],
    /// The outputs in each buffer.
    holders: [Weak<Outputs>; 2],
    /// The slot for the next request.
    next: usize,
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

/// Whether copies may use a buffer.
#[derive(Clone, Copy, PartialEq)]
enum Used {
    /// No copy does.
    Free,
    /// Copies may, until the event is done.
    UntilCopied,
    /// Copies may, and there is no event: only a synchronisation of the stream tells.
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

    /// Waits until no copy uses the buffer.
    fn wait(&mut self) -> Result<()> {
        match self.used {
            Used::Free => {}
            Used::UntilCopied => self.copied.wait()?,
            Used::UntilIdle => self.pinned.device.synchronise()?,
        }
        self.used = Used::Free;
        Ok(())
    }

    /// Enqueues copies, and the event after them. `copy` gets each part and a pointer to it.
    fn copy(
        &mut self,
        parts: &[Part],
        mut copy: impl FnMut(&Part, *mut u8) -> Result<()>,
    ) -> Result<()> {
        for part in parts {
            let end = part.offset.checked_add(part.bytes);
            if end.is_none_or(|end| end > self.pinned.bytes as u64) {
                let (offset, bytes, length) = (part.offset, part.bytes, self.pinned.bytes);
                let why = format!("{bytes} bytes at {offset} are not in a buffer of {length}");
                return Err(DeviceError::refused("staging", why, "please report it"));
            }
        }
        // The device owns the buffer from here, even if a later copy or the event fails.
        self.used = Used::UntilIdle;
        let copied = parts.iter().filter(|p| p.bytes > 0).try_for_each(|part| {
            // SAFETY: the offset was checked to be within the buffer.
            copy(part, unsafe { self.pinned.memory.as_ptr().add(part.offset as usize) })
        });
        let recorded = self.copied.record();
        if recorded.is_ok() {
            self.used = Used::UntilCopied;
        }
        copied.and(recorded)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Freed memory must not be copied from. After a fault nothing is copied any more, and
        // waiting fails at once.
        if let Err(error) = self.wait() {
            tracing::debug!(%error, "while dropping a staging buffer");
        }
    }
}

impl Upload {
    /// Allocates two buffers of `bytes` bytes.
    pub fn new(device: &Device, bytes: u64) -> Result<Upload> {
        let slot = || Slot::new(device, bytes, CU_MEMHOSTALLOC_WRITECOMBINED, "inputs");
        Ok(Upload { device: device.clone(), slots: [slot()?, slot()?], next: 0 })
    }

    /// Size of each buffer.
    pub fn bytes(&self) -> u64 {
        self.slots[0].pinned.bytes as u64
    }

    /// Waits until the older buffer is free, and returns it. It holds the inputs of two steps
    /// before, so inputs that do not change need not be written again.
    pub fn begin(&mut self) -> Result<Filling<'_>> {
        self.slots[self.next].wait()?;
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

    /// Enqueues the copies; later work in the stream sees them. Does not wait.
    pub fn send(self, parts: &[Part]) -> Result<()> {
        let Upload { device, slots, next } = self.upload;
        device.context.not_capturing("sending inputs")?;
        // SAFETY: the memory is not written or freed before `copied` is done (`Slot::wait` in
        // `begin` and `drop`).
        let copy =
            |part: &Part, from: *mut u8| unsafe { device.send(part.address, from, part.bytes) };
        let result = slots[*next].copy(parts, copy);
        *next = 1 - *next;
        result
    }
}

impl Download {
    /// Allocates two buffers of `bytes` bytes.
    pub fn new(device: &Device, bytes: u64) -> Result<Download> {
        let slot = || Slot::new(device, bytes, 0, "outputs");
        let buffers = Buffers { slots: [slot()?, slot()?], holders: Default::default(), next: 0 };
        Ok(Download { device: device.clone(), buffers: Arc::new(Mutex::new(buffers)) })
    }

    /// Enqueues copies of device memory, which take its values at this point of the stream. Waits
    /// only if the outputs of the last two requests are both kept and were not waited for; then
    /// it waits for the older ones.
    pub fn request(&mut self, parts: &[Part]) -> Result<Received> {
        self.device.context.not_capturing("asking for outputs")?;
        let mut buffers = lock(&self.buffers);
        let slot = buffers.next;
        buffers.put_aside(slot);
        let device = &self.device;
        // SAFETY: the memory is not read or freed before `copied` is done (`Slot::wait` in
        // `put_aside` and `drop`).
        let copy =
            |part: &Part, to: *mut u8| unsafe { device.receive(part.address, to, part.bytes) };
        buffers.slots[slot].copy(parts, copy)?;
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
    /// Waits for the outputs in a buffer, and moves them out of it. Does nothing if they were
    /// dropped or moved before.
    fn put_aside(&mut self, slot: usize) {
        let Some(outputs) = std::mem::take(&mut self.holders[slot]).upgrade() else { return };
        let slot = &mut self.slots[slot];
        let bytes = slot.wait().map(|()| {
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
mod tests {
    use super::super::fake::Fake;
    use super::*;

    #[test]
    fn a_buffer_is_not_filled_again_before_it_was_copied() {
        let fake = Fake::new();
        let device = fake.device();
        let memory = device.allocate(1024, "the state").unwrap();
        let mut upload = Upload::new(&device, 64).unwrap();
        assert_eq!(upload.bytes(), 64);
        // The fake's stream does nothing until the host waits: without the events, the third
        // filling would overwrite the first.
        for step in 0..6u8 {
            let mut filling = upload.begin().unwrap();
            filling.bytes().fill(step + 1);
            let part = |n: u64| Part {
                offset: n * 32,
                address: memory.address().offset(step as u64 * 64 + n * 32),
                bytes: 32,
            };
            filling.send(&[part(0), part(1)]).unwrap();
        }
        let mut back = vec![0; 6 * 64];
        device.read(memory.address(), &mut back).unwrap();
        for (n, byte) in back.iter().enumerate() {
            assert_eq!(*byte as usize, n / 64 + 1, "byte {n}");
        }
        // The first two fillings do not wait; each later one waits once.
        assert_eq!(fake.count("cuEventSynchronize"), 4);
        drop((upload, memory, device));
        fake.nothing_left();
    }

    /// A device with 16 bytes that each round sets, and a download that copies 4 of them.
    fn downloading() -> (Fake, Device, super::super::allocation::Memory, Download) {
        let fake = Fake::new();
        let device = fake.device();
        let memory = device.allocate(16, "the state").unwrap();
        let download = Download::new(&device, 8).unwrap();
        (fake, device, memory, download)
    }

    #[test]
    fn outputs_are_those_of_their_request_whenever_they_are_asked_for() {
        let (fake, device, memory, mut download) = downloading();
        let part = [Part { offset: 4, address: memory.address(), bytes: 4 }];
        let mut kept = Vec::new();
        for byte in 1..8 {
            device.fill(memory.address(), byte, 16).unwrap();
            kept.push((byte, download.request(&part).unwrap()));
            if byte % 3 == 0 {
                kept.swap_remove(0);
            }
        }
        // The first and the last outlive the [`Download`].
        drop(download);
        kept.rotate_left(1);
        for (byte, outputs) in &kept {
            assert_eq!(outputs.wait().unwrap()[4..], [*byte; 4]);
            assert_eq!(outputs.wait().unwrap()[..5], [0, 0, 0, 0, *byte], "asked again");
        }
        assert!(kept.len() >= 4);
        drop((kept, memory, device));
        fake.nothing_left();
    }

    #[test]
    fn outputs_that_are_dropped_are_never_waited_for() {
        let (fake, device, memory, mut download) = downloading();
        let part = [Part { offset: 0, address: memory.address(), bytes: 8 }];
        for byte in 0..20 {
            device.fill(memory.address(), byte, 16).unwrap();
            drop(download.request(&part).unwrap());
        }
        assert_eq!((fake.count("cuEventSynchronize"), fake.count("cuStreamSynchronize")), (0, 0));
        // Kept outputs are waited for at the second later request, and not before.
        let kept = download.request(&part).unwrap();
        drop(download.request(&part).unwrap());
        assert_eq!(fake.count("cuEventSynchronize"), 0);
        device.fill(memory.address(), 99, 16).unwrap();
        drop(download.request(&part).unwrap());
        assert_eq!(fake.count("cuEventSynchronize"), 1);
        assert_eq!(kept.wait().unwrap(), [19; 8]);
        assert_eq!(fake.count("cuEventSynchronize"), 1);
        drop((kept, download, memory, device));
        fake.nothing_left();
    }

    #[test]
    fn outputs_that_do_not_come_say_so_each_time() {
        let (fake, device, memory, mut download) = downloading();
        let part = [Part { offset: 0, address: memory.address(), bytes: 8 }];
        let outputs = download.request(&part).unwrap();
        fake.fail("cuEventSynchronize", 700);
        for _ in 0..2 {
            assert_eq!(outputs.wait().unwrap_err().code(), Some(700));
        }
        // A copy that is refused leaves no outputs behind.
        let bad = [Part { offset: 4, address: memory.address(), bytes: 8 }];
        assert!(download.request(&bad).err().unwrap().to_string().contains("are not in a buffer"));
        download.request(&part).unwrap().wait().unwrap();
        drop((outputs, download, memory, device));
        fake.nothing_left();
    }

    #[test]
    fn a_copy_that_fails_does_not_free_the_buffer_early() {
        let fake = Fake::new();
        let device = fake.device();
        let memory = device.allocate(64, "the state").unwrap();
        let mut upload = Upload::new(&device, 64).unwrap();
        let part = |offset| Part { offset, address: memory.address().offset(offset), bytes: 8 };
        fake.fail_after("cuMemcpyHtoDAsync_v2", 1, 999);
        let mut filling = upload.begin().unwrap();
        filling.bytes().fill(1);
        assert_eq!(filling.send(&[part(0), part(8)]).unwrap_err().code(), Some(999));
        let mut filling = upload.begin().unwrap();
        filling.bytes().fill(2);
        // Without the event, the next use of the buffer waits for the whole stream.
        fake.fail("cuEventRecord", 999);
        assert!(filling.send(&[part(16)]).is_err());
        assert_eq!(fake.count("cuStreamSynchronize"), 0);
        for n in [3, 4] {
            let mut filling = upload.begin().unwrap();
            filling.bytes().fill(n);
            filling.send(&[]).unwrap();
        }
        assert_eq!(fake.count("cuStreamSynchronize"), 1);
        let mut back = [0; 24];
        device.read(memory.address(), &mut back).unwrap();
        assert_eq!((back[0], back[16]), (1, 2));
        for bad in [Part { offset: 60, ..part(0) }, Part { bytes: u64::MAX, ..part(8) }] {
            assert!(
                upload
                    .begin()
                    .unwrap()
                    .send(&[bad])
                    .unwrap_err()
                    .to_string()
                    .contains("are not in a buffer")
            );
        }
        drop((upload, memory, device));
        fake.nothing_left();
    }

    #[test]
    fn buffers_of_no_bytes_are_fine() {
        let fake = Fake::new();
        let device = fake.device();
        let (mut upload, mut download) =
            (Upload::new(&device, 0).unwrap(), Download::new(&device, 0).unwrap());
        let part = Part { offset: 0, address: Address(0), bytes: 0 };
        let mut filling = upload.begin().unwrap();
        assert!(filling.bytes().is_empty());
        filling.send(&[part]).unwrap();
        assert!(download.request(&[part]).unwrap().wait().unwrap().is_empty());
        assert_eq!(fake.count("cuMemHostAlloc"), 0);
        drop((upload, download, device));
        fake.nothing_left();
    }
}
