//! Metrics against scikit-learn, with ties, absent classes and a single class, in batches of any
//! size. `generate.py` wrote the file.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod mistakes;

use std::path::PathBuf;
use wengert::Recipe;
use wengert::core::Scalar;
use wengert::data::Arrays;
use wengert::nn::loss::{CrossEntropy, MeanAbsoluteError, MeanSquaredError, Reduction};
use wengert::nn::metrics::{predictions, top_k_hits};
use wengert::prelude::*;
use wengert::recipe::{
    Batches, Cadence, EvaluateRecipe, EvaluationSet, InputRecipe, LastBatch, Length, Metric,
    Monitoring, StepRecipe,
};
use wengert::train::{Evaluated, Options, evaluate, evaluate_set};

/// A function that evaluates scores, which are given.
fn program(classes: usize) -> Program {
    let mut program = Program::new();
    program
        .function("evaluate", |f| {
            let scores = f.input("scores", TensorType::new(DType::F64, [dim("B"), classes.into()]));
            let labels = f.input("labels", TensorType::new(DType::I32, [dim("B")]));
            f.output("predictions", predictions(&scores));
            for k in 1..classes {
                f.output(&format!("top.{k}"), top_k_hits(&scores, &labels, k));
            }
            let reduction = Reduction::None;
            let losses = CrossEntropy { reduction, ..Default::default() }.call(&scores, &labels);
            f.output("losses", &losses);
            let column = |k: i64| scores.slice_axis(1, k, k + 1).squeeze(1);
            f.output("last", column(classes as i64 - 1));
            let targets = labels.convert(DType::F64);
            f.output("squared", MeanSquaredError { reduction }.call(&column(0), &targets));
            f.output("absolute", MeanAbsoluteError { reduction }.call(&column(0), &targets));
            // 1 for labels above 0.
            f.output("mask", labels.gt(0).convert(DType::F64));
            f.output("zeros", labels.zeros_like());
            f.output("loss", losses.mean());
        })
        .unwrap();
    program
}

fn dim(name: &str) -> Dim {
    Dim::from(name)
}

/// A recipe of an evaluation.
fn recipe(metrics: &[(String, String, String)], batch_size: u64) -> Recipe {
    let inputs: Vec<_> =
        ["scores", "labels"].map(|name| InputRecipe::new(name, name)).into_iter().collect();
    let metric = |(name, output, aggregate): &(String, String, String)| Metric {
        name: name.clone(),
        output: output.clone(),
        aggregate: aggregate.parse().unwrap(),
    };
    Recipe {
        init: None,
        step: StepRecipe {
            function: "evaluate".into(),
            inputs: inputs.clone(),
            loss: "loss".into(),
        },
        evaluate: Some(EvaluateRecipe {
            function: "evaluate".into(),
            inputs,
            batch_size,
            metrics: metrics.iter().map(metric).collect(),
            every: Cadence::Never,
        }),
        batches: Batches { size: 1, shuffle: None, blocks: None, last: LastBatch::Smaller },
        length: Length::Steps(1),
        checkpoint: Cadence::Never,
        key_seed: 0,
        microbatches: 1,
        precision: None,
        monitoring: Monitoring::default(),
    }
}

/// The metrics of `generate.py`: name, output, aggregate.
fn metrics(classes: usize) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    let mut add = |name: &str, output: &str, aggregate: &str| {
        all.push((name.to_owned(), output.to_owned(), aggregate.to_owned()));
    };
    let of = format!("{classes}:labels");
    add("accuracy", "predictions", &format!("accuracy:{of}"));
    add("confusion", "predictions", &format!("confusion:{of}"));
    for kind in ["precision", "recall", "f1"] {
        let averages = ["macro".to_owned(), "micro".to_owned()];
        for average in averages.into_iter().chain((0..classes).map(|k| k.to_string())) {
            let name = format!("{kind}.{average}");
            add(&name, "predictions", &format!("{name}:{of}"));
        }
    }
    for k in 1..classes {
        let name = format!("top.{k}");
        add(&name, &name, "elements");
    }
    add("perplexity", "losses", "perplexity");
    add("squared", "squared", "elements");
    add("absolute", "absolute", "elements");
    if classes == 2 {
        add("auc", "last", "auc:labels");
    }
    all
}

fn file() -> Arrays {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/metrics/metrics.npz");
    wengert::data::read_all(&path).unwrap()
}

/// The scores and labels of a case.
fn data(file: &Arrays, case: &str) -> Arrays {
    let of = |name: &str| (name.to_owned(), file[&format!("{case}.{name}")].clone());
    Arrays::from([of("scores"), of("labels")])
}

fn evaluated(recipe: &Recipe, classes: usize, data: &Arrays) -> Evaluated {
    let mut session = Session::open(Device::Cpu).unwrap();
    evaluate(&mut session, &program(classes), recipe, data, Options::default()).unwrap()
}

#[test]
fn metrics_equal_those_of_scikit_learn_in_batches_of_any_size() {
    let file = file();
    let mut compared = 0;
    for case in ["many", "one", "wrong", "binary"] {
        let data = data(&file, case);
        let classes = data["scores"].shape()[1];
        let metrics = metrics(classes);
        let whole = evaluated(&recipe(&metrics, 1000), classes, &data);
        assert_eq!(whole.examples, data["labels"].len() as u64);
        for (name, found) in &whole.metrics {
            // scikit-learn has no accuracy among the first k of two classes.
            let Some(wanted) = file.get(&format!("{case}.{name}")) else {
                assert_eq!((case, name.as_str()), ("binary", "top.1"));
                continue;
            };
            let wanted = wanted.get(0).to_f64();
            let apart = (found - wanted).abs();
            assert!(apart <= 1e-12 * wanted.abs(), "{case}: {name} is {found}, not {wanted}");
            compared += 1;
        }
        let [(name, matrix)] = &whole.matrices[..] else { panic!("{whole:?}") };
        let counts: Vec<u64> = matrix.rows().flatten().copied().collect();
        assert_eq!(name, "confusion");
        assert_eq!(counts, file[&format!("{case}.confusion")].as_slice::<u64>().unwrap(), "{case}");
        for size in [1, 2, 7] {
            assert!(evaluated(&recipe(&metrics, size), classes, &data) == whole, "{case}: {size}");
        }
    }
    // Each metric of the file but its matrices, and its scores and labels.
    assert_eq!(compared, file.len() - 3 * 4);
}

#[test]
fn the_accuracy_among_the_first_class_is_the_accuracy() {
    let file = file();
    for case in ["many", "one", "wrong", "binary"] {
        let data = data(&file, case);
        let classes = data["scores"].shape()[1];
        let found = evaluated(&recipe(&metrics(classes), 8), classes, &data);
        let of = |name: &str| found.metrics.iter().find(|(n, _)| n == name).unwrap().1;
        assert_eq!(of("top.1"), of("accuracy"), "{case}");
    }
}

#[test]
fn weights_leave_elements_out() {
    let all = [("masked", "losses", "elements:mask"), ("perplexity", "losses", "perplexity:mask")]
        .map(|(name, output, aggregate)| (name.into(), output.into(), aggregate.into()));
    let file = file();
    let data = data(&file, "many");
    let found = evaluated(&recipe(&all, 10), 7, &data);
    let labels: Vec<f64> = data["labels"].scalars().map(Scalar::to_f64).collect();
    let scores: Vec<f64> = data["scores"].scalars().map(Scalar::to_f64).collect();
    let (mut sum, mut count) = (0.0, 0.0);
    for (row, label) in labels.iter().enumerate().filter(|(_, label)| **label > 0.0) {
        let row = &scores[7 * row..7 * row + 7];
        sum += row.iter().map(|score| score.exp()).sum::<f64>().ln() - row[*label as usize];
        count += 1.0;
    }
    let wanted = sum / count;
    assert!((found.metrics[0].1 - wanted).abs() < 1e-12 * wanted, "{found:?}, not {wanted}");
    assert!((found.metrics[1].1 - wanted.exp()).abs() < 1e-11 * wanted.exp(), "{found:?}");
}

#[test]
fn a_set_has_data_of_its_own() {
    let file = file();
    let metrics = [("accuracy".into(), "predictions".into(), "accuracy:7:labels".into())];
    let mut recipe = recipe(&metrics, 10);
    let evaluate = recipe.evaluate.clone().unwrap();
    recipe.monitoring.sets = vec![EvaluationSet { name: "first".into(), evaluate }];
    let (all, mut few) = (data(&file, "many"), data(&file, "many"));
    few.insert("scores".into(), Literal::zeros(DType::F64, &[2, 7]));
    few.insert("labels".into(), Literal::from_vec(&[2], vec![0i32, 3]).unwrap());
    let mut session = Session::open(Device::Cpu).unwrap();
    let sets = [wengert::train::SetData { set: "first", data: &few, file: None }];
    let options = Options { sets: &sets, ..Options::default() };
    let mut on = |set| {
        let found = evaluate_set(&mut session, &program(7), &recipe, set, &all, options).unwrap();
        (found.examples, found.metrics[0].1)
    };
    assert_eq!(on(Some("first")), (2, 0.5));
    assert_eq!(on(None), (97, file["many.accuracy"].get(0).to_f64()));
}
