//! Differences of two bodies: matching of their equations.

use super::{Change, Item, hashed};
use crate::isolate::Origin;
use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use wengert_core::graph::{Body, Equation, ValueId, print};
use wengert_core::{IdVec, LocationTable};

/// Hashes of the inputs and outputs of two bodies, which are equal where they correspond.
pub struct Ends {
    pub inputs: [BTreeMap<ValueId, u64>; 2],
    pub outputs: [Vec<u64>; 2],
}

/// The tables of locations of the two functions.
pub struct Sides<'a> {
    pub a: &'a LocationTable,
    pub b: &'a LocationTable,
}

impl Sides<'_> {
    /// Compares two bodies. `values` has the values of `a` that correspond to values of `b`, at
    /// first the inputs.
    pub fn bodies(
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
