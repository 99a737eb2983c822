//! Differences of two functions or two plans.
//!
//! Equations are matched by structure, never by the numbers of their values:
//!
//! 1. Equations that compute the same expression of the inputs are equal, in any order.
//! 2. Of the others, equations of the same op, attributes and types are pairs if the outputs use
//!    their results in the same way: something in front of them differs.
//! 3. The rest is aligned in program order (Myers 1986) by op, attributes and types. A pair whose
//!    operands are pairs too is equal: only something in front of it differs. Else its operands
//!    differ.
//! 4. Equations between such pairs are aligned by the name of the op. Their attributes or types
//!    differ.
//! 5. What is left exists on one side only.
//!
//! After one change, the equations in front of it are pairs by step 1 and those behind it by
//! step 2, also in a row of equal ops.
//!
//! Regions of matched equations are compared in the same way. Names of functions, locations and
//! the order of independent equations make no difference. The cost is that of the alignment:
//! O(n·d) for n equations and d differences.
//!
//! ```
//! use wengert::{core::graph::parse_program, isolate::diff};
//! # fn main() -> wengert::Result<()> {
//! let [a, b] = ["sub %x, %y", "sub %y, %x"].map(|text| {
//!     let text = format!("func @f(%x: f32[], %y: f32[]) -> (f32[]) {{
//!         %0: f32[] = {text}
//!         return %0
//!     }}");
//!     parse_program(&text, "f.ir")
//! });
//! let changes = diff::functions(&a?.functions()[0], &b?.functions()[0]);
//! assert_eq!(changes.len(), 1);
//! assert!(changes[0].to_string().starts_with("~ sub (f32[], f32[]) -> f32[]: operands 0 and 1"));
//! # Ok(())
//! # }
//! ```

use super::Origin;
use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hash, Hasher};
use wengert_core::graph::{Body, Equation, Function, Program, ValueId, print};
use wengert_core::plan::{Account, Argument, Plan, Step, account};
use wengert_core::{IdVec, LocationTable};

/// A difference.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// Only the first has it.
    Removed(Item),
    /// Only the second has it.
    Added(Item),
    /// Both have it, and it differs.
    Changed {
        /// In the first.
        from: Item,
        /// In the second.
        to: Item,
        /// The difference.
        how: String,
    },
}

/// A part of a function or plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Item {
    /// Its text, without names of values.
    pub text: String,
    /// Where an equation comes from.
    pub origin: Option<Origin>,
}

impl Item {
    fn new(text: impl Into<String>) -> Item {
        Item { text: text.into(), origin: None }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |item: &Item| match &item.origin {
            Some(origin) => format!("  [{}]", origin.description),
            None => String::new(),
        };
        match self {
            Change::Removed(item) => write!(f, "- {item}{}", place(item)),
            Change::Added(item) => write!(f, "+ {item}{}", place(item)),
            Change::Changed { from, to, how } => {
                write!(f, "~ {from}: {how}{}", place(from))?;
                if place(from) != place(to) {
                    write!(f, " ->{}", place(to))?;
                }
                Ok(())
            }
        }
    }
}

/// The differences of two programs: functions are matched by name. The changes of each function
/// that both have, and functions that one has.
pub fn programs(a: &Program, b: &Program) -> Vec<(String, Vec<Change>)> {
    let mut all = Vec::new();
    let whole = |f: &Function| {
        let (inputs, equations) = (f.inputs.len(), f.body.equations.len());
        Item::new(format!("function @{} ({inputs} inputs, {equations} equations)", f.name))
    };
    for f in a.functions() {
        let changes = match b.functions().iter().find(|g| g.name == f.name) {
            Some(g) => functions(f, g),
            None => vec![Change::Removed(whole(f))],
        };
        all.push((f.name.clone(), changes));
    }
    let known = |name: &str| a.functions().iter().any(|f| f.name == name);
    for g in b.functions().iter().filter(|g| !known(&g.name)) {
        all.push((g.name.clone(), vec![Change::Added(whole(g))]));
    }
    all
}

/// The differences of two functions, whatever their names.
pub fn functions(a: &Function, b: &Function) -> Vec<Change> {
    let mut changes = Vec::new();
    let inputs = |f: &Function| {
        let input = |(n, input): (usize, &wengert_core::graph::Input)| {
            let text = format!("{} {}: {}", input.role.name(), input.name, f.input_type(n));
            (input.name.clone(), text)
        };
        f.inputs.iter().enumerate().map(input).collect()
    };
    named(inputs(a), inputs(b), &mut changes);
    let outputs = |f: &Function| {
        let output = |(n, output): (usize, &wengert_core::graph::Output)| {
            let role = format!("{:?}", output.role).to_lowercase();
            let role = if role == "output" { role } else { format!("{role} output") };
            (
                format!("{role} {}", output.name),
                format!("{role} {}: {}", output.name, f.output_type(n)),
            )
        };
        f.outputs.iter().enumerate().map(output).collect()
    };
    named(outputs(a), outputs(b), &mut changes);

    // Inputs correspond by name.
    let mut values: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let mut names: [BTreeMap<ValueId, u64>; 2] = Default::default();
    for (side, f) in [a, b].into_iter().enumerate() {
        for (input, value) in f.inputs.iter().zip(&f.body.inputs) {
            names[side].insert(*value, hashed(&("input", &input.name)));
        }
    }
    for (input, value) in a.inputs.iter().zip(&a.body.inputs) {
        if let Some(n) = b.input_index(&input.name) {
            values.insert(*value, b.body.inputs[n]);
        }
    }
    let outputs = [a, b].map(|f| {
        let outputs = f.outputs.iter();
        outputs.map(|o| hashed(&(&o.name, format!("{:?}", o.role)))).collect()
    });
    let ends = Ends { inputs: names, outputs };
    let sides = Sides { a: &a.locations, b: &b.locations };
    sides.bodies(&a.body, &b.body, &mut values, ends, "", &mut changes);
    for (n, output) in a.outputs.iter().enumerate() {
        let Some(m) = b.output_index(&output.name, output.role) else { continue };
        if values.get(&a.body.outputs[n]) != Some(&b.body.outputs[m]) {
            let item = |f: &Function, n: usize| {
                let value = f.body.outputs[n];
                let maker = f.body.equations.iter().find(|e| e.results.contains(&value));
                let origin = maker.map(|e| Origin::of(e, &f.locations));
                Item { text: format!("output {}", output.name), origin }
            };
            let how = "another value is returned".into();
            changes.push(Change::Changed { from: item(a, n), to: item(b, m), how });
        }
    }
    changes
}

/// The differences of two lists of named things.
fn named(a: Vec<(String, String)>, b: Vec<(String, String)>, changes: &mut Vec<Change>) {
    let (first, second): (BTreeMap<_, _>, BTreeMap<_, _>) =
        (a.iter().cloned().collect(), b.iter().cloned().collect());
    for (name, text) in &a {
        match second.get(name) {
            None => changes.push(Change::Removed(Item::new(text))),
            Some(other) if other != text => changes.push(Change::Changed {
                from: Item::new(text),
                to: Item::new(other),
                how: format!("now {other}"),
            }),
            Some(_) => {}
        }
    }
    for (_, text) in b.iter().filter(|(name, _)| !first.contains_key(name)) {
        changes.push(Change::Added(Item::new(text)));
    }
}

/// Hashes of the inputs and outputs of two bodies, which are equal where they correspond.
struct Ends {
    inputs: [BTreeMap<ValueId, u64>; 2],
    outputs: [Vec<u64>; 2],
}

struct Sides<'a> {
    a: &'a LocationTable,
    b: &'a LocationTable,
}

impl Sides<'_> {
    /// Compares two bodies. `values` has the values of `a` that correspond to values of `b`, at
    /// first the inputs.
    fn bodies(
        &self,
        a: &Body,
        b: &Body,
        values: &mut BTreeMap<ValueId, ValueId>,
        ends: Ends,
        within: &str,
        changes: &mut Vec<Change>,
    ) {
        let Ends { inputs: [names_a, names_b], outputs: [outputs_a, outputs_b] } = ends;
        let (deep_a, deep_b) = (deep(a, names_a), deep(b, names_b));
        let mut matched: Vec<Option<usize>> = vec![None; a.equations.len()];
        let mut taken = vec![false; b.equations.len()];
        pair(&deep_a, &deep_b, &mut matched, &mut taken);
        let same: Vec<bool> = matched.iter().map(Option::is_some).collect();
        pair(&uses(a, &outputs_a), &uses(b, &outputs_b), &mut matched, &mut taken);
        for key in [shallow as fn(&Body, &Equation) -> u64, by_name] {
            align(a, b, key, &mut matched, &mut taken);
        }
        for (n, m) in matched.iter().enumerate().filter_map(|(n, m)| Some((n, (*m)?))) {
            let (from, to) = (&a.equations[n], &b.equations[m]);
            values.extend(from.results.iter().copied().zip(to.results.iter().copied()));
        }
        let item = |body: &Body, equation: &Equation, table: &LocationTable| Item {
            text: format!("{within}{}", text(body, equation)),
            origin: Some(Origin::of(equation, table)),
        };
        for (n, from) in a.equations.iter().enumerate() {
            let Some(m) = matched[n] else {
                changes.push(Change::Removed(item(a, from, self.a)));
                continue;
            };
            if same[n] {
                continue;
            }
            let to = &b.equations[m];
            let how = self.how(a, b, from, to, values);
            if let Some(how) = how {
                let (from, to) = (item(a, from, self.a), item(b, to, self.b));
                changes.push(Change::Changed { from, to, how });
            }
            for (k, (x, y)) in from.regions.iter().zip(&to.regions).enumerate() {
                if x == y {
                    continue;
                }
                let inputs = x.inputs.iter().copied().zip(y.inputs.iter().copied());
                let mut inner: BTreeMap<ValueId, ValueId> = inputs.collect();
                let names = [x, y].map(|region| {
                    let inputs = region.inputs.iter().enumerate();
                    inputs.map(|(n, value)| (*value, hashed(&("input", n)))).collect()
                });
                let place = format!("{within}{} region {k}: ", from.op.name());
                let outputs = [x, y].map(|region| (0..region.outputs.len() as u64).collect());
                let ends = Ends { inputs: names, outputs };
                self.bodies(x, y, &mut inner, ends, &place, changes);
                let outputs: Vec<usize> = (0..x.outputs.len().max(y.outputs.len()))
                    .filter(|o| x.outputs.get(*o).and_then(|v| inner.get(v)) != y.outputs.get(*o))
                    .collect();
                if !outputs.is_empty() {
                    let (from, to) = (item(a, from, self.a), item(b, to, self.b));
                    let how = format!("region {k} returns other values: {outputs:?}");
                    changes.push(Change::Changed { from, to, how });
                }
            }
        }
        for (to, _) in b.equations.iter().zip(&taken).filter(|(_, taken)| !**taken) {
            changes.push(Change::Added(item(b, to, self.b)));
        }
    }

    /// How two matched equations differ, their regions aside.
    fn how(
        &self,
        a: &Body,
        b: &Body,
        from: &Equation,
        to: &Equation,
        values: &BTreeMap<ValueId, ValueId>,
    ) -> Option<String> {
        let mut how = Vec::new();
        if from.op != to.op {
            how.push(format!("now `{}`", text(b, to)));
        } else if a.types(&from.results) != b.types(&to.results) {
            how.push(format!("now {}", text(b, to)));
        }
        if from.operands.len() != to.operands.len() {
            how.push(format!("{} operands, now {}", from.operands.len(), to.operands.len()));
        } else {
            let pairs = from.operands.iter().zip(&to.operands).enumerate();
            let differ = pairs.filter(|(_, (x, y))| values.get(x) != Some(y));
            let differ: Vec<String> = differ.map(|(n, _)| n.to_string()).collect();
            match &differ[..] {
                [] => {}
                [one] => how.push(format!("operand {one} is another value")),
                [first @ .., last] => {
                    how.push(format!("operands {} and {last} are other values", first.join(", ")))
                }
            }
        }
        (!how.is_empty()).then(|| how.join("; "))
    }
}

/// Matches the unmatched equations of two bodies that have the same hash, in program order.
fn pair(a: &[u64], b: &[u64], matched: &mut [Option<usize>], taken: &mut [bool]) {
    let mut by_hash: BTreeMap<u64, VecDeque<usize>> = BTreeMap::new();
    for (m, hash) in b.iter().enumerate().filter(|(m, _)| !taken[*m]) {
        by_hash.entry(*hash).or_default().push_back(m);
    }
    for (n, hash) in a.iter().enumerate() {
        if matched[n].is_none()
            && let Some(m) = by_hash.get_mut(hash).and_then(VecDeque::pop_front)
        {
            (matched[n], taken[m]) = (Some(m), true);
        }
    }
}

/// Aligns the unmatched equations of two bodies by a key, in program order.
fn align(
    a: &Body,
    b: &Body,
    key: fn(&Body, &Equation) -> u64,
    matched: &mut [Option<usize>],
    taken: &mut [bool],
) {
    let left: Vec<usize> = (0..matched.len()).filter(|n| matched[*n].is_none()).collect();
    let right: Vec<usize> = (0..taken.len()).filter(|m| !taken[*m]).collect();
    let left_keys: Vec<u64> = left.iter().map(|n| key(a, &a.equations[*n])).collect();
    let right_keys: Vec<u64> = right.iter().map(|m| key(b, &b.equations[*m])).collect();
    for op in capture_diff_slices(Algorithm::Myers, &left_keys, &right_keys) {
        if let DiffOp::Equal { old_index, new_index, len } = op {
            for i in 0..len {
                let (n, m) = (left[old_index + i], right[new_index + i]);
                (matched[n], taken[m]) = (Some(m), true);
            }
        }
    }
}

fn hashed(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// For each equation, a hash of the expression of the body's inputs that it computes.
fn deep(body: &Body, names: BTreeMap<ValueId, u64>) -> Vec<u64> {
    let mut values: IdVec<ValueId, u64> = body.values.ids().map(|_| 0).collect();
    for (value, name) in names {
        values[value] = hashed(&(name, body.ty(value)));
    }
    let mut hashes = Vec::new();
    for equation in &body.equations {
        let operands: Vec<u64> = equation.operands.iter().map(|v| values[*v]).collect();
        let hash = hashed(&(&equation.op, operands, &equation.regions));
        hashes.push(hash);
        for (n, result) in equation.results.iter().enumerate() {
            values[*result] = hashed(&(hash, n, body.ty(*result)));
        }
    }
    hashes
}

/// For each equation, a hash of itself without its operands and regions, and of the way in which
/// the body's outputs use its results.
fn uses(body: &Body, outputs: &[u64]) -> Vec<u64> {
    let mut users: IdVec<ValueId, Vec<u64>> = body.values.ids().map(|_| Vec::new()).collect();
    for (value, name) in body.outputs.iter().zip(outputs) {
        users[*value].push(hashed(&("output", name)));
    }
    let mut hashes = vec![0; body.equations.len()];
    for (number, equation) in body.equations.iter().enumerate().rev() {
        let mut of_results = Vec::new();
        for result in &equation.results {
            let mut users = std::mem::take(&mut users[*result]);
            users.sort_unstable();
            of_results.push(users);
        }
        hashes[number] = hashed(&(shallow(body, equation), of_results));
        for (n, operand) in equation.operands.iter().enumerate() {
            users[*operand].push(hashed(&(hashes[number], n)));
        }
    }
    hashes
}

fn shallow(body: &Body, equation: &Equation) -> u64 {
    hashed(&(&equation.op, body.types(&equation.operands), body.types(&equation.results)))
}

fn by_name(_: &Body, equation: &Equation) -> u64 {
    hashed(&equation.op.name())
}

/// An equation without names of values.
fn text(body: &Body, equation: &Equation) -> String {
    let list = |values: &[ValueId]| {
        let types: Vec<String> = values.iter().map(|v| body.ty(*v).to_string()).collect();
        types.join(", ")
    };
    let mut out = equation.op.name().to_owned();
    let attributes = equation.op.attributes();
    if !attributes.is_empty() {
        out.push(' ');
        let mut text = String::new();
        print::print_attributes(&mut text, &attributes);
        if text.chars().count() > 120 {
            text = text.chars().take(119).chain(['…']).collect();
        }
        out.push_str(&text);
    }
    let results = list(&equation.results);
    let results = if equation.results.len() == 1 { results } else { format!("({results})") };
    write!(out, " ({}) -> {results}", list(&equation.operands))
        .expect("writing to a string cannot fail");
    out
}

/// The differences of two plans: sizes, the interface, and kernels in the order of their steps.
/// Kernels are matched by their code, whatever their names and addresses.
pub fn plans(a: &Plan, b: &Plan) -> Vec<Change> {
    let mut changes = Vec::new();
    let (first, second) = (account(a), account(b));
    let facts = |plan: &Plan, account: &Account| {
        let bytes = |n: u64| format!("{n} bytes");
        vec![
            ("function".to_owned(), format!("@{}", plan.function)),
            ("target".to_owned(), plan.target.name.clone()),
            ("binding".to_owned(), plan.binding.to_string()),
            ("kernels".to_owned(), kernels(plan).len().to_string()),
            ("buffers".to_owned(), plan.values.len().to_string()),
            ("arena".to_owned(), bytes(account.arena)),
            ("peak".to_owned(), bytes(account.peak.bytes)),
            ("workspace".to_owned(), bytes(account.workspace)),
            ("inputs".to_owned(), bytes(account.inputs)),
            ("outputs".to_owned(), bytes(account.outputs)),
            ("parameters".to_owned(), bytes(account.parameters)),
            ("state".to_owned(), bytes(account.state)),
            ("constants".to_owned(), bytes(account.constants)),
            ("total".to_owned(), bytes(account.total())),
        ]
    };
    for ((name, from), (_, to)) in facts(a, &first).into_iter().zip(facts(b, &second)) {
        if from != to {
            let item = |value: &str| Item::new(format!("{name} {value}"));
            let (from, how) = (item(&from), format!("now {to}"));
            changes.push(Change::Changed { from, to: item(&to), how });
        }
    }
    let (left, right) = (kernels(a), kernels(b));
    let keys = |kernels: &[Kernel]| -> Vec<u64> { kernels.iter().map(|k| k.code).collect() };
    for op in capture_diff_slices(Algorithm::Myers, &keys(&left), &keys(&right)) {
        let (old, new) = (op.old_range(), op.new_range());
        if matches!(op, DiffOp::Equal { .. }) {
            continue;
        }
        changes.extend(left[old].iter().map(|k| Change::Removed(Item::new(&k.text))));
        changes.extend(right[new].iter().map(|k| Change::Added(Item::new(&k.text))));
    }
    changes
}

/// A kernel of a plan.
struct Kernel {
    /// A hash of its code and operands, without its name and addresses.
    code: u64,
    text: String,
}

/// The kernels and copies of a plan in the order of its steps.
fn kernels(plan: &Plan) -> Vec<Kernel> {
    let mut kernels = Vec::new();
    let inputs: BTreeMap<_, &str> =
        plan.inputs.iter().map(|input| (input.value, input.name.as_str())).collect();
    let shape = |value| {
        let value: &wengert_core::plan::Value = &plan.values[value];
        let extents: Vec<String> = value.shape.iter().map(usize::to_string).collect();
        format!("{}[{}]", value.dtype, extents.join(","))
    };
    // The inputs of a run have names; other operands are known by their types.
    let listed = |arguments: &[Argument]| {
        let one = |argument: &Argument| match inputs.get(&argument.value) {
            Some(name) => format!("{name}: {}", shape(argument.value)),
            None => shape(argument.value),
        };
        arguments.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    plan.visit(&mut |step| {
        let (code, text) = match step {
            Step::Nest { nest, arguments } => {
                let mut nest = plan.nests[*nest].clone();
                let name = std::mem::take(&mut nest.name);
                let operands = listed(arguments);
                (format!("{nest}{operands}"), format!("nest {name} ({operands})"))
            }
            Step::Call { call, arguments, .. } => {
                let text = format!("call {} ({})", call.name(), listed(arguments));
                (format!("{call:?}{text}"), text)
            }
            Step::Copy { value, .. } => {
                let text = format!("copy {}", shape(*value));
                (text.clone(), text)
            }
            Step::Loop(l) => {
                let text = format!("loop of at most {} steps", l.trip.limit());
                (text.clone(), text)
            }
            Step::If { .. } => ("if".into(), "if".into()),
            Step::Switch { arms, .. } => {
                let text = format!("switch of {} branches", arms.len());
                (text.clone(), text)
            }
        };
        kernels.push(Kernel { code: hashed(&code), text });
    });
    kernels
}
