//! What is watched while a kernel runs, and how it is reported.

mod fault;
pub(crate) mod race;

pub use fault::{Fault, FaultKind, Other};

/// Which checks run beyond those that always do (bounds, alignment, access rights, barriers,
/// traps).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sanitize {
    /// Reads of bytes that nothing has written, in global, shared and local memory, and of such
    /// registers.
    pub uninitialised: bool,
    /// Unordered accesses of several threads to the same bytes, one of them a write.
    pub races: bool,
    /// Reads through a buffer that expects another label than that of the last launch that wrote
    /// the bytes.
    pub labels: bool,
}

impl Sanitize {
    /// Everything.
    pub const ALL: Sanitize = Sanitize { uninitialised: true, races: true, labels: true };
    /// Only what always runs.
    pub const NONE: Sanitize = Sanitize { uninitialised: false, races: false, labels: false };
}

impl Default for Sanitize {
    fn default() -> Sanitize {
        Sanitize::ALL
    }
}
