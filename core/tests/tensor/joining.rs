//! `stack`, `split`, `tile`, `roll` and their relatives.

use crate::{array, built, counted, error, of, run, run_bound};
use ndarray::{Axis, Slice, concatenate, stack};
use wengert_core::{Binding, DType, Dim, Literal, Tensor, TensorType};

/// The first line of the error of a function of one f32 tensor.
fn mistake(shape: &[usize], f: impl FnOnce(&Tensor) -> Tensor) -> String {
    let ty = TensorType::new(DType::F32, shape.iter().copied());
    error(&[ty], |x| f(&x[0])).lines().next().unwrap().to_string()
}

#[test]
fn stacking_makes_an_axis_and_unstacking_removes_it() {
    let (x, y) = (counted(&[2, 3]), counted(&[2, 3]) * 10.0);
    let literals = [Literal::from(x.clone()), Literal::from(y.clone())];
    for (axis, place) in [(0i64, 0), (1, 1), (2, 2), (-1, 2), (-3, 0)] {
        let expected = stack(Axis(place), &[x.view(), y.view()]).unwrap();
        assert_eq!(array(&run(&literals, |t| Tensor::stack(t, axis))), expected);
        assert_eq!(of(&expected, |t| t.unstack(axis)[1].clone()), y);
        assert_eq!(of(&expected, |t| Tensor::stack(&t.unstack(axis), axis)), expected);
    }
    let types = [[2, 3], [3, 2]].map(|shape| TensorType::new(DType::F32, shape));
    let message = error(&types, |x| Tensor::stack(x, 0));
    assert!(message.contains("stack: part 0 has type f32[2,3], part 1 has f32[3,2]"), "{message}");
    let none: [Tensor; 0] = [];
    let expected = "@f: stack: there is no tensor to stack";
    assert_eq!(mistake(&[2], |_| Tensor::stack(&none, 0)), expected);
}

#[test]
fn parts_along_an_axis() {
    let x = counted(&[2, 7]);
    let cut = |from: usize, to: usize| x.slice_axis(Axis(1), Slice::from(from..to)).to_owned();
    for (i, (from, to)) in [(0, 2), (2, 2), (2, 7)].into_iter().enumerate() {
        assert_eq!(of(&x, |x| x.split([2, 0, 5], -1)[i].clone()), cut(from, to));
        assert_eq!(of(&x, |x| x.split([2, 0, -1], 1)[i].clone()), cut(from, to));
    }
    for i in 0..7 {
        assert_eq!(of(&x, |x| x.chunk(7, 1)[i].clone()), cut(i, i + 1));
    }
    let part = |x: &Tensor, extents: [i32; 2]| x.split(extents, 1).remove(0);
    let expected = "@f: split: axis 1 of f32[2,7]: parts of 3 + 5 do not fill extent 7";
    assert_eq!(mistake(&[2, 7], |x| part(x, [3, 5])), expected);
    let expected = "@f: split: axis 1 of f32[2,7]: parts of 8 + -1 do not fill extent 7";
    assert_eq!(mistake(&[2, 7], |x| part(x, [8, -1])), expected);
    let expected = "@f: split: axis 1 of f32[2,7]: 2 extents of -1 + -1 are open";
    assert_eq!(mistake(&[2, 7], |x| part(x, [-1, -1])), expected);
    let expected = "@f: chunk: axis 1 of f32[2,7] has extent 7, which 2 does not divide";
    assert_eq!(mistake(&[2, 7], |x| x.chunk(2, -1).remove(0)), expected);
    let expected = "@f: chunk: 0 parts of f32[2,7]";
    assert_eq!(mistake(&[2, 7], |x| x.chunk(0, 0).remove(0)), expected);
}

#[test]
fn parts_of_a_variable_extent() {
    let b = Dim::variable("B");
    let ty = TensorType::new(DType::F64, [b.checked_scale(2).unwrap(), 2.into()]);
    let x = counted(&[6, 2]);
    let binding = Binding::new().with("B", 3);
    let results = run_bound(&[ty], &binding, &[Literal::from(x.clone())], |x| {
        let halves = x[0].chunk(2, 0);
        let ends = x[0].split([Dim::constant(1), Dim::INFER], 0);
        vec![halves[1].clone(), ends[1].clone(), x[0].roll(1, 0), x[0].tile([3, 1])]
    });
    let from = |i: usize| x.slice_axis(Axis(0), Slice::from(i..)).to_owned();
    assert_eq!(array(&results[0]), from(3));
    assert_eq!(array(&results[1]), from(1));
    assert_eq!(array(&results[2]), built(&[6, 2], |i| x[[(i[0] + 5) % 6, i[1]]]));
    assert_eq!(array(&results[3]), built(&[18, 2], |i| x[[i[0] % 6, i[1]]]));
}

#[test]
fn tiles_and_repeated_elements() {
    let x = counted(&[2, 3]);
    assert_eq!(of(&x, |x| x.tile([2, 4])), built(&[4, 12], |i| x[[i[0] % 2, i[1] % 3]]));
    assert_eq!(of(&x, |x| x.tile([4])), built(&[2, 12], |i| x[[i[0], i[1] % 3]]));
    let leading = of(&x, |x| x.tile([2, 1, 2]));
    assert_eq!(leading, built(&[2, 2, 6], |i| x[[i[1], i[2] % 3]]));
    assert_eq!(of(&x, |x| x.tile([0, 1])).shape(), [0, 3]);
    for (axis, times) in [(0, 3), (1, 2)] {
        let mut shape = vec![2, 3];
        shape[axis] *= times;
        let expected = built(&shape, |i| {
            let mut at = [i[0], i[1]];
            at[axis] /= times;
            x[at]
        });
        assert_eq!(of(&x, |x| x.repeat_interleave(times, axis)), expected);
        assert_eq!(of(&x, |x| x.repeat_interleave(times, axis as i64 - 2)), expected);
    }
}

#[test]
fn rolls_and_flips() {
    let x = counted(&[2, 5]);
    for shift in -11i64..11 {
        let from = |i: usize| (i as i64 - shift).rem_euclid(5) as usize;
        let expected = built(&[2, 5], |i| x[[i[0], from(i[1])]]);
        assert_eq!(of(&x, |x| x.roll(shift, -1)), expected, "{shift}");
    }
    let reversed = built(&[2, 5], |i| x[[1 - i[0], 4 - i[1]]]);
    assert_eq!(of(&x, |x| x.flip([0, -1])), reversed);
    let two = concatenate(Axis(0), &[x.view(), x.view()]).unwrap();
    assert_eq!(of(&x, |x| Tensor::concatenate(&[x, x], -2)), two);
}
