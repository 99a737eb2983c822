//! Small models that ask for much: loops within loops, functions that call each other twice, lists
//! that are joined with themselves, large tables and many parts.

use super::spent::measured;
use super::{MOST_MEMORY, MOST_TIME};
use crate::proto::*;
use crate::tests::{input, int, ints, model, node, nowhere, output};
use crate::{Options, read};
use prost::Message;

/// Imports a model within the limits; an error contains the text.
fn limited(what: &str, model: &ModelProto, text: Option<&str>) {
    let bytes = model.encode_to_vec();
    let options = Options::default();
    let (result, spent) = measured(|| read("m.onnx", bytes.into(), &nowhere, &options));
    assert!(spent.time <= MOST_TIME, "{what}: {:?}", spent.time);
    assert!(spent.memory <= MOST_MEMORY, "{what}: {} MiB", spent.memory >> 20);
    match (result, text) {
        (Ok(_), None) => {}
        (Err(error), Some(text)) => {
            let error = error.to_string();
            assert!(error.contains(text) && error.contains("node `"), "{what}: {error}");
        }
        (result, _) => panic!("{what}: {:?}", result.map(|_| ())),
    }
}

const TOO_MUCH: Option<&str> = Some("makes more than a model may ask for");

/// Nodes of an input `x`, f32[4], and integers `n`.
fn with(nodes: Vec<NodeProto>, n: &[i64], outputs: &[&str]) -> ModelProto {
    model(GraphProto {
        node: nodes,
        initializer: vec![ints("n", n)],
        input: vec![input("x", 1, &[Some("4")])],
        output: outputs.iter().map(|name| output(name)).collect(),
        ..Default::default()
    })
}

#[test]
fn functions_that_call_each_other_twice() {
    // f0(a) = -a, and f(n + 1)(a) = fn(fn(a)).
    let function = |n: usize| {
        let call = |from: &str, to: &str| {
            let domain = if n == 0 { None } else { Some("own".into()) };
            let op = if n == 0 { "Neg".into() } else { format!("f{}", n - 1) };
            NodeProto { domain, ..node(&op, &[from], &[to]) }
        };
        FunctionProto {
            name: Some(format!("f{n}")),
            domain: Some("own".into()),
            input: vec!["a".into()],
            output: vec!["c".into()],
            node: vec![call("a", "b"), call("b", "c")],
            opset_import: vec![OperatorSetIdProto { domain: None, version: Some(21) }],
            ..Default::default()
        }
    };
    for (depth, text) in [(5, None), (40, TOO_MUCH)] {
        let op = format!("f{}", depth - 1);
        let call = NodeProto { domain: Some("own".into()), ..node(&op, &["x"], &["y"]) };
        let mut model = with(vec![call], &[], &["y"]);
        model.functions = (0..depth).map(function).collect();
        model
            .opset_import
            .push(OperatorSetIdProto { domain: Some("own".into()), version: Some(1) });
        limited("functions", &model, text);
    }
}

#[test]
fn loops_within_loops() {
    /// The body of a loop around `depth` loops.
    fn body(depth: usize) -> GraphProto {
        let mut inner = node("Neg", &["v"], &["w"]);
        if depth > 0 {
            inner = node("Loop", &["n", "", "v"], &["w"]);
            inner.attribute = vec![graph(body(depth - 1))];
        }
        GraphProto {
            node: vec![inner, node("Identity", &["go"], &["on"])],
            input: ["i", "go", "v"].map(output).into(),
            output: ["on", "w"].map(output).into(),
            ..Default::default()
        }
    }
    fn graph(body: GraphProto) -> AttributeProto {
        AttributeProto {
            name: Some("body".into()),
            g: Some(body),
            r#type: Some(5),
            ..Default::default()
        }
    }
    for (depth, text) in [(0, None), (4, TOO_MUCH)] {
        let mut outer = node("Loop", &["n", "", "x"], &["y"]);
        outer.attribute = vec![graph(body(depth))];
        limited("loops", &with(vec![outer], &[200], &["y"]), text);
    }
}

#[test]
fn lists_that_are_joined_with_themselves() {
    for (input_shape, text) in [("batch", TOO_MUCH), ("4", None)] {
        let mut nodes = vec![node("Shape", &["x"], &["s0"])];
        for n in 0..40 {
            let from = format!("s{n}");
            let mut join = node("Concat", &[&from, &from], &[&format!("s{}", n + 1)]);
            join.attribute = vec![int("axis", 0)];
            nodes.push(join);
        }
        nodes.push(node("Identity", &["x"], &["y"]));
        let mut model = with(nodes, &[], &["y"]);
        let graph = model.graph.as_mut().unwrap();
        graph.input = vec![input("x", 1, &[Some(input_shape)])];
        limited("lists", &model, text);
    }
}

#[test]
fn sums_that_are_multiplied_with_themselves() {
    let mut nodes = vec![node("Shape", &["x"], &["s"]), node("Add", &["s", "n"], &["p0"])];
    for n in 0..64 {
        let from = format!("p{n}");
        nodes.push(node("Mul", &[&from, &from], &[&format!("p{}", n + 1)]));
    }
    nodes.push(node("Identity", &["x"], &["y"]));
    let mut model = with(nodes, &[3], &["y"]);
    model.graph.as_mut().unwrap().input = vec![input("x", 1, &[Some("batch")])];
    limited("polynomials", &model, None);
}

#[test]
fn tables_and_parts() {
    for (n, text) in [(1000, None), (1 << 23, None), ((1 << 24) + 1, Some("made at import"))] {
        let window = node("HannWindow", &["n"], &["y"]);
        let mut model = with(vec![window], &[n], &["y"]);
        model.graph.as_mut().unwrap().initializer[0].dims = vec![];
        limited("a window", &model, text);
    }
    // Several large tables, and large tables of f64.
    let mut nodes: Vec<NodeProto> = vec![];
    for n in 0..3 {
        let mut window = node("BlackmanWindow", &["n"], &[&format!("y{n}")]);
        window.attribute = vec![int("output_datatype", 11)];
        nodes.push(window);
    }
    let outputs = ["y0", "y1", "y2"];
    let mut model = with(nodes, &[1 << 23], &outputs);
    model.graph.as_mut().unwrap().initializer[0].dims = vec![];
    limited("windows", &model, TOO_MUCH);

    let wide = |extent: &str, mut node: NodeProto, attributes: Vec<AttributeProto>| {
        node.attribute = attributes;
        let mut model = with(vec![node], &[1 << 22], &["y"]);
        model.graph.as_mut().unwrap().input = vec![input("x", 1, &[Some(extent)])];
        model
    };
    let split = node("Split", &["x"], &["y"]);
    let split = wide("1000000", split, vec![int("num_outputs", 1_000_000)]);
    limited("a split", &split, Some("1000000 parts, and 1 results"));
    let split = node("SplitToSequence", &["x"], &["y"]);
    limited("a sequence", &wide("1000000", split, vec![]), TOO_MUCH);
    for (mode, extent, text) in
        [("nearest", "2000", None), ("linear", "2", None), ("cubic", "4096", TOO_MUCH)]
    {
        let mode = AttributeProto {
            name: Some("mode".into()),
            s: Some(mode.into()),
            r#type: Some(3),
            ..Default::default()
        };
        let resize = node("Resize", &["x", "", "", "n"], &["y"]);
        let text = text.map(|_| "made at import");
        limited("a resize", &wide(extent, resize, vec![mode]), text);
    }
    let reshape = node("Reshape", &["x", "n"], &["y"]);
    limited("many axes", &with(vec![reshape], &[1; 60000], &["y"]), Some(""));
}
