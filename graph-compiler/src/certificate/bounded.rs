//! Numbers with a bound on the error of a machine: running error analysis (Wilkinson, *Error
//! Analysis of Floating-Point Computation*, 1960; Higham, *Accuracy and Stability of Numerical
//! Algorithms*, §3.3).
//!
//! The graph interpreter runs over any [`Real`]. An element of [`Bounded`] is a value in f64 and an
//! error bound. The bound covers the distance between the exact value of the graph over the reals
//! and its value on a machine, which rounds to the stated dtypes and sums in any order. So two
//! graphs with the same meaning differ by at most the sum of their bounds, and no tolerance is
//! guessed:
//!
//! - Within an equation an element keeps the sum of the magnitudes of its terms (`size`), and the
//!   number of roundings that a term may pass (`terms`). For every order of n additions, the error
//!   is at most n·u·Σ|x|.
//! - The errors of operands propagate: through products and quotients by their rules, through
//!   functions by their values at both ends of the interval.
//! - Each equation rounds once more to its dtype. Within an equation halves are carried in f32.
//!
//! A difference forgets that the variance of numbers is positive, and a bound that exceeds the
//! variance would reach the pole of its reciprocal root. So an element also keeps a lower bound of
//! a machine's value where one follows without the error: a square is at least 0, and a sum of
//! such numbers at least the sum of their lower bounds.
//!
//! At a pole, at the end of a function's domain and beyond the greatest number of the dtype, no
//! bound is finite: the error of the element is infinite. It stays infinite in all that is computed
//! from the element, except where a choice does not take it.
//!
//! An error may *decide* something: a comparison, a floor, an index. Arithmetic on single elements
//! cannot bound the consequences, so the methods of [`Real`] follow the exact value, and note the
//! doubt for the thread ([`watch`]). [`choice`](super::choice) looks at the equation as a whole.
//!
//! An element of an integer array may be uncertain. It is then a [`Bounded`] in that array, in
//! place of bits: the integers within the error of its value.

use super::functions::{Approximation, MONOTONE, QUOTIENT, approximation, has_pole};
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use wengert_core::graph::Equation;
use wengert_core::interpret::{Array, Real, Regions};
use wengert_core::{DType, LocationId, Result, Scalar, TensorType};

thread_local! {
    static DOUBT: Cell<bool> = const { Cell::new(false) };
    /// Whether kernels have approximate instructions.
    static APPROXIMATE: Cell<bool> = const { Cell::new(false) };
    /// The equations at which a bound was lost. An [`Origin`] is a position here, plus one.
    static PLACES: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
}

/// Bound on a function's error, in roundings of ½ ULP. The largest value of
/// [`wengert_core::math::ulp_bound`] is 2 ULP, and some ops apply a few more instructions to the
/// result of such a function.
const FUNCTION: f64 = 16.0;

/// A unit roundoff between those of f64 and of f32.
const F64_UNIT: f64 = 1e-12;

/// Factor for products of errors. The bounds are correct to first order, and this factor covers the
/// higher orders.
const SECOND_ORDER: f64 = 1.0 + 1e-6;

/// Points within the interval of an operand at which a function is evaluated, beside the ends.
const WITHIN: [f64; 4] = [-0.7, -0.3, 0.3, 0.7];

/// The equation at which the bound of an element was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The location of the equation, in the table of its function.
    pub location: LocationId,
    /// Name of its op.
    pub op: &'static str,
}

/// Where the bound of an element was lost: a number of a [`Place`], or 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Origin(u32);

/// A number and a bound of its error.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounded {
    /// The exact value.
    pub value: f64,
    error: f64,
    /// The sum of the magnitudes of the terms that the current equation has added.
    size: f64,
    /// The number of roundings that a term of the current equation has passed.
    terms: f64,
    /// The unit roundoff of these roundings.
    unit: f64,
    /// A lower bound of a machine's value, of at least 0, before the roundings of the current
    /// equation; else −∞. A sum has one if all of its terms do.
    least: f64,
    /// The dtype of the equation that computed the number, after it has been rounded.
    rounded: Option<DType>,
    origin: Origin,
}

/// The unit roundoff of the arithmetic in which an equation computes results of a dtype.
fn unit_of_arithmetic(dtype: DType) -> f64 {
    if dtype == DType::F64 { dtype } else { DType::F32 }.unit_roundoff()
}

fn doubtful() {
    DOUBT.set(true);
}

/// Runs `f`. Returns its result, and whether an error could have changed a decision in it.
pub(super) fn watch<T>(f: impl FnOnce() -> T) -> (T, bool) {
    let before = DOUBT.replace(false);
    let result = f();
    (result, DOUBT.replace(before))
}

/// Runs `f`, with bounds for kernels that have approximate instructions or not.
pub(super) fn with_approximations<T>(are_used: bool, f: impl FnOnce() -> T) -> T {
    let before = APPROXIMATE.replace(are_used);
    let result = f();
    APPROXIMATE.set(before);
    result
}

/// Forgets the places of earlier runs.
pub(super) fn forget_places() {
    PLACES.with_borrow_mut(Vec::clear);
}

impl Bounded {
    fn new(value: f64, error: f64, size: f64, terms: f64, unit: f64, origin: Origin) -> Self {
        let is_lost = error.is_nan() || error == f64::INFINITY;
        // An infinity is exact on every machine, unless a decision led to it.
        let (error, size) = if value.is_finite() { (error, size) } else { (0.0, 0.0) };
        let is_lost = is_lost || size.is_nan() || size == f64::INFINITY;
        let error = if is_lost { f64::INFINITY } else { error * SECOND_ORDER };
        let origin = if is_lost { origin } else { Origin(0) };
        let least = f64::NEG_INFINITY;
        Bounded { value, error, size, terms, unit, least, rounded: None, origin }
    }

    /// The same number, of which a machine's value is at least `least`, if that is not negative.
    fn at_least(self, least: f64) -> Self {
        let is_known = least >= 0.0 && self.error < f64::INFINITY && self.value.is_finite();
        Bounded { least: if is_known { least } else { f64::NEG_INFINITY }, ..self }
    }

    /// An input element.
    pub(super) fn given(value: f64, dtype: DType) -> Self {
        Bounded::exact(value, dtype)
    }

    /// A value of the dtype, without an error.
    pub(super) fn exact(value: f64, dtype: DType) -> Self {
        Bounded::settled_at(value, 0.0, dtype)
    }

    /// A value that an equation does not round: all numbers within the error are of its dtype.
    pub(super) fn settled_at(value: f64, error: f64, dtype: DType) -> Self {
        let unit = unit_of_arithmetic(dtype);
        let number = Bounded::new(value, 0.0, value.abs(), 0.0, unit, Origin(0));
        Bounded { error, rounded: Some(dtype), ..number }
    }

    /// The same value without a bound.
    pub(super) fn lost(self) -> Self {
        Bounded { error: f64::INFINITY, least: f64::NEG_INFINITY, ..self }
    }

    /// Whether there is a bound.
    pub fn is_bounded(&self) -> bool {
        self.error() < f64::INFINITY
    }

    /// Where the bound was lost.
    pub fn lost_at(&self) -> Option<Place> {
        let number = (self.origin.0 as usize).checked_sub(1)?;
        PLACES.with_borrow(|places| places.get(number).copied())
    }

    /// Marks an element that has lost its bound in this equation.
    pub(super) fn mark(&mut self, place: Place) {
        if self.is_bounded() || self.origin != Origin(0) {
            return;
        }
        self.origin = PLACES.with_borrow_mut(|places| {
            if places.last() != Some(&place) {
                places.push(place);
            }
            Origin(u32::try_from(places.len()).unwrap_or(0))
        });
    }

    /// A bound on the distance from a machine's value. It includes the roundings of the current
    /// equation.
    pub fn error(&self) -> f64 {
        if self.terms == 0.0 {
            return self.error;
        }
        // The machine's terms may exceed the exact ones by the error.
        self.error + self.terms * (self.unit * (self.size + self.error) + self.underflow())
    }

    /// What approximate instructions add to the error of a function at this number. Those of f64
    /// are exact.
    fn approximation(&self, name: &str) -> Approximation {
        let size = self.value.abs() + self.error;
        match APPROXIMATE.get() && self.unit > F64_UNIT {
            true => approximation(name, if size.is_nan() { f64::INFINITY } else { size }),
            false => Approximation::default(),
        }
    }

    /// The least positive number of the arithmetic.
    fn underflow(&self) -> f64 {
        if self.unit > F64_UNIT { 1e-44 } else { 5e-324 }
    }

    /// The least value of a machine.
    fn low(&self) -> f64 {
        let low = self.value - self.error();
        if self.least < 0.0 {
            return low;
        }
        let part = self.terms * self.unit * SECOND_ORDER;
        low.max(self.least * (1.0 - part) - self.terms * self.underflow()).max(0.0)
    }

    /// A lower bound of at least 0 for a term of a sum or a factor, as [`least`](Self::least).
    fn known(&self) -> f64 {
        let least = if self.terms == 0.0 { self.low() } else { self.least };
        if least >= 0.0 { least } else { f64::NEG_INFINITY }
    }

    /// The least and the greatest value of a machine.
    pub fn ends(&self) -> [f64; 2] {
        let error = self.error();
        if error == 0.0 { [self.value; 2] } else { [self.low(), self.value + error] }
    }

    /// The union of two possible results, of which the first is the exact one.
    pub(super) fn union(self, other: Self) -> Self {
        let (x, y) = (self.settled(), other.settled());
        let is_same = x.value == y.value || x.value.is_nan() && y.value.is_nan();
        let apart = if is_same { 0.0 } else { (x.value - y.value).abs() };
        let error = x.error.max(apart + y.error);
        let origin = if x.error == f64::INFINITY { x.origin } else { y.origin };
        let lost = apart.is_nan() || error == f64::INFINITY;
        let both = Bounded::new(x.value, 0.0, x.value.abs(), 0.0, x.unit.max(y.unit), Origin(0));
        let rounded = if self.rounded == other.rounded { self.rounded } else { None };
        // A value that is infinite or NaN, and may be another one, has no bound.
        let error = if lost { f64::INFINITY } else { error };
        Bounded { error, rounded, origin, ..both }.at_least(x.low().min(y.low()))
    }

    /// The number as an operand of an op that is not a sum.
    fn settled(&self) -> Self {
        let (error, size) = (self.error(), self.value.abs());
        Bounded { error, size, terms: 0.0, ..*self }.at_least(self.low())
    }

    fn origin_with(&self, other: &Self) -> Origin {
        if self.origin == Origin(0) { other.origin } else { self.origin }
    }
}

impl Real for Bounded {
    const ROUNDS: bool = true;
    fn from_f64(value: f64) -> Self {
        Bounded::exact(value, DType::F64)
    }
    fn from_i64(value: i64) -> Self {
        Bounded::from_f64(value as f64)
    }
    fn to_f64(&self) -> f64 {
        // The caller tests whether it is finite. Conversions to integers are in `choice`.
        if !self.is_bounded() {
            doubtful();
        }
        self.value
    }
    fn round_to(&self, dtype: DType) -> Self {
        let is_exact =
            || self.error == 0.0 && Scalar::from_f64(dtype, self.value).to_f64() == self.value;
        if self.terms == 0.0 && (self.rounded == Some(dtype) || is_exact()) {
            return Bounded { rounded: Some(dtype), ..*self };
        }
        let [tiny, greatest] =
            [Scalar::least_positive, Scalar::greatest_finite].map(|of| of(dtype).to_f64());
        let (unit, relative) = (unit_of_arithmetic(dtype), dtype.unit_roundoff());
        let inner = Bounded { unit: self.unit.max(unit), ..*self }.error();
        let mut error = inner + relative * (self.value.abs() + inner) + tiny;
        if !self.value.is_finite() && inner < f64::INFINITY {
            // Every dtype has infinities and NaN.
            error = 0.0;
        }
        if self.value.is_finite() && self.value.abs() + error > greatest {
            error = f64::INFINITY;
        }
        let rounded = Bounded::new(self.value, error, self.value.abs(), 0.0, unit, self.origin);
        let low = self.low();
        let least = if low < 0.0 { low } else { (low - relative * low - tiny).max(0.0) };
        Bounded { rounded: Some(dtype), ..rounded }.at_least(least)
    }
    fn add(&self, other: &Self) -> Self {
        let terms = self.terms.max(other.terms) + 1.0;
        let (error, size) = (self.error + other.error, self.size + other.size);
        let (unit, origin) = (self.unit.max(other.unit), self.origin_with(other));
        Bounded::new(self.value + other.value, error, size, terms, unit, origin)
            .at_least(self.known() + other.known())
    }
    fn sub(&self, other: &Self) -> Self {
        self.add(&other.neg())
    }
    fn mul(&self, other: &Self) -> Self {
        let (x, y) = (self.value.abs(), other.value.abs());
        let error = x * other.error + y * self.error + self.error * other.error;
        let terms = self.terms + other.terms + 1.0;
        let (unit, origin) = (self.unit.max(other.unit), self.origin_with(other));
        let (x, y) = (self.known(), other.known());
        let least = match x >= 0.0 && y >= 0.0 {
            true => x * y,
            false if std::ptr::eq(self, other) => 0.0,
            false => f64::NEG_INFINITY,
        };
        Bounded::new(self.value * other.value, error, self.size * other.size, terms, unit, origin)
            .at_least(least)
    }
    fn div(&self, other: &Self) -> Result<Self> {
        let (x, y) = (self.settled(), other.settled());
        let quotient = x.value / y.value;
        // The least magnitude of the divisor.
        let divisor = (y.value.abs() - y.error).max(y.least);
        let mut error = (x.error + quotient.abs() * y.error) / divisor;
        if y.error > 0.0 && divisor <= 0.0 || x.error == f64::INFINITY {
            error = f64::INFINITY;
        }
        let least = if y.low() >= 0.0 { x.low() / (y.value + y.error) } else { -1.0 };
        let (unit, origin) = (x.unit.max(y.unit), x.origin_with(&y));
        // A quotient without an error is exact if it is infinite or NaN.
        let error = if x.error + y.error == 0.0 { 0.0 } else { error };
        let widest = if x.unit > y.unit { x } else { y };
        let Approximation { relative, absolute } = widest.approximation(QUOTIENT);
        let (error, terms) = (error + absolute, 1.0 + relative / unit);
        Ok(Bounded::new(quotient, error, quotient.abs(), terms, unit, origin)
            .at_least(if least < 0.0 { least } else { (least - absolute).max(0.0) }))
    }
    fn neg(&self) -> Self {
        Bounded { value: -self.value, least: f64::NEG_INFINITY, ..*self }
    }
    fn compare(&self, other: &Self) -> Option<Ordering> {
        // A comparison of a number with itself tests for NaN.
        if !std::ptr::eq(self, other) {
            let error = self.error() + other.error();
            let is_near = (self.value - other.value).abs() <= error;
            if error > 0.0 && is_near || error == f64::INFINITY {
                doubtful();
            }
        }
        self.value.partial_cmp(&other.value)
    }
    fn apply(&self, name: &str, f: impl Fn(f64) -> f64) -> Result<Self> {
        let x = self.settled();
        let value = f(x.value);
        let (mut spread, mut flat, mut least) = (0.0f64, 0.0, f64::NEG_INFINITY);
        if x.error > 0.0 {
            let [low, high] = x.ends();
            let inner = WITHIN.map(|part| (x.value + part * x.error).max(low));
            for at in [low, high].into_iter().chain(inner) {
                let distance = (f(at) - value).abs();
                // The interval crosses the end of the function's domain.
                spread = if distance.is_nan() { f64::INFINITY } else { spread.max(distance) };
            }
            if value.is_nan() && x.value.is_nan() {
                spread = 0.0;
            }
            if x.error == f64::INFINITY || has_pole(name, low, high) {
                spread = f64::INFINITY;
            }
            if MONOTONE.contains(&name) {
                least = f(low).min(f(high));
            } else {
                // Where a function is flat at x, its values at the points do not bound the error,
                // so the square of the error is added.
                flat = x.error * x.error;
            }
        }
        let Approximation { relative, absolute } = x.approximation(name);
        let terms = FUNCTION + relative / x.unit;
        // The sign of an approximate result is that of the exact one.
        let least = if least < 0.0 { least } else { (least - absolute).max(0.0) };
        Ok(Bounded::new(value, spread + flat + absolute, value.abs(), terms, x.unit, x.origin)
            .at_least(least))
    }
    fn apply2(&self, other: &Self, name: &str, f: impl Fn(f64, f64) -> f64) -> Result<Self> {
        let (x, y) = (self.settled(), other.settled());
        let value = f(x.value, y.value);
        let mut spread = 0.0f64;
        if x.error + y.error > 0.0 {
            for (a, b) in [(-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0), (1.0, 1.0)] {
                let end = (f(x.value + a * x.error, y.value + b * y.error) - value).abs();
                spread = if end.is_nan() { f64::INFINITY } else { spread.max(end) };
            }
            let is_cut = match name {
                "rem" => {
                    let quotient = x.value / y.value;
                    let error =
                        (x.error + quotient.abs() * y.error) / (y.value.abs() - y.error).max(0.0);
                    (quotient - error).trunc() != (quotient + error).trunc()
                }
                // The angle jumps across the negative axis, which is at its second operand.
                "atan2" => x.value.abs() <= x.error && y.value - y.error <= 0.0,
                _ => false,
            };
            if is_cut || x.error + y.error == f64::INFINITY {
                spread = f64::INFINITY;
            }
        }
        let (unit, origin) = (x.unit.max(y.unit), x.origin_with(&y));
        Ok(Bounded::new(value, spread, value.abs(), FUNCTION, unit, origin))
    }
    fn floor(&self) -> Self {
        let [low, high] = self.ends().map(f64::floor);
        if low != high {
            doubtful();
        }
        let value = self.value.floor();
        let number = Bounded::new(value, 0.0, value.abs(), 0.0, self.unit, self.origin);
        // The integers around a number of a dtype are of that dtype.
        let rounded = self.rounded.filter(|_| self.terms == 0.0);
        let error = if self.is_bounded() { 0.0 } else { f64::INFINITY };
        Bounded { error, rounded, ..number }
    }
    fn is_zero(&self) -> bool {
        let error = self.error();
        if error > 0.0 && self.value.abs() <= error {
            doubtful();
        }
        self.value == 0.0
    }
    fn is_negative(&self) -> bool {
        // Callers only use the sign to form a magnitude, so both sides of zero give nearly the
        // same.
        self.value.is_sign_negative()
    }
    fn to_bits(&self) -> i64 {
        doubtful();
        self.value as i64
    }
    fn evaluate_equation(
        equation: &Equation,
        operands: &[Array<Self>],
        results: &[TensorType],
        regions: &Regions<'_>,
    ) -> Result<Vec<Array<Self>>> {
        super::choice::evaluate(equation, operands, results, regions)
    }
}
