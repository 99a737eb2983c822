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
