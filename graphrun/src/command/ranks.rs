//! The ranks of a run: joining them, and starting them as processes of this machine.
//!
//! Rank 0 speaks for all: it has the terminal, the folder and the exit status. The launcher keeps
//! the error streams of the others, and prints that of the rank that failed first. Under `mpirun`
//! and `srun`, these show the streams.

use crate::cli::RanksArgs;
use crate::console::{Console, Failure, Outcome, Status};
use crate::interrupt::{Interrupt, resume_command};
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use wengert::train::{Report, TrainError};
use wengert::transport::{self, Communicator, Options};
use wengert::{Diagnostic, diagnostic};

/// What this process is.
pub(super) enum Joined {
    /// The only rank.
    Alone,
    /// One of several, and the default of its threads if this program has started it: its share of
    /// the processors.
    Rank(Communicator, Option<usize>),
    /// The launcher of so many.
    Launcher(usize),
}

/// Joins the ranks that a launcher has started.
///
/// Errors: there are others than the arguments say; those of the transport.
pub(super) fn join(args: &RanksArgs) -> Outcome<Joined> {
    let wanted = args.ranks.map(usize::from);
    let timeout = Duration::from_secs(args.rank_timeout);
    let options = Options { timeout, ..Options::default() };
    // Joining binds this process to its share.
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let Some(world) = transport::join_if_launched(&options).map_err(failed)? else {
        return Ok(match wanted {
            Some(count) if count > 1 => Joined::Launcher(count),
            _ => Joined::Alone,
        });
    };
    match wanted {
        Some(wanted) if wanted != world.size() => {
            Err(diagnostic!("`--ranks {wanted}`, and the launcher has started {}", world.size())
                .help("leave out `--ranks` where mpirun or srun starts the ranks")
                .into())
        }
        _ => {
            let share = (processors / world.size()).max(1);
            Ok(Joined::Rank(world, transport::is_rank().then_some(share)))
        }
    }
}

/// Error: this system is not Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn launch(_: usize, _: &mut Console<'_>) -> Outcome {
    Err(diagnostic!("ranks are supported on Linux only").help("leave out `--ranks`").into())
}

/// Starts this command as `count` ranks, and waits for them.
#[cfg(target_os = "linux")]
pub(super) fn launch(count: usize, console: &mut Console<'_>) -> Outcome {
    let program = std::env::current_exe()
        .map_err(|error| diagnostic!("cannot find the path of this program: {error}"))?;
    let interrupt = Interrupt::listen()?;
    let command = |rank: usize| {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1));
        command.stdin(Stdio::null());
        // Signals of the terminal come here, and are passed on once.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        if rank > 0 {
            command.stdout(Stdio::null()).stderr(Stdio::piped());
        }
        command
    };
    let mut launcher = transport::shared::Launcher::spawn(count, command).map_err(failed)?;
    let said: Vec<Option<JoinHandle<String>>> = (0..count)
        .map(|rank| {
            let mut stream = launcher.stderr(rank)?;
            Some(thread::spawn(move || {
                let mut bytes = Vec::new();
                // What was read before an error is printed all the same.
                let _ = stream.by_ref().take(MOST).read_to_end(&mut bytes);
                // The rank must not block on a full pipe.
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
                String::from_utf8_lossy(&bytes).into_owned()
            }))
        })
        .collect();
    let failure = match launcher.wait_with(|| interrupt.number()).map_err(failed)? {
        Ok(()) => return Ok(Status::Good),
        Err(failure) => failure,
    };
    let said = said.into_iter().nth(failure.rank).flatten();
    let said = said.map(|thread| thread.join().expect("it only reads")).unwrap_or_default();
    let code = failure.exit_code();
    let exited = failure.status.is_some_and(|status| status.code().is_some());
    let first_failed = failure.failed.iter().any(|(rank, _)| *rank == 0);
    match failure.rank {
        // Rank 0 has said why.
        0 if exited => {}
        _ if exited && first_failed && !failure.accused => {}
        rank if exited && !said.trim().is_empty() => {
            console.note(format_args!("rank {rank}: {}", said.trim_end()));
        }
        _ => {
            let help = format!("go on from the last checkpoint with: {}", resume_command());
            let error = diagnostic!("{failure}").help(help);
            return Err(Failure::new(Status::Device, error));
        }
    }
    let all = [Status::BadInput, Status::Device];
    let all = all.into_iter().chain([Status::HungUp, Status::Interrupted, Status::Terminated]);
    Ok(all.into_iter().find(|status| *status as u8 == code).unwrap_or(Status::Failed))
}

/// Most bytes of a rank's error stream that are kept.
const MOST: u64 = 1 << 20;

/// Whether the launcher says why the run ends: another rank has failed, and rank 0 has waited for
/// it.
pub(super) fn is_told(world: Option<&Communicator>) -> bool {
    world.and_then(Communicator::reported).is_some_and(|failed| failed > 0)
}

/// The end of a rank other than 0, which leaves to rank 0 what all ranks know.
pub(super) fn ended(report: Result<Report, TrainError>) -> Outcome {
    match report {
        Ok(_)
        | Err(TrainError::Diverged(_) | TrainError::Stopped(_) | TrainError::Elsewhere(_)) => {
            Ok(Status::Good)
        }
        Err(TrainError::Failed(diagnostic)) => Err(diagnostic.into()),
    }
}

fn failed(error: transport::Error) -> Failure {
    Failure::new(Status::Device, Diagnostic::of_device(error.to_string()))
}
