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
//! If the error could change a decision (a comparison, a floor, a pole, the greatest number of the
//! dtype), no bound holds. The number is then doubtful, and [`run`] returns no result.

use std::cell::Cell;
use std::cmp::Ordering;
use wengert_core::interpret::{self, Array, Real};
use wengert_core::{DType, Literal, Result, graph::Function};

thread_local! {
    static DOUBT: Cell<bool> = const { Cell::new(false) };
}

/// Bound on a function's error, in roundings of ½ ULP. The largest value of
/// [`wengert_core::math::ulp_bound`] is 2 ULP, and some ops apply a few more instructions to the
/// result of such a function.
const FUNCTION: f64 = 16.0;

/// Factor for products of errors. The bounds are correct to first order, and this factor covers the
/// higher orders.
const SECOND_ORDER: f64 = 1.0 + 1e-6;

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
    /// The dtype of the equation that computed the number, after it has been rounded.
    rounded: Option<DType>,
}

/// The unit roundoff of a dtype.
fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        DType::F32 => 2f64.powi(-24),
        _ => 2f64.powi(-53),
    }
}

/// The dtype in which an equation computes.
fn carried(dtype: DType) -> DType {
    if dtype == DType::F64 { dtype } else { DType::F32 }
}

/// The least positive number.
fn tiny(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-24),
        DType::BF16 => 2f64.powi(-133),
        DType::F32 => 2f64.powi(-149),
        _ => 5e-324,
    }
}

fn greatest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => 3.3895e38,
        DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    }
}

fn doubtful() {
    DOUBT.with(|doubt| doubt.set(true));
}

impl Bounded {
    fn new(value: f64, error: f64, size: f64, terms: f64, unit: f64) -> Self {
        // An infinity is exact on every machine, unless a decision led to it.
        let (error, size) = if value.is_finite() { (error, size) } else { (0.0, 0.0) };
        if error.is_nan() || size.is_nan() || error.is_infinite() || size.is_infinite() {
            doubtful();
        }
        Bounded { value, error: error * SECOND_ORDER, size, terms, unit, rounded: None }
    }

    /// An input element.
    fn given(value: f64, dtype: DType) -> Self {
        let exact = Bounded::new(value, 0.0, value.abs(), 0.0, unit(carried(dtype)));
        Bounded { rounded: Some(dtype), ..exact }
    }

    /// A bound on the distance from a machine's value. It includes the roundings of the current
    /// equation.
    pub fn error(&self) -> f64 {
        self.error
            + self.terms * (self.unit * self.size + if self.unit > 1e-12 { 1e-44 } else { 5e-324 })
    }

    /// The number as an operand of an op that is not a sum.
    fn settled(&self) -> Self {
        Bounded { error: self.error(), size: self.value.abs(), terms: 0.0, ..*self }
    }
}

impl Real for Bounded {
    const ROUNDS: bool = true;
    fn from_f64(value: f64) -> Self {
        Bounded::given(value, DType::F64)
    }
    fn from_i64(value: i64) -> Self {
        Bounded::from_f64(value as f64)
    }
    fn to_f64(&self) -> f64 {
        let error = self.error();
        // The caller converts the number to an integer, or tests whether it is finite.
        if error > 0.0 && (self.value - error).floor() != (self.value + error).floor() {
            doubtful();
        }
        self.value
    }
    fn round_to(&self, dtype: DType) -> Self {
        if self.terms == 0.0 && self.rounded == Some(dtype) {
            return *self;
        }
        let carried = carried(dtype);
        let inner = Bounded { unit: self.unit.max(unit(carried)), ..*self }.error();
        let error = inner + unit(dtype) * (self.value.abs() + inner) + tiny(dtype);
        if self.value.is_finite() && self.value.abs() + error > greatest(dtype) {
            doubtful();
        }
        let rounded = Bounded::new(self.value, error, self.value.abs(), 0.0, unit(carried));
        Bounded { rounded: Some(dtype), ..rounded }
    }
    fn add(&self, other: &Self) -> Self {
        let terms = self.terms.max(other.terms) + 1.0;
        let (error, size) = (self.error + other.error, self.size + other.size);
        Bounded::new(self.value + other.value, error, size, terms, self.unit.max(other.unit))
    }
    fn sub(&self, other: &Self) -> Self {
        self.add(&other.neg())
    }
    fn mul(&self, other: &Self) -> Self {
        let (x, y) = (self.value.abs(), other.value.abs());
        let error = x * other.error + y * self.error + self.error * other.error;
        let terms = self.terms + other.terms + 1.0;
        let unit = self.unit.max(other.unit);
        Bounded::new(self.value * other.value, error, self.size * other.size, terms, unit)
    }
    fn div(&self, other: &Self) -> Result<Self> {
        let (x, y) = (self.settled(), other.settled());
        if y.error > 0.0 && y.value.abs() <= y.error {
            doubtful();
        }
        let quotient = x.value / y.value;
        let error = (x.error + quotient.abs() * y.error) / (y.value.abs() - y.error);
        Ok(Bounded::new(quotient, error, quotient.abs(), 1.0, x.unit.max(y.unit)))
    }
    fn neg(&self) -> Self {
        Bounded { value: -self.value, ..*self }
    }
    fn compare(&self, other: &Self) -> Option<Ordering> {
        // A comparison of a number with itself tests for NaN.
        if !std::ptr::eq(self, other) {
            let error = self.error() + other.error();
            if error > 0.0 && (self.value - other.value).abs() <= error {
                doubtful();
            }
        }
        self.value.partial_cmp(&other.value)
    }
    fn apply(&self, _name: &str, f: impl Fn(f64) -> f64) -> Result<Self> {
        let x = self.settled();
        let value = f(x.value);
        let ends = [x.value - x.error, x.value + x.error].map(|end| (f(end) - value).abs());
        let spread = if x.error == 0.0 { 0.0 } else { ends[0].max(ends[1]) };
        // The interval crosses the end of the function's domain.
        if spread.is_nan() && !value.is_nan()
            || value.is_nan() && x.error > 0.0 && !x.value.is_nan()
        {
            doubtful();
        }
        // Where a function is flat at x, its values at the ends do not bound the error, so the
        // square of the error is added.
        let flat = if x.error == 0.0 { 0.0 } else { x.error * x.error };
        Ok(Bounded::new(value, spread + flat, value.abs(), FUNCTION, x.unit))
    }
    fn apply2(&self, other: &Self, name: &str, f: impl Fn(f64, f64) -> f64) -> Result<Self> {
        let (x, y) = (self.settled(), other.settled());
        let value = f(x.value, y.value);
        let mut spread = 0.0f64;
        for (a, b) in [(-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0), (1.0, 1.0)] {
            let end = (f(x.value + a * x.error, y.value + b * y.error) - value).abs();
            spread = if end.is_nan() { f64::NAN } else { spread.max(end) };
        }
        if value.is_nan() || spread.is_nan() {
            if x.error + y.error > 0.0 {
                doubtful();
            }
            spread = 0.0;
        }
        if name == "rem" && x.error + y.error > 0.0 {
            let quotient = x.value / y.value;
            let error = (x.error + quotient.abs() * y.error) / (y.value.abs() - y.error).max(0.0);
            if (quotient - error).trunc() != (quotient + error).trunc() {
                doubtful();
            }
        }
        Ok(Bounded::new(value, spread, value.abs(), FUNCTION, x.unit.max(y.unit)))
    }
    fn floor(&self) -> Self {
        let error = self.error();
        if (self.value - error).floor() != (self.value + error).floor() {
            doubtful();
        }
        Bounded::new(self.value.floor(), 0.0, self.value.abs(), 0.0, self.unit)
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
}

/// The results of a function on literals, with bounds. `None` if an error could have changed a
/// decision.
///
/// # Errors
/// Those of the interpreter.
pub fn run(function: &Function, inputs: &[Literal]) -> Result<Option<Vec<Array<Bounded>>>> {
    DOUBT.with(|doubt| doubt.set(false));
    let arrays = inputs.iter().map(given).collect::<Result<Vec<Array<Bounded>>>>()?;
    let results = interpret::evaluate_over(&function.body, &function.locations, &arrays)?;
    Ok((!DOUBT.with(Cell::get)).then_some(results))
}

fn given(literal: &Literal) -> Result<Array<Bounded>> {
    let dtype = literal.dtype();
    let cells = literal.scalars().map(|scalar| match scalar.to_i64() {
        Some(bits) => interpret::Cell::Bits(bits),
        None => interpret::Cell::Real(Bounded::given(scalar.to_f64(), dtype)),
    });
    Ok(Array::new(dtype, literal.shape().to_vec(), interpret::Cells::collect(cells)?))
}
