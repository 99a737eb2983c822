//! The ptxas gate passes valid modules and fails invalid ones.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use wengert_ci::gate::{self, Allowed, Architecture, Collection, Report, Source, assemble};
use wengert_ci::toolkit::Toolkit;

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

fn kernel(name: &str, directives: &str, body: &str) -> String {
    format!("{HEAD}.visible .entry {name}(.param .u64 p)\n{directives}\n{{\n{body}\nret;\n}}\n")
}

fn gated(sources: &[Source], allowed: &str) -> Report {
    let allowed = Allowed::parse(allowed).expect("the tests write it well");
    assemble(sources, &allowed).expect("ptxas is there")
}

/// A kernel of 1024 threads, and so of at most 64 registers, with a hundred live values.
fn spilling() -> String {
    let mut body = String::from(".reg .b64 %l<2>;\n.reg .f32 %f<102>;\nld.param.u64 %l0, [p];\n");
    (0..100).for_each(|i| body += &format!("ld.volatile.global.f32 %f{i}, [%l0+{}];\n", 4 * i));
    (0..100)
        .for_each(|i| body += &format!("st.volatile.global.f32 [%l0+{}], %f{i};\n", 4 * (99 - i)));
    kernel("crowded", ".reqntid 1024, 1, 1", &body)
}

#[test]
fn a_good_kernel_passes_on_every_architecture() {
    let body = ".shared .align 4 .b8 s[512];\n.reg .b32 %r<2>;\nmov.u32 %r0, s;\n\
                st.shared.u32 [%r0], 1;\nbar.sync 0;";
    let text =
        format!("// dynamic_shared tidy 1000\n{}", kernel("tidy", ".reqntid 64, 2, 1", body));
    let report = gated(&[Source::parse("one", text).unwrap()], "");
    assert!(report.passed(), "{:?}", report.failures);
    assert_eq!(report.measures.len(), 6);
    for m in &report.measures {
        assert_eq!((m.threads, m.spills, m.stack), (Some(128), (0, 0), 0));
        assert_eq!(m.shared, 1512, "512 of the kernel, 1000 of the launch");
        assert_eq!(m.occupancy.unwrap().blocks, m.architecture.threads_per_multiprocessor / 128);
    }
    assert!(report.markdown().contains("| sm_120 | 1 |"), "{}", report.markdown());
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    assert_eq!(json["kernels"].as_array().unwrap().len(), 6);
}

#[test]
fn a_spill_fails_unless_it_is_allowed() {
    let sources = [Source::new("plan", spilling())];
    let report = gated(&sources, "");
    assert_eq!(report.failures.len(), 6, "{:?}", report.failures);
    assert!(
        report.failures[0].contains("plan / crowded for sm_80: spills"),
        "{}",
        report.failures[0]
    );
    let report = gated(&sources, "crow* all 1000 a hundred values are meant to be alive\n");
    assert!(report.passed() && report.allowed.len() == 6);
    assert!(report.allowed[0].contains("meant to be alive"));
    // An allowance of too few bytes, and one for another architecture.
    assert_eq!(gated(&sources, "crowded all 4 a few bytes").failures.len(), 6);
    assert_eq!(gated(&sources, "crowded sm_90 1000 only here").failures.len(), 5);
    assert!(Allowed::parse("crowded all 4").is_err(), "a reason is wanted");
}

#[test]
fn what_ptxas_refuses_and_what_does_not_fit_fails() {
    let refused = gated(&[Source::new("typo", kernel("k", "", "add.f32 %f1, %f2;"))], "");
    assert_eq!(refused.failures.len(), 6);
    assert!(refused.failures[0].contains("typo for sm_80"), "{}", refused.failures[0]);
    let text =
        format!("// dynamic_shared large 110000\n{}", kernel("large", ".reqntid 128, 1, 1", ""));
    let large = gated(&[Source::parse("plan", text).unwrap()], "");
    let places: Vec<_> = large.failures.iter().map(|f| f.split(':').next().unwrap()).collect();
    assert_eq!(places, ["sm_86", "sm_89", "sm_120"].map(|a| format!("plan / large for {a}")));
    let elsewhere =
        gated(&[Source::new("old", kernel("k", "", "").replace("sm_80", "sm_999"))], "");
    assert!(!elsewhere.passed());
}

#[test]
fn a_module_for_a_later_architecture_is_assembled_from_there_on() {
    let report = gated(&[Source::new("late", kernel("k", "", "").replace("sm_80", "sm_90"))], "");
    let numbers: Vec<_> = report.measures.iter().map(|m| m.architecture.number).collect();
    assert_eq!(numbers, [90, 100, 120]);
}

#[test]
fn equal_modules_are_one_and_others_are_assembled_only_where_they_are_for() {
    let mut collection = Collection::default();
    for architecture in Architecture::ALL {
        collection.add("same", architecture, kernel("same", "", ""));
        // A plan may depend on the architecture, here by the size of its shared memory.
        let own = format!("// dynamic_shared own {}\n", architecture.shared_per_block);
        collection.add(
            &format!("own {}", architecture.name()),
            architecture,
            own + &kernel("own", "", ""),
        );
    }
    let sources = collection.sources().unwrap();
    assert_eq!(sources.len(), 4, "one, and one for each size of shared memory");
    let report = gated(&sources, "");
    assert!(report.passed(), "{:?}", report.failures);
    assert_eq!(report.measures.len(), 12);
    for m in report.measures.iter().filter(|m| m.kernel == "own") {
        assert_eq!(m.shared, m.architecture.shared_per_block);
    }
}

#[test]
fn the_command_reads_a_folder_and_tells_by_its_exit_status() {
    let toolkit = Toolkit::find();
    assert!(toolkit.is_ok());
    let folder = tempfile::tempdir().unwrap();
    let status = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gate"));
        command.arg(folder.path()).output().unwrap().status.code()
    };
    assert_eq!(status(), Some(2), "nothing to assemble");
    fs::write(folder.path().join("good.ptx"), kernel("k", "", "")).unwrap();
    assert_eq!(status(), Some(0));
    assert!(fs::read_to_string(folder.path().join("gate.md")).unwrap().contains("| good | k |"));
    fs::write(folder.path().join("bad.ptx"), spilling()).unwrap();
    assert_eq!(status(), Some(1));
    assert!(fs::read_to_string(folder.path().join("gate.json")).unwrap().contains("crowded"));
}

/// The driver and the gate take their options from one table (`wengert_cuda::assembly`). A test in
/// the driver checks the driver's options. This test checks the options that ptxas gets.
#[test]
fn ptxas_is_run_with_the_options_of_the_driver() {
    let folder = tempfile::tempdir().unwrap();
    let (toolkit, sources) = (folder.path().join("toolkit/bin"), folder.path().join("sources"));
    fs::create_dir_all(&toolkit).unwrap();
    fs::create_dir_all(&sources).unwrap();
    fs::write(sources.join("one.ptx"), kernel("k", "", "")).unwrap();
    let script = format!("#!/bin/sh\necho \"$@\" >> {}\n", folder.path().join("asked").display());
    fs::write(toolkit.join("ptxas"), script).unwrap();
    fs::set_permissions(toolkit.join("ptxas"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gate"));
    command.arg(&sources).env("WENGERT_CUDA_TOOLKIT", folder.path().join("toolkit"));
    let _ = command.output().unwrap();
    let asked = fs::read_to_string(folder.path().join("asked")).unwrap();
    assert_eq!(asked.lines().count(), 6);
    for architecture in Architecture::ALL {
        let words = gate::arguments(&kernel("k", "", ""), &architecture.name()).join(" ");
        let line = asked
            .lines()
            .find(|line| line.contains(&words))
            .unwrap_or_else(|| panic!("{words}: {asked}"));
        // No other option affects the code.
        let rest = line.replace(&words, "");
        let mut rest: Vec<&str> = rest.split_whitespace().collect();
        rest.retain(|word| !word.contains('/'));
        assert_eq!(rest, ["-v", "--warn-on-spills", "-o"]);
    }
}
