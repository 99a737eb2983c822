//! Inputs that training refuses before it computes anything: folders, weights, data.

use crate::place::{Place, exists};
use wengert::Literal;

#[test]
fn resuming_needs_a_checkpoint() {
    let place = Place::new();
    place
        .train("model.graph", "none", &["--resume"])
        .failed(2, &["there is no checkpoint in `none`"]);
    assert!(!exists(&place.path("none")));
    place.train("model.graph", "a", &[]).good();
    std::fs::remove_dir_all(place.path("a")).unwrap();
    place.train("model.graph", "a", &["--resume"]).failed(2, &["there is no checkpoint in `a`"]);
    std::fs::create_dir(place.path("b")).unwrap();
    let fifo =
        std::process::Command::new("mkfifo").arg(place.path("b/log.jsonl")).status().unwrap();
    assert!(fifo.success());
    place.train("model.graph", "b", &[]).failed(2, &["`b/log.jsonl` is no regular file"]);
    std::fs::create_dir(place.path("c")).unwrap();
    std::fs::write(place.path("c/checkpoint.safetensors"), b"old").unwrap();
    for rest in [&[][..], &["--resume"]] {
        place
            .train("model.graph", "c", rest)
            .failed(2, &["of an earlier version, which has no checksum"]);
    }
}

#[test]
fn names_of_weights_are_checked() {
    let place = Place::new();
    let weights = || Literal::zeros(wengert::DType::F32, &[4, 3]);
    place.write_arrays("typo.safetensors", [("m.wieght", weights())]);
    let params = ["--params", "typo.safetensors", "--steps", "1"];
    let says = [
        "`typo.safetensors`",
        "no variable has the name `m.wieght` (did you mean `m.weight`?)",
        "--partial",
    ];
    place.train("classes.graph", "a", &params).failed(2, &says);
    assert!(place.checkpoints("a").is_empty());
    let partial = place.train("classes.graph", "a", &[&params[..], &["--partial"]].concat());
    assert_eq!(partial.status, Some(0), "{partial:?}");
    assert!(
        partial.err.starts_with("warning: the weights do not fit the program: "),
        "{partial:?}"
    );
    // The weights and the checkpoint of a run are both accepted.
    let newest = place.checkpoints("a")[0].1.clone();
    place.write_arrays("whole.safetensors", [("m.weight", weights())]);
    place
        .train("classes.graph", "b", &["--params", "a/weights.safetensors", "--steps", "1"])
        .good();
    place.train("classes.graph", "c", &["--params", "whole.safetensors", "--steps", "1"]).good();
    let from_checkpoint = ["--params", newest.to_str().unwrap(), "--steps", "1", "--partial"];
    assert_eq!(place.train("classes.graph", "d", &from_checkpoint).status, Some(0));
    let mut damaged = std::fs::read(&newest).unwrap();
    damaged[300] ^= 1;
    std::fs::write(&newest, damaged).unwrap();
    place.train("classes.graph", "e", &from_checkpoint).failed(2, &["cannot read"]);
}

#[test]
fn labels_that_are_no_class_do_not_train() {
    let place = Place::new();
    place.train("classes.graph", "good", &["--steps", "1"]).good();
    for (labels, says) in [
        (
            Literal::from_vec(&[4], vec![0i64, 1, 1 << 40, 0]).unwrap(),
            "row 2: 1099511627776 is no i32",
        ),
        (Literal::from_vec(&[4], vec![0f32, 1.0, 1.5, 0.0]).unwrap(), "row 2: 1.5 is no i32"),
        (
            Literal::from_vec(&[4], vec![0f32, f32::NAN, 1.0, 0.0]).unwrap(),
            "row 1: NaN is not finite",
        ),
        (
            Literal::from_vec(&[4], vec![0i32, 1, 2, 3]).unwrap(),
            "row 3: 3 is out of range: input `label` has values from 0 to 2",
        ),
    ] {
        place.write_labels(labels);
        let ran = place.train("classes.graph", "bad", &["--steps", "1"]);
        ran.failed(2, &["`label` of `classes.npz`, ", says]);
        assert!(!ran.err.contains("learning rate") && !exists(&place.path("bad")), "{ran:?}");
    }
    // A label that is not a class makes the loss NaN. The error says so.
    let ran = place.train("classes.graph", "bad", &["--steps", "1", "--allow-out-of-range"]);
    ran.failed(1, &["the loss is NaN at step 1", "no update was made yet"]);
}
