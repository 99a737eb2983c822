//! `graphrun test`: filetests of folders.

use crate::cli::TestArgs;
use crate::console::{Console, Outcome, Status};
use crate::filetest::check_file;
use std::path::{Path, PathBuf};
use wengert::{atomic, diagnostic};

/// Runs all cases; with `--bless`, rewrites their expectations.
pub fn run(args: &TestArgs, console: &mut Console<'_>) -> Outcome {
    let mut files = Vec::new();
    for path in &args.paths {
        let before = files.len();
        find(path, &mut files)?;
        if files.len() == before {
            return Err(diagnostic!("`{}` holds no .ir files", path.display()).into());
        }
    }
    let (mut cases, mut failed, mut blessed) = (0, 0, 0);
    for path in &files {
        let text = std::fs::read_to_string(path).map_err(|e| atomic::cannot("read", path, &e))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let report = check_file(&name, &text);
        cases += report.cases;
        failed += report.failures.len();
        for (line, message) in &report.failures {
            console.line(format_args!("{}:{line}: {message}", path.display()))?;
        }
        if let (true, Some(text)) = (args.bless, report.blessed) {
            atomic::write_bytes(path, text.as_bytes())?;
            console.line(format_args!("{}: blessed", path.display()))?;
            blessed += 1;
        }
    }
    let blessed = if blessed > 0 { format!(", {blessed} files blessed") } else { String::new() };
    console.line(format_args!("{} files, {cases} cases, {failed} failed{blessed}", files.len()))?;
    Ok(if failed == 0 { Status::Good } else { Status::Failed })
}

/// All `.ir` files at and below a path, sorted.
fn find(path: &Path, files: &mut Vec<PathBuf>) -> Outcome<()> {
    let metadata = std::fs::metadata(path).map_err(|e| atomic::cannot("read", path, &e))?;
    if metadata.is_file() {
        files.push(path.into());
        return Ok(());
    }
    for entry in atomic::entries("read", path)? {
        if entry.is_dir() || entry.extension().is_some_and(|e| e == "ir") {
            find(&entry, files)?;
        }
    }
    Ok(())
}
