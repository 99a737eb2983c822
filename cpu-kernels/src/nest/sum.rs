//! The executor's index expressions: offsets into flat memory, over axes that may have been
//! merged.

use wengert_core::nest::{self, Affine, AxisId, Reg};

/// `constant + Σ coefficient · axis + Σ coefficient · term`; arithmetic wraps.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Sum {
    pub constant: i64,
    /// Sorted by axis, without duplicates or zero coefficients.
    pub axes: Vec<(AxisId, i64)>,
    pub terms: Vec<(Term, i64)>,
}

/// A term of an expression other than an axis.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Term {
    /// The value of a register of i32 or i64.
    Register(Reg),
    /// Floor division.
    Div(Sum, i64),
    /// The remainder of the floor division.
    Mod(Sum, i64),
    /// The value, clamped to `0..=number`.
    Clamp(Sum, i64),
}

impl From<&Affine> for Sum {
    fn from(affine: &Affine) -> Sum {
        let mut sum = Sum { constant: affine.constant, ..Sum::default() };
        for (term, coefficient) in &affine.terms {
            match term {
                nest::Term::Axis(axis) => sum.axes.push((*axis, *coefficient)),
                nest::Term::Reg(reg) => sum.terms.push((Term::Register(*reg), *coefficient)),
                nest::Term::FloorDiv(inner, d) => {
                    sum.terms.push((Term::Div((&**inner).into(), *d), *coefficient))
                }
                nest::Term::Mod(inner, d) => {
                    sum.terms.push((Term::Mod((&**inner).into(), *d), *coefficient))
                }
            }
        }
        sum
    }
}

impl Sum {
    /// A single term.
    pub fn term(term: Term) -> Sum {
        Sum { terms: vec![(term, 1)], ..Sum::default() }
    }

    /// The coefficient of an axis.
    pub fn coefficient(&self, axis: AxisId) -> i64 {
        self.axes.iter().find(|(a, _)| *a == axis).map_or(0, |(_, c)| *c)
    }

    /// `self += factor · other`.
    pub fn add(&mut self, other: &Sum, factor: i64) {
        self.constant = self.constant.wrapping_add(other.constant.wrapping_mul(factor));
        for (axis, coefficient) in &other.axes {
            let coefficient = coefficient.wrapping_mul(factor);
            match self.axes.binary_search_by_key(axis, |(a, _)| *a) {
                Ok(at) => self.axes[at].1 = self.axes[at].1.wrapping_add(coefficient),
                Err(at) => self.axes.insert(at, (*axis, coefficient)),
            }
        }
        self.axes.retain(|(_, c)| *c != 0);
        for (term, coefficient) in &other.terms {
            let coefficient = coefficient.wrapping_mul(factor);
            match self.terms.iter_mut().find(|(t, _)| t == term) {
                Some((_, sum)) => *sum = sum.wrapping_add(coefficient),
                None => self.terms.push((term.clone(), coefficient)),
            }
        }
        self.terms.retain(|(_, c)| *c != 0);
    }

    /// Undoes the splitting by a reshape: `c·d·⌊e / d⌋ + c·(e mod d) = c·e`.
    pub fn rejoin(&mut self) {
        let pair = self.terms.iter().enumerate().find_map(|(at, (term, c))| {
            let Term::Mod(e, d) = term else { return None };
            let whole = (Term::Div(e.clone(), *d), c.wrapping_mul(*d));
            let other = self.terms.iter().position(|t| *t == whole)?;
            Some((at, other, e.clone(), *c))
        });
        if let Some((at, other, e, c)) = pair {
            self.terms.remove(at.max(other));
            self.terms.remove(at.min(other));
            self.add(&e, c);
            self.rejoin();
        }
    }

    /// The value for these values of its axes; it has no registers.
    pub fn at(&self, axis: &impl Fn(AxisId) -> i64) -> i64 {
        let mut value = self.constant;
        for (of, coefficient) in &self.axes {
            value = value.wrapping_add(coefficient.wrapping_mul(axis(*of)));
        }
        for (term, coefficient) in &self.terms {
            value = value.wrapping_add(coefficient.wrapping_mul(term.at(axis)));
        }
        value
    }

    /// Calls `f` for this sum and every nested one.
    pub fn visit(&self, f: &mut impl FnMut(&Sum)) {
        f(self);
        for (term, _) in &self.terms {
            if let Term::Div(e, _) | Term::Mod(e, _) | Term::Clamp(e, _) = term {
                e.visit(f);
            }
        }
    }

    /// Calls `f` for this sum and every nested one, mutably.
    pub fn visit_mut(&mut self, f: &mut impl FnMut(&mut Sum)) {
        f(self);
        for (term, _) in &mut self.terms {
            if let Term::Div(e, _) | Term::Mod(e, _) | Term::Clamp(e, _) = term {
                e.visit_mut(f);
            }
        }
    }

    /// True if the axis occurs in it or in a nested sum.
    pub fn depends_on(&self, axis: AxisId) -> bool {
        let mut found = false;
        self.visit(&mut |sum| found |= sum.coefficient(axis) != 0);
        found
    }

    /// Calls `f` for every register in it.
    pub fn visit_registers(&self, f: &mut impl FnMut(Reg)) {
        self.visit(&mut |sum| {
            for (term, _) in &sum.terms {
                if let Term::Register(reg) = term {
                    f(*reg);
                }
            }
        });
    }
}

impl Term {
    /// As [`Sum::at`].
    pub fn at(&self, axis: &impl Fn(AxisId) -> i64) -> i64 {
        match self {
            Term::Register(reg) => unreachable!("the value of {reg:?} is not known yet"),
            Term::Div(e, d) => e.at(axis).div_euclid(*d),
            Term::Mod(e, d) => e.at(axis).rem_euclid(*d),
            Term::Clamp(e, high) => e.at(axis).clamp(0, *high),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reshape_there_and_back_is_nothing() {
        let (i, j) = (AxisId(0), AxisId(1));
        let position = Affine::axis(i).scale(12).add(&Affine::axis(j));
        let mut sum = Sum::default();
        sum.add(&Sum::from(&position.floor_div(5)), 5);
        sum.add(&Sum::from(&position.modulo(5)), 1);
        assert_eq!(sum.terms.len(), 2);
        sum.rejoin();
        assert_eq!(sum, Sum { constant: 0, axes: vec![(i, 12), (j, 1)], terms: vec![] });
    }

    #[test]
    fn sums_cancel() {
        let mut sum = Sum::from(&Affine::axis(AxisId(3)).add(&Affine::reg(Reg(1))).offset(4));
        let other = sum.clone();
        sum.add(&other, -1);
        assert_eq!(sum, Sum::default());
    }
}
