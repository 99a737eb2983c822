//! Finds and opens NVIDIA's libraries, in the places that the dynamic loader searches and some
//! more.
//!
//! The driver (`libcuda.so.1`) comes with the kernel module and lies where the loader looks. The
//! exception are containers that mount it under `/usr/local/nvidia` and leave `LD_LIBRARY_PATH`
//! to their image. A library that is no working driver, such as the toolkit's stub, is skipped.
//! cuBLASLt and NCCL are installed in several ways: a toolkit under `/usr/local`, a distribution's
//! package, or a Python package (`nvidia-cublas`, `nvidia-nccl`, which PyTorch brings) in a folder
//! that the loader does not search. So, for each major version of cuBLASLt that the driver can run,
//! newest first, and for the only one of NCCL:
//!
//! 1. folders that `WENGERT_CUDA_LIBS` lists: the user's word comes first;
//! 2. the loader: `LD_LIBRARY_PATH`, its cache, its default folders;
//! 3. `CUDA_HOME`, `CUDA_PATH`; the packages of Python installations that `VIRTUAL_ENV`,
//!    `CONDA_PREFIX`, `PYTHONPATH`, `PATH` or
//!    `LD_LIBRARY_PATH` point to; toolkits under `/usr/local` and `/opt`.
//!
//! All names that were tried are kept for the error message.

use libloading::Library;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The variable that lists folders with CUDA libraries, to be searched first.
pub const FOLDERS_VARIABLE: &str = "WENGERT_CUDA_LIBS";

/// Names of the driver's library, best first. The second is the path in containers that mount it.
/// The third is for WSL and embedded systems where the first has no link.
pub const DRIVER_NAMES: [&str; 3] =
    ["libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1", "libcuda.so"];

/// Reads an environment variable.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A library that was tried, and why it was not opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tried {
    /// Name or path given to the loader.
    pub name: String,
    /// The loader's message.
    pub why: String,
}

impl Tried {
    /// True if the file exists but does not open: it is damaged, or a library that it needs is
    /// missing.
    pub fn is_there(&self) -> bool {
        !(self.why.starts_with(&self.name) && self.why.contains("No such file"))
    }
}

/// Opens the first candidate that opens.
///
/// # Safety
/// Opening runs the library's initialisers, so each candidate must be the intended library (or no
/// file at all).
pub unsafe fn open(candidates: &[String]) -> Result<(Library, String), Vec<Tried>> {
    let mut tried = Vec::new();
    for name in candidates {
        // SAFETY: the caller guarantees that the candidates are NVIDIA's libraries, whose
        // initialisers are meant to run.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok((library, name.clone())),
            Err(error) => {
                // The source of the error has the loader's message.
                let why = std::error::Error::source(&error)
                    .map_or_else(|| error.to_string(), |e| e.to_string());
                tried.push(Tried { name: name.clone(), why });
            }
        }
    }
    Err(tried)
}

/// Names and paths of cuBLASLt, best first, for a driver of this CUDA major version. The driver
/// runs a library of this or an earlier major version, and none of a later one.
pub fn cublas_lt_candidates(driver_major: u32, environment: Environment) -> Vec<String> {
    let names = (12..=driver_major.max(12)).rev().map(|major| format!("libcublasLt.so.{major}"));
    let mut candidates = named(names, environment);
    candidates.push("libcublasLt.so".into());
    candidates
}

/// Names and paths of NCCL, best first. Its major version is 2 for every version of CUDA.
pub fn nccl_candidates(environment: Environment) -> Vec<String> {
    let mut candidates = named(["libnccl.so.2".into()], environment);
    candidates.push("libnccl.so".into());
    candidates
}

/// For each name: its paths in the folders that the user lists, the name itself, for the loader,
/// and its paths in all other folders.
fn named(names: impl IntoIterator<Item = String>, environment: Environment) -> Vec<String> {
    let first = listed(environment, FOLDERS_VARIABLE);
    let rest = folders(environment);
    let mut candidates = Vec::new();
    for name in names {
        let in_folders = |folders: &[PathBuf]| -> Vec<String> {
            let paths = folders.iter().map(|f| f.join(&name)).filter(|p| p.is_file());
            paths.filter_map(|p| p.to_str().map(String::from)).collect()
        };
        candidates.extend(in_folders(&first));
        candidates.push(name.clone());
        candidates.extend(in_folders(&rest));
    }
    candidates
}

/// Folders outside the loader's search path that may contain cuBLASLt or NCCL.
fn folders(environment: Environment) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for variable in ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"] {
        for root in listed(environment, variable) {
            toolkit(&root, &mut found);
        }
    }
    let mut sites = listed(environment, "PYTHONPATH");
    sites.extend(listed(environment, "LD_LIBRARY_PATH"));
    let mut prefixes = listed(environment, "VIRTUAL_ENV");
    prefixes.extend(listed(environment, "CONDA_PREFIX"));
    for bin in listed(environment, "PATH") {
        prefixes.extend(bin.parent().map(Path::to_owned));
        // A `python3` that is a link points into its installation.
        let python = bin.join("python3").canonicalize().ok();
        prefixes.extend(python.and_then(|p| Some(p.parent()?.parent()?.to_owned())));
    }
    prefixes.extend(listed(environment, "HOME").into_iter().map(|home| home.join(".local")));
    prefixes.extend(["/usr".into(), "/usr/local".into()]);
    for prefix in &prefixes {
        let lib = prefix.join("lib");
        for python in children(&lib, "python3") {
            sites.extend([python.join("site-packages"), python.join("dist-packages")]);
        }
        found.push(lib);
    }
    for site in sites {
        // `cublas` is the package of CUDA 12; `cu13` and later contain all libraries of a
        // version.
        let nvidia = site.join("nvidia");
        for package in children(&nvidia, "cu").into_iter().rev().chain([nvidia.join("nccl")]) {
            found.push(package.join("lib"));
        }
    }
    for root in children(Path::new("/usr/local"), "cuda").into_iter().rev() {
        toolkit(&root, &mut found);
    }
    toolkit(Path::new("/opt/cuda"), &mut found);
    found.push("/usr/local/nvidia/lib64".into());
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|f| f.is_dir() && seen.insert(f.clone()));
    found
}

fn toolkit(root: &Path, found: &mut Vec<PathBuf>) {
    found.extend(
        ["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"]
            .map(|f| root.join(f)),
    );
}

fn listed(environment: Environment, variable: &str) -> Vec<PathBuf> {
    let Some(value) = environment(variable) else { return Vec::new() };
    std::env::split_paths(&value).filter(|p| p.is_absolute()).collect()
}

/// Folders in `folder` whose name begins with `prefix`, in order of their names.
fn children(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let begins =
        |p: &PathBuf| p.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(prefix));
    let mut found: Vec<_> = entries.flatten().map(|e| e.path()).filter(begins).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "not a library").unwrap();
    }

    #[test]
    fn packages_of_python_and_listed_folders_are_searched() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let torch13 =
            root.join("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13");
        let torch12 =
            root.join("venv/lib/python3.12/site-packages/nvidia/cublas/lib/libcublasLt.so.12");
        let mine = root.join("mine/libcublasLt.so.12");
        let toolkit = root.join("cuda/lib64/libcublasLt.so.13");
        for path in [&torch13, &torch12, &mine, &toolkit] {
            library(path);
        }
        let environment = |variable: &str| -> Option<OsString> {
            match variable {
                "VIRTUAL_ENV" => Some(root.join("venv").into()),
                "CUDA_HOME" => Some(root.join("cuda").into()),
                FOLDERS_VARIABLE => Some(root.join("mine").into()),
                _ => None,
            }
        };
        let ours = |candidates: Vec<String>| -> Vec<String> {
            candidates
                .into_iter()
                .filter(|c| !c.starts_with('/') || Path::new(c).starts_with(root))
                .map(|c| c.trim_start_matches(root.to_str().unwrap()).to_string())
                .collect()
        };
        let site = "/venv/lib/python3.12/site-packages/nvidia";
        let expected = [
            "libcublasLt.so.13".to_string(),
            "/cuda/lib64/libcublasLt.so.13".to_string(),
            format!("{site}/cu13/lib/libcublasLt.so.13"),
            "/mine/libcublasLt.so.12".to_string(),
            "libcublasLt.so.12".to_string(),
            format!("{site}/cublas/lib/libcublasLt.so.12"),
            "libcublasLt.so".to_string(),
        ];
        assert_eq!(ours(cublas_lt_candidates(13, &environment)), expected);
        // A driver of CUDA 12 cannot run a library of CUDA 13.
        let older = ours(cublas_lt_candidates(12, &environment));
        assert!(older.iter().all(|c| !c.ends_with(".13")), "{older:?}");
        assert_eq!(older.len(), 4);
    }

    #[test]
    fn nccl_is_found_in_its_package_and_in_listed_folders() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let package = root.join("venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2");
        let mine = root.join("mine/libnccl.so.2");
        for path in [&package, &mine] {
            library(path);
        }
        let environment = |variable: &str| -> Option<OsString> {
            match variable {
                "VIRTUAL_ENV" => Some(root.join("venv").into()),
                FOLDERS_VARIABLE => Some(root.join("mine").into()),
                _ => None,
            }
        };
        let found = nccl_candidates(&environment);
        let at = |name: &str| found.iter().position(|candidate| candidate == name);
        let (mine, package) = (mine.to_str().unwrap(), package.to_str().unwrap());
        let order = [at(mine), at("libnccl.so.2"), at(package), at("libnccl.so")];
        assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{found:?}");
    }

    #[test]
    fn a_python_that_is_linked_to_is_found() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("bin")).unwrap();
        library(&root.join("real/bin/python3"));
        std::os::unix::fs::symlink(root.join("real/bin/python3"), root.join("bin/python3"))
            .unwrap();
        let package =
            root.join("real/lib/python3.11/site-packages/nvidia/cu13/lib/libcublasLt.so.13");
        library(&package);
        let path = OsString::from(root.join("bin"));
        let environment = |variable: &str| (variable == "PATH").then(|| path.clone());
        let found = cublas_lt_candidates(13, &environment);
        assert!(found.iter().any(|c| Path::new(c) == package), "{found:?}");
    }

    #[test]
    fn what_does_not_open_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libcublasLt.so.13");
        library(&path);
        // SAFETY: neither candidate is a library.
        let tried = unsafe { open(&[path.to_str().unwrap().into(), "libnone-such.so.7".into()]) }
            .err()
            .unwrap();
        assert_eq!(tried.len(), 2);
        assert!(tried[0].is_there() && !tried[1].is_there(), "{tried:?}");
        assert!(tried[1].why.contains("libnone-such.so.7"), "{tried:?}");
    }
}
