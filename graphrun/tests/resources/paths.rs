//! Paths that are not UTF-8, in every command.

use super::Workplace;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use wengert::core::graph::parse_program;
use wengert::data::Arrays;
use wengert::recipe::{
    Batches, Cadence, InputRecipe, LastBatch, Length, Monitoring, Recipe, StepRecipe,
};
use wengert::{GraphFile, Literal, Weights, data};

/// A name with bytes that are invalid in UTF-8.
const FOLDER: &[u8] = b"f\xff\xfe";

/// `{}` stands for the folder.
fn argument(text: &str) -> OsString {
    let mut bytes = Vec::new();
    for (i, part) in text.split("{}").enumerate() {
        bytes.extend(if i > 0 { FOLDER } else { b"" });
        bytes.extend(part.as_bytes());
    }
    OsString::from_vec(bytes)
}

const TRAINED: &str = "\
func @init() -> (state w: f32[]) {
  %0: f32[] = constant {value=f32[] 0.0}
  return %0
}

func @step(%x: f32[B], state %w: f32[]) -> (loss: f32[], state w: f32[]) {
  %0: f32[] = reduce_sum %x {axes=[0]}
  %1: f32[] = add %0, %w
  return %0, %1
}
";

/// A program that can be trained on an array `x`.
pub fn train_file(path: &Path) {
    let program = parse_program(TRAINED, "t.ir").unwrap();
    let step = StepRecipe {
        function: "step".into(),
        inputs: vec![InputRecipe::new("x", "x")],
        loss: "loss".into(),
    };
    let recipe = Recipe {
        init: Some("init".into()),
        step,
        evaluate: None,
        batches: Batches { size: 2, shuffle: Some(1), blocks: None, last: LastBatch::Smaller },
        length: Length::Epochs(2),
        checkpoint: Cadence::Steps(1),
        key_seed: 0,
        microbatches: 1,
        precision: None,
        monitoring: Monitoring::default(),
    };
    GraphFile { program, recipe: Some(recipe), weights: Weights::None }.write(path).unwrap();
}

#[test]
fn every_command_takes_every_path() {
    let place = Workplace::new();
    let folder = place.path(OsStr::from_bytes(FOLDER));
    fs::create_dir(&folder).unwrap();
    fs::copy(place.path("f.ir"), folder.join("f.ir")).unwrap();
    fs::copy(place.path("x.npy"), folder.join("x.npy")).unwrap();
    fs::write(folder.join("t.csv"), "id,lower,upper,size\na,0,2,10\n").unwrap();
    fs::write(folder.join("test.ir"), "// test: dump %s\nfunc @f() -> () {\n  return\n}\n")
        .unwrap();
    train_file(&folder.join("t.graph"));
    let x = Literal::from_vec(&[3], vec![0.0f32, 1.0, 2.0]).unwrap();
    let arrays = Arrays::from([("x".to_owned(), x)]);
    data::write_all(folder.join("d.npz"), arrays.iter().map(|(k, v)| (k.as_str(), v))).unwrap();

    for words in [
        "run {}/f.ir@double --input x=@{}/x.npy --output y={}/y.npy",
        "run {}/f.ir@double --input x=@{}/d.npz[x] --expect y={}/y.npy --output y={}/y.npz",
        "run {}/f.ir@double --input x=@{}/x.npy --expect y=@{}/y.npz[y]",
        "run {}/t.graph@init --save {}/w.safetensors",
        "run {}/t.graph@step --params {}/w.safetensors --input x=@{}/x.npy",
        "compile {}/f.ir@double --bind N=3 -o {}/p.plan",
        "run {}/p.plan --input x=@{}/x.npy",
        "dump {}/p.plan@double --stage plan",
        "dump {}/f.ir@double",
        "train {}/t.graph --data {}/d.npz --out {}/run",
        "train {}/t.graph --data {}/d.npz --out {}/run --resume --steps 9 --params \
         {}/w.safetensors",
        "check {}/f.ir@double --input x=@{}/x.npy",
        "jvp {}/f.ir@double --wrt x -o {}/g.ir",
        "vmap {}/g.ir --in x:0,t_x:0 -o {}/v.graph",
        "memory {}/t.csv --minimize -o {}/s.csv --svg {}/s.svg",
        "memory {}/f.ir@double --bind N=3 --frontier -o {}/f.plan",
        "test {}/test.ir --bless",
    ] {
        let arguments: Vec<OsString> = words.split(' ').map(argument).collect();
        let ran = place.graphrun(&arguments);
        // With `--bless` a failing test still ends with status 1.
        let wanted = if words.starts_with("test") { 1 } else { 0 };
        assert_eq!((ran.status, ran.err.as_str()), (Some(wanted), ""), "{words}: {ran:?}");
    }
    for file in [
        "y.npy",
        "p.plan",
        "run/weights.safetensors",
        "g.ir",
        "v.graph",
        "s.csv",
        "s.svg",
        "f.plan",
    ] {
        assert!(folder.join(file).exists(), "{file}");
    }
    // An error shows an invalid path as well as possible.
    let wrong = |words: &str| place.graphrun(&words.split(' ').map(argument).collect::<Vec<_>>());
    wrong("run {}/none.ir").failed(2, &["cannot read `f\u{fffd}\u{fffd}/none.ir`"]);
    wrong("run {}/f.ir@{}").failed(2, &["there is no function"]);
    wrong("run {}/f.ir@double --input {}=zeros").failed(2, &["is no pair"]);
    wrong("run {}/f.ir@double --input x=@{}/d.npz[{}]").failed(2, &["names no array"]);
    wrong("run {}/f.ir@double --input x={}").failed(2, &["is not UTF-8 text"]);
}
