//! Elements of arrays over [`Bounded`]. An element of an integer array is bits, or a number with an
//! error: one of the integers within it.

use super::bounded::Bounded;
use wengert_core::interpret::{Array, Cell, Cells};
use wengert_core::{DType, Result};

pub(super) fn is_lost(cell: &Cell<Bounded>) -> bool {
    matches!(cell, Cell::Real(number) if !number.is_bounded())
}

/// Whether an array of integers has an uncertain element.
pub(super) fn is_uncertain(array: &Array<Bounded>) -> bool {
    !array.dtype.is_float() && array.cells.iter().any(|cell| matches!(cell, Cell::Real(_)))
}

/// The least and the greatest integer that an element may be; `None` if there is no bound.
pub(super) fn range(cell: &Cell<Bounded>, dtype: DType) -> Option<(i64, i64)> {
    match cell {
        Cell::Bits(bits) => Some((*bits, *bits)),
        Cell::Real(_) if dtype == DType::Bool => Some((0, 1)),
        Cell::Real(number) => {
            let [low, high] = number.ends();
            // Larger integers are not all numbers of f64.
            (low.abs().max(high.abs()) < 2f64.powi(52))
                .then(|| (low.ceil() as i64, high.floor() as i64))
        }
    }
}

/// An integer that is `exact`, and on a machine between `low` and `high`.
pub(super) fn integer(exact: i64, low: i64, high: i64, dtype: DType) -> Cell<Bounded> {
    if low == high {
        return Cell::Bits(exact);
    }
    let error = exact.abs_diff(low).max(exact.abs_diff(high)) as f64;
    Cell::Real(Bounded::settled_at(exact as f64, error, dtype))
}

/// An integer that may be any of its dtype.
pub(super) fn any_integer(exact: i64, dtype: DType) -> Cell<Bounded> {
    match dtype {
        DType::Bool => integer(exact, 0, 1, dtype),
        _ => Cell::Real(Bounded::exact(exact as f64, dtype).lost()),
    }
}

/// The element with its exact value only.
pub(super) fn certain(cell: &Cell<Bounded>, dtype: DType) -> Cell<Bounded> {
    match cell {
        Cell::Real(number) if !dtype.is_float() => Cell::Bits(number.value as i64),
        cell => cell.clone(),
    }
}

/// The union of two possible elements, of which the first is exact.
pub(super) fn union(x: &Cell<Bounded>, y: &Cell<Bounded>, dtype: DType) -> Cell<Bounded> {
    if dtype.is_float() {
        return Cell::Real(x.real().union(*y.real()));
    }
    let exact = certain(x, dtype).bits();
    match (range(x, dtype), range(y, dtype)) {
        (Some((a, b)), Some((c, d))) => integer(exact, a.min(c), b.max(d), dtype),
        _ => any_integer(exact, dtype),
    }
}

/// The element without a bound.
pub(super) fn lost(cell: &Cell<Bounded>, dtype: DType) -> Cell<Bounded> {
    match cell {
        Cell::Real(number) if dtype.is_float() => Cell::Real(number.lost()),
        cell => any_integer(certain(cell, dtype).bits(), dtype),
    }
}

/// The exact value of an element.
pub(super) fn number(cell: &Cell<Bounded>, dtype: DType) -> f64 {
    match cell {
        Cell::Real(number) => number.value,
        Cell::Bits(bits) if dtype == DType::U64 => *bits as u64 as f64,
        Cell::Bits(bits) => *bits as f64,
    }
}

/// The least and the greatest value of an element that has a bound.
pub(super) fn ends(cell: &Cell<Bounded>, dtype: DType) -> [f64; 2] {
    match cell {
        Cell::Real(_) if dtype == DType::Bool => [0.0, 1.0],
        Cell::Real(number) => number.ends(),
        Cell::Bits(_) => [number(cell, dtype); 2],
    }
}

/// A number between two others.
pub(super) fn enclosed(exact: f64, low: f64, high: f64, dtype: DType) -> Bounded {
    let distance = |end: f64| {
        let is_same = end == exact || end.is_nan() && exact.is_nan();
        if is_same { 0.0 } else { (exact - end).abs() }
    };
    let (below, above) = (distance(low), distance(high));
    if below.is_nan() || above.is_nan() || below.max(above) == f64::INFINITY {
        return Bounded::exact(exact, dtype).lost();
    }
    Bounded::settled_at(exact, below.max(above), dtype)
}

pub(super) fn mapped(
    array: &Array<Bounded>,
    f: impl Fn(&Cell<Bounded>) -> Cell<Bounded>,
) -> Result<Array<Bounded>> {
    let cells = Cells::collect(array.cells.iter().map(f))?;
    Ok(Array::new(array.dtype, array.shape.clone(), cells))
}

/// The element of an operand of an elementwise op: a scalar is repeated.
pub(super) fn element(array: &Array<Bounded>, at: usize) -> &Cell<Bounded> {
    if array.cells.len() == 1 { &array.cells[0] } else { &array.cells[at] }
}
