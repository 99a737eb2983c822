use crate::programs::networks;
use std::collections::BTreeMap;
use wengert::autodiff::function::{Grad, Jvp};
use wengert::check::{Autodiff, Differentiate};
use wengert::core::Location;
use wengert::core::graph::{Body, Function, Program};

fn count(body: &Body, f: &Function, rules: bool, into: &mut BTreeMap<String, usize>) {
    for e in &body.equations {
        let name = match (rules, f.locations.get(e.location)) {
            (true, Location::Derived { rule, .. }) => format!("{rule}/{}", e.op.name()),
            (true, _) => "-".into(),
            _ => e.op.name().into(),
        };
        *into.entry(name).or_default() += 1;
        e.regions.iter().for_each(|r| count(r, f, rules, into));
    }
}

#[test]
fn probe() {
    for n in networks() {
        for (what, case) in [("forward", &n.forward), ("gradient", &n.gradient)] {
            let mut ops = BTreeMap::new();
            count(&case.function.body, &case.function, false, &mut ops);
            println!("PROBE {} {what} {ops:?}", n.name);
            use wengert::isolate::bisect::Passes;
            let stages =
                wengert::core::Target::cpu().stages(&case.function, &BTreeMap::new()).unwrap();
            let last = &stages.last().unwrap().function;
            let mut ops = BTreeMap::new();
            count(&last.body, last, false, &mut ops);
            println!("PROBE {} {what} last {ops:?}", n.name);
            println!("TEXT {}\n{}", n.name, case.function);
        }
        let f = &n.forward.function;
        let floats = (0..f.inputs.len()).filter(|n| f.input_type(*n).dtype.is_float());
        let wrt: Vec<&str> = floats.map(|n| f.inputs[n].name.as_str()).collect();
        let program = Program::from_functions(vec![f.clone()]).unwrap();
        let jvp = Autodiff.jvp(&program, "f", &Jvp { wrt: &wrt }).unwrap();
        let mut ops = BTreeMap::new();
        count(&jvp.body, &jvp, true, &mut ops);
        println!("PROBE {} jvp {ops:#?}", n.name);
        for o in &f.outputs {
            let request = Grad { of: Some(&o.name), wrt: &wrt, value: false, seed: true };
            let grad = Autodiff.grad(&program, "f", &request).unwrap();
            let mut ops = BTreeMap::new();
            count(&grad.body, &grad, true, &mut ops);
            println!("PROBE {} grad {} {ops:#?}", n.name, o.name);
        }
    }
}
