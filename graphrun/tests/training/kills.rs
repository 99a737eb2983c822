//! Trainers that are killed, whose checkpoints are damaged, or that share one folder. No data are
//! lost.
//!
//! `WENGERT_KILLS` is the number of cases (`ci/deep/kills`); a few of them run on every change.
//! Each case passes or fails by itself, and the counts are printed.

use crate::place::{Place, Ran, send};
use std::process::Child;
use std::time::{Duration, Instant};
use wengert::random::SplitMix64;

/// Steps of a run. There are enough of them to kill the run in the middle.
pub const STEPS: &str = "400";

/// Counts of cases, with the errors of the failed ones.
#[derive(Default)]
struct Tally {
    passed: usize,
    failures: Vec<String>,
}

impl Tally {
    fn add(&mut self, result: Result<(), String>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(failure) => self.failures.push(failure),
        }
    }

    /// Prints the counts, and fails if a case has failed.
    fn close(self, what: &str) {
        println!("{what}: {} passed, {} failed", self.passed, self.failures.len());
        assert!(self.failures.is_empty(), "{what}:\n{}", self.failures.join("\n"));
        assert!(self.passed > 0);
    }
}

pub fn count(few: usize) -> usize {
    std::env::var("WENGERT_KILLS")
        .ok()
        .map_or(few, |text| text.parse().expect("WENGERT_KILLS is a number"))
}

pub fn stream(of: u64) -> SplitMix64 {
    // Each process draws another sequence and prints its seed.
    let seed =
        std::env::var("WENGERT_KILLS_SEED").ok().map_or(u64::from(std::process::id()), |text| {
            text.parse().expect("WENGERT_KILLS_SEED is a number")
        });
    println!("seed {seed}");
    SplitMix64::of(seed, &[of])
}

/// The files of an uninterrupted run, and its duration.
pub fn undisturbed(
    place: &Place,
    program: &str,
    more: &[&str],
) -> (Vec<(String, Vec<u8>)>, Duration) {
    let began = Instant::now();
    place.train(program, "whole", &[&["--steps", STEPS], more].concat()).good();
    (place.contents("whole"), began.elapsed())
}

fn check(is_so: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(what()) }
}

/// Checks the files of a folder. The error names those that differ, with their sizes.
fn same(
    found: &[(String, Vec<u8>)],
    wanted: &[(String, Vec<u8>)],
    folder: &str,
) -> Result<(), String> {
    let differ = |files: &[(String, Vec<u8>)], others: &[(String, Vec<u8>)]| -> Vec<String> {
        let differing = files.iter().filter(|file| !others.contains(file));
        differing.map(|(name, bytes)| format!("{name} of {} bytes", bytes.len())).collect()
    };
    check(found == wanted, || {
        let (has, lacks) = (differ(found, wanted), differ(wanted, found));
        format!("{folder} has {}, not {}", has.join(", "), lacks.join(", "))
    })
}

/// The arguments that start a run in a folder, or resume the run that is there.
fn arguments(place: &Place, folder: &str) -> Vec<&'static str> {
    let begun = !place.checkpoints(folder).is_empty();
    if begun { vec!["--steps", STEPS, "--resume"] } else { vec!["--steps", STEPS] }
}

/// Ends a trainer and checks its files.
fn end(
    place: &Place,
    folder: &str,
    child: Child,
    signal: Option<(&str, i32)>,
) -> Result<bool, String> {
    let before = place.checkpoints(folder).first().map(|(step, _)| *step);
    let mut child = child;
    match signal {
        None => child.kill().map_err(|error| error.to_string())?,
        // The trainer may have ended by itself.
        Some((name, _)) => {
            if child.try_wait().is_ok_and(|ended| ended.is_none()) {
                send(&child, &[name]);
            }
        }
    }
    let ran = Ran::of(child.wait_with_output().map_err(|error| error.to_string())?);
    ran.sound()?;
    match (ran.status, signal) {
        (Some(0), _) => return Ok(true),
        (None, _) => {}
        (Some(status), Some((_, wanted))) if status == wanted => {
            check(ran.err.lines().count() == 1 && ran.err.contains("go on with: "), || {
                format!("{ran:?}")
            })?;
        }
        _ => return Err(format!("{ran:?}")),
    }
    let after = place.checkpoints(folder).first().map(|(step, _)| *step);
    check(after >= before, || format!("from step {before:?} back to {after:?}"))?;
    Ok(false)
}

#[test]
fn nothing_is_lost_when_trainers_are_killed() {
    let place = Place::new();
    let whole = undisturbed(&place, "model.graph", &[]);
    kill(&place, "model.graph", &whole, &[&[]], stream(1));
}

/// With any number of threads and any memory budget the bits are the same, those of the skipped
/// steps' scales among them.
#[test]
fn nothing_is_lost_of_a_scaled_loss() {
    let place = Place::new();
    place.write_scaled("scaled.graph");
    let f16 = ["--precision", "f16"];
    let whole = undisturbed(&place, "scaled.graph", &f16);
    let log = std::fs::read_to_string(place.path("whole/log.jsonl")).unwrap();
    let skipped = log.lines().filter(|line| line.contains("\"skipped\":true")).count();
    assert!((20..200).contains(&skipped), "{skipped} steps of {STEPS} were skipped");
    let more: [&[&str]; 3] = [
        &["--precision", "f16", "--threads", "1"],
        &["--precision", "f16", "--threads", "2"],
        &["--precision", "f16", "--memory-budget", "64KiB"],
    ];
    kill(&place, "scaled.graph", &whole, &more, stream(3));
}

/// The best checkpoints stay, and no others.
#[test]
fn nothing_is_lost_of_the_best_checkpoints() {
    let place = Place::new();
    let monitored = ["--evaluate-every", "1", "--monitor", "mse:min", "--keep-best", "3"];
    let monitored = [&monitored[..], &["--keep-last", "1", "--weights", "best"]].concat();
    let whole = undisturbed(&place, "model.graph", &monitored);
    assert!((3..=4).contains(&place.checkpoints("whole").len()));
    kill(&place, "model.graph", &whole, &[&monitored], stream(4));
}

/// Kills trainers at random moments of a run, and resumes each, with one set of the further
/// arguments after the other. The files are those of the whole run in the end.
fn kill(
    place: &Place,
    program: &str,
    (whole, length): &(Vec<(String, Vec<u8>)>, Duration),
    more: &[&[&str]],
    mut stream: SplitMix64,
) {
    let mut tally = Tally::default();
    let most = length.as_micros() as u64;
    let (mut runs, mut finished) = (0, 0);
    for n in 0..count(12) {
        let folder = format!("killed{runs}");
        let given = [&arguments(place, &folder), more[n % more.len()]].concat();
        let child = place.training(program, &folder, &given).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(stream.below(most)));
        // Three of four trainers are killed, and one is told to end.
        let signal = match stream.below(12) {
            0 => Some(("INT", 130)),
            1 => Some(("TERM", 143)),
            2 => Some(("HUP", 129)),
            _ => None,
        };
        let ended = end(place, &folder, child, signal);
        if ended == Ok(true) {
            tally.add(same(&place.contents(&folder), whole, &folder));
            std::fs::remove_dir_all(place.path(&folder)).unwrap();
            (runs, finished) = (runs + 1, finished + 1);
        } else {
            tally.add(ended.map(drop));
        }
    }
    // Completes the run.
    let folder = format!("killed{runs}");
    let last = place.train(program, &folder, &[&arguments(place, &folder), more[0]].concat());
    last.good();
    tally.add(check(place.contents(&folder) == *whole, || format!("{folder} has other files")));
    println!("{} runs ended", finished + 1);
    tally.close("kills");
}

/// A trainer may be killed after its last checkpoint and before it removes the oldest. Resuming
/// removes that.
#[test]
fn an_old_checkpoint_does_not_stay() {
    let place = Place::new();
    let (whole, _) = undisturbed(&place, "model.graph", &[]);
    let checkpoints = place.checkpoints("whole");
    assert_eq!(checkpoints.len(), 2);
    let old = place.path("whole").join("checkpoint-000000001.safetensors");
    std::fs::copy(&checkpoints[1].1, &old).unwrap();
    assert_eq!(place.checkpoints("whole").len(), 3);
    place.train("model.graph", "whole", &["--steps", STEPS, "--resume"]).good();
    assert_eq!(same(&place.contents("whole"), &whole, "whole"), Ok(()));
}

#[test]
fn nothing_is_lost_when_bits_of_checkpoints_flip() {
    let place = Place::new();
    let (whole, _) = undisturbed(&place, "model.graph", &[]);
    // A run at step 395, with another checkpoint at 392. Its log lacks the evaluation at its end.
    place.train("model.graph", "begun", &["--steps", "395"]).good();
    let begun = place.contents("begun");
    let log_of_whole =
        String::from_utf8(whole.iter().find(|(name, _)| name == "log.jsonl").unwrap().1.clone())
            .unwrap();
    let number = |line: &str| line[8..line.find(',').unwrap()].parse::<u64>().unwrap();
    let log: String =
        log_of_whole.split_inclusive('\n').take_while(|line| number(line) <= 395).collect();
    let mut stream = stream(2);
    let mut tally = Tally::default();
    for n in 0..count(24) {
        let folder = format!("flipped{n}");
        std::fs::create_dir(place.path(&folder)).unwrap();
        for (name, bytes) in begun.iter().filter(|(name, _)| name != "weights.safetensors") {
            std::fs::write(place.path(&folder).join(name), bytes).unwrap();
        }
        std::fs::write(place.path(&folder).join("log.jsonl"), &log).unwrap();
        let checkpoints = place.checkpoints(&folder);
        // Mostly the newest checkpoint is damaged, sometimes the older one, sometimes both.
        let damaged: &[usize] = match stream.below(8) {
            0 => &[1],
            1 => &[0, 1],
            _ => &[0],
        };
        let mut places = Vec::new();
        for which in damaged {
            let path = &checkpoints[*which].1;
            let mut bytes = std::fs::read(path).unwrap();
            let bit = stream.below(8 * bytes.len() as u64) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(path, bytes).unwrap();
            places.push((path.file_name().unwrap().to_str().unwrap().to_owned(), bit));
        }
        let before = place.contents(&folder);
        let ran = place.train("model.graph", &folder, &["--steps", STEPS, "--resume"]);
        let is_good = match damaged {
            // The newest is intact, so the older one is not read.
            [1] => ran.status == Some(0) && ran.err.is_empty() && place.contents(&folder) == whole,
            [0] => {
                let aside = format!("damaged-{}", places[0].0);
                let told = ran.err.starts_with("warning: ") && ran.err.contains(&places[0].0);
                let set_aside = std::fs::remove_file(place.path(&folder).join(aside)).is_ok();
                ran.status == Some(0) && told && set_aside && place.contents(&folder) == whole
            }
            _ => {
                let told = ran.err.starts_with("error: every checkpoint is damaged");
                ran.status == Some(2) && told && place.contents(&folder) == before
            }
        };
        tally.add(check(is_good, || format!("bits {places:?}: {ran:?}")));
        std::fs::remove_dir_all(place.path(&folder)).unwrap();
    }
    tally.close("flips");
}

#[test]
fn nothing_is_lost_when_three_trainers_meet() {
    let place = Place::new();
    let (whole, length) = undisturbed(&place, "model.graph", &[]);
    let mut stream = stream(3);
    let mut tally = Tally::default();
    for n in 0..count(12).div_ceil(4) {
        let folder = format!("shared{n}");
        let start = || place.training("model.graph", &folder, &["--steps", STEPS]).spawn().unwrap();
        // The trainers start at the same time, or one after the other.
        let apart = if n % 2 == 0 { 1 } else { length.as_micros() as u64 / 8 };
        let children: Vec<Child> = (0..3)
            .map(|_| {
                std::thread::sleep(Duration::from_micros(stream.below(apart)));
                start()
            })
            .collect();
        let ran: Vec<Ran> =
            children.into_iter().map(|child| Ran::of(child.wait_with_output().unwrap())).collect();
        let winners = ran.iter().filter(|ran| ran.status == Some(0)).count();
        let told = |ran: &Ran| {
            ran.err.contains("another trainer") || ran.err.contains("already holds a run")
        };
        let others = ran.iter().filter(|ran| ran.status == Some(2) && told(ran)).count();
        let is_good = winners == 1 && others == 2 && place.contents(&folder) == whole;
        tally.add(check(is_good, || format!("{ran:?}")));
    }
    tally.close("three at once");
}
