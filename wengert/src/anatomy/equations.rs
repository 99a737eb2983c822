//! The equations of a function: where each comes from, and the kernels that compute it.

use super::flow::{Flow, Origin};
use super::{LONGEST_LINE, Part, bytes_of, modules, short};
use serde::Serialize;
use std::collections::BTreeMap;
use wengert_compiler::pipeline::{Explained, Fate, passes};
use wengert_core::Location;
use wengert_core::graph::{Function, Owner, print_equations};

/// An equation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Equation {
    /// Name of the op.
    pub op: String,
    /// Its text, without regions.
    pub text: String,
    /// The file of its source line.
    pub file: Option<usize>,
    /// Its source line, or that of its first user; 0 if neither is known.
    pub line: u32,
    /// The rules that derived it from its source line, outermost first; empty if none did.
    pub rule: String,
    /// Its module, if one is known.
    pub module: Option<usize>,
    /// Its part.
    pub part: Part,
    /// Of an equation that derivatives made the forward equation that it was derived from.
    pub link: Option<usize>,
    /// The equation that has the region which it is in.
    pub within: Option<usize>,
    /// The number of that region.
    pub region: Option<usize>,
    /// The callee that it is in.
    pub callee: Option<String>,
    /// Sources of its operands: `n` is equation n, `-1 - i` is input i. Values of a region that no
    /// single value outside stands for have none.
    pub operands: Vec<i64>,
    /// Bytes of its results.
    pub bytes: u64,
    /// The kernels that compute it.
    pub kernels: Vec<usize>,
    /// Why it has no kernel.
    pub reason: Option<String>,
}

/// Texts, each once.
#[derive(Default)]
pub(super) struct Table {
    pub entries: Vec<String>,
    positions: BTreeMap<String, usize>,
}

impl Table {
    pub fn position(&mut self, text: &str) -> usize {
        if let Some(known) = self.positions.get(text) {
            return *known;
        }
        self.positions.insert(text.to_owned(), self.entries.len());
        self.entries.push(text.to_owned());
        self.entries.len() - 1
    }
}

pub(super) fn equations(
    function: &Function,
    explained: &Explained,
    files: &mut Table,
    modules: &mut Table,
) -> Vec<Equation> {
    let flow = Flow::of(function);
    let places = modules::places(function, &flow);
    let texts = print_equations(function);
    let numbered = function.numbered();
    // A constant without a source line has that of the first equation that uses it.
    let source = |id| match function.locations.origin(id) {
        Location::Source { file, line, .. } => Some((file, *line)),
        _ => None,
    };
    let mut sources: Vec<_> = numbered.iter().map(|n| source(n.equation.location)).collect();
    for (user, operands) in flow.operands.iter().enumerate() {
        for operand in operands {
            if let Origin::Equation(n) = operand
                && sources[*n].is_none()
            {
                sources[*n] = sources[user];
            }
        }
    }
    let mut equations = Vec::with_capacity(numbered.len());
    for (number, found) in numbered.into_iter().enumerate() {
        let id = found.equation.location;
        let (file, line) = match sources[number] {
            Some((file, line)) => (Some(files.position(file)), line),
            None => (None, 0),
        };
        let described = function.locations.describe(id);
        let rule = described.rsplit_once(" of ").map_or("", |(rules, _)| rules);
        let (within, region, callee) = match found.owner {
            Owner::Function => (None, None, None),
            Owner::Callee(name) => (None, None, Some(name.to_owned())),
            Owner::Region { equation, region } => (Some(equation), Some(region), None),
        };
        let operand = |origin: &Origin| match origin {
            Origin::Equation(n) => i64::try_from(*n).ok(),
            Origin::Input(n) => i64::try_from(*n).ok().map(|n| -1 - n),
            Origin::Inside => None,
        };
        let (kernels, reason) = match &explained.fates[number] {
            Fate::Steps(steps) => (steps.clone(), None),
            Fate::Removed(pass) => (Vec::new(), Some(removed(pass))),
            Fate::NoStep => (
                Vec::new(),
                Some("No kernel: its result is a constant, or describes bytes that exist.".into()),
            ),
        };
        let module = &places.modules[number];
        let results = found.equation.results.iter();
        equations.push(Equation {
            op: found.equation.op.name().into(),
            text: short(&texts[number], LONGEST_LINE),
            file,
            line,
            rule: rule.into(),
            module: (!module.is_empty()).then(|| modules.position(module)),
            part: places.parts[number],
            link: places.links[number],
            within,
            region,
            callee,
            operands: flow.operands[number].iter().filter_map(operand).collect(),
            bytes: results.map(|v| bytes_of(found.body.ty(*v))).fold(0, u64::saturating_add),
            kernels,
            reason,
        });
    }
    equations
}

/// The sentence for an equation that a pass removed.
fn removed(name: &str) -> String {
    if name == "dce" {
        return "Nothing needs its result, or rewrites replaced what used it: the pass `dce` \
                removed it."
            .into();
    }
    let doc = passes().into_iter().find(|pass| pass.name == name).map_or("", |pass| pass.doc);
    format!("The pass `{name}` removed it. {doc}")
}
