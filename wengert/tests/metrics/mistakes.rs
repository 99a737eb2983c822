//! Metrics that are not defined, and outputs and labels that do not fit. Whole messages.

use super::{data, file, program, recipe};
use wengert::Recipe;
use wengert::prelude::*;
use wengert::recipe::EvaluationSet;
use wengert::train::{Options, SetData, TrainError, evaluate};

/// The message and the help of an evaluation with one metric.
fn error(output: &str, aggregate: &str, change: &dyn Fn(&mut Recipe)) -> String {
    let metrics = [("m".into(), output.into(), aggregate.into())];
    let mut recipe = recipe(&metrics, 10);
    change(&mut recipe);
    let mut session = Session::open(Device::Cpu).unwrap();
    let data = data(&file(), "many");
    let found = evaluate(&mut session, &program(7), &recipe, &data, Options::default());
    let TrainError::Failed(error) = found.unwrap_err() else { panic!("it has failed") };
    format!("{}; {}", error.message, error.help.unwrap_or_default())
}

fn fails(output: &str, aggregate: &str, text: &str) {
    assert_eq!(error(output, aggregate, &|_| {}), text);
}

#[test]
fn labels_and_outputs_that_do_not_fit_are_named() {
    // The first label above 3 of the 97.
    let labels = data(&file(), "many")["labels"].clone();
    let labels = labels.as_slice::<i32>().unwrap();
    let first = labels.iter().position(|label| *label > 3).unwrap();
    fails(
        "zeros",
        "accuracy:4:labels",
        &format!(
            "metric `m`: the label of example {first} is {}; there are 4 classes, from 0 to 3",
            labels[first]
        ),
    );
    let positive = labels.iter().position(|label| *label > 1).unwrap();
    fails(
        "losses",
        "auc:labels",
        &format!(
            "metric `m`: the label of example {positive} is {}; a label is 1 for positive examples \
             and 0 for negative ones",
            labels[positive]
        ),
    );
    fails(
        "loss",
        "elements",
        "recipe: metric `m`: output `loss` of `@evaluate` is f64[], a single number; the metric \
         takes an output whose first axis counts the examples",
    );
    fails(
        "losses",
        "mean",
        "recipe: metric `m`: output `losses` of `@evaluate` is f64[B], not a number; ",
    );
    fails(
        "losses",
        "accuracy:7:labels",
        "recipe: metric `m`: output `losses` of `@evaluate` is f64[B], not of predicted classes; \
         predicted classes are integers: `nn::metrics::predictions` makes them of scores",
    );
    fails(
        "predictions",
        "accuracy:7:scores",
        "recipe: metric `m`: output `predictions` of `@evaluate` is i32[B], but `scores` is \
         f64[B,7]; the metric takes one element of `scores` for each of `predictions`",
    );
    fails(
        "predictions",
        "accuracy:7:losses",
        "recipe: metric `m`: the labels `losses` of `@evaluate` are f64[B]; labels are integers or \
         truth values",
    );
    fails(
        "predictions",
        "accuracy:0:labels",
        "recipe: metric `m`: a measure of 0 classes; it has at least 1 and at most 16777216",
    );
    fails(
        "predictions",
        "confusion:1025:labels",
        "recipe: metric `m`: a measure of 1025 classes; it has at least 1 and at most 1024",
    );
    fails(
        "predictions",
        "f1.7:7:labels",
        "recipe: metric `m`: a measure of class 7 of 7; classes are 0 to 6",
    );
    let text = error("predictions", "accuracy:7:label", &|_| {});
    assert!(
        text.starts_with(
            "recipe: metric `m`: `@evaluate` has no output or data input `label`; it has \
             `predictions`, `top.1`"
        ),
        "{text}"
    );
}

#[test]
fn an_area_of_one_class_is_not_defined() {
    let metrics = [("m".into(), "last".into(), "auc:labels".into())];
    let mut data = data(&file(), "binary");
    let count = data["labels"].len();
    let mut session = Session::open(Device::Cpu).unwrap();
    for (label, name) in [(0, "negative"), (1, "positive")] {
        data.insert("labels".into(), Literal::from_vec(&[count], vec![label; count]).unwrap());
        let found =
            evaluate(&mut session, &program(2), &recipe(&metrics, 10), &data, Options::default());
        let error = found.unwrap_err();
        assert_eq!(
            error.diagnostic().message,
            format!("metric `m` is not defined: all examples are {name}")
        );
    }
}

#[test]
fn sets_are_named() {
    let named = |name: &'static str| {
        move |recipe: &mut Recipe| {
            let evaluate = recipe.evaluate.clone().unwrap();
            recipe.monitoring.sets.push(EvaluationSet { name: name.into(), evaluate });
        }
    };
    let cannot = |name: &str| {
        format!(
            "recipe: `{name}` cannot name an evaluation set; a name has at least one character, \
             and neither `/` nor `=`"
        )
    };
    assert_eq!(error("loss", "mean", &named("")), cannot(""));
    assert_eq!(error("loss", "mean", &named("a/b")), cannot("a/b"));
    let twice = |recipe: &mut Recipe| {
        named("test")(recipe);
        named("test")(recipe);
    };
    assert_eq!(error("loss", "mean", &twice), "recipe: there are two evaluation sets `test`; ");

    let metrics = [("m".into(), "loss".into(), "mean".into())];
    let mut recipe = recipe(&metrics, 10);
    let arrays = data(&file(), "many");
    let sets = [SetData { set: "tset", data: &arrays, file: None }];
    let options = Options { sets: &sets, ..Options::default() };
    let mut session = Session::open(Device::Cpu).unwrap();
    let mut refused = |recipe: &Recipe| {
        let error = evaluate(&mut session, &program(7), recipe, &arrays, options).unwrap_err();
        let error = error.diagnostic();
        format!("{}; {}", error.message, error.help.clone().unwrap())
    };
    assert_eq!(
        refused(&recipe),
        "the recipe has no evaluation set `tset`; it has no set with a name"
    );
    named("test")(&mut recipe);
    assert_eq!(
        refused(&recipe),
        "the recipe has no evaluation set `tset`; did you mean `test`? it has `test`"
    );
}
