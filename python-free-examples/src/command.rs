//! The command line of the examples, `EXAMPLE [DEVICE [STEPS]]`, the progress of a training, and
//! the printing of errors.

use clap::Parser;
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use wengert::prelude::*;
use wengert::train::Event;

/// The command line of a program that trains.
#[derive(Clone, PartialEq, Debug, Parser)]
pub struct Training {
    /// Device: cpu, cuda:0 or emulator; the default is the first GPU, or the CPU if there is none
    device: Option<Device>,
    /// Training steps; the default depends on the example
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    steps: Option<u32>,
}

/// The command line of a program without a number of steps.
#[derive(Clone, PartialEq, Debug, Parser)]
pub struct Running {
    /// Device: cpu, cuda:0 or emulator; the default is the first GPU, or the CPU if there is none
    device: Option<Device>,
}

impl Training {
    /// The device and the number of steps, by default `usual`. Ends the process if the command line
    /// is wrong or asks for help.
    pub fn from_command_line(usual: u32) -> (Device, u32) {
        Training::parse().or(usual)
    }

    fn or(self, usual: u32) -> (Device, u32) {
        (self.device.unwrap_or_else(Device::best), self.steps.unwrap_or(usual))
    }
}

impl Running {
    /// The device. Ends the process if the command line is wrong or asks for help.
    pub fn from_command_line() -> Device {
        Running::parse().device.unwrap_or_else(Device::best)
    }
}

/// Runs an example. An error is printed with its place and its remedy, and the exit status is 1.
pub fn run(example: impl FnOnce() -> std::result::Result<(), Box<dyn Error>>) -> ExitCode {
    match example() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Progress of a training: the mean loss since the last evaluation, and the time of all steps,
/// without evaluations.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    since: Instant,
    trained: Duration,
    loss: f64,
    count: u32,
}

impl Progress {
    /// Progress before the first step.
    pub fn begin() -> Self {
        Progress { since: Instant::now(), trained: Duration::ZERO, loss: 0.0, count: 0 }
    }

    /// Records an event. An evaluation calls `show` with its step, the mean loss of the steps since
    /// the last evaluation, and the metrics.
    pub fn hear(
        &mut self,
        event: Event<'_>,
        show: impl FnOnce(&Progress, u64, f64, &[(String, f64)]),
    ) {
        match event {
            Event::Step(record) => {
                let loss = record.loss;
                let now = Instant::now();
                self.trained += now - self.since;
                (self.since, self.loss, self.count) = (now, self.loss + loss, self.count + 1);
            }
            Event::Evaluation { step, metrics, .. } => {
                let loss = self.loss / f64::from(self.count);
                show(self, step, loss, metrics);
                (self.since, self.loss, self.count) = (Instant::now(), 0.0, 0);
            }
            _ => {}
        }
    }

    /// Total time of the steps so far, in seconds.
    pub fn seconds(&self) -> f64 {
        self.trained.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert::train::StepRecord;

    fn parsed(words: &[&str]) -> std::result::Result<Training, clap::Error> {
        Training::try_parse_from([&["example"], words].concat())
    }

    #[test]
    fn device_and_steps_may_be_left_out() {
        assert_eq!(parsed(&["cpu", "5"]).unwrap().or(9), (Device::Cpu, 5));
        assert_eq!(parsed(&["emulator"]).unwrap().or(9).1, 9);
        assert_eq!(parsed(&[]).unwrap().or(9).0, Device::best());
    }

    #[test]
    fn wrong_arguments_are_refused() {
        let refused = |words: &[&str]| parsed(words).unwrap_err().to_string();
        assert!(refused(&["gpu7"]).contains("gpu7"));
        assert!(refused(&["cpu", "0"]).contains('0'));
        assert!(refused(&["cpu", "many"]).contains("many"));
        assert!(refused(&["cpu", "5", "6"]).contains('6'));
        assert!(refused(&["--help"]).contains("Training steps"));
    }

    #[test]
    fn losses_are_means_between_evaluations() {
        let mut progress = Progress::begin();
        let mut found = Vec::new();
        for losses in [[4.0, 2.0], [1.0, 2.0]] {
            for loss in losses {
                let record = StepRecord {
                    step: 1,
                    epoch: 0,
                    loss,
                    metrics: vec![],
                    grad_norm: None,
                    loss_scale: None,
                    skipped: false,
                    learning_rate: None,
                    examples: 1,
                    time: Duration::ZERO,
                    waited: Duration::ZERO,
                };
                progress
                    .hear(Event::Step(&record), |_, _, _, _| panic!("a step is not an evaluation"));
            }
            let metrics = [("bits".to_owned(), 0.5)];
            let event = Event::Evaluation {
                step: 2,
                epoch: 0,
                set: None,
                metrics: &metrics,
                matrices: &[],
            };
            progress.hear(event, |_, step, loss, metrics| found.push((step, loss, metrics[0].1)));
        }
        assert_eq!(found, [(2, 3.0, 0.5), (2, 1.5, 0.5)]);
        assert!(progress.seconds() >= 0.0);
    }

    #[test]
    fn errors_are_a_failure() {
        assert_eq!(run(|| Ok(())), ExitCode::SUCCESS);
        assert_eq!(run(|| Err(Diagnostic::new("no").into())), ExitCode::FAILURE);
    }
}
