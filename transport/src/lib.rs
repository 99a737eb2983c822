//! Moves bytes between the ranks of a run.
//!
//! A *rank* is one of N processes (or threads) that run the same program. Ranks exchange bytes
//! through a [`Communicator`]: messages with tags, and the collectives all-to-all, all-gather,
//! broadcast and barrier. There are no reductions on purpose. A library's sum has another order on
//! another number of ranks; ranks that get all addends add them in one fixed order, and N ranks
//! have the bits of one.
//!
//! ```
//! use wengert_transport::{Operation, Options, Request, shared};
//!
//! let world = shared::threads(2, &Options::default())?;
//! std::thread::scope(|scope| {
//!     for rank in world {
//!         scope.spawn(move || -> wengert_transport::Result<()> {
//!             let own = vec![rank.rank() as u8 + 10; 3];
//!             // Two operations at the same time.
//!             let all = rank.start(Operation::AllGather { bytes: own, counts: vec![3, 3] })?;
//!             let barrier = rank.start(Operation::Barrier)?;
//!             let results = Request::wait_all([all, barrier])?;
//!             assert_eq!(results[0], [10, 10, 10, 11, 11, 11]);
//!             Ok(())
//!         });
//!     }
//! });
//! # Ok::<(), wengert_transport::Error>(())
//! ```
//!
//! # Transports
//!
//! A transport implements one trait, [`Transport`]. There are two:
//!
//! - [`shared`]: memory that processes of one machine share. Nothing has to be installed;
//!   [`shared::Launcher`] starts the processes.
//! - [`mpi`]: Open MPI or MPICH, loaded at run time, for processes that `mpirun` or `srun` starts
//!   on one or more machines.
//!
//! [`join`] finds out which launcher has started the process.
//!
//! # Invariants
//!
//! - Nothing waits without an end: every wait has a timeout, and its error names the rank, the
//!   operation, and the ranks that it waited for, as far as they are known.
//! - A wait advances all operations of its rank. The order in which requests are waited for does
//!   not matter.
//! - Buffers are owned by operations, but for [`Lent`] ones, which are made by an unsafe call. No
//!   safe call reaches undefined behaviour, whatever the caller does with requests.
//! - The first failure of a rank is its last: all its later operations fail.
//!
//! # Layers
//!
//! | module | what |
//! |---|---|
//! | `operation`, `messages`, `lent` | operations and their arguments, their messages, memory |
//! | `communicator`, `request` | starting, waiting, splitting, timeouts; the same for all transports |
//! | `check`, `handshake` | comparison of collectives in debug builds; of hashes at the start |
//! | `transport` | the trait |
//! | [`shared`], [`mpi`] | the transports |
#![deny(unsafe_code)]

mod check;
mod communicator;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
mod error;
mod handshake;
mod join;
mod lent;
mod messages;
#[cfg(target_os = "linux")]
pub mod mpi;
mod operation;
mod options;
mod request;
#[cfg(target_os = "linux")]
pub mod shared;
mod transport;

pub use communicator::Communicator;
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{mpi, shared};
pub use error::{Error, Kind, Result};
pub use handshake::{HASH_BYTES, NamedHash};
pub use join::{is_rank, join, join_if_launched};
pub use lent::Lent;
pub use messages::Buffers;
pub use operation::{MAX_TAG, Operation};
pub use options::Options;
pub use request::Request;
pub use transport::{Awaited, Group, Ticket, Transport};
