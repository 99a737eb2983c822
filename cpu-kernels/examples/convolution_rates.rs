//! Speed of convolutions as calls, on 1 and 2 threads, in all three directions, in f32 and bf16.
//!
//! A rate is that of the fastest of many runs on random numbers, in GFLOP/s. The two dtypes take
//! turns, run by run. The filter gradient of bf16 is f32.
//!
//! ```text
//! cargo run --release -p wengert-cpu --example convolution_rates -- \
//!     64x14x14x16x32x3 32x56x56x64x128x3s2
//! ```
//!
//! A shape is images × height × width × input channels × output channels × filter extent. Filters
//! are square. An appended `s2` is a stride of 2. The result's extents are the image's extents
//! divided by the stride.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::Instant;
use wengert_core::call::{Call, Convolution, Direction, Window};
use wengert_core::half::bf16;
use wengert_core::{DType, Diagnostic};
use wengert_cpu::{Buffer, CompiledCall, Pool, Simd, Workspace};

/// The default shapes: those of a small convnet, of ResNet-50 and of a U-Net.
const SHAPES: &[&str] = &[
    "64x28x28x1x16x3",
    "64x14x14x16x32x3",
    "8x56x56x64x64x3",
    "8x56x56x128x128x3s2",
    "8x28x28x128x128x3",
    "8x14x14x256x256x3",
    "8x7x7x512x512x3",
    "8x224x224x3x64x7s2",
    "2x128x128x32x32x3",
];

fn main() -> Result<(), Diagnostic> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let shapes: Vec<&str> =
        if asked.is_empty() { SHAPES.to_vec() } else { asked.iter().map(String::as_str).collect() };
    let [forward, input, filter] = ["forward", "input", "filter"];
    println!("{:24} {:5} {forward:>12} {input:>12} {filter:>12}", "1 thread, 2", "dtype");
    let pools = [Arc::new(Pool::new(1)?), Arc::new(Pool::new(2)?)];
    for shape in shapes {
        measure(shape, &pools)?;
    }
    Ok(())
}

fn measure(shape: &str, pools: &[Arc<Pool>; 2]) -> Result<(), Diagnostic> {
    let wrong =
        || Diagnostic::new(format!("`{shape}` is no shape")).help("such as 64x14x14x16x32x3s2");
    let (text, stride) = shape.split_once('s').unwrap_or((shape, "1"));
    let extents: Vec<usize> =
        text.split('x').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
    let [batch, height, width, input_channels, output_channels, filter] = extents[..] else {
        return Err(wrong());
    };
    let stride: usize = stride.parse().map_err(|_| wrong())?;
    let axis = |input: usize| {
        let output = input.div_ceil(stride);
        let padding = ((output - 1) * stride + filter).saturating_sub(input);
        let low = (padding / 2) as i64;
        Window { input, output, filter, stride, low, lhs_dilation: 1, rhs_dilation: 1 }
    };
    let window = vec![axis(height), axis(width)];
    let positions = batch * window[0].output * window[1].output;
    let flops = 2.0 * (positions * filter * filter * input_channels * output_channels) as f64;
    let mut lines = ["f32", "bf16"].map(|dtype| format!("{shape:24} {dtype:5}"));
    for direction in [Direction::Forward, Direction::InputGradient, Direction::FilterGradient] {
        let mut state = 88_172_645_463_325_252;
        let input = random(batch * height * width * input_channels, &mut state);
        let taps = random(filter * filter * input_channels * output_channels, &mut state);
        let output = random(positions * output_channels, &mut state);
        let (lhs, rhs, out) = match direction {
            Direction::Forward => (&input, &taps, output.len()),
            Direction::InputGradient => (&taps, &output, input.len()),
            Direction::FilterGradient => (&input, &output, taps.len()),
        };
        let halves = |x: &[f32]| x.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>();
        let (half_lhs, half_rhs) = (halves(lhs), halves(rhs));
        let mut out = vec![0.0f32; out];
        let mut half_out = halves(&out);
        let wide = direction == Direction::FilterGradient;
        let compile = |dtype: DType| {
            CompiledCall::new(&Call::Convolution(Convolution {
                direction,
                dtype,
                wide: wide && dtype.is_half(),
                batch,
                groups: 1,
                input_channels,
                output_channels,
                window: window.clone(),
            }))
        };
        let calls = [compile(DType::F32)?, compile(DType::BF16)?];
        let mut rates = [vec![], vec![]];
        for pool in pools {
            let mut workspace = Workspace::new(pool.clone(), Simd::choose()?)?;
            calls.iter().try_for_each(|call| call.reserve(&mut workspace))?;
            let mut best = [f64::INFINITY; 2];
            for _ in 0..((4e10 / flops) as usize).clamp(5, 300) {
                for (dtype, call) in calls.iter().enumerate() {
                    let mut buffers = match (dtype, wide) {
                        (0, _) => {
                            [Buffer::reading(lhs), Buffer::reading(rhs), Buffer::writing(&mut out)]
                        }
                        (_, true) => [
                            Buffer::reading(&half_lhs),
                            Buffer::reading(&half_rhs),
                            Buffer::writing(&mut out),
                        ],
                        (_, false) => [
                            Buffer::reading(&half_lhs),
                            Buffer::reading(&half_rhs),
                            Buffer::writing(&mut half_out),
                        ],
                    };
                    let start = Instant::now();
                    call.run(&workspace, &mut buffers)?;
                    best[dtype] = best[dtype].min(start.elapsed().as_secs_f64());
                }
            }
            for (rates, best) in rates.iter_mut().zip(best) {
                rates.push(format!("{:.0}", flops / best / 1e9));
            }
        }
        for (line, rates) in lines.iter_mut().zip(rates) {
            *line += &format!(" {:>12}", rates.join(", "));
        }
    }
    lines.iter().for_each(|line| println!("{line}"));
    Ok(())
}

fn random(count: usize, state: &mut u64) -> Vec<f32> {
    let next = || {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}
