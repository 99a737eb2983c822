//! Where a command writes, and how it ends.

use std::fmt;
use std::io::{self, Write};
use wengert::Diagnostic;
use wengert::core::diagnostic::Kind;

/// Exit status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// The command did what it was asked.
    Good = 0,
    /// It did, and the answer is no: a check or comparison failed, training diverged.
    Failed = 1,
    /// Wrong usage or bad input.
    BadInput = 2,
    /// A device failed, or is not there.
    Device = 3,
}

/// Why a command did not end well.
#[derive(Clone, PartialEq, Debug)]
pub struct Failure {
    /// The exit status.
    pub status: Status,
    /// What to tell the user; nothing where that has been done.
    pub diagnostic: Option<Diagnostic>,
}

/// What a command returns.
pub type Outcome<T = Status> = Result<T, Failure>;

impl Failure {
    /// A failure of this status.
    pub fn new(status: Status, diagnostic: Diagnostic) -> Self {
        Failure { status, diagnostic: Some(diagnostic) }
    }
}

impl From<Diagnostic> for Failure {
    /// A user's mistake, or a device's failure if the diagnostic says so.
    fn from(diagnostic: Diagnostic) -> Self {
        let status = match diagnostic.kind {
            Kind::Mistake => Status::BadInput,
            Kind::Device => Status::Device,
        };
        Failure::new(status, diagnostic)
    }
}

impl From<io::Error> for Failure {
    /// The output cannot be written. If nobody reads it any more (`graphrun … | head`), that is the reader's will.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure { status: Status::Good, diagnostic: None };
        }
        Diagnostic::new(format!("cannot write the output: {error}")).into()
    }
}

/// The streams of a command.
pub struct Console<'a> {
    /// Results.
    pub out: &'a mut dyn Write,
    /// Diagnostics.
    pub err: &'a mut dyn Write,
    /// Whether progress bars are wanted: the error stream is a terminal.
    pub bars: bool,
    /// A text that is read instead of the file of that name: the case of a filetest.
    pub text: Option<(String, String)>,
}

impl<'a> Console<'a> {
    /// A console without progress bars.
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write) -> Self {
        Console { out, err, bars: false, text: None }
    }

    /// Says whether progress bars are wanted.
    #[must_use]
    pub fn with_bars(mut self, bars: bool) -> Self {
        self.bars = bars;
        self
    }

    /// Prints a result.
    pub fn line(&mut self, text: impl fmt::Display) -> Outcome<()> {
        Ok(writeln!(self.out, "{text}")?)
    }

    /// Prints a text that ends its last line itself.
    pub fn text(&mut self, text: impl fmt::Display) -> Outcome<()> {
        Ok(write!(self.out, "{text}")?)
    }

    /// Prints a warning.
    pub fn warn(&mut self, warning: &Diagnostic) {
        // If even the error stream is closed, there is nobody to tell.
        let _ = writeln!(self.err, "warning: {warning}");
    }

    /// Prints what a run had to tell beside its results.
    pub fn note(&mut self, text: impl fmt::Display) {
        // As for warnings.
        let _ = writeln!(self.err, "{text}");
    }

    /// Prints a failure and gives its status.
    pub fn report(&mut self, failure: &Failure) -> Status {
        if let Some(diagnostic) = &failure.diagnostic {
            let _ = writeln!(self.err, "error: {diagnostic}");
        }
        failure.status
    }
}
