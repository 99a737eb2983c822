//! What the texts of all stages share: tokens, a cursor over them, and the texts of dtypes, dimensions, types,
//! scalars and literals.
//!
//! Graphs, nests and plans are separate languages with one lexical layer, so that a person (or a program that writes
//! these texts) learns it once; `docs/ir.md` has the grammars. All of them are LL(1): a parser looks at [`Cursor::peek`],
//! decides, and never goes back.
//!
//! Texts are untrusted input. Lexing is lazy and linear in the text; parsers recurse only through
//! [`Cursor::nested`], which bounds the depth; and what a short text may expand to (a splat literal) is bounded by
//! [`Cursor`] too. Every error is a [`crate::Diagnostic`] with the place and an excerpt.

pub mod cursor;
pub mod lexer;
pub mod value;

pub use cursor::Cursor;
pub use lexer::{Kind, Token, is_name, is_sigil_name};
pub use value::{print_literal, print_string};
