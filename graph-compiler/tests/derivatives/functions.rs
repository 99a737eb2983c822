//! Derivatives of functions of a program, and random programs in both modes.

use wengert_compiler::autodiff::function::{Grad, Jvp, grad, jvp};
use wengert_compiler::autodiff::operators;
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::{Function, InputRole, Program};
use wengert_core::op::Unary;
use wengert_core::{DType, Initializer, Literal, Tensor, TensorType};
use wengert_testing::Random;
use wengert_testing::derivative::*;
use wengert_testing::smooth;

fn program(function: Function) -> Program {
    let mut program = Program::new();
    program.add(function).unwrap();
    program
}

/// loss = Σ tanh(x·w)², with an additional integer, state and unused parameter.
fn loss() -> Program {
    program(
        FunctionBuilder::build("loss", |f| {
            let x = f.input("x", TensorType::new(DType::F64, [2usize, 3]));
            let labels = f.input("labels", TensorType::new(DType::I32, [2usize]));
            let variable = |shape: &[usize]| {
                Tensor::variable(TensorType::new(DType::F64, shape.to_vec()), Initializer::Zeros)
            };
            let w = f.param("model.w", variable(&[3, 2]));
            f.param("model.unused", variable(&[]));
            let count = f.state("count", variable(&[]));
            f.update("count", &(&count + 1.0));
            let y = x.dot(&w).unary(Unary::Tanh);
            f.output("y", &y);
            f.output("loss", (&y * &y).sum());
            f.output("labels", labels);
        })
        .unwrap(),
    )
}

fn inputs() -> Vec<Literal> {
    let mut random = Random(7);
    vec![
        random.literal(&TensorType::new(DType::F64, [2usize, 3])),
        Literal::from_vec(&[2], vec![0i32, 1]).unwrap(),
        random.literal(&TensorType::new(DType::F64, [3usize, 2])),
        Literal::from(1.0f64),
        Literal::from(0.0f64),
    ]
}

fn names<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    names.map(String::as_str).collect()
}

#[test]
fn the_gradient_of_a_function_is_a_function() {
    let program = loss();
    let request =
        Grad { of: Some("loss"), wrt: &["model", "x"], value: true, ..Default::default() };
    let derived = grad(&program, "loss", &request).unwrap();
    let f = &derived.function;
    assert_eq!(f.name, "loss_grad");
    assert_eq!(
        names(f.outputs.iter().map(|o| &o.name)),
        ["loss", "d_x", "d_model.w", "d_model.unused"]
    );
    assert_eq!(
        names(f.inputs.iter().map(|i| &i.name)),
        ["x", "labels", "model.w", "model.unused", "count"]
    );
    assert_eq!(f.inputs[4].role, InputRole::Param, "a gradient replaces no state");
    let [warning] = derived.warnings.as_slice() else { panic!("{:?}", derived.warnings) };
    let text = warning.to_string();
    assert!(
        text.contains("result `loss` does not depend on `%model.unused`: its gradient is zero"),
        "{text}"
    );

    let x = inputs();
    let results = run(f, &x);
    let value = run(program.get("loss").unwrap(), &x);
    assert_eq!(results[0], value[2]);
    assert_eq!(flat(&results[3..]), [0.0]);
    // Along each of the two variables, against finite differences of the loss.
    let only_loss = {
        let mut f = program.get("loss").unwrap().clone();
        f.outputs = vec![f.outputs[2].clone()];
        f.body.outputs = vec![f.body.outputs[2]];
        f
    };
    let mut random = Random(3);
    let t: Vec<Literal> = x.iter().map(|l| random.literal(&l.ty())).collect();
    let t = vec![t[0].clone(), t[2].clone(), Literal::from(0.0f64), Literal::from(0.0f64)];
    let (product, _) = inner(&flat(&results[1..3]), &flat(&t[..2]));
    assert_derivative(&[product], &only_loss, &x, &t, 1e-9, "gradient of the loss");
}

#[test]
fn a_gradient_computes_nothing_that_it_does_not_need() {
    let names = |value: bool| {
        let request = Grad { of: Some("loss"), wrt: &["x"], value, ..Default::default() };
        let f = grad(&loss(), "loss", &request).unwrap().function;
        f.body.equations.iter().map(|e| e.op.name()).collect::<Vec<_>>()
    };
    assert!(names(true).contains(&"reduce_sum"));
    assert!(!names(false).contains(&"reduce_sum"), "{:?}", names(false));
}

#[test]
fn twice_in_a_row_gives_second_derivatives() {
    let function = FunctionBuilder::build("f", |f| {
        let x = f.input("x", TensorType::scalar(DType::F64));
        let y = f.input("y", TensorType::scalar(DType::F64));
        f.output("z", x.unary(Unary::Tanh) * &y * &y);
    });
    let mut program = program(function.unwrap());
    let once =
        grad(&program, "f", &Grad { wrt: &["y"], value: true, ..Default::default() }).unwrap();
    program.add(once.function).unwrap();
    let request = Grad { of: Some("d_y"), wrt: &["x", "y"], ..Default::default() };
    let twice = grad(&program, "f_grad", &request).unwrap();
    assert_eq!(twice.function.name, "f_grad_grad");
    assert_eq!(names(twice.function.outputs.iter().map(|o| &o.name)), ["d_x", "d_d_y"]);
    let (x, y) = (0.3f64, 2.0f64);
    let results = flat(&run(&twice.function, &[Literal::from(x), Literal::from(y)]));
    let expected = [2.0 * y * (1.0 - x.tanh() * x.tanh()), 2.0 * x.tanh()];
    assert_close(&results, &expected, 1e-14, "second derivatives");
}

#[test]
fn a_seeded_gradient_and_a_jvp_make_hessian_vector_products() {
    let mut program = loss();
    let first =
        grad(&program, "loss", &Grad { of: Some("loss"), wrt: &["model.w"], ..Default::default() });
    program.add(first.unwrap().function).unwrap();
    let forward = jvp(&program, "loss_grad", &Jvp { wrt: &["model.w"] }).unwrap();
    let f = &forward.function;
    assert_eq!(f.name, "loss_grad_jvp");
    assert_eq!(f.inputs.last().unwrap().name, "t_model.w");
    assert_eq!(names(f.outputs.iter().map(|o| &o.name)), ["d_model.w", "t_d_model.w"]);
    let seeded = Grad { wrt: &["model.w"], seed: true, ..Default::default() };
    let reverse = grad(&program, "loss_grad", &seeded).unwrap();
    assert_eq!(reverse.function.name, "loss_grad_vjp");
    assert_eq!(reverse.function.inputs.last().unwrap().name, "ct_d_model.w");
    // The Hessian is symmetric, so pushing forward equals pulling back.
    let mut x = inputs();
    x.push(Random(9).literal(&TensorType::new(DType::F64, [3usize, 2])));
    let (a, b) = (run(f, &x), run(&reverse.function, &x));
    assert_close(&flat(&a[1..]), &flat(&b), 1e-12, "Hessian times vector");
}

#[test]
fn a_jvp_keeps_state_and_roles() {
    let derived = jvp(&loss(), "loss", &Jvp { wrt: &["x"] }).unwrap();
    let f = &derived.function;
    assert_eq!(f.inputs[4].role, InputRole::State);
    assert_eq!(
        names(f.outputs.iter().map(|o| &o.name)),
        ["count", "y", "loss", "labels", "t_count", "t_y", "t_loss"]
    );
    assert_eq!(derived.warnings.len(), 1, "{:?}", derived.warnings);
}

#[test]
fn wrong_requests_are_explained() {
    let program = loss();
    let error = |function: &str, of: Option<&str>, wrt: &[&str]| {
        grad(&program, function, &Grad { of, wrt, ..Default::default() }).unwrap_err().to_string()
    };
    let cases = [
        (error("los", None, &["x"]), vec!["there is no function `@los`", "@loss"]),
        (
            error("loss", Some("lost"), &["x"]),
            vec!["@loss: there is no output `lost`", "did you mean `loss`?"],
        ),
        (
            error("loss", Some("y"), &["x"]),
            vec!["grad needs a scalar output; `y` has shape f64[2,2]", ".sum()"],
        ),
        (
            error("loss", Some("labels"), &["x"]),
            vec!["output `labels` has type i32[2]: i32 has no derivative"],
        ),
        (
            error("loss", None, &["model.v"]),
            vec!["there is no input `model.v`", "did you mean `model.w`?"],
        ),
        (
            error("loss", None, &["labels"]),
            vec!["`labels` has type i32[2]: i32 has no derivative", "functions.rs:"],
        ),
        (error("loss", None, &[]), vec!["no input is named", "x, model.w, model.unused, count"]),
        (error("loss", None, &["mod"]), vec!["there is no input `mod`", "inputs are"]),
    ];
    for (text, parts) in cases {
        parts.into_iter().for_each(|part| assert!(text.contains(part), "`{part}` in: {text}"));
    }
    assert!(
        grad(&program, "loss", &Grad { wrt: &["x"], ..Default::default() }).is_ok(),
        "one scalar output"
    );
}

#[test]
fn random_programs_have_the_same_derivatives_forwards_and_in_reverse() {
    for seed in 1..40 {
        let f = smooth::random(seed, 4 + seed as usize % 9, true);
        let types = vec![smooth::ty(); 5];
        let both = build(&types, |v| {
            let (x, t, c) = (v[..2].to_vec(), v[2..4].to_vec(), &v[4]);
            let (_, forward) = operators::jvp(&x, &t, |x: &Vec<Tensor>| f(x));
            let reverse = operators::vjp(&x, |x: &Vec<Tensor>| f(x)).1(c);
            let second = operators::jvp(&x, &t, |x: &Vec<Tensor>| {
                operators::vjp(x, |x: &Vec<Tensor>| f(x)).1(c)
            })
            .1;
            let inner = |a: &[Tensor], b: &[Tensor]| {
                a.iter().zip(b).map(|(a, b)| (a * b).sum()).reduce(|a, b| a + b).unwrap()
            };
            // ⟨t, H·t⟩ by forward-over-reverse and by forward-over-forward.
            let along =
                |x: &Vec<Tensor>| (operators::jvp(x, &t, |x: &Vec<Tensor>| f(x)).1 * c).sum();
            let twice = operators::jvp(&x, &t, along).1;
            vec![(&forward * c).sum(), inner(&reverse, &t), inner(&second, &t), twice]
        });
        let mut random = Random(seed << 7 | 1);
        let inputs: Vec<Literal> = types.iter().map(|ty| random.literal(ty)).collect();
        let values = flat(&run(&both, &inputs));
        assert_close(&values[..1], &values[1..2], 1e-11, &format!("program {seed}"));
        assert_close(&values[2..3], &values[3..], 1e-10, &format!("program {seed}, second order"));
    }
}
