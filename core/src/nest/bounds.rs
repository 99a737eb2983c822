//! Range analysis of index expressions: intervals, and the terms that an element determines.
//!
//! Intervals come from the extents of axes and the ranges of registers' dtypes, and are narrowed
//! by guards. A guard on `e` narrows every expression that is a multiple of `e` plus a rest, and
//! every single term that `e` bounds, also inside divisions. All arithmetic is on 128-bit
//! integers. An expression whose sum could leave 64 bits wraps, so its interval is every value.

use super::{Affine, AxisId, Guard, Nest, Reg, Term};
use crate::dtype::DType;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// `low..=high`; empty if `low > high`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// Least value.
    pub low: i128,
    /// Greatest value.
    pub high: i128,
}

impl Interval {
    /// Every 64-bit integer.
    pub const ALL: Interval = Interval { low: i64::MIN as i128, high: i64::MAX as i128 };

    /// True if no value is in it.
    pub fn is_empty(self) -> bool {
        self.low > self.high
    }

    /// Greatest difference of two of its values.
    pub fn width(self) -> i128 {
        (self.high - self.low).max(0)
    }

    /// The values in both.
    #[must_use]
    pub fn intersect(self, other: Interval) -> Interval {
        Interval { low: self.low.max(other.low), high: self.high.min(other.high) }
    }

    /// True if all values of `self` are in `low..high`.
    pub fn within(self, low: i128, high: i128) -> bool {
        self.is_empty() || (self.low >= low && self.high < high)
    }

    /// Values times a factor, both of at most 64 bits.
    fn scale(self, factor: i64) -> Interval {
        let (a, b) = (self.low * i128::from(factor), self.high * i128::from(factor));
        Interval { low: a.min(b), high: a.max(b) }
    }

    fn fits(self) -> bool {
        self.within(Interval::ALL.low, Interval::ALL.high + 1)
    }
}

/// Intervals of expressions of one nest where the given guards hold.
pub struct Ranges<'a> {
    nest: &'a Nest,
    guards: &'a [Guard],
    terms: RefCell<BTreeMap<Term, Interval>>,
}

impl<'a> Ranges<'a> {
    /// Intervals where `guards` hold.
    pub fn new(nest: &'a Nest, guards: &'a [Guard]) -> Self {
        Ranges { nest, guards, terms: RefCell::default() }
    }

    /// False if some guard provably always fails.
    pub fn reachable(&self) -> bool {
        self.guards.iter().all(|g| {
            let passing = Interval { low: g.low.into(), high: i128::from(g.high) - 1 };
            !self.of(&g.index).intersect(passing).is_empty()
        })
    }

    /// The values that `expression` may have; empty if the guards provably fail.
    pub fn of(&self, expression: &Affine) -> Interval {
        let mut result = self.sum(expression);
        for remainder in remainders(expression) {
            let (modulus, rest) = (self.term(&remainder.modulus), self.sum(&remainder.rest));
            if modulus.is_empty() || rest.is_empty() {
                continue;
            }
            let modulus = modulus.scale(remainder.factor);
            let narrowed = Interval { low: modulus.low + rest.low, high: modulus.high + rest.high };
            if narrowed.fits() {
                result = result.intersect(narrowed);
            }
        }
        for first in 0..self.guards.len() {
            // The rest of the expression after the first guard is narrowed by the others, as far
            // as they divide it too.
            let mut rest = expression.clone();
            let mut tested = Interval { low: 0, high: 0 };
            for guard in [first].into_iter().chain((0..self.guards.len()).filter(|g| *g != first)) {
                let guard = &self.guards[guard];
                let passing = Interval { low: guard.low.into(), high: i128::from(guard.high) - 1 };
                if passing.is_empty() {
                    return passing;
                }
                let Some((factor, left)) = quotient(&rest, &guard.index) else { continue };
                let passing = passing.scale(factor);
                tested =
                    Interval { low: tested.low + passing.low, high: tested.high + passing.high };
                rest = left;
                let left = self.sum(&rest);
                let narrowed =
                    Interval { low: tested.low + left.low, high: tested.high + left.high };
                if narrowed.fits() && !left.is_empty() {
                    result = result.intersect(narrowed);
                }
                if !tested.fits() {
                    break;
                }
            }
        }
        result
    }

    /// True if the sum of the terms cannot leave 64 bits.
    pub fn is_exact(&self, expression: &Affine) -> bool {
        self.plain_sum(expression).is_some_and(Interval::fits)
    }

    fn sum(&self, expression: &Affine) -> Interval {
        self.plain_sum(expression).filter(|i| i.fits()).unwrap_or(Interval::ALL)
    }

    fn plain_sum(&self, expression: &Affine) -> Option<Interval> {
        let constant = i128::from(expression.constant);
        let mut sum = Interval { low: constant, high: constant };
        for (term, factor) in &expression.terms {
            let range = self.term(term);
            if range.is_empty() {
                return Some(range);
            }
            let range = range.scale(*factor);
            sum = Interval {
                low: sum.low.checked_add(range.low)?,
                high: sum.high.checked_add(range.high)?,
            };
        }
        Some(sum)
    }

    /// The values that a term may have.
    pub fn term(&self, term: &Term) -> Interval {
        if let Some(known) = self.terms.borrow().get(term) {
            return *known;
        }
        let mut range = match term {
            Term::Axis(axis) => {
                let extent = self
                    .nest
                    .axes
                    .get(*axis)
                    .map_or(0, |a| a.extent.min(i64::MAX as usize) as i128);
                Interval { low: 0, high: extent - 1 }
            }
            Term::Reg(reg) if self.nest.registers.get(*reg) == Some(&DType::I32) => {
                Interval { low: i32::MIN.into(), high: i32::MAX.into() }
            }
            Term::Reg(_) => Interval::ALL,
            Term::FloorDiv(inner, d) => {
                let (inner, d) = (self.of(inner), i128::from(*d).max(1));
                Interval { low: inner.low.div_euclid(d), high: inner.high.div_euclid(d) }
            }
            Term::Mod(inner, d) => {
                let (inner, d) = (self.of(inner), i128::from(*d).max(1));
                if inner.low.div_euclid(d) == inner.high.div_euclid(d) {
                    Interval { low: inner.low.rem_euclid(d), high: inner.high.rem_euclid(d) }
                } else {
                    Interval { low: 0, high: d - 1 }
                }
            }
        };
        for guard in self.guards {
            if let [(tested, factor)] = guard.index.terms.as_slice()
                && tested == term
                && !range.is_empty()
            {
                range = range.intersect(solve(range, *factor, guard));
            }
        }
        self.terms.borrow_mut().insert(term.clone(), range);
        range
    }
}

/// A part of an expression that is a remainder of a division:
/// `expression = factor · modulus + rest`.
struct Remainder {
    factor: i64,
    modulus: Term,
    rest: Affine,
}

/// The parts `x − d · floor_div(x, d)` of an expression, times a factor. They arise from
/// comparing a position with the start of its window. The ranges of the terms alone give no
/// useful bound, since each may be large.
fn remainders(expression: &Affine) -> impl Iterator<Item = Remainder> + '_ {
    expression.terms.iter().filter_map(|(term, by)| {
        let Term::FloorDiv(inner, divisor) = term else { return None };
        let factor = by.checked_div(*divisor)?.checked_neg()?;
        let has = |term: &Term| expression.terms.iter().any(|(t, _)| t == term);
        if by % divisor != 0 || inner.terms.is_empty() || !inner.terms.iter().all(|(t, _)| has(t)) {
            return None;
        }
        // Expressions wrap, and so does this arithmetic: the identity holds either way.
        let quotient = Affine { constant: 0, terms: vec![(term.clone(), 1)] };
        let rest = expression
            .add(&quotient.scale(by.wrapping_neg()))
            .add(&inner.scale(factor.wrapping_neg()));
        Some(Remainder { factor, modulus: Term::Mod(inner.clone(), *divisor), rest })
    })
}

/// `expression = factor · divisor + rest`, where the terms of the rest are a proper subset of the
/// expression's.
fn quotient(expression: &Affine, divisor: &Affine) -> Option<(i64, Affine)> {
    let coefficient = |term: &Term| {
        let at = expression.terms.binary_search_by(|(t, _)| t.cmp(term)).ok()?;
        Some(expression.terms[at].1)
    };
    let (first, by) = divisor.terms.first()?;
    let whole = coefficient(first)?;
    // Terms that are not in the expression would make the analysis of one term recurse into
    // itself. The first term is removed from the rest, so chains of guards end.
    if whole.checked_rem(*by)? != 0 || divisor.terms.iter().any(|(t, _)| coefficient(t).is_none()) {
        return None;
    }
    let factor = whole.checked_div(*by)?;
    // Expressions wrap, and so does this arithmetic: the identity holds either way.
    Some((factor, expression.add(&divisor.scale(factor.wrapping_neg()))))
}

/// The values `t` of `range` with `guard.low <= factor · t + constant < guard.high`, if that sum
/// cannot wrap.
fn solve(range: Interval, factor: i64, guard: &Guard) -> Interval {
    let constant = i128::from(guard.index.constant);
    let scaled = range.scale(factor);
    let sum = Interval { low: scaled.low + constant, high: scaled.high + constant };
    if factor == 0 || !sum.fits() {
        return range;
    }
    let (low, high) = (i128::from(guard.low) - constant, i128::from(guard.high) - 1 - constant);
    let factor = i128::from(factor);
    let (low, high) = if factor > 0 { (low, high) } else { (-high, -low) };
    let factor = factor.abs();
    Interval { low: -(-low).div_euclid(factor), high: high.div_euclid(factor) }
}

/// Terms that are known to be equal in two iterations.
#[derive(Clone, Default)]
pub struct Known {
    terms: BTreeSet<Term>,
}

/// Finds the terms that are equal in any two iterations that agree on some expressions: here,
/// that access one element.
///
/// The method is syntactic and sound. In a sum, the term of the largest coefficient is determined
/// if the others together span less than that coefficient (mixed radix); determined terms are
/// then constants. An expression is determined if its floor division and its modulus by one
/// divisor are (delinearisation). A register is determined if the axes that it depends on are.
pub struct Agreement<'a> {
    /// Intervals of expressions that hold in both iterations.
    pub ranges: &'a Ranges<'a>,
    /// The axes that a register depends on; `None` if its value may differ even if all axes
    /// agree.
    pub depends: &'a dyn Fn(Reg) -> Option<Vec<AxisId>>,
}

impl Known {
    /// The counters of these axes.
    pub fn axes(axes: &[AxisId]) -> Known {
        Known { terms: axes.iter().map(|a| Term::Axis(*a)).collect() }
    }

    /// True if the counter of the axis is known.
    pub fn contains(&self, axis: AxisId) -> bool {
        self.terms.contains(&Term::Axis(axis))
    }
}

impl Agreement<'_> {
    /// The terms determined by the values of `expressions` and the terms in `known`.
    pub fn extend(&self, expressions: &[&Affine], mut known: Known) -> Known {
        let mut sums: Vec<Affine> = expressions.iter().map(|e| (*e).clone()).collect();
        let mut opened: BTreeSet<Term> = BTreeSet::new();
        loop {
            let mut progress = false;
            for sum in &sums {
                if let Some(term) = self.leading(sum, &known) {
                    known.terms.insert(term);
                    progress = true;
                }
            }
            let divisions: Vec<Term> =
                known.terms.iter().filter(|t| !opened.contains(t)).cloned().collect();
            for term in divisions {
                let (Term::FloorDiv(inner, d) | Term::Mod(inner, d)) = &term else { continue };
                if *d > 0
                    && self.determines(&inner.floor_div(*d), &known)
                    && self.determines(&inner.modulo(*d), &known)
                {
                    sums.push((**inner).clone());
                    opened.insert(term);
                    progress = true;
                }
            }
            if !progress {
                return known;
            }
        }
    }

    /// The term of a known sum that its value determines next.
    fn leading(&self, sum: &Affine, known: &Known) -> Option<Term> {
        let mut spans: Vec<(&Term, i128, i128)> = Vec::new();
        for (term, factor) in &sum.terms {
            if !self.determines_term(term, known) {
                let factor = i128::from(*factor).abs();
                spans.push((term, factor, factor.checked_mul(self.ranges.term(term).width())?));
            }
        }
        let (term, factor, _) = *spans.iter().max_by_key(|(_, factor, _)| *factor)?;
        let total = spans.iter().try_fold(0i128, |n, (_, _, span)| n.checked_add(*span))?;
        let others: i128 = spans.iter().filter(|(t, ..)| *t != term).map(|(.., span)| span).sum();
        // Sums wrap at 64 bits: a difference below 2^64 that wraps to 0 is 0.
        (others < factor && total < 1 << 64).then(|| term.clone())
    }

    fn determines(&self, expression: &Affine, known: &Known) -> bool {
        expression.terms.iter().all(|(t, _)| self.determines_term(t, known))
    }

    fn determines_term(&self, term: &Term, known: &Known) -> bool {
        known.terms.contains(term)
            || self.ranges.term(term).width() == 0
            || match term {
                Term::FloorDiv(inner, _) | Term::Mod(inner, _) => self.determines(inner, known),
                Term::Reg(reg) => (self.depends)(*reg).is_some_and(|axes| {
                    axes.iter().all(|a| self.determines_term(&Term::Axis(*a), known))
                }),
                Term::Axis(_) => false,
            }
    }
}

/// True if no iterations of the two accesses, even different ones, can name the same element.
pub fn disjoint(a: (&[Affine], &Ranges<'_>), b: (&[Affine], &Ranges<'_>)) -> bool {
    a.0.iter().zip(b.0).any(|(x, y)| {
        if a.1.of(x).intersect(b.1.of(y)).is_empty() {
            return true;
        }
        // Both are constant modulo the greatest common divisor of their coefficients.
        let coefficients = x.terms.iter().chain(&y.terms).map(|(_, c)| c.unsigned_abs());
        let common = coefficients.fold(0u64, gcd);
        let apart = (i128::from(x.constant) - i128::from(y.constant)).unsigned_abs();
        common > 1 && apart % u128::from(common) != 0 && a.1.is_exact(x) && b.1.is_exact(y)
    })
}

pub(super) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
