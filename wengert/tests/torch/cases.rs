//! Comparison of functions, and of the derivatives of a weighted sum of their results, with a file
//! of cases that `cases.py` wrote. Its documentation has the names of the arrays.

use super::{apart, arrays};
use std::collections::BTreeSet;
use wengert::core::KeyPath;
use wengert::prelude::*;

/// The inputs of a case by name.
pub type Inputs<'a> = &'a dyn Fn(&str) -> Tensor;

/// A case: its name, and the results of the function of its inputs.
pub type Case<'a> = (String, Box<dyn Fn(Inputs<'_>) -> Vec<Tensor> + 'a>);

/// A layer whose variables are inputs named after their key paths.
pub fn layer<M: Differentiable>(layer: &M, input: Inputs<'_>) -> M {
    layer.map_tensors(&KeyPath::default(), &mut |path, _| input(path.as_str()))
}

/// Compares each case of a file on the interpreter and on the CPU. `bound` of a case is that on
/// deviations, relative to the greatest number of a tensor.
pub fn compare(file: &str, cases: &[Case<'_>], bound: impl Fn(&str) -> f64) {
    let arrays = arrays(file);
    let in_file: BTreeSet<&str> = arrays.keys().filter_map(|k| k.split('.').next()).collect();
    let here: BTreeSet<&str> = cases.iter().map(|(case, _)| case.as_str()).collect();
    assert_eq!(in_file, here);
    let mut furthest: f64 = 0.0;
    for (case, function) in cases {
        // Arrays of a kind, by the key within the kind.
        let of_kind = |kind: &str| -> Vec<(String, Literal)> {
            let prefix = format!("{case}.{kind}.");
            let named = |(key, array): (&String, &Literal)| {
                Some((key.strip_prefix(&prefix)?.to_owned(), array.clone()))
            };
            arrays.iter().filter_map(named).collect()
        };
        let (given, weights, derivatives) = (of_kind("x"), of_kind("c"), of_kind("d"));
        let mut program = Program::new();
        let build = |f: &mut FunctionBuilder| {
            let inputs: Vec<(String, Tensor)> =
                given.iter().map(|(name, a)| (name.clone(), f.input(name, a.ty()))).collect();
            let is_active = |name: &str| derivatives.iter().any(|(active, _)| active == name);
            let at: Vec<Tensor> =
                inputs.iter().filter(|(n, _)| is_active(n)).map(|(_, t)| t.clone()).collect();
            let (results, pull_back) = vjp(&at, |at| {
                let active = derivatives.iter().map(|(name, _)| name).zip(at);
                let others = inputs.iter().map(|(name, tensor)| (name, tensor));
                let all = active.chain(others);
                function(&|name| all.clone().find(|(n, _)| *n == name).unwrap().1.clone())
            });
            assert_eq!(results.len(), weights.len(), "{case}");
            let weight = |n: usize| arrays[&format!("{case}.c.{n}")].clone();
            let weights: Vec<Tensor> =
                (0..results.len()).map(|n| Tensor::constant(weight(n))).collect();
            for (n, result) in results.iter().enumerate() {
                f.output(&format!("y.{n}"), result);
            }
            for ((name, _), derivative) in derivatives.iter().zip(pull_back(&weights)) {
                f.output(&format!("d.{name}"), derivative);
            }
        };
        program.function("case", build).unwrap_or_else(|e| panic!("{case}: {e}"));
        for device in [Device::Interpreter, Device::Cpu] {
            let mut session = Session::open(device).unwrap();
            let mut compiled = session.compile(&program, "case", bind!()).unwrap();
            let given: Vec<(&str, &Literal)> = given.iter().map(|(n, a)| (&**n, a)).collect();
            let outputs = compiled.run(&given).unwrap();
            for (name, found) in outputs.iter().unwrap() {
                let apart = apart(found, &arrays[&format!("{case}.{name}")]);
                assert!(apart <= bound(case), "{case}.{name} on {device} is {apart:.1e} off");
                furthest = furthest.max(apart);
            }
        }
    }
    println!("{file}: {} cases, {furthest:.1e}", cases.len());
}
