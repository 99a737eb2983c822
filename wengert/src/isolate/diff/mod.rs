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

mod bodies;
mod plans;

pub use plans::plans;

use super::Origin;
use bodies::{Ends, Sides};
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use wengert_core::graph::{Function, Program, ValueId};

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

fn hashed(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
