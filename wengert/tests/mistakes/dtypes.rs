//! Dtypes that do not match.

use crate::{building, says};
use wengert::prelude::*;

#[test]
fn a_sum_of_floats_and_integers() {
    says(
        building(|f| {
            let a = f.input("a", f32("3")); //~ a
            let b = f.input("b", i32("3")); //~ b
            f.output("y", a + b); //~ here
        }),
        "
        @f: add: operands have dtypes f32 and i32
          --> {here}: add
          --> {a}: an operand, f32[3], is made here
          --> {b}: an operand, i32[3], is made here
          help: convert one of them with `.convert(…)`
        ",
    );
}

#[test]
fn a_product_of_two_dtypes() {
    says(
        building(|f| {
            let a = f.input("a", f32("2,3")); //~ a
            let b = f.input("b", f16("3,2")); //~ b
            f.output("y", a.dot(&b)); //~ here
        }),
        "
        @f: dot_general: operands have types f32[2,3] and f16[3,2]
          --> {here}: dot_general
          --> {a}: an operand, f32[2,3], is made here
          --> {b}: an operand, f16[3,2], is made here
          help: convert one of them with `.convert(…)`
        ",
    );
}

#[test]
fn the_logarithm_of_integers() {
    says(
        building(|f| {
            let x = f.input("x", i32("3")); //~ x
            f.output("y", x.log()); //~ here
        }),
        "
        @f: log: takes floats, found i32
          --> {here}: log
          --> {x}: an operand, i32[3], is made here
          help: convert the operand with `.convert(…)`
        ",
    );
}

#[test]
fn the_mean_of_integers() {
    says(
        building(|f| {
            let x = f.input("x", i32("3")); //~ x
            f.output("y", x.mean()); //~ here
        }),
        "
        @f: mean of i32[3], which is not of floats
          --> {here}
          --> {x}: an operand, i32[3], is made here
          help: convert it to a float dtype first, e.g. by `.convert(DType::F32)`
        ",
    );
}

#[test]
fn a_condition_that_is_not_bool() {
    says(
        building(|f| {
            let p = f.input("p", i32("3")); //~ p
            let a = f.input("a", f32("3")); //~ a
            f.output("y", p.select(&a, &a.zeros_like())); //~ here
        }),
        "
        @f: select: the condition has type i32[3], the choices f32[3]
          --> {here}: select
          --> {p}: an operand, i32[3], is made here
          --> {a}: an operand, f32[3], is made here
          --> {here}: an operand, f32[3], is made here
          help: a condition is bool, a scalar or of the choices' shape
        ",
    );
}

#[test]
fn classes_that_are_floats() {
    says(
        building(|f| {
            let x = f.input("x", f32("3")); //~ x
            f.output("y", x.one_hot(10, DType::F32)); //~ here
        }),
        "
        @f: one_hot of f32[3], which is not of integers
          --> {here}
          --> {x}: an operand, f32[3], is made here
          help: classes are integers: convert it, e.g. by `.convert(DType::I32)`
        ",
    );
}

#[test]
fn a_logical_operation_on_floats() {
    says(
        building(|f| {
            let a = f.input("a", f32("3")); //~ a
            f.output("y", a.and(&a)); //~ here
        }),
        "
        @f: and: takes integers and bool, found f32
          --> {here}: and
          --> {a}: an operand, f32[3], is made here
          help: convert the operand with `.convert(…)`
        ",
    );
}

#[test]
fn random_numbers_of_an_integer_dtype() {
    says(
        building(|f| {
            let key = f.key("key"); //~ key
            f.output("y", key.uniform(DType::I32, [3])); //~ here
        }),
        "
        @f: random floats of dtype i32
          --> {here}
          --> {key}: an operand, u32[2], is made here
          help: ask for a float dtype; `random_bits` gives unsigned integers
        ",
    );
}

#[test]
fn bounds_of_random_numbers_in_the_wrong_order() {
    says(
        building(|f| {
            let key = f.key("key"); //~ key
            f.output("y", key.uniform_between(DType::F32, [3], 1.0, 0.0)); //~ here
        }),
        "
        @f: uniform numbers of dtype f32 from 1 to 0
          --> {here}
          --> {key}: an operand, u32[2], is made here
          help: the lower bound is below the upper one, and both are finite
        ",
    );
}

#[test]
fn random_numbers_without_a_key() {
    says(
        building(|f| {
            let x = f.input("x", f32("2")); //~ x
            f.output("y", x.normal(DType::F32, [3])); //~ here
        }),
        "
        @f: random_bits: a key of type f32[2]
          --> {here}: random_bits
          --> {x}: an operand, f32[2], is made here
          help: a key is u32[2]; the last axis of several keys has extent 2
        ",
    );
}

#[test]
fn bits_of_a_bool() {
    says(
        building(|f| {
            let x = f.input("x", bool("8")); //~ x
            f.output("y", x.bitcast(DType::U8)); //~ here
        }),
        "
        @f: bitcast_convert_type: the bits of bool are not those of u8
          --> {here}: bitcast_convert_type
          --> {x}: an operand, bool[8], is made here
          help: bool is no other dtype's bits: convert it to u8, or compare with 0
        ",
    );
}

#[test]
fn a_negative_power_of_an_integer() {
    says(
        building(|f| {
            let x = f.input("x", i32("3")); //~ x
            f.output("y", x.integer_pow(-1)); //~ here
        }),
        "
        @f: integer_pow: exponent -1 for i32
          --> {here}: integer_pow
          --> {x}: an operand, i32[3], is made here
          help: a negative power of an integer is none: convert the operand to a float
        ",
    );
}
