//! Processes that spin: a load beside a measurement.
//!
//! A parallel kernel waits for its slowest thread. If another program occupies a core, that thread
//! runs at half the speed, so a kernel with equal parts for all threads can be slower than on one
//! thread. `wengert-bench cpu --spinning 1 --one-thread` measures this: each process here occupies
//! one core from the start of the measurement to its end.

use std::env;
use std::hint::spin_loop;
use std::io::{self, Read};
use std::process::{self, Child, Command, Stdio};
use std::thread;
use wengert::{Diagnostic, Result};

/// Processes that spin until this is dropped.
#[derive(Debug)]
pub(crate) struct Spinning(Vec<Child>);

impl Spinning {
    /// Starts `count` processes of this program.
    ///
    /// Error: one cannot be started.
    pub(crate) fn start(count: usize) -> Result<Spinning> {
        let program = env::current_exe().map_err(|e| {
            Diagnostic::new(format!("the program that runs cannot be found again: {e}"))
        })?;
        let mut spinning = Spinning(Vec::new());
        for _ in 0..count {
            let mut command = Command::new(&program);
            // The process ends with its input, and so with this process.
            command.arg("spin").stdin(Stdio::piped()).stdout(Stdio::null());
            let child = command.spawn().map_err(|e| {
                Diagnostic::new(format!("cannot start `{} spin`: {e}", program.display()))
            })?;
            spinning.0.push(child);
        }
        Ok(spinning)
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // A process that has ended already cannot be killed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Spins until the end of standard input, then ends this process.
pub(crate) fn spin() -> ! {
    thread::spawn(|| {
        // An input that cannot be read has ended, too.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        process::exit(0);
    });
    loop {
        spin_loop();
    }
}
