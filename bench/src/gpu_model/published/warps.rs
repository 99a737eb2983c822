//! Products of tensor cores by warps (`mma.sync`): gau-nernst's learn-cuda, the versions before
//! copies and products overlap. bf16, an A100 of 40 GB and an RTX 5090 that is limited to 400 W.
//! And the first kernels of a worklog on an RTX 4090 whose clock was locked to the boost of its
//! data sheet. Matrices are 4096 × 4096, and a step is a column of the left operand.
//!
//! The attention is that of its README: one sequence, 8 heads of 128, 4096 queries, 8192 keys.

use super::{Code, Row, Run, Unit, line};
use wengert::device::predicted::foreign::{Argument, Launch};

const PRODUCTS: &[(&str, &str)] = &[
    ("warp_products.cu", include_str!("kernels/warp_products.cu")),
    ("warps.cuh", include_str!("kernels/warps.cuh")),
];
const FIRST: &[(&str, &str)] = &[
    ("first_products.cu", include_str!("kernels/first_products.cu")),
    ("warps.cuh", include_str!("kernels/warps.cuh")),
];
const ATTENTION: &[(&str, &str)] = &[
    ("warp_attention.cu", include_str!("kernels/warp_attention.cu")),
    ("warps.cuh", include_str!("kernels/warps.cuh")),
];
const PRODUCTS_SOURCE: &str = "learn-cuda (gau-nernst), 02b_matmul_sm80, README, 4096";
const ATTENTION_SOURCE: &str = "learn-cuda (gau-nernst), 07_attention, README";
const FIRST_SOURCE: &str = "Implementing a fast Tensor Core matmul on the Ada Architecture \
                            (spatters.ca), table of kernels";
const N: u32 = 4096;
const HEADS: u32 = 8;
const QUERIES: u32 = 4096;
const KEYS: u32 = 8192;
const WIDTH: u32 = 128;

/// A product of 4096 × 4096 matrices; `pitch` is the distance of rows in shared memory.
fn product(
    kernel: &'static str,
    entry: &'static str,
    pitch: u32,
    (card, published): (&'static str, f64),
) -> Row {
    let target = if card == "rtx5090" { "sm_120" } else { "sm_80" };
    let launch = move |k: u32| {
        let matrix = |columns: u32| Argument::memory(2 * u64::from(N) * u64::from(columns));
        let [m, n, depth] = [N, N, k].map(|n| Argument::int(n as i32));
        let arguments = vec![matrix(k), matrix(k), matrix(N), m, n, depth];
        let dynamic_shared = 2 * 128 * pitch * 2;
        Launch { dynamic_shared, ..line((N / 128) * (N / 128), 128, arguments) }
    };
    Row {
        kernel,
        card,
        published,
        unit: Unit::Teraflops,
        source: PRODUCTS_SOURCE,
        code: Code::Cuda(PRODUCTS, target),
        runs: vec![Run::stepped(entry, [64, 128, N], launch)],
        amount: 2.0 * f64::from(N).powi(3),
    }
}

/// A product of 4096 × 4096 matrices by blocks of 16 × 16 threads, for tiles of `side` rows.
fn first(kernel: &'static str, published: f64, entry: &'static str, side: u32) -> Row {
    let launch = move |k: u32| {
        let matrix = |columns: u32| Argument::memory(2 * u64::from(N) * u64::from(columns));
        let [m, n, depth] = [N, N, k].map(|n| Argument::int(n as i32));
        let arguments = vec![matrix(k), matrix(k), matrix(2 * N), m, n, depth];
        let (grid, block) = ([N / side, N / side, 1], [16, 16, 1]);
        Launch { grid, block, ..line(1, 1, arguments) }
    };
    Row {
        kernel,
        card: "rtx4090",
        published,
        unit: Unit::Teraflops,
        source: FIRST_SOURCE,
        code: Code::Cuda(FIRST, "sm_89"),
        runs: vec![Run::stepped(entry, [64, 128, N], launch)],
        amount: 2.0 * f64::from(N).powi(3),
    }
}

fn attention(kernel: &'static str, entry: &'static str, published: f64) -> Row {
    let launch = move |keys: u32| {
        let heads = |rows: u32| Argument::memory(2 * u64::from(HEADS) * u64::from(rows * WIDTH));
        let lengths = [QUERIES, keys].map(|n| Argument::int(n as i32));
        let mut arguments = vec![heads(QUERIES), heads(keys), heads(keys), heads(QUERIES)];
        arguments.extend(lengths);
        let dynamic_shared = 128 * WIDTH * 2;
        Launch { dynamic_shared, ..line(HEADS * QUERIES / 128, 128, arguments) }
    };
    Row {
        kernel,
        card: "rtx5090",
        published,
        unit: Unit::Teraflops,
        source: ATTENTION_SOURCE,
        code: Code::Cuda(ATTENTION, "sm_120"),
        runs: vec![Run::stepped(entry, [64, 128, KEYS], launch)],
        amount: 4.0 * f64::from(HEADS) * f64::from(WIDTH) * f64::from(QUERIES) * f64::from(KEYS),
    }
}

/// The rows.
pub fn rows() -> Vec<Row> {
    let mut rows = vec![
        first("mma.sync 1.0, gathered", 29.4, "first_gathered", 32),
        first("mma.sync 1.1, 2 x 2 tiles", 57.3, "first_tiled", 64),
        first("mma.sync 2.0, permuted", 127.3, "first_permuted", 64),
    ];
    for (card, speeds) in
        [("a100-40gb", [59.92, 166.78, 190.94]), ("rtx5090", [140.66, 160.47, 177.42])]
    {
        let [plain, padded, swizzled] = speeds;
        rows.push(product("mma.sync, v1, plain", "product_plain", 64, (card, plain)));
        rows.push(product("mma.sync, v3, padded", "product_padded", 72, (card, padded)));
        rows.push(product("mma.sync, v4, swizzled", "product_swizzled", 64, (card, swizzled)));
    }
    rows.push(attention("attention d128, v1", "attention_plain", 142.87));
    rows.push(attention("attention d128, v2, swizzled", "attention_swizzled", 181.11));
    rows
}
