//! Error messages for users: the error, its places and its remedy.

use crate::location::Location;
use crate::ty::TensorType;
use std::fmt;

/// The cause of an error: the user's input or a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Kind {
    /// A program, file, flag or value is invalid.
    #[default]
    Mistake,
    /// A device is absent or has failed.
    Device,
}

/// One error (or warning): a sentence, the places concerned, and a remedy.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Diagnostic {
    /// The error, in one sentence without a full stop.
    pub message: String,
    /// The places concerned, each with a description. The first is the place of the error.
    pub places: Vec<(Location, String)>,
    /// The remedy.
    pub help: Option<String>,
    /// An excerpt of the text with an arrow below the column of the error, if the error is in a
    /// text.
    pub excerpt: Option<Box<str>>,
    /// The cause.
    pub kind: Kind,
}

impl Diagnostic {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Diagnostic {
            message: message.into(),
            places: Vec::new(),
            help: None,
            excerpt: None,
            kind: Kind::Mistake,
        }
    }

    /// A device error with this message.
    pub fn of_device(message: impl Into<String>) -> Self {
        Diagnostic { kind: Kind::Device, ..Diagnostic::new(message) }
    }

    /// Adds a place.
    #[must_use]
    pub fn at(mut self, location: Location, what: impl Into<String>) -> Self {
        self.places.push((location, what.into()));
        self
    }

    /// Adds the place of a construct around the error, unless that place is listed already.
    #[must_use]
    pub fn within(self, location: &Location, what: impl Into<String>) -> Self {
        match self.places.iter().any(|(known, _)| known == location) {
            true => self,
            false => self.at(location.clone(), what),
        }
    }

    /// Adds the place where an operand is defined, if known. An operand that is used twice is
    /// listed once.
    #[must_use]
    pub fn operand(self, made: Option<Location>, ty: &TensorType) -> Self {
        let Some(made) = made else { return self };
        let place = (made, format!("an operand, {ty}, is made here"));
        match self.places.contains(&place) {
            true => self,
            false => self.at(place.0, place.1),
        }
    }

    /// Sets the remedy.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Prefixes the message with `context: `.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// Shows line `line` of `text` (counted from 1) with an arrow under `column` (counted from 1).
    #[must_use]
    pub fn excerpt(mut self, text: &str, line: u32, column: u32) -> Self {
        let Some(source) = text.lines().nth(line.saturating_sub(1) as usize) else { return self };
        // A line of an untrusted file may be megabytes long, so only the part around the column
        // is shown.
        let start = (column as usize).saturating_sub(80);
        let shown: String = source.chars().skip(start).take(140).collect();
        let arrow = " ".repeat((column as usize).saturating_sub(start + 1));
        self.excerpt = Some(format!("{line:>5} | {shown}\n      | {arrow}^").into());
        self
    }
}

/// A [`Diagnostic`] whose message is formatted: `diagnostic!("no output `{name}`")`.
#[macro_export]
macro_rules! diagnostic {
    ($($message:tt)*) => {
        $crate::Diagnostic::new(::std::format!($($message)*))
    };
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for (location, what) in &self.places {
            if *location == Location::Unknown {
                continue;
            }
            write!(f, "\n  --> {location}")?;
            if !what.is_empty() {
                write!(f, ": {what}")?;
            }
        }
        if let Some(excerpt) = &self.excerpt {
            write!(f, "\n{excerpt}")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}

/// Result of every function in this crate that can fail because of user input.
pub type Result<T, E = Diagnostic> = std::result::Result<T, E>;

/// Returns an error: `bail!("a message with {arguments}"; help "the remedy")`, where the remedy may
/// be left out. A parser first names its cursor and the token at fault: `bail!(c at token, "a
/// message")`. A verifier that has a function `failure` first names the part at fault and the
/// number of the invariant: `bail!(part, 3, "a message")`.
macro_rules! bail {
    ($message:literal $(, $argument:expr)* $(,)? $(; help $($help:tt)+)?) => {
        return Err($crate::Diagnostic::new(format!($message $(, $argument)*))
            $(.help(format!($($help)+)))?)
    };
    ($cursor:ident at $token:expr, $message:literal $(, $argument:expr)* $(,)?
    $(; help $($help:tt)+)?) => {
        return Err($cursor.error($token, format!($message $(, $argument)*))
            $(.help(format!($($help)+)))?)
    };
    ($part:expr, $number:literal, $message:literal $(, $argument:expr)* $(,)?
    $(; help $($help:tt)+)?) => {
        return Err(failure($part, $number, format!($message $(, $argument)*))
            $(.help(format!($($help)+)))?)
    };
}
pub(crate) use bail;

/// Returns an error unless a condition holds: `ensure!(condition, "a message")`, with all that
/// [`bail!`] takes.
macro_rules! ensure {
    ($condition:expr, $($error:tt)+) => {
        if !$condition {
            $crate::diagnostic::bail!($($error)+);
        }
    };
}
pub(crate) use ensure;
