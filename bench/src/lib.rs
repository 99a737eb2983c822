//! Measurements: what a program costs on a device, beside what it costs elsewhere.
//!
//! A measurement is a claim, and this crate is about claims that hold when somebody else repeats them:
//!
//! - **The result comes first.** A [`case`] brings random data (never zeros, which clock higher and compress) and a plain loop that computes
//!   the same. What does not agree with it is not timed. Where contenders begin with the same numbers, the losses of their first steps must be the same.
//! - **In turns.** All cases of a group and all [contenders](harness::Contender) are made ready and warm, then timed in rounds, one sample of
//!   each a round, in alternating order. A machine that slows down slows all of them, and ratios are of samples of one round. Beside networks a
//!   yardstick is timed, so that their floors slow down with them.
//! - **Spread.** A figure is the median of the rounds, and stands with the least and with the tenth and ninetieth percentile
//!   ([`statistics`]).
//! - **By hand.** The bytes that a case must move and its floating-point operations are counted by a person, in the case. The compiler
//!   under test has no say in what its work is.
//! - **Measured ceilings.** Rates are compared with the copy bandwidth that the same machine reached in the same run, not with a
//!   data sheet.
//! - **Records.** A run leaves a [`record`]: every figure with the machine, driver and settings it belongs to. [`table`] merges records
//!   of several contenders; `bench/record/` keeps those that claims rest on.
//!
//! # Where data lie
//!
//! Inputs of a run are copied to the device and its outputs back, which would drown a kernel. So everything a case reads is a
//! *variable* of its session and everything it writes becomes one: variables stay on the device, and a run copies nothing.
//! To know that the device has finished, a second function, the fence, is run behind: it returns one element. A sample is
//! many runs and one fence, divided by the runs; a *latency* is one run and its fence.
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
