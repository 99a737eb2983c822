//! Measurements of programs on a device, compared with other systems.
//!
//! A measurement is a claim, and claims must be reproducible by others:
//!
//! - **Results are checked first.** A [`case`] has random data and a plain loop as its reference.
//!   Data are never zeros, because zeros compress and raise clock rates. A contender with a wrong
//!   result is not timed. If contenders have the same initial values, the losses of their first
//!   steps must agree.
//! - **Contenders are timed in turns.** All cases of a group and all
//!   [contenders](harness::Contender) are prepared and warm, then timed in rounds, one sample of
//!   each per round, in alternating order. A slowdown of the machine affects all of them, and a
//!   ratio compares samples of the same round. A product and a copy (the *yardstick*) are timed in
//!   turns with each network, and the network's floor is computed from their times.
//! - **Figures have a spread.** A figure is the median of the rounds, with the minimum and the
//!   tenth and ninetieth percentiles ([`statistics`]).
//! - **Work is counted by hand.** A case states the bytes that it must move and its floating-point
//!   operations, independently of the compiler under test.
//! - **Ceilings are measured.** Rates are compared with the copy bandwidth of the same machine in
//!   the same run, not with a data sheet.
//! - **Runs are recorded.** A run writes a [`record`]: every figure with its machine, driver and
//!   settings. [`table`] merges records of several contenders; `bench/record/` keeps those that
//!   support claims.
//!
//! # Location of data
//!
//! Copying inputs to the device and outputs back would take longer than a kernel. So everything
//! that a case reads or writes is a *variable* of its session. Variables stay on the device, so a
//! run copies nothing. A second function, the *fence*, returns one element; its result is available
//! only after all earlier runs. A *sample* is the time of many runs and one fence, divided by the
//! number of runs. A *latency* is the time of one run and its fence.
#![forbid(unsafe_code)]

mod buckets;
pub mod busy;
pub mod case;
pub mod cli;
pub mod compile;
pub mod compiled_loop;
pub mod csv;
pub mod data;
pub mod floor;
mod gpt2;
pub mod gpu_model;
pub mod harness;
pub mod machine;
pub mod memory;
pub mod native;
pub mod parity;
pub mod plot;
pub mod process;
pub mod profile;
mod ranks;
pub mod record;
pub mod resident;
mod spin;
pub mod starts;
pub mod statistics;
pub mod suite;
pub mod table;
mod yardstick;
