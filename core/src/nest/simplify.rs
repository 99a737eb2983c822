//! Simplification of index expressions by the ranges of their terms.
//!
//! Reshapes leave divisions, and fusing reshapes nests the divisions. Most vanish if the inner
//! axis is known to be shorter than the divisor: `floor_div(8*i+j, 8)` is `i` for `j` in `0..8`.

use super::bounds::{Interval, Ranges, gcd};
use super::{Affine, Term};

impl Ranges<'_> {
    /// An expression with the same value wherever the guards of these ranges hold, without the
    /// divisions whose result the ranges determine.
    pub fn simplify(&self, expression: &Affine) -> Affine {
        let start = Affine::constant(expression.constant);
        expression.terms.iter().fold(start, |sum, (term, factor)| {
            let value = match term {
                Term::Axis(_) | Term::Reg(_) => {
                    let Interval { low, high } = self.term(term);
                    match i64::try_from(low) {
                        Ok(only) if low == high => Affine::constant(only),
                        _ => Affine { constant: 0, terms: vec![(term.clone(), 1)] },
                    }
                }
                Term::FloorDiv(inner, divisor) => self.divide(&self.simplify(inner), *divisor).0,
                Term::Mod(inner, divisor) => self.divide(&self.simplify(inner), *divisor).1,
            };
            sum.add(&value.scale(*factor))
        })
    }

    /// Quotient and remainder.
    fn divide(&self, value: &Affine, divisor: i64) -> (Affine, Affine) {
        if !self.is_exact(value) {
            return (value.floor_div(divisor), value.modulo(divisor));
        }
        let range = self.of(value);
        let (low, high) =
            (range.low.div_euclid(divisor.into()), range.high.div_euclid(divisor.into()));
        if low == high && !range.is_empty() {
            let quotient = i64::try_from(low).expect("a quotient of a 64-bit integer");
            return (
                Affine::constant(quotient),
                value.offset(divisor.wrapping_mul(quotient.wrapping_neg())),
            );
        }
        // value = step · coarse + fine with 0 <= fine < step, where the step divides the divisor.
        // The fine part affects neither the quotient nor the coarse part of the remainder.
        for (_, factor) in &value.terms {
            let step = gcd(factor.unsigned_abs(), divisor.unsigned_abs()) as i64;
            if step <= 1 {
                continue;
            }
            let (whole, part): (Vec<_>, Vec<_>) =
                value.terms.iter().cloned().partition(|(_, c)| c % step == 0);
            let fine = Affine::from_terms(value.constant.rem_euclid(step), part);
            let coarse = Affine::from_terms(
                value.constant.div_euclid(step),
                whole.into_iter().map(|(t, c)| (t, c / step)),
            );
            if !self.of(&fine).within(0, step.into()) || !self.is_exact(&fine) {
                continue;
            }
            if step == divisor {
                return (coarse, fine);
            }
            let (quotient, remainder) = self.divide(&coarse, divisor / step);
            return (quotient, remainder.scale(step).add(&fine));
        }
        (value.floor_div(divisor), value.modulo(divisor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Id;
    use crate::nest::{Axis, AxisId, Nest};
    use proptest::prelude::*;

    fn nest(extents: &[usize]) -> Nest {
        Nest {
            name: "n".into(),
            buffers: Default::default(),
            axes: extents.iter().map(|e| Axis { name: "i".into(), extent: *e }).collect(),
            parallel: (0..extents.len()).map(AxisId::new).collect(),
            phases: Vec::new(),
            registers: Default::default(),
        }
    }

    fn axis(n: usize) -> Affine {
        Affine::axis(AxisId::new(n))
    }

    #[test]
    fn divisions_that_ranges_decide_vanish() {
        let nest = nest(&[6, 8, 4]);
        let ranges = Ranges::new(&nest, &[]);
        let flat = axis(0).scale(8).add(&axis(1));
        assert_eq!(ranges.simplify(&flat.floor_div(8)), axis(0));
        assert_eq!(ranges.simplify(&flat.modulo(8)), axis(1));
        // From [6,8] to [3,16] and on to [3,4,4].
        assert_eq!(ranges.simplify(&flat.floor_div(16)), axis(0).floor_div(2));
        assert_eq!(ranges.simplify(&flat.modulo(16)), axis(0).modulo(2).scale(8).add(&axis(1)));
        assert_eq!(ranges.simplify(&flat.floor_div(100)), Affine::constant(0));
        assert_eq!(ranges.simplify(&flat.modulo(100)), flat);
    }

    #[test]
    fn what_a_division_leaves_is_below_the_divisor() {
        let nest = nest(&[28, 28, 4]);
        let ranges = Ranges::new(&nest, &[]);
        let left = |x: &Affine, d: i64| x.add(&x.floor_div(d).scale(-d));
        let of = |x: &Affine| (ranges.of(x).low, ranges.of(x).high);
        assert_eq!(of(&left(&axis(0), 2)), (0, 1));
        assert_eq!(of(&left(&axis(0).offset(3), 5)), (0, 4));
        // Three times, with other terms.
        assert_eq!(of(&left(&axis(1), 4).scale(3).add(&axis(2)).offset(-1)), (-1, 9 + 3 - 1));
    }

    fn expressions() -> impl Strategy<Value = Affine> {
        let leaf = prop_oneof![(-20i64..20).prop_map(Affine::constant), (0usize..3).prop_map(axis)];
        leaf.prop_recursive(4, 20, 3, |inner| {
            prop_oneof![
                (inner.clone(), inner.clone()).prop_map(|(a, b)| a.add(&b)),
                (inner.clone(), -13i64..13).prop_map(|(a, f)| a.scale(f)),
                (inner.clone(), 1i64..30).prop_map(|(a, d)| a.floor_div(d)),
                (inner, 1i64..30).prop_map(|(a, d)| a.modulo(d)),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn values_stay_and_lie_in_their_intervals(
            expression in expressions(),
            extents in prop::collection::vec(1usize..7, 3),
        ) {
            let nest = nest(&extents);
            let ranges = Ranges::new(&nest, &[]);
            let (simple, interval) = (ranges.simplify(&expression), ranges.of(&expression));
            for i in 0..extents[0] as i64 {
                for j in 0..extents[1] as i64 {
                    for k in 0..extents[2] as i64 {
                        let counter = |a: AxisId| [i, j, k][a.index()];
                        let value = expression.evaluate(&counter, &|_| 0);
                        prop_assert_eq!(simple.evaluate(&counter, &|_| 0), value, "{:?}", simple);
                        prop_assert!(interval.within(interval.low, interval.high + 1));
                        prop_assert!((interval.low..=interval.high).contains(&value.into()));
                    }
                }
            }
        }
    }
}
