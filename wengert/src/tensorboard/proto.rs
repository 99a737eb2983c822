//! The messages of an event file that TensorBoard reads, with the fields that are written here.
//!
//! The numbers of the fields are those of `event.proto`, `summary.proto`, `tensor.proto`,
//! `graph.proto` and `attr_value.proto` of TensorFlow.

use prost::{Message, Oneof};
use std::collections::BTreeMap;

/// One record of a file.
#[derive(Clone, PartialEq, Message)]
pub struct Event {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    pub wall_time: f64,
    #[prost(int64, tag = "2")]
    pub step: i64,
    #[prost(oneof = "What", tags = "3, 4, 5, 7")]
    pub what: Option<What>,
}

/// What a record has.
#[derive(Clone, PartialEq, Oneof)]
pub enum What {
    /// The first record's: the version of the format.
    #[prost(string, tag = "3")]
    FileVersion(String),
    /// An encoded [`GraphDef`].
    #[prost(bytes = "vec", tag = "4")]
    GraphDef(Vec<u8>),
    #[prost(message, tag = "5")]
    Summary(Summary),
    #[prost(message, tag = "7")]
    SessionLog(SessionLog),
}

/// A change of the run's state.
#[derive(Clone, PartialEq, Message)]
pub struct SessionLog {
    /// [`START`](Self::START)
    #[prost(int32, tag = "1")]
    pub status: i32,
}

impl SessionLog {
    /// The run starts at the record's step: later steps of earlier files are void.
    pub const START: i32 = 1;
}

/// Values of a step.
#[derive(Clone, PartialEq, Message)]
pub struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub value: Vec<Value>,
}

/// A value with its name.
#[derive(Clone, PartialEq, Message)]
pub struct Value {
    #[prost(string, tag = "1")]
    pub tag: String,
    #[prost(message, optional, tag = "9")]
    pub metadata: Option<Metadata>,
    #[prost(oneof = "Content", tags = "2, 4, 5, 8")]
    pub content: Option<Content>,
}

/// The content of a [`Value`].
#[derive(Clone, PartialEq, Oneof)]
pub enum Content {
    #[prost(float, tag = "2")]
    Scalar(f32),
    #[prost(message, tag = "4")]
    Image(Image),
    #[prost(message, tag = "5")]
    Histogram(Histogram),
    #[prost(message, tag = "8")]
    Tensor(Tensor),
}

/// The plugin that shows a value.
#[derive(Clone, PartialEq, Message)]
pub struct Metadata {
    #[prost(message, optional, tag = "1")]
    pub plugin: Option<Plugin>,
}

/// The name of a plugin.
#[derive(Clone, PartialEq, Message)]
pub struct Plugin {
    #[prost(string, tag = "1")]
    pub name: String,
}

/// An image.
#[derive(Clone, PartialEq, Message)]
pub struct Image {
    #[prost(int32, tag = "1")]
    pub height: i32,
    #[prost(int32, tag = "2")]
    pub width: i32,
    /// 1: grey, 3: RGB, 4: RGBA.
    #[prost(int32, tag = "3")]
    pub colorspace: i32,
    /// The bytes of a PNG file.
    #[prost(bytes = "vec", tag = "4")]
    pub encoded: Vec<u8>,
}

/// The distribution of some numbers.
#[derive(Clone, PartialEq, Message)]
pub struct Histogram {
    #[prost(double, tag = "1")]
    pub min: f64,
    #[prost(double, tag = "2")]
    pub max: f64,
    #[prost(double, tag = "3")]
    pub num: f64,
    #[prost(double, tag = "4")]
    pub sum: f64,
    #[prost(double, tag = "5")]
    pub sum_squares: f64,
    /// The greatest number of each bucket, increasing.
    #[prost(double, repeated, tag = "6")]
    pub bucket_limit: Vec<f64>,
    /// How many numbers each bucket has.
    #[prost(double, repeated, tag = "7")]
    pub bucket: Vec<f64>,
}

/// A tensor of strings.
#[derive(Clone, PartialEq, Message)]
pub struct Tensor {
    /// [`STRING`](Self::STRING)
    #[prost(int32, tag = "1")]
    pub dtype: i32,
    #[prost(message, optional, tag = "2")]
    pub shape: Option<Shape>,
    #[prost(bytes = "vec", repeated, tag = "8")]
    pub string_val: Vec<Vec<u8>>,
}

impl Tensor {
    /// The dtype of strings.
    pub const STRING: i32 = 7;
}

/// The shape of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct Shape {
    #[prost(message, repeated, tag = "2")]
    pub dim: Vec<Dim>,
}

/// An extent; −1 if it is a variable.
#[derive(Clone, PartialEq, Message)]
pub struct Dim {
    #[prost(int64, tag = "1")]
    pub size: i64,
}

/// A graph of nodes.
#[derive(Clone, PartialEq, Message)]
pub struct GraphDef {
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<Node>,
    #[prost(message, optional, tag = "4")]
    pub versions: Option<Versions>,
}

/// The version of the format of graphs.
#[derive(Clone, PartialEq, Message)]
pub struct Versions {
    #[prost(int32, tag = "1")]
    pub producer: i32,
}

/// A node: an equation or an input.
#[derive(Clone, PartialEq, Message)]
pub struct Node {
    /// Slashes divide it into groups.
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub op: String,
    /// The names of the nodes that it reads, `NAME:k` for the result k from 1 on.
    #[prost(string, repeated, tag = "3")]
    pub input: Vec<String>,
    #[prost(btree_map = "string, message", tag = "5")]
    pub attr: BTreeMap<String, Attribute>,
}

/// An attribute of a node.
#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    #[prost(oneof = "AttributeContent", tags = "1, 2")]
    pub content: Option<AttributeContent>,
}

/// The content of an [`Attribute`].
#[derive(Clone, PartialEq, Oneof)]
pub enum AttributeContent {
    #[prost(message, tag = "1")]
    List(AttributeList),
    #[prost(bytes = "vec", tag = "2")]
    Text(Vec<u8>),
}

/// Shapes of results.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeList {
    #[prost(message, repeated, tag = "7")]
    pub shape: Vec<Shape>,
}
