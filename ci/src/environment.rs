//! Private environments of Python packages, installed once per target directory.
//!
//! A check that needs a package is never skipped: it installs the package, or it fails with an
//! error that names the missing part. A file lock prevents concurrent test processes from
//! installing twice. A marker, written last, distinguishes a complete installation from an
//! interrupted one.

use crate::toolkit::run;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};
use wengert_core::{Diagnostic, Result};

/// The environment with these packages in `folder`, installed first if it is missing, has other
/// versions, or `is_whole` finds that something is missing. Safe to call from several processes.
/// `instead` is what a user without the network may do.
///
/// Errors: `python3`, its `venv` module or the network is missing; the folder cannot be written.
pub fn installed(
    folder: &Path,
    packages: &[&str],
    instead: &str,
    is_whole: impl Fn(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let broken = |what: &str, e: io::Error| {
        Diagnostic::new(format!("{what} `{}`: {e}", folder.display()))
            .help(format!("Python packages are installed there: {}", packages.join(", ")))
    };
    fs::create_dir_all(folder).map_err(|e| broken("cannot make", e))?;
    let lock = File::create(folder.join("lock")).map_err(|e| broken("cannot write to", e))?;
    lock.lock().map_err(|e| broken("cannot lock", e))?;
    let (environment, marker) = (folder.join("venv"), folder.join("complete"));
    let wanted = packages.join("\n");
    if fs::read_to_string(&marker).is_ok_and(|found| found == wanted)
        && is_whole(&environment).is_ok()
    {
        return Ok(environment);
    }
    if marker.exists() {
        fs::remove_file(&marker).map_err(|e| broken("cannot clear", e))?;
    }
    let python = env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let help = format!("install Python 3 with its venv module, {instead}");
    let mut make = Command::new(&python);
    run(make.args(["-m", "venv", "--clear"]).arg(&environment), &help)?;
    let mut install = Command::new(environment.join("bin/python"));
    let help = format!("the packages come from PyPI, so this needs the network once; {instead}");
    run(install.args(["-m", "pip", "install", "--quiet", "--no-input"]).args(packages), &help)?;
    is_whole(&environment)?;
    fs::write(&marker, wanted).map_err(|e| broken("cannot write to", e))?;
    Ok(environment)
}
