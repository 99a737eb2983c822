//! Memory figures of other compilers.

use super::Footprint;
use crate::case::Case;
use crate::starts::Starter;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use wengert::{Diagnostic, Result};

/// The figures of a peer's compiler for a step.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Said {
    /// The peer's name in records.
    pub contender: String,
    /// The device that the step was compiled for.
    pub device: String,
    /// Libraries and their versions.
    pub libraries: BTreeMap<String, String>,
    /// Number of learnt parameters.
    pub parameters: u64,
    /// Donated memory: parameters, the optimiser's state, running statistics.
    pub state_bytes: u64,
    /// Memory of each variant of the step, by the variant's name.
    pub ways: BTreeMap<String, Way>,
}

/// Memory of one variant.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// Temporary memory.
    pub temporary_bytes: u64,
    /// Results that are not written over donated memory.
    pub result_bytes: u64,
    /// Seconds from the beginning of tracing until the step is compiled.
    pub compile_seconds: f64,
}

/// The answer of a process.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Said(Said),
    Absent { absent: String },
    Wrong { error: String },
}

/// Asks a peer for a step's footprints and its libraries; `Ok(Err(why))` if it cannot take part.
///
/// Errors: the process does not start, fails, or prints anything but an answer; its network differs
/// from the case's.
#[allow(clippy::type_complexity)] // As for all contenders that may be absent.
pub fn ask(
    starter: &Starter,
    case: &Case,
) -> Result<std::result::Result<(Vec<Footprint>, BTreeMap<String, String>), String>> {
    let failed =
        |what: &str| Diagnostic::new(format!("the process of `{}` {what}", starter.program));
    let mut command = Command::new(&starter.program);
    command.args(&starter.arguments).args(["--memory", &case.id]);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(|e| failed(&format!("does not start: {e}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.trim_end();
    if line.is_empty() {
        return Err(failed("ended without output"));
    }
    let said = match serde_json::from_str(line) {
        Ok(Answer::Said(said)) => said,
        Ok(Answer::Absent { absent }) => return Ok(Err(absent)),
        Ok(Answer::Wrong { error }) => return Err(Diagnostic::new(error)),
        Err(e) => return Err(failed(&format!("printed `{line}`, which is not an answer: {e}"))),
    };
    let Said { contender, device, libraries, parameters, state_bytes, ways } = said;
    if parameters != case.work.elements {
        let wanted = case.work.elements;
        return Err(failed(&format!(
            "compiled a network of {parameters} parameters, not {wanted}"
        )));
    }
    let footprint = |(way, needs): (String, Way)| Footprint {
        case: case.id.clone(),
        contender: contender.clone(),
        device: device.clone(),
        way,
        parameters,
        state_bytes,
        arena_bytes: needs.temporary_bytes,
        result_bytes: needs.result_bytes,
        bound_bytes: None,
        naive_bytes: None,
        compile_seconds: needs.compile_seconds,
        planning: None,
    };
    Ok(Ok((ways.into_iter().map(footprint).collect(), libraries)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::catalogue_of_memory;

    fn shell(script: &str) -> Starter {
        Starter { program: "sh".into(), arguments: vec!["-c".into(), script.into()] }
    }

    #[test]
    fn every_way_has_a_footprint() {
        let case = catalogue_of_memory(true).remove(0);
        let said = |parameters: u64| {
            let way = |bytes| {
                format!(
                    r#"{{"temporary_bytes": {bytes}, "result_bytes": 4, "compile_seconds": 0.5}}"#
                )
            };
            format!(
                "{{\"contender\": \"script\", \"device\": \"cpu\", \
                 \"libraries\": {{\"sh\": \"1\"}}, \"parameters\": {parameters},
                    \"state_bytes\": 60, \"ways\": {{\"one\": {}, \"other\": {}}}}}",
                way(100),
                way(90)
            )
            .replace('\n', " ")
        };
        // `$1` is the case after `--memory`, which is the script's name.
        let script = format!("[ \"$1\" = '{}' ] && echo '{}'", case.id, said(case.work.elements));
        let (footprints, libraries) = ask(&shell(&script), &case).unwrap().unwrap();
        let found: Vec<_> = footprints.iter().map(|f| (f.way.as_str(), f.bytes())).collect();
        assert_eq!((found, libraries["sh"].as_str()), (vec![("one", 104), ("other", 94)], "1"));
        let other = ask(&shell(&format!("echo '{}'", said(7))), &case).unwrap_err();
        assert!(other.message.contains("a network of 7 parameters"), "{other}");
    }

    #[test]
    fn errors_are_reported() {
        let case = catalogue_of_memory(true).remove(0);
        let why = |script: &str| ask(&shell(script), &case).unwrap_err().message;
        assert!(why("true").contains("ended without output"));
        assert!(why("echo noise").contains("`noise`, which is not an answer"));
        assert!(why(r#"echo '{"error": "out of memory"}'"#).contains("out of memory"));
        let absent = ask(&shell(r#"echo '{"absent": "not installed"}'"#), &case).unwrap();
        assert_eq!(absent.unwrap_err(), "not installed");
    }
}
