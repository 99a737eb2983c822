//! candle executes eagerly, with products of the crate `gemm` and its own optimiser.
//!
//! Networks are generic over the float dtype. In f64 they are the reference for results.

mod convolutional;
mod layers;
mod networks;
mod recurrent;

use crate::case::{Case, Chain, Inference, Kind, Product};
use crate::drawing::{labels, uniform};
use crate::network::{self, Drawn};
use crate::parity::{LARGE, Parity, STEPS};
use crate::protocol::{Contender, Prepared, Way, fastest};
use anyhow::{Result, bail};
use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW};
use layers::{Form, Layers};
use std::collections::BTreeMap;

/// candle on the CPU.
pub struct Candle;

impl Contender for Candle {
    fn name(&self) -> &'static str {
        "candle"
    }

    fn libraries(&self) -> BTreeMap<String, String> {
        [("candle".to_owned(), crate::version_of("candle-core"))].into()
    }

    fn without(&self, case: &Case) -> Option<&'static str> {
        case.kind.unknown()
    }

    fn prepare(&self, case: &Case) -> Result<Prepared> {
        match &case.kind {
            Kind::Empty => chain(Chain::Copy, 1),
            Kind::Chain { chain: of, elements } => chain(*of, *elements),
            Kind::Gemm { extent: n, .. } => {
                product(&Product { rows: *n, inner: *n, columns: *n, transposed: false })
            }
            Kind::Product { product: of } => product(of),
            Kind::Inference { network } => infer(network),
            _ => train(case),
        }
    }

    fn begun(&self, case: &Case) -> Result<Box<dyn FnMut() -> Result<f64>>> {
        let Kind::Transformer { network } = case.kind else { bail!("`{}` has no start", case.id) };
        let fresh = |drawn: &Drawn| -> Result<Var> {
            let [low, high] = drawn.bounds.map(|bound| bound as f32);
            Ok(Var::rand(low, high, drawn.shape.as_slice(), &Device::Cpu)?)
        };
        let parameters = network::gpt(&network).iter().map(fresh).collect::<Result<Vec<_>>>()?;
        let task = Task::of(&case.kind)?.in_dtype(DType::F32)?;
        let mut step = step(task, parameters, Form::default())?;
        Ok(Box::new(move || scalar(&step()?)))
    }
}

fn floats(t: &Tensor) -> Result<Vec<f64>> {
    Ok(t.to_dtype(DType::F64)?.flatten_all()?.to_vec1()?)
}

fn scalar(t: &Tensor) -> Result<f64> {
    Ok(t.to_dtype(DType::F64)?.to_scalar()?)
}

fn way<T>(
    name: &str,
    make: impl FnOnce() -> Result<Box<dyn FnMut() -> Result<T>>> + 'static,
) -> Way<T> {
    (name.to_owned(), Box::new(make))
}

// ----------------------------------------------------------------------------- products and chains

fn chain(chain: Chain, elements: usize) -> Result<Prepared> {
    let operands: Vec<Vec<f32>> =
        chain.operands().iter().map(|name| uniform(name, elements, -2.0, 2.0)).collect();
    let tensor = |values: &Vec<f32>| Tensor::from_slice(values, elements, &Device::Cpu);
    let tensors = operands.iter().map(tensor).collect::<candle_core::Result<Vec<_>>>()?;
    let one = Tensor::ones(1, DType::F32, &Device::Cpu)?;
    let run = move || -> Result<Tensor> {
        Ok(match (chain, &tensors[..]) {
            (Chain::Copy, [x]) => x.broadcast_mul(&one)?,
            (Chain::CopyPlain, [x]) => x.copy()?,
            (Chain::MulAdd, [x, w, b, r]) => ((((x * w)? + b)? * x)? + r)?,
            (Chain::Gelu, [x, b, r]) => ((x + b)?.gelu_erf()? + r)?,
            (Chain::Eight, [x, w, b, r]) => {
                let greater = ((x * w)? + b)?.maximum(r)?;
                (((greater * x)? - w)?.abs()? + 1.0)?.sqrt()?
            }
            _ => unreachable!("chains have the operands that they say"),
        })
    };
    let parity = Parity::of_chain(chain, &run()?.to_vec1::<f32>()?, &operands)?;
    Ok(Prepared { parity, run: Box::new(move || run().map(drop)) })
}

fn product(product: &Product) -> Result<Prepared> {
    let Product { rows, inner, columns, transposed } = *product;
    let (x, w) = (uniform("x", rows * inner, -1.0, 1.0), uniform("w", inner * columns, -1.0, 1.0));
    let of_w = if transposed { (columns, inner) } else { (inner, columns) };
    let a = Tensor::from_slice(&x, (rows, inner), &Device::Cpu)?;
    let b = Tensor::from_slice(&w, of_w, &Device::Cpu)?;
    let run = move || -> Result<Tensor> {
        Ok(if transposed { a.matmul(&b.t()?)? } else { a.matmul(&b)? })
    };
    let found = run()?.flatten_all()?.to_vec1::<f32>()?;
    let parity = Parity::of_product(product, &found, &x, &w)?;
    Ok(Prepared { parity, run: Box::new(move || run().map(drop)) })
}

// --------------------------------------------------------------------------------------- inference

/// The result of a network in f64, by candle.
///
/// Error: candle fails.
pub fn expected(network: &Inference) -> Result<Vec<f64>> {
    let parameters = layers::parameters(&network::inference(network), Form::default(), DType::F64)?;
    floats(&networks::infer(network, DType::F64)?(&parameters, Form::default())?)
}

fn infer(network: &Inference) -> Result<Prepared> {
    let expected = expected(network)?;
    let mut ways = Vec::new();
    for form in Form::of_inference(network) {
        let network = network.clone();
        ways.push(way(&form.to_string(), move || {
            let parameters = layers::parameters(&network::inference(&network), form, DType::F32)?;
            let function = networks::infer(&network, DType::F32)?;
            Ok(Box::new(move || function(&parameters, form)))
        }));
    }
    fastest("candle", ways, |run| Parity::of_result(&floats(&run()?)?, &expected))
}

// ---------------------------------------------------------------------------------------- training

/// A network with its training data.
#[derive(Clone)]
struct Task {
    kind: Kind,
    x: Tensor,
    y: Tensor,
    decay: f64,
}

impl Task {
    fn of(kind: &Kind) -> Result<Task> {
        let pixels = |shape: &[usize]| {
            Tensor::from_vec(uniform("x", shape.iter().product(), 0.0, 1.0), shape, &Device::Cpu)
        };
        let classes = |name: &str, count: usize, bound| {
            Tensor::from_vec(labels(name, count, bound), count, &Device::Cpu)
        };
        let (x, y, decay) = match kind {
            Kind::Training { network } => {
                let (inputs, outputs) =
                    (network.widths[0], network.widths[network.widths.len() - 1]);
                let decay = if network.algorithm.as_deref() == Some("adam_w") { 0.01 } else { 0.0 };
                (pixels(&[network.batch, inputs])?, classes("y", network.batch, outputs)?, decay)
            }
            Kind::Transformer { network: n } => {
                let count = n.batch * n.steps;
                (classes("x", count, n.vocabulary)?, classes("y", count, n.vocabulary)?, 0.01)
            }
            Kind::Convolutional { network: n } => {
                let images = pixels(&[n.batch, n.extent, n.extent, n.channels])?;
                // candle's images have channels first.
                (
                    images.permute((0, 3, 1, 2))?.contiguous()?,
                    classes("y", n.batch, n.classes)?,
                    0.0,
                )
            }
            Kind::Recurrent { network: n } => (
                pixels(&[n.steps, n.batch, n.inputs])?,
                classes("y", n.steps * n.batch, n.classes)?,
                0.01,
            ),
            _ => bail!("this case is no training step"),
        };
        Ok(Task { kind: kind.clone(), x, y, decay })
    }

    fn in_dtype(mut self, dtype: DType) -> Result<Task> {
        if self.x.dtype().is_float() {
            self.x = self.x.to_dtype(dtype)?;
        }
        Ok(self)
    }

    fn drawn(&self) -> Vec<Drawn> {
        match &self.kind {
            Kind::Training { network } => network::mlp(network),
            Kind::Transformer { network } => network::gpt(network),
            Kind::Convolutional { network } => network::convnet(network),
            Kind::Recurrent { network } => network::lstm(network),
            _ => unreachable!("tasks are made of training steps"),
        }
    }

    /// Initial parameters in the layout of the form.
    fn parameters(&self, form: Form, dtype: DType) -> Result<Vec<Tensor>> {
        let parameters = layers::parameters(&self.drawn(), form, dtype)?;
        match &self.kind {
            Kind::Convolutional { network } => {
                convolutional::turned(network, form.turned, parameters)
            }
            _ => Ok(parameters),
        }
    }

    fn loss(&self, parameters: &[Tensor], form: Form) -> Result<Tensor> {
        let layers = Layers::new(parameters, form);
        let logits = match &self.kind {
            Kind::Training { network } => networks::mlp(network, layers, &self.x)?,
            Kind::Transformer { network } => networks::gpt(network, layers, &self.x)?,
            Kind::Convolutional { .. } => convolutional::logits(layers, &self.x)?,
            Kind::Recurrent { network } => recurrent::logits(network, layers, &self.x)?,
            _ => unreachable!("tasks are made of training steps"),
        };
        Ok(candle_nn::loss::cross_entropy(&logits, &self.y)?)
    }
}

/// A training step that returns its loss.
fn step(task: Task, parameters: Vec<Var>, form: Form) -> Result<impl FnMut() -> Result<Tensor>> {
    let settings = ParamsAdamW { weight_decay: task.decay, ..ParamsAdamW::default() };
    let mut optimiser = AdamW::new(parameters.clone(), settings)?;
    let leaves: Vec<Tensor> = parameters.iter().map(|v| v.as_tensor().clone()).collect();
    Ok(move || {
        let loss = task.loss(&leaves, form)?;
        let gradients: GradStore = loss.backward()?;
        optimiser.step(&gradients)?;
        Ok(loss)
    })
}

fn variables(parameters: Vec<Tensor>) -> Result<Vec<Var>> {
    Ok(parameters.iter().map(Var::from_tensor).collect::<candle_core::Result<_>>()?)
}

/// Losses of the first steps in f64, by candle; only the first loss for a large network.
///
/// Errors: the case is not a training step; candle fails.
pub fn expected_losses(case: &Case) -> Result<Vec<f64>> {
    let task = Task::of(&case.kind)?.in_dtype(DType::F64)?;
    let parameters = task.parameters(Form::default(), DType::F64)?;
    if case.work.elements >= LARGE {
        return Ok(vec![scalar(&task.loss(&parameters, Form::default())?)?]);
    }
    let mut step = step(task, variables(parameters)?, Form::default())?;
    (0..STEPS).map(|_| scalar(&step()?)).collect()
}

fn train(case: &Case) -> Result<Prepared> {
    let expected = expected_losses(case)?;
    let task = Task::of(&case.kind)?;
    let mut ways = Vec::new();
    for form in Form::of_training(&case.kind) {
        let task = task.clone();
        ways.push(way(&form.to_string(), move || {
            let parameters = variables(task.parameters(form, DType::F32)?)?;
            Ok(Box::new(step(task, parameters, form)?))
        }));
    }
    fastest("candle", ways, |run| {
        let mut found = [0.0; STEPS];
        for loss in &mut found {
            *loss = scalar(&run()?)?;
        }
        Parity::of_losses(found, &expected)
    })
}
