//! PTX text to tokens.
//!
//! PTX's lexical rules are C's with three additions: identifiers may begin with `%` or `$`, words
//! that begin with a point are directives and modifiers (`.global`, `.L2::128B`), and
//! `0f3F800000` and `0d3FF0000000000000` are floats given by their bits. Comments are dropped,
//! except that a `//` comment on a line of its own is recorded: in this project's kernels it
//! describes the code after it.

use super::ParseError;

/// Kind of a token.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Token<'a> {
    /// `add`, `%r1`, `$L__BB0_2`, `_`.
    Word(&'a str),
    /// `.global`, without the point.
    Dotted(&'a str),
    /// An integer.
    Integer(u64),
    /// A single-precision float by its bits.
    Single(u32),
    /// A double-precision float by its bits.
    Double(u64),
    /// The text between quotes.
    Text(&'a str),
    /// A punctuation character.
    Sign(char),
    /// End of the text.
    End,
}

/// A token and where it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'a> {
    pub(crate) token: Token<'a>,
    /// Counted from 1.
    pub(crate) line: u32,
    /// In characters, counted from 1.
    pub(crate) column: u32,
}

/// The tokens of a text, and its comment lines: (line, text after `//`).
pub(crate) struct Lexed<'a> {
    pub(crate) tokens: Vec<Placed<'a>>,
    pub(crate) comments: Vec<(u32, &'a str)>,
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    line_start: usize,
}

fn begins_word(c: char) -> bool {
    c.is_ascii_alphabetic() || matches!(c, '_' | '$' | '%')
}

fn continues_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$')
}

/// Splits `text` into tokens.
pub(crate) fn lex(text: &str) -> Result<Lexed<'_>, ParseError> {
    let mut lexer = Lexer { text, at: 0, line: 1, line_start: 0 };
    let mut lexed = Lexed { tokens: Vec::new(), comments: Vec::new() };
    let mut line_has_token = 0;
    while let Some(c) = lexer.peek() {
        if c == '\n' {
            lexer.at += 1;
            lexer.line += 1;
            lexer.line_start = lexer.at;
        } else if c.is_whitespace() {
            lexer.at += c.len_utf8();
        } else if lexer.rest().starts_with("//") {
            let line = lexer.rest().lines().next().unwrap_or("");
            if line_has_token != lexer.line {
                lexed.comments.push((lexer.line, line.trim_start_matches('/').trim()));
            }
            lexer.at += line.len();
        } else if lexer.rest().starts_with("/*") {
            let Some(length) = lexer.rest().find("*/") else {
                return Err(lexer.error("a comment that begins here has no end"));
            };
            for (offset, _) in lexer.rest()[..length].match_indices('\n') {
                lexer.line += 1;
                lexer.line_start = lexer.at + offset + 1;
            }
            lexer.at += length + 2;
        } else {
            line_has_token = lexer.line;
            let (line, start) = (lexer.line, lexer.at);
            let column = lexer.column(start);
            let token = lexer.token(c)?;
            lexed.tokens.push(Placed { token, line, column });
        }
    }
    lexed.tokens.push(Placed {
        token: Token::End,
        line: lexer.line,
        column: lexer.column(lexer.at),
    });
    Ok(lexed)
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn column(&self, at: usize) -> u32 {
        // A line may be megabytes long, and this is computed for every token of it.
        let bytes = at - self.line_start;
        if bytes > 4096 {
            bytes as u32 + 1
        } else {
            self.text[self.line_start..at].chars().count() as u32 + 1
        }
    }

    fn error(&self, message: impl Into<String>) -> ParseError {
        ParseError::new(self.text, self.line, self.column(self.at), message)
    }

    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let length = rest
            .char_indices()
            .skip(1)
            .find(|&(_, c)| !continues_word(c))
            .map_or(rest.len(), |(at, _)| at);
        self.at += length;
        &rest[..length]
    }

    fn token(&mut self, c: char) -> Result<Token<'a>, ParseError> {
        if begins_word(c) {
            return Ok(Token::Word(self.word()));
        }
        if c.is_ascii_digit() {
            return self.number();
        }
        if c == '.' {
            let start = self.at + 1;
            if !self.text[start..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
                return Err(
                    self.error("a point is followed by the name of a directive or modifier")
                );
            }
            self.word();
            // `.L2::128B`, `.shared::cta`
            while self.rest().starts_with("::") {
                self.at += 1;
                self.word();
            }
            return Ok(Token::Dotted(&self.text[start..self.at]));
        }
        if c == '"' {
            let start = self.at + 1;
            let length = self.text[start..].find(['"', '\n']).unwrap_or(0);
            if !self.text[start + length..].starts_with('"') {
                return Err(self.error("a string that begins here has no end on its line"));
            }
            self.at = start + length + 1;
            return Ok(Token::Text(&self.text[start..start + length]));
        }
        if c.is_ascii_punctuation() {
            self.at += 1;
            return Ok(Token::Sign(c));
        }
        Err(self.error(format!("PTX has no character `{}`", c.escape_debug())))
    }

    fn number(&mut self) -> Result<Token<'a>, ParseError> {
        let rest = self.rest();
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let word = &rest[..length];
        let bits = |digits: &str, radix, most| {
            if digits.len() > most { None } else { u64::from_str_radix(digits, radix).ok() }
        };
        let lower = word.get(..2).map(|prefix| prefix.to_ascii_lowercase());
        let parsed = match lower.as_deref() {
            Some("0f") if length == 10 => bits(&word[2..], 16, 8).map(|b| Token::Single(b as u32)),
            Some("0d") if length == 18 => bits(&word[2..], 16, 16).map(Token::Double),
            _ if rest[length..].starts_with('.')
                || (word.contains(['e', 'E']) && lower.as_deref() != Some("0x")) =>
            {
                return self.decimal();
            }
            _ => {
                let digits = word.trim_end_matches(['U', 'u']);
                match lower.as_deref() {
                    Some("0x") => bits(&digits[2..], 16, 16),
                    Some("0b") => bits(&digits[2..], 2, 64),
                    _ if digits.len() > 1 && digits.starts_with('0') => bits(&digits[1..], 8, 22),
                    _ => bits(digits, 10, 20),
                }
                .map(Token::Integer)
            }
        };
        let token = parsed
            .ok_or_else(|| self.error(format!("`{word}` is no number of at most 64 bits")))?;
        self.at += length;
        Ok(token)
    }

    /// `1.5`, `1.0e-3`: a double in PTX in every context.
    fn decimal(&mut self) -> Result<Token<'a>, ParseError> {
        let rest = self.rest();
        let mut length = 0;
        let bytes = rest.as_bytes();
        while let Some(&b) = bytes.get(length) {
            let exponent_sign =
                matches!(b, b'+' | b'-') && length > 0 && matches!(bytes[length - 1], b'e' | b'E');
            if !(b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E') || exponent_sign) {
                break;
            }
            length += 1;
        }
        let value: f64 = rest[..length]
            .parse()
            .map_err(|_| self.error(format!("`{}` is no number", &rest[..length])))?;
        self.at += length;
        Ok(Token::Double(value.to_bits()))
    }
}
