//! The protocol of `wengert-bench`: lines of JSON, as defined in `bench/src/process.rs`.

use crate::case::Case;
use crate::parity::Parity;
use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::time::Instant;

/// A library as a contender.
pub trait Contender {
    /// Its name in records.
    fn name(&self) -> &'static str;

    /// Libraries and their versions.
    fn libraries(&self) -> BTreeMap<String, String>;

    /// The reason why it does not compute a case; None if it does.
    fn without(&self, case: &Case) -> Option<&'static str>;

    /// True if it computes the case.
    fn takes_part(&self, case: &Case) -> bool {
        self.without(case).is_none()
    }

    /// Prepares a case and compares its result.
    ///
    /// Errors: the library fails, or its result is wrong.
    fn prepare(&self, case: &Case) -> Result<Prepared>;

    /// Begins the training of a case. Each call of the returned function runs one step and returns
    /// its loss. The initial parameters are drawn by the library's fastest method.
    ///
    /// Error: the library does not train.
    fn begun(&self, _case: &Case) -> Result<Box<dyn FnMut() -> Result<f64>>> {
        Err(anyhow!("it does not train"))
    }
}

/// A prepared case.
pub struct Prepared {
    /// The comparison of its result.
    pub parity: Parity,
    /// Runs the case once and waits until it has finished.
    pub run: Box<dyn FnMut() -> Result<()>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", untagged)]
enum Request {
    Prepare { prepare: String },
    Time { time: String, runs: u64 },
    Release { release: String },
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Parity(Parity),
    Seconds(f64),
    Released(bool),
    Error(String),
}

#[derive(Serialize)]
struct Hello<'a> {
    contender: &'a str,
    device: &'static str,
    libraries: BTreeMap<String, String>,
    cases: Vec<&'a str>,
}

fn say(out: &mut dyn Write, what: &impl Serialize) -> Result<()> {
    writeln!(out, "{}", serde_json::to_string(what)?)?;
    out.flush().context("nobody listens")
}

/// Prints the reason why a contender cannot take part.
///
/// Error: `out` cannot be written.
pub fn absent(why: &str, out: &mut dyn Write) -> Result<()> {
    say(out, &BTreeMap::from([("absent", why)]))
}

/// Answers requests until the input ends.
///
/// Error: the streams fail.
pub fn serve(
    contender: &dyn Contender,
    cases: &[Case],
    requests: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<()> {
    let wanted = cases.iter().filter(|case| contender.takes_part(case));
    let hello = Hello {
        contender: contender.name(),
        device: "cpu",
        libraries: contender.libraries(),
        cases: wanted.map(|case| case.id.as_str()).collect(),
    };
    say(out, &hello)?;
    let mut ready = BTreeMap::new();
    for line in requests.lines() {
        let line = line.context("the requests cannot be read")?;
        let answer = respond(contender, cases, &mut ready, &line);
        // `{error:#}` includes the chain of causes.
        say(out, &answer.unwrap_or_else(|error| Answer::Error(format!("{error:#}"))))?;
    }
    Ok(())
}

fn respond(
    contender: &dyn Contender,
    cases: &[Case],
    ready: &mut BTreeMap<String, Prepared>,
    line: &str,
) -> Result<Answer> {
    match serde_json::from_str(line).context("this is no request")? {
        Request::Prepare { prepare: id } => {
            let case = cases.iter().find(|case| case.id == id);
            let prepared =
                contender.prepare(case.with_context(|| format!("there is no case `{id}`"))?)?;
            let parity = prepared.parity.clone();
            ready.insert(id, prepared);
            Ok(Answer::Parity(parity))
        }
        Request::Time { time: id, runs } => {
            let prepared =
                ready.get_mut(&id).with_context(|| format!("`{id}` was not prepared"))?;
            seconds(&mut prepared.run, runs).map(Answer::Seconds)
        }
        Request::Release { release: id } => {
            ready.remove(&id);
            Ok(Answer::Released(true))
        }
    }
}

fn seconds(run: &mut dyn FnMut() -> Result<()>, runs: u64) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..runs {
        run()?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// A variant of a case: its name, and a function that prepares it.
pub type Way<T> = (String, Box<dyn FnOnce() -> Result<Box<dyn FnMut() -> Result<T>>>>);

/// Prepares every idiomatic variant of a case and keeps the fastest. The result of every variant
/// must be right.
///
/// Errors: a variant or `judge` fails; there is no variant.
pub fn fastest<T: 'static>(
    contender: &str,
    ways: Vec<Way<T>>,
    judge: impl Fn(&mut dyn FnMut() -> Result<T>) -> Result<Parity>,
) -> Result<Prepared> {
    let mut best: Option<(f64, Prepared)> = None;
    for (name, make) in ways {
        let mut run = make()?;
        let parity = judge(&mut run)?;
        let mut run: Box<dyn FnMut() -> Result<()>> = Box::new(move || run().map(drop));
        let mut least = f64::INFINITY;
        for _ in 0..3 {
            least = least.min(seconds(&mut run, 1)?);
        }
        eprintln!("{contender}: {name} takes {:.3} ms", 1e3 * least);
        if best.as_ref().is_none_or(|(seconds, _)| least < *seconds) {
            best = Some((least, Prepared { parity, run }));
        }
    }
    best.map(|(_, prepared)| prepared).context("the case is written in no way")
}

#[derive(Serialize)]
struct Told<'a> {
    contender: &'a str,
    device: &'static str,
    libraries: BTreeMap<String, String>,
    caches: bool,
    compile_seconds: Option<f64>,
    peak_bytes: u64,
    state_bytes: u64,
}

/// Starts a case by the protocol of `bench/src/starts`. The contenders that train here compile
/// nothing and have no cache.
///
/// Errors: a step fails; the peak memory is unknown; `out` cannot be written.
pub fn start(contender: &dyn Contender, case: &Case, out: &mut dyn Write) -> Result<()> {
    // Three steps: the first is the measured start, the others show the peak memory of training.
    let mut step = match contender.begun(case) {
        Ok(step) => step,
        Err(error) => return absent(&format!("{error:#}"), out),
    };
    say(out, &BTreeMap::from([("stepped", step()?)]))?;
    step()?;
    step()?;
    let told = Told {
        contender: contender.name(),
        device: "cpu",
        libraries: contender.libraries(),
        caches: false,
        compile_seconds: None,
        peak_bytes: peak()?,
        state_bytes: 12 * case.work.elements as u64,
    };
    say(out, &told)
}

/// Peak resident memory of this process so far, in bytes.
fn peak() -> Result<u64> {
    let text =
        std::fs::read_to_string("/proc/self/status").context("starts are measured on Linux")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(1024 * kib.context("there is no `VmHWM` in /proc/self/status")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::catalogue;

    /// A contender with one case and two variants of it, both of which are right.
    struct Scripted;

    impl Contender for Scripted {
        fn name(&self) -> &'static str {
            "script"
        }

        fn libraries(&self) -> BTreeMap<String, String> {
            [("script".to_owned(), "1".to_owned())].into()
        }

        fn without(&self, case: &Case) -> Option<&'static str> {
            (case.id != "empty").then_some("it computes nothing")
        }

        fn prepare(&self, case: &Case) -> Result<Prepared> {
            anyhow::ensure!(self.takes_part(case), "not that one");
            let way = |found: f64| -> Way<f64> {
                (found.to_string(), Box::new(move || Ok(Box::new(move || Ok(found)))))
            };
            fastest("script", vec![way(1.0), way(1.0 + 1e-9)], |run| {
                Parity::of([(run()?, 1.0, 1.0)], 1e-6)
            })
        }
    }

    #[test]
    fn requests_are_answered() {
        let requests = "{\"prepare\": \"empty\"}\n{\"time\": \"empty\", \"runs\": 3}\n\
                        {\"release\": \"empty\"}\n{\"time\": \"empty\", \"runs\": 3}\n\
                        {\"prepare\": \"nothing\"}\nnonsense\n";
        let mut answers = Vec::new();
        serve(&Scripted, &catalogue(), &mut requests.as_bytes(), &mut answers).unwrap();
        let lines: Vec<&str> = std::str::from_utf8(&answers).unwrap().lines().collect();
        assert_eq!(
            lines[0],
            r#"{"contender":"script","device":"cpu","libraries":{"script":"1"},"cases":["empty"]}"#
        );
        assert!(lines[1].starts_with(r#"{"parity":{"compared":1,"#), "{}", lines[1]);
        assert!(lines[2].starts_with(r#"{"seconds":"#), "{}", lines[2]);
        assert_eq!(lines[3], r#"{"released":true}"#);
        assert!(lines[4].contains("`empty` was not prepared"));
        assert!(lines[5].contains("there is no case `nothing`"));
        assert!(lines[6].contains("this is no request"));
        assert_eq!(lines.len(), 7);
    }

    #[test]
    fn who_does_not_train_does_not_start() {
        let mut answers = Vec::new();
        start(&Scripted, &catalogue()[0], &mut answers).unwrap();
        assert_eq!(answers, b"{\"absent\":\"it does not train\"}\n");
    }
}
