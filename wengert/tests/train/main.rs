//! Training: the inputs of a step, resuming, divergence, and runs that are killed.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod faults;
mod find_rate;
mod monitoring;
mod parts;
mod ranks;
mod scaled;
mod shards;
mod streamed;

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use wengert::core::graph::Program;
use wengert::core::{Initializer, Tensor};
use wengert::data::{Arrays, safetensors};
use wengert::optim::{GRAD_NORM, Rate, Sgd, global_norm};
use wengert::random::SplitMix64;
use wengert::recipe::{
    Aggregate, Batches, Cadence, EvaluateRecipe, InputRecipe, LastBatch, Length, Metric,
    Monitoring, Recipe, StepRecipe, Transform,
};
use wengert::train::batches::Schedule;
use wengert::train::{Event, Flow, Options, Report, TrainError, checkpoint, evaluate, train};
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
        batches: Batches { size: 8, shuffle: Some(11), blocks: None, last: LastBatch::Smaller },
        length: Length::Epochs(40),
        checkpoint: Cadence::Steps(3),
        key_seed: 5,
        microbatches: 1,
        precision: None,
        monitoring: Monitoring::default(),
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

/// A log without its times, the last two fields of a step.
fn timeless(log: &str) -> String {
    let line = |line: &str| match line.split_once(",\"examples_per_second\":") {
        Some((kept, _)) => format!("{kept}}}\n"),
        None => line.to_owned(),
    };
    log.split_inclusive('\n').map(line).collect()
}

/// The files of a folder, the log without times.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let bytes = std::fs::read(entry.path()).unwrap();
            match name.as_str() {
                "log.jsonl" => (name, timeless(&String::from_utf8(bytes).unwrap()).into_bytes()),
                _ => (name, bytes),
            }
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
        Event::Step(record) => {
            steps.push(record.loss);
            assert_eq!(record.step, steps.len() as u64);
        }
        Event::Epoch { loss, last, steps: count, examples, .. } => {
            epochs.push(loss);
            assert_eq!((count, examples, last.step), (7, 50, steps.len() as u64));
        }
        Event::Evaluation { .. } => evaluations += 1,
        Event::Checkpoint { .. } => checkpoints += 1,
        Event::Partial { .. } | Event::Damaged { .. } | Event::EarlyStop { .. } => {
            panic!("{event:?}")
        }
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

/// The step of `program`, with the outputs that a record takes.
fn reporting(rate: f32) -> Program {
    let mut program = program(rate);
    let w = || Tensor::variable(TensorType::new(DType::F32, [3usize]), Initializer::Zeros);
    program
        .function("reporting", |f| {
            let x = f.input("x", TensorType::new(DType::F32, [Dim::from("B"), Dim::from(3usize)]));
            let y = f.input("y", TensorType::new(DType::F32, [Dim::from("B")]));
            let w = f.state("w", w());
            let error = &x.dot(&w) - &y;
            let gradient = 2.0 * &error.dot(&x);
            f.output(GRAD_NORM, global_norm(&gradient));
            f.output("bias", error.sum());
            f.output("errors", &error);
            f.output("loss", (&error * &error).sum());
            Sgd::new(Rate::scheduled(move |step| f64::from(rate) / step))
                .report_rate()
                .step(f, &w, &gradient);
        })
        .unwrap();
    program
}

#[test]
fn records_have_the_outputs_of_the_step_that_are_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let mut recipe = recipe();
    recipe.step.function = "reporting".into();
    // The state of the optimiser is made by no function `init` of this program.
    recipe.init = Some("begin".into());
    let mut program = reporting(0.05);
    program
        .function("begin", |f| {
            f.create("w", &Tensor::constant(Literal::zeros(DType::F32, &[3])));
            f.create("sgd.step", &Tensor::constant(0i32));
        })
        .unwrap();
    recipe.length = Length::Steps(9);
    let options = Options { folder: Some(folder.path()), ..Options::default() };
    let mut records = Vec::new();
    run(&recipe, &program, options, &mut |event| {
        if let Event::Step(record) = event {
            records.push(record.clone());
        }
    })
    .unwrap();
    let names: Vec<&str> = records[0].metrics.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((records.len(), names), (9, vec!["bias"]));
    let rates: Vec<f64> = records.iter().map(|r| r.learning_rate.unwrap()).collect();
    assert_eq!(rates[..3], [0.05f32, 0.05 / 2.0, 0.05 / 3.0].map(f64::from));
    // The first step has w = 0: its gradient is −2 Σ y x, its loss Σ y², its bias −Σ y.
    let (data, mut schedule) = (data(), Schedule::new(50, recipe.batches).unwrap());
    let (x, y) = (&data["x_train"], &data["y_train"]);
    let (mut gradient, mut loss, mut bias) = ([0.0f64; 3], 0.0, 0.0);
    for row in schedule.rows(0) {
        let target = y.get(*row).to_f64();
        for (i, sum) in gradient.iter_mut().enumerate() {
            *sum -= 2.0 * target * x.get(row * 3 + i).to_f64() / 256.0;
        }
        loss += target * target;
        bias -= target;
    }
    let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
    let first = &records[0];
    for (found, wanted) in
        [(first.grad_norm.unwrap(), norm), (first.loss, loss), (first.metrics[0].1, bias)]
    {
        assert!((found - wanted).abs() < 1e-5 * wanted.abs().max(1.0), "{found}, not {wanted}");
    }
    assert_eq!((first.examples, records[6].examples), (8, 2));
    assert!(records.iter().all(|r| r.time > Duration::ZERO && r.examples_per_second() > 0.0));
    let log = std::fs::read_to_string(folder.path().join("log.jsonl")).unwrap();
    let line = log.lines().next().unwrap();
    let found: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(found["grad_norm"].as_f64().map(|n| n as f32), first.grad_norm.map(|n| n as f32));
    assert_eq!(found["learning_rate"], 0.05);
    assert!(found["metrics"]["bias"].is_number() && found["seconds"].as_f64().unwrap() > 0.0);
}

#[test]
fn an_observer_ends_a_run_as_its_last_step_does() {
    let (short, stopped) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let program = program(0.05);
    let options = |folder| Options { folder: Some(folder), ..Options::default() };
    let length = Some(Length::Steps(10));
    let (ordinary, _) =
        run(&recipe(), &program, Options { length, ..options(short.path()) }, &mut |_| {}).unwrap();
    assert!(!ordinary.stopped);
    let mut session = Session::open(Device::Cpu).unwrap();
    let report =
        train(&mut session, &program, &recipe(), &data(), options(stopped.path()), &mut |event| {
            match event {
                Event::Step(record) if record.step == 10 => Flow::Stop,
                _ => Flow::GoOn,
            }
        })
        .unwrap();
    assert_eq!(report, Report { stopped: true, ..ordinary.clone() });
    assert!(contents(short.path()) == contents(stopped.path()));
    // Without a folder.
    let late =
        train(&mut session, &program, &recipe(), &data(), Options::default(), &mut |event| {
            match event {
                Event::Epoch { epoch: 1, .. } => Flow::Stop,
                _ => Flow::GoOn,
            }
        })
        .unwrap();
    assert_eq!((late.steps, late.stopped, late.metrics.len()), (14, true, 1));
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
fn an_evaluation_equals_that_of_training() {
    let program = program(0.05);
    let (report, session) = run(&recipe(), &program, Options::default(), &mut |_| {}).unwrap();
    let weights = session.variables().unwrap();
    let mut other = Session::open(Device::Cpu).unwrap();
    fn options(weights: &Arrays) -> Options<'_> {
        Options { weights: Some(weights), ..Options::default() }
    }
    let found = evaluate(&mut other, &program, &recipe(), &data(), options(&weights)).unwrap();
    assert_eq!((found.examples, &found.metrics), (50, &report.metrics));
    // The mean over examples, by a plain loop.
    let (data, w) = (data(), weights["w"].clone());
    let (x, y) = (&data["x_train"], &data["y_train"]);
    let squares = (0..50).map(|row| {
        let sum: f64 =
            (0..3).map(|i| x.get(row * 3 + i).to_f64() / 256.0 * w.get(i).to_f64()).sum();
        (sum - y.get(row).to_f64()).powi(2)
    });
    let mean = squares.sum::<f64>() / 50.0;
    assert!((found.metrics[0].1 - mean).abs() < 1e-6, "{found:?}, not {mean}");

    let mut fails = |recipe: &Recipe, weights: &Arrays, text: &str| {
        let error = evaluate(&mut other, &program, recipe, &data, options(weights))
            .unwrap_err()
            .to_string();
        assert!(error.contains(text), "{error}");
    };
    fails(&Recipe { evaluate: None, ..recipe() }, &weights, "the recipe has no evaluation");
    fails(&recipe(), &Arrays::new(), "the variables of `@evaluate` have no values");
    let wide = Arrays::from([("w".to_owned(), Literal::zeros(DType::F32, &[4]))]);
    fails(&recipe(), &wide, "variable `w` is f32[3], the weights in the file have f32[4]");
    let misspelt = Arrays::from([("v".to_owned(), Literal::zeros(DType::F32, &[3]))]);
    fails(&recipe(), &misspelt, "variable `w` has no value");
    let nan = Arrays::from([("w".to_owned(), Literal::full(&[3], Scalar::of(f32::NAN)))]);
    fails(&recipe(), &nan, "metric `mse` is NaN");
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

/// Starts a test as a child that trains, kills it at random moments, and compares with an
/// uninterrupted run. The child calls this function, too.
fn is_killed(test: &str, program: &Program, recipe: &Recipe) {
    const CHILD: &str = "WENGERT_TEST_TRAIN_FOLDER";
    if let Some(folder) = std::env::var_os(CHILD) {
        let folder: &Path = folder.as_ref();
        let resume = checkpoint::list(folder).is_ok_and(|found| !found.is_empty());
        let options = Options { folder: Some(folder), resume, ..Options::default() };
        // A pause after each step leaves time to kill the run in the middle.
        run(recipe, program, options, &mut |_| std::thread::sleep(Duration::from_micros(300)))
            .unwrap();
        return;
    }
    let (whole, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = Options { folder: Some(whole.path()), ..Options::default() };
    run(recipe, program, options, &mut |_| {}).unwrap();
    let start = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test])
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

#[test]
fn runs_that_are_killed_end_with_the_same_bits() {
    is_killed("runs_that_are_killed_end_with_the_same_bits", &program(0.05), &recipe());
}

#[test]
fn runs_in_f16_that_are_killed_end_with_the_same_bits() {
    let program = scaled::program(scaled::often(), 256.0);
    is_killed("runs_in_f16_that_are_killed_end_with_the_same_bits", &program, &recipe());
}
