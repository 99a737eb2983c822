//! Nanoseconds per element of two elementwise chains, beside a native loop that rustc has fused:
//! `(x·w + b)·x + r` and `gelu(x + b) + r`, on 16M and 512K elements of f32, with one and two
//! threads.
//!
//! `cargo run --release -p wengert-cpu --example chains`. Runs of the nest and of the loop
//! alternate. The output shows the median of several runs.

#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::Instant;
use wengert_core::nest::{Affine, BufferId, Nest, NestBuilder, Reg, ScalarOp};
use wengert_core::{DType, Diagnostic, math};
use wengert_cpu::{AlignedBytes, Buffer, CompiledNest, Pool, Simd, Workspace};

/// √(2/π).
const SCALE: f32 = 0.797_884_6;

fn main() -> Result<(), Diagnostic> {
    println!(
        "{:<16} {:>10} {:>8} {:>10} {:>10} {:>6}",
        "chain", "elements", "threads", "nest", "native", "ratio"
    );
    for elements in [16 << 20, 512 << 10] {
        for threads in [1, 2] {
            polynomial(elements, threads)?;
            gelu(elements, threads)?;
        }
    }
    Ok(())
}

/// A nest over one axis, with the given number of inputs.
fn chain(
    elements: usize,
    inputs: usize,
    body: impl Fn(&mut NestBuilder, &[Reg]) -> Reg,
) -> Result<Nest, Diagnostic> {
    let mut b = NestBuilder::new("chain");
    let buffers: Vec<BufferId> =
        (0..inputs).map(|_| b.input("x", DType::F32, &[elements])).collect();
    let out = b.output("y", DType::F32, &[elements]);
    let i = b.parallel("i", elements);
    b.phase([]);
    let values: Vec<Reg> = buffers.iter().map(|x| b.load(*x, &[Affine::axis(i)])).collect();
    let result = body(&mut b, &values);
    b.store(out, &[Affine::axis(i)], result);
    b.finish()
}

fn polynomial(elements: usize, threads: usize) -> Result<(), Diagnostic> {
    let nest = chain(elements, 4, |b, v| {
        let xw = b.scalar(ScalarOp::Mul, &[v[0], v[1]]);
        let sum = b.scalar(ScalarOp::Add, &[xw, v[2]]);
        let product = b.scalar(ScalarOp::Mul, &[sum, v[0]]);
        b.scalar(ScalarOp::Add, &[product, v[3]])
    })?;
    measure("(x*w+b)*x+r", &nest, elements, threads, 4, &|inputs, out, simd| {
        let [x, w, b, r] = inputs else { unreachable!("four inputs") };
        native_polynomial(simd, x, w, b, r, out);
    })
}

fn gelu(elements: usize, threads: usize) -> Result<(), Diagnostic> {
    let nest = chain(elements, 3, |b, v| {
        let constant = |b: &mut NestBuilder, value: f32| b.constant(value.into());
        let x = b.scalar(ScalarOp::Add, &[v[0], v[1]]);
        let square = b.scalar(ScalarOp::Mul, &[x, x]);
        let cube = b.scalar(ScalarOp::Mul, &[square, x]);
        let factor = constant(b, 0.044_715);
        let term = b.scalar(ScalarOp::Mul, &[cube, factor]);
        let sum = b.scalar(ScalarOp::Add, &[x, term]);
        let scale = constant(b, SCALE);
        let inner = b.scalar(ScalarOp::Mul, &[sum, scale]);
        let t = b.scalar(ScalarOp::Tanh, &[inner]);
        let one = constant(b, 1.0);
        let t = b.scalar(ScalarOp::Add, &[t, one]);
        let half = constant(b, 0.5);
        let hx = b.scalar(ScalarOp::Mul, &[x, half]);
        let g = b.scalar(ScalarOp::Mul, &[hx, t]);
        b.scalar(ScalarOp::Add, &[g, v[2]])
    })?;
    measure("gelu(x+b)+r", &nest, elements, threads, 3, &|inputs, out, simd| {
        let [x, b, r] = inputs else { unreachable!("three inputs") };
        native_gelu(simd, x, b, r, out);
    })
}

type Native<'a> = &'a (dyn Fn(&[&[f32]], &mut [f32], Simd) + Sync);

fn measure(
    name: &str,
    nest: &Nest,
    elements: usize,
    threads: usize,
    count: usize,
    native: Native<'_>,
) -> Result<(), Diagnostic> {
    let simd = Simd::choose()?;
    let pool = Arc::new(Pool::new(threads)?);
    let mut workspace = Workspace::new(pool.clone(), simd)?;
    let compiled = CompiledNest::new(nest, simd)?;
    workspace.reserve(compiled.scratch_bytes())?;

    let mut state = 1u64;
    let mut inputs = Vec::new();
    for _ in 0..count {
        let mut memory = AlignedBytes::new(elements * 4)?;
        for value in bytemuck::cast_slice_mut::<u8, f32>(&mut memory) {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *value = (state >> 40) as f32 / (1 << 22) as f32 - 2.0;
        }
        inputs.push(memory);
    }
    let slices: Vec<&[f32]> = inputs.iter().map(|m| bytemuck::cast_slice(m)).collect();
    let mut by_nest = AlignedBytes::new(elements * 4)?;
    let mut by_loop = AlignedBytes::new(elements * 4)?;

    let mut run_nest = || -> Result<f64, Diagnostic> {
        let mut buffers: Vec<Buffer<'_>> =
            inputs.iter().map(|m| Buffer::reading::<u8>(m)).collect();
        buffers.push(Buffer::writing::<u8>(&mut by_nest));
        let start = Instant::now();
        compiled.run(&workspace, &mut buffers)?;
        Ok(start.elapsed().as_secs_f64())
    };
    let mut run_loop = || {
        // Fixed shares, one for each thread. Each share has its own lock, so the locks are not
        // contended.
        let share = elements.div_ceil(threads);
        let outputs: Vec<_> = bytemuck::cast_slice_mut::<u8, f32>(&mut by_loop)
            .chunks_mut(share)
            .map(std::sync::Mutex::new)
            .collect();
        let start = Instant::now();
        let outcome = pool.parallel_for(outputs.len(), |_, task| {
            let mut out = outputs[task].lock().expect("nobody panics");
            let from = task * share;
            let to = from + out.len();
            let parts: Vec<&[f32]> = slices.iter().map(|s| &s[from..to]).collect();
            native(&parts, &mut out, simd);
        });
        outcome.expect("nobody panics");
        start.elapsed().as_secs_f64()
    };
    let repeats = if elements > 1 << 20 { 15 } else { 201 };
    let (mut nests, mut loops) = (vec![], vec![]);
    for _ in 0..repeats {
        nests.push(run_nest()?);
        loops.push(run_loop());
    }
    assert_eq!(by_nest[..], by_loop[..], "both compute the same bits");
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2] * 1e9 / elements as f64
    };
    let (nest, native) = (median(&mut nests), median(&mut loops));
    let ratio = nest / native;
    println!("{name:<16} {elements:>10} {threads:>8} {nest:>10.3} {native:>10.3} {ratio:>6.2}");
    Ok(())
}

/// A loop compiled for each set of vector instructions.
macro_rules! native {
    ($name:ident, ($($input:ident),*), |$k:ident| $body:expr) => {
        fn $name(simd: Simd, $($input: &[f32],)* out: &mut [f32]) {
            #[inline(always)]
            fn run($($input: &[f32],)* out: &mut [f32]) {
                let n = out.len();
                $(let $input = &$input[..n];)*
                for $k in 0..n {
                    out[$k] = $body;
                }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            fn avx512($($input: &[f32],)* out: &mut [f32]) {
                run($($input,)* out);
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($input: &[f32],)* out: &mut [f32]) {
                run($($input,)* out);
            }
            match simd {
                // SAFETY: `Simd` is only chosen if the machine has its instructions.
                #[cfg(target_arch = "x86_64")]
                Simd::Avx512 => unsafe { avx512($($input,)* out) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Simd::Avx2 => unsafe { avx2($($input,)* out) },
                _ => run($($input,)* out),
            }
        }
    };
}

native!(native_polynomial, (x, w, b, r), |k| (x[k] * w[k] + b[k]) * x[k] + r[k]);
native!(native_gelu, (x, b, r), |k| {
    let v = x[k] + b[k];
    let t = math::f32::tanh((v + v * v * v * 0.044_715) * SCALE);
    v * 0.5 * (t + 1.0) + r[k]
});
