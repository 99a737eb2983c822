//! Equations over [`Bounded`] in which an error decides something.
//!
//! An op's `evaluate` facet follows the exact values. Where an error could have changed a decision
//! of it, the results are computed again so that they cover every outcome:
//!
//! | op | results |
//! |---|---|
//! | comparisons | an uncertain bool |
//! | `select`, `cond` | the union of both choices |
//! | `max`, `min`, `clamp`, `floor`, `ceil`, `sign`, maxima over axes and windows, `sort`, … | monotone: their values at both ends of the operands' intervals |
//! | conversions to integers | the integers between those of both ends |
//! | elementwise ops of uncertain integers | the union over the possible operands |
//! | `mul_zero` | a product |
//! | composites | by their decomposition |
//!
//! Other ops have no bound there, nor have the results of a loop whose condition is uncertain, or
//! of a lookup with an uncertain index.

use super::bounded::{Bounded, Place, watch};
use super::elements::{
    any_integer, certain, element, enclosed, ends, integer, is_lost, is_uncertain, lost, mapped,
    number, range, union,
};
use super::ranges::range as range_of;
use crate::autodiff::unpoisoned;
use std::cell::Cell as ThreadCell;
use std::cmp::Ordering;
use wengert_core::build::Scope;
use wengert_core::graph::Equation;
use wengert_core::interpret::{Array, Cell, Cells, Real, Regions, evaluate_over};
use wengert_core::op::{Binary, Compare, Compute, CumulativeKind, ReduceKind, Unary, WindowKind};
use wengert_core::{DType, Location, LocationTable, Op, Result, Tensor, TensorType};

type Values = Vec<Array<Bounded>>;

thread_local! {
    /// The composite whose decomposition is evaluated.
    static WITHIN: ThreadCell<Option<Place>> = const { ThreadCell::new(None) };
}

/// Most combinations of possible integers of one element that are tried.
const COMBINATIONS: usize = 64;

/// The results of an equation. An element without a bound knows the equation that lost it.
pub(super) fn evaluate(
    equation: &Equation,
    operands: &[Array<Bounded>],
    results: &[TensorType],
    regions: &Regions<'_>,
) -> Result<Values> {
    let context = Context { equation, operands, results, regions };
    let mut values = context.values()?;
    let place = WITHIN.get().unwrap_or_else(|| place(equation));
    let range = range_of(&equation.op, operands);
    for (n, array) in values.iter_mut().enumerate() {
        // Bounds are lost by rounding, too, beyond the greatest number. The interpreter does not
        // round a second time.
        if array.dtype.is_float() && array.dtype != DType::F64 {
            let dtype = array.dtype;
            *array = mapped(array, |cell| Cell::Real(cell.real().round_to(dtype)))?;
        }
        if let Some(range) = range.filter(|_| n == 0) {
            *array = mapped(array, |cell| Cell::Real(range.limit(*cell.real(), array.dtype)))?;
        }
        if array.cells.iter().any(is_lost) {
            let marked = array.cells.iter().map(|cell| match cell {
                Cell::Real(number) => {
                    let mut number = *number;
                    number.mark(place);
                    Cell::Real(number)
                }
                bits => bits.clone(),
            });
            *array = Array::new(array.dtype, array.shape.clone(), Cells::collect(marked)?);
        }
    }
    Ok(values)
}

fn place(equation: &Equation) -> Place {
    Place { location: equation.location, op: equation.op.name() }
}

/// Runs `f` as a part of an equation, unless that is within another one.
fn at_place<T>(place: Place, f: impl FnOnce() -> T) -> T {
    let outer = WITHIN.get();
    WITHIN.set(outer.or(Some(place)));
    let result = f();
    WITHIN.set(outer);
    result
}

#[derive(Clone, Copy)]
struct Context<'a> {
    equation: &'a Equation,
    operands: &'a [Array<Bounded>],
    results: &'a [TensorType],
    regions: &'a Regions<'a>,
}

impl Context<'_> {
    fn values(&self) -> Result<Values> {
        let op = &self.equation.op;
        if self.reads_bits() {
            return self.lost();
        }
        let is_uncertain = self.operands.iter().any(is_uncertain);
        if self.converts_float8() {
            // The bits of 8-bit floats are not in the order of their numbers.
            let is_exact = !is_uncertain && !self.has_error();
            return if is_exact { self.facet(self.operands, self.results) } else { self.lost() };
        }
        if !self.converts() && (!is_uncertain || moves(op)) {
            let (values, doubt) = watch(|| op.evaluate(self.operands, self.results, self.regions));
            if !doubt {
                return values;
            }
        }
        match op {
            Op::Compare(op) => self.compare(*op),
            Op::Select(_) => self.select(),
            Op::IsFinite(_) => self.is_finite(),
            Op::ConvertElementType(_) => self.convert(),
            Op::Binary(Binary::MulZero) => self.mul_zero(),
            Op::Cond(_) => self.cond(),
            Op::Argument(_) => self.argument(),
            _ if self.is_monotone() => self.at_ends(),
            _ if op.traits().elementwise => self.by_element(),
            _ => self.decomposed(),
        }
    }

    /// Whether integers become floats, which the facet rounds to their dtype, or floats become
    /// integers, for which it notes no doubt.
    fn converts(&self) -> bool {
        let to_float = self.results[0].dtype.is_float();
        matches!(self.equation.op, Op::ConvertElementType(_) | Op::IsFinite(_))
            && self.operands.iter().any(|array| array.dtype.is_float() != to_float)
    }

    /// Whether 8-bit floats become others, or others 8-bit floats.
    fn converts_float8(&self) -> bool {
        matches!(self.equation.op, Op::ConvertElementType(_))
            && (self.operands[0].dtype.is_float8() || self.results[0].dtype.is_float8())
    }

    /// Whether the op depends on the bits of a number that has an error.
    fn reads_bits(&self) -> bool {
        matches!(self.equation.op, Op::BitcastConvertType(_)) && self.has_error()
    }

    /// Whether a float of the operands has an error.
    fn has_error(&self) -> bool {
        let mut cells = self.operands.iter().flat_map(|operand| operand.cells.iter());
        cells.any(|cell| matches!(cell, Cell::Real(number) if number.error() > 0.0))
    }

    /// Whether the results grow with each operand, and the operands have ranges.
    fn is_monotone(&self) -> bool {
        let is_monotone = match &self.equation.op {
            Op::Unary(op) => matches!(op, Unary::Floor | Unary::Ceil | Unary::Round | Unary::Sign),
            Op::Binary(op) => matches!(op, Binary::Max | Binary::Min),
            Op::Clamp(_) => true,
            Op::Reduce(op) if op.kind == ReduceKind::Sum => self.sums_fit(),
            Op::Reduce(op) => match op.kind {
                ReduceKind::Max | ReduceKind::Min => true,
                // On integers these are not monotone.
                ReduceKind::And | ReduceKind::Or => self.results[0].dtype == DType::Bool,
                _ => false,
            },
            Op::Cumulative(op) => matches!(op.kind, CumulativeKind::Max | CumulativeKind::Min),
            Op::ReduceWindow(op) => matches!(op.kind, WindowKind::Max | WindowKind::Min),
            Op::Sort(_) => self.operands.len() == 1,
            Op::TopK(_) => true,
            _ => false,
        };
        let has_range = |array: &Array<Bounded>| {
            array.dtype.is_float() || array.cells.iter().all(|c| range(c, array.dtype).is_some())
        };
        is_monotone && self.operands.iter().all(has_range)
    }

    /// Whether sums of uncertain integers cannot wrap.
    fn sums_fit(&self) -> bool {
        let array = &self.operands[0];
        let most = |cell| {
            range(cell, array.dtype).map(|(low, high)| low.unsigned_abs().max(high.unsigned_abs()))
        };
        let sum = array.cells.iter().try_fold(0u64, |sum, cell| sum.checked_add(most(cell)?));
        !array.dtype.is_float() && array.dtype.size() >= 4 && sum.is_some_and(|sum| sum < 1 << 30)
    }

    /// The facet, on other operands. A doubt is of no consequence for the caller.
    fn facet(&self, operands: &[Array<Bounded>], results: &[TensorType]) -> Result<Values> {
        watch(|| self.equation.op.evaluate(operands, results, self.regions)).0
    }

    /// The result from its element at each position.
    fn collect(&self, mut f: impl FnMut(usize) -> Cell<Bounded>) -> Result<Values> {
        let shape = self.results[0].extents().expect("the interpreter runs bound functions only");
        let count = shape.iter().product::<usize>();
        let cells = Cells::collect((0..count).map(&mut f))?;
        Ok(vec![Array::new(self.results[0].dtype, shape, cells)])
    }

    fn compare(&self, op: Compare) -> Result<Values> {
        let dtype = self.operands[0].dtype;
        // A comparison of a value with itself tests for NaN.
        let is_same = self.equation.operands[0] == self.equation.operands[1];
        self.collect(|at| {
            let (x, y) = (&self.operands[0].cells[at], &self.operands[1].cells[at]);
            let exact = number(x, dtype).partial_cmp(&number(y, dtype));
            let exact = holds(op, exact) as i64;
            if is_lost(x) || is_lost(y) {
                return integer(exact, 0, 1, DType::Bool);
            }
            let ([a, b], [c, d]) = (ends(x, dtype), ends(y, dtype));
            if is_same || a.is_nan() || c.is_nan() {
                return Cell::Bits(exact);
            }
            let (always, sometimes) = match op {
                Compare::Lt => (b < c, a < d),
                Compare::Le => (b <= c, a <= d),
                Compare::Gt => (a > d, b > c),
                Compare::Ge => (a >= d, b >= c),
                Compare::Eq => (a == b && c == d && a == c, a <= d && c <= b),
                Compare::Ne => (a > d || c > b, !(a == b && c == d && a == c)),
            };
            integer(exact, always as i64, sometimes as i64, DType::Bool)
        })
    }

    fn select(&self) -> Result<Values> {
        let [choice, x, y] = self.operands else {
            unreachable!("`infer` found three operands of `select`")
        };
        let dtype = x.dtype;
        self.collect(|at| {
            let (x, y) = (&x.cells[at], &y.cells[at]);
            let choice = element(choice, at);
            let is_true = certain(choice, DType::Bool).is_true();
            let (chosen, other) = if is_true { (x, y) } else { (y, x) };
            match choice {
                Cell::Bits(_) => chosen.clone(),
                Cell::Real(_) => union(chosen, other, dtype),
            }
        })
    }

    fn is_finite(&self) -> Result<Values> {
        self.collect(|at| {
            let number = self.operands[0].cells[at].real();
            let exact = number.value.is_finite() as i64;
            if number.is_bounded() { Cell::Bits(exact) } else { integer(exact, 0, 1, DType::Bool) }
        })
    }

    fn convert(&self) -> Result<Values> {
        let (x, dtype) = (&self.operands[0], self.results[0].dtype);
        if dtype.is_float() {
            // From an integer. The caller rounds the result.
            return self.collect(|at| {
                let (exact, from) = (number(&x.cells[at], x.dtype), DType::F64);
                Cell::Real(match (&x.cells[at], range(&x.cells[at], x.dtype)) {
                    (Cell::Real(of), None) => *of,
                    (_, None) => Bounded::exact(exact, from),
                    (_, Some((low, high))) => {
                        let error = (exact - low as f64).max(high as f64 - exact);
                        Bounded::settled_at(exact, error, from)
                    }
                })
            });
        }
        let at = |end: usize| {
            let cells = x.cells.iter().map(|cell| match cell {
                Cell::Real(number) if x.dtype.is_float() => {
                    Cell::Real(Bounded::exact(number.ends()[end], x.dtype))
                }
                cell => match range(cell, x.dtype) {
                    Some((low, high)) => Cell::Bits(if end == 0 { low } else { high }),
                    None => certain(cell, x.dtype),
                },
            });
            let array = Array::new(x.dtype, x.shape.clone(), Cells::collect(cells)?);
            self.facet(&[array], self.results)
        };
        let exact = self.facet(&[mapped(x, |cell| certain(cell, x.dtype))?], self.results)?;
        let (low, high) = (at(0)?, at(1)?);
        self.collect(|at| {
            let [exact, a, b] = [&exact, &low, &high].map(|array| array[0].cells[at].bits());
            let range = range(&x.cells[at], x.dtype).filter(|_| !x.dtype.is_float());
            match dtype {
                _ if is_lost(&x.cells[at]) => any_integer(exact, dtype),
                // From an uncertain integer, which may wrap.
                _ if !x.dtype.is_float() && range.is_none() => any_integer(exact, dtype),
                DType::Bool => {
                    let [low, high] = ends(&x.cells[at], x.dtype);
                    // Between two other numbers there may be zero, and the reverse.
                    let may_be_zero = low <= 0.0 && high >= 0.0 && low < high;
                    if may_be_zero { integer(exact, 0, 1, dtype) } else { Cell::Bits(exact) }
                }
                _ if range.is_some_and(|range| range != (a, b)) => any_integer(exact, dtype),
                _ => integer(exact, a, b, dtype),
            }
        })
    }

    /// A strong product is 0 where its second factor is, and so is the product of a finite factor.
    fn mul_zero(&self) -> Result<Values> {
        self.collect(|at| {
            let [x, y] = [0, 1].map(|n| *self.operands[n].cells[at].real());
            let product = x.mul(&y);
            let [low, high] = y.ends();
            Cell::Real(match () {
                () if low == 0.0 && high == 0.0 => Bounded::from_i64(0),
                () if x.value.is_finite() && x.is_bounded() => product,
                // The factor may be infinite. So is the product, unless the other factor is 0.
                () if low * high > 0.0 => product,
                () if y.value == 0.0 => Bounded::from_i64(0).lost(),
                () => product.lost(),
            })
        })
    }

    /// The union of both regions.
    fn cond(&self) -> Result<Values> {
        let (choice, operands) = (&self.operands[0].cells[0], &self.operands[1..]);
        let exact = usize::from(!certain(choice, DType::Bool).is_true());
        let chosen = self.regions.run(exact, operands)?;
        let Ok(other) = self.regions.run(1 - exact, operands) else { return self.lost() };
        let both = chosen.iter().zip(&other).map(|(x, y)| {
            let cells = x.cells.iter().zip(y.cells.iter()).map(|(a, b)| union(a, b, x.dtype));
            Ok(Array::new(x.dtype, x.shape.clone(), Cells::collect(cells)?))
        });
        both.collect()
    }

    /// An index that may be each of those whose elements may be extrema.
    fn argument(&self) -> Result<Values> {
        let last = self.operands[0].shape.iter().max().map_or(0, |extent| *extent as i64 - 1);
        let certain = self.certain()?;
        let exact = self.facet(&certain, self.results)?;
        // Of a row with one element the index is certain.
        let dtype = self.results[0].dtype;
        self.collect(|at| integer(exact[0].cells[at].bits(), 0, last, dtype))
    }

    /// The operands without uncertain integers.
    fn certain(&self) -> Result<Values> {
        self.operands.iter().map(|array| mapped(array, |cell| certain(cell, array.dtype))).collect()
    }

    /// The results of a monotone op: those of the least and the greatest operands enclose them.
    fn at_ends(&self) -> Result<Values> {
        let at = |end: usize| -> Result<Values> {
            let operand = |array: &Array<Bounded>| {
                mapped(array, |cell| match cell {
                    Cell::Real(number) if array.dtype.is_float() => {
                        Cell::Real(Bounded::exact(number.ends()[end], array.dtype))
                    }
                    cell => Cell::Bits(match range(cell, array.dtype) {
                        Some((low, high)) => {
                            if end == 0 {
                                low
                            } else {
                                high
                            }
                        }
                        None => certain(cell, array.dtype).bits(),
                    }),
                })
            };
            let operands = self.operands.iter().map(operand).collect::<Result<Values>>()?;
            self.facet(&operands, self.results)
        };
        let (low, high) = (at(0)?, at(1)?);
        let exact = self.facet(&self.certain()?, self.results)?;
        let is_elementwise = self.equation.op.traits().elementwise;
        let lost = |at: usize| {
            is_elementwise && self.operands.iter().any(|operand| is_lost(element(operand, at)))
        };
        let result = |n: usize| {
            let dtype = exact[n].dtype;
            let cells = (0..exact[n].cells.len()).map(|at| {
                let [exact, low, high] = [&exact, &low, &high].map(|values| &values[n].cells[at]);
                match exact {
                    Cell::Real(exact) => {
                        let [low, high] = [low, high].map(|end| end.real().value);
                        let cell = enclosed(exact.value, low, high, dtype);
                        // NaN goes through such ops, so it is not among the ends.
                        Cell::Real(if lost(at) { cell.lost() } else { cell })
                    }
                    // Positions do not grow with the elements.
                    Cell::Bits(exact) if self.operands[0].dtype.is_float() => {
                        any_integer(*exact, dtype)
                    }
                    Cell::Bits(exact) => integer(*exact, low.bits(), high.bits(), dtype),
                }
            });
            Ok(Array::new(dtype, exact[n].shape.clone(), Cells::collect(cells)?))
        };
        (0..exact.len()).map(result).collect()
    }

    /// The results of an elementwise op, one element after the other. An uncertain integer takes
    /// each of its possible values.
    fn by_element(&self) -> Result<Values> {
        let ty = TensorType::new(self.results[0].dtype, [] as [usize; 0]);
        let mut failed = None;
        let values = self.collect(|at| {
            self.element(at, std::slice::from_ref(&ty)).unwrap_or_else(|error| {
                failed = Some(error);
                any_integer(0, DType::Bool)
            })
        });
        failed.map_or(values, Err)
    }

    fn element(&self, at: usize, ty: &[TensorType]) -> Result<Cell<Bounded>> {
        let cells: Vec<&Cell<Bounded>> = self.operands.iter().map(|o| element(o, at)).collect();
        let dtypes: Vec<DType> = self.operands.iter().map(|operand| operand.dtype).collect();
        let run = |cells: Vec<Cell<Bounded>>| -> Result<(Cell<Bounded>, bool)> {
            let scalar = |(cell, dtype): (Cell<Bounded>, &DType)| {
                let cells = Cells::collect(std::iter::once(cell))?;
                Ok(Array::new(*dtype, vec![], cells))
            };
            let operands =
                cells.into_iter().zip(&dtypes).map(scalar).collect::<Result<Values>>()?;
            let (values, doubt) = watch(|| self.equation.op.evaluate(&operands, ty, self.regions));
            Ok((values?[0].cells[0].clone(), doubt))
        };
        let pairs = || cells.iter().zip(&dtypes);
        let (exact, mut is_lost) = run(pairs().map(|(c, dtype)| certain(c, *dtype)).collect())?;
        let mut result = exact.clone();
        let ranges: Vec<Option<(i64, i64)>> = pairs()
            .map(|(cell, dtype)| if dtype.is_float() { Some((0, 0)) } else { range(cell, *dtype) })
            .collect();
        let counts: Option<Vec<usize>> = ranges
            .iter()
            .map(|range| range.and_then(|(low, high)| usize::try_from(high - low + 1).ok()))
            .collect();
        let all = counts.as_ref().map(|c| c.iter().fold(1usize, |all, n| all.saturating_mul(*n)));
        match (all, counts) {
            (Some(all), Some(counts)) if all <= COMBINATIONS && all > 1 => {
                for combination in 0..all {
                    let mut rest = combination;
                    let mut tried = Vec::new();
                    for ((cell, range), count) in cells.iter().zip(&ranges).zip(&counts) {
                        let low = range.map_or(0, |(low, _)| low);
                        tried.push(match count {
                            1 => (*cell).clone(),
                            _ => Cell::Bits(low + (rest % count) as i64),
                        });
                        rest /= count;
                    }
                    let (found, doubt) = run(tried)?;
                    is_lost |= doubt;
                    result = union(&result, &found, ty[0].dtype);
                }
            }
            (Some(1), _) => {}
            _ => is_lost = true,
        }
        Ok(if is_lost { lost(&result, ty[0].dtype) } else { result })
    }

    /// The results of a composite by its decomposition. Other ops have none with a bound.
    fn decomposed(&self) -> Result<Values> {
        let types: Vec<TensorType> = self.operands.iter().map(Array::ty).collect();
        let op = &self.equation.op;
        let rule = match op.compute(&types, self.results, &self.equation.regions) {
            Compute::Decompose(rule) | Compute::CallOrDecompose(_, rule) => rule,
            _ => return self.lost(),
        };
        let scope = Scope::new(LocationTable::default());
        let inputs: Vec<Tensor> =
            types.into_iter().map(|ty| scope.input_at(ty, Location::Unknown)).collect();
        let outputs = scope.enter(|| rule(&inputs));
        unpoisoned(&outputs)?;
        let closure = scope.close(&outputs)?;
        assert!(closure.captures.is_empty(), "the outermost scope has nothing to capture from");
        // Within the decomposition, bounds are lost at this equation.
        at_place(place(self.equation), || {
            evaluate_over(&closure.body, &scope.locations(), self.operands)
        })
    }

    /// The exact results, without bounds.
    fn lost(&self) -> Result<Values> {
        let exact = self.facet(&self.certain()?, self.results)?;
        let lost = |array: Array<Bounded>| mapped(&array, |cell| lost(cell, array.dtype));
        exact.into_iter().map(lost).collect()
    }
}

/// Whether a comparison holds for an order.
fn holds(op: Compare, order: Option<Ordering>) -> bool {
    match op {
        Compare::Eq => order == Some(Ordering::Equal),
        Compare::Ne => order != Some(Ordering::Equal),
        Compare::Lt => order == Some(Ordering::Less),
        Compare::Le => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Compare::Gt => order == Some(Ordering::Greater),
        Compare::Ge => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

/// Whether an op gives elements of its operands as they are, or runs regions on them. It reads
/// indices, counts and conditions as bits, which notes a doubt if one is uncertain.
fn moves(op: &Op) -> bool {
    matches!(
        op,
        Op::Probe(_)
            | Op::Checkpoint(_)
            | Op::FunctionCall(_)
            | Op::CustomJvp(_)
            | Op::CustomVjp(_)
            | Op::CustomLinearSolve(_)
            | Op::Transposed(_)
    ) || op.traits().movement
        || op.control().is_some()
}
