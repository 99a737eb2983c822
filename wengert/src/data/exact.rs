//! Elements of any dtype as exact numbers, and the search for elements that fail a check.

use std::fmt;
use wengert_core::{DType, Literal, Native, Scalar, with_native};

/// An element of any dtype, exactly.
#[derive(Clone, Copy)]
pub(crate) enum Number {
    Integer(i128),
    Real(f64),
}

impl Number {
    #[inline(always)]
    fn of<T: Native>(value: T) -> Number {
        match T::DTYPE {
            DType::U64 => Number::Integer(i128::from(value.to_bits64())),
            dtype if dtype.is_real() => Number::Real(value.to_f64()),
            _ => Number::Integer(i128::from(Scalar::of(value).to_i64().expect("it is no float"))),
        }
    }

    /// Element number `at` in row-major order.
    pub(crate) fn at(array: &Literal, at: usize) -> Number {
        with_native!(array.dtype(), T => {
            Number::of(array.as_slice::<T>().expect("the dtype is its own")[at])
        })
    }

    /// Whether an integer dtype holds this number exactly.
    #[inline(always)]
    pub(crate) fn fits(self, dtype: DType) -> bool {
        let integer = match self {
            Number::Integer(integer) => integer,
            // Beyond the greatest i128 the cast saturates; no dtype holds that value.
            Number::Real(real) if real.is_finite() && real.fract() == 0.0 => real as i128,
            Number::Real(_) => return false,
        };
        let (low, high) = match dtype {
            DType::U64 => (0, i128::from(u64::MAX)),
            _ => {
                let number =
                    |limit: Scalar| i128::from(limit.to_i64().expect("the dtype is an integer's"));
                (number(Scalar::lowest(dtype)), number(Scalar::highest(dtype)))
            }
        };
        (low..=high).contains(&integer)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Integer(integer) => write!(f, "{integer}"),
            Number::Real(real) => write!(f, "{real}"),
        }
    }
}

/// An element that fails a check.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) number: Number,
    /// Its position in row-major order.
    pub(crate) at: usize,
    /// Number of further elements that fail.
    pub(crate) more: usize,
}

/// The first element for which `is_bad` holds, and the number of others.
pub(crate) fn first(array: &Literal, is_bad: impl Fn(Number) -> bool) -> Option<Found> {
    with_native!(array.dtype(), T => {
        let values = array.as_slice::<T>().expect("the dtype is its own");
        let mut bad = values.iter().enumerate().filter(|(_, v)| is_bad(Number::of(**v)));
        let (at, value) = bad.next()?;
        Some(Found { number: Number::of(*value), at, more: bad.count() })
    })
}

/// The first element that an integer dtype does not hold exactly; no element if `dtype` is another
/// one.
pub(crate) fn not_held(array: &Literal, dtype: DType) -> Option<Found> {
    if dtype.is_integer() { first(array, |number| !number.fits(dtype)) } else { None }
}

/// The remedy for elements that an integer dtype does not hold.
pub(crate) fn holds(dtype: DType) -> String {
    let (low, high) = (Scalar::lowest(dtype), Scalar::highest(dtype));
    format!("{dtype} holds integers from {low} to {high}: mend the data")
}
