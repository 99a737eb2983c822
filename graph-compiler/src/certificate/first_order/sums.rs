//! Partial sums within one equation.
//!
//! A sum of n terms rounds n − 1 times, the last of them to its result. Each of the other roundings
//! changes the result by at most u·|s|, where s is the partial sum and u the unit roundoff of the
//! dtype in which the equation adds. This module estimates Σ |s| over all partial sums.
//!
//! A partial sum depends on the order of the terms, which belongs to the machine. So |s| of k terms
//! is the root of the mean of s² over all choices of k of the n terms. With S = Σ x, Q = Σ x² and
//! the variance v = Q/n − (S/n)², it is
//!
//! ```text
//! mean s² = k²·(S/n)² + k·(n − k)/(n − 1)·v
//! ```
//!
//! Terms of one sign give k/n·|S|, and terms that cancel give about √k·|x|, whatever their order.
//!
//! The number and the lengths of partial sums are those of a [`Tree`]. Reductions have the tree of
//! CPUs ([`Target::reduction_tree`]). Products of halves are chains of at most [`BLOCK`] terms
//! (decision 86), all other sums are one chain. Machines that add in more lanes have smaller
//! partial sums.
//!
//! The ops here are linear in each operand, with coefficients 0 and 1. So Q is the same op on the
//! squares of its operands, and n the same op on ones.

use wengert_core::nest::Tree;
use wengert_core::op::{Cumulative, CumulativeKind, Reduce, ReduceKind, WindowKind};
use wengert_core::{DType, Op, Target, TensorType, call::ScatterKind};

/// Most terms of a chain of products of halves.
const BLOCK: u32 = 512;

/// How an equation adds, or multiplies, the terms of each element of its result.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Sums {
    /// The dtype of the partial sums.
    pub dtype: DType,
    /// The op that, on ones, counts the terms of each element.
    pub counting: Op,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    /// The terms are added.
    Sum {
        tree: Tree,
        /// Whether the first term of each chain is rounded, too: a product of numbers in f32.
        rounds_first: bool,
    },
    /// The terms are multiplied.
    Product,
}

/// The terms of one element of a result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Terms {
    /// Their number.
    pub count: f64,
    /// Their sum, or their product.
    pub result: f64,
    /// The sum of their squares. It is not read for products.
    pub squares: f64,
}

impl Sums {
    /// The sums of an equation; `None` if it has none, or its result is no float.
    pub fn of(op: &Op, operands: &[TensorType], results: &[TensorType]) -> Option<Self> {
        let result = results.first().filter(|ty| ty.dtype.is_float())?;
        let chain = |rounds_first| Kind::Sum { tree: Tree::SEQUENTIAL, rounds_first };
        let (mut dtype, mut counting) = (result.dtype.wide(), op.clone());
        let kind = match op {
            Op::DotGeneral(_) | Op::ConvGeneralDilated(_) if operands[0].dtype.is_half() => {
                // A product of halves is a number of f32.
                let tree = Tree { lanes: 1, block: BLOCK };
                Kind::Sum { tree, rounds_first: false }
            }
            Op::DotGeneral(_) | Op::ConvGeneralDilated(_) => chain(true),
            Op::Reduce(Reduce { kind: ReduceKind::Sum, axes }) => {
                let (dtype, extents) = (operands[0].dtype, operands[0].extents()?);
                let tree = Target::cpu().reduction_tree(dtype, &extents, axes);
                Kind::Sum { tree, rounds_first: false }
            }
            Op::Reduce(Reduce { kind: ReduceKind::Prod, axes }) => {
                counting = Reduce { kind: ReduceKind::Sum, axes: axes.clone() }.into();
                Kind::Product
            }
            Op::Cumulative(of) if of.kind == CumulativeKind::Prod => {
                counting = Cumulative { kind: CumulativeKind::Sum, ..of.clone() }.into();
                Kind::Product
            }
            Op::Cumulative(of) if of.kind == CumulativeKind::Sum => chain(false),
            Op::ReduceWindow(of) if of.kind == WindowKind::Sum => chain(false),
            Op::SegmentSum(_) | Op::WindowScatterAdd(_) => chain(false),
            Op::Scatter(of) if of.kind == ScatterKind::Add => {
                // It rounds to the dtype of its result after each term.
                dtype = result.dtype;
                chain(false)
            }
            _ => return None,
        };
        Some(Sums { dtype, counting, kind })
    }

    /// Σ |s| over the partial sums of one element, without its result.
    pub fn partial(&self, terms: &Terms) -> f64 {
        let Terms { count, result, .. } = *terms;
        if count <= 1.0 {
            return 0.0;
        }
        match self.kind {
            // A rounding of a partial product changes the result by the same factor.
            Kind::Product => (count - 2.0) * result.abs(),
            Kind::Sum { tree, rounds_first } => {
                (terms.in_tree(tree, rounds_first) - result.abs()).max(0.0)
            }
        }
    }
}

impl Terms {
    /// Σ |s| over all partial sums of a tree, the result included. Blocks and lanes are taken to
    /// be of equal lengths.
    fn in_tree(&self, tree: Tree, rounds_first: bool) -> f64 {
        let most = if tree.block == 0 { self.count } else { f64::from(tree.block) };
        let blocks = (self.count / most).ceil();
        let block = self.count / blocks;
        let lane = (block / f64::from(tree.lanes)).max(1.0);
        let first = if rounds_first { 1.0 } else { 2.0 };
        let mut sum = self.count / lane * self.chain(1.0, first, lane);
        let mut width = lane;
        while width < block {
            width = (2.0 * width).min(block);
            sum += self.count / width * self.chain(width, 1.0, 1.0);
        }
        sum + self.chain(block, 2.0, blocks)
    }

    /// Σ |s| over the partial sums of j·`step` terms, for j from `first` to `last`. By the
    /// inequality of Cauchy and Schwarz it is at most √(number · Σ s²), which is less than 16 %
    /// more.
    fn chain(&self, step: f64, first: f64, last: f64) -> f64 {
        let number = last - first + 1.0;
        if number <= 0.0 {
            return 0.0;
        }
        let linear = |j: f64| j * (j + 1.0) / 2.0;
        let square = |j: f64| j * (j + 1.0) * (2.0 * j + 1.0) / 6.0;
        let k = step * (linear(last) - linear(first - 1.0));
        let kk = step * step * (square(last) - square(first - 1.0));
        let (n, mean) = (self.count, self.result / self.count);
        let variance = (self.squares / n - mean * mean).max(0.0);
        let squares = kk * mean * mean + ((n * k - kk) / (n - 1.0)).max(0.0) * variance;
        (number * squares).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_testing::Random;

    fn terms(values: &[f64]) -> Terms {
        Terms {
            count: values.len() as f64,
            result: values.iter().sum(),
            squares: values.iter().map(|x| x * x).sum(),
        }
    }

    /// The mean over random orders of Σ |s| over all prefixes but the first and the last.
    fn drawn(values: &[f64]) -> f64 {
        let (mut random, mut values, mut total) = (Random(5), values.to_vec(), 0.0);
        let runs = 400;
        for _ in 0..runs {
            for n in (1..values.len()).rev() {
                values.swap(n, random.below(n + 1));
            }
            let mut sum = values[0];
            for x in &values[1..values.len() - 1] {
                sum += x;
                total += sum.abs();
            }
        }
        total / f64::from(runs)
    }

    #[test]
    fn a_chain_is_the_mean_of_all_orders() {
        let sums = |tree| Sums {
            dtype: DType::F32,
            counting: Reduce { kind: ReduceKind::Sum, axes: vec![0] }.into(),
            kind: Kind::Sum { tree, rounds_first: false },
        };
        let signs = |n: usize| if n.is_multiple_of(2) { 1.0 } else { -1.0 };
        let ones: Vec<f64> = vec![1.0; 300];
        let cancelling: Vec<f64> = (0..300).map(signs).collect();
        let mixed: Vec<f64> = (0..300).map(|n| signs(n) * (n % 7) as f64 + 0.1).collect();
        for values in [&ones, &cancelling, &mixed] {
            let found = sums(Tree::SEQUENTIAL).partial(&terms(values));
            let ratio = found / drawn(values);
            assert!((1.0..1.5).contains(&ratio), "{found} is {ratio} of the mean");
        }
        // 16 lanes of 19 ones: 16·(2 + … + 19), then 8·38 + 4·75 + 2·150, without the result.
        let lanes = sums(Tree { lanes: 16, block: 0 }).partial(&terms(&ones));
        assert!((3900.0..4500.0).contains(&lanes), "{lanes}");
        // Three blocks of 100: 3·(2 + … + 100) + 200.
        let blocks = sums(Tree { lanes: 1, block: 128 }).partial(&terms(&ones));
        assert!((15_347.0..17_800.0).contains(&blocks), "{blocks}");
    }

    #[test]
    fn few_terms_have_no_partial_sums() {
        let ty = |n: usize| TensorType::new(DType::F32, [n]);
        let op: Op = Reduce { kind: ReduceKind::Sum, axes: vec![0] }.into();
        let sums = Sums::of(&op, &[ty(2)], &[TensorType::scalar(DType::F32)]).unwrap();
        for count in [0.0, 1.0, 2.0] {
            let none = Terms { count, result: 3.0, squares: 5.0 };
            assert!(sums.partial(&none) < 1e-9, "{count}");
        }
    }
}
