//! Runs with timed kernels, and the table of the times.

use crate::console::Outcome;
use wengert::{Compiled, KernelTime, Literal, Outputs};

/// Times of kernels in some number of runs.
pub(super) struct Profile {
    kernels: Vec<KernelTime>,
    runs: u64,
}

/// Runs a function `runs` times. Returns the outputs of the last run, and the kernels' times in
/// all runs but the first, which touches new memory. (A single run is timed itself.)
pub(super) fn run(
    compiled: &mut Compiled,
    runs: u64,
    inputs: &[(&str, &Literal)],
) -> Outcome<(Outputs, Profile)> {
    compiled.measure()?;
    let measured = (runs - 1).max(1);
    if runs > 1 {
        compiled.run(inputs)?;
        // Resets the measurement.
        compiled.measure()?;
    }
    let mut outputs = compiled.run(inputs)?;
    for _ in 1..measured {
        outputs = compiled.run(inputs)?;
    }
    Ok((outputs, Profile { kernels: compiled.profile(), runs: measured }))
}

impl std::fmt::Display for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = |kernel: &KernelTime| kernel.time.as_secs_f64();
        let total: f64 = self.kernels.iter().map(seconds).sum();
        let runs = self.runs as f64;
        let width = self.kernels.iter().map(|k| k.kernel.chars().count()).max().unwrap_or(0).max(6);
        writeln!(
            f,
            "{:<width$} {:>6} {:>10} {:>6} {:>8} {:>8}",
            "kernel", "times", "ms", "share", "GB/s", "GFLOP/s"
        )?;
        for kernel in &self.kernels {
            let (time, times) = (seconds(kernel), kernel.runs as f64 / runs);
            let rate = |amount: u64| if time > 0.0 { amount as f64 / time / 1e9 } else { 0.0 };
            let flops =
                if kernel.flops > 0 { format!("{:.1}", rate(kernel.flops)) } else { String::new() };
            writeln!(
                f,
                "{:<width$} {times:>6} {:>10.3} {:>5.1}% {:>8.1} {flops:>8}",
                kernel.kernel,
                1e3 * time / runs,
                100.0 * time / total.max(f64::MIN_POSITIVE),
                rate(kernel.bytes),
            )?;
        }
        write!(f, "{:<width$} {:>6} {:>10.3}", "all", "", 1e3 * total / runs)
    }
}
