//! Derivatives and maps of collectives, on all ranks of a mesh, by the interpreter.
#![allow(clippy::unwrap_used)] // Helpers outside of `#[test]` functions unwrap too.

use wengert_compiler::autodiff::operators::{grad, jvp, value_and_grad, vjp};
use wengert_compiler::pipeline::{Options, compile};
use wengert_compiler::ranks::DataParallel;
use wengert_compiler::vmap::operators::vmap;
use wengert_core::build::FunctionBuilder;
use wengert_core::build::control::{cond, fold, fori_upto};
use wengert_core::graph::{Function, Program, parse_program};
use wengert_core::interpret::run_ranks;
use wengert_core::plan::{Plan, Step, account, verify_ranks};
use wengert_core::{
    Binding, Call, DType, Initializer, Literal, Mesh, Op, Target, Tensor, TensorType, Verified,
};
use wengert_testing::Random;
use wengert_testing::samples::{collectives, mesh};

const BOTH: [&str; 2] = ["data", "tensor"];

/// A function on the mesh of the samples; checks that its text reads back.
fn build(types: &[TensorType], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Function {
    let function = FunctionBuilder::build("f", |b| {
        b.mesh(mesh().axes().iter().cloned());
        let inputs: Vec<Tensor> =
            types.iter().enumerate().map(|(i, ty)| b.input(&format!("x{i}"), ty.clone())).collect();
        for (i, output) in f(&inputs).iter().enumerate() {
            b.output(&format!("y{i}"), output);
        }
    });
    let function = function.unwrap_or_else(|e| panic!("{e}"));
    let text = function.to_string();
    let again = parse_program(&text, "f.ir").unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(again.to_string(), text);
    function
}

fn f64s(shape: &[usize], varying: &[&str]) -> TensorType {
    TensorType::new(DType::F64, shape.iter().copied()).varying_over(varying)
}

/// The ranks that share the values of a type with `rank`: those that differ in other axes only.
fn sharing(mesh: &Mesh, ty: &TensorType, rank: usize) -> Vec<usize> {
    let other = mesh.axes().iter().filter(|(axis, _)| !ty.varying.contains(axis));
    let other: Vec<&str> = other.map(|(axis, _)| &**axis).collect();
    mesh.group(rank, &other)
}

/// Random numbers of a type on each rank; the same where it does not vary.
fn random(ty: &TensorType, seed: u64) -> Vec<Literal> {
    let (mesh, mut random) = (mesh(), Random(seed));
    let shape = ty.extents().unwrap();
    let count: usize = shape.iter().product();
    let mut number = || random.below(2000) as f64 / 500.0 - 2.0;
    let fresh: Vec<Vec<f64>> =
        (0..mesh.ranks()).map(|_| (0..count).map(|_| number()).collect()).collect();
    let of = |rank: usize| fresh[*sharing(&mesh, ty, rank).iter().min().unwrap()].clone();
    (0..mesh.ranks()).map(|rank| Literal::from_vec(&shape, of(rank)).unwrap()).collect()
}

/// Inputs by rank from those by input.
fn by_rank(inputs: &[Vec<Literal>]) -> Vec<Vec<Literal>> {
    (0..mesh().ranks()).map(|rank| inputs.iter().map(|on| on[rank].clone()).collect()).collect()
}

fn run(function: &Function, inputs: &[Vec<Literal>]) -> Vec<Vec<Literal>> {
    run_ranks(function, &by_rank(inputs)).unwrap_or_else(|e| panic!("{e}\n{function}"))
}

/// Output number `i` on each rank; asserts that it is the same where its type says so.
fn output(function: &Function, outputs: &[Vec<Literal>], i: usize) -> Vec<Vec<f64>> {
    let of = |on: &Vec<Literal>| on[i].as_slice::<f64>().unwrap().to_vec();
    let values: Vec<Vec<f64>> = outputs.iter().map(of).collect();
    for rank in 0..values.len() {
        for other in sharing(&mesh(), function.output_type(i), rank) {
            assert_eq!(values[rank], values[other], "output {i} is invariant\n{function}");
        }
    }
    values
}

/// ⟨a, b⟩: values that ranks share count once.
fn inner(ty: &TensorType, a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let product = |rank: usize| -> f64 {
        let each = a[rank].iter().zip(&b[rank]).map(|(x, y)| x * y);
        each.sum::<f64>() / sharing(&mesh(), ty, rank).len() as f64
    };
    (0..a.len()).map(product).sum()
}

fn numbers(literals: &[Literal]) -> Vec<Vec<f64>> {
    literals.iter().map(|l| l.as_slice::<f64>().unwrap().to_vec()).collect()
}

/// ⟨c, J·t⟩ = ⟨Jᵀ·c, t⟩ at random points, and J·t against central differences.
fn check(name: &str, x: &TensorType, f: impl Fn(&Tensor) -> Tensor) {
    let value = build(std::slice::from_ref(x), |at| vec![f(&at[0])]);
    let y = value.output_type(0).clone();
    let forward = build(&[x.clone(), x.clone()], |at| {
        let (_, tangent) = jvp(&at[0], &at[1], &f);
        vec![tangent]
    });
    let reverse = build(&[x.clone(), y.clone()], |at| vec![vjp(&at[0], &f).1(&at[1])]);
    assert_eq!(forward.output_type(0), &y, "{name}");
    assert_eq!(reverse.output_type(0), x, "{name}");
    for seed in 0..3 {
        let (at, t, c) = (random(x, seed), random(x, seed + 10), random(&y, seed + 20));
        let jt = output(&forward, &run(&forward, &[at.clone(), t.clone()]), 0);
        let jc = output(&reverse, &run(&reverse, &[at.clone(), c.clone()]), 0);
        let (left, right) = (inner(&y, &numbers(&c), &jt), inner(x, &jc, &numbers(&t)));
        assert!((left - right).abs() <= 1e-9 * (1.0 + left.abs()), "{name}: {left} and {right}");
        let h = 1e-6;
        let moved = |h: f64| {
            let add = |(a, t): (&Literal, &Literal)| {
                let (a_, t) = (a.as_slice::<f64>().unwrap(), t.as_slice::<f64>().unwrap());
                let sum = a_.iter().zip(t).map(|(a, t)| a + h * t).collect();
                Literal::from_vec(a.shape(), sum).unwrap()
            };
            let at: Vec<Literal> = at.iter().zip(&t).map(add).collect();
            output(&value, &run(&value, &[at]), 0)
        };
        let (above, below) = (moved(h), moved(-h));
        for (rank, jt) in jt.iter().enumerate() {
            for (i, jt) in jt.iter().enumerate() {
                let difference = (above[rank][i] - below[rank][i]) / (2.0 * h);
                assert!((difference - jt).abs() < 1e-6, "{name}: {difference} and {jt}");
            }
        }
    }
}

#[test]
fn each_collective_has_both_derivatives() {
    let mut checked = std::collections::BTreeSet::new();
    for sample in collectives() {
        let Some(x) = sample.operands(DType::F64).pop() else { continue };
        checked.insert(sample.op.name());
        check(&format!("{:?}", sample.op), &x, |x| Tensor::apply(sample.op.clone(), &[x]));
    }
    assert_eq!(checked.len(), 8, "{checked:?}");
}

/// Each collective between nonlinear functions, so that derivatives of derivatives have it too.
#[test]
fn gradients_of_gradients_hold() {
    for sample in collectives() {
        let Some(x) = sample.operands(DType::F64).pop() else { continue };
        check(&format!("grad {:?}", sample.op), &x, |x| {
            grad(x, |x| Tensor::apply(sample.op.clone(), &[&x.sin()]).square().sum())
        });
    }
}

#[test]
fn the_transpose_of_an_op_is_the_op_that_the_table_names() {
    let wanted = [
        ("psum", "pvary"),
        ("pvary", "psum"),
        ("all_gather", "psum_scatter"),
        ("psum_scatter", "all_gather"),
        ("all_to_all", "all_to_all"),
        ("ppermute", "ppermute"),
    ];
    for (name, transpose) in wanted {
        let sample = collectives().into_iter().find(|s| s.op.name() == name).unwrap();
        let x = sample.operands(DType::F64).remove(0);
        let y = sample.op.infer(std::slice::from_ref(&x), &[]).unwrap().remove(0);
        let function = build(&[x, y], |at| {
            vec![vjp(&at[0], |x| Tensor::apply(sample.op.clone(), &[x])).1(&at[1])]
        });
        let function = wengert_compiler::rewrite::tidy(function);
        let ops: Vec<&Op> = function.body.equations.iter().map(|e| &e.op).collect();
        assert_eq!(ops.len(), 1, "{function}");
        assert_eq!(ops[0].name(), transpose);
    }
}

#[test]
fn ties_of_extrema_share_the_gradient() {
    let x = f64s(&[], &["tensor"]);
    let function = build(std::slice::from_ref(&x), |at| {
        vec![grad(&at[0], |x| x.pmax("tensor")), grad(&at[0], |x| x.pmin("tensor") * 4.0)]
    });
    let given = [5.0, 7.0, 7.0, 5.0, 7.0, 7.0].map(Literal::from).to_vec();
    let outputs = run(&function, &[given]);
    let of = |i| output(&function, &outputs, i).concat();
    assert_eq!(of(0), [0.0, 0.5, 0.5, 0.0, 0.5, 0.5]);
    assert_eq!(of(1), [4.0, 0.0, 0.0, 4.0, 0.0, 0.0]);
}

/// vmap of a collective has the bits of the collective for each example.
#[test]
fn mapped_collectives_are_loops_over_examples() {
    const EXAMPLES: usize = 3;
    for sample in collectives() {
        let Some(x) = sample.operands(DType::F64).pop() else { continue };
        let apply = |x: &Tensor| Tensor::apply(sample.op.clone(), &[x]);
        let shape = [vec![EXAMPLES.into()], x.shape.clone()].concat();
        let batch = x.with_shape(shape);
        let function = build(std::slice::from_ref(&batch), |at| {
            let loop_ = |i: usize| {
                let one = at[0].slice_axis(0, i as i64, i as i64 + 1);
                let one = apply(&one.reshape(x.shape.clone()));
                let shape = [vec![1usize.into()], one.shape().to_vec()].concat();
                one.reshape(shape)
            };
            let each: Vec<Tensor> = (0..EXAMPLES).map(loop_).collect();
            let all = Tensor::concatenate(&each.iter().collect::<Vec<_>>(), 0);
            vec![vmap(&at[0], apply), all]
        });
        assert_eq!(function.output_type(0), function.output_type(1), "{:?}", sample.op);
        let outputs = run(&function, &[random(&batch, 7)]);
        for on in &outputs {
            assert_eq!(on[0], on[1], "{:?}", sample.op);
        }
    }
}

/// The gradient of a mean over all data is the same on a mesh as on one rank: parameters meet data
/// at a `pvary`, and its transpose adds.
#[test]
fn data_parallel_gradients_are_those_of_one_rank() {
    let loss = |w: &Tensor, x: &Tensor| (x.dot(w).tanh() - 0.5).square().mean();
    let types = [f64s(&[4, 2], &BOTH), f64s(&[2], &[])];
    let on_mesh = build(&types, |at| {
        let (value, gradient) = value_and_grad(&at[1], |w| loss(w, &at[0]).pmean(BOTH));
        vec![value, gradient]
    });
    assert_eq!(on_mesh.output_type(1), &types[1]);
    let (x, w) = (random(&types[0], 1), random(&types[1], 2));
    let outputs = run(&on_mesh, &[x.clone(), w.clone()]);
    let rows: Vec<f64> = numbers(&x).concat();
    let alone = FunctionBuilder::build("f", |b| {
        let (x, w) = (b.input("x", f64s(&[24, 2], &[])), b.input("w", f64s(&[2], &[])));
        let (value, gradient) = value_and_grad(&w, |w| loss(w, &x));
        b.output("value", value);
        b.output("gradient", gradient);
    });
    let given = vec![Literal::from_vec(&[24, 2], rows).unwrap(), w[0].clone()];
    let wanted = run_ranks(&alone.unwrap(), &[given]).unwrap().remove(0);
    for i in 0..2 {
        let wanted = wanted[i].as_slice::<f64>().unwrap();
        for found in output(&on_mesh, &outputs, i) {
            let close = found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-14);
            assert!(close, "{found:?} and {wanted:?}");
        }
    }
}

/// Branches and loops whose conditions differ between ranks, on values that do not.
#[test]
fn control_flow_that_ranks_run_differently_has_both_derivatives() {
    check("cond", &f64s(&[2], &["data"]), |x| {
        let column = Tensor::axis_index("tensor");
        let sum = x.psum("data");
        cond(&column.gt(0), || (x * &sum).sin(), || &sum * 2.0)
    });
    check("cond of an invariant value", &f64s(&[2], &[]), |x| {
        let row = Tensor::axis_index("data");
        cond(&row.gt(0), || x.sin(), || x * 3.0)
    });
    check("scan", &f64s(&[3], &["tensor"]), |x| {
        let one = Tensor::constant(1.0f64);
        fold(&one, x, |product, part| product.sin() + part.psum("tensor") * part)
    });
    check("counted", &f64s(&[], &["data"]), |x| {
        let count = Tensor::axis_index("tensor");
        fori_upto(&count, 3, x, |_, y| y.sin() + y.psum("data") * x)
    });
}

/// A function on several ranks is refused before any pass; the error names the equation's line.
#[test]
fn a_target_that_joins_no_ranks_refuses_a_mesh() {
    let mut target = Target::cpu();
    target.calls.retain(|call| *call != "collective");
    let refused = |text: &str| {
        let program: Program = parse_program(text, "f.ir").unwrap();
        compile(&program, "f", &Binding::new(), &target, &Options::default()).unwrap_err()
    };
    let error = refused(
        "func @f mesh(data=2) (%x: f32[4]{data}) -> (f32[4]) {
           %0: f32[4]{data} = exp %x
           %1: f32[4] = psum %0 {over=[\"data\"]}
           return %1
         }",
    )
    .to_string();
    let wanted = "@f: `psum` is a collective, and cpu joins no ranks";
    assert!(error.contains(wanted) && error.contains("f.ir:3:"), "{error}");
    let error = refused("func @f mesh(data=2) (%x: f32[4]) -> (f32[4]) {\n return %x\n}");
    let wanted = "@f runs on the 2 ranks of mesh(data=2), and cpu joins no ranks";
    assert!(error.to_string().contains(wanted), "{error}");
}

/// The plan does not depend on the rank, and holds the mesh.
#[test]
fn a_plan_is_the_same_on_every_rank() {
    let text = "func @f mesh(data=2) (%x: f32[4]{data}) -> (f32[4]) {
                  %0: f32[4]{data} = exp %x
                  %1: f32[4] = psum %0 {over=[\"data\"]}
                  return %1
                }";
    let program: Program = parse_program(text, "f.ir").unwrap();
    let (binding, options) = (Binding::new(), Options::default());
    let plan = || compile(&program, "f", &binding, &Target::cpu(), &options).unwrap();
    let (first, second) = (plan(), plan());
    assert_eq!(first.to_string(), second.to_string());
    let text = first.to_string();
    let call = "{dtype=f32, inner=4, kind=\"psum\", over=[\"data\"]}";
    assert!(text.contains("mesh(data=2)") && text.contains(call), "{text}");
    verify_ranks(&[&first, &second]).unwrap();
}

/// A training step of a network of two layers on two ranks, each with half of a batch.
fn training(width: usize) -> Program {
    let function = FunctionBuilder::build("step", |f| {
        let f32s = |shape: &[usize]| TensorType::new(DType::F32, shape.iter().copied());
        let variable = |shape: &[usize]| Tensor::variable(f32s(shape), Initializer::Zeros);
        let x = f.input("x", f32s(&[8, width]));
        let shape = [width, width];
        let model = f.state("model", (0..3).map(|_| variable(&shape)).collect::<Vec<Tensor>>());
        let (loss, gradient) = value_and_grad(&model, |m| {
            let hidden = m.iter().fold(x.clone(), |x, w| x.dot(w).tanh());
            hidden.square().mean()
        });
        for (i, (w, g)) in model.iter().zip(&gradient).enumerate() {
            f.update(&format!("model.{i}"), &(w - g * 0.1));
        }
        f.output("loss", loss);
    });
    let function = function.unwrap_or_else(|e| panic!("{e}"));
    let of_rank = DataParallel::new(["x"]).ranks(2).microbatches(2).apply(&function);
    Program::from_functions(vec![of_rank.unwrap_or_else(|e| panic!("{e}"))]).unwrap()
}

fn step_on(program: &Program, target: &Target, budget: Option<u64>) -> Verified<Plan> {
    let options = Options { memory_budget: budget, ..Options::default() };
    compile(program, "step", &Binding::new(), target, &options).unwrap_or_else(|e| panic!("{e}"))
}

/// The numbers of the steps with starts, waits, products, and collectives that are calls.
fn numbered(plan: &Plan) -> [Vec<usize>; 4] {
    let (mut found, mut number) = ([const { Vec::new() }; 4], 0);
    plan.visit(&mut |step| {
        let kind = match step {
            Step::Start { .. } => Some(0),
            Step::Wait(_) => Some(1),
            Step::Call { call: Call::Gemm(_), .. } => Some(2),
            Step::Call { call: Call::Collective(_), .. } => Some(3),
            _ => None,
        };
        if let Some(kind) = kind {
            found[kind].push(number);
        }
        number += 1;
    });
    found
}

/// Each gradient is reduced as soon as it exists, and variables are updated behind the backward
/// pass.
#[test]
fn gradients_are_reduced_during_the_backward_pass() {
    let program = training(64);
    let plan = step_on(&program, &Target::cpu(), None);
    let [starts, waits, products, _] = numbered(&plan);
    let last = *products.last().unwrap();
    // Of three gradients, that of the first layer is computed last.
    assert!(starts.iter().filter(|start| **start < last).count() >= 2, "{plan}");
    assert!(waits.iter().all(|wait| *wait > last), "{plan}");
    verify_ranks(&[&*plan; 2]).unwrap();
    // Without overlap, the same collectives are calls.
    let blocking = Target { overlaps_collectives: false, ..Target::cpu() };
    let plain = step_on(&program, &blocking, None);
    let [none, waits, _, calls] = numbered(&plain);
    assert!(none.is_empty() && waits.is_empty(), "{plain}");
    let [_, _, _, left] = numbered(&plan);
    assert_eq!(calls.len(), starts.len() + left.len());
}

/// Where memory is limited, fewer bytes are under way.
#[test]
fn a_budget_limits_the_bytes_under_way() {
    let program = training(64);
    let blocking = Target { overlaps_collectives: false, ..Target::cpu() };
    let plain = account(&step_on(&program, &blocking, None)).total();
    let free = account(&step_on(&program, &Target::cpu(), None)).total();
    assert!(free > plain, "transfers take memory: {free} and {plain}");
    for budget in [plain, plain + (free - plain) / 2, free] {
        let plan = step_on(&program, &Target::cpu(), Some(budget));
        assert!(account(&plan).total() <= budget, "{budget}\n{plan}");
    }
    let starts = |budget| numbered(&step_on(&program, &Target::cpu(), budget))[0].len();
    assert_eq!(starts(Some(free)), starts(None));
}
