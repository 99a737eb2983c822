//! Variables as a tree of modules.
//!
//! A key path such as `model.hidden.weight` names a variable `weight` of the module
//! `model.hidden`. A module sums the sizes and the costs of all that is below it. A module with one
//! entry is printed as one line with it.

use std::collections::BTreeMap;
use wengert::TensorType;

/// A variable.
#[derive(Clone, PartialEq, Debug)]
pub struct Variable {
    /// Key path.
    pub name: String,
    /// Its type, which may have dimension variables.
    pub ty: TensorType,
    /// Elements, and bytes. A shape with dimension variables has none.
    pub size: Option<(u64, u64)>,
}

impl Variable {
    /// A variable of this type.
    pub fn new(name: &str, ty: &TensorType) -> Variable {
        let size = ty.elements().zip(ty.bytes()).map(|(n, bytes)| (n as u64, bytes as u64));
        Variable { name: name.into(), ty: ty.clone(), size }
    }
}

/// A line of the tree: a module or a variable.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// Number of modules around it that have a line of their own.
    pub depth: usize,
    /// Its name within the module around it.
    pub name: String,
    /// Its key path.
    pub path: String,
    /// The type of a variable.
    pub ty: Option<TensorType>,
    /// Elements of the variables with a size.
    pub elements: u64,
    /// Bytes of the variables with a size.
    pub bytes: u64,
}

#[derive(Default)]
struct Node {
    /// The variable of this path.
    variable: Option<usize>,
    /// Entries in the order of their first variable.
    entries: Vec<(String, Node)>,
    /// Positions of the entries by name.
    positions: BTreeMap<String, usize>,
}

impl Node {
    fn entry(&mut self, name: &str) -> &mut Node {
        let next = self.entries.len();
        let position = *self.positions.entry(name.to_owned()).or_insert(next);
        if position == next {
            self.entries.push((name.to_owned(), Node::default()));
        }
        &mut self.entries[position].1
    }
}

/// The lines of the tree, each module before its entries.
pub fn lines(variables: &[Variable]) -> Vec<Line> {
    let mut root = Node::default();
    for (position, variable) in variables.iter().enumerate() {
        let parts = variable.name.split('.');
        parts.fold(&mut root, |node, part| node.entry(part)).variable = Some(position);
    }
    let mut lines = Vec::new();
    add(&root, variables, "", 0, &mut lines);
    lines
}

/// Adds the entries of a node. Returns their elements and bytes.
fn add(
    node: &Node,
    variables: &[Variable],
    path: &str,
    depth: usize,
    lines: &mut Vec<Line>,
) -> (u64, u64) {
    let mut sum = (0u64, 0u64);
    for (name, entry) in &node.entries {
        let (mut name, mut entry) = (name.clone(), entry);
        while let (None, [(only, below)]) = (entry.variable, entry.entries.as_slice()) {
            name = format!("{name}.{only}");
            entry = below;
        }
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let variable = entry.variable.map(|position| &variables[position]);
        let own = variable.and_then(|variable| variable.size).unwrap_or_default();
        let line = lines.len();
        let ty = variable.map(|variable| variable.ty.clone());
        lines.push(Line { depth, name, path: path.clone(), ty, elements: 0, bytes: 0 });
        let below = add(entry, variables, &path, depth + 1, lines);
        let size = (own.0.saturating_add(below.0), own.1.saturating_add(below.1));
        (lines[line].elements, lines[line].bytes) = size;
        sum = (sum.0.saturating_add(size.0), sum.1.saturating_add(size.1));
    }
    sum
}

/// The innermost module or variable that contains both key paths; empty if there is none.
pub fn common<'a>(a: &'a str, b: &str) -> &'a str {
    let mut end = 0;
    for (x, y) in a.split('.').zip(b.split('.')) {
        if x != y {
            break;
        }
        end += x.len() + usize::from(end > 0);
    }
    &a[..end]
}

/// Whether the key path `path` is in the module `module`, or equal to it.
pub fn contains(module: &str, path: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert::DType;

    #[test]
    fn modules_sum_what_is_below_them() {
        let variable = |name: &str, shape: &[usize]| {
            Variable::new(name, &TensorType::new(DType::F32, shape.iter().copied()))
        };
        let lines = lines(&[
            variable("m.a.weight", &[2, 3]),
            variable("opt.m.step", &[]),
            variable("m.a.bias", &[3]),
            variable("m.b", &[5]),
        ]);
        let found: Vec<_> = lines
            .iter()
            .map(|l| (l.depth, l.name.as_str(), l.path.as_str(), l.elements, l.bytes))
            .collect();
        assert_eq!(
            found,
            [
                (0, "m", "m", 14, 56),
                (1, "a", "m.a", 9, 36),
                (2, "weight", "m.a.weight", 6, 24),
                (2, "bias", "m.a.bias", 3, 12),
                (1, "b", "m.b", 5, 20),
                (0, "opt.m.step", "opt.m.step", 1, 4),
            ]
        );
    }

    #[test]
    fn paths_are_compared_by_their_parts() {
        assert_eq!(common("m.a.weight", "m.a.bias"), "m.a");
        assert_eq!(common("m.ab", "m.a"), "m");
        assert_eq!(common("m.a", "n.a"), "");
        assert_eq!(common("m.a", "m.a"), "m.a");
        assert!(contains("m.a", "m.a.weight") && contains("m.a", "m.a"));
        assert!(!contains("m.a", "m.ab") && !contains("m.a", "m"));
    }
}
