//! Output streams of a command.

use crate::live::Live;
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
    /// What is drawn on the terminal, which makes room for each line that is printed here.
    pub live: Live,
    /// A name and a text that is read instead of the file of that name: the case of a filetest.
    pub text: Option<(String, String)>,
}

impl<'a> Console<'a> {
    /// A console without a view.
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write) -> Self {
        Console { out, err, live: Live::default(), text: None }
    }

    /// Prints a result.
    pub fn line(&mut self, text: impl fmt::Display) -> Outcome<()> {
        Ok(self.live.suspend(|| writeln!(self.out, "{text}"))?)
    }

    /// Prints a text that includes its final line break.
    pub fn text(&mut self, text: impl fmt::Display) -> Outcome<()> {
        Ok(self.live.suspend(|| write!(self.out, "{text}"))?)
    }

    /// Prints a warning.
    pub fn warn(&mut self, warning: &Diagnostic) {
        // If the error stream is closed, the warning is dropped.
        let _ = self.live.suspend(|| writeln!(self.err, "warning: {warning}"));
    }

    /// Prints a message of a run that is not a result.
    pub fn note(&mut self, text: impl fmt::Display) {
        // As for warnings.
        let _ = self.live.suspend(|| writeln!(self.err, "{text}"));
    }

    /// Prints a failure and returns its status.
    pub fn report(&mut self, failure: &Failure) -> Status {
        if let Some(diagnostic) = &failure.diagnostic {
            let _ = self.live.suspend(|| writeln!(self.err, "error: {diagnostic}"));
        }
        failure.status
    }
}
