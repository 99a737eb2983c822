//! Limits of control groups, of both versions.
//!
//! `/proc/self/cgroup` has the group of the process in each hierarchy, and `/proc/self/mountinfo`
//! has the mount points of hierarchies and their root groups. In a container the mount's root can
//! be a group below the hierarchy's root, and the group of the process may lie outside of the
//! mount. Then the limits of the mount's root apply, the only visible ones.

use super::{Limit, read};
use std::path::{Path, PathBuf};

/// Names of the files of a version.
struct Version {
    limit: &'static str,
    usage: &'static str,
    inactive: &'static str,
    active: &'static str,
}

const V1: Version = Version {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    inactive: "total_inactive_file",
    active: "total_active_file",
};
const V2: Version = Version {
    limit: "memory.max",
    usage: "memory.current",
    inactive: "inactive_file",
    active: "active_file",
};

/// Version 1 writes "no limit" as the largest number of pages that it can count.
const NONE: u64 = 1 << 62;

/// Bytes left in each group with a limit, from the process's own group upwards.
pub(super) fn available(root: &Path) -> Vec<(u64, Limit)> {
    let (Some(groups), Some(mounts)) =
        (read(root, "proc/self/cgroup"), read(root, "proc/self/mountinfo"))
    else {
        return Vec::new();
    };
    mounts
        .lines()
        .filter_map(|line| Mount::parse(line, &groups))
        .flat_map(|m| m.available(root))
        .collect()
}

/// A mounted hierarchy with the group of the process.
struct Mount {
    version: &'static Version,
    /// Its mount point.
    point: PathBuf,
    /// The group's path below the mount point.
    group: PathBuf,
}

impl Mount {
    /// Parses a line of `mountinfo`; `None` unless it is a control-group hierarchy that limits
    /// memory.
    fn parse(line: &str, groups: &str) -> Option<Mount> {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (top, point) = (unescaped(fields.next()?), unescaped(fields.next()?));
        let mut fields = filesystem.split(' ');
        let kind = fields.next()?;
        let options = fields.next_back()?;
        let version = match kind {
            "cgroup2" => &V2,
            "cgroup" if options.split(',').any(|option| option == "memory") => &V1,
            _ => return None,
        };
        // `4:memory:/job` of version 1, `0::/job` of version 2.
        let own = groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let is_own = match kind {
                "cgroup2" => controllers.is_empty(),
                _ => controllers.split(',').any(|controller| controller == "memory"),
            };
            is_own.then_some(path)
        })?;
        let group = Path::new(own).strip_prefix(&top).unwrap_or(Path::new(""));
        let is_outside = group.components().any(|c| c == std::path::Component::ParentDir);
        let group = if is_outside { PathBuf::new() } else { group.to_owned() };
        Some(Mount { version, point: point.into(), group })
    }

    fn available(&self, root: &Path) -> Vec<(u64, Limit)> {
        // Removes the trailing slash that `join` adds for the last level.
        let levels = self
            .group
            .ancestors()
            .map(|group| self.point.join(group).components().collect::<PathBuf>());
        levels.filter_map(|folder| self.of_level(root, &folder)).collect()
    }

    /// Bytes left in one group; `None` if it has no limit.
    fn of_level(&self, root: &Path, folder: &Path) -> Option<(u64, Limit)> {
        let below = folder.strip_prefix("/").unwrap_or(folder).to_str()?;
        let file = |name: &str| read(root, &format!("{}/{name}", below.trim_end_matches('/')));
        let number = |name: &str| file(name)?.trim().parse::<u64>().ok();
        let limit = number(self.version.limit).filter(|limit| *limit < NONE)?;
        let usage = number(self.version.usage)?;
        let statistics = file("memory.stat").unwrap_or_default();
        let pages = |name: &str| {
            let value =
                statistics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        let cache = pages(self.version.inactive).saturating_add(pages(self.version.active) / 2);
        let bytes = limit.saturating_sub(usage.saturating_sub(cache));
        Some((bytes, Limit::Group(folder.to_owned(), limit)))
    }
}

/// Replaces escapes: blanks and the like are written as `\040` there.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part
            .get(..3)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok())
            .filter(u8::is_ascii)
        {
            Some(byte) => {
                out.push(char::from(byte));
                out += &part[3..];
            }
            None => {
                out.push('\\');
                out += part;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MIB: u64 = 1 << 20;
    const MOUNTED_V2: &str =
        "25 20 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    const MOUNTED_V1: &str = "29 20 0:3 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                              30 20 0:4 / /sys/fs/cgroup/memory rw shared:9 - \
                              cgroup cgroup rw,memory\n";

    /// Available bytes in a tree of files, from the process's group upwards.
    fn found(files: &[(&str, String)]) -> Vec<(u64, PathBuf)> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let groups = available(root.path()).into_iter();
        let groups = groups.map(|(bytes, limit)| match limit {
            Limit::Group(folder, _) => (bytes, folder),
            other => panic!("{other:?}"),
        });
        groups.collect()
    }

    #[test]
    fn version_2_nested_and_unlimited() {
        let of = |max: &str, parent: &str| {
            found(&[
                ("proc/self/cgroup", "0::/a b/job\n".into()),
                ("proc/self/mountinfo", format!("1 0 8:1 / / rw - ext4 /dev/x rw\n{MOUNTED_V2}")),
                ("sys/fs/cgroup/a b/job/memory.max", max.into()),
                ("sys/fs/cgroup/a b/job/memory.current", format!("{}\n", 100 * MIB)),
                (
                    "sys/fs/cgroup/a b/job/memory.stat",
                    format!("anon 5\ninactive_file {}\nactive_file {}\n", 20 * MIB, 10 * MIB),
                ),
                ("sys/fs/cgroup/a b/memory.max", parent.into()),
                ("sys/fs/cgroup/a b/memory.current", format!("{}\n", 300 * MIB)),
            ])
        };
        let job = PathBuf::from("/sys/fs/cgroup/a b/job");
        let above = PathBuf::from("/sys/fs/cgroup/a b");
        let limit = |mib: u64| format!("{}\n", mib * MIB);
        assert_eq!(of("max\n", "max\n"), []);
        assert_eq!(of(&limit(400), "max\n"), [(325 * MIB, job.clone())]);
        assert_eq!(of(&limit(400), &limit(310)), [(325 * MIB, job), (10 * MIB, above.clone())]);
        assert_eq!(of("max\n", &limit(200)), [(0, above)]);
    }

    #[test]
    fn version_1_nested_and_unlimited() {
        let of = |limit: u64, parent: u64| {
            found(&[
                (
                    "proc/self/cgroup",
                    "9:name=systemd:/\n4:hugetlb,memory:/a/job\n1:cpu:/other\n0::/\n".into(),
                ),
                ("proc/self/mountinfo", MOUNTED_V1.into()),
                ("sys/fs/cgroup/memory/a/job/memory.limit_in_bytes", limit.to_string()),
                ("sys/fs/cgroup/memory/a/job/memory.usage_in_bytes", (50 * MIB).to_string()),
                (
                    "sys/fs/cgroup/memory/a/job/memory.stat",
                    format!("inactive_file 1\ntotal_inactive_file {}\n", 30 * MIB),
                ),
                ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", parent.to_string()),
                ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", (50 * MIB).to_string()),
            ])
        };
        let folder = |name: &str| PathBuf::from("/sys/fs/cgroup/memory").join(name);
        let none = 9223372036854771712;
        assert_eq!(of(none, none), []);
        assert_eq!(of(400 * MIB, none), [(380 * MIB, folder("a/job"))]);
        assert_eq!(of(none, 60 * MIB), [(10 * MIB, folder("a"))]);
    }

    /// A container sees its own group as the root of the mount, independent of its name in
    /// `/proc/self/cgroup`.
    #[test]
    fn containers_see_the_root_of_their_mount() {
        for (own, top) in [
            ("/docker/4711", "/docker/4711"),
            ("/", "/"),
            ("/../../4711", "/"),
            ("/docker/4711", "/elsewhere"),
        ] {
            let found = found(&[
                ("proc/self/cgroup", format!("0::{own}\n")),
                ("proc/self/mountinfo", MOUNTED_V2.replacen(" / ", &format!(" {top} "), 1)),
                ("sys/fs/cgroup/memory.max", (400 * MIB).to_string()),
                ("sys/fs/cgroup/memory.current", (100 * MIB).to_string()),
            ]);
            assert_eq!(found, [(300 * MIB, PathBuf::from("/sys/fs/cgroup"))], "{own} below {top}");
        }
    }

    #[test]
    fn damaged_files_are_no_limits() {
        for line in [
            "",
            "-",
            " - cgroup2",
            "1 2 3 - cgroup2 x rw",
            "25 20 0:22 / /sys/fs/cgroup - cgroup2 x rw",
        ] {
            let text = |text: &str| text.to_owned();
            assert_eq!(
                found(&[
                    ("proc/self/cgroup", text("0::\n:\nnothing\n")),
                    ("proc/self/mountinfo", text(line)),
                    ("sys/fs/cgroup/memory.max", text("many")),
                ]),
                []
            );
        }
        assert_eq!(unescaped(r"a\040b\134\9"), r"a b\\9");
    }
}
