//! Measurements of programs on a device, compared with other systems.
//!
//! A measurement is a claim, and claims must be reproducible by others:
//!
//! - **The result comes first.** A [`case`] has random data (never zeros, which clock higher and
//!   compress) and a plain loop that computes the same. A contender with another result is not
//!   timed. If contenders have the same initial values, the losses of their first steps must
//!   agree.
//! - **In turns.** All cases of a group and all [contenders](harness::Contender) are prepared and
//!   warm, then timed in rounds, one sample of each per round, in alternating order. A machine
//!   that slows down slows all of them, and ratios are of samples of one round. With networks a
//!   yardstick is timed, so that their floors slow down with them.
//! - **Spread.** A figure is the median of the rounds, with the minimum and the tenth and
//!   ninetieth percentiles ([`statistics`]).
//! - **By hand.** The bytes that a case must move and its floating-point operations are counted
//!   by a person, in the case, independently of the compiler under test.
//! - **Measured ceilings.** Rates are compared with the copy bandwidth of the same machine in the
//!   same run, not with a data sheet.
//! - **Records.** A run writes a [`record`]: every figure with its machine, driver and settings.
//!   [`table`] merges records of several contenders; `bench/record/` keeps those that support
//!   claims.
//!
//! # Location of data
//!
//! Copying inputs to the device and outputs back would take longer than a kernel. So everything
//! that a case reads or writes is a *variable* of its session: variables stay on the device, and
//! a run copies nothing. To wait for the device, a second function, the fence, is run afterwards:
//! it returns one element. A sample is many runs and one fence, divided by the runs; a *latency*
//! is one run and its fence.
#![forbid(unsafe_code)]

pub mod busy;
pub mod case;
pub mod cli;
pub mod compile;
pub mod compiled_loop;
pub mod csv;
pub mod data;
pub mod floor;
mod gpt2;
pub mod harness;
pub mod machine;
pub mod memory;
pub mod native;
pub mod parity;
pub mod plot;
pub mod process;
pub mod profile;
pub mod record;
pub mod resident;
pub mod starts;
pub mod statistics;
pub mod suite;
pub mod table;
mod yardstick;
