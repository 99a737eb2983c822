//! Starts: time and memory of a fresh process up to the end of its first training step.
//!
//! Each start is a separate process, because it measures loading, compiling and allocating. The
//! command of a contender is that of [`crate::process`] (`… --serve NAME`), followed by
//! `--start CASE --cache FOLDER`. A contender may use any random generator, because the time of the
//! common generator would be part of the figure. It builds and compiles the case, runs one step,
//! and prints `{"stepped": LOSS}`. The figure is the time from the start of the process to that
//! line, measured from outside. A second line has the figures that cannot be measured from outside
//! ([`Told`]). A contender that cannot take part prints only `{"absent": "why"}`.
//!
//! A contender that caches compiled code is started twice: first with an empty folder (*cold*),
//! then with the folder of the first start (*warm*). Contenders take turns, and the order of every
//! other round is reversed.

mod own;

pub use own::start;

use crate::case::{Case, Float, Kind};
use crate::record::{Absent, Failed};
use crate::statistics::Spread;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use wengert::{Diagnostic, Result};

/// The first line that a process prints.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum First {
    /// The process has done its first step.
    Stepped {
        /// The step's loss.
        stepped: f64,
    },
    /// The contender cannot take part.
    Absent {
        /// The reason.
        absent: String,
    },
}

/// The second line that a process prints.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Told {
    /// The contender's name in records.
    pub contender: String,
    /// The device of the step.
    pub device: String,
    /// Libraries and their versions.
    pub libraries: BTreeMap<String, String>,
    /// True if the contender keeps compiled code in the folder.
    pub caches: bool,
    /// Seconds from the beginning of building the graph until the step can run. If the first step
    /// compiles, the time of the first step minus that of the second. None for contenders that do
    /// not compile.
    pub compile_seconds: Option<f64>,
    /// Greatest resident memory of the process until the end of its third step.
    pub peak_bytes: u64,
    /// Parameters and moments.
    pub state_bytes: u64,
    /// Bytes of the plan's arena, for contenders with a plan.
    #[serde(default)]
    pub arena_bytes: Option<u64>,
    /// Lower bound of any arena for the plan's order of steps.
    #[serde(default)]
    pub bound_bytes: Option<u64>,
}

/// Starts of a case by a contender.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The case's name.
    pub case: String,
    /// The contender.
    pub contender: String,
    /// The device.
    pub device: String,
    /// Whether the start used compiled code of an earlier one; None for contenders without a
    /// cache.
    pub warm: Option<bool>,
    /// Seconds from the process' beginning to the end of its first step.
    pub seconds: Spread,
    /// Seconds of compiling, for contenders that compile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compile_seconds: Option<Spread>,
    /// The greatest [peak](Told::peak_bytes) of all rounds.
    pub peak_bytes: u64,
    /// Parameters and moments.
    pub state_bytes: u64,
    /// Bytes of the plan's arena, for contenders with a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arena_bytes: Option<u64>,
    /// Lower bound of any arena for the plan's order of steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_bytes: Option<u64>,
}

/// A contender's command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Starter {
    /// The program.
    pub program: String,
    /// Its arguments before `--start`.
    pub arguments: Vec<String>,
}

/// The results of [`measure`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Found {
    /// Successful starts.
    pub starts: Vec<Start>,
    /// Failed starts.
    pub failed: Vec<Failed>,
    /// Contenders that cannot take part.
    pub absent: Vec<Absent>,
    /// Libraries of the contenders that take part.
    pub libraries: BTreeMap<String, String>,
}

/// The samples of one row.
struct Row {
    case: String,
    told: Told,
    warm: Option<bool>,
    seconds: Vec<f64>,
    compile_seconds: Vec<f64>,
}

/// True for cases that can be started: the training steps of transformers.
pub fn can_start(case: &Case) -> bool {
    matches!(case.kind, Kind::Transformer { .. }) && case.dtype == Float::F32
}

/// Checks a loss: before training it is close to the logarithm of the vocabulary's size.
fn judge(case: &Case, loss: f64) -> Result<()> {
    let Kind::Transformer { network } = &case.kind else {
        return Err(Diagnostic::new(format!("`{}` has no start", case.id)));
    };
    let expected = (network.vocabulary as f64).ln();
    // A NaN fails this comparison.
    if (loss - expected).abs() <= 1.0 {
        return Ok(());
    }
    Err(Diagnostic::new(format!(
        "the result is wrong: the first loss is {loss}, and ln {} is {expected:.3}",
        network.vocabulary
    )))
}

/// Starts a process. Returns the seconds to its first step, and its second line. `Ok(Err(why))` if
/// the contender cannot take part.
///
/// Errors: the process does not start, fails, or prints anything else; the loss is wrong.
fn begin(
    starter: &Starter,
    case: &Case,
    cache: &Path,
) -> Result<std::result::Result<(f64, Told), String>> {
    let failed = |what: &str| Diagnostic::new(format!("the start of `{}` {what}", starter.program));
    let mut command = Command::new(&starter.program);
    command.args(&starter.arguments).args(["--start", &case.id, "--cache"]).arg(cache);
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| failed(&format!("is not possible: {e}")))?;
    let mut lines = BufReader::new(child.stdout.take().expect("the output is a pipe")).lines();
    let mut line = || lines.next().and_then(std::result::Result::ok);
    let first = line();
    let seconds = start.elapsed().as_secs_f64();
    let second = line();
    // The process has printed all its lines.
    let _ = child.wait();
    let first = first.ok_or_else(|| failed("ended without output"))?;
    match serde_json::from_str(&first) {
        Ok(First::Absent { absent }) => Ok(Err(absent)),
        Ok(First::Stepped { stepped }) => {
            judge(case, stepped)?;
            let second = second.ok_or_else(|| failed("printed nothing after its first step"))?;
            let told = serde_json::from_str(&second)
                .map_err(|e| failed(&format!("printed `{second}`, which is not a report: {e}")))?;
            Ok(Ok((seconds, told)))
        }
        Err(e) => match serde_json::from_str::<Wrong>(&first) {
            Ok(Wrong { error }) => Err(Diagnostic::new(error)),
            Err(_) => Err(failed(&format!("printed `{first}`, which is not a step: {e}"))),
        },
    }
}

/// An error that a process prints.
#[derive(Deserialize)]
struct Wrong {
    error: String,
}

/// Starts each contender for each case, with the number of rounds of each case.
///
/// Error: no folder can be made for the caches.
pub fn measure(
    starters: &[Starter],
    cases: &[(&Case, usize)],
    progress: &mut dyn FnMut(&str),
) -> Result<Found> {
    let (mut found, mut rows) = (Found::default(), Vec::new());
    let mut out: Vec<&Starter> = Vec::new();
    for (case, rounds) in cases {
        for round in 0..*rounds {
            let mut order: Vec<&Starter> = starters.iter().filter(|s| !out.contains(s)).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for starter in order {
                progress(&format!(
                    "{}: round {} of {rounds}, {}",
                    case.id,
                    round + 1,
                    starter.shown()
                ));
                let folder = tempfile::tempdir().map_err(|e| {
                    Diagnostic::new(format!("cannot make a folder for caches: {e}"))
                })?;
                match both(starter, case, folder.path(), &mut rows) {
                    Ok(Ok(libraries)) => found.libraries.extend(libraries),
                    Ok(Err(why)) => {
                        out.push(starter);
                        found.absent.push(Absent { contender: starter.shown(), why });
                    }
                    Err(error) => {
                        let (case, contender) = (case.id.clone(), starter.shown());
                        found.failed.push(Failed { case, contender, why: error.to_string() });
                    }
                }
            }
        }
    }
    found.starts = rows.into_iter().filter_map(Row::finish).collect();
    Ok(found)
}

/// Measures the cold start, and for contenders with a cache the warm start. Adds their results to
/// `rows`.
fn both(
    starter: &Starter,
    case: &Case,
    cache: &Path,
    rows: &mut Vec<Row>,
) -> Result<std::result::Result<BTreeMap<String, String>, String>> {
    let (seconds, told) = match begin(starter, case, cache)? {
        Ok(said) => said,
        Err(why) => return Ok(Err(why)),
    };
    let (libraries, caches) = (told.libraries.clone(), told.caches);
    add(rows, case, caches.then_some(false), seconds, told);
    if caches && let Ok((seconds, told)) = begin(starter, case, cache)? {
        add(rows, case, Some(true), seconds, told);
    }
    Ok(Ok(libraries))
}

fn add(rows: &mut Vec<Row>, case: &Case, warm: Option<bool>, seconds: f64, told: Told) {
    let same = |row: &&mut Row| {
        row.case == case.id && row.told.contender == told.contender && row.warm == warm
    };
    match rows.iter_mut().find(same) {
        Some(row) => {
            row.seconds.push(seconds);
            row.compile_seconds.extend(told.compile_seconds);
            row.told.peak_bytes = row.told.peak_bytes.max(told.peak_bytes);
        }
        None => rows.push(Row {
            case: case.id.clone(),
            warm,
            seconds: vec![seconds],
            compile_seconds: told.compile_seconds.into_iter().collect(),
            told,
        }),
    }
}

impl Starter {
    /// The contender's name according to its command, until the process has reported a name.
    pub fn shown(&self) -> String {
        // The last argument distinguishes contenders of one program.
        let name =
            self.arguments.windows(2).find(|pair| pair[0] == "--serve").map(|pair| pair[1].clone());
        name.unwrap_or_else(|| {
            if self.arguments.iter().any(|a| a == "serve") {
                "wengert".into()
            } else {
                self.program.clone()
            }
        })
    }
}

impl Row {
    fn finish(self) -> Option<Start> {
        let Row { case, told, warm, seconds, compile_seconds } = self;
        Some(Start {
            case,
            contender: told.contender,
            device: told.device,
            warm,
            seconds: Spread::of(&seconds)?,
            compile_seconds: Spread::of(&compile_seconds),
            peak_bytes: told.peak_bytes,
            state_bytes: told.state_bytes,
            arena_bytes: told.arena_bytes,
            bound_bytes: told.bound_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::catalogue_of_cpu;

    fn case() -> Case {
        catalogue_of_cpu(true).into_iter().find(can_start).unwrap()
    }

    fn shell(script: &str) -> Starter {
        Starter { program: "sh".into(), arguments: vec!["-c".into(), script.into()] }
    }

    fn told(caches: bool) -> String {
        format!(
            "{{\"contender\": \"script\", \"device\": \"cpu\", \"libraries\": {{\"sh\": \"1\"}}, \
             \"caches\": {caches},
                \"compile_seconds\": 0.5, \"peak_bytes\": 100, \"state_bytes\": 60}}"
        )
        .replace('\n', " ")
    }

    #[test]
    fn contenders_with_a_cache_are_started_twice() {
        let case = case();
        // A start is warm if an earlier one left a file in the folder, `$3`.
        let script = |caches: bool| {
            let told = told(caches);
            shell(&format!(
                "echo '{{\"stepped\": 2.4}}'; if [ -e $3/kept ]; then echo '{}'; else echo \
                 '{told}'; fi; touch $3/kept",
                told.replace("0.5", "0.25")
            ))
        };
        let found = measure(&[script(true)], &[(&case, 2)], &mut |_| {}).unwrap();
        assert_eq!((found.failed.len(), found.absent.len()), (0, 0), "{:?}", found.failed);
        let compiled = |start: &Start| start.compile_seconds.unwrap().median;
        let [cold, warm] = &found.starts[..] else { panic!("{:?}", found.starts) };
        assert_eq!((cold.warm, compiled(cold), cold.seconds.samples), (Some(false), 0.5, 2));
        assert_eq!((warm.warm, compiled(warm), warm.peak_bytes), (Some(true), 0.25, 100));
        assert_eq!(found.libraries["sh"], "1");
        let found = measure(&[script(false)], &[(&case, 1)], &mut |_| {}).unwrap();
        assert_eq!((found.starts.len(), found.starts[0].warm), (1, None));
    }

    #[test]
    fn errors_are_reported() {
        let case = case();
        let why = |script: &str| {
            let found = measure(&[shell(script)], &[(&case, 1)], &mut |_| {}).unwrap();
            assert!(found.starts.is_empty());
            found.failed[0].why.clone()
        };
        assert!(why("true").contains("ended without output"));
        assert!(why("echo noise").contains("`noise`, which is not a step"));
        assert!(why(r#"echo '{"error": "out of memory"}'"#).contains("out of memory"));
        assert!(why(r#"echo '{"stepped": 9.0}'"#).contains("the first loss is 9"));
        assert!(why(r#"echo '{"stepped": 2.4}'"#).contains("nothing after its first step"));
        // An absent contender is not started again.
        let absent = shell(r#"echo '{"absent": "not installed"}'"#);
        let found = measure(&[absent], &[(&case, 3)], &mut |_| {}).unwrap();
        assert_eq!((found.absent.len(), found.absent[0].why.as_str()), (1, "not installed"));
    }
}
