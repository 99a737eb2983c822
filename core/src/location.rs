//! Origins of equations: a user's source line, a line of text, or, for derivative code, the
//! forward equation and the rule that was applied to it.
//!
//! The builder's functions are `#[track_caller]`, so [`Location::caller`] is the user's line. A
//! closure cannot be `#[track_caller]`, so an operation in a closure of the library would be
//! located in the library. Such a closure runs within [`Location::attribute`].

use crate::id::{IdVec, typed_id};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::panic;
use std::sync::Arc;

typed_id! {
    /// An entry of a [`LocationTable`]; 0 is "unknown".
    LocationId, "@"
}

/// The origin of an equation or input.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum Location {
    /// Not known.
    #[default]
    Unknown,
    /// A place in a file: Rust source, or a text in the project's own languages.
    Source {
        /// Path of the file as the compiler or the user named it.
        file: Arc<str>,
        /// Line, counted from 1.
        line: u32,
        /// Column, counted from 1.
        column: u32,
    },
    /// Derived by a rule from another location.
    Derived {
        /// The location to which the rule was applied, in the same table.
        of: LocationId,
        /// Name of the rule, e.g. `jvp(tanh)` or `transpose(dot_general)`.
        rule: Arc<str>,
    },
}

impl Location {
    /// A place in a file.
    pub fn source(file: impl Into<Arc<str>>, line: u32, column: u32) -> Self {
        Location::Source { file: file.into(), line, column }
    }

    /// The caller of the enclosing `#[track_caller]` function. Within
    /// [`attribute`](Self::attribute), the location given there.
    #[track_caller]
    pub fn caller() -> Self {
        let caller = panic::Location::caller();
        ATTRIBUTED
            .with_borrow(Option::clone)
            .unwrap_or_else(|| Location::source(caller.file(), caller.line(), caller.column()))
    }

    /// Runs a closure of the library on behalf of the user's line `self`: until `f` returns,
    /// [`caller`](Self::caller) is `self`.
    pub fn attribute<T>(&self, f: impl FnOnce() -> T) -> T {
        let _user = self.attributed();
        f()
    }

    /// [`attribute`](Self::attribute) until the returned guard is dropped.
    #[must_use = "the guard ends the attribution when it is dropped"]
    pub fn attributed(&self) -> Attributed {
        Attributed(ATTRIBUTED.replace(Some(self.clone())))
    }

    /// Runs a closure of user code, which has its own source lines, within
    /// [`attribute`](Self::attribute).
    pub fn unattributed<T>(f: impl FnOnce() -> T) -> T {
        let _own = Attributed(ATTRIBUTED.take());
        f()
    }
}

thread_local! {
    /// The user's line on whose behalf the library works, if the call stack does not tell it.
    static ATTRIBUTED: RefCell<Option<Location>> = const { RefCell::new(None) };
}

/// Guard of [`Location::attributed`]. Dropping it restores the previous attribution, also when a
/// panic unwinds.
pub struct Attributed(Option<Location>);

impl Drop for Attributed {
    fn drop(&mut self) {
        ATTRIBUTED.set(self.0.take());
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Unknown => f.write_str("unknown"),
            Location::Source { file, line, column } => write!(f, "{file}:{line}:{column}"),
            Location::Derived { of, rule } => write!(f, "{rule} of {of}"),
        }
    }
}

/// The locations of one function, each stored once.
#[derive(Clone, PartialEq, Debug)]
pub struct LocationTable {
    entries: IdVec<LocationId, Location>,
    // A linear search would be quadratic for a large graph. The order of this map is never
    // observed.
    index: HashMap<Location, LocationId>,
}

impl Default for LocationTable {
    fn default() -> Self {
        let mut table = LocationTable { entries: IdVec::new(), index: Default::default() };
        table.intern(Location::Unknown);
        table
    }
}

impl LocationTable {
    /// The id of `location`. A new location is added.
    pub fn intern(&mut self, location: Location) -> LocationId {
        if let Some(&id) = self.index.get(&location) {
            return id;
        }
        let id = self.entries.push(location.clone());
        self.index.insert(location, id);
        id
    }

    /// Adds the locations of another table. Returns the map from its ids to the ids of this
    /// table.
    pub fn merge(&mut self, other: &LocationTable) -> HashMap<LocationId, LocationId> {
        let mut known: HashMap<LocationId, LocationId> = HashMap::new();
        for (id, location) in other.iter() {
            let location = match location {
                // The source of a derivation has a smaller id.
                Location::Derived { of, rule } => {
                    Location::Derived { of: known[of], rule: rule.clone() }
                }
                other => other.clone(),
            };
            known.insert(id, self.intern(location));
        }
        known
    }

    /// The location of an id.
    pub fn get(&self, id: LocationId) -> &Location {
        self.entries.get(id).unwrap_or(&Location::Unknown)
    }

    /// The source location that a person wrote: derivations are followed to their origin.
    pub fn origin(&self, mut id: LocationId) -> &Location {
        // Entries refer to earlier entries only, so this terminates.
        while let Location::Derived { of, .. } = self.get(id) {
            if *of >= id {
                break;
            }
            id = *of;
        }
        self.get(id)
    }

    /// The whole chain, outermost rule first, e.g.
    /// `transpose(mul) of jvp(tanh) of src/main.rs:3:7`.
    pub fn describe(&self, mut id: LocationId) -> String {
        let mut text = String::new();
        // As in `origin`; no recursion, since a chain may be long.
        while let Location::Derived { of, rule } = self.get(id)
            && *of < id
        {
            text.push_str(rule);
            text.push_str(" of ");
            id = *of;
        }
        text + &self.get(id).to_string()
    }

    /// All entries in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (LocationId, &Location)> {
        self.entries.iter()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if the table holds only the unknown location.
    pub fn is_empty(&self) -> bool {
        self.entries.len() <= 1
    }
}
