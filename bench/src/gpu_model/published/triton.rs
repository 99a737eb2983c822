//! Triton's tutorials on an A100, by the tables of its documentation.
//!
//! The documentation does not name the GPU. It is taken to be an A100 SXM4 of 80 GB: its softmax
//! of PyTorch reaches 1512 GB/s, which 40 GB do not have. Tiles are chosen there by measurement;
//! here they are one of the choices that it measures.

use super::{Code, Row, Run, Unit, line};
use wengert::device::predicted::foreign::{Argument, Launch};

const SOFTMAX: Code = Code::Ptx(include_str!("kernels/triton/softmax.ptx"), "sm_80");
const MATMUL: Code = Code::Ptx(include_str!("kernels/triton/matmul.ptx"), "sm_80");
const ATTENTION: Code = Code::Ptx(include_str!("kernels/triton/attention.ptx"), "sm_80");

const N: u32 = 4096;
/// Sequences of the attention, and heads of each.
pub(in crate::gpu_model) const BATCH: [u32; 2] = [4, 32];
/// Heads of all sequences of the attention.
pub const HEADS: u32 = BATCH[0] * BATCH[1];
const WIDTH: u32 = 64;

/// Triton passes two pointers to scratch memory, which these kernels do not use.
fn with_scratch(mut arguments: Vec<Argument>) -> Vec<Argument> {
    arguments.extend([Argument::long(0), Argument::long(0)]);
    arguments
}

fn ints(values: &[u32]) -> impl Iterator<Item = Argument> {
    values.iter().map(|v| Argument::int(*v as i32))
}

fn on_a100(
    kernel: &'static str,
    (published, unit): (f64, Unit),
    (code, source): (Code, &'static str),
    amount: f64,
    run: Run,
) -> Row {
    Row { kernel, card: "a100", published, unit, source, code, runs: vec![run], amount }
}

/// Rows of 4096 floats; three programs on a multiprocessor take turns.
fn softmax() -> Row {
    let matrix = || Argument::memory(4 * u64::from(N) * u64::from(N));
    let mut arguments = vec![matrix(), matrix()];
    arguments.extend(ints(&[N, N, N]));
    let launch = Launch { dynamic_shared: 49_184, ..line(3 * 108, 256, with_scratch(arguments)) };
    on_a100(
        "Triton softmax, 4096 x 4096",
        (1401.73, Unit::Gigabytes),
        (SOFTMAX, "Triton documentation, Fused Softmax, softmax-performance"),
        8.0 * f64::from(N).powi(2),
        Run::whole("softmax", launch),
    )
}

fn matmul() -> Row {
    let launch = |k: u32| {
        let matrix = |columns: u32| Argument::memory(2 * u64::from(N) * u64::from(columns));
        let mut arguments = vec![matrix(k), matrix(k), matrix(N)];
        arguments.extend(ints(&[N, N, k]));
        let blocks = (N / 128) * (N / 256);
        Launch { dynamic_shared: 98_304, ..line(blocks, 256, with_scratch(arguments)) }
    };
    on_a100(
        "Triton matmul, f16, 4096",
        (220.03, Unit::Teraflops),
        (MATMUL, "Triton documentation, Matrix Multiplication, matmul-performance-fp16"),
        2.0 * f64::from(N).powi(3),
        Run::stepped("matmul", [192, 320, N], launch),
    )
}

/// The launch of `attention` for this many positions and keys: heads of `width`, programs of
/// `rows` positions and `warps` warps, with `shared` bytes of shared memory.
pub(in crate::gpu_model) fn attention_launch(
    [positions, keys, width]: [u32; 3],
    rows: u32,
    warps: u32,
    shared: u32,
) -> Launch {
    let heads = |n: u32| Argument::memory(2 * u64::from(HEADS) * u64::from(n) * u64::from(width));
    let mut arguments = vec![heads(positions), heads(keys), heads(keys), heads(positions)];
    arguments.extend(ints(&[positions, keys]));
    arguments.push(Argument::float((width as f32).sqrt().recip() * std::f32::consts::LOG2_E));
    let grid = [positions / rows, HEADS, 1];
    Launch { grid, dynamic_shared: shared, ..line(1, 32 * warps, with_scratch(arguments)) }
}

/// Operations of the two products for this many positions and keys.
pub fn attention_operations(positions: u32, width: u32) -> f64 {
    4.0 * f64::from(HEADS) * f64::from(width) * f64::from(positions).powi(2)
}

fn attention(kernel: &'static str, published: f64, positions: u32) -> Row {
    let launch = move |keys: u32| attention_launch([positions, keys, WIDTH], 128, 4, 49_152);
    on_a100(
        kernel,
        (published, Unit::Teraflops),
        (
            ATTENTION,
            "Triton documentation, Fused Attention, fused-attention-batch4-head32-d64-fwd, not \
             causal",
        ),
        attention_operations(positions, WIDTH),
        Run::stepped("attention", [192, 320, positions], launch),
    )
}

/// The rows.
pub fn rows() -> Vec<Row> {
    vec![
        softmax(),
        matmul(),
        attention("Triton attention d64, 1024 positions", 141.41, 1024),
        attention("Triton attention d64, 4096 positions", 160.63, 4096),
    ]
}
