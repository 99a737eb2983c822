//! Differences of functions and plans.

use crate::programs::networks;
use crate::sabotage::{Wrong, sabotaged};
use wengert::core::Target;
use wengert::core::graph::{Function, Program, parse_program};
use wengert::isolate::diff::{functions, plans, programs};
use wengert::pipeline::{Options, compile};
use wengert::{Binding, isolate::diff::Change};

fn parsed(text: &str) -> Function {
    parse_program(text, "f.ir").unwrap().functions()[0].clone()
}

fn lines(changes: &[Change]) -> Vec<String> {
    changes.iter().map(ToString::to_string).collect()
}

const BASE: &str = "func @f(%x: f32[4], %y: f32[4]) -> (a: f32[4], b: f32[]) {
    %0: f32[4] = exp %x
    %1: f32[4] = mul %y, %0
    %2: f32[4] = tanh %1
    %3: f32[] = reduce_sum %2 {axes=[0]}
    return %2, %3
}";

#[test]
fn order_and_numbers_make_no_difference() {
    let other = "func @f(%x: f32[4], %y: f32[4]) -> (a: f32[4], b: f32[]) {
        %0: f32[4] = exp %x
        %1: f32[4] = mul %y, %0
        %2: f32[4] = tanh %1
        %3: f32[] = reduce_sum %2 {axes=[0]}
        return %2, %3
    }";
    assert_eq!(functions(&parsed(BASE), &parsed(other)), []);
    let [a, b] = [["sin", "cos"], ["cos", "sin"]].map(|ops| {
        let [x, y] = ops;
        let [first, second] = if x == "sin" { ["%0", "%1"] } else { ["%1", "%0"] };
        parsed(&format!(
            "func @f(%x: f32[]) -> (f32[]) {{
                %0: f32[] = {x} %x
                %1: f32[] = {y} %x
                %2: f32[] = sub {first}, {second}
                return %2
            }}"
        ))
    });
    assert_eq!(functions(&a, &b), []);
}

#[test]
fn each_kind_of_change_is_named() {
    let other = "func @f(%x: f32[4], %z: f32[4]) -> (a: f32[4], b: f32[]) {
        %0: f32[4] = exp %x
        %1: f32[4] = mul %0, %z
        %2: f32[4] = sin %1
        %3: f32[] = reduce_sum %2 {axes=[0]}
        return %1, %3
    }";
    assert_eq!(
        lines(&functions(&parsed(BASE), &parsed(other))),
        [
            "- input y: f32[4]",
            "+ input z: f32[4]",
            "~ mul (f32[4], f32[4]) -> f32[4]: operands 0 and 1 are other values  [f.ir:3:18] ->  \
             [f.ir:3:22]",
            "- tanh (f32[4]) -> f32[4]  [f.ir:4:18]",
            "~ reduce_sum {axes=[0]} (f32[4]) -> f32[]: operand 0 is another value  [f.ir:5:17] \
             ->  [f.ir:5:21]",
            "+ sin (f32[4]) -> f32[4]  [f.ir:4:22]",
            "~ output a: another value is returned  [f.ir:4:18] ->  [f.ir:3:22]",
        ]
    );
}

#[test]
fn a_change_in_a_loop_is_one_difference() {
    let text = |op: &str| {
        parsed(&format!(
            "func @f(%x: f32[4]) -> (f32[]) {{
                %0: f32[] = constant {{value=f32[] 1.0}}
                %1: f32[] = scan %0, %x {{carries=1, length=4}}
                  region (%2: f32[], %3: f32[]) {{
                    %4: f32[] = {op} %2, %3
                    return %4
                  }}
                return %1
            }}"
        ))
    };
    assert_eq!(
        lines(&functions(&text("sub"), &text("add"))),
        [
            "- scan region 0: sub (f32[], f32[]) -> f32[]  [f.ir:5:33]",
            "+ scan region 0: add (f32[], f32[]) -> f32[]  [f.ir:5:33]",
            "~ scan {carries=1, length=4} (f32[], f32[4]) -> f32[]: region 0 returns other \
             values: [0]  [f.ir:3:29]",
        ]
    );
}

/// One equation of each network is changed; the differences name its line and few others.
#[test]
fn one_change_of_a_network_is_not_many_differences() {
    let mut many = Vec::new();
    for network in networks() {
        let function = &network.gradient.function;
        assert_eq!(functions(function, function), [], "{}", network.name);
        let floats = |body: &wengert::core::graph::Body, e: &wengert::core::graph::Equation| {
            matches!(e.op.name(), "mul" | "add" | "sub" | "div")
                && body.ty(e.results[0]).dtype.is_float()
        };
        let mut count = 0;
        let changed = sabotaged(function, Wrong::Op("max"), |body, e| {
            count += usize::from(floats(body, e));
            floats(body, e) && count == 1
        });
        assert!(count > 0, "{}", network.name);
        let changes = functions(function, &changed);
        println!("one change of {}: {} differences", network.name, changes.len());
        if !(2..=8).contains(&changes.len()) {
            many.push((network.name, lines(&changes)));
        }
    }
    assert_eq!(many, []);
}

#[test]
fn functions_are_matched_by_name() {
    let (f, g) = (parsed(BASE), parsed(&BASE.replace("@f", "@g")));
    let first = Program::from_functions(vec![f.clone(), g.clone()]).unwrap();
    let second = Program::from_functions(vec![f]).unwrap();
    let all = programs(&first, &second);
    assert_eq!(all[0], ("f".into(), vec![]));
    assert_eq!(lines(&all[1].1), ["- function @g (2 inputs, 4 equations)"]);
}

#[test]
fn plans_differ_in_kernels_and_sizes() {
    let plan = |fuse: bool| {
        let program = Program::from_functions(vec![parsed(BASE)]).unwrap();
        let options = Options { fuse, ..Options::default() };
        compile(&program, "f", &Binding::new(), &Target::cpu(), &options).unwrap()
    };
    let (fused, unfused) = (plan(true), plan(false));
    assert_eq!(plans(&fused, &plan(true)), []);
    let changes = lines(&plans(&fused, &unfused));
    let has = |text: &str| changes.iter().any(|line| line.starts_with(text));
    assert!(has("~ kernels 2") || has("~ kernels 1"), "{changes:#?}");
    assert!(has("+ nest exp") && has("+ nest mul"), "{changes:#?}");
}
