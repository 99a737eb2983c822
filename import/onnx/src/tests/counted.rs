//! Results whose number depends on data, against searches written here.

use super::{input, int, model, node, nowhere, output, run};
use crate::proto::*;
use crate::{Imported, Options, read};
use prost::Message;
use std::collections::BTreeSet;
use wengert_core::{Binding, Diagnostic, Literal, Result};

/// Imports a model with a bound for its result `y`.
fn bounded(model: &ModelProto, most: usize) -> Result<Imported> {
    let options = Options { max: [("y".to_owned(), most)].into(), ..Default::default() };
    read("m.onnx", model.encode_to_vec().into(), &nowhere, &options)
}

/// A model of one op of inputs of dtypes and shapes.
fn alone(node: NodeProto, inputs: &[(&str, i32, &[Option<&str>])]) -> ModelProto {
    let outputs = node.output.iter().map(|name| output(name)).collect();
    model(GraphProto {
        node: vec![node],
        input: inputs.iter().map(|(name, dtype, shape)| input(name, *dtype, shape)).collect(),
        output: outputs,
        ..Default::default()
    })
}

fn numbers(literal: &Literal) -> Vec<i64> {
    literal.scalars().map(|s| s.to_f64() as i64).collect()
}

fn error_of(result: Result<Imported>) -> String {
    result.err().map_or_else(|| panic!("it is imported"), |e: Diagnostic| e.to_string())
}

#[test]
fn zeros_follow_the_results_and_another_output_counts_them() {
    let of = alone(node("NonZero", &["x"], &["y"]), &[("x", 1, &[Some("n"), Some("3")])]);
    let x = Literal::from_vec(&[2, 3], vec![0.0f32, 2.0, 0.0, -1.0, 0.0, 5.0]).unwrap();
    let binding = Binding::new().with("n", 2);
    for (most, wanted) in [
        (5, vec![0, 1, 1, 0, 0, 1, 0, 2, 0, 0]),
        (3, vec![0, 1, 1, 1, 0, 2]),
        (2, vec![0, 1, 1, 0]),
        (0, vec![]),
    ] {
        let found = bounded(&of, most).unwrap();
        let outputs: Vec<&str> =
            found.program.functions()[0].outputs.iter().map(|o| o.name.as_str()).collect();
        assert_eq!(outputs, ["y", "y_count"]);
        let results = run(&found, &binding, std::slice::from_ref(&x));
        assert_eq!(results[0].shape(), [2, most]);
        assert_eq!((numbers(&results[0]), numbers(&results[1])), (wanted, vec![3]));
    }
}

#[test]
fn a_number_that_depends_on_data_needs_a_bound() {
    let of = alone(node("NonZero", &["x"], &["y"]), &[("x", 1, &[Some("3")])]);
    let bytes: bytes::Bytes = of.encode_to_vec().into();
    let error = error_of(read("m.onnx", bytes.clone(), &nowhere, &Options::default()));
    assert!(error.contains("(shape from data)") && error.contains("`--max y=N`"), "{error}");
    let options =
        Options { max: [("z".to_owned(), 1), ("y".to_owned(), 1)].into(), ..Default::default() };
    let error = error_of(read("m.onnx", bytes.clone(), &nowhere, &options));
    assert!(
        error.contains("`z` is no result whose number") && error.contains("has `y`"),
        "{error}"
    );
    // Of known data the number is known.
    let mut options = Options::default();
    options.bound.insert("x".into(), Literal::from_vec(&[3], vec![1.0f32, 0.0, 2.0]).unwrap());
    let found = read("m.onnx", bytes, &nowhere, &options).unwrap();
    assert_eq!(numbers(&run(&found, &Binding::new(), &[])[0]), [0, 2]);
    assert_eq!(found.program.functions()[0].outputs.len(), 1);
}

#[test]
fn a_branch_of_the_graph_has_no_such_results() {
    let branch = GraphProto {
        node: vec![node("NonZero", &["x"], &["y"])],
        output: vec![output("y")],
        ..Default::default()
    };
    let graph = |name: &str| AttributeProto {
        name: Some(name.into()),
        g: Some(branch.clone()),
        r#type: Some(5),
        ..Default::default()
    };
    let mut choice = node("If", &["c"], &["r"]);
    choice.attribute = vec![graph("then_branch"), graph("else_branch")];
    let of = alone(choice, &[("c", 9, &[]), ("x", 1, &[Some("3")])]);
    let error = error_of(bounded(&of, 2));
    assert!(error.contains("in a branch or loop (shape from data)"), "{error}");
}

#[test]
fn compressed_slices_are_those_whose_condition_holds() {
    let mut of_rows = node("Compress", &["x", "c"], &["y"]);
    of_rows.attribute = vec![int("axis", 1)];
    // The condition may be shorter than the axis.
    let of = alone(of_rows, &[("x", 6, &[Some("2"), Some("4")]), ("c", 9, &[Some("3")])]);
    let x = Literal::from_vec(&[2, 4], (1..=8).collect::<Vec<i32>>()).unwrap();
    let c = Literal::from_vec(&[3], vec![true, false, true]).unwrap();
    let results = run(&bounded(&of, 3).unwrap(), &Binding::new(), &[x.clone(), c.clone()]);
    assert_eq!(numbers(&results[0]), [1, 3, 0, 5, 7, 0]);
    assert_eq!(numbers(&results[1]), [2]);
    let mut options = Options::default();
    options.bound.insert("c".into(), c);
    let found = read("m.onnx", of.encode_to_vec().into(), &nowhere, &options).unwrap();
    assert_eq!(numbers(&run(&found, &Binding::new(), &[x])[0]), [1, 3, 5, 7]);
}

/// Integers from a seed.
fn drawn(seed: u64, count: usize, below: i64) -> Vec<i64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 33) as i64) % below
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn unique_numbers_have_first_places_and_counts() {
    for (seed, sorted) in [(1, true), (2, true), (3, false), (4, false)] {
        let mut unique = node("Unique", &["x"], &["y", "first", "inverse", "counts"]);
        unique.attribute = vec![int("sorted", i64::from(sorted))];
        let of = alone(unique, &[("x", 7, &[Some("20")])]);
        let x = drawn(seed, 20, 9);
        let literal = Literal::from_vec(&[20], x.clone()).unwrap();
        let results = run(&bounded(&of, 12).unwrap(), &Binding::new(), &[literal]);
        let [y, first, inverse, counts, number] =
            [0, 1, 2, 3, 4].map(|n: usize| numbers(&results[n]));
        let mut wanted: Vec<i64> = x.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let place = |own: i64| x.iter().position(|other| *other == own).unwrap() as i64;
        if !sorted {
            wanted.sort_by_key(|own| place(*own));
        }
        let count = wanted.len();
        assert_eq!(number, [count as i64]);
        assert_eq!((&y[..count], &y[count..]), (&wanted[..], &vec![0; 12 - count][..]));
        assert_eq!(first[..count], wanted.iter().map(|own| place(*own)).collect::<Vec<_>>());
        let of_value = |own: i64| x.iter().filter(|other| **other == own).count() as i64;
        assert_eq!(counts[..count], wanted.iter().map(|own| of_value(*own)).collect::<Vec<_>>());
        let back: Vec<i64> = inverse.iter().map(|n| wanted[*n as usize]).collect();
        assert_eq!(back, x);
    }
}

/// Non-maximum suppression as loops, with corners `[y1, x1, y2, x2]`.
fn suppressed(boxes: &[i64], scores: &[i64], most: usize, limit: f64, least: f64) -> Vec<i64> {
    let (count, classes) = (boxes.len() / 8, 2);
    let mut all = vec![];
    for batch in 0..2 {
        let corner = |n: usize, k: usize| boxes[(batch * count + n) * 4 + k] as f64;
        let range = |n: usize, k: usize| {
            let (a, b) = (corner(n, k), corner(n, k + 2));
            (a.min(b), a.max(b))
        };
        let area = |n: usize| (0..2).map(|k| range(n, k).1 - range(n, k).0).product::<f64>();
        let overlap = |a: usize, b: usize| {
            let common: f64 = (0..2)
                .map(|k| {
                    (range(a, k).1.min(range(b, k).1) - range(a, k).0.max(range(b, k).0)).max(0.0)
                })
                .product();
            let union = area(a) + area(b) - common;
            if union > 0.0 { common / union } else { 0.0 }
        };
        for class in 0..classes {
            let score = |n: usize| scores[(batch * classes + class) * count + n] as f64;
            let mut order: Vec<usize> = (0..count).filter(|n| score(*n) > least).collect();
            order.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
            let mut kept: Vec<usize> = vec![];
            for n in order {
                if kept.len() < most && kept.iter().all(|k| overlap(*k, n) <= limit) {
                    kept.push(n);
                }
            }
            all.extend(kept.iter().flat_map(|n| [batch as i64, class as i64, *n as i64]));
        }
    }
    all
}

#[test]
fn suppressed_boxes_are_those_of_a_search() {
    let inputs: [(&str, i32, &[Option<&str>]); 2] = [
        ("boxes", 1, &[Some("b"), Some("10"), Some("4")]),
        ("scores", 1, &[Some("b"), Some("2"), Some("10")]),
    ];
    let float = |literal: Vec<i64>, shape: &[usize]| {
        Literal::from_vec(shape, literal.into_iter().map(|n| n as f32).collect()).unwrap()
    };
    for seed in 0..6 {
        let most = 1 + seed as usize;
        let (limit, least) = (0.15 * seed as f32, 20.0 * (seed % 3) as f32);
        let names = ["boxes", "scores", "most", "limit", "least"];
        let mut of = alone(node("NonMaxSuppression", &names, &["y"]), &inputs);
        let graph = of.graph.as_mut().unwrap();
        graph.initializer = vec![
            super::ints("most", &[most as i64]),
            super::floats("limit", &[1], &[limit]),
            super::floats("least", &[1], &[least]),
        ];
        let (boxes, scores) = (drawn(seed, 80, 12), drawn(seed + 50, 40, 1 << 20));
        let wanted = suppressed(&boxes, &scores, most, f64::from(limit), f64::from(least));
        let found = bounded(&of, 40).unwrap();
        let given = [float(boxes, &[2, 10, 4]), float(scores, &[2, 2, 10])];
        let results = run(&found, &Binding::new().with("b", 2), &given);
        assert_eq!(numbers(&results[1]), [wanted.len() as i64 / 3], "{seed}");
        assert!(wanted.len() / 3 > 3, "{wanted:?}");
        let rest = vec![0; 120 - wanted.len()];
        assert_eq!(numbers(&results[0]), [wanted, rest].concat(), "{seed}");
    }
}
