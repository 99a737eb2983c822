//! Weights of a trained model with their updates of low rank.

use super::graphrun;
use std::path::Path;
use wengert::data::{self, Arrays, npy, npz};
use wengert::{DType, Literal};

/// A classifier of digits, whose weights are a kernel of a convolution and matrices `[out, in]`.
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../wengert/tests/tune/convolutions.onnx");

fn good(folder: &Path, arguments: &[&str]) -> String {
    let (status, out, error) = graphrun(folder, arguments);
    assert_eq!(status, 0, "{arguments:?}: {error}");
    out
}

fn says(folder: &Path, arguments: &[&str], texts: &[&str]) {
    let (status, _, error) = graphrun(folder, arguments);
    assert_eq!(status, 2, "{arguments:?}: {error}");
    for text in texts {
        assert!(error.contains(text), "{arguments:?}: {text} is not in\n{error}");
    }
}

/// A folder with `tuned.graph`, a run `run` of a few steps, and images `x.npy`.
fn trained() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    let (images, labels) = wengert_testing::digits::digits(96, DType::F32);
    let images = images.as_slice::<f32>().unwrap().to_vec();
    let images = Literal::from_vec(&[96, 1, 8, 8], images).unwrap();
    npy::write(place.join("x.npy"), &images).unwrap();
    npz::write(place.join("d.npz"), [("image", &images), ("labels", &labels)]).unwrap();
    let import = ["import", MODEL, "-o", "tuned.graph", "--train", "--loss", "cross_entropy"];
    let lora = ["--lora", "r=2,alpha=8,conv2.weight", "--lora", "r=4,hidden.weight,head.weight"];
    let rate = ["--learning-rate", "0.01"];
    let out = good(place, &[&import[..], &lora, &rate].concat());
    assert!(out.contains("6 trained"), "{out}");
    good(place, &["train", "tuned.graph", "--data", "d.npz", "--steps", "8", "--out", "run"]);
    folder
}

const WEIGHTS: &str = "run/weights.safetensors";

/// The predictions, for the images.
fn predict(folder: &Path, model: &str, params: Option<&str>) -> Vec<f64> {
    let mut arguments = vec!["run", model, "--input", "image=@x.npy", "--output", "class=y.npy"];
    arguments.extend(params.iter().flat_map(|params| ["--params", params]));
    good(folder, &arguments);
    let y = npy::read(folder.join("y.npy")).unwrap();
    assert_eq!(y.shape(), [96, 10]);
    y.scalars().map(|y| y.to_f64()).collect()
}

/// The largest difference, relative to the largest number.
fn difference(left: &[f64], right: &[f64]) -> f64 {
    let largest = left.iter().fold(0.0f64, |most, y| most.max(y.abs()));
    let pairs = left.iter().zip(right);
    pairs.fold(0.0f64, |most, (left, right)| most.max((left - right).abs())) / largest
}

#[test]
fn merged_weights_predict_as_with_adapters() {
    let folder = trained();
    let folder = folder.path();
    let adapted = predict(folder, "tuned.graph@predict", Some(WEIGHTS));
    let untrained = predict(folder, "tuned.graph@predict", None);
    assert!(difference(&untrained, &adapted) > 1e-2, "training changes something");

    let merge = ["merge", "tuned.graph", "--params", WEIGHTS, "-o"];
    for out in ["merged.safetensors", "merged.npz", "merged.graph"] {
        let text = good(folder, &[&merge[..], &[out]].concat());
        assert!(text.starts_with("3 updates merged, 12 parameters of @predict"), "{text}");
    }
    good(folder, &["import", MODEL, "-o", "plain.graph"]);
    let export = ["export", "merged.graph", "-o", "trained.onnx"];
    good(folder, &export);
    let export = ["export", "tuned.graph@predict", "--params", WEIGHTS, "-o", "adapted.onnx"];
    good(folder, &export);
    for (model, params) in [
        ("plain.graph", Some("merged.safetensors")),
        ("plain.graph", Some("merged.npz")),
        (MODEL, Some("merged.safetensors")),
        // The updates of the file are those before training, which are 0.
        ("tuned.graph@predict", Some("merged.safetensors")),
        ("merged.graph", None),
        ("trained.onnx", None),
        ("adapted.onnx", None),
    ] {
        let found = difference(&adapted, &predict(folder, model, params));
        assert!(found <= 1e-5, "{model} with {params:?}: {found}");
    }
    // The model is the one without LoRA.
    let program = |file: &str| good(folder, &["dump", file]);
    assert_eq!(program("merged.graph"), program("plain.graph"));
    let arrays = data::read_all(folder.join("merged.safetensors")).unwrap();
    let given = data::read_all(folder.join(WEIGHTS)).unwrap();
    let plain: Vec<&String> = given.keys().filter(|path| !path.contains(".lora_")).collect();
    assert!(arrays.keys().eq(plain), "{:?}", arrays.keys());
    for (path, value) in &arrays {
        let is_adapted = given.contains_key(&format!("{path}.lora_a"));
        assert_eq!(*value != given[path], is_adapted, "{path}");
    }
}

#[test]
fn what_cannot_be_merged_is_said() {
    let folder = trained();
    let folder = folder.path();
    let write = |name: &str, change: &dyn Fn(&mut Arrays)| {
        let mut arrays = data::read_all(folder.join(WEIGHTS)).unwrap();
        change(&mut arrays);
        let pairs = arrays.iter().map(|(name, value)| (name.as_str(), value));
        data::write_all(folder.join(name), pairs).unwrap();
    };
    let merge = |weights: &str, texts: &[&str]| {
        let out = ["-o", "out.safetensors"];
        says(folder, &[&["merge", "tuned.graph", "--params", weights][..], &out].concat(), texts);
        assert!(!folder.join("out.safetensors").exists());
    };
    write("none.npz", &|arrays| arrays.retain(|path, _| !path.contains(".lora_")));
    merge("none.npz", &["no `conv2.weight.lora_a` and no `conv2.weight.lora_b`", "merged"]);
    write("half.npz", &|arrays| drop(arrays.remove("head.weight.lora_b")));
    merge("half.npz", &["there is `head.weight.lora_a`, but no `head.weight.lora_b`"]);
    write("other.npz", &|arrays| {
        let value = arrays["conv2.weight.lora_a"].clone();
        arrays.insert("head.weight.lora_a".into(), value);
    });
    merge("other.npz", &["`head.weight` of type f32[10,24] has an adapter of", "rank 4"]);
    write("more.npz", &|arrays| {
        let value = arrays["head.weight.lora_a"].clone();
        arrays.insert("conv1.weight.lora_a".into(), value.clone());
        arrays.insert("conv1.weight.lora_b".into(), value);
    });
    merge("more.npz", &["`conv1.weight.lora_a`, an adapter that no function has"]);

    let from = |model: &'static str, out: &'static str| {
        ["merge", model, "--params", "run/weights.safetensors", "-o", out]
    };
    let before = std::fs::read(folder.join(WEIGHTS)).unwrap();
    for out in [WEIGHTS, "run/../run/weights.safetensors"] {
        says(folder, &from("tuned.graph", out), &["has the weights to merge", "another name"]);
    }
    says(folder, &from("tuned.graph", "tuned.graph"), &["has the model to merge"]);
    assert_eq!(std::fs::read(folder.join(WEIGHTS)).unwrap(), before);
    says(folder, &from("tuned.graph", "out.onnx"), &["no name for merged weights", ".graph"]);
    says(folder, &from("tuned.graph@train_step", "o.npz"), &["@train_step trains the update"]);
    good(folder, &["import", MODEL, "-o", "plain.graph"]);
    for model in ["plain.graph", "plain.graph@predict"] {
        says(folder, &from(model, "o.npz"), &["adapter", "import --train --lora"]);
    }
    says(folder, &from("tuned.graph@predicts", "o.npz"), &["no function `@predicts`"]);
}
