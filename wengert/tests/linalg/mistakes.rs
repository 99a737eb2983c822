//! Errors of linear algebra: the message, the place, and the help.

use super::function;
use wengert::linalg::{TriangularSolve, cholesky, eigh, lu, qr, solve, svd, triangular_solve};
use wengert::prelude::*;

fn error(types: &[TensorType], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> String {
    function(types, f).unwrap_err().to_string()
}

fn says(text: &str, words: &[&str]) {
    for word in words.iter().chain(&["mistakes.rs:", "help: "]) {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

#[test]
fn dtypes_and_shapes_that_do_not_fit() {
    let of = |dtype, shape: &[usize]| TensorType::new(dtype, shape.iter().copied());
    says(
        &error(&[of(DType::F16, &[3, 3])], |x| vec![cholesky(&x[0])]),
        &["cholesky of f16[3,3]", "f32 or f64", ".convert("],
    );
    says(
        &error(&[of(DType::I32, &[3, 3])], |x| vec![lu(&x[0]).0]),
        &["lu of i32[3,3]", "f32 or f64"],
    );
    says(
        &error(&[of(DType::F64, &[3])], |x| vec![qr(&x[0], true).1]),
        &["qr of f64[3]", "two axes"],
    );
    says(
        &error(&[of(DType::F64, &[3, 2])], |x| vec![eigh(&x[0]).1]),
        &["eigh of f64[3,2]", "square"],
    );
    says(
        &error(&[f32("n,n").unwrap()], |x| vec![svd(&x[0], true).1]),
        &["svd of f32[n,n]", "numbers"],
    );
    let (a, b) = (of(DType::F64, &[3, 3]), of(DType::F64, &[2, 3]));
    says(
        &error(&[a.clone(), b.clone()], |x| vec![solve(&x[0], &x[1])]),
        &["f64[3,3]", "f64[2,3]", "rows"],
    );
    says(
        &error(&[a, b], |x| {
            vec![triangular_solve(
                &x[0],
                &x[1],
                TriangularSolve { left_side: true, ..Default::default() },
            )]
        }),
        &["triangular_solve", "f64[2,3]"],
    );
}

#[test]
fn a_batch_may_have_a_variable_extent() {
    let built = function(&[f64("B,3,3").unwrap()], |x| vec![grad(&x[0], |a| cholesky(a).sum())]);
    assert!(built.is_ok(), "{built:?}");
}

#[test]
fn vectors_that_fill_up_have_no_derivative() {
    let ty = TensorType::new(DType::F64, [3usize, 2]);
    let text = error(&[ty], |x| vec![grad(&x[0], |a| qr(a, true).0.sum())]);
    assert!(text.contains("cannot differentiate through `@qr_with_full_matrices`"), "{text}");
}
