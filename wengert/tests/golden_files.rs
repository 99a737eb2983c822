//! Files of every version of the formats stay readable for ever.
//!
//! `golden/v1.graph` is a file of version 1 with every op that existed then, every role, dimension
//! variables, locations, a recipe and weights; `golden/v1.ir` is its program as text.
//! `golden/v1-*.plan` are plans of two of its functions, and `golden/v1-*.txt` their texts. A
//! change that makes this test fail has broken the format: correct the change, or give the format a
//! new version. (Until the first release, `WENGERT_BLESS_GOLDEN=1` rewrites the files.)
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use std::path::PathBuf;
use wengert::core::Target;
use wengert::core::graph::parse_program;
use wengert::core::plan::parse_plan;
use wengert::format::plan;
use wengert::pipeline::{Options, compile};
use wengert::recipe::{
    Aggregate, Batches, Cadence, EvaluateRecipe, InputRecipe, LastBatch, Length, Metric,
    Monitoring, Recipe, StepRecipe, Transform,
};
use wengert::{DType, GraphFile, Literal, Scalar, Weights, bind};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn expected() -> GraphFile {
    let text = std::fs::read_to_string(golden("v1.ir")).unwrap();
    let program = parse_program(&text, "v1.ir").unwrap();
    let inputs = vec![
        InputRecipe::new("x", "x_train")
            .then(Transform::Convert(DType::F32))
            .then(Transform::Scale(Scalar::of(0.0625f32)))
            .then(Transform::Offset(Scalar::of(-0.5f32))),
    ];
    let metric =
        |name: &str, aggregate| Metric { name: name.into(), output: "total".into(), aggregate };
    let recipe = Recipe {
        init: Some("init".into()),
        step: StepRecipe {
            function: "train_step".into(),
            inputs: inputs.clone(),
            loss: "loss".into(),
        },
        evaluate: Some(EvaluateRecipe {
            function: "evaluate".into(),
            inputs,
            batch_size: 100,
            metrics: vec![
                metric("mean", Aggregate::Mean),
                metric("average", Aggregate::PerExample),
                metric("total", Aggregate::Sum),
            ],
            every: Cadence::Epochs(2),
        }),
        batches: Batches {
            size: 65,
            shuffle: Some(u64::MAX),
            blocks: None,
            last: LastBatch::Smaller,
        },
        length: Length::Epochs(20),
        checkpoint: Cadence::Steps(100),
        key_seed: 7,
        microbatches: 1,
        precision: None,
        monitoring: Monitoring::default(),
    };
    let weights = [
        (
            "model.weight".to_owned(),
            Literal::from_vec(&[3, 4], (0..12).map(|i| i as f32 / 7.0).collect()).unwrap(),
        ),
        ("optimizer.step".to_owned(), Literal::from(3u64)),
    ];
    GraphFile { program, recipe: Some(recipe), weights: Weights::Inline(weights.into()) }
}

#[test]
fn version_1_of_graph_files_is_read() {
    let (expected, path) = (expected(), golden("v1.graph"));
    if std::env::var_os("WENGERT_BLESS_GOLDEN").is_some() {
        expected.write(&path).unwrap();
    }
    let read = GraphFile::read(&path).unwrap();
    assert_eq!(read.recipe, expected.recipe);
    assert_eq!(read.weights, expected.weights);
    for (read, expected) in read.program.functions().iter().zip(expected.program.functions()) {
        assert!(read == expected, "@{}", expected.name);
    }
    assert!(read == expected);
    // While version 1 is the newest, writing gives the same bytes.
    assert!(read.to_bytes().unwrap() == std::fs::read(&path).unwrap());
}

#[test]
fn version_1_of_plan_files_is_read() {
    for name in ["init", "train_step"] {
        let (path, text) = (golden(&format!("v1-{name}.plan")), golden(&format!("v1-{name}.txt")));
        if std::env::var_os("WENGERT_BLESS_GOLDEN").is_some() {
            let bindings = if name == "init" { bind!() } else { bind!(B = 2) };
            let made =
                compile(&expected().program, name, &bindings, &Target::cpu(), &Options::default())
                    .unwrap();
            std::fs::write(&text, made.to_string()).unwrap();
            plan::write(&path, &made).unwrap();
        }
        let (expected, _) = parse_plan("v1.txt", &std::fs::read_to_string(&text).unwrap()).unwrap();
        let read = plan::read(&path).unwrap();
        assert!(*read == expected, "{name}");
        assert!(
            plan::to_bytes(std::slice::from_ref(&read)).unwrap() == std::fs::read(&path).unwrap(),
            "{name}"
        );
    }
}
