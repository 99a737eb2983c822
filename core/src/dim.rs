//! Dimensions: integers, or linear expressions over variables that are bound when a graph is
//! compiled.
//!
//! `B`, `2*B+1`, `H+-2` never occur after the Graph stage: [`Dim::bind`] turns each into a
//! number. Two dimensions are equal exactly when their normal forms are. A variable stands for an
//! integer of at least 1, so some inequalities can be decided without a binding
//! ([`Dim::at_least`]).
//!
//! The dimensions of a poisoned tensor are *poisoned* too: each carries the error. Arithmetic
//! propagates the error, and a tensor whose shape contains a poisoned dimension is poisoned by
//! that error. A poisoned dimension has the number 1, so that the user's code continues until the
//! function reports the error.

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

/// A dimension: `constant + Σ coefficient · variable`, terms sorted by name and without zero
/// coefficients.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dim {
    constant: i64,
    terms: Vec<(Arc<str>, i64)>,
    /// The error that poisons the dimension.
    error: Option<Arc<Diagnostic>>,
}

impl Dim {
    /// A number.
    pub const fn constant(value: i64) -> Self {
        Dim { constant: value, terms: Vec::new(), error: None }
    }

    /// A variable.
    pub fn variable(name: &str) -> Self {
        Dim { constant: 0, terms: vec![(name.into(), 1)], error: None }
    }

    /// A dimension made unknown by an error.
    pub fn poisoned(error: Arc<Diagnostic>) -> Self {
        Dim { constant: 1, terms: Vec::new(), error: Some(error) }
    }

    /// The error, if poisoned.
    pub fn error(&self) -> Option<&Diagnostic> {
        self.error.as_deref()
    }

    /// The first poisoned one of two dimensions.
    fn poison<'a>(&'a self, other: &'a Dim) -> Option<&'a Dim> {
        [self, other].into_iter().find(|dim| dim.error.is_some())
    }

    /// `constant + Σ coefficient · variable` in normal form; `None` on overflow.
    pub fn linear(constant: i64, terms: impl IntoIterator<Item = (Arc<str>, i64)>) -> Option<Self> {
        let mut sum: BTreeMap<Arc<str>, i64> = BTreeMap::new();
        for (name, coefficient) in terms {
            let entry = sum.entry(name).or_default();
            *entry = entry.checked_add(coefficient)?;
        }
        let terms = sum.into_iter().filter(|(_, c)| *c != 0).collect();
        Some(Dim { constant, terms, error: None })
    }

    /// The number, if there is no variable; 1 if poisoned.
    pub fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The number as an extent, if there is no variable and it is not negative; 1 if poisoned.
    pub fn as_extent(&self) -> Option<usize> {
        self.as_constant().and_then(|c| usize::try_from(c).ok())
    }

    /// The constant term.
    pub fn constant_term(&self) -> i64 {
        self.constant
    }

    /// Variables with their coefficients, sorted by name.
    pub fn terms(&self) -> &[(Arc<str>, i64)] {
        &self.terms
    }

    /// `self + other`; `None` on overflow.
    pub fn checked_add(&self, other: &Dim) -> Option<Dim> {
        if let Some(poisoned) = self.poison(other) {
            return Some(poisoned.clone());
        }
        let terms = self.terms.iter().chain(&other.terms).cloned();
        Dim::linear(self.constant.checked_add(other.constant)?, terms)
    }

    /// `self · factor`; `None` on overflow.
    pub fn checked_scale(&self, factor: i64) -> Option<Dim> {
        if self.error.is_some() {
            return Some(self.clone());
        }
        let terms = self
            .terms
            .iter()
            .map(|(n, c)| Some((n.clone(), c.checked_mul(factor)?)))
            .collect::<Option<Vec<_>>>()?;
        Dim::linear(self.constant.checked_mul(factor)?, terms)
    }

    /// `self - other`; `None` on overflow.
    pub fn checked_sub(&self, other: &Dim) -> Option<Dim> {
        self.checked_add(&other.checked_scale(-1)?)
    }

    /// `self · other`, if at least one is a number (the product of two variables is not linear).
    pub fn checked_mul(&self, other: &Dim) -> Option<Dim> {
        if let Some(poisoned) = self.poison(other) {
            return Some(poisoned.clone());
        }
        match (self.as_constant(), other.as_constant()) {
            (_, Some(factor)) => self.checked_scale(factor),
            (Some(factor), _) => other.checked_scale(factor),
            _ => None,
        }
    }

    /// `⌊self / divisor⌋` for a positive divisor that divides all coefficients of variables.
    pub fn checked_floor_div(&self, divisor: i64) -> Option<Dim> {
        if self.error.is_some() {
            return Some(self.clone());
        }
        if divisor <= 0 {
            return None;
        }
        let terms = self
            .terms
            .iter()
            .map(|(n, c)| (c % divisor == 0).then(|| (n.clone(), c / divisor)))
            .collect::<Option<Vec<_>>>()?;
        Dim::linear(self.constant.div_euclid(divisor), terms)
    }

    /// `self / divisor` for a positive divisor, if the remainder is 0 for all values of the
    /// variables.
    pub fn checked_exact_div(&self, divisor: &Dim) -> Option<Dim> {
        if let Some(poisoned) = self.poison(divisor) {
            return Some(poisoned.clone());
        }
        if let Some(number) = divisor.as_constant() {
            return self
                .checked_floor_div(number)
                .filter(|q| q.checked_scale(number).as_ref() == Some(self));
        }
        // The quotient of two forms is a number: the ratio of the coefficients of any variable.
        let (name, coefficient) = divisor.terms.first()?;
        let own = self.terms.iter().find(|(n, _)| n == name).map_or(0, |(_, c)| *c);
        let quotient = Dim::constant(own.checked_div(*coefficient)?);
        (divisor.checked_mul(&quotient).as_ref() == Some(self)).then_some(quotient)
    }

    /// True if the dimension is at least `bound` for all values of the variables (each at least
    /// 1).
    pub fn at_least(&self, bound: i64) -> bool {
        let smallest = self
            .terms
            .iter()
            .try_fold(self.constant, |sum, (_, c)| if *c < 0 { None } else { sum.checked_add(*c) });
        smallest.is_some_and(|s| s >= bound)
    }

    /// True if `self ≤ other` for all values of the variables.
    pub fn at_most(&self, other: &Dim) -> bool {
        other.checked_sub(self).is_some_and(|d| d.at_least(0))
    }

    /// Replaces the bound variables by their values. Others remain.
    pub fn bind(&self, binding: &Binding) -> Result<Dim> {
        if let Some(error) = self.error() {
            return Err(error.clone());
        }
        let mut constant = self.constant;
        let mut terms = Vec::new();
        for (name, coefficient) in &self.terms {
            match binding.get(name) {
                Some(value) => {
                    constant = coefficient
                        .checked_mul(value)
                        .and_then(|v| constant.checked_add(v))
                        .ok_or_else(|| {
                            Diagnostic::new(format!("dimension `{self}` overflows with {binding}"))
                        })?;
                }
                None => terms.push((name.clone(), *coefficient)),
            }
        }
        Ok(Dim { constant, terms, error: None })
    }

    /// Adds the names of the variables to `names`.
    pub fn collect_variables(&self, names: &mut std::collections::BTreeSet<Arc<str>>) {
        names.extend(self.terms.iter().map(|(name, _)| name.clone()));
    }

    /// Binds the one unbound variable, if any, so that this dimension equals `extent`. Error:
    /// that is not possible, or two are unbound.
    pub fn solve(&self, extent: usize, binding: &mut Binding) -> Result<()> {
        let known = self.bind(binding)?;
        let extent = extent as i64;
        let wrong = || Diagnostic::new(format!("dimension `{self}` cannot be {extent}"));
        match known.terms.as_slice() {
            [] if known.constant == extent => Ok(()),
            [] if self.terms.is_empty() => {
                Err(Diagnostic::new(format!("expected extent {self}, found {extent}")))
            }
            [] => Err(wrong().help(format!("it is {} with {binding}", known.constant))),
            [(name, coefficient)] => {
                let rest = extent.checked_sub(known.constant).ok_or_else(wrong)?;
                if rest % coefficient != 0 || rest / coefficient < 1 {
                    return Err(wrong()
                        .help(format!("`{name}` would have to be a whole number of at least 1")));
                }
                binding.insert(name, rest / coefficient)
            }
            _ => Err(wrong().help("bind its variables explicitly")),
        }
    }
}

impl From<i64> for Dim {
    fn from(value: i64) -> Self {
        Dim::constant(value)
    }
}

impl From<i32> for Dim {
    fn from(value: i32) -> Self {
        Dim::constant(value.into())
    }
}

impl From<usize> for Dim {
    fn from(value: usize) -> Self {
        Dim::constant(i64::try_from(value).expect("extents fit in i64: no allocation is larger"))
    }
}

impl From<&str> for Dim {
    /// A variable of that name.
    fn from(name: &str) -> Self {
        Dim::variable(name)
    }
}

impl fmt::Display for Dim {
    /// `2*B+T+1`, `B+-1`: terms in order, then the constant, as the parser reads it. A poisoned
    /// dimension is `?`, which no text contains.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.error.is_some() {
            return f.write_str("?");
        }
        let mut plus = "";
        for (name, coefficient) in &self.terms {
            match coefficient {
                1 => write!(f, "{plus}{name}")?,
                c => write!(f, "{plus}{c}*{name}")?,
            }
            plus = "+";
        }
        if self.constant != 0 || self.terms.is_empty() {
            write!(f, "{plus}{}", self.constant)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poisoned_dimension_passes_its_error_on() {
        let error = Arc::new(Diagnostic::new("the first error"));
        let p = Dim::poisoned(error.clone());
        let (two, b) = (Dim::constant(2), b());
        let made = [
            p.checked_add(&b),
            b.checked_sub(&p),
            p.checked_scale(3),
            p.checked_mul(&p),
            b.checked_mul(&p),
            p.checked_floor_div(0),
            two.checked_exact_div(&p),
        ];
        for dim in made {
            assert_eq!(dim.unwrap().error(), Some(&*error));
        }
        assert_eq!(p.bind(&Binding::new()).unwrap_err(), *error);
        assert_eq!(p.solve(1, &mut Binding::new()).unwrap_err(), *error);
        assert_eq!((p.as_extent(), p.to_string()), (Some(1), "?".into()));
        assert_ne!(p, Dim::constant(1));
    }

    fn b() -> Dim {
        Dim::variable("B")
    }

    #[test]
    fn arithmetic_is_in_normal_form() {
        let d = b().checked_scale(2).unwrap().checked_add(&1i64.into()).unwrap();
        assert_eq!(d.to_string(), "2*B+1");
        assert_eq!(d.checked_sub(&d).unwrap(), Dim::constant(0));
        assert_eq!(d.checked_floor_div(2).unwrap(), b());
        assert!(b().checked_mul(&b()).is_none());
        assert_eq!(d.checked_scale(3).unwrap().checked_exact_div(&d).unwrap(), Dim::constant(3));
        assert_eq!(Dim::constant(0).checked_exact_div(&d).unwrap(), Dim::constant(0));
        assert!(b().checked_exact_div(&d).is_none() && d.checked_exact_div(&2i64.into()).is_none());
        assert!(b().checked_scale(i64::MAX).unwrap().checked_scale(2).is_none());
    }

    #[test]
    fn binding_and_solving() {
        let d = Dim::linear(1, [("B".into(), 2)]).unwrap();
        assert_eq!(d.bind(&Binding::new().with("B", 3)).unwrap().as_extent(), Some(7));
        let mut binding = Binding::new();
        d.solve(9, &mut binding).unwrap();
        assert_eq!(binding.get("B"), Some(4));
        assert!(d.solve(11, &mut binding).is_err());
        assert!(d.solve(8, &mut Binding::new()).is_err());
    }

    #[test]
    fn bounds_without_binding() {
        assert!(b().at_least(1) && !b().at_least(2));
        assert!(Dim::constant(3).at_most(&Dim::linear(2, [("B".into(), 1)]).unwrap()));
        assert!(!b().at_most(&Dim::constant(100)));
    }
}
