//! Learning rates that a session sets, and the finder.

use super::{data, recipe, run};
use wengert::core::graph::Program as Functions;
use wengert::optim::{Rate, settable_rates};
use wengert::prelude::*;
use wengert::recipe::Recipe;
use wengert::train::batches::Schedule;
use wengert::train::{Options, RateCurve, RateSearch, TrainError, find_rate};

/// The step of linear regression by SGD.
fn program(rate: Rate) -> Functions {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let (x, y) = (f.input("x", f32("B,3")), f.input("y", f32("B")));
            let zeros = TensorType::new(DType::F32, [3usize]);
            let w = f.state("w", Tensor::variable(zeros, Initializer::Zeros));
            let error = x.dot(&w) - &y;
            f.output("loss", error.square().sum());
            Sgd::new(rate.clone()).step(f, &w, &(2.0 * &error.dot(&x)));
        })
        .unwrap();
    program.into_inner()
}

fn plain() -> Recipe {
    Recipe { evaluate: None, ..recipe() }
}

fn find(
    session: &mut Session,
    program: &Functions,
    search: &RateSearch,
) -> Result<RateCurve, TrainError> {
    find_rate(session, program, &plain(), &data(), Options::default(), search, &mut |_| {})
}

#[test]
fn a_settable_rate_is_that_of_the_schedule_until_it_is_set() {
    let trained = |rate: Rate| {
        let (_, session) = run(&plain(), &program(rate), Options::default(), &mut |_| {}).unwrap();
        session.variable("w").unwrap()
    };
    let schedule = || Rate::exponential(0.05, 0.99);
    let constant = || Rate::from(0.025);
    for rate in [&constant as &dyn Fn() -> Rate, &schedule] {
        assert_eq!(trained(rate()), trained(rate().settable()));
    }
    let functions = program(schedule().settable());
    let step = functions.get("step").unwrap();
    assert_eq!(settable_rates(step), ["sgd.learning_rate"]);
    assert!(settable_rates(program(schedule()).get("step").unwrap()).is_empty());
    // A rate that is set: one step from zeros moves by it times the gradient.
    let mut session = Session::open(Device::Cpu).unwrap();
    let x = Literal::from_vec(&[1, 3], vec![1.0f32, 2.0, 3.0]).unwrap();
    let y = Literal::from_vec(&[1], vec![-1.0f32]).unwrap();
    let mut moved = |rate: f32| {
        session.set_variable("w", &Literal::zeros(DType::F32, &[3])).unwrap();
        session.set_variable("sgd.step", &Literal::from(0i32)).unwrap();
        session.set_variable("sgd.learning_rate", &Literal::from(rate)).unwrap();
        let mut compiled = session.compile(&functions, "step", bind!(B = 1)).unwrap();
        compiled.run(&[("x", &x), ("y", &y)]).unwrap();
        session.variable("w").unwrap().as_slice::<f32>().unwrap().to_vec()
    };
    assert_eq!(moved(0.5), [-1.0, -2.0, -3.0]);
    assert_eq!(moved(0.0), [0.0, 0.0, 0.0]);
    // The first rate of the schedule.
    assert_eq!(moved(-1.0), [0.05f32 * -2.0, 0.05f32 * -4.0, 0.05f32 * -6.0]);
}

#[test]
fn an_optimiser_with_a_rest_declares_its_rate() {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let x = f.input("x", f32("B,3"));
            let model = f.state("model", Linear::new(3, 2));
            let (loss, gradient) = value_and_grad(&model, |m| m.call(&x).square().sum());
            f.output("loss", loss);
            Muon::new(Rate::from(0.02).settable()).step(f, &model, &gradient);
        })
        .unwrap();
    let mut rates = settable_rates(program.get("step").unwrap());
    rates.sort_unstable();
    assert_eq!(rates, ["adamw.learning_rate", "muon.learning_rate"]);
}

#[test]
fn the_finder_makes_the_steps_of_a_run_and_leaves_no_trace() {
    let mut session = Session::open(Device::Cpu).unwrap();
    session.set_variable("w", &Literal::full(&[3], 7.0f32.into())).unwrap();
    session.set_variable("other", &Literal::from(1u8)).unwrap();
    let before = session.variables().unwrap();
    let search = RateSearch { from: 1e-4, to: 10.0, steps: 50, ..RateSearch::default() };
    let program = program(Rate::from(0.1).settable());
    let curve = find(&mut session, &program, &search).unwrap();
    assert_eq!(session.variables().unwrap(), before);
    // By a plain loop, with the batches of a run.
    let (all, mut schedule) = (data(), Schedule::new(50, recipe().batches).unwrap());
    let x = |row: usize, i: usize| all["x_train"].get(row * 3 + i).to_f64() / 256.0;
    let (mut w, mut sum) = ([0.0f64; 3], 0.0);
    for (n, trial) in curve.trials.iter().enumerate() {
        let rate = 1e-4 * 1e5f64.powf(n as f64 / 49.0);
        let (mut loss, mut gradient) = (0.0, [0.0; 3]);
        for row in schedule.rows(n as u64) {
            let error =
                (0..3).map(|i| x(*row, i) * w[i]).sum::<f64>() - all["y_train"].get(*row).to_f64();
            loss += error * error;
            (0..3).for_each(|i| gradient[i] += 2.0 * error * x(*row, i));
        }
        (0..3).for_each(|i| w[i] -= rate * gradient[i]);
        sum = 0.98 * sum + 0.02 * loss;
        let smoothed = sum / (1.0 - 0.98f64.powi(n as i32 + 1));
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-3 * b.abs();
        assert!(close(trial.rate, rate) && close(trial.loss, loss), "{n}: {trial:?}, {loss}");
        assert!(close(trial.smoothed, smoothed), "{n}: {trial:?}, {smoothed}");
    }
    assert!(curve.diverged && curve.trials.len() < 50, "{curve:?}");
    let suggestion = curve.suggestion.unwrap();
    assert!(curve.trials.iter().any(|trial| trial.rate == suggestion));
    assert!((1e-3..1.0).contains(&suggestion), "{suggestion}");
    // Rates that are too small change nothing, and none is suggested for falling.
    let small = RateSearch { from: 1e-9, to: 1e-8, steps: 30, ..search };
    let curve = find(&mut session, &program, &small).unwrap();
    assert_eq!((curve.diverged, curve.trials.len()), (false, 30));
}

#[test]
fn a_rate_that_is_a_part_of_the_graph_is_refused() {
    let mut session = Session::open(Device::Cpu).unwrap();
    session.set_variable("w", &Literal::zeros(DType::F32, &[3])).unwrap();
    let program = program(Rate::from(0.1));
    let error = find(&mut session, &program, &RateSearch::default()).unwrap_err();
    let error = error.diagnostic();
    assert_eq!(error.message, "`@step` has no learning rate that can be set");
    assert_eq!(
        error.help.as_deref().unwrap(),
        "its rate is a part of the graph. Build the optimiser with a settable one, as in \
         `AdamW::new(Rate::from(1e-3).settable())`; for a model, import it with `--settable-rate`"
    );
    assert_eq!(session.variables().unwrap().len(), 1);
}
