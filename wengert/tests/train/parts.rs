//! Checkpoints of which each rank writes its parts: any number of ranks goes on with them, divided
//! otherwise or not at all, to the bits of an undisturbed run. A checkpoint that is not complete
//! does not exist, and one of which a part is damaged is replaced by the one before.

use super::data;
use super::shards::{Case, divided, files, program, tensor};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wengert::core::graph::parse_program;
use wengert::data::safetensors::SafetensorsFile;
use wengert::data::{Arrays, read_all, read_one};
use wengert::recipe::{Cadence, FinalWeights, Kept, Monitoring, Recipe, StepRecipe};
use wengert::train::{Event, Options, Report, Sharding, TrainError, checkpoint, train};
use wengert::transport::shared;
use wengert::{Device, DeviceOptions, Program, Session};

/// A run in a folder that ends after so many steps.
fn case<'a>(program: &'a Program, folder: &'a Path, steps: u64) -> Case<'a> {
    Case {
        program,
        sharding: Sharding::Parameters,
        tensor: None,
        ranks: 4,
        steps,
        folder,
        resume: false,
        stop_after: None,
        whole: false,
    }
}

/// The names of a folder's files that begin so.
fn names(folder: &Path, prefix: &str) -> BTreeSet<String> {
    let all = fs::read_dir(folder).unwrap();
    let all = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    all.filter(|name| name.starts_with(prefix)).collect()
}

/// Files by name, and the tensors of checkpoints by step.
type Joined = (Vec<(String, Vec<u8>)>, Vec<(u64, Arrays)>);

/// The files of a run, and instead of those of checkpoints what they hold. Checks that no file of a
/// part is there without its checkpoint, and that the readers of a file with weights see the same.
fn joined(folder: &Path) -> Joined {
    let mut others = files(folder);
    others.retain(|(name, _)| !name.starts_with("checkpoint-"));
    let mut listed = 0;
    let checkpoints = checkpoint::list(folder).unwrap().into_iter().map(|(step, path)| {
        let stem = format!("checkpoint-{step:09}.");
        listed += names(folder, &stem).len();
        let all = read_all(&path).unwrap();
        let variables = checkpoint::variables(folder, step).unwrap();
        let visible = all.keys().filter(|name| !name.starts_with('/')).collect::<Vec<_>>();
        assert_eq!(variables.keys().collect::<Vec<_>>(), visible);
        assert!(!all.contains_key("/parts"));
        for (name, value) in &variables {
            assert_eq!(all[name], *value);
            assert_eq!(read_one(&path, Some(name)).unwrap(), *value);
            assert_eq!(SafetensorsFile::open(&path).unwrap().ty(name).unwrap(), value.ty());
        }
        (step, all)
    });
    let checkpoints = checkpoints.collect();
    assert_eq!(names(folder, "checkpoint-").len(), listed);
    (others, checkpoints)
}

/// The undisturbed run, on one rank.
fn alone(program: &Program, steps: u64) -> Joined {
    let folder = tempfile::tempdir().unwrap();
    let sharding = Sharding::Replicated;
    Case { ranks: 1, sharding, ..case(program, folder.path(), steps) }.run();
    assert!(names(folder.path(), "checkpoint-").iter().all(|name| !name.contains("-of-")));
    joined(folder.path())
}

/// A run in one go has the log, the weights and the checkpoints of one rank, and each rank writes
/// its parts only.
#[test]
fn parts_hold_what_one_rank_writes() {
    let program = program(true);
    let wanted = alone(&program, 8);
    for (sharding, ranks) in [
        (Sharding::States, 2),
        (Sharding::Gradients, 4),
        (Sharding::Parameters, 2),
        (Sharding::Parameters, 4),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        Case { sharding, ranks, ..case(&program, folder, 8) }.run();
        assert!(joined(folder) == wanted, "{sharding:?} on {ranks} ranks");
        let parts = names(folder, "checkpoint-000000008.");
        assert_eq!(parts.len(), 1 + ranks, "{parts:?}");
        let elements = |name: &str| -> usize {
            let file = fs::read(folder.join(name)).unwrap();
            let file = safetensors_of(&file);
            file.into_iter().filter(|(name, _)| !name.starts_with('/')).map(|(_, n)| n).sum()
        };
        // 3 × 1024 weights and two states for each, three times 1024 of the other weights and of
        // the biases, and a bias with two states. Counts of steps stay whole.
        let states = 2 * (3 * 1024 + 1024 + 1024);
        let divided = if sharding == Sharding::Parameters { states / 2 * 3 } else { states };
        for rank in 0..ranks {
            let name = format!("checkpoint-000000008.{rank}-of-{ranks}.safetensors");
            assert!(parts.contains(&name), "{parts:?}");
            assert_eq!(elements(&name), divided / ranks, "{sharding:?}: {name}");
        }
        let index = elements("checkpoint-000000008.safetensors");
        assert!(index <= 3 * 5 * 1024 + 8 - divided, "{sharding:?}: {index} elements are whole");
    }
}

/// Names of the tensors in a file's header, with their numbers of elements.
fn safetensors_of(file: &[u8]) -> Vec<(String, usize)> {
    let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&file[8..8 + length]).unwrap();
    let tensors = header.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__");
    let elements = |tensor: &serde_json::Value| {
        let extents = tensor["shape"].as_array().unwrap().iter();
        extents.map(|extent| extent.as_u64().unwrap() as usize).product()
    };
    tensors.map(|(name, tensor)| (name.clone(), elements(tensor))).collect()
}

/// Each goes on with the checkpoints of the one before.
#[test]
fn ranks_go_on_with_parts_of_others() {
    let program = program(false);
    let wanted = alone(&program, 24);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (steps, sharding, ranks, whole) in [
        (2, Sharding::Parameters, 4, false),
        (5, Sharding::States, 2, false),
        (7, Sharding::Replicated, 1, false),
        (10, Sharding::Gradients, 4, false),
        (12, Sharding::Parameters, 2, true),
        (14, Sharding::Parameters, 2, false),
        (17, Sharding::Replicated, 4, false),
        (20, Sharding::Parameters, 4, false),
        (22, Sharding::Parameters, 2, false),
        (24, Sharding::Gradients, 4, false),
    ] {
        let resume = steps > 2;
        let case = Case { sharding, ranks, resume, whole, ..case(&program, folder, steps) };
        case.run();
        let is_divided = sharding != Sharding::Replicated && !whole;
        let parts = names(folder, &format!("checkpoint-{steps:09}.")).len() - 1;
        assert_eq!(parts, if is_divided { ranks } else { 0 }, "{sharding:?} on {ranks} ranks");
    }
    let found = joined(folder);
    assert_eq!(found.1[0], wanted.1[0]);
    let weights = |files: &[(String, Vec<u8>)]| {
        files.iter().find(|(name, _)| name == "weights.safetensors").unwrap().1.clone()
    };
    assert!(weights(&found.0) == weights(&wanted.0));
}

/// Parts of tensor parallelism, and parts of these.
#[test]
fn groups_of_ranks_go_on_with_parts_of_others() {
    let program = program(true);
    let degree = tensor(2);
    let run = |folder: &Path, runs: &[(u64, Sharding, usize)]| {
        for (n, (steps, sharding, ranks)) in runs.iter().enumerate() {
            let (sharding, ranks, tensor) = (*sharding, *ranks, Some(&degree));
            let resume = n > 0;
            Case { sharding, ranks, tensor, resume, ..case(&program, folder, *steps) }.run();
        }
        joined(folder)
    };
    let folder = tempfile::tempdir().unwrap();
    let wanted = run(folder.path(), &[(15, Sharding::Replicated, 2)]);
    // Of two groups with equal parts, the first writes them.
    let folder = tempfile::tempdir().unwrap();
    assert!(run(folder.path(), &[(15, Sharding::Replicated, 4)]) == wanted);
    assert_eq!(names(folder.path(), "checkpoint-000000015.").len(), 1 + 2);
    let folder = tempfile::tempdir().unwrap();
    let runs = [
        (3, Sharding::Parameters, 8),
        (7, Sharding::Replicated, 2),
        (9, Sharding::States, 4),
        (12, Sharding::Parameters, 4),
        (15, Sharding::Gradients, 8),
    ];
    let found = run(folder.path(), &runs);
    assert_eq!(found.1[0], wanted.1[0]);
    // Without tensor parallelism, and with another degree: the variables are those of the
    // checkpoint.
    for (other, ranks) in [(None, 4), (None, 1), (Some(tensor(4)), 4)] {
        let copy = tempfile::tempdir().unwrap();
        for (name, bytes) in files(folder.path()) {
            fs::write(copy.path().join(name), bytes).unwrap();
        }
        let (steps, tensor, resume) = (15, other.as_ref(), true);
        let case = Case { tensor, ranks, resume, ..case(&program, copy.path(), steps) };
        let of_ranks = case.run();
        let elements = |name: &str| of_ranks[0][name].shape().iter().product::<usize>();
        assert_eq!(elements("model.hidden.weight"), 3 * 1024 / ranks);
        let first = of_ranks[0]["model.out.bias"].clone();
        assert_eq!(first, found.1[0].1["model.out.bias"]);
    }
}

/// A run that was killed between the parts and the index of a checkpoint goes on from the one
/// before, and a run in a folder with such parts begins.
#[test]
fn parts_without_an_index_are_no_checkpoint() {
    let program = program(false);
    let wanted = alone(&program, 12);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    case(&program, folder, 10).run();
    // 10 is the last one, and 9 the one before.
    let parts = names(folder, "checkpoint-000000010.");
    assert_eq!(parts.len(), 5);
    fs::remove_file(checkpoint::path(folder, 10)).unwrap();
    let orphan = folder.join("checkpoint-000000011.3-of-4.safetensors");
    fs::copy(folder.join("checkpoint-000000010.3-of-4.safetensors"), &orphan).unwrap();
    fs::write(folder.join(".wengert-abc.partial"), b"half").unwrap();
    let case_of = |steps| Case { resume: true, ranks: 2, ..case(&program, folder, steps) };
    case_of(9).run();
    assert!(names(folder, "checkpoint-000000010.").is_empty() && !orphan.exists());
    case_of(12).run();
    let found = joined(folder);
    assert_eq!(found.1[0], wanted.1[0]);
    // Only the parts of step 0.
    let begun = tempfile::tempdir().unwrap();
    let begun = begun.path();
    let left = begun.join("checkpoint-000000000.1-of-4.safetensors");
    fs::write(&left, b"half").unwrap();
    Case { ranks: 2, ..case(&program, begun, 12) }.run();
    assert!(!left.exists());
    assert!(joined(begun) == wanted);
}

/// Trains, and tells what was damaged, as the observer of rank 0 sees it.
fn damaged(case: Case<'_>) -> Vec<(PathBuf, PathBuf, String)> {
    let told = std::sync::Mutex::new(vec![]);
    let options = wengert::transport::Options { timeout: TIMEOUT, ..Default::default() };
    let world = shared::threads(case.ranks, &options).unwrap();
    std::thread::scope(|scope| {
        for world in world {
            let told = &told;
            scope.spawn(move || {
                let mut session = session();
                let options = Options {
                    world: Some(&world),
                    folder: Some(case.folder),
                    resume: case.resume,
                    sharding: case.sharding,
                    ..Options::default()
                };
                let (recipe, data) = (divided(case.steps), data());
                let mut observe = |event: Event<'_>| {
                    if let Event::Damaged { path, aside, why, .. } = event {
                        let damage = (path.to_owned(), aside.to_owned(), why.to_owned());
                        told.lock().unwrap().push(damage);
                    }
                };
                train(&mut session, case.program, &recipe, &data, options, &mut observe).unwrap();
            });
        }
    });
    told.into_inner().unwrap()
}

const TIMEOUT: Duration = Duration::from_secs(60);

fn session() -> Session {
    let one = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
    Session::open_with(Device::Cpu, &one).unwrap()
}

#[test]
fn a_damaged_part_makes_the_checkpoint_damaged() {
    let program = program(false);
    let wanted = alone(&program, 12);
    let begun = tempfile::tempdir().unwrap();
    case(&program, begun.path(), 10).run();
    let part = |step: u64| format!("checkpoint-{step:09}.2-of-4.safetensors");
    type Damage<'a> = &'a dyn Fn(&Path);
    let flip = |folder: &Path, name: &str| {
        let mut bytes = fs::read(folder.join(name)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 16;
        fs::write(folder.join(name), bytes).unwrap();
    };
    let cases: [(Damage<'_>, &str); 6] = [
        (&|folder| flip(folder, &part(10)), "do not match its checksum"),
        (&|folder| fs::remove_file(folder.join(part(10))).unwrap(), "there is no such file"),
        (&|folder| fs::write(folder.join(part(10)), b"").unwrap(), "fewer than 8 bytes"),
        // The part of another step, and that of another rank.
        (
            &|folder| {
                fs::copy(folder.join(part(9)), folder.join(part(10))).unwrap();
            },
            "its checksum is",
        ),
        (
            &|folder| {
                let other = "checkpoint-000000010.1-of-4.safetensors";
                fs::copy(folder.join(other), folder.join(part(10))).unwrap();
            },
            "its checksum is",
        ),
        (&|folder| flip(folder, "checkpoint-000000010.safetensors"), "checksum"),
    ];
    for (damage, says) in cases {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        for (name, bytes) in files(begun.path()) {
            fs::write(folder.join(name), bytes).unwrap();
        }
        damage(folder);
        let of_index = says == "checksum";
        if !of_index {
            let error = read_all(checkpoint::path(folder, 10)).unwrap_err().to_string();
            assert!(error.contains(&part(10)) && error.contains(says), "{error}");
        }
        let before = names(folder, "checkpoint-000000010.");
        let told = damaged(Case { resume: true, ranks: 2, ..case(&program, folder, 12) });
        let [(path, aside, why)] = &told[..] else { panic!("{told:?}") };
        assert_eq!(*path, checkpoint::path(folder, 10));
        assert!(why.contains(says) && (of_index || why.contains(&part(10))), "{why}");
        assert!(aside.ends_with("damaged-checkpoint-000000010.safetensors"), "{aside:?}");
        let set_aside = names(folder, "damaged-");
        let renamed: BTreeSet<String> = before.iter().map(|n| format!("damaged-{n}")).collect();
        assert_eq!(set_aside, renamed);
        assert_eq!(joined(folder).1[0], wanted.1[0], "{says}");
    }
    // Both are damaged: no file is changed.
    flip(begun.path(), &part(10));
    flip(begun.path(), &part(9));
    let before = files(begun.path());
    let error = checkpoint::read(begun.path()).unwrap_err().message;
    assert!(error.contains("every checkpoint is damaged") && error.contains(&part(9)), "{error}");
    assert!(files(begun.path()) == before);
    // A part by itself is no file of weights.
    let error = read_all(begun.path().join("checkpoint-000000009.1-of-4.safetensors"));
    assert!(error.unwrap_err().to_string().contains("is a part of a checkpoint"));
}

/// The results of ranks, each of which has a folder of its own.
fn in_folders(
    program: &Program,
    folders: &[&Path],
    whole: bool,
    recipe: &Recipe,
) -> Vec<Result<(Report, Session), TrainError>> {
    let options = wengert::transport::Options { timeout: TIMEOUT, ..Default::default() };
    let world = shared::threads(folders.len(), &options).unwrap();
    std::thread::scope(|scope| {
        let threads = world.into_iter().zip(folders).map(|(world, folder)| {
            scope.spawn(move || {
                let mut session = session();
                let options = Options {
                    world: Some(&world),
                    folder: Some(folder),
                    sharding: Sharding::Parameters,
                    whole_checkpoints: whole,
                    ..Options::default()
                };
                let report = train(&mut session, program, recipe, &data(), options, &mut |_| {})?;
                Ok((report, session))
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn a_rank_that_does_not_see_the_folder_is_named() {
    let program = program(false);
    let place = tempfile::tempdir().unwrap();
    let [here, there] = ["here", "there"].map(|name| place.path().join(name));
    fs::create_dir(&there).unwrap();
    for elsewhere in [&there, &place.path().join("nowhere")] {
        let found = in_folders(&program, &[&here, elsewhere], false, &divided(3));
        let errors: Vec<String> =
            found.into_iter().map(|found| found.unwrap_err().to_string()).collect();
        let name = elsewhere.file_name().unwrap().to_str().unwrap();
        for error in &errors {
            assert!(error.contains("rank 1 has `") && error.contains(name), "{error}");
            assert!(error.contains("`--whole-checkpoints`"), "{error}");
        }
        // Nothing is left that keeps a run from beginning there.
        assert!(names(&here, "checkpoint-").is_empty() && names(&here, ".wengert").is_empty());
    }
    let found = in_folders(&program, &[&here, &place.path().join("nowhere")], true, &divided(3));
    assert!(found.iter().all(Result::is_ok), "{found:?}");
    assert_eq!(names(&here, "checkpoint-").len(), 2);
    assert!(names(&there, "").is_empty());
}

/// A program whose state `u` gets a NaN as its last element in step 3.
const LATE: &str = "\
func @init() -> (state v: f32[1024], state u: f32[1024]) {
  %0: f32[1024] = constant {value=f32[1024] 2.5}
  return %0, %0
}

func @step(%x: f32[B,3], %y: f32[B], state %v: f32[1024], state %u: f32[1024]) \
  -> (loss: f32[], state v: f32[1024], state u: f32[1024]) {
  %e: f32[B,3] = mul %x, %x
  %loss: f32[] = reduce_sum %e {axes=[0,1]}
  %i: f32[1024] = iota {axis=0, shape=[1024], dtype=f32}
  %c: f32[] = constant {value=f32[] 1022.5}
  %cs: f32[1024] = broadcast_in_dim %c {dims=[], shape=[1024]}
  %m: bool[1024] = gt %i, %cs
  %f: f32[1024] = convert_element_type %m {dtype=f32}
  %n: f32[1024] = sub %v, %f
  %s: f32[1024] = sqrt %n
  return %loss, %n, %s
}
";

/// All ranks know of a NaN in the part of one, and nothing is written.
#[test]
fn a_nan_in_a_part_ends_the_run_on_all_ranks() {
    let program = parse_program(LATE, "late.ir").unwrap();
    let inputs = divided(1).step.inputs;
    let recipe = Recipe {
        step: StepRecipe { function: "step".into(), inputs, loss: "loss".into() },
        evaluate: None,
        ..divided(9)
    };
    let mut errors = vec![];
    for whole in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let options = wengert::transport::Options { timeout: TIMEOUT, ..Default::default() };
        let world = shared::threads(2, &options).unwrap();
        let found: Vec<TrainError> = std::thread::scope(|scope| {
            let threads = world.into_iter().map(|world| {
                let (program, recipe) = (&program, &recipe);
                scope.spawn(move || {
                    let options = Options {
                        world: Some(&world),
                        folder: Some(folder),
                        sharding: Sharding::Parameters,
                        whole_checkpoints: whole,
                        ..Options::default()
                    };
                    let result =
                        train(&mut session(), program, recipe, &data(), options, &mut |_| {});
                    result.unwrap_err()
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let know = if whole { &found[..1] } else { &found[..] };
        for error in know {
            assert!(matches!(error, TrainError::Diverged(_)), "{error:?}");
            assert!(error.to_string().contains("variable `u` has a NaN after step 3"), "{error}");
        }
        errors.push(found[0].to_string().replace(&*folder.to_string_lossy(), ""));
        // The checkpoint of the start stays.
        let parts = if whole { 0 } else { 2 };
        assert_eq!(names(folder, "checkpoint-").len(), 1 + parts);
        assert_eq!(checkpoint::list(folder).unwrap()[0].0, 0);
    }
    assert_eq!(errors[0], errors[1]);
}

/// The weights of the best checkpoint are joined from its parts.
#[test]
fn the_best_weights_are_joined() {
    let program = program(false);
    let mut recipe = divided(20);
    let kept = Kept { last: 1, best: 1, weights: FinalWeights::Best };
    let watched = Some("mse:max".parse().unwrap());
    recipe.monitoring = Monitoring { watched, kept, ..Monitoring::default() };
    if let Some(evaluate) = &mut recipe.evaluate {
        evaluate.every = Cadence::Steps(4);
    }
    let [one, two] = [1, 2].map(|ranks| {
        let folder = tempfile::tempdir().unwrap();
        let folders = vec![folder.path(); ranks];
        let found = in_folders(&program, &folders, false, &recipe);
        let best = found[0].as_ref().unwrap().0.best.clone();
        assert!(best[0].0 < 20, "{best:?}");
        let parts = names(folder.path(), &format!("checkpoint-{:09}.", best[0].0)).len() - 1;
        assert_eq!(parts, if ranks == 1 { 0 } else { ranks });
        (best, joined(folder.path()))
    });
    assert!(one == two);
}

/// A session loads a checkpoint in parts as it does a file of weights.
#[test]
fn sessions_load_parts() {
    let program = program(false);
    let folder = tempfile::tempdir().unwrap();
    case(&program, folder.path(), 3).run();
    let path = checkpoint::path(folder.path(), 3);
    let mut session = session();
    session.initialize(&program, 1).unwrap();
    let differences = session.load_partial(&path).unwrap();
    assert!(differences.missing.is_empty(), "{differences:?}");
    for (name, value) in checkpoint::variables(folder.path(), 3).unwrap() {
        if let Ok(found) = session.variable(&name) {
            assert_eq!(found, value, "{name}");
        }
    }
    assert_eq!(session.variable("model.hidden.weight").unwrap().shape(), [3, 1024]);
}
