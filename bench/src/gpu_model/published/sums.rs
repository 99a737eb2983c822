//! Sums, norms, scans and transpositions on an H100 by S. Veitner (simveit on GitHub), each in
//! several steps from naive to fast. 2³⁰ integers, 2¹⁸ rows of 4096 floats.
//!
//! The blocks of a sample touch the first of them only, so the memory is smaller. The matrices are
//! 8192 × 8192 instead of 32768 × 32768.

use super::{Code, Row, Run, Unit, line};
use wengert::device::predicted::foreign::{Argument, ElementType, Launch, Swizzle};

const SUM: Code = Code::Cuda(&[("sum.cu", include_str!("kernels/sum.cu"))], "sm_90");
const ROWS: Code = Code::Cuda(&[("rows.cu", include_str!("kernels/rows.cu"))], "sm_90");
const TRANSPOSE: Code =
    Code::Cuda(&[("transpose.cu", include_str!("kernels/transpose.cu"))], "sm_90a");

const SUM_SOURCE: &str = "Making vector sum really fast (S. Veitner), effective_reduction, README";
const NORM_SOURCE: &str = "effective_rms_norm (S. Veitner), README";
const SCAN_SOURCE: &str = "Making prefix sum really fast (S. Veitner), effective_scan, README";
const TRANSPOSE_SOURCE: &str = "Making matrix transpose really fast on Hopper GPUs (S. Veitner), \
                                effective_transpose, README";

/// Integers of the sums and scans.
const N: u64 = 1 << 30;
/// Rows and columns of the norms.
const NORMS: (u32, u64) = (1 << 18, 4096);
/// Rows and columns of the transposed matrices.
const SIDE: u64 = 8192;
/// Threads of all blocks but those of transpositions.
const THREADS: u32 = 512;

/// A large array, of which a sample touches the first 16 MiB.
fn large(bytes: u64) -> Argument {
    Argument::Memory { bytes, touched: bytes.min(16 << 20) }
}

fn on_h100(
    kernel: &'static str,
    published: f64,
    (code, source): (Code, &'static str),
    amount: u64,
    runs: Vec<Run>,
) -> Row {
    let amount = amount as f64;
    Row { kernel, card: "h100", published, unit: Unit::Gigabytes, source, code, runs, amount }
}

fn sum(kernel: &'static str, published: f64, runs: Vec<Run>) -> Row {
    on_h100(kernel, published, (SUM, SUM_SOURCE), 4 * N, runs)
}

/// A pass over `n` integers by `blocks` blocks.
fn pass(entry: &'static str, n: u64, blocks: u64) -> Run {
    let out = large(4 * blocks);
    Run::whole(
        entry,
        line(blocks as u32, THREADS, vec![large(4 * n), out, Argument::long(n as i64)]),
    )
}

fn norm(kernel: &'static str, published: f64, entry: &'static str) -> Row {
    let (rows, columns) = NORMS;
    let matrix = || large(4 * u64::from(rows) * columns);
    let weights = Argument::memory(4 * columns);
    let arguments = vec![matrix(), weights, Argument::float(1e-5), matrix()];
    let run = Run::whole(entry, line(rows, THREADS, arguments));
    on_h100(kernel, published, (ROWS, NORM_SOURCE), 8 * u64::from(rows) * columns, vec![run])
}

fn scan(kernel: &'static str, published: f64, entry: &'static str) -> Row {
    let blocks = (N / u64::from(THREADS)) as u32;
    let run = Run::whole(entry, line(blocks, THREADS, vec![large(4 * N), large(4 * N)]));
    on_h100(kernel, published, (ROWS, SCAN_SOURCE), 8 * N, vec![run])
}

fn transpose(
    kernel: &'static str,
    published: f64,
    entry: &'static str,
    threads: u32,
    swizzle: Swizzle,
) -> Row {
    let map = || Argument::Map {
        element: ElementType::F32,
        extents: [SIDE, SIDE],
        tile: [32, 32],
        swizzle,
    };
    let tiles = (SIDE / 32) as u32;
    let launch = Launch { grid: [tiles, tiles, 1], ..line(1, threads, vec![map(), map()]) };
    let run = Run::whole(entry, launch);
    on_h100(kernel, published, (TRANSPOSE, TRANSPOSE_SOURCE), 8 * SIDE * SIDE, vec![run])
}

/// The rows.
pub fn rows() -> Vec<Row> {
    let blocks = N / u64::from(THREADS);
    let two_passes = vec![pass("sum_two_passes", N, blocks), pass("sum_two_passes", blocks, 1)];
    let batches = N.div_ceil(12 * u64::from(THREADS));
    vec![
        sum("sum in two passes (kernel 0)", 639.37, two_passes),
        sum(
            "sum, an element a thread (kernel 2)",
            882.823,
            vec![pass("sum_one_element", N, blocks)],
        ),
        sum("sum, 12 elements a thread (kernel 3)", 3226.86, vec![pass("sum_batches", N, batches)]),
        norm("RMS norm, tree in shared memory", 3015.30, "rms_tree"),
        norm("RMS norm, shuffles, 16 bytes", 3062.63, "rms_shuffles"),
        scan("scan of 512 in global memory", 823.94, "scan_global"),
        scan("scan of 512 in shared memory", 1288.72, "scan_shared"),
        transpose("transposition by TMA", 875.46, "transpose_plain", 1024, Swizzle::None),
        transpose(
            "transposition by TMA, swizzled",
            1251.76,
            "transpose_swizzled",
            1024,
            Swizzle::Bytes128,
        ),
        transpose(
            "transposition by TMA, swizzled, 8 a thread",
            2771.35,
            "transpose_batched",
            128,
            Swizzle::Bytes128,
        ),
    ]
}
