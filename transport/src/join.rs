//! Joining the world of whichever launcher has started this process.

use crate::communicator::Communicator;
use crate::error::{Error, Kind, Result};
use crate::options::Options;
use crate::{mpi, shared};

/// Joins the world of the launcher that has started this process, and waits for the other ranks:
/// by shared memory if [`shared::Launcher`] has started it, else by MPI.
///
/// Error: no launcher has started it, ranks are missing, or the library of MPI is not the
/// launcher's.
pub fn join(options: &Options) -> Result<Communicator> {
    join_if_launched(options)?.ok_or_else(|| {
        Error::new(Kind::Environment, "no launcher has started this process as a rank").help(
            "start the ranks with the launcher of this program, or with mpirun, mpiexec or srun",
        )
    })
}

/// [`join`]; none if no launcher has started this process.
pub fn join_if_launched(options: &Options) -> Result<Option<Communicator>> {
    match shared::join(options)? {
        Some(world) => Ok(Some(world)),
        None => mpi::join(options),
    }
}

/// True if the environment says that the launcher of this crate has started this process.
pub fn is_rank() -> bool {
    std::env::var_os(shared::VARIABLE).is_some()
}
