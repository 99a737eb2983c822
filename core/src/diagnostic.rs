//! What a user is told when something is wrong: what, where, and how to mend it.

use crate::location::Location;
use crate::ty::TensorType;
use std::fmt;

/// Whose fault it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Kind {
    /// A program, file, flag or value is not what it should be.
    #[default]
    Mistake,
    /// A device is not there, or has failed.
    Device,
}

/// One error (or warning): a sentence, the places it speaks of, and the mend.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Diagnostic {
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// The places concerned, each with what stands there; the first is the guilty one.
    pub places: Vec<(Location, String)>,
    /// How to mend it.
    pub help: Option<String>,
    /// An excerpt of the text with an arrow below the guilty column, if the error is in a text.
    pub excerpt: Option<Box<str>>,
    /// Whose fault it is.
    pub kind: Kind,
}

impl Diagnostic {
    /// An error that says `message`.
    pub fn new(message: impl Into<String>) -> Self {
        Diagnostic {
            message: message.into(),
            places: Vec::new(),
            help: None,
            excerpt: None,
            kind: Kind::Mistake,
        }
    }

    /// An error of a device that says `message`.
    pub fn of_device(message: impl Into<String>) -> Self {
        Diagnostic { kind: Kind::Device, ..Diagnostic::new(message) }
    }

    /// Adds a place.
    #[must_use]
    pub fn at(mut self, location: Location, what: impl Into<String>) -> Self {
        self.places.push((location, what.into()));
        self
    }

    /// Adds the place of a construct around the error, unless the error is there already.
    #[must_use]
    pub fn within(self, location: &Location, what: impl Into<String>) -> Self {
        match self.places.iter().any(|(known, _)| known == location) {
            true => self,
            false => self.at(location.clone(), what),
        }
    }

    /// Adds the place where an operand is made, if that is known. An operand that is used twice is named once.
    #[must_use]
    pub fn operand(self, made: Option<Location>, ty: &TensorType) -> Self {
        let Some(made) = made else { return self };
        let place = (made, format!("an operand, {ty}, is made here"));
        match self.places.contains(&place) {
            true => self,
            false => self.at(place.0, place.1),
        }
    }

    /// Says how to mend it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Puts `context: ` in front of the message.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// Shows line `line` of `text` (counted from 1) with an arrow under `column` (counted from 1).
    #[must_use]
    pub fn excerpt(mut self, text: &str, line: u32, column: u32) -> Self {
        let Some(source) = text.lines().nth(line.saturating_sub(1) as usize) else { return self };
        // A line of a hostile file may be megabytes long: show the part around the column only.
        let start = (column as usize).saturating_sub(80);
        let shown: String = source.chars().skip(start).take(140).collect();
        let arrow = " ".repeat((column as usize).saturating_sub(start + 1));
        self.excerpt = Some(format!("{line:>5} | {shown}\n      | {arrow}^").into());
        self
    }
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

/// Result of everything in this crate that can meet a user's mistake.
pub type Result<T, E = Diagnostic> = std::result::Result<T, E>;
