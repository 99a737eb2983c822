//! Kernels that NVIDIA's compiler generated, on the emulator.
//!
//! The emulator runs the PTX that this project emits, so both could share a misreading of the PTX
//! manual. This corpus is an independent check. It consists of small CUDA C++ kernels, compiled by
//! nvcc, whose results are also computed in plain Rust. The first lines of each file state its
//! subject. Every file is compiled twice: optimised, and for a debugger. The second mode keeps
//! every variable in local memory, calls functions instead of inlining them, and branches where the
//! first uses predicates.
//!
//! Integers and single roundings must agree bit for bit. Functions of CUDA's library must be within
//! the bounds of the CUDA C++ Programming Guide, "Mathematical Functions".

mod bench;
mod blocks;
mod control;
mod floats;
mod integers;
mod matrices;
mod memory;
mod warps;

use std::fs;
use std::path::Path;

#[test]
fn every_file_of_the_corpus_is_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvcc");
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    let extension = |wanted: &'static str| {
        files.iter().filter(move |f| f.extension().is_some_and(|e| e == wanted))
    };
    let tests: String = extension("rs").map(|f| fs::read_to_string(f).unwrap()).collect();
    let mut count = 0;
    for file in extension("cu") {
        let name = file.file_stem().unwrap().to_string_lossy();
        assert!(tests.contains(&format!("each(\"{name}\"")), "no test compiles {name}.cu");
        let text = fs::read_to_string(file).unwrap();
        assert!(text.starts_with("// Exercises: "), "{name}.cu does not say what it exercises");
        for kernel in text.split("__global__ void ").skip(1).filter_map(|t| t.split('(').next()) {
            assert!(
                tests.contains(&format!("\"{kernel}\"")),
                "{name}.cu: no test launches {kernel}"
            );
        }
        count += 1;
    }
    assert!(count >= 30, "{count} files");
}
