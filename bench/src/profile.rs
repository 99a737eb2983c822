//! Time of a case, by kernel.
//!
//! The clock is read before and after each kernel. That costs some tens of nanoseconds per
//! kernel, so the total is also measured without it, and the table shows both.

use crate::case::Case;
use crate::resident::Resident;
use std::io::Write;
use wengert::{Device, DeviceOptions, KernelTime, Result};

/// Untimed runs for warm-up.
const WARM: u64 = 3;

/// The profile of a case.
#[derive(Debug)]
pub struct CaseProfile {
    /// The case's name.
    pub id: String,
    /// Number of timed runs.
    pub runs: u64,
    /// Seconds of a run without kernel timing.
    pub untimed: f64,
    /// Seconds of a run with kernel timing.
    pub timed: f64,
    /// All kernels, the longest first.
    pub kernels: Vec<KernelTime>,
}

/// Runs a case on the CPU and times its kernels.
///
/// Errors: the case cannot be compiled or run; the device does not time kernels.
pub fn profile(case: &Case, device: Device, runs: u64) -> Result<CaseProfile> {
    let mut resident = Resident::open(device, &DeviceOptions::default(), &case.make()?)?;
    resident.time(WARM)?;
    let untimed = resident.time(runs)? / runs as f64;
    resident.measure()?;
    let timed = resident.time(runs)? / runs as f64;
    Ok(CaseProfile { id: case.id.clone(), runs, untimed, timed, kernels: resident.profile() })
}

impl CaseProfile {
    /// Prints a table of the slowest kernels, at most `most` of them.
    pub fn show(&self, most: usize, out: &mut dyn Write) -> std::io::Result<()> {
        let CaseProfile { id, runs, untimed, timed, kernels } = self;
        let of_run = |kernel: &KernelTime| kernel.time.as_secs_f64() / *runs as f64;
        let in_kernels: f64 = kernels.iter().map(of_run).sum();
        writeln!(out, "## {id}\n")?;
        writeln!(
            out,
            "{:.1} µs a run; {:.1} with kernels timed, {:.1} of it in {} kernels.\n",
            untimed * 1e6,
            timed * 1e6,
            in_kernels * 1e6,
            kernels.iter().map(|kernel| kernel.runs).sum::<u64>() / runs,
        )?;
        writeln!(out, "| share | µs a run | runs | GB/s | GFLOP/s | kernel |")?;
        writeln!(out, "|---:|---:|---:|---:|---:|---|")?;
        for kernel in kernels.iter().take(most) {
            let seconds = kernel.time.as_secs_f64().max(f64::MIN_POSITIVE);
            let share = 100.0 * of_run(kernel) / in_kernels.max(f64::MIN_POSITIVE);
            let rate = |amount: u64| format!("{:.1}", amount as f64 / seconds / 1e9);
            writeln!(
                out,
                "| {share:.1} % | {:.1} | {} | {} | {} | {} |",
                of_run(kernel) * 1e6,
                kernel.runs / runs,
                rate(kernel.bytes),
                rate(kernel.flops),
                kernel.kernel
            )?;
        }
        writeln!(out)
    }
}
