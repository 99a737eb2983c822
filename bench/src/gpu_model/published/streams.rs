//! Streams of f64 at different numbers of resident threads: gpu-benches, gpu-stream.
//!
//! The benchmark keeps two blocks on a multiprocessor by static shared memory that no thread uses,
//! and varies their threads. Here the shared memory is dynamic. Its A100 row at full occupancy
//! gave the share of the peak that a copy reaches on that card, so it is not compared.

use super::{Code, Row, Run, Unit, line};
use wengert::device::predicted::foreign::{Argument, Launch};

const FILES: &[(&str, &str)] = &[("stream.cu", include_str!("kernels/stream.cu"))];

/// Elements of an array: 1 GiB.
const N: u32 = 1 << 27;

/// A kernel that moves `streams` arrays, with two blocks of `threads` on a multiprocessor.
fn stream(
    (kernel, entry): (&'static str, &'static str),
    card: &'static str,
    threads: u32,
    streams: f64,
    published: f64,
) -> Row {
    let (target, spoiler, source) = match card {
        "a100" => ("sm_80", 80 << 10, "gpu-benches (D. Ernst), gpu-stream/a100_80.txt"),
        _ => ("sm_90", 110 << 10, "gpu-benches (D. Ernst), gpu-stream/h200.txt"),
    };
    let array = || Argument::Memory { bytes: 8 * u64::from(N), touched: 4 << 20 };
    let arguments = vec![array(), array(), array(), Argument::int(N as i32)];
    let launch = Launch { dynamic_shared: spoiler, ..line(N / threads, threads, arguments) };
    Row {
        kernel,
        card,
        published,
        unit: Unit::Gigabytes,
        source,
        code: Code::Cuda(FILES, target),
        runs: vec![Run::whole(entry, launch)],
        amount: streams * 8.0 * f64::from(N),
    }
}

/// The rows.
pub fn rows() -> Vec<Row> {
    let read = |threads| match threads {
        256 => ("read, 512 threads resident", "stream_read"),
        _ => ("read, 2048 threads resident", "stream_read"),
    };
    let scale = |threads| match threads {
        256 => ("scale, 512 threads resident", "stream_scale"),
        _ => ("scale, 2048 threads resident", "stream_scale"),
    };
    let triad = ("triad, 2048 threads resident", "stream_triad");
    let points = ("stencil of 5 points, 2048 threads resident", "stream_five_points");
    vec![
        stream(read(256), "h200", 256, 1.0, 935.0),
        stream(read(1024), "h200", 1024, 1.0, 2756.0),
        stream(scale(256), "h200", 256, 2.0, 1395.0),
        stream(scale(1024), "h200", 1024, 2.0, 3165.0),
        stream(triad, "h200", 1024, 3.0, 3534.0),
        stream(points, "h200", 1024, 2.0, 3110.0),
        stream(read(256), "a100", 256, 1.0, 619.0),
        stream(scale(256), "a100", 256, 2.0, 1026.0),
        stream(points, "a100", 1024, 2.0, 1680.0),
    ]
}
