//! Offsets of the lanes of a block: the compiled form of index expressions.
//!
//! A block is a run of consecutive positions of the *vector axes*: one axis, or the last few
//! combined if the last one is short. The part of an offset that all lanes share is computed once
//! per block. The lanes then differ in one of three ways: by a step (contiguous if it is 1); by a
//! row of a table (several axes: their digits repeat with the inner axes' extents); or by
//! divisions and registers. Divisions that depend on the vector axes only are tabulated, too, for
//! each position; what remains is evaluated for each lane.

use super::frame::Frame;
use super::sum::{Sum, Term};
use wengert_core::nest::AxisId;
use wengert_core::{DType, Id};

/// The axes along which a phase is vectorised, outermost first; with none, blocks have one lane.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct VectorAxes {
    pub axes: Vec<AxisId>,
    pub extents: Vec<usize>,
}

impl VectorAxes {
    /// Number of positions.
    pub fn positions(&self) -> usize {
        self.extents.iter().product()
    }

    /// Positions after which all digits but the first repeat.
    pub fn period(&self) -> usize {
        self.extents.iter().skip(1).product()
    }

    /// The change of the sum's value from lane to lane, for the vector axes.
    pub fn pattern(&self, sum: &Sum) -> Pattern {
        let coefficients: Vec<i64> = self.axes.iter().map(|a| sum.coefficient(*a)).collect();
        let Some(step) = coefficients.last().copied() else { return Pattern::Step(0) };
        let linear = (1..coefficients.len())
            .all(|k| coefficients[k - 1] == coefficients[k].wrapping_mul(self.extents[k] as i64));
        if linear { Pattern::Step(step) } else { Pattern::Digits(coefficients) }
    }

    /// True if a sum has registers or other axes.
    fn varies_otherwise(&self, sum: &Sum) -> bool {
        let mut varies = false;
        sum.visit_registers(&mut |_| varies = true);
        sum.visit(&mut |sum| varies |= sum.axes.iter().any(|(a, _)| !self.axes.contains(a)));
        varies
    }

    /// True if the lanes differ in the sum by the axes' positions only, and the rest is constant.
    pub fn decide(&self, sum: &Sum) -> bool {
        !self.varies_otherwise(sum)
    }

    /// The value of an axis at a position.
    fn digit(&self, mut position: usize, axis: AxisId) -> i64 {
        for (k, (own, extent)) in self.axes.iter().zip(&self.extents).enumerate().rev() {
            if *own == axis {
                return (if k > 0 { position % extent } else { position }) as i64;
            }
            position /= extent;
        }
        unreachable!("it is one of the vector axes")
    }

    /// True if all lanes agree in the part of the sum that is made of axes.
    pub fn constant(&self, sum: &Sum) -> bool {
        !self.axes.iter().any(|a| sum.depends_on(*a))
    }
}

/// The change of a sum of axes from lane to lane.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Pattern {
    /// The same step for every position.
    Step(i64),
    /// These coefficients times the axes' counters.
    Digits(Vec<i64>),
}

/// A compiled sum.
#[derive(Clone, Debug, Default)]
pub(super) struct Offset {
    constant: i64,
    /// Coefficients of counters.
    counters: Vec<(u32, i64)>,
    /// Coefficient of the block's position.
    position: i64,
    /// Difference between neighbouring lanes.
    pub step: i64,
    /// Number of a table that is added to the lanes, if any.
    table: Option<u32>,
    /// Number of a table with a value for each position, which is added to the lanes, if any.
    positions: Option<u32>,
    terms: Vec<Part>,
}

/// `factor · term`.
#[derive(Clone, Debug)]
struct Part {
    factor: i64,
    term: PartTerm,
    uniform: bool,
}

#[derive(Clone, Debug)]
enum PartTerm {
    Register(u32, DType),
    Div(Offset, i64),
    Mod(Offset, i64),
    Clamp(Offset, i64),
}

/// Compiles sums; collects the tables they need.
pub(super) struct OffsetBuilder<'a> {
    pub vector: &'a VectorAxes,
    /// Whether all lanes of a register are equal.
    pub uniform: &'a dyn Fn(u32) -> bool,
    pub dtype: &'a dyn Fn(u32) -> DType,
    pub tables: &'a mut Tables,
}

/// Tables of lane differences, without duplicates.
#[derive(Default)]
pub(super) struct Tables {
    keys: Vec<(Vec<i64>, Vec<usize>)>,
    pub rows: Vec<Vec<i64>>,
}

impl Tables {
    /// The table of `Σ coefficient · digit` for positions `0..period + lanes`; the first digit is
    /// unbounded.
    fn number(&mut self, coefficients: &[i64], vector: &VectorAxes, lanes: usize) -> u32 {
        let key = (coefficients.to_vec(), vector.extents.clone());
        let at = self.keys.iter().position(|k| *k == key).unwrap_or_else(|| {
            let row = (0..vector.period() + lanes).map(|mut position| {
                let mut value = 0i64;
                for k in (1..coefficients.len()).rev() {
                    let digit = position % vector.extents[k];
                    position /= vector.extents[k];
                    value = value.wrapping_add(coefficients[k].wrapping_mul(digit as i64));
                }
                value.wrapping_add(coefficients[0].wrapping_mul(position as i64))
            });
            self.rows.push(row.collect());
            self.keys.push(key);
            self.keys.len() - 1
        });
        at as u32
    }

    /// The table of terms that the vector axes decide, for each position.
    fn of_terms(&mut self, terms: &[&(Term, i64)], vector: &VectorAxes) -> u32 {
        let row: Vec<i64> = (0..vector.positions())
            .map(|position| {
                let digit = |axis: AxisId| vector.digit(position, axis);
                let values =
                    terms.iter().map(|(term, factor)| term.at(&digit).wrapping_mul(*factor));
                values.fold(0, i64::wrapping_add)
            })
            .collect();
        let key = (row.clone(), vec![]);
        let at = self.keys.iter().position(|k| *k == key).unwrap_or_else(|| {
            self.rows.push(row);
            self.keys.push(key);
            self.keys.len() - 1
        });
        at as u32
    }
}

/// Most positions with tables of their terms.
const TABULATED: usize = 1 << 14;

impl OffsetBuilder<'_> {
    /// Compiles a sum for blocks of at most `lanes`.
    pub fn build(&mut self, sum: &Sum, lanes: usize) -> Offset {
        let mut offset = Offset { constant: sum.constant, ..Offset::default() };
        let pattern = self.vector.pattern(sum);
        let own = |axis: &AxisId| self.vector.axes.contains(axis);
        let outer = sum.axes.iter().filter(|(a, _)| !own(a));
        offset.counters = outer.map(|(a, c)| (a.index() as u32, *c)).collect();
        match pattern {
            Pattern::Step(step) => (offset.position, offset.step) = (step, step),
            Pattern::Digits(coefficients) => {
                offset.counters.push((self.vector.axes[0].index() as u32, coefficients[0]));
                offset.table = Some(self.tables.number(&coefficients, self.vector, lanes));
            }
        }
        let is_tabulated = |(term, _): &&(Term, i64)| {
            let of_term = Sum::term(term.clone());
            let few = self.vector.positions() <= TABULATED;
            few && !self.vector.constant(&of_term) && self.vector.decide(&of_term)
        };
        let (tabulated, rest): (Vec<_>, Vec<_>) = sum.terms.iter().partition(is_tabulated);
        if !tabulated.is_empty() {
            offset.positions = Some(self.tables.of_terms(&tabulated, self.vector));
        }
        for (term, factor) in rest {
            let term = match term {
                Term::Register(reg) => PartTerm::Register(reg.0, (self.dtype)(reg.0)),
                Term::Div(inner, d) => PartTerm::Div(self.build(inner, lanes), *d),
                Term::Mod(inner, d) => PartTerm::Mod(self.build(inner, lanes), *d),
                Term::Clamp(inner, high) => PartTerm::Clamp(self.build(inner, lanes), *high),
            };
            let uniform = match &term {
                PartTerm::Register(reg, _) => (self.uniform)(*reg),
                other => other.inner().is_some_and(Offset::is_uniform),
            };
            offset.terms.push(Part { factor: *factor, term, uniform });
        }
        offset
    }
}

impl Offset {
    /// True if all lanes have the same value.
    pub fn is_uniform(&self) -> bool {
        self.is_linear() && self.step == 0
    }

    /// The table of the differences between lanes, if a table of positions is all that makes them
    /// differ.
    pub fn tabulated(&self) -> Option<usize> {
        let alone = self.table.is_none() && self.step == 0;
        let uniform = self.terms.iter().all(|part| part.uniform);
        self.positions.filter(|_| alone && uniform).map(|table| table as usize)
    }

    /// True if lane k has the value of lane 0 plus k steps.
    pub fn is_linear(&self) -> bool {
        let tables = [self.table, self.positions];
        tables.iter().all(Option::is_none) && self.terms.iter().all(|part| part.uniform)
    }

    /// The increment per step of a counter; `None` if a division or clamp depends on the counter.
    pub fn stride(&self, axis: u32) -> Option<i64> {
        let steady = self
            .terms
            .iter()
            .all(|part| part.term.inner().is_none_or(|e| e.stride(axis) == Some(0)));
        let of_axis = self.counters.iter().filter(|(counter, _)| *counter == axis);
        steady.then(|| {
            of_axis.map(|(_, coefficient)| coefficient).fold(0i64, |sum, c| sum.wrapping_add(*c))
        })
    }

    /// Number of index vectors that the evaluation needs, its own result included.
    pub fn depth(&self) -> usize {
        let terms = self.terms.iter().filter(|part| !part.uniform);
        let inner = terms.map(|part| part.term.inner().map_or(1, Offset::depth));
        1 + inner.max().unwrap_or(0)
    }

    /// Adds the lane's number: for storage with one copy per lane, where the sum is a multiple of
    /// the lanes.
    pub fn interleaved(mut self) -> Offset {
        self.step = self.step.wrapping_add(1);
        self
    }

    /// The shared part: the value of lane 0, without tables and terms that differ between lanes.
    pub fn base(&self, frame: &Frame<'_>) -> i64 {
        let mut sum = self.constant.wrapping_add(self.position.wrapping_mul(frame.position));
        for (axis, coefficient) in &self.counters {
            sum = sum.wrapping_add(coefficient.wrapping_mul(frame.counter(*axis)));
        }
        for part in self.terms.iter().filter(|part| part.uniform) {
            sum = sum.wrapping_add(part.factor.wrapping_mul(part.term.single(frame)));
        }
        sum
    }

    /// Writes the values of all lanes of the block to `frame.index(level)`; uses the index
    /// vectors of higher levels.
    pub fn fill(&self, frame: &mut Frame<'_>, level: usize) {
        let base = self.base(frame);
        let step = self.step;
        let count = frame.count;
        let phase = frame.phase;
        let table = self.table.map(|t| &frame.tables[t as usize][phase..phase + count]);
        let out = frame.index(level);
        match table {
            Some(row) => {
                let mut shared = base;
                for (value, differs) in out.iter_mut().zip(row) {
                    *value = shared.wrapping_add(*differs);
                    shared = shared.wrapping_add(step);
                }
            }
            None => {
                for (lane, value) in out.iter_mut().enumerate() {
                    *value = base.wrapping_add(step.wrapping_mul(lane as i64));
                }
            }
        }
        if let Some(table) = self.positions {
            let first = frame.position as usize;
            let row = &frame.tables[table as usize][first..first + count];
            let out = frame.index(level);
            out.iter_mut().zip(row).for_each(|(value, term)| *value = value.wrapping_add(*term));
        }
        for part in self.terms.iter().filter(|part| !part.uniform) {
            part.term.fill(frame, level + 1);
            let (out, inner) = frame.index_pair(level);
            for (value, term) in out.iter_mut().zip(inner) {
                *value = value.wrapping_add(part.factor.wrapping_mul(*term));
            }
        }
    }
}

impl PartTerm {
    /// The offset that it is computed from, if it is one.
    fn inner(&self) -> Option<&Offset> {
        match self {
            PartTerm::Register(..) => None,
            PartTerm::Div(e, _) | PartTerm::Mod(e, _) | PartTerm::Clamp(e, _) => Some(e),
        }
    }

    /// The value shared by all lanes.
    fn single(&self, frame: &Frame<'_>) -> i64 {
        match self {
            PartTerm::Register(reg, dtype) => frame.integer(*reg, *dtype),
            PartTerm::Div(e, d) => e.base(frame).div_euclid(*d),
            PartTerm::Mod(e, d) => e.base(frame).rem_euclid(*d),
            PartTerm::Clamp(e, high) => e.base(frame).clamp(0, *high),
        }
    }

    fn fill(&self, frame: &mut Frame<'_>, level: usize) {
        match self {
            PartTerm::Register(reg, dtype) => frame.integers(*reg, *dtype, level),
            PartTerm::Clamp(e, high) => {
                e.fill(frame, level);
                frame.index(level).iter_mut().for_each(|v| *v = (*v).clamp(0, *high));
            }
            PartTerm::Div(e, d) => e.divide(frame, level, *d, true),
            PartTerm::Mod(e, d) => e.divide(frame, level, *d, false),
        }
    }
}

impl Offset {
    /// Quotients or remainders of all lanes.
    fn divide(&self, frame: &mut Frame<'_>, level: usize, divisor: i64, quotient: bool) {
        let base = self.base(frame);
        let wraps =
            self.step.checked_mul(frame.count as i64).and_then(|s| base.checked_add(s)).is_none();
        if self.is_linear() && divisor.count_ones() != 1 && !wraps {
            // From lane to lane, quotient and remainder grow by those of the step, with a carry
            // of at most 1.
            let (mut q, mut r) = (base.div_euclid(divisor), base.rem_euclid(divisor));
            let (dq, dr) = (self.step.div_euclid(divisor), self.step.rem_euclid(divisor));
            for value in frame.index(level) {
                *value = if quotient { q } else { r };
                let carry = r >= divisor - dr;
                r = if carry { r - (divisor - dr) } else { r + dr };
                q = q.wrapping_add(dq).wrapping_add(i64::from(carry));
            }
            return;
        }
        self.fill(frame, level);
        let values = frame.index(level);
        if divisor.count_ones() == 1 {
            let shift = divisor.trailing_zeros();
            if quotient {
                values.iter_mut().for_each(|v| *v >>= shift);
            } else {
                values.iter_mut().for_each(|v| *v &= divisor - 1);
            }
        } else if quotient {
            values.iter_mut().for_each(|v| *v = v.div_euclid(divisor));
        } else {
            values.iter_mut().for_each(|v| *v = v.rem_euclid(divisor));
        }
    }
}
