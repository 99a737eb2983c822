//! Wengert lists as values.

use wengert_compiler::autodiff::list::trace;
use wengert_compiler::autodiff::operators::{grad, jvp};
use wengert_core::{DType, Differentiable, Literal, NoDerivative, Tensor, TensorType};
use wengert_testing::derivative::{at, build, number, run};

fn vector(x: &[f64]) -> Tensor {
    Tensor::constant(Literal::from_vec(&[x.len()], x.to_vec()).unwrap())
}

fn cube(x: &Tensor) -> Tensor {
    (1..3).fold(x.clone(), |y, _| y * x)
}

/// The text without the source lines, after a check that each is in this file.
fn text(list: impl std::fmt::Display) -> String {
    let strip = |line: &str| {
        let (line, note) = line.split_once("//").unwrap_or((line, "tests/derivatives/list.rs:"));
        assert!(note.contains("tests/derivatives/list.rs:"), "{line}{note}");
        line.trim_end().to_string() + "\n"
    };
    list.to_string().lines().map(strip).collect()
}

#[test]
fn a_list_is_printed_one_operation_a_line() {
    let list = trace(&number(0.0), cube).unwrap();
    assert_eq!(text(&list), "x: f64[]\nv1: f64[] = mul x, x\nv2: f64[] = mul v1, x\ny = v2\n");
    let list =
        trace(&(vector(&[0.0; 3]), NoDerivative("name")), |(x, _)| vec![2.0 * x, x.sum() + 1])
            .unwrap();
    let expected = "\
x.0: f64[3]
v1: f64[3] = broadcast_in_dim 2.0 {shape=[3]}
v2: f64[3] = mul v1, x.0
v3: f64[] = reduce_sum x.0 {axes=[0]}
v4: f64[] = add v3, 1.0
y.0 = v2
y.1 = v4
";
    assert_eq!(text(&list), expected);
    assert_eq!(list.len(), 4);
    assert!(trace(&number(0.0), |x| x.clone()).unwrap().is_empty());
    // Derivative code names the equation that it comes from.
    let printed = trace(&number(0.0), |x| x.tanh()).unwrap().grad().unwrap().to_string();
    assert!(
        printed.contains("jvp(tanh) of ") && printed.contains("tests/derivatives/list.rs:"),
        "{printed}"
    );
}

#[test]
fn a_list_is_evaluated_differentiated_and_differentiated_again() {
    let list = trace(&number(0.0), cube).unwrap();
    let (first, second) = (list.grad().unwrap(), list.grad().unwrap().grad().unwrap());
    let third = second.grad().unwrap();
    let of = |list: &wengert_compiler::autodiff::list::WengertList<Tensor, Tensor>| {
        list.evaluate(&number(5.0)).unwrap().item().unwrap()
    };
    assert_eq!([of(&list), of(&first), of(&second), of(&third)], [125.0, 75.0, 30.0, 6.0]);
    let (value, slope) = list.value_and_grad().unwrap().evaluate(&number(5.0)).unwrap();
    assert_eq!((value.item().unwrap(), slope.item().unwrap()), (125.0, 75.0));
    let (y, t) = list.jvp().unwrap().evaluate(&(number(5.0), number(2.0))).unwrap();
    assert_eq!((y.item().unwrap(), t.item().unwrap()), (125.0, 150.0));
    let (y, c) = list.vjp().unwrap().evaluate(&(number(5.0), number(3.0))).unwrap();
    assert_eq!((y.item().unwrap(), c.item().unwrap()), (125.0, 225.0));
    // The gradient does not compute the value: 3x² does not need x³.
    assert!(first.body().equations.len() < list.value_and_grad().unwrap().body().equations.len());
}

#[test]
fn a_list_is_called_where_a_function_is_built_and_by_other_lists() {
    let cube = trace(&number(0.0), cube).unwrap();
    assert_eq!(at(2.0, |x| cube.call(x) + cube.call(&(x + 1.0))), 8.0 + 27.0);
    assert_eq!(at(2.0, |x| grad(x, |x| cube.call(x))), 12.0);
    let dcube = cube.grad().unwrap();
    let nested = trace(&number(0.0), |x| dcube.call(&cube.call(x))).unwrap();
    assert_eq!(nested.evaluate(&number(2.0)).unwrap().item().unwrap(), 3.0 * 64.0);
    // Calling a list copies its locations into the other function's table.
    let f = build(&[TensorType::scalar(DType::F64)], |x| vec![dcube.call(&x[0])]);
    for equation in &f.body.equations {
        let text = f.locations.describe(equation.location);
        assert!(equation.op.name() == "constant" || text.contains("list.rs:"), "{text}");
    }
    // As a function of a program.
    let f = dcube.function("dcube").unwrap();
    assert_eq!(run(&f, &[Literal::from(5.0)])[0].get(0).to_f64(), 75.0);
    let (input, output) = (&f.inputs[0].name, &f.outputs[0].name);
    assert_eq!((f.name.as_str(), input.as_str(), output.as_str()), ("dcube", "x", "y"));
}

#[test]
fn a_list_is_traced_over_any_differentiable_value() {
    #[derive(Differentiable)]
    #[differentiable(crate = wengert_core)]
    struct Model {
        weight: Tensor,
        bias: Option<Tensor>,
        #[no_derivative]
        rounds: usize,
    }
    let model =
        |w: f64, b: f64| Model { weight: vector(&[w, 2.0 * w]), bias: Some(number(b)), rounds: 3 };
    let list = trace(&model(0.0, 0.0), |m| {
        let rounds = (0..m.rounds).fold(m.weight.clone(), |y, _| y * 0.5);
        (rounds * m.bias.as_ref().unwrap()).sum()
    })
    .unwrap();
    let gradient: Model = list.grad().unwrap().evaluate(&model(8.0, 2.0)).unwrap();
    let weight: Vec<f64> = gradient.weight.value().unwrap().scalars().map(|s| s.to_f64()).collect();
    assert_eq!((weight, gradient.bias.unwrap().item().unwrap()), (vec![0.25, 0.25], 3.0));
    let f = list.function("f").unwrap();
    let names: Vec<&str> = f.inputs.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names, ["x.weight", "x.bias"]);
}

#[test]
fn a_list_may_capture_values_of_the_function_it_is_traced_in() {
    // D(x ↦ x · D(y ↦ x + y)(1))(1) = 1. The captures of the inner list are constants in it.
    let confusion = at(1.0, |x| {
        grad(x, |x| {
            let inner = trace(&number(0.0), |y| x + y).unwrap();
            x * inner.grad().unwrap().call(&number(1.0))
        })
    });
    assert_eq!(confusion, 1.0);
    assert_eq!(
        at(3.0, |x| {
            let list = trace(&number(0.0), |y| x * y * y).unwrap();
            let error = list.function("f").unwrap_err().to_string();
            assert!(error.contains("uses 1 values of the function it was traced in"), "{error}");
            assert!(list.evaluate(&number(1.0)).is_err());
            list.grad().unwrap().call(&number(2.0))
        }),
        12.0
    );
}

#[test]
fn lists_agree_with_operators_on_closures() {
    let f = |x: &Tensor| x.sin() * x.exp() + x;
    let list = trace(&number(0.0), f).unwrap();
    let (direct, by_list) = (
        at(0.7, |x| jvp(x, &number(2.0), |x| grad(x, f)).1),
        at(0.7, |x| list.grad().unwrap().jvp().unwrap().call(&(x.clone(), number(2.0))).1),
    );
    assert_eq!(direct, by_list);
}

#[test]
fn mistakes_are_explained() {
    let list = trace(&vector(&[0.0; 2]), |x| x.sum()).unwrap();
    let error = list.evaluate(&vector(&[0.0; 3])).unwrap_err().to_string();
    assert!(
        error.contains("has type f64[3], the list was traced on f64[2]")
            && error.contains("list.rs:"),
        "{error}"
    );
    let error = trace(&number(0.0), |x| x + vector(&[1.0]).dot(&vector(&[1.0, 2.0])))
        .unwrap_err()
        .to_string();
    assert!(error.contains("dot_general"), "{error}");
    let error = trace(&vector(&[0.0]), |x| x * 1.0).unwrap();
    let same = error.vjp().unwrap();
    assert!(same.evaluate(&(vector(&[1.0]), vector(&[2.0]))).is_ok());
    // Values are not available while a list is traced.
    let mut seen = String::new();
    trace(&number(3.0), |x| {
        seen = x.item().unwrap_err().to_string();
        x.clone()
    })
    .unwrap();
    assert!(seen.contains("has no value while the graph is being built"), "{seen}");
    let list = trace(&number(0.0), cube).unwrap();
    let error = list.call(&number(2.0)).error().unwrap().to_string();
    assert!(error.contains("no function to put its operations in"), "{error}");
}
