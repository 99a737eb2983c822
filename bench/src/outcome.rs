//! How a command ends.

use std::io;
use wengert::Diagnostic;
use wengert::core::diagnostic::Kind;

/// How a command ended that has nothing more to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    /// Good.
    Good = 0,
    /// Something that was to be measured failed, or its result was wrong.
    Failed = 1,
    /// Wrong usage or bad input.
    BadInput = 2,
    /// The device is not there.
    Device = 3,
}

/// Why a command did not do what it was asked.
#[derive(Clone, PartialEq, Debug)]
pub struct Failure {
    /// The exit status.
    pub status: Status,
    /// What to tell.
    pub diagnostic: Diagnostic,
}

impl From<Diagnostic> for Failure {
    fn from(diagnostic: Diagnostic) -> Self {
        let status = match diagnostic.kind {
            Kind::Mistake => Status::BadInput,
            Kind::Device => Status::Device,
        };
        Failure { status, diagnostic }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Diagnostic::new(format!("cannot write the output: {error}")).into()
    }
}
