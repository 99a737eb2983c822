//! The log of a run: one JSON object a line.
//!
//! ```json
//! {"step":1,"epoch":0,"loss":2.3025851,"metrics":{"correct":4.0},"grad_norm":1.7,
//!  "learning_rate":0.001,"examples_per_second":25600.0,"seconds":0.00125,
//!  "waited_seconds":0.000012}
//! {"step":23,"epoch":0,"evaluation":{"accuracy":0.41}}
//! {"step":23,"epoch":0,"set":"test","evaluation":{"accuracy":0.4,"classes":[[3,1],[2,4]]}}
//! ```
//!
//! (The first line is broken here.) A line of a step has the fields of its
//! [`StepRecord`](super::event::StepRecord). `metrics`, `grad_norm`, `learning_rate` and
//! `loss_scale` are absent if the step function has no such outputs, and `skipped` unless it is
//! true. An evaluation has the name of its set, if it has one. Logs of earlier versions end
//! earlier, and are read, too. The last three fields are times. Without them, the log of a run that
//! was killed and resumed equals that of an uninterrupted one.
//!
//! Before a checkpoint is written, the log is flushed to the disk. Resuming
//! truncates it to the checkpoint, so a log is never behind its checkpoint. Resuming also checks
//! that it has every step.

use super::event::{Event, evaluation};
use super::lock::{is_at, regular};
use crate::atomic::{self, cannot};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use wengert_core::{Result, diagnostic};

/// Name of the file within a run's folder.
pub const FILE: &str = "log.jsonl";

/// A log being written.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Log {
    /// Starts the log of a folder anew, or resumes it after step `after`: later lines are
    /// removed.
    ///
    /// Errors: the log is not a regular file; it lacks a step up to `after`, or has an invalid
    /// line.
    pub fn open(folder: &Path, after: u64) -> Result<Log> {
        let path = folder.join(FILE);
        regular(&path)?;
        let kept = match after {
            0 => String::new(),
            _ => kept_lines(&path, after)?,
        };
        atomic::write_bytes(&path, kept.as_bytes())?;
        let file = OpenOptions::new()
            .append(true)
            .open(&path)
            .map_err(|error| cannot("write", &path, &error))?;
        Ok(Log { path, file: BufWriter::new(file) })
    }

    /// Adds the line of a step or of an evaluation; other events have no line.
    pub fn observe(&mut self, event: &Event<'_>) -> Result<()> {
        match event {
            Event::Step(record) => self.line(&record.fields()),
            Event::Evaluation { step, epoch, set, metrics, matrices } => {
                let mut fields = vec![("step", Value::from(*step)), ("epoch", Value::from(*epoch))];
                fields.extend(set.map(|set| ("set", Value::from(set))));
                fields.push(("evaluation", Value::Object(evaluation(metrics, matrices))));
                self.line(&fields)
            }
            _ => Ok(()),
        }
    }

    /// Flushes added lines to the disk.
    ///
    /// Error: the log was deleted or replaced.
    pub fn flush(&mut self) -> Result<()> {
        let written = self.file.flush().and_then(|()| self.file.get_ref().sync_data());
        written.map_err(|error| cannot("write", &self.path, &error))?;
        if is_at(self.file.get_ref(), &self.path) {
            return Ok(());
        }
        Err(diagnostic!("`{}` was deleted or replaced while a run wrote it", self.path.display())
            .help("begin the run anew in another folder: its log cannot be made again"))
    }

    fn line(&mut self, fields: &[(&'static str, Value)]) -> Result<()> {
        let fields: Vec<String> =
            fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        writeln!(self.file, "{{{}}}", fields.join(","))
            .map_err(|error| cannot("write", &self.path, &error))
    }
}

/// The lines up to step `after`. The first later step and all lines after it are dropped, as is
/// an incomplete last line.
fn kept_lines(path: &Path, after: u64) -> Result<String> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        cannot("read", path, &error)
            .help("the log belongs to the checkpoint; start the run anew without resuming")
    })?;
    let mut kept = 0;
    // Each step has one line with its loss.
    let mut steps = 0;
    for line in text.split_inclusive('\n') {
        let complete = line.ends_with('\n');
        let value = serde_json::from_str::<Value>(line).ok();
        let has_loss = value.as_ref().is_some_and(|v| v.get("loss").is_some());
        match value.and_then(|v| v.get("step")?.as_u64()) {
            Some(step) if step <= after && complete => {
                if has_loss && step != steps + 1 {
                    break;
                }
                steps += u64::from(has_loss);
                kept += line.len();
            }
            Some(_) => break,
            // A line after the checkpoint's last one may be torn; earlier lines must be whole.
            None if kept + line.len() == text.len() => break,
            None => {
                let line = 1 + text[..kept].matches('\n').count();
                return Err(diagnostic!(
                    "`{}`, line {line}: this is no line of a log",
                    path.display()
                ));
            }
        }
    }
    if steps != after {
        return Err(diagnostic!(
            "`{}` has no line for step {}, the checkpoint is of step {after}",
            path.display(),
            steps + 1
        )
        .help("the log belongs to the checkpoint; begin the run anew in another folder"));
    }
    Ok(text[..kept].to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::event::StepRecord;
    use super::*;
    use std::fs;
    use std::time::Duration;

    fn record(step: u64, epoch: u64, loss: f64) -> StepRecord {
        StepRecord {
            step,
            epoch,
            loss,
            metrics: vec![],
            grad_norm: None,
            learning_rate: None,
            loss_scale: None,
            skipped: false,
            examples: 3,
            time: Duration::from_millis(2),
            waited: Duration::ZERO,
        }
    }

    #[test]
    fn a_line_has_the_fields_of_its_record() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::open(folder.path(), 0).unwrap();
        let full = StepRecord {
            metrics: vec![("correct".into(), 4.0)],
            grad_norm: Some(f64::from(1.7f32)),
            learning_rate: Some(f64::INFINITY),
            ..record(1, 0, 0.5)
        };
        log.observe(&Event::Step(&full)).unwrap();
        log.flush().unwrap();
        assert_eq!(
            fs::read_to_string(folder.path().join(FILE)).unwrap(),
            "{\"step\":1,\"epoch\":0,\"loss\":0.5,\"metrics\":{\"correct\":4.0},\"grad_norm\":1.7,\
             \"learning_rate\":\"inf\",\"examples_per_second\":1500.0,\"seconds\":0.002,\
             \"waited_seconds\":0.0}\n"
        );
        // A log of an earlier version is continued.
        fs::write(folder.path().join(FILE), "{\"step\":1,\"epoch\":0,\"loss\":0.5}\n").unwrap();
        let mut log = Log::open(folder.path(), 1).unwrap();
        log.observe(&Event::Step(&record(2, 0, 0.25))).unwrap();
        log.flush().unwrap();
        Log::open(folder.path(), 2).unwrap();
    }

    #[test]
    fn a_resumed_log_equals_an_uninterrupted_one() {
        let folder = tempfile::tempdir().unwrap();
        let write = |from: u64, to: u64| {
            let mut log = Log::open(folder.path(), from).unwrap();
            for step in from + 1..=to {
                let loss = f64::from(1.0f32 / step as f32);
                log.observe(&Event::Step(&record(step, step / 4, loss))).unwrap();
                if step % 4 == 0 {
                    let metrics = &[("accuracy".into(), 0.1 * step as f64)];
                    let (epoch, set, matrices) = (step / 4, None, &[]);
                    let event = Event::Evaluation { step, epoch, set, metrics, matrices };
                    log.observe(&event).unwrap();
                }
            }
            log.flush().unwrap();
            fs::read_to_string(folder.path().join(FILE)).unwrap()
        };
        let whole = write(0, 10);
        assert!(whole.starts_with(
            "{\"step\":1,\"epoch\":0,\"loss\":1.0,\"examples_per_second\":1500.0,\
             \"seconds\":0.002,\"waited_seconds\":0.0}\n"
        ));
        let third = whole.split_inclusive('\n').nth(2).unwrap().to_owned();
        assert!(third.starts_with("{\"step\":3,\"epoch\":0,\"loss\":0.33333334,"), "{whole}");
        assert!(
            whole.contains("{\"step\":4,\"epoch\":1,\"evaluation\":{\"accuracy\":0.4}}\n"),
            "{whole}"
        );
        for (cut, after) in
            [(whole.len(), 6), (whole.len() - 5, 6), (whole.len() - 20, 8), (whole.len(), 10)]
        {
            fs::write(folder.path().join(FILE), &whole[..cut]).unwrap();
            assert_eq!(write(after, 10), whole, "cut at {cut}, resumed after {after}");
        }
        let gap = whole.replacen(&third, "", 1);
        fs::write(folder.path().join(FILE), gap).unwrap();
        assert!(
            Log::open(folder.path(), 8).unwrap_err().message.contains("has no line for step 3")
        );
        fs::write(folder.path().join(FILE), &whole).unwrap();
        assert!(
            Log::open(folder.path(), 12).unwrap_err().message.contains("has no line for step 11")
        );
        fs::write(folder.path().join(FILE), "not a log\nat all\n").unwrap();
        assert!(Log::open(folder.path(), 3).unwrap_err().message.contains("line 1"));
    }

    #[cfg(unix)]
    #[test]
    fn a_log_is_a_regular_file_and_stays_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        assert!(Log::open(folder.path(), 0).unwrap_err().message.contains("no regular file"));
        fs::remove_file(&path).unwrap();
        let mut log = Log::open(folder.path(), 0).unwrap();
        log.observe(&Event::Step(&record(1, 0, 1.0))).unwrap();
        log.flush().unwrap();
        fs::remove_file(&path).unwrap();
        assert!(log.flush().unwrap_err().message.contains("was deleted or replaced"));
    }
}
