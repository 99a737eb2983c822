//! ptxas takes every kernel for every architecture, and spills nothing.

use crate::cases::forms;
use std::collections::BTreeMap;
use wengert_ci::gate::{Allowed, Source, assemble};
use wengert_cuda::architecture::Architecture;
use wengert_cuda::call::compile;
use wengert_cuda::ptx::Module;

#[test]
fn every_form_assembles() {
    // Many calls have kernels in common.
    let mut texts = BTreeMap::new();
    for call in forms() {
        for stage in compile(&call, Architecture::ALL[0], None).unwrap().stages {
            let module = Module { functions: stage.functions, kernels: vec![stage.kernel] };
            texts.entry(module.to_string()).or_insert(format!("{call:?}"));
        }
    }
    assert!(texts.len() > 80, "{}", texts.len());
    let sources: Vec<Source> = texts.into_iter().map(|(text, name)| Source::new(name, text)).collect();
    let report = assemble(&sources, &Allowed::parse("").unwrap()).unwrap();
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
    // Blocks of 512 threads with 64 registers: two are resident everywhere.
    let registers = report.measures.iter().map(|m| m.registers).max();
    assert!(registers.is_some_and(|r| r <= 64), "{registers:?}");
}
