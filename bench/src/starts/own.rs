//! A start of this library.

use super::{First, Told};
use crate::case::Case;
use crate::resident::FUNCTION;
use std::fs;
use std::io::{self, Write};
use std::time::Instant;
use wengert::pipeline::{self, Options};
use wengert::{Device, Diagnostic, Literal, Result, Session, bind};

/// Total number of steps. The first is the measured start, the others show the memory of
/// training.
const STEPS: usize = 3;

/// Builds, compiles and starts a case on a device, and prints its figures.
///
/// Errors: the case cannot be compiled or run; the output cannot be written.
pub fn start(case: &Case, device: Device, out: &mut dyn Write) -> Result<()> {
    let unwritten = |e: io::Error| Diagnostic::new(format!("cannot write the output: {e}"));
    let building = Instant::now();
    let made = case.make_fresh()?;
    let built = building.elapsed();
    let mut session = Session::open(device)?;
    if let Some(seed) = made.init {
        session.initialize(&made.program, seed)?;
    }
    for (path, value) in &made.variables {
        session.set_variable(path, value)?;
    }
    let compiling = Instant::now();
    let plan = pipeline::compile(
        &made.program,
        FUNCTION,
        &bind!(),
        session.target(),
        &Options::default(),
    )?;
    let (arena, bound) = (plan.arena, plan.lower_bound);
    let mut compiled = session.load_plan(plan)?;
    let compile_seconds = (built + compiling.elapsed()).as_secs_f64();
    let mut step = || -> Result<f64> {
        compiled.run::<Literal>(&[])?;
        Ok(session.variable("loss")?.get(0).to_f64())
    };
    let first = First::Stepped { stepped: step()? };
    let text = |e: serde_json::Error| Diagnostic::new(format!("the loss is no number: {e}"));
    writeln!(out, "{}", serde_json::to_string(&first).map_err(text)?).map_err(unwritten)?;
    out.flush().map_err(unwritten)?;
    for _ in 1..STEPS {
        step()?;
    }
    let ports = &compiled.signature().inputs;
    let state = ports.iter().filter(|port| port.is_variable()).filter_map(|port| port.ty.bytes());
    let told = Told {
        contender: "wengert".into(),
        device: device.to_string(),
        libraries: [("wengert".to_owned(), env!("CARGO_PKG_VERSION").to_owned())].into(),
        caches: false,
        compile_seconds: Some(compile_seconds),
        peak_bytes: peak()?,
        state_bytes: state.sum::<usize>() as u64,
        arena_bytes: Some(arena),
        bound_bytes: Some(bound),
    };
    writeln!(out, "{}", serde_json::to_string(&told).map_err(text)?).map_err(unwritten)
}

/// The greatest resident memory of this process so far, in bytes.
///
/// Error: the system is not Linux.
fn peak() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    of_status(&text).ok_or_else(|| {
        Diagnostic::new(
            "the memory of this process is unknown: there is no `VmHWM` in /proc/self/status",
        )
        .help("starts are measured on Linux")
    })
}

/// The peak in the text of `/proc/self/status`.
fn of_status(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::catalogue_of_cpu;
    use crate::starts::can_start;

    #[test]
    fn a_start_says_what_it_took() {
        let case = catalogue_of_cpu(true).into_iter().find(can_start).unwrap();
        let mut out = Vec::new();
        start(&case, Device::Cpu, &mut out).unwrap();
        let lines: Vec<&str> = std::str::from_utf8(&out).unwrap().lines().collect();
        let First::Stepped { stepped } = serde_json::from_str(lines[0]).unwrap() else { panic!() };
        assert!((stepped - 11f64.ln()).abs() < 1.0);
        let told: Told = serde_json::from_str(lines[1]).unwrap();
        // Parameters, two moments, and up to 1000 bytes more: tokens and a counter.
        let state = 12 * case.work.elements;
        assert!((state..state + 1000).contains(&told.state_bytes), "{told:?}");
        assert!(
            told.bound_bytes <= told.arena_bytes && told.peak_bytes > told.state_bytes,
            "{told:?}"
        );
        assert!(told.compile_seconds.unwrap() > 0.0 && !told.caches);
    }

    #[test]
    fn peaks_are_read() {
        assert_eq!(of_status("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n"), Some(2 << 20));
        assert_eq!(of_status("VmHWM: many"), None);
    }
}
