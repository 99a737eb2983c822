//! Training: the inputs of a step, resuming, divergence, and runs that are killed.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod faults;

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use wengert::core::graph::Program;
use wengert::core::{Initializer, Tensor};
use wengert::data::{Arrays, safetensors};
use wengert::random::SplitMix64;
use wengert::recipe::{
    Aggregate, Batches, Cadence, EvaluateRecipe, InputRecipe, LastBatch, Length, Metric, Recipe,
    StepRecipe, Transform,
};
use wengert::train::{Event, Options, Report, TrainError, checkpoint, train};
use wengert::{DType, Device, Dim, Literal, Scalar, Session, TensorType};

/// Linear regression with momentum and a little noise from the step's key. Its gradient is written
/// by hand.
fn program(rate: f32) -> Program {
    let w = || Tensor::variable(TensorType::new(DType::F32, [3usize]), Initializer::Zeros);
    let x = || TensorType::new(DType::F32, [Dim::from("B"), Dim::from(3usize)]);
    let y = || TensorType::new(DType::F32, [Dim::from("B")]);
    let mut program = Program::new();
    let noise = |key: &Tensor| 1e-12 * &key.convert(DType::F32).sum();
    program
        .function("init", |f| {
            let key = f.key("key");
            let zeros = Tensor::constant(Literal::zeros(DType::F32, &[3]));
            f.create("w", &(&zeros + &noise(&key)));
            f.create("m", &(&zeros * &noise(&key)));
        })
        .unwrap();
    program
        .function("step", |f| {
            let (x, y, key) = (f.input("x", x()), f.input("y", y()), f.key("key"));
            let (w, m) = (f.state("w", w()), f.state("m", w()));
            let error = &x.dot(&w) - &y;
            let gradient = 2.0 * &error.dot(&x);
            let m = &(0.5 * &m) + &gradient;
            f.update("m", &m);
            f.update("w", &(&(&w - &(&m * rate)) + &noise(&key)));
            f.output("loss", (&error * &error).sum());
        })
        .unwrap();
    program
        .function("evaluate", |f| {
            let (x, y, w) = (f.input("x", x()), f.input("y", y()), f.param("w", w()));
            let error = &x.dot(&w) - &y;
            f.output("squares", (&error * &error).sum());
        })
        .unwrap();
    program
}

fn data() -> Arrays {
    let mut stream = SplitMix64::new(4);
    let x: Vec<u8> = (0..50 * 3).map(|_| stream.below(256) as u8).collect();
    let y: Vec<f32> = x
        .chunks(3)
        .map(|r| (r[0] as f32 - 2.0 * r[1] as f32 + 0.5 * r[2] as f32) / 256.0)
        .collect();
    Arrays::from([
        ("x_train".into(), Literal::from_vec(&[50, 3], x).unwrap()),
        ("y_train".into(), Literal::from_vec(&[50], y).unwrap()),
    ])
}

fn recipe() -> Recipe {
    let inputs = vec![
        InputRecipe::new("x", "x_train")
            .then(Transform::Convert(DType::F32))
            .then(Transform::Scale(Scalar::of(1.0f32 / 256.0))),
        InputRecipe::new("y", "y_train"),
    ];
    Recipe {
        init: Some("init".into()),
        step: StepRecipe { function: "step".into(), inputs: inputs.clone(), loss: "loss".into() },
        evaluate: Some(EvaluateRecipe {
            function: "evaluate".into(),
            inputs,
            batch_size: 20,
            metrics: vec![Metric {
                name: "mse".into(),
                output: "squares".into(),
                aggregate: Aggregate::PerExample,
            }],
            every: Cadence::Epochs(5),
        }),
        batches: Batches { size: 8, shuffle: Some(11), last: LastBatch::Smaller },
        length: Length::Epochs(40),
        checkpoint: Cadence::Steps(3),
        key_seed: 5,
    }
}

fn run(
    recipe: &Recipe,
    program: &Program,
    options: Options<'_>,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<(Report, Session), TrainError> {
    let mut session = Session::open(Device::Cpu)?;
    let report = train(&mut session, program, recipe, &data(), options, observe)?;
    Ok((report, session))
}

fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn a_run_learns_reports_and_writes_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut steps = Vec::new();
    let (mut epochs, mut evaluations, mut checkpoints) = (Vec::new(), 0, 0);
    let options = Options { folder: Some(folder.path()), ..Options::default() };
    let (report, session) = run(&recipe(), &program(0.05), options, &mut |event| match event {
        Event::Start { step, total, steps_per_epoch } => {
            assert_eq!((step, total, steps_per_epoch), (0, 280, 7))
        }
        Event::Step { step, loss, .. } => {
            steps.push(loss);
            assert_eq!(step, steps.len() as u64);
        }
        Event::Epoch { loss, .. } => epochs.push(loss),
        Event::Evaluation { .. } => evaluations += 1,
        Event::Checkpoint { .. } => checkpoints += 1,
        Event::Partial { .. } | Event::Damaged { .. } => panic!("{event:?}"),
    })
    .unwrap();
    assert_eq!(
        (report.steps, steps.len(), epochs.len(), evaluations, checkpoints),
        (280, 280, 40, 8, 94)
    );
    assert_eq!(report.metrics[0].0, "mse");
    assert!(report.metrics[0].1 < 1e-3 && epochs[39] < epochs[0] / 100.0, "{report:?}");
    let w = session.variable("w").unwrap();
    for (w, wanted) in w.as_slice::<f32>().unwrap().iter().zip([1.0, -2.0, 0.5]) {
        assert!((w - wanted).abs() < 0.1, "{w} is not {wanted}");
    }
    let names: Vec<_> = contents(folder.path()).into_iter().map(|(name, _)| name).collect();
    let checkpoints = ["checkpoint-000000279.safetensors", "checkpoint-000000280.safetensors"];
    assert_eq!(names, [&checkpoints[..], &["lock", "log.jsonl", "weights.safetensors"]].concat());
    // `evaluate` needs `w` only.
    let weights =
        safetensors::SafetensorsFile::open(folder.path().join("weights.safetensors")).unwrap();
    assert_eq!(weights.read_all().unwrap(), [("w".to_owned(), w)].into());
    // A run without a folder gives the same numbers.
    let (again, other) = run(&recipe(), &program(0.05), Options::default(), &mut |_| {}).unwrap();
    assert_eq!((again, other.variables().unwrap()), (report, session.variables().unwrap()));
}

#[test]
fn resuming_is_exact_and_guarded() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let program = program(0.05);
    let options = |folder| Options { folder: Some(folder), ..Options::default() };
    run(&recipe(), &program, options(whole.path()), &mut |_| {}).unwrap();
    for steps in [10, 11, 33, 280] {
        let length = Some(Length::Steps(steps));
        let options = Options { length, resume: steps > 10, ..options(parts.path()) };
        let (report, _) = run(&recipe(), &program, options, &mut |_| {}).unwrap();
        assert_eq!(report.steps, steps);
    }
    // The final evaluations of the parts add lines to their log. All other lines are equal.
    let (whole_files, mut part_files) = (contents(whole.path()), contents(parts.path()));
    let place = part_files.iter().position(|(name, _)| name == "log.jsonl").unwrap();
    let log = String::from_utf8(part_files[place].1.clone()).unwrap();
    let kept = log.split_inclusive('\n').filter(|line| {
        !["10", "11", "33"]
            .iter()
            .any(|s| line.contains(&format!("\"step\":{s},")) && line.contains("evaluation"))
    });
    part_files[place].1 = kept.collect::<String>().into_bytes();
    assert!(whole_files == part_files);

    let fails = |options: Options<'_>, recipe: &Recipe, text: &str| {
        let error = run(recipe, &program, options, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    fails(options(whole.path()), &recipe(), "already holds a run");
    let resume = Options { resume: true, ..options(whole.path()) };
    fails(
        Options { length: Some(Length::Steps(9)), ..resume },
        &recipe(),
        "has 280 steps, more than 9",
    );
    let mut other = recipe();
    other.batches.shuffle = Some(12);
    fails(resume, &other, "another program or recipe");
    // The number of steps and the intervals are not part of a run's identity.
    other = recipe();
    other.length = Length::Steps(280);
    other.checkpoint = Cadence::Never;
    let (report, _) = run(&other, &program, resume, &mut |_| {}).unwrap();
    assert_eq!((report.resumed_at, report.metrics.len()), (280, 1));
    let mut session = Session::open(Device::Cpu).unwrap();
    let mut changed = data();
    changed.insert("y_train".into(), Literal::zeros(DType::F32, &[50]));
    let error =
        train(&mut session, &program, &recipe(), &changed, resume, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("other data"), "{error}");
}

#[test]
fn divergence_ends_the_run_and_keeps_the_last_good_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { folder: Some(folder.path()), ..Options::default() };
    let error = run(&recipe(), &program(1e6), options, &mut |_| {}).unwrap_err();
    let TrainError::Diverged(diagnostic) = &error else { panic!("{error}") };
    assert!(diagnostic.message.contains("the loss is"), "{diagnostic}");
    let help = diagnostic.help.as_ref().unwrap();
    assert!(
        help.contains("/checkpoint-0000000") && help.contains("smaller learning rate"),
        "{diagnostic}"
    );
    let kept = checkpoint::read(folder.path()).unwrap().unwrap();
    assert!(kept.progress.step > 0 && kept.progress.step.is_multiple_of(3));
    assert!(
        kept.variables.values().all(|v| v.as_slice::<f32>().unwrap().iter().all(|x| !x.is_nan()))
    );
    assert!(!folder.path().join("weights.safetensors").exists());
}

#[test]
fn recipes_that_do_not_fit_are_named() {
    let fails = |change: &dyn Fn(&mut Recipe), text: &str| {
        let mut recipe = recipe();
        change(&mut recipe);
        let error =
            run(&recipe, &program(0.05), Options::default(), &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    fails(&|r| r.step.function = "train".into(), "recipe: there is no function `@train`");
    fails(&|r| r.step.inputs[0].input = "z".into(), "`@step` has no data input `z`");
    fails(&|r| drop(r.step.inputs.pop()), "input `y` of `@step` has no array");
    fails(&|r| r.step.loss = "cost".into(), "`@step` has no output `cost`");
    fails(
        &|r| r.evaluate.as_mut().unwrap().metrics[0].output = "loss".into(),
        "`@evaluate` has no output `loss`",
    );
    fails(&|r| r.step.inputs[0].array = "images".into(), "the data has no array `images`");
    fails(
        &|r| r.step.inputs[0].transforms.clear(),
        "input `x` is f32[B,3], the tensor given is u8[8,3]",
    );
    fails(&|r| r.batches.size = 0, "batch size");
    fails(&|r| r.length = Length::Epochs(u64::MAX), "more steps than can be counted");
}

/// Starts itself as a child that trains, kills it at random moments, and compares with an
/// uninterrupted run.
#[test]
fn runs_that_are_killed_end_with_the_same_bits() {
    const CHILD: &str = "WENGERT_TEST_TRAIN_FOLDER";
    if let Some(folder) = std::env::var_os(CHILD) {
        let folder: &Path = folder.as_ref();
        let resume = checkpoint::list(folder).is_ok_and(|found| !found.is_empty());
        let options = Options { folder: Some(folder), resume, ..Options::default() };
        // A pause after each step leaves time to kill the run in the middle.
        run(&recipe(), &program(0.05), options, &mut |_| {
            std::thread::sleep(Duration::from_micros(300))
        })
        .unwrap();
        return;
    }
    let (whole, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = Options { folder: Some(whole.path()), ..Options::default() };
    run(&recipe(), &program(0.05), options, &mut |_| {}).unwrap();
    let start = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "runs_that_are_killed_end_with_the_same_bits"])
            .env(CHILD, killed.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut stream = SplitMix64::new(std::process::id().into());
    let mut kills = 0;
    for _ in 0..20 {
        let mut child = start();
        std::thread::sleep(Duration::from_micros(stream.below(40_000)));
        child.kill().unwrap();
        kills += u32::from(!child.wait().unwrap().success());
    }
    assert!(start().wait().unwrap().success());
    assert!(kills >= 5, "{kills} of 20 children were killed before they were done");
    assert!(contents(whole.path()) == contents(killed.path()), "after {kills} kills");
}
