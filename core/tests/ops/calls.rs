//! Products and attentions as calls: their references against the op in the interpreter.

use wengert_core::build::FunctionBuilder;
use wengert_core::interpret::{self, Array, Regions};
use wengert_core::op::Compute;
use wengert_core::{DType, Literal, Scalar, TensorType};
use wengert_testing::samples;

fn numbers(dtype: DType, shape: &[usize], seed: u64) -> Literal {
    let mut state = seed;
    let values: Vec<Scalar> = (0..shape.iter().product())
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let small = (state >> 40) as i64 % 17 - 8;
            if dtype.is_float() {
                Scalar::from_f64(dtype, small as f64 / 4.0)
            } else {
                Scalar::from_i64(dtype, small)
            }
        })
        .collect();
    Literal::from_scalars(dtype, shape, &values).unwrap()
}

#[test]
fn products_are_those_of_the_op() {
    let mut calls = 0;
    for sample in samples::of("dot_general") {
        for dtype in [DType::F32, DType::F64, DType::I32, DType::F16, DType::BF16] {
            let shapes = sample.literals(DType::F32, 0);
            let literals: Vec<Literal> = shapes
                .iter()
                .enumerate()
                .map(|(n, l)| numbers(dtype, l.shape(), n as u64 + 7))
                .collect();
            let types: Vec<TensorType> = literals.iter().map(Literal::ty).collect();
            // A sample with a result dtype of its own takes halves only.
            let Ok(results) = sample.infer(&types) else { continue };
            let Compute::Call(call) = sample.op.compute(&types, &results, &[]) else { continue };
            calls += 1;
            let arrays: Vec<Array<f64>> =
                literals.iter().map(|l| Array::from_literal(l).unwrap()).collect();
            let wanted = sample.op.evaluate(&arrays, &results, &Regions::of(&[])).unwrap()[0]
                .to_literal()
                .unwrap();
            let reference = call.reference(&literals).unwrap();
            let wanted = wanted.reshape(reference.literal().shape()).unwrap();
            // Multiples of ¼ of small integers: sums are exact in every order.
            assert_eq!(reference.literal(), wanted, "{call:?}");
            reference.check(&wanted).unwrap();
        }
    }
    assert!(calls > 10, "the samples have calls among them");
}

/// Within bounds of a few roundings of the greatest element. The op's decomposition satisfies them
/// too, although it rounds weights.
#[test]
fn attentions_are_those_of_the_op() {
    let attention =
        ["dot_product_attention", "dot_product_attention_jvp", "dot_product_attention_vjp"];
    let mut calls = 0;
    for (dtype, useful) in
        [(DType::F64, 2e-14), (DType::F32, 1e-5), (DType::F16, 5e-3), (DType::BF16, 4e-2)]
    {
        for sample in attention.iter().flat_map(|name| samples::of(name)) {
            let literals = sample.literals(dtype, 3);
            let types: Vec<TensorType> = literals.iter().map(Literal::ty).collect();
            let results = sample.infer(&types).unwrap();
            let Compute::CallOrDecompose(call, rule) = sample.op.compute(&types, &results, &[])
            else {
                continue;
            };
            calls += 1;
            assert_eq!((call.operands(), call.results()), (types.clone(), results.clone()));
            let arrays: Vec<Array<f64>> =
                literals.iter().map(|l| Array::from_literal(l).unwrap()).collect();
            let wanted = sample.op.evaluate(&arrays, &results, &Regions::of(&[])).unwrap();
            let mut b = FunctionBuilder::new("decomposed");
            let operands: Vec<_> = types
                .iter()
                .enumerate()
                .map(|(n, ty)| b.input(&format!("x{n}"), ty.clone()))
                .collect();
            let values = b.scope().enter(|| rule(&operands));
            for (n, value) in values.iter().enumerate() {
                b.output(&format!("y{n}"), value);
            }
            let decomposed = interpret::run(&b.finish().unwrap(), &literals).unwrap();
            let references = call.references(&literals).unwrap();
            for ((reference, wanted), decomposed) in references.iter().zip(wanted).zip(&decomposed)
            {
                let greatest = wanted.cells.iter().map(|c| c.real().abs()).fold(0.0, f64::max);
                let error = reference.errors().iter().fold(0f64, |most, e| most.max(*e));
                assert!(greatest > 0.01, "{call:?}: there is something to compare");
                assert!(error < useful * greatest, "{call:?}: a bound of {error} of {greatest}");
                reference
                    .check(&wanted.to_literal().unwrap())
                    .unwrap_or_else(|e| panic!("{call:?}: {e}"));
                reference.check(decomposed).unwrap_or_else(|e| panic!("{call:?}, decomposed: {e}"));
            }
        }
    }
    assert_eq!(calls, 4 * 20, "ten values and ten cotangents");
}
