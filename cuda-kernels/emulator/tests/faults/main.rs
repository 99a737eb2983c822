//! Planted faults, which the emulator must report with their line and kind; and clean kernels, in
//! which it must report nothing.
//!
//! A sanitizer without reports may be right or blind. So each of its checks gets faulty kernels,
//! one family of faults a file, and clean twins that do the same thing correctly. The comments
//! before a kernel declare its launch:
//!
//! ```text
//! // buffer NAME BYTES read|write|both [unset] [= WORD] [at OFFSET] [expects VALUE] [makes VALUE]
//! // value NAME TYPE NUMBER
//! // arena BYTES                        buffers with an offset lie in one allocation of this size
//! // after KERNEL                       that kernel is launched before, on the same memory
//! // launch [grid X,Y,Z] block X,Y,Z [shared BYTES]
//! ```
//!
//! Each `buffer` and each `value` is an argument of the kernel, in the order of the comments.
//!
//! A comment `// fault: KIND…` after an instruction names the kinds that may be reported there.
//! Where several instructions have one, as both sides of a race do, the report may name any of
//! them. Such a comment before a kernel refers to the launch itself. Every file is valid PTX: ptxas
//! assembles it.

mod case;

use std::fs;
use std::path::{Path, PathBuf};

use wengert_ci::toolkit::Toolkit;
use wengert_emulator::Module;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults")
}

/// Runs the kernels of a file. Returns the number of faulty kernels and of clean ones.
fn family(name: &str) -> (usize, usize) {
    let text = fs::read_to_string(folder().join(format!("{name}.ptx"))).expect("the family's file");
    let toolkit = Toolkit::find().unwrap_or_else(|e| panic!("{e}"));
    for architecture in ["sm_80", "sm_120"] {
        toolkit.check_ptx(&text, architecture).unwrap_or_else(|e| panic!("{name}.ptx: {e}"));
    }
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{name}.ptx: {e}"));
    let cases = case::parse(&text);
    let mut wrong = String::new();
    for case in &cases {
        if let Err(e) = case.judge(case.run(&module, &cases)) {
            wrong += &format!("{name}.ptx, {}: {e}\n", case.kernel);
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    let clean = cases.iter().filter(|c| c.is_clean()).count();
    assert!(clean > 0, "{name}.ptx has no clean twin");
    (cases.len() - clean, clean)
}

macro_rules! families {
    ($($test:ident $file:literal,)*) => {
        const FAMILIES: &[&str] = &[$($file),*];
        $(#[test] fn $test() { family($file); })*
    };
}

families! {
    access "access",
    alignment "alignment",
    asynchronous_copies "asynchronous-copies",
    barriers "barriers",
    global_bounds "global-bounds",
    global_races "global-races",
    hazards "hazards",
    lanes "lanes",
    launches "launches",
    other_bounds "other-bounds",
    shared_races "shared-races",
    uninitialised "uninitialised",
}

#[test]
fn every_file_is_a_family_and_there_are_sixty_faults() {
    let mut faults = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "ptx") {
            let name = path.file_stem().unwrap().to_string_lossy();
            assert!(FAMILIES.contains(&&*name), "no test runs {name}.ptx");
            let cases = case::parse(&fs::read_to_string(&path).unwrap());
            faults += cases.iter().filter(|c| !c.is_clean()).count();
        }
    }
    assert!(faults >= 60, "{faults} faults");
}
