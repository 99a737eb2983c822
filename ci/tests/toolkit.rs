//! The toolkit is installed once. If it is missing, the error names the missing part.

use std::fs;
use std::path::Path;

use wengert_ci::toolkit::{Toolkit, target_directory};

const KERNEL: &str =
    ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n\tret;\n}\n";

#[test]
fn ptxas_accepts_a_kernel_and_names_the_line_of_a_mistake() {
    let toolkit = Toolkit::find().unwrap();
    for architecture in ["sm_80", "sm_90", "sm_120"] {
        toolkit.check_ptx(KERNEL, architecture).unwrap();
    }
    let refused =
        toolkit.check_ptx(&KERNEL.replace("ret", "return"), "sm_80").unwrap_err().to_string();
    assert!(refused.contains("line 6"), "{refused}");
}

#[test]
fn nvcc_compiles_with_the_headers_for_halves_and_names_the_line_of_a_mistake() {
    let toolkit = Toolkit::find().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("k.cu");
    let text = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n\
                extern \"C\" __global__ void k(__half *a) {\n\
                a[0] = __hadd(a[0], a[1]);\n}\n";
    fs::write(&source, text).unwrap();
    let ptx = toolkit.compile_to_ptx(&source, &["-O3"]).unwrap();
    assert!(ptx.contains(".entry k") && ptx.contains(".f16"), "{ptx}");
    fs::write(&source, text.replace("a[1]", "b[1]")).unwrap();
    let refused = toolkit.compile_to_ptx(&source, &["-O3"]).unwrap_err().to_string();
    assert!(refused.contains("k.cu(4)"), "{refused}");
}

#[test]
fn a_folder_without_a_toolkit_is_refused() {
    let refused = Toolkit::at(Path::new("/nowhere")).unwrap_err().to_string();
    assert!(refused.contains("/nowhere") && refused.contains("bin/ptxas"), "{refused}");
}

#[test]
fn a_folder_that_cannot_be_created_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = Toolkit::installed_below(&file.join("toolkit")).unwrap_err().to_string();
    assert!(refused.contains("file/toolkit"), "{refused}");
}

#[test]
fn the_target_directory_is_the_one_this_test_was_built_in() {
    let exe = std::env::current_exe().unwrap();
    assert!(exe.starts_with(target_directory()), "{}", target_directory().display());
}
