//! Limits of a process's resources: memory, disks, files that are not regular, names that are not
//! UTF-8. Under every limit existing data survive, and the command ends with a status and one
//! sentence.
//!
//! `WENGERT_RESOURCES` is the number of cases of each kind: small in every run of the tests, large
//! in `ci/deep/resources`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.
#![allow(clippy::print_stdout)] // Prints the counts, which the deep script adds up.

mod compressed;
mod disk;
mod memory;
mod paths;
mod special_files;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};
use tempfile::TempDir;
use wengert::{Literal, data};

/// A folder with a program, and the command run in it.
struct Workplace {
    folder: TempDir,
}

const PROGRAM: &str = "\
func @double(%x: f32[N]) -> (y: f32[N]) {
  %0: f32[N] = add %x, %x
  return %0
}

func @two(%x: f32[N]) -> (a: f32[N], b: f32[N]) {
  %0: f32[N] = add %x, %x
  %1: f32[N] = mul %x, %x
  return %0, %1
}
";

impl Workplace {
    /// With `f.ir`, and with `x.npy`, which holds the numbers 0, 1 and 2.
    fn new() -> Workplace {
        let place = Workplace { folder: tempfile::tempdir().unwrap() };
        std::fs::write(place.path("f.ir"), PROGRAM).unwrap();
        let x = Literal::from_vec(&[3], vec![0.0f32, 1.0, 2.0]).unwrap();
        data::write_one(place.path("x.npy"), "x", &x).unwrap();
        place
    }

    fn path(&self, name: impl AsRef<std::path::Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_graphrun"));
        command.args(arguments).current_dir(self.folder.path()).env_remove("RUST_LOG");
        command
    }

    fn graphrun<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    /// The command, started by a shell that first runs `prepare`.
    fn prepared(&self, prepare: &str, arguments: &[&str]) -> Ran {
        let script = format!("set -e; {prepare}; exec \"$@\"");
        let shell = Command::new("sh")
            .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_graphrun")])
            .args(arguments)
            .current_dir(self.folder.path())
            .env_remove("RUST_LOG")
            .output();
        Ran::of(shell.unwrap())
    }

    /// No unfinished files remain.
    fn is_tidy(&self) -> bool {
        let names = std::fs::read_dir(self.folder.path()).unwrap().map(|e| e.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".partial")).count() == 0
    }
}

/// The result of a run of the command.
#[derive(Debug)]
struct Ran {
    status: Option<i32>,
    out: Vec<u8>,
    err: String,
}

impl Ran {
    fn of(output: Output) -> Ran {
        Ran {
            status: output.status.code(),
            out: output.stdout,
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    fn good(&self) -> String {
        assert_eq!((self.status, self.err.as_str()), (Some(0), ""), "{self:?}");
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// Asserts the status, and exactly one error that contains all of `says`.
    fn failed(&self, status: i32, says: &[&str]) {
        if let Err(what) = self.has_failed(status, says) {
            panic!("{what}");
        }
    }

    fn has_failed(&self, status: i32, says: &[&str]) -> Result<(), String> {
        let sentences = self.err.matches("error: ").count();
        let is_said = says.iter().all(|text| self.err.contains(text));
        match self.status == Some(status)
            && sentences == 1
            && is_said
            && !self.err.contains("panicked")
        {
            true => Ok(()),
            false => Err(format!("not status {status} and one sentence with {says:?}: {self:?}")),
        }
    }
}

/// The number of cases of each kind.
fn count(usual: usize) -> usize {
    match std::env::var("WENGERT_RESOURCES") {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("WENGERT_RESOURCES is `{text}`, which is no number")),
        Err(_) => usual,
    }
}

/// Runs all cases, and fails if one of them does. The last line prints the number that passed.
fn tally(what: &str, cases: impl Iterator<Item = Result<(), String>>) {
    let (mut passed, mut failures) = (0, Vec::new());
    for case in cases {
        match case {
            Ok(()) => passed += 1,
            Err(failure) => failures.push(failure),
        }
    }
    println!("resources: {what}: {passed} passed, {} failed", failures.len());
    assert!(failures.is_empty() && passed > 0, "{}", failures.join("\n"));
}
