//! ptxas assembles every kernel for one architecture in turn, and for all of them before a release.
//! No kernel spills.

use std::collections::BTreeMap;

use crate::{lowered, sources};
use wengert_ci::gate::{Allowed, Source, assemble};
use wengert_ci::tier::share;
use wengert_compiler::pipeline;
use wengert_core::nest::Nest;
use wengert_core::{Binding, DType, math};
use wengert_cuda::architecture::Architecture;
use wengert_cuda::lowered::{LoweredPlan, NoLibrary};
use wengert_cuda::nest::{Options, compile};
use wengert_cuda::ptx::Module;
use wengert_cuda::target::target;

/// One module with the kernels of many nests.
pub fn module(nests: &[(Nest, Options)]) -> Module {
    let mut functions = BTreeMap::new();
    let mut kernels = Vec::new();
    for (nest, options) in nests {
        let compiled = compile(nest, Architecture::ALL[0], &[], options).unwrap();
        for stage in compiled.stages {
            let mut kernel = stage.kernel;
            kernel.name = format!("{}_{}", kernel.name, kernels.len());
            kernels.push(kernel);
            functions.extend(stage.functions.into_iter().map(|f| (f.name.clone(), f)));
        }
    }
    Module::new(functions.into_values().collect(), kernels)
}

fn gate(name: &str, nests: &[(Nest, Options)], forced: bool) {
    let sources: Vec<Source> = nests
        .chunks(25)
        .enumerate()
        .map(|(n, part)| Source {
            architectures: share(&Architecture::ALL, n),
            ..Source::new(format!("{name} {n}"), module(part).to_string())
        })
        .collect();
    let report = assemble(&sources, &Allowed::of_the_repository().unwrap()).unwrap();
    // A forced schedule may be unsuitable for its nest, so it may spill.
    let failures: Vec<_> =
        report.failures.iter().filter(|f| !(forced && f.contains("spills"))).cloned().collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(!report.measures.is_empty());
}

#[test]
fn the_table_of_scalar_instructions_assembles() {
    let table = sources::scalar_table().into_iter();
    let nests: Vec<_> = table
        .filter(|(op, d, _)| {
            !op.is_elementary() || math::program(*op, *d.last().unwrap()).is_some()
        })
        .map(|(op, operands, result)| {
            (sources::scalar_nest(op, &operands, result, 1000), Options::default())
        })
        .collect();
    assert!(nests.len() > 250, "{}", nests.len());
    gate("scalar", &nests, false);
}

#[test]
fn nests_of_filetests_assemble() {
    let nests: Vec<_> = sources::filetests().into_iter().map(|n| (n, Options::default())).collect();
    gate("filetests", &nests, false);
}

#[test]
fn random_nests_assemble() {
    let nests: Vec<_> = sources::random_nests(0..8)
        .into_iter()
        .filter(|(_, n)| sources::is_supported(n))
        .flat_map(|(_, n)| {
            let schedules = sources::schedules(&n);
            schedules
                .into_iter()
                .map(move |s| (n.clone(), Options { schedule: s, ..Options::default() }))
        })
        .collect();
    gate("random", &nests, true);
}

#[test]
fn nests_of_ops_assemble() {
    let found = lowered::ops_and_samples().into_iter().filter(sources::is_supported);
    let nests: Vec<_> = found.map(|n| (n, Options::default())).collect();
    assert!(nests.len() > 300, "{}", nests.len());
    gate("ops", &nests, false);
}

#[test]
fn nests_of_training_assemble() {
    let mut nests = Vec::new();
    for (rows, columns, dtype) in [
        (8192, 768, DType::F32),
        (8192, 768, DType::BF16),
        (4096, 50257, DType::BF16),
        (1024, 100, DType::F32),
    ] {
        nests.extend(lowered::training(rows, columns, dtype));
    }
    let nests: Vec<_> = nests.into_iter().map(|n| (n, Options::default())).collect();
    gate("training", &nests, false);
}

/// Updates that share launches: those of a layer of GPT-2, and of as many variables as one launch
/// takes. Every architecture assembles them, since they read an array of addresses at computed
/// distances. They spill nothing.
#[test]
fn shared_launches_assemble() {
    const WIDTH: usize = 768;
    let square = WIDTH * WIDTH;
    let layer = [WIDTH, 3 * square, 3 * WIDTH, square, WIDTH, 4 * square, 4 * WIDTH, 4 * square];
    let many: Vec<usize> = (1..=72).map(|n| 1000 * n).collect();
    let mut sources = Vec::new();
    // Kernels of few elements have blocks of fewer threads, so there are several templates.
    for (name, elements, bundles) in [("layer", &layer[..], 2), ("many", &many, 3)] {
        let program = lowered::updates(elements);
        for architecture in Architecture::ALL {
            let target = target(&architecture.name());
            let options = pipeline::Options::default();
            let plan = pipeline::compile(&program, "step", &Binding::new(), &target, &options);
            let lowered = LoweredPlan::new(&plan.unwrap(), architecture, &mut NoLibrary).unwrap();
            let kernels: Vec<&str> = lowered.kernels.iter().map(|k| k.name.as_str()).collect();
            assert_eq!(kernels.len(), bundles, "{name} on {}", architecture.name());
            assert!(kernels.iter().all(|kernel| kernel.starts_with("bundle_")), "{kernels:?}");
            sources.push(Source {
                architectures: vec![architecture],
                ..Source::new(format!("{name} on {}", architecture.name()), lowered.ptx)
            });
        }
    }
    let report = assemble(&sources, &Allowed::of_the_repository().unwrap()).unwrap();
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
    assert_eq!(report.measures.len(), (2 + 3) * Architecture::ALL.len());
}
