//! ptxas assembles every kernel for one architecture in turn, and for all of them before a release.
//! No kernel spills.

use crate::cases::{FLOATS, Kind, attention, biased};
use std::collections::BTreeMap;
use wengert_ci::gate::{Allowed, Measure, Source, assemble};
use wengert_ci::tier::share;
use wengert_core::DType;
use wengert_core::call::{Attention, Call};
use wengert_cuda::architecture::Architecture;
use wengert_cuda::call::compile;
use wengert_cuda::ptx::Module;

/// Every engine and tile size, with masks, with biases, and with partial tiles.
fn forms() -> Vec<Attention> {
    let mut calls = vec![];
    for dtype in FLOATS {
        let widths: &[usize] =
            if dtype == DType::F64 { &[32, 64, 128] } else { &[64, 80, 128, 256] };
        for width in widths {
            for backward in [false, true] {
                let kind = |packed, causal| Kind { packed, causal, backward };
                calls.push(attention([8, 1024, 1024, 12, *width], kind(true, true), dtype));
                calls.push(attention([8, 1000, 300, 12, *width], kind(false, false), dtype));
            }
        }
        for backward in [false, true] {
            let kind = Kind { packed: false, causal: true, backward };
            calls.push(biased(attention([2, 100, 200, 3, 64], kind, dtype), [true, false, false]));
            calls.push(biased(attention([2, 100, 200, 3, 13], kind, dtype), [false, true, true]));
        }
    }
    calls
}

#[test]
fn every_form_assembles() {
    let mut sources = vec![];
    for call in forms() {
        for stage in
            compile(&Call::Attention(call.clone()), Architecture::ALL[0], None).unwrap().stages
        {
            let module =
                Module { functions: stage.functions.clone(), kernels: vec![stage.kernel.clone()] };
            let mut source = Source::new(stage.kernel.remark.clone(), module.to_string());
            source.dynamic_shared =
                BTreeMap::from([(stage.kernel.name.clone(), stage.dynamic_shared)]);
            source.architectures = share(&Architecture::ALL, sources.len());
            sources.push(source);
        }
    }
    let report = assemble(&sources, &Allowed::nothing()).unwrap();
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
    // Two blocks must fit on a multiprocessor, except for f64. Registers limit the number of
    // resident blocks.
    let most = |m: &&Measure| if m.threads == Some(128) { 255 } else { 128 };
    let f64s = |m: &&Measure| m.kernel.contains("f64");
    let beyond: Vec<_> =
        report.measures.iter().filter(|m| !f64s(m) && m.registers > most(m)).collect();
    assert!(beyond.is_empty(), "{beyond:?}");
}
