//! C: Wengert lists, staged and eager tracing.

use super::{at, build, constant, count};
use wengert::autodiff::function::{Grad, grad as grad_of_function};
use wengert::core::interpret;
use wengert::prelude::*;

#[test]
fn c1_a_wengert_list_is_printed_readably() {
    let f = build(2, |v| vec![&v[0] * &v[1] + v[0].sin()]);
    let expected = "\
func @f(%x0: f64[], %x1: f64[]) -> (y0: f64[]) {
  %0: f64[] = mul %x0, %x1
  %1: f64[] = sin %x0
  %2: f64[] = add %0, %1
  return %2
}
";
    assert_eq!(f.to_string(), expected);
    // The list is also a value, with the line of each operation.
    let list =
        trace(&(constant(0.0), constant(0.0)), |(x, y)| x * y + x.sin()).unwrap().to_string();
    let expected = [
        "x.0: f64[]",
        "x.1: f64[]",
        "v1: f64[] = mul x.0, x.1",
        "v2: f64[] = sin x.0",
        "v3: f64[] = add v1, v2",
        "y = v3",
    ];
    for (line, expected) in list.lines().zip(expected) {
        assert!(line.starts_with(expected), "{list}");
        assert_eq!(
            line.contains("// wengert/tests/systems/tracing.rs:"),
            line.starts_with('v'),
            "{list}"
        );
    }
}

#[test]
fn c2_a_loop_of_the_host_over_a_known_number_disappears() {
    let pow = |x: &Tensor, n: usize| (1..n).fold(x.clone(), |y, _| y * x);
    let f = build(1, |v| vec![pow(&v[0], 3)]);
    assert_eq!((f.body.equations.len(), count(&f, "mul")), (2, 2));
    let list = trace(&constant(0.0), |x| pow(x, 3)).unwrap();
    assert_eq!((list.len(), list.to_string().matches("mul").count()), (2, 2));
}

#[test]
fn c3_overloaded_operators_with_plain_numbers_on_either_side() {
    assert_eq!(
        at([3.0], |v| vec![2.0 * &v[0] - 1.0, 1.0 - &v[0] / 2, 1.0 + &v[0]]),
        [5.0, -0.5, 4.0]
    );
    let list = trace(&constant(0.0), |x: &Tensor| -> Tensor { 2.0 * x - 1.0 / (x + 1) }).unwrap();
    assert_eq!(list.evaluate(&constant(3.0)).unwrap().item().unwrap(), 5.75);
}

#[test]
fn c4_the_derivative_is_a_program_of_its_own() {
    let mut program = Program::new();
    program
        .function("cube", |f| {
            let x = f.input("x", f64(""));
            f.output("y", &x * &x * &x);
        })
        .unwrap();
    let dcube = grad_of_function(&program, "cube", &Grad { wrt: &["x"], ..Default::default() })
        .unwrap()
        .function;
    assert_eq!(dcube.name, "cube_grad");
    assert_eq!(interpret::run(&dcube, &[Literal::from(5.0)]).unwrap()[0].get(0).to_f64(), 75.0);

    // The same with lists: traced, differentiated, compiled, called twice.
    let cube = trace(&constant(0.0), |x| x * x * x).unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    let mut dcube = session.compile_list(&cube.grad().unwrap()).unwrap();
    for (x, expected) in [(5.0, 75.0), (2.0, 12.0), (-1.0, 3.0)] {
        assert_eq!(dcube.call(&constant(x)).unwrap().item().unwrap(), expected);
    }
    let error = dcube.call(&Tensor::constant(5.0f32)).err().unwrap().to_string();
    assert!(error.contains("f32[], the list was traced on f64[]"), "{error}");
}

#[test]
fn c5_values_beside_the_list_differentiated_as_it_is_built() {
    let x = Tracked::new(&constant(3.0));
    let mut y = x.clone();
    while y.item().unwrap() < 100.0 {
        y = y * &*x;
    }
    assert_eq!((y.item().unwrap(), x.gradient(&y).item().unwrap()), (243.0, 405.0));
    assert_eq!(x.gradient(&x.gradient(&y)).item().unwrap(), 540.0);
    assert!(x.to_string().contains("= mul v3, x0 → 243.0"), "{x}");
    // The recorded list is the program for this x. Compiled, it computes the same steps for other
    // values.
    let mut session = Session::open(Device::Cpu).unwrap();
    let mut fifth = session.compile_list(&x.list(&y).unwrap()).unwrap();
    assert_eq!(fifth.call(&constant(2.0)).unwrap().item().unwrap(), 32.0);
}

#[test]
fn c6_nested_derivatives_of_a_function_of_ones_own() {
    // sin by its series, so that only the rules of arithmetic are used.
    let mysin = |x: &Tensor| {
        let mut term = x.clone();
        let mut sum = x.clone();
        for k in 1..12 {
            term = &term * x * x * (-1.0 / ((2 * k) as f64 * (2 * k + 1) as f64));
            sum = sum + &term;
        }
        sum
    };
    let results = at([1.0], |v| {
        let second = grad(&v[0], |x: &Tensor| grad(x, mysin));
        vec![mysin(&v[0]), second]
    });
    assert!(
        (results[0] - 1f64.sin()).abs() < 1e-15 && (results[1] + 1f64.sin()).abs() < 1e-14,
        "{results:?}"
    );
    // The second derivative, of a list and of values.
    let list = trace(&constant(0.0), mysin).unwrap().grad().unwrap().grad().unwrap();
    let x = Tracked::new(&constant(1.0));
    let eager = x.gradient(&x.gradient(&mysin(&x)));
    let all = [list.evaluate(&constant(1.0)).unwrap(), eager].map(|t| t.item().unwrap());
    assert!(all.iter().all(|second| (second - results[1]).abs() < 1e-14), "{all:?}");
}

#[test]
fn c7_shared_subexpressions_stay_shared() {
    let f =
        build(1, |v| vec![grad(&v[0], |x: &Tensor| (0..40).fold(x.clone(), |y, _| &y + &y * &y))]);
    assert!(f.body.equations.len() < 40 * 10, "{}", f.body.equations.len());
    let second = |n: usize| {
        let list = trace(&constant(0.0), |x| (0..n).fold(x.clone(), |y, _| &y + &y * &y)).unwrap();
        assert_eq!(list.len(), 2 * n);
        list.grad().unwrap().grad().unwrap().len()
    };
    assert!(second(40) < second(20) * 11 / 5, "{} and {}", second(20), second(40));
}

/// A loop whose length is known only at run time. A host loop would have fixed the length.
#[test]
fn c8_control_flow_is_in_the_graph() {
    let mut program = Program::new();
    program
        .function("power", |f| {
            let (x, n) = (f.input("x", f64("")), f.input("n", i32("")));
            let power = |x: &Tensor| control::fori_upto(&n, 100usize, &constant(1.0), |_, y| y * x);
            f.output("value", power(&x));
            f.output("slope", grad(&x, power));
        })
        .unwrap();
    for device in [Device::Interpreter, Device::Cpu, Device::Emulator] {
        let mut power = Session::open(device).unwrap().compile(&program, "power", bind!()).unwrap();
        for n in [0, 1, 7] {
            let y = power.run(&[("x", Literal::from(2.0f64)), ("n", Literal::from(n))]).unwrap();
            let slope = if n == 0 { 0.0 } else { f64::from(n) * 2f64.powi(n - 1) };
            assert_eq!(
                (y.scalar("value").unwrap(), y.scalar("slope").unwrap()),
                (2f64.powi(n), slope)
            );
        }
    }
}
