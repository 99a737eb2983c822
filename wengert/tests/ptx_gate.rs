//! The ptxas gate over every op and every plan of the filetests: NVIDIA's assembler accepts all
//! kernels and spills no register.
//!
//! Plans are assembled for every known architecture. The samples of an op are assembled for one
//! architecture each, in turn ([`share`]), and for all before a release. The tables are written to
//! `gate-ops` and `gate-plans` below cargo's target directory.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use std::path::Path;
use wengert::Binding;
use wengert::core::build::FunctionBuilder;
use wengert::core::graph::Program;
use wengert::core::plan::parse_plan;
use wengert::core::{DType, Tensor, TensorType, Verified};
use wengert::pipeline::{Options, compile};
use wengert_ci::gate::{Allowed, Collection, assemble};
use wengert_ci::tier::{is_deep, share};
use wengert_ci::toolkit::target_directory;
use wengert_cuda::architecture::Architecture;
use wengert_testing::samples;

const FLOATS: [DType; 6] =
    [DType::F16, DType::BF16, DType::F32, DType::F64, DType::F8E4M3FN, DType::F8E5M2];

/// Assembles all modules and writes the tables.
fn gate(collection: Collection, name: &str, least: usize) {
    let sources = collection.sources().unwrap();
    let report = assemble(&sources, &Allowed::of_the_repository().unwrap())
        .unwrap_or_else(|e| panic!("{e}"));
    report.write(&target_directory().join(format!("gate-{name}"))).unwrap();
    assert!(report.passed(), "{} failures\n{}", report.failures.len(), report.failures.join("\n"));
    for architecture in Architecture::ALL {
        let kernels = report.measures.iter().filter(|m| m.architecture == architecture).count();
        assert!(kernels >= least, "{kernels} kernels for {}", architecture.name());
    }
}

#[test]
fn every_op_and_sample_in_every_float_dtype() {
    let mut collection = Collection::default();
    let mut cases = 0;
    for entry in samples::catalogue() {
        for (number, sample) in entry.samples.iter().enumerate() {
            for dtype in FLOATS {
                let operands = sample.literals(dtype, number as u64 + 1);
                let Some(function) = sample.function(&operands) else { continue };
                let mut program = Program::new();
                program.add(function).unwrap();
                cases += 1;
                for architecture in share(&Architecture::ALL, cases) {
                    let name = format!("{} sample {number} in {dtype}", entry.name);
                    let target = wengert::target(&architecture.name()).unwrap();
                    let plan =
                        compile(&program, "f", &Binding::new(), &target, &Options::default())
                            .unwrap();
                    let text =
                        wengert::ptx(&plan).unwrap_or_else(|e| panic!("{name}: {e}\n{plan}"));
                    if text.contains(".entry") {
                        collection.add(&name, architecture, text);
                    }
                }
            }
        }
    }
    gate(collection, "ops", if is_deep() { 500 } else { 80 });
}

#[test]
fn every_plan_of_the_filetests() {
    let mut collection = Collection::default();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/plan");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        // Cases begin with `plan `. The text before the first case describes the file.
        for case in text.split("\nplan ").skip(1).map(|rest| format!("plan {rest}")) {
            // The GPU back end does not support the last two calls.
            if ["// error:", "call sort", "call top_k"].iter().any(|word| case.contains(word)) {
                continue;
            }
            let parsed = parse_plan("file", &case).unwrap().0;
            for architecture in Architecture::ALL {
                let mut plan = parsed.clone();
                plan.target.name = architecture.name();
                let plan = Verified::new(plan).unwrap();
                let name =
                    format!("{} @{}", path.file_stem().unwrap().to_string_lossy(), plan.function);
                let text = wengert::ptx(&plan).unwrap_or_else(|e| panic!("{name}: {e}\n{plan}"));
                if text.contains(".entry") {
                    collection.add(&name, architecture, text);
                }
            }
        }
    }
    gate(collection, "plans", 10);
}

/// The parameters of a kernel have at most 4,352 bytes, so fusion bounds the operands of a nest.
#[test]
fn ops_of_many_operands() {
    let inputs = |f: &mut FunctionBuilder, count: usize| -> Vec<Tensor> {
        let ty = TensorType::new(DType::F32, [1usize, 3]);
        (0..count).map(|n| f.input(&format!("x{n}"), ty.clone())).collect()
    };
    let mut program = Program::new();
    program
        .function("concatenated", |f| {
            let all = inputs(f, 4000);
            f.output("y", Tensor::concatenate(&all.iter().collect::<Vec<_>>(), 0));
        })
        .unwrap();
    program
        .function("computed", |f| {
            let all: Vec<Tensor> =
                inputs(f, 600).windows(3).map(|x| &x[0] * &x[1] + &x[2]).collect();
            f.output("y", Tensor::concatenate(&all.iter().collect::<Vec<_>>(), 0));
        })
        .unwrap();
    program
        .function("added", |f| {
            let all = inputs(f, 1500);
            f.output("y", all.iter().skip(1).fold(all[0].clone(), |sum, x| sum + x));
        })
        .unwrap();
    program
        .function("selected", |f| {
            let which = f.input("which", TensorType::new(DType::I32, [] as [usize; 0]));
            let all = inputs(f, 700);
            f.output("y", which.select_n(&all.iter().collect::<Vec<_>>()));
        })
        .unwrap();
    let mut collection = Collection::default();
    for function in ["concatenated", "computed", "added", "selected"] {
        for architecture in Architecture::ALL {
            let target = wengert::target(&architecture.name()).unwrap();
            let plan =
                compile(&program, function, &Binding::new(), &target, &Options::default()).unwrap();
            let most = plan.nests.iter().map(|(_, n)| n.buffers.len()).max().unwrap();
            assert!((90..=400).contains(&most), "@{function}: {most} parameters");
            collection.add(function, architecture, wengert::ptx(&plan).unwrap());
        }
    }
    gate(collection, "many-operands", 4);
}
