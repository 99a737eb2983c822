//! Processes that share batches: they write the files of one process, and end together.

use crate::kills::{STEPS, count, stream, undisturbed};
use crate::place::{Place, Ran, exists, send, wait_until};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use wengert::GraphFile;
use wengert::data::{Arrays, read_all};
use wengert::random::SplitMix64;
use wengert::recipe::LastBatch;

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
    let mut recipe = GraphFile::read(place.path("model.graph")).unwrap().recipe.unwrap();
    // All batches have four examples, so four ranks can share them.
    recipe.batches.last = LastBatch::Drop;
    place.write("wide", WIDE, &recipe);
    place
}

/// Arguments of a run in two parts.
const DIVIDED: [&str; 4] = ["--microbatches", "2", "--threads", "1"];
const RANKS: [&str; 6] = ["--microbatches", "2", "--threads", "1", "--ranks", "2"];
/// Arguments of a run in four parts.
const QUARTERS: [&str; 4] = ["--microbatches", "4", "--threads", "1"];
/// Rank 0 writes checkpoints as one rank does.
const WHOLE: &str = "--whole-checkpoints";

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

/// A smaller last batch has no equal parts. It is left out on request, as by the recipe.
#[test]
fn the_last_batch_may_be_left_out() {
    let place = wide();
    let mut recipe = GraphFile::read(place.path("wide.graph")).unwrap().recipe.unwrap();
    recipe.batches.last = LastBatch::Smaller;
    place.write("rest", WIDE, &recipe);
    let says = ["it is the last batch of an epoch", "--drop-last"];
    place.train("rest.graph", "refused", &QUARTERS).failed(2, &says);
    place.train("rest.graph", "left", &[&QUARTERS[..], &["--drop-last"]].concat()).good();
    place.train("wide.graph", "whole", &QUARTERS).good();
    assert!(place.contents("left") == place.contents("whole"));
}

/// Files by name, and the tensors of checkpoints by step.
type Joined = (Vec<(String, Vec<u8>)>, Vec<(u64, Arrays)>);

/// The files of a run, and instead of those of checkpoints what they hold. There is no part without
/// its checkpoint.
fn joined(place: &Place, folder: &str) -> Joined {
    let mut files = place.contents(folder);
    let checkpoints = place.checkpoints(folder);
    for (name, _) in files.iter().filter(|(name, _)| name.starts_with("checkpoint-")) {
        let of = |step: &u64| name.starts_with(&format!("checkpoint-{step:09}."));
        assert!(checkpoints.iter().any(|(step, _)| of(step)), "{folder}/{name}");
    }
    files.retain(|(name, _)| !name.starts_with("checkpoint-"));
    let read = checkpoints.into_iter().map(|(step, path)| (step, read_all(path).unwrap()));
    (files, read.collect())
}

/// What ranks store in parts changes no file, if rank 0 writes the checkpoints. Otherwise it
/// changes nothing that they hold. It may change within a run.
#[test]
fn stages_of_zero_write_the_same_files() {
    let place = wide();
    place.train("wide.graph", "one", &DIVIDED).good();
    let whole = place.contents("one");
    for zero in ["1", "2", "3"] {
        let run = |folder: &str, more: &[&str]| {
            let all = [&RANKS[..], &["--zero", zero], more].concat();
            place.train("wide.graph", folder, &all).good();
        };
        run(zero, &[WHOLE]);
        assert!(place.contents(zero) == whole, "ZeRO-{zero}");
        let parts = format!("parts{zero}");
        run(&parts, &[]);
        assert!(joined(&place, &parts) == joined(&place, "one"), "ZeRO-{zero}");
        let last = place.path(&parts).join("checkpoint-000000060.1-of-2.safetensors");
        assert!(exists(&last), "ZeRO-{zero}");
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

/// Commands that take a file with weights take a checkpoint in parts, which is the file that lists
/// them.
#[test]
fn a_checkpoint_in_parts_is_a_file_of_weights() {
    let place = wide();
    place.train("wide.graph", "one", &DIVIDED).good();
    place.train("wide.graph", "parts", &[&RANKS[..], &["--zero", "3"]].concat()).good();
    let file = |folder: &str| format!("{folder}/checkpoint-000000060.safetensors");
    for arguments in [
        &["evaluate", "wide.graph", "--data", "data.npz", "--params"][..],
        &["run", "wide.graph@loss", "--input", "x=@data.npz[x]", "--input", "y=@data.npz[y]"],
        &["inspect"],
    ] {
        let [one, parts] = ["one", "parts"].map(|folder| {
            let params: &[&str] = if arguments[0] == "run" { &["--params"] } else { &[] };
            let ran = place.graphrun(&[arguments, params, &[&file(folder)]].concat());
            assert_eq!(ran.status, Some(0), "{ran:?}");
            ran.out.replace(folder, "")
        });
        assert!(one == parts && !one.is_empty(), "{one}\n{parts}");
    }
    let from = ["--params", &file("parts"), "--partial", "--steps", "8"];
    place.train("wide.graph", "again", &[&DIVIDED[..], &from].concat());
    let from = ["--params", &file("one"), "--partial", "--steps", "8"];
    place.train("wide.graph", "other", &[&DIVIDED[..], &from].concat());
    assert!(place.contents("again") == place.contents("other"));
    let part = "parts/checkpoint-000000060.1-of-2.safetensors";
    let refused = ["evaluate", "wide.graph", "--data", "data.npz", "--params", part];
    place.graphrun(&refused).failed(2, &["is a part of a checkpoint", "checkpoint-STEP"]);
    std::fs::remove_file(place.path(part)).unwrap();
    let refused = ["evaluate", "wide.graph", "--data", "data.npz", "--params", &file("parts")];
    place.graphrun(&refused).failed(2, &["checkpoint-000000060.1-of-2", "no such file"]);
}

/// Ranks that share products: the number of groups changes no file.
#[test]
fn groups_of_ranks_write_the_same_files() {
    let place = wide();
    let run = |folder: &str, more: &[&str]| {
        let all = [&DIVIDED[..], &["--tensor", "2", "--tensor-axis", "[wm]=1"], more].concat();
        place.train("wide.graph", folder, &all)
    };
    run("pair", &["--ranks", "2", WHOLE]).good();
    let wanted = place.contents("pair");
    run("four", &["--ranks", "4", "--zero", "3", WHOLE]).good();
    assert!(place.contents("four") == wanted);
    run("parts", &["--ranks", "4", "--zero", "3"]).good();
    assert!(joined(&place, "parts") == joined(&place, "pair"));
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
/// seconds, and the run goes on with one, two or four ranks in turn, to the bits of an undisturbed
/// run. What they store in parts changes from one attempt to the next, and rank 0 writes all.
/// `ci/deep/kills` has more cases.
#[test]
fn nothing_is_lost_when_ranks_are_killed_or_stopped() {
    let place = wide();
    let (_, length) = undisturbed(&place, "wide.graph", &QUARTERS);
    let whole = place.contents("whole");
    let more = |n: usize| vec!["--zero", ["0", "1", "2", "3"][n % 4], WHOLE];
    disturb(&place, length, &more, stream(7), &|folder| {
        assert!(place.contents(folder) == whole, "{folder}");
    });
}

/// The same with checkpoints in parts, which each rank writes.
#[test]
fn nothing_is_lost_of_parts_when_ranks_are_killed_or_stopped() {
    let place = wide();
    let (_, length) = undisturbed(&place, "wide.graph", &QUARTERS);
    let whole = joined(&place, "whole");
    disturb(&place, length, &|_| vec!["--zero", "3"], stream(8), &|folder| {
        assert!(joined(&place, folder) == whole, "{folder}");
    });
}

/// Starts runs on four, two and one rank in turn, and kills or stops one of the ranks. `same`
/// checks the files of a run that has ended by itself.
fn disturb(
    place: &Place,
    length: Duration,
    more: &dyn Fn(usize) -> Vec<&'static str>,
    mut stream: SplitMix64,
    same: &dyn Fn(&str),
) {
    const TIMEOUT: u64 = 2;
    let timeout = TIMEOUT.to_string();
    let (mut runs, mut ended, mut longest) = (0, [0, 0], Duration::ZERO);
    for n in 0..count(6) {
        let folder = format!("ranks{runs}");
        // Every fifth one is stopped. A process that is the only rank would wait for ever.
        let stops = n % 5 == 4;
        let ranks = if stops { [4, 2, 2] } else { [4, 2, 1] }[n % 3];
        let of_ranks = ranks.to_string();
        let mut arguments = QUARTERS.to_vec();
        arguments.extend(["--rank-timeout", &timeout, "--steps", STEPS]);
        arguments.extend(more(n));
        if ranks > 1 {
            arguments.extend(["--ranks", &of_ranks]);
        }
        let resumes = !place.checkpoints(&folder).is_empty();
        if resumes {
            arguments.push("--resume");
        }
        let mut child = place.training("wide.graph", &folder, &arguments).spawn().unwrap();
        let mut processes = vec![];
        if ranks > 1 {
            wait_until("the ranks", || {
                processes = children(&child);
                processes.len() == ranks || child.try_wait().unwrap().is_some()
            });
        } else {
            processes.push(child.id());
        }
        processes.sort_unstable();
        std::thread::sleep(length.mul_f64(stream.below(1000) as f64 / 1000.0));
        let hit = processes.get(stream.below(ranks as u64) as usize).map(u32::to_string);
        // It may have ended by itself.
        let signal = if stops { "-STOP" } else { "-KILL" };
        let hit = hit.unwrap_or_default();
        let sent = Command::new("kill").args([signal, &hit]).output().unwrap().status.success();
        let began = Instant::now();
        let ran = Ran::of(child.wait_with_output().unwrap());
        ran.sound().unwrap();
        let took = began.elapsed();
        assert!(took < Duration::from_secs(TIMEOUT + 2) + length, "{took:?}: {ran:?}");
        for process in processes {
            let gone = !std::path::Path::new(&format!("/proc/{process}/exe")).exists();
            assert!(gone, "process {process} still runs: {ran:?}");
        }
        match ran.status {
            Some(0) => {
                same(&folder);
                runs += 1;
            }
            Some(3) if sent && ranks > 1 => {
                let errors = ran.err.lines().filter(|line| line.starts_with("error: ")).count();
                assert!(errors == 1 && ran.err.contains("--resume"), "{ran:?}");
                ended[usize::from(stops)] += 1;
                longest = longest.max(took);
            }
            None if sent && ranks == 1 => ended[0] += 1,
            _ => panic!("{ran:?}"),
        }
    }
    // Completes the last run.
    let folder = format!("ranks{runs}");
    let mut last = [&QUARTERS[..], &["--steps", STEPS, "--ranks", "2"], &more(3)].concat();
    if !place.checkpoints(&folder).is_empty() {
        last.push("--resume");
    }
    place.train("wide.graph", &folder, &last).good();
    same(&folder);
    let [killed, stopped] = ended;
    println!("{killed} killed, {stopped} stopped; the others ended after {longest:?} at the most");
    println!("ranks, in {} runs: {} passed, 0 failed", runs + 1, killed + stopped);
    assert!(killed + stopped > 0);
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
