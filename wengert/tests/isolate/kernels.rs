//! Ten wrong kernels: devices that spoil the results of an op, and plans in which an instruction is
//! replaced by another.

use crate::programs::{Network, first, network, networks};
use crate::reduced::{Figures, shrunk};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use wengert::core::graph::{Function, Program};
use wengert::core::interpret::{Array, Cell};
use wengert::core::plan::parse_plan;
use wengert::core::{Target, Verified, interpret};
use wengert::isolate::bisect::{self, Fault, Passes};
use wengert::isolate::walk::{Flow, Visit, walk};
use wengert::pipeline::{Options, compile};
use wengert::{Binding, Device, Literal, Result, Session, check};

/// A kernel that is wrong.
#[derive(Clone, Copy, Debug)]
enum Kernel {
    /// The last element of each result of this op is wrong.
    Results(&'static str),
    /// The first instruction is compiled as the second.
    Instruction(&'static str, &'static str),
}

/// Adds to the last element.
fn spoil(array: &mut Array<f64>) {
    if let Some(Cell::Real(last)) = Arc::make_mut(&mut array.cells).last_mut() {
        *last += 0.25 + last.abs() / 2.0;
    }
}

impl Kernel {
    /// Runs a function on a device with this kernel. The line of the first spoilt equation is
    /// written to `spoilt`.
    fn run(
        self,
        function: &Function,
        inputs: &[Literal],
        spoilt: &RefCell<Option<String>>,
    ) -> Result<Vec<Literal>> {
        match self {
            Kernel::Results(op) => {
                let stages = Target::cpu().stages(function, &BTreeMap::new())?;
                let last = &stages.last().unwrap().function;
                *spoilt.borrow_mut() = None;
                let mut visitor = |visit: Visit<'_>| {
                    if visit.equation.op.name() == op && visit.results[0].dtype.is_float() {
                        let line = last.locations.origin(visit.equation.location).to_string();
                        spoilt.borrow_mut().get_or_insert(line);
                        spoil(&mut visit.results[0]);
                    }
                    Flow::Continue(())
                };
                Ok(walk(last, inputs, &mut visitor)?.unwrap())
            }
            Kernel::Instruction(from, to) => {
                let program = Program::from_functions(vec![function.clone()])?;
                let (target, options) = (Target::cpu(), Options::default());
                let plan = compile(&program, &function.name, &Binding::new(), &target, &options)?;
                let text = plan.to_string().replace(&format!(" = {from} %"), &format!(" = {to} %"));
                let (plan, places) = parse_plan("f.plan", &text)?;
                let mut session = Session::open(Device::Cpu)?;
                let mut compiled = session.load_plan(Verified::read(plan, &places)?)?;
                let names = function.inputs.iter().map(|input| input.name.as_str());
                let given: Vec<(&str, &Literal)> = names.zip(inputs).collect();
                let outputs = compiled.run(&given)?;
                function.outputs.iter().map(|o| outputs.get(&o.name).cloned()).collect()
            }
        }
    }
}

/// Network, whether its gradient, the kernel, the op at fault.
const FAULTS: [(&str, bool, Kernel, &str); 10] = [
    ("mlp", true, Kernel::Results("dot_general"), "dot_general"),
    ("attention", false, Kernel::Results("reduce_sum"), "reduce_sum"),
    ("attention", true, Kernel::Results("dot_general"), "dot_general"),
    ("lstm", false, Kernel::Results("dot_general"), "dot_general"),
    ("convnet", true, Kernel::Results("conv_general_dilated"), "conv_general_dilated"),
    ("mlp", false, Kernel::Instruction("tanh", "sin"), "tanh"),
    ("attention", false, Kernel::Instruction("exp", "tanh"), "exp"),
    ("attention", false, Kernel::Instruction("sqrt", "abs"), "sqrt"),
    ("lstm", false, Kernel::Instruction("tanh", "sin"), "tanh"),
    ("convnet", false, Kernel::Instruction("log", "exp"), "softmax_cross_entropy"),
];

#[test]
fn ten_wrong_kernels_are_found_and_shrunk() {
    let networks: Vec<Network> = networks();
    let mut figures = Figures::default();
    for (name, is_gradient, kernel, op) in FAULTS {
        let network = network(&networks, name);
        let case = if is_gradient { &network.gradient } else { &network.forward };
        let what = format!("{name}: {kernel:?}");
        let spoilt = RefCell::new(None);
        let run = |function: &Function, inputs: &[Literal]| kernel.run(function, inputs, &spoilt);
        let found = run(&case.function, &case.inputs);
        assert!(found.as_ref().is_ok_and(|found| !found.is_empty()), "{what}: {found:?}");
        // A walk knows what it has spoilt first. A plan has no lines, so the op is known.
        let expected =
            spoilt.take().or_else(|| first(&case.function.body, op, &case.function.locations));
        let fault = bisect::device(case, &Target::cpu(), &run);
        let named = match &fault {
            Ok(Some(Fault::Kernel(fault))) => {
                fault.origin.op == op && Some(fault.origin.location.to_string()) == expected
            }
            _ => false,
        };
        if !named {
            println!("{what}: expected {op} at {expected:?}, found {fault:?}");
        }
        let mut fails = |function: &Function, inputs: &[Literal]| {
            let found = run(function, inputs).ok()?;
            let expected = interpret::run(function, inputs).ok()?;
            let mut pairs = found.iter().zip(&expected);
            pairs
                .any(|(found, expected)| matches!(check::deviation(found, expected), Ok(Some(_))))
                .then(|| "wrong".to_owned())
        };
        figures.count(&what, named, shrunk(&what, case, &mut fails));
    }
    figures.state("wrong kernels");
}
