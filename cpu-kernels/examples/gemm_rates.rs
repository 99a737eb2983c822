//! Speed of matrix products as calls, on 1 and 2 threads, compared with direct calls of the `gemm`
//! crate. On two threads the crate computes half of the columns on each.
//!
//! All variants take turns on the same random numbers, so that other load on the machine affects
//! them equally. A rate is that of the fastest turn, in GFLOP/s. A ratio is the median over turns
//! of a call's time divided by the crate's time in the same turn.
//!
//! ```text
//! cargo run --release -p wengert-cpu --example gemm_rates -- 512x512x512 128x512x512:nt
//! ```
//!
//! A shape is m×k×n. `:nt` means that rhs is transposed in memory, `:tn` that lhs is. `+bias` adds
//! a bias. `+bf16` at the end multiplies in bf16; the crate still multiplies in f32.
#![allow(clippy::print_stdout)]

use gemm::Parallelism;
use std::sync::Arc;
use std::time::Instant;
use wengert_core::call::{Addends, Call, Gemm, Matrix};
use wengert_core::half::bf16;
use wengert_core::{DType, Diagnostic};
use wengert_cpu::{Buffer, CompiledCall, Pool, Simd, Workspace};

/// The default shapes: squares, those of a perceptron, and those of a small language model.
const SHAPES: &[&str] = &[
    "512x512x512",
    "1024x1024x1024",
    "2048x2048x2048",
    "64x784x512",
    "128x784x512+bias",
    "784x128x512:tn",
    "128x512x512:nt",
    "128x512x10",
    "1024x384x1152",
    "1024x384x1536+bias",
    "1024x1536x384",
    "1024x1536x384:nt",
    "384x1024x1536:tn",
    "1024x384x4096:nt",
    "384x1024x4096:tn",
    "1x1024x4096",
    "1x1024x4096:nt",
    "8x1024x1024:nt",
    "16x16x16",
];

fn main() -> Result<(), Diagnostic> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let shapes: Vec<&str> =
        if asked.is_empty() { SHAPES.to_vec() } else { asked.iter().map(String::as_str).collect() };
    println!(
        "{:24} {:>8} {:>8} {:>8} {:>8}   ratio 1  ratio 2",
        "", "call 1", "crate 1", "call 2", "crate 2"
    );
    let pools = [Arc::new(Pool::new(1)?), Arc::new(Pool::new(2)?)];
    for shape in shapes {
        measure(shape, &pools)?;
    }
    Ok(())
}

fn measure(shape: &str, pools: &[Arc<Pool>; 2]) -> Result<(), Diagnostic> {
    let wrong =
        || Diagnostic::new(format!("`{shape}` is no shape")).help("such as 128x512x512:nt+bias");
    let (text, half) = shape.strip_suffix("+bf16").map_or((shape, false), |s| (s, true));
    let (text, biased) = text.strip_suffix("+bias").map_or((text, false), |s| (s, true));
    let (text, kind) = text.split_once(':').unwrap_or((text, "nn"));
    let extents: Vec<usize> =
        text.split('x').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
    let [m, k, n] = extents[..] else { return Err(wrong()) };
    let lay_out = |transposed: bool, rows: usize, columns: usize| {
        let (row, column) = if transposed { (1, rows) } else { (columns, 1) };
        Matrix { batch: 0, row, column }
    };
    let gemm = Gemm {
        batch: 1,
        m,
        n,
        k,
        lhs: lay_out(kind.starts_with('t'), m, k),
        rhs: lay_out(kind.ends_with('t'), k, n),
        operand: if half { DType::BF16 } else { DType::F32 },
        rhs_operand: None,
        scales: None,
        accumulate: DType::F32,
        result: DType::F32,
        addends: Addends { bias: biased, residual: false },
        pitch: None,
    };
    let mut state = 88_172_645_463_325_252;
    let (x, y, bias) =
        (random(m * k, &mut state), random(k * n, &mut state), random(n, &mut state));
    let mut out = vec![0.0f32; m * n];
    let halves =
        |numbers: &[f32]| -> Vec<bf16> { numbers.iter().map(|x| bf16::from_f32(*x)).collect() };
    let (x_half, y_half) = (halves(&x), halves(&y));
    let compiled = CompiledCall::new(&Call::Gemm(gemm.clone()))?;
    let simd = Simd::choose()?;
    let workspaces = pools
        .iter()
        .map(|pool| {
            let mut workspace = Workspace::new(pool.clone(), simd)?;
            compiled.reserve(&mut workspace)?;
            Ok(workspace)
        })
        .collect::<Result<Vec<_>, Diagnostic>>()?;
    let flops = 2.0 * (m * n * k) as f64;
    let repeat = (2e6 / flops).ceil().max(1.0) as usize;
    let turns = ((1e10 / flops) as usize).clamp(9, 201);
    let mut times = [const { Vec::<f64>::new() }; 4];
    for _ in 0..turns {
        for threads in [1, 2] {
            // The first run wakes the threads.
            let mut start = Instant::now();
            for run in 0..=repeat {
                if run == 1 {
                    start = Instant::now();
                }
                let mut buffers = match half {
                    true => vec![Buffer::reading(&x_half), Buffer::reading(&y_half)],
                    false => vec![Buffer::reading(&x), Buffer::reading(&y)],
                };
                if biased {
                    buffers.push(Buffer::reading(&bias));
                }
                buffers.push(Buffer::writing(&mut out));
                compiled.run(&workspaces[threads - 1], &mut buffers)?;
            }
            times[2 * (threads - 1)].push(start.elapsed().as_secs_f64() / repeat as f64);
            let mut start = Instant::now();
            for run in 0..=repeat {
                if run == 1 {
                    start = Instant::now();
                }
                directly(&gemm, &x, &y, &mut out, &pools[threads - 1])?;
            }
            times[2 * threads - 1].push(start.elapsed().as_secs_f64() / repeat as f64);
        }
    }
    let rate = |t: &Vec<f64>| flops / t.iter().copied().fold(f64::INFINITY, f64::min) / 1e9;
    let ratio = |call: &Vec<f64>, other: &Vec<f64>| {
        let mut ratios: Vec<f64> = call.iter().zip(other).map(|(a, b)| a / b).collect();
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    };
    let [one, crate_one, two, crate_two] = &times;
    println!(
        "{shape:24} {:8.1} {:8.1} {:8.1} {:8.1} {:9.3} {:8.3}",
        rate(one),
        rate(crate_one),
        rate(two),
        rate(crate_two),
        ratio(one, crate_one),
        ratio(two, crate_two)
    );
    Ok(())
}

/// Runs the crate on as many threads as the pool has. Each thread computes a range of columns,
/// without addends.
fn directly(
    gemm: &Gemm,
    x: &[f32],
    y: &[f32],
    out: &mut [f32],
    pool: &Pool,
) -> Result<(), Diagnostic> {
    let width = gemm.n.div_ceil(pool.threads()).next_multiple_of(64);
    let out = Out(out.as_mut_ptr());
    let task = |_: usize, task: usize| {
        let first = task * width;
        let columns = width.min(gemm.n - first);
        // SAFETY: the vectors have these extents, and each task writes its own columns.
        unsafe {
            gemm::gemm(
                gemm.m,
                columns,
                gemm.k,
                out.at(first),
                1,
                gemm.n as isize,
                false,
                x.as_ptr(),
                gemm.lhs.column as isize,
                gemm.lhs.row as isize,
                y.as_ptr().add(first * gemm.rhs.column),
                gemm.rhs.column as isize,
                gemm.rhs.row as isize,
                0.0,
                1.0,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
    };
    pool.parallel_for(gemm.n.div_ceil(width), task).map_err(|e| Diagnostic::new(e.to_string()))
}

struct Out(*mut f32);

// SAFETY: each task writes its own columns.
unsafe impl Sync for Out {}

impl Out {
    fn at(&self, element: usize) -> *mut f32 {
        self.0.wrapping_add(element)
    }
}

/// Numbers between −1 and 1.
fn random(count: usize, state: &mut u64) -> Vec<f32> {
    (0..count)
        .map(|_| {
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            (*state >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}
