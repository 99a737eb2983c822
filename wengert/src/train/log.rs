//! The log of a run: one JSON object a line, the same bytes for the same run.
//!
//! ```json
//! {"step":1,"epoch":0,"loss":2.3025851}
//! {"step":23,"epoch":0,"evaluation":{"accuracy":0.41}}
//! ```
//!
//! It has no time stamps, so that the log of a run that was killed and resumed equals that of an
//! uninterrupted one. Before a checkpoint is written, the log is flushed to the disk. Resuming
//! truncates it to the checkpoint, so a log is never behind its checkpoint. Resuming also checks
//! that it has every step.

use super::lock::{is_at, regular};
use crate::atomic::{self, cannot};
use serde_json::{Map, Number, Value};
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

    /// Adds the loss of a step.
    pub fn step(&mut self, step: u64, epoch: u64, loss: f64) -> Result<()> {
        self.line(step, epoch, "loss", number(loss))
    }

    /// Adds an evaluation.
    pub fn evaluation(&mut self, step: u64, epoch: u64, metrics: &[(String, f64)]) -> Result<()> {
        let metrics: Map<String, Value> =
            metrics.iter().map(|(name, value)| (name.clone(), number(*value))).collect();
        self.line(step, epoch, "evaluation", Value::Object(metrics))
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

    fn line(&mut self, step: u64, epoch: u64, key: &str, value: Value) -> Result<()> {
        writeln!(self.file, "{{\"step\":{step},\"epoch\":{epoch},\"{key}\":{value}}}")
            .map_err(|error| cannot("write", &self.path, &error))
    }
}

/// The shortest digits that read back exactly. JSON has no NaN and no infinity, so they are
/// strings.
fn number(value: f64) -> Value {
    // A loss that is an f32 is written with the digits of the f32.
    let short = value as f32;
    let text = if f64::from(short) == value { format!("{short:?}") } else { format!("{value:?}") };
    match Number::from_f64(value) {
        Some(_) => {
            serde_json::from_str(&text).expect("the digits of a finite float are a JSON number")
        }
        None => Value::String(text),
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
    use super::*;
    use std::fs;

    #[test]
    fn a_resumed_log_equals_an_uninterrupted_one() {
        let folder = tempfile::tempdir().unwrap();
        let write = |from: u64, to: u64| {
            let mut log = Log::open(folder.path(), from).unwrap();
            for step in from + 1..=to {
                log.step(step, step / 4, f64::from(1.0f32 / step as f32)).unwrap();
                if step % 4 == 0 {
                    log.evaluation(step, step / 4, &[("accuracy".into(), 0.1 * step as f64)])
                        .unwrap();
                }
            }
            log.flush().unwrap();
            fs::read_to_string(folder.path().join(FILE)).unwrap()
        };
        let whole = write(0, 10);
        assert!(whole.starts_with(
            "{\"step\":1,\"epoch\":0,\"loss\":1.0}\n{\"step\":2,\"epoch\":0,\"loss\":0.5}\n"
        ));
        assert!(whole.contains("{\"step\":3,\"epoch\":0,\"loss\":0.33333334}\n"), "{whole}");
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
        let gap = whole.replacen("{\"step\":3,\"epoch\":0,\"loss\":0.33333334}\n", "", 1);
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
        log.step(1, 0, 1.0).unwrap();
        log.flush().unwrap();
        fs::remove_file(&path).unwrap();
        assert!(log.flush().unwrap_err().message.contains("was deleted or replaced"));
    }

    #[test]
    fn numbers_read_back_and_nan_is_a_text() {
        for value in [0.1, 1e300, -0.0, 5.0] {
            assert_eq!(number(value).as_f64().unwrap().to_bits(), value.to_bits(), "{value}");
        }
        assert_eq!(number(f64::from(0.1f32)).as_f64().unwrap() as f32, 0.1f32);
        assert_eq!(number(f64::NAN), Value::String("NaN".into()));
    }
}
