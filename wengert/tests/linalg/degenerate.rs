//! Singular matrices, equal eigenvalues, and empty matrices.

use super::{compute, doubles, eye};
use wengert::linalg::{cholesky, det, eigh, inv, lu, matrix_exp, qr, slogdet, solve, svd};
use wengert::prelude::*;

fn matrix<const N: usize>(rows: usize, values: [f64; N]) -> Literal {
    Literal::from_vec(&[rows, N / rows], values.to_vec()).unwrap()
}

fn of<const N: usize>(
    rows: usize,
    values: [f64; N],
    f: impl FnOnce(&Tensor) -> Vec<Tensor>,
) -> Vec<Vec<f64>> {
    compute(&[matrix(rows, values)], |x| f(&x[0])).iter().map(doubles).collect()
}

fn near(a: &[f64], b: &[f64]) {
    assert!(
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-14),
        "{a:?} is not {b:?}"
    );
}

#[test]
fn what_is_not_positive_definite_has_no_factor() {
    for values in [
        [1.0, 2.0, 2.0, 1.0],
        [0.0, 0.0, 0.0, 1.0],
        [1.0, f64::NAN, 0.0, 1.0],
        [-1.0, 0.0, 0.0, 1.0],
    ] {
        let l = of(2, values, |a| vec![cholesky(a)]).swap_remove(0);
        assert!(l.iter().all(|x| x.is_nan()), "{l:?}");
    }
    // The result is the factor of the symmetric part.
    near(&of(2, [4.0, 0.0, 4.0, 5.0], |a| vec![cholesky(a)])[0], &[2.0, 0.0, 1.0, 2.0]);
}

#[test]
fn a_singular_matrix_has_factors_but_no_inverse() {
    // A column without a pivot is left unchanged.
    let factors = of(3, [0.0, 1.0, 2.0, 0.0, 3.0, 4.0, 0.0, 3.0, 5.0], |a| {
        let (lu, pivots, permutation) = lu(a);
        vec![lu, pivots, permutation]
    });
    near(&factors[0], &[0.0, 1.0, 2.0, 0.0, 3.0, 4.0, 0.0, 1.0, 1.0]);
    near(&factors[1], &[0.0, 1.0, 2.0]);
    let results = of(2, [1.0, 2.0, 2.0, 4.0], |a| {
        let (sign, log) = slogdet(a);
        vec![sign, log, inv(a), solve(a, a), det(a)]
    });
    assert_eq!((results[0][0], results[1][0], results[4][0]), (0.0, f64::NEG_INFINITY, 0.0));
    assert!(results[2].iter().any(|x| !x.is_finite()) && results[3].iter().any(|x| !x.is_finite()));
}

#[test]
fn the_derivative_of_a_determinant_is_its_cofactors_singular_or_not() {
    let cofactors =
        |rows, values: [f64; 4]| of(rows, values, |a| vec![grad(a, det)]).swap_remove(0);
    near(&cofactors(2, [1.0, 2.0, 3.0, 5.0]), &[5.0, -3.0, -2.0, 1.0]);
    near(&cofactors(2, [1.0, 2.0, 2.0, 4.0]), &[4.0, -2.0, -2.0, 1.0]);
    near(&cofactors(2, [0.0, 0.0, 0.0, 1.0]), &[1.0, 0.0, 0.0, 0.0]);
    near(&cofactors(2, [0.0, 0.0, 1.0, 3.0]), &[3.0, -1.0, 0.0, 0.0]);
    let of_nine = |values: [f64; 9]| of(3, values, |a| vec![grad(a, det)]).swap_remove(0);
    near(&of_nine([0.0; 9]), &[0.0; 9]);
    near(
        &of_nine([1.0, 0.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0, 4.0]),
        &[0.0, 0.0, 0.0, 0.0, 4.0, 0.0, 0.0, -3.0, 0.0],
    );
}

#[test]
fn equal_eigenvalues_and_singular_values_have_finite_derivatives() {
    let unit = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
    let results = of(3, unit, |a| {
        let (w, v) = eigh(a);
        // A function of the eigenspaces alone has the right derivative, such as aᵀ·a by
        // eigenvectors.
        let square = |a: &Tensor| {
            let (w, v) = eigh(a);
            let scaled = &v * (&w * &w).broadcast_in_dim(v.shape().to_vec(), &[1]);
            (scaled.dot(&v.matrix_transpose()) * eye(a)).sum()
        };
        let values = |a: &Tensor| svd(a, false).1.square().sum();
        let vectors = |a: &Tensor| {
            let (u, _, vt) = svd(a, false);
            u.dot(&vt).sum()
        };
        vec![w, v, grad(a, square), grad(a, values), grad(a, vectors)]
    });
    near(&results[0], &[1.0; 3]);
    near(&results[1], &unit);
    let twice = unit.map(|x| 2.0 * x);
    near(&results[2], &twice);
    near(&results[3], &twice);
    assert!(results[4].iter().all(|x| x.is_finite()), "{:?}", results[4]);
}

#[test]
fn vectors_of_singular_values_that_are_0_are_filled_up() {
    for (rows, values) in [(3, [0.0; 9]), (3, [1.0, 2.0, 3.0, 2.0, 4.0, 6.0, 0.0, 0.0, 0.0])] {
        let results = of(rows, values, |a| {
            let (u, s, vt) = svd(a, false);
            let (q, r) = qr(a, false);
            vec![
                u.matrix_transpose().dot(&u),
                vt.dot(&vt.matrix_transpose()),
                q.matrix_transpose().dot(&q),
                q.dot(&r) - a,
                grad(a, |a| svd(a, false).1.sum() + svd(a, false).0.sum()),
                s,
            ]
        });
        let unit = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
        (0..3).for_each(|i| near(&results[i], &unit));
        near(&results[3], &[0.0; 9]);
        assert!(results[4].iter().all(|x| x.is_finite()), "{:?}", results[4]);
        near(&results[5][1..], &[0.0; 2]);
    }
}

#[test]
fn what_is_no_number_is_none_afterwards_and_loops_end() {
    let results = of(2, [1.0, f64::NAN, 0.0, 1.0], |a| {
        let ((w, v), (u, s, vt)) = (eigh(a), svd(a, false));
        vec![w, v, u, s, vt, matrix_exp(a), qr(a, false).1]
    });
    for result in &results[..6] {
        assert!(result.iter().all(|x| x.is_nan()), "{result:?}");
    }
    assert!(results[6].iter().any(|x| x.is_nan()));
    // Squares of very large and very small entries neither overflow nor vanish.
    for scale in [1e-200, 1e200] {
        let results = of(2, [3.0 * scale, 4.0 * scale, 4.0 * scale, -3.0 * scale], |a| {
            vec![eigh(a).0 / scale, svd(a, false).1 / scale, qr(a, false).1 / scale]
        });
        near(&results[0], &[-5.0, 5.0]);
        near(&results[1], &[5.0, 5.0]);
        near(&results[2], &[-5.0, 0.0, 0.0, -5.0].map(|x: f64| x));
    }
    // The matrix exponential would need too many squarings.
    assert!(of(1, [1e6], |a| vec![matrix_exp(a)])[0][0].is_nan());
}

#[test]
fn matrices_without_rows_or_columns() {
    let empty = Literal::from_vec(&[0, 0], Vec::<f64>::new()).unwrap();
    let tall = Literal::from_vec(&[3, 0], Vec::<f64>::new()).unwrap();
    let results = compute(&[empty, tall], |x| {
        let (a, tall) = (&x[0], &x[1]);
        let (sign, log) = slogdet(a);
        let (q, r) = qr(tall, true);
        let (u, s, vt) = svd(tall, true);
        let (w, v) = eigh(a);
        vec![
            det(a),
            sign,
            log,
            cholesky(a),
            w,
            v,
            inv(a),
            solve(a, a),
            matrix_exp(a),
            q,
            r,
            u,
            s,
            vt,
            lu(tall).2,
        ]
    });
    let shapes: Vec<&[usize]> = results.iter().map(|l| l.shape()).collect();
    let square: &[usize] = &[0, 0];
    let one: &[usize] = &[];
    assert_eq!(
        shapes,
        [
            one,
            one,
            one,
            square,
            &[0],
            square,
            square,
            square,
            square,
            &[3, 3],
            &[3, 0],
            &[3, 3],
            &[0],
            square,
            &[3]
        ]
    );
    assert_eq!([0, 1, 2].map(|i| results[i].get(0).to_f64()), [1.0, 1.0, 0.0]);
}
