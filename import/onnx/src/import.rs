//! Imports a checked model: walks its nodes, and builds the program's function.

use crate::budget::{Budget, NAME, NODE};
use crate::counted::Counted;
use crate::form::Form;
use crate::model::{Attribute, External, Files, Function, Graph, Model, Node, OpName, Stored};
use crate::narrow::Narrow;
use crate::op::{Call, Carried, Row, rows, unknown};
use crate::proto::{ModelProto, TensorProto};
use crate::refusal::{Class, refuse};
use crate::training::Training;
use crate::value::{Dims, Initial, Value, absent};
use bytes::Bytes;
use prost::Message;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;
use wengert_core::build::{FunctionBuilder, Scope};
use wengert_core::graph::Program;
use wengert_core::text::is_name;
use wengert_core::{
    Binding, Diagnostic, Dim, Initializer, Literal, Location, LocationTable, Result, Tensor,
};

/// Most elements of a result of a node that is evaluated at import.
const FOLDED: usize = 1 << 16;

/// How a model is imported.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Inputs that have a value: shapes, axes, counts.
    pub bound: BTreeMap<String, Literal>,
    /// Numbers for symbolic extents of inputs. Some ops need an extent as a number, such as a
    /// reflection at the end of an axis.
    pub extents: Binding,
    /// The most results that are kept, by the names of results whose number depends on data. The
    /// function has an output `NAME_count` for each, with their number.
    pub max: BTreeMap<String, usize>,
    /// The shapes of the elements of inputs that are sequences. Each element is an input of the
    /// function, `NAME.0` and so on.
    pub sequences: BTreeMap<String, Vec<Vec<Dim>>>,
    /// Optional inputs that are absent. The others are there.
    pub absent: BTreeSet<String>,
    /// Name of the function; `predict` if empty.
    pub function: String,
    /// Whether `BatchNormalization` and `Dropout` have their training forms: statistics of the
    /// batch, with running statistics as state that each run updates, and elements that a key drops
    /// out.
    pub training: bool,
}

/// An imported model.
#[derive(Clone, Debug)]
pub struct Imported {
    /// One function, whose parameters are the model's initializers.
    pub program: Program,
    /// Initial values of the parameters.
    pub parameters: BTreeMap<String, Literal>,
    /// The names of the model's inputs and outputs, by those of the function. An element of a
    /// sequence has the sequence's name, a dot and its number.
    pub names: BTreeMap<String, String>,
    /// The dtypes of inputs and outputs that are a dtype which programs lack, by their names in the
    /// function. They are i32 or f32 in the function, and a caller gives numbers of the dtype.
    pub narrow: BTreeMap<String, Narrow>,
    /// The parameters that are running statistics of a `BatchNormalization`. No gradient is meant
    /// to change them.
    pub statistics: BTreeSet<String>,
}

/// Imports a model. `name` is that of its file, for locations; `files` opens the files beside it
/// that have values of tensors.
///
/// # Errors
/// The bytes are no model; a part of it is refused.
pub fn read(name: &str, bytes: Bytes, files: &Files<'_>, options: &Options) -> Result<Imported> {
    import(&checked(name, bytes, files)?, options)
}

/// The names of the inputs of a model, without those of initializers.
///
/// # Errors
/// As of [`read`].
pub fn inputs(name: &str, bytes: Bytes, files: &Files<'_>) -> Result<Vec<String>> {
    let model = checked(name, bytes, files)?;
    Ok(model.graph.inputs.into_iter().map(|input| input.name).collect())
}

/// The names of the outputs of a model.
///
/// # Errors
/// As of [`read`].
pub fn outputs(name: &str, bytes: Bytes, files: &Files<'_>) -> Result<Vec<String>> {
    Ok(checked(name, bytes, files)?.graph.outputs)
}

/// A tensor that is a message of its own, such as the inputs of ONNX's tests.
///
/// # Errors
/// The bytes are no tensor; its dtype is refused.
pub fn read_tensor(bytes: Bytes) -> Result<Stored> {
    let proto =
        TensorProto::decode(bytes).map_err(|e| Diagnostic::new(format!("it is no tensor: {e}")))?;
    if proto.data_type.is_none() || proto.data_type == Some(0) {
        return Err(refuse(Class::Container, "it is a sequence, or no tensor"));
    }
    let alone = |path: &Path| {
        Err(Diagnostic::new(format!("its values are in another file, {}", path.display())))
    };
    Model::tensor(proto, &External::new(&alone))
}

/// The checked model.
fn checked(name: &str, bytes: Bytes, files: &Files<'_>) -> Result<Model> {
    let proto = ModelProto::decode(bytes)
        .map_err(|e| Diagnostic::new(format!("it is no ONNX model: {e}")))?;
    Model::of(name, proto, &External::new(files))
}

/// Imports a model.
fn import(model: &Model, options: &Options) -> Result<Imported> {
    options.check(&model.graph.inputs)?;
    let function = if options.function.is_empty() { "predict" } else { &options.function };
    let (mut names, mut narrow) = (BTreeMap::new(), BTreeMap::new());
    let (mut parameters, mut statistics) = (BTreeMap::new(), BTreeSet::new());
    let mut failure = None;
    let built = FunctionBuilder::build(function, |f| {
        let importer = Importer {
            model,
            builder: RefCell::new(f),
            declared: RefCell::default(),
            inputs: RefCell::default(),
            parameters: RefCell::default(),
            training: Training::new(options.training),
            counted: Counted::new(&options.max),
            budget: Budget::new(),
        };
        let outputs = importer.model(options);
        importer.finish_statistics();
        match outputs {
            Ok(outputs) => {
                for (name, original, dtype) in importer.inputs.into_inner() {
                    narrow.extend(dtype.map(|dtype| (name.clone(), dtype)));
                    names.insert(name, original);
                }
                parameters = importer.parameters.into_inner();
                statistics = importer.training.statistics.into_inner();
                for Output { name, original, tensor, dtype } in outputs {
                    f.output(&name, &tensor);
                    narrow.extend(dtype.map(|dtype| (name.clone(), dtype)));
                    names.insert(name, original);
                }
            }
            Err(error) => failure = Some(error),
        }
    });
    if let Some(error) = failure {
        return Err(error);
    }
    let program = Program::from_functions(vec![built?])?;
    Ok(Imported { program, parameters, names, narrow, statistics })
}

/// A name of the project for a name of ONNX: what no name may have becomes `_`.
pub(crate) fn plain_name(name: &str) -> String {
    let mut plain: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '.' { c } else { '_' })
        .collect();
    if !is_name(&plain) {
        plain.insert(0, '_');
    }
    plain
}

/// The names of a graph, and those of the graphs around it.
#[derive(Clone, Default)]
pub(crate) struct Names {
    known: HashMap<String, Value>,
}

/// An output of the function.
struct Output {
    name: String,
    /// Its name in the file.
    original: String,
    tensor: Tensor,
    /// Its dtype, if programs lack it.
    dtype: Option<Narrow>,
}

/// Imports the graphs of a model into a function.
pub(crate) struct Importer<'m, 'f> {
    pub(crate) model: &'m Model,
    pub(crate) builder: RefCell<&'f mut FunctionBuilder>,
    /// Inputs: their names, those in the file, and their dtypes if programs lack them.
    pub(crate) inputs: RefCell<Vec<(String, String, Option<Narrow>)>>,
    /// Names of inputs and parameters.
    declared: RefCell<HashSet<String>>,
    pub(crate) parameters: RefCell<BTreeMap<String, Literal>>,
    pub(crate) training: Training,
    pub(crate) counted: Counted<'m>,
    pub(crate) budget: Budget,
}

/// What the nodes of a graph or of a function have in common.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    opsets: &'a BTreeMap<String, i64>,
    /// Attributes of the function call.
    pub attributes: Option<&'a BTreeMap<String, Attribute>>,
    depth: usize,
}

/// Deepest nesting of calls of functions.
const DEPTH: usize = 64;

impl Importer<'_, '_> {
    /// The outputs of the model's graph.
    fn model(&self, options: &Options) -> Result<Vec<Output>> {
        let mut names = Names::default();
        for input in &self.model.graph.inputs {
            names.known.insert(input.name.clone(), self.input(input, options)?);
        }
        let around = Around { opsets: &self.model.opsets, attributes: None, depth: 0 };
        let outputs = self.graph(&self.model.graph, &mut names, around)?;
        let mut taken = HashSet::new();
        let mut free = |original: &str| {
            let mut name = plain_name(original);
            while !taken.insert(name.clone()) {
                name.push('_');
            }
            name
        };
        let mut all = vec![];
        for (original, value) in self.model.graph.outputs.iter().zip(outputs) {
            let (mut tensors, mut named) = (vec![], vec![]);
            Form::of(&value, &|value| self.tensor(value), &mut tensors)?
                .names(original, &mut named);
            for (tensor, (original, dtype)) in tensors.into_iter().zip(named) {
                all.push(Output { name: free(&original), original, tensor, dtype });
            }
        }
        for (name, tensor) in self.counted.finish()? {
            let original = format!("{name}_count");
            all.push(Output { name: free(&original), original, tensor, dtype: None });
        }
        Ok(all)
    }

    /// A declared name that no other input or parameter has.
    pub(crate) fn declare(&self, original: &str) -> String {
        let mut name = plain_name(original);
        while !self.declared.borrow_mut().insert(name.clone()) {
            name.push('_');
        }
        name
    }

    /// A value as a tensor. An initializer becomes a parameter.
    pub fn tensor(&self, value: &Value) -> Result<Tensor> {
        match value {
            Value::Tensor(tensor) => Ok(tensor.clone()),
            Value::Narrow(narrow, _) => Err(unknown(*narrow)),
            Value::Dims(dims) => Ok(dims.tensor()),
            Value::Sequence(_) => Err(refuse(Class::Container, "a sequence in place of a tensor")),
            Value::Absent => Err(absent()),
            Value::Initial(initial) => Ok(initial
                .parameter
                .get_or_init(|| {
                    let Initial { name, literal, .. } = &**initial;
                    let zeros = Tensor::variable(literal.ty(), Initializer::Zeros);
                    self.parameters.borrow_mut().insert(name.clone(), literal.clone());
                    self.builder.borrow_mut().param(name, zeros)
                })
                .clone()),
        }
    }

    /// Imports a graph. Its outputs are returned.
    pub fn graph(
        &self,
        graph: &Graph,
        names: &mut Names,
        around: Around<'_>,
    ) -> Result<Vec<Value>> {
        for (name, Stored { literal, narrow }) in &graph.initializers {
            // Integers and single numbers are constants: shapes, axes, bounds.
            let is_parameter = narrow.is_none() && literal.dtype().is_float() && literal.len() > 1;
            let value = match is_parameter {
                true => Value::Initial(Rc::new(Initial {
                    name: self.declare(name),
                    literal: literal.clone(),
                    parameter: OnceCell::new(),
                })),
                false => Value::of(Tensor::constant(literal.clone()), *narrow),
            };
            names.known.insert(name.clone(), value);
        }
        for node in &graph.nodes {
            self.node(node, names, around)?;
        }
        Ok(graph.outputs.iter().map(|name| names.known[name].clone()).collect())
    }

    /// The outputs of a graph in an attribute, which may use the `names` around its node.
    pub fn body(
        &self,
        graph: &Graph,
        inputs: Vec<Value>,
        names: &Names,
        around: Around<'_>,
    ) -> Result<Vec<Value>> {
        self.budget.take(NAME * names.known.len() as u64 + NODE * graph.nodes.len() as u64)?;
        let mut names = names.clone();
        for (input, value) in graph.inputs.iter().zip(inputs) {
            names.known.insert(input.name.clone(), value);
        }
        self.graph(graph, &mut names, around)
    }

    fn node(&self, node: &Node, names: &mut Names, around: Around<'_>) -> Result<()> {
        let version = around.opsets.get(&node.op.domain).copied().unwrap_or(1);
        let context = |e: Diagnostic| {
            let domain = if node.op.domain.is_empty() { "" } else { "::" };
            let op = format!("{}{domain}{}", node.op.domain, node.op.name);
            e.context(format_args!("node `{}` ({op}, opset {version})", node.name))
        };
        let inputs: Vec<Option<Value>> = node
            .inputs
            .iter()
            .map(|name| name.as_ref().and_then(|name| names.known.get(name)).cloned())
            .collect();
        let location = Location::source(self.model.file.clone(), node.number, 1);
        let results = location.attribute(|| match self.model.functions.get(&node.op) {
            Some(function) => self.function(function, node, inputs, around),
            None => self.op(node, version, inputs, names, around),
        });
        let results = results.map_err(context)?;
        for (name, value) in node.outputs.iter().zip(results) {
            if let Value::Tensor(tensor) | Value::Narrow(_, tensor) = &value
                && let Some(error) = tensor.error()
            {
                return Err(context(error.clone()));
            }
            if let Some(name) = name {
                names.known.insert(name.clone(), value);
            }
        }
        match node.outputs.iter().flatten().find(|name| !names.known.contains_key(*name)) {
            Some(missing) => Err(context(refuse(
                Class::Attribute,
                format!("its result `{missing}` is not imported"),
            ))),
            None => Ok(()),
        }
    }

    /// The results of an op of the table. Those of constants are constants.
    fn op(
        &self,
        node: &Node,
        version: i64,
        mut inputs: Vec<Option<Value>>,
        names: &Names,
        around: Around<'_>,
    ) -> Result<Vec<Value>> {
        let row = row(&node.op, version)?;
        let known = inputs.iter().flatten().all(Value::is_constant);
        let carried = Carried::take(row, &mut inputs)?;
        let call = Call::new(self, node, version, inputs, names, around);
        let rule = || {
            let results = (row.rule)(&call)?;
            match &carried {
                Some(carried) => carried.results(results),
                None => Ok(results),
            }
        };
        if !known || !row.folds {
            return rule();
        }
        // A scope of its own gives the types, and costs nothing else.
        let scope = Scope::new(LocationTable::default());
        let types = self.budget.trial(|| scope.enter(rule))?;
        let is_small = |value: &Value| match value {
            Value::Tensor(tensor) | Value::Narrow(_, tensor) => {
                tensor.ty().elements().is_some_and(|n| n <= FOLDED)
            }
            _ => true,
        };
        let is_evaluated = types.iter().all(is_small) && self.budget.folds(&scope.body());
        // Their tables are made again.
        drop((types, scope));
        if !is_evaluated {
            return rule();
        }
        let constant = |value: Value| match value {
            Value::Tensor(tensor) => Ok(Value::Tensor(Tensor::constant(tensor.value()?))),
            Value::Narrow(narrow, tensor) => {
                Ok(Value::Narrow(narrow, Tensor::constant(tensor.value()?)))
            }
            other => Ok(other),
        };
        let results = Scope::eager().enter(rule)?;
        results.into_iter().map(constant).collect()
    }

    /// The results of a function, whose nodes are imported in its place.
    fn function(
        &self,
        function: &Function,
        node: &Node,
        inputs: Vec<Option<Value>>,
        around: Around<'_>,
    ) -> Result<Vec<Value>> {
        if around.depth > DEPTH {
            return Err(Diagnostic::new("functions call each other without end"));
        }
        self.budget.take(NODE * function.nodes.len() as u64)?;
        let mut attributes = function.defaults.clone();
        for (name, attribute) in &node.attributes {
            let given = match (attribute, around.attributes) {
                (Attribute::Of(outer), Some(all)) => all.get(outer),
                _ => Some(attribute),
            };
            if let Some(given) = given {
                attributes.insert(name.clone(), given.clone());
            }
        }
        if let Some(missing) =
            function.attributes.iter().find(|name| !attributes.contains_key(*name))
        {
            return Err(Diagnostic::new(format!("attribute `{missing}` has no value")));
        }
        let mut names = Names::default();
        for (name, value) in function.inputs.iter().zip(inputs) {
            if let Some(value) = value {
                names.known.insert(name.clone(), value);
            }
        }
        let around = Around {
            opsets: &function.opsets,
            attributes: Some(&attributes),
            depth: around.depth + 1,
        };
        for node in &function.nodes {
            self.node(node, &mut names, around)?;
        }
        Ok(function.outputs.iter().map(|name| names.known[name].clone()).collect())
    }
}

/// The row of the table for an op in a version: the newest that is not newer.
fn row(op: &OpName, version: i64) -> Result<&'static Row> {
    let mut of_op = rows().filter(|row| row.domain == op.domain && row.name == op.name).peekable();
    if of_op.peek().is_none() {
        return Err(refuse(Class::Op, "it is not imported"));
    }
    of_op.filter(|row| row.since <= version).max_by_key(|row| row.since).ok_or_else(|| {
        refuse(Class::Version, "this version of it is older than every one that is imported")
    })
}

/// Integers that are not known as numbers stay polynomials.
pub(crate) fn dims(values: Vec<Dim>) -> Value {
    let dims = Dims::list(values);
    match dims.numbers() {
        Some(_) => Value::Tensor(dims.tensor()),
        None => Value::Dims(dims),
    }
}
