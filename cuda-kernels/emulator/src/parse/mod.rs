//! PTX text to a typed tree, with line numbers.
//!
//! The parser is a recursive-descent parser over tokens. It resolves names to registers and
//! variables as it goes (PTX declares before it uses, in nested scopes), so that later passes see
//! no names of registers and variables. A construct that it does not accept is an error with line
//! and column. It never panics, and its recursion depth has a fixed bound.

mod body;
mod lexer;
mod parser;
pub(crate) mod syntax;

pub(crate) use parser::parse;

use std::fmt;

/// Reason why a text is not PTX, or not PTX that this crate executes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct ParseError {
    /// Counted from 1.
    pub line: u32,
    /// Counted from 1; in characters.
    pub column: u32,
    /// The error, in one sentence without a full stop.
    pub message: String,
    /// The line itself, truncated for display.
    pub shown: String,
}

impl ParseError {
    pub(crate) fn new(
        text: &str,
        line: u32,
        column: u32,
        message: impl Into<String>,
    ) -> ParseError {
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
