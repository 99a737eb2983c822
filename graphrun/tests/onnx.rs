//! ONNX models with the command: imported, run, inspected, certified, differentiated, and what is
//! wrong with a model.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use std::path::Path;
use std::process::Command;

fn graphrun(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_graphrun"));
    let output = command.args(arguments).current_dir(folder).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A field of a message that has a length.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 128 {
        field.push(length as u8 | 128);
        length >>= 7;
    }
    field.push(length as u8);
    [field, bytes.to_vec()].concat()
}

/// A field of a message that is a small number.
fn number(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn node(op: &str, inputs: &[&str], output: &str) -> Vec<u8> {
    let inputs = inputs.iter().flat_map(|name| field(1, name.as_bytes()));
    let inputs: Vec<u8> = inputs.collect();
    field(1, &[inputs, field(2, output.as_bytes()), field(4, op.as_bytes())].concat())
}

/// A tensor of f32.
fn tensor(name: &str, shape: &[u8], values: &[f32]) -> Vec<u8> {
    let shape: Vec<u8> = shape.iter().flat_map(|extent| number(1, *extent)).collect();
    let values: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let parts = [shape, number(2, 1), field(8, name.as_bytes()), field(9, &values)];
    field(5, &parts.concat())
}

/// y = relu(x·w + b), x: f32[batch,2].
fn model(activation: &str) -> Vec<u8> {
    let dims = [field(1, &field(2, b"batch")), field(1, &number(1, 2))].concat();
    let ty = field(2, &field(1, &[number(1, 1), field(2, &dims)].concat()));
    let graph = [
        node("MatMul", &["x", "fc.weight"], "product"),
        node("Add", &["product", "fc.bias"], "sum"),
        node(activation, &["sum"], "y"),
        tensor("fc.weight", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        tensor("fc.bias", &[3], &[0.0, 0.0, -20.0]),
        field(11, &[field(1, b"x"), ty].concat()),
        field(12, &field(1, b"y")),
    ];
    [number(1, 10), field(7, &graph.concat()), field(8, &number(2, 21))].concat()
}

#[test]
fn a_model_is_a_program_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("m.onnx"), model("Relu")).unwrap();
    let (status, out, error) = graphrun(folder, &["import", "m.onnx", "-o", "m.graph"]);
    assert_eq!((status, error.as_str()), (0, ""));
    assert_eq!(out, "@predict with 1 inputs, 2 parameters and 1 outputs written to m.graph\n");
    let x = "x=2x2xf32=1 1 2 3";
    for file in ["m.graph", "m.onnx"] {
        let (status, out, error) =
            graphrun(folder, &["run", file, "--input", x, "--output", "y=-"]);
        assert_eq!(status, 0, "{error}");
        assert!(out.contains("2x3xf32=5.0 7.0 0.0 14.0 19.0 4.0"), "{out}");
    }
    let (status, out, _) = graphrun(folder, &["inspect", "m.onnx"]);
    assert!(status == 0 && out.contains("f32[2,3]"), "{out}");
    let (status, out, error) = graphrun(folder, &["check", "m.onnx", "--bind", "batch=3"]);
    assert_eq!(status, 0, "{out}{error}");
    let (status, out, error) = graphrun(
        folder,
        &["precision", "m.onnx", "--bind", "batch=2", "--precision", "bf16", "--input", x],
    );
    assert!(status == 0 && out.contains('y'), "{out}{error}");
}

#[test]
fn what_is_wrong_is_said_with_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("m.onnx"), model("Frobnicate")).unwrap();
    let (status, _, error) = graphrun(folder, &["run", "m.onnx", "--input", "x=zeros"]);
    assert_eq!(status, 2);
    assert!(error.contains("node `y` (Frobnicate, opset 21): it is not imported"), "{error}");
    assert!(error.contains("docs/onnx.md"), "{error}");
    let bytes = model("Relu");
    std::fs::write(folder.join("cut.onnx"), &bytes[..bytes.len() / 2]).unwrap();
    let (status, _, error) = graphrun(folder, &["inspect", "cut.onnx"]);
    assert!(status == 2 && error.contains("it is no ONNX model"), "{error}");
    std::fs::write(folder.join("m.onnx"), bytes).unwrap();
    let bound = ["import", "m.onnx", "-o", "m.graph", "--bind-input", "z=1xi64=3"];
    let (status, _, error) = graphrun(folder, &bound);
    assert!(status == 2 && error.contains("no input `z` to bind"), "{error}");
    let (status, _, error) = graphrun(folder, &["import", "m.onnx", "-o", "out.onnx"]);
    assert!(status == 2 && error.contains("ONNX is only read"), "{error}");
    let (status, _, error) = graphrun(folder, &["import", "none.onnx", "-o", "m.graph"]);
    assert!(status == 2 && error.contains("none.onnx"), "{error}");
}
