//! Functions as ONNX models, for ONNX Runtime, TensorRT and others.
//!
//! ```text
//! Function ─ walk ─► equations ─ rule ─► nodes ─ proto ─► file
//!             (calls inlined,    (table: one rule for each op)
//!              dead ones skipped)
//! ```
//!
//! - [`walk`] visits the equations of the checked graph, before any pass of the compiler: softmax,
//!   normalization and attention are one equation each, and become one node each. What is written
//!   with several equations but is one op of ONNX is found by [`pattern`].
//! - [`table`] has one rule for each op, and the ops that are not exported, with the reasons. A
//!   rule emits nodes, or composes the op of tensors, which are then exported themselves.
//! - [`graph`] has the nodes under construction, names, constants, and dimensions: a polynomial of
//!   dimension variables becomes arithmetic on the shapes of inputs, once.
//!
//! **Broadcasts are free.** ONNX's elementwise ops broadcast their operands, and the graph's do
//! not. A [`Value`](graph::Value) therefore has a type of its own: that of the tensor in the file,
//! whose extents are those of the graph's value, or 1 where it repeats. A rule that needs all
//! elements expands it.
//!
//! **Dtypes.** Halves stay halves: ONNX leaves it open in which precision a runtime computes an
//! op. Integers that runtimes do not compute in are cast to wider ones and back, which gives the
//! same bits.

mod bind;
mod composite;
mod control;
mod elementwise;
mod graph;
mod indexing;
mod movement;
mod pattern;
mod product;
mod reduction;
mod table;
mod walk;
mod window;

pub use table::{Rule, rules, unexported};

use crate::proto::{
    DimensionProto, GraphProto, ModelProto, OperatorSetIdProto, TensorShapeProto, TensorTypeProto,
    TypeProto, ValueInfoProto,
};
use graph::{Exporter, Value, number};
use prost::Message;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use wengert_core::graph::{Function, InputRole, OutputRole};
use wengert_core::{Binding, Diagnostic, Literal, Result, TensorType, diagnostic};

/// The op sets that models are written in.
pub const OPSETS: RangeInclusive<i64> = 21..=28;

/// Most bytes of a protobuf message.
const LARGEST: usize = i32::MAX as usize;

/// How a function is exported.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The version of ONNX's op set, one of [`OPSETS`]. From 23 on there are nodes for attention
    /// and RMS normalization; before, these are composed of others.
    pub opset: i64,
    /// Numbers for dimension variables. The others stay symbolic: they are extents of inputs.
    pub binding: Binding,
    /// The file's `producer_name`.
    pub producer: String,
}

impl Default for ExportOptions {
    fn default() -> Self {
        ExportOptions {
            opset: *OPSETS.start(),
            binding: Binding::new(),
            producer: "wengert".into(),
        }
    }
}

/// The bytes of a model that computes the function. Its inputs of role input and key are the
/// model's inputs, parameters and state are initializers with the given values, by key path. A new
/// state is an output with the name of the state and `.new`.
///
/// # Errors
/// An equation has no counterpart in ONNX: the error has its op and place. A parameter has no
/// value, or one of another type. The model is larger than 2 GiB.
pub fn write(
    function: &Function,
    parameters: &BTreeMap<String, Literal>,
    options: &ExportOptions,
) -> Result<Vec<u8>> {
    let context = |error: Diagnostic| error.context(format_args!("@{}", function.name));
    let bound = bind::function(function, &options.binding).map_err(context)?;
    let model = model(&bound, parameters, options).map_err(context)?;
    let bytes = model.encoded_len();
    if bytes > LARGEST {
        return Err(context(
            diagnostic!("the model has {bytes} bytes, and a file of ONNX at most {LARGEST}")
                .help("export it with parameters in f16 or bf16, or export parts of it"),
        ));
    }
    Ok(model.encode_to_vec())
}

/// A tensor as a message of its own, such as the inputs of ONNX's tests.
pub fn write_tensor(name: &str, literal: &Literal) -> Vec<u8> {
    graph::tensor(name, literal).encode_to_vec()
}

/// The least version of the file format that has an op set.
fn ir_version(opset: i64) -> i64 {
    match opset {
        ..=22 => 10,
        23 => 11,
        24 => 12,
        25..=27 => 13,
        _ => 14,
    }
}

fn model(
    function: &Function,
    parameters: &BTreeMap<String, Literal>,
    options: &ExportOptions,
) -> Result<ModelProto> {
    if !OPSETS.contains(&options.opset) {
        return Err(diagnostic!("op set {} of ONNX is not known", options.opset).help(format!(
            "models are written in the op sets {} to {}",
            OPSETS.start(),
            OPSETS.end()
        )));
    }
    let mut exporter = Exporter::new(options.opset);
    let (mut inputs, mut initializers, mut values) = (vec![], vec![], vec![]);
    // Inputs and outputs keep their names, so these are taken first.
    for input in &function.inputs {
        exporter.take(&input.name);
    }
    let outputs: Vec<String> = function
        .outputs
        .iter()
        .map(|output| match output.role {
            OutputRole::Output => exporter.unique(&output.name),
            OutputRole::State => exporter.unique(&format!("{}.new", output.name)),
        })
        .collect();
    for (number, input) in function.inputs.iter().enumerate() {
        let ty = function.input_type(number);
        let value = Value { name: input.name.clone(), ty: ty.clone() };
        match input.role {
            InputRole::Input | InputRole::Key => {
                inputs.push(info(&value));
                exporter.declare(&value);
            }
            InputRole::Param | InputRole::State => {
                let literal = given(&input.name, ty, parameters)?;
                initializers.push(graph::tensor(&input.name, literal));
            }
        }
        values.push(value);
    }
    let results = exporter.body(&function.body, values, Some(&function.locations))?;
    let mut infos = vec![];
    for (number, (name, value)) in outputs.iter().zip(&results).enumerate() {
        let ty = function.output_type(number);
        let full = exporter.expanded(value, &ty.shape)?;
        exporter.name(&full, name);
        infos.push(info(&Value { name: name.clone(), ty: ty.clone() }));
    }
    let graph = GraphProto {
        node: exporter.finish(),
        name: Some(function.name.clone()),
        initializer: initializers,
        input: inputs,
        output: infos,
        ..Default::default()
    };
    Ok(ModelProto {
        ir_version: Some(ir_version(options.opset)),
        producer_name: Some(options.producer.clone()),
        producer_version: Some(env!("CARGO_PKG_VERSION").into()),
        graph: Some(graph),
        opset_import: vec![OperatorSetIdProto {
            domain: Some(String::new()),
            version: Some(options.opset),
        }],
        ..Default::default()
    })
}

/// The value of a parameter or state.
fn given<'a>(
    name: &str,
    ty: &TensorType,
    parameters: &'a BTreeMap<String, Literal>,
) -> Result<&'a Literal> {
    let Some(literal) = parameters.get(name) else {
        return Err(diagnostic!("variable `{name}` of type {ty} has no value").help(
            "a model has its weights: give values for all parameters and state, such as \
             `--params trained.safetensors`",
        ));
    };
    if literal.ty() != *ty {
        return Err(diagnostic!("variable `{name}` has type {ty}, its value {}", literal.ty())
            .help("give a value of the variable's type; `--bind NAME=N` binds its dimensions"));
    }
    Ok(literal)
}

/// The name and type of a value, as a file has them.
fn info(value: &Value) -> ValueInfoProto {
    let dimension = |dim: &wengert_core::Dim| match dim.as_constant() {
        Some(number) => DimensionProto { dim_value: Some(number), dim_param: None },
        None => DimensionProto { dim_value: None, dim_param: Some(dim.to_string()) },
    };
    let shape = TensorShapeProto { dim: value.ty.shape.iter().map(dimension).collect() };
    let tensor = TensorTypeProto { elem_type: Some(number(value.ty.dtype)), shape: Some(shape) };
    ValueInfoProto {
        name: Some(value.name.clone()),
        r#type: Some(TypeProto { tensor_type: Some(tensor), ..Default::default() }),
    }
}
