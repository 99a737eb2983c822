//! A function as TensorBoard's graph: a node for each input, equation and output.
//!
//! `Placeholder` and `Identity` are TensorFlow's ops for inputs and outputs, by which TensorBoard
//! draws them.
//!
//! The names of nodes are paths: an equation is in the group of its source file and line, and the
//! equations of a region are in the group of their loop or branch. A constant without a source line
//! is in the group of the first equation that uses it.

use super::proto::{
    Attribute, AttributeContent, AttributeList, Dim, GraphDef, Node, Shape, Versions,
};
use std::collections::BTreeMap;
use std::path::Path;
use wengert_core::graph::{Body, Function, ValueId};
use wengert_core::{Location, LocationId, LocationTable, TensorType};

/// The graph of a function.
pub(super) fn of(function: &Function) -> GraphDef {
    let mut nodes = Nodes { locations: &function.locations, all: vec![], count: 0 };
    let body = &function.body;
    let names = function.inputs.iter().map(|input| format!("inputs/{}", plain(&input.name)));
    let names: Vec<String> = names.collect();
    let mut made = BTreeMap::new();
    for (name, value) in names.iter().zip(&body.inputs) {
        made.insert(*value, name.clone());
        nodes.push(name.clone(), "Placeholder", vec![], &[body.ty(*value)], String::new());
    }
    nodes.body(body, "", &mut made);
    for (output, value) in function.outputs.iter().zip(&body.outputs) {
        let name = format!("outputs/{}", plain(&output.name));
        nodes.push(name, "Identity", vec![made[value].clone()], &[body.ty(*value)], String::new());
    }
    // A version from which on names of results are as they are here.
    GraphDef { node: nodes.all, versions: Some(Versions { producer: 22 }) }
}

/// The nodes of a graph.
struct Nodes<'a> {
    locations: &'a LocationTable,
    all: Vec<Node>,
    /// Equations so far, which number the nodes.
    count: usize,
}

impl Nodes<'_> {
    /// Adds the equations of a body within a group. `made` has the name of each value.
    fn body(&mut self, body: &Body, group: &str, made: &mut BTreeMap<ValueId, String>) {
        let mut users: BTreeMap<ValueId, LocationId> = BTreeMap::new();
        for equation in &body.equations {
            for value in &equation.operands {
                users.entry(*value).or_insert(equation.location);
            }
        }
        for equation in &body.equations {
            let user = equation.results.first().and_then(|result| users.get(result));
            let group = self.group(equation.location, user.copied(), group);
            let name = format!("{group}{}_{}", equation.op.name(), self.count);
            self.count += 1;
            let inputs: Vec<String> =
                equation.operands.iter().map(|value| made[value].clone()).collect();
            let types: Vec<&TensorType> =
                equation.results.iter().map(|value| body.ty(*value)).collect();
            let from = self.locations.describe(equation.location);
            self.push(name.clone(), equation.op.name(), inputs, &types, from);
            for (k, result) in equation.results.iter().enumerate() {
                let result_name = if k == 0 { name.clone() } else { format!("{name}:{k}") };
                made.insert(*result, result_name);
            }
            for (k, region) in equation.regions.iter().enumerate() {
                // The group of the op is beside its node, since a name is either of the two.
                let group = format!("{name}_region_{k}/");
                let mut made = BTreeMap::new();
                for (n, value) in region.inputs.iter().enumerate() {
                    let input = format!("{group}input_{n}");
                    self.push(
                        input.clone(),
                        "Placeholder",
                        vec![],
                        &[region.ty(*value)],
                        String::new(),
                    );
                    made.insert(*value, input);
                }
                self.body(region, &group, &mut made);
            }
        }
    }

    /// The group of an equation: the file and line of its origin or else of its first user, within
    /// the group of its region.
    fn group(&self, location: LocationId, user: Option<LocationId>, group: &str) -> String {
        let source = |id| match self.locations.origin(id) {
            Location::Source { file, line, .. } => Some((file, line)),
            _ => None,
        };
        match source(location).or_else(|| source(user?)) {
            Some((file, line)) => {
                let file = Path::new(&**file).file_name().unwrap_or_default();
                format!("{group}{}/{line}/", plain(&file.to_string_lossy()))
            }
            None => group.to_owned(),
        }
    }

    fn push(
        &mut self,
        name: String,
        op: &str,
        input: Vec<String>,
        types: &[&TensorType],
        from: String,
    ) {
        let mut attr = BTreeMap::new();
        let mut put = |key: &str, content| {
            attr.insert(key.to_owned(), Attribute { content: Some(content) });
        };
        let shape = types.iter().map(|ty| shape(ty)).collect();
        put("_output_shapes", AttributeContent::List(AttributeList { shape }));
        let texts: Vec<String> = types.iter().map(|ty| ty.to_string()).collect();
        put("types", AttributeContent::Text(texts.join(", ").into_bytes()));
        if !from.is_empty() {
            put("location", AttributeContent::Text(from.into_bytes()));
        }
        self.all.push(Node { name, op: op.into(), input, attr });
    }
}

fn shape(ty: &TensorType) -> Shape {
    let size = |dim: &wengert_core::Dim| dim.as_constant().unwrap_or(-1);
    Shape { dim: ty.shape.iter().map(|dim| Dim { size: size(dim) }).collect() }
}

/// The name with no other characters than those of names of nodes.
fn plain(name: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    name.chars().map(|c| if allowed(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    #[test]
    fn constants_are_in_the_group_of_their_first_user() {
        let mut program = Program::new();
        program
            .function("f", |f| {
                let x = f.input("x", f32("4"));
                f.output("y", (x * 0.25f32).exp());
            })
            .unwrap();
        let graph = of(program.get("f").unwrap());
        let constant = graph.node.iter().find(|node| node.op == "constant").unwrap();
        let group = constant.name.rsplit_once('/').unwrap().0;
        assert!(group.starts_with("graph.rs/"), "{group}");
        let users = graph.node.iter().filter(|node| node.input.contains(&constant.name));
        assert!(users.take(1).all(|user| user.name.starts_with(group)), "{group}");
    }
}
