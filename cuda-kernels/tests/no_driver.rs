//! Opening a device on any machine. With a driver it succeeds; without one the error names the
//! missing part. The test does not use the crate's own probe to find out which of the two must
//! hold.

use std::process::Command;
use wengert_core::Diagnostic;
use wengert_cuda::driver::Device;
use wengert_cuda::driver::probe::probe;

/// True if the dynamic loader can find a driver: in `LD_LIBRARY_PATH`, in the usual folders, or in
/// its cache.
fn a_driver_is_there() -> bool {
    let folders = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let listed = folders
        .split(':')
        .any(|f| !f.is_empty() && std::path::Path::new(f).join("libcuda.so.1").exists());
    let usual = [
        "/usr/local/nvidia/lib64",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/lib/wsl/lib",
        "/usr/lib/aarch64-linux-gnu",
    ];
    let usual = usual.iter().any(|f| std::path::Path::new(f).join("libcuda.so.1").exists());
    let cached = ["/sbin/ldconfig", "/usr/sbin/ldconfig"].iter().any(|program| {
        let output = Command::new(program).arg("-p").output();
        output.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("libcuda.so.1"))
    });
    listed || usual || cached
}

#[test]
fn opening_a_device_gives_a_device_or_a_clear_error() {
    let opened = Device::open(0);
    if !a_driver_is_there() {
        let text = Diagnostic::from(opened.unwrap_err()).to_string();
        for part in [
            "the NVIDIA driver",
            "not installed",
            "libcuda.so.1",
            "help: install the NVIDIA driver",
        ] {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
        assert_eq!(text.lines().count(), 2, "one line and the mend: {text}");
    } else if std::path::Path::new("/dev/nvidia0").exists() {
        let device = opened.unwrap();
        let (free, total) = device.memory_info().unwrap();
        assert!(free <= total && total > 0);
        device.synchronise().unwrap();
    } else if let Err(error) = opened {
        // With a driver but no GPU, the error names the call that failed.
        assert!(
            error.to_string().contains("cuda:0") || error.to_string().contains("NVIDIA driver"),
            "{error}"
        );
    }
}

#[test]
fn the_probe_tells_the_same() {
    let found = probe();
    assert_eq!(found.driver.is_ok(), a_driver_is_there(), "{found}");
    let text = found.to_string();
    if found.driver.is_err() {
        assert!(text.starts_with("no driver: "), "{text}");
        assert!(text.contains("no cuBLASLt: "), "{text}");
        assert!(found.cublas_lt.is_err());
    } else {
        assert!(text.starts_with("driver: CUDA "), "{text}");
    }
}

#[test]
fn a_device_that_is_not_there_is_an_error_with_a_number() {
    let error = Device::open(4_000_000).unwrap_err().to_string();
    if a_driver_is_there() {
        assert!(
            error.contains("cuda:4000000") || error.contains("starting the NVIDIA driver"),
            "{error}"
        );
    } else {
        assert!(error.contains("the NVIDIA driver"), "{error}");
    }
}

/// The names of the driver's functions, from the table that the crate looks up.
fn functions() -> impl Iterator<Item = &'static str> {
    let lines = include_str!("../src/driver/api.rs").lines();
    lines.filter_map(|line| line.strip_prefix("    fn cu")?.split('(').next())
}

/// A folder with a `libcuda.so.1`. All of its functions return a code, except those given in C.
fn library(code: u32, given: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let body = |name: &str| {
        given
            .iter()
            .find(|(n, _)| *n == name)
            .map_or(format!("(void) {{ return {code}; }}"), |(_, c)| c.to_string())
    };
    let text: String = functions().map(|name| format!("int cu{name}{}\n", body(name))).collect();
    let source = folder.path().join("driver.c");
    std::fs::write(&source, text).expect("the folder can be written");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-w", "-o"])
        .arg(folder.path().join("libcuda.so.1"))
        .arg(source);
    let output = compiler.output().expect("a C compiler is among what the tests need");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder
}

/// The output of opening `cuda:0` in a process whose loader finds this library first.
fn opened_with(folder: &tempfile::TempDir) -> String {
    let output = Command::new(std::env::current_exe().expect("a test has a path"))
        .args(["--exact", "what_another_process_says_of_its_driver", "--nocapture"])
        .env("LD_LIBRARY_PATH", folder.path())
        .env(OTHER, "1")
        .output()
        .expect("a test can run itself");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Set in a process that must look for a driver and print the result.
const OTHER: &str = "WENGERT_TEST_DRIVER";

#[test]
fn what_another_process_says_of_its_driver() {
    if std::env::var_os(OTHER).is_some() {
        println!(
            "opened: {:?}",
            Device::open(0).map_err(|error| Diagnostic::from(error).to_string())
        );
        println!(
            "best: {:?}",
            wengert_cuda::driver::probe::first_gpu().map_err(|error| error.to_string())
        );
    }
}

/// The toolkit contains a library with the driver's name for linking. Containers often put it where
/// the loader finds it.
#[test]
fn a_stub_of_the_toolkit_is_told_as_one() {
    if a_driver_is_there() {
        wengert_testing::skipped("the loader finds this machine's driver after the stub");
        return;
    }
    let told = opened_with(&library(34, &[]));
    for line in ["opened: Err", "best: Err"] {
        let line = told.lines().find(|l| l.starts_with(line)).unwrap_or_else(|| panic!("{told}"));
        assert!(
            line.contains("libcuda.so.1 is the CUDA toolkit's stub")
                && line.contains("LD_LIBRARY_PATH"),
            "{line}"
        );
    }
}

#[test]
fn a_driver_without_a_gpu_is_told_as_one() {
    let version = ("DriverGetVersion", "(int *version) { *version = 13000; return 0; }");
    let (works, none) = (
        ("Init", "(int flags) { return 0; }"),
        ("DeviceGetCount", "(int *count) { *count = 0; return 0; }"),
    );
    // `cuInit` returns CUDA_ERROR_NO_DEVICE, or the driver starts and counts no devices.
    for given in [&[version][..], &[version, works, none]] {
        let told = opened_with(&library(100, given));
        for line in ["opened: Err", "best: Err"] {
            let line =
                told.lines().find(|l| l.starts_with(line)).unwrap_or_else(|| panic!("{told}"));
            assert!(
                line.contains("no GPU is visible") && line.contains("docker run --gpus all"),
                "{line}"
            );
        }
    }
    // A library that cannot connect to its kernel module.
    let told = opened_with(&library(304, &[version]));
    assert!(told.contains("the module `nvidia` is loaded"), "{told}");
}
