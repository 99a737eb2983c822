//! The equations that `trim` and `hoist` leave, and that the function still computes the same.

use super::near;
use wengert_compiler::autodiff::rules::call;
use wengert_compiler::pipeline::{Options, compile_kernels};
use wengert_core::build::FunctionBuilder;
use wengert_core::build::control::fori;
use wengert_core::graph::{Function, parse_program};
use wengert_core::{DType, Literal, Target, Tensor, TensorType, interpret};

fn function(text: &str) -> Function {
    let program = parse_program(text, "test.ir").unwrap_or_else(|e| panic!("{e}"));
    wengert_core::graph::verify(&program.functions()[0]).unwrap_or_else(|e| panic!("{e}"));
    program.functions()[0].clone()
}

/// The function after the graph passes. Checks that its results on these inputs are the same with
/// every amount of fuel for the passes.
fn rewritten(text: &str, inputs: &[Literal]) -> Function {
    let function = function(text);
    let wanted = interpret::run(&function, inputs).unwrap();
    let compile = |fuel: Option<(&str, u64)>| {
        let fuel = fuel.into_iter().map(|(pass, fuel)| (pass.to_string(), fuel)).collect();
        let after =
            compile_kernels(&function, &Target::cpu(), &Options { fuel, ..Options::default() })
                .unwrap()
                .function;
        let found = interpret::run(&after, inputs).unwrap();
        for (found, wanted) in found.iter().zip(&wanted) {
            near(found, wanted, text);
        }
        after
    };
    for pass in ["trim", "hoist"] {
        (0..6).for_each(|fuel| drop(compile(Some((pass, fuel)))));
    }
    compile(None)
}

fn ops(function: &Function) -> Vec<&str> {
    function.body.equations.iter().map(|e| e.op.name()).collect()
}

fn f32s(values: &[f32]) -> Literal {
    Literal::from_vec(&[values.len()], values.to_vec()).unwrap()
}

#[test]
fn what_is_not_used_goes() {
    // Carries 1 and 2 only carry each other, and carry 3 never changes. The second stack, a slice
    // and a capture are unused. One capture occurs twice.
    let f = rewritten(
        "func @f(%x: f32[4,2], %y: f32[2]) -> (f32[2], f32[4,2], f32[2]) {
           %0: f32[2] = sin %y
           %1: f32[2], %2: f32[2], %3: f32[2], %4: f32[2], %5: f32[4,2], %6: f32[4,2] =
             scan %y, %y, %0, %0, %x, %x, %y, %y, %0 {captures=3, carries=4, length=4}
             region (%a: f32[2], %b: f32[2], %c: f32[2], %d: f32[2], %s: f32[2], %t: f32[2], \
               %k: f32[2], %l: f32[2], %m: f32[2]) {
               %7: f32[2] = mul %a, %k
               %8: f32[2] = add %7, %l
               %9: f32[2] = add %8, %d
               %10: f32[2] = exp %c
               %11: f32[2] = mul %s, %9
               return %9, %10, %b, %d, %11, %10
             }
           return %1, %5, %4
         }",
        &[
            Literal::from_vec(&[4, 2], (0..8).map(|i| i as f32 / 8.0).collect::<Vec<_>>()).unwrap(),
            f32s(&[0.5, -0.25]),
        ],
    );
    assert_eq!(ops(&f), ["sin", "scan"]);
    let scan = &f.body.equations[1];
    // One carry, one slice, two captures: y and sin y.
    assert_eq!((scan.operands.len(), scan.results.len()), (4, 2));
    assert_eq!(scan.regions[0].outputs.len(), 2);
    // The result of the carry that never changes is its initial value.
    assert_eq!(f.body.outputs[2], f.body.equations[0].results[0]);
}

#[test]
fn one_value_is_stacked_once() {
    // The second and third stacks are equal, and the first is unused. A branch returns the same
    // value twice in both regions.
    let f = rewritten(
        "func @f(%x: f32[4,2], %p: bool[]) -> (f32[4,2], f32[4,2], f32[2], f32[2]) {
           %y: f32[2] = reduce_sum %x {axes=[0]}
           %0: f32[2], %1: f32[4,2], %2: f32[4,2], %3: f32[4,2] = scan %y, %x {carries=1, length=4}
             region (%a: f32[2], %s: f32[2]) {
               %4: f32[2] = sin %a
               %5: f32[2] = mul %4, %s
               return %5, %4, %5, %5
             }
           %6: f32[2], %7: f32[2] = cond %p, %0
             region (%b: f32[2]) {
               %8: f32[2] = cos %b
               return %8, %8
             }
             region (%c: f32[2]) {
               %9: f32[2] = exp %c
               return %9, %9
             }
           return %2, %3, %6, %7
         }",
        &[
            Literal::from_vec(&[4, 2], (0..8).map(|i| i as f32 / 8.0).collect::<Vec<_>>()).unwrap(),
            Literal::from_vec(&[], vec![true]).unwrap(),
        ],
    );
    assert_eq!(ops(&f), ["reduce_sum", "scan", "cond"]);
    let results: Vec<usize> = f.body.equations.iter().map(|e| e.results.len()).collect();
    assert_eq!(results, [1, 2, 1]);
    assert_eq!(f.body.outputs[0], f.body.outputs[1]);
    assert_eq!(f.body.outputs[2], f.body.outputs[3]);
}

#[test]
fn a_carry_of_a_condition_is_alive() {
    let f = rewritten(
        "func @f(%n: i32[], %x: f32[2]) -> (f32[2]) {
           %0: i32[], %1: f32[2], %2: f32[2] = while %n, %x, %x {max_steps=9}
             region (%a: i32[], %b: f32[2], %c: f32[2]) {
               %3: i32[] = constant {value=i32[] 5}
               %4: bool[] = lt %a, %3
               return %4
             }
             region (%a: i32[], %b: f32[2], %c: f32[2]) {
               %5: i32[] = add %a, %a
               %6: f32[2] = sin %b
               %7: f32[2] = cos %c
               return %5, %6, %7
             }
           return %1
         }",
        &[Literal::from(1i32), f32s(&[0.5, -0.25])],
    );
    assert_eq!(f.body.equations[0].results.len(), 2);
}

#[test]
fn what_runs_once_is_unpacked() {
    let f = rewritten(
        "func @f(%x: f32[1,2], %y: f32[2]) -> (f32[2], f32[1,2], f32[2]) {
           %0: f32[2], %1: f32[1,2] = scan %y, %x {carries=1, length=1} \
             region (%a: f32[2], %s: f32[2]) {
             %2: f32[2] = add %a, %s
             %3: f32[2] = mul %a, %s
             return %2, %3
           }
           %4: i32[] = constant {value=i32[] 7}
           %5: f32[2] = switch %4, %y region (%a: f32[2]) { return %a } region (%a: f32[2]) {
             %6: f32[2] = sin %a
             return %6
           }
           return %0, %1, %5
         }",
        &[Literal::from_vec(&[1, 2], vec![0.5f32, 0.75]).unwrap(), f32s(&[0.5, -0.25])],
    );
    assert!(f.body.equations.iter().all(|e| e.regions.is_empty()), "{:?}", ops(&f));
}

#[test]
fn what_every_step_computes_alike_is_computed_once() {
    // exp of k and the product move out of both loops. The broadcast stays, since it only makes a
    // value larger. The equation in a branch stays in the branch.
    let f = rewritten(
        "func @f(%x: f32[3,2], %k: f32[2], %w: f32[2,2], %p: bool[]) -> (f32[2]) {
           %0: f32[2] = scan %k, %x, %k, %w, %p {captures=3, carries=1, length=3}
             region (%a: f32[2], %s: f32[2], %k: f32[2], %w: f32[2,2], %p: bool[]) {
               %1: f32[2] = scan %a, %k, %w, %p {captures=3, carries=1, length=2}
                 region (%b: f32[2], %k: f32[2], %w: f32[2,2], %p: bool[]) {
                   %2: f32[2] = exp %k
                   %3: f32[2] = dot_general %k, %w {contract=[[0],[0]]}
                   %4: f32[2] = add %2, %3
                   %5: f32[2] = mul %b, %4
                   %6: f32[2] = cond %p, %b, %k region (%c: f32[2], %k: f32[2]) {
                     %7: f32[2] = tanh %k
                     return %7
                   } region (%c: f32[2], %k: f32[2]) { return %c }
                   %8: f32[2] = add %5, %6
                   return %8
                 }
               %9: f32[2] = add %1, %s
               return %9
             }
           return %0
         }",
        &[
            Literal::from_vec(&[3, 2], vec![0.5f32, 0.75, 0.1, 0.2, 0.3, 0.4]).unwrap(),
            f32s(&[0.5, -0.25]),
            Literal::from_vec(&[2, 2], vec![0.5f32, 0.75, -0.5, 0.25]).unwrap(),
            Literal::from(true),
        ],
    );
    assert_eq!(ops(&f), ["exp", "dot_general", "add", "scan"]);
    let outer = &f.body.equations[3].regions[0];
    let inner = &outer.equations[0].regions[0];
    let names: Vec<&str> = inner.equations.iter().map(|e| e.op.name()).collect();
    assert_eq!(names, ["mul", "cond", "add"]);
    assert_eq!(inner.equations[1].regions[0].equations.len(), 1);
}

#[test]
fn a_function_that_is_called_is_made_smaller_where_it_takes_the_place_of_the_call() {
    // In @steps one carry never changes, one is unused, and each step computes the same
    // exponential.
    let f = FunctionBuilder::build("f", |b| {
        let x = b.input("x", TensorType::new(DType::F32, [2usize]));
        let steps = |x: &Tensor| {
            let init = (x.clone(), x.sin(), x.cos());
            fori(3usize, &init, |_, (a, same, unused)| (a * same.exp(), same.clone(), unused + 1.0))
                .0
        };
        b.output("y", call("steps", &x, steps));
    });
    let f = f.unwrap_or_else(|e| panic!("{e}"));
    let kernels = compile_kernels(&f, &Target::cpu(), &Options::default()).unwrap().function;
    assert_eq!(ops(&kernels), ["sin", "exp", "scan"]);
    let x = [f32s(&[0.5, -0.25])];
    near(&interpret::run(&kernels, &x).unwrap()[0], &interpret::run(&f, &x).unwrap()[0], "@steps");
}
