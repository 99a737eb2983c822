//! ONNX models with the command: imported, run, inspected, certified, differentiated, and what is
//! wrong with a model.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod merge;
mod page;

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

/// The input x: f32[batch,2].
fn x() -> Vec<u8> {
    let dims = [field(1, &field(2, b"batch")), field(1, &number(1, 2))].concat();
    let ty = field(2, &field(1, &[number(1, 1), field(2, &dims)].concat()));
    field(11, &[field(1, b"x"), ty].concat())
}

/// y and z: the halves of x.
fn halves() -> Vec<u8> {
    let split = [field(1, b"x"), field(2, b"y"), field(2, b"z"), field(4, b"Split")];
    let outputs = [field(12, &field(1, b"y")), field(12, &field(1, b"z"))];
    let graph = [field(1, &split.concat()), x(), outputs.concat()].concat();
    [number(1, 10), field(7, &graph), field(8, &number(2, 21))].concat()
}

/// y = relu(x·w + b), x: f32[batch,2].
fn model(activation: &str) -> Vec<u8> {
    let graph = [
        node("MatMul", &["x", "fc.weight"], "product"),
        node("Add", &["product", "fc.bias"], "sum"),
        node(activation, &["sum"], "y"),
        tensor("fc.weight", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        tensor("fc.bias", &[3], &[0.0, 0.0, -20.0]),
        x(),
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
    let counts = "@predict with 1 input, 2 parameters and 1 output written to m.graph";
    assert_eq!(out, format!("{counts}\n@predict(x: f32[batch,2]) -> (y: f32[batch,3])\n"));
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
    let bound = ["import", "m.onnx", "-o", "b.graph", "--bind", "batch=4"];
    assert_eq!(graphrun(folder, &bound).0, 0);
    let (_, out, _) = graphrun(folder, &["inspect", "b.graph"]);
    assert!(out.contains("x: f32[4,2]"), "{out}");
    let (status, out, error) = graphrun(
        folder,
        &["precision", "m.onnx", "--bind", "batch=2", "--precision", "bf16", "--input", x],
    );
    assert!(status == 0 && out.contains('y'), "{out}{error}");
}

#[test]
fn a_function_becomes_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("m.onnx"), model("Relu")).unwrap();
    let import = ["import", "m.onnx", "-o", "m.graph"];
    assert_eq!(graphrun(folder, &import).0, 0);
    let export = ["export", "m.graph@predict", "-o", "e.onnx", "--opset", "23"];
    let (status, out, error) = graphrun(folder, &export);
    assert_eq!((status, error.as_str()), (0, ""));
    let counts = "@predict with 1 input, 2 parameters and 1 output";
    assert_eq!(out, format!("{counts} written to e.onnx, op set 23\n"));
    let run = ["run", "e.onnx", "--input", "x=2x2xf32=1 1 2 3", "--output", "y=-"];
    let (status, out, error) = graphrun(folder, &run);
    assert_eq!(status, 0, "{error}");
    assert!(out.contains("2x3xf32=5.0 7.0 0.0 14.0 19.0 4.0"), "{out}");
    // A dimension variable stays, unless it is bound.
    let (_, out, _) = graphrun(folder, &["inspect", "e.onnx"]);
    assert!(out.contains("f32[batch,2]"), "{out}");
    let bound = ["export", "m.graph", "-o", "b.onnx", "--bind", "batch=4"];
    assert_eq!(graphrun(folder, &bound).0, 0);
    let (_, out, _) = graphrun(folder, &["inspect", "b.onnx"]);
    assert!(out.contains("f32[4,2]"), "{out}");
}

#[test]
fn what_cannot_be_exported_is_said_with_the_equation() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = "func @f(%x: i32[3]) -> (y: i32[3]) {\n  %0: i32[3] = popcnt %x\n  return %0\n}\n";
    std::fs::write(folder.join("f.ir"), text).unwrap();
    let (status, _, error) = graphrun(folder, &["export", "f.ir", "-o", "f.onnx"]);
    assert_eq!(status, 2);
    assert!(error.contains("= popcnt` cannot be exported: ONNX counts no bits"), "{error}");
    assert!(error.contains("f.ir:2:"), "{error}");
    assert!(!folder.join("f.onnx").exists());
    let (status, _, error) = graphrun(folder, &["export", "f.ir", "-o", "f.bin"]);
    assert!(status == 2 && error.contains("names of models end in .onnx"), "{error}");
    let unknown = ["export", "f.ir", "-o", "f.onnx", "--opset", "20"];
    let (status, _, error) = graphrun(folder, &unknown);
    assert!(status == 2 && error.contains("21..=28"), "{error}");
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
    let bound = ["import", "m.onnx", "-o", "m.graph", "--bind", "N=3"];
    let (status, _, error) = graphrun(folder, &bound);
    assert!(status == 2 && error.contains("has the extent `N`"), "{error}");
    assert!(error.contains("there are batch"), "{error}");
    let (status, _, error) = graphrun(folder, &["import", "m.onnx", "-o", "out.onnx"]);
    assert!(status == 2 && error.contains("graphrun export"), "{error}");
    let (status, _, error) = graphrun(folder, &["import", "none.onnx", "-o", "m.graph"]);
    assert!(status == 2 && error.contains("none.onnx"), "{error}");
}

#[test]
fn results_whose_number_depends_on_data_have_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("m.onnx"), model("NonZero")).unwrap();
    let import = ["import", "m.onnx", "-o", "m.graph"];
    let (status, _, error) = graphrun(folder, &import);
    assert!(status == 2 && error.contains("`--max y=N`"), "{error}");
    let (status, _, error) = graphrun(folder, &[&import[..], &["--max", "y=many"]].concat());
    assert!(status == 2 && error.contains("write --max NAME=N"), "{error}");
    let (status, out, error) = graphrun(folder, &[&import[..], &["--max", "y=4"]].concat());
    assert_eq!((status, error.as_str()), (0, ""));
    assert!(out.contains("2 outputs"), "{out}");
    let run = ["run", "m.graph@predict", "--input", "x=1x2xf32=1 0"];
    let (status, out, error) = graphrun(folder, &run);
    assert_eq!((status, error.as_str()), (0, ""));
    // [1, 2, 3] + [0, 0, -20] has no 0.
    assert!(out.contains("y_count") && out.contains('3'), "{out}");
}

/// Every command takes a model's file, and the options of its import.
#[test]
fn commands_that_read_a_model_take_the_options_of_import() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("m.onnx"), model("NonZero")).unwrap();
    let of = |arguments: &[&str]| graphrun(folder, arguments);
    let x = ["--input", "x=1x2xf32=1 0"];
    let (status, _, error) = of(&[&["run", "m.onnx"][..], &x].concat());
    assert!(status == 2 && error.contains("`--max y=N`"), "{error}");
    for command in [
        &["run", "m.onnx", x[0], x[1]][..],
        &["inspect", "m.onnx"],
        &["dump", "m.onnx"],
        &["compile", "m.onnx", "-o", "m.plan", "--bind", "batch=2"],
        &["check", "m.onnx", "--bind", "batch=2"],
        &["export", "m.onnx", "-o", "e.onnx"],
        &["vmap", "m.onnx", "--in", "x"],
        &["import", "m.onnx"],
    ] {
        let (status, _, error) = of(&[command, &["--max", "y=4"]].concat());
        assert!(status == 0 || command[0] == "export", "{command:?}: {error}");
        assert!(!error.contains("bound"), "{command:?}: {error}");
    }
    // The default name is not taken from a file that is there.
    assert!(folder.join("m.graph").exists());
    let (status, _, error) = of(&["import", "m.onnx", "--max", "y=4"]);
    assert!(status == 2 && error.contains("`m.graph` is there already"), "{error}");
    let (status, _, error) = of(&["run", "m.graph", "--max", "y=4", x[0], x[1]]);
    assert!(status == 2 && error.contains("no model to which --max applies"), "{error}");
    // An extent that an op needs as a number.
    std::fs::write(folder.join("h.onnx"), halves()).unwrap();
    let run = ["run", "h.onnx", "--input", "x=2x2xf32=1 2 3 4", "--output", "z=-"];
    let (status, _, error) = of(&run);
    assert!(status == 2 && error.contains("`--bind NAME=N`"), "{error}");
    let (status, out, error) = of(&[&run[..], &["--bind", "batch=2"]].concat());
    assert!(status == 0 && out.contains("z=1x2xf32=3.0 4.0"), "{out}{error}");
    let (status, _, error) = of(&[&run[..], &["--bind", "rows=2"]].concat());
    assert!(status == 2 && error.contains("`rows`") && error.contains("batch"), "{error}");
}

/// s: a sequence of f32, x = the first of its elements.
fn first_of_sequence() -> Vec<u8> {
    let element = field(1, &number(1, 1));
    let ty = field(2, &field(4, &field(1, &element)));
    let at = [number(2, 7), field(8, b"at"), field(9, &0u64.to_le_bytes())].concat();
    let graph = [
        node("SequenceAt", &["s", "at"], "x"),
        field(5, &at),
        field(11, &[field(1, b"s"), ty].concat()),
        field(12, &field(1, b"x")),
    ];
    [number(1, 10), field(7, &graph.concat()), field(8, &number(2, 21))].concat()
}

#[test]
fn an_input_that_is_a_sequence_has_shapes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("m.onnx"), first_of_sequence()).unwrap();
    let import = ["import", "m.onnx", "-o", "m.graph"];
    let of = |more: &[&str]| graphrun(folder, &[&import[..], more].concat());
    let (status, _, error) = of(&[]);
    assert!(status == 2 && error.contains("--sequence \"s=[3],[2,4]\""), "{error}");
    let (status, _, error) = of(&["--sequence", "s"]);
    assert!(status == 2 && error.contains("`--sequence s` has no shapes"), "{error}");
    let (status, _, error) = of(&["--sequence", "s=3"]);
    assert!(status == 2 && error.contains("--sequence"), "{error}");
    let (status, _, error) = of(&["--absent", "s"]);
    assert!(status == 2 && error.contains("it is not optional"), "{error}");
    let (status, out, error) = of(&["--sequence", "s=[2],[B,4]"]);
    assert_eq!((status, error.as_str()), (0, ""));
    assert!(out.contains("2 inputs"), "{out}");
}

const TRAIN: &[&str] = &["import", "m.onnx", "-o", "m.graph", "--train", "--loss"];

/// Trains the model's bias, and then an update of its weight.
#[test]
fn a_model_is_trained() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("m.onnx"), model("Sigmoid")).unwrap();
    let rows: Vec<String> = (0..8).map(|n| format!("{}.0 {}.0", n % 2, n / 4)).collect();
    let x: Vec<f32> =
        rows.join(" ").split(' ').map(|number| number.parse::<f32>().unwrap()).collect();
    let labels: Vec<f32> = x.chunks(2).flat_map(|x| [x[0], x[1], 1.0 - x[0]]).collect();
    let x = wengert::Literal::from_vec(&[8, 2], x).unwrap();
    let labels = wengert::Literal::from_vec(&[8, 3], labels).unwrap();
    wengert::data::npz::write(folder.join("d.npz"), [("x", &x), ("targets", &labels)]).unwrap();
    for (choice, counts) in [
        (["--freeze", "*.weight"], "1 trained and 1 frozen"),
        (["--lora", "r=1,alpha=2,*.weight"], "2 trained and 2 frozen"),
    ] {
        let settings = ["binary_cross_entropy", "--array", "labels=targets", "--epochs", "40"];
        let rate = ["--learning-rate", "0.1", "--batch", "4", "--optimizer", "adam"];
        let arguments = [TRAIN, &settings, &rate, &choice].concat();
        let (status, out, error) = graphrun(folder, &arguments);
        assert_eq!((status, error.as_str()), (0, ""));
        assert!(out.contains(counts), "{out}");
        let run = choice[0].trim_start_matches('-');
        let weights = format!("{run}/weights.safetensors");
        let (status, _, error) =
            graphrun(folder, &["train", "m.graph", "--data", "d.npz", "--out", run]);
        assert_eq!(status, 0, "{error}");
        let evaluated = |weights: &[&str]| {
            let file = ["evaluate", "m.graph", "--data", "d.npz", "--json"];
            let (status, out, error) = graphrun(folder, &[&file[..], weights].concat());
            assert_eq!(status, 0, "{error}");
            let found: serde_json::Value = serde_json::from_str(&out).unwrap();
            found["metrics"]["loss"].as_f64().unwrap()
        };
        let (first, last) = (evaluated(&[]), evaluated(&["--params", &weights]));
        assert!(last < 0.7 * first, "{choice:?}: {first}, then {last}");
        let x = "x=1x2xf32=1 0";
        let predict =
            ["run", "m.graph@predict", "--params", &weights, "--input", x, "--output", "y=-"];
        let (status, out, error) = graphrun(folder, &predict);
        assert!(status == 0 && out.contains("1x3xf32="), "{out}{error}");
    }
}

#[test]
fn data_that_do_not_fit_leave_no_run_behind() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("m.onnx"), model("Relu")).unwrap();
    assert_eq!(graphrun(folder, &[TRAIN, &["mse"]].concat()).0, 0);
    let train = ["train", "m.graph", "--data", "d.npz", "--out", "runs/a"];
    let array = |shape: &[usize]| {
        let count = shape.iter().product();
        wengert::Literal::from_vec(shape, vec![1.0f32; count]).unwrap()
    };
    let write = |name: &str, x: &[usize]| {
        let (x, labels) = (array(x), array(&[4, 3]));
        wengert::data::npz::write(folder.join("d.npz"), [(name, &x), ("labels", &labels)]).unwrap();
    };
    for (name, shape, text) in [
        ("x", &[4, 3][..], "input `x` is f32[batch,2], the tensor given is f32[4,3]"),
        ("x", &[4, 2, 1], "it must have 2 axes"),
        ("z", &[4, 2], "--array x=NAME"),
    ] {
        write(name, shape);
        let (status, _, error) = graphrun(folder, &train);
        assert!(status == 2 && error.contains(text), "{error}");
        assert!(!folder.join("runs").exists(), "{text}");
    }
    write("x", &[4, 2]);
    let (status, _, error) = graphrun(folder, &train);
    assert_eq!(status, 0, "{error}");
}

/// A step drops out with a key, and a prediction does not.
/// y = conv(x, w)·s, x: f32[batch,1,3,3].
fn scaled_convolution() -> Vec<u8> {
    let dims: Vec<u8> = [1, 3, 3].iter().flat_map(|n| field(1, &number(1, *n))).collect();
    let dims = [field(1, &field(2, b"batch")), dims].concat();
    let ty = field(2, &field(1, &[number(1, 1), field(2, &dims)].concat()));
    let graph = [
        node("Conv", &["x", "w"], "c"),
        node("Mul", &["c", "s"], "y"),
        tensor("w", &[2, 1, 2, 2], &[1.0, 0.0, 0.0, 1.0, 0.5, 0.0, 0.0, 0.0]),
        tensor("s", &[2, 1, 1], &[3.0, 8.0]),
        field(11, &[field(1, b"x"), ty].concat()),
        field(12, &field(1, b"y")),
    ];
    [number(1, 10), field(7, &graph.concat()), field(8, &number(2, 21))].concat()
}

/// A model for inference has the product in its filter, and one that is trained behind its
/// convolution.
#[test]
fn normalisations_are_folded_unless_the_model_is_trained() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("c.onnx"), scaled_convolution()).unwrap();
    assert_eq!(graphrun(folder, &["import", "c.onnx", "-o", "c.graph"]).0, 0);
    let tuned = ["import", "c.onnx", "--train", "--loss", "mse", "-o", "t.graph"];
    let (status, _, error) = graphrun(folder, &tuned);
    assert_eq!(status, 0, "{error}");
    let input = "x=1x1x3x3xf32=1 2 3 4 5 6 7 8 9";
    for (file, folds) in [("c.onnx", true), ("c.graph", true), ("t.graph@predict", false)] {
        let (_, out, _) = graphrun(folder, &["dump", file, "--stage", "graph"]);
        assert_eq!(out.contains(": f32[2,1,2,2] = mul"), folds, "{file}: {out}");
        assert_eq!(out.contains(": f32[batch,2,2,2] = mul"), !folds, "{file}: {out}");
    }
    let run = ["run", "c.graph", "--input", input, "--output", "y=-"];
    let (status, out, error) = graphrun(folder, &run);
    assert_eq!(status, 0, "{error}");
    assert!(out.contains("f32=18.0 24.0 36.0 42.0 4.0 8.0 16.0 20.0"), "{out}");
}

#[test]
fn dropout_has_its_training_form() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("m.onnx"), model("Dropout")).unwrap();
    let (status, _, error) = graphrun(folder, &[TRAIN, &["mse", "--training-forms"]].concat());
    assert_eq!(status, 0, "{error}");
    let dumped = |function: &str| graphrun(folder, &["dump", &format!("m.graph@{function}")]).1;
    assert!(dumped("train_step").contains("random_bits"), "{}", dumped("train_step"));
    for function in ["predict", "evaluate"] {
        assert!(!dumped(function).contains("random_bits"), "{}", dumped(function));
    }
    let x = wengert::Literal::from_vec(&[4, 2], vec![1.0f32; 8]).unwrap();
    let labels = wengert::Literal::from_vec(&[4, 3], vec![1.0f32; 12]).unwrap();
    wengert::data::npz::write(folder.join("d.npz"), [("x", &x), ("labels", &labels)]).unwrap();
    let train = ["train", "m.graph", "--data", "d.npz", "--steps", "3", "--out", "runs"];
    let (status, out, error) = graphrun(folder, &train);
    assert!(status == 0 && out.contains("3 steps done"), "{out}{error}");
    std::fs::write(folder.join("m.onnx"), model("Relu")).unwrap();
    let (status, _, error) = graphrun(folder, &[TRAIN, &["mse", "--training-forms"]].concat());
    assert!(status == 2 && error.contains("no batch normalisation and no dropout"), "{error}");
}

#[test]
fn what_cannot_be_trained_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("m.onnx"), model("Relu")).unwrap();
    let says = |choices: &[&str], texts: &[&str]| {
        let (status, _, error) = graphrun(folder, &[TRAIN, choices].concat());
        assert_eq!(status, 2, "{error}");
        for text in texts {
            assert!(error.contains(text), "{error}");
        }
        assert!(!folder.join("m.graph").exists());
    };
    says(&["entropy"], &["there is no loss `entropy`", "cross_entropy"]);
    says(&["mse", "--optimizer", "adadelta"], &["there is no optimizer `adadelta`", "adamw"]);
    says(&["mse", "--output", "z"], &["no output `z`", "`y`"]);
    says(&["mse", "--freeze", "conv*"], &["no variable matches `conv*`", "`fc.weight`"]);
    says(&["mse", "--freeze", "*"], &["all variables are frozen"]);
    says(&["mse", "--lora", "fc.weight"], &["has no rank", "r=8"]);
    says(&["mse", "--lora", "r=1,fc.bias"], &["`fc.bias` of type f32[3] is no matrix"]);
    says(&["mse", "--lora", "r=2,fc.weight"], &["rank 2, which is not below 2"]);
    says(&["mse", "--array", "z=a"], &["the input `z`, which it lacks", "`x`, `labels`"]);
    says(&["mse", "--array", "x"], &["`--array x` is no pair"]);
    says(&["mse", "--function", "train_step"], &["@train_step, a name of training"]);
    let (status, _, error) =
        graphrun(folder, &["import", "m.onnx", "-o", "m.graph", "--loss", "mse"]);
    assert!(status == 2 && error.contains("--train"), "{error}");
    let (status, _, error) = graphrun(folder, &TRAIN[..5]);
    assert!(status == 2 && error.contains("--loss"), "{error}");
}
