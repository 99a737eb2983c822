//! Checkpointed functions have the same derivatives and other residuals.

use wengert_compiler::autodiff::operators::{grad, jvp, linearize, value_and_grad};
use wengert_compiler::autodiff::rules::checkpoint;
use wengert_compiler::pipeline::{Options, compile_kernels};
use wengert_core::graph::Function;
use wengert_core::op::Checkpoint;
use wengert_core::{DType, Literal, Target, Tensor, TensorType};
use wengert_testing::Random;
use wengert_testing::derivative::*;

type Values = Vec<Tensor>;

fn types() -> Vec<TensorType> {
    [[4usize, 8], [8, 8], [8, 8]].map(|shape| TensorType::new(DType::F64, shape)).to_vec()
}

/// Two layers. The result of the first has a name.
fn layers(v: &Values) -> Tensor {
    let hidden = v[0].dot(&v[1]).tanh().checkpoint_name("h");
    (hidden.dot(&v[2]).sin() + &v[0]).exp()
}

fn policies() -> [Option<Checkpoint>; 5] {
    let names = ["h"];
    [
        None,
        Some(Checkpoint::nothing()),
        Some(Checkpoint::dots()),
        Some(Checkpoint::names(&names)),
        Some(Checkpoint::all_but_names(&names)),
    ]
}

/// The layers applied twice, each time with the policy.
fn network(policy: &Option<Checkpoint>) -> impl Fn(&Values) -> Tensor + '_ {
    move |v| {
        let block = |x: &Tensor| match policy {
            None => layers(&vec![x.clone(), v[1].clone(), v[2].clone()]),
            // The matrices are captures.
            Some(policy) => checkpoint(policy.clone(), x, |x| {
                layers(&vec![x.clone(), v[1].clone(), v[2].clone()])
            }),
        };
        block(&(block(&v[0]) * 0.01)).sum()
    }
}

fn inputs() -> Vec<Literal> {
    let mut random = Random(0xc4ec);
    types().iter().map(|ty| random.literal(ty)).collect()
}

#[test]
fn no_policy_changes_a_derivative() {
    let derivatives = |policy: Option<Checkpoint>| -> Function {
        build(&types(), |v| {
            let f = network(&policy);
            let (value, gradient) = value_and_grad(&v.to_vec(), &f);
            let along = jvp(&v.to_vec(), &gradient, &f).1;
            let second = grad(&v.to_vec(), |v| {
                let g = grad(v, &f);
                (&g[1] * &g[1]).sum() + (&g[0] * &g[2].sum()).sum()
            });
            [vec![value, along], gradient, second].concat()
        })
    };
    let [plain, others @ ..] = policies().map(|policy| flat(&run(&derivatives(policy), &inputs())));
    let first = 2 + types().iter().map(|ty| ty.elements().unwrap()).sum::<usize>();
    for other in others {
        assert_eq!(other[..first], plain[..first]);
        // The contributions of a block to one value are summed before those of different blocks. So
        // the order of additions differs.
        assert_close(&other, &plain, 1e-14, "second derivatives");
    }
}

/// The types of the residuals of one application of the layers.
fn residuals(policy: Option<Checkpoint>) -> Vec<String> {
    let mut found = vec![];
    build(&types(), |v| {
        let (value, differential) = linearize(&v.to_vec(), |v: &Values| match &policy {
            None => layers(v),
            Some(policy) => checkpoint(policy.clone(), v, layers),
        });
        let linear = differential.linear().unwrap();
        found = linear.residuals.iter().map(|t| t.ty().to_string()).collect();
        found.sort();
        vec![value]
    });
    found
}

#[test]
fn residuals_are_what_the_policy_says() {
    let shapes = |n: usize| {
        let mut all = vec!["f64[4,8]"; n];
        all.extend(["f64[8,8]"; 2]);
        all
    };
    let [plain, nothing, dots, names, all_but] = policies().map(residuals);
    // Always the argument and the matrices. `dots` also keeps the two products, `names` the named
    // value, and the others all values that the rules read.
    assert_eq!(nothing, shapes(1));
    assert_eq!(dots, shapes(3));
    assert_eq!(names, shapes(2));
    assert!(all_but.len() > names.len(), "{all_but:?}");
    assert!(plain.len() > nothing.len(), "{plain:?}");
}

/// The number of equations of an op in the compiled gradient of a checkpointed network.
fn compiled(policy: Option<Checkpoint>, op: &str) -> usize {
    let function = build(&types(), |v| {
        let (value, gradient) = value_and_grad(&v.to_vec(), network(&policy));
        [vec![value], gradient].concat()
    });
    let compiled = compile_kernels(&function, &Target::cpu(), &Options::default()).unwrap();
    compiled.function.body.equations.iter().filter(|e| e.op.name() == op).count()
}

#[test]
fn what_is_computed_again_stays_so_through_all_passes() {
    let [plain, nothing, dots, names, _] = policies();
    // Two blocks with one tanh each; recomputation doubles them.
    assert_eq!(compiled(plain.clone(), "tanh"), 2);
    assert_eq!(compiled(nothing.clone(), "tanh"), 4);
    assert_eq!(compiled(names.clone(), "tanh"), 2);
    // Forward has 4 products, backward 8. If the sum of a block is kept, the derivative does not
    // need its second product.
    let products = [plain, nothing, dots].map(|policy| compiled(policy, "dot_general"));
    assert_eq!(products[0], products[2], "{products:?}");
    assert!(products[1] >= products[0] + 2, "{products:?}");
}

#[test]
fn checkpoints_nest() {
    let f = |policy: bool| {
        build(&types(), |v| {
            let inner = |x: &Tensor| match policy {
                true => checkpoint(Checkpoint::nothing(), x, |x| x.dot(&v[1]).sin()),
                false => x.dot(&v[1]).sin(),
            };
            let outer = |x: &Tensor| match policy {
                true => checkpoint(Checkpoint::dots(), x, |x| inner(&inner(x)).dot(&v[2]).tanh()),
                false => inner(&inner(x)).dot(&v[2]).tanh(),
            };
            vec![grad(&v[0], |x| outer(&outer(x)).sum())]
        })
    };
    assert_eq!(run(&f(true), &inputs()), run(&f(false), &inputs()));
}

/// The table of the residuals of reverse mode: by source line, with bytes and readers. It includes
/// stacks of loops, and the residuals that policies leave.
#[test]
fn saved_residuals_are_told_by_line() {
    use wengert_compiler::autodiff::residuals::{Residuals, saved_residuals};
    use wengert_core::build::control;
    let table = |f: &dyn Fn(&Tensor, &Tensor) -> Residuals| {
        let mut table = None;
        build(&[f64s(&[3]), f64s(&[3])], |v| {
            table = Some(f(&v[0], &v[1]));
            vec![v[0].clone()]
        });
        table.unwrap()
    };
    let line = line!() + 1;
    let all = table(&|x, w| saved_residuals(x, |x| ((x * w).sin() * x).sum()).unwrap());
    let rows: Vec<String> = all
        .to_string()
        .lines()
        .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(rows.len(), 4, "{all}");
    assert!(rows[0].starts_with("(captured) f64[3] 24 bytes "), "{all}");
    assert!(rows[0].ends_with("read by jvp(mul)"), "{all}");
    let stored: Vec<&String> = rows.iter().filter(|r| r.starts_with("%r_")).collect();
    assert_eq!(stored.len(), 2, "{all}");
    for row in stored {
        assert!(row.contains(&format!("tests/derivatives/checkpoint.rs:{line}:")), "{all}");
    }
    assert!(rows.iter().any(|r| r.starts_with("%x (input) f64[3]")), "{all}");
    assert_eq!(all.stored_bytes().unwrap().to_string(), "48");

    // A loop of seven steps keeps seven times the residuals of one step.
    let looped = |x: &Tensor| control::fori(7i64, x, |_, x: &Tensor| x.sin()).sum();
    let tape = table(&|x, _| saved_residuals(x, looped).unwrap());
    assert_eq!(tape.stored_bytes().unwrap().to_string(), (7 * 24).to_string(), "{tape}");
    assert_eq!(tape.stored().map(|r| r.ty.to_string()).collect::<Vec<_>>(), ["f64[7,3]"]);
    let few = table(&|x, _| {
        saved_residuals(x, |x| checkpoint(Checkpoint::nothing(), x, looped)).unwrap()
    });
    assert_eq!(few.stored().count(), 0, "{few}");
}
