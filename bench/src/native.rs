//! The floor of elementwise chains on a CPU: handwritten loops, compiled by rustc.
//!
//! Each thread owns its part of every array, so threads share no data and there is no `unsafe`. A
//! run wakes all threads and waits for all. rustc compiles for its baseline by default, so build
//! with `RUSTFLAGS="-C target-cpu=native"` for the floor of this machine. The library chooses its
//! instructions at run time in either case.

use crate::case::{Case, Chain, Float, Kind, compare_chain};
use crate::harness::Contender;
use crate::parity::Parity;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;
use wengert::{Diagnostic, Literal, Result};

/// Plain loops on threads.
#[derive(Debug)]
pub struct Native {
    threads: usize,
    ready: BTreeMap<String, Vec<Worker>>,
}

/// A thread with its part of a case.
#[derive(Debug)]
struct Worker {
    /// True requests a run, false the result. None ends the thread.
    orders: Option<Sender<bool>>,
    results: Receiver<Vec<f32>>,
    thread: Option<JoinHandle<()>>,
}

/// The part of every array that a thread owns. Operands that the chain does not read are empty.
struct Part {
    chain: Chain,
    x: Vec<f32>,
    w: Vec<f32>,
    b: Vec<f32>,
    r: Vec<f32>,
    y: Vec<f32>,
}

impl Part {
    fn run(&mut self) {
        let Part { chain, x, w, b, r, y } = self;
        let four = y.iter_mut().zip(&*x).zip(&*w).zip(&*b).zip(&*r);
        match chain {
            Chain::MulAdd => four.for_each(|((((y, x), w), b), r)| *y = (x * w + b) * x + r),
            Chain::Eight => four.for_each(|((((y, x), w), b), r)| {
                *y = (((x * w + b).max(*r) * x - w).abs() + 1.0).sqrt()
            }),
            _ => y.copy_from_slice(x),
        }
        black_box(y);
    }
}

impl Native {
    /// Loops on this number of threads.
    pub fn new(threads: usize) -> Native {
        Native { threads: threads.max(1), ready: BTreeMap::new() }
    }

    /// True for chains whose functions are all in Rust's standard library.
    pub fn knows(case: &Case) -> bool {
        let known = [Chain::Copy, Chain::MulAdd, Chain::Eight];
        matches!(&case.kind, Kind::Chain { chain, .. } if known.contains(chain))
            && case.dtype == Float::F32
    }
}

impl Worker {
    fn start(mut part: Part) -> Worker {
        let ((orders, ordered), (give, results)) = (channel(), channel());
        let thread = thread::spawn(move || {
            while let Ok(is_run) = ordered.recv() {
                let result = if is_run {
                    part.run();
                    Vec::new()
                } else {
                    part.y.clone()
                };
                if give.send(result).is_err() {
                    return;
                }
            }
        });
        Worker { orders: Some(orders), results, thread: Some(thread) }
    }

    fn order(&self, is_run: bool) {
        let orders = self.orders.as_ref().expect("it is there until the worker is dropped");
        orders.send(is_run).expect("a worker listens until it is dropped");
    }

    fn result(&self) -> Vec<f32> {
        self.results.recv().expect("a worker answers each order")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // The thread returns no value.
            let _ = thread.join();
        }
    }
}

fn run(workers: &[Worker]) {
    workers.iter().for_each(|w| w.order(true));
    workers.iter().for_each(|w| drop(w.result()));
}

impl Contender for Native {
    fn name(&self) -> &str {
        "rust loop"
    }

    fn device(&self) -> String {
        "cpu".into()
    }

    fn takes_part(&self, case: &Case) -> bool {
        Native::knows(case)
    }

    fn prepare(&mut self, case: &Case) -> Result<Parity> {
        let Kind::Chain { chain, elements } = case.kind else {
            return Err(Diagnostic::new(format!("there is no plain loop for `{}`", case.id)));
        };
        if !Native::knows(case) {
            return Err(Diagnostic::new(format!("there is no plain loop for `{}`", case.id)));
        }
        let made = case.make()?;
        let operand = |name: &str, from: usize, to: usize| -> Vec<f32> {
            let literal = made.variables.iter().find(|(path, _)| path == name);
            let values = literal.and_then(|(_, l)| l.as_slice::<f32>());
            values.map_or_else(Vec::new, |v| v[from..to].to_vec())
        };
        let workers: Vec<Worker> = (0..self.threads)
            .map(|t| {
                let (from, to) = (elements * t / self.threads, elements * (t + 1) / self.threads);
                let [x, w, b, r] = ["x", "w", "b", "r"].map(|name| operand(name, from, to));
                Worker::start(Part { chain, x, w, b, r, y: vec![0.0; to - from] })
            })
            .collect();
        run(&workers);
        workers.iter().for_each(|w| w.order(false));
        let y: Vec<f32> = workers.iter().flat_map(Worker::result).collect();
        let parity = compare_chain(chain, &Literal::from_vec(&[elements], y)?, &made.variables)?;
        self.ready.insert(case.id.clone(), workers);
        Ok(parity)
    }

    fn time(&mut self, case: &Case, runs: u64) -> Result<f64> {
        let workers = self.ready.get(&case.id);
        let workers =
            workers.ok_or_else(|| Diagnostic::new(format!("`{}` was not prepared", case.id)))?;
        let start = Instant::now();
        (0..runs).for_each(|_| run(workers));
        Ok(start.elapsed().as_secs_f64())
    }

    fn release(&mut self, case: &Case) {
        self.ready.remove(&case.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::catalogue_of_cpu;

    /// With any number of threads, and parts of different lengths.
    #[test]
    fn the_loops_are_right() {
        for threads in [1, 3] {
            let mut native = Native::new(threads);
            let cases = catalogue_of_cpu(true);
            let known: Vec<&Case> = cases.iter().filter(|c| Native::knows(c)).collect();
            assert_eq!(known.len(), 6);
            for case in known {
                let parity = native.prepare(case).unwrap();
                assert!(parity.compared >= 4096 && parity.worst <= parity.bound);
                assert!(native.time(case, 3).unwrap() > 0.0);
                native.release(case);
                assert!(native.time(case, 3).is_err());
            }
            let other = cases.iter().find(|c| !Native::knows(c)).unwrap();
            assert!(native.prepare(other).unwrap_err().message.contains("no plain loop"));
        }
    }
}
