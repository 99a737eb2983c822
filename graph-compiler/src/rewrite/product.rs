//! Layout of products: permutations move into `dot_general`, which takes its axes in any order.
//!
//! The sum over contracted axes stays in the order in which they are listed. The order in which a
//! back end adds depends on extents and strides, so the layout is chosen here, before fusion.

use super::{Rewriter, Rule, term};
use wengert_core::graph::ValueId;
use wengert_core::op::{Compute, DotGeneral, Permute};
use wengert_core::{Op, TensorType};

type Axes = (Vec<usize>, Vec<usize>);

/// The axes of one operand that are neither contracted nor batch axes.
fn free(contract: &[usize], batch: &[usize], rank: usize) -> Vec<usize> {
    (0..rank).filter(|a| !contract.contains(a) && !batch.contains(a)).collect()
}

/// Whether the product is a call on its operands in their present layout.
fn is_a_call(cx: &Rewriter<'_>, op: &DotGeneral, x: ValueId, y: ValueId) -> bool {
    let types: Vec<TensorType> = vec![cx.ty(x).clone(), cx.ty(y).clone()];
    let op = Op::from(op.clone());
    op.infer(&types, &[])
        .is_ok_and(|results| matches!(op.compute(&types, &results, &[]), Compute::Call(_)))
}

/// One component of a pair, by its number.
fn side(pair: &mut Axes, side: usize) -> &mut Vec<usize> {
    if side == 0 { &mut pair.0 } else { &mut pair.1 }
}

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "product_of_a_permute",
        doc: "dot_general(permute(x), y) → dot_general(x, y) with renumbered axes, if the free \
              axes of x keep their order",
        examples: &[
            "%x: f32[5,3], %y: f32[5,4]
             %0: f32[3,5] = permute %x {permutation=[1,0]}
             %1: f32[3,4] = dot_general %0, %y {contract=[[1],[0]]}",
            "%x: f32[2,3,5], %y: f32[2,4,5]
             %0: f32[2,5,4] = permute %y {permutation=[0,2,1]}
             %1: f32[2,3,4] = dot_general %x, %0 {batch=[[0],[0]], contract=[[2],[1]]}",
        ],
        apply: |cx, equation| {
            let (Op::DotGeneral(op), &[x, y]) = term(equation) else { return None };
            for (number, value) in [x, y].into_iter().enumerate() {
                let Some((Op::Permute(permute), &[source])) = cx.definition(value) else {
                    continue;
                };
                let permutation = permute.permutation.clone();
                let mut moved = op.clone();
                let (contract, batch) = (
                    side(&mut moved.contract, number).clone(),
                    side(&mut moved.batch, number).clone(),
                );
                let kept = free(&contract, &batch, permutation.len());
                let through =
                    |axes: &[usize]| axes.iter().map(|a| permutation[*a]).collect::<Vec<_>>();
                if !through(&kept).is_sorted() {
                    continue;
                }
                *side(&mut moved.contract, number) = through(&contract);
                *side(&mut moved.batch, number) = through(&batch);
                let operands = if number == 0 { [source, y] } else { [x, source] };
                // Otherwise its decomposition would permute again.
                if is_a_call(cx, &moved, operands[0], operands[1]) {
                    return cx.emit(moved, &operands);
                }
            }
            None
        },
    },
    Rule {
        name: "permute_of_a_product",
        doc: "permute(dot_general(x, y)) → dot_general(y, x) if it swaps the free axes of x with \
              those of y",
        examples: &["%x: f32[5,3], %y: f32[5,4]
                     %0: f32[3,4] = dot_general %x, %y {contract=[[0],[0]]}
                     %1: f32[4,3] = permute %0 {permutation=[1,0]}"],
        apply: |cx, equation| {
            let (Op::Permute(Permute { permutation }), &[z]) = term(equation) else { return None };
            let (Op::DotGeneral(op), &[x, y]) = cx.definition(z)? else { return None };
            let op = op.clone();
            let batch = op.batch.0.len();
            let free_x = free(&op.contract.0, &op.batch.0, cx.ty(x).rank()).len();
            let rank = permutation.len();
            let swapped: Vec<usize> =
                (0..batch).chain(batch + free_x..rank).chain(batch..batch + free_x).collect();
            let swap = |pair: Axes| (pair.1, pair.0);
            let moved = DotGeneral {
                contract: swap(op.contract),
                batch: swap(op.batch),
                result: op.result,
            };
            if *permutation != swapped || !is_a_call(cx, &moved, y, x) {
                return None;
            }
            cx.emit(moved, &[y, x])
        },
    },
];
