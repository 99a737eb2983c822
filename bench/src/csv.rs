//! Records as comma-separated values, for custom plots.
//!
//! Each line holds one figure of a contender: a measured case, a start, or the memory of its
//! compiled step. Times are in seconds, sizes in bytes; fields that do not apply are empty. Every
//! line has the machine, the versions and the commit, so files can be concatenated.

use crate::floor::Floors;
use crate::machine::Machine;
use crate::record::Record;
use crate::statistics::Spread;
use crate::suite::label;
use wengert::{Diagnostic, Result};

const HEADER: [&str; 29] = [
    "suite",
    "group",
    "case",
    "contender",
    "device",
    "what",
    "samples",
    "min",
    "p10",
    "median",
    "p90",
    "latency",
    "floor",
    "elements",
    "bytes",
    "flops",
    "compile_seconds",
    "peak_bytes",
    "state_bytes",
    "arena_bytes",
    "bound_bytes",
    "naive_bytes",
    "planning",
    "busy_cores",
    "date",
    "commit",
    "tool",
    "machine",
    "libraries",
];

/// The lines of some records, with a header.
///
/// Error: the CSV writer fails.
pub fn text(records: &[Record]) -> Result<String> {
    let failed =
        |e: &dyn std::fmt::Display| Diagnostic::new(format!("cannot write records as CSV: {e}"));
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut put = |line: Vec<String>| writer.write_record(&line).map_err(|e| failed(&e));
    put(HEADER.map(str::to_owned).to_vec())?;
    let floors = Floors::of(records);
    for record in records {
        let of_record = ends(record);
        for m in &record.measurements {
            let suite = label(&m.group).unwrap_or_default().to_owned();
            let mut line =
                vec![suite, m.group.clone(), m.case.clone(), m.contender.clone(), m.device.clone()];
            line.push("time".into());
            line.extend(spread(&m.time));
            line.push(m.latency.median.to_string());
            line.push(or_nothing(floors.of_case(m)));
            line.extend([m.work.elements, m.work.bytes, m.work.flops].map(|n| n.to_string()));
            line.extend([const { String::new() }; 7]);
            line.extend(of_record.clone());
            put(line)?;
        }
        for s in &record.starts {
            let what = match s.warm {
                Some(true) => "warm start",
                _ => "cold start",
            };
            let mut line = vec!["C7".into(), "starts".into(), s.case.clone(), s.contender.clone()];
            line.extend([s.device.clone(), what.to_owned()]);
            line.extend(spread(&s.seconds));
            line.extend([const { String::new() }; 5]);
            line.push(or_nothing(s.compile_seconds.map(|seconds| seconds.median)));
            line.push(s.peak_bytes.to_string());
            line.extend([
                s.state_bytes.to_string(),
                or_nothing(s.arena_bytes),
                or_nothing(s.bound_bytes),
            ]);
            line.extend([const { String::new() }; 2]);
            line.extend(of_record.clone());
            put(line)?;
        }
        for f in &record.footprints {
            let what = format!("memory {}", f.way);
            let mut line =
                vec![String::new(), "memory of steps".into(), f.case.clone(), f.contender.clone()];
            line.extend([f.device.clone(), what.trim_end().to_owned()]);
            line.extend([const { String::new() }; 7]);
            line.push(f.parameters.to_string());
            line.extend([const { String::new() }; 2]);
            line.extend([
                f.compile_seconds.to_string(),
                f.bytes().to_string(),
                f.state_bytes.to_string(),
            ]);
            line.extend([
                f.arena_bytes.to_string(),
                or_nothing(f.bound_bytes),
                or_nothing(f.naive_bytes),
            ]);
            line.push(or_nothing(f.planning));
            line.extend(of_record.clone());
            put(line)?;
        }
    }
    let bytes = writer.into_inner().map_err(|e| failed(&e))?;
    String::from_utf8(bytes).map_err(|e| failed(&e))
}

fn spread(spread: &Spread) -> [String; 5] {
    let Spread { samples, min, p10, median, p90 } = spread;
    [samples.to_string(), min.to_string(), p10.to_string(), median.to_string(), p90.to_string()]
}

/// The last fields of a line, which are the same in all lines of a record.
fn ends(record: &Record) -> [String; 6] {
    let Machine { cpu, threads, gpus, driver, libraries } = &record.machine;
    let mut machine: Vec<String> = cpu.iter().cloned().collect();
    machine.extend(threads.map(|threads| format!("{threads} threads")));
    machine.extend(gpus.iter().cloned());
    machine.extend(driver.as_ref().map(|driver| format!("driver {driver}")));
    let versions: Vec<String> =
        libraries.iter().map(|(name, version)| format!("{name} {version}")).collect();
    [
        or_nothing(record.busy.map(|busy| busy.cores)),
        record.date.clone().unwrap_or_default(),
        record.commit.clone().unwrap_or_default(),
        record.tool.clone(),
        machine.join("; "),
        versions.join("; "),
    ]
}

fn or_nothing(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn each_measurement_start_and_footprint_is_a_line() {
        let mut record = record();
        record.measurements[0].case = "a, \"b\"".into();
        let text = text(&[record]).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        assert_eq!(reader.headers().unwrap().len(), HEADER.len());
        let lines: Vec<csv::StringRecord> =
            reader.records().map(std::result::Result::unwrap).collect();
        let field = |line: usize, name: &str| {
            lines[line][HEADER.iter().position(|h| *h == name).unwrap()].to_owned()
        };
        assert_eq!(lines.len(), 3);
        assert_eq!(
            (field(0, "case"), field(0, "median")),
            ("a, \"b\"".into(), "0.00000125".into())
        );
        assert_eq!((field(0, "machine"), field(0, "busy_cores")), ("G".into(), "0.25".into()));
        assert_eq!(
            (field(1, "what"), field(1, "arena_bytes")),
            ("cold start".into(), "536870912".into())
        );
        assert_eq!(
            (field(1, "bound_bytes"), field(1, "date")),
            (String::new(), "2026-01-02".into())
        );
        assert_eq!(
            (field(2, "what"), field(2, "peak_bytes")),
            ("memory einsum".into(), "1004".into())
        );
        assert_eq!((field(2, "elements"), field(2, "planning")), ("10".into(), String::new()));
    }
}
