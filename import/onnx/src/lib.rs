//! ONNX models as graphs: read, differentiated, trained and compiled like any other. And graphs as
//! ONNX models.
//!
//! ```text
//! file ─ proto ─► messages ─ model ─► Model ─ import ─► Program, parameters
//!                            (checked)          (op: one rule for each ONNX op)
//! ```
//!
//! - [`proto`] has the messages of a file as protobuf has them: everything may be missing.
//! - [`model`] checks them once: names, order, dtypes, sizes, external files. Only a checked
//!   [`Model`] is imported.
//! - [`import`] walks the nodes and keeps a [`Value`] for each name. What is known at import, such
//!   as shapes and what is computed from them, is a number or a polynomial of dimension variables,
//!   never an equation.
//! - [`narrow`] has the dtypes of ONNX that programs lack, such as integers of 16 and 4 bits. A
//!   wider dtype carries them.
//! - [`budget`] limits what is made at import beyond what is in the file.
//! - [`op`] has the table of ONNX ops. A rule builds the op's results with the methods that users
//!   have, so an op that the library lacks is added there, for everybody.
//!
//! - [`export`] is the way back: a function becomes a model, by one rule for each op of the graph.
//!
//! What is not imported is refused by one of a few [classes](Class), with the node, its op and
//! version, the reason and the mend.

// Tests have an allocator that counts.
#![cfg_attr(not(test), forbid(unsafe_code))]

mod budget;
mod counted;
mod export;
mod form;
mod import;
mod input;
mod model;
mod narrow;
mod op;
mod page;
mod proto;
mod refusal;
mod training;
mod value;

#[cfg(test)]
mod tests;

pub use export::{
    ExportOptions, OPSETS, Rule, rules as export_rules, unexported, write, write_tensor,
};
pub use import::{Imported, Options, inputs, outputs, read, read_tensor};
pub use model::{Files, Model, Stored};
pub use narrow::Narrow;
pub use op::{Row, rows};
pub use page::page;
pub use refusal::Class;
pub use value::Value;
