//! Dimensions: integers, or polynomials over variables that are bound when a graph is compiled.
//!
//! `B`, `2*B+1`, `B*T`, `H+-2` never occur after the Graph stage: [`Dim::bind`] turns each into a
//! number. A polynomial has a normal form: its terms are [`Product`]s of variables with integer
//! coefficients other than 0, sorted by the names of their factors. Two dimensions are equal
//! exactly when their normal forms are. A variable stands for an integer of at least 1, so some
//! inequalities can be decided without a binding ([`Dim::at_least`]).
//!
//! A term has at most [`MAX_FACTORS`] factors and a dimension at most [`MAX_TERMS`] terms, so that
//! arithmetic with dimensions from a file is cheap. An operation whose result has more is refused.
//!
//! Dimensions are computed by operators: `x.dim(0) * x.dim(1)`, `Dim::from("B") / 2 + 1`. A result
//! that is no dimension is poisoned by an error that names the user's line.
//!
//! The dimensions of a poisoned tensor are *poisoned* too: each carries the error. Arithmetic
//! propagates the error, and a tensor whose shape contains a poisoned dimension is poisoned by
//! that error. A poisoned dimension has the number 1, so that the user's code continues until the
//! function reports the error.

mod binding;
mod operators;
mod polynomial;
#[cfg(test)]
mod tests;

pub use binding::Binding;
pub use polynomial::{MAX_FACTORS, MAX_TERMS, Product};

use crate::diagnostic::{Diagnostic, Result};
use polynomial::Polynomial;
use std::fmt;
use std::sync::Arc;

/// A dimension: `constant + Σ coefficient · product of variables`, in normal form.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dim {
    constant: i64,
    terms: Vec<(Product, i64)>,
    /// The error that poisons the dimension.
    error: Option<Arc<Diagnostic>>,
}

impl Dim {
    /// The extent that [`Tensor::reshape`](crate::Tensor::reshape) infers from the others: −1.
    pub const INFER: Dim = Dim::constant(-1);

    /// A number.
    pub const fn constant(value: i64) -> Self {
        Dim { constant: value, terms: Vec::new(), error: None }
    }

    /// A variable.
    pub fn variable(name: &str) -> Self {
        Dim { constant: 0, terms: vec![(Product::variable(name), 1)], error: None }
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
        let terms =
            terms.into_iter().map(|(name, coefficient)| (Product::variable(&name), coefficient));
        Dim::polynomial(constant, terms)
    }

    /// `constant + Σ coefficient · product` in normal form; `None` on overflow.
    pub fn polynomial(
        constant: i64,
        terms: impl IntoIterator<Item = (Product, i64)>,
    ) -> Option<Self> {
        let mut sum = Polynomial::default();
        sum.add(Product::default(), constant)?;
        for (product, coefficient) in terms {
            sum.add(product, coefficient)?;
        }
        Some(Dim::from_polynomial(sum))
    }

    fn from_polynomial(polynomial: Polynomial) -> Self {
        let (constant, terms) = polynomial.into_terms();
        Dim { constant, terms, error: None }
    }

    fn to_polynomial(&self) -> Polynomial {
        Polynomial::of(self.constant, &self.terms)
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

    /// Products of variables with their coefficients, sorted.
    pub fn terms(&self) -> &[(Product, i64)] {
        &self.terms
    }

    /// `self + other`; `None` on overflow.
    pub fn checked_add(&self, other: &Dim) -> Option<Dim> {
        if let Some(poisoned) = self.poison(other) {
            return Some(poisoned.clone());
        }
        let terms = self.terms.iter().chain(&other.terms).cloned();
        Dim::polynomial(self.constant.checked_add(other.constant)?, terms)
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
        Dim::polynomial(self.constant.checked_mul(factor)?, terms)
    }

    /// `self - other`; `None` on overflow.
    pub fn checked_sub(&self, other: &Dim) -> Option<Dim> {
        self.checked_add(&other.checked_scale(-1)?)
    }

    /// `self · other`; `None` on overflow, or if the product has more than [`MAX_TERMS`] terms or
    /// [`MAX_FACTORS`] factors in one.
    pub fn checked_mul(&self, other: &Dim) -> Option<Dim> {
        if let Some(poisoned) = self.poison(other) {
            return Some(poisoned.clone());
        }
        Some(Dim::from_polynomial(self.to_polynomial().times(&other.to_polynomial())?))
    }

    /// `⌊self / divisor⌋` for a positive divisor that divides all coefficients of products.
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
        Dim::polynomial(self.constant.div_euclid(divisor), terms)
    }

    /// `self / divisor` for a positive divisor, if the remainder is 0 for all values of the
    /// variables.
    pub fn checked_exact_div(&self, divisor: &Dim) -> Option<Dim> {
        if let Some(poisoned) = self.poison(divisor) {
            return Some(poisoned.clone());
        }
        if divisor.as_constant().is_some_and(|number| number <= 0) {
            return None;
        }
        let quotient = self.to_polynomial().divided_by(&divisor.to_polynomial())?;
        Some(Dim::from_polynomial(quotient))
    }

    /// True if the dimension is at least `bound` for all values of the variables (each at least
    /// 1). Some polynomials for which this holds are not recognized: the test is that no
    /// coefficient is negative if each variable is written as 1 + another one, which may be 0.
    pub fn at_least(&self, bound: i64) -> bool {
        let shifted = self.to_polynomial().in_excess_over_one();
        shifted.is_some_and(|p| p.constant() >= bound && p.has_no_negative_term())
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
        let overflow = || Diagnostic::new(format!("dimension `{self}` overflows with {binding}"));
        let mut sum = Polynomial::default();
        sum.add(Product::default(), self.constant).ok_or_else(overflow)?;
        for (product, coefficient) in &self.terms {
            let (open, number) = product.bind(binding).ok_or_else(overflow)?;
            let number = number.checked_mul(*coefficient).ok_or_else(overflow)?;
            sum.add(open, number).ok_or_else(overflow)?;
        }
        Ok(Dim::from_polynomial(sum))
    }

    /// Adds the names of the variables to `names`.
    pub fn collect_variables(&self, names: &mut std::collections::BTreeSet<Arc<str>>) {
        names.extend(self.terms.iter().flat_map(|(product, _)| product.factors().iter().cloned()));
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
            [(product, coefficient)] if product.factors().len() == 1 => {
                let name = &product.factors()[0];
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

impl fmt::Display for Dim {
    /// `2*B+B*T+1`, `B+-1`: terms in order, then the constant, as the parser reads it. A poisoned
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
