//! A pass: a named part of a compilation. [`crate::pipeline`] has the list of all.

/// The part of a function's results that a pass preserves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// Every bit, except those of NaNs.
    Bits,
    /// The value over the reals. A sum may be made in another order, a result made of several ops
    /// may be rounded at each, and a function may be computed within a bound.
    Value,
}

/// A pass with a function of type `F`.
pub struct Pass<F: 'static> {
    /// Its name, for fuel, dumps and measurements.
    pub name: &'static str,
    /// Its description.
    pub doc: &'static str,
    /// The property of the results that it preserves.
    pub keeps: Keeps,
    /// What it does.
    pub(crate) run: F,
}

impl<F> Pass<F> {
    /// Calls `f` with the pass's function, in the span of the pass.
    pub(crate) fn within<T>(&self, f: impl FnOnce(&F) -> T) -> T {
        within(self.name, || f(&self.run))
    }
}

/// Calls `f` in the span of a pass, or of a part of one. `wengert-bench compile` measures spans.
/// The time of a span excludes that of spans inside it.
pub(crate) fn within<T>(name: &'static str, f: impl FnOnce() -> T) -> T {
    let _span = tracing::debug_span!("pass", name).entered();
    f()
}
