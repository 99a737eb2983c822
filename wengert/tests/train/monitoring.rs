//! Early stopping, the best checkpoints, several evaluation sets.

use super::{contents, data, program, recipe, run, timeless};
use std::path::Path;
use wengert::core::graph::Program;
use wengert::data::{Arrays, safetensors};
use wengert::recipe::{
    Cadence, EPOCH_LOSS, EarlyStopping, EvaluationSet, FinalWeights, Kept, Length, Monitoring,
    Recipe,
};
use wengert::train::{Event, Flow, Options, Report, SetData, TrainError, checkpoint, train};
use wengert::{Device, GraphFile, Literal, Session, Weights};

/// A recipe that stops early: the error falls ever more slowly.
pub fn stopping() -> Recipe {
    let mut recipe = recipe();
    recipe.evaluate.as_mut().unwrap().every = Cadence::Epochs(1);
    recipe.monitoring = Monitoring {
        watched: Some("mse:min".parse().unwrap()),
        early_stopping: Some(EarlyStopping { patience: 3, min_change: 2e-5 }),
        kept: Kept { best: 2, weights: FinalWeights::Best, ..Kept::default() },
        ..Monitoring::default()
    };
    recipe
}

/// The evaluations of a run: steps and values of the first metric.
fn evaluations(recipe: &Recipe, options: Options<'_>) -> (Report, Vec<(u64, f64)>) {
    let mut found = Vec::new();
    let (report, _) = run(recipe, &program(0.05), options, &mut |event| {
        if let Event::Evaluation { step, metrics, .. } = event {
            found.push((step, metrics[0].1));
        }
    })
    .unwrap();
    (report, found)
}

#[test]
fn a_run_ends_once_its_patience_is_exhausted() {
    let (report, found) = evaluations(&stopping(), Options::default());
    // By a plain loop over a run that does not end early.
    let mut whole = stopping();
    whole.monitoring = Monitoring::default();
    let (all, values) = evaluations(&whole, Options::default());
    assert_eq!((all.steps, all.stopped, values.len()), (280, false, 40));
    let (mut best, mut waited, mut ends) = (f64::INFINITY, 0, None);
    for (step, value) in &values {
        if *value < best - 2e-5 {
            (best, waited) = (*value, 0);
        } else {
            waited += 1;
        }
        if waited == 3 {
            ends = Some(*step);
            break;
        }
    }
    let ends = ends.expect("the run ends early");
    assert!((14..280).contains(&ends), "{ends}");
    assert_eq!((report.steps, report.stopped), (ends, true));
    assert_eq!(found, values[..found.len()]);
    // The best are the least, the least first.
    let mut sorted = found.clone();
    sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
    assert_eq!(report.best, sorted[..2]);
}

/// The log without the evaluations of some steps.
fn without(log: &str, steps: &[u64]) -> String {
    let is_left_out = |line: &&str| {
        let is_of = |step: &u64| line.starts_with(&format!("{{\"step\":{step},"));
        line.contains("evaluation") && steps.iter().any(is_of)
    };
    log.split_inclusive('\n').filter(|line| !is_left_out(line)).collect()
}

#[test]
fn a_run_that_is_ended_and_resumed_stops_at_the_same_step() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (recipe, program) = (stopping(), program(0.05));
    let options = |folder| Options { folder: Some(folder), ..Options::default() };
    let (wanted, _) = run(&recipe, &program, options(whole.path()), &mut |_| {}).unwrap();
    // Ends that are after an evaluation, between two, and a step before the run stops.
    let ends = [5, 7, 8, wanted.steps - 8, wanted.steps - 1];
    for (n, end) in ends.into_iter().enumerate() {
        let options = Options { resume: n > 0, ..options(parts.path()) };
        let mut session = Session::open(Device::Cpu).unwrap();
        let report =
            train(&mut session, &program, &recipe, &data(), options, &mut |event| match event {
                Event::Step(record) if record.step == end => Flow::Stop,
                _ => Flow::GoOn,
            })
            .unwrap();
        assert_eq!((report.steps, report.stopped), (end, true));
    }
    let resume = Options { resume: true, ..options(parts.path()) };
    for _ in 0..2 {
        // The second time nothing is left to do.
        let mut told = Vec::new();
        let (report, _) = run(&recipe, &program, resume, &mut |event| {
            if let Event::EarlyStop { step, waited, best, best_step, watched } = event {
                told.push((step, waited, best, best_step, watched.to_string()));
            }
        })
        .unwrap();
        let [(step, 3, best, best_step, watched)] = &told[..] else { panic!("{told:?}") };
        assert_eq!((*step, watched.as_str()), (wanted.steps, "mse:min"));
        assert!(*best_step < *step && *best >= wanted.best[0].1);
        assert_eq!((report.steps, &report.best), (wanted.steps, &wanted.best));
        let (mut a, mut b) = (contents(whole.path()), contents(parts.path()));
        for files in [&mut a, &mut b] {
            for (_, bytes) in files.iter_mut().filter(|(name, _)| name == "log.jsonl") {
                let log = String::from_utf8(bytes.clone()).unwrap();
                *bytes = without(&timeless(&log), &ends).into_bytes();
            }
        }
        let names = |files: &[(String, Vec<u8>)]| {
            files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        // The last checkpoint but one is that of the last end.
        for files in [&mut a, &mut b] {
            let best = report.best.iter().map(|(step, _)| *step);
            let kept: Vec<String> =
                best.chain([wanted.steps]).map(|s| format!("checkpoint-{s:09}.")).collect();
            files.retain(|(name, _)| {
                !name.starts_with("checkpoint") || kept.iter().any(|k| name.starts_with(&**k))
            });
        }
        assert_eq!(names(&a), names(&b));
        assert!(a == b);
    }
    let mut other = stopping();
    other.monitoring.early_stopping = Some(EarlyStopping { patience: 4, min_change: 2e-5 });
    let error = run(&other, &program, resume, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("another program or recipe"), "{error}");
}

#[test]
fn runs_that_stop_early_and_are_killed_end_with_the_same_bits() {
    let test = "monitoring::runs_that_stop_early_and_are_killed_end_with_the_same_bits";
    super::is_killed(test, &program(0.05), &stopping());
}

fn steps(folder: &Path) -> Vec<u64> {
    checkpoint::list(folder).unwrap().iter().map(|(step, _)| *step).collect()
}

#[test]
fn the_best_checkpoints_and_their_weights_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut recipe = stopping();
    recipe.monitoring.early_stopping = None;
    // The greatest errors are the first ones.
    recipe.monitoring.watched = Some("mse:max".parse().unwrap());
    recipe.monitoring.kept = Kept { last: 1, best: 3, weights: FinalWeights::Best };
    let options = Options { folder: Some(folder), ..Options::default() };
    let (report, found) = evaluations(&recipe, options);
    let mut sorted = found.clone();
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
    assert_eq!((report.steps, &report.best[..]), (280, &sorted[..3]));
    let mut wanted: Vec<u64> = sorted[..3].iter().map(|(step, _)| *step).collect();
    wanted.push(280);
    wanted.sort_by(|a, b| b.cmp(a));
    assert_eq!(steps(folder), wanted);
    // The weights are those of a run of as many steps.
    let length = Some(Length::Steps(report.best[0].0));
    let short = Options { length, ..Options::default() };
    let (_, session) = run(&super::recipe(), &program(0.05), short, &mut |_| {}).unwrap();
    let weights = safetensors::SafetensorsFile::open(folder.join("weights.safetensors")).unwrap();
    assert_eq!(weights.read("w").unwrap(), session.variable("w").unwrap());
}

#[test]
fn a_damaged_checkpoint_loses_no_best_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut recipe = stopping();
    recipe.monitoring.early_stopping = None;
    let options = |steps| Options {
        folder: Some(folder),
        length: Some(Length::Steps(steps)),
        ..Options::default()
    };
    // Each evaluation is better than the one before, so the best checkpoints are the last of them.
    let (report, _) = evaluations(&recipe, options(42));
    let best = |report: &Report| report.best.iter().map(|(step, _)| *step).collect::<Vec<_>>();
    assert_eq!(best(&report), [42, 35]);
    // The last one is damaged: the run goes on from step 39, whose best checkpoints were 35 and 28.
    let bytes = std::fs::read(checkpoint::path(folder, 42)).unwrap();
    std::fs::write(checkpoint::path(folder, 42), &bytes[..bytes.len() - 1]).unwrap();
    let (again, _) = evaluations(&recipe, Options { resume: true, ..options(40) });
    assert_eq!((again.resumed_at, best(&again)), (39, vec![35, 28]));
    for step in best(&again) {
        checkpoint::variables(folder, step).unwrap();
    }
}

#[test]
fn the_loss_of_epochs_is_watched() {
    let mut recipe = stopping();
    recipe.evaluate = None;
    recipe.monitoring.watched = Some(format!("{EPOCH_LOSS}:min").parse().unwrap());
    recipe.monitoring.early_stopping = Some(EarlyStopping { patience: 2, min_change: 1e-3 });
    let mut epochs = Vec::new();
    let (report, _) = run(&recipe, &program(0.05), Options::default(), &mut |event| {
        if let Event::Epoch { loss, last, .. } = event {
            epochs.push((last.step, loss));
        }
    })
    .unwrap();
    let (mut best, mut waited) = (f64::INFINITY, 0);
    for (step, loss) in &epochs {
        (best, waited) = if *loss < best - 1e-3 { (*loss, 0) } else { (best, waited + 1) };
        assert_eq!(waited == 2, *step == report.steps, "{epochs:?}");
    }
    assert!(report.stopped && report.steps < 280, "{report:?}");
}

/// A recipe with a second evaluation set.
fn two_sets() -> Recipe {
    let mut recipe = recipe();
    let mut evaluate = recipe.evaluate.clone().unwrap();
    evaluate.every = Cadence::Steps(3);
    recipe.monitoring.sets = vec![EvaluationSet { name: "first".into(), evaluate }];
    recipe.length = Length::Steps(7);
    recipe
}

/// The first rows of the data.
fn first_rows(count: usize) -> Arrays {
    let all = data();
    let x = all["x_train"].as_slice::<u8>().unwrap()[..3 * count].to_vec();
    let y = all["y_train"].as_slice::<f32>().unwrap()[..count].to_vec();
    Arrays::from([
        ("x_train".into(), Literal::from_vec(&[count, 3], x).unwrap()),
        ("y_train".into(), Literal::from_vec(&[count], y).unwrap()),
    ])
}

#[test]
fn evaluation_sets_have_names_cadences_and_data_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let (recipe, arrays) = (two_sets(), first_rows(10));
    let sets = [SetData { set: "first", data: &arrays, file: None }];
    let options = Options { folder: Some(folder.path()), sets: &sets, ..Options::default() };
    let mut found = Vec::new();
    let (report, session) = run(&recipe, &program(0.05), options, &mut |event| {
        if let Event::Evaluation { step, set, .. } = event {
            found.push((step, set.map(str::to_owned)));
        }
    })
    .unwrap();
    let first = || Some("first".to_owned());
    assert_eq!(found, [(3, first()), (6, first()), (7, None), (7, first())]);
    let names: Vec<&str> = report.metrics.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["mse", "first/mse"]);
    // The mean over the rows of the set, by a plain loop.
    let w = session.variable("w").unwrap();
    let squares = (0..10).map(|row| {
        let x = |i: usize| arrays["x_train"].get(row * 3 + i).to_f64() / 256.0;
        let sum: f64 = (0..3).map(|i| x(i) * w.get(i).to_f64()).sum();
        (sum - arrays["y_train"].get(row).to_f64()).powi(2)
    });
    let mean = squares.sum::<f64>() / 10.0;
    assert!((report.metrics[1].1 - mean).abs() < 1e-6, "{report:?}, not {mean}");
    let log = std::fs::read_to_string(folder.path().join("log.jsonl")).unwrap();
    let of_sets: Vec<&str> = log.lines().filter(|line| line.contains("evaluation")).collect();
    assert!(of_sets[0].starts_with("{\"step\":3,\"epoch\":0,\"set\":\"first\",\"evaluation\":{"));
    assert!(of_sets[2].starts_with("{\"step\":7,\"epoch\":0,\"evaluation\":{\"mse\":"), "{log}");
    // The data of a set belong to the run.
    let resume = Options { resume: true, ..options };
    run(&recipe, &program(0.05), resume, &mut |_| {}).unwrap();
    let other = first_rows(11);
    let sets = [SetData { set: "first", data: &other, file: None }];
    let resume = Options { sets: &sets, ..resume };
    let error = run(&recipe, &program(0.05), resume, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("other data"), "{error}");
}

#[test]
fn a_file_gives_the_same_bits() {
    let (from_rust, from_file) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut recipe = stopping();
    let evaluate = recipe.evaluate.clone().unwrap();
    recipe.monitoring.sets = vec![EvaluationSet { name: "again".into(), evaluate }];
    recipe.monitoring.watched = Some("again/mse:min".parse().unwrap());
    let program = program(0.05);
    let file = GraphFile {
        program: program.clone(),
        recipe: Some(recipe.clone()),
        weights: Weights::None,
    };
    let path = from_file.path().join("m.graph");
    file.write(&path).unwrap();
    let read = GraphFile::read(&path).unwrap();
    assert_eq!(read.recipe, file.recipe);
    let run_in = |program: &Program, recipe: &Recipe, folder: &Path| {
        let options = Options { folder: Some(folder), ..Options::default() };
        run(recipe, program, options, &mut |_| {}).unwrap();
        contents(folder)
    };
    let found = run_in(&read.program, &read.recipe.unwrap(), &from_file.path().join("run"));
    assert!(found == run_in(&program, &recipe, from_rust.path()));
    // A file without these has no such section.
    let plain = GraphFile { recipe: Some(super::recipe()), ..file };
    let bytes = plain.to_bytes().unwrap();
    assert!(!bytes.windows(10).any(|bytes| bytes == b"monitoring"));
}

#[test]
fn what_cannot_be_watched_is_named() {
    let fails = |change: &dyn Fn(&mut Recipe), text: &str| {
        let mut recipe = stopping();
        change(&mut recipe);
        let error = run(&recipe, &program(0.05), Options::default(), &mut |_| {}).unwrap_err();
        let TrainError::Failed(error) = error else { panic!("{error}") };
        assert_eq!(format!("{}; {}", error.message, error.help.unwrap_or_default()), text);
    };
    let watch = |text: &'static str| {
        move |recipe: &mut Recipe| recipe.monitoring.watched = Some(text.parse().unwrap())
    };
    fails(
        &watch("msee:min"),
        "recipe: there is no metric `msee` to watch; did you mean `mse`? there are `epoch_loss`, \
         `mse`",
    );
    fails(
        &watch("test/accuracy:max"),
        "recipe: there is no metric `test/accuracy` to watch; there are `epoch_loss`, `mse`",
    );
    let early = |patience, min_change| {
        move |recipe: &mut Recipe| {
            recipe.monitoring.early_stopping = Some(EarlyStopping { patience, min_change });
        }
    };
    fails(&early(0, 0.0), "recipe: the patience of early stopping must be at least 1; ");
    fails(
        &early(1, -0.5),
        "recipe: the least change that counts is -0.5; it is a number of at least 0",
    );
    fails(
        &early(1, f64::NAN),
        "recipe: the least change that counts is NaN; it is a number of at least 0",
    );
    fails(
        &|recipe| recipe.monitoring.watched = None,
        "recipe: early stopping goes by a metric, and none is watched; name one, and whether less \
         or more is better: `Monitoring::watched`, `--monitor METRIC:min`",
    );
    fails(
        &|recipe| {
            recipe.monitoring.watched = None;
            recipe.monitoring.early_stopping = None;
        },
        "recipe: the best checkpoints go by a metric, and none is watched; name one, and whether \
         less or more is better: `Monitoring::watched`, `--monitor METRIC:min`",
    );
    fails(
        &|recipe| recipe.evaluate.as_mut().unwrap().every = Cadence::Never,
        "recipe: `mse` is evaluated at the end only; a watched metric is evaluated during the run: \
         `EvaluateRecipe::every`, `--evaluate-every EPOCHS`",
    );
    fails(
        &|recipe| recipe.evaluate = None,
        "recipe: there is no metric `mse` to watch; there are `epoch_loss`",
    );
    fails(
        &|recipe| recipe.monitoring.kept.best = 0,
        "recipe: no best checkpoint is kept, so it has no weights; keep at least one: \
         `Kept::best`, `--keep-best 1`",
    );
    fails(
        &|recipe| recipe.monitoring.kept.last = 0,
        "recipe: the number of last checkpoints must be at least 1; ",
    );
}
