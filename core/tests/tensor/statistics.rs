//! Reductions with kept axes, variances, norms and truth.

use crate::{array, counted, error, of, run, run_bound};
use ndarray::{ArrayD, Axis};
use wengert_core::{Binding, DType, Literal, Tensor, TensorType};

/// The reduction of each vector along an axis, which is kept with extent 1.
fn along(x: &ArrayD<f64>, axis: usize, f: impl Fn(&[f64]) -> f64) -> ArrayD<f64> {
    let reduced = x.map_axis(Axis(axis), |vector| f(&vector.to_vec()));
    reduced.insert_axis(Axis(axis))
}

fn close(a: &ArrayD<f64>, b: &ArrayD<f64>) -> bool {
    a.shape() == b.shape()
        && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-12 * b.abs().max(1.0))
}

fn variance(x: &[f64], correction: f64) -> f64 {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (x.len() as f64 - correction)
}

/// A statistic of the elements of a row.
type OfRow = fn(&[f64]) -> f64;

type Method = Box<dyn Fn(&Tensor, i64) -> Tensor>;

#[test]
fn kept_axes_have_extent_1() {
    let x = counted(&[2, 3, 4]);
    let sum = |x: &[f64]| x.iter().sum::<f64>();
    let cases: Vec<(Method, OfRow)> = vec![
        (Box::new(|x, a| x.sum_keepdims(a)), |x| x.iter().sum()),
        (Box::new(|x, a| x.prod_keepdims(a)), |x| x.iter().product()),
        (Box::new(|x, a| x.mean_keepdims(a)), |x| x.iter().sum::<f64>() / x.len() as f64),
        (Box::new(|x, a| x.max_keepdims(a)), |x| x.iter().copied().fold(f64::MIN, f64::max)),
        (Box::new(|x, a| x.min_keepdims(a)), |x| x.iter().copied().fold(f64::MAX, f64::min)),
        (Box::new(|x, a| x.var_keepdims(a)), |x| variance(x, 0.0)),
        (Box::new(|x, a| x.std_keepdims(a)), |x| variance(x, 0.0).sqrt()),
        (Box::new(|x, a| x.norm_keepdims(a, 2.0)), |x| x.iter().map(|v| v * v).sum::<f64>().sqrt()),
        (Box::new(|x, a| x.gt(5.0).any_keepdims(a)), |x| f64::from(x.iter().any(|v| *v > 5.0))),
        (Box::new(|x, a| x.gt(-5.0).all_keepdims(a)), |x| f64::from(x.iter().all(|v| *v > -5.0))),
    ];
    for (i, (method, expected)) in cases.iter().enumerate() {
        for axis in 0..3 {
            let expected = along(&x, axis, expected);
            assert!(close(&of(&x, |x| method(x, axis as i64)), &expected), "{i} {axis}");
            assert!(close(&of(&x, |x| method(x, axis as i64 - 3)), &expected), "{i} {axis}");
        }
    }
    let both = of(&x, |x| x.sum_keepdims([0, -1]));
    assert_eq!(both, along(&along(&x, 2, sum), 0, sum));
    assert_eq!(of(&x, |x| x.min_axes(-1)), of(&x, |x| x.min_keepdims(2).squeeze(2)));
    assert_eq!(of(&x, |x| x.prod_axes(0)), of(&x, |x| x.prod_keepdims(0).squeeze(0)));
}

#[test]
fn variances_take_a_correction() {
    let x = counted(&[2, 5]) * 1.5;
    for correction in [0.0, 1.0, 0.5] {
        let expected = along(&x, 1, |v| variance(v, correction));
        let result = of(&x, |x| x.var_with_correction(-1, correction).unsqueeze(-1));
        assert!(close(&result, &expected), "{correction}");
        let result = of(&x, |x| x.std_with_correction(-1, correction).unsqueeze(-1));
        assert!(close(&result, &expected.sqrt()), "{correction}");
    }
    let all: Vec<f64> = x.iter().copied().collect();
    assert!((of(&x, Tensor::std).sum() - variance(&all, 0.0).sqrt()).abs() < 1e-12);
    let ty = TensorType::new(DType::F64, ["B", "T"]);
    let binding = Binding::new().with("B", 2).with("T", 5);
    let result = run_bound(&[ty], &binding, &[Literal::from(x.clone())], |x| {
        vec![x[0].var_with_correction(.., 1.0)]
    });
    assert!((array(&result[0]).sum() - variance(&all, 1.0)).abs() < 1e-12);
    let ty = TensorType::new(DType::I32, [3]);
    let message = error(&[ty], |x| x[0].var_with_correction(0, 1.0));
    assert!(message.contains("var: i32[3] is not of floats"), "{message}");
}

#[test]
fn norms_of_every_order() {
    let x = counted(&[3, 4]);
    let p_norm = |x: &[f64], p: f64| x.iter().map(|v| v.abs().powf(p)).sum::<f64>().powf(1.0 / p);
    for p in [2.0, 1.0, 3.0, 0.5] {
        let expected = along(&x, 1, |v| p_norm(v, p));
        assert!(close(&of(&x, |x| x.norm_keepdims(-1, p)), &expected), "{p}");
    }
    let most = along(&x, 0, |v| v.iter().fold(0.0, |m, v| v.abs().max(m)));
    assert_eq!(of(&x, |x| x.norm_keepdims(0, f64::INFINITY)), most);
    let least = along(&x, 0, |v| v.iter().fold(f64::MAX, |m, v| v.abs().min(m)));
    assert_eq!(of(&x, |x| x.norm_keepdims(0, f64::NEG_INFINITY)), least);
    let count = along(&x, 0, |v| v.iter().filter(|v| **v != 0.0).count() as f64);
    assert_eq!(of(&x, |x| x.norm_keepdims(0, 0.0)), count);
    let all: Vec<f64> = x.iter().copied().collect();
    assert!((of(&x, Tensor::norm).sum() - p_norm(&all, 2.0)).abs() < 1e-12);
    let ty = TensorType::new(DType::F32, [3]);
    let message = error(&[ty], |x| x[0].norm_axes(0, f64::NAN));
    assert!(message.contains("norm: the order is NaN"), "{message}");
}

#[test]
fn truth_of_all_elements() {
    let bools = |values: Vec<bool>| Literal::from_vec(&[values.len()], values).unwrap();
    for (values, any, all) in [
        (vec![true, false], true, false),
        (vec![true, true], true, true),
        (vec![false, false], false, false),
        (vec![], false, true),
    ] {
        assert_eq!(run(&[bools(values.clone())], |x| x[0].any()), Literal::from(any));
        assert_eq!(run(&[bools(values)], |x| x[0].all()), Literal::from(all));
    }
    let ty = TensorType::new(DType::F32, [3]);
    let message = error(&[ty], |x| x[0].any());
    assert!(message.contains("any: f32[3] is not of bools"), "{message}");
}
