//! Runs `transport-check` with a watchdog.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// A run after this time hangs: nothing here takes longer than a few seconds on an idle machine.
const LIMIT: Duration = Duration::from_secs(120);

/// What a run has printed, and how it ended.
pub struct Output {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// A run under way. Dropping it ends it.
pub struct Run {
    child: Child,
    stdout: File,
    stderr: File,
    begin: Instant,
    what: String,
}

/// Starts `transport-check` with these arguments, separated by blanks, and variables.
pub fn start(arguments: &str, variables: &[(&str, &str)]) -> Run {
    // Files: a rank that outlived its launcher would keep a pipe open.
    let (stdout, stderr) = (
        tempfile::tempfile().expect("a temporary file"),
        tempfile::tempfile().expect("a temporary file"),
    );
    let copy = |file: &File| file.try_clone().expect("a second descriptor");
    let child = Command::new(env!("CARGO_BIN_EXE_transport-check"))
        .args(arguments.split_whitespace())
        .envs(variables.iter().copied())
        .stdout(copy(&stdout))
        .stderr(copy(&stderr))
        .spawn()
        .expect("the executable starts");
    Run { child, stdout, stderr, begin: Instant::now(), what: arguments.into() }
}

/// Runs `transport-check` to its end.
pub fn run(arguments: &str) -> Output {
    start(arguments, &[]).end()
}

impl Run {
    /// The process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end. A run that hangs is killed, and is a failure of the test.
    pub fn end(mut self) -> Output {
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is a child") {
                break Some(status);
            }
            if self.begin.elapsed() > LIMIT {
                self.child.kill().expect("it is a child");
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let text = |mut file: &File| {
            let mut text = String::new();
            file.rewind().expect("a file");
            file.read_to_string(&mut text).expect("text");
            text
        };
        let (stdout, stderr) = (text(&self.stdout), text(&self.stderr));
        let Some(status) = status else {
            panic!("`{}` hangs\n{stdout}\n{stderr}", self.what);
        };
        Output { status, stdout, stderr }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // It fails for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processes that a launcher has started as ranks and that still run, by rank.
pub fn ranks_of(launcher: u32) -> Vec<(usize, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Ok(process) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else { continue };
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let variable = environment
            .split('\0')
            .find_map(|variable| variable.strip_prefix("WENGERT_SHARED_MEMORY="));
        let Some((rank, rest)) = variable.and_then(|value| value.split_once('/')) else { continue };
        if rest.contains(&format!(",launcher={launcher},")) {
            found.push((rank.parse().expect("a rank"), process));
        }
    }
    found.sort_unstable();
    found
}

/// The processes of `count` ranks that have joined their world: each has the thread that watches
/// the others. Before that, a rank is missing, not lost.
pub fn joined(launcher: u32, count: usize) -> Vec<(usize, u32)> {
    let threads = |process: u32| {
        std::fs::read_dir(format!("/proc/{process}/task")).map_or(0, |threads| threads.count())
    };
    eventually("the world of all ranks", || {
        let ranks = ranks_of(launcher);
        let complete = ranks.len() == count && ranks.iter().all(|rank| threads(rank.1) > 1);
        complete.then_some(ranks)
    })
}

/// Repeats a look until it gives something, or fails after the limit.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < LIMIT, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}
