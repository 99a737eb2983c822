//! Systems other than Linux: no transport exists there, and every attempt to join is an error.

use crate::error::{Error, Kind};

fn unsupported() -> Error {
    Error::new(Kind::System, "ranks are supported on Linux only")
        .help("run on one rank, or on Linux")
}

/// Shared memory, which needs Linux.
pub mod shared {
    use crate::{Communicator, Options, Result};

    /// The variable by which a launcher tells a process its rank.
    pub const VARIABLE: &str = "WENGERT_SHARED_MEMORY";
    /// Most ranks of one segment.
    pub const MAX_RANKS: usize = 256;

    /// Error: this system is not Linux.
    pub fn threads(_: usize, _: &Options) -> Result<Vec<Communicator>> {
        Err(super::unsupported())
    }

    /// Error if a launcher has started this process: this system is not Linux.
    pub fn join(_: &Options) -> Result<Option<Communicator>> {
        match std::env::var_os(VARIABLE) {
            None => Ok(None),
            Some(_) => Err(super::unsupported()),
        }
    }
}

/// MPI, which needs Linux here.
pub mod mpi {
    use crate::{Communicator, Options, Result};

    /// The variable that names a library to load instead of the launcher's.
    pub const VARIABLE: &str = "WENGERT_MPI_LIBRARY";

    /// None: no library is loaded, and a process is alone.
    pub fn join(_: &Options) -> Result<Option<Communicator>> {
        Ok(None)
    }
}
