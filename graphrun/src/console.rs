//! Output streams of a command.

use std::fmt;
use std::io::Write;
use wengert::Diagnostic;
pub use wengert::command::{Failure, Outcome, Status};

/// The streams of a command.
pub struct Console<'a> {
    /// Results.
    pub out: &'a mut dyn Write,
    /// Diagnostics.
    pub err: &'a mut dyn Write,
    /// Whether progress bars are shown: the error stream is a terminal.
    pub bars: bool,
    /// A name and a text that is read instead of the file of that name: the case of a filetest.
    pub text: Option<(String, String)>,
}

impl<'a> Console<'a> {
    /// A console without progress bars.
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write) -> Self {
        Console { out, err, bars: false, text: None }
    }

    /// Prints a result.
    pub fn line(&mut self, text: impl fmt::Display) -> Outcome<()> {
        Ok(writeln!(self.out, "{text}")?)
    }

    /// Prints a text that includes its final line break.
    pub fn text(&mut self, text: impl fmt::Display) -> Outcome<()> {
        Ok(write!(self.out, "{text}")?)
    }

    /// Prints a warning.
    pub fn warn(&mut self, warning: &Diagnostic) {
        // If the error stream is closed, the warning is dropped.
        let _ = writeln!(self.err, "warning: {warning}");
    }

    /// Prints a message of a run that is not a result.
    pub fn note(&mut self, text: impl fmt::Display) {
        // As for warnings.
        let _ = writeln!(self.err, "{text}");
    }

    /// Prints a failure and returns its status.
    pub fn report(&mut self, failure: &Failure) -> Status {
        if let Some(diagnostic) = &failure.diagnostic {
            let _ = writeln!(self.err, "error: {diagnostic}");
        }
        failure.status
    }
}
