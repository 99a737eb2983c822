//! The lexer: from characters to tokens.
//!
//! The lexer is an iterator without look-back: it skips white space and `//` comments and returns
//! the next token. It never fails. Text that is not a token becomes a [`Kind::Invalid`] with the
//! reason, which the parser reports when it reaches the token.

use std::fmt;

/// Punctuation. A longer token comes before its prefixes.
pub const PUNCTUATION: &[&str] =
    &["->", "..", "{", "}", "(", ")", "[", "]", "<", ">", "=", ",", ":", ";", "*", "+", "-"];

/// A token and its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token<'a> {
    /// Kind and text.
    pub kind: Kind<'a>,
    /// Line, counted from 1.
    pub line: u32,
    /// Column in characters, counted from 1.
    pub column: u32,
}

/// The kind of a token, with its text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind<'a> {
    /// One of [`PUNCTUATION`].
    Punct(&'static str),
    /// `[A-Za-z_][A-Za-z0-9_.]*`: names, key paths and keywords. A dot is followed by a character
    /// of a name.
    Name(&'a str),
    /// `%name` or `%12`, without the sign.
    Value(&'a str),
    /// `@name`, without the sign.
    Function(&'a str),
    /// Decimal or `0x` hexadecimal digits.
    Integer(&'a str),
    /// Digits with a fraction, an exponent, or both.
    Float(&'a str),
    /// A string as written, without the quotes. [`unescape`] decodes it.
    Str(&'a str),
    /// Not a token; the reason.
    Invalid(&'static str),
    /// The end of the text.
    End,
}

impl fmt::Display for Kind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A token of untrusted text may be megabytes long.
        let short = |s: &str| s.chars().take(60).collect::<String>();
        match self {
            Kind::Punct(p) => write!(f, "`{p}`"),
            Kind::Name(s) | Kind::Integer(s) | Kind::Float(s) => write!(f, "`{}`", short(s)),
            Kind::Value(s) => write!(f, "`%{}`", short(s)),
            Kind::Function(s) => write!(f, "`@{}`", short(s)),
            Kind::Str(s) => write!(f, "\"{}\"", short(s)),
            Kind::Invalid(reason) => f.write_str(reason),
            Kind::End => f.write_str("end of text"),
        }
    }
}

/// Splits a text into tokens. At the end it returns [`Kind::End`], any number of times.
#[derive(Clone, Debug)]
pub struct Lexer<'a> {
    rest: &'a str,
    line: u32,
    column: u32,
}

fn begins_name(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn continues_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Length of the name characters at the start of `s`, including dots between them.
fn name_length(s: &str) -> usize {
    let bytes = s.as_bytes();
    let continues = |i: usize| bytes.get(i).is_some_and(|b| continues_name(*b as char));
    let mut end = 0;
    while continues(end) || (end > 0 && bytes.get(end) == Some(&b'.') && continues(end + 1)) {
        end += 1;
    }
    end
}

/// What to say to someone who gives what is not [a name](is_name).
pub const NAME_HELP: &str = "use letters, digits, `_` and `.`, not starting with a digit";

/// True if `s` is one [`Kind::Name`] token.
pub fn is_name(s: &str) -> bool {
    s.starts_with(begins_name) && name_length(s) == s.len()
}

/// True if `%s` is one [`Kind::Value`] token (and `@s` one [`Kind::Function`] token).
pub fn is_sigil_name(s: &str) -> bool {
    !s.is_empty() && name_length(s) == s.len()
}

impl<'a> Lexer<'a> {
    /// A lexer at the start of `text`.
    pub fn new(text: &'a str) -> Self {
        Lexer { rest: text, line: 1, column: 1 }
    }

    /// The next token.
    pub fn token(&mut self) -> Token<'a> {
        self.skip_blanks();
        let (line, column) = (self.line, self.column);
        let kind = self.cut();
        Token { kind, line, column }
    }

    /// Consumes `bytes` bytes, none of which is a line break.
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        self.column =
            self.column.saturating_add(taken.chars().count().try_into().unwrap_or(u32::MAX));
        taken
    }

    fn skip_blanks(&mut self) {
        loop {
            if let Some(rest) = self.rest.strip_prefix('\n') {
                self.rest = rest;
                self.line = self.line.saturating_add(1);
                self.column = 1;
                continue;
            }
            let blanks = if self.rest.starts_with("//") {
                self.rest.find('\n').unwrap_or(self.rest.len())
            } else {
                self.rest
                    .find(|c: char| c == '\n' || !c.is_ascii_whitespace())
                    .unwrap_or(self.rest.len())
            };
            if blanks == 0 {
                return;
            }
            self.take(blanks);
        }
    }

    fn cut(&mut self) -> Kind<'a> {
        let Some(first) = self.rest.chars().next() else { return Kind::End };
        if begins_name(first) {
            return Kind::Name(self.take(name_length(self.rest)));
        }
        if first.is_ascii_digit() {
            return self.number();
        }
        if first == '"' {
            return self.string();
        }
        if first == '%' || first == '@' {
            self.take(1);
            let name = self.take(name_length(self.rest));
            return match first {
                _ if name.is_empty() => Kind::Invalid("a `%` or `@` without a name"),
                '%' => Kind::Value(name),
                _ => Kind::Function(name),
            };
        }
        match PUNCTUATION.iter().find(|p| self.rest.starts_with(**p)) {
            Some(p) => {
                self.take(p.len());
                Kind::Punct(p)
            }
            None => {
                self.take(first.len_utf8());
                Kind::Invalid("a character that does not begin a token")
            }
        }
    }

    fn number(&mut self) -> Kind<'a> {
        let bytes = self.rest.as_bytes();
        let at = |i: usize| bytes.get(i).copied().unwrap_or(0);
        let digits = |mut i: usize| {
            while at(i).is_ascii_digit() {
                i += 1;
            }
            i
        };
        let hex = at(0) == b'0' && at(1) == b'x';
        let mut float = false;
        let mut end;
        if hex {
            end = 2;
            while at(end).is_ascii_hexdigit() {
                end += 1;
            }
        } else {
            end = digits(0);
            if at(end) == b'.' && at(end + 1).is_ascii_digit() {
                float = true;
                end = digits(end + 1);
            }
            if matches!(at(end), b'e' | b'E') {
                let sign = usize::from(matches!(at(end + 1), b'+' | b'-'));
                if at(end + 1 + sign).is_ascii_digit() {
                    float = true;
                    end = digits(end + 1 + sign);
                }
            }
        }
        if continues_name(at(end) as char) || (hex && end == 2) {
            self.take(end + name_length(&self.rest[end..]));
            return Kind::Invalid("a malformed number");
        }
        let text = self.take(end);
        if float { Kind::Float(text) } else { Kind::Integer(text) }
    }

    fn string(&mut self) -> Kind<'a> {
        let bytes = self.rest.as_bytes();
        let mut end = 1;
        loop {
            match bytes.get(end) {
                Some(b'"') => break,
                // An escaped quote or backslash does not end the string.
                Some(b'\\') if matches!(bytes.get(end + 1), Some(b'"' | b'\\')) => end += 2,
                Some(b'\n') | None => {
                    self.take(end);
                    return Kind::Invalid("a string that does not end on its line");
                }
                Some(_) => end += 1,
            }
        }
        let quoted = self.take(end + 1);
        Kind::Str(&quoted[1..end])
    }
}

/// Decodes the escapes `\"`, `\\`, `\n`, `\r`, `\t` and `\u{hex}` of a [`Kind::Str`]; `None` for
/// any other escape.
pub fn unescape(raw: &str) -> Option<String> {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        text.push(match rest.next()? {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            '"' => '"',
            '\\' => '\\',
            'u' => {
                let after = rest.as_str().strip_prefix('{')?;
                // A character has at most six digits, which also bounds the search.
                let end = after.bytes().take(7).position(|b| b == b'}')?;
                rest = after[end + 1..].chars();
                let digits = &after[..end];
                if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return None;
                }
                char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
            }
            _ => return None,
        });
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Kind<'_>> {
        let mut lexer = Lexer::new(text);
        std::iter::from_fn(|| Some(lexer.token().kind).filter(|k| *k != Kind::End)).collect()
    }

    #[test]
    fn every_kind_of_token() {
        use Kind::*;
        assert_eq!(
            kinds("layers.0.w %x @f 0..8 -1.5e-3 0x1F \"a\\\"b\" -> 2*B+-1 // rest\n;"),
            [
                Name("layers.0.w"),
                Value("x"),
                Function("f"),
                Integer("0"),
                Punct(".."),
                Integer("8"),
                Punct("-"),
                Float("1.5e-3"),
                Integer("0x1F"),
                Str("a\\\"b"),
                Punct("->"),
                Integer("2"),
                Punct("*"),
                Name("B"),
                Punct("+"),
                Punct("-"),
                Integer("1"),
                Punct(";")
            ]
        );
    }

    #[test]
    fn dots_bind_inside_names_only() {
        use Kind::*;
        assert_eq!(kinds("a..b"), [Name("a"), Punct(".."), Name("b")]);
        assert_eq!(kinds("1..2"), [Integer("1"), Punct(".."), Integer("2")]);
        assert_eq!(kinds("a."), [Name("a"), Invalid("a character that does not begin a token")]);
    }

    #[test]
    fn malformed_text_is_an_invalid_token() {
        for text in ["1x", "0x", "%", "@ f", "\"abc", "\"abc\n\"", "é", "1.5f", "\"\\"] {
            assert!(matches!(kinds(text)[0], Kind::Invalid(_)), "{text}");
        }
    }

    #[test]
    fn places_count_lines_and_characters() {
        let mut lexer = Lexer::new("\"é\" x // é\n\n  y");
        let places: Vec<_> = (0..4).map(|_| lexer.token()).map(|t| (t.line, t.column)).collect();
        assert_eq!(places, [(1, 1), (1, 5), (3, 3), (3, 4)]);
    }

    #[test]
    fn escapes() {
        assert_eq!(unescape(r#"\n\t\r\"\\\u{e9}"#).unwrap(), "\n\t\r\"\\é");
        for bad in [r"\x", r"\u{d800}", r"\u{", r"\u{1234567}", r"\u{}", r"\u{+1}", "\\"] {
            assert_eq!(unescape(bad), None, "{bad}");
        }
    }

    #[test]
    fn names() {
        assert!(
            is_name("layers.0.w")
                && is_name("_")
                && !is_name("0")
                && !is_name("a.")
                && !is_name("a..b")
        );
        assert!(
            is_sigil_name("0")
                && !is_sigil_name("")
                && !is_sigil_name("a b")
                && !is_sigil_name(".a")
        );
    }
}
