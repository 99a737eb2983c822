//! PTX text to a typed tree, with the line of everything.
//!
//! The reader is a plain recursive-descent one over tokens. It resolves names to registers and
//! variables as it goes (PTX declares before it uses, in nested scopes), so that what follows
//! never sees a name twice. What it does not understand is an error that names line and column;
//! it never panics and never recurses deeper than a fixed bound.

mod body;
mod lexer;
mod parser;
pub(crate) mod syntax;

pub(crate) use parser::parse;

use std::fmt;

/// Why a text is not PTX, or not PTX that this crate executes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct ParseError {
    /// Counted from 1.
    pub line: u32,
    /// Counted from 1; in characters.
    pub column: u32,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// The line itself, cut to a bearable length.
    pub shown: String,
}

impl ParseError {
    pub(crate) fn new(text: &str, line: u32, column: u32, message: impl Into<String>) -> ParseError {
        let source = text.lines().nth(line.saturating_sub(1) as usize).unwrap_or("");
        let shown = source.chars().take(160).collect();
        ParseError { line, column, message: message.into(), shown }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "PTX line {}, column {}: {}", self.line, self.column, self.message)?;
        writeln!(f, "{:>5} | {}", self.line, self.shown.replace('\t', " "))?;
        write!(f, "      | {:>1$}", '^', (self.column as usize).clamp(1, 160))
    }
}
