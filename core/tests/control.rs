//! Control flow built from closures, run by the interpreter, printed and parsed.
#![allow(clippy::unwrap_used)] // Helpers outside of `#[test]` functions unwrap too.

use wengert_core::build::FunctionBuilder;
use wengert_core::build::control::{
    associative_scan, associative_scan_reverse, cond, fold, fori, fori_upto, map, scan,
    scan_reverse, scan_reverse_unrolled, scan_unrolled, switch, while_at_most, while_loop,
};
use wengert_core::graph::{Function, PrintOptions, Program, parse_program, print, verify};
use wengert_core::{DType, Literal, Tensor, TensorType, interpret};

fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape.iter().copied())
}

fn vector(values: &[f32]) -> Literal {
    Literal::from_vec(&[values.len()], values.to_vec()).unwrap()
}

fn build(types: &[TensorType], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Function {
    let function = FunctionBuilder::build("f", |b| {
        let inputs: Vec<Tensor> =
            types.iter().enumerate().map(|(i, ty)| b.input(&format!("x{i}"), ty.clone())).collect();
        for (i, output) in f(&inputs).iter().enumerate() {
            b.output(&format!("y{i}"), output);
        }
    });
    let function = function.unwrap_or_else(|e| panic!("{e}"));
    verify(&function).unwrap();
    let program = Program::from_functions(vec![function.clone()]).unwrap();
    let text = print(&program, &PrintOptions::default());
    let again = parse_program(&text, "f.ir").unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(print(&again, &PrintOptions::default()), text);
    function
}

fn run(function: &Function, inputs: &[Literal]) -> Vec<Literal> {
    interpret::run(function, inputs).unwrap()
}

#[test]
fn scans_go_both_ways() {
    let f = build(&[f32s(&[]), f32s(&[3])], |v| {
        let step = |c: &Tensor, x: &Tensor| (c * 2.0 + x, c + x);
        let (a, all) = scan(&v[0], &v[1], step);
        let (b, back) = scan_reverse(&v[0], &v[1], step);
        vec![a, all, b, back]
    });
    let y = run(&f, &[Literal::from(1.0f32), vector(&[1.0, 2.0, 3.0])]);
    assert_eq!(y[0], Literal::from(19.0f32));
    assert_eq!(y[1], vector(&[2.0, 5.0, 11.0]));
    assert_eq!(y[2], Literal::from(25.0f32));
    assert_eq!(y[3], vector(&[13.0, 7.0, 4.0]));
}

#[test]
fn several_steps_at_a_time_have_the_same_bits() {
    let step = |c: &Tensor, x: &Tensor| (c * 0.75 + x.sin(), c * x);
    for (steps, unroll) in [(7, 1), (7, 2), (7, 3), (7, 7), (7, 10), (6, 3), (1, 4), (0, 2)] {
        let f = build(&[f32s(&[2]), f32s(&[steps, 2])], |v| {
            let (a, all) = scan(&v[0], &v[1], step);
            let (b, back) = scan_reverse(&v[0], &v[1], step);
            let (c, several) = scan_unrolled(unroll, &v[0], &v[1], step);
            let (d, reverse) = scan_reverse_unrolled(unroll, &v[0], &v[1], step);
            vec![a, all, b, back, c, several, d, reverse]
        });
        let x: Vec<f32> = (0..2 * steps).map(|i| 0.3 * i as f32 - 1.0).collect();
        let y = run(&f, &[vector(&[0.5, -0.25]), Literal::from_vec(&[steps, 2], x).unwrap()]);
        assert_eq!(y[..4], y[4..], "{steps} steps, {unroll} at a time");
    }
    let error = |unroll: usize, ty: TensorType| {
        let built = FunctionBuilder::build("f", |b| {
            let x = b.input("x", ty);
            b.output(
                "y",
                scan_unrolled(unroll, &Tensor::constant(0.0f32), &x, |c, x| (c + x, ())).0,
            );
        });
        built.unwrap_err().to_string()
    };
    assert!(error(0, f32s(&[3])).contains("a loop takes no steps 0 at a time"));
    let open = TensorType::new(DType::F32, [wengert_core::Dim::variable("T")]);
    assert!(error(2, open).contains("a loop of T steps cannot be unrolled"));
}

#[test]
fn loops_that_are_scans() {
    let f = build(&[f32s(&[3]), f32s(&[])], |v| {
        let doubled = map(&v[0], |x| x * &v[1]);
        let total = fold(&v[1], &v[0], |c, x| c + x);
        let power = fori(4usize, &v[1], |_, c| c * c);
        let numbers =
            fori_upto(&Tensor::constant(3i32), 10usize, &v[1], |i, c| c + i.convert(DType::F32));
        vec![doubled, total, power, numbers]
    });
    let y = run(&f, &[vector(&[1.0, 2.0, 3.0]), Literal::from(2.0f32)]);
    assert_eq!(y[0], vector(&[2.0, 4.0, 6.0]));
    let scalars = [8.0f32, 65536.0, 5.0].map(Literal::from);
    assert_eq!(y[1..], scalars);
}

#[test]
fn conditions_end_loops_and_choose_ways() {
    let f = build(&[f32s(&[]), TensorType::scalar(DType::I32)], |v| {
        let below = |c: &Tensor| c.lt(Tensor::constant(100.0f32));
        let free = while_loop(&v[0], below, |c| c * 3.0);
        let bounded = while_at_most(2usize, &v[0], below, |c| c * 3.0);
        let way = cond(&below(&v[0]), || &v[0] + 1.0, || v[0].clone());
        let ways: Vec<Box<dyn FnOnce() -> Tensor>> = vec![
            Box::new(|| -&v[0]),
            Box::new(|| Tensor::constant(7.0f32)),
            Box::new(|| v[0].clone()),
        ];
        vec![free, bounded, way, switch(&v[1], ways)]
    });
    let y = |x: f32, i: i32| run(&f, &[Literal::from(x), Literal::from(i)]);
    let of = |values: [f32; 4]| values.map(Literal::from).to_vec();
    assert_eq!(y(5.0, 1), of([135.0, 45.0, 6.0, 7.0]));
    assert_eq!(y(500.0, -4), of([500.0, 500.0, 500.0, -500.0]));
    assert_eq!(y(1.0, 9), of([243.0, 9.0, 2.0, 1.0]));
}

#[test]
fn what_does_not_change_is_computed_before_a_loop_but_not_before_a_branch() {
    let f = build(&[f32s(&[3]), f32s(&[])], |v| {
        let looped = fold(&v[1], &v[0], |c, x| c * v[1].exp() + x);
        let chosen = cond(&v[1].gt(v[1].zeros_like()), || v[1].sin(), || v[1].clone());
        vec![looped, chosen]
    });
    let names: Vec<&str> = f.body.equations.iter().map(|e| e.op.name()).collect();
    assert!(names.contains(&"exp") && !names.contains(&"sin"), "{names:?}");
    let scan = f.body.equations.iter().find(|e| e.op.name() == "scan").unwrap();
    assert!(scan.regions[0].equations.iter().all(|e| e.op.name() != "exp"));
}

#[test]
fn a_loop_in_a_branch_takes_nothing_out_of_it() {
    let f = build(&[f32s(&[3]), f32s(&[])], |v| {
        let inside = || fold(&v[1], &v[0], |c, x| c * v[1].exp() + x);
        vec![cond(&v[1].gt(v[1].zeros_like()), inside, || v[1].clone())]
    });
    assert!(f.body.equations.iter().all(|e| e.op.name() != "exp"), "{f:?}");
}

#[test]
fn nothing_is_a_loop_too() {
    let f = build(&[f32s(&[0, 2]), f32s(&[2])], |v| {
        let (c, y) = scan(&v[1], &v[0], |c, x| (c + x, c * x));
        vec![c, y]
    });
    let nothing = Literal::from_vec::<f32>(&[0, 2], vec![]).unwrap();
    let y = run(&f, &[nothing.clone(), vector(&[1.0, 2.0])]);
    assert_eq!(y, [vector(&[1.0, 2.0]), nothing]);
}

#[test]
fn prefixes_by_a_tree_are_those_of_a_loop() {
    for n in 1..=17usize {
        // 2×2 matrices do not commute.
        let ty = f32s(&[n, 2, 2]);
        let product = |a: &Tensor, b: &Tensor| {
            let dims = wengert_core::op::DotGeneral {
                batch: (vec![0], vec![0]),
                contract: (vec![2], vec![1]),
                result: None,
            };
            Tensor::apply(dims, &[a, b])
        };
        let f = build(&[ty], |v| {
            let forward = associative_scan(&v[0], product);
            let backward = associative_scan_reverse(&v[0], product);
            let one = f32s(&[2, 2]);
            let eye =
                Tensor::constant(Literal::from_vec(&[2, 2], vec![1.0f32, 0.0, 0.0, 1.0]).unwrap());
            assert_eq!(*eye.ty(), one);
            let (_, looped) = scan(&eye, &v[0], |c, x| {
                let next = c.dot(x);
                (next.clone(), next)
            });
            let (_, back) = scan_reverse(&eye, &v[0], |c, x| {
                let next = c.dot(x);
                (next.clone(), next)
            });
            vec![forward, looped, backward, back]
        });
        let values: Vec<f32> = (0..4 * n).map(|i| ((i * 7 + 3) % 5) as f32 - 2.0).collect();
        let y = run(&f, &[Literal::from_vec(&[n, 2, 2], values).unwrap()]);
        assert_eq!(y[0], y[1], "{n} parts");
        assert_eq!(y[2], y[3], "{n} parts from the last");
    }
}
