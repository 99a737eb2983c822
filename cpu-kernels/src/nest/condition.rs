//! Conditions of accesses: the lanes of a block for which index expressions are in their ranges.

use super::address::Offset;
use super::frame::Frame;

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

    /// Whether it holds, if it is uniform.
    pub fn holds(&self, frame: &Frame<'_>) -> bool {
        debug_assert!(self.is_uniform(), "lanes differ");
        (self.low..self.high).contains(&self.value.base(frame))
    }

    /// A number of iterations of a loop, from the current one on, in which it holds or fails as
    /// now. Its value is uniform, and `step` is the change of the value from iteration to
    /// iteration.
    pub fn lasts(&self, frame: &Frame<'_>, step: i64) -> usize {
        let value = self.value.base(frame);
        // The next value, in the direction of the step, at which the condition may change.
        let bound = match (value < self.low, value >= self.high, step) {
            (_, _, 0) => return usize::MAX,
            (true, _, 1..) => self.low,
            (_, true, ..0) => self.high.saturating_sub(1),
            (false, false, 1..) => self.high,
            (false, false, _) => self.low.saturating_sub(1),
            // Only a sum that wraps comes back.
            (.., 1..) => i64::MAX,
            _ => i64::MIN,
        };
        let distance = bound.abs_diff(value).div_ceil(step.unsigned_abs());
        usize::try_from(distance).unwrap_or(usize::MAX).max(1)
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
