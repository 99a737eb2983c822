//! Gradients of imported models: against PyTorch's, mapped over examples, and within budgets.

use crate::{model, path};
use std::collections::BTreeMap;
use wengert::autodiff::function::{Grad, grad};
use wengert::core::graph::{Function, InputRole, Program};
use wengert::core::plan::Account;
use wengert::data::{Arrays, npz};
use wengert::pipeline::{Options, compile};
use wengert::tune::{Loss, Tuning};
use wengert::vmap::function::{Vmap, vmap};
use wengert::{Device, GraphFile, Literal, Session, Weights, bind};

/// The names of weights that the exporter of PyTorch has transposed.
const TRANSPOSED: &[(&str, &str)] = &[
    ("embed.weight", "onnx__MatMul_135"),
    ("query.weight", "onnx__MatMul_136"),
    ("key.weight", "onnx__MatMul_138"),
    ("value.weight", "onnx__MatMul_140"),
    ("out.weight", "onnx__MatMul_142"),
    ("up.weight", "onnx__MatMul_143"),
    ("down.weight", "onnx__MatMul_144"),
];

fn tuned(name: &str) -> GraphFile {
    model(name).tuned(Tuning::new(Loss::CrossEntropy)).unwrap()
}

fn session(file: &GraphFile) -> Session {
    let Weights::Inline(weights) = &file.weights else { panic!("a model has weights") };
    let mut session = Session::open(Device::Cpu).unwrap();
    session.set_variables(weights).unwrap();
    session
}

/// The gradient of the evaluation by the variables that are trained, and their names.
fn gradient(file: &GraphFile) -> (Program, Vec<String>) {
    let step = file.program.get("train_step").unwrap();
    let evaluate = file.program.get("evaluate").unwrap();
    let is_trained = |function: &Function, name: &str| {
        function.input_index(name).is_some_and(|n| function.inputs[n].role == InputRole::State)
    };
    let names: Vec<String> = evaluate
        .inputs
        .iter()
        .filter(|input| is_trained(step, &input.name))
        .map(|input| input.name.clone())
        .collect();
    let wrt: Vec<&str> = names.iter().map(String::as_str).collect();
    let request = Grad { of: Some("loss"), wrt: &wrt, value: true, seed: false };
    let derived = grad(&file.program, "evaluate", &request).unwrap();
    assert!(derived.warnings.is_empty(), "{:?}", derived.warnings);
    (Program::from_functions(vec![derived.function]).unwrap(), names)
}

/// The largest difference of two arrays, the second one perhaps transposed.
fn distance(found: &Literal, wanted: &Literal, transposed: bool) -> f64 {
    let shape = found.shape();
    let at = |i: usize| match transposed {
        true => wanted.get(i % shape[1] * shape[0] + i / shape[1]).to_f64(),
        false => wanted.get(i).to_f64(),
    };
    assert_eq!(found.len(), wanted.len());
    (0..found.len()).map(|i| (found.get(i).to_f64() - at(i)).abs()).fold(0.0, f64::max)
}

fn batch(expected: &Arrays) -> Vec<(&str, &Literal)> {
    ["image", "labels"].map(|name| (name, &expected[name])).to_vec()
}

#[test]
fn gradients_are_those_of_torch() {
    for name in ["convolutions", "transformer"] {
        let file = tuned(name);
        let expected: Arrays =
            npz::Npz::open(path(&format!("{name}.npz"))).unwrap().read_all().unwrap();
        let (program, names) = gradient(&file);
        let mut session = session(&file);
        let mut run = session.compile(&program, "evaluate_grad", bind!(batch = 16)).unwrap();
        let found = run.run(&batch(&expected)).unwrap();
        let loss = expected["loss"].get(0).to_f64();
        assert!((found.scalar("loss").unwrap() - loss).abs() < 1e-5 * loss, "{name}");
        let exported: BTreeMap<&str, &str> = TRANSPOSED.iter().map(|(a, b)| (*b, *a)).collect();
        let mut worst = 0.0f64;
        for path in &names {
            let torch = exported.get(path.as_str());
            let wanted = &expected[&format!("d.{}", torch.copied().unwrap_or(path))];
            let found = found.get(&format!("d_{path}")).unwrap();
            let largest = wanted.scalars().map(|x| x.to_f64().abs()).fold(1.0, f64::max);
            let error = distance(found, wanted, torch.is_some()) / largest;
            assert!(error <= 1e-5, "{name}: {path} differs by {error}");
            worst = worst.max(error);
        }
        let of_torch = expected.keys().filter(|key| key.starts_with("d.")).count();
        assert_eq!(names.len(), of_torch, "{name}");
        println!("{name}: {of_torch} gradients, largest error {worst:.1e}");
    }
}

/// The mean of the gradients of examples is the gradient of their mean loss.
#[test]
fn a_gradient_is_mapped_over_examples() {
    let file = tuned("transformer");
    let expected = npz::Npz::open(path("transformer.npz")).unwrap().read_all().unwrap();
    let (program, names) = gradient(&file);
    let request = Vmap { inputs: &[("image", 0), ("labels", 0)], ..Vmap::default() };
    let mapped = vmap(&program, "evaluate_grad", &request).unwrap().function;
    let mapped = Program::from_functions(vec![mapped]).unwrap();
    let mut session = session(&file);
    let mut all = session.compile(&program, "evaluate_grad", bind!(batch = 16)).unwrap();
    let mut each =
        session.compile(&mapped, "evaluate_grad_vmap", bind!(batch = 1, B = 16)).unwrap();
    let one = |name: &str, shape: &[usize]| match name {
        "image" => {
            let values = expected[name].as_slice::<f32>().unwrap().to_vec();
            (name.to_owned(), Literal::from_vec(shape, values).unwrap())
        }
        _ => {
            let values = expected[name].as_slice::<i32>().unwrap().to_vec();
            (name.to_owned(), Literal::from_vec(shape, values).unwrap())
        }
    };
    let examples = [one("image", &[16, 1, 8, 8]), one("labels", &[16, 1])];
    let examples: Vec<(&str, &Literal)> =
        examples.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let (all, each) = (all.run(&batch(&expected)).unwrap(), each.run(&examples).unwrap());
    for path in &names {
        let name = format!("d_{path}");
        let (whole, parts) = (all.get(&name).unwrap(), each.get(&name).unwrap());
        for i in 0..whole.len() {
            let mean: f64 =
                (0..16).map(|n| parts.get(n * whole.len() + i).to_f64()).sum::<f64>() / 16.0;
            let whole = whole.get(i).to_f64();
            assert!((mean - whole).abs() <= 1e-5 * (1.0 + whole.abs()), "{path}[{i}]");
        }
    }
}

#[test]
fn a_training_step_fits_a_budget() {
    let file = tuned("convolutions");
    let session = Session::open(Device::Cpu).unwrap();
    let plan = |budget| {
        let options = Options { memory_budget: budget, ..Options::default() };
        let plan =
            compile(&file.program, "train_step", &bind!(batch = 64), session.target(), &options);
        Account::sizes(&plan.unwrap()).total()
    };
    let free = plan(None);
    let budget = free * 9 / 10;
    let bound = plan(Some(budget));
    assert!(bound <= budget, "{bound} of {free} bytes with a budget of {budget}");
}
