//! ptxas assembles every kernel for every architecture, without spills.

use crate::cases::forms;
use std::collections::BTreeMap;
use wengert_ci::gate::{Allowed, Source, assemble};
use wengert_cuda::architecture::Architecture;
use wengert_cuda::call::compile;
use wengert_cuda::ptx::{Kernel, Module};

#[test]
fn every_form_assembles() {
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
    let module =
        |kernels: &[Kernel]| Module { functions: vec![], kernels: kernels.to_vec() }.to_string();
    let sources: Vec<Source> =
        kernels.chunks(12).map(|part| Source::new("sorts", module(part))).collect();
    let report = assemble(&sources, &Allowed::parse("").unwrap()).unwrap();
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
    // Blocks have 512 threads with 64 registers each, so two blocks are resident on every
    // architecture.
    let registers = report.measures.iter().map(|m| m.registers).max();
    assert!(registers.is_some_and(|r| r <= 64), "{registers:?}");
}
