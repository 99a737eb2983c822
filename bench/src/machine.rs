//! The machine of a measurement. Unknown facts are left out; nothing is guessed.

use serde::{Deserialize, Serialize};
use std::fs;
use std::process::Command;

/// Facts of a machine, without names of hosts or users.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Model of the CPU.
    pub cpu: Option<String>,
    /// Threads that run simultaneously.
    pub threads: Option<usize>,
    /// GPUs, each by its name.
    pub gpus: Vec<String>,
    /// Version of the NVIDIA driver.
    pub driver: Option<String>,
    /// Versions of the measured libraries, by name. Each contender adds its own.
    pub libraries: std::collections::BTreeMap<String, String>,
}

impl Machine {
    /// This machine. GPUs and driver are queried by `nvidia-smi`, if present.
    pub fn here() -> Machine {
        let (gpus, driver) = gpus();
        Machine {
            cpu: fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| cpu_model(&text)),
            threads: std::thread::available_parallelism().ok().map(usize::from),
            gpus,
            driver,
            libraries: [("wengert".to_owned(), env!("CARGO_PKG_VERSION").to_owned())].into(),
        }
    }
}

/// The first model name in the text of `/proc/cpuinfo`.
fn cpu_model(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn gpus() -> (Vec<String>, Option<String>) {
    let query = ["--query-gpu=name,driver_version", "--format=csv,noheader"];
    match Command::new("nvidia-smi").args(query).output() {
        Ok(output) if output.status.success() => listed(&String::from_utf8_lossy(&output.stdout)),
        _ => (Vec::new(), None),
    }
}

/// Names and the driver's version in lines of `name, version`.
fn listed(text: &str) -> (Vec<String>, Option<String>) {
    let lines: Vec<(&str, &str)> = text.lines().filter_map(|line| line.rsplit_once(',')).collect();
    let driver = lines.first().map(|(_, driver)| driver.trim().to_owned());
    (lines.into_iter().map(|(name, _)| name.trim().to_owned()).collect(), driver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC 9B45\nmodel name\t: other\n";
        assert_eq!(cpu_model(text).as_deref(), Some("AMD EPYC 9B45"));
        assert_eq!(cpu_model("Hardware: none"), None);
        let (gpus, driver) = listed("NVIDIA H200, 580.65.06\nNVIDIA A100, 40GB, 580.65.06\n");
        assert_eq!(gpus, ["NVIDIA H200", "NVIDIA A100, 40GB"]);
        assert_eq!(driver.as_deref(), Some("580.65.06"));
        assert_eq!(listed(""), (vec![], None));
    }
}
