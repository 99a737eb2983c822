//! Memory that this process may still allocate.
//!
//! Linux overcommits memory and kills the process that uses too much of it, with status 137 and
//! without a message. Allocations of the size of tensors are therefore checked before they are
//! touched. The available memory is the minimum of
//!
//! - `MemAvailable` of `/proc/meminfo`: memory that programs can take without swapping;
//! - for the control group of the process and each of its ancestors, the limit minus the usage,
//!   of version 2 (`memory.max`, `memory.current`) and version 1 (`memory.limit_in_bytes`,
//!   `memory.usage_in_bytes`). The page cache is part of the usage, and the kernel reclaims its
//!   pages before it kills. All inactive file pages and half of the active ones, which include
//!   the program itself, count as free;
//! - `RLIMIT_AS` and `RLIMIT_DATA`, minus their use.
//!
//! Swap is not counted. A [`Promise`] is memory that will be used but that the kernel does not
//! yet count: an arena before the first run, inputs before they are made. It is subtracted until
//! its holder drops it.
//!
//! Everything is read from files below a root folder, which is `/` except in tests. Where a file
//! is missing (systems other than Linux, a container without `/sys`), its limit is unknown and
//! not applied.

mod groups;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use wengert_core::plan::Bytes;
use wengert_core::{Diagnostic, Result};

/// The source of a limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Limit {
    /// The machine, with its bytes.
    Machine(u64),
    /// A control group, with its folder and its limit.
    Group(PathBuf, u64),
    /// The address space of the process.
    AddressSpace(u64),
    /// The data of the process.
    Data(u64),
    /// A GPU.
    Device,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, whose) = match self {
            Limit::Machine(bytes) => return write!(f, "of the machine's {}", Bytes(*bytes)),
            Limit::Group(folder, bytes) => {
                (bytes, format!("that the control group `{}` may have", folder.display()))
            }
            Limit::AddressSpace(bytes) => {
                (bytes, "of address space that the process may have (RLIMIT_AS)".into())
            }
            Limit::Data(bytes) => (bytes, "of data that the process may have (RLIMIT_DATA)".into()),
            Limit::Device => return f.write_str("on the device"),
        };
        write!(f, "of the {} {whose}", Bytes(*bytes))
    }
}

/// Memory that may still be allocated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Available {
    /// Its bytes.
    pub bytes: u64,
    /// The limit that determines it.
    pub limit: Limit,
    /// Bytes of promises, already subtracted.
    pub promised: u64,
}

impl fmt::Display for Available {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} are free", Bytes(self.bytes), self.limit)?;
        if self.promised > 0 {
            write!(
                f,
                " beside {} for inputs and functions that have not run yet",
                Bytes(self.promised)
            )?;
        }
        Ok(())
    }
}

/// Promised bytes: allocated and not yet touched; not yet allocated.
static PROMISED: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Memory that is promised until this is dropped.
#[derive(Debug)]
pub struct Promise {
    bytes: u64,
    is_allocated: bool,
}

impl Promise {
    /// For memory that is about to be allocated.
    pub fn to_allocate(bytes: u64) -> Promise {
        Promise::new(bytes, false)
    }

    /// For memory that is allocated (it counts as address space) and about to be touched.
    pub fn to_touch(bytes: u64) -> Promise {
        Promise::new(bytes, true)
    }

    fn new(bytes: u64, is_allocated: bool) -> Promise {
        PROMISED[usize::from(!is_allocated)].fetch_add(bytes, Ordering::Relaxed);
        Promise { bytes, is_allocated }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        PROMISED[usize::from(!self.is_allocated)].fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Memory that this process may still allocate; `None` where it is not known.
pub fn available() -> Option<Available> {
    let [to_touch, to_allocate] = &PROMISED;
    below(Path::new("/"), [to_touch.load(Ordering::Relaxed), to_allocate.load(Ordering::Relaxed)])
}

/// Bytes to leave free for allocations smaller than tensors, beside an allocation of `bytes`.
pub(crate) fn reserve(bytes: u64) -> u64 {
    (8 << 20) + bytes / 64
}

/// Allocations below this are not checked: the reserve has room for them.
const SMALL: u64 = 4 << 20;

/// Checks that `bytes` may be allocated; `what` describes the use for messages.
///
/// Error, of kind device: they may not.
pub fn check(bytes: u64, what: impl FnOnce() -> String) -> Result<()> {
    if bytes < SMALL {
        return Ok(());
    }
    match available() {
        Some(available) if bytes.saturating_add(reserve(bytes)) > available.bytes => {
            Err(refused(bytes, what(), &available))
        }
        _ => Ok(()),
    }
}

/// Checks that all promised memory and the reserve are available; `what` describes the latest
/// promise.
///
/// Error, of kind device: it is not.
pub fn check_promises(what: impl FnOnce() -> String) -> Result<()> {
    match available() {
        Some(available) if available.bytes < reserve(0) => {
            Err(refused(available.promised, what(), &available))
        }
        _ => Ok(()),
    }
}

fn refused(bytes: u64, what: String, available: &Available) -> Diagnostic {
    Diagnostic::of_device(format!(
        "there is no memory for {what}, which takes {}: {available}",
        Bytes(bytes)
    ))
}

/// Reserves space in a vector for `more` elements, at least doubling its capacity.
///
/// Error, of kind device: there is not enough memory.
pub fn grow<T>(vector: &mut Vec<T>, more: usize, what: impl FnOnce() -> String) -> Result<()> {
    if vector.capacity() - vector.len() >= more {
        return Ok(());
    }
    let wanted = vector.len().saturating_add(more).max(vector.capacity().saturating_mul(2));
    let bytes = |elements: usize| (elements as u64).saturating_mul(size_of::<T>() as u64);
    let added = bytes(wanted - vector.len());
    if added >= SMALL {
        let again = what();
        check(bytes(wanted - vector.capacity()), || again.clone())?;
        return vector.try_reserve_exact(wanted - vector.len()).map_err(|_| none(added, &again));
    }
    vector.try_reserve_exact(wanted - vector.len()).map_err(|_| none(added, &what()))
}

/// The error for a failed allocation.
fn none(bytes: u64, what: &str) -> Diagnostic {
    Diagnostic::of_device(format!(
        "there is no memory for {what}: {} could not be allocated",
        Bytes(bytes)
    ))
}

/// Available memory of a process whose `/proc` and `/sys` are below `root`, with these promised
/// bytes to touch and to allocate.
fn below(root: &Path, [to_touch, to_allocate]: [u64; 2]) -> Option<Available> {
    let mut found: Vec<(u64, Limit)> = Vec::new();
    let info = read(root, "proc/meminfo").unwrap_or_default();
    if let (Some(bytes), Some(all)) =
        (kibibytes(&info, "MemAvailable:"), kibibytes(&info, "MemTotal:"))
    {
        found.push((bytes, Limit::Machine(all)));
    }
    found.extend(groups::available(root));
    let promised = to_touch.saturating_add(to_allocate);
    let left = |promised: u64| {
        move |(bytes, limit): (u64, Limit)| Available {
            bytes: bytes.saturating_sub(promised),
            limit,
            promised,
        }
    };
    let mut found: Vec<Available> = found.into_iter().map(left(promised)).collect();
    // Allocated memory counts as used there.
    let (limits, status) = (
        read(root, "proc/self/limits").unwrap_or_default(),
        read(root, "proc/self/status").unwrap_or_default(),
    );
    let mut process = |name: &str, used: &str, limit: fn(u64) -> Limit| {
        if let (Some(most), Some(used)) = (soft_limit(&limits, name), kibibytes(&status, used)) {
            found.push(left(to_allocate)((most.saturating_sub(used), limit(most))));
        }
    };
    process("Max address space", "VmSize:", Limit::AddressSpace);
    process("Max data size", "VmData:", Limit::Data);
    found.into_iter().min_by_key(|available| available.bytes)
}

/// The text of a file below a root; bytes that are no UTF-8 are replaced.
fn read(root: &Path, path: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(root.join(path)).ok()?).into_owned())
}

/// `NAME   4711 kB`, in bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The soft limit of a line of `/proc/self/limits`, if there is one.
fn soft_limit(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MEMORY: (&str, &str) = (
        "proc/meminfo",
        "MemTotal:       24000000 kB\nMemFree: 1 kB\nMemAvailable:   8388608 kB\n",
    );

    #[test]
    fn the_least_limit_counts() {
        let bytes = |files: &[(&str, &str)]| below(root(files).path(), [0, 0]);
        assert_eq!(bytes(&[]), None);
        let machine =
            Available { bytes: 8 * GIB, limit: Limit::Machine(24_000_000 << 10), promised: 0 };
        assert_eq!(bytes(&[MEMORY]), Some(machine.clone()));
        let limits = |space: &str, data: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max data size             {data}            unlimited            bytes     \n\
                 Max address space         {space}            unlimited            bytes     \n"
            )
        };
        let status = ("proc/self/status", "Name:\tx\nVmSize:\t 1048576 kB\nVmData:\t  524288 kB\n");
        let none = limits("unlimited", "unlimited");
        assert_eq!(bytes(&[MEMORY, ("proc/self/limits", &none), status]), Some(machine));
        let space = limits("4294967296", "unlimited");
        let wanted = Available { bytes: 3 * GIB, limit: Limit::AddressSpace(4 * GIB), promised: 0 };
        assert_eq!(bytes(&[MEMORY, ("proc/self/limits", &space), status]), Some(wanted));
        let data = limits("4294967296", "1073741824");
        let wanted = Available { bytes: GIB / 2, limit: Limit::Data(GIB), promised: 0 };
        assert_eq!(bytes(&[MEMORY, ("proc/self/limits", &data), status]), Some(wanted));
        let over = limits("1024", "unlimited");
        assert_eq!(bytes(&[MEMORY, ("proc/self/limits", &over), status]).unwrap().bytes, 0);
    }

    #[test]
    fn promises_are_kept() {
        let root = root(&[MEMORY]);
        assert_eq!(below(root.path(), [GIB / 2, GIB / 2]).unwrap().bytes, 7 * GIB);
        assert_eq!(below(root.path(), [9 * GIB, 0]).unwrap().bytes, 0);
        // Allocated memory counts as used address space.
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(
            root.path().join("proc/self/limits"),
            "Max address space 4294967296 unlimited bytes\n",
        )
        .unwrap();
        fs::write(root.path().join("proc/self/status"), "VmSize:\t 2097152 kB\n").unwrap();
        let both = below(root.path(), [GIB, GIB / 2]).unwrap();
        assert_eq!((both.bytes, both.promised), (3 * GIB / 2, GIB / 2));
        if let Some(before) = available() {
            let promise = Promise::to_allocate(before.bytes);
            assert!(check(64 << 20, || "a test".into()).is_err());
            drop(promise);
            check(1 << 20, || "a test".into()).unwrap();
        }
    }

    #[test]
    fn what_is_refused_says_what_is_free() {
        let limit = Limit::Group("/sys/fs/cgroup/job".into(), 400 << 20);
        let free = Available { bytes: 300 << 20, limit, promised: 1 << 20 };
        assert_eq!(
            refused(2 * GIB, "a tensor".into(), &free).to_string(),
            "there is no memory for a tensor, which takes 2.00 GiB: 300.00 MiB of the 400.00 MiB \
             that the control group `/sys/fs/cgroup/job` may have are free beside 1.00 MiB for \
             inputs and functions that have not run yet"
        );
        assert!(check(u64::MAX, || "everything".into()).is_err() || available().is_none());
        let mut vector: Vec<u64> = Vec::new();
        assert!(grow(&mut vector, usize::MAX, || "everything".into()).is_err());
        grow(&mut vector, 3, || "little".into()).unwrap();
        assert!(vector.capacity() >= 3);
    }
}
