//! Starts the ranks of a run as processes of one machine, and ends them together.

use super::join::{Invitation, VARIABLE};
use super::monitor;
use super::segment::{self, Segment};
use crate::error::{Error, Kind, Result, ranks_text};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, Command, ExitStatus};
use std::time::{Duration, Instant};

/// How often a signal is asked for.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// How long a rank that others accuse may take to end by itself.
const GRACE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The processes of a run. If one fails, all are killed; if the value is dropped, too.
///
/// If the launcher itself is killed, the ranks find out at once, and fail in their next operation.
pub struct Launcher {
    segment: Segment,
    children: Vec<Child>,
    files: Vec<OwnedFd>,
}

/// A run that failed, by the rank that failed first.
#[derive(Debug)]
pub struct Failure {
    /// The rank.
    pub rank: usize,
    /// Its process.
    pub process: u32,
    /// How it ended. None if it did not end by itself, but other ranks waited for it in vain.
    pub status: Option<ExitStatus>,
    /// The first process that ended in failure: the rank itself, or one that waited for it.
    pub ended: (usize, ExitStatus),
    /// Whether other ranks waited for it in vain. If not, all may have failed for one reason.
    pub accused: bool,
    /// The ranks that had failed by themselves when the others were killed.
    pub failed: Vec<(usize, ExitStatus)>,
}

impl Launcher {
    /// Starts one process for each rank: the commands that `command` gives for the ranks, with
    /// [`VARIABLE`] set. They call [`crate::join`].
    pub fn spawn(ranks: usize, mut command: impl FnMut(usize) -> Command) -> Result<Launcher> {
        let run = segment::new_run()?;
        let segment = Segment::create(ranks, run)?;
        let file = segment.file().as_fd().as_raw_fd();
        let mut launcher = Launcher { segment, children: Vec::new(), files: Vec::new() };
        for rank in 0..ranks {
            let launcher_process = std::process::id();
            let invitation =
                Invitation { rank, ranks, launcher: launcher_process, segment: file, run };
            let mut command = command(rank);
            let child = command.env(VARIABLE, invitation.to_string()).spawn().map_err(|error| {
                let program = command.get_program().to_string_lossy().into_owned();
                Error::system(format!("start `{program}` as rank {rank}"), error)
                    .help("check that the program exists and may be executed")
            })?;
            let process = child.id();
            launcher.children.push(child);
            let file = monitor::descriptor(process).map_err(|error| {
                Error::system(format!("watch process {process} (pidfd_open)"), error)
                    .help("the launcher needs Linux 5.3 or later")
            })?;
            launcher.files.push(file);
        }
        Ok(launcher)
    }

    /// Starts this executable for each rank, with these arguments.
    pub fn spawn_self<A: AsRef<std::ffi::OsStr>>(
        ranks: usize,
        arguments: &[A],
    ) -> Result<Launcher> {
        let program = std::env::current_exe()
            .map_err(|error| Error::system("find the path of this executable", error))?;
        Launcher::spawn(ranks, |_| {
            let mut command = Command::new(&program);
            command.args(arguments);
            command
        })
    }

    /// The processes, in order of the ranks.
    pub fn processes(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }

    /// The error stream of a rank whose command has piped it; once.
    pub fn stderr(&mut self, rank: usize) -> Option<ChildStderr> {
        self.children[rank].stderr.take()
    }

    /// Waits until all ranks have ended. If one fails, kills the others and gives the failure at
    /// once.
    pub fn wait(self) -> Result<Result<(), Failure>> {
        self.wait_with(|| None)
    }

    /// [`wait`](Self::wait), and sends the ranks the signal that `signal` gives, once. It is asked
    /// ten times a second.
    pub fn wait_with(
        mut self,
        mut signal: impl FnMut() -> Option<i32>,
    ) -> Result<Result<(), Failure>> {
        let mut sent = false;
        let system = |error: &dyn fmt::Display| Error::system("wait for the ranks", error);
        let mut running: Vec<usize> = (0..self.children.len()).collect();
        while !running.is_empty() {
            let mut polled: Vec<PollFd<'_>> =
                running.iter().map(|at| PollFd::new(&self.files[*at], PollFlags::IN)).collect();
            match poll(&mut polled, Some(&TURN)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(system(&error)),
            }
            drop(polled);
            if !sent && let Some(signal) = signal().and_then(Signal::from_named_raw) {
                sent = true;
                for rank in &running {
                    // It fails for a process that has ended, which is found below.
                    let _ = pidfd_send_signal(&self.files[*rank], signal);
                }
            }
            let mut failed = Vec::new();
            let mut still = Vec::new();
            for rank in running {
                match self.children[rank].try_wait().map_err(|error| system(&error))? {
                    None => still.push(rank),
                    Some(status) if status.success() => {}
                    Some(status) => failed.push((rank, status)),
                }
            }
            if !failed.is_empty() {
                self.expect_culprit(&mut failed);
                if failed.iter().all(|(_, status)| status.code().is_some()) {
                    self.expect_others(&still, &mut failed);
                }
                let failure = self.failure(&failed);
                self.kill();
                return Ok(Err(failure));
            }
            running = still;
        }
        Ok(Ok(()))
    }

    /// If the others accuse a rank that has not ended yet: waits a little for its end, which says
    /// more than theirs. A rank fails for the others before its process ends.
    fn expect_culprit(&mut self, failed: &mut Vec<(usize, ExitStatus)>) {
        let Some(rank) = self.segment.culprit() else { return };
        if failed.iter().any(|(other, _)| *other == rank) {
            return;
        }
        let mut polled = [PollFd::new(&self.files[rank], PollFlags::IN)];
        // Without an end, the status of the others has to do.
        let _ = poll(&mut polled, Some(&GRACE));
        if let Ok(Some(status)) = self.children[rank].try_wait()
            && !status.success()
        {
            failed.push((rank, status));
        }
    }

    /// Ranks that fail for the same reason say so themselves, if they have a little time.
    fn expect_others(&mut self, running: &[usize], failed: &mut Vec<(usize, ExitStatus)>) {
        let end = Instant::now() + Duration::from_secs(GRACE.tv_sec as u64);
        for rank in running.iter().copied() {
            if failed.iter().any(|(known, _)| *known == rank) {
                continue;
            }
            let left = end.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
            let mut polled = [PollFd::new(&self.files[rank], PollFlags::IN)];
            let _ = poll(&mut polled, Some(&left));
            if let Ok(Some(status)) = self.children[rank].try_wait()
                && !status.success()
            {
                failed.push((rank, status));
            }
        }
    }

    /// The rank that failed first among those that have ended: the one that others accuse, else
    /// one that a signal has ended, else the first.
    fn failure(&self, failed: &[(usize, ExitStatus)]) -> Failure {
        let status_of = |rank| failed.iter().find(|(other, _)| *other == rank);
        let by_signal = failed.iter().find(|(_, status)| status.signal().is_some());
        let first = *by_signal.unwrap_or(&failed[0]);
        let culprit = self.segment.culprit();
        let rank = culprit.unwrap_or(first.0);
        let status = status_of(rank).map(|(_, status)| *status);
        let ended = status.map_or(first, |status| (rank, status));
        let (accused, failed) = (culprit.is_some(), failed.to_vec());
        Failure { rank, process: self.children[rank].id(), status, ended, accused, failed }
    }

    /// Kills all processes that run, and waits for their end.
    fn kill(&mut self) {
        for child in &mut self.children {
            // It fails for a process that has ended, which is what is wanted.
            let _ = child.kill();
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Failure {
    /// The exit status that a launcher should end with: that of the failed process, or 128 and the
    /// number of the signal that ended it.
    pub fn exit_code(&self) -> u8 {
        let (_, status) = self.ended;
        let code = status.code().or(status.signal().map(|signal| 128 + signal));
        code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
    }

    /// As an error.
    pub fn into_error(self) -> Error {
        let (kind, rank) = (Kind::Died, self.rank);
        Error::new(kind, self.to_string()).about([rank])
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = |status: ExitStatus| match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with exit status {code}"),
            (None, Some(9)) => "was killed by signal 9 (SIGKILL)".into(),
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => "ended in an unknown way".into(),
        };
        write!(f, "rank {} (process {}) ", self.rank, self.process)?;
        match self.status {
            Some(status) => f.write_str(&how(status))?,
            None => {
                let (rank, status) = self.ended;
                let waited = ranks_text(&[rank]);
                write!(f, "did not take part; {waited}, which waited for it, {}", how(status))?;
            }
        }
        f.write_str("; the other ranks were killed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: impl Fn(usize) -> String) -> Launcher {
        let command = |rank| {
            let mut command = Command::new("sh");
            command.args(["-c", &script(rank)]);
            command
        };
        Launcher::spawn(3, command).expect("a shell starts")
    }

    #[test]
    fn success_is_that_of_all_ranks() {
        let each = |rank| format!("case ${VARIABLE} in {rank}/3,launcher=*) ;; *) exit 9; esac");
        assert!(shell(each).wait().expect("processes are waited for").is_ok());
    }

    #[test]
    fn one_failure_ends_all_and_is_named() {
        let launcher = shell(|rank| match rank {
            1 => "exit 7".into(),
            _ => "exec sleep 600".into(),
        });
        let processes = launcher.processes();
        let failure = launcher.wait().expect("waits").expect_err("rank 1 fails");
        assert_eq!((failure.rank, failure.process, failure.exit_code()), (1, processes[1], 7));
        let text = failure.to_string();
        assert!(text.contains(") ended with exit status 7; the other ranks were killed"), "{text}");
        for process in processes {
            assert!(!std::path::Path::new(&format!("/proc/{process}")).exists(), "it runs on");
        }
    }

    #[test]
    fn a_signal_is_named_and_forwarded() {
        let launcher = shell(|rank| match rank {
            2 => "kill -9 $$".into(),
            _ => "exec sleep 600".into(),
        });
        let failure = launcher.wait().expect("waits").expect_err("rank 2 fails");
        assert_eq!((failure.rank, failure.exit_code()), (2, 137));
        assert!(failure.to_string().contains("was killed by signal 9 (SIGKILL)"), "{failure}");
    }

    #[test]
    fn the_rank_that_others_accuse_is_named() {
        let launcher = shell(|rank| match rank {
            0 => "exit 1".into(),
            _ => "exec sleep 600".into(),
        });
        launcher.segment.accuse(2);
        let failure = launcher.wait().expect("waits").expect_err("rank 0 fails");
        assert_eq!((failure.rank, failure.status, failure.exit_code()), (2, None, 1));
        let text = failure.to_string();
        assert!(text.contains("did not take part; rank 0, which waited for it, ended"), "{text}");
    }

    #[test]
    fn a_launcher_that_is_dropped_leaves_no_process() {
        let launcher = shell(|_| "exec sleep 600".into());
        let processes = launcher.processes();
        drop(launcher);
        for process in processes {
            assert!(!std::path::Path::new(&format!("/proc/{process}")).exists(), "it runs on");
        }
        let missing = |_| Command::new("/nonexistent/program");
        let error = Launcher::spawn(1, missing).map(|_| ()).expect_err("there is no program");
        assert!(error.to_string().contains("`/nonexistent/program` as rank 0"), "{error}");
    }
}
