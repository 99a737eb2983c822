//! burn executes eagerly on CPUs, and records a graph of each step for its derivatives.
//!
//! burn has three backends for CPUs:
//!
//! - burn-flex is used here. It is maintained, and it is pure Rust.
//! - burn-ndarray is deprecated in favour of burn-flex. It was slower here in every case but the
//!   largest copies, by a factor of up to 20 (a training step of a convolutional network).
//! - burn-cpu compiles kernels with LLVM. It is left out, because its build downloads a compiled
//!   LLVM from outside crates.io.

mod convolutional;
mod layers;
mod networks;
mod recurrent;

use crate::case::{Case, Chain, Inference, Kind, Product};
use crate::drawing::{labels, uniform};
use crate::network::{self, Drawn};
use crate::parity::{LARGE, Parity, STEPS};
use crate::plain;
use crate::protocol::{Contender, Prepared, Way, fastest};
use anyhow::{Context, Result, bail};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::activation::gelu;
use burn::tensor::{DType, Device, Int, Tensor};
use layers::{Form, Layers, Parameters, laid, tensor};
use networks::{causal, integers};
use std::collections::BTreeMap;

/// The learning rate of all training steps.
const LEARNING_RATE: f64 = 1e-3;

/// burn on the CPU.
pub struct Burn;

impl Contender for Burn {
    fn name(&self) -> &'static str {
        "burn"
    }

    fn libraries(&self) -> BTreeMap<String, String> {
        ["burn", "burn-flex"].map(|name| (name.to_owned(), crate::version_of(name))).into()
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
        let device = Device::flex().autodiff();
        let parameters = Parameters::random(&network::gpt(&network), &device);
        let task = Task::of(&case.kind, &device, DType::F32)?;
        let mut step = step(task, parameters, Form::default());
        Ok(Box::new(move || Ok(step()?.into_scalar())))
    }
}

fn floats<const D: usize>(t: Tensor<D>) -> Result<Vec<f64>> {
    let data = t.into_data_as::<f64>();
    Ok(data.as_slice::<f64>().ok().context("burn gives floats of another type")?.to_vec())
}

fn singles<const D: usize>(t: Tensor<D>) -> Result<Vec<f32>> {
    let data = t.into_data_as::<f32>();
    Ok(data.as_slice::<f32>().ok().context("burn gives floats of another type")?.to_vec())
}

/// A run of a case. Ops of burn-flex are synchronous, so they have finished when `run` returns.
fn ended<T: 'static>(run: impl Fn() -> T + 'static) -> Box<dyn FnMut() -> Result<()>> {
    Box::new(move || {
        run();
        Ok(())
    })
}

fn way<T>(
    name: String,
    make: impl FnOnce() -> Result<Box<dyn FnMut() -> Result<T>>> + 'static,
) -> Way<T> {
    (name, Box::new(make))
}

// ----------------------------------------------------------------------------- products and chains

fn chain(chain: Chain, elements: usize) -> Result<Prepared> {
    let device = Device::flex();
    let operands: Vec<Vec<f32>> =
        chain.operands().iter().map(|name| uniform(name, elements, -2.0, 2.0)).collect();
    let of_values = |values: &Vec<f32>| tensor(values.clone(), [elements], &device, DType::F32);
    let tensors: Vec<Tensor<1>> = operands.iter().map(of_values).collect();
    let one = Tensor::<1>::ones([1], &device);
    let run = move || {
        let of = |n: usize| tensors[n].clone();
        match chain {
            Chain::Copy => of(0) * one.clone(),
            // An addition, because a clone would share its elements.
            Chain::CopyPlain => of(0) + 0.0,
            Chain::MulAdd => (of(0) * of(1) + of(2)) * of(0) + of(3),
            Chain::Gelu => gelu(of(0) + of(1)) + of(2),
            Chain::Eight => {
                let greater = (of(0) * of(1) + of(2)).max_pair(of(3));
                ((greater * of(0) - of(1)).abs() + 1.0).sqrt()
            }
        }
    };
    let parity = Parity::of_chain(chain, &singles(run())?, &operands)?;
    Ok(Prepared { parity, run: ended(run) })
}

fn product(product: &Product) -> Result<Prepared> {
    let device = Device::flex();
    let Product { rows, inner, columns, transposed } = *product;
    let (x, w) = (uniform("x", rows * inner, -1.0, 1.0), uniform("w", inner * columns, -1.0, 1.0));
    let of_w = if transposed { [columns, inner] } else { [inner, columns] };
    let a = tensor(x.clone(), [rows, inner], &device, DType::F32);
    let b = tensor(w.clone(), of_w, &device, DType::F32);
    let run = move || {
        let b = if transposed { b.clone().transpose() } else { b.clone() };
        a.clone().matmul(b)
    };
    let parity = Parity::of_product(product, &singles(run())?, &x, &w)?;
    Ok(Prepared { parity, run: ended(run) })
}

// --------------------------------------------------------------------------------------- inference

fn infer(network: &Inference) -> Result<Prepared> {
    let expected = plain::infer(network);
    let mut ways = Vec::new();
    for form in Form::of_inference(network) {
        let network = network.clone();
        ways.push(way(form.to_string(), move || {
            let device = Device::flex();
            let parameters =
                Parameters::new(&network::inference(&network), form, &device, DType::F32);
            let function = networks::infer(&network, &device);
            Ok(Box::new(move || Ok(function(&parameters, form))))
        }));
    }
    fastest("burn", ways, |run| Parity::of_result(&floats(run()?)?, &expected))
}

// ---------------------------------------------------------------------------------------- training

/// The inputs of a training step.
enum Inputs {
    Rows(Tensor<2>),
    Tokens(Tensor<2, Int>),
    Images(Tensor<4>),
    Sequences(Tensor<3>),
}

/// A network with its training data.
struct Task {
    kind: Kind,
    x: Inputs,
    y: Tensor<1, Int>,
    decay: f32,
    device: Device,
}

impl Task {
    fn of(kind: &Kind, device: &Device, dtype: DType) -> Result<Task> {
        let pixels = |count: usize| uniform("x", count, 0.0, 1.0);
        let classes = |count: usize, bound| integers(labels("y", count, bound), [count], device);
        let (x, y, decay) = match kind {
            Kind::Training { network } => {
                let (b, inputs, outputs) =
                    (network.batch, network.widths[0], network.widths[network.widths.len() - 1]);
                let decay = if network.algorithm.as_deref() == Some("adam_w") { 0.01 } else { 0.0 };
                let x = tensor(pixels(b * inputs), [b, inputs], device, dtype);
                (Inputs::Rows(x), classes(b, outputs), decay)
            }
            Kind::Transformer { network: n } => {
                let count = n.batch * n.steps;
                let x = integers(labels("x", count, n.vocabulary), [n.batch, n.steps], device);
                (Inputs::Tokens(x), classes(count, n.vocabulary), 0.01)
            }
            Kind::Convolutional { network: n } => {
                let shape = [n.batch, n.extent, n.extent, n.channels];
                let images = tensor(pixels(shape.iter().product()), shape, device, dtype);
                (
                    Inputs::Images(laid(images.permute([0, 3, 1, 2]))),
                    classes(n.batch, n.classes),
                    0.0,
                )
            }
            Kind::Recurrent { network: n } => {
                let shape = [n.steps, n.batch, n.inputs];
                let x = tensor(pixels(shape.iter().product()), shape, device, dtype);
                (Inputs::Sequences(x), classes(n.steps * n.batch, n.classes), 0.01)
            }
            _ => bail!("this case is no training step"),
        };
        Ok(Task { kind: kind.clone(), x, y, decay, device: device.clone() })
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
    fn parameters(&self, form: Form, dtype: DType) -> Parameters {
        let mut parameters = Parameters::new(&self.drawn(), form, &self.device, dtype);
        match &self.kind {
            Kind::Convolutional { network } => {
                convolutional::turned(network, form, &mut parameters)
            }
            Kind::Recurrent { network } if form.layer => {
                recurrent::own_layer(network, &mut parameters, &self.device);
            }
            _ => {}
        }
        parameters
    }

    fn loss(&self, parameters: &Parameters, form: Form) -> Tensor<1> {
        let layers = Layers::new(parameters, form);
        let logits = match (&self.kind, &self.x) {
            (Kind::Training { network }, Inputs::Rows(x)) => {
                networks::mlp(network, &layers, x.clone())
            }
            (Kind::Transformer { network }, Inputs::Tokens(x)) => {
                networks::gpt(network, &layers, x.clone(), &causal(network.steps, &self.device))
            }
            (Kind::Convolutional { .. }, Inputs::Images(x)) => {
                convolutional::logits(&layers, x.clone())
            }
            (Kind::Recurrent { network }, Inputs::Sequences(x)) => {
                recurrent::logits(network, &layers, x.clone())
            }
            _ => unreachable!("tasks have the inputs of their networks"),
        };
        CrossEntropyLossConfig::new().init(&self.device).forward(logits, self.y.clone())
    }
}

/// A training step that returns its loss.
fn step(task: Task, parameters: Parameters, form: Form) -> impl FnMut() -> Result<Tensor<1>> {
    let settings = AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(task.decay);
    let mut optimiser = settings.init();
    let mut parameters = Some(parameters);
    move || {
        let before = parameters.take().context("the step before did not end")?;
        let loss = task.loss(&before, form);
        let gradients = GradientsParams::from_grads(loss.backward(), &before);
        parameters = Some(optimiser.step(LEARNING_RATE, before, gradients));
        Ok(loss.inner())
    }
}

/// Losses of the first steps in f64, by burn-flex; only the first loss for a large network.
///
/// Error: the case is not a training step.
fn expected_losses(case: &Case) -> Result<Vec<f64>> {
    let is_large = case.work.elements >= LARGE;
    let device = if is_large { Device::flex() } else { Device::flex().autodiff() };
    let task = Task::of(&case.kind, &device, DType::F64)?;
    let parameters = task.parameters(Form::default(), DType::F64);
    if is_large {
        return Ok(vec![task.loss(&parameters, Form::default()).into_scalar()]);
    }
    let mut step = step(task, parameters, Form::default());
    (0..STEPS).map(|_| Ok(step()?.into_scalar())).collect()
}

fn train(case: &Case) -> Result<Prepared> {
    let expected = expected_losses(case)?;
    let mut ways = Vec::new();
    for form in Form::of_training(&case.kind) {
        let task = Task::of(&case.kind, &Device::flex().autodiff(), DType::F32)?;
        ways.push(way(form.to_string(), move || {
            let parameters = task.parameters(form, DType::F32);
            Ok(Box::new(step(task, parameters, form)))
        }));
    }
    fastest("burn", ways, |run| {
        let mut found = [0.0; STEPS];
        for loss in &mut found {
            *loss = run()?.into_scalar();
        }
        Parity::of_losses(found, &expected)
    })
}
