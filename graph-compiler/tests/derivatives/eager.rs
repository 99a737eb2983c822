//! Define by run: compared with the static graph bit for bit, and used where a static graph is
//! impossible.

use wengert_compiler::autodiff::eager::{Tracked, gradient, or_poison, pull_back, push_forward};
use wengert_compiler::autodiff::list::trace;
use wengert_compiler::autodiff::operators::{grad, jvp, value_and_grad, vjp};
use wengert_core::{Differentiable, Literal, Result, Tensor};
use wengert_testing::Random;
use wengert_testing::derivative::{assert_close, build, flat, number, run};
use wengert_testing::smooth;

fn item(x: &Tensor) -> f64 {
    x.item().unwrap_or_else(|e| panic!("{e}"))
}

fn values(tensors: &[Tensor]) -> Vec<Literal> {
    tensors.iter().map(|t| t.value().unwrap_or_else(|e| panic!("{e}"))).collect()
}

/// Random programs of two inputs. The value and the gradient have the bits of the interpreter. The
/// gradient of the gradient's squares has them too if it is computed by operators on closures. If
/// it is computed by walking the list back twice, it agrees within rounding.
#[test]
fn values_and_gradients_are_those_of_the_static_graph() {
    for seed in 1..=60u64 {
        let mut random = Random(seed);
        let length = 3 + random.below(10);
        let program = smooth::random(seed * 7 + 1, length, true);
        let f = |x: &Vec<Tensor>| program(x).sum();
        let squares =
            |g: &[Tensor]| g.iter().map(|g| g.square().sum()).reduce(|a, b| a + b).unwrap();
        let ty = smooth::ty();
        let point = [random.literal(&ty), random.literal(&ty)];

        let statically = build(&[ty.clone(), ty], |x| {
            let x = x.to_vec();
            let second = grad(&x, |x| squares(&grad(x, f)));
            let (value, first) = value_and_grad(&x, f);
            [vec![value], first, second].concat()
        });
        let expected = run(&statically, &point);

        let x = Tracked::new(&point.clone().map(Tensor::constant).to_vec());
        let value = f(&x);
        let first = x.gradient(&value);
        let second = x.gradient(&squares(&first));
        let walked = values(&[vec![value], first, second].concat());
        assert_eq!(walked[..3], expected[..3], "seed {seed}\n{x}");
        // Values that the gradient shares with the value are earlier in the list. So their
        // gradients may be added in another order.
        assert_close(&flat(&walked[3..]), &flat(&expected[3..]), 1e-13, "second order");

        let x = Tracked::new(&point.clone().map(Tensor::constant).to_vec());
        let second = grad(&*x, |x| squares(&grad(x, f)));
        let (value, first) = value_and_grad(&*x, f);
        let by_closures = [vec![value], first, second].concat();
        assert_eq!(values(&by_closures), expected, "seed {seed}, by closures");

        // The recorded list, applied to other numbers, has the bits of the static graph.
        let list = x.list(&f(&x)).unwrap();
        let other = [&point[1], &point[0]].map(|l| Tensor::constant(l.clone())).to_vec();
        let expected = run(&statically, &[point[1].clone(), point[0].clone()]);
        assert_eq!(
            list.evaluate(&other).unwrap().value().unwrap(),
            expected[0],
            "seed {seed}\n{list}"
        );
        let gradient = list.grad().unwrap().evaluate(&other).unwrap();
        assert_eq!(values(&gradient), expected[1..3], "seed {seed}, gradient of the list");
    }
}

/// xⁿ for the least n with xⁿ ≥ 100.
fn power(x: &Tensor) -> Result<Tensor> {
    let mut y = x.clone();
    while y.item()? < 100.0 {
        y = y * x;
    }
    Ok(y)
}

#[test]
fn a_program_decides_by_values_what_to_do_next() {
    let x = Tracked::new(&number(3.0));
    let y = power(&x).unwrap();
    assert_eq!((item(&y), item(&x.gradient(&y))), (243.0, 405.0));
    assert_eq!(item(&x.gradient(&x.gradient(&y))), 540.0);
    // The same closure, differentiated at a point. It reads the values at the point, nested or not.
    let f = |x: &Tensor| or_poison(power(x));
    assert_eq!(item(&grad(&*x, f)), 405.0);
    assert_eq!(item(&grad(&*x, |x| grad(x, f))), 540.0);
    assert_eq!(item(&jvp(&*x, &number(2.0), f).1), 810.0);
    let (value, pullback) = vjp(&*x, f);
    assert_eq!(
        (item(&value), item(&pullback(&number(10.0))), item(&pullback(&number(1.0)))),
        (243.0, 4050.0, 405.0)
    );
    // |x| by a branch.
    let absolute = |x: &Tensor| if item(x) < 0.0 { -x } else { x.clone() };
    let slopes = [-2.0, 2.0].map(|x| item(&grad(&*Tracked::new(&number(x)), absolute)));
    assert_eq!(slopes, [-1.0, 1.0]);
}

#[test]
fn the_whole_list_is_printed_with_its_values() {
    let x = Tracked::new(&number(3.0));
    let y = &*x * &*x;
    let _ = y.sin() + 1;
    let text = x.to_string();
    let lines: Vec<&str> = text.lines().map(|l| l.split("//").next().unwrap().trim_end()).collect();
    let sin = 9f64.sin();
    let expected = [
        "x0: f64[] → 3.0".to_string(),
        "v1: f64[] = mul x0, x0 → 9.0".into(),
        format!("v2: f64[] = sin v1 → {sin:?}"),
        format!("v3: f64[] = add v2, 1.0 → {:?}", sin + 1.0),
    ];
    assert_eq!(lines, expected, "{text}");
    assert!(text.contains("tests/derivatives/eager.rs:"), "{text}");
    // Equations of a derivative are appended.
    let _ = x.gradient(&y);
    assert!(x.to_string().contains("transpose("), "{x}");
}

#[test]
fn a_derivative_computes_nothing_again() {
    let x = Tracked::new(&number(0.5));
    let y = x.tanh().exp().sin();
    let count = |what: &str| x.to_string().matches(&format!("= {what} ")).count();
    let (first, again) = (x.gradient(&y), x.gradient(&y));
    assert_eq!(item(&first), item(&again));
    assert_eq!((count("tanh"), count("exp"), count("sin")), (1, 1, 1), "{x}");
}

#[test]
fn derivatives_by_any_value_of_the_list() {
    let x = Tracked::new(&number(3.0));
    let a = x.beside(&number(5.0));
    let middle = &*x * &*a;
    let y = &middle * &middle + &*x;
    assert_eq!(item(&x.gradient(&y)), 2.0 * 15.0 * 5.0 + 1.0);
    assert_eq!(item(&a.gradient(&y)), 2.0 * 15.0 * 3.0);
    assert_eq!(item(&gradient(&y, &middle)), 30.0, "x is constant to what begins in the midst");
    let pair = gradient(&y, &(middle.clone(), (*x).clone()));
    assert_eq!((item(&pair.0), item(&pair.1)), (30.0, 1.0));
    let results = (y.clone(), middle.clone());
    assert_eq!(item(&pull_back(&results, &(number(1.0), number(10.0)), &*x)), 151.0 + 50.0);
    let (dy, dm) = push_forward(&results, &*x, &number(2.0));
    assert_eq!((item(&dy), item(&dm)), (302.0, 10.0));
    // The list has captured the value of the other input.
    let list = x.list(&y).unwrap();
    assert!(list.function("f").unwrap_err().message.contains("1 values of the function"));
    assert_eq!(item(&list.evaluate(&number(1.0)).unwrap()), 26.0);
}

#[test]
fn lists_and_tracked_values_nest() {
    let cube = trace(&number(0.0), |x| x * x * x).unwrap();
    let x = Tracked::new(&number(2.0));
    // A list that is called on values is computed immediately. A list that is called during tracing
    // is not.
    assert_eq!(item(&cube.call(&x)), 8.0);
    assert_eq!(item(&cube.grad().unwrap().call(&x)), 12.0);
    assert_eq!(item(&x.gradient(&cube.call(&x))), 12.0);
    let inner = x.run(|x| trace(&number(0.0), |y| x * y * y)).unwrap();
    assert_eq!(item(&inner.call(&number(3.0))), 18.0);
    // A separate computation on a value of this one does not record into it.
    let y = x.square();
    let other = Tracked::new(&y);
    assert_eq!(item(&other.gradient(&other.square())), 8.0);
    assert_eq!(item(&y), 4.0);
    // D(x ↦ x · D(y ↦ x + y)(1))(1) = 1.
    let one = Tracked::new(&number(1.0));
    assert_eq!(item(&grad(&*one, |x| x * grad(&number(1.0), |y: &Tensor| x + y))), 1.0);
}

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct Model {
    weight: Tensor,
    bias: Tensor,
}

#[test]
fn models_are_tracked() {
    let vector = |x: Vec<f64>| Tensor::constant(Literal::from_vec(&[x.len()], x).unwrap());
    let model = Tracked::new(&Model { weight: vector(vec![1.0, 2.0]), bias: number(3.0) });
    let loss = (&model.weight * &model.bias * 2.0).sum();
    let gradient: Model = model.gradient(&loss);
    assert_eq!(
        values(std::slice::from_ref(&gradient.weight))[0].as_slice::<f64>().unwrap(),
        [6.0, 6.0]
    );
    assert_eq!(item(&gradient.bias), 6.0);
    let moved = model.move_along(&gradient);
    assert_eq!(item(&moved.bias), 9.0);
}

#[test]
fn mistakes_are_explained() {
    let error = |t: &Tensor| t.error().unwrap_or_else(|| panic!("{t:?} is no error")).to_string();
    let x = Tracked::new(&number(3.0));
    let vector = Tensor::constant(Literal::from_vec(&[2], vec![1.0, 2.0]).unwrap());
    let wide = &*x * &vector;
    assert!(error(&x.gradient(&wide)).contains("needs a scalar of floats; this is f64[2]"));
    assert!(wide.item().unwrap_err().message.contains("2 elements"));
    let other = Tracked::new(&number(1.0));
    let text = error(&x.gradient(&other.sin()));
    assert!(text.contains("belongs to another list") && text.contains("eager.rs:"), "{text}");
    assert!(error(&(&*x + &*other)).contains("belongs to another function"));
    let symbolic = Tensor::variable(vector.ty().clone(), wengert_core::Initializer::Zeros);
    assert!(error(&Tracked::new(&symbolic)).contains("tracked here"));
    // No path of the list leads to this tensor.
    assert_eq!(item(&x.gradient(&number(1.0))), 0.0);
}
