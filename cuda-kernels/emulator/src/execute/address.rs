//! Addresses: the windows of generic addressing, tags, and the memory that an address may access.

use super::Machine;
use crate::memory::ADDRESS_BITS;
use crate::parse::syntax::Space;

/// Start of shared memory in generic addresses.
pub(crate) const SHARED: u64 = 0x0001_0000_0000;
/// Start of a thread's local memory in generic addresses.
pub(crate) const LOCAL: u64 = 0x0002_0000_0000;
/// Start of the kernel's parameters in generic addresses.
pub(crate) const PARAM: u64 = 0x0003_0000_0000;
/// End of the kernel's parameters.
const PARAM_END: u64 = 0x0004_0000_0000;

/// A range of global memory and the permitted accesses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) allocation: u32,
    pub(crate) low: u64,
    /// One past the last byte.
    pub(crate) high: u64,
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// Whether accesses are recorded to find races.
    pub(crate) track: bool,
    /// Stored label that read bytes must have; 0 for any.
    pub(crate) expects: u32,
    /// Stored label that writes set.
    pub(crate) makes: u32,
    /// 0 for a plain allocation.
    pub(crate) tag: u32,
}

/// The address without its tag, and the tag.
#[inline(always)]
pub(crate) fn untag(address: u64) -> (u64, u32) {
    (address & ((1 << ADDRESS_BITS) - 1), (address >> ADDRESS_BITS) as u32)
}

/// The space of a generic address, and the address in it.
#[inline(always)]
pub(crate) fn from_generic(address: u64) -> (Space, u64) {
    match address {
        SHARED..LOCAL => (Space::Shared, address - SHARED),
        LOCAL..PARAM => (Space::Local, address - LOCAL),
        PARAM..PARAM_END => (Space::Param, address - PARAM),
        _ => (Space::Global, address),
    }
}

/// The offset that `cvta` adds to an address of a space.
pub(crate) fn window(space: Space) -> u64 {
    match space {
        Space::Shared => SHARED,
        Space::Local => LOCAL,
        Space::Param => PARAM,
        Space::Global | Space::Const => 0,
    }
}

impl Machine<'_> {
    /// The region that a global address may access.
    #[inline(always)]
    pub(crate) fn region(&self, address: u64) -> Option<Region> {
        let (plain, tag) = untag(address);
        if tag != 0 {
            return self.regions.get(tag as usize - 1).copied();
        }
        let index = self.memory.find(plain)?;
        let allocation = &self.memory.allocations[index];
        Some(Region {
            allocation: index as u32,
            low: allocation.base,
            high: allocation.base + allocation.bytes,
            read: true,
            write: !allocation.read_only,
            track: true,
            expects: 0,
            makes: 0,
            tag: 0,
        })
    }
}
