//! Speed of convolutions as calls, on 1 and 2 threads, in all three directions.
//!
//! A rate is that of the fastest of many runs on random numbers, in GFLOP/s.
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
    println!("{:24} {:>12} {:>12} {:>12}", "1 thread, 2", "forward", "input", "filter");
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
    let mut line = format!("{shape:24}");
    for direction in [Direction::Forward, Direction::InputGradient, Direction::FilterGradient] {
        let call = Convolution {
            direction,
            dtype: DType::F32,
            batch,
            groups: 1,
            input_channels,
            output_channels,
            window: window.clone(),
        };
        let mut state = 88_172_645_463_325_252;
        let input = random(batch * height * width * input_channels, &mut state);
        let taps = random(filter * filter * input_channels * output_channels, &mut state);
        let output = random(positions * output_channels, &mut state);
        let (lhs, rhs, mut out) = match direction {
            Direction::Forward => (&input, &taps, vec![0.0f32; output.len()]),
            Direction::InputGradient => (&taps, &output, vec![0.0f32; input.len()]),
            Direction::FilterGradient => (&input, &output, vec![0.0f32; taps.len()]),
        };
        let compiled = CompiledCall::new(&Call::Convolution(call))?;
        let mut rates = Vec::new();
        for pool in pools {
            let mut workspace = Workspace::new(pool.clone(), Simd::choose()?)?;
            compiled.reserve(&mut workspace)?;
            let mut best = f64::INFINITY;
            for _ in 0..((4e10 / flops) as usize).clamp(5, 300) {
                let mut buffers =
                    [Buffer::reading(lhs), Buffer::reading(rhs), Buffer::writing(&mut out)];
                let start = Instant::now();
                compiled.run(&workspace, &mut buffers)?;
                best = best.min(start.elapsed().as_secs_f64());
            }
            rates.push(format!("{:.0}", flops / best / 1e9));
        }
        line += &format!(" {:>12}", rates.join(", "));
    }
    println!("{line}");
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
