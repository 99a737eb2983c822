//! Random smooth programs under `vmap` and `grad` in both orders.

use super::examples::stack;
use wengert_compiler::autodiff::operators::{grad, jvp};
use wengert_compiler::vmap::operators::vmap;
use wengert_core::{Literal, Tensor, TensorType};
use wengert_testing::Random;
use wengert_testing::derivative::*;
use wengert_testing::smooth::{random, ty};

/// The number of examples.
const COUNT: usize = 3;

/// loss(x, w), by a random program.
fn loss(seed: u64) -> impl Fn(&Tensor, &Tensor) -> Tensor {
    let program = random(seed, 8, true);
    move |x, w| program(&[x.clone(), w.clone()]).sum()
}

fn batch_of(ty: &TensorType) -> TensorType {
    let mut shape = ty.shape.clone();
    shape.insert(0, COUNT.into());
    ty.with_shape(shape)
}

#[test]
fn a_mapped_gradient_is_the_loop_of_gradients_and_sums_to_the_gradient_of_the_sum() {
    let (single, batch) = (ty(), batch_of(&ty()));
    for seed in 1..200 {
        let f = loss(seed);
        // The gradients in the mapped argument and in the shared one.
        let gradients = |x: &Tensor, w: &Tensor| grad(&(x.clone(), w.clone()), |(x, w)| f(x, w));
        let one = build(&[single.clone(), single.clone()], |v| {
            let (x, w) = gradients(&v[0], &v[1]);
            vec![x, w]
        });
        let each = build(&[batch.clone(), single.clone()], |v| {
            let (x, w) = vmap(&v[0], |x| gradients(x, &v[1]));
            vec![x, w]
        });
        let whole = build(&[batch.clone(), single.clone()], |v| {
            let (x, w) = grad(&(v[0].clone(), v[1].clone()), |(x, w)| vmap(x, |x| f(x, w)).sum());
            vec![x, w]
        });
        let mut numbers = Random(seed ^ 0x6ead);
        let examples: Vec<Literal> = (0..COUNT).map(|_| numbers.literal(&single)).collect();
        let w = numbers.literal(&single);
        let loop_of: Vec<Vec<Literal>> =
            examples.iter().map(|x| run(&one, &[x.clone(), w.clone()])).collect();
        let part = |i: usize| stack(&loop_of.iter().map(|r| r[i].clone()).collect::<Vec<_>>(), 0);
        let inputs = [stack(&examples, 0), w];
        let mapped = run(&each, &inputs);
        assert_eq!(mapped, [part(0), part(1)], "seed {seed}");

        let whole = run(&whole, &inputs);
        let sum: Vec<f64> =
            (0..6).map(|k| flat(&mapped[1..]).iter().skip(k).step_by(6).sum()).collect();
        let what = format!("seed {seed}");
        assert_close(&flat(&whole[..1]), &flat(&mapped[..1]), 1e-12, &what);
        assert_close(&flat(&whole[1..]), &sum, 1e-12, &what);
    }
}

/// A map over directions at one point, and second derivatives: a Hessian row by row equals the loop
/// of Hessian-vector products.
#[test]
fn a_map_of_hessian_vector_products_is_their_loop() {
    let (single, batch) = (ty(), batch_of(&ty()));
    for seed in 1..100 {
        let f = loss(seed);
        let product = |x: &Tensor, t: &Tensor| jvp(x, t, |x| grad(x, |x| f(x, x))).1;
        let one = build(&[single.clone(), single.clone()], |v| vec![product(&v[0], &v[1])]);
        let each =
            build(&[single.clone(), batch.clone()], |v| vec![vmap(&v[1], |t| product(&v[0], t))]);
        let mut numbers = Random(seed ^ 0x4e55);
        let x = numbers.literal(&single);
        let directions: Vec<Literal> = (0..COUNT).map(|_| numbers.literal(&single)).collect();
        let wanted: Vec<Literal> =
            directions.iter().map(|t| run(&one, &[x.clone(), t.clone()]).remove(0)).collect();
        assert_eq!(run(&each, &[x, stack(&directions, 0)])[0], stack(&wanted, 0), "seed {seed}");
    }
}
