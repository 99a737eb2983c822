//! Choices, masks, diagonals, and ranges.

use crate::{array, built, counted, error, of, run, run_bound};
use ndarray::ArrayD;
use wengert_core::{Binding, DType, Dim, Literal, Tensor, TensorType};

#[test]
fn numbers_on_either_side_of_a_choice() {
    let x = counted(&[2, 3]);
    let positive = |i: &[usize]| x[[i[0], i[1]]] > 0.0;
    let element = |i: &[usize]| x[[i[0], i[1]]];
    let relu = built(&[2, 3], |i| if positive(i) { element(i) } else { 0.0 });
    assert_eq!(of(&x, |x| x.gt(0.0).select(x, 0.0)), relu);
    assert_eq!(of(&x, |x| x.le(0.0).select(0.0, x)), relu);
    assert_eq!(of(&x, |x| x.masked_fill(&x.le(0.0), 0)), relu);
    let mask = run(&[Literal::from(x.clone())], |x| x[0].gt(0.0).select(0.0, f32::NEG_INFINITY));
    assert_eq!((mask.dtype(), mask.shape()), (DType::F32, &[2, 3][..]));
    assert_eq!(array(&mask), built(&[2, 3], |i| if positive(i) { 0.0 } else { f64::NEG_INFINITY }));
    let dtype = |f: &dyn Fn(&Tensor) -> Tensor| {
        run(&[Literal::from(x.clone())], |x| f(&x[0].gt(0.0))).dtype()
    };
    assert_eq!(dtype(&|p| p.select(1, 0)), DType::I32);
    assert_eq!(dtype(&|p| p.select(1i64, 0)), DType::I64);
    assert_eq!(dtype(&|p| p.select(1, 0.5)), DType::F32);
    // The condition is larger than the choices.
    let row = of(&x, |x| x.gt(0.0).select(x.slice_axis(0, 0, 1), 7.0));
    assert_eq!(row, built(&[2, 3], |i| if positive(i) { x[[0, i[1]]] } else { 7.0 }));
    let scalar = of(&x, |x| x.gt(0.0).select(x.sum(), 7.0));
    assert_eq!(scalar, built(&[2, 3], |i| if positive(i) { x.sum() } else { 7.0 }));
}

#[test]
fn numbers_on_the_left_of_operators() {
    let x = counted(&[2, 3]);
    assert_eq!(of(&x, |x| 1.0 - x), 1.0 - &x);
    assert_eq!(of(&x, |x| 2 + x), 2.0 + &x);
    assert_eq!(of(&x, |x| 2i64 * x), 2.0 * &x);
    assert_eq!(of(&x, |x| 1.0 / (x + 10.0)), 1.0 / (&x + 10.0));
    assert_eq!(of(&x, |x| (20.0 - x).sqrt()), (20.0 - &x).sqrt());
}

#[test]
fn entries_at_indices() {
    let x = counted(&[2, 4, 3]);
    let at = Literal::from_vec(&[5], vec![3i32, 0, 0, 2, 9]).unwrap();
    let at = |axis: i64| {
        run(&[Literal::from(x.clone()), at.clone()], |t| t[0].index_select(axis, &t[1]))
    };
    let rows = [3, 0, 0, 2, 3];
    assert_eq!(array(&at(1)), built(&[2, 5, 3], |i| x[[i[0], rows[i[1]], i[2]]]));
    let columns = [2, 0, 0, 2, 2];
    assert_eq!(array(&at(-1)), built(&[2, 4, 5], |i| x[[i[0], i[1], columns[i[2]]]]));
    let square = Literal::from_vec(&[2, 2], vec![1u8, 0, 3, 2]).unwrap();
    let square = run(&[Literal::from(x.clone()), square], |t| t[0].index_select(1, &t[1]));
    let places = [[1, 0], [3, 2]];
    let expected = built(&[2, 2, 2, 3], |i| x[[i[0], places[i[1]][i[2]], i[3]]]);
    assert_eq!(array(&square), expected);
}

#[test]
fn triangles() {
    let x = counted(&[2, 3, 4]);
    for offset in -4i64..5 {
        let kept = |i: &[usize], lower: bool| {
            let distance = i[2] as i64 - i[1] as i64;
            if lower { distance <= offset } else { distance >= offset }
        };
        for lower in [true, false] {
            let expected =
                built(&[2, 3, 4], |i| if kept(i, lower) { x[[i[0], i[1], i[2]]] } else { 0.0 });
            let triangle = of(&x, |x| if lower { x.tril(offset) } else { x.triu(offset) });
            assert_eq!(triangle, expected, "{offset} {lower}");
        }
    }
    assert_eq!(of(&x, |x| x.tril(i64::MAX)), x);
    assert_eq!(of(&x, |x| x.triu(i64::MIN)), x);
    let ty = TensorType::new(DType::F32, [3]);
    assert!(error(&[ty], |x| x[0].tril(0)).contains("tril: f32[3] is no matrix"));
}

/// Diagonal number `offset` of the matrices over two axes.
fn diagonal(x: &ArrayD<f64>, offset: i64, rows: usize, columns: usize) -> ArrayD<f64> {
    let leading: Vec<usize> = (0..x.ndim()).filter(|a| *a != rows && *a != columns).collect();
    let (down, across) = ((-offset).max(0) as usize, offset.max(0) as usize);
    let length =
        x.shape()[rows].saturating_sub(down).min(x.shape()[columns].saturating_sub(across));
    let shape: Vec<usize> = leading.iter().map(|a| x.shape()[*a]).chain([length]).collect();
    built(&shape, |i| {
        let mut at = vec![0; x.ndim()];
        leading.iter().zip(i).for_each(|(axis, i)| at[*axis] = *i);
        (at[rows], at[columns]) = (i[leading.len()] + down, i[leading.len()] + across);
        x[&at[..]]
    })
}

#[test]
fn diagonals_of_any_two_axes() {
    let x = counted(&[3, 2, 4]);
    for offset in -5i64..6 {
        for (rows, columns) in [(0, 2), (2, 0), (1, 2), (0, 1)] {
            let expected = diagonal(&x, offset, rows, columns);
            let result = of(&x, |x| x.diagonal(offset, rows, columns as i64 - 3));
            assert_eq!(result, expected, "{offset} {rows} {columns}");
        }
    }
    for offset in [i64::MIN, i64::MAX] {
        assert_eq!(of(&x, |x| x.diagonal(offset, 0, 2)).shape(), [2, 0]);
    }
    let square = counted(&[2, 3, 3]);
    assert_eq!(of(&square, Tensor::trace), diagonal(&square, 0, 1, 2).sum_axis(ndarray::Axis(1)));
    let types = [TensorType::new(DType::F32, ["B", "T"])];
    let message = error(&types, |x| x[0].diagonal(0, 0, 1));
    assert!(message.contains("diagonal: a matrix [B,T] may be wide or tall"), "{message}");
    let message = error(&types, |x| x[0].diagonal(0, 0, -2));
    assert!(
        message.contains("diagonal: rows and columns of f32[B,T] are both axis 0"),
        "{message}"
    );
}

#[test]
fn diagonals_of_variable_extents() {
    let n = Dim::variable("N");
    let ty = TensorType::new(DType::F64, [n.clone(), n]);
    let x = counted(&[4, 4]);
    let binding = Binding::new().with("N", 4);
    let results = run_bound(&[ty], &binding, &[Literal::from(x.clone())], |x| {
        vec![x[0].diagonal(0, 0, 1), x[0].diagonal(-1, 0, 1), x[0].trace()]
    });
    assert_eq!(array(&results[0]), diagonal(&x, 0, 0, 1));
    assert_eq!(array(&results[1]), diagonal(&x, -1, 0, 1));
    assert_eq!(array(&results[2]).sum(), diagonal(&x, 0, 0, 1).sum());
}

#[test]
fn identities_and_ranges() {
    let none = counted(&[1]);
    let eye = of(&none, |_| Tensor::eye(DType::F32, 3, 4));
    assert_eq!(eye, built(&[3, 4], |i| if i[0] == i[1] { 1.0 } else { 0.0 }));
    let values = |f: &dyn Fn() -> Tensor| of(&none, |_| f()).into_raw_vec_and_offset().0;
    assert_eq!(values(&|| Tensor::arange(DType::I32, 1, 10, 3)), [1.0, 4.0, 7.0]);
    assert_eq!(values(&|| Tensor::arange(DType::I64, 7, 1, -3)), [7.0, 4.0]);
    assert_eq!(values(&|| Tensor::arange(DType::F32, 0, 3, 1)), [0.0, 1.0, 2.0]);
    assert_eq!(values(&|| Tensor::arange(DType::F64, 0.0, 1.0, 0.5)), [0.0, 0.5]);
    assert_eq!(values(&|| Tensor::arange(DType::F64, 0.0, 1.1, 0.5)), [0.0, 0.5, 1.0]);
    assert!(values(&|| Tensor::arange(DType::I32, 3, 3, 1)).is_empty());
    assert!(values(&|| Tensor::arange(DType::I32, 3, 0, 1)).is_empty());
    assert_eq!(values(&|| Tensor::linspace(DType::F64, -1.0, 1.0, 5)), [-1.0, -0.5, 0.0, 0.5, 1.0]);
    assert_eq!(values(&|| Tensor::linspace(DType::F32, 3.0, 9.0, 1)), [3.0]);
    assert!(values(&|| Tensor::linspace(DType::F32, 3.0, 9.0, 0)).is_empty());
    // The last element is exact even if the steps are rounded.
    let thirds = values(&|| Tensor::linspace(DType::F32, 0.0, 0.7, 50));
    assert_eq!(thirds[49] as f32, 0.7);
    let mistake = |f: &dyn Fn() -> Tensor| {
        let message = error(&[], |_| f());
        message.lines().next().unwrap().to_string()
    };
    let expected = "@f: arange: from 0 to 1 in steps of 0";
    assert_eq!(mistake(&|| Tensor::arange(DType::F32, 0, 1, 0)), expected);
    let expected = "@f: arange: integers from 0 to 1 in steps of 0.25";
    assert_eq!(mistake(&|| Tensor::arange(DType::I32, 0.0, 1.0, 0.25)), expected);
    let expected = "@f: linspace: i32 is no float dtype";
    assert_eq!(mistake(&|| Tensor::linspace(DType::I32, 0.0, 1.0, 3)), expected);
    let huge = mistake(&|| Tensor::arange(DType::F32, 0.0, 1e300, 1.0));
    assert!(huge.contains("larger than any memory"), "{huge}");
}
