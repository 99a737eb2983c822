//! Index expressions as code.
//!
//! Expressions are computed in 32 bits where the interval of their value fits, else in 64.
//! Intermediate sums may wrap: only the final value and dividends must be exact. A sum is emitted
//! term by term, outer axes first, and every partial sum is recorded, so that accesses share
//! common terms and loops reuse the outer part.

use super::emit::{Copy, Emit, Key};
use crate::ptx::{Binary, Compare, Reg, Rounding, Ternary, Type, Width};
use crate::scalar;
use std::collections::BTreeSet;
use wengert_core::Id;
use wengert_core::nest::bounds::{Interval, Ranges};
use wengert_core::nest::{Affine, Guard, Term};
use wengert_core::{DType, Scalar};

impl Emit<'_> {
    /// Rewrites an expression over axes of the nest to one over axes of the schedule, for a copy.
    pub fn expression(&mut self, expression: &Affine, number: usize, copy: &Copy) -> Affine {
        let mut registers = BTreeSet::new();
        expression.visit_terms(&mut |term| {
            if let Term::Reg(reg) = term {
                registers.insert(*reg);
            }
        });
        let registers: Vec<_> = registers
            .into_iter()
            .map(|reg| {
                let (value, dtype) = (self.value(number, reg), self.nest.registers[reg]);
                (reg, self.data_register(value, dtype))
            })
            .collect();
        let data = |reg| {
            let (_, data) = registers.iter().find(|(r, _)| *r == reg).expect("all were visited");
            Affine::reg(*data)
        };
        let placed = expression.substitute(&|axis| copy.axes[axis.index()].clone(), &data);
        Ranges::new(&self.bounds, &[]).simplify(&placed)
    }

    /// The interval of an expression over axes of the schedule.
    pub fn interval(&self, expression: &Affine) -> Interval {
        let ranges = Ranges::new(&self.bounds, &[]);
        if ranges.is_exact(expression) { ranges.of(expression) } else { Interval::ALL }
    }

    /// Whether its value fits into a signed 32-bit integer.
    pub fn is_narrow(&self, expression: &Affine) -> bool {
        self.interval(expression).within(i32::MIN.into(), i128::from(i32::MAX) + 1)
    }

    /// An expression in a register of an integer dtype, wrapped to it.
    pub fn index(&mut self, expression: &Affine, dtype: DType) -> Reg {
        if dtype.size() == 8 {
            return self.wide(expression);
        }
        let value = self.narrow(expression);
        if dtype.size() == 1 {
            let convert = wengert_core::nest::ScalarOp::Convert;
            return scalar::emit(
                &mut self.code,
                &mut self.functions,
                convert,
                &[DType::I32],
                dtype,
                &[value],
            )
            .expect("conversions exist");
        }
        value
    }

    /// The lower 32 bits of an expression.
    pub fn narrow(&mut self, expression: &Affine) -> Reg {
        self.sum(expression, false)
    }

    /// All 64 bits of an expression.
    pub fn wide(&mut self, expression: &Affine) -> Reg {
        if !expression.terms.is_empty() && self.is_narrow(expression) {
            return self.once(Key::Sum(expression.clone(), true), |emit| {
                let narrow = emit.narrow(expression);
                emit.code.convert(Rounding::Exact, Type::S64, Type::S32, narrow)
            });
        }
        self.sum(expression, true)
    }

    /// An expression in 32 or 64 bits, and the type.
    pub fn number(&mut self, expression: &Affine, wide: bool) -> (Reg, Type) {
        match wide {
            true => (self.wide(expression), Type::S64),
            false => (self.narrow(expression), Type::S32),
        }
    }

    fn sum(&mut self, expression: &Affine, wide: bool) -> Reg {
        self.once(Key::Sum(expression.clone(), wide), |emit| emit.new_sum(expression, wide))
    }

    fn new_sum(&mut self, expression: &Affine, wide: bool) -> Reg {
        let (ty, signed) = if wide { (Type::B64, Type::S64) } else { (Type::B32, Type::S32) };
        let cut = |value: i64| if wide { value } else { i64::from(value as i32) };
        match expression.terms.split_last() {
            None => self.code.mov(ty, cut(expression.constant)),
            Some(_) if expression.constant != 0 => {
                let start = Affine { constant: 0, terms: expression.terms.clone() };
                let start = self.sum(&start, wide);
                self.code.binary(Binary::Add, signed, start, cut(expression.constant))
            }
            Some(((term, factor), [])) => {
                let value = self.term(term, wide);
                match cut(*factor) {
                    1 => value,
                    factor => self.code.binary(Binary::Mul, signed, value, factor),
                }
            }
            Some(((term, factor), rest)) => {
                let rest = self.sum(&Affine { constant: 0, terms: rest.to_vec() }, wide);
                let value = self.term(term, wide);
                match cut(*factor) {
                    1 => self.code.binary(Binary::Add, signed, rest, value),
                    -1 => self.code.binary(Binary::Sub, signed, rest, value),
                    factor => self.code.ternary(Ternary::Mad, signed, value, factor, rest),
                }
            }
        }
    }

    fn term(&mut self, term: &Term, wide: bool) -> Reg {
        match term {
            Term::Axis(axis) => {
                let register =
                    self.axis_registers[axis.index()].expect("the axis is one of a loop around");
                // Counters are not negative.
                self.resize(register, wide, Type::U32)
            }
            Term::Reg(reg) => {
                let register = self.data[reg];
                self.resize(register, wide, Type::S32)
            }
            Term::FloorDiv(inner, divisor) => self.floor_div(inner, *divisor, wide),
            Term::Mod(inner, divisor) => self.modulo(inner, *divisor, wide),
        }
    }

    /// The register in 32 or 64 bits.
    fn resize(&mut self, register: Reg, wide: bool, narrow: Type) -> Reg {
        match (register.width == Width::B64, wide) {
            (false, true) => {
                let wide = if narrow == Type::S32 { Type::S64 } else { Type::U64 };
                self.code.convert(Rounding::Exact, wide, narrow, register)
            }
            (true, false) => self.code.convert(Rounding::Exact, Type::U32, Type::U64, register),
            _ => register,
        }
    }

    /// The dividend with all its bits, whether it has 64 bits, and whether it may be negative.
    fn dividend(&mut self, inner: &Affine, divisor: i64) -> (Reg, bool, bool) {
        let interval = self.interval(inner);
        let wide = !self.is_narrow(inner) || i32::try_from(divisor).is_err();
        (self.number(inner, wide).0, wide, interval.low < 0)
    }

    fn floor_div(&mut self, inner: &Affine, divisor: i64, wide: bool) -> Reg {
        let quotient = self.quotient(inner, divisor);
        self.resize(quotient, wide, Type::S32)
    }

    /// The quotient, in as many bits as the dividend needs.
    fn quotient(&mut self, inner: &Affine, divisor: i64) -> Reg {
        let (value, wide, negative) = self.dividend(inner, divisor);
        let (signed, unsigned) = if wide { (Type::S64, Type::U64) } else { (Type::S32, Type::U32) };
        self.once(Key::Quotient(inner.clone(), divisor, wide), |Emit { code, .. }| {
            if divisor.count_ones() == 1 {
                let by = i64::from(divisor.trailing_zeros());
                code.binary(Binary::Shr, signed, value, by)
            } else if negative {
                let truncated = code.binary(Binary::Div, signed, value, divisor);
                let back = code.binary(Binary::Mul, signed, truncated, divisor);
                let above = code.compare(Compare::Gt, signed, back, value);
                let lower = code.binary(Binary::Add, signed, truncated, -1);
                code.select(signed, lower, truncated, above)
            } else {
                code.binary(Binary::Div, unsigned, value, divisor)
            }
        })
    }

    fn modulo(&mut self, inner: &Affine, divisor: i64, wide: bool) -> Reg {
        if divisor.count_ones() == 1 {
            // The lower bits are the same in either width.
            let (value, _) = self.number(inner, wide || i32::try_from(divisor).is_err());
            let ty = if value.width == Width::B64 { Type::B64 } else { Type::B32 };
            let value = self.code.binary(Binary::And, ty, value, divisor - 1);
            return self.resize(value, wide, Type::U32);
        }
        let quotient = self.quotient(inner, divisor);
        let (value, exact, _) = self.dividend(inner, divisor);
        let signed = if exact { Type::S64 } else { Type::S32 };
        let multiple = self.code.binary(Binary::Mul, signed, quotient, divisor);
        let rest = self.code.binary(Binary::Sub, signed, value, multiple);
        self.resize(rest, wide, Type::U32)
    }

    /// The conjunction of all guards in a copy; none where they always hold.
    pub fn guards(&mut self, guards: &[Guard], number: usize, copy: &Copy) -> Option<Reg> {
        let mut all: Vec<Reg> = Vec::new();
        for guard in guards {
            let expression = self.expression(&guard.index, number, copy);
            all.extend(self.guard(&expression, guard.low, guard.high));
        }
        self.all(all)
    }

    /// The conjunction of predicates; none if there are none.
    pub fn all(&mut self, mut predicates: Vec<Reg>) -> Option<Reg> {
        predicates.sort();
        predicates.dedup();
        let (first, others) = predicates.split_first()?;
        if others.is_empty() {
            return Some(*first);
        }
        Some(self.once(Key::All(predicates.clone()), |Emit { code, .. }| {
            others.iter().fold(*first, |all, p| code.binary(Binary::And, Type::Pred, all, *p))
        }))
    }

    /// A predicate for `low <= expression < high`; none where that always holds.
    pub fn guard(&mut self, expression: &Affine, low: i64, high: i64) -> Option<Reg> {
        let interval = self.interval(expression);
        let (low, high) = (i128::from(low), i128::from(high));
        let (above, below) = (interval.low >= low, interval.high < high);
        if above && below {
            return None;
        }
        if low >= high || interval.high < low || interval.low >= high {
            return Some(self.constant(Scalar::of(false)));
        }
        let (low, high) = (low as i64, high as i64);
        Some(self.once(Key::Guard(expression.clone(), low, high), |emit| {
            let (value, ty) = emit.number(expression, !emit.is_narrow(expression));
            let code = &mut emit.code;
            if above {
                code.compare(Compare::Lt, ty, value, high)
            } else if below {
                code.compare(Compare::Ge, ty, value, low)
            } else {
                let high = code.compare(Compare::Lt, ty, value, high);
                let low = code.compare(Compare::Ge, ty, value, low);
                code.binary(Binary::And, Type::Pred, low, high)
            }
        }))
    }
}
