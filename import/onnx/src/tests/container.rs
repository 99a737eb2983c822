//! Sequences and optional values.

use super::{imported, input, int, ints, model, node, nowhere, output, refused, run};
use crate::proto::*;
use crate::{Imported, Narrow, Options, read};
use prost::Message;
use wengert_core::{Binding, Diagnostic, Dim, Literal, Result};

/// An input that is a sequence of f32, or an optional value of one.
fn container(name: &str, optional: bool) -> ValueInfoProto {
    let mut info = input(name, 1, &[]);
    info.r#type.as_mut().and_then(|ty| ty.tensor_type.as_mut()).unwrap().shape = None;
    let around = |ty: TypeProto| ElementTypeProto { elem_type: Some(Box::new(ty)) };
    let sequence = around(info.r#type.take().unwrap());
    let sequence = TypeProto { sequence_type: Some(Box::new(sequence)), ..Default::default() };
    let ty = match optional {
        true => TypeProto { optional_type: Some(Box::new(around(sequence))), ..Default::default() },
        false => sequence,
    };
    ValueInfoProto { r#type: Some(ty), ..info }
}

fn with(model: &ModelProto, options: &Options) -> Result<Imported> {
    read("m.onnx", model.encode_to_vec().into(), &nowhere, options)
}

fn shapes(name: &str, extents: &[usize]) -> Options {
    let shapes = extents.iter().map(|extent| vec![Dim::from(*extent)]).collect();
    Options { sequences: [(name.to_owned(), shapes)].into(), ..Default::default() }
}

fn list(values: &[f32]) -> Literal {
    Literal::from_vec(&[values.len()], values.to_vec()).unwrap()
}

fn error_of(result: Result<Imported>) -> String {
    result.err().map_or_else(|| panic!("it is imported"), |e: Diagnostic| e.to_string())
}

#[test]
fn the_elements_of_a_sequence_are_inputs_and_outputs() {
    let of = model(GraphProto {
        node: vec![
            node("SequenceInsert", &["s", "x", "one"], &["longer"]),
            node("SequenceErase", &["longer", "zero"], &["t"]),
            node("SequenceLength", &["t"], &["n"]),
        ],
        initializer: vec![ints("one", &[1]), ints("zero", &[0])],
        input: vec![container("s", false), input("x", 1, &[Some("1")])],
        output: vec![output("t"), output("n")],
        ..Default::default()
    });
    let error = refused(&of);
    assert!(
        error.contains("(container)") && error.contains("--sequence \"s=[3],[2,4]\""),
        "{error}"
    );
    let found = with(&of, &shapes("s", &[2, 3])).unwrap();
    let function = &found.program.functions()[0];
    let inputs: Vec<&str> = function.inputs.iter().map(|i| i.name.as_str()).collect();
    let outputs: Vec<&str> = function.outputs.iter().map(|o| o.name.as_str()).collect();
    assert_eq!((inputs, outputs), (vec!["s.0", "s.1", "x"], vec!["t.0", "t.1", "n"]));
    assert_eq!(found.names["s.1"], "s.1");
    let given = [list(&[1.0, 2.0]), list(&[3.0, 4.0, 5.0]), list(&[6.0])];
    let results = run(&found, &Binding::new(), &given);
    assert_eq!((&results[0], &results[1]), (&given[2], &given[1]));
    assert_eq!(results[2].get(0).to_f64(), 2.0);
    let mut both = shapes("s", &[2, 3]);
    both.sequences.extend(shapes("x", &[2]).sequences);
    let error = error_of(with(&of, &both));
    assert!(error.contains("input `x`: it is no sequence"), "{error}");
    let error = error_of(with(&of, &shapes("r", &[2])));
    assert!(error.contains("no input `r` to bind"), "{error}");
}

#[test]
fn an_optional_value_is_there_or_absent_at_import() {
    let of = model(GraphProto {
        node: vec![node("OptionalHasElement", &["s"], &["has"])],
        input: vec![container("s", true)],
        output: vec![output("has")],
        ..Default::default()
    });
    let has = |options: &Options| {
        let found = with(&of, options).unwrap();
        let given = vec![list(&[1.0]); found.program.functions()[0].inputs.len()];
        run(&found, &Binding::new(), &given)[0].get(0).to_f64()
    };
    assert_eq!(has(&shapes("s", &[1])), 1.0);
    let absent = Options { absent: ["s".to_owned()].into(), ..Default::default() };
    assert_eq!(has(&absent), 0.0);
    let mut get = of.clone();
    get.graph.as_mut().unwrap().node[0].op_type = Some("OptionalGetElement".into());
    let error = error_of(with(&get, &absent));
    assert!(error.contains("an optional value that is absent"), "{error}");
    let mut tensor = of.clone();
    tensor.graph.as_mut().unwrap().input = vec![input("s", 1, &[Some("1")])];
    let error = error_of(with(&tensor, &absent));
    assert!(error.contains("it is not optional"), "{error}");
}

/// A choice between two graphs by an input `c`.
fn choice(branches: [GraphProto; 2], inputs: Vec<ValueInfoProto>) -> ModelProto {
    let mut choice = node("If", &["c"], &["y"]);
    choice.attribute = ["then_branch", "else_branch"]
        .into_iter()
        .zip(branches)
        .map(|(name, graph)| AttributeProto {
            name: Some(name.into()),
            g: Some(graph),
            r#type: Some(5),
            ..Default::default()
        })
        .collect();
    model(GraphProto {
        node: vec![choice],
        input: [vec![input("c", 9, &[])], inputs].concat(),
        output: vec![output("y")],
        ..Default::default()
    })
}

fn branch(nodes: Vec<NodeProto>) -> GraphProto {
    GraphProto { node: nodes, output: vec![output("r")], ..Default::default() }
}

#[test]
fn a_branch_of_the_graph_has_sequences_and_narrow_integers() {
    let pair = |inputs: &[&str]| branch(vec![node("SequenceConstruct", inputs, &["r"])]);
    let two = vec![input("x", 1, &[Some("2")]), input("z", 1, &[Some("2")])];
    let found = imported(&choice([pair(&["x", "z"]), pair(&["z", "x"])], two.clone())).unwrap();
    let [x, z] = [list(&[1.0, 2.0]), list(&[3.0, 4.0])];
    for (holds, wanted) in [(true, [&x, &z]), (false, [&z, &x])] {
        let c = Literal::from_vec(&[], vec![holds]).unwrap();
        let results = run(&found, &Binding::new(), &[c, x.clone(), z.clone()]);
        assert_eq!([&results[0], &results[1]], wanted);
    }
    let error = refused(&choice([pair(&["x", "z"]), pair(&["z"])], two));
    assert!(error.contains("sequences of different lengths"), "{error}");
    // int16 of both branches stays int16.
    let cast = |to: i64| {
        let mut cast = node("Cast", &["x"], &["r"]);
        cast.attribute = vec![int("to", to)];
        branch(vec![cast])
    };
    let wide = vec![input("x", 6, &[Some("1")])];
    let sum = |op: &str| {
        let mut nodes = cast(5).node;
        nodes[0].output = vec!["n".into()];
        nodes.push(node(op, &["n", "n"], &["r"]));
        branch(nodes)
    };
    let found = imported(&choice([sum("Add"), sum("Mul")], wide.clone())).unwrap();
    assert_eq!(found.narrow["y"], Narrow::I16);
    let x = Literal::from_vec(&[1], vec![32767i32]).unwrap();
    for (holds, wanted) in [(true, -2), (false, 1)] {
        let c = Literal::from_vec(&[], vec![holds]).unwrap();
        let y = run(&found, &Binding::new(), &[c, x.clone()]).remove(0);
        assert_eq!(y.as_slice::<i32>().unwrap(), [wanted]);
    }
    let error = refused(&choice([cast(5), cast(6)], wide));
    assert!(error.contains("or different dtypes"), "{error}");
}

#[test]
fn parts_of_a_tensor_are_a_sequence() {
    let of = |attributes: &[(&str, i64)], split: Option<&[i64]>| {
        let names: &[&str] = if split.is_some() { &["x", "split"] } else { &["x"] };
        let mut parts = node("SplitToSequence", names, &["s"]);
        parts.attribute = attributes.iter().map(|(name, value)| int(name, *value)).collect();
        let found = imported(&model(GraphProto {
            node: vec![parts],
            initializer: split.map(|split| ints("split", split)).into_iter().collect(),
            input: vec![input("x", 5, &[Some("5")])],
            output: vec![output("s")],
            ..Default::default()
        }));
        found.map(|found| {
            let x = Literal::from_vec(&[5], vec![1i32, 2, 3, 4, 5]).unwrap();
            assert!(found.narrow.values().all(|narrow| *narrow == Narrow::I16));
            assert_eq!(found.narrow.len(), found.program.functions()[0].outputs.len() + 1);
            let results = run(&found, &Binding::new(), &[x]);
            let values = results.iter().map(|r| r.as_slice::<i32>().unwrap().to_vec());
            (values.collect::<Vec<_>>(), results[0].shape().len())
        })
    };
    let single: Vec<Vec<i32>> = (1..=5).map(|n| vec![n]).collect();
    assert_eq!(of(&[], None).unwrap(), (single.clone(), 1));
    assert_eq!(of(&[("keepdims", 0)], None).unwrap(), (single, 0));
    assert_eq!(of(&[], Some(&[2, 3])).unwrap(), (vec![vec![1, 2], vec![3, 4, 5]], 1));
    assert!(of(&[], Some(&[2, 9])).is_err());
}
