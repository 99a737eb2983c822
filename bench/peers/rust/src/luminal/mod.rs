//! luminal 0.2.0, the newest published version. Its graphs have eleven primitive ops, and its
//! compiler for CPUs applies a few rewrites. Products run on one thread, by the crate
//! `matrixmultiply`. Every other op evaluates an index expression for each element, on one thread.
//!
//! The compiler recognises a product of two matrices only as a sum over the first dimension.
//! luminal writes products with another sum, so it recognises none of them. It does recognise
//! products of a batch of matrices with a single matrix, so the left operand is a batch of one
//! matrix here.
//!
//! Extents are set at run time. Extents in the types would need one type per case.

use crate::case::{Case, Chain, Inference, Kind, Mlp, Product};
use crate::drawing::uniform;
use crate::network;
use crate::parity::Parity;
use crate::plain;
use crate::protocol::{Contender, Prepared};
use anyhow::{Result, bail};
use luminal::prelude::{
    Axes2, CPUCompiler, Const, Dyn, GenericCompiler, Graph, GraphTensor, Matmul, Shape,
};
use std::collections::BTreeMap;

/// Greatest number of elements of a measured chain. An op on more elements takes seconds, and a
/// chain of such ops most of a minute.
const MOST: usize = 1 << 20;

/// luminal on the CPU.
pub struct Luminal;

impl Contender for Luminal {
    fn name(&self) -> &'static str {
        "luminal"
    }

    fn libraries(&self) -> BTreeMap<String, String> {
        [("luminal".to_owned(), crate::version_of("luminal"))].into()
    }

    fn without(&self, case: &Case) -> Option<&'static str> {
        match &case.kind {
            Kind::Training { .. }
            | Kind::Transformer { .. }
            | Kind::Convolutional { .. }
            | Kind::Recurrent { .. } => Some("it differentiates nothing"),
            Kind::Chain { chain: Chain::CopyPlain, .. } => {
                Some("a graph that computes nothing copies nothing")
            }
            Kind::Chain { chain: Chain::Gelu, .. } => Some("it has no erf"),
            Kind::Chain { elements, .. } if *elements > MOST => {
                Some("it computes index expressions for each element, which takes most of a minute")
            }
            Kind::Inference { network: Inference::Mlp(network) } if network.widths.len() == 4 => {
                None
            }
            Kind::Inference { .. } => Some(
                "its products of two batches of matrices lay out the product of every \
                 two elements first",
            ),
            kind => kind.unknown(),
        }
    }

    fn prepare(&self, case: &Case) -> Result<Prepared> {
        match &case.kind {
            Kind::Empty => chain(Chain::Copy, 1),
            Kind::Chain { chain: of, elements } => chain(*of, *elements),
            Kind::Gemm { extent: n, .. } => {
                product(&Product { rows: *n, inner: *n, columns: *n, transposed: false })
            }
            Kind::Product { product: of } => product(of),
            Kind::Inference { network: Inference::Mlp(network) } => mlp(network),
            _ => bail!("`{}` is not computed", case.id),
        }
    }
}

/// Run-time extents. A graph has one extent for each letter.
type One = Const<1>;
type M = Dyn<'m'>;
type K = Dyn<'k'>;
type N = Dyn<'n'>;

/// An input or a parameter, which stays in the graph after a run.
fn kept<S: Shape>(
    graph: &mut Graph,
    name: &str,
    values: Vec<f32>,
    shape: &[usize],
) -> GraphTensor<S> {
    graph.named_tensor(name).set_dyn(values, shape).keep()
}

/// Compiles the graph of a result, runs it once and compares the result. The graph is boxed,
/// because tensors store its address.
fn prepared<S: Shape + 'static>(
    mut graph: Box<Graph>,
    mut result: GraphTensor<S>,
    judge: impl FnOnce(&[f32]) -> Result<Parity>,
) -> Result<Prepared> {
    result = result.retrieve();
    graph.compile(<(GenericCompiler, CPUCompiler)>::default(), &mut result);
    graph.execute();
    let parity = judge(&result.data())?;
    let run = move || {
        // The graph does not recompute a result that it still stores, so the result is dropped.
        result.drop();
        graph.execute();
        Ok(())
    };
    Ok(Prepared { parity, run: Box::new(run) })
}

fn chain(chain: Chain, elements: usize) -> Result<Prepared> {
    let operands: Vec<Vec<f32>> =
        chain.operands().iter().map(|name| uniform(name, elements, -2.0, 2.0)).collect();
    let mut graph = Box::new(Graph::new());
    let tensors: Vec<GraphTensor<(N,)>> = (chain.operands().iter().zip(&operands))
        .map(|(name, values)| kept(&mut graph, name, values.clone(), &[elements]))
        .collect();
    let result = match (chain, &tensors[..]) {
        (Chain::Copy, [x]) => {
            let one: GraphTensor<()> = kept(&mut graph, "one", vec![1.0], &[]);
            *x * one.expand::<(N,), _>()
        }
        (Chain::MulAdd, [x, w, b, r]) => (*x * *w + *b) * *x + *r,
        (Chain::Eight, [x, w, b, r]) => (((*x * *w + *b).max(*r) * *x - *w).abs() + 1.0).sqrt(),
        _ => unreachable!("chains have the operands that they say, and the others are left out"),
    };
    prepared(graph, result, |found| Parity::of_chain(chain, found, &operands))
}

fn product(product: &Product) -> Result<Prepared> {
    let Product { rows, inner, columns, transposed } = *product;
    let (x, w) = (uniform("x", rows * inner, -1.0, 1.0), uniform("w", inner * columns, -1.0, 1.0));
    let mut graph = Box::new(Graph::new());
    let a: GraphTensor<(One, M, K)> = kept(&mut graph, "x", x.clone(), &[1, rows, inner]);
    let b: GraphTensor<(K, N)> = if transposed {
        let b: GraphTensor<(N, K)> = kept(&mut graph, "w", w.clone(), &[columns, inner]);
        b.permute::<_, Axes2<1, 0>>()
    } else {
        kept(&mut graph, "w", w.clone(), &[inner, columns])
    };
    prepared(graph, a.matmul(b), |found| Parity::of_product(product, found, &x, &w))
}

fn mlp(network: &Mlp) -> Result<Prepared> {
    let expected = plain::infer(&Inference::Mlp(network.clone()));
    let drawn = network::mlp(network);
    let mut graph = Box::new(Graph::new());
    let (batch, inputs) = (network.batch, network.widths[0]);
    let x: GraphTensor<(One, M, Dyn<'a'>)> =
        kept(&mut graph, "x", uniform("x", batch * inputs, 0.0, 1.0), &[1, batch, inputs]);
    let mut affine = Affine { graph: &mut graph, drawn: drawn.iter() };
    let y: GraphTensor<(One, M, Dyn<'b'>)> = affine.of(x);
    let y: GraphTensor<(One, M, Dyn<'c'>)> = affine.of(y.relu());
    let y: GraphTensor<(One, M, Dyn<'d'>)> = affine.of(y.relu());
    prepared(graph, y, |found| {
        let found: Vec<f64> = found.iter().map(|v| f64::from(*v)).collect();
        Parity::of_result(&found, &expected)
    })
}

/// A sequence of affine layers.
struct Affine<'a> {
    graph: &'a mut Graph,
    drawn: std::slice::Iter<'a, network::Drawn>,
}

impl Affine<'_> {
    fn parameter<S: Shape>(&mut self) -> GraphTensor<S> {
        let drawn =
            self.drawn.next().expect("a network has all parameters that its layers ask for");
        kept(self.graph, &drawn.name, drawn.values(), &drawn.shape)
    }

    fn of<const I: char, const O: char>(
        &mut self,
        x: GraphTensor<(One, M, Dyn<I>)>,
    ) -> GraphTensor<(One, M, Dyn<O>)> {
        let weight: GraphTensor<(Dyn<I>, Dyn<O>)> = self.parameter();
        let bias: GraphTensor<(Dyn<O>,)> = self.parameter();
        x.matmul(weight) + bias.expand::<(One, M, Dyn<O>), Axes2<0, 1>>()
    }
}
