//! Names and roles: G1, G2 and G8.

use super::{Checker, NOWHERE, Place, Violation, fail};
use crate::diagnostic::{Result, ensure};
use crate::dtype::DType;
use crate::graph::{Function, Input, InputRole, Output, OutputRole};
use crate::text::{NAME_HELP, is_name};
use crate::ty::TensorType;
use std::collections::{BTreeMap, BTreeSet};

impl Checker<'_> {
    pub(super) fn signature(&self) -> Result<(), Box<Violation>> {
        let function = self.function;
        whole(function).map_err(|d| fail(Place::Function, "", NOWHERE, d))?;
        let mut names = BTreeSet::new();
        for (i, input) in function.inputs.iter().enumerate() {
            let is_new = names.insert(&input.name);
            input_name(input, is_new).map_err(|d| fail(Place::Input(i), "", input.location, d))?;
        }
        let mut names = BTreeSet::new();
        for (i, output) in function.outputs.iter().enumerate() {
            let is_new = names.insert((output.role, &output.name));
            output_name(output, is_new).map_err(|d| fail(Place::Output(i), "", NOWHERE, d))?;
        }
        Ok(())
    }

    pub(super) fn roles(&self) -> Result<(), Box<Violation>> {
        let function = self.function;
        // Maps, not `input_index`: a text may declare very many inputs.
        let states = function.outputs.iter().filter(|o| o.role == OutputRole::State);
        let states: BTreeSet<&str> = states.map(|o| o.name.as_str()).collect();
        let inputs = function.inputs.iter().enumerate().map(|(i, input)| (input.name.as_str(), i));
        let inputs: BTreeMap<&str, usize> = inputs.collect();

        for (i, input) in function.inputs.iter().enumerate() {
            input_role(input, function.input_type(i), &states).map_err(|d| {
                fail(Place::Input(i), format!("%{}", input.name), input.location, d)
            })?;
        }
        for (i, output) in function.outputs.iter().enumerate() {
            if let Some(input) = inputs.get(output.name.as_str()) {
                update(function, *input, i).map_err(|d| fail(Place::Output(i), "", NOWHERE, d))?;
            }
        }
        Ok(())
    }
}

/// The function's name, and the numbers of its inputs and outputs.
fn whole(function: &Function) -> Result<()> {
    let name = function.name.escape_debug();
    ensure!(is_name(&function.name), "G1: `{name}` is no name for a function");
    let (declared, found) = (function.inputs.len(), function.body.inputs.len());
    ensure!(declared == found, "G2: {declared} inputs are declared, the body has {found}");
    let (declared, found) = (function.outputs.len(), function.body.outputs.len());
    ensure!(declared == found, "G2: {declared} outputs are declared, the body has {found}");
    Ok(())
}

fn input_name(Input { name, .. }: &Input, is_new: bool) -> Result<()> {
    ensure!(is_name(name), "G1: `{}` is no name for an input", name.escape_debug();
        help "{NAME_HELP}");
    ensure!(is_new, "G1: input `{name}` is declared twice"; help "give it another name");
    Ok(())
}

fn output_name(Output { name, .. }: &Output, is_new: bool) -> Result<()> {
    let is_number = !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit());
    ensure!(is_name(name) || is_number, "G1: `{}` is no name for an output", name.escape_debug();
        help "{NAME_HELP}");
    ensure!(is_new, "G1: output `{name}` is given twice"; help "give it another name");
    Ok(())
}

fn input_role(input: &Input, ty: &TensorType, states: &BTreeSet<&str>) -> Result<()> {
    let Input { name, role, .. } = input;
    let key = TensorType::new(DType::U32, [2usize]);
    ensure!(*role != InputRole::Key || *ty == key, "G8: a key has type {key}, not {ty}");
    ensure!(
        *role != InputRole::State || states.contains(name.as_str()),
        "G8: no output replaces state `{name}`";
        help "add the output `state {name}: {ty}`, or make it a `param`"
    );
    Ok(())
}

/// Checks an output that has the name of an input.
fn update(function: &Function, input: usize, output: usize) -> Result<()> {
    let (ty, new) = (function.input_type(input), function.output_type(output));
    let (role, Output { name, role: updates }) =
        (function.inputs[input].role, &function.outputs[output]);
    if *updates != OutputRole::State {
        return Ok(());
    }
    ensure!(
        role == InputRole::State,
        "G8: output `{name}` is state, the input of that name is not: its role is {}", role.name();
        help "declare the input as `state`"
    );
    ensure!(ty == new, "G8: state `{name}` has type {ty}, its update has type {new}";
        help "an update keeps dtype and shape");
    Ok(())
}
