//! tract reads ONNX graphs, rewrites them, and runs them on CPUs.

mod graph;
mod networks;

use crate::case::{Case, Chain, Inference, Kind, Product};
use crate::drawing::{labels, uniform};
use crate::parity::Parity;
use crate::plain;
use crate::protocol::{Contender, Prepared, Way, fastest};
use anyhow::{Context, Result, bail};
use graph::{Graph, Value, integers};
use std::collections::BTreeMap;
use std::thread::available_parallelism;
use tract_onnx::pb::ModelProto;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::prelude::multithread::Executor;
use tract_onnx::prelude::{Framework, InferenceModelExt, RunOptions, TValue, Tensor};
use tract_onnx::tract_core::transform::get_transform;

/// tract on the CPU.
pub struct Tract {
    /// The executors: all cores, and one core, which is faster in some cases.
    executors: [(&'static str, Executor); 2],
}

impl Tract {
    /// A contender whose parallel executor has one thread for each core of this process.
    pub fn with_all_cores() -> Tract {
        let threads = available_parallelism().map_or(1, usize::from);
        let all = Executor::multithread(threads);
        Tract { executors: [("all cores", all), ("one core", Executor::SingleThread)] }
    }

    /// Every pair of a model and an executor, as variants.
    fn ways(&self, models: Vec<(&'static str, Model)>, inputs: &[TValue]) -> Vec<Way<TValue>> {
        let mut ways: Vec<Way<TValue>> = Vec::new();
        for (form, model) in models {
            for (cores, executor) in self.executors.clone() {
                let (inputs, model) = (inputs.to_vec(), model.clone());
                ways.push((
                    format!("{form}, {cores}"),
                    Box::new(move || runnable(&model(), inputs, executor)),
                ));
            }
        }
        ways
    }
}

/// A function that makes a model.
type Model = std::rc::Rc<dyn Fn() -> ModelProto>;

impl Contender for Tract {
    fn name(&self) -> &'static str {
        "tract"
    }

    fn libraries(&self) -> BTreeMap<String, String> {
        [("tract".to_owned(), crate::version_of("tract-onnx"))].into()
    }

    fn without(&self, case: &Case) -> Option<&'static str> {
        match case.kind {
            Kind::Training { .. }
            | Kind::Transformer { .. }
            | Kind::Convolutional { .. }
            | Kind::Recurrent { .. } => Some("it differentiates nothing"),
            Kind::Chain { chain: Chain::CopyPlain, .. } => {
                Some("a graph that computes nothing copies nothing")
            }
            _ => case.kind.unknown(),
        }
    }

    fn prepare(&self, case: &Case) -> Result<Prepared> {
        match &case.kind {
            Kind::Empty => self.chain(Chain::Copy, 1),
            Kind::Chain { chain: of, elements } => self.chain(*of, *elements),
            Kind::Gemm { extent: n, .. } => {
                self.product(&Product { rows: *n, inner: *n, columns: *n, transposed: false })
            }
            Kind::Product { product: of } => self.product(of),
            Kind::Inference { network } => self.infer(network),
            _ => bail!("`{}` is not computed", case.id),
        }
    }
}

fn given<T: tract_onnx::prelude::Datum + Copy>(values: &[T], shape: &[usize]) -> Result<TValue> {
    Ok(TValue::from(Tensor::from_shape(shape, values)?))
}

/// A function that runs a compiled model on fixed inputs.
fn runnable(
    model: &ModelProto,
    inputs: Vec<TValue>,
    executor: Executor,
) -> Result<Box<dyn FnMut() -> Result<TValue>>> {
    let mut model =
        tract_onnx::onnx().model_for_proto_model(model)?.into_typed()?.into_decluttered()?;
    let transform = get_transform("transformers_detect_all")?;
    model.transform(&*transform.context("tract has its rewrites for transformers")?)?;
    let options = RunOptions { executor: Some(executor), ..RunOptions::default() };
    let mut state = model.into_optimized()?.into_runnable_with_options(&options)?.spawn()?;
    Ok(Box::new(move || {
        let mut results = state.run(inputs.iter().cloned().collect())?;
        results.pop().context("a graph has a result")
    }))
}

fn singles(result: &TValue) -> Result<Vec<f32>> {
    Ok(result.to_plain_array_view::<f32>()?.iter().copied().collect())
}

impl Tract {
    fn chain(&self, chain: Chain, elements: usize) -> Result<Prepared> {
        let operands: Vec<Vec<f32>> =
            chain.operands().iter().map(|name| uniform(name, elements, -2.0, 2.0)).collect();
        let mut inputs =
            operands.iter().map(|values| given(values, &[elements])).collect::<Result<Vec<_>>>()?;
        if chain == Chain::Copy {
            inputs.push(given(&[1.0_f32], &[1])?);
        }
        let model: Model = std::rc::Rc::new(move || of_chain(chain, elements));
        let ways = self.ways(vec![("plain", model)], &inputs);
        fastest(self.name(), ways, |run| Parity::of_chain(chain, &singles(&run()?)?, &operands))
    }

    fn product(&self, product: &Product) -> Result<Prepared> {
        let Product { rows, inner, columns, transposed } = *product;
        let (x, w) =
            (uniform("x", rows * inner, -1.0, 1.0), uniform("w", inner * columns, -1.0, 1.0));
        let of_w = if transposed { [columns, inner] } else { [inner, columns] };
        let inputs = [given(&x, &[rows, inner])?, given(&w, &of_w)?];
        let model: Model = std::rc::Rc::new(move || {
            let mut graph = Graph::default();
            let x = graph.input("x", DataType::Float, &[rows, inner]);
            let mut w = graph.input("w", DataType::Float, &of_w);
            if transposed {
                w = graph.op_with("Transpose", &[&w], vec![integers("perm", &[1, 0])]);
            }
            let y = graph.op("MatMul", &[&x, &w]);
            graph.model(y, &[rows, columns])
        });
        let ways = self.ways(vec![("plain", model)], &inputs);
        fastest(self.name(), ways, |run| Parity::of_product(product, &singles(&run()?)?, &x, &w))
    }

    fn infer(&self, network: &Inference) -> Result<Prepared> {
        let expected = plain::infer(network);
        let tokens = |b: usize, t: usize, vocabulary| {
            let x: Vec<i64> = labels("x", b * t, vocabulary).into_iter().map(i64::from).collect();
            given(&x, &[b, t])
        };
        let mut inputs = Vec::new();
        match network {
            Inference::Mlp(n) => {
                let x = uniform("x", n.batch * n.widths[0], 0.0, 1.0);
                inputs.push(given(&x, &[n.batch, n.widths[0]])?);
            }
            Inference::Gpt { network: n } => inputs.push(tokens(n.batch, n.steps, n.vocabulary)?),
            Inference::Bert { network: n } => {
                inputs.push(tokens(n.batch, n.steps, n.vocabulary)?);
                inputs.push(given(&n.mask(), &[n.batch, n.steps])?);
            }
        }
        let written = |fused: bool| -> Model {
            let network = network.clone();
            std::rc::Rc::new(move || networks::model(&network, fused))
        };
        let mut models = vec![("spelled out", written(false))];
        if !matches!(network, Inference::Mlp(_)) {
            models.push(("GELU and attention as one operator each", written(true)));
        }
        fastest(self.name(), self.ways(models, &inputs), |run| {
            let found: Vec<f64> = singles(&run()?)?.into_iter().map(f64::from).collect();
            Parity::of_result(&found, &expected)
        })
    }
}

/// A chain as a model.
fn of_chain(chain: Chain, elements: usize) -> ModelProto {
    let mut graph = Graph::default();
    let g = &mut graph;
    let operands: Vec<Value> =
        chain.operands().iter().map(|name| g.input(name, DataType::Float, &[elements])).collect();
    let result = match (chain, &operands[..]) {
        (Chain::Copy, [x]) => {
            let one = g.input("one", DataType::Float, &[1]);
            g.op("Mul", &[x, &one])
        }
        (Chain::MulAdd, [x, w, b, r]) => {
            let y = g.op("Mul", &[x, w]);
            let y = g.op("Add", &[&y, b]);
            let y = g.op("Mul", &[&y, x]);
            g.op("Add", &[&y, r])
        }
        (Chain::Gelu, [x, b, r]) => {
            let y = g.op("Add", &[x, b]);
            let y = g.op("Gelu", &[&y]);
            g.op("Add", &[&y, r])
        }
        (Chain::Eight, [x, w, b, r]) => {
            let y = g.op("Mul", &[x, w]);
            let y = g.op("Add", &[&y, b]);
            let y = g.op("Max", &[&y, r]);
            let y = g.op("Mul", &[&y, x]);
            let y = g.op("Sub", &[&y, w]);
            let y = g.op("Abs", &[&y]);
            let one = g.number(1.0);
            let y = g.op("Add", &[&y, &one]);
            g.op("Sqrt", &[&y])
        }
        _ => unreachable!("chains have the operands that they say, and a plain copy is left out"),
    };
    graph.model(result, &[elements])
}
