//! The ptxas gate over programs: functions of the sizes of real models with their gradients, and
//! digits, for every architecture. `wengert/tests/ptx_gate.rs` has the gate over every op and
//! sample, and over the plans of the filetests. Results are written to `target/gate-programs/`.

#![allow(clippy::unwrap_used)] // It is a test.

use std::collections::BTreeMap;
use std::path::Path;
use wengert::autodiff::function::{Grad, grad};
use wengert::core::graph::{Program, parse_program};
use wengert::pipeline::{Options, compile};
use wengert::{Binding, GraphFile, ptx};
use wengert_ci::gate::{Allowed, Source, assemble};
use wengert_ci::toolkit::target_directory;
use wengert_cuda::architecture::Architecture;
use wengert_cuda::target::target;

/// Names of modules by their text. A text that several architectures share is assembled once for
/// each of them.
#[derive(Default)]
struct Modules(BTreeMap<String, String>);

impl Modules {
    fn add(&mut self, name: &str, program: &Program, function: &str, binding: &Binding) {
        for architecture in Architecture::ALL {
            let target = target(&architecture.name());
            let plan = compile(program, function, binding, &target, &Options::default()).unwrap();
            let text =
                ptx(&plan).unwrap_or_else(|e| panic!("{name} for {}: {e}\n{plan}", target.name));
            self.0.entry(text).or_insert_with(|| format!("{name} {}", target.name));
        }
    }
}

/// Functions of the sizes of real models, and their gradients.
fn large(modules: &mut Modules) {
    let program = parse_program(include_str!("shapes/large.ir"), "large.ir").unwrap();
    for function in program.functions() {
        modules.add(&function.name, &program, &function.name, &Binding::new());
        let float = |i: &usize| function.input_type(*i).dtype.is_float();
        let wrt: Vec<&str> = (0..function.inputs.len())
            .filter(float)
            .map(|i| function.inputs[i].name.as_str())
            .collect();
        if !function.output_type(0).dtype.is_float() || wrt.is_empty() {
            continue;
        }
        let asked = Grad { of: None, wrt: &wrt, value: false, seed: true };
        // An op without a derivative gives an error, which other tests check.
        let Ok(derived) = grad(&program, &function.name, &asked) else { continue };
        let mut gradients = program.clone();
        let name = derived.function.name.clone();
        gradients.add(derived.function).unwrap();
        modules.add(&name, &gradients, &name, &Binding::new());
    }
}

#[test]
fn every_kernel_of_programs_assembles_for_every_architecture() {
    let mut modules = Modules::default();
    large(&mut modules);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wengert/tests/golden/v1.graph");
    let file = GraphFile::read(golden).unwrap();
    for function in file.program.functions() {
        let binding =
            function.variables().iter().fold(Binding::new(), |all, name| all.with(name, 64));
        modules.add(&function.name, &file.program, &function.name, &binding);
    }
    let sources: Vec<Source> =
        modules.0.into_iter().map(|(text, name)| Source::parse(name, text).unwrap()).collect();
    assert!(sources.len() > 50, "{} modules", sources.len());
    let report = assemble(&sources, &Allowed::of_the_repository().unwrap()).unwrap();
    report.write(&target_directory().join("gate-programs")).unwrap();
    assert!(report.passed(), "{} failures:\n{}", report.failures.len(), report.failures.join("\n"));
    // A module for `sm_90` is for the three architectures from there on, one for `sm_90a` for one.
    let admits = |source: &Source| match () {
        () if source.text.contains(".target sm_90a") => 1,
        () if source.text.contains(".target sm_90") => 3,
        () => 6,
    };
    assert!(
        report.measures.len() >= sources.iter().map(admits).sum(),
        "every kernel is assembled for every architecture"
    );
}

/// A training step of GPT-2 with 124 million parameters, 32 sequences of 1024 tokens, layers in
/// bf16. These kernels dominate its speed.
#[test]
fn kernels_of_a_step_of_gpt2_are_resident_often_enough() {
    use wengert::core::KeyPath;
    use wengert::models::{Gpt, GptSettings};
    use wengert::prelude::*;
    let settings = GptSettings { vocabulary: 50304, ..GptSettings::SMALL };
    let mut program = Program::new();
    program
        .function("step", |f| {
            let tokens = TensorType::new(DType::I32, [32usize, settings.positions]);
            let (x, y) = (f.input("x", tokens.clone()), f.input("y", tokens));
            let model = f.state("model", Gpt::new(&settings));
            let (loss, gradient) = value_and_grad(&model, |m| {
                m.map_tensors(&KeyPath::default(), &mut |_, t| t.convert(DType::BF16)).loss(&x, &y)
            });
            AdamW::new(1e-3).step(f, &model, &gradient);
            f.output("loss", loss);
        })
        .unwrap();
    let plan =
        compile(&program, "step", &Binding::new(), &target("sm_90"), &Options::default()).unwrap();
    let mut source = Source::parse("step of GPT-2", ptx(&plan).unwrap()).unwrap();
    source.architectures = vec![Architecture::from_name("sm_90").unwrap()];
    let report = assemble(&[source], &Allowed::of_the_repository().unwrap()).unwrap();
    report.write(&target_directory().join("gate-gpt2")).unwrap();
    assert!(report.passed(), "{}", report.failures.join("\n"));
    // Relocatable code needs far more registers: `wengert_cuda::assembly`. The cross-entropy keeps
    // its row in shared memory, so two blocks of 256 threads are resident (decision 123).
    for (part, most, least) in [("cross_entropy", 128, 25), ("reduce_sum", 48, 50)] {
        let of: Vec<_> = report.measures.iter().filter(|m| m.kernel.contains(part)).collect();
        assert!(!of.is_empty(), "no kernel is named {part}");
        for m in of {
            let percent = m.occupancy.expect("it passed").percent();
            assert!(
                m.registers <= most && percent >= least,
                "{}: {} registers, {percent}%",
                m.kernel,
                m.registers
            );
        }
    }
}
