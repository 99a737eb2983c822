//! Where an equation comes from: a user's source line, a line of text, or, for derivative code, the forward
//! equation and the rule that made it.
//!
//! The builder's functions are `#[track_caller]`, so [`Location::caller`] is the user's line. A closure cannot be: an operation
//! in a closure of the library would be located in the library. Such a closure runs within [`Location::attribute`].

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

/// Where something was written.
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
    /// Made by a rule from something at another place.
    Derived {
        /// Where the origin stands in the same table.
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

    /// The caller of the function that is marked `#[track_caller]`; within [`attribute`](Self::attribute), the place given there.
    #[track_caller]
    pub fn caller() -> Self {
        let caller = panic::Location::caller();
        ATTRIBUTED
            .with_borrow(Option::clone)
            .unwrap_or_else(|| Location::source(caller.file(), caller.line(), caller.column()))
    }

    /// Runs a closure of the library on behalf of the user's line `self`: [`caller`](Self::caller) is this place until `f` returns.
    pub fn attribute<T>(&self, f: impl FnOnce() -> T) -> T {
        let _user = self.attributed();
        f()
    }

    /// [`attribute`](Self::attribute) until the returned guard is dropped.
    #[must_use = "the guard ends the attribution when it is dropped"]
    pub fn attributed(&self) -> Attributed {
        Attributed(ATTRIBUTED.replace(Some(self.clone())))
    }

    /// Runs a closure of the user's, which has lines of its own, within [`attribute`](Self::attribute).
    pub fn unattributed<T>(f: impl FnOnce() -> T) -> T {
        let _own = Attributed(ATTRIBUTED.take());
        f()
    }
}

thread_local! {
    /// The user's line that the library works for, where the call stack does not tell it.
    static ATTRIBUTED: RefCell<Option<Location>> = const { RefCell::new(None) };
}

/// The library works for a user's line until this is dropped, which restores what was attributed before, also when a panic unwinds.
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

/// The locations of one function's equations, each stored once.
#[derive(Clone, PartialEq, Debug)]
pub struct LocationTable {
    entries: IdVec<LocationId, Location>,
    // Linear search would be quadratic over a large graph; order of this map is never observed.
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
    /// The id of `location`, new or known.
    pub fn intern(&mut self, location: Location) -> LocationId {
        if let Some(&id) = self.index.get(&location) {
            return id;
        }
        let id = self.entries.push(location.clone());
        self.index.insert(location, id);
        id
    }

    /// Takes in what another table holds; its ids, with what they are in this one.
    pub fn merge(&mut self, other: &LocationTable) -> HashMap<LocationId, LocationId> {
        let mut known: HashMap<LocationId, LocationId> = HashMap::new();
        for (id, location) in other.iter() {
            let location = match location {
                // What a location derives from stands before it.
                Location::Derived { of, rule } => Location::Derived { of: known[of], rule: rule.clone() },
                other => other.clone(),
            };
            known.insert(id, self.intern(location));
        }
        known
    }

    /// The location itself.
    pub fn get(&self, id: LocationId) -> &Location {
        self.entries.get(id).unwrap_or(&Location::Unknown)
    }

    /// The place a person wrote: derivations are followed to their origin.
    pub fn origin(&self, mut id: LocationId) -> &Location {
        // Entries refer to earlier ones only, so this ends.
        while let Location::Derived { of, .. } = self.get(id) {
            if *of >= id {
                break;
            }
            id = *of;
        }
        self.get(id)
    }

    /// The whole chain, outermost rule first, e.g. `transpose(mul) of jvp(tanh) of src/main.rs:3:7`.
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

    /// Every entry in the order of its id.
    pub fn iter(&self) -> impl Iterator<Item = (LocationId, &Location)> {
        self.entries.iter()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if only the unknown location is known.
    pub fn is_empty(&self) -> bool {
        self.entries.len() <= 1
    }
}
