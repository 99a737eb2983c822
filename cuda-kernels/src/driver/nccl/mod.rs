//! Exchanges of bytes between GPUs, by NCCL.
//!
//! ```text
//! Nccl (the library) ─► Exchanges (a device's) ─ join ─► a communicator for each group of ranks
//!                            └─ start: grouped sends and receives; wait: orders the readers
//! ```
//!
//! NCCL is opened at run time, when a session joins ranks, and nothing else needs it. Of its
//! operations only sends and receives are used, grouped, so that a rank's blocks move at once. None
//! of its reductions is used: kernels of this crate add, in an order that does not depend on the
//! number of ranks ([`crate::lowered`]).
//!
//! **Streams.** Exchanges run in a stream of their own, one after another. Events order them: an
//! exchange waits for the work that the device's stream has when it is started, and the device's
//! stream waits for the exchange where [`Exchanges::wait`] is called. Bytes that a rank sends to
//! itself are copied in the same stream.
//!
//! **Other ranks may never come.** A wait for a stream does not end then. So every wait of the host
//! for the device first waits for the latest exchange, by asking at growing intervals whether it
//! has ended, whether NCCL has an error, and whether the time is over ([`Exchanges`]). On a failure
//! all communicators are aborted, which ends their kernels, and every later exchange is an error.
//!
//! **Not captured.** NCCL allows sends in CUDA graphs. Here plans with exchanges are not captured:
//! nothing of this has run on a GPU yet.
//!
//! The test of everything here is a fake NCCL among the fake drivers of several threads
//! (`fake/nccl`).

mod api;
mod exchanges;

pub use api::Nccl;
#[cfg(test)]
pub(in crate::driver) use api::NcclApi;
pub use exchanges::{Exchanges, Gather, Group};
pub(crate) use exchanges::{Transfer, Transfers};

#[cfg(test)]
pub(crate) mod tests;
