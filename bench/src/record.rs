//! Results of a benchmark run: a JSON file that can be compared with other records.
//!
//! A record holds measured values only. Derived ones (ns per element, GB/s, GFLOP/s, shares) are
//! computed for display ([`crate::table`]), from the times and the case's counts.
//! `bench/record/README.md` describes each field.

use crate::busy::Busy;
use crate::machine::Machine;
use crate::memory::Footprint;
use crate::parity::Parity;
use crate::starts::Start;
use crate::statistics::Spread;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use wengert::{Diagnostic, Result, atomic};

/// The version of the format that is written, and the only one that is read.
pub const FORMAT: u32 = 1;

/// A run of measurements.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// The measuring tool and its version.
    pub tool: String,
    /// The date, as passed by the caller.
    pub date: Option<String>,
    /// The commit of the measured code, if known.
    pub commit: Option<String>,
    /// The machine.
    pub machine: Machine,
    /// The settings.
    pub settings: Settings,
    /// CPU use of other processes when measuring began; None if it was not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<Busy>,
    /// The measurements.
    pub measurements: Vec<Measurement>,
    /// Starts of processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<Start>,
    /// Memory of compiled steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub footprints: Vec<Footprint>,
    /// Requested measurements that failed.
    pub failed: Vec<Failed>,
    /// Absent contenders, with reasons.
    pub absent: Vec<Absent>,
}

/// Settings of a run.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Samples of each case and contender.
    pub rounds: usize,
    /// Duration of a sample of consecutive runs, in seconds; 0 for one run per sample.
    pub sample_seconds: f64,
    /// Duration of the warm-up of each case, in seconds; at least three runs.
    pub warm_up_seconds: f64,
    /// Longest duration of a group's rounds, in seconds; a longer group gets fewer rounds. None
    /// for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_seconds: Option<f64>,
    /// Rest of all contenders before each sample, in seconds, if samples have a duration.
    #[serde(default = "rest_of_older_records")]
    pub rest_seconds: f64,
    /// Processes that spin beside the measurement, each on one core.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spinning: usize,
}

/// Whether a count is omitted from records.
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The rest of all runs before records had this field.
fn rest_of_older_records() -> f64 {
    0.3
}

/// The work of a case, counted by hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// Elements, as defined by the case.
    pub elements: u64,
    /// Least bytes that must be read from and written to memory.
    pub bytes: u64,
    /// Floating-point operations of products and sums; cheap elementwise functions are not
    /// counted.
    pub flops: u64,
}

/// One case by one contender.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// The case's name, the same for all contenders.
    pub case: String,
    /// The group of cases that it was timed in turns with.
    pub group: String,
    /// The contender.
    pub contender: String,
    /// The device.
    pub device: String,
    /// Its work.
    pub work: Work,
    /// The case whose bandwidth is the reference for this one.
    pub reference: Option<String>,
    /// Runs in a sample.
    pub runs: u64,
    /// Seconds per run, for consecutive runs.
    pub time: Spread,
    /// Seconds of a single run, from its start until the device has finished.
    pub latency: Spread,
    /// The samples of `time`, in the order of the rounds. Samples of the same group and round
    /// were taken one after another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<f64>,
    /// The comparison of its result with a plain loop.
    pub parity: Parity,
}

/// A case that could not be measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failed {
    /// The case's name.
    pub case: String,
    /// The contender.
    pub contender: String,
    /// The reason.
    pub why: String,
}

/// An absent contender.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Absent {
    /// The contender.
    pub contender: String,
    /// The reason, e.g. "not installed".
    pub why: String,
}

impl Record {
    /// Reads a record.
    ///
    /// Errors: the file cannot be read, is no record, or is of another format.
    pub fn read(path: &Path) -> Result<Record> {
        let shown = path.display();
        let text = fs::read_to_string(path)
            .map_err(|e| Diagnostic::new(format!("cannot read {shown}: {e}")))?;
        Record::parse(&text).map_err(|d| d.context(shown))
    }

    /// Reads the text of a record.
    pub fn parse(text: &str) -> Result<Record> {
        #[derive(Deserialize)]
        struct Versioned {
            format: u32,
        }
        let wrong = |e: serde_json::Error| {
            Diagnostic::new(format!("this is no record of measurements: {e}")).help(
                "records are written by `wengert-bench gpu --json FILE` and \
                 `bench/peers/measure.py --json FILE`",
            )
        };
        // A later format may differ in all other fields.
        let Versioned { format } = serde_json::from_str(text).map_err(wrong)?;
        if format != FORMAT {
            return Err(Diagnostic::new(format!(
                "a record of format {format}; this version reads format {FORMAT}"
            )));
        }
        serde_json::from_str(text).map_err(wrong)
    }

    /// The text of the record.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self)
            .expect("a record has string keys and finite numbers");
        text.push('\n');
        text
    }

    /// Writes the record atomically.
    pub fn write(&self, path: &Path) -> Result<()> {
        atomic::write_bytes(path, self.to_json().as_bytes())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn record() -> Record {
        let spread = Spread { samples: 3, min: 1e-6, p10: 1.1e-6, median: 1.25e-6, p90: 0.1 + 0.2 };
        Record {
            format: FORMAT,
            tool: "test".into(),
            date: Some("2026-01-02".into()),
            commit: None,
            machine: Machine { gpus: vec!["G".into()], ..Machine::default() },
            settings: Settings::TABLE,
            busy: Some(Busy { cores: 0.25, load: 1.5 }),
            starts: vec![Start {
                case: "step".into(),
                contender: "wengert".into(),
                device: "cpu".into(),
                warm: None,
                seconds: spread,
                compile_seconds: Some(spread),
                peak_bytes: 1 << 31,
                state_bytes: 1 << 30,
                arena_bytes: Some(1 << 29),
                bound_bytes: None,
            }],
            footprints: vec![Footprint {
                case: "step".into(),
                contender: "jax".into(),
                device: "cpu".into(),
                way: "einsum".into(),
                parameters: 10,
                state_bytes: 120,
                arena_bytes: 1000,
                result_bytes: 4,
                bound_bytes: None,
                naive_bytes: None,
                compile_seconds: 0.5,
                planning: None,
            }],
            measurements: vec![Measurement {
                case: "copy f32 1M".into(),
                group: "memory".into(),
                contender: "wengert".into(),
                device: "cpu".into(),
                work: Work { elements: 1 << 20, bytes: 1 << 23, flops: 0 },
                reference: Some("copy f32 1M".into()),
                runs: 7,
                time: spread,
                latency: spread,
                rounds: vec![1.5, 0.1],
                parity: Parity { compared: 5, worst: 0.0, bound: 1e-7, losses: None },
            }],
            failed: vec![Failed {
                case: "a".into(),
                contender: "b".into(),
                why: "c\nd \"e\"".into(),
            }],
            absent: vec![Absent { contender: "jax".into(), why: "not installed".into() }],
        }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let record = record();
        assert_eq!(Record::parse(&record.to_json()).unwrap(), record);
        let path =
            std::env::temp_dir().join(format!("wengert-bench-record-{}.json", std::process::id()));
        record.write(&path).unwrap();
        let read = Record::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(read, record);
    }

    /// Later fields are optional, so that older records can be read.
    #[test]
    fn records_that_claims_rest_on_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("record");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let records: Vec<_> =
            files.filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
        assert!(records.len() >= 2);
        for path in records {
            let record = Record::read(&path).unwrap();
            let figures = record.measurements.len() + record.starts.len() + record.footprints.len();
            assert!(figures > 0, "{}", path.display());
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let message = |text: &str| Record::parse(text).unwrap_err().message;
        let text = record().to_json();
        assert!(message(&text.replace("\"format\": 1", "\"format\": 2")).contains("format 2"));
        assert!(message(&text.replace("\"runs\"", "\"walks\"")).contains("unknown field `walks`"));
        assert!(
            message(&text.replace("\"median\": 1.25e-6", "\"median\": null")).contains("no record")
        );
        assert!(message("{}").contains("missing field `format`"));
        let missing = Record::read(Path::new("/no/such/record.json")).unwrap_err().message;
        assert!(missing.contains("cannot read /no/such/record.json"), "{missing}");
    }
}
