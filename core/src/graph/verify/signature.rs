//! Names and roles: G1, G2 and G8.

use super::{Checker, NOWHERE, Place, Violation, fail};
use crate::diagnostic::Diagnostic;
use crate::dtype::DType;
use crate::graph::{InputRole, OutputRole};
use crate::text::is_name;
use crate::ty::TensorType;
use std::collections::{BTreeMap, BTreeSet};

impl Checker<'_> {
    pub(super) fn signature(&self) -> Result<(), Box<Violation>> {
        let function = self.function;
        let whole = |message: String| fail(Place::Function, "", NOWHERE, Diagnostic::new(message));
        if !is_name(&function.name) {
            return Err(whole(format!(
                "G1: `{}` is no name for a function",
                function.name.escape_debug()
            )));
        }
        if function.inputs.len() != function.body.inputs.len() {
            return Err(whole(format!(
                "G2: {} inputs are declared, the body has {}",
                function.inputs.len(),
                function.body.inputs.len()
            )));
        }
        if function.outputs.len() != function.body.outputs.len() {
            return Err(whole(format!(
                "G2: {} outputs are declared, the body has {}",
                function.outputs.len(),
                function.body.outputs.len()
            )));
        }
        let name_help = "use letters, digits, `_` and `.`, not starting with a digit";
        let mut names = BTreeSet::new();
        for (i, input) in function.inputs.iter().enumerate() {
            let wrong = |d| fail(Place::Input(i), "", input.location, d);
            if !is_name(&input.name) {
                return Err(wrong(
                    Diagnostic::new(format!(
                        "G1: `{}` is no name for an input",
                        input.name.escape_debug()
                    ))
                    .help(name_help),
                ));
            }
            if !names.insert(&input.name) {
                return Err(wrong(
                    Diagnostic::new(format!("G1: input `{}` is declared twice", input.name))
                        .help("give it another name"),
                ));
            }
        }
        let mut names = BTreeSet::new();
        for (i, output) in function.outputs.iter().enumerate() {
            let wrong = |d| fail(Place::Output(i), "", NOWHERE, d);
            let number = !output.name.is_empty() && output.name.bytes().all(|b| b.is_ascii_digit());
            if !is_name(&output.name) && !number {
                return Err(wrong(
                    Diagnostic::new(format!(
                        "G1: `{}` is no name for an output",
                        output.name.escape_debug()
                    ))
                    .help(name_help),
                ));
            }
            if !names.insert((output.role, &output.name)) {
                return Err(wrong(
                    Diagnostic::new(format!("G1: output `{}` is given twice", output.name))
                        .help("give it another name"),
                ));
            }
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
            let wrong = |d| fail(Place::Input(i), format!("%{}", input.name), input.location, d);
            let ty = function.input_type(i);
            if input.role == InputRole::Key && *ty != TensorType::new(DType::U32, [2usize]) {
                return Err(wrong(Diagnostic::new(format!("G8: a key has type u32[2], not {ty}"))));
            }
            if input.role == InputRole::State && !states.contains(input.name.as_str()) {
                let help =
                    format!("add the output `state {}: {ty}`, or make it a `param`", input.name);
                return Err(wrong(
                    Diagnostic::new(format!("G8: no output replaces state `{}`", input.name))
                        .help(help),
                ));
            }
        }
        for (i, output) in function.outputs.iter().enumerate() {
            let wrong = |d| fail(Place::Output(i), "", NOWHERE, d);
            let Some(&input) = inputs.get(output.name.as_str()) else { continue };
            let (role, ty, update) =
                (function.inputs[input].role, function.input_type(input), function.output_type(i));
            if output.role != OutputRole::State {
                continue;
            }
            if role != InputRole::State {
                let message = "is state, the input of that name is not: its role is";
                return Err(wrong(
                    Diagnostic::new(format!(
                        "G8: output `{}` {message} {}",
                        output.name,
                        role.name()
                    ))
                    .help("declare the input as `state`"),
                ));
            }
            if ty != update {
                return Err(wrong(
                    Diagnostic::new(format!(
                        "G8: state `{}` has type {ty}, its update has type {update}",
                        output.name
                    ))
                    .help("an update keeps dtype and shape"),
                ));
            }
        }
        Ok(())
    }
}
