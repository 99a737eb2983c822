//! Cotangents with a separate sign.
//!
//! Where a program subtracts, its transpose negates a cotangent. If that cotangent is later added
//! to another one, a subtraction gives the same sum without the negation. A linear op passes a
//! sign through, Aᵀ·(−c) = −(Aᵀ·c). So a [`Cotangent`] is a tensor and a sign, and [`Sums`] adds
//! or subtracts them.
//!
//! A sign is passed on only if an addition that absorbs it is near ([`Sums::takes_up`]).
//! Otherwise the cotangent is negated at once: a sign that reaches the end of the program costs
//! one negation for each input, of the input's size, where one negation of a scalar may do.
//!
//! Signs change no bit but the sign of a zero: rounding is symmetric.

use super::transpose::sees_signs;
use super::{add, emit_one};
use wengert_core::build::Scope;
use wengert_core::graph::{Body, Equation, ValueId};
use wengert_core::op::derivative::{Derivative, Sign};
use wengert_core::op::{Binary, Unary};
use wengert_core::{IdVec, LocationId, Result, Tensor};

/// Maximum number of equations that the search for a sum follows.
const REACH: usize = 16;

/// A cotangent: a tensor, or its negative.
#[derive(Clone)]
pub(super) struct Cotangent {
    tensor: Tensor,
    /// The equation whose transposition negates, if the sign is minus.
    minus: Option<Negation>,
}

/// The origin of a sign.
#[derive(Clone, Copy)]
struct Negation {
    op: &'static str,
    location: LocationId,
}

impl Cotangent {
    pub fn plus(tensor: Tensor) -> Self {
        Cotangent { tensor, minus: None }
    }

    pub fn sign(&self) -> Sign {
        if self.minus.is_some() { Sign::Minus } else { Sign::Plus }
    }

    /// The tensor without its sign.
    pub fn unsigned(&self) -> &Tensor {
        &self.tensor
    }

    /// This cotangent times a sign that comes from `equation`.
    pub fn times(mut self, sign: Sign, equation: &Equation) -> Self {
        let here = Negation { op: equation.op.name(), location: equation.location };
        self.minus = match (sign, self.minus) {
            (Sign::Plus, minus) => minus,
            (Sign::Minus, None) => Some(here),
            (Sign::Minus, Some(_)) => None,
        };
        self
    }

    /// As a tensor, negated if the sign is minus.
    pub fn plain(self, scope: &Scope) -> Result<Tensor> {
        let Some(Negation { op, location }) = self.minus else { return Ok(self.tensor) };
        scope.derived(location, format!("transpose({op})"), || {
            emit_one(Unary::Neg.into(), &[self.tensor])
        })
    }

    /// The sum of two cotangents. Its sign is minus only if both are.
    fn plus_another(self, other: &Self) -> Result<Self> {
        let minus = self.minus.filter(|_| other.minus.is_some());
        let difference =
            |a: &Tensor, b: &Tensor| emit_one(Binary::Sub.into(), &[a.clone(), b.clone()]);
        let tensor = match (self.sign(), other.sign()) {
            (Sign::Plus, Sign::Minus) => difference(&self.tensor, &other.tensor)?,
            (Sign::Minus, Sign::Plus) => difference(&other.tensor, &self.tensor)?,
            _ => add(self.tensor, &other.tensor)?,
        };
        Ok(Cotangent { tensor, minus })
    }
}

/// The cotangents of a linear program's values, summed so far.
pub(super) struct Sums<'b> {
    body: &'b Body,
    is_linear: &'b IdVec<ValueId, bool>,
    of: IdVec<ValueId, Option<Cotangent>>,
    /// The equations that use a value and will contribute to its cotangent.
    users: IdVec<ValueId, Vec<usize>>,
    /// The equation that computes a value.
    maker: IdVec<ValueId, Option<usize>>,
}

impl<'b> Sums<'b> {
    /// No cotangents yet. The `given` outputs will have some.
    pub fn new(body: &'b Body, is_linear: &'b IdVec<ValueId, bool>, given: &[bool]) -> Self {
        let mut live: IdVec<ValueId, bool> = body.values.ids().map(|_| false).collect();
        for (output, given) in body.outputs.iter().zip(given) {
            live[*output] |= *given && is_linear[*output];
        }
        let mut users: IdVec<ValueId, Vec<usize>> = body.values.ids().map(|_| Vec::new()).collect();
        let mut maker: IdVec<ValueId, Option<usize>> = body.values.ids().map(|_| None).collect();
        for (position, equation) in body.equations.iter().enumerate().rev() {
            equation.results.iter().for_each(|v| maker[*v] = Some(position));
            if equation.results.iter().any(|v| live[*v]) {
                for operand in equation.operands.iter().filter(|v| is_linear[**v]) {
                    live[*operand] = true;
                    users[*operand].push(position);
                }
            }
        }
        Sums { body, is_linear, of: body.values.ids().map(|_| None).collect(), users, maker }
    }

    /// Adds to the cotangent of a value.
    pub fn give(
        &mut self,
        scope: &Scope,
        to: ValueId,
        cotangent: Cotangent,
        from: LocationId,
    ) -> Result<()> {
        assert_eq!(
            cotangent.tensor.ty(),
            self.body.ty(to),
            "a cotangent has the type of its value"
        );
        self.of[to] = Some(match self.of[to].take() {
            None => cotangent,
            Some(sum) => {
                scope.derived(from, "transpose(fan_out)", || sum.plus_another(&cotangent))?
            }
        });
        Ok(())
    }

    /// Removes and returns the final cotangent of a value.
    pub fn take(&mut self, value: ValueId) -> Option<Cotangent> {
        self.of[value].take()
    }

    /// Whether a negative cotangent that the equation at `position` passes on is sure to be
    /// absorbed: by an addition to a positive cotangent, or by another negation. The search
    /// follows equations with one linear operand each, to a value that has, or will have, a
    /// positive cotangent from another equation.
    pub fn takes_up(&self, position: usize) -> bool {
        let (mut at, mut sign) = (position, Sign::Minus);
        for _ in 0..REACH {
            let equation = &self.body.equations[at];
            let linear: Vec<usize> = (0..equation.operands.len())
                .filter(|i| self.is_linear[equation.operands[*i]])
                .collect();
            let [operand] = linear.as_slice() else { return false };
            match equation.op.derivative() {
                rule if sees_signs(&rule) => return false,
                Derivative::SignedSum(signs) => sign = sign * signs[*operand],
                _ => {}
            }
            let value = equation.operands[*operand];
            if let Some(sum) = &self.of[value] {
                return sign == Sign::Plus || sum.sign() == Sign::Plus;
            }
            let mut others = self.users[value].iter().filter(|user| **user != at).peekable();
            if sign == Sign::Plus || others.any(|user| self.will_add(*user, value)) {
                return true;
            }
            match self.maker[value] {
                Some(maker) if self.users[value].len() == 1 => at = maker,
                _ => return false,
            }
        }
        false
    }

    /// Whether an equation is known to contribute a positive cotangent to one of its operands.
    fn will_add(&self, user: usize, value: ValueId) -> bool {
        let equation = &self.body.equations[user];
        let mut known = equation.results.iter().filter_map(|v| self.of[*v].as_ref()).peekable();
        let any = known.peek().is_some();
        let plus = any && known.all(|sum| sum.sign() == Sign::Plus);
        let mut signs = equation.operands.iter().enumerate().filter(|(_, v)| **v == value);
        plus && match equation.op.derivative() {
            rule if sees_signs(&rule) => false,
            Derivative::SignedSum(of) => signs.all(|(i, _)| of[i] == Sign::Plus),
            _ => true,
        }
    }
}
