//! `infer` returns types or an error for all attributes and operand types. Every op that it accepts
//! can be evaluated and lowered.

use super::lower::{execute, lower};
use proptest::prelude::*;
use wengert_core::interpret::{Array, Regions};
use wengert_core::nest::Tree;
use wengert_core::{DType, Dim, Literal, Op, TensorType};
use wengert_testing::Random;
use wengert_testing::mutants::mutated;
use wengert_testing::samples::{self, Sample};

/// True if the types are small enough to be run.
fn is_small(types: &[TensorType]) -> bool {
    types.iter().all(|ty| {
        // An empty tensor may have huge extents. Its type is valid, and the op can be evaluated.
        ty.elements().is_some_and(|n| n <= 2000)
    })
}

#[test]
fn infer_never_panics_and_what_it_accepts_runs() {
    let entries = samples::catalogue().into_iter();
    let samples: Vec<Sample> = entries.flat_map(|e| e.samples).collect();
    let mut random = Random(7);
    let (mut accepted, mut run) = (0, 0);
    for _ in 0..30_000 {
        let (op, types) = mutated(&mut random, &samples);
        let Some(op) = op else { continue };
        let Ok(results) = op.infer(&types, &[]) else { continue };
        accepted += 1;
        for ty in &results {
            assert!(
                ty.shape.iter().all(|d| d.as_constant().is_none_or(|c| c >= 0)),
                "{op:?} gives {ty}"
            );
        }
        let bound = types.iter().chain(&results).all(|ty| ty.extents().is_some());
        let mut variables = std::collections::BTreeSet::new();
        op.visit_dims(&mut |d| d.collect_variables(&mut variables));
        if !bound || !variables.is_empty() || !is_small(&types) || !is_small(&results) {
            continue;
        }
        run += 1;
        let operands: Vec<Literal> = types.iter().map(|ty| random.extreme_literal(ty)).collect();
        let arrays: Vec<Array<f64>> =
            operands.iter().map(|l| Array::from_literal(l).unwrap()).collect();
        let evaluated = op
            .evaluate(&arrays, &results, &Regions::of(&[]))
            .unwrap_or_else(|e| panic!("{op:?}: {e}"));
        assert_eq!(evaluated.iter().map(Array::ty).collect::<Vec<_>>(), results, "{op:?}");
        // The interpreter of nests iterates over the rows of an empty result; a device launches
        // nothing for it. Such results are left out if their extents are large.
        let countable =
            types.iter().chain(&results).flat_map(|ty| ty.extents().unwrap()).all(|e| e <= 2000);
        if countable && !matches!(op, Op::Constant(_)) {
            lower(&op, &[], &types, &results, Tree::SEQUENTIAL);
            let computed = execute(&op, &[], &operands, Tree::SEQUENTIAL);
            for (c, e) in computed.iter().zip(&evaluated) {
                // Other tests compare floats. Results and operands without floats are exact for all
                // attributes.
                let exact = !c.dtype().is_float() && operands.iter().all(|o| !o.dtype().is_float());
                assert!(
                    !exact || *c == e.to_literal().unwrap(),
                    "{op:?} of {operands:?}: {c} is not {:?}",
                    e.to_literal().unwrap()
                );
            }
        }
    }
    assert!(accepted > 3000 && run > 1500, "{accepted} accepted, {run} run");
}

#[test]
fn wrong_operands_are_refused_with_the_ops_name() {
    for entry in samples::catalogue() {
        for sample in &entry.samples {
            let types: Vec<TensorType> =
                sample.literals(DType::F32, 1).iter().map(Literal::ty).collect();
            let regions = sample.regions(&types);
            // The minimum number of operands of each variadic op.
            let least = match entry.name {
                "concatenate" | "argsort" | "sort" => Some(1),
                "select_n" => Some(2),
                _ => None,
            };
            let refused = |types: &[TensorType], what: &str| {
                if entry.name == "concatenate" && what == "more" {
                    return;
                }
                let error = sample
                    .op
                    .infer(types, &regions)
                    .map(|r| panic!("{} {what}: {types:?} gives {r:?}", entry.name));
                let error = error.unwrap_err();
                assert!(error.message.starts_with(&format!("{}: ", entry.name)), "{error}");
            };
            let mut more = types.clone();
            more.push(TensorType::scalar(DType::Bool));
            refused(&more, "more");
            if let Some((_, fewer)) = types.split_last()
                && least.is_none_or(|least| fewer.len() < least)
            {
                refused(fewer, "fewer");
            }
            // The two operands of an op have the same dtype, except where one contains indices,
            // labels or conditions, and except for `argsort` and `sort`.
            if types.len() == 2
                && types[0] == types[1]
                && !["argsort", "sort"].contains(&entry.name)
            {
                let other = if types[0].dtype == DType::Bool { DType::F32 } else { DType::Bool };
                refused(&[types[0].clone(), types[1].with_dtype(other)], "dtype");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn infer_of_any_types_does_not_panic(seed: u64) {
        let entries = samples::catalogue().into_iter();
        let samples: Vec<Sample> = entries.flat_map(|e| e.samples).collect();
        let mut random = Random(seed);
        let op = &samples[random.below(samples.len())].op;
        let types: Vec<TensorType> = (0..random.below(4))
            .map(|_| {
                let shape: Vec<Dim> = (0..random.below(6)).map(|_| random.dim()).collect();
                TensorType::new(DType::ALL[random.below(DType::ALL.len())], shape)
            })
            .collect();
        let _ = op.infer(&types, &[]);
    }
}
