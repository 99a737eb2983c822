//! Mutated plans: each is refused, or computes the same bits.

use super::budgets::{there_and_back, within};
use super::plan;
use super::random::{arguments, function, recipes};
use crate::samples::Sample;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::collections::BTreeMap;
use wengert_core::id::Id;
use wengert_core::plan::{
    Address, Argument, LoopId, Plan, Space, Step, ValueId, interpret, parse_plan, verify,
};
use wengert_core::{DType, Literal, Scalar};

/// A pseudo-random generator.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

/// All values and addresses that a plan names.
#[derive(Default)]
struct Names<'a> {
    values: Vec<&'a mut ValueId>,
    addresses: Vec<&'a mut Address>,
}

impl<'a> Names<'a> {
    fn of(plan: &'a mut Plan) -> Names<'a> {
        let mut names = Names::default();
        names.values.extend(plan.inputs.iter_mut().map(|i| &mut i.value));
        names.values.extend(plan.outputs.iter_mut().map(|o| &mut o.value));
        names.values.extend(plan.constants.iter_mut().map(|c| &mut c.value));
        for variable in &mut plan.variables {
            names.values.extend(&mut variable.before);
            names.values.push(&mut variable.after);
        }
        names.steps(&mut plan.steps);
        names
    }

    fn argument(&mut self, argument: &'a mut Argument) {
        self.values.push(&mut argument.value);
        self.addresses.push(&mut argument.at);
    }

    fn steps(&mut self, steps: &'a mut [Step]) {
        for step in steps {
            match step {
                Step::Nest { arguments, .. } => arguments.iter_mut().for_each(|a| self.argument(a)),
                Step::Call { arguments, workspace, .. } => {
                    arguments.iter_mut().for_each(|a| self.argument(a));
                    self.addresses.extend(workspace.iter_mut().map(|w| &mut w.0));
                }
                Step::Start { transfer, .. } | Step::Wait(transfer) => {
                    self.argument(&mut transfer.operand);
                    self.argument(&mut transfer.result);
                }
                Step::Copy { value, from, to } => {
                    self.values.push(value);
                    self.addresses.extend([from, to]);
                }
                Step::Loop(l) => {
                    for c in &mut l.carries {
                        self.values.extend([
                            &mut c.initial,
                            &mut c.input,
                            &mut c.output,
                            &mut c.result,
                        ]);
                        self.addresses.push(&mut c.at);
                    }
                    for s in &mut l.slices {
                        self.values.extend([&mut s.whole, &mut s.part]);
                        self.addresses.push(&mut s.at);
                    }
                    for s in &mut l.stacks {
                        self.values.extend([&mut s.whole, &mut s.part]);
                        self.values.extend(&mut s.initial);
                        self.addresses.push(&mut s.at);
                    }
                    self.steps(&mut l.body);
                }
                Step::If { predicate, then, otherwise, merges } => {
                    self.argument(predicate);
                    self.steps(then);
                    self.steps(otherwise);
                    self.merges(merges);
                }
                Step::Switch { index, arms, merges } => {
                    self.argument(index);
                    arms.iter_mut().for_each(|arm| self.steps(arm));
                    self.merges(merges);
                }
            }
        }
    }

    fn merges(&mut self, merges: &'a mut [wengert_core::plan::Merge]) {
        for merge in merges {
            self.values.extend(&mut merge.ways);
            self.values.push(&mut merge.result);
            self.addresses.push(&mut merge.at);
        }
    }
}

/// Calls `f` with the block that the counter selects.
fn with_block(steps: &mut Vec<Step>, counter: &mut usize, f: &mut dyn FnMut(&mut Vec<Step>)) {
    if *counter == 0 {
        f(steps);
    }
    *counter = counter.wrapping_sub(1);
    for step in steps {
        match step {
            Step::Loop(l) => with_block(&mut l.body, counter, f),
            Step::If { then, otherwise, .. } => {
                with_block(then, counter, f);
                with_block(otherwise, counter, f);
            }
            Step::Switch { arms, .. } => {
                arms.iter_mut().for_each(|arm| with_block(arm, counter, f))
            }
            _ => {}
        }
    }
}

fn blocks(steps: &[Step]) -> usize {
    1 + steps.iter().flat_map(|s| s.blocks()).map(blocks).sum::<usize>()
}

/// One change of offsets, order or values. The work of each kernel is left alone, since that
/// would be another program.
fn mutate(plan: &Plan, random: &mut Random) -> Plan {
    let mut mutant = plan.clone();
    let unit = plan.target.alignment;
    let values = plan.values.len();
    let kind = random.below(10);
    if kind < 6 {
        let mut names = Names::of(&mut mutant);
        let (v, a) = (random.below(names.values.len()), random.below(names.addresses.len()));
        let other = names.addresses.get(random.below(names.addresses.len())).map(|a| (**a).clone());
        if kind == 0 {
            *names.values[v] = ValueId::new(random.below(values));
        } else if let Some(at) = names.addresses.get_mut(a) {
            match kind {
                1 => {
                    at.offset =
                        (at.offset + unit * (1 + random.below(3) as u64)) % (plan.arena + unit)
                }
                2 => at.offset = at.offset.wrapping_sub(unit),
                3 => **at = other.expect("there is an address"),
                4 => {
                    let n = random.below(3) as u32;
                    at.space =
                        [Space::Arena, Space::Input(n), Space::Output(n), Space::Variable(n)]
                            [random.below(4)];
                }
                _ => match at.strides.first_mut() {
                    Some(stride) if random.below(2) == 0 => stride.1 = 4 * random.below(8) as u64,
                    Some(_) => drop(at.strides.pop()),
                    None => at.strides.push((LoopId(0), 8)),
                },
            }
        }
        return mutant;
    }
    let mut block = random.below(blocks(&plan.steps));
    with_block(&mut mutant.steps, &mut block, &mut |steps| {
        let (a, b) = (random.below(steps.len()), random.below(steps.len()));
        if steps.is_empty() {
            return;
        }
        match kind {
            6 => drop(steps.remove(a)),
            7 => steps.insert(b, steps[a].clone()),
            8 => steps.swap(a, b),
            _ => {
                let next = (a + 1) % steps.len();
                steps.swap(a, next);
            }
        }
    });
    mutant
}

fn given(dtype: DType, shape: &[usize], seed: usize) -> Literal {
    let count: usize = shape.iter().product();
    let values: Vec<Scalar> =
        (0..count).map(|i| Scalar::from_i64(dtype, ((i * 5 + seed) % 7) as i64)).collect();
    Literal::from_scalars(dtype, shape, &values).unwrap()
}

/// The plans of core's filetests, with loops and branches.
fn samples() -> Vec<Plan> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/plan");
    let mut plans = Vec::new();
    for file in ["control", "loops", "rare", "straight"] {
        let text = std::fs::read_to_string(folder.join(file).with_extension("plan")).unwrap();
        for part in text.split("\nplan ").skip(usize::from(!text.starts_with("plan "))) {
            let end = part.find("\n}\n").unwrap();
            plans.push(parse_plan("sample", &format!("plan {}\n}}\n", &part[..end])).unwrap().0);
        }
    }
    plans
}

/// Tries mutants of a plan. Returns the numbers of refused and accepted ones.
fn refused_or_equal(plan: &Plan, count: usize, random: &mut Random) -> (usize, usize) {
    let inputs: Vec<Literal> = plan
        .inputs
        .iter()
        .enumerate()
        .map(|(n, i)| given(plan.values[i.value].dtype, &plan.values[i.value].shape, n))
        .collect();
    let variables = plan.variables.iter().enumerate();
    let variables: Vec<Option<Literal>> =
        variables.map(|(n, v)| v.before.map(|_| given(v.dtype, &v.shape, n + 3))).collect();
    let wanted = interpret(plan, &inputs, &variables).unwrap();
    let (mut refused, mut accepted) = (0, 0);
    for _ in 0..count {
        let mut mutant = mutate(plan, random);
        if mutant == *plan {
            continue;
        }
        // Another layout has an arena of another size, which alone must not refuse it.
        let load = wengert_core::plan::account(plan).peak.bytes;
        if random.below(2) == 0 && verify(&mutant).is_err_and(|e| e.message.contains("(P15)")) {
            for (arena, bound) in [(plan.arena, load), (plan.arena + plan.target.alignment, load)] {
                (mutant.arena, mutant.lower_bound) = (arena, bound);
                if verify(&mutant).is_ok() {
                    break;
                }
            }
        }
        if verify(&mutant).is_err() {
            refused += 1;
            continue;
        }
        accepted += 1;
        match interpret(&mutant, &inputs, &variables) {
            Ok(found) => assert!(found == wanted, "another result\n{plan}\n{mutant}"),
            Err(error) => panic!("accepted, but: {error}\n{mutant}"),
        }
    }
    (refused, accepted)
}

#[test]
fn mutants_of_loops_and_branches() {
    let mut random = Random(1);
    let samples = samples();
    assert!(samples.len() >= 10, "the files are there");
    let mut all = (0, 0);
    for plan in &samples {
        let (refused, accepted) = refused_or_equal(plan, 400, &mut random);
        all = (all.0 + refused, all.1 + accepted);
    }
    assert!(all.0 > 3000 && all.1 > 20, "refused and accepted: {all:?}");
}

/// Plans of random functions, each with the plan of the least memory if that is different.
fn planned(count: usize) -> Vec<Plan> {
    let mut runner = TestRunner::deterministic();
    let mut plans: Vec<Plan> =
        (8..16).flat_map(|steps| within(&there_and_back(steps, 33), 4)).collect();
    while plans.len() < count {
        let recipe = recipes().new_tree(&mut runner).unwrap().current();
        let sample = Sample(function(&recipe));
        let plan = plan(&sample);
        if plan.steps.len() > 3 {
            plans.extend(within(&sample, 2));
            plans.push(plan);
        }
    }
    plans
}

#[test]
fn some_of_these_plans_repeat_steps() {
    let again = |plan: &&Plan| {
        let results = |step| uses(plan, step).1.into_iter().map(|a| a.value).collect::<Vec<_>>();
        let mut made: Vec<ValueId> = plan.steps.iter().flat_map(results).collect();
        made.sort_unstable();
        made.windows(2).any(|pair| pair[0] == pair[1])
    };
    assert!(planned(100).iter().filter(again).count() >= 10);
}

#[test]
fn mutants_of_plans() {
    let mut random = Random(2);
    let mut all = (0, 0);
    for plan in planned(100) {
        let (refused, accepted) = refused_or_equal(&plan, 100, &mut random);
        all = (all.0 + refused, all.1 + accepted);
        let (inputs, variables) = arguments(&plan);
        interpret(&plan, &inputs, &variables).unwrap();
    }
    assert!(all.0 + all.1 > 8000 && all.1 > 50, "refused and accepted: {all:?}");
}

/// The operands and the results of a step.
fn uses<'a>(plan: &Plan, step: &'a Step) -> (Vec<&'a Argument>, Vec<&'a Argument>) {
    match step {
        Step::Nest { nest, arguments } => {
            let parameters = plan.nests[*nest].parameters();
            let operands =
                parameters.filter(|(_, b)| b.role == wengert_core::nest::BufferRole::In).count();
            (arguments[..operands].iter().collect(), arguments[operands..].iter().collect())
        }
        Step::Call { call, arguments, .. } => {
            let (operands, results) = call.split(arguments);
            (operands.iter().collect(), results.iter().collect())
        }
        _ => (vec![], vec![]),
    }
}

/// Mutants that are wrong by construction.
fn harmful(plan: &Plan, random: &mut Random, mutants: &mut BTreeMap<&'static str, Vec<Plan>>) {
    let made: Vec<(usize, &Argument)> = (0..plan.steps.len())
        .flat_map(|s| uses(plan, &plan.steps[s]).1.into_iter().map(move |a| (s, a)))
        .collect();
    let last_read = |v: ValueId| {
        (0..plan.steps.len())
            .rev()
            .find(|s| uses(plan, &plan.steps[*s]).0.iter().any(|a| a.value == v))
    };
    // A value computed several times may be overwritten in between.
    let once = |v: ValueId| made.iter().filter(|(_, a)| a.value == v).count() == 1;
    let mut add = |kind: &'static str, mutant: Plan| mutants.entry(kind).or_default().push(mutant);
    for (s, result) in &made {
        // A consumer before its producer.
        let reader = (s + 1..plan.steps.len())
            .find(|r| uses(plan, &plan.steps[*r]).0.iter().any(|a| a.value == result.value));
        if let Some(r) = reader.filter(|_| once(result.value)) {
            let mut mutant = plan.clone();
            mutant.steps.swap(*s, r);
            add("swapped steps", mutant);
        }
        // Places a value over an earlier one that is still read after it.
        let earlier =
            made.iter().filter(|(t, u)| t < s && last_read(u.value) > Some(*s) && once(u.value));
        let earlier: Vec<_> = earlier.filter(|(_, u)| u.at != result.at).collect();
        if let Some((_, victim)) = earlier.get(random.below(earlier.len())) {
            let mut mutant = plan.clone();
            let (old, new) = (result.at.clone(), victim.at.clone());
            for step in &mut mutant.steps {
                if let Step::Nest { arguments, .. } | Step::Call { arguments, .. } = step {
                    let moved =
                        arguments.iter_mut().filter(|a| a.value == result.value && a.at == old);
                    moved.for_each(|a| a.at = new.clone());
                }
            }
            add("overlap", mutant);
        }
        // Recomputes a value from another operand.
        let mut again = plan.steps[*s].clone();
        if let Step::Nest { arguments, .. } | Step::Call { arguments, .. } = &mut again {
            let same_type =
                |v: ValueId| plan.values[v].bytes() == plan.values[arguments[0].value].bytes();
            let sources =
                plan.inputs.iter().enumerate().map(|(n, i)| (Space::Input(n as u32), i.value));
            let other =
                sources.into_iter().find(|(_, v)| same_type(*v) && *v != arguments[0].value);
            if let Some((space, value)) = other {
                arguments[0] = Argument { value, at: Address::new(space, 0) };
                let mut mutant = plan.clone();
                mutant.steps.insert(s + 1, again);
                add("wrong recomputation", mutant);
            }
        }
        // Moves a reader after the step that overwrites its operand.
        let overwriter =
            made.iter().find(|(t, u)| t > s && u.at == result.at && u.value != result.value);
        if let (Some(r), Some((t, _))) = (last_read(result.value), overwriter)
            && r < *t
            && once(result.value)
        {
            let mut mutant = plan.clone();
            let step = mutant.steps.remove(r);
            mutant.steps.insert(*t, step);
            add("use after free", mutant);
        }
        // Claims the variable's old value where its new value lies.
        for variable in plan.variables.iter().filter(|v| v.after == result.value) {
            let Some(before) = variable.before.filter(|b| *b != variable.after) else { continue };
            for r in s + 1..plan.steps.len() {
                let mut mutant = plan.clone();
                if let Step::Nest { arguments, .. } | Step::Call { arguments, .. } =
                    &mut mutant.steps[r]
                {
                    let operand = arguments.iter_mut().find(|a| a.value == variable.after);
                    if let Some(operand) = operand {
                        operand.value = before;
                        add("wrong version", mutant);
                    }
                }
            }
        }
    }
}

#[test]
fn harmful_mutants_are_refused() {
    let mut random = Random(3);
    let mut mutants = BTreeMap::new();
    for plan in planned(200) {
        harmful(&plan, &mut random, &mut mutants);
    }
    for kind in
        ["overlap", "swapped steps", "use after free", "wrong recomputation", "wrong version"]
    {
        let of_kind = mutants.get(kind).map_or(0, Vec::len);
        assert!(of_kind >= 20, "{kind}: only {of_kind}");
    }
    let total: usize = mutants.values().map(Vec::len).sum();
    assert!(total > 2000, "{total}");
    for (kind, of_kind) in mutants {
        for mutant in of_kind {
            let Err(error) = verify(&mutant) else { panic!("{kind} is accepted\n{mutant}") };
            assert!(
                !error.message.contains("(P15)"),
                "{kind} is refused for its arena only\n{mutant}"
            );
        }
    }
}
