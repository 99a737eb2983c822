//! The work of a plan on one rank: kernels with their time, and collectives.
//!
//! A kernel takes the time of its operations at the attained rate of their kind, or that of its
//! bytes at the attained bandwidth, whichever is more, and the time to start it. Every buffer is
//! read or written once, so kernels of small tensors, which caches hold, are overestimated, and
//! kernels that read twice are underestimated. Steps of a loop count as often as they run, at most.
//! Of a branch the arm counts that takes longest.

use super::machine::{Machine, Rate};
use std::collections::BTreeMap;
use std::fmt;
use wengert_compiler::kernels::cost::Cost;
use wengert_core::call::{Call, Collective, CollectiveKind};
use wengert_core::plan::{Plan, Step};
use wengert_core::{DType, Result, diagnostic};

/// A kind of kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Products and convolutions with operands of a dtype.
    Product(DType),
    /// Attention, likewise.
    Attention(DType),
    /// All other kernels.
    Other,
    /// Copies.
    Copy,
}

/// The kernels of a kind.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Kernels {
    /// Runs.
    pub count: f64,
    /// Operations.
    pub operations: f64,
    /// Bytes read and written.
    pub bytes: f64,
    /// Seconds.
    pub seconds: f64,
}

/// A collective of a plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Exchanged {
    /// Its kind.
    pub kind: CollectiveKind,
    /// The axes of the mesh along which its ranks differ.
    pub over: Vec<String>,
    /// Bytes of the whole tensor: the operand of a reduction, the result of `all_gather`.
    pub bytes: u64,
    /// Runs.
    pub count: f64,
}

/// The work of steps.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Work {
    /// Kernels by kind.
    pub kernels: BTreeMap<Kind, Kernels>,
    /// Collectives that exchange data, in the order of the plan.
    pub collectives: Vec<Exchanged>,
}

impl Work {
    /// The work of a plan on a machine.
    ///
    /// Error: the machine has no figures for a dtype.
    pub fn of(plan: &Plan, machine: &Machine) -> Result<Work> {
        let mut work = Work::default();
        work.steps(plan, &plan.steps, 1.0, machine)?;
        Ok(work)
    }

    /// Seconds of all kernels.
    pub fn seconds(&self) -> f64 {
        self.kernels.values().fold(0.0, |sum, kernels| sum + kernels.seconds)
    }

    fn steps(&mut self, plan: &Plan, steps: &[Step], times: f64, machine: &Machine) -> Result<()> {
        for step in steps {
            match step {
                Step::Loop(l) => {
                    self.steps(plan, &l.body, times * l.trip.limit() as f64, machine)?;
                }
                Step::If { .. } | Step::Switch { .. } => {
                    let arms = step.blocks().into_iter().map(|steps| {
                        let mut work = Work::default();
                        work.steps(plan, steps, times, machine)?;
                        Ok(work)
                    });
                    let arms = arms.collect::<Result<Vec<Work>>>()?;
                    let longest = arms.into_iter().reduce(|a, b| match b.seconds() > a.seconds() {
                        true => b,
                        false => a,
                    });
                    self.add(longest.unwrap_or_default());
                }
                Step::Call { call, .. } if call.collective().is_some() => {
                    self.exchange(call.collective().expect("as was just asked"), times);
                }
                Step::Start { call, .. } => self.exchange(call, times),
                Step::Wait(_) => {}
                _ => self.kernel(plan, step, times, machine)?,
            }
        }
        Ok(())
    }

    fn kernel(&mut self, plan: &Plan, step: &Step, times: f64, machine: &Machine) -> Result<()> {
        let cost = Cost::of_step(plan, step);
        let (operations, bytes) = (cost.operations as f64, cost.read as f64 + cost.written as f64);
        let kind = Kind::of(step);
        let rate = kind.rate(machine)?;
        let seconds = (operations / rate.attained()).max(bytes / machine.bandwidth());
        let kernels = self.kernels.entry(kind).or_default();
        kernels.count += times;
        kernels.operations += times * operations;
        kernels.bytes += times * bytes;
        kernels.seconds += times * (seconds + machine.start.kernel.value);
        Ok(())
    }

    fn exchange(&mut self, call: &Collective, times: f64) {
        if !call.kind.exchanges() {
            return;
        }
        // A collective without parts has one.
        let bytes = (call.part() * call.parts * call.dtype.size()) as u64;
        let (kind, over) = (call.kind, call.over.clone());
        self.collectives.push(Exchanged { kind, over, bytes, count: times });
    }

    fn add(&mut self, other: Work) {
        for (kind, more) in other.kernels {
            let kernels = self.kernels.entry(kind).or_default();
            kernels.count += more.count;
            kernels.operations += more.operations;
            kernels.bytes += more.bytes;
            kernels.seconds += more.seconds;
        }
        self.collectives.extend(other.collectives);
    }
}

impl Kind {
    fn of(step: &Step) -> Kind {
        match step {
            Step::Call { call, .. } => {
                let dtype = call.operands().first().map_or(DType::F32, |ty| ty.dtype);
                match call {
                    Call::Gemm(_) | Call::Convolution(_) => Kind::Product(dtype),
                    Call::Attention(_) => Kind::Attention(dtype),
                    _ => Kind::Other,
                }
            }
            Step::Copy { .. } => Kind::Copy,
            _ => Kind::Other,
        }
    }

    /// Error: the machine has no figures of it.
    fn rate(self, machine: &Machine) -> Result<&Rate> {
        let (table, rates, dtype) = match self {
            Kind::Product(dtype) => ("products", &machine.products, dtype),
            Kind::Attention(dtype) => ("attention", &machine.attention, dtype),
            Kind::Other | Kind::Copy => return Ok(&machine.scalar),
        };
        rates.get(dtype.name()).ok_or_else(|| {
            let known: Vec<&str> = rates.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            diagnostic!("{} has no rate of {table} of {dtype}; it has {known}", machine.name)
                .help(format!("add [{table}.{dtype}] to the file, or choose a --precision"))
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Product(dtype) => write!(f, "products of {dtype}"),
            Kind::Attention(dtype) => write!(f, "attention of {dtype}"),
            Kind::Other => f.write_str("other kernels"),
            Kind::Copy => f.write_str("copies"),
        }
    }
}
