//! Products of tensor cores by warp groups (`wgmma`) on an H100 SXM: the kernels 2 and 3 of
//! P. Shankhdhar's worklog, bf16 matrices of 4096 × 4096. A step is a column of the left operand.

use super::{Code, Row, Run, Unit, line};
use wengert::device::predicted::foreign::{Argument, ElementType, Launch, Swizzle};

const FILES: &[(&str, &str)] = &[("group_products.cu", include_str!("kernels/group_products.cu"))];
const SOURCE: &str = "Outperforming cuBLAS on H100: a Worklog (P. Shankhdhar)";
const N: u32 = 4096;

fn product(kernel: &'static str, published: f64, entry: &'static str, side: u32) -> Row {
    let launch = move |k: u32| {
        let map = || Argument::Map {
            element: ElementType::BF16,
            extents: [k.into(), N.into()],
            tile: [64, side],
            swizzle: Swizzle::Bytes128,
        };
        let mut arguments = vec![map(), map(), Argument::memory(2 * u64::from(N) * u64::from(N))];
        arguments.extend([N, N, k].map(|n| Argument::int(n as i32)));
        let blocks = (N / side) * (N / side);
        Launch { dynamic_shared: 2 * side * 64 * 2, ..line(blocks, 128, arguments) }
    };
    Row {
        kernel,
        card: "h100",
        published,
        unit: Unit::Teraflops,
        source: SOURCE,
        code: Code::Cuda(FILES, "sm_90a"),
        runs: vec![Run::stepped(entry, [128, 256, N], launch)],
        amount: 2.0 * f64::from(N).powi(3),
    }
}

/// The rows.
pub fn rows() -> Vec<Row> {
    vec![
        product("wgmma, tile 64 x 64 (kernel 2)", 317.0, "product_64", 64),
        product("wgmma, tile 128 x 128 (kernel 3)", 423.0, "product_128", 128),
    ]
}
