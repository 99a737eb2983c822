//! Exit of the project's commands: a status for scripts and a message for the user.

use std::io;
use wengert_core::diagnostic::Kind;
use wengert_core::{Diagnostic, diagnostic};

/// Exit status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// The command succeeded.
    Good = 0,
    /// The command ran, and its result is negative: a check or comparison failed, training
    /// diverged, a measurement was impossible.
    Failed = 1,
    /// Wrong usage or bad input, or a file cannot be written.
    BadInput = 2,
    /// A device failed or is absent, or there is not enough memory.
    Device = 3,
    /// Ended by SIGHUP, after saving its state so that it can be resumed. 128 plus the signal's
    /// number, as in shells.
    HungUp = 129,
    /// Ended by SIGINT, likewise.
    Interrupted = 130,
    /// Ended by SIGTERM, likewise.
    Terminated = 143,
}

/// Why a command failed.
#[derive(Clone, PartialEq, Debug)]
pub struct Failure {
    /// The exit status.
    pub status: Status,
    /// The message for the user; `None` if it has been shown.
    pub diagnostic: Option<Diagnostic>,
}

/// Result of a command.
pub type Outcome<T = Status> = Result<T, Failure>;

impl Failure {
    /// A failure of this status.
    pub fn new(status: Status, diagnostic: Diagnostic) -> Self {
        Failure { status, diagnostic: Some(diagnostic) }
    }
}

impl From<Diagnostic> for Failure {
    /// Bad input, or a device's failure if the diagnostic is of that kind.
    fn from(diagnostic: Diagnostic) -> Self {
        let status = match diagnostic.kind {
            Kind::Mistake => Status::BadInput,
            Kind::Device => Status::Device,
        };
        Failure::new(status, diagnostic)
    }
}

impl From<io::Error> for Failure {
    /// The output cannot be written. A closed pipe (`graphrun … | head`) is no error to report.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure { status: Status::Good, diagnostic: None };
        }
        diagnostic!("cannot write the output: {error}").into()
    }
}
