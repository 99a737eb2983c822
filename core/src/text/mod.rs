//! The lexical layer shared by the texts of all stages: tokens, a cursor over them, and the text
//! of dtypes, dimensions, types, scalars and literals.
//!
//! Graphs, nests and plans are separate languages with one lexical layer, so that a person (or a
//! program that writes these texts) learns it once. `docs/ir.md` has the grammars. All of them
//! are LL(1): a parser decides by [`Cursor::peek`] and never backtracks.
//!
//! Texts are untrusted input. Lexing is lazy and linear in the text. Parsers recurse only through
//! [`Cursor::nested`], which bounds the depth. The expansion of short texts (splat literals) is
//! bounded by [`Cursor`] too. Every error is a [`crate::Diagnostic`] with the place and an
//! excerpt.

pub mod cursor;
pub mod lexer;
pub mod value;

pub use cursor::Cursor;
pub use lexer::{Kind, NAME_HELP, Token, is_name, is_sigil_name};
pub use value::{joined, print_extents, print_layout, print_literal, print_string};
