//! Results whose number depends on data, such as the positions of numbers that are not 0.
//!
//! A program has no such extents. [`Options::max`](crate::Options::max) gives the most results, N,
//! for the name of a result, which then has the extent N: the results, and zeros. Their number is
//! another output of the function, `NAME_count` of type i64, so that a caller can tell them apart.
//! If it is greater than N, only the first N results are there.

use crate::refusal::Class;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::{Diagnostic, Result, Tensor};

/// The largest bound: positions are i32.
const LARGEST: usize = i32::MAX as usize;

/// What such results have in common.
pub(crate) struct Counted<'o> {
    max: &'o BTreeMap<String, usize>,
    /// The names that the model has, with or without a bound.
    known: RefCell<BTreeSet<String>>,
    /// The numbers of results, by names.
    counts: RefCell<Vec<(String, Tensor)>>,
    /// How many bodies of the graph's own branches and loops are around the node.
    regions: Cell<usize>,
}

impl<'o> Counted<'o> {
    pub fn new(max: &'o BTreeMap<String, usize>) -> Self {
        let (known, counts) = (RefCell::default(), RefCell::default());
        Counted { max, known, counts, regions: Cell::new(0) }
    }

    /// Runs `f`, which builds the body of a branch or loop of the graph.
    pub fn inside<T>(&self, f: impl FnOnce() -> T) -> T {
        self.regions.set(self.regions.get() + 1);
        let result = f();
        self.regions.set(self.regions.get() - 1);
        result
    }

    /// The most results that are kept under a name.
    ///
    /// # Errors
    /// No bound is given, or no output can have their number.
    pub fn most(&self, name: &str) -> Result<usize> {
        self.known.borrow_mut().insert(name.to_owned());
        let refused = |reason: &str| Diagnostic::new(format!("{reason} ({})", Class::Shape));
        if self.regions.get() > 0 {
            let reason = "the number of its results depends on data, in a branch or loop";
            return Err(refused(reason).help("move it before the branch or loop"));
        }
        if let Some(most) = self.max.get(name).filter(|most| **most > LARGEST) {
            let message = format!("`{name}` has at most {most} results, which is beyond 2^31");
            return Err(Diagnostic::new(message).help("give a lower bound"));
        }
        self.max.get(name).copied().ok_or_else(|| {
            refused("the number of its results depends on data").help(format!(
                "give the most results by `--max {name}=N`, or `Options::max`: `{name}` has N of \
                 them, and `{name}_count` their number"
            ))
        })
    }

    /// Keeps the number of results of a name, an i64.
    pub fn count(&self, name: &str, number: Tensor) {
        self.counts.borrow_mut().push((name.to_owned(), number));
    }

    /// The numbers of results, in the order of the nodes.
    ///
    /// # Errors
    /// A bound is given for a name that needs none.
    pub fn finish(&self) -> Result<Vec<(String, Tensor)>> {
        let known = self.known.borrow();
        if let Some(name) = self.max.keys().find(|name| !known.contains(*name)) {
            let all: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            let of = format!("`{name}` is no result whose number depends on data");
            return Err(Diagnostic::new(of).help(match all.is_empty() {
                true => "the model has none: leave out `--max`, or `Options::max`".to_owned(),
                false => format!("the model has {}", all.join(", ")),
            }));
        }
        Ok(self.counts.take())
    }
}
