//! Variables as a tree of modules, with their sizes and operations.

use crate::module_tree::{Line, Variable, contains, lines};
use crate::table::{Table, counted, grouped};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use wengert::core::plan::account::Bytes;

/// `13 variables of 28,831 elements (112.62 KiB)`.
pub(super) fn totals(variables: &[Variable]) -> (String, u64, u64) {
    let sizes = || variables.iter().filter_map(|variable| variable.size);
    let elements = sizes().map(|size| size.0).fold(0, u64::saturating_add);
    let bytes = sizes().map(|size| size.1).fold(0, u64::saturating_add);
    let text = match variables.len() {
        0 => "no variables".into(),
        n => format!(
            "{} of {} ({})",
            counted(n, "variable"),
            counted(elements as usize, "element"),
            Bytes(bytes)
        ),
    };
    (text, elements, bytes)
}

/// The tree as a table. Each further column has a name, and the operations of kernels by the path
/// that they belong to; a count of 0 is blank.
pub(super) fn tree(variables: &[Variable], columns: &[(String, &BTreeMap<String, u64>)]) -> String {
    if variables.is_empty() {
        return String::new();
    }
    let header = ["module", "type", "parameters", "bytes"].into_iter();
    let mut table = Table::new(2, header.chain(columns.iter().map(|(name, _)| name.as_str())));
    for line in lines(variables) {
        let operations =
            columns.iter().map(|(_, operations)| match below(operations, &line.path) {
                0 => String::new(),
                count => grouped(count),
            });
        let Line { depth, name, ty, elements, bytes, .. } = line;
        let (name, is_open) = (
            format!("{}{name}", "  ".repeat(depth)),
            ty.as_ref().is_some_and(|ty| ty.elements().is_none()),
        );
        let size = match is_open {
            true => ["?".into(), "?".into()],
            false => [grouped(elements), Bytes(bytes).to_string()],
        };
        let ty = ty.map_or(String::new(), |ty| ty.to_string());
        table.row([name, ty].into_iter().chain(size).chain(operations));
    }
    if !columns.is_empty() {
        let other = columns
            .iter()
            .map(|(_, operations)| grouped(operations.get("").copied().unwrap_or_default()));
        let name = ["(in no module)", "", "", ""].map(String::from);
        table.row(name.into_iter().chain(other));
    }
    let (_, elements, bytes) = totals(variables);
    let all = columns
        .iter()
        .map(|(_, operations)| grouped(operations.values().copied().fold(0, u64::saturating_add)));
    let total = ["total".into(), String::new(), grouped(elements), Bytes(bytes).to_string()];
    table.row(total.into_iter().chain(all));
    let note = match columns.is_empty() {
        true => "",
        false => "a function's column has the operations of kernels that read the parameters\n",
    };
    format!("\n{table}{note}")
}

/// The operations in a module.
fn below(operations: &BTreeMap<String, u64>, path: &str) -> u64 {
    let within = operations.iter().filter(|(place, _)| contains(path, place));
    within.map(|(_, count)| *count).fold(0, u64::saturating_add)
}

pub(super) fn variables_json(variables: &[Variable]) -> Value {
    let one = |variable: &Variable| {
        json!({
            "name": variable.name,
            "type": variable.ty.to_string(),
            "parameters": variable.size.map(|size| size.0),
            "bytes": variable.size.map(|size| size.1),
        })
    };
    variables.iter().map(one).collect()
}

pub(super) fn modules_json(
    variables: &[Variable],
    columns: &[(String, &BTreeMap<String, u64>)],
) -> Value {
    let one = |line: Line| {
        let operations: Map<String, Value> = columns
            .iter()
            .map(|(name, operations)| (name.clone(), json!(below(operations, &line.path))))
            .collect();
        json!({
            "path": line.path,
            "parameters": line.elements,
            "bytes": line.bytes,
            "operations": operations,
        })
    };
    let modules = lines(variables).into_iter().filter(|line| line.ty.is_none());
    modules.map(one).collect()
}
