//! Measures a device: copying, fused chains, rows, matrix products with epilogues, a training step.
//!
//!     cargo run --release -p python-free-examples --example rates -- DEVICE [DIVISOR]
//!
//! Prints a line `measure NAME SECONDS BYTES FLOPS` for each, separated by tabs: the seconds of one run (the median of ten rounds), the bytes that
//! must be moved at least, the floating-point operations of matrix products; 0 where it is not the point. All operands are variables, so they
//! lie on the device before the clock starts. `ci/gpu/measure_torch.py` and `measure_jax.py` measure the same under the same names. DIVISOR
//! makes everything smaller by that factor, for devices that are slow.

#![allow(clippy::print_stdout)] // It is what the example is for.

use std::time::Instant;

use wengert::prelude::*;

/// Rounds of which the median is taken.
const ROUNDS: usize = 10;
/// Runs of a round; the device is waited for at its end.
const QUEUED: usize = 10;

/// What is measured of a function.
struct Measure {
    name: &'static str,
    bytes: usize,
    flops: usize,
}

fn normal(dtype: DType, shape: &[usize]) -> Tensor {
    let ty = TensorType::new(dtype, shape.iter().copied());
    Tensor::variable(ty, Initializer::Normal { mean: 0.0, std: 1.0 })
}

/// Runs `@run` of a program in a session of its own, so that memory is free again afterwards.
fn measure(device: Device, what: Measure, run: impl FnOnce(&mut FunctionBuilder)) -> Result<()> {
    let mut program = Program::new();
    program.function("run", run)?;
    // A variable that no run writes: reading it waits for the device, and costs next to nothing.
    program.function("probe", |f| {
        let probe = f.param("probe", normal(DType::F32, &[1]));
        f.output("probe", probe);
    })?;
    let mut session = Session::open(device)?;
    let key = Literal::from_vec(&[2], vec![0u32, 7])?;
    session.compile(&program, "init", bind!())?.run(&[("key", key)])?;
    let mut run = session.compile(&program, "run", bind!())?;
    let mut round = |runs: usize| -> Result<f64> {
        session.variable("probe")?;
        let start = Instant::now();
        for _ in 0..runs {
            run.run::<Literal>(&[])?;
        }
        session.variable("probe")?;
        Ok(start.elapsed().as_secs_f64() / runs as f64)
    };
    round(3)?;
    let mut times = (0..ROUNDS).map(|_| round(QUEUED)).collect::<Result<Vec<_>>>()?;
    times.sort_by(f64::total_cmp);
    println!("measure\t{}\t{:.9}\t{}\t{}", what.name, times[ROUNDS / 2], what.bytes, what.flops);
    Ok(())
}

#[derive(Differentiable)]
struct Mlp {
    hidden: Linear,
    out: Linear,
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let device = arguments.next().map_or_else(Device::best, |name| name.parse())?;
    let divisor: usize = arguments.next().map_or(Ok(1), |d| d.parse())?;
    let moved = |name, bytes| Measure { name, bytes, flops: 0 };

    let n = (64 << 20) / divisor;
    let vector = || normal(DType::F32, &[n]);
    measure(device, moved("copy", 8 * n), |f| {
        let x = f.param("x", vector());
        f.update("out", &x);
    })?;
    measure(device, moved("chain", 16 * n), |f| {
        let (x, y, z) = (f.param("x", vector()), f.param("y", vector()), f.param("z", vector()));
        f.update("out", &((&x + &y).gelu_tanh() * &z));
    })?;

    let (rows, columns) = (16384 / divisor, 4096);
    measure(device, moved("softmax", 8 * rows * columns), |f| {
        let x = f.param("x", normal(DType::F32, &[rows, columns]));
        f.update("out", &x.softmax(1));
    })?;
    measure(device, moved("layer_norm", 8 * rows * columns), |f| {
        let x = f.param("x", normal(DType::F32, &[rows, columns]));
        let norm = f.param("norm", LayerNorm::new(columns));
        f.update("out", &norm.call(&x));
    })?;

    let m = 4096 / divisor;
    for (name, dtype) in [("gemm_bias_gelu_f16", DType::F16), ("gemm_bias_gelu_bf16", DType::BF16)] {
        measure(device, Measure { name, bytes: 0, flops: 2 * m * m * m }, |f| {
            let (a, b) = (f.param("a", normal(dtype, &[m, m])), f.param("b", normal(dtype, &[m, m])));
            let bias = f.param("bias", normal(dtype, &[m]));
            f.update("out", &(a.dot(&b) + &bias).gelu_tanh());
        })?;
    }
    measure(device, Measure { name: "gemm_f32", bytes: 0, flops: 2 * m * m * m }, |f| {
        let (a, b) = (f.param("a", normal(DType::F32, &[m, m])), f.param("b", normal(DType::F32, &[m, m])));
        f.update("out", &a.dot(&b));
    })?;

    measure(device, moved("digits_step", 0), |f| {
        let images = f.param("images", normal(DType::F32, &[32, 64]));
        let ty = TensorType::new(DType::I32, [32usize]);
        let labels = f.param("labels", Tensor::variable(ty, Initializer::Ones));
        let model = Mlp { hidden: Linear::kaiming(64, 128), out: Linear::new(128, 10) };
        let model = f.state("model", model);
        let (_, gradient) =
            value_and_grad(&model, |m| cross_entropy(&m.out.call(&m.hidden.call(&images).relu()), &labels));
        AdamW::new(5e-3).step(f, &model, &gradient);
    })?;
    Ok(())
}
