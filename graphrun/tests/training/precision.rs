//! Training in mixed precision: a policy of the library and the option of the command.

use crate::place::{Place, Ran};
use wengert::precision::Precision;
use wengert::{DType, GraphFile, data};

const BF16: [&str; 2] = ["--precision", "bf16"];

#[test]
fn the_option_gives_the_bits_of_the_policy() {
    let place = Place::new();
    let file = GraphFile::read(place.path("model.graph")).unwrap();
    let program = Precision::bf16().apply_to_program(&file.program).unwrap();
    GraphFile { program, ..file }.write(place.path("mixed.graph")).unwrap();

    place.train("mixed.graph", "a", &[]).good();
    place.train("model.graph", "b", &BF16).good();
    place.train("model.graph", "c", &[]).good();
    assert_eq!(place.contents("a"), place.contents("b"));
    // The products differ, and master weights are in f32 all the same.
    let weights = |folder: &str| {
        let path = place.path(&format!("{folder}/weights.safetensors"));
        data::read_all(path).unwrap()["w"].clone()
    };
    let (mixed, whole) = (weights("b"), weights("c"));
    assert_eq!(mixed.ty(), whole.ty());
    let near = |(x, y): (f64, f64)| x != y && (x - y).abs() < 0.02 * y.abs();
    let elements = |of: &wengert::Literal| of.scalars().map(|x| x.to_f64()).collect::<Vec<_>>();
    let mut pairs = elements(&mixed).into_iter().zip(elements(&whole));
    assert!(pairs.all(near), "{mixed} {whole}");
}

/// A recipe's policy is that of the option. The option takes its place.
#[test]
fn a_recipe_may_have_a_precision() {
    let place = Place::new();
    let write = |name: &str, policy: Precision| {
        let mut file = GraphFile::read(place.path("model.graph")).unwrap();
        file.recipe.as_mut().unwrap().precision = Some(policy);
        file.write(place.path(name)).unwrap();
    };
    write("own.graph", Precision::bf16());
    place.train("own.graph", "a", &[]).good();
    place.train("model.graph", "b", &BF16).good();
    assert_eq!(place.contents("a"), place.contents("b"));
    place.train("own.graph", "a", &["--resume", "--steps", "80"]).good();

    let f32 = ["--precision", "f32"];
    place.train("own.graph", "c", &f32).good();
    place.train("model.graph", "d", &[]).good();
    assert_eq!(place.contents("c"), place.contents("d"));

    let evaluate = |file: &str, options: &[&str]| {
        let given = ["evaluate", file, "--data", "data.npz", "--params", "b/weights.safetensors"];
        let ran = place.graphrun(&[&given[..], options].concat());
        ran.good();
        ran.out
    };
    let mixed = evaluate("own.graph", &[]);
    assert_eq!(mixed, evaluate("model.graph", &BF16));
    assert_eq!(evaluate("own.graph", &f32), evaluate("model.graph", &[]));

    let dumped = place.graphrun(&["dump", "own.graph", "--recipe"]);
    dumped.good();
    assert!(dumped.out.ends_with("\nprecision bf16\n"), "{dumped:?}");

    write("f16.graph", Precision::f16());
    let unscaled = ["`step` does not scale its loss", "`optim::LossScale`", "--precision bf16"];
    place.train("f16.graph", "e", &[]).failed(2, &unscaled);
    write("lost.graph", Precision::bf16().keep_path("head.*").unwrap());
    let lost =
        ["recipe: precision: no variable matches `head.*`", "help: variables of the program"];
    place.train("lost.graph", "e", &[]).failed(2, &lost);
    let kept = [&f32[..], &["--keep-f32", "dot_general"]].concat();
    place.train("own.graph", "e", &kept).failed(2, &["there are no exceptions", "--keep-f32"]);
}

#[test]
fn a_run_has_one_precision() {
    let place = Place::new();
    place.train("model.graph", "a", &BF16).good();
    let other = ["--resume", "--steps", "80"];
    place.train("model.graph", "a", &other).failed(2, &["`a`", "and precision of its"]);
    place.train("model.graph", "a", &[&other[..], &BF16].concat()).good();
}

#[test]
fn every_command_takes_the_option() {
    let place = Place::new();
    let run = |arguments: &[&str]| place.graphrun(&[arguments, &BF16].concat());
    place.train("model.graph", "a", &BF16).good();
    let params = ["--params", "a/weights.safetensors"];
    let evaluate = ["evaluate", "model.graph", "--data", "data.npz"];
    run(&[&evaluate[..], &params].concat()).good();
    let compiled = run(&["compile", "model.graph@loss", "--bind", "B=4", "--out", "l.plan"]);
    compiled.good();
    let nests = run(&["dump", "model.graph@loss", "--bind", "B=4", "--stage", "nests"]);
    assert!(nests.out.contains("bf16"), "{nests:?}");
    run(&["memory", "model.graph@loss", "--bind", "B=4", "--minimize"]).good();

    let refused = |ran: Ran, says: &[&str]| ran.failed(2, says);
    let plan = ["`l.plan` is a plan; its precision is fixed", "help: give --precision to"];
    refused(run(&["run", "l.plan", "--input", "x=zeros", "--input", "y=zeros"]), &plan);
    refused(
        place.graphrun(&["dump", "model.graph@loss", "--precision", "int4"]),
        &["there is no precision `int4`", "help: there are bf16 and f16"],
    );
}

/// A step in f16 scales its loss. Steps that are skipped are logged.
#[test]
fn f16_needs_a_scaled_loss() {
    let place = Place::new();
    let f16 = ["--precision", "f16"];
    place
        .train("model.graph", "a", &f16)
        .failed(2, &["`step` does not scale its loss", "`optim::LossScale`", "--precision bf16"]);
    // A function without a gradient needs none.
    let dumped = place.graphrun(&["dump", "model.graph@loss", "--precision", "f16"]);
    dumped.good();
    assert!(dumped.out.contains("f16"), "{dumped:?}");

    place.write_scaled("scaled.graph");
    place.train("scaled.graph", "b", &f16).good();
    let log = std::fs::read_to_string(place.path("b/log.jsonl")).unwrap();
    assert!(log.contains("\"loss_scale\":65536.0,\"skipped\":true"), "{log}");
    assert!(log.lines().filter(|line| line.contains("\"skipped\":true")).count() < 40, "{log}");
    // The run goes on where it was, with the same precision only.
    let more = ["--resume", "--steps", "80"];
    place.train("scaled.graph", "b", &more).failed(2, &["and precision of its"]);
    place.train("scaled.graph", "b", &[&more[..], &f16].concat()).good();
}

#[test]
fn a_certificate_says_what_it_takes() {
    let place = Place::new();
    let certificate = place.graphrun(&["precision", "model.graph@loss", "--precision", "bf16"]);
    certificate.good();
    let out = certificate.out;
    assert!(out.starts_with("@loss with B=2, observed on cpu\nloss: f32[], "), "{out}");
    for figure in ["worst-case bound      ", "first-order estimate  ", "observed error        "] {
        assert!(out.contains(figure), "{out}");
    }
    let refused = |arguments: &[&str], says: &[&str]| {
        let all = [&["precision", "model.graph@loss"], arguments].concat();
        place.graphrun(&all).failed(2, says);
    };
    refused(&["--within", "1e-2"], &["--precision <DTYPE>"]);
    refused(&["--precision", "bf16", "--within", "0"], &["it is a number above 0"]);
    refused(&["--precision", "bf16", "--within", "inf"], &["it is a number above 0"]);
    refused(&["--precision", "f32", "--within", "1e-2"], &["--within has no choice", "bf16"]);
    refused(&["--keep-f32-equation", "loss:0"], &["--precision <DTYPE>"]);
    refused(&["--params", "none.npz"], &["none.npz"]);
    refused(&["--input", "q=zeros"], &["`q`"]);
    place.graphrun(&["compile", "model.graph@loss", "--bind", "B=4", "--out", "l.plan"]).good();
    place.graphrun(&["precision", "l.plan"]).failed(2, &["is a plan", "help: give the .graph"]);
}

/// Parameters in bf16.
const STORED: [&str; 4] = ["--precision", "bf16", "--param-dtype", "bf16"];

fn stored() -> Precision {
    Precision::bf16().param_dtype(DType::BF16).unwrap()
}

/// A model whose parameters are bf16 learns, and the three ways give the same bits.
#[test]
fn parameters_are_trained_in_bf16() {
    let place = Place::new();
    let file = GraphFile::read(place.path("model.graph")).unwrap();
    let program = stored().apply_to_program(&file.program).unwrap();
    GraphFile { program, ..file.clone() }.write(place.path("rust.graph")).unwrap();
    let mut recipe = file;
    recipe.recipe.as_mut().unwrap().precision = Some(stored());
    recipe.write(place.path("recipe.graph")).unwrap();

    place.train("rust.graph", "a", &[]).good();
    place.train("recipe.graph", "b", &[]).good();
    place.train("model.graph", "c", &STORED).good();
    assert_eq!(place.contents("a"), place.contents("b"));
    assert_eq!(place.contents("a"), place.contents("c"));
    let weights = data::read_all(place.path("a/weights.safetensors")).unwrap();
    assert_eq!(weights["w"].dtype(), DType::BF16);
    let log = std::fs::read_to_string(place.path("a/log.jsonl")).unwrap();
    let losses: Vec<f64> = log
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()?["loss"].as_f64())
        .collect();
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    assert!(last < first / 2.0, "{losses:?}");

    let dumped = place.graphrun(&["dump", "recipe.graph", "--recipe"]);
    dumped.good();
    assert!(dumped.out.ends_with("\nprecision bf16, parameters bf16\n"), "{dumped:?}");
    // Losses may be bf16, too.
    let results = [&STORED[..], &["--output-dtype", "bf16"]].concat();
    place.train("model.graph", "d", &results).good();
    // Another dtype of parameters is another program.
    let more = ["--resume", "--steps", "80"];
    let other = ["another program or recipe", "and precision of its"];
    place.train("model.graph", "c", &[&more[..], &BF16].concat()).failed(2, &other);
    place.train("model.graph", "c", &[&more[..], &STORED].concat()).good();
}

/// Weights in f32 are rounded for parameters in bf16. The reverse is an error.
#[test]
fn weights_are_rounded_to_the_dtype_of_parameters() {
    let place = Place::new();
    place.train("model.graph", "a", &[]).good();
    place.train("model.graph", "b", &STORED).good();
    let evaluate = |params: &str, options: &[&str]| {
        let given = ["evaluate", "model.graph", "--data", "data.npz", "--params", params];
        place.graphrun(&[&given[..], options].concat())
    };
    let (wide, halves) = ("a/weights.safetensors", "b/weights.safetensors");
    evaluate(halves, &STORED).good();
    let cast = evaluate(wide, &STORED);
    cast.good();
    // The same as of a file with the rounded weights.
    let mut weights = data::read_all(place.path(wide)).unwrap();
    let rounded = weights["w"].convert(DType::BF16);
    weights.insert("w".to_owned(), rounded);
    let pairs = weights.iter().map(|(name, value)| (name.as_str(), value));
    data::safetensors::write(place.path("rounded.safetensors"), pairs).unwrap();
    assert_eq!(cast.out, evaluate("rounded.safetensors", &STORED).out);
    evaluate(halves, &[]).failed(2, &["variable `w` is f32[", "have bf16["]);

    // Training starts from such weights, too, and a function runs on them.
    place.train("model.graph", "d", &[&STORED[..], &["--params", wide]].concat()).good();
    let run = |params: &str, options: &[&str]| {
        let given = ["run", "model.graph@loss", "--params", params];
        let inputs = ["--input", "x=random:1", "--input", "y=random:2", "--bind", "B=4"];
        place.graphrun(&[&given[..], &inputs, options].concat())
    };
    let ran = run(wide, &STORED);
    ran.good();
    assert_eq!(ran.out, run("rounded.safetensors", &STORED).out);
    run(halves, &[]).failed(2, &["`w`", "bf16["]);
}
