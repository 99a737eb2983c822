//! Simplification of index expressions for fusion, which must recognise that two expressions
//! denote the same element.

use wengert_core::nest::bounds::Ranges;
use wengert_core::nest::{Affine, Guard, Nest, Term};

/// An expression with the same value wherever the guards hold. Divisions that ranges decide are
/// removed, and quotient and remainder of one division are recombined:
/// `8·floor_div(e, 8) + mod(e, 8)` is `e`, from a reshape that was undone.
pub(crate) fn simplify(nest: &Nest, guards: &[Guard], expression: &Affine) -> Affine {
    let ranges = Ranges::new(nest, guards);
    let mut simple = ranges.simplify(expression);
    // This terminates: each iteration removes one remainder and inserts simpler terms, so the
    // number of divisions falls.
    while let Some(joined) = recombine_within(&simple) {
        simple = ranges.simplify(&joined);
    }
    simple
}

/// Replaces one pair anywhere in the expression.
fn recombine_within(expression: &Affine) -> Option<Affine> {
    for (n, (term, factor)) in expression.terms.iter().enumerate() {
        let value = match term {
            Term::FloorDiv(inner, divisor) => {
                recombine_within(inner).map(|e| e.floor_div(*divisor))
            }
            Term::Mod(inner, divisor) => recombine_within(inner).map(|e| e.modulo(*divisor)),
            Term::Axis(_) | Term::Reg(_) => None,
        };
        if let Some(value) = value {
            let rest = expression
                .terms
                .iter()
                .enumerate()
                .filter(|(m, _)| *m != n)
                .map(|(_, t)| t.clone());
            return Some(Affine::from_terms(expression.constant, rest).add(&value.scale(*factor)));
        }
    }
    recombine(expression)
}

/// Replaces one pair `c·d·floor_div(e, d) + c·mod(e, d)` of the sum by `c·e`.
fn recombine(expression: &Affine) -> Option<Affine> {
    expression.terms.iter().find_map(|(term, factor)| {
        let Term::Mod(inner, divisor) = term else { return None };
        let quotient = inner.floor_div(*divisor);
        let [(wanted, 1)] = quotient.terms.as_slice() else { return None };
        if quotient.constant != 0 {
            return None;
        }
        let whole = factor.checked_mul(*divisor)?;
        let found = expression.terms.iter().any(|(t, f)| t == wanted && *f == whole);
        found.then(|| {
            let rest = expression.terms.iter().filter(|(t, _)| t != term && t != wanted).cloned();
            Affine::from_terms(expression.constant, rest).add(&inner.scale(*factor))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{flatten, reindex};
    use proptest::prelude::*;
    use wengert_core::Id;
    use wengert_core::nest::{Axis, AxisId};

    fn nest(extents: &[usize]) -> Nest {
        Nest {
            name: "n".into(),
            buffers: Default::default(),
            axes: extents.iter().map(|e| Axis { name: "i".into(), extent: *e }).collect(),
            parallel: (0..extents.len()).map(AxisId::new).collect(),
            phases: vec![],
            registers: Default::default(),
        }
    }

    #[test]
    fn a_reshape_that_is_undone_leaves_no_division() {
        for (from, to) in [
            (vec![6, 4], vec![4, 6]),
            (vec![24], vec![2, 3, 4]),
            (vec![2, 1, 3, 4], vec![3, 8]),
            (vec![5, 7, 9], vec![9, 35]),
        ] {
            let nest = nest(&from);
            let index: Vec<Affine> =
                (0..from.len()).map(|a| Affine::axis(AxisId::new(a))).collect();
            let there = reindex(&from, &index, &to);
            let flat = simplify(&nest, &[], &flatten(&to, &there));
            assert_eq!(flat, simplify(&nest, &[], &flatten(&from, &index)), "{from:?} as {to:?}");
            let back: Vec<Affine> =
                reindex(&to, &there, &from).iter().map(|e| simplify(&nest, &[], e)).collect();
            let wanted: Vec<Affine> = index.iter().map(|e| simplify(&nest, &[], e)).collect();
            assert_eq!(back, wanted, "{from:?} as {to:?}");
        }
    }

    proptest! {
        #[test]
        fn values_stay(
            terms in prop::collection::vec((0usize..2, 1i64..9, -9i64..9, any::<bool>()), 1..6)
        ) {
            let extents = [7usize, 5];
            let nest = nest(&extents);
            let expression =
                terms.iter().fold(Affine::constant(3), |sum, (axis, divisor, factor, quotient)| {
                    let inner = Affine::axis(AxisId::new(*axis))
                        .scale(2)
                        .add(&Affine::axis(AxisId::new(1 - *axis)));
                    let term =
                        if *quotient { inner.floor_div(*divisor) } else { inner.modulo(*divisor) };
                    sum.add(&term.scale(*factor))
                });
            let simple = simplify(&nest, &[], &expression);
            for i in 0..7 {
                for j in 0..5 {
                    let axis = |a: AxisId| [i, j][a.index()];
                    prop_assert_eq!(
                        simple.evaluate(&axis, &|_| 0),
                        expression.evaluate(&axis, &|_| 0)
                    );
                }
            }
        }
    }
}
