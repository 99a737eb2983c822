//! Names, attributes, inference and traits agree with one another.

use super::cases;
use std::collections::BTreeSet;
use wengert_core::interpret::{Array, Regions};
use wengert_core::op::Attribute;
use wengert_core::{Literal, Op, TensorType};
use wengert_testing::samples;

fn types(literals: &[Literal]) -> Vec<TensorType> {
    literals.iter().map(Literal::ty).collect()
}

#[test]
fn names_are_unique_and_documented_and_every_op_has_samples() {
    let mut names = BTreeSet::new();
    for entry in samples::catalogue() {
        assert!(names.insert(entry.name), "{} occurs twice", entry.name);
        assert!(!entry.doc.trim().is_empty(), "{} has no documentation", entry.name);
        let samples = entry.samples.len() + entry.collectives.len();
        assert!(samples > 0, "{} has no samples", entry.name);
        for sample in &entry.samples {
            assert_eq!(sample.op.name(), entry.name);
        }
    }
    assert!(names.len() > 70, "{}", names.len());
}

#[test]
fn the_interpreter_gives_what_infer_says() {
    for (entry, sample, operands) in cases() {
        let regions = sample.regions(&types(&operands));
        let inferred = sample.infer(&types(&operands)).unwrap_or_else(|e| panic!("{e}"));
        let operands: Vec<Array<f64>> =
            operands.iter().map(|l| Array::from_literal(l).unwrap()).collect();
        let results = sample.op.evaluate(&operands, &inferred, &Regions::of(&regions)).unwrap();
        let given: Vec<TensorType> = results.iter().map(Array::ty).collect();
        assert_eq!(given, inferred, "{}", entry.name);
        assert!(sample.op.region_count().contains(&regions.len()));
    }
}

#[test]
fn attributes_make_the_op_again() {
    for (entry, sample, _) in cases() {
        let map = |op: &Op| op.attributes().into_iter().map(|(k, v)| (k.to_string(), v)).collect();
        assert_eq!(Op::from_attributes(entry.name, map(&sample.op)).unwrap(), sample.op);
        // An additional attribute is an error.
        let mut more: std::collections::BTreeMap<_, _> = map(&sample.op);
        more.insert("colour".into(), Attribute::Bool(true));
        let error = Op::from_attributes(entry.name, more).unwrap_err().to_string();
        assert!(error.contains("has no attribute `colour`"), "{error}");
    }
    let error = Op::from_attributes("tanhh", Default::default()).unwrap_err().to_string();
    assert!(error.contains("unknown op `tanhh`") && error.contains("tanh"), "{error}");
}

#[test]
fn what_is_elementwise_has_operands_of_the_results_shape() {
    for (entry, sample, operands) in cases() {
        let results = sample.infer(&types(&operands)).unwrap();
        // A bitcast to another size adds or removes an axis of parts, so it is recognised by the
        // rank.
        let parts = matches!(sample.op, Op::BitcastConvertType(_))
            && results[0].rank() != operands[0].shape().len();
        if sample.op.traits().elementwise && !parts {
            for operand in types(&operands) {
                let fits = operand.rank() == 0 || operand.shape == results[0].shape;
                assert!(fits, "{}: {operand} gives {}", entry.name, results[0]);
            }
        }
    }
}
