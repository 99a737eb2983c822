//! Axes, `unsqueeze`, `squeeze`, `flatten`, `unflatten`, and inferred extents.

use crate::{counted, error, of};
use ndarray::Axis;
use wengert_core::{DType, Dim, Literal, Tensor, TensorType};

fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape.iter().copied())
}

/// The first line of the error of a function of one f32 tensor.
fn mistake(shape: &[usize], f: impl FnOnce(&Tensor) -> Tensor) -> String {
    error(&[f32s(shape)], |x| f(&x[0])).lines().next().unwrap().to_string()
}

#[test]
fn axes_of_extent_1_come_and_go() {
    let x = counted(&[2, 3]);
    for (axis, place) in [(0, 0), (1, 1), (2, 2), (-1, 2), (-2, 1), (-3, 0)] {
        let expected = x.clone().insert_axis(Axis(place));
        assert_eq!(of(&x, |x| x.unsqueeze(axis)), expected);
        assert_eq!(of(&expected, |x| x.squeeze(place)), x);
        assert_eq!(of(&expected, |x| x.squeeze(place as i64 - 3)), x);
    }
    let both = of(&x, |x| x.unsqueeze([-1, 0]));
    assert_eq!(both, x.clone().insert_axis(Axis(2)).insert_axis(Axis(0)));
    assert_eq!(of(&both, |x| x.squeeze([0, 3])), x);
    let expected = "@f: unsqueeze: a new axis 3 of f32[2,3]";
    assert_eq!(mistake(&[2, 3], |x| x.unsqueeze(3)), expected);
    let expected = "@f: unsqueeze: a new axis -1 of f32[2,3] is named twice";
    assert_eq!(mistake(&[2, 3], |x| x.unsqueeze([3, -1])), expected);
    let expected = "@f: squeeze: axis 1 of f32[2,3] has extent 3";
    assert_eq!(mistake(&[2, 3], |x| x.squeeze(-1)), expected);
    let expected = "@f: squeeze: f32[2,3] has no axis -3";
    assert_eq!(mistake(&[2, 3], |x| x.squeeze(-3)), expected);
}

#[test]
fn axes_merge_and_split_in_row_major_order() {
    let x = counted(&[2, 3, 4, 5]);
    let reshaped = |shape: &[usize]| x.clone().into_shape_with_order(shape).unwrap();
    assert_eq!(of(&x, |x| x.flatten(0)), reshaped(&[120]));
    assert_eq!(of(&x, |x| x.flatten(-2)), reshaped(&[2, 3, 20]));
    assert_eq!(of(&x, |x| x.flatten(4)), reshaped(&[2, 3, 4, 5, 1]));
    assert_eq!(of(&x, |x| x.flatten_axes(1, -2)), reshaped(&[2, 12, 5]));
    assert_eq!(of(&x, |x| x.flatten_axes(2, 2)), x);
    assert_eq!(of(&x, |x| x.unflatten(-2, [2, 2])), reshaped(&[2, 3, 2, 2, 5]));
    assert_eq!(of(&x, |x| x.unflatten(3, [-1, 1])), reshaped(&[2, 3, 4, 5, 1]));
    let expected = "@f: flatten_axes: axis 0 of f32[2,3] is before axis 1";
    assert_eq!(mistake(&[2, 3], |x| x.flatten_axes(1, 0)), expected);
    let expected = "@f: reshape: f32[2,6] has 12 elements, f32[2,3,3] has 18";
    assert_eq!(mistake(&[2, 6], |x| x.unflatten(1, [3, 3])), expected);
    let expected =
        "@f: unflatten: the open extent of [4,-1] is no whole number for the elements of [6]";
    assert_eq!(mistake(&[2, 6], |x| x.unflatten(1, [4, -1])), expected);
}

#[test]
fn one_extent_is_inferred() {
    let x = counted(&[2, 3, 4]);
    let reshaped = |shape: &[usize]| x.clone().into_shape_with_order(shape).unwrap();
    assert_eq!(of(&x, |x| x.reshape([-1])), reshaped(&[24]));
    assert_eq!(of(&x, |x| x.reshape([6, -1])), reshaped(&[6, 4]));
    assert_eq!(of(&x, |x| x.reshape([-1, 24])), reshaped(&[1, 24]));
    let expected = "@f: reshape: [-1,-1] leaves 2 extents open";
    assert_eq!(mistake(&[2, 3], |x| x.reshape([-1, -1])), expected);
    let expected =
        "@f: reshape: the open extent of [4,-1] is no whole number for the elements of [2,3]";
    assert_eq!(mistake(&[2, 3], |x| x.reshape([4, -1])), expected);
    let expected = "@f: reshape: the open extent of [0,-1] may be any number";
    assert_eq!(mistake(&[0, 3], |x| x.reshape([0, -1])), expected);
}

#[test]
fn axes_count_from_either_end() {
    let x = counted(&[2, 3, 4]);
    assert_eq!(of(&x, |x| x.sum_axes(-1)), x.sum_axis(Axis(2)));
    assert_eq!(of(&x, |x| x.sum_axes([0, -1])), x.sum_axis(Axis(2)).sum_axis(Axis(0)));
    assert_eq!(of(&x, |x| x.sum_axes(..)).sum(), x.sum());
    assert_eq!(of(&x, |x| x.permute([-1, 0, 1])), x.clone().permuted_axes([2, 0, 1].as_slice()));
    assert_eq!(of(&x, |x| x.softmax(-1)), of(&x, |x| x.softmax(2)));
    assert_eq!(of(&x, |x| x.cumsum(-3)), of(&x, |x| x.cumsum(0)));
    assert_eq!(of(&x, |x| x.slice_axis(-2, 1, 3)), of(&x, |x| x.slice_axis(1, 1, 3)));
    assert_eq!(of(&x, |x| x.argmax(-2)), of(&x, |x| x.argmax(1)));
    assert_eq!(of(&x, |x| x.sort(-1)), of(&x, |x| x.sort(2)));
    assert_eq!(of(&x, |x| x.top_k(2, -1).0), of(&x, |x| x.top_k(2, 2).0));
    let ends = |x: &Tensor| Tensor::concatenate(&[x, x], -1);
    assert_eq!(of(&x, ends), of(&x, |x| Tensor::concatenate(&[x, x], 2)));
    let counts = |axis: i32| of(&x, |_| Tensor::iota(DType::F64, [2, 3], axis));
    assert_eq!(counts(-1), counts(1));
    let expected = "@f: reduce_sum: f32[2,3] has no axis -3";
    assert_eq!(mistake(&[2, 3], |x| x.sum_axes(-3)), expected);
    let expected = "@f: softmax: f32[2,3] has no axis -3";
    assert_eq!(mistake(&[2, 3], |x| x.softmax(-3)), expected);
    let expected = "@f: iota: i32[2,3] has no axis -3";
    assert_eq!(mistake(&[2], |_| Tensor::iota(DType::I32, [2, 3], -3)), expected);
    let expected = "@f: dim: f32[2,3] has no axis -3";
    assert_eq!(mistake(&[2, 3], |x| x.reshape([x.dim(-3)])), expected);
}

#[test]
fn an_inferred_extent_may_be_a_variable() {
    let b = Dim::variable("B");
    let ty = TensorType::new(DType::F64, [b.clone(), 6.into()]);
    let literal = Literal::from(counted(&[2, 6]));
    let binding = wengert_core::Binding::new().with("B", 2);
    let results = crate::run_bound(&[ty], &binding, &[literal], |x| {
        vec![x[0].reshape([b, 3.into(), Dim::INFER]), x[0].reshape([-1, 3]), x[0].flatten(0)]
    });
    let shapes: Vec<&[usize]> = results.iter().map(Literal::shape).collect();
    assert_eq!(shapes, [&[2, 3, 2][..], &[4, 3], &[12]]);
}
