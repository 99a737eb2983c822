//! ONNX graphs, the input format of tract. They are the graphs of `bench/peers/onnx_graphs.py`,
//! built in memory instead of written to files.

use crate::network::Drawn;
use tract_onnx::pb::attribute_proto::AttributeType;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension};
use tract_onnx::pb::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto, type_proto,
};

/// The version of ONNX's operator set that introduces attention as a single operator. tract accepts
/// its operators whatever version a model declares.
const OPSET: i64 = 23;

/// A value in a graph, by its name.
pub type Value = String;

/// A list of nodes in order. Values are referred to by name.
#[derive(Default)]
pub struct Graph(GraphProto);

fn tensor_type(dtype: DataType, shape: &[usize]) -> TypeProto {
    let dim = |extent: &usize| Dimension {
        value: Some(dimension::Value::DimValue(*extent as i64)),
        ..Dimension::default()
    };
    let shape = Some(TensorShapeProto { dim: shape.iter().map(dim).collect() });
    let tensor = type_proto::Tensor { elem_type: dtype as i32, shape };
    TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..TypeProto::default() }
}

/// An integer attribute.
pub fn integer(name: &str, i: i64) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        r#type: AttributeType::Int as i32,
        i,
        ..AttributeProto::default()
    }
}

/// An attribute with a list of integers.
pub fn integers(name: &str, ints: &[i64]) -> AttributeProto {
    let (name, ints) = (name.into(), ints.into());
    AttributeProto { name, r#type: AttributeType::Ints as i32, ints, ..AttributeProto::default() }
}

/// A float attribute.
pub fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        r#type: AttributeType::Float as i32,
        f,
        ..AttributeProto::default()
    }
}

/// A string attribute.
pub fn text(name: &str, text: &str) -> AttributeProto {
    let (name, s) = (name.into(), text.into());
    AttributeProto { name, r#type: AttributeType::String as i32, s, ..AttributeProto::default() }
}

impl Graph {
    fn node(
        &mut self,
        op: &str,
        inputs: &[&Value],
        attribute: Vec<AttributeProto>,
        results: usize,
    ) -> Vec<Value> {
        let name = format!("v{}", self.0.node.len());
        let output: Vec<Value> = (0..results).map(|n| format!("{name}.{n}")).collect();
        let input = inputs.iter().map(|input| (*input).clone()).collect();
        let (op_type, found) = (op.into(), output.clone());
        self.0.node.push(NodeProto {
            name,
            op_type,
            input,
            output,
            attribute,
            ..NodeProto::default()
        });
        found
    }

    /// An operator without attributes.
    pub fn op(&mut self, op: &str, inputs: &[&Value]) -> Value {
        self.op_with(op, inputs, Vec::new())
    }

    /// An operator with attributes.
    pub fn op_with(
        &mut self,
        op: &str,
        inputs: &[&Value],
        attributes: Vec<AttributeProto>,
    ) -> Value {
        self.node(op, inputs, attributes, 1).remove(0)
    }

    /// The three equal parts of a value along its last axis.
    pub fn thirds(&mut self, x: &Value, extent: usize) -> [Value; 3] {
        let parts = self.numbers(&[extent; 3]);
        let parts = self.node("Split", &[x, &parts], vec![integer("axis", -1)], 3);
        parts.try_into().expect("three results were asked for")
    }

    fn constant(&mut self, data_type: DataType, shape: &[usize], raw_data: Vec<u8>) -> Value {
        let (name, dims) =
            (format!("c{}", self.0.initializer.len()), shape.iter().map(|n| *n as i64).collect());
        let data_type = data_type as i32;
        self.0.initializer.push(TensorProto {
            name: name.clone(),
            dims,
            data_type,
            raw_data,
            ..TensorProto::default()
        });
        name
    }

    /// Constant floats.
    pub fn floats(&mut self, values: &[f32], shape: &[usize]) -> Value {
        self.constant(DataType::Float, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// A constant number.
    pub fn number(&mut self, value: f32) -> Value {
        self.floats(&[value], &[])
    }

    /// Constant integers: shapes, axes, indices.
    pub fn numbers(&mut self, values: &[usize]) -> Value {
        let bytes = values.iter().flat_map(|v| (*v as i64).to_le_bytes()).collect();
        self.constant(DataType::Int64, &[values.len()], bytes)
    }

    /// The initial values of a parameter, as a constant.
    pub fn parameter(&mut self, drawn: &Drawn) -> Value {
        self.floats(&drawn.values(), &drawn.shape)
    }

    /// An input of the graph.
    pub fn input(&mut self, name: &str, dtype: DataType, shape: &[usize]) -> Value {
        let (name, r#type) = (name.to_owned(), Some(tensor_type(dtype, shape)));
        self.0.input.push(ValueInfoProto {
            name: name.clone(),
            r#type,
            ..ValueInfoProto::default()
        });
        name
    }

    /// The model with one output, a tensor of floats.
    pub fn model(mut self, result: Value, shape: &[usize]) -> ModelProto {
        let r#type = Some(tensor_type(DataType::Float, shape));
        self.0.output.push(ValueInfoProto { name: result, r#type, ..ValueInfoProto::default() });
        let opset_import =
            vec![OperatorSetIdProto { version: OPSET, ..OperatorSetIdProto::default() }];
        ModelProto { ir_version: 8, opset_import, graph: Some(self.0), ..ModelProto::default() }
    }
}
