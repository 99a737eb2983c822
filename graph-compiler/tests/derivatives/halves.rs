//! Functions in files: matrices, series, transposes, and derivatives in two halves.

use wengert_compiler::autodiff::function::{
    Grad, Hessian, Jacobian, Jet, Jvp, ResidualKind, grad, hessian, hvp, jacobian, jet, jvp,
    linearize, split, transpose,
};
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::{Function, InputRole, Program, parse_program};
use wengert_core::{Binding, DType, Dim, Initializer, Literal, Tensor, TensorType};
use wengert_testing::Random;
use wengert_testing::derivative::*;

fn outputs(f: &Function) -> Vec<&str> {
    f.outputs.iter().map(|o| o.name.as_str()).collect()
}

fn inputs(f: &Function) -> Vec<&str> {
    f.inputs.iter().map(|i| i.name.as_str()).collect()
}

/// y = tanh(x·w + b) and loss = Σ y², with a batch of any size, a state and an unused input.
fn layer() -> Program {
    let mut program = Program::new();
    let x = TensorType::new(DType::F64, [Dim::variable("B"), Dim::from(3)]);
    let build = |f: &mut FunctionBuilder| {
        let x = f.input("x", x);
        let w = f.param("w", Tensor::variable(f64s(&[3, 2]), Initializer::Zeros));
        let b = f.state("b", Tensor::variable(f64s(&[2]), Initializer::Zeros));
        let unused = f.input("unused", f64s(&[2]));
        let y = (x.dot(&w) + &b).tanh();
        f.output("y", &y);
        f.output("loss", y.square().sum());
        f.update("b", &(&b + &unused));
    };
    program.function("layer", build).unwrap();
    program
}

fn values() -> Vec<Literal> {
    let mut random = Random(0x1a7e);
    [&[4, 3][..], &[3, 2], &[2], &[2]].map(|s| random.literal(&f64s(s))).to_vec()
}

fn bound(f: &Function) -> Function {
    f.bind(&Binding::new().with("B", 4)).unwrap()
}

#[test]
fn jacobians_of_functions_are_those_of_closures() {
    let program = layer();
    for (forward, name) in [(true, "layer_jacfwd"), (false, "layer_jacrev")] {
        let request = Jacobian { of: Some("y"), wrt: &["w", "b", "unused"], value: true, forward };
        let derived = jacobian(&program, "layer", &request).unwrap();
        let f = &derived.function;
        assert_eq!((f.name.as_str(), outputs(f)), (name, vec!["y", "d_w", "d_b", "d_unused"]));
        assert_eq!(f.inputs[2].role, InputRole::Param);
        assert_eq!(derived.warnings.len(), 1, "{:?}", derived.warnings);
        assert!(derived.warnings[0].message.contains("does not depend on `%unused`"));
        let results = run(&bound(f), &values());
        assert_eq!(results[1].shape(), [4, 2, 3, 2]);
        // The derivative of y[i,j] depends only on row i. It is compared with seeded reverse mode,
        // one element at a time.
        let seeded = Grad { of: Some("y"), wrt: &["w", "b"], seed: true, ..Default::default() };
        let vjp = bound(&grad(&program, "layer", &seeded).unwrap().function);
        for at in 0..8 {
            let mut seed = vec![0.0; 8];
            seed[at] = 1.0;
            let mut given = values();
            given.push(Literal::from_vec(&[4, 2], seed).unwrap());
            let rows = run(&vjp, &given);
            assert_close(&flat(&results[1..2])[at * 6..][..6], &flat(&rows[..1]), 1e-14, "d_w");
            assert_close(&flat(&results[2..3])[at * 2..][..2], &flat(&rows[1..]), 1e-14, "d_b");
        }
        assert_eq!(flat(&results[3..]), vec![0.0; 16]);
    }
}

#[test]
fn a_hessian_has_a_block_for_each_two_inputs() {
    let program = layer();
    let request = Hessian { of: Some("loss"), wrt: &["w", "b"], value: true };
    let whole = hessian(&program, "layer", &request).unwrap().function;
    assert_eq!(whole.name, "layer_hessian");
    assert_eq!(outputs(&whole), ["loss", "d_w", "d_b", "d_w_d_w", "d_w_d_b", "d_b_d_w", "d_b_d_b"]);
    let blocks = run(&bound(&whole), &values());
    let product = hvp(&program, "layer", &request).unwrap().function;
    assert_eq!(outputs(&product), ["loss", "d_w", "d_b", "t_d_w", "t_d_b"]);
    assert_eq!(inputs(&product), ["x", "w", "b", "unused", "t_w", "t_b"]);
    // By jvp of grad, which is the other way for users of files.
    let mut twice = program.clone();
    let first = Grad { of: Some("loss"), wrt: &["w", "b"], ..Default::default() };
    twice.add(grad(&program, "layer", &first).unwrap().function).unwrap();
    let nested = jvp(&twice, "layer_grad", &Jvp { wrt: &["w", "b"] }).unwrap().function;
    let mut random = Random(4);
    let directions = [random.literal(&f64s(&[3, 2])), random.literal(&f64s(&[2]))];
    let given = [&values()[..], &directions].concat();
    let (a, b) = (run(&bound(&product), &given), run(&bound(&nested), &given));
    assert_close(&flat(&a[1..]), &flat(&b), 1e-14, "hvp and jvp of grad");
    let (t, u) = (flat(&directions[..1]), flat(&directions[1..]));
    for (row, width, block) in [(&a[3], 6, 3), (&a[4], 2, 5)] {
        let (by_w, by_b) = (flat(&blocks[block..=block]), flat(&blocks[block + 1..block + 2]));
        for i in 0..width {
            let sum = inner(&by_w[i * 6..][..6], &t).0 + inner(&by_b[i * 2..][..2], &u).0;
            assert_close(
                &flat(std::slice::from_ref(row))[i..=i],
                &[sum],
                1e-12,
                "a row of the Hessian",
            );
        }
    }
}

#[test]
fn a_jet_of_a_function_takes_and_gives_a_derivative_for_each_order() {
    let program = layer();
    let derived = jet(&program, "layer", &Jet { wrt: &["w"], order: 3 }).unwrap();
    let f = &derived.function;
    assert_eq!(inputs(f), ["x", "w", "b", "unused", "t1_w", "t2_w", "t3_w"]);
    assert_eq!(
        outputs(f),
        [
            "y", "loss", "b", "t1_y", "t1_loss", "t1_b", "t2_y", "t2_loss", "t2_b", "t3_y",
            "t3_loss", "t3_b"
        ]
    );
    assert_eq!(derived.warnings.len(), 1, "b does not depend on w: {:?}", derived.warnings);
    // Along a straight line the third derivative is jvp of jvp of jvp.
    let mut random = Random(6);
    let t = random.literal(&f64s(&[3, 2]));
    let zero = Literal::zeros(DType::F64, &[3, 2]);
    let series = run(&bound(f), &[&values()[..], &[t.clone(), zero.clone(), zero]].concat());
    let line = |h: f64| {
        let mut x = values();
        let moved = moved(&x[1..2], std::slice::from_ref(&t), h);
        x[1] = moved[0].clone();
        flat(&run(&bound(program.get("layer").unwrap()), &x)[1..2])[0]
    };
    let h = 1e-2;
    let third =
        (line(2.0 * h) - 2.0 * line(h) + 2.0 * line(-h) - line(-2.0 * h)) / (2.0 * h * h * h);
    assert_close(&flat(&series[10..11]), &[third], 1e-3, "third derivative");
    let error = jet(&program, "layer", &Jet { wrt: &["w"], order: 0 }).unwrap_err();
    assert!(error.to_string().contains("order 0"), "{error}");
}

const LINEAR: &str = "\
func @average(%x: f64[B,3], %w: f64[3]) -> (y: f64[B], z: f64[B]) {
  %0: f64[B] = dot_general %x, %w {contract=[[1],[0]]}
  %1: f64[B] = neg %0
  return %0, %1
}
func @curved(%x: f64[3]) -> (f64[3]) {
  %0: f64[3] = neg %x
  %1: f64[3] = mul %0, %x
  return %1
}
";

#[test]
fn a_linear_function_is_transposed_and_another_is_refused_with_its_line() {
    let program = parse_program(LINEAR, "linear.ir").unwrap();
    let f = transpose(&program, "average", &["x"]).unwrap().function;
    assert_eq!(
        (f.name.as_str(), inputs(&f), outputs(&f)),
        ("average_transpose", vec!["w", "ct_y", "ct_z"], vec!["ct_x"])
    );
    let bound = f.bind(&Binding::new().with("B", 2)).unwrap();
    let given = [&[1.0, 2.0, 3.0][..], &[10.0, 100.0], &[1.0, 2.0]]
        .map(|v| Literal::from_vec(&[v.len()], v.to_vec()).unwrap());
    assert_eq!(flat(&run(&bound, &given)), [9.0, 18.0, 27.0, 98.0, 196.0, 294.0]);
    let back = Program::from_functions(vec![f]).unwrap();
    let twice = transpose(&back, "average_transpose", &["ct_y", "ct_z"]).unwrap().function;
    assert_eq!(
        (inputs(&twice), outputs(&twice)),
        (vec!["w", "ct_ct_x"], vec!["ct_ct_y", "ct_ct_z"])
    );
    let error = transpose(&program, "curved", &["x"]).unwrap_err().to_string();
    assert!(
        error.contains("@curved: `mul` is not linear here, so it cannot be transposed"),
        "{error}"
    );
    assert!(error.contains("linear.ir:8:"), "{error}");
    let error = transpose(&program, "average", &["x", "w"]).unwrap_err().to_string();
    assert!(
        error.contains("`dot_general` is not linear here") && error.contains("linear.ir:2:"),
        "{error}"
    );
}

#[test]
fn both_halves_together_are_the_gradient() {
    let program = layer();
    let request =
        Grad { of: Some("loss"), wrt: &["x", "w", "b", "unused"], value: true, seed: false };
    let halves = split(&program, "layer", &request).unwrap();
    assert_eq!(outputs(&halves.forward), ["y", "loss", "r_0", "r_1"]);
    assert_eq!(halves.warnings.len(), 1, "{:?}", halves.warnings);
    assert_eq!(outputs(&halves.derivative), ["d_x", "d_w", "d_b", "d_unused"]);
    assert_eq!(halves.derivative.name, "layer_backward");
    // Inputs of both halves keep their name and role. State is only read.
    let roles: Vec<(&str, InputRole)> =
        halves.derivative.inputs.iter().map(|i| (i.name.as_str(), i.role)).collect();
    for shared in [
        ("x", InputRole::Input),
        ("w", InputRole::Param),
        ("r_0", InputRole::Input),
        ("ct_loss", InputRole::Input),
    ] {
        assert!(roles.contains(&shared), "{shared:?} in {roles:?}");
    }
    // The residual structure is typed, in terms of the dimension variable, and names its source.
    let stored: Vec<_> =
        halves.residuals.0.iter().filter(|r| matches!(r.kind, ResidualKind::Stored(_))).collect();
    // The factors 1 − y² and 2y of the rules of tanh and square.
    assert_eq!(stored.len(), 2);
    assert_eq!(stored[0].ty.to_string(), "f64[B,2]");
    assert_eq!(stored[0].bytes().unwrap().to_string(), "16*B");
    let text = halves.residuals.to_string();
    for part in [
        "%r_0",
        "%x (input)",
        "%w (input)",
        "f64[B,2]",
        "16*B bytes",
        "halves.rs:",
        "jvp(tanh)",
        "jvp(square)",
    ] {
        assert!(text.contains(part), "`{part}` in:\n{text}");
    }
    assert_eq!(text.lines().count(), halves.residuals.0.len());

    let fused = run(&bound(&grad(&program, "layer", &request).unwrap().function), &values());
    let forward = run(&bound(&halves.forward), &values());
    assert_eq!(forward[1], fused[0]);
    let given: Vec<Literal> = halves
        .derivative
        .inputs
        .iter()
        .map(|input| match input.name.as_str() {
            "ct_loss" => Literal::from(1.0f64),
            name => match halves.forward.outputs.iter().position(|o| o.name == name) {
                Some(at) => forward[at].clone(),
                None => values()[program.get("layer").unwrap().input_index(name).unwrap()].clone(),
            },
        })
        .collect();
    assert_eq!(run(&bound(&halves.derivative), &given), fused[1..]);
}

#[test]
fn a_function_and_its_linear_program() {
    let program = layer();
    let halves = linearize(&program, "layer", &Jvp { wrt: &["w", "unused"] }).unwrap();
    assert_eq!(outputs(&halves.derivative), ["t_y", "t_loss", "t_b"]);
    assert_eq!(outputs(&halves.forward), ["y", "loss", "b", "r_0", "r_1"]);
    let whole = jvp(&program, "layer", &Jvp { wrt: &["w", "unused"] }).unwrap().function;
    let mut random = Random(12);
    let t = [random.literal(&f64s(&[3, 2])), random.literal(&f64s(&[2]))];
    let expected = run(&bound(&whole), &[&values()[..], &t].concat());
    let forward = run(&bound(&halves.forward), &values());
    let given: Vec<Literal> = inputs(&halves.derivative)
        .into_iter()
        .map(|name| match name {
            "t_w" => t[0].clone(),
            "t_unused" => t[1].clone(),
            name => {
                match halves
                    .forward
                    .outputs
                    .iter()
                    .position(|o| o.name == name && name.starts_with("r_"))
                {
                    Some(at) => forward[at].clone(),
                    None => {
                        values()[program.get("layer").unwrap().input_index(name).unwrap()].clone()
                    }
                }
            }
        })
        .collect();
    let found = run(&bound(&halves.derivative), &given);
    let named: Vec<Literal> = ["t_y", "t_loss", "t_b"]
        .iter()
        .map(|name| expected[outputs(&whole).iter().position(|o| o == name).unwrap()].clone())
        .collect();
    assert_eq!(found, named);
}

#[test]
fn constants_are_computed_again_and_not_handed_on() {
    let mut program = Program::new();
    let build = |f: &mut FunctionBuilder| {
        let x = f.input("x", f64s(&[4]));
        let scale = (Tensor::iota(DType::F64, [4usize], 0) + 1.0).sqrt();
        f.output("loss", (x.sin() * &scale).sum());
    };
    program.function("f", build).unwrap();
    let halves = split(&program, "f", &Grad { wrt: &["x"], ..Default::default() }).unwrap();
    assert_eq!(halves.residuals.0.len(), 1, "{}", halves.residuals);
    assert_eq!(outputs(&halves.forward), ["loss", "r_0"]);
    assert!(halves.derivative.body.equations.iter().any(|e| e.op.name() == "iota"));
    assert_eq!(inputs(&halves.derivative), ["r_0", "ct_loss"]);
    let x = Literal::from_vec(&[4], vec![0.1, 0.2, 0.3, 0.4]).unwrap();
    let residual = run(&halves.forward, std::slice::from_ref(&x))[1].clone();
    let gradient = flat(&run(&halves.derivative, &[residual, Literal::from(2.0f64)]));
    let expected: Vec<f64> =
        (1..5).map(|i| 2.0 * (i as f64).sqrt() * (0.1 * i as f64).cos()).collect();
    assert_close(&gradient, &expected, 1e-15, "gradient");
}

#[test]
fn mistakes_in_files_name_the_line() {
    let program = parse_program(
        "func @f(%x: f32[3], %n: i32[]) -> (loss: f32[3]) {\n  \
         %0: f32[3] = exp %x\n  return %0\n}\n",
        "f.ir",
    )
    .unwrap();
    let text =
        grad(&program, "f", &Grad { wrt: &["x"], ..Default::default() }).unwrap_err().to_string();
    assert!(
        text.contains(
            "grad needs a scalar output; `loss` has shape f32[3]. Reduce it with `.sum()` or use \
             `jacrev`"
        ),
        "{text}"
    );
    assert!(text.contains("f.ir:2:"), "{text}");
    let text = hessian(&program, "f", &Hessian { wrt: &["x"], ..Default::default() })
        .unwrap_err()
        .to_string();
    assert!(text.contains("hessian needs a scalar output; `loss` has shape f32[3]"), "{text}");
    let text = jacobian(&program, "f", &Jacobian { wrt: &["n"], ..Default::default() })
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("`n` has type i32[]: i32 has no derivative") && text.contains("f.ir:1:"),
        "{text}"
    );
    let text = split(&program, "f", &Grad { of: Some("los"), wrt: &["x"], ..Default::default() })
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("there is no output `los`") && text.contains("did you mean `loss`?"),
        "{text}"
    );
}
