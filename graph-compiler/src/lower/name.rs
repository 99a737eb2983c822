//! Names of kernels: a description in at most three words, and a number.
//!
//! A kernel with equations of an expanded composite is named after the composite; others are
//! named after their ops. Kernels that compute the same have one name, so that a plan stores
//! their nest once.

use crate::calls::EXPAND;
use crate::view::View;
use rustc_hash::FxHashMap;
use wengert_core::nest::Nest;
use wengert_core::op::Cost;
use wengert_core::{Location, LocationId, LocationTable, Verified};

/// Maximum number of words of a name.
const WORDS: usize = 3;

/// The names assigned so far.
#[derive(Default)]
pub(crate) struct Names {
    /// Nests without their names; used for look-up, never iterated over.
    known: FxHashMap<Nest, String>,
}

impl Names {
    /// The nest with its name.
    pub fn name(&mut self, stem: &str, nest: Verified<Nest>) -> Verified<Nest> {
        let nameless = Nest { name: String::new(), ..Nest::clone(&nest) };
        let number = self.known.len();
        let name = self.known.entry(nameless).or_insert_with(|| format!("{stem}_{number}"));
        nest.named(name)
    }
}

/// The words of the name of a kernel of these equations, ascending.
pub(super) fn stem(locations: &LocationTable, view: &View<'_>, equations: &[usize]) -> String {
    let mut words: Vec<&str> = Vec::new();
    for equation in equations.iter().map(|e| &view.body.equations[*e]) {
        if let Some(word) = composite(locations, equation.location)
            && !words.contains(&word)
        {
            words.push(word);
        }
    }
    if words.is_empty() {
        let working = equations.iter().filter(|e| view.cost[**e] != Cost::Free);
        for name in working.map(|e| view.body.equations[*e].op.name()) {
            if !words.contains(&name) {
                words.push(name);
            }
        }
    }
    if words.is_empty() {
        words.extend(equations.last().map(|e| view.body.equations[*e].op.name()));
    }
    // The last word describes the result best.
    if words.len() > WORDS {
        words.drain(WORDS - 1..words.len() - 1);
    }
    words.join("_")
}

/// The composite that an equation is part of.
fn composite(locations: &LocationTable, mut location: LocationId) -> Option<&str> {
    while let Location::Derived { of, rule } = locations.get(location) {
        if let Some(name) = rule.strip_prefix(EXPAND).and_then(|r| r.strip_suffix(')')) {
            return Some(name);
        }
        if *of >= location {
            break;
        }
        location = *of;
    }
    None
}
