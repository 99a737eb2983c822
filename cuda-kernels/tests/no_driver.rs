//! What opening a device does on this machine, whatever it has: with a driver it opens, without one the error says what is missing. Which of
//! the two must hold is found out by other means than the crate's own probe.

use std::process::Command;
use wengert_core::Diagnostic;
use wengert_cuda::driver::Device;
use wengert_cuda::driver::probe::probe;

/// True if the dynamic loader knows a driver (by its own cache and folders), and the kernel module is loaded.
fn a_driver_is_there() -> bool {
    let folders = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let listed =
        folders.split(':').any(|f| !f.is_empty() && std::path::Path::new(f).join("libcuda.so.1").exists());
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
        for part in ["the NVIDIA driver", "not installed", "libcuda.so.1", "help: install the NVIDIA driver"]
        {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
        assert_eq!(text.lines().count(), 2, "one line and the mend: {text}");
    } else if std::path::Path::new("/dev/nvidia0").exists() {
        let device = opened.unwrap();
        let (free, total) = device.memory_info().unwrap();
        assert!(free <= total && total > 0);
        device.synchronise().unwrap();
    } else if let Err(error) = opened {
        // A driver without a GPU: the call that found out is named.
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
        assert!(error.contains("cuda:4000000") || error.contains("starting the NVIDIA driver"), "{error}");
    } else {
        assert!(error.contains("the NVIDIA driver"), "{error}");
    }
}

/// The functions of the driver, from the table that is looked up.
fn functions() -> impl Iterator<Item = &'static str> {
    let lines = include_str!("../src/driver/api.rs").lines();
    lines.filter_map(|line| line.strip_prefix("    fn cu")?.split('(').next())
}

/// A folder with a `libcuda.so.1` all of whose functions return a code, but for those given in C.
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
    compiler.args(["-shared", "-fPIC", "-w", "-o"]).arg(folder.path().join("libcuda.so.1")).arg(source);
    let output = compiler.output().expect("a C compiler is among what the tests need");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder
}

/// What opening `cuda:0` says in a process that finds this library first.
fn opened_with(folder: &tempfile::TempDir) -> String {
    let output = Command::new(std::env::current_exe().expect("a test has a path"))
        .args(["--exact", "what_another_process_says_of_its_driver", "--nocapture"])
        .env("LD_LIBRARY_PATH", folder.path())
        .env(OTHER, "1")
        .output()
        .expect("a test can run itself");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Set in a process that is to look for a driver and say what it found.
const OTHER: &str = "WENGERT_TEST_DRIVER";

#[test]
fn what_another_process_says_of_its_driver() {
    if std::env::var_os(OTHER).is_some() {
        println!("opened: {:?}", Device::open(0).map_err(|error| Diagnostic::from(error).to_string()));
        println!("best: {:?}", wengert_cuda::driver::probe::first_gpu().map_err(|error| error.to_string()));
    }
}

/// The toolkit has a library of the driver's name for linking, which containers often put where the
/// loader finds it.
#[test]
fn a_stub_of_the_toolkit_is_told_as_one() {
    if a_driver_is_there() {
        // It is found behind the stub.
        return;
    }
    let told = opened_with(&library(34, &[]));
    for line in ["opened: Err", "best: Err"] {
        let line = told.lines().find(|l| l.starts_with(line)).unwrap_or_else(|| panic!("{told}"));
        assert!(
            line.contains("libcuda.so.1 is the CUDA toolkit's stub") && line.contains("LD_LIBRARY_PATH"),
            "{line}"
        );
    }
}

#[test]
fn a_driver_without_a_gpu_is_told_as_one() {
    let version = ("DriverGetVersion", "(int *version) { *version = 13000; return 0; }");
    let (works, none) =
        (("Init", "(int flags) { return 0; }"), ("DeviceGetCount", "(int *count) { *count = 0; return 0; }"));
    // CUDA_ERROR_NO_DEVICE of `cuInit`, and a driver that starts and counts none.
    for given in [&[version][..], &[version, works, none]] {
        let told = opened_with(&library(100, given));
        for line in ["opened: Err", "best: Err"] {
            let line = told.lines().find(|l| l.starts_with(line)).unwrap_or_else(|| panic!("{told}"));
            assert!(line.contains("no GPU is visible") && line.contains("docker run --gpus all"), "{line}");
        }
    }
    // A library that does not reach its kernel module.
    let told = opened_with(&library(304, &[version]));
    assert!(told.contains("the module `nvidia` is loaded"), "{told}");
}
