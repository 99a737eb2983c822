//! Quasi-affine index expressions and their guards.
//!
//! Expressions wrap in 64-bit integers, like the arithmetic that builds them, so a normal form
//! equals the expression it was made from. No wrapping occurs where [`super::verify()`] has
//! bounded an index.

use super::{AxisId, Reg};

/// `constant + Σ coefficient · term`, in normal form: terms sorted, each once, no coefficient 0.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Affine {
    /// The constant term.
    pub constant: i64,
    /// Terms with their coefficients, sorted by term.
    pub terms: Vec<(Term, i64)>,
}

/// An atom of an index expression.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Term {
    /// The counter of an axis.
    Axis(AxisId),
    /// The value of an integer register (i32 or i64): an index from data.
    Reg(Reg),
    /// `floor(expression / divisor)`, divisor ≥ 1.
    FloorDiv(Box<Affine>, i64),
    /// `expression - divisor · floor(expression / divisor)`, divisor ≥ 1.
    Mod(Box<Affine>, i64),
}

/// The condition `low <= index < high`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Guard {
    /// The tested expression.
    pub index: Affine,
    /// Least value that passes.
    pub low: i64,
    /// Exclusive upper bound of the values that pass.
    pub high: i64,
}

impl Affine {
    /// A number.
    pub fn constant(value: i64) -> Self {
        Affine { constant: value, terms: Vec::new() }
    }

    /// An axis' counter.
    pub fn axis(axis: AxisId) -> Self {
        Affine { constant: 0, terms: vec![(Term::Axis(axis), 1)] }
    }

    /// An integer register's value.
    pub fn reg(reg: Reg) -> Self {
        Affine { constant: 0, terms: vec![(Term::Reg(reg), 1)] }
    }

    /// The number, if there are no terms.
    pub fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The coefficient of an axis in the sum itself, outside divisions.
    pub fn coefficient(&self, axis: AxisId) -> i64 {
        let found = self.terms.iter().find(|(term, _)| *term == Term::Axis(axis));
        found.map_or(0, |(_, factor)| *factor)
    }

    /// Builds the normal form from terms in any order.
    pub fn from_terms(constant: i64, terms: impl IntoIterator<Item = (Term, i64)>) -> Self {
        let mut sum = std::collections::BTreeMap::new();
        for (term, coefficient) in terms {
            let entry: &mut i64 = sum.entry(term).or_default();
            *entry = entry.wrapping_add(coefficient);
        }
        Affine { constant, terms: sum.into_iter().filter(|(_, c)| *c != 0).collect() }
    }

    /// `self + other`.
    #[must_use]
    pub fn add(&self, other: &Affine) -> Self {
        Affine::from_terms(
            self.constant.wrapping_add(other.constant),
            self.terms.iter().chain(&other.terms).cloned(),
        )
    }

    /// `self + value`.
    #[must_use]
    pub fn offset(&self, value: i64) -> Self {
        Affine { constant: self.constant.wrapping_add(value), terms: self.terms.clone() }
    }

    /// `self · factor`.
    #[must_use]
    pub fn scale(&self, factor: i64) -> Self {
        Affine::from_terms(
            self.constant.wrapping_mul(factor),
            self.terms.iter().map(|(t, c)| (t.clone(), c.wrapping_mul(factor))),
        )
    }

    /// `floor(self / divisor)` for a positive divisor. Multiples of the divisor are divided
    /// exactly, and nested divisions are merged where possible.
    #[must_use]
    pub fn floor_div(&self, divisor: i64) -> Self {
        if divisor == 1 {
            return self.clone();
        }
        let (outer, inner) = self.split(divisor);
        let rest = match inner.terms.as_slice() {
            [] => Affine::default(),
            // ⌊(⌊e / m⌋ + c) / d⌋ = ⌊(e + c·m) / (m·d)⌋
            [(Term::FloorDiv(e, m), 1)] if m.checked_mul(divisor).is_some() => {
                e.offset(inner.constant * m).floor_div(m * divisor)
            }
            // ⌊(e mod k·d) / d⌋ = ⌊e / d⌋ mod k
            [(Term::Mod(e, m), 1)] if inner.constant == 0 && m % divisor == 0 => {
                e.floor_div(divisor).modulo(m / divisor)
            }
            _ => Affine { constant: 0, terms: vec![(Term::FloorDiv(Box::new(inner), divisor), 1)] },
        };
        outer.add(&rest)
    }

    /// `self mod divisor` for a positive divisor, in `0..divisor`. Multiples of the divisor are
    /// dropped.
    #[must_use]
    pub fn modulo(&self, divisor: i64) -> Self {
        let (_, inner) = self.split(divisor);
        match inner.terms.as_slice() {
            [] => Affine::constant(inner.constant),
            // (e mod k·d + c) mod d = (e + c) mod d
            [(Term::Mod(e, m), 1)] if m % divisor == 0 => e.offset(inner.constant).modulo(divisor),
            _ => Affine { constant: 0, terms: vec![(Term::Mod(Box::new(inner), divisor), 1)] },
        }
    }

    /// `self = divisor · outer + inner` with every multiple of the divisor in `outer`.
    fn split(&self, divisor: i64) -> (Affine, Affine) {
        let (whole, part): (Vec<_>, Vec<_>) =
            self.terms.iter().cloned().partition(|(_, c)| c % divisor == 0);
        let outer = Affine::from_terms(
            self.constant.div_euclid(divisor),
            whole.into_iter().map(|(t, c)| (t, c / divisor)),
        );
        (outer, Affine { constant: self.constant.rem_euclid(divisor), terms: part })
    }

    /// Calls `f` for every term, including those inside divisions.
    pub fn visit_terms(&self, f: &mut impl FnMut(&Term)) {
        for (term, _) in &self.terms {
            f(term);
            if let Term::FloorDiv(inner, _) | Term::Mod(inner, _) = term {
                inner.visit_terms(f);
            }
        }
    }

    /// The value for given values of axes and registers.
    pub fn evaluate(&self, axis: &impl Fn(AxisId) -> i64, reg: &impl Fn(Reg) -> i64) -> i64 {
        self.terms.iter().fold(self.constant, |sum, (term, coefficient)| {
            let value = match term {
                Term::Axis(a) => axis(*a),
                Term::Reg(r) => reg(*r),
                Term::FloorDiv(inner, d) => inner.evaluate(axis, reg).div_euclid(*d),
                Term::Mod(inner, d) => inner.evaluate(axis, reg).rem_euclid(*d),
            };
            sum.wrapping_add(value.wrapping_mul(*coefficient))
        })
    }

    /// Replaces axes and registers by expressions.
    #[must_use]
    pub fn substitute(
        &self,
        axis: &impl Fn(AxisId) -> Affine,
        reg: &impl Fn(Reg) -> Affine,
    ) -> Affine {
        self.terms.iter().fold(Affine::constant(self.constant), |sum, (term, coefficient)| {
            let value = match term {
                Term::Axis(a) => axis(*a),
                Term::Reg(r) => reg(*r),
                Term::FloorDiv(inner, d) => inner.substitute(axis, reg).floor_div(*d),
                Term::Mod(inner, d) => inner.substitute(axis, reg).modulo(*d),
            };
            sum.add(&value.scale(*coefficient))
        })
    }
}
