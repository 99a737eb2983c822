//! `.graph` files: reading gives back the written content. An invalid file is refused, and the
//! error names the position.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use std::path::Path;
use wengert::core::graph::{PrintOptions, Program, print};
use wengert::core::{Initializer, Tensor};
use wengert::format::v1::{self, Node};
use wengert::format::{GraphFile, Weights, codec, container};
use wengert::precision::Precision;
use wengert::recipe::{
    Aggregate, Batches, Cadence, EvaluateRecipe, InputRecipe, LastBatch, Length, Metric,
    Monitoring, Recipe, StepRecipe, Transform,
};
use wengert::{DType, Literal, ProgramFile, Scalar, TensorType, control};
use wengert_testing::programs::random_program;

fn program() -> Program {
    let model = || Tensor::variable(TensorType::new(DType::F32, [3usize, 4]), Initializer::Zeros);
    let mut program = Program::new();
    program
        .function("train_step", |f| {
            let x =
                f.input("x", TensorType::new(DType::F32, ["B".into(), wengert::Dim::from(3usize)]));
            let _key = f.key("key");
            let w = f.state("model.w", model());
            let bias = Tensor::constant(Literal::from_vec(&[2], vec![-0.0f32, f32::NAN]).unwrap());
            let y = x.dot(&w).slice_axis(1, 1usize, 3usize).sum_axes(&[0]) + &bias;
            f.update("model.w", &(&w - &(0.1 * &w)));
            f.output("loss", y.sum());
        })
        .unwrap();
    program
        .function("predict", |f| {
            let x =
                f.input("x", TensorType::new(DType::F32, ["B".into(), wengert::Dim::from(3usize)]));
            let w = f.param("model.w", model());
            let y = x.dot(&w);
            f.output("total", y.sum());
            f.output("y", y);
        })
        .unwrap();
    program
}

fn recipe() -> Recipe {
    Recipe {
        init: None,
        step: StepRecipe {
            function: "train_step".into(),
            inputs: vec![
                InputRecipe::new("x", "x_train")
                    .then(Transform::Convert(DType::F32))
                    .then(Transform::Scale(Scalar::of(0.0625f32))),
            ],
            loss: "loss".into(),
        },
        evaluate: Some(EvaluateRecipe {
            function: "predict".into(),
            inputs: vec![InputRecipe::new("x", "x_test")],
            batch_size: 10,
            metrics: vec![Metric {
                name: "mean".into(),
                output: "total".into(),
                aggregate: Aggregate::Mean,
            }],
            every: Cadence::Epochs(1),
        }),
        batches: Batches { size: 4, shuffle: Some(1), blocks: None, last: LastBatch::Drop },
        length: Length::Steps(10),
        checkpoint: Cadence::Never,
        key_seed: 3,
        microbatches: 1,
        precision: None,
        monitoring: Monitoring::default(),
    }
}

/// A recipe with blocks of rows, and with transforms that have a section of their own.
fn augmented() -> Recipe {
    let mut recipe = recipe();
    recipe.batches.blocks = Some(wengert::recipe::Blocks { rows: 100, window: 3 });
    recipe.step.inputs[0].transforms.push("flip 1".parse().unwrap());
    recipe.evaluate.as_mut().unwrap().inputs[0].transforms.push("crop 1 3 centre".parse().unwrap());
    recipe
}

fn file() -> GraphFile {
    let weights = [("model.w".to_owned(), Literal::zeros(DType::F32, &[3, 2]))].into();
    GraphFile { program: program(), recipe: Some(recipe()), weights: Weights::Inline(weights) }
}

#[test]
fn round_trip_through_bytes_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.graph");
    for file in [
        file(),
        GraphFile::new(program()),
        GraphFile { weights: Weights::File("w.safetensors".into()), ..file() },
        GraphFile { recipe: Some(augmented()), ..file() },
        GraphFile::default(),
    ] {
        file.write(&path).unwrap();
        let read = GraphFile::read(&path).unwrap();
        // Literals compare by bits, so a NaN among the constants equals itself.
        assert!(read == file);
        assert_eq!(
            read.to_bytes().unwrap(),
            std::fs::read(&path).unwrap(),
            "writing is deterministic"
        );
    }
    program().save(&path).unwrap();
    assert!(Program::load(&path).unwrap() == program());
    let mut file = file();
    file.recipe.as_mut().unwrap().step.loss = "cost".into();
    let error = GraphFile::from_bytes(&file.to_bytes().unwrap()).unwrap_err().to_string();
    assert!(error.contains("`@train_step` has no output `cost`"), "{error}");
    // A policy of precision belongs to a recipe.
    file = self::file();
    file.recipe.as_mut().unwrap().precision =
        Some(Precision::bf16().keep_op("softmax").unwrap().keep_path("model.*").unwrap());
    let bytes = file.to_bytes().unwrap();
    assert!(GraphFile::from_bytes(&bytes).unwrap() == file);
    let (_, mut sections) = container::read(container::Kind::Graph, &[1], &bytes).unwrap();
    sections.retain(|section| section.name != "recipe");
    let orphan = container::write(container::Kind::Graph, 1, &sections);
    let error = GraphFile::from_bytes(&orphan).unwrap_err().to_string();
    assert!(error.contains("a `precision` without a `recipe`"), "{error}");
    // Dtypes of parameters and results are a section that belongs to the policy.
    let policy = Precision::bf16().param_dtype(DType::BF16).unwrap();
    file.recipe.as_mut().unwrap().precision = Some(policy.only_function("*").unwrap());
    let bytes = file.to_bytes().unwrap();
    assert!(GraphFile::from_bytes(&bytes).unwrap() == file);
    let (_, mut sections) = container::read(container::Kind::Graph, &[1], &bytes).unwrap();
    sections.retain(|section| section.name != "precision");
    let orphan = container::write(container::Kind::Graph, 1, &sections);
    let error = GraphFile::from_bytes(&orphan).unwrap_err().to_string();
    assert!(error.contains("a `precision.dtypes` without a `precision`"), "{error}");
    // The locations in the user's source survive.
    file.recipe = None;
    let program = GraphFile::from_bytes(&file.to_bytes().unwrap()).unwrap().program;
    let function = program.get("train_step").unwrap();
    let place = function.locations.origin(function.body.equations[0].location).to_string();
    assert!(place.contains("graph_file.rs"), "{place}");
}

#[test]
fn random_programs_survive_the_file() {
    for seed in 0..150 {
        let file = GraphFile::new(random_program(seed, 20));
        let bytes = file.to_bytes().unwrap();
        let read =
            GraphFile::from_bytes(&bytes).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(read == file, "seed {seed}");
        // Equality of equations ignores locations; the printed text includes them.
        let located = |file: &GraphFile| print(&file.program, &PrintOptions { locations: true });
        assert!(located(&read) == located(&file), "seed {seed}");
    }
}

/// Constants of one type before, within and after nested regions. Each keeps its position.
#[test]
fn constants_of_regions_survive_the_file() {
    let mut program = Program::new();
    program
        .function("f", |f| {
            let x = f.input("x", TensorType::scalar(DType::F32));
            let before = &x + 1.0f32;
            let step = |_: &Tensor, y: &Tensor| {
                let y = y * 2.0f32;
                control::cond(&y.gt(3.0f32), || &y - 4.0f32, || &y - 5.0f32) * 6.0f32
            };
            f.output("y", control::fori(7, &before, step) + 8.0f32);
        })
        .unwrap();
    let file = GraphFile::new(program);
    let read = GraphFile::from_bytes(&file.to_bytes().unwrap()).unwrap();
    assert_eq!(read.program.to_string(), file.program.to_string());
}

#[test]
fn texts_hold_programs_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.ir");
    program().save(&path).unwrap();
    let read = GraphFile::read(&path).unwrap();
    assert_eq!(read.program.to_string(), program().to_string());
    assert!(file().write(&path).unwrap_err().message.contains("cannot hold a recipe"));
    assert!(
        program()
            .save(folder.path().join("a.txt"))
            .unwrap_err()
            .to_string()
            .contains(".graph or .ir")
    );
    std::fs::write(&path, "func @f() -> () {\n  oops\n}\n").unwrap();
    let error = Program::load(&path).unwrap_err().to_string();
    assert!(error.contains("a.ir:2:3"), "{error}");
    std::fs::write(&path, b"func @f() -> ()\n\xff").unwrap();
    assert!(Program::load(&path).unwrap_err().message.contains("line 2 is not UTF-8"));
}

#[test]
fn weights_beside_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let graph = folder.path().join("a.graph");
    let weights = Weights::File("w.safetensors".into());
    assert!(weights.load(&graph).unwrap_err().message.contains("w.safetensors"));
    let w = Literal::from(1.0f32);
    wengert::data::safetensors::write(folder.path().join("w.safetensors"), [("w", &w)]).unwrap();
    assert_eq!(weights.load(&graph).unwrap().unwrap(), [("w".to_owned(), w)].into());
    for bad in ["", "..", "/etc/passwd", "a/b", "a\\b", "c:d", "a\0"] {
        let bad = Weights::File(bad.into());
        assert!(bad.load(&graph).is_err());
        assert!(GraphFile { weights: bad, ..GraphFile::default() }.to_bytes().is_err());
    }
}

/// The file with its records changed by `change`, and with correct checksums.
fn forged(change: impl FnOnce(&mut v1::Program, &mut Vec<u8>, &mut v1::Locations)) -> Vec<u8> {
    let program = program();
    let (mut record, mut literals) = v1::program::to_record(&program);
    let mut locations = v1::locations::to_record(&program);
    change(&mut record, &mut literals, &mut locations);
    let parts = [
        ("program", codec::encode("program", &record).unwrap()),
        ("literals", literals),
        ("locations", codec::encode("locations", &locations).unwrap()),
    ];
    let sections: Vec<_> =
        parts.iter().map(|(name, bytes)| container::Section { name, bytes }).collect();
    container::write(container::Kind::Graph, v1::VERSION, &sections)
}

#[test]
fn records_that_cannot_be_right_are_refused() {
    assert!(GraphFile::from_bytes(&forged(|_, _, _| {})).unwrap().program == program());
    let says = |text: &str, bytes: Vec<u8>| {
        let error = GraphFile::from_bytes(&bytes).unwrap_err().to_string();
        assert!(error.contains(text), "expected `{text}` in: {error}");
    };
    says("there is no value %9999", forged(|p, _, _| p.bodies[0].equations[1].operands[0] = 9999));
    says("there is no value %9999", forged(|p, _, _| p.bodies[0].outputs[0] = 9999));
    says(
        "unknown op `frobnicate`",
        forged(|p, _, _| p.bodies[0].equations[0].op = "frobnicate".into()),
    );
    says("there is no location", forged(|p, _, _| p.bodies[0].equations[0].location = 1 << 30));
    says("there is no location", forged(|p, _, _| p.functions[0].inputs[0].location = 1 << 30));
    says("body 1 is not there, or is used twice", forged(|p, _, _| p.functions[0].body = 1));
    says("body 7 is not there", forged(|p, _, _| p.functions[0].body = 7));
    says("body 0 is not there", forged(|p, _, _| p.bodies[0].equations[0].regions.push(0)));
    says(
        "belongs to no function",
        forged(|p, _, l| {
            p.functions.pop();
            l.functions.pop();
        }),
    );
    says("defined twice", forged(|p, _, _| p.functions[0].name = "predict".into()));
    says("unknown role `weird`", forged(|p, _, _| p.functions[0].inputs[0].role = "weird".into()));
    says("unknown dtype", forged(|p, _, _| p.bodies[0].values[0].dtype = "f31".into()));
    says(
        "normal form",
        forged(|p, _, _| p.bodies[0].values[0].shape[0].terms = vec![("B".into(), 0)]),
    );
    says(
        "normal form",
        forged(|p, _, _| p.bodies[0].values[0].shape[0].terms = vec![("B C".into(), 1)]),
    );
    says("section `literals` has 1 bytes too many", forged(|_, l, _| l.push(0)));
    says("larger than what is left", forged(|_, l, _| l.truncate(l.len() - 1)));
    says("lists for 2 functions", forged(|_, _, l| l.functions.truncate(1)));
    says("has no text", forged(|_, _, l| l.texts.clear()));
    says(
        "location 0 is known",
        forged(|_, _, l| {
            l.functions[0].remove(0);
        }),
    );
    says(
        "not before it",
        forged(|_, _, l| l.functions[0].push(v1::Location::Derived { of: 1000, rule: 0 })),
    );
}

#[test]
fn attributes_that_cannot_be_right_are_refused() {
    let with = |nodes: Vec<Node>| {
        let bytes = forged(|p, _, _| {
            let slice = p.bodies[0]
                .equations
                .iter_mut()
                .find(|e| e.op == "slice")
                .expect("the program slices");
            slice.attributes.retain(|(name, _)| name != "start");
            slice.attributes.push(("start".into(), nodes));
        });
        GraphFile::from_bytes(&bytes).unwrap_err().to_string()
    };
    assert!(with(vec![Node::Bool(true)]).contains("expected a list"));
    assert!(with(vec![]).contains("cut short"));
    assert!(with(vec![Node::List(u32::MAX)]).contains("has only 0 nodes"));
    assert!(with(vec![Node::List(0), Node::Bool(true)]).contains("behind its end"));
    assert!(with(vec![Node::List(1); 100_000]).contains("nest deeper than"));
    assert!(with(vec![Node::Scalar { dtype: "u8".into(), bits: 256 }]).contains("not the bits"));
    let huge = Node::Literal { dtype: "f64".into(), shape: vec![u64::MAX, 2] };
    assert!(with(vec![huge]).contains("larger than what is left"));
    let unknown = forged(|p, _, _| {
        p.bodies[0].equations[0].attributes.push(("colour".into(), vec![Node::Bool(true)]))
    });
    assert!(GraphFile::from_bytes(&unknown).unwrap_err().to_string().contains("colour"));
}

#[test]
fn foreign_damaged_and_missing_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.graph");
    let says = |path: &Path, text: &str| {
        let error = GraphFile::read(path).unwrap_err().to_string();
        assert!(error.contains("a.graph") && error.contains(text), "{error}");
    };
    says(&path, "No such file");
    std::fs::write(&path, b"func @f() -> () {}").unwrap();
    says(&path, "no .graph file");
    let bytes = file().to_bytes().unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    says(&path, "cut short");
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 4;
    std::fs::write(&path, flipped).unwrap();
    says(&path, "checksum");
}

#[test]
fn dimensions_with_products_of_variables_are_kept() {
    let mut program = Program::new();
    let shape = ["B*T*T", "3*B*T+B+-1"].map(wengert::Dim::from);
    let ty = TensorType::new(DType::F32, shape);
    program
        .function("f", |f| {
            let x = f.input("x", ty.clone());
            f.output("y", x.flatten(0));
        })
        .unwrap();
    let read = GraphFile::from_bytes(&GraphFile::new(program.clone()).to_bytes().unwrap()).unwrap();
    assert_eq!(read.program, program);
    assert_eq!(read.program.get("f").unwrap().input_type(0), &ty);
}
