//! Axes that do not exist, indices, windows.

use crate::{building, says};
use wengert::core::build::Padding;
use wengert::core::build::indexing::{
    GatherDimensionNumbers, GatherMode, ScatterDimensionNumbers, ScatterMode,
};
use wengert::prelude::*;

#[test]
fn the_sum_along_an_axis_that_is_not_there() {
    says(
        building(|f| {
            let x = f.input("x", f32("2,3")); //~ x
            f.output("y", x.sum_axes(&[2])); //~ here
        }),
        "
        @f: reduce_sum: axes: axis 2 of an operand of rank 2
          --> {here}: reduce_sum
          --> {x}: an operand, f32[2,3], is made here
          help: its axes are 0 to 1
        ",
    );
}

#[test]
fn a_dimension_of_an_axis_that_is_not_there() {
    says(
        building(|f| {
            let x = f.input("x", f32("2,3")); //~ x
            let rows = x.dim(2); //~ here
            f.output("y", x.reshape([rows, 2.into()]));
        }),
        "
        @f: dim: f32[2,3] has no axis 2
          --> {here}
          --> {x}: an operand, f32[2,3], is made here
          help: its axes are 0 to 1
        ",
    );
}

#[test]
fn a_softmax_along_an_axis_that_is_not_there() {
    says(
        building(|f| {
            let x = f.input("x", f32("2,3")); //~ x
            f.output("y", x.softmax(5)); //~ here
        }),
        "
        @f: softmax: f32[2,3] has no axis 5
          --> {here}: softmax
          --> {x}: an operand, f32[2,3], is made here
          help: its axes are 0 to 1
        ",
    );
}

#[test]
fn a_slice_of_an_axis_that_is_not_there() {
    says(
        building(|f| {
            let x = f.input("x", f32("3")); //~ x
            f.output("y", x.slice_axis(1, 0, 2)); //~ here
        }),
        "
        @f: slice: f32[3] has no axis 1
          --> {here}
          --> {x}: an operand, f32[3], is made here
          help: its only axis is 0
        ",
    );
}

#[test]
fn a_slice_beyond_the_end() {
    says(
        building(|f| {
            let x = f.input("x", f32("3,4")); //~ x
            f.output("y", x.slice_axis(1, 2, 6)); //~ here
        }),
        "
        @f: slice: 2..6 does not lie within axis 1 of f32[3,4]
          --> {here}: slice
          --> {x}: an operand, f32[3,4], is made here
          help: bounds lie within 0..4, the first not above the second
        ",
    );
}

#[test]
fn a_slice_of_an_axis_of_unknown_extent() {
    says(
        building(|f| {
            let x = f.input("x", f32("B")); //~ x
            f.output("y", x.slice_axis(0, 0, 2)); //~ here
        }),
        "
        @f: slice: 0..2 does not lie within axis 0 of f32[B]
          --> {here}: slice
          --> {x}: an operand, f32[B], is made here
          help: bounds hold for every value from 1 on that a dimension variable may have; \
              if they do not, give the axis a number
        ",
    );
}

#[test]
fn the_greatest_element_along_an_axis_that_is_not_there() {
    says(
        building(|f| {
            let x = f.input("x", f32("3")); //~ x
            f.output("y", x.argmax(1)); //~ here
        }),
        "
        @f: argmax: f32[3] has no axis 1
          --> {here}: argmax
          --> {x}: an operand, f32[3], is made here
          help: its only axis is 0
        ",
    );
}

#[test]
fn more_greatest_elements_than_there_are() {
    says(
        building(|f| {
            let x = f.input("x", f32("3")); //~ x
            let (values, _) = x.top_k(4, 0); //~ here
            f.output("y", values);
        }),
        "
        @f: top_k: cannot take 4 elements of axis 0 of f32[3]
          --> {here}: top_k
          --> {x}: an operand, f32[3], is made here
          help: k is at most the extent of the axis
        ",
    );
}

#[test]
fn rows_at_indices_that_are_floats() {
    says(
        building(|f| {
            let table = f.input("table", f32("10,4")); //~ table
            let at = f.input("at", f32("3"));
            f.output("y", table.gather_rows(&at)); //~ here
        }),
        "
        @f: gather: indices of type f32[3,1]
          --> {here}: gather
          --> {table}: an operand, f32[10,4], is made here
          --> {here}: an operand, f32[3,1], is made here
          help: indices are integers: convert them
        ",
    );
}

#[test]
fn rows_of_a_scalar() {
    says(
        building(|f| {
            let table = f.input("table", f32("")); //~ table
            let at = f.input("at", i32("3"));
            f.output("y", table.gather_rows(&at)); //~ here
        }),
        "
        @f: gather_rows: f32[] has no rows
          --> {here}
          --> {table}: an operand, f32[], is made here
          help: a table has at least one axis
        ",
    );
}

#[test]
fn a_gather_whose_numbers_do_not_fit() {
    says(
        building(|f| {
            let x = f.input("x", f32("5,4")); //~ x
            let at = f.input("at", i32("3,2")); //~ at
            let numbers = GatherDimensionNumbers { offset_dims: vec![1], ..Default::default() };
            f.output("y", x.gather(&at, &numbers, [1, 4], GatherMode::Clip)); //~ here
        }),
        "
        @f: gather: indices of type i32[3,2] for 0 entries of start_index_map
          --> {here}: gather
          --> {x}: an operand, f32[5,4], is made here
          --> {at}: an operand, i32[3,2], is made here
          help: the last axis of the indices is the index vector, with one component for each entry
        ",
    );
}

#[test]
fn a_scatter_of_updates_of_another_dtype() {
    says(
        building(|f| {
            let x = f.input("x", f32("5")); //~ x
            let at = f.input("at", i32("3,1")); //~ at
            let updates = f.input("updates", i32("3")); //~ updates
            let numbers = ScatterDimensionNumbers {
                inserted_window_dims: vec![0],
                scatter_dims_to_operand_dims: vec![0],
                ..Default::default()
            };
            let y = x.scatter_add(&at, &updates, &numbers, ScatterMode::Clip); //~ here
            f.output("y", y);
        }),
        "
        @f: scatter_add: updates of type i32[3] for an operand of type f32[5]
          --> {here}: scatter_add
          --> {x}: an operand, f32[5], is made here
          --> {at}: an operand, i32[3,1], is made here
          --> {updates}: an operand, i32[3], is made here
          help: give them one dtype
        ",
    );
}

#[test]
fn a_dynamic_slice_without_a_start_for_each_axis() {
    says(
        building(|f| {
            let x = f.input("x", f32("5,4")); //~ x
            let at = f.input("at", i32("")); //~ at
            f.output("y", x.dynamic_slice(&[&at], [1, 4])); //~ here
        }),
        "
        @f: dynamic_slice: takes 2 starts for f32[5,4], found 1
          --> {here}: dynamic_slice
          --> {x}: an operand, f32[5,4], is made here
          --> {at}: an operand, i32[], is made here
          help: there is one start for each axis
        ",
    );
}

#[test]
fn an_index_along_an_axis_that_is_not_there() {
    says(
        building(|f| {
            let x = f.input("x", f32("5,4")); //~ x
            let at = f.input("at", i32(""));
            f.output("y", x.dynamic_index_in_dim(&at, 2)); //~ here
        }),
        "
        @f: dynamic_slice: f32[5,4] has no axis 2
          --> {here}
          --> {x}: an operand, f32[5,4], is made here
          help: its axes are 0 to 1
        ",
    );
}

#[test]
fn an_update_larger_than_what_it_updates() {
    says(
        building(|f| {
            let x = f.input("x", f32("5")); //~ x
            let update = f.input("update", f32("6")); //~ update
            let at = f.input("at", i32("")); //~ at
            f.output("y", x.dynamic_update_slice(&update, &[&at])); //~ here
        }),
        "
        @f: dynamic_update_slice: an update of extent 6 along axis 0 of f32[5]
          --> {here}: dynamic_update_slice
          --> {x}: an operand, f32[5], is made here
          --> {update}: an operand, f32[6], is made here
          --> {at}: an operand, i32[], is made here
          help: an update is not larger than the operand
        ",
    );
}

#[test]
fn a_window_without_an_entry_for_each_axis() {
    says(
        building(|f| {
            let x = f.input("x", f32("2,8,8,3")); //~ x
            f.output("y", x.max_pool(&[2], &[2], &Padding::Valid)); //~ here
        }),
        "
        @f: reduce_window_max: stride needs one entry for each of 4 axes
          --> {here}: reduce_window_max
          --> {x}: an operand, f32[2,8,8,3], is made here
          help: a window covers every axis: give it extent 1 along those that it does not combine
        ",
    );
}

#[test]
fn a_stride_of_zero() {
    says(
        building(|f| {
            let x = f.input("x", f32("2,8,8,3")); //~ x
            f.output("y", x.max_pool(&[2, 2], &[0, 2], &Padding::Same)); //~ here
        }),
        "
        @f: reduce_window_max: stride of 0
          --> {here}: reduce_window_max
          --> {x}: an operand, f32[2,8,8,3], is made here
          help: extents, strides and dilations of windows are at least 1
        ",
    );
}

#[test]
fn padding_of_another_number_of_axes() {
    says(
        building(|f| {
            let x = f.input("x", f32("2,8")); //~ x
            f.output("y", x.pad(&[(1, 1)], 0.0)); //~ here
        }),
        "
        @f: pad: low, high and interior need one entry for each axis of f32[2,8]
          --> {here}: pad
          --> {x}: an operand, f32[2,8], is made here
        ",
    );
}

#[test]
fn a_combiner_that_uses_its_surroundings() {
    says(
        building(|f| {
            let x = f.input("x", f32("3")); //~ x
            let scale = f.input("scale", f32(""));
            let y = Tensor::reduce_with(
                //~ here
                &[&x],
                &[wengert::Scalar::of(0f32)],
                &[0],
                |a, b| vec![&a[0] + &b[0] * &scale],
            );
            f.output("y", &y[0]);
        }),
        "
        @f: a combiner uses f32[] of its surroundings
          --> {here}
          --> {x}: an operand, f32[3], is made here
          help: a combiner sees its own tuples and numbers only
        ",
    );
}
