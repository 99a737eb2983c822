//! How a command of this project ends: with a status that scripts can ask for, and with what its user is to be told.

use std::io;
use wengert_core::Diagnostic;
use wengert_core::diagnostic::Kind;

/// Exit status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// The command did what it was asked.
    Good = 0,
    /// It did, and the answer is no: a check or comparison failed, training diverged, something could not be measured.
    Failed = 1,
    /// Wrong usage or bad input, or a file cannot be written.
    BadInput = 2,
    /// A device failed or is not there, or there is not enough memory.
    Device = 3,
    /// It was ended by SIGHUP, and left what it did so that it can go on. 128 plus the signal's number, as shells have it.
    HungUp = 129,
    /// It was ended by SIGINT, likewise.
    Interrupted = 130,
    /// It was ended by SIGTERM, likewise.
    Terminated = 143,
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
