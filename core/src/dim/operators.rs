//! Operators of dimensions, and conversions to them.

use super::Dim;
use crate::diagnostic::Diagnostic;
use crate::location::Location;
use crate::text::Cursor;
use std::ops::{Add, Div, Mul, Sub};
use std::sync::Arc;

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
    /// The dimension that a text such as `B`, `2*B+1` or `B*T` writes. Any other text is a variable
    /// of that name, which a tensor refuses.
    fn from(text: &str) -> Self {
        let mut cursor = Cursor::new("", text);
        let dim = cursor.dim().and_then(|dim| cursor.expect_end().map(|()| dim));
        dim.unwrap_or_else(|_| Dim::variable(text))
    }
}

impl From<&Dim> for Dim {
    fn from(dim: &Dim) -> Self {
        dim.clone()
    }
}

/// The result of an operation, or a dimension poisoned by an error of the caller's line.
#[track_caller]
fn checked(a: &Dim, sign: &str, b: &Dim, result: Option<Dim>) -> Dim {
    let Some(dim) = result else {
        let error = Diagnostic::new(format!("{a} {sign} {b} is no dimension"))
            .at(Location::caller(), "")
            .help(match sign {
                "/" => "a quotient is exact for each value of its variables",
                _ => "a dimension has at most 64 bits, 16 terms, and 8 factors in each",
            });
        return Dim::poisoned(Arc::new(error));
    };
    dim
}

/// `self / divisor` if the remainder is 0 for each value of the variables.
fn quotient(a: &Dim, b: &Dim) -> Option<Dim> {
    a.checked_exact_div(b)
}

macro_rules! operator {
    ($($trait:ident $method:ident $sign:literal $checked:expr;)*) => {$(
        impl<D: Into<Dim>> $trait<D> for &Dim {
            type Output = Dim;
            #[track_caller]
            fn $method(self, other: D) -> Dim {
                let other = other.into();
                checked(self, $sign, &other, $checked(self, &other))
            }
        }
        impl<D: Into<Dim>> $trait<D> for Dim {
            type Output = Dim;
            #[track_caller]
            fn $method(self, other: D) -> Dim { $trait::$method(&self, other) }
        }
        impl $trait<&Dim> for i64 {
            type Output = Dim;
            #[track_caller]
            fn $method(self, other: &Dim) -> Dim { $trait::$method(Dim::constant(self), other) }
        }
        impl $trait<Dim> for i64 {
            type Output = Dim;
            #[track_caller]
            fn $method(self, other: Dim) -> Dim { $trait::$method(Dim::constant(self), other) }
        }
    )*};
}

operator! {
    Add add "+" Dim::checked_add;
    Sub sub "-" Dim::checked_sub;
    Mul mul "*" Dim::checked_mul;
    Div div "/" quotient;
}
