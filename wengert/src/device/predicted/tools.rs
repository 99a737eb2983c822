//! NVIDIA's assembler and disassembler, which need no GPU.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};
use wengert_core::{Diagnostic, Result, diagnostic};
use wengert_cuda::architecture::Architecture;
use wengert_cuda::assembly::machine;
use wengert_machine::ptxas::{self, Resources};
use wengert_machine::sass::Module;

/// The environment variable that names a folder of the CUDA toolkit.
pub const TOOLKIT: &str = "WENGERT_CUDA_TOOLKIT";

/// The two programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tools {
    ptxas: PathBuf,
    nvdisasm: PathBuf,
}

/// The machine code of a module.
#[derive(Debug)]
pub struct Code {
    /// The listing of `nvdisasm`.
    pub listing: String,
    /// Its kernels.
    pub module: Module,
    /// What `ptxas` says of each.
    pub resources: Vec<Resources>,
}

impl Tools {
    /// The programs in `bin` of the folder that [`TOOLKIT`] names, or else those of `PATH`.
    ///
    /// Errors: a program is missing.
    pub fn find() -> Result<Tools> {
        Ok(Tools { ptxas: program("ptxas")?, nvdisasm: program("nvdisasm")? })
    }

    /// These programs.
    pub fn at(ptxas: impl Into<PathBuf>, nvdisasm: impl Into<PathBuf>) -> Tools {
        Tools { ptxas: ptxas.into(), nvdisasm: nvdisasm.into() }
    }

    /// Assembles a module, and disassembles it.
    ///
    /// Errors: a program fails; its output is not understood.
    pub fn code(&self, ptx: &str, architecture: Architecture) -> Result<Code> {
        let folder = tempfile::tempdir()
            .map_err(|error| diagnostic!("cannot make a temporary folder: {error}"))?;
        let (source, object) = (folder.path().join("k.ptx"), folder.path().join("k.cubin"));
        fs::write(&source, ptx)
            .map_err(|error| diagnostic!("cannot write `{}`: {error}", source.display()))?;
        let target = format!("-arch={}", machine(ptx, architecture));
        let options = [target.as_str(), "-lineinfo", "-v", "-o"].map(OsStr::new);
        let [arch, lines, verbose, out] = options;
        let assembled =
            run(&self.ptxas, &[arch, lines, verbose, out, object.as_ref(), source.as_ref()])?;
        let resources = ptxas::resources(&assembled.1).map_err(|error| unread("ptxas", &error))?;
        let options = ["-gp", "-c"].map(OsStr::new);
        let listed = run(&self.nvdisasm, &[options[0], options[1], object.as_ref()])?;
        let module = Module::parse(&listed.0).map_err(|error| unread("nvdisasm", &error))?;
        Ok(Code { listing: listed.0, module, resources })
    }
}

fn unread(tool: &str, error: &dyn std::fmt::Display) -> Diagnostic {
    diagnostic!("the output of {tool} is not understood: {error}")
        .help("ptxas 13.0 and nvdisasm 13.2 are known to work")
}

/// The path of a program.
fn program(name: &str) -> Result<PathBuf> {
    let file = format!("{name}{}", env::consts::EXE_SUFFIX);
    if let Some(root) = env::var_os(TOOLKIT) {
        let path = Path::new(&root).join("bin").join(&file);
        return match path.is_file() {
            true => Ok(path),
            false => Err(diagnostic!("{TOOLKIT} names a folder without `bin/{name}`")
                .help("name a folder of the CUDA toolkit, such as /usr/local/cuda")),
        };
    }
    let paths = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&paths).map(|folder| folder.join(&file)).find(|p| p.is_file());
    found.ok_or_else(|| {
        diagnostic!("NVIDIA's {name} is not there: machine code cannot be looked at").help(format!(
            "install the CUDA toolkit, or the Python packages nvidia-cuda-nvcc and \
             nvidia-cuda-nvdisasm, and name its folder by {TOOLKIT}"
        ))
    })
}

/// Standard output and standard error.
fn run(program: &Path, arguments: &[&OsStr]) -> Result<(String, String)> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| diagnostic!("cannot start `{}`: {error}", program.display()))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (out, errors) = (text(output.stdout), text(output.stderr));
    if !output.status.success() {
        let first = errors.lines().next().unwrap_or("it gives no reason").to_owned();
        return Err(diagnostic!("`{}` failed: {first}", program.display()));
    }
    Ok((out, errors))
}
