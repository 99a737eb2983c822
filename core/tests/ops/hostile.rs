//! `infer` returns types or an error for all attributes and operand types. Every op that it accepts
//! can be evaluated and lowered.

use super::lower::{execute, lower};
use proptest::prelude::*;
use std::collections::BTreeMap;
use wengert_core::interpret::{Array, Regions};
use wengert_core::nest::Tree;
use wengert_core::op::Attribute;
use wengert_core::{DType, Dim, Literal, Op, Scalar, TensorType};
use wengert_testing::samples::{self, Sample};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }

    fn number(&mut self) -> i64 {
        const EXTREMES: [i64; 12] = [
            i64::MIN,
            i64::MIN + 1,
            -(1 << 40),
            -1,
            0,
            1,
            i32::MAX as i64,
            u32::MAX as i64 + 1,
            1 << 40,
            1 << 62,
            i64::MAX - 1,
            i64::MAX,
        ];
        match self.below(3) {
            0 => EXTREMES[self.below(EXTREMES.len())],
            _ => self.below(7) as i64 - 2,
        }
    }

    fn dim(&mut self) -> Dim {
        match self.below(5) {
            0 => Dim::variable("B"),
            1 => Dim::linear(
                self.number(),
                [("B".into(), self.number()), ("T".into(), self.number())],
            )
            .unwrap(),
            _ => Dim::constant(self.number()),
        }
    }

    fn ty(&mut self, ty: &mut TensorType) {
        match self.below(5) {
            0 => ty.dtype = DType::ALL[self.below(DType::ALL.len())],
            1 => {
                let at = self.below(ty.rank() + 1);
                let dim = self.dim();
                ty.shape.insert(at, dim);
            }
            2 if ty.rank() > 0 => drop(ty.shape.remove(self.below(ty.rank()))),
            _ if ty.rank() > 0 => {
                let at = self.below(ty.rank());
                ty.shape[at] = self.dim();
            }
            _ => {}
        }
    }

    fn attribute(&mut self, attribute: &mut Attribute) {
        match attribute {
            Attribute::Dim(d) => *d = self.dim(),
            Attribute::DType(d) => *d = DType::ALL[self.below(DType::ALL.len())],
            Attribute::Bool(b) => *b = !*b,
            Attribute::Scalar(s) => *s = Scalar::zero(DType::ALL[self.below(DType::ALL.len())]),
            Attribute::List(items) => match self.below(4) {
                0 if !items.is_empty() => drop(items.remove(self.below(items.len()))),
                1 if !items.is_empty() => {
                    let copy = items[self.below(items.len())].clone();
                    items.insert(self.below(items.len() + 1), copy);
                }
                2 => items.push(Attribute::Dim(self.dim())),
                _ if !items.is_empty() => {
                    let at = self.below(items.len());
                    self.attribute(&mut items[at]);
                }
                _ => {}
            },
            _ => *attribute = Attribute::Text("x".into()),
        }
    }
}

/// A sample's op and operand types after random mutations.
fn mutated(random: &mut Random, samples: &[Sample]) -> (Option<Op>, Vec<TensorType>) {
    let sample = &samples[random.below(samples.len())];
    let dtype = [DType::F32, DType::F64, DType::BF16][random.below(3)];
    let mut types: Vec<TensorType> = sample.literals(dtype, 1).iter().map(Literal::ty).collect();
    let mut attributes: BTreeMap<String, Attribute> =
        sample.op.attributes().into_iter().map(|(k, v)| (k.to_string(), v)).collect();
    for _ in 0..1 + random.below(4) {
        match random.below(8) {
            0 if !types.is_empty() => drop(types.remove(random.below(types.len()))),
            1 if !types.is_empty() => types.push(types[random.below(types.len())].clone()),
            2..=4 if !types.is_empty() => {
                let at = random.below(types.len());
                random.ty(&mut types[at]);
            }
            _ if !attributes.is_empty() => {
                let at = random.below(attributes.len());
                random.attribute(attributes.values_mut().nth(at).unwrap());
            }
            _ => {}
        }
    }
    (Op::from_attributes(sample.op.name(), attributes).ok(), types)
}

/// True if the types are small enough to be run.
fn is_small(types: &[TensorType]) -> bool {
    types.iter().all(|ty| {
        // An empty tensor may have huge extents. Its type is valid, and the op can be evaluated.
        ty.elements().is_some_and(|n| n <= 2000)
    })
}

fn random_literal(random: &mut Random, ty: &TensorType) -> Literal {
    let shape = ty.extents().unwrap();
    let count = shape.iter().product::<usize>();
    let values: Vec<Scalar> = (0..count)
        .map(|_| match ty.dtype {
            d if d.is_float() => Scalar::from_f64(d, random.below(9) as f64 / 4.0 - 1.0),
            d => Scalar::from_i64(d, random.number()),
        })
        .collect();
    Literal::from_scalars(ty.dtype, &shape, &values).unwrap()
}

#[test]
fn infer_never_panics_and_what_it_accepts_runs() {
    let samples: Vec<Sample> = samples::catalogue().into_iter().flat_map(|e| e.samples).collect();
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
        let operands: Vec<Literal> =
            types.iter().map(|ty| random_literal(&mut random, ty)).collect();
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
