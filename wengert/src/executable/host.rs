//! Memory of this machine.

use std::fs;

/// Bytes that programs may still take without others being swapped out, as Linux estimates them, and no more than the limit leaves under which this process runs, if there is one. Nothing on other
/// systems.
pub fn free_memory() -> Option<u64> {
    let available = of_machine(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let left = fs::read_to_string("/proc/self/cgroup").ok().and_then(|groups| of_group(&groups));
    Some(left.map_or(available, |left| left.min(available)))
}

/// What `/proc/meminfo` says.
fn of_machine(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// What the control group of this process (version 2) leaves; nothing if it has no limit.
fn of_group(groups: &str) -> Option<u64> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let folder = format!("/sys/fs/cgroup{}", path.trim_end_matches('/'));
    let number = |name: &str| fs::read_to_string(format!("{folder}/{name}")).ok()?.trim().parse::<u64>().ok();
    Some(number("memory.max")?.saturating_sub(number("memory.current")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kibibytes_are_read() {
        let text = "MemTotal:       24000000 kB\nMemAvailable:   19000000 kB\n";
        assert_eq!(of_machine(text), Some(19_000_000 * 1024));
        assert_eq!(of_machine("MemTotal: 1 kB\n"), None);
        assert_eq!(of_group("12:cpu:/a\n"), None);
        if cfg!(target_os = "linux") {
            assert!(free_memory().is_some_and(|bytes| bytes > 1 << 20));
        }
    }
}
