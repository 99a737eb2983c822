//! NVIDIA's assembler, disassembler and compiler, which need no GPU.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};
use wengert_core::{Diagnostic, Result, diagnostic};
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

    /// Assembles a module for a target such as `sm_90`, and disassembles it.
    ///
    /// Errors: a program fails; its output is not understood.
    pub fn code(&self, ptx: &str, target: &str) -> Result<Code> {
        let folder = folder()?;
        let (source, object) = (folder.path().join("k.ptx"), folder.path().join("k.cubin"));
        write(&source, ptx)?;
        let target = format!("-arch={target}");
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

    /// Compiles CUDA C++ to PTX by the `nvcc` that lies beside `ptxas`. `files` are names and
    /// texts; the first is the source, which may include the others. `target` is `sm_90`, for
    /// example.
    ///
    /// Errors: nvcc or its host compiler is missing, or refuses the source.
    pub fn compile(&self, files: &[(&str, &str)], target: &str) -> Result<String> {
        let folder = folder()?;
        for (name, text) in files {
            write(&folder.path().join(name), text)?;
        }
        let [(source, _), ..] = files else {
            return Err(diagnostic!("there is nothing to compile"));
        };
        let nvcc = self.ptxas.with_file_name(format!("nvcc{}", env::consts::EXE_SUFFIX));
        let output = folder.path().join("module.ptx");
        let root = nvcc.parent().and_then(Path::parent).unwrap_or(Path::new("."));
        let include = root.join("include");
        let arch = format!("-arch=compute_{}", target.trim_start_matches("sm_"));
        let mut command = Command::new(&nvcc);
        // Without this, nvcc leaves temporary files in the current folder.
        command.env("TMPDIR", folder.path());
        command.args(["-ptx", "-std=c++17", "-O3", arch.as_str()]);
        command.arg("-I").arg(&include).arg("-I").arg(include.join("cccl"));
        command.arg("-o").arg(&output).arg(folder.path().join(source));
        finish(&nvcc, &mut command)?;
        fs::read_to_string(&output)
            .map_err(|error| diagnostic!("cannot read `{}`: {error}", output.display()))
    }
}

fn folder() -> Result<tempfile::TempDir> {
    tempfile::tempdir().map_err(|error| diagnostic!("cannot make a temporary folder: {error}"))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| diagnostic!("cannot write `{}`: {error}", path.display()))
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
    finish(program, Command::new(program).args(arguments))
}

fn finish(program: &Path, command: &mut Command) -> Result<(String, String)> {
    let output = command
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
