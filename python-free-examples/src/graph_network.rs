//! A graph network that guesses which side the members of a karate club took.
//!
//! Zachary (1977) observed a club of 34 members for three years and recorded who met whom outside
//! of it. Then the instructor (member 1) and the president (member 34) fell out, and the club
//! split. The network is given the friendships and the sides of these two members. It predicts the
//! sides of all others.
//!
//! A layer (Kipf and Welling 2017) is a linear map of each member's vector, followed by a sum over
//! the member itself and its neighbours. A term is divided by the square roots of the numbers of
//! terms d at both ends of the edge, so members with many friends do not dominate:
//!
//! ```text
//! h′ᵢ = tanh( Σⱼ (h W + b)ⱼ / √(dᵢ·dⱼ) )      over i itself and its neighbours j
//! ```
//!
//! The last layer has no tanh. In the graph the sum is two ops: a *gather* of vectors at the starts
//! of edges, and an *addition* of them at the ends ([`Tensor::scatter_add`]). Each op is the
//! other's transpose, so the gradient is message passing too, against the edges. The edges are
//! inputs: one program serves any graph.

use wengert::core::build::indexing::{ScatterDimensionNumbers, ScatterMode};
use wengert::prelude::*;

/// Directed edges, from a node to a node.
#[derive(Clone)]
pub struct Edges {
    /// Where each begins, `i32[E]`.
    pub from: Tensor,
    /// Where each ends, `i32[E]`.
    pub to: Tensor,
}

impl Edges {
    /// The sum of the messages, `[E, width]`, that arrive at each of `nodes` nodes.
    pub fn deliver(&self, messages: &Tensor, nodes: Dim) -> Tensor {
        let width = messages.shape()[1].clone();
        let nothing = Tensor::zeros(&TensorType::new(messages.dtype(), [nodes, width]));
        // Each index is a row; what is added is a row.
        let rows = ScatterDimensionNumbers {
            update_window_dims: vec![1],
            inserted_window_dims: vec![0],
            scatter_dims_to_operand_dims: vec![0],
            ..Default::default()
        };
        let index = self.to.reshape([self.to.shape()[0].clone(), 1.into()]);
        nothing.scatter_add(&index, messages, &rows, ScatterMode::Drop)
    }

    /// For each node, the sum of the vectors `x`, `[N, width]`, of the node and its neighbours,
    /// with the weights of the layer's formula.
    fn gather(&self, x: &Tensor) -> Tensor {
        let nodes = || x.shape()[0].clone();
        let one =
            Tensor::zeros(&TensorType::new(x.dtype(), [self.to.shape()[0].clone(), 1.into()]))
                + 1.0;
        let root = (self.deliver(&one, nodes()) + 1.0).rsqrt();
        let sent = x * &root;
        (self.deliver(&sent.gather_rows(&self.from), nodes()) + sent) * root
    }
}

/// Layers with tanh between them.
#[derive(Clone, Differentiable)]
pub struct GraphNetwork {
    layers: Vec<Linear>,
}

impl GraphNetwork {
    /// Random weights of layers between these widths.
    pub fn new(widths: &[usize]) -> Self {
        GraphNetwork { layers: widths.windows(2).map(|w| Linear::new(w[0], w[1])).collect() }
    }

    /// What the last layer gives for nodes with features `[N, …]`.
    pub fn call(&self, edges: &Edges, features: &Tensor) -> Tensor {
        let mut x = features.clone();
        for (i, layer) in self.layers.iter().enumerate() {
            if i > 0 {
                x = x.tanh();
            }
            x = edges.gather(&layer.call(&x));
        }
        x
    }
}

/// `train_step` learns the sides of the `known` members. `predict` gives the probability of each
/// side for each member.
pub fn program(widths: &[usize]) -> Result<Program> {
    let mut program = Program::new();
    let model = GraphNetwork::new(widths);
    let features = format!("N,{}", widths[0]);
    let graph = |f: &mut FunctionBuilder| {
        let edges = Edges { from: f.input("from", i32("E")), to: f.input("to", i32("E")) };
        (edges, f.input("features", f32(features.as_str())))
    };
    program.function("train_step", |f| {
        let (edges, features) = graph(f);
        let known = f.input("known", i32("K"));
        let sides = f.input("sides", i32("K"));
        let model = f.state("model", model.clone());
        let (loss, gradient) = value_and_grad(&model, |model| {
            cross_entropy(&model.call(&edges, &features).gather_rows(&known), &sides)
        });
        AdamW::new(0.01).step(f, &model, &gradient);
        f.output("loss", loss);
    })?;
    program.function("predict", |f| {
        let (edges, features) = graph(f);
        let model = f.param("model", model.clone());
        f.output("sides", model.call(&edges, &features).softmax(1));
    })?;
    Ok(program)
}

/// Members of the club.
pub const MEMBERS: usize = 34;

/// For each member, counted from 1, the friends with a greater number: 78 friendships.
const FRIENDS: [(usize, &[usize]); 26] = [
    (1, &[2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 18, 20, 22, 32]),
    (2, &[3, 4, 8, 14, 18, 20, 22, 31]),
    (3, &[4, 8, 9, 10, 14, 28, 29, 33]),
    (4, &[8, 13, 14]),
    (5, &[7, 11]),
    (6, &[7, 11, 17]),
    (7, &[17]),
    (9, &[31, 33, 34]),
    (10, &[34]),
    (14, &[34]),
    (15, &[33, 34]),
    (16, &[33, 34]),
    (19, &[33, 34]),
    (20, &[34]),
    (21, &[33, 34]),
    (23, &[33, 34]),
    (24, &[26, 28, 30, 33, 34]),
    (25, &[26, 28, 32]),
    (26, &[32]),
    (27, &[30, 34]),
    (28, &[34]),
    (29, &[32, 34]),
    (30, &[33, 34]),
    (31, &[33, 34]),
    (32, &[33, 34]),
    (33, &[34]),
];

/// Who stayed with the instructor; the others went with the president.
const WITH_INSTRUCTOR: [usize; 17] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 17, 18, 20, 22];

/// The friendships, in both directions, of members counted from 0.
pub fn friendships() -> Vec<(usize, usize)> {
    FRIENDS
        .iter()
        .flat_map(|(a, friends)| friends.iter().flat_map(move |b| [(a - 1, b - 1), (b - 1, a - 1)]))
        .collect()
}

/// The side that each member took: 0 the instructor's, 1 the president's.
pub fn sides() -> Vec<i32> {
    (1..=MEMBERS).map(|member| i32::from(!WITH_INSTRUCTOR.contains(&member))).collect()
}

/// The club as inputs: `from`, `to` and `features`, which say of each member only which it is.
pub fn club() -> Result<Vec<(&'static str, Literal)>> {
    let edges = friendships();
    let ends = |f: fn(&(usize, usize)) -> usize| {
        Literal::from_vec(&[edges.len()], edges.iter().map(|edge| f(edge) as i32).collect())
    };
    let identity =
        (0..MEMBERS * MEMBERS).map(|i| f32::from(u8::from(i % (MEMBERS + 1) == 0))).collect();
    let features = Literal::from_vec(&[MEMBERS, MEMBERS], identity)?;
    Ok(vec![("from", ends(|edge| edge.0)?), ("to", ends(|edge| edge.1)?), ("features", features)])
}
