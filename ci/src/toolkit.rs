//! NVIDIA's assembler and compiler, found or installed.
//!
//! The checks of the CUDA back end need `ptxas` (NVIDIA's assembler: whether it accepts the
//! kernels, and their registers) and `nvcc` (an independent source of PTX for the emulator).
//! Neither needs a GPU or a driver. Both are published as Python packages, so they can be
//! installed on any machine with Python and a network. A check that needs them is never skipped:
//! it installs them, or it fails with an error that names the missing part.
//!
//! `WENGERT_CUDA_TOOLKIT` names an existing toolkit (`/usr/local/cuda`, or the `nvidia/cu13` of
//! some site-packages). Without it the packages are installed into a private folder below cargo's
//! target directory ([`environment`]).

use crate::environment;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use wengert_core::{Diagnostic, Result};

/// The packages, with the versions used for the project's records.
pub const PACKAGES: [&str; 6] = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-cccl==13.0.85",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-nvdisasm==13.2.86",
];

/// The environment variable that names a toolkit.
pub const VARIABLE: &str = "WENGERT_CUDA_TOOLKIT";

/// A CUDA toolkit: a folder with `bin/ptxas`, `bin/nvcc` and `include`.
#[derive(Clone, Debug)]
pub struct Toolkit {
    root: PathBuf,
}

impl Toolkit {
    /// The toolkit that [`VARIABLE`] names, else the installed one, else a fresh installation.
    ///
    /// Errors: the variable names a folder without `bin/ptxas`; `python3`, its `venv` module or
    /// the network is missing.
    pub fn find() -> Result<Toolkit> {
        match env::var_os(VARIABLE) {
            Some(root) => Toolkit::at(Path::new(&root)).map_err(|e| e.context(VARIABLE)),
            None => Toolkit::installed_below(&target_directory().join("cuda-toolkit")),
        }
    }

    /// The toolkit in that folder.
    ///
    /// Errors: it has no `bin/ptxas`.
    pub fn at(root: &Path) -> Result<Toolkit> {
        let toolkit = Toolkit { root: root.to_path_buf() };
        if toolkit.tool("ptxas").is_file() {
            return Ok(toolkit);
        }
        Err(Diagnostic::new(format!(
            "`{}` is no CUDA toolkit: it has no `bin/ptxas`",
            root.display()
        ))
        .help(
            "name a folder such as /usr/local/cuda, or leave the variable out: the toolkit is \
             then installed from PyPI",
        ))
    }

    /// The toolkit in `folder`, installed first if it is missing or has other versions. Safe to
    /// call from several processes.
    ///
    /// Errors: `python3`, its `venv` module or the network is missing; the folder cannot be
    /// written.
    pub fn installed_below(folder: &Path) -> Result<Toolkit> {
        let help = format!("or set {VARIABLE} to a CUDA toolkit");
        let is_whole = |environment: &Path| Toolkit::in_environment(environment).map(|_| ());
        let environment = environment::installed(folder, &PACKAGES, &help, is_whole)?;
        Toolkit::in_environment(&environment)
    }

    fn in_environment(environment: &Path) -> Result<Toolkit> {
        let nowhere = || {
            Diagnostic::new(format!(
                "no CUDA packages in the environment `{}`",
                environment.display()
            ))
        };
        let folders = fs::read_dir(environment.join("lib")).map_err(|_| nowhere())?;
        folders
            .filter_map(|entry| Some(entry.ok()?.path().join("site-packages/nvidia/cu13")))
            .find(|root| root.is_dir())
            .ok_or_else(nowhere)
            .and_then(|root| Toolkit::at(&root))
    }

    /// Its folder, with `bin` and `include`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path of a program in `bin`.
    pub fn tool(&self, name: &str) -> PathBuf {
        self.root.join("bin").join(name)
    }

    /// NVIDIA's PTX assembler.
    pub fn ptxas(&self) -> Command {
        Command::new(self.tool("ptxas"))
    }

    /// Compiles a file of CUDA C++ to PTX by nvcc, for `compute_80`.
    ///
    /// Errors: nvcc or its host compiler is missing, or refuses the file; the message has nvcc's
    /// output.
    pub fn compile_to_ptx(&self, source: &Path, options: &[&str]) -> Result<String> {
        let scratch = tempfile::tempdir()
            .map_err(|e| Diagnostic::new(format!("no temporary folder: {e}")))?;
        let output = scratch.path().join("module.ptx");
        let mut nvcc = Command::new(self.tool("nvcc"));
        // Without this, nvcc leaves temporary files in the current folder.
        nvcc.env("TMPDIR", scratch.path());
        nvcc.args(["-ptx", "-arch=compute_80", "-std=c++17"]).args(options);
        nvcc.arg("-I").arg(self.root.join("include")).arg("-o").arg(&output).arg(source);
        let help = "nvcc also needs a host compiler: install g++";
        run(&mut nvcc, help).map_err(|e| e.context(source.display()))?;
        fs::read_to_string(&output)
            .map_err(|e| Diagnostic::new(format!("{}: nvcc wrote nothing: {e}", source.display())))
    }

    /// Assembles a module for an architecture (`sm_90`) and discards the machine code: a syntax
    /// check.
    ///
    /// Errors: ptxas refuses the text; the message has its output.
    pub fn check_ptx(&self, text: &str, architecture: &str) -> Result<()> {
        let scratch = tempfile::tempdir()
            .map_err(|e| Diagnostic::new(format!("no temporary folder: {e}")))?;
        let source = scratch.path().join("module.ptx");
        fs::write(&source, text)
            .map_err(|e| Diagnostic::new(format!("{}: {e}", source.display())))?;
        let mut ptxas = self.ptxas();
        ptxas.arg(format!("-arch={architecture}")).args(["-o", "/dev/null"]).arg(&source);
        run(&mut ptxas, "the line numbers are those of the PTX text").map(|_| ())
    }
}

/// Runs a command to its end.
///
/// Errors: it is missing, or reports failure; the message has its output.
pub(crate) fn run(command: &mut Command, help: &str) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|e| Diagnostic::new(format!("cannot run `{name}`: {e}")).help(help.to_string()))?;
    if output.status.success() {
        return Ok(output);
    }
    let words = [&output.stdout[..], &output.stderr[..]].concat();
    let words = String::from_utf8_lossy(&words).trim().to_string();
    Err(Diagnostic::new(format!("`{name}` failed ({}): {words}", output.status))
        .help(help.to_string()))
}

/// Cargo's target directory: that of the running program's build, else `CARGO_TARGET_DIR`, else
/// the repository's.
pub fn target_directory() -> PathBuf {
    let built_in = env::current_exe().ok().and_then(|exe| {
        // Cargo marks its target directories as caches.
        exe.ancestors()
            .skip(1)
            .find(|folder| folder.join("CACHEDIR.TAG").is_file())
            .map(Path::to_path_buf)
    });
    built_in
        .or_else(|| env::var_os("CARGO_TARGET_DIR").map(PathBuf::from))
        .unwrap_or_else(|| crate::sources::root().join("target"))
}
