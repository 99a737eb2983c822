//! ptxas accepts every kernel for every architecture, without spills.

use super::*;
use std::collections::BTreeMap;
use wengert_ci::gate::{Allowed, Source, assemble};
use wengert_core::call::{
    Addends, Convolution, Direction, Gemm, Matrix, Scatter, ScatterKind, Window,
};

fn gemm([m, n, k]: [usize; 3], dtype: DType, transposed: [bool; 2]) -> Call {
    let matrix = |rows: usize, columns: usize, transposed: bool| match transposed {
        false => Matrix { batch: 0, row: columns, column: 1 },
        true => Matrix { batch: 0, row: 1, column: rows },
    };
    Call::Gemm(Gemm {
        batch: 1,
        m,
        n,
        k,
        lhs: matrix(m, k, transposed[0]),
        rhs: matrix(k, n, transposed[1]),
        operand: dtype,
        accumulate: if dtype.is_half() { DType::F32 } else { dtype },
        result: dtype,
        addends: Addends { bias: true, residual: true },
    })
}

fn convolution(direction: Direction, groups: usize, channels: [usize; 2], dtype: DType) -> Call {
    let window = Window {
        input: 28,
        filter: 3,
        output: 14,
        stride: 2,
        low: 1,
        lhs_dilation: 1,
        rhs_dilation: 1,
    };
    let [input_channels, output_channels] = channels;
    let window = vec![window, window];
    Call::Convolution(Convolution {
        direction,
        batch: 16,
        groups,
        input_channels,
        output_channels,
        window,
        dtype,
    })
}

fn scatter(table: [usize; 2], count: usize, dtype: DType) -> Call {
    Call::Scatter(Scatter {
        kind: ScatterKind::Add,
        operand: table.to_vec(),
        indices: vec![count, 1],
        updates: vec![count, table[1]],
        update_window_dims: vec![1],
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        dtype,
        index: DType::I64,
    })
}

/// Every kernel, with operands of every layout and all addends.
fn calls() -> Vec<Call> {
    let mut calls = vec![
        // Large and small tiles, edges, split sums.
        gemm([2048, 2048, 512], DType::F32, [false, false]),
        gemm([2048, 2048, 512], DType::F32, [true, true]),
        gemm([1023, 1025, 77], DType::F32, [false, true]),
        gemm([33, 30, 1000], DType::F32, [true, false]),
        gemm([2048, 2048, 512], DType::BF16, [false, false]),
        gemm([2048, 2048, 512], DType::F16, [true, true]),
        gemm([2047, 2049, 511], DType::F16, [false, true]),
        gemm([512, 500, 1000], DType::BF16, [true, false]),
        gemm([512, 512, 512], DType::F64, [false, true]),
        gemm([511, 513, 5], DType::F64, [true, false]),
        gemm([700, 700, 16], DType::I8, [false, false]),
        gemm([1700, 1700, 16], DType::I64, [false, false]),
        // One row or one column.
        gemm([1, 4096, 4096], DType::F32, [false, false]),
        gemm([1, 4096, 4096], DType::BF16, [false, true]),
        gemm([7, 1, 50000], DType::F64, [false, false]),
        scatter([50000, 768], 8192, DType::F32),
        scatter([50, 3], 100, DType::BF16),
    ];
    for direction in Direction::ALL {
        calls.push(convolution(direction, 1, [64, 64], DType::BF16));
        calls.push(convolution(direction, 1, [3, 24], DType::F32));
        calls.push(convolution(direction, 24, [1, 1], DType::F32));
    }
    calls
}

/// The kernels of a call and its follower, each text once.
fn sources(call: &Call, follower: Option<&Follower>) -> Vec<Source> {
    let (mut sources, mut texts) = (vec![], vec![]);
    let options = Options { follower, ..Options::default() };
    for name in ["sm_80", "sm_86"] {
        for stage in compile_with(call, architecture(name), options).unwrap().stages {
            let functions = stage.functions.clone();
            let text = Module { functions, kernels: vec![stage.kernel.clone()] }.to_string();
            if texts.contains(&text) {
                continue;
            }
            let mut source =
                Source::new(format!("{} for {name}", stage.kernel.remark), text.clone());
            // Tiles for large multiprocessors do not fit small ones.
            if name == "sm_86" {
                source.dynamic_shared =
                    BTreeMap::from([(stage.kernel.name.clone(), stage.dynamic_shared)]);
            }
            sources.push(source);
            texts.push(text);
        }
    }
    sources
}

#[test]
fn kernels_assemble_and_spill_nothing() {
    let sources: Vec<Source> = calls().iter().flat_map(|call| sources(call, None)).collect();
    let report = assemble(&sources, &Allowed::nothing()).unwrap();
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
    assert!(report.measures.len() > 200, "{}", report.measures.len());
}

/// The result of a product beside that of its follower may take a few registers too many.
#[test]
fn kernels_with_followers_assemble() {
    let followed = follower::gelus();
    let sources: Vec<Source> =
        followed.iter().flat_map(|(call, follower)| sources(call, Some(follower))).collect();
    let report = assemble(&sources, &Allowed::of_the_repository().unwrap()).unwrap();
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
}
