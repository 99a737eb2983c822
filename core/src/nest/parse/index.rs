//! Parser of index expressions.

use super::Parser;
use crate::diagnostic::{Result, ensure};
use crate::nest::{Affine, Term};
use crate::text::{Cursor, Kind};
use std::collections::BTreeMap;

impl<'a> Parser<'a> {
    /// A sum of integers, axes, registers, divisions, and integer multiples of these, in normal
    /// form.
    pub(super) fn affine(&self, c: &mut Cursor<'a>) -> Result<Affine> {
        let start = c.peek();
        let mut constant: i128 = 0;
        let mut terms: BTreeMap<Term, i128> = BTreeMap::new();
        let mut minus = c.eat("-");
        loop {
            if matches!(c.peek().kind, Kind::Integer(_)) || c.is("-") {
                let mut factor = c.expect_wide_integer("an integer")?;
                if minus {
                    factor = -factor;
                }
                if c.eat("*") {
                    self.add(c, factor, &mut constant, &mut terms)?;
                } else {
                    constant += factor;
                }
            } else {
                self.add(c, if minus { -1 } else { 1 }, &mut constant, &mut terms)?;
            }
            minus = c.is("-");
            if !minus && !c.is("+") {
                break;
            }
            c.advance();
        }
        let wide = |_| c.error(start, "index expression is beyond 64 bits");
        let narrow = terms
            .into_iter()
            .filter(|(_, f)| *f != 0)
            .map(|(t, f)| Ok((t, i64::try_from(f).map_err(wide)?)))
            .collect::<Result<Vec<_>>>()?;
        Ok(Affine { constant: i64::try_from(constant).map_err(wide)?, terms: narrow })
    }

    /// Adds `factor` times the axis, register or division at the cursor. A sum without divisions
    /// overflows only with 2^63 terms in the text. The parts of a division are added here with
    /// factors of their own.
    fn add(
        &self,
        c: &mut Cursor<'a>,
        factor: i128,
        constant: &mut i128,
        terms: &mut BTreeMap<Term, i128>,
    ) -> Result<()> {
        let token = c.peek();
        let term = match token.kind {
            Kind::Value(_) => Term::Reg(self.reg(c)?),
            Kind::Name(name @ ("floor_div" | "mod")) => {
                c.advance();
                let value = c.nested(|c| self.division(c, name == "floor_div"))?;
                let wide = || c.error(token, "index expression is beyond 64 bits");
                let scaled =
                    |v: i64| i128::from(v).checked_mul(factor).filter(|v| v.abs() <= 1 << 100);
                *constant += scaled(value.constant).ok_or_else(wide)?;
                for (term, coefficient) in value.terms {
                    *terms.entry(term).or_default() += scaled(coefficient).ok_or_else(wide)?;
                }
                return Ok(());
            }
            Kind::Name(name) => {
                let axis = self.axes.get(name).ok_or_else(|| {
                    c.error(token, format!("no axis `{name}` is visible here"))
                        .help("parallel axes and the axes of the phase are")
                })?;
                c.advance();
                Term::Axis(*axis)
            }
            _ => return Err(c.unexpected("an index expression")),
        };
        *terms.entry(term).or_default() += factor;
        Ok(())
    }

    fn division(&self, c: &mut Cursor<'a>, floor: bool) -> Result<Affine> {
        c.expect("(")?;
        let value = self.affine(c)?;
        c.expect(",")?;
        let token = c.peek();
        let divisor: i64 = c.expect_integer("a divisor")?;
        ensure!(divisor >= 1, c at token, "divisor {divisor} is not at least 1");
        c.expect(")")?;
        Ok(if floor { value.floor_div(divisor) } else { value.modulo(divisor) })
    }
}
