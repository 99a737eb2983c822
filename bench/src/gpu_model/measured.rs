//! Durations and bytes of kernels as Nsight Compute measured them, beside the predictions.
//!
//! ```text
//! ncu --csv --print-units base --metrics gpu__time_duration.sum,dram__bytes_read.sum,\
//! dram__bytes_write.sum --log-file g4.csv wengert-bench gpu-model G4.1 --run-on cuda:0
//! wengert-bench gpu-model G4.1 --measured g4.csv
//! ```
//!
//! A record has a line for each metric of each launch. Launches belong together if their kernel and
//! their number of blocks are equal, as in the rows of a prediction. Kernels of cuBLASLt are
//! unknown by name, so all that no row names are compared as one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use wengert::device::predicted::{Predicted, Row};
use wengert::{Diagnostic, Result, diagnostic};

/// Names of the columns of [`Measured::table`].
const HEADER: [&str; 9] = [
    "kernel",
    "limit",
    "times",
    "predicted us",
    "measured us",
    "measured / predicted",
    "read MB",
    "write MB",
    "measured read, write MB",
];

/// What was measured of one launch, or of several together.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Figures {
    launches: u64,
    seconds: f64,
    read: f64,
    written: f64,
}

impl Figures {
    fn add(&mut self, other: Figures) {
        self.launches += other.launches;
        self.seconds += other.seconds;
        self.read += other.read;
        self.written += other.written;
    }

    /// The mean of a launch.
    fn mean(self) -> Figures {
        let launches = self.launches.max(1) as f64;
        let Figures { seconds, read, written, .. } = self;
        let [seconds, read, written] = [seconds, read, written].map(|sum| sum / launches);
        Figures { launches: 1, seconds, read, written }
    }
}

/// A record of Nsight Compute.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Measured {
    /// By kernel and number of blocks.
    kernels: BTreeMap<(String, u64), Figures>,
}

impl Measured {
    /// Reads a record.
    ///
    /// Errors: the file cannot be read, or is no such record.
    pub fn read(path: &Path) -> Result<Measured> {
        let shown = path.display();
        let text = fs::read_to_string(path)
            .map_err(|error| diagnostic!("cannot read `{shown}`: {error}"))?;
        Measured::parse(&text).map_err(|error| {
            diagnostic!("`{shown}` is no record of Nsight Compute: {error}").help(
                "measure with `ncu --csv --print-units base --metrics gpu__time_duration.sum,\
                 dram__bytes_read.sum,dram__bytes_write.sum --log-file FILE`",
            )
        })
    }

    fn parse(text: &str) -> Result<Measured, String> {
        // Lines of the profiler itself, such as `==PROF== Connected`, precede the table.
        let table = text.lines().filter(|line| !line.starts_with("==")).collect::<Vec<_>>();
        let table = table.join("\n");
        let mut reader = csv::Reader::from_reader(table.trim_start().as_bytes());
        let header = reader.headers().map_err(|error| error.to_string())?.clone();
        let column = |name: &str| {
            let found = header.iter().position(|column| column == name);
            found.ok_or_else(|| format!("it has no column `{name}`"))
        };
        let [id, kernel, grid, metric, unit, value] =
            ["ID", "Kernel Name", "Grid Size", "Metric Name", "Metric Unit", "Metric Value"]
                .map(column);
        let (id, kernel, grid, metric, unit, value) = (id?, kernel?, grid?, metric?, unit?, value?);
        let mut launches = BTreeMap::<String, ((String, u64), Figures)>::new();
        for record in reader.records() {
            let record = record.map_err(|error| error.to_string())?;
            let field = |column: usize| record.get(column).unwrap_or_default();
            let blocks = blocks(field(grid))
                .ok_or_else(|| format!("`{}` is no size of a grid", field(grid)))?;
            let (_, figures) = launches.entry(field(id).to_owned()).or_insert_with(|| {
                let key = (field(kernel).to_owned(), blocks);
                (key, Figures { launches: 1, ..Figures::default() })
            });
            let place = match field(metric) {
                "gpu__time_duration.sum" => &mut figures.seconds,
                "dram__bytes_read.sum" => &mut figures.read,
                "dram__bytes_write.sum" => &mut figures.written,
                _ => continue,
            };
            *place = quantity(field(value), field(unit)).ok_or_else(|| {
                format!("`{} {}` is no {}", field(value), field(unit), field(metric))
            })?;
        }
        let mut kernels = BTreeMap::<_, Figures>::new();
        for (key, figures) in launches.into_values() {
            if figures.seconds <= 0.0 {
                return Err(format!("a launch of `{}` has no gpu__time_duration.sum", key.0));
            }
            kernels.entry(key).or_default().add(figures);
        }
        match kernels.is_empty() {
            true => Err("it has no launch".into()),
            false => Ok(Measured { kernels }),
        }
    }

    /// The figures of a row's launches, together.
    fn of(&self, row: &Row) -> Option<Figures> {
        self.kernels.get(&(row.kernel.clone(), row.blocks)).copied()
    }

    /// Rows of a table, the longest prediction first, and lines about what is not in them.
    ///
    /// Error: no kernel of the prediction was measured.
    pub fn table(&self, predicted: &Predicted) -> Result<(Vec<[String; 9]>, Vec<String>)> {
        let (own, library): (Vec<&Row>, Vec<&Row>) =
            predicted.rows.iter().partition(|row| row.occupancy.is_some());
        let mut rows = vec![HEADER.map(str::to_owned)];
        let (mut lines, mut runs) = (Vec::new(), Vec::new());
        let (mut of_model, mut of_record) = (0.0, 0.0);
        for row in own {
            let Some(together) = self.of(row) else {
                lines.push(format!("not measured: {} of {} blocks", row.kernel, row.blocks));
                continue;
            };
            runs.push(together.launches as f64 / row.times as f64);
            let measured = together.mean();
            of_model += row.times as f64 * row.seconds;
            of_record += row.times as f64 * measured.seconds;
            let megabytes = |bytes: f64| format!("{:.2}", bytes / 1e6);
            rows.push([
                row.kernel.clone(),
                row.limiter.name().to_owned(),
                row.times.to_string(),
                format!("{:.2}", 1e6 * row.seconds),
                format!("{:.2}", 1e6 * measured.seconds),
                format!("{:.2}", measured.seconds / row.seconds),
                megabytes(row.device_memory.0 as f64),
                megabytes(row.device_memory.1 as f64),
                format!("{}, {}", megabytes(measured.read), megabytes(measured.written)),
            ]);
        }
        runs.sort_by(f64::total_cmp);
        let Some(&runs) = runs.get(runs.len() / 2) else {
            return Err(Diagnostic::new("no kernel of the prediction is in the record").help(
                "measure the same program: `wengert-bench gpu-model LABEL --run-on cuda:0`",
            ));
        };
        let compare = |what: &str, model: f64, record: f64| {
            format!(
                "{what}: {:.4} ms predicted, {:.4} ms measured, ratio {:.2}",
                1e3 * model,
                1e3 * record,
                record / model
            )
        };
        lines.insert(0, compare("own kernels of a run", of_model, of_record));
        let is_own = |(kernel, _): &&(String, u64)| {
            predicted.rows.iter().any(|row| row.occupancy.is_some() && row.kernel == *kernel)
        };
        let others = self.kernels.keys().filter(|key| !is_own(key));
        let others: f64 = others.map(|key| self.kernels[key].seconds).sum::<f64>() / runs;
        if !library.is_empty() || others > 0.0 {
            let model: f64 = library.iter().map(|row| row.times as f64 * row.seconds).sum();
            lines.insert(1, compare("kernels of cuBLASLt of a run", model, others));
        }
        Ok((rows, lines))
    }
}

/// The number of blocks of a grid such as `(64, 2, 1)`.
fn blocks(grid: &str) -> Option<u64> {
    let extents = grid.trim().strip_prefix('(')?.strip_suffix(')')?.split(',');
    extents.map(|extent| extent.trim().parse::<u64>().ok()).product()
}

/// A quantity in seconds or bytes. The profiler writes thousands with commas.
fn quantity(value: &str, unit: &str) -> Option<f64> {
    let factor = match unit {
        "s" | "second" | "byte" => 1.0,
        "ms" | "msecond" => 1e-3,
        "us" | "usecond" => 1e-6,
        "ns" | "nsecond" => 1e-9,
        "Kbyte" => 1e3,
        "Mbyte" => 1e6,
        "Gbyte" => 1e9,
        _ => return None,
    };
    let value: f64 = value.replace(',', "").parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some(value * factor)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // Tests.
mod tests {
    use super::*;

    const RECORD: &str = r#"==PROF== Connected to process 12
"ID","Process ID","Kernel Name","Grid Size","Metric Name","Metric Unit","Metric Value"
"0","12","softmax","(64, 2, 1)","gpu__time_duration.sum","ns","2,000"
"0","12","softmax","(64, 2, 1)","dram__bytes_read.sum","byte","4,096"
"0","12","softmax","(64, 2, 1)","launch__registers_per_thread","register/thread","32"
"1","12","nvjet","(8, 1, 1)","gpu__time_duration.sum","us","5"
"2","12","softmax","(64, 2, 1)","gpu__time_duration.sum","ns","4000"
==PROF== Disconnected
"#;

    #[test]
    fn launches_of_one_kernel_and_grid_belong_together() {
        let measured = Measured::parse(RECORD).unwrap();
        let softmax = measured.kernels[&("softmax".to_owned(), 128)];
        assert_eq!(softmax.launches, 2);
        assert!((softmax.mean().seconds - 3e-6).abs() < 1e-18);
        assert_eq!(softmax.read, 4096.0);
        assert!((measured.kernels[&("nvjet".to_owned(), 8)].seconds - 5e-6).abs() < 1e-18);
    }

    #[test]
    fn a_damaged_record_is_an_error_that_names_the_place() {
        let wrong = |from: &str, to: &str| Measured::parse(&RECORD.replace(from, to)).unwrap_err();
        let value = r#""us","5""#;
        assert_eq!(wrong("Grid Size", "Grid"), "it has no column `Grid Size`");
        assert_eq!(wrong("(8, 1, 1)", "8 blocks"), "`8 blocks` is no size of a grid");
        for (unit, number) in [("us", "n/a"), ("%", "5"), ("us", "-5")] {
            let message = format!("`{number} {unit}` is no gpu__time_duration.sum");
            assert_eq!(wrong(value, &format!(r#""{unit}","{number}""#)), message);
        }
        let header: Vec<&str> = RECORD.lines().take(2).collect();
        assert_eq!(Measured::parse(&header.join("\n")).unwrap_err(), "it has no launch");
        let untimed = wrong("gpu__time_duration.sum", "sm__inst_executed.sum");
        assert_eq!(untimed, "a launch of `softmax` has no gpu__time_duration.sum");
    }
}
