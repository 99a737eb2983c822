//! Run-time checks of kernels, and their reports.

mod fault;
pub(crate) mod race;

pub use fault::{Fault, FaultKind, Other};

/// Optional checks, beside those that always run (bounds, alignment, access rights, barriers,
/// traps).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sanitize {
    /// Reads of uninitialised bytes in global, shared and local memory, and of uninitialised
    /// registers.
    pub uninitialised: bool,
    /// Unordered accesses of several threads to the same bytes, one of them a write; accesses of
    /// the generic and the async proxy to the same bytes without a fence between.
    pub races: bool,
    /// Reads through a buffer that expects another label than that of the last launch that wrote
    /// the bytes.
    pub labels: bool,
}

impl Sanitize {
    /// All checks.
    pub const ALL: Sanitize = Sanitize { uninitialised: true, races: true, labels: true };
    /// Only the checks that always run.
    pub const NONE: Sanitize = Sanitize { uninitialised: false, races: false, labels: false };
}

impl Default for Sanitize {
    fn default() -> Sanitize {
        Sanitize::ALL
    }
}
