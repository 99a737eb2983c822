//! A model whose parts are checked.

mod attribute;
mod tensor;
mod types;

pub(crate) use attribute::Attribute;
pub(crate) use tensor::External;
pub use tensor::{Files, Stored};
pub(crate) use types::{Element, Extent, ValueType, dtype, element};

use crate::proto::{
    FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
};
use crate::refusal::{Class, refuse};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wengert_core::{Diagnostic, Result};

/// Greatest version of ONNX's own ops.
const NEWEST_OPSET: i64 = 28;
/// Least version.
const OLDEST_OPSET: i64 = 7;
/// Deepest nesting of graphs in attributes.
const DEPTH: usize = 32;

/// A checked model.
#[derive(Clone, Debug)]
pub struct Model {
    /// Name of its file, for locations.
    pub(crate) file: Arc<str>,
    pub(crate) graph: Graph,
    /// Versions of the ops, by domain. ONNX's own domain is empty.
    pub(crate) opsets: BTreeMap<String, i64>,
    pub(crate) functions: BTreeMap<OpName, Function>,
}

/// The name of an op.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct OpName {
    /// Empty for ONNX itself.
    pub domain: String,
    pub name: String,
    /// Distinguishes functions of one name; empty for all other ops.
    pub overload: String,
}

/// Nodes in an order in which each name is defined before it is used.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    pub inputs: Vec<Input>,
    pub outputs: Vec<String>,
    pub initializers: Vec<(String, Stored)>,
    pub nodes: Vec<Node>,
}

/// An input that is no initializer.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub name: String,
    pub ty: Option<ValueType>,
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub op: OpName,
    /// Its name in the file, or that of its first result.
    pub name: String,
    /// Its number in its graph, from 1.
    pub number: u32,
    pub inputs: Vec<Option<String>>,
    pub outputs: Vec<Option<String>>,
    pub attributes: BTreeMap<String, Attribute>,
}

/// An op that is defined by nodes.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    /// Attributes that have no default, and those that have one.
    pub attributes: Vec<String>,
    pub defaults: BTreeMap<String, Attribute>,
    pub nodes: Vec<Node>,
    pub opsets: BTreeMap<String, i64>,
}

impl Model {
    /// Checks the messages of a file. `external` reads the tensors that lie in other files.
    ///
    /// # Errors
    /// A part is missing or wrong; a name is defined twice or not at all; a version is not known.
    pub(crate) fn of(file: &str, proto: ModelProto, external: &External<'_>) -> Result<Model> {
        let opsets = opsets(&proto.opset_import)?;
        let version = opsets.get("").copied();
        if let Some(version) = version.filter(|v| !(OLDEST_OPSET..=NEWEST_OPSET).contains(v)) {
            return Err(refuse(
                Class::Version,
                format!("opset {version}, not one of {OLDEST_OPSET} to {NEWEST_OPSET}"),
            ));
        }
        let graph = proto.graph.ok_or_else(|| Diagnostic::new("the model has no graph"))?;
        let reader = Reader { external };
        let mut functions = BTreeMap::new();
        for function in proto.functions {
            let (name, function) = reader.function(function, &opsets)?;
            if functions.insert(name.clone(), function).is_some() {
                return Err(Diagnostic::new(format!("function `{}` is defined twice", name.name)));
            }
        }
        let graph = reader.graph(graph, &BTreeSet::new(), 0)?;
        Ok(Model { file: file.into(), graph, opsets, functions })
    }
}

impl Model {
    /// A tensor without a model.
    pub(crate) fn tensor(proto: TensorProto, external: &External<'_>) -> Result<Stored> {
        Reader { external }.tensor(proto)
    }
}

/// The versions by domain.
fn opsets(imports: &[OperatorSetIdProto]) -> Result<BTreeMap<String, i64>> {
    let mut all = BTreeMap::new();
    for import in imports {
        let domain = canonical(import.domain.as_deref().unwrap_or_default());
        let version = import.version.unwrap_or_default();
        if all.insert(domain.clone(), version).is_some_and(|other| other != version) {
            return Err(Diagnostic::new(format!("domain `{domain}` has two versions")));
        }
    }
    Ok(all)
}

/// ONNX's own domain has two names.
fn canonical(domain: &str) -> String {
    if domain == "ai.onnx" { String::new() } else { domain.into() }
}

/// An absent operand or result has an empty name.
fn names(names: Vec<String>) -> Vec<Option<String>> {
    names.into_iter().map(|name| (!name.is_empty()).then_some(name)).collect()
}

/// Reads messages.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'e> {
    external: &'e External<'e>,
}

impl Reader<'_> {
    /// A graph whose nodes may use the names of `outer`, those of the graphs around it.
    fn graph(&self, proto: GraphProto, outer: &BTreeSet<String>, depth: usize) -> Result<Graph> {
        if depth > DEPTH {
            return Err(Diagnostic::new(format!("graphs are nested more than {DEPTH} times")));
        }
        let name = proto.name.unwrap_or_default();
        let context = |e: Diagnostic| e.context(format_args!("graph `{name}`"));
        if !proto.sparse_initializer.is_empty() {
            return Err(context(refuse(Class::DType, "a sparse tensor")));
        }
        let mut known = outer.clone();
        let mut own = BTreeSet::new();
        let mut define = |name: &str| match own.insert(name.to_owned()) {
            true => Ok(()),
            false => Err(Diagnostic::new(format!("`{name}` is defined twice"))),
        };
        let mut initializers = Vec::with_capacity(proto.initializer.len());
        for tensor in proto.initializer {
            let name = tensor.name.clone().unwrap_or_default();
            define(&name).map_err(context)?;
            let stored = self.tensor(tensor);
            initializers.push((
                name.clone(),
                stored.map_err(|e| context(e.context(format_args!("initializer `{name}`"))))?,
            ));
        }
        let mut inputs = Vec::new();
        for value in proto.input {
            let name = value.name.unwrap_or_default();
            // Before version 4 of the format, initializers were inputs as well.
            if initializers.iter().any(|(known, _)| *known == name) {
                continue;
            }
            define(&name).map_err(context)?;
            let ty = value.r#type.map(ValueType::of).transpose();
            let ty = ty.map_err(|e| context(e.context(format_args!("input `{name}`"))))?;
            inputs.push(Input { name, ty });
        }
        known.extend(own.iter().cloned());
        let mut nodes = Vec::with_capacity(proto.node.len());
        for (n, node) in proto.node.into_iter().enumerate() {
            let node = self.node(node, n, &known, depth).map_err(context)?;
            for output in node.outputs.iter().flatten() {
                if !own.insert(output.clone()) {
                    return Err(context(Diagnostic::new(format!("`{output}` is defined twice"))));
                }
                known.insert(output.clone());
            }
            nodes.push(node);
        }
        let outputs: Vec<String> =
            proto.output.into_iter().map(|o| o.name.unwrap_or_default()).collect();
        if let Some(missing) = outputs.iter().find(|name| !known.contains(*name)) {
            return Err(context(Diagnostic::new(format!("output `{missing}` is not defined"))));
        }
        Ok(Graph { inputs, outputs, initializers, nodes })
    }

    fn node(
        &self,
        proto: NodeProto,
        index: usize,
        known: &BTreeSet<String>,
        depth: usize,
    ) -> Result<Node> {
        let op = OpName {
            domain: canonical(&proto.domain.unwrap_or_default()),
            name: proto.op_type.unwrap_or_default(),
            overload: proto.overload.unwrap_or_default(),
        };
        let (inputs, outputs) = (names(proto.input), names(proto.output));
        let first = || outputs.iter().flatten().next().cloned();
        let name = proto.name.filter(|name| !name.is_empty()).or_else(first).unwrap_or_default();
        let context = |e: Diagnostic| e.context(format_args!("node `{name}` ({})", op.name));
        if let Some(missing) = inputs.iter().flatten().find(|name| !known.contains(*name)) {
            return Err(context(
                Diagnostic::new(format!("`{missing}` is used before it is defined"))
                    .help("nodes of a file are in the order of their execution, without cycles"),
            ));
        }
        let mut attributes = BTreeMap::new();
        for attribute in proto.attribute {
            let name = attribute.name.clone().unwrap_or_default();
            let of = |e: Diagnostic| context(e.context(format_args!("attribute `{name}`")));
            let attribute = self.attribute(attribute, known, depth).map_err(of)?;
            if attributes.insert(name.clone(), attribute).is_some() {
                return Err(of(Diagnostic::new("it is given twice")));
            }
        }
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        Ok(Node { op, name, number, inputs, outputs, attributes })
    }

    fn function(
        &self,
        proto: FunctionProto,
        model: &BTreeMap<String, i64>,
    ) -> Result<(OpName, Function)> {
        let name = OpName {
            domain: canonical(&proto.domain.unwrap_or_default()),
            name: proto.name.unwrap_or_default(),
            overload: proto.overload.unwrap_or_default(),
        };
        let context = |e: Diagnostic| e.context(format_args!("function `{}`", name.name));
        let mut known: BTreeSet<String> = proto.input.iter().cloned().collect();
        let mut nodes = Vec::with_capacity(proto.node.len());
        for (n, node) in proto.node.into_iter().enumerate() {
            let node = self.node(node, n, &known, 0).map_err(context)?;
            known.extend(node.outputs.iter().flatten().cloned());
            nodes.push(node);
        }
        if let Some(missing) = proto.output.iter().find(|name| !known.contains(*name)) {
            return Err(context(Diagnostic::new(format!("output `{missing}` is not defined"))));
        }
        let mut defaults = BTreeMap::new();
        for attribute in proto.attribute_proto {
            let name = attribute.name.clone().unwrap_or_default();
            defaults.insert(name, self.attribute(attribute, &known, 0).map_err(context)?);
        }
        let mut versions = model.clone();
        versions.extend(opsets(&proto.opset_import).map_err(context)?);
        let function = Function {
            inputs: proto.input,
            outputs: proto.output,
            attributes: proto.attribute,
            defaults,
            nodes,
            opsets: versions,
        };
        Ok((name, function))
    }
}
