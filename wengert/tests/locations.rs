//! Locations never affect the compiled plan. A function compiles to one plan from its text, where
//! each equation has its own line, and from its `.graph` file, where equations written by one line
//! of Rust share a location.
#![allow(clippy::print_stdout)] // The script of the deep tests reads how many functions passed.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use wengert::core::graph::{Function, PrintOptions, Program, parse_program, print};
use wengert::core::{Target, TensorType};
use wengert::format::GraphFile;
use wengert::pipeline::{Options, compile};
use wengert::prelude::*;
use wengert_testing::functions;

/// The plan of a program's only function, or the compile error without its place.
fn planned(program: &Program, target: &Target) -> std::result::Result<String, String> {
    let name = &program.functions()[0].name;
    let plan = compile(program, name, &bind!(), target, &Options::default());
    plan.map(|plan| plan.to_string()).map_err(|error| error.message)
}

/// The difference between the plans from text and from file, if there is one.
fn differs(function: &Function, target: &Target) -> Option<String> {
    let program = Program::from_functions(vec![function.clone()]).unwrap();
    let text = program.to_string();
    let parsed = parse_program(&text, "f.ir").unwrap_or_else(|e| panic!("{e}\n{text}"));
    let bytes = GraphFile::new(program.clone()).to_bytes().unwrap();
    let read = GraphFile::from_bytes(&bytes).unwrap().program;
    let located = |program: &Program| print(program, &PrintOptions { locations: true });
    assert_eq!(located(&read), located(&program), "a file keeps every location");
    let plans = [&program, &read, &parsed].map(|program| planned(program, target));
    let [built, read, parsed] = plans.map(|plan| plan.unwrap_or_else(|error| error));
    let differing = |other: &str| {
        let lines = built.lines().zip(other.lines()).find(|(a, b)| a != b);
        format!("{text}\nthe first lines that differ: {lines:#?}")
    };
    [read, parsed].iter().find(|other| **other != built).map(|other| differing(other))
}

/// The number of cases: `few`, or the number that the deep tests set.
fn cases(few: u64) -> u64 {
    std::env::var("WENGERT_CASES")
        .map_or(few, |count| count.parse().expect("WENGERT_CASES is a number"))
}

#[test]
fn text_and_file_compile_to_one_plan() {
    let samples = functions::samples();
    let (mut passed, mut failed, mut first) = (0, 0, None);
    for seed in 0..cases(60) {
        // In some random functions an op does not accept its operands.
        let Ok(function) = functions::function(seed, 3 + (seed % 23) as usize, &samples) else {
            continue;
        };
        let target =
            if seed.is_multiple_of(4) { wengert::target("sm_90").unwrap() } else { Target::cpu() };
        match differs(&function, &target) {
            None => passed += 1,
            Some(text) => {
                failed += 1;
                first.get_or_insert(format!("seed {seed}:\n{text}"));
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    assert!(first.is_none(), "{failed} differ, the first of them, {}", first.unwrap_or_default());
}

/// One line of Rust writes two equal loops. The text has them on two lines.
#[test]
fn equal_loops_are_one_from_text_and_file() {
    let build = |f: &mut FunctionBuilder| {
        let ty = |shape: &[usize]| TensorType::new(DType::F32, shape.iter().copied());
        let (x, w) = (f.input("x", ty(&[3])), f.input("w", ty(&[5, 3])));
        let run = |scale: f32| control::fold(&(&x * scale), &w, |c, row| (c * row).sin());
        let [a, b] = [2.0, 2.0].map(run);
        f.output("y", (a * b).sum());
    };
    let function = FunctionBuilder::build("f", build).unwrap();
    assert_eq!(differs(&function, &Target::cpu()), None);
}
