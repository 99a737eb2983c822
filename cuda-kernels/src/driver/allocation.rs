//! Device memory: few, large allocations, and checked copies.
//!
//! A session allocates twice: its state (parameters, variables, constants, inputs, outputs), and
//! one arena that all its plans share. Nothing is allocated while steps run. The requested size
//! is compared with the free memory *before* the driver is asked, since the plan knows its bytes.
//! So running out of memory is an error message with numbers, before any step runs.
//!
//! An [`Address`] is a number in the device's address space, which it shares with the host's
//! pinned memory. Copies therefore check that their whole range lies in one allocation of this
//! device. Kernels cannot be checked so. Their addresses come from verified plans, and the GPU's
//! page tables confine them.

use super::context::{Device, Freed};
use super::error::{Cause, DeviceError, Result};
use std::collections::BTreeMap;
use std::fmt;

/// Address of a byte on the device. 0 is the address of an allocation of no bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Address(pub u64);

impl Address {
    /// The address plus `bytes`.
    #[must_use]
    pub fn offset(self, bytes: u64) -> Address {
        Address(self.0.wrapping_add(bytes))
    }

    /// The largest power of two, at most 256, that divides the address.
    pub fn alignment(self) -> u32 {
        1 << self.0.trailing_zeros().min(8)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Allocations of a device: start and bytes.
#[derive(Default)]
pub(super) struct Regions(BTreeMap<u64, u64>);

impl Regions {
    /// Start and bytes of the allocation that contains all these bytes.
    fn of(&self, address: Address, bytes: u64) -> Option<(u64, u64)> {
        let (start, length) = self.0.range(..=address.0).next_back()?;
        let end = address.0.checked_add(bytes)?;
        (end <= start + length).then_some((*start, *length))
    }
}

/// An allocation, freed when dropped. Its initial content is undefined.
pub struct Memory {
    device: Device,
    address: Address,
    bytes: u64,
}

impl Memory {
    /// Its first byte; aligned to 256.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:?}", self.bytes, self.address)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let context = &*self.device.context;
        if self.bytes == 0 {
            return;
        }
        context.regions().0.remove(&self.address.0);
        context.free(Freed::Memory(self.address.0));
    }
}

const FAULT: &str = "this is a fault of the plan or its executor: please report it";

impl Device {
    /// Allocates. `what` is a noun for messages: "the arena", "the session's state".
    ///
    /// Errors: more than is free; a capture is in progress.
    pub fn allocate(&self, bytes: u64, what: &str) -> Result<Memory> {
        let context = &*self.context;
        context.not_capturing(&format!("allocating {what}"))?;
        let mut memory = Memory { device: self.clone(), address: Address(0), bytes: 0 };
        if bytes == 0 {
            return Ok(memory);
        }
        let (free, total) = self.memory_info()?;
        let too_much = |what: &str, free| {
            Err(DeviceError::new(what, Cause::Memory { wanted: bytes, free, total }))
        };
        let Ok(size) = usize::try_from(bytes) else { return too_much(what, free) };
        if bytes > free {
            return too_much(what, free);
        }
        let mut address = 0;
        // SAFETY: the pointer is valid for a write, the size is not 0, the context is current
        // (`memory_info` entered it).
        let code = unsafe { context.driver.api.cuMemAlloc_v2(&mut address, size) };
        const OUT_OF_MEMORY: u32 = 2;
        if code.code == OUT_OF_MEMORY {
            // Free memory need not be contiguous, and other processes allocate it too.
            return too_much(&format!("{what}, in one piece,"), self.memory_info()?.0);
        }
        context.check(code, || format!("allocating {bytes} bytes for {what}"))?;
        memory.address = Address(address);
        memory.bytes = bytes;
        context.regions().0.insert(address, bytes);
        Ok(memory)
    }

    /// An error if these bytes are not all in one allocation of this device.
    pub(crate) fn within(&self, what: &str, address: Address, bytes: u64) -> Result<()> {
        if self.context.regions().of(address, bytes).is_some() {
            return Ok(());
        }
        let why =
            format!("{bytes} bytes at {address:?} are not in one allocation of {}", self.name());
        Err(DeviceError::refused(what, why, FAULT))
    }

    /// Enqueues a copy on the device. The ranges are equal or disjoint. May be captured.
    pub fn copy(&self, from: Address, to: Address, bytes: u64) -> Result<()> {
        if bytes == 0 || from == to {
            return Ok(());
        }
        self.within("copying from", from, bytes)?;
        self.within("copying to", to, bytes)?;
        if from.0.abs_diff(to.0) < bytes {
            let why = format!("{bytes} bytes from {from:?} to {to:?} overlap");
            return Err(DeviceError::refused("copying", why, FAULT));
        }
        self.context.submitting("copying on the device")?;
        let doing = || format!("copying {bytes} bytes on the device");
        // SAFETY: both ranges lie in allocations of this device and are disjoint.
        self.context.call(doing, |api| unsafe {
            api.cuMemcpyDtoDAsync_v2(to.0, from.0, bytes as usize, self.context.stream)
        })
    }

    /// Enqueues a fill with a byte. May be captured.
    pub fn fill(&self, to: Address, byte: u8, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.within("filling", to, bytes)?;
        self.context.submitting("filling")?;
        let doing = || format!("filling {bytes} bytes");
        // SAFETY: the range lies in an allocation of this device.
        self.context.call(doing, |api| unsafe {
            api.cuMemsetD8Async(to.0, byte, bytes as usize, self.context.stream)
        })
    }

    /// Copies to the device and waits for it. For one-time copies (weights); steps use `staging`.
    pub fn write(&self, to: Address, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.context.not_capturing("writing to the device")?;
        // SAFETY: `bytes` is borrowed until the wait below is over.
        unsafe { self.send(to, bytes.as_ptr(), bytes.len() as u64)? };
        self.synchronise()
    }

    /// Waits for the stream and copies from the device. For scalars that control a loop, and for
    /// one-time copies.
    pub fn read(&self, from: Address, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.context.not_capturing("reading from the device")?;
        // SAFETY: `bytes` is borrowed until the wait below is over.
        unsafe { self.receive(from, bytes.as_mut_ptr(), bytes.len() as u64)? };
        self.synchronise()
    }

    /// Enqueues a copy from the host.
    ///
    /// # Safety
    /// `from` is valid for reads of `bytes` bytes until the stream has completed the copy, and is
    /// not written before.
    pub(super) unsafe fn send(&self, to: Address, from: *const u8, bytes: u64) -> Result<()> {
        self.within("writing to the device", to, bytes)?;
        let doing = || format!("copying {bytes} bytes to the device");
        // SAFETY: the caller guarantees `from`; `to` lies in an allocation of this device.
        self.context.call(doing, |api| unsafe {
            api.cuMemcpyHtoDAsync_v2(to.0, from.cast(), bytes as usize, self.context.stream)
        })
    }

    /// Enqueues a copy to the host.
    ///
    /// # Safety
    /// `to` is valid for writes of `bytes` bytes until the stream has completed the copy, and is
    /// not used before.
    pub(super) unsafe fn receive(&self, from: Address, to: *mut u8, bytes: u64) -> Result<()> {
        self.within("reading from the device", from, bytes)?;
        let doing = || format!("copying {bytes} bytes from the device");
        // SAFETY: the caller guarantees `to`; `from` lies in an allocation of this device.
        self.context.call(doing, |api| unsafe {
            api.cuMemcpyDtoHAsync_v2(to.cast(), from.0, bytes as usize, self.context.stream)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;

    #[test]
    fn bytes_go_there_and_back() {
        let fake = Fake::new();
        let device = fake.device();
        let memory = device.allocate(1000, "the state").unwrap();
        let at = memory.address();
        assert_eq!(at.alignment(), 256);
        let data: Vec<u8> = (0..100).collect();
        device.write(at.offset(8), &data).unwrap();
        device.copy(at.offset(8), at.offset(500), 100).unwrap();
        device.fill(at.offset(510), 7, 3).unwrap();
        let mut back = vec![0; 100];
        device.read(at.offset(500), &mut back).unwrap();
        let mut expected = data.clone();
        expected[10..13].fill(7);
        assert_eq!(back, expected);
        drop((memory, device));
        fake.nothing_left();
    }

    #[test]
    fn nothing_is_done_for_no_bytes() {
        let fake = Fake::new();
        let device = fake.device();
        let memory = device.allocate(0, "nothing").unwrap();
        assert_eq!((memory.address(), memory.bytes()), (Address(0), 0));
        let before = fake.calls();
        device.write(memory.address(), &[]).unwrap();
        device.read(Address(12345), &mut []).unwrap();
        device.copy(Address(1), Address(2), 0).unwrap();
        device.fill(Address(3), 0, 0).unwrap();
        drop(memory);
        assert_eq!(fake.calls(), before);
        drop(device);
        fake.nothing_left();
    }

    #[test]
    fn too_much_is_told_beforehand_with_numbers() {
        let fake = Fake::new();
        let device = fake.device();
        let _kept = device.allocate(60 << 20, "the state").unwrap();
        let before = fake.count("cuMemAlloc_v2");
        let error = device.allocate(10 << 20, "the arena").err().unwrap();
        assert_eq!(fake.count("cuMemAlloc_v2"), before);
        let text = error.to_string();
        assert!(
            text.contains("the arena needs 10.0 MiB")
                && text.contains("4.0 MiB of 64.0 MiB are free"),
            "{text}"
        );
        // The driver may refuse memory that it reported as free.
        fake.fail("cuMemAlloc_v2", 2);
        let error = device.allocate(1 << 20, "the arena").err().unwrap();
        assert!(error.to_string().contains("the arena, in one piece, needs 1.0 MiB"), "{error}");
    }

    #[test]
    fn copies_out_of_bounds_are_refused() {
        let fake = Fake::new();
        let device = fake.device();
        let memory = device.allocate(256, "the state").unwrap();
        let other = device.allocate(256, "the arena").unwrap();
        let at = memory.address();
        for (from, to, bytes) in [
            (at.offset(200), other.address(), 57),
            (other.address(), at.offset(256), 1),
            (Address(8), at, 4),
            (Address(u64::MAX - 1), at, 8),
            (at, at.offset(10), 11),
        ] {
            let error = device.copy(from, to, bytes).unwrap_err();
            assert!(matches!(error.cause, Cause::Refused { .. }), "{error}");
        }
        device.copy(at, at.offset(10), 10).unwrap();
        device.copy(at.offset(255), other.address().offset(255), 1).unwrap();
        assert!(device.write(at.offset(255), &[1, 2]).is_err());
        assert!(device.read(at.offset(255), &mut [1, 2]).is_err());
        assert!(device.fill(at, 0, 257).is_err());
        let gone = memory.address();
        drop(memory);
        assert!(device.fill(gone, 0, 1).is_err());
    }
}
