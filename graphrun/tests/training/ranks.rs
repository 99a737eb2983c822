//! Processes that share batches: they write the files of one process, and end together.

use crate::kills::{STEPS, count, stream, undisturbed};
use crate::place::{Place, Ran, send, wait_until};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use wengert::GraphFile;

/// Linear regression by 1024 columns of weights, whose sum is the prediction, with momentum. Its
/// variables are large enough to be divided among ranks.
const WIDE: &str = "\
func @init() -> (state w: f32[3,1024], state m: f32[3,1024]) {
  %0: f32[3,1024] = constant {value=f32[3,1024] 0.0}
  return %0, %0
}

func @step(%x: f32[B,3], %y: f32[B], state %w: f32[3,1024], state %m: f32[3,1024]) \
  -> (loss: f32[], state w: f32[3,1024], state m: f32[3,1024]) {
  %h: f32[B,1024] = dot_general %x, %w {contract=[[1],[0]]}
  %p: f32[B] = reduce_sum %h {axes=[1]}
  %e: f32[B] = sub %p, %y
  %s: f32[B] = mul %e, %e
  %loss: f32[] = reduce_sum %s {axes=[0]}
  %b: f32[B,1024] = broadcast_in_dim %e {dims=[0], shape=[B,1024]}
  %g: f32[3,1024] = dot_general %x, %b {contract=[[0],[0]]}
  %r: f32[] = constant {value=f32[] 0.0000625}
  %rs: f32[3,1024] = broadcast_in_dim %r {dims=[], shape=[3,1024]}
  %d: f32[3,1024] = mul %g, %rs
  %half: f32[] = constant {value=f32[] 0.5}
  %hs: f32[3,1024] = broadcast_in_dim %half {dims=[], shape=[3,1024]}
  %old: f32[3,1024] = mul %m, %hs
  %next: f32[3,1024] = add %old, %d
  %n: f32[3,1024] = sub %w, %next
  return %loss, %n, %next
}

func @loss(%x: f32[B,3], %y: f32[B], param %w: f32[3,1024]) -> (loss: f32[]) {
  %h: f32[B,1024] = dot_general %x, %w {contract=[[1],[0]]}
  %p: f32[B] = reduce_sum %h {axes=[1]}
  %e: f32[B] = sub %p, %y
  %s: f32[B] = mul %e, %e
  %loss: f32[] = reduce_sum %s {axes=[0]}
  return %loss
}
";

/// A place with [`WIDE`] as `wide.graph`, trained as `model.graph` is.
fn wide() -> Place {
    let place = Place::new();
    let recipe = GraphFile::read(place.path("model.graph")).unwrap().recipe.unwrap();
    place.write("wide", WIDE, &recipe);
    place
}

/// Arguments of a run in two parts.
const DIVIDED: [&str; 4] = ["--microbatches", "2", "--threads", "1"];
const RANKS: [&str; 6] = ["--microbatches", "2", "--threads", "1", "--ranks", "2"];

/// The processes that a process has started.
fn children(of: &Child) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.unwrap().file_name();
        let process: u32 = name.to_str()?.parse().ok()?;
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        (parent.trim().parse() == Ok(of.id())).then_some(process)
    });
    all.collect()
}

#[test]
fn ranks_write_the_files_of_one_process() {
    let place = Place::new();
    place.train("model.graph", "one", &DIVIDED).good();
    place.train("model.graph", "two", &RANKS).good();
    let whole = place.contents("one");
    assert!(place.contents("two") == whole);
    // A run that goes on with another number of ranks.
    place.train("model.graph", "both", &[&RANKS[..], &["--steps", "30"]].concat()).good();
    let ran = place.train("model.graph", "both", &[&DIVIDED[..], &["--resume"]].concat());
    ran.good();
    // The logs differ: the shorter run evaluated after its last step.
    let weights = |folder: &str| std::fs::read(place.path(folder).join("weights.safetensors"));
    assert!(weights("both").unwrap() == weights("one").unwrap());
}

/// What ranks store in parts changes no file, and may change within a run.
#[test]
fn stages_of_zero_write_the_same_files() {
    let place = wide();
    place.train("wide.graph", "one", &DIVIDED).good();
    let whole = place.contents("one");
    for zero in ["1", "2", "3"] {
        place.train("wide.graph", zero, &[&RANKS[..], &["--zero", zero]].concat()).good();
        assert!(place.contents(zero) == whole, "ZeRO-{zero}");
    }
    let first = ["--zero", "3", "--steps", "30"];
    place.train("wide.graph", "both", &[&RANKS[..], &first].concat()).good();
    let rest = ["--zero", "1", "--resume"];
    place.train("wide.graph", "both", &[&RANKS[..], &rest].concat()).good();
    let weights = |folder: &str| std::fs::read(place.path(folder).join("weights.safetensors"));
    assert!(weights("both").unwrap() == weights("one").unwrap());
    let unknown = [&RANKS[..], &["--zero", "4"]].concat();
    place.train("wide.graph", "unknown", &unknown).failed(2, &["--zero", "0..=3"]);
    let alone = place.train("wide.graph", "alone", &[&DIVIDED[..], &["--zero", "1"]].concat());
    assert_eq!(alone.status, Some(0), "{alone:?}");
    assert!(alone.err.starts_with("--zero has no effect on one rank"), "{alone:?}");
}

/// Ranks that share products: the number of groups changes no file.
#[test]
fn groups_of_ranks_write_the_same_files() {
    let place = wide();
    let run = |folder: &str, more: &[&str]| {
        let all = [&DIVIDED[..], &["--tensor", "2", "--tensor-axis", "[wm]=1"], more].concat();
        place.train("wide.graph", folder, &all)
    };
    run("pair", &["--ranks", "2"]).good();
    let wanted = place.contents("pair");
    run("four", &["--ranks", "4", "--zero", "3"]).good();
    assert!(place.contents("four") == wanted);
    let fails = |more: &[&str], says: &[&str]| {
        run("refused", more).failed(2, says);
        assert!(place.checkpoints("refused").is_empty());
    };
    fails(&[], &["1 rank cannot form groups of 2", "`--ranks`"]);
    fails(&["--ranks", "3"], &["3 ranks cannot form groups of 2"]);
    fails(&["--ranks", "2", "--tensor-axis", "v=1"], &["no variable `v`", "`w`, `m`"]);
    fails(&["--tensor-axis", "w"], &["no axis"]);
    fails(&["--tensor-axis", "w=x"], &["`x` is no division of a variable", "1/3"]);
    let alone = ["--ranks", "2", "--tensor", "2"];
    place.train("wide.graph", "refused", &alone).failed(2, &["--tensor-axis"]);
    let find = ["train", "wide.graph", "--data", "data.npz", "--find-rate", "--tensor", "2"];
    let find = [&find[..], &["--tensor-axis", "w=1"]].concat();
    place.graphrun(&find).failed(2, &["the learning-rate finder runs on one rank"]);
}

/// All processes of the run end, with one message, and the run goes on.
#[test]
fn a_rank_that_is_killed_ends_the_run() {
    let place = Place::new();
    let steps = ["--steps", "1500"];
    place.train("model.graph", "whole", &[&DIVIDED[..], &steps].concat()).good();
    for rank in [1, 0] {
        let folder = format!("killed{rank}");
        let long = ["--steps", "1000000"];
        let child = place.training("model.graph", &folder, &[&RANKS[..], &long].concat());
        let child = { child }.spawn().unwrap();
        wait_until("a checkpoint", || {
            place.checkpoints(&folder).first().is_some_and(|(step, _)| *step > 100)
        });
        let mut ranks = children(&child);
        ranks.sort_unstable();
        assert_eq!(ranks.len(), 2, "{ranks:?}");
        let killed = ranks[rank].to_string();
        assert!(Command::new("kill").args(["-KILL", &killed]).status().unwrap().success());
        let ran = Ran::of(child.wait_with_output().unwrap());
        assert_eq!(ran.status, Some(3), "{ran:?}");
        let says = format!("rank {rank} (process {killed}) was killed by signal 9 (SIGKILL)");
        assert!(ran.err.contains(&says) && ran.err.contains("--resume"), "{ran:?}");
        for rank in ranks {
            let gone = !std::path::Path::new(&format!("/proc/{rank}/exe")).exists();
            assert!(gone, "process {rank} still runs");
        }
    }
}

/// Ranks are killed or stopped at random moments. The others end within the timeout and two
/// seconds, and the run goes on with one rank or two, to the bits of an undisturbed run. What they
/// store in parts changes from one attempt to the next.
/// `ci/deep/kills` has more cases.
#[test]
fn nothing_is_lost_when_ranks_are_killed_or_stopped() {
    const TIMEOUT: u64 = 2;
    let place = wide();
    let (whole, length) = undisturbed(&place, "wide.graph", &DIVIDED);
    let mut stream = stream(7);
    let timeout = TIMEOUT.to_string();
    let (mut runs, mut ended) = (0, 0);
    for n in 0..count(6) {
        let folder = format!("ranks{runs}");
        let mut arguments = RANKS.to_vec();
        let zero = (n % 4).to_string();
        arguments.extend(["--rank-timeout", &timeout, "--steps", STEPS, "--zero", &zero]);
        if !place.checkpoints(&folder).is_empty() {
            arguments.push("--resume");
        }
        let mut child = place.training("wide.graph", &folder, &arguments).spawn().unwrap();
        wait_until("the ranks", || {
            children(&child).len() == 2 || child.try_wait().unwrap().is_some()
        });
        let mut ranks = children(&child);
        ranks.sort_unstable();
        std::thread::sleep(length.mul_f64(stream.below(1000) as f64 / 2000.0));
        // Every fifth one is stopped.
        let signal = if n % 5 == 4 { "-STOP" } else { "-KILL" };
        let hit = ranks.get(stream.below(2) as usize).map(u32::to_string).unwrap_or_default();
        // It may have ended by itself.
        let sent = Command::new("kill").args([signal, &hit]).output().unwrap().status.success();
        let began = Instant::now();
        let ran = Ran::of(child.wait_with_output().unwrap());
        ran.sound().unwrap();
        let took = began.elapsed();
        assert!(took < Duration::from_secs(TIMEOUT + 2) + length, "{took:?}: {ran:?}");
        for rank in ranks {
            assert!(!std::path::Path::new(&format!("/proc/{rank}/exe")).exists(), "{ran:?}");
        }
        match ran.status {
            Some(0) => {}
            Some(3) if sent => {
                assert!(ran.err.contains("--resume") && ran.err.contains("error: "), "{ran:?}");
                ended += 1;
                // Every third run is ended by one rank.
                if n % 3 != 2 || place.checkpoints(&folder).is_empty() {
                    continue;
                }
                let rest = ["--steps", STEPS, "--resume"];
                place.train("wide.graph", &folder, &[&DIVIDED[..], &rest].concat()).good();
            }
            _ => panic!("{ran:?}"),
        }
        assert!(place.contents(&folder) == whole, "{folder}");
        runs += 1;
    }
    println!("ranks, in {ended} ends of {runs} runs: {ended} passed, 0 failed");
    assert!(ended > 0);
}

#[test]
fn a_signal_ends_all_ranks_with_a_checkpoint() {
    let place = Place::new();
    for (signal, status) in [("INT", 130), ("TERM", 143)] {
        let long = ["--steps", "1000000"];
        let command = place.training("model.graph", signal, &[&RANKS[..], &long].concat());
        let child = { command }.spawn().unwrap();
        wait_until("a checkpoint", || {
            place.checkpoints(signal).first().is_some_and(|(step, _)| *step > 20)
        });
        send(&child, &[signal]);
        let ran = Ran::of(child.wait_with_output().unwrap());
        assert_eq!(ran.status, Some(status), "{ran:?}");
        assert!(ran.err.lines().count() == 1 && ran.err.contains("go on with: "), "{ran:?}");
    }
}

#[test]
fn ranks_that_cannot_share_a_batch_are_refused() {
    let place = Place::new();
    let fails = |arguments: &[&str], status: i32, says: &str| {
        place.train("model.graph", "refused", arguments).failed(status, &[says]);
        assert!(place.checkpoints("refused").is_empty());
    };
    fails(&["--ranks", "2"], 2, "2 ranks cannot share 1 microbatch");
    fails(&["--ranks", "2", "--microbatches", "4"], 2, "a batch of 2 examples has no 4 equal");
    fails(&["--ranks", "2", "--params", "none.npz"], 2, "none.npz");
    let find = ["train", "model.graph", "--data", "data.npz", "--find-rate", "--ranks", "2"];
    place.graphrun(&find).failed(2, &["the learning-rate finder runs on one rank"]);
}
