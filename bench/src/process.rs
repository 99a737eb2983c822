//! A contender in another process, which answers lines of JSON. So another library, or this library
//! in another environment, can be timed in turns with this one instead of minutes later.
//!
//! The process first prints its identity,
//! `{"contender": "jax", "device": "cuda:0", "libraries": {"jax": "0.10"}}`, or
//! `{"absent": "not installed"}`. If it takes part only in some cases, `"cases"` lists their names.
//! Then each request gets one answer:
//!
//! | request | answer |
//! |---|---|
//! | `{"prepare": CASE}` | `{"parity": {"compared": 64, "worst": 1e-7, "bound": 1e-6}}` |
//! | `{"time": CASE, "runs": 100}` | `{"seconds": 0.0123}` |
//! | `{"release": CASE}` | `{"released": true}` |
//!
//! or `{"error": "why"}`. `CASE` is a case's name. The process ends when its input does.

use crate::case::Case;
use crate::harness::Contender;
use crate::parity::Parity;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use wengert::{Diagnostic, Result};

/// Identity of a process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Hello {
    /// A contender.
    Here {
        /// Its name.
        contender: String,
        /// Its device.
        device: String,
        /// Libraries and their versions.
        libraries: BTreeMap<String, String>,
        /// Names of the cases that it takes part in; None for all.
        #[serde(default)]
        cases: Option<BTreeSet<String>>,
    },
    /// It cannot take part.
    Absent {
        /// The reason.
        absent: String,
    },
}

/// A request to a process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", untagged)]
enum Request {
    Prepare { prepare: String },
    Time { time: String, runs: u64 },
    Release { release: String },
}

/// An answer of a process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Parity(Parity),
    Seconds(f64),
    Released(bool),
    Error(String),
}

/// A contender in a child process, which ends with this one.
#[derive(Debug)]
pub struct Process {
    name: String,
    device: String,
    libraries: BTreeMap<String, String>,
    cases: Option<BTreeSet<String>>,
    child: Child,
    /// None once the input of the process has been closed.
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a process. The result is `Ok(Err(why))` if it cannot take part.
    ///
    /// Errors: it does not start, or does not print its identity.
    pub fn start(mut command: Command) -> Result<std::result::Result<Process, String>> {
        let shown = command.get_program().to_string_lossy().into_owned();
        let failed = |e: io::Error| Diagnostic::new(format!("cannot start `{shown}`: {e}"));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let requests = child.stdin.take();
        let answers =
            BufReader::new(child.stdout.take().expect("the output was asked to be a pipe"));
        let (name, device, libraries) = (shown, String::new(), BTreeMap::new());
        let mut process =
            Process { name, device, libraries, cases: None, child, requests, answers };
        match process.answer::<Hello>()? {
            Hello::Absent { absent } => Ok(Err(absent)),
            Hello::Here { contender, device, libraries, cases } => {
                (process.name, process.device, process.libraries) = (contender, device, libraries);
                process.cases = cases;
                Ok(Ok(process))
            }
        }
    }

    /// Libraries of the process, with their versions.
    pub fn libraries(&self) -> &BTreeMap<String, String> {
        &self.libraries
    }

    fn answer<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        let error = match read {
            Ok(0) => "it has ended".to_owned(),
            Err(e) => e.to_string(),
            Ok(_) => match serde_json::from_str(&line) {
                Ok(answer) => return Ok(answer),
                Err(e) => format!("it answers `{}`, which is no answer: {e}", line.trim_end()),
            },
        };
        Err(Diagnostic::new(format!("contender `{}`: {error}", self.name)))
    }

    fn ask(&mut self, request: &Request) -> Result<Answer> {
        let text = serde_json::to_string(request).expect("requests are strings and numbers");
        let sent = match &mut self.requests {
            Some(pipe) => writeln!(pipe, "{text}").and_then(|()| pipe.flush()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        sent.map_err(|e| {
            Diagnostic::new(format!("contender `{}` does not listen: {e}", self.name))
        })?;
        match self.answer()? {
            Answer::Error(why) => Err(Diagnostic::new(why)),
            answer => Ok(answer),
        }
    }

    fn unexpected(&self, answer: &Answer) -> Diagnostic {
        Diagnostic::new(format!("contender `{}` answers {answer:?} to another question", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Closing its input ends the process; it may have ended before.
        self.requests = None;
        let _ = self.child.wait();
    }
}

impl Contender for Process {
    fn name(&self) -> &str {
        &self.name
    }

    fn device(&self) -> String {
        self.device.clone()
    }

    fn takes_part(&self, case: &Case) -> bool {
        self.cases.as_ref().is_none_or(|cases| cases.contains(&case.id))
    }

    fn prepare(&mut self, case: &Case) -> Result<Parity> {
        match self.ask(&Request::Prepare { prepare: case.id.clone() })? {
            Answer::Parity(parity) => Ok(parity),
            other => Err(self.unexpected(&other)),
        }
    }

    fn time(&mut self, case: &Case, runs: u64) -> Result<f64> {
        match self.ask(&Request::Time { time: case.id.clone(), runs })? {
            Answer::Seconds(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(seconds),
            other => Err(self.unexpected(&other)),
        }
    }

    fn release(&mut self, case: &Case) {
        // If it no longer answers, it holds no resources.
        let _ = self.ask(&Request::Release { release: case.id.clone() });
    }
}

/// Answers requests for a contender until the input ends.
///
/// Error: the streams fail.
pub fn serve(
    contender: &mut dyn Contender,
    cases: &[Case],
    requests: &mut dyn BufRead,
    answers: &mut dyn Write,
) -> io::Result<()> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let wanted = cases.iter().filter(|case| contender.takes_part(case)).map(|case| case.id.clone());
    let hello = Hello::Here {
        contender: contender.name().into(),
        device: contender.device(),
        libraries: [("wengert".to_owned(), version)].into(),
        cases: Some(wanted.collect()),
    };
    writeln!(answers, "{}", serde_json::to_string(&hello)?)?;
    answers.flush()?;
    for line in requests.lines() {
        let answer = match serde_json::from_str(&line?) {
            Ok(request) => respond(contender, cases, &request),
            Err(e) => Err(Diagnostic::new(format!("this is no request: {e}"))),
        };
        let answer = answer.unwrap_or_else(|error| Answer::Error(error.to_string()));
        writeln!(answers, "{}", serde_json::to_string(&answer)?)?;
        answers.flush()?;
    }
    Ok(())
}

fn respond(contender: &mut dyn Contender, cases: &[Case], request: &Request) -> Result<Answer> {
    let (Request::Prepare { prepare: id }
    | Request::Time { time: id, .. }
    | Request::Release { release: id }) = request;
    let case = cases.iter().find(|case| case.id == *id);
    let case = case.ok_or_else(|| Diagnostic::new(format!("there is no case `{id}`")))?;
    match request {
        Request::Prepare { .. } => contender.prepare(case).map(Answer::Parity),
        Request::Time { runs, .. } => contender.time(case, *runs).map(Answer::Seconds),
        Request::Release { .. } => {
            contender.release(case);
            Ok(Answer::Released(true))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::catalogue;
    use crate::resident::Local;
    use wengert::{Device, DeviceOptions};

    #[test]
    fn requests_are_answered() {
        let cases = catalogue(true);
        let id = "copy f32 4K";
        let requests = [
            format!("{{\"prepare\": \"{id}\"}}"),
            format!("{{\"time\": \"{id}\", \"runs\": 3}}"),
            format!("{{\"release\": \"{id}\"}}"),
            format!("{{\"time\": \"{id}\", \"runs\": 3}}"),
            "{\"prepare\": \"nothing\"}".into(),
            "nonsense".into(),
        ]
        .join("\n");
        let mut answers = Vec::new();
        let mut contender = Local::new("wengert", Device::Cpu, DeviceOptions::default());
        serve(&mut contender, &cases, &mut requests.as_bytes(), &mut answers).unwrap();
        let lines: Vec<&str> = std::str::from_utf8(&answers).unwrap().lines().collect();
        let Hello::Here { contender, device, .. } = serde_json::from_str(lines[0]).unwrap() else {
            panic!()
        };
        assert_eq!((contender.as_str(), device.as_str()), ("wengert", "cpu"));
        let answer = |i: usize| -> Answer { serde_json::from_str(lines[i]).unwrap() };
        assert!(matches!(answer(1), Answer::Parity(Parity { compared: 4096, .. })), "{}", lines[1]);
        assert!(matches!(answer(2), Answer::Seconds(s) if s > 0.0));
        assert_eq!(answer(3), Answer::Released(true));
        let error = |i: usize| match answer(i) {
            Answer::Error(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(error(4).contains("was not prepared"));
        assert!(error(5).contains("no case `nothing`"));
        assert!(error(6).contains("no request"));
        assert_eq!(lines.len(), 7);
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn processes_are_asked() {
        let cases = catalogue(true);
        let script = "echo '{\"contender\": \"script\", \"device\": \"none\", \
                      \"libraries\": {\"sh\": \"1\"}, \"cases\": [\"empty\"]}'
            read line; echo '{\"parity\": {\"compared\": 2, \"worst\": 0.5, \"bound\": 1.0}}'
            read line; echo '{\"seconds\": 0.25}'
            read line; echo '{\"error\": \"broken\"}'
            read line; echo '{\"released\": true}'
            read line; echo 'noise'";
        let mut process = Process::start(shell(script)).unwrap().unwrap();
        assert_eq!((process.name(), process.device()), ("script", "none".into()));
        assert_eq!(process.libraries()["sh"], "1");
        assert!(process.takes_part(&cases[0]) && !process.takes_part(&cases[1]));
        assert_eq!(
            process.prepare(&cases[0]).unwrap(),
            Parity { compared: 2, worst: 0.5, bound: 1.0, losses: None }
        );
        assert_eq!(process.time(&cases[0], 5).unwrap(), 0.25);
        assert_eq!(process.time(&cases[0], 5).unwrap_err().message, "broken");
        assert!(process.time(&cases[0], 5).unwrap_err().message.contains("to another question"));
        assert!(
            process.time(&cases[0], 5).unwrap_err().message.contains("`noise`, which is no answer")
        );
        assert!(process.time(&cases[0], 5).is_err(), "it has ended");
    }

    #[test]
    fn who_is_not_there_is_absent() {
        let why = Process::start(shell(r#"echo '{"absent": "not installed"}'"#)).unwrap();
        assert_eq!(why.unwrap_err(), "not installed");
        assert!(Process::start(shell("true")).unwrap_err().message.contains("it has ended"));
        assert!(
            Process::start(Command::new("/no/such/program"))
                .unwrap_err()
                .message
                .contains("cannot start")
        );
    }
}
