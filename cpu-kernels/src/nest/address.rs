//! Offsets of the lanes of a block: the compiled form of index expressions.
//!
//! A block is a run of consecutive positions of the *vector axes*: one axis, or the last few
//! combined if the last one is short. The part of an offset that all lanes share is computed once
//! per block. The lanes then differ in one of three ways: by a step (contiguous if it is 1); by a
//! row of a table (several axes: their digits repeat with the inner axes' extents); or by
//! divisions and registers, which are evaluated for each lane.

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
}

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
        for (term, factor) in &sum.terms {
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

    /// True if lane k has the value of lane 0 plus k steps.
    pub fn is_linear(&self) -> bool {
        self.table.is_none() && self.terms.iter().all(|part| part.uniform)
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

/// A compiled condition: `low <= value < high`.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    pub value: Offset,
    pub low: i64,
    pub high: i64,
}

impl Condition {
    /// True if all lanes pass or none does.
    pub fn is_uniform(&self) -> bool {
        self.value.is_uniform()
    }

    /// The lanes that pass, for linear values, computed without a test of each lane. `None` if a
    /// sum might wrap; never `None` if the value is uniform.
    fn interval(&self, frame: &Frame<'_>) -> Option<(usize, usize)> {
        let count = frame.count as i64;
        let base = self.value.base(frame);
        let step = self.value.step;
        // One value decides for all lanes. It is only compared, since a subtraction from an
        // arbitrary value might wrap.
        if step == 0 {
            let holds = self.low <= base && base < self.high;
            return Some(if holds { (0, frame.count) } else { (0, 0) });
        }
        base.checked_add(step.checked_mul(count)?)?;
        let (low, high) = (self.low.checked_sub(base)?, self.high.checked_sub(base)?);
        // Lanes l with low <= step · l < high.
        let (from, to) = match step {
            1 => (low, high),
            -1 => (1i64.checked_sub(high)?, 1i64.checked_sub(low)?),
            s if s > 0 => (ceil_div(low, s)?, ceil_div(high, s)?),
            s => {
                let s = s.checked_neg()?;
                // −s·l < high ⇔ l > −high / s; low <= −s·l ⇔ l <= −low / s.
                (high.checked_neg()?.div_euclid(s) + 1, low.checked_neg()?.div_euclid(s) + 1)
            }
        };
        let (from, to) = (from.clamp(0, count), to.clamp(0, count));
        Some((from as usize, to.max(from) as usize))
    }
}

fn ceil_div(a: i64, b: i64) -> Option<i64> {
    a.checked_neg()?.div_euclid(b).checked_neg()
}

/// The lanes that pass some conditions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Passing {
    /// The first passing lane.
    pub from: usize,
    /// One past the last passing lane.
    pub to: usize,
    /// Whether some lanes between them fail; then the frame's mask tells which pass.
    pub masked: bool,
}

/// Evaluates conditions for the lanes of the block; uses all index vectors.
pub(super) fn passing(conditions: &[Condition], frame: &mut Frame<'_>) -> Passing {
    let mut passing = Passing { from: 0, to: frame.count, masked: false };
    let mut restrict = |from: usize, to: usize| {
        passing.from = passing.from.max(from);
        passing.to = passing.to.min(to).max(passing.from);
    };
    let mut general = false;
    for condition in conditions {
        match condition.value.is_linear().then(|| condition.interval(frame)).flatten() {
            Some((from, to)) => restrict(from, to),
            None => {
                if !general {
                    frame.mask().fill(1);
                    general = true;
                }
                condition.value.fill(frame, 0);
                let (values, mask) = frame.index_and_mask();
                for (value, pass) in values.iter().zip(mask) {
                    *pass &= u8::from(condition.low <= *value && *value < condition.high);
                }
            }
        }
    }
    passing.masked = general && passing.from < passing.to;
    passing
}
