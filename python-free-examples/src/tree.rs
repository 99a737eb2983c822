//! A network over trees. It learns *and*, *or*, *xor* and *not* from the truth values of whole
//! expressions.
//!
//! [`Tree`] is an ordinary recursive type. [`Evaluator`] computes a vector for each of its nodes
//! from the vectors of the node's children, with a layer for each kind of node (Socher and others
//! 2011). From the root's vector it predicts whether the expression is true.
//!
//! There are two ways to build the graph:
//!
//! - [`Evaluator::tree`] recurses over the type. It gives a graph for each shape of tree. The
//!   gradient with respect to a tree is a tree, with the derivative of each leaf.
//! - [`Evaluator::postfix`] is a stack machine that runs over the tree's nodes in postfix order: a
//!   `scan` whose step is a `switch` over kinds. It is one graph for all trees, and under `vmap`
//!   for batches of them, so training uses it.

use std::fmt;
use wengert::prelude::*;
use wengert::random::SplitMix64;

/// An expression; what is in the leaves is `bool` in data and a tensor in graphs.
#[derive(Clone, Debug, Differentiable)]
pub enum Tree<T> {
    /// How true it is: 0 or 1 in data, anything in between for derivatives.
    Leaf(T),
    /// ¬
    Not(Box<Tree<T>>),
    /// ∧
    And(Box<Tree<T>>, Box<Tree<T>>),
    /// ∨
    Or(Box<Tree<T>>, Box<Tree<T>>),
    /// ⊕
    Xor(Box<Tree<T>>, Box<Tree<T>>),
}

/// Where the stack ends: trees with more than this many leaves may be too deep.
pub const STACK: usize = 16;
/// Nodes in postfix order are numbers; this one stands behind the last.
const END: i32 = 5;

impl<T> Tree<T> {
    /// The number of its kind and its children.
    fn parts(&self) -> (i32, Vec<&Tree<T>>) {
        match self {
            Tree::Leaf(_) => (0, vec![]),
            Tree::Not(a) => (1, vec![a]),
            Tree::And(a, b) => (2, vec![a, b]),
            Tree::Or(a, b) => (3, vec![a, b]),
            Tree::Xor(a, b) => (4, vec![a, b]),
        }
    }

    /// The same tree with other leaves, which are made in their order.
    pub fn map<U>(&self, leaf: &mut impl FnMut(&T) -> U) -> Tree<U> {
        let mut child = |tree: &Tree<T>| Box::new(tree.map(leaf));
        match self {
            Tree::Not(a) => Tree::Not(child(a)),
            Tree::And(a, b) => Tree::And(child(a), child(b)),
            Tree::Or(a, b) => Tree::Or(child(a), child(b)),
            Tree::Xor(a, b) => Tree::Xor(child(a), child(b)),
            Tree::Leaf(x) => Tree::Leaf(leaf(x)),
        }
    }
}

impl Tree<bool> {
    /// Whether it is true.
    pub fn truth(&self) -> bool {
        match self {
            Tree::Leaf(x) => *x,
            Tree::Not(a) => !a.truth(),
            Tree::And(a, b) => a.truth() && b.truth(),
            Tree::Or(a, b) => a.truth() || b.truth(),
            Tree::Xor(a, b) => a.truth() != b.truth(),
        }
    }

    /// A random tree with this many leaves. All divisions of the leaves between the two children of
    /// a node are equally probable. A node is negated with probability 1/5.
    pub fn random(leaves: u64, random: &mut SplitMix64) -> Self {
        if random.below(5) == 0 {
            return Tree::Not(Box::new(Tree::random(leaves, random)));
        }
        if leaves <= 1 {
            return Tree::Leaf(random.below(2) == 1);
        }
        let left = 1 + random.below(leaves - 1);
        let a = Box::new(Tree::random(left, random));
        let b = Box::new(Tree::random(leaves - left, random));
        match random.below(3) {
            0 => Tree::And(a, b),
            1 => Tree::Or(a, b),
            _ => Tree::Xor(a, b),
        }
    }

    /// Its nodes in postfix order: kinds, and the leaves' values.
    pub fn postfix(&self) -> Vec<(i32, f64)> {
        let (kind, children) = self.parts();
        let value = if let Tree::Leaf(x) = self { f64::from(u8::from(*x)) } else { 0.0 };
        children.into_iter().flat_map(Tree::postfix).chain([(kind, value)]).collect()
    }
}

impl<T: fmt::Display> fmt::Display for Tree<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tree::Leaf(x) => write!(f, "{x}"),
            Tree::Not(a) => write!(f, "not {a}"),
            Tree::And(a, b) => write!(f, "({a} and {b})"),
            Tree::Or(a, b) => write!(f, "({a} or {b})"),
            Tree::Xor(a, b) => write!(f, "({a} xor {b})"),
        }
    }
}

/// A layer for each kind of node.
#[derive(Clone, Differentiable)]
pub struct Evaluator {
    /// The vectors of what is false and of what is true, `[2, width]`.
    leaf: Tensor,
    not: Linear,
    /// ∧, ∨ and ⊕.
    pairs: Vec<Linear>,
    out: Linear,
}

impl Evaluator {
    /// Random weights for vectors of this width.
    pub fn new(width: usize) -> Self {
        let ty = TensorType::new(DType::F32, [2, width]);
        Evaluator {
            leaf: Tensor::variable(ty, Initializer::Normal { mean: 0.0, std: 0.5 }),
            not: Linear::new(width, width),
            pairs: (0..3).map(|_| Linear::new(2 * width, width)).collect(),
            out: Linear::new(width, 2),
        }
    }

    /// The vector of a leaf.
    fn leaf(&self, value: &Tensor) -> Tensor {
        let [no, yes] = [0, 1].map(|i| self.leaf.slice_axis(0, i, i + 1).flatten(0));
        &no + (yes - &no) * value
    }

    fn not(&self, a: &Tensor) -> Tensor {
        self.not.call(a).tanh()
    }

    fn pair(&self, kind: i32, a: &Tensor, b: &Tensor) -> Tensor {
        self.pairs[kind as usize - 2].call(&Tensor::concatenate(&[a, b], 0)).tanh()
    }

    /// The vector of a tree.
    fn vector(&self, tree: &Tree<Tensor>) -> Tensor {
        match (tree, tree.parts()) {
            (Tree::Leaf(value), _) => self.leaf(value),
            (_, (kind, children)) => match &children[..] {
                [a, b] => self.pair(kind, &self.vector(a), &self.vector(b)),
                _ => self.not(&self.vector(children[0])),
            },
        }
    }

    /// Logits of false and true for a tree, by recursion.
    pub fn tree(&self, tree: &Tree<Tensor>) -> Tensor {
        self.out.call(&self.vector(tree))
    }

    /// Logits of false and true for a tree in postfix order: kinds, `i32[T]`, and the leaves'
    /// values, `[T]`.
    pub fn postfix(&self, kinds: &Tensor, values: &Tensor) -> Tensor {
        let width = self.leaf.shape()[1].clone();
        let stack =
            Tensor::zeros(&TensorType::new(self.leaf.dtype(), [STACK.into(), width.clone()]));
        let begin = (stack, Tensor::constant(0));
        let nodes = (kinds.clone(), values.clone());
        let (stack, _) = control::fold(&begin, &nodes, |(stack, height), (kind, value)| {
            let below = |n: i32| stack.dynamic_index_in_dim(&(height - n), 0);
            // What is put on the stack, and at which height.
            let pair = |kind| {
                let (a, b) = (below(2), below(1));
                (self.pair(kind, &a, &b), height - 2)
            };
            let (top, at) = control::switch(
                kind,
                vec![
                    Box::new(|| (self.leaf(value), height.clone())),
                    Box::new(|| (self.not(&below(1)), height - 1)),
                    Box::new(|| pair(2)),
                    Box::new(|| pair(3)),
                    Box::new(|| pair(4)),
                    // Behind the end, what is on top is put there again.
                    Box::new(|| (below(1), height - 1)),
                ],
            );
            let top = top.reshape([1.into(), width.clone()]);
            (stack.dynamic_update_slice_in_dim(&top, &at, 0), at + 1)
        });
        self.out.call(&stack.slice_axis(0, 0, 1).flatten(0))
    }
}

/// `train_step` on `B` trees of up to `T` nodes, and `evaluate`: the probability that they are
/// true, and its derivative by the leaves.
pub fn program(width: usize) -> Result<Program> {
    let mut program = Program::new();
    let model = Evaluator::new(width);
    program.function("train_step", |f| {
        let nodes = (f.input("kinds", i32("B,T")), f.input("values", f32("B,T")));
        let truth = f.input("truth", i32("B"));
        let model = f.state("model", model.clone());
        let (loss, gradient) = value_and_grad(&model, |model| {
            let logits = vmap(&nodes, |(kinds, values)| model.postfix(kinds, values));
            cross_entropy(&logits, &truth)
        });
        Adam::new(0.01).step(f, &model, &gradient);
        f.output("loss", loss);
    })?;
    program.function("evaluate", |f| {
        let nodes = (f.input("kinds", i32("B,T")), f.input("values", f32("B,T")));
        let model = f.param("model", model.clone());
        let (probability, leaves) = vmap(&nodes, |(kinds, values)| {
            value_and_grad(values, |values| {
                model.postfix(kinds, values).softmax(0).slice_axis(0, 1, 2).sum()
            })
        });
        f.output("probability", probability);
        f.output("leaves", leaves);
    })?;
    Ok(program)
}

/// Random trees, with so many leaves each.
pub fn forest(count: usize, leaves: std::ops::RangeInclusive<u64>, seed: u64) -> Vec<Tree<bool>> {
    let mut random = SplitMix64::new(seed);
    let (fewest, kinds) = (*leaves.start(), leaves.end() - leaves.start() + 1);
    (0..count).map(|_| Tree::random(fewest + random.below(kinds), &mut random)).collect()
}

/// Inputs of [`program`]: `kinds`, `values` and `truth`. All trees are padded to the length of the
/// longest.
pub fn batch(trees: &[Tree<bool>]) -> Result<[(&'static str, Literal); 3]> {
    let nodes: Vec<Vec<(i32, f64)>> = trees.iter().map(Tree::postfix).collect();
    let (count, length) = (nodes.len(), nodes.iter().map(Vec::len).max().unwrap_or(0));
    let padded: Vec<(i32, f64)> = nodes
        .into_iter()
        .flat_map(|nodes| nodes.into_iter().chain(std::iter::repeat((END, 0.0))).take(length))
        .collect();
    let kinds = padded.iter().map(|(kind, _)| *kind).collect();
    let values = padded.iter().map(|(_, value)| *value as f32).collect();
    let truth = trees.iter().map(|tree| i32::from(tree.truth())).collect();
    Ok([
        ("kinds", Literal::from_vec(&[count, length], kinds)?),
        ("values", Literal::from_vec(&[count, length], values)?),
        ("truth", Literal::from_vec(&[count], truth)?),
    ])
}
