//! Ten wrong passes, and the compiler's own, which are right.

use crate::programs::{Network, network, networks};
use crate::reduced::{Figures, shrunk};
use crate::sabotage::{Wrong, line, sabotaged};
use std::collections::BTreeMap;
use wengert::core::graph::{Body, Function};
use wengert::core::{LocationTable, Target, interpret};
use wengert::isolate::bisect::{self, Fault, Passes, Stage};
use wengert::isolate::cut::Case;
use wengert::{Literal, Result, check};

/// The compiler's passes and one more, which visits the equations of an op and is wrong at one of
/// them.
struct Faulty {
    name: &'static str,
    /// Whether it runs after the compiler's passes.
    is_last: bool,
    op: &'static str,
    /// The number of the equation at which it is wrong, from 1.
    at: u64,
    wrong: Wrong,
}

impl Faulty {
    fn run(&self, function: &Function, fuel: u64) -> Function {
        let mut visited = 0;
        sabotaged(function, self.wrong, |_, equation| {
            if equation.op.name() != self.op || visited == fuel {
                return false;
            }
            visited += 1;
            visited == self.at
        })
    }
}

impl Passes for Faulty {
    fn stages(&self, function: &Function, fuel: &BTreeMap<String, u64>) -> Result<Vec<Stage>> {
        let own = fuel.get(self.name).copied().unwrap_or(u64::MAX);
        let stage = |function: &Function| Stage {
            pass: self.name.into(),
            function: self.run(function, own),
        };
        if self.is_last {
            let mut stages = Target::cpu().stages(function, fuel)?;
            stages.push(stage(&stages.last().unwrap().function));
            return Ok(stages);
        }
        let first = stage(function);
        let rest = Target::cpu().stages(&first.function, fuel)?;
        Ok([vec![first], rest].concat())
    }
}

/// The outputs after the last pass.
fn after(passes: &dyn Passes, function: &Function, inputs: &[Literal]) -> Result<Vec<Literal>> {
    let stages = passes.stages(function, &BTreeMap::new())?;
    interpret::run(&stages.last().unwrap().function, inputs)
}

fn is_wrong(passes: &dyn Passes, function: &Function, inputs: &[Literal]) -> Result<bool> {
    let (found, expected) = (after(passes, function, inputs)?, interpret::run(function, inputs)?);
    for (found, expected) in found.iter().zip(&expected) {
        if check::deviation(found, expected)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The source lines of the equations of an op, in the order in which the pass visits them: regions
/// before the construct.
fn lines(body: &Body, op: &str, locations: &LocationTable, found: &mut Vec<String>) {
    for equation in &body.equations {
        if equation.op.name() == op {
            found.push(line(equation, locations));
        }
        equation.regions.iter().for_each(|region| lines(region, op, locations, found));
    }
}

/// Network, whether its gradient, the pass.
const FAULTS: [(&str, bool, Faulty); 10] = [
    ("attention", false, faulty("swap_sub", false, "sub", 2, Wrong::Swap)),
    ("attention", false, faulty("swap_div", true, "div", 2, Wrong::Swap)),
    ("attention", true, faulty("drop_factor", false, "mul_zero", 4, Wrong::Drop)),
    ("mlp", false, faulty("tanh_to_sin", false, "tanh", 2, Wrong::Op("sin"))),
    ("mlp", true, faulty("twice", true, "dot_general", 3, Wrong::Double)),
    ("mlp", true, faulty("strength", false, "add", 3, Wrong::Op("max"))),
    ("lstm", false, faulty("merge_gates", false, "logistic", 2, Wrong::Op("tanh"))),
    ("lstm", true, faulty("add_to_sub", false, "add", 2, Wrong::Op("sub"))),
    ("convnet", false, faulty("pool", true, "conv_general_dilated", 2, Wrong::Negate)),
    ("convnet", true, faulty("layout", false, "conv_general_dilated", 1, Wrong::Double)),
];

const fn faulty(
    name: &'static str,
    is_last: bool,
    op: &'static str,
    at: u64,
    wrong: Wrong,
) -> Faulty {
    Faulty { name, is_last, op, at, wrong }
}

#[test]
fn ten_wrong_passes_are_found_and_shrunk() {
    let networks: Vec<Network> = networks();
    let mut figures = Figures::default();
    for (name, is_gradient, passes) in &FAULTS {
        let network = network(&networks, name);
        let case = if *is_gradient { &network.gradient } else { &network.forward };
        let what = format!("{name}: change {} of {}", passes.at, passes.name);
        let run = |function: &Function, inputs: &[Literal]| after(passes, function, inputs);
        let fault = bisect::device(case, passes, &run);
        let mut sources = Vec::new();
        let visits = match passes.is_last {
            true => Target::cpu().stages(&case.function, &BTreeMap::new()).unwrap().pop().unwrap(),
            false => Stage { pass: String::new(), function: case.function.clone() },
        };
        lines(&visits.function.body, passes.op, &visits.function.locations, &mut sources);
        let expected = sources.get(passes.at as usize - 1);
        let named = match &fault {
            Ok(Some(fault @ Fault::Pass(found))) => {
                let line = fault.origin().map(|o| o.location.to_string());
                found.pass == passes.name
                    && found.change == Some(passes.at)
                    && line.as_ref() == expected
            }
            _ => false,
        };
        if !named {
            println!("{what}: expected {expected:?}, found {fault:?}");
        }
        let mut fails = |function: &Function, inputs: &[Literal]| {
            is_wrong(passes, function, inputs).unwrap_or(false).then(|| "wrong".to_owned())
        };
        figures.count(&what, named, shrunk(&what, case, &mut fails));
    }
    figures.state("wrong passes");
}

#[test]
fn the_passes_of_the_compiler_are_right() {
    for network in networks() {
        for case in [&network.forward, &network.gradient] {
            let found = bisect::pass(case, &Target::cpu()).unwrap();
            assert_eq!(found, None, "{}", network.name);
            let device = bisect::on(wengert::Device::Cpu);
            assert_eq!(bisect::device(case, &Target::cpu(), &device).unwrap(), None);
        }
    }
}

/// A function that a policy rounds differs first where the policy rounds first.
#[test]
fn the_first_equation_that_a_policy_changes_is_found() {
    let networks = networks();
    let before = &network(&networks, "mlp").forward;
    let policy = wengert::precision::Precision::bf16();
    let program =
        wengert::core::graph::Program::from_functions(vec![before.function.clone()]).unwrap();
    let program = policy.apply_to_program(&program).unwrap();
    let after = Case { function: program.functions()[0].clone(), inputs: before.inputs.clone() };
    let Some(Fault::Precision(fault)) = bisect::precision(before, &after).unwrap() else {
        panic!("a product of halves differs by more than the tolerance of f32");
    };
    assert_eq!(fault.origin.op, "dot_general");
    let mut products = Vec::new();
    lines(&before.function.body, "dot_general", &before.function.locations, &mut products);
    assert_eq!(fault.origin.location.to_string(), products[0]);
    assert_eq!(bisect::precision(before, before).unwrap(), None);
}
