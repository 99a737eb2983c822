//! The curves of a run: the numbers of its log, by name.
//!
//! | name | in the log |
//! |---|---|
//! | `loss`, `grad_norm`, `learning_rate`, `loss_scale`, `examples_per_second` | the field of a step |
//! | `metrics.NAME` | a metric of a step's batch |
//! | `evaluation.NAME` | a metric of an evaluation |
//! | `evaluation.SET.NAME` | the same, of an evaluation set with a name |
//!
//! Matrices of an evaluation are no curves.

use super::log::FILE;
use super::{WEIGHTS, checkpoint};
use crate::atomic::cannot;
use crate::data::safetensors::SafetensorsFile;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use wengert_core::graph::{Function, InputRole};
use wengert_core::{Diagnostic, Location, Result, diagnostic};

/// The fields of a step that are curves.
const FIELDS: [&str; 5] =
    ["loss", "grad_norm", "learning_rate", "loss_scale", "examples_per_second"];

/// A run, and its curves by name.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Curves {
    /// The run's folder, as it was given.
    pub folder: PathBuf,
    /// Number of steps in the log.
    pub steps: u64,
    /// The curves.
    pub curves: BTreeMap<String, Curve>,
}

/// A number over the steps of a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Curve {
    /// Steps, ascending.
    pub steps: Vec<u64>,
    /// The number at each; none if it was not finite.
    pub values: Vec<Option<f64>>,
}

impl Curves {
    /// Reads the log of a run's folder. An incomplete last line, which a trainer may be writing, is
    /// left out.
    ///
    /// Errors: there is no log, or it has an invalid line.
    pub fn read(folder: &Path) -> Result<Curves> {
        let path = folder.join(FILE);
        let file = File::open(&path).map_err(|error| {
            cannot("read", &path, &error)
                .help("give the folder that `graphrun train --out` wrote: it holds a `log.jsonl`")
        })?;
        let mut found = Curves { folder: folder.to_owned(), steps: 0, curves: BTreeMap::new() };
        let mut reader = BufReader::new(file);
        let mut bytes = Vec::new();
        for line in 1.. {
            bytes.clear();
            let read = reader.read_until(b'\n', &mut bytes);
            let read = read.map_err(|error| cannot("read", &path, &error))?;
            if read == 0 || bytes.last() != Some(&b'\n') {
                break;
            }
            found.line(&bytes).map_err(|error| {
                let place = Location::source(path.display().to_string(), line, 1);
                error.at(place, "in this line")
            })?;
        }
        Ok(found)
    }

    fn line(&mut self, bytes: &[u8]) -> Result<()> {
        let damaged = |what: String| {
            diagnostic!("the log is damaged: {what}")
                .help("remove the line, or give the folder of another run")
        };
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|error| damaged(format!("the line is no JSON object ({error})")))?;
        let fields =
            value.as_object().ok_or_else(|| damaged("the line is no JSON object".into()))?;
        let step = fields.get("step").and_then(Value::as_u64);
        let step = step.ok_or_else(|| damaged("the line has no `step`".into()))?;
        if let Some(metrics) = fields.get("evaluation") {
            let prefix = match fields.get("set") {
                None => "evaluation".to_owned(),
                Some(Value::String(set)) => format!("evaluation.{set}"),
                Some(_) => return Err(damaged("`set` is no name".into())),
            };
            return self.metrics(&prefix, metrics, step).map_err(damaged);
        }
        if !fields.contains_key("loss") {
            return Err(damaged("the line has neither a `loss` nor an `evaluation`".into()));
        }
        self.steps = self.steps.max(step);
        for name in FIELDS {
            if let Some(value) = fields.get(name) {
                self.add(name, value, step).map_err(damaged)?;
            }
        }
        match fields.get("metrics") {
            Some(metrics) => self.metrics("metrics", metrics, step).map_err(damaged),
            None => Ok(()),
        }
    }

    fn metrics(&mut self, prefix: &str, metrics: &Value, step: u64) -> Result<(), String> {
        let none = || format!("`{prefix}` is no object");
        let metrics: &Map<String, Value> = metrics.as_object().ok_or_else(none)?;
        let is_matrix = |value: &Value| prefix.starts_with("evaluation") && value.is_array();
        let mut numbers = metrics.iter().filter(|(_, value)| !is_matrix(value));
        numbers.try_for_each(|(name, value)| self.add(&format!("{prefix}.{name}"), value, step))
    }

    fn add(&mut self, name: &str, value: &Value, step: u64) -> Result<(), String> {
        // A number that is not finite is a text.
        let number = match value {
            Value::Number(number) => number.as_f64().filter(|n| n.is_finite()),
            Value::String(text) if text.parse::<f64>().is_ok() => None,
            _ => return Err(format!("`{name}` is no number")),
        };
        let curve = self.curves.entry(name.to_owned()).or_default();
        if curve.steps.last().is_some_and(|last| *last >= step) {
            return Err(format!("step {step} of `{name}` is not after the step before it"));
        }
        curve.steps.push(step);
        curve.values.push(number);
        Ok(())
    }
}

impl Curve {
    /// At most about `most` points: of each stretch of the curve the first, the least and the
    /// greatest.
    #[must_use]
    pub fn thinned(self, most: usize) -> Curve {
        if self.steps.len() <= most {
            return self;
        }
        let stretch = self.steps.len().div_ceil((most / 3).max(1));
        let mut kept = Curve::default();
        for start in (0..self.steps.len()).step_by(stretch) {
            let all = start..(start + stretch).min(self.steps.len());
            let value = |n: &usize| self.values[*n].unwrap_or(f64::NAN);
            let finite = || all.clone().filter(|n| self.values[*n].is_some());
            let least = finite().min_by(|a, b| value(a).total_cmp(&value(b)));
            let greatest = finite().max_by(|a, b| value(a).total_cmp(&value(b)));
            let mut chosen: Vec<usize> =
                [Some(start), least, greatest].into_iter().flatten().collect();
            chosen.sort_unstable();
            chosen.dedup();
            for n in chosen {
                kept.steps.push(self.steps[n]);
                kept.values.push(self.values[n]);
            }
        }
        kept
    }
}

/// Checks that a run's folder is of the program of a function: its newest checkpoint, or its
/// weights, hold the function's variables. A folder without either is of any program.
///
/// Errors: a variable is missing or has other extents; the file cannot be read.
pub fn check_program(folder: &Path, function: &Function) -> Result<()> {
    let newest = checkpoint::list(folder)?.into_iter().next().map(|(_, path)| path);
    let weights = Some(folder.join(WEIGHTS)).filter(|path| path.is_file());
    let Some(path) = newest.or(weights) else { return Ok(()) };
    let file = SafetensorsFile::open(&path)?;
    let names: Vec<&str> = file.names().collect();
    let other = |what: String| -> Result<()> {
        let text = format!("the run in `{}` is of another program: {what}", folder.display());
        Err(Diagnostic::new(text).help("give the folder of a run of this program"))
    };
    let is_variable = |role| matches!(role, InputRole::Param | InputRole::State);
    for (n, input) in function.inputs.iter().enumerate().filter(|(_, i)| is_variable(i.role)) {
        let (name, ty) = (input.name.as_str(), function.input_type(n));
        let file_name = path.file_name().unwrap_or(path.as_os_str());
        let file_name = Path::new(file_name).display();
        if !names.contains(&name) {
            return other(format!("`{file_name}` has no variable `{name}`"));
        }
        let found = file.ty(name)?;
        if found.shape != ty.shape {
            return other(format!("variable `{name}` is {found} in `{file_name}`, and {ty} here"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(log: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder is made");
        std::fs::write(folder.path().join(FILE), log).expect("it is written");
        folder
    }

    #[test]
    fn a_log_gives_its_curves() {
        let folder = folder(
            "{\"step\":1,\"epoch\":0,\"loss\":2.5,\"metrics\":{\"correct\":4.0},\"seconds\":1.0}\n\
             {\"step\":2,\"epoch\":0,\"loss\":\"NaN\",\"metrics\":{\"correct\":5.0}}\n\
             {\"step\":2,\"epoch\":0,\"evaluation\":{\"accuracy\":0.5}}\n\
             {\"step\":2,\"epoch\":0,\"set\":\"test\",\"evaluation\":{\"accuracy\":0.25,\
             \"classes\":[[3,1],[2,4]]}}\n\
             {\"step\":3,\"epo",
        );
        let found = Curves::read(folder.path()).expect("it is a log");
        assert_eq!(found.steps, 2);
        let names: Vec<&String> = found.curves.keys().collect();
        let expected =
            ["evaluation.accuracy", "evaluation.test.accuracy", "loss", "metrics.correct"];
        assert_eq!(names, expected);
        assert_eq!(found.curves["evaluation.test.accuracy"].values, [Some(0.25)]);
        let loss = &found.curves["loss"];
        assert_eq!((&loss.steps[..], &loss.values[..]), (&[1, 2][..], &[Some(2.5), None][..]));
        assert_eq!(found.curves["metrics.correct"].values, [Some(4.0), Some(5.0)]);
    }

    #[test]
    fn a_damaged_line_is_named() {
        let good = "{\"step\":1,\"epoch\":0,\"loss\":2.5}\n";
        for (bad, says) in [
            ("{\"step\":2,\"loss\":\n", "no JSON object"),
            ("[1]\n", "no JSON object"),
            ("{\"loss\":2.0}\n", "no `step`"),
            ("{\"step\":2}\n", "neither a `loss` nor"),
            ("{\"step\":2,\"loss\":[]}\n", "`loss` is no number"),
            ("{\"step\":1,\"loss\":2.0}\n", "not after the step before"),
            ("\u{fffd}\n", "no JSON object"),
        ] {
            let folder = folder(&format!("{good}{bad}{good}"));
            let error = Curves::read(folder.path()).expect_err("the line is wrong").to_string();
            assert!(error.contains(says) && error.contains("log.jsonl:2:1"), "{error}");
        }
    }

    #[test]
    fn a_thinned_curve_keeps_its_extremes() {
        let steps: Vec<u64> = (1..=10_000).collect();
        let values = steps.iter().map(|s| Some(if *s == 5003 { 9.0 } else { 1.0 / *s as f64 }));
        let curve = Curve { values: values.collect(), steps };
        let thinned = curve.clone().thinned(300);
        assert!(thinned.steps.len() <= 303 && thinned.steps.is_sorted());
        assert!(thinned.steps.contains(&5003) && thinned.values.contains(&Some(9.0)));
        assert_eq!(thinned.values.iter().flatten().copied().reduce(f64::min), Some(1e-4));
        assert_eq!(curve.clone().thinned(10_000), curve);
    }
}
