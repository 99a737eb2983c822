//! What a rank chooses when it joins.

use std::time::Duration;

/// Options of a rank. All ranks of a world should have the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The longest time that an operation may wait for other ranks, and that ranks may take to
    /// join. It has to cover the differences between ranks, such as one that compiles alone.
    pub timeout: Duration,
    /// Compares each collective with those of the other ranks: its number, operation and bytes.
    /// This costs a message of 40 bytes to each other rank. On in debug builds.
    pub check: bool,
    /// The longest payload of one call of MPI, in bytes; a longer message is divided. At most, and
    /// by default, 2³¹−1, which is what a C `int` holds.
    pub mpi_chunk: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            timeout: Duration::from_secs(300),
            check: cfg!(debug_assertions),
            mpi_chunk: i32::MAX as usize,
        }
    }
}
