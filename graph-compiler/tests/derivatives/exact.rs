//! Derivatives of polynomial and rational programs are exact. Over rational numbers they equal the
//! coefficients of truncated power series ([`super::jet`]) with zero tolerance, to the third order,
//! in forward mode, reverse mode and mixtures.

use super::jet::Jet;
use wengert_compiler::autodiff::operators::{grad, jvp};
use wengert_core::Tensor;
use wengert_core::interpret::{Array, Cell, Cells, Real};
use wengert_testing::derivative::*;
use wengert_testing::smooth;
use wengert_testing::{Random, Rational};

const INPUTS: usize = 2;

fn rational(random: &mut Random) -> Rational {
    Rational::new(random.below(9) as i64 - 4, random.below(3) as i64 + 1)
}

fn array<R: Real>(cells: Vec<R>) -> Array<R> {
    let ty = smooth::ty();
    let cells = Cells::collect(cells.into_iter().map(Cell::Real)).unwrap();
    Array::new(ty.dtype, ty.extents().unwrap(), cells)
}

fn cells<R: Real>(arrays: &[Array<R>]) -> Vec<R> {
    arrays.iter().flat_map(|a| a.cells.iter().map(|c| c.real().clone())).collect()
}

/// The sum of the elements, for programs with a scalar value.
fn total(program: impl Fn(&[Tensor]) -> Tensor) -> impl Fn(&[Tensor]) -> Tensor {
    move |x| program(x).sum()
}

/// The derivative of `f` along t of order `modes.len()`, by nested derivatives. Each mode is true
/// for reverse mode, where D f[t] = ⟨∇f, t⟩, and false for forward mode.
fn derivative(
    f: &dyn Fn(&[Tensor]) -> Tensor,
    x: &[Tensor],
    t: &[Tensor],
    modes: &[bool],
) -> Tensor {
    let Some((reverse, rest)) = modes.split_first() else { return f(x) };
    let at = x.to_vec();
    let inner = |x: &Vec<Tensor>| derivative(f, x, t, rest);
    if !reverse {
        return jvp(&at, &t.to_vec(), inner).1;
    }
    let gradient = grad(&at, inner);
    let products = gradient.iter().zip(t).map(|(g, t)| (g * t).sum());
    products.reduce(|a, b| a + b).unwrap()
}

/// Checks a random program, and returns its third derivative in forward mode.
fn check(seed: u64, length: usize) -> Rational {
    let mut random = Random(seed);
    let program = total(smooth::random(seed, length, false));
    let count = smooth::ty().elements().unwrap();
    let point: Vec<Vec<Rational>> =
        (0..2 * INPUTS).map(|_| (0..count).map(|_| rational(&mut random)).collect()).collect();
    let (x, t) = point.split_at(INPUTS);

    let types = vec![smooth::ty(); INPUTS];
    let primal = build(&types, |x| vec![program(x)]);
    let jets: Vec<Array<Jet>> = x
        .iter()
        .zip(t)
        .map(|(x, t)| {
            array(x.iter().zip(t).map(|(x, t)| Jet::along(x.0.clone(), t.0.clone())).collect())
        })
        .collect();
    let series = cells(&run_on(&primal, &jets)).swap_remove(0).0;
    let factorial = [1, 1, 2, 6];

    let both: Vec<Array<Rational>> = point.iter().map(|v| array(v.clone())).collect();
    let modes: [&[bool]; 8] = [
        &[],
        &[false],
        &[true],
        &[false, false],
        &[false, true],
        &[true, true],
        &[false, false, true],
        &[true, false, false],
    ];
    for modes in modes {
        let all = vec![smooth::ty(); 2 * INPUTS];
        let f = build(&all, |values| {
            let (x, t) = values.split_at(INPUTS);
            vec![derivative(&program, x, t, modes)]
        });
        let value = cells(&run_on(&f, &both)).swap_remove(0);
        let expected = Rational(&series[modes.len()] * Rational::new(factorial[modes.len()], 1).0);
        assert_eq!(value, expected, "program {seed} of {length} operations, reverse: {modes:?}");
    }
    Rational(series[3].clone())
}

#[test]
fn derivatives_of_rational_programs_are_exact_to_the_third_order() {
    let thirds = (1..40).map(|seed| check(seed, 3 + seed as usize % 6));
    // A third derivative of zero proves little, so at least 15 must differ from zero.
    let curved = thirds.filter(|d| !d.is_zero()).count();
    assert!(curved >= 15, "{curved} of the programs have a third derivative");
}

#[test]
fn reverse_mode_thrice_is_exact() {
    for seed in 100..106 {
        let program = total(smooth::random(seed, 4, false));
        let all = vec![smooth::ty(); 2 * INPUTS];
        let thrice = |modes: &[bool]| {
            let f = build(&all, |values| {
                let (x, t) = values.split_at(INPUTS);
                vec![derivative(&program, x, t, modes)]
            });
            let mut random = Random(seed);
            let inputs: Vec<Array<Rational>> = (0..2 * INPUTS)
                .map(|_| array((0..6).map(|_| rational(&mut random)).collect()))
                .collect();
            cells(&run_on(&f, &inputs))
        };
        assert_eq!(thrice(&[true, true, true]), thrice(&[false, false, false]), "program {seed}");
    }
}
