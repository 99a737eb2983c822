//! Parts and modules of a function's equations, and the links between forward and backward.
//!
//! A graph has no modules. What it has is the key paths of variables, the places of equations, and
//! the order in which they were built:
//!
//! - An equation whose place was derived by transposing another equation is **backward**. It is
//!   linked to the forward equation that its place names, and so are derivatives that the forward
//!   part computes for it. Where several have this place (the
//!   layers of a network are built by one line), it is linked to one that shares an operand, else
//!   to the last that is not after the link of the backward equation before it: equations are
//!   transposed in reverse.
//! - An equation that uses backward equations, directly or not, is an **update**. All others are
//!   **forward**.
//! - The module of a forward equation is the key path of the variables that it uses, without the
//!   last word. One without variables is in the common module of those before and after it, if
//!   they are two parts of one module; otherwise in the deepest of the common modules of its
//!   neighbours, its users and its operands. A backward equation is in the module of its link, and
//!   an update in that of its variables.

use super::flow::{Flow, Origin};
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::graph::{Function, InputRole};
use wengert_core::{Location, LocationId, LocationTable};

/// The part of a function that an equation belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Computes the outputs from the inputs.
    Forward,
    /// Computes gradients.
    Backward,
    /// Uses gradients, as an optimiser does.
    Update,
}

/// What this module finds, by the equations' numbers.
pub(super) struct Places {
    pub parts: Vec<Part>,
    pub links: Vec<Option<usize>>,
    pub modules: Vec<String>,
}

pub(super) fn places(function: &Function, flow: &Flow) -> Places {
    let numbered = function.numbered();
    let locations = &function.locations;
    let ids: Vec<LocationId> = numbered.iter().map(|n| n.equation.location).collect();
    let names: Vec<&str> = numbered.iter().map(|n| n.equation.op.name()).collect();
    let mut parts: Vec<Part> = Vec::with_capacity(ids.len());
    for (id, operands) in ids.iter().zip(&flow.operands) {
        let follows = |origin: &Origin| match origin {
            Origin::Equation(n) => parts.get(*n).is_some_and(|part| *part != Part::Forward),
            Origin::Input(_) | Origin::Inside => false,
        };
        let uses_gradients = operands.iter().any(follows);
        parts.push(match uses_gradients {
            _ if is_transposed(locations, *id) => Part::Backward,
            true => Part::Update,
            false => Part::Forward,
        });
    }
    let links = links(&ids, &names, &parts, flow, locations);
    let modules = modules(function, &parts, &links, flow);
    Places { parts, links, modules }
}

/// Whether a place was derived by transposing.
fn is_transposed(locations: &LocationTable, id: LocationId) -> bool {
    rules(locations, id).any(|(rule, _)| rule.starts_with("transpose("))
}

/// The rules of a derived place, outermost first, each with the place that it was applied to.
fn rules(table: &LocationTable, id: LocationId) -> impl Iterator<Item = (&str, LocationId)> {
    let mut id = id;
    std::iter::from_fn(move || match table.get(id) {
        // Entries refer to earlier entries only, so this ends.
        Location::Derived { of, rule } if *of < id => {
            id = *of;
            Some((&**rule, id))
        }
        _ => None,
    })
}

/// The place of the forward equation that a backward equation comes from, and the op in the rule
/// that was applied to it.
fn source(locations: &LocationTable, id: LocationId) -> Option<(LocationId, &str)> {
    let derivative = |rule: &str| rule.starts_with("transpose(") || rule.starts_with("jvp(");
    let (rule, of) = rules(locations, id).filter(|(rule, _)| derivative(rule)).last()?;
    let op = rule.split_once('(').map_or("", |(_, op)| op.trim_end_matches(')'));
    Some((of, op))
}

/// For each equation that derivatives made the forward equation that it comes from.
fn links(
    ids: &[LocationId],
    names: &[&str],
    parts: &[Part],
    flow: &Flow,
    locations: &LocationTable,
) -> Vec<Option<usize>> {
    let mut at: BTreeMap<LocationId, Vec<usize>> = BTreeMap::new();
    for (number, id) in ids.iter().enumerate().filter(|(n, _)| parts[*n] == Part::Forward) {
        at.entry(*id).or_default().push(number);
    }
    let mut last = usize::MAX;
    let mut links = vec![None; ids.len()];
    for (number, id) in ids.iter().enumerate() {
        let Some((place, op)) = source(locations, *id) else { continue };
        let Some(all) = at.get(&place) else { continue };
        let same: Vec<usize> = all.iter().copied().filter(|n| names[*n] == op).collect();
        let candidates = if same.is_empty() { all.clone() } else { same };
        let own: BTreeSet<Origin> =
            flow.operands[number].iter().copied().filter(|o| *o != Origin::Inside).collect();
        let shares = |candidate: &usize| {
            own.contains(&Origin::Equation(*candidate))
                || flow.operands[*candidate].iter().any(|origin| own.contains(origin))
        };
        let sharing: Vec<usize> = candidates.iter().copied().filter(shares).collect();
        let candidates = if sharing.is_empty() { candidates } else { sharing };
        let is_backward = parts[number] == Part::Backward;
        let limit = if is_backward { last } else { number };
        let chosen = candidates.iter().rev().find(|n| **n <= limit).or(candidates.last());
        links[number] = chosen.copied();
        if is_backward {
            last = chosen.copied().unwrap_or(last);
        }
    }
    links
}

/// The module of each equation; empty if none is known.
fn modules(
    function: &Function,
    parts: &[Part],
    links: &[Option<usize>],
    flow: &Flow,
) -> Vec<String> {
    let paths = variables(function);
    let count = parts.len();
    // The module of a value that depends on variables alone: it is what uses it that counts.
    let mut carried: Vec<Option<String>> = vec![None; count];
    let mut modules: Vec<Option<String>> = vec![None; count];
    for (number, operands) in flow.operands.iter().enumerate() {
        if parts[number] == Part::Update {
            continue;
        }
        let of = |origin: &Origin| match origin {
            Origin::Input(n) => paths[*n].clone(),
            Origin::Equation(n) => carried[*n].clone(),
            Origin::Inside => None,
        };
        let found = operands.iter().filter_map(of).reduce(|a, b| common(&a, &b).to_owned());
        let alone = operands.iter().all(|origin| match origin {
            Origin::Input(n) => paths[*n].is_some(),
            Origin::Equation(n) => carried[*n].is_some(),
            Origin::Inside => false,
        });
        if alone && !operands.is_empty() {
            carried[number].clone_from(&found);
        }
        modules[number] = match parts[number] {
            Part::Backward => found.or_else(|| before(&modules, operands)),
            Part::Forward | Part::Update => found,
        };
    }
    between(&mut modules, parts, links, flow);
    for (number, link) in links.iter().enumerate() {
        if let Some(link) = link {
            modules[number] = modules[*link].clone();
        }
    }
    // Updates use gradients, whose modules are known now.
    for (number, operands) in flow.operands.iter().enumerate() {
        if parts[number] == Part::Update {
            let of = |origin: &Origin| match origin {
                Origin::Input(n) => paths[*n].clone(),
                Origin::Equation(n) => modules[*n].clone(),
                Origin::Inside => None,
            };
            let found = operands.iter().filter_map(of).reduce(|a, b| common(&a, &b).to_owned());
            modules[number] = found.or_else(|| before(&modules, operands));
        }
    }
    modules.into_iter().map(Option::unwrap_or_default).collect()
}

/// The module of the last operand that has one.
fn before(modules: &[Option<String>], operands: &[Origin]) -> Option<String> {
    operands.iter().rev().find_map(|origin| match origin {
        Origin::Equation(n) => modules[*n].clone(),
        Origin::Input(_) | Origin::Inside => None,
    })
}

/// Gives a module to forward equations that have none: the deepest of the common modules of their
/// neighbours in the order, of their users and of their operands. Equations between two layers of
/// one module are that module's.
fn between(modules: &mut [Option<String>], parts: &[Part], links: &[Option<usize>], flow: &Flow) {
    let is_forward = |n: &usize| parts[*n] == Part::Forward && links[*n].is_none();
    let forward: Vec<usize> = (0..parts.len()).filter(is_forward).collect();
    // The module around all others, unless there is one only: it is not around itself.
    let known: BTreeSet<&String> = forward.iter().filter_map(|n| modules[*n].as_ref()).collect();
    let around = match known.len() {
        0 | 1 => None,
        _ => known.iter().map(|m| m.as_str()).reduce(common).map(str::to_owned),
    };
    let mut after: Vec<Option<String>> = vec![None; parts.len()];
    let mut users: Vec<Option<String>> = vec![None; parts.len()];
    let mut next: Option<String> = None;
    for number in forward.iter().rev() {
        after[*number].clone_from(&next);
        if modules[*number].is_some() {
            next.clone_from(&modules[*number]);
        }
        let Some(own) = modules[*number].as_ref().or(users[*number].as_ref()).cloned() else {
            continue;
        };
        for origin in &flow.operands[*number] {
            if let Origin::Equation(n) = origin {
                let met = users[*n].as_ref().map(|other| common(&own, other).to_owned());
                users[*n] = Some(met.unwrap_or_else(|| own.clone()));
            }
        }
    }
    let mut before: Option<String> = None;
    for number in forward {
        if modules[number].is_some() {
            before.clone_from(&modules[number]);
            continue;
        }
        let (Some(a), Some(b)) = (&before, &after[number]) else {
            modules[number].clone_from(&around);
            continue;
        };
        let near = common(a, b).to_owned();
        if depth(a) == depth(&near) + 1 && depth(b) == depth(&near) + 1 {
            modules[number] = Some(near);
            continue;
        }
        let of = |origin: &Origin| match origin {
            Origin::Equation(n) => modules[*n].clone(),
            Origin::Input(_) | Origin::Inside => None,
        };
        let operands = flow.operands[number].iter().filter_map(of);
        let operands = operands.reduce(|x, y| common(&x, &y).to_owned());
        let candidates = [operands, users[number].clone(), Some(near)].into_iter().flatten();
        modules[number] = candidates.max_by_key(|module| depth(module));
    }
}

/// The number of words in a key path.
fn depth(path: &str) -> usize {
    if path.is_empty() { 0 } else { path.split('.').count() }
}

/// The module of each input that is a variable. Variables that an optimiser keeps for another
/// variable have its module: that of `adamw.m.layer.weight` is `layer`.
fn variables(function: &Function) -> Vec<Option<String>> {
    let is_variable = |role| matches!(role, InputRole::Param | InputRole::State);
    let names: BTreeSet<&str> =
        function.inputs.iter().filter(|i| is_variable(i.role)).map(|i| i.name.as_str()).collect();
    let of = |name: &str| {
        let mut rest = name;
        let mut path = name;
        while let Some((_, tail)) = rest.split_once('.') {
            if names.contains(tail) {
                path = tail;
            }
            rest = tail;
        }
        path.rsplit_once('.').map_or(String::new(), |(module, _)| module.to_owned())
    };
    let inputs = function.inputs.iter();
    inputs.map(|input| is_variable(input.role).then(|| of(&input.name))).collect()
}

/// The innermost module that contains both.
fn common<'a>(a: &'a str, b: &'a str) -> &'a str {
    let mut end = 0;
    for (x, y) in a.split('.').zip(b.split('.')) {
        if x != y {
            break;
        }
        end += x.len() + usize::from(end > 0);
    }
    &a[..end]
}
