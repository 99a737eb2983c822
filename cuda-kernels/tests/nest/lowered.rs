//! Nests that the compiler emits for GPUs.

use std::collections::BTreeSet;

use wengert_compiler::autodiff::operators::value_and_grad;
use wengert_compiler::pipeline::{Options, compile};
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::{Function, Program};
use wengert_core::nest::Nest;
use wengert_core::{Binding, DType, Initializer, Target, Tensor, TensorType};
use wengert_testing::samples;

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// The nests of a function.
pub fn nests(function: Function) -> Vec<Nest> {
    nests_for(function, &wengert_cuda::target::target("sm_80"))
}

/// The nests of a function for a target.
pub fn nests_for(function: Function, target: &Target) -> Vec<Nest> {
    let mut program = Program::new();
    let name = function.name.clone();
    program.add(function).unwrap();
    let plan = compile(&program, &name, &Binding::new(), target, &Options::default()).unwrap();
    plan.nests.iter().map(|(_, nest)| nest.clone()).collect()
}

/// The nests of every op and sample in every float dtype, without duplicates.
pub fn ops_and_samples() -> Vec<Nest> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for entry in samples::catalogue() {
        for (number, sample) in entry.samples.iter().enumerate() {
            for dtype in FLOATS {
                let operands = sample.literals(dtype, number as u64 + 1);
                let Some(function) = sample.function(&operands) else { continue };
                found.extend(nests(function).into_iter().filter(|n| seen.insert(n.to_string())));
            }
        }
    }
    found
}

/// Normalisation, activation, loss and their gradients for the given rows and columns. These are
/// the parts of a training step besides products.
pub fn training(rows: usize, columns: usize, dtype: DType) -> Vec<Nest> {
    nests(trained(rows, columns, dtype))
}

/// [`training`], for a target on which few rows make bands.
pub fn banded(rows: usize, columns: usize, dtype: DType) -> Vec<Nest> {
    let target = wengert_cuda::target::target("sm_80");
    nests_for(trained(rows, columns, dtype), &Target { band_rows: 16, busy_rows: 8, ..target })
}

fn trained(rows: usize, columns: usize, dtype: DType) -> Function {
    let built = FunctionBuilder::build("train", |f| {
        let x = f.input("x", TensorType::new(dtype, [rows, columns]));
        let gain = f.input("gain", TensorType::new(DType::F32, [columns]));
        let labels = f.input("labels", TensorType::new(DType::I32, [rows]));
        let wide = x.convert(DType::F32);
        let (loss, (dx, dgain)) = value_and_grad(&(wide, gain), |(x, gain)| {
            let back = |t: Tensor| t.restore_axes(x.shape(), &[1]);
            let centred = x - &back(x.mean_axes(&[1]));
            let deviation = (&(&centred * &centred).mean_axes(&[1]) + 1e-5).sqrt();
            let normal = &centred / &back(deviation);
            let scaled = &normal * &gain.restore_axes(x.shape(), &[0]);
            scaled.gelu().softmax_cross_entropy(&labels).mean()
        });
        f.output("loss", &loss);
        f.output("dx", dx.convert(dtype));
        f.output("dgain", &dgain);
        f.output("turned", x.permute(&[1, 0]));
    });
    built.unwrap()
}

/// A state variable of f32.
fn variable(f: &mut FunctionBuilder, name: &str, shape: &[usize]) -> Tensor {
    let ty = TensorType::new(DType::F32, shape.iter().copied());
    f.state(name, Tensor::variable(ty, Initializer::Zeros))
}

/// Updates the variable `name` and its moments by AdamW.
fn adamw(f: &mut FunctionBuilder, name: &str, value: &Tensor, gradient: &Tensor, shape: &[usize]) {
    let names = ["mean", "square"].map(|moment| format!("{moment}.{name}"));
    let [mean, square] = names.each_ref().map(|name| variable(f, name, shape));
    let mean = &mean * 0.9 + gradient * 0.1;
    let square = &square * 0.999 + (gradient * gradient) * 0.001;
    let next = value * 0.9999 - (&mean * 0.001) / (square.sqrt() + 1e-8);
    f.update(name, &next);
    f.update(&names[0], &mean);
    f.update(&names[1], &square);
}

/// A function `step` that updates variables with these numbers of elements by AdamW. Each gradient
/// is an input.
pub fn updates(elements: &[usize]) -> Program {
    let mut program = Program::new();
    let built = FunctionBuilder::build("step", |f| {
        for (n, elements) in elements.iter().enumerate() {
            let gradient = f.input(&format!("g{n}"), TensorType::new(DType::F32, [*elements]));
            let name = format!("p{n}");
            let value = variable(f, &name, &[*elements]);
            adamw(f, &name, &value, &gradient, &[*elements]);
        }
    });
    program.add(built.unwrap()).unwrap();
    program
}

/// A function `step` that trains a network of four layers of these extents by AdamW on `rows` rows
/// of an input `x`. Its output is the loss.
pub fn training_step(rows: usize, widths: [usize; 5]) -> Program {
    let mut program = Program::new();
    let built = FunctionBuilder::build("step", |f| {
        let x = f.input("x", TensorType::new(DType::F32, [rows, widths[0]]));
        let mut layer = |n: usize| {
            let weight = variable(f, &format!("model.w{n}"), &widths[n..n + 2]);
            (weight, variable(f, &format!("model.b{n}"), &widths[n + 1..n + 2]))
        };
        let model = ((layer(0), layer(1)), (layer(2), layer(3)));
        let (loss, gradient) = value_and_grad(&model, |((a, b), (c, d))| {
            let layer = |x: &Tensor, (weight, bias): &(Tensor, Tensor)| {
                let product = x.matmul(weight);
                (&product + bias.restore_axes(product.shape(), &[0])).tanh()
            };
            let y = layer(&layer(&layer(&layer(&x, a), b), c), d);
            (&y * &y).sum()
        });
        f.output("loss", &loss);
        let list = |((a, b), (c, d))| [a, b, c, d];
        let layers = list(model).into_iter().zip(list(gradient));
        for (n, ((weight, bias), (of_weight, of_bias))) in layers.enumerate() {
            adamw(f, &format!("model.w{n}"), &weight, &of_weight, &widths[n..n + 2]);
            adamw(f, &format!("model.b{n}"), &bias, &of_bias, &widths[n + 1..n + 2]);
        }
    });
    program.add(built.unwrap()).unwrap();
    program
}
