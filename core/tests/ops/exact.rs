//! Ops over rational numbers, with zero tolerance. These are laws of arithmetic that floats satisfy
//! only approximately. Also: the f64 meaning of each op is close to the exact one.

use super::cases;
use std::sync::Arc;
use wengert_core::build::FunctionBuilder;
use wengert_core::interpret::{Array, Cell, Cells, Real, Regions, evaluate_over};
use wengert_core::op::{ConvGeneralDilated, TriangularSolve};
use wengert_core::{DType, Literal, Tensor, TensorType};
use wengert_testing::Rational;

/// Fractions without a finite binary expansion, from a seed.
fn fractions(shape: &[usize], seed: i64) -> Array<Rational> {
    let count = shape.iter().product::<usize>() as i64;
    let cell =
        |i: i64| Cell::Real(Rational::new((i * 7 + seed) % 19 - 9, 3 + (i * 5 + seed) % 7 * 2));
    Array::new(
        DType::F64,
        shape.to_vec(),
        Cells::collect((0..count as usize).map(|i| cell(i as i64))).unwrap(),
    )
}

fn run(shapes: &[&[usize]], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Vec<Array<Rational>> {
    let function = FunctionBuilder::build("f", |b| {
        let ty = |shape: &[usize]| TensorType::new(DType::F64, shape.iter().copied());
        let inputs: Vec<Tensor> =
            shapes.iter().enumerate().map(|(i, s)| b.input(&format!("x{i}"), ty(s))).collect();
        for (i, y) in f(&inputs).into_iter().enumerate() {
            b.output(&format!("y{i}"), y);
        }
    })
    .unwrap();
    let inputs: Vec<_> =
        shapes.iter().enumerate().map(|(i, s)| fractions(s, i as i64 * 3 + 1)).collect();
    evaluate_over(&function.body, &function.locations, &inputs).unwrap()
}

fn assert_same(pairs: &[Array<Rational>]) {
    for pair in pairs.chunks(2) {
        assert_eq!(pair[0], pair[1]);
        let zero = Cell::Real(Rational::new(0, 1));
        assert!(pair[0].cells.iter().any(|c| *c != zero), "the law is tested on something");
    }
}

#[test]
fn arithmetic_is_that_of_a_field() {
    assert_same(&run(&[&[2, 3], &[2, 3], &[2, 3]], |x| {
        let (a, b, c) = (&x[0], &x[1], &(&x[2] + 100.0));
        vec![
            (a + b) * c,
            a * c + b * c,
            (a / c) * c,
            a.clone(),
            (a - b) / c,
            a / c - b / c,
            (a * b).square(),
            a.square() * b.square(),
            (a * c).reciprocal() * a * c,
            a.ones_like(),
            a.rem(b),
            a - &((a / b).sign() * (a / b).abs().floor()) * b,
        ]
    }));
}

#[test]
fn reductions_products_and_scans_agree() {
    assert_same(&run(&[&[3, 4], &[4, 2]], |x| {
        let (a, b) = (&x[0], &x[1]);
        let broadcast = a.reshape([3i64, 4, 1]) * b.reshape([1i64, 4, 2]);
        let last = |t: &Tensor| t.slice_axis(1, 3, 4).reshape([3usize]);
        vec![
            a.dot(b),
            broadcast.sum_axes(&[1]),
            a.sum_axes(&[0, 1]),
            a.sum_axes(&[1]).sum(),
            last(&a.cumsum(1)),
            a.sum_axes(&[1]),
            last(&a.cumprod(1)),
            (0..4)
                .map(|i| a.slice_axis(1, i, i + 1).reshape([3usize]))
                .reduce(|p, q| p * q)
                .unwrap(),
            last(&a.cummax(1)),
            a.max_axes(&[1]),
            a.mean_axes(&[0]) * 3.0,
            a.sum_axes(&[0]),
            // The variance is the mean of squares minus the square of the mean, exactly.
            a.var(),
            a.square().mean() - a.mean().square(),
        ]
    }));
}

#[test]
fn what_a_triangular_solve_gives_solves_the_equations() {
    for bits in 0..16 {
        let [left_side, lower, transpose_a, unit_diagonal] =
            [1, 2, 4, 8].map(|bit| bits & bit != 0);
        let op = TriangularSolve { left_side, lower, transpose_a, unit_diagonal };
        assert_same(&run(&[&[3, 3], if left_side { &[3, 2] } else { &[2, 3] }], |x| {
            let (a, b) = (&x[0] + 100.0, &x[1]);
            let along = |axis| Tensor::iota(DType::I32, [3usize, 3], axis);
            let (row, column) = (along(0), along(1));
            let triangle =
                if lower { row.ge(&column) } else { row.le(&column) }.select(&a, &a.zeros_like());
            let on_diagonal =
                row.eq(&column).and(Tensor::constant(unit_diagonal).broadcast_to(a.shape()));
            let read = on_diagonal.select(&a.ones_like(), &triangle);
            let read = if transpose_a { read.matrix_transpose() } else { read };
            let solution = Tensor::apply(op, &[&a, b]);
            vec![if left_side { read.dot(&solution) } else { solution.dot(&read) }, b.clone()]
        }));
    }
}

#[test]
fn a_convolution_is_a_product_of_polynomials() {
    // A convolution with full padding and a reversed filter multiplies polynomials: (Σ aᵢ zⁱ)(Σ bⱼ
    // zʲ).
    let (n, m) = (5usize, 3usize);
    let product = run(&[&[1, n, 1], &[m, 1, 1]], |x| {
        let pad = wengert_core::Dim::from(m - 1);
        let conv =
            ConvGeneralDilated { padding: vec![(pad.clone(), pad)], ..ConvGeneralDilated::new(1) };
        vec![Tensor::apply(conv, &[&x[0], &x[1].reverse(&[0])])]
    });
    let (a, b) = (fractions(&[n], 1), fractions(&[m], 4));
    let mut expected = vec![Rational::new(0, 1); n + m - 1];
    for i in 0..n {
        for j in 0..m {
            let product = a.cells[i].real().mul(b.cells[j].real());
            expected[i + j] = expected[i + j].add(&product);
        }
    }
    let expected: Vec<_> = expected.into_iter().map(Cell::Real).collect();
    assert_eq!(product[0].cells, Arc::new(expected));
}

#[test]
fn f64_is_near_the_exact_meaning_and_what_is_not_rational_says_so() {
    let (mut exact, mut refused) = (0, 0);
    for (entry, sample, operands) in cases() {
        let finite = operands.iter().flat_map(Literal::scalars).all(|s| s.to_f64().is_finite());
        if !finite || operands.iter().any(|o| o.dtype().is_float() && o.dtype() != DType::F64) {
            continue;
        }
        let types: Vec<TensorType> = operands.iter().map(Literal::ty).collect();
        let results = sample.infer(&types).unwrap();
        let regions = sample.regions(&types);
        let rationals: Vec<Array<Rational>> =
            operands.iter().map(|l| Array::from_literal(l).unwrap()).collect();
        let floats: Vec<Array<f64>> =
            operands.iter().map(|l| Array::from_literal(l).unwrap()).collect();
        let meaning = match sample.op.evaluate(
            &rationals,
            &results,
            &Regions { rounds: false, ..Regions::of(&regions) },
        ) {
            Ok(meaning) => meaning,
            Err(error) => {
                let text = error.to_string();
                assert!(
                    text.contains("is not rational") || text.contains("have no bits"),
                    "{}: {text}",
                    entry.name
                );
                refused += 1;
                continue;
            }
        };
        exact += 1;
        let scale: f64 =
            operands.iter().flat_map(Literal::scalars).map(|s| s.to_f64().abs().max(1.0)).product();
        for (f, r) in sample
            .op
            .evaluate(&floats, &results, &Regions::of(&regions))
            .unwrap()
            .iter()
            .zip(meaning)
        {
            for (f, r) in f.cells.iter().zip(r.cells.iter()) {
                match (f, r) {
                    // A conversion to f16 overflows. Rationals do not.
                    (Cell::Real(f), Cell::Real(r)) if f.is_infinite() => {
                        assert!(r.to_f64().abs() > 65504.0, "{}: {f}, not {r}", entry.name);
                    }
                    (Cell::Real(f), Cell::Real(r)) => {
                        let error = r.sub(&Rational::from_f64(*f)).to_f64();
                        assert!(
                            error.abs() <= 1e-13 * scale.max(f.abs()),
                            "{}: {f} − {r} = {error}",
                            entry.name
                        );
                    }
                    // An exact number has no −0.
                    (f, r) if results[0].dtype.is_float8() && f.bits() == 0x80 => {
                        assert!(matches!(r.bits(), 0 | 0x80));
                    }
                    (f, r) => assert_eq!(f.bits(), r.bits(), "{}", entry.name),
                }
            }
        }
    }
    assert!(exact > 60 && refused > 10, "{exact} exact, {refused} refused");
}
