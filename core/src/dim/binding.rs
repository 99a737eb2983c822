//! Values of dimension variables.

use crate::diagnostic::{Diagnostic, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Values of dimension variables, e.g. `{B: 64}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Binding(BTreeMap<Arc<str>, i64>);

impl Binding {
    /// No variable bound.
    pub fn new() -> Self {
        Self::default()
    }

    /// Binds `name`. This builder style serves `bind!(B = 64)`.
    #[must_use]
    pub fn with(mut self, name: &str, value: i64) -> Self {
        self.0.insert(name.into(), value);
        self
    }

    /// Binds `name`. Error: it is bound to another value.
    pub fn insert(&mut self, name: &str, value: i64) -> Result<()> {
        match self.0.insert(name.into(), value) {
            Some(old) if old != value => {
                Err(Diagnostic::new(format!("dimension `{name}` would be both {old} and {value}"))
                    .help("give inputs whose shapes agree, or bind the dimension to one value"))
            }
            _ => Ok(()),
        }
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<i64> {
        self.0.get(name).copied()
    }

    /// Name and value, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, value)| (&**name, *value))
    }

    /// True if nothing is bound.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.iter().enumerate() {
            write!(f, "{}{name}={value}", if i > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}
