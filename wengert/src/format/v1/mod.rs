//! Version 1 of the records within `.graph` and `.plan` files. **Frozen**: every later version of
//! this library reads them.
//!
//! These structs are the format. They are never changed, not even reordered: bincode writes
//! fields in order and enum variants by number. An addition becomes a section of its own, which
//! earlier readers refuse by its name, or a new version beside this one. No field has a type of
//! the compiler: ops are names with a map of attributes, and dtypes and roles are names, so the
//! compiler's enums can change freely. `tests/golden/` holds a file of this version that the tests
//! read.
//!
//! No record contains itself, directly or through others. Bodies are in one list, and a region is
//! the number of an earlier body. A nested attribute is a list of nodes in preorder. A reader
//! therefore needs no recursion, and hostile nesting cannot exhaust the stack. The nesting depth
//! of regions and lists is checked when the program is rebuilt.
//!
//! | section | record | holds |
//! |---|---|---|
//! | `program` | [`Program`] | functions, bodies, equations |
//! | `literals` | – | the elements of the program's literals, one after another in the order in which `program` has them |
//! | `locations` | [`Locations`] | for every function, the source locations |
//! | `recipe` | [`Recipe`] | the training recipe; may be absent |
//! | `recipe.data` | [`Data`] | the recipe's blocks of rows, and transforms that `recipe` cannot hold; absent if there are none |
//! | `recipe.microbatches` | [`Microbatches`] | the number of parts of each batch; absent if 1 |
//! | `precision` | [`Precision`] | the recipe's policy of precision; may be absent |
//! | `precision.dtypes` | [`PrecisionDtypes`] | what else that policy gives dtypes, and for which functions; absent if nothing, and for all |
//! | `monitoring` | [`Monitoring`] | what the recipe's run watches; absent if nothing, and with the usual checkpoints |
//! | `weights` | – | a safetensors image of the variables; may be absent |
//! | `weights.file` | – | instead of `weights`: the name of a safetensors file in the same folder |
//!
//! A `.plan` has `plan` (its text without its constants), `constants` ([`Constants`]), and
//! `literals` with their elements.

pub mod data;
pub mod literals;
pub mod locations;
pub mod monitoring;
pub mod plan;
pub mod precision;
pub mod program;
pub mod recipe;

use bincode::{Decode, Encode};

/// Version number of these records in the container.
pub const VERSION: u32 = 1;

/// Section `program`.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct Program {
    /// In the order of definition.
    pub functions: Vec<Function>,
    /// Every body of a function or region. Regions come before the bodies that contain them.
    pub bodies: Vec<Body>,
}

/// A function.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct Function {
    /// Unique.
    pub name: String,
    /// Parallel to the body's inputs.
    pub inputs: Vec<Input>,
    /// Parallel to the body's outputs.
    pub outputs: Vec<Output>,
    /// Number of its body.
    pub body: u32,
}

/// An input of a function.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct Input {
    /// Unique among the inputs.
    pub name: String,
    /// `input`, `param`, `state` or `key`.
    pub role: String,
    /// Number in the function's list of section `locations`.
    pub location: u32,
}

/// An output of a function.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct Output {
    /// Unique among the outputs of its role.
    pub name: String,
    /// `output` or `state`.
    pub role: String,
}

/// A body.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct Body {
    /// The type of every value.
    pub values: Vec<Type>,
    /// Numbers of values.
    pub inputs: Vec<u32>,
    /// In order.
    pub equations: Vec<Equation>,
    /// Numbers of values.
    pub outputs: Vec<u32>,
}

/// A type.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct Type {
    /// Name of the element type, e.g. `f32`.
    pub dtype: String,
    /// Extents.
    pub shape: Vec<Dim>,
}

/// `constant + Σ coefficient · product of variables`.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct Dim {
    /// The constant.
    pub constant: i64,
    /// Products and coefficients, sorted by the names of the factors. A product is written `B*T`,
    /// and a single variable as its name.
    pub terms: Vec<(String, i64)>,
}

/// An equation.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct Equation {
    /// Name of the op.
    pub op: String,
    /// Names and values, sorted by name; each value is nodes in preorder.
    pub attributes: Vec<(String, Vec<Node>)>,
    /// Numbers of values.
    pub operands: Vec<u32>,
    /// Numbers of values.
    pub results: Vec<u32>,
    /// Numbers of bodies, each less than this body's number and used nowhere else, except that
    /// `call`s of one function share their body.
    pub regions: Vec<u32>,
    /// Number in the function's list of section `locations`.
    pub location: u32,
}

/// A node of an attribute.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub enum Node {
    /// A truth value.
    Bool(bool),
    /// A dimension or an integer.
    Dim(Dim),
    /// Name of a dtype.
    DType(String),
    /// A text.
    Text(String),
    /// Name of a function.
    Function(String),
    /// An element.
    Scalar {
        /// Its dtype.
        dtype: String,
        /// Its bits.
        bits: u64,
    },
    /// The next literal of section `literals`.
    Literal {
        /// Its dtype.
        dtype: String,
        /// Its extents.
        shape: Vec<u64>,
    },
    /// A list of this many attributes, which follow.
    List(u32),
}

/// Section `locations`.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct Locations {
    /// Names of files and of rules, each once.
    pub texts: Vec<String>,
    /// For every function of the program its list; entry 0 is always [`Location::Unknown`].
    pub functions: Vec<Vec<Location>>,
}

/// A location.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub enum Location {
    /// Not known.
    Unknown,
    /// A place in a file.
    Source {
        /// Number of the text that names it.
        file: u32,
        /// From 1.
        line: u32,
        /// From 1.
        column: u32,
    },
    /// Derived by a rule.
    Derived {
        /// Number of an earlier location of the same list.
        of: u32,
        /// Number of the text that names the rule.
        rule: u32,
    },
}

/// Section `recipe`; [`crate::recipe`] defines the fields.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct Recipe {
    /// Function that computes the initial variables.
    pub init: Option<String>,
    /// Function of a step.
    pub step: String,
    /// Inputs of the step that are read from data.
    pub step_inputs: Vec<RecipeInput>,
    /// The output to minimise.
    pub loss: String,
    /// The evaluation.
    pub evaluate: Option<Evaluate>,
    /// Examples in a batch.
    pub batch_size: u64,
    /// Seed of the order of examples.
    pub shuffle: Option<u64>,
    /// True if an incomplete last batch is used as a smaller one, false if it is left out.
    pub smaller_last_batch: bool,
    /// How long to train.
    pub length: Period,
    /// When checkpoints are written; `None` for "at the end only".
    pub checkpoint: Option<Period>,
    /// Seed of keys.
    pub key_seed: u64,
}

/// Section `recipe.data`.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct Data {
    /// Rows of a block and blocks of a window.
    pub blocks: Option<(u64, u64)>,
    /// The transforms of some inputs, which section `recipe` has without transforms.
    pub transforms: Vec<InputTransforms>,
}

/// Section `recipe.microbatches`.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct Microbatches {
    /// The number of parts of each batch.
    pub count: u64,
}

/// The transforms of an input.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct InputTransforms {
    /// Number of the function: 0 is the step, 1 the evaluation, from 2 on the evaluation sets.
    pub function: u32,
    /// Name of the input.
    pub input: String,
    /// As text, in order.
    pub transforms: Vec<String>,
}

/// Section `precision`.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct Precision {
    /// Name of the dtype of products: bf16 or f16; f32 beside a section `precision.dtypes`.
    pub half: String,
    /// Names of ops that stay in f32.
    pub ops: Vec<String>,
    /// Patterns of the key paths of variables whose products stay in f32.
    pub paths: Vec<String>,
    /// Functions and numbers of equations that stay in f32.
    pub equations: Vec<(String, u64)>,
}

/// Section `precision.dtypes`.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct PrecisionDtypes {
    /// Name of the dtype of parameters.
    pub param_dtype: String,
    /// Name of the dtype of results.
    pub output_dtype: String,
    /// Patterns of the key paths of the parameters; empty: those that functions take as such.
    pub params: Vec<String>,
    /// Patterns of the key paths of parameters in f32.
    pub kept_params: Vec<String>,
    /// Patterns of the names of the functions that the policy is for; empty: all.
    pub functions: Vec<String>,
}

/// The evaluation of a recipe.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct Evaluate {
    /// Name of the function.
    pub function: String,
    /// Data inputs.
    pub inputs: Vec<RecipeInput>,
    /// Examples in a batch.
    pub batch_size: u64,
    /// The reported metrics.
    pub metrics: Vec<Metric>,
    /// When to evaluate; `None` for "at the end only".
    pub every: Option<Period>,
}

/// An input of a recipe.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct RecipeInput {
    /// Name of the input.
    pub input: String,
    /// Name of the array.
    pub array: String,
    /// In order.
    pub transforms: Vec<Transform>,
}

/// An elementwise transform.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub enum Transform {
    /// To this dtype.
    Convert(String),
    /// Times this element.
    Scale {
        /// Its dtype.
        dtype: String,
        /// Its bits.
        bits: u64,
    },
    /// Plus this element.
    Offset {
        /// Its dtype.
        dtype: String,
        /// Its bits.
        bits: u64,
    },
}

/// A metric.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct Metric {
    /// Its name in reports.
    pub name: String,
    /// The output that it aggregates.
    pub output: String,
    /// The text of an aggregate, such as `mean`, `per_example`, `sum`, `auc:labels`.
    pub aggregate: String,
}

/// Section `monitoring`; [`crate::recipe::Monitoring`] defines the fields.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct Monitoring {
    /// Further evaluations.
    pub sets: Vec<EvaluationSet>,
    /// The watched number.
    pub watched: Option<Watched>,
    /// When the run ends early.
    pub early_stopping: Option<EarlyStopping>,
    /// Number of last checkpoints that are kept.
    pub last: u64,
    /// Number of best checkpoints that are kept.
    pub best: u64,
    /// Whether the weights are those of the best checkpoint.
    pub weights_of_best: bool,
}

/// An evaluation with a name.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct EvaluationSet {
    /// Its name.
    pub name: String,
    /// The evaluation.
    pub evaluate: Evaluate,
}

/// A watched number.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct Watched {
    /// Its name.
    pub metric: String,
    /// Whether more is better.
    pub is_greater_better: bool,
}

/// When a run ends early.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct EarlyStopping {
    /// Evaluations without an improvement.
    pub patience: u64,
    /// Bits of an f64: an improvement is greater.
    pub min_change: u64,
}

/// A span of training.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub enum Period {
    /// This many steps.
    Steps(u64),
    /// This many epochs.
    Epochs(u64),
}

/// Section `constants` of a `.plan`.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct Constants {
    /// In the plan's order.
    pub constants: Vec<Constant>,
}

/// A constant of a plan; its elements are the next literal of section `literals`.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub struct Constant {
    /// Number of the value.
    pub value: u32,
    /// Its dtype.
    pub dtype: String,
    /// Its extents.
    pub shape: Vec<u64>,
}
