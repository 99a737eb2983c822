//! Training in mixed precision: a policy of the library and the option of the command.

use crate::place::{Place, Ran};
use wengert::GraphFile;
use wengert::data;
use wengert::precision::Precision;

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
        place.graphrun(&["dump", "model.graph@loss", "--precision", "f16"]),
        &["training in f16 needs loss scaling", "help: use bf16"],
    );
    refused(
        place.graphrun(&["dump", "model.graph@loss", "--precision", "int4"]),
        &["there is no precision `int4`", "help: there is bf16"],
    );
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
    refused(&["--keep-f32-equation", "loss:0"], &["--precision <DTYPE>"]);
    refused(&["--params", "none.npz"], &["none.npz"]);
    refused(&["--input", "q=zeros"], &["`q`"]);
    place.graphrun(&["compile", "model.graph@loss", "--bind", "B=4", "--out", "l.plan"]).good();
    place.graphrun(&["precision", "l.plan"]).failed(2, &["is a plan", "help: give the .graph"]);
}
