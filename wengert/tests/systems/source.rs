//! E: source-to-source transformation.

use super::{at, build};
use wengert::core::interpret;
use wengert::operators::call;
use wengert::prelude::*;
use wengert_testing::samples;

/// Each call is replaced by its value and its pullback. The pullback's residuals are stored and
/// have types.
#[test]
fn e1_calls_become_values_and_pullbacks_with_typed_residuals() {
    let function = build(1, |v| {
        let (y, differential) =
            linearize(&v[0], |x: &Tensor| call("g", x, |x| x.sin()) * call("h", x, |x| x.exp()));
        let linear = differential.linear().unwrap();
        assert!(linear.residuals.iter().all(|r| r.ty() == v[0].ty()));
        // The residuals of two calls and of their product: cos x, eˣ, and sin x times eˣ.
        assert!((3..=4).contains(&linear.residuals.len()), "{}", linear.residuals.len());
        vec![y, differential.pull_back(&Tensor::constant(1.0f64))]
    });
    let x = 0.7f64;
    let results = interpret::run(&function, &[x.into()]).unwrap();
    assert!((results[1].get(0).to_f64() - (x.cos() + x.sin()) * x.exp()).abs() < 1e-14);
}

#[test]
fn e2_several_gradients_of_one_value_are_added() {
    assert_eq!(at([3.0], |v| vec![grad(&v[0], |x: &Tensor| x * 2.0 + x * 3.0 + x * x)]), [11.0]);
}

/// A primitive has one definition. Differentiation does not enter it, neither an op nor a function
/// with a rule.
#[test]
fn e3_primitives_are_added_by_one_definition_where_recursion_stops() {
    for entry in samples::catalogue() {
        let samples = entry.samples.len() + entry.collectives.len();
        assert!(!entry.derivative.is_empty() && samples > 0, "{}", entry.name);
    }
    // A custom primitive: its value comes from a loop with a poor derivative of its own, its
    // derivative from a closed form.
    let root = |x: &Tensor| {
        custom_jvp(
            x,
            |x| (0..40).fold(x.clone(), |y, _| (&y + x / &y) * 0.5),
            |_, y: &Tensor, t| t / (y * 2.0),
        )
    };
    let [value, first, second] =
        at([9.0], |v| vec![root(&v[0]), grad(&v[0], root), grad(&v[0], |x| grad(x, root))])[..]
    else {
        panic!("three results")
    };
    assert!((value - 3.0).abs() < 1e-15 && (first - 1.0 / 6.0).abs() < 1e-15);
    assert!((second + 0.25 / 27.0).abs() < 1e-15);
    let function = build(1, |v| vec![grad(&v[0], root)]);
    assert!(function.body.equations.len() < 10, "the loop is not differentiated\n{function}");
}

#[test]
fn e4_source_locations_are_kept_through_both_transformations() {
    let f = build(1, |v| vec![grad(&v[0], |x: &Tensor| x.sin() * x)]);
    for equation in f.body.equations.iter().filter(|e| e.op.name() != "constant") {
        let text = f.locations.describe(equation.location);
        assert!(text.contains("source.rs:"), "{}: {text}", equation.op.name());
    }
    let adjoint = f.body.equations.iter().map(|e| f.locations.describe(e.location));
    assert!(adjoint.into_iter().any(|t| t.starts_with("transpose(mul_zero) of jvp(sin) of ")));
}

/// Branches and loops of a function in text, differentiated as a function.
#[test]
fn e6_branches_and_loops_in_ssa() {
    let text = "func @f(%x: f64[], %p: bool[]) -> (y: f64[]) {
      %0: f64[] = cond %p, %x
        region (%1: f64[]) {
          %2: f64[] = sin %1
          return %2
        }
        region (%3: f64[]) {
          %4: f64[] = mul %3, %3
          return %4
        }
      %5: f64[] = scan %0, %x {captures=1, carries=1, length=3}
        region (%6: f64[], %7: f64[]) {
          %8: f64[] = mul %6, %7
          return %8
        }
      return %5
    }";
    let mut program = wengert::core::graph::parse_program(text, "f.ir").unwrap();
    let slope = wengert::autodiff::function::Grad { wrt: &["x"], ..Default::default() };
    let gradient = wengert::autodiff::function::grad(&program, "f", &slope).unwrap().function;
    program.add(gradient).unwrap();
    let x = 1.3f64;
    // sin(x)·x³, or x²·x³.
    for (p, wanted) in
        [(true, x.cos() * x.powi(3) + 3.0 * x.sin() * x.powi(2)), (false, 5.0 * x.powi(4))]
    {
        let inputs = [Literal::from(x), Literal::from(p)];
        let found =
            interpret::run(program.get("f_grad").unwrap(), &inputs).unwrap()[0].get(0).to_f64();
        assert!((found - wanted).abs() < 1e-13, "{found}, not {wanted}");
    }
}

#[test]
fn e7_what_gets_no_gradient_is_a_typed_nothing() {
    let f = FunctionBuilder::build("f", |b| {
        let (x, i) = (b.input("x", f64("3")), b.input("i", i32("2")));
        let gradient =
            grad(&(x, i), |(x, i): &(Tensor, Tensor)| x.sum() * i.sum().convert(DType::F64));
        b.output("x", gradient.0);
        b.output("i", gradient.1);
    });
    let f = f.unwrap();
    assert_eq!(f.output_type(1).to_string(), "i32[2]");

    // A gradient without elements, of the type `()`, if the caller asks for that.
    let results = at([3.0, 5.0], |v| {
        let point = (v[0].clone(), NoDerivative(v[1].clone()));
        let (slope, nothing): (Tensor, ()) =
            grad(&point, |(x, a): &(Tensor, NoDerivative<Tensor>)| x * x * &**a);
        let () = nothing;
        vec![slope]
    });
    assert_eq!(results, [30.0]);
}
