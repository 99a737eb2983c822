//! Small functions and their expected plans.

mod budgets;
mod mutations;
mod random;

use crate::pipeline::plan_kernels;
use crate::samples::Sample;
use wengert_core::graph::{InputRole, OutputRole};
use wengert_core::plan::{Address, Plan, Space, Step};
use wengert_core::{Binding, Target};

fn plan(sample: &Sample) -> Plan {
    let planned = plan_kernels(&sample.0, &Target::cpu(), &Binding::new(), None).unwrap();
    planned.plan.into_inner()
}

/// The addresses of the steps' arguments, e.g. `input.0 arena+64`.
fn places(plan: &Plan) -> Vec<String> {
    let show = |at: &Address| match at.space {
        Space::Arena => format!("arena+{}", at.offset),
        space => space.to_string(),
    };
    plan.steps
        .iter()
        .map(|step| match step {
            Step::Nest { arguments, .. } => {
                arguments.iter().map(|a| show(&a.at)).collect::<Vec<_>>().join(" ")
            }
            Step::Copy { from, to, .. } => format!("copy {} {}", show(from), show(to)),
            _ => panic!("samples have nests only"),
        })
        .collect()
}

#[test]
fn a_chain_stays_in_the_memory_of_its_output() {
    let mut s = Sample::new();
    let x = s.input("x", InputRole::Input, 8);
    let a = s.sum(&[x]);
    let b = s.sum(&[a]);
    let c = s.sum(&[b, x]);
    s.output("y", OutputRole::Output, c);
    let plan = plan(&s);
    assert_eq!(
        places(&plan),
        ["input.0 output.0", "output.0 output.0", "output.0 input.0 output.0"]
    );
    assert_eq!((plan.arena, plan.lower_bound), (0, 0));
    assert_eq!(plan.nests.len(), 2, "equal nests are stored once");
}

#[test]
fn what_cannot_be_in_place_is_not() {
    let mut s = Sample::new();
    let x = s.input("x", InputRole::Input, 32);
    let a = s.sum(&[x]);
    let b = s.reversed(a);
    let c = s.reversed(b);
    s.output("y", OutputRole::Output, c);
    let plan = plan(&s);
    assert_eq!(places(&plan), ["input.0 arena+0", "arena+0 arena+128", "arena+128 output.0"]);
    assert_eq!((plan.arena, plan.lower_bound), (256, 256));
}

#[test]
fn arena_offsets_are_used_again() {
    let mut s = Sample::new();
    let x = s.input("x", InputRole::Input, 16);
    let mut last = s.sum(&[x]);
    for _ in 0..10 {
        last = s.reversed(last);
    }
    s.output("y", OutputRole::Output, last);
    assert_eq!(plan(&s).arena, 128);
}

#[test]
fn state_is_updated_in_place_after_all_who_read_it() {
    let mut s = Sample::new();
    let x = s.input("x", InputRole::Input, 8);
    let w = s.input("w", InputRole::State, 8);
    // Given before the reader of the old value, which must run first.
    let new = s.sum(&[w, x]);
    let y = s.sum(&[x, w, x]);
    s.output("w", OutputRole::State, new);
    s.output("y", OutputRole::Output, y);
    let plan = plan(&s);
    assert_eq!(
        places(&plan),
        ["input.0 variable.0 input.0 output.0", "variable.0 input.0 variable.0"]
    );
    assert_ne!(plan.variables[0].before, Some(plan.variables[0].after));
}

#[test]
fn state_whose_old_value_is_read_after_the_new_one_is_copied() {
    let mut s = Sample::new();
    let w = s.input("w", InputRole::State, 8);
    let new = s.reversed(w);
    let y = s.sum(&[new, w]);
    s.output("w", OutputRole::State, new);
    s.output("y", OutputRole::Output, y);
    assert_eq!(
        places(&plan(&s)),
        ["variable.0 arena+0", "arena+0 variable.0 output.0", "copy arena+0 variable.0"]
    );
}

/// A planner of quadratic time in the number of copies would take minutes.
#[test]
fn as_many_variables_and_inputs_as_one_likes_change_places() {
    const PAIRS: usize = 10_000;
    const RING: usize = 20_000;
    const INPUTS: usize = 20_000;
    let mut s = Sample::new();
    let state = |s: &mut Sample, n: usize| s.input(&format!("s{n}"), InputRole::State, 8);
    let states: Vec<_> = (0..2 * PAIRS + RING).map(|n| state(&mut s, n)).collect();
    let inputs: Vec<_> =
        (0..INPUTS).map(|n| s.input(&format!("x{n}"), InputRole::Input, 8)).collect();
    for n in 0..states.len() {
        let other = if n < 2 * PAIRS { n ^ 1 } else { 2 * PAIRS + (n + 1 - 2 * PAIRS) % RING };
        s.output(&format!("s{n}"), OutputRole::State, states[other]);
    }
    for (n, input) in inputs.iter().enumerate() {
        s.output(&format!("y{n}"), OutputRole::Output, *input);
    }
    // Each cycle has a value that waits in a place of its own.
    let copies = INPUTS + states.len() + PAIRS + 1;
    assert_eq!(plan(&s).steps.len(), copies);
}

#[test]
fn variables_that_change_places_do_so_over_a_temporary() {
    let mut s = Sample::new();
    let a = s.input("a", InputRole::State, 8);
    let b = s.input("b", InputRole::State, 8);
    let c = s.input("c", InputRole::State, 8);
    s.output("a", OutputRole::State, b);
    s.output("b", OutputRole::State, a);
    s.output("c", OutputRole::State, a);
    let plan = plan(&s);
    assert_eq!(plan.variables[2].before.map(|v| v.0), Some(c.0));
    assert_eq!(
        places(&plan),
        [
            "copy variable.0 variable.2",
            "copy variable.1 arena+0",
            "copy variable.0 variable.1",
            "copy arena+0 variable.0"
        ]
    );
}

#[test]
fn outputs_of_one_value_and_of_inputs_are_copied() {
    let mut s = Sample::new();
    let x = s.input("x", InputRole::Input, 8);
    let p = s.input("p", InputRole::Param, 8);
    let c = s.constant(&[1.0, 2.0]);
    let y = s.sum(&[x, p]);
    for (name, buffer) in [("y", y), ("again", y), ("x", x), ("p", p), ("c", c)] {
        s.output(name, OutputRole::Output, buffer);
    }
    s.output("fresh", OutputRole::State, y);
    let plan = plan(&s);
    assert_eq!(
        places(&plan),
        [
            "copy input.0 output.2",
            "copy variable.0 output.3",
            "copy constant.0 output.4",
            "input.0 variable.0 variable.1",
            "copy variable.1 output.0",
            "copy variable.1 output.1"
        ]
    );
    assert_eq!(plan.variables[1].before, None);
    assert_eq!(plan.variables[0].before, Some(plan.variables[0].after), "parameters are only read");
}

#[test]
fn planning_is_deterministic() {
    let mut s = Sample::new();
    let x = s.input("x", InputRole::Input, 100);
    let mut all = vec![x];
    for n in 0..30 {
        let next = if n % 3 == 0 { s.reversed(all[n]) } else { s.sum(&[all[n], all[n / 2]]) };
        all.push(next);
    }
    let y = s.sum(&all);
    s.output("y", OutputRole::Output, y);
    assert_eq!(plan(&s), plan(&s));
}

#[test]
fn kernels_that_do_not_fit_together_are_refused() {
    let mut s = Sample::new();
    let x = s.input("x", InputRole::Input, 8);
    let y = s.sum(&[x]);
    s.output("y", OutputRole::Output, y);
    let refused = |change: fn(&mut Sample), code: &str| {
        let mut bad = Sample(s.0.clone());
        change(&mut bad);
        let error = plan_kernels(&bad.0, &Target::cpu(), &Binding::new(), None).unwrap_err();
        assert!(error.message.contains(code), "{error}");
    };
    refused(|s| s.0.kernels[0].reads[0] = s.0.kernels[0].writes[0], "(K3)");
    refused(|s| s.0.kernels[0].writes[0] = s.0.kernels[0].reads[0], "(K2)");
    refused(|s| s.0.kernels[0].reads.clear(), "(K4)");
    refused(|s| s.0.buffers[s.0.inputs[0].1].ty = "f64[8]".parse_type(), "(K4)");
    refused(|s| s.0.outputs[0].1 = "f32[9]".parse_type(), "(K5)");
    refused(|s| s.0.outputs[0].2 = crate::kernels::BufferId(7), "(K3)");
    refused(|s| s.0.buffers[s.0.inputs[0].1].ty = "f64[B]".parse_type(), "(K1)");
}

trait ParseType {
    fn parse_type(&self) -> wengert_core::TensorType;
}

impl ParseType for str {
    fn parse_type(&self) -> wengert_core::TensorType {
        wengert_core::text::Cursor::new("test", self).tensor_type().unwrap()
    }
}
