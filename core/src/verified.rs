//! Values that a verifier has accepted.

use crate::diagnostic::Result;
use crate::nest::{self, Nest};
use crate::plan::{self, Plan};
use std::fmt;
use std::ops::Deref;

/// A nest or plan that its verifier has accepted.
///
/// It cannot be changed, so whatever takes it need not verify it again. A nest is verified where
/// lowering makes it. A plan is verified, with its nests, where planning makes it and where it is
/// read from a file.
#[derive(Clone, PartialEq, Debug)]
pub struct Verified<T>(T);

/// Something that has a verifier.
pub trait Verify {
    /// Checks all invariants.
    fn verify(&self) -> Result<()>;
}

impl Verify for Nest {
    fn verify(&self) -> Result<()> {
        nest::verify(self)
    }
}

impl Verify for Plan {
    fn verify(&self) -> Result<()> {
        plan::verify(self)
    }
}

impl<T: Verify> Verified<T> {
    /// Verifies a value.
    ///
    /// Error: it breaks an invariant.
    pub fn new(value: T) -> Result<Self> {
        value.verify()?;
        Ok(Verified(value))
    }
}

impl Verified<Plan> {
    /// Verifies a plan that was read from a text. The error also has the position in the text.
    pub fn read(plan: Plan, places: &plan::Places) -> Result<Self> {
        plan::verify_at(&plan, places)?;
        Ok(Verified(plan))
    }
}

impl Verified<Nest> {
    /// The same nest with another name, which must be valid in the text format, as rule N1 says.
    pub fn named(mut self, name: &str) -> Self {
        debug_assert!(crate::text::is_name(name), "`{name}` is no name");
        name.clone_into(&mut self.0.name);
        self
    }
}

impl<T> Verified<T> {
    /// The value, which may then be changed.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Verified<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: fmt::Display> fmt::Display for Verified<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
