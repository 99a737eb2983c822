//! Values that are computed, passed or returned twice, in deep nests and in long chains. Passes
//! merge them, and a plan is right even without the passes.

mod random;

use super::{check_with, nested, planned};
use std::fmt::Write;
use wengert_compiler::autodiff::function::{self, Grad};
use wengert_compiler::autodiff::operators::grad;
use wengert_compiler::pipeline::{Compiled, Options, compile_kernels, passes};
use wengert_core::build::FunctionBuilder;
use wengert_core::build::control::map;
use wengert_core::graph::{Body, Equation, Function, Program, parse_program};
use wengert_core::{DType, Literal, Scalar, Target, Tensor, TensorType};

const PROGRAMS: [(&str, &str); 7] = [
    ("budget_frontier", include_str!("repeated/budget_frontier.ir")),
    ("budget_hole", include_str!("repeated/budget_hole.ir")),
    ("duplicate_slices", include_str!("repeated/duplicate_slices.ir")),
    ("duplicate_slices_nested", include_str!("repeated/duplicate_slices_nested.ir")),
    ("one_operand_twice", include_str!("repeated/one_operand_twice.ir")),
    ("equal_loops", include_str!("repeated/equal_loops.ir")),
    ("twin_loops", include_str!("repeated/twin_loops.ir")),
];

fn function(name: &str, text: &str) -> Function {
    let program = parse_program(text, name).unwrap_or_else(|e| panic!("{e}\n{text}"));
    wengert_core::graph::verify(&program.functions()[0]).unwrap_or_else(|e| panic!("{e}\n{text}"));
    program.functions()[0].clone()
}

/// Numbers between −1 and 1, in long rows between −1/16 and 1/16. Counts are 1.
fn inputs(function: &Function) -> Vec<Literal> {
    let literal = |n: usize| {
        let ty = function.input_type(n);
        let shape = ty.extents().unwrap();
        let greatest = if shape.last().is_some_and(|n| *n >= 256) { 0.0625 } else { 1.0 };
        let element = |i: usize| match ty.dtype {
            DType::Bool => Scalar::of(n.is_multiple_of(2)),
            dtype if dtype.is_integer() => Scalar::from_i64(dtype, 1),
            dtype => Scalar::from_f64(
                dtype,
                greatest * (((n * 41 + i * 37 + 11) % 101) as f64 / 50.5 - 1.0),
            ),
        };
        let elements: Vec<Scalar> = (0..shape.iter().product()).map(element).collect();
        Literal::from_scalars(ty.dtype, &shape, &elements).unwrap()
    };
    (0..function.inputs.len()).map(literal).collect()
}

fn compiled(function: &Function) -> Compiled {
    let options = Options { keep_stages: true, ..Options::default() };
    compile_kernels(function, &Target::cpu(), &options).unwrap_or_else(|e| panic!("{e}"))
}

/// The number of equations of an op in a body, including its regions.
fn count(body: &Body, op: &str) -> usize {
    let inner = |e: &Equation| e.regions.iter().map(|r| count(r, op)).sum::<usize>();
    body.equations.iter().map(|e| usize::from(e.op.name() == op) + inner(e)).sum()
}

/// Options that disable merging passes: all of them, all but one, or one.
fn without_passes() -> Vec<Options> {
    let clean = ["simplify", "cse", "dce", "trim", "hoist", "unstack"];
    assert!(clean.iter().all(|name| passes().iter().any(|pass| pass.name == *name)));
    let none = |which: &dyn Fn(&str) -> bool| Options {
        fuel: clean.iter().filter(|name| which(name)).map(|name| ((*name).to_owned(), 0)).collect(),
        ..Options::default()
    };
    let mut all = vec![none(&|_| true)];
    for name in clean {
        all.push(none(&|other| other != name));
        all.push(none(&|other| other == name));
    }
    all
}

#[test]
fn every_program_computes_what_it_says() {
    for (name, text) in PROGRAMS {
        let function = function(name, text);
        check_with(&function, &inputs(&function), name, &Options::default());
    }
}

#[test]
fn a_plan_is_right_whatever_the_passes_leave() {
    for options in without_passes() {
        for (name, text) in PROGRAMS.into_iter().filter(|(name, _)| !name.starts_with("budget")) {
            let function = function(name, text);
            check_with(
                &function,
                &inputs(&function),
                &format!("{name}, {:?}", options.fuel),
                &options,
            );
        }
        // The interpreter is slow on long reductions, so they are left out.
        for case in nested::cases().iter().filter(|case| !case.name.contains("long")) {
            let what = format!("{}, {:?}", case.name, options.fuel);
            check_with(&case.function, &case.runs[0], &what, &options);
        }
    }
}

#[test]
fn plans_of_random_nests_are_right_whatever_the_passes_leave() {
    let settings = without_passes();
    for seed in 0..150 {
        let text = random::nest(seed);
        let function = function("random.ir", &text);
        let inputs = inputs(&function);
        for options in
            [&Options::default(), &settings[0], &settings[1 + seed as usize % (settings.len() - 1)]]
        {
            check_with(
                &function,
                &inputs,
                &format!("seed {seed}, {:?}\n{text}", options.fuel),
                options,
            );
        }
    }
}

#[test]
fn equal_loops_are_one() {
    let [.., (_, equal), (_, twins)] = PROGRAMS;
    assert_eq!(count(&compiled(&function("equal_loops", equal)).function.body, "scan"), 1);
    // The loop of the value and its copy that keeps residuals are merged. The other loop runs
    // backwards.
    let program = Program::from_functions(vec![function("twin_loops", twins)]).unwrap();
    let derived = function::grad(&program, "f", &Grad { wrt: &["x"], ..Grad::default() });
    let gradient = derived.unwrap_or_else(|e| panic!("{e}")).function;
    assert_eq!(count(&compiled(&gradient).function.body, "scan"), 2, "{gradient}");
    check_with(&gradient, &inputs(&gradient), "twin_loops", &Options::default());
}

/// Two chains of loops. Two loops are equal after the loops before them are merged.
fn chain(links: usize) -> String {
    let mut text = String::from(
        "func @f(%x: f64[2,2]) -> (y: f64[2,2], z: f64[2,2]) {
           %g0: f64[2,2] = sin %x
           %h0: f64[2,2] = sin %x
        ",
    );
    for n in 1..=links {
        let last = n - 1;
        write!(
            text,
            "%s{n}: f64[2,2], %t{n}: f64[2,2] = scan %g{last}, %h{last} {{carries=0, length=2}}
               region (%a: f64[2], %b: f64[2]) {{
                 %c: f64[2] = cos %a
                 %d: f64[2] = cos %b
                 return %c, %d
               }}
             %g{n}: f64[2,2] = tanh %s{n}
             %h{n}: f64[2,2] = tanh %t{n}
            "
        )
        .unwrap();
    }
    write!(text, "return %g{links}, %h{links}\n}}").unwrap();
    text
}

/// A nest of loops that capture a number. At each level a loop is unused once another one has been
/// removed.
fn deep(depth: usize) -> String {
    let ty = |rank: usize| format!("f64[{}]", vec!["2"; rank].join(","));
    let mut text = format!(
        "func @f(%x: {t}) -> (y: {t}) {{
           %n{depth}: f64[] = constant {{value=f64[] 0.5}}
           %a{depth}: {t} = sin %x
           %b{depth}: {t} = sin %x
        ",
        t = ty(depth)
    );
    for level in (0..depth).rev() {
        let (whole, part, outer) = (ty(level + 1), ty(level), level + 1);
        write!(
            text,
            "%p{outer}: {whole}, %q{outer}: {whole}, %r{outer}: {whole} =
               scan %a{outer}, %b{outer}, %n{outer} {{captures=1, carries=0, length=2}}
               region (%a{level}: {part}, %b{level}: {part}, %n{level}: f64[]) {{
            "
        )
        .unwrap();
    }
    text += "%m: f64[] = mul %a0, %n0
             %p0: f64[] = cos %m
             %q0: f64[] = exp %b0
             %r0: f64[] = tanh %b0
            ";
    for level in 0..depth {
        write!(text, "return %p{level}, %q{level}, %r{level}\n}}\n").unwrap();
    }
    write!(text, "return %p{depth}\n}}").unwrap();
    text
}

/// Each pass completes its work in one walk. So the number of rounds does not depend on the size of
/// a function.
#[test]
fn rounds_do_not_grow_with_chains_and_nests() {
    let stages = |text: &str| {
        let function = function("test.ir", text);
        let compiled = compiled(&function);
        (compiled.stages.len(), compiled.function)
    };
    let (few, _) = stages(&chain(3));
    let (many, function) = stages(&chain(40));
    assert_eq!(count(&function.body, "tanh"), 40);
    assert_eq!(many, few);
    let (few, _) = stages(&deep(3));
    let (many, function) = stages(&deep(12));
    assert_eq!(many, few);
    let found = ["exp", "tanh", "sin", "cos"].map(|op| count(&function.body, op));
    assert_eq!(found, [0, 0, 1, 1], "{function}");
}

/// Higher-order gradients of a nest. Each level contains duplicates of the levels within it.
#[test]
fn gradients_of_nests_of_any_order() {
    fn down(x: &Tensor) -> Tensor {
        if x.rank() == 0 { x.sin() * x } else { map(x, down) }
    }
    fn gradient(x: &Tensor, order: usize) -> Tensor {
        if order == 0 { down(x) } else { grad(x, |x| gradient(x, order - 1).sum()) }
    }
    for (depth, order) in [(3, 4), (5, 3), (9, 2)] {
        let f = FunctionBuilder::build("f", |f| {
            let x = f.input("x", TensorType::new(DType::F64, vec![2usize; depth]));
            f.output("y", gradient(&x, order));
        });
        let f = f.unwrap_or_else(|e| panic!("{e}"));
        for options in [&Options::default(), &without_passes()[0]] {
            drop(planned(&f, &Target::cpu(), options));
        }
        check_with(
            &f,
            &inputs(&f),
            &format!("gradient {order} of a nest {depth} deep"),
            &Options::default(),
        );
    }
}
