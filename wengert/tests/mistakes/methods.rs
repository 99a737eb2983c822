//! Methods that are composed of ops: each mistake names the user's line, the operands and the
//! remedy.

use crate::{building, says};
use wengert::prelude::*;

#[test]
fn a_letter_of_an_einsum_with_two_extents() {
    says(
        building(|f| {
            let a = f.input("a", f32("B,3")); //~ a
            let b = f.input("b", f32("4,5")); //~ b
            let y = Tensor::einsum("bi,ij->bj", &[&a, &b]); //~ here
            f.output("y", y);
        }),
        "
        @f: einsum: `i` in `bi,ij->bj` has extent 3 in operand 0 and 4 in operand 1: f32[B,3] and \
            f32[4,5]
          --> {here}
          --> {a}: an operand, f32[B,3], is made here
          --> {b}: an operand, f32[4,5], is made here
          help: axes with one letter have one extent
        ",
    );
}

#[test]
fn an_einsum_with_a_new_letter_in_the_output() {
    says(
        building(|f| {
            let a = f.input("a", f32("2,3")); //~ a
            f.output("y", Tensor::einsum("ij->ijk", &[&a])); //~ here
        }),
        "
        @f: einsum: `k` in the output of `ij->ijk` is in no operand
          --> {here}
          --> {a}: an operand, f32[2,3], is made here
          help: the letters of the result name axes of the operands; `unsqueeze` makes a new axis
        ",
    );
}

#[test]
fn an_einsum_with_too_few_letters() {
    says(
        building(|f| {
            let a = f.input("a", f32("2,3,4")); //~ a
            f.output("y", Tensor::einsum("ij->i", &[&a])); //~ here
        }),
        "
        @f: einsum: `ij` in `ij->i` names 2 axes, operand 0 has 3: f32[2,3,4]
          --> {here}
          --> {a}: an operand, f32[2,3,4], is made here
          help: write one letter for each axis, or `...` for those without a letter
        ",
    );
}

#[test]
fn a_matmul_of_matrices_that_do_not_fit() {
    says(
        building(|f| {
            let a = f.input("a", f32("B,2,3")); //~ a
            let b = f.input("b", f32("4,5")); //~ b
            f.output("y", a.matmul(&b)); //~ here
        }),
        "
        @f: matmul: axis 2 of f32[B,2,3] has extent 3, axis 0 of f32[4,5] has 4
          --> {here}
          --> {a}: an operand, f32[B,2,3], is made here
          --> {b}: an operand, f32[4,5], is made here
          help: the last axis of the left operand is as long as the last but one of the right \
              operand, or its only one
        ",
    );
}

#[test]
fn a_negative_axis_that_is_not_there() {
    says(
        building(|f| {
            let x = f.input("x", f32("2,3")); //~ x
            f.output("y", x.mean_keepdims(-3)); //~ here
        }),
        "
        @f: mean_keepdims: f32[2,3] has no axis -3
          --> {here}
          --> {x}: an operand, f32[2,3], is made here
          help: its axes are 0 to 1, or -1 to -2 from the last one
        ",
    );
}

#[test]
fn a_negative_axis_of_an_op() {
    for (f, name) in [
        ((|x| x.softmax(-3)) as fn(&Tensor) -> Tensor, "softmax"), //~ softmax
        (|x| Tensor::sort_by(&[x], -3, 1).remove(0), "sort"),      //~ sort
        (|x| Tensor::concatenate(&[x], -3), "concatenate"),        //~ concatenate
        (|x| x.sum_axes(-3), "reduce_sum"),                        //~ reduce_sum
        (|x| Tensor::iota(DType::F32, [x.dim(-3)], 0), "dim"),     //~ dim
    ] {
        let message = building(|g| {
            let x = g.input("x", f32("2,3")); //~ x
            g.output("y", f(&x));
        });
        let expected = "
        @f: NAME: f32[2,3] has no axis -3
          --> {NAME}
          --> {x}: an operand, f32[2,3], is made here
          help: its axes are 0 to 1, or -1 to -2 from the last one
        ";
        says(message, &expected.replace("NAME", name));
    }
}

#[test]
fn a_split_that_does_not_fill_the_axis() {
    says(
        building(|f| {
            let x = f.input("x", f32("2,7")); //~ x
            let parts = x.split([3, 5], -1); //~ here
            f.output("y", &parts[0]);
        }),
        "
        @f: split: axis 1 of f32[2,7]: parts of 3 + 5 do not fill extent 7
          --> {here}
          --> {x}: an operand, f32[2,7], is made here
          help: the extents of the parts add up to that of the axis; one of them may be -1, which \
              takes what is left
        ",
    );
}

#[test]
fn chunks_that_do_not_divide() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,4")); //~ x
            f.output("y", x.chunk(2, 0).remove(0)); //~ here
        }),
        "
        @f: chunk: axis 0 of f32[B,4] has extent B, which 2 does not divide
          --> {here}
          --> {x}: an operand, f32[B,4], is made here
          help: `split` takes the extent of each part
        ",
    );
}

#[test]
fn a_slice_beyond_its_axis() {
    says(
        building(|f| {
            let x = f.input("x", f32("2,7")); //~ x
            f.output("y", x.slice(s![.., 3..9])); //~ here
        }),
        "
        @f: slice: axis 1 of f32[2,7]: 3..9 does not lie within its extent 7
          --> {here}
          --> {x}: an operand, f32[2,7], is made here
          help: bounds are 0 to the extent, or negative from the end, and the first is not above \
              the second
        ",
    );
}

#[test]
fn an_extent_that_cannot_be_inferred() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,6")); //~ x
            f.output("y", x.reshape([4, -1])); //~ here
        }),
        "
        @f: reshape: the open extent of [4,-1] is no whole number for the elements of [B,6]
          --> {here}
          --> {x}: an operand, f32[B,6], is made here
          help: the product of the given extents divides the number of elements
        ",
    );
}

#[test]
fn half_of_an_odd_dimension() {
    says(
        building(|f| {
            let x = f.input("x", f32("B,6"));
            let half = x.dim(0) / 2; //~ here
            f.output("y", x.reshape([half, 12.into()]));
        }),
        "
        @f: B / 2 is no dimension
          --> {here}
          help: a quotient is exact for each value of its variables
        ",
    );
}

#[test]
fn a_question_mark_returns_the_first_error() {
    let unknown = Program::new().function("f", |f| {
        let x = f.input("x", f32("2")); //~ x
        let scale = x.value()?;
        f.output("y", x * Tensor::constant(scale));
        Ok(())
    });
    says(
        unknown.unwrap_err().to_string(),
        "
        @f: a tensor of type f32[2] has no value while the graph is being built
          --> {x}: it is made here
          help: compile and run the function, or begin with `Tracked::new` to compute at once
        ",
    );
    let short = || Literal::from_vec(&[2], vec![1f32]);
    let wrong = Program::new().function("f", |_| short().map(drop)); //~ here
    says(
        wrong.unwrap_err().to_string(),
        "
        @f: 1 elements do not fill shape [2]
          --> {here}: the function is built here
        ",
    );
}
