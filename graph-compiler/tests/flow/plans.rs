//! The required form of the plans of loops.

use super::planned;
use wengert_compiler::pipeline::{Options, compile_traced};
use wengert_core::Verified;
use wengert_core::build::FunctionBuilder;
use wengert_core::build::control::{fori, scan};
use wengert_core::graph::{Function, Program};
use wengert_core::plan::{Loop, Plan, Step};
use wengert_core::{Binding, DType, Target, Tensor, TensorType};

fn plan(function: &Function) -> Verified<Plan> {
    planned(function, &Target::cpu(), &Options::default())
}

fn loops(plan: &Plan) -> Vec<&Loop> {
    plan.steps.iter().filter_map(|s| if let Step::Loop(l) = s { Some(l) } else { None }).collect()
}

fn count(steps: &[Step]) -> usize {
    steps.iter().map(|s| 1 + s.blocks().into_iter().map(count).sum::<usize>()).sum()
}

fn recurrent(steps: usize) -> Function {
    FunctionBuilder::build("f", |f| {
        let x = f.input("x", TensorType::new(DType::F32, [steps, 8]));
        let w = f.input("w", TensorType::new(DType::F32, [8usize, 8]));
        let start = Tensor::zeros(&TensorType::new(DType::F32, [8usize]));
        let (last, all) = scan(&start, &x, |c, x| {
            let c = (c.dot(&w) + x).tanh();
            (c.clone(), c.exp())
        });
        f.output("last", last);
        f.output("squares", (&all * &all).reverse(&[0]).sum_axes(&[1]));
    })
    .unwrap()
}

#[test]
fn a_plan_is_as_large_however_often_its_loop_runs() {
    let (short, long) = (plan(&recurrent(10)), plan(&recurrent(100_000)));
    assert_eq!(count(&short.steps), count(&long.steps));
    assert_eq!(short.nests.len(), long.nests.len());
    assert_eq!(short.values.len(), long.values.len());
    // Only the stack grows.
    assert_eq!(long.arena - short.arena, (100_000 - 10) * 8 * 4);
    assert_eq!(loops(&long).len(), 1);
}

#[test]
fn a_carry_that_begins_with_what_is_not_needed_any_more_is_in_place() {
    let f = FunctionBuilder::build("f", |f| {
        let x = f.input("x", TensorType::new(DType::F32, [64usize]));
        let y = fori(7i64, &x.exp(), |_, c| c * 2.0);
        f.output("y", y);
    })
    .unwrap();
    let plan = plan(&f);
    let [l] = loops(&plan)[..] else { panic!("one loop:\n{plan}") };
    // exp writes to the output, and the step runs in place.
    assert_eq!((plan.arena, plan.steps.len(), l.body.len()), (0, 2, 1), "{plan}");
    assert_eq!(l.carries[0].at.to_string(), "output.0");
}

#[test]
fn state_is_replaced_where_it_lives_step_after_step() {
    let f = FunctionBuilder::build("f", |f| {
        let xs = f.input("xs", TensorType::new(DType::F32, [5usize, 64]));
        let w = f.state(
            "w",
            Tensor::variable(
                TensorType::new(DType::F32, [64usize]),
                wengert_core::Initializer::Zeros,
            ),
        );
        let (w, _) = scan(&w, &xs, |w, x| (w * 0.9 + x, Vec::<Tensor>::new()));
        f.update("w", &w);
    });
    let plan = plan(&f.unwrap());
    assert_eq!((plan.arena, plan.steps.len()), (0, 1), "{plan}");
    assert_eq!(loops(&plan)[0].carries[0].at.to_string(), "variable.0");
}

#[test]
fn every_kernel_within_loops_knows_its_lines() {
    let function = recurrent(10);
    let program = Program::from_functions(vec![function.clone()]).unwrap();
    let options = Options::default();
    let (plan, sources) = compile_traced(&program, "f", &Binding::new(), &Target::cpu(), &options)
        .unwrap_or_else(|e| panic!("{e}"));
    let (mut kernels, mut number) = (0, 0);
    let mut open: Vec<&Step> = plan.steps.iter().rev().collect();
    while let Some(step) = open.pop() {
        let places = sources.of_step(number);
        if !matches!(step, Step::Copy { .. }) {
            let text = plan.step_text(number).unwrap();
            assert!(
                places.iter().any(|(at, _)| at.to_string().contains("plans.rs")),
                "{text}: {places:?}"
            );
            kernels += 1;
        }
        number += 1;
        step.blocks().into_iter().rev().for_each(|block| open.extend(block.iter().rev()));
    }
    assert!(kernels >= 4 && number == count(&plan.steps), "{plan}");
}
