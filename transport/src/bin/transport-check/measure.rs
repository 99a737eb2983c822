//! Latency and bandwidth between two ranks.
//!
//! Latency is half the time of a message that goes there and back. Bandwidth is that of a sequence
//! of messages in one direction, two under way at a time, and of an all-to-all, in bytes that one
//! rank receives. Each figure is the median of several runs. Bytes are copied into and out of the
//! transport's buffers, as a program does, but not produced or used.

use crate::say;
use std::time::Instant;
use wengert_transport::{Communicator, Error, Operation};

/// Runs of each measurement.
const RUNS: usize = 9;

/// Prints the figures.
pub fn run(world: &Communicator) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    if world.size() != 2 {
        return Err(format!("measurements take 2 ranks, not {}", world.size()));
    }
    if world.rank() == 0 {
        let (name, check) = (world.transport().name(), world.options().check);
        say(format_args!("2 ranks by {name}, comparison of collectives: {check}"))?;
    }
    for len in [8, 1 << 10, 64 << 10, 1 << 20, 16 << 20] {
        let count = ((64 << 20) / len).clamp(8, 2000);
        let seconds = median(|| echo(world, len, count.min(500)).map_err(text))?;
        let latency = seconds / count.min(500) as f64 / 2.0 * 1e6;
        let seconds = median(|| stream(world, len, count).map_err(text))?;
        let stream = (len * count) as f64 / seconds / 1e9;
        let seconds = median(|| exchange(world, len, count.min(500)).map_err(text))?;
        let exchange = (len * count.min(500)) as f64 / seconds / 1e9;
        if world.rank() == 0 {
            say(format_args!(
                "{len:>9} bytes: latency {latency:>9.2} µs, one way {stream:>7.3} GB/s, \
                 all-to-all {exchange:>7.3} GB/s"
            ))?;
        }
    }
    Ok(())
}

fn median(mut run: impl FnMut() -> Result<f64, String>) -> Result<f64, String> {
    run()?;
    let mut times = (0..RUNS).map(|_| run()).collect::<Result<Vec<f64>, String>>()?;
    times.sort_by(f64::total_cmp);
    Ok(times[RUNS / 2])
}

/// Seconds of messages that go there and back.
fn echo(world: &Communicator, len: usize, count: usize) -> Result<f64, Error> {
    let other = 1 - world.rank();
    let mut bytes = vec![1; len];
    world.barrier()?;
    let begin = Instant::now();
    for _ in 0..count {
        if world.rank() == 0 {
            world.send(other, 0, bytes)?;
            bytes = world.receive(other, 0, len)?;
        } else {
            bytes = world.receive(other, 0, len)?;
            bytes = world.send(other, 0, bytes)?;
        }
    }
    Ok(begin.elapsed().as_secs_f64())
}

/// Seconds of messages in one direction.
fn stream(world: &Communicator, len: usize, count: usize) -> Result<f64, Error> {
    let other = 1 - world.rank();
    let mut spare = vec![1; len];
    world.barrier()?;
    let begin = Instant::now();
    let mut last = None;
    for _ in 0..count {
        let operation = if world.rank() == 0 {
            let bytes = if spare.len() == len { std::mem::take(&mut spare) } else { vec![1; len] };
            Operation::Send { to: other, tag: 0, bytes }
        } else {
            Operation::Receive { from: other, tag: 0, len }
        };
        let next = world.start(operation)?;
        if let Some(before) = last.replace(next) {
            spare = wengert_transport::Request::wait(before)?;
        }
    }
    if let Some(last) = last {
        last.wait()?;
    }
    // The receiver's end counts.
    world.barrier()?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Seconds of exchanges in both directions.
fn exchange(world: &Communicator, len: usize, count: usize) -> Result<f64, Error> {
    world.barrier()?;
    let begin = Instant::now();
    let mut bytes = vec![1; 2 * len];
    for _ in 0..count {
        bytes = world.all_to_all(bytes)?;
    }
    Ok(begin.elapsed().as_secs_f64())
}
