//! What a run of measurements leaves: a JSON file that anybody can compare with another.
//!
//! A record holds what was measured and nothing derived: ns an element, GB/s, GFLOP/s and shares are computed where they are
//! shown ([`crate::table`]), from the times and the case's counts. `bench/record/README.md` says what each field is.

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

/// The version of the format that this version writes, and the only one that it reads.
pub const FORMAT: u32 = 1;

/// A run of measurements.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// What measured, with its version.
    pub tool: String,
    /// The day, as the caller gave it.
    pub date: Option<String>,
    /// The commit of what was measured, where known.
    pub commit: Option<String>,
    /// Where.
    pub machine: Machine,
    /// How.
    pub settings: Settings,
    /// What others used of the machine when measuring began; None where nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<Busy>,
    /// What was measured.
    pub measurements: Vec<Measurement>,
    /// Starts of processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<Start>,
    /// What compiled steps need of memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub footprints: Vec<Footprint>,
    /// What was wanted and failed.
    pub failed: Vec<Failed>,
    /// Contenders that are not there, and why.
    pub absent: Vec<Absent>,
}

/// How a run measures.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Samples of each case and contender.
    pub rounds: usize,
    /// Runs behind each other make a sample that takes this long, in seconds; 0 for one run a sample.
    pub sample_seconds: f64,
    /// Each case runs for this long before it is timed, in seconds, but at least three times.
    pub warm_up_seconds: f64,
    /// A group whose rounds would take longer gets fewer, in seconds; None: all groups get all rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_seconds: Option<f64>,
    /// All contenders rest so long before each sample, in seconds, if samples have a length.
    #[serde(default = "rest_of_older_records")]
    pub rest_seconds: f64,
}

/// What all runs rested before the record told it.
fn rest_of_older_records() -> f64 {
    0.3
}

/// The work of a case, counted by hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// Elements, of whatever the case says.
    pub elements: u64,
    /// Bytes that must be read from and written to memory at least.
    pub bytes: u64,
    /// Floating-point operations that count: of products and sums, not of cheap elementwise functions.
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
    /// Who.
    pub contender: String,
    /// On what.
    pub device: String,
    /// Its work.
    pub work: Work,
    /// The case whose bandwidth this one's is a share of.
    pub reference: Option<String>,
    /// Runs in a sample.
    pub runs: u64,
    /// Seconds a run, when runs follow each other.
    pub time: Spread,
    /// Seconds of one run from its start until the device has finished.
    pub latency: Spread,
    /// The samples that `time` is of, in the order of the rounds: those of others in the same group and round were taken beside them.
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
    /// Who.
    pub contender: String,
    /// Why.
    pub why: String,
}

/// A contender that is not there.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Absent {
    /// Who.
    pub contender: String,
    /// Why, e.g. "not installed".
    pub why: String,
}

impl Record {
    /// Reads a record.
    ///
    /// Errors: the file cannot be read, is no record, or is of another format.
    pub fn read(path: &Path) -> Result<Record> {
        let shown = path.display();
        let text =
            fs::read_to_string(path).map_err(|e| Diagnostic::new(format!("cannot read {shown}: {e}")))?;
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
                "records are written by `wengert-bench gpu --json FILE` and `bench/peers/measure.py --json FILE`",
            )
        };
        // A later format may differ in anything but this field.
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
        let mut text =
            serde_json::to_string_pretty(self).expect("a record has string keys and finite numbers");
        text.push('\n');
        text
    }

    /// Writes the record, or leaves the file as it was.
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
            failed: vec![Failed { case: "a".into(), contender: "b".into(), why: "c\nd \"e\"".into() }],
            absent: vec![Absent { contender: "jax".into(), why: "not installed".into() }],
        }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let record = record();
        assert_eq!(Record::parse(&record.to_json()).unwrap(), record);
        let path = std::env::temp_dir().join(format!("wengert-bench-record-{}.json", std::process::id()));
        record.write(&path).unwrap();
        let read = Record::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(read, record);
    }

    /// Fields that came later are optional: what was written before is read.
    #[test]
    fn records_that_claims_rest_on_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("record");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let records: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
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
        assert!(message(&text.replace("\"median\": 1.25e-6", "\"median\": null")).contains("no record"));
        assert!(message("{}").contains("missing field `format`"));
        let missing = Record::read(Path::new("/no/such/record.json")).unwrap_err().message;
        assert!(missing.contains("cannot read /no/such/record.json"), "{missing}");
    }
}
