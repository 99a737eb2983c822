//! The dimension variables, variables and signatures of functions.

use crate::module_tree::Variable;
use crate::table::counted;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use wengert::core::graph::{Function, Input, InputRole, OutputRole};
use wengert::signature::Signature;
use wengert::{Binding, TensorType};

pub(super) fn is_variable(input: &Input) -> bool {
    matches!(input.role, InputRole::Param | InputRole::State)
}

/// The dimension variables, and the functions that have each.
pub(super) fn open_dimensions(functions: &[&Function]) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for function in functions {
        for name in function.variables() {
            found.entry(name.to_string()).or_default().push(function.name.clone());
        }
    }
    found
}

/// The variables that functions take or create, in the order of their first occurrence.
pub(super) fn all_variables(functions: &[&Function], binding: &Binding) -> Vec<Variable> {
    let mut seen = BTreeSet::new();
    let signatures = functions.iter().map(|function| Signature::of_function(function));
    let all: Vec<Variable> = signatures.flat_map(|signature| variables_of(&signature)).collect();
    all.into_iter()
        .filter(|variable| seen.insert(variable.name.clone()))
        .map(|variable| match variable.ty.bind(binding) {
            Ok(ty) => Variable::new(&variable.name, &ty),
            Err(_) => variable,
        })
        .collect()
}

pub(super) fn variables_of(signature: &Signature) -> Vec<Variable> {
    let taken = signature.inputs.iter().filter(|input| input.is_variable());
    let taken = taken.map(|input| Variable::new(&input.name, &input.ty));
    let created = signature.outputs.iter().filter(|output| output.role == OutputRole::State);
    let mut found: Vec<Variable> = taken.collect();
    for output in created {
        if !found.iter().any(|variable| variable.name == output.name) {
            found.push(Variable::new(&output.name, &output.ty));
        }
    }
    found
}

/// `@predict(x: f32[B,64]) -> (y: f32[B,10]), reads 4 variables`.
pub(super) fn interface(signature: &Signature) -> String {
    let typed = |name: &str, ty: &TensorType| format!("{name}: {ty}");
    let inputs: Vec<String> = signature
        .inputs
        .iter()
        .filter(|input| !input.is_variable())
        .map(|input| match input.role {
            InputRole::Key => format!("key {}", typed(&input.name, &input.ty)),
            _ => typed(&input.name, &input.ty),
        })
        .collect();
    let returned = signature.outputs.iter().filter(|output| output.role == OutputRole::Output);
    let outputs: Vec<String> = returned.map(|output| typed(&output.name, &output.ty)).collect();
    let is_taken = |name: &str| signature.inputs.iter().any(|input| input.name == name);
    let role = |role| signature.inputs.iter().filter(|input| input.role == role).count();
    let created = signature
        .outputs
        .iter()
        .filter(|output| output.role == OutputRole::State && !is_taken(&output.name))
        .count();
    let uses: String = [
        ("reads", role(InputRole::Param)),
        ("updates", role(InputRole::State)),
        ("creates", created),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .map(|(verb, count)| format!(", {verb} {}", counted(count, "variable")))
    .collect();
    format!("@{}({}) -> ({}){uses}", signature.name, inputs.join(", "), outputs.join(", "))
}

pub(super) fn interface_json(signature: &Signature) -> Value {
    let inputs: Vec<Value> = signature
        .inputs
        .iter()
        .map(|i| json!({ "name": i.name, "role": i.role.name(), "type": i.ty.to_string() }))
        .collect();
    let role = |role| if role == OutputRole::State { "state" } else { "output" };
    let outputs: Vec<Value> = signature
        .outputs
        .iter()
        .map(|o| json!({ "name": o.name, "role": role(o.role), "type": o.ty.to_string() }))
        .collect();
    json!({ "name": signature.name, "inputs": inputs, "outputs": outputs })
}

pub(super) fn binding_json(binding: &Binding) -> Map<String, Value> {
    binding.iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
}
