//! Products of f32 matrices of 4096 × 4096 on an RTX A6000: S. Boehm's steps 1 to 6.
//!
//! Two samples have 64 and 128 columns of the left operand; a step is one more.

use super::{Code, Row, Run, Unit, line};
use wengert::device::predicted::foreign::{Argument, Launch};

const FILES: &[(&str, &str)] = &[("sgemm.cu", include_str!("kernels/sgemm.cu"))];
const SOURCE: &str = "How to Optimize a CUDA Matmul Kernel for cuBLAS-like Performance (S. Boehm), \
                      SGEMM_CUDA, README";
const N: u32 = 4096;

fn product(
    kernel: &'static str,
    published: f64,
    entry: &'static str,
    grid: [u32; 2],
    block: [u32; 2],
) -> Row {
    let launch = move |k: u32| {
        let matrix =
            |rows: u32, columns: u32| Argument::memory(4 * u64::from(rows) * u64::from(columns));
        let [m, n, depth] = [N, N, k].map(|n| Argument::int(n as i32));
        let (alpha, beta) = (Argument::float(0.5), Argument::float(3.0));
        let arguments = vec![m, n, depth, alpha, matrix(N, k), matrix(k, N), beta, matrix(N, N)];
        let (grid, block) = ([grid[0], grid[1], 1], [block[0], block[1], 1]);
        Launch { grid, block, ..line(1, 1, arguments) }
    };
    Row {
        kernel,
        card: "a6000",
        published,
        unit: Unit::Teraflops,
        source: SOURCE,
        code: Code::Cuda(FILES, "sm_86"),
        runs: vec![Run::stepped(entry, [64, 128, N], launch)],
        amount: 2.0 * f64::from(N).powi(3),
    }
}

/// The rows.
pub fn rows() -> Vec<Row> {
    let [small, middle, large] = [32, 64, 128].map(|side| [N / side, N / side]);
    vec![
        product("SGEMM 1, naive", 0.3090, "sgemm_naive", small, [32, 32]),
        product("SGEMM 2, coalesced", 1.9865, "sgemm_coalesced", small, [1024, 1]),
        product("SGEMM 3, shared memory", 2.9803, "sgemm_shared", small, [1024, 1]),
        product("SGEMM 4, 8 a thread", 8.4747, "sgemm_columns", middle, [512, 1]),
        product("SGEMM 5, 8 x 8 a thread", 15.9717, "sgemm_squares", large, [256, 1]),
        product("SGEMM 6, 16 bytes", 18.2373, "sgemm_vectors", large, [256, 1]),
    ]
}
