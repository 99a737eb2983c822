//! Signals that end training after its current step: SIGINT (Ctrl-C), SIGTERM (the default of
//! `kill` and of schedulers), SIGHUP (the terminal is closed).
//!
//! The first signal sets a flag, which the trainer checks between steps. After that, signals have
//! their default action and end the process at once; files are replaced atomically, so nothing is
//! lost. A signal that is ignored when the command begins (`nohup`, a shell's background job)
//! stays ignored.

use crate::console::{Outcome, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use wengert::diagnostic;

/// Each signal with its name and the exit status of a command that it ends.
#[cfg(unix)]
const SIGNALS: [(i32, &str, Status); 3] = [
    (signal_hook::consts::SIGHUP, "SIGHUP", Status::HungUp),
    (signal_hook::consts::SIGINT, "SIGINT", Status::Interrupted),
    (signal_hook::consts::SIGTERM, "SIGTERM", Status::Terminated),
];
#[cfg(not(unix))]
const SIGNALS: [(i32, &str, Status); 0] = [];

/// Handles signals from its creation until it is dropped.
pub struct Interrupt {
    stop: Arc<AtomicBool>,
    /// Number of the received signal, or 0.
    came: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Starts listening.
    ///
    /// Error: the system does not allow a signal handler.
    pub fn listen() -> Outcome<Interrupt> {
        let listening = Interrupt { stop: Arc::default(), came: Arc::default() };
        #[cfg(unix)]
        for (signal, name, _) in SIGNALS.into_iter().filter(|(signal, ..)| !is_ignored(*signal)) {
            use signal_hook::flag;
            // Handlers run in the order of registration. The default action is taken only if the
            // flag is set already, so it must be registered before the handler that sets the flag.
            flag::register_conditional_default(signal, listening.stop.clone())
                .and_then(|_| flag::register_usize(signal, listening.came.clone(), signal as usize))
                .and_then(|_| flag::register(signal, listening.stop.clone()))
                .map_err(|error| diagnostic!("cannot handle {name}: {error}"))?;
        }
        Ok(listening)
    }

    /// Set once a signal has been received.
    pub fn flag(&self) -> &AtomicBool {
        &self.stop
    }

    /// The number of the received signal.
    pub fn number(&self) -> Option<i32> {
        i32::try_from(self.came.load(Ordering::SeqCst)).ok().filter(|number| *number != 0)
    }

    /// The name of the received signal, and its exit status.
    pub fn signal(&self) -> Option<(&'static str, Status)> {
        let came = self.came.load(Ordering::SeqCst);
        SIGNALS
            .into_iter()
            .find(|(signal, ..)| *signal as usize == came)
            .map(|(_, name, status)| (name, status))
    }
}

impl Drop for Interrupt {
    /// Restores the default action of signals.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

/// Whether the process began with this signal ignored. Only Linux reports it; elsewhere this is
/// false.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored(&status) & (1 << (signal - 1)) != 0
}

/// The mask of ignored signals in `/proc/self/status`.
#[cfg(unix)]
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// This process's command with `--resume`, as typed in a shell.
pub fn resume_command() -> String {
    let mut words: Vec<String> =
        std::env::args_os().map(|word| quoted(&word.to_string_lossy())).collect();
    if !words.iter().any(|word| word == "--resume") {
        words.push("--resume".into());
    }
    words.join(" ")
}

/// A word, quoted for a POSIX shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_or_change_them() {
        for (word, text) in [
            ("runs/a-1.graph@f", "runs/a-1.graph@f"),
            ("two words", "'two words'"),
            ("", "''"),
            ("it's $HOME", "'it'\\''s $HOME'"),
            ("größe", "'größe'"),
        ] {
            assert_eq!(quoted(word), text);
        }
    }

    #[cfg(unix)]
    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let mask = ignored("SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n");
        assert_eq!(mask, 1 << 12 | 1);
        assert_eq!(ignored("no such line"), 0);
    }
}
