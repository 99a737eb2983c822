//! A position in a text, from which parsers consume tokens.

use super::lexer::{Kind, Lexer, PUNCTUATION, Token, unescape};
use crate::diagnostic::{Diagnostic, Result, bail, ensure};
use crate::location::Location;
use std::sync::Arc;

/// Maximum nesting of brackets, regions and expressions: far more than programs have, and far
/// less than overflows the stack.
pub const MAX_DEPTH: u32 = 100;

/// Most bytes to which all splat literals of one text together may expand.
pub const MAX_SPLAT_BYTES: usize = 128 << 20;

/// A text and its next token.
///
/// `eat_…` consume the token if it is the wanted one. `expect_…` consume it or return an error
/// that names the wanted and the found token.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    file: Arc<str>,
    text: &'a str,
    lexer: Lexer<'a>,
    ahead: Token<'a>,
    depth: u32,
    splat_bytes: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of `text`. Errors name `file` as its file.
    pub fn new(file: &str, text: &'a str) -> Self {
        let mut lexer = Lexer::new(text);
        let ahead = lexer.token();
        Cursor { file: file.into(), text, lexer, ahead, depth: 0, splat_bytes: MAX_SPLAT_BYTES }
    }

    /// The next token, which is not consumed.
    pub fn peek(&self) -> Token<'a> {
        self.ahead
    }

    /// Consumes the next token.
    pub fn advance(&mut self) -> Token<'a> {
        std::mem::replace(&mut self.ahead, self.lexer.token())
    }

    /// The place of a token.
    pub fn location(&self, token: Token<'_>) -> Location {
        Location::source(self.file.clone(), token.line, token.column)
    }

    /// An error about `token`, with place and excerpt.
    pub fn error(&self, token: Token<'_>, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(message).at(self.location(token), "").excerpt(
            self.text,
            token.line,
            token.column,
        )
    }

    /// An error about a token that was found by what the parser called.
    pub fn relay(&self, token: Token<'_>, inner: Diagnostic) -> Diagnostic {
        let mut error = self.error(token, inner.message);
        error.help = inner.help;
        error.places.extend(inner.places);
        error
    }

    /// An error that names the `wanted` item and the next token.
    pub fn unexpected(&self, wanted: &str) -> Diagnostic {
        self.error(self.ahead, format!("expected {wanted}, found {}", self.ahead.kind))
    }

    /// True if the next token is this punctuation.
    pub fn is(&self, punct: &str) -> bool {
        debug_assert!(PUNCTUATION.contains(&punct), "`{punct}` is no punctuation of the lexer");
        matches!(self.ahead.kind, Kind::Punct(p) if p == punct)
    }

    /// True if the next token is this name.
    pub fn is_keyword(&self, keyword: &str) -> bool {
        self.ahead.kind == Kind::Name(keyword)
    }

    /// True at the end of the text.
    pub fn is_end(&self) -> bool {
        self.ahead.kind == Kind::End
    }

    /// Consumes this punctuation if it is next.
    pub fn eat(&mut self, punct: &str) -> bool {
        let found = self.is(punct);
        if found {
            self.advance();
        }
        found
    }

    /// Consumes this name if it is next.
    pub fn eat_keyword(&mut self, keyword: &str) -> bool {
        let found = self.is_keyword(keyword);
        if found {
            self.advance();
        }
        found
    }

    /// Consumes this punctuation.
    pub fn expect(&mut self, punct: &str) -> Result<Token<'a>> {
        if self.is(punct) {
            Ok(self.advance())
        } else {
            Err(self.unexpected(&format!("`{punct}`")))
        }
    }

    /// Consumes this name.
    pub fn expect_keyword(&mut self, keyword: &str) -> Result<Token<'a>> {
        if self.is_keyword(keyword) {
            Ok(self.advance())
        } else {
            Err(self.unexpected(&format!("`{keyword}`")))
        }
    }

    /// Consumes any name. `what` describes it in errors.
    pub fn expect_name(&mut self, what: &str) -> Result<&'a str> {
        let Kind::Name(name) = self.ahead.kind else { return Err(self.unexpected(what)) };
        self.advance();
        Ok(name)
    }

    /// Consumes `%name` and returns the name.
    pub fn expect_value(&mut self, what: &str) -> Result<&'a str> {
        let Kind::Value(name) = self.ahead.kind else { return Err(self.unexpected(what)) };
        self.advance();
        Ok(name)
    }

    /// Consumes `@name` and returns the name.
    pub fn expect_function(&mut self, what: &str) -> Result<&'a str> {
        let Kind::Function(name) = self.ahead.kind else { return Err(self.unexpected(what)) };
        self.advance();
        Ok(name)
    }

    /// Consumes a string and decodes it.
    pub fn expect_string(&mut self, what: &str) -> Result<String> {
        let Kind::Str(raw) = self.ahead.kind else { return Err(self.unexpected(what)) };
        let text = unescape(raw).ok_or_else(|| {
            self.error(self.ahead, "unknown escape in a string")
                .help("escapes are \\\" \\\\ \\n \\r \\t \\u{1f600}")
        })?;
        self.advance();
        Ok(text)
    }

    /// Consumes an integer with an optional `-`, of at most 64 bits, signed or unsigned.
    pub fn expect_wide_integer(&mut self, what: &str) -> Result<i128> {
        let token = self.ahead;
        let negative = self.eat("-");
        let Kind::Integer(digits) = self.ahead.kind else { return Err(self.unexpected(what)) };
        let magnitude = match digits.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => digits.parse(),
        };
        let magnitude =
            i128::from(magnitude.map_err(|_| self.error(token, "integer is beyond 64 bits"))?);
        let value = if negative { -magnitude } else { magnitude };
        ensure!(value >= i128::from(i64::MIN), self at token, "integer is beyond 64 bits");
        self.advance();
        Ok(value)
    }

    /// Consumes an integer that fits in `T`, with an optional `-`.
    pub fn expect_integer<T: TryFrom<i128>>(&mut self, what: &str) -> Result<T> {
        let token = self.ahead;
        let value = self.expect_wide_integer(what)?;
        T::try_from(value)
            .map_err(|_| self.error(token, format!("{value} is out of range for {what}")))
    }

    /// Parses `open item, item, … close`. The list may be empty; there is no comma after the last
    /// item.
    pub fn list<T>(
        &mut self,
        open: &str,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.expect(open)?;
        let mut items = Vec::new();
        if self.eat(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.eat(close) {
                return Ok(items);
            }
            if !self.eat(",") {
                return Err(self.unexpected(&format!("`,` or `{close}`")));
            }
        }
    }

    /// Parses `item, item, …`, at least one.
    pub fn separated<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Runs a parser one level deeper. Error: the level exceeds [`MAX_DEPTH`].
    pub fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MAX_DEPTH {
            bail!(self at self.ahead, "nested deeper than {MAX_DEPTH} levels");
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// Subtracts `bytes` from the bytes to which splat literals of this text may still expand.
    pub(super) fn spend_splat(&mut self, token: Token<'_>, bytes: usize) -> Result<()> {
        match self.splat_bytes.checked_sub(bytes) {
            Some(left) => {
                self.splat_bytes = left;
                Ok(())
            }
            None => Err(self
                .error(
                    token,
                    format!("the splat literals of this text are over {MAX_SPLAT_BYTES} bytes"),
                )
                .help("broadcast a scalar instead")),
        }
    }

    /// Error: the text is not at its end.
    pub fn expect_end(&mut self) -> Result<()> {
        if self.is_end() { Ok(()) } else { Err(self.unexpected("end of text")) }
    }
}
