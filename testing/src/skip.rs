//! Tests that this machine cannot run.

use std::fs::OpenOptions;
use std::io::Write;

/// Names the file to which [`skipped`] appends. `ci/test` sets it, and prints the file at the end.
pub const VARIABLE: &str = "WENGERT_SKIPPED";

/// Reports that the current test, or a part of it, cannot run on this machine. The caller then
/// returns. `reason` says what the machine lacks, as in `no AVX-512`.
///
/// # Panics
///
/// If the file that [`VARIABLE`] names cannot be written.
pub fn skipped(reason: &str) {
    let thread = std::thread::current();
    let line = format!("{reason}: {}\n", thread.name().unwrap_or("a test"));
    eprint!("skipped: {line}");
    if let Some(path) = std::env::var_os(VARIABLE) {
        // One write of a line to a file opened for appending is not mixed with those of others.
        let file = OpenOptions::new().create(true).append(true).open(&path);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::{VARIABLE, skipped};

    /// This test's program runs itself with the variable set.
    #[test]
    fn a_skipped_test_is_in_the_file() {
        if std::env::var_os(VARIABLE)
            .is_some_and(|path| path.to_string_lossy().contains("skipped-once-"))
        {
            skipped("no such machine");
            return;
        }
        let path = std::env::temp_dir().join(format!("skipped-once-{}", std::process::id()));
        let program = std::env::current_exe().expect("a test has a program");
        for _ in 0..2 {
            let mut command = std::process::Command::new(&program);
            let name = "skip::tests::a_skipped_test_is_in_the_file";
            let status = command.args(["--exact", name]).env(VARIABLE, &path).status();
            assert!(status.expect("it starts").success());
        }
        let text = std::fs::read_to_string(&path).expect("it was written");
        std::fs::remove_file(&path).expect("it is there");
        let line = "no such machine: skip::tests::a_skipped_test_is_in_the_file\n";
        assert_eq!(text, line.repeat(2));
    }
}
