//! Variables in the memory of a GPU.

use std::sync::Arc;
use wengert_core::Result;
use wengert_cuda::driver::{Address, Device, Memory};

/// Alignment of each variable within an allocation.
const ALIGNMENT: usize = 256;

/// The bytes of a variable: a part of an allocation, which is freed with the last of its
/// variables.
#[derive(Debug)]
pub struct OnDevice {
    device: Device,
    memory: Arc<Memory>,
    offset: u64,
    bytes: usize,
}

impl OnDevice {
    /// Allocates zeroed buffers of these sizes in bytes, in one allocation.
    ///
    /// Errors: there is not enough memory on the device.
    pub fn zeros(device: &Device, sizes: &[usize]) -> Result<Vec<OnDevice>> {
        let mut offsets = Vec::with_capacity(sizes.len());
        let mut total = 0u64;
        for bytes in sizes {
            offsets.push(total);
            total = total.saturating_add(bytes.next_multiple_of(ALIGNMENT) as u64);
        }
        let memory = Arc::new(device.allocate(total, "the session's variables")?);
        if total > 0 {
            device.fill(memory.address(), 0, total)?;
        }
        let part = |(offset, bytes): (u64, &usize)| OnDevice {
            device: device.clone(),
            memory: memory.clone(),
            offset,
            bytes: *bytes,
        };
        Ok(offsets.into_iter().zip(sizes).map(part).collect())
    }

    /// The address of its first byte.
    pub fn address(&self) -> Address {
        self.memory.address().offset(self.offset)
    }

    /// A copy, after all earlier work of the device.
    pub fn read(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.bytes];
        self.device.read(self.address(), &mut bytes)?;
        Ok(bytes)
    }

    /// Replaces the bytes, after all earlier work of the device.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.device.write(self.address(), bytes)?)
    }
}
