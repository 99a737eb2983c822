//! Loops and branches.

use crate::{building, says};
use wengert::prelude::*;

#[test]
fn a_carry_that_changes_its_shape() {
    says(
        building(|f| {
            let x = f.input("x", f32("3")); //~ x
            let y = control::fori(4, &x, |_, x| x.reshape([3, 1])); //~ here
            f.output("y", y);
        }),
        "
        @f: scan: a step gives (f32[3,1]) where the carries have types (f32[3])
          --> {here}: scan
          --> {x}: an operand, f32[3], is made here
          --> {here}: an operand, i32[4], is made here
          help: a carry has the same dtype and shape before and after a step
        ",
    );
}

#[test]
fn a_carry_that_changes_its_dtype() {
    says(
        building(|f| {
            let x = f.input("x", f32("4")); //~ x
            let zero = Tensor::constant(0i32);
            let sum = control::fold(&zero, &x, |sum, x| sum.convert(DType::F32) + x); //~ here
            f.output("sum", sum);
        }),
        "
        @f: scan: a step gives (f32[]) where the carries have types (i32[])
          --> {here}: scan
          --> {x}: an operand, f32[4], is made here
          help: a carry has the same dtype and shape before and after a step
        ",
    );
}

#[test]
fn a_carry_of_another_number_of_tensors() {
    says(
        building(|f| {
            let x = f.input("x", f32("3"));
            let one = vec![x.clone()];
            let carry = control::fori(4, &one, |_, c| vec![c[0].clone(), x.clone()]); //~ here
            f.output("y", &carry[0]);
        }),
        "
        @f: a step gives a carry of 2 tensors, and takes one of 1
          --> {here}: the control flow is here
          help: a carry has the same structure before and after a step
        ",
    );
}

#[test]
fn slices_of_different_lengths() {
    says(
        building(|f| {
            let a = f.input("a", f32("3"));
            let b = f.input("b", f32("4")); //~ b
            let zero = Tensor::constant(0.0f32);
            let sum = control::fold(&zero, &(a, b), |sum, (a, b)| sum + a * b); //~ here
            f.output("sum", sum);
        }),
        "
        @f: f32[4] has 4 parts along its first axis, another tensor has 3
          --> {b}: what is sliced is made here
          --> {here}: the control flow is here
        ",
    );
}

#[test]
fn slices_of_a_scalar() {
    says(
        building(|f| {
            let a = f.input("a", f32("")); //~ a
            f.output("y", control::map(&a, |a| a * 2.0)); //~ here
        }),
        "
        @f: f32[] has no first axis to slice along
          --> {a}: what is sliced is made here
          --> {here}: the control flow is here
        ",
    );
}

#[test]
fn a_loop_over_nothing() {
    says(
        building(|f| {
            let x = f.input("x", f32(""));
            let xs: Vec<Tensor> = vec![];
            f.output("y", control::fold(&x, &xs, |x, _| x * 2.0)); //~ here
        }),
        "
        @f: there is nothing to slice, so the number of steps is not known
          --> {here}: the control flow is here
          help: use `fori`, which is given the number
        ",
    );
}

#[test]
fn branches_of_different_types() {
    says(
        building(|f| {
            let x = f.input("x", f32("3")); //~ x
            let p = f.input("p", bool("")); //~ p
            f.output("y", control::cond(&p, || x.sum(), || x.clone())); //~ here
        }),
        "
        @f: cond: region 1 gives (f32[3]), region 0 gives (f32[])
          --> {here}: cond
          --> {p}: an operand, bool[], is made here
          --> {x}: an operand, f32[3], is made here
          help: all regions give values of the same dtypes and shapes
        ",
    );
}

#[test]
fn a_predicate_that_is_no_bool() {
    says(
        building(|f| {
            let x = f.input("x", f32("")); //~ x
            f.output("y", control::cond(&x, || x.exp(), || x.clone())); //~ here
        }),
        "
        @f: cond: its first operand has type f32[]
          --> {here}: cond
          --> {x}: an operand, f32[], is made here
          help: it is a bool[], which chooses the region
        ",
    );
}

#[test]
fn a_condition_that_is_no_scalar() {
    says(
        building(|f| {
            let x = f.input("x", f32("3")); //~ x
            f.output("y", control::while_loop(&x, |x| x.lt(10.0), |x| x * 2.0)); //~ here
        }),
        "
        @f: while: the condition gives (bool[3])
          --> {here}: while
          --> {x}: an operand, f32[3], is made here
          help: it gives one bool[]
        ",
    );
}

#[test]
fn an_error_within_a_step() {
    says(
        building(|f| {
            let x = f.input("x", f32("3"));
            let w = f.input("w", f32("4")); //~ w
            let y = control::fori(4, &x, |_, x| {
                x + &w //~ here
            });
            f.output("y", y);
        }),
        "
        @f: add: operands have types f32[3] and f32[4]
          --> {here}: add
          --> {w}: an operand, f32[4], is made here
          help: shapes must be equal, or broadcast: aligned at the last axis, extents equal or 1
        ",
    );
}

#[test]
fn an_unrolled_loop_of_unknown_length() {
    says(
        building(|f| {
            let x = f.input("x", f32("T"));
            let zero = Tensor::constant(0.0f32);
            let (sum, _) = control::scan_unrolled(2, &zero, &x, |sum, x| (sum + x, ())); //~ here
            f.output("sum", sum);
        }),
        "
        @f: a loop of T steps cannot be unrolled
          --> {here}: the control flow is here
          help: use `scan`, or give the dimension a number
        ",
    );
}

#[test]
fn a_combiner_that_gives_another_type() {
    says(
        building(|f| {
            let x = f.input("x", f32("4"));
            f.output("y", control::associative_scan(&x, |a, b| (a + b).sum())); //~ here
        }),
        "
        @f: the combiner of an `associative_scan` gives (f32[]) for 2 parts of types (f32[2])
          --> {here}: the control flow is here
          help: it gives as many parts as it takes, of the same structure, dtypes and shapes
        ",
    );
}
