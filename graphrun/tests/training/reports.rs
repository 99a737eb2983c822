//! What the command prints: tensors, the contents of files, evaluations, the lines of training.

use crate::place::{Place, Ran};
use serde_json::Value;
use wengert::{DType, Literal};

fn graphrun(place: &Place, arguments: &[&str]) -> Ran {
    Ran::of(place.command(arguments).output().unwrap())
}

fn refused(place: &Place, arguments: &[&str], says: &[&str]) {
    let ran = graphrun(place, arguments);
    ran.failed(2, says);
    assert_eq!(ran.out, "", "{ran:?}");
}

#[test]
fn outputs_are_rows_under_a_summary() {
    let place = Place::new();
    let weights: Vec<f32> = (0..12).map(|i| i as f32 / 3.0).collect();
    place.write_arrays(
        "w.safetensors",
        [("m.weight", Literal::from_vec(&[4, 3], weights).unwrap())],
    );
    let words: Vec<i32> = (0..60).map(|i| i % 4).collect();
    place.write_arrays("words.npz", [("word", Literal::from_vec(&[60], words).unwrap())]);
    let run = |rest: &[&str]| {
        let fixed = ["run", "classes.ir@logits", "--params", "w.safetensors"];
        graphrun(&place, &[&fixed[..], rest].concat())
    };
    let short = run(&["--input", "word=@words.npz[word]"]);
    short.good();
    let lines: Vec<&str> = short.out.lines().collect();
    assert_eq!(lines[0], "y: f32[60,3], min 0.0, max 3.6666667, mean 1.83333, all finite");
    assert_eq!(lines[1], "  [0]   0.0  0.3333  0.6667");
    assert_eq!((lines.len(), lines[5]), (10, "  …"));
    let full = run(&["--input", "word=@words.npz[word]", "--full"]);
    full.good();
    assert_eq!(full.out.lines().count(), 61);
    assert!(full.out.contains("  [59]  3.0   3.3333333  3.6666667\n"), "{full:?}");
    run(&["--input", "word=@words.npz[word]", "--full", "--json"]).failed(2, &["--json"]);
}

#[test]
fn files_are_converted_when_told() {
    let place = Place::new();
    let weights = Literal::zeros(DType::F64, &[4, 3]);
    place.write_arrays("w.npz", [("w", weights)]);
    place.write_arrays("half.npz", [("word", Literal::from_vec(&[1], vec![0.5f64]).unwrap())]);
    let run = |weight: &str, word: &str| {
        let (weight, word) = (format!("m.weight={weight}"), format!("word={word}"));
        graphrun(&place, &["run", "classes.ir@logits", "--input", &weight, "--input", &word])
    };
    run("@w.npz:f32", "1xi32=2").good();
    run("@w.npz[w]:f32", "@classes.npz[word]:i32").good();
    run("@w.npz", "1xi32=2").failed(
        2,
        &[
            "input `m.weight` is f32[4,3], the tensor given is f64[4,3]",
            "write `:f32` after the file: `--input m.weight=@FILE:f32`",
        ],
    );
    run("@w.npz:float32", "1xi32=2").failed(2, &["unknown dtype `float32`", "dtypes are bool"]);
    run("@w.npz:f32", "@half.npz:i32")
        .failed(2, &["`half.npz`: element 0 is 0.5, which is no i32", "i32 holds integers from"]);
}

#[test]
fn the_contents_of_files_are_inspected() {
    let place = Place::new();
    let program = graphrun(&place, &["inspect", "model.graph", "--bind", "B=10"]);
    program.good();
    for line in [
        "model.graph: 4 functions, 1 variable of 3 elements (12 B), a recipe",
        "dimension variable B: in @step, @slow, @loss",
        "@step(x: f32[B,3], y: f32[B]) -> (loss: f32[]), updates 1 variable",
        "@init() -> (), creates 1 variable",
    ] {
        assert!(program.out.lines().any(|l| l == line), "{line}: {program:?}");
    }
    assert!(!program.out.contains("sizes are for"), "{program:?}");
    let open = graphrun(&place, &["inspect", "model.graph@loss"]);
    assert!(open.out.contains("sizes are for B=1; choose others by `--bind B=NUMBER`"));

    // The product has 2·10·3 operations; difference, square and sum have 3·10.
    let json = graphrun(&place, &["inspect", "model.graph@loss", "--bind", "B=10", "--json"]);
    json.good();
    let found: Value = serde_json::from_str(&json.out).unwrap();
    let loss = &found["functions"][0];
    assert_eq!((&loss["operations"], &loss["equations"]), (&90.into(), &4.into()), "{found}");
    assert_eq!((&found["parameters"], &found["bytes"]), (&3.into(), &12.into()));
    assert_eq!(found["dimensions"]["B"], serde_json::json!(["loss"]));

    place.train("classes.graph", "a", &["--steps", "1"]).good();
    let weights = graphrun(&place, &["inspect", "a/weights.safetensors"]);
    weights.good();
    assert!(weights.out.starts_with("a/weights.safetensors: 1 tensor of 12 elements (48 B)\n"));
    assert!(weights.out.contains("\nm.weight  f32[4,3]          12   48 B\n"), "{weights:?}");
    graphrun(&place, &["compile", "model.graph@loss", "-o", "l.plan", "--bind", "B=10"]).good();
    let plan = graphrun(&place, &["inspect", "l.plan"]);
    plan.good();
    assert!(plan.out.starts_with("l.plan: 1 plan of @loss with B=10 for cpu, 1 variable of 3"));
    assert!(plan.out.contains("@loss(x: f32[10,3], y: f32[10]) -> (loss: f32[]), reads 1"));

    refused(&place, &["inspect", "data.npz"], &["`data.npz` is not a program file"]);
    refused(&place, &["inspect", "none.graph"], &["none.graph", "No such file"]);
    refused(&place, &["inspect", "none.safetensors"], &["none.safetensors", "No such file"]);
    refused(&place, &["inspect", "model.graph@los"], &["no function `@los`", "@loss"]);
    refused(&place, &["inspect", "model.graph", "--bind", "C=1"], &["no dimension variable `C`"]);
    refused(&place, &["inspect", "l.plan", "--bind", "B=1"], &["`l.plan` is compiled", ".graph"]);
    let bound = ["inspect", "a/weights.safetensors", "--bind", "B=1"];
    refused(&place, &bound, &["has no dimension variables", "--bind"]);
}

#[test]
fn a_model_is_evaluated_on_a_data_set() {
    let place = Place::new();
    let evaluate = |file: &str, rest: &[&str]| {
        graphrun(&place, &[&["evaluate", file, "--data", "data.npz"], rest].concat())
    };
    // w = 0: the mean of y². x and y are those of `Place::new`.
    let x: Vec<f32> = (0..30).map(|i| ((i * 37 % 31) as f32) / 31.0 - 0.5).collect();
    let squares = x.chunks(3).map(|r| f64::from(r[0] - 2.0 * r[1] + 0.5 * r[2]).powi(2));
    let mean = squares.sum::<f64>() / 10.0;
    place.write_arrays("zero.safetensors", [("w", Literal::zeros(DType::F32, &[3]))]);
    let zero = evaluate("model.graph", &["--params", "zero.safetensors"]);
    zero.good();
    assert_eq!(zero.out, format!("@loss on 10 examples\nmetric     value\nmse     {mean:.6}\n"));

    // The metrics that training reports, from the weights and from a checkpoint.
    let trained = place.train("model.graph", "a", &["--json"]);
    trained.good();
    let done: Value = serde_json::from_str(trained.out.lines().last().unwrap()).unwrap();
    let newest = place.checkpoints("a")[0].1.clone();
    for params in ["a/weights.safetensors", newest.to_str().unwrap()] {
        let found = evaluate("model.graph@loss", &["--params", params, "--json"]);
        found.good();
        let found: Value = serde_json::from_str(&found.out).unwrap();
        assert_eq!(
            (&found["metrics"], &found["examples"], &found["function"]),
            (&done["metrics"], &10.into(), &"loss".into())
        );
    }

    let refuses = |file: &str, rest: &[&str], says: &[&str]| {
        let ran = evaluate(file, rest);
        ran.failed(2, says);
        assert_eq!(ran.out, "", "{ran:?}");
    };
    let zero = ["--params", "zero.safetensors"];
    refuses("model.graph", &[], &["the variables of `@loss` have no values", "--params"]);
    refuses("model.graph", &["--params", "none.npz"], &["none.npz"]);
    refuses("model.graph@los", &zero, &["no function `@los`", "@loss"]);
    refuses("model.graph@init", &zero, &["recipe: `@init` has no data input `x`"]);
    refuses("classes.graph", &zero, &["the recipe of `classes.graph` has no evaluation"]);
    refuses("classes.ir", &zero, &["`classes.ir` has no recipe, so it cannot be evaluated"]);
    let (four, v) = (Literal::zeros(DType::F32, &[4]), Literal::zeros(DType::F32, &[3]));
    place.write_arrays("wide.safetensors", [("w", four)]);
    place.write_arrays("other.safetensors", [("W", v)]);
    let wide = ["variable `w` is f32[3], the weights in `wide.safetensors` have f32[4]", "help: "];
    refuses("model.graph", &["--params", "wide.safetensors"], &wide);
    let other = ["`other.safetensors`", "variable `w` has no value", "help: "];
    refuses("model.graph", &["--params", "other.safetensors"], &other);
    let on = |data: &str, says: &[&str]| {
        let fixed = ["evaluate", "model.graph", "--params", "zero.safetensors", "--data", data];
        refused(&place, &fixed, says);
    };
    on("none.npz", &["none.npz"]);
    on("classes.npz", &["the data has no array `x` for input `x`", "it has `label`, `word`"]);
    place.write_arrays(
        "wide.npz",
        [("x", Literal::zeros(DType::F32, &[2, 4])), ("y", Literal::zeros(DType::F32, &[2]))],
    );
    on("wide.npz", &["input `x` is f32[B,3], the tensor given is f32[2,4]"]);
    place.write_arrays("nan.safetensors", [("w", Literal::full(&[3], f32::NAN.into()))]);
    let nan = evaluate("model.graph", &["--params", "nan.safetensors"]);
    nan.failed(1, &["metric `mse` is NaN", "help: "]);
}

#[test]
fn training_prints_and_logs_its_throughput() {
    let place = Place::new();
    let ran = place.train("model.graph", "a", &["--steps", "6"]);
    ran.good();
    let first = ran.out.lines().next().unwrap();
    assert!(first.starts_with("epoch 1: loss "), "{ran:?}");
    assert!(first.contains(" examples/s, ") && first.ends_with(" ms/step"), "{ran:?}");
    let log = std::fs::read_to_string(place.path("a/log.jsonl")).unwrap();
    let lines: Vec<Value> = log.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let steps: Vec<&Value> = lines.iter().filter(|l| l["loss"].is_number()).collect();
    assert_eq!(steps.len(), 6);
    for step in steps {
        assert!(step["seconds"].as_f64().unwrap() > 0.0, "{step}");
        assert!(step["examples_per_second"].as_f64().unwrap() > 0.0, "{step}");
    }
    // A log as earlier versions wrote it is continued.
    let old: String = lines
        .iter()
        .map(|line| match &line["loss"] {
            Value::Null => format!("{line}\n"),
            loss => {
                let (step, epoch) = (&line["step"], &line["epoch"]);
                format!("{{\"step\":{step},\"epoch\":{epoch},\"loss\":{loss}}}\n")
            }
        })
        .collect();
    std::fs::write(place.path("a/log.jsonl"), &old).unwrap();
    place.train("model.graph", "a", &["--steps", "8", "--resume"]).good();
    let log = std::fs::read_to_string(place.path("a/log.jsonl")).unwrap();
    assert!(log.starts_with(&old) && log.contains("\"step\":8,"), "{log}");
}

#[test]
fn event_files_and_timelines_are_written_beside_the_log() {
    let place = Place::new();
    let train = ["train", "model.graph", "--data", "data.npz", "--out", "run"];
    let events = || -> Vec<std::path::PathBuf> {
        let all = std::fs::read_dir(place.path("run")).unwrap().map(|entry| entry.unwrap().path());
        let mut events: Vec<_> =
            all.filter(|path| path.to_string_lossy().contains("tfevents")).collect();
        events.sort();
        events
    };
    let trace = ["--tensorboard", "--histograms", "2", "--steps", "4", "--trace", "t.json"];
    let ran = graphrun(&place, &[&train[..], &trace].concat());
    assert!(ran.err.ends_with("events written to t.json\n"), "{ran:?}");
    let first = std::fs::read(&events()[0]).unwrap();
    for tag in ["brain.Event:2", "loss", "parameters/w", "recipe"] {
        assert!(first.windows(tag.len()).any(|bytes| bytes == tag.as_bytes()), "{tag}");
    }
    let timeline = std::fs::read_to_string(place.path("t.json")).unwrap();
    let timeline: Value = serde_json::from_str(&timeline).unwrap();
    let names: Vec<&str> = timeline["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["ph"] == "B")
        .map(|event| event["name"].as_str().unwrap())
        .collect();
    for name in ["dce", "step 4", "step", "checkpoint 4"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    graphrun(&place, &[&train[..], &["--tensorboard", "--resume", "--steps", "6"]].concat()).good();
    assert_eq!(events().len(), 2);
    refused(&place, &["inspect", "model.graph", "--trace", "t.txt"], &["no name for a trace"]);
    refused(&place, &["inspect", "model.graph", "--trace", "run"], &["no name for a trace"]);
    std::fs::create_dir(place.path("folder.json")).unwrap();
    refused(&place, &["inspect", "model.graph", "--trace", "folder.json"], &["folder.json"]);
    graphrun(&place, &[&train[..], &["--histograms", "2"]].concat()).failed(2, &["--tensorboard"]);
}

/// A command that fails leaves the events up to its failure.
#[test]
fn a_failure_has_a_timeline() {
    let place = Place::new();
    let names = |arguments: &[&str], status: i32| -> Vec<String> {
        let ran = graphrun(&place, &[arguments, &["--trace", "t.json"]].concat());
        assert_eq!(ran.status, Some(status), "{ran:?}");
        assert!(ran.err.ends_with(" events written to t.json\n"), "{ran:?}");
        let timeline = std::fs::read_to_string(place.path("t.json")).unwrap();
        let timeline: Value = serde_json::from_str(&timeline).unwrap();
        let events = timeline["traceEvents"].as_array().unwrap();
        let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
        assert_eq!(of("B"), of("E"), "every span has ended: {events:?}");
        let begun = events.iter().filter(|event| event["ph"] == "B");
        begun.map(|event| event["name"].as_str().unwrap().to_owned()).collect()
    };
    // Before anything is compiled.
    assert_eq!(names(&["run", "model.graph@loss"], 2), ["run", "model.graph"]);
    assert_eq!(names(&["run", "absent.graph"], 2)[0], "run");
    // In the compiler: no plan fits the budget.
    let budget = ["run", "model.graph@loss", "--memory-budget", "1", "--bind", "B=2"];
    let inputs = ["--input", "x=zeros", "--input", "y=zeros", "--input", "w=zeros"];
    let found = names(&[&budget[..], &inputs].concat(), 2);
    assert_eq!(found[..3], ["run", "model.graph", "@loss"]);
    assert!(found.iter().any(|name| name == "dce"), "{found:?}");
    // In training.
    let train = ["train", "model.graph", "--data", "data.npz", "--out", "diverging"];
    let huge = ["--params", "huge.npz", "--steps", "50"];
    let weights = Literal::from_vec(&[3], vec![1e38f32; 3]).unwrap();
    place.write_arrays("huge.npz", [("w", weights)]);
    let found = names(&[&train[..], &huge].concat(), 1);
    assert!(found.iter().any(|name| name == "step 1"), "{found:?}");
}
