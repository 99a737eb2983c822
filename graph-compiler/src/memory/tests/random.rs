//! Random functions: the plan computes the same results as the kernels one after another.

use super::plan;
use crate::kernels::{Kernel, Kernels, Work};
use crate::samples::Sample;
use proptest::prelude::*;
use std::collections::BTreeMap;
use wengert_core::call::{Addends, Call, Gemm, Matrix};
use wengert_core::graph::{InputRole, OutputRole};
use wengert_core::plan::{Plan, Run, interpret};
use wengert_core::{DType, Literal, nest};

/// The choices from which a random function is built.
pub(super) type Recipe = (Vec<(u8, usize, usize, usize)>, Vec<(u8, usize)>);

pub(super) fn recipes() -> impl Strategy<Value = Recipe> {
    let kernel = (0u8..12, 0usize..1000, 0usize..1000, 0usize..1000);
    let sink = (0u8..4, 0usize..1000);
    (prop::collection::vec(kernel, 1..25), prop::collection::vec(sink, 1..6))
}

const SIZES: [usize; 3] = [1, 16, 33];

/// A function with inputs, parameters and states of each size.
pub(super) fn function((steps, sinks): &Recipe) -> Kernels {
    let mut s = Sample::new();
    let mut known = Vec::new();
    let mut states = Vec::new();
    for n in SIZES {
        known.push(s.input(&format!("x{n}"), InputRole::Input, n));
        known.push(s.input(&format!("p{n}"), InputRole::Param, n));
        states.push(s.input(&format!("s{n}"), InputRole::State, n));
        states.push(s.input(&format!("t{n}"), InputRole::State, n));
    }
    known.extend(states.iter().copied());
    known.push(s.constant(&[0.5]));
    let elements = |s: &Sample, b| s.0.buffers[b].ty.elements().unwrap();
    for (kind, a, b, c) in steps {
        let a = known[a % known.len()];
        let same: Vec<_> =
            known.iter().copied().filter(|k| elements(&s, *k) == elements(&s, a)).collect();
        let narrow: Vec<_> = known.iter().copied().filter(|k| elements(&s, *k) == 1).collect();
        let (b, c) = (same[b % same.len()], narrow[c % narrow.len()]);
        match kind {
            0..4 => known.push(s.reversed(a)),
            4..7 => known.push(s.sum(&[a, b])),
            7..9 => known.push(s.sum(&[a, c, b])),
            9 => known.push(s.sum(&[a])),
            10 => known.extend(s.two(a, b)),
            _ => known.push(product(&mut s, a, c, b)),
        }
    }
    let mut replaced = Vec::new();
    for (n, (kind, choice)) in sinks.iter().enumerate() {
        let state = states[choice % states.len()];
        match kind {
            0 if !replaced.contains(&state) => {
                replaced.push(state);
                let name = s.0.inputs.iter().find(|(_, b)| *b == state).unwrap().0.name.clone();
                let same =
                    known.iter().copied().filter(|k| elements(&s, *k) == elements(&s, state));
                let same: Vec<_> = same.collect();
                s.output(
                    &name,
                    OutputRole::State,
                    same[same.len() - 1 - choice % same.len().min(6)],
                );
            }
            1 => {
                let buffer = known[known.len() - 1 - choice % known.len().min(6)];
                s.output(&format!("new{n}"), OutputRole::State, buffer);
            }
            _ => s.output(&format!("y{n}"), OutputRole::Output, known[choice % known.len()]),
        }
    }
    s.0
}

/// `a · c + b` as a GEMM whose residual may be in place.
fn product(
    s: &mut Sample,
    a: crate::kernels::BufferId,
    c: crate::kernels::BufferId,
    b: crate::kernels::BufferId,
) -> crate::kernels::BufferId {
    let m = s.0.buffers[a].ty.elements().unwrap();
    let result = s.buffer(m);
    let unit = Matrix { batch: 0, row: 1, column: 1 };
    let addends = Addends { residual: true, ..Addends::default() };
    let f32 = DType::F32;
    let call = Call::Gemm(Gemm {
        batch: 1,
        m,
        n: 1,
        k: 1,
        lhs: unit,
        rhs: unit,
        operand: f32,
        rhs_operand: None,
        scales: None,
        accumulate: f32,
        result: f32,
        addends,
        pitch: None,
    });
    let (reads, writes) = (vec![a, c, b], vec![result]);
    s.0.kernels.push(Kernel { work: Work::Call(call), reads, writes, locations: vec![] });
    result
}

fn numbers(n: usize, seed: usize) -> Literal {
    Literal::from_vec(&[n], (0..n).map(|i| ((i * 7 + seed * 13) % 29) as f32 / 4.0 - 3.0).collect())
        .unwrap()
}

/// Inputs and variables for a plan.
pub(super) fn arguments(plan: &Plan) -> (Vec<Literal>, Vec<Option<Literal>>) {
    let inputs = plan.inputs.iter().enumerate();
    let variables = plan.variables.iter().enumerate();
    (
        inputs.map(|(n, i)| numbers(plan.values[i.value].shape[0], n)).collect(),
        variables.map(|(n, v)| v.before.map(|_| numbers(v.shape[0], n + 50))).collect(),
    )
}

/// Runs kernels in their given order, each buffer in separate memory.
fn direct(kernels: &Kernels, plan: &Plan) -> Run {
    let (inputs, variables) = arguments(plan);
    let mut values = BTreeMap::new();
    let mut inputs = inputs.into_iter();
    let mut old = variables.iter();
    for (input, buffer) in &kernels.inputs {
        let literal = match input.role {
            InputRole::Input | InputRole::Key => inputs.next().unwrap(),
            _ => old.next().unwrap().clone().unwrap(),
        };
        values.insert(*buffer, literal);
    }
    kernels.constants.iter().for_each(|(b, l)| drop(values.insert(*b, l.clone())));
    for kernel in &kernels.kernels {
        let operands: Vec<Literal> = kernel.reads.iter().map(|b| values[b].clone()).collect();
        let results = match &kernel.work {
            Work::Nest(nest) => nest::interpret(nest, &operands).unwrap(),
            Work::Call(call) => {
                call.references(&operands).unwrap().iter().map(|r| r.literal()).collect()
            }
            Work::Followed(_) | Work::Control(_) => {
                unreachable!("these kernels are nests and calls")
            }
        };
        for (buffer, result) in kernel.writes.iter().zip(results) {
            let shape = kernels.buffers[*buffer].ty.extents().unwrap();
            values.insert(*buffer, result.reshape(&shape).unwrap());
        }
    }
    let of = |role: OutputRole, name: &str| {
        let found = kernels.outputs.iter().find(|(o, ..)| o.role == role && o.name == name);
        found.map(|(_, _, b)| values[b].clone())
    };
    let outputs = plan.outputs.iter().map(|o| of(OutputRole::Output, &o.name).unwrap()).collect();
    let after = plan
        .variables
        .iter()
        .zip(&variables)
        .map(|(v, old)| of(OutputRole::State, &v.name).unwrap_or_else(|| old.clone().unwrap()));
    Run { outputs, variables: after.collect() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn plans_compute_what_kernels_compute(recipe in recipes()) {
        let kernels = function(&recipe);
        let plan = plan(&Sample(kernels.clone()));
        let (inputs, variables) = arguments(&plan);
        prop_assert_eq!(interpret(&plan, &inputs, &variables).unwrap(), direct(&kernels, &plan));
        let again = wengert_core::plan::parse_plan("printed", &plan.to_string()).unwrap().0;
        prop_assert!(again == plan, "{}", plan);
    }
}
