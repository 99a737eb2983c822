//! Training in mixed precision: a policy of the library and the option of the command.

use crate::place::{Place, Ran};
use wengert::precision::Precision;
use wengert::{GraphFile, data};

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
    refused(&["--precision", "bf16", "--within", "0"], &["an error is a number above 0"]);
    refused(&["--precision", "bf16", "--within", "inf"], &["an error is a number above 0"]);
    refused(&["--precision", "f32", "--within", "1e-2"], &["--within has no choice", "bf16"]);
    refused(&["--keep-f32-equation", "loss:0"], &["--precision <DTYPE>"]);
    refused(&["--params", "none.npz"], &["none.npz"]);
    refused(&["--input", "q=zeros"], &["`q`"]);
    place.graphrun(&["compile", "model.graph@loss", "--bind", "B=4", "--out", "l.plan"]).good();
    place.graphrun(&["precision", "l.plan"]).failed(2, &["is a plan", "help: give the .graph"]);
}
