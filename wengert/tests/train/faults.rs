//! Failures of a run: damaged checkpoints, weights and data that do not match, other trainers,
//! signals.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use wengert::data::safetensors::SafetensorsFile;
use wengert::train::Allow;
use wengert::train::lock::Lock;

fn in_folder(folder: &Path) -> Options<'_> {
    Options { folder: Some(folder), ..Options::default() }
}

fn short() -> Recipe {
    Recipe { length: Length::Steps(20), ..recipe() }
}

/// Runs the short recipe on the given data, and discards the session.
fn train_on(data: &Arrays, recipe: &Recipe, options: Options<'_>) -> Result<Report, TrainError> {
    let mut session = Session::open(Device::Interpreter)?;
    train(&mut session, &program(0.05), recipe, data, options, &mut |_| {})
}

fn flip(path: &Path, bit: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    let bit = (bit % (8 * bytes.len() as u64)) as usize;
    bytes[bit / 8] ^= 1 << (bit % 8);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_damaged_checkpoint_is_told_and_the_older_one_gives_the_same_bits() {
    let place = tempfile::tempdir().unwrap();
    let (whole, begun) = (place.path().join("whole"), place.path().join("begun"));
    let program = program(0.05);
    run(&short(), &program, in_folder(&whole), &mut |_| {}).unwrap();
    let length = Some(Length::Steps(13));
    run(&short(), &program, Options { length, ..in_folder(&begun) }, &mut |_| {}).unwrap();
    // The run that ended after step 13 evaluated there. A longer run does not.
    std::fs::write(begun.join("log.jsonl"), log_up_to(&whole, 13)).unwrap();
    let mut stream = SplitMix64::new(9);
    for _ in 0..20 {
        let damaged = place.path().join("damaged");
        std::fs::create_dir(&damaged).unwrap();
        contents(&begun)
            .iter()
            .for_each(|(name, bytes)| std::fs::write(damaged.join(name), bytes).unwrap());
        let newest = checkpoint::path(&damaged, 13);
        flip(&newest, stream.next_u64());
        let mut told = Vec::new();
        let resume = Options { resume: true, ..in_folder(&damaged) };
        let (report, _) = run(&short(), &program, resume, &mut |event| {
            if let Event::Damaged { path, aside, why, from } = event {
                assert_eq!(
                    (path, from),
                    (newest.as_path(), checkpoint::path(&damaged, 12).as_path())
                );
                assert!(!why.is_empty() && aside.exists() && !path.exists());
                told.push(aside.to_owned());
            }
        })
        .unwrap();
        assert_eq!((report.resumed_at, told.len()), (12, 1));
        std::fs::remove_file(&told[0]).unwrap();
        assert!(contents(&whole) == contents(&damaged));
        std::fs::remove_dir_all(damaged).unwrap();
    }
    flip(&checkpoint::path(&begun, 13), 100_001);
    flip(&checkpoint::path(&begun, 12), 100_002);
    let before = contents(&begun);
    let error = run(&short(), &program, Options { resume: true, ..in_folder(&begun) }, &mut |_| {});
    let error = error.unwrap_err().to_string();
    assert!(error.contains("every checkpoint is damaged"), "{error}");
    let after: Vec<_> = contents(&begun).into_iter().filter(|(name, _)| name != "lock").collect();
    assert!(
        before.into_iter().filter(|(name, _)| name != "lock").eq(after),
        "they are left as they are"
    );
}

fn log_up_to(folder: &Path, step: u64) -> String {
    let log = std::fs::read_to_string(folder.join("log.jsonl")).unwrap();
    let number = |line: &str| line[8..line.find(',').unwrap()].parse::<u64>().unwrap();
    log.split_inclusive('\n').take_while(|line| number(line) <= step).collect()
}

#[test]
fn a_run_that_is_told_to_stop_ends_with_a_checkpoint_and_goes_on_to_the_same_bits() {
    let place = tempfile::tempdir().unwrap();
    let (whole, stopped) = (place.path().join("whole"), place.path().join("stopped"));
    let program = program(0.05);
    run(&short(), &program, in_folder(&whole), &mut |_| {}).unwrap();
    // A stop is requested after a step without a checkpoint, before the first step, and after the
    // last one.
    for (at, resume) in [(10, false), (10, true), (20, true)] {
        let stop = AtomicBool::new(at == 10 && resume);
        let options = Options { stop: Some(&stop), resume, ..in_folder(&stopped) };
        let ended = run(&short(), &program, options, &mut |event| {
            if matches!(event, Event::Step(record) if record.step == at) {
                stop.store(true, Ordering::SeqCst);
            }
        });
        match (at, ended) {
            (10, Err(TrainError::Stopped(diagnostic))) => {
                let text = diagnostic.to_string();
                assert!(text.contains("stopped after step 10 of 20 with checkpoint"), "{text}");
                assert_eq!(checkpoint::read(&stopped).unwrap().unwrap().progress.step, 10);
            }
            (20, Ok((report, _))) => assert_eq!(report.resumed_at, 10),
            (_, other) => panic!("{:?}", other.map(|(report, _)| report)),
        }
    }
    assert!(contents(&whole) == contents(&stopped));
}

#[test]
fn a_folder_that_is_not_as_it_should_be_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    let fails = |options: Options<'_>, text: &str| {
        let error = train_on(&data(), &short(), options).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    let (none, empty) = (place.path().join("none"), place.path().join("empty"));
    std::fs::create_dir(&empty).unwrap();
    for folder in [&none, &empty] {
        fails(Options { resume: true, ..in_folder(folder) }, "there is no checkpoint in");
    }
    assert!(!none.exists() && contents(&empty).is_empty(), "nothing is made where there is no run");
    std::fs::create_dir(empty.join("log.jsonl")).unwrap();
    fails(in_folder(&empty), "log.jsonl` is no regular file");
    let locked = place.path().join("locked");
    std::fs::create_dir(&locked).unwrap();
    let lock = Lock::take(&locked).unwrap();
    fails(in_folder(&locked), "another trainer (process");
    drop(lock);
    train_on(&data(), &short(), in_folder(&locked)).unwrap();

    // The folder or its log is deleted in the middle of a run.
    let mut session = Session::open(Device::Interpreter).unwrap();
    let folder = place.path().join("deleted");
    for (file, text) in [("", "was deleted or replaced"), ("log.jsonl", "log.jsonl` was deleted")] {
        let options = in_folder(&folder);
        let error = train(&mut session, &program(0.05), &short(), &data(), options, &mut |event| {
            if matches!(event, Event::Step(record) if record.step == 5) {
                match file {
                    "" => std::fs::remove_dir_all(&folder).unwrap(),
                    file => std::fs::remove_file(folder.join(file)).unwrap(),
                }
            }
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn names_of_weights_are_checked() {
    let place = tempfile::tempdir().unwrap();
    let mut session = Session::open(Device::Interpreter).unwrap();
    let w = Literal::from_vec(&[3], vec![1.0f32, 2.0, 3.0]).unwrap();
    let given =
        |names: &[&str]| -> Arrays { names.iter().map(|n| (n.to_string(), w.clone())).collect() };
    let mut train_from = |weights: &Arrays, partial: bool| {
        let mut told = None;
        let length = Some(Length::Steps(1));
        let options = Options { weights: Some(weights), partial, length, ..Options::default() };
        let report =
            train(&mut session, &program(0.0), &recipe(), &data(), options, &mut |event| {
                if let Event::Partial { differences } = event {
                    told = Some(differences.clone());
                }
            });
        let w = session.variable("w").unwrap();
        // Noise of the order of 1e-2 is added.
        report.map(|_| (told, w.as_slice::<f32>().unwrap()[0].round()))
    };
    // The weights that a run writes are accepted, without the momentum. So is the content of a
    // whole checkpoint.
    assert_eq!(train_from(&given(&["w"]), false).unwrap(), (None, 1.0));
    assert_eq!(train_from(&given(&["w", "m"]), false).unwrap(), (None, 1.0));
    let error = train_from(&given(&["v"]), false).unwrap_err().to_string();
    assert!(error.contains("no variable has the name `v` (did you mean `w`?)"), "{error}");
    assert!(error.contains("variable `w` has no value") && error.contains("--partial"), "{error}");
    let error = train_from(&given(&["m"]), false).unwrap_err().to_string();
    assert!(error.contains("variable `w` has no value"), "{error}");
    let (told, w0) = train_from(&given(&["v", "m"]), true).unwrap();
    let told = told.unwrap();
    assert_eq!((told.unknown[0].0.as_str(), told.missing.as_slice()), ("v", &["w".to_owned()][..]));
    assert_eq!(w0, 0.0, "it begins as `init` makes it");
    let short = Arrays::from([("w".to_owned(), Literal::zeros(DType::F32, &[2]))]);
    let error = train_from(&short, true).unwrap_err().to_string();
    assert!(error.contains("`w` is f32[3], the weights in the file have f32[2]"), "{error}");

    // A session's own variables are accepted.
    let path = place.path().join("w.safetensors");
    let mut load = |names: &[&str], partial: bool| {
        let arrays = given(names);
        safetensors::write(&path, arrays.iter().map(|(name, value)| (name.as_str(), value)))
            .unwrap();
        if partial {
            session.load_partial(&path).map(Some)
        } else {
            session.load(&path).map(|()| None)
        }
    };
    assert_eq!(load(&["w", "m"], false).unwrap(), None);
    let error = load(&["w", "n"], false).unwrap_err().to_string();
    assert!(
        error.contains("the name `n` (did you mean `m`?)") && error.contains("load_partial"),
        "{error}"
    );
    assert!(load(&["w"], false).unwrap_err().to_string().contains("`m` has no value"));
    let differences = load(&["w", "n"], true).unwrap().unwrap();
    assert_eq!((differences.unknown.len(), differences.missing.len()), (1, 1));
    assert_eq!(session.variables().unwrap().len(), 2);
    let mut empty = Session::open(Device::Interpreter).unwrap();
    empty.load(&path).unwrap();
    assert_eq!(
        empty.variables().unwrap(),
        SafetensorsFile::open(&path).unwrap().read_all().unwrap()
    );
}

#[test]
fn nan_in_the_data_is_told_before_training_and_is_not_blamed_on_the_learning_rate() {
    let folder = tempfile::tempdir().unwrap();
    let mut spoilt = data();
    let mut y = spoilt["y_train"].as_slice::<f32>().unwrap().to_vec();
    y[17] = f32::NAN;
    spoilt.insert("y_train".into(), Literal::from_vec(&[50], y).unwrap());
    let file = Path::new("data.npz");
    let options = Options { data_file: Some(file), ..in_folder(folder.path()) };
    let error = train_on(&spoilt, &short(), options).unwrap_err();
    assert!(matches!(error, TrainError::Failed(_)), "{error:?}");
    assert!(
        error.to_string().contains("`y_train` of `data.npz`, row 17: NaN is not finite"),
        "{error}"
    );
    assert!(contents(folder.path()).is_empty(), "nothing was begun");
    let options = Options { allow: Allow { non_finite: true, out_of_range: false }, ..options };
    let error = train_on(&spoilt, &short(), options).unwrap_err();
    assert!(matches!(error, TrainError::Diverged(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("the data are at fault: `y_train` has NaN in row 17"), "{text}");
    assert!(!text.contains("learning rate"), "{text}");
}

#[test]
fn a_metric_that_is_no_number_is_a_failure() {
    let mut program = program(0.05);
    program
        .function("ratio", |f| {
            let x = f.input("x", TensorType::new(DType::F32, [Dim::from("B"), Dim::from(3usize)]));
            let w = f.param(
                "w",
                Tensor::variable(TensorType::new(DType::F32, [3usize]), Initializer::Zeros),
            );
            let none = &(&x.dot(&w) - &x.dot(&w)).sum();
            f.output("squares", none / none);
        })
        .unwrap();
    let mut recipe = short();
    let evaluate = recipe.evaluate.as_mut().unwrap();
    evaluate.function = "ratio".into();
    evaluate.inputs.pop();
    let mut session = Session::open(Device::Interpreter).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let error =
        train(&mut session, &program, &recipe, &data(), in_folder(folder.path()), &mut |_| {});
    let error = error.unwrap_err();
    assert!(matches!(error, TrainError::Diverged(_)), "{error:?}");
    assert!(error.to_string().contains("metric `mse` is NaN after step 20"), "{error}");
    assert!(!folder.path().join("weights.safetensors").exists());
}

/// A classifier of three classes by a table. Its labels are converted from another dtype.
#[test]
fn labels_that_are_no_class_do_not_train() {
    let mut program = Program::new();
    program
        .function("init", |f| f.create("w", &Tensor::constant(Literal::zeros(DType::F32, &[4, 3]))))
        .unwrap();
    program
        .function("step", |f| {
            let batch = || TensorType::new(DType::I32, [Dim::from("B")]);
            let (word, label) = (f.input("word", batch()), f.input("label", batch()));
            let w = f.state("w", Tensor::constant(Literal::zeros(DType::F32, &[4, 3])));
            let logits = w.gather_rows(&word);
            f.output("loss", logits.softmax_cross_entropy(&label).mean());
            f.update("w", &(&w * 0.9));
        })
        .unwrap();
    let to_i32 = |input: &str| InputRecipe::new(input, input).then(Transform::Convert(DType::I32));
    let recipe = Recipe {
        step: StepRecipe {
            function: "step".into(),
            inputs: vec![to_i32("word"), to_i32("label")],
            loss: "loss".into(),
        },
        evaluate: None,
        batches: Batches { size: 4, shuffle: None, blocks: None, last: LastBatch::Drop },
        length: Length::Steps(1),
        ..recipe()
    };
    let column = |values: [f64; 4]| Literal::from_vec(&[4], values.to_vec()).unwrap();
    let train_on = |words: Literal, labels: Literal, allow: Allow| {
        let data = Arrays::from([("word".into(), words), ("label".into(), labels)]);
        let mut session = Session::open(Device::Cpu).unwrap();
        let options = Options { allow, ..Options::default() };
        train(&mut session, &program, &recipe, &data, options, &mut |_| {})
            .map(|report| report.steps)
    };
    let (words, labels) = (|| column([0.0, 1.0, 2.0, 3.0]), || column([0.0, 1.0, 2.0, 0.0]));
    assert_eq!(train_on(words(), labels(), Allow::default()).unwrap(), 1);
    for (spoilt, says) in [
        (
            column([0.0, 1.0, 2.0, 3.0]),
            "row 3: 3 is out of range: input `label` has values from 0 to 2",
        ),
        (column([0.0, -1.0, 2.0, 0.0]), "row 1: -1 is out of range"),
        (column([0.0, 0.5, 2.0, 0.0]), "row 1: 0.5 is no i32"),
        (column([0.0, 1.0, f64::NAN, 0.0]), "row 2: NaN is not finite"),
        (
            Literal::from_vec(&[4], vec![0i64, 1 << 40, 2, 0]).unwrap(),
            "row 1: 1099511627776 is no i32",
        ),
    ] {
        let error = train_on(words(), spoilt, Allow::default()).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("`label`"), "{error}");
        assert!(!error.contains("learning rate"), "{error}");
    }
    let error =
        train_on(column([0.0, 4.0, 2.0, 3.0]), labels(), Allow::default()).unwrap_err().to_string();
    assert!(
        error.contains("row 1: 4 is out of range: input `word` has values from 0 to 3"),
        "{error}"
    );
    assert!(error.contains("faults.rs:") && error.contains("used by gather here"), "{error}");
    let allow = Allow { out_of_range: true, ..Allow::default() };
    assert_eq!(train_on(column([0.0, 4.0, 2.0, 3.0]), labels(), allow).unwrap(), 1);
}
