//! The laws of vector spaces, on a type that contains one of each kind of container. The elements
//! are small integers, so that sums and products of doubles are exact.

use crate::support::elements;
use proptest::prelude::*;
use std::collections::BTreeMap;
use wengert_core::{Differentiable, Literal, Tensor, VectorSpace};

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
enum Tree {
    Leaf(Tensor),
    Node { left: Box<Tree>, value: Option<Tensor>, right: Box<Tree> },
}

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct All {
    tree: Tree,
    pair: (Tensor, [Tensor; 2]),
    map: BTreeMap<String, Vec<Tensor>>,
    #[no_derivative]
    name: &'static str,
}

/// The numbers of one value. It uses the first 10. Each is the first element of a tensor, whose
/// second element is its square.
type Numbers = [i32; 12];

fn all(numbers: &Numbers, name: &'static str) -> All {
    let mut numbers = numbers.iter().map(|n| f64::from(*n));
    let mut next = || {
        let x = numbers.next().unwrap();
        Tensor::constant(Literal::from_vec(&[2], vec![x, x * x]).unwrap())
    };
    let mut leaf = || Box::new(Tree::Leaf(next()));
    let (a, b, c) = (leaf(), leaf(), leaf());
    let inner = Tree::Node { left: a, value: None, right: b };
    All {
        tree: Tree::Node { left: Box::new(inner), value: Some(next()), right: c },
        pair: (next(), [next(), next()]),
        map: BTreeMap::from([("b".into(), vec![next()]), ("a".into(), vec![next(), next()])]),
        name,
    }
}

fn same(a: impl FnOnce() -> All, b: impl FnOnce() -> All) {
    assert_eq!(elements(a), elements(b));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn tangent_vectors_form_a_vector_space(
        x in prop::array::uniform12(-50..50i32),
        y in prop::array::uniform12(-50..50i32),
        z in prop::array::uniform12(-50..50i32),
        a in -9..9i32,
        b in -9..9i32,
    ) {
        let [u, v, w] = [(x, "x"), (y, "y"), (z, "z")].map(|(n, name)| all(&n, name));
        same(|| u.plus(&v), || v.plus(&u));
        same(|| u.plus(&v).plus(&w), || u.plus(&v.plus(&w)));
        same(|| u.plus(&u.zero()), || u.plus(&v).minus(&v));
        same(|| u.plus(&u.negated()), || u.zero());
        same(|| u.minus(&v), || u.plus(&v.scaled(-1)));
        same(|| u.scaled(1), || u.plus(&v.scaled(0.0)));
        same(|| u.scaled(a).scaled(b), || u.scaled(a * b));
        same(|| u.scaled(a).plus(&u.scaled(b)), || u.scaled(f64::from(a + b)));
        same(
            || u.plus(&v).scaled(&Tensor::constant(f64::from(a))),
            || u.scaled(a).plus(&v.scaled(a)),
        );
        // The inner product is symmetric, and linear in each argument.
        let inner = |f: &dyn Fn() -> Tensor| elements(f)[0];
        prop_assert_eq!(inner(&|| u.inner(&v)), inner(&|| v.inner(&u)));
        prop_assert_eq!(
            inner(&|| u.scaled(a).plus(&w).inner(&v)),
            f64::from(a) * inner(&|| u.inner(&v)) + inner(&|| w.inner(&v))
        );
        let squares: f64 =
            x[..10].iter().map(|n| f64::from(*n).powi(2) + f64::from(*n).powi(4)).sum();
        prop_assert_eq!(inner(&|| u.inner(&u)), squares);
        // A field without a derivative is taken from the first operand.
        prop_assert_eq!(u.plus(&v).name, "x");
    }
}

#[test]
fn adding_two_trees_adds_left_to_left_and_right_to_right() {
    let leaf = |x: f64| Box::new(Tree::Leaf(Tensor::constant(x)));
    let node = |left, right| Tree::Node { left, value: None, right };
    let sum = elements(|| node(leaf(1.0), leaf(2.0)).plus(&node(leaf(10.0), leaf(20.0))));
    assert_eq!(sum, [11.0, 22.0]);
    let nested = elements(|| {
        let tree = |a: f64| node(Box::new(node(leaf(a), leaf(a + 1.0))), leaf(a + 2.0));
        tree(1.0).plus(&tree(10.0))
    });
    assert_eq!(nested, [11.0, 13.0, 15.0]);
}
