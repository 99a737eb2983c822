//! Products and attentions as calls: their references against the op in the interpreter.

use wengert_core::build::FunctionBuilder;
use wengert_core::call::Call;
use wengert_core::interpret::{self, Array, Regions};
use wengert_core::op::{Attention, AttentionKind, Compute};
use wengert_core::{DType, Literal, Op, Scalar, TensorType};
use wengert_testing::calls::attention::{Kind, attention, biased, grouped, operands, prefixed};
use wengert_testing::{naive, samples};

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
            let Compute::CallOrDecompose(call, _) = sample.op.compute(&types, &results, &[]) else {
                continue;
            };
            calls += 1;
            assert_eq!((call.operands(), call.results()), (types.clone(), results.clone()));
            let arrays: Vec<Array<f64>> =
                literals.iter().map(|l| Array::from_literal(l).unwrap()).collect();
            let wanted = sample.op.evaluate(&arrays, &results, &Regions::of(&[])).unwrap();
            let decomposed = decomposed(&sample.op, &literals);
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
            let simple = naive::execute(&call, &literals).unwrap();
            for (reference, simple) in references.iter().zip(&simple) {
                reference.check(simple).unwrap_or_else(|e| panic!("{call:?}, naive: {e}"));
            }
        }
    }
    assert_eq!(calls, 4 * 28, "14 values and 14 cotangents");
}

/// The op, its decomposition and its call hide the same keys. Hidden keys and values are NaN, and
/// some queries see no key.
#[test]
fn prefixes_hide_keys_in_every_form() {
    let kinds = [AttentionKind::Value, AttentionKind::Vjp, AttentionKind::Jvp];
    let dtypes = [DType::F64, DType::F32, DType::BF16];
    for (kind, dtype, causal, seed) in kinds.into_iter().flat_map(|kind| {
        let each =
            move |d| [false, true].into_iter().flat_map(move |c| (0..4).map(move |s| (d, c, s)));
        dtypes.into_iter().flat_map(each).map(move |(d, c, s)| (kind, d, c, s))
    }) {
        let backward = kind == AttentionKind::Vjp;
        let call = attention([4, 3, 5, 2, 2], Kind { packed: false, causal, backward }, dtype);
        let call = if seed == 1 { grouped(call, 2) } else { call };
        let call = if seed == 2 { biased(call, [true, false, false]) } else { call };
        let call = prefixed(call);
        let op = Attention {
            kind,
            causal,
            bias: !call.bias.is_empty(),
            prefix: true,
            scale: call.scale,
        };
        let mut literals = operands(&call, seed);
        let float = |l: &&Literal| l.dtype().is_float();
        if kind == AttentionKind::Jvp {
            let tangents: Vec<Literal> = literals.iter().filter(float).cloned().collect();
            literals.extend(naive::execute(&call.clone().into(), &literals).unwrap());
            literals.extend(tangents);
        }
        let types: Vec<TensorType> = literals.iter().map(Literal::ty).collect();
        let op = Op::from(op);
        let results = op.infer(&types, &[]).unwrap();
        let arrays: Vec<Array<f64>> =
            literals.iter().map(|l| Array::from_literal(l).unwrap()).collect();
        let wanted = op.evaluate(&arrays, &results, &Regions::of(&[])).unwrap();
        let wanted: Vec<Literal> = wanted.iter().map(|w| w.to_literal().unwrap()).collect();
        let decomposed = decomposed(&op, &literals);
        if kind == AttentionKind::Jvp {
            let unit = match dtype {
                DType::F64 => 1e-13,
                DType::F32 => 1e-5,
                _ => 4e-2,
            };
            for (wanted, found) in wanted.iter().zip(&decomposed) {
                for (x, y) in wanted.scalars().zip(found.scalars()) {
                    let (x, y) = (x.to_f64(), y.to_f64());
                    assert!(
                        (x - y).abs() <= unit * (1.0 + x.abs()),
                        "{op:?} in {dtype}: {y}, not {x}"
                    );
                }
            }
            continue;
        }
        let references = Call::from(call.clone()).references(&literals).unwrap();
        let simple = naive::execute(&call.into(), &literals).unwrap();
        for (n, reference) in references.iter().enumerate() {
            assert!(reference.errors().iter().all(|e| e.is_finite()), "{op:?} in {dtype}");
            for found in [&wanted[n], &decomposed[n], &simple[n]] {
                reference
                    .check(found)
                    .unwrap_or_else(|e| panic!("{op:?} in {dtype}, result {n}: {e}"));
            }
        }
    }
}

/// The results of an op's decomposition.
fn decomposed(op: &Op, literals: &[Literal]) -> Vec<Literal> {
    let types: Vec<TensorType> = literals.iter().map(Literal::ty).collect();
    let results = op.infer(&types, &[]).unwrap();
    let compute = op.compute(&types, &results, &[]);
    let (Compute::CallOrDecompose(_, rule) | Compute::Decompose(rule)) = compute else {
        panic!("{op:?} has no decomposition");
    };
    let mut b = FunctionBuilder::new("decomposed");
    let inputs = types.iter().enumerate().map(|(n, ty)| b.input(&format!("x{n}"), ty.clone()));
    let operands: Vec<_> = inputs.collect();
    let values = b.scope().enter(|| rule(&operands));
    for (n, value) in values.iter().enumerate() {
        b.output(&format!("y{n}"), value);
    }
    interpret::run(&b.finish().unwrap(), literals).unwrap()
}

#[test]
fn prefixes_of_another_type_are_refused() {
    let ty = |dtype, shape: &[usize]| TensorType::new(dtype, shape.iter().copied());
    let row = ty(DType::F32, &[2, 3, 1, 4]);
    let of = |bias: bool, more: &[TensorType]| {
        let (kind, scale) = (AttentionKind::Value, Scalar::of(0.5));
        let op = Op::from(Attention { kind, causal: false, bias, prefix: true, scale });
        let operands = [&[row.clone(), row.clone(), row.clone()], more].concat();
        op.infer(&operands, &[]).unwrap_err().to_string()
    };
    let bias = ty(DType::F32, &[1, 1, 1, 3]);
    for (found, message) in [
        (of(false, &[]), "3 operands, and none is the prefix"),
        (of(true, std::slice::from_ref(&bias)), "4 operands, and none is the prefix"),
        (of(false, &[ty(DType::I32, &[3])]), "the prefix of 2 examples has type i32[3]"),
        (of(false, &[ty(DType::I64, &[2])]), "the prefix of 2 examples has type i64[2]"),
        (of(true, &[bias, ty(DType::I32, &[])]), "the prefix of 2 examples has type i32[]"),
        (of(false, &[ty(DType::I32, &[2]), ty(DType::I32, &[2])]), "takes 4 operands, found 5"),
    ] {
        assert!(found.contains(message), "{found}");
    }
    assert!(of(false, &[ty(DType::U32, &[2])]).contains("help: it has type i32[2]"));
}
