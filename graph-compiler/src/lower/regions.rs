//! The regions of control flow as functions.

use crate::kernels::control::{Form, form, signature};
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::LocationTable;
use wengert_core::graph::{Function, Input, Output, ValueId};

/// The regions of an equation of control flow as functions, with its form. Their equations use
/// the outermost function's location table, so their own is empty.
pub(crate) fn regions(function: &Function, equation: usize) -> (Form, Vec<Function>) {
    let inputs = function.body.inputs.iter().zip(&function.inputs);
    let name_of: BTreeMap<ValueId, &str> =
        inputs.map(|(v, input)| (*v, input.name.as_str())).collect();
    let equation = &function.body.equations[equation];
    let form = form(&equation.op, equation.operands.len(), equation.results.len());
    let first = match form {
        Form::Branch => 1,
        Form::Loop(l) => l.first_carry(),
    };
    let outside: Vec<Option<&str>> =
        equation.operands[first..].iter().map(|v| name_of.get(v).copied()).collect();
    let regions = equation.regions.iter().enumerate().map(|(k, body)| {
        let (mut inputs, mut outputs) = signature(form, k, body.inputs.len(), body.outputs.len());
        rename(&mut inputs, &mut outputs, &outside);
        let name = format!("{}.{}", function.name, equation.op.name());
        let (mesh, locations) = (function.mesh.clone(), LocationTable::default());
        Function { name, mesh, inputs, outputs, body: body.to_body(), locations }
    });
    (form, regions.collect())
}

/// Values with a name outside keep it in the region: a capture unchanged, a carry or a slice with
/// its role as prefix.
fn rename(inputs: &mut [Input], outputs: &mut [Output], outside: &[Option<&str>]) {
    let mut taken: BTreeSet<String> = inputs.iter().map(|input| input.name.clone()).collect();
    let mut called: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (n, output) in outputs.iter().enumerate() {
        called.entry(output.name.clone()).or_default().push(n);
    }
    for (n, outside) in outside.iter().enumerate() {
        let Some(outside) = outside else { continue };
        let old = inputs[n].name.clone();
        let new = match ["carry.", "slice."].iter().find(|what| old.starts_with(**what)) {
            Some(what) if !outside.starts_with(what) => format!("{what}{outside}"),
            _ => (*outside).to_owned(),
        };
        // If an operand is passed twice in one role, only the first input gets its name.
        if taken.contains(&new) {
            continue;
        }
        // The output that replaces a carry has the carry's name.
        let replacing = called.remove(&old).unwrap_or_default();
        replacing.iter().for_each(|n| outputs[*n].name.clone_from(&new));
        called.entry(new.clone()).or_default().extend(replacing);
        taken.remove(&old);
        taken.insert(new.clone());
        inputs[n].name = new;
    }
}
