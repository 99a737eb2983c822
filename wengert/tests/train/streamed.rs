//! Data that are read from files while a run trains: the bits of data in memory, resuming within
//! an epoch, and rows that are bad.

use crate::{contents, data, program, recipe};
use std::path::Path;
use wengert::data::source::{RawArrays, Source};
use wengert::data::{Arrays, npy, safetensors};
use wengert::recipe::{Batches, Blocks, Cadence, LastBatch, Length, Recipe};
use wengert::train::{Allow, Event, Options, Report, TrainError, evaluate, train};
use wengert::{Device, Literal, Session};

/// The arrays as .npy files of a folder, and as a .safetensors file.
fn files(arrays: &Arrays, folder: &Path) -> (RawArrays, RawArrays) {
    for (name, array) in arrays {
        npy::write(folder.join(format!("{name}.npy")), array).unwrap();
    }
    let file = folder.join("all.safetensors");
    safetensors::write(&file, arrays.iter().map(|(k, v)| (k.as_str(), v))).unwrap();
    (RawArrays::open(folder).unwrap(), RawArrays::open(&file).unwrap())
}

fn run(
    recipe: &Recipe,
    data: &dyn Source,
    options: Options<'_>,
) -> Result<(Report, Arrays), TrainError> {
    let mut session = Session::open(Device::Cpu)?;
    let report = train(&mut session, &program(0.05), recipe, data, options, &mut |_| {})?;
    Ok((report, session.variables()?))
}

/// 50 examples in batches of 8: an epoch has 7 steps.
fn short() -> Recipe {
    Recipe { length: Length::Steps(40), ..recipe() }
}

/// Recipes that read in every way.
fn recipes() -> Vec<Recipe> {
    let blocks = |rows, window| Some(Blocks { rows, window });
    let mut all = Vec::new();
    for (shuffle, blocks) in [
        (Some(11), None),
        (None, None),
        (Some(11), blocks(6, 2)),
        (Some(11), blocks(1, 5)),
        (Some(11), blocks(100, 1)),
    ] {
        let batches = Batches { size: 8, shuffle, blocks, last: LastBatch::Smaller };
        all.push(Recipe { batches, ..short() });
        let mut noisy = Recipe { batches, ..short() };
        noisy.step.inputs[0].transforms.push("flip 1".parse().unwrap());
        all.push(noisy);
    }
    all
}

#[test]
fn files_give_the_bits_of_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (npy, safetensors) = files(&data(), folder.path());
    for recipe in recipes() {
        let wanted = run(&recipe, &data(), Options::default()).unwrap();
        for threads in [1, 4] {
            let options = Options { data_threads: Some(threads), ..Options::default() };
            for source in [&npy as &dyn Source, &safetensors] {
                let found = run(&recipe, source, options).unwrap();
                assert!(found == wanted, "{recipe}");
            }
        }
    }
    // Without blocks, orders are those of earlier versions; blocks give others.
    let variables: Vec<Arrays> = recipes()
        .iter()
        .map(|recipe| run(recipe, &data(), Options::default()).unwrap().1)
        .collect();
    for (i, a) in variables.iter().enumerate() {
        assert!(variables[..i].iter().all(|b| a["w"] != b["w"]), "recipe {i}");
    }
}

#[test]
fn a_run_resumes_within_an_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let (source, other) = files(&data(), folder.path());
    for (number, recipe) in recipes().into_iter().enumerate() {
        let recipe = Recipe { checkpoint: Cadence::Steps(5), evaluate: None, ..recipe };
        let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        run(&recipe, &source, Options { folder: Some(whole.path()), ..Options::default() })
            .unwrap();
        for steps in [3, 11, 13, 40] {
            let options = Options {
                folder: Some(parts.path()),
                resume: steps > 3,
                length: Some(Length::Steps(steps)),
                data_threads: Some(steps as usize % 3 + 1),
                ..Options::default()
            };
            // The data are the same, wherever they are.
            let source: &dyn Source = if steps == 11 { &other } else { &source };
            run(&recipe, source, options).unwrap();
        }
        assert!(contents(whole.path()) == contents(parts.path()), "recipe {number}");
    }
}

#[test]
fn other_data_and_orders_are_not_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let (source, _) = files(&data(), folder.path());
    let place = tempfile::tempdir().unwrap();
    let options = Options { folder: Some(place.path()), ..Options::default() };
    run(&short(), &source, options).unwrap();
    let resume = Options { resume: true, ..options };
    assert!(run(&short(), &data(), resume).is_ok());
    let fails = |recipe: &Recipe, data: &dyn Source, says: &str| {
        let error = run(recipe, data, resume).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    let mut changed = data();
    changed.insert("y_train".into(), Literal::zeros(wengert::DType::F32, &[50]));
    let elsewhere = tempfile::tempdir().unwrap();
    fails(&short(), &files(&changed, elsewhere.path()).0, "other data");
    let mut blocks = short();
    blocks.batches.blocks = Some(Blocks { rows: 5, window: 2 });
    fails(&blocks, &source, "another program or recipe");
    let mut flipped = short();
    flipped.step.inputs[0].transforms.push("flip 1".parse().unwrap());
    fails(&flipped, &source, "another program or recipe");
}

#[test]
fn bad_rows_end_a_run_at_their_step() {
    let mut bad = data();
    let mut y = bad["y_train"].as_slice::<f32>().unwrap().to_vec();
    y[33] = f32::NAN;
    bad.insert("y_train".into(), Literal::from_vec(&[50], y).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let (source, _) = files(&bad, folder.path());
    let mut recipe = Recipe { evaluate: None, ..short() };
    recipe.batches.shuffle = None;
    let mut session = Session::open(Device::Cpu).unwrap();
    let mut steps = 0;
    let options = Options { data_file: Some(folder.path()), ..Options::default() };
    let error = train(&mut session, &program(0.05), &recipe, &source, options, &mut |event| {
        if let Event::Step(record) = event {
            steps = record.step;
        }
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("`y_train` of `") && error.contains("row 33: NaN"), "{error}");
    // Row 33 is in the fifth batch; the steps before it are done.
    assert_eq!(steps, 4);
    // Allowed, it makes the loss NaN, and the message names it.
    let allow = Allow { non_finite: true, ..Allow::default() };
    let error = run(&recipe, &source, Options { allow, ..Options::default() }).unwrap_err();
    assert!(matches!(error, TrainError::Diverged(_)), "{error}");
    assert!(error.to_string().contains("the data are at fault: `y_train` has NaN in row 33"));

    let mut short = data();
    short.insert("y_train".into(), Literal::zeros(wengert::DType::F32, &[49]));
    let folder = tempfile::tempdir().unwrap();
    let error = run(&recipe, &files(&short, folder.path()).0, Options::default()).unwrap_err();
    assert!(error.to_string().contains("`x_train` has 50 examples, `y_train` has 49"), "{error}");
}

#[test]
fn an_evaluation_reads_files_too() {
    let folder = tempfile::tempdir().unwrap();
    let (source, _) = files(&data(), folder.path());
    let (report, weights) = run(&short(), &source, Options::default()).unwrap();
    let options = Options { weights: Some(&weights), ..Options::default() };
    let mut session = Session::open(Device::Cpu).unwrap();
    let found = evaluate(&mut session, &program(0.05), &short(), &source, options).unwrap();
    assert_eq!((found.examples, &found.metrics), (50, &report.metrics));
}
