//! Plans that are nearly valid: texts with several changes. Numbers that follow from other parts of
//! the plan (the arena, the bound) are corrected after the change, since otherwise the verifier
//! would refuse every mutant.

use std::path::Path;
use wengert_core::graph::InputRole;
use wengert_core::nest::{BufferRole, Nest, parse_nests};
use wengert_core::plan::{
    Address, Argument, Input, NestId, Output, Plan, Space, Step, Value, ValueId, account,
    parse_plan,
};
use wengert_core::{Binding, Id, Target, Verified};
use wengert_testing::Random;

/// The random numbers of a case.
pub fn random(seed: u64, case: u64) -> Random {
    Random(seed ^ case.wrapping_mul(0xd1b5_4a32_d192_ed03))
}

/// A mutant: a plan for the CPU that the verifier accepts, or none.
pub enum Mutant {
    Refused,
    Accepted(Box<Verified<Plan>>),
}

/// The texts that are mutated.
pub struct Mutator {
    plans: Vec<String>,
    nests: Vec<String>,
}

const SMALL: [&str; 14] =
    ["0", "1", "2", "3", "4", "5", "7", "8", "15", "16", "17", "31", "33", "64"];
const MIDDLE: [&str; 8] = ["65", "100", "127", "255", "256", "257", "1000", "1025"];
const EXTREME: [&str; 12] = [
    "65536",
    "1048577",
    "2147483647",
    "2147483648",
    "4294967296",
    "1099511627776",
    "1152921504606846976",
    "2305843009213693888",
    "4611686018427387904",
    "9223372036854775807",
    "-1",
    "-9223372036854775808",
];
const DTYPES: [&str; 11] =
    ["f32", "f64", "f16", "bf16", "i32", "i64", "u8", "i8", "u32", "u64", "bool"];
const BINARY: [&str; 6] = ["add", "sub", "mul", "min", "max", "div"];
const UNARY: [&str; 5] = ["neg", "abs", "exp", "sqrt", "floor"];

/// The texts of a folder's files, each from a line that begins with the keyword. Texts that expect
/// an error or a fault are left out.
fn texts(folder: &Path, keyword: &str) -> Vec<String> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(path).unwrap();
        let mut case: Option<String> = None;
        for line in text.lines().chain([keyword]) {
            if line.starts_with(keyword) {
                found.extend(
                    case.take().filter(|c| !c.contains("// error:") && !c.contains("// fault:")),
                );
                case = Some(String::new());
            }
            if let Some(case) = case.as_mut().filter(|_| !line.starts_with("//")) {
                *case += line;
                case.push('\n');
            }
        }
    }
    found
}

impl Mutator {
    pub fn of(folder: &Path) -> Mutator {
        let right = |text: &String| {
            parse_plan("plan", text).is_ok_and(|(plan, _)| accepted(plan).is_some())
        };
        let plans: Vec<String> =
            texts(&folder.join("plan"), "plan ").into_iter().filter(right).collect();
        let right = |text: &String| nest(text).is_some();
        let nests: Vec<String> =
            texts(&folder.join("nest"), "nest ").into_iter().filter(right).collect();
        assert!(
            plans.len() > 10 && nests.len() > 25,
            "{} plans and {} nests",
            plans.len(),
            nests.len()
        );
        Mutator { plans, nests }
    }

    /// A text with one to five changes.
    pub fn mutant(&self, random: &mut Random) -> Mutant {
        let of_nest = random.below(3) > 0;
        let all = if of_nest { &self.nests } else { &self.plans };
        let mut text = all[random.below(all.len())].clone();
        for _ in 0..1 + random.below(5) {
            change(&mut text, random);
        }
        let plan = match of_nest {
            true => nest(&text),
            false => parse_plan("mutant", &text).ok().and_then(|(plan, _)| accepted(plan)),
        };
        plan.map_or(Mutant::Refused, |plan| Mutant::Accepted(Box::new(plan)))
    }
}

/// The ranges of the numbers in a text.
fn numbers(text: &str) -> Vec<std::ops::Range<usize>> {
    let bytes = text.as_bytes();
    let is_word = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'%' | b'@' | b'.');
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        if !is_word(bytes[at]) {
            at += 1;
            continue;
        }
        while at < bytes.len() && is_word(bytes[at]) {
            at += 1;
        }
        if bytes[start..at].iter().all(u8::is_ascii_digit) {
            found.push(start..at);
        }
    }
    found
}

fn pick<'a>(random: &mut Random) -> &'a str {
    let words: &[&str] = match random.below(8) {
        0..=3 => &SMALL,
        4 | 5 => &MIDDLE,
        _ => &EXTREME,
    };
    words[random.below(words.len())]
}

/// Replaces every word `from` with `to`, or one of them at random.
fn exchange(text: &mut String, from: &str, to: &str, random: &mut Random, all: bool) {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '%' | '@' | '.');
    let alone = |at: &usize| {
        let before = text[..*at].chars().next_back().is_none_or(|c| !is_word(c));
        before && text[at + from.len()..].chars().next().is_none_or(|c| !is_word(c))
    };
    let found: Vec<usize> = text.match_indices(from).map(|(at, _)| at).filter(alone).collect();
    let chosen = random.below(found.len());
    for (n, at) in found.iter().enumerate().rev() {
        if all || n == chosen {
            text.replace_range(*at..at + from.len(), to);
        }
    }
}

fn change(text: &mut String, random: &mut Random) {
    match random.below(12) {
        // Replaces an extent everywhere. Such a mutant is often valid.
        0..=4 => {
            let found = numbers(text);
            let Some(chosen) = found.get(random.below(found.len())) else { return };
            let from = text[chosen.clone()].to_string();
            exchange(text, &from, pick(random), random, true);
        }
        5 | 6 => {
            let found = numbers(text);
            let Some(chosen) = found.get(random.below(found.len())) else { return };
            text.replace_range(chosen.clone(), pick(random));
        }
        7 => {
            let (from, to) = (*random.pick(&DTYPES), *random.pick(&DTYPES));
            exchange(text, from, to, random, true);
        }
        8 => {
            let ops: &[&str] = if random.below(2) == 0 { &BINARY } else { &UNARY };
            let (from, to) = (*random.pick(ops), *random.pick(ops));
            exchange(text, from, to, random, false);
        }
        // Unused row buffers.
        9 => {
            let Some(head) =
                text.find("nest @").and_then(|at| Some(at + text[at..].find("{\n")? + 2))
            else {
                return;
            };
            let (rows, extent) = (1 + random.below(4), pick(random));
            let dtype = *random.pick(&DTYPES);
            let lines: String =
                (0..rows).map(|n| format!("  row %extra{n}: {dtype}[{extent}]\n")).collect();
            text.insert_str(head, &lines);
        }
        kind => {
            let mut lines: Vec<&str> = text.lines().collect();
            let (from, to) = (random.below(lines.len()), random.below(lines.len()));
            match (kind, random.below(2)) {
                (10, 0) => lines.swap(from, to),
                (10, _) => lines.insert(to, lines[from]),
                _ => drop(lines.remove(from)),
            }
            *text = lines.join("\n") + "\n";
        }
    }
}

/// The plan for the CPU with its arena and lower bound corrected, if the verifier accepts it.
fn accepted(mut plan: Plan) -> Option<Verified<Plan>> {
    plan.target = Target { alignment: plan.target.alignment, ..Target::cpu() };
    for _ in 0..3 {
        let message = match Verified::new(plan.clone()) {
            Ok(plan) => return Some(plan),
            Err(error) => error.message,
        };
        let numbers: Vec<u64> =
            numbers(&message).into_iter().filter_map(|n| message[n].parse().ok()).collect();
        match (
            message.starts_with("the arena has"),
            message.starts_with("the lower bound"),
            numbers.as_slice(),
        ) {
            (true, _, [_, wanted]) => plan.arena = *wanted,
            (_, true, _) => plan.lower_bound = account(&plan).peak.bytes,
            _ => return None,
        }
    }
    None
}

/// A plan that runs a nest once, if the verifier accepts the plan and the nest.
fn nest(text: &str) -> Option<Verified<Plan>> {
    let (nest, _) = parse_nests("mutant", text).ok()?.into_iter().next()?;
    around(nest).and_then(accepted)
}

fn around(nest: Nest) -> Option<Plan> {
    let mut plan = Plan {
        function: "f".into(),
        binding: Binding::new(),
        target: Target::cpu(),
        mesh: Default::default(),
        inputs: vec![],
        outputs: vec![],
        variables: vec![],
        constants: vec![],
        values: Default::default(),
        nests: Default::default(),
        steps: vec![],
        arena: 0,
        lower_bound: 0,
    };
    let mut arguments = Vec::new();
    for (n, (_, buffer)) in nest.parameters().enumerate() {
        let (name, shape) = (format!("x{n}"), buffer.shape.clone());
        let value = ValueId::new(n);
        let _ = plan.values.push(Value {
            name: name.clone(),
            dtype: buffer.dtype,
            shape: shape.clone(),
            pitch: None,
        });
        let space = match buffer.role {
            BufferRole::In => {
                plan.inputs.push(Input { name, role: InputRole::Input, value });
                Space::Input(plan.inputs.len() as u32 - 1)
            }
            BufferRole::Out => {
                plan.outputs.push(Output { name, shape, value });
                Space::Output(plan.outputs.len() as u32 - 1)
            }
            BufferRole::InOut | BufferRole::Row => return None,
        };
        arguments.push(Argument { value, at: Address::new(space, 0) });
    }
    plan.nests.push(nest);
    plan.steps.push(Step::Nest { nest: NestId::new(0), arguments });
    Some(plan)
}
