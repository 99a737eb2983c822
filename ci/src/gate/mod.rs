//! The ptxas gate: NVIDIA's assembler accepts every kernel, for every architecture, and spills no
//! register.
//!
//! A machine without a GPU cannot run a kernel, but it can assemble it. That checks more than
//! syntax: `ptxas -v` reports the registers of a thread, the shared memory of a block, and
//! whether registers were spilled to local memory, which slows a kernel down without any error.
//! From these and the limits in [`Architecture`] follows the occupancy: the share of a
//! multiprocessor's warps that can be resident, which hides the latency of memory.
//!
//! ```text
//! Source (name, PTX)
//!   ─► ptxas × every architecture, on every core
//!   ─► Measure (kernel × architecture)
//!   ─► Report: table, JSON, failures
//! ```
//!
//! Tests pass the modules of lowered plans as [`Source`]s; the command reads files in a folder
//! (`cargo run -p wengert-ci --bin gate -- FOLDER`). Many plans share equal kernels. A module's
//! result is therefore cached by its text below cargo's target directory, and only new modules
//! are assembled.
//!
//! Modules are assembled with the options that the driver compiles with on a GPU ([`arguments`]),
//! so the figures hold there.
//!
//! A spill fails the gate, unless a line of `ci/allowed-spills.txt` allows it with a reason.

mod allowed;
mod entries;
mod table;

pub use allowed::Allowed;
pub use wengert_machine::occupancy::{Limit, Occupancy};

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use wengert_core::{Diagnostic, Result};
pub use wengert_cuda::architecture::Architecture;
use wengert_cuda::architecture::{MAX_BLOCK, REGISTERS_PER_MULTIPROCESSOR};
use wengert_cuda::assembly::ptxas_arguments;
use wengert_machine::card::Limits;
use wengert_machine::occupancy::occupancy;
use wengert_machine::ptxas;

use crate::toolkit::{Toolkit, target_directory};

/// A module to assemble.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// Its origin, such as `softmax f16 64x500` or a file's name.
    pub name: String,
    /// Its PTX.
    pub text: String,
    /// Bytes of dynamic shared memory at launch, by the kernel's name; 0 if absent.
    pub dynamic_shared: BTreeMap<String, u32>,
    /// Its architectures; if empty, all that its `.target` admits.
    pub architectures: Vec<Architecture>,
}

/// Modules of many plans, each compiled for every architecture. Equal texts are one module, for
/// all architectures of its plans.
#[derive(Clone, Debug, Default)]
pub struct Collection {
    by_text: BTreeMap<String, (String, Vec<Architecture>)>,
}

impl Collection {
    /// Adds the module of a plan for an architecture, under a name that identifies the plan.
    pub fn add(&mut self, name: &str, architecture: Architecture, text: String) {
        let (_, architectures) =
            self.by_text.entry(text).or_insert_with(|| (name.to_string(), Vec::new()));
        if !architectures.contains(&architecture) {
            architectures.push(architecture);
        }
    }

    /// The modules, in the order of their names.
    ///
    /// Errors: a line `// dynamic_shared` is malformed.
    pub fn sources(self) -> Result<Vec<Source>> {
        let source = |(text, (name, architectures))| {
            Ok(Source { architectures, ..Source::parse(name, text)? })
        };
        let mut sources = self.by_text.into_iter().map(source).collect::<Result<Vec<Source>>>()?;
        sources.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(sources)
    }
}

/// The report of ptxas for one kernel on one architecture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Measure {
    /// The module's name.
    pub module: String,
    /// The kernel's.
    pub kernel: String,
    /// The architecture of the machine code.
    pub architecture: Architecture,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory of a block, static and dynamic.
    pub shared: u32,
    /// Bytes of local memory of a thread: arrays and spilled registers.
    pub stack: u32,
    /// Bytes of stores and of loads of spilled registers, in the kernel and in the functions that
    /// it calls.
    pub spills: (u32, u32),
    /// Threads of a block, if the kernel declares them (`.reqntid` or `.maxntid`).
    pub threads: Option<u32>,
    /// Blocks and warps that are resident on a multiprocessor; `None` if one block does not fit.
    pub occupancy: Option<Occupancy>,
}

/// The outcome of the gate.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// One for each kernel of each module and architecture, in the modules' order.
    pub measures: Vec<Measure>,
    /// Failures: kernels that ptxas refuses, spills that are not allowed, blocks that do not fit.
    pub failures: Vec<String>,
    /// Allowed spills, with their reasons.
    pub allowed: Vec<String>,
}

impl Source {
    /// A module whose kernels are launched without dynamic shared memory.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Source {
        Source {
            name: name.into(),
            text: text.into(),
            dynamic_shared: BTreeMap::new(),
            architectures: Vec::new(),
        }
    }

    /// The same, with the dynamic shared memory from lines `// dynamic_shared KERNEL BYTES`.
    ///
    /// Errors: such a line has another form.
    pub fn parse(name: impl Into<String>, text: impl Into<String>) -> Result<Source> {
        let mut source = Source::new(name, text);
        for line in source.text.lines().filter_map(|l| l.strip_prefix("// dynamic_shared ")) {
            let words: Vec<_> = line.split_whitespace().collect();
            let parsed = match words[..] {
                [kernel, bytes] => bytes.parse().ok().map(|b| (kernel.to_string(), b)),
                _ => None,
            };
            let (kernel, bytes) = parsed.ok_or_else(|| {
                Diagnostic::new(format!("{}: `// dynamic_shared {line}`", source.name))
                    .help("write `// dynamic_shared KERNEL BYTES`")
            })?;
            source.dynamic_shared.insert(kernel, bytes);
        }
        Ok(source)
    }

    /// Every `*.ptx` of a folder, by name.
    ///
    /// Errors: the folder or a file cannot be read, or it has no such file.
    pub fn read_folder(folder: &Path) -> Result<Vec<Source>> {
        let broken = |path: &Path, e: std::io::Error| {
            Diagnostic::new(format!("cannot read {}: {e}", path.display()))
        };
        let entries = fs::read_dir(folder).map_err(|e| broken(folder, e))?;
        let paths = entries.map(|e| e.map(|e| e.path())).collect::<std::io::Result<Vec<_>>>();
        let mut paths = paths.map_err(|e| broken(folder, e))?;
        paths.retain(|p| p.extension().is_some_and(|e| e == "ptx"));
        paths.sort();
        if paths.is_empty() {
            return Err(Diagnostic::new(format!("no *.ptx in {}", folder.display()))
                .help("a gate that assembles nothing proves nothing"));
        }
        let read = |path: PathBuf| {
            let text = fs::read_to_string(&path).map_err(|e| broken(&path, e))?;
            Source::parse(path.file_stem().unwrap_or_default().to_string_lossy(), text)
        };
        paths.into_iter().map(read).collect()
    }
}

/// Assembles every module for every architecture that its `.target` admits.
///
/// Errors: ptxas is missing and cannot be installed, or cannot be run. A module that ptxas
/// refuses is a failure in the report.
pub fn assemble(sources: &[Source], allowed: &Allowed) -> Result<Report> {
    let toolkit = Toolkit::find()?;
    let cache = target_directory().join("gate");
    fs::create_dir_all(&cache)
        .map_err(|e| Diagnostic::new(format!("cannot make {}: {e}", cache.display())))?;
    let wanted = |s: &Source, a: &Architecture| {
        admits(&s.text, *a) && (s.architectures.is_empty() || s.architectures.contains(a))
    };
    let of = |s| Architecture::ALL.into_iter().filter(move |a| wanted(s, a)).map(move |a| (s, a));
    let jobs: Vec<(&Source, Architecture)> = sources.iter().flat_map(of).collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((source, architecture)) = jobs.get(index) else { break };
            let words = verbose_output(&toolkit, &cache, &source.text, *architecture);
            done.lock().expect("no worker panics while it holds the lock").insert(index, words);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut report = Report::default();
    let outputs = done.into_inner().expect("no worker panicked");
    for (index, words) in outputs {
        let (source, architecture) = jobs[index];
        match words? {
            Ok(words) => report.add(source, architecture, &words, allowed)?,
            Err(words) => {
                report.failures.push(format!(
                    "{} for {}: {words}",
                    source.name,
                    architecture.name()
                ));
            }
        }
    }
    for source in sources.iter().filter(|s| !Architecture::ALL.iter().any(|a| wanted(s, a))) {
        report
            .failures
            .push(format!("{}: its `.target` is not one of our architectures", source.name));
    }
    Ok(report)
}

/// Whether PTX for its `.target` runs on an architecture: the same or a later one; `sm_90a` and
/// similar targets only on their own.
fn admits(text: &str, architecture: Architecture) -> bool {
    let target = text.lines().find_map(|l| l.trim().strip_prefix(".target"));
    let name = target.map_or("", |t| t.split(',').next().unwrap_or("").trim());
    let number = name.trim_start_matches("sm_").trim_end_matches(['a', 'f']);
    let Ok(number) = number.parse::<u32>() else { return false };
    if name.ends_with(['a', 'f']) {
        architecture.number == number
    } else {
        architecture.number >= number
    }
}

/// The arguments of `ptxas` that affect the code of a text, for an architecture (`sm_90`): those of
/// the driver ([`wengert_cuda::assembly`]).
///
/// # Panics
///
/// If there is no such architecture.
pub fn arguments(text: &str, architecture: &str) -> Vec<String> {
    let architecture =
        Architecture::from_name(architecture).expect("the caller names one of `Architecture::ALL`");
    ptxas_arguments(text, architecture)
}

/// The output of `ptxas -v`, from the cache or from a run; the inner error is its refusal.
fn verbose_output(
    toolkit: &Toolkit,
    cache: &Path,
    text: &str,
    architecture: Architecture,
) -> Result<std::result::Result<String, String>> {
    const END: &str = "\n=== PTX ===\n";
    let arguments = arguments(text, &architecture.name());
    let mut hasher = DefaultHasher::new();
    (text, toolkit.root(), crate::toolkit::PACKAGES, &arguments).hash(&mut hasher);
    let kept = cache.join(format!("{:016x}.{}", hasher.finish(), architecture.name()));
    if let Ok(found) = fs::read_to_string(&kept)
        && let Some((words, of)) = found.split_once(END)
        && of == text
    {
        return Ok(Ok(words.to_string()));
    }
    let trouble = |e: std::io::Error| Diagnostic::new(format!("{}: {e}", cache.display()));
    let scratch = tempfile::tempdir_in(cache).map_err(trouble)?;
    let source = scratch.path().join("module.ptx");
    fs::write(&source, text).map_err(trouble)?;
    let mut ptxas = toolkit.ptxas();
    ptxas.args(["-v", "--warn-on-spills"]).args(&arguments);
    ptxas.arg("-o").arg(scratch.path().join("module.cubin")).arg(&source);
    let output = ptxas.output().map_err(|e| Diagnostic::new(format!("cannot run ptxas: {e}")))?;
    let words = [&output.stdout[..], &output.stderr[..]].concat();
    let words =
        String::from_utf8_lossy(&words).replace(&source.display().to_string(), "module.ptx");
    if !output.status.success() {
        return Ok(Err(words.trim().to_string()));
    }
    // Written to a temporary file and renamed: another process may be reading.
    let aside = scratch.path().join("words");
    fs::write(&aside, format!("{words}{END}{text}")).map_err(trouble)?;
    fs::rename(&aside, &kept).map_err(trouble)?;
    Ok(Ok(words))
}

/// The limits of an architecture that decide the occupancy.
fn limits(architecture: Architecture) -> Limits {
    Limits {
        shared_per_block: architecture.shared_per_block,
        shared: architecture.shared_per_multiprocessor,
        threads: architecture.threads_per_multiprocessor,
        blocks: architecture.blocks_per_multiprocessor,
        registers: REGISTERS_PER_MULTIPROCESSOR,
        threads_per_block: MAX_BLOCK,
    }
}

impl Report {
    fn add(
        &mut self,
        source: &Source,
        architecture: Architecture,
        words: &str,
        allowed: &Allowed,
    ) -> Result<()> {
        let threads = entries::threads(&source.text);
        let found = ptxas::resources(words)
            .map_err(|e| Diagnostic::new(e.to_string()).context(&source.name))?;
        let entries = entries::entries(&source.text);
        if entries.len() != found.len() {
            return Err(Diagnostic::new(format!(
                "{}: {} kernels, of which ptxas describes {}",
                source.name,
                entries.len(),
                found.len()
            )));
        }
        for used in found {
            let dynamic = source.dynamic_shared.get(&used.kernel).copied().unwrap_or(0);
            let shared = used.shared + dynamic;
            let threads = threads.get(&used.kernel).copied();
            // If the kernel does not fix its block, 256 threads are assumed.
            let limits = limits(architecture);
            let occupancy = occupancy(&limits, threads.unwrap_or(256), used.registers, shared);
            let measure = Measure {
                module: source.name.clone(),
                kernel: used.kernel,
                architecture,
                registers: used.registers,
                shared,
                stack: used.stack,
                spills: used.spills,
                threads,
                occupancy,
            };
            let at = format!("{} / {} for {}", measure.module, measure.kernel, architecture.name());
            if measure.spills != (0, 0) {
                let (stores, loads) = measure.spills;
                let what = format!("{at}: spills {stores} bytes of stores, {loads} of loads");
                match allowed.reason(&measure) {
                    Some(reason) => self.allowed.push(format!("{what} (allowed: {reason})")),
                    None => self.failures.push(what),
                }
            }
            if measure.occupancy.is_none() {
                self.failures.push(format!(
                    "{at}: a block does not fit: {} threads of {} registers, \
                     {} bytes of shared memory",
                    threads.unwrap_or(256),
                    measure.registers,
                    measure.shared
                ));
            }
            self.measures.push(measure);
        }
        Ok(())
    }

    /// Whether everything passed.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }

    /// Writes `gate.md` and `gate.json` into a folder.
    ///
    /// Errors: the folder cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            fs::write(&path, text)
                .map_err(|e| Diagnostic::new(format!("cannot write {}: {e}", path.display())))
        };
        fs::create_dir_all(folder)
            .map_err(|e| Diagnostic::new(format!("cannot make {}: {e}", folder.display())))?;
        write("gate.md", self.markdown())?;
        write("gate.json", self.json())
    }
}

#[cfg(test)]
mod tests {
    use super::{Architecture, limits};

    #[test]
    fn the_model_of_gpus_has_the_limits_of_every_architecture() {
        for architecture in Architecture::ALL {
            let model = wengert_machine::card::Architecture::from_number(architecture.number);
            assert_eq!(limits(architecture), model.unwrap().limits, "{}", architecture.name());
        }
    }
}
