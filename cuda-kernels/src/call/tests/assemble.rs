//! ptxas accepts every kernel for every architecture, without spills.

use super::*;
use crate::ptx::Kernel;
use std::collections::BTreeMap;
use wengert_ci::gate::{Allowed, Architecture as Gated, Measure, Report, Source, assemble};
use wengert_ci::tier::share;
use wengert_core::call::{Scale, Scales, Scatter};
use wengert_testing::calls;
use wengert_testing::calls::attention::{biased, given_out, grouped, prefixed};
use wengert_testing::calls::convolution::{directions, same};
use wengert_testing::calls::gemm::{lay_out, product};
use wengert_testing::calls::scatter::rows;
use wengert_testing::calls::sort::forms;

fn gemm(extents: [usize; 3], dtype: DType, transposed: [bool; 2]) -> Call {
    let [m, n, k] = extents;
    let [lhs, rhs] = [(transposed[0], m, k), (transposed[1], k, n)]
        .map(|(transposed, rows, columns)| lay_out(usize::from(transposed), rows, columns));
    let addends = Addends { bias: true, residual: true };
    Call::Gemm(Gemm { lhs, rhs, addends, ..product(1, extents, dtype, dtype) })
}

fn float8(extents: [usize; 3], factors: [DType; 2]) -> Call {
    let scales = Some(Scales { lhs: Scale::Rows, rhs: Scale::Rows });
    let addends = Addends { bias: true, residual: true };
    Call::Gemm(Gemm { scales, addends, ..calls::gemm::float8(extents, factors, DType::F32) })
}

fn scatter(table: [usize; 2], count: usize, dtype: DType) -> Call {
    Call::Scatter(Scatter { index: DType::I64, ..rows(table, count, dtype) })
}

/// The assembled kernels, of which none failed or spilled.
fn assembled(sources: &[Source]) -> Report {
    let report = assemble(sources, &Allowed::nothing()).unwrap();
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
    report
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
        // 8-bit floats, of one row and of many, aligned and not.
        float8([2048, 2048, 512], [DType::F8E4M3FN; 2]),
        float8([2047, 2049, 511], [DType::F8E5M2, DType::F8E4M3FN]),
        float8([1, 4096, 4096], [DType::F8E4M3FN, DType::F8E5M2]),
        // One row or one column.
        gemm([1, 4096, 4096], DType::F32, [false, false]),
        gemm([1, 4096, 4096], DType::BF16, [false, true]),
        gemm([7, 1, 50000], DType::F64, [false, false]),
        scatter([50000, 768], 8192, DType::F32),
        scatter([50, 3], 100, DType::BF16),
    ];
    for (groups, channels, dtype) in
        [(1, [64, 64], DType::BF16), (1, [3, 24], DType::F32), (24, [1, 1], DType::F32)]
    {
        let window = vec![same(28, 3, 2), same(28, 3, 2)];
        calls.extend(directions(16, groups, channels, window, dtype));
    }
    calls
}

#[test]
fn kernels_assemble_and_spill_nothing() {
    let kernels = assembled_kernels(calls());
    assert!(kernels > 200, "{kernels}");
}

/// Assembles the kernels of calls, which must spill nothing. Returns the number of measurements.
pub(in crate::call) fn assembled_kernels(calls: impl IntoIterator<Item = Call>) -> usize {
    let sources: Vec<Source> = calls.into_iter().flat_map(|call| sources(&call, None)).collect();
    assembled(&sources).measures.len()
}

/// The kernels of a call and its follower, each text once.
fn sources(call: &Call, follower: Option<&Follower>) -> Vec<Source> {
    let (mut sources, mut texts) = (vec![], vec![]);
    let options = Options { follower, ..Options::default() };
    let of_float8 = matches!(call, Call::Gemm(gemm) if gemm.operand.is_float8());
    // On sm_90, large products are by warpgroups; on sm_100, those of 8-bit floats are not.
    let names: &[&str] = match of_float8 {
        true => &["sm_90", "sm_89", "sm_100"],
        false => &["sm_80", "sm_86", "sm_90"],
    };
    for name in names {
        for stage in compile_with(call, architecture(name), options).unwrap().stages {
            let text = text(&stage);
            if texts.contains(&text) {
                continue;
            }
            let mut source =
                Source::new(format!("{} for {name}", stage.kernel.remark), text.clone());
            // Tiles for large multiprocessors do not fit small ones.
            if matches!(*name, "sm_86" | "sm_89") {
                source.dynamic_shared =
                    BTreeMap::from([(stage.kernel.name.clone(), stage.dynamic_shared)]);
            }
            if of_float8 {
                // The kernels of the two kinds of tensor cores differ.
                let kind = architecture(name).adds_float8_in_f32();
                let same = |a: &Gated| a.adds_float8_in_f32() == kind;
                source.architectures = Gated::ALL.into_iter().filter(same).collect();
            }
            sources.push(source);
            texts.push(text);
        }
    }
    sources
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

/// Every engine and tile size of attention, with masks, with biases, and with partial tiles; then
/// decoding with one to 16 rows of a head of keys.
fn attentions() -> Vec<Call> {
    let mut calls = vec![];
    for dtype in FLOATS {
        let widths: &[usize] =
            if dtype == DType::F64 { &[32, 64, 128] } else { &[64, 80, 128, 256] };
        for width in widths {
            for backward in [false, true] {
                let kind = |packed, causal| Kind { packed, causal, backward };
                calls.push(attention([8, 1024, 1024, 12, *width], kind(true, true), dtype));
                calls.push(attention([8, 1000, 300, 12, *width], kind(false, false), dtype));
                if backward {
                    let call = attention([8, 1000, 300, 12, *width], kind(false, true), dtype);
                    calls.push(given_out(call));
                }
            }
        }
        for backward in [false, true] {
            let kind = Kind { packed: false, causal: true, backward };
            calls.push(biased(attention([2, 100, 200, 3, 64], kind, dtype), [true, false, false]));
            calls.push(biased(attention([2, 100, 200, 3, 13], kind, dtype), [false, true, true]));
            for causal in [false, true] {
                let kind = Kind { causal, ..kind };
                let call = prefixed(attention([2, 100, 200, 3, 64], kind, dtype));
                calls.push(call.clone());
                calls.push(biased(call, [true, false, true]));
            }
        }
    }
    for dtype in FLOATS {
        let widths: &[usize] =
            if dtype == DType::F64 { &[16, 64, 128] } else { &[32, 64, 128, 256] };
        let kind = |causal| Kind { packed: false, causal, backward: false };
        for (width, rows) in widths.iter().flat_map(|width| [1, 4, 16].map(|rows| (width, rows))) {
            let call = attention([2, 1, 2000, 4, *width], kind(false), dtype);
            calls.push(prefixed(grouped(call, rows)));
        }
        let few = grouped(attention([2, 4, 200, 3, 13], kind(true), dtype), 4);
        calls.push(biased(prefixed(few.clone()), [false; 3]));
        calls.push(few);
    }
    calls.into_iter().map(Call::Attention).collect()
}

/// ptxas assembles the kernels of attention for one architecture in turn, and for all of them
/// before a release.
#[test]
fn attentions_assemble_and_spill_nothing() {
    let mut sources = vec![];
    for call in attentions() {
        for stage in compile(&call, Architecture::ALL[0], None).unwrap().stages {
            let mut source = Source::new(stage.kernel.remark.clone(), text(&stage));
            source.dynamic_shared =
                BTreeMap::from([(stage.kernel.name.clone(), stage.dynamic_shared)]);
            source.architectures = share(&Gated::ALL, sources.len());
            sources.push(source);
        }
    }
    let report = assembled(&sources);
    // Two blocks must fit on a multiprocessor, except for f64. Registers limit the number of
    // resident blocks.
    let most = |m: &&Measure| if m.threads == Some(128) { 255 } else { 128 };
    let f64s = |m: &&Measure| m.kernel.contains("f64");
    let beyond: Vec<_> =
        report.measures.iter().filter(|m| !f64s(m) && m.registers > most(m)).collect();
    assert!(beyond.is_empty(), "{beyond:?}");
}

#[test]
fn sorts_assemble_and_spill_nothing() {
    // Kernels with the same name and block size differ only in constants.
    let mut kernels = BTreeMap::new();
    for call in forms() {
        for stage in compile(&call, Architecture::ALL[0], None).unwrap().stages {
            assert!(stage.functions.is_empty());
            kernels.insert((stage.kernel.name.clone(), stage.kernel.threads), stage.kernel);
        }
    }
    assert!(kernels.len() > 40, "{}", kernels.len());
    let mut kernels: Vec<Kernel> = kernels.into_values().collect();
    for (n, kernel) in kernels.iter_mut().enumerate() {
        kernel.name = format!("{}_{n}", kernel.name);
    }
    // Each module contains several kernels, so that the modules use several cores.
    let module = |kernels: &[Kernel]| Module::new(vec![], kernels.to_vec()).to_string();
    let sources: Vec<Source> =
        kernels.chunks(12).map(|part| Source::new("sorts", module(part))).collect();
    // Blocks have 512 threads with 64 registers each, so two blocks are resident on every
    // architecture.
    let registers = assembled(&sources).measures.iter().map(|m| m.registers).max();
    assert!(registers.is_some_and(|r| r <= 64), "{registers:?}");
}
