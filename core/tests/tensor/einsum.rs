//! `einsum`, `matmul` and `outer`, compared with loops over all indices.

use crate::{array, built, counted, error, indices, run, run_bound};
use ndarray::ArrayD;
use proptest::prelude::*;
use std::collections::BTreeMap;
use wengert_core::{Binding, DType, Dim, Literal, Tensor, TensorType};

/// The axes of a term: letters, and numbers for the axes of its ellipsis from the last one.
fn axes(term: &str, rank: usize) -> Vec<String> {
    let letters = |part: &str| part.chars().map(String::from).collect::<Vec<_>>();
    match term.split_once("...") {
        None => letters(term),
        Some((before, after)) => {
            let count = rank - before.len() - after.len();
            let middle = (0..count).rev().map(|i| i.to_string());
            letters(before).into_iter().chain(middle).chain(letters(after)).collect()
        }
    }
}

/// The sum over all values of all letters, term by term. `output` is explicit.
fn naive(inputs: &str, output: &str, operands: &[ArrayD<f64>]) -> ArrayD<f64> {
    let terms: Vec<Vec<String>> =
        inputs.split(',').zip(operands).map(|(term, x)| axes(term, x.ndim())).collect();
    let mut extents: BTreeMap<String, usize> = BTreeMap::new();
    for (term, x) in terms.iter().zip(operands) {
        for (axis, extent) in term.iter().zip(x.shape()) {
            let known = extents.entry(axis.clone()).or_insert(*extent);
            *known = if *known == 1 { *extent } else { *known };
        }
    }
    let ellipsis = extents.keys().filter(|axis| axis.parse::<usize>().is_ok()).count();
    let named = output.replace("...", "").len();
    let output = axes(output, named + ellipsis);
    let names: Vec<&String> = extents.keys().collect();
    let all = indices(&extents.values().copied().collect::<Vec<_>>());
    let shape: Vec<usize> = output.iter().map(|axis| extents[axis]).collect();
    let mut sums: ArrayD<f64> = ArrayD::zeros(shape);
    for index in all {
        let at = |axis: &String| index[names.iter().position(|name| *name == axis).unwrap()];
        let product: f64 = terms
            .iter()
            .zip(operands)
            .map(|(term, x)| {
                let place: Vec<usize> =
                    term.iter().zip(x.shape()).map(|(a, n)| at(a).min(n - 1)).collect();
                x[&place[..]]
            })
            .product();
        let place: Vec<usize> = output.iter().map(at).collect();
        sums[&place[..]] += product;
    }
    sums
}

/// A random expression: inputs, output if it is explicit, and the shapes of the operands.
#[derive(Clone, Debug)]
struct Case {
    inputs: String,
    output: Option<String>,
    shapes: Vec<Vec<usize>>,
}

impl Case {
    /// The output by the rule of NumPy, written in full.
    fn output(&self) -> String {
        self.output.clone().unwrap_or_else(|| {
            let letters: Vec<char> =
                self.inputs.chars().filter(char::is_ascii_alphabetic).collect();
            let mut once: Vec<char> = letters
                .iter()
                .copied()
                .filter(|l| letters.iter().filter(|m| *m == l).count() == 1)
                .collect();
            once.sort();
            let dots = if self.inputs.contains("...") { "..." } else { "" };
            format!("{dots}{}", once.iter().collect::<String>())
        })
    }
}

const LETTERS: [char; 6] = ['b', 'a', 'Z', 'c', 'd', 'e'];

fn cases() -> impl Strategy<Value = Case> {
    let term = (
        proptest::collection::vec(0usize..LETTERS.len(), 0..4),
        proptest::option::weighted(0.4, (0usize..4, 0usize..3, any::<[bool; 2]>())),
    );
    (
        proptest::collection::vec(term, 1..5),
        proptest::collection::vec(1usize..4, LETTERS.len()),
        [2usize..4, 2usize..4],
        proptest::option::of((any::<[bool; 6]>(), Just(LETTERS.to_vec()).prop_shuffle())),
        0usize..7,
    )
        .prop_map(|(terms, extents, of_ellipsis, output, place)| {
            let mut inputs = Vec::new();
            let mut shapes = Vec::new();
            for (letters, ellipsis) in terms {
                let mut text: Vec<String> = letters.iter().map(|l| LETTERS[*l].into()).collect();
                let mut shape: Vec<usize> = letters.iter().map(|l| extents[*l]).collect();
                if let Some((at, count, is_one)) = ellipsis {
                    let at = at.min(letters.len());
                    text.insert(at, "...".into());
                    // Axes of the ellipsis are counted from the last one.
                    let axes: Vec<usize> = (0..count)
                        .rev()
                        .map(|i| if is_one[i] { 1 } else { of_ellipsis[i] })
                        .collect();
                    shape.splice(at..at, axes);
                }
                inputs.push(text.concat());
                shapes.push(shape);
            }
            let inputs = inputs.join(",");
            let output = output.map(|(kept, order)| {
                let mut letters: Vec<String> = order
                    .iter()
                    .zip(kept)
                    .filter(|(l, kept)| *kept && inputs.contains(**l))
                    .map(|(l, _)| l.to_string())
                    .collect();
                if inputs.contains("...") {
                    letters.insert(place.min(letters.len()), "...".into());
                }
                letters.concat()
            });
            Case { inputs, output, shapes }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn einsum_is_the_sum_over_all_indices(case in cases()) {
        let operands: Vec<ArrayD<f64>> = case.shapes.iter().map(|shape| counted(shape)).collect();
        let text = match &case.output {
            Some(output) => format!("{} -> {output}", case.inputs),
            None => case.inputs.clone(),
        };
        let literals: Vec<Literal> = operands.iter().map(|x| Literal::from(x.clone())).collect();
        let result = array(&run(&literals, |x| Tensor::einsum(&text, x)));
        prop_assert_eq!(result, naive(&case.inputs, &case.output(), &operands));
    }

    #[test]
    fn matmul_follows_numpy(
        (m, k, n) in (1usize..4, 0usize..4, 1usize..4),
        ranks in [0usize..3, 0usize..3],
        batch in [1usize..4, 1usize..4],
        narrow in any::<[[bool; 2]; 2]>(),
        vectors in any::<[bool; 2]>(),
    ) {
        let leading = |side: usize| -> Vec<usize> {
            let all = (0..2).map(|i| if narrow[side][i] { 1 } else { batch[i] });
            all.skip(2 - ranks[side]).collect()
        };
        let shape = |side: usize, matrix: [usize; 2]| match vectors[side] {
            true => vec![k],
            false => [leading(side), matrix.to_vec()].concat(),
        };
        let (a, b) = (counted(&shape(0, [m, k])), counted(&shape(1, [k, n])));
        let literals = [Literal::from(a.clone()), Literal::from(b.clone())];
        let result = array(&run(&literals, |x| x[0].matmul(&x[1])));
        let inputs = format!(
            "{},{}",
            if vectors[0] { "k" } else { "...mk" },
            if vectors[1] { "k" } else { "...kn" }
        );
        let row = if vectors[0] { "" } else { "m" };
        let column = if vectors[1] { "" } else { "n" };
        let dots = if vectors[0] && vectors[1] { "" } else { "..." };
        prop_assert_eq!(result, naive(&inputs, &format!("{dots}{row}{column}"), &[a, b]));
    }
}

#[test]
fn an_outer_product_has_all_axes() {
    let (a, b) = (counted(&[2, 3]), counted(&[4]));
    let expected = built(&[2, 3, 4], |i| a[[i[0], i[1]]] * b[[i[2]]]);
    let literals = [Literal::from(a.clone()), Literal::from(b.clone())];
    assert_eq!(array(&run(&literals, |x| x[0].outer(&x[1]))), expected);
}

#[test]
fn products_of_bools_are_conjunctions() {
    let a = Literal::from_vec(&[2, 2], vec![true, false, true, true]).unwrap();
    let product = run(&[a.clone(), a.clone()], |x| Tensor::einsum("ij,jk->ik", x));
    assert_eq!(product.as_slice::<bool>().unwrap(), [true, false, true, true]);
    let rows = run(std::slice::from_ref(&a), |x| Tensor::einsum("ij->j", x));
    assert_eq!(rows.as_slice::<bool>().unwrap(), [true, true]);
    let both = run(&[a.clone(), a], |x| Tensor::einsum("ij,ji->ij", x));
    assert_eq!(both.as_slice::<bool>().unwrap(), [true, false, false, true]);
}

#[test]
fn extents_may_be_variables() {
    let ty = |shape: &[Dim]| TensorType::of(DType::F64, shape.to_vec());
    let [b, t] = ["B", "T"].map(Dim::variable);
    let types = [ty(&[b.clone(), t.clone(), 3.into()]), ty(&[b.clone(), t, 3.into()])];
    let binding = Binding::new().with("B", 2).with("T", 4);
    let (q, k) = (counted(&[2, 4, 3]), counted(&[2, 4, 3]));
    let literals = [Literal::from(q.clone()), Literal::from(k.clone())];
    let scores = run_bound(&types, &binding, &literals, |x| {
        vec![Tensor::einsum("bqd,bkd->bqk", x), x[0].matmul(&x[1].matrix_transpose())]
    });
    let expected = naive("bqd,bkd", "bqk", &[q, k]);
    assert_eq!(array(&scores[0]), expected);
    assert_eq!(array(&scores[1]), expected);
}

/// The chain costs 2·10⁴ products from the right, and 10⁶ from the left.
#[test]
fn the_cheapest_pair_is_contracted_first() {
    let types = [[100, 100], [100, 100], [100, 1]].map(|shape| TensorType::new(DType::F32, shape));
    let function = wengert_core::build::FunctionBuilder::build("f", |f| {
        let x: Vec<Tensor> =
            types.iter().enumerate().map(|(i, ty)| f.input(&format!("x{i}"), ty.clone())).collect();
        f.output("y", Tensor::einsum("ij,jk,kl->il", &x));
    })
    .unwrap();
    let largest = function.body.equations.iter().flat_map(|e| &e.results);
    let largest = largest.map(|v| function.body.ty(*v).elements().unwrap()).max();
    assert_eq!(largest, Some(100));
}

/// The error of `einsum` on f32 operands of these shapes.
fn mistake(subscripts: &str, shapes: &[&[usize]]) -> String {
    let types: Vec<TensorType> =
        shapes.iter().map(|shape| TensorType::new(DType::F32, shape.iter().copied())).collect();
    let message = error(&types, |x| Tensor::einsum(subscripts, x));
    message.lines().next().unwrap().to_string()
}

#[test]
fn every_mistake_has_its_own_message() {
    for (subscripts, shapes, expected) in [
        ("ij->ijk", vec![&[2, 3][..]], "`k` in the output of `ij->ijk` is in no operand"),
        ("ij->ii", vec![&[2, 3]], "`i` occurs twice in the output of `ij->ii`"),
        ("ij->i", vec![&[2, 3, 4]], "`ij` in `ij->i` names 2 axes, operand 0 has 3: f32[2,3,4]"),
        (
            "i...j->...",
            vec![&[2]],
            "`i...j` in `i...j->...` names 2 axes or more, operand 0 has 1: f32[2]",
        ),
        (
            "ij,jk",
            vec![&[2, 3], &[4, 5]],
            "`j` in `ij,jk` has extent 3 in operand 0 and 4 in operand 1: f32[2,3] and f32[4,5]",
        ),
        (
            "ii->i",
            vec![&[2, 3]],
            "`i` in `ii->i` stands for axes of extents 2 and 3 of operand 0: f32[2,3]",
        ),
        (
            "...i,...i",
            vec![&[2, 3], &[4, 3]],
            "`...` in `...i,...i` stands for axes of extents 2 and 4 in operands 0 and 1: \
             f32[2,3] and f32[4,3]",
        ),
        ("ij,jk", vec![&[2, 3]], "`ij,jk` has 2 terms before the arrow, 1 operand is given"),
        ("i", vec![&[2], &[2]], "`i` has 1 term before the arrow, 2 operands are given"),
        ("i->j->k", vec![&[2]], "`i->j->k` has two arrows"),
        ("i.->i", vec![&[2]], "`i.` in `i.->i` has dots that are no ellipsis"),
        ("...i...->i", vec![&[2]], "`...i...` in `...i...->i` has two ellipses"),
        ("...i->i", vec![&[2, 2]], "`...` of the operands of `...i->i` is not in the output"),
        ("i->...i", vec![&[2]], "`...` in the output of `i->...i` is in no operand"),
        ("i1->i", vec![&[2, 2]], "`1` in `i1->i` is no letter"),
        ("i-j", vec![&[2]], "`-` in `i-j` is no letter"),
    ] {
        assert_eq!(mistake(subscripts, &shapes), format!("@f: einsum: {expected}"), "{subscripts}");
    }
    let types = [TensorType::new(DType::F32, [2]), TensorType::new(DType::F64, [2])];
    let message = error(&types, |x| Tensor::einsum("i,i", x));
    assert!(message.contains("einsum: operands have types f32[2] and f64[2]"), "{message}");
}

#[test]
fn matmul_refuses_what_numpy_refuses() {
    for (a, b, expected) in [
        (&[2, 3][..], &[4, 5][..], "axis 1 of f32[2,3] has extent 3, axis 0 of f32[4,5] has 4"),
        (&[][..], &[2][..], "operands have types f32[] and f32[2]; a scalar has no axis"),
        (&[2, 1, 3], &[4, 3, 5], "leading axes of f32[2,1,3] and f32[4,3,5] do not broadcast"),
    ] {
        let types = [a, b].map(|shape| TensorType::new(DType::F32, shape.iter().copied()));
        let message = error(&types, |x| x[0].matmul(&x[1]));
        let first = message.lines().next().unwrap();
        assert_eq!(first, format!("@f: matmul: {expected}"));
    }
}
