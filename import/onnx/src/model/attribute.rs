//! Attributes of nodes.

use super::{Graph, Reader, Stored};
use crate::proto::AttributeProto;
use crate::refusal::{Class, refuse};
use std::collections::BTreeSet;
use wengert_core::{Diagnostic, Result};

/// The value of an attribute.
#[derive(Clone, Debug)]
pub(crate) enum Attribute {
    Float(f32),
    Int(i64),
    Text(String),
    Tensor(Stored),
    Graph(Box<Graph>),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Texts(Vec<String>),
    /// The attribute of that name of the function around the node.
    Of(String),
    /// A value of another kind, which no op of the table has.
    Other(&'static str),
}

/// `AttributeProto.AttributeType` of the schema.
mod kind {
    pub const FLOAT: i32 = 1;
    pub const INT: i32 = 2;
    pub const STRING: i32 = 3;
    pub const TENSOR: i32 = 4;
    pub const GRAPH: i32 = 5;
    pub const FLOATS: i32 = 6;
    pub const INTS: i32 = 7;
    pub const STRINGS: i32 = 8;
    pub const TENSORS: i32 = 9;
    pub const GRAPHS: i32 = 10;
    pub const SPARSE_TENSOR: i32 = 11;
    pub const SPARSE_TENSORS: i32 = 12;
    pub const TYPE: i32 = 13;
    pub const TYPES: i32 = 14;
}

impl Attribute {
    /// Its kind, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            Attribute::Float(_) => "a float",
            Attribute::Int(_) => "an integer",
            Attribute::Text(_) => "a text",
            Attribute::Tensor(_) => "a tensor",
            Attribute::Graph(_) => "a graph",
            Attribute::Floats(_) => "a list of floats",
            Attribute::Ints(_) => "a list of integers",
            Attribute::Texts(_) => "a list of texts",
            Attribute::Of(_) => "an attribute of the function",
            Attribute::Other(kind) => kind,
        }
    }
}

fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|_| Diagnostic::new("its text is no UTF-8"))
}

impl Reader<'_> {
    /// The attribute. Graphs may use the names that are `known`.
    pub(super) fn attribute(
        &self,
        proto: AttributeProto,
        known: &BTreeSet<String>,
        depth: usize,
    ) -> Result<Attribute> {
        if let Some(name) = proto.ref_attr_name.filter(|name| !name.is_empty()) {
            return Ok(Attribute::Of(name));
        }
        let missing = || Diagnostic::new("it has no value of its kind");
        Ok(match proto.r#type.unwrap_or_default() {
            kind::FLOAT => Attribute::Float(proto.f.unwrap_or_default()),
            kind::INT => Attribute::Int(proto.i.unwrap_or_default()),
            kind::STRING => Attribute::Text(text(proto.s.unwrap_or_default())?),
            kind::TENSOR => Attribute::Tensor(self.tensor(proto.t.ok_or_else(missing)?)?),
            kind::GRAPH => {
                let graph = self.graph(proto.g.ok_or_else(missing)?, known, depth + 1)?;
                Attribute::Graph(Box::new(graph))
            }
            kind::FLOATS => Attribute::Floats(proto.floats),
            kind::INTS => Attribute::Ints(proto.ints),
            kind::STRINGS => {
                Attribute::Texts(proto.strings.into_iter().map(text).collect::<Result<_>>()?)
            }
            kind::TENSORS => Attribute::Other("a list of tensors"),
            kind::GRAPHS => Attribute::Other("a list of graphs"),
            kind::SPARSE_TENSOR | kind::SPARSE_TENSORS => {
                return Err(refuse(Class::DType, "a sparse tensor"));
            }
            kind::TYPE | kind::TYPES => Attribute::Other("a type"),
            other => return Err(Diagnostic::new(format!("its kind is {other}"))),
        })
    }
}
