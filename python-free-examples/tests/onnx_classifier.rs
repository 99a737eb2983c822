//! A model of PyTorch's learns something else, and is exported.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use python_free_examples::onnx_classifier::{MODEL, difference, exported, fine_tune, predictions};
use wengert::prelude::*;
use wengert::{Weights, onnx};

#[test]
fn an_exported_model_predicts_what_was_learnt() {
    let tuned = fine_tune(Device::Cpu, 200, &mut |_| {}).unwrap();
    let [before, after] = tuned.accuracy;
    assert!(before < 0.3 && after > 0.85, "{before}, after training {after}");

    let folder = tempfile::tempdir().unwrap();
    let again = exported(&tuned.merged, &folder.path().join("m.onnx")).unwrap();
    let adapted = predictions(Device::Cpu, &tuned.adapted).unwrap();
    for file in [&tuned.merged, &again] {
        let found = difference(&adapted, &predictions(Device::Cpu, file).unwrap());
        assert!(found <= 1e-5, "{found}");
    }

    // The model is the one that was imported, with other values of three of its weights.
    let first = onnx::read(MODEL, &onnx::Options::default()).unwrap();
    let found = difference(&adapted, &predictions(Device::Cpu, &first).unwrap());
    assert!(found > 0.1, "{found}");
    let text = |file: &wengert::GraphFile| file.program.get("predict").unwrap().to_string();
    assert_eq!(text(&tuned.merged), text(&first));
    let [Weights::Inline(merged), Weights::Inline(before)] =
        [&tuned.merged, &first].map(|f| &f.weights)
    else {
        panic!("both have weights")
    };
    let changed: Vec<&str> = merged
        .iter()
        .filter(|(path, value)| before[*path] != **value)
        .map(|(path, _)| path.as_str())
        .collect();
    assert_eq!(changed, ["conv2.weight", "head.weight", "hidden.weight"]);
}
