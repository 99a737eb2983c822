//! Every op of the catalogue on divided operands.

use super::arranged::outputs;
use std::collections::BTreeSet;
use wengert_compiler::ranks::{Split, TensorParallel};
use wengert_core::graph::Function;
use wengert_core::interpret::run;
use wengert_core::{DType, Initializer, Literal, Tensor, TensorType};
use wengert_testing::ranks::{count, numbers};
use wengert_testing::samples::{self, Sample};

/// A function of one op, all of whose operands are variables; none if it is no function.
fn of_op(sample: &Sample, types: &[TensorType]) -> Option<Function> {
    wengert_core::build::FunctionBuilder::build("f", |f| {
        let x: Vec<Tensor> = types
            .iter()
            .enumerate()
            .map(|(i, ty)| {
                f.param(&format!("x{i}"), Tensor::variable(ty.clone(), Initializer::Zeros))
            })
            .collect();
        let operands: Vec<&Tensor> = x.iter().collect();
        let results = Tensor::apply_many(sample.op.clone(), &operands);
        results.iter().enumerate().for_each(|(i, y)| f.output(&format!("y{i}"), y));
    })
    .ok()
}

/// One operand is divided along each axis, or two are, in one block and in two: the results are
/// those of the whole op. Nothing is gathered where the op is independent along the axis.
#[test]
fn every_op_of_divided_operands() {
    let mut without_gather = BTreeSet::new();
    let mut tried = 0;
    for entry in samples::catalogue() {
        for sample in &entry.samples {
            let whole = sample.literals(DType::F64, 1);
            let types: Vec<TensorType> = whole.iter().map(Literal::ty).collect();
            if sample.infer(&types).is_err() || sample.op.collective().is_some() {
                continue;
            }
            let Some(function) = of_op(sample, &types) else { continue };
            let Ok(wanted) = run(&function, &whole) else { continue };
            let axes = |i: usize| (0..types[i].rank()).map(move |axis| (i, axis));
            let all: Vec<(usize, usize)> = (0..types.len()).flat_map(axes).collect();
            let extent = |at: &(usize, usize)| whole[at.0].shape()[at.1];
            for a in &all {
                let pairs = all.iter().filter(|b| b.0 > a.0).map(|b| vec![*a, *b]);
                for chosen in std::iter::once(vec![*a]).chain(pairs) {
                    for blocks in [1, 2] {
                        let least = chosen.iter().map(extent).min().unwrap_or(0);
                        let ranks = (2..=least).find(|ranks| {
                            chosen.iter().all(|at| extent(at).is_multiple_of(ranks * blocks))
                        });
                        let Some(ranks) = ranks else { continue };
                        let split = |all: TensorParallel, at: &(usize, usize)| {
                            let split = Split::from(at.1).blocks(blocks);
                            all.split(&format!("x{}", at.0), split).unwrap()
                        };
                        let parallel = chosen.iter().fold(TensorParallel::new(ranks), split);
                        let found = parallel
                            .choose(&function)
                            .and_then(|splits| Ok((splits.apply(&function)?, splits)));
                        let (of_rank, splits) = match found {
                            Ok(found) => found,
                            Err(error) => {
                                let error = error.to_string();
                                assert!(error.contains("no axis of the result falls"), "{error}");
                                continue;
                            }
                        };
                        tried += 1;
                        if count(&of_rank, "all_gather") == 0 {
                            without_gather.insert(entry.name);
                        }
                        let made = outputs(&of_rank, &[], &splits, &whole);
                        for (made, wanted) in made.iter().zip(&wanted) {
                            // Each partial result is rounded.
                            let room = match made.dtype() {
                                DType::F64 => 1e-9,
                                DType::F32 => 1e-5,
                                _ => 1e-2,
                            };
                            for (a, b) in numbers(made).into_iter().zip(numbers(wanted)) {
                                let near = (a - b).abs() <= room * (1.0 + b.abs());
                                let same = a == b || (a.is_nan() && b.is_nan());
                                assert!(near || same, "{chosen:?}: {a}, not {b}\n{of_rank}");
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(tried > 500, "{tried}");
    // Their results are sums over the divided axis.
    for op in ["dot_general", "reduce_sum", "reduce_max", "conv_general_dilated"] {
        assert!(without_gather.contains(op), "{op} is gathered: {without_gather:?}");
    }
}
