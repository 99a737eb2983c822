//! Both sides of every rule, bit by bit.

use super::*;
use crate::kernels::interpret::interpret;
use crate::pipeline::{Options, compile_kernels};
use crate::rewrite::TOPICS;
use std::collections::BTreeMap;
use wengert_core::graph::{parse_program, verify};
use wengert_core::{DType, Target};

/// Elements that are counterexamples to invalid identities.
fn special(dtype: DType) -> Vec<Scalar> {
    let floats = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        0.5,
        -2.0,
        3.0,
        1e30,
        -1e30,
        1e-40,
        -1e-40,
        6e-8,
        65504.0,
        1e300,
        5e-324,
        0.1,
        -0.3,
    ];
    let integers = [
        0,
        1,
        -1,
        2,
        -2,
        7,
        31,
        63,
        127,
        -128,
        255,
        256,
        i64::from(i32::MAX),
        i64::from(i32::MIN),
        i64::MAX,
        i64::MIN,
    ];
    match dtype {
        DType::Bool => vec![Scalar::of(false), Scalar::of(true)],
        d if d.is_float() => floats.iter().map(|f| Scalar::from_f64(d, *f)).collect(),
        d => integers.iter().map(|i| Scalar::from_i64(d, *i)).collect(),
    }
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *state >> 33
}

fn literal(ty: &TensorType, state: &mut u64) -> Literal {
    let special = special(ty.dtype);
    let shape = ty.extents().unwrap();
    let values: Vec<Scalar> = (0..shape.iter().product())
        .map(|_| match random(state) % 3 {
            0 if ty.dtype.is_float() => {
                Scalar::from_f64(ty.dtype, random(state) as f64 / 2f64.powi(28) - 4.0)
            }
            0 if ty.dtype.is_integer() => Scalar::from_i64(ty.dtype, random(state) as i64),
            _ => special[random(state) as usize % special.len()],
        })
        .collect();
    Literal::from_scalars(ty.dtype, &shape, &values).unwrap()
}

/// The bits that a function's unfused kernels compute; no other pass changes it.
fn evaluate(function: &Function, inputs: &[Literal]) -> Vec<Literal> {
    let none: BTreeMap<String, u64> =
        ["simplify", "cse", "dce", "split_reductions"].map(|p| (p.to_string(), 0)).into();
    let options = Options { fuse: false, fuel: none, ..Options::default() };
    let kernels = compile_kernels(function, &Target::cpu(), &options).unwrap().kernels;
    interpret(&kernels, inputs, &mut |call, operands| Ok(vec![product(call, operands)])).unwrap()
}

/// Sums of products in the order of k, in f64: precise enough that equal products give equal
/// sums.
fn product(call: &wengert_core::Call, operands: &[Literal]) -> Literal {
    let wengert_core::Call::Gemm(g) = call else { panic!("no rule is about {call:?}") };
    let mut values = Vec::new();
    for b in 0..g.batch {
        for i in 0..g.m {
            for j in 0..g.n {
                let term = |k: usize| {
                    operands[0].get(b * g.lhs.batch + i * g.lhs.row + k * g.lhs.column).to_f64()
                        * operands[1]
                            .get(b * g.rhs.batch + k * g.rhs.row + j * g.rhs.column)
                            .to_f64()
                };
                values.push(Scalar::from_f64(g.result, (0..g.k).map(term).sum()));
            }
        }
    }
    Literal::from_scalars(g.result, &[g.batch, g.m, g.n], &values).unwrap()
}

/// Equal bits; any two NaNs are equal.
fn same(a: &Literal, b: &Literal) -> bool {
    a.ty() == b.ty()
        && a.scalars()
            .zip(b.scalars())
            .all(|(x, y)| x == y || (x.to_f64().is_nan() && y.to_f64().is_nan()))
}

/// The function of an [example](Rule::examples).
fn example(rule: &Rule, text: &str) -> Function {
    let (inputs, equations) = match text.split_once('\n') {
        Some((inputs, equations)) if !inputs.contains('=') => (inputs, equations),
        _ => ("", text),
    };
    let last = equations.lines().last().expect("an example has an equation").trim();
    let (result, rest) = last.split_once(": ").expect("an equation states the type of its result");
    let (ty, _) = rest.split_once(" = ").expect("an op follows the type");
    let text = format!("func @f({inputs}) -> ({ty}) {{\n{equations}\nreturn {result}\n}}");
    let program = parse_program(&text, rule.name).unwrap_or_else(|e| panic!("{}: {e}", rule.name));
    program.functions()[0].clone()
}

/// Applies a rule to an example. Returns the inputs on which both sides differ, if any.
fn differs(rule: &Rule, text: &str) -> Option<String> {
    let function = &example(rule, text);
    verify(function).unwrap();
    // The text has literals of a shape; they are brought into normal form first.
    let normal: Vec<&Rule> =
        rules().filter(|r| r.name == "constant_of_equal_elements" && r.name != rule.name).collect();
    let (body, _) = Rewriter::run(function.body.clone(), &normal, u64::MAX);
    let (body, applied) = Rewriter::run(body, &[rule], u64::MAX);
    assert!(applied > 0, "{} does not apply to {text}", rule.name);
    let rewritten = Function { body, ..function.clone() };
    verify(&rewritten).unwrap_or_else(|e| panic!("{}: {e}", rule.name));
    let mut state = 42;
    (0..40).find_map(|_| {
        let inputs: Vec<Literal> = (0..function.inputs.len())
            .map(|i| literal(function.input_type(i), &mut state))
            .collect();
        let (before, after) = (evaluate(function, &inputs), evaluate(&rewritten, &inputs));
        let differ = |(b, a): (&Literal, &Literal)| {
            (!same(b, a)).then(|| format!("on {inputs:?}:\nbefore {b}\nafter  {a}"))
        };
        before.iter().zip(&after).find_map(differ)
    })
}

#[test]
fn every_rule_applies_to_its_examples_and_changes_no_bit() {
    let mut names = std::collections::BTreeSet::new();
    for rule in TOPICS.iter().flat_map(|t| t.rules) {
        assert!(names.insert(rule.name), "two rules are called {}", rule.name);
        assert!(!rule.examples.is_empty(), "{} has no example", rule.name);
        for (n, text) in rule.examples.iter().enumerate() {
            if let Some(how) = differs(rule, text) {
                panic!("example {n} of {} {how}", rule.name);
            }
        }
    }
}

/// No rule applies to the result of all rules: no rule replaces a normal form by an equal one.
#[test]
fn rules_leave_what_they_have_made() {
    for rule in rules() {
        for text in rule.examples {
            let mut function = example(rule, text);
            let applied = (0..20).map(|_| {
                let (next, applied) = simplify(function.clone(), u64::MAX);
                function = next;
                applied
            });
            let applied: Vec<u64> = applied.collect();
            assert_eq!(applied.last(), Some(&0), "{} goes on: {applied:?}\n{function}", rule.name);
        }
    }
}

#[test]
fn one_repeated_element_is_a_normal_form() {
    let text = "func @f() -> (f32[1,1]) {
      %0: f32[] = constant {value=f32[] 2.5}
      %1: f32[1,1] = broadcast_in_dim %0 {shape=[1,1]}
      return %1
    }";
    let function = parse_program(text, "f").unwrap().functions()[0].clone();
    assert_eq!(simplify(function, u64::MAX).1, 0);
}

/// The maximum of a repeated element is that element; its parity and its sum are not.
#[test]
fn only_idempotent_reductions_forget_a_broadcast() {
    let rule = rules().find(|r| r.name == "extremum_of_a_broadcast").unwrap();
    for (kind, dtype, forgets) in [
        ("max", "i32", 1),
        ("min", "f16", 1),
        ("and", "u8", 1),
        ("or", "bool", 1),
        ("xor", "i32", 0),
        ("xor", "bool", 0),
        ("sum", "i32", 0),
        ("prod", "i32", 0),
    ] {
        // An even number of times, for which every parity is 0, and an odd one.
        for times in [2, 3] {
            let text = format!(
                "func @f(%x: {dtype}[4,5]) -> ({dtype}[5]) {{
                    %0: {dtype}[{times},4,5] = \
                      broadcast_in_dim %x {{dims=[1,2], shape=[{times},4,5]}}
                    %1: {dtype}[5] = reduce_{kind} %0 {{axes=[0,1]}}
                    return %1
                }}"
            );
            let function = parse_program(&text, "broadcast").unwrap().functions()[0].clone();
            let applied = Rewriter::run(function.body.clone(), &[rule], u64::MAX).1;
            assert_eq!(applied, forgets, "{kind} of {dtype}");
            let simple = simplify(function.clone(), u64::MAX).0;
            let mut state = times;
            for _ in 0..10 {
                let input = [literal(function.input_type(0), &mut state)];
                let (before, after) = (evaluate(&function, &input), evaluate(&simple, &input));
                assert!(same(&before[0], &after[0]), "{kind} of {dtype}: {before:?}, {after:?}");
                if kind == "xor" && times == 2 {
                    assert_eq!(before[0], Literal::zeros(before[0].dtype(), &[5]), "{dtype}");
                }
            }
        }
    }
}

#[test]
fn a_rule_that_is_wrong_for_minus_zero_is_found() {
    let wrong = Rule {
        name: "wrong",
        doc: "x + 0.0 → x",
        examples: &[],
        apply: |_, equation| match equation.op {
            Op::Binary(wengert_core::op::Binary::Add) => Some(equation.operands[0]),
            _ => None,
        },
    };
    let text = "%x: f32[33]
        %0: f32[33] = constant {value=f32[33] 0.0}
        %1: f32[33] = add %x, %0";
    assert!(differs(&wrong, text).is_some());
}

#[test]
fn fuel_stops_after_so_many_changes() {
    let text = "func @f(%x: f32[3]) -> (f32[3]) {
        %0: f32[3] = neg %x
        %1: f32[3] = neg %0
        %2: f32[3] = neg %1
        %3: f32[3] = neg %2
        return %3
    }";
    let function = parse_program(text, "fuel").unwrap().functions()[0].clone();
    for fuel in 0..=2 {
        let (_, spent) = simplify(function.clone(), fuel);
        assert_eq!(spent, fuel);
    }
    assert_eq!(simplify(function, u64::MAX).1, 2);
}

/// A pass without changes leaves the body as it is, whatever rules tried.
#[test]
fn a_rule_that_gives_up_leaves_no_equations() {
    const GIVES_UP: Rule = Rule {
        name: "gives_up",
        doc: "",
        examples: &[],
        apply: |cx, equation| {
            let twice = cx.emit(Op::from(wengert_core::op::Binary::Add), &equation.operands)?;
            cx.emit(Op::from(wengert_core::op::Unary::Abs), &[twice])?;
            None
        },
    };
    let text = "func @f(%x: f32[3], %y: f32[3]) -> (z: f32[3]) {
                  %0: f32[3] = mul %x, %y
                  return %0
                }";
    let program = parse_program(text, "test").unwrap();
    let body = program.functions()[0].body.clone();
    let (found, spent) = Rewriter::run(body.clone(), &[&GIVES_UP], 10);
    assert_eq!((found, spent), (body, 0));
}
