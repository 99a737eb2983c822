//! The graph under construction: nodes, unique names, constants and dimensions.

use crate::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wengert_core::{DType, Dim, Literal, Result, Scalar, TensorType, diagnostic};

/// A tensor of the file.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Value {
    /// Unique in the file. The empty name is that of an operand which is not given.
    pub name: String,
    /// The type in the file. Extents of a value that repeats are 1, and leading ones may be
    /// missing.
    pub ty: TensorType,
}

impl Value {
    /// An optional operand that is not given.
    pub fn absent() -> Self {
        Value { name: String::new(), ty: TensorType::scalar(DType::F32) }
    }
}

/// The nodes of a function, and what they have in common.
pub(super) struct Exporter {
    /// The version of the op set.
    pub opset: i64,
    /// Nodes that depend on constants and shapes of inputs only. They come first.
    front: Vec<NodeProto>,
    /// The nodes of the innermost graph.
    nodes: Vec<NodeProto>,
    taken: BTreeSet<String>,
    count: usize,
    constants: BTreeMap<(i32, Vec<usize>, Vec<u8>), Value>,
    /// The element of constants that repeat it.
    splats: BTreeMap<String, Scalar>,
    inputs: Vec<Value>,
    dims: BTreeMap<Dim, Value>,
    /// Names of values that are outputs.
    named: BTreeMap<String, String>,
}

impl Exporter {
    pub fn new(opset: i64) -> Self {
        Exporter {
            opset,
            front: vec![],
            nodes: vec![],
            taken: BTreeSet::new(),
            count: 0,
            constants: BTreeMap::new(),
            splats: BTreeMap::new(),
            inputs: vec![],
            dims: BTreeMap::new(),
            named: BTreeMap::new(),
        }
    }

    /// Reserves a name.
    pub fn take(&mut self, name: &str) {
        self.taken.insert(name.to_owned());
    }

    /// The name, or one made of it, that no other value has.
    pub fn unique(&mut self, name: &str) -> String {
        let mut unique = name.to_owned();
        while !self.taken.insert(unique.clone()) {
            unique.push('_');
        }
        unique
    }

    /// Declares an input, whose shape may give dimension variables.
    pub fn declare(&mut self, input: &Value) {
        self.inputs.push(input.clone());
    }

    /// Gives a value a name, which is that of an output.
    pub fn name(&mut self, value: &Value, name: &str) {
        let made = self.nodes.iter().any(|node| node.output.contains(&value.name));
        if made && !self.named.contains_key(&value.name) {
            self.named.insert(value.name.clone(), name.to_owned());
            return;
        }
        let node = NodeProto {
            op_type: Some("Identity".into()),
            name: Some(name.to_owned()),
            input: vec![value.name.clone()],
            output: vec![name.to_owned()],
            ..Default::default()
        };
        self.nodes.push(node);
    }

    /// All nodes, in order.
    pub fn finish(mut self) -> Vec<NodeProto> {
        let mut nodes = std::mem::take(&mut self.front);
        nodes.append(&mut self.nodes);
        rename(&mut nodes, &self.named);
        nodes
    }

    /// The nodes that `f` emits, as a graph of its own, and the outputs' types.
    pub fn graph(
        &mut self,
        name: &str,
        inputs: &[Value],
        f: impl FnOnce(&mut Exporter) -> Result<Vec<Value>>,
    ) -> Result<GraphProto> {
        let around = std::mem::take(&mut self.nodes);
        let outputs = f(self);
        let mut outputs = match outputs {
            Ok(outputs) => outputs,
            Err(error) => {
                self.nodes = around;
                return Err(error);
            }
        };
        // An output is a value of this graph, and each is another one.
        let mut given = BTreeSet::new();
        for output in &mut outputs {
            let made = self.nodes.iter().any(|node| node.output.contains(&output.name));
            if !made || !given.insert(output.name.clone()) {
                *output = self.op("Identity", &[output], vec![], output.ty.clone());
            }
        }
        let node = std::mem::replace(&mut self.nodes, around);
        Ok(GraphProto {
            node,
            name: Some(name.into()),
            input: inputs.iter().map(super::info).collect(),
            output: outputs.iter().map(super::info).collect(),
            ..Default::default()
        })
    }

    /// Runs `f`, whose nodes come before all others.
    fn in_front<T>(&mut self, f: impl FnOnce(&mut Exporter) -> T) -> T {
        let around = std::mem::replace(&mut self.nodes, std::mem::take(&mut self.front));
        let result = f(self);
        self.front = std::mem::replace(&mut self.nodes, around);
        result
    }

    /// A value of this type with a new name.
    pub fn fresh(&mut self, hint: &str, ty: TensorType) -> Value {
        loop {
            self.count += 1;
            let name = format!("{}_{}", hint.to_lowercase(), self.count);
            if self.taken.insert(name.clone()) {
                return Value { name, ty };
            }
        }
    }

    /// The results of a node.
    pub fn node(
        &mut self,
        op: &str,
        operands: &[&Value],
        attribute: Vec<AttributeProto>,
        results: Vec<TensorType>,
    ) -> Vec<Value> {
        let results: Vec<Value> = results.into_iter().map(|ty| self.fresh(op, ty)).collect();
        let mut input: Vec<String> = operands.iter().map(|value| value.name.clone()).collect();
        while input.last().is_some_and(String::is_empty) {
            input.pop();
        }
        self.nodes.push(NodeProto {
            op_type: Some(op.into()),
            name: results.first().map(|value| value.name.clone()),
            input,
            output: results.iter().map(|value| value.name.clone()).collect(),
            attribute,
            ..Default::default()
        });
        results
    }

    /// The result of a node with one.
    pub fn op(
        &mut self,
        op: &str,
        operands: &[&Value],
        attributes: Vec<AttributeProto>,
        ty: TensorType,
    ) -> Value {
        self.node(op, operands, attributes, vec![ty]).remove(0)
    }

    /// An elementwise node, with a result of this dtype. Its operands are broadcast.
    pub fn elementwise(&mut self, op: &str, operands: &[&Value], dtype: DType) -> Value {
        let shape = broadcast(operands);
        self.op(op, operands, vec![], TensorType::of(dtype, shape))
    }

    /// A constant. Equal ones are one node.
    pub fn constant(&mut self, literal: &Literal) -> Value {
        let key = (number(literal.dtype()), literal.shape().to_vec(), literal.to_bytes());
        if let Some(known) = self.constants.get(&key) {
            return known.clone();
        }
        let proto = tensor("", literal);
        let attribute = AttributeProto {
            name: Some("value".into()),
            t: Some(proto),
            r#type: Some(4),
            ..Default::default()
        };
        let value = self.in_front(|e| e.op("Constant", &[], vec![attribute], literal.ty()));
        if let Some(splat) = literal.splat() {
            self.splats.insert(value.name.clone(), splat);
        }
        self.constants.insert(key, value.clone());
        value
    }

    /// A constant scalar.
    pub fn scalar(&mut self, value: Scalar) -> Value {
        self.constant(&Literal::full(&[], value))
    }

    /// A constant scalar of this dtype.
    pub fn number(&mut self, dtype: DType, value: f64) -> Value {
        self.scalar(Scalar::from_f64(dtype, value))
    }

    /// A constant list of i64.
    pub fn ints(&mut self, values: &[i64]) -> Value {
        let literal = Literal::from_vec(&[values.len()], values.to_vec());
        self.constant(&literal.expect("a list has its length"))
    }

    /// A constant list of axes.
    pub fn axes(&mut self, axes: &[usize]) -> Value {
        self.ints(&axes.iter().map(|axis| *axis as i64).collect::<Vec<_>>())
    }

    /// The element that a constant repeats.
    pub fn splat(&self, value: &Value) -> Option<Scalar> {
        self.splats.get(&value.name).copied()
    }

    /// Says that a value repeats the element of another one.
    pub fn same_splat(&mut self, of: &Value, value: &Value) {
        if let Some(splat) = self.splat(of) {
            self.splats.insert(value.name.clone(), splat);
        }
    }

    /// The value in another dtype.
    pub fn cast(&mut self, value: &Value, dtype: DType) -> Value {
        if value.ty.dtype == dtype {
            return value.clone();
        }
        let to = attribute_int("to", i64::from(number(dtype)));
        self.op("Cast", &[value], vec![to], value.ty.with_dtype(dtype))
    }

    /// A dimension, as a list of one i64.
    pub fn dim(&mut self, dim: &Dim) -> Result<Value> {
        if let Some(number) = dim.as_constant() {
            return Ok(self.ints(&[number]));
        }
        if let Some(known) = self.dims.get(dim) {
            return Ok(known.clone());
        }
        let ty = TensorType::new(DType::I64, [1usize]);
        let mut sum: Option<Value> = None;
        let single = dim.terms().len() == 1 && dim.constant_term() == 0;
        for (product, coefficient) in dim.terms() {
            let mut term: Option<Value> = None;
            for variable in product.factors() {
                let factor = self.variable(variable)?;
                term = Some(match term {
                    None => factor,
                    Some(term) => {
                        self.in_front(|e| e.op("Mul", &[&term, &factor], vec![], ty.clone()))
                    }
                });
            }
            let mut term = term.expect("a term has a factor");
            if *coefficient != 1 {
                let factor = self.ints(&[*coefficient]);
                term = self.in_front(|e| e.op("Mul", &[&term, &factor], vec![], ty.clone()));
            }
            sum = Some(match sum {
                None => term,
                Some(sum) => self.in_front(|e| e.op("Add", &[&sum, &term], vec![], ty.clone())),
            });
        }
        let mut value = sum.expect("a dimension that is no number has a term");
        if !single && dim.constant_term() != 0 {
            let constant = self.ints(&[dim.constant_term()]);
            value = self.in_front(|e| e.op("Add", &[&value, &constant], vec![], ty));
        }
        self.dims.insert(dim.clone(), value.clone());
        Ok(value)
    }

    /// A dimension variable, from the shape of an input.
    fn variable(&mut self, name: &Arc<str>) -> Result<Value> {
        let variable = Dim::variable(name);
        if let Some(known) = self.dims.get(&variable) {
            return Ok(known.clone());
        }
        let of = |dim: &Dim| match dim.terms() {
            [(product, coefficient)] if product.factors() == [name.clone()] => {
                Some((*coefficient, dim.constant_term()))
            }
            _ => None,
        };
        let axes = self.inputs.iter().flat_map(|input| {
            input.ty.shape.iter().enumerate().map(move |(axis, dim)| (input, axis, dim))
        });
        let found = axes
            .filter_map(|(input, axis, dim)| Some((input.clone(), axis, of(dim)?)))
            .min_by_key(|(.., (coefficient, constant))| (*coefficient != 1, *constant != 0));
        let Some((input, axis, (coefficient, constant))) = found else {
            return Err(diagnostic!(
                "no input has an extent that gives dimension variable `{name}`"
            )
            .help(format!("bind it: `--bind {name}=N`")));
        };
        let attributes =
            vec![attribute_int("start", axis as i64), attribute_int("end", axis as i64 + 1)];
        let ty = TensorType::new(DType::I64, [1usize]);
        let mut value = self.in_front(|e| e.op("Shape", &[&input], attributes, ty.clone()));
        if constant != 0 {
            let less = self.ints(&[constant]);
            value = self.in_front(|e| e.op("Sub", &[&value, &less], vec![], ty.clone()));
        }
        if coefficient != 1 {
            let by = self.ints(&[coefficient]);
            value = self.in_front(|e| e.op("Div", &[&value, &by], vec![], ty));
        }
        self.dims.insert(variable, value.clone());
        Ok(value)
    }

    /// Dimensions, as a list of i64.
    pub fn shape(&mut self, shape: &[Dim]) -> Result<Value> {
        if let Some(numbers) = shape.iter().map(Dim::as_constant).collect::<Option<Vec<_>>>() {
            return Ok(self.ints(&numbers));
        }
        let parts = shape.iter().map(|dim| self.dim(dim)).collect::<Result<Vec<_>>>()?;
        if let [part] = parts.as_slice() {
            return Ok(part.clone());
        }
        let ty = TensorType::new(DType::I64, [shape.len()]);
        let all: Vec<&Value> = parts.iter().collect();
        Ok(self.in_front(|e| e.op("Concat", &all, vec![attribute_int("axis", 0)], ty)))
    }
}

/// The shape of an elementwise result.
pub(super) fn broadcast(operands: &[&Value]) -> Vec<Dim> {
    let rank = operands.iter().map(|value| value.ty.rank()).max().unwrap_or(0);
    let one = Dim::constant(1);
    let extent = |axis: usize| {
        let found = operands.iter().filter_map(|value| {
            let axis = (axis + value.ty.rank()).checked_sub(rank)?;
            value.ty.shape.get(axis).filter(|dim| **dim != one)
        });
        found.into_iter().next().cloned().unwrap_or_else(|| one.clone())
    };
    (0..rank).map(extent).collect()
}

fn rename(nodes: &mut [NodeProto], names: &BTreeMap<String, String>) {
    for node in nodes {
        for name in node.input.iter_mut().chain(&mut node.output) {
            if let Some(new) = names.get(name) {
                name.clone_from(new);
            }
        }
        for graph in node.attribute.iter_mut().filter_map(|attribute| attribute.g.as_mut()) {
            rename(&mut graph.node, names);
        }
    }
}

/// ONNX's number of a dtype.
pub(super) fn number(dtype: DType) -> i32 {
    match dtype {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I8 => 3,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::Bool => 9,
        DType::F16 => 10,
        DType::F64 => 11,
        DType::U32 => 12,
        DType::U64 => 13,
        DType::BF16 => 16,
        DType::F8E4M3FN => 17,
        DType::F8E5M2 => 19,
    }
}

/// A tensor with its values, in little-endian order.
pub(super) fn tensor(name: &str, literal: &Literal) -> TensorProto {
    TensorProto {
        dims: literal.shape().iter().map(|extent| *extent as i64).collect(),
        data_type: Some(number(literal.dtype())),
        name: (!name.is_empty()).then(|| name.to_owned()),
        raw_data: Some(Bytes::from(literal.to_bytes())),
        ..Default::default()
    }
}

/// An integer attribute.
pub(super) fn attribute_int(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        i: Some(value),
        r#type: Some(2),
        ..Default::default()
    }
}

/// A float attribute.
pub(super) fn attribute_float(name: &str, value: f32) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        f: Some(value),
        r#type: Some(1),
        ..Default::default()
    }
}

/// A list of integers as attribute.
pub(super) fn attribute_ints(
    name: &str,
    values: impl IntoIterator<Item = usize>,
) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        ints: values.into_iter().map(|value| value as i64).collect(),
        r#type: Some(7),
        ..Default::default()
    }
}

/// A text attribute.
pub(super) fn attribute_text(name: &str, value: &str) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        s: Some(value.as_bytes().to_vec()),
        r#type: Some(3),
        ..Default::default()
    }
}

/// A graph as attribute.
pub(super) fn attribute_graph(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        g: Some(graph),
        r#type: Some(5),
        ..Default::default()
    }
}
