//! Starts: what a fresh process takes from nothing to the end of its first training step, and how much memory it needs.
//!
//! A start is a process of its own, for what was loaded, compiled or allocated before is what it is about. A contender is the command that answers requests
//! elsewhere (`… --serve NAME`), with `--start CASE --cache FOLDER` behind it. It draws its numbers as it likes, since drawing them as everybody does would
//! be measured too, builds and compiles the case, and runs one step. Then it says so, `{"stepped": LOSS}`, and the time from the process' beginning to that
//! line, taken from outside, is the figure. A second line has what only the process knows ([`Told`]). Or its only line is `{"absent": "why"}`.
//!
//! Who keeps what was compiled is started twice, the first time with an empty folder (*cold*), then with what the first left there (*warm*). Contenders
//! take turns, and the order of every other round is reversed.

mod own;

pub use own::start;

use crate::case::{Case, Kind};
use crate::record::{Absent, Failed};
use crate::statistics::Spread;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use wengert::{Diagnostic, Result};

/// What a process says when it has taken its first step.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum First {
    /// It has.
    Stepped {
        /// The step's loss.
        stepped: f64,
    },
    /// It cannot take part, and says why.
    Absent {
        /// Why.
        absent: String,
    },
}

/// What a process says of itself.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Told {
    /// Its name in records.
    pub contender: String,
    /// What it runs on.
    pub device: String,
    /// Libraries and their versions.
    pub libraries: BTreeMap<String, String>,
    /// True if it keeps in the folder what it has compiled.
    pub caches: bool,
    /// Seconds from the beginning of building the graph until the step can run; where compiling cannot be told from the first step, that step less the
    /// second. None of those who do not compile.
    pub compile_seconds: Option<f64>,
    /// Greatest resident memory of the process until the end of its third step.
    pub peak_bytes: u64,
    /// Parameters and moments.
    pub state_bytes: u64,
    /// The plan's arena, of those who plan.
    #[serde(default)]
    pub arena_bytes: Option<u64>,
    /// The least that any arena for the plan's steps needs.
    #[serde(default)]
    pub bound_bytes: Option<u64>,
}

/// Starts of a case by a contender.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The case's name.
    pub case: String,
    /// Who.
    pub contender: String,
    /// On what.
    pub device: String,
    /// What was compiled before is there (true), or not (false); None of those who keep nothing.
    pub warm: Option<bool>,
    /// Seconds from the process' beginning to the end of its first step.
    pub seconds: Spread,
    /// Seconds of compiling, of those who do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compile_seconds: Option<Spread>,
    /// The greatest [peak](Told::peak_bytes) of all rounds.
    pub peak_bytes: u64,
    /// Parameters and moments.
    pub state_bytes: u64,
    /// The plan's arena, of those who plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arena_bytes: Option<u64>,
    /// The least that any arena for the plan's steps needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_bytes: Option<u64>,
}

/// A contender's command, and how it is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Starter {
    /// The program.
    pub program: String,
    /// What stands behind it, before `--start`.
    pub arguments: Vec<String>,
}

/// What was found.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Found {
    /// Starts that were measured.
    pub starts: Vec<Start>,
    /// Those that failed.
    pub failed: Vec<Failed>,
    /// Contenders that cannot take part.
    pub absent: Vec<Absent>,
    /// Libraries of those who can.
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
    matches!(case.kind, Kind::Transformer { .. })
}

/// The loss before anything is learnt is nearly the logarithm of the number of tokens.
fn judge(case: &Case, loss: f64) -> Result<()> {
    let Kind::Transformer { network } = &case.kind else {
        return Err(Diagnostic::new(format!("`{}` has no start", case.id)));
    };
    let expected = (network.vocabulary as f64).ln();
    // NaN is near nothing.
    if (loss - expected).abs() <= 1.0 {
        return Ok(());
    }
    Err(Diagnostic::new(format!(
        "the result is wrong: the first loss is {loss}, and ln {} is {expected:.3}",
        network.vocabulary
    )))
}

/// Starts a process and hears what it says: the seconds to its first step.
///
/// Errors: it does not start, fails, or says something else. `Ok(Err(why))` if it cannot take part.
fn begin(starter: &Starter, case: &Case, cache: &Path) -> Result<std::result::Result<(f64, Told), String>> {
    let failed = |what: &str| Diagnostic::new(format!("the start of `{}` {what}", starter.program));
    let mut command = Command::new(&starter.program);
    command.args(&starter.arguments).args(["--start", &case.id, "--cache"]).arg(cache);
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| failed(&format!("is not possible: {e}")))?;
    let mut lines = BufReader::new(child.stdout.take().expect("the output was asked to be a pipe")).lines();
    let mut line = || lines.next().and_then(std::result::Result::ok);
    let first = line();
    let seconds = start.elapsed().as_secs_f64();
    let second = line();
    // It has said all it has to say.
    let _ = child.wait();
    let first = first.ok_or_else(|| failed("ended without a word"))?;
    match serde_json::from_str(&first) {
        Ok(First::Absent { absent }) => Ok(Err(absent)),
        Ok(First::Stepped { stepped }) => {
            judge(case, stepped)?;
            let second = second.ok_or_else(|| failed("ended behind the first step"))?;
            let told = serde_json::from_str(&second)
                .map_err(|e| failed(&format!("says `{second}`, which is no report: {e}")))?;
            Ok(Ok((seconds, told)))
        }
        Err(e) => match serde_json::from_str::<Wrong>(&first) {
            Ok(Wrong { error }) => Err(Diagnostic::new(error)),
            Err(_) => Err(failed(&format!("says `{first}`, which is no step: {e}"))),
        },
    }
}

/// What went wrong in a process.
#[derive(Deserialize)]
struct Wrong {
    error: String,
}

/// Starts each contender for each case, in as many rounds as `rounds` says of the case.
///
/// Error: no folder can be made for what they keep.
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
                progress(&format!("{}: round {} of {rounds}, {}", case.id, round + 1, starter.shown()));
                let folder = tempfile::tempdir()
                    .map_err(|e| Diagnostic::new(format!("cannot make a folder for caches: {e}")))?;
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

/// The cold start, and the warm one of those who keep something; what they say goes to `rows`.
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
    let same =
        |row: &&mut Row| row.case == case.id && row.told.contender == told.contender && row.warm == warm;
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
    /// Its name where it has not said one.
    pub fn shown(&self) -> String {
        // What tells contenders of one program apart stands at the end.
        let name = self.arguments.windows(2).find(|pair| pair[0] == "--serve").map(|pair| pair[1].clone());
        name.unwrap_or_else(|| {
            if self.arguments.iter().any(|a| a == "serve") { "wengert".into() } else { self.program.clone() }
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
            r#"{{"contender": "script", "device": "cpu", "libraries": {{"sh": "1"}}, "caches": {caches},
                "compile_seconds": 0.5, "peak_bytes": 100, "state_bytes": 60}}"#
        )
        .replace('\n', " ")
    }

    #[test]
    fn who_keeps_something_is_started_twice() {
        let case = case();
        // Warm if the first left a file behind; `$4` is the folder.
        let script = |caches: bool| {
            let told = told(caches);
            shell(&format!(
                "echo '{{\"stepped\": 2.4}}'; if [ -e $3/kept ]; then echo '{}'; else echo '{told}'; fi; touch $3/kept",
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
    fn what_goes_wrong_is_told() {
        let case = case();
        let why = |script: &str| {
            let found = measure(&[shell(script)], &[(&case, 1)], &mut |_| {}).unwrap();
            assert!(found.starts.is_empty());
            found.failed[0].why.clone()
        };
        assert!(why("true").contains("ended without a word"));
        assert!(why("echo noise").contains("`noise`, which is no step"));
        assert!(why(r#"echo '{"error": "out of memory"}'"#).contains("out of memory"));
        assert!(why(r#"echo '{"stepped": 9.0}'"#).contains("the first loss is 9"));
        assert!(why(r#"echo '{"stepped": 2.4}'"#).contains("ended behind the first step"));
        // Who is absent is not asked again.
        let absent = shell(r#"echo '{"absent": "not installed"}'"#);
        let found = measure(&[absent], &[(&case, 3)], &mut |_| {}).unwrap();
        assert_eq!((found.absent.len(), found.absent[0].why.as_str()), (1, "not installed"));
    }
}
