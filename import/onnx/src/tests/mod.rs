//! Models that are made here: names, parameters, dimension variables, functions, bodies, and files
//! that are wrong. The ops have ONNX's own tests.

mod container;
mod counted;
mod mutants;
mod narrow;

use crate::proto::*;
use crate::{Class, Imported, Options, read};
use bytes::Bytes;
use prost::Message;
use std::path::Path;
use wengert_core::interpret;
use wengert_core::{Binding, Diagnostic, Literal, Result};

fn input(name: &str, dtype: i32, shape: &[Option<&str>]) -> ValueInfoProto {
    let dim = |text: &Option<&str>| match text.map(str::parse::<i64>) {
        Some(Ok(number)) => DimensionProto { dim_value: Some(number), dim_param: None },
        Some(Err(_)) => DimensionProto { dim_value: None, dim_param: text.map(Into::into) },
        None => DimensionProto::default(),
    };
    let shape = TensorShapeProto { dim: shape.iter().map(dim).collect() };
    let tensor = TensorTypeProto { elem_type: Some(dtype), shape: Some(shape) };
    let ty = TypeProto { tensor_type: Some(tensor), ..Default::default() };
    ValueInfoProto { name: Some(name.into()), r#type: Some(ty) }
}

fn output(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: Some(name.into()), r#type: None }
}

fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let all = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
    NodeProto {
        op_type: Some(op.into()),
        input: all(inputs),
        output: all(outputs),
        ..Default::default()
    }
}

fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        i: Some(value),
        r#type: Some(2),
        ..Default::default()
    }
}

fn floats(name: &str, shape: &[i64], values: &[f32]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: shape.to_vec(),
        data_type: Some(1),
        float_data: values.to_vec(),
        ..Default::default()
    }
}

fn ints(name: &str, values: &[i64]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: vec![values.len() as i64],
        data_type: Some(7),
        int64_data: values.to_vec(),
        ..Default::default()
    }
}

fn model(graph: GraphProto) -> ModelProto {
    ModelProto {
        ir_version: Some(10),
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(21) }],
        graph: Some(graph),
        ..Default::default()
    }
}

fn nowhere(path: &Path) -> Result<Bytes> {
    Err(Diagnostic::new(format!("there is no {}", path.display())))
}

fn imported(model: &ModelProto) -> Result<Imported> {
    read("m.onnx", model.encode_to_vec().into(), &nowhere, &Options::default())
}

fn refused(model: &ModelProto) -> String {
    imported(model).err().map_or_else(|| panic!("it is imported"), |e| e.to_string())
}

fn run(imported: &Imported, binding: &Binding, inputs: &[Literal]) -> Vec<Literal> {
    let function = imported.program.functions()[0].bind(binding).unwrap();
    let mut inputs = inputs.iter();
    let all: Vec<Literal> = function
        .inputs
        .iter()
        .map(|input| match imported.parameters.get(&input.name) {
            Some(value) => value.clone(),
            None => inputs.next().unwrap().clone(),
        })
        .collect();
    interpret::run(&function, &all).unwrap()
}

/// x·w + b, with names that are no names here, reshaped by a shape that is computed from x's.
fn network() -> ModelProto {
    let mut concat = node("Concat", &["batch", "minus"], &["shape"]);
    concat.attribute = vec![int("axis", 0)];
    let gather = node("Gather", &["dims", "zero"], &["batch"]);
    model(GraphProto {
        name: Some("net".into()),
        node: vec![
            node("MatMul", &["x:0", "fc/weight"], &["product"]),
            node("Add", &["product", "fc/bias"], &["sum"]),
            node("Shape", &["x:0"], &["dims"]),
            gather,
            concat,
            node("Reshape", &["sum", "shape"], &["y:0"]),
        ],
        initializer: vec![
            floats("fc/weight", &[2, 4], &[1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0]),
            floats("fc/bias", &[4], &[0.5, 0.0, 0.0, 0.0]),
            ints("zero", &[0]),
            ints("minus", &[-1]),
        ],
        input: vec![input("x:0", 1, &[Some("batch size"), Some("3"), Some("2")])],
        output: vec![output("y:0")],
        ..Default::default()
    })
}

#[test]
fn initializers_are_parameters_and_shapes_stay_symbolic() {
    let imported = imported(&network()).unwrap();
    let function = &imported.program.functions()[0];
    let inputs: Vec<String> = function.inputs.iter().map(|i| i.name.clone()).collect();
    assert_eq!(inputs, ["x_0", "fc_weight", "fc_bias"]);
    assert_eq!(function.input_type(0).to_string(), "f32[batch_size,3,2]");
    assert_eq!(function.output_type(0).to_string(), "f32[batch_size,12]");
    assert_eq!(imported.names["x_0"], "x:0");
    let names: Vec<&String> = imported.parameters.keys().collect();
    assert_eq!(names, ["fc_bias", "fc_weight"]);
    let x = Literal::from_vec(&[1, 3, 2], vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let y = run(&imported, &Binding::new().with("batch_size", 1), &[x]).remove(0);
    let wanted = [1.5, 2.0, 2.0, 1.0, 3.5, 4.0, 4.0, 3.0, 5.5, 6.0, 6.0, 5.0];
    assert_eq!(y.as_slice::<f32>().unwrap(), wanted);
}

#[test]
fn an_input_that_is_a_shape_is_bound() {
    let reshape = |shape: &str| {
        model(GraphProto {
            node: vec![node("Reshape", &["x", shape], &["y"])],
            input: vec![input("x", 1, &[Some("6")]), input("shape", 7, &[Some("2")])],
            output: vec![output("y")],
            ..Default::default()
        })
    };
    let error = refused(&reshape("shape"));
    assert!(error.contains("node `y` (Reshape, opset 21)"), "{error}");
    assert!(
        error.contains(&Class::Operand.to_string()) && error.contains("--bind-input"),
        "{error}"
    );
    let mut options = Options::default();
    options.bound.insert("shape".into(), Literal::from_vec(&[2], vec![3i64, 2]).unwrap());
    let bytes: Bytes = reshape("shape").encode_to_vec().into();
    let bound = read("m.onnx", bytes.clone(), &nowhere, &options).unwrap();
    assert_eq!(bound.program.functions()[0].output_type(0).to_string(), "f32[3,2]");
    options.bound.insert("other".into(), Literal::from_vec(&[1], vec![0i64]).unwrap());
    let error = read("m.onnx", bytes, &nowhere, &options).err().unwrap().to_string();
    assert!(error.contains("no input `other`") && error.contains("x, shape"), "{error}");
}

#[test]
fn functions_are_imported_in_their_place() {
    let mut network = network();
    let mut scale = node("Mul", &["a", "a"], &["b"]);
    scale.name = Some("square".into());
    network.functions = vec![FunctionProto {
        name: Some("Square".into()),
        domain: Some("own".into()),
        input: vec!["a".into()],
        output: vec!["b".into()],
        node: vec![scale],
        ..Default::default()
    }];
    let graph = network.graph.as_mut().unwrap();
    let mut call = node("Square", &["y:0"], &["z"]);
    call.domain = Some("own".into());
    graph.node.push(call);
    graph.output = vec![output("z")];
    let found = imported(&network).unwrap();
    let x = Literal::from_vec(&[1, 3, 2], vec![1.0f32; 6]).unwrap();
    let y = run(&found, &Binding::new().with("batch_size", 1), &[x]).remove(0);
    assert_eq!(y.as_slice::<f32>().unwrap()[..4], [2.25, 1.0, 1.0, 1.0]);
    // One that calls itself does not come to an end.
    let body = &mut network.functions[0].node[0];
    (body.op_type, body.domain) = (Some("Square".into()), Some("own".into()));
    body.input = vec!["a".into()];
    assert!(refused(&network).contains("call each other without end"));
}

#[test]
fn a_branch_uses_names_around_it() {
    let branch = |op: &str| GraphProto {
        node: vec![node(op, &["x", "x"], &["r"])],
        output: vec![output("r")],
        ..Default::default()
    };
    let graph_attribute = |name: &str, graph: GraphProto| AttributeProto {
        name: Some(name.into()),
        g: Some(graph),
        r#type: Some(5),
        ..Default::default()
    };
    let mut choice = node("If", &["c"], &["y"]);
    choice.attribute = vec![
        graph_attribute("then_branch", branch("Add")),
        graph_attribute("else_branch", branch("Mul")),
    ];
    let model = model(GraphProto {
        node: vec![choice],
        input: vec![input("c", 9, &[]), input("x", 1, &[Some("2")])],
        output: vec![output("y")],
        ..Default::default()
    });
    let found = imported(&model).unwrap();
    let x = Literal::from_vec(&[2], vec![3.0f32, 5.0]).unwrap();
    for (holds, wanted) in [(true, [6.0, 10.0]), (false, [9.0, 25.0])] {
        let c = Literal::from_vec(&[], vec![holds]).unwrap();
        let y = run(&found, &Binding::new(), &[c, x.clone()]).remove(0);
        assert_eq!(y.as_slice::<f32>().unwrap(), wanted);
    }
}

#[test]
fn wrong_files_say_what_is_wrong() {
    let change = |of: &dyn Fn(&mut GraphProto)| {
        let mut network = network();
        of(network.graph.as_mut().unwrap());
        refused(&network)
    };
    let cyclic = change(&|g| g.node[0].input[0] = "sum".into());
    assert!(cyclic.contains("`sum` is used before it is defined"), "{cyclic}");
    let twice = change(&|g| g.node[1].output[0] = "product".into());
    assert!(twice.contains("`product` is defined twice"), "{twice}");
    let missing = change(&|g| g.output[0].name = Some("none".into()));
    assert!(missing.contains("output `none` is not defined"), "{missing}");
    let short = change(&|g| g.initializer[0].float_data.truncate(3));
    assert!(short.contains("initializer `fc/weight`: it has 3 values"), "{short}");
    let huge = change(&|g| g.initializer[0].dims = vec![i64::MAX, i64::MAX]);
    assert!(huge.contains("its extents are"), "{huge}");
    let negative = change(&|g| g.initializer[0].dims = vec![-2, 4]);
    assert!(negative.contains("its extents are [-2, 4]"), "{negative}");
    let unknown = change(&|g| g.node[0].op_type = Some("Frobnicate".into()));
    assert!(unknown.contains("(Frobnicate, opset 21)") && unknown.contains("(unknown op)"));
    let strings = change(&|g| g.initializer[0].data_type = Some(8));
    assert!(strings.contains("a tensor of strings (dtype)"), "{strings}");
    let mut new = network();
    new.opset_import[0].version = Some(99);
    assert!(refused(&new).contains("opset 99, not one of 7 to 28 (version)"));
    let bytes = network().encode_to_vec();
    for length in [1, bytes.len() / 2, bytes.len() - 1] {
        let cut = Bytes::copy_from_slice(&bytes[..length]);
        assert!(read("m.onnx", cut, &nowhere, &Options::default()).is_err());
    }
}

#[test]
fn values_in_other_files_stay_in_the_models_folder() {
    let external = |location: &str| {
        let mut network = network();
        let tensor = &mut network.graph.as_mut().unwrap().initializer[0];
        tensor.float_data.clear();
        tensor.data_location = Some(1);
        let entry = |key: &str, value: &str| StringStringEntryProto {
            key: Some(key.into()),
            value: Some(value.into()),
        };
        tensor.external_data = vec![entry("location", location), entry("offset", "4")];
        network
    };
    let files = |path: &Path| {
        assert_eq!(path, Path::new("data/w.bin"));
        Ok(Bytes::from((0..36u8).collect::<Vec<_>>()))
    };
    let bytes: Bytes = external("data/w.bin").encode_to_vec().into();
    let found = read("m.onnx", bytes, &files, &Options::default()).unwrap();
    let first = found.parameters["fc_weight"].to_bytes();
    assert_eq!(first, (4..36u8).collect::<Vec<_>>());
    for location in ["../w.bin", "/etc/passwd", "data/../../w.bin", ""] {
        let error = refused(&external(location));
        assert!(error.contains("outside the model's folder"), "{error}");
    }
    let few = |_: &Path| Ok(Bytes::from_static(&[0; 8]));
    let bytes: Bytes = external("data/w.bin").encode_to_vec().into();
    let error = read("m.onnx", bytes, &few, &Options::default()).err().unwrap().to_string();
    assert!(error.contains("file `data/w.bin` has 8 bytes"), "{error}");
}

#[test]
fn the_table_has_each_op_and_version_once() {
    let mut seen = std::collections::BTreeSet::new();
    for row in crate::rows() {
        assert!(seen.insert((row.domain, row.name, row.since)), "{} {}", row.name, row.since);
    }
    assert!(seen.len() > 180, "{}", seen.len());
}
