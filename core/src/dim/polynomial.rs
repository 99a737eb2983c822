//! Polynomials over dimension variables with integer coefficients.
//!
//! Division is the usual one by leading terms, in the *graded lexicographic* order of products: by
//! the number of factors, then by the first name at which they differ, of which the one that comes
//! first in the alphabet is the larger (Cox, Little and O'Shea, *Ideals, Varieties, and
//! Algorithms*, chapter 2).

use super::Binding;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Most terms with variables of one dimension.
pub const MAX_TERMS: usize = 16;

/// Most factors of one term.
pub const MAX_FACTORS: usize = 8;

/// A product of variables, sorted by name; a power is a repeated factor.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct Product(Vec<Arc<str>>);

impl Product {
    /// A variable.
    pub fn variable(name: &str) -> Self {
        Product(vec![name.into()])
    }

    /// The product of variables.
    pub fn of(factors: impl IntoIterator<Item = Arc<str>>) -> Self {
        let mut factors: Vec<Arc<str>> = factors.into_iter().collect();
        factors.sort();
        Product(factors)
    }

    /// The names of its factors, sorted.
    pub fn factors(&self) -> &[Arc<str>] {
        &self.0
    }

    fn times(&self, other: &Product) -> Product {
        Product::of(self.0.iter().chain(&other.0).cloned())
    }

    /// `self / divisor`, if each factor of the divisor is one of `self`.
    fn divided_by(&self, divisor: &Product) -> Option<Product> {
        let mut rest = self.0.clone();
        for factor in &divisor.0 {
            rest.remove(rest.iter().position(|own| own == factor)?);
        }
        Some(Product(rest))
    }

    /// The factors that are not bound, and the product of the others; `None` on overflow.
    pub(super) fn bind(&self, binding: &Binding) -> Option<(Product, i64)> {
        let mut number = 1i64;
        let mut open = Vec::new();
        for name in &self.0 {
            match binding.get(name) {
                Some(value) => number = number.checked_mul(value)?,
                None => open.push(name.clone()),
            }
        }
        Some((Product(open), number))
    }

    /// The graded lexicographic order.
    fn compare(&self, other: &Product) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| other.0.cmp(&self.0))
    }
}

impl fmt::Display for Product {
    /// `B*T`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .enumerate()
            .try_for_each(|(i, name)| write!(f, "{}{name}", if i > 0 { "*" } else { "" }))
    }
}

/// Coefficients by products; the constant is that of the empty product. No coefficient is 0.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Polynomial(BTreeMap<Product, i64>);

impl Polynomial {
    pub(super) fn of(constant: i64, terms: &[(Product, i64)]) -> Self {
        let mut map: BTreeMap<Product, i64> = terms.iter().cloned().collect();
        if constant != 0 {
            map.insert(Product::default(), constant);
        }
        Polynomial(map)
    }

    /// The constant, and the terms with variables.
    pub(super) fn into_terms(mut self) -> (i64, Vec<(Product, i64)>) {
        let constant = self.0.remove(&Product::default()).unwrap_or(0);
        (constant, self.0.into_iter().collect())
    }

    pub(super) fn constant(&self) -> i64 {
        self.0.get(&Product::default()).copied().unwrap_or(0)
    }

    /// True if no coefficient of a product of variables is negative.
    pub(super) fn has_no_negative_term(&self) -> bool {
        self.0.iter().all(|(product, c)| *c >= 0 || product.0.is_empty())
    }

    /// Adds a term; `None` on overflow.
    pub(super) fn add(&mut self, product: Product, coefficient: i64) -> Option<()> {
        let sum = self.0.get(&product).copied().unwrap_or(0).checked_add(coefficient)?;
        match sum {
            0 => drop(self.0.remove(&product)),
            _ => drop(self.0.insert(product, sum)),
        }
        Some(())
    }

    /// True if the polynomial is within the limits of a dimension.
    fn is_small(&self) -> bool {
        // The constant may be one entry more.
        self.0.len() <= MAX_TERMS + usize::from(self.constant() != 0)
            && self.0.keys().all(|product| product.0.len() <= MAX_FACTORS)
    }

    /// The product; `None` on overflow or beyond the limits.
    pub(super) fn times(&self, other: &Polynomial) -> Option<Polynomial> {
        let mut sum = Polynomial::default();
        for (left, a) in &self.0 {
            for (right, b) in &other.0 {
                sum.add(left.times(right), a.checked_mul(*b)?)?;
            }
        }
        sum.is_small().then_some(sum)
    }

    fn leading(&self) -> Option<(&Product, i64)> {
        self.0.iter().max_by(|(a, _), (b, _)| a.compare(b)).map(|(product, c)| (product, *c))
    }

    /// The quotient, if there is no remainder; `None` otherwise, on overflow, or beyond the limits.
    pub(super) fn divided_by(&self, divisor: &Polynomial) -> Option<Polynomial> {
        let (lead, coefficient) = divisor.leading()?;
        let mut rest = self.clone();
        let mut quotient = Polynomial::default();
        while let Some((product, c)) = rest.leading() {
            if c.checked_rem(coefficient)? != 0 {
                return None;
            }
            let (product, c) = (product.divided_by(lead)?, c.checked_div(coefficient)?);
            for (own, b) in &divisor.0 {
                rest.add(own.times(&product), c.checked_mul(*b)?.checked_neg()?)?;
            }
            quotient.add(product, c)?;
            if !quotient.is_small() {
                return None;
            }
        }
        Some(quotient)
    }

    /// The same polynomial in other variables: each variable v is written as 1 + v. `None` on
    /// overflow or beyond the limits.
    pub(super) fn in_excess_over_one(&self) -> Option<Polynomial> {
        let mut sum = Polynomial::default();
        for (product, coefficient) in &self.0 {
            // Each factor is either 1 or its variable.
            if product.0.len() > MAX_FACTORS {
                return None;
            }
            for chosen in 0..1usize << product.0.len() {
                let factors = product.0.iter().enumerate().filter(|(i, _)| chosen >> i & 1 == 1);
                sum.add(Product::of(factors.map(|(_, name)| name.clone())), *coefficient)?;
            }
        }
        Some(sum)
    }
}
