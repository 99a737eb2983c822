//! A signal ends a run after its current step, with a checkpoint and a hint for resuming.

use crate::place::{Place, Ran, send, wait_until};
use std::os::unix::process::ExitStatusExt;

/// The number after "stopped after step".
fn stopped_at(err: &str) -> u64 {
    let (_, rest) = err.split_once("stopped after step ").unwrap();
    rest.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_signal_finishes_the_step_and_says_how_to_go_on() {
    let place = Place::new();
    for (signal, status) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let folder = format!("runs/{signal}");
        let child =
            place.training("model.graph", &folder, &["--epochs", "100000000"]).spawn().unwrap();
        wait_until("a second checkpoint", || place.checkpoints(&folder).len() == 2);
        send(&child, &[signal]);
        let ran = Ran::of(child.wait_with_output().unwrap());
        assert_eq!(ran.status, Some(status), "{ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
        assert!(ran.err.starts_with(&format!("SIG{signal}: stopped after step ")), "{ran:?}");
        let command = format!(
            "go on with: {} train model.graph --data data.npz --out {folder} --epochs 100000000 \
             --resume\n",
            env!("CARGO_BIN_EXE_graphrun")
        );
        assert!(ran.err.ends_with(&command), "{ran:?}");
        let step = stopped_at(&ran.err);
        assert_eq!(place.checkpoints(&folder)[0].0, step);
        // The resumed run gives the bits of an uninterrupted one.
        let steps = (step + 20).to_string();
        place.train("model.graph", &folder, &["--resume", "--steps", &steps]).good();
        let whole = format!("whole/{signal}");
        place.train("model.graph", &whole, &["--steps", &steps]).good();
        let weights = |folder: &str| {
            place
                .contents(folder)
                .into_iter()
                .filter(|(name, _)| !name.starts_with("checkpoint"))
                .collect::<Vec<_>>()
        };
        assert!(weights(&folder) == weights(&whole), "{signal} after step {step}");
        assert!(place.checkpoints(&folder)[0].0 == step + 20);
    }
}

#[test]
fn a_second_signal_ends_at_once_and_loses_nothing() {
    let place = Place::new();
    let mut child = place.training("slow.graph", "runs/slow", &[]).spawn().unwrap();
    wait_until("the first checkpoint", || place.checkpoints("runs/slow").len() == 1);
    let before = place.contents("runs/slow");
    // The first step takes minutes. The first signal takes effect after it.
    std::thread::sleep(std::time::Duration::from_millis(300));
    send(&child, &["INT"]);
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none(), "the step is not at its end");
    send(&child, &["TERM"]);
    wait_until("the end of the process", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    assert!(place.contents("runs/slow") == before);
}

/// `nohup` ignores SIGHUP for the command that it starts.
#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let place = Place::new();
    let training = place.training("model.graph", "runs/a", &["--epochs", "100000000"]);
    let mut ignoring = std::process::Command::new("env");
    // Of two options for a signal the later one applies.
    ignoring
        .args(training.get_args().take(1))
        .arg("--ignore-signal=HUP")
        .args(training.get_args().skip(1));
    ignoring.current_dir(place.path(""));
    ignoring.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = ignoring.spawn().unwrap();
    wait_until("a second checkpoint", || place.checkpoints("runs/a").len() == 2);
    let reached = place.checkpoints("runs/a")[0].0;
    send(&child, &["HUP"]);
    let newest = || place.checkpoints("runs/a").first().map_or(0, |(step, _)| *step);
    wait_until("a later checkpoint", || newest() > reached + 100);
    send(&child, &["INT"]);
    assert_eq!(Ran::of(child.wait_with_output().unwrap()).status, Some(130));
}
