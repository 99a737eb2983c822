//! `slice` in the notation of ndarray, compared with ndarray's own slices.

// `1..-1` is empty as a range of numbers only.
#![allow(clippy::reversed_empty_ranges)]

use crate::{counted, error, of, run_bound};
use ndarray::{NewAxis, SliceInfoElem};
use proptest::prelude::*;
use wengert_core::{Binding, DType, Dim, Literal, TensorType, s};

#[test]
fn entries_of_every_kind() {
    let x = counted(&[4, 5, 6]);
    macro_rules! same {
        ($([$($slice:tt)*];)*) => {$(
            let expected = x.slice(ndarray::s![$($slice)*]).to_owned().into_dyn();
            assert_eq!(of(&x, |x| x.slice(s![$($slice)*])), expected);
            // ndarray's own entries are accepted too.
            assert_eq!(of(&x, |x| x.slice(ndarray::s![$($slice)*])), expected);
        )*};
    }
    same! {
        [.., .., ..];
        [.., -1, 2..-1;2];
        [0, 0, 0];
        [-4, 1.., ..-2];
        [..;-1, 1..4;-2, ..;3];
        [1..=2, ..;-1, -1];
        [NewAxis, 1.., 2, NewAxis, ..;-2, NewAxis];
        [2..2, .., ..];
        [.., ..;100, ..;-100];
    }
    assert_eq!(of(&x, |x| x.slice(s![1])), x.slice(ndarray::s![1, .., ..]).to_owned().into_dyn());
    assert_eq!(
        of(&x, |x| x.slice(s![.., -1])),
        x.slice(ndarray::s![.., -1, ..]).to_owned().into_dyn()
    );
}

fn entry(extent: isize) -> impl Strategy<Value = SliceInfoElem> {
    let bounds = (0..=extent, 0..=extent, -3isize..4, any::<[bool; 3]>());
    let range = bounds.prop_map(move |(a, b, step, [wrap, wrap_end, open])| {
        let (from, to) = (a.min(b), a.max(b));
        // A start at the end of the axis has no negative form.
        let start = if wrap && from < extent { from - extent } else { from };
        let end = if wrap_end && to < extent { to - extent } else { to };
        let end = if open && to == extent { None } else { Some(end) };
        SliceInfoElem::Slice { start, end, step: if step == 0 { 1 } else { step } }
    });
    prop_oneof![3 => range, 1 => (-extent..extent).prop_map(SliceInfoElem::Index)]
}

proptest! {
    #[test]
    fn slices_are_those_of_ndarray(
        entries in (entry(4), entry(5), entry(3)).prop_map(|(a, b, c)| [a, b, c])
    ) {
        let x = counted(&[4, 5, 3]);
        let expected = x.slice_each(&entries);
        prop_assert_eq!(of(&x, |x| x.slice(entries)), expected);
    }
}

/// A slice by entries that are not known before the program runs.
trait SliceEach {
    fn slice_each(&self, entries: &[SliceInfoElem]) -> ndarray::ArrayD<f64>;
}

impl SliceEach for ndarray::ArrayD<f64> {
    fn slice_each(&self, entries: &[SliceInfoElem]) -> ndarray::ArrayD<f64> {
        self.slice(entries).to_owned()
    }
}

#[test]
fn bounds_from_the_end_of_a_variable_extent() {
    let b = Dim::variable("B").checked_add(&2.into()).unwrap();
    let ty = TensorType::new(DType::F64, [b, 3.into()]);
    let x = counted(&[5, 3]);
    let results =
        run_bound(&[ty], &Binding::new().with("B", 3), &[Literal::from(x.clone())], |x| {
            vec![x[0].slice(s![-1]), x[0].slice(s![1..-1, ..;-1]), x[0].slice(s![..-2;-1, 0])]
        });
    let expected = [
        x.slice(ndarray::s![-1, ..]).to_owned().into_dyn(),
        x.slice(ndarray::s![1..-1, ..;-1]).to_owned().into_dyn(),
        x.slice(ndarray::s![..-2;-1, 0]).to_owned().into_dyn(),
    ];
    for (result, expected) in results.iter().zip(expected) {
        assert_eq!(crate::array(result), expected);
    }
}

#[test]
fn what_does_not_lie_within_an_axis_is_refused() {
    let types = [TensorType::new(DType::F32, ["B".into(), Dim::from(3)])];
    for (entries, expected) in [
        (s![.., 3].to_vec(), "axis 1 of f32[B,3]: index 3 does not lie within its extent 3"),
        (s![.., -4].to_vec(), "axis 1 of f32[B,3]: index -4 does not lie within its extent 3"),
        (s![.., 2..1].to_vec(), "axis 1 of f32[B,3]: 2..1 does not lie within its extent 3"),
        (s![.., ..4].to_vec(), "axis 1 of f32[B,3]: 0..4 does not lie within its extent 3"),
        (
            s![1].to_vec(),
            "axis 0 of f32[B,3]: index 1 does not lie within its extent B for each value of it",
        ),
        (s![.., .., ..].to_vec(), "the slice has more entries than f32[B,3] has axes"),
        (
            vec![SliceInfoElem::Slice { start: 0, end: None, step: 0 }],
            "axis 0 of f32[B,3]: a step of 0",
        ),
    ] {
        let message = error(&types, |x| x[0].slice(entries));
        assert_eq!(message.lines().next().unwrap(), format!("@f: slice: {expected}"));
    }
}
