//! MPI, loaded at run time: ranks on one machine or several.
//!
//! Nothing of MPI is needed to build. A launcher (`mpirun`, `mpiexec`, `srun`) starts the ranks,
//! and says so in their environment ([`launch`]). Its library is loaded ([`library`]), its binary
//! interface is chosen by what the library says of itself ([`abi`]), and its functions are called
//! through a table ([`functions`]), one at a time ([`process`]). [`world`] is the transport, and
//! [`collective`] has MPI's collectives.
//!
//! Bytes only (`MPI_BYTE`), and no reductions: libraries add in an order that depends on the
//! number of ranks and on the algorithm, so ranks get the bytes and add them in a fixed order.
//!
//! # Waits
//!
//! MPI has no wait with a timeout, and most libraries wait in a loop that takes a whole processor.
//! So operations do not block, and are tested with pauses that grow to half a millisecond.
//! `MPI_Init_thread`, `MPI_Comm_split` and `MPI_Finalize` do block. The last two come after a
//! collective with a timeout, which shows that all ranks have arrived.
//!
//! # Faults
//!
//! A launcher of MPI ends all ranks when one dies. A rank that fails does not call `MPI_Finalize`,
//! which would wait for the others; it ends with its exit status, and the launcher ends the rest.
#![allow(unsafe_code)]

mod abi;
mod collective;
mod functions;
mod launch;
mod library;
mod process;
mod world;

pub use library::VARIABLE;

use crate::communicator::Communicator;
use crate::error::{Error, Kind, Result};
use crate::options::Options;
use abi::{Mpich, OpenMpi, Vendor};
use launch::Launch;
use library::Library;

/// Joins the world of the launcher of MPI that has started this process. None if no launcher has.
/// A process joins once.
pub fn join(options: &Options) -> Result<Option<Communicator>> {
    let variable = |name: &str| std::env::var(name).ok();
    let Some(launch) = Launch::detect(&variable)? else { return Ok(None) };
    let place = match launch.ranks {
        Some(ranks) => format!("joining a world of {ranks} ranks by MPI"),
        None => "joining a world by MPI".into(),
    };
    enter(&launch, variable(VARIABLE).as_deref(), options)
        .map(Some)
        .map_err(|error| error.at(launch.rank, &place))
}

fn enter(launch: &Launch, named: Option<&str>, options: &Options) -> Result<Communicator> {
    if !(1..=i32::MAX as usize).contains(&options.mpi_chunk) {
        let message = format!("`mpi_chunk` is {}", options.mpi_chunk);
        return Err(Error::new(Kind::Argument, message).help("it is 1 to 2147483647 bytes"));
    }
    let library = Library::open(named, &launch.vendors())?;
    match library.vendor {
        Vendor::OpenMpi => world::join::<OpenMpi>(&library, launch, options),
        Vendor::Mpich => world::join::<Mpich>(&library, launch, options),
    }
}
