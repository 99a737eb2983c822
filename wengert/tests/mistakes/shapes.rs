//! Shapes that do not match: broadcasting, products, reshapes, concatenations.

use crate::{building, says};
use wengert::prelude::*;

#[test]
fn shapes_that_do_not_broadcast() {
    says(
        building(|f| {
            let a = f.input("a", f32("2,3")); //~ a
            let b = f.input("b", f32("4")); //~ b
            let y = &a + &b; //~ here
            f.output("y", y);
        }),
        "
        @f: add: operands have types f32[2,3] and f32[4]
          --> {here}: add
          --> {a}: an operand, f32[2,3], is made here
          --> {b}: an operand, f32[4], is made here
          help: shapes must be equal, or broadcast: aligned at the last axis, extents equal or 1
        ",
    );
}

#[test]
fn shapes_that_do_not_broadcast_within_an_expression() {
    says(
        building(|f| {
            let a = f.input("a", f32("B,3"));
            let b = f.input("b", f32("T,3")); //~ b
            f.output("y", (a.exp() * &b).sum()); //~ here
        }),
        "
        @f: mul: operands have types f32[B,3] and f32[T,3]
          --> {here}: mul
          --> {here}: an operand, f32[B,3], is made here
          --> {b}: an operand, f32[T,3], is made here
          help: shapes must be equal, or broadcast: aligned at the last axis, extents equal or 1
        ",
    );
}

#[test]
fn inner_extents_of_a_product_differ() {
    says(
        building(|f| {
            let a = f.input("a", f32("2,3")); //~ a
            let b = f.input("b", f32("4,5")); //~ b
            let y = a.dot(&b); //~ here
            f.output("y", y);
        }),
        "
        @f: dot_general: axis 1 of f32[2,3] has extent 3, axis 0 of f32[4,5] has 4
          --> {here}: dot_general
          --> {a}: an operand, f32[2,3], is made here
          --> {b}: an operand, f32[4,5], is made here
          help: extents of paired axes must be equal
        ",
    );
}

#[test]
fn a_product_with_a_scalar() {
    says(
        building(|f| {
            let a = f.input("a", f32("2,3")); //~ a
            let s = f.input("s", f32("")); //~ s
            f.output("y", a.dot(&s)); //~ here
        }),
        "
        @f: dot of f32[2,3] and f32[]: a scalar has no axis
          --> {here}
          --> {a}: an operand, f32[2,3], is made here
          --> {s}: an operand, f32[], is made here
          help: multiply by a scalar with `*`
        ",
    );
}

#[test]
fn a_reshape_to_another_number_of_elements() {
    says(
        building(|f| {
            let x = f.input("x", f32("2,3")); //~ x
            f.output("y", x.reshape([4, 2])); //~ here
        }),
        "
        @f: reshape: f32[2,3] has 6 elements, f32[4,2] has 8
          --> {here}: reshape
          --> {x}: an operand, f32[2,3], is made here
          help: a reshape keeps the number of elements
        ",
    );
}

#[test]
fn a_reshape_of_unlike_variables() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,T")); //~ x
            f.output("y", x.reshape(["B", "H"])); //~ here
        }),
        "
        @f: reshape: f32[B,T] and f32[B,H] do not have the same number of elements whatever \
            their variables are
          --> {here}: reshape
          --> {x}: an operand, f32[B,T], is made here
          help: a reshape keeps the number of elements
        ",
    );
}

#[test]
fn a_reshape_to_a_negative_extent() {
    says(
        building(|f| {
            let x = f.input("x", f32("2,3")); //~ x
            f.output("y", x.reshape([-2, 3])); //~ here
        }),
        "
        @f: reshape: G6: axis 0 of f32[-2,3] has extent -2, which is negative
          --> {here}: reshape
          --> {x}: an operand, f32[2,3], is made here
          help: an extent is 0 or more
        ",
    );
}

#[test]
fn parts_of_a_concatenation_differ() {
    says(
        building(|f| {
            let a = f.input("a", f32("2,3")); //~ a
            let b = f.input("b", f32("2,4")); //~ b
            f.output("y", Tensor::concatenate(&[&a, &b], 0)); //~ here
        }),
        "
        @f: concatenate: operand 0 has type f32[2,3], operand 1 has f32[2,4]
          --> {here}: concatenate
          --> {a}: an operand, f32[2,3], is made here
          --> {b}: an operand, f32[2,4], is made here
          help: they may differ along axis 0 only
        ",
    );
}

#[test]
fn a_concatenation_of_nothing() {
    says(
        building(|f| {
            f.output("y", Tensor::concatenate(&[] as &[&Tensor], 0)); //~ here
        }),
        "
        @f: concatenate: needs at least one operand
          --> {here}: concatenate
        ",
    );
}

#[test]
fn a_permutation_that_names_an_axis_twice() {
    says(
        building(|f| {
            let x = f.input("x", f32("2,3,4")); //~ x
            f.output("y", x.permute(&[0, 0, 1])); //~ here
        }),
        "
        @f: permute: permutation: axis 0 occurs twice
          --> {here}: permute
          --> {x}: an operand, f32[2,3,4], is made here
          help: name each axis once
        ",
    );
}

#[test]
fn the_transpose_of_a_vector() {
    says(
        building(|f| {
            let x = f.input("x", f32("3")); //~ x
            f.output("y", x.matrix_transpose()); //~ here
        }),
        "
        @f: matrix_transpose: f32[3] has no two axes to swap
          --> {here}
          --> {x}: an operand, f32[3], is made here
          help: a matrix has two axes; `reshape` makes one of a vector
        ",
    );
}

#[test]
fn a_broadcast_to_fewer_axes() {
    says(
        building(|f| {
            let x = f.input("x", f32("2,3")); //~ x
            f.output("y", x.broadcast_to(&[3.into()])); //~ here
        }),
        "
        @f: broadcast_to: f32[2,3] has 2 axes, the shape [3] has 1
          --> {here}
          --> {x}: an operand, f32[2,3], is made here
          help: a shape to broadcast to has at least as many axes as the tensor
        ",
    );
}

#[test]
fn a_broadcast_to_another_extent() {
    says(
        building(|f| {
            let x = f.input("x", f32("3")); //~ x
            f.output("y", x.broadcast_to(&[2.into(), 4.into()])); //~ here
        }),
        "
        @f: broadcast_in_dim: axis 0 of f32[3] has extent 3, axis 1 of f32[2,4] has 4
          --> {here}: broadcast_in_dim
          --> {x}: an operand, f32[3], is made here
          help: extents must be equal, or 1 in the operand
        ",
    );
}

#[test]
fn flattening_axes_of_several_variables() {
    says(
        building(|f| {
            let x = f.input("x", f32("2,A,B,C,D,E,F,G,H,I")); //~ x
            f.output("y", x.flatten(1)); //~ here
        }),
        "
        @f: flatten: the product of axes 1 to 9 of f32[2,A,B,C,D,E,F,G,H,I] is no dimension
          --> {here}
          --> {x}: an operand, f32[2,A,B,C,D,E,F,G,H,I], is made here
          help: merge fewer axes, or give some of them numbers
        ",
    );
}

#[test]
fn flattening_from_an_axis_that_is_not_there() {
    says(
        building(|f| {
            let x = f.input("x", f32("2,3")); //~ x
            f.output("y", x.flatten(3)); //~ here
        }),
        "
        @f: flatten: f32[2,3] has no axis 3
          --> {here}
          --> {x}: an operand, f32[2,3], is made here
          help: its axes are 0 to 1, or -1 to -2 from the last one
        ",
    );
}

#[test]
fn choices_of_different_shapes() {
    says(
        building(|f| {
            let p = f.input("p", bool("3")); //~ p
            let a = f.input("a", f32("3")); //~ a
            let b = f.input("b", f32("4")); //~ b
            f.output("y", p.select(&a, &b)); //~ here
        }),
        "
        @f: select: choices have types f32[3] and f32[4]
          --> {here}: select
          --> {p}: an operand, bool[3], is made here
          --> {a}: an operand, f32[3], is made here
          --> {b}: an operand, f32[4], is made here
          help: give them one type
        ",
    );
}
